//! The channel that one name denotes: in this order an existing file, `rate:MBPS`, a built-in
//! synthetic channel, or a public recording.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use verus_core::{Duration, Rate};
use verus_words::near::near;
use verus_words::quantity::{self, Unit};

use crate::cache::CACHE;
use crate::error::{Error, FASTEST_MBPS};
use crate::files;
use crate::generate;
use crate::rates;
use crate::recordings::{Recording, recording, recordings};
use crate::trace::Trace;

/// A built-in channel repeats after this long: no run needs more, and it bounds memory.
pub const LONGEST_BUILT_IN: Duration = Duration::from_secs(3600);

/// The channel of one name.
#[derive(Clone, Debug)]
pub enum Named {
    /// A file.
    File(PathBuf),
    /// A constant rate.
    Rate(Rate),
    /// A synthetic channel.
    BuiltIn(&'static generate::BuiltInChannel),
    /// A public recording.
    Recording {
        /// The recording.
        recording: &'static Recording,
        /// Where it is, or would be, kept; `None` where there is no place for a cache.
        path: Option<PathBuf>,
    },
}

impl Named {
    /// Looks up `text`; recordings are kept in `cache`.
    ///
    /// # Errors
    /// If it names nothing; the message lists near matches.
    pub fn find(text: &str, cache: Option<&Path>) -> Result<Named, Error> {
        Named::look_up(text, cache).unwrap_or_else(|| Err(unknown(text)))
    }

    /// As [`find`](Self::find), but nothing where no channel has that name: the near matches of an
    /// error take milliseconds.
    pub(crate) fn look_up(text: &str, cache: Option<&Path>) -> Option<Result<Named, Error>> {
        let path = Path::new(text);
        if path.exists() && !path.is_dir() {
            return Some(Ok(Named::File(path.to_owned())));
        }
        if let Some(value) = text.strip_prefix("rate:") {
            return Some(rate(text, value).map(Named::Rate));
        }
        if let Some(channel) = generate::describe(text) {
            return Some(Ok(Named::BuiltIn(channel)));
        }
        if let Some(recording) = recording(text) {
            let path = cache.map(|cache| recording.path_in(cache));
            return Some(Ok(Named::Recording { recording, path }));
        }
        // No other kind has this name: reading it reports the mistake.
        path.is_dir().then(|| Ok(Named::File(path.to_owned())))
    }

    /// `file`, `rate`, `built-in`, `cached` or, for a recording that has not been fetched, `recording`.
    pub fn kind(&self) -> &'static str {
        match self {
            Named::File(_) => "file",
            Named::Rate(_) => "rate",
            Named::BuiltIn(_) => "built-in",
            Named::Recording {
                path: Some(path), ..
            } if path.is_file() => "cached",
            Named::Recording { .. } => "recording",
        }
    }

    /// The file that it is read from.
    ///
    /// # Errors
    /// If the file cannot be opened, or a recording has not been fetched.
    pub fn file(&self) -> Result<Option<&Path>, Error> {
        match self {
            Named::File(path) => {
                // Reading it all can wait for the run, but reports why it cannot be opened.
                if files::open(path).is_err() {
                    Trace::read(path)?;
                }
                Ok(Some(path))
            }
            Named::Rate(_) | Named::BuiltIn(_) => Ok(None),
            Named::Recording { recording, path } => {
                let path = path.as_deref().filter(|path| path.is_file());
                let name = recording.name.to_owned();
                path.map(Some).ok_or(Error::NotFetched { name })
            }
        }
    }

    /// The trace, read or made; rates have none.
    pub(crate) fn trace(&self, seed: u64, duration: Duration) -> Result<Arc<Trace>, Error> {
        match self {
            Named::Rate(_) => unreachable!("a rate is refused where a trace is needed"),
            Named::File(path) => {
                CACHE.read(path, |name, bytes| match files::is_rate_series(path) {
                    true => rates::parse(name, bytes),
                    false => Trace::parse(name, bytes),
                })
            }
            Named::BuiltIn(channel) => {
                Ok(CACHE.trace(channel, seed, duration.min(LONGEST_BUILT_IN)))
            }
            Named::Recording { recording, .. } => {
                let path = self.file()?.expect("a recording is read from a file");
                CACHE.read(path, |name, bytes| {
                    let trace = Trace::parse(name, bytes)?.named(recording.name);
                    recording.check(trace.sha256())?;
                    Ok(trace)
                })
            }
        }
    }
}

fn rate(text: &str, value: &str) -> Result<Rate, Error> {
    let valid = |mbps: &f64| *mbps > 0.0 && *mbps <= FASTEST_MBPS;
    let rate = quantity::read(value, Unit::Mbps)
        .ok()
        .filter(valid)
        .map(Rate::from_mbps);
    rate.filter(|rate| rate.as_bps() > 0)
        .ok_or_else(|| Error::BadRate {
            text: text.to_owned(),
            value: value.to_owned(),
        })
}

fn unknown(text: &str) -> Error {
    let names = generate::names().chain(recordings().iter().flat_map(|r| [r.name, r.short_name()]));
    let hint = match near(text, names) {
        _ if quantity::read(text, Unit::Mbps).is_ok() => {
            format!("there is no such file; a constant rate is `rate:{text}`")
        }
        Some(names) => format!("there is no such file, and the nearest names are {names}"),
        None => "there is no such file, and `verus list channels` has no such name".to_owned(),
    };
    Error::UnknownChannel {
        text: text.to_owned(),
        hint,
    }
}
