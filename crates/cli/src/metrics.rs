//! Measurements of running flows for Prometheus, by sender, as OpenMetrics text.
//!
//! A label for each flow would make as many series as there are connections. Each quantity of the
//! running flows is therefore given by its median and 95th percentile; counts include ended flows.
//! Two groups of a roll-out differ in the label `sender` (`docs/operators.md`).

pub mod address;

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use verus_core::{Bytes, Duration};

/// Most values of the label `sender`; the flows of others are those of [`OTHER`].
const MOST_SENDERS: usize = 32;
/// The sender of flows beyond [`MOST_SENDERS`].
const OTHER: &str = "other";
/// The quantiles of each quantity, and the values of their label.
const QUANTILES: [(f64, &str); 2] = [(0.5, "0.5"), (0.95, "0.95")];

/// Measurements of one running flow. None: not known of this flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowMetrics {
    /// The congestion window.
    pub window_bytes: Option<f64>,
    /// The smoothed round trip.
    pub round_trip_s: Option<f64>,
    /// Q.
    pub queueing_delay_s: Option<f64>,
    /// q.
    pub target_s: Option<f64>,
    /// The rate at which data reach the receiver, bytes/s.
    pub delivery_rate: Option<f64>,
    /// Of the packets sent since the flow began, the share that was lost.
    pub lost_ratio: Option<f64>,
}

impl FlowMetrics {
    /// The measurements of a flow whose controller is in this process. `probe` records the
    /// controller's estimates.
    pub fn of(
        rtt: RoundTrips,
        window: Bytes,
        probe: impl FnOnce(&mut dyn FnMut(&'static str, f64)),
    ) -> Self {
        let has_samples = rtt.least.is_some();
        let mut flow = FlowMetrics {
            window_bytes: Some(window.as_f64()),
            round_trip_s: has_samples.then(|| rtt.smoothed.as_secs_f64()),
            queueing_delay_s: rtt.least.map(|least| (rtt.smoothed - least).as_secs_f64()),
            ..FlowMetrics::default()
        };
        probe(&mut |name, value| match name {
            "queue_ms" if has_samples => flow.queueing_delay_s = Some(value / 1e3),
            "target_ms" if has_samples => flow.target_s = Some(value / 1e3),
            _ => {}
        });
        flow
    }

    /// The same with the share of lost packets.
    pub fn with_lost(self, lost: u64, sent: u64) -> Self {
        FlowMetrics {
            lost_ratio: (sent > 0).then(|| lost as f64 / sent as f64),
            ..self
        }
    }
}

/// Round trips of a flow.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    /// The smoothed one.
    pub smoothed: Duration,
    /// The least; `None` before the first sample.
    pub least: Option<Duration>,
}

/// Counts of all packets of a sender since the program began, those of ended flows included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that were acknowledged.
    pub acknowledged_bytes: u64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Packets that were taken for lost.
    pub lost_packets: u64,
}

/// The flows of one sender. None: not counted.
#[derive(Clone, Debug, Default)]
struct Group {
    flows: Vec<FlowMetrics>,
    estimates: Vec<FlowMetrics>,
    begun: Option<u64>,
    traffic: Option<Traffic>,
}

/// The flows of a host, by sender.
#[derive(Clone, Debug, Default)]
pub struct BySender(BTreeMap<String, Group>);

impl BySender {
    fn group(&mut self, sender: &str) -> &mut Group {
        let sender = if self.0.contains_key(sender) || self.0.len() < MOST_SENDERS {
            sender
        } else {
            OTHER
        };
        self.0.entry(sender.to_owned()).or_default()
    }

    /// Adds a running flow.
    pub fn add(&mut self, sender: &str, flow: FlowMetrics) {
        self.group(sender).flows.push(flow);
    }

    /// Adds what the sender estimates of a running flow, which is added by itself.
    pub fn add_estimates(&mut self, sender: &str, estimates: FlowMetrics) {
        self.group(sender).estimates.push(estimates);
    }

    /// Adds flows that began, whether they still run or not.
    pub fn begun(&mut self, sender: &str, flows: u64) {
        *self.group(sender).begun.get_or_insert_default() += flows;
    }

    /// Adds to the packets of a sender.
    pub fn traffic(&mut self, sender: &str, traffic: Traffic) {
        let all = self.group(sender).traffic.get_or_insert_default();
        all.acknowledged_bytes += traffic.acknowledged_bytes;
        all.sent_packets += traffic.sent_packets;
        all.lost_packets += traffic.lost_packets;
    }

    /// The text for Prometheus (OpenMetrics 1.0).
    pub fn openmetrics(self) -> String {
        let mut registry = Registry::with_prefix("verus");
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        text::encode(&mut page, &registry).expect("a string takes all text");
        page
    }
}

/// A quantity of running flows.
struct Quantity {
    name: &'static str,
    unit: Unit,
    help: &'static str,
    of: fn(&FlowMetrics) -> Option<f64>,
}

/// The quantities of running flows.
fn quantities() -> [Quantity; 6] {
    [
        Quantity {
            name: "window",
            unit: Unit::Bytes,
            help: "Congestion window of running flows.",
            of: |flow| flow.window_bytes,
        },
        Quantity {
            name: "round_trip",
            unit: Unit::Seconds,
            help: "Smoothed round trip of running flows.",
            of: |flow| flow.round_trip_s,
        },
        Quantity {
            name: "queueing_delay",
            unit: Unit::Seconds,
            help: "Queueing delay Q of running flows: the sender's estimate, else the smoothed round trip above the least.",
            of: |flow| flow.queueing_delay_s,
        },
        Quantity {
            name: "queueing_delay_target",
            unit: Unit::Seconds,
            help: "Target q of the queueing delay, for senders that have one.",
            of: |flow| flow.target_s,
        },
        Quantity {
            name: "delivery_rate",
            unit: Unit::Other("bytes_per_second".to_owned()),
            help: "Rate at which data of running flows reach the receiver, for senders that measure it.",
            of: |flow| flow.delivery_rate,
        },
        Quantity {
            name: "lost",
            unit: Unit::Other("ratio".to_owned()),
            help: "Packets taken for lost, of those sent since the flow began, of running flows.",
            of: |flow| flow.lost_ratio,
        },
    ]
}

/// A count of a sender, which never falls.
struct Count {
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    of: fn(&Group) -> Option<u64>,
}

/// The counts of a sender.
fn counts() -> [Count; 4] {
    [
        Count {
            name: "flows_begun",
            unit: None,
            help: "Flows that began.",
            of: |group| group.begun,
        },
        Count {
            name: "acknowledged",
            unit: Some(Unit::Bytes),
            help: "Bytes acknowledged by receivers.",
            of: |group| Some(group.traffic?.acknowledged_bytes),
        },
        Count {
            name: "sent_packets",
            unit: None,
            help: "Packets sent, retransmissions included.",
            of: |group| Some(group.traffic?.sent_packets),
        },
        Count {
            name: "lost_packets",
            unit: None,
            help: "Packets taken for lost.",
            of: |group| Some(group.traffic?.lost_packets),
        },
    ]
}

/// The quantile `share` of sorted `values`, by nearest rank.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// Writes one series of a family.
fn series(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    value: &impl EncodeMetric,
) -> fmt::Result {
    value.encode(family.encode_family(&labels)?)
}

impl Collector for BySender {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family =
            encoder.encode_descriptor("flows", "Flows that run now.", None, MetricType::Gauge)?;
        for (sender, group) in &self.0 {
            let running = ConstGauge::new(group.flows.len() as i64);
            series(&mut family, &[("sender", sender)], &running)?;
        }
        for Quantity {
            name,
            unit,
            help,
            of,
        } in quantities()
        {
            let mut family =
                encoder.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?;
            for (sender, group) in &self.0 {
                let values = group.flows.iter().chain(&group.estimates).filter_map(of);
                let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
                values.sort_by(f64::total_cmp);
                for (share, text) in QUANTILES {
                    if let Some(value) = quantile(&values, share) {
                        let labels = [("sender", sender.as_str()), ("quantile", text)];
                        series(&mut family, &labels, &ConstGauge::new(value))?;
                    }
                }
            }
        }
        for Count {
            name,
            unit,
            help,
            of,
        } in counts()
        {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for (sender, group) in &self.0 {
                if let Some(count) = of(group) {
                    series(
                        &mut family,
                        &[("sender", sender)],
                        &ConstCounter::new(count),
                    )?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(round_trip_ms: f64) -> FlowMetrics {
        FlowMetrics {
            round_trip_s: Some(round_trip_ms / 1e3),
            ..FlowMetrics::default()
        }
    }

    fn line<'a>(page: &'a str, series: &str) -> Option<&'a str> {
        page.lines().find_map(|line| line.strip_prefix(series))
    }

    #[test]
    fn each_sender_has_median_and_95th_percentile_and_counts() {
        let mut all = BySender::default();
        for ms in (1..=100).rev() {
            all.add("forward", flow(f64::from(ms)));
        }
        all.add("cubic", flow(250.0));
        all.begun("cubic", 7);
        let traffic = Traffic {
            acknowledged_bytes: 1,
            sent_packets: 2,
            lost_packets: 3,
        };
        all.traffic("cubic", traffic);
        all.traffic("cubic", traffic);
        let page = all.openmetrics();
        for (series, value) in [
            ("verus_flows{sender=\"forward\"}", "100"),
            (
                "verus_round_trip_seconds{sender=\"forward\",quantile=\"0.5\"}",
                "0.05",
            ),
            (
                "verus_round_trip_seconds{sender=\"forward\",quantile=\"0.95\"}",
                "0.095",
            ),
            (
                "verus_round_trip_seconds{sender=\"cubic\",quantile=\"0.95\"}",
                "0.25",
            ),
            ("verus_flows_begun_total{sender=\"cubic\"}", "7"),
            ("verus_acknowledged_bytes_total{sender=\"cubic\"}", "2"),
            ("verus_sent_packets_total{sender=\"cubic\"}", "4"),
            ("verus_lost_packets_total{sender=\"cubic\"}", "6"),
            ("# UNIT verus_round_trip_seconds", "seconds"),
            ("# TYPE verus_acknowledged_bytes", "counter"),
        ] {
            assert_eq!(line(&page, series).map(str::trim), Some(value), "{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
        assert!(line(&page, "verus_flows_begun_total{sender=\"forward\"}").is_none());
    }

    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let mut all = BySender::default();
        all.add("verus", flow(f64::NAN));
        all.add("verus", flow(f64::INFINITY));
        let page = all.openmetrics();
        assert!(line(&page, "verus_round_trip_seconds{").is_none(), "{page}");
        assert!(page.contains("verus_flows{sender=\"verus\"} 2"), "{page}");
    }

    #[test]
    fn any_name_is_escaped_and_many_names_are_few_series() {
        let mut all = BySender::default();
        all.add("a\"}\n\\", flow(1.0));
        for number in 0..1000 {
            all.add(&format!("sender {number}"), flow(1.0));
        }
        let page = all.openmetrics();
        assert!(page.contains(r#"{sender="a\"}\n\\"}"#), "{page}");
        let flows = |line: &&str| line.starts_with("verus_flows{");
        assert_eq!(page.lines().filter(flows).count(), MOST_SENDERS + 1);
        assert!(page.contains("verus_flows{sender=\"other\"} 969"), "{page}");
    }
}
