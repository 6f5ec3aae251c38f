//! Measurements of the law's inputs from acknowledgements: D, Q, r, and the shares p, e and l.

mod high;
mod path;
mod rate;
mod room;
mod share;
mod trial;

use super::law::{self, Channel};
use super::parts::{Part, Parts};
use verus_core::controller::{Acked, Departure, Feedback};
use verus_core::receiver_clock::ReceiverClock;
use verus_core::units::{Bytes, Duration, Rate, Time};

use path::PathDelay;
use rate::Deliveries;
use room::{FullQueue, Loss, Room};
use share::Share;

/// The longest period over which r is measured, unless two D are longer. Flows that share a queue
/// pass bursts to each other from one round trip to the next, so the period covers two, of D + q
/// each.
const LONGEST_PERIOD: Duration = Duration::from_millis(400);
/// The fewest packets over which r is measured, if they take at most a second.
const FEWEST_PACKETS: u64 = 8;
/// The fewest packets in a step of p or l, of which a loss or a late packet is a share.
const STEP_PACKETS: u64 = 16;
/// Steps that the averages e and l cover: 16 s. This exceeds the interval of drains, so that flows
/// of a bottleneck measure about the same.
const CHANNEL_STEPS: u64 = 64;
/// The least e of a new flow: 5 %, about what flows on links of varying rate measure. A flow that
/// had to measure it first would have a shorter target than these for 10 s, and a third of their
/// rate. On a steady link it has the longer target while it is new.
const NEW_EMPTY: u64 = law::ONE / 20;
/// Divisor of s that gives the longest queue that counts as empty, 2 ms at 10 Mbit/s.
const EMPTY_PART: u64 = 13;
/// The longest queue that counts as empty on links slower than 10 Mbit/s.
const EMPTY: Duration = Duration::from_millis(2);
/// Divisor of D in the limit of Q above which r falls even after a drain. The limit is D / 4 less
/// half of the budget, and at least q. On a long path the window after a drain waits in the queue
/// for a while.
const REFILL_PART: u64 = 4;
/// The share of lost packets above which r falls even after a drain: one in this many.
const REFILL_LOSS: u64 = 32;
/// The least and the greatest e of links of varying rate: one in this many. Above, the queue that
/// is empty at times is not that of the bottleneck, which may have none.
const VARYING: (u64, u64) = (16, 2);
/// The time after a drain for which the queue is empty because of the drain.
const DRAINED: Duration = Duration::from_millis(500);
/// The longest time without feedback that counts in e.
const LONGEST_LOOK: Duration = Duration::from_millis(200);
/// J without the receiver's arrival times, since the spread of the reverse path's delay is then
/// unknown; H without [`Part::Horizon`].
const UNMEASURED: Duration = Duration::from_millis(80);

/// s at the rate r.
fn steady_queue(parts: &Parts, budget: Duration, rate: Rate) -> Duration {
    Duration::from_micros(law::steady_with(
        parts.constants(),
        budget.as_micros(),
        rate.as_bps(),
    ))
}

/// The measurements of one flow.
#[derive(Clone, Debug)]
pub(super) struct Estimates {
    budget: Duration,
    parts: Parts,
    clock: ReceiverClock,
    path: PathDelay,
    deliveries: Deliveries,
    lost: Share,
    late: Share,
    empty: Share,
    smoothed_rtt: Duration,
    /// Whether the packet acknowledged last was application-limited: it left when the source had
    /// run dry.
    app_limited: bool,
    /// When the queue was last observed for e.
    observed_at: Time,
    /// When feedback last arrived during a drain; zero before the first drain.
    drained_at: Time,
    /// When a drain last showed that the path had become longer before it; zero before the first such
    /// drain.
    lengthened_at: Time,
    rate: Rate,
    steady: Duration,
    base: Duration,
    queue: Duration,
    target: Duration,
    /// The r from which `target` was last computed.
    target_rate: Rate,
    /// The p, e and l from which `target` was last computed, 20 bits each.
    target_shares: u64,
    room: Room,
    /// The c from which `target` was last computed.
    target_room: u32,
}

impl Estimates {
    pub(super) fn new(budget: Duration, parts: Parts) -> Self {
        Estimates {
            budget,
            parts,
            clock: ReceiverClock::default(),
            path: PathDelay::new(),
            deliveries: Deliveries::new(),
            lost: Share::new(),
            late: Share::new(),
            empty: Share::new(),
            smoothed_rtt: Duration::ZERO,
            app_limited: false,
            observed_at: Time::ZERO,
            drained_at: Time::ZERO,
            lengthened_at: Time::ZERO,
            rate: Rate::default(),
            steady: steady_queue(&parts, budget, Rate::default()),
            base: Duration::ZERO,
            queue: Duration::ZERO,
            target: Duration::ZERO,
            target_rate: Rate::default(),
            target_shares: 0,
            room: Room::new(),
            target_room: law::UNBOUNDED as u32,
        }
    }

    /// r, the delivery rate by the receiver's clock.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// D, the round trip without a queue.
    pub(super) fn base(&self) -> Duration {
        self.base
    }

    /// Q, the standing queue.
    pub(super) fn queue(&self) -> Duration {
        self.queue
    }

    /// q, the target queue.
    pub(super) fn target(&self) -> Duration {
        self.target
    }

    pub(super) fn smoothed_rtt(&self) -> Duration {
        self.smoothed_rtt
    }

    /// H, the time for which delivery is assumed while no acknowledgement comes.
    pub(super) fn horizon(&self) -> Duration {
        if !self.parts.has(Part::Horizon) {
            return UNMEASURED;
        }
        let spread = self.path.spread().unwrap_or(UNMEASURED);
        let horizon = law::horizon(self.deliveries.gap().as_micros(), spread.as_micros());
        Duration::from_micros(horizon)
    }

    /// The range of the queueing delay over the last quarter to half of a round trip.
    pub(super) fn queue_range(&self) -> Duration {
        self.path.range()
    }

    /// The time during which acknowledgements arrived, without long silences.
    pub(super) fn feedback_time(&self) -> Duration {
        self.path.feedback_time()
    }

    /// s, the target queue on a steady link.
    pub(super) fn steady(&self) -> Duration {
        self.steady
    }

    /// Sets r and s. s takes a cube root, so it is computed only if r changes.
    fn set_rate(&mut self, rate: Rate) {
        if rate != self.rate {
            let before = self.steady_data();
            self.rate = rate;
            self.steady = steady_queue(&self.parts, self.budget, rate);
            self.room.on_rate(before, self.steady_data());
        }
    }

    /// s · r, in µs kbit/s.
    fn steady_data(&self) -> u64 {
        self.steady.as_micros() * (self.rate.as_bps() / 1000)
    }

    /// The time by which a window may leave sooner than at rate r. Packets sent ahead wait in the
    /// queue, which holds at most q where the buffer is short.
    pub(super) fn lead(&self) -> Duration {
        if self.room.is_bounded() {
            self.target
        } else {
            self.budget
        }
    }

    /// c, the share of s that the buffer holds, 2^-16.
    pub(super) fn room(&self) -> u64 {
        self.room.get()
    }

    /// The delay of the last acknowledgement on the reverse path beyond the least.
    pub(super) fn reverse_excess(&self) -> Duration {
        self.path.reverse_excess()
    }

    /// Whether more than one packet in `n` was lost in the present step of p.
    pub(super) fn loses_more_than(&self, n: u64, packet: Bytes) -> bool {
        self.lost.exceeds(n, packet.get())
    }

    /// Whether the flow has measured too little of the channel to know e.
    fn is_new(&self) -> bool {
        self.path.feedback_time() < self.base * self.parts.constants().new_rounds
    }

    /// Whether e is too low to lift the target.
    pub(super) fn link_is_steady(&self) -> bool {
        self.empty.get() <= law::SPARE
    }

    /// p, e and l.
    pub(super) fn shares(&self) -> [u64; 3] {
        [&self.lost, &self.empty, &self.late].map(Share::get)
    }

    /// Updates the measurements from feedback. `settled`: slow start is over.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>, packet: Bytes, settled: bool) {
        let now = feedback.now;
        if !feedback.acked.is_empty() && !self.path.is_settled() {
            let is_timed = |acked: &Acked| acked.received_at.is_some();
            let has_receiver_times = feedback.acked.iter().any(is_timed);
            self.path
                .settle(has_receiver_times && self.parts.has(Part::ReceiverTimes));
        }
        let (mut arrived, mut late) = (Bytes::ZERO, Bytes::ZERO);
        let samples = feedback.acked.iter().chain(feedback.recovered);
        samples.for_each(|sample| {
            self.on_delivered(now, sample, feedback.smoothed_rtt);
            arrived += sample.packet.size;
            if self.path.delay() > self.budget {
                late += sample.packet.size;
            }
        });
        let recovered: Bytes = feedback
            .recovered
            .iter()
            .map(|acked| acked.packet.size)
            .sum();
        // A mark indicates congestion as a loss does, and has the same price (RFC 3168 §5).
        let marked = packet * feedback.marked as u64;
        let lost: Bytes = feedback.lost.iter().map(|packet| packet.size).sum();
        let fewest = (packet * STEP_PACKETS).get();
        self.lost.forget_step();
        self.lost.take_back(recovered.get());
        let settled_bytes = (arrived + lost).saturating_sub(recovered);
        self.lost.update(
            now,
            (lost + marked).get(),
            settled_bytes.get(),
            fewest,
            self.parts.constants().lost_steps,
        );
        if settled {
            if self.parts.has(Part::Room) {
                self.room
                    .count(now, feedback.smoothed_rtt, lost + marked, settled_bytes);
                self.bound_by_buffer(feedback, packet);
            }
            self.late.forget_step();
            self.late
                .update(now, late.get(), arrived.get(), fewest, CHANNEL_STEPS);
        }
        self.smoothed_rtt = feedback.smoothed_rtt;
        if let Some(last) = feedback.acked.last() {
            self.app_limited = last.packet.app_limited;
        }
    }

    /// Lowers c if packets were lost at a full buffer, and undoes that if the packet was only late.
    fn bound_by_buffer(&mut self, feedback: &Feedback<'_>, packet: Bytes) {
        for late in feedback.recovered {
            self.room.on_recovered(late.packet.at);
        }
        let is_new_loss = |lost: &&Departure| self.room.is_new_loss(lost.at);
        let Some(lost) = feedback.lost.iter().find(is_new_loss) else {
            return;
        };
        let queue = FullQueue {
            delay: self.path.newest(),
            at_loss: self.path.at_loss(),
            full: self.path.full(),
            packet_time: self.rate.time_for(packet),
            // While c bounds the target, e is that of an earlier time.
            rate_varies: !self.room.is_bounded()
                && (law::ONE / VARYING.0 + 1..=law::ONE / VARYING.1).contains(&self.empty.get()),
        };
        // A new flow's longer target overflows buffers that s does not, and says nothing of c.
        let target = if self.is_new() {
            self.target.min(self.steady)
        } else {
            self.target
        };
        let loss = Loss {
            queue,
            target,
            steady: self.steady,
            rate: self.rate,
            smoothed_rtt: feedback.smoothed_rtt,
            lost: self.lost.get(),
            packet,
        };
        if let Some(held) = self.room.on_loss(feedback.now, lost.at, &loss) {
            self.set_rate(held);
        }
    }

    fn on_delivered(&mut self, now: Time, sample: &Acked, smoothed_rtt: Duration) {
        if let Some(at) = sample.received_at
            && self.path.is_timed()
            && !self.clock.believes(now, sample.packet.at, at)
        {
            // The receiver's arrival times are made up. Measurements from them are discarded, and
            // the sender's clock is used from now on.
            self.path = PathDelay::new();
            self.path.settle(false);
            self.deliveries = Deliveries::new();
        }
        let at = self.path.on_acked(now, sample, smoothed_rtt);
        self.deliveries.on_delivery(at, sample.packet.size);
    }

    /// The period over which r is measured.
    fn period(&self, packet: Bytes) -> Duration {
        let rounds = ((self.base + self.target) * 2)
            .max(self.smoothed_rtt)
            .min(LONGEST_PERIOD.max(self.base * 2));
        let packets = self.rate.time_for(packet * FEWEST_PACKETS);
        rounds.max(packets.min(Duration::from_secs(1)))
    }

    /// Computes D, Q, r, e and q from the measurements. `law_decides`: the window comes from the
    /// law, not from slow start or a drain.
    pub(super) fn refresh(&mut self, now: Time, packet: Bytes, law_decides: bool) {
        self.base = self.path.base().unwrap_or_default();
        self.queue = self.path.queue();
        let period = self.period(packet);
        let since_drained = if self.drained_at > Time::ZERO {
            now.since(self.drained_at)
        } else {
            Duration::MAX
        };
        if let Some(rate) = self.deliveries.rate(period, self.base + self.target) {
            // An application-limited flow, or one after a drain, sends less than the path could
            // deliver. The measured rate is then too low, so r falls only if the queue is long or
            // losses are frequent.
            let drain_lowers_rate_for = period + self.smoothed_rtt * 2;
            let drained = self.parts.has(Part::HeldRate) && since_drained <= drain_lowers_rate_for;
            // The delay that a longer path adds on the way back counts in D a round trip later.
            // Meanwhile the window waits in the queue.
            let lengthened = self.lengthened_at > Time::ZERO
                && now.since(self.lengthened_at) < self.smoothed_rtt * 2 + self.base;
            let refill = (self.base / REFILL_PART).saturating_sub(self.budget / 2);
            let changes = if self.room.holds_rate() {
                self.queue > self.steady
            } else {
                let lowers = !(self.app_limited || drained)
                    || self.queue > self.target.max(refill)
                    || self.lost.exceeds(REFILL_LOSS, packet.get());
                rate > self.rate || lowers && !lengthened
            };
            if changes {
                self.set_rate(rate);
            }
        }
        let elapsed = now.since(self.observed_at);
        self.empty.forget_step();
        // A short buffer is empty at times whatever the target, so its queue does not count in e.
        if law_decides && !self.app_limited && since_drained > DRAINED && !self.room.is_bounded() {
            let observed = elapsed.min(LONGEST_LOOK).as_nanos();
            let empty_limit = EMPTY.min(self.steady / EMPTY_PART);
            let empty = if self.path.brief_queue() <= empty_limit {
                observed
            } else {
                0
            };
            self.empty.update(now, empty, observed, 1, CHANNEL_STEPS);
        }
        if let Some(before) = self.room.judge(now, self.lost.get()) {
            self.set_rate(self.rate.max(before));
        }
        self.room
            .grow(elapsed, self.steady, self.budget, self.lost.get());
        self.observed_at = now;
        self.update_target();
        self.deliveries
            .configure(self.period(packet), self.rate.time_for(packet));
    }

    /// Computes q if r or c moved by a 64th, or a share changed.
    fn update_target(&mut self) {
        let enabled = |part, value| if self.parts.has(part) { value } else { 0 };
        let [lost, measured, late] = self.shares();
        let empty = measured.max(if self.is_new() { NEW_EMPTY } else { 0 });
        let shares = lost | empty << 20 | late << 40;
        let (rate, last_rate) = (self.rate.as_bps(), self.target_rate.as_bps());
        let (room, last_room) = (self.room.get(), u64::from(self.target_room));
        let is_near = |now: u64, last: u64| now.abs_diff(last) <= last / 64;
        let unchanged = shares == self.target_shares && is_near(room, last_room);
        if last_rate > 0 && unchanged && is_near(rate, last_rate) {
            return;
        }
        (self.target_rate, self.target_shares) = (self.rate, shares);
        self.target_room = room as u32;
        let channel = Channel {
            rate: if self.parts.has(Part::Fairness) {
                self.rate.as_bps()
            } else {
                law::REFERENCE
            },
            budget: self.budget.as_micros(),
            // Losses of a trial do not lower its own target.
            lost: enabled(Part::LossPrice, if self.room.is_trial() { 0 } else { lost }),
            empty: enabled(Part::Empty, empty),
            late: enabled(Part::Late, late),
            room,
        };
        self.target = Duration::from_micros(law::target_with(self.parts.constants(), &channel));
    }

    /// Resets e and l, as if the queue had never been empty and no packet late. The flow must not
    /// be new.
    #[cfg(test)]
    pub(super) fn assume_steady(&mut self) {
        assert!(!self.is_new(), "{:?}", self.path.feedback_time());
        (self.empty, self.late) = (Share::new(), Share::new());
        self.update_target();
    }

    /// Records that the flow drains at `now`.
    pub(super) fn on_draining(&mut self, now: Time) {
        self.drained_at = now;
    }

    /// Adds Q to D, since a drain has shown that Q is the path's delay. Then r becomes at least
    /// `rate`, measured before the drain: a drain sends less than the path could deliver. If
    /// `holds_rate`, r does not fall until D covers the whole path.
    pub(super) fn lengthen(&mut self, rate: Rate, holds_rate: bool) {
        if holds_rate {
            self.lengthened_at = self.observed_at;
        }
        self.path.lengthen();
        self.base = self.path.base().unwrap_or_default();
        self.queue = self.path.queue();
        self.set_rate(self.rate.max(rate));
        self.update_target();
    }
}
