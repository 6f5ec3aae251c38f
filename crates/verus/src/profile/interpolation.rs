//! Cubic interpolation: the natural cubic spline through every point (Verus §5.1).

use super::{Curve, Point};

/// Buffers of the interpolating fit, reused from refit to refit.
#[derive(Debug, Default)]
pub struct Interpolation {
    /// Second derivatives at the points.
    curvature: Vec<f64>,
    /// Eliminated upper diagonal of the Thomas algorithm.
    upper: Vec<f64>,
}

impl Interpolation {
    /// Interpolates `points` (ascending windows) and writes the curve for windows
    /// 1..=`largest`. Outside the points the curve goes on straight.
    pub fn fit(&mut self, points: &[Point], largest: usize, curve: &mut Curve) {
        curve.clear();
        if points.is_empty() {
            return;
        }
        self.solve(points);
        let mut segment = 0;
        for window in 1..=largest {
            let x = window as f64;
            while segment + 2 < points.len() && points[segment + 1].window <= x {
                segment += 1;
            }
            curve.push(self.value(points, segment, x));
        }
    }

    /// The tridiagonal system h₍ᵢ₋₁₎M₍ᵢ₋₁₎ + 2(h₍ᵢ₋₁₎+hᵢ)Mᵢ + hᵢM₍ᵢ₊₁₎ = 6(sᵢ − s₍ᵢ₋₁₎) with natural
    /// ends M₀ = Mₙ = 0, where h are the gaps and s the secants.
    fn solve(&mut self, points: &[Point]) {
        let n = points.len();
        self.curvature.clear();
        self.curvature.resize(n, 0.0);
        self.upper.clear();
        self.upper.resize(n, 0.0);
        for i in 1..n.saturating_sub(1) {
            let before = points[i].window - points[i - 1].window;
            let after = points[i + 1].window - points[i].window;
            let slope_before = (points[i].delay_ms - points[i - 1].delay_ms) / before;
            let slope_after = (points[i + 1].delay_ms - points[i].delay_ms) / after;
            let diagonal = 2.0 * (before + after) - before * self.upper[i - 1];
            self.upper[i] = after / diagonal;
            self.curvature[i] =
                (6.0 * (slope_after - slope_before) - before * self.curvature[i - 1]) / diagonal;
        }
        for i in (1..n.saturating_sub(1)).rev() {
            self.curvature[i] -= self.upper[i] * self.curvature[i + 1];
        }
    }

    fn value(&self, points: &[Point], at: usize, x: f64) -> f64 {
        let from = &points[at];
        let Some(to) = points.get(at + 1) else {
            return from.delay_ms;
        };
        let width = to.window - from.window;
        let secant = (to.delay_ms - from.delay_ms) / width;
        let (m0, m1) = (self.curvature[at], self.curvature[at + 1]);
        if x < from.window {
            return from.delay_ms + (x - from.window) * (secant - width * (2.0 * m0 + m1) / 6.0);
        }
        if x > to.window {
            return to.delay_ms + (x - to.window) * (secant + width * (m0 + 2.0 * m1) / 6.0);
        }
        let (a, b) = ((to.window - x) / width, (x - from.window) / width);
        a * from.delay_ms
            + b * to.delay_ms
            + ((a * a * a - a) * m0 + (b * b * b - b) * m1) * width * width / 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(points: &[(f64, f64)], largest: usize) -> Curve {
        let points: Vec<Point> = points
            .iter()
            .map(|&(window, delay_ms)| Point {
                window,
                delay_ms,
                weight: 1.0,
            })
            .collect();
        let mut curve = Curve::default();
        Interpolation::default().fit(&points, largest, &mut curve);
        curve
    }

    fn delays(curve: &Curve) -> Vec<f64> {
        (0..curve.table.len())
            .map(|at| curve.delay_ms(at))
            .collect()
    }

    #[test]
    fn the_spline_through_four_points_is_the_one_worked_by_hand() {
        // h = 2 and secants 5, 10, 5: 8M₁ + 2M₂ = 30 and 2M₁ + 8M₂ = −30, so M₁ = 5 and M₂ = −5.
        // Half-way the spline is the mean of the ends less h²/16 of the sum of both M:
        // 15 − 5/4, 30 − 0, 45 + 5/4.
        let curve = fit(&[(1.0, 10.0), (3.0, 20.0), (5.0, 40.0), (7.0, 50.0)], 7);
        let expected = [10.0, 13.75, 20.0, 30.0, 40.0, 46.25, 50.0];
        for (got, expected) in delays(&curve).into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-3 + 1e-9, "{got} for {expected}");
        }
    }

    #[test]
    fn outside_its_points_the_spline_goes_on_straight_and_the_table_never_falls() {
        // One inner point: 8M₁ = 6(−4 − 4), M₁ = −6; at 2 the spline has 4 + 6/4, and beyond 5 the
        // slope −4 + 2·(−6)/6 = −6.
        let curve = fit(&[(1.0, 0.0), (3.0, 8.0), (5.0, 0.0)], 7);
        let last = curve.last;
        assert!((last[0] + 6.0).abs() < 1e-9 && (last[1] + 12.0).abs() < 1e-9);
        assert_eq!(delays(&curve), [0.0, 5.5, 8.0, 8.0, 8.0, 8.0, 8.0]);
    }

    #[test]
    fn one_point_is_a_level_and_two_are_a_line() {
        assert_eq!(delays(&fit(&[(2.0, 30.0)], 3)), [30.0; 3]);
        let line = fit(&[(2.0, 30.0), (4.0, 40.0)], 6);
        assert_eq!(delays(&line), [25.0, 30.0, 35.0, 40.0, 45.0, 50.0]);
    }
}
