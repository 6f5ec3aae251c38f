//! `probe` when the other end, or the reader of its output, fails. It prints one clear message,
//! exits with the code of a failed run, and prints nothing that looks like a result.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use verus_probe::client::{Client, ClientConfig, ClientError};
use verus_probe::driver::Driver;
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;
use verus_senders::Scheme;

use crate::probe_common::{ENDPOINT, Server, refused, run};
use verus_faults::machine;

fn client(server: &Server, words: &str) -> Command {
    let mut command = Command::new(ENDPOINT);
    command
        .args(["probe", "client", &server.address])
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_server_that_dies_in_a_test_fails_it_and_what_was_measured_is_marked_as_cut() {
    let _machine = machine::watch(50);
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("results");
    let mut running = Vec::new();
    for direction in ["up", "down"] {
        let server = Server::start("");
        let out = results.with_extension(direction);
        let out = out.to_str().expect("plain").to_owned();
        let load = format!("--direction {direction} --rate-mbps 4 --duration 4");
        let child = client(&server, &format!("{load} --json --out {out}")).spawn();
        running.push((direction, server, out, child.expect("the binary runs")));
    }
    // A second of quiet, and two of load.
    sleep(Duration::from_secs(3));
    for (_, server, ..) in &mut running {
        server.child.kill().expect("it is ours");
    }
    for (direction, _server, out, child) in running {
        let output = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{direction}: {error}");
        assert!(error.contains("the server fell silent"), "{error}");
        let row: Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!(row["cut"], true, "{row}");
        let (rate, seconds) = (row["throughput_mbps"].as_f64(), row["duration_s"].as_f64());
        let (rate, seconds) = (rate.expect("a rate"), seconds.expect("a time"));
        assert!(
            (1.0..3.5).contains(&seconds),
            "{direction}: over {seconds} s"
        );
        assert!((3.0..4.5).contains(&rate), "{direction}: {rate} Mbit/s");
        let saved = std::fs::read_to_string(format!("{out}/results.jsonl")).expect("it is saved");
        let saved: Value = serde_json::from_str(saved.trim()).expect("one object");
        assert_eq!(saved["cut"], true);
    }
}

/// Asks for a test under a scheme whose name is all nonsense, and is refused.
fn nonsense(server: SocketAddr) -> Option<ClientError> {
    let config = ClientConfig::new(Request {
        duration_nanos: 1_000_000_000,
        scheme: "x".repeat(500),
        ..Request::default()
    });
    let socket = UdpSocket::connect(server).expect("loopback");
    let mut driver = Driver::new(socket).expect("a timer");
    let mut entropy = [0; 32];
    let port = driver.socket().local_addr().expect("bound").port();
    entropy[..2].copy_from_slice(&port.to_be_bytes());
    let scheme = Scheme::parse("cubic").expect("a scheme");
    let mut client = Client::new(config, scheme, entropy, driver.clock().now());
    loop {
        driver.turn(&mut client, None, None).expect("it turns");
        if let Some(outcome) = client.outcome() {
            return outcome.err();
        }
    }
}

#[test]
fn a_log_that_nobody_reads_stops_neither_the_server_nor_its_end() {
    let mut server = Server::start("");
    // A page of pipe: less than the lines that follow.
    rustix::pipe::fcntl_setpipe_size(server.out.get_ref(), 4096).expect("it is a pipe");
    for _ in 0..20 {
        let refused = nonsense(server.address.parse().expect("an address"));
        assert!(
            matches!(refused, Some(ClientError::Refused { .. })),
            "{refused:?}"
        );
    }
    let output = client(&server, "--duration 0.2").output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let id = nix::unistd::Pid::from_raw(server.child.id().cast_signed());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it is ours");
    let status = (0..250).find_map(|_| {
        sleep(Duration::from_millis(20));
        server.child.try_wait().expect("it is ours")
    });
    let status = status.expect("it ends within five seconds");
    assert_eq!(status.code(), Some(143));
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_server_without_a_key_has_a_limit_and_says_so_at_both_ends() {
    let _machine = machine::watch(20);
    for (more, said, limit) in [
        ("", "100 Mbit/s a client", Some(100.0)),
        ("--max-mbps 3", "3 Mbit/s a client", Some(3.0)),
    ] {
        let server = Server::start(more);
        assert!(server.first.contains(said), "{}", server.first);
        let output = client(&server, "--duration 0.3 --json")
            .output()
            .expect("it runs");
        let row: Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!(row["server_limit_mbps"].as_f64(), limit, "{row}");
    }
    // A limit that is reached is reported to people too.
    let server = Server::start("--max-mbps 2");
    let output = client(&server, "--duration 1 --scheme newreno")
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    let words = "the server grants a test 2 Mbit/s in each direction: that was measured";
    assert!(error.contains(words), "{error}");
    let server = Server::start("--max-mbps 5 --max-total-mbps 5");
    let absurd = "--direction down --flows 8 --rate-mbps 1000000";
    let output = client(&server, absurd).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let words = "8 flows of 1000000 Mbit/s, and this server grants a test 5 Mbit/s";
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_key_that_others_can_use_or_that_is_short_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "a long enough secret\n").expect("a file");
    let path = key.to_str().expect("plain");
    let refuses = |words: &str, said: &[&str]| {
        let output = run(&format!("{words} --key-file {path}"));
        refused(&output, 2, said);
    };
    for mode in [0o644, 0o640, 0o620, 0o601] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&key, permissions).expect("ours");
        for words in ["client 127.0.0.1:9", "server --port 0"] {
            refuses(words, &["chmod 600", path]);
        }
    }
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("ours");
    std::fs::write(&key, "elevenbytes\n").expect("a file");
    refuses("client 127.0.0.1:9", &["at least 12 bytes"]);
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&key, Some(65_533), None).expect("we are root");
        refuses("client 127.0.0.1:9", &["belongs to another user (65533)"]);
    }
}
