//! The simulator's packets with real headers: IPv4 and TCP.
//!
//! All simulated senders have a stream of data, acknowledgements of ranges and retransmissions of the same pieces. So all
//! are written as TCP, whose headers carry these: tools compute round trips and retransmissions of TCP, and of UDP
//! nothing. A simulated packet of 1500 bytes is one of 1500 bytes with its headers, so 1460 bytes of data. There is no
//! handshake, since the simulator has none.
//!
//! ```text
//!  sender ──●─▶ queue, link ──●──▶ propagation ──▶ receiver
//!           ▲                 ▲
//!    `bottleneck in`   `bottleneck out`
//! ```
//!
//! An acknowledgement passes both points as it reaches its sender, so a round trip on `bottleneck in` is the sender's own,
//! and on `bottleneck out` it lacks the queue. Its TCP acknowledgement number and SACK option (RFC 2018) name the data
//! that the packets carried which it acknowledges. A new mark sets ECE (RFC 3168) in the first acknowledgement of it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use etherparse::{IpNumber, TcpHeader, TcpOptionElement};
use verus_channel::path::Why;
use verus_core::receiver::{Ack, DataRange, NumberRange, RANGES_PER_ACK};
use verus_core::{Bytes, Ecn, Time};
use verus_sim::{DataPacket, Tap};

use crate::headers::ipv4;
use crate::record::Recorder;
use crate::write::Writer;

/// The capture points, by index: name and description.
pub const INTERFACES: [(&str, &str); 2] = [
    ("bottleneck in", "simulated, before the queue"),
    ("bottleneck out", "simulated, behind the link"),
];
const IN: u32 = 0;
const OUT: u32 = 1;

/// IPv4 and TCP headers without options.
const HEADERS: u64 = 40;

/// The first byte of a connection's data, and of what its receiver would send.
const FIRST: u64 = 1;

/// Addresses of senders are 10.1.x.y and those of receivers 10.2.x.y, where x.y is the flow's number from 1.
const SENDERS: u8 = 1;
const RECEIVERS: u8 = 2;

/// The receiver's port; the senders' begin behind [`FIRST_PORT`], another for each connection.
const PORT: u16 = 20_000;
const FIRST_PORT: u16 = 20_001;

/// The largest payload, of zeros, for checksums.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// A capture of one simulated run.
#[derive(Debug)]
pub struct Capture<W: Write> {
    recorder: Recorder<W>,
    connections: Vec<SimulatedConnection>,
}

impl<W: Write> Capture<W> {
    /// A capture that goes to `sink`. A run's time zero is that of 1970.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(sink: W) -> io::Result<Self> {
        Ok(Capture {
            recorder: Recorder::new(Writer::new(sink, &INTERFACES)?, 0),
            connections: Vec::new(),
        })
    }
}

impl<W: Write + Send + std::fmt::Debug> Tap for Capture<W> {
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &DataPacket) {
        let flow = packet.flow as usize;
        if self.connections.len() <= flow {
            self.connections
                .resize_with(flow + 1, SimulatedConnection::default);
        }
        let connection = &mut self.connections[flow];
        if connection.number != packet.connection {
            *connection = SimulatedConnection {
                number: packet.connection,
                ..SimulatedConnection::default()
            };
        }
        let payload = size.get().saturating_sub(HEADERS);
        let sequence = connection.sent(packet.number, packet.data, payload);
        let mut tcp = TcpHeader::new(connection.port(), PORT, sequence as u32, u16::MAX);
        tcp.ack = true;
        tcp.acknowledgment_number = FIRST as u32;
        let addresses = [
            address(SENDERS, packet.flow),
            address(RECEIVERS, packet.flow),
        ];
        let head = headers(
            addresses,
            tcp,
            payload as usize,
            packet.ecn,
            packet.id as u16,
        );
        let id = u64::from(packet.id);
        self.recorder.on_entered(now, id, (IN, OUT), &head, size);
    }

    fn on_dropped(&mut self, now: Time, packet: &DataPacket, why: Why) {
        self.recorder.on_dropped(now, u64::from(packet.id), why);
    }

    fn on_left(&mut self, now: Time, packet: &DataPacket) {
        self.recorder.on_left(now, u64::from(packet.id), packet.ecn);
    }

    fn on_acknowledgement(&mut self, now: Time, flow: u32, ack: &Ack) {
        let Some(connection) = self.connections.get_mut(flow as usize) else {
            return;
        };
        let selective = connection.acknowledged(ack);
        let mut tcp = TcpHeader::new(PORT, connection.port(), FIRST as u32, u16::MAX);
        tcp.ack = true;
        tcp.acknowledgment_number = connection.in_order as u32;
        tcp.ece = ack.marks != connection.marks;
        connection.marks = ack.marks;
        if let [first, rest @ ..] = &selective[..] {
            let mut others = [None; 3];
            for (place, block) in others.iter_mut().zip(rest) {
                *place = Some(*block);
            }
            tcp.set_options(&[
                TcpOptionElement::Noop,
                TcpOptionElement::Noop,
                TcpOptionElement::SelectiveAcknowledgement(*first, others),
            ])
            .expect("four ranges are 36 bytes of the 40 that options may have");
        }
        let addresses = [address(RECEIVERS, flow), address(SENDERS, flow)];
        let head = headers(addresses, tcp, 0, Ecn::NotEct, ack.newest() as u16);
        let size = Bytes::new(head.len() as u64);
        self.recorder.on_passing(now, &[IN, OUT], &head, size);
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.recorder.finish().map(drop)
    }
}

/// IPv4 and TCP headers of a packet, with checksums as if all data were zeros.
fn headers(
    addresses: [[u8; 4]; 2],
    mut tcp: TcpHeader,
    payload: usize,
    ecn: Ecn,
    identification: u16,
) -> Vec<u8> {
    let size = tcp.header_len() + payload;
    // The size of a scenario's packets has 16 bits.
    let size = u16::try_from(size).unwrap_or(u16::MAX - 20);
    let ip = ipv4(addresses, IpNumber::TCP, size, ecn, identification);
    tcp.checksum = tcp
        .calc_checksum_ipv4(&ip, &ZEROS[..payload])
        .expect("it fits an IPv4 packet");
    let mut head = ip.to_bytes().to_vec();
    head.extend_from_slice(&tcp.to_bytes());
    head
}

fn address(network: u8, flow: u32) -> [u8; 4] {
    let [.., high, low] = (flow + 1).to_be_bytes();
    [10, network, high, low]
}

/// A piece of data as the simulator and as TCP number its bytes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Offset in the simulator's stream.
    start: u64,
    /// TCP's sequence numbers, unwrapped: the first, and the one behind the last.
    sequence: (u64, u64),
}

/// A packet that has left.
#[derive(Clone, Copy, Debug)]
struct SimulatedPacket {
    number: u64,
    sequence: (u64, u64),
    acknowledged: bool,
}

/// One connection, as its sender knows it.
#[derive(Debug)]
struct SimulatedConnection {
    number: u32,
    /// The next piece of new data: offset and sequence number.
    next: Piece,
    /// Pieces of which some may be sent again, ascending.
    pieces: VecDeque<Piece>,
    /// Packets, ascending by number, from the first whose data may not have arrived.
    sent: VecDeque<SimulatedPacket>,
    /// All data before this sequence number has been acknowledged.
    in_order: u64,
    /// Acknowledged data behind it: the first sequence number, and the one behind the last.
    islands: BTreeMap<u64, u64>,
    marks: u32,
}

impl Default for SimulatedConnection {
    fn default() -> Self {
        SimulatedConnection {
            number: 0,
            next: Piece {
                start: 0,
                sequence: (FIRST, FIRST),
            },
            pieces: VecDeque::new(),
            sent: VecDeque::new(),
            in_order: FIRST,
            islands: BTreeMap::new(),
            marks: 0,
        }
    }
}

impl SimulatedConnection {
    fn port(&self) -> u16 {
        let ports = u32::from(u16::MAX - FIRST_PORT) + 1;
        FIRST_PORT + (self.number % ports) as u16
    }

    /// A packet leaves with `payload` bytes of data; returns the sequence number of the first.
    fn sent(&mut self, number: u64, data: DataRange, payload: u64) -> u64 {
        let piece = if data.start >= self.next.start {
            let (_, first) = self.next.sequence;
            let piece = Piece {
                start: data.start,
                sequence: (first, first + payload),
            };
            self.pieces.push_back(piece);
            self.next = Piece {
                start: data.start + data.len.max(1),
                ..piece
            };
            piece
        } else {
            let at = self
                .pieces
                .partition_point(|piece| piece.start < data.start);
            let piece = self
                .pieces
                .get(at)
                .filter(|piece| piece.start == data.start);
            // Acknowledged in order before: old data, of which only its age matters.
            piece.copied().unwrap_or(Piece {
                start: data.start,
                sequence: (self.in_order.saturating_sub(payload), self.in_order),
            })
        };
        self.sent.push_back(SimulatedPacket {
            number,
            sequence: piece.sequence,
            acknowledged: false,
        });
        piece.sequence.0
    }

    /// An acknowledgement arrives; returns the ranges of its SACK option, that of the newest packet first.
    fn acknowledged(&mut self, ack: &Ack) -> Vec<(u32, u32)> {
        let mut newest: [Option<u64>; RANGES_PER_ACK] = [None; RANGES_PER_ACK];
        for (range, newest) in ack.ranges().zip(&mut newest) {
            *newest = self.arrived(range);
        }
        while let Some(packet) = self.sent.front()
            && (packet.acknowledged || packet.sequence.1 <= self.in_order)
        {
            self.sent.pop_front();
        }
        while let Some(piece) = self.pieces.front()
            && piece.sequence.1 <= self.in_order
        {
            self.pieces.pop_front();
        }
        let mut ranges = Vec::new();
        for sequence in newest.into_iter().flatten() {
            let island = self.islands.range(..=sequence).next_back();
            if let Some((&first, &end)) = island
                && sequence < end
                && !ranges.contains(&(first as u32, end as u32))
            {
                ranges.push((first as u32, end as u32));
            }
        }
        ranges
    }

    /// Packets of these numbers have arrived; returns where the data of the last of them begins, if it is known.
    fn arrived(&mut self, range: NumberRange) -> Option<u64> {
        let mut last = None;
        let from = self
            .sent
            .partition_point(|packet| packet.number < range.first);
        for at in from..self.sent.len() {
            let packet = &mut self.sent[at];
            if packet.number > range.last {
                break;
            }
            last = Some(packet.sequence.0);
            if !std::mem::replace(&mut packet.acknowledged, true) {
                let sequence = packet.sequence;
                self.add(sequence);
            }
        }
        last
    }

    /// Adds acknowledged data, and joins it with what touches it.
    fn add(&mut self, (first, end): (u64, u64)) {
        if end <= self.in_order || self.islands.get(&first).is_some_and(|&last| end <= last) {
            return;
        }
        let (mut first, mut end) = (first, end);
        if let Some((&before, &last)) = self.islands.range(..=first).next_back()
            && last >= first
        {
            self.islands.remove(&before);
            (first, end) = (before, end.max(last));
        }
        while let Some((&after, &last)) = self.islands.range(first..).next()
            && after <= end
        {
            self.islands.remove(&after);
            end = end.max(last);
        }
        if first <= self.in_order {
            self.in_order = self.in_order.max(end);
        } else {
            self.islands.insert(first, end);
        }
    }
}
