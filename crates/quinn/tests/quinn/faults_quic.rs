//! QUIC with Verus over bad networks: two ends of `quinn-proto` on a virtual clock, 200 seeded schedules
//! of loss, duplication, reordering, corruption, blackouts, address changes and stopped ends.
//!
//! Every transfer delivers every byte, whole and in order, or fails with an error that says why.

use crate::quic_virtual::{Keys, Quic, Setup, random_bytes};
use quinn_proto::{ConnectionError, TransportErrorCode};
use rand::RngExt;
use verus_core::{Duration, Time, random};
use verus_faults::campaign::{self, Played};
use verus_faults::world::{self, Ending, Meeting, Surroundings};
use verus_faults::{Bottleneck, Schedule, realtime};

/// Seeds that once failed, of thousands tried: packets in flight were stuck after a blackout or a
/// change of address.
const FAILED_ONCE: [u64; 7] = [347, 1124, 1571, 1997, 2397, 3189, 3206];
/// By when every transfer must have ended.
const DEADLINE: Time = Time::from_millis(3_600_000);
/// Bytes that an end may hold of the data sent and received.
const WINDOW: u32 = 256 << 10;

/// The outcome of one seed.
struct Report {
    meeting: Meeting,
    client: Quic,
    server: Quic,
}

fn transfer(schedule: &Schedule, keys: &Keys) -> Report {
    let seed = schedule.seed;
    let mut dice = random::stream(seed, "transfer", 0);
    // Uploads, downloads, and both.
    let mut some = || dice.random_range(200_000..2_000_000);
    let (up, down) = match seed % 3 {
        0 => (some(), 1_000),
        1 => (1_000, some()),
        _ => (some() / 2, some() / 2),
    };
    let (up, down) = (random_bytes(seed, 0, up), random_bytes(seed, 1, down));
    let surroundings = campaign::surroundings(&mut dice);
    let setup = Setup {
        seed,
        scheme: "verus",
        retry: seed.is_multiple_of(4),
        batch: if seed.is_multiple_of(2) { 1 } else { 10 },
        driven: !seed.is_multiple_of(5),
        window: WINDOW,
        up,
        down,
    };
    let (mut client, mut server) = setup.ends(keys);
    let meeting = world::run(schedule, surroundings, &mut client, &mut server, DEADLINE);
    Report {
        meeting,
        client,
        server,
    }
}

/// Checks the invariants of any outcome.
fn check(schedule: &Schedule, report: &Report) {
    let Report {
        meeting,
        client,
        server,
    } = report;
    assert_eq!(meeting.ending, Ending::Done, "at {:?}", meeting.at);
    for (quic, other, name) in [(client, server, "client"), (server, client, "server")] {
        match &quic.outcome {
            Some(Ok(())) => {
                let sent = quic.transfer.send.len();
                assert!(quic.transfer.complete, "the {name} has not got all");
                assert_eq!(other.transfer.received, sent, "the {name} is wrong");
            }
            Some(Err(error)) => assert!(is_clear(error), "the {name} fails with: {error}"),
            // It never came to a stream, or the end was stopped for good.
            None => {}
        }
        assert!(quic.window_max < 1 << 30, "the {name}'s window ran away");
        assert!(quic.connections_max <= 10, "the {name} hoards connections");
    }
    // The windows bound the data in flight, also in a blackout or while the other end is paused. At
    // most it is one window of data for each time that the window was declared lost and sent again,
    // and some probes.
    for path in [&meeting.up, &meeting.down] {
        assert!(path.held_bytes_max < 3 * u64::from(WINDOW), "{path:?}");
        assert_eq!(path.overflowed, 0);
    }
    if must_succeed(schedule, report) {
        // The server may not learn that all has arrived: the client's farewell is sent once.
        let whole = client.succeeded() && server.transfer.complete;
        assert!(
            whole,
            "no excuse, but client: {:?}, server: {:?}",
            client.outcome, server.outcome
        );
    }
}

/// Errors with a clear cause: silence, the other end has given up, or the client moved while it
/// proved its address.
fn is_clear(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::TimedOut | ConnectionError::Reset => true,
        ConnectionError::ConnectionClosed(close) => {
            close.error_code == TransportErrorCode::INVALID_TOKEN
        }
        _ => false,
    }
}

/// At this loss rate an end may be silent for longer than the idle timeout. QUIC doubles its probe
/// timeout at each unanswered probe, without end (RFC 9002 §6.2.1), and a blackout has doubled it
/// before. Without a driver nothing checks a spent budget again, and less loss suffices.
const TOO_MUCH_LOSS: f64 = 0.33;
const TOO_MUCH_LOSS_UNDRIVEN: f64 = 0.2;

/// Whether nothing excuses a failure. A handshake does not survive a change of address (RFC 9000 §9), nobody
/// survives an end that is gone, and two faults are quinn's own (`quic_upstream.rs`).
fn must_succeed(schedule: &Schedule, report: &Report) -> bool {
    let Report { client, server, .. } = report;
    let gone = realtime::is_gone(schedule);
    let moved = schedule.address_changes.first().is_some_and(|change| {
        let connected = [client.connected, server.connected];
        connected.iter().any(|at| at.is_none_or(|at| at >= *change))
    });
    // A Retry packet that came corrupted makes quinn's client deaf to any other.
    let deaf = client.connected.is_none()
        && client
            .retries
            .iter()
            .any(|retry| !server.retries.contains(retry));
    // quinn sends one challenge to a new address. Until three probe timeouts later it may send
    // there three times the bytes that it receives.
    let unproven = server.peer_unproven;
    let loss_limit = if client.is_driven() {
        TOO_MUCH_LOSS
    } else {
        TOO_MUCH_LOSS_UNDRIVEN
    };
    let loss = schedule.up.loss.max(schedule.down.loss);
    // A handshake in a blackout may spend the budget of an epoch that no acknowledgement ends, and only a driver does so instead.
    let dark = report.meeting.up.dark + report.meeting.down.dark > 0;
    let spent = !client.is_driven() && dark && server.connected.is_none();
    !gone && !moved && !deaf && !unproven && !spent && loss < loss_limit
}

#[test]
fn every_transfer_delivers_every_byte_or_says_why_not() {
    let keys = Keys::new();
    campaign::play(&FAILED_ONCE, |schedule| {
        let report = transfer(schedule, &keys);
        check(schedule, &report);
        Played {
            meeting: report.meeting,
            succeeded: report.client.succeeded(),
            had_to_succeed: must_succeed(schedule, &report),
        }
    });
}

/// The time of an upload of 20 MB over 100 Mbit/s and a round trip of 200 ms. A quarter of the
/// packets are late by up to `late`.
fn upload_time(scheme: &'static str, late: Duration, keys: &Keys) -> Duration {
    let mut schedule = Schedule::perfect(Duration::from_millis(100));
    if !late.is_zero() {
        (schedule.up.reordering, schedule.up.reordering_delay) = (0.25, late);
    }
    let setup = Setup {
        seed: 1,
        scheme,
        retry: false,
        batch: 1,
        driven: true,
        window: 8 << 20,
        up: random_bytes(1, 0, 20_000_000),
        down: random_bytes(1, 1, 1_000),
    };
    let (mut client, mut server) = setup.ends(keys);
    let surroundings = Surroundings {
        up: Some(Bottleneck::new(100.0, "droptail:delay_ms=100")),
        down: None,
    };
    let meeting = world::run(&schedule, surroundings, &mut client, &mut server, DEADLINE);
    assert_eq!(meeting.ending, Ending::Done);
    meeting.at.since(Time::ZERO)
}

/// RFC 9002 §6.1.2: a packet that others have overtaken is not lost within an eighth of a round
/// trip.
#[test]
fn reordering_by_a_small_part_of_a_round_trip_costs_little() {
    let keys = Keys::new();
    for scheme in ["forward", "cubic", "newreno"] {
        let [clean, reordered] =
            [0, 10].map(|ms| upload_time(scheme, Duration::from_millis(ms), &keys));
        assert!(
            reordered.as_secs_f64() <= clean.as_secs_f64() / 0.9,
            "{scheme}: {reordered:?}, without reordering {clean:?}"
        );
    }
}
