//! Delivery-opportunity traces in Mahimahi's format.
//!
//! A trace is a schedule: one whole number a line, milliseconds from the start, never decreasing. Each line is one
//! opportunity to deliver a packet; several in one millisecond repeat the number. The schedule
//! repeats with a period equal to its last time, so lap `k` has an opportunity at `k·period + t` for each
//! line `t`. Only a stretch of a trace (`expression`) can have a longer period, with silence at its end.
//!
//! In memory a trace is a list of runs, each a distinct millisecond and its number of
//! opportunities. A run is two small variable-length numbers, with an index entry every 128 runs. A
//! minute at 700 Mbit/s is then 120 kB, and a gigabyte of text about 200 MB at the very worst.
//! Counting the opportunities before an instant is a binary search.

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use verus_core::{Bytes, Duration, Rate, Time};

use crate::error::{Error, Problem};
use crate::files;
use crate::lines::{self, Format, hex};

/// The most distinct milliseconds that a trace may have: 69 hours with an opportunity in each. It bounds memory at
/// about half a gigabyte; a longer recording is refused with a clear error.
pub const MAX_DISTINCT_MILLIS: u64 = 250_000_000;

/// Runs between index entries: few enough that the scan after the binary search is short.
const BLOCK: u64 = 128;

const WHAT: &str = "trace";

/// Bytes of text that are written at a time, and the length of the longest line: 2⁶⁴ − 1 with a
/// newline.
const TEXT_AT_ONCE: usize = 1 << 13;
const LONGEST_LINE: usize = 21;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A delivery-opportunity schedule. Never empty; its period is at least 1 ms.
#[derive(Clone)]
pub struct Trace {
    name: String,
    /// Per run: milliseconds since the run before, and opportunities, each as a LEB128 number.
    runs: Vec<u8>,
    blocks: Vec<Block>,
    opportunities: u64,
    last_ms: u64,
    period_ms: u64,
    /// SHA-256 of the text that was read, and of the file as stored.
    hashes: Option<(String, String)>,
    /// SHA-256 of the text of a trace that was made here, computed when first asked for.
    made: OnceLock<String>,
}

/// The beginning of a block of runs.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Time of the run before the block, which the block's first gap counts from.
    base_ms: u64,
    /// Opportunities before the block.
    before: u64,
    /// Its first byte in `runs`.
    offset: usize,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("name", &self.name)
            .field("opportunities", &self.opportunities)
            .field("period_ms", &self.period_ms)
            .finish_non_exhaustive()
    }
}

/// Equal when the schedules are equal, whatever their names.
impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.runs == other.runs && self.period_ms == other.period_ms
    }
}

impl Trace {
    /// Reads the trace in the file at `path`: plain, gzip or xz, told apart by their first bytes.
    ///
    /// # Errors
    /// If it cannot be read or is not a trace; the message names the file and the line.
    pub fn read(path: &Path) -> Result<Trace, Error> {
        let (name, file) = lines::open(path)?;
        Trace::parse(&name, file)
    }

    /// Reads a trace from `bytes`: plain, gzip or xz, detected by their first bytes. `name` is its
    /// name in messages; its extension matters only for bytes that are not compressed and not
    /// digits. Never panics on any bytes: a fuzz target can call this.
    ///
    /// # Errors
    /// If the bytes are not a trace.
    pub fn parse(name: &str, bytes: impl Read) -> Result<Trace, Error> {
        let mut builder = Builder::default();
        let hashes = lines::for_each(WHAT, name, bytes, |_, line| {
            builder.push(lines::whole_millis(line)?)
        })?;
        let finished = builder.finish(name);
        let mut trace = finished.map_err(|problem| problem.of_whole(WHAT, name))?;
        trace.hashes = Some(hashes);
        Ok(trace)
    }

    /// A trace from times in milliseconds, one for each opportunity.
    ///
    /// # Errors
    /// As for a file with these lines.
    pub fn from_millis(name: &str, millis: impl IntoIterator<Item = u64>) -> Result<Trace, Error> {
        let mut builder = Builder::default();
        for (index, time) in millis.into_iter().enumerate() {
            let pushed = builder.push(time);
            pushed.map_err(|problem| problem.of_line(WHAT, name, index as u64 + 1))?;
        }
        let finished = builder.finish(name);
        finished.map_err(|problem| problem.of_whole(WHAT, name))
    }

    /// A trace from runs, each a millisecond and how many opportunities it has, that repeats after `period_ms`.
    ///
    /// # Errors
    /// As for a file with these lines.
    pub(crate) fn from_runs(
        name: &str,
        runs: impl IntoIterator<Item = (u64, u64)>,
        period_ms: u64,
    ) -> Result<Trace, Error> {
        let mut builder = Builder::default();
        let pushed = (runs.into_iter()).try_for_each(|(ms, count)| builder.push_run(ms, count));
        let finished = pushed.and_then(|()| builder.finish_at(name, Some(period_ms)));
        finished.map_err(|problem| problem.of_whole(WHAT, name))
    }

    /// Writes the trace to `path`, compressed as its extension says (`.gz`, `.xz`, anything else is plain). The file
    /// appears whole or not at all: it is written beside its place and then moved there. The format has no place for
    /// silence at the end of a stretch.
    ///
    /// # Errors
    /// If it cannot be written, if this build lacks the compression, or if a file of that name is read as rates.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let name = path.display().to_string();
        let fail = |source| Error::Io {
            action: "write",
            name: name.clone(),
            source,
        };
        let format = Format::of_name(&name);
        format.supported(&name)?;
        if files::is_rate_series(path) {
            let problem =
                "a channel whose name ends in .csv is a series of rates, and this is a trace";
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, problem)));
        }
        write_whole(path, |file| {
            let mut out = BufWriter::new(file);
            format.encode(&mut out, |out| self.write_text(out))?;
            out.flush()
        })
        .map_err(fail)
    }

    /// Writes the trace as plain text: one time a line, a newline after each.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::with_capacity(TEXT_AT_ONCE + LONGEST_LINE);
        let mut line = [b'\n'; LONGEST_LINE];
        for (ms, count) in self.runs() {
            let mut first = LONGEST_LINE - 1;
            let mut rest = ms;
            loop {
                first -= 1;
                line[first] = b'0' + (rest % 10) as u8;
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
            for _ in 0..count {
                text.extend_from_slice(&line[first..]);
                if text.len() >= TEXT_AT_ONCE {
                    out.write_all(&text)?;
                    text.clear();
                }
            }
        }
        out.write_all(&text)
    }

    /// The trace's name: the file's path as passed, or a generator's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same trace under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Trace {
        self.name = name.to_owned();
        self
    }

    /// The time of each opportunity in milliseconds, in order.
    pub fn opportunities(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs()
            .flat_map(|(ms, count)| (0..count).map(move |_| ms))
    }

    /// Each distinct millisecond with the number of its opportunities, in order.
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            runs: &self.runs,
            position: 0,
            ms: 0,
        }
    }

    /// The number of opportunities in one period.
    pub fn len(&self) -> u64 {
        self.opportunities
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.runs.len() + self.blocks.len() * size_of::<Block>()
    }

    /// Never: a trace has at least one opportunity.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The time after which it repeats, in milliseconds: its last opportunity, or the end of a stretch.
    pub fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// The time after which it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// The mean rate over one period when each opportunity carries `opportunity`.
    pub fn mean_rate(&self, opportunity: Bytes) -> Rate {
        let bits = u128::from(self.opportunities) * u128::from(opportunity.get()) * 8 * 1000;
        Rate::from_bps(u64::try_from(bits / u128::from(self.period_ms)).unwrap_or(u64::MAX))
    }

    /// SHA-256 of the uncompressed text, in hexadecimal. A trace made here hashes the output of
    /// [`Trace::write`], and its period if that is longer.
    pub fn sha256(&self) -> String {
        match &self.hashes {
            Some((content, _)) => content.clone(),
            None => self.made.get_or_init(|| self.hash()).clone(),
        }
    }

    fn hash(&self) -> String {
        let mut hash = HashingWriter(Sha256::new());
        self.write_text(&mut hash).expect("hashing cannot fail");
        if self.last_ms < self.period_ms {
            writeln!(hash, "period {}", self.period_ms).expect("hashing cannot fail");
        }
        hex(&hash.0.finalize())
    }

    /// SHA-256 of the file as stored, perhaps compressed; `None` for a trace that was made here.
    pub fn stored_sha256(&self) -> Option<&str> {
        self.hashes.as_ref().map(|(_, stored)| stored.as_str())
    }

    /// The number of opportunities of one period before `ms`.
    pub fn count_before(&self, ms: u64) -> u64 {
        let (block, runs) = self.block_before(ms);
        let mut count = block.before;
        for (time, opportunities) in runs {
            if time >= ms {
                break;
            }
            count += opportunities;
        }
        count
    }

    /// The number of opportunities before `time` (not at it), the schedule repeating if `looped`.
    pub fn opportunities_before(&self, time: Time, looped: bool) -> u64 {
        let ms = time.as_nanos().div_ceil(NANOS_PER_MILLI);
        if !looped || ms == 0 {
            return self.count_before(ms);
        }
        // A lap that ended before `ms` is whole; the next begins at or before it; the one after does not.
        let laps = (ms - 1) / self.period_ms;
        laps.saturating_mul(self.opportunities)
            .saturating_add(self.count_before(ms - laps * self.period_ms))
    }

    /// The last block all of whose runs may not come before `ms`, and its runs (and those after).
    fn block_before(&self, ms: u64) -> (Block, Runs<'_>) {
        let after = self.blocks.partition_point(|block| block.base_ms < ms);
        let block = self.blocks[after.saturating_sub(1)];
        (
            block,
            Runs {
                runs: &self.runs,
                position: block.offset,
                ms: block.base_ms,
            },
        )
    }
}

/// Iterates over the runs of a [`Trace`]: (millisecond, opportunities).
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    runs: &'a [u8],
    position: usize,
    ms: u64,
}

impl Iterator for Runs<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.position == self.runs.len() {
            return None;
        }
        self.ms += get_varint(self.runs, &mut self.position);
        Some((self.ms, get_varint(self.runs, &mut self.position)))
    }
}

/// Walks a schedule's opportunities in order of time, forwards only. Steps cost O(1) amortised; a
/// jump over much of the trace is a binary search.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    trace: Arc<Trace>,
    looped: bool,
    /// Milliseconds at which this lap began.
    base_ms: u64,
    /// Byte after the current run.
    position: usize,
    /// This run's time within its lap.
    ms: u64,
    /// Opportunities of this run not yet used; 0 only when the schedule is over.
    remaining: u64,
    /// The time of this opportunity; `None` after the schedule.
    time: Option<Time>,
}

impl Cursor {
    /// A cursor at the first opportunity.
    pub(crate) fn new(trace: Arc<Trace>, looped: bool) -> Self {
        let mut cursor = Cursor {
            trace,
            looped,
            base_ms: 0,
            position: 0,
            ms: 0,
            remaining: 0,
            time: None,
        };
        cursor.next_run();
        cursor
    }

    /// The schedule it walks.
    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Whether the schedule repeats.
    pub(crate) fn looped(&self) -> bool {
        self.looped
    }

    /// The time of the opportunity at the cursor; `None` after the schedule.
    #[inline]
    pub(crate) fn time(&self) -> Option<Time> {
        self.time
    }

    /// Uses the opportunity at the cursor.
    #[inline]
    pub(crate) fn step(&mut self) {
        if self.remaining > 1 {
            self.remaining -= 1;
        } else if self.time.is_some() {
            self.next_run();
        }
    }

    /// Uses `count` opportunities.
    pub(crate) fn skip(&mut self, mut count: u64) {
        while count > 0 && self.time.is_some() {
            let used = count.min(self.remaining);
            count -= used;
            self.remaining -= used;
            if self.remaining == 0 {
                self.next_run();
            }
        }
    }

    /// The time of the opportunity `count` after the one at the cursor.
    pub(crate) fn time_after(&self, count: u64) -> Option<Time> {
        if count < self.remaining {
            return self.time;
        }
        let mut ahead = self.clone();
        ahead.skip(count);
        ahead.time
    }

    /// Passes over the opportunities before `now` (not at it) and says how many there were.
    pub(crate) fn seek(&mut self, now: Time) -> u64 {
        let mut passed = 0u64;
        // Nearly always a few runs; past that, count from the beginning with the index.
        for _ in 0..BLOCK {
            match self.time {
                Some(time) if time < now => {
                    passed = passed.saturating_add(self.remaining);
                    self.next_run();
                }
                _ => return passed,
            }
        }
        passed.saturating_add(self.jump(now))
    }

    /// [`Cursor::seek`] by the index.
    fn jump(&mut self, now: Time) -> u64 {
        if self.time.is_none_or(|time| time >= now) {
            return 0;
        }
        // The cursor is at the beginning of a run here, so all before it are the runs before.
        let position_before = u128::from(self.trace.count_before(self.ms))
            + u128::from(self.base_ms / self.trace.period_ms)
                * u128::from(self.trace.opportunities);
        let ms = now.as_nanos().div_ceil(NANOS_PER_MILLI);
        let lap = if self.looped {
            (ms - 1) / self.trace.period_ms
        } else {
            0
        };
        self.base_ms = lap * self.trace.period_ms;
        let target = ms - self.base_ms;
        let (block, runs) = self.trace.block_before(target);
        (self.position, self.ms) = (runs.position, runs.ms);
        let mut before =
            u128::from(block.before) + u128::from(lap) * u128::from(self.trace.opportunities);
        self.next_run();
        while self.time.is_some_and(|time| time < now) {
            before += u128::from(self.remaining);
            self.next_run();
        }
        u64::try_from(before.saturating_sub(position_before)).unwrap_or(u64::MAX)
    }

    /// Moves to the next run, in the next lap if need be.
    fn next_run(&mut self) {
        if self.position == self.trace.runs.len() {
            match self.base_ms.checked_add(self.trace.period_ms) {
                Some(base) if self.looped => (self.base_ms, self.position, self.ms) = (base, 0, 0),
                _ => {
                    (self.remaining, self.time) = (0, None);
                    return;
                }
            }
        }
        self.ms += get_varint(&self.trace.runs, &mut self.position);
        self.remaining = get_varint(&self.trace.runs, &mut self.position);
        // Past the end of the clock (584 years) nothing is delivered.
        self.time = (self.base_ms.checked_add(self.ms))
            .and_then(|ms| ms.checked_mul(NANOS_PER_MILLI))
            .map(Time::from_nanos);
        if self.time.is_none() {
            self.remaining = 0;
        }
    }
}

/// Collects times into runs.
#[derive(Default)]
pub(crate) struct Builder {
    runs: Vec<u8>,
    blocks: Vec<Block>,
    distinct: u64,
    opportunities: u64,
    /// The run being collected, and the end of the one before.
    ms: u64,
    count: u64,
    base_ms: u64,
}

impl Builder {
    pub(crate) fn push(&mut self, ms: u64) -> Result<(), Problem> {
        self.push_run(ms, 1)
    }

    fn push_run(&mut self, ms: u64, count: u64) -> Result<(), Problem> {
        if self.count > 0 && ms == self.ms {
            self.count += count;
            return Ok(());
        }
        if self.count > 0 && ms < self.ms {
            let (time, before) = (format!("{ms} ms"), format!("{} ms", self.ms));
            return Err(Problem::Backwards { time, before });
        }
        if self.distinct >= MAX_DISTINCT_MILLIS {
            return Err(Problem::TooLong(MAX_DISTINCT_MILLIS));
        }
        self.end_run();
        (self.ms, self.count) = (ms, count);
        Ok(())
    }

    fn end_run(&mut self) {
        if self.count == 0 {
            return;
        }
        if self.distinct.is_multiple_of(BLOCK) {
            let (base_ms, before, offset) = (self.base_ms, self.opportunities, self.runs.len());
            self.blocks.push(Block {
                base_ms,
                before,
                offset,
            });
        }
        put_varint(&mut self.runs, self.ms - self.base_ms);
        put_varint(&mut self.runs, self.count);
        self.base_ms = self.ms;
        self.distinct += 1;
        self.opportunities += self.count;
        self.count = 0;
    }

    pub(crate) fn finish(self, name: &str) -> Result<Trace, Problem> {
        self.finish_at(name, None)
    }

    /// Ends the trace with its own period, which is not before the last time.
    fn finish_at(mut self, name: &str, period_ms: Option<u64>) -> Result<Trace, Problem> {
        self.end_run();
        if self.opportunities == 0 {
            return Err(Problem::Empty);
        }
        let period_ms = period_ms.unwrap_or(self.ms);
        if period_ms == 0 {
            return Err(Problem::ZeroPeriod);
        }
        debug_assert!(period_ms >= self.ms);
        self.runs.shrink_to_fit();
        Ok(Trace {
            name: name.to_owned(),
            runs: self.runs,
            blocks: self.blocks,
            opportunities: self.opportunities,
            last_ms: self.ms,
            period_ms,
            hashes: None,
            made: OnceLock::new(),
        })
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn get_varint(bytes: &[u8], position: &mut usize) -> u64 {
    let mut byte = bytes[*position];
    *position += 1;
    let mut value = u64::from(byte & 0x7f);
    let mut shift = 7;
    while byte & 0x80 != 0 {
        byte = bytes[*position];
        *position += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
    }
    value
}

struct HashingWriter(Sha256);

impl Write for HashingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fills the file at `path` so that it appears whole or not at all. A device or pipe, which cannot be replaced, is
/// written in place. `/dev/stdout` is refused where it leads to a file: that would replace the link.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() && path.parent() == Some(Path::new("/dev")) => {
            let problem = "output is redirected to a file: name that file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(there) if !there.is_file() => {
            return fill(&mut fs::File::options().write(true).open(path)?);
        }
        _ => {}
    }
    let (temporary, mut file) = beside(path)?;
    let filled = fill(&mut file)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if filled.is_err() {
        // Nothing more can be done if this fails too, and the first error says more.
        let _ = fs::remove_file(&temporary);
    }
    filled
}

/// A new file in the same folder as `path`, where a rename stays within one file system.
fn beside(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for attempt in 0u32.. {
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{attempt}.part"));
        let temporary = path.with_file_name(temporary);
        match fs::File::create_new(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => {}
            outcome => return outcome.map(|file| (temporary, file)),
        }
    }
    unreachable!("the attempts end with an answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: impl AsRef<[u8]>) -> Result<Trace, String> {
        Trace::parse("town.down", text.as_ref()).map_err(|error| error.to_string())
    }

    fn times(trace: &Trace) -> Vec<u64> {
        trace.opportunities().collect()
    }

    #[test]
    fn a_repeated_line_is_another_opportunity() {
        let trace = parse("0\n5\n5\n5\n9\n").unwrap();
        assert_eq!(times(&trace), [0, 5, 5, 5, 9]);
        assert_eq!(trace.runs().collect::<Vec<_>>(), [(0, 1), (5, 3), (9, 1)]);
        assert_eq!(trace.len(), 5);
        assert_eq!(trace.period(), Duration::from_millis(9));
        assert_eq!(
            trace.mean_rate(Bytes::new(1500)),
            Rate::from_bps(5 * 12_000 * 1000 / 9)
        );
    }

    #[test]
    fn line_ends_and_trailing_blank_lines_do_not_matter() {
        let expected = parse("1\n2\n").unwrap();
        for text in ["1\n2", "1\r\n2\r\n", "1\n2\n\n", "1\n2\n\r\n\n"] {
            assert_eq!(parse(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let cases = "
            => : it holds no opportunities; a trace has one time in milliseconds on each line
            // => : it holds no opportunities; a trace has one time in milliseconds on each line
            0/0/ => : its last time is 0 ms, so it has no duration to repeat
            40/31/ => , line 2: time goes backwards (31 ms after 40 ms)
            1//2/ => , line 2: the line is blank
            # 5/ => , line 1: `# 5` is a comment; a trace holds only times
            1/-2/ => , line 2: the time `-2` is negative
            -/ => , line 1: `-` is not a time
            +2/ => , line 1: `+2` is not a time
            1 / => , line 1: `1 ` is not a time
            1.5/ => , line 1: `1.5` is not a whole number of milliseconds (a raw arrival log is turned into a trace by `verus trace convert`)
            hello/ => , line 1: `hello` is not a time
            18446744073709551616/ => , line 1: the time `18446744073709551616` does not fit in 64 bits
            99999999999999999999x/ => , line 1: `99999999999999999999x` is not a time";
        for case in cases.lines().skip(1) {
            // A `/` ends a line.
            let (text, problem) = case.split_once("=> ").expect("a case");
            let text = text.trim().replace('/', "\n");
            assert_eq!(
                parse(text).unwrap_err(),
                format!("trace `town.down`{problem}")
            );
        }
        let digits = "9".repeat(100);
        assert_eq!(
            parse(&digits).unwrap_err(),
            format!(
                "trace `town.down`, line 1: the time `{}…` does not fit in 64 bits",
                &digits[..40]
            )
        );
        assert_eq!(
            parse(b"1\n\xff\xfe\n").unwrap_err(),
            "trace `town.down`, line 2: not text (byte 0xff)"
        );
        assert_eq!(
            parse(b"1\n\0\0\n").unwrap_err(),
            "trace `town.down`, line 2: not text (byte 0x00, NUL; a crash may have damaged the file)"
        );
    }

    #[test]
    fn times_up_to_64_bits_are_read() {
        let trace = parse("1\n18446744073709551615\n").unwrap();
        assert_eq!(times(&trace), [1, u64::MAX]);
        let mut cursor = Cursor::new(Arc::new(trace), true);
        assert_eq!(cursor.seek(Time::from_millis(2)), 1);
        assert_eq!(cursor.time(), None, "beyond the clock's last instant");
    }

    #[test]
    fn counts_before_an_instant_include_earlier_laps() {
        let trace = parse("0\n4\n4\n10\n").unwrap();
        let before = |ms, looped| trace.opportunities_before(Time::from_millis(ms), looped);
        let expected = [
            (0, 0),
            (1, 1),
            (4, 1),
            (5, 3),
            (10, 3),
            (11, 5),
            (15, 7),
            (20, 7),
            (21, 9),
        ];
        for (ms, count) in expected {
            assert_eq!(before(ms, true), count, "looped, before {ms} ms");
            assert_eq!(before(ms, false), count.min(4), "once, before {ms} ms");
        }
        // Half a millisecond past 4 ms, those at 4 ms are past.
        assert_eq!(
            trace.opportunities_before(Time::from_nanos(4_500_000), true),
            3
        );
    }

    #[test]
    fn a_cursor_passes_as_many_as_the_index_counts() {
        // 1000 runs, so that the index has several entries; gaps and counts vary.
        let millis =
            (0..1000u64).flat_map(|i| vec![i * (1 + i % 7) + 10 * i * i / 7; 1 + i as usize % 3]);
        let mut millis: Vec<u64> = millis.collect();
        millis.sort_unstable();
        let trace = Arc::new(Trace::from_millis("made", millis.clone()).unwrap());
        assert_eq!(times(&trace), millis);
        for looped in [false, true] {
            for stride in [1, 9, 1_000, 100_003, 3 * trace.period_ms() + 17] {
                let mut cursor = Cursor::new(trace.clone(), looped);
                let mut passed = 0;
                for step in 0..50 {
                    let now = Time::from_nanos(step * stride * 1_000_000 + 300_000);
                    passed += cursor.seek(now);
                    assert_eq!(passed, trace.opportunities_before(now, looped));
                    if cursor.time().is_some() && step % 2 == 0 {
                        cursor.skip(1 + step % 5);
                        passed += 1 + step % 5;
                        let next = cursor
                            .time()
                            .map_or(Time::MAX, |time| time + Duration::from_nanos(1));
                        passed = passed.min(trace.opportunities_before(next, looped));
                    }
                    if cursor
                        .time()
                        .is_some_and(|time| time >= now + Duration::from_millis(stride))
                    {
                        break;
                    }
                }
            }
        }
    }

    #[cfg(all(feature = "gzip", feature = "xz"))]
    mod compressed {
        use super::*;

        fn folder(name: &str) -> PathBuf {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../target/test-traces")
                .join(name);
            let folder = std::env::var_os("CARGO_TARGET_TMPDIR")
                .map_or(folder, |tmp| PathBuf::from(tmp).join(name));
            fs::create_dir_all(&folder).unwrap();
            folder
        }

        #[test]
        fn what_is_written_is_read_back_whatever_the_compression() {
            let folder = folder("round-trip");
            let trace = Trace::from_millis("made", (0..5000).map(|i| i * i / 100)).unwrap();
            for file in ["a.trace", "a.gz", "a.xz"] {
                let path = folder.join(file);
                trace.write(&path).unwrap();
                let read = Trace::read(&path).unwrap();
                assert_eq!(read, trace);
                assert_eq!(read.sha256(), trace.sha256());
                assert_eq!(
                    read.stored_sha256() == Some(&read.sha256()),
                    file == "a.trace"
                );
                // The bytes decide, not the name.
                let other = folder.join("renamed");
                fs::copy(&path, &other).unwrap();
                assert_eq!(Trace::read(&other).unwrap(), trace);
            }
            let remaining: Vec<_> = fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(
                remaining.len(),
                4,
                "no temporary file remains: {remaining:?}"
            );
            fs::remove_dir_all(folder).unwrap();
        }

        #[test]
        fn compressed_data_cut_anywhere_are_refused() {
            let folder = folder("cut");
            let trace = Trace::from_millis("made", (1..2000).map(|i| i * i / 100)).unwrap();
            for (file, format) in [("cut.gz", "gzip"), ("cut.xz", "xz")] {
                let path = folder.join(file);
                trace.write(&path).unwrap();
                let bytes = fs::read(&path).unwrap();
                for length in [
                    1,
                    5,
                    6,
                    11,
                    bytes.len() / 2,
                    bytes.len() - 13,
                    bytes.len() - 1,
                ] {
                    let error = Trace::parse(file, &bytes[..length])
                        .unwrap_err()
                        .to_string();
                    let start =
                        format!("trace `{file}`: the {format} data are damaged or cut short");
                    assert!(
                        error.starts_with(&start),
                        "{length} bytes of {file}: {error}"
                    );
                }
                let mut damaged = bytes.clone();
                damaged[bytes.len() / 2] ^= 0x10;
                assert!(Trace::parse(file, damaged.as_slice()).is_err());
            }
            fs::remove_dir_all(folder).unwrap();
        }

        #[test]
        fn a_folder_and_a_missing_file_are_named() {
            let error = Trace::read(Path::new("src")).unwrap_err().to_string();
            assert_eq!(error, "cannot read `src`: is a directory");
            let error = Trace::read(Path::new("no/such")).unwrap_err().to_string();
            assert!(error.starts_with("cannot read `no/such`: "), "{error}");
        }
    }
}
