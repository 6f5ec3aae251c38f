//! A link: a queue, and what serves it.
//!
//! The caller owns the clock. It says when a packet arrives ([`Link::enqueue`]) and, at the instant that
//! [`Link::next_departure`] names, takes what leaves ([`Link::depart`]). At one instant arrivals
//! come before departures, so a packet that arrives at t may use an opportunity at t.
//!
//! ```text
//!              refused                dropped (CoDel)
//!                 ▲                        ▲
//! enqueue ──► discipline ──► waiting ──► select ──► sending ──► depart
//!                                          ▲            ▲
//!                                  an opportunity, or the rate
//! ```
//!
//! A trace-driven link works as Mahimahi's. Each opportunity carries a fixed number of bytes, a
//! packet may use parts of several, and the rest of one goes to the next packet waiting at that
//! instant. When nothing waits, an opportunity, or the rest of one, is lost.

use std::collections::VecDeque;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use verus_core::{Bytes, Duration, Rate, Time};

pub use crate::packet::Departed;
use crate::packet::Packet;
use crate::queue::{Arrival, Discipline, Head, QueueConfig, Verdict};
use crate::schedule::{BYTE, RateSchedule};
use crate::trace::{Cursor, Trace};

/// The source of a link's capacity.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Delivery opportunities from a trace.
    Trace {
        /// The times of the opportunities.
        trace: Arc<Trace>,
        /// Bytes that each opportunity carries: 1504 in Mahimahi (a 1500-byte packet and its 4-byte device header).
        opportunity: Bytes,
        /// The behaviour after the last opportunity.
        end: WhenOver,
    },
    /// A rate that changes in steps. A packet being sent when it changes is finished at the new rate; rate
    /// zero is an outage.
    Rate(RateSchedule),
    /// A rate, whenever a [medium](crate::medium) that both directions share lets the link send
    /// ([`Link::take`]).
    Shared(RateSchedule),
}

/// The behaviour of a trace after its last opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenOver {
    /// Begins again, with the time of its last opportunity as period.
    Loop,
    /// Delivers nothing more.
    End,
}

/// A queue and what serves it, without a clock. In the steady state nothing is allocated.
#[derive(Debug)]
pub struct Link<P> {
    backlog: Backlog<P>,
    /// Whether the packet at the front is being sent; then it has left the queue, but not the link.
    sending: bool,
    next: Option<Time>,
    discipline: Discipline<P>,
    server: Server,
}

/// The packets in the link in order of arrival.
#[derive(Clone, Debug)]
struct Backlog<P> {
    packets: VecDeque<Departed<P>>,
    /// How many packets wait in queues that the discipline keeps itself (FQ-CoDel); then only the packet being sent is
    /// in this backlog.
    kept: usize,
    /// Bytes that wait: all but those of the packet being sent.
    waiting: u64,
}

impl<P> Backlog<P> {
    #[inline]
    fn len(&self) -> usize {
        self.packets.len() + self.kept
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.kept == 0
    }
}

#[derive(Clone, Debug)]
enum Server {
    Trace(TraceServer),
    Rate(RateServer),
    Shared(RateServer),
}

impl<P: Packet> Link<P> {
    /// An empty link at time zero. Only the queue discipline draws from `rng`.
    pub fn new(service: Service, queue: &QueueConfig, rng: ChaCha8Rng) -> Self {
        let server = match service {
            Service::Trace {
                trace,
                opportunity,
                end,
            } => {
                assert!(
                    !opportunity.is_zero(),
                    "an opportunity carries at least a byte"
                );
                let cursor = Cursor::new(trace, end == WhenOver::Loop);
                Server::Trace(TraceServer {
                    cursor,
                    opportunity: opportunity.get(),
                    remaining: 0,
                })
            }
            Service::Rate(schedule) => Server::Rate(RateServer::new(schedule)),
            Service::Shared(schedule) => Server::Shared(RateServer::new(schedule)),
        };
        Link {
            backlog: Backlog {
                packets: VecDeque::new(),
                kept: 0,
                waiting: 0,
            },
            sending: false,
            next: None,
            discipline: Discipline::new(queue, rng),
            server,
        }
    }

    /// A packet of `size` reaches the queue at `now`. Everything due to leave earlier must have left. Packets that the
    /// discipline drops to make room go to `dropped`.
    ///
    /// # Errors
    /// Gives the packet back if the discipline refuses it.
    #[inline(always)]
    pub fn enqueue(
        &mut self,
        now: Time,
        size: Bytes,
        mut packet: P,
        mut dropped: impl FnMut(Departed<P>),
    ) -> Result<(), P> {
        debug_assert!(
            self.next.is_none_or(|next| next >= now),
            "departures before {now:?} first"
        );
        let mut idle = self.backlog.is_empty();
        let unused = if idle {
            self.server.unused(now, &self.discipline)
        } else {
            None
        };
        let wait = if self.discipline.asks_wait() {
            self.wait(now)
        } else {
            Duration::ZERO
        };
        let arrival = Arrival {
            now,
            size: size.get(),
            waiting_bytes: self.backlog.waiting,
            waiting_packets: self.backlog.len() as u64 - u64::from(self.sending),
            unused,
            wait,
            ecn: packet.ecn(),
        };
        match self.discipline.admit(&arrival) {
            Verdict::Take => {}
            Verdict::Mark => packet.mark(),
            Verdict::Refuse => return Err(packet),
        }
        let packet = Departed {
            packet,
            size,
            entered: now,
        };
        self.backlog.waiting += size.get();
        if self.discipline.keeps() {
            idle |= self.keep(packet, &mut dropped)?;
        } else {
            self.backlog.packets.push_back(packet);
        }
        if idle {
            match &self.server {
                Server::Trace(server) => self.next = server.cursor.time(),
                Server::Rate(_) => self.start(now, dropped),
                Server::Shared(_) => {}
            }
        }
        Ok(())
    }

    /// When to call [`Link::depart`] next; `None` while there is nothing to send or the service is
    /// over. O(1).
    #[inline]
    pub fn next_departure(&self) -> Option<Time> {
        self.next
    }

    /// Takes the packet that leaves at the instant that [`Link::next_departure`] named. A call at a later `now` acts as
    /// of that instant, so that a late real-time caller repeats the call until nothing more is due. Packets that the
    /// discipline drops from the head go to `dropped`. `None` if the packet at the head needs more opportunities and
    /// only begins to be sent at this instant.
    #[inline]
    pub fn depart(
        &mut self,
        now: Time,
        mut dropped: impl FnMut(Departed<P>),
    ) -> Option<Departed<P>> {
        let at = self.next.filter(|at| *at <= now)?;
        if !self.sending {
            if let Server::Trace(server) = &mut self.server {
                server.take_opportunity();
            }
            self.start(at, &mut dropped);
            if self.next != Some(at) {
                return None;
            }
        }
        let departed = self.backlog.packets.pop_front()?;
        self.sending = false;
        if self.backlog.is_empty() {
            self.server.on_idle(at);
            self.next = None;
        } else {
            match &self.server {
                Server::Trace(server) if server.remaining == 0 => self.next = server.cursor.time(),
                _ => self.start(at, dropped),
            }
        }
        Some(departed)
    }

    /// The size of the packet to send next, of a [shared](Service::Shared) link. The discipline
    /// chooses it once; it has then left the queue, and keeps its turn until [`Link::take`].
    /// Packets that the discipline drops go to `dropped`.
    pub fn choose(&mut self, at: Time, dropped: impl FnMut(Departed<P>)) -> Option<Bytes> {
        if !self.sending {
            self.start(at, dropped);
        }
        self.being_sent().map(|head| head.size)
    }

    /// Takes the packet that [`Link::choose`] chose.
    pub fn take(&mut self, at: Time) -> Option<Departed<P>> {
        if !std::mem::take(&mut self.sending) {
            return None;
        }
        let taken = self.backlog.packets.pop_front();
        if self.backlog.is_empty() {
            self.server.on_idle(at);
        }
        taken
    }

    /// When the transmission of `bytes` ends that begins at `at`; `None` if the rate stays zero, or
    /// if the link has opportunities rather than a rate.
    pub fn transmission_end(&mut self, at: Time, bytes: Bytes) -> Option<Time> {
        match &mut self.server {
            Server::Trace(_) => None,
            Server::Rate(server) | Server::Shared(server) => server.finish(at, bytes.get()),
        }
    }

    /// Begins to send the packet at the head.
    #[inline]
    fn start(&mut self, at: Time, dropped: impl FnMut(Departed<P>)) {
        if self.discipline.selects() {
            self.select(at, dropped);
        }
        let Some(head) = self.backlog.packets.front() else {
            self.server.on_idle(at);
            self.next = None;
            return;
        };
        let size = head.size.get();
        self.sending = true;
        self.backlog.waiting -= size;
        if self.backlog.len() == 1 {
            self.discipline.on_empty(at);
        }
        self.next = match &mut self.server {
            Server::Trace(server) => server.finish(at, size),
            Server::Rate(server) => server.finish(at, size),
            Server::Shared(_) => None,
        };
    }

    /// Gives a packet to a discipline that keeps queues itself, and says whether the link has been at rest although
    /// packets waited, because this discipline gave it none ([`Queue`](crate::queue::Queue)). Never inlined: it is much
    /// code, which few links need.
    #[inline(never)]
    fn keep(
        &mut self,
        packet: Departed<P>,
        mut dropped: impl FnMut(Departed<P>),
    ) -> Result<bool, P> {
        let (now, rested) = (packet.entered, self.next.is_none() && !self.sending);
        let (backlog, size) = (&mut self.backlog, packet.size.get());
        backlog.kept += 1;
        let kept = self.discipline.keep(packet, &mut |packet| {
            backlog.kept -= 1;
            backlog.waiting -= packet.size.get();
            dropped(packet);
        });
        if let Err(refused) = kept {
            backlog.kept -= 1;
            backlog.waiting -= size;
            return Err(refused);
        }
        if rested {
            self.server.unused(now, &self.discipline);
        }
        Ok(rested)
    }

    /// Lets the discipline decide which packet is at the head of the backlog, to be sent next. Never inlined, as [`Link::keep`].
    #[inline(never)]
    fn select(&mut self, at: Time, mut dropped: impl FnMut(Departed<P>)) {
        let backlog = &mut self.backlog;
        match &mut self.discipline {
            Discipline::CoDel(codel) => codel.select(at, &mut Dropping { backlog, dropped }),
            Discipline::Pie(pie) => {
                if let Some(head) = backlog.packets.front() {
                    pie.on_leave(at, head.entered, backlog.packets.len() > 1);
                }
            }
            several => {
                let next = several.release(at, &mut |packet| {
                    backlog.kept -= 1;
                    backlog.waiting -= packet.size.get();
                    dropped(packet);
                });
                if let Some(packet) = next {
                    backlog.kept -= 1;
                    backlog.packets.push_front(packet);
                }
            }
        }
    }

    /// How long a packet that arrives at `now` would wait before the link begins to send it. Exact on a trace, and at a
    /// rate for as long as the rate does not change; zero while the rate is zero.
    #[inline(never)]
    fn wait(&mut self, now: Time) -> Duration {
        let waiting = self.backlog.waiting;
        match &mut self.server {
            Server::Trace(server) if self.backlog.packets.is_empty() => {
                let next = server.cursor.time();
                next.map_or(Duration::MAX, |next| next.since(now))
            }
            Server::Trace(server) => {
                let until = match self.next {
                    Some(next) if self.sending && waiting < server.remaining => Some(next),
                    Some(_) => {
                        let after = (waiting - server.remaining.min(waiting)) / server.opportunity;
                        server.cursor.time_after(after)
                    }
                    None => None,
                };
                until.map_or(Duration::MAX, |until| until.since(now))
            }
            Server::Rate(server) | Server::Shared(server) => {
                let rate = server.rate_at(now);
                if rate == Rate::default() {
                    return Duration::ZERO;
                }
                let sending = match self.next {
                    Some(next) if self.sending => next.since(now),
                    _ => Duration::ZERO,
                };
                sending + rate.time_for(Bytes::new(waiting))
            }
        }
    }

    /// All packets in the link: those that wait, and the one being sent.
    pub fn queued_packets(&self) -> usize {
        self.backlog.len()
    }

    /// The bytes that wait, without the packet being sent: the queue's thresholds apply to these.
    pub fn waiting_bytes(&self) -> Bytes {
        Bytes::new(self.backlog.waiting)
    }

    /// The packet being sent: it has left the queue but not the link.
    pub fn being_sent(&self) -> Option<&Departed<P>> {
        if self.sending {
            self.backlog.packets.front()
        } else {
            None
        }
    }

    /// Bytes that the service could have carried in [`from`, `to`).
    pub fn capacity(&self, from: Time, to: Time) -> Bytes {
        match &self.server {
            Server::Trace(server) => server.capacity(from, to),
            Server::Rate(server) | Server::Shared(server) => {
                server.schedule.bytes_between(from, to)
            }
        }
    }
}

impl Service {
    /// Makes a rate one that the link may use only when a shared medium lets it; returns whether it
    /// is a rate.
    pub fn share(&mut self) -> bool {
        let Service::Rate(schedule) = self else {
            return false;
        };
        *self = Service::Shared(schedule.clone());
        true
    }

    /// Bytes that the service could carry in [`from`, `to`).
    pub fn capacity(&self, from: Time, to: Time) -> Bytes {
        match self {
            Service::Trace {
                trace,
                opportunity,
                end,
            } => trace_capacity(trace, opportunity.get(), *end == WhenOver::Loop, from, to),
            Service::Rate(schedule) | Service::Shared(schedule) => schedule.bytes_between(from, to),
        }
    }
}

fn trace_capacity(trace: &Trace, opportunity: u64, looped: bool, from: Time, to: Time) -> Bytes {
    let before = |time| trace.opportunities_before(time, looped);
    Bytes::new(
        before(to)
            .saturating_sub(before(from))
            .saturating_mul(opportunity),
    )
}

/// A backlog whose head may be dropped.
struct Dropping<'a, P, F> {
    backlog: &'a mut Backlog<P>,
    dropped: F,
}

impl<P: Packet, F: FnMut(Departed<P>)> Head for Dropping<'_, P, F> {
    fn head(&self) -> Option<(Time, u64)> {
        let head = self.backlog.packets.front()?;
        Some((head.entered, self.backlog.waiting - head.size.get()))
    }

    fn mark_head(&mut self) -> bool {
        let head = self.backlog.packets.front_mut();
        let capable = head.filter(|head| head.packet.ecn().is_capable());
        capable.map(|head| head.packet.mark()).is_some()
    }

    fn drop_head(&mut self) {
        if let Some(head) = self.backlog.packets.pop_front() {
            self.backlog.waiting -= head.size.get();
            (self.dropped)(head);
        }
    }
}

impl Server {
    /// An idle link is about to be used again: moves past the opportunities lost until `now` and, if the
    /// discipline asks, says how many they were.
    #[inline]
    fn unused<P: Packet>(&mut self, now: Time, discipline: &Discipline<P>) -> Option<u64> {
        match self {
            Server::Trace(server) => Some(server.cursor.seek(now)),
            Server::Rate(server) | Server::Shared(server) if discipline.counts_unused() => {
                Some(server.unused(now))
            }
            Server::Rate(_) | Server::Shared(_) => None,
        }
    }

    /// Nothing is left to send: what remains of an opportunity is lost.
    #[inline]
    fn on_idle(&mut self, now: Time) {
        match self {
            Server::Trace(server) => server.remaining = 0,
            Server::Rate(server) | Server::Shared(server) => {
                (server.idle_since, server.idle_bytes) = (now, 0);
            }
        }
    }
}

/// Sends by opportunities.
#[derive(Clone, Debug)]
struct TraceServer {
    /// Points to the first opportunity that still has bytes to carry.
    cursor: Cursor,
    /// Bytes that each opportunity carries.
    opportunity: u64,
    /// Bytes left of the opportunity in use, once the packet being sent is finished.
    remaining: u64,
}

impl TraceServer {
    /// Begins to use the opportunity at the cursor.
    #[inline]
    fn take_opportunity(&mut self) {
        self.remaining = self.opportunity;
        self.cursor.step();
    }

    /// The end of a packet that begins at `at` with the rest of an opportunity.
    #[inline]
    fn finish(&mut self, at: Time, size: u64) -> Option<Time> {
        if size <= self.remaining {
            self.remaining -= size;
            return Some(at);
        }
        let missing = size - self.remaining;
        if missing > self.opportunity {
            self.remaining = 0;
            let whole = (missing - 1) / self.opportunity;
            self.cursor.skip(whole);
            return self.finish_in_next(missing - whole * self.opportunity);
        }
        self.finish_in_next(missing)
    }

    #[inline]
    fn finish_in_next(&mut self, missing: u64) -> Option<Time> {
        let at = self.cursor.time()?;
        self.take_opportunity();
        self.remaining -= missing;
        Some(at)
    }

    fn capacity(&self, from: Time, to: Time) -> Bytes {
        trace_capacity(
            self.cursor.trace(),
            self.opportunity,
            self.cursor.looped(),
            from,
            to,
        )
    }
}

/// Sends at a rate.
#[derive(Clone, Debug)]
struct RateServer {
    schedule: RateSchedule,
    /// The current step of the schedule, its rate and its end.
    index: usize,
    rate: Rate,
    until: Time,
    /// Cache of one division: a packet's size and its sending time at this rate. The next packet nearly always has the
    /// same size.
    size: u64,
    span: Duration,
    /// Start of the idle time that [`unused`](Self::unused) has not yet counted as packets.
    idle_since: Time,
    idle_bytes: u64,
}

/// Size in bytes of the packets that RED takes an idle link to have been able to send, on links without opportunities.
const TYPICAL_PACKET: u64 = 1500;

impl RateServer {
    fn new(schedule: RateSchedule) -> Self {
        let (rate, until) = (schedule.steps()[0].1, schedule.end_of(0));
        let (size, span) = (0, Duration::ZERO);
        RateServer {
            schedule,
            index: 0,
            rate,
            until,
            size,
            span,
            idle_since: Time::ZERO,
            idle_bytes: 0,
        }
    }

    /// The rate at `at`; `at` must not decrease from call to call.
    #[inline]
    fn rate_at(&mut self, at: Time) -> Rate {
        if at >= self.until {
            self.change(at);
        }
        self.rate
    }

    #[cold]
    fn change(&mut self, at: Time) {
        self.index = self.schedule.index_at(at);
        (self.rate, self.until) = (
            self.schedule.value(self.index),
            self.schedule.end_of(self.index),
        );
        self.size = 0;
    }

    /// The end of a packet that begins at `at`; `None` if it never ends.
    #[inline(always)]
    fn finish(&mut self, at: Time, size: u64) -> Option<Time> {
        let rate = self.rate_at(at);
        if size != self.size || size == 0 {
            (self.size, self.span) = (size, rate.time_for(Bytes::new(size)));
        }
        let end = at + self.span;
        if end <= self.until && end < Time::MAX {
            Some(end)
        } else {
            self.finish_over_steps(at, size)
        }
    }

    /// [`RateServer::finish`] when the rate changes on the way.
    #[cold]
    fn finish_over_steps(&self, mut at: Time, size: u64) -> Option<Time> {
        let mut work = u128::from(size) * BYTE;
        if let Some(period) = self.schedule.period() {
            // All repetitions of the schedule but the last in one step: there may be very many.
            let lap = self.schedule.work_between(at, at + period);
            let whole = (work.saturating_sub(1)).checked_div(lap)?;
            work -= whole * lap;
            at += period * u64::try_from(whole).ok()?;
        }
        let mut index = self.schedule.index_at(at);
        loop {
            let rate = u128::from(self.schedule.value(index).as_bps());
            let end = self.schedule.end_of(index);
            let possible = rate * u128::from((end - at).as_nanos());
            if possible >= work && (rate > 0 || work == 0) {
                let span = if work == 0 { 0 } else { work.div_ceil(rate) };
                let span = Duration::from_nanos(u64::try_from(span).ok()?);
                return Some(at + span).filter(|end| *end < Time::MAX);
            }
            if end == Time::MAX {
                return None;
            }
            work -= possible;
            (at, index) = (end, index + 1);
        }
    }

    /// Packets that could have been sent since the link went idle, or since the last call.
    fn unused(&mut self, now: Time) -> u64 {
        let bytes = self.schedule.bytes_between(self.idle_since, now).get();
        let bytes = bytes.saturating_add(self.idle_bytes);
        (self.idle_since, self.idle_bytes) = (now, bytes % TYPICAL_PACKET);
        bytes / TYPICAL_PACKET
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    impl Packet for u32 {}

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn trace_link(millis: &[u64], end: WhenOver, queue: &str) -> Link<u32> {
        let trace = Arc::new(Trace::from_millis("made", millis.iter().copied()).unwrap());
        let service = Service::Trace {
            trace,
            opportunity: Bytes::new(1500),
            end,
        };
        Link::new(
            service,
            &QueueConfig::parse(queue).unwrap(),
            random::stream(1, "queue", 0),
        )
    }

    fn rate_link(steps: &[(u64, f64)], queue: &str) -> Link<u32> {
        let steps = steps
            .iter()
            .map(|(ms, mbps)| (at(*ms), Rate::from_mbps(*mbps)));
        let service = Service::Rate(RateSchedule::new(steps.collect()).unwrap());
        Link::new(
            service,
            &QueueConfig::parse(queue).unwrap(),
            random::stream(1, "queue", 0),
        )
    }

    /// Runs the link until nothing is due by `end`; when each packet left, in ms, and which it was.
    fn drain(link: &mut Link<u32>, end: Time) -> Vec<(f64, u32)> {
        let mut departures = Vec::new();
        while let Some(due) = link.next_departure().filter(|due| *due <= end) {
            if let Some(departed) = link.depart(due, |_| {}) {
                departures.push((due.as_millis_f64(), departed.packet));
            }
        }
        departures
    }

    /// Opportunities at these ms carry packets, each given by when it arrives, in ms, and its bytes; when each leaves.
    #[test]
    fn opportunities_carry_packets_as_worked_by_hand() {
        let large = [(0, 4000), (0, 500), (0, 1)];
        for (what, opportunities, packets, left) in [
            (
                "a packet that arrives with an opportunity may use it",
                &[5, 10][..],
                &[(5, 1500)][..],
                &[(5.0, 0)][..],
            ),
            (
                "an opportunity with nothing waiting is lost",
                &[5, 10],
                &[(6, 1500); 2],
                &[(10.0, 0)],
            ),
            (
                // 1000 + 500 | 500 + 1000
                "unused bytes go to the next packet waiting",
                &[5, 10, 15],
                &[(0, 1000); 3],
                &[(5.0, 0), (10.0, 1), (10.0, 2)],
            ),
            (
                "what remains is lost when nothing waits",
                &[5, 10, 15],
                &[(0, 100), (6, 1500), (6, 1500)],
                &[(5.0, 0), (10.0, 1), (15.0, 2)],
            ),
            (
                "a packet larger than an opportunity uses several",
                &[5, 6, 7, 9],
                &large,
                &[(7.0, 0), (7.0, 1), (9.0, 2)],
            ),
            (
                "several in a millisecond carry several packets",
                &[5, 5, 5, 8],
                &[(5, 1500); 4],
                &[(5.0, 0), (5.0, 1), (5.0, 2), (8.0, 3)],
            ),
        ] {
            let mut link = trace_link(opportunities, WhenOver::End, "infinite");
            let mut departures = Vec::new();
            for (number, &(ms, bytes)) in (0..).zip(packets) {
                // Packets due at the time of an arrival leave after it.
                departures.extend(drain(&mut link, at(ms) - Duration::from_nanos(1)));
                link.enqueue(at(ms), Bytes::new(bytes), number, drop)
                    .unwrap();
            }
            if packets == large {
                assert_eq!(link.next_departure(), Some(at(5)), "it begins to be sent");
            }
            departures.extend(drain(&mut link, at(100)));
            assert_eq!(departures, left, "{what}");
            assert_eq!(link.queued_packets(), packets.len() - left.len(), "{what}");
            assert_eq!(link.next_departure(), None, "{what}");
        }
    }

    #[test]
    fn a_looped_trace_repeats_with_its_last_time_as_period() {
        // 0, 4, 10 | 10, 14, 20 | …
        let mut link = trace_link(&[0, 4, 10], WhenOver::Loop, "infinite");
        for packet in 0..6 {
            link.enqueue(at(1), Bytes::new(1500), packet, drop).unwrap();
        }
        let times: Vec<f64> = drain(&mut link, at(100))
            .iter()
            .map(|left| left.0)
            .collect();
        assert_eq!(times, [4.0, 10.0, 10.0, 14.0, 20.0, 20.0]);
        // [0, 20) has 0, 4, 10, 10, 14; [20, 21) has 20, 20.
        assert_eq!(link.capacity(at(0), at(20)), Bytes::new(5 * 1500));
        assert_eq!(link.capacity(at(20), at(21)), Bytes::new(2 * 1500));
    }

    #[test]
    fn a_constant_rate_sends_packets_back_to_back() {
        let mut link = rate_link(&[(0, 12.0)], "infinite");
        link.enqueue(at(1), Bytes::new(1500), 0, drop).unwrap();
        link.enqueue(at(1), Bytes::new(750), 1, drop).unwrap();
        assert_eq!(drain(&mut link, at(100)), [(2.0, 0), (2.5, 1)]);
        link.enqueue(at(3), Bytes::new(1500), 2, drop).unwrap();
        assert_eq!(drain(&mut link, at(100)), [(4.0, 2)]);
    }

    #[test]
    fn a_packet_being_sent_is_finished_at_the_new_rate() {
        // Half of it in 0.5 ms at 12 Mbit/s, nothing for 8 ms, the rest in 2 ms at 3 Mbit/s.
        let mut link = rate_link(&[(0, 12.0), (2, 0.0), (10, 3.0)], "infinite");
        link.enqueue(Time::from_nanos(1_500_000), Bytes::new(1500), 0, drop)
            .unwrap();
        link.enqueue(at(2), Bytes::new(1500), 1, drop).unwrap();
        assert_eq!(drain(&mut link, at(100)), [(12.0, 0), (16.0, 1)]);
    }

    #[test]
    fn a_rate_that_repeats_serves_alike_in_each_lap_however_long_a_packet_takes() {
        // Of each 10 ms the first 8 at 12 Mbit/s, a packet a millisecond, and 2 of nothing.
        let steps = vec![(at(0), Rate::from_mbps(12.0)), (at(8), Rate::from_bps(0))];
        let schedule = RateSchedule::new(steps).unwrap();
        let schedule = schedule.repeating(Duration::from_millis(10)).unwrap();
        let queue = QueueConfig::parse("infinite").unwrap();
        let mut link = Link::new(
            Service::Rate(schedule),
            &queue,
            random::stream(1, "queue", 0),
        );
        for (packet, size) in [(0, 9 * 1500), (1, 750), (2, 15_000 * 1500), (3, 1500)] {
            link.enqueue(at(0), Bytes::new(size), packet, drop).unwrap();
        }
        // The third has 6.5 packets' time left in the second lap, 1,874 whole laps and 1.5 packets' time in the next.
        assert_eq!(
            drain(&mut link, Time::MAX),
            [(11.0, 0), (11.5, 1), (18_761.5, 2), (18_762.5, 3)]
        );
        let dead = RateSchedule::constant(Rate::from_bps(0)).repeating(Duration::from_millis(1));
        let service = Service::Rate(dead.unwrap());
        let mut link = Link::new(service, &queue, random::stream(1, "queue", 0));
        link.enqueue(at(0), Bytes::new(1500), 0, drop).unwrap();
        assert_eq!(link.next_departure(), None);
    }

    #[test]
    fn a_link_whose_rate_stays_zero_delivers_nothing_more() {
        let mut link = rate_link(&[(0, 12.0), (2, 0.0)], "infinite");
        link.enqueue(at(1), Bytes::new(1500), 0, drop).unwrap();
        link.enqueue(at(1), Bytes::new(1500), 1, drop).unwrap();
        assert_eq!(drain(&mut link, at(100)), [(2.0, 0)]);
        assert_eq!(link.next_departure(), None);
    }

    #[test]
    fn a_drop_tail_limit_concerns_what_waits_not_what_is_sent() {
        let mut link = rate_link(&[(0, 12.0)], "droptail:bytes=3000");
        let taken: Vec<bool> = (0..4)
            .map(|packet| link.enqueue(at(0), Bytes::new(1500), packet, drop).is_ok())
            .collect();
        assert_eq!(taken, [true, true, true, false]);
        assert_eq!(link.waiting_bytes(), Bytes::new(3000));
        assert!(link.being_sent().is_some());
        let mut link = rate_link(&[(0, 12.0)], "droptail:packets=1");
        assert_eq!(link.enqueue(at(0), Bytes::new(9000), 0, drop), Ok(()));
        assert_eq!(link.enqueue(at(0), Bytes::new(40), 1, drop), Ok(()));
        assert_eq!(link.enqueue(at(0), Bytes::new(40), 2, drop), Err(2));
    }

    #[test]
    fn a_limit_in_time_refuses_what_would_wait_as_long_as_it_or_longer() {
        // 1 ms a packet: what arrives finds 0, 1, 2 and 3 ms before it.
        let mut link = rate_link(&[(0, 12.0)], "droptail:delay_ms=3");
        let enqueue =
            |link: &mut Link<u32>, at| link.enqueue(at, Bytes::new(1500), 0, drop).is_ok();
        let taken = [(); 4].map(|()| enqueue(&mut link, at(0)));
        assert_eq!(taken, [true, true, true, false]);
        // Half of the packet being sent has left: 2.5 ms.
        assert!(enqueue(&mut link, Time::from_nanos(500_000)));
        assert!(!enqueue(&mut link, Time::from_nanos(500_000)));
    }

    #[test]
    fn a_limit_in_time_follows_the_rate_in_force_and_holds_what_comes_in_an_outage() {
        let mut link = rate_link(&[(0, 12.0), (2, 1.2), (40, 0.0)], "droptail:delay_ms=10");
        let mut packets = 0;
        let mut enqueue = |link: &mut Link<u32>, at| {
            packets += 1;
            link.enqueue(at, Bytes::new(1500), packets, drop).is_ok()
        };
        assert!((0..3).all(|_| enqueue(&mut link, at(0))));
        assert_eq!(drain(&mut link, at(2)).len(), 2);
        // The third is under way until 12 ms: the queue is empty, and new packets wait for 10 ms.
        assert!(!enqueue(&mut link, at(2)));
        assert!(enqueue(&mut link, at(3)));
        // 9 ms of the third, and 10 ms of the fourth.
        assert!(!enqueue(&mut link, at(3)));
        assert_eq!(drain(&mut link, at(40)).len(), 2);
        assert!((0..50).all(|_| enqueue(&mut link, at(41))));
    }

    #[test]
    fn on_a_trace_a_limit_in_time_looks_for_the_opportunity_that_would_carry_the_packet() {
        // Nothing between 10 and 100 ms.
        let mut link = trace_link(&[5, 10, 100, 101], WhenOver::End, "droptail:delay_ms=20");
        let mut packets = 0;
        let mut enqueue = |link: &mut Link<u32>, ms, size| {
            packets += 1;
            link.enqueue(at(ms), Bytes::new(size), packets, drop)
                .is_ok()
        };
        assert!(enqueue(&mut link, 0, 1000));
        // Its first byte is in what the first leaves of the opportunity at 5 ms, its last one in that at 10 ms.
        assert!(enqueue(&mut link, 0, 1500));
        assert!(enqueue(&mut link, 0, 500));
        // These two have used up both: a third would wait for 100 ms.
        assert!(!enqueue(&mut link, 0, 40));
        assert_eq!(drain(&mut link, at(10)).len(), 3);
        assert!(!enqueue(&mut link, 80, 1500));
        assert!(enqueue(&mut link, 81, 1500));
        assert!(enqueue(&mut link, 82, 1500));
        // The wait has no end after the last opportunity.
        assert!(!enqueue(&mut link, 82, 40));
    }

    #[test]
    fn a_late_caller_is_told_what_happened_on_time() {
        let mut link = trace_link(&[5, 6, 7], WhenOver::End, "infinite");
        for packet in 0..3 {
            link.enqueue(at(0), Bytes::new(1500), packet, drop).unwrap();
        }
        assert_eq!(link.depart(at(4), |_| {}), None);
        assert!(link.depart(at(6), |_| {}).is_some());
        assert!(link.depart(at(6), |_| {}).is_some());
        assert_eq!(link.depart(at(6), |_| {}), None);
        assert_eq!(link.next_departure(), Some(at(7)));
    }

    #[test]
    fn codel_drops_at_the_head_once_the_delay_has_stood_for_an_interval() {
        // 12 Mbit/s is a packet a millisecond; 1000 packets at once make a standing queue of a second.
        let mut link = rate_link(&[(0, 12.0)], "codel");
        for packet in 0..1000 {
            link.enqueue(at(0), Bytes::new(1500), packet, drop).unwrap();
        }
        let mut drops = Vec::new();
        let mut departed_packets = 0;
        while let Some(due) = link.next_departure() {
            let mut dropped = 0;
            departed_packets += u32::from(link.depart(due, |_| dropped += 1).is_some());
            if dropped > 0 {
                drops.push(due);
            }
            assert!(
                dropped <= 1 || drops.len() > 50,
                "drops are spaced at first"
            );
        }
        // The packet that begins at 5 ms is the first to have waited 5 ms; drops begin an interval later, and then
        // at 100/√1, 100/√2 … ms.
        let mut due = at(105);
        let mut expected = vec![due];
        for count in 1..5 {
            due += Duration::from_millis_f64(100.0 / f64::from(count).sqrt());
            // Decided when the next packet begins, at a whole millisecond.
            expected.push(at(due.as_nanos().div_ceil(1_000_000)));
        }
        assert_eq!(drops[..5], expected[..]);
        assert_eq!(departed_packets + drops.len() as u32, 1000);
    }
}
