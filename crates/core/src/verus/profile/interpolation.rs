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
            let left = (points[i].delay_ms - points[i - 1].delay_ms) / before;
            let right = (points[i + 1].delay_ms - points[i].delay_ms) / after;
            let diagonal = 2.0 * (before + after) - before * self.upper[i - 1];
            self.upper[i] = after / diagonal;
            self.curvature[i] = (6.0 * (right - left) - before * self.curvature[i - 1]) / diagonal;
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
