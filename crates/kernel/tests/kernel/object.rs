//! The bare object and the unit of systemd, as packages have them: registered and taken out by bpftool.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

const UNIT: &str = include_str!("../../../../packaging/verus-forward.service");
const OBJECT: &str = concat!(env!("OUT_DIR"), "/forward-bare.bpf.o");

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .expect("Linux has it")
}

/// Whether `forward` is available, or not, within ten seconds: the kernel takes out what somebody closed in a thread of its
/// own (`bpf_link_put`), after the program that closed it has ended.
fn comes_to(there: bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        available().split_whitespace().any(|name| name == "forward") == there
    })
}

/// Does what the unit says under `key`, with the object that was built; a shell takes its quotes as systemd does.
fn done(key: &str) {
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let line = line.expect("the unit says it");
    let line = line.replace("/usr/lib/verus/forward.bpf.o", OBJECT);
    let output = Command::new("sh").args(["-c", &line]).output();
    let output = output.expect("there is a shell");
    assert!(
        output.status.success(),
        "{line}: {output:?}; the kernel has {}",
        struct_ops()
    );
}

/// What bpftool says that the kernel has.
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
    assert!(comes_to(false), "it has one already: {}", struct_ops());
    done("ExecStart");
    assert!(comes_to(true), "{}", available());
    carry(connection());
    let old = connection();
    done("ExecStop");
    assert!(comes_to(false), "{}", available());
    done("ExecStart");
    carry(connection());
    done("ExecStop");
    assert!(comes_to(false), "{}", available());
    carry(old);
}
