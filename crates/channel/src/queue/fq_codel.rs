//! FQ-CoDel (RFC 8290): a queue with CoDel for each connection, served in turn.
//!
//! A hash assigns connections to queues, so that some share one. Each turn carries a quantum of
//! bytes. A connection that sends little is served before those that always have packets waiting.
//! Where the RFC's text and Linux differ, this follows Linux: a turn is over as soon as its credit
//! is used up, not only once it is overdrawn.

use std::collections::VecDeque;
use std::fmt;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use verus_core::Time;
use verus_words::spec::{Given, Problem, Row, field};

use super::codel::{CoDel, CoDelConfig, Head};
use super::{ECN, MILLIS};
use crate::packet::{Departed, Packet};

/// Most packets dropped at once to make room (§4.1; Linux's `drop_batch`).
const DROP_BATCH: usize = 64;

/// FQ-CoDel (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FqCodelConfig {
    /// Acceptable standing delay of each queue, in milliseconds. Default 5 (§5.2.1); it should exceed a packet's
    /// sending time.
    pub target_ms: f64,
    /// How long it may be exceeded before the first signal, in milliseconds. Default 100 (§5.2.2).
    pub interval_ms: f64,
    /// Bytes that a turn carries. Default 1514 (§5.2.4).
    pub quantum: u64,
    /// Queues. Default 1024 (§5.2.5).
    pub queues: u64,
    /// Packets that may wait in all of them. Default 10,240 (§5.2.3).
    pub packets: u64,
    /// Whether packets that are capable of it (ECN) are marked and sent where others are dropped. Default yes (§5.2.6).
    pub ecn: bool,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        FqCodelConfig {
            target_ms: 5.0,
            interval_ms: 100.0,
            quantum: 1514,
            queues: 1024,
            packets: 10_240,
            ecn: true,
        }
    }
}

impl FqCodelConfig {
    /// The limit in Linux.
    const MOST_QUEUES: u64 = 65_536;

    pub(super) const ROWS: &'static [Row<Self>] = &[
        field!(target_ms).within("ms", "acceptable standing delay of each queue", MILLIS),
        field!(interval_ms).within(
            "ms",
            "how long it may be exceeded before the first signal",
            MILLIS,
        ),
        field!(quantum).whole("bytes", "bytes that a turn carries"),
        field!(queues).whole("", "queues that connections are hashed to"),
        field!(packets).whole("packets", "packets that may wait in all"),
        field!(ecn, ECN.0).flag(ECN.1),
    ];

    pub(super) fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = FqCodelConfig::default();
        given.apply(Self::ROWS, &mut config)?;
        if config.target_ms > config.interval_ms {
            let target = config.target_ms;
            return Err(Problem::bad("target_ms", "at most interval_ms", target));
        }
        if config.queues > Self::MOST_QUEUES {
            return Err(Problem::bad("queues", "at most 65536", config.queues));
        }
        if config.quantum > 1 << 30 {
            return Err(Problem::bad(
                "quantum",
                "at most 1073741824",
                config.quantum,
            ));
        }
        Ok(config)
    }
}

impl fmt::Display for FqCodelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FqCodelConfig {
            target_ms,
            interval_ms,
            ..
        } = self;
        write!(
            f,
            "fq_codel:target_ms={target_ms},interval_ms={interval_ms}"
        )?;
        let default = FqCodelConfig::default();
        for (key, value, usual) in [
            ("quantum", self.quantum, default.quantum),
            ("queues", self.queues, default.queues),
            ("packets", self.packets, default.packets),
        ] {
            if value != usual {
                write!(f, ",{key}={value}")?;
            }
        }
        f.write_str(if self.ecn { "" } else { ",ecn=no" })
    }
}

/// The list that a queue is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKind {
    /// No list: it is empty and has had its turn.
    Out,
    New,
    Old,
}

/// A queue of one connection, or of some whose hashes are equal.
#[derive(Clone, Debug)]
struct FlowQueue<P> {
    packets: VecDeque<Departed<P>>,
    bytes: u64,
    credit: i64,
    list: ListKind,
    codel: CoDel,
}

/// FQ-CoDel at work. In the steady state nothing is allocated.
#[derive(Clone, Debug)]
pub(crate) struct FqCodel<P> {
    queues: Vec<FlowQueue<P>>,
    /// The random key of the hash (§4.1.1).
    key: u64,
    quantum: i64,
    limit: usize,
    packets: usize,
    /// Queues that have just become active, and the others, in the order of their turns (§4.1.2).
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl<P: Packet> FqCodel<P> {
    pub(super) fn new(config: &FqCodelConfig, mut rng: ChaCha8Rng) -> Self {
        let codel = CoDel::new(&CoDelConfig {
            target_ms: config.target_ms,
            interval_ms: config.interval_ms,
            limit: None,
            ecn: config.ecn,
        });
        let queue = || FlowQueue {
            packets: VecDeque::new(),
            bytes: 0,
            credit: 0,
            list: ListKind::Out,
            codel: codel.clone(),
        };
        FqCodel {
            queues: (0..config.queues).map(|_| queue()).collect(),
            key: rng.next_u64(),
            quantum: i64::try_from(config.quantum).unwrap_or(i64::MAX),
            limit: usize::try_from(config.packets).unwrap_or(usize::MAX),
            packets: 0,
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    /// The queue of a connection.
    fn index(&self, connection: u64) -> usize {
        (mix(connection ^ self.key) % self.queues.len() as u64) as usize
    }

    /// A packet arrives (§4.1). Packets dropped to make room, perhaps itself, go to `dropped`.
    pub(super) fn enqueue(&mut self, packet: Departed<P>, dropped: &mut impl FnMut(Departed<P>)) {
        let index = self.index(packet.packet.connection());
        let queue = &mut self.queues[index];
        queue.bytes += packet.size.get();
        queue.codel.saw(packet.size.get());
        queue.packets.push_back(packet);
        self.packets += 1;
        if queue.list == ListKind::Out {
            (queue.list, queue.credit) = (ListKind::New, self.quantum);
            self.new.push_back(index as u32);
        }
        if self.packets > self.limit {
            self.make_room(dropped);
        }
    }

    /// Drops half of the queue that has most bytes, from its head.
    #[cold]
    fn make_room(&mut self, dropped: &mut impl FnMut(Departed<P>)) {
        // The first of equals, as in Linux.
        let fattest = self.queues.iter_mut().rev().max_by_key(|queue| queue.bytes);
        let Some(queue) = fattest else { return };
        let threshold = queue.bytes / 2;
        let mut bytes = 0;
        for _ in 0..DROP_BATCH {
            let Some(packet) = queue.packets.pop_front() else {
                break;
            };
            bytes += packet.size.get();
            self.packets -= 1;
            dropped(packet);
            if bytes >= threshold {
                break;
            }
        }
        queue.bytes -= bytes;
    }

    /// The packet that leaves at `now` (§4.2).
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Option<Departed<P>> {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new { &self.new } else { &self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[index as usize];
            if queue.credit <= 0 {
                queue.credit += self.quantum;
                queue.list = ListKind::Old;
                self.leave(from_new);
                self.old.push_back(index);
                continue;
            }
            let before = queue.packets.len();
            let mut front = Front {
                packets: &mut queue.packets,
                bytes: &mut queue.bytes,
                dropped: &mut *dropped,
            };
            queue.codel.select(now, &mut front);
            let packet = queue.packets.pop_front();
            self.packets -= before - queue.packets.len();
            if let Some(packet) = packet {
                queue.bytes -= packet.size.get();
                queue.credit -= packet.size.get() as i64;
                return Some(packet);
            }
            // A queue that runs empty on its first turn has another among the old ones, so that emptying does not bring it
            // back before all others.
            queue.list = if from_new && !self.old.is_empty() {
                ListKind::Old
            } else {
                ListKind::Out
            };
            let stays = queue.list == ListKind::Old;
            self.leave(from_new);
            if stays {
                self.old.push_back(index);
            }
        }
    }

    /// The queue whose turn it was leaves its list.
    fn leave(&mut self, from_new: bool) {
        if from_new {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }
}

/// Spreads the bits of a key over all of it (the finaliser of SplitMix64).
fn mix(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// One queue, as CoDel looks at it.
struct Front<'a, P, F> {
    packets: &'a mut VecDeque<Departed<P>>,
    bytes: &'a mut u64,
    dropped: &'a mut F,
}

impl<P: Packet, F: FnMut(Departed<P>)> Head for Front<'_, P, F> {
    fn head(&self) -> Option<(Time, u64)> {
        let head = self.packets.front()?;
        Some((head.entered, *self.bytes - head.size.get()))
    }

    fn mark_head(&mut self) -> bool {
        let head = self.packets.front_mut();
        let capable = head.filter(|head| head.packet.ecn().is_capable());
        capable.map(|head| head.packet.mark()).is_some()
    }

    fn drop_head(&mut self) {
        if let Some(head) = self.packets.pop_front() {
            *self.bytes -= head.size.get();
            (self.dropped)(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::{Bytes, Ecn, random};

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Of(u64);

    impl Packet for Of {
        fn connection(&self) -> u64 {
            self.0
        }

        fn ecn(&self) -> Ecn {
            Ecn::NotEct
        }
    }

    fn packet(connection: u64, size: u64, ms: u64) -> Departed<Of> {
        Departed {
            packet: Of(connection),
            size: Bytes::new(size),
            entered: Time::from_millis(ms),
        }
    }

    fn fq(text: &str) -> FqCodel<Of> {
        match super::super::QueueConfig::parse(text) {
            Ok(super::super::QueueConfig::FqCodel(config)) => {
                FqCodel::new(&config, random::stream(1, "queue", 0))
            }
            other => panic!("{text} gave {other:?}"),
        }
    }

    fn none(_: Departed<Of>) {
        panic!("nothing is to be dropped");
    }

    /// The connections of the packets that leave next, at time zero.
    fn leave(fq: &mut FqCodel<Of>, packets: usize) -> Vec<u64> {
        let next = |_| fq.dequeue(Time::ZERO, &mut none).expect("waits").packet.0;
        (0..packets).map(next).collect()
    }

    #[test]
    fn backlogged_connections_send_equal_bytes_whatever_the_size_of_their_packets() {
        let mut fq = fq("fq_codel");
        for _ in 0..100 {
            fq.enqueue(packet(1, 1514, 0), &mut none);
        }
        for _ in 0..600 {
            fq.enqueue(packet(2, 300, 0), &mut none);
        }
        // A turn of one packet and one of six, then of five, then of five (credits 1514, 1228, 1242).
        let order = leave(&mut fq, 1 + 6 + 1 + 5 + 1 + 5 + 1);
        let expected = [&[1][..], &[2; 6], &[1], &[2; 5], &[1], &[2; 5], &[1]].concat();
        assert_eq!(order, expected);
        let rest = leave(&mut fq, 400);
        let ones = rest.iter().filter(|of| **of == 1).count();
        let ratio = (ones * 1514) as f64 / ((rest.len() - ones) * 300) as f64;
        assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
    }

    #[test]
    fn a_connection_that_sends_little_goes_before_the_others() {
        let mut fq = fq("fq_codel");
        for _ in 0..50 {
            fq.enqueue(packet(1, 1500, 0), &mut none);
            fq.enqueue(packet(2, 1500, 0), &mut none);
        }
        leave(&mut fq, 5);
        for _ in 0..5 {
            fq.enqueue(packet(3, 100, 0), &mut none);
            assert_eq!(leave(&mut fq, 1), [3]);
            // Its turn ends empty; the others have two each before it would be new again.
            leave(&mut fq, 4);
        }
        // One that comes back at once waits for its turn among the old.
        fq.enqueue(packet(3, 100, 0), &mut none);
        assert_eq!(leave(&mut fq, 2)[0], 3);
        fq.enqueue(packet(3, 100, 0), &mut none);
        assert!(leave(&mut fq, 2).contains(&3));
    }

    #[test]
    fn each_connection_has_a_codel_of_its_own() {
        let mut fq = fq("fq_codel");
        let at = Time::from_millis;
        let mut dropped = Vec::new();
        for ms in 0..2000 {
            // One connection has a queue of 50 packets all the time, the other sends a packet now and then.
            for _ in fq.packets..50 {
                fq.enqueue(packet(1, 1500, ms), &mut none);
            }
            if ms % 20 == 0 {
                fq.enqueue(packet(2, 100, ms), &mut none);
            }
            fq.dequeue(at(ms), &mut |packet| dropped.push(packet.packet.0));
        }
        assert!(dropped.len() > 5 && dropped.iter().all(|of| *of == 1));
    }

    #[test]
    fn what_does_not_fit_costs_the_longest_queue_half_of_itself() {
        let mut fq = fq("fq_codel:packets=100");
        let mut dropped = Vec::new();
        for _ in 0..60 {
            fq.enqueue(packet(1, 1500, 0), &mut none);
        }
        for _ in 0..40 {
            fq.enqueue(packet(2, 100, 0), &mut none);
        }
        fq.enqueue(packet(2, 100, 0), &mut |packet| {
            dropped.push(packet.packet.0)
        });
        assert_eq!(dropped, [1; 30]);
        assert_eq!(fq.packets, 71);
        // No more than 64 at once.
        let mut fq = self::fq("fq_codel:packets=200");
        for _ in 0..200 {
            fq.enqueue(packet(1, 1500, 0), &mut none);
        }
        let mut drops = 0;
        fq.enqueue(packet(2, 100, 0), &mut |_| drops += 1);
        assert_eq!(drops, 64);
    }

    #[test]
    fn of_a_hundred_connections_nine_in_ten_are_alone_in_their_queue() {
        let (mut alone, trials) = (0, 200);
        for trial in 0..trials {
            let fq: FqCodel<Of> =
                FqCodel::new(&FqCodelConfig::default(), random::stream(trial, "queue", 0));
            let first = fq.index(0);
            let all: Vec<usize> = (0..100).map(|of| fq.index(of)).collect();
            assert_eq!(all[0], first, "a connection stays where it is");
            let others = |index: &usize| all.iter().filter(|other| *other == index).count() - 1;
            alone += all.iter().filter(|index| others(index) == 0).count();
        }
        // (1 − 1/1024)⁹⁹
        let share = alone as f64 / (100 * trials) as f64;
        assert!((share - 0.9078).abs() < 0.01, "{share}");
    }
}
