//! Invariants of any bytes read as a raw arrival log.

use verus_channel::raw;

/// Reads `bytes` as a raw arrival log.
///
/// # Panics
/// If the parsed log is no trace that begins with its first arrival.
pub fn check(bytes: &[u8]) {
    let Ok(trace) = raw::parse("bytes", bytes) else {
        return;
    };
    assert_eq!(trace.opportunities().next(), Some(0));
    assert!(trace.opportunities().is_sorted());
    assert!(trace.period_ms() > 0);
}
