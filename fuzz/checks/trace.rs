//! Invariants of any bytes read as a trace.

use verus_channel::Trace;

/// Reads `bytes` as a trace.
///
/// # Panics
/// If the parsed trace is invalid, or differs from the same times given as numbers.
pub fn check(bytes: &[u8]) {
    let Ok(trace) = Trace::parse("bytes", bytes) else {
        return;
    };
    let (mut count, mut last) = (0, 0);
    for time in trace.opportunities() {
        assert!(last <= time, "time went backwards");
        last = time;
        count += 1;
    }
    assert_eq!(count, trace.len());
    assert_eq!(last, trace.period_ms());
    assert!(last > 0);
    let runs: u64 = trace.runs().map(|(_, opportunities)| opportunities).sum();
    assert_eq!(runs, count);
    assert_eq!(
        trace.count_before(last.saturating_add(1)),
        if last == u64::MAX {
            trace.count_before(last)
        } else {
            count
        }
    );
    let again = Trace::from_millis("bytes", trace.opportunities())
        .expect("these times were accepted before");
    assert_eq!(again, trace);
    assert_eq!(again.len(), count);
}
