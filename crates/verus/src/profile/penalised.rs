//! Penalised regression spline, as the authors' prototype fits its profile.
//!
//! A cubic B-spline on equidistant knots minimises Σ(y − f)² + λ·Σ(Δ²c)², squared errors plus
//! squared second differences of its coefficients (Eilers & Marx 1996, "P-splines"). These
//! approximate the integrated squared curvature. The prototype asks its library for w_max/15 basis
//! functions (never fewer than five) and a penalty of ρ = 2 on a logarithmic scale.

use super::{Curve, Point};

/// log₁₀ of the penalty, per point and basis function.
const RHO: f64 = 2.0;
/// One basis function for each this many packets of window.
const PACKETS_PER_BASIS: usize = 15;
/// The prototype lowers the divisor until there are this many basis functions.
const MIN_BASIS: usize = 5;
/// Basis functions that overlap at any point: the order of a cubic.
const ORDER: usize = 4;

/// Buffers of the penalised fit, reused from refit to refit.
#[derive(Debug, Default)]
pub struct Penalised {
    /// The normal matrix, lower band: row i holds columns i−3..=i.
    band: Vec<[f64; ORDER]>,
    coefficients: Vec<f64>,
}

impl Penalised {
    /// Fits `points` (ascending windows) and writes the curve for windows 1..=`largest`.
    pub fn fit(&mut self, points: &[Point], largest: usize, curve: &mut Curve) {
        curve.clear();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return;
        };
        let basis = (largest / PACKETS_PER_BASIS).max(MIN_BASIS).max(ORDER);
        let span = (last.window - first.window).max(1.0);
        let segments = (basis - (ORDER - 1)) as f64;
        let place = |window: f64| {
            let t = ((window - first.window) / span).clamp(0.0, 1.0) * segments;
            let at = (t as usize).min(basis - ORDER);
            (at, cubic_basis(t - at as f64))
        };
        self.band.clear();
        self.band.resize(basis, [0.0; ORDER]);
        self.coefficients.clear();
        self.coefficients.resize(basis, 0.0);
        for point in points {
            let (at, b) = place(point.window);
            for i in 0..ORDER {
                self.coefficients[at + i] += point.weight * b[i] * point.delay_ms;
                for j in 0..=i {
                    self.band[at + i][ORDER - 1 - (i - j)] += point.weight * b[i] * b[j];
                }
            }
        }
        let scale = points.len() as f64 / basis as f64;
        let penalty = libm::pow(10.0, RHO) * scale / (segments * segments);
        for at in 0..basis - 2 {
            let difference = [1.0, -2.0, 1.0];
            for i in 0..3 {
                for j in 0..=i {
                    self.band[at + i][ORDER - 1 - (i - j)] +=
                        penalty * difference[i] * difference[j];
                }
            }
        }
        self.solve();
        for window in 1..=largest {
            let (at, b) = place(window as f64);
            let value: f64 = (0..ORDER).map(|i| b[i] * self.coefficients[at + i]).sum();
            curve.push(value);
        }
    }

    /// Banded Cholesky factorisation and substitution, in place.
    fn solve(&mut self) {
        let n = self.band.len();
        for i in 0..n {
            let from = i.saturating_sub(ORDER - 1);
            for j in from..=i {
                let mut sum = self.band[i][ORDER - 1 - (i - j)];
                for k in from.max(j.saturating_sub(ORDER - 1))..j {
                    sum -= self.band[i][ORDER - 1 - (i - k)] * self.band[j][ORDER - 1 - (j - k)];
                }
                self.band[i][ORDER - 1 - (i - j)] = if i == j {
                    // A tiny ridge keeps a basis function without points solvable.
                    sum.max(1e-9).sqrt()
                } else {
                    sum / self.band[j][ORDER - 1]
                };
            }
        }
        for i in 0..n {
            let mut sum = self.coefficients[i];
            for k in i.saturating_sub(ORDER - 1)..i {
                sum -= self.band[i][ORDER - 1 - (i - k)] * self.coefficients[k];
            }
            self.coefficients[i] = sum / self.band[i][ORDER - 1];
        }
        for i in (0..n).rev() {
            let mut sum = self.coefficients[i];
            for k in i + 1..(i + ORDER).min(n) {
                sum -= self.band[k][ORDER - 1 - (k - i)] * self.coefficients[k];
            }
            self.coefficients[i] = sum / self.band[i][ORDER - 1];
        }
    }
}

/// The four uniform cubic B-splines that overlap a segment, at `t` in 0..=1 within it.
fn cubic_basis(t: f64) -> [f64; ORDER] {
    let (t2, t3) = (t * t, t * t * t);
    [
        (1.0 - 3.0 * t + 3.0 * t2 - t3) / 6.0,
        (4.0 - 6.0 * t2 + 3.0 * t3) / 6.0,
        (1.0 + 3.0 * t + 3.0 * t2 - 3.0 * t3) / 6.0,
        t3 / 6.0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(points: &[Point], largest: usize) -> Curve {
        let mut curve = Curve::default();
        Penalised::default().fit(points, largest, &mut curve);
        curve
    }

    #[test]
    fn a_straight_line_is_reproduced() {
        // Its coefficients lie on a line too, so the penalty takes nothing.
        for largest in [3usize, 10, 60, 400] {
            let points: Vec<Point> = (1..=largest)
                .map(|window| Point {
                    window: window as f64,
                    delay_ms: 40.0 + 0.5 * window as f64,
                    weight: 1.0,
                })
                .collect();
            let curve = fit(&points, largest);
            for (at, point) in points.iter().enumerate() {
                let error = curve.delay_ms(at) - point.delay_ms;
                assert!(error.abs() < 2e-3, "{error} at {at} of {largest}");
            }
        }
    }

    #[test]
    fn noise_is_smoothed() {
        let points: Vec<Point> = (1..=100)
            .map(|window| Point {
                window: f64::from(window),
                delay_ms: 100.0 + if window % 2 == 0 { 20.0 } else { -20.0 },
                weight: 1.0,
            })
            .collect();
        let curve = fit(&points, 100);
        for at in 0..100 {
            assert!((curve.delay_ms(at) - 100.0).abs() < 5.0);
        }
    }

    #[test]
    fn the_basis_adds_up_to_one() {
        for step in 0..=10 {
            let sum: f64 = cubic_basis(f64::from(step) / 10.0).iter().sum();
            assert!((sum - 1.0).abs() < 1e-12);
        }
    }
}
