//! c, the room in a short buffer: the upper limit of the target as a share of s, where the buffer
//! holds less than q.
//!
//! The queue never reaches a target that the buffer cannot hold, so losses would persist. c halves
//! once per overflow and grows linearly. Since it does so in every flow, flows of one buffer reach
//! the same c (Chiu and Jain, 1989). Since q depends on r, they also reach the same rate.
//!
//! Random losses occur at any queue and are no overflow. An overflow is a loss while the delay is
//! near the longest of the last seconds, without a recent loss at a shorter queue.

use crate::law::{ONE, UNBOUNDED};
use verus_core::units::{Duration, Time};

/// The time in which c grows by s: that over which e and l are averaged.
const GROWTH: Duration = Duration::from_secs(16);
/// The shortest buffer that shows in the delays, in packets at r. Where the longest delay is less,
/// no queue has formed, and the losses are random.
const SHORTEST_BUFFER: u64 = 4;

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
    /// Whether the buffer was full: a queue has formed, and the delay was within an eighth of the
    /// longest, and a packet.
    fn is_full(&self) -> bool {
        self.longest >= self.packet_time * SHORTEST_BUFFER
            && (self.delay + self.packet_time) * 8 >= self.longest * 7
    }
}

/// c, and when it last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// c, 2^-16, at most [`UNBOUNDED`].
    share: u32,
    /// When c was last halved. Losses of packets that left earlier belong to that overflow.
    cut_at: Time,
    /// When a packet was last lost in a buffer that was not full.
    partial_at: Time,
    /// When `grow` was last called.
    grown_at: Time,
    /// c before it was last halved.
    share_before: u32,
    /// When the packet left whose loss last halved c.
    cut_by: Time,
}

impl Room {
    pub(super) fn new() -> Self {
        Room {
            share: UNBOUNDED as u32,
            cut_at: Time::ZERO,
            partial_at: Time::ZERO,
            grown_at: Time::ZERO,
            share_before: UNBOUNDED as u32,
            cut_by: Time::ZERO,
        }
    }

    /// c, 2^-16.
    pub(super) fn get(&self) -> u64 {
        self.share.into()
    }

    /// Whether c bounds the target, or did so recently.
    pub(super) fn is_bounded(&self) -> bool {
        self.get() < UNBOUNDED
    }

    /// Whether a lost packet that left at `left_at` is evidence of a new overflow. The last
    /// overflow has already halved c.
    pub(super) fn is_new_loss(&self, left_at: Time) -> bool {
        left_at > self.cut_at
    }

    /// Halves c if a packet that left at `left_at` was lost in a full buffer. `target` is q, and
    /// `steady` is s.
    pub(super) fn on_loss(
        &mut self,
        now: Time,
        left_at: Time,
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
            self.share_before = self.share;
            let share = (target.as_micros() * ONE / 2) / steady.as_micros().max(1);
            self.share = share.min(UNBOUNDED) as u32;
            (self.cut_at, self.cut_by) = (now, left_at);
        }
    }

    /// Restores c if the packet whose loss halved it arrived after all. It was reordered, so its
    /// loss showed no full buffer.
    pub(super) fn on_recovered(&mut self, left_at: Time) {
        if left_at == self.cut_by {
            self.share = self.share.max(self.share_before);
        }
    }

    /// Grows c by the time since the last call. The bound ends where c · s exceeds `longest`.
    pub(super) fn grow(&mut self, now: Time, steady: Duration, longest: Duration) {
        if self.is_bounded() {
            let elapsed = now.since(self.grown_at).min(GROWTH);
            let share = self.get() + elapsed.as_micros() * ONE / GROWTH.as_micros();
            let is_beyond = share * steady.as_micros() / ONE > longest.as_micros();
            self.share = if is_beyond { UNBOUNDED } else { share }.min(UNBOUNDED) as u32;
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
        let now = Time::from_millis(at_ms);
        room.on_loss(now, now - RTT, queue, target, STEADY, RTT);
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
    fn a_packet_that_was_only_late_restores_the_bound() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(2, 2), STEADY);
        room.on_recovered(Time::from_millis(970));
        assert_eq!(room.get(), ONE / 2);
        room.on_recovered(Time::from_millis(980));
        assert!(!room.is_bounded());
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
    fn losses_where_no_queue_forms_count_as_random() {
        let mut room = Room::new();
        let empty = FullQueue {
            packet_time: Duration::from_millis(1),
            ..queue(2, 2)
        };
        lose(&mut room, 1000, &empty, STEADY);
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
