//! The controllers' view over UDP equals the packets on the wire: packet number, size, send time,
//! round-trip time and window, checked against a capture of the same run.

use std::collections::HashMap;

use crate::probe_common::{PACKET_BYTES, Served};
use verus_clock::Clock;
use verus_core::{Duration, Time};
use verus_faults::capture::{self, Capture, Captured};
use verus_faults::machine;
use verus_probe::client::Client;
use verus_probe::driver::Driver;
use verus_probe::flow::Event;
use verus_probe::wire::{AckBody, Data, Kind, Packet};
use verus_senders::Scheme;

const PAYLOAD: usize = PACKET_BYTES as usize - 28;
/// An age in an acknowledgement counts up to this (docs/probe-wire-format.md).
const LONGEST_HOLD: Duration = Duration::from_millis(25);
/// Largest difference between the controller's times and the wire's, at the 99th percentile.
const TOLERANCE: Duration = Duration::from_micros(200);

/// Events in the client, and packets on the wire, both by its clock.
struct Run {
    events: Vec<Event>,
    captured: Vec<Captured>,
    clock: Clock,
    client: u16,
}

/// One upload flow through a link of `mbps` and 15 ms each way.
fn run(scheme: &str, mbps: f64, segments: usize) -> Run {
    let served = Served::behind(mbps, "droptail:bytes=40000");
    let socket = served.connect();
    let port = socket.local_addr().expect("bound").port();
    let capture = Capture::start(&[port]).unwrap_or_else(|reason| panic!("{reason}"));
    let mut driver = Driver::new(socket).expect("a timer");
    driver.set_most_segments(segments);
    let config = crate::probe_common::upload(scheme, true);
    let chosen = Scheme::parse(scheme).expect("in the catalogue");
    let mut client = Client::new(config, chosen, [2; 32], driver.clock().now());
    while client.outcome().is_none() {
        driver.turn(&mut client, None, None).expect("a turn");
    }
    assert_eq!(client.outcome(), Some(Ok(())));
    let mut events = Vec::new();
    let connection = client.connection_mut().expect("it was connected");
    connection.drain_events(&mut events);
    let captured = capture.stop();
    served.end();
    Run {
        events,
        captured,
        clock: *driver.clock(),
        client: port,
    }
}

/// A packet on the wire.
struct OnWire {
    at: Time,
    size: u64,
}

impl Run {
    fn time(&self, captured: &Captured) -> Time {
        self.clock.wall().arrival(Some(captured.at))
    }

    /// The data packets that left, by number.
    fn sent(&self) -> HashMap<u64, OnWire> {
        let mut sent = HashMap::new();
        for captured in self.captured.iter().filter(|one| one.from == self.client) {
            for datagram in captured.payload.chunks(PAYLOAD) {
                let packet = Packet::parse(datagram).expect("a packet of ours");
                if packet.kind != Kind::Data {
                    continue;
                }
                let data = Data::decode(&packet).expect("well formed");
                let on_wire = OnWire {
                    at: self.time(captured),
                    size: datagram.len() as u64 + 28,
                };
                assert!(sent.insert(data.number, on_wire).is_none(), "sent twice");
            }
        }
        sent
    }

    /// When the first acknowledgement of each packet came, less the time that the receiver held it.
    fn acknowledged(&self) -> HashMap<u64, Time> {
        let mut acknowledged = HashMap::new();
        for captured in self.captured.iter().filter(|one| one.to == self.client) {
            let packet = Packet::parse(&captured.payload).expect("a packet of ours");
            if packet.kind != Kind::Ack {
                continue;
            }
            let mut body = AckBody::default();
            body.decode(&packet).expect("well formed");
            for run in &body.runs {
                let last = body.newest - u64::from(run.below);
                let age = Duration::from_nanos(u64::from(run.age_nanos)).min(LONGEST_HOLD);
                for number in last + 1 - u64::from(run.count)..=last {
                    let at = self.time(captured);
                    acknowledged.entry(number).or_insert(at - age);
                }
            }
        }
        acknowledged
    }

    /// Checks numbers, sizes and windows; returns by how much times differ at the 99th percentile:
    /// those of sending, and round trips.
    fn check(&self) -> (Duration, Duration) {
        let (on_wire, acknowledged) = (self.sent(), self.acknowledged());
        let (mut windows, mut late, mut trips) = (HashMap::new(), Vec::new(), Vec::new());
        let (mut acked, mut lost) = (0, 0);
        for event in &self.events {
            match *event {
                Event::Sent {
                    number,
                    at,
                    size,
                    window,
                    ..
                } => {
                    let wire_packet = on_wire.get(&number).expect("what is sent is on the wire");
                    assert_eq!(wire_packet.size, size.get());
                    late.push(apart(wire_packet.at, at));
                    assert!(windows.insert(number, (at, window)).is_none());
                }
                Event::Acked {
                    number,
                    sent,
                    rtt,
                    window,
                    ..
                } => {
                    acked += 1;
                    assert_eq!(windows.get(&number), Some(&(sent, window)), "{number}");
                    let trip = acknowledged[&number].since(on_wire[&number].at);
                    trips.push(apart(Time::ZERO + trip, Time::ZERO + rtt));
                }
                Event::Lost { number, .. } => {
                    lost += 1;
                    assert!(windows.contains_key(&number));
                }
                _ => {}
            }
        }
        assert_eq!(windows.len(), on_wire.len(), "what is on the wire was sent");
        assert!(acked * 10 > windows.len() * 8);
        let (late, trips) = (p99(late), p99(trips));
        println!(
            "{} packets, {lost} lost: send time within {} µs of the wire, RTT within {} µs (p99)",
            windows.len(),
            late.as_micros(),
            trips.as_micros()
        );
        (late, trips)
    }
}

fn p99(mut values: Vec<Duration>) -> Duration {
    assert!(values.len() > 200, "only {} of them", values.len());
    values.sort_unstable();
    values[values.len() * 99 / 100]
}

fn apart(a: Time, b: Time) -> Duration {
    if a > b { a.since(b) } else { b.since(a) }
}

#[test]
#[ignore = "captures packets, which takes root: `make test-root`"]
fn what_the_controller_sees_is_what_is_on_the_wire() {
    let _alone = capture::alone();
    let _machine = machine::watch(1);
    for (scheme, mbps, segments) in [("verus", 10.0, 64), ("cubic", 40.0, 64), ("verus", 5.0, 1)] {
        // Times are those of a machine that may be busy with something else for once.
        let mut errors = Vec::new();
        let close = (0..3).any(|_| {
            let (late, trips) = run(scheme, mbps, segments).check();
            errors.push((late, trips));
            late <= TOLERANCE && trips <= TOLERANCE
        });
        assert!(
            close,
            "{scheme}: send times and round trips off by {errors:?} at p99"
        );
    }
}
