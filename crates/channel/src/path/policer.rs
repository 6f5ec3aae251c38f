//! A policer: drops packets that come faster than a rate, and queues none.
//!
//! A bucket of tokens fills at the rate and holds a burst. A packet takes a token for each byte,
//! and is dropped if there are too few (RFC 2697 with one colour; a token bucket as in RFC 2475
//! §2.3.3). The bucket is full at the beginning.
//!
//! As text: `bucket:rate_mbps=10,burst=150000`, or `none`.

use std::fmt;
use std::str::FromStr;

use verus_core::{Bytes, Rate, Time};
use verus_words::range::Within;
use verus_words::spec::{
    Field, Given, Kind, Problem, REQUIRED, Row, Shown, SpecError, field, shown,
};

use crate::schedule::BYTE;

/// The permitted rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PolicerConfig {
    /// No policer.
    #[default]
    None,
    /// A bucket of tokens.
    Bucket {
        /// The rate at which it fills, Mbit/s.
        rate_mbps: f64,
        /// Its size, bytes.
        burst: u64,
    },
}

/// The keys of a text.
#[derive(Default)]
struct Settings {
    rate_mbps: Option<f64>,
    burst: Option<u64>,
}

const MBPS: Within = Within {
    words: "above 0 and at most 1000000",
    valid: |value| value > 0.0 && value <= 1_000_000.0,
};

impl Settings {
    const ROWS: &'static [Row<Self>] = &[
        Field::new(
            "rate_mbps",
            |c: &Self| c.rate_mbps.unwrap_or(f64::NAN),
            |c, v| c.rate_mbps = Some(v),
        )
        .within("Mbit/s", "at which the bucket fills", MBPS),
        field!(burst).whole_or(
            REQUIRED,
            "bytes",
            "what the bucket holds: a packet larger than that never passes",
        ),
    ];

    fn read(given: &Given<'_>) -> Result<PolicerConfig, Problem> {
        let mut settings = Settings::default();
        given.apply(Self::ROWS, &mut settings)?;
        match (settings.rate_mbps, settings.burst) {
            (Some(rate_mbps), Some(burst)) => Ok(PolicerConfig::Bucket { rate_mbps, burst }),
            _ => {
                let problem = "`bucket` needs rate_mbps=N and burst=BYTES";
                Err(Problem::Together(problem.to_owned()))
            }
        }
    }
}

const KINDS: &[Kind<PolicerConfig>] = &[
    Kind {
        name: "none",
        summary: "all packets pass",
        example: "none",
        keys: Vec::new,
        read: |given| {
            given.apply(&[], &mut ())?;
            Ok(PolicerConfig::None)
        },
    },
    Kind {
        name: "bucket",
        summary: "a bucket of tokens: drops what comes faster than it fills, and queues nothing",
        example: "bucket:rate_mbps=10,burst=150000",
        keys: || {
            let mut keys = shown(Settings::ROWS, &Settings::default());
            for key in &mut keys {
                REQUIRED.clone_into(&mut key.default);
            }
            keys
        },
        read: Settings::read,
    },
];

/// Every kind of policer with its keys and units.
pub fn catalogue() -> Vec<Shown> {
    Kind::list(KINDS)
}

impl FromStr for PolicerConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Kind::parse("policer", KINDS, text)
    }
}

impl fmt::Display for PolicerConfig {
    /// The text from which the same policer is made again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicerConfig::None => f.write_str("none"),
            PolicerConfig::Bucket { rate_mbps, burst } => {
                write!(f, "bucket:rate_mbps={rate_mbps},burst={burst}")
            }
        }
    }
}

/// A policer at work.
#[derive(Clone, Debug)]
pub struct Policer {
    /// The rate, in bits per second.
    rate: u128,
    /// Tokens now, and the size of the bucket, in units of 1 bit/s × 1 ns.
    tokens: u128,
    capacity: u128,
    filled: Time,
}

impl Policer {
    /// A policer whose bucket is full; `None` where all packets pass.
    pub fn new(config: &PolicerConfig) -> Option<Self> {
        let &PolicerConfig::Bucket { rate_mbps, burst } = config else {
            return None;
        };
        let capacity = u128::from(burst) * BYTE;
        Some(Policer {
            rate: u128::from(Rate::from_mbps(rate_mbps).as_bps()),
            tokens: capacity,
            capacity,
            filled: Time::ZERO,
        })
    }

    /// Whether a packet of `size` passes at `now`, which must not decrease from call to call.
    #[inline(never)]
    pub fn passes(&mut self, now: Time, size: Bytes) -> bool {
        let span = u128::from(now.since(self.filled).as_nanos());
        self.filled = now;
        self.tokens = self.capacity.min(self.tokens + span * self.rate);
        let needed = u128::from(size.get()) * BYTE;
        let passes = needed <= self.tokens;
        if passes {
            self.tokens -= needed;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policer(text: &str) -> Policer {
        Policer::new(&text.parse().expect("valid")).expect("not none")
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        // 12 Mbit/s is 1500 bytes a millisecond.
        let mut policer = policer("bucket:rate_mbps=12,burst=4500");
        let mut passed = |at_us: u64, packets| {
            let now = Time::from_nanos(at_us * 1000);
            (0..packets)
                .filter(|_| policer.passes(now, Bytes::new(1500)))
                .count()
        };
        assert_eq!(passed(0, 10), 3);
        assert_eq!(passed(999, 10), 0);
        assert_eq!(passed(1000, 10), 1);
        assert_eq!(passed(3000, 10), 2);
        // No more than the burst, however long nothing came.
        assert_eq!(passed(1_000_000, 10), 3);
    }

    #[test]
    fn small_packets_pass_where_large_ones_do_not() {
        let mut policer = policer("bucket:rate_mbps=1,burst=1000");
        assert!(!policer.passes(Time::ZERO, Bytes::new(1001)));
        assert!(policer.passes(Time::ZERO, Bytes::new(900)));
        assert!(!policer.passes(Time::ZERO, Bytes::new(101)));
        assert!(policer.passes(Time::ZERO, Bytes::new(100)));
    }

    #[test]
    fn over_a_second_no_more_passes_than_the_rate_and_a_burst() {
        let mut policer = policer("bucket:rate_mbps=8,burst=30000");
        let sent = (0..=10_000).map(|n| Time::from_nanos(n * 100_000));
        let passed = sent.filter(|at| policer.passes(*at, Bytes::new(1200)));
        assert_eq!(passed.count(), (1_000_000 + 30_000) / 1200);
    }

    #[test]
    fn text_and_back_gives_the_same_policer_and_faults_are_named() {
        for text in ["none", "bucket:rate_mbps=2.5,burst=15000"] {
            let config: PolicerConfig = text.parse().expect("valid");
            assert_eq!(config.to_string(), text);
        }
        for (text, problem) in [
            ("bucket", "`bucket` needs rate_mbps=N and burst=BYTES"),
            (
                "bucket:rate_mbps=0,burst=1",
                "rate_mbps must be above 0 and at most 1000000, not `0`",
            ),
            ("leaky", "unknown kind `leaky`; known are none, bucket"),
        ] {
            let error = text.parse::<PolicerConfig>().expect_err("refused");
            assert_eq!(error.to_string(), format!("policer `{text}`: {problem}"));
        }
        for kind in catalogue() {
            kind.example.parse::<PolicerConfig>().expect("an example");
        }
    }
}
