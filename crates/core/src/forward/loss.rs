//! How much is being lost.
//!
//! An average over about two seconds of the share of packets lost, which all flows of a bottleneck see alike. Chance
//! loses some, too; what a loss means is the law's to say.

use crate::units::{Bytes, Duration, Time};

/// A step of the average: this long, and this many packets.
const STEP: Duration = Duration::from_millis(250);
const STEP_PACKETS: u64 = 16;
/// The weight of a step is one in so many.
const STEPS: i64 = 8;

/// The average share, and the step under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossShare {
    /// In 2^-16.
    share: i64,
    lost: u64,
    settled: u64,
    since: Time,
}

impl LossShare {
    pub(super) fn new() -> Self {
        LossShare {
            share: 0,
            lost: 0,
            settled: 0,
            since: Time::ZERO,
        }
    }

    /// So much was acknowledged, declared lost, and found not to have been lost.
    pub(super) fn update(
        &mut self,
        now: Time,
        packet: Bytes,
        acked: Bytes,
        lost: Bytes,
        recovered: Bytes,
    ) {
        self.lost = (self.lost + lost.get()).saturating_sub(recovered.get());
        self.settled += acked.get() + lost.get();
        if now.since(self.since) < STEP || self.settled < STEP_PACKETS * packet.get() {
            return;
        }
        let step = ((u128::from(self.lost) << 16) / u128::from(self.settled.max(1))) as i64;
        self.share += (step.min(1 << 16) - self.share) / STEPS;
        (self.lost, self.settled, self.since) = (0, 0, now);
    }

    /// The share lost lately, in 2^-16.
    pub(super) fn share(&self) -> u64 {
        self.share.max(0) as u64
    }

    /// Whether more than one packet, and more than one in `n`, of the step under way is lost.
    pub(super) fn exceeds(&self, n: u64, packet: Bytes) -> bool {
        self.lost > packet.get() && self.lost * n > self.settled
    }
}
