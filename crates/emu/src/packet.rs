//! A packet in the emulator: its bytes, and whose it is.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use verus_channel::path;
use verus_core::Ecn;

/// Before the packet's bytes in each buffer: what the device wants there (`virtio_net_hdr`).
pub const HEADROOM: usize = tun_rs::VIRTIO_NET_HDR_LEN;

/// A packet whose bytes follow [`HEADROOM`] in a buffer that goes back to where it came from.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The buffer.
    pub buffer: Box<[u8]>,
    /// Size of the packet in bytes (IP).
    pub size: usize,
}

/// All packets of a direction share one propagation. The bits for ECN are those of the IP header.
impl path::Packet for Packet {
    fn connection(&self) -> u64 {
        connection(self.bytes())
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        ecn(self.bytes())
    }

    fn mark(&mut self) {
        mark(&mut self.buffer[HEADROOM..HEADROOM + self.size]);
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
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

/// The version of IP, and where the two bits for ECN are: the lowest of IPv4's second byte; IPv6's traffic class lies across two bytes.
#[inline]
fn ecn(bytes: &[u8]) -> Ecn {
    match bytes {
        [first, second, ..] if first >> 4 == 4 => Ecn::from_bits(*second),
        [first, second, ..] if first >> 4 == 6 => Ecn::from_bits(second >> 4),
        _ => Ecn::NotEct,
    }
}

/// Sets both bits; IPv4's header has a checksum, which is corrected by the difference (RFC 1624, eq. 3).
fn mark(bytes: &mut [u8]) {
    match bytes[0] >> 4 {
        4 if bytes.len() >= 20 => {
            let before = u16::from_be_bytes([bytes[0], bytes[1]]);
            bytes[1] |= Ecn::Ce.bits();
            let after = u16::from_be_bytes([bytes[0], bytes[1]]);
            let checksum = u16::from_be_bytes([bytes[10], bytes[11]]);
            let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            bytes[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        6 => bytes[1] |= Ecn::Ce.bits() << 4,
        _ => {}
    }
}

/// A hash of addresses, protocol and ports. Ports are left out where a packet has none or is a
/// later fragment.
fn connection(bytes: &[u8]) -> u64 {
    /// FNV-1a, of which only the spread matters: the queue hashes it again, with a key.
    fn add(hash: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(hash, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
    let begin = 0xcbf2_9ce4_8422_2325;
    let (addresses, protocol) = match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= 20 => (&bytes[12..20], bytes[9]),
        Some(6) if bytes.len() >= 40 => (&bytes[8..40], bytes[6]),
        _ => return begin,
    };
    let hash = add(add(begin, addresses), &[protocol]);
    match ports(bytes) {
        Some((from, to)) => add(add(hash, &from.to_be_bytes()), &to.to_be_bytes()),
        None => hash,
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

    /// The ones' complement sum of 16-bit words (RFC 1071): all ones where a header's checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks_exact(2);
        let mut sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn a_mark_sets_both_bits_and_leaves_the_checksum_right() {
        for bits in [0b01, 0b10, 0b11] {
            for identification in 0..=u16::MAX {
                let mut bytes = ipv4(17, 0, &UDP);
                bytes[1] = 0b1011_1000 | bits;
                bytes[4..6].copy_from_slice(&identification.to_be_bytes());
                let checksum = !sum(&bytes[..20]);
                bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
                assert_eq!(sum(&bytes[..20]), 0xffff);
                assert_eq!(ecn(&bytes), Ecn::from_bits(bits));
                mark(&mut bytes);
                assert_eq!((bytes[1], ecn(&bytes)), (0b1011_1011, Ecn::Ce));
                assert_eq!(sum(&bytes[..20]), 0xffff, "{identification}");
            }
        }
        let mut bytes = vec![0x6a, 0b0010_1100];
        bytes.resize(40, 0);
        assert_eq!(ecn(&bytes), Ecn::Ect0);
        mark(&mut bytes);
        assert_eq!(
            (ecn(&bytes), bytes[0], bytes[1]),
            (Ecn::Ce, 0x6a, 0b0011_1100)
        );
    }

    #[test]
    fn connections_differ_in_addresses_protocol_and_ports() {
        let mut all = vec![
            ipv4(17, 0, &UDP),
            ipv4(17, 1, &UDP),
            ipv4(1, 0, &UDP),
            ipv4(17, 0, &[0x12, 0x35, 0, 53, 0, 8, 0, 0]),
            ipv4(17, 0, &[0x12, 0x34, 0, 54, 0, 8, 0, 0]),
        ];
        let mut other = ipv4(17, 0, &UDP);
        other[19] = 3;
        all.push(other);
        let mut keys: Vec<u64> = all.iter().map(|bytes| connection(bytes)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
        // Changes by a router on the way do not make another connection.
        let mut same = ipv4(17, 0, &UDP);
        (same[1], same[8]) = (0b11, 63);
        assert_eq!(connection(&same), connection(&ipv4(17, 0, &UDP)));
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
            for mut packet in [packet, bytes] {
                let _ = connection(&packet);
                if ecn(&packet).is_capable() {
                    mark(&mut packet);
                }
            }
        }
    }
}
