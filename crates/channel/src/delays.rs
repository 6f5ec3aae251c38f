//! Recorded series of propagation delays, as LeoCC publishes them with its recordings of Starlink (`delay_N.txt`).
//!
//! A line is a whole number of milliseconds, one way. The first value holds for [`INTERVAL`], then
//! the second, and after the last the first again. So a series may slide against the rate that was
//! recorded beside it. A 0 is a lost echo, not a link without propagation: the next value replaces
//! it, or the one before at the end.
//!
//! A packet takes what holds as it sets out, so that those behind overtake it where the delay falls
//! ([`Delay::overtaking`](crate::Delay::overtaking)), as in the emulator that the series were made for.

use std::path::Path;

use verus_core::{Duration, Time};

use crate::error::{Error, Problem};
use crate::lines::{self, excerpt};
use crate::schedule::Schedule;

const WHAT: &str = "delay series";

/// The time for which each line holds.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// The longest delay, ms, as of a scenario.
const LONGEST_MS: u32 = 100_000;

/// Lines of ten hours: more would be a mistake.
pub(crate) const MOST_LINES: u64 = 3_600_000;

/// Reads the delay series in the file at `path`, plain or compressed. It repeats.
///
/// # Errors
/// If it cannot be read or is no such series; the message names the file and the line.
pub fn read(path: &Path) -> Result<Schedule<Duration>, Error> {
    let (name, file) = lines::open(path)?;
    parse(&name, file)
}

/// Reads a delay series from `bytes`, plain or compressed. `name` is what messages call it. Never panics, whatever the
/// bytes.
///
/// # Errors
/// If the bytes are no such series.
pub fn parse(name: &str, bytes: impl std::io::Read) -> Result<Schedule<Duration>, Error> {
    let mut millis = Vec::new();
    lines::for_each(WHAT, name, bytes, |number, line| {
        if number > MOST_LINES {
            return Err(Problem::TooManyLines(MOST_LINES));
        }
        millis.push(delay(line)?);
        Ok(())
    })?;
    let last_echo = millis.iter().rposition(|millis| *millis > 0);
    let last = last_echo.ok_or_else(|| Problem::NoDelays.of_whole(WHAT, name))?;
    let mut next = millis[last];
    for millis in millis.iter_mut().rev() {
        next = if *millis > 0 { *millis } else { next };
        *millis = next;
    }
    let mut steps: Vec<(Time, Duration)> = Vec::new();
    for (line, millis) in millis.iter().enumerate() {
        let delay = Duration::from_millis(u64::from(*millis));
        if steps.last().is_none_or(|(_, last)| *last != delay) {
            steps.push((Time::ZERO + INTERVAL * line as u64, delay));
        }
    }
    let period = INTERVAL * millis.len() as u64;
    let series = Schedule::new(steps).and_then(|series| series.repeating(period));
    Ok(series.expect("lines are in order of time, the first at zero"))
}

/// The milliseconds that `line` states.
fn delay(line: &[u8]) -> Result<u32, Problem> {
    let millis = lines::whole_millis(line).map_err(|problem| match problem {
        Problem::Fraction(text) | Problem::NotATime(text) => Problem::NotWholeMillis(text),
        other => other,
    })?;
    let delay = u32::try_from(millis).ok();
    let delay = delay.filter(|millis| *millis <= LONGEST_MS);
    delay.ok_or_else(|| Problem::LongDelay(excerpt(line), LONGEST_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Follower;

    fn parsed(text: &str) -> Result<Schedule<Duration>, String> {
        parse("series", text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_line_holds_for_ten_milliseconds_and_the_series_repeats() {
        // LeoCC's delay_18.txt begins so; the lost echo is the next one's.
        let mut series = Follower::new(parsed("0\n13\n12\n11\n11\n").unwrap());
        let delays: Vec<u64> = [0, 9, 10, 19, 20, 30, 49, 50, 70, 1_000]
            .map(|ms| series.at(Time::from_millis(ms)).as_nanos() / 1_000_000)
            .to_vec();
        assert_eq!(delays, [13, 13, 13, 13, 12, 11, 11, 13, 12, 13]);
    }

    #[test]
    fn a_lost_echo_at_the_end_is_the_one_before() {
        let series = parsed("20\n0\n30\n0").unwrap();
        let ms = Duration::from_millis;
        let steps = [(Time::ZERO, ms(20)), (Time::from_millis(10), ms(30))];
        assert_eq!(series.steps(), steps);
        assert_eq!(series.period(), Some(ms(40)));
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let cases = "
            => : it holds no delay above 0; a delay series has one whole number of milliseconds on each line
            0/0/ => : it holds no delay above 0; a delay series has one whole number of milliseconds on each line
            12/12.5/ => , line 2: `12.5` is not a whole number of milliseconds
            soon/ => , line 1: `soon` is not a whole number of milliseconds
            -3/ => , line 1: the time `-3` is negative
            1//2/ => , line 2: the line is blank
            100001/ => , line 1: a delay of `100001` ms is above 100000 ms";
        for case in cases.lines().skip(1) {
            // A `/` ends a line.
            let (text, problem) = case.split_once("=> ").expect("a case");
            let text = text.trim().replace('/', "\n");
            assert_eq!(
                parsed(&text),
                Err(format!("delay series `series`{problem}"))
            );
        }
    }
}
