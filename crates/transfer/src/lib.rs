//! Files over QUIC.
//!
//! A [`Server`] serves a folder; a [`Client`] lists it, gets files from it and puts files into it.
//! Neither may do harm by mistake. Paths cannot leave the folder ([`folder`]). A file takes its
//! name only once it is whole and verified ([`files`], [`digest`]). No peer is served before it has
//! proven its identity ([`secrets`], [`trust`], [`access`]). An interrupted transfer goes on where
//! it stopped.
//!
//! `docs/transfer.md` describes the protocol, byte by byte, and the attacks that it does not
//! prevent.

pub mod access;
pub mod account;
pub mod address;
mod client;
mod datagram_filter;
pub mod digest;
mod exchange;
pub mod files;
pub mod folder;
pub mod frames;
mod housekeeping;
pub mod paths;
mod places;
pub mod printable;
pub mod private;
pub mod refusal;
pub mod reserved;
pub mod secret_error;
pub mod secrets;
mod server;
pub mod traffic;
pub mod trust;
mod umask;
mod wire;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::{IdleTimeout, TransportConfig, VarInt};
use verus_senders::Scheme;

use verus_net::socket;

pub use account::{Direction, Outcome, Transfer};
pub use client::{Client, ClientConfig, ConnectError, Entry};
pub use exchange::Delivered;
pub use server::{Event, Limits, Server, ServerConfig};
pub use wire::Trouble;

/// The UDP port of a server, unless another is given.
pub const DEFAULT_PORT: u16 = 9488;

/// A connection without a packet from the peer for this long is over. It survives a blackout of 30
/// s and the time that QUIC's probes need to notice its end.
pub const IDLE: Duration = Duration::from_secs(60);
/// How often an idle client shows that it is alive. A server does not: it would keep dead clients'
/// connections.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Limit of the bytes per connection that have arrived and wait to be written. Also the limit of
/// sent bytes that wait for acknowledgement.
const WINDOW: u32 = 8 << 20;
/// Sum of such windows over all clients of a server, in each direction. A client's window is its
/// share, but at least [`LEAST_WINDOW`], which is 5 Mbit/s for a round trip of 100 ms.
///
/// Bytes in flight when other clients arrive stay until they are acknowledged. If many clients
/// arrive at once and read nothing, the nth holds an nth of this, and all together four times as
/// much.
const WINDOWS: u32 = 16 << 20;
const LEAST_WINDOW: u32 = 64 << 10;
/// The window before the peer has proven its identity.
const STRANGERS_WINDOW: u32 = 64 << 10;
/// Number of clients whose simultaneous uploads do not keep the server's socket full.
const FEW: usize = 16;
/// Buffer that a client requests of the system for each direction: the arrivals of 5 ms at 400
/// Mbit/s. A killed end loses its contents, so it is not larger.
const SOCKET_BYTES: usize = 256 << 10;
/// The same for a server, which receives from many clients at once. With a smaller buffer, the
/// first of 100 uploads kept it full. Later clients lost their first packets or could not connect
/// at all.
const SERVER_SOCKET_BYTES: usize = 4 << 20;
/// How many requests a client may have open.
const STREAMS: u32 = 16;

/// Why a connection was closed, as QUIC carries it.
mod code {
    /// All is done.
    pub const DONE: u32 = 0;
    /// The peer did not keep to the protocol.
    pub const PROTOCOL: u32 = 1;
    /// The client's proof does not hold, or there is none.
    pub const TOKEN: u32 = 2;
    /// The server's proof does not hold, or its key is not the one that was expected.
    pub const STRANGER: u32 = 3;
    /// The server has enough clients.
    pub const BUSY: u32 = 4;
    /// The server stops.
    pub const STOPPING: u32 = 5;
    /// The client was stopped.
    pub const INTERRUPTED: u32 = 6;
    /// The client's token was revoked, or its rights have changed.
    pub const REVOKED: u32 = 7;
    /// The client asks for nothing.
    pub const IDLE: u32 = 8;
}

/// Progress of a file; shared with the display.
#[derive(Debug, Default)]
pub struct Gauge {
    position: AtomicU64,
    kept: AtomicU64,
    moved: AtomicU64,
}

impl Gauge {
    /// How much of the file is at its destination, in bytes.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// How much of that an earlier attempt had left.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// How much of its data went over the wire, or was handed over for that; holes do not count.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn add_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    fn start(&self, kept: u64) {
        self.kept.store(kept, Ordering::Relaxed);
        self.set(kept);
    }

    fn set(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }
}

/// How long an end waits for the peer by default: see [`Trouble::Silent`].
pub const SILENCE: Duration = Duration::from_secs(60);

/// The window of each of so many clients, bytes.
fn share(clients: usize) -> u32 {
    let clients = u32::try_from(clients.max(1)).unwrap_or(u32::MAX);
    (WINDOWS / clients).clamp(LEAST_WINDOW, WINDOW)
}

/// Bytes in flight allowed to each of this many sending clients. With more than a few clients, the
/// sum fits into the server's socket. Otherwise the first ones would fill it and the others would
/// lose packets.
fn receive_share(clients: usize) -> u32 {
    if clients <= FEW {
        return share(clients);
    }
    let socket = u32::try_from(SERVER_SOCKET_BYTES / clients).unwrap_or(u32::MAX);
    socket.max(LEAST_WINDOW)
}

/// How much of a file is read at a time for a client with this window, bytes: two such runs wait to be sent.
fn run(window: u32) -> u64 {
    let quarter = u64::from(window / 4);
    (quarter - quarter % digest::BLOCK).clamp(digest::BLOCK, frames::MAX_RUN)
}

/// Transport settings of both ends. `window` is the receive window of the connection, `sends` the
/// limit of unacknowledged sent bytes.
fn transport(
    scheme: &Scheme,
    window: u32,
    sends: &Arc<AtomicU64>,
    streams: u32,
    seed: u64,
) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(window));
    verus_quinn::Factory::new(scheme.config(), seed)
        .shared_send_window(Arc::clone(sends))
        .install(&mut transport);
    transport
}

/// A server's socket: for IPv4, too, where it is for all IPv6 addresses.
///
/// # Errors
/// As the operating system says.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    Ok(socket::bind(address, SERVER_SOCKET_BYTES)?.into())
}

/// A number that cannot be guessed.
fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    // Only a controller's random numbers depend on it.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// The secret that only the two ends of this TLS connection know (RFC 8446 §7.5).
fn channel_secret(connection: &quinn::Connection) -> Result<[u8; 32], Trouble> {
    let mut secret = [0; 32];
    connection
        .export_keying_material(&mut secret, b"EXPORTER-verus-transfer-1", b"")
        .map_err(|_| {
            Trouble::Lost("the connection has no secret to prove anything by".to_owned())
        })?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_clients_make_a_server_keep_is_bounded_and_few_have_all_that_they_can_use() {
        for clients in 1..=2 {
            assert_eq!(
                (share(clients), run(share(clients))),
                (WINDOW, frames::MAX_RUN)
            );
        }
        for clients in [5, 32, 100, 200] {
            let each = u64::from(share(clients)) + 2 * run(share(clients));
            let all = each * clients as u64;
            assert!(all <= 48 << 20, "{all} bytes for {clients}");
        }
        assert_eq!(share(10_000), LEAST_WINDOW);
        assert_eq!(receive_share(1), WINDOW);
        for clients in [17, 32, 64] {
            let all = receive_share(clients) as usize * clients;
            assert!(all <= SERVER_SOCKET_BYTES, "{all} bytes for {clients}");
        }
        assert_eq!(receive_share(100), LEAST_WINDOW);
        assert_eq!(run(LEAST_WINDOW), digest::BLOCK);
    }
}
