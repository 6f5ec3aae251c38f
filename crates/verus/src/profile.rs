//! Delay profiler: the delay of each sending window, learned from every acknowledgement (Verus §4,
//! §5.1).
//!
//! Eq. 1, W = f(d + δ), is kept inverted: here f(W) is the delay, and the window is f⁻¹(D).
//!
//! A *point* is kept for each window size in whole packets: a moving average of the delays of the packets that left
//! under that window. Once an update interval a *curve* is fitted to the points, and the window estimator inverts the
//! curve: it asks which window brings the delay wanted. It is kept as a non-decreasing table of integers, one for each
//! window, so that the fits need floating point but the search for a window does not.

mod interpolation;
mod monotone;
mod penalised;

use interpolation::Interpolation;
use monotone::Monotone;
use penalised::Penalised;

use super::units::{Millis, Packets};
use verus_core::controller::ProfileSnapshot;
use verus_core::units::{Duration, Time};

/// Windows beyond this many packets share the last point: bounds the profile's memory (the
/// prototype's own bound).
pub const LARGEST_WINDOW: usize = 40_000;

/// How the points of the profile become a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Natural cubic spline through every point (§5.1).
    Interpolation,
    /// Penalised regression spline (the prototype).
    Penalised,
    /// Isotonic regression joined by monotone cubics.
    Monotone,
}

/// A point as the fits see it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    window: f64,
    delay_ms: f64,
    weight: f64,
}

/// A point as stored.
#[derive(Clone, Copy, Debug)]
struct Kept {
    delay_ms: f64,
    updated: Option<Time>,
}

const NEVER: Kept = Kept {
    delay_ms: 0.0,
    updated: None,
};

/// The fitted curve as a lookup table.
#[derive(Debug, Default)]
struct Curve {
    /// Entry w−1: the largest delay in µs that the fit gives to any window up to w. This running maximum lets bisection
    /// find the first window past a delay even where the fit dips.
    table: Vec<u32>,
    /// The fit's own values at the last two windows, for the slope beyond.
    last: [f64; 2],
}

impl Curve {
    fn clear(&mut self) {
        self.table.clear();
        self.last = [0.0; 2];
    }

    /// Adds the delay in ms of the next window.
    #[inline]
    fn push(&mut self, delay_ms: f64) {
        self.last = [self.last[1], delay_ms];
        // Saturates below zero and above 71 minutes.
        let micros = (delay_ms * 1000.0) as u32;
        self.table
            .push(self.table.last().map_or(micros, |&last| last.max(micros)));
    }

    fn delay_ms(&self, index: usize) -> f64 {
        f64::from(self.table[index]) / 1000.0
    }
}

/// The delay profile of one flow.
#[derive(Debug, Default)]
pub struct Profile {
    /// Point of each window; index 0 is never used.
    kept: Vec<Kept>,
    curve: Curve,
    points: Vec<Point>,
    monotone: Monotone,
    penalised: Penalised,
    interpolation: Interpolation,
    /// Where the last lookup ended; the next one mostly ends near it.
    cursor: usize,
}

impl Profile {
    /// An empty profile.
    pub fn new() -> Self {
        Profile {
            kept: vec![NEVER; 1],
            ..Profile::default()
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.kept.push(NEVER);
        self.curve.clear();
        self.cursor = 0;
    }

    /// Forgets the points from this window on.
    pub fn cut(&mut self, Packets(window): Packets) {
        self.kept.truncate((window as usize).max(1));
    }

    /// A packet that left under `window` took `rtt` (§5.1: the point's moving average).
    #[inline]
    pub fn add(&mut self, now: Time, window: Packets, rtt: Duration, history_weight: f64) {
        let at = (window.0 as usize).clamp(1, LARGEST_WINDOW);
        if at >= self.kept.len() {
            self.kept.resize(at + 1, NEVER);
        }
        let delay = rtt.as_millis_f64();
        let point = &mut self.kept[at];
        point.delay_ms = match point.updated {
            None => delay,
            Some(_) => history_weight * point.delay_ms + (1.0 - history_weight) * delay,
        };
        point.updated = Some(now);
    }

    /// The largest window with a point.
    pub fn largest(&self) -> usize {
        self.kept.len().saturating_sub(1)
    }

    /// Fits the curve anew to the points. A point of age a weighs 1 / (1 + (a / `memory`)²), or 1 without a memory. Each
    /// packet of window adds at least `least_slope` ms to a monotone curve.
    pub fn refit(&mut self, now: Time, fit: Fit, memory: Option<Duration>, least_slope: f64) {
        self.points.clear();
        for (window, kept) in self.kept.iter_mut().enumerate() {
            let Some(updated) = kept.updated else {
                continue;
            };
            let weight = match memory {
                None => 1.0,
                Some(memory) => {
                    let age = now.since(updated) / memory;
                    if age > FORGET_AGES {
                        *kept = NEVER;
                        continue;
                    }
                    1.0 / (1.0 + age * age)
                }
            };
            self.points.push(Point {
                window: window as f64,
                delay_ms: kept.delay_ms,
                weight,
            });
        }
        while self.kept.len() > 1 && self.kept[self.kept.len() - 1].updated.is_none() {
            self.kept.pop();
        }
        let largest = self.largest();
        match fit {
            Fit::Monotone => {
                self.monotone
                    .fit(&self.points, largest, least_slope, &mut self.curve);
            }
            Fit::Penalised => self.penalised.fit(&self.points, largest, &mut self.curve),
            Fit::Interpolation => self
                .interpolation
                .fit(&self.points, largest, &mut self.curve),
        }
        self.cursor = self.cursor.min(self.curve.table.len().saturating_sub(1));
    }

    /// Packets are `factor` times as many from now on, for the same bytes: points and curve move to the windows that they
    /// are about.
    pub fn rescale(&mut self, factor: f64) {
        let kept = std::mem::replace(&mut self.kept, vec![NEVER; 1]);
        for (window, point) in kept.into_iter().enumerate() {
            if point.updated.is_some() {
                let at = ((window as f64 * factor).round() as usize).clamp(1, LARGEST_WINDOW);
                if at >= self.kept.len() {
                    self.kept.resize(at + 1, NEVER);
                }
                // Of two points for one window, the newer is kept.
                if self.kept[at].updated <= point.updated {
                    self.kept[at] = point;
                }
            }
        }
        let count = self.curve.table.len();
        if count == 0 {
            return;
        }
        let windows = ((count as f64 * factor).round() as usize).clamp(1, LARGEST_WINDOW);
        let delays: Vec<f64> = (1..=windows)
            .filter_map(|window| self.delay_at(Packets(window as f64 / factor)))
            .map(|delay| delay.0)
            .collect();
        self.curve.clear();
        delays.into_iter().for_each(|delay| self.curve.push(delay));
        self.cursor = 0;
    }

    /// f(W): the delay of `window`. `None` without a curve.
    pub fn delay_at(&self, window: Packets) -> Option<Millis> {
        let count = self.curve.table.len();
        if count == 0 {
            return None;
        }
        let x = (window.0 - 1.0).max(0.0);
        let at = x as usize;
        Some(Millis(if at + 1 < count {
            let (low, high) = (self.curve.delay_ms(at), self.curve.delay_ms(at + 1));
            low + (x - at as f64) * (high - low)
        } else {
            self.curve.delay_ms(count - 1) + (x - (count - 1) as f64) * self.slope()
        }))
    }

    /// f⁻¹(D): the window, at least one packet, whose delay is `delay`. Above its last window the curve is
    /// continued as a straight line. `None` without a curve.
    #[inline]
    pub fn window_at(&mut self, Millis(delay_ms): Millis) -> Option<Packets> {
        let count = self.curve.table.len();
        if count == 0 {
            return None;
        }
        let above = self.first_above((delay_ms * 1000.0) as u32);
        if above == 0 {
            return Some(Packets(1.0));
        }
        let low = self.curve.delay_ms(above - 1);
        if above < count {
            let high = self.curve.delay_ms(above);
            let between = ((delay_ms - low) / (high - low)).clamp(0.0, 1.0);
            return Some(Packets(above as f64 + between));
        }
        let window = count as f64 + (delay_ms - low).max(0.0) / self.slope();
        Some(Packets(window.min(LARGEST_WINDOW as f64)))
    }

    /// f⁻¹(D) as the prototype looks it up: one less than the first window, from 2 on, whose delay exceeds D. `None`
    /// also where no window's delay does.
    pub fn whole_window_at(&mut self, Millis(delay_ms): Millis) -> Option<Packets> {
        let count = self.curve.table.len();
        if count == 0 {
            return None;
        }
        let above = self.first_above((delay_ms * 1000.0) as u32);
        if above < count {
            return Some(Packets((above as f64).max(1.0)));
        }
        // Beyond its natural end a cubic spline continues as a straight line.
        let slope = self.curve.last[1] - self.curve.last[0];
        let beyond = (delay_ms - self.curve.last[1]) / slope;
        let window = count as f64 + beyond.max(0.0).floor();
        (slope > 0.0 && window < LARGEST_WINDOW as f64).then_some(Packets(window))
    }

    /// Index of the first table entry above `micros`; the table's length if there is none. The
    /// estimate moves by a few milliseconds an epoch, so the search gallops from where the last
    /// one ended.
    #[inline]
    fn first_above(&mut self, micros: u32) -> usize {
        let table = &self.curve.table;
        let mut low = 0;
        let mut high = table.len();
        let start = self.cursor.min(high - 1);
        let mut stride = 4;
        if table[start] > micros {
            high = start;
            while low + stride < high && table[high - stride] > micros {
                high -= stride;
                stride *= 2;
            }
            low = high.saturating_sub(stride).max(low);
        } else {
            low = start + 1;
            while low + stride < high && table[low + stride - 1] <= micros {
                low += stride;
                stride *= 2;
            }
            high = (low + stride).min(high);
        }
        let at = low + table[low..high].partition_point(|&entry| entry <= micros);
        self.cursor = at.min(table.len() - 1);
        at
    }

    /// Delay in ms that each packet adds beyond the curve. Where the window exceeds the
    /// bandwidth-delay product, the delay is W/C and each packet adds 1/C. So delay over window is
    /// the least slope to assume where the curve ends flat.
    fn slope(&self) -> f64 {
        let count = self.curve.table.len();
        let end = self.curve.delay_ms(count - 1);
        let through_origin = end / count as f64;
        let from = count / 2;
        let rise = (end - self.curve.delay_ms(from)) / (count - from).max(1) as f64;
        through_origin.max(rise).max(1e-3)
    }

    /// Points and curve, for plots.
    pub fn snapshot(&self) -> ProfileSnapshot {
        let kept = self.kept.iter().enumerate();
        ProfileSnapshot {
            points: kept
                .filter(|(_, kept)| kept.updated.is_some())
                .map(|(window, kept)| (window as f64, kept.delay_ms))
                .collect(),
            curve: drawn(self.curve.table.len())
                .map(|at| ((at + 1) as f64, self.curve.delay_ms(at)))
                .collect(),
        }
    }
}

/// Points older than this many memories are dropped.
const FORGET_AGES: f64 = 8.0;

/// Which entries of a curve of `count` entries are drawn: all, or a thousand at equal distances if there are more. A
/// window that nothing bounds (paper mode with a short buffer) makes curves of 40,000 entries, one a second for each
/// flow.
fn drawn(count: usize) -> impl Iterator<Item = usize> {
    const MOST: usize = 1000;
    let last = count.saturating_sub(1);
    (0..count.min(MOST)).map(move |at| {
        if count <= MOST {
            at
        } else {
            at * last / (MOST - 1)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A profile whose curve was fitted to these (window, delay in ms) points.
    fn fitted(points: impl IntoIterator<Item = (f64, f64)>, fit: Fit) -> Profile {
        let mut profile = Profile::new();
        for (window, delay_ms) in points {
            profile.add(
                Time::ZERO,
                Packets(window),
                Duration::from_millis_f64(delay_ms),
                0.875,
            );
        }
        profile.refit(Time::ZERO, fit, None, 0.0);
        profile
    }

    #[test]
    fn a_point_is_a_moving_average() {
        let mut profile = Profile::new();
        for delay in [40, 80] {
            profile.add(
                Time::ZERO,
                Packets(3.9),
                Duration::from_millis(delay),
                0.875,
            );
        }
        // 0.875 · 40 + 0.125 · 80 = 45, under the whole window.
        assert_eq!(profile.snapshot().points, [(3.0, 45.0)]);
    }

    #[test]
    fn old_points_fade_and_are_forgotten() {
        let memory = Duration::from_secs(1);
        let mut profile = Profile::new();
        let old = Duration::from_millis(100);
        profile.add(Time::ZERO, Packets(2.0), old, 0.0);
        let later = Time::ZERO + memory * 9;
        profile.add(later, Packets(1.0), Duration::from_millis(40), 0.0);
        profile.refit(later, Fit::Monotone, Some(memory), 0.0);
        assert_eq!(profile.snapshot().points, [(1.0, 40.0)]);
        assert_eq!(profile.largest(), 1);
    }

    #[test]
    fn a_long_curve_is_drawn_at_a_thousand_windows_from_its_first_to_its_last() {
        assert_eq!(drawn(0).count(), 0);
        assert_eq!(
            drawn(1000).collect::<Vec<_>>(),
            (0..1000).collect::<Vec<_>>()
        );
        let long: Vec<usize> = drawn(40_000).collect();
        assert_eq!((long.len(), long[0], long[999]), (1000, 0, 39_999));
        assert!(long.windows(2).all(|pair| pair[1] - pair[0] <= 41));
    }

    #[test]
    fn above_the_largest_window_the_curve_goes_on_with_its_slope() {
        let line = (1..=50).map(|w| (f64::from(w), 2.0 * f64::from(w)));
        let mut profile = fitted(line, Fit::Monotone);
        let window = profile.window_at(Millis(200.0)).expect("extrapolated").0;
        assert!((window - 100.0).abs() < 1e-6, "{window}");
        let delay = profile.delay_at(Packets(100.0));
        let delay = delay.expect("there is a curve").0;
        assert!((delay - 200.0).abs() < 1e-6, "{delay}");
        assert_eq!(
            profile.window_at(Millis(1e9)),
            Some(Packets(LARGEST_WINDOW as f64)),
            "bounded whatever is asked for"
        );
    }

    #[test]
    fn below_the_curve_the_window_is_one_packet_and_without_a_curve_there_is_none() {
        let mut profile = fitted([(1.0, 40.0), (10.0, 100.0)], Fit::Monotone);
        assert_eq!(profile.window_at(Millis(10.0)), Some(Packets(1.0)));
        let mut empty = Profile::new();
        assert_eq!(empty.window_at(Millis(10.0)), None);
        assert_eq!(empty.delay_at(Packets(10.0)), None);
    }

    #[test]
    fn the_prototype_takes_one_less_than_the_first_window_past_the_delay() {
        let line = (1..=30).map(|w| (f64::from(w), 10.0 * f64::from(w)));
        let mut profile = fitted(line, Fit::Penalised);
        let mut at = |delay| profile.whole_window_at(Millis(delay));
        assert_eq!(at(55.0), Some(Packets(5.0)));
        assert_eq!(at(5.0), Some(Packets(1.0)));
        // Beyond, the line goes on by 10 ms a packet.
        assert_eq!(at(325.0), Some(Packets(32.0)));
    }

    #[test]
    fn a_curve_that_ends_flat_has_no_whole_window_above() {
        let flat = (1..=30).map(|w| (f64::from(w), 40.0));
        let mut profile = fitted(flat, Fit::Monotone);
        assert_eq!(profile.whole_window_at(Millis(42.0)), None);
    }

    fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((1.0f64..300.0, 1.0f64..2000.0), 1..60)
    }

    fn any_fit() -> impl Strategy<Value = Fit> {
        prop::sample::select(vec![Fit::Monotone, Fit::Penalised, Fit::Interpolation])
    }

    proptest! {
        #[test]
        fn the_table_never_falls_whatever_the_fit(points in points(), fit in any_fit()) {
            let profile = fitted(points, fit);
            let curve = profile.snapshot().curve;
            prop_assert_eq!(curve.len(), profile.largest());
            prop_assert!(curve.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        }

        #[test]
        fn the_inverse_undoes_the_profile(
            points in points(),
            fit in any_fit(),
            windows in prop::collection::vec(1.0f64..400.0, 1..20),
        ) {
            let mut profile = fitted(points, fit);
            let count = profile.largest() as f64;
            for window in windows {
                let delay = profile.delay_at(Packets(window)).expect("a curve");
                let back = profile.window_at(delay).expect("extrapolated");
                let again = profile.delay_at(back).expect("a curve");
                prop_assert!((again - delay).0.abs() < 2e-3, "{again:?} for {delay:?}");
                let rises = |at: f64| {
                    let below = profile.delay_at(Packets(at.floor())).expect("a curve");
                    let above = profile.delay_at(Packets(at.floor() + 1.0)).expect("a curve");
                    above - below > Millis(0.1) && at.fract() > 0.05
                };
                // Where the curve is flat, any window of that level will do.
                if window > count || rises(window) {
                    prop_assert!((back.0 - window).abs() < 0.05, "{back:?} for {window}");
                }
            }
        }

        #[test]
        fn the_galloping_search_finds_what_a_plain_one_finds(
            points in points(),
            delays in prop::collection::vec(0.0f64..2500.0, 1..50),
        ) {
            let mut profile = fitted(points, Fit::Monotone);
            for delay in delays {
                let micros = (delay * 1000.0) as u32;
                let by_bisection = profile.curve.table.partition_point(|&entry| entry <= micros);
                prop_assert_eq!(profile.first_above(micros), by_bisection);
            }
        }
    }
}
