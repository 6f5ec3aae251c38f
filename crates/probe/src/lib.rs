//! Measurement over UDP: the paper's sender and receiver (SIGCOMM 2015 §5) for every controller of
//! the core.
//!
//! The protocol is sans-IO: [`Client`] and [`Server`] take arrivals and the time, and return
//! packets to send and the next wake-up. [`driver`] gives them sockets and a clock; tests give them
//! an imagined network.
//!
//! ```text
//! driver ── socket, timer, signals        real time
//!    │
//! client, server ── handshake, limits     sans-IO from here down
//!    │
//! connection ── status, end, address; trickle ── what silence costs
//!    │
//! flow ── one direction of one flow: core's Sender or Receiver
//!    │
//! wire, seal ── bytes, tags
//! ```

pub mod client;
pub mod connection;
pub mod driver;
pub mod echo;
pub mod flow;
pub mod limits;
pub mod reach;
pub mod recording;
pub mod results;
pub mod seal;
pub mod server;
pub mod socket;
mod trickle;
pub mod wire;

pub use client::Client;
pub use server::Server;

/// The default port of server and client.
pub const DEFAULT_PORT: u16 = 6060;
