//! Delay estimator: the averaged maximum delay of each epoch, and how it changes (Verus §4,
//! Eqs. 2 and 3).

use verus_core::units::{Duration, Time};

use super::config::{Config, DelayChange, SilentEpoch};
use super::units::Millis;

/// The path's state according to one ended epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayReport {
    /// The delay that the ratio test compares with D_min (Eq. 4, case 1).
    pub d_max: Millis,
    /// ΔD: positive while delay rises.
    pub delta_d: Millis,
}

/// Tracks the maximum delay within the open epoch and its average over past ones.
#[derive(Debug, Default)]
pub struct DelayEstimator {
    /// max(D⃗_i) so far in the open epoch.
    epoch_max: Option<Millis>,
    /// D_max,i: the averaged maximum.
    d_max: Option<Millis>,
    last_ack: Time,
}

impl DelayEstimator {
    /// An estimator without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// A packet's delay D_p,i.
    #[inline]
    pub fn on_sample(&mut self, now: Time, rtt: Duration) {
        let delay = Millis::from(rtt);
        self.epoch_max = Some(self.epoch_max.map_or(delay, |max| max.max(delay)));
        self.last_ack = now;
    }

    /// Discards the open epoch's samples, which no longer describe the path (after an outage or a drain).
    pub fn discard_epoch(&mut self) {
        self.epoch_max = None;
    }

    /// The averaged maximum D_max, once there is one.
    pub fn d_max(&self) -> Option<Millis> {
        self.d_max
    }

    /// Ends the open epoch at `now`. `None` until the first sample.
    #[inline]
    pub fn end_epoch(&mut self, now: Time, config: &Config) -> Option<DelayReport> {
        let latest = match (self.epoch_max.take(), self.d_max) {
            (Some(max), _) => max,
            (None, None) => return None,
            (None, Some(average)) => match config.silent_epoch {
                SilentEpoch::Hold => average,
                // A packet that is still unanswered has a delay of at least this silence.
                SilentEpoch::SinceLastAck => average.max(now.since(self.last_ack).into()),
            },
        };
        let previous = self.d_max.unwrap_or(latest);
        // Eq. 2, α · previous + (1 − α) · latest, written so that an unchanged delay leaves it
        // exactly unchanged: Eq. 4 depends on the sign of its change.
        let average = previous + (1.0 - config.history_weight) * (latest - previous);
        self.d_max = Some(average);
        Some(match config.delay_change {
            // Eq. 3, both terms averaged; Eq. 4 tests the newest average.
            DelayChange::Averaged => DelayReport {
                d_max: average,
                delta_d: average - previous,
            },
            // The prototype compares the raw maximum with the average before it.
            DelayChange::Raw => DelayReport {
                d_max: previous,
                delta_d: latest - previous,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_maximum_is_averaged_and_its_change_is_the_difference_of_averages() {
        // α = 0.2. Epoch 1: max(40, 50) = 50. Epoch 2: 100 → 0.2·50 + 0.8·100 = 90, ΔD = 40.
        let config = Config {
            history_weight: 0.2,
            ..Config::preset(Mode::Paper)
        };
        let mut estimator = DelayEstimator::new();
        estimator.on_sample(ms(1), Duration::from_millis(50));
        estimator.on_sample(ms(2), Duration::from_millis(40));
        let first = estimator.end_epoch(ms(5), &config).expect("a sample came");
        assert_eq!((first.d_max, first.delta_d), (Millis(50.0), Millis(0.0)));
        estimator.on_sample(ms(6), Duration::from_millis(100));
        let second = estimator.end_epoch(ms(10), &config).expect("a sample came");
        assert_eq!((second.d_max, second.delta_d), (Millis(90.0), Millis(40.0)));
    }

    #[test]
    fn a_delay_that_stays_is_no_rise() {
        // 0.2 · x + 0.8 · x exceeds x for a quarter of all x.
        let config = Config::preset(Mode::Paper);
        for micros in 1..10_000 {
            let mut estimator = DelayEstimator::new();
            for epoch in 1..4 {
                estimator.on_sample(ms(epoch), Duration::from_micros(micros));
                let report = estimator.end_epoch(ms(5 * epoch), &config);
                assert_eq!(report.expect("a sample came").delta_d, Millis::ZERO);
            }
        }
    }

    #[test]
    fn the_prototype_tests_the_previous_average_and_the_raw_change() {
        let config = Config {
            history_weight: 0.2,
            ..Config::preset(Mode::Prototype)
        };
        let mut estimator = DelayEstimator::new();
        estimator.on_sample(ms(1), Duration::from_millis(50));
        estimator.end_epoch(ms(5), &config);
        estimator.on_sample(ms(6), Duration::from_millis(100));
        let report = estimator.end_epoch(ms(10), &config).expect("a sample came");
        assert_eq!((report.d_max, report.delta_d), (Millis(50.0), Millis(50.0)));
    }

    #[test]
    fn a_silent_epoch_counts_the_silence_as_delay_once_it_exceeds_the_average() {
        let config = Config {
            history_weight: 0.0,
            silent_epoch: SilentEpoch::SinceLastAck,
            ..Config::preset(Mode::Robust)
        };
        let mut estimator = DelayEstimator::new();
        assert_eq!(estimator.end_epoch(ms(5), &config), None);
        estimator.on_sample(ms(10), Duration::from_millis(40));
        estimator.end_epoch(ms(10), &config);
        let silent = estimator
            .end_epoch(ms(15), &config)
            .expect("an average exists");
        assert_eq!(silent.delta_d, Millis::ZERO);
        let outage = estimator
            .end_epoch(ms(110), &config)
            .expect("an average exists");
        assert_eq!(outage.delta_d, Millis(60.0));
    }
}
