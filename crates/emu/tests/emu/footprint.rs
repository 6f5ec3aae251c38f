//! Changes of a path to its host are reversed by the last path to end, or by the first to begin
//! after a death. Runs in a separate network namespace, where one may be made.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use verus_emu::device::{Device, DeviceConfig};
use verus_emu::footprint::{Names, Place};
use verus_emu::namespace::Namespace;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARD_V6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// The setting that enables forwarding of packets from an interface.
fn forwarding(interface: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{interface}/forwarding")
}

fn device(name: &str, network: u8) -> Device {
    let config = DeviceConfig {
        name: name.to_owned(),
        ipv4: Ipv4Addr::new(192, 0, 2, network * 4 + 1),
        ipv6: None,
        mtu: 1500,
    };
    Device::new(&config).expect("a device")
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).expect("a setting");
    text.trim().to_owned()
}

/// Runs `work` on a separate host that does not forward.
fn on_a_host(work: impl FnOnce(&Path) + Send) {
    let namespace = Namespace::new().expect("a network namespace may be made");
    let notes = tempfile::tempdir().expect("a folder");
    let done = namespace.within(|| {
        fs::write(FORWARD, "0").expect("its settings can be changed");
        work(&notes.path().join("verus"));
    });
    done.expect("the namespace can be entered");
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn the_last_path_that_needs_a_setting_puts_it_back() {
    on_a_host(|notes| {
        let _uplink = device("uplink", 1);
        let first = Place::take(notes).expect("a place");
        let _first = device("verus0", 2);
        let confined = first.forward("verus0", false).expect("settings");
        assert!(confined.is_some(), "nobody else forwards here");
        let ipv6 = Path::new(FORWARD_V6).exists();
        let before = ipv6.then(|| read(FORWARD_V6));
        let confined_v6 = ipv6.then(|| first.forward("verus0", true).expect("settings"));
        let _late = device("late", 3);
        let second = Place::take(notes).expect("another");
        assert_ne!(first.number(), second.number());
        let _second = device("verus1", 4);
        let also_confined = second.forward("verus1", false).expect("settings");
        for (interface, on) in [
            ("verus0", "1"),
            ("verus1", "1"),
            ("uplink", "1"),
            ("late", "1"),
            ("lo", "0"),
            ("default", "0"),
            ("all", "0"),
        ] {
            assert_eq!(read(&forwarding(interface)), on, "{interface}");
        }
        drop(second);
        assert_eq!(read(&forwarding("late")), "0", "the first did not need it");
        assert_eq!(read(&forwarding("uplink")), "1", "the first still does");
        assert!(!ipv6 || read(FORWARD_V6) == "1");
        drop(first);
        assert_eq!(read(&forwarding("uplink")), "0");
        assert_eq!(ipv6.then(|| read(FORWARD_V6)), before);
        assert!(!notes.exists(), "nothing is left");
        drop((confined, confined_v6, also_confined));
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn what_forwards_already_is_neither_confined_nor_put_back() {
    on_a_host(|notes| {
        let _uplink = device("uplink", 1);
        fs::write(FORWARD, "1").expect("a router");
        let place = Place::take(notes).expect("a place");
        let _device = device("verus0", 2);
        let confined = place.forward("verus0", false).expect("settings");
        assert!(
            confined.is_none(),
            "it is not ours to say what a router forwards"
        );
        drop(place);
        assert_eq!(
            (read(FORWARD), read(&forwarding("uplink"))),
            ("1".into(), "1".into())
        );
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn what_the_dead_left_is_cleared_away() {
    on_a_host(|notes| {
        let drafts = tempfile::tempdir().expect("a folder");
        let file = drafts.path().join("a.part");
        fs::write(&file, "").expect("a file");
        let _uplink = device("uplink", 1);
        let dead = Place::take(notes).expect("a place");
        let device = device("verus0", 2);
        drop(dead.forward("verus0", false).expect("settings"));
        dead.draft(&file).expect("a note");
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
        drop((dead, device));
        fs::create_dir_all(notes).expect("a folder");
        fs::rename(&kept, &host).expect("as it was");
        fs::set_permissions(notes, PermissionsExt::from_mode(0o700)).expect("ours");
        fs::write(forwarding("uplink"), "1").expect("as it was");
        fs::write(&file, "").expect("a file");

        let next = Place::take(notes).expect("a place");
        assert_eq!(next.number(), 0, "its number is free again");
        assert_eq!(read(&forwarding("uplink")), "0");
        assert!(!file.exists(), "a draft");
        assert!(!next.file("resolv.conf").exists());
        drop(next);
        assert!(!notes.exists(), "nothing is left");
    });
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
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
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
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
