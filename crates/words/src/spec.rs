//! Texts of the form `NAME:key=value,key=value`, and the tables of keys that they set.
//!
//! A key stands once: as a [`Row`] in the file of the configuration that it sets, with its unit, its meaning and the
//! two functions that read and write it. The list of keys, the parser and the defaults all follow from this row.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::near::near;
use crate::quantity::{self, Unit};
use crate::range::{OutOfRange, Within};

const NANOS_PER_MILLI: f64 = 1e6;

/// The default that a required key shows.
pub const REQUIRED: &str = "required";

/// The values that a key takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A number of this unit; of none if it is empty.
    Number(&'static str),
    /// One of these words.
    OneOf(Vec<&'static str>),
    /// The path of a file. It marks the keys through which a text depends on files.
    Path,
}

impl Takes {
    /// One of `words`.
    pub fn one_of<T>(words: Words<T>) -> Self {
        Takes::OneOf(words.iter().map(|&(word, _)| word).collect())
    }

    /// `none`, or one of `words`.
    pub fn none_or<T>(words: Words<T>) -> Self {
        let words = words.iter().map(|&(word, _)| word);
        Takes::OneOf(std::iter::once("none").chain(words).collect())
    }

    /// The unit of a number.
    pub fn unit(&self) -> Unit {
        match self {
            Takes::Number(unit) => Unit::named(unit),
            Takes::OneOf(_) | Takes::Path => Unit::Plain,
        }
    }
}

/// As lists show it: `ms`, or `a, b or c`.
impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Takes::Number(unit) => f.write_str(unit),
            Takes::OneOf(words) => match words.split_last() {
                Some((last, [])) => f.write_str(last),
                Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
                None => Ok(()),
            },
            Takes::Path => f.write_str("path without a comma"),
        }
    }
}

impl Serialize for Takes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A key, as `verus list schemes` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The word before the equals sign.
    pub key: &'static str,
    /// Its values: the unit of a number, or words.
    #[serde(rename = "unit")]
    pub takes: Takes,
    /// Its default value; [`REQUIRED`] if it has none.
    pub default: String,
    /// Its effect, symbol and source.
    pub meaning: &'static str,
}

/// A mistake in such a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// An unknown name.
    #[error("unknown {what} `{name}`; {known}")]
    UnknownName {
        /// The kind of thing that was looked for: a scheme, a queue.
        what: &'static str,
        /// The word.
        name: String,
        /// The nearest names, or all there are.
        known: String,
    },
    /// An unknown key.
    #[error("`{name}` has no key `{key}`; {known}")]
    UnknownKey {
        /// The name whose keys were looked up.
        name: String,
        /// The word.
        key: String,
        /// The nearest keys, or all there are.
        known: String,
    },
    /// A key without a value, a key given twice, or a value that the key does not take.
    #[error("{key} must be {expected}, not `{value}`")]
    BadValue {
        /// The key.
        key: String,
        /// The values that the key takes.
        expected: String,
        /// The value in the text.
        value: String,
    },
    /// A number with a unit that its key does not have.
    #[error("{key}={value}: {problem}")]
    BadUnit {
        /// The key.
        key: String,
        /// The value in the text.
        value: String,
        /// The mistake.
        problem: String,
    },
    /// Values that contradict each other.
    #[error("{0}")]
    Together(String),
}

/// Why a text describes nothing of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} `{text}`: {problem}")]
pub struct SpecError {
    /// Name of what the text describes, such as `queue`, or of its field.
    pub what: String,
    /// The whole text, as given.
    pub text: String,
    /// The mistake.
    pub problem: Box<Problem>,
}

impl SpecError {
    /// The whole text is not what `what` takes.
    pub fn bad(what: &str, expected: &str, text: &str) -> Self {
        SpecError {
            what: what.to_owned(),
            text: text.to_owned(),
            problem: Box::new(Problem::bad(what, expected, text)),
        }
    }
}

/// A hint for a mistyped `word`: the nearest of `names`, or all of them: "the nearest is `ratio`", "its keys are min,
/// max".
fn hint(word: &str, all: &str, names: &[&str]) -> String {
    match near(word, names.iter().copied()) {
        Some(near) if near.contains(',') => format!("the nearest are {near}"),
        Some(near) => format!("the nearest is {near}"),
        None if names.is_empty() => format!("{all} none"),
        None => format!("{all} {}", names.join(", ")),
    }
}

impl Problem {
    /// An unknown name, with the names that exist.
    pub fn unknown(
        what: &'static str,
        name: &str,
        known: impl Iterator<Item = &'static str>,
    ) -> Self {
        Problem::UnknownName {
            what,
            name: name.to_owned(),
            known: hint(name, "known are", &known.collect::<Vec<_>>()),
        }
    }

    /// A value that `key` does not take.
    pub fn bad(key: &str, expected: &str, value: impl ToString) -> Self {
        Problem::BadValue {
            key: key.to_owned(),
            expected: expected.to_owned(),
            value: value.to_string(),
        }
    }
}

/// Asserts that something `what` ("a queue") may be added under `name` to those that are `known`.
///
/// # Panics
/// If the name is taken, or contains anything but lower-case letters, digits, hyphens and underscores.
pub fn assert_new(what: &str, name: &str, mut known: impl Iterator<Item = &'static str>) {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(&c);
    assert!(
        !name.is_empty() && name.bytes().all(allowed),
        "`{name}` is no name for {what}"
    );
    assert!(
        known.all(|known| known != name),
        "there is {what} `{name}` already"
    );
}

/// One kind of something that texts describe: of queues, for example, or of traffic.
#[derive(Clone, Debug)]
pub struct Kind<T: 'static> {
    /// The word before the colon.
    pub name: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// A complete example.
    pub example: &'static str,
    /// Its keys, for display.
    pub keys: fn() -> Vec<Key>,
    /// Makes the described thing from the text's keys.
    pub read: fn(&Given<'_>) -> Result<T, Problem>,
}

/// A [`Kind`], for display: what `verus list queues` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The word before the colon.
    pub name: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// A complete example.
    pub example: &'static str,
    /// Its keys.
    pub keys: Vec<Key>,
}

impl<T> Kind<T> {
    /// The thing that `text` describes, of one of `kinds`; `what` it is.
    ///
    /// # Errors
    /// If there is no such kind, or it has no such key, or a value is not of its key's kind.
    pub fn parse(what: &str, kinds: &[Kind<T>], text: &str) -> Result<T, SpecError> {
        Kind::read(kinds, text).map_err(|problem| SpecError {
            what: what.to_owned(),
            text: text.to_owned(),
            problem: Box::new(problem),
        })
    }

    fn read(kinds: &[Kind<T>], text: &str) -> Result<T, Problem> {
        let given = Given::parse(text)?;
        let kind = kinds.iter().find(|kind| kind.name == given.name);
        let names = kinds.iter().map(|kind| kind.name);
        let kind = kind.ok_or_else(|| Problem::unknown("kind", given.name, names))?;
        (kind.read)(&given)
    }

    /// `kinds`, for display.
    pub fn list(kinds: &[Kind<T>]) -> Vec<Shown> {
        let shown = |kind: &Kind<T>| Shown {
            name: kind.name,
            summary: kind.summary,
            example: kind.example,
            keys: (kind.keys)(),
        };
        kinds.iter().map(shown).collect()
    }
}

/// `rows`, for display, with the values of `config`.
pub fn shown<C>(rows: &[Row<C>], config: &C) -> Vec<Key> {
    rows.iter().map(|row| row.shown(config)).collect()
}

/// A text taken apart: its name, and its keys with their values, each key once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<'a> {
    /// The word before the colon.
    pub name: &'a str,
    /// The keys and values after the colon, in the order given.
    pub pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Given<'a> {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// If what follows the colon is not `key=value,…`, or a key is given twice.
    pub fn parse(text: &'a str) -> Result<Self, Problem> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (text.trim(), None),
        };
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(Problem::bad("each parameter", "key=value", part));
            };
            let (key, value) = (key.trim(), value.trim());
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(Problem::bad(key, "given once", value));
            }
            pairs.push((key, value));
        }
        Ok(Given { name, pairs })
    }

    /// The value of `key`, if it is given.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let pair = self.pairs.iter().find(|(other, _)| *other == key);
        pair.map(|&(_, value)| value)
    }

    /// Sets all given keys in `config`, presets first.
    ///
    /// # Errors
    /// Names the key that `rows` do not have, or the value that is not of its kind.
    pub fn apply<C>(&self, rows: &[Row<C>], config: &mut C) -> Result<(), Problem> {
        let mut settings = Vec::with_capacity(self.pairs.len());
        for &(key, value) in &self.pairs {
            let row = rows.iter().find(|row| row.key == key);
            let row = row.ok_or_else(|| Problem::UnknownKey {
                name: self.name.to_owned(),
                key: key.to_owned(),
                known: {
                    let keys: Vec<&str> = rows.iter().map(|row| row.key).collect();
                    hint(key, "its keys are", &keys)
                },
            })?;
            let unit = row.takes().unit();
            settings.push((row, Setting { key, value, unit }));
        }
        settings.sort_by_key(|(row, _)| !row.preset);
        for (row, setting) in settings {
            row.set(config, &setting)?;
        }
        Ok(())
    }
}

/// Completions of `text`, the beginning of a `NAME:key=value,…`, from these names and their keys: whole names,
/// `NAME:key=`, and the words that a key takes.
pub fn complete(text: &str, known: &[(&str, &[Key])]) -> Vec<String> {
    let Some((name, rest)) = text.split_once(':') else {
        let names = known.iter().map(|(name, _)| (*name).to_owned());
        return names.filter(|name| name.starts_with(text)).collect();
    };
    let Some((_, keys)) = known.iter().find(|(other, _)| *other == name) else {
        return Vec::new();
    };
    let (done, last) = rest.rsplit_once(',').unwrap_or(("", rest));
    let before = format!("{name}:{done}{}", if done.is_empty() { "" } else { "," });
    if let Some((key, value)) = last.split_once('=') {
        let listed = keys.iter().find(|other| other.key == key);
        let Some(Takes::OneOf(words)) = listed.map(|listed| &listed.takes) else {
            return Vec::new();
        };
        let words = words.iter().filter(|word| word.starts_with(value));
        return words.map(|word| format!("{before}{key}={word}")).collect();
    }
    keys.iter()
        .filter(|key| key.key.starts_with(last))
        .filter(|key| {
            !done
                .split(',')
                .any(|pair| pair.split('=').next() == Some(key.key))
        })
        .map(|key| format!("{before}{}=", key.key))
        .collect()
}

/// The key of each value in `text`, a `NAME:key=value,…`, and the value's range of bytes, with the
/// spaces around it.
pub fn places(text: &str) -> Vec<(&str, Range<usize>)> {
    let mut begin = text.find(':').map_or(text.len(), |colon| colon + 1);
    let mut places = Vec::new();
    for part in text[begin..].split(',') {
        let end = begin + part.len();
        if let Some((key, value)) = part.split_once('=') {
            places.push((key.trim(), end - value.len()..end));
        }
        begin = end + 1;
    }
    places
}

/// `text`, a `NAME[:key=value,…]`, with more `settings`: before its own (`first`), or after them.
pub fn with_settings(text: &str, settings: &str, first: bool) -> String {
    match text.split_once(':') {
        _ if settings.is_empty() => text.to_owned(),
        None => format!("{text}:{settings}"),
        Some((name, "")) => format!("{name}:{settings}"),
        Some((name, own)) if first => format!("{name}:{settings},{own}"),
        Some(_) => format!("{text},{settings}"),
    }
}

/// An expansion into more texts than this is refused: it is more likely a typing error than intended.
const MOST_EXPANDED: usize = 1000;

/// Expands `text` into one text for each value: `x:a=1,2` yields `x:a=1` and `x:a=2`. The range
/// `2..4` yields 2, 3 and 4, and `0..1..0.5` yields 0, 0.5 and 1. Several keys with several values
/// yield every combination; the last key changes fastest.
///
/// # Errors
/// If a range does not lead upwards from its first number, or there are too many texts.
pub fn expand(text: &str) -> Result<Vec<String>, Problem> {
    let Some((name, rest)) = text.split_once(':') else {
        return Ok(vec![text.to_owned()]);
    };
    // A part without an equals sign is one more value of the key before it.
    let mut keys: Vec<(&str, Vec<String>)> = Vec::new();
    for part in rest.split(',') {
        match (part.split_once('='), keys.last_mut()) {
            (Some((key, value)), _) => keys.push((key, values(key, value)?)),
            (None, Some((key, several))) if !part.trim().is_empty() => {
                several.extend(values(key, part)?);
            }
            // Not of this grammar: the parser says so.
            (None, _) => return Ok(vec![text.to_owned()]),
        }
    }
    let mut texts = vec![format!("{name}:")];
    for (at, (key, values)) in keys.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        if texts.len() * values.len() > MOST_EXPANDED {
            let problem = format!("stands for more than {MOST_EXPANDED} texts");
            return Err(Problem::Together(problem));
        }
        texts = texts
            .iter()
            .flat_map(|text| {
                values
                    .iter()
                    .map(move |value| format!("{text}{comma}{key}={value}"))
            })
            .collect();
    }
    Ok(texts)
}

/// The values of `FROM..TO` or `FROM..TO..STEP`; any other text is one value.
fn values(key: &str, value: &str) -> Result<Vec<String>, Problem> {
    let numbers: Option<Vec<f64>> = value
        .split("..")
        .map(|one| one.trim().parse().ok())
        .collect();
    let (from, to, step) = match numbers.as_deref() {
        Some(&[from, to]) => (from, to, 1.0),
        Some(&[from, to, step]) => (from, to, step),
        _ => return Ok(vec![value.to_owned()]),
    };
    // A little beyond the end, which a sum of decimal fractions may miss.
    let last = ((to - from) / step + 1e-9).floor();
    if !(last.is_finite() && step > 0.0 && last >= 0.0) {
        let expected = "FROM..TO or FROM..TO..STEP that leads upwards";
        return Err(Problem::bad(key, expected, value));
    }
    if last >= MOST_EXPANDED as f64 {
        let expected = format!("a range of at most {MOST_EXPANDED} values");
        return Err(Problem::bad(key, &expected, value));
    }
    // Rounded to what can have been meant: 0.1 + 2 · 0.1 is 0.3.
    let digits = |number: f64| (number * 1e9).round() / 1e9;
    let each = (0..=last as u32).map(|at| digits(from + f64::from(at) * step).to_string());
    Ok(each.collect())
}

/// One key and value of a text.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    key: &'a str,
    value: &'a str,
    unit: Unit,
}

impl<'a> Setting<'a> {
    /// The value as given.
    pub fn text(&self) -> &'a str {
        self.value
    }

    /// The error that the value must be something else.
    pub fn bad(&self, expected: &str) -> Problem {
        Problem::bad(self.key, expected, self.value)
    }

    /// A finite number, in the unit of the key. `expected` describes the values that the key takes.
    fn quantity(&self, expected: &str) -> Result<f64, Problem> {
        quantity::read(self.value, self.unit).map_err(|wrong| match wrong {
            quantity::Wrong::Number => self.bad(expected),
            quantity::Wrong::Unit(problem) => Problem::BadUnit {
                key: self.key.to_owned(),
                value: self.value.to_owned(),
                problem,
            },
        })
    }

    /// A finite number.
    ///
    /// # Errors
    /// If it is none.
    pub fn number(&self) -> Result<f64, Problem> {
        self.quantity("a number")
    }

    /// A finite number within a range.
    ///
    /// # Errors
    /// If it is none.
    pub fn within(&self, range: &Within) -> Result<f64, Problem> {
        let number = self.quantity(range.words)?;
        let valid = Some(number).filter(|&n| (range.valid)(n));
        valid.ok_or_else(|| self.bad(range.words))
    }

    /// A whole number above 0.
    ///
    /// # Errors
    /// If it is none.
    pub fn whole(&self) -> Result<u64, Problem> {
        const WORDS: &str = "a whole number above 0";
        /// Up to here a double represents every whole number exactly.
        const LARGEST: f64 = (1u64 << 53) as f64;
        if let Ok(number) = self.value.parse::<u64>() {
            return Some(number)
                .filter(|&n| n > 0)
                .ok_or_else(|| self.bad(WORDS));
        }
        let number = self.quantity(WORDS)?;
        if number.fract() == 0.0 && number > 0.0 && number <= LARGEST {
            Ok(number as u64)
        } else {
            Err(self.bad(WORDS))
        }
    }

    /// A time in ms, of an hour at the most.
    ///
    /// # Errors
    /// If it is none.
    pub fn millis<D: From<Duration>>(&self) -> Result<D, Problem> {
        let millis = self.number()?;
        if (0.0..=3.6e6).contains(&millis) {
            Ok(Duration::from_nanos((millis * NANOS_PER_MILLI + 0.5) as u64).into())
        } else {
            Err(self.bad("between 0 and 3600000 ms"))
        }
    }

    /// One of `words`.
    ///
    /// # Errors
    /// If the value is another word.
    pub fn word<T: Copy>(&self, words: Words<T>) -> Result<T, Problem> {
        let word = words.iter().find(|(word, _)| *word == self.value);
        word.map(|&(_, value)| value).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
            self.bad(&format!("one of {}", words.join(", ")))
        })
    }
}

/// The words that a key takes, and the value of each.
pub type Words<T> = &'static [(&'static str, T)];

/// The words for yes and no.
pub const FLAG: Words<bool> = &[("yes", true), ("no", false)];

/// The word for `value`; "none" if there is none.
pub fn word_for<T: PartialEq>(words: Words<T>, value: &T) -> String {
    let entry = words.iter().find(|(_, other)| other == value);
    entry.map_or("none", |&(word, _)| word).to_owned()
}

/// A key of the configuration `C`. A row is made from a [`Field`] with its range, by [`words!`] for
/// words, or by [`Row::other`] for anything else.
pub struct Row<C: 'static> {
    key: &'static str,
    meaning: &'static str,
    /// Whether it is a preset, whose values other keys then change.
    preset: bool,
    value: Value<C>,
}

/// The values that a key takes, and how the configuration's value is read and written.
enum Value<C: 'static> {
    Number {
        unit: &'static str,
        within: Option<Within>,
        field: Field<C, f64>,
    },
    Whole {
        unit: &'static str,
        field: Field<C, u64>,
    },
    WholeOr {
        none: &'static str,
        unit: &'static str,
        field: Field<C, Option<u64>>,
    },
    Millis(Field<C, Duration>),
    Flag(Field<C, bool>),
    Other {
        takes: fn() -> Takes,
        get: fn(&C) -> String,
        set: Set<C>,
    },
}

type Set<C> = fn(&mut C, &Setting<'_>) -> Result<(), Problem>;

/// A field of the configuration `C`, and the key that sets it.
pub struct Field<C, T> {
    key: &'static str,
    get: fn(&C) -> T,
    set: fn(&mut C, T),
}

impl<C, T> Field<C, T> {
    /// A field from its getter and setter; [`field!`] derives both from a plain struct field.
    pub const fn new(key: &'static str, get: fn(&C) -> T, set: fn(&mut C, T)) -> Self {
        Field { key, get, set }
    }
}

/// The [`Field`] of this name of the configuration `Self`, set by the key of the same name or of another:
/// `field!(ratio)`, `field!(recovery.tail_probe)`, `field!(epoch, "epoch_ms")`.
#[macro_export]
macro_rules! field {
    ($field:ident) => {
        $crate::spec::field!($field, stringify!($field))
    };
    ($outer:ident . $($rest:ident).+) => {
        $crate::spec::field!(@last $($rest).+, $outer.$($rest).+)
    };
    (@last $last:ident, $($path:ident).+) => {
        $crate::spec::field!($($path).+, stringify!($last))
    };
    (@last $first:ident . $($rest:ident).+, $($path:ident).+) => {
        $crate::spec::field!(@last $($rest).+, $($path).+)
    };
    ($($path:ident).+, $key:expr) => {
        $crate::spec::Field::new($key, |c: &Self| c.$($path).+, |c: &mut Self, v| c.$($path).+ = v)
    };
}

/// The [`Row`] of a field of `Self` that takes one of [`Words`], set by the key of the same name or of another:
/// `words!(fit, FITS, "what it does")`, `words!(fit, "curve", FITS, "what it does")`.
#[macro_export]
macro_rules! words {
    ($field:ident, $words:expr, $meaning:expr) => {
        $crate::spec::words!($field, stringify!($field), $words, $meaning)
    };
    ($($path:ident).+, $key:expr, $words:expr, $meaning:expr) => {
        $crate::spec::Row::other(
            $key,
            || $crate::spec::Takes::one_of($words),
            $meaning,
            |c: &Self| $crate::spec::word_for($words, &c.$($path).+),
            |c: &mut Self, setting| setting.word($words).map(|v| c.$($path).+ = v),
        )
    };
}

/// The [`Field`] of this name, as [`field!`] makes it, whose type becomes a [`Duration`] and comes from one: a time.
#[macro_export]
macro_rules! time {
    ($($path:ident).+, $key:expr) => {
        $crate::spec::Field::<Self, ::std::time::Duration>::new(
            $key,
            |c: &Self| c.$($path).+.into(),
            |c: &mut Self, v| c.$($path).+ = v.into(),
        )
    };
}

pub use crate::{field, time, words};

impl<C> Field<C, f64> {
    /// A number, in `unit`.
    pub const fn number(self, unit: &'static str, meaning: &'static str) -> Row<C> {
        self.any(unit, meaning, None)
    }

    /// A number within a range, in `unit`.
    pub const fn within(self, unit: &'static str, meaning: &'static str, range: Within) -> Row<C> {
        self.any(unit, meaning, Some(range))
    }

    const fn any(
        self,
        unit: &'static str,
        meaning: &'static str,
        within: Option<Within>,
    ) -> Row<C> {
        let key = self.key;
        let field = self;
        Row::new(
            key,
            meaning,
            Value::Number {
                unit,
                within,
                field,
            },
        )
    }
}

impl<C> Field<C, u64> {
    /// A whole number above 0, in `unit`.
    pub const fn whole(self, unit: &'static str, meaning: &'static str) -> Row<C> {
        Row::new(self.key, meaning, Value::Whole { unit, field: self })
    }
}

impl<C> Field<C, Option<u64>> {
    /// A whole number above 0, in `unit`; `none` is displayed where there is no value.
    pub const fn whole_or(
        self,
        none: &'static str,
        unit: &'static str,
        meaning: &'static str,
    ) -> Row<C> {
        let key = self.key;
        let field = self;
        Row::new(key, meaning, Value::WholeOr { none, unit, field })
    }
}

impl<C> Field<C, Duration> {
    /// A time, in ms.
    pub const fn millis(self, meaning: &'static str) -> Row<C> {
        Row::new(self.key, meaning, Value::Millis(self))
    }
}

impl<C> Field<C, bool> {
    /// Yes or no.
    pub const fn flag(self, meaning: &'static str) -> Row<C> {
        Row::new(self.key, meaning, Value::Flag(self))
    }
}

impl<C> Row<C> {
    const fn new(key: &'static str, meaning: &'static str, value: Value<C>) -> Self {
        Row {
            key,
            meaning,
            preset: false,
            value,
        }
    }

    /// Anything else: words that set several fields ([`Takes::one_of`], [`word_for`], [`Setting::word`]), or a value with
    /// a word for none.
    pub const fn other(
        key: &'static str,
        takes: fn() -> Takes,
        meaning: &'static str,
        get: fn(&C) -> String,
        set: Set<C>,
    ) -> Self {
        Row::new(key, meaning, Value::Other { takes, get, set })
    }

    /// Makes this key a preset: it is applied before all others, at any position in the text.
    pub const fn first(mut self) -> Self {
        self.preset = true;
        self
    }

    /// The values that it takes.
    fn takes(&self) -> Takes {
        match &self.value {
            Value::Number { unit, .. }
            | Value::Whole { unit, .. }
            | Value::WholeOr { unit, .. } => Takes::Number(unit),
            Value::Millis(_) => Takes::Number("ms"),
            Value::Flag(_) => Takes::one_of(FLAG),
            Value::Other { takes, .. } => takes(),
        }
    }

    fn set(&self, config: &mut C, setting: &Setting<'_>) -> Result<(), Problem> {
        match &self.value {
            Value::Number { within, field, .. } => match within {
                Some(range) => (field.set)(config, setting.within(range)?),
                None => (field.set)(config, setting.number()?),
            },
            Value::Whole { field, .. } => (field.set)(config, setting.whole()?),
            Value::WholeOr { field, .. } => (field.set)(config, Some(setting.whole()?)),
            Value::Millis(field) => (field.set)(config, setting.millis()?),
            Value::Flag(field) => (field.set)(config, setting.word(FLAG)?),
            Value::Other { set, .. } => set(config, setting)?,
        }
        Ok(())
    }

    /// Whether the value that `config` has lies in the range of [`Field::within`].
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, config: &C) -> Result<(), OutOfRange> {
        match &self.value {
            Value::Number {
                within: Some(range),
                field,
                ..
            } => {
                let value = (field.get)(config);
                OutOfRange::unless((range.valid)(value), self.key, range.words, value)
            }
            _ => Ok(()),
        }
    }

    /// The row for display, with the value of `config`.
    pub fn shown(&self, config: &C) -> Key {
        let default = match &self.value {
            Value::Number { field, .. } => (field.get)(config).to_string(),
            Value::Whole { field, .. } => (field.get)(config).to_string(),
            Value::WholeOr { none, field, .. } => {
                (field.get)(config).map_or((*none).to_owned(), |value| value.to_string())
            }
            Value::Millis(field) => {
                ((field.get)(config).as_nanos() as f64 / NANOS_PER_MILLI).to_string()
            }
            Value::Flag(field) => word_for(FLAG, &(field.get)(config)),
            Value::Other { get, .. } => get(config),
        };
        Key {
            key: self.key,
            takes: self.takes(),
            default,
            meaning: self.meaning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Config {
        share: f64,
        wait: Duration,
        on: bool,
        kind: u8,
    }

    const KINDS: Words<u8> = &[("small", 0), ("middle", 1), ("large", 2)];

    impl Config {
        const ROWS: &'static [Row<Self>] = &[
            field!(share).number("%", "a share"),
            field!(wait, "wait_ms").millis("a wait"),
            field!(on).flag("a switch"),
            Row::<Config>::other(
                "kind",
                || Takes::one_of(KINDS),
                "sets the share, too",
                |c| word_for(KINDS, &c.kind),
                |c, s| {
                    c.kind = s.word(KINDS)?;
                    c.share = f64::from(c.kind);
                    Ok(())
                },
            )
            .first(),
        ];
    }

    fn read(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let given = Given::parse(text).map_err(|problem| problem.to_string())?;
        let applied = given.apply(Config::ROWS, &mut config);
        applied
            .map(|()| config)
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn each_kind_of_value_is_read_and_a_preset_comes_first() {
        let expected = Config {
            share: 7.5,
            wait: Duration::from_millis(20),
            on: true,
            kind: 2,
        };
        assert_eq!(
            read("x:share=7.5, wait_ms=20,on=yes,kind=large").as_ref(),
            Ok(&expected)
        );
        assert_eq!(
            read("x:share=7.5,wait_ms=0.02s,on=yes,kind=large"),
            Ok(expected)
        );
        assert_eq!(read("x"), Ok(Config::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = "
            x:shore=1 => `x` has no key `shore`; the nearest is `share`
            x:colour=1 => `x` has no key `colour`; its keys are share, wait_ms, on, kind
            x:wait_ms=20kB => wait_ms=20kB: `kB` is none of its units (us, µs, ms, s, sec, m, min, h)
            x:share => each parameter must be key=value, not `share`
            x: => each parameter must be key=value, not ``
            x:on=yes,on=no => on must be given once, not `no`
            x:share=inf => share must be a number, not `inf`
            x:wait_ms=-1 => wait_ms must be between 0 and 3600000 ms, not `-1`
            x:kind=huge => kind must be one of small, middle, large, not `huge`";
        for case in cases.lines().skip(1) {
            let (text, words) = case.trim().split_once(" => ").expect("a case");
            assert_eq!(read(text), Err(words.to_owned()));
        }
    }

    #[test]
    fn a_beginning_goes_on_with_names_then_keys_then_words() {
        let keys = shown(Config::ROWS, &Config::default());
        let kinds = [("small", &keys[..]), ("smart", &[])];
        for (text, expected) in [
            ("sm", &["small", "smart"][..]),
            ("small:w", &["small:wait_ms="]),
            (
                "small:on=yes,",
                &[
                    "small:on=yes,share=",
                    "small:on=yes,wait_ms=",
                    "small:on=yes,kind=",
                ],
            ),
            ("small:kind=m", &["small:kind=middle"]),
            ("small:wait_ms=", &[]),
            ("large:", &[]),
        ] {
            assert_eq!(complete(text, &kinds), expected, "{text}");
        }
    }

    #[test]
    fn values_stand_where_they_were_typed() {
        let text = " x : a = ä , b=2,c";
        let places = places(text);
        let values: Vec<_> = places
            .iter()
            .map(|(key, place)| (*key, &text[place.clone()]))
            .collect();
        assert_eq!(values, [("a", " ä "), ("b", "2")]);
        assert_eq!(super::places("x"), []);
    }

    #[test]
    fn settings_are_added_before_or_after_those_of_a_text() {
        for (text, first, expected) in [
            ("x", false, "x:k=1"),
            ("x:", true, "x:k=1"),
            ("x:a=2", false, "x:a=2,k=1"),
            ("x:a=2", true, "x:k=1,a=2"),
        ] {
            assert_eq!(with_settings(text, "k=1", first), expected);
        }
        assert_eq!(with_settings("x:a=2", "", true), "x:a=2");
    }

    #[test]
    fn several_values_of_a_key_are_several_texts() {
        for (text, expected) in [
            ("x", &["x"][..]),
            ("x:a=1,b=2", &["x:a=1,b=2"]),
            ("x:a=2..4", &["x:a=2", "x:a=3", "x:a=4"]),
            ("x:a=2,4,6", &["x:a=2", "x:a=4", "x:a=6"]),
            ("x:a=0.1..0.3..0.1", &["x:a=0.1", "x:a=0.2", "x:a=0.3"]),
            (
                "x:a=1,2,b=on,off",
                &["x:a=1,b=on", "x:a=1,b=off", "x:a=2,b=on", "x:a=2,b=off"],
            ),
            ("x:file=../one.model", &["x:file=../one.model"]),
            ("x:", &["x:"]),
            ("x:a", &["x:a"]),
        ] {
            assert_eq!(expand(text).expect(text), expected, "{text}");
        }
        for (text, words) in [
            ("x:a=4..2", "leads upwards"),
            ("x:a=1..2..0", "leads upwards"),
            ("x:a=1..1e9", "at most 1000 values"),
            ("x:a=1..100,b=1..100", "more than 1000"),
        ] {
            let message = expand(text).expect_err(text).to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn a_row_is_shown_with_the_configurations_value() {
        let keys: Vec<_> = Config::ROWS
            .iter()
            .map(|row| row.shown(&Config::default()))
            .collect();
        let shown = |at: usize| (keys[at].takes.to_string(), keys[at].default.clone());
        let expected = |takes: &str, default: &str| (takes.to_owned(), default.to_owned());
        assert_eq!(shown(0), expected("%", "0"));
        assert_eq!(shown(1), expected("ms", "0"));
        assert_eq!(shown(2), expected("yes or no", "no"));
        assert_eq!(shown(3), expected("small, middle or large", "small"));
    }
}
