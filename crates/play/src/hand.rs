//! The person as a congestion controller: the window is the last one that they set.

use std::sync::atomic::{AtomicU64, Ordering};

use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Feedback, Timeout};
use verus_core::{Bytes, Recovery};
use verus_words::configuration::Configuration;
use verus_words::spec::Row;

/// The name in schemes.
pub const NAME: &str = "hand";

/// Ten packets, as TCP begins (RFC 6928 §2).
const FIRST_WINDOW: u64 = 15_000;

/// The window that the person set last, bytes: a page has one person.
static WINDOW: AtomicU64 = AtomicU64::new(FIRST_WINDOW);

/// Sets the window of every flow whose scheme is `hand`, from now on.
pub fn set_window(window: Bytes) {
    WINDOW.store(window.get(), Ordering::Relaxed);
}

/// Nothing to configure: the person decides.
#[derive(Clone, Debug, Default)]
pub struct Config;

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("You".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Hand)
    }
}

/// A flow's window, set by hand. Lost data is sent again, as for every algorithm; only the person
/// reacts to losses.
#[derive(Clone, Copy, Debug)]
pub struct Hand;

impl Controller for Hand {
    fn on_feedback(&mut self, _feedback: &Feedback<'_>) {}

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {}

    fn window(&self) -> Bytes {
        Bytes::new(WINDOW.load(Ordering::Relaxed))
    }

    fn recovery(&self) -> Recovery {
        Recovery::rack()
    }
}
