//! Time series: the internal quantities of senders, and the capacity of the channel.

use verus_core::{Bytes, Duration, Phase, ProfileSnapshot, Time};

use crate::connection::Flow;
use crate::record::FlowOutcome;

/// Time between two snapshots of a delay profile, as Fig. 7b of the paper draws them ("only every
/// fifth interpolation is shown").
const SNAPSHOT_EVERY: Duration = Duration::from_secs(5);

/// One value per bin of each quantity that a sender's controller reports, and snapshots of its
/// delay profile.
#[derive(Debug)]
pub struct Series {
    bin: Duration,
    next_snapshot: Time,
    flows: Vec<FlowSeries>,
}

#[derive(Clone, Debug, Default)]
struct FlowSeries {
    columns: Vec<&'static str>,
    samples: Vec<Vec<f64>>,
    phases: Vec<Option<Phase>>,
    profiles: Vec<(Time, ProfileSnapshot)>,
}

impl Series {
    /// Empty series, for `flows` flows, in bins of `bin`.
    pub fn new(flows: usize, bin: Duration) -> Self {
        Series {
            bin,
            next_snapshot: Time::ZERO + SNAPSHOT_EVERY,
            flows: vec![FlowSeries::default(); flows],
        }
    }

    /// A bin is over: records the quantities of the senders of `flows`.
    pub fn sample(&mut self, now: Time, flows: &[Flow]) {
        for (flow, series) in flows.iter().zip(&mut self.flows) {
            series.sample(flow);
        }
        if now >= self.next_snapshot {
            self.next_snapshot += SNAPSHOT_EVERY;
            for (flow, series) in flows.iter().zip(&mut self.flows) {
                if flow.is_shown()
                    && let Some(profile) = flow.ends.sender.controller().profile()
                {
                    series.profiles.push((now, profile));
                }
            }
        }
    }

    /// Puts the series into each flow's outcome; returns the capacity of each bin in Mbit/s.
    pub fn finish(
        self,
        end: Time,
        capacity: impl Fn(Time, Time) -> Bytes,
        outcomes: &mut [FlowOutcome],
    ) -> Vec<f64> {
        for (series, outcome) in self.flows.into_iter().zip(outcomes) {
            outcome.columns = series.columns;
            outcome.samples = series.samples;
            outcome.phases = series.phases;
            outcome.profiles = series.profiles;
        }
        let bin = self.bin;
        let mbps = |index| {
            let from = Time::ZERO + bin * index;
            let to = (from + bin).min(end);
            (capacity(from, to) / to.since(from)).as_mbps()
        };
        let bins = end.as_nanos().div_ceil(bin.as_nanos());
        (0..bins).map(mbps).collect()
    }
}

impl FlowSeries {
    fn sample(&mut self, flow: &Flow) {
        let mut at = 0;
        let mut record = |name: &'static str, value: f64| {
            if self.columns.len() == at {
                self.columns.push(name);
                self.samples.push(Vec::new());
            }
            self.samples[at].push(if flow.is_shown() { value } else { f64::NAN });
            at += 1;
        };
        let sender = &flow.ends.sender;
        record("window_bytes", sender.controller().window().as_f64());
        record("in_flight_bytes", sender.in_flight().as_f64());
        sender.controller().probe(&mut record);
        if let Some(phase) = sender.controller().phase() {
            self.phases.push(flow.is_shown().then_some(phase));
        }
    }
}
