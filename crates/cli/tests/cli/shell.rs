//! `shell` as a user meets it: programs behind the link, their exit codes, and no remains in any
//! case. `make test-root` runs the tests that take root, namespaces and TUN.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const ENDPOINT: &str = env!("CARGO_BIN_EXE_verus-endpoint");
/// Nobody, on most systems.
const NOBODY: u32 = 65534;

/// Variables that name the calling user to a root process.
const CALLERS: [&str; 5] = [
    "SUDO_USER",
    "SUDO_UID",
    "SUDO_GID",
    "DOAS_USER",
    "PKEXEC_UID",
];

/// A shell with these words, parted by spaces.
fn shell(words: &str) -> Command {
    let mut command = Command::new(ENDPOINT);
    command.arg("shell").args(words.split_whitespace());
    command.stdin(Stdio::null());
    for name in CALLERS {
        command.env_remove(name);
    }
    command
}

/// A quick one whose program is a script.
fn script(text: &str) -> Command {
    let mut command = shell("-q --down rate:50 -- bash -c");
    command.arg(text);
    command
}

/// The same as if this user had called `sudo`.
fn shell_for(user: u32, words: &str) -> Command {
    let mut command = shell(words);
    command
        .env("SUDO_UID", user.to_string())
        .env("SUDO_GID", user.to_string());
    command
}

/// A folder that belongs to [`NOBODY`].
fn folder_of_nobody() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    folder
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the binary runs")
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Settings of the host that a shell changes, in a form that compares.
fn host() -> Vec<(String, String)> {
    let mut names = vec!["ipv4/ip_forward".to_owned()];
    for family in ["ipv4", "ipv6"] {
        for interface in ["all", "default", "lo", "eth0"] {
            for setting in ["forwarding", "accept_ra", "accept_redirects"] {
                names.push(format!("{family}/conf/{interface}/{setting}"));
            }
        }
    }
    names
        .into_iter()
        .filter_map(|name| {
            let value = fs::read_to_string(Path::new("/proc/sys/net").join(&name)).ok()?;
            Some((name, value))
        })
        .collect()
}

/// Runs `work` in a separate network namespace and with separate notes, so that tests do not affect
/// each other's shells, or those of others. It must leave the host unchanged.
fn alone(work: impl FnOnce(&Path) + Send) {
    let notes = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let flags =
                    nix::sched::CloneFlags::CLONE_NEWNET | nix::sched::CloneFlags::CLONE_NEWNS;
                nix::sched::unshare(flags).expect("as the shell did");
                let nothing: Option<&str> = None;
                let private = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
                nix::mount::mount(nothing, "/", nothing, private, nothing).expect("a namespace");
                let over = nix::mount::MsFlags::MS_BIND;
                nix::mount::mount(Some(notes.path()), "/run", nothing, over, nothing).expect("it");
                // The namespace's own settings, whatever the system's.
                fs::write("/proc/sys/net/ipv4/ip_forward", "0").expect("a setting");
                let (before, notes) = (host(), notes.path().join("verus"));
                work(&notes);
                assert_eq!(host(), before);
                assert!(!notes.exists(), "notes");
                let devices = fs::read_to_string("/proc/thread-self/net/dev").expect("a table");
                assert!(!devices.contains("verus"), "{devices}");
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Waits for `child`, which is about to end.
fn ended(mut child: Child) -> Option<i32> {
    for _ in 0..4000 {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status.code();
        }
        sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("it does not end");
}

/// Waits until `child` has printed something on its standard output.
fn wait_for_output(child: &mut Child) {
    let mut byte = [0];
    let out = child.stdout.as_mut().expect("piped");
    out.read_exact(&mut byte).expect("it says something");
}

fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    let id = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(id, signal).expect("it is ours");
}

#[test]
fn bad_input_is_refused_with_one_message_and_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let light = file("light", "0 20 0 1\n100 20 0\n200 20 0\n");
    let broken = file("broken", "0 20 0 1\n100 20\n200 20 0\n");
    let beside = "--down rate:5 --mtu 1400";
    let cases = format!(
        "--down rate:5 --light-trace {light} -- true => --mtu must be at most 1400 beside --light-trace, not 1500
        {beside} --light-trace {broken} -- true => line 2: `100 20` is no packet train
        {beside} --up-light-trace {light} -- true => --up
        {beside} --size-offsets {light} -- true => --light-trace
        -- true => --down
        --down nosuch -- true => nosuch
        --down rate:0 -- true => rate:0
        --down rate:5 --queue red:min=9,max=1 -- true => queue
        --down rate:5 --loss 1 -- true => --loss: must be a probability below 1, such as 0.005 or 0.5%, not `1`
        --down rate:5 --up-loss-bursts 5/5 -- true => --up-loss-bursts: must be `none`, or LOST/OF
        --down rate:5 --jitter gaus -- true => --jitter: unknown kind `gaus`
        --down rate:5 --up-loss-series /none -- true => --up-loss-series: cannot read `/none`
        --down rate:5 --delay-ms=-1 -- true => --delay-ms
        --down rate:5 --mtu 100 -- true => --mtu
        --down rate:5 --force -- true => --out
        --down rate:5 --out /proc/nothing -- true => --out
        --down rate:5 true => true"
    );
    for case in cases.lines() {
        let (arguments, word) = case.split_once(" => ").expect("a case");
        let refused = output(&mut shell(arguments));
        let error = words(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
        let messages = error
            .lines()
            .filter(|line| line.starts_with("verus: ") || line.starts_with("error: "));
        assert_eq!(messages.count(), 1, "{error}");
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn exit_codes_are_the_programs_or_say_why_there_was_none() {
    for (program, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["/nonexistent/program"], 127),
        (&["/"], 126),
    ] {
        let result = output(shell("-q --down rate:50 --").args(program));
        assert_eq!(result.status.code(), Some(code), "{program:?}: {result:?}");
        let expected_lines = usize::from(code == 126 || code == 127);
        assert_eq!(
            words(&result.stderr).lines().count(),
            expected_lines,
            "{result:?}"
        );
    }
    let nowhere = "/dev/null/log";
    let log = format!("-q --down rate:50 --log-down {nowhere} -- true");
    let refused = output(&mut shell(&log));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(words(&refused.stderr).contains(nowhere));
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn without_a_command_it_is_the_users_shell() {
    let mut command = shell("-q --down rate:50");
    let mut child = command
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut to = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut to, b"echo at $MAHIMAHI_BASE; exit 7\n").expect("it reads");
    drop(to);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(7));
    assert!(
        words(&output.stdout).starts_with("at 100.64."),
        "{output:?}"
    );
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_run_past_its_bound_is_invalid_and_its_numbers_are_told() {
    // Something must be delivered for it to be late: a connection that nobody takes.
    let run = |bound| {
        let line = format!("--down rate:50 --max-lateness-ms {bound} -- bash -c");
        output(shell(&line).arg("exec 3<>/dev/tcp/$MAHIMAHI_BASE/9 || true"))
    };
    let invalid = run(0);
    let error = words(&invalid.stderr);
    assert_eq!(invalid.status.code(), Some(3), "{error}");
    assert!(error.contains("the run is invalid"), "{error}");
    let expected = [
        "down",
        "up",
        "p50",
        "p99",
        "largest",
        "devices lost 0 packets",
    ];
    for word in expected {
        assert!(error.contains(word), "{error}");
    }
    let valid = run(10_000);
    assert_eq!(valid.status.code(), Some(0), "{valid:?}");
}

/// A shell that handles all signals: a test run in the background may ignore SIGINT.
fn heeding(shell: &Command) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,HUP", "--"])
        .arg(shell.get_program())
        .args(shell.get_args())
        .stdin(Stdio::null());
    for (name, _) in shell.get_envs() {
        command.env_remove(name);
    }
    command
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn signals_reach_the_program_and_the_host_is_as_before() {
    use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGTERM};
    alone(|notes| {
        let before = host();
        for (sent, code) in [(SIGINT, 42), (SIGTERM, 43), (SIGHUP, 44)] {
            let traps = "trap 'exit 42' INT; trap 'exit 43' TERM; trap 'exit 44' HUP; echo; \
                         while :; do sleep 0.05; done";
            let mut child = heeding(&script(traps))
                .stdout(Stdio::piped())
                .spawn()
                .expect("the binary runs");
            wait_for_output(&mut child);
            assert_eq!(read("/proc/sys/net/ipv4/conf/verus0/forwarding"), "1");
            assert_eq!(read("/proc/sys/net/ipv4/ip_forward"), "0");
            signal(&child, sent);
            assert_eq!(ended(child), Some(code), "{sent}");
            assert_eq!(host(), before, "{sent}");
            assert!(!notes.exists(), "{sent}");
        }
        // At any moment of setting up.
        for wait in [1, 3, 5, 8, 12, 20] {
            let child = shell("-q --down rate:50 -- sleep 20")
                .spawn()
                .expect("the binary runs");
            sleep(Duration::from_millis(wait));
            signal(&child, SIGTERM);
            // A process that has barely begun is ended by the signal itself.
            let code = ended(child);
            assert!(
                matches!(code, Some(143) | None),
                "after {wait} ms: {code:?}"
            );
            assert_eq!(host(), before, "after {wait} ms");
            assert!(!notes.exists(), "after {wait} ms");
        }
    });
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .expect("a setting")
        .trim()
        .to_owned()
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn after_kill_9_at_any_moment_the_next_start_leaves_a_clean_host() {
    alone(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("down.log");
        let log = log.to_str().expect("a name");
        for wait in [2, 4, 6, 9, 12, 16, 25, 60] {
            let child = shell(&format!("-q --down rate:50 --log-down {log} -- sleep 20"))
                .spawn()
                .expect("the binary runs");
            sleep(Duration::from_millis(wait));
            signal(&child, nix::sys::signal::Signal::SIGKILL);
            ended(child);
        }
        let next = output(&mut shell("-q --down rate:50 -- true"));
        assert!(next.status.success(), "{next:?}");
        let drafts: Vec<_> = fs::read_dir(folder.path()).expect("it").flatten().collect();
        assert!(drafts.is_empty(), "{drafts:?}");
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn shells_nest_and_several_run_at_once() {
    alone(|_| {
        let inner =
            format!("{ENDPOINT} shell -q --up rate:50 -- sh -c 'echo $MAHIMAHI_BASE; exit 9'");
        let several: Vec<Child> = (0..3)
            .map(|_| {
                let mut command = script(&inner);
                command.stdout(Stdio::piped()).spawn().expect("it runs")
            })
            .collect();
        for child in several {
            let output = child.wait_with_output().expect("it ends");
            assert_eq!(output.status.code(), Some(9), "{output:?}");
            assert!(words(&output.stdout).starts_with("100.64."), "{output:?}");
        }
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn the_program_is_the_invoking_users_and_so_is_what_it_leaves() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder_of_nobody();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (out, log) = (path("run"), path("up.log"));
    let arguments = format!("-q --down rate:50 --out {out} --log-up {log} -- id -u");
    let output = output(&mut shell_for(NOBODY, &arguments));
    assert_eq!(words(&output.stdout), format!("{NOBODY}\n"), "{output:?}");
    for path in [
        log,
        out.clone(),
        format!("{out}/run.json"),
        format!("{out}/results.jsonl"),
    ] {
        let owner = fs::metadata(&path).expect("it is there").uid();
        assert_eq!(owner, NOBODY, "{path}");
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn the_program_cannot_have_root_write_where_it_may_not() {
    let (work, roots) = (folder_of_nobody(), tempfile::tempdir().expect("a folder"));
    let precious = roots.path().join("precious");
    fs::write(&precious, "precious").expect("a file");
    // Links where the results, the log and their drafts may be written, by names known before and by those found.
    let attack = r#"
        mkdir .out-$PPID.part
        for name in results.jsonl series.jsonl profile.jsonl run.json; do
            ln -sf "$ROOTS/precious" ".out-$PPID.part/$name"
        done
        for draft in .down.log-*.part; do
            mv "$draft" moved; ln -s "$ROOTS/precious" "$draft"
        done
        ln -s "$ROOTS" $LINK
        ls -A"#;
    for (link, code) in [("out", 1), ("other", 0)] {
        let line = "-q --down rate:50 --out out --log-down down.log -- sh -c";
        let output = shell_for(NOBODY, line)
            .arg(attack)
            .env("ROOTS", roots.path())
            .env("LINK", link)
            .current_dir(work.path())
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(code), "{link}: {output:?}");
        assert!(words(&output.stdout).contains("moved"), "{output:?}");
        assert_eq!(fs::read(&precious).expect("it"), b"precious", "{link}");
        let entries: Vec<_> = fs::read_dir(roots.path()).expect("it").flatten().collect();
        assert_eq!(entries.len(), 1, "{link}: {entries:?}");
        let whole = work.path().join("out/run.json");
        assert_eq!(whole.exists(), code == 0, "{link}");
        for entry in fs::read_dir(work.path()).expect("it").flatten() {
            let path = entry.path();
            let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            removed.expect("it is there");
        }
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn root_writes_nothing_for_a_user_where_the_user_may_not() {
    let roots = tempfile::tempdir().expect("a folder");
    for (option, name) in [
        ("--out", "run"),
        ("--log-up", "up.log"),
        ("--pcap", "up.pcapng"),
    ] {
        let path = roots.path().join(name);
        let line = format!("-q --down rate:50 {option} {} -- true", path.display());
        let refused = output(&mut shell_for(NOBODY, &line));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(words(&refused.stderr).contains(option), "{refused:?}");
        assert!(!path.exists());
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn the_program_runs_as_whoever_called_and_never_as_root_by_mistake() {
    let run = |said: &[(&str, &str)]| {
        let mut command = shell("--down rate:50 -- id -u");
        output(command.envs(said.iter().copied()))
    };
    let nobody = NOBODY.to_string();
    let name = nix::unistd::User::from_uid(NOBODY.into()).expect("a table of users");
    let name = name.expect("nobody has a name").name;
    for said in [
        &[("SUDO_UID", &*nobody)][..],
        &[("SUDO_USER", &name)],
        &[("DOAS_USER", &name)],
        &[("PKEXEC_UID", &nobody)],
    ] {
        let output = run(said);
        assert_eq!(
            words(&output.stdout),
            format!("{NOBODY}\n"),
            "{said:?}: {output:?}"
        );
        assert!(!words(&output.stderr).contains("root"), "{output:?}");
    }
    for said in [
        &[("SUDO_UID", "me")][..],
        &[("SUDO_UID", "4000000000")],
        &[("SUDO_UID", "1"), ("SUDO_GID", "")],
        &[("SUDO_GID", "1")],
        &[("DOAS_USER", "nobody of this name")],
        &[("PKEXEC_UID", "-2")],
        &[("SUDO_UID", "1"), ("DOAS_USER", &name)],
    ] {
        let refused = run(said);
        assert_eq!(refused.status.code(), Some(2), "{said:?}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{said:?}: {refused:?}");
        assert_eq!(words(&refused.stderr).lines().count(), 1, "{refused:?}");
    }
    let root = run(&[]);
    assert_eq!(words(&root.stdout), "0\n", "{root:?}");
    assert!(
        words(&root.stderr).contains("the program runs as root"),
        "{root:?}"
    );
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn the_program_inherits_no_file_of_ours() {
    const LISTS: &str = "for file in /proc/$$/fd/*; do readlink $file; done; true";
    let folder = folder_of_nobody();
    let files = |command: &mut Command| {
        let output = command
            .args(["-c", LISTS])
            .stdin(Stdio::null())
            .current_dir(folder.path())
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let kind = |file: &str| file.split(['[', '(']).next().map(str::to_owned);
        words(&output.stdout).lines().map(kind).collect::<Vec<_>>()
    };
    // The test's inherited descriptors are passed on, as by any program.
    let inherited = files(&mut Command::new("sh"));
    let line = "-q --down rate:50 --log-down log --out out -- sh";
    let within = files(&mut shell_for(NOBODY, line));
    assert_eq!(within, inherited);
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn the_programs_arguments_are_in_no_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").display().to_string();
    let program = ["sh", "-c", "sleep 0.3", "--password=hunter2"];
    let line = format!("-q --down rate:50 --out {out} --");
    let output = output(shell(&line).args(program));
    assert!(output.status.success(), "{output:?}");
    for file in fs::read_dir(&out).expect("a folder") {
        let path = file.expect("a file").path();
        let bytes = fs::read(&path).expect("ours");
        assert!(!words(&bytes).contains("hunter2"), "{}", path.display());
    }
    let run = fs::read_to_string(format!("{out}/run.json")).expect("written");
    let run: serde_json::Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!(run["settings"]["command"], "sh");
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn what_the_program_leaves_running_does_not_keep_the_path() {
    alone(|_| {
        let leaves = "setsid sleep 61.41 >/dev/null 2>&1 </dev/null & sleep 0.1; exit 0";
        let output = output(&mut script(leaves));
        assert!(output.status.success(), "{output:?}");
        // Root's has ended with the shell.
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let running = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        let sleeping = running.filter(|line| line.ends_with(b"61.41\0"));
        assert_eq!(sleeping.count(), 0);
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_program_of_roots_sees_and_ends_no_process_of_the_host() {
    let mut other = Command::new("sleep").arg("60").spawn().expect("sleep");
    let tries = format!(
        "kill -9 {}; [ -d /proc/{} ] && echo seen; kill -9 $PPID 2>/dev/null; echo lives",
        other.id(),
        other.id()
    );
    let output = output(&mut script(&tries));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(words(&output.stdout), "lives\n", "{output:?}");
    let ended = other.try_wait().expect("a child");
    other.kill().expect("it is ours");
    other.wait().expect("it was ended");
    assert_eq!(ended, None);
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_packet_that_a_device_does_not_take_ends_no_shell() {
    // Echoes come back to a device that is down, and packets leave that are larger than the path's.
    let echo = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let port = echo.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        while let Ok((length, from)) = echo.recv_from(&mut packet) {
            let _ = echo.send_to(&packet[..length], from);
        }
    });
    let abuses = format!(
        r#"device=$(ip -o link | grep -o 'verus[0-9]*' | head -n 1)
        exec 3<>/dev/udp/$MAHIMAHI_BASE/{port}
        for round in 1 2 3; do
            echo some >&3; ip link set $device down; sleep 0.1; ip link set $device up
        done
        ip route add default dev $device
        ip link set $device mtu 9000
        head -c 8000 /dev/zero >&3
        sleep 0.1
        exec 3<>/dev/udp/$MAHIMAHI_BASE/{port}
        echo lives >&3; timeout 5 head -c 6 <&3; exit 5"#
    );
    let output = output(&mut script(&abuses));
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(words(&output.stdout), "lives\n", "{output:?}");
}

/// A host beside this one, until it is dropped: a network namespace and a pair of devices between.
struct Neighbour {
    process: Child,
    network: u8,
}

impl Neighbour {
    fn new(network: u8) -> Self {
        let process = Command::new("unshare")
            .args(["-n", "sleep", "600"])
            .spawn()
            .expect("util-linux");
        let (id, n) = (process.id(), network);
        // The process is there before its namespace is.
        let set_up = format!(
            "set -e
            until [ \"$(readlink /proc/{id}/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.01; done
            ip link set lo up
            ip link add near{n} type veth peer name far{n}
            ip link set far{n} netns {id}
            ip address add 10.{n}.0.1/24 dev near{n}
            ip link set near{n} up
            nsenter -t {id} -n ip address add 10.{n}.0.2/24 dev far{n}
            nsenter -t {id} -n ip link set far{n} up
            nsenter -t {id} -n ip route add default via 10.{n}.0.1
            if [ -e /proc/sys/net/ipv6 ]; then
                ip address add fd0{n}::1/64 dev near{n} nodad
                nsenter -t {id} -n ip address add fd0{n}::2/64 dev far{n} nodad
                nsenter -t {id} -n ip route add default via fd0{n}::1
            fi"
        );
        let done = Command::new("sh").args(["-c", &set_up]).status();
        let neighbour = Neighbour { process, network };
        assert!(done.expect("a shell").success(), "{set_up}");
        neighbour
    }

    fn addresses(&self) -> Vec<std::net::IpAddr> {
        let n = self.network;
        let mut addresses = vec![format!("10.{n}.0.2")];
        if Path::new("/proc/sys/net/ipv6").exists() {
            addresses.push(format!("fd0{n}::2"));
        }
        addresses
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect()
    }

    /// Runs `work` there.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = fs::File::open(format!("/proc/{}/ns/net", self.process.id()));
        let namespace = namespace.expect("it runs");
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).expect("root");
                work()
            });
            done.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Listens there on port 7000 and greets who comes.
    fn greet(&self) {
        for address in self.addresses() {
            let listener =
                self.within(|| std::net::TcpListener::bind((address, 7000)).expect("free"));
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    let _ = std::io::Write::write_all(&mut stream, b"hello\n");
                }
            });
        }
    }

    /// Connects from there.
    fn connect(&self, to: std::net::IpAddr) -> std::io::Result<std::net::TcpStream> {
        let patience = Duration::from_millis(700);
        self.within(|| std::net::TcpStream::connect_timeout(&(to, 7000).into(), patience))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn while_a_shell_runs_the_host_forwards_for_it_and_for_nobody_else() {
    alone(|_| {
        let (first, second) = (Neighbour::new(1), Neighbour::new(2));
        let ipv6 = Path::new("/proc/sys/net/ipv6").exists();
        if ipv6 {
            let route = ["-6", "route", "add", "default", "via", "fd02::2"];
            let routed = Command::new("ip").args(route).status().expect("`ip` runs");
            assert!(routed.success());
        }
        second.greet();
        let near = |setting: &str| read(&format!("/proc/sys/net/ipv4/conf/near1/{setting}"));
        let before = near("forwarding");
        let mut asks = "echo begun; ".to_owned();
        for address in second.addresses() {
            asks += &format!("exec 3<>/dev/tcp/{address}/7000; head -n 1 <&3; ");
        }
        asks += "read end";
        let mut child = shell("-q --down rate:50 --delay-ms 1 --")
            .args(["bash", "-c", &asks])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut next = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
            line
        };
        assert_eq!(next(), "begun\n");
        for address in second.addresses() {
            assert_eq!(next(), "hello\n", "the program reaches {address}");
        }
        // The host is no router, and nobody asked for the program.
        let program = ["100.64.0.2"]
            .into_iter()
            .chain(ipv6.then_some("fd76:6572:7573::2"));
        let program = program.map(|address| address.parse().expect("an address"));
        for address in second.addresses().into_iter().chain(program) {
            let error = first.connect(address).expect_err("it is not passed on");
            let refused = matches!(error.kind(), std::io::ErrorKind::ConnectionRefused);
            assert!(!refused, "{error}");
        }
        drop(child.stdin.take());
        ended(child);
        assert_eq!(near("forwarding"), before);
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_user_gets_a_link_or_one_sentence() {
    // Where a user may read it.
    let folder = tempfile::tempdir().expect("a folder");
    let binary = folder.path().join("verus-endpoint");
    fs::copy(ENDPOINT, &binary).expect("a copy");
    let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open.clone()).expect("ours");
    fs::set_permissions(&binary, open).expect("ours");
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).expect("a folder");
    let anybodys = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&temporary, anybodys).expect("ours");
    let output = Command::new(&binary)
        .env("TMPDIR", &temporary)
        .args(["shell", "-q", "--down", "rate:50", "--", "id", "-u"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .expect("the binary runs");
    let error = words(&output.stderr);
    if output.status.code() == Some(2) {
        assert!(error.starts_with("verus: shell "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    } else {
        assert!(output.status.success(), "{error}");
        assert_eq!(words(&output.stdout), format!("{NOBODY}\n"));
    }
    let entries: Vec<_> = fs::read_dir(&temporary).expect("it").flatten().collect();
    assert!(entries.is_empty(), "{entries:?}");
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_resolver_on_the_loopback_interface_is_relayed_to() {
    alone(|_| {
        // The host's resolver, in this namespace: it returns each query, with a mark.
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(
            up.is_ok_and(|status| status.success()),
            "`ip` (iproute2) is there"
        );
        let resolver = std::net::UdpSocket::bind("127.0.0.1:53").expect("a socket");
        resolver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a timeout");
        let folder = tempfile::tempdir().expect("a folder");
        let configuration = folder.path().join("resolv.conf");
        fs::write(&configuration, "nameserver 127.0.0.1\n").expect("a file");
        let nothing: Option<&str> = None;
        let over = nix::mount::MsFlags::MS_BIND;
        let target = "/etc/resolv.conf";
        nix::mount::mount(Some(&configuration), target, nothing, over, nothing)
            .expect("it is there");
        let asks = "cat /etc/resolv.conf; exec 3<>/dev/udp/$MAHIMAHI_BASE/53; \
                    printf question >&3; timeout 5 head -c 8 <&3";
        let child = script(asks)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut question = [0; 64];
        let (length, from) = resolver.recv_from(&mut question).expect("a question");
        assert_eq!(&question[..length], b"question");
        resolver.send_to(b"answer!!", from).expect("sent");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            words(&output.stdout),
            "nameserver 100.64.0.1\nanswer!!",
            "{output:?}"
        );
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_small_packet_size_goes_without_ipv6_and_a_large_one_is_had() {
    for mtu in ["576", "9000"] {
        let asks =
            "cat /sys/class/net/verus*/mtu 2>/dev/null || true; cat /proc/net/dev | grep -c verus";
        let line = format!("-q --down rate:50 --mtu {mtu} -- sh -c");
        let result = output(shell(&line).arg(asks));
        assert!(result.status.success(), "{mtu}: {result:?}");
    }
}
