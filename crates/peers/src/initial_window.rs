//! The key that most senders have: the window at the start.

use verus_words::range::WINDOW_PACKETS;
use verus_words::spec::{Field, Row};

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

        impl verus_words::configuration::Configuration for Config {
            const ROWS: &'static [verus_words::spec::Row<Self>] =
                &[$crate::initial_window::initial_window(
                    verus_words::spec::field!(initial_window_packets),
                )];
        }

        impl verus_core::configuration::Configured for Config {
            fn label(&self) -> (String, &'static [&'static str]) {
                ($label.to_owned(), &[])
            }

            fn build(&self, seed: u64) -> Box<dyn Controller> {
                let new: fn(&Self, u64) -> Result<_, OutOfRange> = $new;
                Box::new(new(self, seed).expect(verus_words::configuration::CHECKED))
            }
        }
    };
}

pub(crate) use initial_window_alone;
