//! The controllers' view inside quinn equals the packets on the wire, checked against a capture. It
//! compares the size, number and time of each batch, round-trip times, and the window at each
//! packet's departure.

// A test of times reads clocks.
#![allow(clippy::disallowed_methods)]

use std::collections::HashMap;
use std::time::{Duration as Span, Instant, SystemTime, UNIX_EPOCH};

use crate::quic_common::{Pair, read, runtime, transport, write};
use quinn::TransportConfig;
use verus_core::{Bytes, Duration, Time};
use verus_faults::capture::{self, Capture, Captured};
use verus_faults::{Bottleneck, machine};
use verus_quinn::{self as quic, Counters, Event};

/// Largest difference between the controller's times and the wire's, at the 99th percentile.
const TOLERANCE: Duration = Duration::from_millis(1);
/// Packets of at most this many bytes may be bare acknowledgements.
const SMALL: usize = 100;

struct Run {
    events: Vec<Event>,
    counters: Counters,
    captured: Vec<Captured>,
    client: u16,
    /// Time zero of the events, since 1970.
    origin: Span,
}

/// Three seconds of sending through a link of `mbps` and 15 ms each way.
fn run(scheme: &str, mbps: f64) -> Run {
    runtime().block_on(async {
        let mut client = TransportConfig::default();
        let chosen = crate::quic_common::scheme(scheme);
        quic::Factory::new(chosen.config(), 1)
            .log(1 << 20)
            .install(&mut client);
        let delay = Duration::from_millis(15);
        let (pair, _proxy) = Pair::behind(client, transport(scheme), delay, |config| {
            config.up = Some(Bottleneck::new(mbps, "droptail:bytes=40000"));
        })
        .await;
        let port = pair.calling.local_addr().expect("bound").port();
        let capture = Capture::start(&[port]).unwrap_or_else(|reason| panic!("{reason}"));
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        // Packets of the handshake were not captured.
        tokio::time::sleep(Span::from_millis(200)).await;
        view.take_log();
        let server = pair.server.clone();
        let reading = tokio::spawn(async move { read(&server).await });
        let sender = pair.client.clone();
        let writing = tokio::spawn(async move { write(&sender, usize::MAX >> 8).await });
        tokio::time::sleep(Span::from_secs(3)).await;
        let (events, counters) = (view.take_log(), view.snapshot().counters);
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let origin = since_epoch - Instant::now().duration_since(view.origin());
        pair.client.close(0u32.into(), b"enough");
        let _ = tokio::join!(reading, writing);
        Run {
            events,
            counters,
            captured: capture.stop(),
            client: port,
            origin,
        }
    })
}

fn apart(a: Time, b: Time) -> Duration {
    if a > b { a.since(b) } else { b.since(a) }
}

fn p99(mut values: Vec<Duration>) -> Duration {
    assert!(values.len() > 100, "only {} of them", values.len());
    values.sort_unstable();
    values[values.len() * 99 / 100]
}

/// How many of the first of `captured` have `bytes` together.
fn leading(captured: &[&Captured], bytes: u64) -> Option<usize> {
    let mut sum = 0;
    for (index, one) in captured.iter().enumerate() {
        sum += one.payload.len() as u64;
        if sum >= bytes {
            return (sum == bytes).then_some(index + 1);
        }
    }
    None
}

impl Run {
    fn time(&self, captured: &Captured) -> Time {
        let since = captured.at.saturating_sub(self.origin);
        Time::from_nanos(since.as_nanos() as u64)
    }

    /// Checks sizes, numbers and windows; returns by how much times differ at the 99th percentile: those of
    /// sending, and round trips.
    fn check(&self) -> (Duration, Duration) {
        let departures: Vec<&Captured> = self
            .captured
            .iter()
            .filter(|one| one.from == self.client)
            .collect();
        let arrivals: Vec<Time> = self
            .captured
            .iter()
            .filter(|one| one.to == self.client)
            .map(|one| self.time(one))
            .collect();
        let (mut on_wire, mut late) = (HashMap::<Time, Time>::new(), Vec::new());
        let mut windows = HashMap::<Time, Vec<Bytes>>::new();
        let first = self.events.iter().find_map(|event| match event {
            Event::Sent { at, .. } => Some(*at),
            _ => None,
        });
        let first = first.expect("something is sent");
        let mut next = departures.partition_point(|one| self.time(one) < first);
        let (mut batches, mut last) = (0u32, None);
        let (mut numbers, mut packets_between) = (0, 0);
        for event in &self.events {
            let Event::Sent {
                at,
                bytes,
                packets,
                last_number,
                window,
                ..
            } = *event
            else {
                continue;
            };
            windows.entry(at).or_default().push(window);
            if bytes <= SMALL as u64 {
                continue;
            }
            batches += 1;
            // Bare acknowledgements and path MTU probes lie between; each is one packet.
            let located = (0..8).find_map(|skipped| {
                let length = leading(&departures[(next + skipped).min(departures.len())..], bytes)?;
                Some((skipped, length))
            });
            let (skipped, length) =
                located.unwrap_or_else(|| panic!("{event:?} is not on the wire"));
            let captured = departures[next + skipped];
            // Where the kernel does not show a batch as one.
            assert!(
                length == 1 || length as u64 == packets,
                "{event:?}: {length}"
            );
            next += skipped + length;
            if let Some(last) = last {
                numbers += last_number - last;
                packets_between += skipped as u64 + packets;
            }
            last = Some(last_number);
            late.push(apart(self.time(captured), at));
            on_wire.entry(at).or_insert(self.time(captured));
        }
        // Every packet has a number; quinn skips some, to catch acknowledgements of packets that it
        // never sent.
        assert!(numbers >= packets_between, "{numbers} {packets_between}");
        assert!(numbers - packets_between <= 5 + packets_between / 20);
        let (mut trips, mut acked) = (Vec::new(), 0);
        for event in &self.events {
            let Event::Acked {
                at, sent, window, ..
            } = *event
            else {
                continue;
            };
            let Some(known) = windows.get(&sent) else {
                continue; // It left before the log began.
            };
            acked += 1;
            assert!(known.contains(&window), "{event:?}: {known:?}");
            let arrived = arrivals.partition_point(|arrival| *arrival <= at);
            if let (Some(&left), Some(arrived)) = (on_wire.get(&sent), arrived.checked_sub(1)) {
                let trip = arrivals[arrived].since(left);
                trips.push(apart(Time::ZERO + trip, Time::ZERO + at.since(sent)));
            }
        }
        assert_eq!(self.counters.misses, 0, "{:?}", self.counters);
        let (late, trips) = (p99(late), p99(trips));
        println!(
            "{batches} batches, {acked} packets acknowledged: send time within {} µs of the wire, RTT within \
             {} µs (p99)",
            late.as_micros(),
            trips.as_micros()
        );
        (late, trips)
    }
}

#[test]
#[ignore = "captures packets, which takes root: `make test-root`"]
fn what_the_controller_sees_in_quinn_is_what_is_on_the_wire() {
    let _alone = capture::alone();
    let _machine = machine::watch(1);
    for (scheme, mbps) in [("verus", 10.0), ("cubic", 40.0)] {
        // Times are those of a machine that may be busy with something else for once.
        let mut errors = Vec::new();
        let close = (0..3).any(|_| {
            let (late, trips) = run(scheme, mbps).check();
            errors.push((late, trips));
            late <= TOLERANCE && trips <= TOLERANCE
        });
        assert!(
            close,
            "{scheme}: send times and round trips off by {errors:?} at p99"
        );
    }
}
