//! What must hold of whatever bytes are read as a raw arrival log.

use verus_channel::raw;

/// Reads `bytes` as a raw arrival log.
///
/// # Panics
/// If what was read is no trace that begins with its first arrival.
pub fn check(bytes: &[u8]) {
    let Ok(trace) = raw::parse("bytes", bytes) else {
        return;
    };
    assert_eq!(trace.opportunities().next(), Some(0));
    assert!(trace.opportunities().is_sorted());
    assert!(trace.period_ms() > 0);
}
