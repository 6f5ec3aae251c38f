//! A controller of the core behind the callbacks of a QUIC stack, sans-IO.
//!
//! The core's own [`Sender`](verus_core::sender::Sender) has a ledger; a QUIC stack keeps its own
//! and reports less to its controller. [`Bridge`] rebuilds the guarantees of the core's
//! [`Controller`]:
//!
//! - **Departures.** A batch is split into packets. Packets of at most [`SMALL`] bytes may be bare
//!   acknowledgements, which no congestion control counts; they are not reported to the controller.
//! - **Samples.** The window, the flight and the bytes delivered at a packet's departure come from
//!   the [`Ring`]; its round-trip time is measured.
//! - **One event.** Acknowledgements and the losses that they reveal come in separate callbacks at
//!   one instant. They are kept until the next event, and then reported together.
//! - **Epochs.** Every callback closes the epochs that are due; between callbacks the caller of
//!   [`tick`](Bridge::tick) does.
//! - **The limit.** A stack asks how much may be in flight; the core says how much may leave now.
//!
//! Nothing here can stop a connection for good. While [`tick`](Bridge::tick) is not called, two
//! packets may always be in flight. Where it is, one may leave after two ticks without an event.
//! With packets in flight, a stack's probes exceed the limit, but they may be far between. An
//! acknowledgement that a blackout delayed by 20 s is a round-trip time of 20 s to QUIC, and
//! nothing is lost for three of them. quinn does not even acknowledge while it may not send. So two
//! packets may leave after a second without an event, and again after twice the time.

use verus_core::rtt::RttEstimate;
use verus_core::{Acked, Bytes, Controller, Departure, Duration, Feedback, Time, Timeout};

use crate::events::{Counters, Event, Log};
use crate::qlog::{Qlog, Trigger};
use crate::ring::{Ring, Smalls};

/// A packet no larger may be a bare acknowledgement: those of quinn have about 50 bytes, and 30 more
/// where ten packets are missing.
pub(crate) const SMALL: u64 = 100;
/// Before the first acknowledgement at least this many packets may be in flight (RFC 9002 §7.2); otherwise a handshake
/// would take a round trip for each of its packets.
const INITIAL_PACKETS: u64 = 10;
/// The least that may be in flight where nothing calls [`Bridge::tick`].
const MINIMUM_PACKETS: u64 = 2;
/// The smoothed round trip, as a multiple of the least, beyond which the stack's pace is too slow.
const SLOW_PACE: u64 = 4;
/// After this many ticks in which nothing happened, something must leave.
const QUIET_TICKS: u32 = 2;
/// A tick's length, for a controller that asks for none.
const QUIET: Duration = Duration::from_millis(5);
/// After this long without any callback, no epoch matters any more, and packets in flight are
/// stuck.
const DORMANT: Duration = Duration::from_secs(1);
/// Packets that may then leave, as many as a stack's own probes (RFC 9002 §6.2.4), first at once,
/// then after intervals that double up to [`LONGEST_RESCUE`].
const RESCUE_PACKETS: u64 = 2;
const LONGEST_RESCUE: Duration = Duration::from_secs(8);
/// A batch's packet is forgotten this long after its departure, plus [`STALE_RTTS`] round trips,
/// once later packets are acknowledged. It was a bare acknowledgement or belonged to discarded
/// keys: QUIC declares all others lost after at most 3 round trips.
const STALE_AFTER: Duration = Duration::from_secs(1);
const STALE_RTTS: u64 = 8;

/// Acknowledgements and losses not yet reported to the controller.
#[derive(Debug, Default)]
struct Pending {
    /// When; `None` while there is nothing to tell.
    at: Option<Time>,
    acked: Vec<Acked>,
    lost: Vec<Departure>,
    marked: usize,
    in_flight_before: u64,
}

/// A controller and the records that a QUIC stack does not keep for it.
#[derive(Debug)]
pub(crate) struct Bridge {
    controller: Box<dyn Controller>,
    ring: Ring,
    smalls: Smalls,
    packet_size: u64,
    in_flight: u64,
    delivered: u64,
    delivered_at: Time,
    /// Packets up to here belong to a time when the application had nothing to send.
    app_limited_until: u64,
    next_number: u64,
    /// The stack's number of the last reported packet.
    last_number: Option<u64>,
    /// When numbers last began again. A restart means another key space, so earlier departures
    /// belong to the handshake.
    handshake: Time,
    rtt: RttEstimate,
    /// The stack's smoothed round trip, of the newest packet of each acknowledgement (RFC 9002 §5.1):
    /// the others waited at the receiver. Zero before the first.
    stack_rtt: Duration,
    pending: Pending,
    /// Whether anything has been acknowledged.
    has_acks: bool,
    /// When the newest packet acknowledged left, or that which ended an idle time.
    flight_since: Time,
    /// The last size that path discovery raised the packets to: the packet that proved it is
    /// acknowledged without ever having been announced.
    proved_size: Option<u64>,
    backoff: u32,
    /// A driver calls `tick`.
    driven: bool,
    /// The application has closed the connection.
    closed: bool,
    quiet_ticks: u32,
    last_event: Time,
    /// When to rescue packets that are stuck, and the next wait.
    next_rescue: Time,
    rescue_after: Duration,
    limit: u64,
    /// Whether the limit follows from a budget, for which a driver wakes the stack.
    is_paced_by_budget: bool,
    counters: Counters,
    log: Option<Log>,
    /// A log, and the first packet that it knows.
    qlog: Option<(Box<Qlog>, u64)>,
}

impl Bridge {
    /// Hosts a fresh controller, for packets of `packet_size` bytes.
    pub(crate) fn new(mut controller: Box<dyn Controller>, now: Time, packet_size: u16) -> Self {
        let packet_size = u64::from(packet_size).max(1);
        controller.on_start(now, Bytes::new(packet_size));
        let mut bridge = Bridge {
            controller,
            ring: Ring::new(),
            smalls: Smalls::default(),
            packet_size,
            in_flight: 0,
            delivered: 0,
            delivered_at: now,
            app_limited_until: 0,
            next_number: 0,
            last_number: None,
            handshake: now,
            rtt: RttEstimate::default(),
            stack_rtt: Duration::ZERO,
            pending: Pending::default(),
            has_acks: false,
            flight_since: now,
            proved_size: None,
            backoff: 0,
            driven: false,
            closed: false,
            quiet_ticks: 0,
            last_event: now,
            next_rescue: now,
            rescue_after: DORMANT,
            limit: 0,
            is_paced_by_budget: false,
            counters: Counters::default(),
            log: None,
            qlog: None,
        };
        bridge.set_limit();
        bridge
    }

    /// A batch of `bytes` left, the last packet of which the stack numbers `last_number`.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, last_number: u64) {
        self.flush();
        self.tick_if(|due| due <= now, now);
        self.note_event(now);
        let window = self.controller.window();
        let packets = self.packets_in(bytes, last_number);
        if self.last_number.is_some_and(|last| last >= last_number) {
            self.handshake = now;
        }
        self.last_number = Some(last_number);
        if let Some(log) = &mut self.log {
            log.push(Event::Sent {
                at: now,
                bytes,
                packets,
                last_number,
                window,
                in_flight: Bytes::new(self.in_flight),
            });
        }
        if bytes <= SMALL {
            self.counters.small += 1;
            self.smalls.push(now, self.next_number, window);
            return;
        }
        if self.in_flight == 0 {
            self.delivered_at = now;
            self.flight_since = now;
        }
        let size = if packets == 1 {
            bytes
        } else {
            bytes
                .div_ceil(packets)
                .max(self.packet_size.min((bytes - 1) / (packets - 1)))
        };
        let mut batch = Ring::batch(now, self.next_number, packets, size, bytes);
        batch.window = window;
        batch.in_flight = self.in_flight;
        batch.delivered = self.delivered;
        batch.delivered_at = self.delivered_at;
        batch.sending = now.since(self.flight_since);
        batch.app_limited = self.delivered < self.app_limited_until;
        self.ring.push(batch);
        let mut rest = bytes;
        for _ in 0..packets {
            let size = size.min(rest);
            rest -= size;
            self.in_flight += size;
            self.controller.on_sent(&Departure {
                number: self.next_number,
                at: now,
                size: Bytes::new(size),
                window,
                in_flight: Bytes::new(self.in_flight),
                delivered: Bytes::new(self.delivered),
                delivered_at: self.delivered_at,
                sending: batch.sending,
                app_limited: batch.app_limited,
            });
            if let Some((qlog, _)) = &mut self.qlog {
                qlog.sent(self.last_event, self.next_number, Bytes::new(size));
            }
            self.next_number += 1;
        }
        self.counters.sent += packets;
        self.set_limit();
        self.qlog_state();
    }

    /// The number of packets in a batch of `bytes`. All but the last have one size, at most the
    /// path's. If the path's size divides `bytes`, it is their size. Otherwise the packet numbers
    /// count, though some may have been skipped or belong to packets that were not announced.
    fn packets_in(&self, bytes: u64, last_number: u64) -> u64 {
        let fewest = bytes.div_ceil(self.packet_size).max(1);
        if fewest == 1 || bytes.is_multiple_of(self.packet_size) {
            return fewest;
        }
        let by_number = self
            .last_number
            .and_then(|last| last_number.checked_sub(last))
            .unwrap_or(fewest);
        if by_number > fewest && by_number <= 2 * fewest {
            by_number
        } else {
            fewest
        }
    }

    /// A packet of `bytes` that left at `sent` is acknowledged; `sent` is `None` where it left before
    /// this controller's time.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: Time, sent: Option<Time>, bytes: u64, app_limited: bool) {
        if self.pending.at.is_some() {
            self.flush();
        }
        if self.pending.acked.is_empty() {
            // Epochs that ended before this instant end before its news.
            self.tick_if(|due| due < now, now);
            self.pending.in_flight_before = self.in_flight;
        }
        let Some(sent) = sent else {
            self.counters.foreign += 1;
            return;
        };
        let proved = self.proved_size.take();
        let rtt = now.since(sent);
        // A probe for larger packets may leave at the instant of a batch, and is larger than all in it.
        let probe =
            proved == Some(bytes) && self.ring.packet_size(sent).is_some_and(|size| size < bytes);
        let packet = (!probe).then(|| self.ring.acknowledge(sent, bytes));
        let Some(mut packet) = packet.flatten() else {
            return self.on_ack_of_other(sent, bytes, rtt, proved);
        };
        packet.app_limited |= app_limited;
        self.rtt.update(rtt);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        self.flight_since = self.flight_since.max(sent);
        self.counters.acked += 1;
        self.pending.acked.push(Acked {
            packet,
            rtt,
            received_at: None,
        });
        if let Some(log) = &mut self.log {
            log.push(Event::Acked {
                at: now,
                sent,
                bytes,
                window: packet.window,
            });
        }
    }

    /// An acknowledgement that no announced packet explains.
    #[cold]
    fn on_ack_of_other(&mut self, sent: Time, bytes: u64, rtt: Duration, proved: Option<u64>) {
        if proved == Some(bytes) {
            self.counters.unannounced += 1;
        } else if self.smalls.find(sent, bytes).is_some() {
            self.counters.small_acked += 1;
            self.delivered += bytes;
        } else {
            self.counters.misses += 1;
            return;
        }
        self.rtt.update(rtt);
    }

    /// Ends the report of one acknowledgement; `in_flight` is the stack's present count of bytes.
    pub(crate) fn on_end_acks(&mut self, now: Time, in_flight: u64, app_limited: bool) {
        self.note_event(now);
        self.rescue_after = DORMANT;
        self.has_acks = true;
        self.backoff = 0;
        self.in_flight = in_flight;
        if app_limited {
            self.app_limited_until = self.delivered + in_flight;
        }
        self.pending.at = Some(now);
    }

    /// `bytes` of the packets that left up to `sent` are lost; zero means that a congestion mark
    /// has come back.
    pub(crate) fn on_congestion(&mut self, now: Time, sent: Time, persistent: bool, bytes: u64) {
        if self.pending.at.is_some_and(|at| at != now) {
            self.flush();
        }
        if self.pending.at.is_none() {
            self.tick_if(|due| due < now, now);
            self.pending.in_flight_before = self.in_flight;
        }
        self.note_event(now);
        self.pending.at = Some(now);
        if bytes == 0 {
            self.pending.marked += 1;
            self.counters.marked += 1;
            return;
        }
        // Lost packets must be looked up first: the acknowledgement that reveals them makes the
        // ring forget batches of that age.
        let mut lost = match persistent {
            true => Vec::new(),
            false => std::mem::take(&mut self.pending.lost),
        };
        let before = lost.len();
        let unknown = self.ring.lose(self.handshake, sent, bytes, &mut lost);
        if persistent {
            // Packets acknowledged with the loss are reported first.
            self.flush();
        }
        self.pending.lost = lost;
        if let Some((qlog, first)) = &mut self.qlog {
            let trigger = persistent.then_some(Trigger::Timeout);
            let is_logged = |packet: &&Departure| packet.number >= *first;
            for packet in self.pending.lost[before..].iter().filter(is_logged) {
                qlog.lost(self.last_event, packet.number, trigger);
            }
        }
        if self.pending.lost.len() == before {
            let packet = self.lost_unknown(sent, unknown);
            self.pending.lost.push(packet);
        }
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.counters.lost += (self.pending.lost.len() - before) as u64;
        self.counters.lost_bytes += bytes;
        if let Some(log) = &mut self.log {
            log.push(Event::Lost {
                at: now,
                sent,
                bytes,
                persistent,
            });
        }
        if persistent {
            self.backoff += 1;
            self.counters.persistent += 1;
            self.controller.on_timeout(&Timeout {
                now,
                presumed_lost: &self.pending.lost,
                backoff: self.backoff,
            });
            self.pending.lost.clear();
            self.pending.at = None;
            self.set_limit();
            self.qlog_state();
        }
    }

    /// A lost packet of which nothing is known but when it left.
    #[cold]
    fn lost_unknown(&self, sent: Time, bytes: u64) -> Departure {
        self.smalls.find(sent, bytes).unwrap_or(Departure {
            number: self.next_number.saturating_sub(1),
            at: sent,
            size: Bytes::new(bytes),
            window: self.controller.window(),
            in_flight: Bytes::new(self.in_flight),
            delivered: Bytes::new(self.delivered),
            delivered_at: self.delivered_at,
            sending: Duration::ZERO,
            app_limited: true,
        })
    }

    /// The path takes packets of `size` bytes from now on.
    pub(crate) fn on_packet_size(&mut self, size: u16) {
        self.flush();
        let size = u64::from(size).max(1);
        if size > self.packet_size {
            self.proved_size = Some(size);
        }
        self.packet_size = size;
        self.controller.on_packet_size(Bytes::new(size));
        self.set_limit();
    }

    /// Reports pending events to the controller.
    pub(crate) fn flush(&mut self) {
        let Some(now) = self.pending.at.take() else {
            return;
        };
        // Only an acknowledgement shows that earlier departures are overdue, and its losses are
        // reported with it (RFC 9002 §6.1). A mark or a loss alone shows nothing about other
        // packets.
        if !self.pending.acked.is_empty() {
            let patience = STALE_AFTER + self.rtt.smoothed().max(self.rtt.latest()) * STALE_RTTS;
            self.ring.forget_before(now - patience);
        }
        let pending = &mut self.pending;
        if let Some((qlog, first)) = &mut self.qlog {
            let numbers = pending.acked.iter().map(|acked| acked.packet.number);
            let ce = (self.counters.marked > 0).then_some(self.counters.marked);
            qlog.acknowledged(
                self.last_event,
                numbers.filter(|number| number >= first),
                None,
                ce,
            );
        }
        if !(pending.acked.is_empty() && pending.lost.is_empty() && pending.marked == 0) {
            self.controller.on_feedback(&Feedback {
                now,
                acked: &pending.acked,
                lost: &pending.lost,
                recovered: &[],
                marked: pending.marked,
                report: None,
                in_flight_before: Bytes::new(pending.in_flight_before),
                in_flight: Bytes::new(self.in_flight),
                delivered: Bytes::new(self.delivered),
                smoothed_rtt: self.rtt.smoothed(),
                min_rtt: self.rtt.least().unwrap_or_default(),
            });
            pending.acked.clear();
            pending.lost.clear();
            pending.marked = 0;
        }
        self.tick_if(|due| due <= now, now);
        self.set_limit();
        self.qlog_state();
    }

    /// Writes the changed state to the log. Times of the log ascend: a datagram may have arrived
    /// before the departure of one reported first.
    #[inline]
    fn qlog_state(&mut self) {
        if let Some((qlog, _)) = &mut self.qlog {
            let in_flight = Bytes::new(self.in_flight);
            qlog.state(self.last_event, &*self.controller, in_flight, &self.rtt);
        }
    }

    /// Whether there is something to flush.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.at.is_some()
    }

    /// Time passes. Says whether more may be in flight than before.
    pub(crate) fn tick(&mut self, now: Time) -> bool {
        let before = self.limit;
        self.flush();
        if self.tick_if(|due| due <= now, now) || self.controller.next_tick().is_none() {
            self.quiet_ticks = self.quiet_ticks.saturating_add(1);
            self.set_limit();
        }
        if self.next_rescue().is_some_and(|due| due <= now) {
            self.next_rescue = now + self.rescue_after;
            self.rescue_after = (self.rescue_after * 2).min(LONGEST_RESCUE);
            let room = (RESCUE_PACKETS + 1) * self.packet_size;
            self.limit = self.limit.max(self.in_flight + room);
        }
        self.limit > before
    }

    /// When to rescue packets in flight, if they are stuck by then.
    fn next_rescue(&self) -> Option<Time> {
        (self.in_flight > 0).then(|| self.next_rescue.max(self.last_event + DORMANT))
    }

    #[inline]
    fn tick_if(&mut self, is_due: impl Fn(Time) -> bool, now: Time) -> bool {
        let Some(due) = self.controller.next_tick().filter(|&due| is_due(due)) else {
            return false;
        };
        self.controller.on_tick(now, Bytes::new(self.in_flight));
        self.counters.ticks += 1;
        if let Some(log) = &mut self.log {
            log.push(Event::Tick { due, at: now });
        }
        true
    }

    fn note_event(&mut self, now: Time) {
        self.quiet_ticks = 0;
        self.last_event = self.last_event.max(now);
    }

    /// When to call [`tick`](Self::tick), while anything is under way that epochs matter to.
    pub(crate) fn next_tick(&self, now: Time) -> Option<Time> {
        let open = self.limit > self.packet_size;
        let dormant = now.since(self.last_event) > DORMANT;
        match self.controller.next_tick() {
            _ if open && (self.in_flight == 0 || dormant) => self.next_rescue(),
            // It lets nothing leave, and would never look again.
            None if !open => Some(self.last_event + QUIET * u64::from(self.quiet_ticks + 1)),
            due => due.or_else(|| self.next_rescue()),
        }
    }

    /// The same as seen from the last event.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.next_tick(self.last_event)
    }

    /// Sets the stack's smoothed round trip.
    pub(crate) fn set_stack_rtt(&mut self, smoothed: Duration) {
        self.stack_rtt = smoothed;
    }

    /// Whether a driver calls [`tick`](Self::tick) from now on.
    pub(crate) fn set_driven(&mut self, driven: bool) {
        self.driven = driven;
        self.set_limit();
    }

    /// The connection is closed: only its CONNECTION_CLOSE still leaves, which a full window would
    /// keep back.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.set_limit();
    }

    /// How many bytes may be in flight. A stack sends while one more packet stays below it.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The limit that the stack is given. The stack paces a limit over its smoothed round trip, which
    /// a silence makes seconds, but none beyond 2^32. The controller paces a budget already, so each
    /// packet that may leave then leaves without limit, as many as the stack sends at once. Within a
    /// tick the pace is the stack's, since a batch would be several budgets.
    pub(crate) fn limit_for_stack(&self) -> u64 {
        let is_slow = |least: Duration| self.stack_rtt > (least * SLOW_PACE).max(QUIET);
        let may_leave = self.in_flight + self.packet_size < self.limit;
        if self.is_paced_by_budget && may_leave && self.rtt.least().is_some_and(is_slow) {
            u64::MAX
        } else {
            self.limit
        }
    }

    fn set_limit(&mut self) {
        if self.closed {
            self.limit = u64::MAX;
            return;
        }
        let size = self.packet_size;
        let allowance = self.controller.allowance();
        // A window does not depend on this bridge's count of bytes in flight. The stack sends while
        // it stays below its limit, the core while it stays within its window.
        let window = allowance.most_in_flight();
        let by_window = window.map_or(u64::MAX, |window| window.get() + 1);
        // A budget is a number of packets more than are in flight. Half a packet allows for
        // differences between the bytes that the stack counts and those it reports.
        let by_budget = allowance.most_more().map_or(u64::MAX, |budget| {
            let more = budget.get() / size * size + size / 2;
            self.in_flight.saturating_add(more)
        });
        let mut limit = by_window.min(by_budget);
        if !self.has_acks {
            limit = limit.max(INITIAL_PACKETS * size);
        }
        if !self.driven {
            // No event brings the stack back to a budget that is spent: QUIC's least window (RFC 9002 §7.2).
            limit = limit.max(MINIMUM_PACKETS * size + 1);
        } else if self.quiet_ticks >= QUIET_TICKS {
            // One packet, if nothing is in flight.
            limit = limit.max(size + 1);
        }
        self.is_paced_by_budget = self.driven && by_budget < by_window;
        self.limit = limit;
    }

    /// The controller.
    pub(crate) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Bytes in flight, according to the stack's reports.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes acknowledged.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The counts so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// The estimate of the round-trip time, from acknowledged packets.
    pub(crate) fn rtt(&self) -> &RttEstimate {
        &self.rtt
    }

    /// The size of a full packet.
    pub(crate) fn packet_size(&self) -> u64 {
        self.packet_size
    }

    /// Writes later events to a log.
    #[cfg(feature = "qlog")]
    pub(crate) fn set_qlog(&mut self, qlog: Qlog) {
        self.qlog = Some((Box::new(qlog), self.next_number));
    }

    /// Stops that.
    #[cfg(feature = "qlog")]
    pub(crate) fn take_qlog(&mut self) -> Option<Box<Qlog>> {
        self.qlog.take().map(|(qlog, _)| qlog)
    }

    /// Keeps a log from now on.
    pub(crate) fn set_log(&mut self, log: Option<Log>) {
        self.log = log;
    }

    /// The log so far; it goes on.
    pub(crate) fn take_log(&mut self) -> Vec<Event> {
        self.log.as_mut().map(Log::take).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "hostile.rs"]
mod hostile;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use verus_core::Allowance;
    use verus_senders::{Scheme, catalogue};

    use super::*;

    /// A call of a controller.
    #[derive(Clone, Debug, PartialEq)]
    enum Call {
        Sent(Departure),
        Feedback(Fed),
        Timeout {
            now: Time,
            lost: Vec<Departure>,
            backoff: u32,
        },
        Tick(Time),
        Size(u64),
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Fed {
        now: Time,
        acked: Vec<Acked>,
        lost: Vec<Departure>,
        marked: usize,
        in_flight: (u64, u64),
    }

    /// Records its calls, and answers as its script says.
    #[derive(Debug)]
    struct Script {
        calls: Arc<Mutex<Vec<Call>>>,
        says: Arc<Mutex<Says>>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Says {
        window: u64,
        budget: Option<u64>,
        next_tick: Option<Time>,
    }

    impl Script {
        fn note(&self, call: Call) {
            self.calls.lock().expect("one thread").push(call);
        }

        fn says(&self) -> Says {
            *self.says.lock().expect("one thread")
        }
    }

    impl Controller for Script {
        fn on_sent(&mut self, packet: &Departure) {
            self.note(Call::Sent(*packet));
        }

        fn on_feedback(&mut self, feedback: &Feedback<'_>) {
            assert!(feedback.recovered.is_empty() && feedback.report.is_none());
            self.note(Call::Feedback(Fed {
                now: feedback.now,
                acked: feedback.acked.to_vec(),
                lost: feedback.lost.to_vec(),
                marked: feedback.marked,
                in_flight: (feedback.in_flight_before.get(), feedback.in_flight.get()),
            }));
        }

        fn on_timeout(&mut self, timeout: &Timeout<'_>) {
            self.note(Call::Timeout {
                now: timeout.now,
                lost: timeout.presumed_lost.to_vec(),
                backoff: timeout.backoff,
            });
        }

        fn on_tick(&mut self, now: Time, _in_flight: Bytes) {
            self.note(Call::Tick(now));
            let mut says = self.says.lock().expect("one thread");
            says.next_tick = Some(now + Duration::from_millis(5));
        }

        fn on_packet_size(&mut self, size: Bytes) {
            self.note(Call::Size(size.get()));
        }

        fn window(&self) -> Bytes {
            Bytes::new(self.says().window)
        }

        fn allowance(&self) -> Allowance {
            match self.says().budget {
                Some(budget) => Allowance::budget(Bytes::new(budget)),
                None => Allowance::window(self.window()),
            }
        }

        fn next_tick(&self) -> Option<Time> {
            self.says().next_tick
        }
    }

    const SIZE: u64 = 1000;

    /// A bridge of a script that says a window of 20 packets, and the script's strings.
    struct Stage {
        bridge: Bridge,
        calls: Arc<Mutex<Vec<Call>>>,
        says: Arc<Mutex<Says>>,
    }

    impl Stage {
        fn new() -> Stage {
            let calls = Arc::new(Mutex::new(Vec::new()));
            let says = Arc::new(Mutex::new(Says {
                window: 20 * SIZE,
                budget: None,
                next_tick: None,
            }));
            let script = Script {
                calls: Arc::clone(&calls),
                says: Arc::clone(&says),
            };
            Stage {
                bridge: Bridge::new(Box::new(script), Time::ZERO, SIZE as u16),
                calls,
                says,
            }
        }

        fn calls(&self) -> Vec<Call> {
            std::mem::take(&mut self.calls.lock().expect("one thread"))
        }

        /// The only call since the last.
        fn fed(&self) -> Fed {
            match &self.calls()[..] {
                [Call::Feedback(fed)] => fed.clone(),
                other => panic!("{other:?}"),
            }
        }

        /// A packet leaves at each of these instants, ms.
        fn send(&mut self, at_ms: &[u64]) {
            for (number, &at) in at_ms.iter().enumerate() {
                self.bridge.on_sent(ms(at), SIZE, number as u64);
            }
            self.calls();
        }

        fn say(&mut self, change: impl FnOnce(&mut Says)) {
            change(&mut self.says.lock().expect("one thread"));
            self.bridge.set_limit();
        }

        /// One acknowledgement of one packet.
        fn ack(&mut self, now: Time, sent: Time, bytes: u64, in_flight: u64) {
            self.bridge.on_ack(now, Some(sent), bytes, false);
            self.bridge.on_end_acks(now, in_flight, false);
            self.bridge.flush();
        }
    }

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_batch_is_split_into_packets_and_each_is_found_again() {
        let mut stage = Stage::new();
        stage.bridge.on_sent(ms(1), 2 * SIZE + 400, 7);
        let sent = stage.calls();
        let sizes: Vec<(u64, u64, u64)> = sent
            .iter()
            .map(|call| match call {
                Call::Sent(packet) => (packet.number, packet.size.get(), packet.in_flight.get()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sizes, [(0, 1000, 1000), (1, 1000, 2000), (2, 400, 2400)]);
        stage.say(|says| says.window = 9 * SIZE);
        stage.bridge.on_ack(ms(41), Some(ms(1)), SIZE, false);
        stage.bridge.on_ack(ms(41), Some(ms(1)), SIZE, false);
        stage.bridge.on_end_acks(ms(41), 400, false);
        assert_eq!(stage.calls(), [], "kept until something else happens");
        stage.bridge.flush();
        let fed = stage.fed();
        assert_eq!(fed.in_flight, (2400, 400));
        for (index, acked) in fed.acked.iter().enumerate() {
            assert_eq!(acked.packet.number, index as u64);
            assert_eq!(acked.packet.at, ms(1));
            assert_eq!(acked.packet.window, Bytes::new(20 * SIZE), "as it was then");
            assert_eq!(acked.packet.in_flight.get(), (index as u64 + 1) * SIZE);
            assert_eq!(acked.rtt, Duration::from_millis(40));
        }
        assert_eq!(stage.bridge.counters().misses, 0);
    }

    #[test]
    fn numbers_tell_how_many_packets_a_batch_of_small_ones_has() {
        let mut stage = Stage::new();
        stage.bridge.on_sent(ms(1), SIZE, 10);
        // Five of 700 bytes. By size alone they would be four.
        stage.bridge.on_sent(ms(2), 3500, 15);
        assert_eq!(stage.bridge.counters().sent, 6);
        // Three full packets, and a number that was skipped before them.
        stage.bridge.on_sent(ms(3), 3 * SIZE, 19);
        assert_eq!(stage.bridge.counters().sent, 9);
        // Numbers begin again in another key space.
        stage.bridge.on_sent(ms(4), 1500, 0);
        assert_eq!(stage.bridge.counters().sent, 11);
    }

    #[test]
    fn losses_and_acknowledgements_of_one_instant_are_one_event() {
        let mut stage = Stage::new();
        stage.send(&[1, 2, 3, 4]);
        stage.bridge.on_ack(ms(41), Some(ms(4)), SIZE, false);
        stage.bridge.on_end_acks(ms(41), 3 * SIZE, false);
        stage.bridge.on_congestion(ms(41), ms(2), false, 2 * SIZE);
        stage.bridge.on_congestion(ms(41), ms(4), false, 0);
        stage.bridge.flush();
        let fed = stage.fed();
        assert_eq!((fed.now, fed.acked.len(), fed.marked), (ms(41), 1, 1));
        let lost = fed.lost.iter().map(|packet| (packet.number, packet.at));
        let lost: Vec<_> = lost.collect();
        assert_eq!(
            lost,
            [(0, ms(1)), (1, ms(2))],
            "the oldest, up to the one named"
        );
        assert_eq!(fed.in_flight, (4000, 1000));
        assert_eq!(stage.bridge.in_flight(), SIZE);
    }

    #[test]
    fn a_packet_of_the_handshake_of_which_nothing_is_heard_is_not_taken_for_a_lost_one() {
        let mut stage = Stage::new();
        // One in each key space, under a window of one. The keys of the first are discarded.
        stage.say(|says| says.window = SIZE);
        stage.bridge.on_sent(ms(1), SIZE, 0);
        stage.bridge.on_sent(ms(2), SIZE, 0);
        stage.ack(ms(3), ms(2), SIZE, 0);
        stage.say(|says| says.window = 20 * SIZE);
        stage.bridge.on_sent(ms(4), SIZE, 1);
        stage.bridge.on_sent(ms(5), 2 * SIZE, 3);
        stage.calls();
        stage.bridge.on_ack(ms(45), Some(ms(5)), SIZE, false);
        stage.bridge.on_end_acks(ms(45), 2 * SIZE, false);
        stage.bridge.on_congestion(ms(45), ms(5), false, 2 * SIZE);
        stage.bridge.flush();
        let lost = stage.fed().lost;
        let sent: Vec<Time> = lost.iter().map(|packet| packet.at).collect();
        assert_eq!(sent, [ms(4), ms(5)]);
        assert!(lost.iter().all(|packet| packet.window.get() == 20 * SIZE));
    }

    #[test]
    fn persistent_congestion_is_a_timeout_after_what_was_acknowledged() {
        let mut stage = Stage::new();
        stage.send(&[1, 500, 900]);
        stage.bridge.on_ack(ms(940), Some(ms(900)), SIZE, false);
        stage.bridge.on_end_acks(ms(940), 2 * SIZE, false);
        stage.bridge.on_congestion(ms(940), ms(500), true, 2 * SIZE);
        let calls = stage.calls();
        let [
            Call::Feedback(Fed { acked, lost, .. }),
            Call::Timeout {
                now,
                lost: presumed,
                backoff,
            },
        ] = &calls[..]
        else {
            panic!("{calls:?}");
        };
        assert_eq!((acked.len(), lost.len()), (1, 0));
        assert_eq!((*now, presumed.len(), *backoff), (ms(940), 2, 1));
    }

    #[test]
    fn packets_lost_in_a_long_silence_are_found_though_it_ends_with_an_acknowledgement() {
        let mut stage = Stage::new();
        stage.send(&[1, 2, 9960]);
        stage.bridge.on_ack(ms(10_000), Some(ms(9960)), SIZE, false);
        stage.bridge.on_end_acks(ms(10_000), 2 * SIZE, false);
        stage
            .bridge
            .on_congestion(ms(10_000), ms(2), true, 2 * SIZE);
        let calls = stage.calls();
        let [Call::Feedback(_), Call::Timeout { lost, .. }] = &calls[..] else {
            panic!("{calls:?}");
        };
        let sent: Vec<Time> = lost.iter().map(|packet| packet.at).collect();
        assert_eq!(sent, [ms(1), ms(2)]);
    }

    #[test]
    fn bare_acknowledgements_do_not_count_and_are_no_riddle() {
        let mut stage = Stage::new();
        for at in 1..1000 {
            stage.bridge.on_sent(ms(at), 47, at);
        }
        assert_eq!(stage.calls(), []);
        assert_eq!(stage.bridge.in_flight(), 0);
        // One of them was a message of the application after all.
        stage.ack(ms(1010), ms(970), 47, 0);
        assert_eq!(stage.calls(), []);
        let counters = stage.bridge.counters();
        assert_eq!((counters.small, counters.small_acked), (999, 1));
        assert_eq!(counters.misses, 0);
        // An acknowledgement of a departure at an instant without one is a miss.
        stage.ack(ms(1010), ms(2000), 47, 0);
        assert_eq!(stage.bridge.counters().misses, 1);
    }

    #[test]
    fn a_probe_of_the_paths_packet_size_is_expected_though_it_was_not_announced() {
        let mut stage = Stage::new();
        stage.send(&[1]);
        stage.bridge.on_ack(ms(41), Some(ms(1)), SIZE, false);
        stage.bridge.on_packet_size(1400);
        stage.bridge.on_ack(ms(41), Some(ms(2)), 1400, false);
        stage.bridge.on_end_acks(ms(41), 0, false);
        stage.bridge.flush();
        let counters = stage.bridge.counters();
        assert_eq!((counters.unannounced, counters.misses), (1, 0));
        let calls = stage.calls();
        assert!(matches!(
            &calls[..],
            [Call::Size(1400), Call::Feedback(fed)] if fed.acked.len() == 1
        ));
    }

    #[test]
    fn a_window_leaves_the_stack_what_it_leaves_the_core() {
        let mut stage = Stage::new();
        stage.ack(ms(1), ms(1), SIZE, 0); // the handshake is over
        // The stack sends while in_flight + packet < limit; the core while in_flight + packet ≤ W.
        assert_eq!(stage.bridge.limit(), 20 * SIZE + 1);
        stage.bridge.on_sent(ms(1), 20 * SIZE, 20);
        assert_eq!(stage.bridge.limit(), 20 * SIZE + 1);
        stage.say(|says| says.window = 3 * SIZE);
        assert_eq!(stage.bridge.limit(), 3 * SIZE + 1);
    }

    #[test]
    fn a_budget_is_spent_whatever_is_in_flight() {
        let mut stage = Stage::new();
        stage.ack(ms(1), ms(1), SIZE, 0);
        stage.bridge.set_driven(true);
        stage.bridge.on_sent(ms(1), 10 * SIZE, 10);
        stage.say(|says| says.budget = Some(2 * SIZE + 700));
        // Two whole packets: with 10 in flight a 12th may leave, a 13th not.
        let limit = stage.bridge.limit();
        assert!(11 * SIZE + SIZE < limit && 12 * SIZE + SIZE >= limit);
        // It does so even with 400 bytes that are counted and not reported, or reported and not
        // counted.
        assert!(11 * SIZE + 400 + SIZE < limit && 12 * SIZE - 400 + SIZE >= limit);
        stage.say(|says| says.budget = Some(0));
        assert!(10 * SIZE + SIZE >= stage.bridge.limit());
    }

    #[test]
    fn after_a_silence_a_budget_leaves_at_once() {
        let mut stage = Stage::new();
        stage.bridge.set_driven(true);
        stage.send(&[1, 2]);
        stage.ack(ms(41), ms(1), SIZE, SIZE);
        stage.say(|says| says.budget = Some(2 * SIZE));
        assert_eq!(stage.bridge.limit_for_stack(), stage.bridge.limit());
        // The acknowledgement waited for a later packet, so the stack's round trip is as before.
        stage.ack(ms(4002), ms(2), SIZE, 0);
        assert_eq!(stage.bridge.limit_for_stack(), stage.bridge.limit());
        // The stack would take seconds to pace it over such a smoothed round trip.
        stage.bridge.set_stack_rtt(Duration::from_secs(1));
        assert!(stage.bridge.limit() < 3 * SIZE);
        assert_eq!(stage.bridge.limit_for_stack(), u64::MAX);
        stage.say(|says| says.budget = Some(SIZE - 1));
        assert!(stage.bridge.limit_for_stack() <= SIZE);
    }

    #[test]
    fn round_trips_within_a_tick_leave_the_pace_to_the_stack() {
        let us = |us| Time::ZERO + Duration::from_micros(us);
        let mut stage = Stage::new();
        stage.bridge.set_driven(true);
        stage.send(&[1, 2]);
        stage.ack(us(1050), ms(1), SIZE, SIZE);
        stage.say(|says| says.budget = Some(2 * SIZE));
        // A busy machine: the round trip is a hundred times the least.
        stage.bridge.set_stack_rtt(Duration::from_millis(5));
        assert_eq!(stage.bridge.limit_for_stack(), stage.bridge.limit());
    }

    #[test]
    fn before_the_first_answer_a_handshake_may_leave_whole() {
        let mut stage = Stage::new();
        stage.say(|says| says.window = SIZE);
        assert_eq!(stage.bridge.limit(), 10 * SIZE);
        stage.bridge.on_sent(ms(1), SIZE, 0);
        stage.ack(ms(41), ms(1), SIZE, 0);
        // Without a driver two may be in flight, whatever the window.
        assert_eq!(stage.bridge.limit(), 2 * SIZE + 1);
        stage.bridge.set_driven(true);
        assert_eq!(stage.bridge.limit(), SIZE + 1);
    }

    #[test]
    fn a_closed_budget_lets_a_packet_go_once_nothing_has_happened_for_two_ticks() {
        let mut stage = Stage::new();
        stage.ack(ms(1), ms(1), SIZE, 0);
        let closed = |says: &mut Says| {
            says.budget = Some(0);
            says.next_tick = Some(ms(5));
        };
        stage.say(closed);
        // Without a driver there is no later event.
        assert!(stage.bridge.limit() > SIZE);
        stage.bridge.set_driven(true);
        assert!(stage.bridge.limit() <= SIZE);
        assert_eq!(stage.bridge.next_tick(ms(2)), Some(ms(5)));
        assert!(!stage.bridge.tick(ms(4)), "not due");
        assert!(!stage.bridge.tick(ms(5)));
        assert!(stage.bridge.limit() <= SIZE);
        assert!(stage.bridge.tick(ms(10)));
        assert!(stage.bridge.limit() > SIZE);
        assert_eq!(stage.bridge.next_tick(ms(10)), None, "nothing to drive");
        stage.bridge.on_sent(ms(11), SIZE, 1);
        assert!(SIZE + SIZE >= stage.bridge.limit());
        assert!(stage.bridge.next_tick(ms(11)).is_some());
    }

    #[test]
    fn an_epoch_that_ended_before_news_is_closed_before_it() {
        let mut stage = Stage::new();
        stage.send(&[1, 2]);
        stage.say(|says| says.next_tick = Some(ms(40)));
        stage.ack(ms(41), ms(1), SIZE, SIZE);
        let calls = stage.calls();
        assert!(matches!(calls[..], [Call::Tick(_), Call::Feedback(_)]));
        // An epoch that ends at that instant gets the acknowledgement first.
        stage.say(|says| says.next_tick = Some(ms(42)));
        stage.ack(ms(42), ms(2), SIZE, 0);
        let calls = stage.calls();
        assert!(matches!(calls[..], [Call::Feedback(_), Call::Tick(_)]));
    }

    #[test]
    fn packets_sent_after_the_application_ran_dry_are_marked() {
        let mut stage = Stage::new();
        let app_limited = |stage: &Stage| match stage.calls().last() {
            Some(Call::Sent(packet)) => packet.app_limited,
            other => panic!("{other:?}"),
        };
        stage.bridge.on_sent(ms(1), 2 * SIZE, 2);
        assert!(!app_limited(&stage));
        stage.bridge.on_ack(ms(41), Some(ms(1)), SIZE, true);
        stage.bridge.on_end_acks(ms(41), SIZE, true);
        stage.bridge.on_sent(ms(42), SIZE, 3);
        assert!(app_limited(&stage));
        stage.ack(ms(43), ms(1), SIZE, SIZE);
        stage.bridge.on_sent(ms(44), SIZE, 4);
        assert!(!app_limited(&stage), "all from that time is delivered");
    }

    #[test]
    fn what_is_never_answered_is_forgotten_in_time() {
        let mut stage = Stage::new();
        let mut now = Time::ZERO;
        for number in 0..10_000u64 {
            now += Duration::from_millis(1);
            // A large acknowledgement, which the stack does not count and the peer does not acknowledge, ...
            stage.bridge.on_sent(now, 300, 2 * number);
            now += Duration::from_millis(1);
            // ... and a packet that is acknowledged at once.
            stage.bridge.on_sent(now, SIZE, 2 * number + 1);
            stage.ack(now, now, SIZE, 0);
            assert!(
                stage.bridge.ring.len() < 1100,
                "{}",
                stage.bridge.ring.len()
            );
        }
        assert_eq!(stage.bridge.counters().misses, 0);
    }

    #[test]
    fn a_mark_long_after_the_last_acknowledgement_forgets_nothing() {
        let mut stage = Stage::new();
        stage.send(&[1, 2]);
        stage.ack(ms(3), ms(2), SIZE, SIZE);
        stage.say(|says| says.window = 9 * SIZE);
        stage.calls();
        stage.bridge.on_congestion(ms(2000), ms(2), false, 0);
        stage.ack(ms(2001), ms(1), SIZE, 0);
        assert_eq!(stage.bridge.counters().misses, 0);
        let calls = stage.calls();
        let [Call::Feedback(mark), Call::Feedback(ack)] = &calls[..] else {
            panic!("{calls:?}");
        };
        assert_eq!(mark.marked, 1);
        assert_eq!(ack.acked[0].packet.window.get(), 20 * SIZE);
    }

    // A stack like quinn's, as far as its controller can tell. It keeps packets until they are
    // acknowledged or lost, and sends while one more stays below the limit.

    #[derive(Clone, Copy, Debug)]
    struct Packet {
        at: Time,
        size: u64,
        window: Bytes,
    }

    struct Stack {
        bridge: Bridge,
        now: Time,
        size: u64,
        next: u64,
        flight: Vec<Packet>,
        seen: Vec<String>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u32),
        /// Sends full packets while the limit allows, at most the first number; the last packet is
        /// shorter by the second.
        Send(u8, u16),
        /// Sends packets of one smaller size.
        SendSmaller(u8, u16),
        /// Sends a bare acknowledgement of this many bytes.
        BareAck(u8),
        /// Probes the path with a larger packet, which is not announced.
        ProbeSize,
        /// Which of the oldest in flight are acknowledged.
        Ack(u64, bool),
        /// How many of the oldest are lost.
        Lose(u8, bool),
        Mark,
        /// Keys are discarded: this many of the oldest packets are dropped silently.
        Discard(u8),
        Tick,
        Drive(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0u32..30_000).prop_map(Step::Wait),
            6 => (1u8..30, 0u16..1000).prop_map(|(most, short)| Step::Send(most, short)),
            2 => (1u8..10, 150u16..900).prop_map(|(most, size)| Step::SendSmaller(most, size)),
            2 => (20u8..=100).prop_map(Step::BareAck),
            1 => Just(Step::ProbeSize),
            6 => (any::<u64>(), any::<bool>()).prop_map(|(mask, dry)| Step::Ack(mask, dry)),
            2 => (1u8..12, prop::bool::weighted(0.2)).prop_map(|(most, long)| Step::Lose(most, long)),
            1 => Just(Step::Mark),
            1 => (1u8..5).prop_map(Step::Discard),
            5 => Just(Step::Tick),
            1 => any::<bool>().prop_map(Step::Drive),
        ];
        prop::collection::vec(step, 1..150)
    }

    impl Stack {
        fn new(scheme: &str) -> Stack {
            let scheme = Scheme::parse(scheme).expect("in the catalogue");
            let mut bridge = Bridge::new(scheme.config().build(1), Time::ZERO, SIZE as u16);
            bridge.set_log(Some(Log::new(1 << 20)));
            Stack {
                bridge,
                now: Time::ZERO,
                size: SIZE,
                next: 0,
                flight: Vec::new(),
                seen: Vec::new(),
            }
        }

        fn in_flight(&self) -> u64 {
            self.flight.iter().map(|packet| packet.size).sum()
        }

        fn send(&mut self, sizes: &[u64]) {
            // A clock goes on from one call to the next.
            self.now += Duration::from_nanos(1);
            self.bridge.flush();
            let due = self.bridge.controller().next_tick();
            if sizes.is_empty() {
                return;
            }
            let mut window = self.bridge.controller().window();
            self.next += sizes.len() as u64;
            self.bridge.on_sent(self.now, sizes.iter().sum(), self.next);
            if due.is_some_and(|due| due <= self.now) {
                // A tick that was due came first, and may have changed the window.
                window = match self.bridge.log.as_ref().and_then(Log::last) {
                    Some(Event::Sent { window, .. }) => window,
                    other => panic!("{other:?}"),
                };
            }
            for &size in sizes {
                self.flight.push(Packet {
                    at: self.now,
                    size,
                    window,
                });
            }
        }

        /// Declares packets lost that left long before a packet now acknowledged.
        fn lose_overdue(&mut self, acked: &[Packet]) {
            let newest = acked.iter().map(|packet| packet.at).max();
            let due = self.now - Duration::from_secs(1);
            let overdue = |packet: &Packet| packet.at < due && Some(packet.at) < newest;
            let count = self.flight.partition_point(overdue);
            if let Some(last) = self.flight[..count].last() {
                let sent = last.at;
                let bytes = self.flight.drain(..count).map(|packet| packet.size).sum();
                self.bridge.on_congestion(self.now, sent, false, bytes);
            }
        }

        fn may_send(&self, more: u64) -> bool {
            self.in_flight() + more + self.size < self.bridge.limit()
        }

        fn step(&mut self, step: &Step) {
            match *step {
                Step::Wait(micros) => self.now += Duration::from_micros(u64::from(micros)),
                Step::Send(most, short) => {
                    let mut sizes = Vec::new();
                    while sizes.len() < usize::from(most) && self.may_send(sizes.iter().sum()) {
                        sizes.push(self.size);
                    }
                    if let Some(last) = sizes.last_mut() {
                        *last = (*last - u64::from(short)).max(SMALL + 1);
                    }
                    self.send(&sizes);
                }
                Step::SendSmaller(most, size) => {
                    let mut sizes = Vec::new();
                    while sizes.len() < usize::from(most) && self.may_send(sizes.iter().sum()) {
                        sizes.push(u64::from(size));
                    }
                    self.send(&sizes);
                }
                Step::BareAck(size) => {
                    self.next += 1;
                    self.bridge.on_sent(self.now, u64::from(size), self.next);
                }
                Step::ProbeSize => {
                    if self.size < 1400 {
                        self.next += 1;
                        // At the instant of whatever left last.
                        let before = self.flight.last().map_or(self.now, |packet| packet.at);
                        self.now += Duration::from_millis(7);
                        self.size += 100;
                        self.bridge.on_packet_size(self.size as u16);
                        self.bridge.on_ack(self.now, Some(before), self.size, false);
                        self.bridge.on_end_acks(self.now, self.in_flight(), false);
                    }
                }
                Step::Ack(mask, dry) => {
                    // No answer comes at the instant of a departure.
                    self.now += Duration::from_nanos(1);
                    let mut index = 0;
                    let mut acked = Vec::new();
                    self.flight.retain(|packet| {
                        let chosen = index < 64 && mask >> index & 1 == 1;
                        index += 1;
                        if chosen {
                            acked.push(*packet);
                        }
                        !chosen
                    });
                    for packet in &acked {
                        self.bridge
                            .on_ack(self.now, Some(packet.at), packet.size, dry);
                        let log = self.bridge.log.as_ref().and_then(|log| log.last());
                        let Some(Event::Acked { window, .. }) = log else {
                            panic!("{log:?}");
                        };
                        assert_eq!(window, packet.window, "the window it left under");
                    }
                    if !acked.is_empty() {
                        self.bridge.on_end_acks(self.now, self.in_flight(), dry);
                        assert_eq!(self.bridge.in_flight(), self.in_flight());
                        self.lose_overdue(&acked);
                    }
                }
                Step::Lose(count, persistent) => {
                    self.now += Duration::from_nanos(1);
                    let count = usize::from(count).min(self.flight.len());
                    if let Some(last) = self.flight[..count].last() {
                        let sent = last.at;
                        let bytes = self.flight.drain(..count).map(|packet| packet.size).sum();
                        self.bridge.on_congestion(self.now, sent, persistent, bytes);
                    }
                }
                Step::Mark => {
                    self.now += Duration::from_nanos(1);
                    self.bridge.on_congestion(self.now, self.now, false, 0);
                }
                Step::Discard(count) => {
                    let count = usize::from(count).min(self.flight.len());
                    self.flight.drain(..count);
                }
                Step::Tick => {
                    if let Some(due) = self.bridge.next_tick(self.now) {
                        self.now = self.now.max(due);
                    }
                    self.bridge.tick(self.now);
                }
                Step::Drive(driven) => self.bridge.set_driven(driven),
            }
        }

        /// With nothing in flight something may leave, at once or after a few ticks.
        fn makes_progress(&mut self) {
            self.flight.clear();
            self.bridge.flush();
            for _ in 0..4 {
                if self.bridge.limit() > self.size {
                    return;
                }
                let due = self.bridge.next_tick(self.now);
                self.now = self.now.max(due.expect("a closed limit asks for a tick"));
                self.bridge.tick(self.now);
            }
            panic!("stuck: {:?}", self.bridge.controller());
        }
    }

    fn schemes() -> impl Strategy<Value = String> {
        let mut all: Vec<String> = catalogue()
            .iter()
            .filter(|entry| entry.stands_alone())
            .map(|entry| entry.name.to_owned())
            .collect();
        for mode in ["paper", "prototype"] {
            all.push(format!("verus:mode={mode}"));
        }
        prop::sample::select(all)
    }

    fn play(scheme: &str, steps: &[Step]) -> Vec<String> {
        let mut stack = Stack::new(scheme);
        for step in steps {
            stack.step(step);
            assert!(stack.bridge.limit() > 0);
            let counters = stack.bridge.counters();
            assert_eq!(counters.misses, 0, "{counters:?}");
            let state = format!("{:?} {} {counters:?}", stack.now, stack.bridge.limit());
            stack.seen.push(state);
        }
        stack.makes_progress();
        stack.seen
    }

    /// A regression of the property below: a mark or a loss long after the last acknowledgement,
    /// then a late report of packets still in flight.
    #[test]
    fn what_a_mark_or_a_loss_says_nothing_of_is_not_forgotten() {
        use Step::*;
        #[rustfmt::skip]
        let regressions: &[(&str, &[Step])] = &[
            ("verus", &[SendSmaller(4, 150), Ack(0, false), Ack(0, false), Ack(12841636437307746991, false),
                SendSmaller(1, 150), ProbeSize, Tick, Send(1, 0), Ack(9256112488969570538, false),
                Ack(2767435601630537543, false)]),
            ("cubic", &[Send(10, 0), Ack(2755022755157887479, false), Wait(1), Send(1, 0), Ack(4658197748263442244,
                false), Tick, Mark, Ack(4189653481810263833, false)]),
            ("forward", &[Send(1, 0), Send(9, 0), Lose(5, false), Ack(4258050016834118721, false), Wait(1), Send(5, 0),
                Ack(7582740116888003089, false), Tick, Lose(4, true), Ack(4076088809, false)]),
            ("scream", &[Send(1, 0), Ack(10591373031454630291, false), Send(3, 0), Ack(1571917470984, false), Wait(1),
                Send(6, 0), Ack(29614793802591864, false), Tick, Mark, Ack(3009463384023332361, false)]),
            ("cubic", &[Send(8, 0), Ack(6393441645492959827, false), Wait(1), Send(1, 0), Ack(18264552899017694675,
                false), Send(10, 0), Ack(15381002085500741940, false), Tick, Mark, Ack(1126476941814978345, false)]),
            ("prague", &[Mark, Tick, Send(9, 308), Ack(16888862298096920663, false), Lose(3, true), Send(1, 692),
                Wait(1), Send(1, 0), Ack(1136541375627362308, false), Tick, Mark, Wait(0), Ack(543826954750761573,
                false)]),
            ("verus:mode=paper", &[Send(4, 320), Send(3, 613), Send(3, 0), Ack(386523796032406001, false), Send(3, 0),
                Send(1, 0), Ack(1053013137465303432, false), Send(1, 0), Ack(11913219624036845888, false), Tick, Lose(1,
                false), Ack(4581792877476396853, false)]),
            ("bbr1", &[Wait(0), Wait(0), Send(4, 0), Ack(3057109796912077, false), Send(3, 0), Wait(1), Ack(2203871936,
                false), Send(9, 0), Ack(701234096952013905, false), Send(4, 0), Ack(5682918716903090744, false), Tick,
                Mark, Ack(76741990962017897, false)]),
            ("verus:mode=prototype", &[SendSmaller(9, 301), Ack(0, false), Ack(2677121301642065371, false), Wait(0),
                Send(7, 0), Send(10, 0), Ack(15991357408146944, false), Wait(1), Send(19, 0), Ack(10489881231585285,
                false), Tick, Lose(1, false), Wait(0), Wait(0), Wait(0), Wait(0), Ack(23980, true)]),
            ("scream", &[Send(9, 281), SendSmaller(1, 798), Wait(8429), Wait(18244), Wait(13528), Send(1, 0), ProbeSize,
                Ack(12765206568002000101, false), Send(1, 0), Send(5, 0), Ack(792801713885243157, false), Lose(3, true),
                Tick, Send(2, 224), Tick, Send(1, 0), Wait(12788), Wait(17728), Wait(22645), Ack(12602366214854303403,
                false), Ack(5096219261955571162, false), Send(13, 0), Wait(7798), Ack(1283252244698198217, false),
                Send(6, 0), Wait(19594), Ack(2264637403984421659, false), Tick, Lose(1, false), Ack(8513902254617881,
                false)]),
            ("bbr", &[Wait(0), Ack(0, false), Send(9, 0), Ack(6054775092618645, false), Wait(0), Ack(295779939019861669,
                false), Send(13, 0), Send(2, 0), Tick, Mark, Ack(488765543333695861, false), Ack(0, false), Mark,
                Wait(0), Send(2, 0), Wait(0), Mark, Send(5, 140), Ack(625587539562018602, false), Send(9, 0),
                SendSmaller(7, 714), Wait(28948), Send(8, 0), Ack(12195716605176431759, false), Send(26, 582),
                SendSmaller(6, 349), Send(11, 306), Ack(7560275446747392604, false), Tick, Mark, Lose(5, true),
                Ack(15874277562020211633, false)]),
            ("c4", &[Send(10, 0), Tick, Lose(6, false), Wait(0), Ack(5566657065637951403, false),
                Ack(749802367575593653, false), Send(6, 0), Ack(1461259196633224361, false), Send(4, 0), Wait(0),
                Ack(178320990087273335, false), ProbeSize, Send(13, 0), Tick, Ack(17375345406110609159, false), Tick,
                Lose(1, false), Lose(3, false), SendSmaller(8, 150), Wait(1071), Wait(18003), Ack(882763128764230541,
                false), Wait(0), Wait(12736), Ack(1195849398369888, false), SendSmaller(1, 150), SendSmaller(7, 150),
                SendSmaller(8, 150), Wait(21100), SendSmaller(1, 150), Ack(2464036038774702555, false), Tick, Tick,
                Lose(1, false), Ack(123819316485847, false)]),
            ("c4", &[SendSmaller(8, 701), ProbeSize, ProbeSize, Ack(6238473824859242983, false), Send(7, 168),
                Ack(3856487866107938037, false), Send(5, 0), Ack(0, false), Ack(470825795647305, false), Wait(0),
                Send(1, 0), Send(8, 0), Ack(103, false), Send(3, 0), Send(7, 0), Mark, Wait(0), Ack(1212859711158485,
                false), Send(1, 0), Send(10, 667), Tick, Send(2, 0), Wait(0), Wait(0), Ack(1759708443919711584, true),
                SendSmaller(7, 432), Send(26, 810), SendSmaller(4, 478), Tick, Ack(526391857208201950, false), Tick,
                Tick, Send(11, 11), Ack(8802584865294021512, true), Send(22, 897), Lose(8, false), Wait(26516),
                SendSmaller(6, 680), SendSmaller(3, 401), Lose(9, false), Ack(12752544833142968809, true), Tick, Lose(1,
                false), Send(8, 121), Ack(6132442750298454535, false)]),
        ];
        for (scheme, steps) in regressions {
            play(scheme, steps);
        }
    }

    proptest! {
        #[test]
        fn a_stack_is_never_stuck_nor_a_window_lost_and_the_same_calls_give_the_same_answers(
            scheme in schemes(),
            steps in steps(),
        ) {
            let (first, again) = (play(&scheme, &steps), play(&scheme, &steps));
            let differs = first.iter().zip(&again).find(|(one, other)| one != other);
            prop_assert_eq!(differs, None);
        }

        #[test]
        fn no_history_however_wild_breaks_the_books(
            scheme in schemes(),
            calls in prop::collection::vec((0u8..8, any::<u32>(), any::<u32>()), 1..200),
        ) {
            let scheme = Scheme::parse(&scheme).expect("in the catalogue");
            let mut bridge = Bridge::new(scheme.config().build(1), Time::ZERO, SIZE as u16);
            let mut now = Time::ZERO;
            for (call, a, b) in calls {
                now += Duration::from_nanos(u64::from(a % 5_000_000));
                let past = now - Duration::from_nanos(u64::from(b));
                match call {
                    0 | 1 => bridge.on_sent(now, u64::from(a % 20_000), u64::from(b)),
                    2 => bridge.on_ack(now, (b % 9 > 0).then_some(past), u64::from(a % 3000), b % 2 == 0),
                    3 => bridge.on_end_acks(now, u64::from(a), b % 2 == 0),
                    4 => bridge.on_congestion(now, past, b % 3 == 0, u64::from(a % 9000)),
                    5 => bridge.on_packet_size(a as u16),
                    6 => bridge.set_driven(a % 2 == 0),
                    _ => {
                        bridge.tick(now);
                    }
                }
                prop_assert!(bridge.limit() > 0);
            }
        }
    }
}
