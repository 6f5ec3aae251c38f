//! Raw arrival logs: when packets of a saturating sender arrived, turned into a trace.
//!
//! A log has one Unix time in seconds on each line, with up to six decimals and trailing zeros dropped, as the
//! Verus authors recorded them. Each arrival becomes an opportunity at `round((t − t₀) × 1000)` ms, in
//! double precision with halves away from zero: that is how the distributed traces were made. Exact decimal arithmetic
//! differs in up to 0.1 % of the lines, so the rounding is part of the format.

use std::io::Read;
use std::path::Path;

use verus_core::{Bytes, Time};

use crate::error::{Error, Problem};
use crate::lines::{self, excerpt, is_decimal, not_text};
use crate::trace::{Builder, Trace};

const WHAT: &str = "raw arrival log";

/// The year 5138. A larger time counts milliseconds or finer, and would make a channel a thousand times as slow.
const LATEST_SECONDS: f64 = 1e11;

/// Reads the raw arrival log in the file at `path`, plain or compressed, as a trace.
///
/// # Errors
/// If it cannot be read or is no such log; the message names the file and the line.
pub fn read(path: &Path) -> Result<Trace, Error> {
    let (name, file) = lines::open(path)?;
    parse(&name, file)
}

/// Reads a raw arrival log from `bytes`, plain or compressed, as a trace. `name` is what messages call it.
/// Never panics, whatever the bytes: a fuzz target can call this.
///
/// # Errors
/// If the bytes are no such log.
pub fn parse(name: &str, bytes: impl Read) -> Result<Trace, Error> {
    let mut builder = Builder::default();
    let mut clock = None;
    lines::for_each(WHAT, name, bytes, |_, line| {
        let time = seconds(line)?;
        if time >= LATEST_SECONDS {
            return Err(Problem::NotSeconds(excerpt(line)));
        }
        let (first, before) = *clock.get_or_insert((time, time));
        if time < before {
            let (time, before) = (format!("{time} s"), format!("{before} s"));
            return Err(Problem::Backwards { time, before });
        }
        clock = Some((first, time));
        builder.push(((time - first) * 1000.0).round() as u64)
    })?;
    let finished = builder.finish(name).map_err(|problem| match problem {
        Problem::Empty => Problem::NoArrivals,
        Problem::ZeroPeriod => Problem::OneInstant,
        other => other,
    });
    finished.map_err(|problem| problem.of_whole(WHAT, name))
}

/// The trace of the arrivals from `from` on, given in order as (time, bytes). It has an opportunity
/// of `opportunity` bytes each time that many more have arrived, at the nearest millisecond since
/// `from`.
///
/// # Errors
/// If it is not enough for a trace.
pub fn from_arrivals(
    name: &str,
    arrivals: impl IntoIterator<Item = (Time, Bytes)>,
    from: Time,
    opportunity: Bytes,
) -> Result<Trace, Error> {
    let mut arrived = 0;
    let millis = arrivals.into_iter().flat_map(|(at, size)| {
        let before = arrived / opportunity.get();
        arrived += size.get();
        let millis = (at.since(from).as_nanos() + 500_000) / 1_000_000;
        (before..arrived / opportunity.get()).map(move |_| millis)
    });
    Trace::from_millis(name, millis)
}

/// The seconds that `line` states.
fn seconds(line: &[u8]) -> Result<f64, Problem> {
    let decimal = is_decimal(line)
        .then(|| std::str::from_utf8(line).ok()?.parse().ok())
        .flatten();
    decimal.ok_or_else(|| {
        not_text(line).unwrap_or_else(|| match line {
            [b'-', rest @ ..] if is_decimal(rest) => Problem::Negative(excerpt(line)),
            _ => Problem::NotATime(excerpt(line)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(log: &str) -> Result<Vec<u64>, String> {
        let trace = parse("log", log.as_bytes()).map_err(|error| error.to_string())?;
        Ok(trace.opportunities().collect())
    }

    #[test]
    fn times_count_from_the_first_in_whole_milliseconds() {
        assert_eq!(
            millis("1420544206.074772\n1420544206.0767\n1420544207\n"),
            Ok(vec![0, 2, 925])
        );
    }

    #[test]
    fn bytes_that_arrived_become_opportunities() {
        let ms = |millis: u64| Time::from_millis(1000 + millis);
        let arrivals = [(3, 1400), (3, 1400), (5, 100), (9, 4600)];
        let arrivals = arrivals.map(|(at, size)| (ms(at), Bytes::new(size)));
        let trace = from_arrivals("new", arrivals, ms(0), Bytes::new(1500)).expect("enough");
        assert_eq!(trace.opportunities().collect::<Vec<_>>(), [3, 9, 9, 9, 9]);
        let little = [(ms(3), Bytes::new(100))];
        assert!(from_arrivals("new", little, ms(0), Bytes::new(1500)).is_err());
    }

    #[test]
    fn halves_round_away_from_zero() {
        assert_eq!(millis("0\n0.0005\n0.0015\n0.0025\n"), Ok(vec![0, 1, 2, 3]));
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let cases = "
            => : it holds no arrivals; a raw log has one Unix time in seconds on each line
            5.1/ => : all of it lies within one millisecond, so it has no duration to repeat
            2.5/1.5/ => , line 2: time goes backwards (1.5 s after 2.5 s)
            2.5/soon/ => , line 2: `soon` is not a time
            1e5/ => , line 1: `1e5` is not a time
            nan/ => , line 1: `nan` is not a time
            -1.5/ => , line 1: the time `-1.5` is negative
            1.2.3/ => , line 1: `1.2.3` is not a time
            1//2/ => , line 2: the line is blank
            1700000000000/ => , line 1: `1700000000000` is no Unix time in seconds: divide milliseconds by 1000";
        for case in cases.lines().skip(1) {
            // A `/` ends a line.
            let (text, problem) = case.split_once("=> ").expect("a case");
            let text = text.trim().replace('/', "\n");
            assert_eq!(
                millis(&text),
                Err(format!("raw arrival log `log`{problem}"))
            );
        }
    }
}
