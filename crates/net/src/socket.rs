//! UDP sockets: for one peer, or for everybody; with buffers of the size that each use wants.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// A socket that receives all datagrams to `address`; an unspecified IPv6 address receives IPv4,
/// too. The system is asked to buffer `buffer_bytes` of received data, and as many of data to be
/// sent.
///
/// # Errors
/// As the operating system says.
pub fn bind(address: SocketAddr, buffer_bytes: usize) -> io::Result<Socket> {
    let socket = open(address, buffer_bytes)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A socket that talks to `peer` alone.
///
/// # Errors
/// As the operating system says.
pub fn connect(peer: SocketAddr, buffer_bytes: usize) -> io::Result<Socket> {
    let socket = open(peer, buffer_bytes)?;
    socket.connect(&peer.into())?;
    Ok(socket)
}

fn open(address: SocketAddr, buffer_bytes: usize) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Less than asked for costs losses at high rates, nothing else.
    let _ = socket.set_recv_buffer_size(buffer_bytes);
    let _ = socket.set_send_buffer_size(buffer_bytes);
    Ok(socket)
}
