//! What an algorithm is to [the list](crate::algorithm): a configuration, with keys, that makes controllers.

use std::fmt;

use crate::controller::{Controller, Observer};
use crate::range::{OutOfRange, WINDOW_PACKETS};
use crate::receiver::ReceiverConfig;
use crate::spec::{Problem, Row};
use crate::units::Rate;

/// A checked configuration, from which controllers are made.
pub trait Configured: fmt::Debug + Send + Sync {
    /// The name for tables and legends, and the keys whose values are part of it.
    fn label(&self) -> (String, &'static [&'static str]);

    /// A fresh controller. Schemes that draw random numbers draw them from `seed`.
    fn build(&self, seed: u64) -> Box<dyn Controller>;

    /// Why a controller built from this configuration gave up, for controllers that can: those that run code from
    /// outside this crate (a Python class, for example). Such a controller allows nothing to be sent from then on.
    fn failure(&self) -> Option<String> {
        None
    }

    /// The algorithm's receiver half, if it has one.
    fn observer(&self) -> Option<Box<dyn Observer>> {
        None
    }

    /// When receivers of the algorithm's packets acknowledge, where the transport leaves this open. By default each
    /// packet, as Verus needs it.
    fn receiver(&self) -> ReceiverConfig {
        ReceiverConfig::default()
    }

    /// The flow's rate, if it sends at a constant rate whatever happens to its packets.
    fn fixed_rate(&self) -> Option<Rate> {
        None
    }
}

/// A configuration that is a table of keys.
pub trait Configuration: Configured + Default + 'static {
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

    /// Checks what a range of one key cannot say ([`Row::within`]).
    ///
    /// # Errors
    /// Names the first field that is out of range.
    fn together(&self) -> Result<(), OutOfRange> {
        Ok(())
    }

    /// [Validates](Self::validate) what keys have set; an algorithm whose words do not all go together says so here.
    ///
    /// # Errors
    /// Says what is out of range, or does not go together.
    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|error| error.to_string())
    }
}

/// The key of the window at the start.
pub(crate) const fn initial_window<C>(get: fn(&C) -> f64, set: fn(&mut C, f64)) -> Row<C> {
    Row::within(
        "initial_window_packets",
        "packets",
        "the window at the start (RFC 6928)",
        WINDOW_PACKETS,
        get,
        set,
    )
}

/// What a controller says whose configuration was checked before.
pub(crate) const CHECKED: &str = "the configuration was checked when the scheme was parsed";

/// Why a text does not become a configuration; the scheme's name is still to come.
pub(crate) enum Refusal {
    Spec(Problem),
    OutOfRange(String),
    File { file: String, problem: String },
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Refusal::Spec(problem)
    }
}

/// What fetches the bytes of a file that a scheme names.
pub(crate) type Read<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;
