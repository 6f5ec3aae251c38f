//! Failures of `probe`: one clear message each, on stderr, and the exit code that says who must
//! act: 2 for a usage error, 1 for a failure of the test. No incomplete file remains.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::probe_common::{Server, client, fails, nobody, refused, run, text};

fn key_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a temporary file");
    let mine = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mine).expect("it is ours");
    path
}

#[test]
fn a_wrong_key_and_no_key_get_no_answer_and_say_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let right = key_file(folder.path(), "right", "one long secret\n");
    let wrong = key_file(folder.path(), "wrong", "another long secret\n");
    let server = Server::start(&format!("--key-file {}", text(&right)));
    let words = ["no answer within", "the same key", server.address.as_str()];
    let asking = |key: &str| client(&format!("{} {key} --duration 0.2", server.address));
    let wrong = format!("--key-file {}", text(&wrong));
    std::thread::scope(|scope| {
        for key in ["", &wrong] {
            scope.spawn(move || refused(&asking(key), 1, &words));
        }
    });
    let output = asking(&format!("--key-file {}", text(&right)));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_key_file_that_is_none_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = key_file(folder.path(), "empty", "\n");
    let absent = folder.path().join("absent");
    fails(
        &format!("127.0.0.1 --key-file {}", text(&empty)),
        2,
        "empty + at least 12 bytes",
    );
    fails(
        &format!("127.0.0.1 --key-file {}", text(&absent)),
        2,
        "absent + No such file",
    );
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    for no_file in [text(&pipe), "/dev/zero"] {
        fails(&format!("127.0.0.1 --key-file {no_file}"), 2, no_file);
    }
}

#[test]
fn a_host_that_does_not_listen_or_does_not_exist_fails_the_run() {
    let address = nobody();
    fails(&address, 1, &format!("{address} + nobody listens there"));
    fails(
        "no-such-host.invalid",
        1,
        "cannot find the host + no-such-host.invalid",
    );
}

#[test]
fn a_port_in_use_and_an_address_of_another_are_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let serve = |words: &str| run(&format!("server {words}"));
    refused(
        &serve(&format!("--bind 127.0.0.1 --port {port}")),
        2,
        &[
            &format!("cannot listen on UDP 127.0.0.1:{port}: "),
            "in use",
        ],
    );
    refused(
        &serve("--bind 192.0.2.7"),
        2,
        &["cannot listen", "192.0.2.7"],
    );
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    let cases = "
        [::1 => bracket
        127.0.0.1 --scheme nope => nope + known are verus
        127.0.0.1 --scheme verus:r=x => no key `r` + ratio
        127.0.0.1 --packet-bytes 70000 => 70000 + between 200 and 65000
        127.0.0.1 --duration=-3 => -3 + between 0.1 and 86400
        127.0.0.1 --flows 0 => --flows + between 1 and 65535
        127.0.0.1 --bytes 10XB => 10XB + 20MB
        127.0.0.1 --rate-mbps nan => nan + 0.001";
    for case in cases.lines().skip(1) {
        let (words, said) = case.trim().split_once(" => ").expect("a case");
        fails(words, 2, said);
    }
}

#[test]
fn what_a_server_does_not_grant_is_said_in_its_words() {
    let server = Server::start("--max-duration 5");
    fails(
        &format!("{} --flows 200", server.address),
        1,
        "refused + 200 flows, and this server takes 128",
    );
    fails(
        &format!("{} --duration 60", server.address),
        1,
        "refused + 60 s, and this server takes 5 s",
    );
}

#[test]
fn results_are_not_written_over_others_nor_begun_where_they_cannot_be() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let full = folder.path().join("full");
    std::fs::create_dir(&full).expect("a folder");
    std::fs::write(full.join("notes"), "mine").expect("a file");
    let server = Server::start("");
    let no = |more: &str, said| {
        let words = format!("{} --duration 0.2 {more}", server.address);
        fails(&words, 2, said);
    };
    no(&format!("--out {}", text(&full)), "full + --force");
    let entries: Vec<_> = std::fs::read_dir(&full).expect("a folder").collect();
    assert_eq!(entries.len(), 1, "nothing is added: {entries:?}");
    no("--out /proc/results", "--out + /proc/results");
    let log = folder.path().join("absent/log.csv");
    no(&format!("--log {}", text(&log)), "--log + log.csv");
    let unreachable = folder.path().join("unreachable");
    let address = nobody();
    fails(
        &format!("{address} --out {}", text(&unreachable)),
        1,
        "nobody listens",
    );
    assert!(
        !unreachable.exists(),
        "nothing is left of a run that was none"
    );
}

#[test]
fn logs_of_flows_appear_whole_and_only_where_there_is_nothing() {
    let server = Server::start("");
    let folder = tempfile::tempdir().expect("a folder");
    let logs = folder.path().join("logs");
    let (address, place) = (&server.address, text(&logs));
    let test = format!("{address} --duration 1 --flows 2 --qlog {place}");
    let output = client(&test);
    assert!(output.status.success(), "{output:?}");
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        names.sort();
        names
    };
    let written = [
        "forward_127.0.0.1_seed1_flow0.sqlog",
        "forward_127.0.0.1_seed1_flow1.sqlog",
    ];
    assert_eq!(names(&logs), written);
    for name in written {
        let text = std::fs::read(logs.join(name)).expect("it is there");
        let text = String::from_utf8_lossy(&text);
        assert!(
            text.starts_with("\u{1e}{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\"")
        );
        assert!(
            text.contains("quic:packet_sent") && text.contains("quic:recovery_metrics_updated")
        );
    }
    // Existing files stay.
    fails(&test, 2, "--qlog + not empty");
    assert_eq!(names(&logs), written);
    // The older format; no files remain of a test that could not run.
    let other = folder.path().join("other");
    let qvis = format!("--duration 1 --qlog {} --qlog-format 0.3", text(&other));
    let output = client(&format!("{} {qvis}", nobody()));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(names(folder.path()), ["logs"]);
    let output = client(&format!("{} {qvis}", server.address));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(&other), ["forward_127.0.0.1_seed1_flow0.qlog"]);
    let text = std::fs::read_to_string(other.join("forward_127.0.0.1_seed1_flow0.qlog"));
    let file: serde_json::Value = serde_json::from_str(&text.expect("it is there")).expect("JSON");
    assert_eq!(file["qlog_version"], "0.3");
    let nowhere = "/proc/none/logs";
    fails(
        &format!("{} --qlog {nowhere}", server.address),
        2,
        &format!("--qlog + {nowhere}"),
    );
    fails(
        &format!("{} --qlog-format 0.3", server.address),
        2,
        "--qlog",
    );
}
