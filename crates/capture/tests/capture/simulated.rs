//! Captures of simulated runs, read again: packets, losses and round trips are those of the simulator.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::json;
use verus_capture::analysis::{FlowReport, Report, analyze};
use verus_capture::dissect::dissect;
use verus_capture::flow::Limit;
use verus_capture::iperf3;
use verus_capture::simulated::Capture;
use verus_sim::{FlowSpec, Outcome, Scenario};

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn scenario(trace: &str, queue: &str, schemes: &[&str], duration_s: f64) -> Scenario {
    Scenario {
        trace: trace.to_owned(),
        queue: queue.to_owned(),
        duration_s,
        flows: schemes.iter().map(|scheme| FlowSpec::new(scheme)).collect(),
        ..Default::default()
    }
}

fn captured(scenario: &Scenario) -> (Outcome, Vec<u8>) {
    let file = Memory::default();
    let tap = Box::new(Capture::new(file.clone()).expect("memory takes it"));
    let plan = scenario.plan().expect("valid");
    let (outcome, _, written) = plan
        .run_logged(Vec::new(), Some(tap), &mut |_| true)
        .expect("it runs");
    written.expect("memory takes it");
    let bytes = file.0.lock().expect("one thread").clone();
    (outcome, bytes)
}

fn report(bytes: &[u8]) -> Report {
    analyze("bytes", bytes).unwrap_or_else(|error| panic!("{error}"))
}

fn flows<'a>(report: &'a Report, interface: &str) -> Vec<&'a FlowReport> {
    let mut flows: Vec<_> = (report.flows.iter())
        .filter(|flow| flow.interface == interface)
        .collect();
    flows.sort_by_key(|flow| flow.source);
    flows
}

#[test]
fn what_is_read_of_a_capture_is_what_the_simulator_counts() {
    for (queue, schemes) in [
        ("droptail:bytes=60000", &["cubic", "newreno"][..]),
        ("codel", &["cubic", "verus"]),
        ("infinite", &["bbr"]),
    ] {
        let scenario = scenario("rate:8", queue, schemes, 10.0);
        let (outcome, bytes) = captured(&scenario);
        let report = report(&bytes);
        assert_eq!((report.other_packets, report.is_cut), (0, false), "{queue}");
        let (before, behind) = (
            flows(&report, "bottleneck in"),
            flows(&report, "bottleneck out"),
        );
        assert_eq!(before.len(), schemes.len());
        for (index, (before, behind)) in before.iter().zip(behind).enumerate() {
            let (counted, metrics) = (
                &outcome.flows[index].counters,
                &outcome.metrics.per_flow[index],
            );
            let what = format!("{queue} {}", schemes[index]);
            assert_eq!(before.packets, counted.sent, "{what}");
            assert_eq!(before.bytes, counted.sent * 1500, "{what}");
            assert_eq!(before.retransmitted, Some(counted.retransmitted), "{what}");
            assert_eq!(
                (before.late, before.reordered),
                (Some(0), Some(0)),
                "{what}"
            );
            // Behind the queue the copies of lost packets are the first that pass.
            let repaired = behind.late.expect("TCP") + behind.retransmitted.expect("TCP");
            assert!(
                repaired.abs_diff(counted.retransmitted) <= 20,
                "{what}: {repaired}"
            );
            let mbps = behind.bytes as f64 * 8e-6 / scenario.duration_s;
            assert!(
                (mbps / metrics.throughput_mbps - 1.0).abs() < 1e-9,
                "{what}: {mbps}"
            );
            let p95 = (before.rtt_p95_ms, metrics.rtt_p95_ms);
            let (Some(read), Some(counted)) = p95 else {
                panic!("{what}: {p95:?}")
            };
            assert!(
                (read / counted - 1.0).abs() < 0.02,
                "{what}: {read} ms, not {counted}"
            );
        }
    }
}

#[test]
fn a_run_is_the_same_with_a_capture_and_the_capture_the_same_again() {
    let scenario = Scenario {
        jitter: "wifi:mean_ms=7".to_owned(),
        loss: 0.01,
        ack: "same".to_owned(),
        records: true,
        ..scenario(
            "city-driving-3g-up",
            "red:preset=cs244",
            &["verus", "cubic:ecn=yes"],
            5.0,
        )
    };
    let (outcome, first) = captured(&scenario);
    let without = verus_sim::run(&scenario, &mut |_| true).expect("it runs");
    assert_eq!(format!("{outcome:?}"), format!("{without:?}"));
    assert!(first == captured(&scenario).1);
}

#[test]
fn drops_and_marks_have_comments() {
    let scenario = Scenario {
        loss: 0.01,
        ..scenario("rate:8", "codel:ecn=yes", &["cubic:ecn=yes", "cubic"], 10.0)
    };
    let (outcome, bytes) = captured(&scenario);
    let count = |comment: &str| {
        let windows = bytes.windows(comment.len());
        windows
            .filter(|window| *window == comment.as_bytes())
            .count() as u64
    };
    let lost: u64 = outcome.flows.iter().map(|flow| flow.counters.lost).sum();
    let dropped = count("dropped: ");
    assert!(count("dropped: lost at random") > 10);
    assert!(count("dropped: by the queue, after ") > 0);
    // Some drops at the end are not known to the sender.
    assert!(
        (lost..lost + 20).contains(&dropped),
        "{lost} lost, {dropped} dropped"
    );
    let marked: u64 = outcome.flows.iter().map(|flow| flow.counters.marked).sum();
    assert!(
        marked > 0 && count("ECN: ").abs_diff(marked) < 20,
        "{marked}"
    );
}

#[test]
fn what_limits_a_flow_is_named() {
    let limit = |scheme: &str, trace: &str| {
        let scenario = scenario(trace, "droptail:bytes=60000", &[scheme], 10.0);
        let report = report(&captured(&scenario).1);
        let flow = flows(&report, "bottleneck in")[0];
        (flow.limited_by, flow.path_share.expect("TCP"))
    };
    let (cubic, share) = limit("cubic", "rate:8");
    assert!(
        cubic == Some(Limit::Path) && share > 0.9,
        "{cubic:?} {share}"
    );
    let (constant, share) = limit("constant:rate_mbps=4", "rate:8");
    assert!(
        constant == Some(Limit::Sender) && share < 0.1,
        "{constant:?} {share}"
    );
}

#[test]
fn bytes_that_are_damaged_are_refused_with_their_place() {
    let (_, bytes) = captured(&scenario("rate:8", "infinite", &["cubic"], 0.2));
    let error = |bytes: &[u8]| analyze("f", bytes).expect_err("damaged").to_string();
    assert_eq!(
        error(b"PK"),
        "`f`, byte 0: is no capture: neither pcapng nor pcap"
    );
    let section = u32::from_le_bytes(*bytes[4..].first_chunk().expect("longer")) as usize;
    for length in [0u32, 3, u32::MAX] {
        let mut damaged = bytes.clone();
        damaged[section + 4..section + 8].copy_from_slice(&length.to_le_bytes());
        let read = analyze("f", &damaged[..]);
        match read {
            Ok(report) => assert!(report.is_cut && report.packets == 0, "{length}"),
            Err(error) => {
                let place = format!("`f`, byte {section}: ");
                assert!(error.to_string().starts_with(&place), "{error}");
            }
        }
    }
    // Cut anywhere, it is read up to there.
    let whole = report(&bytes);
    for end in [bytes.len() - 1, bytes.len() / 2 + 1] {
        let cut = report(&bytes[..end]);
        assert!(cut.is_cut && 0 < cut.packets && cut.packets < whole.packets);
    }
    assert!(!whole.is_cut);
}

#[test]
fn a_pcap_says_the_same_as_a_pcapng() {
    let (_, bytes) = captured(&scenario("rate:8", "droptail:bytes=60000", &["cubic"], 5.0));
    for (magic, big, link, before) in [
        (0xa1b2_3c4d_u32, false, 101u32, &[][..]),
        (
            0xa1b2_3c4d,
            true,
            1,
            &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0],
        ),
        (
            0xa1b2_3c4d,
            false,
            113,
            &[0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0],
        ),
        (0xa1b2_3c4d, true, 0, &[2, 0, 0, 0]),
    ] {
        let word = |word: u32| {
            if big {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            }
        };
        let half = |half: u16| {
            if big {
                half.to_be_bytes()
            } else {
                half.to_le_bytes()
            }
        };
        let mut pcap = word(magic).to_vec();
        pcap.extend([half(2), half(4)].concat());
        pcap.extend([0, 0, 65_535, link].map(word).concat());
        verus_capture::read::for_each("f", &bytes[..], |interfaces, packet| {
            if interfaces[packet.interface].name.as_deref() == Some("bottleneck in") {
                let (seconds, nanos) = (packet.at / 1_000_000_000, packet.at % 1_000_000_000);
                let (captured, length) = (
                    packet.data.len() + before.len(),
                    packet.length + before.len() as u32,
                );
                pcap.extend(
                    [seconds as u32, nanos as u32, captured as u32, length]
                        .map(word)
                        .concat(),
                );
                pcap.extend([before, packet.data].concat());
            }
        })
        .expect("it was written whole");
        let (ng, old) = (report(&bytes), report(&pcap));
        assert_eq!(old.other_packets, 0, "link type {link}");
        let numbers = |flow: &FlowReport| {
            let rtt = (flow.rtt_min_ms, flow.rtt_p95_ms, flow.rtt_samples);
            (
                flow.source,
                flow.packets,
                flow.bytes,
                flow.retransmitted,
                rtt,
            )
        };
        assert_eq!(
            numbers(flows(&ng, "bottleneck in")[0]),
            numbers(&old.flows[0])
        );
    }
}

#[test]
fn intervals_of_iperf3_make_the_same_report_and_a_trace() {
    let interval = |second: u32, bytes: u32, rtt: u32| {
        format!(
            r#"{{"streams":[{{"rtt":{rtt}}}],"sum":{{"start":{second},"end":{},"seconds":1,"bytes":{bytes},"bits_per_second":0,"retransmits":2,"omitted":{},"sender":true}}}}"#,
            second + 1,
            second == 0
        )
    };
    let intervals = [
        interval(0, 9, 1),
        interval(1, 1_504_000, 40_000),
        interval(2, 3_008_000, 60_000),
    ];
    let text = format!(
        r#"{{"start":{{}},"intervals":[{}],"end":{{}}}}"#,
        intervals.join(",")
    );
    let flow = &iperf3::analyze("f", text.as_bytes()).expect("it is one")[0];
    assert_eq!(flow.goodput_mbps, Some(4_512_000.0 * 8.0 / 2.0 / 1e6));
    assert_eq!((flow.retransmitted, flow.rtt_min_ms), (Some(4), Some(40.0)));
    assert!(
        flow.rtt_p95_ms
            .is_some_and(|rtt| (60.0 - 60.0 / 1024.0..=60.0).contains(&rtt))
    );
    let trace = flow.trace("t").expect("enough");
    assert_eq!(trace.count_before(1000).abs_diff(1000), 0);
    assert_eq!(trace.len(), 3000);
    let wrong = iperf3::analyze("f", &br#"{"error":"unable to connect"}"#[..]);
    let wrong = wrong.map(drop).expect_err("it failed").to_string();
    assert_eq!(wrong, "`f`: iperf3 failed: unable to connect");
}

#[test]
fn packets_that_are_not_read_are_counted_by_their_reason() {
    // Ethernet, IPv4 of a protocol and length, and nothing behind its header.
    let ethernet = |ether_type: u16, protocol: u8| {
        let mut frame = [0; 14 + 20].to_vec();
        frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
        frame[14..18].copy_from_slice(&[0x45, 0, 0, 20]);
        frame[14 + 9] = protocol;
        frame
    };
    let reason = |link: i32, frame: &[u8]| {
        let read = dissect(link, frame.len() as u32, frame);
        read.map(drop).expect_err("it is not read").to_string()
    };
    let gre = ethernet(0x0800, 47);
    for (link, frame, expected) in [
        (
            127,
            &gre,
            "of link type 127 (IEEE 802.11 with radiotap headers)",
        ),
        (9, &gre, "of link type 9 (PPP)"),
        (9999, &gre, "of link type 9999"),
        (1, &gre, "of IP protocol 47 (GRE)"),
        (1, &ethernet(0x8864, 6), "of Ethernet type 0x8864 (PPPoE)"),
        (
            1,
            &ethernet(0x0800, 6),
            "not captured with all headers, or damaged",
        ),
    ] {
        assert_eq!(reason(link, frame), expected);
    }
}

/// The output of iperf3 3.12 with `--bidir`, of three intervals: 10 Mbit/s there and 5 Mbit/s back.
fn bidirectional(protocol: &str) -> serde_json::Value {
    let sum = |second: i32, sender: bool| {
        let bytes = if sender { 1_250_000 } else { 625_000 };
        let counts = match protocol {
            "UDP" if sender => json!({"packets": 1000}),
            "UDP" => json!({"packets": 500, "lost_packets": 40, "lost_percent": 8}),
            _ => json!({}),
        };
        let rtt = if sender { 40_000 } else { 90_000 };
        let mut sum = json!({
            "socket": if sender { 5 } else { 7 }, "sender": sender, "omitted": false, "rtt": rtt,
            "start": second, "end": second + 1, "bytes": bytes,
        });
        let fields = sum.as_object_mut().expect("it is one");
        fields.extend(counts.as_object().expect("it is one").clone());
        sum
    };
    let intervals: Vec<_> = (0..3)
        .map(|second| {
            let (forward, reverse) = (sum(second, true), sum(second, false));
            json!({"streams": [forward, reverse], "sum": forward, "sum_bidir_reverse": reverse})
        })
        .collect();
    let connected = |socket: i32, port: u16| {
        json!({"socket": socket, "local_host": "10.0.0.1", "local_port": port,
            "remote_host": "10.0.0.2", "remote_port": 5201})
    };
    json!({
        "start": {"connected": [connected(5, 40_000), connected(7, 40_001)],
            "test_start": {"protocol": protocol}},
        "intervals": intervals,
        "end": {"sum": {"packets": 3000, "lost_packets": 300},
            "sum_bidir_reverse": {"packets": 1500, "lost_packets": 120}},
    })
}

#[test]
fn each_direction_of_a_bidirectional_test_is_a_flow_with_its_own_round_trips() {
    let text = bidirectional("TCP").to_string();
    let flows = iperf3::analyze("f", text.as_bytes()).expect("it is one");
    let numbers = flows.iter().map(|flow| {
        let ends = (flow.source.to_string(), flow.destination.to_string());
        (ends, flow.goodput_mbps, flow.rtt_samples, flow.rtt_min_ms)
    });
    let ends = |source: &str, destination: &str| (source.to_owned(), destination.to_owned());
    let forward = ends("10.0.0.1:40000", "10.0.0.2:5201");
    let reverse = ends("10.0.0.2:5201", "10.0.0.1:40001");
    let expected = [
        (forward, Some(10.0), 3, Some(40.0)),
        (reverse, Some(5.0), 3, Some(90.0)),
    ];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
}

#[test]
fn a_line_for_each_event_makes_the_report_of_one_object() {
    for protocol in ["TCP", "UDP"] {
        let test = bidirectional(protocol);
        let intervals = test["intervals"].as_array().expect("it is one");
        let intervals = intervals.iter().map(|interval| ("interval", interval));
        let unknown = ("server_output_text", &test["start"]);
        let events = std::iter::once(("start", &test["start"]))
            .chain(intervals)
            .chain([unknown, ("end", &test["end"])]);
        let lines =
            events.map(|(event, data)| format!("{}\n", json!({"event": event, "data": data})));
        let lines: String = lines.collect();
        let report = |text: &str| {
            format!(
                "{:?}",
                iperf3::analyze("f", text.as_bytes()).expect("it is one")
            )
        };
        assert_eq!(report(&lines), report(&test.to_string()));

        let cut = iperf3::analyze("f", &lines.as_bytes()[..lines.len() - 9]);
        let error = cut
            .map(drop)
            .expect_err("its last line is cut off")
            .to_string();
        assert!(
            error.contains("EOF while parsing a string at line 6 column"),
            "{error}"
        );
    }
    let failed = &br#"{"event":"error","data":"unable to connect"}"#[..];
    let error = iperf3::analyze("f", failed)
        .map(drop)
        .expect_err("it failed")
        .to_string();
    assert_eq!(error, "`f`: iperf3 failed: unable to connect");
    let test = bidirectional("TCP").to_string();
    let error = iperf3::analyze("f", format!("{test}\n{test}\n").as_bytes())
        .map(drop)
        .expect_err("it holds two")
        .to_string();
    assert!(error.contains("it holds several tests"), "{error}");
}

#[test]
fn losses_of_udp_are_the_receivers_and_its_goodput_lacks_them() {
    let mut test = bidirectional("UDP");
    let flows = |test: &serde_json::Value| {
        let flows = iperf3::analyze("f", test.to_string().as_bytes()).expect("it is one");
        let numbers = flows.into_iter();
        numbers
            .map(|flow| (flow.goodput_mbps, flow.loss_rate, flow.delivery_from))
            .collect::<Vec<_>>()
    };
    let received = (Some(5.0), Some(0.08), "intervals");
    let by_sender = "intervals of the sender";
    assert_eq!(flows(&test), [(Some(9.0), Some(0.1), by_sender), received]);
    // Without its end, a sender's file does not say what arrived.
    test["end"] = json!({});
    assert_eq!(flows(&test), [(None, None, by_sender), received]);
}

proptest! {
    #[test]
    fn hostile_bytes_have_a_report_or_an_error(
        mut bytes: Vec<u8>,
        first in 0usize..4,
        at in any::<prop::sample::Index>(),
        value: u8,
    ) {
        if first < 2 {
            static CAPTURE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
                captured(&scenario("rate:8", "droptail:bytes=20000", &["cubic"], 0.3)).1
            });
            bytes = CAPTURE.clone();
            let at = at.index(bytes.len());
            bytes[at] = value;
        } else if first == 2 {
            bytes.splice(0..0, 0xa1b2_c3d4_u32.to_le_bytes());
        }
        let _ = analyze("bytes", &bytes[..]);
        let _ = iperf3::analyze("bytes", &bytes[..]).map(|flows| flows[0].trace("trace"));
    }
}
