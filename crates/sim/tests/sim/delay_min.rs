//! D_min: in the default mode it follows the path, and not the queue of flows that began together; of those that began
//! apart the paper's cannot tell.

use crate::common::{run, run_all, single, starting};
use verus_sim::{Change, FlowSpec, Outcome, Scenario};

const RED: &str = "red:min=375000,max=1125000,p=0.1";
/// Both ways, ms.
const BASE_RTT_MS: f64 = 40.0;

/// BBR's flows that begin together find each other's packets in the queue, unless a handshake has measured the path.
#[test]
fn a_handshake_tells_bbr_the_round_trip_without_queues() {
    for scheme in ["bbr1", "bbr"] {
        for handshake in [false, true] {
            let outcome = run(&Scenario {
                handshake,
                flows: (0..10).map(|_| FlowSpec::new(scheme)).collect(),
                ..single("rate:4", "infinite", scheme, 1.0)
            });
            let first = |flow| delay_min(&outcome, flow)[0].1;
            let bare = (0..10).filter(|&flow| first(flow) == BASE_RTT_MS).count();
            assert_eq!(bare, if handshake { 10 } else { 0 }, "{scheme}");
        }
    }
}

#[test]
fn a_handshake_over_a_path_without_delay_tells_nothing() {
    for scheme in ["bbr1", "bbr"] {
        let of = |handshake| {
            run(&Scenario {
                handshake,
                delay_ms: 0.0,
                ..single("rate:4", "infinite", scheme, 1.0)
            })
        };
        assert_eq!(
            delay_min(&of(true), 0),
            delay_min(&of(false), 0),
            "{scheme}"
        );
    }
}

/// D_min of a flow over time, as (end of the bin in s, ms).
fn delay_min(outcome: &Outcome, flow: usize) -> Vec<(f64, f64)> {
    let flow = &outcome.flows[flow];
    let column = flow
        .columns
        .iter()
        .position(|&name| name == "delay_min_ms")
        .expect("Verus shows its D_min");
    let times = (1..).map(|bin| f64::from(bin) * outcome.bin_ms / 1e3);
    times
        .zip(flow.samples[column].iter().copied())
        .filter(|(_, ms)| ms.is_finite())
        .collect()
}

/// The share of the capacity that was used in [from, to) s.
fn utilization(outcome: &Outcome, from: f64, to: f64) -> f64 {
    let bins = |s: f64| (s * 1e3 / outcome.bin_ms) as usize;
    let used: f64 = outcome
        .metrics
        .series
        .iter()
        .map(|flow| {
            flow.throughput_mbps[bins(from)..bins(to)]
                .iter()
                .sum::<f64>()
        })
        .sum();
    used / outcome.capacity_mbps[bins(from)..bins(to)]
        .iter()
        .sum::<f64>()
}

#[test]
fn d_min_rises_within_ten_seconds_when_the_path_gets_longer() {
    let at = 20.0;
    let mut scenarios = Vec::new();
    for channel in ["rate:10", "city-driving-3g-up", "highway-driving-3g-up"] {
        for ratio in [2, 4, 6] {
            scenarios.push(Scenario {
                changes: vec![Change {
                    at_s: at,
                    delay_ms: Some(45.0),
                    ..Default::default()
                }],
                ..single(channel, RED, &format!("verus:ratio={ratio}"), 60.0)
            });
        }
    }
    let runs = run_all(&scenarios, |outcome| outcome);
    let mut problems = Vec::new();
    for outcome in &runs {
        let name = format!("{} over {}", outcome.flows[0].scheme, outcome.channel.name);
        let series = delay_min(outcome, 0);
        let risen = series.iter().find(|&&(s, ms)| s > at && ms >= 85.0);
        let (before, after) = (
            utilization(outcome, 10.0, 20.0),
            utilization(outcome, 35.0, 60.0),
        );
        let last = series.last().expect("a series");
        let line = format!(
            "{name}: above 85 ms at {risen:?}, at the end {last:?}, utilization {before:.3} then {after:.3}"
        );
        println!("{line}");
        if risen.is_none_or(|&(s, _)| s > at + 10.0) || after < 0.9 * before {
            problems.push(line);
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Flows of the default mode that start together.
fn crowd(channel: &str, flows: usize) -> Scenario {
    Scenario {
        flows: vec![FlowSpec::new("verus:ratio=2"); flows],
        ..single(channel, RED, "verus:ratio=2", 90.0)
    }
}

/// Compares each flow's D_min with the path's, from 10 s after the flow's start. Two figures count:
/// the share of time that it is more than 15 % above, and its maximum. Returns a line for each run
/// whose share exceeds `tolerated`.
fn absorbed(scenarios: &[Scenario], tolerated: f64) -> Vec<String> {
    let runs = run_all(scenarios, |outcome| outcome);
    let mut problems = Vec::new();
    for (scenario, outcome) in scenarios.iter().zip(&runs) {
        let mut worst = (0.0f64, 0.0f64);
        for (flow, spec) in scenario.flows.iter().enumerate() {
            let mut settled = delay_min(outcome, flow);
            settled.retain(|&(s, _)| s > spec.start_s + 10.0);
            let above = |&&(_, ms): &&(f64, f64)| ms > BASE_RTT_MS * 1.15;
            let share = settled.iter().filter(above).count() as f64 / settled.len() as f64;
            let max_ms = settled.iter().map(|&(_, ms)| ms).fold(0.0, f64::max);
            worst = (worst.0.max(share), worst.1.max(max_ms));
        }
        let line = format!(
            "{} flows over {}: above the path's for {:.1} % of the time, up to {:.1} ms",
            scenario.flows.len(),
            scenario.trace,
            worst.0 * 100.0,
            worst.1
        );
        println!("{line}");
        if worst.0 > tolerated {
            problems.push(line);
        }
    }
    problems
}

/// Flows that start together met D_min at the same moment, drain together and see the path.
#[test]
fn d_min_of_flows_that_start_together_is_the_paths_and_not_their_queue() {
    let mut scenarios = Vec::new();
    for channel in ["rate:20", "city-driving-lte-down"] {
        for flows in [5, 10] {
            scenarios.push(crowd(channel, flows));
        }
    }
    let problems = absorbed(&scenarios, 0.0);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Five flows that start 0.5 s apart and lose nothing: their mean queueing delay over what R tolerates, and the largest
/// D_min that one has at any time, in ms.
fn apart(ratio: u32, told: &str) -> (f64, f64) {
    let scheme = format!("verus:ratio={ratio}{told}");
    let scenario = Scenario {
        flows: (0..5)
            .map(|n| starting(&scheme, f64::from(n) * 0.5))
            .collect(),
        ..single("rate:20", "infinite", "verus", 30.0)
    };
    let outcome = run(&scenario);
    let max_delay_min_ms = (0..scenario.flows.len())
        .flat_map(|flow| delay_min(&outcome, flow))
        .map(|(_, ms)| ms)
        .fold(0.0, f64::max);
    let delay = outcome.metrics.qdelay_mean_ms.expect("packets arrived");
    (
        delay / (f64::from(ratio - 1) * BASE_RTT_MS),
        max_delay_min_ms,
    )
}

/// Explains why the delay of flows that come and go exceeds the tolerance of R. D_min is "the
/// minimum delay experienced". A flow that starts while a queue stands has never seen the path
/// empty, takes the queue for it, and tolerates R times that. With a D_min that is set instead, the
/// law keeps to R.
#[test]
fn what_r_tolerates_is_kept_where_d_min_is_known_and_not_where_it_is_learned_from_a_queue_that_stands()
 {
    for ratio in [4, 6] {
        let (delay, _) = apart(ratio, ",told_delay_min_ms=41");
        println!("R = {ratio}, D_min told: {delay:.2} of what R tolerates");
        assert!(delay <= 1.1, "told, and beyond what R tolerates");
        let (delay, least) = apart(ratio, "");
        println!("R = {ratio}, D_min up to {least:.1} ms: {delay:.2} of what R tolerates");
        assert!(
            delay > 2.0 && least > 2.0 * BASE_RTT_MS,
            "docs/verus.md says otherwise"
        );
    }
}
