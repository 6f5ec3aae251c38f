//! Texts of the form `KIND:key=value,key=value`: queues here, traffic in the simulator.
//!
//! What there is, with its keys, is a table of [`Kind`]s; [`Settings`] holds a text against it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// One kind of a thing, for people: what `verus list queues` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// The word before the colon.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// A complete example.
    pub example: &'static str,
    /// Its settings.
    pub keys: &'static [Key],
}

/// One setting of a [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The word before the equals sign.
    pub key: &'static str,
    /// Its unit, or the words it takes.
    pub unit: &'static str,
    /// Its value when not given.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
}

/// A [`Key`] in a row.
pub const fn key(
    key: &'static str,
    unit: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key {
        key,
        unit,
        default,
        meaning,
    }
}

/// What is wrong with such a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecProblem {
    /// A word that is no kind.
    #[error("unknown kind `{kind}`; the kinds are {valid}")]
    UnknownKind {
        /// The word.
        kind: String,
        /// All kinds.
        valid: String,
    },
    /// A key that the kind does not have.
    #[error("`{kind}` has no key `{key}`; it has {valid}")]
    UnknownKey {
        /// The kind.
        kind: &'static str,
        /// The word.
        key: String,
        /// All keys of the kind.
        valid: String,
    },
    /// A setting without an equals sign.
    #[error("`{setting}` is not of the form key=value")]
    NotASetting {
        /// The setting, as given.
        setting: String,
    },
    /// A key given more than once.
    #[error("`{key}` is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value out of range, or of the wrong kind.
    #[error("{key}={value}: must be {must}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// Its value, as given.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Whole(&'static str),
}

/// The settings of one kind, as text.
pub struct Settings<'a> {
    given: Vec<(&'a str, &'a str)>,
}

const WHOLE: &str = "a whole number above 0";

impl<'a> Settings<'a> {
    /// The kind that `text` is of, and what it sets.
    ///
    /// # Errors
    /// If there is no such kind, or it has no such key, or one is given twice.
    pub fn parse(
        kinds: &'static [Kind],
        text: &'a str,
    ) -> Result<(&'static Kind, Self), SpecProblem> {
        let (word, settings) = match text.split_once(':') {
            Some((word, settings)) => (word, Some(settings)),
            None => (text, None),
        };
        let kind = kinds.iter().find(|kind| kind.name == word);
        let kind = kind.ok_or_else(|| SpecProblem::UnknownKind {
            kind: word.to_owned(),
            valid: list(kinds.iter().map(|kind| kind.name)),
        })?;
        Ok((kind, Settings::new(kind, settings)?))
    }

    fn new(kind: &'static Kind, text: Option<&'a str>) -> Result<Self, SpecProblem> {
        let mut given: Vec<(&str, &str)> = Vec::new();
        for setting in text.into_iter().flat_map(|text| text.split(',')) {
            let not_a_setting = || SpecProblem::NotASetting {
                setting: setting.to_owned(),
            };
            let (key, value) = setting.split_once('=').ok_or_else(not_a_setting)?;
            if !kind.keys.iter().any(|known| known.key == key) {
                let valid = match kind.keys {
                    [] => "none".to_owned(),
                    keys => list(keys.iter().map(|key| key.key)),
                };
                return Err(SpecProblem::UnknownKey {
                    kind: kind.name,
                    key: key.to_owned(),
                    valid,
                });
            }
            if given.iter().any(|(other, _)| *other == key) {
                return Err(SpecProblem::Twice {
                    key: key.to_owned(),
                });
            }
            given.push((key, value));
        }
        Ok(Settings { given })
    }

    /// What the text gives for `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.given
            .iter()
            .find(|(other, _)| *other == key)
            .map(|(_, value)| *value)
    }

    /// The value of `key`, if it is given.
    ///
    /// # Errors
    /// If it is not `valid`, which is `must` in words.
    pub fn read<T: FromStr>(
        &self,
        key: &'static str,
        must: &'static str,
        valid: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, SpecProblem> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let bad = || SpecProblem::BadValue {
            key,
            value: text.to_owned(),
            must,
        };
        text.parse().ok().filter(valid).map(Some).ok_or_else(bad)
    }

    /// The whole number above 0 that is `key`, if it is given.
    ///
    /// # Errors
    /// If it is something else.
    pub fn whole(&self, key: &'static str) -> Result<Option<u64>, SpecProblem> {
        self.read(key, WHOLE, |value| *value > 0)
    }

    /// That `key` must be something else than it is, or than `fallback` where it is not given.
    pub fn bad(
        &self,
        key: &'static str,
        fallback: impl fmt::Display,
        must: &'static str,
    ) -> SpecProblem {
        let value = self
            .get(key)
            .map_or_else(|| fallback.to_string(), str::to_owned);
        SpecProblem::BadValue { key, value, must }
    }
}

fn list(words: impl Iterator<Item = &'static str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
