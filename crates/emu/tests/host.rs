//! What a path changes of its host is put back: by the last to end, or by the first to begin after a death. In a
//! network namespace of the test's own, where that may be had.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use verus_emu::host::{Names, Place};
use verus_emu::namespace::Namespace;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const REDIRECTS: &str = "/proc/sys/net/ipv4/conf/all/accept_redirects";
const LOOPBACK: &str = "/proc/sys/net/ipv4/conf/lo/forwarding";

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).expect("a setting");
    text.trim().to_owned()
}

/// Does `work` on a host of its own that does not forward and takes no redirects, or says why not.
fn on_a_host(work: impl FnOnce(&Path) + Send) {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!("skipped: no network namespace may be made here ({error})");
            return;
        }
    };
    let notes = tempfile::tempdir().expect("a folder");
    let done = namespace.within(|| {
        if let Err(error) = fs::write(FORWARD, "0").and_then(|()| fs::write(REDIRECTS, "0")) {
            eprintln!("skipped: settings of a network namespace cannot be changed here ({error})");
            return;
        }
        work(&notes.path().join("verus"));
    });
    done.expect("the namespace can be entered");
}

#[test]
fn the_last_path_to_end_puts_back_what_was() {
    on_a_host(|notes| {
        let first = Place::take(notes).expect("a place");
        first.forward(true).expect("settings");
        let second = Place::take(notes).expect("another");
        second.forward(false).expect("settings");
        assert_ne!(first.number(), second.number());
        assert_eq!((read(FORWARD), read(LOOPBACK)), ("1".into(), "1".into()));
        drop(first);
        assert_eq!(read(FORWARD), "1", "one still needs it");
        drop(second);
        assert_eq!((read(FORWARD), read(LOOPBACK)), ("0".into(), "0".into()));
        assert_eq!(
            read(REDIRECTS),
            "0",
            "the kernel changes this with forwarding"
        );
        assert!(!notes.exists(), "nothing is left");
    });
}

#[test]
fn what_the_dead_left_is_cleared_away() {
    on_a_host(|notes| {
        let drafts = tempfile::tempdir().expect("a folder");
        let (file, folder) = (drafts.path().join("a.part"), drafts.path().join("b.part"));
        fs::write(&file, "").expect("a file");
        fs::create_dir(&folder).expect("a folder");
        let dead = Place::take(notes).expect("a place");
        dead.forward(false).expect("settings");
        dead.draft(&file).expect("a note");
        dead.draft(&folder).expect("a note");
        fs::write(dead.file("resolv.conf"), "nameserver 192.0.2.1\n").expect("a file");
        // As after a death: the kernel has taken the lock, and nobody has put anything back.
        let host = fs::read_dir(notes)
            .expect("it")
            .next()
            .expect("one")
            .expect("it")
            .path();
        let kept = drafts.path().join("kept");
        fs::create_dir(&kept).expect("a folder");
        for entry in fs::read_dir(&host).expect("it").flatten() {
            fs::copy(entry.path(), kept.join(entry.file_name())).expect("a copy");
        }
        drop(dead);
        fs::create_dir_all(notes).expect("a folder");
        fs::rename(&kept, &host).expect("as it was");
        fs::set_permissions(notes, PermissionsExt::from_mode(0o700)).expect("ours");
        fs::write(FORWARD, "1").expect("as it was");
        fs::write(&file, "").expect("a file");
        fs::create_dir_all(&folder).expect("a folder");

        let next = Place::take(notes).expect("a place");
        assert_eq!(next.number(), 0, "its number is free again");
        assert_eq!((read(FORWARD), read(REDIRECTS)), ("0".into(), "0".into()));
        assert!(!file.exists() && !folder.exists(), "drafts");
        assert!(!next.file("resolv.conf").exists());
        drop(next);
        assert!(!notes.exists(), "nothing is left");
    });
}

#[test]
fn notes_of_a_namespace_that_is_gone_go_as_well() {
    on_a_host(|notes| {
        let place = Place::take(notes).expect("a place");
        for (name, before) in [("net-1", Some("{}")), ("net-2", None)] {
            fs::create_dir(notes.join(name)).expect("a folder");
            if let Some(before) = before {
                fs::write(notes.join(name).join("before.json"), before).expect("a file");
            }
        }
        let other = Place::take(notes).expect("another");
        assert!(!notes.join("net-1").exists() && !notes.join("net-2").exists());
        drop((place, other));
        assert!(!notes.exists(), "nothing is left");
    });
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    on_a_host(|notes| {
        fs::create_dir(notes).expect("a folder");
        fs::set_permissions(notes, PermissionsExt::from_mode(0o777)).expect("ours");
        let error = Place::take(notes).expect_err("a folder of everybody's");
        assert!(error.to_string().contains("others may write"), "{error}");
    });
}

#[test]
fn addresses_and_names_say_which_path_it_is() {
    let names = Names::new(7);
    assert_eq!(names.device, "verus7");
    assert_eq!(names.ipv4.0.to_string(), "100.64.7.1");
    assert_eq!(names.ipv6.1.to_string(), "fd76:6572:7573:7::2");
}
