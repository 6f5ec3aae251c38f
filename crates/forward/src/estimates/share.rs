//! A share, of packets or of time: an exponential average over steps of a quarter of a second or
//! more.
//!
//! All flows of a bottleneck measure about the same shares. Their effect on q is the law's.

use verus_core::units::{Duration, Time};

/// The least length of a step, which then ends once it counts enough packets or time.
const STEP: Duration = Duration::from_millis(250);

/// The average share, and the counts of the present step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The average, in 2^-30. The division by the number of steps rounds down: in 2^-16 a share of
    /// up to 31 would never decay.
    share: u32,
    /// The part of the present step, in the caller's unit; it saturates at 32 bits.
    part: u32,
    /// The whole of the present step, in the same unit.
    whole: u32,
    /// When the previous step ended.
    since: Time,
    /// Whether the step is already in the average, so that the next update begins another.
    closed: bool,
}

impl Share {
    pub(super) fn new() -> Self {
        Share {
            share: 0,
            part: 0,
            whole: 0,
            since: Time::ZERO,
            closed: false,
        }
    }

    /// Begins another step if the present one is closed.
    pub(super) fn forget_step(&mut self) {
        if self.closed {
            (self.part, self.whole, self.closed) = (0, 0, false);
        }
    }

    /// Removes `part` from the step's part, where it was counted by mistake.
    pub(super) fn take_back(&mut self, part: u64) {
        self.part = self.part.saturating_sub(saturated(part));
    }

    /// Counts `part` of `whole`. A step has at least `fewest` of the whole, since otherwise one
    /// packet would be a large share. Its weight in the average is one in `steps`.
    pub(super) fn update(&mut self, now: Time, part: u64, whole: u64, fewest: u64, steps: u64) {
        self.part = self.part.saturating_add(saturated(part));
        self.whole = self.whole.saturating_add(saturated(whole));
        if now.since(self.since) < STEP || u64::from(self.whole) < fewest {
            return;
        }
        let (part, whole) = (u64::from(self.part), u64::from(self.whole.max(1)));
        let step = (part.min(whole) << 30) / whole;
        let share = u64::from(self.share);
        self.share = saturated(share + step / steps - share / steps);
        (self.since, self.closed) = (now, true);
    }

    /// The average, in 2^-16.
    pub(super) fn get(&self) -> u64 {
        u64::from(self.share >> 14)
    }

    /// Whether the part of the present or just closed step exceeds one packet, and one in `n`.
    pub(super) fn exceeds(&self, n: u64, packet: u64) -> bool {
        u64::from(self.part) > packet && u64::from(self.part) * n > u64::from(self.whole)
    }
}

/// The value, at most 2^32 - 1.
fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1000;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn the_share_of_a_past_loss_decays_to_zero() {
        let mut share = Share::new();
        let mut second = 0;
        let mut next = |part: u64| {
            second += 1;
            share.forget_step();
            share.update(
                at(1000 * second),
                PACKET * part,
                PACKET * 20,
                PACKET * 16,
                8,
            );
            share.get()
        };
        assert!(next(5) > 0);
        let remainder = (0..250).map(|_| next(0)).last();
        assert_eq!(remainder, Some(0));
    }

    #[test]
    fn a_step_waits_until_it_has_enough() {
        let mut share = Share::new();
        share.update(at(300), PACKET, PACKET, PACKET * 16, 8);
        assert_eq!(share.get(), 0);
        share.update(at(310), 0, PACKET * 15, PACKET * 16, 8);
        // A step of one sixteenth, weighed by an eighth.
        assert!(share.get().abs_diff(512) <= 1, "{}", share.get());
    }

    #[test]
    fn a_burst_that_closes_its_step_still_exceeds() {
        let mut share = Share::new();
        for second in 1..4 {
            // Feedback of a second arrives at once: 20 packets arrived, 60 were lost.
            share.forget_step();
            share.update(at(1000 * second), PACKET * 60, PACKET * 80, PACKET * 16, 8);
            assert!(share.exceeds(32, PACKET));
        }
        // Average of three steps of three quarters, each weighed by an eighth: 3/4 × (1 − (7/8)³)
        // of 65,536.
        assert!(share.get().abs_diff(16_223) <= 3, "{}", share.get());
        share.forget_step();
        share.update(at(4000), 0, PACKET * 20, PACKET * 16, 8);
        assert!(!share.exceeds(32, PACKET));
    }

    #[test]
    fn a_part_taken_back_does_not_count() {
        let mut share = Share::new();
        share.update(at(100), PACKET * 8, PACKET * 8, PACKET * 16, 8);
        share.take_back(PACKET * 8);
        share.update(at(300), 0, PACKET * 8, PACKET * 16, 8);
        assert_eq!(share.get(), 0);
    }
}
