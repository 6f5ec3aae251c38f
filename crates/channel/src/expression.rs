//! Channels put together from others: a realisation, a stretch, several in a row.
//!
//! ```text
//!  channel := part { "+" part }                 one after another, and then again from the first
//!  part    := name [ "@" seed ] [ "[" from ":" to "]" ]
//!  name    := a file, a built-in channel or a recording; the seed is a built-in channel's
//! ```
//!
//! `city-driving-lte-down@1` is that realisation for any seed of the run; `file[150:]` skips the
//! first 150 s; `town[:60]+city-driving-lte-down@1[0:60]` is a minute of each. Times are seconds,
//! in whole milliseconds.
//!
//! A stretch is exactly as long as it says: silence at its end is part of it. It holds the
//! opportunities from FROM on and before TO, so that neighbouring stretches, joined, equal the
//! whole. The last opportunities of a file, which come exactly at its end, belong to the stretch
//! that reaches the end.
//!
//! If the whole text is the name of a file, it means that file, whatever signs are in it (`catalogue`).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use verus_core::Duration;

use crate::error::Error;
use crate::lines::{excerpt, is_decimal};
use crate::named::{LONGEST_BUILT_IN, Named};
use crate::trace::Trace;

/// More parts than this are refused: they are more likely a mistake than intended.
const MOST_PARTS: usize = 1000;

/// The greatest total length of the parts.
const LONGEST_MS: u64 = LONGEST_BUILT_IN.as_nanos() / 1_000_000;

/// How far a recording's length in the catalogue may be from its own, which is in whole milliseconds.
const ROUNDED_MS: u64 = 1;

/// A channel put together from parts, whose names are known; nothing has been read.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    parts: Vec<Part>,
}

/// One part: a channel, or a stretch of it.
#[derive(Clone, Debug)]
pub struct Part {
    /// The text.
    text: String,
    /// The text of the whole that this is a stretch of, seed included.
    whole: String,
    source: Named,
    seed: Option<u64>,
    stretch: Option<Stretch>,
}

/// The interval in milliseconds; without an end it reaches the source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from_ms: u64,
    to_ms: Option<u64>,
}

/// A part that was read: its opportunities from zero on, and how long it is.
struct Piece {
    runs: Vec<(u64, u64)>,
    length_ms: u64,
}

/// Whether `text` has any of the signs that put channels together.
pub(crate) fn has_signs(text: &str) -> bool {
    text.contains(['@', '[', ']', '+'])
}

impl Expression {
    /// Parses `text`; recordings are kept in `cache`. Nothing is read or made.
    pub(crate) fn parse(text: &str, cache: Option<&Path>) -> Result<Expression, Error> {
        let texts: Vec<&str> = text.split('+').collect();
        if texts.len() > MOST_PARTS {
            let problem = format!("it has {} parts; {MOST_PARTS} are the most", texts.len());
            let shown = excerpt(text.as_bytes());
            return Err(wrong(&shown, &shown, problem));
        }
        let mut parts = Vec::with_capacity(texts.len());
        let mut total_ms = 0u64;
        for &part in &texts {
            let fail = |problem| wrong(text, part, problem);
            let part = Part::parse(part, cache, &fail)?;
            if texts.len() > 1 && part.stretch.is_none() && part.built_in() {
                return Err(fail(format!(
                    "a built-in channel has no end: in a join it needs a stretch, such as `{}[0:60]`",
                    part.whole
                )));
            }
            total_ms = total_ms.saturating_add(part.known_length_ms().unwrap_or(0));
            check_total(total_ms).map_err(fail)?;
            parts.push(part);
        }
        Ok(Expression {
            text: text.to_owned(),
            parts,
        })
    }

    /// The parts in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The kind of its parts where all are of one, otherwise `joined`; `recording` if one of them has not been
    /// fetched.
    pub fn kind(&self) -> &'static str {
        let mut kinds = self.parts.iter().map(|part| part.source.kind());
        if kinds.clone().any(|kind| kind == "recording") {
            return "recording";
        }
        let first = kinds.next().unwrap_or("joined");
        if kinds.all(|kind| kind == first) {
            first
        } else {
            "joined"
        }
    }

    /// The files that its parts are read from, and the place of each name in the text.
    pub(crate) fn files(&self) -> Result<Vec<(Range<usize>, PathBuf)>, Error> {
        let mut begin = 0;
        let mut files = Vec::new();
        for part in &self.parts {
            if let Some(path) = part.source.file()? {
                files.push((begin..begin + part.name().len(), path.to_owned()));
            }
            begin += part.text.len() + "+".len();
        }
        Ok(files)
    }

    /// Reads or makes the parts and joins them. `seed` and `duration` are for a built-in channel that states none.
    pub(crate) fn open(&self, seed: u64, duration: Duration) -> Result<Arc<Trace>, Error> {
        if let [part] = &self.parts[..]
            && part.stretch.is_none()
        {
            let whole = part.read(seed, duration)?;
            return Ok(Arc::new(Arc::unwrap_or_clone(whole).named(&self.text)));
        }
        // A source of several parts is read once, and only the stretches are kept.
        let mut pieces: Vec<Option<Piece>> = self.parts.iter().map(|_| None).collect();
        let mut total_ms = 0u64;
        for first in 0..self.parts.len() {
            if pieces[first].is_some() {
                continue;
            }
            let alike = |part: &&Part| part.whole == self.parts[first].whole;
            let ends = self.parts.iter().filter(alike);
            let end_ms = ends.filter_map(|part| part.stretch?.to_ms).max();
            let whole =
                self.parts[first].read(seed, end_ms.map_or(duration, Duration::from_millis))?;
            for (part, piece) in self.parts.iter().zip(&mut pieces) {
                if part.whole != self.parts[first].whole {
                    continue;
                }
                let fail = |problem| wrong(&self.text, &part.text, problem);
                let (from_ms, to_ms) = part.bounds(&whole).map_err(fail)?;
                total_ms = total_ms.saturating_add(to_ms - from_ms);
                check_total(total_ms).map_err(fail)?;
                *piece = Some(part.cut(&whole, from_ms, to_ms));
            }
        }
        let mut begins_ms = 0;
        let mut runs = Vec::new();
        for piece in pieces.into_iter().flatten() {
            let shifted = piece.runs.iter();
            runs.extend(shifted.map(|&(ms, count)| (begins_ms + ms, count)));
            begins_ms += piece.length_ms;
        }
        if runs.is_empty() {
            let problem = "nothing is delivered in all of it".to_owned();
            return Err(wrong(&self.text, &self.text, problem));
        }
        Trace::from_runs(&self.text, runs, begins_ms).map(Arc::new)
    }
}

impl Part {
    fn parse(
        text: &str,
        cache: Option<&Path>,
        fail: &dyn Fn(String) -> Error,
    ) -> Result<Part, Error> {
        if text.is_empty() {
            return Err(fail("a part is empty".to_owned()));
        }
        let (whole, stretch) = match text.find('[') {
            None if text.contains(']') => return Err(fail("`]` without `[`".to_owned())),
            None => (text, None),
            Some(at) => {
                let range = text[at + 1..]
                    .strip_suffix(']')
                    .ok_or_else(|| fail("a stretch is `[FROM:TO]`, in seconds".to_owned()))?;
                (&text[..at], Some(Stretch::parse(range).map_err(fail)?))
            }
        };
        if whole.starts_with("rate:") {
            let problem = "a constant rate cannot be cut or joined";
            return Err(fail(problem.to_owned()));
        }
        let (source, seed) = match (Named::look_up(whole, cache), whole.rsplit_once('@')) {
            (Some(source), _) => (source?, None),
            (None, None) => (Named::find(whole, cache)?, None),
            (None, Some((name, seed))) => {
                let source = Named::find(name, cache)?;
                let Named::BuiltIn(_) = source else {
                    let problem = format!("`{name}` is no built-in channel, so it has no seed");
                    return Err(fail(problem));
                };
                let digits = !seed.is_empty() && seed.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.then(|| seed.parse().ok()).flatten();
                let number = number.ok_or_else(|| {
                    fail(format!(
                        "the seed `{seed}` is not a whole number that fits in 64 bits"
                    ))
                })?;
                (source, Some(number))
            }
        };
        let part = Part {
            text: text.to_owned(),
            whole: whole.to_owned(),
            source,
            seed,
            stretch,
        };
        part.check().map_err(fail)?;
        Ok(part)
    }

    /// Checks everything that needs no reading.
    fn check(&self) -> Result<(), String> {
        let Some(stretch) = self.stretch else {
            return Ok(());
        };
        match (&self.source, stretch.to_ms) {
            (Named::BuiltIn(_), None) => Err(format!(
                "a built-in channel has no end, so `{}` needs a TO",
                self.text
            )),
            (Named::BuiltIn(_), Some(to_ms)) if to_ms > LONGEST_MS => Err(format!(
                "a built-in channel is made for {} s at the most, not {} s",
                seconds(LONGEST_MS),
                seconds(to_ms)
            )),
            (Named::Recording { recording, .. }, _) => {
                let end_ms = (recording.duration_s * 1000.0).round() as u64;
                stretch.check_end(end_ms + ROUNDED_MS, end_ms)
            }
            _ => Ok(()),
        }
    }

    /// The text that names [`Part::source`].
    pub fn name(&self) -> &str {
        match self.seed {
            Some(_) => self.whole.rsplit_once('@').map_or("", |(name, _)| name),
            None => &self.whole,
        }
    }

    /// The channel that it is, or is a stretch of.
    pub fn source(&self) -> &Named {
        &self.source
    }

    /// The seed that it states.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The beginning, in seconds.
    pub fn from_s(&self) -> f64 {
        self.stretch
            .map_or(0.0, |stretch| stretch.from_ms as f64 / 1000.0)
    }

    /// The end, in seconds; `None` if it is its source's end.
    pub fn to_s(&self) -> Option<f64> {
        self.stretch?.to_ms.map(|ms| ms as f64 / 1000.0)
    }

    fn built_in(&self) -> bool {
        matches!(self.source, Named::BuiltIn(_))
    }

    /// The length, if its text states one.
    fn known_length_ms(&self) -> Option<u64> {
        let stretch = self.stretch?;
        Some(stretch.to_ms? - stretch.from_ms)
    }

    /// Reads the whole that this is a stretch of.
    fn read(&self, seed: u64, duration: Duration) -> Result<Arc<Trace>, Error> {
        self.source.trace(self.seed.unwrap_or(seed), duration)
    }

    /// The interval in `whole`.
    fn bounds(&self, whole: &Trace) -> Result<(u64, u64), String> {
        let end_ms = whole.period_ms();
        let stretch = self.stretch.unwrap_or(Stretch {
            from_ms: 0,
            to_ms: None,
        });
        if !self.built_in() {
            stretch.check_end(end_ms, end_ms)?;
        }
        Ok((stretch.from_ms, stretch.to_ms.unwrap_or(end_ms)))
    }

    fn cut(&self, whole: &Trace, from_ms: u64, to_ms: u64) -> Piece {
        let last = !self.built_in() && to_ms == whole.period_ms();
        let runs = whole
            .runs()
            .skip_while(|&(ms, _)| ms < from_ms)
            .take_while(|&(ms, _)| ms < to_ms || (last && ms == to_ms))
            .map(|(ms, count)| (ms - from_ms, count))
            .collect();
        Piece {
            runs,
            length_ms: to_ms - from_ms,
        }
    }
}

impl Stretch {
    fn parse(text: &str) -> Result<Stretch, String> {
        let (from, to) = text
            .split_once(':')
            .ok_or_else(|| format!("`[{text}]` is not a stretch, which is `[FROM:TO]`"))?;
        let from_ms = if from.is_empty() { 0 } else { millis(from)? };
        let to_ms = (!to.is_empty()).then(|| millis(to)).transpose()?;
        match to_ms {
            Some(to_ms) if to_ms <= from_ms => Err(format!(
                "FROM must be before TO, not {} s and {} s",
                seconds(from_ms),
                seconds(to_ms)
            )),
            _ => Ok(Stretch { from_ms, to_ms }),
        }
    }

    /// Whether it lies within `end_ms`; `limit_ms` is the bound that is compared with it.
    fn check_end(self, limit_ms: u64, end_ms: u64) -> Result<(), String> {
        let end = seconds(end_ms);
        match self.to_ms {
            _ if self.from_ms >= limit_ms => {
                let from = seconds(self.from_ms);
                Err(format!(
                    "it ends at {end} s, and the stretch begins at {from} s"
                ))
            }
            Some(to_ms) if to_ms > limit_ms => {
                let to = seconds(to_ms);
                Err(format!(
                    "it ends at {end} s, and the stretch goes to {to} s"
                ))
            }
            _ => Ok(()),
        }
    }
}

fn millis(text: &str) -> Result<u64, String> {
    let valid = |seconds: &f64| *seconds <= 1e9;
    let number = is_decimal(text.as_bytes()).then(|| text.parse().ok());
    match number.flatten().filter(valid) {
        Some(seconds) => Ok((seconds * 1000.0).round() as u64),
        None => Err(format!("`{text}` is not a time in seconds")),
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn check_total(total_ms: u64) -> Result<(), String> {
    if total_ms <= LONGEST_MS {
        return Ok(());
    }
    let (most, total) = (seconds(LONGEST_MS), seconds(total_ms));
    Err(format!(
        "with it the channel is {total} s long; {most} s are the most"
    ))
}

fn wrong(text: &str, part: &str, problem: String) -> Error {
    Error::Expression {
        text: text.to_owned(),
        part: if part == text {
            String::new()
        } else {
            format!(" in `{part}`:")
        },
        problem,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use proptest::prelude::*;
    use verus_core::Time;

    use super::*;
    use crate::catalogue::{find_in, open};
    use crate::generate;
    use crate::recordings::recording;

    const MINUTE: Duration = Duration::from_secs(60);

    fn trace(text: &str) -> Trace {
        let channel = open(text, 1, MINUTE).unwrap_or_else(|error| panic!("{error}"));
        Trace::clone(channel.trace().expect("no rate"))
    }

    fn runs(text: &str) -> Vec<(u64, u64)> {
        trace(text).runs().collect()
    }

    fn problem(text: &str) -> String {
        open(text, 1, MINUTE).unwrap_err().to_string()
    }

    /// A file with these lines, whose path is the answer.
    fn file(name: &str, lines: &str) -> String {
        let folder = std::env::var_os("CARGO_TARGET_TMPDIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-expressions"),
            PathBuf::from,
        );
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_realisation_stays_whatever_the_seed_of_the_run() {
        let name = generate::names().next().unwrap();
        let opened = |text: &str, seed| {
            let channel = open(text, seed, Duration::from_secs(20)).unwrap();
            Trace::clone(channel.trace().unwrap())
        };
        let pinned = format!("{name}@7");
        assert_eq!(opened(&pinned, 1), opened(&pinned, 2));
        assert_eq!(opened(&pinned, 1), opened(name, 7));
        assert_ne!(opened(&pinned, 1), opened(&format!("{name}@8"), 1));
        assert_eq!(opened(&pinned, 1).name(), pinned);
        assert_eq!(find_in(&pinned, None).unwrap().kind(), "built-in");
    }

    #[test]
    fn a_stretch_of_a_built_in_channel_is_the_same_for_runs_of_any_length() {
        let name = generate::names().next().unwrap();
        let text = format!("{name}@3[5:12.5]");
        let cut = trace(&text);
        assert_eq!(cut.period_ms(), 7_500);
        let whole = open(&format!("{name}@3"), 1, MINUTE).unwrap();
        let expected: Vec<u64> = whole
            .trace()
            .unwrap()
            .opportunities()
            .filter(|ms| (5_000..12_500).contains(ms))
            .map(|ms| ms - 5_000)
            .collect();
        assert_eq!(cut.opportunities().collect::<Vec<_>>(), expected);
        let other = open(&text, 9, Duration::from_secs(1)).unwrap();
        assert_eq!(**other.trace().unwrap(), cut);
        // Without its own seed it follows the run's.
        let loose = open(&format!("{name}[5:12.5]"), 3, MINUTE).unwrap();
        assert_eq!(**loose.trace().unwrap(), cut);
    }

    #[test]
    fn a_stretch_keeps_the_silence_at_its_end() {
        let path = file("silence", "0\n500\n500\n1200\n4000\n");
        let cut = trace(&format!("{path}[0.5:3]"));
        assert_eq!(cut.runs().collect::<Vec<_>>(), [(0, 2), (700, 1)]);
        assert_eq!(cut.period_ms(), 2_500);
        // It repeats with its own length, and the link's index agrees.
        let before = |ms| cut.opportunities_before(Time::from_millis(ms), true);
        assert_eq!(
            [before(701), before(2_500), before(2_501), before(5_001)],
            [3, 3, 5, 8]
        );
        assert_ne!(cut.sha256(), trace(&format!("{path}[0.5:2]")).sha256());
        assert_ne!(cut, trace(&format!("{path}[0.5:2]")));
    }

    #[test]
    fn neighbouring_stretches_joined_are_the_whole() {
        let path = file("joined", "0\n3\n1000\n1000\n1700\n2000\n2000\n");
        let whole = Trace::read(Path::new(&path)).unwrap();
        for text in ["F[:1]+F[1:]", "F[:0.5]+F[0.5:1]+F[1:1.9]+F[1.9:2]", "F[:]"] {
            assert_eq!(trace(&text.replace('F', &path)), whole, "{text}");
        }
        // A last opportunity at the end of one part and a first at the beginning of the next are in one millisecond.
        assert_eq!(
            runs(&format!("{path}+{path}[1:1.8]")),
            [(0, 1), (3, 1), (1000, 2), (1700, 1), (2000, 4), (2700, 1)]
        );
    }

    #[test]
    fn a_silent_part_is_as_long_as_any() {
        let path = file("quiet", "0\n2000\n");
        assert_eq!(
            runs(&format!("{path}[1:1.5]+{path}")),
            [(500, 1), (2500, 1)]
        );
        let error = problem(&format!("{path}[1:1.5]"));
        assert!(
            error.ends_with("nothing is delivered in all of it"),
            "{error}"
        );
    }

    #[test]
    fn a_name_that_is_a_file_as_a_whole_is_that_file() {
        let path = file("a+b@1[0:1]", "1\n2\n");
        assert_eq!(trace(&path).period_ms(), 2);
    }

    #[test]
    fn each_fault_is_named_with_its_part() {
        let path = file("short", "0\n2000\n");
        let name = generate::names().next().unwrap();
        let long = (0..1001).map(|_| "x").collect::<Vec<_>>().join("+");
        let cases = [
            ("N@x", "N@x`: the seed `x` is not a whole number"),
            ("N@", "the seed `` is not"),
            ("N@-1", "the seed `-1` is not"),
            ("N@99999999999999999999", "fits in 64 bits"),
            ("F@1", "no built-in channel, so it has no seed"),
            ("N@1[2:1]", "FROM must be before TO, not 2 s and 1 s"),
            ("N[1:1]", "FROM must be before TO"),
            ("N[5:]", "needs a TO"),
            ("N[0:3601]", "at the most, not 3601 s"),
            ("N[0:1e3]", "`1e3` is not a time in seconds"),
            ("N[0:-1]", "`-1` is not a time"),
            ("N[nan:2]", "`nan` is not a time"),
            ("N[5]", "`[5]` is not a stretch"),
            ("N[0:1", "a stretch is `[FROM:TO]`"),
            ("N[0:1]x", "a stretch is `[FROM:TO]`"),
            ("N]", "`]` without `[`"),
            ("F[1:3]", "it ends at 2 s, and the stretch goes to 3 s"),
            ("F[2:]", "it ends at 2 s, and the stretch begins at 2 s"),
            ("F[7:9]", "it ends at 2 s, and the stretch begins at 7 s"),
            ("F+N", "in `N`: a built-in channel has no end"),
            ("F+N@1", "such as `N@1[0:60]`"),
            ("F+", "a part is empty"),
            ("+", "a part is empty"),
            (
                "rate:5+F",
                "in `rate:5`: a constant rate cannot be cut or joined",
            ),
            ("F+rate:5", "in `rate:5`: a constant rate"),
            ("rate:5[0:1]", "a constant rate cannot be"),
            ("N[0:2000]+N[0:2000]", "4000 s long; 3600 s are the most"),
            (
                "city-drivin-3g-up@1",
                "the nearest names are `city-driving-3g-up`",
            ),
            ("F+qqqqqqqqqq[0:1]", "unknown channel `qqqqqqqqqq`"),
            ("city_drive_2min[100:121]", "it ends at"),
            (long.as_str(), "1001 parts"),
        ];
        for (text, words) in cases {
            let fill = |text: &str| text.replace('F', &path).replace('N', name);
            // The shapes in words of the messages are not placeholders.
            let words = words
                .replace("`N", &format!("`{name}"))
                .replace("N@", &format!("{name}@"));
            let text = if text.starts_with("city") || text.len() > 1000 {
                text.to_owned()
            } else {
                fill(text)
            };
            let error = problem(&text);
            assert!(error.contains(&words), "{text}: {error}");
        }
    }

    #[test]
    fn a_recording_is_held_to_its_length_before_it_is_fetched() {
        let recording_row = recording("city_drive_2min").unwrap();
        let whole = format!(
            "{}[:{}]",
            recording_row.short_name(),
            recording_row.duration_s
        );
        assert_eq!(find_in(&whole, None).unwrap().kind(), "recording");
        let fetch = problem(&whole);
        assert!(fetch.contains("verus trace fetch"), "{fetch}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(N|F|rate:5|x|@|\\[|\\]|\\+|:|[0-9]|\\.|e|-|\\PC){0,12}") {
            let text = text.replace('N', generate::names().next().unwrap());
            if let Ok(found) = find_in(&text, None) {
                let _ = found.kind();
            }
        }

        #[test]
        fn a_stretch_is_as_long_as_it_says_and_holds_what_the_whole_holds(
            from in 0u64..1900, length in 1u64..500, times in proptest::collection::vec(0u64..2400, 1..60)
        ) {
            let mut times = times;
            times.push(2400);
            times.sort_unstable();
            let whole = Trace::from_millis("made", times.clone()).unwrap();
            let part = Part {
                text: String::new(),
                whole: String::new(),
                source: Named::File(PathBuf::new()),
                seed: None,
                stretch: Some(Stretch { from_ms: from, to_ms: Some(from + length) }),
            };
            let piece = part.cut(&whole, from, from + length);
            prop_assert_eq!(piece.length_ms, length);
            let counted: u64 = piece.runs.iter().map(|run| run.1).sum();
            let within = |ms: &&u64| **ms >= from && (**ms < from + length || from + length == 2400);
            prop_assert_eq!(counted, times.iter().filter(within).count() as u64);
        }
    }
}
