//! Sans-IO congestion control.
//!
//! The core knows no clock, socket, thread, file or unseeded randomness: `now` is an argument.
//! A simulator, an emulator, a UDP transport and a QUIC stack all drive the same code.

pub mod algorithm;
pub mod bbr;
pub mod bbr1;
pub mod c4;
pub mod configuration;
pub mod constant;
pub mod controller;
pub mod copa;
mod credit;
mod direct;
pub mod ecn;
pub mod episode;
pub mod flight;
pub mod forward;
pub mod ledbatpp;
mod long_path;
pub mod model;
pub mod near;
pub mod pacer;
pub mod prague;
pub mod quantity;
pub mod random;
pub mod range;
pub mod receiver;
mod receiver_clock;
pub mod recovery;
mod resend;
mod rounds;
pub mod rtt;
pub mod saturate;
pub mod scream;
pub mod sender;
pub mod spec;
pub mod sprout;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod units;
mod used;
pub mod verus;
pub mod vivace;
mod windowed;

pub use controller::{
    Acked, Allowance, Arrival, Controller, Delivery, Departure, Feedback, Observer, Phase,
    ProfileSnapshot, Stamp, Timeout,
};
pub use ecn::Ecn;
pub use recovery::{LossRule, Recovery, TimeoutBase, TimeoutRule};
pub use units::{Bytes, Duration, Rate, Time};
