//! Each metric against a case worked by hand.

use proptest::prelude::*;
use verus_core::{Bytes, Duration, Time};
use verus_measure::{Meter, Metrics, rate_series};

const BIN: Duration = Duration::from_millis(100);
const MTU: Bytes = Bytes::new(1500);

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// A packet of 1500 bytes that enters at `entered` and leaves at `left`, both in ms.
fn packet(meter: &mut Meter, flow: usize, entered: u64, left: u64) {
    meter.on_arrival(ms(entered), flow, MTU);
    meter.on_departure(ms(left), flow, MTU, ms(entered));
}

fn finish(meter: Meter, end_ms: u64) -> Metrics {
    meter.finish(ms(end_ms), |from, to| {
        Bytes::new(3000 * to.since(from).as_nanos() / 1_000_000)
    })
}

#[test]
fn rates_are_over_the_time_from_the_first_arrival_to_the_end() {
    let mut meter = Meter::new(1, &[Duration::from_millis(40)], BIN);
    packet(&mut meter, 0, 500, 510);
    packet(&mut meter, 0, 600, 630);
    let metrics = finish(meter, 1500);
    assert_eq!(metrics.interval_s, 1.0);
    // 3000 bytes in one second; the channel carries 3000 bytes each millisecond.
    assert_eq!(metrics.throughput_mbps, 0.024);
    assert_eq!(metrics.capacity_mbps, 24.0);
    assert_eq!(metrics.utilization, Some(0.001));
    assert_eq!(metrics.qdelay_mean_ms, Some(20.0));
    assert_eq!(metrics.qdelay_max_ms, Some(30.0));
    // 0.024 Mbit/s over 20 + 40 ms.
    assert!((metrics.power.expect("delay is known") - 0.4).abs() < 1e-12);
}

#[test]
fn capacity_is_asked_once_about_the_measured_interval() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 7, 8);
    let mut intervals = Vec::new();
    meter.finish(ms(20), |from, to| {
        intervals.push((from, to));
        Bytes::ZERO
    });
    assert_eq!(intervals, [(ms(7), ms(20))]);
}

#[test]
fn quantiles_are_elements_at_the_rounded_down_rank() {
    let mut meter = Meter::new(1, &[], BIN);
    for delay in 1..=100 {
        packet(&mut meter, 0, 200 * delay, 201 * delay);
    }
    let metrics = finish(meter, 30_000);
    assert_eq!(metrics.qdelay_p50_ms, Some(51.0));
    assert_eq!(metrics.qdelay_p95_ms, Some(96.0));
    assert_eq!(metrics.qdelay_p99_ms, Some(100.0));
}

#[test]
fn dropped_and_queued_packets_count_in_arrivals_but_not_in_delay() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 0, 5);
    meter.on_arrival(ms(6), 0, MTU);
    meter.on_drop(0, MTU);
    meter.on_arrival(ms(7), 0, MTU);
    meter.on_arrival(ms(8), 0, MTU);
    let metrics = finish(meter, 10);
    assert_eq!(
        (
            metrics.arrivals,
            metrics.departures,
            metrics.drops,
            metrics.backlog
        ),
        (4, 1, 1, 2)
    );
    assert_eq!(metrics.dropped_bytes, 1500);
    assert_eq!(metrics.loss_rate, Some(0.25));
    assert_eq!(metrics.qdelay_mean_ms, Some(5.0));
}

#[test]
fn packets_lost_on_the_way_are_neither_arrivals_nor_drops() {
    let mut meter = Meter::new(2, &[], BIN);
    packet(&mut meter, 0, 0, 5);
    packet(&mut meter, 0, 1, 6);
    for flow in [0, 1, 1] {
        meter.on_arrival(ms(6), flow, MTU);
        meter.on_path_loss(flow, MTU);
    }
    meter.on_arrival(ms(7), 0, MTU);
    meter.on_drop(0, MTU);
    let metrics = finish(meter, 10);
    assert_eq!(
        (metrics.arrivals, metrics.drops, metrics.path_losses),
        (3, 1, 3)
    );
    assert_eq!((metrics.arrived_bytes, metrics.backlog), (3 * MTU.get(), 0));
    assert_eq!(metrics.loss_rate, Some(1.0 / 3.0));
    assert_eq!(metrics.path_loss_rate, Some(0.5));
    let [first, second] = &metrics.per_flow[..] else {
        panic!("two flows");
    };
    assert_eq!(
        (first.loss_rate, first.path_loss_rate),
        (Some(1.0 / 3.0), Some(0.25))
    );
    assert_eq!((second.loss_rate, second.path_loss_rate), (None, Some(1.0)));
}

#[test]
fn what_the_ends_saw_is_reported_and_otherwise_unknown() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 0, 5);
    let metrics = finish(meter, 1000);
    assert_eq!(
        (
            metrics.goodput_mbps,
            metrics.rtt_mean_ms,
            metrics.retransmit_rate
        ),
        (None, None, None)
    );
    assert_eq!(metrics.power, None);

    let mut meter = Meter::new(1, &[], BIN);
    for retransmission in [false, false, false, true] {
        meter.on_sent(0, retransmission);
    }
    packet(&mut meter, 0, 0, 5);
    meter.on_delivery(0, Bytes::new(1000));
    meter.on_rtt(0, Duration::from_millis(45));
    meter.on_rtt(0, Duration::from_millis(55));
    let metrics = finish(meter, 1000);
    assert_eq!(metrics.goodput_mbps, Some(0.008));
    assert_eq!(metrics.rtt_mean_ms, Some(50.0));
    assert_eq!(metrics.rtt_p95_ms, Some(55.0));
    assert_eq!(metrics.retransmit_rate, Some(0.25));
}

#[test]
fn fairness_is_averaged_over_whole_seconds_in_which_something_was_delivered() {
    let mut meter = Meter::new(2, &[], BIN);
    // The first second, from 100 ms on: one packet each, index 1. The second: no flow. The third:
    // one flow only, index 1/2. The rest is not a whole second.
    packet(&mut meter, 0, 100, 101);
    packet(&mut meter, 1, 200, 201);
    packet(&mut meter, 1, 2100, 2100);
    packet(&mut meter, 0, 3100, 3100);
    let metrics = finish(meter, 3900);
    assert_eq!(metrics.jain, Some(0.75));
    // The flows that were on were not reported, so all count as on.
    assert_eq!(metrics.jain_active, Some(0.75));
}

#[test]
fn active_fairness_leaves_out_flows_that_were_off_for_the_whole_second() {
    let mut meter = Meter::new(2, &[], BIN);
    meter.set_active(ms(0), 0, true);
    packet(&mut meter, 0, 0, 1);
    meter.set_active(ms(1000), 1, true);
    packet(&mut meter, 0, 1000, 1001);
    packet(&mut meter, 1, 1000, 1001);
    // Off at the very start of the third second: not on in it.
    meter.set_active(ms(2000), 1, false);
    packet(&mut meter, 0, 2000, 2001);
    // On for a moment of the fourth.
    meter.set_active(ms(3500), 1, true);
    meter.set_active(ms(3501), 1, false);
    packet(&mut meter, 0, 3600, 3601);
    let metrics = finish(meter, 4000);
    assert_eq!(metrics.jain, Some((0.5 + 1.0 + 0.5 + 0.5) / 4.0));
    assert_eq!(metrics.jain_active, Some((1.0 + 1.0 + 1.0 + 0.5) / 4.0));
    // Four packets and one.
    let rates = [1, 0].map(|flow: usize| Some(metrics.per_flow[flow].throughput_mbps));
    assert_eq!([metrics.flow_min_mbps, metrics.flow_max_mbps], rates);
    assert!(rates[0] < rates[1]);
}

#[test]
fn one_flow_is_fair_and_less_than_a_second_has_no_index() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 0, 1);
    assert_eq!(finish(meter, 1000).jain, Some(1.0));
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 0, 1);
    assert_eq!(finish(meter, 999).jain, None);
}

#[test]
fn signal_delay_is_sampled_between_the_arrivals_of_delivered_packets() {
    let mut meter = Meter::new(2, &[], BIN);
    // Entered at 10, 10, 11 and 15: samples 5, 9, 5, 4, 3, 2; element ⌊0.95·6⌋ is 9. The packet
    // that is still queued has no part in it.
    packet(&mut meter, 0, 10, 17);
    meter.on_arrival(ms(10), 1, MTU);
    meter.on_departure(ms(15), 1, MTU, ms(10));
    packet(&mut meter, 0, 11, 20);
    packet(&mut meter, 1, 15, 17);
    meter.on_arrival(ms(900), 0, MTU);
    assert_eq!(finish(meter, 1000).signal_delay_p95_ms, Some(9.0));
}

#[test]
fn each_flow_has_its_own_figures_and_they_add_up() {
    let mut meter = Meter::new(
        2,
        &[Duration::from_millis(20), Duration::from_millis(60)],
        BIN,
    );
    packet(&mut meter, 0, 0, 10);
    packet(&mut meter, 0, 10, 20);
    packet(&mut meter, 0, 20, 30);
    packet(&mut meter, 1, 30, 60);
    meter.on_arrival(ms(40), 1, MTU);
    meter.on_drop(1, MTU);
    let metrics = finish(meter, 1000);
    let [first, second] = &metrics.per_flow[..] else {
        panic!("two flows")
    };
    assert_eq!(
        (first.throughput_mbps, second.throughput_mbps),
        (0.036, 0.012)
    );
    assert_eq!(
        (first.qdelay_mean_ms, second.qdelay_mean_ms),
        (Some(10.0), Some(30.0))
    );
    assert_eq!(
        (first.qdelay_p95_ms, second.qdelay_p95_ms),
        (Some(10.0), Some(30.0))
    );
    assert_eq!((first.loss_rate, second.loss_rate), (Some(0.0), Some(0.5)));
    assert_eq!(metrics.throughput_mbps, 0.048);
    assert_eq!(metrics.qdelay_mean_ms, Some(15.0));
    assert_eq!(metrics.qdelay_p95_ms, Some(30.0));
    // 0.048 Mbit/s over 15 ms and a mean base of (3·20 + 60)/4 = 30 ms.
    assert!((metrics.power.expect("delay is known") - 0.048 / 0.045).abs() < 1e-12);
}

#[test]
fn series_have_a_value_per_bin_and_the_last_bin_is_cut_at_the_end() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 0, 10);
    packet(&mut meter, 0, 20, 40);
    // Leaves at the end of a bin: counts in the next.
    packet(&mut meter, 0, 90, 100);
    packet(&mut meter, 0, 310, 320);
    let metrics = finish(meter, 350);
    let [series] = &metrics.series[..] else {
        panic!("one flow")
    };
    assert_eq!(series.bin_ms, 100.0);
    assert_eq!(series.throughput_mbps, [0.24, 0.12, 0.0, 0.24]);
    assert_eq!(
        series.qdelay_mean_ms,
        [Some(15.0), Some(10.0), None, Some(10.0)]
    );
    assert_eq!(
        series.qdelay_max_ms,
        [Some(20.0), Some(10.0), None, Some(10.0)]
    );
    let capacity = rate_series(ms(350), BIN, |from, to| {
        MTU * (to.since(from).as_nanos() / 1_000_000)
    });
    assert_eq!(capacity, [12.0; 4]);
}

#[test]
fn what_leaves_at_the_very_end_is_in_the_last_bin() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 150, 200);
    let metrics = finish(meter, 200);
    assert_eq!(metrics.series[0].throughput_mbps, [0.0, 0.12]);
    assert_eq!(metrics.series[0].qdelay_max_ms, [None, Some(50.0)]);
    assert_eq!(metrics.throughput_mbps, 0.24);
}

#[test]
fn a_run_without_packets_has_zero_rates_and_no_delays() {
    for flows in [0, 1, 3] {
        let metrics = finish(Meter::new(flows, &[], BIN), 250);
        assert_eq!(
            (
                metrics.throughput_mbps,
                metrics.capacity_mbps,
                metrics.arrivals
            ),
            (0.0, 0.0, 0)
        );
        assert_eq!(
            (metrics.utilization, metrics.loss_rate, metrics.jain),
            (None, None, None)
        );
        assert_eq!(
            (metrics.qdelay_mean_ms, metrics.signal_delay_p95_ms),
            (None, None)
        );
        assert_eq!(metrics.per_flow.len(), flows);
        assert!(
            metrics
                .series
                .iter()
                .all(|series| series.throughput_mbps == [0.0; 3])
        );
    }
}

#[test]
fn unknown_is_null_in_json_under_the_names_that_files_use() {
    let mut meter = Meter::new(1, &[], BIN);
    packet(&mut meter, 0, 0, 5);
    let json = serde_json::to_value(finish(meter, 10)).expect("plain numbers");
    for name in
        "capacity_mbps throughput_mbps utilization qdelay_mean_ms qdelay_p50_ms qdelay_p95_ms \
                 qdelay_p99_ms signal_delay_p95_ms loss_rate"
            .split_whitespace()
    {
        assert!(json[name].is_number(), "{name} in {json}");
    }
    for name in "goodput_mbps rtt_mean_ms rtt_p95_ms retransmit_rate jain jain_active power"
        .split_whitespace()
    {
        assert!(
            json.get(name).is_some_and(|value| value.is_null()),
            "{name} in {json}"
        );
    }
    assert_eq!(json["per_flow"][0]["qdelay_p95_ms"], 5.0);
}

proptest! {

    #[test]
    fn any_events_give_numbers_that_add_up(
        events in prop::collection::vec((0..400_000_000u64, 0..8u8, 0..3usize, 0..3000u64), 0..200),
        base_known: bool,
        tail in 0..2_000_000_000u64,
    ) {
        let base = [Duration::ZERO; 3];
        let mut meter = Meter::new(3, if base_known { &base } else { &[] }, BIN);
        let mut now = Time::ZERO;
        let mut queue = std::collections::VecDeque::new();
        for (step, event, flow, size) in events {
            now += Duration::from_nanos(step);
            let bytes = Bytes::new(size);
            match event {
                0 | 1 => {
                    meter.on_arrival(now, flow, bytes);
                    queue.push_back((flow, bytes, now));
                }
                2 | 3 => if let Some((flow, bytes, entered)) = queue.pop_front() {
                    meter.on_departure(now, flow, bytes, entered);
                    meter.on_delivery(flow, bytes);
                }
                4 => if let Some((flow, bytes, _)) = queue.pop_back() {
                    meter.on_drop(flow, bytes);
                }
                5 => meter.on_sent(flow, size % 2 == 0),
                6 => meter.on_rtt(flow, Duration::from_micros(size)),
                _ => meter.set_active(now, flow, size % 2 == 0),
            }
        }
        let end = now + Duration::from_nanos(tail);
        let metrics = meter.finish(end, |from, to| Bytes::new(to.since(from).as_nanos() / 1000));
        let shown = format!("{metrics:?}");
        prop_assert!(!shown.contains("NaN") && !shown.contains("inf"), "{}", shown);
        prop_assert_eq!(metrics.backlog, queue.len() as u64);
        prop_assert_eq!(metrics.per_flow.iter().map(|flow| flow.arrivals).sum::<u64>(), metrics.arrivals);
        let total: f64 = metrics.per_flow.iter().map(|flow| flow.throughput_mbps).sum();
        prop_assert!((total - metrics.throughput_mbps).abs() < 1e-9);
        let bins = end.as_nanos().div_ceil(BIN.as_nanos()) as usize;
        for series in &metrics.series {
            prop_assert_eq!(series.throughput_mbps.len(), bins.max(usize::from(series.throughput_mbps.iter().any(|r| *r > 0.0))));
        }
        for index in [metrics.jain, metrics.jain_active].iter().flatten() {
            prop_assert!((1.0 / 3.0 - 1e-9..=1.0 + 1e-9).contains(index));
        }
        let quantiles = [metrics.qdelay_p50_ms, metrics.qdelay_p95_ms, metrics.qdelay_p99_ms, metrics.qdelay_max_ms];
        prop_assert!(quantiles.is_sorted());
    }
}

#[test]
fn without_series_everything_else_is_the_same() {
    let run = |mut meter: Meter| {
        for left in 10..5_000 {
            packet(
                &mut meter,
                usize::from(left % 3 == 0),
                left - left % 7,
                left,
            );
        }
        finish(meter, 5_000)
    };
    let meter = || Meter::new(2, &[], BIN);
    let (mut with, without) = (run(meter()), run(meter().without_series()));
    assert_eq!(with.series.len(), 2);
    assert!(without.series.is_empty());
    with.series.clear();
    assert_eq!(with, without);
}
