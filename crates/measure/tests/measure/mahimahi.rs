//! Link logs: a small one worked by hand, a recorded one, broken ones and random ones.

use std::path::PathBuf;

use proptest::prelude::*;
use verus_core::{Bytes, Duration, Time};
use verus_measure::mahimahi::{self, LogReport, LogWriter, analyze};

/// Two packets enter at 10 ms and one each at 12, 13 and 14; the fourth is dropped without a
/// line; two are still queued at the end.
const SMALL: &str = "\
# mahimahi mm-link (Downlink) [some trace] > some file
# queue: droptail
# base timestamp: 5
5 # 1504
10 + 1500
10 + 1500
12 + 1000
12 # 1504
12 - 1500 2
13 + 1500
14 + 1400
20 # 1504
20 # 1504
20 - 1500 10
20 - 1000 8
30 # 1504
30 - 1400 16
31 + 1500
45 + 1500
105 # 1504
";

fn read(log: &str) -> LogReport {
    analyze("test.log", log.as_bytes()).expect("a good log")
}

fn refused(log: &str) -> String {
    analyze("test.log", log.as_bytes())
        .expect_err("a bad log")
        .to_string()
}

#[test]
fn a_small_log_gives_what_was_worked_out_by_hand() {
    let report = read(SMALL);
    assert_eq!((report.base_timestamp, report.first_ms), (Some(5), 5));
    assert_eq!(
        (report.opportunities, report.arrivals, report.departures),
        (6, 7, 4)
    );
    assert_eq!((report.arrived_bytes, report.departed_bytes), (9900, 5400));
    // From 5 to 105 ms.
    assert_eq!(report.duration_s, 0.1);
    let metrics = &report.metrics;
    assert_eq!(metrics.capacity_mbps, 6.0 * 1504.0 * 8.0 / 0.1 / 1e6);
    assert_eq!(metrics.throughput_mbps, 5400.0 * 8.0 / 0.1 / 1e6);
    // Delays 2, 8, 10 and 16 ms.
    assert_eq!(metrics.qdelay_mean_ms, Some(9.0));
    assert_eq!(metrics.qdelay_p50_ms, Some(10.0));
    assert_eq!(metrics.qdelay_p95_ms, Some(16.0));
    assert_eq!(metrics.qdelay_max_ms, Some(16.0));
    // Entered at 10 (2 and 10), 12 (8), 14 (16): samples 2, 1 + 8, 8, 1 + 16, 16.
    assert_eq!(metrics.signal_delay_p95_ms, Some(17.0));
    // Seven came, four left, two came after 14 ms: one was dropped, though no line says so.
    assert_eq!(
        (
            report.not_departed,
            report.dropped_estimate,
            report.drops_logged
        ),
        (3, Some(1), 0)
    );
    assert_eq!(
        (metrics.drops, metrics.dropped_bytes, metrics.backlog),
        (1, 1500, 2)
    );
    assert_eq!(metrics.loss_rate, Some(1.0 / 7.0));
    // One bin of 100 ms, with the events at its very end.
    assert_eq!(report.capacity_mbps, [metrics.capacity_mbps]);
    assert_eq!(metrics.series[0].throughput_mbps, [metrics.throughput_mbps]);
    // Metrics that a link log cannot show.
    assert_eq!(
        (metrics.goodput_mbps, metrics.rtt_mean_ms, metrics.power),
        (None, None, None)
    );
}

#[test]
fn fates_are_those_of_the_packets_up_to_the_last_that_departed() {
    let fates = mahimahi::fates("test.log", SMALL.as_bytes()).expect("a good log");
    assert_eq!(fates.lost, [false, false, false, true, false]);
    let times: Vec<u64> = fates.opportunities.iter().map(|&(at, _)| at).collect();
    assert_eq!(times, [0, 7, 15, 15, 25, 100]);
    assert!(fates.opportunities.iter().all(|&(_, bytes)| bytes == 1504));
}

#[test]
fn logged_drops_are_the_loss() {
    let report = read("0 + 1500\n0 + 1500\n0 + 1500\n0 d 2 3000\n9 # 1504\n9 - 1500 9\n");
    assert_eq!(report.drops_logged, 2);
    assert_eq!(report.metrics.loss_rate, Some(2.0 / 3.0));
    assert_eq!(
        (report.metrics.dropped_bytes, report.metrics.backlog),
        (3000, 0)
    );
}

#[test]
fn a_packet_that_may_still_be_queued_is_not_taken_for_dropped() {
    let report = read("0 + 1500\n0 + 1500\n9 # 1504\n9 - 1500 9\n");
    assert_eq!((report.not_departed, report.dropped_estimate), (1, Some(0)));
    assert_eq!(report.metrics.backlog, 1);
}

#[test]
fn a_log_of_one_instant_or_without_packets_has_no_figures_but_no_nonsense() {
    let report = read("7 # 1504\n");
    assert_eq!(
        (report.duration_s, report.metrics.capacity_mbps),
        (0.0, 0.0)
    );
    assert_eq!(
        (
            report.metrics.utilization,
            report.metrics.qdelay_p95_ms,
            report.metrics.jain
        ),
        (None, None, None)
    );
}

#[test]
fn an_hour_of_silence_costs_nothing() {
    let report = read("0 + 100\n5 - 100 5\n3600000 + 100\n3600001 - 100 1\n");
    // 3,600,001 samples: 5, then from 3,600,000 down to 1.
    let p95 = report.metrics.signal_delay_p95_ms.expect("packets left");
    assert!((p95 - 3_420_000.0).abs() <= 3_420_000.0 / 16384.0, "{p95}");
}

#[test]
fn a_bad_line_is_refused_by_name_number_and_field() {
    let cases = "
        5 # 1504/4 # 1504/ => line 2: time goes backwards (4 ms after 5 ms)
        hello world/ => line 1: `hello` is not a time in milliseconds; a link log of Mahimahi has lines such as `74 + 1482`
        -4 # 1504/ => line 1: `-4` is not a time in milliseconds
        / => line 1: the time in milliseconds is missing; a link log of Mahimahi has lines such as `74 + 1482`
        5/ => line 1: the kind of event is missing; a link log of Mahimahi has lines such as `74 + 1482`, and this looks like a trace (`verus trace info`)
        {}/ => line 1: `{}` is not a time in milliseconds; a link log of Mahimahi has lines such as `74 + 1482`, and this looks like JSON
        5 * 3/ => line 1: `*` is not a kind of event (`+`, `-`, `#` or `d`); a link log of Mahimahi has lines such as `74 + 1482`
        5 +/ => line 1: the size is missing
        5 + 1500 7/ => line 1: `7` is one field too many
        5 + 99999999/ => line 1: `99999999` is too large for a size
        99999999999999999999999 + 1/ => line 1: `99999999999999999999999` is too large for a time in milliseconds
        5 + 100/6 - 100/ => line 2: the delay is missing
        5 + 100/6 - 100 2/ => line 2: a delay of 2 ms is longer than the log so far (1 ms)
        5 - 100 0/ => line 1: more packets leave than the 0 that arrived
        5 + 1/6 + 1/7 - 1 1/8 - 1 3/ => line 4: a delay of 3 ms means that it overtook the packet before it
        5 d 1 100/ => line 1: more packets are dropped (1) than arrived (0)
        0 # 1/100000001 # 1/ => line 2: 100000001 ms is more than 27 hours after the first event, at 0 ms
        # base timestamp: soon/ => line 1: `soon` is not a base timestamp";
    for case in cases.lines().skip(1) {
        // A `/` ends a line.
        let (log, message) = case.trim().split_once(" => ").expect("a case");
        let log = log.replace('/', "\n");
        assert_eq!(refused(&log), format!("log `test.log`, {message}"));
    }
    assert!(refused("\u{1b}[2J\n").contains("line 1: `\\x1b[2J` is not a time in milliseconds"));
    assert_eq!(
        refused(&"7".repeat(100_000)),
        "log `test.log`, line 1: longer than 65536 bytes"
    );
}

#[test]
fn a_log_without_events_is_refused() {
    for log in ["", "# queue: infinite\n"] {
        assert!(
            refused(log).starts_with("log `test.log` has no events"),
            "{}",
            refused(log)
        );
    }
}

#[test]
fn what_the_writer_writes_the_parser_reads() {
    let (ms, size) = (Time::from_millis, Bytes::new);
    let mut log =
        LogWriter::new(Vec::new(), "Uplink", "town.up", "infinite", ms(3)).expect("memory");
    log.opportunity(ms(3), size(1504)).expect("memory");
    log.arrival(ms(10), size(1500)).expect("memory");
    log.arrival(ms(11), size(1500)).expect("memory");
    log.dropped(ms(11), 1, size(1500)).expect("memory");
    log.departure(ms(14) + Duration::from_micros(900), size(1500), ms(10))
        .expect("memory");
    let text = String::from_utf8(log.finish().expect("memory")).expect("ASCII");
    assert_eq!(
        text,
        "# mahimahi mm-link (Uplink) [town.up]\n# queue: infinite\n# base timestamp: 3\n\
         3 # 1504\n10 + 1500\n11 + 1500\n11 d 1 1500\n14 - 1500 4\n"
    );
    let report = read(&text);
    assert_eq!(report.base_timestamp, Some(3));
    assert_eq!(report.metrics.qdelay_mean_ms, Some(4.0));
    assert_eq!(report.metrics.loss_rate, Some(0.5));
}

/// A log saved by the Stanford CS244 reproduction of 2017, kept beside the repository.
#[test]
#[ignore = "reads recordings: make test-recordings"]
fn the_saved_run_of_2017_gives_its_published_figures() {
    let shared = std::env::var_os("VERUS_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let stem = shared.join("reference/cs244-2017/camp_ped_log_r2.first20s");
    let missing = |error| -> ! { panic!("{}.*: {error}; set VERUS_SHARED", stem.display()) };
    let log = std::fs::File::open(stem.with_extension("first20s.log.xz"))
        .unwrap_or_else(|error| missing(error));
    let expected = std::fs::read(stem.with_extension("first20s.expected.json"))
        .unwrap_or_else(|error| missing(error));
    let expected: serde_json::Value = serde_json::from_slice(&expected).expect("JSON");
    let report =
        analyze("camp_ped_log_r2", liblzma::read::XzDecoder::new(log)).expect("a good log");
    let metrics = &report.metrics;
    let rounded =
        |value: f64, places: i32| (value * 10f64.powi(places)).round() / 10f64.powi(places);
    let ms = |value: Option<f64>| value.expect("packets left");
    for (name, found) in [
        (
            "base_timestamp",
            report.base_timestamp.expect("in the header") as f64,
        ),
        ("duration_s", report.duration_s),
        ("opportunities", report.opportunities as f64),
        ("arrivals", report.arrivals as f64),
        ("departures", report.departures as f64),
        ("arrived_bytes", report.arrived_bytes as f64),
        ("departed_bytes", report.departed_bytes as f64),
        ("capacity_mbps", rounded(metrics.capacity_mbps, 6)),
        ("throughput_mbps", rounded(metrics.throughput_mbps, 6)),
        ("p95_signal_delay_ms", ms(metrics.signal_delay_p95_ms)),
        ("p95_packet_delay_ms", ms(metrics.qdelay_p95_ms)),
        ("p50_packet_delay_ms", ms(metrics.qdelay_p50_ms)),
        (
            "mean_packet_delay_ms",
            rounded(ms(metrics.qdelay_mean_ms), 4),
        ),
        ("max_packet_delay_ms", ms(metrics.qdelay_max_ms)),
    ] {
        assert_eq!(Some(found), expected[name].as_f64(), "{name}");
    }
    assert_eq!((report.not_departed, report.dropped_estimate), (8, Some(0)));
    assert_eq!(
        expected.as_object().map(|fields| fields.len()),
        Some(14),
        "every expected field is compared"
    );
}

/// Lines that are nearly events.
fn nearly_a_line() -> impl Strategy<Value = String> {
    let number = || prop_oneof![4 => 0..40u64, 1 => 0..200_000u64, 1 => any::<u64>()];
    let kind = prop::sample::select(vec!["+", "-", "#", "d", "-", "+", "x", ""]);
    (number(), kind, number(), prop::option::of(number())).prop_map(|(time, kind, size, more)| {
        let more = more.map(|more| format!(" {more}")).unwrap_or_default();
        format!("{time} {kind} {size}{more}\n")
    })
}

/// Steps of time, and at each whether a packet arrives, leaves or is dropped.
fn story() -> impl Strategy<Value = Vec<(u64, u8)>> {
    prop::collection::vec(
        (prop_oneof![8 => 0..5u64, 1 => 0..300_000u64], 0..4u8),
        0..200,
    )
}

proptest! {

    #[test]
    fn any_bytes_are_read_or_refused(data in prop::collection::vec(any::<u8>(), 0..400)) {
        mahimahi::fuzz(&data);
    }

    #[test]
    fn lines_that_are_nearly_events_are_read_or_refused(
        mut lines in prop::collection::vec(nearly_a_line(), 0..40), sorted: bool,
    ) {
        if sorted {
            lines.sort_by_key(|line| line.split(' ').next().and_then(|time| time.parse::<u64>().ok()));
        }
        mahimahi::fuzz(lines.concat().as_bytes());
    }

    #[test]
    fn any_true_story_is_read_whole(story in story()) {
        let mut log = LogWriter::new(Vec::new(), "Uplink", "t", "q", Time::ZERO).expect("memory");
        let (mut now, mut queue) = (0, std::collections::VecDeque::new());
        let (mut arrived, mut left, mut dropped) = (0, 0, 0);
        log.opportunity(Time::ZERO, Bytes::new(1504)).expect("memory");
        for (step, event) in story {
            now += step;
            let at = Time::from_millis(now);
            match event {
                0 | 1 => {
                    log.arrival(at, Bytes::new(100)).expect("memory");
                    queue.push_back(at);
                    arrived += 1;
                }
                2 => if let Some(entered) = queue.pop_front() {
                    log.departure(at, Bytes::new(100), entered).expect("memory");
                    left += 1;
                }
                _ => if queue.pop_back().is_some() {
                    log.dropped(at, 1, Bytes::new(100)).expect("memory");
                    dropped += 1;
                }
            }
        }
        let text = log.finish().expect("memory");
        mahimahi::fuzz(&text);
        let report = analyze("story", &text[..]).expect("a good log");
        prop_assert_eq!((report.arrivals, report.departures, report.drops_logged), (arrived, left, dropped));
        prop_assert_eq!(report.metrics.drops, dropped);
        prop_assert_eq!(report.metrics.backlog, queue.len() as u64);
    }
}
