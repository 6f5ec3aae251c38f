//! What an algorithm is to [the list](crate::algorithm): a configuration, with keys, that makes controllers.

use std::fmt;

use crate::controller::{Controller, Observer};
use crate::range::{OutOfRange, WINDOW_PACKETS};
use crate::receiver::ReceiverConfig;
use crate::spec::{Field, Problem, Row};
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

    /// What of it costs an end much more work or memory than the defaults do, in words: a server does not do it for
    /// strangers. `sends` says whether that end runs the sender, and not only the [receiver half](Self::observer).
    fn dear(&self, _sends: bool) -> Option<String> {
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

    /// Checks what a range of one key cannot say ([`Field::within`]).
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
pub(crate) const fn initial_window<C>(field: Field<C, f64>) -> Row<C> {
    field.within(
        "packets",
        "the window at the start (RFC 6928)",
        WINDOW_PACKETS,
    )
}

/// The `Config` of an algorithm that has no key but the window at the start: its documentation, its label, and what makes
/// a controller of it and a seed.
macro_rules! initial_window_alone {
    ($(#[$doc:meta])* $label:literal, $new:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            /// The window at the start, in packets (RFC 6928: 10).
            pub initial_window_packets: f64,
        }

        impl Default for Config {
            fn default() -> Self {
                Config {
                    initial_window_packets: 10.0,
                }
            }
        }

        impl $crate::configuration::Configuration for Config {
            const ROWS: &'static [$crate::spec::Row<Self>] =
                &[$crate::configuration::initial_window(
                    $crate::spec::field!(initial_window_packets),
                )];
        }

        impl $crate::configuration::Configured for Config {
            fn label(&self) -> (String, &'static [&'static str]) {
                ($label.to_owned(), &[])
            }

            fn build(&self, seed: u64) -> Box<dyn Controller> {
                let new: fn(&Self, u64) -> Result<_, OutOfRange> = $new;
                Box::new(new(self, seed).expect($crate::configuration::CHECKED))
            }
        }
    };
}

pub(crate) use initial_window_alone;

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
