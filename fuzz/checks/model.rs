//! Invariants of any bytes read as a model.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use verus_core::Duration;
use verus_model::{Model, Walk, WalkKind};

/// Reads `bytes` as a model, and once more with a checksum that fits: mutations would hardly ever
/// get past it.
///
/// # Panics
/// If a parsed model is invalid, cannot be walked, or differs from the model read from its own
/// bytes.
pub fn check(bytes: &[u8]) {
    read(bytes);
    if let Some(end) = bytes.len().checked_sub(32)
        && end >= 18
    {
        let mut sealed = bytes.to_vec();
        sealed[10..18].copy_from_slice(&(end as u64 - 18).to_le_bytes());
        let sum = Sha256::digest(&sealed[..end]);
        sealed[end..].copy_from_slice(&sum);
        read(&sealed);
    }
}

fn read(bytes: &[u8]) {
    let Ok(model) = Model::from_bytes(bytes) else {
        return;
    };
    assert!(!model.matrix().is_empty());
    assert_eq!(Model::from_bytes(&model.to_bytes()).as_ref(), Ok(&model));
    let packets_max = model.matrix().grid().packets_max;
    let model = Arc::new(model);
    for kind in [WalkKind::Paper, WalkKind::Sampled] {
        let mut walk = Walk::new(Arc::clone(&model), kind, 1);
        for (delay, sent) in [(0, 0), (30, 1), (41, 900), (1 << 40, 0), (43, 2)] {
            assert!(walk.step(Duration::from_millis(delay), sent) <= packets_max);
        }
    }
}
