//! The same scenario gives the same bytes, whatever else changes nothing in it.

use crate::common::{run, sending, single, starting, trace_file};
use verus_sim::{Change, FlowSpec, Outcome, Scenario};

/// Everything that a run yields, to the last bit: Rust prints the shortest text that reads back as
/// the same number.
fn print(outcome: &Outcome) -> String {
    format!("{outcome:?}")
}

/// Everything random at once: a generated channel, RED, random loss; every scheme; changes.
fn busy() -> Scenario {
    Scenario {
        trace: "city-driving-3g-up".to_owned(),
        queue: "red:min=30000,max=90000,p=0.1".to_owned(),
        loss: 0.01,
        flows: vec![
            FlowSpec::new("verus:ratio=2"),
            starting("verus:ratio=4,mode=paper", 1.0),
            starting("verus:ratio=4,mode=prototype", 1.5),
            starting("cubic", 2.0),
            FlowSpec::new("newreno"),
            FlowSpec {
                stop_s: Some(6.0),
                delay_ms: Some(45.0),
                ..FlowSpec::new("vegas")
            },
        ],
        ack: "same".to_owned(),
        duration_s: 10.0,
        records: true,
        ack_every: 2,
        changes: vec![Change {
            at_s: 5.0,
            delay_ms: Some(40.0),
            loss: Some(0.02),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn the_same_scenario_gives_the_same_bytes() {
    let (first, second) = (run(&busy()), run(&busy()));
    assert!(first.metrics.drops > 0, "nothing random happened");
    assert_eq!(print(&first), print(&second));
}

#[test]
fn a_plan_can_run_twice() {
    let plan = busy().plan().expect("valid");
    let run = || print(&plan.run(&mut |_| true).expect("not cancelled"));
    assert_eq!(run(), run());
}

#[test]
fn records_series_and_progress_do_not_touch_the_run() {
    let full = run(&busy());
    let bare = run(&Scenario {
        records: false,
        series: false,
        ..busy()
    });
    let metrics = |outcome: &Outcome| {
        let mut metrics = outcome.metrics.clone();
        metrics.series.clear();
        format!("{metrics:?} {:?}", outcome.flows[0].counters)
    };
    assert_eq!(metrics(&full), metrics(&bare));
}

/// A fixed channel, so that only requested elements are random.
fn lossy(seed: u64) -> Scenario {
    Scenario {
        seed,
        loss: 0.02,
        records: true,
        ..single("rate:20", "infinite", "newreno", 10.0)
    }
}

/// Numbers of a flow's packets that were lost, and how many it sent.
fn lost(outcome: &Outcome, flow: u32) -> (Vec<u64>, u64) {
    let records = outcome.records.as_ref().expect("asked for");
    let of_flow = |&at: &usize| records.flow[at] == flow;
    let all: Vec<usize> = (0..records.len()).filter(of_flow).collect();
    let lost = all
        .iter()
        .filter(|&&at| records.dropped_ms[at].is_finite())
        .map(|&at| records.number[at])
        .collect();
    (lost, all.len() as u64)
}

#[test]
fn another_seed_loses_other_packets() {
    assert_ne!(lost(&run(&lossy(1)), 0), lost(&run(&lossy(2)), 0));
}

#[test]
fn another_seed_drops_other_packets_in_red() {
    let red = |seed| {
        let queue = "red:min=15000,max=45000,p=0.1";
        let scenario = Scenario {
            seed,
            records: true,
            ..single("rate:10", queue, "cubic", 10.0)
        };
        lost(&run(&scenario), 0)
    };
    assert!(!red(1).0.is_empty());
    assert_eq!(red(1), red(1));
    assert_ne!(red(1), red(2));
}

#[test]
fn a_seed_changes_nothing_where_nothing_is_random() {
    let fixed = |seed| {
        print(&run(&Scenario {
            seed,
            ..single("rate:10", "droptail:bytes=60000", "cubic", 5.0)
        }))
    };
    assert_eq!(fixed(1), fixed(2));
}

/// A flow's n-th packet meets the flow's n-th draw, however many flows share the path, whatever
/// they run and whenever they start. (When they send still depends on each other: they share a
/// queue. So does what RED drops: its stream is the queue's, drawn from in order of arrival.)
#[test]
fn a_flow_added_leaves_the_losses_of_the_others_unchanged() {
    let alone = lost(&run(&lossy(1)), 0);
    for added in [
        FlowSpec::new("newreno"),
        starting("cubic", 3.0),
        starting("verus:ratio=4", 0.5),
        sending("vegas", 100_000),
    ] {
        let mut scenario = lossy(1);
        scenario.flows.push(added);
        let outcome = run(&scenario);
        let beside = lost(&outcome, 0);
        let common = alone.1.min(beside.1);
        assert!(common > 1000);
        let early = |(lost, _): &(Vec<u64>, u64)| -> Vec<u64> {
            lost.iter().copied().filter(|&n| n < common).collect()
        };
        assert_eq!(early(&alone), early(&beside));
        assert_ne!(lost(&outcome, 1).0, beside.0, "a stream of its own");
    }
}

/// Where the flows do not meet in a queue, nothing at all changes for those that were there.
#[test]
fn a_flow_added_beside_a_link_that_never_queues_changes_nothing_else() {
    let wide = |flows: Vec<FlowSpec>| {
        let scenario = Scenario {
            flows,
            loss: 0.01,
            records: true,
            ..single("rate:1000000", "infinite", "newreno", 5.0)
        };
        let outcome = run(&scenario);
        let records = outcome.records.expect("asked for");
        let rows: Vec<_> = (0..records.len())
            .filter(|&at| records.flow[at] < 2)
            .map(|at| {
                let fate = records.dropped_ms[at].is_finite();
                (records.flow[at], records.number[at], fate)
            })
            .collect();
        (rows, outcome.flows[0].counters, outcome.flows[1].counters)
    };
    let two = vec![
        sending("newreno", 3_000_000),
        sending("verus:ratio=4", 300_000),
    ];
    let mut three = two.clone();
    // Not a multiple of anything: the third flow's packets never meet the others' in the link.
    three.push(FlowSpec {
        start_s: 0.412_345_678,
        ..sending("cubic", 300_000)
    });
    let (alone, first, second) = wide(two);
    let (beside, first_beside, second_beside) = wide(three);
    assert_eq!(alone, beside);
    assert_eq!((first, second), (first_beside, second_beside));
}

#[test]
fn at_one_instant_arrivals_come_before_departures() {
    // Packet A is being sent until 1 ms and B fills the queue. A packet that arrives at 1 ms still
    // finds B waiting; a packet that arrives a moment later does not.
    let second_flow_dropped = |start_s| {
        let scenario = Scenario {
            flows: vec![
                sending("newreno", 3000),
                FlowSpec {
                    start_s,
                    ..sending("newreno", 1500)
                },
            ],
            ..single("rate:12", "droptail:packets=1", "newreno", 0.5)
        };
        run(&scenario).metrics.per_flow[1].drops
    };
    assert_eq!(second_flow_dropped(0.001), 1);
    assert_eq!(second_flow_dropped(0.001_001), 0);
}

#[test]
fn a_packet_may_use_an_opportunity_of_the_instant_it_arrives() {
    let scenario = Scenario {
        flows: vec![FlowSpec {
            start_s: 0.005,
            ..sending("newreno", 1500)
        }],
        records: true,
        ..single(
            &trace_file("every-5-ms", (1..=20).map(|n| n * 5)),
            "infinite",
            "newreno",
            0.09,
        )
    };
    let records = run(&scenario).records.expect("asked for");
    assert_eq!(records.departed_ms, [5.0]);
}

#[test]
fn at_one_instant_feedback_comes_before_timers() {
    // 1 ms on the link and 499.5 ms each way: the first acknowledgement arrives at the very
    // instant at which the first timeout, 1 s, would fire.
    let timeouts = |delay_ms| {
        let scenario = Scenario {
            delay_ms,
            flows: vec![sending("newreno", 1500)],
            ..single("rate:12", "infinite", "newreno", 1.9)
        };
        run(&scenario).flows[0].counters.timeouts
    };
    assert_eq!(timeouts(499.5), 0);
    assert_eq!(timeouts(499.501), 1);
}

#[test]
fn at_one_instant_changes_come_before_packets() {
    let losses = |at_s| {
        let scenario = Scenario {
            changes: vec![Change {
                at_s,
                loss: Some(1.0),
                ..Default::default()
            }],
            flows: vec![FlowSpec {
                start_s: 0.1,
                ..sending("newreno", 1500)
            }],
            ..single("rate:12", "infinite", "newreno", 0.3)
        };
        run(&scenario).metrics.path_losses
    };
    assert_eq!(losses(0.1), 1);
    assert_eq!(losses(0.100_001), 0);
}

/// Where no observer and no sender could notice the difference, a packet's arrival and that of its acknowledgement are
/// one event. A change of delay that changes nothing makes them two again. (Two flows may swap
/// places where both hear something in the same instant: the order of adding is another.)
#[test]
fn one_event_for_a_packet_and_its_answer_changes_nothing() {
    for scheme in ["verus:ratio=2", "cubic", "newreno", "vegas"] {
        let joined = Scenario {
            trace: "highway-driving-3g-up".to_owned(),
            flows: vec![FlowSpec::new(scheme)],
            duration_s: 20.0,
            loss: 0.001,
            records: true,
            ..Scenario::default()
        };
        let mut apart = joined.clone();
        apart.changes = vec![Change {
            at_s: 19.0,
            delay_ms: Some(joined.delay_ms),
            ..Default::default()
        }];
        let (joined, apart) = (run(&joined), run(&apart));
        assert!(joined.metrics == apart.metrics, "{scheme}");
        let acked =
            |outcome: &Outcome| format!("{:?}", outcome.records.as_ref().expect("asked for"));
        assert!(acked(&joined) == acked(&apart), "{scheme}");
        assert!(joined.totals.events < apart.totals.events);
    }
}
