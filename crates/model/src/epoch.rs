//! The delay of an epoch: one number for what its acknowledgements said.
//!
//! The paper takes another one in training than in the walk. A sample is "the current packet delay"
//! (§4.1), that of the newest acknowledgement; a step heeds "the most recent maximum perceived
//! packet delay … (observed during the last epoch)" (§3.2).

use verus_core::units::{Duration, Time};

/// The round-trip time that represents an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// The longest: in the walk.
    Longest,
    /// The one acknowledged last: in training.
    Newest,
}

/// Follows the round-trip time that represents each epoch.
#[derive(Clone, Debug)]
pub struct EpochDelay {
    stands: Stands,
    /// The delay of the open epoch so far.
    open: Option<Duration>,
    /// The delay of the last epoch that ended.
    latest: Option<Duration>,
    last_ack: Time,
}

impl EpochDelay {
    /// The state before the first epoch.
    pub fn new(stands: Stands) -> Self {
        EpochDelay {
            stands,
            open: None,
            latest: None,
            last_ack: Time::ZERO,
        }
    }

    /// A packet was acknowledged at `now` after `rtt`.
    #[inline]
    pub fn on_sample(&mut self, now: Time, rtt: Duration) {
        self.open = Some(match (self.stands, self.open) {
            (Stands::Longest, Some(open)) => open.max(rtt),
            (Stands::Newest, _) | (_, None) => rtt,
        });
        self.last_ack = now;
    }

    /// Ends the open epoch; returns its delay, `None` until the first sample. An epoch without a
    /// sample keeps the delay before it. While packets are `under_way`, the time since the last
    /// acknowledgement counts instead if it is longer: these packets have waited at least that
    /// long.
    #[inline]
    pub fn end(&mut self, now: Time, under_way: bool) -> Option<Duration> {
        let delay = match (self.open.take(), self.latest) {
            (Some(open), _) => open,
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
    fn an_epoch_has_its_longest_delay_and_a_silent_one_what_has_been_waited() {
        let ms = Duration::from_millis;
        let at = Time::from_millis;
        let mut delay = EpochDelay::new(Stands::Longest);
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

    #[test]
    fn in_training_it_has_its_newest() {
        let ms = Duration::from_millis;
        let at = Time::from_millis;
        let mut delay = EpochDelay::new(Stands::Newest);
        for (now, rtt) in [(6, 40), (7, 60), (8, 50)] {
            delay.on_sample(at(now), ms(rtt));
        }
        assert_eq!(delay.end(at(10), true), Some(ms(50)));
        assert_eq!(delay.end(at(15), true), Some(ms(50)));
    }
}
