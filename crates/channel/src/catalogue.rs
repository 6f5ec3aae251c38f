//! Channels by name.
//!
//! One text names any channel. In this order it is: an existing file; `rate:MBPS`; a built-in synthetic channel; a public
//! recording, which is fetched once and then kept in a cache; several of these put together (`expression`). The
//! recordings are data (`recordings.tsv`): where each is published, what its content hashes to, under which licence, and
//! which paper to cite.
//!
//! Downloading is not done here: this module says from where, to where, and whether what came is right.

use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use sha2::{Digest, Sha256};
use verus_core::{Bytes, Duration, Rate};

use crate::error::Error;
use crate::expression::{self, Expression};
use crate::generate;
use crate::path::link::{Service, WhenOver};
use crate::schedule::Schedule;
use crate::trace::{Trace, hex};

/// A built-in channel repeats after this long: no run needs more, and it bounds memory.
pub const LONGEST_BUILT_IN: Duration = Duration::from_secs(3600);

/// Where a file of a public repository is; `VERUS_TRACE_URL` in the environment overrides it.
const URL: &str = "https://raw.githubusercontent.com/{repository}/{commit}/{path}";

/// The fastest constant rate, in Mbit/s.
const FASTEST_MBPS: f64 = 10_000_000.0;

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

    /// What serves a link: each opportunity of a trace carries `opportunity`, and `end` follows the last.
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

/// What a text names.
#[derive(Clone, Debug)]
pub enum Found {
    /// A file.
    File(PathBuf),
    /// A constant rate.
    Rate(Rate),
    /// A synthetic channel.
    BuiltIn(&'static generate::Channel),
    /// A public recording.
    Recording {
        /// Which.
        recording: &'static Recording,
        /// Where it is, or would be, kept; `None` where there is no place for a cache.
        path: Option<PathBuf>,
    },
    /// Stretches of these, joined.
    Expression(Expression),
}

impl Found {
    /// `file`, `rate`, `built-in`, `cached` or, for a recording that has not been fetched, `recording`; for what is put
    /// together from others see [`Expression::kind`].
    pub fn kind(&self) -> &'static str {
        match self {
            Found::File(_) => "file",
            Found::Rate(_) => "rate",
            Found::BuiltIn(_) => "built-in",
            Found::Recording {
                path: Some(path), ..
            } if path.is_file() => "cached",
            Found::Recording { .. } => "recording",
            Found::Expression(expression) => expression.kind(),
        }
    }

    /// Reads or makes the channel. `seed` and `duration` are for built-in channels, which are made anew for each
    /// seed, for as long as the run lasts (at most [`LONGEST_BUILT_IN`], after which they repeat).
    ///
    /// # Errors
    /// If a file cannot be read or is no trace, or a recording has not been fetched or is damaged.
    pub fn open(&self, seed: u64, duration: Duration) -> Result<Channel, Error> {
        match self {
            Found::Rate(rate) => Ok(Channel::Rate(*rate)),
            found => Ok(Channel::Trace(Arc::new(found.trace(seed, duration)?))),
        }
    }

    /// The trace, read or made, of what is not a rate.
    pub(crate) fn trace(&self, seed: u64, duration: Duration) -> Result<Trace, Error> {
        match self {
            Found::Rate(_) => unreachable!("a rate is refused where a trace is needed"),
            Found::File(path) => Trace::read(path),
            Found::BuiltIn(channel) => {
                let times = channel.generate(seed, duration.min(LONGEST_BUILT_IN));
                Trace::from_millis(channel.name, times)
            }
            Found::Recording { recording, path } => {
                let name = recording.name.to_owned();
                let Some(path) = path.as_ref().filter(|path| path.is_file()) else {
                    return Err(Error::NotFetched { name });
                };
                let trace = Trace::read(path)?.named(recording.name);
                recording.check(trace.sha256())?;
                Ok(trace)
            }
            Found::Expression(expression) => expression.open(seed, duration),
        }
    }
}

/// The channel that `text` names, read or made; see [`Found::open`]. Recordings are looked for in [`cache_dir`].
///
/// # Errors
/// If there is none of that name, or it cannot be read.
pub fn open(text: &str, seed: u64, duration: Duration) -> Result<Channel, Error> {
    find(text)?.open(seed, duration)
}

/// What `text` names, recordings being kept in [`cache_dir`].
///
/// # Errors
/// If it names nothing; the message lists near matches.
pub fn find(text: &str) -> Result<Found, Error> {
    find_in(text, cache_dir().as_deref())
}

/// What `text` names, recordings being kept in `cache`.
///
/// # Errors
/// If it names nothing; the message lists near matches.
pub fn find_in(text: &str, cache: Option<&Path>) -> Result<Found, Error> {
    let found = find_named(text, cache);
    if found.is_err() && expression::has_signs(text) {
        return Expression::parse(text, cache).map(Found::Expression);
    }
    found
}

/// What `text` names by itself, put together from nothing else.
pub(crate) fn find_named(text: &str, cache: Option<&Path>) -> Result<Found, Error> {
    let path = Path::new(text);
    if path.exists() && !path.is_dir() {
        return Ok(Found::File(path.to_owned()));
    }
    if let Some(value) = text.strip_prefix("rate:") {
        return rate(text, value).map(Found::Rate);
    }
    if let Some(channel) = generate::describe(text) {
        return Ok(Found::BuiltIn(channel));
    }
    if let Some(recording) = recording(text) {
        let path = cache.map(|cache| recording.path_in(cache));
        return Ok(Found::Recording { recording, path });
    }
    if path.is_dir() {
        // Nothing else has this name: reading says what is wrong with it.
        return Ok(Found::File(path.to_owned()));
    }
    Err(unknown(text))
}

fn rate(text: &str, value: &str) -> Result<Rate, Error> {
    let valid = |mbps: &f64| *mbps > 0.0 && *mbps <= FASTEST_MBPS;
    let rate = value.parse().ok().filter(valid).map(Rate::from_mbps);
    rate.filter(|rate| rate.as_bps() > 0)
        .ok_or_else(|| Error::BadRate {
            text: text.to_owned(),
            value: value.to_owned(),
        })
}

// --- Public recordings.

/// A public recording: a trace that somebody published, fetched by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Its name here: a folder for the source and a file, for example `cs244-2017/city_drive_2min`. The part after the
    /// slash is enough.
    pub name: &'static str,
    /// The names that stand for it and others together.
    pub groups: Vec<&'static str>,
    /// The repository that publishes it, on GitHub.
    pub repository: &'static str,
    /// The commit.
    pub commit: &'static str,
    /// The file in the repository.
    pub path: &'static str,
    /// SHA-256 of the file as published, in hexadecimal.
    pub sha256: &'static str,
    /// Its licence, as far as the source states one.
    pub licence: &'static str,
    /// The paper to cite.
    pub paper: &'static str,
    /// Radio technology.
    pub technology: &'static str,
    /// Where and how the phone moved.
    pub scenario: &'static str,
    /// `uplink` or `downlink`, as far as is known.
    pub direction: &'static str,
    /// Its period in seconds.
    pub duration_s: f64,
    /// Its mean rate in Mbit/s, at 1500 B an opportunity.
    pub mean_mbps: f64,
    /// What else to know about it; often empty.
    pub note: &'static str,
}

static RECORDINGS: LazyLock<Vec<Recording>> = LazyLock::new(|| {
    let rows = include_str!("recordings.tsv").lines().skip(1);
    rows.map(|row| {
        let cells: Vec<&'static str> = row.split('\t').collect();
        let number = |text: &str| {
            text.parse()
                .expect("the catalogue's numbers are checked by its test")
        };
        Recording {
            name: cells[0],
            groups: cells[1].split(' ').collect(),
            repository: cells[2],
            commit: cells[3],
            path: cells[4],
            sha256: cells[5],
            licence: cells[6],
            paper: cells[7],
            technology: cells[8],
            scenario: cells[9],
            direction: cells[10],
            duration_s: number(cells[11]),
            mean_mbps: number(cells[12]),
            note: cells[13],
        }
    })
    .collect()
});

/// All public recordings.
pub fn recordings() -> &'static [Recording] {
    &RECORDINGS
}

/// The recording called `name`, with or without its folder.
pub fn recording(name: &str) -> Option<&'static Recording> {
    let whole = recordings().iter().find(|recording| recording.name == name);
    whole.or_else(|| {
        recordings()
            .iter()
            .find(|recording| recording.short_name() == name)
    })
}

/// The recordings that `name` stands for: one, or all of a group. The group `cs244` is the six that the CS244
/// reproduction ran on.
///
/// # Errors
/// If it stands for none; the message lists near matches.
pub fn select(name: &str) -> Result<Vec<&'static Recording>, Error> {
    if let Some(recording) = recording(name) {
        return Ok(vec![recording]);
    }
    let group: Vec<_> = recordings()
        .iter()
        .filter(|recording| recording.groups.contains(&name))
        .collect();
    if group.is_empty() {
        Err(unknown_recording(name))
    } else {
        Ok(group)
    }
}

/// The names of all groups, in alphabetical order.
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = recordings()
        .iter()
        .flat_map(|recording| recording.groups.clone())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

impl Recording {
    /// The name without its folder.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// Where it is published: by `VERUS_TRACE_URL` in the environment if that is set, otherwise on GitHub.
    pub fn url(&self) -> String {
        let set = env::var("VERUS_TRACE_URL")
            .ok()
            .filter(|url| !url.is_empty());
        self.url_from(set.as_deref().unwrap_or(URL))
    }

    /// The address that `template` gives: `{repository}`, `{commit}` and `{path}` are filled in; a template
    /// without them is the beginning of the address.
    pub fn url_from(&self, template: &str) -> String {
        let whole = if template.contains("{path}") {
            template.to_owned()
        } else {
            format!(
                "{}/{{repository}}/{{commit}}/{{path}}",
                template.trim_end_matches('/')
            )
        };
        whole
            .replace("{repository}", self.repository)
            .replace("{commit}", self.commit)
            .replace("{path}", self.path)
    }

    /// Where it is kept in `cache`.
    pub fn path_in(&self, cache: &Path) -> PathBuf {
        cache.join("recordings").join(self.name)
    }

    /// Whether `content` is the published file.
    ///
    /// # Errors
    /// If it cannot be read to its end, or differs.
    pub fn verify(&self, mut content: impl Read) -> Result<(), Error> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let failed = |source| Error::Io {
                action: "read",
                name: self.name.to_owned(),
                source,
            };
            match content.read(&mut buffer).map_err(failed)? {
                0 => return self.check(hex(&hash.finalize())),
                got => hash.update(&buffer[..got]),
            }
        }
    }

    fn check(&self, found: String) -> Result<(), Error> {
        if found == self.sha256 {
            return Ok(());
        }
        let (name, expected) = (self.name.to_owned(), self.sha256.to_owned());
        Err(Error::Mismatch {
            name,
            expected,
            found,
        })
    }
}

/// Where recordings are kept: `VERUS_CACHE`, `XDG_CACHE_HOME/verus` or `HOME/.cache/verus`, whichever is set first; `None`
/// without any of them.
pub fn cache_dir() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("VERUS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("verus")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/verus")))
}

// --- Names that are nearly right.

fn unknown(text: &str) -> Error {
    let names = generate::names().chain(recordings().iter().flat_map(|r| [r.name, r.short_name()]));
    let hint = match near(text, names) {
        Some(names) => format!("there is no such file, and the nearest names are {names}"),
        None => "there is no such file, and `verus list channels` has no such name".to_owned(),
    };
    Error::UnknownChannel {
        text: text.to_owned(),
        hint,
    }
}

fn unknown_recording(name: &str) -> Error {
    let names = recordings()
        .iter()
        .flat_map(|r| [r.name, r.short_name()])
        .chain(groups());
    let hint = match near(name, names) {
        Some(names) => format!("the nearest recordings are {names}"),
        None => format!("the recordings are those of {}", groups().join(", ")),
    };
    Error::UnknownRecording {
        text: name.to_owned(),
        hint,
    }
}

/// The few `names` that resemble `text`, nearest first; `None` if none does.
fn near(text: &str, names: impl Iterator<Item = &'static str>) -> Option<String> {
    const SHOWN: usize = 4;
    // A text longer than any name resembles none, and comparing it would take long.
    if text.len() > 64 {
        return None;
    }
    let text = text.to_lowercase();
    let mut near: Vec<_> = names
        .filter_map(|name| {
            let other = name.to_lowercase();
            let contained = text.len() >= 3 && other.contains(&text);
            let distance = if contained {
                0
            } else {
                distance(&text, &other)
            };
            (distance <= text.len() / 3).then_some((distance, name))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(SHOWN);
    let names: Vec<_> = near.iter().map(|(_, name)| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Levenshtein's distance: the fewest insertions, deletions and replacements between the two.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *candidate);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<&'static str, String> {
        find_in(text, None)
            .map(|found| found.kind())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_recording_in_the_catalogue_is_complete() {
        assert!(recordings().len() >= 30);
        for recording in recordings() {
            let cells = [
                recording.repository,
                recording.path,
                recording.licence,
                recording.paper,
            ];
            assert!(
                cells.iter().all(|cell| !cell.is_empty()),
                "{}",
                recording.name
            );
            assert_eq!(
                (recording.commit.len(), recording.sha256.len()),
                (40, 64),
                "{}",
                recording.name
            );
            assert!(recording.duration_s > 0.0 && recording.mean_mbps > 0.0);
            assert!(
                recording
                    .groups
                    .contains(&recording.name.split('/').next().unwrap())
            );
            assert_eq!(
                super::recording(recording.short_name()),
                Some(recording),
                "short names are unique"
            );
            assert!(generate::describe(recording.short_name()).is_none());
        }
    }

    #[test]
    fn one_name_brings_the_six_traces_of_the_reproduction() {
        let mut names: Vec<_> = select("cs244")
            .unwrap()
            .iter()
            .map(|r| r.short_name())
            .collect();
        names.sort_unstable();
        let expected = [
            "ATT-LTE-driving-2016.up",
            "TMobile-LTE-driving.up",
            "Verizon-EVDO-driving.up",
            "camp_ped_2min",
            "city_drive_2min",
            "highway_drive_2min",
        ];
        assert_eq!(names, expected);
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
    fn a_recording_is_published_where_its_catalogue_says_or_where_the_caller_does() {
        let recording = recording("camp_ped_2min").unwrap();
        let file = format!(
            "sanderszzw/cs244-verus/{}/traces/camp_ped_2min",
            recording.commit
        );
        assert_eq!(
            recording.url_from(URL),
            format!("https://raw.githubusercontent.com/{file}")
        );
        assert_eq!(
            recording.url_from("http://localhost:8000/"),
            format!("http://localhost:8000/{file}")
        );
        assert_eq!(
            recording.url_from("http://host/{path}?raw"),
            "http://host/traces/camp_ped_2min?raw"
        );
    }

    #[test]
    fn content_that_differs_is_refused() {
        let error = recording("camp_ped_2min")
            .unwrap()
            .verify(&b"1\n2\n"[..])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("`cs244-2017/camp_ped_2min` is not the published file"),
            "{error}"
        );
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
