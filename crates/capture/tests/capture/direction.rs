//! One direction of TCP, and QUIC, from segments made by hand.

use std::fs;
use std::path::Path;

use etherparse::{PacketBuilder, TcpHeader, VlanId};
use verus_capture::analysis::analyze;
use verus_capture::dissect::{Segment, Transport, dissect};
use verus_capture::flow::{Direction, Limit};
use verus_capture::record::Recorder;
use verus_capture::write::Writer;
use verus_core::{Bytes, Time};

const MS: u64 = 1_000_000;

fn data(sequence: u32, timestamps: Option<(u32, u32)>) -> Segment {
    Segment {
        sequence,
        payload: 1000,
        timestamps,
        ..Segment::default()
    }
}

fn ack(number: u32, sack: &[(u32, u32)], timestamps: Option<(u32, u32)>) -> Segment {
    let mut segment = Segment {
        acknowledgement: Some(number),
        window: 10_000,
        timestamps,
        ..Segment::default()
    };
    for (place, range) in segment.sack.iter_mut().zip(sack) {
        *place = Some(*range);
    }
    segment
}

/// Round trips of a direction: how many, and the least in ms.
fn round_trips(direction: &Direction) -> (u64, Option<f64>) {
    let least = direction.least_rtt.map(|least| least as f64 / MS as f64);
    (direction.rtt.count(), least)
}

#[test]
fn data_that_was_sent_twice_gives_a_round_trip_only_where_timestamps_tell_its_copies_apart() {
    let run = |stamps: [Option<(u32, u32)>; 3]| {
        let mut direction = Direction::default();
        direction.on_data(0, 1040, &data(0, stamps[0]));
        direction.on_data(200 * MS, 1040, &data(0, stamps[1]));
        direction.on_ack(250 * MS, &ack(1000, &[], stamps[2]));
        assert_eq!((direction.retransmitted, direction.delivered), (1, 1000));
        round_trips(&direction)
    };
    assert_eq!(run([None; 3]), (0, None));
    let (first, second) = (Some((7, 0)), Some((207, 0)));
    assert_eq!(run([first, second, Some((0, 207))]), (1, Some(50.0)));
    assert_eq!(run([first, second, Some((0, 7))]), (1, Some(250.0)));
    // A clock that did not tick between them says nothing.
    assert_eq!(run([first, first, Some((0, 7))]), (0, None));
}

#[test]
fn an_acknowledgement_of_what_no_window_allows_counts_for_nothing() {
    let delivered = |number: u32, shift: Option<u8>| {
        let mut direction = Direction::default();
        direction.window_shift = shift;
        direction.on_data(0, 1040, &data(0, None));
        direction.on_ack(20 * MS, &ack(number, &[], None));
        direction.on_ack(40 * MS, &ack(1000, &[], None));
        direction.delivered
    };
    // Data that the capture lacks is counted all the same.
    assert_eq!(delivered(60_000, Some(0)), 60_000);
    assert_eq!(delivered(70_000, Some(0)), 1000);
    assert_eq!(delivered(70_000, Some(1)), 70_000);
    assert_eq!(delivered(70_000, None), 70_000);
    assert_eq!(delivered(1_500_000_000, None), 1000);
}

/// Lets a capture's recorder take a segment from 10.0.0.1:1, or back from 10.0.0.2:2.
fn passes(
    recorder: &mut Recorder<Vec<u8>>,
    ms: u64,
    is_back: bool,
    header: impl FnOnce(&mut TcpHeader),
    payload: usize,
) {
    let (from, to) = if is_back { (2, 1) } else { (1, 2) };
    let mut tcp = TcpHeader::new(from, to, 0, 60_000);
    header(&mut tcp);
    let (from, to) = ([10, 0, 0, from as u8], [10, 0, 0, to as u8]);
    let mut packet = vec![0; 40 + payload];
    PacketBuilder::ipv4(from, to, 64)
        .tcp_header(tcp)
        .write_to_slice(&mut packet, &vec![0; payload])
        .expect("it fits");
    let size = Bytes::new(packet.len() as u64);
    recorder.on_passing(Time::from_millis(ms), &[0], &packet, size);
}

#[test]
fn a_syn_with_another_number_on_the_same_ports_begins_another_flow() {
    let sides = [("in", "before")];
    let mut recorder = Recorder::new(Writer::new(Vec::new(), &sides).expect("memory takes it"), 0);
    for (start_ms, first) in [(0, 1000), (20_000, 3_000_000_000u32)] {
        // The SYN is sent twice.
        for ms in [0, 5] {
            let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.sequence_number) = (true, first);
            passes(&mut recorder, start_ms + ms, false, syn, 0);
        }
        for at in 0..10 {
            let data = |tcp: &mut TcpHeader| tcp.sequence_number = first + 1 + at * 1000;
            let sent_ms = start_ms + 10 + u64::from(at) * 10;
            passes(&mut recorder, sent_ms, false, data, 1000);
            let ack = |tcp: &mut TcpHeader| {
                (tcp.ack, tcp.acknowledgment_number) = (true, first + 1 + (at + 1) * 1000);
            };
            passes(&mut recorder, sent_ms + 5, true, ack, 0);
        }
    }
    let file = recorder.finish().expect("memory takes it");
    let flows = analyze("file", &file[..]).expect("whole").flows;
    let starts: Vec<f64> = flows.iter().map(|flow| flow.start_s).collect();
    assert_eq!(starts, [0.01, 20.01]);
    for flow in &flows {
        assert_eq!((flow.packets, flow.loss_rate), (10, Some(0.0)));
        let goodput = flow.goodput_mbps.expect("acknowledged");
        assert!(
            (goodput - 10.0 * 1000.0 * 8.0 / 0.09 / 1e6).abs() < 1e-6,
            "{goodput}"
        );
    }
}

#[test]
fn what_offloading_joined_has_the_length_of_its_frame_without_vlan_tags() {
    let tag = |id| VlanId::try_new(id).expect("in range");
    for tags in 0..=2 {
        let frame = PacketBuilder::ethernet2([1; 6], [2; 6]);
        let frame = match tags {
            0 => frame.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            1 => (frame.single_vlan(tag(5))).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            _ => (frame.double_vlan(tag(5), tag(6))).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        };
        let link_header = 14 + 4 * tags;
        let mut bytes = vec![0; link_header + 40];
        frame
            .tcp(1, 2, 0, 100)
            .write_to_slice(&mut bytes, &[])
            .expect("it fits");
        bytes[link_header + 2..link_header + 4].fill(0);
        let length = (link_header + 40 + 72_400) as u32;
        let datagram = dissect(1, length, &bytes).expect("TCP");
        let Transport::Tcp(segment) = datagram.transport else {
            panic!("{datagram:?}");
        };
        assert_eq!(
            (segment.payload, datagram.bytes),
            (72_400, 72_440),
            "{tags} tags"
        );
    }
}

#[test]
fn selective_acknowledgements_deliver_each_byte_once() {
    let mut direction = Direction::default();
    // Across the wrap of the sequence numbers.
    let base = u32::MAX - 1500;
    for index in 0..5u32 {
        let sequence = base.wrapping_add(index * 1000);
        direction.on_data(u64::from(index) * MS, 1040, &data(sequence, None));
    }
    let at = |index: u32| base.wrapping_add(index * 1000);
    direction.on_ack(40 * MS, &ack(at(0), &[(at(1), at(2))], None));
    direction.on_ack(
        41 * MS,
        &ack(at(0), &[(at(3), at(4)), (at(1), at(2))], None),
    );
    assert_eq!(direction.delivered, 2000);
    direction.on_data(50 * MS, 1040, &data(at(0), None));
    direction.on_ack(90 * MS, &ack(at(5), &[], None));
    assert_eq!((direction.delivered, direction.retransmitted), (5000, 1));
    assert_eq!(direction.deliveries, [(40, 1000), (41, 1000), (90, 3000)]);
    // From the second and the fourth; the last acknowledgement covers a copy.
    assert_eq!(round_trips(&direction), (2, Some(38.0)));
}

#[test]
fn data_that_comes_late_was_lost_before_the_capture_or_reordered() {
    let mut direction = Direction::default();
    direction.on_data(0, 1040, &data(0, None));
    direction.on_ack(40 * MS, &ack(1000, &[], None));
    for (at, sequence) in [(50, 2000), (51, 1000), (60, 4000), (120, 3000)] {
        direction.on_data(at * MS, 1040, &data(sequence, None));
    }
    let counts = (direction.late, direction.reordered, direction.retransmitted);
    assert_eq!(counts, (1, 1, 0));
}

#[test]
fn a_full_window_limits_before_the_path_does() {
    let direction = &mut Direction::default();
    direction.window_shift = Some(0);
    direction.on_data(0, 1040, &data(0, None));
    direction.on_ack(40 * MS, &ack(1000, &[], None));
    // The window is 10,000 bytes: with eight segments in flight there is no room for three more.
    for index in 1..=8 {
        direction.on_data(110 * MS, 1040, &data(index * 1000, None));
    }
    direction.on_ack(290 * MS, &ack(9000, &[], None));
    direction.on_data(310 * MS, 1040, &data(9000, None));
    let limits = direction.limits();
    let expected = [
        (0, 100, Limit::Sender),
        (100, 200, Limit::Window),
        (200, 300, Limit::Path),
        (300, 400, Limit::Sender),
    ];
    assert_eq!(limits, expected);
}

#[test]
fn without_the_windows_scale_a_flow_that_would_fill_it_unscaled_may_be_limited_by_it() {
    let limits = |window_shift: Option<u8>, segments: u32| {
        let direction = &mut Direction::default();
        direction.window_shift = window_shift;
        direction.on_data(0, 1040, &data(0, None));
        direction.on_ack(40 * MS, &ack(1000, &[], None));
        for index in 1..=segments {
            direction.on_data(110 * MS, 1040, &data(index * 1000, None));
        }
        direction.on_ack(150 * MS, &ack((segments + 1) * 1000, &[], None));
        direction.limits().last().map(|(.., limit)| *limit)
    };
    // The window field says 10,000 bytes.
    assert_eq!(limits(None, 8), Some(Limit::WindowOrSender));
    assert_eq!(limits(None, 4), Some(Limit::Sender));
    assert_eq!(limits(Some(0), 8), Some(Limit::Window));
    assert_eq!(limits(Some(7), 8), Some(Limit::Sender));
}

#[test]
fn a_spinning_bit_shows_round_trips_of_quic_and_the_handshake_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture/quic.pcap");
    let bytes = fs::read(path).expect("it is in the repository");
    let report = analyze("quic", &bytes[..]).expect("a capture");
    let [server, client] = &report.flows[..] else {
        panic!("{report:?}")
    };
    assert_eq!((server.protocol, client.protocol), ("quic", "quic"));
    assert_eq!((server.rtt_from, server.rtt_samples), (Some("spin bit"), 4));
    let median = server.rtt_p50_ms.expect("it spins");
    assert!((median - 50.0).abs() < 0.1, "{median}");
    assert_eq!(
        (client.rtt_from, client.rtt_min_ms),
        (Some("handshake"), Some(30.0))
    );
}
