//! The sending end of a flow: ledger, controller and pacer behind one sans-IO interface.
//!
//! A transport, real or simulated, does four things: it asks [`Sender::poll_transmit`] for packets
//! until there is none, hands acknowledgements to [`Sender::on_ack`], and calls
//! [`Sender::on_timer`] at [`Sender::next_timer`]. Nothing here knows which clock is ticking.

use std::cell::Cell;
use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::controller::{Controller, Feedback, Stamp, Timeout};
use crate::ecn::Ecn;
use crate::flight::{Ledger, Revealed};
use crate::pacer::Pacer;
use crate::random;
use crate::receiver::{Ack, DataRange, Received};
use crate::recovery::Recovery;
use crate::resend::Resend;
use crate::rtt::RttEstimate;
use crate::units::{Bytes, Duration, Rate, Time};

/// A tail probe waits two smoothed round trips (RFC 8985 §7.2), and never less than this.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(10);

/// After a pause, this many packets may leave back to back where the algorithm states no burst: an initial window
/// (RFC 9002 §7.7).
const RESTART_BURST_PACKETS: u64 = 10;

/// On average one packet number in this many is skipped, or one in half a flight if that is more.
/// Lies then do not pay, and the gaps take little room in acknowledgements.
const SKIP_EVERY: u64 = 64;

/// An acknowledgement that cannot be true. It was ignored entirely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FalseAck {
    /// It names a packet that has not left yet.
    #[error("acknowledges packet {0}, which was never sent")]
    NeverSent(u64),
    /// It names a number that was skipped on purpose: the receiver acknowledges a packet that it
    /// did not receive.
    #[error("acknowledges packet {0}, whose number was skipped")]
    Skipped(u64),
}

/// Packet numbers skipped at random, to catch a receiver that acknowledges packets it has not
/// received (RFC 9000 §21.4, against optimistic acknowledgements).
#[derive(Debug)]
struct Skipping {
    random: ChaCha8Rng,
    next: u64,
    /// The numbers skipped lately, ascending.
    skipped: VecDeque<u64>,
}

impl Skipping {
    /// How many are remembered.
    const KEPT: usize = 1024;

    fn new(seed: u64) -> Self {
        let mut random = random::stream(seed, "skip", 0);
        let next = random.random_range(1..=2 * SKIP_EVERY);
        Skipping {
            random,
            next,
            skipped: VecDeque::new(),
        }
    }

    fn note(&mut self, number: u64, in_flight_packets: u64) {
        if self.skipped.len() == Skipping::KEPT {
            self.skipped.pop_front();
        }
        self.skipped.push_back(number);
        let gap = (2 * SKIP_EVERY).max(in_flight_packets);
        self.next = number + self.random.random_range(1..=gap);
    }

    /// A skipped number that the acknowledgement names, if it names one.
    fn caught(&self, ack: &Ack) -> Option<u64> {
        ack.ranges().find_map(|range| {
            let at = self.skipped.partition_point(|&number| number < range.first);
            self.skipped
                .get(at)
                .copied()
                .filter(|&number| number <= range.last)
        })
    }
}

/// A packet for the transport to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its number: never used before.
    pub number: u64,
    /// Its size (IP).
    pub size: Bytes,
    /// The data it carries.
    pub data: DataRange,
    /// Whether that data left before, in a packet since lost.
    pub retransmission: bool,
    /// The algorithm's message from its sender half to its receiver half.
    pub stamp: Option<Stamp>,
}

/// A sender's counts, independent of its algorithm's model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Of the packets sent, retransmissions.
    pub retransmitted: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets declared lost that arrived after all.
    pub recovered: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail probes.
    pub probes: u64,
    /// Packets acknowledged that bore a congestion mark.
    pub marked: u64,
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Counters {
            sent: self.sent + other.sent,
            retransmitted: self.retransmitted + other.retransmitted,
            lost: self.lost + other.lost,
            recovered: self.recovered + other.recovered,
            timeouts: self.timeouts + other.timeouts,
            probes: self.probes + other.probes,
            marked: self.marked + other.marked,
        }
    }
}

/// The data to send: a stream of bytes, some of them available now.
#[derive(Clone, Copy, Debug)]
struct Source {
    next: u64,
    /// Bytes beyond `next` that may leave; `None` for a source that never runs dry.
    available: Option<u64>,
}

impl Source {
    fn take(&mut self, size: Bytes) -> Option<DataRange> {
        let len = match &mut self.available {
            None => size.get(),
            Some(0) => return None,
            Some(available) => {
                let len = size.get().min(*available);
                *available -= len;
                len
            }
        };
        let start = self.next;
        self.next += len;
        Some(DataRange { start, len })
    }

    fn is_dry(&self) -> bool {
        self.available == Some(0)
    }
}

/// The sending end of one flow.
#[derive(Debug)]
pub struct Sender<C = Box<dyn Controller>> {
    controller: C,
    state: State,
}

/// Storage for a sender's controller: a box, or one of several boxes. A sender asks its controller
/// a dozen questions for each packet. This code is compiled for each known type of controller, so
/// that the compiler can inline the answers.
pub trait Hosted: std::fmt::Debug {
    /// The controller, to look at.
    fn as_dyn(&self) -> &dyn Controller;
    /// The controller, for calls that are rare.
    fn as_dyn_mut(&mut self) -> &mut dyn Controller;
    /// [`Sender::window`].
    fn window(&self) -> Bytes;
    /// [`Sender::poll_transmit`].
    fn poll_transmit(&mut self, state: &mut State, now: Time) -> Option<Transmit>;
    /// [`Sender::on_ack_with_times`].
    ///
    /// # Errors
    /// As that.
    fn on_ack(
        &mut self,
        state: &mut State,
        now: Time,
        ack: &Ack,
        received: &[Received],
        report: Option<&[u8]>,
    ) -> Result<(), FalseAck>;
    /// [`Sender::on_timer`].
    fn on_timer(&mut self, state: &mut State, now: Time);
    /// [`Sender::on_timer_if_due`].
    fn on_timer_if_due(&mut self, state: &mut State, now: Time) -> bool;
    /// [`Sender::next_timer`].
    fn next_timer(&self, state: &State) -> Option<Time>;
}

macro_rules! hosted {
    () => {
        fn as_dyn(&self) -> &dyn Controller {
            &**self
        }
        fn as_dyn_mut(&mut self) -> &mut dyn Controller {
            &mut **self
        }
        #[inline(always)]
        fn window(&self) -> Bytes {
            (**self).window()
        }
        #[inline(always)]
        fn poll_transmit(&mut self, state: &mut State, now: Time) -> Option<Transmit> {
            state.poll_transmit(&mut **self, now)
        }
        #[inline(always)]
        fn on_ack(
            &mut self,
            state: &mut State,
            now: Time,
            ack: &Ack,
            received: &[Received],
            report: Option<&[u8]>,
        ) -> Result<(), FalseAck> {
            state.on_ack(&mut **self, now, ack, received, report)
        }
        #[inline(always)]
        fn on_timer(&mut self, state: &mut State, now: Time) {
            state.on_timer(&mut **self, now);
        }
        #[inline(always)]
        fn on_timer_if_due(&mut self, state: &mut State, now: Time) -> bool {
            state.on_timer_if_due(&mut **self, now)
        }
        #[inline(always)]
        fn next_timer(&self, state: &State) -> Option<Time> {
            state.next_timer(&**self)
        }
    };
}

impl<C: Controller> Hosted for Box<C> {
    hosted!();
}

impl Hosted for Box<dyn Controller> {
    hosted!();
}

/// All of a sender but its controller, which each method takes as an argument.
#[derive(Debug)]
pub struct State {
    recovery: Recovery,
    ecn: Ecn,
    /// The receiver's count of marked packets, as last acknowledged.
    marks: u32,
    ledger: Ledger,
    pacer: Pacer,
    packet_size: Bytes,
    source: Source,
    /// When the source ran dry, unless the window has been full since.
    room_since: Option<Time>,
    /// Whether that was a round trip ago. Such room is filled over a round trip, not at once (RFC 9002 §7.8): the
    /// acknowledgements that would space the packets have passed.
    restarting: bool,
    resend: Resend,
    revealed: Revealed,
    /// The instant from which the retransmission timeout counts: the last acknowledgement of anything new, the
    /// departure that ended an idle time, or the last timeout (RFC 6298 §5).
    silent_since: Time,
    last_departure: Time,
    backoff: u32,
    /// No tail probe is due: one is unanswered, or there is nothing to probe for.
    probed: bool,
    probe_now: bool,
    /// [`own_timer`](State::own_timer), where nothing has happened since that it depends on. An algorithm's ticks mostly
    /// come with nothing else, and ask for it three times.
    own_timer: Cell<Option<Time>>,
    /// Boxed, so that senders that skip no numbers stay small.
    skipping: Option<Box<Skipping>>,
    counters: Counters,
}

impl<C: Hosted> Sender<C> {
    /// A sender whose packets are of `packet_size` (IP), with nothing to send yet.
    ///
    /// # Panics
    /// If `packet_size` is zero.
    pub fn new(mut controller: C, packet_size: Bytes, now: Time) -> Self {
        assert!(!packet_size.is_zero(), "a packet has at least one byte");
        let (recovery, ecn) = (controller.as_dyn().recovery(), controller.as_dyn().ecn());
        controller.as_dyn_mut().on_start(now, packet_size);
        let state = State {
            recovery,
            ecn,
            marks: 0,
            ledger: Ledger::new(recovery.loss),
            pacer: Pacer::default(),
            packet_size,
            source: Source {
                next: 0,
                available: Some(0),
            },
            room_since: None,
            restarting: false,
            resend: Resend::default(),
            revealed: Revealed::default(),
            silent_since: now,
            last_departure: now,
            backoff: 0,
            probed: false,
            probe_now: false,
            own_timer: Cell::new(None),
            skipping: None,
            counters: Counters::default(),
        };
        Sender { controller, state }
    }

    /// Skips packet numbers at random from now on, so that [`on_ack`](Self::on_ack) catches
    /// receivers that acknowledge packets they did not receive. For receivers that may lie.
    pub fn skip_numbers(&mut self, seed: u64) {
        self.state.skipping = Some(Box::new(Skipping::new(seed)));
    }

    /// The transport's handshake took the round trip `rtt`: the first sample of the estimate, from before the first packet
    /// (RFC 6298 §2.2, RFC 9002 §6.2.2).
    pub fn on_handshake(&mut self, now: Time, rtt: Duration) {
        self.state.ledger.on_rtt(rtt);
        self.controller.as_dyn_mut().on_handshake(now, rtt);
    }

    /// The source never runs dry from now on (bulk transfer).
    pub fn offer_bulk(&mut self) {
        self.state.source.available = None;
    }

    /// The source has `bytes` more to send. No effect on a bulk source.
    pub fn offer(&mut self, bytes: Bytes) {
        if let Some(available) = &mut self.state.source.available {
            *available = available.saturating_add(bytes.get());
        }
    }

    /// Stops the source for good: nothing more is sent, lost or not. Packets in flight are still
    /// acknowledged.
    pub fn stop(&mut self) {
        let state = &mut self.state;
        state.source.available = Some(0);
        state.resend.clear();
        state.recovery.retransmit = false;
        state.recovery.tail_probe = false;
        state.probe_now = false;
        state.own_timer.set(None);
    }

    /// The code point of all its packets.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        self.state.ecn
    }

    /// The next packet to send at `now`, or `None` if the controller, the pacer or an empty source
    /// says to wait.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.controller.poll_transmit(&mut self.state, now)
    }

    /// An acknowledgement arrives. `report` is what the algorithm's receiver half adds to it.
    ///
    /// # Errors
    /// If the acknowledgement cannot be true; then it is ignored entirely.
    #[inline]
    pub fn on_ack(&mut self, now: Time, ack: &Ack, report: Option<&[u8]>) -> Result<(), FalseAck> {
        self.on_ack_with_times(now, ack, &[], report)
    }

    /// As [`on_ack`](Self::on_ack), where the transport also says when packets other than the newest
    /// were received (`received`, by ascending number).
    ///
    /// # Errors
    /// As [`on_ack`](Self::on_ack).
    #[inline]
    pub fn on_ack_with_times(
        &mut self,
        now: Time,
        ack: &Ack,
        received: &[Received],
        report: Option<&[u8]>,
    ) -> Result<(), FalseAck> {
        self.controller
            .on_ack(&mut self.state, now, ack, received, report)
    }

    /// The instant of [`next_timer`](Self::next_timer) has come, perhaps late.
    pub fn on_timer(&mut self, now: Time) {
        self.controller.on_timer(&mut self.state, now);
    }

    /// Acts as [`on_timer`](Self::on_timer) would if anything is due at `now`, mostly the
    /// controller's tick; returns whether anything was.
    #[inline]
    pub fn on_timer_if_due(&mut self, now: Time) -> bool {
        self.controller.on_timer_if_due(&mut self.state, now)
    }

    /// When to call [`on_timer`](Self::on_timer) next, if at all.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        self.controller.next_timer(&self.state)
    }

    /// The algorithm.
    pub fn controller(&self) -> &dyn Controller {
        self.controller.as_dyn()
    }

    /// The algorithm's window.
    #[inline]
    pub fn window(&self) -> Bytes {
        self.controller.window()
    }

    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> Bytes {
        self.state.ledger.in_flight()
    }

    /// Packets kept in memory, and pieces of lost data that wait to be sent again.
    pub fn remembered(&self) -> usize {
        self.state.ledger.remembered() + self.state.resend.len()
    }

    /// The ledger's round-trip time estimate.
    pub fn rtt(&self) -> &RttEstimate {
        self.state.ledger.rtt()
    }

    /// The news in the last acknowledgement or timer, for recorders.
    pub fn last_revealed(&self) -> &Revealed {
        &self.state.revealed
    }

    /// Whether data waits to leave, new or lost.
    #[inline]
    pub fn has_data(&self) -> bool {
        let state = &self.state;
        !state.source.is_dry() || !state.resend.is_empty()
    }

    /// Whether everything offered has been sent and acknowledged.
    pub fn is_idle(&self) -> bool {
        !self.has_data() && self.in_flight().is_zero()
    }
}

/// As in [`Sender`], with the algorithm given.
impl State {
    #[inline]
    fn poll_transmit(
        &mut self,
        controller: &mut (impl Controller + ?Sized),
        now: Time,
    ) -> Option<Transmit> {
        let size = self.packet_size;
        if self.probe_now {
            return self.transmit_probe(controller, now);
        }
        if controller.allowance().sendable(self.ledger.in_flight()) < size {
            self.room_since = None;
            self.restarting = false;
            return None;
        }
        self.restarting = self.restarts(now);
        let rate = self.pacing_rate(controller);
        if rate.is_some() && !self.pacer.is_ready(now) {
            return None;
        }
        let Some((data, retransmission)) = self.next_data() else {
            self.ledger.set_app_limited();
            self.room_since.get_or_insert(now);
            return None;
        };
        if let Some(rate) = rate {
            let restart_burst = self.restarting.then(|| size * RESTART_BURST_PACKETS);
            let burst = controller.send_quantum().or(restart_burst);
            self.pacer.on_sent(now, size, rate, burst);
        }
        Some(self.transmit(controller, now, data, retransmission))
    }

    /// Whether the room that the source left in the window is a round trip old.
    #[inline]
    fn restarts(&self, now: Time) -> bool {
        self.room_since.is_some_and(|since| {
            let round_trip = self.ledger.rtt().smoothed();
            !round_trip.is_zero() && now.since(since) >= round_trip
        })
    }

    /// The algorithm's rate. In a restart, an algorithm with a window alone has none, and the window leaves over a
    /// round trip.
    #[inline]
    fn pacing_rate(&self, controller: &(impl Controller + ?Sized)) -> Option<Rate> {
        let stated = controller.pacing_rate();
        if stated.is_some() || !self.restarting {
            return stated;
        }
        let allowance = controller.allowance();
        let window = allowance.most_in_flight()?;
        (allowance.most_more().is_none()).then(|| window / self.ledger.rtt().smoothed())
    }

    /// The data of the next packet, and whether that data left before.
    #[inline(always)]
    fn next_data(&mut self) -> Option<(DataRange, bool)> {
        if self.backoff > 0
            && self.recovery.probe_with_new_data
            && let Some(data) = self.source.take(self.packet_size)
        {
            return Some((data, false));
        }
        match self.resend.pop() {
            Some(data) => Some((data, true)),
            None => self.source.take(self.packet_size).map(|data| (data, false)),
        }
    }

    #[inline(always)]
    fn transmit(
        &mut self,
        controller: &mut (impl Controller + ?Sized),
        now: Time,
        data: DataRange,
        retransmission: bool,
    ) -> Transmit {
        if self.ledger.in_flight_packets() == 0 {
            self.silent_since = now;
        }
        self.last_departure = now;
        self.own_timer.set(None);
        if let Some(skipping) = &mut self.skipping
            && skipping.next <= self.ledger.next_number()
        {
            let number = self.ledger.skip();
            skipping.note(number, self.ledger.in_flight_packets());
        }
        let window = controller.window();
        let packet = self.ledger.on_sent(now, self.packet_size, window, data);
        controller.on_sent(&packet);
        self.counters.sent += 1;
        self.counters.retransmitted += u64::from(retransmission);
        Transmit {
            number: packet.number,
            size: packet.size,
            data,
            retransmission,
            stamp: controller.stamp(&packet),
        }
    }

    /// Sends something that draws an acknowledgement even if the window is full: new data if there is any, else the
    /// newest data in flight once more (RFC 8985 §7.3).
    #[cold]
    fn transmit_probe(
        &mut self,
        controller: &mut (impl Controller + ?Sized),
        now: Time,
    ) -> Option<Transmit> {
        self.probe_now = false;
        let (data, again) = match self.source.take(self.packet_size) {
            Some(data) => (data, false),
            None => (self.ledger.tail()?, true),
        };
        self.counters.probes += 1;
        // The timeout counts from the probe, so that the probe has a round trip to be answered in.
        self.silent_since = now;
        Some(self.transmit(controller, now, data, again))
    }

    #[inline]
    fn on_ack(
        &mut self,
        controller: &mut (impl Controller + ?Sized),
        now: Time,
        ack: &Ack,
        received: &[Received],
        report: Option<&[u8]>,
    ) -> Result<(), FalseAck> {
        let in_flight_before = self.ledger.in_flight();
        self.revealed.clear();
        if ack.newest() >= self.ledger.next_number() {
            return Err(FalseAck::NeverSent(ack.newest()));
        }
        if let Some(skipping) = &self.skipping
            && let Some(number) = skipping.caught(ack)
        {
            return Err(FalseAck::Skipped(number));
        }
        self.own_timer.set(None);
        self.ledger.on_ack(now, ack, received, &mut self.revealed);
        let marked = if ack.marks == self.marks {
            0
        } else {
            self.newly_marked(ack.marks)
        };
        if !self.revealed.acked.is_empty() || !self.revealed.recovered.is_empty() {
            self.silent_since = now;
            self.backoff = 0;
            self.probed = false;
            self.probe_now = false;
        } else if self.revealed.is_empty() && report.is_none() {
            return Ok(());
        }
        self.feed_back(controller, now, in_flight_before, report, marked);
        Ok(())
    }

    fn on_timer(&mut self, controller: &mut (impl Controller + ?Sized), now: Time) {
        self.revealed.clear();
        if self.own_timer() <= now {
            self.on_own_timer(controller, now);
        }
        if self.tick_at(controller).is_some_and(|at| at <= now) {
            controller.on_tick(now, self.ledger.in_flight());
        }
    }

    /// Losses, timeouts and probes.
    #[cold]
    fn on_own_timer(&mut self, controller: &mut (impl Controller + ?Sized), now: Time) {
        self.own_timer.set(None);
        if self.ledger.next_loss().is_some_and(|at| at <= now) {
            let in_flight_before = self.ledger.in_flight();
            self.ledger.on_loss_timer(now, &mut self.revealed);
            if !self.revealed.is_empty() {
                self.feed_back(controller, now, in_flight_before, None, 0);
            }
        }
        if self.timeout_at().is_some_and(|at| at <= now) {
            self.on_timeout(controller, now);
        } else if self.probe_at().is_some_and(|at| at <= now) {
            self.probed = true;
            self.probe_now = true;
        }
    }

    #[inline]
    fn on_timer_if_due(&mut self, controller: &mut (impl Controller + ?Sized), now: Time) -> bool {
        let own_is_due = self.own_timer() <= now;
        let tick = self.tick_at(controller);
        if !own_is_due && tick.is_some_and(|at| at <= now) {
            self.revealed.clear();
            controller.on_tick(now, self.ledger.in_flight());
            return true;
        }
        let due = own_is_due || self.release_at(controller).is_some_and(|at| at <= now);
        if due {
            self.on_timer(controller, now);
        }
        due
    }

    #[inline]
    fn next_timer(&self, controller: &(impl Controller + ?Sized)) -> Option<Time> {
        let never = Time::MAX;
        let or_never = |timer: Option<Time>| timer.unwrap_or(never);
        let next = self
            .own_timer()
            .min(or_never(self.tick_at(controller)))
            .min(or_never(self.release_at(controller)));
        (next < never).then_some(next)
    }

    /// When a loss, a timeout or a probe is due, independent of the algorithm; otherwise
    /// [`Time::MAX`].
    #[inline]
    fn own_timer(&self) -> Time {
        let or_never = |timer: Option<Time>| timer.unwrap_or(Time::MAX);
        self.own_timer.get().unwrap_or_else(|| {
            let due = or_never(self.ledger.next_loss())
                .min(or_never(self.timeout_at()))
                .min(or_never(self.probe_at()));
            self.own_timer.set(Some(due));
            due
        })
    }

    /// How many of the packets that an acknowledgement newly reveals as arrived bore a mark, given the receiver's
    /// running count: never more than were revealed, whatever the receiver claims. A count lower than the last one
    /// belongs to an acknowledgement that another one overtook.
    #[cold]
    fn newly_marked(&mut self, marks: u32) -> usize {
        let news = marks.wrapping_sub(self.marks);
        if news > u32::MAX / 2 || self.ecn == Ecn::NotEct {
            return 0;
        }
        self.marks = marks;
        let arrived = self.revealed.acked.len() + self.revealed.recovered.len();
        let marked = arrived.min(news as usize);
        self.counters.marked += marked as u64;
        marked
    }

    #[inline]
    fn feed_back(
        &mut self,
        controller: &mut (impl Controller + ?Sized),
        now: Time,
        in_flight_before: Bytes,
        report: Option<&[u8]>,
        marked: usize,
    ) {
        if !self.revealed.lost.is_empty() || !self.revealed.recovered.is_empty() {
            self.note_losses();
        }
        let rtt = self.ledger.rtt();
        controller.on_feedback(&Feedback {
            now,
            acked: &self.revealed.acked,
            lost: &self.revealed.lost,
            recovered: &self.revealed.recovered,
            marked,
            report,
            in_flight_before,
            in_flight: self.ledger.in_flight(),
            delivered: self.ledger.delivered(),
            smoothed_rtt: rtt.smoothed(),
            min_rtt: rtt.least().unwrap_or_default(),
        });
    }

    #[cold]
    fn note_losses(&mut self) {
        self.counters.lost += self.revealed.lost.len() as u64;
        self.counters.recovered += self.revealed.recovered.len() as u64;
        for data in &self.revealed.recovered_data {
            // It arrived after all: there is no need to send it again, if that has not happened.
            self.resend.cancel(data);
        }
        self.queue_lost_data();
    }

    fn queue_lost_data(&mut self) {
        if self.recovery.retransmit {
            self.revealed
                .lost_data
                .iter()
                .for_each(|data| self.resend.push(*data));
        }
    }

    #[cold]
    fn on_timeout(&mut self, controller: &mut (impl Controller + ?Sized), now: Time) {
        self.backoff += 1;
        self.counters.timeouts += 1;
        self.silent_since = now;
        self.probe_now = false;
        // The losses that the loss timer revealed at this instant have been reported to the
        // controller; they stay in `revealed` for recorders.
        let already_reported = self.revealed.lost.len();
        self.revealed.lost_data.clear();
        self.ledger.on_timeout(now, &mut self.revealed);
        let presumed_lost = &self.revealed.lost[already_reported..];
        self.counters.lost += presumed_lost.len() as u64;
        controller.on_timeout(&Timeout {
            now,
            presumed_lost,
            backoff: self.backoff,
        });
        self.queue_lost_data();
    }

    #[inline]
    fn timeout_at(&self) -> Option<Time> {
        if self.ledger.in_flight_packets() == 0 {
            return None;
        }
        let rule = &self.recovery.timeout;
        Some(self.silent_since + self.ledger.rtt().timeout(rule, self.backoff))
    }

    #[inline]
    fn probe_at(&self) -> Option<Time> {
        let armed = self.recovery.tail_probe
            && !self.probed
            && self.backoff == 0
            && self.ledger.in_flight_packets() > 0
            && self.ledger.next_loss().is_none()
            && self.ledger.rtt().least().is_some();
        let wait = (self.ledger.rtt().smoothed() * 2).max(MIN_PROBE_TIMEOUT);
        armed.then(|| self.last_departure.max(self.silent_since) + wait)
    }

    /// The controller's tick; an idle flow asks for none.
    #[inline]
    fn tick_at(&self, controller: &(impl Controller + ?Sized)) -> Option<Time> {
        let tick = controller.next_tick()?;
        let idle =
            self.source.is_dry() && self.resend.is_empty() && self.ledger.in_flight_packets() == 0;
        (!idle).then_some(tick)
    }

    /// When the pacer lets the next packet go, if nothing but the pacer holds it back.
    #[inline]
    fn release_at(&self, controller: &(impl Controller + ?Sized)) -> Option<Time> {
        self.pacing_rate(controller)?;
        let ready = !(self.source.is_dry() && self.resend.is_empty())
            && controller.allowance().sendable(self.ledger.in_flight()) >= self.packet_size;
        ready.then(|| self.pacer.next())
    }
}
