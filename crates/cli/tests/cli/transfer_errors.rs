//! Failures of `serve`, `send` and `receive`: one clear message each, on stderr. The exit code says
//! who must act: 2 for a usage error, 1 for a failed transfer. No incomplete file takes a file's
//! place.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::failed;
use crate::transfer_common::{Scene, Server, free_port, refused, run, succeeded};

/// A fingerprint that no server has.
const OTHER: &str = "aaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaa";

#[test]
fn a_wrong_fingerprint_is_refused_before_anything_is_sent() {
    let scene = Scene::new();
    let server = scene.serve("");
    scene.write("here/file", b"contents");
    scene.write("served/other", b"contents");
    let send = format!("send file {}", server.address);
    for what in [&send, &format!("receive {}", server.at("other"))] {
        let words = [OTHER, &server.fingerprint, "nothing was sent"];
        let output = scene.client(&format!("{what} --fingerprint {OTHER}"));
        refused(&output, 1, &words);
    }
    assert_eq!(scene.names("served"), ["other"]);
    assert_eq!(scene.names("here"), ["file"]);
    let right = format!("{send} --fingerprint {}", server.fingerprint);
    succeeded(&scene.client(&right));
    assert_eq!(scene.names("served"), ["file", "other"]);
}

#[test]
fn a_fingerprint_that_has_changed_is_refused_until_the_user_says_otherwise() {
    let scene = Scene::new();
    let server = scene.serve("");
    scene.write("here/file", b"contents");
    let address = server.address.to_string();
    succeeded(&scene.client(&format!("send file {address}")));
    let (first, port) = (server.fingerprint.clone(), server.address.port());
    server.kill();
    fs::remove_file(scene.path("server/server.pem")).expect("its key");
    fs::remove_file(scene.path("served/file")).expect("it arrived");
    let server = scene.serve_on(port, "");
    assert_ne!(server.fingerprint, first);
    let hosts = scene.text("client/known_hosts");
    let words = [
        &first,
        &server.fingerprint,
        "has changed",
        &hosts,
        "nothing was sent",
    ];
    refused(&scene.client(&format!("send file {address}")), 1, &words);
    assert!(scene.names("served").is_empty());
    fs::remove_file(&hosts).expect("it is there");
    succeeded(&scene.client(&format!("send file {address}")));
}

#[test]
fn a_wrong_token_and_none_get_nothing() {
    let scene = Scene::new();
    let server = scene.serve("");
    scene.write("here/file", b"contents");
    scene.secret("here/wrong", b"a token that is quite another one\n");
    scene.write("served/other", b"contents");
    let (send, receive) = (
        format!("send file {}", server.address),
        format!("receive {}", server.at("other")),
    );
    // With a known host: the client is refused, rather than the server.
    succeeded(&scene.client(&format!("{receive} --into met")));
    for what in [send, receive] {
        let none = scene.run("client", &what);
        refused(&none, 1, &["asks for a token", "--token-file"]);
        let wrong = scene.run("client", &format!("{what} --token-file wrong"));
        refused(&wrong, 1, &["does not accept the token"]);
    }
    assert_eq!(scene.names("served"), ["other"]);
    assert_eq!(scene.names("here"), ["file", "met", "wrong"]);
}

#[test]
fn a_server_that_does_not_know_the_token_is_not_trusted_on_first_use() {
    let scene = Scene::new();
    let server = scene.serve("--no-token");
    scene.write("here/file", b"contents");
    scene.secret("here/token", b"a token that the server does not know\n");
    let send = format!("send file {} --token-file token", server.address);
    let output = scene.run("client", &send);
    refused(&output, 1, &[&server.fingerprint, "--fingerprint"]);
    assert!(scene.names("served").is_empty());
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let scene = Scene::new();
    scene.write("secret", b"not to be had");
    fs::create_dir(scene.path("outside")).expect("a folder");
    symlink(scene.path("secret"), scene.path("served/link")).expect("a link");
    symlink("../secret", scene.path("served/relative")).expect("a link");
    symlink("../outside", scene.path("served/folder")).expect("a link");
    let server = scene.serve("");
    for path in [
        "../secret",
        "a/../../secret",
        "link",
        "relative",
        "folder/../../secret",
    ] {
        let output = scene.client(&format!("receive {}", server.at(path)));
        let code = if path.contains("..") { 2 } else { 1 };
        refused(&output, code, &[path]);
    }
    scene.write("here/file", b"contents");
    for folder in ["..", "folder"] {
        let output = scene.client(&format!("send file {}", server.at(folder)));
        let code = if folder == ".." { 2 } else { 1 };
        refused(&output, code, &[]);
    }
    assert_eq!(scene.names("here"), ["file"]);
    assert!(scene.names("outside").is_empty());
    assert_eq!(scene.names("served"), ["folder", "link", "relative"]);
}

/// A file system of one megabyte, which only root may mount.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Small<'a> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(at)
            .output();
        let output = mounted.expect("`mount` is there");
        assert!(output.status.success(), "{output:?}");
        Small(at)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
#[ignore = "takes root: `make test-root`"]
fn a_full_disk_is_named_and_no_file_is_left_that_looks_whole() {
    let scene = Scene::new();
    let (served, here) = (scene.path("served"), scene.path("small"));
    fs::create_dir(&here).expect("a folder");
    let (_served, _here) = (Small::mount(&served), Small::mount(&here));
    let server = scene.serve("");
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8 + 1).collect();
    scene.write("here/large", &large);
    let address = server.address.to_string();
    let output = scene.client(&format!("send large {address}"));
    refused(&output, 1, &["large", "full", "the other end"]);
    assert!(
        scene.names("served").is_empty(),
        "what had arrived would keep the disk full"
    );
    scene.write("here/small", b"there is room for this");
    succeeded(&scene.client(&format!("send small {address}")));

    // And here.
    server.kill();
    let mut server = Server::start(scene.serving("here", 0, ""));
    let small = scene.text("small");
    let output = scene.client(&format!("receive {} --into {small}", server.at("large")));
    refused(&output, 1, &["large", "full"]);
    assert!(scene.names("small").is_empty());
    assert_eq!(server.event()["event"], "connected");
}

#[test]
fn a_quota_and_how_long_unfinished_files_stay_are_flags() {
    let scene = Scene::new();
    let server = scene.serve("--max-bytes 100kB --keep-parts forever");
    scene.write("here/large", &[7; 200_000]);
    scene.write("here/small", b"there is room for this");
    let address = server.address.to_string();
    let output = scene.client(&format!("send large {address}"));
    let words = ["large", "100000 bytes", "--max-bytes", "the other end"];
    refused(&output, 1, &words);
    assert!(scene.names("served").is_empty());
    succeeded(&scene.client(&format!("send small {address}")));
    let served = scene.text("served");
    for (flag, word) in [
        ("--max-bytes much", "--max-bytes"),
        ("--keep-parts long", "forever"),
        ("--clients-per-address 0", "--clients-per-address"),
    ] {
        let output = scene.run("server", &format!("serve {served} {flag}"));
        refused(&output, 2, &[word]);
    }
}

#[test]
fn what_is_no_file_is_no_secret_and_no_list_of_hosts() {
    let scene = Scene::new();
    scene.write("here/file", b"contents");
    scene.secret("here/token", b"a token that is long enough\n");
    let pipe = scene.text("here/pipe");
    nix::unistd::mkfifo(&*pipe, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    let server = scene.serve("");
    let (address, served) = (server.address, scene.text("served"));
    for no_file in [&*pipe, "/dev/tty", "/dev/zero"] {
        for option in ["--token-file", "--known-hosts"] {
            let output = scene.client(&format!("send file {address} {option} {no_file}"));
            refused(&output, 2, &[no_file]);
        }
        let output = scene.run("server", &format!("serve {served} --token-file {no_file}"));
        refused(&output, 2, &[no_file]);
    }
    assert!(scene.names("served").is_empty());
}

#[test]
fn a_limit_on_the_size_of_files_fails_one_file_and_ends_nobody() {
    let scene = Scene::new();
    let whole = scene.serving("served", 0, "");
    let limits = ["-c", "ulimit -f 200; exec \"$@\"", "sh"];
    let mut command = Command::new("sh");
    command
        .args(limits)
        .arg(whole.get_program())
        .args(whole.get_args());
    command
        .env("VERUS_CONFIG", scene.path("server"))
        .stdin(Stdio::null());
    let server = Server::start(command);
    scene.write("here/large", &[7; 1_000_000]);
    scene.write("here/small", &[7; 10_000]);
    let address = server.address.to_string();
    let output = scene.client(&format!("send large {address}"));
    refused(&output, 1, &["large", "larger than", "the other end"]);
    succeeded(&scene.client(&format!("send small {address}")));
    assert_eq!(scene.names("served"), ["small"]);
}

/// The command as somebody without rights gives it, who may not even look where we build.
fn as_nobody(scene: &Scene, command: &Command) -> Command {
    const NOBODY: u32 = 65_534;
    let binary = scene.path("verus-endpoint");
    if !binary.exists() {
        fs::copy(command.get_program(), &binary).expect("a copy");
        for folder in ["", "here", "served"] {
            let open = fs::Permissions::from_mode(0o777);
            fs::set_permissions(scene.path(folder), open).expect("our own");
        }
    }
    let mut theirs = Command::new(binary);
    theirs.args(command.get_args()).stdin(Stdio::null());
    theirs.current_dir(command.get_current_dir().expect("of the scene"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => theirs.env(name, value),
            None => theirs.env_remove(name),
        };
    }
    theirs.uid(NOBODY);
    theirs
}

#[test]
#[ignore = "takes root: `make test-root`"]
fn a_file_that_may_not_be_read_is_named_at_either_end() {
    let scene = Scene::new();
    for name in ["here/mine", "served/mine"] {
        scene.write(name, b"contents");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(scene.path(name), mode).expect("our own");
    }
    let server = Server::start(as_nobody(&scene, &scene.serving("served", 0, "")));
    let words = ["mine", "permission denied"];
    let output = scene.client(&format!("receive {} --force", server.at("mine")));
    refused(&output, 1, &words);
    let send = scene.client_command(&format!("send mine {}", server.address));
    refused(&run(&mut as_nobody(&scene, &send)), 2, &words);
    assert_eq!(scene.names("here"), ["mine"]);
}

#[test]
fn two_files_that_would_arrive_under_one_name_are_refused() {
    let scene = Scene::new();
    let server = scene.serve("");
    for folder in ["one", "two"] {
        fs::create_dir(scene.path("here").join(folder)).expect("a folder");
    }
    scene.write("here/one/same", b"1");
    scene.write("here/two/same", b"22");
    let address = &server.address;
    let both = ["`one/same` and `two/same` would both arrive as `same`"];
    let output = scene.client(&format!("send one/same two/same {address}"));
    refused(&output, 2, &both);
    assert!(scene.names("served").is_empty());
    succeeded(&scene.client(&format!("send one two {address}")));
    let from = format!("{} {}", server.at("one/same"), server.at("two/same"));
    refused(
        &scene.client(&format!("receive {from} --into got")),
        2,
        &both,
    );
}

#[test]
fn what_is_not_there_is_named() {
    let scene = Scene::new();
    let server = scene.serve("");
    let output = scene.client(&format!("send absent {}", server.address));
    refused(&output, 2, &["absent", "no such file"]);
    let output = scene.client(&format!("receive {}", server.at("absent")));
    refused(&output, 1, &["absent", "no such file"]);
    let output = scene.run("server", "serve absent");
    refused(&output, 2, &["absent", "no such folder"]);
    assert!(scene.names("here").is_empty());
}

#[test]
fn a_port_in_use_is_named() {
    let scene = Scene::new();
    let taken = UdpSocket::bind("127.0.0.1:0").expect("some port is free");
    let port = taken.local_addr().expect("it is bound").port();
    let output = run(&mut scene.serving("served", port, ""));
    refused(&output, 2, &[&port.to_string(), "in use", "--port"]);
}

#[test]
fn a_host_that_does_not_answer_or_does_not_exist_fails_the_run() {
    let scene = Scene::new();
    scene.write("here/file", b"contents");
    let silent = format!("127.0.0.1:{}", free_port());
    let output = scene.client(&format!("send file {silent}"));
    refused(&output, 1, &[&silent, "no answer"]);
    let output = scene.client("receive no-such-host.invalid/file");
    let words = ["cannot find the host", "no-such-host.invalid"];
    refused(&output, 1, &words);
    assert_eq!(scene.names("here"), ["file"]);
}

#[test]
fn what_is_sent_has_a_log_where_one_is_asked_for() {
    let scene = Scene::new();
    let server = scene.serve("");
    scene.write("here/file", &vec![7; 1 << 20]);
    let address = server.address.to_string();
    let logs = scene.text("logs");
    succeeded(&scene.client(&format!("send file {address} --qlog {logs}")));
    assert_eq!(scene.names("logs"), ["forward_127.0.0.1_flow0.sqlog"]);
    let text = fs::read(scene.path("logs/forward_127.0.0.1_flow0.sqlog")).expect("it is there");
    let text = String::from_utf8_lossy(&text);
    let sent = text.matches("quic:packet_sent").count();
    assert!(sent >= (1 << 20) / 1500, "{sent} packets");
    let again = scene.client(&format!("send file {address} --qlog {logs}"));
    refused(&again, 2, &["--qlog", "not empty"]);
}

#[test]
fn one_bad_name_in_a_folder_keeps_nothing_else_of_it_from_crossing() {
    let scene = Scene::new();
    let server = scene.serve("");
    fs::create_dir(scene.path("here/folder")).expect("a folder");
    let long = "n".repeat(241);
    scene.write(&format!("here/folder/{long}"), b"contents");
    for number in 0..12 {
        scene.write(&format!("here/folder/{number}"), b"contents");
    }
    let output = scene.client(&format!("send folder {}", server.address));
    failed(
        &output,
        1,
        &[&long, "a name of 241 bytes", "12 of 13 files"],
    );
    assert_eq!(scene.names("served/folder").len(), 12);
}
