//! The records that a controller needs of a program that only knows its packets' numbers.
//!
//! The program detects losses and keeps its timers, as a QUIC stack does. [`Host`] keeps each packet's [`Departure`]
//! and makes complete [`Feedback`] of acknowledgements and losses, which arrive one call each. Like the core, it
//! reads no clock: calls carry the program's time, in ns since any fixed instant.

use std::collections::BTreeMap;

use verus_core::rtt::RttEstimate;
use verus_core::{Acked, Bytes, Controller, Departure, Duration, Feedback, Time, Timeout};

use crate::{State, Status, VERUS_UNKNOWN};

/// The most packets in flight: their records take about 100 MB.
const MOST_IN_FLIGHT: usize = 1 << 20;
/// Lost packets that are remembered, in case they are acknowledged after all. No honest reordering is longer.
const MOST_LOST: usize = 1 << 12;
/// The longest life of a controller, 31 years: sums of times stay far from 64 bits.
const LONGEST_NS: u64 = 1_000_000_000_000_000_000;

/// Events of one instant that are not yet reported to the controller.
#[derive(Debug, Default)]
struct Pending {
    acked: Vec<Acked>,
    lost: Vec<Departure>,
    recovered: Vec<Acked>,
    marked: usize,
    in_flight_before: Bytes,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.acked.is_empty()
            && self.lost.is_empty()
            && self.recovered.is_empty()
            && self.marked == 0
    }
}

/// A controller and its flow's records.
#[derive(Debug)]
pub(crate) struct Host {
    controller: Box<dyn Controller>,
    /// The program's time at the start, from which the controller's time counts.
    origin_ns: u64,
    now: Time,
    in_flight: Bytes,
    delivered: Bytes,
    delivered_at: Time,
    /// When the newest acknowledged packet left, or the first packet after an idle time.
    flight_since: Time,
    /// Packets in flight, by number.
    packets: BTreeMap<u64, Departure>,
    /// Packets declared lost and still remembered.
    lost: BTreeMap<u64, Departure>,
    next_number: u64,
    /// Packets that leave before more than this was delivered are app-limited.
    app_limited_until: Bytes,
    rtt: RttEstimate,
    backoff: u32,
    pending: Pending,
}

impl Host {
    pub(crate) fn new(
        mut controller: Box<dyn Controller>,
        now_ns: u64,
        packet_bytes: u32,
    ) -> Result<Self, Status> {
        controller.on_start(Time::ZERO, size_of_packet(packet_bytes)?);
        Ok(Host {
            controller,
            origin_ns: now_ns,
            now: Time::ZERO,
            in_flight: Bytes::ZERO,
            delivered: Bytes::ZERO,
            delivered_at: Time::ZERO,
            flight_since: Time::ZERO,
            packets: BTreeMap::new(),
            lost: BTreeMap::new(),
            next_number: 0,
            app_limited_until: Bytes::ZERO,
            rtt: RttEstimate::default(),
            backoff: 0,
            pending: Pending::default(),
        })
    }

    /// The controller's time; refused if it went back.
    fn time(&self, now_ns: u64) -> Result<Time, Status> {
        let since_ns = now_ns.checked_sub(self.origin_ns);
        let since_ns = since_ns.ok_or(Status::TimeWentBack)?;
        match Time::from_nanos(since_ns) {
            _ if since_ns > LONGEST_NS => Err(Status::InvalidArgument),
            now if now < self.now => Err(Status::TimeWentBack),
            now => Ok(now),
        }
    }

    /// Goes on to `now`. Events of an earlier instant are reported first, and ticks that were due before `now` precede
    /// its events.
    fn advance(&mut self, now: Time) {
        if now > self.now {
            self.flush();
            self.tick_if_due(|due| due < now, now);
            self.now = now;
        }
    }

    fn tick_if_due(&mut self, is_due: impl Fn(Time) -> bool, now: Time) {
        if self.controller.next_tick().is_some_and(is_due) {
            self.controller.on_tick(now, self.in_flight);
        }
    }

    pub(crate) fn on_sent(
        &mut self,
        now_ns: u64,
        number: u64,
        packet_bytes: u32,
    ) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        let size = size_of_packet(packet_bytes)?;
        if number < self.next_number || number == u64::MAX {
            return Err(Status::NumberNotAscending);
        }
        if self.packets.len() >= MOST_IN_FLIGHT {
            return Err(Status::TooManyInFlight);
        }
        self.advance(now);
        self.flush();
        self.tick_if_due(|due| due <= now, now);
        self.next_number = number + 1;
        if self.packets.is_empty() {
            self.delivered_at = now;
            self.flight_since = now;
        }
        self.in_flight += size;
        let packet = Departure {
            number,
            at: now,
            size,
            window: self.controller.window(),
            in_flight: self.in_flight,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            sending: now.since(self.flight_since),
            app_limited: !self.app_limited_until.is_zero()
                && self.delivered <= self.app_limited_until,
        };
        self.packets.insert(number, packet);
        self.controller.on_sent(&packet);
        Ok(())
    }

    /// Notes the state before the first event of an instant.
    fn begin_event(&mut self, now: Time) {
        self.advance(now);
        if self.pending.is_empty() {
            self.pending.in_flight_before = self.in_flight;
        }
    }

    pub(crate) fn on_acked(
        &mut self,
        now_ns: u64,
        number: u64,
        held_ns: u64,
        received_ns: u64,
    ) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        let (packet, in_flight) = match self.packets.remove(&number) {
            Some(packet) => (packet, true),
            None => {
                let lost = self.lost.remove(&number);
                (lost.ok_or(Status::UnknownPacket)?, false)
            }
        };
        self.begin_event(now);
        let elapsed = now.since(packet.at);
        let rtt = Duration::from_nanos(elapsed.as_nanos().saturating_sub(held_ns));
        let acked = Acked {
            packet,
            rtt,
            received_at: (received_ns != VERUS_UNKNOWN).then(|| Time::from_nanos(received_ns)),
        };
        if in_flight {
            self.in_flight = self.in_flight.saturating_sub(packet.size);
            self.pending.acked.push(acked);
        } else {
            self.pending.recovered.push(acked);
        }
        self.rtt.update(rtt);
        self.delivered += packet.size;
        self.delivered_at = now;
        self.flight_since = self.flight_since.max(packet.at);
        self.backoff = 0;
        Ok(())
    }

    pub(crate) fn on_lost(&mut self, now_ns: u64, number: u64) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        let packet = self.packets.remove(&number).ok_or(Status::UnknownPacket)?;
        self.begin_event(now);
        self.in_flight = self.in_flight.saturating_sub(packet.size);
        self.pending.lost.push(packet);
        self.remember_lost(packet);
        Ok(())
    }

    fn remember_lost(&mut self, packet: Departure) {
        self.lost.insert(packet.number, packet);
        if self.lost.len() > MOST_LOST {
            self.lost.pop_first();
        }
    }

    pub(crate) fn on_marked(&mut self, now_ns: u64, packets: u32) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        self.begin_event(now);
        self.pending.marked += packets as usize;
        Ok(())
    }

    pub(crate) fn on_event_end(&mut self, now_ns: u64) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        self.advance(now);
        self.flush();
        Ok(())
    }

    /// Reports the pending events, in order of departure, as the core's own sender does.
    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = &mut self.pending;
        pending
            .acked
            .sort_unstable_by_key(|acked| acked.packet.number);
        pending.lost.sort_unstable_by_key(|packet| packet.number);
        pending
            .recovered
            .sort_unstable_by_key(|acked| acked.packet.number);
        self.controller.on_feedback(&Feedback {
            now: self.now,
            acked: &pending.acked,
            lost: &pending.lost,
            recovered: &pending.recovered,
            marked: pending.marked,
            report: None,
            in_flight_before: pending.in_flight_before,
            in_flight: self.in_flight,
            delivered: self.delivered,
            smoothed_rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.least().unwrap_or_default(),
        });
        pending.acked.clear();
        pending.lost.clear();
        pending.recovered.clear();
        pending.marked = 0;
    }

    pub(crate) fn on_timeout(&mut self, now_ns: u64) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        self.advance(now);
        self.flush();
        if self.packets.is_empty() {
            return Ok(());
        }
        let presumed_lost: Vec<Departure> =
            std::mem::take(&mut self.packets).into_values().collect();
        self.in_flight = Bytes::ZERO;
        self.backoff = self.backoff.saturating_add(1);
        self.controller.on_timeout(&Timeout {
            now,
            presumed_lost: &presumed_lost,
            backoff: self.backoff,
        });
        for packet in presumed_lost {
            self.remember_lost(packet);
        }
        Ok(())
    }

    pub(crate) fn on_tick(&mut self, now_ns: u64) -> Result<(), Status> {
        let now = self.time(now_ns)?;
        self.advance(now);
        self.flush();
        self.tick_if_due(|due| due <= now, now);
        Ok(())
    }

    pub(crate) fn forget(&mut self, number: u64) -> Result<(), Status> {
        let packet = self.packets.remove(&number).ok_or(Status::UnknownPacket)?;
        self.in_flight = self.in_flight.saturating_sub(packet.size);
        Ok(())
    }

    pub(crate) fn set_app_limited(&mut self) {
        self.app_limited_until = (self.delivered + self.in_flight).max(Bytes::new(1));
    }

    pub(crate) fn set_packet_size(&mut self, packet_bytes: u32) -> Result<(), Status> {
        let size = size_of_packet(packet_bytes)?;
        self.flush();
        self.controller.on_packet_size(size);
        Ok(())
    }

    pub(crate) fn state(&self) -> State {
        let allowance = self.controller.allowance();
        let sendable = allowance.sendable(self.in_flight);
        let next_tick = self.controller.next_tick();
        State {
            window_bytes: self.controller.window().get(),
            in_flight_bytes: self.in_flight.get(),
            sendable_bytes: sendable.get(),
            limit_bytes: self.in_flight.get().saturating_add(sendable.get()),
            pacing_bits_per_s: self
                .controller
                .pacing_rate()
                .map_or(0, |rate| rate.as_bps()),
            quantum_bytes: self.controller.send_quantum().map_or(0, Bytes::get),
            next_tick_ns: next_tick.map_or(VERUS_UNKNOWN, |at| {
                self.origin_ns.saturating_add(at.as_nanos())
            }),
            smoothed_rtt_ns: self.rtt.smoothed().as_nanos(),
            min_rtt_ns: self.rtt.least().unwrap_or_default().as_nanos(),
            ecn: self.controller.ecn().bits(),
        }
    }
}

fn size_of_packet(packet_bytes: u32) -> Result<Bytes, Status> {
    // The largest IP packet.
    match packet_bytes {
        1..=65_535 => Ok(Bytes::new(u64::from(packet_bytes))),
        _ => Err(Status::InvalidArgument),
    }
}
