//! The senders that Verus and forward are measured beside.
//!
//! [`tcp`] has Reno, Cubic and Vegas; [`saturate`] and [`constant`] measure paths. Each module names the paper, draft or code that
//! it follows.

pub mod bbr;
pub mod bbr1;
pub mod c4;
pub mod constant;
pub mod copa;
mod initial_window;
pub mod ledbatpp;
pub mod prague;
mod rounds;
pub mod saturate;
pub mod scream;
pub mod sprout;
pub mod tcp;
mod used;
pub mod vivace;
mod windowed;
