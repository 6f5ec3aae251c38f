//! How spans of time are spread: exact mean and maximum, quantiles from a histogram.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;
use verus_core::Duration;

/// Significant digits of the quantiles.
const DIGITS: u8 = 3;

/// Counts spans of time, to be summed up as a [`Spread`].
#[derive(Clone, Debug)]
pub struct Spreading {
    histogram: Histogram<u64>,
    sum: u128,
}

/// The spread of some spans of time; quantiles to three digits. All zero if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many there were.
    pub number: u64,
    /// Mean, in ms.
    pub mean_ms: f64,
    /// Median, in ms.
    pub p50_ms: f64,
    /// 95th percentile, in ms.
    pub p95_ms: f64,
    /// 99th percentile, in ms.
    pub p99_ms: f64,
    /// Longest, in ms.
    pub max_ms: f64,
}

impl Default for Spreading {
    fn default() -> Self {
        Spreading {
            histogram: Histogram::new(DIGITS).expect("a number of digits that the library takes"),
            sum: 0,
        }
    }
}

impl Spreading {
    /// Counts one.
    pub fn record(&mut self, span: Duration) {
        let recorded = self.histogram.record(span.as_nanos());
        debug_assert!(recorded.is_ok(), "the histogram resizes itself");
        self.sum += u128::from(span.as_nanos());
    }

    /// The distribution so far.
    pub fn spread(&self) -> Spread {
        let number = self.histogram.len();
        if number == 0 {
            return Spread::default();
        }
        let quantile = |q| self.histogram.value_at_quantile(q) as f64 / 1e6;
        Spread {
            number,
            mean_ms: self.sum as f64 / number as f64 / 1e6,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mean {:.3} p50 {:.3} p95 {:.3} p99 {:.3} max {:.3} ms",
            self.mean_ms, self.p50_ms, self.p95_ms, self.p99_ms, self.max_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_of_one_to_a_hundred_is_known() {
        let mut spreading = Spreading::default();
        assert_eq!(spreading.spread(), Spread::default());
        for millis in 1..=100 {
            spreading.record(Duration::from_millis(millis));
        }
        let spread = spreading.spread();
        assert_eq!(spread.number, 100);
        assert_eq!(spread.mean_ms, 50.5);
        for (found, exact) in [
            (spread.p50_ms, 50.0),
            (spread.p95_ms, 95.0),
            (spread.p99_ms, 99.0),
            (spread.max_ms, 100.0),
        ] {
            assert!(
                (found - exact).abs() <= exact / 1000.0,
                "{found} for {exact}"
            );
        }
    }
}
