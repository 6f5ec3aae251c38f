//! Replays a corpus; for tests that run on stable Rust.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of `fuzz/corpus/NAME` and their contents, by name.
///
/// # Panics
/// If there are none.
pub fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read to its end").path())
        .map(|file| (file.clone(), fs::read(file).expect("the file was listed")))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

/// Hands every file of `fuzz/corpus/NAME` to `check`.
///
/// # Panics
/// If the corpus is missing or empty, or `check` panics: the file is then the last one printed.
pub fn replay(name: &str, check: fn(&[u8])) {
    for (file, bytes) in corpus(name) {
        println!("{}", file.display());
        check(&bytes);
    }
}
