//! The utility of a monitor interval (NSDI 2018, Eq. 2).

/// More is better, but less than in proportion, so that flows come to equal shares.
const EXPONENT: f64 = 0.9;
/// The cost of a queue that grows by a second in a second.
const DELAY_COST: f64 = 900.0;
/// The cost of losses: a share of 5 % is tolerated at 100 Mbit/s.
const LOSS_COST: f64 = 11.35;

/// The utility of sending `mbps`, of which a share `loss` is lost, while round-trip times grow by `gradient` seconds
/// per second.
pub(super) fn utility(mbps: f64, gradient: f64, loss: f64) -> f64 {
    libm::pow(mbps, EXPONENT) - DELAY_COST * mbps * gradient.max(0.0) - LOSS_COST * mbps * loss
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_and_loss_cost_as_the_paper_says() {
        let cases = [
            ((10.0, 0.0, 0.0), 7.943),
            ((10.0, 0.0, 0.01), 6.808),
            ((10.0, 0.001, 0.0), -1.057),
            ((10.0, -1.0, 0.0), 7.943),
            ((100.0, 0.0, 0.0), 63.096),
        ];
        for ((mbps, gradient, loss), expected) in cases {
            let value = utility(mbps, gradient, loss);
            assert!((value - expected).abs() < 5e-4, "{value}, not {expected}");
        }
    }

    /// The level at which the utility is flat in the rate.
    fn balance(mbps: f64, of: impl Fn(f64, f64) -> f64) -> f64 {
        let rises = |level: f64| of(mbps * 1.0001, level) > of(mbps * 0.9999, level);
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if rises(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    #[test]
    fn fast_flows_tolerate_less() {
        let losses = [(1.0, 0.079), (10.0, 0.063), (100.0, 0.050), (1000.0, 0.040)];
        for (mbps, expected) in losses {
            let level = balance(mbps, |x, loss| utility(x, 0.0, loss));
            assert!((level - expected).abs() < 6e-4, "{mbps}: {level}");
        }
        for (mbps, expected) in [(1.0, 0.001), (10.0, 0.00079), (100.0, 0.00063)] {
            let level = balance(mbps, |x, gradient| utility(x, gradient, 0.0));
            assert!((level - expected).abs() < 6e-6, "{mbps}: {level}");
        }
    }
}
