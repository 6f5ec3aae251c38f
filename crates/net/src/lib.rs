//! What the two protocols over UDP share: sockets, and whom an address belongs to.

mod network;
pub mod socket;

pub use network::Network;
