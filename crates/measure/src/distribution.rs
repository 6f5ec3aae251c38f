//! Distributions of time spans: exact mean and maximum, quantiles from a histogram.

use verus_core::Duration;

/// The finest histogram step, in ns. Ten microseconds is a twelfth of a 1500-byte packet's time at 100 Mbit/s.
const UNIT_NANOS: u64 = 10_000;

/// The resolution of a histogram: units of 10 µs, or `digits` binary digits after the leading one
/// if that is coarser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolution {
    digits: u32,
}

impl Default for Resolution {
    fn default() -> Self {
        Resolution::SPANS
    }
}

impl Resolution {
    /// 1/1024 from 20 ms on; 4 kB for each power of two that spans reach there.
    pub(crate) const SPANS: Resolution = Resolution { digits: 10 };
    /// 1/16384: steps are at most a millisecond below 16 s, so that whole milliseconds stay apart.
    pub(crate) const WHOLE_MILLISECONDS: Resolution = Resolution { digits: 14 };

    /// The step that counts a span of `nanos` ns. Each power of two has 2^`digits` steps; below
    /// twice that many units, each unit has a step.
    #[inline]
    fn step(self, nanos: u64) -> usize {
        let units = nanos / UNIT_NANOS;
        let coarser = (units >> self.digits | 1).ilog2();
        ((u64::from(coarser) << self.digits) + (units >> coarser)) as usize
    }

    /// The shortest span that is counted in `step`, ns.
    fn lowest(self, step: usize) -> u64 {
        let step = step as u64;
        let coarser = (step >> self.digits).saturating_sub(1);
        ((step - (coarser << self.digits)) << coarser) * UNIT_NANOS
    }
}

/// A histogram of durations.
///
/// Quantiles are the lower end of their histogram step: below the exact value by less than the [`Resolution`], and never
/// above it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    resolution: Resolution,
    /// The first step that is kept, and how many spans are in each from there on: all that were counted lie within.
    first: usize,
    steps: Vec<u32>,
}

impl Counts {
    pub(crate) fn new(resolution: Resolution) -> Self {
        Counts {
            resolution,
            first: 0,
            steps: Vec::new(),
        }
    }

    /// Counts a span of `nanos` ns. Allocates only when it is the longest or shortest so far.
    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        let step = self.resolution.step(nanos);
        if step.wrapping_sub(self.first) >= self.steps.len() {
            self.cover(step, step);
        }
        let count = &mut self.steps[step - self.first];
        *count = count.saturating_add(1);
    }

    /// Makes room for the steps from `first` to `last`, and for all in the same powers of two.
    #[cold]
    fn cover(&mut self, first: usize, last: usize) {
        let power = 1 << self.resolution.digits;
        let (mut first, mut end) = (first - first % power, (last + 1).next_multiple_of(power));
        if !self.steps.is_empty() {
            first = first.min(self.first);
            end = end.max(self.first + self.steps.len());
        }
        let mut steps = vec![0; end - first];
        let kept = self.first.saturating_sub(first);
        steps[kept..kept + self.steps.len()].copy_from_slice(&self.steps);
        (self.first, self.steps) = (first, steps);
    }

    /// Adds the counts of `other`, at the same resolution.
    fn add(&mut self, other: &Counts) {
        debug_assert_eq!(self.resolution, other.resolution);
        if other.steps.is_empty() {
            return;
        }
        self.cover(other.first, other.first + other.steps.len() - 1);
        let from = other.first - self.first;
        for (sum, count) in self.steps[from..].iter_mut().zip(&other.steps) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// For each of the ascending `quantiles` the element ⌊q·n⌋ of the sorted spans, in ns; `None`
    /// when nothing was counted.
    pub(crate) fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<[u64; N]> {
        let total: u64 = self.steps.iter().map(|&count| u64::from(count)).sum();
        if total == 0 {
            return None;
        }
        let mut values = [0; N];
        let mut next = 0;
        let mut counted = 0;
        for (step, &count) in (self.first..).zip(&self.steps) {
            counted += u64::from(count);
            while next < N && rank(quantiles[next], total) < counted {
                values[next] = self.resolution.lowest(step);
                next += 1;
            }
            if next == N {
                break;
            }
        }
        Some(values)
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
#[derive(Debug, Default, Clone)]
pub(crate) struct Distribution {
    counts: Counts,
    number: u64,
    sum: u128,
    max: u64,
}

impl Distribution {
    pub(crate) fn new(resolution: Resolution) -> Self {
        Distribution {
            counts: Counts::new(resolution),
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
        let mut counts = Counts::new(Resolution::SPANS);
        for millis in 1..=20 {
            counts.record(millis * 1_000_000);
        }
        // ⌊0.5·20⌋ = 10 and ⌊0.95·20⌋ = 19, counted from zero.
        assert_eq!(
            counts.quantiles([0.5, 0.95]),
            Some([11_000_000, 20_000_000])
        );
        assert_eq!(Counts::new(Resolution::SPANS).quantiles([0.5]), None);
        assert_eq!(exact_quantile(&[3, 1, 2], 0.5), Some(2));
        assert_eq!(exact_quantile(&[3, 1, 2], 1.0), Some(3));
        assert_eq!(exact_quantile(&[], 0.5), None);
    }

    #[test]
    fn whole_milliseconds_rounded_up_are_exact_below_sixteen_seconds() {
        for millis in (0..16_000).chain([16_383]) {
            let mut counts = Counts::new(Resolution::WHOLE_MILLISECONDS);
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
            let mut counts = Counts::new(Resolution::SPANS);
            for &value in &values {
                counts.record(value);
            }
            let exact = exact_quantile(&values, q).expect("not empty");
            let [found] = counts.quantiles([q]).expect("not empty");
            prop_assert!(found <= exact);
            prop_assert!(exact - found < UNIT_NANOS.max(exact / 1_024 + UNIT_NANOS));
        }

        #[test]
        fn what_was_counted_apart_adds_up(
            values in prop::collection::vec((any::<bool>(), prop_oneof![0..50_000_000u64, 0..9_000_000_000u64]), 1..50),
        ) {
            let [mut apart, mut rest, mut together] = [(); 3].map(|()| Counts::new(Resolution::SPANS));
            for &(first, value) in &values {
                if first { apart.record(value) } else { rest.record(value) }
                together.record(value);
            }
            apart.add(&rest);
            let quantiles = [0.0, 0.1, 0.5, 0.9, 1.0];
            prop_assert_eq!(apart.quantiles(quantiles), together.quantiles(quantiles));
        }

        /// Steps follow each other without a gap, and a span lies in the one that says so.
        #[test]
        fn each_span_has_its_step(nanos in any::<u64>()) {
            for resolution in [Resolution::SPANS, Resolution::WHOLE_MILLISECONDS] {
                let step = resolution.step(nanos);
                prop_assert!(resolution.lowest(step) <= nanos);
                if step < resolution.step(u64::MAX) {
                    prop_assert!(nanos < resolution.lowest(step + 1));
                    prop_assert_eq!(resolution.step(resolution.lowest(step + 1)), step + 1);
                }
            }
        }
    }
}
