//! The least or greatest of recent samples, in constant time and space.
//!
//! [`Windowed`] is Kathleen Nichols' estimator, which Linux and the BBR draft use. It keeps the best sample of the
//! window and two later ones; when the best grows too old, the next takes its place. A sample that was the best when it
//! came counts until it is too old, never longer; one that was not may be forgotten early, since only three are kept.
//! [`TwoSpans`] is coarser: the best of the current span and of the one before. [`SlidingMin`] never forgets early,
//! for more memory.

use verus_core::units::{Duration, Time};

/// The order of samples.
pub(crate) trait Better: Copy + std::fmt::Debug {
    /// The type of the samples.
    type Value: Copy + PartialEq + std::fmt::Debug;

    /// Whether `new` is at least as good as `old`.
    fn is_better(new: Self::Value, old: Self::Value) -> bool;
}

/// The least is the best.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least<V>(std::marker::PhantomData<V>);

/// The greatest is the best.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greatest<V>(std::marker::PhantomData<V>);

impl<V: Copy + PartialOrd + std::fmt::Debug> Better for Least<V> {
    type Value = V;

    fn is_better(new: V, old: V) -> bool {
        new <= old
    }
}

impl<V: Copy + PartialOrd + std::fmt::Debug> Better for Greatest<V> {
    type Value = V;

    fn is_better(new: V, old: V) -> bool {
        new >= old
    }
}

/// The best sample in a sliding window. Positions are times in ns or rounds, as the caller chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windowed<B: Better> {
    /// The best sample, the best since that, and the best since that one, as (position, value).
    best: Option<[(u64, B::Value); 3]>,
}

/// The least of a window.
pub(crate) type WindowedMin<V> = Windowed<Least<V>>;
/// The greatest of a window.
pub(crate) type WindowedMax<V> = Windowed<Greatest<V>>;

impl<B: Better> Windowed<B> {
    pub(crate) const fn new() -> Self {
        Windowed { best: None }
    }

    /// The best; `None` before the first sample.
    pub(crate) fn get(&self) -> Option<B::Value> {
        self.best.map(|best| best[0].1)
    }

    /// Forgets everything but `value`, seen at `at`.
    pub(crate) fn reset(&mut self, at: u64, value: B::Value) {
        self.best = Some([(at, value); 3]);
    }

    /// Takes a sample seen at `at`, and forgets those older than `window`; returns the best.
    pub(crate) fn update(&mut self, at: u64, window: u64, value: B::Value) -> B::Value {
        let new = (at, value);
        let Some(mut best) = self.best else {
            self.reset(at, value);
            return value;
        };
        let age = |sample: (u64, B::Value)| at.saturating_sub(sample.0);
        if B::is_better(value, best[0].1) || age(best[2]) > window {
            self.reset(at, value);
            return value;
        }
        if B::is_better(value, best[1].1) {
            (best[1], best[2]) = (new, new);
        } else if B::is_better(value, best[2].1) {
            best[2] = new;
        }
        if age(best[0]) > window {
            best = [best[1], best[2], new];
            if age(best[0]) > window {
                best = [best[1], best[2], new];
            }
        } else if best[1].0 == best[0].0 && age(best[0]) > window / 4 {
            // A quarter of the window has passed without a second choice.
            (best[1], best[2]) = (new, new);
        } else if best[2].0 == best[1].0 && age(best[0]) > window / 2 {
            best[2] = new;
        }
        self.best = Some(best);
        best[0].1
    }
}

/// [`SlidingMin`] divides its window into this many parts, which are its resolution.
const PARTS: u64 = 64;
/// Samples that [`SlidingMin`] keeps: twice as many as its window has parts, since the window may grow.
const KEPT: usize = 128;

/// The least of a window that slides, over time: nothing is forgotten early, and at most a part of the window late.
///
/// It keeps those samples that no later one is below, since each will be the least once those before it are too old.
/// Samples within one part of the window are merged: the first of them counts for as long as the last.
#[derive(Clone, Debug)]
pub(crate) struct SlidingMin {
    /// A ring of samples: when each was first seen, until when it counts as seen, and its value.
    kept: [(Time, Time, Duration); KEPT],
    oldest: usize,
    len: usize,
}

impl SlidingMin {
    pub(crate) const fn new() -> Self {
        SlidingMin {
            kept: [(Time::ZERO, Time::ZERO, Duration::ZERO); KEPT],
            oldest: 0,
            len: 0,
        }
    }

    fn at(&self, index: usize) -> usize {
        (self.oldest + index) % KEPT
    }

    /// Takes a sample, and forgets those older than `window`; returns the least.
    pub(crate) fn update(&mut self, now: Time, window: Duration, value: Duration) -> Duration {
        while self.len > 0 && self.kept[self.at(self.len - 1)].2 >= value {
            self.len -= 1;
        }
        while self.len > 0 && now.since(self.kept[self.oldest].1) > window {
            self.oldest = self.at(1);
            self.len -= 1;
        }
        let newest = self.at(self.len.wrapping_sub(1) % KEPT);
        let part = window / PARTS;
        if self.len > 0 && (self.len == KEPT || now.since(self.kept[newest].0) < part) {
            self.kept[newest].1 = now;
        } else {
            self.kept[self.at(self.len)] = (now, now, value);
            self.len += 1;
        }
        self.kept[self.oldest].2
    }

    /// The least; `None` before the first sample.
    pub(crate) fn get(&self) -> Option<Duration> {
        (self.len > 0).then(|| self.kept[self.oldest].2)
    }
}

/// The greatest sample of the current span and of the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TwoSpans<V> {
    before: V,
    now: V,
}

impl<V: Copy + Default + Ord> TwoSpans<V> {
    /// Takes a sample.
    pub(crate) fn update(&mut self, value: V) {
        self.now = self.now.max(value);
    }

    /// The current span ends.
    pub(crate) fn advance(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// The greatest; zero before the first sample.
    pub(crate) fn get(&self) -> V {
        self.before.max(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_best_counts_until_it_is_too_old_and_then_the_best_since() {
        let mut minimum: WindowedMin<u64> = Windowed::new();
        assert_eq!(minimum.get(), None);
        assert_eq!(minimum.update(0, 100, 5), 5);
        assert_eq!(minimum.update(30, 100, 7), 5);
        assert_eq!(minimum.update(60, 100, 9), 5);
        assert_eq!(minimum.update(100, 100, 20), 5);
        assert_eq!(minimum.update(101, 100, 20), 7);
        assert_eq!(minimum.update(131, 100, 20), 9);
        assert_eq!(minimum.update(132, 100, 3), 3);
    }

    proptest! {
        #[test]
        fn a_sliding_least_is_that_of_the_window_and_of_a_part_before_it_at_the_most(
            samples in prop::collection::vec((0u64..400, 0u64..1000), 1..400),
            rises in any::<bool>(),
        ) {
            let window = Duration::from_nanos(6400);
            let part = window.as_nanos() / PARTS;
            let mut sliding = SlidingMin::new();
            let (mut at, mut observed) = (0, Vec::new());
            for (index, (step, value)) in samples.into_iter().enumerate() {
                at += step;
                // Each counts until it is too old where they get larger.
                let value = if rises { value / 100 + 10 * index as u64 } else { value };
                observed.push((at, value));
                let minimum = sliding.update(Time::from_nanos(at), window, Duration::from_nanos(value));
                let min_since = |span: u64| {
                    let recent = observed.iter().filter(|(then, _)| at - then <= span);
                    recent.map(|&(_, value)| Duration::from_nanos(value)).min()
                };
                prop_assert!(Some(minimum) <= min_since(window.as_nanos()));
                prop_assert!(Some(minimum) >= min_since(window.as_nanos() + part));
                prop_assert_eq!(sliding.get(), Some(minimum));
            }
        }
    }

    #[test]
    fn two_spans_remember_one_that_has_ended() {
        let mut spans = TwoSpans::<u64>::default();
        spans.update(5);
        spans.update(3);
        spans.advance();
        spans.update(2);
        assert_eq!(spans.get(), 5);
        spans.advance();
        assert_eq!(spans.get(), 2);
    }

    proptest! {
        #[test]
        fn it_is_a_sample_of_the_window_and_what_was_the_best_when_it_came_counts_until_it_is_too_old(
            samples in prop::collection::vec((0u64..40, 0u64..1000), 1..200),
        ) {
            const WINDOW: u64 = 100;
            let mut greatest: WindowedMax<u64> = Windowed::new();
            let (mut at, mut seen) = (0, Vec::new());
            for (step, value) in samples {
                at += step;
                let maximum = greatest.update(at, WINDOW, value);
                seen.push((at, value, value == maximum));
                let window = || seen.iter().filter(|(then, ..)| at - then <= WINDOW);
                prop_assert!(value <= maximum);
                prop_assert!(window().any(|&(_, value, _)| value == maximum));
                prop_assert!(window().all(|&(_, value, was_best)| !was_best || value <= maximum));
            }
        }
    }
}
