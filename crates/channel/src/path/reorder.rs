//! Reordering: single packets that are held back, so that later ones overtake them.
//!
//! As text: `KIND[:key=value,…]`, for example `late:p=0.05,ms=10`; [`catalogue`] lists them all.

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use verus_core::Duration;
use verus_words::spec::{Field, Given, Kind, Problem, REQUIRED, Row, Shown, SpecError, shown};

use super::loss::{Correlated, PROBABILITY, correlation_row, uniform};

/// The packets that are held back, and their delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ReorderConfig {
    /// No reordering.
    #[default]
    None,
    /// Each packet with a probability, for a fixed time.
    Late {
        /// The probability.
        p: f64,
        /// The time.
        by: Duration,
        /// The weight, in what decides about a packet, of what decided about the one before.
        correlation: f64,
    },
    /// Each packet with a probability, for a time that is uniform up to a maximum.
    Uniform {
        /// The probability.
        p: f64,
        /// The maximum.
        most: Duration,
        /// The weight of the time before in the next.
        correlation: f64,
    },
}

/// The keys of a text.
#[derive(Default)]
struct Settings {
    p: Option<f64>,
    time: Option<Duration>,
    correlation: f64,
}

impl Settings {
    const P: Row<Self> = Field::new(
        "p",
        |c: &Self| c.p.unwrap_or(f64::NAN),
        |c, v| c.p = Some(v),
    )
    .within(
        "probability",
        "that a packet is taken out of its order",
        PROBABILITY,
    );
    const fn time(key: &'static str, meaning: &'static str) -> Row<Self> {
        Field::new(
            key,
            |c: &Self| c.time.unwrap_or_default().into(),
            |c, v: std::time::Duration| c.time = Some(v.into()),
        )
        .millis(meaning)
    }
    const CORRELATION: Row<Self> =
        correlation_row(|c: &Self| c.correlation, |c, v| c.correlation = v);
    const LATE: &'static [Row<Self>] = &[
        Self::P,
        Self::time("ms", "how much later it is"),
        Self::CORRELATION,
    ];
    const UNIFORM: &'static [Row<Self>] = &[
        Self::P,
        Self::time("max_ms", "how much later at the most"),
        Self::CORRELATION,
    ];

    fn read(
        rows: &[Row<Self>],
        time: &str,
        given: &Given<'_>,
    ) -> Result<(f64, Duration, f64), Problem> {
        let mut settings = Settings::default();
        given.apply(rows, &mut settings)?;
        let missing = || Problem::Together(format!("`{}` needs p=P and {time}=MS", given.name));
        let (p, late) = settings.p.zip(settings.time).ok_or_else(missing)?;
        Ok((p, late, settings.correlation))
    }

    /// The keys of a kind, for display: the first two must be given.
    fn keys(rows: &[Row<Self>]) -> Vec<verus_words::spec::Key> {
        let mut keys = shown(rows, &Settings::default());
        for key in &mut keys[..2] {
            REQUIRED.clone_into(&mut key.default);
        }
        keys
    }
}

const KINDS: &[Kind<ReorderConfig>] = &[
    Kind {
        name: "none",
        summary: "packets keep their order",
        example: "none",
        keys: Vec::new,
        read: |given| {
            given.apply(&[], &mut ())?;
            Ok(ReorderConfig::None)
        },
    },
    Kind {
        name: "late",
        summary: "some packets come later by a fixed time, and those behind them do not wait",
        example: "late:p=0.05,ms=10",
        keys: || Settings::keys(Settings::LATE),
        read: |given| {
            let (p, by, correlation) = Settings::read(Settings::LATE, "ms", given)?;
            Ok(ReorderConfig::Late { p, by, correlation })
        },
    },
    Kind {
        name: "uniform",
        summary: "some packets come later by a time drawn evenly from 0 to a maximum, and those behind them do not wait",
        example: "uniform:p=0.05,max_ms=20",
        keys: || Settings::keys(Settings::UNIFORM),
        read: |given| {
            let (p, most, correlation) = Settings::read(Settings::UNIFORM, "max_ms", given)?;
            Ok(ReorderConfig::Uniform {
                p,
                most,
                correlation,
            })
        },
    },
];

/// Every kind of reordering with its keys and units.
pub fn catalogue() -> Vec<Shown> {
    Kind::list(KINDS)
}

impl FromStr for ReorderConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Kind::parse("reorder", KINDS, text)
    }
}

impl fmt::Display for ReorderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let correlation = match self {
            ReorderConfig::None => return write!(f, "none"),
            ReorderConfig::Late { p, by, correlation } => {
                write!(f, "late:p={p},ms={}", by.as_millis_f64())?;
                correlation
            }
            ReorderConfig::Uniform {
                p,
                most,
                correlation,
            } => {
                write!(f, "uniform:p={p},max_ms={}", most.as_millis_f64())?;
                correlation
            }
        };
        match *correlation {
            0.0 => Ok(()),
            correlation => write!(f, ",correlation={correlation}"),
        }
    }
}

/// Holds some packets back: they are under way for longer, and packets sent after them do not wait for them.
#[derive(Clone, Debug)]
pub struct Reorder {
    config: ReorderConfig,
    draws: Vec<Correlated>,
}

impl Reorder {
    /// Holds packets back as `config` states. Each flow has its own stream of `draws`, so that the
    /// draw for its n-th packet does not depend on the other flows.
    pub fn new(config: ReorderConfig, draws: Vec<ChaCha8Rng>) -> Self {
        let correlation = match config {
            ReorderConfig::None => 0.0,
            ReorderConfig::Late { correlation, .. }
            | ReorderConfig::Uniform { correlation, .. } => correlation,
        };
        let draws = draws.into_iter();
        Reorder {
            config,
            draws: draws
                .map(|draws| Correlated::new(draws, correlation))
                .collect(),
        }
    }

    /// How much longer the next packet of `flow` takes, if it is held back. All draws are made for each packet, so that
    /// another probability does not change the times of packets held back in both cases.
    ///
    /// # Panics
    /// If there are no draws for `flow`.
    #[inline]
    pub(super) fn draw(&mut self, flow: usize) -> Option<Duration> {
        let draws = &mut self.draws[flow];
        let (p, late) = match self.config {
            ReorderConfig::None => return None,
            ReorderConfig::Late { p, by, .. } => (draws.next() < p, by),
            ReorderConfig::Uniform { p, most, .. } => {
                (uniform(&mut draws.stream) < p, most.mul_f64(draws.next()))
            }
        };
        p.then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    #[test]
    fn a_fixed_lateness_comes_as_often_as_asked_and_a_uniform_one_stays_below_its_most() {
        let drawn = |text: &str| -> Vec<Duration> {
            let config = text.parse().unwrap();
            let mut reorder = Reorder::new(config, vec![random::stream(1, "reorder", 0)]);
            (0..20_000).filter_map(|_| reorder.draw(0)).collect()
        };
        let ten = Duration::from_millis(10);
        let late = drawn("late:p=0.05,ms=10");
        // 1,000 expected, standard deviation 31.
        assert!(late.len().abs_diff(1_000) < 150, "{}", late.len());
        assert!(late.iter().all(|by| *by == ten));
        let spread = drawn("uniform:p=0.05,max_ms=10");
        assert!(spread.len().abs_diff(1_000) < 150, "{}", spread.len());
        assert!(spread.iter().all(|by| *by < ten) && spread.iter().any(|by| *by > ten / 2));
        assert_eq!(drawn("none"), []);
    }

    #[test]
    fn correlation_makes_times_resemble_the_ones_before() {
        let config = "uniform:p=1,max_ms=10,correlation=0.5".parse().unwrap();
        let mut reorder = Reorder::new(config, vec![random::stream(1, "reorder", 0)]);
        let late: Vec<f64> = (0..20_000)
            .filter_map(|_| Some(reorder.draw(0)?.as_millis_f64() - 5.0))
            .collect();
        assert_eq!(late.len(), 20_000);
        let product =
            |lag: usize| -> f64 { late.iter().zip(&late[lag..]).map(|(a, b)| a * b).sum() };
        // The correlation of a weighted mean of the last value and an independent one is the weight.
        let correlation = product(1) / product(0);
        assert!((correlation - 0.5).abs() < 0.03, "{correlation}");
        let text = "late:p=0.75,ms=10,correlation=0.5";
        assert_eq!(text.parse::<ReorderConfig>().unwrap().to_string(), text);
    }

    #[test]
    fn each_text_is_read_and_each_fault_named() {
        for kind in catalogue() {
            let config: ReorderConfig = kind.example.parse().unwrap();
            assert_eq!(config.to_string(), kind.example);
        }
        let cases = "
            often => unknown kind `often`; known are none, late, uniform
            late:p=0.1 => `late` needs p=P and ms=MS
            late:p=2,ms=1 => p must be between 0 and 1, not `2`
            uniform:p=1,ms=1 => `uniform` has no key `ms`; its keys are p, max_ms, correlation
            late:p=1,ms=-1 => ms must be between 0 and 3600000 ms, not `-1`";
        for case in cases.lines().skip(1) {
            let (text, words) = case.split_once("=> ").expect("a case");
            let text = text.trim();
            let error = text.parse::<ReorderConfig>().unwrap_err().to_string();
            assert_eq!(error, format!("reorder `{text}`: {words}"));
        }
    }
}
