//! Invariants of any bytes read as a link log.

/// Reads `bytes` as a link log.
///
/// # Panics
/// If its report contradicts itself.
pub fn check(bytes: &[u8]) {
    verus_measure::mahimahi::fuzz(bytes);
}
