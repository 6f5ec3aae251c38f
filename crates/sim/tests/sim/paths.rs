//! Elements of a path besides a queue and a link: jitter, reordering, recorded delays, losses, ways
//! back, and changes in the course of a run.

use crate::common::{run, sending, single};
use verus_sim::{Change, FlowSpec, Outcome, Records, Scenario};

/// One flow over 12 Mbit/s, that is 1 ms a packet, and 20 ms each way, each packet recorded.
fn recorded(scheme: &str, duration_s: f64) -> Scenario {
    Scenario {
        records: true,
        ..single("rate:12", "infinite", scheme, duration_s)
    }
}

fn records(outcome: &Outcome) -> &Records {
    outcome.records.as_ref().expect("asked for")
}

/// How long each packet that arrived took from the link to the receiver, ms.
fn under_way(outcome: &Outcome) -> Vec<f64> {
    let records = records(outcome);
    let times = records.departed_ms.iter().zip(&records.received_ms);
    times
        .map(|(departed, received)| received - departed)
        .filter(|took| took.is_finite())
        .collect()
}

/// When each packet arrived that did, in the order of sending.
fn arrivals(outcome: &Outcome) -> Vec<f64> {
    let times = records(outcome).received_ms.iter().copied();
    times.filter(|time| time.is_finite()).collect()
}

fn rate(at_s: f64, rate_mbps: f64) -> Change {
    Change {
        at_s,
        rate_mbps: Some(rate_mbps),
        ..Change::default()
    }
}

#[test]
fn jitter_comes_behind_the_link_and_keeps_the_order() {
    // Slow enough that few packets wait for others.
    let scenario = Scenario {
        jitter: "gauss:mean_ms=6".to_owned(),
        ..recorded("constant:rate_mbps=0.6", 60.0)
    };
    let outcome = run(&scenario);
    let took = under_way(&outcome);
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    assert!(took.len() > 2_900 && took.iter().all(|took| *took >= 20.0));
    assert!((mean - 26.0).abs() < 0.15, "{mean}");
    assert!(arrivals(&outcome).is_sorted());
    // Jitter does not lengthen the wait in the queue.
    assert_eq!(outcome.metrics.qdelay_max_ms, Some(1.0));
    let other = run(&Scenario {
        seed: 2,
        ..scenario.clone()
    });
    assert_ne!(took, under_way(&other));
    assert_eq!(took, under_way(&run(&scenario)));
}

#[test]
fn wifi_holds_up_all_flows_where_one_packet_waits() {
    let mut scenario = recorded("constant:rate_mbps=2", 20.0);
    scenario.flows.push(FlowSpec::new("constant:rate_mbps=2"));
    scenario.jitter = "wifi:mean_ms=7".to_owned();
    let outcome = run(&scenario);
    let records = records(&outcome);
    // In the order of leaving the link, over all flows.
    let mut packets: Vec<(f64, f64)> = (records.departed_ms.iter().copied())
        .zip(records.received_ms.iter().copied())
        .filter(|(_, received)| received.is_finite())
        .collect();
    packets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(packets.is_sorted_by_key(|(_, received)| *received));
    // A share of 6/84 meets a bad spell of 86 ms, and those behind wait with it: more than the mean of 7 ms.
    let took = under_way(&outcome);
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    assert!((40.0..140.0).contains(&mean), "{mean}");
}

#[test]
fn a_way_back_of_its_own_has_its_delay_its_jitter_and_its_losses() {
    let sparse = recorded("constant:rate_mbps=0.6", 60.0);
    let mean = |outcome: &Outcome| outcome.metrics.rtt_mean_ms.expect("answers");
    let far = run(&Scenario {
        delay_ms: 0.0,
        ack_delay_ms: Some(25.0),
        ..sparse.clone()
    });
    assert_eq!(mean(&far), 26.0);
    let own_delay = run(&Scenario {
        ack_delay_ms: Some(25.0),
        flows: vec![FlowSpec {
            delay_ms: Some(20.0),
            ..FlowSpec::new("constant:rate_mbps=0.6")
        }],
        ..sparse.clone()
    });
    assert_eq!(
        mean(&own_delay),
        41.0,
        "a flow's own delay is that of both ways"
    );
    let wavering = run(&Scenario {
        ack_jitter: "uniform:max_ms=10".to_owned(),
        ..sparse.clone()
    });
    assert!((mean(&wavering) - 46.0).abs() < 0.3, "{}", mean(&wavering));
    assert!(under_way(&wavering).iter().all(|took| *took == 20.0));
    let lossy = run(&Scenario {
        ack_loss: 0.3,
        ..sparse
    });
    let unheard = lossy.flows[0].counters.sent - records(&lossy).acked_ms.len() as u64;
    assert_eq!(unheard, 0);
    assert_eq!(lossy.metrics.drops, 0, "data are not lost by that");
    assert_eq!(lossy.totals.network_bytes % 1500, 0);
}

#[test]
fn reordered_packets_are_late_and_nothing_is_lost() {
    let outcome = run(&Scenario {
        reorder: "late:p=0.05,ms=10".to_owned(),
        ..recorded("cubic", 20.0)
    });
    let took = under_way(&outcome);
    let late = took.iter().filter(|took| (**took - 30.0).abs() < 1e-6);
    let share = late.count() as f64 / took.len() as f64;
    assert!((share - 0.05).abs() < 0.006, "{share}");
    let other = |took: &f64| (took - 20.0).abs() < 1e-6 || (took - 30.0).abs() < 1e-6;
    assert!(took.iter().all(other));
    assert!(!arrivals(&outcome).is_sorted());
    assert_eq!(outcome.metrics.drops, 0);
    // An event that an earlier arrival has replaced sets no others: at the most three for a packet that is late.
    let packets = outcome.flows[0].counters.sent;
    assert!(
        outcome.totals.events < packets * 4,
        "{} events for {packets} packets",
        outcome.totals.events
    );
}

#[test]
fn a_recorded_series_of_delays_is_followed_each_way_and_packets_overtake() {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/delays.txt");
    std::fs::write(path, "30\n30\n10\n10\n").unwrap();
    let scenario = Scenario {
        delay_series: Some(path.to_owned()),
        ..recorded("constant:rate_mbps=12", 2.0)
    };
    let outcome = run(&scenario);
    let records = records(&outcome);
    for (departed, received) in records.departed_ms.iter().zip(&records.received_ms) {
        if received.is_finite() {
            let expected = if departed % 40.0 < 20.0 { 30.0 } else { 10.0 };
            assert!((received - departed - expected).abs() < 1e-6, "{departed}");
        }
    }
    assert!(!arrivals(&outcome).is_sorted());
    let rtts = records.acked_ms.iter().zip(&records.received_ms);
    let back: Vec<f64> = rtts.map(|(acked, received)| acked - received).collect();
    assert!(back.iter().any(|ms| (ms - 30.0).abs() < 1e-6));
    assert!(back.iter().any(|ms| (ms - 10.0).abs() < 1e-6));
}

#[test]
fn a_suspended_link_holds_its_packets_and_the_changes_come_again() {
    // Of each 2 s the last 0.2 s nothing: the suspensions of draft-huitema-ccwg-c4-test.
    let outcome = run(&Scenario {
        changes: vec![rate(1.8, 0.0)],
        changes_repeat_s: Some(2.0),
        ..recorded("constant:rate_mbps=6", 7.0)
    });
    let records = records(&outcome);
    assert_eq!(outcome.metrics.drops, 0);
    let within = |ms: f64| ms % 2000.0 > 1800.0 && ms % 2000.0 < 2000.0;
    assert!(!records.departed_ms.iter().any(|departed| within(*departed)));
    assert!(records.sent_ms.iter().any(|sent| within(*sent)));
    let capacity = outcome.metrics.capacity_mbps;
    // 6.4 of 7 s; in the last lap there is no suspension yet.
    assert!((capacity - 12.0 * 6.4 / 7.0).abs() < 1e-6, "{capacity}");
}

#[test]
fn all_that_a_change_can_change_holds_from_its_instant() {
    let outcome = run(&Scenario {
        ack: "rate:1".to_owned(),
        changes: vec![
            Change {
                at_s: 2.0,
                jitter: Some("uniform:max_ms=5".to_owned()),
                ..Change::default()
            },
            Change {
                at_s: 4.0,
                jitter: Some("none".to_owned()),
                loss_bursts: Some("1/4".to_owned()),
                ack_rate_mbps: Some(0.064),
                ..Change::default()
            },
            Change {
                at_s: 6.0,
                ack_jitter: Some("uniform:max_ms=50".to_owned()),
                loss_bursts: Some("none".to_owned()),
                ack_rate_mbps: Some(1.0),
                ..Change::default()
            },
        ],
        ..recorded("constant:rate_mbps=0.6", 8.0)
    });
    let records = records(&outcome);
    let spent = |from: f64, to: f64| -> Vec<(f64, f64, f64)> {
        (0..records.sent_ms.len())
            .filter(|&packet| (from..to).contains(&records.sent_ms[packet]))
            .map(|packet| {
                let received = records.received_ms[packet];
                let forth = received - records.departed_ms[packet];
                (
                    forth,
                    records.acked_ms[packet] - received,
                    records.dropped_ms[packet],
                )
            })
            .collect()
    };
    let near = |value: f64, expected: f64| (value - expected).abs() < 1e-6;
    // 64 bytes take 0.512 ms at 1 Mbit/s and 8 ms at 64 kbit/s.
    let first = spent(0.0, 1_950.0);
    assert!(
        first
            .iter()
            .all(|(forth, back, _)| near(*forth, 20.0) && near(*back, 20.512))
    );
    assert!(
        spent(2_010.0, 3_900.0)
            .iter()
            .any(|(forth, ..)| *forth > 22.0)
    );
    let third = spent(4_010.0, 5_900.0);
    let lost = third.iter().filter(|packet| packet.2.is_finite()).count();
    assert!(lost.abs_diff(third.len() / 4) <= 1);
    let arrived = third.iter().filter(|packet| packet.2.is_nan());
    assert!(
        arrived
            .clone()
            .all(|(forth, back, _)| near(*forth, 20.0) && near(*back, 28.0))
    );
    let last = spent(6_100.0, 7_900.0);
    assert!(last.iter().any(|(_, back, _)| *back > 50.0));
    assert!(last.iter().all(|packet| packet.2.is_nan()));
}

#[test]
fn a_file_over_a_wavering_path_arrives_whole() {
    for scheme in ["verus:ratio=2", "cubic", "bbr", "c4", "sprout"] {
        let outcome = run(&Scenario {
            flows: vec![sending(scheme, 300_000)],
            jitter: "wifi:mean_ms=12".to_owned(),
            ack_jitter: "gauss:mean_ms=3".to_owned(),
            reorder: "uniform:p=0.02,max_ms=30".to_owned(),
            ack_loss: 0.02,
            loss_bursts: "1/50".to_owned(),
            changes: vec![rate(1.0, 0.0), rate(1.2, 12.0)],
            changes_repeat_s: Some(2.0),
            ..single("rate:12", "droptail:bytes=60000", scheme, 60.0)
        });
        assert_eq!(outcome.metrics.completions, Some(1), "{scheme}");
    }
}

#[test]
fn two_links_in_a_row_are_crossed_by_whom_they_should() {
    // The parking lot: one flow over both links, and one over each. The long one meets both queues.
    let crossing = |crosses: &str| FlowSpec {
        crosses: Some(crosses.to_owned()),
        ..FlowSpec::new("newreno")
    };
    let scenario = Scenario {
        flows: vec![crossing("both"), crossing("first"), crossing("second")],
        queue: "droptail:packets=30".to_owned(),
        second_trace: Some("rate:6".to_owned()),
        second_queue: "droptail:packets=30".to_owned(),
        records: true,
        ..single("rate:12", "", "", 60.0)
    };
    let outcome = run(&scenario);
    let rates: Vec<f64> = (outcome.metrics.per_flow.iter())
        .map(|flow| flow.throughput_mbps)
        .collect();
    let [long, first, second] = rates[..] else {
        panic!("three flows")
    };
    assert!((10.5..=12.0).contains(&(long + first)), "{rates:?}");
    assert!((5.3..=6.0).contains(&(long + second)), "{rates:?}");
    assert!(long < second && long > 0.3, "{rates:?}");
    // Alone, a packet of 1500 bytes takes 1 ms on the first link and 2 ms on the second.
    let first_packet = |crosses: &str| {
        let outcome = run(&Scenario {
            flows: vec![FlowSpec {
                bytes: Some(1500),
                ..crossing(crosses)
            }],
            ..scenario.clone()
        });
        records(&outcome).received_ms[0]
    };
    assert_eq!(
        ["both", "first", "second"].map(first_packet),
        [23.0, 21.0, 22.0]
    );
}

#[test]
fn a_packet_over_the_first_of_two_links_does_not_wait_for_what_the_second_holds() {
    // A packet takes 1.2 s on the second link, so that its sender sends it again after 1 s. On the
    // first link, which another flow crosses meanwhile, it takes 1 ms, and that sender's feedback
    // comes long before.
    let once = |crosses: &str, start_s| FlowSpec {
        crosses: Some(crosses.to_owned()),
        bytes: Some(1460),
        start_s,
        ..FlowSpec::new("newreno")
    };
    let outcome = run(&Scenario {
        flows: vec![once("both", 0.0), once("first", 0.1)],
        second_trace: Some("rate:0.01".to_owned()),
        ..recorded("", 3.0)
    });
    let records = records(&outcome);
    assert_eq!(records.received_ms, [1221.0, 121.0, 2421.0]);
    assert_eq!(records.acked_ms[1], 141.0);
}

#[test]
fn what_cannot_be_is_named() {
    let broken = concat!(env!("CARGO_TARGET_TMPDIR"), "/broken-delays.txt");
    std::fs::write(broken, "12\nsoon\n").unwrap();
    let whole = concat!(env!("CARGO_TARGET_TMPDIR"), "/whole-delays.txt");
    std::fs::write(whole, "12\n13\n").unwrap();
    let broken_series =
        format!("delay series `{broken}`, line 2: `soon` is not a whole number of milliseconds");
    let series = |path: &str| Scenario {
        delay_series: Some(path.to_owned()),
        ..Scenario::default()
    };
    let changing = |changes: Vec<Change>| Scenario {
        trace: "rate:12".to_owned(),
        changes,
        ..Scenario::default()
    };
    let cases: Vec<(Scenario, &str)> = vec![
        (
            Scenario {
                jitter: "gauss".to_owned(),
                ..Scenario::default()
            },
            "jitter `gauss`: `gauss` needs mean_ms=MS",
        ),
        (
            Scenario {
                ack_jitter: "wifi:mean_ms=-1".to_owned(),
                ..Scenario::default()
            },
            "ack_jitter `wifi:mean_ms=-1`: mean_ms must be a number of ms between 0 and 91, not `-1`",
        ),
        (
            Scenario {
                reorder: "often".to_owned(),
                ..Scenario::default()
            },
            "reorder `often`: unknown kind `often`; known are none, late, uniform",
        ),
        (
            Scenario {
                loss_bursts: "18/2".to_owned(),
                ..Scenario::default()
            },
            "loss_bursts must be `none`, or LOST/OF with fewer lost than there are, such as 2/18, not `18/2`",
        ),
        (
            Scenario {
                loss_model: "gemodel".to_owned(),
                ..Scenario::default()
            },
            "loss_model `gemodel`: `gemodel` needs p=PROBABILITY",
        ),
        (
            Scenario {
                loss_series: Some("no/such/file".to_owned()),
                ..Scenario::default()
            },
            "cannot read `no/such/file`: No such file or directory (os error 2)",
        ),
        (
            Scenario {
                duplicate: 1.0,
                ..Scenario::default()
            },
            "duplicate must be at least 0 and below 1, not 1.0",
        ),
        (
            Scenario {
                ack_loss: 1.0,
                ..Scenario::default()
            },
            "ack_loss must be at least 0 and below 1, not 1.0",
        ),
        (
            Scenario {
                flows: vec![FlowSpec {
                    crosses: Some("first".to_owned()),
                    ..FlowSpec::new("cubic")
                }],
                ..Scenario::default()
            },
            "flows[0].crosses must be left out where there is no second_trace, not `first`",
        ),
        (
            Scenario {
                flows: vec![FlowSpec {
                    crosses: Some("third".to_owned()),
                    ..FlowSpec::new("cubic")
                }],
                second_trace: Some("rate:5".to_owned()),
                ..Scenario::default()
            },
            "flows[0].crosses must be first, second or both, not `third`",
        ),
        (
            Scenario {
                second_trace: Some("rate:fast".to_owned()),
                ..Scenario::default()
            },
            "channel `rate:fast`: `fast` is not a rate in Mbit/s (a number above 0 and at most 10000000, such as rate:12; \
             units are k, M and G, with or without bps or bit/s, as in rate:500k or rate:12Mbps)",
        ),
        (series(broken), &broken_series),
        (
            Scenario {
                ack_delay_ms: Some(3.0),
                ..series(whole)
            },
            "ack_delay_ms must be left out beside delay_series, not 3",
        ),
        (
            Scenario {
                flows: vec![FlowSpec {
                    delay_ms: Some(3.0),
                    ..FlowSpec::new("cubic")
                }],
                ..series(whole)
            },
            "flows[0].delay_ms must be left out beside delay_series, not 3",
        ),
        (
            Scenario {
                changes: vec![Change {
                    delay_ms: Some(3.0),
                    ..Change::default()
                }],
                ..series(whole)
            },
            "changes[0].delay_ms must be left out beside delay_series, not 3",
        ),
        (
            changing(vec![Change {
                jitter: Some("x".to_owned()),
                ..Change::default()
            }]),
            "changes[0].jitter `x`: unknown kind `x`; known are none, uniform, gauss, wifi",
        ),
        (
            changing(vec![Change {
                ack_rate_mbps: Some(1.0),
                ..Change::default()
            }]),
            "changes[0].ack_rate_mbps must be left out but where the channel is a rate, not 1",
        ),
        (
            Scenario {
                changes_repeat_s: Some(2.0),
                ..changing(vec![rate(2.0, 1.0)])
            },
            "changes_repeat_s must be after the last change, not 2",
        ),
        (
            Scenario {
                changes_repeat_s: Some(0.0),
                ..changing(vec![])
            },
            "changes_repeat_s must be between 0.001 and 1000000, not 0.0",
        ),
        (
            Scenario {
                changes_repeat_s: Some(2.0),
                ..changing(vec![])
            },
            "changes_repeat_s must be left out where there are no changes, not 2",
        ),
        (
            Scenario {
                ack_queue: "codel".to_owned(),
                ..changing(vec![])
            },
            "ack_queue must be left out where no channel is set by ack, not `codel`",
        ),
        (
            Scenario {
                second_queue: "codel".to_owned(),
                ..changing(vec![])
            },
            "second_queue must be left out where there is no second_trace, not `codel`",
        ),
    ];
    for (scenario, message) in cases {
        assert_eq!(scenario.plan().unwrap_err().to_string(), message);
    }
}

#[test]
fn losses_on_the_way_are_not_the_bottlenecks() {
    let mut scenarios = [(); 3].map(|()| recorded("constant:rate_mbps=6", 20.0));
    scenarios[0].loss = 0.01;
    scenarios[1].loss_bursts = "2/18".to_owned();
    scenarios[2].loss_model = "gemodel:p=0.01,r=0.25".to_owned();
    for outcome in scenarios.iter().map(run) {
        let metrics = &outcome.metrics;
        assert_eq!((metrics.loss_rate, metrics.drops), (Some(0.0), 0));
        let lost = records(&outcome).dropped_ms.iter();
        let lost = lost.filter(|time| time.is_finite()).count() as u64;
        assert!(lost > 50);
        assert_eq!(metrics.path_losses, lost);
        let sent = metrics.arrivals + lost;
        assert_eq!(metrics.path_loss_rate, Some(lost as f64 / sent as f64));
        assert_eq!(sent, metrics.per_flow[0].sent);
    }
    // A policer's refusals are its own.
    let policed = run(&Scenario {
        policer: "bucket:rate_mbps=3,burst=15000".to_owned(),
        ..single("rate:12", "infinite", "constant:rate_mbps=6", 20.0)
    });
    assert_eq!(policed.metrics.path_loss_rate, Some(0.0));
    assert!(policed.metrics.loss_rate > Some(0.4));
}

/// A flow that always has data for 130 Mbit/s of Wi-Fi, whose acknowledgements answer this many
/// packets each.
fn over_wifi(ack_every: u32) -> Scenario {
    Scenario {
        ack: "same".to_owned(),
        medium: "wifi:aggregate=32".to_owned(),
        ack_every,
        ..single("rate:130", "infinite", "constant:rate_mbps=150", 5.0)
    }
}

#[test]
fn on_a_shared_medium_acknowledgements_take_capacity_from_the_data() {
    let mbps = |ack_every| run(&over_wifi(ack_every)).metrics.throughput_mbps;
    // 32 packets of 1544 bytes take 3084 µs behind a preamble of 40; AIFS, 7.5 slots, SIFS and
    // BlockAck 158.5.
    let alone = 32.0 * 12_000.0 / (3_084.0 + 40.0 + 158.5);
    let rates = [1, 2, 1000].map(mbps);
    assert!((rates[2] / alone - 1.0).abs() < 0.01, "{rates:?} {alone}");
    assert!(
        rates.is_sorted() && rates[0] < 0.93 * alone,
        "{rates:?} {alone}"
    );
}

#[test]
fn packets_of_an_aggregate_arrive_together() {
    let outcome = run(&Scenario {
        records: true,
        ..over_wifi(1)
    });
    let times = arrivals(&outcome);
    let together: Vec<usize> = times.chunk_by(|a, b| a == b).map(<[f64]>::len).collect();
    let full = together.iter().filter(|&&packets| packets == 32).count();
    assert!(
        together.iter().all(|&packets| packets <= 32),
        "{together:?}"
    );
    assert!(
        full * 10 > together.len() * 9,
        "{full} of {}",
        together.len()
    );
}

#[test]
fn a_shared_medium_takes_rates_both_ways() {
    for (scenario, message) in [
        (
            Scenario {
                ack: "ideal".to_owned(),
                ..over_wifi(1)
            },
            "ack must be a constant rate, `rate:MBPS`, beside medium, not `ideal`",
        ),
        (
            Scenario {
                trace: "city-driving-3g-up".to_owned(),
                ..over_wifi(1)
            },
            "trace must be a constant rate, `rate:MBPS`, beside medium, not `city-driving-3g-up`",
        ),
        (
            Scenario {
                light_trace: Some("light".to_owned()),
                ..over_wifi(1)
            },
            "medium must be left out beside light_trace, not `wifi:aggregate=32`",
        ),
        (
            Scenario {
                medium: "wifi:aggregate=0".to_owned(),
                ..over_wifi(1)
            },
            "medium `wifi:aggregate=0`: aggregate must be a whole number between 1 and 64, not `0`",
        ),
    ] {
        assert_eq!(scenario.plan().unwrap_err().to_string(), message);
    }
}

#[test]
fn goodput_counts_a_packet_once_however_often_it_arrives() {
    let of = |duplicate| {
        run(&Scenario {
            duplicate,
            ..recorded("constant:rate_mbps=5", 20.0)
        })
    };
    let (once, twice) = (of(0.0), of(0.5));
    let sent = |outcome: &Outcome| outcome.metrics.per_flow[0].sent;
    assert_eq!(sent(&once), sent(&twice));
    assert_eq!(once.metrics.goodput_mbps, twice.metrics.goodput_mbps);
    // A copy is another packet at the bottleneck, whose capacity it takes.
    let copies = twice.metrics.arrivals - sent(&twice);
    assert!(copies.abs_diff(sent(&twice) / 2) < sent(&twice) / 20);
    assert!(twice.metrics.throughput_mbps > 1.4 * once.metrics.throughput_mbps);
    let records = records(&twice);
    assert_eq!(records.len() as u64, sent(&twice));
    let arrived = records.received_ms.iter().filter(|at| at.is_finite());
    let delivered: u64 = records
        .new_bytes
        .iter()
        .map(|bytes| u64::from(*bytes))
        .sum();
    let each = u64::from(*records.new_bytes.iter().max().expect("packets"));
    assert_eq!(delivered, each * arrived.count() as u64);
    // Of those of which one copy is lost, the other arrives.
    let lossy = run(&Scenario {
        duplicate: 0.5,
        loss: 0.2,
        ..recorded("constant:rate_mbps=5", 20.0)
    });
    let records = self::records(&lossy);
    let times = records.dropped_ms.iter().zip(&records.received_ms);
    assert!(
        times
            .clone()
            .all(|(dropped, received)| !(dropped.is_finite() && received.is_finite()))
    );
    let lost = times.filter(|(dropped, _)| dropped.is_finite()).count() as f64;
    // Half of the packets are lost with 0.2, the others with 0.2 twice.
    let share = lost / records.len() as f64;
    assert!((share - 0.12).abs() < 0.015, "{share}");
}

#[test]
fn a_corrupt_packet_takes_capacity_and_a_lost_one_does_not() {
    let of = |corrupt, loss| {
        run(&Scenario {
            corrupt,
            loss,
            ..recorded("constant:rate_mbps=6", 20.0)
        })
    };
    let (corrupt, lost) = (of(0.1, 0.0).metrics, of(0.0, 0.1).metrics);
    for metrics in [&corrupt, &lost] {
        let rate = metrics.path_loss_rate.expect("packets were sent");
        assert!((rate - 0.1).abs() < 0.01, "{rate}");
        assert_eq!((metrics.loss_rate, metrics.drops), (Some(0.0), 0));
    }
    let sent = |metrics: &verus_measure::Metrics| metrics.per_flow[0].sent;
    assert_eq!(corrupt.arrivals, sent(&corrupt));
    assert_eq!(lost.arrivals + lost.path_losses, sent(&lost));
    assert!(corrupt.throughput_mbps > 1.05 * lost.throughput_mbps);
    let difference = corrupt.goodput_mbps.zip(lost.goodput_mbps);
    let (one, other) = difference.expect("the ends are observed");
    assert!((one / other - 1.0).abs() < 0.02, "{one}, {other}");
}

#[test]
fn no_sender_is_misled_by_duplicates() {
    // On a link with room for all copies, a sender does as well as without them.
    for scheme in [
        "cubic",
        "newreno",
        "bbr",
        "copa",
        "sprout",
        "verus:ratio=2",
        "forward",
    ] {
        for ack_every in [1, 2] {
            let of = |duplicate| {
                run(&Scenario {
                    duplicate,
                    ack_every,
                    ..single("rate:12", "droptail:delay_ms=100", scheme, 20.0)
                })
            };
            let (once, twice) = (of(0.0), of(0.2));
            let goodput = |outcome: &Outcome| outcome.metrics.goodput_mbps.expect("observed");
            assert!(
                goodput(&twice) <= 12.0 / 1.2 * 1.03,
                "{scheme}: a copy is no new data"
            );
            assert!(
                goodput(&twice) > 0.6 * goodput(&once),
                "{scheme}, {ack_every}: {} of {}",
                goodput(&twice),
                goodput(&once)
            );
        }
    }
}
