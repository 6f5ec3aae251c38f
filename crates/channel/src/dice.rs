//! Numbers drawn from a seeded stream, the same on every machine.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Uniform and normal numbers from a stream.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    stream: ChaCha8Rng,
    spare: Option<f64>,
}

impl Dice {
    pub(crate) fn new(stream: ChaCha8Rng) -> Self {
        Dice {
            stream,
            spare: None,
        }
    }

    /// In (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.stream.next_u64() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Mean 0, variance 1, by Marsaglia's polar method: no sine or cosine.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (u, v) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = u * u + v * v;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(v * factor);
                return u * factor;
            }
        }
    }

    /// How many events come where `mean` are expected (Poisson), by going up the distribution; `none` is the chance of
    /// none, e^−mean.
    pub(crate) fn poisson(&mut self, mean: f64, none: f64) -> u32 {
        let mut remaining = self.uniform();
        let (mut number, mut chance) = (0, none);
        while remaining > chance && chance > 0.0 {
            remaining -= chance;
            number += 1;
            chance *= mean / f64::from(number);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    #[test]
    fn poisson_numbers_have_their_mean_and_as_much_variance() {
        for mean in [1.0f64, 12.0] {
            let mut dice = Dice::new(random::stream(1, "jitter", 0));
            let none = libm::exp(-mean);
            let drawn: Vec<f64> = (0..100_000)
                .map(|_| f64::from(dice.poisson(mean, none)))
                .collect();
            let count = drawn.len() as f64;
            let average = drawn.iter().sum::<f64>() / count;
            let variance = drawn.iter().map(|x| (x - average).powi(2)).sum::<f64>() / count;
            // Standard errors: 0.3 % and 0.5 % of 1, 0.1 % and 0.5 % of 12.
            assert!((average / mean - 1.0).abs() < 0.012, "{average}");
            assert!((variance / mean - 1.0).abs() < 0.025, "{variance}");
        }
    }
}
