//! The required behaviour of the other senders: the measurements of their sources.
//!
//! Measured peers are recordings (`make test-recordings`). The suites (`python/verus/suites`) have
//! the scenarios of C4's and picoquic's simulators; `python/tests/test_check.py` runs them.

use crate::common::{Table, run_all, shared, single, trace};
use verus_sim::{Change, FlowSpec, Scenario};

const RED_CS244: &str = "red:min=375000,max=1125000,p=0.1,preset=cs244";
const MEASURED: &str = "reference/peers-measured.csv";
/// Of utilization, and of the 95th percentile of delay.
const NEAR: (f64, f64) = (0.05, 0.30);

/// Compares our `scheme` with the measurements of `measured` behind Mahimahi, on each recording
/// (first repetition). At least `least` of eight must be near.
fn assert_near_measured(measured: &str, scheme: &str, ack_every: u32, least: usize) {
    let shared = shared();
    let table = Table::read(&shared.join(MEASURED));
    let rows: Vec<&Vec<String>> = table
        .rows
        .iter()
        .filter(|row| table.get(row, "scheme") == measured)
        .filter(|row| table.get(row, "queue") == RED_CS244)
        .filter(|row| table.get(row, "repetition") == "1")
        .collect();
    assert_eq!(rows.len(), 8, "one for each recording");
    let scenarios: Vec<Scenario> = rows
        .iter()
        .map(|row| {
            let ack = table.get(row, "ack_path");
            let ack = if ack.starts_with("rate:") {
                ack.to_owned()
            } else {
                trace(&shared, ack)
            };
            Scenario {
                ack,
                ack_queue: RED_CS244.to_owned(),
                // The device header that Mahimahi accounts.
                packet_bytes: 1504,
                ack_every,
                series: false,
                ..single(
                    &trace(&shared, table.get(row, "trace")),
                    RED_CS244,
                    scheme,
                    60.0,
                )
            }
        })
        .collect();
    let runs = run_all(&scenarios, |outcome| outcome.metrics);
    let mut near = 0;
    for (row, ours) in rows.iter().zip(&runs) {
        let used = ours.utilization.expect("the channel carries something");
        let p95 = ours.qdelay_p95_ms.expect("packets left");
        let measurement = (
            table.number(row, "utilization"),
            table.number(row, "qdelay_p95_ms"),
        );
        let holds =
            (used - measurement.0).abs() <= NEAR.0 && (p95 / measurement.1 - 1.0).abs() <= NEAR.1;
        near += usize::from(holds);
        println!(
            "{} {}: utilization {used:.3} ({:.3}), p95 {p95:.0} ms ({:.0}), mean {:.0} ({})",
            if holds { "near" } else { "far " },
            table.get(row, "trace"),
            measurement.0,
            measurement.1,
            ours.qdelay_mean_ms.expect("packets left"),
            table.get(row, "qdelay_mean_ms"),
        );
    }
    assert!(near >= least, "near on {near} of 8");
}

#[test]
#[ignore = "reads recordings: make test-recordings"]
fn our_bbr_behaves_like_the_kernels() {
    assert_near_measured("linux-bbr-v1", "bbr1", 2, 6);
}

#[test]
#[ignore = "reads recordings: make test-recordings"]
fn our_copa_behaves_like_its_authors_code_on_most_recordings() {
    // Their code is not the paper's Copa: v doubles from the second round trip in which most
    // updates go the same way. Time that the window held the sender back counts as credit, so that
    // nothing is paced. With both, ours uses 68 % of Verizon's link, as theirs. In the city theirs
    // had no whole core: where it had, over a queue without end, it used 81 %.
    assert_near_measured("copa-genericcc:delta=0.5", "copa", 1, 6);
}

#[test]
fn copa_flows_keep_as_many_packets_queued_as_their_delta_says() {
    /// Competition aside: where flows' memories of the bare path end at different times, one takes the other for a competitor.
    const SCHEME: &str = "copa:competitive=no";
    const SETTLED_S: f64 = 10.0;
    let mut wrong = Vec::new();
    for flows in [1u32, 2, 4] {
        let scenario = Scenario {
            flows: (0..flows).map(|_| FlowSpec::new(SCHEME)).collect(),
            ..single("rate:24", "infinite", SCHEME, 60.0)
        };
        let outcome = crate::common::run(&scenario);
        let packet_ms = f64::from(scenario.packet_bytes) * 8.0 / 24e3;
        let from = (SETTLED_S * 1e3 / outcome.bin_ms) as usize;
        let (mut sum, mut count) = (0.0, 0.0);
        for flow in &outcome.metrics.series {
            for ms in flow.qdelay_mean_ms[from..].iter().flatten() {
                (sum, count) = (sum + ms, count + 1.0);
            }
        }
        // A packet's own transmission is no queue before it.
        let queued = sum / count / packet_ms - 1.0;
        let fixed = f64::from(flows) / 0.5;
        let used = outcome.metrics.utilization.expect("a link");
        let line =
            format!("{flows} flows: {queued:.2} packets queued, {fixed} aimed at, {used:.3} used");
        println!("{line}");
        if !(fixed..=1.25 * fixed).contains(&queued) || used < 0.95 {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A live source over a link whose rate changes: Mbit/s in each second, and the metrics.
fn live(scheme: &str) -> (Vec<f64>, verus_measure::Metrics) {
    /// Frames of one size, and more than the link can carry where the sender says nothing of a bitrate.
    const TRAFFIC: &str = "video:bytes=40000,key_bytes=40000,fps=30,deadline_ms=250";
    let rates = [(30.0, 3.0), (60.0, 10.0)];
    let changes = rates.map(|(at_s, rate_mbps)| Change {
        at_s,
        rate_mbps: Some(rate_mbps),
        ..Default::default()
    });
    let mut flow = FlowSpec::new(scheme);
    flow.traffic = Some(TRAFFIC.to_owned());
    let scenario = Scenario {
        flows: vec![flow],
        changes: changes.to_vec(),
        ..single("rate:10", "droptail:bytes=250000", scheme, 90.0)
    };
    let outcome = crate::common::run(&scenario);
    let per_second = (1e3 / outcome.bin_ms).round() as usize;
    let series = &outcome.metrics.series[0].throughput_mbps;
    let seconds = series.chunks(per_second);
    let rates = seconds.map(|bins| bins.iter().sum::<f64>() / bins.len() as f64);
    (rates.collect(), outcome.metrics)
}

#[test]
fn a_live_source_follows_the_bitrate_that_scream_says() {
    let (mbps, metrics) = live("scream");
    let (_, cubic) = live("cubic");
    let mean = |from: usize, to: usize| mbps[from..to].iter().sum::<f64>() / (to - from) as f64;
    let used = [mean(20, 30) / 10.0, mean(40, 60) / 3.0, mean(80, 90) / 10.0];
    let late = metrics.late.expect("frames");
    println!(
        "used {used:.2?} of 10, 3 and 10 Mbit/s; {late} of 2700 frames late, p99 {:.0?} ms; under Cubic {:?} late",
        metrics.completion_p99_s.map(|s| s * 1e3),
        cubic.late
    );
    assert!(used.iter().all(|share| *share > 0.95));
    assert!(late < 27, "one in a hundred");
    assert!(metrics.completion_p99_s.is_some_and(|s| s < 0.1));
    assert!(cubic.late.is_some_and(|late| late > 1000));
}
