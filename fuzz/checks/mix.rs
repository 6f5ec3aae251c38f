//! Makes new scripts from those in a corpus, in a simple imitation of a fuzzer; for tests that run
//! on stable Rust.

use rand::RngExt;

use super::replay::corpus;

/// Hands `check` scripts that a seed makes of those in a corpus: pieces of two, with bytes changed.
///
/// # Panics
/// If the corpus is missing or empty, or `check` panics: the seed is then the last one printed.
pub fn mix(name: &str, seeds: std::ops::Range<u64>, check: fn(&[u8])) {
    let scripts = corpus(name);
    for seed in seeds {
        println!("seed {seed}");
        let mut dice = verus_core::random::stream(seed, "mix", 0);
        let mut piece = || {
            let (_, script) = &scripts[dice.random_range(0..scripts.len() as u64) as usize];
            let at = dice.random_range(0..=script.len() as u64) as usize;
            (script, at)
        };
        let ((first, to), (second, from)) = (piece(), piece());
        let mut script = [&first[..to], &second[from..]].concat();
        for _ in 0..dice.random_range(0..=1 + script.len() as u64 / 8) {
            if !script.is_empty() {
                let at = dice.random_range(0..script.len() as u64) as usize;
                script[at] = dice.random();
            }
        }
        check(&script);
    }
}
