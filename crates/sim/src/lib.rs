//! A deterministic discrete-event simulator of flows over a shared bottleneck.
//!
//! The same [`Sender`](verus_core::sender::Sender) and [`Link`](verus_channel::Link) that run on a
//! real clock run here on a virtual one. Nothing reads a clock or an unseeded random number: the
//! same [`Scenario`] gives the same bytes.

mod connection;
mod contestant;
pub mod event;
mod feed;
pub mod frames;
mod guard;
mod half;
pub mod media;
mod network;
mod observe;
mod packet;
mod pages;
mod paths;
mod plan;
mod record;
mod scenario;
mod schema;
mod timer;
pub mod traffic;

pub use contestant::{FileProblem, mix, model_bytes, open_scheme};
pub use network::{Observed, Simulation};
pub use observe::packets::Tap;
pub use packet::DataPacket;
pub use paths::Paths;
pub use plan::Plan;
pub use record::{ChannelInfo, Connection, FlowOutcome, Outcome, Records, Totals};
pub use scenario::{Change, Error, FlowSpec, Scenario};
pub use schema::{Expected, FieldError};
pub use traffic::Traffic;

/// Plans and runs a scenario; see [`Scenario::plan`] and [`Plan::run`].
///
/// # Errors
/// Names the mistake in the scenario, or that `progress` cancelled it.
pub fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64) -> bool) -> Result<Outcome, Error> {
    scenario.plan()?.run(progress)
}

/// The example of the crate's page, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
