//! Propagation: how long a packet is under way, over time.

use verus_core::{Duration, Time};

use crate::schedule::{Follower, Schedule};

/// A path's propagation delay, which may change in steps.
#[derive(Clone, Debug)]
pub struct Delay {
    delay: Follower<Duration>,
    in_order: bool,
    /// When the last packet arrives.
    latest: Time,
}

impl Delay {
    /// A path that keeps packets in order: when the delay drops, those sent later wait for those already
    /// under way, as in a queue.
    pub fn new(delay: Schedule<Duration>) -> Self {
        let delay = Follower::new(delay);
        Delay {
            delay,
            in_order: true,
            latest: Time::ZERO,
        }
    }

    /// A path on which packets overtake others when the delay drops.
    pub fn reordering(delay: Schedule<Duration>) -> Self {
        Delay {
            in_order: false,
            ..Delay::new(delay)
        }
    }

    /// When a packet that sets out at `now` arrives. `now` never goes back from call to call; nor, on
    /// a path that keeps order, does the answer.
    #[inline]
    pub fn arrival(&mut self, now: Time) -> Time {
        let arrival = now + self.delay.at(now);
        self.latest = if self.in_order {
            arrival.max(self.latest)
        } else {
            arrival
        };
        self.latest
    }

    /// The delay at `now`, which never goes back from call to call.
    #[inline]
    pub fn at(&mut self, now: Time) -> Duration {
        self.delay.at(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_order_when_the_delay_drops() {
        let at = Time::from_millis;
        let steps = vec![
            (at(0), Duration::from_millis(50)),
            (at(10), Duration::from_millis(20)),
        ];
        let schedule = Schedule::new(steps).unwrap();
        let arrivals = |mut delay: Delay| [9, 10, 20, 40].map(|ms| delay.arrival(at(ms)));
        let expected = [at(59), at(59), at(59), at(60)];
        assert_eq!(arrivals(Delay::new(schedule.clone())), expected);
        let expected = [at(59), at(30), at(40), at(60)];
        assert_eq!(arrivals(Delay::reordering(schedule)), expected);
    }
}
