//! Links and paths, without a clock.
//!
//! A channel is a schedule of opportunities to deliver ([`Trace`]) or a rate that changes in steps.
//! A [`Link`] puts a queue before it and determines when each packet leaves. A [`Path`] is the
//! sequence that packets cross from one end to the other: random loss, links, propagation. The
//! caller passes the time to each call, so that a simulator, a real-time emulator and fault tests
//! drive the same code.

mod cache;
pub mod catalogue;
pub mod delays;
mod dice;
pub mod error;
pub mod expression;
pub mod files;
pub mod generate;
pub mod light;
mod lines;
pub mod losses;
pub mod medium;
pub mod named;
pub mod netem;
pub mod packet;
pub mod path;
pub mod path_spec;
pub mod queue;
pub mod rates;
pub mod raw;
pub mod recordings;
pub mod schedule;
pub mod sizes;
pub mod statistics;
pub mod trace;

pub use catalogue::Channel;
pub use error::{Error, Problem};
pub use light::LightTrace;
pub use lines::{cut_warning, decompressed};
pub use medium::{Medium, MediumConfig};
pub use path::Path;
pub use path::config::{PathConfig, Way};
pub use path::delay::Delay;
pub use path::link::{Departed, Link, Service, WhenOver};
pub use path::loss::Loss;
pub use path::replay::LightConfig;
pub use path_spec::PathSpec;
pub use queue::{QueueConfig, SpecError};
pub use schedule::{RateSchedule, Schedule};
pub use sizes::SizeOffsets;
pub use trace::Trace;
