//! When epochs end: every ε on average. A late tick ends all that should have ended since.

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
    /// When it would end if it did not end late.
    due: Time,
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
            due: now + self.length,
            end: now + self.length,
        });
    }

    /// Back to before the first epoch.
    pub fn stop(&mut self) {
        self.open = None;
    }

    /// Ends the open epoch, and with it those that should have ended since; `None` if none is open.
    /// The next one ends late by the share of ε that `late` returns. Due times stay ε apart, so
    /// that the mean length stays ε while that share is below 1.
    #[inline]
    pub fn turn(&mut self, now: Time, late: impl FnOnce() -> f64) -> Option<Turn> {
        let Open { began, due, end } = self.open?;
        let overdue = now.since(due);
        // Epochs are hardly ever missed: this branch saves the division.
        let missed = if overdue < self.length {
            0
        } else {
            overdue.as_nanos() / self.length.as_nanos()
        };
        let end = end + self.length * missed;
        let due = due + self.length * (missed + 1);
        let open = Open {
            began: end,
            due,
            end: due + self.length.mul_f64(late()),
        };
        self.open = Some(open);
        Some(Turn {
            ended: end.since(began) / self.length,
            next: open.end.since(end),
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
            let turn = epochs.turn(end, || 0.0).expect("open");
            assert_eq!((turn.ended, turn.next), (1.0, EPOCH));
        }
    }

    #[test]
    fn epochs_that_end_late_keep_their_mean() {
        let mut epochs = Epochs::new(EPOCH);
        epochs.begin(Time::ZERO);
        let ms = |millis| EPOCH.mul_f64(f64::from(millis) / 5.0);
        let (mut began, mut lengths) = (Time::ZERO, Vec::new());
        for late in [0.0, 0.4, 0.8, 0.2, 0.0] {
            let end = epochs.end().expect("open");
            let turn = epochs.turn(end, || late).expect("open");
            assert_eq!(turn.next, epochs.end().expect("open").since(end));
            lengths.push(end.since(began));
            began = end;
        }
        assert_eq!(lengths, [5, 5, 7, 7, 2].map(ms));
    }

    #[test]
    fn what_a_late_tick_has_missed_counts() {
        let mut epochs = Epochs::new(EPOCH);
        assert_eq!(epochs.turn(Time::from_millis(3), || 0.0), None);
        epochs.begin(Time::ZERO);
        let turn = epochs.turn(Time::from_millis(17), || 0.0).expect("open");
        assert_eq!((turn.ended, turn.next), (3.0, EPOCH));
        assert_eq!(epochs.end(), Some(Time::from_millis(20)));
        epochs.stop();
        assert_eq!(epochs.end(), None);
    }
}
