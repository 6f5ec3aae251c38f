//! v: how fast the window moves once it goes on moving the same way (NSDI 2018, §2.1).

use verus_core::units::{Duration, Time};

/// v doubles when the window has moved the same way in this many round trips after a first one (the paper; mvfst's
/// default).
pub(super) const PAPER_REPEATS: u32 = 3;
/// The same of mvfst with its option `useRttStanding`.
pub(super) const MVFST_REPEATS: u32 = 4;
/// v is never greater: no window calls for more.
const MOST: f64 = 1e9;

/// The direction of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// A flow's velocity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Velocity {
    packets: f64,
    needs: u32,
    direction: Option<Direction>,
    /// Round trips that repeated the one before.
    repeats: u32,
    /// The beginning of a round trip, and the window then.
    round: Option<(Time, f64)>,
}

impl Velocity {
    /// v doubles after this many repeats.
    pub(super) fn new(needs: u32) -> Self {
        Velocity {
            packets: 1.0,
            needs,
            direction: None,
            repeats: 0,
            round: None,
        }
    }

    pub(super) fn get(&self) -> f64 {
        self.packets
    }

    pub(super) fn reset(&mut self) {
        *self = Velocity::new(self.needs);
    }

    /// Once in a round trip: which way did the window go?
    pub(super) fn on_round(&mut self, now: Time, rtt: Duration, window: f64) {
        let Some((since, before)) = self.round else {
            self.round = Some((now, window));
            return;
        };
        if now.since(since) < rtt {
            return;
        }
        let went = if window > before {
            Direction::Up
        } else {
            Direction::Down
        };
        if self.direction == Some(went) {
            self.repeats += 1;
            if self.repeats >= self.needs {
                self.packets = (self.packets * 2.0).min(MOST);
            }
        } else {
            (self.packets, self.repeats) = (1.0, 0);
        }
        self.direction = Some(went);
        self.round = Some((now, window));
    }

    /// The window is about to go that way: what carried it the other way is over.
    pub(super) fn turn(&mut self, direction: Direction) {
        if self.packets > 1.0 && self.direction != Some(direction) {
            (self.packets, self.repeats) = (1.0, 0);
            self.direction = Some(direction);
        }
    }
}
