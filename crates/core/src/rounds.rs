//! Round trips as packets make them.
//!
//! A round ends when a packet is acknowledged that left after it began (draft-ietf-ccwg-bbr, "Tracking Packet-Timed
//! Round Trips"). Idle times, timers and changing delays do not shorten or lengthen what is counted.

use crate::controller::Departure;
use crate::units::Bytes;

/// A flow's rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// The round ends with the acknowledgement of a packet that left when so much was delivered.
    ends_at: Bytes,
    count: u64,
}

impl Rounds {
    /// The newest packet acknowledged, and all that has been delivered: whether a round has ended, so that another begins.
    pub(crate) fn on_delivery(&mut self, newest: &Departure, delivered: Bytes) -> bool {
        let ended = newest.delivered >= self.ends_at;
        if ended {
            self.begin(delivered);
            self.count += 1;
        }
        ended
    }

    /// A round begins now, whatever became of the last.
    pub(crate) fn begin(&mut self, delivered: Bytes) {
        self.ends_at = delivered;
    }

    /// Rounds that have ended.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
