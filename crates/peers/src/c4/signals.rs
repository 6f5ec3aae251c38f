//! C4's signals of congestion. A faster flow has lower thresholds, so that flows that share a link
//! converge to equal rates (draft-huitema-ccwg-c4-spec, "Handling of congestion signals").

use verus_core::units::{Duration, Rate};

/// Sensitivity at these rates, in bytes per second, and linear in between.
const CURVE: [(f64, f64); 3] = [(50_000.0, 0.0), (1_000_000.0, 0.92), (10_000_000.0, 1.0)];
/// A queueing delay of this length is too long on any path.
const MOST_DELAY: Duration = Duration::from_millis(25);
/// The delay threshold as a part of the nominal round-trip time: for fully sensitive flows, and the
/// addition for flows that are not sensitive at all.
const DELAY_PART: (f64, f64) = (1.0 / 16.0, 3.0 / 16.0);
/// The loss threshold likewise.
const LOSS_SHARE: (f64, f64) = (0.02, 0.5);
/// The weight of each packet in the average share of losses.
const LOSS_WEIGHT: f64 = 1.0 / 16.0;
/// No signal of congestion takes more than this share of the rate.
pub(super) const MOST_REDUCTION: f64 = 0.25;

/// 0 for a slow flow, 1 for a fast one.
pub(super) fn sensitivity(rate: Rate) -> f64 {
    let rate = rate.as_bps() as f64 / 8.0;
    let (first, last) = (CURVE[0], CURVE[CURVE.len() - 1]);
    if rate <= first.0 {
        return first.1;
    }
    for pair in CURVE.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        if rate <= to.0 {
            return from.1 + (to.1 - from.1) * (rate - from.0) / (to.0 - from.0);
        }
    }
    last.1
}

/// The excess over the nominal round-trip time from which a sample is a signal.
pub(super) fn delay_threshold(rate: Rate, nominal_rtt: Duration) -> Duration {
    let part = DELAY_PART.0 + (1.0 - sensitivity(rate)) * DELAY_PART.1;
    nominal_rtt.mul_f64(part).min(MOST_DELAY)
}

/// The share by which a sample reduces the rate; `None` if it is no signal.
pub(super) fn delay_reduction(rate: Rate, nominal_rtt: Duration, rtt: Duration) -> Option<f64> {
    let threshold = delay_threshold(rate, nominal_rtt);
    let excess = rtt.saturating_sub(nominal_rtt + threshold);
    if excess.is_zero() || threshold.is_zero() {
        return None;
    }
    Some((excess / threshold).min(MOST_REDUCTION))
}

/// The share of losses that is a signal.
pub(super) fn loss_threshold(rate: Rate) -> f64 {
    LOSS_SHARE.0 + LOSS_SHARE.1 * (1.0 - sensitivity(rate))
}

/// The average of losses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRate(f64);

impl LossRate {
    /// A packet was lost, or was not.
    pub(super) fn update(&mut self, lost: bool) {
        let sample = f64::from(u8::from(lost));
        self.0 += LOSS_WEIGHT * (sample - self.0);
    }

    /// Whether it is a signal at this rate.
    pub(super) fn is_too_high(&self, rate: Rate) -> bool {
        self.0 > loss_threshold(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kb(kilobytes: f64) -> Rate {
        Rate::from_mbps(kilobytes * 8e-3)
    }

    const RATES: [f64; 5] = [40.0, 525.0, 1000.0, 5500.0, 20_000.0];

    #[test]
    fn fast_flows_are_more_sensitive() {
        for (rate, wanted) in RATES.into_iter().zip([0.0, 0.46, 0.92, 0.96, 1.0]) {
            assert!((sensitivity(kb(rate)) - wanted).abs() < 1e-6, "{rate} kB/s");
        }
    }

    #[test]
    fn thresholds_fall_with_the_rate() {
        let rtt = Duration::from_millis(80);
        for (rate, wanted) in RATES.into_iter().zip([20.0, 13.1, 6.2, 5.6, 5.0]) {
            let threshold_ms = delay_threshold(kb(rate), rtt).as_millis_f64();
            assert!(
                (threshold_ms - wanted).abs() < 0.051,
                "{rate} kB/s: {threshold_ms} ms"
            );
        }
        for (rate, wanted) in RATES.into_iter().zip([0.52, 0.29, 0.06, 0.04, 0.02]) {
            let threshold = loss_threshold(kb(rate));
            assert!(
                (threshold - wanted).abs() < 1e-6,
                "{rate} kB/s: {threshold}"
            );
        }
        let long = delay_threshold(kb(40.0), Duration::from_millis(1000));
        assert_eq!(long, MOST_DELAY);
    }

    #[test]
    fn one_loss_is_enough_for_a_fast_flow_and_twelve_in_a_row_for_a_slow_one() {
        let losses = |rate: Rate| {
            let mut average = LossRate::default();
            (1..100).find(|_| {
                average.update(true);
                average.is_too_high(rate)
            })
        };
        assert_eq!(losses(kb(1000.0)), Some(1));
        assert_eq!(losses(kb(40.0)), Some(12));
    }

    #[test]
    fn the_reduction_is_the_excess_over_the_threshold_and_a_quarter_at_most() {
        let rtt = Duration::from_millis(80);
        let threshold = delay_threshold(kb(1000.0), rtt);
        let at = |excess_ms: f64| {
            let sample = rtt + threshold + Duration::from_millis_f64(excess_ms);
            delay_reduction(kb(1000.0), rtt, sample)
        };
        assert_eq!(at(3.1), Some(0.25));
        let small = at(0.62).expect("a signal");
        assert!((small - 0.1).abs() < 1e-3, "{small}");
        assert_eq!(delay_reduction(kb(1000.0), rtt, rtt + threshold), None);
    }
}
