//! Losses that depend on those before: the models of Linux's netem, with its parameters and in its order of draws.
//!
//! One chain serves all packets of a direction, whatever their flow, as a netem on an interface does.
//!
//! * `gemodel` is the model of Gilbert and Elliott. For each packet, netem draws the transition
//!   first. The second draw is compared with the loss probability of the state *before* the
//!   transition (`loss_gilb_ell` of `net/sched/sch_netem.c`). The chain begins in the good state.
//! * `state` is the chain of four states of Salsano, Ludovici and Ordine ("Definition of a general
//!   and intuitive loss model for packet networks"). There is one draw for each packet, and the
//!   state *after* it decides whether the packet is lost (`loss_4state`).
//! * `random` draws numbers each of which depends on the one before (`get_crandom`).
//!
//! As text: `KIND[:key=value,…]`, for example `gemodel:p=0.01,r=0.1`; [`catalogue`] lists them all. Keys and defaults
//! are those of tc-netem(8).

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use verus_words::spec::{Field, Given, Key, Kind, Problem, REQUIRED, Row, Shown, SpecError, shown};

use super::loss::{Correlated, PROBABILITY, correlation_row, uniform};

/// The packets that are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossModelConfig {
    /// No losses.
    #[default]
    None,
    /// Each packet with a probability.
    Random {
        /// The probability.
        p: f64,
        /// The weight of the number drawn before in the next.
        correlation: f64,
    },
    /// The model of Gilbert and Elliott.
    GilbertElliott(GilbertElliott),
    /// The chain of four states.
    FourState(FourState),
}

/// The parameters of the model of Gilbert and Elliott.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// p: probability of the transition from the good state to the bad one.
    pub to_bad: f64,
    /// r: probability of the transition from the bad state to the good one.
    pub to_good: f64,
    /// 1 − h: probability of a loss in the bad state.
    pub loss_in_bad: f64,
    /// 1 − k: probability of a loss in the good state.
    pub loss_in_good: f64,
}

/// Transition probabilities of the chain of four states: 1 received within a gap, 2 received within a burst, 3 lost
/// within a burst, 4 lost by itself within a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // pIJ leads from state I to state J
pub struct FourState {
    pub p13: f64,
    pub p31: f64,
    pub p32: f64,
    pub p23: f64,
    pub p14: f64,
}

impl GilbertElliott {
    /// The share of packets lost over long times, between 0 and 1.
    pub fn loss_rate(&self) -> f64 {
        let leaving = self.to_bad + self.to_good;
        let bad = if leaving > 0.0 {
            self.to_bad / leaving
        } else {
            0.0
        };
        bad * self.loss_in_bad + (1.0 - bad) * self.loss_in_good
    }
}

/// The keys of a text.
#[derive(Default)]
struct Settings {
    p: Option<f64>,
    r: Option<f64>,
    loss_in_bad: Option<f64>,
    loss_in_good: Option<f64>,
    correlation: f64,
    p31: Option<f64>,
    p32: Option<f64>,
    p23: Option<f64>,
    p14: Option<f64>,
}

/// A key whose value is a probability.
macro_rules! probability {
    ($field:ident, $key:expr, $meaning:expr) => {
        Field::new(
            $key,
            |c: &Settings| c.$field.unwrap_or(f64::NAN),
            |c, v| c.$field = Some(v),
        )
        .within("probability", $meaning, PROBABILITY)
    };
}

impl Settings {
    const RANDOM: &'static [Row<Self>] = &[
        probability!(p, "p", "that a packet is lost"),
        correlation_row(|c: &Self| c.correlation, |c, v| c.correlation = v),
    ];
    const GEMODEL: &'static [Row<Self>] = &[
        probability!(p, "p", "of the transition from the good state to the bad"),
        probability!(r, "r", "of the transition from the bad state to the good"),
        probability!(loss_in_bad, "1-h", "of a loss in the bad state"),
        probability!(loss_in_good, "1-k", "of a loss in the good state"),
    ];
    const STATE: &'static [Row<Self>] = &[
        probability!(p, "p13", "from a gap to losses in a burst"),
        probability!(p31, "p31", "from losses in a burst to a gap"),
        probability!(p32, "p32", "from losses in a burst to reception in it"),
        probability!(p23, "p23", "from reception in a burst to losses in it"),
        probability!(p14, "p14", "from a gap to a single loss"),
    ];

    /// The settings of a text, and its first probability, which must be given.
    fn read(rows: &[Row<Self>], first: &str, given: &Given<'_>) -> Result<(f64, Self), Problem> {
        let mut settings = Settings::default();
        given.apply(rows, &mut settings)?;
        let missing = || Problem::Together(format!("`{}` needs {first}=PROBABILITY", given.name));
        Ok((settings.p.ok_or_else(missing)?, settings))
    }

    /// The keys of a kind, for display, with the default of each.
    fn keys(rows: &[Row<Self>], defaults: &[&str]) -> Vec<Key> {
        let mut keys = shown(rows, &Settings::default());
        for (key, default) in keys.iter_mut().zip(defaults) {
            (*default).clone_into(&mut key.default);
        }
        keys
    }
}

const KINDS: &[Kind<LossModelConfig>] = &[
    Kind {
        name: "none",
        summary: "no packets are lost",
        example: "none",
        keys: Vec::new,
        read: |given| {
            given.apply(&[], &mut ())?;
            Ok(LossModelConfig::None)
        },
    },
    Kind {
        name: "random",
        summary: "each packet with a probability, with netem's correlation (deprecated there: far fewer losses than p)",
        example: "random:p=0.003,correlation=0.25",
        keys: || Settings::keys(Settings::RANDOM, &[REQUIRED, "0"]),
        read: |given| {
            let (p, settings) = Settings::read(Settings::RANDOM, "p", given)?;
            Ok(LossModelConfig::Random {
                p,
                correlation: settings.correlation,
            })
        },
    },
    Kind {
        name: "gemodel",
        summary: "bursts: a good and a bad state, each with its loss probability (Gilbert and Elliott; netem's parameters)",
        example: "gemodel:p=0.01,r=0.1,1-h=1,1-k=0",
        keys: || Settings::keys(Settings::GEMODEL, &[REQUIRED, "1 − p", "1", "0"]),
        read: |given| {
            let (p, settings) = Settings::read(Settings::GEMODEL, "p", given)?;
            Ok(LossModelConfig::GilbertElliott(GilbertElliott {
                to_bad: p,
                to_good: settings.r.unwrap_or(1.0 - p),
                loss_in_bad: settings.loss_in_bad.unwrap_or(1.0),
                loss_in_good: settings.loss_in_good.unwrap_or(0.0),
            }))
        },
    },
    Kind {
        name: "state",
        summary: "bursts with receptions in them, and single losses: a chain of four states (netem's parameters)",
        example: "state:p13=0.01,p31=0.3,p32=0.1,p23=0.5,p14=0.001",
        keys: || Settings::keys(Settings::STATE, &[REQUIRED, "1 − p13", "0", "1", "0"]),
        read: |given| {
            let (p13, settings) = Settings::read(Settings::STATE, "p13", given)?;
            let chain = FourState {
                p13,
                p31: settings.p31.unwrap_or(1.0 - p13),
                p32: settings.p32.unwrap_or(0.0),
                p23: settings.p23.unwrap_or(1.0),
                p14: settings.p14.unwrap_or(0.0),
            };
            // A rounding error above 1 is not a contradiction: 0.9 + 0.1 in binary.
            let together = |one: f64, other: f64| one + other <= 1.0 + 1e-9;
            if !together(chain.p13, chain.p14) || !together(chain.p31, chain.p32) {
                let problem = "p13 + p14 and p31 + p32 must each be at most 1";
                return Err(Problem::Together(problem.to_owned()));
            }
            Ok(LossModelConfig::FourState(chain))
        },
    },
];

/// Every kind of loss model with its keys and units.
pub fn catalogue() -> Vec<Shown> {
    Kind::list(KINDS)
}

impl FromStr for LossModelConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Kind::parse("loss_model", KINDS, text)
    }
}

impl fmt::Display for LossModelConfig {
    /// The text from which the same model is made again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossModelConfig::None => f.write_str("none"),
            LossModelConfig::Random { p, correlation } => {
                write!(f, "random:p={p},correlation={correlation}")
            }
            LossModelConfig::GilbertElliott(GilbertElliott {
                to_bad,
                to_good,
                loss_in_bad,
                loss_in_good,
            }) => write!(
                f,
                "gemodel:p={to_bad},r={to_good},1-h={loss_in_bad},1-k={loss_in_good}"
            ),
            LossModelConfig::FourState(FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
            }) => write!(f, "state:p13={p13},p31={p31},p32={p32},p23={p23},p14={p14}"),
        }
    }
}

/// A chain at work.
#[derive(Clone, Debug)]
pub struct LossModel {
    config: LossModelConfig,
    draws: Correlated,
    /// The state: 1 to 4 of [`FourState`]; of [`GilbertElliott`], 1 is the good one and 3 the bad one.
    state: u8,
}

impl LossModel {
    /// Loses packets as `config` states; `None` where it loses none.
    pub fn new(config: &LossModelConfig, draws: ChaCha8Rng) -> Option<Self> {
        let correlation = match config {
            LossModelConfig::None => return None,
            LossModelConfig::Random { correlation, .. } => *correlation,
            LossModelConfig::GilbertElliott(_) | LossModelConfig::FourState(_) => 0.0,
        };
        Some(LossModel {
            config: *config,
            draws: Correlated::new(draws, correlation),
            state: 1,
        })
    }

    /// Whether the next packet is lost.
    #[inline(never)]
    pub fn loses(&mut self) -> bool {
        match &self.config {
            LossModelConfig::None => false,
            LossModelConfig::Random { p, .. } => self.draws.next() < *p,
            LossModelConfig::GilbertElliott(model) => {
                let (leaves, other, loses) = match self.state {
                    1 => (model.to_bad, 3, model.loss_in_good),
                    _ => (model.to_good, 1, model.loss_in_bad),
                };
                if uniform(&mut self.draws.stream) < leaves {
                    self.state = other;
                }
                uniform(&mut self.draws.stream) < loses
            }
            LossModelConfig::FourState(chain) => {
                let drawn = uniform(&mut self.draws.stream);
                self.state = match self.state {
                    1 if drawn < chain.p14 => 4,
                    1 if drawn < chain.p13 + chain.p14 => 3,
                    2 if drawn < chain.p23 => 3,
                    2 => 2,
                    3 if drawn < chain.p32 => 2,
                    3 if drawn < chain.p31 + chain.p32 => 1,
                    3 => 3,
                    _ => 1,
                };
                self.state >= 3
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    fn lost(text: &str, packets: usize) -> Vec<bool> {
        let config = text.parse().expect("valid");
        let draws = random::stream(1, "loss-model", 0);
        let mut model = LossModel::new(&config, draws).expect("not none");
        (0..packets).map(|_| model.loses()).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }

    /// The lengths of the runs of losses.
    fn bursts(lost: &[bool]) -> Vec<usize> {
        let runs = lost.chunk_by(|one, other| one == other);
        runs.filter(|run| run[0]).map(<[bool]>::len).collect()
    }

    #[test]
    fn simple_gilbert_loses_bursts_of_geometric_length() {
        // The bad state is left with r, before which it loses every packet: mean 1/r, share p/(p + r).
        let lost = lost("gemodel:p=0.01,r=0.2", 400_000);
        let share = share(&lost);
        assert!((share - 0.01 / 0.21).abs() < 0.003, "{share}");
        let bursts = bursts(&lost);
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        assert!((mean - 5.0).abs() < 0.25, "{mean}");
        let single = bursts.iter().filter(|length| **length == 1).count();
        let single = single as f64 / bursts.len() as f64;
        assert!((single - 0.2).abs() < 0.03, "{single}");
    }

    #[test]
    fn a_packet_is_lost_by_the_state_before_its_transition_as_in_netem() {
        // Each packet changes the state: the first is sent in the good one, the second in the bad one.
        let alternating = [false, true, false, true, false];
        assert_eq!(lost("gemodel:p=1,r=1,1-h=1,1-k=0", 5), alternating);
        // The chain of four decides by the state after it.
        assert_eq!(lost("state:p13=1,p31=1", 4), [true, false, true, false]);
    }

    #[test]
    fn what_is_left_out_has_the_defaults_of_tc_netem() {
        for (text, whole) in [
            ("gemodel:p=0.25", "gemodel:p=0.25,r=0.75,1-h=1,1-k=0"),
            ("gemodel:p=1%,r=10%", "gemodel:p=0.01,r=0.1,1-h=1,1-k=0"),
            (
                "state:p13=0.25",
                "state:p13=0.25,p31=0.75,p32=0,p23=1,p14=0",
            ),
            ("random:p=0.25", "random:p=0.25,correlation=0"),
        ] {
            let config: LossModelConfig = text.parse().expect("valid");
            assert_eq!(config.to_string(), whole);
        }
        // With the defaults both are Bernoulli.
        for text in ["gemodel:p=0.25", "state:p13=0.25", "random:p=0.25"] {
            let lost = lost(text, 100_000);
            assert!((share(&lost) - 0.25).abs() < 0.01, "{text}");
            let after = lost.windows(2).filter(|pair| pair[0]);
            let again = after.clone().filter(|pair| pair[1]).count() as f64;
            assert!((again / after.count() as f64 - 0.25).abs() < 0.02, "{text}");
        }
    }

    #[test]
    fn four_states_lose_singly_and_in_bursts_with_receptions() {
        // Balance of flows: π₃ p31 = π₁ p13, π₃ p32 = π₂ p23, π₄ = π₁ p14.
        let (p13, p31, p32, p23, p14) = (0.02, 0.3, 0.2, 0.5, 0.01);
        let weights = [1.0, p13 / p31 * p32 / p23, p13 / p31, p14];
        let expected = (weights[2] + weights[3]) / weights.iter().sum::<f64>();
        let text = format!("state:p13={p13},p31={p31},p32={p32},p23={p23},p14={p14}");
        let share = share(&lost(&text, 400_000));
        assert!((share / expected - 1.0).abs() < 0.05, "{share}, {expected}");
    }

    #[test]
    fn correlation_brings_losses_together_and_makes_them_rarer() {
        let apart = share(&lost("random:p=0.3", 100_000));
        let together = lost("random:p=0.3,correlation=0.5", 100_000);
        // Netem's numbers crowd towards one half, as its manual warns.
        assert!(share(&together) < apart - 0.05);
        let after = together.windows(2).filter(|pair| pair[0]);
        let again = after.clone().filter(|pair| pair[1]).count() as f64 / after.count() as f64;
        assert!(again > 1.5 * share(&together), "{again}");
    }

    #[test]
    fn each_text_is_read_and_each_fault_named() {
        for kind in catalogue() {
            let config: LossModelConfig = kind.example.parse().expect("an example");
            assert_eq!(config.to_string(), kind.example);
        }
        for (text, problem) in [
            (
                "gilbert",
                "unknown kind `gilbert`; known are none, random, gemodel, state",
            ),
            ("gemodel", "`gemodel` needs p=PROBABILITY"),
            ("gemodel:p=2", "p must be between 0 and 1, not `2`"),
            (
                "gemodel:p=0.1,h=0",
                "`gemodel` has no key `h`; its keys are p, r, 1-h, 1-k",
            ),
            (
                "state:p13=0.6,p14=0.6",
                "p13 + p14 and p31 + p32 must each be at most 1",
            ),
        ] {
            let error = text.parse::<LossModelConfig>().expect_err("refused");
            assert_eq!(error.to_string(), format!("loss_model `{text}`: {problem}"));
        }
    }
}
