//! c, the room in a short buffer: the upper limit of the target as a share of s, where the buffer
//! holds less than q.
//!
//! The queue never reaches a target that the buffer cannot hold, so losses would persist. c halves
//! once per overflow and grows linearly. Since it does so in every flow, flows of one buffer reach
//! the same c (Chiu and Jain, 1989). Since q depends on r, they also reach the same rate.
//!
//! Random losses occur at any queue and are no overflow. An overflow is a loss while the delay is
//! near the longest of the last seconds, without a recent loss at a shorter queue.
//!
//! A policer (RFC 2475 §2.3.3.3) or a buffer of a few packets drops what exceeds its rate, and no
//! queue forms. The share q ÷ (D + q) of the packets is then lost. Where that many are lost by
//! chance, r falls as q does, while a policer lets r pass at any q. So c is lowered as a trial.

use crate::law::{ONE, UNBOUNDED};
use verus_core::units::{Duration, Rate, Time};

/// The time in which c grows by s: that over which e and l are averaged.
const GROWTH: Duration = Duration::from_secs(16);
/// The shortest buffer that shows in the delays, in packets at r. Where the longest delay is less,
/// no queue has formed, and the losses are random.
const SHORTEST_BUFFER: u64 = 4;
/// Divisor of D that gives the target on a policed path: one in 33 packets is then lost.
const POLICED_PART: u64 = 32;
/// The share of lost packets above which that target does not grow: one in this many.
const POLICED_LOSS: u64 = 128;
/// The time in which p shows what a trial changed.
const NEXT_TRIAL: Duration = Duration::from_secs(2);

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
    /// Whether a queue has formed.
    fn has_formed(&self) -> bool {
        self.longest >= self.packet_time * SHORTEST_BUFFER
    }

    /// Whether the buffer was full: a queue has formed, and the delay was within an eighth of the
    /// longest, and a packet.
    fn is_full(&self) -> bool {
        self.has_formed() && (self.delay + self.packet_time) * 8 >= self.longest * 7
    }
}

/// The state of the path and of the flow at a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) queue: FullQueue,
    /// q.
    pub(super) target: Duration,
    /// s.
    pub(super) steady: Duration,
    /// D.
    pub(super) base: Duration,
    /// r.
    pub(super) rate: Rate,
    pub(super) smoothed_rtt: Duration,
    /// Whether packets are lost often, although the queue is often empty.
    pub(super) is_frequent: bool,
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
    /// c before it was last halved.
    share_before: u32,
    /// When the packet left whose loss last halved c.
    cut_by: Time,
    /// r when c became that of a path which drops what exceeds its rate, without a queue, kbit/s; zero
    /// where it is no such path.
    policed_kbps: u32,
    /// When the next trial may begin.
    next_trial_at: Time,
}

impl Room {
    pub(super) fn new() -> Self {
        Room {
            share: UNBOUNDED as u32,
            cut_at: Time::ZERO,
            partial_at: Time::ZERO,
            share_before: UNBOUNDED as u32,
            cut_by: Time::ZERO,
            policed_kbps: 0,
            next_trial_at: Time::ZERO,
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

    /// Whether the bound is that of a path which drops what exceeds its rate, without a queue.
    pub(super) fn is_policed(&self) -> bool {
        self.policed_kbps > 0
    }

    /// Whether a lost packet that left at `left_at` is evidence of a new overflow. The last
    /// overflow has already halved c.
    pub(super) fn is_new_loss(&self, left_at: Time) -> bool {
        left_at > self.cut_at
    }

    /// Halves c if a packet that left at `left_at` was lost in a full buffer. Begins a trial where
    /// losses are frequent and no queue forms.
    pub(super) fn on_loss(&mut self, now: Time, left_at: Time, loss: &Loss) {
        let queue = &loss.queue;
        let steady = loss.steady.as_micros().max(1);
        if !queue.is_full() {
            self.partial_at = now;
            if !queue.has_formed() && loss.is_frequent && now >= self.next_trial_at {
                let share = (loss.base / POLICED_PART).as_micros() * ONE / steady;
                self.cut_to(now, left_at, share);
                if !self.is_policed() {
                    self.policed_kbps = kbps(loss.rate).max(1);
                }
                self.next_trial_at = now + NEXT_TRIAL;
            }
        } else if queue.delay.saturating_sub(queue.packet_time) * 8 < loss.target * 9
            && now.since(self.partial_at) > loss.smoothed_rtt * 2
        {
            self.cut_to(now, left_at, (loss.target.as_micros() * ONE / 2) / steady);
            self.policed_kbps = 0;
        }
    }

    fn cut_to(&mut self, now: Time, left_at: Time, share: u64) {
        self.share_before = self.share;
        self.share = share.min(UNBOUNDED) as u32;
        (self.cut_at, self.cut_by) = (now, left_at);
    }

    /// Restores c if the packet whose loss halved it arrived after all. It was reordered, so its
    /// loss showed no full buffer.
    pub(super) fn on_recovered(&mut self, left_at: Time) {
        if left_at == self.cut_by {
            self.share = self.share.max(self.share_before);
            self.end_where_unbounded();
        }
    }

    fn end_where_unbounded(&mut self) {
        if !self.is_bounded() {
            self.policed_kbps = 0;
        }
    }

    /// Ends a trial if r has halved: the losses are random, or other flows have come.
    pub(super) fn on_rate(&mut self, now: Time, rate: Rate) {
        if kbps(rate) < self.policed_kbps / 2 {
            (self.policed_kbps, self.share) = (0, UNBOUNDED as u32);
            self.next_trial_at = now + GROWTH;
        }
    }

    /// Grows c by the time since the last call, unless the path is policed and p, which is `lost`,
    /// 2^-16, shows it. The bound ends where c · s exceeds `longest`.
    pub(super) fn grow(
        &mut self,
        elapsed: Duration,
        steady: Duration,
        longest: Duration,
        lost: u64,
    ) {
        if self.is_bounded() && !(self.is_policed() && lost * POLICED_LOSS > ONE) {
            let share = self.get() + elapsed.min(GROWTH).as_micros() * ONE / GROWTH.as_micros();
            let is_beyond = share * steady.as_micros() / ONE > longest.as_micros();
            self.share = if is_beyond { UNBOUNDED } else { share }.min(UNBOUNDED) as u32;
            self.end_where_unbounded();
        }
    }
}

fn kbps(rate: Rate) -> u32 {
    u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Duration = Duration::from_millis(10);
    const RTT: Duration = Duration::from_millis(20);
    const SECOND: Duration = Duration::from_secs(1);
    const RATE: Rate = Rate::from_bps(10_000_000);

    fn queue(delay_ms: u64, longest_ms: u64) -> FullQueue {
        FullQueue {
            delay: Duration::from_millis(delay_ms),
            longest: Duration::from_millis(longest_ms),
            packet_time: Duration::from_micros(100),
        }
    }

    fn loss(queue: &FullQueue, target: Duration) -> Loss {
        Loss {
            queue: *queue,
            target,
            steady: STEADY,
            base: RTT,
            rate: RATE,
            smoothed_rtt: RTT,
            is_frequent: false,
        }
    }

    fn lose(room: &mut Room, at_ms: u64, queue: &FullQueue, target: Duration) {
        let now = Time::from_millis(at_ms);
        room.on_loss(now, now - RTT, &loss(queue, target));
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

    /// A loss on a path without a queue, of many.
    fn lose_often(room: &mut Room, at_ms: u64) {
        let loss = Loss {
            is_frequent: true,
            ..loss(&queue(0, 0), STEADY)
        };
        let now = Time::from_millis(at_ms);
        room.on_loss(now, now - RTT, &loss);
    }

    #[test]
    fn frequent_losses_without_a_queue_lower_the_target_to_a_part_of_the_round_trip() {
        let mut room = Room::new();
        lose_often(&mut room, 3000);
        assert!(room.is_policed());
        let first = room.get();
        assert_eq!(first, 625 * ONE / 10_000);

        // It does not grow while packets are lost, and then as any other.
        room.grow(SECOND, STEADY, STEADY * 9, ONE / 50);
        assert_eq!(room.get(), first);
        room.grow(SECOND, STEADY, STEADY * 9, 0);
        assert_eq!(room.get(), first + ONE / 16);
        lose_often(&mut room, 4900);
        assert_eq!(room.get(), first + ONE / 16);
        lose_often(&mut room, 5000);
        assert_eq!(room.get(), first);
    }

    #[test]
    fn a_trial_that_halves_the_rate_shows_random_losses_and_is_not_repeated_soon() {
        let mut room = Room::new();
        lose_often(&mut room, 3000);
        lose_often(&mut room, 5500);
        room.on_rate(Time::from_millis(6000), Rate::from_bps(5_000_000));
        assert!(room.is_policed());
        room.on_rate(Time::from_millis(7000), Rate::from_bps(4_999_000));
        assert!(!room.is_policed() && !room.is_bounded());
        lose_often(&mut room, 22_000);
        assert!(!room.is_bounded());
        lose_often(&mut room, 23_000);
        assert!(room.is_policed());
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
        lose(&mut room, 1000, &queue(2, 2), STEADY);
        for _ in 2..=9 {
            room.grow(SECOND, STEADY, STEADY * 2, 0);
        }
        assert_eq!(room.get(), ONE);
        for _ in 10..=26 {
            room.grow(SECOND, STEADY, STEADY * 2, 0);
        }
        assert!(!room.is_bounded());
    }
}
