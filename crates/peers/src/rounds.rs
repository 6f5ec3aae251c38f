//! Packet-timed round trips.
//!
//! A round ends when a packet is acknowledged that left after it began (draft-ietf-ccwg-bbr, "Tracking Packet-Timed
//! Round Trips"). So rounds follow the packets themselves, whatever idle times, timers and changing delays there are.

use verus_core::controller::Departure;
use verus_core::units::Bytes;

/// A flow's rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// The round ends with the acknowledgement of a packet that left when at least this much had been delivered.
    ends_at: Bytes,
    count: u64,
}

impl Rounds {
    /// `newest` is the newest packet acknowledged, `delivered` all that has been delivered. Returns whether a round has
    /// ended; then the next one begins.
    pub(crate) fn on_delivery(&mut self, newest: &Departure, delivered: Bytes) -> bool {
        let ended = newest.delivered >= self.ends_at;
        if ended {
            self.begin(delivered);
            self.count += 1;
        }
        ended
    }

    /// Begins a round now, without counting the current one as ended.
    pub(crate) fn begin(&mut self, delivered: Bytes) {
        self.ends_at = delivered;
    }

    /// Rounds that have ended.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
