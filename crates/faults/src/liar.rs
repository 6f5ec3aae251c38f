//! A receiver that lies in every way that an acknowledgement can.
//!
//! Nothing makes a receiver tell the truth. It may acknowledge early, late, in bursts or not at
//! all, and name false times of arrival. It may claim congestion marks that no queue made, and
//! falsify the reports of its half of an algorithm. A [`Liar`] does so between two instants and is
//! honest before and after. A test thus shows both the lies' effect and whether the flow recovers
//! from it. A liar's knowledge is a receiver's: the packets that arrived.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use verus_core::controller::{Arrival, Observer};
use verus_core::receiver::{DataRange, NumberRange, Received, Receiver, ReceiverConfig};
use verus_core::{Bytes, Duration, Time, random};

/// How many ranges one acknowledgement names, as the probe's do.
const RANGES: usize = 16;
/// Number of packets whose times of arrival are reported again.
const TIMES: usize = 8;

/// One way to lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Lie {
    /// Acknowledges this many packets more than have arrived, some in flight and some not even
    /// sent.
    Early {
        /// How many.
        ahead: u64,
    },
    /// Acknowledges everything so much later.
    Late {
        /// How much.
        by: Duration,
    },
    /// Acknowledges at whole multiples of a time only.
    Bursts {
        /// The time.
        every: Duration,
    },
    /// Never acknowledges one packet in `one_in`, on average.
    Skips {
        /// In how many.
        one_in: u32,
    },
    /// Acknowledges only one packet in `one_in`, on average.
    Selects {
        /// In how many.
        one_in: u32,
    },
    /// Acknowledges one packet in `one_in` later.
    Delays {
        /// In how many.
        one_in: u32,
        /// How much later.
        by: Duration,
    },
    /// Acknowledges by turns at once and later.
    Alternates {
        /// How much later.
        by: Duration,
        /// How long each turn is.
        every: Duration,
    },
    /// Says nothing, and then everything at once.
    Silence {
        /// For how long it says nothing, by turns with as long a time of honesty.
        length: Duration,
    },
    /// Names one packet at a time, and forgets the others.
    Narrow,
    /// Names false times of arrival.
    Times(FalseTimes),
    /// Claims to have held each acknowledgement for this long, to make round trips look shorter.
    Holds {
        /// How long.
        claimed: Duration,
    },
    /// Says everything several times.
    Repeats {
        /// How often more.
        copies: u32,
    },
    /// Lets acknowledgements overtake one another.
    Reorders {
        /// The longest such time.
        by: Duration,
    },
    /// Claims a congestion mark on one packet in `one_in`.
    Marks {
        /// In how many.
        one_in: u32,
    },
    /// Falsifies the reports of the algorithm's receiver half.
    Report(FalseReport),
}

/// Times of arrival that were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalseTimes {
    /// Always the same.
    Constant,
    /// Each earlier than the one before.
    Backwards,
    /// Centuries ahead.
    FarFuture,
    /// Anything.
    Jumping,
    /// As if packets came twice as fast.
    Compressed,
}

/// Reports that the receiver half did not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalseReport {
    /// Random bytes of random length.
    Random,
    /// A forecast of as much as its numbers can say, and everything has arrived.
    Huge,
    /// A forecast of nothing.
    Nothing,
    /// No bytes at all.
    Empty,
    /// The first one again and again.
    Old,
}

impl Lie {
    fn random(dice: &mut ChaCha8Rng) -> Self {
        let mut span = |least: u64, most: u64| {
            let ratio = most as f64 / least as f64;
            Duration::from_millis_f64(least as f64 * ratio.powf(dice.random_range(0.0..1.0)))
        };
        let (late, period) = (span(2, 3000), span(2, 2000));
        let one_in = dice.random_range(2..=50);
        match dice.random_range(0..16) {
            0 => Lie::Early {
                ahead: 1 << dice.random_range(0..12),
            },
            1 => Lie::Late { by: late },
            2 => Lie::Bursts { every: period },
            3 => Lie::Skips { one_in },
            4 => Lie::Selects { one_in },
            5 => Lie::Delays { one_in, by: late },
            6 | 7 => Lie::Alternates {
                by: late,
                every: period,
            },
            8 => Lie::Silence { length: period },
            9 => Lie::Narrow,
            10 => Lie::Times(
                [
                    FalseTimes::Constant,
                    FalseTimes::Backwards,
                    FalseTimes::FarFuture,
                    FalseTimes::Jumping,
                    FalseTimes::Compressed,
                ][dice.random_range(0..5)],
            ),
            11 => Lie::Holds { claimed: late },
            12 => Lie::Repeats {
                copies: dice.random_range(1..5),
            },
            13 => Lie::Reorders { by: late },
            14 => Lie::Marks { one_in },
            _ => Lie::Report(
                [
                    FalseReport::Random,
                    FalseReport::Huge,
                    FalseReport::Nothing,
                    FalseReport::Empty,
                    FalseReport::Old,
                ][dice.random_range(0..5)],
            ),
        }
    }
}

/// Which lies, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Lies {
    /// Seed of the liar's random draws.
    pub seed: u64,
    /// The ways of lying, all at once.
    pub lies: Vec<Lie>,
    /// The first lie.
    pub from: Time,
    /// The truth from here on.
    pub until: Time,
}

impl Lies {
    /// None at all.
    pub fn none(seed: u64) -> Self {
        Lies {
            seed,
            lies: Vec::new(),
            from: Time::ZERO,
            until: Time::ZERO,
        }
    }

    /// One to three ways of lying, from the very beginning or some seconds later, for 10 s.
    pub fn random(seed: u64) -> Self {
        let mut dice = random::stream(seed, "lies", 0);
        let many = dice.random_range(1..=3);
        let from = Time::from_millis([0, 500, 5000][dice.random_range(0..3)]);
        Lies {
            seed,
            lies: (0..many).map(|_| Lie::random(&mut dice)).collect(),
            from,
            until: from + Duration::from_secs(10),
        }
    }

    fn at(&self, now: Time) -> &[Lie] {
        if (self.from..self.until).contains(&now) {
            &self.lies
        } else {
            &[]
        }
    }
}

impl fmt::Display for Lies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.from.as_secs_f64(), self.until.as_secs_f64());
        write!(
            f,
            "seed {}, {from} to {until} s: {:?}",
            self.seed, self.lies
        )
    }
}

/// One acknowledgement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acknowledgement {
    /// The packets that came, most recent first, disjoint.
    pub ranges: Vec<NumberRange>,
    /// When some of them came, by ascending number.
    pub received: Vec<Received>,
    /// When it was written, by the receiver's clock.
    pub written: Time,
    /// Packets newly said to bear a congestion mark.
    pub marked: usize,
    /// The report of the algorithm's receiver half.
    pub report: Option<Vec<u8>>,
}

/// A receiver that lies for a while.
#[derive(Debug)]
pub struct Liar {
    lies: Lies,
    dice: ChaCha8Rng,
    observer: Option<Box<dyn Observer>>,
    /// Packets that arrived and were not reported: when they will be, and when they arrived.
    waiting: BinaryHeap<Reverse<(Time, u64, Time)>>,
    /// The reported arrivals, which the sender should believe.
    reported: Receiver,
    /// The last ones reported: number, arrival.
    recent: VecDeque<(u64, Time)>,
    /// Acknowledgements that leave later, by when and in which order.
    outbox: BTreeMap<(Time, u64), Acknowledgement>,
    sequence: u64,
    first_report: Option<Vec<u8>>,
    last_false: Time,
}

impl Liar {
    /// A receiver that tells `lies`, with the receiver half of the flow's algorithm if there is one.
    pub fn new(lies: Lies, observer: Option<Box<dyn Observer>>) -> Self {
        Liar {
            dice: random::stream(lies.seed, "liar", 0),
            lies,
            observer,
            waiting: BinaryHeap::new(),
            reported: Receiver::new(ReceiverConfig::default()),
            recent: VecDeque::new(),
            outbox: BTreeMap::new(),
            sequence: 0,
            first_report: None,
            last_false: Time::MAX,
        }
    }

    /// A packet comes.
    pub fn on_packet(&mut self, now: Time, number: u64, size: Bytes, stamp: Option<&[u8]>) {
        if let Some(observer) = &mut self.observer {
            observer.on_packet(&Arrival {
                at: now,
                number,
                size,
                stamp,
            });
        }
        let mut at = now;
        for lie in self.lies.at(now) {
            let dice = &mut self.dice;
            match *lie {
                Lie::Late { by } => at += by,
                Lie::Skips { one_in } if dice.random_ratio(1, one_in) => return,
                Lie::Selects { one_in } if !dice.random_ratio(1, one_in) => return,
                Lie::Delays { one_in, by } if dice.random_ratio(1, one_in) => at += by,
                Lie::Alternates { by, every } if turn(now, every) => at += by,
                Lie::Bursts { every } => at = next_multiple(at, every),
                Lie::Silence { length } if turn(now, length) => at = next_multiple(at, length),
                _ => {}
            }
        }
        // An honest receiver keeps nothing back.
        if now < self.lies.until {
            at = at.min(self.lies.until);
        }
        self.waiting.push(Reverse((at, number, now)));
    }

    /// When to call [`poll`](Self::poll) next, if at all.
    pub fn next(&self) -> Option<Time> {
        let waiting = self.waiting.peek().map(|Reverse((at, ..))| *at);
        let outbox = self.outbox.keys().next().map(|(at, _)| *at);
        let tick = self.observer.as_ref().and_then(|half| half.next_tick());
        waiting.into_iter().chain(outbox).chain(tick).min()
    }

    /// The next acknowledgement that leaves by `now`.
    pub fn poll(&mut self, now: Time) -> Option<Acknowledgement> {
        if let Some(observer) = &mut self.observer
            && observer.next_tick().is_some_and(|at| at <= now)
        {
            observer.on_tick(now);
        }
        let narrow = self.lies.at(now).contains(&Lie::Narrow);
        let mut news = 0;
        while let Some(&Reverse((at, number, came))) = self.waiting.peek()
            && at <= now
            && (news == 0 || !narrow)
        {
            self.waiting.pop();
            self.reported.on_packet(now, number, DataRange::default());
            if self.recent.len() == TIMES {
                self.recent.pop_front();
            }
            self.recent.push_back((number, came));
            news += 1;
        }
        if news > 0 {
            self.write(now, news);
        }
        let first = self.outbox.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Writes an acknowledgement with `news` packets in it.
    fn write(&mut self, now: Time, news: usize) {
        let mut ack = Acknowledgement {
            ranges: self.reported.ranges().take(RANGES).collect(),
            written: now,
            ..Acknowledgement::default()
        };
        let mut recent: Vec<(u64, Time)> = self.recent.iter().copied().collect();
        recent.sort_unstable();
        recent.dedup_by_key(|(number, _)| *number);
        ack.received = recent
            .into_iter()
            .map(|(number, at)| Received {
                number,
                at,
                hold: now.since(at),
            })
            .collect();
        if let Some(observer) = &self.observer {
            let mut report = Vec::new();
            observer.write_report(&mut report);
            self.first_report.get_or_insert_with(|| report.clone());
            ack.report = (!report.is_empty()).then_some(report);
        }
        let (mut copies, mut late) = (1, Duration::ZERO);
        for lie in self.lies.lies.clone() {
            if self.lies.at(now).is_empty() {
                break;
            }
            match lie {
                Lie::Early { ahead } => {
                    let ahead = self.dice.random_range(0..=ahead);
                    ack.ranges[0].last += ahead;
                }
                Lie::Narrow => {
                    if let Some(&(number, _)) = self.recent.back() {
                        ack.ranges = vec![NumberRange {
                            first: number,
                            last: number,
                        }];
                    }
                }
                Lie::Times(kind) => self.falsify(kind, &mut ack),
                Lie::Holds { claimed } => {
                    ack.received.iter_mut().for_each(|one| one.hold = claimed);
                }
                Lie::Repeats { copies: more } => copies += more,
                Lie::Reorders { by } => late = by,
                Lie::Marks { one_in } => {
                    let marked = |_: &usize| self.dice.random_ratio(1, one_in);
                    ack.marked = (0..news).filter(marked).count();
                }
                Lie::Report(kind) => ack.report = self.invent(kind, ack.report.take(), now),
                _ => {}
            }
        }
        for _ in 0..copies {
            let mut at = now;
            if !late.is_zero() {
                let spread = late.as_nanos();
                at += Duration::from_nanos(self.dice.random_range(0..=spread));
                at = at.min(self.lies.until.max(now));
            }
            self.outbox.insert((at, self.sequence), ack.clone());
            self.sequence += 1;
            ack.marked = 0; // a mark is counted once
        }
    }

    fn falsify(&mut self, kind: FalseTimes, ack: &mut Acknowledgement) {
        for one in &mut ack.received {
            one.at = match kind {
                FalseTimes::Constant => Time::from_millis(1),
                FalseTimes::Backwards => {
                    self.last_false = self.last_false - Duration::from_millis(1);
                    self.last_false
                }
                FalseTimes::FarFuture => Time::from_nanos(u64::MAX - one.number),
                FalseTimes::Jumping => Time::from_nanos(self.dice.next_u64()),
                FalseTimes::Compressed => Time::from_nanos(one.at.as_nanos() / 2),
            };
        }
        if matches!(kind, FalseTimes::FarFuture | FalseTimes::Jumping) {
            ack.written = Time::from_nanos(self.dice.next_u64());
        }
    }

    fn invent(
        &mut self,
        kind: FalseReport,
        true_one: Option<Vec<u8>>,
        now: Time,
    ) -> Option<Vec<u8>> {
        match kind {
            FalseReport::Random => {
                // Mostly of the length of a forecast, with counts that only grow.
                let mut bytes = vec![
                    0;
                    self.dice
                        .random_range(0..=28)
                        .max(self.dice.random_range(0..=28))
                ];
                self.dice.fill_bytes(&mut bytes);
                let mut counts: Vec<[u8; 2]> = bytes
                    .iter()
                    .skip(12)
                    .copied()
                    .collect::<Vec<u8>>()
                    .chunks_exact(2)
                    .map(|pair| [pair[0], pair[1]])
                    .collect();
                counts.sort_unstable();
                if bytes.len() == 28 {
                    bytes[12..].copy_from_slice(counts.as_flattened());
                }
                Some(bytes)
            }
            FalseReport::Huge => {
                let tick = u32::try_from(now.as_nanos() / 1_000_000).unwrap_or(u32::MAX);
                let mut bytes = tick.to_be_bytes().to_vec();
                bytes.extend_from_slice(&[0xff; 24]);
                Some(bytes)
            }
            FalseReport::Nothing => {
                let mut bytes = true_one?;
                // Another lie may have left less than a report.
                bytes.iter_mut().skip(12).for_each(|byte| *byte = 0);
                Some(bytes)
            }
            FalseReport::Empty => Some(Vec::new()),
            FalseReport::Old => self.first_report.clone(),
        }
    }
}

/// Whether it is the second of two turns of this length.
fn turn(now: Time, length: Duration) -> bool {
    now.as_nanos() / length.as_nanos().max(1) % 2 == 1
}

fn next_multiple(at: Time, of: Duration) -> Time {
    let of = of.as_nanos().max(1);
    Time::from_nanos(at.as_nanos().div_ceil(of) * of)
}
