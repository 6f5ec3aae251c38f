//! Checks that `verus analyze` reads the emulator's log.

use std::fs;

use verus_channel::catalogue;
use verus_channel::path::link::WhenOver;
use verus_channel::trace::Trace;
use verus_core::{Bytes, Duration, Time};
use verus_emu::log::{Heading, LinkLog};
use verus_measure::mahimahi::analyze;

const PACKET: Bytes = Bytes::new(1500);

fn heading() -> Heading {
    Heading {
        link: "Downlink",
        channel: "town.down".to_owned(),
        queue: "droptail:bytes=60000".to_owned(),
    }
}

fn at(millis: f64) -> Time {
    Time::ZERO + Duration::from_millis_f64(millis)
}

#[test]
fn a_log_tells_what_happened_and_every_opportunity_to_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("down.log");
    let trace = Trace::from_millis("t", [2, 2, 5]).expect("in order");
    let service = verus_channel::path::link::Service::Trace {
        trace: trace.into(),
        opportunity: Bytes::new(1504),
        end: WhenOver::Loop,
    };
    let file = fs::File::create(&path).expect("a file");
    let mut log = LinkLog::new(file, &heading(), Some(service)).expect("a log");
    log.on_arrival(at(0.3), PACKET);
    log.on_arrival(at(1.7), PACKET);
    log.on_arrival(at(1.9), PACKET);
    log.on_drop(at(1.9), PACKET);
    log.on_departure(at(2.0), PACKET, at(0.3));
    log.on_departure(at(2.0), PACKET, at(1.7));
    log.finish(at(11.5)).expect("written");

    let text = fs::read_to_string(&path).expect("text");
    let expected = "# mahimahi mm-link (Downlink) [town.down]\n# queue: droptail:bytes=60000\n# base timestamp: 0\n\
        0 + 1500\n1 + 1500\n1 + 1500\n1 d 1 1500\n2 # 1504\n2 # 1504\n2 - 1500 2\n2 - 1500 1\n\
        5 # 1504\n7 # 1504\n7 # 1504\n10 # 1504\n";
    assert_eq!(text, expected);
    let report = analyze("down.log", text.as_bytes()).expect("a log");
    assert_eq!(
        (report.arrivals, report.departures, report.drops_logged),
        (3, 2, 1)
    );
    assert_eq!(report.opportunities, 6);
}

#[test]
fn a_rates_capacity_is_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("up.log");
    let channel = catalogue::open("rate:7.3", 1, Duration::from_secs_f64(1.0)).expect("a rate");
    let service = channel.service(Bytes::new(1504), WhenOver::Loop);
    let file = fs::File::create(&path).expect("a file");
    let mut log = LinkLog::new(file, &heading(), Some(service)).expect("a log");
    for number in 0..5000u32 {
        let entered = at(f64::from(number));
        log.on_arrival(entered, Bytes::new(800));
        log.on_departure(at(f64::from(number) + 0.9), Bytes::new(800), entered);
    }
    log.finish(at(5000.0)).expect("written");
    let report = analyze("up.log", fs::File::open(&path).expect("it")).expect("a log");
    assert_eq!((report.arrivals, report.departures), (5000, 5000));
    let mbps = report.metrics.capacity_mbps;
    assert!((mbps - 7.3).abs() < 0.01, "{mbps} Mbit/s");
    let used = report.metrics.throughput_mbps;
    assert!((used - 6.4).abs() < 0.01, "{used} Mbit/s");
}

#[test]
fn a_log_that_cannot_be_written_says_so() {
    let full = fs::File::create("/dev/full").expect("a device");
    let mut log = LinkLog::new(full, &heading(), None).expect("a log");
    log.on_arrival(at(1.0), PACKET);
    assert!(log.finish(at(2.0)).is_err());
}
