//! Estimates of a flow's round-trip time, and the timeout that follows from them (RFC 6298).

use crate::recovery::{TimeoutBase, TimeoutRule};
use crate::units::Duration;

/// Smoothed round-trip time and its mean deviation (RFC 6298 §2).
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimate {
    smoothed: Duration,
    deviation: Duration,
    latest: Duration,
    least: Option<Duration>,
}

impl RttEstimate {
    /// Takes one sample.
    #[inline]
    pub fn update(&mut self, rtt: Duration) {
        self.latest = rtt;
        match self.least {
            None => {
                self.least = Some(rtt);
                self.smoothed = rtt;
                self.deviation = rtt / 2;
            }
            Some(least) => {
                self.least = Some(least.min(rtt));
                // RTTVAR before SRTT, with β = 1/4 and α = 1/8.
                let error = self.smoothed.abs_diff(rtt);
                self.deviation = (self.deviation * 3 + error) / 4;
                self.smoothed = (self.smoothed * 7 + rtt) / 8;
            }
        }
    }

    /// SRTT; zero before the first sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// RTTVAR; zero before the first sample.
    pub fn deviation(&self) -> Duration {
        self.deviation
    }

    /// The last sample; zero before the first.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The least sample of the flow's life.
    pub fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The retransmission timeout after `backoff` timeouts in a row.
    pub fn timeout(&self, rule: &TimeoutRule, backoff: u32) -> Duration {
        let base = match (self.least, rule.base) {
            (None, _) => rule.initial,
            (Some(_), TimeoutBase::Smoothed) => self.smoothed + self.deviation * 4,
            (Some(_), TimeoutBase::LastDelay { factor }) => self.latest.mul_f64(factor),
        };
        if backoff == 0 {
            return base.max(rule.min).min(rule.max);
        }
        let doublings = if rule.backoff { backoff.min(16) } else { 0 };
        (base.max(rule.min) * (1 << doublings)).min(rule.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298_and_backs_off() {
        let rule = crate::recovery::Recovery::rack().timeout;
        let mut rtt = RttEstimate::default();
        assert_eq!(rtt.timeout(&rule, 0), Duration::from_secs(1));
        rtt.update(Duration::from_millis(100));
        // SRTT 100, RTTVAR 50: 100 + 4 × 50.
        assert_eq!(rtt.timeout(&rule, 0), Duration::from_millis(300));
        rtt.update(Duration::from_millis(140));
        // RTTVAR (3 × 50 + 40) / 4 = 47.5, SRTT (7 × 100 + 140) / 8 = 105.
        assert_eq!(rtt.timeout(&rule, 0), Duration::from_millis(295));
        assert_eq!(rtt.timeout(&rule, 2), Duration::from_millis(4 * 295));
        assert_eq!(rtt.timeout(&rule, 40), rule.max);
    }
}
