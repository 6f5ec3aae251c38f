//! A share, of packets or of time: an exponential average over steps of a quarter of a second or more.
//!
//! All flows of a bottleneck see about the same shares; the law decides what they cost.

use verus_core::units::{Duration, Time};

/// The average takes in a step once it is at least this long and has enough in it.
const STEP: Duration = Duration::from_millis(250);

/// The average share, and the step under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// In 2^-30: the division by the number of steps rounds, and in 2^-16 a share of up to 31 would stand for good.
    share: u32,
    /// In the unit that the caller counts in; a step that is too long for 32 bits saturates.
    part: u32,
    whole: u32,
    since: Time,
    /// The step has been taken into the average; what is heard next begins another.
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

    /// Begins another step, if one was closed.
    pub(super) fn forget_step(&mut self) {
        if self.closed {
            (self.part, self.whole, self.closed) = (0, 0, false);
        }
    }

    /// So much of the step's part did not belong to it.
    pub(super) fn take_back(&mut self, part: u64) {
        self.part = self.part.saturating_sub(cut(part));
    }

    /// Counts `part` of `whole`. A step has at least `fewest` of the whole, as otherwise one packet would be a large share;
    /// its weight in the average is one in `steps`.
    pub(super) fn update(&mut self, now: Time, part: u64, whole: u64, fewest: u64, steps: u64) {
        self.part = self.part.saturating_add(cut(part));
        self.whole = self.whole.saturating_add(cut(whole));
        if now.since(self.since) < STEP || u64::from(self.whole) < fewest {
            return;
        }
        let (part, whole) = (u64::from(self.part), u64::from(self.whole.max(1)));
        let step = (part.min(whole) << 30) / whole;
        let share = u64::from(self.share);
        self.share = cut(share + step / steps - share / steps);
        (self.since, self.closed) = (now, true);
    }

    /// The average, in 2^-16.
    pub(super) fn get(&self) -> u64 {
        u64::from(self.share >> 14)
    }

    /// Whether more than one packet, and more than one in `n`, is the step's part, be it under way or just closed.
    pub(super) fn exceeds(&self, n: u64, packet: u64) -> bool {
        u64::from(self.part) > packet && u64::from(self.part) * n > u64::from(self.whole)
    }
}

fn cut(value: u64) -> u32 {
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
    fn a_loss_is_forgotten_whole() {
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
        let left = (0..250).map(|_| next(0)).last();
        assert_eq!(left, Some(0));
    }

    #[test]
    fn a_step_waits_until_it_has_enough() {
        let mut share = Share::new();
        share.update(at(300), PACKET, PACKET, PACKET * 16, 8);
        assert_eq!(share.get(), 0);
        share.update(at(310), 0, PACKET * 15, PACKET * 16, 8);
        // A sixteenth, of which an eighth.
        assert!(share.get().abs_diff(512) <= 1, "{}", share.get());
    }

    #[test]
    fn a_burst_that_closes_its_step_is_seen_to_exceed() {
        let mut share = Share::new();
        for second in 1..4 {
            // All that is heard in a second comes at once: 20 packets arrived, 60 did not.
            share.forget_step();
            share.update(at(1000 * second), PACKET * 60, PACKET * 80, PACKET * 16, 8);
            assert!(share.exceeds(32, PACKET));
        }
        // Three steps of three quarters, each weighing an eighth: 3/4 × (1 − (7/8)³) of 65,536.
        assert!(share.get().abs_diff(16_223) <= 3, "{}", share.get());
        share.forget_step();
        share.update(at(4000), 0, PACKET * 20, PACKET * 16, 8);
        assert!(!share.exceeds(32, PACKET));
    }

    #[test]
    fn what_was_taken_back_never_was() {
        let mut share = Share::new();
        share.update(at(100), PACKET * 8, PACKET * 8, PACKET * 16, 8);
        share.take_back(PACKET * 8);
        share.update(at(300), 0, PACKET * 8, PACKET * 16, 8);
        assert_eq!(share.get(), 0);
    }
}
