//! The ledger of packets in flight: turns sends and acknowledgements into complete events.
//!
//! Every transmission has a new number, so each acknowledgement yields that packet's round-trip
//! time without Karn's ambiguity. A packet is in flight until it is acknowledged or declared lost.
//! A lost packet is remembered for a while. If its acknowledgement arrives after all, it is
//! reported as recovered, and the algorithm can undo its reaction to the loss.
//!
//! ```text
//!            acknowledged
//! in flight ──────────────▶ acknowledged
//!     │ loss timer, timeout      ▲
//!     └─────────▶ lost ──────────┘ recovered
//!                  │ too long ago
//!                  └──────────▶ forgotten
//! ```
//!
//! A timeout only presumes losses. When a packet that it presumed lost is acknowledged and nothing sent since the
//! timeout has overtaken the others, the silence was a delay (F-RTO, RFC 5682; Eifel, RFC 4015): the others are in
//! flight again, and need not be sent twice.
//!
//! The ledger does not depend on an algorithm's model. The window bounds its memory: it keeps a
//! slot for each number from the oldest packet that is undecided or remembered as lost, up to the
//! newest. At most 131,072 slots belong to packets that are not in flight, or that others have
//! overtaken.

use std::collections::{BTreeSet, VecDeque};

use crate::controller::{Acked, Departure};
use crate::receiver::{Ack, DataRange, NumberRange, RANGES_PER_ACK, Received};
use crate::recovery::LossRule;
use crate::rtt::RttEstimate;
use crate::units::{Bytes, Duration, Time};

/// Packets overtaken by this many are lost at once while no reordering has been seen (DupThresh,
/// RFC 8985 §6.2).
const DUP_THRESH: u64 = 3;

/// A reordering window that has grown is kept through this many loss recoveries since the last spurious one (RFC 8985
/// §6.2, RACK.reo_wnd_persist).
const WINDOW_RECOVERIES: u32 = 16;

/// A lost packet is remembered for this long plus [`FORGET_RTTS`] round trips after it was
/// declared lost: reordering on real paths is far shorter.
const FORGET_AFTER: Duration = Duration::from_secs(2);
const FORGET_RTTS: u64 = 4;

/// With more slots than this (8 MiB of memory), lost packets are forgotten and missing ones declared lost, oldest
/// first. A receiver could otherwise keep packets missing for as long as it likes by feigning long round trips, and one
/// that answers nothing leaves everything sent presumed lost. No honest reordering is a hundred thousand packets long.
const MOST_SLOTS: usize = 1 << 17;

/// The ledger's record of a packet, in one cache line of 64 bytes. The packet's number follows from
/// its place in the ring; 32 bits hold a window or a size in bytes, since neither comes near 4 GiB.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: Time,
    delivered: Bytes,
    delivered_at: Time,
    data_start: u64,
    /// For a packet in flight and overtaken: when it will be declared lost. For a lost one: when it was.
    deadline: Time,
    window: u32,
    in_flight: u32,
    size: u32,
    data_len: u32,
    /// In µs.
    sending: u32,
    state: PacketState,
    app_limited: bool,
}

impl Slot {
    fn new(packet: &Departure, data: DataRange) -> Self {
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Slot {
            at: packet.at,
            delivered: packet.delivered,
            delivered_at: packet.delivered_at,
            data_start: data.start,
            deadline: Time::MAX,
            window: small(packet.window.get()),
            in_flight: small(packet.in_flight.get()),
            size: small(packet.size.get()),
            data_len: small(data.len),
            sending: small(packet.sending.as_micros()),
            state: PacketState::InFlight,
            app_limited: packet.app_limited,
        }
    }

    fn size(&self) -> Bytes {
        Bytes::new(u64::from(self.size))
    }

    fn data(&self) -> DataRange {
        DataRange {
            start: self.data_start,
            len: u64::from(self.data_len),
        }
    }

    #[inline]
    fn packet(&self, number: u64) -> Departure {
        Departure {
            number,
            at: self.at,
            size: self.size(),
            window: Bytes::new(u64::from(self.window)),
            in_flight: Bytes::new(u64::from(self.in_flight)),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            sending: Duration::from_micros(u64::from(self.sending)),
            app_limited: self.app_limited,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    InFlight,
    Lost,
    /// Presumed lost by a timeout, and not overtaken by a later packet since.
    Presumed,
    /// Acknowledged, recovered or forgotten: the slot is freed once all older ones are.
    Done,
}

/// The news in one acknowledgement or timer; buffers are reused from event to event.
#[derive(Debug, Default)]
pub struct Revealed {
    /// Newly acknowledged, in order of departure.
    pub acked: Vec<Acked>,
    /// Newly lost.
    pub lost: Vec<Departure>,
    /// Declared lost before, and now acknowledged after all.
    pub recovered: Vec<Acked>,
    /// The data that the newly lost packets carried.
    pub lost_data: Vec<DataRange>,
    /// The data that need not be sent again: that of the recovered packets, and that of packets which a spurious
    /// timeout presumed lost and which are in flight again.
    pub recovered_data: Vec<DataRange>,
    /// How many packets are in flight again after a spurious timeout.
    pub revived: u64,
}

impl Revealed {
    /// Forgets the last event.
    pub fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.recovered.clear();
        self.lost_data.clear();
        self.recovered_data.clear();
        self.revived = 0;
    }

    /// Whether nothing was revealed.
    pub fn is_empty(&self) -> bool {
        self.acked.is_empty() && self.lost.is_empty() && self.recovered.is_empty()
    }
}

/// RACK's idea of how far packets are reordered (RFC 8985 §6.2, step 4). Where the RFC learns of a spurious loss from a
/// duplicate SACK, the ledger learns of it from the acknowledgement of the late packet itself.
#[derive(Clone, Copy, Debug)]
struct Reordering {
    seen: bool,
    /// Factor of min_rtt / 4 in the reordering window; grows by one in each round that proves a loss spurious.
    multiplier: u64,
    /// Packets with numbers below this left before the multiplier last grew, and do not make it grow again: it grows at
    /// most once a round.
    round_end: u64,
    /// Loss recoveries since the multiplier last grew.
    recoveries: u32,
    /// Packets with numbers below this left before the last recovery began, and are part of it.
    recovery_end: u64,
}

impl Reordering {
    fn new() -> Self {
        Reordering {
            seen: false,
            multiplier: 1,
            round_end: 0,
            recoveries: 0,
            recovery_end: 0,
        }
    }

    /// A packet was declared lost; the next to leave has number `next`.
    fn on_lost(&mut self, number: u64, next: u64) {
        if number < self.recovery_end {
            return;
        }
        self.recovery_end = next;
        self.recoveries += 1;
        if self.recoveries > WINDOW_RECOVERIES {
            (self.multiplier, self.recoveries) = (1, 0);
        }
    }

    /// A packet that was declared lost arrived; the next to leave has number `next`.
    fn on_spurious(&mut self, number: u64, next: u64) {
        self.seen = true;
        self.recoveries = 0;
        if number >= self.round_end {
            self.multiplier += 1;
            self.round_end = next;
        }
    }
}

/// The ledger of one flow.
#[derive(Debug)]
pub struct Ledger {
    rule: LossRule,
    /// Packets `base..next_number`, by number.
    slots: VecDeque<Slot>,
    base: u64,
    next_number: u64,
    in_flight: Bytes,
    in_flight_packets: u64,
    delivered: Bytes,
    delivered_at: Time,
    /// When the newest acknowledged packet left, or the first packet after an idle time.
    flight_since: Time,
    largest_acked: Option<u64>,
    /// The last acknowledgement, where anything was open after it.
    last_ack: Option<Ack>,
    /// Departure and round-trip time of the acknowledged packet that left last (RACK.xmit_ts and
    /// RACK.rtt).
    newest_acked: (Time, Duration),
    /// Packets overtaken but not yet declared lost. Since a hostile receiver chooses which packets go missing and which
    /// turn up, each step in this set and in `lost` takes time logarithmic in its size.
    missing: BTreeSet<u64>,
    /// When each packet of `missing` will be declared lost, under rules that give each packet a
    /// timer.
    timers: BTreeSet<(Time, u64)>,
    /// Packets declared lost, overtaken, and still remembered.
    lost: Remembered,
    /// The earliest deadline among `missing`.
    loss_deadline: Option<Time>,
    /// Numbers declared lost by the current event; a field so that its memory is reused.
    expired: Vec<u64>,
    reordering: Reordering,
    rtt: RttEstimate,
    /// Packets that leave before more than this was delivered are app-limited: the source ran dry.
    app_limited_until: Bytes,
    /// Missing and lost packets visited so far.
    #[cfg(test)]
    looked_at: u64,
}

impl Ledger {
    /// An empty ledger that tells loss by `rule`.
    pub fn new(rule: LossRule) -> Self {
        Ledger {
            rule,
            slots: VecDeque::new(),
            base: 0,
            next_number: 0,
            in_flight: Bytes::ZERO,
            in_flight_packets: 0,
            delivered: Bytes::ZERO,
            delivered_at: Time::ZERO,
            flight_since: Time::ZERO,
            largest_acked: None,
            last_ack: None,
            newest_acked: (Time::ZERO, Duration::ZERO),
            missing: BTreeSet::new(),
            timers: BTreeSet::new(),
            lost: Remembered::default(),
            loss_deadline: None,
            expired: Vec::new(),
            reordering: Reordering::new(),
            rtt: RttEstimate::default(),
            app_limited_until: Bytes::ZERO,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Bytes in flight.
    #[inline]
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// Packets in flight.
    #[inline]
    pub fn in_flight_packets(&self) -> u64 {
        self.in_flight_packets
    }

    /// Bytes acknowledged in the flow's life.
    #[inline]
    pub fn delivered(&self) -> Bytes {
        self.delivered
    }

    /// How many slots it keeps in memory, 64 bytes each.
    pub fn remembered(&self) -> usize {
        self.slots.len()
    }

    /// The round-trip time estimate.
    #[inline]
    pub fn rtt(&self) -> &RttEstimate {
        &self.rtt
    }

    /// A round trip that no packet of the ledger's measured.
    pub fn on_rtt(&mut self, rtt: Duration) {
        self.rtt.update(rtt);
    }

    /// When the next overtaken packet will be declared lost.
    #[inline]
    pub fn next_loss(&self) -> Option<Time> {
        self.loss_deadline
    }

    /// The source has nothing to send though the window is open. Samples then say nothing about the
    /// path's capacity: those of packets that leave before everything now in flight is delivered,
    /// and the first after a silence (draft-ietf-ccwg-bbr, "Tracking application-limited phases").
    pub fn set_app_limited(&mut self) {
        self.app_limited_until = (self.delivered + self.in_flight).max(Bytes::new(1));
    }

    /// A packet leaves.
    #[inline]
    pub fn on_sent(&mut self, now: Time, size: Bytes, window: Bytes, data: DataRange) -> Departure {
        if self.in_flight_packets == 0 {
            self.delivered_at = now;
            self.flight_since = now;
        }
        self.in_flight += size;
        self.in_flight_packets += 1;
        let packet = Departure {
            number: self.next_number,
            at: now,
            size,
            window,
            in_flight: self.in_flight,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            sending: now.since(self.flight_since),
            app_limited: !self.app_limited_until.is_zero()
                && self.delivered <= self.app_limited_until,
        };
        self.next_number += 1;
        self.push(Slot::new(&packet, data));
        packet
    }

    #[inline]
    fn push(&mut self, slot: Slot) {
        if self.slots.len() >= MOST_SLOTS {
            self.make_room();
        }
        self.slots.push_back(slot);
    }

    /// Forgets lost packets that are older than everything in flight.
    #[cold]
    fn make_room(&mut self) {
        while self.slots.len() >= MOST_SLOTS && self.slots[0].state != PacketState::InFlight {
            self.lost.remove(self.base);
            self.slots.pop_front();
            self.base += 1;
        }
    }

    /// Leaves the next number unused, and returns it. A receiver that acknowledges it lies.
    pub fn skip(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let nothing = Departure {
            number,
            at: self.delivered_at,
            size: Bytes::ZERO,
            window: Bytes::ZERO,
            in_flight: self.in_flight,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            sending: Duration::ZERO,
            app_limited: false,
        };
        let mut slot = Slot::new(&nothing, DataRange::default());
        slot.state = PacketState::Done;
        self.push(slot);
        number
    }

    /// The number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// An acknowledgement arrives, perhaps with the arrival times of packets other than the newest
    /// (`received`, by ascending number; may be empty). Appends its news to `out`, losses included.
    #[inline]
    pub fn on_ack(&mut self, now: Time, ack: &Ack, received: &[Received], out: &mut Revealed) {
        let report = &Report { ack, received };
        let newest = ack.newest();
        if newest >= self.next_number {
            return; // acknowledges what was never sent: nothing in it can be trusted
        }
        // Skipped numbers and packets lost long ago may have left the ring already.
        let from = self
            .largest_acked
            .map_or(self.base, |largest| self.base.max(largest + 1));
        // Below `from` there is news only if the fate of a packet there is open, and the acknowledgement says something
        // else about those numbers than the last one did.
        if self.is_open() && !ack.agrees_below(&self.last_ack) {
            self.settle_overtaken(now, report, from, out);
        }
        if newest >= from {
            self.settle_new(now, report, from, newest, out);
        }
        if self.is_open() {
            self.last_ack = Some(*ack);
        }
        self.detect(now, out);
        if self.slots.len() >= MOST_SLOTS {
            self.give_up_oldest(now, out);
        }
        self.tidy(now);
    }

    /// Whether an acknowledgement may bring news of a packet that others have overtaken.
    #[inline]
    fn is_open(&self) -> bool {
        !(self.missing.is_empty() && self.lost.numbers.is_empty())
    }

    /// Declares the oldest of the missing packets lost before their time.
    #[cold]
    fn give_up_oldest(&mut self, now: Time, out: &mut Revealed) {
        let before = self.next_number - MOST_SLOTS as u64;
        while let Some(&number) = self.missing.first()
            && number <= before
        {
            self.missing.pop_first();
            self.timers.remove(&(self.slot(number).deadline, number));
            self.lose_overtaken(number, now, out);
        }
        out.lost.sort_unstable_by_key(|packet| packet.number);
        self.make_room();
    }

    /// Declares overtaken packets lost whose time has come, appending them to `out`.
    pub fn on_loss_timer(&mut self, now: Time, out: &mut Revealed) {
        self.detect(now, out);
    }

    /// Declares everything in flight lost.
    pub fn on_timeout(&mut self, now: Time, out: &mut Revealed) {
        self.missing.clear();
        self.timers.clear();
        self.loss_deadline = None;
        let from = self.largest_acked.map_or(0, |largest| largest + 1);
        for at in 0..self.slots.len() {
            if self.slots[at].state == PacketState::InFlight {
                self.lose(at, now, out);
                if self.base + at as u64 >= from {
                    self.slots[at].state = PacketState::Presumed;
                } else {
                    self.lost.insert(self.base + at as u64);
                }
            }
        }
        debug_assert!(self.in_flight.is_zero());
    }

    /// The timeout was spurious: the packets that it presumed lost are in flight after all.
    #[cold]
    fn revive(&mut self, out: &mut Revealed) {
        for slot in &mut self.slots {
            if slot.state == PacketState::Presumed {
                slot.state = PacketState::InFlight;
                slot.deadline = Time::MAX;
                self.in_flight += slot.size();
                self.in_flight_packets += 1;
                out.recovered_data.push(slot.data());
                out.revived += 1;
            }
        }
    }

    /// Data of the newest packet still in flight, which a tail probe repeats.
    pub fn tail(&self) -> Option<DataRange> {
        let tail = self
            .slots
            .iter()
            .rev()
            .find(|slot| slot.state == PacketState::InFlight)?;
        Some(tail.data())
    }

    /// Numbers below `end` that the acknowledgement covers and that were still open.
    #[cold]
    fn settle_overtaken(&mut self, now: Time, report: &Report<'_>, end: u64, out: &mut Revealed) {
        for range in ascending(report.ack) {
            if range.first >= end || self.has_heard_of(&range, end) {
                continue;
            }
            while let Some(&number) = self.missing.range(range.first..=range.last).next() {
                self.look_at();
                self.missing.remove(&number);
                self.timers.remove(&(self.slot(number).deadline, number));
                self.reordering.seen = true;
                self.deliver(now, number, report, out);
            }
            while let Some(number) = self.lost.within(range) {
                self.look_at();
                self.lost.remove(number);
                self.reordering.on_spurious(number, self.next_number);
                self.recover(now, number, report, out);
            }
        }
    }

    /// Whether the last acknowledgement named all of `range` below `end`. Nothing there is then
    /// open, and a search, which takes the logarithm of all open packets, would be in vain.
    fn has_heard_of(&self, range: &NumberRange, end: u64) -> bool {
        let last = range.last.min(end - 1);
        self.last_ack.is_some_and(|ack| {
            let mut ranges = ack.ranges();
            ranges.any(|named| named.first <= range.first && last <= named.last)
        })
    }

    /// Numbers from `from` to `newest`: acknowledged, or newly overtaken.
    #[inline]
    fn settle_new(
        &mut self,
        now: Time,
        report: &Report<'_>,
        from: u64,
        newest: u64,
        out: &mut Revealed,
    ) {
        self.largest_acked = Some(newest);
        if report.ack.first_range().first <= from {
            // No gap, as in nearly every acknowledgement.
            let mut next = from;
            while next <= newest {
                self.arrived(now, next, report, out);
                next += 1;
            }
        } else {
            self.settle_gaps(now, report, from, out);
        }
    }

    /// The same where there are gaps among them.
    #[cold]
    fn settle_gaps(&mut self, now: Time, report: &Report<'_>, from: u64, out: &mut Revealed) {
        let mut next = from;
        for range in ascending(report.ack).filter(|range| range.last >= from) {
            while next < range.first {
                self.overtaken(now, next);
                next += 1;
            }
            while next <= range.last {
                self.arrived(now, next, report, out);
                next += 1;
            }
        }
    }

    #[inline]
    fn arrived(&mut self, now: Time, number: u64, report: &Report<'_>, out: &mut Revealed) {
        if self.slot(number).state == PacketState::InFlight {
            self.deliver(now, number, report, out);
        } else {
            self.arrived_after_all(now, number, report, out);
        }
    }

    #[cold]
    fn arrived_after_all(
        &mut self,
        now: Time,
        number: u64,
        report: &Report<'_>,
        out: &mut Revealed,
    ) {
        match self.slot(number).state {
            PacketState::Lost => self.recover(now, number, report, out),
            PacketState::Presumed => {
                self.recover(now, number, report, out);
                self.revive(out);
            }
            PacketState::InFlight | PacketState::Done => {}
        }
    }

    fn overtaken(&mut self, now: Time, number: u64) {
        let deadline = match self.rule {
            // RACK's deadline moves with its estimates; `detect` works it out.
            LossRule::Rack => None,
            LossRule::DelayTimer { factor } => {
                let delay = self.rtt.smoothed().max(self.rtt.latest());
                Some(now + delay.mul_f64(factor))
            }
            LossRule::FixedTimer { after } => Some(now + after),
        };
        let slot = self.slot_mut(number);
        match slot.state {
            PacketState::InFlight => {
                self.missing.insert(number);
                if let Some(deadline) = deadline {
                    self.slot_mut(number).deadline = deadline;
                    self.timers.insert((deadline, number));
                }
            }
            PacketState::Lost | PacketState::Presumed => {
                slot.state = PacketState::Lost;
                self.lost.insert(number);
            }
            PacketState::Done => {}
        }
    }

    #[inline]
    fn deliver(&mut self, now: Time, number: u64, report: &Report<'_>, out: &mut Revealed) {
        let slot = self.slot_mut(number);
        slot.state = PacketState::Done;
        let size = slot.size();
        self.in_flight -= size;
        self.in_flight_packets -= 1;
        let acked = self.sample(now, number, report);
        out.acked.push(acked);
    }

    #[cold]
    fn recover(&mut self, now: Time, number: u64, report: &Report<'_>, out: &mut Revealed) {
        let slot = self.slot_mut(number);
        slot.state = PacketState::Done;
        let data = slot.data();
        let acked = self.sample(now, number, report);
        out.recovered.push(acked);
        out.recovered_data.push(data);
    }

    /// Takes the round-trip sample of an acknowledged packet.
    #[inline]
    fn sample(&mut self, now: Time, number: u64, report: &Report<'_>) -> Acked {
        let slot = self.slot(number);
        let (left, size) = (slot.at, slot.size());
        self.delivered += size;
        self.delivered_at = now;
        self.flight_since = self.flight_since.max(left);
        let mut rtt = now.since(left);
        let arrival = report.arrival(number);
        if let Some((_, hold)) = arrival {
            // A receiver that overstates how long it held the acknowledgement cannot push the
            // sample below the path's least round-trip time. It cannot shorten the first sample at
            // all (RFC 9002 §5.3).
            let unheld = rtt.saturating_sub(hold);
            if self.rtt.least().is_some_and(|least| unheld >= least) {
                rtt = unheld;
            }
        }
        self.rtt.update(rtt);
        if left >= self.newest_acked.0 {
            self.newest_acked = (left, rtt);
        }
        Acked {
            packet: self.slot(number).packet(number),
            rtt,
            received_at: arrival.map(|(at, _)| at),
        }
    }

    /// Declares lost those missing packets that are due.
    #[inline]
    fn detect(&mut self, now: Time, out: &mut Revealed) {
        if self.missing.is_empty() {
            self.loss_deadline = None;
            return;
        }
        match self.rule {
            LossRule::Rack => self.detect_by_rack(now, out),
            LossRule::DelayTimer { .. } | LossRule::FixedTimer { .. } => {
                self.detect_by_timers(now, out);
            }
        }
    }

    /// RACK's deadlines are in the order of departure, which is that of the numbers: the search ends at the
    /// first packet that still has time.
    #[cold]
    fn detect_by_rack(&mut self, now: Time, out: &mut Revealed) {
        let wait = self.newest_acked.1 + self.reorder_window();
        let newest = self
            .largest_acked
            .expect("overtaken by an acknowledged packet");
        self.loss_deadline = None;
        while let Some(&number) = self.missing.first() {
            self.look_at();
            let many = !self.reordering.seen && newest - number >= DUP_THRESH;
            let deadline = self.slot(number).at + wait;
            if !many && deadline > now {
                self.loss_deadline = Some(deadline);
                break;
            }
            self.missing.pop_first();
            self.lose_overtaken(number, now, out);
        }
    }

    #[cold]
    fn detect_by_timers(&mut self, now: Time, out: &mut Revealed) {
        let mut expired = std::mem::take(&mut self.expired);
        self.loss_deadline = None;
        while let Some(&(deadline, number)) = self.timers.first() {
            self.look_at();
            if deadline > now {
                self.loss_deadline = Some(deadline);
                break;
            }
            self.timers.pop_first();
            self.missing.remove(&number);
            expired.push(number);
        }
        // Report them in order of departure, whatever the order of their timers.
        expired.sort_unstable();
        for number in expired.drain(..) {
            self.lose_overtaken(number, now, out);
        }
        self.expired = expired;
    }

    fn lose_overtaken(&mut self, number: u64, now: Time, out: &mut Revealed) {
        self.lose((number - self.base) as usize, now, out);
        self.lost.insert(number);
        self.reordering.on_lost(number, self.next_number);
    }

    /// Counts visits, so that tests can bound the work by what an event brings.
    #[inline]
    fn look_at(&mut self) {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
    }

    fn reorder_window(&self) -> Duration {
        let quarter = self.rtt.least().unwrap_or_default() / 4;
        (quarter * self.reordering.multiplier).min(self.rtt.smoothed())
    }

    fn lose(&mut self, index: usize, now: Time, out: &mut Revealed) {
        let slot = &mut self.slots[index];
        slot.state = PacketState::Lost;
        slot.deadline = now;
        out.lost.push(slot.packet(self.base + index as u64));
        out.lost_data.push(slot.data());
        self.in_flight -= slot.size();
        self.in_flight_packets -= 1;
    }

    /// Lets go of packets whose fate is settled.
    #[inline]
    fn tidy(&mut self, now: Time) {
        if now > self.lost.kept_until {
            self.forget(now);
        }
        while self
            .slots
            .front()
            .is_some_and(|slot| slot.state == PacketState::Done)
        {
            self.slots.pop_front();
            self.base += 1;
        }
    }

    #[cold]
    fn forget(&mut self, now: Time) {
        let remembered = FORGET_AFTER + self.rtt.smoothed() * FORGET_RTTS;
        while let Some(&number) = self.lost.numbers.first() {
            let slot = self.slot_mut(number);
            let since = slot.deadline;
            if now.since(since) <= remembered {
                self.lost.kept_until = since + FORGET_AFTER;
                return;
            }
            slot.state = PacketState::Done;
            self.lost.remove(number);
        }
        self.lost.kept_until = Time::MAX;
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number - self.base) as usize]
    }

    #[inline]
    fn slot_mut(&mut self, number: u64) -> &mut Slot {
        &mut self.slots[(number - self.base) as usize]
    }
}

/// Numbers of packets that are lost, overtaken and remembered.
#[derive(Debug)]
struct Remembered {
    numbers: BTreeSet<u64>,
    /// Nothing is forgotten before this instant, since the oldest is not old enough until then. A lower bound only: in
    /// the past when the oldest has changed since the last look.
    kept_until: Time,
}

impl Default for Remembered {
    fn default() -> Self {
        Remembered {
            numbers: BTreeSet::new(),
            kept_until: Time::MAX,
        }
    }
}

impl Remembered {
    fn insert(&mut self, number: u64) {
        self.numbers.insert(number);
        self.kept_until = Time::ZERO;
    }

    fn remove(&mut self, number: u64) {
        self.numbers.remove(&number);
        self.kept_until = Time::ZERO;
    }

    /// The first of them in `range`.
    fn within(&self, range: NumberRange) -> Option<u64> {
        self.numbers.range(range.first..=range.last).next().copied()
    }
}

/// An acknowledgement and the arrival times that came with it.
#[derive(Debug)]
struct Report<'a> {
    ack: &'a Ack,
    /// By ascending number.
    received: &'a [Received],
}

impl Report<'_> {
    /// When `number` arrived, and how long it waited for the acknowledgement, if that is known.
    #[inline]
    fn arrival(&self, number: u64) -> Option<(Time, Duration)> {
        if self.ack.newest() == number {
            return Some((self.ack.received_at, self.ack.hold));
        }
        let at = self
            .received
            .binary_search_by_key(&number, |received| received.number)
            .ok()?;
        let received = self.received[at];
        Some((received.at, received.hold))
    }
}

/// The ranges of an acknowledgement, oldest first.
fn ascending(ack: &Ack) -> impl Iterator<Item = NumberRange> + use<> {
    let mut ranges = [NumberRange::default(); RANGES_PER_ACK];
    let mut count = 0;
    for (slot, range) in ranges.iter_mut().zip(ack.ranges()) {
        *slot = range;
        count += 1;
    }
    ranges[..count].reverse();
    ranges.into_iter().take(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Bytes = Bytes::new(1000);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn ack(ranges: &[(u64, u64)]) -> Ack {
        let ranges = ranges
            .iter()
            .map(|&(first, last)| NumberRange { first, last });
        Ack::new(ranges, Time::ZERO, Duration::ZERO)
    }

    fn sent(ledger: &mut Ledger, count: u64, at: Time) {
        for _ in 0..count {
            let data = DataRange {
                start: ledger.next_number * 1000,
                len: 1000,
            };
            ledger.on_sent(at, SIZE, Bytes::new(10_000), data);
        }
    }

    fn numbers(list: &[Departure]) -> Vec<u64> {
        list.iter().map(|packet| packet.number).collect()
    }

    fn acked_numbers(list: &[Acked]) -> Vec<u64> {
        list.iter().map(|acked| acked.packet.number).collect()
    }

    #[test]
    fn each_packet_yields_its_own_round_trip_time() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 1, ms(0));
        sent(&mut ledger, 1, ms(7));
        ledger.on_ack(ms(50), &ack(&[(0, 1)]), &[], &mut out);
        let rtts: Vec<_> = out.acked.iter().map(|acked| acked.rtt).collect();
        assert_eq!(rtts, [Duration::from_millis(50), Duration::from_millis(43)]);
        assert_eq!(ledger.in_flight(), Bytes::ZERO);
    }

    #[test]
    fn the_packet_after_a_silence_says_nothing_about_the_path_and_later_ones_do() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        let mut limited = Vec::new();
        for number in 0..3 {
            let at = ms(100 * number);
            let data = DataRange {
                start: number * 1000,
                len: 1000,
            };
            limited.push(ledger.on_sent(at, SIZE, SIZE, data).app_limited);
            let ends = at + Duration::from_millis(40);
            ledger.on_ack(ends, &ack(&[(0, number)]), &[], &mut out);
            if number == 0 {
                ledger.set_app_limited();
            }
        }
        assert_eq!(limited, [false, true, false]);
    }

    #[test]
    fn three_later_arrivals_make_a_loss_at_once() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 5, ms(0));
        ledger.on_ack(ms(40), &ack(&[(2, 2), (0, 0)]), &[], &mut out);
        assert!(
            out.lost.is_empty(),
            "one overtaking packet may be reordering"
        );
        ledger.on_ack(ms(41), &ack(&[(2, 4), (0, 0)]), &[], &mut out);
        assert_eq!(numbers(&out.lost), [1]);
        assert_eq!(
            out.lost_data,
            [DataRange {
                start: 1000,
                len: 1000
            }]
        );
    }

    #[test]
    fn rack_waits_a_quarter_of_the_least_round_trip() {
        // Packet 0 left at 0 ms; packet 1, left at 10 ms, is acknowledged at 50 ms: RACK.rtt is
        // 40 ms and the reordering window 10 ms, so packet 0 is lost at 0 + 40 + 10 = 50 ms.
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 1, ms(0));
        sent(&mut ledger, 1, ms(20));
        ledger.on_ack(ms(60), &ack(&[(1, 1)]), &[], &mut out);
        assert_eq!(
            numbers(&out.lost),
            [0],
            "0 + 40 + 10 ms has passed by 60 ms"
        );
        let mut ledger = Ledger::new(LossRule::Rack);
        sent(&mut ledger, 1, ms(0));
        sent(&mut ledger, 1, ms(5));
        out.clear();
        ledger.on_ack(ms(45), &ack(&[(1, 1)]), &[], &mut out);
        assert!(out.lost.is_empty());
        assert_eq!(ledger.next_loss(), Some(ms(50)));
        ledger.on_loss_timer(ms(50), &mut out);
        assert_eq!(numbers(&out.lost), [0]);
    }

    #[test]
    fn verus_gives_a_missing_packet_three_times_the_delay() {
        let mut ledger = Ledger::new(LossRule::DelayTimer { factor: 3.0 });
        let mut out = Revealed::default();
        sent(&mut ledger, 1, ms(0));
        ledger.on_ack(ms(40), &ack(&[(0, 0)]), &[], &mut out);
        sent(&mut ledger, 6, ms(40));
        ledger.on_ack(ms(80), &ack(&[(2, 6), (0, 0)]), &[], &mut out);
        assert!(
            out.lost.is_empty(),
            "no duplicate threshold under this rule"
        );
        assert_eq!(ledger.next_loss(), Some(ms(80 + 3 * 40)));
        ledger.on_loss_timer(ms(200), &mut out);
        assert_eq!(numbers(&out.lost), [1]);
    }

    #[test]
    fn a_late_acknowledgement_of_a_lost_packet_is_a_recovery() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 5, ms(0));
        ledger.on_ack(ms(40), &ack(&[(1, 4)]), &[], &mut out);
        assert_eq!(numbers(&out.lost), [0]);
        out.clear();
        ledger.on_ack(ms(45), &ack(&[(0, 4)]), &[], &mut out);
        assert_eq!(acked_numbers(&out.recovered), [0]);
        assert!(out.acked.is_empty());
        assert!(
            ledger.reordering.seen,
            "the next gap waits for the reordering window"
        );
    }

    /// A flow with a round trip of 40 ms: five packets leave every 40 ms, and the first of them is
    /// acknowledged `late` after the others. Returns whether it was declared lost before that.
    fn declared_lost(ledger: &mut Ledger, round: u64, late: Option<u64>) -> bool {
        let mut out = Revealed::default();
        let (first, start) = (5 * round, 1000 * round);
        sent(ledger, 5, ms(start));
        ledger.on_ack(
            ms(start + 40),
            &ack(&[(first + 1, first + 4)]),
            &[],
            &mut out,
        );
        let due = late.unwrap_or(500);
        if let Some(at) = ledger.next_loss().filter(|at| *at < ms(start + 40 + due)) {
            ledger.on_loss_timer(at, &mut out);
        }
        if let Some(late) = late {
            let arrives = ms(start + 40 + late);
            ledger.on_ack(arrives, &ack(&[(first, first + 4)]), &[], &mut out);
        }
        !out.lost.is_empty()
    }

    #[test]
    fn the_reordering_window_grows_with_spurious_losses_alone() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let spurious = |ledger: &mut Ledger, rounds, late| -> Vec<bool> {
            let round = ledger.next_number / 5;
            (round..round + rounds)
                .map(|round| declared_lost(ledger, round, Some(late)))
                .collect()
        };
        // Three overtake the first, before any reordering is known. A quarter of 40 ms is then doubled.
        assert_eq!(spurious(&mut ledger, 1, 5), [true]);
        assert_eq!(spurious(&mut ledger, 50, 15), [false; 50]);
        assert_eq!(ledger.reorder_window(), Duration::from_millis(20));
        assert_eq!(spurious(&mut ledger, 4, 25), [true, false, false, false]);
        assert_eq!(ledger.reorder_window(), Duration::from_millis(30));
        // And no further than a round trip.
        spurious(&mut ledger, 20, 400);
        assert_eq!(ledger.reorder_window(), ledger.rtt.smoothed());
    }

    #[test]
    fn the_reordering_window_is_a_quarter_again_after_sixteen_real_losses() {
        let mut ledger = Ledger::new(LossRule::Rack);
        assert!(declared_lost(&mut ledger, 0, Some(5)));
        for round in 1..=16 {
            assert!(declared_lost(&mut ledger, round, None));
            assert_eq!(ledger.reorder_window(), Duration::from_millis(20));
        }
        assert!(declared_lost(&mut ledger, 17, None));
        assert_eq!(ledger.reorder_window(), Duration::from_millis(10));
    }

    #[test]
    fn after_a_timeout_late_acknowledgements_are_honoured() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 3, ms(0));
        ledger.on_timeout(ms(1000), &mut out);
        assert_eq!(numbers(&out.lost), [0, 1, 2]);
        assert_eq!(ledger.in_flight(), Bytes::ZERO);
        sent(&mut ledger, 1, ms(1000));
        out.clear();
        ledger.on_ack(ms(1010), &ack(&[(0, 2)]), &[], &mut out);
        assert_eq!(acked_numbers(&out.recovered), [0]);
        assert_eq!(
            acked_numbers(&out.acked),
            [1, 2],
            "in flight again, and here"
        );
        assert_eq!(ledger.in_flight(), SIZE, "the retransmission is under way");
    }

    #[test]
    fn what_a_spurious_timeout_presumed_lost_is_in_flight_again() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 5, ms(0));
        ledger.on_timeout(ms(1000), &mut out);
        sent(&mut ledger, 1, ms(1000));
        out.clear();
        ledger.on_ack(ms(1010), &ack(&[(0, 0)]), &[], &mut out);
        assert_eq!(out.revived, 4);
        assert_eq!(ledger.in_flight(), SIZE * 5);
        assert_eq!(
            out.recovered_data.len(),
            5,
            "none of it needs to be sent again"
        );
    }

    #[test]
    fn what_a_packet_sent_since_has_overtaken_stays_lost() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 3, ms(0));
        ledger.on_timeout(ms(1000), &mut out);
        sent(&mut ledger, 1, ms(1000));
        out.clear();
        ledger.on_ack(ms(1040), &ack(&[(3, 3)]), &[], &mut out);
        assert_eq!(out.revived, 0);
        ledger.on_ack(ms(1050), &ack(&[(0, 3)]), &[], &mut out);
        assert_eq!(acked_numbers(&out.recovered), [0, 1, 2]);
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_changes_nothing() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 2, ms(0));
        ledger.on_ack(ms(10), &ack(&[(0, 2)]), &[], &mut out);
        assert!(out.is_empty());
        assert_eq!(ledger.in_flight(), SIZE * 2);
    }

    #[test]
    fn lost_packets_are_forgotten_in_time_so_that_the_ring_stays_short() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        sent(&mut ledger, 5, ms(0));
        ledger.on_ack(ms(40), &ack(&[(1, 4)]), &[], &mut out);
        for step in 1..200 {
            sent(&mut ledger, 1, ms(40 + step * 20));
            let newest = ledger.next_number - 1;
            ledger.on_ack(ms(60 + step * 20), &ack(&[(1, newest)]), &[], &mut out);
        }
        assert!(ledger.slots.len() < 3);
        assert!(ledger.lost.numbers.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(u64),
        Ack(Vec<(u64, u64)>),
        LossTimer,
        Timeout,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u64..8).prop_map(Step::Send),
            6 => prop::collection::vec((0u64..120, 0u64..6), 1..4).prop_map(Step::Ack),
            1 => Just(Step::LossTimer),
            1 => Just(Step::Timeout),
        ];
        prop::collection::vec(step, 1..120)
    }

    fn disjoint_descending(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        ranges.sort();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (first, len) in ranges {
            let first = out.last().map_or(first, |&(_, last)| first.max(last + 2));
            out.push((first, first + len));
        }
        out.reverse();
        out
    }

    proptest! {
        #[test]
        fn the_books_balance(steps in steps(), rule in 0..3) {
            let rule = match rule {
                0 => LossRule::Rack,
                1 => LossRule::DelayTimer { factor: 3.0 },
                _ => LossRule::FixedTimer { after: Duration::from_millis(150) },
            };
            let mut ledger = Ledger::new(rule);
            let mut out = Revealed::default();
            let (mut acked, mut lost, mut recovered) = (0, 0, 0);
            let mut fates = std::collections::BTreeMap::new();
            for (index, step) in steps.into_iter().enumerate() {
                let now = ms(index as u64 * 13);
                out.clear();
                match step {
                    Step::Send(count) => sent(&mut ledger, count, now),
                    Step::Ack(ranges) => {
                        ledger.on_ack(now, &ack(&disjoint_descending(ranges)), &[], &mut out);
                    }
                    Step::LossTimer => ledger.on_loss_timer(now, &mut out),
                    Step::Timeout => ledger.on_timeout(now, &mut out),
                }
                acked += out.acked.len() as u64;
                lost += out.lost.len() as u64;
                lost -= out.revived;
                recovered += out.recovered.len() as u64;
                for entry in &out.acked {
                    let before = fates.insert(entry.packet.number, "acked");
                    prop_assert!(matches!(before, None | Some("lost")));
                }
                for packet in &out.lost {
                    let before = fates.insert(packet.number, "lost");
                    prop_assert!(matches!(before, None | Some("lost")));
                }
                for entry in &out.recovered {
                    prop_assert_eq!(fates.insert(entry.packet.number, "recovered"), Some("lost"));
                }
                prop_assert_eq!(ledger.next_number, acked + lost + ledger.in_flight_packets());
                prop_assert_eq!(ledger.in_flight(), SIZE * ledger.in_flight_packets());
                let sum: Bytes = ledger.slots.iter()
                    .filter(|slot| slot.state == PacketState::InFlight).map(|slot| slot.size()).sum();
                prop_assert_eq!(ledger.in_flight(), sum);
                prop_assert_eq!(ledger.delivered(), SIZE * (acked + recovered));
            }
        }
    }

    /// The work for a receiver that leaves out every other packet, and then acknowledges the
    /// missing ones one at a time, from the newest to the oldest.
    fn work_of_gaps(rule: LossRule, packets: u64) -> f64 {
        let mut ledger = Ledger::new(rule);
        let mut out = Revealed::default();
        // Long round trips: long timers.
        sent(&mut ledger, 1, ms(0));
        ledger.on_ack(ms(5000), &ack(&[(0, 0)]), &[], &mut out);
        sent(&mut ledger, packets, ms(5000));
        let (mut now, mut acks) = (ms(10_000), 0);
        for number in (2..=packets).step_by(2) {
            now += Duration::from_micros(1);
            ledger.on_ack(now, &ack(&[(number, number)]), &[], &mut out);
            // Timers that fire while others have long to go.
            if let Some(at) = ledger.next_loss().filter(|at| *at <= now) {
                ledger.on_loss_timer(at, &mut out);
            }
            acks += 1;
        }
        let newest = packets / 2 * 2;
        for number in (0..newest / 2).rev().map(|half| 2 * half + 1) {
            ledger.on_ack(
                now,
                &ack(&[(newest, newest), (number, number)]),
                &[],
                &mut out,
            );
            acks += 1;
        }
        assert_eq!(out.acked.len() + out.recovered.len(), packets as usize + 1);
        ledger.looked_at as f64 / f64::from(acks)
    }

    #[test]
    fn what_a_receiver_leaves_out_costs_as_much_for_many_packets_as_for_few() {
        for rule in [
            LossRule::Rack,
            LossRule::DelayTimer { factor: 3.0 },
            LossRule::FixedTimer {
                after: Duration::from_secs(1000),
            },
        ] {
            let (few, many) = (work_of_gaps(rule, 100), work_of_gaps(rule, 20_000));
            assert!(
                many < 3.0,
                "{rule:?}: {many} packets looked at for each acknowledgement"
            );
            assert!(many < 1.5 * few, "{rule:?}: {few} grew to {many}");
        }
    }

    #[test]
    fn a_packet_left_out_for_ever_does_not_fill_the_memory() {
        // Its timer lasts three times the hour that the first answer took.
        let hour = Time::from_millis(3_600_000);
        let mut ledger = Ledger::new(LossRule::DelayTimer { factor: 3.0 });
        let mut out = Revealed::default();
        sent(&mut ledger, 1, Time::ZERO);
        ledger.on_ack(hour, &ack(&[(0, 0)]), &[], &mut out);
        sent(&mut ledger, 1, hour);
        let mut most_slots = 0;
        for number in 2..3 * MOST_SLOTS as u64 {
            sent(&mut ledger, 1, hour);
            ledger.on_ack(hour, &ack(&[(number, number)]), &[], &mut out);
            most_slots = most_slots.max(ledger.slots.len());
        }
        assert!(most_slots <= MOST_SLOTS, "{most_slots} slots");
        assert_eq!(numbers(&out.lost), [1]);
        assert_eq!(ledger.in_flight(), Bytes::ZERO);
    }

    #[test]
    fn silence_does_not_fill_the_memory() {
        let mut ledger = Ledger::new(LossRule::Rack);
        let mut out = Revealed::default();
        for second in 0..400 {
            sent(&mut ledger, 1000, ms(1000 * second));
            out.clear();
            ledger.on_timeout(ms(1000 * second + 500), &mut out);
            assert!(ledger.slots.len() <= MOST_SLOTS);
        }
        // The remaining packet still counts when it turns up.
        let newest = ledger.next_number - 1;
        out.clear();
        ledger.on_ack(ms(400_000), &ack(&[(newest, newest)]), &[], &mut out);
        assert_eq!(acked_numbers(&out.recovered), [newest]);
        assert_eq!(ledger.in_flight(), Bytes::ZERO);
    }
}
