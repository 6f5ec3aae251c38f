//! The results of flows, from the reports of their two ends.
//!
//! On a live path the bottleneck cannot be observed: [`PathFlow`] is a flow there, and
//! [`PathTotals`] the results of one direction's flows. On an emulated link the bottleneck has a
//! [`Meter`](crate::Meter), and the ends add values that it cannot measure: [`EndMetrics`].

use serde::Serialize;
use verus_core::{Bytes, Duration};

use crate::fairness::{self, Average};
use crate::meter::{mbps, ratio};
use crate::path::PathMeter;

/// One flow of a live path, as both ends know it in the end.
#[derive(Clone, Copy, Debug)]
pub struct PathFlow<'a> {
    /// Arrivals and their times.
    pub meter: &'a PathMeter,
    /// Bytes that arrived for the first time.
    pub distinct: Bytes,
    /// Packets sent.
    pub sent: u64,
    /// Of these, declared lost.
    pub lost: u64,
    /// Of these, sent again.
    pub retransmitted: u64,
    /// Mean round-trip time as the sender measured it, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
}

/// The metrics of a flow of a live path, or of several together, under the names of [`Metrics`](crate::Metrics). The
/// queueing delay is an estimate: the one-way delay above the least of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PathMetrics {
    /// Bytes that arrived, copies included, Mbit/s; none where nothing arrived of any flow: that is no rate of the path's.
    pub throughput_mbps: Option<f64>,
    /// Bytes that arrived for the first time, Mbit/s; none likewise.
    pub goodput_mbps: Option<f64>,
    /// Mean one-way delay above its least, ms. For several flows, this and the following delays in
    /// ms are the mean of theirs, weighted by the packets that arrived.
    pub qdelay_mean_ms: Option<f64>,
    /// Its median, ms.
    pub qdelay_p50_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub qdelay_p95_ms: Option<f64>,
    /// Its 99th percentile, ms.
    pub qdelay_p99_ms: Option<f64>,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets declared lost / packets sent; none if none were sent, or nothing arrived of any flow.
    pub loss_rate: Option<f64>,
    /// Packets sent again / packets sent; none likewise.
    pub retransmit_rate: Option<f64>,
}

impl PathMetrics {
    /// The same without rates and shares: those of a test in which nothing arrived.
    #[must_use]
    pub fn without_arrivals(self) -> Self {
        PathMetrics {
            throughput_mbps: None,
            goodput_mbps: None,
            loss_rate: None,
            retransmit_rate: None,
            ..self
        }
    }
}

/// The results of the flows of one direction of a live path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PathTotals {
    /// All of them together.
    #[serde(flatten)]
    pub metrics: PathMetrics,
    /// Jain's index of each flow's arrivals in each whole second, averaged over the seconds with
    /// any arrival.
    pub jain: Option<f64>,
    /// The same: all flows are on for the whole test.
    pub jain_active: Option<f64>,
    /// Throughput of the flow that got least, Mbit/s; none where nothing arrived.
    pub flow_min_mbps: Option<f64>,
    /// Throughput of the flow that got most, Mbit/s; none likewise.
    pub flow_max_mbps: Option<f64>,
    /// Throughput / mean round-trip time, Mbit/s per second of delay.
    pub power: Option<f64>,
    /// The time that rates are over.
    #[serde(skip)]
    pub interval: Duration,
}

impl PathFlow<'_> {
    /// The flow's metrics, beside flows of which something arrived. Rates are over `interval`, or where there is none until
    /// the flow's last arrival.
    pub fn metrics(&self, interval: Option<Duration>) -> PathMetrics {
        let meter = self.meter;
        let interval = interval.or(meter.elapsed()).unwrap_or_default();
        let share = |part: u64| ratio(part as f64, self.sent as f64);
        PathMetrics {
            throughput_mbps: Some(mbps(meter.delivered().get(), interval)),
            goodput_mbps: Some(mbps(self.distinct.get(), interval)),
            qdelay_mean_ms: meter.delay_mean_ms(),
            qdelay_p50_ms: meter.delay_quantile_ms(0.5),
            qdelay_p95_ms: meter.delay_quantile_ms(0.95),
            qdelay_p99_ms: meter.delay_quantile_ms(0.99),
            rtt_mean_ms: self.rtt_mean_ms,
            rtt_p95_ms: self.rtt_p95_ms,
            loss_rate: share(self.lost),
            retransmit_rate: share(self.retransmitted),
        }
    }
}

impl PathTotals {
    /// The results of `flows`. Rates are over `interval`, or if that is `None` until the last
    /// arrival of any.
    pub fn of(flows: &[PathFlow<'_>], interval: Option<Duration>) -> PathTotals {
        let last = flows.iter().filter_map(|flow| flow.meter.elapsed()).max();
        let interval = interval.or(last).unwrap_or_default();
        let each: Vec<(PathMetrics, f64)> = flows
            .iter()
            .map(|flow| (flow.metrics(Some(interval)), flow.meter.packets() as f64))
            .collect();
        let mean = |value: fn(&PathMetrics) -> Option<f64>| {
            let weighted = || {
                each.iter()
                    .filter_map(|(m, weight)| Some((value(m)?, weight)))
            };
            let sum: f64 = weighted().map(|(value, weight)| value * weight).sum();
            ratio(sum, weighted().map(|(_, weight)| weight).sum())
        };
        let total = |count: fn(&PathFlow<'_>) -> u64| {
            // On a live path, the other end reports some.
            flows.iter().map(count).fold(0, u64::saturating_add)
        };
        let share = |part: u64| ratio(part as f64, total(|flow| flow.sent) as f64);
        let throughput_mbps = mbps(total(|flow| flow.meter.delivered().get()), interval);
        let rtt_mean_ms = mean(|m| m.rtt_mean_ms);
        let jain = jain_of_seconds(flows);
        let rates = || {
            each.iter()
                .filter_map(|(metrics, _)| metrics.throughput_mbps)
        };
        let totals = PathTotals {
            metrics: PathMetrics {
                throughput_mbps: Some(throughput_mbps),
                goodput_mbps: Some(mbps(total(|flow| flow.distinct.get()), interval)),
                qdelay_mean_ms: mean(|m| m.qdelay_mean_ms),
                qdelay_p50_ms: mean(|m| m.qdelay_p50_ms),
                qdelay_p95_ms: mean(|m| m.qdelay_p95_ms),
                qdelay_p99_ms: mean(|m| m.qdelay_p99_ms),
                rtt_mean_ms,
                rtt_p95_ms: mean(|m| m.rtt_p95_ms),
                loss_rate: share(total(|flow| flow.lost)),
                retransmit_rate: share(total(|flow| flow.retransmitted)),
            },
            jain,
            jain_active: jain,
            flow_min_mbps: rates().reduce(f64::min),
            flow_max_mbps: rates().reduce(f64::max),
            power: rtt_mean_ms.and_then(|rtt| ratio(throughput_mbps, rtt / 1e3)),
            interval,
        };
        if total(|flow| flow.meter.packets()) > 0 {
            return totals;
        }
        PathTotals {
            metrics: totals.metrics.without_arrivals(),
            flow_min_mbps: None,
            flow_max_mbps: None,
            power: None,
            ..totals
        }
    }

    /// Whether anything arrived.
    pub fn has_arrivals(&self) -> bool {
        self.metrics.throughput_mbps.is_some()
    }
}

/// Jain's index over whole seconds, averaged.
fn jain_of_seconds(flows: &[PathFlow<'_>]) -> Option<f64> {
    let width = flows.first()?.meter.bin_width();
    let in_second = (Duration::from_secs(1).as_nanos() / width.as_nanos()).max(1) as usize;
    let bins = flows.iter().map(|flow| flow.meter.bins().len()).max()?;
    let mut jain = Average::default();
    for second in 0..bins / in_second {
        let arrived = |flow: &PathFlow<'_>| {
            let bins = flow.meter.bins().iter().skip(second * in_second);
            bins.take(in_second).map(|bin| bin.delivered.as_f64()).sum()
        };
        jain.add(fairness::of(flows.iter().map(arrived)));
    }
    jain.mean()
}

/// A flow's metrics that only its ends can measure, not the meter of its bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EndMetrics {
    /// Bytes new to the receiver, Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets sent again / packets sent.
    pub retransmit_rate: Option<f64>,
}

impl EndMetrics {
    /// The goodput of `bytes` new to the receiver in `interval_s`, if it reported them; all other
    /// metrics are absent.
    pub fn of_goodput(bytes: Option<u64>, interval_s: f64) -> EndMetrics {
        EndMetrics {
            goodput_mbps: bytes
                .map(|bytes| ratio(bytes as f64 * 8.0, interval_s * 1e6).unwrap_or(0.0)),
            ..EndMetrics::default()
        }
    }

    /// All flows together: the sum of the goodputs, and the mean over the flows of all else, which is known where all of
    /// them tell.
    pub fn together(flows: &[EndMetrics]) -> EndMetrics {
        let mean = |value: fn(&EndMetrics) -> Option<f64>| {
            let all: Option<Vec<f64>> = flows.iter().map(value).collect();
            all.and_then(|all| ratio(all.iter().sum(), all.len() as f64))
        };
        EndMetrics {
            goodput_mbps: flows.iter().map(|flow| flow.goodput_mbps).sum(),
            rtt_mean_ms: mean(|flow| flow.rtt_mean_ms),
            rtt_p95_ms: mean(|flow| flow.rtt_p95_ms),
            retransmit_rate: mean(|flow| flow.retransmit_rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::Time;

    const BIN: Duration = Duration::from_millis(100);

    /// `packets` of 1,250 bytes, one every `gap_ms`.
    fn meter(packets: u64, gap_ms: u64) -> PathMeter {
        let mut meter = PathMeter::new(Time::ZERO, BIN);
        for index in 0..packets {
            let now = Time::from_millis(index * gap_ms);
            meter.on_delivered(now, Bytes::new(1250));
            meter.on_one_way(now, now, now + Duration::from_millis(20 + index % 2 * 10));
        }
        meter
    }

    fn flow(meter: &PathMeter, rtt_ms: f64) -> PathFlow<'_> {
        PathFlow {
            meter,
            distinct: Bytes::new(1000 * meter.packets()),
            sent: 2 * meter.packets(),
            lost: meter.packets(),
            retransmitted: meter.packets() / 2,
            rtt_mean_ms: Some(rtt_ms),
            rtt_p95_ms: None,
        }
    }

    #[test]
    fn a_flow_of_a_thousand_packets_in_ten_seconds_is_worked_by_hand() {
        let meter = meter(1000, 10);
        let metrics = flow(&meter, 50.0).metrics(Some(Duration::from_secs(10)));
        assert_eq!(metrics.throughput_mbps, Some(1.0));
        assert_eq!(metrics.goodput_mbps, Some(0.8));
        assert_eq!(metrics.qdelay_mean_ms, Some(5.0));
        assert_eq!(metrics.rtt_mean_ms, Some(50.0));
        assert_eq!(metrics.loss_rate, Some(0.5));
        assert_eq!(metrics.retransmit_rate, Some(0.25));
        // The last packet arrived after 9.99 s.
        let until_last = flow(&meter, 50.0).metrics(None);
        assert!((until_last.throughput_mbps.expect("arrivals") - 10.0 / 9.99).abs() < 1e-12);
    }

    #[test]
    fn several_flows_add_up_and_their_delays_weigh_by_packets() {
        let (fast, slow) = (meter(3000, 1), meter(1000, 3));
        let flows = [flow(&fast, 40.0), flow(&slow, 80.0)];
        let totals = PathTotals::of(&flows, Some(Duration::from_secs(3)));
        let metrics = totals.metrics;
        let throughput_mbps = metrics.throughput_mbps.expect("arrivals");
        assert!((throughput_mbps - 4000.0 * 1250.0 * 8.0 / 3e6).abs() < 1e-9);
        // (3000 · 40 + 1000 · 80) / 4000 = 50
        assert_eq!(metrics.rtt_mean_ms, Some(50.0));
        assert_eq!(metrics.rtt_p95_ms, None);
        assert_eq!(metrics.loss_rate, Some(0.5));
        // (3 + 1)² / (2 · (9 + 1)) = 0.8, up to one packet in a second.
        assert!((totals.jain.expect("seconds") - 0.8).abs() < 1e-3);
        let power = throughput_mbps / 0.05;
        assert!((totals.power.expect("a round trip") - power).abs() < 1e-9);
    }

    #[test]
    fn where_nothing_arrived_there_is_no_rate_and_no_share() {
        let meter = PathMeter::new(Time::ZERO, BIN);
        for sent in [0, 1000] {
            let flow = PathFlow {
                rtt_mean_ms: None,
                sent,
                lost: sent,
                ..flow(&meter, 0.0)
            };
            let second = Some(Duration::from_secs(1));
            let totals = PathTotals::of(&[flow, flow], second);
            let none = PathTotals {
                interval: Duration::from_secs(1),
                ..PathTotals::default()
            };
            assert_eq!(totals, none);
            assert!(!totals.has_arrivals());
        }
        assert_eq!(PathTotals::of(&[], None), PathTotals::default());
    }

    #[test]
    fn a_flow_that_starves_beside_another_has_a_rate_of_zero() {
        let (all, nothing) = (meter(1000, 10), PathMeter::new(Time::ZERO, BIN));
        let flows = [flow(&all, 50.0), flow(&nothing, 50.0)];
        let totals = PathTotals::of(&flows, Some(Duration::from_secs(10)));
        assert!(totals.has_arrivals());
        assert_eq!(totals.flow_min_mbps, Some(0.0));
        assert_eq!(totals.flow_max_mbps, Some(1.0));
    }

    #[test]
    fn what_one_end_does_not_tell_is_unknown_of_all() {
        let complete = EndMetrics {
            rtt_mean_ms: Some(10.0),
            retransmit_rate: Some(0.5),
            ..EndMetrics::of_goodput(Some(250_000), 2.0)
        };
        let silent = EndMetrics {
            rtt_mean_ms: Some(30.0),
            ..EndMetrics::of_goodput(Some(500_000), 2.0)
        };
        let together = EndMetrics::together(&[complete, silent]);
        assert_eq!(together.goodput_mbps, Some(3.0));
        assert_eq!(together.rtt_mean_ms, Some(20.0));
        assert_eq!(together.retransmit_rate, None);
    }
}
