//! Measurement over UDP on bad networks: both ends of the probe on a virtual clock, 200 seeded schedules
//! of loss, duplication, reordering, corruption, blackouts, address changes and stopped ends.
//!
//! Every test of a fixed size delivers every byte, or fails with an error that says why.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rand::RngExt;
use verus_core::{Duration, Time, random};
use verus_faults::world::{self, Ending, Endpoint, Meeting, Surroundings};
use verus_faults::{Bottleneck, Schedule};
use verus_probe::client::{Client, ClientConfig, ClientError};
use verus_probe::connection::Batch;
use verus_probe::seal::Secret;
use verus_probe::server::{Catalogue, Server, ServerConfig};
use verus_probe::wire::{Reason, Request};
use verus_senders::Scheme;

/// Stretched once for all seeds.
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::stretch(b"a shared secret"));

const SCHEDULES: u64 = 200;
/// Of the thousands that were tried once, those that failed: round trips longer than what a server waits
/// before it asks for another proof of an address.
const FAILED_ONCE: [u64; 5] = [709, 952, 2563, 2899, 3433];
/// Longer than the longest blackout, so that a test can outlive it.
const SILENCE: Duration = Duration::from_secs(60);
/// For how long a server lets a test send.
const LIMIT: Time = Time::from_millis(3_600_000);
/// By when every test must have ended.
const DEADLINE: Time = Time::from_millis(3_700_000);

/// An end of the probe as the world drives it: what the driver is, without sockets.
struct Ends<E> {
    end: E,
    now: Time,
    batch: Batch,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    connections_max: usize,
    /// Most data that any connection has received.
    received: u64,
}

impl<E> Ends<E> {
    fn new(end: E, segments: usize) -> Self {
        Ends {
            end,
            now: Time::ZERO,
            batch: Batch::new(segments),
            out: VecDeque::new(),
            connections_max: 0,
            received: 0,
        }
    }

    fn queue(&mut self, to: SocketAddr) {
        let contents = self.batch.contents();
        let segment = self.batch.segment_size().unwrap_or(contents.len());
        for datagram in contents.chunks(segment) {
            self.out.push_back((to, datagram.to_vec()));
        }
    }
}

impl Endpoint for Ends<Client<Scheme>> {
    fn receive(&mut self, now: Time, _from: SocketAddr, datagram: Vec<u8>) {
        self.now = now;
        self.end.handle(now, now, &datagram);
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.now = now;
        if self.out.is_empty() && self.end.poll_transmit(now, &mut self.batch) {
            self.queue(world::SERVER);
        }
        self.out.pop_front()
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.end.next_timer(self.now)
    }

    fn on_timer(&mut self, now: Time) {
        self.now = now;
        self.end.on_timer(now);
    }

    fn is_done(&self) -> bool {
        self.end.outcome().is_some()
    }
}

impl Endpoint for Ends<Server<Catalogue>> {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        self.now = now;
        self.end.handle(now, now, from, None, &datagram);
        self.connections_max = self.connections_max.max(self.end.connections().count());
        for connection in self.end.connections() {
            let received = connection.incoming().map(|(flow, _)| flow.distinct()).sum();
            self.received = self.received.max(received);
        }
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.now = now;
        if self.out.is_empty() && self.end.poll_transmit(now, &mut self.batch) {
            self.queue(self.batch.to);
        }
        self.end.drain_notices().for_each(drop);
        self.out.pop_front()
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.end.next_timer()
    }

    fn on_timer(&mut self, now: Time) {
        self.now = now;
        self.end.on_timer(now);
    }

    fn is_done(&self) -> bool {
        self.end.is_idle()
    }
}

/// What one seed led to.
struct Report {
    request: Request,
    meeting: Meeting,
    client: Ends<Client<Scheme>>,
    server: Ends<Server<Catalogue>>,
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
    let mut bottleneck = || {
        let mbps = 0.5 * 40.0f64.powf(dice.random_range(0.0..1.0));
        dice.random_bool(0.8)
            .then(|| Bottleneck::new(mbps, "droptail:bytes=150000"))
    };
    let surroundings = Surroundings {
        up: bottleneck(),
        down: bottleneck(),
    };
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
    let mut client = Ends::new(client, segments);
    let mut server = Ends::new(server, segments);
    let meeting = world::run(schedule, surroundings, &mut client, &mut server, DEADLINE);
    Report {
        request,
        meeting,
        client,
        server,
    }
}

/// Checks what must hold whatever happened.
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
            assert_eq!(server.received, uploaded, "the client is wrong");
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
    assert!(server.received <= uploaded, "bytes out of nothing");
    // A copy of the hello that comes late may begin a test that nobody goes on with.
    assert!(server.connections_max <= 2, "the server hoards tests");
    // The bottleneck's queue, a round trip at its rate, and what is sent again while that drains.
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
    let gone = schedule
        .stop
        .is_some_and(|stop| stop.interval.end() == Time::MAX);
    !gone && schedule.up.loss.max(schedule.down.loss) < 0.2
}

/// What befell the tests, so that this cannot quietly become an easy one.
#[derive(Debug, Default)]
struct Tally {
    succeeded: u32,
    had_to_succeed: u32,
    lost_much: u32,
    met_blackout: u32,
    changed_address: u32,
    met_stop: u32,
}

impl Tally {
    fn add(&mut self, schedule: &Schedule, report: &Report) {
        let meeting = &report.meeting;
        let before = |time: Time| time < meeting.at;
        self.succeeded += u32::from(report.client.end.outcome() == Some(Ok(())));
        self.had_to_succeed += u32::from(must_succeed(schedule));
        let (sent, lost) = [meeting.up, meeting.down]
            .iter()
            .fold((0, 0), |(sent, lost), path| {
                (sent + path.sent, lost + path.lost)
            });
        self.lost_much += u32::from(lost * 5 > sent);
        self.met_blackout += u32::from(meeting.up.dark + meeting.down.dark > 0);
        self.changed_address += u32::from(schedule.address_changes.iter().any(|at| before(*at)));
        self.met_stop += u32::from(
            schedule
                .stop
                .is_some_and(|stop| before(stop.interval.start)),
        );
    }
}

/// Every seed, or only `VERUS_FAULT_SEED`, to see a failure again.
#[test]
fn every_test_delivers_every_byte_or_says_why_not() {
    let seeds = match std::env::var("VERUS_FAULT_SEED") {
        Ok(seed) => vec![seed.parse().expect("VERUS_FAULT_SEED is a number")],
        Err(_) => (0..SCHEDULES).chain(FAILED_ONCE).collect::<Vec<u64>>(),
    };
    let next = AtomicUsize::new(0);
    let tally = Mutex::new((Tally::default(), Vec::new()));
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let schedule = Schedule::random(seed);
                    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                        let report = run(&schedule);
                        check(&schedule, &report);
                        report
                    }));
                    let (tally, failed) = &mut *tally.lock().expect("checks panic before this");
                    match outcome {
                        Ok(report) => tally.add(&schedule, &report),
                        Err(_) => failed.push(schedule),
                    }
                }
            });
        }
    });
    let (tally, failed) = tally.into_inner().expect("no thread panicked");
    for schedule in &failed {
        println!("failed: {schedule}");
    }
    assert!(failed.is_empty(), "{} tests failed", failed.len());
    println!("{tally:?}");
    if seeds.len() > 1 {
        assert!(tally.had_to_succeed > 120, "{tally:?}");
        assert!(tally.lost_much > 15, "{tally:?}");
        assert!(tally.met_blackout > 40, "{tally:?}");
        assert!(tally.changed_address > 40, "{tally:?}");
        assert!(tally.met_stop > 10, "{tally:?}");
    }
}
