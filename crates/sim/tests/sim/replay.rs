//! CellReplay's links: short trains by a light trace, larger traffic by a heavy one. The traces
//! here are made by hand.

use std::sync::LazyLock;

use crate::common::{run, single};
use verus_sim::{Change, FlowSpec, Outcome, Records, Scenario};

/// Writes a file for the tests, and returns its path.
fn file(name: &str, text: &str) -> String {
    let path = format!("{}/replay-{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, text).expect("it can be written");
    path
}

/// The path of a light trace.
static LIGHT: LazyLock<String> =
    LazyLock::new(|| file("light", "0 20 0 1 3\n100 24 0 2 2 9\n400 22 0 1\n"));

/// The path of a heavy trace: an opportunity each 5 ms, from 5 ms on.
static HEAVY: LazyLock<String> = LazyLock::new(|| {
    let lines = (1..=200).map(|line| format!("{}\n", 5 * line));
    file("heavy", &lines.collect::<String>())
});

/// One flow, each packet recorded, with the light and the heavy trace for its data.
fn replayed(scheme: &str, duration_s: f64) -> Scenario {
    Scenario {
        records: true,
        packet_bytes: 1400,
        light_trace: Some(LIGHT.clone()),
        light_timer_ms: 20.0,
        ..single(&HEAVY, "infinite", scheme, duration_s)
    }
}

fn records(outcome: &Outcome) -> &Records {
    outcome.records.as_ref().expect("asked for")
}

#[test]
fn a_train_arrives_by_the_light_trace_and_the_rest_by_the_heavy_one() {
    let outcome = run(&Scenario {
        flows: vec![FlowSpec {
            bytes: Some(5 * 1360),
            ..FlowSpec::new("newreno")
        }],
        ..replayed("", 1.0)
    });
    // Five packets at once: three of the train, and two that are in the queue from 20 ms on, and
    // use the opportunities at 20 and 25 ms. The light ones of 21 and 23 ms wait behind them. Their
    // sender takes this reordering for a loss at 45 ms. Its retransmission is a train by itself,
    // with a delay between 20 and 24 ms.
    let records = records(&outcome);
    assert_eq!(records.received_ms, [20.0, 30.0, 35.0, 20.0, 25.0, 66.0]);
    assert_eq!(
        records.departed_ms, records.received_ms,
        "no more propagation"
    );
    // The way back has no light trace: it is the propagation of 20 ms.
    assert_eq!(records.acked_ms[..5], [40.0, 50.0, 55.0, 40.0, 45.0]);
    // Time in the heavy queue is queueing delay, and what the light trace says is none.
    let waited = (9.0 + 12.0 + 5.0) / 6.0;
    let mean = outcome.metrics.qdelay_mean_ms.expect("packets");
    assert!((mean - waited).abs() < 1e-9, "{mean}");
    // 200 opportunities of 1400 bytes in a second, with that at its end.
    let capacity = outcome.metrics.capacity_mbps;
    assert!(
        (capacity - 200.0 * 1400.0 * 8e-6).abs() < 1e-9,
        "{capacity}"
    );
}

#[test]
fn sparse_packets_never_wait_for_the_heavy_trace() {
    // A packet each 100 ms over a trace with an opportunity a second: light ones take the light trace's delay.
    let slow = file("slow", "1000\n2000\n");
    let pings = |light: bool| {
        let scenario = replayed("constant:rate_mbps=0.112", 10.0);
        let outcome = run(&Scenario {
            trace: slow.clone(),
            light_trace: scenario.light_trace.clone().filter(|_| light),
            light_timer_ms: if light { scenario.light_timer_ms } else { 0.0 },
            delay_ms: 20.0,
            ..scenario
        });
        let records = records(&outcome);
        let both = records.sent_ms.iter().zip(&records.received_ms);
        let took = both.map(|(sent, received)| received - sent);
        took.filter(|took| took.is_finite()).collect::<Vec<f64>>()
    };
    let light = pings(true);
    assert!(light.len() > 95);
    assert!(
        light.iter().all(|took| (20.0..=24.0).contains(took)),
        "{light:?}"
    );
    // By the heavy trace alone they queue up.
    assert!(pings(false).iter().any(|took| *took > 5_000.0));
}

#[test]
fn a_way_back_may_have_traces_of_its_own() {
    let outcome = run(&Scenario {
        ack: HEAVY.clone(),
        ack_light_trace: Some(file("back", "0 7 0\n1000 7 0\n2000 7 0\n")),
        ..replayed("constant:rate_mbps=0.112", 2.0)
    });
    let records = records(&outcome);
    let back = records.acked_ms.iter().zip(&records.received_ms);
    let took: Vec<f64> = back.map(|(acked, received)| acked - received).collect();
    let answered = took.iter().filter(|took| took.is_finite());
    assert!(
        answered.clone().count() > 15 && answered.clone().all(|took| (took - 7.0).abs() < 1e-9)
    );
    let rtt = outcome.metrics.rtt_mean_ms.expect("answers");
    assert!((27.0..31.0).contains(&rtt), "{rtt}");
}

#[test]
fn a_size_offset_is_added_to_the_delay_of_packets_of_that_size() {
    let sizes: String = (1..=14)
        .map(|step| format!("{} {}\n", step * 100, f64::from(step) / 4.0))
        .collect();
    let outcome = run(&Scenario {
        size_offsets: Some(file("sizes", &sizes)),
        light_trace: Some(file("constant", "0 20 0\n100 20 0\n200 20 0\n")),
        packet_bytes: 1000,
        ..replayed("constant:rate_mbps=0.08", 2.0)
    });
    let records = records(&outcome);
    let both = records.sent_ms.iter().zip(&records.received_ms);
    let took: Vec<f64> = both.map(|(sent, received)| received - sent).collect();
    let arrived = took.iter().filter(|took| took.is_finite());
    assert!(arrived.clone().count() > 15);
    assert!(
        arrived.clone().all(|took| (took - 22.5).abs() < 1e-6),
        "{took:?}"
    );
}

#[test]
fn it_composes_with_all_other_elements() {
    let flow = |crosses: &str| FlowSpec {
        crosses: Some(crosses.to_owned()),
        ..FlowSpec::new("cubic")
    };
    let queues = ["droptail:packets=20", "codel", "fq_codel", "pie", "dualpi2"];
    for queue in queues.into_iter().chain(["red:min=30000,max=90000,p=0.1"]) {
        let scenario = Scenario {
            queue: queue.to_owned(),
            loss: 0.01,
            loss_bursts: "1/200".to_owned(),
            policer: "bucket:rate_mbps=2.2,burst=30000".to_owned(),
            jitter: "uniform:max_ms=5".to_owned(),
            reorder: "late:p=0.02,ms=10".to_owned(),
            second_trace: Some("rate:1.5".to_owned()),
            second_queue: "droptail:packets=30".to_owned(),
            flows: vec![flow("both"), flow("first"), flow("second")],
            changes: vec![Change {
                at_s: 3.0,
                loss: Some(0.02),
                ..Change::default()
            }],
            ..replayed("", 10.0)
        };
        let outcome = run(&scenario);
        let rates: Vec<f64> = (outcome.metrics.per_flow.iter())
            .map(|flow| flow.throughput_mbps)
            .collect();
        assert!(rates.iter().all(|mbps| *mbps > 0.05), "{queue}: {rates:?}");
        assert_eq!(
            format!("{:?}", records(&outcome)),
            format!("{:?}", records(&run(&scenario))),
            "{queue}"
        );
        // Nothing is delivered before it was sent, or unless it was.
        let records = records(&outcome);
        let both = records.sent_ms.iter().zip(&records.received_ms);
        assert!(
            both.clone()
                .all(|(sent, received)| !received.is_finite() || received >= sent)
        );
        for scheme in ["cubic", "bbr", "verus:ratio=2"] {
            let outcome = run(&Scenario {
                flows: vec![FlowSpec {
                    bytes: Some(300_000),
                    ..FlowSpec::new(scheme)
                }],
                duration_s: 60.0,
                ..scenario.clone()
            });
            assert_eq!(outcome.metrics.completions, Some(1), "{queue} {scheme}");
        }
    }
}

#[test]
fn what_cannot_be_is_named() {
    let broken = file("broken", "0 20 0\n10 20\n20 20 0\n");
    let broken_trace = format!(
        "light trace `{broken}`, line 2: `10 20` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`"
    );
    let missing = file("few-sizes", "100 1\n");
    let few_sizes = format!(
        "size offsets `{missing}`: offsets of 1 sizes; a file of size offsets has 14, of 100, 200, … 1400 bytes"
    );
    let valid = || replayed("cubic", 1.0);
    let back = || Scenario {
        ack: "same".to_owned(),
        ack_light_trace: valid().light_trace,
        ..Scenario::default()
    };
    let cases: Vec<(Scenario, &str)> = vec![
        (
            Scenario {
                light_trace: Some(broken.clone()),
                ..valid()
            },
            &broken_trace,
        ),
        (
            Scenario {
                ack_light_trace: Some(broken.clone()),
                ..back()
            },
            &broken_trace,
        ),
        (
            Scenario {
                size_offsets: Some(missing.clone()),
                ..valid()
            },
            &few_sizes,
        ),
        (
            Scenario {
                packet_bytes: 1500,
                ..valid()
            },
            "packet_bytes must be at most 1400 beside light_trace, not 1500",
        ),
        (
            Scenario {
                ack_bytes: 1401,
                ..back()
            },
            "ack_bytes must be at most 1400 beside ack_light_trace, not 1401",
        ),
        (
            Scenario {
                size_offsets: Some("sizes".to_owned()),
                ..Scenario::default()
            },
            "size_offsets must be left out where there is no light_trace, not `sizes`",
        ),
        (
            Scenario {
                light_timer_ms: 5.0,
                ..Scenario::default()
            },
            "light_timer_ms must be left out where there is no light trace, not 5",
        ),
        (
            Scenario {
                ack_size_offsets: Some("sizes".to_owned()),
                ..valid()
            },
            "ack_size_offsets must be left out where there is no ack_light_trace, not `sizes`",
        ),
        (
            Scenario {
                ack: "ideal".to_owned(),
                ..back()
            },
            "ack must be a channel beside ack_light_trace, the heavy one, not `ideal`",
        ),
        (
            Scenario {
                ack_delay_ms: Some(3.0),
                ..back()
            },
            "ack_delay_ms must be left out beside ack_light_trace, not 3",
        ),
        (
            Scenario {
                delay_series: Some("delays".to_owned()),
                ..valid()
            },
            "delay_series must be left out beside light_trace, not `delays`",
        ),
        (
            Scenario {
                flows: vec![FlowSpec {
                    delay_ms: Some(3.0),
                    ..FlowSpec::new("cubic")
                }],
                ..valid()
            },
            "flows[0].delay_ms must be left out beside light_trace, not 3",
        ),
        (
            Scenario {
                changes: vec![Change {
                    delay_ms: Some(3.0),
                    ..Change::default()
                }],
                ..valid()
            },
            "changes[0].delay_ms must be left out beside light_trace, not 3",
        ),
        (
            Scenario {
                light_timer_ms: -1.0,
                ..valid()
            },
            "light_timer_ms must be between 0 and 100000, not -1.0",
        ),
    ];
    for (scenario, message) in cases {
        assert_eq!(scenario.plan().unwrap_err().to_string(), message);
    }
}
