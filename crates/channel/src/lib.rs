//! What a link is, without a clock.
//!
//! A channel is a schedule of opportunities to deliver ([`Trace`]) or a rate that changes in steps; a
//! [`Link`] puts a queue before it and says when each packet leaves. Neither knows what time it is: the
//! caller says, so a simulator and a real-time emulator drive the same code.

pub mod catalogue;
pub mod delay;
pub mod error;
pub mod expression;
pub mod generate;
pub mod link;
pub mod loss;
pub mod queue;
pub mod raw;
pub mod schedule;
pub mod statistics;
pub mod trace;

pub use catalogue::Channel;
pub use delay::Delay;
pub use error::{Error, Problem};
pub use link::{Departed, Link, Service, WhenOver};
pub use loss::Loss;
pub use queue::{QueueConfig, SpecError};
pub use schedule::{RateSchedule, Schedule};
pub use trace::Trace;
