//! Sans-IO congestion control.
//!
//! The core knows no clock, socket, thread, file or unseeded randomness: `now` is an argument.
//! A simulator, an emulator, a UDP transport and a QUIC stack all drive the same code.

pub mod configuration;
pub mod controller;
pub mod credit;
pub mod ecn;
pub mod episode;
pub mod flight;
pub mod pacer;
pub mod prr;
pub mod random;
pub mod receiver;
pub mod receiver_clock;
pub mod recovery;
mod resend;
pub mod rtt;
pub mod sender;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod units;

pub use controller::{
    Acked, Allowance, Arrival, Controller, Delivery, Departure, Feedback, Observer, Phase,
    ProfileSnapshot, Stamp, Timeout,
};
pub use ecn::Ecn;
pub use recovery::{LossRule, Recovery, TimeoutBase, TimeoutRule};
pub use units::{Bytes, Duration, Rate, Time};
