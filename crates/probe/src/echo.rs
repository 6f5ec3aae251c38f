//! Round trips of small packets, sent evenly before the load and under it: the delay of the idle path, and of the loaded.
//!
//! An echo is a client's challenge, which a server of any version answers with one response of the
//! same size, so that nothing is amplified. Its bytes cannot be guessed, so a response proves that
//! the challenge arrived. Echoes share the test's UDP flow and therefore its queue, even where each
//! flow has a queue.

use std::collections::VecDeque;

use verus_core::{Duration, Time};
use verus_measure::RoundTrips;

use super::seal::Key;

/// From one echo to the next: ten a second are 8 kbit/s each way, and a bin of a time series has one.
pub const EVERY: Duration = Duration::from_millis(100);
/// Echoes that may be under way; of more, the oldest counts as lost. They bridge 25 s of silence.
const MOST_OUT: usize = 256;
/// Answers that wait to be looked at; more are measured and not shown.
const MOST_KEPT: usize = 1024;
/// Sets the bytes of echoes apart from those of flows, which have lower numbers.
const OWN: u16 = u16::MAX;

/// A round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echo {
    /// When it left.
    pub sent: Time,
    /// How long it took.
    pub rtt: Duration,
}

/// The echoes of a test.
#[derive(Clone, Debug)]
pub struct Echoes {
    secret: Key,
    due: Time,
    /// When the load begins. Echoes that return before then met an idle path; echoes that leave
    /// later meet a loaded one.
    load_from: Time,
    number: u64,
    out: VecDeque<([u8; 16], Time)>,
    idle: RoundTrips,
    loaded: RoundTrips,
    news: Vec<Echo>,
}

impl Echoes {
    /// The echoes of a test that begins now and whose load begins at `load_from`.
    pub(super) fn new(secret: &Key, now: Time, load_from: Time) -> Self {
        Echoes {
            secret: secret.clone(),
            due: now,
            load_from,
            number: 0,
            out: VecDeque::with_capacity(MOST_OUT),
            idle: RoundTrips::default(),
            loaded: RoundTrips::default(),
            news: Vec::new(),
        }
    }

    /// When the next leaves.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// The bytes of the next echo, if it is due.
    pub(super) fn poll(&mut self, now: Time) -> Option<[u8; 16]> {
        if now < self.due {
            return None;
        }
        self.due = now + EVERY;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..].copy_from_slice(&self.secret.secret(self.number, OWN).to_be_bytes());
        self.number += 1;
        if self.out.len() == MOST_OUT {
            self.out.pop_front();
        }
        self.out.push_back((bytes, now));
        Some(bytes)
    }

    /// The answer with these bytes arrived: one that is not awaited, or that comes again, is ignored.
    pub(super) fn on_answer(&mut self, arrival: Time, bytes: &[u8; 16]) {
        let Some(at) = self.out.iter().position(|(own, _)| own == bytes) else {
            return;
        };
        let Some((_, sent)) = self.out.remove(at) else {
            return;
        };
        let rtt = arrival.since(sent);
        if arrival < self.load_from {
            self.idle.record(rtt);
        } else if sent >= self.load_from {
            self.loaded.record(rtt);
        }
        if self.news.len() < MOST_KEPT {
            self.news.push(Echo { sent, rtt });
        }
    }

    /// Round trips of the idle path.
    pub fn idle(&self) -> &RoundTrips {
        &self.idle
    }

    /// Round trips under the load.
    pub fn loaded(&self) -> &RoundTrips {
        &self.loaded
    }

    /// Echoes that came back since the last call.
    pub fn drain(&mut self) -> impl Iterator<Item = Echo> + '_ {
        self.news.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn echoes() -> Echoes {
        Echoes::new(&Key::random([7; 32]), ms(0), ms(1000))
    }

    #[test]
    fn what_is_back_before_the_load_is_idle_and_what_leaves_in_it_loaded() {
        let mut echoes = echoes();
        for (sent, rtt) in [(0, 20), (500, 30), (990, 40), (1200, 80), (1300, 100)] {
            let bytes = echoes.poll(ms(sent)).expect("due");
            echoes.on_answer(ms(sent + rtt), &bytes);
        }
        assert_eq!((echoes.idle().count(), echoes.loaded().count()), (2, 2));
        let mean = |trips: &RoundTrips| trips.mean_ms().expect("some");
        assert!((mean(echoes.idle()) - 25.0).abs() < 0.02);
        assert!((mean(echoes.loaded()) - 90.0).abs() < 0.02);
        assert_eq!(echoes.drain().count(), 5);
        assert_eq!(echoes.drain().count(), 0);
    }

    #[test]
    fn an_answer_counts_once_and_only_with_the_bytes_that_left() {
        let mut echoes = echoes();
        let bytes = echoes.poll(ms(0)).expect("due");
        assert_eq!(echoes.poll(ms(99)), None);
        let mut other = bytes;
        other[15] ^= 1;
        echoes.on_answer(ms(1), &other);
        assert_eq!(echoes.idle().count(), 0);
        echoes.on_answer(ms(20), &bytes);
        echoes.on_answer(ms(30), &bytes);
        assert_eq!(echoes.idle().count(), 1);
    }

    #[test]
    fn what_is_never_answered_takes_bounded_room() {
        let mut echoes = echoes();
        let first = echoes.poll(ms(0)).expect("due");
        for at in 1..2_000 {
            echoes.poll(ms(at * 100)).expect("due");
        }
        assert_eq!(echoes.out.len(), MOST_OUT);
        echoes.on_answer(ms(200_000), &first);
        assert_eq!(echoes.loaded().count() + echoes.idle().count(), 0);
    }
}
