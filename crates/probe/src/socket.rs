//! A UDP socket with the kernel's features: segmentation in both directions, receive timestamps, no
//! fragmentation.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use socket2::Socket;
use verus_clock::Clock;
use verus_core::{Ecn, Time};

use super::connection::Batch;
use verus_net::socket;

/// Datagrams, or runs of them, that one call reads.
const BUFFERS: usize = 8;
/// Size of each buffer: the most that the kernel joins.
const BUFFER_BYTES: usize = 1 << 16;
/// Requested of the system for each direction: the arrivals of 5 ms at 6 Gbit/s.
const SOCKET_BYTES: usize = 4 << 20;

/// A datagram as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// From where.
    pub from: SocketAddr,
    /// To which of our addresses.
    pub local: Option<IpAddr>,
    /// When, by the kernel's stamp.
    pub at: Time,
    /// Its code point.
    pub ecn: Ecn,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A UDP socket.
pub struct UdpSocket {
    socket: Socket,
    state: UdpSocketState,
    buffers: [Vec<u8>; BUFFERS],
    connected: bool,
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local", &self.local_addr())
            .finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// A socket for packets from everybody to `address`; an unspecified IPv6 address receives IPv4
    /// too.
    ///
    /// # Errors
    /// If the system does not grant it: above all, if the port is in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        UdpSocket::finish(socket::bind(address, SOCKET_BYTES)?, false)
    }

    /// A socket that talks to `server` alone.
    ///
    /// # Errors
    /// If the system does not grant it: above all, if there is no route.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        UdpSocket::finish(socket::connect(server, SOCKET_BYTES)?, true)
    }

    fn finish(socket: Socket, connected: bool) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(UdpSocket {
            socket,
            state,
            buffers: std::array::from_fn(|_| vec![0; BUFFER_BYTES]),
            connected,
        })
    }

    /// The local address.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("not an Internet socket"))
    }

    /// How many packets may leave with one call: 1 where segmentation is not offered.
    pub fn most_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Hands each arrival to `each`; returns whether there may be more at once.
    ///
    /// # Errors
    /// The system's error, such as a refused connection; an empty socket is none.
    pub fn receive(
        &mut self,
        clock: &Clock,
        mut each: impl FnMut(Arrived<'_>),
    ) -> io::Result<bool> {
        let mut meta = [RecvMeta::default(); BUFFERS];
        let mut slices = self
            .buffers
            .each_mut()
            .map(|buffer| IoSliceMut::new(buffer));
        let read = match self
            .state
            .recv((&self.socket).into(), &mut slices, &mut meta)
        {
            Ok(read) => read,
            Err(error) if is_nothing(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let wall = clock.wall();
        for (buffer, meta) in self.buffers.iter().zip(&meta[..read]) {
            let at = wall.arrival(meta.timestamp);
            for bytes in buffer[..meta.len].chunks(meta.stride.max(1)) {
                each(Arrived {
                    from: meta.addr,
                    local: meta.dst_ip,
                    at,
                    ecn: meta
                        .ecn
                        .map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn as u8)),
                    bytes,
                });
            }
        }
        Ok(read == BUFFERS)
    }

    /// Sends a batch.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the kernel's buffer is full: send the same again later.
    /// Anything else means that it will not leave.
    pub fn send(&self, batch: &Batch) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: batch.to,
            ecn: EcnCodepoint::from_bits(batch.ecn.bits()),
            contents: batch.contents(),
            segment_size: batch.segment_size(),
            src_ip: if self.connected { None } else { batch.from },
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Sends each packet of a batch separately: a batch refused by the kernel's segmentation may
    /// fit one by one.
    ///
    /// # Errors
    /// Of the first packet that will not leave. One for which the kernel has no room now is lost.
    pub fn send_singly(&self, batch: &Batch) -> io::Result<()> {
        for contents in batch.datagrams() {
            let transmit = quinn_udp::Transmit {
                destination: batch.to,
                ecn: EcnCodepoint::from_bits(batch.ecn.bits()),
                contents,
                segment_size: None,
                src_ip: if self.connected { None } else { batch.from },
            };
            match self.state.try_send((&self.socket).into(), &transmit) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The address that a connected socket talks to.
    ///
    /// # Errors
    /// If it is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket
            .peer_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("not an Internet socket"))
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
