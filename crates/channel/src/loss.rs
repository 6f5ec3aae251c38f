//! Random loss, over time.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use verus_core::Time;

use crate::schedule::{Follower, Schedule};

/// Loses each packet independently, with a probability that may change in steps.
#[derive(Clone, Debug)]
pub struct Loss {
    probability: Follower<f64>,
    rng: ChaCha8Rng,
}

impl Loss {
    /// Loses with `probability` (between 0 and 1 at all times), drawing from `rng`.
    pub fn new(probability: Schedule<f64>, rng: ChaCha8Rng) -> Self {
        Loss {
            probability: Follower::new(probability),
            rng,
        }
    }

    /// Whether a packet is lost at `now`, which never goes back from call to call. Draws only where the
    /// probability is neither 0 nor 1.
    #[inline]
    pub fn lost(&mut self, now: Time) -> bool {
        let probability = self.probability.at(now);
        probability > 0.0 && (probability >= 1.0 || uniform(&mut self.rng) < probability)
    }
}

/// A uniform number in [0, 1), the same on every machine.
pub(crate) fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    #[test]
    fn losses_come_at_the_probability_in_force() {
        let at = Time::from_millis;
        let steps = vec![(at(0), 0.0), (at(1_000), 0.1), (at(101_000), 1.0)];
        let mut loss = Loss::new(Schedule::new(steps).unwrap(), random::stream(1, "loss", 0));
        let mut lost = |from, to| (from..to).filter(|ms| loss.lost(at(*ms))).count();
        assert_eq!(lost(0, 1_000), 0);
        // 100,000 draws: 10,000 expected with a standard deviation of 95.
        assert!(lost(1_000, 101_000).abs_diff(10_000) < 500);
        assert_eq!(lost(101_000, 102_000), 1_000);
    }
}
