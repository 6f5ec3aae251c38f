//! Packets that others overtake.

use rand_chacha::ChaCha8Rng;
use verus_core::Duration;

use super::loss::uniform;

/// Takes some packets out of their order: they are under way for longer, and what was sent after them does not wait.
#[derive(Clone, Debug)]
pub struct Reorder {
    probability: f64,
    most: Duration,
    draws: ChaCha8Rng,
}

impl Reorder {
    /// Each packet with `probability` (0 to 1), for up to `most` longer, uniformly, drawn from `draws`.
    pub fn new(probability: f64, most: Duration, draws: ChaCha8Rng) -> Self {
        Reorder {
            probability,
            most,
            draws,
        }
    }

    /// How much longer the next packet takes, if it is taken out of its order. Both draws are made for each packet, so
    /// that another probability leaves the times of the others.
    pub(super) fn draw(&mut self) -> Option<Duration> {
        let chosen = uniform(&mut self.draws) < self.probability;
        let late = self.most.mul_f64(uniform(&mut self.draws));
        chosen.then_some(late)
    }
}
