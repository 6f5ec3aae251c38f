//! When epochs end: every ε on average, with a random part.
//!
//! A flow sends as its epochs begin. Between flows of equal ε the phase never changes, so that one flow always finds
//! the shared queue full because another has just filled it: its losses, and so its share, then depend on when it
//! happened to begin. Floyd and Jacobson (1992, *On Traffic Phase Effects in Packet-Switched Gateways*) describe this
//! effect and its remedy, a random part in the time of sending. In the default mode each epoch of a flow that shares
//! its path may end at a random moment within ε after its due time; due times stay ε apart, so that the mean length
//! stays ε.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use verus_core::random;
use verus_core::units::{Duration, Time};

/// The epochs of a flow, which begin with its first decision.
#[derive(Debug)]
pub struct Epochs {
    length: Duration,
    random: ChaCha8Rng,
    open: Option<Open>,
}

/// The open epoch.
#[derive(Clone, Copy, Debug)]
struct Open {
    began: Time,
    /// When it would end without jitter.
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
    /// Epochs of `length`; `seed` is that of the random times by which they end late.
    pub fn new(length: Duration, seed: u64) -> Self {
        Epochs {
            length,
            random: random::stream(seed, "epochs", 0),
            open: None,
        }
    }

    /// When the open epoch ends; `None` before the first.
    #[inline]
    pub fn end(&self) -> Option<Time> {
        self.open.map(|open| open.end)
    }

    /// Begins the first epoch, unless one is open.
    pub fn begin(&mut self, now: Time) {
        if self.open.is_none() {
            self.open(now, now + self.length, 0.0);
        }
    }

    /// Back to before the first epoch.
    pub fn stop(&mut self) {
        self.open = None;
    }

    /// Ends the open epoch, and with it those that should have ended since; `None` if none is open. The next one ends
    /// late by a random share of ε below `jitter`.
    #[inline]
    pub fn turn(&mut self, now: Time, jitter: f64) -> Option<Turn> {
        let Open { began, due, end } = self.open?;
        let late = now.since(due);
        // Epochs are hardly ever missed: this branch saves the division.
        let missed = if late < self.length {
            0
        } else {
            late.as_nanos() / self.length.as_nanos()
        };
        let end = end + self.length * missed;
        let next = self.open(end, due + self.length * (missed + 1), jitter);
        Some(Turn {
            ended: end.since(began) / self.length,
            next,
        })
    }

    /// Opens an epoch; returns its length.
    fn open(&mut self, began: Time, due: Time, jitter: f64) -> Duration {
        let mut end = due;
        if jitter > 0.0 {
            let late = jitter * self.random.random::<f64>();
            end += self.length.mul_f64(late);
        }
        self.open = Some(Open { began, due, end });
        end.since(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Duration = Duration::from_millis(5);

    /// The lengths of a thousand epochs, in ms.
    fn lengths(jitter: f64, seed: u64) -> Vec<f64> {
        let mut epochs = Epochs::new(EPOCH, seed);
        epochs.begin(Time::ZERO);
        let mut before = Time::ZERO;
        (0..1000)
            .map(|_| {
                let end = epochs.end().expect("open");
                let turn = epochs.turn(end, jitter).expect("open");
                let length = end.since(before);
                assert!((turn.ended - length / EPOCH).abs() < 1e-9);
                assert_eq!(turn.next, epochs.end().expect("open").since(end));
                before = end;
                length.as_millis_f64()
            })
            .collect()
    }

    #[test]
    fn without_jitter_each_epoch_is_as_long_as_the_other() {
        assert!(lengths(0.0, 1).iter().all(|&length| length == 5.0));
    }

    #[test]
    fn with_jitter_they_differ_from_flow_to_flow_and_keep_their_mean() {
        let (one, other) = (lengths(0.9, 1), lengths(0.9, 2));
        assert_ne!(one, other);
        for lengths in [one, other] {
            assert!(lengths.iter().all(|&length| 0.5 < length && length < 9.5));
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            assert!((mean - 5.0).abs() < 0.01, "{mean} ms");
            let short = lengths.iter().filter(|&&length| length < 4.0).count();
            assert!((250..400).contains(&short), "{short} of 1000 below 4 ms");
        }
    }

    #[test]
    fn what_a_late_tick_has_missed_counts() {
        let mut epochs = Epochs::new(EPOCH, 1);
        assert_eq!(epochs.turn(Time::from_millis(3), 0.0), None);
        epochs.begin(Time::ZERO);
        let turn = epochs.turn(Time::from_millis(17), 0.0).expect("open");
        assert_eq!((turn.ended, turn.next), (3.0, EPOCH));
        assert_eq!(epochs.end(), Some(Time::from_millis(20)));
        epochs.stop();
        assert_eq!(epochs.end(), None);
    }
}
