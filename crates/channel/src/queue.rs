//! Queue disciplines: what waits before a link, and what is refused or dropped.
//!
//! A discipline decides and counts; [`crate::Link`] holds the packets. All thresholds are in bytes (or
//! packets, for a drop-tail queue that asks for them) and concern what *waits*: the packet being
//! sent has left the queue, as in Linux, ns-3 and Mahimahi.

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use verus_core::spec::{Given, Kind, Problem, Row, Shown, Within, Words, either, shown, word_for};
use verus_core::{Duration, Time};

use crate::path::loss::uniform;

/// A queue discipline and its settings. As text (and in serialised form): `KIND[:key=value,…]`, for example
/// `red:min=375000,max=1125000,p=0.1`, `droptail:bytes=120000`, `codel` or `infinite`; [`catalogue`] lists them all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum QueueConfig {
    /// Everything waits.
    Infinite,
    /// What does not fit is refused.
    DropTail(Limit),
    /// Random early detection.
    Red(RedConfig),
    /// Controlled delay.
    CoDel(CoDelConfig),
}

/// How much may wait in a drop-tail queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This many bytes.
    Bytes(u64),
    /// This many packets, whatever their size.
    Packets(u64),
}

/// Random early detection (Floyd & Jacobson 1993).
#[derive(Clone, Debug, PartialEq)]
pub struct RedConfig {
    /// Average queue below which nothing is dropped, in bytes. Default 375,000: the 3 Mbit of Verus §6.
    pub min: u64,
    /// Average queue from which everything is (or, `gentle`, ever more is) dropped, in bytes. Default 1,125,000:
    /// the 9 Mbit of Verus §6.
    pub max: u64,
    /// Drop probability as the average reaches `max`. Default 0.1 (Verus §6).
    pub p: f64,
    /// Bytes that may wait whatever the average says. Default: no limit, as the papers state none.
    pub limit: Option<u64>,
    /// w_q, the weight of each arrival in the average. Default 0.002 (Floyd & Jacobson 1993, §6).
    pub weight: f64,
    /// How drops are spaced, what is beyond `max`, and what an idle link does to the average.
    pub preset: RedPreset,
}

/// The variants of RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RedPreset {
    /// As published: drops spaced evenly by counting the packets since the last one, everything dropped above `max`,
    /// and an average that falls by one step for each opportunity unused while the link was idle.
    #[default]
    Floyd,
    /// As `Floyd`, but between `max` and twice `max` the drop probability rises from `p` to 1.
    Gentle,
    /// As in the CS244 reproduction of 2017: drops are independent (its counter is reset by each accepted
    /// packet), everything is dropped above `max`, and an empty queue forgets its average within a few
    /// milliseconds (a constant that looks meant per second, applied per millisecond).
    Cs244,
}

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoDelConfig {
    /// Acceptable standing delay in milliseconds. Default 5 (RFC 8289 §4.3).
    pub target_ms: f64,
    /// How long the delay must stay above it before the first drop, in milliseconds. Default 100 (RFC 8289 §4.3).
    pub interval_ms: f64,
    /// Bytes that may wait at all. Default: no limit.
    pub limit: Option<u64>,
}

impl Default for RedConfig {
    fn default() -> Self {
        let preset = RedPreset::default();
        RedConfig {
            min: 375_000,
            max: 1_125_000,
            p: 0.1,
            limit: None,
            weight: 0.002,
            preset,
        }
    }
}

impl Default for CoDelConfig {
    fn default() -> Self {
        CoDelConfig {
            target_ms: 5.0,
            interval_ms: 100.0,
            limit: None,
        }
    }
}

// --- Text.

const PROBABILITY: Within = Within {
    words: "above 0 and at most 1",
    valid: |value| value > 0.0 && value <= 1.0,
};

/// A day: beyond any use, and far from the end of the clock.
const MILLIS: Within = Within {
    words: "a number of milliseconds above 0 and at most 86400000",
    valid: |value| value > 0.0 && value <= 86_400_000.0,
};

const LIMIT: (&str, &str, &str) = ("limit", "bytes", "hard limit on what waits");

impl RedPreset {
    const WORDS: Words<RedPreset> = &[
        ("floyd", RedPreset::Floyd),
        ("gentle", RedPreset::Gentle),
        ("cs244", RedPreset::Cs244),
    ];
}

impl RedConfig {
    const ROWS: &'static [Row<Self>] = &[
        Row::whole(
            "min",
            "bytes",
            "average queue below which nothing is dropped",
            "",
            |c| Some(c.min),
            |c, v| c.min = v,
        ),
        Row::whole(
            "max",
            "bytes",
            "average queue above which everything is dropped",
            "",
            |c| Some(c.max),
            |c, v| c.max = v,
        ),
        Row::within(
            "p",
            "probability",
            "drop probability as the average reaches max",
            PROBABILITY,
            |c| c.p,
            |c, v| c.p = v,
        ),
        Row::whole(
            LIMIT.0,
            LIMIT.1,
            LIMIT.2,
            "none",
            |c| c.limit,
            |c, v| c.limit = Some(v),
        ),
        Row::within(
            "weight",
            "fraction",
            "weight of each arrival in the average",
            PROBABILITY,
            |c| c.weight,
            |c, v| c.weight = v,
        ),
        Row::other(
            "preset",
            || either(RedPreset::WORDS),
            "as published; dropping ever more between max and 2 max; as in the 2017 reproduction",
            |c| word_for(RedPreset::WORDS, &c.preset),
            |c, setting| setting.word(RedPreset::WORDS).map(|v| c.preset = v),
        ),
    ];

    fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = RedConfig::default();
        given.apply(Self::ROWS, &mut config)?;
        if config.min >= config.max {
            return Err(Problem::bad("min", "less than max", config.min));
        }
        Ok(config)
    }
}

impl CoDelConfig {
    const ROWS: &'static [Row<Self>] = &[
        Row::within(
            "target_ms",
            "ms",
            "acceptable standing delay",
            MILLIS,
            |c| c.target_ms,
            |c, v| c.target_ms = v,
        ),
        Row::within(
            "interval_ms",
            "ms",
            "how long it may be exceeded before the first drop",
            MILLIS,
            |c| c.interval_ms,
            |c, v| c.interval_ms = v,
        ),
        Row::whole(
            LIMIT.0,
            LIMIT.1,
            LIMIT.2,
            "none",
            |c| c.limit,
            |c, v| c.limit = Some(v),
        ),
    ];

    fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = CoDelConfig::default();
        given.apply(Self::ROWS, &mut config)?;
        if config.target_ms > config.interval_ms {
            return Err(Problem::bad(
                "target_ms",
                "at most interval_ms",
                config.target_ms,
            ));
        }
        Ok(config)
    }
}

/// What a text says of a drop-tail queue.
#[derive(Default)]
struct DropTail {
    bytes: Option<u64>,
    packets: Option<u64>,
}

impl DropTail {
    const NEEDED: &'static str = "one of the two is needed";
    const ROWS: &'static [Row<Self>] = &[
        Row::whole(
            "bytes",
            "bytes",
            "bytes that may wait",
            Self::NEEDED,
            |c| c.bytes,
            |c, v| c.bytes = Some(v),
        ),
        Row::whole(
            "packets",
            "packets",
            "packets that may wait",
            Self::NEEDED,
            |c| c.packets,
            |c, v| c.packets = Some(v),
        ),
    ];

    fn read(given: &Given<'_>) -> Result<Limit, Problem> {
        let mut config = DropTail::default();
        given.apply(Self::ROWS, &mut config)?;
        match (config.bytes, config.packets) {
            (Some(bytes), None) => Ok(Limit::Bytes(bytes)),
            (None, Some(packets)) => Ok(Limit::Packets(packets)),
            _ => {
                let problem = "`droptail` needs one of bytes=N and packets=N";
                Err(Problem::Together(problem.to_owned()))
            }
        }
    }
}

const KINDS: &[Kind<QueueConfig>] = &[
    Kind {
        name: "red",
        summary: "random early detection: drops more often the longer the average queue (Floyd & Jacobson 1993)",
        example: "red:min=375000,max=1125000,p=0.1",
        keys: || shown(RedConfig::ROWS, &RedConfig::default()),
        read: |given| RedConfig::read(given).map(QueueConfig::Red),
    },
    Kind {
        name: "droptail",
        summary: "first in, first out; refuses what does not fit",
        example: "droptail:bytes=120000",
        keys: || shown(DropTail::ROWS, &DropTail::default()),
        read: |given| DropTail::read(given).map(QueueConfig::DropTail),
    },
    Kind {
        name: "codel",
        summary: "controlled delay: drops at the head while packets wait too long (RFC 8289)",
        example: "codel:target_ms=5,interval_ms=100",
        keys: || shown(CoDelConfig::ROWS, &CoDelConfig::default()),
        read: |given| CoDelConfig::read(given).map(QueueConfig::CoDel),
    },
    Kind {
        name: "infinite",
        summary: "first in, first out; never drops",
        example: "infinite",
        keys: Vec::new,
        read: |given| {
            given.apply(&[], &mut ())?;
            Ok(QueueConfig::Infinite)
        },
    },
];

/// Every kind of queue with its keys, units and defaults.
pub fn catalogue() -> Vec<Shown> {
    Kind::list(KINDS)
}

/// Why a text is no queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("queue `{text}`: {problem}")]
pub struct SpecError {
    /// The whole text, as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl QueueConfig {
    /// The queue that `text` describes.
    ///
    /// # Errors
    /// If a kind, key or value is unknown or out of range; the message names it and lists the valid ones.
    pub fn parse(text: &str) -> Result<QueueConfig, SpecError> {
        Kind::parse(KINDS, text).map_err(|problem| SpecError {
            text: text.to_owned(),
            problem,
        })
    }

    /// Checks values that did not come through [`QueueConfig::parse`].
    ///
    /// # Errors
    /// As for the same values as text.
    pub fn check(&self) -> Result<(), SpecError> {
        QueueConfig::parse(&self.to_string()).map(drop)
    }
}

impl fmt::Display for QueueConfig {
    /// The text from which [`QueueConfig::parse`] makes the same queue again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |f: &mut fmt::Formatter<'_>, limit: &Option<u64>| match limit {
            Some(limit) => write!(f, ",limit={limit}"),
            None => Ok(()),
        };
        match self {
            QueueConfig::Infinite => f.write_str("infinite"),
            QueueConfig::DropTail(Limit::Bytes(bytes)) => write!(f, "droptail:bytes={bytes}"),
            QueueConfig::DropTail(Limit::Packets(packets)) => {
                write!(f, "droptail:packets={packets}")
            }
            QueueConfig::CoDel(codel) => {
                write!(
                    f,
                    "codel:target_ms={},interval_ms={}",
                    codel.target_ms, codel.interval_ms
                )?;
                limit(f, &codel.limit)
            }
            QueueConfig::Red(red) => {
                write!(f, "red:min={},max={},p={}", red.min, red.max, red.p)?;
                limit(f, &red.limit)?;
                if red.weight != RedConfig::default().weight {
                    write!(f, ",weight={}", red.weight)?;
                }
                f.write_str(match red.preset {
                    RedPreset::Floyd => "",
                    RedPreset::Gentle => ",preset=gentle",
                    RedPreset::Cs244 => ",preset=cs244",
                })
            }
        }
    }
}

impl FromStr for QueueConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        QueueConfig::parse(text)
    }
}

impl TryFrom<String> for QueueConfig {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        QueueConfig::parse(&text)
    }
}

impl From<QueueConfig> for String {
    fn from(config: QueueConfig) -> String {
        config.to_string()
    }
}

// --- Decisions.

/// What waits when a packet arrives, and how long nothing did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub now: Time,
    pub size: u64,
    /// Bytes and packets that wait; the arriving packet and the one being sent are not among them.
    pub waiting_bytes: u64,
    pub waiting_packets: u64,
    /// If nothing waits and nothing is being sent: the opportunities that went unused since then.
    pub unused: Option<u64>,
}

/// A discipline at work.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    Infinite,
    DropTailBytes(u64),
    DropTailPackets(u64),
    Red(Box<Red>),
    CoDel(Box<CoDel>),
}

impl Discipline {
    pub(crate) fn new(config: &QueueConfig, rng: ChaCha8Rng) -> Self {
        match config {
            QueueConfig::Infinite => Discipline::Infinite,
            QueueConfig::DropTail(Limit::Bytes(bytes)) => Discipline::DropTailBytes(*bytes),
            QueueConfig::DropTail(Limit::Packets(packets)) => Discipline::DropTailPackets(*packets),
            QueueConfig::Red(red) => Discipline::Red(Box::new(Red::new(red.clone(), rng))),
            QueueConfig::CoDel(codel) => Discipline::CoDel(Box::new(CoDel::new(codel))),
        }
    }

    /// Whether the packet may wait.
    #[inline]
    pub(crate) fn accepts(&mut self, arrival: &Arrival) -> bool {
        match self {
            Discipline::Infinite => true,
            Discipline::DropTailBytes(limit) => arrival.waiting_bytes + arrival.size <= *limit,
            Discipline::DropTailPackets(limit) => arrival.waiting_packets < *limit,
            Discipline::Red(red) => red.accepts(arrival),
            Discipline::CoDel(codel) => codel.accepts(arrival),
        }
    }

    /// The queue ran empty.
    #[inline]
    pub(crate) fn on_empty(&mut self, now: Time) {
        if let Discipline::Red(red) = self {
            red.empty_since = now;
        }
    }

    /// Whether anybody asks for [`Arrival::unused`].
    pub(crate) fn counts_unused(&self) -> bool {
        matches!(self, Discipline::Red(_))
    }
}

/// Random early detection (Floyd & Jacobson 1993, Fig. 2), in bytes. Whether a packet is dropped does not
/// depend on its own size (RFC 7141 §2.3).
#[derive(Clone, Debug)]
pub(crate) struct Red {
    config: RedConfig,
    rng: ChaCha8Rng,
    /// The moving average of the queue, in bytes.
    average: f64,
    /// Packets accepted since the last drop, or since the average rose above `min`.
    accepted: u64,
    /// When the queue ran empty.
    empty_since: Time,
}

impl Red {
    fn new(config: RedConfig, rng: ChaCha8Rng) -> Self {
        Red {
            config,
            rng,
            average: 0.0,
            accepted: 0,
            empty_since: Time::ZERO,
        }
    }

    fn accepts(&mut self, arrival: &Arrival) -> bool {
        self.update(arrival);
        let full =
            (self.config.limit).is_some_and(|limit| arrival.waiting_bytes + arrival.size > limit);
        let chance = self.chance();
        let dropped = full || chance >= 1.0 || chance > 0.0 && uniform(&mut self.rng) < chance;
        let in_range = chance > 0.0 || full;
        let spaced = self.config.preset != RedPreset::Cs244;
        // The counter that CS244's RED resets on each accepted packet is always 0.
        self.accepted = if spaced && in_range && !dropped {
            self.accepted + 1
        } else {
            0
        };
        !dropped
    }

    /// Moves the average to this arrival.
    fn update(&mut self, arrival: &Arrival) {
        let keep = 1.0 - self.config.weight;
        if self.config.preset == RedPreset::Cs244 {
            if arrival.waiting_packets > 0 {
                self.average =
                    keep * self.average + self.config.weight * arrival.waiting_bytes as f64;
            } else {
                let idle_ms = arrival
                    .now
                    .as_millis()
                    .saturating_sub(self.empty_since.as_millis());
                self.average *= power(keep, idle_ms.saturating_mul(1000));
            }
            return;
        }
        // A link that was idle could have sent this many packets, each finding an empty queue (the paper's m).
        // The arrival itself finds one too, which its text leaves out but its authors' simulator counts.
        if let Some(unused) = arrival.unused {
            self.average *= power(keep, unused);
        }
        self.average = keep * self.average + self.config.weight * arrival.waiting_bytes as f64;
    }

    /// The probability with which this arrival is dropped.
    fn chance(&self) -> f64 {
        let RedConfig {
            min,
            max,
            p,
            preset,
            ..
        } = self.config;
        let (min, max) = (min as f64, max as f64);
        let base = if self.average < min {
            return 0.0;
        } else if self.average < max {
            p * (self.average - min) / (max - min)
        } else if preset == RedPreset::Gentle && self.average < 2.0 * max {
            p + (1.0 - p) * (self.average - max) / max
        } else {
            return 1.0;
        };
        // Makes the gap between drops uniform instead of geometric: p_a = p_b / (1 − count·p_b).
        let room = 1.0 - self.accepted as f64 * base;
        if room > base { base / room } else { 1.0 }
    }
}

/// `base` to the power `exponent`, by squaring: the same bits on every machine, unlike the library's.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 && result > 0.0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// Controlled delay (RFC 8289 §5), which decides as packets leave the queue.
#[derive(Clone, Debug)]
pub(crate) struct CoDel {
    target: Duration,
    interval: Duration,
    limit: u64,
    /// The largest packet seen: with less than that waiting, no queue is standing (§5.4: `maxpacket_`).
    largest: u64,
    first_above: Option<Time>,
    drop_next: Time,
    count: u64,
    last_count: u64,
    dropping: bool,
}

impl CoDel {
    fn new(config: &CoDelConfig) -> Self {
        CoDel {
            target: Duration::from_millis_f64(config.target_ms),
            interval: Duration::from_millis_f64(config.interval_ms),
            limit: config.limit.unwrap_or(u64::MAX),
            largest: 0,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    fn accepts(&mut self, arrival: &Arrival) -> bool {
        self.largest = self.largest.max(arrival.size);
        arrival.waiting_bytes.saturating_add(arrival.size) <= self.limit
    }

    /// Decides which packet leaves the queue at `now` (§5.5, `deque`): drops those that must go, after which
    /// the packet at the head of `queue` is the one to send.
    pub(crate) fn select(&mut self, now: Time, queue: &mut impl Head) {
        let mut ok_to_drop = self.ok_to_drop(now, queue);
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                queue.drop_head();
                self.count += 1;
                ok_to_drop = self.ok_to_drop(now, queue);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            queue.drop_head();
            self.ok_to_drop(now, queue);
            self.dropping = true;
            // If the last drops were not long ago, their pace was about right: carry on from there.
            let recent = now.since(self.drop_next) < self.interval * 16;
            let earlier = self.count - self.last_count;
            self.count = if recent && earlier > 1 { earlier } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
    }

    /// Whether the delay of the packet at the head has been above target for an interval (§5.6, `dodequeue`).
    fn ok_to_drop(&mut self, now: Time, queue: &impl Head) -> bool {
        let standing = queue.head().is_some_and(|(entered, behind)| {
            now.since(entered) >= self.target && behind > self.largest
        });
        match self.first_above {
            _ if !standing => {
                self.first_above = None;
                false
            }
            None => {
                self.first_above = Some(now + self.interval);
                false
            }
            Some(deadline) => now >= deadline,
        }
    }

    /// When the next drop is due after one at `from` (§5.3): ever sooner while drops do not help.
    fn control_law(&self, from: Time) -> Time {
        from + self.interval.mul_f64(1.0 / (self.count as f64).sqrt())
    }
}

/// The end of a queue that [`CoDel`] looks at.
pub(crate) trait Head {
    /// When the packet at the head entered, and the bytes that wait behind it.
    fn head(&self) -> Option<(Time, u64)>;
    /// Drops it.
    fn drop_head(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    fn red(text: &str) -> Red {
        match QueueConfig::parse(text) {
            Ok(QueueConfig::Red(config)) => Red::new(config, random::stream(1, "queue", 0)),
            other => panic!("{text} gave {other:?}"),
        }
    }

    /// An arrival at a queue of `bytes` (in packets of 1000) at `ms`.
    fn arrival(ms: u64, bytes: u64, unused: Option<u64>) -> Arrival {
        let now = Time::from_millis(ms);
        Arrival {
            now,
            size: 1000,
            waiting_bytes: bytes,
            waiting_packets: bytes / 1000,
            unused,
        }
    }

    #[test]
    fn text_and_back_gives_the_same_queue() {
        let texts = [
            "infinite",
            "droptail:bytes=120000",
            "droptail:packets=7",
            "codel:target_ms=5,interval_ms=100",
            "codel:target_ms=2.5,interval_ms=50,limit=1000000",
            "red:min=375000,max=1125000,p=0.1",
            "red:min=375000,max=1125000,p=0.1,preset=cs244",
            "red:min=1,max=2,p=1,limit=9,weight=0.5,preset=gentle",
        ];
        for text in texts {
            let queue = QueueConfig::parse(text).unwrap();
            assert_eq!(queue.to_string(), text);
            let json = serde_json::to_string(&queue).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<QueueConfig>(&json).unwrap(), queue);
        }
    }

    #[test]
    fn defaults_are_the_papers() {
        let parse = |text| QueueConfig::parse(text).unwrap();
        assert_eq!(
            parse("red"),
            parse("red:min=375000,max=1125000,p=0.1,preset=floyd")
        );
        assert_eq!(parse("codel"), parse("codel:target_ms=5,interval_ms=100"));
    }

    #[test]
    fn every_example_and_key_in_the_catalogue_is_understood() {
        for kind in catalogue() {
            QueueConfig::parse(kind.example).unwrap();
            for key in &kind.keys {
                let value = if key.key == "preset" { "floyd" } else { "1" };
                match QueueConfig::parse(&format!("{}:{}={value}", kind.name, key.key)) {
                    Ok(_) => {}
                    Err(SpecError {
                        problem: Problem::BadValue { .. },
                        ..
                    }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    #[test]
    fn each_fault_in_a_text_is_named() {
        let cases = [
            (
                "fifo",
                "unknown kind `fifo`; known are red, droptail, codel, infinite",
            ),
            (
                "",
                "unknown kind ``; known are red, droptail, codel, infinite",
            ),
            (
                "red:maximum=5",
                "`red` has no key `maximum`; its keys are min, max, p, limit, weight, preset",
            ),
            (
                "infinite:bytes=5",
                "`infinite` has no key `bytes`; its keys are none",
            ),
            ("red:min", "each parameter must be key=value, not `min`"),
            ("red:", "each parameter must be key=value, not ``"),
            ("red:min=5,min=6", "min must be given once, not `6`"),
            ("red:p=NaN", "p must be above 0 and at most 1, not `NaN`"),
            ("red:p=0", "p must be above 0 and at most 1, not `0`"),
            ("red:p=1.5", "p must be above 0 and at most 1, not `1.5`"),
            ("red:min=-1", "min must be a whole number above 0, not `-1`"),
            ("red:min=5,max=5", "min must be less than max, not `5`"),
            ("red:max=1000", "min must be less than max, not `375000`"),
            (
                "red:preset=linux",
                "preset must be one of floyd, gentle, cs244, not `linux`",
            ),
            ("droptail", "`droptail` needs one of bytes=N and packets=N"),
            (
                "droptail:bytes=1,packets=1",
                "`droptail` needs one of bytes=N and packets=N",
            ),
            (
                "droptail:bytes=0",
                "bytes must be a whole number above 0, not `0`",
            ),
            (
                "droptail:bytes=1e5",
                "bytes must be a whole number above 0, not `1e5`",
            ),
            (
                "codel:target_ms=inf",
                "target_ms must be a number of milliseconds above 0 and at most 86400000, not `inf`",
            ),
            (
                "codel:target_ms=200",
                "target_ms must be at most interval_ms, not `200`",
            ),
        ];
        for (text, problem) in cases {
            let error = QueueConfig::parse(text).unwrap_err();
            assert_eq!(error.to_string(), format!("queue `{text}`: {problem}"));
        }
    }

    #[test]
    fn the_average_moves_by_its_weight_at_each_arrival() {
        let mut red = red("red:min=500000,max=1000000,weight=0.25");
        let mut averages = Vec::new();
        for bytes in [4000, 4000, 0] {
            assert!(red.accepts(&arrival(0, bytes, None)));
            averages.push(red.average);
        }
        assert_eq!(averages, [1000.0, 1750.0, 1312.5]);
    }

    #[test]
    fn an_idle_link_takes_a_step_off_the_average_for_each_unused_opportunity() {
        let mut red = red("red:min=500000,max=1000000,weight=0.5");
        red.average = 64_000.0;
        // Three unused, and the arrival itself finds an empty queue too.
        assert!(red.accepts(&arrival(9, 0, Some(3))));
        assert_eq!(red.average, 4_000.0);
        assert!(red.accepts(&arrival(9, 0, Some(0))));
        assert_eq!(red.average, 2_000.0);
    }

    #[test]
    fn nothing_is_dropped_below_min_and_everything_above_max() {
        let mut red = red("red:min=10000,max=20000,p=0.5,weight=1");
        assert!((0..1000).all(|_| red.accepts(&arrival(0, 9_999, None))));
        assert!((0..1000).all(|_| !red.accepts(&arrival(0, 20_000, None))));
    }

    #[test]
    fn the_drop_probability_rises_with_the_average() {
        let mut red = red("red:min=10000,max=20000,p=0.5,weight=1");
        for (average, base) in [(10_000.0, 0.0), (15_000.0, 0.25), (18_000.0, 0.4)] {
            red.average = average;
            assert_eq!(red.chance(), base);
        }
        // p_a = p_b / (1 − count·p_b): after two accepted, 0.25 becomes 0.5; after three, a certainty.
        red.average = 15_000.0;
        red.accepted = 2;
        assert_eq!(red.chance(), 0.5);
        red.accepted = 3;
        assert_eq!(red.chance(), 1.0);
    }

    #[test]
    fn counting_makes_gaps_between_drops_uniform() {
        // p_b = 0.1: the gap between drops is uniform on 1..=10, with mean 5.5.
        let mut red = red("red:min=10000,max=20000,p=0.2,weight=1");
        let mut gaps = [0u32; 11];
        let mut gap = 0;
        for _ in 0..110_000 {
            gap += 1;
            if !red.accepts(&arrival(0, 15_000, None)) {
                gaps[gap] += 1;
                gap = 0;
            }
        }
        // 20,000 drops: 2000 expected at each gap, standard deviation 42.
        for (gap, count) in gaps.iter().enumerate().skip(1) {
            assert!(count.abs_diff(2000) < 220, "{count} gaps of {gap}");
        }
    }

    #[test]
    fn gentle_rises_from_p_to_1_between_max_and_twice_max() {
        let mut red = red("red:min=10000,max=20000,p=0.5,preset=gentle");
        let cases = [
            (20_000.0, 0.5),
            (30_000.0, 0.75),
            (40_000.0, 1.0),
            (50_000.0, 1.0),
        ];
        for (average, chance) in cases {
            red.average = average;
            assert_eq!(red.chance(), chance);
        }
    }

    #[test]
    fn a_hard_limit_holds_whatever_the_average() {
        let mut red = red("red:min=10000,max=20000,limit=5000");
        assert!(red.accepts(&arrival(0, 4000, None)));
        assert!(!red.accepts(&arrival(0, 4001, None)));
    }

    #[test]
    fn cs244_drops_each_arrival_independently() {
        // p_b = 0.1: gaps are geometric, so one in ten follows a drop at once, where even spacing has one in 5.5·10.
        let mut red = red("red:min=10000,max=20000,p=0.2,weight=1,preset=cs244");
        let outcomes: Vec<bool> = (0..100_000)
            .map(|_| red.accepts(&arrival(0, 15_000, None)))
            .collect();
        let drops = outcomes.iter().filter(|accepted| !**accepted).count();
        assert!(drops.abs_diff(10_000) < 500, "{drops} drops");
        let pairs = outcomes
            .windows(2)
            .filter(|pair| !pair[0] && !pair[1])
            .count();
        assert!(pairs.abs_diff(1_000) < 160, "{pairs} drops after a drop");
        red.average = 1e6;
        assert!(!red.accepts(&arrival(0, 30_000, None)));
    }

    #[test]
    fn cs244_forgets_its_average_when_empty_for_some_milliseconds() {
        let mut red = red("red:preset=cs244");
        red.average = 1e6;
        red.empty_since = Time::from_nanos(9_900_000);
        // From millisecond 9 to 10, by the millisecond clock: 0.998^1000 = 0.135.
        assert!(red.accepts(&arrival(10, 0, Some(0))));
        assert!((red.average / 1e6 - 0.1351).abs() < 1e-4, "{}", red.average);
        red.empty_since = Time::from_millis(10);
        assert!(red.accepts(&arrival(110, 0, Some(0))));
        assert!(red.average < 1e-6);
        // Within a millisecond it keeps all of it.
        red.average = 1e5;
        red.empty_since = Time::from_millis(200);
        assert!(red.accepts(&arrival(200, 0, Some(0))));
        assert_eq!(red.average, 1e5);
    }

    #[test]
    fn powers_are_products() {
        for (base, exponent) in [(0.998, 0), (0.998, 1), (0.998, 13), (0.5, 100)] {
            let product = (0..exponent).fold(1.0, |product, _| product * base);
            assert!((power(base, exponent) - product).abs() < 1e-12 * product);
        }
        assert_eq!(power(0.998, u64::MAX), 0.0);
    }

    /// A queue of equal packets that entered at given times.
    struct Packets(Vec<Time>);

    impl Head for Packets {
        fn head(&self) -> Option<(Time, u64)> {
            Some((*self.0.first()?, 1000 * (self.0.len() as u64 - 1)))
        }

        fn drop_head(&mut self) {
            self.0.remove(0);
        }
    }

    #[test]
    fn codel_leaves_a_queue_of_one_packet_alone() {
        let mut codel = CoDel::new(&CoDelConfig::default());
        codel.largest = 1000;
        for packets in [1, 2] {
            let mut queue = Packets(vec![Time::ZERO; packets]);
            for ms in 0..1000 {
                codel.select(Time::from_millis(ms), &mut queue);
            }
            assert_eq!(
                queue.0.len(),
                packets,
                "no more than a packet waits behind the head"
            );
        }
    }

    #[test]
    fn codel_waits_an_interval_and_starts_over_when_the_delay_falls() {
        let mut codel = CoDel::new(&CoDelConfig::default());
        codel.largest = 1000;
        let at = Time::from_millis;
        let mut queue = Packets(vec![at(0); 100]);
        codel.select(at(50), &mut queue);
        codel.select(at(149), &mut queue);
        assert_eq!(queue.0.len(), 100);
        // Below target for one packet.
        codel.select(at(149), &mut Packets(vec![at(145); 100]));
        codel.select(at(150), &mut queue);
        codel.select(at(249), &mut queue);
        assert_eq!(queue.0.len(), 100);
        codel.select(at(250), &mut queue);
        assert_eq!(queue.0.len(), 99);
    }

    #[test]
    fn codel_resumes_its_pace_when_it_dropped_not_long_ago() {
        let mut codel = CoDel::new(&CoDelConfig::default());
        (codel.largest, codel.count, codel.last_count) = (1000, 7, 3);
        let at = Time::from_millis;
        codel.drop_next = at(900);
        codel.first_above = Some(at(1000));
        codel.select(at(1000), &mut Packets(vec![at(0); 100]));
        // Four drops last time: the next is due 100/√4 ms later.
        assert_eq!((codel.count, codel.drop_next), (4, at(1050)));
        // Long ago: from the beginning.
        (codel.dropping, codel.count, codel.last_count) = (false, 8, 4);
        codel.first_above = Some(at(1000));
        codel.select(at(3000), &mut Packets(vec![at(0); 100]));
        assert_eq!((codel.count, codel.drop_next), (1, at(3100)));
    }
}
