//! Channels by name: one text names any channel.
//!
//! It is a [name](Named) as a whole, or several of these put together ([`Expression`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use verus_core::{Bytes, Duration, Rate};

use crate::error::Error;
use crate::expression::{self, Expression};
use crate::generate;
use crate::named::Named;
use crate::path::link::{Service, WhenOver};
use crate::recordings::{cache_dir, recordings};
use crate::schedule::Schedule;
use crate::trace::Trace;

/// A channel, ready to serve a link.
#[derive(Clone, Debug)]
pub enum Channel {
    /// Opportunities to deliver.
    Trace(Arc<Trace>),
    /// A constant rate.
    Rate(Rate),
}

impl Channel {
    /// The trace, if it is one.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        match self {
            Channel::Trace(trace) => Some(trace),
            Channel::Rate(_) => None,
        }
    }

    /// The service of a link: each opportunity of a trace carries `opportunity`, and `end` follows
    /// the last.
    pub fn service(&self, opportunity: Bytes, end: WhenOver) -> Service {
        match self {
            Channel::Trace(trace) => Service::Trace {
                trace: Arc::clone(trace),
                opportunity,
                end,
            },
            Channel::Rate(rate) => Service::Rate(Schedule::constant(*rate)),
        }
    }
}

/// The names that `text` may be the beginning of: built-in channels, recordings, and a constant rate.
pub fn complete(text: &str) -> Vec<String> {
    let recordings = recordings().iter().map(|recording| recording.name);
    generate::names()
        .chain(recordings)
        .chain(std::iter::once("rate:"))
        .filter(|name| name.starts_with(text))
        .map(str::to_owned)
        .collect()
}

/// A channel that a text names.
#[derive(Clone, Debug)]
pub enum Found {
    /// The channel of one name.
    Named(Named),
    /// Stretches of these, joined.
    Expression(Expression),
}

impl Found {
    /// As [`Named::kind`]; for joined stretches, [`Expression::kind`].
    pub fn kind(&self) -> &'static str {
        match self {
            Found::Named(named) => named.kind(),
            Found::Expression(expression) => expression.kind(),
        }
    }

    /// The files that the channel is read from, and where `text`, which names it, has the name of each.
    ///
    /// # Errors
    /// As [`Named::file`].
    pub fn files(&self, text: &str) -> Result<Vec<(Range<usize>, PathBuf)>, Error> {
        match self {
            Found::Named(named) => {
                let file = named.file()?.map(|path| (0..text.len(), path.to_owned()));
                Ok(file.into_iter().collect())
            }
            Found::Expression(expression) => expression.files(),
        }
    }

    /// Reads or makes the channel. `seed` and `duration` are for built-in channels, which are made anew for each
    /// seed, for as long as the run lasts (at most [`LONGEST_BUILT_IN`](crate::named::LONGEST_BUILT_IN), after which they
    /// repeat).
    ///
    /// # Errors
    /// If a file cannot be read or is no trace, or a recording has not been fetched or is damaged.
    pub fn open(&self, seed: u64, duration: Duration) -> Result<Channel, Error> {
        let trace = match self {
            Found::Named(Named::Rate(rate)) => return Ok(Channel::Rate(*rate)),
            Found::Named(named) => named.trace(seed, duration)?,
            Found::Expression(expression) => expression.open(seed, duration)?,
        };
        Ok(Channel::Trace(trace))
    }
}

/// The channel that `text` names, read or made; see [`Found::open`]. Recordings are looked for in [`cache_dir`].
///
/// # Errors
/// If no channel has that name, or it cannot be read.
pub fn open(text: &str, seed: u64, duration: Duration) -> Result<Channel, Error> {
    find(text)?.open(seed, duration)
}

/// Looks up `text`; recordings are kept in [`cache_dir`].
///
/// # Errors
/// If it names nothing; the message lists near matches.
pub fn find(text: &str) -> Result<Found, Error> {
    find_in(text, cache_dir().as_deref())
}

/// Looks up `text`; recordings are kept in `cache`.
///
/// # Errors
/// If it names nothing; the message lists near matches.
pub fn find_in(text: &str, cache: Option<&Path>) -> Result<Found, Error> {
    match Named::look_up(text, cache) {
        Some(Ok(named)) => Ok(Found::Named(named)),
        _ if expression::has_signs(text) => Expression::parse(text, cache).map(Found::Expression),
        _ => Named::find(text, cache).map(Found::Named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use crate::recordings::select;

    fn kind(text: &str) -> Result<&'static str, String> {
        find_in(text, None)
            .map(|found| found.kind())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_is_a_file_then_a_rate_then_built_in_then_a_recording() {
        assert_eq!(kind("Cargo.toml"), Ok("file"));
        assert_eq!(kind("rate:12"), Ok("rate"));
        assert_eq!(kind(generate::names().next().unwrap()), Ok("built-in"));
        assert_eq!(kind("city_drive_2min"), Ok("recording"));
        assert_eq!(kind("cs244-2017/city_drive_2min"), Ok("recording"));
        let error = find_in("city_drive_2min", None)
            .unwrap()
            .open(1, Duration::from_secs(1))
            .unwrap_err();
        let fetch = "`verus trace fetch cs244-2017/city_drive_2min` brings it";
        assert!(error.to_string().contains(fetch), "{error}");
    }

    #[test]
    fn an_unknown_name_is_met_with_near_ones() {
        let error = kind("city_drive_2mn").unwrap_err();
        assert!(
            error.starts_with("unknown channel `city_drive_2mn`: "),
            "{error}"
        );
        assert!(error.contains("`city_drive_2min`"), "{error}");
        let error = kind("qqqqqqqq").unwrap_err();
        assert!(error.contains("`verus list channels`"), "{error}");
        let error = select("cs24").unwrap_err().to_string();
        assert!(error.contains("`cs244`"), "{error}");
    }

    #[test]
    fn rates_out_of_range_are_refused() {
        for value in ["", "0", "-1", "NaN", "inf", "fast", "1e-9", "1e30"] {
            let error = kind(&format!("rate:{value}")).unwrap_err();
            assert!(
                error.contains(&format!("`{value}` is not a rate")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_built_in_channel_is_a_trace_as_long_as_the_run() {
        let name = generate::names().next().unwrap();
        let open = |seed| open(name, seed, Duration::from_secs(20)).unwrap();
        let (one, same, other) = (open(1), open(1), open(2));
        let trace = one.trace().unwrap();
        assert_eq!(trace.name(), name);
        assert!(
            (19_000..=20_000).contains(&trace.period_ms()),
            "{} ms",
            trace.period_ms()
        );
        assert_eq!(one.trace(), same.trace());
        assert_ne!(one.trace(), other.trace());
    }
}
