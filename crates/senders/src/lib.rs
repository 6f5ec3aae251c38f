//! The list of algorithms: name → configuration → controller. The one place to add another.
//!
//! [`Registry::with`] adds one that is not of this crate, and [`Registry::install`] gives it to the whole program;
//! `examples/own-controller` does the first, `examples/own-command` both.
//!
//! A scheme is written `NAME[:key=value,…]`, the same on every command line and in every file:
//! `verus:ratio=4,mode=prototype`, `cubic`, `cubic:hystart=plusplus`. Its keys are the rows of the algorithm's own
//! configuration ([`spec`](verus_words::spec)).

mod built;
mod external;
mod model;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use thiserror::Error;

use verus_core::configuration::Configured;
use verus_core::controller::Observer;
use verus_core::receiver::ReceiverConfig;
use verus_core::units::Rate;
use verus_forward as forward;
use verus_peers::tcp::{cubic, reno, vegas};
use verus_peers::{
    bbr, bbr1, c4, constant, copa, ledbatpp, prague, saturate, scream, sprout, vivace,
};
use verus_protocol as verus;
use verus_words::configuration::Configuration;
use verus_words::quantity;
use verus_words::spec::{Given, Problem, REQUIRED, assert_new, places, shown};

pub use built::Built;
pub use external::{External, LinuxTcp, Program};
pub use verus_words::spec::{Key, Takes};

/// The sending end of a flow, of any algorithm.
pub type Sender = verus_core::sender::Sender<Built>;

/// An algorithm, as `verus list schemes` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its name in a scheme.
    pub name: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// Its parameters.
    pub keys: Vec<Key>,
}

impl Entry {
    /// Whether its name alone is a scheme.
    pub fn stands_alone(&self) -> bool {
        self.keys.iter().all(|key| key.default != REQUIRED)
    }
}

/// A scheme that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SchemeError {
    /// A name that no algorithm has, a key that it does not have, or a value that is not of its kind.
    #[error("scheme `{scheme}`: {problem}")]
    Spec {
        /// The scheme as given.
        scheme: String,
        /// The mistake.
        problem: Problem,
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
        /// The mistake, in words that follow the file's name.
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

impl Value {
    /// The parameters that `given` sets, in its order. A value that parses as a number is a number.
    pub fn all(given: &Given<'_>) -> Vec<(String, Value)> {
        let param = |&(key, value): &(&str, &str)| {
            let value = match value.parse::<f64>() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::Word(value.to_owned()),
            };
            (key.to_owned(), value)
        };
        given.pairs.iter().map(param).collect()
    }

    /// The same, with words that are a number with a unit converted to the unit of their key: `epoch_ms=0.01s` is 10.
    fn measured(params: Vec<(String, Value)>, keys: &[Key]) -> Vec<(String, Value)> {
        let number = |(key, value): (String, Value)| {
            let listed = keys.iter().find(|other| other.key == key);
            let read = match (&value, listed) {
                (Value::Word(word), Some(listed)) => quantity::read(word, listed.takes.unit()).ok(),
                _ => None,
            };
            (key, read.map_or(value, Value::Number))
        };
        params.into_iter().map(number).collect()
    }
}

type Config = Arc<dyn Configured>;

/// A line of the list.
#[derive(Clone, Copy)]
struct Algorithm {
    name: &'static str,
    summary: &'static str,
    keys: fn() -> Vec<Key>,
    open: fn(&Given<'_>, Read<'_>) -> Result<Config, Refusal>,
}

impl Algorithm {
    const fn of<C: Configured + Configuration>(name: &'static str, summary: &'static str) -> Self {
        Algorithm {
            name,
            summary,
            keys: || shown(C::ROWS, &C::default()),
            open: |given, _| {
                let mut config = C::default();
                given.apply(C::ROWS, &mut config)?;
                config.check().map_err(Refusal::OutOfRange)?;
                Ok(Arc::new(config))
            },
        }
    }
}

/// The scheme for users' data where nobody asks for another (docs/forward.md says why).
pub const RECOMMENDED: &str = "forward";

const ALGORITHMS: &[Algorithm] = &[
    Algorithm::of::<verus::Config>(
        "verus",
        "delay-based, learns what delay each window brings (Zaki et al., SIGCOMM 2015)",
    ),
    Algorithm::of::<forward::Config>(
        "forward",
        "delay-based, one window from delivery rate and round trip, low delay on links of any kind",
    ),
    Algorithm::of::<cubic::Config>(
        "cubic",
        "loss-based, the default of Linux (RFC 9438, HyStart on)",
    ),
    Algorithm::of::<reno::Config>(
        "newreno",
        "loss-based, additive increase (RFC 5681 in RFC 9002's form)",
    ),
    Algorithm::of::<vegas::Config>(
        "vegas",
        "delay-based, keeps a few packets queued (Brakmo and Peterson 1995)",
    ),
    Algorithm::of::<bbr1::Config>(
        "bbr1",
        "a model of bandwidth and delay in place of losses, as in Linux (Cardwell et al. 2016)",
    ),
    Algorithm::of::<bbr::Config>(
        "bbr",
        "version 3: the model of version 1 with bounds that losses teach (draft-ietf-ccwg-bbr)",
    ),
    Algorithm::of::<copa::Config>(
        "copa",
        "delay-based (Arun and Balakrishnan, NSDI 2018); several on one link need competitive=no",
    ),
    Algorithm::of::<ledbatpp::Config>(
        "ledbatpp",
        "LEDBAT++, delay-based, gives way to everything else (draft-irtf-iccrg-ledbat-plus-plus)",
    ),
    Algorithm::of::<c4::Config>(
        "c4",
        "a rate for media, from deliveries, delays and losses (draft-huitema-ccwg-c4-spec)",
    ),
    Algorithm::of::<vivace::Config>(
        "vivace",
        "PCC Vivace, tries which rate is worth most by throughput, delay and loss (Dong et al., NSDI 2018)",
    ),
    Algorithm::of::<scream::Config>(
        "scream",
        "SCReAM version 2, a window and a bitrate for live media (draft-ietf-ccwg-rfc8298bis-screamv2)",
    ),
    Algorithm::of::<prague::Config>(
        "prague",
        "a window that follows the share of marks (draft-briscoe-iccrg-prague-congestion-control)",
    ),
    Algorithm::of::<sprout::Config>(
        "sprout",
        "the receiver forecasts what the link will deliver within 100 ms (Winstein et al., NSDI 2013)",
    ),
    Algorithm {
        name: model::NAME,
        summary: "walks through a trained transition matrix (Pötsch et al. 2016; `verus train`)",
        keys: model::keys,
        open: model::open,
    },
    Algorithm::of::<saturate::Config>(
        "saturate",
        "keeps a standing queue, to record what a channel can carry (`probe client --record`)",
    ),
    Algorithm::of::<constant::Config>(
        "constant",
        "a packet at each interval, heeding nothing (SIGCOMM 2015 §3 and §5.3)",
    ),
];

/// Every algorithm that schemes can name in this program, with its parameters.
pub fn catalogue() -> Vec<Entry> {
    Registry::installed().catalogue()
}

/// The algorithms that schemes can name: this crate's, and those that a program adds.
#[derive(Clone)]
pub struct Registry {
    algorithms: Vec<Algorithm>,
    open_elsewhere: Option<OpenElsewhere>,
}

/// Opens the schemes of a kind that this crate knows nothing of, such as those whose controllers are another language's
/// programs: `None` if the text is not of that kind.
pub type OpenElsewhere = fn(&str) -> Option<Result<Elsewhere, Problem>>;

/// A scheme that [`OpenElsewhere`] has opened.
#[derive(Debug)]
pub struct Elsewhere {
    /// Its bare name.
    pub name: String,
    /// The parameters that the scheme sets.
    pub params: Vec<(String, Value)>,
    /// The configuration that its controllers are built from.
    pub config: Arc<dyn Configured>,
}

static INSTALLED: OnceLock<Registry> = OnceLock::new();

/// This crate's algorithms.
impl Default for Registry {
    fn default() -> Self {
        Registry {
            algorithms: ALGORITHMS.to_vec(),
            open_elsewhere: None,
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Registry {
    /// Makes this the registry by which the program reads all schemes, unless a call names another. Call it first in
    /// `main`: once a scheme has been read or the list shown, the registry cannot be replaced.
    ///
    /// # Errors
    /// Gives the registry back if it is too late.
    pub fn install(self) -> Result<(), Registry> {
        INSTALLED.set(self)
    }

    /// The registry that was [installed](Self::install), else this crate's algorithms.
    pub fn installed() -> &'static Registry {
        INSTALLED.get_or_init(Registry::default)
    }

    /// Adds schemes of another kind. `open` recognises them by their text, and is called before anything else is tried.
    #[must_use]
    pub fn with_elsewhere(mut self, open: OpenElsewhere) -> Self {
        self.open_elsewhere = Some(open);
        self
    }

    /// Adds an algorithm with configuration `C`. `name` is its name in schemes, `summary` the sentence that lists show.
    ///
    /// # Panics
    /// If the name is taken, or contains anything but lower-case letters, digits, hyphens and underscores.
    #[must_use]
    pub fn with<C: Configured + Configuration>(
        mut self,
        name: &'static str,
        summary: &'static str,
    ) -> Self {
        assert_new("an algorithm", name, self.names());
        self.algorithms.push(Algorithm::of::<C>(name, summary));
        self
    }

    /// Every algorithm, with its parameters.
    pub fn catalogue(&self) -> Vec<Entry> {
        let entry = |algorithm: &Algorithm| Entry {
            name: algorithm.name,
            summary: algorithm.summary,
            keys: (algorithm.keys)(),
        };
        self.algorithms.iter().map(entry).collect()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name)
    }

    /// The files that the scheme `text` names, and the place of each in it. Names none if there is no such algorithm.
    pub fn files(&self, text: &str) -> Vec<(Range<usize>, PathBuf)> {
        let name = text.split(':').next().map(str::trim);
        let algorithm = self.algorithms.iter().find(|of| Some(of.name) == name);
        let keys = algorithm.map_or_else(Vec::new, |of| (of.keys)());
        let is_path = |key: &str| (keys.iter()).any(|of| of.key == key && of.takes == Takes::Path);
        let places = places(text).into_iter().filter(|(key, _)| is_path(key));
        let files = places.map(|(_, place)| (place.clone(), text[place].trim().into()));
        files.collect()
    }

    /// A guess at the scheme that was meant by `text`, which is none.
    pub fn meant(&self, text: &str) -> Option<String> {
        let has = |name: &str| self.names().any(|known| known == name);
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (&first, others) = parts.split_first()?;
        let name_of = |part: &str| part.split(':').next().unwrap_or_default().to_owned();
        if !others.is_empty() && parts.iter().all(|part| has(&name_of(part))) {
            let apart = parts.join(" ");
            return Some(format!(
                "`{text}` names several schemes: they stand apart, as in `--scheme {apart}`"
            ));
        }
        if has(first) && !others.is_empty() && others.iter().all(|part| part.contains('=')) {
            let keys = others.join(",");
            return Some(format!(
                "`{text}` is no scheme: keys stand behind a colon, as in `{first}:{keys}`"
            ));
        }
        let (key, _) = first.split_once('=').filter(|_| !first.contains(':'))?;
        let has_key = |of: &&Algorithm| (of.keys)().iter().any(|known| known.key == key.trim());
        let of = self.algorithms.iter().find(has_key)?.name;
        Some(format!(
            "`{text}` is a key without its scheme: it stands behind a colon, as in `{of}:{text}`"
        ))
    }

    /// As [`Scheme::open`], of these algorithms.
    ///
    /// # Errors
    /// As [`Scheme::open`].
    pub fn open(
        &self,
        text: &str,
        mut read: impl FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Scheme, SchemeError> {
        let scheme = || text.to_owned();
        let refused = |problem| SchemeError::Spec {
            scheme: scheme(),
            problem,
        };
        if let Some(opened) = self.open_elsewhere.and_then(|open| open(text)) {
            let Elsewhere {
                name,
                params,
                config,
            } = opened.map_err(refused)?;
            return Ok(Scheme {
                text: text.trim().to_owned(),
                name: name.into(),
                params,
                config,
            });
        }
        let given = Given::parse(text).map_err(refused)?;
        let entry = self
            .algorithms
            .iter()
            .find(|known| known.name == given.name);
        let algorithm = entry
            .ok_or_else(|| refused(Problem::unknown("algorithm", given.name, self.names())))?;
        let config = (algorithm.open)(&given, &mut read).map_err(|refusal| match refusal {
            Refusal::Spec(problem) => refused(problem),
            Refusal::OutOfRange(problem) => SchemeError::OutOfRange {
                scheme: scheme(),
                problem,
            },
            Refusal::File { file, problem } => SchemeError::File {
                scheme: scheme(),
                file,
                problem,
            },
        })?;
        Ok(Scheme {
            text: text.trim().to_owned(),
            name: algorithm.name.into(),
            params: Value::measured(Value::all(&given), &(algorithm.keys)()),
            config,
        })
    }
}

/// The largest window that a server lets strangers begin with, or keep whatever happens, packets: nearly three times that of
/// RFC 6928.
const LARGEST_WINDOW_OF_STRANGERS: f64 = 25.0;

/// A parsed and checked scheme: an algorithm with its configuration.
#[derive(Clone, Debug)]
pub struct Scheme {
    text: String,
    name: Cow<'static, str>,
    params: Vec<(String, Value)>,
    config: Config,
}

/// Two schemes are equal if they name the same algorithm and set the same values in the same order, however these are
/// written: `epoch_ms=10` and `epoch_ms=0.01s` are one.
impl PartialEq for Scheme {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.params == other.params
    }
}

impl Scheme {
    /// Parses `NAME[:key=value,…]` and refuses schemes that name a file, as for requests over a network.
    /// [`open`](Self::open) also reads files.
    ///
    /// # Errors
    /// Names the unknown algorithm or key, or the value out of its range.
    pub fn parse(text: &str) -> Result<Self, SchemeError> {
        let registry = Registry {
            open_elsewhere: None,
            ..Registry::installed().clone()
        };
        registry.open(text, |_| {
            Err("is not opened here: a model runs only at the end that has its file".to_owned())
        })
    }

    /// Parses `NAME[:key=value,…]`; `read` fetches the bytes of a file that it names (`model:file=PATH`).
    ///
    /// # Errors
    /// Names the unknown algorithm or key, the value out of its range, or the unusable file. The
    /// error of `read` follows the file's name in the message.
    pub fn open(
        text: &str,
        read: impl FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Self, SchemeError> {
        Registry::installed().open(text, read)
    }

    /// Whether `text` is of the kind that names a file.
    pub fn names_file(text: &str) -> bool {
        text.split(':').next().map(str::trim) == Some(model::NAME)
    }

    /// The algorithm's bare name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scheme's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parameters that the scheme sets, in the order of the text.
    pub fn params(&self) -> &[(String, Value)] {
        &self.params
    }

    /// A name for tables and legends: `Verus R=2`, `Cubic`.
    pub fn label(&self) -> String {
        let (label, labelled) = self.config.label();
        let rest: Vec<String> = self
            .params
            .iter()
            .filter(|(key, _)| !labelled.contains(&key.as_str()))
            .map(|(key, value)| match value {
                Value::Number(number) => format!("{key}={number}"),
                Value::Word(word) => format!("{key}={word}"),
            })
            .collect();
        match rest.as_slice() {
            [] => label,
            rest => format!("{label} ({})", rest.join(", ")),
        }
    }

    /// The flow's rate, for schemes that send at a constant rate whatever happens to their packets.
    pub fn fixed_rate(&self) -> Option<Rate> {
        self.config.fixed_rate()
    }

    /// The reason why this scheme costs an end much more work or memory than its defaults do.
    /// `sends`: whether that end runs the sender. A server refuses such a scheme to strangers.
    pub fn extra_cost(&self, sends: bool) -> Option<String> {
        // Windows are sent, and kept, whether or not anything of them arrives.
        let windows = ["initial_window_packets", "min_window_packets"];
        let large = |(key, value): &&(String, Value)| {
            let packets = match value {
                Value::Number(packets) => *packets,
                Value::Word(_) => return false,
            };
            windows.contains(&key.as_str()) && packets > LARGEST_WINDOW_OF_STRANGERS
        };
        let large = self.params.iter().find(large).filter(|_| sends);
        let large = large.map(|(key, _)| {
            format!("a {key} of more than {LARGEST_WINDOW_OF_STRANGERS} is more work")
        });
        large.or_else(|| self.config.extra_cost(sends))
    }

    /// The configuration that its controllers are built from, for transports of other crates.
    pub fn config(&self) -> &Arc<dyn Configured> {
        &self.config
    }

    /// A fresh controller. `seed` yields its random numbers: the ends of Verus's epochs are drawn,
    /// and the walk of a model.
    pub fn build(&self, seed: u64) -> Built {
        self.config.build(seed).into()
    }

    /// Why a controller built from it gave up, for controllers that can.
    pub fn failure(&self) -> Option<String> {
        self.config.failure()
    }

    /// The algorithm's receiver half, if it has one.
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        self.config.observer()
    }

    /// The rule by which receivers of the algorithm's packets acknowledge, if the transport leaves
    /// it open. Verus needs an acknowledgement of each packet. Recording in both directions needs
    /// few, since they take capacity from the recorded channel.
    pub fn receiver(&self) -> ReceiverConfig {
        self.config.receiver()
    }
}

/// Why a text does not become a configuration; the scheme's name is still to come.
pub(crate) enum Refusal {
    Spec(Problem),
    OutOfRange(String),
    File { file: String, problem: String },
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Refusal::Spec(problem)
    }
}

/// Fetches the bytes of a file that a scheme names.
pub(crate) type Read<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recommended_scheme_is_in_the_list() {
        let scheme = Scheme::parse(RECOMMENDED).expect("in the list");
        assert_eq!(scheme.name(), RECOMMENDED);
    }

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

    fn config(text: &str) -> String {
        let scheme = Scheme::parse(text).unwrap_or_else(|error| panic!("{error}"));
        format!("{:?}", scheme.config)
    }

    #[test]
    fn a_mode_is_a_preset_wherever_it_stands() {
        let first = config("verus:mode=paper,ratio=6");
        assert_eq!(first, config("verus:ratio=6,mode=paper"));
        assert!(first.contains("ratio: 6.0"), "{first}");
    }

    #[test]
    fn each_listed_key_takes_its_listed_default() {
        for entry in catalogue().iter().filter(|entry| entry.stands_alone()) {
            assert!(Scheme::parse(entry.name).is_ok());
            for key in entry.keys.iter().filter(|key| key.default != "none") {
                let text = format!("{}:{}={}", entry.name, key.key, key.default);
                assert_eq!(config(&text), config(entry.name), "{text} changes nothing");
            }
        }
    }

    #[test]
    #[should_panic(expected = "there is an algorithm `cubic` already")]
    fn a_name_that_is_taken_is_refused() {
        let _ = Registry::default().with::<constant::Config>("cubic", "another one");
    }

    #[test]
    #[should_panic(expected = "`a:b` is no name for an algorithm")]
    fn a_name_that_no_scheme_could_have_is_refused() {
        let _ = Registry::default().with::<constant::Config>("a:b", "another one");
    }

    #[test]
    fn an_algorithm_that_is_added_is_listed_parsed_and_named_where_one_is_unknown() {
        let registry = Registry::default().with::<constant::Config>("metronome", "a constant");
        let listed = registry.catalogue();
        assert_eq!(listed.last().map(|entry| entry.name), Some("metronome"));
        let open = |text| registry.open(text, |_| Err("is not read".to_owned()));
        assert_eq!(open("metronome").expect("added").name(), "metronome");
        assert!(open("verus").is_ok());
        let unknown = open("nagle").expect_err("unknown").to_string();
        assert!(unknown.ends_with("constant, metronome"), "{unknown}");
    }

    #[test]
    fn a_value_with_a_unit_is_the_number_that_it_states() {
        let typed = Scheme::parse("verus:epoch_ms=0.01s").expect("valid");
        assert_eq!(typed, Scheme::parse("verus:epoch_ms=10").expect("valid"));
        assert_eq!(typed.params()[0].1, Value::Number(10.0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |text: &str| Scheme::parse(text).expect_err("invalid").to_string();
        let names: Vec<_> = catalogue().iter().map(|entry| entry.name).collect();
        assert_eq!(
            message("nagle"),
            format!(
                "scheme `nagle`: unknown algorithm `nagle`; known are {}",
                names.join(", ")
            )
        );
        assert_eq!(
            message("versu"),
            "scheme `versu`: unknown algorithm `versu`; the nearest is `verus`"
        );
        assert!(
            message("verus:rato=2").ends_with("`verus` has no key `rato`; the nearest is `ratio`")
        );
        assert!(message("vegas:ratio=2").contains("`vegas` has no key `ratio`"));
        assert!(message("verus:epoch_ms=5kB").contains("`kB` is none of its units"));
        assert_eq!(
            message("verus:ratio=1"),
            "scheme `verus:ratio=1`: ratio must be above 1 and at most 1000000, not `1`"
        );
        assert!(message("verus:ratio=NaN").contains("ratio must be above 1 and at most 1000000"));
        assert!(message("verus:ratio").contains("each parameter must be key=value"));
        assert!(message("verus:ratio=2,ratio=3").contains("ratio must be given once"));
        assert!(message("verus:mode=fast").contains("one of robust, paper, prototype"));
        assert!(message("cubic:").contains("key=value"));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let cases = "
            bbr1:initial_window_packets=0 => between 1 and 1000000 packets
            newreno:min_window_packets=0 => between 1 and 1000000 packets
            newreno:decrease_factor=1 => above 0 and below 1
            vegas:beta_packets=1 => at least alpha_packets
            vegas:gamma_packets=NaN => above 0 and at most 1000000 packets
            cubic:c=0 => above 0 and at most 1000
            cubic:uncharted_growth=NaN => between 0 and 0.5
            copa:delta=0 => between 0.001 and 1
            copa:delta=-1 => between 0.001 and 1
            copa:delta=NaN => between 0.001 and 1
            copa:delta=2 => between 0.001 and 1
            ledbatpp:target_ms=200 => between 1 and 100 ms (RFC 6817: no more)
            c4:initial_window_packets=-1 => between 1 and 1000000 packets
            vivace:initial_window_packets=0 => between 1 and 1000000 packets
            scream:min_rate_mbps=200 => at most max_rate_mbps
            prague:initial_window_packets=0 => between 1 and 1000000 packets";
        for case in cases.lines().skip(1) {
            let (text, range) = case.trim().split_once(" => ").expect("a case");
            let key = text.split([':', '=']).nth(1).expect("a key");
            let error = Scheme::parse(text).expect_err(text).to_string();
            let problem = format!("scheme `{text}`: {key} must be {range}, not ");
            assert!(error.starts_with(&problem), "{error}");
        }
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
