//! Measurement over UDP on bad networks: both ends of the probe on a virtual clock, 200 seeded schedules
//! of loss, duplication, reordering, corruption, blackouts, address changes and stopped ends.
//!
//! Every test of a fixed size delivers every byte, or fails with an error that says why.

use std::sync::LazyLock;

use crate::hosts::{Clock, Host, Watched};
use rand::RngExt;
use verus_core::{Duration, Time, random};
use verus_faults::campaign::{self, Played};
use verus_faults::world::{self, Ending, Meeting};
use verus_faults::{Schedule, realtime};
use verus_probe::client::{Client, ClientConfig, ClientError};
use verus_probe::seal::Secret;
use verus_probe::server::{Catalogue, Server, ServerConfig};
use verus_probe::wire::{Reason, Request};
use verus_senders::Scheme;

/// Stretched once for all seeds.
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::stretch(b"a shared secret"));

/// Seeds that once failed, of thousands tried: round trips longer than a server's wait before it
/// asks for another proof of an address.
const FAILED_ONCE: [u64; 5] = [709, 952, 2563, 2899, 3433];
/// Longer than the longest blackout, so that a test can outlive it.
const SILENCE: Duration = Duration::from_secs(60);
/// For how long a server lets a test send.
const LIMIT: Time = Time::from_millis(3_600_000);
/// By when every test must have ended.
const DEADLINE: Time = Time::from_millis(3_700_000);

/// The outcome of one seed.
struct Report {
    request: Request,
    meeting: Meeting,
    client: Host<Client<Scheme>>,
    server: Host<Watched>,
}

fn run(schedule: &Schedule) -> Report {
    let seed = schedule.seed;
    let mut dice = random::stream(seed, "transfer", 0);
    // Uploads, downloads, and both.
    let flows = dice.random_range(1..=3);
    let (upload_flows, download_flows) = match seed % 3 {
        0 => (flows, 0),
        1 => (0, flows),
        _ => (flows, dice.random_range(1..=3)),
    };
    let scheme = match seed % 8 {
        0..5 => "verus",
        5 => "cubic",
        6 => "newreno",
        _ => "vegas",
    };
    let request = Request {
        upload_flows,
        download_flows,
        packet_bytes: if seed.is_multiple_of(5) { 600 } else { 1400 },
        status_millis: 200,
        bytes: dice.random_range(100_000..1_000_000),
        seed,
        scheme: scheme.to_owned(),
        ..Request::default()
    };
    let surroundings = campaign::surroundings(&mut dice);
    let secret = seed.is_multiple_of(2).then(|| SECRET.clone());
    let mut entropy = [0; 32];
    dice.fill(&mut entropy);
    let config = ServerConfig {
        secret: secret.clone(),
        ..ServerConfig::default()
    };
    let server = Server::new(config, Catalogue, entropy, Time::ZERO);
    dice.fill(&mut entropy);
    let config = ClientConfig {
        secret,
        patience: Duration::from_secs(60),
        silence: SILENCE,
        ..ClientConfig::new(request.clone())
    };
    let scheme = Scheme::parse(scheme).expect("it is in the list");
    let client = Client::new(config, scheme, entropy, Time::ZERO);
    let segments = if seed.is_multiple_of(2) { 1 } else { 16 };
    let mut client = Host::new(client, Clock::TRUE, segments);
    let mut server = Host::new(Watched::new(server), Clock::TRUE, segments);
    let meeting = world::run(schedule, surroundings, &mut client, &mut server, DEADLINE);
    Report {
        request,
        meeting,
        client,
        server,
    }
}

/// Checks the invariants of any outcome.
fn check(schedule: &Schedule, report: &Report) {
    let Report {
        request,
        meeting,
        client,
        server,
    } = report;
    assert_eq!(meeting.ending, Ending::Done, "at {:?}", meeting.at);
    let uploaded = u64::from(request.upload_flows) * request.bytes;
    match client.end.outcome() {
        Some(Ok(())) => {
            assert_eq!(server.end.received, uploaded, "the client is wrong");
            let connection = client.end.connection().expect("it succeeded");
            for (flow, _) in connection.incoming() {
                assert_eq!(flow.distinct(), request.bytes, "not everything came");
            }
        }
        Some(Err(ClientError::NoAnswer(_) | ClientError::Silent(_))) => {}
        Some(Err(error)) => {
            let overdue =
                matches!(&error, ClientError::ByServer { reason, .. } if *reason == Reason::Limit);
            assert!(
                overdue && meeting.at >= LIMIT,
                "the client fails with: {error}"
            );
        }
        // It was stopped for good.
        None => {}
    }
    assert!(server.end.received <= uploaded, "bytes out of nothing");
    // A copy of the hello that comes late may begin a test that nobody goes on with.
    assert!(server.end.connections_max <= 2, "the server hoards tests");
    // The bottleneck's queue, a round trip at its rate, and the data sent again while that drains.
    for path in [&meeting.up, &meeting.down] {
        assert!(path.held_bytes_max < 4 << 20, "{path:?}");
        assert_eq!(path.overflowed, 0);
    }
    // An event loop wakes for packets and for the epochs of at most six flows, 200 times a second each.
    let packets =
        meeting.up.sent + meeting.up.delivered + meeting.down.sent + meeting.down.delivered;
    let epochs = 1200.0 * meeting.at.as_secs_f64();
    assert!(
        meeting.turns as f64 <= 2.0 * packets as f64 + epochs + 100.0,
        "restless: {meeting:?}"
    );
    if must_succeed(schedule) {
        assert_eq!(client.end.outcome(), Some(Ok(())), "no excuse");
    }
}

/// Whether nothing in the schedule excuses a failure. Nobody survives an end that is gone; where a fifth of
/// the packets or more are lost each way, an answer may stay out for long.
fn must_succeed(schedule: &Schedule) -> bool {
    !realtime::is_gone(schedule) && schedule.up.loss.max(schedule.down.loss) < 0.2
}

#[test]
fn every_test_delivers_every_byte_or_says_why_not() {
    campaign::play(&FAILED_ONCE, |schedule| {
        let report = run(schedule);
        check(schedule, &report);
        Played {
            meeting: report.meeting,
            succeeded: report.client.end.outcome() == Some(Ok(())),
            had_to_succeed: must_succeed(schedule),
        }
    });
}
