//! Errors of traces, raw logs and channel names.

use std::io;

/// The fastest constant rate, in Mbit/s: a message names it.
pub(crate) const FASTEST_MBPS: f64 = 10_000_000.0;

/// Why a trace, a raw arrival log or a channel could not be read, written or found. Each message
/// names the file (or name) and, where there is one, the line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file itself could not be opened, read or written.
    #[error("cannot {action} `{name}`: {source}")]
    Io {
        /// The attempted operation: `read`, `write`.
        action: &'static str,
        /// The file, as the caller named it.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A line that is not what the format asks for.
    #[error("{what} `{name}`, line {line}: {problem}")]
    Line {
        /// The kind of file: `trace` or `raw arrival log`.
        what: &'static str,
        /// The file, as the caller named it.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// The mistake.
        problem: Problem,
    },
    /// The whole of it makes no channel.
    #[error("{what} `{name}`: {problem}")]
    Whole {
        /// The kind of file: `trace` or `raw arrival log`.
        what: &'static str,
        /// The file, as the caller named it.
        name: String,
        /// The mistake.
        problem: Problem,
    },
    /// Compressed data that are damaged, cut short, or not compressed data at all.
    #[error("{what} `{name}`: the {format} data are damaged or cut short ({reason})")]
    Compressed {
        /// The kind of file.
        what: &'static str,
        /// The file, as the caller named it.
        name: String,
        /// `gzip` or `xz`.
        format: &'static str,
        /// The decoder's error.
        reason: String,
    },
    /// This build leaves out a compression format.
    #[error("`{name}`: this build was made without {format} (feature `{feature}`)")]
    NoSupport {
        /// The file, as the caller named it.
        name: String,
        /// `gzip` or `xz`.
        format: &'static str,
        /// The cargo feature that adds it.
        feature: &'static str,
    },
    /// No channel has this name.
    #[error("unknown channel `{text}`: {hint}")]
    UnknownChannel {
        /// The requested text.
        text: String,
        /// Near matches, or where to look.
        hint: String,
    },
    /// A public recording that is known but not on this machine.
    #[error("the recording `{name}` is not on this machine; `verus trace fetch {name}` brings it")]
    NotFetched {
        /// Its name in the catalogue.
        name: String,
    },
    /// No recording or group of recordings has this name.
    #[error("unknown recording `{text}`: {hint}")]
    UnknownRecording {
        /// The requested text.
        text: String,
        /// Near matches, or what there is.
        hint: String,
    },
    /// A recording whose content differs from the published one.
    #[error(
        "`{name}` is not the published file (SHA-256 {found}, expected {expected}); `verus trace fetch {name}` brings it again"
    )]
    Mismatch {
        /// Its name in the catalogue.
        name: String,
        /// The SHA-256 in the catalogue.
        expected: String,
        /// The SHA-256 of the file.
        found: String,
    },
    /// A channel put together from others, a part of which cannot be used.
    #[error("channel `{text}`:{part} {problem}")]
    Expression {
        /// The requested text.
        text: String,
        /// The part, in words of the message; empty if there is only one.
        part: String,
        /// The mistake.
        problem: String,
    },
    /// A constant rate that is no rate.
    #[error(
        "channel `{text}`: `{value}` is not a rate in Mbit/s (a number above 0 and at most {most}, such as rate:12; \
         units are k, M and G, with or without bps or bit/s, as in rate:500k or rate:12Mbps)",
        most = FASTEST_MBPS
    )]
    BadRate {
        /// The requested text.
        text: String,
        /// The part after `rate:`.
        value: String,
    },
}

/// A mistake in a line or in the whole.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A trace without opportunities.
    #[error("it holds no opportunities; a trace has one time in milliseconds on each line")]
    Empty,
    /// A raw log without arrivals.
    #[error("it holds no arrivals; a raw log has one Unix time in seconds on each line")]
    NoArrivals,
    /// A period of zero.
    #[error("its last time is 0 ms, so it has no duration to repeat")]
    ZeroPeriod,
    /// A raw log whose trace would have a period of zero.
    #[error("all of it lies within one millisecond, so it has no duration to repeat")]
    OneInstant,
    /// A line without anything on it, before others.
    #[error("the line is blank")]
    Blank,
    /// A comment.
    #[error("`{0}` is a comment; a trace holds only times")]
    Comment(String),
    /// A minus sign.
    #[error("the time `{0}` is negative")]
    Negative(String),
    /// Digits with a fraction, where whole milliseconds are due.
    #[error(
        "`{0}` is not a whole number of milliseconds (a raw arrival log is turned into a trace by `verus trace convert`)"
    )]
    Fraction(String),
    /// Several numbers where one is due.
    #[error(
        "`{0}` has several columns; a trace has one time in milliseconds on each line (`verus trace convert --rates` \
         turns rates into one, given rows of start_s,end_s,mbps below that header)"
    )]
    Columns(String),
    /// Text of two bytes a letter.
    #[error("it is UTF-16 text; save it as UTF-8")]
    Utf16,
    /// A compression or an archive that is not read.
    #[error("it is compressed by {0}; unpack it, or compress it by gzip or xz")]
    Packed(&'static str),
    /// Anything but a whole number of milliseconds.
    #[error("`{0}` is not a whole number of milliseconds")]
    NotWholeMillis(String),
    /// A rate series that does not begin as one.
    #[error("the first line must be `start_s,end_s,mbps`, not `{0}`")]
    NoHeader(String),
    /// A row of a rate series that is none.
    #[error("`{0}` is not a row of start_s,end_s,mbps")]
    NotARow(String),
    /// A row that does not follow the one before.
    #[error("a row must begin where the one before ended ({end} s), not at {start} s")]
    NotNext {
        /// Its beginning, s.
        start: f64,
        /// The required beginning, s.
        end: f64,
    },
    /// A row that takes no time.
    #[error("a row must end after it begins, not at {0} s")]
    NoSpan(f64),
    /// A rate series without a rate.
    #[error(
        "it holds no rate above 0; a rate series has rows of start_s,end_s,mbps below that header"
    )]
    NoRates,
    /// A delay series without a delay.
    #[error(
        "it holds no delay above 0; a delay series has one whole number of milliseconds on each line"
    )]
    NoDelays,
    /// A loss series without a line.
    #[error("it holds no probabilities; a loss series has one between 0 and 1 on each line")]
    NoLosses,
    /// A line of a loss series that is no probability.
    #[error("`{0}` is not a probability between 0 and 1")]
    NoProbability(String),
    /// A delay that no link has.
    #[error("a delay of `{0}` ms is above {1} ms")]
    LongDelay(String, u32),
    /// A line of a light trace that is no packet train.
    #[error(
        "`{0}` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`"
    )]
    NoTrain(String),
    /// A train whose first packet is not at the beginning.
    #[error("the first packet of a train is at offset 0 ms, not at {0} ms")]
    FirstOffset(u32),
    /// A train at a time that no recording reaches, and the last that may be, ms.
    #[error("a train at {0} ms is later than {1} ms")]
    LateTrain(u64, u64),
    /// A light trace of this number of lines, which replays nothing.
    #[error(
        "{0} lines; a light trace has a packet train on each of at least two lines, and one more that ends the last"
    )]
    FewTrains(usize),
    /// More packets in trains than are kept in memory.
    #[error("more than {0} packets in its trains; cut the recording into parts")]
    TooManyPackets(usize),
    /// A line past any that the format has.
    #[error("the line is longer than {0} bytes")]
    LongLine(u64),
    /// A line of size offsets that is not that of the size whose turn it is.
    #[error("`{0}` is not the offset of {1} bytes: the size and milliseconds, such as `{1} 0.5`")]
    NoSize(String, u64),
    /// Size offsets of too few sizes.
    #[error("offsets of {0} sizes; a file of size offsets has 14, of 100, 200, … 1400 bytes")]
    FewSizes(usize),
    /// A line after the last size.
    #[error("size offsets end with that of 1400 bytes")]
    ManySizes,
    /// More lines than are kept in memory.
    #[error("more than {0} lines")]
    TooManyLines(u64),
    /// A line that is not a number.
    #[error("`{0}` is not a time")]
    NotATime(String),
    /// Bytes that are not UTF-8 text.
    #[error(
        "not text (byte {0:#04x}{part})",
        part = if *.0 == 0 { ", NUL; a crash may have damaged the file" } else { "" }
    )]
    NotText(u8),
    /// A number past what 64 bits hold.
    #[error("the time `{0}` does not fit in 64 bits")]
    TooLarge(String),
    /// A time that counts milliseconds or finer where seconds are meant.
    #[error("`{0}` is no Unix time in seconds: divide milliseconds by 1000")]
    NotSeconds(String),
    /// Earlier than the line before.
    #[error("time goes backwards ({time} after {before})")]
    Backwards {
        /// This line's time, with its unit.
        time: String,
        /// The line's before, with its unit.
        before: String,
    },
    /// More than is kept in memory.
    #[error("more than {0} distinct milliseconds; cut the recording into parts")]
    TooLong(u64),
}

impl Problem {
    pub(crate) fn of_line(self, what: &'static str, name: &str, line: u64) -> Error {
        Error::Line {
            what,
            name: name.to_owned(),
            line,
            problem: self,
        }
    }

    pub(crate) fn of_whole(self, what: &'static str, name: &str) -> Error {
        Error::Whole {
            what,
            name: name.to_owned(),
            problem: self,
        }
    }
}
