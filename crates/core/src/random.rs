//! Seeded random streams.
//!
//! Each flow, queue and generator draws from a separate stream, derived from the run's seed and the
//! stream's purpose. Adding a flow thus leaves the others' draws unchanged. ChaCha is chosen for
//! its documented, portable output: the same seed gives the same bytes everywhere.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The stream for the `index`-th user of `purpose` (a short fixed word such as `"queue"`) in a run
/// with `seed`. Streams of different seeds, purposes or indices are independent.
///
/// # Panics
/// If `purpose` is longer than 16 bytes (a programming error, not an input).
pub fn stream(seed: u64, purpose: &str, index: u64) -> ChaCha8Rng {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&index.to_le_bytes());
    let purpose = purpose.as_bytes();
    assert!(purpose.len() <= 16, "a stream's purpose is a short word");
    key[16..16 + purpose.len()].copy_from_slice(purpose);
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn streams_differ_by_seed_purpose_and_index_and_repeat() {
        let first = |seed, purpose, index| stream(seed, purpose, index).next_u64();
        assert_eq!(first(1, "queue", 0), first(1, "queue", 0));
        assert_ne!(first(1, "queue", 0), first(2, "queue", 0));
        assert_ne!(first(1, "queue", 0), first(1, "loss", 0));
        assert_ne!(first(1, "queue", 0), first(1, "queue", 1));
    }
}
