//! Monotone fit: pool adjacent violators, then a shape-preserving cubic through the pools.
//!
//! More data in flight never arrives sooner, so a profile that falls anywhere is noise. The
//! isotonic regression (Ayer et al. 1955) is the non-decreasing step function nearest to the
//! points; Fritsch–Carlson (1980) slopes join its steps smoothly without overshoot. A monotone
//! curve can be inverted everywhere, so that Verus need not restart as the prototype does.
//!
//! The curve can be given a least slope: the regression then runs on the points' heights above a
//! line of that slope.

use super::{Curve, Point};

/// A run of points pooled to one level above the line of the least slope.
#[derive(Clone, Copy, Debug)]
struct Pool {
    weight: f64,
    delay: f64,
    window: f64,
}

/// Buffers of the monotone fit, reused from refit to refit.
#[derive(Debug, Default)]
pub struct Monotone {
    pools: Vec<Pool>,
    slopes: Vec<f64>,
}

impl Monotone {
    /// Fits `points` (ascending windows) and writes the curve for windows 1..=`largest`. Each
    /// packet of window adds at least `least_slope` ms.
    pub fn fit(&mut self, points: &[Point], largest: usize, least_slope: f64, curve: &mut Curve) {
        self.pool(points, least_slope);
        self.slope();
        self.draw(largest, least_slope, curve);
    }

    fn pool(&mut self, points: &[Point], least_slope: f64) {
        self.pools.clear();
        for point in points {
            let mut pool = Pool {
                weight: point.weight,
                delay: point.delay_ms - least_slope * point.window,
                window: point.window,
            };
            while let Some(last) = self.pools.last() {
                if last.delay < pool.delay {
                    break;
                }
                let weight = last.weight + pool.weight;
                let mean = |a: f64, b: f64| (a * last.weight + b * pool.weight) / weight;
                pool = Pool {
                    weight,
                    delay: mean(last.delay, pool.delay),
                    window: mean(last.window, pool.window),
                };
                self.pools.pop();
            }
            self.pools.push(pool);
        }
    }

    /// Fritsch–Carlson slopes at the pools: the weighted harmonic mean of the secants on both
    /// sides, the secant itself at the ends.
    fn slope(&mut self) {
        let pools = &self.pools;
        let secant = |i: usize| {
            (pools[i + 1].delay - pools[i].delay) / (pools[i + 1].window - pools[i].window)
        };
        self.slopes.clear();
        let last = pools.len().saturating_sub(1);
        for at in 0..pools.len() {
            self.slopes.push(match at {
                _ if last == 0 => 0.0,
                0 => secant(0),
                _ if at == last => secant(last - 1),
                _ => {
                    let (left, right) = (secant(at - 1), secant(at));
                    let before = pools[at].window - pools[at - 1].window;
                    let after = pools[at + 1].window - pools[at].window;
                    let (w1, w2) = (2.0 * after + before, after + 2.0 * before);
                    (w1 + w2) / (w1 / left + w2 / right)
                }
            });
        }
    }

    fn draw(&self, largest: usize, least_slope: f64, curve: &mut Curve) {
        curve.clear();
        let pools = &self.pools;
        let Some(first) = pools.first() else { return };
        let mut segment = 0;
        for window in 1..=largest {
            let x = window as f64;
            while segment + 1 < pools.len() && pools[segment + 1].window <= x {
                segment += 1;
            }
            let from = &pools[segment];
            let delay = if x <= first.window {
                first.delay
            } else if segment + 1 == pools.len() {
                from.delay
            } else {
                let to = &pools[segment + 1];
                let width = to.window - from.window;
                let t = (x - from.window) / width;
                let (m0, m1) = (
                    self.slopes[segment] * width,
                    self.slopes[segment + 1] * width,
                );
                let rise = to.delay - from.delay;
                // Cubic Hermite in powers of t.
                from.delay
                    + t * (m0 + t * ((3.0 * rise - 2.0 * m0 - m1) + t * (m0 + m1 - 2.0 * rise)))
            };
            curve.push(delay + least_slope * x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(delays: &[(f64, f64)]) -> Vec<Point> {
        (1..)
            .zip(delays)
            .map(|(window, &(delay_ms, weight))| Point {
                window: f64::from(window),
                delay_ms,
                weight,
            })
            .collect()
    }

    fn pools(delays: &[(f64, f64)], least_slope: f64) -> Vec<(f64, f64)> {
        let mut fit = Monotone::default();
        fit.pool(&points(delays), least_slope);
        fit.pools
            .iter()
            .map(|pool| (pool.window, pool.delay + least_slope * pool.window))
            .collect()
    }

    #[test]
    fn violators_are_pooled_to_their_mean() {
        let level = |delays: &[f64]| {
            let weighted: Vec<_> = delays.iter().map(|&delay| (delay, 1.0)).collect();
            pools(&weighted, 0.0)
        };
        let pooled = level(&[10.0, 30.0, 20.0, 40.0]);
        assert_eq!(pooled, [(1.0, 10.0), (2.5, 25.0), (4.0, 40.0)]);
        // A pool may fall below the one before it, which then joins: 20, 30 and 10 have mean 20.
        assert_eq!(level(&[20.0, 30.0, 10.0]), [(2.0, 20.0)]);
    }

    #[test]
    fn a_heavier_point_counts_for_more() {
        let pooled = pools(&[(30.0, 3.0), (20.0, 1.0)], 0.0);
        assert_eq!(pooled, [(1.25, 27.5)]);
    }

    #[test]
    fn a_least_slope_pools_what_rises_too_little() {
        // Above a line of 10 ms a packet the points are at 0, −5 and 5: the first two are pooled.
        let pooled = pools(&[(10.0, 1.0), (15.0, 1.0), (35.0, 1.0)], 10.0);
        assert_eq!(pooled, [(1.5, 12.5), (3.0, 35.0)]);
    }

    #[test]
    fn slopes_are_the_weighted_harmonic_mean_of_the_secants() {
        // Secants 10 and 30 at equal distance: 2/(1/10 + 1/30) = 15; the ends have their own.
        let mut fit = Monotone::default();
        fit.pool(&points(&[(10.0, 1.0), (20.0, 1.0), (50.0, 1.0)]), 0.0);
        fit.slope();
        assert_eq!(fit.slopes[0], 10.0);
        assert!((fit.slopes[1] - 15.0).abs() < 1e-9);
        assert_eq!(fit.slopes[2], 30.0);
    }

    proptest! {
        #[test]
        fn the_curve_rises_through_its_points_without_overshoot(
            delays in prop::collection::vec((1.0f64..500.0, 0.01f64..1.0), 1..40),
        ) {
            let points = points(&delays);
            let mut fit = Monotone::default();
            let mut curve = Curve::default();
            let mut before = f64::NEG_INFINITY;
            let range = points.iter().map(|p| p.delay_ms);
            let lowest = range.clone().fold(f64::INFINITY, f64::min);
            let highest = range.fold(0.0, f64::max);
            for largest in 1..=points.len() {
                fit.fit(&points, largest, 0.0, &mut curve);
                // The fit's own value, not the running maximum of the table.
                let value = curve.last[1];
                prop_assert!(value >= before - 1e-9, "{value} after {before}");
                prop_assert!((lowest - 1e-9..=highest + 1e-9).contains(&value));
                before = value;
            }
        }
    }
}
