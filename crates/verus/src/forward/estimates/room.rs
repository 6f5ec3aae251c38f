//! c, the room in a short buffer: the upper limit of the target as a share of s, where the buffer
//! holds less than q.
//!
//! The queue never reaches a target that the buffer cannot hold, so losses would persist. c halves
//! once per overflow and grows linearly. Since it does so in every flow, flows of one buffer reach
//! the same c (Chiu and Jain, 1989). Since q depends on r, they also reach the same rate.
//!
//! Random losses occur at any queue and are no overflow. An overflow is a loss while the delay is
//! near the longest of the last seconds, without a recent loss at a shorter queue.

use super::super::law::{ONE, UNBOUNDED};
use verus_core::units::{Duration, Time};

/// The time in which c grows by s: that over which e and l are averaged.
const GROWTH: Duration = Duration::from_secs(16);

/// The queue at a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullQueue {
    /// The delay of the packet acknowledged last, above the least of the last half minute.
    pub(super) delay: Duration,
    /// The longest such delay of the last 8 to 16 s.
    pub(super) longest: Duration,
    /// The time that a packet takes at r, which is the queue's granularity.
    pub(super) packet_time: Duration,
}

impl FullQueue {
    /// Whether the buffer was full: the delay was within an eighth of the longest, and a packet.
    fn is_full(&self) -> bool {
        (self.delay + self.packet_time) * 8 >= self.longest * 7
    }
}

/// c, and when it last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// c, 2^-16.
    share: u64,
    /// When c was last halved. Losses of packets that left earlier belong to that overflow.
    cut_at: Time,
    /// When a packet was last lost in a buffer that was not full.
    partial_at: Time,
    /// When `grow` was last called.
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

    /// Whether c bounds the target, or did so recently.
    pub(super) fn is_bounded(&self) -> bool {
        self.share < UNBOUNDED
    }

    /// Whether a lost packet that left at `left_at` is evidence of a new overflow. The last
    /// overflow has already halved c.
    pub(super) fn is_new_loss(&self, left_at: Time) -> bool {
        left_at > self.cut_at
    }

    /// Halves c if a packet was lost in a full buffer. `target` is q, and `steady` is s.
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

    /// Grows c by the time since the last call. The bound ends where c · s exceeds `longest`.
    pub(super) fn grow(&mut self, now: Time, steady: Duration, longest: Duration) {
        if self.is_bounded() {
            let elapsed = now.since(self.grown_at).min(GROWTH);
            self.share += elapsed.as_micros() * ONE / GROWTH.as_micros();
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
        assert!(!room.is_new_loss(Time::from_millis(990)));
        lose(&mut room, 1100, &queue(2, 2), STEADY / 2);
        assert_eq!(room.get(), ONE / 4);
    }

    #[test]
    fn losses_in_a_buffer_that_is_not_full_count_as_random() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(1, 2), STEADY);
        assert!(!room.is_bounded());
        // A loss in a full buffer, soon after one in a shorter queue, does not count either.
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
