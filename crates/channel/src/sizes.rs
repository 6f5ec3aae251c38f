//! CellReplay's size offsets: by how much the delay of a packet on an idle cellular link depends on its size.
//!
//! Lines of `size offset`, for 100, 200, … 1400 bytes; the offset is in milliseconds, may have a fraction, and may be
//! below 0. Between two sizes it is interpolated linearly, and below the first it is the first's.

use std::path::Path;

use crate::error::{Error, Problem};
use crate::lines::{self, excerpt};

const WHAT: &str = "size offsets";

/// From one line to the next, bytes.
const STEP: u64 = 100;

/// Lines: the last is of CellReplay's largest packet.
const LINES: usize = 14;

/// The largest offset, ms, either way, as of a scenario's delays.
const LARGEST_MS: f64 = 100_000.0;

/// Offsets of the delay by size of packet.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeOffsets {
    /// In ms, for 100, 200, … 1400 bytes.
    millis: [f64; LINES],
}

impl SizeOffsets {
    /// Reads the size offsets in the file at `path`, plain or compressed.
    ///
    /// # Errors
    /// If it cannot be read or holds none; the message names the file and the line.
    pub fn read(path: &Path) -> Result<SizeOffsets, Error> {
        let (name, file) = lines::open(path)?;
        SizeOffsets::parse(&name, file)
    }

    /// Reads size offsets from `bytes`, plain or compressed. `name` is what messages call it. Never panics, whatever the
    /// bytes.
    ///
    /// # Errors
    /// If the bytes hold none.
    pub fn parse(name: &str, bytes: impl std::io::Read) -> Result<SizeOffsets, Error> {
        let mut millis = Vec::new();
        lines::for_each(WHAT, name, bytes, |number, line| {
            millis.push(offset(line, STEP * number)?);
            Ok(())
        })?;
        let few = |known: Vec<f64>| Problem::FewSizes(known.len()).of_whole(WHAT, name);
        let millis = millis.try_into().map_err(few)?;
        Ok(SizeOffsets { millis })
    }

    /// The offset of a packet of `size` bytes, ms.
    pub fn millis(&self, size: u64) -> f64 {
        let index = (size / STEP) as usize;
        match index.checked_sub(1) {
            None => self.millis[0],
            Some(below) if index < LINES => {
                let share = (size % STEP) as f64 / STEP as f64;
                self.millis[below] + share * (self.millis[index] - self.millis[below])
            }
            Some(_) => self.millis[LINES - 1],
        }
    }
}

/// The offset of `size` that `line` states, ms.
fn offset(line: &[u8], size: u64) -> Result<f64, Problem> {
    let problem = || {
        let not_this = || match size <= STEP * LINES as u64 {
            true => Problem::NoSize(excerpt(line), size),
            false => Problem::ManySizes,
        };
        lines::not_text(line).unwrap_or_else(not_this)
    };
    let text = std::str::from_utf8(line).map_err(|_| problem())?;
    let mut words = text.split_ascii_whitespace();
    let fields = (words.next(), words.next(), words.next());
    let (Some(of), Some(millis), None) = fields else {
        return Err(problem());
    };
    let millis: f64 = millis.parse().map_err(|_| problem())?;
    let valid = size <= STEP * LINES as u64
        && of.parse() == Ok(size)
        && (-LARGEST_MS..=LARGEST_MS).contains(&millis);
    valid.then_some(millis).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<SizeOffsets, String> {
        SizeOffsets::parse("sizes", text.as_bytes()).map_err(|error| error.to_string())
    }

    /// 0.5 ms for each 100 bytes, less 1.
    fn lines() -> Vec<String> {
        let line = |step: u32| format!("{} {}", step * 100, f64::from(step) * 0.5 - 1.0);
        (1..=14).map(line).collect()
    }

    #[test]
    fn an_offset_is_interpolated_between_sizes_and_kept_below_the_first() {
        let sizes = parsed(&lines().join("\n")).unwrap();
        for (size, millis) in [
            (1, -0.5),
            (40, -0.5),
            (100, -0.5),
            (150, -0.25),
            (200, 0.0),
            (1399, 5.995),
            (1400, 6.0),
            (9000, 6.0),
        ] {
            assert!((sizes.millis(size) - millis).abs() < 1e-9, "{size}");
        }
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let with = |line: usize, text: &str| {
            let mut lines = lines();
            lines[line - 1] = text.to_owned();
            lines.join("\n")
        };
        let more = format!("{}\n1500 7\n", lines().join("\n"));
        let no = |line, text, size| {
            format!(
                ", line {line}: `{text}` is not the offset of {size} bytes: the size and milliseconds, such as `{size} 0.5`"
            )
        };
        let few = ": offsets of 2 sizes; a file of size offsets has 14, of 100, 200, … 1400 bytes";
        for (text, problem) in [
            (with(2, "150 1"), no(2, "150 1", 200)),
            (with(3, "300"), no(3, "300", 300)),
            (with(3, "300 1 2"), no(3, "300 1 2", 300)),
            (with(1, "100 nan"), no(1, "100 nan", 100)),
            (with(1, "100 1e9"), no(1, "100 1e9", 100)),
            (
                more,
                ", line 15: size offsets end with that of 1400 bytes".to_owned(),
            ),
            ("100 1\n200 2\n".to_owned(), few.to_owned()),
        ] {
            assert_eq!(parsed(&text), Err(format!("size offsets `sizes`{problem}")));
        }
    }
}
