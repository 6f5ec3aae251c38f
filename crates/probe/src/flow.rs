//! One direction of one flow: the core's sender or receiver, its measurements, and the packets that
//! carry it.

use std::collections::VecDeque;
use std::io;

use hdrhistogram::Histogram;
use verus_core::controller::{Arrival, Observer};
use verus_core::receiver::{
    Ack, DataRange, NumberRange, RANGES_PER_ACK, Received, Receiver, ReceiverConfig,
};
use verus_core::sender::FalseAck;
use verus_core::{Bytes, Duration, Ecn, Rate, Time};
use verus_measure::PathMeter;
use verus_measure::qlog::{Qlog, Written};
use verus_senders::{Built, Scheme, Sender};

use super::seal::{Freshness, Key, ReplayWindow};
use super::wire::{self, AckBody, Data, FlowStatus, MAX_RANGES, MAX_RUNS, MAX_TIMES, Run};

/// Width of the bins of time series.
pub const BIN: Duration = Duration::from_millis(100);

/// An acknowledgement repeats the latest arrival times up to this many runs, so that a few lost
/// acknowledgements cost no sample.
const RUNS_REPEATED: usize = 8;

/// Where acknowledgements carry the arrival times of many packets, each arrival time is repeated in this many of them.
const REPEATS_OF_MANY: usize = 2;

/// Arrivals that wait to be reported, or are repeated: a burst read at once needs more than one
/// acknowledgement.
const RUNS_KEPT: usize = 1024;

/// Pieces of out-of-order data that a receiver remembers: at most 64 KiB a flow.
const PIECES_KEPT: usize = 4096;

/// The longest time for which a receiver may claim to have held an acknowledgement back (the
/// default of RFC 9000 §18.2). A longer claim would hide queueing from the controller.
const LONGEST_HOLD: Duration = Duration::from_millis(25);

/// A sender has at most this much in flight, whatever its window: bounds the ledger's memory.
const MOST_IN_FLIGHT: Bytes = Bytes::new(64 << 20);

/// Header, body with the longest option, and tag of a data packet.
const LONGEST_DATA_HEAD: usize = wire::HEADER_BYTES + 28 + 2 + 255 + wire::TAG_BYTES;

/// An event of a packet, as the controller's end observed it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A packet left.
    Sent {
        /// Its flow.
        flow: u16,
        /// Its number.
        number: u64,
        /// When.
        at: Time,
        /// Its size (IP).
        size: Bytes,
        /// The controller's window just before.
        window: Bytes,
        /// Whether its data left before.
        retransmission: bool,
    },
    /// A packet was acknowledged.
    Acked {
        /// Its flow.
        flow: u16,
        /// Its number.
        number: u64,
        /// When the acknowledgement was processed.
        at: Time,
        /// When it had left.
        sent: Time,
        /// Its round-trip time, the receiver's hold and this end's own delay in reading removed.
        rtt: Duration,
        /// The window at its departure, as reported to the controller.
        window: Bytes,
        /// Its arrival by the receiver's clock, if known.
        received: Option<Time>,
    },
    /// A packet was declared lost.
    Lost {
        /// Its flow.
        flow: u16,
        /// Its number.
        number: u64,
        /// When.
        at: Time,
    },
    /// A packet arrived.
    Received {
        /// Its flow.
        flow: u16,
        /// Its number.
        number: u64,
        /// When, by this end's clock.
        at: Time,
        /// When it left, by the sender's clock.
        sent: Time,
        /// Its size (IP).
        size: Bytes,
        /// How many bytes of its data are new.
        new: Bytes,
    },
    /// The receiver reported when a packet arrived, also for one declared lost long ago, and
    /// perhaps repeatedly.
    Told {
        /// Its flow.
        flow: u16,
        /// Its number.
        number: u64,
        /// Its arrival by the receiver's clock.
        received: Time,
    },
    /// A packet that carries no data left, or arrived.
    Control {
        /// Whether it left.
        sent: bool,
        /// When.
        at: Time,
        /// Its size (IP).
        size: Bytes,
    },
}

/// A flow's load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Size of its packets (IP).
    pub packet_size: Bytes,
    /// How much in all; `None` for without end.
    pub bytes: Option<Bytes>,
    /// How fast the source yields it; `None` for at once.
    pub rate: Option<Rate>,
}

/// The data not yet offered to the sender.
#[derive(Debug)]
struct Source {
    left: Option<Bytes>,
    /// The next instalment: when, and how far apart; `None` when all was offered at once.
    instalment: Option<(Time, Duration)>,
    /// Bytes offered so far, and how many of them have left.
    offered: u64,
    taken: u64,
}

impl Source {
    /// The bytes due by `now`, in instalments of `size`. It is one division, however many
    /// instalments are due.
    fn due(&mut self, now: Time, size: Bytes) -> Bytes {
        let Some((due, every)) = self.instalment.filter(|(due, _)| *due <= now) else {
            return Bytes::ZERO;
        };
        let every = every.max(Duration::from_nanos(1));
        let count = now.since(due).as_nanos() / every.as_nanos() + 1;
        let mut offered = Bytes::new(size.get().saturating_mul(count));
        if let Some(left) = &mut self.left {
            offered = offered.min(*left);
            *left -= offered;
        }
        self.instalment = if self.left == Some(Bytes::ZERO) {
            None
        } else {
            Some((due + every * count, every))
        };
        self.offered = self.offered.saturating_add(offered.get());
        offered
    }

    /// When the next instalment is wanted: not while the last ones wait to leave.
    fn next(&self) -> Option<Time> {
        let (due, _) = self.instalment?;
        (self.taken >= self.offered).then_some(due)
    }
}

/// The sending half of a flow.
#[derive(Debug)]
pub struct Outgoing {
    flow: u16,
    packet_size: Bytes,
    sender: Sender,
    source: Source,
    meter: PathMeter,
    replays: ReplayWindow,
    repeats: u64,
    revived: u64,
    last_rtt: Duration,
    /// Distinct bytes received and packets with a mark, as the receiver reports them.
    distinct: u64,
    marks: u32,
    received: Vec<Received>,
    ranges: Vec<NumberRange>,
    /// By how much epochs ended late, µs.
    lateness: Histogram<u32>,
    events: Option<Vec<Event>>,
    qlog: Option<Box<Qlog>>,
    finished: bool,
}

impl Outgoing {
    /// A flow that sends `load` under `controller`, beginning now. `seed` chooses the packet numbers
    /// that are skipped.
    pub fn new(flow: u16, controller: Built, load: &Load, seed: u64, now: Time, log: bool) -> Self {
        let mut sender = Sender::new(controller, load.packet_size, now);
        sender.skip_numbers(seed);
        let instalment = load.rate.map(|rate| (now, rate.time_for(load.packet_size)));
        if instalment.is_none() {
            match load.bytes {
                Some(bytes) => sender.offer(bytes),
                None => sender.offer_bulk(),
            }
        }
        Outgoing {
            flow,
            packet_size: load.packet_size,
            sender,
            source: Source {
                left: load.bytes,
                instalment,
                offered: 0,
                taken: 0,
            },
            meter: PathMeter::new(now, BIN),
            replays: ReplayWindow::default(),
            repeats: 0,
            revived: 0,
            last_rtt: Duration::ZERO,
            distinct: 0,
            marks: 0,
            received: Vec::new(),
            ranges: Vec::new(),
            lateness: Histogram::new_with_max(60_000_000, 2)
                .expect("constant bounds within the library's limits"),
            events: log.then(Vec::new),
            qlog: None,
            finished: false,
        }
    }

    /// Writes the sender's later events to a log.
    pub fn log_to(&mut self, qlog: Qlog) {
        self.qlog = Some(Box::new(qlog));
    }

    /// Ends the log, if there is one.
    ///
    /// # Errors
    /// The error while it was written.
    pub fn end_log(&mut self) -> io::Result<Option<Written>> {
        self.qlog.take().map(|qlog| qlog.finish()).transpose()
    }

    /// Writes the next packet into `segment`, which it fills, and seals it; `None` if there is none
    /// to send now.
    #[inline]
    pub fn transmit(
        &mut self,
        now: Time,
        connection: u64,
        key: &Key,
        segment: &mut [u8],
    ) -> Option<()> {
        if self.sender.in_flight() >= MOST_IN_FLIGHT {
            return None;
        }
        self.offer_due(now);
        let window = self.sender.controller().window();
        let packet = self.sender.poll_transmit(now)?;
        self.source.taken = self.source.taken.max(packet.data.start + packet.data.len);
        let data = Data {
            number: packet.number,
            sent_nanos: now.as_nanos(),
            start: packet.data.start,
            len: packet.data.len as u32,
            stamp: packet.stamp.as_ref().map(|stamp| stamp.as_slice()),
        };
        let covered = data.encode(self.flow, connection, segment);
        let end = key.seal(segment, covered);
        // A packet with longer options may have left bytes here; beyond that, padding is in place
        // already.
        let head = segment.len().min(LONGEST_DATA_HEAD);
        wire::pad(&mut segment[..head], end.min(head));
        if let Some(events) = &mut self.events {
            events.push(Event::Sent {
                flow: self.flow,
                number: packet.number,
                at: now,
                size: packet.size,
                window,
                retransmission: packet.retransmission,
            });
        }
        if let Some(qlog) = &mut self.qlog {
            qlog.on_sent(now, &packet);
            qlog.look(now, &self.sender);
        }
        Some(())
    }

    /// An acknowledgement came, which reached this end at `arrival` and is read at `now`.
    ///
    /// # Errors
    /// If it acknowledges packets that cannot have been received.
    pub fn on_ack(
        &mut self,
        now: Time,
        arrival: Time,
        body: &AckBody,
        report: Option<&[u8]>,
    ) -> Result<(), FalseAck> {
        if self.replays.note(body.ack_number) == Freshness::Repeat {
            self.repeats += 1;
            return Ok(());
        }
        let waited = now.since(arrival);
        self.distinct = self.distinct.max(body.distinct);
        self.received.clear();
        for run in body.runs.iter().rev() {
            let last = body.newest - u64::from(run.below);
            let age = Duration::from_nanos(u64::from(run.age_nanos));
            if run.age_nanos == u32::MAX {
                continue; // longer ago than the field can say
            }
            let at = Time::from_nanos(body.sent_nanos.saturating_sub(age.as_nanos()));
            for number in last + 1 - u64::from(run.count)..=last {
                self.received.push(Received {
                    number,
                    at,
                    hold: age.min(LONGEST_HOLD) + waited,
                });
                if let Some(events) = &mut self.events {
                    events.push(Event::Told {
                        flow: self.flow,
                        number,
                        received: at,
                    });
                }
            }
        }
        self.ranges.clear();
        let mut above = body.newest + 1;
        for (index, &span) in body.spans.iter().enumerate() {
            let first = above - u64::from(span);
            if index % 2 == 0 {
                self.ranges.push(NumberRange {
                    first,
                    last: above - 1,
                });
            }
            above = first;
        }
        // The core takes a few ranges at a time: the oldest first, as if acknowledged before.
        let mut report = report;
        for index in (0..self.ranges.len().div_ceil(RANGES_PER_ACK)).rev() {
            let from = index * RANGES_PER_ACK;
            let to = self.ranges.len().min(from + RANGES_PER_ACK);
            let newest = self.ranges[from].last;
            let (received_at, hold) = self
                .received
                .binary_search_by_key(&newest, |received| received.number)
                .map_or((Time::from_nanos(body.sent_nanos), waited), |at| {
                    (self.received[at].at, self.received[at].hold)
                });
            let mut ack = Ack::new(self.ranges[from..to].iter().copied(), received_at, hold);
            let report = if index == 0 {
                self.marks = body.marks;
                report.take()
            } else {
                None
            };
            ack.marks = self.marks;
            self.sender
                .on_ack_with_times(now, &ack, &self.received, report)?;
            self.note_revealed(now);
            if let Some(qlog) = &mut self.qlog {
                qlog.on_heard(now, &self.sender, None);
                qlog.look(now, &self.sender);
            }
        }
        Ok(())
    }

    /// Measures the news of the last event.
    fn note_revealed(&mut self, now: Time) {
        let revealed = self.sender.last_revealed();
        for acked in revealed.acked.iter().chain(&revealed.recovered) {
            let number = acked.packet.number;
            let received = self
                .received
                .binary_search_by_key(&number, |received| received.number)
                .ok()
                .map(|at| self.received[at].at);
            self.meter.on_delivered(now, acked.packet.size);
            self.meter.on_rtt(now, acked.rtt);
            if let Some(received) = received {
                self.meter.on_one_way(now, acked.packet.at, received);
            }
            self.last_rtt = acked.rtt;
            if let Some(events) = &mut self.events {
                events.push(Event::Acked {
                    flow: self.flow,
                    number,
                    at: now,
                    sent: acked.packet.at,
                    rtt: acked.rtt,
                    window: acked.packet.window,
                    received,
                });
            }
        }
        self.revived += revealed.revived;
        if !revealed.lost.is_empty() {
            self.meter.on_lost(now, revealed.lost.len() as u64);
            if let Some(events) = &mut self.events {
                events.extend(revealed.lost.iter().map(|packet| Event::Lost {
                    flow: self.flow,
                    number: packet.number,
                    at: now,
                }));
            }
        }
    }

    /// The instant of [`next_timer`](Self::next_timer) has come, perhaps late.
    pub fn on_timer(&mut self, now: Time) {
        // A flow that had nothing to send and nothing under way skips its epochs.
        let waited = self.sender.next_timer().is_some_and(|at| at <= now);
        self.offer_due(now);
        if self.sender.next_timer().is_some_and(|at| at <= now) {
            if let Some(tick) = self.sender.controller().next_tick()
                && tick <= now
                && waited
            {
                self.lateness.saturating_record(now.since(tick).as_micros());
            }
            let before = *self.sender.counters();
            self.sender.on_timer(now);
            if self.sender.counters().lost != before.lost {
                self.received.clear();
                // A timer reveals only losses.
                self.note_revealed(now);
            }
            if let Some(qlog) = &mut self.qlog {
                qlog.on_timer(now, &self.sender);
                qlog.look(now, &self.sender);
            }
        }
    }

    /// Offers the data that the source has yielded by now.
    fn offer_due(&mut self, now: Time) {
        let offered = self.source.due(now, self.packet_size);
        if !offered.is_zero() {
            self.sender.offer(offered);
        }
    }

    /// When to call [`on_timer`](Self::on_timer) next, if at all.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        match (self.sender.next_timer(), self.source.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Packets in flight.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.sender.in_flight().get() / self.packet_size.get()
    }

    /// Nothing more is sent, lost or not.
    pub fn stop(&mut self) {
        self.source.instalment = None;
        self.source.left = Some(Bytes::ZERO);
        self.sender.stop();
    }

    /// Whether all that was offered, and ever will be, is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.source.instalment.is_none() && self.sender.is_idle()
    }

    /// Nothing more will come of this flow.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether [`finish`](Self::finish) was called.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Packets declared lost and not acknowledged after all.
    pub fn lost(&self) -> u64 {
        let counters = self.sender.counters();
        counters
            .lost
            .saturating_sub(counters.recovered + self.revived)
    }

    /// How far the flow is.
    pub fn status(&self) -> FlowStatus {
        let micros = |ms: Option<f64>| (ms.unwrap_or(0.0) * 1e3) as u32;
        let counters = self.sender.counters();
        FlowStatus {
            flow: self.flow,
            finished: self.finished,
            sent: counters.sent,
            retransmitted: counters.retransmitted,
            lost: self.lost(),
            timeouts: u32::try_from(counters.timeouts).unwrap_or(u32::MAX),
            acked: self.meter.delivered().get(),
            window: self.sender.controller().window().get(),
            rtt_micros: u32::try_from(self.last_rtt.as_micros()).unwrap_or(u32::MAX),
            rtt_mean_micros: micros(self.meter.rtt_mean_ms()),
            rtt_p95_micros: micros(self.meter.rtt_quantile_ms(0.95)),
        }
    }

    /// Bytes of data that the receiver says it has, copies not counted.
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Acknowledgements that came twice.
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// The flow's measurements.
    pub fn meter(&self) -> &PathMeter {
        &self.meter
    }

    /// The core's sender.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// By how much epochs ended late, µs.
    pub fn lateness(&self) -> &Histogram<u32> {
        &self.lateness
    }

    /// The events since the last call, if they are logged.
    pub fn drain_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.iter_mut().flat_map(|events| events.drain(..))
    }
}

/// Packets of consecutive numbers that arrived at one instant.
#[derive(Clone, Copy, Debug)]
struct Together {
    first: u64,
    count: u64,
    at: Time,
}

/// The ranges of received numbers that one acknowledgement names.
#[derive(Debug, Default)]
struct Named {
    ranges: Vec<NumberRange>,
}

impl Named {
    /// Only the newest range so far.
    fn begin(&mut self, receiver: &Receiver) {
        self.ranges.clear();
        self.ranges.extend(receiver.ranges().next());
    }

    /// Adds a range; `false` if there is no room for it.
    fn add(&mut self, range: NumberRange) -> bool {
        let covers = |named: &NumberRange| named.first <= range.first && range.last <= named.last;
        if self.ranges.iter().any(covers) {
            return true;
        }
        let room = self.ranges.len() < MAX_RANGES;
        if room {
            self.ranges.push(range);
        }
        room
    }

    /// Adds the range in which packets arrived; themselves, if it is below all that the receiver remembers.
    fn add_run(&mut self, receiver: &Receiver, run: &Together) -> bool {
        let alone = NumberRange {
            first: run.first,
            last: run.first + run.count - 1,
        };
        self.ranges[0].first <= alone.first
            || self.add(receiver.range_of(run.first).unwrap_or(alone))
    }

    /// The ranges, newest first, disjoint and not adjacent.
    fn ranges(&mut self) -> impl Iterator<Item = NumberRange> + '_ {
        (self.ranges).sort_unstable_by_key(|range| std::cmp::Reverse(range.last));
        self.ranges.dedup_by(|below, above| {
            let touches = below.last.saturating_add(1) >= above.first;
            if touches {
                above.first = above.first.min(below.first);
            }
            touches
        });
        self.ranges.iter().copied()
    }
}

/// The receiving half of a flow.
#[derive(Debug)]
pub struct Incoming {
    flow: u16,
    receiver: Receiver,
    /// Number of acknowledgements that report each arrival.
    repeats: usize,
    observer: Option<Box<dyn Observer>>,
    meter: PathMeter,
    /// The latest arrivals, in their order.
    recent: VecDeque<Together>,
    /// How many of these no acknowledgement has reported yet.
    untold: usize,
    /// Whether to report more of them at once, since the last acknowledgement was full.
    more: bool,
    ack_number: u64,
    body: AckBody,
    named: Named,
    sorted: Vec<Together>,
    report: Vec<u8>,
    copies: u64,
    events: Option<Vec<Event>>,
}

impl Incoming {
    /// A flow of which nothing has come yet, acknowledged as `algorithms` ask for.
    pub fn new(flow: u16, algorithms: &dyn Algorithms, now: Time, log: bool) -> Self {
        let config = algorithms.receiver();
        let mut receiver = Receiver::new(config);
        receiver.keep_pieces(PIECES_KEPT);
        Incoming {
            flow,
            receiver,
            repeats: if config.ack_every > 1 {
                REPEATS_OF_MANY
            } else {
                1
            },
            observer: algorithms.observer(),
            meter: PathMeter::new(now, BIN),
            recent: VecDeque::with_capacity(MAX_RUNS + 1),
            untold: 0,
            more: false,
            ack_number: 0,
            body: AckBody::default(),
            named: Named::default(),
            sorted: Vec::new(),
            report: Vec::new(),
            copies: 0,
            events: log.then(Vec::new),
        }
    }

    /// A packet of `size` (IP) arrived at `arrival`, with this code point.
    pub fn on_data(&mut self, arrival: Time, size: Bytes, ecn: Ecn, data: &Data<'_>) {
        let range = DataRange {
            start: data.start,
            len: u64::from(data.len),
        };
        let copy = self.receiver.has(data.number);
        let new = self.receiver.on_packet(arrival, data.number, range);
        if copy {
            self.copies += 1;
            return; // acknowledged again, but measured once
        }
        if ecn == Ecn::Ce {
            self.receiver.on_mark(arrival);
        }
        let sent = Time::from_nanos(data.sent_nanos);
        self.meter.on_delivered(arrival, size);
        self.meter.on_one_way(arrival, sent, arrival);
        if let Some(observer) = &mut self.observer {
            observer.on_packet(&Arrival {
                at: arrival,
                number: data.number,
                size,
                stamp: data.stamp,
            });
        }
        if let Some(events) = &mut self.events {
            events.push(Event::Received {
                flow: self.flow,
                number: data.number,
                at: arrival,
                sent,
                size,
                new,
            });
        }
        match self.recent.back_mut() {
            Some(last) if last.first + last.count == data.number && last.at == arrival => {
                last.count += 1;
                self.untold = self.untold.max(1);
            }
            _ => {
                self.recent.push_back(Together {
                    first: data.number,
                    count: 1,
                    at: arrival,
                });
                self.untold += 1;
                if self.recent.len() > RUNS_KEPT {
                    self.recent.pop_front();
                    self.untold = self.untold.min(RUNS_KEPT);
                }
            }
        }
    }

    /// Writes the acknowledgement that is due, if one is; returns its length.
    pub fn transmit(
        &mut self,
        now: Time,
        connection: u64,
        key: &Key,
        buffer: &mut [u8],
    ) -> Option<usize> {
        // A full acknowledgement continues in the next.
        if self.receiver.poll_ack(now).is_none() && !self.more {
            return None;
        }
        let body = &mut self.body;
        body.ack_number = self.ack_number;
        self.ack_number += 1;
        body.sent_nanos = now.as_nanos();
        body.distinct = self.receiver.distinct().get();
        body.marks = self.receiver.marks();
        // Each arrival is named in some acknowledgement, however many ranges there are: those that this one has no room
        // for follow in the next.
        let total = self.recent.len();
        let from = total - self.untold;
        self.named.begin(&self.receiver);
        let room = self.recent.range(from..).take(MAX_RUNS);
        let to = from
            + room
                .take_while(|run| self.named.add_run(&self.receiver, run))
                .count();
        self.more = to < total;
        self.untold = total - to;
        let repeated_runs = (total - from) * self.repeats;
        let from = if self.more {
            from
        } else {
            total - repeated_runs.max(RUNS_REPEATED).min(total).min(MAX_RUNS)
        };
        // Arrivals whose earlier report may have been lost, and then the highest.
        let repeated = self.recent.range(from..to).rev();
        repeated
            .take_while(|run| self.named.add_run(&self.receiver, run))
            .for_each(drop);
        let highest = self.receiver.ranges();
        highest
            .take_while(|range| self.named.add(*range))
            .for_each(drop);
        body.spans.clear();
        body.newest = 0;
        let mut below = None;
        for range in self.named.ranges() {
            let Ok(received) = u32::try_from(range.last - range.first + 1) else {
                break; // four billion numbers: no honest client comes here
            };
            match below {
                None => body.newest = range.last,
                Some(below) => {
                    let Ok(missing) = u32::try_from(below - range.last - 1) else {
                        break;
                    };
                    body.spans.push(missing);
                }
            }
            body.spans.push(received);
            below = Some(range.first);
        }
        if body.spans.is_empty() {
            return None;
        }
        self.sorted.clear();
        self.sorted.extend(self.recent.range(from..to));
        self.sorted
            .sort_unstable_by_key(|together| std::cmp::Reverse(together.first));
        body.runs.clear();
        let mut times = 0;
        let mut lowest = u64::MAX;
        for together in &self.sorted {
            let last = together.first + together.count - 1;
            if last >= lowest {
                continue; // a copy of a packet below all that is remembered
            }
            lowest = together.first;
            let (Some(Ok(below)), Ok(count)) = (
                body.newest.checked_sub(last).map(u16::try_from),
                u16::try_from(together.count),
            ) else {
                continue; // too far below the newest for the field
            };
            // Skipped runs use no room.
            times += usize::from(count);
            if times > MAX_TIMES {
                break;
            }
            let age = now.since(together.at).as_nanos();
            body.runs.push(Run {
                below,
                count,
                age_nanos: u32::try_from(age).unwrap_or(u32::MAX),
            });
        }
        self.report.clear();
        if let Some(observer) = &self.observer {
            observer.write_report(&mut self.report);
        }
        let report = (!self.report.is_empty()).then_some(&self.report[..]);
        let covered = self.body.encode(self.flow, connection, report, buffer);
        Some(key.seal(buffer, covered))
    }

    /// The instant of [`next_timer`](Self::next_timer) has come, perhaps late.
    pub fn on_timer(&mut self, now: Time) {
        if let Some(observer) = &mut self.observer
            && observer.next_tick().is_some_and(|at| at <= now)
        {
            observer.on_tick(now);
        }
    }

    /// When an acknowledgement falls due or the observer wants to be woken.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        let tick = self
            .observer
            .as_ref()
            .and_then(|observer| observer.next_tick());
        match (self.receiver.next_timer(), tick) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Bytes of data received, copies not counted.
    pub fn distinct(&self) -> u64 {
        self.receiver.distinct().get()
    }

    /// Packets that arrived twice.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// The flow's measurements.
    pub fn meter(&self) -> &PathMeter {
        &self.meter
    }

    /// The events since the last call, if they are logged.
    pub fn drain_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.iter_mut().flat_map(|events| events.drain(..))
    }
}

/// The controller of each flow and the receiver half of its algorithm.
pub trait Algorithms {
    /// A controller for the flow with this seed.
    fn controller(&self, seed: u64) -> Built;
    /// The receiver half for one flow, if there is one.
    fn observer(&self) -> Option<Box<dyn Observer>>;
    /// When packets are acknowledged.
    fn receiver(&self) -> ReceiverConfig {
        ReceiverConfig::default()
    }
    /// The rate at which a flow sends whatever becomes of it, for those that do.
    fn fixed_rate(&self) -> Option<Rate> {
        None
    }
    /// Why this configuration costs this end much more than the defaults, as text; `sends` says
    /// whether it runs the sender.
    fn extra_cost(&self, _sends: bool) -> Option<String> {
        None
    }
}

impl Algorithms for Scheme {
    fn controller(&self, seed: u64) -> Built {
        self.build(seed)
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        Scheme::observer(self)
    }

    fn receiver(&self) -> ReceiverConfig {
        Scheme::receiver(self)
    }

    fn fixed_rate(&self) -> Option<Rate> {
        Scheme::fixed_rate(self)
    }

    fn extra_cost(&self, sends: bool) -> Option<String> {
        Scheme::extra_cost(self, sends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use std::collections::BTreeSet;

    /// Reads the acknowledgements of `flow` now: the numbers that each one names.
    fn acknowledged(flow: &mut Incoming, now: Time) -> Vec<AckBody> {
        let key = Key::handshake(None);
        let mut buffer = vec![0; 1 << 12];
        let mut bodies = Vec::new();
        while let Some(len) = flow.transmit(now, 0, &key, &mut buffer) {
            let packet = wire::Packet::parse(&buffer[..len]).expect("we wrote it");
            let mut body = AckBody::default();
            body.decode(&packet).expect("we wrote it");
            bodies.push(body);
        }
        bodies
    }

    fn named(body: &AckBody) -> impl Iterator<Item = u64> + '_ {
        let mut above = body.newest + 1;
        let spans = body.spans.iter().enumerate();
        spans.flat_map(move |(index, span)| {
            let (first, end) = (above - u64::from(*span), above);
            above = first;
            (first..end).filter(move |_| index % 2 == 0)
        })
    }

    proptest! {
        /// In the order of their lateness, read this many at a time.
        #[test]
        fn each_packet_is_named_at_once_whatever_the_order_and_however_many_are_read_at_once(
            late in prop::collection::vec(prop_oneof![3 => Just(0u64), 1 => 1u64..2000], 1..1500),
            lost in 1usize..20,
            at_once in 1usize..100,
        ) {
            let scheme = Scheme::parse("verus").expect("it is in the list");
            let mut flow = Incoming::new(0, &scheme, Time::ZERO, false);
            let mut order: Vec<u64> = (0..late.len() as u64).collect();
            order.sort_by_key(|number| number + late[*number as usize]);
            order.retain(|number| *number == 0 || !(*number as usize).is_multiple_of(lost + 1));
            let mut arrived = BTreeSet::new();
            for (index, numbers) in order.chunks(at_once).enumerate() {
                let now = Time::from_millis(index as u64);
                for &number in numbers {
                    let data = Data {
                        number,
                        sent_nanos: 0,
                        start: number * 1000,
                        len: 1000,
                        stamp: None,
                    };
                    flow.on_data(now, Bytes::new(1000), Ecn::NotEct, &data);
                }
                arrived.extend(numbers);
                let bodies = acknowledged(&mut flow, now);
                let all: BTreeSet<u64> = bodies.iter().flat_map(named).collect();
                prop_assert!(numbers.iter().all(|number| all.contains(number)));
                prop_assert!(all.is_subset(&arrived));
                prop_assert!(bodies.len() <= 1 + numbers.len() / 15);
            }
        }
    }
}
