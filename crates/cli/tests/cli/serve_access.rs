//! Access to a server, with the real binary: tokens made, used and revoked while it runs, rights,
//! and the audit log. Also its remaining rights as root and in the file system.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Command;
use std::time::Duration;

use crate::transfer_common::{Scene, Server, refused, run, succeeded};
use serde_json::Value;

/// Somebody without rights.
const NOBODY: u32 = 65_534;
/// Longer than anything here takes, with the machine busy, in ms.
const SOON_MS: u64 = 30_000;
/// Between two looks, in ms.
const PAUSE_MS: u64 = 5;

fn permit(scene: &Scene, name: &str, mode: u32) {
    fs::set_permissions(scene.path(name), fs::Permissions::from_mode(mode)).expect("our own");
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(text)))
}

/// Runs `serve token …` with the server's configuration.
fn token(scene: &Scene, words: &str) -> std::process::Output {
    scene.run("server", &format!("serve token {words}"))
}

/// Makes a token and keeps it as a client does.
fn add(scene: &Scene, name: &str, rights: &str) -> String {
    let output = token(scene, &format!("add {name} --rights {rights}"));
    succeeded(&output);
    let text = String::from_utf8(output.stdout).expect("plain");
    assert_eq!(text.lines().count(), 1, "the token and nothing else");
    let file = format!("here/{name}.token");
    scene.secret(&file, text.as_bytes());
    format!("{name}.token")
}

fn client(scene: &Scene, token: &str, words: &str) -> std::process::Output {
    scene.run("client", &format!("{words} --token-file {token}"))
}

/// A text that is in it.
fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_else(|| panic!("{event}"))
}

/// The next event of a kind.
fn event(server: &mut Server, kind: &str) -> Value {
    loop {
        let event = server.event();
        if event["event"] == kind {
            return event;
        }
    }
}

#[test]
fn a_token_is_made_used_listed_and_revoked_while_the_server_runs() {
    let scene = Scene::new();
    let mut server = scene.serve("");
    scene.write("here/file", b"contents");
    let address = server.address.to_string();
    let alice = add(&scene, "alice", "both");
    succeeded(&client(&scene, &alice, &format!("send file {address}")));
    assert_eq!(event(&mut server, "connected")["name"], "alice");
    let received = event(&mut server, "received");
    assert_eq!(
        (&received["name"], &received["file"]),
        (&"alice".into(), &"file".into())
    );

    let output = token(&scene, "list --json");
    succeeded(&output);
    let said = String::from_utf8(output.stdout).expect("plain");
    let clients: Vec<Value> = said.lines().map(|line| json(line.as_bytes())).collect();
    let names: Vec<&str> = clients
        .iter()
        .filter_map(|kept| kept["name"].as_str())
        .collect();
    assert_eq!(names, ["default", "alice"]);
    let used: Vec<bool> = clients
        .iter()
        .map(|kept| kept["last_used"].is_string())
        .collect();
    assert_eq!(used, [false, true], "{said}");
    let secret = fs::read_to_string(scene.path("here/alice.token")).expect("kept");
    let store = fs::read_to_string(scene.path("server/tokens.json")).expect("written");
    assert!(!said.contains(secret.trim()) && !store.contains(secret.trim()));

    let output = token(&scene, "revoke alice");
    succeeded(&output);
    assert!(output.stdout.is_empty());
    let output = client(
        &scene,
        &alice,
        &format!("receive {} --force", server.at("file")),
    );
    refused(&output, 1, &["does not accept the token", "revoked"]);
    assert_eq!(
        event(&mut server, "turned_away")["why"],
        "it has the wrong token"
    );
    // And the one that was there from the start is still served.
    succeeded(&scene.client(&format!("receive {} --force", server.at("file"))));

    // As an object, for programs.
    let output = token(&scene, "add bob --rights read --json");
    succeeded(&output);
    let said = json(&output.stdout);
    assert_eq!(
        (&said["name"], &said["rights"]),
        (&"bob".into(), &"read".into())
    );
    assert!(said["token"].as_str().expect("a text").len() >= 32);
}

#[test]
fn a_client_whose_token_is_revoked_is_hung_up_on() {
    let scene = Scene::new();
    // It would take 13 s.
    let mut server = scene.serve("--scheme constant:rate_mbps=40");
    let alice = add(&scene, "alice", "both");
    scene.write("served/large", &[7; 64 << 20]);
    let mut receiving = scene.command(
        "client",
        &format!("receive {} --token-file {alice}", server.at("large")),
    );
    let receiving = receiving
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let part = scene.path("here/.large.verus-part");
    let begun = || fs::metadata(&part).is_ok_and(|part| part.len() > 0);
    let mut pauses = 0;
    while !begun() {
        assert!(pauses < SOON_MS / PAUSE_MS, "it does not begin");
        std::thread::sleep(Duration::from_millis(PAUSE_MS));
        pauses += 1;
    }
    succeeded(&token(&scene, "revoke alice"));
    let output = receiving.wait_with_output().expect("it ends");
    // Not always why: quinn holds a close back while data wait for the window (docs/transfer.md).
    refused(&output, 1, &[&server.address.to_string()]);
    assert!(!scene.path("here/large").exists());
    // In either order: the transfer and the connection end by themselves.
    let mut events = [server.event(), server.event(), server.event()];
    events.sort_by_key(|event| event["event"].to_string());
    let [connected, failed, ended] = events;
    assert_eq!(connected["event"], "connected");
    assert_eq!(failed["event"], "failed");
    assert_eq!(failed["direction"], "sent");
    let moved = failed["moved_bytes"].as_u64().expect("a number");
    assert!((1..64 << 20).contains(&moved), "{failed}");
    assert_eq!(ended["event"], "left");
    for event in [failed, ended] {
        assert_eq!(event["name"], "alice");
        assert!(text(&event, "why").contains("revoked"), "{event}");
    }
}

#[test]
fn rights_are_kept_to_with_a_clear_message() {
    let scene = Scene::new();
    let server = scene.serve("");
    let address = server.address.to_string();
    scene.write("here/file", b"contents");
    scene.write("served/there", b"contents");
    let (reader, writer) = (
        add(&scene, "reader", "read"),
        add(&scene, "writer", "write"),
    );
    let output = client(&scene, &reader, &format!("send file {address}"));
    refused(&output, 1, &["takes no files from us", "may only read"]);
    succeeded(&client(
        &scene,
        &reader,
        &format!("receive {}", server.at("there")),
    ));
    let output = client(&scene, &writer, &format!("receive {}", server.at("there")));
    refused(&output, 1, &["this token may write and not read"]);
    succeeded(&client(&scene, &writer, &format!("send file {address}")));
    assert_eq!(scene.names("served"), ["file", "there"]);
    refused(
        &token(&scene, "add x --rights all"),
        2,
        &["--rights", "`read`, `write` or `both`"],
    );
}

#[test]
fn names_that_cannot_be_or_are_taken_are_refused() {
    let scene = Scene::new();
    add(&scene, "alice", "both");
    let taken = token(&scene, "add alice");
    refused(&taken, 2, &["alice", "already", "revoke"]);
    refused(&token(&scene, "add default"), 2, &["default"]);
    for name in ["a b", "a\u{1b}[31m"] {
        let mut add = scene.command("server", "serve token add");
        refused(&run(add.arg(name)), 2, &["letters, digits"]);
    }
    refused(&token(&scene, "revoke bob"), 2, &["bob", "list"]);
    let full = scene.command("server", "serve token add late");
    let output = to_full_device(full);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // A token that nobody could read is not kept.
    refused(&token(&scene, "revoke late"), 2, &["late"]);
}

/// Runs a command whose output cannot be written.
fn to_full_device(mut command: Command) -> std::process::Output {
    let full = fs::File::options().write(true).open("/dev/full");
    run(command.stdout(full.expect("Linux has it")))
}

#[test]
fn a_folder_called_token_can_be_served_and_nobody_needs_a_default_token() {
    let scene = Scene::new();
    fs::create_dir(scene.path("here/token")).expect("a folder");
    // The first client comes before the first start: nobody else is let in then.
    let alice = add(&scene, "alice", "read");
    scene.write("here/token/file", b"contents");
    let serve = "serve ./token --bind 127.0.0.1 --port 0 --json";
    let server = Server::start(scene.command("server", serve));
    assert_eq!(
        scene.names("server"),
        ["last-used.json", "server.pem", "tokens.json"]
    );
    succeeded(&client(
        &scene,
        &alice,
        &format!("receive {}", server.at("file")),
    ));
    drop(server);
    let output = token(&scene, "");
    assert_eq!(output.status.code(), Some(2), "a verb is missing");
    refused(&scene.run("server", "serve"), 2, &["DIR"]);
}

#[test]
fn each_transfer_is_in_the_audit_log_with_who_and_what() {
    let scene = Scene::new();
    let log = scene.text("audit");
    let mut server = scene.serve(&format!("--audit {log}"));
    let address = server.address.to_string();
    let alice = add(&scene, "alice", "both");
    scene.write("here/file", &[7; 100_000]);
    let (send, receive) = (
        format!("send file {address}"),
        format!("receive {}", server.at("file")),
    );
    let elsewhere = format!("{receive} --into back");
    for words in [&send, &send, &receive, &elsewhere] {
        succeeded(&client(&scene, &alice, words));
    }
    let absent = client(&scene, &alice, &format!("receive {}", server.at("absent")));
    refused(&absent, 1, &["absent"]);
    event(&mut server, "failed");
    assert_eq!(fs::metadata(&log).expect("made").mode() & 0o777, 0o600);
    let log = fs::read_to_string(&log).expect("written");
    let lines: Vec<Value> = log.lines().map(|line| json(line.as_bytes())).collect();
    assert_eq!(lines.len(), 5, "{log}");
    for (line, (event, outcome, moved)) in lines.iter().zip([
        ("received", "complete", 100_000),
        ("received", "same", 0),
        ("sent", "same", 0),
        ("sent", "complete", 100_000),
    ]) {
        assert_eq!(line["event"], event, "{line}");
        assert_eq!(line["outcome"], outcome, "{line}");
        assert_eq!(line["moved_bytes"], moved, "{line}");
        assert_eq!(
            (&line["bytes"], &line["kept_bytes"]),
            (&100_000.into(), &0.into())
        );
        assert_eq!(line["file"], "file");
    }
    for line in &lines {
        assert_eq!(line["name"], "alice");
        assert_eq!(line["schema"], 1);
        assert!(text(line, "client").starts_with("127.0.0.1:"));
        assert!(text(line, "time").ends_with('Z'));
    }
    assert!(lines[0]["duration_s"].as_f64() > Some(0.0));
    assert_eq!(
        (&lines[4]["event"], &lines[4]["file"]),
        (&"failed".into(), &"absent".into())
    );
    assert!(text(&lines[4], "why").contains("no such file"));
}

#[test]
fn an_audit_log_that_others_may_change_is_refused() {
    let scene = Scene::new();
    scene.write("audit", b"");
    permit(&scene, "audit", 0o666);
    symlink(scene.path("audit"), scene.path("link")).expect("a link");
    let served = scene.text("served");
    for (name, word) in [
        ("audit", "mode 666"),
        ("link", "symbolic link"),
        ("served", "--audit"),
    ] {
        let log = scene.text(name);
        let output = scene.run("server", &format!("serve {served} --port 0 --audit {log}"));
        refused(&output, 2, &[word]);
    }
}

#[test]
fn secrets_that_others_may_read_are_refused_at_both_ends() {
    let scene = Scene::new();
    drop(scene.serve(""));
    let serve = format!("serve {} --port 0", scene.text("served"));
    add(&scene, "alice", "both");
    for file in ["server/server.pem", "server/token", "server/tokens.json"] {
        for mode in [0o640, 0o604, 0o644] {
            permit(&scene, file, mode);
            let command = format!("chmod 600 {}", scene.text(file));
            refused(&scene.run("server", &serve), 2, &[&command]);
        }
        permit(&scene, file, 0o600);
    }
    permit(&scene, "server", 0o770);
    let command = format!("chmod go-w {}", scene.text("server"));
    refused(&scene.run("server", &serve), 2, &[&command]);
    refused(&token(&scene, "list"), 2, &[&command]);
    permit(&scene, "server", 0o700);

    // A token that was copied with a careless umask.
    scene.write("here/careless", b"a token that is long enough\n");
    permit(&scene, "here/careless", 0o644);
    let output = client(&scene, "careless", "receive 127.0.0.1/x");
    refused(&output, 2, &["chmod 600 careless"]);
    let output = scene.run("server", &format!("{serve} --token-file careless"));
    refused(&output, 2, &["chmod 600 careless"]);
    fs::create_dir(scene.path("client")).expect("a folder");
    scene.write("client/token", b"a token that is long enough\n");
    permit(&scene, "client/token", 0o644);
    let output = scene.run("client", "receive 127.0.0.1/x");
    refused(&output, 2, &["chmod 600", "client/token"]);
    // A token that anybody could guess is refused, too.
    let mut command = scene.command("client", "receive 127.0.0.1/x");
    let output = run(command.env("VERUS_TOKEN", "fifteen letters"));
    refused(&output, 2, &["VERUS_TOKEN", "15 characters"]);
}

/// User and group numbers, and one more field, of each thread of a process.
fn threads(server: &Server, field: &str) -> Vec<(String, String, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let tasks: Vec<_> = tasks
        .map(|task| {
            let path = task.expect("readable").path().join("status");
            let status = fs::read_to_string(path).expect("readable");
            let of = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name));
                let line = line.expect("a field").split_once(':').expect("a field").1;
                line.split_whitespace().collect::<Vec<_>>().join(" ")
            };
            (of("Uid"), of("Gid"), of(field))
        })
        .collect();
    assert!(tasks.len() > 1, "it has threads");
    tasks
}

/// A scene in which `nobody` can run a server.
fn of_nobody(scene: &Scene) {
    permit(scene, "", 0o755);
    fs::create_dir(scene.path("server")).expect("a folder");
    for name in ["served", "server"] {
        chown(scene.path(name), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    permit(scene, "server", 0o700);
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn root_becomes_whom_the_folder_belongs_to() {
    let scene = Scene::new();
    of_nobody(&scene);
    let log = scene.text("audit");
    let mut server = scene.serve(&format!("--audit {log}"));
    let all = format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}");
    for (uid, gid, capabilities) in threads(&server, "CapPrm") {
        assert_eq!((&uid, &gid), (&all, &all));
        assert_eq!(capabilities.trim_start_matches('0'), "");
    }
    for (field, expected) in [("NoNewPrivs", "1"), ("Groups", "65534")] {
        for (_, _, value) in threads(&server, field) {
            assert_eq!(value, expected, "{field}");
        }
    }
    // Root makes a token for it, and the file is theirs.
    let alice = add(&scene, "alice", "both");
    for file in ["server/server.pem", "server/token", "server/tokens.json"] {
        let metadata = fs::metadata(scene.path(file)).expect("made");
        assert_eq!(
            (metadata.uid(), metadata.mode() & 0o777),
            (NOBODY, 0o600),
            "{file}"
        );
    }
    scene.write("here/file", b"contents");
    succeeded(&client(
        &scene,
        &alice,
        &format!("send file {}", server.address),
    ));
    let metadata = fs::metadata(scene.path("served/file")).expect("arrived");
    assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY));
    event(&mut server, "received");
    // The audit log stays root's.
    assert_eq!(fs::metadata(&log).expect("made").uid(), 0);
    let lines = fs::read_to_string(&log).expect("readable");
    assert!(lines.contains("alice"));
    // Files that only root may read are useless to it, and it reports that.
    drop(server);
    chown(scene.path("server"), Some(0), Some(0)).expect("root may");
    let output = run(&mut scene.serving("served", 0, ""));
    refused(&output, 2, &["(user 65534)", "--config"]);
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn root_becomes_whom_it_is_told_to() {
    let scene = Scene::new();
    of_nobody(&scene);
    chown(scene.path("served"), Some(0), Some(0)).expect("root may");
    scene.write("served/file", b"contents");
    let server = scene.serve(&format!("--user {NOBODY}:12345"));
    for (uid, gid, _) in threads(&server, "Groups") {
        assert!(uid.split(' ').all(|uid| uid == NOBODY.to_string()), "{uid}");
        assert!(gid.split(' ').all(|gid| gid == "12345"), "{gid}");
    }
    succeeded(&scene.client(&format!("receive {}", server.at("file"))));
    scene.write("here/mine", b"contents");
    // It may not write here, like its user.
    let output = scene.client(&format!("send mine {}", server.address));
    refused(&output, 1, &["permission denied"]);
    for (user, word) in [
        ("no-such-user", "no such user"),
        ("54321", "UID:GID"),
        ("0:no-such", "no-such"),
    ] {
        let output = run(&mut scene.serving("served", 0, &format!("--user {user}")));
        refused(&output, 2, &["--user", word]);
    }
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn root_in_its_own_folder_keeps_none_of_its_capabilities_unless_told_to() {
    let scene = Scene::new();
    let server = scene.serve("");
    for (_, _, capabilities) in threads(&server, "CapEff") {
        assert_eq!(capabilities.trim_start_matches('0'), "");
    }
    for (_, _, value) in threads(&server, "NoNewPrivs") {
        assert_eq!(value, "1");
    }
    scene.write("served/theirs", b"contents");
    chown(scene.path("served/theirs"), Some(NOBODY), Some(NOBODY)).expect("root may");
    permit(&scene, "served/theirs", 0o600);
    let output = scene.client(&format!("receive {}", server.at("theirs")));
    refused(&output, 1, &["permission denied"]);
    drop(server);
    let server = scene.serve("--user root");
    for (_, _, capabilities) in threads(&server, "CapEff") {
        assert_ne!(capabilities.trim_start_matches('0'), "");
    }
    succeeded(&scene.client(&format!("receive {}", server.at("theirs"))));
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn only_root_becomes_somebody_else() {
    use std::os::unix::process::CommandExt;
    let scene = Scene::new();
    of_nobody(&scene);
    permit(&scene, "here", 0o777);
    let mut as_root = scene.serving("served", 0, "--user root");
    refused(
        &run(as_root.uid(NOBODY).gid(NOBODY)),
        2,
        &["--user", "only root"],
    );
    // Files planted by others are not trusted either.
    scene.secret("server/token", b"a token that is long enough\n");
    chown(scene.path("server/token"), Some(4321), Some(4321)).expect("root may");
    chown(scene.path("server"), Some(0), Some(0)).expect("root may");
    let output = run(&mut scene.serving("served", 0, "--user root"));
    refused(&output, 2, &["belongs to user 4321", "chown 0"]);
}

#[test]
fn a_running_server_cannot_read_beyond_its_folders() {
    let scene = Scene::new();
    let mut server = scene.serve("--read-only");
    let landlock = server.start["landlock_abi"].as_i64();
    assert!(
        landlock >= Some(1),
        "this kernel offers no Landlock, so nothing can be shown here: {}",
        server.start
    );
    let alice = add(&scene, "alice", "both");
    scene.write("served/file", b"contents");
    succeeded(&client(
        &scene,
        &alice,
        &format!("receive {}", server.at("file")),
    ));
    // A list of tokens in another folder: readable for the server's user, even root, and yet not
    // for the server.
    let (list, elsewhere) = (
        scene.path("server/tokens.json"),
        scene.path("elsewhere.json"),
    );
    fs::copy(&list, &elsewhere).expect("ours");
    symlink(&elsewhere, scene.path("server/link")).expect("a link");
    fs::rename(scene.path("server/link"), &list).expect("ours");
    let report = event(&mut server, "tokens_unreadable");
    assert!(
        text(&report, "why").contains("ermission denied"),
        "{report}"
    );
    // The known tokens stay in force, and the transfer above was of a file that it may read.
    succeeded(&client(
        &scene,
        &alice,
        &format!("receive {} --force", server.at("file")),
    ));
}

/// The command under another umask.
fn under(umask: &str, command: &Command) -> Command {
    let mut under = Command::new("sh");
    under.args(["-c", &format!("umask {umask} && exec \"$0\" \"$@\"")]);
    under.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        under.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => under.env(name, value),
            None => under.env_remove(name),
        };
    }
    under.stdin(std::process::Stdio::null());
    under
}

fn mode(scene: &Scene, name: &str) -> u32 {
    let metadata = fs::metadata(scene.path(name)).expect("it is there");
    metadata.mode() & 0o777
}

#[test]
fn files_have_the_permissions_of_their_receivers_umask() {
    for (umask, plain, executable) in [
        ("077", 0o600, 0o700),
        ("027", 0o640, 0o750),
        ("022", 0o644, 0o755),
        ("002", 0o664, 0o775),
        ("000", 0o666, 0o777),
    ] {
        let scene = Scene::new();
        // Read before the process is confined, as it cannot be afterwards.
        let server = Server::start(under(umask, &scene.serving("served", 0, "")));
        for (name, permissions) in [("plain", 0o644), ("program", 0o755)] {
            scene.write(&format!("here/{name}"), b"contents");
            permit(&scene, &format!("here/{name}"), permissions);
            let words = format!("send {name} {} --quiet", server.address);
            succeeded(&scene.client(&words));
            let words = format!("receive {} --into there --quiet", server.at(name));
            let _ = fs::create_dir(scene.path("here/there"));
            succeeded(&run(&mut under(umask, &scene.client_command(&words))));
        }
        for folder in ["served", "here/there"] {
            let of = |name: &str| mode(&scene, &format!("{folder}/{name}"));
            let modes = (of("plain"), of("program"));
            assert_eq!(modes, (plain, executable), "{folder}, umask {umask}");
        }
    }
}

#[test]
fn what_an_end_left_that_was_killed_before_it_named_a_file_is_continued_under_its_umask() {
    for (umask, left) in [
        ("002", 0o664),
        ("002", 0o775),
        ("000", 0o666),
        ("027", 0o640),
        ("077", 0o700),
        ("222", 0o444),
        ("022", 0o600),
    ] {
        let scene = Scene::new();
        // A server could not keep its keys in a folder that it may not write to.
        let of_server = if umask == "222" { "022" } else { umask };
        let server = Server::start(under(of_server, &scene.serving("served", 0, "")));
        let contents = vec![7; 200_000];
        scene.write("here/up", &contents);
        scene.write("served/down", &contents);
        let up = format!("send up {} --quiet", server.address);
        let down = format!("receive {} --into . --quiet", server.at("down"));
        for (part, file, words, umask) in [
            ("served/.up.verus-part", "served/up", &up, of_server),
            ("here/.down.verus-part", "here/down", &down, umask),
        ] {
            scene.write(part, &contents);
            permit(&scene, part, left);
            let output = run(&mut under(umask, &scene.client_command(words)));
            assert!(
                output.status.success(),
                "umask {umask}, {left:o}: {output:?}"
            );
            assert_eq!(fs::read(scene.path(file)).expect("whole"), contents);
            assert!(!scene.path(part).exists());
            assert_eq!(
                mode(&scene, file) & 0o666,
                0o666 & !u32::from_str_radix(umask, 8).expect("octal")
            );
        }
    }
}

#[test]
fn a_server_of_a_home_keeps_its_own_files_to_itself() {
    let scene = Scene::new();
    fs::create_dir(scene.path("served/logs")).expect("a folder");
    scene.write("served/file", b"contents");
    let words = "--config ../served/.config/verus --audit ../served/logs/audit.jsonl";
    fs::create_dir(scene.path("served/.config")).expect("a folder");
    let server = scene.serve(words);
    let read = |name: &str| fs::read(scene.path(name)).expect("it is there");
    let token = String::from_utf8(read("served/.config/verus/token")).expect("plain");
    let own_files: Vec<String> = scene
        .names("served/.config/verus")
        .iter()
        .map(|name| format!(".config/verus/{name}"))
        .chain(["logs/audit.jsonl".to_owned()])
        .collect();
    assert!(own_files.len() >= 3, "{own_files:?}");
    let secrets: Vec<Vec<u8>> = own_files
        .iter()
        .map(|name| read(&format!("served/{name}")))
        .collect();
    // Other names of the same.
    fs::hard_link(
        scene.path("served/.config/verus/token"),
        scene.path("served/hard"),
    )
    .expect("a link");
    symlink(".config/verus", scene.path("served/soft")).expect("a link");
    let client = |words: &str| run(scene.client_command(words).env("VERUS_TOKEN", token.trim()));
    fs::create_dir(scene.path("here/got")).expect("a folder");
    fs::create_dir(scene.path("here/forged")).expect("a folder");
    for name in
        own_files
            .iter()
            .map(String::as_str)
            .chain(["hard", "soft/token", ".config/verus", "soft"])
    {
        let output = client(&format!("receive {} --into got --quiet", server.at(name)));
        refused(&output, 1, &["server's own"]);
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        scene.write(&format!("here/forged/{file}"), b"{}\n");
        let output = client(&format!(
            "send --force forged/{file} {} --quiet",
            server.at(folder)
        ));
        match name {
            // A link is replaced, and its target stays.
            "soft" => succeeded(&output),
            _ => refused(&output, 1, &["server's own"]),
        }
    }
    // All the files except the server's.
    succeeded(&client(&format!(
        "receive {}/ --into got --quiet",
        server.address
    )));
    assert_eq!(scene.names("here/got"), [".config", "file", "logs", "soft"]);
    assert!(scene.names("here/got/.config").is_empty());
    assert!(scene.names("here/got/logs").is_empty());
    for (name, secret) in own_files.iter().zip(&secrets) {
        let now = read(&format!("served/{name}"));
        assert!(now.starts_with(secret), "{name} has changed");
    }
    let audit = String::from_utf8(read("served/logs/audit.jsonl")).expect("plain");
    assert!(
        audit.contains("\"file\":\"file\"") || audit.contains("file"),
        "{audit}"
    );
}

#[test]
fn the_folder_of_keys_and_tokens_itself_is_not_served() {
    let scene = Scene::new();
    let output = scene.run(
        "server",
        &format!("serve {0} --config {0}", scene.text("served")),
    );
    refused(&output, 2, &["server's own"]);
}
