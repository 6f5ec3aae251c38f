//! Mahimahi link logs: every metric from one, and a writer for the same format.
//!
//! A log is text, one event a line, times in whole milliseconds:
//!
//! ```text
//! # base timestamp: 37        comments come first; this one is the first event's time
//! 37 # 1504                   the link could carry 1504 bytes
//! 74 + 1482                   a packet of 1482 bytes reached the queue, to be dropped or not
//! 75 - 1482 1                 a packet left, 1 ms after it had reached the queue
//! 90 d 2 2964                 two packets of 2964 bytes together were dropped
//! ```
//!
//! A log contains only the bottleneck queue, without propagation and without flow identifiers. So a
//! log is one flow, and its goodput, round-trip times and power are unknown.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};

use serde::Serialize;
use verus_core::{Bytes, Duration, Time};

use crate::meter::{Meter, rate_series};
use crate::metrics::Metrics;

/// Longest line that is read; the command line of an experiment may be in a comment.
const MAX_LINE: usize = 64 * 1024;
/// Longest log, 10⁸ ms or 27 hours: bounds the memory that a forged time can claim.
const MAX_SPAN_MS: u64 = 100_000_000;
/// Largest size of a packet or an opportunity in bytes; a packet of Mahimahi has at most 1504.
const MAX_SIZE: u64 = 1 << 24;
/// Most milliseconds for which arrivals without a known fate are kept. It bounds the memory of the
/// estimate of drops.
const MAX_WAITING: usize = 1 << 20;
/// Time series of a log, as of a run.
const BIN: Duration = Duration::from_millis(100);

/// Why a log cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source of the bytes failed.
    #[error("log `{name}`, after line {line}: {source}")]
    Read {
        /// The log.
        name: String,
        /// Lines read until then.
        line: u64,
        /// The source's error.
        source: io::Error,
    },
    /// A line is invalid there.
    #[error("log `{name}`, line {line}: {what}")]
    Line {
        /// The log.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// The field and its error.
        what: String,
    },
    /// More packets waited than are kept to tell which of them were dropped.
    #[error("log `{name}`: too many packets wait to tell which of them were dropped")]
    TooManyWaiting {
        /// The log.
        name: String,
    },
    /// There is no event at all.
    #[error("log `{name}` has no events (lines such as `37 # 1504` or `74 + 1482`)")]
    Empty {
        /// The log.
        name: String,
    },
}

/// A report of a link log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogReport {
    /// `base timestamp` of the header, ms.
    pub base_timestamp: Option<u64>,
    /// Time of the first event, ms.
    pub first_ms: u64,
    /// From the first event to the last, s; every rate is over this.
    pub duration_s: f64,
    /// Delivery opportunities.
    pub opportunities: u64,
    /// Packets that reached the queue.
    pub arrivals: u64,
    /// Packets that left it.
    pub departures: u64,
    /// Bytes that reached the queue.
    pub arrived_bytes: u64,
    /// Bytes that left it.
    pub departed_bytes: u64,
    /// Packets that the log says were dropped. Old versions do not log drops, and no version logs
    /// those of CoDel and PIE at the head of the queue.
    pub drops_logged: u64,
    /// Arrivals − departures − arrivals after the last departed packet entered. As the queue is
    /// FIFO, the remainder must have been dropped. `None` if too many packets were waiting to tell.
    pub dropped_estimate: Option<u64>,
    /// Arrivals − departures: dropped, or queued at the end.
    pub not_departed: u64,
    /// All metrics. The drops in them, and the loss rate, are the larger of the logged and the
    /// estimated number.
    pub metrics: Metrics,
    /// The link's capacity, Mbit/s, in the bins of `metrics.series`, which count from the first
    /// event.
    #[serde(skip)]
    pub capacity_mbps: Vec<f64>,
}

/// All metrics of the log called `name` in messages, read from `source` (decompressed). Memory is
/// bounded by the log's time, not by its size.
///
/// # Errors
/// If reading fails, a line is not an event or a comment, time goes backwards, or a departure
/// contradicts the arrivals; the message names log, line and field.
pub fn analyze(name: &str, source: impl Read) -> Result<LogReport, Error> {
    let log = read(name, source, Log::new())?;
    log.finish().ok_or_else(|| Error::Empty {
        name: name.to_owned(),
    })
}

/// The fate of each packet of a log, and the link's opportunities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fates {
    /// Whether each packet was dropped, in the order of arrival, up to the last one that departed.
    /// Of the arrivals of one millisecond, those that departed are taken to have come first.
    pub lost: Vec<bool>,
    /// Times of the opportunities from the first event on, ms, and their bytes.
    pub opportunities: Vec<(u64, u64)>,
}

/// The fates of the log called `name` in messages, read from `source` as [`analyze`] reads it.
///
/// # Errors
/// As [`analyze`]; also if too many packets were waiting to tell which of them were dropped.
pub fn fates(name: &str, source: impl Read) -> Result<Fates, Error> {
    let mut log = Log::new();
    log.waiting.fates = Some(Fates::default());
    let log = read(name, source, log)?;
    let fates = log.waiting.fates.filter(|_| log.first_ms.is_some());
    match fates {
        Some(_) if log.waiting.overflowed => Err(Error::TooManyWaiting {
            name: name.to_owned(),
        }),
        Some(fates) => Ok(fates),
        None => Err(Error::Empty {
            name: name.to_owned(),
        }),
    }
}

/// Whether a file that begins with this line is a log.
pub fn is_log(first_line: &[u8]) -> bool {
    let line = first_line.trim_ascii();
    let kind = line.split(u8::is_ascii_whitespace).nth(1);
    line.starts_with(b"#") || matches!(kind, Some(b"+" | b"-" | b"#" | b"d"))
}

/// Reads all lines of `source` into `log`.
fn read(name: &str, source: impl Read, mut log: Log) -> Result<Log, Error> {
    let mut reader = BufReader::with_capacity(MAX_LINE, source);
    let mut text = Vec::new();
    let mut line = 0;
    loop {
        text.clear();
        let read = (&mut reader)
            .take(MAX_LINE as u64 + 1)
            .read_until(b'\n', &mut text);
        match read {
            Ok(0) => break,
            Ok(_) => line += 1,
            Err(source) => {
                return Err(Error::Read {
                    name: name.to_owned(),
                    line,
                    source,
                });
            }
        }
        let parsed = if text.len() > MAX_LINE {
            Err(format!("longer than {MAX_LINE} bytes"))
        } else {
            log.line(text.trim_ascii()).map_err(|what| {
                let hint = if log.is_empty() { another(&text) } else { "" };
                format!("{what}{hint}")
            })
        };
        parsed.map_err(|what| Error::Line {
            name: name.to_owned(),
            line,
            what,
        })?;
    }
    Ok(log)
}

/// The lines of a source that have an end. The last line of a log whose writer was killed may be cut anywhere, also within
/// a number, and cannot be told from a whole one.
#[derive(Debug)]
pub struct WholeLines<R> {
    source: R,
    text: Vec<u8>,
    /// How much of `text` was read, and how much of it is lines with an end.
    read: usize,
    whole: usize,
    has_ended: bool,
}

impl<R: Read> WholeLines<R> {
    /// Those of `source`.
    pub fn new(source: R) -> Self {
        WholeLines {
            source,
            text: Vec::new(),
            read: 0,
            whole: 0,
            has_ended: false,
        }
    }

    /// Whether the last line had no end, and was left out.
    pub fn left_out(&self) -> bool {
        self.has_ended && self.whole < self.text.len()
    }
}

impl<R: Read> Read for WholeLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.whole && !self.has_ended {
            self.text.drain(..self.whole);
            (self.read, self.whole) = (0, 0);
            let before = self.text.len();
            self.text.resize(before + MAX_LINE, 0);
            let got = self.source.read(&mut self.text[before..]);
            let end = before + got.as_ref().map_or(0, |got| *got);
            self.text.truncate(end);
            self.has_ended = got? == 0;
            let last = self.text.iter().rposition(|byte| *byte == b'\n');
            // A line that is too long is passed on, to be refused.
            let passed = if end > MAX_LINE { end } else { 0 };
            self.whole = last.map_or(passed, |last| last + 1);
        }
        let count = buffer.len().min(self.whole - self.read);
        buffer[..count].copy_from_slice(&self.text[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// A hint for a file that does not begin as a log does: the format of a log, and this file's likely
/// format.
fn another(line: &[u8]) -> &'static str {
    let line = line.trim_ascii();
    if is_log(line) {
        ""
    } else if !line.is_empty() && line.iter().all(u8::is_ascii_digit) {
        "; a link log of Mahimahi has lines such as `74 + 1482`, and this looks like a trace (`verus trace info`)"
    } else if line.starts_with(b"{") || line.starts_with(b"[") {
        "; a link log of Mahimahi has lines such as `74 + 1482`, and this looks like JSON"
    } else {
        "; a link log of Mahimahi has lines such as `74 + 1482`"
    }
}

/// Analyses arbitrary bytes and checks the invariants of any log; for fuzzing.
///
/// # Panics
/// If a report contradicts itself.
pub fn fuzz(data: &[u8]) {
    let Ok(report) = analyze("fuzz", data) else {
        return;
    };
    if let Ok(fates) = fates("fuzz", data) {
        let departed = fates.lost.iter().filter(|lost| !**lost).count() as u64;
        assert!(departed <= report.departures);
        assert!(fates.lost.len() as u64 <= report.arrivals);
        assert!(fates.opportunities.len() as u64 <= report.opportunities);
    }
    let metrics = &report.metrics;
    assert!(report.departures <= report.arrivals);
    assert!(report.not_departed >= report.dropped_estimate.unwrap_or(0));
    assert!(
        [metrics.capacity_mbps, metrics.throughput_mbps]
            .iter()
            .all(|rate| rate.is_finite() && *rate >= 0.0)
    );
    let fractions = [metrics.loss_rate, metrics.jain];
    assert!(
        fractions
            .iter()
            .flatten()
            .all(|fraction| (0.0..=1.0).contains(fraction))
    );
    let delays = [
        metrics.qdelay_p50_ms,
        metrics.qdelay_p95_ms,
        metrics.qdelay_p99_ms,
        metrics.qdelay_max_ms,
    ];
    assert!(
        delays
            .iter()
            .all(|delay| delay.is_some() == (report.departures > 0))
    );
    assert!(delays.is_sorted());
}

/// The state read so far. Times are kept from the first event.
struct Log {
    meter: Meter,
    base_timestamp: Option<u64>,
    first_ms: Option<u64>,
    last: u64,
    /// When the last packet to leave had entered.
    entered: u64,
    opportunities: u64,
    capacity_bytes: u64,
    /// Bytes the link could carry, per bin.
    capacity: Vec<u64>,
    arrivals: u64,
    arrived_bytes: u64,
    departures: u64,
    departed_bytes: u64,
    drops_logged: u64,
    dropped_bytes: u64,
    waiting: Waiting,
}

impl Log {
    fn new() -> Self {
        let mut meter = Meter::new(1, &[], BIN);
        meter.whole_milliseconds();
        meter.measure_from(Time::ZERO);
        Log {
            meter,
            base_timestamp: None,
            first_ms: None,
            last: 0,
            entered: 0,
            opportunities: 0,
            capacity_bytes: 0,
            capacity: Vec::new(),
            arrivals: 0,
            arrived_bytes: 0,
            departures: 0,
            departed_bytes: 0,
            drops_logged: 0,
            dropped_bytes: 0,
            waiting: Waiting::default(),
        }
    }

    /// Whether there was no event yet.
    fn is_empty(&self) -> bool {
        self.opportunities + self.arrivals + self.departures + self.drops_logged == 0
    }

    /// Takes one line; the error says which field is wrong.
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        if let Some(comment) = line.strip_prefix(b"#") {
            return self.comment(comment.trim_ascii());
        }
        let mut fields = line
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|field| !field.is_empty());
        let mut field = |what: &str| {
            fields
                .next()
                .ok_or_else(|| format!("the {what} is missing"))
        };
        let time = number(
            "time in milliseconds",
            field("time in milliseconds")?,
            u64::MAX,
        )?;
        let now = self.advance(time)?;
        match field("kind of event")? {
            b"#" => {
                let size = number("size", field("size")?, MAX_SIZE)?;
                self.on_opportunity(size);
            }
            b"+" => {
                let size = number("size", field("size")?, MAX_SIZE)?;
                self.arrivals += 1;
                self.arrived_bytes += size;
                self.waiting.on_arrival(self.last, size);
                self.meter.on_arrival(now, 0, Bytes::new(size));
            }
            b"-" => {
                let size = number("size", field("size")?, MAX_SIZE)?;
                let delay = number("delay", field("delay")?, u64::MAX)?;
                self.on_departure(now, size, delay)?;
            }
            b"d" => {
                let packets = number("number of packets", field("number of packets")?, u64::MAX)?;
                let size = number("size", field("size")?, u64::MAX)?;
                self.on_drop(packets, size)?;
            }
            other => {
                return Err(format!(
                    "{} is not a kind of event (`+`, `-`, `#` or `d`)",
                    shown(other)
                ));
            }
        }
        match fields.next() {
            None => Ok(()),
            Some(extra) => Err(format!("{} is one field too many", shown(extra))),
        }
    }

    fn comment(&mut self, comment: &[u8]) -> Result<(), String> {
        if let Some(base) = comment.strip_prefix(b"base timestamp:") {
            self.base_timestamp = Some(number("base timestamp", base.trim_ascii(), u64::MAX)?);
        }
        Ok(())
    }

    /// Moves to an event at `time` ms.
    fn advance(&mut self, time: u64) -> Result<Time, String> {
        let first = *self.first_ms.get_or_insert(time);
        let last = first + self.last;
        if time < last {
            return Err(format!("time goes backwards ({time} ms after {last} ms)"));
        }
        if time - first > MAX_SPAN_MS {
            return Err(format!(
                "{time} ms is more than 27 hours after the first event, at {first} ms"
            ));
        }
        self.last = time - first;
        Ok(Time::from_millis(self.last))
    }

    fn on_opportunity(&mut self, size: u64) {
        self.opportunities += 1;
        self.capacity_bytes += size;
        let bin = bin_of(Time::from_millis(self.last));
        if self.capacity.len() <= bin {
            self.capacity.resize(bin + 1, 0);
        }
        self.capacity[bin] += size;
        if let Some(fates) = &mut self.waiting.fates {
            fates.opportunities.push((self.last, size));
        }
    }

    fn on_departure(&mut self, now: Time, size: u64, delay: u64) -> Result<(), String> {
        let entered = self.last.checked_sub(delay).ok_or_else(|| {
            format!(
                "a delay of {delay} ms is longer than the log so far ({} ms)",
                self.last
            )
        })?;
        if entered < self.entered {
            return Err(format!(
                "a delay of {delay} ms means that it overtook the packet before it"
            ));
        }
        if self.departures == self.arrivals {
            return Err(format!(
                "more packets leave than the {} that arrived",
                self.arrivals
            ));
        }
        self.entered = entered;
        self.departures += 1;
        self.departed_bytes += size;
        self.waiting.on_departure(entered, size);
        self.meter
            .on_departure(now, 0, Bytes::new(size), Time::from_millis(entered));
        Ok(())
    }

    fn on_drop(&mut self, packets: u64, size: u64) -> Result<(), String> {
        let drops = self.drops_logged.saturating_add(packets);
        if drops > self.arrivals {
            return Err(format!(
                "more packets are dropped ({drops}) than arrived ({})",
                self.arrivals
            ));
        }
        self.drops_logged = drops;
        self.dropped_bytes = self.dropped_bytes.saturating_add(size);
        Ok(())
    }

    /// The report, unless there was no event.
    fn finish(mut self) -> Option<LogReport> {
        let first_ms = self.first_ms?;
        let end = Time::from_millis(self.last);
        let not_departed = self.arrivals - self.departures;
        let after = self.waiting.after_last_departed();
        let dropped_estimate = after.map(|(packets, _)| not_departed.saturating_sub(packets));
        let dropped_bytes = after.map(|(_, bytes)| {
            self.arrived_bytes
                .saturating_sub(self.departed_bytes)
                .saturating_sub(bytes)
        });
        match (dropped_estimate, dropped_bytes) {
            (Some(packets), Some(bytes)) if packets > self.drops_logged => {
                self.meter.on_drops(0, packets, Bytes::new(bytes));
            }
            _ => self
                .meter
                .on_drops(0, self.drops_logged, Bytes::new(self.dropped_bytes)),
        }
        let capacity_bytes = Bytes::new(self.capacity_bytes);
        let capacity = self.capacity;
        let capacity_mbps = rate_series(end, BIN, |from, to| {
            // Opportunities at the very end have a bin of no width: they join the one before.
            let last = if to == end { bin_of(end) } else { bin_of(from) };
            Bytes::new(capacity.iter().take(last + 1).skip(bin_of(from)).sum())
        });
        let mut metrics = self.meter.finish(end, |_, _| capacity_bytes);
        // A log begins at the queue.
        metrics.path_loss_rate = None;
        for flow in &mut metrics.per_flow {
            flow.path_loss_rate = None;
        }
        Some(LogReport {
            base_timestamp: self.base_timestamp,
            first_ms,
            duration_s: end.as_secs_f64(),
            opportunities: self.opportunities,
            arrivals: self.arrivals,
            departures: self.departures,
            arrived_bytes: self.arrived_bytes,
            departed_bytes: self.departed_bytes,
            drops_logged: self.drops_logged,
            dropped_estimate,
            not_departed,
            metrics,
            capacity_mbps,
        })
    }
}

/// Arrivals that may still be queued, counted per millisecond: those after the entry of the last
/// departed packet. In one millisecond those that departed are taken to have come first, so that a
/// packet that may be queued is never taken for a dropped one.
#[derive(Default)]
struct Waiting {
    /// In order of time, none without packets.
    arrivals: VecDeque<Arrived>,
    packets: u64,
    bytes: u64,
    /// Whether some had to be forgotten.
    overflowed: bool,
    /// Fates of the packets that wait no longer, where they are asked for.
    fates: Option<Fates>,
}

struct Arrived {
    at: u64,
    packets: u64,
    bytes: u64,
}

impl Waiting {
    fn on_arrival(&mut self, at: u64, size: u64) {
        let full = self.arrivals.len() == MAX_WAITING;
        match self.arrivals.back_mut() {
            Some(last) if last.at == at => {
                last.packets += 1;
                last.bytes += size;
            }
            _ if full => {
                self.overflowed = true;
                return;
            }
            _ => self.arrivals.push_back(Arrived {
                at,
                packets: 1,
                bytes: size,
            }),
        }
        self.packets += 1;
        self.bytes += size;
    }

    fn on_departure(&mut self, entered: u64, size: u64) {
        while let Some(first) = self
            .arrivals
            .front_mut()
            .filter(|first| first.at <= entered)
        {
            if let Some(fates) = &mut self.fates {
                let departs = first.at == entered;
                let packets = if departs { 1 } else { first.packets };
                fates.lost.extend((0..packets).map(|_| !departs));
            }
            if first.at == entered && first.packets > 1 {
                let size = size.min(first.bytes);
                first.packets -= 1;
                first.bytes -= size;
                self.packets -= 1;
                self.bytes -= size;
                break;
            }
            self.packets -= first.packets;
            self.bytes -= first.bytes;
            self.arrivals.pop_front();
        }
    }

    /// Packets and bytes; `None` if some were forgotten.
    fn after_last_departed(&self) -> Option<(u64, u64)> {
        (!self.overflowed).then_some((self.packets, self.bytes))
    }
}

/// The bin that `at` is in.
fn bin_of(at: Time) -> usize {
    // At most `MAX_SPAN_MS` over the width of a bin.
    (at.as_nanos() / BIN.as_nanos()) as usize
}

/// A decimal number of at most `most`.
fn number(what: &str, field: &[u8], most: u64) -> Result<u64, String> {
    if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
        return Err(format!("{} is not a {what}", shown(field)));
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let value = field.iter().try_fold(0, add);
    value
        .filter(|value| *value <= most)
        .ok_or_else(|| format!("{} is too large for a {what}", shown(field)))
}

/// A field as messages quote it: printable and short.
fn shown(field: &[u8]) -> String {
    const MOST: usize = 32;
    let cut = &field[..field.len().min(MOST)];
    let dots = if field.len() > MOST { "…" } else { "" };
    format!("`{}{dots}`", cut.escape_ascii())
}

/// Writes a link log that [`analyze`] and Mahimahi's scripts read. Instants are rounded down to
/// the millisecond, so a delay is the difference of two rounded instants.
#[derive(Debug)]
pub struct LogWriter<W: Write> {
    to: W,
}

impl<W: Write> LogWriter<W> {
    /// Begins a log with Mahimahi's header: `link` is its direction (`Uplink` or `Downlink`),
    /// `queue` the queue as the user gave it, `base` the time of the first event. Line breaks in
    /// the texts become spaces.
    ///
    /// # Errors
    /// As the writer.
    pub fn new(mut to: W, link: &str, trace: &str, queue: &str, base: Time) -> io::Result<Self> {
        let one_line = |text: &str| text.replace(['\n', '\r'], " ");
        writeln!(
            to,
            "# mahimahi mm-link ({}) [{}]",
            one_line(link),
            one_line(trace)
        )?;
        writeln!(to, "# queue: {}", one_line(queue))?;
        writeln!(to, "# base timestamp: {}", base.as_millis())?;
        Ok(LogWriter { to })
    }

    /// The link can carry `size`.
    ///
    /// # Errors
    /// As the writer.
    pub fn opportunity(&mut self, now: Time, size: Bytes) -> io::Result<()> {
        writeln!(self.to, "{} # {}", now.as_millis(), size.get())
    }

    /// A packet reaches the queue, to be dropped or not.
    ///
    /// # Errors
    /// As the writer.
    pub fn arrival(&mut self, now: Time, size: Bytes) -> io::Result<()> {
        writeln!(self.to, "{} + {}", now.as_millis(), size.get())
    }

    /// A packet that entered at `entered` leaves.
    ///
    /// # Errors
    /// As the writer.
    pub fn departure(&mut self, now: Time, size: Bytes, entered: Time) -> io::Result<()> {
        let delay = now.as_millis().saturating_sub(entered.as_millis());
        writeln!(self.to, "{} - {} {delay}", now.as_millis(), size.get())
    }

    /// `packets` packets of `size` altogether, which had reached the queue, are dropped.
    ///
    /// # Errors
    /// As the writer.
    pub fn dropped(&mut self, now: Time, packets: u64, size: Bytes) -> io::Result<()> {
        writeln!(self.to, "{} d {packets} {}", now.as_millis(), size.get())
    }

    /// The writer, flushed.
    ///
    /// # Errors
    /// As the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}
