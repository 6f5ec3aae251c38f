//! Parameters and the ranges that they must lie in.
//!
//! A controller cannot fail at run time: a value that it could not work with is refused when its
//! configuration is checked, with one message that names the parameter.

use thiserror::Error;

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{field} must be {expected}, not {value}")]
pub struct OutOfRange {
    /// The parameter.
    pub field: &'static str,
    /// Its range, in words.
    pub expected: &'static str,
    /// The value.
    pub value: f64,
}

impl OutOfRange {
    /// `value` of `field`, unless it is `ok`, which must be false for not-a-number.
    pub fn unless(
        ok: bool,
        field: &'static str,
        expected: &'static str,
        value: f64,
    ) -> Result<(), Self> {
        if ok {
            return Ok(());
        }
        Err(OutOfRange {
            field,
            expected,
            value,
        })
    }
}

/// A range, and its words.
#[derive(Clone, Copy, Debug)]
pub struct Within {
    /// The range, in words.
    pub words: &'static str,
    /// Whether it is; false for not-a-number.
    pub valid: fn(f64) -> bool,
}

/// A window at which a flow begins or below which it does not fall: no larger than any that could be meant.
pub const WINDOW_PACKETS: Within = Within {
    words: "between 1 and 1000000 packets",
    valid: |packets| (1.0..=1e6).contains(&packets),
};

/// The share of the window that a reduction keeps.
pub const SHARE: Within = Within {
    words: "above 0 and below 1",
    valid: |share| share > 0.0 && share < 1.0,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::spec::{Row, field};

    #[derive(Default)]
    struct Config {
        decrease_factor: f64,
    }

    impl Configuration for Config {
        const ROWS: &'static [Row<Self>] =
            &[field!(decrease_factor).within("", "what a loss leaves", SHARE)];
    }

    fn refused(decrease_factor: f64) -> String {
        Config { decrease_factor }
            .validate()
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_message_names_field_range_and_value() {
        assert_eq!(
            refused(1.5),
            "decrease_factor must be above 0 and below 1, not 1.5"
        );
    }

    #[test]
    fn not_a_number_lies_in_no_range() {
        assert_eq!(
            refused(f64::NAN),
            "decrease_factor must be above 0 and below 1, not NaN"
        );
        assert!(!(WINDOW_PACKETS.valid)(f64::NAN));
    }
}
