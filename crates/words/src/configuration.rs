//! A configuration as a table of keys.

use crate::range::OutOfRange;
use crate::spec::Row;

/// A configuration that is a table of keys.
pub trait Configuration: Default + 'static {
    /// Its keys.
    const ROWS: &'static [Row<Self>];

    /// Checks the range of each key, then what must go together.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    fn validate(&self) -> Result<(), OutOfRange> {
        for row in Self::ROWS {
            row.check(self)?;
        }
        self.together()
    }

    /// Checks what a range of one key cannot say ([`Field::within`](crate::spec::Field::within)).
    ///
    /// # Errors
    /// Names the first field that is out of range.
    fn together(&self) -> Result<(), OutOfRange> {
        Ok(())
    }

    /// [Validates](Self::validate) what keys have set; an algorithm whose words do not all go together says so here.
    ///
    /// # Errors
    /// Names the value out of range, or the words that do not go together.
    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|error| error.to_string())
    }
}

/// The panic message of a controller whose configuration was checked before.
pub const CHECKED: &str = "the configuration was checked when the scheme was parsed";
