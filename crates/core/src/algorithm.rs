//! The list of algorithms: name → configuration → controller. The one place to add another.
//!
//! A scheme is written `NAME[:key=value,…]`, the same on every command line and in every file:
//! `verus:ratio=4,mode=prototype`, `cubic`, `cubic:hystart=plusplus`.

use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::constant::{self, Constant};
use crate::controller::{Controller, Observer};
use crate::forward::{self, Forward};
use crate::model::{Model, ModelDriven, WalkKind};
use crate::receiver::ReceiverConfig;
use crate::recovery::LossRule;
use crate::saturate::{self, Saturate};
use crate::sprout::{self, Sprout};
use crate::tcp::cubic::Lookahead;
use crate::tcp::episode::Period;
use crate::tcp::hystart::HyStart;
use crate::tcp::{Cubic, NewReno, Vegas, cubic, reno, vegas};
use crate::units::{Duration, Rate};
use crate::verus::config::{
    ChartedWindow, DelayChange, Fit, SilentEpoch, SlowStartExit, WindowReference,
};
use crate::verus::{self, Mode, robust};

/// A parameter of an algorithm, as `verus list schemes` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Key {
    /// Its name in a scheme.
    pub key: &'static str,
    /// Its unit, or the words it takes.
    pub unit: &'static str,
    /// Its value where none is given; [`REQUIRED`] if one must be.
    pub default: String,
    /// What it does, and its symbol and source.
    pub meaning: &'static str,
}

/// An algorithm, as `verus list schemes` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its name in a scheme.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub summary: &'static str,
    /// Its parameters.
    pub keys: Vec<Key>,
}

/// The default of a key that has none.
pub const REQUIRED: &str = "required";

impl Entry {
    /// Whether its name alone is a scheme.
    pub fn stands_alone(&self) -> bool {
        self.keys.iter().all(|key| key.default != REQUIRED)
    }
}

/// A scheme that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SchemeError {
    /// No algorithm has this name.
    #[error("scheme `{scheme}`: unknown algorithm `{name}`; known are {known}")]
    UnknownName {
        /// The scheme as given.
        scheme: String,
        /// The name in it.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The algorithm has no such key.
    #[error("scheme `{scheme}`: `{name}` has no key `{key}`; its keys are {known}")]
    UnknownKey {
        /// The scheme as given.
        scheme: String,
        /// The algorithm.
        name: &'static str,
        /// The key.
        key: String,
        /// The keys there are.
        known: String,
    },
    /// A key without a value, given twice, or with a value that is not of its kind.
    #[error("scheme `{scheme}`: {key} must be {expected}, not `{value}`")]
    BadValue {
        /// The scheme as given.
        scheme: String,
        /// The key.
        key: String,
        /// What it takes.
        expected: String,
        /// What was given.
        value: String,
    },
    /// A value outside its range.
    #[error("scheme `{scheme}`: {problem}")]
    OutOfRange {
        /// The scheme as given.
        scheme: String,
        /// The algorithm's own words.
        problem: String,
    },
    /// A file it names cannot be used.
    #[error("scheme `{scheme}`: `{file}` {problem}")]
    File {
        /// The scheme as given.
        scheme: String,
        /// The file.
        file: String,
        /// What is wrong with it, to follow its name.
        problem: String,
    },
}

/// A value that a scheme sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word.
    Word(String),
}

/// A parsed and checked scheme: an algorithm with its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    text: String,
    params: Vec<(String, Value)>,
    config: Config,
}

#[derive(Clone, Debug, PartialEq)]
enum Config {
    Verus(Box<verus::Config>),
    Cubic(cubic::Config),
    Forward(forward::Config),
    NewReno(reno::Config),
    Vegas(vegas::Config),
    Sprout(sprout::Config),
    Model { model: Arc<Model>, walk: WalkKind },
    Saturate(saturate::Config),
    Constant(constant::Config),
}

impl Scheme {
    /// Parses `NAME[:key=value,…]` where no file may be read, as for whoever asks over a network:
    /// a scheme that names one is refused. [`open`](Self::open) is for those whose files they are.
    ///
    /// # Errors
    /// Names the unknown algorithm or key, or the value out of its range.
    pub fn parse(text: &str) -> Result<Self, SchemeError> {
        Self::open(text, |_| {
            Err("is not opened here: a model runs only at the end that has its file".to_owned())
        })
    }

    /// Parses `NAME[:key=value,…]`; `read` fetches the bytes of a file that it names (`model:file=PATH`).
    ///
    /// # Errors
    /// Names the unknown algorithm or key, the value out of its range, or the file and what is
    /// wrong with it: `read`'s words are to follow the file's name.
    pub fn open(
        text: &str,
        read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Self, SchemeError> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (text.trim(), None),
        };
        let pairs = split_pairs(text, rest)?;
        let config = match name {
            "verus" => parse_verus(text, &pairs)?,
            "forward" => parse_forward(text, &pairs)?,
            "cubic" => parse_cubic(text, &pairs)?,
            "newreno" => parse_new_reno(text, &pairs)?,
            "vegas" => parse_vegas(text, &pairs)?,
            "sprout" => parse_sprout(text, &pairs)?,
            "model" => parse_model(text, &pairs, read)?,
            "saturate" => parse_saturate(text, &pairs)?,
            "constant" => parse_constant(text, &pairs)?,
            _ => {
                return Err(SchemeError::UnknownName {
                    scheme: text.to_owned(),
                    name: name.to_owned(),
                    known: catalogue()
                        .iter()
                        .map(|entry| entry.name)
                        .collect::<Vec<_>>()
                        .join(", "),
                });
            }
        };
        let params = pairs
            .into_iter()
            .map(|(key, value)| {
                let value = match value.parse::<f64>() {
                    Ok(number) => Value::Number(number),
                    Err(_) => Value::Word(value.to_owned()),
                };
                (key.to_owned(), value)
            })
            .collect();
        Ok(Scheme {
            text: text.trim().to_owned(),
            params,
            config,
        })
    }

    /// Whether `text` is of the kind that names a file.
    pub fn names_file(text: &str) -> bool {
        text.split(':').next().map(str::trim) == Some("model")
    }

    /// The algorithm's bare name.
    pub fn name(&self) -> &'static str {
        match self.config {
            Config::Verus(_) => "verus",
            Config::Forward(_) => "forward",
            Config::Cubic(_) => "cubic",
            Config::NewReno(_) => "newreno",
            Config::Vegas(_) => "vegas",
            Config::Sprout(_) => "sprout",
            Config::Model { .. } => "model",
            Config::Saturate(_) => "saturate",
            Config::Constant(_) => "constant",
        }
    }

    /// The scheme as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was set, in the order given.
    pub fn params(&self) -> &[(String, Value)] {
        &self.params
    }

    /// A name for tables and legends: `Verus R=2`, `Cubic`.
    pub fn label(&self) -> String {
        let extra = |skip: &[&str]| {
            let rest: Vec<String> = self
                .params
                .iter()
                .filter(|(key, _)| !skip.contains(&key.as_str()))
                .map(|(key, value)| match value {
                    Value::Number(number) => format!("{key}={number}"),
                    Value::Word(word) => format!("{key}={word}"),
                })
                .collect();
            if rest.is_empty() {
                String::new()
            } else {
                format!(" ({})", rest.join(", "))
            }
        };
        match &self.config {
            Config::Verus(config) => {
                let mode = match config.mode {
                    Mode::Robust => "",
                    Mode::Paper => " paper",
                    Mode::Prototype => " prototype",
                };
                format!(
                    "Verus R={}{mode}{}",
                    config.ratio,
                    extra(&["ratio", "mode"])
                )
            }
            Config::Forward(_) => format!("Forward{}", extra(&[])),
            Config::Cubic(_) => format!("Cubic{}", extra(&[])),
            Config::NewReno(_) => format!("NewReno{}", extra(&[])),
            Config::Vegas(_) => format!("Vegas{}", extra(&[])),
            Config::Sprout(_) => format!("Sprout{}", extra(&[])),
            Config::Model { .. } => format!("Model{}", extra(&[])),
            Config::Saturate(_) => format!("Saturate{}", extra(&[])),
            Config::Constant(config) => format!("Constant {} Mbit/s", config.rate_mbps),
        }
    }

    /// The rate at which a flow sends whatever becomes of its packets, for the scheme that does.
    pub fn fixed_rate(&self) -> Option<Rate> {
        match &self.config {
            Config::Constant(config) => Some(Rate::from_mbps(config.rate_mbps)),
            _ => None,
        }
    }

    /// A fresh controller. Schemes that draw random numbers draw them from `seed`: when an epoch of
    /// Verus ends, the walk of a model.
    pub fn build(&self, seed: u64) -> Box<dyn Controller> {
        const CHECKED: &str = "the configuration was checked when the scheme was parsed";
        match &self.config {
            Config::Verus(config) => verus::controller((**config).clone(), seed).expect(CHECKED),
            Config::Forward(config) => Box::new(Forward::new(config.clone()).expect(CHECKED)),
            Config::Cubic(config) => Box::new(Cubic::new(config.clone()).expect(CHECKED)),
            Config::NewReno(config) => Box::new(NewReno::new(config.clone()).expect(CHECKED)),
            Config::Vegas(config) => Box::new(Vegas::new(config.clone()).expect(CHECKED)),
            Config::Sprout(config) => Box::new(Sprout::new(config.clone()).expect(CHECKED)),
            Config::Model { model, walk } => {
                Box::new(ModelDriven::new(Arc::clone(model), *walk, seed))
            }
            Config::Saturate(config) => Box::new(Saturate::new(config.clone()).expect(CHECKED)),
            Config::Constant(config) => Box::new(Constant::new(config).expect(CHECKED)),
        }
    }

    /// The algorithm's receiver half, if it has one.
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        match &self.config {
            Config::Sprout(config) => config.observer(),
            _ => None,
        }
    }

    /// When receivers of the algorithm's packets acknowledge, where the transport leaves it open: each
    /// packet, as Verus needs it, but seldom where acknowledgements would take from a channel that is being
    /// recorded in both directions.
    pub fn receiver(&self) -> ReceiverConfig {
        match self.config {
            Config::Saturate(_) | Config::Constant(_) => ReceiverConfig {
                ack_every: 16,
                max_delay: Duration::from_millis(40),
            },
            _ => ReceiverConfig::default(),
        }
    }
}

type Pairs<'a> = Vec<(&'a str, &'a str)>;

fn split_pairs<'a>(scheme: &str, rest: Option<&'a str>) -> Result<Pairs<'a>, SchemeError> {
    let mut pairs: Pairs<'a> = Vec::new();
    for part in rest.into_iter().flat_map(|rest| rest.split(',')) {
        let bad = |key: &str, expected: &str, value: &str| SchemeError::BadValue {
            scheme: scheme.to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            value: value.to_owned(),
        };
        let Some((key, value)) = part.split_once('=') else {
            return Err(bad("each parameter", "key=value", part));
        };
        let (key, value) = (key.trim(), value.trim());
        if pairs.iter().any(|(other, _)| *other == key) {
            return Err(bad(key, "given once", value));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// One key and value of a scheme, with what an error message about it needs.
struct Setting<'a> {
    scheme: &'a str,
    key: &'a str,
    value: &'a str,
}

impl Setting<'_> {
    fn bad(&self, expected: &str) -> SchemeError {
        SchemeError::BadValue {
            scheme: self.scheme.to_owned(),
            key: self.key.to_owned(),
            expected: expected.to_owned(),
            value: self.value.to_owned(),
        }
    }

    fn number(&self) -> Result<f64, SchemeError> {
        self.value
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite())
            .ok_or_else(|| self.bad("a number"))
    }

    fn millis(&self) -> Result<Duration, SchemeError> {
        let millis = self.number()?;
        if (0.0..=3.6e6).contains(&millis) {
            Ok(Duration::from_millis_f64(millis))
        } else {
            Err(self.bad("between 0 and 3600000 ms"))
        }
    }

    fn flag(&self) -> Result<bool, SchemeError> {
        self.word(&[("yes", true), ("no", false)])
    }

    fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, SchemeError> {
        let found = words.iter().find(|(word, _)| *word == self.value);
        found.map(|&(_, value)| value).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
            self.bad(&format!("one of {}", words.join(", ")))
        })
    }
}

fn apply(
    scheme: &str,
    name: &'static str,
    keys: &[Key],
    pairs: &Pairs<'_>,
    mut set: impl FnMut(&Setting<'_>) -> Result<(), SchemeError>,
) -> Result<(), SchemeError> {
    for &(key, value) in pairs {
        if !keys.iter().any(|known| known.key == key) {
            return Err(SchemeError::UnknownKey {
                scheme: scheme.to_owned(),
                name,
                key: key.to_owned(),
                known: if keys.is_empty() {
                    "none".to_owned()
                } else {
                    keys.iter()
                        .map(|known| known.key)
                        .collect::<Vec<_>>()
                        .join(", ")
                },
            });
        }
        set(&Setting { scheme, key, value })?;
    }
    Ok(())
}

fn out_of_range(scheme: &str) -> impl Fn(&dyn std::fmt::Display) -> SchemeError + '_ {
    move |problem| SchemeError::OutOfRange {
        scheme: scheme.to_owned(),
        problem: problem.to_string(),
    }
}

const MODES: &[(&str, Mode)] = &[
    ("robust", Mode::Robust),
    ("paper", Mode::Paper),
    ("prototype", Mode::Prototype),
];

fn parse_verus(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    // The mode is a preset: it comes first, wherever it stands.
    let mut config = verus::Config::default();
    for &(key, value) in pairs {
        if key == "mode" {
            config = verus::Config::preset(Setting { scheme, key, value }.word(MODES)?);
        }
    }
    apply(scheme, "verus", &verus_keys(), pairs, |setting| {
        match setting.key {
            "mode" => {}
            "ratio" => config.ratio = setting.number()?,
            "epoch_ms" => config.epoch = setting.millis()?,
            "decrement_ms" => config.decrement_ms = setting.number()?,
            "increment_ms" => config.increment_ms = setting.number()?,
            "history_weight" => config.history_weight = setting.number()?,
            "decrease_factor" => config.decrease_factor = setting.number()?,
            "exit_multiple" => {
                config.slow_start_exit = SlowStartExit::Multiple(setting.number()?);
            }
            "exit_delay_ms" => config.slow_start_exit = SlowStartExit::Delay(setting.millis()?),
            "update_interval_ms" => config.update_interval = setting.millis()?,
            "point_weight" => config.point_weight = setting.number()?,
            "point_memory_ms" => {
                let memory = setting.millis()?;
                config.robust.point_memory = (!memory.is_zero()).then_some(memory);
            }
            "fit" => {
                config.fit = setting.word(&[
                    ("monotone", Fit::Monotone),
                    ("penalised", Fit::Penalised),
                    ("interpolation", Fit::Interpolation),
                ])?;
            }
            "capacity_bounds" => config.robust.capacity_bounds = setting.flag()?,
            "skip_stalls" => config.robust.skip_stalls = setting.flag()?,
            "window_reference" => {
                config.window_reference = setting.word(&[
                    ("in_flight", WindowReference::InFlight),
                    ("current_window", WindowReference::CurrentWindow),
                ])?;
            }
            "charted_window" => {
                config.charted_window = setting.word(&[
                    ("in_flight", ChartedWindow::InFlight),
                    ("target", ChartedWindow::Target),
                ])?;
            }
            "delay_change" => {
                config.delay_change = setting.word(&[
                    ("averaged", DelayChange::Averaged),
                    ("raw", DelayChange::Raw),
                ])?;
            }
            "change_threshold_ms" => config.change_threshold_ms = setting.number()?,
            "floor" => config.floor = setting.flag()?,
            "silent_epoch" => {
                config.silent_epoch = setting.word(&[
                    ("hold", SilentEpoch::Hold),
                    ("since_last_ack", SilentEpoch::SinceLastAck),
                ])?;
            }
            "delay_min" => {
                config.robust.drains = setting.word(&[("ever", false), ("rising", true)])?;
            }
            "least_delay_ms" => config.robust.least_delay_ms = setting.number()?,
            "regrowth" => {
                let regrowth = setting.number()?;
                config.robust.regrowth = (regrowth != 0.0).then_some(regrowth);
            }
            "epoch_jitter" => config.robust.epoch_jitter = setting.number()?,
            "additive_increase" => config.robust.additive_increase = setting.number()?,
            "loss_delays" => {
                config.recovery.loss = LossRule::DelayTimer {
                    factor: setting.number()?,
                }
            }
            "told_delay_min_ms" => {
                let told = setting.number()?;
                config.told_delay_min_ms = (told != 0.0).then_some(told);
            }
            "without" => {
                let mut words = vec![("none", None)];
                words.extend(robust::Part::ALL.map(|(word, part)| (word, Some(part))));
                if let Some(part) = setting.word(&words)? {
                    config.leave_out(part);
                }
            }
            "refill" => config.robust.refill = setting.flag()?,
            "pacing" => config.robust.pacing = setting.flag()?,
            "retransmit" => config.recovery.retransmit = setting.flag()?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    let told = config.told_delay_min_ms.is_some();
    if config.mode == Mode::Prototype && (told || config.robust != robust::Config::OFF) {
        let problem = "verus: prototype mode takes no part of the default mode";
        return Err(out_of_range(scheme)(&problem));
    }
    Ok(Config::Verus(Box::new(config)))
}

fn verus_keys() -> Vec<Key> {
    let d = verus::Config::default();
    let millis = |d: Duration| d.as_millis_f64().to_string();
    vec![
        key(
            "ratio",
            "",
            d.ratio,
            "R, the largest D_max/D_min tolerated (Eq. 4)",
        ),
        key(
            "mode",
            "robust, paper or prototype",
            "robust",
            "preset of everything below and of loss recovery",
        ),
        key(
            "epoch_ms",
            "ms",
            millis(d.epoch),
            "ε, the time between decisions (§5.3)",
        ),
        key(
            "decrement_ms",
            "ms",
            d.decrement_ms,
            "δ₁, how far D_est falls when delay rises (Eq. 4)",
        ),
        key(
            "increment_ms",
            "ms",
            d.increment_ms,
            "δ₂, how far D_est rises, and falls above R (Eq. 4)",
        ),
        key(
            "history_weight",
            "",
            d.history_weight,
            "α, the weight of history in D_max (Eq. 2)",
        ),
        key(
            "decrease_factor",
            "",
            d.decrease_factor,
            "M, the multiplicative decrease (Eq. 6)",
        ),
        key(
            "exit_multiple",
            "",
            "4",
            "N, slow start ends above N × D_min (§5.1; paper mode: 15)",
        ),
        key(
            "exit_delay_ms",
            "ms",
            "none",
            "slow start ends above this delay instead (prototype mode: 500)",
        ),
        key(
            "update_interval_ms",
            "ms",
            millis(d.update_interval),
            "how often the profile is fitted (§5.3)",
        ),
        key(
            "fit",
            "monotone, penalised or interpolation",
            "monotone",
            "how the points become a curve (§5.1)",
        ),
        key(
            "point_weight",
            "",
            d.point_weight,
            "weight of history in a point of the profile",
        ),
        key(
            "point_memory_ms",
            "ms",
            "1000",
            "age at which a point has lost half its weight; 0: never",
        ),
        key(
            "capacity_bounds",
            "yes or no",
            "yes",
            "whether the delivery rate of the last seconds bounds curve and window",
        ),
        key(
            "skip_stalls",
            "yes or no",
            "yes",
            "whether outages longer than R × D_min are kept out of profile and decisions",
        ),
        key(
            "window_reference",
            "in_flight or current_window",
            "in_flight",
            "W_i of Eq. 5",
        ),
        key(
            "charted_window",
            "in_flight or target",
            "in_flight",
            "the window that a delay is charted against",
        ),
        key("delay_change", "averaged or raw", "averaged", "ΔD (Eq. 3)"),
        key(
            "change_threshold_ms",
            "ms",
            d.change_threshold_ms,
            "a smaller ΔD is no rise",
        ),
        key(
            "floor",
            "yes or no",
            "yes",
            "whether case 1 of Eq. 4 stops at D_min",
        ),
        key(
            "silent_epoch",
            "hold or since_last_ack",
            "since_last_ack",
            "D_max of an epoch without ACKs",
        ),
        key(
            "delay_min",
            "ever or rising",
            "rising",
            "whether D_min can rise again",
        ),
        key(
            "least_delay_ms",
            "ms",
            d.robust.least_delay_ms,
            "D_min is never shorter",
        ),
        key(
            "epoch_jitter",
            "",
            d.robust.epoch_jitter,
            "share of an epoch by which its end is late at random, lest flows keep step",
        ),
        key(
            "loss_delays",
            "",
            "1",
            "so many delays after it is first missed, a packet is lost (§5.2 and paper mode: 3)",
        ),
        key(
            "regrowth",
            "packets/ms",
            "0.3",
            "rate that a flow alone may regain each second after a loss; 0: no limit",
        ),
        key(
            "additive_increase",
            "packets",
            d.robust.additive_increase,
            "what a window has beyond the curve's, so that shares even out",
        ),
        key(
            "refill",
            "yes or no",
            "yes",
            "whether a window is kept full, not filled once, in an epoch longer than a round trip",
        ),
        key(
            "pacing",
            "yes or no",
            "yes",
            "whether a budget above 32 packets is spread over its epoch",
        ),
        key(
            "retransmit",
            "yes or no",
            "yes",
            "whether lost data is sent again",
        ),
        key(
            "told_delay_min_ms",
            "ms",
            "0",
            "D_min, told rather than learned, for research (not in prototype mode); 0: learned",
        ),
        key(
            "without",
            "a part",
            "none",
            "leaves a part of the default mode out, for research: monotone, memory, curve-above, curve-slope, full-pipe, outages, in-flight, floor, silent-epochs, early-exit, regrowth, chance, shared-regrowth, additive-increase, jitter, company, refill, pacing, drains, suspicion, gentle-drains, least-delay, one-delay, short-timeout, new-data",
        ),
    ]
}

const PERIODS: &[(&str, Period)] = &[("round", Period::Round), ("repair", Period::Repair)];
const PERIOD_MEANING: &str =
    "how long losses count as one: a round (RFC 9002) or until repaired (RFC 6675)";
const HYSTART: &[(&str, HyStart)] = &[
    ("classic", HyStart::Classic),
    ("plusplus", HyStart::PlusPlus),
    ("off", HyStart::Off),
];

fn parse_cubic(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = cubic::Config::default();
    apply(scheme, "cubic", &cubic_keys(), pairs, |setting| {
        match setting.key {
            "initial_window_packets" => config.initial_window_packets = setting.number()?,
            "min_window_packets" => config.min_window_packets = setting.number()?,
            "c" => config.c = setting.number()?,
            "decrease_factor" => config.decrease_factor = setting.number()?,
            "fast_convergence" => config.fast_convergence = setting.flag()?,
            "reno_friendly" => config.reno_friendly = setting.flag()?,
            "hystart" => config.hystart = setting.word(HYSTART)?,
            "lookahead" => {
                config.lookahead = setting.word(&[
                    ("min_rtt", Lookahead::MinRtt),
                    ("smoothed_rtt", Lookahead::SmoothedRtt),
                ])?;
            }
            "period" => config.period = setting.word(PERIODS)?,
            "uncharted_growth" => config.uncharted_growth = setting.number()?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::Cubic(config))
}

fn cubic_keys() -> Vec<Key> {
    let d = cubic::Config::default();
    vec![
        key("period", "round or repair", "repair", PERIOD_MEANING),
        key(
            "lookahead",
            "min_rtt or smoothed_rtt",
            "min_rtt",
            "how far ahead the cubic function is read (Linux; §4.2)",
        ),
        key(
            "initial_window_packets",
            "packets",
            d.initial_window_packets,
            "the first window (RFC 6928)",
        ),
        key(
            "min_window_packets",
            "packets",
            d.min_window_packets,
            "no loss takes the window below (RFC 9438 §4.6)",
        ),
        key(
            "c",
            "packets/s³",
            d.c,
            "C, how fast the cubic function grows (§5.1)",
        ),
        key(
            "decrease_factor",
            "",
            d.decrease_factor,
            "β, what a loss leaves of the window (§4.6)",
        ),
        key(
            "fast_convergence",
            "yes or no",
            "yes",
            "makes room for new flows (§4.7)",
        ),
        key(
            "reno_friendly",
            "yes or no",
            "yes",
            "never slower than Reno (§4.3)",
        ),
        key(
            "hystart",
            "classic, plusplus or off",
            "classic",
            "how slow start ends before a loss (§4.10, RFC 9406)",
        ),
        key(
            "uncharted_growth",
            "",
            d.uncharted_growth,
            "least growth a round while no maximum is known (Linux)",
        ),
    ]
}

fn parse_forward(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = forward::Config::default();
    apply(scheme, "forward", &forward_keys(), pairs, |setting| {
        match setting.key {
            "queue_ms" => config.queue_ms = setting.number()?,
            "without" => {
                let mut words = vec![("none", None)];
                words.extend(forward::Part::ALL.map(|(word, part)| (word, Some(part))));
                config.without = setting.word(&words)?;
            }
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::Forward(config))
}

fn forward_keys() -> Vec<Key> {
    let d = forward::Config::default();
    vec![
        key(
            "queue_ms",
            "ms",
            d.queue_ms,
            "the queue that one will bear on 10 Mbit/s; elsewhere by the cube root of the rate",
        ),
        key(
            "without",
            "a part",
            "none",
            "leaves a part out, for research: prediction, pacing, drains, early-drains, joined-drains, short-drains, first-drain, loss-price, fairness, fractions, damping, longer-path, held-rate, cut-silence, receiver-times",
        ),
    ]
}

fn parse_new_reno(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = reno::Config::default();
    apply(scheme, "newreno", &new_reno_keys(), pairs, |setting| {
        match setting.key {
            "initial_window_packets" => config.initial_window_packets = setting.number()?,
            "min_window_packets" => config.min_window_packets = setting.number()?,
            "decrease_factor" => config.decrease_factor = setting.number()?,
            "hystart" => config.hystart = setting.word(HYSTART)?,
            "period" => config.period = setting.word(PERIODS)?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::NewReno(config))
}

fn new_reno_keys() -> Vec<Key> {
    let d = reno::Config::default();
    vec![
        key("period", "round or repair", "repair", PERIOD_MEANING),
        key(
            "initial_window_packets",
            "packets",
            d.initial_window_packets,
            "the first window (RFC 6928)",
        ),
        key(
            "min_window_packets",
            "packets",
            d.min_window_packets,
            "no loss takes the window below (RFC 9002 §7.2)",
        ),
        key(
            "decrease_factor",
            "",
            d.decrease_factor,
            "what a loss leaves of the window (RFC 9002 §7.3.2)",
        ),
        key(
            "hystart",
            "classic, plusplus or off",
            "off",
            "how slow start ends before a loss",
        ),
    ]
}

fn parse_vegas(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = vegas::Config::default();
    apply(scheme, "vegas", &vegas_keys(), pairs, |setting| {
        match setting.key {
            "alpha_packets" => config.alpha_packets = setting.number()?,
            "beta_packets" => config.beta_packets = setting.number()?,
            "gamma_packets" => config.gamma_packets = setting.number()?,
            "initial_window_packets" => config.initial_window_packets = setting.number()?,
            "min_window_packets" => config.min_window_packets = setting.number()?,
            "decrease_factor" => config.decrease_factor = setting.number()?,
            "period" => config.period = setting.word(PERIODS)?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::Vegas(config))
}

fn vegas_keys() -> Vec<Key> {
    let d = vegas::Config::default();
    vec![
        key("period", "round or repair", "repair", PERIOD_MEANING),
        key(
            "alpha_packets",
            "packets",
            d.alpha_packets,
            "α, the window grows while fewer wait",
        ),
        key(
            "beta_packets",
            "packets",
            d.beta_packets,
            "β, the window shrinks while more wait",
        ),
        key(
            "gamma_packets",
            "packets",
            d.gamma_packets,
            "γ, slow start ends when more wait",
        ),
        key(
            "initial_window_packets",
            "packets",
            d.initial_window_packets,
            "the first window (RFC 6928)",
        ),
        key(
            "min_window_packets",
            "packets",
            d.min_window_packets,
            "neither loss nor queue takes the window below",
        ),
        key(
            "decrease_factor",
            "",
            d.decrease_factor,
            "what a loss leaves of the window",
        ),
    ]
}

fn parse_saturate(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = saturate::Config::default();
    apply(scheme, "saturate", &saturate_keys(), pairs, |setting| {
        match setting.key {
            "delay_ms" => config.delay = setting.millis()?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::Saturate(config))
}

fn saturate_keys() -> Vec<Key> {
    vec![key(
        "delay_ms",
        "ms",
        saturate::Config::default().delay.as_millis_f64(),
        "T, the queueing delay that is kept standing",
    )]
}

fn parse_constant(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = constant::Config::default();
    apply(scheme, "constant", &constant_keys(), pairs, |setting| {
        match setting.key {
            "rate_mbps" => config.rate_mbps = setting.number()?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::Constant(config))
}

fn constant_keys() -> Vec<Key> {
    vec![key(
        "rate_mbps",
        "Mbit/s",
        constant::Config::default().rate_mbps,
        "what leaves, headers included (SIGCOMM 2015 §3)",
    )]
}

fn parse_model(
    scheme: &str,
    pairs: &Pairs<'_>,
    read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
) -> Result<Config, SchemeError> {
    let (mut file, mut walk) = ("", WalkKind::default());
    apply(scheme, "model", &model_keys(), pairs, |setting| {
        match setting.key {
            "file" => {}
            "walk" => {
                walk =
                    setting.word(&[("paper", WalkKind::Paper), ("sampled", WalkKind::Sampled)])?;
            }
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    if let Some(&(_, given)) = pairs.iter().find(|(key, _)| *key == "file") {
        file = given;
    }
    if file.is_empty() {
        return Err(out_of_range(scheme)(
            &"file must name a model, as `verus train` writes it",
        ));
    }
    let unusable = |problem: String| SchemeError::File {
        scheme: scheme.to_owned(),
        file: file.to_owned(),
        problem,
    };
    let bytes = read(file).map_err(unusable)?;
    let model = Model::from_bytes(&bytes).map_err(|error| unusable(error.to_string()))?;
    Ok(Config::Model {
        model: Arc::new(model),
        walk,
    })
}

fn model_keys() -> Vec<Key> {
    vec![
        key(
            "file",
            "path without a comma",
            REQUIRED,
            "the model, as `verus train` writes it",
        ),
        key(
            "walk",
            "paper or sampled",
            "paper",
            "nearest probability to an even draw (§3.2), or drawn by probability",
        ),
    ]
}

fn parse_sprout(scheme: &str, pairs: &Pairs<'_>) -> Result<Config, SchemeError> {
    let mut config = sprout::Config::default();
    apply(scheme, "sprout", &sprout_keys(), pairs, |setting| {
        match setting.key {
            "max_rate" => config.max_rate = setting.number()?,
            "max_arrivals_per_tick" => {
                let whole = setting.value.parse();
                config.max_arrivals_per_tick = whole.map_err(|_| setting.bad("a whole number"))?;
            }
            "volatility" => config.volatility = setting.number()?,
            "escape_rate" => config.escape_rate = setting.number()?,
            "percentile" => config.percentile = setting.number()?,
            "receiver" => config.receiver = setting.flag()?,
            other => unreachable!("`{other}` is listed but not parsed"),
        }
        Ok(())
    })?;
    config
        .validate()
        .map_err(|error| out_of_range(scheme)(&error))?;
    Ok(Config::Sprout(config))
}

fn sprout_keys() -> Vec<Key> {
    let d = sprout::Config::default();
    vec![
        key(
            "max_rate",
            "packets/s",
            d.max_rate,
            "no higher rate is believed (§3.1; binds first, at 11.2 to 11.5 Mbit/s)",
        ),
        key(
            "max_arrivals_per_tick",
            "packets",
            d.max_arrivals_per_tick,
            "no more arrivals are counted in a tick of 20 ms (the 18 Mbit/s of Verus §6.1)",
        ),
        key(
            "volatility",
            "packets/s/√s",
            d.volatility,
            "σ, how the rate wanders (§3.1)",
        ),
        key(
            "escape_rate",
            "1/s",
            d.escape_rate,
            "λ_z, how often an outage ends (§3.1)",
        ),
        key(
            "percentile",
            "%",
            d.percentile,
            "the chance that less is delivered than forecast (§3.3)",
        ),
        key(
            "receiver",
            "yes or no",
            "yes",
            "whether the receiver makes the forecast; no, and over QUIC: a forecast at the sender, from acknowledgements",
        ),
    ]
}

/// Every algorithm, with its parameters.
pub fn catalogue() -> Vec<Entry> {
    vec![
        Entry {
            name: "verus",
            summary: "delay-based, learns what delay each window brings (Zaki et al., SIGCOMM 2015)",
            keys: verus_keys(),
        },
        Entry {
            name: "forward",
            summary: "delay-based, one window from delivery rate and round trip, low delay on links of any kind",
            keys: forward_keys(),
        },
        Entry {
            name: "cubic",
            summary: "loss-based, the default of Linux (RFC 9438, HyStart on)",
            keys: cubic_keys(),
        },
        Entry {
            name: "newreno",
            summary: "loss-based, additive increase (RFC 5681 in RFC 9002's form)",
            keys: new_reno_keys(),
        },
        Entry {
            name: "vegas",
            summary: "delay-based, keeps a few packets queued (Brakmo and Peterson 1995)",
            keys: vegas_keys(),
        },
        Entry {
            name: "sprout",
            summary: "the receiver forecasts what the link will deliver within 100 ms (Winstein et al., NSDI 2013)",
            keys: sprout_keys(),
        },
        Entry {
            name: "model",
            summary: "walks through a trained transition matrix (Pötsch et al. 2016; `verus train`)",
            keys: model_keys(),
        },
        Entry {
            name: "saturate",
            summary: "keeps a standing queue, to record what a channel can carry (`probe client --record`)",
            keys: saturate_keys(),
        },
        Entry {
            name: "constant",
            summary: "a packet at each interval, heeding nothing (SIGCOMM 2015 §3 and §5.3)",
            keys: constant_keys(),
        },
    ]
}

fn key(
    key: &'static str,
    unit: &'static str,
    default: impl ToString,
    meaning: &'static str,
) -> Key {
    Key {
        key,
        unit,
        default: default.to_string(),
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_a_name_with_parameters() {
        let scheme = Scheme::parse("verus:ratio=4,mode=prototype").expect("valid");
        assert_eq!(scheme.name(), "verus");
        assert_eq!(scheme.label(), "Verus R=4 prototype");
        assert_eq!(
            scheme.params(),
            [
                ("ratio".to_owned(), Value::Number(4.0)),
                ("mode".to_owned(), Value::Word("prototype".to_owned())),
            ]
        );
        assert_eq!(Scheme::parse("cubic").expect("valid").label(), "Cubic");
    }

    #[test]
    fn a_mode_is_a_preset_wherever_it_stands() {
        let Config::Verus(first) = Scheme::parse("verus:mode=paper,ratio=6")
            .expect("valid")
            .config
        else {
            panic!("a Verus scheme");
        };
        let Config::Verus(last) = Scheme::parse("verus:ratio=6,mode=paper")
            .expect("valid")
            .config
        else {
            panic!("a Verus scheme");
        };
        assert_eq!(first, last);
        assert_eq!(first.ratio, 6.0);
    }

    #[test]
    fn each_listed_key_takes_its_listed_default() {
        for entry in catalogue().iter().filter(|entry| entry.stands_alone()) {
            assert!(Scheme::parse(entry.name).is_ok());
            for key in entry.keys.iter().filter(|key| key.default != "none") {
                let text = format!("{}:{}={}", entry.name, key.key, key.default);
                let set = Scheme::parse(&text).unwrap_or_else(|error| panic!("{error}"));
                let plain = Scheme::parse(entry.name).expect("valid");
                assert_eq!(set.config, plain.config, "{text} changes nothing");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |text: &str| Scheme::parse(text).expect_err("invalid").to_string();
        assert_eq!(
            message("bbr"),
            "scheme `bbr`: unknown algorithm `bbr`; known are verus, forward, cubic, newreno, vegas, sprout, model, saturate, \
             constant"
        );
        assert!(message("vegas:ratio=2").contains("`vegas` has no key `ratio`"));
        assert_eq!(
            message("verus:ratio=1"),
            "scheme `verus:ratio=1`: verus: ratio must be above 1, not 1"
        );
        assert!(message("verus:ratio=NaN").contains("ratio must be a number, not `NaN`"));
        assert!(message("verus:ratio").contains("each parameter must be key=value"));
        assert!(message("verus:ratio=2,ratio=3").contains("ratio must be given once"));
        assert!(message("verus:mode=fast").contains("one of robust, paper, prototype"));
        assert!(message("cubic:").contains("key=value"));
    }
    #[test]
    fn a_model_is_read_by_who_may_read_it_and_refused_for_others() {
        let read = |text: &str, bytes: &'static [u8]| {
            Scheme::open(text, |_| Ok(bytes.to_vec()))
                .expect_err("no model")
                .to_string()
        };
        assert_eq!(
            Scheme::parse("model:file=/etc/passwd")
                .expect_err("refused")
                .to_string(),
            "scheme `model:file=/etc/passwd`: `/etc/passwd` is not opened here: a model runs only at \
             the end that has its file"
        );
        assert!(read("model:file=a.jpg", b"JFIF").contains("`a.jpg` is not a model file"));
        assert!(read("model:file=a", b"VERUS").contains("`a` is damaged"));
        assert!(read("model:file=a,walk=fast", b"").contains("one of paper, sampled"));
        assert!(read("model", b"").contains("file must name a model"));
        assert!(read("model:walk=paper", b"").contains("file must name a model"));
        assert!(read("model:file=", b"").contains("file must name a model"));
    }
}
