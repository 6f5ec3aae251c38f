//! What a connection has to send, where that is decided as late as it can be: a packet at a time.

use verus_core::sender::Sender;
use verus_core::{Bytes, Duration};

use crate::traffic::Turns;

/// Hands a sender data a packet at a time: at most one that has not left, so that all else can still be decided.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Whether there is anything to send.
    on: bool,
    pauses: u64,
    /// Whether what was handed over has not left.
    handed: bool,
}

impl Feed {
    /// That of a connection which begins with a turn.
    pub fn new(_: Turns) -> Self {
        Feed {
            on: true,
            pauses: 0,
            handed: false,
        }
    }

    /// A turn is over, or a pause; how long what follows lasts, if it ends.
    pub fn turn(&mut self, turns: &Turns) -> Option<Duration> {
        if !self.on {
            self.on = true;
            return (turns.pauses != Some(self.pauses)).then_some(turns.on);
        }
        self.on = false;
        self.pauses += 1;
        Some(turns.off)
    }

    /// Hands over the next packet, if there is one and the last has left.
    pub fn feed(&mut self, sender: &mut Sender, packet: Bytes) {
        if self.on && !self.handed {
            self.handed = true;
            sender.offer(packet);
        }
    }

    /// What was handed over has left.
    pub fn left(&mut self) {
        self.handed = false;
    }
}
