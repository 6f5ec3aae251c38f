//! Scenarios small enough to work out by hand, and what holds in every one.

use crate::common::{run, sending, single, trace_file};
use proptest::prelude::*;
use verus_sim::{Change, Error, FlowSpec, Outcome, Records, Scenario};

const INFINITE: &str = "infinite";

/// A change of nothing.
fn change(at_s: f64) -> Change {
    Change {
        at_s,
        ..Change::default()
    }
}

fn records(outcome: &Outcome) -> &Records {
    outcome.records.as_ref().expect("asked for")
}

/// One flow with so much to send over a link of 12 Mbit/s, that is 1 ms a packet.
fn brief(bytes: u64) -> Scenario {
    Scenario {
        flows: vec![sending("newreno", bytes)],
        records: true,
        ..single("rate:12", INFINITE, "newreno", 2.0)
    }
}

#[test]
fn a_packets_life_takes_exactly_what_its_path_takes() {
    let outcome = run(&brief(3000));
    let records = records(&outcome);
    assert_eq!(records.number, [0, 1]);
    assert_eq!(records.size_bytes, [1500, 1500]);
    assert_eq!(records.sent_ms, [0.0, 0.0]);
    assert_eq!(records.departed_ms, [1.0, 2.0]);
    assert_eq!(records.received_ms, [21.0, 22.0]);
    assert_eq!(records.acked_ms, [41.0, 42.0]);
    assert_eq!(records.new_bytes, [1500, 1500]);
    assert!(records.dropped_ms.iter().all(|at| at.is_nan()));
    let metrics = &outcome.metrics;
    assert_eq!(metrics.qdelay_mean_ms, Some(1.5));
    assert_eq!(metrics.qdelay_max_ms, Some(2.0));
    assert_eq!(metrics.rtt_mean_ms, Some(41.5));
    assert_eq!(outcome.totals.peak_network_bytes, 3000);
    assert_eq!(outcome.totals.network_bytes, 0);
}

#[test]
fn a_short_last_packet_carries_what_is_left() {
    let outcome = run(&brief(1501));
    assert_eq!(records(&outcome).new_bytes, [1500, 1]);
}

/// Every scheme that retransmits lost data.
const RELIABLE: [&str; 6] = [
    "verus:ratio=4",
    "verus:ratio=4,mode=paper",
    "cubic",
    "newreno",
    "vegas",
    "sprout",
];

#[test]
fn a_finite_flow_arrives_whole_and_once_in_spite_of_losses() {
    let bytes = 1_000_003;
    for scheme in RELIABLE {
        let outcome = run(&Scenario {
            flows: vec![sending(scheme, bytes)],
            loss: 0.05,
            records: true,
            ..single("rate:20", "droptail:bytes=60000", scheme, 60.0)
        });
        let delivered: u64 = records(&outcome)
            .new_bytes
            .iter()
            .map(|&n| u64::from(n))
            .sum();
        assert_eq!(delivered, bytes, "{scheme}");
        assert!(outcome.flows[0].counters.retransmitted > 0, "{scheme}");
        assert_eq!(outcome.totals.network_bytes, 0, "{scheme}");
        let goodput = outcome.metrics.goodput_mbps.expect("the ends are seen");
        let carried = goodput * outcome.metrics.interval_s * 1e6 / 8.0;
        assert!((carried - bytes as f64).abs() < 1.0, "{scheme}");
    }
}

#[test]
fn a_flow_sends_from_its_start_to_its_stop() {
    let outcome = run(&Scenario {
        flows: vec![
            FlowSpec::new("cubic"),
            FlowSpec {
                start_s: 0.5,
                stop_s: Some(1.0),
                ..FlowSpec::new("verus:ratio=4")
            },
        ],
        records: true,
        ..single("rate:12", "droptail:bytes=60000", "cubic", 2.0)
    });
    let records = records(&outcome);
    let sent: Vec<f64> = (0..records.len())
        .filter(|&at| records.flow[at] == 1)
        .map(|at| records.sent_ms[at])
        .collect();
    assert_eq!(sent[0], 500.0);
    assert!(sent.iter().all(|&at| at <= 1000.0));
    assert!(sent.len() > 10);
    let before = &outcome.flows[1].samples[0][..4];
    assert!(before.iter().all(|window| window.is_nan()));
}

#[test]
fn each_flow_has_its_own_round_trip_time() {
    let outcome = run(&Scenario {
        flows: [10.0, 50.0]
            .map(|delay_ms| FlowSpec {
                delay_ms: Some(delay_ms),
                ..sending("newreno", 1500)
            })
            .to_vec(),
        records: true,
        ..single("rate:12", INFINITE, "newreno", 1.0)
    });
    let records = records(&outcome);
    assert_eq!(records.departed_ms, [1.0, 2.0]);
    assert_eq!(records.received_ms, [11.0, 52.0]);
    assert_eq!(records.acked_ms, [21.0, 102.0]);
}

#[test]
fn acknowledgements_queue_for_their_link() {
    // 64 bytes at 0.512 Mbit/s are 1 ms; data takes 0.1 ms a packet.
    let outcome = run(&Scenario {
        trace: "rate:120".to_owned(),
        ack: "rate:0.512".to_owned(),
        ..brief(6000)
    });
    let records = records(&outcome);
    let received = [20.1, 20.2, 20.3, 20.4];
    for (at, expected) in received.into_iter().enumerate() {
        assert!((records.received_ms[at] - expected).abs() < 1e-9);
        let acked = 20.1 + 1.0 + at as f64 + 20.0;
        assert!((records.acked_ms[at] - acked).abs() < 1e-9);
    }
}

#[test]
fn lost_acknowledgements_cost_nothing_but_time() {
    let outcome = run(&Scenario {
        trace: "rate:120".to_owned(),
        ack: "rate:0.512".to_owned(),
        ack_queue: "droptail:packets=2".to_owned(),
        duration_s: 20.0,
        ..brief(3_000_000)
    });
    let records = records(&outcome);
    let delivered: u64 = records.new_bytes.iter().map(|&n| u64::from(n)).sum();
    assert_eq!(delivered, 3_000_000);
    assert_eq!(outcome.totals.network_bytes, 0);
}

#[test]
fn delayed_acknowledgements_answer_two_packets_or_wait_40_ms() {
    let outcome = run(&Scenario {
        ack_every: 2,
        ..brief(4500)
    });
    let records = records(&outcome);
    assert_eq!(records.received_ms, [21.0, 22.0, 23.0]);
    assert_eq!(records.acked_ms, [42.0, 42.0, 83.0]);
    // The first of a pair waits for the second; what the receiver held is not the path's.
    assert_eq!(
        outcome.metrics.rtt_mean_ms,
        Some((42.0 + 42.0 + 43.0) / 3.0)
    );
}

#[test]
fn quick_acknowledgements_answer_the_first_packets_one_by_one() {
    let outcome = run(&Scenario {
        ack_every: 2,
        quick_acks: 2,
        ..brief(6000)
    });
    let records = records(&outcome);
    assert_eq!(records.received_ms, [21.0, 22.0, 23.0, 24.0]);
    assert_eq!(records.acked_ms, [41.0, 42.0, 44.0, 44.0]);
}

#[test]
fn the_rate_changes_when_it_is_told_to() {
    let outcome = run(&Scenario {
        changes: vec![Change {
            rate_mbps: Some(24.0),
            ..change(5.0)
        }],
        ..single("rate:12", "droptail:bytes=300000", "newreno", 10.0)
    });
    assert!((outcome.metrics.capacity_mbps - 18.0).abs() < 0.01);
    let throughput = &outcome.metrics.series[0].throughput_mbps;
    // A bin of 100 ms holds 100 packets before and 200 after.
    assert!((throughput[48] - 12.0).abs() < 1e-9);
    assert!((throughput[51] - 24.0).abs() < 1e-9);
    assert_eq!(outcome.capacity_mbps[49..51], [12.0, 24.0]);
}

#[test]
fn losses_by_chance_do_not_hold_verus_down() {
    let throughput = |scheme: &str| {
        let scenario = Scenario {
            loss: 0.003,
            ..single("rate:100", "droptail:bytes=1500000", scheme, 30.0)
        };
        run(&scenario).metrics.throughput_mbps
    };
    let (verus, cubic) = (throughput("verus:ratio=2"), throughput("cubic"));
    assert!(verus > 3.0 * cubic, "{verus} against {cubic} Mbit/s");
}

/// The delay stays below R · D_min behind such a buffer, so that losses alone say stop.
#[test]
fn many_flows_of_verus_behind_a_buffer_of_one_bandwidth_delay_product_do_not_flood_it() {
    let outcome = run(&Scenario {
        flows: vec![FlowSpec::new("verus:ratio=2"); 20],
        ..single("rate:20", "droptail:bytes=100000", "verus:ratio=2", 20.0)
    });
    let loss_rate = outcome.metrics.loss_rate.expect("packets arrived");
    assert!(loss_rate < 0.1, "{loss_rate} of all packets were dropped");
}

#[test]
fn progress_rises_to_one_and_can_cancel() {
    let scenario = single("rate:12", "droptail:bytes=60000", "cubic", 20.0);
    let mut progress = Vec::new();
    verus_sim::run(&scenario, &mut |done| {
        progress.push(done);
        true
    })
    .expect("not cancelled");
    assert!(
        progress.len() > 90 && progress.len() < 110,
        "{}",
        progress.len()
    );
    assert!(progress.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!(progress.last(), Some(&1.0));

    let mut calls = 0;
    let cancelled = verus_sim::run(&scenario, &mut |done| {
        calls += 1;
        done < 0.5
    });
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    assert!((49..=51).contains(&calls), "{calls}");
}

#[test]
fn a_trace_that_ends_carries_nothing_more() {
    let path = trace_file("one-second", 1..=1000);
    for scheme in RELIABLE {
        let scenario = Scenario {
            looped: false,
            records: true,
            ..single(&path, "droptail:bytes=300000", scheme, 20.0)
        };
        let outcome = run(&scenario);
        let departed = records(&outcome)
            .departed_ms
            .iter()
            .filter(|at| !at.is_nan());
        assert!(departed.clone().all(|&at| at <= 1000.0), "{scheme}");
        let departed = departed.count();
        assert!(departed > 100, "{scheme}: {departed}");
        // Packets in the queue stay there, and nothing else remains.
        let bytes = outcome.totals.network_bytes;
        assert!(bytes <= 301_500, "{scheme}: {bytes}");
    }
}

#[test]
fn a_link_without_capacity_delivers_nothing_and_nothing_panics() {
    for scheme in RELIABLE.into_iter().chain(["verus:mode=prototype"]) {
        let outcome = run(&Scenario {
            changes: vec![Change {
                rate_mbps: Some(0.0),
                ..change(0.0)
            }],
            ..single("rate:12", "droptail:packets=100", scheme, 30.0)
        });
        assert_eq!(outcome.metrics.departures, 0, "{scheme}");
        assert_eq!(outcome.metrics.utilization, None, "{scheme}");
        assert!(outcome.flows[0].counters.timeouts > 0, "{scheme}");
    }
}

#[test]
fn an_opportunity_at_the_last_instant_counts_for_capacity_as_well_as_for_throughput() {
    let trace = trace_file("last-instant", (1..=5).map(|at| at * 10));
    let outcome = run(&Scenario {
        series: true,
        bin_ms: 100.0,
        ..single(&trace, "infinite", "saturate", 1.0)
    });
    let bins = &outcome.capacity_mbps;
    let (packet, opportunity) = (1500.0, 1504.0);
    let utilization = outcome.metrics.utilization.expect("there is capacity");
    assert!((utilization - packet / opportunity).abs() < 1e-9);
    assert!((bins[9] - bins[8] - opportunity * 8.0 / 100e3).abs() < 1e-9);
}

/// Checks the properties of every run.
fn assert_consistent(scenario: &Scenario) {
    let outcome = run(scenario);
    let m = &outcome.metrics;
    assert_eq!(m.arrivals, m.departures + m.drops + m.backlog);
    let records = records(&outcome);
    let count = |column: &[f64]| column.iter().filter(|at| !at.is_nan()).count() as u64;
    assert_eq!(m.arrivals + m.path_losses, records.len() as u64);
    assert_eq!(m.departures, count(&records.departed_ms));
    assert_eq!(m.drops + m.path_losses, count(&records.dropped_ms));
    let mut bytes = 0;
    for at in 0..records.len() {
        let (sent, departed) = (records.sent_ms[at], records.departed_ms[at]);
        let (received, acked) = (records.received_ms[at], records.acked_ms[at]);
        let dropped = records.dropped_ms[at];
        assert!(
            departed.is_nan() || dropped.is_nan(),
            "dropped and delivered"
        );
        assert!(departed.is_nan() || departed >= sent);
        assert!(received.is_nan() || received >= departed);
        assert!(acked.is_nan() || acked >= received);
        assert!(received.is_nan() <= acked.is_nan(), "acked, not received");
        if dropped.is_nan() && acked.is_nan() {
            bytes += u64::from(records.size_bytes[at]);
        }
    }
    // An acknowledgement may answer no packet for the first time, since it names those that others
    // named; it leaves the network too. A dropped acknowledgement takes along the packets that it
    // answers for.
    if scenario.ack_queue == INFINITE {
        assert_eq!(outcome.totals.network_bytes, bytes);
    } else {
        assert!(outcome.totals.network_bytes <= bytes);
    }
    assert!(outcome.totals.network_bytes <= outcome.totals.peak_network_bytes);
    for flow in 0..scenario.flows.len() as u32 {
        let of_flow = (0..records.len()).filter(|&at| records.flow[at] == flow);
        let numbers: Vec<u64> = of_flow.clone().map(|at| records.number[at]).collect();
        assert!(numbers.into_iter().eq(0..of_flow.count() as u64));
        let counters = outcome.flows[flow as usize].counters;
        let metrics = &m.per_flow[flow as usize];
        assert_eq!(counters.sent, metrics.sent);
        assert_eq!(counters.retransmitted, metrics.retransmitted);
        assert!(metrics.goodput_mbps.expect("seen") <= metrics.throughput_mbps + 1e-9);
    }
    let packet = f64::from(scenario.packet_bytes) * 8e-6 / m.interval_s;
    assert!(m.throughput_mbps <= m.capacity_mbps + packet + 1e-9);
    let printed = format!("{m:?} {:?}", outcome.capacity_mbps);
    assert!(!printed.contains("NaN") && !printed.contains("inf"));
    assert_eq!(printed, {
        let again = run(scenario);
        format!("{:?} {:?}", again.metrics, again.capacity_mbps)
    });
}

const SCHEMES: [&str; 9] = [
    "verus:ratio=2",
    "verus:ratio=6",
    "verus:ratio=4,mode=paper",
    "verus:ratio=4,mode=prototype",
    "cubic",
    "cubic:hystart=plusplus",
    "newreno",
    "vegas",
    "sprout",
];

const QUEUES: [&str; 12] = [
    "red:min=15000,max=45000,p=0.1",
    "red:min=15000,max=45000,p=0.1,preset=cs244",
    "red:min=375000,max=1125000,p=0.1,preset=gentle",
    "droptail:bytes=20000",
    "droptail:packets=1",
    "codel",
    "codel:ecn=yes",
    "droptail:delay_ms=40",
    "pie:ecn=yes",
    "fq_codel:packets=50",
    "dualpi2",
    INFINITE,
];

/// Gaps between opportunities in ms, with bursts and outages.
fn gaps() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![
        10 => Just(0u64),
        20 => 1u64..4,
        3 => 4u64..50,
        1 => 50u64..900,
    ];
    prop::collection::vec(gap, 1..400)
}

fn flows() -> impl Strategy<Value = Vec<FlowSpec>> {
    let flow = (
        prop::sample::select(SCHEMES.to_vec()),
        prop::option::of(0.0f64..2.0),
        prop::option::of(2.0f64..3.0),
        prop::option::of(0.0f64..80.0),
        prop::option::of(0u64..2_000_000),
    )
        .prop_map(|(scheme, start_s, stop_s, delay_ms, bytes)| FlowSpec {
            crosses: None,
            scheme: scheme.to_owned(),
            start_s: start_s.unwrap_or_default(),
            stop_s,
            delay_ms,
            bytes,
            traffic: None,
        });
    prop::collection::vec(flow, 1..5)
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let acks = prop::sample::select(vec![
        ("ideal", INFINITE),
        ("same", INFINITE),
        ("rate:0.1", INFINITE),
        ("same", "droptail:packets=5"),
    ]);
    let changes = prop::collection::vec(
        (
            prop::option::of(0.0f64..100.0),
            prop::option::of(0.0f64..0.3),
        ),
        0..3,
    );
    (
        gaps(),
        prop::sample::select(QUEUES.to_vec()),
        acks,
        flows(),
        changes,
        (any::<bool>(), 1u32..4, 100u32..3000, any::<u64>()),
        prop_oneof![Just(0.0), 0.0f64..0.2],
    )
        .prop_map(|(gaps, queue, ack, flows, changes, misc, loss)| {
            let (looped, ack_every, packet_bytes, seed) = misc;
            let mut millis = vec![];
            let mut at = 0;
            for gap in gaps {
                at += gap;
                millis.push(at);
            }
            // The period, which must not be zero.
            millis.push(at + 1);
            let (ack, ack_queue) = ack;
            Scenario {
                trace: trace_file(&format!("random-{seed}"), millis),
                queue: queue.to_owned(),
                ack: ack.to_owned(),
                ack_queue: ack_queue.to_owned(),
                // Ends between two milliseconds, so that no opportunity is at the very end.
                duration_s: 4.000_5,
                packet_bytes,
                looped,
                loss,
                flows,
                seed,
                records: true,
                ack_every,
                changes: changes
                    .into_iter()
                    .enumerate()
                    .map(|(index, (delay_ms, loss))| Change {
                        delay_ms,
                        loss,
                        ..change(1.0 + index as f64)
                    })
                    .collect(),
                ..Default::default()
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_run_is_consistent(scenario in scenarios()) {
        assert_consistent(&scenario);
        std::fs::remove_file(&scenario.trace).expect("the case's own file");
    }
}

#[test]
fn a_policer_passes_its_rate_and_a_burst_and_queues_nothing() {
    let scenario = Scenario {
        policer: "bucket:rate_mbps=4,burst=30000".to_owned(),
        records: true,
        ..single("rate:100", INFINITE, "constant:rate_mbps=8", 10.0)
    };
    let outcome = run(&scenario);
    let records = records(&outcome);
    let departed = records.departed_ms.iter().filter(|at| !at.is_nan()).count();
    // 4 Mbit/s for 10 s, and 20 packets.
    let passed = 5_000_000 / 1500 + 20;
    assert!(departed.abs_diff(passed) <= 2, "{departed} of {passed}");
    let taken_ms = 1500.0 * 8.0 / 100e3;
    for (sent, left) in records.sent_ms.iter().zip(&records.departed_ms) {
        assert!(left.is_nan() || (left - sent - taken_ms).abs() < 1e-6);
    }
}
