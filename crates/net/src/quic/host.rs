//! A controller of the core behind the callbacks of a QUIC stack, sans-IO.
//!
//! The core's own [`Sender`](verus_core::sender::Sender) has a ledger; a QUIC stack keeps its own
//! and tells its controller less. [`Host`] rebuilds what the core's [`Controller`] is promised:
//!
//! - **Departures.** A batch is split into packets. Packets of at most [`SMALL`] bytes may be bare
//!   acknowledgements, which no congestion control counts: the controller does not hear of them.
//! - **Samples.** The window, the flight and the bytes delivered when a packet left come from the
//!   [`Ring`], its round-trip time is its own.
//! - **One event.** Acknowledgements and the losses that they reveal come in separate callbacks at one
//!   instant; they are kept until something else happens, and told together.
//! - **Epochs.** A late tick is made up for in every callback, and between callbacks by whoever calls
//!   [`tick`](Host::tick).
//! - **The limit.** A stack asks how much may be in flight; the core says how much may leave now.
//!
//! Nothing here can stop a connection for good. While nobody calls [`tick`](Host::tick), one packet may
//! always leave when nothing is in flight; where somebody does, after two ticks in which nothing
//! happened. With something in flight a stack's own probes go past the limit, but they may be far between:
//! an acknowledgement that a blackout held back by 20 s is a round-trip time of 20 s to QUIC, and nothing is
//! lost for three of them. quinn does not even acknowledge while it may not send. So, when nothing has
//! happened for a second, two packets may leave, and again after twice the time.

use verus_core::algorithm::Scheme;
use verus_core::flight::RttEstimate;
use verus_core::{Acked, Bytes, Controller, Departure, Duration, Feedback, Time, Timeout};

use super::ring::{Ring, Smalls};
use super::view::{Counters, Event, Log};

/// A packet no larger may be a bare acknowledgement: those of quinn have about 50 bytes, and 30 more
/// where ten packets are missing.
pub(super) const SMALL: u64 = 100;
/// Before the first acknowledgement so many packets may be in flight (RFC 9002 §7.2), or a handshake
/// would take a round trip for each of its packets.
const INITIAL_PACKETS: u64 = 10;
/// After so many ticks in which nothing happened, something must leave.
const QUIET_TICKS: u32 = 2;
/// After so long without any callback nothing can be under way that epochs would matter to; what is in
/// flight is stuck.
const DORMANT: Duration = Duration::from_secs(1);
/// Then as many packets may leave as a stack's own probes have (RFC 9002 §6.2.4), first at once, at last
/// every so often.
const RESCUE_PACKETS: u64 = 2;
const LONGEST_RESCUE: Duration = Duration::from_secs(8);
/// What is still open of a batch so long after it left, plus [`STALE_RTTS`] round trips, and with later
/// packets acknowledged, was a bare acknowledgement or belonged to discarded keys: QUIC declares
/// the rest lost after at most 3 round trips.
const STALE_AFTER: Duration = Duration::from_secs(1);
const STALE_RTTS: u64 = 8;

/// What acknowledgements and losses have revealed and the controller has not heard yet.
#[derive(Debug, Default)]
struct Pending {
    /// When; `None` while there is nothing to tell.
    at: Option<Time>,
    acked: Vec<Acked>,
    lost: Vec<Departure>,
    marked: usize,
    in_flight_before: u64,
}

/// A controller and what a QUIC stack does not keep for it.
#[derive(Debug)]
pub(super) struct Host {
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
    /// The stack's number of the last packet told of.
    last_number: Option<u64>,
    rtt: RttEstimate,
    pending: Pending,
    /// Anything has been acknowledged.
    heard: bool,
    newest_acked: Time,
    /// The last size that path discovery raised the packets to: the packet that proved it is
    /// acknowledged without ever having been announced.
    proved_size: Option<u64>,
    backoff: u32,
    /// Somebody calls `tick`.
    driven: bool,
    quiet_ticks: u32,
    last_event: Time,
    /// When to help next what is stuck, and how long to wait then.
    next_rescue: Time,
    rescue_after: Duration,
    limit: u64,
    counters: Counters,
    log: Option<Log>,
}

impl Host {
    /// A fresh controller of `scheme`, for packets of `packet_size` bytes.
    pub(super) fn new(scheme: &Scheme, seed: u64, now: Time, packet_size: u16) -> Self {
        let mut controller = scheme.build(seed);
        let packet_size = u64::from(packet_size).max(1);
        controller.on_start(now, Bytes::new(packet_size));
        let mut host = Host {
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
            rtt: RttEstimate::default(),
            pending: Pending::default(),
            heard: false,
            newest_acked: Time::ZERO,
            proved_size: None,
            backoff: 0,
            driven: false,
            quiet_ticks: 0,
            last_event: now,
            next_rescue: now,
            rescue_after: DORMANT,
            limit: 0,
            counters: Counters::default(),
            log: None,
        };
        host.set_limit();
        host
    }

    /// A batch of `bytes` left, the last packet of which the stack numbers `last_number`.
    pub(super) fn on_sent(&mut self, now: Time, bytes: u64, last_number: u64) {
        self.flush();
        self.tick_if(|due| due <= now, now);
        self.note_event(now);
        let window = self.controller.window();
        let packets = self.packets_in(bytes, last_number);
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
                app_limited: batch.app_limited,
            });
            self.next_number += 1;
        }
        self.counters.sent += packets;
        self.set_limit();
    }

    /// How many packets a batch of `bytes` has. Each but the last has one size, at most the path's: what
    /// divides evenly is so many of the path's; otherwise the numbers tell, though some may have been
    /// skipped or have gone to packets that were not announced.
    fn packets_in(&self, bytes: u64, last_number: u64) -> u64 {
        let least = bytes.div_ceil(self.packet_size).max(1);
        if least == 1 || bytes.is_multiple_of(self.packet_size) {
            return least;
        }
        let by_number = self
            .last_number
            .and_then(|last| last_number.checked_sub(last))
            .unwrap_or(least);
        if by_number > least && by_number <= 2 * least {
            by_number
        } else {
            least
        }
    }

    /// A packet of `bytes` that left at `sent` is acknowledged; `sent` is `None` where it left before
    /// this controller's time.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Time, sent: Option<Time>, bytes: u64, app_limited: bool) {
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
        let Some(mut packet) = self.ring.acknowledge(sent, bytes) else {
            return self.on_ack_of_other(sent, bytes, rtt, proved);
        };
        packet.app_limited |= app_limited;
        self.rtt.update(rtt);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        self.newest_acked = self.newest_acked.max(sent);
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

    /// An acknowledgement of what no announced packet explains.
    #[cold]
    fn on_ack_of_other(&mut self, sent: Time, bytes: u64, rtt: Duration, proved: Option<u64>) {
        if self.smalls.find(sent, bytes).is_some() {
            self.counters.small_acked += 1;
            self.delivered += bytes;
        } else if proved == Some(bytes) {
            self.counters.unannounced += 1;
        } else {
            self.counters.misses += 1;
            return;
        }
        self.rtt.update(rtt);
    }

    /// That was all that one acknowledgement told; `in_flight` are the bytes that the stack counts now.
    pub(super) fn on_end_acks(&mut self, now: Time, in_flight: u64, app_limited: bool) {
        self.note_event(now);
        self.rescue_after = DORMANT;
        self.heard = true;
        self.backoff = 0;
        self.in_flight = in_flight;
        if app_limited {
            self.app_limited_until = self.delivered + in_flight;
        }
        let patience = STALE_AFTER + self.rtt.smoothed().max(self.rtt.latest()) * STALE_RTTS;
        let stale = now - patience;
        if self.ring.oldest().is_some_and(|oldest| oldest < stale) && self.newest_acked >= stale {
            self.ring.forget_before(stale);
        }
        self.pending.at = Some(now);
    }

    /// `bytes` of what left up to `sent` are lost, or, where `bytes` is zero, a congestion mark has come
    /// back.
    pub(super) fn on_congestion(&mut self, now: Time, sent: Time, persistent: bool, bytes: u64) {
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
        if persistent {
            // What was acknowledged with it is told before.
            self.flush();
        }
        let before = self.pending.lost.len();
        let unknown = self.ring.lose(sent, bytes, &mut self.pending.lost);
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
            app_limited: true,
        })
    }

    /// The path takes packets of `size` bytes from now on.
    pub(super) fn on_packet_size(&mut self, size: u16) {
        self.flush();
        let size = u64::from(size).max(1);
        if size > self.packet_size {
            self.proved_size = Some(size);
        }
        self.packet_size = size;
        self.controller.on_packet_size(Bytes::new(size));
        self.set_limit();
    }

    /// Tells the controller what is pending.
    pub(super) fn flush(&mut self) {
        let Some(now) = self.pending.at.take() else {
            return;
        };
        let pending = &mut self.pending;
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
    }

    /// Whether there is something to flush.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.at.is_some()
    }

    /// Time passes. Says whether more may be in flight than before.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        let before = self.limit;
        self.flush();
        if self.tick_if(|due| due <= now, now) {
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

    /// When to help what is in flight, if it is stuck by then.
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
    pub(super) fn next_tick(&self, now: Time) -> Option<Time> {
        let open = self.limit > self.packet_size;
        let dormant = now.since(self.last_event) > DORMANT;
        if open && (self.in_flight == 0 || dormant) {
            return self.next_rescue();
        }
        self.controller.next_tick().or_else(|| self.next_rescue())
    }

    /// Whether somebody calls [`tick`](Self::tick) from now on.
    pub(super) fn set_driven(&mut self, driven: bool) {
        self.driven = driven;
        self.set_limit();
    }

    /// How many bytes may be in flight. A stack sends while one more packet stays below it.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    fn set_limit(&mut self) {
        let size = self.packet_size;
        let window = self.controller.window().get();
        let sendable = self.controller.sendable(Bytes::new(self.in_flight)).get();
        let mut limit = if sendable == window.saturating_sub(self.in_flight) {
            // A window: what may be in flight does not depend on what this host believes is. The stack
            // sends while it stays below its limit, the core while it stays within its window.
            window.saturating_add(1)
        } else {
            // A budget: so many packets more than are in flight. Half a packet allows for bytes that the
            // stack counts and did not tell of, or told of and does not count.
            self.in_flight + sendable / size * size + size / 2
        };
        if !self.heard {
            limit = limit.max(INITIAL_PACKETS * size);
        }
        if !self.driven || self.quiet_ticks >= QUIET_TICKS {
            // One packet, if nothing is in flight.
            limit = limit.max(size + 1);
        }
        self.limit = limit;
    }

    /// The controller.
    pub(super) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Bytes in flight, as far as the stack has told.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes acknowledged.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// What was counted.
    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// The round-trip time of what was acknowledged.
    pub(super) fn rtt(&self) -> &RttEstimate {
        &self.rtt
    }

    /// The size of a full packet.
    pub(super) fn packet_size(&self) -> u64 {
        self.packet_size
    }

    /// Keeps a log from now on.
    pub(super) fn set_log(&mut self, log: Option<Log>) {
        self.log = log;
    }

    /// The log so far; it goes on.
    pub(super) fn take_log(&mut self) -> Vec<Event> {
        self.log.as_mut().map(Log::take).unwrap_or_default()
    }
}
