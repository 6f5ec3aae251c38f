//! The delay of an epoch: one number for what its acknowledgements said.

use crate::units::{Duration, Time};

/// Follows the largest round-trip time of each epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochDelay {
    /// The largest of the open epoch so far.
    largest: Option<Duration>,
    /// That of the last epoch that ended.
    latest: Option<Duration>,
    last_ack: Time,
}

impl EpochDelay {
    /// A packet was acknowledged at `now` after `rtt`.
    #[inline]
    pub fn on_sample(&mut self, now: Time, rtt: Duration) {
        self.largest = Some(self.largest.map_or(rtt, |largest| largest.max(rtt)));
        self.last_ack = now;
    }

    /// Ends the open epoch; returns its delay, `None` until the first sample. An epoch without one
    /// keeps the delay before it or, while packets are `under_way`, the time since the last
    /// acknowledgement if that is longer: what waits has waited at least so long.
    #[inline]
    pub fn end(&mut self, now: Time, under_way: bool) -> Option<Duration> {
        let delay = match (self.largest.take(), self.latest) {
            (Some(largest), _) => largest,
            (None, Some(latest)) if under_way => latest.max(now.since(self.last_ack)),
            (None, latest) => latest?,
        };
        self.latest = Some(delay);
        self.latest
    }

    /// The delay of the last epoch that ended.
    pub fn latest(&self) -> Option<Duration> {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_its_largest_delay_and_a_silent_one_what_has_been_waited() {
        let ms = Duration::from_millis;
        let at = Time::from_millis;
        let mut delay = EpochDelay::default();
        assert_eq!(delay.end(at(5), true), None);
        delay.on_sample(at(6), ms(40));
        delay.on_sample(at(7), ms(60));
        delay.on_sample(at(8), ms(50));
        assert_eq!(delay.end(at(10), true), Some(ms(60)));
        assert_eq!(delay.end(at(15), true), Some(ms(60)));
        assert_eq!(delay.end(at(108), true), Some(ms(100)));
        assert_eq!(delay.end(at(500), false), Some(ms(100)), "nothing waits");
        delay.on_sample(at(501), ms(45));
        assert_eq!(delay.end(at(505), true), Some(ms(45)));
    }
}
