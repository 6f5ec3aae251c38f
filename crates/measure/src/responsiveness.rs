//! How long a round trip takes, idle and under load, and responsiveness in round trips a minute.

use verus_core::Duration;

use crate::path::Spans;

/// Share of the samples kept in a trimmed mean: the least 95 % (draft-ietf-ippm-responsiveness,
/// `TMP`).
const KEPT: f64 = 0.95;
/// A minute, ms.
const MINUTE_MS: f64 = 60_000.0;

/// Round-trip times.
#[derive(Clone, Debug)]
pub struct RoundTrips(Spans);

impl Default for RoundTrips {
    fn default() -> Self {
        RoundTrips(Spans::new())
    }
}

impl RoundTrips {
    /// One more.
    pub fn record(&mut self, rtt: Duration) {
        self.0.record(rtt.as_nanos());
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Their mean, ms.
    pub fn mean_ms(&self) -> Option<f64> {
        self.0.mean_ms(0)
    }

    /// A quantile, ms.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        self.0.quantile_ms(q, 0)
    }

    /// Round trips a minute: 60000 / the mean of the least 95 %, ms, as
    /// draft-ietf-ippm-responsiveness (§ Aggregating the Measurements) computes it for each kind of
    /// probe. The caller decides how many kinds there are, and over which protocols.
    pub fn rpm(&self) -> Option<f64> {
        let kept = ((self.count() as f64 * KEPT).floor() as u64).max(1);
        let mean = self.0.mean_of_least_ms(kept)?;
        (mean > 0.0).then(|| MINUTE_MS / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpm_leaves_the_slowest_twentieth_out() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.rpm(), None);
        for millis in [60; 19] {
            trips.record(Duration::from_millis(millis));
        }
        trips.record(Duration::from_secs(6));
        // The mean of the other 19 is 60 ms: 1000 a minute.
        assert!((trips.rpm().expect("some") - 1000.0).abs() < 1.0);
        assert!((trips.mean_ms().expect("some") - 357.0).abs() < 0.1);
    }

    #[test]
    fn a_single_round_trip_is_one() {
        let mut trips = RoundTrips::default();
        trips.record(Duration::from_millis(200));
        assert!((trips.rpm().expect("some") - 300.0).abs() < 0.5);
    }
}
