//! What the law is told: D and Q, r, and the shares p, e and l, each from what acknowledgements say.

mod path;
mod rate;
mod room;
mod share;

use super::law::{self, Channel};
use super::parts::{Part, Parts};
use verus_core::controller::{Acked, Feedback};
use verus_core::receiver_clock::ReceiverClock;
use verus_core::units::{Bytes, Duration, Rate, Time};

use path::PathDelay;
use rate::Deliveries;
use room::{FullQueue, Room};
use share::Share;

/// r is measured over two round trips of D + q, as flows that share a queue pass bursts to each other from one round trip
/// to the next; at most over the longer of this and two D.
const LONGEST_PERIOD: Duration = Duration::from_millis(400);
/// And at least over this many packets, if they take no longer than a second.
const FEWEST_PACKETS: u64 = 8;
/// A loss, or a late packet, is a share of at least this many.
const STEP_PACKETS: u64 = 16;
/// The average p covers this many steps of a quarter of a second, 2 s.
const LOST_STEPS: u64 = 8;
/// The averages e and l cover this many, 16 s. Longer than drains are apart, so that flows of a bottleneck have about the
/// same.
const CHANNEL_STEPS: u64 = 64;
/// A queue counts as empty below this part of s, 2 ms at 10 Mbit/s; on slower links below 2 ms.
const EMPTY_PART: u64 = 13;
const EMPTY: Duration = Duration::from_millis(2);
/// After a drain r falls all the same where Q is above q and this part of D, less half of the budget: on a long path the
/// window that follows a drain stands in the queue for a while.
const REFILL_PART: u64 = 4;
/// ... or where more than one packet in this many is lost.
const REFILL_LOSS: u64 = 32;
/// For so long after a drain the queue is empty because of it.
const DRAINED: Duration = Duration::from_millis(500);
/// A time without feedback counts in e for at most this.
const LONGEST_LOOK: Duration = Duration::from_millis(200);
/// Without the receiver's times the delay of the way back is not known to be steady: J is then this. So is H without
/// [`Part::Horizon`].
const UNMEASURED: Duration = Duration::from_millis(80);

/// s at this r.
fn steady_queue(budget: Duration, rate: Rate) -> Duration {
    Duration::from_micros(law::steady(budget.as_micros(), rate.as_bps()))
}

/// Of one flow.
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
    /// The packet acknowledged last left when the source had run dry.
    dry: bool,
    /// When e was last looked at.
    looked: Time,
    /// When the last feedback came that found the flow draining; zero before any did.
    drained: Time,
    rate: Rate,
    steady: Duration,
    base: Duration,
    queue: Duration,
    wanted: Duration,
    /// The r, the shares and c that `wanted` was taken of.
    wanted_of: Rate,
    wanted_for: u64,
    room: Room,
    wanted_in: u64,
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
            dry: false,
            looked: Time::ZERO,
            drained: Time::ZERO,
            rate: Rate::default(),
            steady: steady_queue(budget, Rate::default()),
            base: Duration::ZERO,
            queue: Duration::ZERO,
            wanted: Duration::ZERO,
            wanted_of: Rate::default(),
            wanted_for: 0,
            room: Room::new(),
            wanted_in: law::UNBOUNDED,
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

    /// Q, the queue that stands.
    pub(super) fn queue(&self) -> Duration {
        self.queue
    }

    /// q, the queue that is wanted.
    pub(super) fn wanted(&self) -> Duration {
        self.wanted
    }

    pub(super) fn smoothed_rtt(&self) -> Duration {
        self.smoothed_rtt
    }

    /// H.
    pub(super) fn horizon(&self) -> Duration {
        if !self.parts.has(Part::Horizon) {
            return UNMEASURED;
        }
        let spread = self.path.spread().unwrap_or(UNMEASURED);
        let horizon = law::horizon(self.deliveries.gap().as_micros(), spread.as_micros());
        Duration::from_micros(horizon)
    }

    /// How much the queueing delay differs over the last quarter to half of a round trip.
    pub(super) fn queue_range(&self) -> Duration {
        self.path.range()
    }

    /// s.
    pub(super) fn steady(&self) -> Duration {
        self.steady
    }

    /// Sets r, and s with it: a cube root, so only where r changes.
    fn set_rate(&mut self, rate: Rate) {
        if rate != self.rate {
            self.rate = rate;
            self.steady = steady_queue(self.budget, rate);
        }
    }

    /// How much sooner than r carries it a window may leave: what is ahead stands in the queue, which holds no more than q
    /// where the buffer is short.
    pub(super) fn lead(&self) -> Duration {
        if self.room.is_bounded() {
            self.wanted
        } else {
            self.budget
        }
    }

    /// c, 2^-16.
    pub(super) fn room(&self) -> u64 {
        self.room.get()
    }

    /// How late the last acknowledgement was.
    pub(super) fn back_excess(&self) -> Duration {
        self.path.back_excess()
    }

    /// Whether more than one packet in `n` was lost just now.
    pub(super) fn loses_more_than(&self, n: u64, packet: Bytes) -> bool {
        self.lost.exceeds(n, packet.get())
    }

    /// p, e and l.
    pub(super) fn shares(&self) -> [u64; 3] {
        [&self.lost, &self.empty, &self.late].map(Share::get)
    }

    /// Takes in what feedback says. `settled`: slow start is over.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>, packet: Bytes, settled: bool) {
        let now = feedback.now;
        if !feedback.acked.is_empty() && !self.path.is_settled() {
            let told = |acked: &Acked| acked.received_at.is_some();
            let told = feedback.acked.iter().any(told);
            self.path
                .settle(told && self.parts.has(Part::ReceiverTimes));
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
        // A mark says what a loss would say, and is priced like one (RFC 3168 §5).
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
            LOST_STEPS,
        );
        if settled {
            if self.parts.has(Part::Room) {
                self.bound_by_buffer(feedback, packet);
            }
            self.late.forget_step();
            self.late
                .update(now, late.get(), arrived.get(), fewest, CHANNEL_STEPS);
        }
        self.smoothed_rtt = feedback.smoothed_rtt;
        if let Some(last) = feedback.acked.last() {
            self.dry = last.packet.app_limited;
        }
    }

    /// Looks at the queue where packets were lost: at a full buffer, c falls.
    fn bound_by_buffer(&mut self, feedback: &Feedback<'_>, packet: Bytes) {
        if !feedback.lost.iter().any(|lost| self.room.is_news(lost.at)) {
            return;
        }
        let (delay, longest) = self.path.fullness();
        let queue = FullQueue {
            delay,
            longest,
            packet_time: self.rate.time_for(packet),
        };
        let smoothed_rtt = feedback.smoothed_rtt;
        self.room
            .on_loss(feedback.now, &queue, self.wanted, self.steady, smoothed_rtt);
    }

    fn on_delivered(&mut self, now: Time, sample: &Acked, smoothed_rtt: Duration) {
        if let Some(at) = sample.received_at
            && self.path.is_timed()
            && !self.clock.believes(now, sample.packet.at, at)
        {
            // The receiver's arrival times are made up. What they taught is forgotten, and the sender's clock used.
            self.path = PathDelay::new();
            self.path.settle(false);
            self.deliveries = Deliveries::new();
        }
        let at = self.path.on_acked(now, sample, smoothed_rtt);
        self.deliveries
            .on_delivery(at, sample.packet.at, sample.packet.size);
    }

    /// T: what r is measured over.
    fn period(&self, packet: Bytes) -> Duration {
        let rounds = ((self.base + self.wanted) * 2)
            .max(self.smoothed_rtt)
            .min(LONGEST_PERIOD.max(self.base * 2));
        let packets = self.rate.time_for(packet * FEWEST_PACKETS);
        rounds.max(packets.min(Duration::from_secs(1)))
    }

    /// Takes D, Q, r, e and q from what was measured. `steady`: the law is what decides.
    pub(super) fn refresh(&mut self, now: Time, packet: Bytes, steady: bool) {
        self.base = self.path.base().unwrap_or_default();
        self.queue = self.path.queue();
        let period = self.period(packet);
        let since_drained = if self.drained > Time::ZERO {
            now.since(self.drained)
        } else {
            Duration::MAX
        };
        if let Some(rate) = self.deliveries.rate(period, self.base + self.wanted) {
            // While the source has run dry, or after a drain, less is sent than the path could deliver, and the measured
            // rate is too low: r only falls then if there is a queue longer than wanted all the same.
            let seen_for = period + self.smoothed_rtt * 2;
            let drained = self.parts.has(Part::HeldRate) && since_drained <= seen_for;
            let refill = (self.base / REFILL_PART).saturating_sub(self.budget / 2);
            if rate > self.rate
                || !(self.dry || drained)
                || self.queue > self.wanted.max(refill)
                || self.lost.exceeds(REFILL_LOSS, packet.get())
            {
                self.set_rate(rate);
            }
        }
        self.empty.forget_step();
        // A buffer that holds no more than this is empty at times whatever the target.
        if steady && !self.dry && since_drained > DRAINED && !self.room.is_bounded() {
            let look = now.since(self.looked).min(LONGEST_LOOK).as_nanos();
            let short = EMPTY.min(self.steady / EMPTY_PART);
            let empty = if self.path.briefly() <= short {
                look
            } else {
                0
            };
            self.empty.update(now, empty, look, 1, CHANNEL_STEPS);
        }
        self.looked = now;
        self.room.grow(now, self.steady, self.budget);
        self.want();
        let pause = if self.parts.has(Part::CutPauses) {
            (self.base + self.wanted) / 2
        } else {
            Duration::MAX
        };
        self.deliveries
            .count(self.period(packet), pause, self.rate.time_for(packet));
    }

    /// Takes q anew.
    fn want(&mut self) {
        let part = |part, value| if self.parts.has(part) { value } else { 0 };
        let [lost, empty, late] = self.shares();
        let known = lost | empty << 20 | late << 40;
        // q is taken anew where a share or c has changed, or r has moved by a 64th.
        let (rate, of) = (self.rate.as_bps(), self.wanted_of.as_bps());
        let room = self.room.get();
        let same = known == self.wanted_for && room == self.wanted_in;
        if of > 0 && same && rate.abs_diff(of) <= of / 64 {
            return;
        }
        (self.wanted_of, self.wanted_for, self.wanted_in) = (self.rate, known, room);
        let channel = Channel {
            rate: if self.parts.has(Part::Fairness) {
                self.rate.as_bps()
            } else {
                law::REFERENCE
            },
            budget: self.budget.as_micros(),
            lost: part(Part::LossPrice, lost),
            empty: part(Part::Empty, empty),
            late: part(Part::Late, late),
            room,
        };
        self.wanted = Duration::from_micros(law::wanted(&channel));
    }

    /// The queue has never been seen empty, nor a packet late.
    #[cfg(test)]
    pub(super) fn believe_steady(&mut self) {
        (self.empty, self.late) = (Share::new(), Share::new());
        self.want();
    }

    /// The flow drains now.
    pub(super) fn on_draining(&mut self, now: Time) {
        self.drained = now;
    }

    /// A drain did not change the queue: it is the path. The drain's rate is not the path's: that was `rate`.
    pub(super) fn lengthen(&mut self, rate: Rate) {
        self.path.lengthen();
        self.base = self.path.base().unwrap_or_default();
        self.queue = self.path.queue();
        self.set_rate(self.rate.max(rate));
        self.want();
    }
}
