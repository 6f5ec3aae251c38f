//! Queue disciplines: which packets wait before a link, and which are refused or dropped.
//!
//! A discipline decides and counts; [`crate::Link`] holds the packets. All thresholds are in bytes;
//! drop-tail may also use packets or milliseconds. They apply to packets that *wait*: the packet
//! being sent has left the queue, as in Linux, ns-3 and Mahimahi. Each discipline has its own file.
//! [`Registry::with`] adds one of another crate, a [`Queue`], and [`Registry::install`] gives it to
//! the whole program, as `examples/own-command` does.

mod codel;
mod droptail;
mod dualpi2;
mod foreign;
mod fq_codel;
mod pie;
mod red;
mod registry;
mod ticks;

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use verus_core::{Bytes, Duration, Ecn, Time};
use verus_words::range::Within;
pub use verus_words::spec::SpecError;
use verus_words::spec::{Kind, Shown, shown};

use crate::packet::{Departed, Packet};

pub use codel::CoDelConfig;
pub(crate) use codel::{CoDel, Head};
use droptail::DropTail;
pub use droptail::Limit;
use dualpi2::DualPi2;
pub use dualpi2::{DualPi2Config, DualPi2Preset};
use foreign::Foreign;
pub use foreign::{Configuration, ForeignConfig, Queue, Waiting};
use fq_codel::FqCodel;
pub use fq_codel::FqCodelConfig;
use pie::Pie;
pub use pie::PieConfig;
use red::Red;
pub use red::{RedConfig, RedPreset};
pub use registry::Registry;
use ticks::Ticks;

/// A queue discipline and its settings. As text: `KIND[:key=value,…]`, such as `codel`,
/// `red:min=375000,max=1125000,p=0.1` or `droptail:bytes=120000`; [`catalogue`] lists all kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueConfig {
    /// Everything waits.
    Infinite,
    /// Packets that do not fit are refused.
    DropTail(Limit),
    /// Random early detection.
    Red(RedConfig),
    /// Controlled delay.
    CoDel(CoDelConfig),
    /// Proportional integral controller enhanced.
    Pie(PieConfig),
    /// A queue with a CoDel for each connection, served in turn.
    FqCodel(FqCodelConfig),
    /// Two coupled queues, one for low latency.
    DualPi2(DualPi2Config),
    /// A queue of another crate ([`Registry::with`]).
    Foreign(ForeignConfig),
}

// --- Text.

const PROBABILITY: Within = Within {
    words: "above 0 and at most 1",
    valid: |value| value > 0.0 && value <= 1.0,
};

/// At most a day: longer than any use, and far below what the clock can count.
const MILLIS: Within = Within {
    words: "a number of milliseconds above 0 and at most 86400000",
    valid: |value| value > 0.0 && value <= 86_400_000.0,
};

/// Interval at which a queue updates its probability: not shorter than makes a difference.
const UPDATE: Within = Within {
    words: "a number of milliseconds from 1 to 86400000",
    valid: |value| (1.0..=86_400_000.0).contains(&value),
};

const GAIN: Within = Within {
    words: "a number of Hz above 0 and at most 1000",
    valid: |value| value > 0.0 && value <= 1000.0,
};

const LIMIT: (&str, &str, &str) = ("limit", "bytes", "hard limit on what waits");

const ECN: (&str, &str) = (
    "ecn",
    "marks ECN-capable packets instead of dropping them (RFC 3168)",
);

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
        name: "pie",
        summary: "drops at arrival with a probability set by the delay and its change (RFC 8033)",
        example: "pie:target_ms=15,ecn=yes",
        keys: || shown(PieConfig::ROWS, &PieConfig::default()),
        read: |given| PieConfig::read(given).map(QueueConfig::Pie),
    },
    Kind {
        name: "fq_codel",
        summary: "a queue with a CoDel for each connection, served in turn (RFC 8290)",
        example: "fq_codel:target_ms=5,interval_ms=100",
        keys: || shown(FqCodelConfig::ROWS, &FqCodelConfig::default()),
        read: |given| FqCodelConfig::read(given).map(QueueConfig::FqCodel),
    },
    Kind {
        name: "dualpi2",
        summary: "two coupled queues, one of a millisecond for senders such as Prague (RFC 9332)",
        example: "dualpi2:target_ms=15",
        keys: || shown(DualPi2Config::ROWS, &DualPi2Config::default()),
        read: |given| DualPi2Config::read(given).map(QueueConfig::DualPi2),
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

/// Every kind of queue that texts can name in this program, with its keys, units and defaults.
pub fn catalogue() -> Vec<Shown> {
    Registry::installed().catalogue()
}

impl QueueConfig {
    /// The queue that `text` describes.
    ///
    /// # Errors
    /// If a kind, key or value is unknown or out of range; the message names it and lists the valid ones.
    pub fn parse(text: &str) -> Result<QueueConfig, SpecError> {
        Registry::installed().parse(text)
    }

    /// The most bytes that may wait, for those that count bytes and have a limit.
    pub fn limit(&self) -> Option<Bytes> {
        let bytes = match self {
            QueueConfig::DropTail(Limit::Bytes(bytes)) => Some(*bytes),
            QueueConfig::Red(red) => red.limit,
            QueueConfig::CoDel(codel) => codel.limit,
            QueueConfig::Pie(pie) => pie.limit,
            _ => None,
        };
        bytes.map(Bytes::new)
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
            QueueConfig::Pie(pie) => pie.fmt(f),
            QueueConfig::FqCodel(fq) => fq.fmt(f),
            QueueConfig::DualPi2(dual) => dual.fmt(f),
            QueueConfig::Foreign(foreign) => foreign.fmt(f),
        }
    }
}

impl FromStr for QueueConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        QueueConfig::parse(text)
    }
}

// --- Decisions.

/// The state of the queue when a packet arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub now: Time,
    pub size: u64,
    /// Bytes and packets that wait, without the arriving packet and the one being sent.
    pub waiting_bytes: u64,
    pub waiting_packets: u64,
    /// The opportunities unused since the link became idle, if it is idle.
    pub unused: Option<u64>,
    /// The wait of the packet, if the discipline [asks](Discipline::asks_wait).
    pub wait: Duration,
    pub ecn: Ecn,
}

/// The decision about a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Queue it.
    Take,
    /// Queue it, marked (ECN).
    Mark,
    /// Drop it.
    Refuse,
}

impl Verdict {
    #[inline]
    fn take_if(fits: bool) -> Self {
        if fits { Verdict::Take } else { Verdict::Refuse }
    }

    /// Signals congestion to the sender: by a mark if the packet's sender answers marks, otherwise by a drop.
    fn signal(arrival: &Arrival) -> Self {
        if arrival.ecn.is_capable() {
            Verdict::Mark
        } else {
            Verdict::Refuse
        }
    }
}

/// A discipline at work.
#[derive(Debug)]
pub(crate) enum Discipline<P> {
    Infinite,
    DropTailBytes(u64),
    DropTailPackets(u64),
    DropTailDelay(Duration),
    Red(Box<Red>),
    CoDel(Box<CoDel>),
    Pie(Box<Pie>),
    FqCodel(Box<FqCodel<P>>),
    DualPi2(Box<DualPi2<P>>),
    Foreign(Box<Foreign<P>>),
}

impl<P: Packet> Discipline<P> {
    pub(crate) fn new(config: &QueueConfig, rng: ChaCha8Rng) -> Self {
        match config {
            QueueConfig::Infinite => Discipline::Infinite,
            QueueConfig::DropTail(Limit::Bytes(bytes)) => Discipline::DropTailBytes(*bytes),
            QueueConfig::DropTail(Limit::Packets(packets)) => Discipline::DropTailPackets(*packets),
            QueueConfig::DropTail(Limit::Delay(delay)) => Discipline::DropTailDelay(*delay),
            QueueConfig::Red(red) => Discipline::Red(Box::new(Red::new(red.clone(), rng))),
            QueueConfig::CoDel(codel) => Discipline::CoDel(Box::new(CoDel::new(codel))),
            QueueConfig::Pie(pie) => Discipline::Pie(Box::new(Pie::new(pie, rng))),
            QueueConfig::FqCodel(fq) => Discipline::FqCodel(Box::new(FqCodel::new(fq, rng))),
            QueueConfig::DualPi2(dual) => Discipline::DualPi2(Box::new(DualPi2::new(dual, rng))),
            QueueConfig::Foreign(config) => {
                Discipline::Foreign(Box::new(Foreign::new(config, rng)))
            }
        }
    }

    /// Whether the packet may wait.
    #[inline]
    pub(crate) fn admit(&mut self, arrival: &Arrival) -> Verdict {
        match self {
            Discipline::Infinite => Verdict::Take,
            Discipline::DropTailBytes(limit) => {
                Verdict::take_if(arrival.waiting_bytes + arrival.size <= *limit)
            }
            Discipline::DropTailPackets(limit) => {
                Verdict::take_if(arrival.waiting_packets < *limit)
            }
            Discipline::DropTailDelay(limit) => Verdict::take_if(arrival.wait < *limit),
            Discipline::Red(red) => red.admit(arrival),
            Discipline::CoDel(codel) => Verdict::take_if(codel.accepts(arrival)),
            Discipline::Pie(pie) => pie.admit(arrival),
            // These decide in `keep`, where they are given the packet.
            Discipline::FqCodel(_) | Discipline::DualPi2(_) | Discipline::Foreign(_) => {
                Verdict::Take
            }
        }
    }

    /// The queue ran empty.
    #[inline]
    pub(crate) fn on_empty(&mut self, now: Time) {
        if let Discipline::Red(red) = self {
            red.empty_since = now;
        }
    }

    /// Whether it keeps packets in its own queues, rather than in the link's backlog.
    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        matches!(
            self,
            Discipline::FqCodel(_) | Discipline::DualPi2(_) | Discipline::Foreign(_)
        )
    }

    /// Keeps a packet. Packets dropped to make room, perhaps this one, go to `dropped`.
    ///
    /// # Errors
    /// Gives it back if there is no room.
    pub(crate) fn keep(
        &mut self,
        packet: Departed<P>,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Result<(), P> {
        match self {
            Discipline::FqCodel(fq) => {
                fq.enqueue(packet, dropped);
                Ok(())
            }
            Discipline::DualPi2(dual) => dual.enqueue(packet),
            Discipline::Foreign(foreign) => foreign.enqueue(packet, dropped),
            _ => Err(packet.packet),
        }
    }

    /// Takes the packet that leaves at `now` from those that it keeps.
    pub(crate) fn release(
        &mut self,
        now: Time,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Option<Departed<P>> {
        match self {
            Discipline::FqCodel(fq) => fq.dequeue(now, dropped),
            Discipline::DualPi2(dual) => dual.dequeue(now, dropped),
            Discipline::Foreign(foreign) => foreign.dequeue(now, dropped),
            _ => None,
        }
    }

    /// Whether it decides or measures when packets leave.
    #[inline]
    pub(crate) fn selects(&self) -> bool {
        matches!(
            self,
            Discipline::CoDel(_)
                | Discipline::Pie(_)
                | Discipline::FqCodel(_)
                | Discipline::DualPi2(_)
                | Discipline::Foreign(_)
        )
    }

    /// Whether the discipline uses [`Arrival::wait`].
    #[inline]
    pub(crate) fn asks_wait(&self) -> bool {
        matches!(self, Discipline::DropTailDelay(_))
    }

    /// Whether the discipline uses [`Arrival::unused`].
    pub(crate) fn counts_unused(&self) -> bool {
        matches!(self, Discipline::Red(_))
    }
}

#[cfg(test)]
mod tests {
    use verus_words::spec::Problem;

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
            "red:min=375000,max=1125000,p=0.1,ecn=yes",
            "codel:target_ms=5,interval_ms=100,ecn=yes",
            "pie:target_ms=15",
            "pie:target_ms=20,update_ms=30,alpha_hz=0.25,beta_hz=2,burst_ms=1,limit=9,ecn=yes",
            "fq_codel:target_ms=5,interval_ms=100",
            "fq_codel:target_ms=4,interval_ms=50,quantum=300,queues=1,packets=9,ecn=no",
            "dualpi2:preset=linux",
            "dualpi2:preset=rfc9332,target_ms=10,packets=9,drop_overload=no",
            "dualpi2:preset=linux,update_ms=8,alpha_hz=1,beta_hz=2,coupling=3,step_ms=2,ramp_ms=1,c_share=0.5",
        ];
        for text in texts {
            assert_eq!(QueueConfig::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn defaults_are_the_papers() {
        let parse = |text| QueueConfig::parse(text).unwrap();
        for (kind, defaults) in [
            (
                "pie",
                "pie:target_ms=15,update_ms=15,alpha_hz=0.125,beta_hz=1.25,burst_ms=150",
            ),
            (
                "fq_codel",
                "fq_codel:quantum=1514,queues=1024,packets=10240,ecn=yes",
            ),
            (
                "dualpi2",
                "dualpi2:preset=linux,target_ms=15,update_ms=16,c_share=0.1",
            ),
        ] {
            assert_eq!(parse(kind), parse(defaults));
        }
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
                let value = match key.key {
                    "preset" if kind.name == "red" => "floyd",
                    "preset" => "rfc9332",
                    "ecn" | "drop_overload" => "yes",
                    _ => "1",
                };
                match QueueConfig::parse(&format!("{}:{}={value}", kind.name, key.key)) {
                    Ok(_) => {}
                    Err(error) if matches!(*error.problem, Problem::BadValue { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    #[test]
    fn each_fault_in_a_text_is_named() {
        let cases = "
            fifo => unknown kind `fifo`; known are red, droptail, codel, pie, fq_codel, dualpi2, infinite
             => unknown kind ``; known are red, droptail, codel, pie, fq_codel, dualpi2, infinite
            red:maximum=5 => `red` has no key `maximum`; its keys are min, max, p, limit, weight, preset, ecn
            rde:min=5 => unknown kind `rde`; the nearest is `red`
            droptail:bytes=120k => bytes=120k: `k` is none of its units (B, kB, KB, MB, GB, KiB, MiB, GiB)
            infinite:bytes=5 => `infinite` has no key `bytes`; its keys are none
            red:min => each parameter must be key=value, not `min`
            red: => each parameter must be key=value, not ``
            red:min=5,min=6 => min must be given once, not `6`
            red:p=NaN => p must be above 0 and at most 1, not `NaN`
            red:p=0 => p must be above 0 and at most 1, not `0`
            red:p=1.5 => p must be above 0 and at most 1, not `1.5`
            red:min=-1 => min must be a whole number above 0, not `-1`
            red:min=5,max=5 => min must be less than max, not `5`
            red:max=1000 => min must be less than max, not `375000`
            red:preset=linux => preset must be one of floyd, gentle, cs244, not `linux`
            droptail => `droptail` needs one of bytes=N, packets=N and delay_ms=N
            droptail:bytes=1,packets=1 => `droptail` needs one of bytes=N, packets=N and delay_ms=N
            droptail:bytes=1,delay_ms=1 => `droptail` needs one of bytes=N, packets=N and delay_ms=N
            droptail:delay_ms=0 => delay_ms must be a number of milliseconds above 0 and at most 86400000, not `0`
            droptail:bytes=0 => bytes must be a whole number above 0, not `0`
            droptail:bytes=1.5 => bytes must be a whole number above 0, not `1.5`
            dualpi2:c_share=1 => c_share must be above 0 and below 1, not `1`
            pie:update_ms=0.5 => update_ms must be a number of milliseconds from 1 to 86400000, not `0.5`
            fq_codel:queues=65537 => queues must be at most 65536, not `65537`
            codel:target_ms=inf => target_ms must be a number of milliseconds above 0 and at most 86400000, not `inf`
            codel:target_ms=200 => target_ms must be at most interval_ms, not `200`";
        for case in cases.lines().skip(1) {
            let (text, problem) = case.trim().split_once("=> ").expect("a case");
            let text = text.trim();
            let error = QueueConfig::parse(text).unwrap_err();
            assert_eq!(error.to_string(), format!("queue `{text}`: {problem}"));
        }
    }
}
