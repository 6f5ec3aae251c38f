//! The adapter between the controllers of `verus-core` and QUIC stacks, without a stack.
//!
//! A stack's own crate (`verus-quinn`, `verus-noq`) implements the stack's trait by calls of a
//! [`PathController`], and [`Connection`] for a [`Driver`]. `docs/quic.md` lists what each stack
//! cannot carry.

mod bridge;
mod driver;
mod events;
mod factory;
mod path;
mod qlog;
mod ring;
mod view;

pub use driver::{Connection, Driver};
pub use events::{Counters, Event};
pub use factory::{Factory, LossDetection};
pub use path::PathController;
pub use verus_core::configuration::Configured;
pub use view::{Driving, Snapshot, View};
