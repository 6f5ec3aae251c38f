//! Random loss, over time.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use verus_core::Time;
use verus_words::range::Within;
use verus_words::spec::{Field, Row};

use crate::schedule::{Follower, Schedule};

/// Loses each packet independently, with a probability that may change in steps.
#[derive(Clone, Debug)]
pub struct Loss {
    probability: Follower<f64>,
    draws: Vec<ChaCha8Rng>,
}

impl Loss {
    /// Loses packets with `probability` (between 0 and 1 at all times). Each flow has its own
    /// stream of `draws`, so that the draw for its n-th packet does not depend on the other flows.
    pub fn new(probability: Schedule<f64>, draws: Vec<ChaCha8Rng>) -> Self {
        Loss {
            probability: Follower::new(probability),
            draws,
        }
    }

    /// Whether a packet of `flow` is lost at `now`, which must not decrease from call to call. Draws only where the
    /// probability is above 0.
    ///
    /// # Panics
    /// If there are no draws for `flow`.
    #[inline]
    pub fn loses(&mut self, now: Time, flow: usize) -> bool {
        let probability = self.probability.at(now);
        probability > 0.0 && uniform(&mut self.draws[flow]) < probability
    }
}

/// The values that a probability takes.
pub(crate) const PROBABILITY: Within = Within {
    words: "between 0 and 1",
    valid: |value| (0.0..=1.0).contains(&value),
};

/// The key `correlation` of what [`Correlated`] draws.
pub(crate) const fn correlation_row<C>(get: fn(&C) -> f64, set: fn(&mut C, f64)) -> Row<C> {
    Field::new("correlation", get, set).within(
        "share",
        "weight of the number drawn before in the next, as netem draws them",
        PROBABILITY,
    )
}

/// Uniform numbers, each of which depends on the one before: `get_crandom` of Linux's `net/sched/sch_netem.c`.
///
/// Unless the correlation is 0, they are no longer uniform: they crowd towards one half.
#[derive(Clone, Debug)]
pub(crate) struct Correlated {
    pub(crate) stream: ChaCha8Rng,
    correlation: f64,
    last: f64,
}

impl Correlated {
    pub(crate) fn new(mut stream: ChaCha8Rng, correlation: f64) -> Self {
        // Without correlation nothing is drawn that would shift the numbers after it.
        let last = if correlation > 0.0 {
            uniform(&mut stream)
        } else {
            0.0
        };
        Correlated {
            stream,
            correlation,
            last,
        }
    }

    /// The next number, in [0, 1).
    #[inline]
    pub(crate) fn next(&mut self) -> f64 {
        let fresh = uniform(&mut self.stream);
        if self.correlation == 0.0 {
            return fresh;
        }
        self.last = fresh * (1.0 - self.correlation) + self.last * self.correlation;
        self.last
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
        let steps = [(0, 0.0), (1_000, 0.1), (101_000, 1.0), (102_000, 0.0)];
        let steps = steps
            .map(|(ms, probability)| (at(ms), probability))
            .to_vec();
        let draws = vec![random::stream(1, "loss", 0)];
        let mut loss = Loss::new(Schedule::new(steps).unwrap(), draws);
        let mut lost = |from, to| (from..to).filter(|ms| loss.loses(at(*ms), 0)).count();
        assert_eq!(lost(0, 1_000), 0);
        // 100,000 draws: 10,000 expected with a standard deviation of 95.
        assert!(lost(1_000, 101_000).abs_diff(10_000) < 500);
        assert_eq!(lost(101_000, 102_000), 1_000);
        assert_eq!(lost(102_000, 103_000), 0);
    }

    #[test]
    fn a_flow_meets_its_own_draws_whatever_the_others_do() {
        let draws = || (0..2).map(|flow| random::stream(1, "loss", flow)).collect();
        let loss = || Loss::new(Schedule::constant(0.5), draws());
        let (mut alone, mut beside) = (loss(), loss());
        for at in (0..100).map(Time::from_millis) {
            beside.loses(at, 1);
            assert_eq!(alone.loses(at, 0), beside.loses(at, 0));
        }
    }
}
