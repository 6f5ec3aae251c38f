//! A packet in the emulator: its bytes, and whose it is.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// Before the packet's bytes in each buffer: what the device wants there (`virtio_net_hdr`).
pub const HEADROOM: usize = tun_rs::VIRTIO_NET_HDR_LEN;

/// A packet whose bytes follow [`HEADROOM`] in a buffer that goes back to where it came from.
#[derive(Debug)]
pub struct Packet {
    /// The buffer.
    pub buffer: Box<[u8]>,
    /// Size of the packet in bytes (IP).
    pub size: usize,
}

impl Packet {
    /// The packet, from its IP header on.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[HEADROOM..HEADROOM + self.size]
    }

    /// The ports of a TCP segment or UDP datagram that is no fragment: source, destination.
    pub fn ports(&self) -> Option<(u16, u16)> {
        ports(self.bytes())
    }
}

fn ports(bytes: &[u8]) -> Option<(u16, u16)> {
    let sliced = SlicedPacket::from_ip(bytes).ok()?;
    if let Some(NetSlice::Ipv4(ip)) = &sliced.net
        && ip.header().fragments_offset().value() != 0
    {
        return None;
    }
    match sliced.transport? {
        TransportSlice::Udp(udp) => Some((udp.source_port(), udp.destination_port())),
        TransportSlice::Tcp(tcp) => Some((tcp.source_port(), tcp.destination_port())),
        _ => None,
    }
}
