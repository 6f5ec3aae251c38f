//! Parts shared by the two protocols over UDP: names of hosts, sockets, and the network of an
//! address.

pub mod host;
mod network;
pub mod socket;

pub use network::Network;
