//! Rate series: what a channel carried in each stretch of time, turned into a trace.
//!
//! A header `start_s,end_s,mbps`, and then a row for each stretch, which begins where the one
//! before ended: seconds, and Mbit/s of payload as received. Opportunities of [`OPPORTUNITY`] are
//! spread evenly within a row, each in the millisecond of its last bit. An incomplete opportunity
//! is carried over to the next row. The trace lacks details below a row, such as bursts within a
//! second; a row of 0 is an outage.

use std::path::Path;

use verus_core::Bytes;

use crate::error::{Error, Problem};
use crate::lines::{self, excerpt, not_text};
use crate::trace::{MAX_DISTINCT_MILLIS, Trace};

/// Bytes of payload that make an opportunity.
pub const OPPORTUNITY: Bytes = Bytes::new(1500);

const WHAT: &str = "rate series";
const HEADER: &[u8] = b"start_s,end_s,mbps";
/// The fastest row, Mbit/s, as a constant rate's.
const FASTEST_MBPS: f64 = 10_000_000.0;
/// The last end of a row, µs: all that a trace can hold.
const LONGEST_MICROS: f64 = MAX_DISTINCT_MILLIS as f64 * 1e3;
/// An opportunity in bits times 10⁶, what a rate in bit/s carries in that many microseconds.
const WORK: u128 = OPPORTUNITY.get() as u128 * 8 * 1_000_000;

/// Reads the rate series in the file at `path`, plain or compressed, as a trace.
///
/// # Errors
/// If it cannot be read or is no such series; the message names the file and the line.
pub fn read(path: &Path) -> Result<Trace, Error> {
    let (name, file) = lines::open(path)?;
    parse(&name, file)
}

/// Reads a rate series from `bytes`, plain or compressed, as a trace. `name` is what messages call it. Never panics,
/// whatever the bytes.
///
/// # Errors
/// If the bytes are no such series.
pub fn parse(name: &str, bytes: impl std::io::Read) -> Result<Trace, Error> {
    let mut series = Series::default();
    lines::for_each(WHAT, name, bytes, |number, line| match number {
        1 => header(line),
        _ => series.push(Row::read(line)?),
    })?;
    if series.runs.is_empty() {
        return Err(Problem::NoRates.of_whole(WHAT, name));
    }
    // The end of the last row is the period; opportunities within its last millisecond come at it.
    let period_ms = series.end_us.div_ceil(1000);
    Trace::from_runs(name, series.runs, period_ms)
}

fn header(line: &[u8]) -> Result<(), Problem> {
    if line == HEADER {
        return Ok(());
    }
    Err(not_text(line).unwrap_or_else(|| Problem::NoHeader(excerpt(line))))
}

/// A stretch of time and its rate.
struct Row {
    start_us: u64,
    end_us: u64,
    bps: u64,
}

impl Row {
    fn read(line: &[u8]) -> Result<Row, Problem> {
        let problem = || not_text(line).unwrap_or_else(|| Problem::NotARow(excerpt(line)));
        let text = std::str::from_utf8(line).map_err(|_| problem())?;
        let numbers: Vec<f64> = text
            .split(',')
            .map_while(|number| number.trim().parse().ok())
            .collect();
        let &[start_s, end_s, mbps] = &numbers[..] else {
            return Err(problem());
        };
        let valid = |number: f64, most: f64| (0.0..=most).contains(&number);
        let bounded = [
            (start_s * 1e6, LONGEST_MICROS),
            (end_s * 1e6, LONGEST_MICROS),
            (mbps, FASTEST_MBPS),
        ];
        if text.split(',').count() != 3
            || !bounded.iter().all(|&(number, most)| valid(number, most))
        {
            return Err(problem());
        }
        Ok(Row {
            start_us: (start_s * 1e6).round() as u64,
            end_us: (end_s * 1e6).round() as u64,
            bps: (mbps * 1e6).round() as u64,
        })
    }
}

/// The rows so far, as opportunities.
#[derive(Default)]
struct Series {
    runs: Vec<(u64, u64)>,
    /// The beginning of the first row, which is time zero.
    origin_us: Option<u64>,
    /// The end of the last row, counted from there.
    end_us: u64,
    /// The incomplete opportunity, in bits times 10⁶.
    partial: u128,
}

impl Series {
    fn push(&mut self, row: Row) -> Result<(), Problem> {
        let origin = *self.origin_us.get_or_insert(row.start_us);
        let seconds = |micros: u64| micros as f64 / 1e6;
        let start = row.start_us.wrapping_sub(origin);
        if row.start_us < origin || start != self.end_us {
            return Err(Problem::NotNext {
                start: seconds(row.start_us),
                end: seconds(self.end_us + origin),
            });
        }
        if row.end_us <= row.start_us {
            return Err(Problem::NoSpan(seconds(row.end_us)));
        }
        let end = row.end_us - origin;
        let mut at = start;
        if row.bps == 0 {
            at = end;
        }
        while at < end {
            let ms = at / 1000;
            let until = ((ms + 1) * 1000).min(end);
            self.partial += u128::from(row.bps) * u128::from(until - at);
            let count = (self.partial / WORK) as u64;
            self.partial %= WORK;
            match self.runs.last_mut() {
                Some((last, number)) if *last == ms => *number += count,
                _ if count > 0 => self.runs.push((ms, count)),
                _ => {}
            }
            at = until;
        }
        self.end_us = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(rows: &str) -> Result<Trace, String> {
        let text = format!("start_s,end_s,mbps\n{rows}");
        parse("rates", text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn opportunities_are_spread_and_what_is_left_is_carried_over() {
        // 15.938 Mbit are 1328.17 opportunities, 17.596 are 1466.33: 2794.50 together.
        let trace_read = trace("0,1,15.938\n1,2,17.596\n").unwrap();
        assert_eq!(trace_read.count_before(1000), 1328);
        assert_eq!(trace_read.count_before(2000), 2794);
        assert_eq!(trace_read.period_ms(), 2000);
        let (least, most) = (0..1000).fold((u64::MAX, 0), |(least, most), ms| {
            let count = trace_read.count_before(ms + 1) - trace_read.count_before(ms);
            (least.min(count), most.max(count))
        });
        assert_eq!((least, most), (1, 2));
    }

    #[test]
    fn a_row_of_nothing_is_an_outage_and_rows_may_begin_within_a_millisecond() {
        // 24 Mbit/s is two a millisecond.
        let series = trace("5,5.0015,24\n5.0015,6,0\n6,6.002,24\n").unwrap();
        let times: Vec<u64> = series.opportunities().collect();
        assert_eq!(times, [0, 0, 1, 1000, 1000, 1001, 1001]);
        assert_eq!(series.period_ms(), 1002);
        let silent = trace("0,1,12\n1,2,0\n").unwrap();
        assert_eq!((silent.len(), silent.period_ms()), (1000, 2000));
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let cases = "
            => : it holds no rate above 0; a rate series has rows of start_s,end_s,mbps below that header
            0,1,0/ => : it holds no rate above 0; a rate series has rows of start_s,end_s,mbps below that header
            0,1,5/2,3,5/ => , line 3: a row must begin where the one before ended (1 s), not at 2 s
            0,1,5/0,1,5/ => , line 3: a row must begin where the one before ended (1 s), not at 0 s
            1,1,5/ => , line 2: a row must end after it begins, not at 1 s
            0,1/ => , line 2: `0,1` is not a row of start_s,end_s,mbps
            0,1,2,3/ => , line 2: `0,1,2,3` is not a row of start_s,end_s,mbps
            0,1,-5/ => , line 2: `0,1,-5` is not a row of start_s,end_s,mbps
            0,1,nan/ => , line 2: `0,1,nan` is not a row of start_s,end_s,mbps
            0,1e9,5/ => , line 2: `0,1e9,5` is not a row of start_s,end_s,mbps
            0,1,fast/ => , line 2: `0,1,fast` is not a row of start_s,end_s,mbps";
        for case in cases.lines().skip(1) {
            // A `/` ends a line.
            let (rows, problem) = case.split_once("=> ").expect("a case");
            let rows = rows.trim().replace('/', "\n");
            assert_eq!(trace(&rows), Err(format!("rate series `rates`{problem}")));
        }
        let headless = parse("rates", &b"0,1,5\n"[..]).unwrap_err().to_string();
        let first =
            "rate series `rates`, line 1: the first line must be `start_s,end_s,mbps`, not `0,1,5`";
        assert_eq!(headless, first);
    }
}
