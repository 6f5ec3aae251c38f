//! Parameters and the ranges that they must lie in.
//!
//! A controller cannot fail at run time: a value that it could not work with is refused when its
//! configuration is checked, with one message that names the parameter.

use thiserror::Error;

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{algorithm}: {field} must be {expected}, not {value}")]
pub struct OutOfRange {
    /// The algorithm whose configuration it is.
    pub algorithm: &'static str,
    /// The parameter.
    pub field: &'static str,
    /// Its range, in words.
    pub expected: &'static str,
    /// What was given.
    pub value: f64,
}

/// Checks the parameters of one algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range(pub &'static str);

impl Range {
    /// `value` if `ok`, which must be false for not-a-number.
    pub(crate) fn check(
        self,
        ok: bool,
        field: &'static str,
        expected: &'static str,
        value: f64,
    ) -> Result<(), OutOfRange> {
        if ok {
            return Ok(());
        }
        Err(OutOfRange {
            algorithm: self.0,
            field,
            expected,
            value,
        })
    }

    /// A window at which a flow begins or below which it does not fall: at least 1 packet, and no
    /// larger than any window that could be meant.
    pub(crate) fn window(self, field: &'static str, packets: f64) -> Result<(), OutOfRange> {
        let ok = (1.0..=1e6).contains(&packets);
        self.check(ok, field, "between 1 and 1000000 packets", packets)
    }

    /// What a reduction leaves of the window.
    pub(crate) fn share(self, field: &'static str, share: f64) -> Result<(), OutOfRange> {
        self.check(
            share > 0.0 && share < 1.0,
            field,
            "above 0 and below 1",
            share,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_algorithm_field_range_and_value() {
        let error = Range("cubic").share("decrease_factor", 1.5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cubic: decrease_factor must be above 0 and below 1, not 1.5"
        );
    }

    #[test]
    fn not_a_number_lies_in_no_range() {
        assert!(Range("cubic").share("decrease_factor", f64::NAN).is_err());
        assert!(
            Range("cubic")
                .window("initial_window_packets", f64::NAN)
                .is_err()
        );
    }
}
