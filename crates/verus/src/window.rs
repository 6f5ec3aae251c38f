//! Window estimator: from the change of delay to the delay wanted next (Eq. 4), and from there to
//! the packets that may leave in the coming epoch (Eq. 5).

use verus_core::units::Duration;

use super::config::Config;
use super::delay::DelayReport;
use super::units::{Millis, Packets};

/// D_est,i+1 from D_est,i (Eq. 4). `times` is the length of the epoch that ends, in ε: above 1 if it ended late,
/// by jitter or by a late tick. The step is multiplied by it.
#[inline]
pub fn next_d_est(
    d_est: Millis,
    report: &DelayReport,
    d_min: Millis,
    times: f64,
    config: &Config,
) -> Millis {
    let delta_1 = times * Millis(config.decrement_ms);
    let delta_2 = times * Millis(config.increment_ms);
    if report.d_max / d_min > config.ratio {
        // The paper states no floor here; without any, the estimate would go below zero.
        (d_est - delta_2).max(if config.floor { d_min } else { Millis::ZERO })
    } else if report.delta_d > Millis(config.change_threshold_ms) {
        (d_est - delta_1).max(d_min)
    } else {
        d_est + delta_2
    }
}

/// S_i+1: how many packets may leave in the coming epoch (Eq. 5), given the window wanted, the current window W_i
/// (`current`) and the packets in flight (`under_way`).
///
/// n = ⌈RTT/ε⌉ is the number of epochs in a round trip. Eq. 5 divides by n − 1, so n = 1 needs
/// another rule. An epoch's packets are acknowledged before the next begins, so the budget is the
/// target window less the packets in flight (as in the prototype).
#[inline]
pub fn budget(
    wanted: Packets,
    current: Packets,
    under_way: Packets,
    rtt: Duration,
    epoch: Duration,
) -> Packets {
    let n = rtt.as_nanos().div_ceil(epoch.as_nanos()) as f64;
    if n > 1.0 {
        (wanted + (2.0 - n) / (n - 1.0) * current).max(Packets::ZERO)
    } else {
        (wanted - under_way).max(Packets::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;

    fn next(d_max: f64, delta_d: f64, from: f64) -> f64 {
        let config = Config {
            ratio: 2.0,
            floor: true,
            ..Config::preset(Mode::Paper)
        };
        let report = DelayReport {
            d_max: Millis(d_max),
            delta_d: Millis(delta_d),
        };
        next_d_est(Millis(from), &report, Millis(40.0), 1.0, &config).0
    }

    fn granted(wanted: f64, current: f64, under_way: f64, rtt: Duration) -> f64 {
        let [wanted, current, under_way] = [wanted, current, under_way].map(Packets);
        budget(wanted, current, under_way, rtt, Duration::from_millis(5)).0
    }

    #[test]
    fn above_the_ratio_the_estimate_falls_by_delta_2_and_stops_at_the_minimum() {
        assert_eq!(next(80.1, -5.0, 70.0), 68.0);
        assert_eq!(next(80.1, -5.0, 41.0), 40.0);
    }

    #[test]
    fn at_the_ratio_itself_the_sign_of_the_change_decides() {
        assert_eq!(next(80.0, 1.0, 70.0), 69.0);
        assert_eq!(next(80.0, 0.0, 70.0), 72.0);
        assert_eq!(next(60.0, -1.0, 70.0), 72.0);
        assert_eq!(next(60.0, 1.0, 40.5), 40.0);
    }

    #[test]
    fn the_budget_spreads_the_window_over_the_round_trip() {
        // n = 8: S = 14 + (2 − 8)/(8 − 1) · 14 = 14 − 12 = 2, a seventh of the window.
        assert!((granted(14.0, 14.0, 14.0, Duration::from_millis(40)) - 2.0).abs() < 1e-12);
        // n = ⌈41/5⌉ = 9: S = 14 − 7/8 · 16 = 0.
        assert_eq!(granted(14.0, 16.0, 16.0, Duration::from_millis(41)), 0.0);
        // A window below the packets in flight sends nothing.
        assert_eq!(granted(5.0, 14.0, 14.0, Duration::from_millis(40)), 0.0);
    }

    #[test]
    fn within_one_epoch_a_round_trip_sends_what_is_missing() {
        assert_eq!(granted(14.0, 14.0, 4.0, Duration::from_millis(5)), 10.0);
        // All is back: the whole window leaves again.
        assert_eq!(granted(14.0, 14.0, 0.0, Duration::from_micros(30)), 14.0);
        // n = 2: nothing is subtracted, since (2 − 2)/(2 − 1) = 0.
        assert_eq!(granted(14.0, 4.0, 4.0, Duration::from_millis(6)), 14.0);
    }
}
