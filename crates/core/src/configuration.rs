//! A checked configuration, which makes controllers. A host needs nothing else of an algorithm.

use std::fmt;

use crate::controller::{Controller, Observer};
use crate::receiver::ReceiverConfig;
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

    /// Why this configuration costs an endpoint much more work or memory than the defaults, as
    /// text. A server does not run such a configuration for strangers. `sends` says whether the
    /// endpoint runs the sender too, and not only the [receiver half](Self::observer).
    fn extra_cost(&self, _sends: bool) -> Option<String> {
        None
    }
}
