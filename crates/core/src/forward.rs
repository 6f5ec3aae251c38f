//! Forward: one window, from what the receiver got lately and from the queue that one will bear.
//!
//! ```text
//! W = r · (D + q(r) + (q(r) − Q) / 5)          q(r) = queue · ∛(10 Mbit/s ÷ r) ÷ (1 + 150 p)
//!
//!            ┌ first drain ┐      ┌─ path not met bare for 4 s, or Q > 1.5 q for a round trip ─┐
//! slow start ┴─────────────┴▶ law ┴▶ drain: W = 0.15 r D, two round trips or until bare ───────┴▶ law
//! ```
//!
//! r is the delivery rate, D the round trip without a queue, Q the queue that stands, p the share of packets lost.
//! Below capacity the window grows by (D + q)/D each round trip, by itself; at capacity the queue settles at q (Little).
//! q falls with the rate, so among flows of one queue, who has less aims at a longer one and gains, until all have the
//! same, *whatever their round trips*; and the queue of N flows is only ∛N times that of one. A loss is a price on the
//! queue, the same for all flows of a bottleneck: what a short buffer refuses, it refuses everybody alike, and there is
//! no reduction to tune or to undo. docs/forward.md derives this, and says what each part is worth and where it falls short.
//!
//! For a kernel: integers only, a few hundred bytes, nothing allocated, one timer.

mod drain;
mod loss;
mod path;
mod rate;

use crate::configuration::{CHECKED, Configuration, Configured};
use crate::controller::{Acked, Allowance, Controller, Departure, Feedback, Phase, Timeout};
use crate::credit::{Credit, TICK};
use crate::range::{OutOfRange, Within};
use crate::receiver_clock::ReceiverClock;
use crate::recovery::{Recovery, TimeoutRule};
use crate::spec::{Row, either, field, word_for};
use crate::units::{Bytes, Duration, Rate, Time};

use drain::{Allowed, Drains, Seen, Turn};
use loss::LossShare;
use path::PathDelay;
use rate::Deliveries;

/// The rate at which the target queue q(r), without losses, is `queue_ms` itself.
const REFERENCE: Rate = Rate::from_bps(10_000_000);
/// The price of loss: with a share p of the packets lost, the target is divided by 1 + 150 p. At 2 % of loss it is a
/// quarter of what it is without, so a buffer that holds a quarter of the target settles at 2 % of loss.
const LOSS_PRICE: u64 = 150;
/// The window includes one part in this many of r · (q − Q), the queue's distance from its target: damping, in addition to
/// the feedback through r.
const DAMPING: u64 = 5;
/// The window in a drain, in percent of r D. Small enough that the queue empties even if D is too long because it was
/// measured with other flows' queue in it.
const DRAIN_PERCENT: u64 = 15;
/// H, the horizon. While nothing is acknowledged, the path is assumed to go on delivering at r for up to this long: LTE
/// grants and bursts of acknowledgements cause such silences. A silence also counts as time in r for up to this long.
const HORIZON: Duration = Duration::from_millis(80);
/// r is measured over two round trips of D + q, as flows that share a queue pass bursts to each other from one round trip
/// to the next; at most over the longer of this and two D.
const LONGEST_PERIOD: Duration = Duration::from_millis(400);
/// And at least over this many packets, if they take no longer than a second.
const FEWEST_PACKETS: u64 = 8;
/// The window at the start (RFC 6928).
const INITIAL_PACKETS: u64 = 10;
/// A window smaller than this many packets is enforced by pacing, not by counting packets in flight, which would round it
/// down to whole packets for good.
const SMALL_PACKETS: u64 = 4;
/// Packets that may leave after a timeout, until one is acknowledged.
const PROBE_PACKETS: u64 = 2;
/// Slow start ends when this many acknowledgements in a row have seen a queue of at least half the target.
const QUEUED_SAMPLES: u32 = 3;
/// Slow start also ends when more than one packet in this many is lost.
const OVERFLOW: u64 = 32;
/// The least window is one packet divided by this: a packet every eight round trips still measures the path.
const LEAST_SHARE: u64 = 8;
/// In a drain it is one packet divided by this: a flow that sends nothing does not see that the queue has gone.
const DRAINED_SHARE: u64 = 2;

/// A part that can be left out, to see what it is worth (docs/forward.md, the ablation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// While nothing is acknowledged, the path is assumed to go on delivering for up to H.
    Prediction,
    /// Packets are paced, rather than sent as soon as the window allows.
    Pacing,
    /// Drains, all of them.
    Drains,
    /// Drains that begin before 4 s have passed, because the queue exceeds 1.5 times its target.
    EarlyDrains,
    /// Short drains: a pause as long as the queue, rather than a small window until the queue is seen to have gone.
    ShortDrains,
    /// The drain that ends slow start.
    FirstDrain,
    /// The target falls with the share of packets lost.
    LossPrice,
    /// The target falls with the cube root of r; without this part it is `queue_ms` at any rate.
    Fairness,
    /// The window's term in q − Q, the queue's distance from its target.
    Damping,
    /// A queue that a drain does not change counts as a longer path.
    LongerPath,
    /// r is not lowered by a drain, nor by its traces in the measurement.
    HeldRate,
    /// A silence counts as time in r for up to H only.
    CutSilence,
    /// A silence that the sender caused itself counts as time in r for up to half a round trip of D + q only.
    CutPauses,
    /// Arrival times by the receiver's clock are used where acknowledgements carry them.
    ReceiverTimes,
}

impl Part {
    /// Every part, by its name in a scheme.
    pub const ALL: [(&'static str, Part); 14] = [
        ("prediction", Part::Prediction),
        ("pacing", Part::Pacing),
        ("drains", Part::Drains),
        ("early-drains", Part::EarlyDrains),
        ("short-drains", Part::ShortDrains),
        ("first-drain", Part::FirstDrain),
        ("loss-price", Part::LossPrice),
        ("fairness", Part::Fairness),
        ("damping", Part::Damping),
        ("longer-path", Part::LongerPath),
        ("held-rate", Part::HeldRate),
        ("cut-silence", Part::CutSilence),
        ("cut-pauses", Part::CutPauses),
        ("receiver-times", Part::ReceiverTimes),
    ];
}

/// A configuration of forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The target queueing delay, in ms, for a flow alone on a link of 10 Mbit/s. On other links it is divided by the cube
    /// root of the rate relative to that: 2.7 times as long at 0.5 Mbit/s, half at 80 Mbit/s. docs/forward.md has what 27 ms
    /// achieve on which recordings.
    pub queue_ms: f64,
    /// A part to leave out, for research.
    pub without: Option<Part>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            queue_ms: 27.0,
            without: None,
        }
    }
}

const QUEUE_MS: Within = Within {
    words: "between 1 and 1000 ms",
    valid: |ms| (1.0..=1000.0).contains(&ms),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        field!(queue_ms).within(
            "ms",
            "target queueing delay at 10 Mbit/s; at a rate r divided by the cube root of r / 10 Mbit/s",
            QUEUE_MS,
        ),
        Row::other(
            "without",
            || format!("none, {}", either(&Part::ALL)),
            "leaves a part out, for research",
            |c| {
                c.without
                    .map_or("none".to_owned(), |part| word_for(&Part::ALL, &part))
            },
            |c, setting| {
                c.without = match setting.text() {
                    "none" => None,
                    _ => Some(setting.word(&Part::ALL)?),
                };
                Ok(())
            },
        ),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Forward".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Forward::new(self.clone()).expect(CHECKED))
    }
}

/// A flow's forward.
#[derive(Clone, Debug)]
pub struct Forward {
    queue_asked: Duration,
    without: Option<Part>,
    packet: Bytes,
    clock: ReceiverClock,
    path: PathDelay,
    deliveries: Deliveries,
    losses: LossShare,
    drains: Drains,
    credit: Credit,
    /// r.
    rate: Rate,
    /// The cube root in q(r), in units of 2^-13.
    root: u32,
    /// The r that `root` was computed for.
    root_of: Rate,
    /// q(r), the price of loss paid.
    target: Duration,
    /// D.
    base: Duration,
    /// Q.
    queue: Duration,
    smoothed_rtt: Duration,
    /// Slow start's window, until it ends.
    starting: Option<Bytes>,
    queued_samples: u32,
    /// A timeout fired, and nothing was answered since.
    silent: bool,
    window: Bytes,
    /// What departures are spread at; follows from the window.
    pace: Rate,
    /// When window and pace were computed last.
    updated: Time,
    /// Feedback has arrived since.
    stale: bool,
    /// The packet acknowledged last left when the source had run dry.
    dry: bool,
    /// How long a packet takes at r.
    packet_time: Duration,
    in_flight: Bytes,
    /// r as the drain began.
    rate_before: Rate,
    /// When the last feedback came that found the flow draining; zero before any did.
    drained: Time,
    now: Time,
    /// Up to when what the path delivered has been acknowledged; after that it is predicted.
    known_until: Time,
}

impl Forward {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        let packet = Bytes::new(1500);
        Ok(Forward {
            queue_asked: Duration::from_millis_f64(config.queue_ms),
            without: config.without,
            packet,
            clock: ReceiverClock::default(),
            path: PathDelay::new(),
            deliveries: Deliveries::new(),
            losses: LossShare::new(),
            drains: Drains::new(Time::ZERO),
            credit: Credit::new(packet * INITIAL_PACKETS, Time::ZERO),
            rate: Rate::default(),
            root: cube_root(REFERENCE.as_bps() << 39) as u32,
            root_of: Rate::default(),
            target: Duration::ZERO,
            base: Duration::ZERO,
            queue: Duration::ZERO,
            smoothed_rtt: Duration::ZERO,
            starting: Some(packet * INITIAL_PACKETS),
            queued_samples: 0,
            silent: false,
            window: packet * INITIAL_PACKETS,
            pace: Rate::from_bps(1),
            updated: Time::ZERO,
            stale: false,
            dry: false,
            packet_time: Rate::default().time_for(packet),
            in_flight: Bytes::ZERO,
            rate_before: Rate::default(),
            drained: Time::ZERO,
            now: Time::ZERO,
            known_until: Time::ZERO,
        })
    }

    fn has(&self, part: Part) -> bool {
        self.without != Some(part)
    }

    /// q(r).
    fn target(&mut self) -> Duration {
        let root = if self.has(Part::Fairness) {
            // The root is taken anew where r has moved by a 64th.
            let (rate, of) = (self.rate.as_bps(), self.root_of.as_bps());
            if rate.abs_diff(of) > of / 64 {
                self.root = cube_root((REFERENCE.as_bps() << 39) / rate.max(1)) as u32;
                self.root_of = self.rate;
            }
            u64::from(self.root)
        } else {
            1 << 13
        };
        let price = if self.has(Part::LossPrice) {
            LOSS_PRICE * self.losses.share()
        } else {
            0
        };
        // The root is in 2^-13, the price in 2^-16. At its most, a second times two million, this takes 53 bits.
        let nanos = ((self.queue_asked.as_nanos() >> 8) * root) >> 5;
        Duration::from_nanos((nanos << 16) / ((1 << 16) + price))
    }

    /// T: what r is measured over.
    fn period(&self) -> Duration {
        let rounds = ((self.base + self.target) * 2)
            .max(self.smoothed_rtt)
            .min(LONGEST_PERIOD.max(self.base * 2));
        let packets = self.packet_time * FEWEST_PACKETS;
        rounds.max(packets.min(Duration::from_secs(1)))
    }

    /// Takes in what feedback says of path, rate and loss.
    fn measure(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        if !feedback.acked.is_empty() && !self.path.is_settled() {
            let told = |acked: &Acked| acked.received_at.is_some();
            let told = feedback.acked.iter().any(told);
            self.path.settle(told && self.has(Part::ReceiverTimes));
        }
        let (mut acked, mut recovered) = (Bytes::ZERO, Bytes::ZERO);
        for sample in feedback.acked {
            self.on_delivered(now, sample, feedback.smoothed_rtt);
            acked += sample.packet.size;
        }
        for sample in feedback.recovered {
            self.on_delivered(now, sample, feedback.smoothed_rtt);
            recovered += sample.packet.size;
        }
        let lost: Bytes = feedback.lost.iter().map(|packet| packet.size).sum();
        self.losses
            .update(now, self.packet, acked + recovered, lost, recovered);
        self.smoothed_rtt = feedback.smoothed_rtt;
        // A window of which less than half is in flight is not used, and says nothing (RFC 7661 §4.2).
        if let Some(window) = &mut self.starting
            && feedback.in_flight_before * 2 >= *window
        {
            *window += acked + recovered;
        }
        if let Some(last) = feedback.acked.last() {
            self.dry = last.packet.app_limited;
        }
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

    /// Takes D, Q, r and q from what was measured.
    fn estimate(&mut self) {
        self.base = self.path.base().unwrap_or_default();
        self.queue = self.path.queue();
        let period = self.period();
        if let Some(rate) = self.deliveries.rate(period, self.base + self.target) {
            // While the source has run dry, or after a drain, less is sent than the path could deliver, and the measured
            // rate is too low: r only falls then if there is a queue above the target all the same.
            let seen_for = period + self.smoothed_rtt * 2;
            let drained = self.has(Part::HeldRate)
                && self.drained > Time::ZERO
                && self.now.since(self.drained) <= seen_for;
            if rate > self.rate || !(self.dry || drained) || self.queue > self.target {
                self.rate = rate;
            }
        }
        self.target = self.target();
        let silence = if self.has(Part::CutSilence) {
            HORIZON
        } else {
            Duration::MAX
        };
        let pause = if self.has(Part::CutPauses) {
            (self.base + self.target) / 2
        } else {
            Duration::MAX
        };
        self.deliveries.count(self.period(), silence, pause);
    }

    /// Ends slow start, begins and ends drains.
    fn change_phase(&mut self, now: Time) {
        if self.starting.is_none() {
            if self.has(Part::Drains) {
                self.drain_or_not(now);
            }
        } else {
            let queued = self.queue > self.target / 2;
            self.queued_samples = if queued { self.queued_samples + 1 } else { 0 };
            if self.queued_samples >= QUEUED_SAMPLES || self.losses.exceeds(OVERFLOW, self.packet) {
                self.starting = None;
                self.drains = Drains::new(now);
                if self.has(Part::Drains) && self.has(Part::FirstDrain) {
                    self.drains.first(now);
                    self.rate_before = self.rate;
                }
            }
        }
        if self.drains.draining() {
            self.drained = now;
        }
    }

    fn drain_or_not(&mut self, now: Time) {
        let seen = Seen {
            queue: self.queue,
            target: self.target,
            base: self.base,
            smoothed_rtt: self.smoothed_rtt,
        };
        let allowed = Allowed {
            early: self.has(Part::EarlyDrains),
            short: self.has(Part::ShortDrains),
        };
        let turn = self.drains.update(now, &seen, allowed);
        match turn {
            Turn::Nothing => {}
            Turn::Began => self.rate_before = self.rate,
            Turn::Unmoved if self.has(Part::LongerPath) => {
                self.path.lengthen();
                self.base = self.path.base().unwrap_or_default();
                self.queue = self.path.queue();
                // The rate measured during the drain is the drain's, not the path's.
                self.rate = self.rate.max(self.rate_before);
                self.target = self.target();
            }
            Turn::Unmoved => {}
        }
    }

    /// Whether it is time for the law: once a millisecond, or twice a round trip where that is shorter.
    fn is_due(&self) -> bool {
        self.now.since(self.updated) >= TICK.min(self.smoothed_rtt / 2)
    }

    /// Computes window and pace anew from what has been measured.
    fn update(&mut self) {
        (self.updated, self.stale) = (self.now, false);
        self.estimate();
        self.change_phase(self.now);
        self.set_window();
    }

    /// W = r · (D + q + (q − Q) / 5), and at least r · D / 2.
    fn law(&self) -> Bytes {
        let mut span = self.base + self.target;
        if self.has(Part::Damping) {
            span = (span + self.target / DAMPING).saturating_sub(self.queue / DAMPING);
        }
        self.rate.bytes_in(span.max(self.base / 2))
    }

    fn set_window(&mut self) {
        let window = if self.silent {
            self.packet * PROBE_PACKETS
        } else if let Some(window) = self.starting {
            window
        } else if self.drains.draining() {
            let share = if self.drains.looking() {
                100
            } else {
                DRAIN_PERCENT
            };
            self.rate.bytes_in(self.base * share / 100)
        } else {
            self.law()
        };
        let least = if self.drains.draining() {
            DRAINED_SHARE
        } else {
            LEAST_SHARE
        };
        self.window = window.max(self.packet / least);
        self.pace = self.pace();
        self.packet_time = self.rate.time_for(self.packet);
    }

    /// Whether the path is assumed to deliver while nothing is acknowledged.
    fn predicts(&self) -> bool {
        let law = !self.silent && self.starting.is_none() && !self.drains.draining();
        law && self.has(Part::Prediction)
    }

    /// How many bytes the path should have delivered, at r, since what was acknowledged last, less the packet that is due
    /// next; at most what is in flight, and at most what r delivers in H.
    fn unheard(&self) -> Bytes {
        if !self.predicts() {
            return Bytes::ZERO;
        }
        let age = self.now.since(self.known_until).min(HORIZON);
        if age <= self.packet_time {
            return Bytes::ZERO;
        }
        let overdue = age.saturating_sub(self.packet_time);
        self.rate.bytes_in(overdue).min(self.in_flight)
    }

    /// Until when a drain lets nothing leave.
    fn paused_until(&self) -> Option<Time> {
        (!self.silent).then(|| self.drains.paused_until()).flatten()
    }

    /// How much may be in flight, without what is assumed delivered: the window, rounded to the nearest packet; for a small
    /// window a packet more, as its pace is what limits it.
    fn allowed(&self) -> Bytes {
        let more = if self.is_small() {
            self.packet
        } else {
            self.packet / 2
        };
        self.window + more
    }

    fn is_small(&self) -> bool {
        self.window < self.packet * SMALL_PACKETS
    }

    /// The pacing rate. A small window is spread over one round trip. Any other is spread over half of D + q, so that
    /// there is always something to send when the link delivers in bursts, but over no less than three quarters of D:
    /// on a long path, what is sent faster than r would stand in the queue meanwhile.
    fn pace(&self) -> Rate {
        if self.drains.looking() && !self.silent {
            // No faster than the path delivers, so that the queue stays empty for flows that measure D a little later.
            return self.rate.max(Rate::from_bps(1));
        }
        let span = if self.is_small() {
            self.base + self.queue
        } else {
            ((self.base + self.target) / 2).max(self.base * 3 / 4)
        };
        // Before the first sample D and Q are zero.
        let span = span.max(Duration::from_micros(1));
        (self.window / span).max(Rate::from_bps(1))
    }
}

/// ∛x, rounded down.
fn cube_root(x: u64) -> u64 {
    let mut root = 0;
    for bit in (0..21).rev() {
        let next: u64 = root | 1 << bit;
        if next * next * next <= x {
            root = next;
        }
    }
    root
}

impl Controller for Forward {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet = packet_size;
        (self.now, self.known_until) = (now, now);
        self.drains = Drains::new(now);
        self.starting = Some(packet_size * INITIAL_PACKETS);
        self.credit = Credit::new(packet_size * INITIAL_PACKETS, now);
        self.set_window();
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.now = self.now.max(packet.at);
        self.in_flight = packet.in_flight;
        self.credit.spend(packet.size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.now = self.now.max(feedback.now);
        self.in_flight = feedback.in_flight;
        self.credit.fill(self.now, self.pace, self.packet);
        self.measure(feedback);
        if feedback.acked.is_empty() && feedback.recovered.is_empty() {
            return;
        }
        self.known_until = self.now - self.path.back_excess();
        let answered = std::mem::take(&mut self.silent);
        self.stale = true;
        if answered || self.is_due() {
            self.update();
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.now = self.now.max(timeout.now);
        self.in_flight = Bytes::ZERO;
        self.silent = true;
        if let Some(window) = &mut self.starting {
            *window = self.packet * INITIAL_PACKETS;
        }
        self.credit = Credit::new(self.packet * PROBE_PACKETS, self.now);
        self.set_window();
    }

    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = in_flight;
        self.credit.fill(self.now, self.pace, self.packet);
        self.drains.pass(self.now, self.smoothed_rtt);
        if self.stale && self.is_due() {
            self.update();
        }
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet = size;
        self.set_window();
    }

    fn window(&self) -> Bytes {
        self.window.max(self.packet)
    }

    fn allowance(&self) -> Allowance {
        if self.paused_until().is_some() {
            return Allowance::budget(Bytes::ZERO);
        }
        let window = Allowance::window(self.allowed() + self.unheard());
        if self.is_small() || self.has(Part::Pacing) {
            window.and_budget(self.credit.get())
        } else {
            window
        }
    }

    fn next_tick(&self) -> Option<Time> {
        let soonest = self.now + TICK;
        if self.stale {
            // Feedback that comes before does it.
            return Some(self.updated + TICK * 4);
        }
        if let Some(until) = self.paused_until() {
            return Some(until.max(soonest));
        }
        let funded = if self.credit.get() < self.packet {
            self.credit.next(self.pace, self.packet)
        } else {
            soonest
        };
        let wanted = self.in_flight + self.packet;
        let allowed = self.allowed();
        if wanted <= allowed + self.unheard() {
            return Some(funded.max(soonest));
        }
        if !self.predicts() {
            return None;
        }
        // When so much is overdue that there is room for a packet.
        let overdue = self.rate.time_for(wanted - allowed);
        let due = self.packet_time + overdue;
        (due <= HORIZON).then(|| (self.known_until + due).max(funded).max(soonest))
    }

    fn recovery(&self) -> Recovery {
        let rack = Recovery::rack();
        Recovery {
            timeout: TimeoutRule {
                // An outage's end is found within a second.
                max: Duration::from_secs(1),
                ..rack.timeout
            },
            // After an outage nothing was lost, as a rule.
            probe_with_new_data: true,
            ..rack
        }
    }

    fn phase(&self) -> Option<Phase> {
        Some(match (self.silent, self.starting, self.drains.draining()) {
            (true, ..) => Phase::Silent,
            (_, Some(_), _) => Phase::SlowStart,
            (.., true) => Phase::Drain,
            _ => Phase::Steady,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("rate_mbps", self.rate.as_mbps());
        record("delay_min_ms", self.base.as_millis_f64());
        record("queue_ms", self.queue.as_millis_f64());
        record("target_ms", self.target.as_millis_f64());
        record("loss_share", self.losses.share() as f64 / 65536.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Path, SIZE};
    use proptest::prelude::*;

    fn forward() -> Path<Forward> {
        Path::new(Forward::new(Config::default()).expect("the default is in range"))
    }

    /// A packet that left at `sent_ms`, came in `there_ms` later by a clock that is `offset_ms` ahead, and whose
    /// acknowledgement took `back_ms`.
    #[derive(Default)]
    struct Sample {
        app_limited: bool,
        sent_ms: u64,
        there_ms: u64,
        back_ms: u64,
        offset_ms: Option<u64>,
    }

    fn hear(controller: &mut Forward, number: u64, sample: &Sample) {
        let now = Time::from_millis(sample.sent_ms + sample.there_ms + sample.back_ms);
        let packet = Departure {
            app_limited: sample.app_limited,
            ..testing::departure(number, Time::from_millis(sample.sent_ms))
        };
        let rtt = now.since(packet.at);
        let acked = Acked {
            packet,
            rtt,
            received_at: sample
                .offset_ms
                .map(|offset| Time::from_millis(sample.sent_ms + sample.there_ms + offset)),
        };
        controller.on_feedback(&Feedback {
            delivered: SIZE * (number + 1),
            ..testing::feedback(now, &[acked])
        });
    }

    /// A flow in the law, at 8 Mbit/s (a packet each millisecond) over 20 ms there and 20 back.
    fn settled(offset_ms: Option<u64>) -> Forward {
        let mut controller = Forward::new(Config::default()).expect("in range");
        controller.on_start(Time::ZERO, SIZE);
        controller.starting = None;
        for number in 0..1000 {
            let sample = Sample {
                sent_ms: number,
                there_ms: 20,
                back_ms: 20,
                offset_ms,
                ..Sample::default()
            };
            hear(&mut controller, number, &sample);
        }
        controller
    }

    fn ms(span: Duration) -> f64 {
        span.as_millis_f64()
    }

    #[test]
    fn the_window_is_the_rate_times_round_trip_and_queue() {
        let controller = settled(None);
        assert_eq!(controller.rate, Rate::from_mbps(8.0));
        assert_eq!(ms(controller.base), 40.0);
        assert_eq!(ms(controller.queue), 0.0);
        // 27 ms × ∛(10/8) = 29.1 ms, and a fifth more while nothing waits: a packet a millisecond.
        assert!((ms(controller.target) - 29.08).abs() < 0.05);
        let window = controller.window.as_f64() / SIZE.as_f64();
        assert!((window - (40.0 + 29.08 * 1.2)).abs() < 0.1, "{window}");
    }

    #[test]
    fn the_target_falls_with_the_cube_root_of_the_rate() {
        let mut controller = settled(None);
        let mut at = |mbps| {
            controller.rate = Rate::from_mbps(mbps);
            ms(controller.target())
        };
        assert!((at(10.0) - 27.0).abs() < 0.05);
        assert!((at(80.0) - 13.5).abs() < 0.05);
        assert!((at(1.25) - 54.0).abs() < 0.05);
        assert!((at(10_000.0) - 2.7).abs() < 0.05);
    }

    #[test]
    fn a_queue_on_the_way_back_is_no_queue() {
        for offset_ms in [0, 1_000_000] {
            let mut controller = settled(Some(offset_ms));
            for number in 1000..1400 {
                let sample = Sample {
                    sent_ms: number,
                    there_ms: 20,
                    back_ms: 70,
                    offset_ms: Some(offset_ms),
                    ..Sample::default()
                };
                hear(&mut controller, number, &sample);
            }
            assert_eq!(ms(controller.queue), 0.0);
            assert_eq!(controller.rate, Rate::from_mbps(8.0));
            // Longer for good, once the shorter way is forgotten.
            for number in 1400..2400 {
                let sample = Sample {
                    sent_ms: number,
                    there_ms: 20,
                    back_ms: 70,
                    offset_ms: Some(offset_ms),
                    ..Sample::default()
                };
                hear(&mut controller, number, &sample);
            }
            assert_eq!(ms(controller.base), 90.0);
        }
    }

    #[test]
    fn without_the_receivers_clock_the_round_trip_has_to_do() {
        let mut controller = settled(None);
        for number in 1000..1400 {
            let sample = Sample {
                sent_ms: number,
                there_ms: 20,
                back_ms: 70,
                offset_ms: None,
                ..Sample::default()
            };
            hear(&mut controller, number, &sample);
        }
        assert_eq!(ms(controller.queue), 50.0);
    }

    #[test]
    fn a_source_that_runs_dry_is_not_taken_for_a_slow_path() {
        let mut controller = settled(None);
        for step in 0..500 {
            let sample = Sample {
                app_limited: true,
                sent_ms: 1000 + step * 10,
                there_ms: 20,
                back_ms: 20,
                offset_ms: None,
            };
            hear(&mut controller, 1000 + step, &sample);
        }
        assert_eq!(controller.rate, Rate::from_mbps(8.0));
    }

    #[test]
    fn losses_are_a_price_on_the_queue_and_cut_no_window() {
        let mut path = forward();
        path.controller.starting = None;
        for round in 0..400u64 {
            path.send(10);
            path.wait_ms(40);
            let numbers = path.in_flight_numbers();
            // One in ten, from the tenth second on.
            let lost = usize::from(round > 200);
            path.feedback(
                numbers[lost..].iter().copied(),
                numbers[..lost].iter().copied(),
                [],
            );
            path.controller.drains = Drains::new(path.now);
        }
        // 10 % lost: a sixteenth of the target is left; D is what it was, and so is nearly all of the window.
        let free = {
            let mut free = path.controller.clone();
            free.losses = LossShare::new();
            free.target()
        };
        let left = ms(path.controller.target) / ms(free);
        assert!((left - 1.0 / 16.0).abs() < 0.005, "{left}");
        assert!(path.controller.window >= path.controller.rate.bytes_in(path.controller.base));
    }

    #[test]
    fn a_drain_lasts_until_the_path_is_bare_and_keeps_the_rate() {
        let mut controller = settled(None);
        let (mut drained, mut number) = (false, 1000);
        // A queue of 60 ms that does not go away, until the flow drains.
        while !drained && number < 10_000 {
            let there_ms = 80;
            let sample = Sample {
                sent_ms: number,
                there_ms,
                back_ms: 20,
                offset_ms: None,
                ..Sample::default()
            };
            hear(&mut controller, number, &sample);
            drained = controller.drains.draining();
            number += 1;
        }
        assert!(drained && number < 2000, "it took until {number}");
        let before = controller.rate;
        assert!(controller.window < before.bytes_in(controller.base) / 5);
        // Bare: one packet in ten milliseconds comes through.
        for step in 0..10 {
            let sample = Sample {
                sent_ms: number + 100 + step * 10,
                there_ms: 20,
                back_ms: 20,
                offset_ms: None,
                ..Sample::default()
            };
            hear(&mut controller, number + step, &sample);
        }
        assert!(!controller.drains.draining());
        assert_eq!(controller.rate, before);
    }

    #[test]
    fn silence_counts_as_delivery_for_a_while() {
        let mut controller = settled(None);
        let window = controller.window;
        let at = controller.now;
        let in_flight = window;
        controller.in_flight = in_flight;
        let room = |controller: &mut Forward, ms: u64| {
            controller.on_tick(at + Duration::from_millis(ms), in_flight);
            controller.unheard()
        };
        assert_eq!(room(&mut controller, 1), Bytes::ZERO);
        assert_eq!(room(&mut controller, 31), SIZE * 30);
        assert!(room(&mut controller, 5000) <= SIZE * 80);
    }

    #[test]
    fn a_timeout_leaves_two_packets_until_anything_is_answered() {
        let mut path = forward();
        path.fill();
        path.wait_ms(40);
        path.ack([0, 1, 2]);
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE * 2);
        path.fill();
        assert_eq!(path.in_flight(), SIZE * 2);
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
        assert!(path.controller.window() > SIZE * 2);
    }

    #[test]
    fn its_state_is_a_few_hundred_bytes() {
        let size = std::mem::size_of::<Forward>();
        assert!(size <= 768, "{size} bytes");
    }

    #[test]
    fn the_cube_root_is_the_cube_root() {
        for x in [0, 1, 7, 8, 26, 27, 1 << 39, u64::from(u32::MAX), 1 << 62] {
            let root = u128::from(cube_root(x));
            assert!(
                root.pow(3) <= x.into() && (root + 1).pow(3) > x.into(),
                "{x}"
            );
        }
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for queue_ms in [0.0, -1.0, f64::NAN, 1e9] {
            let config = Config {
                queue_ms,
                ..Config::default()
            };
            assert_eq!(Forward::new(config).unwrap_err().field, "queue_ms");
        }
    }

    proptest! {
        /// The window is at least a packet and within what was ever delivered; a sender with nothing in flight may
        /// send or is woken to; probes are finite; and the same history gives the same windows.
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(
            steps in testing::steps(),
            queue_ms in 1.0..1000.0f64,
            without in prop::option::of(prop::sample::select(Part::ALL.map(|(_, part)| part).to_vec())),
        ) {
            let windows = || {
                let config = Config { queue_ms, without };
                let mut path = Path::new(Forward::new(config).expect("in range"));
                let mut windows = Vec::new();
                let mut sent = 0;
                testing::run(&mut path, &steps, |path| {
                    let controller = &path.controller;
                    sent = path.in_flight_numbers().last().map_or(sent, |last| last + 1).max(sent);
                    assert!(controller.window() >= SIZE);
                    assert!(controller.window() <= SIZE * (sent + 100) * 4, "{:?}", controller.window());
                    // Who has something in flight will hear of it.
                    let mut idle = controller.clone();
                    idle.on_tick(idle.now, Bytes::ZERO);
                    if idle.allowance().sendable(Bytes::ZERO) < SIZE {
                        let tick = idle.next_tick().expect("it is woken");
                        assert!(tick > idle.now);
                    }
                    controller.probe(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
                    windows.push(controller.window());
                });
                // Woken until it may send: within the time that a packet takes at the least pace.
                let mut free = path.controller.clone();
                free.on_tick(free.now, Bytes::ZERO);
                let mut ticks = 0;
                while free.allowance().sendable(Bytes::ZERO) < SIZE {
                    let at = free.next_tick().expect("it is woken");
                    free.on_tick(at, Bytes::ZERO);
                    ticks += 1;
                    assert!(ticks < 100, "it never may send");
                }
                windows
            };
            prop_assert_eq!(windows(), windows());
        }
    }
}
