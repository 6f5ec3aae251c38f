//! Users that send now and then: when their connections begin and end, and that each begins anew.

use crate::common::{run, sending, single};
use proptest::prelude::*;
use verus_sim::{Connection, Error, FlowSpec, Outcome, Scenario};

/// Flows of this scheme and traffic over 12 Mbit/s, that is 1 ms a packet, and 20 ms each way.
fn users(count: usize, scheme: &str, traffic: &str, duration_s: f64) -> Scenario {
    let user = FlowSpec {
        traffic: Some(traffic.to_owned()),
        ..FlowSpec::new(scheme)
    };
    Scenario {
        flows: vec![user; count],
        ..single("rate:12", "droptail:bytes=120000", scheme, duration_s)
    }
}

fn of(outcome: &Outcome, flow: u32) -> Vec<Connection> {
    let connections = outcome.connections.iter();
    connections
        .filter(|connection| connection.flow == flow)
        .copied()
        .collect()
}

fn millis(connection: &Connection) -> (f64, Option<f64>) {
    let ms = |at: verus_core::Time| at.as_millis_f64();
    (ms(connection.start), connection.end.map(ms))
}

#[test]
fn a_page_takes_from_its_request_to_its_last_byte_on_one_connection() {
    let outcome = run(&users(
        1,
        "newreno",
        "pages:bytes=3000,think_s=0,count=4",
        2.0,
    ));
    // A request of 20 ms, two packets of 1 ms each, and 20 ms; and at once the next.
    let metrics = &outcome.metrics;
    assert_eq!(metrics.completions, Some(4));
    assert_eq!(metrics.completion_max_s, Some(0.042));
    let times: Vec<_> = outcome.connections.iter().map(millis).collect();
    assert_eq!(times, [(0.0, Some(168.0))]);
    // Of 64 kbit/s on the way back, 400 bytes take 50 ms.
    let narrow = run(&Scenario {
        ack: "rate:0.064".to_owned(),
        ..users(
            1,
            "newreno",
            "pages:bytes=1500,request_bytes=400,count=1",
            2.0,
        )
    });
    assert_eq!(narrow.metrics.completion_max_s, Some(0.091));
}

#[test]
fn a_request_that_is_lost_is_sent_again() {
    let outcome = run(&Scenario {
        ack_loss: 0.3,
        ..users(
            1,
            "newreno",
            "pages:bytes=20000,sd_bytes=10000,think_s=0.1,count=30",
            120.0,
        )
    });
    assert_eq!(outcome.metrics.completions, Some(30));
    assert_eq!(outcome.totals.network_bytes, 0);
    let longest = outcome.metrics.completion_max_s.expect("pages");
    assert!((1.0..30.0).contains(&longest), "{longest}");
}

#[test]
fn turns_send_while_they_are_on_and_keep_their_connection() {
    let outcome = run(&Scenario {
        records: true,
        ..users(1, "cubic", "turns:on_s=1,off_s=2,count=1", 6.0)
    });
    let sent = &outcome.records.as_ref().expect("asked for").sent_ms;
    let between = |from: f64, to: f64| sent.iter().filter(|at| (from..to).contains(*at)).count();
    assert!(between(0.0, 1_000.0) > 500);
    // Data handed over by then may still leave.
    assert!(between(1_000.1, 3_000.0) <= 1);
    assert!(
        between(3_000.0, 6_000.0) > 1_500,
        "and then there is no other pause"
    );
    assert_eq!(outcome.connections.len(), 1);
}

/// An idle flow asks its controller for no ticks. The one that it missed must come when the flow has something to send
/// again, not at the time that it was set for.
#[test]
fn time_never_goes_back_after_a_pause() {
    let schemes = [
        "verus",
        "verus:mode=prototype",
        "forward",
        "sprout",
        "vivace",
        "scream",
        "c4",
        "bbr",
        "constant:rate_mbps=6",
    ];
    let pauses = ["turns:on_s=1,off_s=2", "pages:bytes=30000,think_s=1"];
    for scheme in schemes {
        for traffic in pauses {
            let outcome = run(&Scenario {
                records: true,
                ..users(1, scheme, traffic, 8.0)
            });
            let sent = outcome.records.expect("asked for").sent_ms;
            assert!(sent.is_sorted(), "{scheme}, {traffic}");
            let delay = outcome.metrics.qdelay_p99_ms;
            assert!(
                delay < Some(85.0),
                "{scheme}, {traffic}: {delay:?} in 80 ms of queue"
            );
        }
    }
}

/// Room in the window that is a round trip old is filled over a round trip (RFC 9002 §7.8).
#[test]
fn a_window_left_empty_by_a_pause_is_not_sent_at_once() {
    for scheme in ["newreno", "cubic", "vegas", "ledbatpp", "prague", "verus"] {
        let outcome = run(&Scenario {
            records: true,
            trace: "rate:50".to_owned(),
            delay_ms: 25.0,
            ..users(1, scheme, "turns:on_s=2,off_s=5,count=3", 20.0)
        });
        let sent = outcome.records.expect("asked for").sent_ms;
        let restarts = (1..sent.len()).filter(|&at| sent[at] - sent[at - 1] > 2_000.0);
        let in_2_ms: Vec<usize> = restarts
            .map(|at| {
                sent[at..]
                    .iter()
                    .take_while(|&&other| other - sent[at] <= 2.0)
                    .count()
            })
            .collect();
        assert_eq!(in_2_ms.len(), 2, "{scheme}");
        // Ten packets, and what 50 Mbit/s carry in 2 ms.
        assert!(
            in_2_ms.iter().all(|&packets| packets <= 20),
            "{scheme}: {in_2_ms:?}"
        );
    }
}

/// Each epoch of Verus asks for more delay while there is no queue, and a source of 1 Mbit/s makes none.
#[test]
fn verus_keeps_a_window_that_its_source_does_not_fill() {
    for scheme in ["verus", "verus:ratio=2", "verus:mode=paper,ratio=4"] {
        let outcome = run(&Scenario {
            trace: "rate:50".to_owned(),
            delay_ms: 25.0,
            ..users(1, scheme, "cbr:rate_mbps=1", 60.0)
        });
        let peak = outcome.totals.peak_window_bytes;
        assert!(peak <= 60_000, "{scheme}: {peak} bytes");
    }
}

/// A paced burst that ends before the window is full raises the window no further (RFC 9002 §7.8, RFC 7661 §4.2).
#[test]
fn a_window_that_the_source_does_not_fill_grows_no_further_than_twice_what_it_sends() {
    const BURST: u64 = 100_000;
    for scheme in ["newreno", "cubic", "vegas", "ledbatpp", "prague"] {
        let traffic = format!("cbr:rate_mbps=20,bytes={BURST}");
        let outcome = run(&Scenario {
            trace: "rate:100".to_owned(),
            delay_ms: 0.015,
            ..users(1, scheme, &traffic, 10.0)
        });
        let peak = outcome.totals.peak_window_bytes;
        assert!(peak <= 2 * BURST, "{scheme}: {peak} bytes");
    }
}

#[test]
fn a_constant_bit_rate_offers_its_pieces_evenly() {
    let outcome = run(&users(1, "newreno", "cbr:rate_mbps=1,bytes=1250", 10.0));
    // 100 pieces a second, the first at once; each takes a packet's millisecond and the way.
    assert!(
        outcome
            .metrics
            .completions
            .is_some_and(|pieces| (996..=1000).contains(&pieces))
    );
    assert!(
        outcome
            .metrics
            .completion_max_s
            .is_some_and(|took| took < 0.0215)
    );
    assert_eq!(outcome.metrics.late, Some(0));
}

#[test]
fn audio_does_not_wait_for_the_video_that_overloads_the_link() {
    let call = |scheme: &str, mbps: f64| {
        let outcome = run(&Scenario {
            trace: format!("rate:{mbps}"),
            ..users(
                1,
                scheme,
                "media:audio_count=500,count=300,unmeasured_s=1",
                30.0,
            )
        });
        let metrics = outcome.metrics;
        // Of each second 50 frames of audio and 30 of video, for 9 s.
        assert_eq!(metrics.completions, Some(450 + 270));
        assert!(metrics.completion_mean_s.is_some_and(|took| took < 0.15));
        let end = outcome.connections[0].end;
        let end = end.expect("all is there or given up").as_secs_f64();
        assert!((9.97..10.6).contains(&end), "{end}");
        metrics.late
    };
    // 1.2 and 2 Mbit/s of video, and audio in separate packets: a key frame of the better one takes
    // a second.
    assert_eq!(call("verus:ratio=2", 2.5), Some(300));
    assert_eq!(call("cubic", 20.0), Some(0));
}

#[test]
fn a_small_file_takes_its_packets_and_the_propagation() {
    let outcome = run(&Scenario {
        records: true,
        ..users(1, "newreno", "files:bytes=3000,gap_s=0.5,count=2", 2.0)
    });
    // Two packets of 1 ms each and 20 ms; then 500 ms from the arrival of the last byte.
    let times: Vec<_> = outcome.connections.iter().map(millis).collect();
    assert_eq!(times, [(0.0, Some(22.0)), (522.0, Some(544.0))]);
    let records = outcome.records.as_ref().expect("asked for");
    assert_eq!(records.connection, [0, 0, 1, 1]);
    assert_eq!(records.number, [0, 1, 0, 1]);
    assert_eq!(records.acked_ms, [41.0, 42.0, 563.0, 564.0]);
    let metrics = &outcome.metrics;
    assert_eq!(metrics.completions, Some(2));
    assert_eq!(metrics.completion_mean_s, Some(0.022));
    let flow = &metrics.per_flow[0];
    assert_eq!(flow.completion_p95_s, Some(0.022));
    assert!((flow.on_s.expect("told") - 0.044).abs() < 1e-12);
    assert_eq!(
        flow.throughput_on_mbps.map(f64::round),
        Some((6000.0 * 8.0 / 0.044 / 1e6_f64).round())
    );
    assert_eq!(outcome.flows[0].counters.sent, 4);
    assert_eq!(outcome.totals.network_bytes, 0);
}

#[test]
fn frames_come_when_they_are_due_and_are_late_where_the_path_is_too_slow() {
    let video = |deadline_ms: u32, mbps: u32| {
        let traffic =
            format!("video:bytes=3000,key_bytes=6000,group=50,fps=50,deadline_ms={deadline_ms}");
        run(&Scenario {
            trace: format!("rate:{mbps}"),
            ..users(1, "newreno", &traffic, 10.0)
        })
    };
    // 20 ms and 1 ms a packet: two of them, four in the first of each group of fifty.
    let easy = video(23, 12).metrics;
    let in_time = 499; // the 500th, due at 9.98 s, is 2 ms short of its arrival at 10.002
    assert_eq!((easy.completions, easy.late), (Some(in_time), Some(10)));
    let mean = (489.0 * 0.022 + 10.0 * 0.024) / 499.0;
    assert!((easy.completion_mean_s.expect("they came") - mean).abs() < 1e-9);
    assert_eq!(easy.completion_p99_s, Some(0.024));
    // 1.2 Mbit/s and a little more for the key frames are a tenth of the link.
    assert!((easy.throughput_mbps / (1.2 + 0.024) - 1.0).abs() < 0.01);
    assert_eq!(video(24, 12).metrics.late, Some(0));
    // With more video than the path carries, nearly all frames are late, arrived or not.
    let slow = video(100, 1).metrics;
    let late = slow.late.expect("frames");
    assert!(
        late > 450 && slow.completions.expect("frames") < 450,
        "{late}"
    );
    let bulk = run(&single("rate:12", "infinite", "newreno", 1.0));
    assert_eq!(bulk.metrics.late, None);
}

#[test]
fn a_live_source_is_over_with_its_last_frame() {
    let traffic = "video:bytes=3000,key_bytes=3000,fps=10,count=3";
    let outcome = run(&users(1, "newreno", traffic, 2.0));
    assert_eq!(outcome.connections.len(), 1);
    assert_eq!(millis(&outcome.connections[0]), (0.0, Some(222.0)));
    assert_eq!(outcome.connections[0].file, None);
    assert_eq!(outcome.metrics.completions, Some(3));
    assert_eq!(outcome.totals.network_bytes, 0);
}

#[test]
fn a_flow_with_so_much_to_send_says_when_it_was_there() {
    let outcome = run(&Scenario {
        flows: vec![sending("newreno", 1500), FlowSpec::new("newreno")],
        ..single("rate:12", "infinite", "newreno", 1.0)
    });
    assert_eq!(outcome.connections.len(), 1, "a bulk flow has none to list");
    assert_eq!(millis(&outcome.connections[0]), (0.0, Some(21.0)));
    assert_eq!(outcome.metrics.per_flow[0].on_s, Some(0.021));
    assert_eq!(outcome.metrics.per_flow[1].completions, None);
    assert_eq!(outcome.metrics.per_flow[1].on_s, Some(1.0));
    // Cut off by the end of the run.
    let cut = run(&Scenario {
        flows: vec![sending("newreno", 1 << 30)],
        ..single("rate:12", "infinite", "newreno", 1.0)
    });
    assert_eq!(cut.connections[0].end, None);
    let delivered = cut.connections[0].delivered.as_f64();
    let goodput = cut.metrics.goodput_mbps.expect("the ends are seen");
    assert!((delivered * 8.0 / 1e6 - goodput).abs() < 1e-6);
    assert_eq!(cut.metrics.completions, Some(0));
    assert_eq!(cut.metrics.completion_mean_s, None);
}

#[test]
fn on_and_off_are_the_same_instants_for_every_scheme() {
    let traffic = "on-off:off_s=3,mean_mb=1,variance=0.5,max_mb=4";
    let starts = |scheme: &str| {
        let outcome = run(&users(4, scheme, traffic, 60.0));
        let times: Vec<_> = outcome.connections.iter().map(millis).collect();
        (times, outcome.metrics.per_flow[0].on_s)
    };
    let cubic = starts("cubic");
    assert!(cubic.0.len() > 20);
    for scheme in ["verus:ratio=2", "vegas", "sprout"] {
        assert_eq!(starts(scheme), cubic, "{scheme}");
    }
    // One user's draws do not depend on the other users.
    let alone = run(&users(1, "cubic", traffic, 60.0));
    let among = run(&users(4, "cubic", traffic, 60.0));
    let times = |outcome: &Outcome| of(outcome, 0).iter().map(millis).collect::<Vec<_>>();
    assert_eq!(times(&alone), times(&among));
}

#[test]
fn every_connection_begins_anew() {
    let traffic = "on-off:off_s=1,mean_mb=2,variance=0.1,max_mb=4,begin=on";
    for scheme in ["verus:ratio=2", "cubic", "newreno", "vegas"] {
        let outcome = run(&Scenario {
            records: true,
            ..users(1, scheme, traffic, 30.0)
        });
        let records = outcome.records.as_ref().expect("asked for");
        let first: Vec<usize> = (0..records.len())
            .filter(|&at| records.number[at] == 0)
            .collect();
        assert!(first.len() > 4, "{scheme}");
        assert_eq!(first.len(), outcome.connections.len(), "{scheme}");
        for (connection, &at) in outcome.connections.iter().zip(&first) {
            assert_eq!(records.connection[at], connection.number);
            assert_eq!(records.sent_ms[at], millis(connection).0);
            assert_eq!(records.window_bytes[at], records.window_bytes[0]);
        }
        let last = (0..records.len()).filter(|&at| records.connection[at] == 0);
        let grown = last.map(|at| records.window_bytes[at]).fold(0.0, f64::max);
        assert!(grown > 2.0 * records.window_bytes[0], "{scheme}");
    }
}

#[test]
fn reading_begins_when_the_file_is_there() {
    let traffic = "c.r1002:reading_s=2,begin=on";
    let connections = |scheme: &str, trace: &str| {
        of(
            &run(&Scenario {
                trace: trace.to_owned(),
                ..users(1, scheme, traffic, 60.0)
            }),
            0,
        )
    };
    let fast = connections("cubic", "rate:12");
    let reading = |list: &[Connection]| -> Vec<verus_core::Duration> {
        list.windows(2)
            .map(|pair| {
                pair[1]
                    .start
                    .since(pair[0].end.expect("the next came after it"))
            })
            .collect()
    };
    assert!(fast.len() > 8);
    for (scheme, trace) in [("cubic", "rate:6"), ("verus:ratio=2", "rate:12")] {
        let other = connections(scheme, trace);
        let common = fast.len().min(other.len());
        assert!(common > 4);
        assert_eq!(
            reading(&fast)[..common - 1],
            reading(&other)[..common - 1],
            "{scheme}"
        );
        let files = |list: &[Connection]| list.iter().map(|one| one.file).collect::<Vec<_>>();
        assert_eq!(files(&fast)[..common], files(&other)[..common]);
        assert_ne!(fast[0].end, other[0].end, "{scheme}");
    }
    let complete = fast.iter().filter(|one| one.end.is_some());
    assert!(
        complete
            .clone()
            .all(|one| one.file == Some(one.delivered) && one.delivered.get() > 100_000)
    );
}

#[test]
fn who_is_off_is_not_counted_as_served_unfairly() {
    // Two users that are never on together: all of the link for one, then for the other.
    let outcome = run(&Scenario {
        flows: [0.0, 30.0]
            .map(|start_s| FlowSpec {
                start_s,
                stop_s: Some(start_s + 30.0),
                traffic: Some("files:bytes=400000,gap_s=0.2".to_owned()),
                ..FlowSpec::new("newreno")
            })
            .to_vec(),
        ..single("rate:12", "infinite", "newreno", 60.0)
    });
    assert!(outcome.metrics.jain.expect("much was sent") < 0.51);
    assert!(outcome.metrics.jain_active.expect("much was sent") > 0.99);
    for flow in &outcome.metrics.per_flow {
        let on = flow.on_s.expect("told");
        assert!(on > 10.0 && on < 30.0, "{on}");
        assert!(flow.throughput_on_mbps > Some(flow.throughput_mbps));
    }
}

#[test]
fn series_are_blank_where_a_user_is_off() {
    let outcome = run(&users(
        1,
        "cubic",
        "files:bytes=3000,gap_s=0.5,count=3",
        2.0,
    ));
    let windows = &outcome.flows[0].samples[0];
    // On for 22 ms each time, from 0, 522 and 1044 ms; the last one stays to be seen.
    assert!(windows[..10].iter().all(|window| window.is_nan()));
    assert!(windows[11..].iter().all(|window| window.is_finite()));
}

#[test]
fn size_and_traffic_are_one_too_many() {
    let mut scenario = users(1, "cubic", "c.r1002", 1.0);
    scenario.flows[0].bytes = Some(1);
    let error = scenario.plan().unwrap_err();
    assert!(matches!(error, Error::Field(_)));
    let words = "flows[0].bytes must be left out where traffic says";
    assert!(error.to_string().starts_with(words), "{error}");
    let error = users(1, "cubic", "on-off:off=1", 1.0).plan().unwrap_err();
    assert!(error.to_string().contains("has no key `off`"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_is_under_way_when_a_connection_ends_is_accounted_for(
        scheme in prop_oneof![Just("verus:ratio=4"), Just("cubic"), Just("sprout"), Just("vegas")],
        traffic in prop_oneof![
            Just("on-off:off_s=0.02,mean_mb=0.05,variance=0.01,max_mb=1"),
            Just("c.r1002:reading_s=0.005,mean_mb=0.02,sd_mb=0.02,max_mb=1"),
            Just("files:bytes=4000,gap_s=0"),
        ],
        (ack, ack_queue) in prop_oneof![Just(("ideal", "infinite")), Just(("rate:1", "droptail:packets=5"))],
        ack_every in 1u32..4,
        mbps in 1u32..20,
        loss in prop_oneof![Just(0.0), Just(0.1)],
        seed in any::<u64>(),
    ) {
        let scenario = Scenario {
            trace: format!("rate:{mbps}"),
            ack: ack.to_owned(),
            ack_queue: ack_queue.to_owned(),
            ack_every,
            loss,
            seed,
            records: true,
            ..users(2, scheme, traffic, 3.0)
        };
        let outcome = run(&scenario);
        let metrics = &outcome.metrics;
        prop_assert!(outcome.connections.len() > 2);
        prop_assert_eq!(metrics.arrivals, metrics.departures + metrics.drops + metrics.backlog);
        let delivered: u64 = outcome.connections.iter().map(|one| one.delivered.get()).sum();
        let goodput = metrics.goodput_mbps.expect("the ends are seen") * metrics.interval_s * 1e6 / 8.0;
        prop_assert!((delivered as f64 - goodput).abs() < 1.0);
        for pair in of(&outcome, 0).windows(2) {
            prop_assert!(pair[0].end.expect("one at a time") <= pair[1].start);
        }
        for one in &outcome.connections {
            prop_assert!(one.file.is_none_or(|file| one.delivered <= file));
            prop_assert_eq!(one.file.is_some() && one.file == Some(one.delivered), one.file.is_some() && one.end.is_some());
        }
        let again = run(&scenario);
        prop_assert_eq!(&again.connections, &outcome.connections);
        prop_assert_eq!(&again.metrics, metrics);
    }
}

#[test]
fn silences_of_users_have_no_part_in_the_signal_delay() {
    // A packet each 2 ms, which waits 1 ms at most: so one that enters in an empty millisecond waits 2 ms at most. In the
    // seconds in which no user sends, no packet waits.
    for traffic in ["full", "on-off:off_s=3,begin=on"] {
        let metrics = run(&users(1, "constant:rate_mbps=6", traffic, 120.0)).metrics;
        let signal = metrics.signal_delay_p95_ms.expect("packets came");
        assert!((1.0..=2.0).contains(&signal), "{traffic}: {signal} ms");
    }
}
