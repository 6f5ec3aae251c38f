//! Headers for packets without: simulated packets, and the datagrams of a socket.
//!
//! A socket does not know the time to live and the identification. They are 64, the default of Linux, and 0.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header, UdpHeader};
use verus_core::Ecn;

/// Time to live, or hop limit.
const HOPS: u8 = 64;

/// An IPv4 header before `size` bytes.
pub(crate) fn ipv4(
    [source, destination]: [[u8; 4]; 2],
    protocol: IpNumber,
    size: u16,
    ecn: Ecn,
    identification: u16,
) -> Ipv4Header {
    let mut ip = Ipv4Header::new(size, HOPS, protocol, source, destination)
        .expect("it fits beside a header of 20 bytes");
    ip.ecn = match ecn {
        Ecn::NotEct => IpEcn::ZERO,
        Ecn::Ect1 => IpEcn::ONE,
        Ecn::Ect0 => IpEcn::TWO,
        Ecn::Ce => IpEcn::THREE,
    };
    ip.identification = identification;
    ip.dont_fragment = true;
    ip.header_checksum = ip.calc_header_checksum();
    ip
}

/// The IP and UDP headers of a datagram, with its checksum (RFC 768). Its identification is
/// meaningless, since it is never fragmented (RFC 6864 §4.1).
///
/// # Panics
/// If the addresses are of two families, or the datagram is larger than UDP's largest.
pub fn udp(from: SocketAddr, to: SocketAddr, ecn: Ecn, datagram: &[u8]) -> Vec<u8> {
    let size = UdpHeader::LEN + datagram.len();
    let size = u16::try_from(size).expect("a datagram is shorter than 64 KiB");
    let ports = (from.port(), to.port());
    let (mut head, udp) = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let addresses = [source.octets(), destination.octets()];
            let ip = ipv4(addresses, IpNumber::UDP, size, ecn, 0);
            let udp = UdpHeader::with_ipv4_checksum(ports.0, ports.1, &ip, datagram);
            (ip.to_bytes().to_vec(), udp)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Header {
                traffic_class: ecn.bits(),
                payload_length: size,
                next_header: IpNumber::UDP,
                hop_limit: HOPS,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            let udp = UdpHeader::with_ipv6_checksum(ports.0, ports.1, &ip, datagram);
            (ip.to_bytes().to_vec(), udp)
        }
        _ => panic!("a socket has addresses of one family"),
    };
    head.extend_from_slice(&udp.expect("its size has 16 bits").to_bytes());
    head
}
