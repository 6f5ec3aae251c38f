//! From a captured frame to a TCP segment or a UDP datagram: Ethernet, Linux cooked, loopback and raw IP.
//!
//! Payloads are rarely captured whole, so lengths are those of the IP header.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    EtherType, LaxNetSlice, LaxSlicedPacket, TcpOptionElement, TcpSlice, TransportSlice,
};

/// A TCP segment or a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// From where.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
    /// Its length with the IP header, in bytes.
    pub bytes: u32,
    /// Its content.
    pub transport: Transport,
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A segment.
    Tcp(Segment),
    /// A datagram, which may be one of QUIC.
    Udp(Udp),
}

/// Of a TCP segment, what says how the flow fares (RFC 9293, options of RFC 7323 and RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Data in it, in bytes.
    pub payload: u32,
    /// Its first byte, if it was captured.
    pub first: Option<u8>,
    /// The version of a packet with a long header.
    pub version: Option<u32>,
}

/// The datagram of a frame of `length` bytes on a link of this type, of which `data` was captured; `None` if it is neither
/// TCP nor UDP, a later fragment, or not captured far enough.
pub fn dissect(link: i32, length: u32, data: &[u8]) -> Option<Datagram> {
    let after = |header: usize, ether_type: [u8; 2]| {
        let packet = LaxSlicedPacket::from_ether_type(
            EtherType(u16::from_be_bytes(ether_type)),
            data.get(header..)?,
        );
        Some((header, packet))
    };
    let (header, packet) = match link {
        // LINKTYPE_NULL and LINKTYPE_LOOP: four bytes of an address family.
        0 | 108 => (4, LaxSlicedPacket::from_ip(data.get(4..)?).ok()?),
        // LINKTYPE_ETHERNET, perhaps with VLANs.
        1 => (14, LaxSlicedPacket::from_ethernet(data).ok()?),
        // LINKTYPE_RAW, as old systems number it, too, and LINKTYPE_IPV4 and _IPV6.
        12 | 14 | 101 | 228 | 229 => (0, LaxSlicedPacket::from_ip(data).ok()?),
        // LINKTYPE_LINUX_SLL and _SLL2.
        113 => after(16, *data.get(14..16)?.first_chunk()?)?,
        276 => after(20, *data.first_chunk()?)?,
        _ => return None,
    };
    let net = packet.net.as_ref()?;
    let (source, destination, ip_header, ip_length) = match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            if header.fragments_offset().value() != 0 {
                return None;
            }
            let addresses = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            let (own, total) = (u32::from(header.ihl()) * 4, u32::from(header.total_len()));
            (addresses.0, addresses.1, own, total)
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
            (addresses.0, addresses.1, 40 + extensions, total)
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let bytes = match ip_length {
        0 => length.saturating_sub(header as u32),
        length => length,
    };
    let payload = bytes.checked_sub(ip_header)?;
    let (ports, transport) = match packet.transport? {
        TransportSlice::Tcp(tcp) => {
            let ports = (tcp.source_port(), tcp.destination_port());
            let payload = payload.checked_sub(tcp.header_len() as u32)?;
            (ports, Transport::Tcp(segment(&tcp, payload)))
        }
        TransportSlice::Udp(udp) => {
            let ports = (udp.source_port(), udp.destination_port());
            let data = udp.payload();
            let version = data.get(1..5).and_then(<[u8]>::first_chunk::<4>);
            let is_long = data.first().is_some_and(|first| first & 0x80 != 0);
            let udp = Udp {
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
