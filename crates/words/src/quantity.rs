//! Numbers as people type them, with a unit behind them if they like: `2m`, `20ms`, `120kB`, `0.5%`, `12Mbit/s`.
//!
//! The option or key that takes a number gives the unit of a bare number: `--delay-ms 20` and `--delay-ms 20ms` are the
//! same. A kilobyte is 1000 bytes and a kibibyte 1024 (IEC 80000-13); a bare `120k` of bytes is refused, since programs
//! differ in which of the two it is.

use thiserror::Error;

/// The kind of quantity that a number measures, which determines its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time in seconds.
    Seconds,
    /// A time in milliseconds.
    Millis,
    /// A size in bytes.
    Bytes,
    /// A size in megabytes of 10⁶ bytes.
    Megabytes,
    /// A rate in Mbit/s.
    Mbps,
    /// A share or a probability, of 1.
    Share,
    /// A count, or a number of no unit.
    Plain,
}

/// Units of time, each in seconds.
const TIMES: &[(&str, f64)] = &[
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("sec", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
];

/// Units of size, each in bytes.
const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

/// Units of rate, each in Mbit/s; bare prefixes as iperf3 has them.
const RATES: &[(&str, f64)] = &[
    ("bit/s", 1e-6),
    ("bps", 1e-6),
    ("kbit/s", 1e-3),
    ("kbps", 1e-3),
    ("k", 1e-3),
    ("K", 1e-3),
    ("Mbit/s", 1.0),
    ("Mbps", 1.0),
    ("M", 1.0),
    ("Gbit/s", 1e3),
    ("Gbps", 1e3),
    ("G", 1e3),
];

const SHARES: &[(&str, f64)] = &[("%", 0.01)];

impl Unit {
    /// The unit of that name, as keys and fields state it; [`Plain`](Unit::Plain) for any other word.
    pub fn named(name: &str) -> Self {
        match name {
            "s" | "seconds" => Unit::Seconds,
            "ms" => Unit::Millis,
            "bytes" => Unit::Bytes,
            "MB" => Unit::Megabytes,
            "Mbit/s" => Unit::Mbps,
            "probability" | "share" | "fraction" => Unit::Share,
            _ => Unit::Plain,
        }
    }

    /// The units that may stand behind a number, and the one that it has where none does.
    fn table(self) -> (&'static [(&'static str, f64)], f64) {
        match self {
            Unit::Seconds => (TIMES, 1.0),
            Unit::Millis => (TIMES, 1e-3),
            Unit::Bytes => (SIZES, 1.0),
            Unit::Megabytes => (SIZES, 1e6),
            Unit::Mbps => (RATES, 1.0),
            Unit::Share => (SHARES, 1.0),
            Unit::Plain => (&[], 1.0),
        }
    }
}

/// Why a text states no number in a unit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Wrong {
    /// Text that is no number, or not a finite one.
    #[error("it is not a number")]
    Number,
    /// A number with a unit that it may not have.
    #[error("{0}")]
    Unit(String),
}

/// The number that `text` states, in `unit`; finite.
///
/// # Errors
/// If it states none.
pub fn read(text: &str, unit: Unit) -> Result<f64, Wrong> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number).ok_or(Wrong::Number);
    }
    let (units, bare) = unit.table();
    // The longest beginning that is a number: `1e3ms` is 1000 ms, `2m` no number that ends with an exponent.
    let number = text
        .char_indices()
        .rev()
        .find_map(|(at, _)| Some((text[..at].parse::<f64>().ok()?, text[at..].trim())));
    let Some((number, word)) = number.filter(|(number, _)| number.is_finite()) else {
        return Err(Wrong::Number);
    };
    if units.is_empty() {
        return Err(Wrong::Unit(format!(
            "`{word}` behind a number without a unit"
        )));
    }
    match units.iter().find(|(name, _)| *name == word) {
        // By division where the unit is the smaller: 300 kbit/s are 0.3 Mbit/s, and not 300 rounded thousandths.
        Some(&(_, size)) if size < bare => Ok(number / (bare / size)),
        Some(&(_, size)) => Ok(number * (size / bare)),
        None => {
            let names: Vec<&str> = units.iter().map(|&(name, _)| name).collect();
            let names = names.join(", ");
            Err(Wrong::Unit(format!(
                "`{word}` is none of its units ({names})"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_has_that_of_its_place() {
        for unit in [Unit::Seconds, Unit::Millis, Unit::Bytes, Unit::Share] {
            assert_eq!(read("20", unit), Ok(20.0));
            assert_eq!(read(" 1e3 ", unit), Ok(1000.0));
        }
    }

    #[test]
    fn a_unit_behind_it_counts() {
        for (text, unit, expected) in [
            ("2m", Unit::Seconds, 120.0),
            ("1.5 h", Unit::Seconds, 5400.0),
            ("500ms", Unit::Seconds, 0.5),
            ("20ms", Unit::Millis, 20.0),
            ("0.02s", Unit::Millis, 20.0),
            ("300us", Unit::Millis, 0.3),
            ("120kB", Unit::Bytes, 120_000.0),
            ("64KiB", Unit::Bytes, 65_536.0),
            ("100kB", Unit::Megabytes, 0.1),
            ("0.5%", Unit::Share, 0.005),
            ("12Mbit/s", Unit::Mbps, 12.0),
            ("300kbps", Unit::Mbps, 0.3),
            ("1e2ms", Unit::Seconds, 0.1),
        ] {
            let result = read(text, unit);
            assert_eq!(result, Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_told() {
        for (text, unit, words) in [
            ("fast", Unit::Mbps, "it is not a number"),
            ("", Unit::Millis, "it is not a number"),
            ("inf", Unit::Millis, "it is not a number"),
            ("120kb", Unit::Bytes, "none of its units (B, kB, KB, MB"),
            ("120k", Unit::Bytes, "none of its units"),
            ("20kB", Unit::Millis, "none of its units (us, µs, ms"),
            ("2x", Unit::Plain, "`x` behind a number without a unit"),
        ] {
            let message = read(text, unit).expect_err(text).to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
