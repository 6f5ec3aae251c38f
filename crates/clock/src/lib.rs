//! Real time, for what drives the sans-IO core on sockets and devices: a clock that gives the core's
//! [`Time`](verus_core::Time), and an alarm that wakes at one.

mod alarm;
mod clock;

pub use alarm::Alarm;
pub use clock::{Clock, Wall};
