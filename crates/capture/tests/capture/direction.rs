//! One direction of TCP, and QUIC, from segments made by hand.

use std::fs;
use std::path::Path;

use verus_capture::analysis::analyze;
use verus_capture::dissect::Segment;
use verus_capture::flow::{Direction, Limit};

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
