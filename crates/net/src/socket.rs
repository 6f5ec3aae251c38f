//! UDP sockets: for one peer, or for everybody; with buffers that hold what a controller sends at once.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// What the system should hold of what arrives, or is to leave, at once: 5 ms at 6 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

/// A socket that hears everybody who sends to `address`; an unspecified IPv6 address hears IPv4 too.
pub(crate) fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = open(address)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A socket that talks to `peer` alone.
pub(crate) fn connect(peer: SocketAddr) -> io::Result<Socket> {
    let socket = open(peer)?;
    socket.connect(&peer.into())?;
    Ok(socket)
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Less than asked for costs losses at high rates, nothing else.
    let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(BUFFER_BYTES);
    Ok(socket)
}
