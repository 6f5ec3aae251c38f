//! As root: programs in the running kernel, connections on them, and their remains.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use verus_faults::machine;

use crate::hosts::{Host, cable};

const ENDPOINT: &str = env!("CARGO_BIN_EXE_verus-endpoint");

fn verus(words: &str) -> Command {
    let mut command = Command::new(ENDPOINT);
    command.arg("kernel").args(words.split_whitespace());
    command.stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the binary runs")
}

fn done(words: &str) -> String {
    let output = output(verus(words));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kernel {words}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// The error message of a command that must refuse.
fn refused(command: Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end().to_owned()
}

/// The programs and maps of struct_ops that the kernel has, by bpftool.
fn programs() -> usize {
    let count = |what: &str| {
        let output = Command::new("bpftool").args(["-j", what, "show"]).output();
        let output = output.expect("bpftool runs");
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        let ours = all.iter().filter(|one| one["type"] == "struct_ops");
        ours.count()
    };
    count("prog") + count("map")
}

/// A lock that admits one test at a time, since all of them count the programs of one kernel. When
/// a test ends, the count must be the same as when it began.
struct Turn {
    before: usize,
    _machine: machine::Watch,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        unload_of_tests();
        Turn {
            before: programs(),
            _machine: machine::watch(5),
            _turn: turn,
        }
    }

    /// Once the last connection has ended, the kernel takes a moment to free what carried it.
    fn nothing_is_left(self) {
        let since = now();
        while programs() > self.before {
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "{} programs are left",
                programs() - self.before
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Turn {
    /// A test that failed leaves nothing to the next.
    fn drop(&mut self) {
        unload_of_tests();
    }
}

/// Sorted names of the congestion controls that `verus kernel load` has pinned.
fn pinned() -> Vec<String> {
    let pins = std::fs::read_dir("/sys/fs/bpf/verus").into_iter().flatten();
    let name = |pin: std::fs::DirEntry| pin.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = pins.flatten().map(name).collect();
    names.sort();
    names
}

/// Unloads congestion controls of tests: one that failed, or was killed, may have left its own.
fn unload_of_tests() {
    for name in pinned() {
        if name.starts_with("verus_test_") {
            let _ = verus(&format!("--quiet unload {name}")).status();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long the kernel takes is real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn set_default(host: &Host, name: &str) {
    let setting = format!("net.ipv4.tcp_congestion_control={name}");
    let output = host.run("sysctl").args(["-qw", &setting]).output();
    let output = output.expect("`sysctl` runs");
    assert!(output.status.success(), "{output:?}");
}

/// Two hosts, joined by a cable.
fn hosts() -> [Host; 2] {
    let hosts = [Host::new(), Host::new()];
    cable([
        (&hosts[0], "v0", "10.9.0.1/24"),
        (&hosts[1], "v0", "10.9.0.2/24"),
    ]);
    hosts
}

/// A connection from the first host to the second, both ends.
fn connection(hosts: &[Host; 2]) -> [TcpStream; 2] {
    let listener = hosts[1].within(|| TcpListener::bind((Ipv4Addr::new(10, 9, 0, 2), 7000)));
    let listener = listener.expect("the port is free");
    let from = hosts[0].within(|| TcpStream::connect((Ipv4Addr::new(10, 9, 0, 2), 7000)));
    let (to, _) = listener.accept().expect("it came");
    [from.expect("it connects"), to]
}

/// Carries so many bytes over it.
fn carry(ends: &mut [TcpStream; 2], bytes: usize) {
    let [from, to] = ends;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = vec![7; 1 << 16];
            for _ in 0..bytes / block.len() {
                from.write_all(&block).expect("the connection stands");
            }
        });
        let mut arrived = 0;
        let mut block = vec![0; 1 << 16];
        while arrived < bytes / block.len() * block.len() {
            let read = to.read(&mut block).expect("the connection stands");
            assert!(read > 0 && block[..read].iter().all(|byte| *byte == 7));
            arrived += read;
        }
    });
}

fn status(host: &Host, name: &str) -> Value {
    let output = host.within(|| output(verus("status --json")));
    assert!(output.status.success(), "{output:?}");
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut named = status["loaded"].as_array().expect("a list").iter();
    named
        .rfind(|one| one["name"] == name)
        .cloned()
        .unwrap_or_default()
}

fn is_available(name: &str) -> bool {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = std::fs::read_to_string(path).expect("Linux has it");
    names.split_whitespace().any(|known| known == name)
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn every_setting_loads_and_goes_without_a_trace() {
    let turn = Turn::take();
    for budget_ms in [6.0, 90.0, 62.5, 1000.0] {
        done(&format!(
            "load forward --set budget_ms={budget_ms} --name verus_test_set"
        ));
        assert!(is_available("verus_test_set"));
        let here = Host::new();
        let status = status(&here, "verus_test_set");
        assert_eq!(status["law"], "forward");
        assert_eq!(status["settings"], json!({"budget_ms": budget_ms}));
        assert_eq!(status["registered"], true);
        assert_eq!(status["flows_running"], 0);
        done("unload verus_test_set");
        assert!(!is_available("verus_test_set"));
        assert!(!Path::new("/sys/fs/bpf/verus/verus_test_set").exists());
    }
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn connections_of_another_namespace_take_it_as_their_default_and_outlive_it() {
    let turn = Turn::take();
    let hosts = hosts();
    done("load forward --name verus_test_dflt");
    set_default(&hosts[0], "verus_test_dflt");
    let mut ends = connection(&hosts);
    carry(&mut ends, 20 << 20);
    let report = status(&hosts[0], "verus_test_dflt");
    let flow = &report["flows"][0];
    assert_eq!(report["flows_running"], 1, "{report}");
    assert_eq!(flow["remote"], "10.9.0.2:7000");
    assert!(flow["acked_bytes"].as_u64() >= Some(19 << 20), "{flow}");
    assert!(flow["rate_mbps"].as_f64() > Some(1.0), "{flow}");
    assert!(flow["delay_min_ms"].as_f64() > Some(0.0), "{flow}");
    // Flows of the other host are not shown here.
    assert_eq!(status(&hosts[1], "verus_test_dflt")["flows"], json!([]));

    let said = refused_within(&hosts[0], "unload verus_test_dflt");
    assert!(
        said.starts_with("verus: `verus_test_dflt` is the default"),
        "{said}"
    );
    // The suggested command works there.
    let other = said
        .rsplit_once("tcp_congestion_control=")
        .map(|(_, rest)| rest);
    let other = other.and_then(|rest| rest.split('`').next());
    set_default(
        &hosts[0],
        other.unwrap_or_else(|| panic!("no command: {said}")),
    );
    done("unload verus_test_dflt");
    assert!(!is_available("verus_test_dflt"));
    // Connections go on, and are still shown.
    carry(&mut ends, 20 << 20);
    let report = status(&hosts[0], "verus_test_dflt");
    assert_eq!(
        (&report["registered"], &report["flows_running"]),
        (&json!(false), &json!(1))
    );
    // And another of that name may come.
    done("load forward --name verus_test_dflt");
    assert_eq!(status(&hosts[0], "verus_test_dflt")["flows_running"], 0);
    done("unload verus_test_dflt");
    drop(ends);
    turn.nothing_is_left();
}

fn refused_within(host: &Host, words: &str) -> String {
    host.within(|| refused(verus(words)))
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn a_connection_changes_to_it_and_away_while_it_runs() {
    let turn = Turn::take();
    let hosts = hosts();
    done("load forward --name verus_test_swap");
    let mut ends = connection(&hosts);
    carry(&mut ends, 5 << 20);
    for name in ["verus_test_swap", "cubic", "verus_test_swap", "reno"] {
        let socket = socket2::SockRef::from(&ends[0]);
        socket
            .set_tcp_congestion(name.as_bytes())
            .expect("it is there");
        carry(&mut ends, 5 << 20);
    }
    let told = status(&hosts[0], "verus_test_swap");
    assert_eq!(
        (&told["flows_begun"], &told["flows_running"]),
        (&json!(2), &json!(0))
    );
    done("unload verus_test_swap");
    drop(ends);
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn while_data_flows_it_is_swapped_unloaded_and_loaded_again() {
    let turn = Turn::take();
    let hosts = hosts();
    done("load forward --name verus_test_run");
    let mut ends = connection(&hosts);
    let chooser = ends[0].try_clone().expect("a descriptor");
    let choose = |name: &str| {
        let socket = socket2::SockRef::from(&chooser);
        socket
            .set_tcp_congestion(name.as_bytes())
            .expect("it is there");
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let carrier = scope.spawn(|| {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                carry(&mut ends, 1 << 20);
                rounds += 1;
            }
            rounds
        });
        // By turns, so that each budget follows the other under one name.
        for budget_ms in [50, 90].repeat(5) {
            for name in ["verus_test_run", "cubic", "verus_test_run"] {
                choose(name);
                std::thread::sleep(Duration::from_millis(20));
            }
            done("unload verus_test_run");
            std::thread::sleep(Duration::from_millis(20));
            done(&format!(
                "load forward --set budget_ms={budget_ms} --name verus_test_run"
            ));
            choose("verus_test_run");
        }
        over.store(true, Ordering::Relaxed);
        assert!(carrier.join().expect("every byte arrived") > 5);
    });
    drop((ends, chooser));
    done("unload verus_test_run");
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn what_cannot_be_is_said_in_one_line_and_leaves_nothing() {
    let turn = Turn::take();
    done("load forward --name verus_test_once");
    let mut as_nobody = verus("load forward --name verus_test_no");
    as_nobody.uid(65534).gid(65534);
    let cases = "
        load forward --name verus_test_once => the kernel has a congestion control `verus_test_once` already (--name gives another)
        load forward --name cubic => the kernel has a congestion control `cubic` already (--name gives another)
        load forward --name sixteen_letters_ => the name `sixteen_letters_` is too long: 15 characters at the most, and it has 16
        load forward --name verus_test_no --set ratio=4 => `forward` in the kernel has no setting `ratio`: it has budget_ms
        load vegas => `vegas` has no program for the kernel: `forward` has
        unload verus_test_no => no congestion control `verus_test_no` was loaded by `verus kernel load`; loaded: (all)
        unload sixteen_letters_ => the name `sixteen_letters_` is too long: 15 characters at the most, and it has 16
        unload . => the name `.` has other than letters, digits, `_` and `-`";
    // The machine may have others loaded.
    let cases = cases.replace("(all)", &pinned().join(", "));
    for case in cases.lines().skip(1) {
        let (words, said) = case.split_once(" => ").expect("a case");
        assert_eq!(refused(verus(words)), format!("verus: {said}"));
    }
    for (command, said) in [
        (
            as_nobody,
            "loading a congestion control into the kernel takes root (sudo)",
        ),
        (
            where_hidden("/sys/kernel/btf"),
            "this kernel does not describe its types: /sys/kernel/btf/vmlinux is missing (CONFIG_DEBUG_INFO_BTF)",
        ),
        (
            where_hidden("/sys/fs"),
            "the BPF file system cannot be mounted at /sys/fs/bpf: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(refused(command), format!("verus: {said}"));
    }
    // A system call of Linux has every program take the kernel for an old one.
    let mut on_old = Command::new("setarch");
    on_old.args(["--uname-2.6", ENDPOINT, "kernel", "load", "forward"]);
    on_old.args(["--name", "verus_test_no"]);
    let said = refused(on_old);
    assert!(said.starts_with("verus: this kernel is 2.6."), "{said}");
    assert!(said.contains("takes Linux 6.10 or later"), "{said}");
    assert!(!is_available("verus_test_no"));
    done("unload verus_test_once");
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn unload_removes_nothing_but_what_load_has_pinned() {
    let turn = Turn::take();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "text").expect("written");
    let path = file.display().to_string();
    done("load forward --name verus_test_once");
    for name in [
        path.clone(),
        format!("../../../..{path}"),
        "../verus/verus_test_once".to_owned(),
        "./verus_test_once".to_owned(),
    ] {
        let said = refused(verus(&format!("unload {name}")));
        assert!(
            said.contains("has other than letters") || said.contains("too long"),
            "{said}"
        );
    }
    assert!(file.exists());
    assert!(is_available("verus_test_once"));
    done("unload verus_test_once");
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn what_another_user_planted_in_the_bpf_file_system_is_not_used() {
    let turn = Turn::take();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let file = elsewhere.path().join("verus_test_no");
    std::fs::write(&file, "text").expect("written");
    let elsewhere = elsewhere.path().display().to_string();
    for (plant, said) in [
        ("mkdir /sys/fs/bpf/verus", "belongs to user 65534"),
        (
            &format!("ln -s {elsewhere} /sys/fs/bpf/verus"),
            "is not a folder",
        ),
    ] {
        for verb in ["load forward --name verus_test_no", "unload verus_test_no"] {
            // Mounted as by the kernel itself, in a separate mount namespace.
            let script = format!(
                "while umount /sys/fs/bpf 2>/dev/null; do :; done; mount -t bpf bpf /sys/fs/bpf && \
                 setpriv --reuid 65534 --regid 65534 --clear-groups {plant} && exec \"$0\" kernel {verb}"
            );
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script, ENDPOINT]);
            let refusal = refused(command);
            assert!(
                refusal.starts_with("verus: `/sys/fs/bpf/verus`"),
                "{refusal}"
            );
            assert!(refusal.contains(said), "{refusal}");
            assert!(!is_available("verus_test_no"));
        }
    }
    assert!(file.exists());
    // Nothing is planted here, although a user could: that is no obstacle. Pinned programs belong
    // to root.
    let mut command = Command::new("unshare");
    let script = "while umount /sys/fs/bpf 2>/dev/null; do :; done; mount -t bpf bpf /sys/fs/bpf && umask 0 && \
                  \"$0\" -q kernel load forward --name verus_test_mnt && stat -c %a-%u /sys/fs/bpf/verus && \
                  \"$0\" -q kernel unload verus_test_mnt";
    command.args(["--mount", "sh", "-c", script, ENDPOINT]);
    let output = output(command);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "700-0\n",
        "{output:?}"
    );
    turn.nothing_is_left();
}

/// A command that loads in a separate mount namespace, with an empty system folder.
fn where_hidden(folder: &str) -> Command {
    let mut command = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs none {folder} && exec \"$0\" kernel load forward --name verus_test_no"
    );
    command.args(["--mount", "sh", "-c", &script, ENDPOINT]);
    command
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn the_bpf_file_system_is_mounted_where_it_is_not() {
    let turn = Turn::take();
    let mut command = Command::new("unshare");
    // It lasts as long as that mount, here until the shell ends.
    let script = "while umount /sys/fs/bpf 2>/dev/null; do :; done; \"$0\" -q kernel load forward --name verus_test_mnt && \
                  cat /proc/sys/net/ipv4/tcp_available_congestion_control && ls /sys/fs/bpf/verus";
    command.args(["--mount", "sh", "-c", script, ENDPOINT]);
    let output = output(command);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("verus_test_mnt").count(), 2, "{said}");
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn a_loader_that_is_killed_leaves_all_or_nothing() {
    let turn = Turn::take();
    let mut all = 0;
    for after in 0..30 {
        let mut loader = verus("load forward --name verus_test_kill");
        let mut loader = loader
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        std::thread::sleep(Duration::from_millis(after * 6));
        let _ = loader.kill();
        let _ = loader.wait();
        if Path::new("/sys/fs/bpf/verus/verus_test_kill").exists() {
            assert!(is_available("verus_test_kill"), "after {after}");
            done("unload verus_test_kill");
            all += 1;
        }
        let since = now();
        while is_available("verus_test_kill") {
            assert!(since.elapsed() < Duration::from_secs(10), "after {after}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(all < 30, "none was killed before it had ended");
    turn.nothing_is_left();
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn a_trace_has_each_flow_and_is_whole_when_it_is_interrupted() {
    let turn = Turn::take();
    let hosts = hosts();
    let folder = tempfile::tempdir().expect("a folder");
    let words = |name: &str| format!("trace --out {}", folder.path().join(name).display());
    // Congestion controls of others, or unloaded ones with running connections, are those of the
    // whole machine.
    let others = done("status --json");
    let none = hosts[0].within(|| output(verus(&format!("{} --seconds 0.2", words("none")))));
    let report: Value = serde_json::from_str(&others).expect("JSON");
    let gets_flows = |one: &Value| one["registered"] == true || one["flows_running"] != 0;
    let (code, said) = if !report["loaded"]
        .as_array()
        .expect("a list")
        .iter()
        .any(gets_flows)
    {
        (2, "nothing is loaded (`verus kernel load forward`)")
    } else {
        (
            1,
            "no flow was seen in this network namespace: nothing is written",
        )
    };
    assert_eq!(none.status.code(), Some(code), "{none:?} beside {others}");
    let message = String::from_utf8_lossy(&none.stderr);
    assert_eq!(message, format!("verus: {said}\n"), "beside {others}");
    done("load forward --name verus_test_trc");
    let quiet = hosts[0].within(|| output(verus(&format!("{} --seconds 0.2", words("quiet")))));
    assert_eq!(quiet.status.code(), Some(1), "{quiet:?}");
    assert!(!folder.path().join("quiet").exists());

    let tracer = hosts[0].within(|| verus(&words("live")).stderr(Stdio::piped()).spawn());
    let tracer = tracer.expect("the binary runs");
    let mut ends = connection(&hosts);
    let socket = socket2::SockRef::from(&ends[0]);
    socket
        .set_tcp_congestion(b"verus_test_trc")
        .expect("it is there");
    let began = now();
    while began.elapsed() < Duration::from_secs(1) {
        carry(&mut ends, 1 << 20);
    }
    let pid = nix::unistd::Pid::from_raw(tracer.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
    let ended = tracer.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{ended:?}");
    let live = folder.path().join("live");
    let lines = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(live.join(name)).expect("it is written");
        let lines = text.lines().map(serde_json::from_str);
        lines.map(|line| line.expect("JSON")).collect()
    };
    let rows = lines("results.jsonl");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["label"], "verus_test_trc");
    let rate = |row: &Value| row["throughput_mbps"].as_f64().expect("a rate");
    assert!(rate(&rows[0]) > 1.0, "{rows:?}");
    let series = lines("series.jsonl");
    assert!(series.len() > 5, "{series:?}");
    assert!(series.iter().map(rate).fold(0.0, f64::max) > 1.0);
    for bin in &series {
        assert!(bin["window_bytes"].as_f64() > Some(0.0), "{bin}");
        // Where nothing arrived, there is no delay.
        let arrived = rate(bin) > 0.0;
        let delay = bin["delay_min_ms"].as_f64();
        assert_eq!(arrived, delay > Some(0.0), "{bin}");
    }
    let run = std::fs::read_to_string(live.join("run.json")).expect("it is written");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!(run["kind"], "probe");
    assert_eq!(run["runs"][0]["flows"][0]["remote"], "10.9.0.2:7000");
    drop(ends);
    done("unload verus_test_trc");
    turn.nothing_is_left();
}

/// A run behind an emulated link, as `verus compare --emulate` makes it.
fn emulated(scheme: &str, flows: usize) -> Value {
    let flow = json!({"scheme": scheme});
    let job = json!({
        "transport": "udp",
        "scenario": {"trace": "rate:12", "duration_s": 15.0, "flows": vec![flow; flows]},
    });
    let mut child = Command::new(ENDPOINT)
        .arg("emulate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin
        .write_all(job.to_string().as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["metrics"].clone()
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn it_sends_in_the_kernel_as_it_does_over_udp() {
    let turn = Turn::take();
    let number = |report: &Value, name: &str| report[name].as_f64().expect("a number");
    let (udp, tcp) = (emulated("forward", 1), emulated("kernel:forward", 1));
    let of_udp = |name| number(&tcp, name) / number(&udp, name);
    let (rate, delay) = (of_udp("throughput_mbps"), of_udp("qdelay_mean_ms"));
    assert!((0.95..1.05).contains(&rate), "{rate} of the throughput");
    assert!((0.85..1.15).contains(&delay), "{delay} of the delay");
    // Two share, and are loaded once.
    let two = emulated("kernel:forward:budget_ms=50", 2);
    assert!(number(&two, "jain") > 0.9, "{two}");
    assert!(number(&two, "utilization") > 0.9, "{two}");
    turn.nothing_is_left();
}

/// The value of a series, as `kernel status --openmetrics` prints it.
fn series(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    line.and_then(|value| value.trim().parse().ok())
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn both_groups_of_a_roll_out_are_measured_by_the_same_method() {
    let turn = Turn::take();
    let hosts = hosts();
    done("load forward --name verus_test_om");
    // Reno, since it is the one sender of the kernel that every namespace may have by default.
    for sender in ["verus_test_om", "reno"] {
        set_default(&hosts[0], sender);
        let mut ends = connection(&hosts);
        carry(&mut ends, 20 << 20);
        let output = hosts[0].within(|| output(verus("status --openmetrics")));
        assert!(output.status.success(), "{output:?}");
        let page = String::from_utf8(output.stdout).expect("text");
        assert!(page.ends_with("# EOF\n"), "{page}");
        let of = |name: &str, more: &str| {
            series(&page, &format!("verus_{name}{{sender=\"{sender}\"{more}}}"))
        };
        let median = |name: &str| of(name, ",quantile=\"0.5\"");
        assert_eq!(of("flows", ""), Some(1.0), "{page}");
        let round_trip = median("round_trip_seconds").expect("it was measured");
        assert!(round_trip > 0.0 && round_trip < 1.0, "{page}");
        let queue = median("queueing_delay_seconds").expect("it was measured");
        assert!((0.0..1.0).contains(&queue), "{page}");
        assert!(median("window_bytes") > Some(1500.0), "{page}");
        assert!(
            median("delivery_rate_bytes_per_second") > Some(1e5),
            "{page}"
        );
        assert!(
            median("lost_ratio").is_some_and(|ratio| ratio < 0.5),
            "{page}"
        );
        // Reno has no target, and its flows are not counted.
        let is_ours = sender != "reno";
        assert_eq!(
            median("queueing_delay_target_seconds").is_some(),
            is_ours,
            "{page}"
        );
        assert_eq!(of("flows_begun_total", ""), is_ours.then_some(1.0));
    }
    done("unload verus_test_om");
    turn.nothing_is_left();
}
