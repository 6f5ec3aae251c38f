//! c, the room in a short buffer: the upper limit of the target as a share of s, where the buffer
//! holds less than q.
//!
//! The queue never reaches a target that the buffer cannot hold, so losses would persist. c halves
//! once per overflow and grows linearly. Since it does so in every flow, flows of one buffer reach
//! the same c (Chiu and Jain, 1989). Since q depends on r, they also reach the same rate.
//!
//! Random losses occur at any queue and are no overflow. An overflow is a loss while the delay is
//! near that of a full buffer, without a recent loss at a shorter queue.
//!
//! Where losses are frequent without a full buffer, c is lowered as a [`Trial`]. There q is the time of
//! a number of bytes at r. So each flow adds as much to its window in a round trip, and loses a part
//! of it. With this additive increase and multiplicative decrease, flows approach the same rate.

use crate::law::{ONE, UNBOUNDED};
use verus_core::units::{Bytes, Duration, Rate, Time};

use super::trial::Trial;

/// The time in which c grows by s: that over which e and l are averaged.
const GROWTH: Duration = Duration::from_secs(16);
/// The shortest buffer that shows in the delays, in packets at r. Where the delay of a full one is
/// less, no queue has formed, and the losses are random.
const SHORTEST_BUFFER: u64 = 4;
/// A queue of more than this many q is not the flow's own.
const OTHERS_QUEUE: u64 = 4;
/// The longest time that a packet takes at r in a trial: otherwise too few are sent to know p.
const SLOWEST_TRIED: Duration = Duration::from_millis(20);
/// The time in which c grows to the e-fold in a trial, without a loss.
const TRIED_GROWTH: Duration = Duration::from_secs(8);
/// The share of lost packets above which that target does not grow: one in this many.
const TRIED_LOSS: u64 = 128;

/// The queue at a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullQueue {
    /// The delay of the packet acknowledged last, above the least of the last half minute.
    pub(super) delay: Duration,
    /// The delay that the lost packet met, likewise.
    pub(super) at_loss: Duration,
    /// The delay of a full buffer, likewise: the longest of 8 to 16 s, or the high one
    /// ([`super::high`]).
    pub(super) full: Duration,
    /// The time that a packet takes at r, which is the queue's granularity.
    pub(super) packet_time: Duration,
    /// Whether the queue is empty as often as on links of varying rate.
    pub(super) rate_varies: bool,
}

impl FullQueue {
    /// Whether a queue has formed.
    fn has_formed(&self) -> bool {
        self.full >= self.packet_time * SHORTEST_BUFFER
    }

    /// Whether the queue was at times so long that other flows or a link of varying rate made it.
    fn is_others(&self, target: Duration) -> bool {
        self.has_formed() && (self.rate_varies || self.full > target * OTHERS_QUEUE)
    }

    /// Whether the buffer was full: a queue has formed, and the delay was within an eighth of the
    /// delay of a full one, and a packet.
    fn is_full(&self) -> bool {
        self.has_formed() && (self.at_loss + self.packet_time) * 8 >= self.full * 7
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
    /// r.
    pub(super) rate: Rate,
    pub(super) smoothed_rtt: Duration,
    /// p, 2^-16.
    pub(super) lost: u64,
    /// The size of a packet.
    pub(super) packet: Bytes,
}

/// c, and when it last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// c, 2^-32, at most [`UNBOUNDED`]: in 2^-16, growth between two acknowledgements would be
    /// rounded to nothing.
    share: u64,
    /// When c was last halved. Losses of packets that left earlier belong to that overflow.
    cut_at: Time,
    /// When a packet was last lost in a buffer that was not full.
    partial_at: Time,
    /// c before it was last halved.
    share_before: u64,
    /// When the packet left whose loss last halved c.
    cut_by: Time,
    trial: Trial,
}

impl Room {
    pub(super) fn new() -> Self {
        Room {
            share: UNBOUNDED << 16,
            cut_at: Time::ZERO,
            partial_at: Time::ZERO,
            share_before: UNBOUNDED << 16,
            cut_by: Time::ZERO,
            trial: Trial::new(),
        }
    }

    /// c, 2^-16.
    pub(super) fn get(&self) -> u64 {
        self.share >> 16
    }

    /// Whether c bounds the target, or did so recently.
    pub(super) fn is_bounded(&self) -> bool {
        self.get() < UNBOUNDED
    }

    /// Whether c is that of a trial.
    pub(super) fn is_trial(&self) -> bool {
        self.trial.is_on()
    }

    /// Whether a trial holds r.
    pub(super) fn holds_rate(&self) -> bool {
        self.trial.holds_rate()
    }

    /// Whether a lost packet that left at `left_at` is evidence of a new overflow. The last
    /// overflow has already halved c.
    pub(super) fn is_new_loss(&self, left_at: Time) -> bool {
        left_at > self.cut_at
    }

    /// Halves c if a packet that left at `left_at` was lost in a full buffer, or in a trial, which
    /// begins with a quarter. Returns the rate that a trial holds if one begins.
    pub(super) fn on_loss(&mut self, now: Time, left_at: Time, loss: &Loss) -> Option<Rate> {
        let queue = &loss.queue;
        let is_full = queue.is_full();
        if !is_full {
            self.partial_at = now;
        }
        if queue.delay.saturating_sub(queue.packet_time) * 8 >= loss.target * 9 {
            return None;
        }
        let half_share = loss.target.as_micros() * ONE / loss.steady.as_micros().max(1) / 2;
        if is_full {
            if now.since(self.partial_at) > loss.smoothed_rtt * 2 {
                self.cut_to(now, left_at, half_share);
                self.trial.end();
            }
        } else if !queue.is_others(loss.target)
            && queue.packet_time < SLOWEST_TRIED
            && self.trial.lowers(now, loss.rate, loss.lost)
        {
            let begins = self
                .trial
                .on_lowered(now, loss.rate, loss.lost, loss.packet);
            let share = half_share / if begins { 2 } else { 1 };
            self.cut_to(now, left_at, share);
            return begins.then(|| Trial::rate_in_trial(loss.rate));
        }
        None
    }

    fn cut_to(&mut self, now: Time, left_at: Time, share: u64) {
        self.share_before = self.share;
        self.share = share.min(UNBOUNDED) << 16;
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
            self.trial.end();
        }
    }

    /// Counts for a trial the bytes `lost` or marked, and those `settled`: lost or delivered.
    pub(super) fn count(&mut self, now: Time, smoothed_rtt: Duration, lost: Bytes, settled: Bytes) {
        self.trial.count(now, smoothed_rtt, lost, settled);
    }

    /// Judges a trial by p, which is `lost`, 2^-16. Returns r before it if the losses are random.
    pub(super) fn judge(&mut self, now: Time, lost: u64) -> Option<Rate> {
        let before = self.trial.judge(now, lost)?;
        self.share = UNBOUNDED << 16;
        Some(before)
    }

    /// Keeps c · s · r in a trial, where s · r changes from `before` to `now`, µs kbit/s.
    pub(super) fn on_rate(&mut self, before: u64, now: u64) {
        if self.is_trial() {
            // The law's limits keep s · r below 2^43, and c below 2^7 while c · s is in the budget.
            let ratio = ((before.min(1 << 43) << 20) + now / 2) / now.max(1);
            self.share = (self.share.min(1 << 39) * ratio.min(1 << 24)) >> 20;
        }
    }

    /// Grows c by what `elapsed` allows; in a trial slowly, and only while p, which is `lost`, 2^-16,
    /// is low. The bound ends where c · `steady` exceeds `longest`.
    pub(super) fn grow(
        &mut self,
        elapsed: Duration,
        steady: Duration,
        longest: Duration,
        lost: u64,
    ) {
        if !self.is_bounded() {
            return;
        }
        let elapsed = elapsed.min(GROWTH).as_nanos();
        let growth = if !self.is_trial() {
            elapsed * ONE / (GROWTH.as_nanos() >> 16)
        } else if lost * TRIED_LOSS <= ONE {
            self.get() * elapsed / (TRIED_GROWTH.as_nanos() >> 16)
        } else {
            0
        };
        self.share = (self.share + growth).min(UNBOUNDED << 16);
        if self.get() * steady.as_micros() / ONE > longest.as_micros() {
            self.share = UNBOUNDED << 16;
        }
        self.end_where_unbounded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Duration = Duration::from_millis(10);
    const RTT: Duration = Duration::from_millis(20);
    const SECOND: Duration = Duration::from_secs(1);
    const RATE: Rate = Rate::from_bps(10_000_000);

    fn queue(delay_ms: u64, full_ms: u64) -> FullQueue {
        FullQueue {
            delay: Duration::from_millis(delay_ms),
            at_loss: Duration::from_millis(delay_ms),
            full: Duration::from_millis(full_ms),
            packet_time: Duration::from_micros(100),
            rate_varies: false,
        }
    }

    fn loss(queue: &FullQueue, target: Duration) -> Loss {
        Loss {
            queue: *queue,
            target,
            steady: STEADY,
            rate: RATE,
            smoothed_rtt: RTT,
            lost: 0,
            packet: Bytes::new(1),
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
    fn a_loss_that_met_a_full_buffer_counts_though_the_queue_is_shorter_by_now() {
        let mut room = Room::new();
        let shorter = FullQueue {
            delay: Duration::from_millis(1),
            ..queue(2, 2)
        };
        lose(&mut room, 1000, &shorter, STEADY);
        assert_eq!(room.get(), ONE / 2);
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

    /// A loss in a queue that is not full, of one packet in twenty.
    fn lose_often(room: &mut Room, at_ms: u64) -> Option<Rate> {
        let loss = Loss {
            lost: ONE / 20,
            ..loss(&queue(1, 2), STEADY)
        };
        let now = Time::from_millis(at_ms);
        room.on_loss(now, now - RTT, &loss)
    }

    #[test]
    fn frequent_losses_in_a_queue_that_is_not_full_lower_the_target_as_a_trial() {
        let mut room = Room::new();
        assert_eq!(lose_often(&mut room, 3000), Some(Rate::from_bps(8_750_000)));
        assert!(room.is_trial() && room.holds_rate());
        let first = room.get();
        assert_eq!(first, ONE / 4);

        // It does not grow while packets are lost, and then to the e-fold in 8 s.
        room.grow(SECOND, STEADY, STEADY * 9, ONE / 50);
        assert_eq!(room.get(), first);
        for _ in 0..8000 {
            room.grow(SECOND / 1000, STEADY, STEADY * 9, 0);
        }
        assert!(room.get().abs_diff(first * 271 / 100) < first / 10);
    }

    #[test]
    fn random_losses_restore_the_bound_and_the_rate() {
        let mut room = Room::new();
        lose_often(&mut room, 3000);
        assert_eq!(room.judge(Time::from_millis(5000), ONE / 20), Some(RATE));
        assert!(!room.is_trial() && !room.is_bounded());
    }

    #[test]
    fn in_a_trial_the_target_is_the_time_of_a_number_of_bytes() {
        let mut room = Room::new();
        lose_often(&mut room, 3000);
        let first = room.get();
        room.on_rate(1_000_000, 500_000);
        assert_eq!(room.get(), 2 * first);
        // Small steps add up.
        for data in (500_000..1_000_000).step_by(10) {
            room.on_rate(data, data + 10);
        }
        assert!(room.get().abs_diff(first) <= first / 20);
    }

    #[test]
    fn a_full_buffer_ends_a_trial() {
        let mut room = Room::new();
        lose_often(&mut room, 3000);
        lose(&mut room, 4000, &queue(2, 2), STEADY);
        assert!(!room.is_trial());
        assert_eq!(room.get(), ONE / 2);
    }

    #[test]
    fn a_buffer_longer_than_the_target_bounds_nothing() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(30, 30), STEADY);
        assert!(!room.is_bounded());
    }

    #[test]
    fn the_bound_grows_as_much_between_frequent_acknowledgements() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(2, 2), STEADY);
        for _ in 0..8_000_000 {
            room.grow(Duration::from_micros(1), STEADY, STEADY * 2, 0);
        }
        assert!(room.get().abs_diff(ONE) < ONE / 50);
    }

    #[test]
    fn the_bound_grows_by_a_steady_queue_in_sixteen_seconds_and_ends() {
        let mut room = Room::new();
        lose(&mut room, 1000, &queue(2, 2), STEADY);
        for _ in 0..8 {
            room.grow(SECOND, STEADY, STEADY * 2, 0);
        }
        assert_eq!(room.get(), ONE);
        for _ in 0..17 {
            room.grow(SECOND, STEADY, STEADY * 2, 0);
        }
        assert!(!room.is_bounded());
    }
}
