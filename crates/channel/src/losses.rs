//! Series of loss probabilities over time, the counterpart of a [delay series](crate::delays).
//!
//! A line is the probability that a packet is lost, between 0 and 1. The first value holds for [`INTERVAL`], as a
//! line of LeoCC's series of delays does, then the second, and after the last the first again.

use std::path::Path;

use verus_core::{Duration, Time};

pub use crate::delays::INTERVAL;
use crate::delays::MOST_LINES;
use crate::error::{Error, Problem};
use crate::lines::{self, excerpt, is_decimal, not_text};
use crate::schedule::Schedule;

const WHAT: &str = "loss series";

/// Reads the loss series in the file at `path`, plain or compressed. It repeats.
///
/// # Errors
/// If it cannot be read or is no such series; the message names the file and the line.
pub fn read(path: &Path) -> Result<Schedule<f64>, Error> {
    let (name, file) = lines::open(path)?;
    parse(&name, file)
}

/// Reads a loss series from `bytes`, plain or compressed. `name` is what messages call it. Never panics, whatever the
/// bytes.
///
/// # Errors
/// If the bytes are no such series.
pub fn parse(name: &str, bytes: impl std::io::Read) -> Result<Schedule<f64>, Error> {
    let mut steps: Vec<(Time, f64)> = Vec::new();
    let mut count = 0;
    lines::for_each(WHAT, name, bytes, |number, line| {
        if number > MOST_LINES {
            return Err(Problem::TooManyLines(MOST_LINES));
        }
        let probability = probability(line)?;
        if steps.last().is_none_or(|(_, last)| *last != probability) {
            steps.push((Time::ZERO + INTERVAL * (number - 1), probability));
        }
        count = number;
        Ok(())
    })?;
    if steps.is_empty() {
        return Err(Problem::NoLosses.of_whole(WHAT, name));
    }
    let period: Duration = INTERVAL * count;
    let series = Schedule::new(steps).and_then(|series| series.repeating(period));
    Ok(series.expect("lines are in order of time, the first at zero"))
}

/// The probability that `line` states.
fn probability(line: &[u8]) -> Result<f64, Problem> {
    if let Some(problem) = not_text(line) {
        return Err(problem);
    }
    let text = std::str::from_utf8(line).ok().filter(|_| is_decimal(line));
    let value = text.and_then(|text| text.parse().ok());
    value
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or_else(|| Problem::NoProbability(excerpt(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Follower;

    fn parsed(text: &str) -> Result<Schedule<f64>, String> {
        parse("series", text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_line_holds_for_ten_milliseconds_and_the_series_repeats() {
        let mut series = Follower::new(parsed("0\n0.5\n0.5\n1\n").unwrap());
        let values =
            [0, 9, 10, 29, 30, 39, 40, 50, 4_030].map(|ms| series.at(Time::from_millis(ms)));
        assert_eq!(values, [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        for (text, problem) in [
            (
                "",
                ": it holds no probabilities; a loss series has one between 0 and 1 on each line",
            ),
            (
                "0\n1.5\n",
                ", line 2: `1.5` is not a probability between 0 and 1",
            ),
            (
                "0.2%\n",
                ", line 1: `0.2%` is not a probability between 0 and 1",
            ),
            (
                "-0.1\n",
                ", line 1: `-0.1` is not a probability between 0 and 1",
            ),
            (
                "nan\n",
                ", line 1: `nan` is not a probability between 0 and 1",
            ),
            ("0\n\n0\n", ", line 2: the line is blank"),
        ] {
            assert_eq!(parsed(text), Err(format!("loss series `series`{problem}")));
        }
    }
}
