//! From a captured frame to a TCP segment or a UDP datagram: Ethernet, Linux cooked, loopback and raw IP.
//!
//! Payloads are rarely captured whole, so lengths are those of the IP header.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use etherparse::{
    EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, TcpOptionElement, TcpSlice, TransportSlice,
};

/// The bytes of UDP data by which datagrams differ: QUIC's longest connection ID and packet number
/// (RFC 9000 §17.3.1), and the headers of RTP, WireGuard and iperf3.
const BEGINNING: usize = 32;

/// A TCP segment or a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// From where.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
    /// The kernel's index of the interface, which Linux cooked headers of version 2 have.
    pub interface: Option<u32>,
    /// The identification of IPv4; 0 in IPv6. In datagrams that are never fragmented it may be 0
    /// (RFC 6864 §4.1).
    pub identification: u16,
    /// Its length with the IP header, in bytes.
    pub bytes: u32,
    /// Its content.
    pub transport: Transport,
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A segment.
    Tcp(Segment),
    /// A datagram, which may be one of QUIC.
    Udp(Udp),
}

/// Of a TCP segment, what says how the flow fares (RFC 9293, options of RFC 7323 and RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The sequence number of its first byte.
    pub sequence: u32,
    /// The acknowledgement number, where the flag is set.
    pub acknowledgement: Option<u32>,
    /// The window field, not scaled.
    pub window: u16,
    /// Whether it opens the connection.
    pub syn: bool,
    /// Whether it ends one direction, or both.
    pub fin: bool,
    /// Data in it, in bytes.
    pub payload: u32,
    /// Ranges of the SACK option.
    pub sack: [Option<(u32, u32)>; 4],
    /// TSval and TSecr of the timestamps option.
    pub timestamps: Option<(u32, u32)>,
    /// The shift of the window scale option.
    pub scale: Option<u8>,
}

/// Of a UDP datagram, what passive observers of QUIC may read (RFC 8999; RFC 9000 §17.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Udp {
    /// Data in it, in bytes.
    pub payload: u32,
    /// Its first byte, if it was captured.
    pub first: Option<u8>,
    /// The version of a packet with a long header.
    pub version: Option<u32>,
    /// The first bytes of its data, and zeros where fewer were captured.
    pub beginning: [u8; BEGINNING],
}

impl Datagram {
    /// Whether an equal datagram is a copy of the same packet rather than another one. It is if it
    /// has an identification, a sequence number, or UDP data whose bytes are not all the same.
    pub fn is_unique(&self) -> bool {
        self.identification != 0
            || match &self.transport {
                Transport::Tcp(segment) => segment.payload > 0,
                Transport::Udp(udp) => udp.beginning.iter().any(|byte| *byte != udp.beginning[0]),
            }
    }
}

/// Why a frame has no datagram that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// A link type that is not read.
    Link(i32),
    /// Another protocol than IP, by its Ethernet type.
    EtherType(u16),
    /// Another protocol than TCP and UDP, by its number in IP.
    Protocol(u8),
    /// A fragment after the first, which has no ports.
    Fragment,
    /// Not captured up to the end of its headers, or damaged.
    Short,
}

/// LINKTYPE_LINUX_SLL2, whose header has the interface's index in its bytes 4 to 7.
const LINUX_SLL2: i32 = 276;

/// Names of link types, as <https://www.tcpdump.org/linktypes.html> lists them.
const LINKS: [(i32, &str); 16] = [
    (6, "IEEE 802.5"),
    (9, "PPP"),
    (50, "PPP in HDLC framing"),
    (51, "PPPoE"),
    (104, "Cisco HDLC"),
    (105, "IEEE 802.11"),
    (107, "Frame Relay"),
    (119, "IEEE 802.11 with Prism headers"),
    (127, "IEEE 802.11 with radiotap headers"),
    (163, "IEEE 802.11 with AVS headers"),
    (166, "PPP with direction"),
    (189, "USB"),
    (192, "per-packet information"),
    (195, "IEEE 802.15.4"),
    (220, "USB"),
    (252, "Wireshark's exported PDUs"),
];

/// Names of Ethernet types (IEEE 802).
const ETHER_TYPES: [(i32, &str); 5] = [
    (0x0806, "ARP"),
    (0x8847, "MPLS"),
    (0x8863, "PPPoE discovery"),
    (0x8864, "PPPoE"),
    (0x88cc, "LLDP"),
];

/// Names of IP's protocols, as IANA assigns them.
const PROTOCOLS: [(i32, &str); 9] = [
    (1, "ICMP"),
    (2, "IGMP"),
    (4, "IPv4 in IP"),
    (41, "IPv6 in IP"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPv6"),
    (132, "SCTP"),
];

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |names: &[(i32, &'static str)], number: i32| {
            let of_number = names.iter().find(|(one, _)| *one == number);
            of_number.map_or(String::new(), |(_, name)| format!(" ({name})"))
        };
        match *self {
            Unread::Link(link) => write!(f, "of link type {link}{}", name(&LINKS, link)),
            Unread::EtherType(kind) => {
                let name = name(&ETHER_TYPES, kind.into());
                write!(f, "of Ethernet type {kind:#06x}{name}")
            }
            Unread::Protocol(number) => {
                let name = name(&PROTOCOLS, number.into());
                write!(f, "of IP protocol {number}{name}")
            }
            Unread::Fragment => f.write_str("fragments"),
            Unread::Short => f.write_str("not captured with all headers, or damaged"),
        }
    }
}

/// The datagram of a frame of `length` bytes on a link of this type, of which `data` was captured.
///
/// # Errors
/// If it is not TCP or UDP over IP, not captured far enough, or a fragment, of which even the first
/// is not read.
pub fn dissect(link: i32, length: u32, data: &[u8]) -> Result<Datagram, Unread> {
    let packet = sliced(link, data)?;
    let mut datagram = datagram(data, length, &packet).ok_or_else(|| reason(&packet))?;
    if link == LINUX_SLL2 {
        let index = data.get(4..).and_then(<[u8]>::first_chunk::<4>);
        datagram.interface = index.map(|index| u32::from_be_bytes(*index));
    }
    Ok(datagram)
}

/// The packet behind the link header.
fn sliced(link: i32, data: &[u8]) -> Result<LaxSlicedPacket<'_>, Unread> {
    let after = |header: usize, ether_type: usize| {
        let ether_type = data.get(ether_type..)?.first_chunk()?;
        let ether_type = EtherType(u16::from_be_bytes(*ether_type));
        Some(LaxSlicedPacket::from_ether_type(
            ether_type,
            data.get(header..)?,
        ))
    };
    let ip = |header: usize| LaxSlicedPacket::from_ip(data.get(header..)?).ok();
    let sliced = match link {
        // LINKTYPE_NULL and LINKTYPE_LOOP: four bytes of an address family.
        0 | 108 => ip(4),
        // LINKTYPE_ETHERNET, perhaps with VLANs.
        1 => LaxSlicedPacket::from_ethernet(data).ok(),
        // LINKTYPE_RAW, as old systems number it, too, and LINKTYPE_IPV4 and _IPV6.
        12 | 14 | 101 | 228 | 229 => ip(0),
        // LINKTYPE_LINUX_SLL and _SLL2.
        113 => after(16, 14),
        LINUX_SLL2 => after(20, 0),
        _ => return Err(Unread::Link(link)),
    };
    sliced.ok_or(Unread::Short)
}

/// Why a packet has no datagram.
fn reason(packet: &LaxSlicedPacket<'_>) -> Unread {
    let is_tcp_or_udp = |number: IpNumber| matches!(number, IpNumber::TCP | IpNumber::UDP);
    match packet.net.as_ref() {
        Some(net) => match net.ip_payload_ref() {
            Some(payload) if !is_tcp_or_udp(payload.ip_number) => {
                Unread::Protocol(payload.ip_number.0)
            }
            Some(payload) if payload.fragmented => Unread::Fragment,
            Some(_) => Unread::Short,
            None => Unread::EtherType(EtherType::ARP.0),
        },
        None => match packet.ether_payload().map(|payload| payload.ether_type) {
            Some(EtherType::IPV4 | EtherType::IPV6) | None => Unread::Short,
            Some(other) => Unread::EtherType(other.0),
        },
    }
}

/// The datagram in the packet of a frame of `length` bytes, of which `data` was captured.
fn datagram(data: &[u8], length: u32, packet: &LaxSlicedPacket<'_>) -> Option<Datagram> {
    let net = packet.net.as_ref()?;
    let mut identification = 0;
    let (source, destination, ip_start, ip_header, ip_length) = match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            if header.fragments_offset().value() != 0 {
                return None;
            }
            let addresses = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            identification = header.identification();
            let (own, total) = (u32::from(header.ihl()) * 4, u32::from(header.total_len()));
            (addresses.0, addresses.1, header.slice(), own, total)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let addresses: (IpAddr, IpAddr) = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            let extensions = ip.extensions().slice().len() as u32;
            let payload = u32::from(header.payload_length());
            // Zero for jumbograms, and for what offloading has joined.
            let total = if payload == 0 { 0 } else { payload + 40 };
            let header = header.slice();
            (addresses.0, addresses.1, header, 40 + extensions, total)
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let bytes = match ip_length {
        // The rest of the frame, behind the link header and its VLAN tags.
        0 => {
            let link_header = ip_start.as_ptr().addr() - data.as_ptr().addr();
            length.saturating_sub(link_header as u32)
        }
        length => length,
    };
    let payload = bytes.checked_sub(ip_header)?;
    let (ports, transport) = match packet.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => {
            let ports = (tcp.source_port(), tcp.destination_port());
            let payload = payload.checked_sub(tcp.header_len() as u32)?;
            (ports, Transport::Tcp(segment(tcp, payload)))
        }
        TransportSlice::Udp(udp) => {
            let ports = (udp.source_port(), udp.destination_port());
            let data = udp.payload();
            let version = data.get(1..5).and_then(<[u8]>::first_chunk::<4>);
            let is_long = data.first().is_some_and(|first| first & 0x80 != 0);
            let mut beginning = [0; BEGINNING];
            for (place, byte) in beginning.iter_mut().zip(data) {
                *place = *byte;
            }
            let udp = Udp {
                beginning,
                payload: payload.checked_sub(8)?,
                first: data.first().copied(),
                version: version
                    .filter(|_| is_long)
                    .map(|version| u32::from_be_bytes(*version)),
            };
            (ports, Transport::Udp(udp))
        }
        _ => return None,
    };
    Some(Datagram {
        source: SocketAddr::new(source, ports.0),
        destination: SocketAddr::new(destination, ports.1),
        interface: None,
        identification,
        bytes,
        transport,
    })
}

fn segment(tcp: &TcpSlice<'_>, payload: u32) -> Segment {
    let mut segment = Segment {
        sequence: tcp.sequence_number(),
        acknowledgement: tcp.ack().then(|| tcp.acknowledgment_number()),
        window: tcp.window_size(),
        syn: tcp.syn(),
        fin: tcp.fin() || tcp.rst(),
        payload,
        ..Segment::default()
    };
    for option in tcp.options_iterator() {
        match option {
            Ok(TcpOptionElement::WindowScale(shift)) => segment.scale = Some(shift.min(14)),
            Ok(TcpOptionElement::Timestamp(value, echo)) => {
                segment.timestamps = Some((value, echo));
            }
            Ok(TcpOptionElement::SelectiveAcknowledgement(first, [second, third, fourth])) => {
                segment.sack = [Some(first), second, third, fourth];
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    segment
}
