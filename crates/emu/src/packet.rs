//! A packet in the emulator: its bytes, and whose it is.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use verus_channel::path;

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

/// All packets of a direction share one propagation.
impl path::Packet for Packet {}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let length = (20 + payload.len()) as u16;
        let mut bytes = vec![0x45, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0, 100, 64, 0, 1, 100, 64, 0, 2]);
        bytes.extend(payload);
        bytes
    }

    const UDP: [u8; 8] = [0x12, 0x34, 0, 53, 0, 8, 0, 0];

    #[test]
    fn ports_are_those_of_first_fragments_only() {
        assert_eq!(ports(&ipv4(17, 0, &UDP)), Some((0x1234, 53)));
        assert_eq!(ports(&ipv4(17, 1, &UDP)), None);
        assert_eq!(ports(&ipv4(1, 0, &UDP)), None);
        assert_eq!(ports(&ipv4(17, 0, &UDP[..3])), None);
        assert_eq!(ports(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_have_ports_or_none(bytes: Vec<u8>, first in 0usize..4) {
            let _ = ports(&bytes);
            // Such as begin well.
            let mut packet = match first {
                0 => ipv4(6, 0, &bytes),
                1 => ipv4(17, 0, &bytes),
                _ => vec![0x60, 0, 0, 0, 0, 40, 0, 64],
            };
            packet.extend(&bytes);
            let _ = ports(&packet);
        }
    }
}
