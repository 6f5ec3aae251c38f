//! One direction of a faulty path, without a clock.
//!
//! ```text
//! send ──▶ dark? ─▶ lost? ─▶ twice? ─▶ corrupt? ─▶ too much? ─▶ [bottleneck ─▶ delay, jitter, reordering] ──▶ poll
//! ```
//!
//! The part in brackets is a [`verus_channel::Path`], as in the simulator and the emulator. Faults
//! that only tests need come before it, and so does its chance loss, so that a datagram that is
//! sent twice is lost once.
//!
//! The caller says what time it is: a virtual clock in tests of ends without sockets, a real one in
//! [`crate::Proxy`]. Each kind of fault draws once for each datagram from a separate random stream.
//! Removing one fault from a schedule thus leaves the others where they were.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use verus_channel::path::delay::Flight;
use verus_channel::path::jitter::{Jitter, JitterConfig};
use verus_channel::path::reorder::{Reorder, ReorderConfig};
use verus_channel::path::{Dropped, Packet, Watch};
use verus_channel::{Delay, Link, Loss, QueueConfig, RateSchedule, Schedule as Steps, Service};
use verus_core::{Bytes, Rate, Time, random};

use crate::schedule::{Direction, Faults, Interval, Schedule};
use crate::spread::{Spread, Spreading};

/// A path's payload.
pub trait Datagram: Clone {
    /// Its bytes, without any header below it.
    fn size(&self) -> usize;
    /// Flips one of its bits, counted from zero; there are `8 × size` of them.
    fn flip(&mut self, bit: usize);
}

impl Datagram for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }

    fn flip(&mut self, bit: usize) {
        self[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A link that serves a path, and the queue before it.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    /// The service of the queue.
    pub service: Service,
    /// The queue's capacity and discipline.
    pub queue: QueueConfig,
}

impl Bottleneck {
    /// A link of `mbps` Mbit/s behind a queue of this text.
    ///
    /// # Panics
    /// If the text is no queue's.
    pub fn new(mbps: f64, queue: &str) -> Self {
        Bottleneck {
            service: Service::Rate(RateSchedule::constant(Rate::from_mbps(mbps))),
            queue: QueueConfig::parse(queue).unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

/// Default bound on the bytes that a path holds: 0.2 s at 640 Mbit/s.
const DEFAULT_CAPACITY: Bytes = Bytes::new(16 << 20);
/// IPv4 and UDP headers, which the link carries as well.
const DEFAULT_OVERHEAD: Bytes = Bytes::new(28);
/// How many bits a corrupted datagram loses at most.
const FLIPPED_AT_MOST: u32 = 4;

/// One direction of a faulty path.
#[derive(Debug)]
pub struct Path<P> {
    faults: Faults,
    dark: Vec<Interval>,
    loss: Loss,
    duplication: ChaCha8Rng,
    corruption: ChaCha8Rng,
    /// The seed of the streams of random draws.
    seed: u64,
    direction: Direction,
    path: verus_channel::Path<Carried<P>>,
    capacity: Bytes,
    overhead: Bytes,
    counts: Counts,
}

/// A datagram on its way.
#[derive(Debug)]
struct Carried<P>(P);

impl<P> Packet for Carried<P> {}

/// A path's counts of its datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PathStats {
    /// Datagrams given to it.
    pub sent: u64,
    /// Their bytes, headers below them not counted.
    pub sent_bytes: u64,
    /// Datagrams that came out of it.
    pub delivered: u64,
    /// Their bytes, headers below them not counted.
    pub delivered_bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost in a blackout.
    pub dark: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// With flipped bits.
    pub corrupted: u64,
    /// Delayed out of order.
    pub reordered: u64,
    /// Dropped because the path held as much as it may.
    pub overflowed: u64,
    /// Held now: in the bottleneck, or under way.
    pub held: u64,
    /// Most bytes held at any time, headers included.
    pub held_bytes_max: u64,
    /// The bottleneck's counts, if there is one.
    pub bottleneck: Option<BottleneckStats>,
}

/// A bottleneck's counts from the first datagram's arrival there. Bytes include IP and UDP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BottleneckStats {
    /// Datagrams that left it.
    pub departed: u64,
    /// Their bytes.
    pub departed_bytes: u64,
    /// Datagrams that its queue refused or dropped.
    pub dropped: u64,
    /// Bytes that it could have carried in the time.
    pub capacity_bytes: u64,
    /// Time from entering to leaving it, the sending itself included.
    pub queueing: Spread,
}

impl BottleneckStats {
    /// The share of its capacity that was used.
    pub fn utilization(&self) -> f64 {
        self.departed_bytes as f64 / self.capacity_bytes as f64
    }
}

/// A datagram that has come through a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived<P> {
    /// When it arrived, which a late caller may ask for later.
    pub at: Time,
    /// The datagram.
    pub datagram: P,
}

/// Counts made as events happen.
#[derive(Debug, Default)]
struct Counts {
    stats: PathStats,
    queueing: Spreading,
    link: BottleneckStats,
    /// When the first datagram reached the bottleneck.
    measured_from: Option<Time>,
    /// Bytes held now, headers included.
    held: Bytes,
}

impl<P: Datagram> Watch<Carried<P>> for Counts {
    fn on_entered(&mut self, now: Time, size: Bytes, _: &Carried<P>) {
        self.measured_from.get_or_insert(now);
        self.held += size;
    }

    fn on_dropped(&mut self, _: Time, size: Bytes, _: &Carried<P>, _: Dropped) {
        self.link.dropped += 1;
        self.held -= size;
    }

    fn on_left(&mut self, now: Time, size: Bytes, entered: Time, _: &Carried<P>) {
        self.link.departed += 1;
        self.link.departed_bytes += size.get();
        self.queueing.record(now.since(entered));
    }

    fn on_under_way(&mut self, flight: Flight) {
        self.stats.reordered += u64::from(flight.reordered);
    }

    fn on_arrived(&mut self, _: Time, datagram: &Carried<P>) {
        self.stats.delivered += 1;
        self.stats.delivered_bytes += datagram.0.size() as u64;
    }
}

impl<P: Datagram> Path<P> {
    /// The path of `schedule` in `direction`, without a bottleneck. Stops and address changes are the
    /// caller's: a path has no ends.
    pub fn new(schedule: &Schedule, direction: Direction) -> Self {
        let faults = schedule.faults(direction).clone();
        let stream = |purpose| stream(schedule.seed, purpose, direction);
        Path {
            dark: schedule.blackouts.clone(),
            loss: Loss::new(Steps::constant(faults.loss), vec![stream("fault-loss")]),
            duplication: stream("fault-twice"),
            corruption: stream("fault-corrupt"),
            path: path(schedule.seed, direction, &faults, None),
            capacity: DEFAULT_CAPACITY,
            overhead: DEFAULT_OVERHEAD,
            counts: Counts::default(),
            seed: schedule.seed,
            direction,
            faults,
        }
    }

    /// With `bottleneck` before the delay.
    pub fn with_bottleneck(mut self, bottleneck: Bottleneck) -> Self {
        self.path = path(self.seed, self.direction, &self.faults, Some(bottleneck));
        self
    }

    /// Sets the most bytes held, headers included; datagrams above that are dropped.
    pub fn with_capacity(mut self, bytes: Bytes) -> Self {
        self.capacity = bytes;
        self
    }

    /// Counting `bytes` of headers below each datagram: 28 for UDP over IPv4 (the default), 48 over IPv6.
    pub fn with_overhead(mut self, bytes: Bytes) -> Self {
        self.overhead = bytes;
        self
    }

    /// Nothing passes in `interval`, in addition to the schedule's blackouts.
    pub fn with_dark(mut self, interval: Interval) -> Self {
        self.dark.push(interval);
        self
    }

    /// `datagram` sets out at `now`, which never goes back from call to call.
    pub fn send(&mut self, now: Time, mut datagram: P) {
        // An arrival at this very instant precedes a departure from the bottleneck.
        self.path.serve_before(now, &mut self.counts);
        let stats = &mut self.counts.stats;
        stats.sent += 1;
        stats.sent_bytes += datagram.size() as u64;
        let lost = self.loss.loses(now, 0);
        let twice = self.duplication.random_bool(self.faults.duplication);
        if self.dark.iter().any(|dark| dark.contains(now)) {
            stats.dark += 1;
            return;
        }
        if lost {
            stats.lost += 1;
            return;
        }
        if twice {
            stats.duplicated += 1;
            let mut copy = datagram.clone();
            self.corrupt(&mut copy);
            self.enter(now, copy);
        }
        self.corrupt(&mut datagram);
        self.enter(now, datagram);
    }

    /// The next datagram that has arrived by `now`, in order of arrival.
    pub fn poll(&mut self, now: Time) -> Option<Arrived<P>> {
        self.path.serve(now, &mut self.counts);
        let (at, Carried(datagram)) = self.path.arrive(now, 0, &mut self.counts)?;
        self.counts.held -= self.accounted(&datagram);
        Some(Arrived { at, datagram })
    }

    /// When to call [`Path::poll`] next. It may find nothing then, because the bottleneck's queue drops, or
    /// jitter delays. `None` while nothing is held.
    pub fn next(&self) -> Option<Time> {
        // A datagram that leaves the bottleneck still has the delay before it. `poll` works out its
        // departure afterwards, so that a caller in real time is woken once for each datagram, not
        // twice.
        let departed = self.path.next_departure().map(|at| at + self.faults.delay);
        let arrival = self.path.next_arrival(0);
        departed.into_iter().chain(arrival).min()
    }

    /// Its counts so far, at `now`.
    pub fn stats(&mut self, now: Time) -> PathStats {
        self.path.serve_before(now, &mut self.counts);
        let from = self.counts.measured_from.unwrap_or(now);
        let capacity = self.path.capacity(from, now.max(from));
        PathStats {
            held: self.path.packets() as u64,
            bottleneck: capacity.map(|capacity| BottleneckStats {
                capacity_bytes: capacity.get(),
                queueing: self.counts.queueing.spread(),
                ..self.counts.link
            }),
            ..self.counts.stats
        }
    }

    /// Counts from zero again, for instance once a warm-up is over. Held datagrams stay; the
    /// bottleneck's capacity counts from `now`.
    pub fn restart_counts(&mut self, now: Time) {
        self.path.serve_before(now, &mut self.counts);
        let measured_from = self.counts.measured_from.map(|_| now);
        self.counts = Counts {
            measured_from,
            held: self.counts.held,
            ..Counts::default()
        };
    }

    fn accounted(&self, datagram: &P) -> Bytes {
        Bytes::new(datagram.size() as u64) + self.overhead
    }

    fn corrupt(&mut self, datagram: &mut P) {
        let dice = &mut self.corruption;
        if dice.random_bool(self.faults.corruption) && datagram.size() > 0 {
            for _ in 0..dice.random_range(1..=FLIPPED_AT_MOST) {
                datagram.flip(dice.random_range(0..8 * datagram.size() as u64) as usize);
            }
            self.counts.stats.corrupted += 1;
        }
    }

    /// Into the path, if that has room.
    fn enter(&mut self, now: Time, datagram: P) {
        let size = self.accounted(&datagram);
        if self.counts.held + size > self.capacity {
            self.counts.stats.overflowed += 1;
            return;
        }
        self.path
            .send(now, size, Carried(datagram), &mut self.counts);
        let held_max = &mut self.counts.stats.held_bytes_max;
        *held_max = (*held_max).max(self.counts.held.get());
    }
}

/// The part of a faulty path that does not depend on the type of its packets.
fn path<P>(
    seed: u64,
    direction: Direction,
    faults: &Faults,
    bottleneck: Option<Bottleneck>,
) -> verus_channel::Path<Carried<P>> {
    let stream = |purpose| stream(seed, purpose, direction);
    let Faults {
        delay,
        jitter,
        reordering,
        reordering_delay,
        ..
    } = *faults;
    let jitter = JitterConfig::Uniform {
        max_ms: jitter.as_millis_f64(),
    };
    let reordering = ReorderConfig::Uniform {
        p: reordering,
        most: reordering_delay,
        correlation: 0.0,
    };
    let delay = Delay::constant(delay)
        .with_jitter(Jitter::new(
            Steps::constant(jitter),
            vec![stream("fault-jitter")],
        ))
        .with_reorder(Reorder::new(reordering, vec![stream("fault-reorder")]));
    let link =
        |Bottleneck { service, queue }| Link::new(service, &queue, stream("fault-queue")).into();
    verus_channel::Path::new(bottleneck.map(link).into_iter().collect(), delay)
}

/// The random stream of one kind of fault.
fn stream(seed: u64, purpose: &str, direction: Direction) -> ChaCha8Rng {
    let index = match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    };
    random::stream(seed, purpose, index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use verus_core::Duration;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Sends `number` datagrams of `size` bytes over a path, one each `every`. Returns when each
    /// arrives and its content, whose first four bytes are its number.
    fn run(
        path: &mut Path<Vec<u8>>,
        number: u32,
        size: usize,
        every: Duration,
    ) -> Vec<(Time, Vec<u8>)> {
        let mut arrived = Vec::new();
        let mut take = |path: &mut Path<Vec<u8>>, now| {
            while let Some(one) = path.poll(now) {
                assert!(one.at <= now);
                arrived.push((one.at, one.datagram));
            }
        };
        let mut now = Time::ZERO;
        for index in 0..number {
            while let Some(next) = path.next().filter(|next| *next <= now) {
                take(path, next);
            }
            path.send(now, datagram(index, size));
            now += every;
        }
        while let Some(next) = path.next() {
            take(path, next);
        }
        arrived
    }

    fn datagram(index: u32, size: usize) -> Vec<u8> {
        let mut datagram = vec![0; size];
        datagram[..4].copy_from_slice(&index.to_be_bytes());
        datagram
    }

    fn schedule(seed: u64, up: Faults) -> Schedule {
        Schedule {
            seed,
            up,
            ..Schedule::default()
        }
    }

    #[test]
    fn datagrams_meet_each_fault_as_often_as_configured() {
        let up = Faults {
            loss: 0.3,
            duplication: 0.1,
            reordering: 0.2,
            reordering_delay: millis(5),
            corruption: 0.05,
            ..Faults::default()
        };
        let mut path = Path::new(&schedule(1, up), Direction::Up);
        let arrived = run(&mut path, 100_000, 100, millis(1));
        let stats = path.stats(Time::MAX);
        // Standard deviations: 145, 80, 125 and 60.
        assert!(stats.lost.abs_diff(30_000) < 700, "{stats:?}");
        assert!(stats.duplicated.abs_diff(7_000) < 400, "{stats:?}");
        assert!(stats.reordered.abs_diff(15_400) < 600, "{stats:?}");
        assert!(stats.corrupted.abs_diff(3_850) < 300, "{stats:?}");
        assert_eq!(stats.sent, 100_000);
        assert_eq!(stats.delivered, stats.sent - stats.lost + stats.duplicated);
        assert_eq!(stats.delivered, arrived.len() as u64);
        assert_eq!(stats.delivered_bytes, 100 * stats.delivered);
        assert_eq!((stats.held, stats.dark, stats.overflowed), (0, 0, 0));
        // Bits were flipped in just as many; at most four, which may meet and undo each other.
        let flipped = |datagram: &[u8]| datagram[4..].iter().map(|byte| byte.count_ones()).sum();
        let changed: Vec<u32> = arrived
            .iter()
            .map(|(_, datagram)| flipped(datagram))
            .collect();
        let altered = changed.iter().filter(|bits| **bits > 0).count() as u64;
        assert!(altered <= stats.corrupted && altered > stats.corrupted * 9 / 10);
        assert!(changed.iter().all(|bits| *bits <= FLIPPED_AT_MOST));
        assert!(
            arrived
                .windows(2)
                .any(|pair| pair[0].1[..4] > pair[1].1[..4])
        );
    }

    #[test]
    fn taking_out_one_fault_leaves_the_others_where_they_were() {
        let harsh = Faults {
            loss: 0.2,
            corruption: 0.2,
            jitter: millis(3),
            ..Faults::default()
        };
        let mild = Faults {
            corruption: 0.0,
            jitter: Duration::ZERO,
            ..harsh.clone()
        };
        let numbers = |faults| {
            let mut path = Path::new(&schedule(5, faults), Direction::Up);
            run(&mut path, 1_000, 200, millis(1));
            path.stats(Time::MAX).lost
        };
        let lost = |faults| {
            let mut path = Path::new(&schedule(5, faults), Direction::Up);
            (0..500u64)
                .map(|index| {
                    path.send(at(index), datagram(0, 8));
                    path.stats(at(index)).lost
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(harsh.clone()), numbers(mild.clone()));
        assert_eq!(lost(harsh), lost(mild));
    }

    #[test]
    fn nothing_sent_in_a_blackout_arrives_and_everything_else_does() {
        let mut schedule = Schedule::perfect(millis(20));
        schedule.blackouts = vec![Interval {
            start: at(100),
            length: millis(50),
        }];
        let mut path = Path::new(&schedule, Direction::Down).with_dark(Interval {
            start: at(180),
            length: Duration::MAX,
        });
        let arrived = run(&mut path, 200, 50, millis(1));
        let expected = (0..100).chain(150..180);
        let expected: Vec<_> = expected
            .map(|index| (at(u64::from(index) + 20), datagram(index, 50)))
            .collect();
        assert_eq!(arrived, expected);
        assert_eq!(path.stats(at(300)).dark, 70);
    }

    #[test]
    fn a_bottleneck_serves_at_its_rate_drops_what_does_not_fit_and_measures_the_wait() {
        // 1,472 bytes and 28 of headers take 1 ms at 12 Mbit/s; two arrive each millisecond.
        let schedule = Schedule::perfect(millis(20));
        let mut path = Path::new(&schedule, Direction::Up)
            .with_bottleneck(Bottleneck::new(12.0, "droptail:packets=10"));
        let mut arrivals = Vec::new();
        for index in 0..100 {
            for _ in 0..2 {
                path.send(at(index), datagram(0, 1_472));
            }
            while let Some(one) = path.poll(at(index)) {
                arrivals.push(one.at);
            }
        }
        while let Some(next) = path.next() {
            arrivals.extend(path.poll(next).map(|one| one.at));
        }
        // The first leaves after a millisecond, and then one every millisecond.
        let expected: Vec<_> = (0..arrivals.len() as u64)
            .map(|index| at(21 + index))
            .collect();
        assert_eq!(arrivals, expected);
        let stats = path.stats(at(110));
        let link = stats.bottleneck.unwrap();
        assert_eq!(link.departed, stats.delivered);
        assert_eq!(link.departed + link.dropped, 200);
        assert_eq!(link.departed_bytes, 1_500 * link.departed);
        assert_eq!(link.capacity_bytes, 1_500 * 110);
        assert!((link.utilization() - link.departed as f64 / 110.0).abs() < 1e-9);
        // Nine wait before the last that fits, and the one being sent is just finished: ten milliseconds with
        // its own. The queue grows by one a millisecond until then.
        assert!((link.queueing.max_ms - 10.0).abs() < 0.01, "{link:?}");
        assert!((link.queueing.p50_ms - 10.0).abs() < 0.01, "{link:?}");
        assert!((9.0..10.0).contains(&link.queueing.mean_ms), "{link:?}");

        path.restart_counts(at(200));
        let link = path.stats(at(300)).bottleneck.unwrap();
        assert_eq!((link.departed, link.capacity_bytes), (0, 150_000));
    }

    #[test]
    fn a_path_never_holds_more_than_it_may() {
        for queue in [None, Some(Bottleneck::new(1.0, "infinite"))] {
            let schedule = Schedule::perfect(Duration::from_secs(10));
            let mut path = Path::new(&schedule, Direction::Up).with_capacity(Bytes::new(100_000));
            if let Some(queue) = queue {
                path = path.with_bottleneck(queue);
            }
            for index in 0..1_000 {
                path.send(at(index / 10), datagram(0, 972));
            }
            let stats = path.stats(at(100));
            assert_eq!((stats.held, stats.overflowed), (100, 900));
            assert_eq!(stats.held_bytes_max, 100_000);
        }
    }

    fn any_faults() -> impl Strategy<Value = Faults> {
        let probability = || prop_oneof![Just(0.0), 0.0..1.0f64];
        let span = || (0..50_000u64).prop_map(Duration::from_micros);
        let chances = (probability(), probability(), probability(), probability());
        (chances, span(), span(), span()).prop_map(
            |((loss, duplication, reordering, corruption), delay, jitter, reordering_delay)| {
                Faults {
                    loss,
                    duplication,
                    reordering,
                    reordering_delay,
                    corruption,
                    delay,
                    jitter,
                }
            },
        )
    }

    fn any_queue() -> impl Strategy<Value = Option<Bottleneck>> {
        let queue = prop_oneof![
            Just("infinite"),
            Just("codel"),
            Just("droptail:bytes=20000"),
            Just("red:min=5000,max=20000,p=0.1"),
        ];
        prop_oneof![
            Just(None),
            (1.0..50.0, queue).prop_map(|(mbps, queue)| Some(Bottleneck::new(mbps, queue))),
        ]
    }

    proptest! {
        /// Every datagram is accounted for, arrives no earlier than it can, and the same seed does the same.
        #[test]
        fn a_path_accounts_for_all(
            seed in any::<u64>(),
            faults in any_faults(),
            queue in any_queue(),
            size in 4..1_500usize,
            every in 0..2_000u64,
        ) {
            let faults = schedule(seed, faults);
            let mut outcomes = Vec::new();
            for _ in 0..2 {
                let mut path = Path::new(&faults, Direction::Up);
                if let Some(queue) = queue.clone() {
                    path = path.with_bottleneck(queue);
                }
                let arrived = run(&mut path, 300, size, Duration::from_micros(every));
                let stats = path.stats(at(10_000));
                let dropped = stats.bottleneck.map_or(0, |link| link.dropped);
                prop_assert_eq!(
                    stats.sent + stats.duplicated,
                    stats.delivered + stats.lost + dropped
                );
                prop_assert_eq!(stats.held, 0);
                prop_assert_eq!(stats.delivered, arrived.len() as u64);
                prop_assert!(arrived.is_sorted_by_key(|(at, _)| *at));
                if faults.up.corruption == 0.0 {
                    for (arrived_at, datagram) in &arrived {
                        let index = u32::from_be_bytes(datagram[..4].try_into().unwrap());
                        let sent_at = Time::ZERO + Duration::from_micros(every) * u64::from(index);
                        prop_assert!(*arrived_at >= sent_at + faults.up.delay);
                        prop_assert_eq!(datagram, &super::tests::datagram(index, size));
                    }
                    if faults.up.reordering == 0.0 {
                        prop_assert!(arrived.is_sorted_by(|a, b| a.1 <= b.1), "order is kept");
                    }
                }
                outcomes.push((arrived, format!("{stats:?}")));
            }
            prop_assert_eq!(&outcomes[0], &outcomes[1]);
        }

        /// Without faults every datagram arrives, whole, in order, after just the delay.
        #[test]
        fn a_perfect_path_only_delays(delay in 0..1_000u64, every in 0..3_000u64, size in 4..1_500usize) {
            let every = Duration::from_micros(every);
            let mut path = Path::new(&Schedule::perfect(millis(delay)), Direction::Down);
            let arrived = run(&mut path, 200, size, every);
            let expected: Vec<_> = (0..200u32)
                .map(|index| (at(delay) + every * u64::from(index), datagram(index, size)))
                .collect();
            prop_assert_eq!(arrived, expected);
        }
    }
}
