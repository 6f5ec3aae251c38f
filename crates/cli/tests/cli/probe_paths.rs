//! `probe` over paths other than loopback: through a network address translator that forgets, over
//! IPv6, and over links whose system refuses to send. Each test makes separate hosts, as network
//! namespaces.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use verus_emu::netlink::Masquerade;

use crate::hosts::{Host, cable};

const ENDPOINT: &str = env!("CARGO_BIN_EXE_verus-endpoint");

/// A client on a host; spaces part its words.
fn client(host: &Host, arguments: &str) -> Command {
    let mut command = host.run(ENDPOINT);
    command.args(["-q", "probe", "client"]);
    command.args(arguments.split(' '));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server; dropping it ends it.
struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(host: &Host, more: &[&str]) -> Self {
        let mut child = host
            .run(ENDPOINT)
            .args(["probe", "server"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert!(line.contains("listening"), "{line}");
        Server { child, out }
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it; all that it said.
    fn said(mut self) -> String {
        let id = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it is ours");
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rows of a client that ended well, by direction.
fn rows(output: &Output) -> Vec<Value> {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON Lines"))
        .collect()
}

fn mbps(row: &Value) -> f64 {
    row["throughput_mbps"].as_f64().expect("a rate")
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn both_ways_are_measured_through_a_translator_whose_mapping_changes_in_the_middle() {
    let [inside, translator, outside] = [Host::new(), Host::new(), Host::new()];
    cable([
        (&inside, "v-up", "192.168.7.2/24"),
        (&translator, "v-in", "192.168.7.1/24"),
    ]);
    cable([
        (&translator, "v-out", "198.18.0.1/24"),
        (&outside, "v-down", "198.18.0.9/24"),
    ]);
    inside.ip("route add default via 192.168.7.1");
    translator
        .run("sh")
        .args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
        .status()
        .expect("a shell");
    let source = "192.168.7.2".parse().expect("an address");
    let _masquerade =
        translator.within(|| Masquerade::new("verus-test", source).expect("nftables"));
    let server = Server::start(&outside, &["--json"]);
    let client = client(
        &inside,
        "198.18.0.9 --direction both --rate-mbps 4 --duration 5 --json",
    )
    .spawn()
    .expect("the binary runs");
    sleep(Duration::from_secs(2));
    // The provider gives another address: the kernel forgets all mappings to the old one.
    translator.ip("addr del 198.18.0.1/24 dev v-out");
    translator.ip("addr add 198.18.0.2/24 dev v-out");
    let output = client.wait_with_output().expect("it ends");
    for row in rows(&output) {
        let rate = mbps(&row);
        assert!((3.0..4.2).contains(&rate), "{rate} Mbit/s: {row}");
        assert_eq!(row["cut"], false);
        assert_eq!(row["server_limit_mbps"], 100.0);
    }
    let said = server.said();
    let events: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let moved = events.iter().find(|event| event["event"] == "moved");
    let moved = moved.unwrap_or_else(|| panic!("nobody moved: {said}"));
    assert!(
        moved["client"]
            .as_str()
            .expect("an address")
            .starts_with("198.18.0.1:"),
        "{moved}"
    );
    assert!(
        moved["to"]
            .as_str()
            .expect("an address")
            .starts_with("198.18.0.2:"),
        "{moved}"
    );
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn both_ways_are_measured_over_ipv6_beyond_the_host() {
    let [near, router, far] = [Host::new(), Host::new(), Host::new()];
    cable([
        (&near, "v-a", "fd00:7::2/64"),
        (&router, "v-b", "fd00:7::1/64"),
    ]);
    cable([
        (&router, "v-c", "fd00:8::1/64"),
        (&far, "v-d", "fd00:8::9/64"),
    ]);
    near.ip("-6 route add default via fd00:7::1");
    far.ip("-6 route add default via fd00:8::1");
    let forward = "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    router
        .run("sh")
        .args(["-c", forward])
        .status()
        .expect("a shell");
    let server = Server::start(&far, &[]);
    let output = client(
        &near,
        "[fd00:8::9] --direction both --rate-mbps 4 --duration 2 --json",
    )
    .output()
    .expect("the binary runs");
    for row in rows(&output) {
        let rate = mbps(&row);
        assert!((3.5..4.2).contains(&rate), "{rate} Mbit/s: {row}");
    }
    assert!(server.said().contains("[fd00:7::2]:"));
}

/// A client on a separate host that measures throughout. Its rate must not show the others'
/// traffic.
struct Witness(Child);

impl Witness {
    fn start(host: &Host, server: &str, seconds: u32) -> Self {
        let arguments =
            format!("{server} --direction down --rate-mbps 2 --duration {seconds} --json");
        Witness(client(host, &arguments).spawn().expect("the binary runs"))
    }

    fn end(self) {
        for row in rows(&self.0.wait_with_output().expect("it ends")) {
            let rate = mbps(&row);
            assert!((1.9..2.1).contains(&rate), "{rate} Mbit/s: {row}");
        }
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn a_send_error_ends_one_session_with_its_cause_and_no_other() {
    let [serving, one, other] = [Host::new(), Host::new(), Host::new()];
    cable([
        (&serving, "v-sa", "198.18.1.1/24"),
        (&one, "v-a", "198.18.1.2/24"),
    ]);
    cable([
        (&serving, "v-sb", "198.18.2.1/24"),
        (&other, "v-b", "198.18.2.2/24"),
    ]);
    let mut server = Server::start(&serving, &[]);
    let witness = Witness::start(&other, "198.18.2.1", 14);
    sleep(Duration::from_millis(500));

    // Larger than the link takes: down, where the server finds out, and up, where the client does.
    for direction in ["down", "up"] {
        let arguments =
            format!("198.18.1.1 --direction {direction} --packet-bytes 9000 --duration 2");
        let refused = client(&one, &arguments).output().expect("the binary runs");
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{direction}: {error}");
        let words = "packets of 9000 B do not fit this path";
        assert!(error.contains(words), "{direction}: {error}");
        assert!(server.is_alive(), "{direction}");
    }

    // A link that takes less from the middle of a test on.
    let shrinking = client(
        &one,
        "198.18.1.1 --direction down --rate-mbps 2 --duration 4",
    )
    .spawn();
    let shrinking = shrinking.expect("the binary runs");
    sleep(Duration::from_millis(1500));
    serving.ip("link set v-sa mtu 1280");
    let cut = shrinking.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&cut.stderr);
    assert_eq!(cut.status.code(), Some(1), "{error}");
    assert!(
        error.contains("packets of 1400 B do not fit this path"),
        "{error}"
    );
    assert!(
        !cut.stdout.is_empty(),
        "what was measured until then is shown"
    );
    assert!(server.is_alive());
    serving.ip("link set v-sa mtu 1500");

    // Routes that refuse, and that are there again before anybody would give up.
    let patient = client(
        &one,
        "198.18.1.1 --direction down --rate-mbps 2 --duration 5",
    )
    .spawn();
    let patient = patient.expect("the binary runs");
    sleep(Duration::from_millis(700));
    for kind in ["prohibit", "blackhole", "unreachable"] {
        serving.ip(&format!("route add {kind} 198.18.1.2/32"));
        sleep(Duration::from_millis(200));
        serving.ip(&format!("route del {kind} 198.18.1.2/32"));
        sleep(Duration::from_millis(200));
        assert!(server.is_alive(), "{kind}");
    }
    serving.ip("link set v-sa down");
    sleep(Duration::from_millis(200));
    serving.ip("link set v-sa up");
    let output = patient.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");

    // The address that it answers from goes away; a first word from port 0.
    let lost = client(
        &one,
        "198.18.1.1 --direction down --rate-mbps 2 --duration 1",
    )
    .spawn();
    let lost = lost.expect("the binary runs");
    sleep(Duration::from_millis(600));
    serving.ip("addr del 198.18.1.1/24 dev v-sa");
    serving.ip("addr add 198.18.1.7/24 dev v-sa");
    let output = lost.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    one.within(|| from_port_0([198, 18, 1, 2], [198, 18, 1, 7]));
    sleep(Duration::from_millis(200));
    assert!(server.is_alive());
    witness.end();
    let said = server.said();
    assert!(
        said.contains("packets of 9000 B do not fit this path"),
        "{said}"
    );
}

/// Sends a hello to port 6060 of `to` whose sender says that its port is 0.
fn from_port_0(from: [u8; 4], to: [u8; 4]) {
    use socket2::{Domain, Protocol, Socket, Type};
    use verus_probe::seal::Key;
    use verus_probe::wire::{Hello, MIN_HELLO_BYTES, Request};
    let hello = Hello {
        nonce: [7; 16],
        token: &[],
        quiet_millis: 0,
        request: Request {
            duration_nanos: 1_000_000_000,
            scheme: "verus".to_owned(),
            ..Request::default()
        },
    };
    let payload = Key::handshake(None).sealed(MIN_HELLO_BYTES, |buffer| hello.encode(buffer));
    // Source and destination port, length, no checksum.
    let length = (8 + payload.len()) as u16;
    let mut datagram = [0u16, 6060, length, 0].map(u16::to_be_bytes).concat();
    datagram.extend(payload);
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).expect("we are root");
    let address = |ip| std::net::SocketAddr::from((ip, 0)).into();
    socket.bind(&address(from)).expect("our own");
    let sent = socket.send_to(&datagram, &address(to)).expect("it is sent");
    assert_eq!(sent, datagram.len());
}
