//! Makes new scripts of those in a corpus, a little of what a fuzzer does; for tests that run on stable Rust.

use std::fs;
use std::path::Path;

use rand::RngExt;

/// Hands `check` scripts that a seed makes of those in a corpus: pieces of two, with bytes changed.
///
/// # Panics
/// If the corpus is missing or empty, or `check` panics: the seed is then the last one printed.
pub fn mix(name: &str, seeds: std::ops::Range<u64>, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read to its end").path())
        .collect();
    files.sort();
    let scripts: Vec<Vec<u8>> = files
        .iter()
        .map(|file| fs::read(file).expect("the file was listed"))
        .collect();
    for seed in seeds {
        println!("seed {seed}");
        let mut dice = verus_core::random::stream(seed, "mix", 0);
        let mut piece = || {
            let script = &scripts[dice.random_range(0..scripts.len() as u64) as usize];
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
