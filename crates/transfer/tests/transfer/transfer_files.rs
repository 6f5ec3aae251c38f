//! Files of every kind cross in both directions, and go on where they were interrupted.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::transfer_common::{World, noise, path, same};
use verus_senders::Scheme;
use verus_transfer::files::{Part, Place, Source};
use verus_transfer::folder::Folder;
use verus_transfer::refusal::Reason;
use verus_transfer::reserved::Reserved;
use verus_transfer::{Client, Entry, Gauge, Trouble};

const MEGABYTE: usize = 1 << 20;

fn refused(trouble: Trouble) -> Reason {
    match trouble {
        Trouble::Here(refusal) | Trouble::There(refusal) => refusal.reason,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_every_kind_go_there_and_back() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    let long = "n".repeat(240);
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("one", vec![7]),
        ("block", noise(65_536, 1)),
        ("odd", noise(5 * MEGABYTE + 4_321, 2)),
        ("zeros", vec![0; 3 * MEGABYTE + 1]),
        ("ü \u{7}", noise(1_000, 3)),
        (long.as_str(), noise(1_000, 4)),
    ] {
        fs::write(world.mine(name), &bytes).expect("written");
        let mode = fs::Permissions::from_mode(if bytes.len() == 1 { 0o755 } else { 0o644 });
        fs::set_permissions(world.mine(name), mode).expect("ours");
        let put = world.put(&client, name, name, false).await.expect(name);
        assert!(!put.same);
        let back = format!("back {}", &name[..name.len().min(200)]);
        if name.len() < 200 {
            world.get(&client, name, &back, false).await.expect(name);
            assert!(same(&world.mine(name), &world.mine(&back)), "{name}");
        }
        assert!(same(&world.mine(name), &world.served(name)), "{name}");
        let source = fs::metadata(world.mine(name)).expect("it exists");
        let copy = fs::metadata(world.served(name)).expect("it exists");
        assert_eq!(source.mtime_nsec(), copy.mtime_nsec(), "{name}");
        assert_eq!(source.mode() & 0o100, copy.mode() & 0o100, "{name}");
        let again = world.put(&client, name, name, false).await.expect(name);
        assert!(again.same && again.moved == 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_are_not_sent_and_stay_holes() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    let file = fs::File::create(world.mine("sparse")).expect("a file");
    file.set_len(1 << 30).expect("sparse");
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 700 << 20).expect("written");
    let put = world
        .put(&client, "sparse", "sparse", false)
        .await
        .expect("sent");
    assert!(put.moved <= 64 << 10, "{put:?}");
    let copy = fs::metadata(world.served("sparse")).expect("it exists");
    assert_eq!(copy.len(), 1 << 30);
    assert!(copy.blocks() * 512 < 1 << 20, "{} blocks", copy.blocks());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_unfinished_file_is_made_good_use_of() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    let bytes = noise(8 * MEGABYTE + 1_234, 1);
    fs::write(world.mine("file"), &bytes).expect("written");
    fs::write(world.served("source"), &bytes).expect("written");
    let mut damaged = bytes[..6 * MEGABYTE].to_vec();
    damaged[2 * MEGABYTE + 5] ^= 1;
    let mut longer = bytes.clone();
    longer.extend(noise(MEGABYTE, 9));
    let torn = bytes[..4 * MEGABYTE + 777_777].to_vec();
    let least_kept = torn.len() as u64 - 65_536;
    for (what, part, kept) in [
        ("nothing", Vec::new(), 0..=0),
        ("half", bytes[..4 * MEGABYTE].to_vec(), 4 << 20..=4 << 20),
        ("torn", torn.clone(), least_kept..=torn.len() as u64),
        ("damaged", damaged, 2 << 20..=2 << 20),
        ("other", noise(5 * MEGABYTE, 7), 0..=0),
        (
            "whole",
            bytes.clone(),
            bytes.len() as u64..=bytes.len() as u64,
        ),
        ("longer", longer, bytes.len() as u64..=bytes.len() as u64),
    ] {
        for upload in [true, false] {
            let (place, part_name) = if upload {
                (
                    world.served(what),
                    world.served(&format!(".{what}.verus-part")),
                )
            } else {
                (world.mine(what), world.mine(&format!(".{what}.verus-part")))
            };
            fs::write(&part_name, &part).expect("written");
            let delivered = if upload {
                world.put(&client, "file", what, false).await
            } else {
                world.get(&client, "source", what, false).await
            };
            let delivered = delivered.expect(what);
            assert!(kept.contains(&delivered.kept), "{what}: {delivered:?}");
            assert_eq!(
                delivered.moved + delivered.kept,
                bytes.len() as u64,
                "{what}"
            );
            assert!(fs::read(&place).expect("whole") == bytes, "{what}");
            assert!(!part_name.exists(), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_file_is_replaced_only_on_demand() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    fs::write(world.mine("a"), b"new").expect("written");
    for old in [&b"old"[..], b"longer"] {
        fs::write(world.served("a"), old).expect("written");
        let trouble = world
            .put(&client, "a", "a", false)
            .await
            .expect_err("it exists");
        assert_eq!(refused(trouble), Reason::Exists);
        assert_eq!(fs::read(world.served("a")).expect("there"), old);
        world.put(&client, "a", "a", true).await.expect("forced");
        assert_eq!(fs::read(world.served("a")).expect("there"), b"new");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_of_the_folder_is_reached() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    let secret = world.home.path().join("secret");
    fs::write(&secret, b"secret").expect("written");
    symlink(&secret, world.served("file")).expect("a link");
    symlink("..", world.served("up")).expect("a link");
    fs::write(world.mine("mine"), b"x").expect("written");
    for bad in ["file", "up/secret"] {
        let trouble = world.get(&client, bad, "got", false).await.expect_err(bad);
        assert_eq!(refused(trouble), Reason::Outside, "{bad}");
    }
    let trouble = world.put(&client, "mine", "up/new", false).await;
    assert_eq!(refused(trouble.expect_err("outside")), Reason::Outside);
    assert!(!world.home.path().join("new").exists());
    // A file replaces a link that leaves the folder, and is not written through it.
    world
        .put(&client, "mine", "file", true)
        .await
        .expect("replaced");
    assert_eq!(fs::read(&secret).expect("untouched"), b"secret");
    assert!(client.make_folder(&path("up/folder")).await.is_err());
    assert!(!world.home.path().join("folder").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_swapped_meanwhile_lead_nowhere() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    let outside = world.home.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("f"), "secret").expect("written");
    fs::create_dir(world.served("inner")).expect("a folder");
    fs::write(world.served("x"), "plain").expect("written");
    fs::write(world.mine("mine"), "mine").expect("written");
    let over = Arc::new(AtomicBool::new(false));
    let (served, ending) = (world.served(""), Arc::clone(&over));
    let swapping = std::thread::spawn(move || {
        let at = |name: &str| served.join(name);
        symlink("../outside", at("aside")).expect("a link");
        // At once, since a folder that is missing is made anew.
        let exchange = || {
            renameat_with(CWD, at("inner"), CWD, at("aside"), RenameFlags::EXCHANGE)
                .expect("exchanged");
        };
        while !ending.load(Ordering::Relaxed) {
            // A file becomes a link out of the folder, and a folder as well.
            symlink("../outside/f", at("link")).expect("a link");
            fs::rename(at("link"), at("x")).expect("renamed");
            exchange();
            exchange();
            fs::write(at("plain"), "plain").expect("written");
            fs::rename(at("plain"), at("x")).expect("renamed");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let (mut got, mut put) = (0, 0);
    for number in 0..300 {
        if world.get(&client, "x", "got", true).await.is_ok() {
            assert_eq!(fs::read(world.mine("got")).expect("there"), b"plain");
            got += 1;
        }
        let to = format!("inner/{number}");
        put += usize::from(world.put(&client, "mine", &to, false).await.is_ok());
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().expect("every step was possible");
    let there = fs::read_dir(&outside).expect("there").count();
    assert_eq!(there, 1, "files were put outside");
    assert!(got > 0 && put > 0, "{got} arrived, {put} were put");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_are_listed_whole() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    client.make_folder(&path("a/b/c")).await.expect("made");
    fs::write(world.served("a/b/file"), b"12345").expect("written");
    let entries = client.list(&path("a")).await.expect("a list");
    let shown: Vec<String> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Folder(path) => format!("{path}/"),
            Entry::File(path, info) => format!("{path} {}", info.size),
            Entry::Unavailable(path, why) => panic!("{path}: {why}"),
        })
        .collect();
    assert_eq!(shown, ["./", "b/", "b/c/", "b/file 5"]);
    let trouble = client.list(&path("none")).await.expect_err("nothing");
    assert_eq!(refused(trouble), Reason::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_file_that_others_planted_is_not_used() {
    const SOMEBODY: u32 = 65_534;
    let world = World::new();
    let client = world.connect().await.expect("a server");
    fs::write(world.served("tool"), noise(100_000, 1)).expect("written");
    let part = world.mine(".tool.verus-part");
    let mode = |mode| fs::set_permissions(&part, fs::Permissions::from_mode(mode));
    let plant = |what: &str| {
        if what == "a symbolic link" {
            fs::write(world.mine("elsewhere"), b"mine").expect("written");
            return symlink(world.mine("elsewhere"), &part).expect("a link");
        }
        fs::write(&part, b"planted").expect("written");
        mode(0o600).expect("ours");
        match what {
            "another user's file" => {
                std::os::unix::fs::chown(&part, Some(SOMEBODY), None).expect("root may");
            }
            "another name" => {
                fs::hard_link(&part, world.mine("second")).expect("a link");
            }
            "others may write" => mode(0o666).expect("ours"),
            _ => unreachable!(),
        }
    };
    // In a folder where everybody may make files, as in any other.
    fs::set_permissions(world.mine(""), fs::Permissions::from_mode(0o1777)).expect("ours");
    for what in [
        "a symbolic link",
        "another user's file",
        "another name",
        "others may write",
    ] {
        plant(what);
        let trouble = world.get(&client, "tool", "tool", false).await;
        let trouble = trouble.expect_err(what);
        assert!(trouble.to_string().contains(what), "{trouble}");
        assert!(
            trouble.to_string().contains("`.tool.verus-part`"),
            "{trouble}"
        );
        assert_eq!(refused(trouble), Reason::InTheWay);
        assert!(!world.mine("tool").exists(), "{what}");
        fs::remove_file(&part).expect("it stayed");
    }
    assert_eq!(
        fs::read(world.mine("elsewhere")).expect("untouched"),
        b"mine"
    );
    world
        .get(&client, "tool", "tool", false)
        .await
        .expect("in its place now");
    let made = fs::metadata(world.mine("tool")).expect("there");
    assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(made.nlink(), 1);
    assert_eq!(made.mode() & 0o022, 0, "{:o}", made.mode());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_reads_a_file_before_it_is_whole() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    let folder = Folder::open(&world.home.path().join("mine")).expect("there");
    let part = Part::open(&Place {
        folder,
        name: "x".into(),
        replace: false,
        apart: None,
    })
    .expect("a new file");
    let mode = fs::metadata(world.mine(".x.verus-part")).expect("there");
    assert_eq!(mode.mode() & 0o777, 0o600);
    drop(part);
    fs::write(world.served("x"), b"x").expect("written");
    world.get(&client, "x", "x", false).await.expect("there");
    fs::write(world.mine("any"), b"x").expect("written");
    let (any, x) = (
        fs::metadata(world.mine("any")).expect("there"),
        fs::metadata(world.mine("x")).expect("there"),
    );
    assert_eq!(any.mode(), x.mode(), "as any new file of ours");
}

#[test]
fn a_source_written_to_under_its_old_time_has_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, b"before").expect("written");
    let source = Source::new(fs::File::open(&path).expect("there")).expect("a file");
    assert!(!source.changed());
    let modified = fs::metadata(&path)
        .and_then(|about| about.modified())
        .expect("known");
    // Times are counted in ticks of up to 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("ours");
    std::os::unix::fs::FileExt::write_all_at(&file, b"behind", 0).expect("written");
    file.set_modified(modified).expect("ours");
    let again = fs::metadata(&path)
        .and_then(|about| about.modified())
        .expect("known");
    assert_eq!(again, modified);
    assert!(source.changed());
}

/// A client that needs a second for 24 MiB, of which QUIC takes but a part ahead.
async fn slow_client(world: &World) -> Client {
    let mut config = world.config();
    config.scheme = Scheme::parse("constant:rate_mbps=200").expect("a scheme");
    Client::connect(&config).await.expect("a server")
}

/// Sends a file slowly, and does something once a part of it is under way.
async fn put_and_midway(world: &World, name: &str, midway: impl AsyncFnOnce()) -> Trouble {
    let client = slow_client(world).await;
    let source = Source::new(fs::File::open(world.mine(name)).expect("there")).expect("a file");
    let (gauge, to) = (Gauge::default(), path(name));
    let put = client.put(&source, &to, false, &gauge);
    let meanwhile = async {
        while gauge.moved() < 2 * MEGABYTE as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        midway().await;
    };
    let (put, ()) = tokio::join!(put, meanwhile);
    put.expect_err("it was disturbed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changes_while_it_is_sent_does_not_arrive() {
    let world = World::new();
    let grow = |path: &Path| {
        let file = fs::OpenOptions::new().append(true).open(path);
        std::io::Write::write_all(&mut file.expect("ours"), b"more").expect("written");
    };
    let shrink = |path: &Path| {
        let file = fs::OpenOptions::new().write(true).open(path);
        file.expect("ours").set_len(1000).expect("cut");
    };
    let replace = |path: &Path| {
        fs::write(world.mine("other"), noise(24 * MEGABYTE, 2)).expect("written");
        fs::rename(world.mine("other"), path).expect("renamed");
    };
    for name in ["grown", "cut", "replaced"] {
        let change = |path: &Path| match name {
            "grown" => grow(path),
            "cut" => shrink(path),
            _ => replace(path),
        };
        fs::write(world.mine(name), noise(24 * MEGABYTE, 1)).expect("written");
        let trouble = put_and_midway(&world, name, async || change(&world.mine(name))).await;
        let words = trouble.to_string();
        assert!(
            words.contains("changed while it was sent"),
            "{name}: {words}"
        );
        assert!(!world.served(name).exists(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_send_one_file_the_newer_wins_and_the_older_is_told() {
    let world = World::new();
    fs::write(world.mine("file"), noise(24 * MEGABYTE, 1)).expect("written");
    fs::write(world.mine("newer"), noise(24 * MEGABYTE, 2)).expect("written");
    let newer = world.connect().await.expect("a server");
    let older = put_and_midway(&world, "file", async || {
        let put = world.put(&newer, "newer", "file", false).await;
        put.expect("the newer one is whole");
    });
    assert_eq!(refused(older.await), Reason::Superseded);
    assert!(same(&world.mine("newer"), &world.served("file")));
    let names = fs::read_dir(world.served("")).expect("there");
    assert_eq!(names.count(), 1, "nothing is left beside it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_transfer_completes_meanwhile_is_not_received_again() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    fs::write(world.served("file"), noise(MEGABYTE, 1)).expect("written");
    let other = Part::open(&Place {
        folder: Folder::open(&world.home.path().join("mine")).expect("there"),
        name: "file".into(),
        replace: false,
        apart: None,
    })
    .expect("a new file");
    let complete = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        fs::copy(world.served("file"), world.mine("file")).expect("copied");
        drop(other);
    };
    let (get, ()) = tokio::join!(world.get(&client, "file", "file", false), complete);
    let delivered = get.expect("it is there");
    assert!(delivered.same && delivered.moved == 0, "{delivered:?}");
    let names = fs::read_dir(world.mine("")).expect("there");
    assert_eq!(names.count(), 1, "nothing is left beside it");
}

/// The server's own files in the folder that it serves, by all paths that lead there.
const OWN: [&str; 9] = [
    "config/token",
    "config/tokens.json",
    "config/new",
    "config/below/file",
    "link/token",
    "to-token",
    "hard",
    "audit",
    "in/audit",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_servers_own_files_are_neither_served_nor_listed_nor_replaced() {
    let home = crate::transfer_common::home();
    let served = home.path().join("served");
    fs::create_dir_all(served.join("config/below")).expect("folders");
    fs::create_dir(served.join("in")).expect("a folder");
    for own in ["config/token", "config/below/file", "audit", "in/file"] {
        fs::write(served.join(own), "secret").expect("written");
    }
    symlink("config", served.join("link")).expect("a link");
    symlink("config/token", served.join("to-token")).expect("a link");
    fs::hard_link(served.join("config/token"), served.join("hard")).expect("a link");
    fs::hard_link(served.join("audit"), served.join("in/audit")).expect("a link");
    let world = World::start(home, Some(crate::transfer_common::TOKEN), |config| {
        let mut reserved = Reserved::default();
        let config_folder = fs::File::open(served.join("config")).expect("there");
        reserved.add_folder(&config_folder).expect("reserved");
        reserved.add_path(&served.join("audit")).expect("reserved");
        reserved
            .add_path(&served.join("in/rotated"))
            .expect("reserved");
        config.folder = config.folder.clone().without(reserved).expect("a folder");
    });
    // A list that is replaced while the server runs is another file.
    fs::write(world.served("config/next"), "secret").expect("written");
    fs::rename(
        world.served("config/next"),
        world.served("config/tokens.json"),
    )
    .expect("renamed");
    let client = world.connect().await.expect("a server");
    fs::write(world.mine("mine"), "six").expect("written");
    fs::write(world.mine("same size"), "secret").expect("written");
    for own in OWN {
        if let Ok(got) = world.get(&client, own, "got", true).await {
            panic!("{own}: {got:?}");
        }
        assert!(client.list(&path(own)).await.is_err(), "{own}");
        for mine in ["mine", "same size"] {
            let put = world.put(&client, mine, own, true).await;
            // A link is replaced, and its target stays.
            assert_eq!(put.is_ok(), own == "to-token", "{own}");
        }
    }
    for folder in [
        "config",
        "config/more",
        "config/below",
        "link/more",
        "audit",
        "in/rotated",
    ] {
        let made = client.make_folder(&path(folder)).await;
        assert!(made.is_err(), "{folder}");
        assert!(client.list(&path(folder)).await.is_err(), "{folder}");
    }
    // Where nothing has that name now: a log that was moved away begins anew.
    assert!(
        world
            .put(&client, "mine", "in/rotated", false)
            .await
            .is_err()
    );
    for own in [
        "config/token",
        "config/tokens.json",
        "config/below/file",
        "audit",
        "hard",
    ] {
        assert_eq!(
            fs::read(world.served(own)).expect("there"),
            b"secret",
            "{own}"
        );
    }
    let names = |entries: Vec<Entry>| -> Vec<String> {
        let name = |entry: &Entry| match entry {
            Entry::File(path, _) | Entry::Folder(path) | Entry::Unavailable(path, _) => {
                path.to_string()
            }
        };
        entries.iter().map(name).collect()
    };
    let listed = names(client.list(&path("")).await.expect("listed"));
    assert_eq!(listed, [".", "in", "in/file", "link", "to-token"]);
    // All else is served and replaced as before.
    world
        .get(&client, "in/file", "got", true)
        .await
        .expect("it is not the server's");
    world
        .put(&client, "mine", "in/file", true)
        .await
        .expect("it is not the server's");
    world
        .put(&client, "mine", "token", false)
        .await
        .expect("only a name of the server's");
}

#[test]
fn a_folder_that_is_the_servers_own_cannot_be_served() {
    let home = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(home.path().join("config/public")).expect("folders");
    fs::write(home.path().join("config/public/file"), "text").expect("written");
    let reserved = || {
        let mut reserved = Reserved::default();
        let folder = fs::File::open(home.path().join("config")).expect("there");
        reserved.add_folder(&folder).expect("reserved");
        reserved
    };
    let open = |name: &str| Folder::open(&home.path().join(name)).expect("there");
    assert!(open("config").without(reserved()).is_err());
    // A folder in it can be named explicitly; then it is served, with its contents.
    let public = open("config/public").without(reserved()).expect("named");
    assert!(public.file(&path("file")).is_ok());
    let all = open(".").without(reserved()).expect("there is more in it");
    assert!(all.folder(&path("config")).is_err());
}

/// An unfinished file of ours with these permissions, as left by an end that was killed between
/// setting a file's permissions and its name.
fn left_behind(world: &World, mode: u32) {
    let part = world.mine(".x.verus-part");
    fs::write(&part, noise(100_000, 1)).expect("written");
    fs::set_permissions(&part, fs::Permissions::from_mode(mode)).expect("ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_whole_but_for_its_name_is_continued() {
    let world = World::new();
    let client = world.connect().await.expect("a server");
    fs::write(world.served("x"), noise(100_000, 1)).expect("written");
    for mode in [0o600, 0o644, 0o755, 0o444, 0o555, 0o400] {
        left_behind(&world, mode);
        let got = world.get(&client, "x", "x", false).await;
        assert_eq!(got.expect("it is ours").kept, 100_000, "{mode:o}");
        fs::remove_file(world.mine("x")).expect("there");
    }
}
