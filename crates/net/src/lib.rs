//! The core on real sockets.
//!
//! - [`probe`]: the paper's sender and receiver over UDP (SIGCOMM 2015 §5), for measurement.
//! - [`quic`]: any of the core's controllers as a congestion controller of the QUIC stack `quinn`.
//! - [`transfer`]: files over QUIC with Verus.

mod network;
pub mod probe;
pub mod quic;
mod socket;
pub mod transfer;
