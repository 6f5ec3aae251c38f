//! Queue disciplines: what waits before a link, and what is refused or dropped.
//!
//! A discipline decides and counts; [`crate::Link`] holds the packets. All thresholds are in bytes (or, for a
//! drop-tail queue that asks for them, in packets or milliseconds) and concern what *waits*: the packet being
//! sent has left the queue, as in Linux, ns-3 and Mahimahi. Each discipline is a file.

mod codel;
mod droptail;
mod red;

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use verus_core::spec::{Kind, Problem, Shown, Within, shown};
use verus_core::{Duration, Time};

pub use codel::CoDelConfig;
pub(crate) use codel::{CoDel, Head};
use droptail::DropTail;
pub use droptail::Limit;
use red::Red;
pub use red::{RedConfig, RedPreset};

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
        match self {
            QueueConfig::Infinite => f.write_str("infinite"),
            QueueConfig::DropTail(limit) => limit.fmt(f),
            QueueConfig::Red(red) => red.fmt(f),
            QueueConfig::CoDel(codel) => codel.fmt(f),
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
    /// How long the packet would wait, where the discipline [asks](Discipline::asks_wait).
    pub wait: Duration,
}

/// A discipline at work.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    Infinite,
    DropTailBytes(u64),
    DropTailPackets(u64),
    DropTailDelay(Duration),
    Red(Box<Red>),
    CoDel(Box<CoDel>),
}

impl Discipline {
    pub(crate) fn new(config: &QueueConfig, rng: ChaCha8Rng) -> Self {
        match config {
            QueueConfig::Infinite => Discipline::Infinite,
            QueueConfig::DropTail(Limit::Bytes(bytes)) => Discipline::DropTailBytes(*bytes),
            QueueConfig::DropTail(Limit::Packets(packets)) => Discipline::DropTailPackets(*packets),
            QueueConfig::DropTail(Limit::Delay(delay)) => Discipline::DropTailDelay(*delay),
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
            Discipline::DropTailDelay(limit) => arrival.wait < *limit,
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

    /// Whether anybody asks for [`Arrival::wait`].
    #[inline]
    pub(crate) fn asks_wait(&self) -> bool {
        matches!(self, Discipline::DropTailDelay(_))
    }

    /// Whether anybody asks for [`Arrival::unused`].
    pub(crate) fn counts_unused(&self) -> bool {
        matches!(self, Discipline::Red(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back_gives_the_same_queue() {
        let texts = [
            "infinite",
            "droptail:bytes=120000",
            "droptail:packets=7",
            "droptail:delay_ms=30",
            "droptail:delay_ms=0.25",
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
            (
                "droptail",
                "`droptail` needs one of bytes=N, packets=N and delay_ms=N",
            ),
            (
                "droptail:bytes=1,packets=1",
                "`droptail` needs one of bytes=N, packets=N and delay_ms=N",
            ),
            (
                "droptail:bytes=1,delay_ms=1",
                "`droptail` needs one of bytes=N, packets=N and delay_ms=N",
            ),
            (
                "droptail:delay_ms=0",
                "delay_ms must be a number of milliseconds above 0 and at most 86400000, not `0`",
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
}
