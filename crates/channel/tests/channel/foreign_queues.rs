//! Queues of another crate: they do what this crate's do, and whatever they do, a link stays sound.

use std::collections::VecDeque;
use std::sync::Mutex;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use verus_channel::path::Packet;
use verus_channel::queue::{self, Queue, Registry, Waiting};
use verus_channel::{Departed, Link, QueueConfig, RateSchedule, Service, Trace, WhenOver};
use verus_core::{Bytes, Duration, Ecn, Rate, Time, random};
use verus_words::range::Within;
use verus_words::spec::{Problem, Row, field};

const PACKET: Bytes = Bytes::new(1500);

/// A packet in these tests: a number, and an ECN code point.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(u32, Ecn);

impl Packet for Number {
    fn ecn(&self) -> Ecn {
        self.1
    }

    fn mark(&mut self) {
        self.1 = Ecn::Ce;
    }
}

fn number(number: u32) -> Number {
    Number(number, Ecn::NotEct)
}

/// A configuration without keys of a queue that a function makes.
macro_rules! without_keys {
    ($name:ident, $seed:pat => $queue:expr) => {
        #[derive(Debug, Default)]
        struct $name;

        impl queue::Configuration for $name {
            const ROWS: &'static [Row<Self>] = &[];

            fn build(&self, $seed: u64) -> Box<dyn Queue> {
                Box::new($queue)
            }
        }
    };
}

fn of<C: queue::Configuration>(text: &str) -> QueueConfig {
    let registry = Registry::default().with::<C>("mine", "a queue of mine");
    registry.parse(text).expect("a queue")
}

fn at_rate(queue: &QueueConfig) -> Link<Number> {
    // A packet each millisecond.
    let service = Service::Rate(RateSchedule::constant(Rate::from_mbps(12.0)));
    Link::new(service, queue, random::stream(1, "queue", 0))
}

fn on_trace(queue: &QueueConfig) -> Link<Number> {
    let trace = Trace::from_millis("each millisecond", 1..=10).expect("a trace");
    let service = Service::Trace {
        trace: trace.into(),
        opportunity: PACKET,
        end: WhenOver::Loop,
    };
    Link::new(service, queue, random::stream(1, "queue", 0))
}

/// Drains the link: when each packet leaves, in ms, and its number; and the packets dropped
/// meanwhile.
fn drain(link: &mut Link<Number>) -> (Vec<(f64, u32)>, Vec<u32>) {
    drain_before(link, Time::MAX)
}

/// The same, for departures before `end`.
fn drain_before(link: &mut Link<Number>, end: Time) -> (Vec<(f64, u32)>, Vec<u32>) {
    let (mut left, mut dropped) = (Vec::new(), Vec::new());
    while let Some(due) = link.next_departure().filter(|due| *due < end) {
        let packet = link.depart(due, |packet| dropped.push(packet.packet.0));
        left.extend(packet.map(|packet| (due.as_millis_f64(), packet.packet.0)));
    }
    (left, dropped)
}

fn never(packet: Departed<Number>) {
    panic!("dropped {packet:?}");
}

// --- The same as a queue of this crate.

const SHARE: Within = Within {
    words: "from 0 to 1",
    valid: |share| (0.0..=1.0).contains(&share),
};

/// Drop-tail with a limit in packets.
#[derive(Debug)]
struct Tail {
    packets: u64,
    spare: f64,
    waiting: Option<u64>,
}

impl Default for Tail {
    fn default() -> Self {
        Tail {
            packets: 100,
            spare: 0.0,
            waiting: None,
        }
    }
}

impl queue::Configuration for Tail {
    const ROWS: &'static [Row<Self>] = &[
        field!(packets).whole("packets", "packets that may wait"),
        field!(spare).within("share", "what is left free of it", SHARE),
        field!(waiting).whole_or("none", "bytes", "bytes that may wait"),
    ];

    fn check(&self) -> Result<(), Problem> {
        if self.waiting.is_some() && self.spare > 0.0 {
            let problem = "spare and waiting do not go together".to_owned();
            return Err(Problem::Together(problem));
        }
        Ok(())
    }

    fn build(&self, _seed: u64) -> Box<dyn Queue> {
        Box::new(TailQueue {
            limit: self.packets as usize,
            packets: VecDeque::new(),
        })
    }
}

#[derive(Debug)]
struct TailQueue {
    limit: usize,
    packets: VecDeque<Waiting>,
}

impl Queue for TailQueue {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        if self.packets.len() < self.limit {
            self.packets.push_back(packet);
        }
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        self.packets.pop_front()
    }
}

#[test]
fn its_text_leads_back_to_it_and_what_is_wrong_with_its_keys_is_named() {
    let registry = Registry::default().with::<Tail>("mine", "a queue of mine");
    for (text, written) in [
        ("mine", "mine"),
        ("mine:packets=100", "mine"),
        ("mine:waiting=9kB,packets=7", "mine:packets=7,waiting=9000"),
        ("mine:spare=0.25", "mine:spare=0.25"),
    ] {
        let queue = registry.parse(text).expect("valid");
        assert_eq!(queue.to_string(), written);
        assert_eq!(registry.parse(written), Ok(queue));
    }
    for (text, problem) in [
        (
            "mine:pakets=7",
            "`mine` has no key `pakets`; the nearest is `packets`",
        ),
        (
            "mine:packets=0",
            "packets must be a whole number above 0, not `0`",
        ),
        ("mine:spare=2", "spare must be from 0 to 1, not `2`"),
        (
            "mine:spare=1,waiting=1",
            "spare and waiting do not go together",
        ),
        ("mien", "unknown kind `mien`; the nearest is `mine`"),
    ] {
        let error = registry.parse(text).expect_err("invalid").to_string();
        assert_eq!(error, format!("queue `{text}`: {problem}"));
    }
}

proptest! {
    #[test]
    fn a_drop_tail_queue_of_another_crate_is_this_crates(
        gaps in proptest::collection::vec(0u64..2_000_000, 1..200), limit in 1u64..10, rate: bool,
    ) {
        let mine = of::<Tail>(&format!("mine:packets={limit}"));
        let ours = QueueConfig::parse(&format!("droptail:packets={limit}")).expect("a queue");
        let link = |queue| if rate { at_rate(queue) } else { on_trace(queue) };
        let (mut mine, mut ours) = (link(&mine), link(&ours));
        let mut now = Time::ZERO;
        for (index, gap) in (0..).zip(gaps) {
            now += Duration::from_nanos(gap);
            while let Some(due) = ours.next_departure().filter(|due| *due < now) {
                prop_assert_eq!(mine.next_departure(), Some(due));
                prop_assert_eq!(mine.depart(due, never), ours.depart(due, never));
            }
            prop_assert_eq!(mine.enqueue(now, PACKET, number(index), never), ours.enqueue(now, PACKET, number(index), never));
            prop_assert_eq!(mine.next_departure(), ours.next_departure());
            prop_assert_eq!(mine.waiting_bytes(), ours.waiting_bytes());
        }
        prop_assert_eq!(drain(&mut mine), drain(&mut ours));
    }
}

// --- What a queue can do.

/// Signals at arrival to each packet, by a mark or a drop.
#[derive(Debug)]
struct Signal(VecDeque<Waiting>);

without_keys!(Signals, _ => Signal(VecDeque::new()));

impl Queue for Signal {
    fn enqueue(&mut self, _now: Time, mut packet: Waiting) {
        if packet.mark() {
            self.0.push_back(packet);
        }
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        self.0.pop_front()
    }
}

#[test]
fn a_packet_is_marked_if_it_is_capable_and_refused_if_not() {
    let mut link = at_rate(&of::<Signals>("mine"));
    for (packet, kept) in [
        (Number(1, Ecn::Ect0), Ok(())),
        (Number(2, Ecn::NotEct), Err(Number(2, Ecn::NotEct))),
        (Number(3, Ecn::Ect1), Ok(())),
    ] {
        assert_eq!(link.enqueue(Time::ZERO, PACKET, packet, never), kept);
    }
    assert_eq!((link.queued_packets(), link.waiting_bytes()), (2, PACKET));
    for expected in [1, 3] {
        let due = link.next_departure().expect("a packet");
        let packet = link.depart(due, never).expect("a packet").packet;
        assert_eq!(packet, Number(expected, Ecn::Ce));
    }
}

/// The last shall be first, and of those that are asked for, each second is dropped.
#[derive(Debug)]
struct SecondDropped(Vec<Waiting>);

without_keys!(Halves, _ => SecondDropped(Vec::new()));

impl Queue for SecondDropped {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        self.0.push(packet);
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        self.0.pop();
        self.0.pop()
    }
}

#[test]
fn a_queue_chooses_what_leaves_and_what_is_dropped_then() {
    let mut link = on_trace(&of::<Halves>("mine"));
    for index in 0..5 {
        link.enqueue(Time::ZERO, PACKET, number(index), never)
            .expect("room");
    }
    let expected = (vec![(1.0, 3), (2.0, 1)], vec![4, 2, 0]);
    assert_eq!(drain(&mut link), expected);
    assert_eq!(
        (link.queued_packets(), link.waiting_bytes()),
        (0, Bytes::ZERO)
    );
}

#[test]
fn a_packet_that_is_dropped_as_it_begins_to_be_sent_is_told_of() {
    let mut link = at_rate(&of::<Halves>("mine"));
    let mut dropped = Vec::new();
    for index in 0..3 {
        let kept = link.enqueue(Time::ZERO, PACKET, number(index), |packet| {
            dropped.push(packet.packet.0);
        });
        assert_eq!(kept, Ok(()));
        assert_eq!((link.next_departure(), link.queued_packets()), (None, 0));
    }
    assert_eq!(dropped, [0, 1, 2]);
}

// --- What a queue should not do.

/// Gives nothing until this many packets wait.
#[derive(Debug)]
struct Hoard(usize, VecDeque<Waiting>);

without_keys!(Miser, _ => Hoard(usize::MAX, VecDeque::new()));
without_keys!(Threes, _ => Hoard(3, VecDeque::new()));

impl Queue for Hoard {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        self.1.push_back(packet);
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        if self.1.len() < self.0 {
            return None;
        }
        self.1.pop_front()
    }
}

#[test]
fn a_link_rests_before_a_queue_that_gives_nothing() {
    for mut link in [at_rate, on_trace].map(|link| link(&of::<Miser>("mine"))) {
        for index in 0..100 {
            let now = Time::from_millis(u64::from(index));
            link.enqueue(now, PACKET, number(index), never)
                .expect("room");
            assert_eq!(drain(&mut link), (vec![], vec![]));
            assert_eq!(link.queued_packets(), index as usize + 1);
        }
        assert_eq!(link.waiting_bytes(), Bytes::new(150_000));
    }
}

#[test]
fn a_queue_that_gave_nothing_is_asked_again_when_a_packet_arrives() {
    for (link, expected) in [
        (
            at_rate as fn(&QueueConfig) -> _,
            [(3.5, 0), (4.5, 1), (5.5, 2)],
        ),
        (on_trace, [(3.0, 0), (4.0, 1), (5.0, 2)]),
    ] {
        let mut link = link(&of::<Threes>("mine"));
        let mut departures = Vec::new();
        for index in 0..5 {
            let now = Time::ZERO + Duration::from_millis_f64(f64::from(index) + 0.5);
            link.enqueue(now, PACKET, number(index), never)
                .expect("room");
            let next = now + Duration::from_millis(1);
            departures.extend(drain_before(&mut link, next).0);
        }
        departures.extend(drain(&mut link).0);
        // From the third arrival on, three wait.
        assert_eq!(departures, expected);
        assert_eq!(link.queued_packets(), 2);
    }
}

static TAKEN: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// Shares what waits with all others of its kind.
#[derive(Debug)]
struct Shared;

without_keys!(Swap, _ => Shared);

impl Queue for Shared {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        TAKEN.lock().expect("one thread").push(packet);
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        TAKEN.lock().expect("one thread").pop()
    }
}

#[test]
fn a_packet_of_another_link_is_dropped_there() {
    let queue = of::<Swap>("mine");
    let (mut one, mut other) = (on_trace(&queue), on_trace(&queue));
    other
        .enqueue(Time::ZERO, PACKET, number(2), never)
        .expect("room");
    one.enqueue(Time::ZERO, PACKET, number(1), never)
        .expect("room");
    assert_eq!(drain(&mut other), (vec![], vec![]));
    assert_eq!(drain(&mut one), (vec![], vec![1]));
    assert_eq!((one.queued_packets(), other.queued_packets()), (0, 1));
}

/// Keeps, drops, marks, reorders and withholds as dice say.
#[derive(Debug)]
struct Dice(ChaCha8Rng, Vec<Waiting>);

without_keys!(Chance, seed => Dice(ChaCha8Rng::seed_from_u64(seed), Vec::new()));

impl Dice {
    fn any(&mut self) -> Option<Waiting> {
        let waiting = self.1.len() as u64;
        (waiting > 0).then(|| self.1.swap_remove((self.0.next_u64() % waiting) as usize))
    }

    fn disturb(&mut self) {
        match self.0.next_u64() % 8 {
            0 => drop(self.any()),
            1 => self.1.clear(),
            2 => std::mem::forget(self.any()),
            3 => {
                self.1.last_mut().map(Waiting::mark);
            }
            _ => {}
        }
    }
}

impl Queue for Dice {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        self.1.push(packet);
        self.disturb();
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        self.disturb();
        if self.0.next_u64().is_multiple_of(8) {
            return None;
        }
        self.any()
    }
}

proptest! {
    #[test]
    fn whatever_a_queue_does_each_packet_is_sent_dropped_or_waiting(
        gaps in proptest::collection::vec((0u64..3_000_000, 1u64..3000), 1..200), rate: bool,
    ) {
        let mut link = if rate { at_rate } else { on_trace }(&of::<Chance>("mine"));
        let (mut now, mut ends) = (Time::ZERO, vec![0; gaps.len()]);
        let mut bytes = 0;
        for (index, (gap, size)) in (0..).zip(gaps) {
            now += Duration::from_nanos(gap);
            let mut end = |packet: Departed<Number>| {
                ends[packet.packet.0 as usize] += 1;
                bytes -= packet.size.get();
            };
            let mut calls = 0;
            while let Some(due) = link.next_departure().filter(|due| *due < now) {
                link.depart(due, &mut end).into_iter().for_each(&mut end);
                calls += 1;
                prop_assert!(calls < 1000, "it comes to an end");
            }
            bytes += size;
            let kept = link.enqueue(now, Bytes::new(size), number(index), |packet| {
                ends[packet.packet.0 as usize] += 1;
                bytes -= packet.size.get();
            });
            if let Err(packet) = kept {
                ends[packet.0 as usize] += 1;
                bytes -= size;
            }
            let inside = link.waiting_bytes().get() + link.being_sent().map_or(0, |packet| packet.size.get());
            prop_assert_eq!(bytes, inside);
            let ended: usize = ends.iter().sum();
            prop_assert_eq!(index as usize + 1 - ended, link.queued_packets());
        }
        prop_assert!(ends.iter().all(|&times| times <= 1), "nothing ends twice: {:?}", ends);
    }
}
