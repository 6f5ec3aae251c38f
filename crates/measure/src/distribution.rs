//! Spans of time, counted: exact mean and maximum, quantiles from a histogram.

use hdrhistogram::Histogram;
use verus_core::Duration;

/// What one histogram step stands for. Ten microseconds is a twelfth of a 1500-byte packet's time
/// at 100 Mbit/s.
pub(crate) const UNIT_NANOS: u64 = 10_000;
/// Four digits: a step is exactly one unit up to 327 ms, and at most 1/16384 of the value above.
const DIGITS: u8 = 4;
/// Longest span that is counted as itself (about 127 days); the histogram's size follows from it.
const LONGEST: u64 = 1 << 40;
/// What a histogram covers before it first grows: 1.3 s.
const COVERED_AT_FIRST: u64 = 1 << 17;

/// A histogram of durations.
///
/// Quantiles are the lower end of their histogram step: below the exact value by less than
/// 10 µs or 1/16384 of it, whichever is more, and never above it. Values in whole milliseconds,
/// rounded up to the next one, are exact below 16 s.
#[derive(Debug, Clone)]
pub(crate) struct Counts(Histogram<u32>);

impl Counts {
    pub(crate) fn new() -> Self {
        let mut counts = Histogram::new_with_bounds(1, COVERED_AT_FIRST, DIGITS)
            .expect("constant bounds within the library's limits");
        counts.auto(true);
        Counts(counts)
    }

    /// Counts a span of `nanos` ns. Allocates only when it is the longest so far and crosses a
    /// power of two.
    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        let recorded = self.0.record((nanos / UNIT_NANOS).min(LONGEST));
        debug_assert!(recorded.is_ok(), "the histogram resizes itself");
    }

    /// Adds what `other` counted.
    fn add(&mut self, other: &Counts) {
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok(), "the histogram resizes itself");
    }

    /// For each of the ascending `quantiles` the element ⌊q·n⌋ of the sorted spans, in ns; `None`
    /// when nothing was counted.
    pub(crate) fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<[u64; N]> {
        let total = self.0.len();
        if total == 0 {
            return None;
        }
        let mut found = [0; N];
        let mut next = 0;
        let mut seen = 0;
        for step in self.0.iter_recorded() {
            seen += step.count_since_last_iteration();
            while next < N && rank(quantiles[next], total) < seen {
                found[next] = self.0.lowest_equivalent(step.value_iterated_to()) * UNIT_NANOS;
                next += 1;
            }
            if next == N {
                break;
            }
        }
        Some(found)
    }
}

/// Index of quantile `q` among `total` sorted elements: ⌊q·total⌋, as Mahimahi's scripts take it.
fn rank(q: f64, total: u64) -> u64 {
    ((q * total as f64) as u64).min(total.saturating_sub(1))
}

/// Element ⌊q·n⌋ of `values` when sorted, the convention of every quantile here; `None` when
/// there are none. For tests and small data: it sorts a copy.
pub fn exact_quantile(values: &[u64], q: f64) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(rank(q, values.len() as u64) as usize).copied()
}

/// [`Counts`] with an exact sum and maximum.
#[derive(Debug, Clone)]
pub(crate) struct Distribution {
    counts: Counts,
    number: u64,
    sum: u128,
    max: u64,
}

impl Distribution {
    pub(crate) fn new() -> Self {
        Distribution {
            counts: Counts::new(),
            number: 0,
            sum: 0,
            max: 0,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        self.counts.record(nanos);
        self.number += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    pub(crate) fn add(&mut self, other: &Distribution) {
        if other.number == 0 {
            return;
        }
        self.counts.add(&other.counts);
        self.number += other.number;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub(crate) fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<[u64; N]> {
        self.counts.quantiles(quantiles)
    }

    /// Exact mean in ms.
    pub(crate) fn mean_ms(&self) -> Option<f64> {
        (self.number > 0).then(|| self.sum as f64 / self.number as f64 / 1e6)
    }

    /// How many spans were counted.
    pub(crate) fn count(&self) -> u64 {
        self.number
    }

    /// Exact maximum in ms.
    pub(crate) fn max_ms(&self) -> Option<f64> {
        (self.number > 0).then(|| Duration::from_nanos(self.max).as_millis_f64())
    }

    /// Sum in ns.
    pub(crate) fn sum(&self) -> u128 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quantile_is_the_element_at_the_rounded_down_rank() {
        let mut counts = Counts::new();
        for millis in 1..=20 {
            counts.record(millis * 1_000_000);
        }
        // ⌊0.5·20⌋ = 10 and ⌊0.95·20⌋ = 19, counted from zero.
        assert_eq!(
            counts.quantiles([0.5, 0.95]),
            Some([11_000_000, 20_000_000])
        );
        assert_eq!(Counts::new().quantiles([0.5]), None);
        assert_eq!(exact_quantile(&[3, 1, 2], 0.5), Some(2));
        assert_eq!(exact_quantile(&[3, 1, 2], 1.0), Some(3));
        assert_eq!(exact_quantile(&[], 0.5), None);
    }

    #[test]
    fn whole_milliseconds_rounded_up_are_exact_below_sixteen_seconds() {
        for millis in (0..16_000).chain([16_383]) {
            let mut counts = Counts::new();
            counts.record(millis * 1_000_000);
            let [nanos] = counts.quantiles([0.5]).expect("one value was recorded");
            assert_eq!(nanos.div_ceil(1_000_000), millis);
        }
    }

    proptest! {
        #[test]
        fn quantiles_keep_the_stated_error(
            values in prop::collection::vec(
                prop_oneof![0..5_000_000u64, 0..500_000_000u64, 0..100_000_000_000u64], 1..300),
            q in 0.0..1.0f64,
        ) {
            let mut counts = Counts::new();
            for &value in &values {
                counts.record(value);
            }
            let exact = exact_quantile(&values, q).expect("not empty");
            let [found] = counts.quantiles([q]).expect("not empty");
            prop_assert!(found <= exact);
            prop_assert!(exact - found < UNIT_NANOS.max(exact / 16_384 + UNIT_NANOS));
        }

    }
}
