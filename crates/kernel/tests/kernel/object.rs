//! The bare object and the unit of systemd, as packages have them: registered and taken out by bpftool.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
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

/// Does what the unit says under `key`, with the object that was built.
fn done(key: &str) {
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let line = line.expect("the unit says it");
    let line = line.replace("/usr/lib/verus/forward.bpf.o", OBJECT);
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a program"))
        .args(words)
        .output();
    let output = output.expect("bpftool is there (apt install bpftool)");
    assert!(output.status.success(), "{line}: {output:?}");
}

#[test]
#[ignore = "takes root and BPF: make test-root"]
fn the_unit_registers_the_bare_object_and_takes_it_out() {
    assert!(
        comes_to(false),
        "this machine has `forward` already: {}",
        available()
    );
    done("ExecStart");
    assert!(comes_to(true), "{}", available());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("TCP");
    let set = socket.set_tcp_congestion(b"forward");
    let to = listener.local_addr().expect("it has one");
    socket.connect(&to.into()).expect("it listens");
    let (mut from, _) = listener.accept().expect("it came");
    let carried = std::thread::scope(|scope| {
        scope.spawn(move || {
            (&socket).write_all(&[7; 1 << 20]).expect("it stands");
        });
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("it stands");
        all
    });
    done("ExecStop");
    set.expect("a program may choose it");
    assert_eq!(carried, [7; 1 << 20]);
    assert!(comes_to(false), "{}", available());
}
