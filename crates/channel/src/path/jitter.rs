//! Delay that differs from packet to packet.

use rand_chacha::ChaCha8Rng;
use verus_core::Duration;

use super::loss::uniform;

/// Makes the propagation of each packet longer by a time of its own, uniformly drawn. Packets keep their order.
#[derive(Clone, Debug)]
pub struct Jitter {
    most: Duration,
    draws: ChaCha8Rng,
}

impl Jitter {
    /// Up to `most`, drawn from `draws`.
    pub fn new(most: Duration, draws: ChaCha8Rng) -> Self {
        Jitter { most, draws }
    }

    /// How much longer the next packet takes.
    pub(super) fn draw(&mut self) -> Duration {
        self.most.mul_f64(uniform(&mut self.draws))
    }
}
