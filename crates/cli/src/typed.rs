//! Numbers with units on the command line, within a range.

use std::ops::RangeInclusive;

use verus_words::quantity::{self, Unit};

/// The number in `text`, converted to `unit`; `words` describe the allowed values in the error.
fn within(text: &str, unit: Unit, range: &RangeInclusive<f64>, words: &str) -> Result<f64, String> {
    match quantity::read(text, unit) {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) | Err(quantity::Wrong::Number) => Err(format!("must be {words}, not `{text}`")),
        Err(wrong) => Err(format!("must be {words}, not `{text}`: {wrong}")),
    }
}

/// A time in seconds, as `90`, `1.5m` or `500ms`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let words = "seconds between 0.1 and 86400";
    within(text, Unit::Seconds, &(0.1..=86_400.0), words)
}

/// A time in whole seconds above 0, as `60` or `1h`.
pub fn whole_seconds(text: &str) -> Result<u32, String> {
    let words = "whole seconds between 1 and 4294967295";
    let number = within(text, Unit::Seconds, &(1.0..=f64::from(u32::MAX)), words)?;
    if number.fract() == 0.0 {
        Ok(number as u32)
    } else {
        Err(format!("must be {words}, not `{text}`"))
    }
}

/// A time in milliseconds, as `20`, `20ms` or `0.02s`.
pub fn millis(text: &str) -> Result<f64, String> {
    let words = "milliseconds between 0 and 100000";
    within(text, Unit::Millis, &(0.0..=1e5), words)
}

/// The length of a standing queue in milliseconds.
pub fn queue_millis(text: &str) -> Result<f64, String> {
    let words = "milliseconds between 10 and 10000";
    within(text, Unit::Millis, &(10.0..=10_000.0), words)
}

/// A rate in Mbit/s, as `12`, `12Mbit/s` or `300k`.
pub fn mbps(text: &str) -> Result<f64, String> {
    let words = "Mbit/s between 0.001 and 1000000";
    within(text, Unit::Mbps, &(0.001..=1e6), words)
}
