//! p, the share of packets lost: an exponential average over about two seconds.
//!
//! All flows of a bottleneck see about the same share. Losses by chance are in it, too; the control law decides what a
//! loss costs.

use crate::units::{Bytes, Duration, Time};

/// The average takes in a step once it is at least this long and has at least [`STEP_PACKETS`].
const STEP: Duration = Duration::from_millis(250);
/// See [`STEP`]. With fewer, one loss would be a large share.
const STEP_PACKETS: u64 = 16;
/// A step's weight in the average is one in this many, so that the average covers about 8 steps, 2 s.
const STEPS: i32 = 8;

/// The average share, and the step under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossShare {
    /// In 2^-30: the division by [`STEPS`] rounds, and in 2^-16 a share of up to 7 would stand for good.
    share: i32,
    lost: u64,
    settled: u64,
    since: Time,
    /// The step has been taken into the average; the next feedback begins another.
    closed: bool,
}

impl LossShare {
    pub(super) fn new() -> Self {
        LossShare {
            share: 0,
            lost: 0,
            settled: 0,
            since: Time::ZERO,
            closed: false,
        }
    }

    /// Counts bytes that were acknowledged, declared lost, and found not to have been lost after all.
    pub(super) fn update(
        &mut self,
        now: Time,
        packet: Bytes,
        acked: Bytes,
        lost: Bytes,
        recovered: Bytes,
    ) {
        if self.closed {
            (self.lost, self.settled, self.closed) = (0, 0, false);
        }
        self.lost = (self.lost + lost.get()).saturating_sub(recovered.get());
        self.settled += acked.get() + lost.get();
        if now.since(self.since) < STEP || self.settled < STEP_PACKETS * packet.get() {
            return;
        }
        let step = (u128::from(self.lost) << 30) / u128::from(self.settled.max(1));
        self.share += (step.min(1 << 30) as i32 - self.share) / STEPS;
        (self.since, self.closed) = (now, true);
    }

    /// The share lost lately, in 2^-16.
    pub(super) fn share(&self) -> u64 {
        (self.share.max(0) >> 14) as u64
    }

    /// Whether more than one packet, and more than one in `n`, was lost in the step under way, or in the step that ended
    /// with the last feedback.
    pub(super) fn exceeds(&self, n: u64, packet: Bytes) -> bool {
        self.lost > packet.get() && self.lost * n > self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes::new(1000);

    #[test]
    fn a_loss_is_forgotten_whole() {
        let mut losses = LossShare::new();
        let mut second = |lost: u64| {
            let now = losses.since + Duration::from_secs(1);
            losses.update(now, PACKET, PACKET * 20, PACKET * lost, Bytes::ZERO);
            losses.share()
        };
        assert!(second(5) > 0);
        let left = (0..200).map(|_| second(0)).last();
        assert_eq!(left, Some(0));
    }

    #[test]
    fn a_burst_that_closes_its_step_is_seen_to_exceed() {
        let mut losses = LossShare::new();
        for second in 1..4 {
            // All that is heard in a second comes at once: 20 packets arrived, 60 did not.
            let now = Time::from_millis(1000 * second);
            losses.update(now, PACKET, PACKET * 20, PACKET * 60, Bytes::ZERO);
            assert!(losses.exceeds(32, PACKET));
        }
        // Three steps of three quarters, each weighing an eighth: 3/4 × (1 − (7/8)³) of 65,536.
        assert!(losses.share().abs_diff(16_223) <= 3, "{}", losses.share());
        losses.update(
            Time::from_millis(4000),
            PACKET,
            PACKET * 20,
            Bytes::ZERO,
            Bytes::ZERO,
        );
        assert!(!losses.exceeds(32, PACKET));
    }
}
