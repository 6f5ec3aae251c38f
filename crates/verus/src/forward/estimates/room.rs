//! c, the room in a short buffer: the share of s that the target may be where the buffer holds less than q.
//!
//! A queue that a buffer cannot hold is never reached: the target stays above it, and losses stand. c halves once per
//! overflow and grows linearly, as every flow's does, so that flows of one buffer come to the same c (Chiu and Jain, 1989)
//! and, by q's dependence on r, to the same rate.
//!
//! Losses by chance come at any queue and are no overflow. An overflow is a loss while the delay is near the longest of
//! the last seconds, with no loss at a shorter queue beside it.

use super::super::law::{ONE, UNBOUNDED};
use verus_core::units::{Duration, Time};

/// c grows by s in this time: as long as e and l are remembered.
const GROWTH: Duration = Duration::from_secs(16);

/// The queue at a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullQueue {
    /// The delay of the packet acknowledged last, above the least of the last half minute.
    pub(super) delay: Duration,
    /// The longest such delay of the last seconds.
    pub(super) longest: Duration,
    /// How long a packet takes at r: the queue's granularity.
    pub(super) packet_time: Duration,
}

impl FullQueue {
    /// Whether the buffer was full: within an eighth of the longest delay, and a packet.
    fn is_full(&self) -> bool {
        (self.delay + self.packet_time) * 8 >= self.longest * 7
    }
}

/// c, and when it last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// 2^-16 of s.
    share: u64,
    /// Losses of packets that left earlier belong to the last overflow.
    cut_at: Time,
    /// The last loss at a queue that was not full.
    partial_at: Time,
    grown_at: Time,
}

impl Room {
    pub(super) fn new() -> Self {
        Room {
            share: UNBOUNDED,
            cut_at: Time::ZERO,
            partial_at: Time::ZERO,
            grown_at: Time::ZERO,
        }
    }

    /// c, 2^-16.
    pub(super) fn get(&self) -> u64 {
        self.share
    }

    /// Whether the buffer bounds the target, or did until shortly.
    pub(super) fn is_bounded(&self) -> bool {
        self.share < UNBOUNDED
    }

    /// Whether a packet that left then was lost in no overflow that has been answered.
    pub(super) fn is_news(&self, left_at: Time) -> bool {
        left_at > self.cut_at
    }

    /// A packet was lost at this queue while the target was q: of s, `steady`.
    pub(super) fn on_loss(
        &mut self,
        now: Time,
        queue: &FullQueue,
        target: Duration,
        steady: Duration,
        smoothed_rtt: Duration,
    ) {
        if !queue.is_full() {
            self.partial_at = now;
        } else if queue.delay.saturating_sub(queue.packet_time) * 8 < target * 9
            && now.since(self.partial_at) > smoothed_rtt * 2
        {
            self.share = (target.as_micros() * ONE / 2) / steady.as_micros().max(1);
            self.cut_at = now;
        }
    }

    /// Time has passed; beyond `longest` nothing needs a bound.
    pub(super) fn grow(&mut self, now: Time, steady: Duration, longest: Duration) {
        if self.is_bounded() {
            let passed = now.since(self.grown_at).min(GROWTH);
            self.share += passed.as_micros() * ONE / GROWTH.as_micros();
            if self.share * steady.as_micros() / ONE > longest.as_micros() {
                self.share = UNBOUNDED;
            }
        }
        self.grown_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Duration = Duration::from_millis(10);
    const RTT: Duration = Duration::from_millis(20);

    fn queue(delay_ms: u64, longest_ms: u64) -> FullQueue {
        FullQueue {
            delay: Duration::from_millis(delay_ms),
            longest: Duration::from_millis(longest_ms),
            packet_time: Duration::from_micros(100),
        }
    }

    fn lose(room: &mut Room, at_ms: u64, queue: &FullQueue, target: Duration) {
        room.on_loss(Time::from_millis(at_ms), queue, target, STEADY, RTT);
    }

    #[test]
    fn a_full_buffer_below_the_target_halves_the_bound() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(2, 2), STEADY);
        assert_eq!(room.get(), ONE / 2);
        assert!(!room.is_news(Time::from_millis(990)));
        lose(&mut room, 1100, &queue(2, 2), STEADY / 2);
        assert_eq!(room.get(), ONE / 4);
    }

    #[test]
    fn losses_at_a_queue_that_is_not_full_are_chance() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(1, 2), STEADY);
        assert!(!room.is_bounded());
        // Nor does one at a full queue count right beside them.
        lose(&mut room, 1010, &queue(2, 2), STEADY);
        assert!(!room.is_bounded());
    }

    #[test]
    fn a_buffer_longer_than_the_target_bounds_nothing() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(30, 30), STEADY);
        assert!(!room.is_bounded());
    }

    #[test]
    fn the_bound_grows_by_a_steady_queue_in_sixteen_seconds_and_ends() {
        let mut room = Room::new();
        room.grow(Time::from_millis(1000), STEADY, STEADY * 2);
        lose(&mut room, 1000, &queue(2, 2), STEADY);
        for second in 2..=9 {
            room.grow(Time::from_millis(second * 1000), STEADY, STEADY * 2);
        }
        assert_eq!(room.get(), ONE);
        for second in 10..=26 {
            room.grow(Time::from_millis(second * 1000), STEADY, STEADY * 2);
        }
        assert!(!room.is_bounded());
    }
}
