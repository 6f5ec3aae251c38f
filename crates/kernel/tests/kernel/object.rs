//! The bare object and the unit of systemd, as packages have them: started and stopped by a systemd of the test's own.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

const UNIT: &str = include_str!("../../../../packaging/verus-forward.service");
const OBJECT: &str = concat!(env!("OUT_DIR"), "/forward-bare.bpf.o");

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .expect("Linux has it")
}

/// Whether `forward` becomes available, or unavailable, within ten seconds. The kernel removes a
/// closed link in a separate thread (`bpf_link_put`), after the program that closed it has ended.
fn comes_to(there: bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        available().split_whitespace().any(|name| name == "forward") == there
    })
}

/// A systemd that is the first process of separate namespaces, and knows one unit.
struct Systemd {
    unshare: Child,
    process: String,
}

impl Systemd {
    /// Starts it, in the folder in which the unit is to lie.
    fn start(folder: &Path) -> Self {
        let unit = UNIT.replace("/usr/lib/verus/forward.bpf.o", OBJECT);
        std::fs::write(folder.join("verus-forward.service"), unit).expect("a file");
        let target = "[Unit]\nDefaultDependencies=no\n";
        std::fs::write(folder.join("nothing.target"), target).expect("a file");
        // Nothing of it is seen outside of the namespaces.
        let begin = format!(
            "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run && \
             mount --bind {} /etc/systemd/system && exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
             /lib/systemd/systemd --system --unit=nothing.target",
            folder.display()
        );
        let unshare = Command::new("unshare")
            .args(
                "--pid --fork --kill-child --mount-proc --mount --cgroup --uts --ipc sh -c"
                    .split(' '),
            )
            .arg(&begin)
            .spawn();
        let unshare = unshare.expect("unshare is there (apt install util-linux)");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let mut systemd = Systemd {
            unshare,
            process: String::new(),
        };
        let runs = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let of = std::fs::read_to_string(&children).unwrap_or_default();
            systemd.process = of.trim().to_owned();
            !systemd.process.is_empty()
                && systemd
                    .ctl("is-system-running")
                    .stdout
                    .starts_with(b"running")
        });
        assert!(runs, "no systemd came up (apt install systemd): {begin}");
        systemd
    }

    fn ctl(&self, words: &str) -> Output {
        Command::new("nsenter")
            .args(["-t", &self.process])
            .args("-m -p -C -u -i systemctl".split(' '))
            .args(words.split(' '))
            .output()
            .expect("nsenter is there (apt install util-linux)")
    }

    /// Does it with the unit.
    fn done(&self, verb: &str) {
        let output = self.ctl(&format!("{verb} verus-forward"));
        assert!(
            output.status.success(),
            "systemctl {verb}: {output:?}; {:?}; the kernel has {}",
            self.ctl("status --full verus-forward"),
            struct_ops()
        );
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        _ = self.unshare.kill();
        _ = self.unshare.wait();
    }
}

/// The struct_ops of the kernel, as bpftool lists them.
fn struct_ops() -> String {
    let output = Command::new("bpftool")
        .args(["struct_ops", "show"])
        .output();
    let output = output.expect("bpftool is there (apt install bpftool)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A connection to oneself that runs on it.
fn connection() -> (Socket, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("TCP");
    socket
        .set_tcp_congestion(b"forward")
        .expect("a program may choose it");
    let to = listener.local_addr().expect("it has one");
    socket.connect(&to.into()).expect("it listens");
    (socket, listener.accept().expect("it came").0)
}

/// Carries a megabyte, and ends it.
fn carry((mut socket, mut from): (Socket, TcpStream)) {
    std::thread::scope(|scope| {
        scope.spawn(move || socket.write_all(&[7; 1 << 20]).expect("it stands"));
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("it stands");
        assert_eq!(all, [7; 1 << 20]);
    });
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn the_unit_registers_the_bare_object_and_takes_it_out_beside_connections_of_an_earlier_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let systemd = Systemd::start(folder.path());
    assert!(comes_to(false), "it has one already: {}", struct_ops());
    systemd.done("enable --now");
    assert!(comes_to(true), "{}", available());
    carry(connection());
    let old = connection();
    systemd.done("stop");
    assert!(comes_to(false), "{}", available());
    systemd.done("start");
    carry(connection());
    systemd.done("restart");
    assert!(comes_to(true), "{}", available());
    carry(connection());
    systemd.done("disable --now");
    assert!(comes_to(false), "{}", available());
    carry(old);
}
