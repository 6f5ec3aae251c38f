//! What the two protocols over UDP share: how hosts are named and found, sockets, and whom an address belongs to.

pub mod host;
mod network;
pub mod socket;

pub use network::Network;
