//! Strangers' words on the operator's terminal and in the operator's log: refusals, reasons, names.
//! They arrive escaped, within one line, from either end and in any form of output.

use std::ffi::OsStr;
use std::fs;
use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::Value;
use verus_probe::seal::{Key, Keys};
use verus_probe::wire::{
    Accept, Ending, Hello, Kind, MIN_HELLO_BYTES, Packet, Reason, Request, Retry, Status,
};

use crate::transfer_common::{Scene, run, succeeded};

const ENDPOINT: &str = env!("CARGO_BIN_EXE_verus-endpoint");
/// A window's title, a cleared screen, a colour, an extra line, the same from C1, DEL, and text
/// that reads backwards.
const WORDS: &str =
    "\x1b]0;owned\x07\x1b[2J\x1b[32mFORGED\x1b[0m\r\n10.0.0.9:1: done\u{9b}31m\x7f\u{202e}gpj";
const PATIENCE: Duration = Duration::from_secs(20);

/// `printed` has `lines` lines and drives nothing, and the words are in it, to be seen.
fn harmless(printed: &str, lines: usize) {
    let hostile = |letter: char| {
        (letter.is_control() && letter != '\n') || matches!(letter, '\u{202a}'..='\u{202e}')
    };
    assert!(!printed.contains(hostile), "{printed:?}");
    assert_eq!(printed.lines().count(), lines, "{printed:?}");
    assert!(printed.contains("FORGED"), "{printed:?}");
    assert!(!printed.contains("\n10.0.0.9"), "{printed:?}");
}

/// The one message of a command that failed.
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// A probe client, the socket of a server that the test plays, the client's address, and the
/// nonce of its hello.
fn client_with_hello(options: &[&str]) -> (Child, UdpSocket, SocketAddr, [u8; 16]) {
    let socket = bound();
    let address = socket.local_addr().expect("it is bound").to_string();
    let client = Command::new(ENDPOINT)
        .args(["probe", "client", &address, "--duration", "1"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut buffer = [0; 1500];
    let (length, from) = socket.recv_from(&mut buffer).expect("a hello");
    let packet = Packet::parse(&buffer[..length]).expect("a packet");
    let nonce = Hello::decode(&packet).expect("a hello").nonce;
    (client, socket, from, nonce)
}

#[test]
fn a_probe_server_that_refuses_with_control_sequences_is_told_of_in_one_plain_line() {
    let (client, socket, from, nonce) = client_with_hello(&[]);
    let refusal = Ending {
        nonce,
        reason: Reason::Limit,
        text: WORDS,
    };
    let refusal = Key::handshake(None).sealed(0, |buffer| refusal.encode(Kind::Refuse, 0, buffer));
    socket.send_to(&refusal, from).expect("sent");
    harmless(&complaint(&client.wait_with_output().expect("it ends")), 1);
}

#[test]
fn a_probe_server_that_closes_a_test_with_control_sequences_is_told_of_in_one_plain_line() {
    let (client, socket, from, nonce) = client_with_hello(&["--quiet"]);
    let accept = Accept {
        client_nonce: nonce,
        server_nonce: [9; 16],
        limit_bps: None,
        quiet_millis: 0,
    };
    let handshake = Key::handshake(None);
    let keys = Keys::new(&handshake, &nonce, &accept.server_nonce);
    let granted = handshake.sealed(0, |buffer| accept.encode(7, buffer));
    socket.send_to(&granted, from).expect("sent");
    let close = Ending {
        nonce: [0; 16],
        reason: Reason::ShuttingDown,
        text: WORDS,
    };
    let close = (keys.server).sealed(0, |buffer| close.encode(Kind::Close, 7, buffer));
    socket.recv_from(&mut [0; 1500]).expect("its first packet");
    socket.send_to(&close, from).expect("sent");
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    harmless(&String::from_utf8_lossy(&output.stderr), 1);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(!table.contains("FORGED"), "{table}");
}

/// Says hello until there is an answer that is no [`Retry`]; gives that to `answer`.
fn hello<T>(
    server: SocketAddr,
    scheme: &str,
    answer: impl FnOnce(&UdpSocket, &Packet<'_>) -> T,
) -> T {
    let socket = bound();
    socket.connect(server).expect("an address");
    let key = Key::handshake(None);
    let mut token = Vec::new();
    for _ in 0..2 {
        let hello = Hello {
            nonce: [7; 16],
            token: &token,
            quiet_millis: 0,
            request: Request {
                duration_nanos: 1_000_000_000,
                scheme: scheme.to_owned(),
                ..Request::default()
            },
        };
        let packet = key.sealed(MIN_HELLO_BYTES, |buffer| hello.encode(buffer));
        socket.send(&packet).expect("sent");
        let mut buffer = [0; 1500];
        let length = socket.recv(&mut buffer).expect("an answer");
        let packet = Packet::parse(&buffer[..length]).expect("a packet");
        if packet.kind != Kind::Retry {
            return answer(&socket, &packet);
        }
        token = Retry::decode(&packet).expect("a retry").token.to_vec();
    }
    panic!("only retries");
}

#[test]
fn a_probe_clients_scheme_and_reason_are_plain_in_the_servers_log() {
    for json in [false, true] {
        let mut running = crate::probe_common::Server::start(if json { "--json" } else { "" });
        let server: SocketAddr = running.address.parse().expect("an address");
        let scheme = format!("nosuch{WORDS}");
        hello(server, &scheme, |_, packet| {
            assert_eq!(packet.kind, Kind::Refuse)
        });
        hello(server, "cubic", |socket, packet| {
            let accept = Accept::decode(packet).expect("accepted");
            let keys = Keys::new(&Key::handshake(None), &[7; 16], &accept.server_nonce);
            let close = Ending {
                nonce: [0; 16],
                reason: Reason::ShuttingDown,
                text: WORDS,
            };
            let status = Status {
                number: 1,
                ..Status::default()
            };
            let (key, id) = (keys.client, packet.connection);
            let status = key.sealed(0, |buffer| status.encode(id, buffer));
            socket.send(&status).expect("sent");
            let close = key.sealed(0, |buffer| close.encode(Kind::Close, id, buffer));
            socket.send(&close).expect("sent");
        });
        // The server reports the event when it next wakes up.
        std::thread::spawn(move || {
            let socket = bound();
            while socket.send_to(b"?", server).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let mut reports = 0;
        let mut line = String::new();
        while reports < 2 {
            line.clear();
            running.out.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "it ended after {reports} of them");
            if line.contains("FORGED") {
                reports += 1;
                harmless(&line, 1);
            }
            if json {
                serde_json::from_str::<Value>(&line).expect("JSON");
            }
        }
    }
}

#[test]
fn names_of_files_are_plain_at_both_ends() {
    let scene = Scene::new();
    let mut server = scene.serve("");
    let name = WORDS.replace('/', "-");
    scene.write(&format!("here/{name}"), b"contents");
    fs::create_dir(scene.path("here/folder")).expect("a folder");
    scene.write(&format!("here/folder/{name}"), b"contents");
    // A pipe whose name is not UTF-8.
    let pipe = [name.as_bytes(), b"\xff"].concat();
    let pipe = scene.path("here/folder").join(OsStr::from_bytes(&pipe));
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    let address = server.address.to_string();
    let send = || {
        run(scene
            .client_command("send")
            .args([&name, "folder", &address]))
    };
    let sent = send();
    succeeded(&sent);
    harmless(&String::from_utf8(sent.stdout).expect("UTF-8"), 2);
    // The socket is skipped, and the server met for the first time.
    harmless(&String::from_utf8(sent.stderr).expect("UTF-8"), 2);
    let events: Vec<Value> = (0..3).map(|_| server.event()).collect();
    assert!(
        events.iter().any(|event| event["event"] == "received"),
        "{events:?}"
    );
    // Several failures, each of which is a line.
    for file in [format!("here/{name}"), format!("here/folder/{name}")] {
        scene.write(&file, b"other contents");
    }
    harmless(&complaint(&send()), 4);
    let json = scene.client(&format!("receive --json {} --into back", server.at("")));
    succeeded(&json);
    let json = String::from_utf8(json.stdout).expect("UTF-8");
    harmless(&json, 2);
    for line in json.lines() {
        serde_json::from_str::<Value>(line).expect("JSON");
    }
}
