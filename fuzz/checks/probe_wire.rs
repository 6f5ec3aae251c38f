//! Invariants of any bytes that arrive as a packet of the probe.

use verus_core::{Bytes, Ecn, Time};
use verus_probe::flow::{Incoming, Load, Outgoing};
use verus_probe::seal::Key;
use verus_probe::wire::{
    self, Accept, AckBody, Data, Ending, Hello, Kind, MAX_NUMBER, Packet, Retry, Status, TAG_BYTES,
};
use verus_senders::Scheme;

/// Size of the packets that the flow under attack sends, bytes (IP).
const PACKET_BYTES: u64 = 1_400;

/// Reads `bytes` as a packet and, if it is one that a flow would act on, lets a flow act on it.
///
/// # Panics
/// If a parsed packet changes when it is encoded and read again, or a flow gives more than it has.
pub fn check(bytes: &[u8]) {
    let Ok(kind) = wire::inspect(bytes) else {
        return;
    };
    let packet = Packet::parse(bytes).expect("it was read just now");
    assert_eq!(packet.kind, kind);
    match kind {
        Kind::Hello => {
            let hello = |packet: &Packet<'_>| {
                Hello::decode(packet)
                    .map(|hello| (hello.nonce, hello.token.to_vec(), hello.request))
            };
            let read = Hello::decode(&packet).expect("it was read just now");
            again(&packet, |buffer| read.encode(buffer), hello);
        }
        Kind::Retry => {
            let read = Retry::decode(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| read.encode(buffer),
                |packet| Retry::decode(packet).map(|retry| (retry.nonce, retry.token.to_vec())),
            );
        }
        Kind::Accept => {
            let read = Accept::decode(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| read.encode(packet.connection, buffer),
                Accept::decode,
            );
        }
        Kind::Refuse | Kind::Close => {
            let read = Ending::decode(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| read.encode(kind, packet.connection, buffer),
                |packet| {
                    Ending::decode(packet)
                        .map(|ending| (ending.nonce, ending.reason, ending.text.to_owned()))
                },
            );
        }
        Kind::Data => {
            let read = Data::decode(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| read.encode(packet.flow, packet.connection, buffer),
                |packet| {
                    Data::decode(packet).map(|data| {
                        let stamp = data.stamp.map(<[u8]>::to_vec);
                        (data.number, data.sent_nanos, data.start, data.len, stamp)
                    })
                },
            );
            receive(&read, bytes.len());
        }
        Kind::Ack => {
            let mut read = AckBody::default();
            let report = read.decode(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| read.encode(packet.flow, packet.connection, report, buffer),
                |packet| {
                    let mut body = AckBody::default();
                    let report = body.decode(packet)?.map(<[u8]>::to_vec);
                    Ok((body, report))
                },
            );
            acknowledge(&read, report);
        }
        Kind::Status => {
            let mut read = Status::default();
            read.decode(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| read.encode(packet.connection, buffer),
                |packet| {
                    let mut status = Status::default();
                    status.decode(packet).map(|()| status)
                },
            );
        }
        Kind::Closed => {}
        Kind::Challenge | Kind::Response => {
            let read = wire::decode_challenge(&packet).expect("it was read just now");
            again(
                &packet,
                |buffer| wire::encode_plain(kind, packet.connection, &read, buffer),
                wire::decode_challenge,
            );
        }
    }
}

/// Checks that an encoded packet is read as the same. Options unknown to this version are not
/// encoded.
fn again<T: PartialEq + std::fmt::Debug>(
    packet: &Packet<'_>,
    encode: impl FnOnce(&mut [u8]) -> usize,
    decode: impl Fn(&Packet<'_>) -> Result<T, wire::Malformed>,
) {
    let mut buffer = vec![0; (1 << 16) + TAG_BYTES];
    let covered = encode(&mut buffer);
    assert!(covered <= packet.covered.len());
    let written = Packet::parse(&buffer[..covered + TAG_BYTES]).expect("we wrote it");
    assert_eq!(
        (written.kind, written.covered.len()),
        (packet.kind, covered)
    );
    assert_eq!(decode(&written), decode(packet));
}

/// A receiver that gets this as its third packet acknowledges only the received packets.
fn receive(data: &Data<'_>, size: usize) {
    let scheme = Scheme::parse("verus").expect("it is in the list");
    let mut flow = Incoming::new(0, &scheme, Time::ZERO, false);
    let small = |number| Data {
        number,
        sent_nanos: 0,
        start: number * 1_000,
        len: 1_000,
        stamp: None,
    };
    let size = Bytes::new(size as u64);
    let now = Time::from_millis(10);
    flow.on_data(now, size, Ecn::Ce, &small(0));
    flow.on_data(now, size, Ecn::Ce, &small(5));
    flow.on_data(now, size, Ecn::Ect1, data);
    assert!(flow.distinct() <= 2_000 + u64::from(data.len));
    let mut buffer = vec![0; 1 << 16];
    let later = Time::from_millis(100);
    let length = flow.transmit(later, 0, &Key::handshake(None), &mut buffer);
    let length = length.expect("three packets are acknowledged at once");
    assert_eq!(wire::inspect(&buffer[..length]), Ok(Kind::Ack));
    let packet = Packet::parse(&buffer[..length]).expect("we wrote it");
    let mut body = AckBody::default();
    body.decode(&packet).expect("we wrote it");
    assert_eq!(body.newest, data.number.max(5));
    let acknowledged: u64 = body
        .spans
        .iter()
        .step_by(2)
        .map(|span| u64::from(*span))
        .sum();
    assert!(acknowledged <= 3);
}

/// A sender with packets in flight grows its window by at most the bytes it has sent.
fn acknowledge(body: &AckBody, report: Option<&[u8]>) {
    let scheme = Scheme::parse("newreno").expect("it is in the list");
    let load = Load {
        packet_size: Bytes::new(PACKET_BYTES),
        bytes: None,
        rate: None,
    };
    let mut flow = Outgoing::new(0, scheme.build(1), &load, 1, Time::ZERO, false);
    let mut segment = [0; PACKET_BYTES as usize];
    let mut sent = 0;
    while flow
        .transmit(Time::ZERO, 0, &Key::handshake(None), &mut segment)
        .is_some()
    {
        sent += 1;
    }
    let before = flow.sender().controller().window();
    let now = Time::from_millis(50);
    // An acknowledgement of packets that it cannot have received is an error; anything else counts
    // once.
    for _ in 0..2 {
        if flow.on_ack(now, now, body, report).is_err() {
            return;
        }
    }
    let limit = before + Bytes::new(sent * PACKET_BYTES);
    assert!(flow.sender().controller().window() <= limit);
    assert!(flow.sender().in_flight() <= Bytes::new(sent * PACKET_BYTES));
    if let Some(at) = flow.next_timer() {
        assert!(at < Time::from_nanos(MAX_NUMBER));
        flow.on_timer(at);
    }
}
