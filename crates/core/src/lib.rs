//! Sans-IO congestion control.
//!
//! The core knows no clock, socket, thread, file or unseeded randomness: `now` is an argument.
//! A simulator, an emulator, a UDP transport and a QUIC stack all drive the same code.

pub mod algorithm;
pub mod controller;
pub mod flight;
pub mod pacer;
pub mod random;
pub mod receiver;
pub mod recovery;
pub mod sender;
pub mod units;
pub mod verus;

pub use controller::{Acked, Controller, Departure, Feedback, ProfileSnapshot, Timeout};
pub use recovery::{LossRule, Recovery, TimeoutBase, TimeoutRule};
pub use units::{Bytes, Duration, Rate, Time};
