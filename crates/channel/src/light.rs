//! CellReplay's light traces: what a cellular link did with short packet trains, sent while it was otherwise idle
//! (Sentosa et al., NSDI 2025; `*-delay-light-pdo` of its repository).
//!
//! Each line is a train, `time base off0 off1 …`, in whole milliseconds. The time is that of its
//! sending, and the base is the one-way delay of its first packet. Each offset says how much later
//! than the first a packet arrived, so that the first offset is 0. The last line only closes the
//! interval of the one before: its time is the period after which the trace repeats.
//!
//! [`Replay`](crate::path::replay::Replay) is what packets cross by such a trace.

use std::path::Path;

use crate::error::{Error, Problem};
use crate::lines::{self, excerpt};

const WHAT: &str = "light trace";

/// The longest delay and the largest offset, ms, as of a scenario's delays.
const LONGEST_MS: u32 = 100_000;

/// The last time of a train, ms: what a trace of opportunities with one in each millisecond can hold, 69 hours.
const LATEST_MS: u64 = crate::trace::MAX_DISTINCT_MILLIS;

/// Trains at most: one each 100 ms for 27 hours.
const MOST_LINES: u64 = 1_000_000;

/// Offsets of all trains at most, 4 bytes each in memory.
const MOST_OFFSETS: usize = 20_000_000;

/// A longer line is no train: some ten thousand packets.
const LONGEST_LINE: u64 = 1 << 16;

/// Packet trains over time. At least three, the last of which only ends the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LightTrace {
    trains: Vec<Train>,
    /// The offsets of all trains, one after another, ms.
    offsets: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Train {
    time_ms: u64,
    base_ms: u32,
    /// The index of its first offset.
    first: usize,
}

impl LightTrace {
    /// Reads the light trace in the file at `path`, plain or compressed.
    ///
    /// # Errors
    /// If it cannot be read or is no such trace; the message names the file and the line.
    pub fn read(path: &Path) -> Result<LightTrace, Error> {
        let (name, file) = lines::open(path)?;
        LightTrace::parse(&name, file)
    }

    /// Reads a light trace from `bytes`, plain or compressed. `name` is what messages call it. Never panics, whatever the
    /// bytes.
    ///
    /// # Errors
    /// If the bytes are no such trace.
    pub fn parse(name: &str, bytes: impl std::io::Read) -> Result<LightTrace, Error> {
        let mut trace = LightTrace {
            trains: Vec::new(),
            offsets: Vec::new(),
        };
        lines::for_each_cut(WHAT, name, bytes, LONGEST_LINE + 1, |number, line| {
            trace.push(number, line)
        })?;
        let problem = match trace.trains.len() {
            0..3 => Problem::FewTrains(trace.trains.len()),
            _ if trace.period_ms() == 0 => Problem::ZeroPeriod,
            _ => return Ok(trace),
        };
        Err(problem.of_whole(WHAT, name))
    }

    /// Reads another train.
    fn push(&mut self, number: u64, line: &[u8]) -> Result<(), Problem> {
        if line.len() as u64 > LONGEST_LINE {
            return Err(Problem::LongLine(LONGEST_LINE));
        }
        if number > MOST_LINES {
            return Err(Problem::TooManyLines(MOST_LINES));
        }
        let no_train = || lines::not_text(line).unwrap_or_else(|| Problem::NoTrain(excerpt(line)));
        let words = line.split(u8::is_ascii_whitespace);
        let mut words = words.filter(|word| !word.is_empty());
        let time_ms = lines::whole_millis(words.next().ok_or_else(no_train)?);
        let time_ms = time_ms.map_err(|_| no_train())?;
        if time_ms > LATEST_MS {
            return Err(Problem::LateTrain(time_ms, LATEST_MS));
        }
        let before = self.trains.last().map_or(0, |train| train.time_ms);
        if time_ms < before {
            return Err(Problem::Backwards {
                time: format!("{time_ms} ms"),
                before: format!("{before} ms"),
            });
        }
        let millis = |word: &[u8]| {
            let millis = lines::whole_millis(word).map_err(|_| no_train())?;
            let millis = u32::try_from(millis).ok();
            let millis = millis.filter(|millis| *millis <= LONGEST_MS);
            millis.ok_or_else(|| Problem::LongDelay(excerpt(word), LONGEST_MS))
        };
        let base_ms = millis(words.next().ok_or_else(no_train)?)?;
        let first = self.offsets.len();
        for word in words {
            if self.offsets.len() == MOST_OFFSETS {
                return Err(Problem::TooManyPackets(MOST_OFFSETS));
            }
            self.offsets.push(millis(word)?);
        }
        match self.offsets.get(first) {
            None => return Err(no_train()),
            Some(0) => {}
            Some(offset) => return Err(Problem::FirstOffset(*offset)),
        }
        self.trains.push(Train {
            time_ms,
            base_ms,
            first,
        });
        Ok(())
    }

    /// The number of trains, without the line that ends the last.
    pub fn trains(&self) -> usize {
        self.trains.len() - 1
    }

    /// The period after which it repeats, ms.
    pub fn period_ms(&self) -> u64 {
        self.trains.last().map_or(0, |train| train.time_ms)
    }

    /// The least delay of a train's first packet, ms.
    pub fn least_base_ms(&self) -> u64 {
        let min_base_ms = self.trains.iter().map(|train| train.base_ms).min();
        u64::from(min_base_ms.unwrap_or_default())
    }

    /// The last train sent before or at `ms`, and the delay of a first packet at `ms` in whole
    /// milliseconds. `ms` is counted from the beginning and within the period. The delay is
    /// interpolated linearly between this train's and the next's and rounded down; before the first
    /// train it is the first's.
    pub(crate) fn at(&self, ms: u64) -> (usize, u64) {
        let after = self.trains.partition_point(|train| train.time_ms <= ms);
        let line = after.saturating_sub(1).min(self.trains.len() - 2);
        let (train, next) = (&self.trains[line], &self.trains[line + 1]);
        let into = ms.saturating_sub(train.time_ms);
        // Within the period the next train is later than `ms`, and before the first nothing is interpolated.
        let span = (next.time_ms - train.time_ms).max(1);
        let weighed = u64::from(train.base_ms) * (span - into) + u64::from(next.base_ms) * into;
        (line, weighed / span)
    }

    /// The delay of each packet of a train after its first, ms. Never empty.
    pub(crate) fn offsets(&self, line: usize) -> &[u32] {
        &self.offsets[self.trains[line].first..self.trains[line + 1].first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<LightTrace, String> {
        LightTrace::parse("light", text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_a_train_and_the_last_one_ends_it() {
        let trace = parsed("0 20 0 1 3\n100 24 0 2 2 9\r\n200 22 0 1").unwrap();
        assert_eq!((trace.trains(), trace.period_ms()), (2, 200));
        assert_eq!(trace.least_base_ms(), 20);
        assert_eq!(trace.offsets(0), [0, 1, 3]);
        assert_eq!(trace.offsets(1), [0, 2, 2, 9]);
        let at = [0, 24, 25, 50, 99, 100, 101, 150, 199].map(|ms| trace.at(ms));
        let bases = at.map(|(_, base)| base);
        assert_eq!(bases, [20, 20, 21, 22, 23, 24, 23, 23, 22]);
        assert_eq!(at.map(|(line, _)| line), [0, 0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn before_the_first_train_the_first_one_holds_and_of_two_at_one_time_the_second() {
        let trace = parsed("10 30 0\n20 40 0 7\n20 80 0 8\n40 80 0\n").unwrap();
        assert_eq!(trace.at(0), (0, 30));
        assert_eq!(trace.at(19), (0, 39));
        assert_eq!(trace.at(20), (2, 80));
        let trace = parsed("10 30 0\n10 40 0\n20 40 0\n").unwrap();
        assert_eq!((trace.at(3), trace.at(10)), ((0, 30), (1, 40)));
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let cases = "
            => : 0 lines; a light trace has a packet train on each of at least two lines, and one more that ends the last
            0 20 0/10 20 0/ => : 2 lines; a light trace has a packet train on each of at least two lines, and one more that ends the last
            0 20 0/0 20 0/0 20 0/ => : its last time is 0 ms, so it has no duration to repeat
            0 20 0/100/ => , line 2: `100` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`
            0 20/ => , line 1: `0 20` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`
            0 20.5 0/ => , line 1: `0 20.5 0` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`
            0 20 0 -1/ => , line 1: `0 20 0 -1` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`
            0 20 0 soon/ => , line 1: `0 20 0 soon` is no packet train: time, delay of the first packet and offsets of all from it, in whole milliseconds, such as `0 20 0 1 3`
            0 20 3/ => , line 1: the first packet of a train is at offset 0 ms, not at 3 ms
            100 20 0/99 20 0/ => , line 2: time goes backwards (99 ms after 100 ms)
            0 100001 0/ => , line 1: a delay of `100001` ms is above 100000 ms
            250000001 20 0/ => , line 1: a train at 250000001 ms is later than 250000000 ms
            0 1 0//2 1 0/ => , line 2: the line is blank
            0 1 0 \u{7}/ => , line 1: not text (byte 0x07)";
        for case in cases.lines().skip(1) {
            // A `/` ends a line.
            let (text, problem) = case.split_once("=> ").expect("a case");
            let text = text.trim().replace('/', "\n");
            assert_eq!(parsed(&text), Err(format!("light trace `light`{problem}")));
        }
    }

    #[test]
    fn a_line_that_does_not_end_is_refused_and_not_read_in_parts() {
        let text = format!("0 20 0{}\n100 20 0\n200 20 0\n", " 1".repeat(40_000));
        let problem = "light trace `light`, line 1: the line is longer than 65536 bytes";
        assert_eq!(parsed(&text), Err(problem.to_owned()));
        let text = format!("0 20 0{}\n100 20 0\n200 20 0\n", " 1".repeat(30_000));
        assert_eq!(parsed(&text).unwrap().offsets(0).len(), 30_001);
    }
}
