//! The times at which a queue with a controller updates its probability. There is no clock: due
//! updates are made up for as packets come and go.

use verus_core::{Duration, Time};

/// Instants at equal distances, the first one distance after the beginning.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    every: Duration,
    next: Time,
}

impl Ticks {
    pub(super) fn new(every: Duration) -> Self {
        Ticks {
            every,
            next: Time::ZERO + every,
        }
    }

    /// The distance between two updates.
    pub(super) fn every(&self) -> Duration {
        self.every
    }

    /// Takes the next instant that has come by `now`, if one has.
    #[inline]
    pub(super) fn next(&mut self, now: Time) -> Option<Time> {
        let at = self.next;
        if at > now {
            return None;
        }
        self.next = at + self.every;
        Some(at)
    }

    /// Skips all instants that have come by `now`, where their updates would change nothing.
    pub(super) fn pass(&mut self, now: Time) {
        let behind = now.since(self.next).as_nanos() / self.every.as_nanos();
        self.next += self.every * behind;
        if self.next <= now {
            self.next += self.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_over_ticks_keeps_their_places() {
        let at = Time::from_millis;
        let mut ticks = Ticks::new(Duration::from_millis(15));
        assert_eq!(ticks.next(at(14)), None);
        assert_eq!(ticks.next(at(31)), Some(at(15)));
        assert_eq!(ticks.next(at(31)), Some(at(30)));
        assert_eq!(ticks.next(at(31)), None);
        ticks.pass(at(150));
        assert_eq!(ticks.next(at(164)), None);
        assert_eq!(ticks.next(at(165)), Some(at(165)));
        ticks.pass(at(166));
        assert_eq!(ticks.next(at(180)), Some(at(180)));
    }
}
