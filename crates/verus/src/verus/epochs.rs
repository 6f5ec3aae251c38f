//! When epochs end: every ε. A late tick ends all that should have ended since.

use verus_core::units::{Duration, Time};

/// The epochs of a flow, which begin with its first decision.
#[derive(Debug)]
pub struct Epochs {
    length: Duration,
    open: Option<Open>,
}

/// The open epoch.
#[derive(Clone, Copy, Debug)]
struct Open {
    began: Time,
    end: Time,
}

/// The lengths of the epoch that ended and of the one that begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// How long the ended epoch lasted, in ε.
    pub ended: f64,
    /// How long the next epoch will last.
    pub next: Duration,
}

impl Epochs {
    /// Epochs of `length`.
    pub fn new(length: Duration) -> Self {
        Epochs { length, open: None }
    }

    /// When the open epoch ends; `None` before the first.
    #[inline]
    pub fn end(&self) -> Option<Time> {
        self.open.map(|open| open.end)
    }

    /// Begins the first epoch, unless one is open.
    pub fn begin(&mut self, now: Time) {
        self.open.get_or_insert(Open {
            began: now,
            end: now + self.length,
        });
    }

    /// Back to before the first epoch.
    pub fn stop(&mut self) {
        self.open = None;
    }

    /// Ends the open epoch, and with it those that should have ended since; `None` if none is open.
    #[inline]
    pub fn turn(&mut self, now: Time) -> Option<Turn> {
        let Open { began, end } = self.open?;
        let late = now.since(end);
        // Epochs are hardly ever missed: this branch saves the division.
        let missed = if late < self.length {
            0
        } else {
            late.as_nanos() / self.length.as_nanos()
        };
        let end = end + self.length * missed;
        self.open = Some(Open {
            began: end,
            end: end + self.length,
        });
        Some(Turn {
            ended: end.since(began) / self.length,
            next: self.length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Duration = Duration::from_millis(5);

    #[test]
    fn each_epoch_is_as_long_as_the_other() {
        let mut epochs = Epochs::new(EPOCH);
        epochs.begin(Time::ZERO);
        for number in 1..1000 {
            let end = epochs.end().expect("open");
            assert_eq!(end, Time::ZERO + EPOCH * number);
            let turn = epochs.turn(end).expect("open");
            assert_eq!((turn.ended, turn.next), (1.0, EPOCH));
        }
    }

    #[test]
    fn what_a_late_tick_has_missed_counts() {
        let mut epochs = Epochs::new(EPOCH);
        assert_eq!(epochs.turn(Time::from_millis(3)), None);
        epochs.begin(Time::ZERO);
        let turn = epochs.turn(Time::from_millis(17)).expect("open");
        assert_eq!((turn.ended, turn.next), (3.0, EPOCH));
        assert_eq!(epochs.end(), Some(Time::from_millis(20)));
        epochs.stop();
        assert_eq!(epochs.end(), None);
    }
}
