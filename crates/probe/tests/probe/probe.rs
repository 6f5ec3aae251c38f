//! Whole tests of client and server over an imagined path, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use verus_core::controller::{Arrival, Observer, Stamp};
use verus_core::sender::Counters;
use verus_core::{Bytes, Controller, Departure, Duration, Ecn, Feedback, Rate, Time, Timeout};
use verus_probe::client::{ClientConfig, ClientError};
use verus_probe::connection::{Batch, Ended};
use verus_probe::flow::{Algorithms, Event};
use verus_probe::limits::Limits;
use verus_probe::seal::{Key, Secret};
use verus_probe::server::{Catalogue, Library, Notice, ServerConfig};
use verus_probe::wire::{Hello, Packet, Reason, Request, Retry};
use verus_probe::{Client, Server};
use verus_senders::{Built, Scheme};

const DELAY: Duration = Duration::from_millis(20);

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// Of a source, in tests that last for a time. This world has no link: slow start would double its windows until a test
/// simulates millions of packets, which show no more than thousands do.
const RATE_BPS: u64 = 100_000_000;

fn request() -> Request {
    Request {
        bytes: 500_000,
        scheme: "newreno".to_owned(),
        ..Request::default()
    }
}

/// Of ten minutes.
fn endless() -> Request {
    Request {
        bytes: 0,
        rate_bps: RATE_BPS,
        duration_nanos: 600_000_000_000,
        scheme: "vegas".to_owned(),
        ..request()
    }
}

fn config(request: Request) -> ClientConfig {
    ClientConfig {
        silence: Duration::from_secs(60),
        log: true,
        ..ClientConfig::new(request)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: Time,
    sequence: u64,
    to_server: bool,
    from: SocketAddr,
    bytes: Vec<u8>,
    ecn_bits: u8,
}

/// A client and a server with 20 ms between them; the client's clock is a day ahead.
struct World<A, L> {
    now: Time,
    client: Client<A>,
    server: Server<L>,
    client_address: SocketAddr,
    flying: BinaryHeap<Reverse<Flying>>,
    sequence: u64,
    notices: Vec<Notice>,
    to_client_bytes: usize,
    /// Whether packets have stopped arriving.
    deaf: bool,
    /// A queue towards the server marks one in this many of the capable packets; and the number of
    /// those.
    marks_one_in: Option<u64>,
    capable: u64,
}

/// By how much the client's clock is ahead.
const AHEAD: Duration = Duration::from_secs(86_400);

impl<A: Algorithms, L: Library> World<A, L> {
    fn with(config: ClientConfig, algorithms: A, server: ServerConfig, library: L) -> Self {
        World {
            now: Time::ZERO,
            client: Client::new(config, algorithms, [1; 32], Time::ZERO + AHEAD),
            server: Server::new(server, library, [2; 32], Time::ZERO),
            client_address: address(1000),
            flying: BinaryHeap::new(),
            sequence: 0,
            notices: Vec::new(),
            to_client_bytes: 0,
            deaf: false,
            marks_one_in: None,
            capable: 0,
        }
    }

    fn launch(&mut self, to_server: bool, batch: &Batch) {
        if self.deaf {
            return;
        }
        for bytes in batch.contents().chunks(batch.payload()) {
            if !to_server {
                self.to_client_bytes += bytes.len();
            }
            let mut ecn = batch.ecn;
            if to_server && ecn.is_capable() {
                self.capable += 1;
                if self
                    .marks_one_in
                    .is_some_and(|one| self.capable.is_multiple_of(one))
                {
                    ecn = Ecn::Ce;
                }
            }
            self.flying.push(Reverse(Flying {
                ecn_bits: ecn.bits(),
                at: self.now + DELAY,
                sequence: self.sequence,
                to_server,
                from: self.client_address,
                bytes: bytes.to_vec(),
            }));
            self.sequence += 1;
        }
    }

    /// One instant; whether anything is left to happen.
    fn step(&mut self) -> bool {
        let mut batch = Batch::new(16);
        while self.client.poll_transmit(self.now + AHEAD, &mut batch) {
            self.launch(true, &batch);
        }
        while self.server.poll_transmit(self.now, &mut batch) {
            if batch.to == self.client_address {
                self.launch(false, &batch);
            }
        }
        self.notices.extend(self.server.drain_notices());
        let landing = self.flying.peek().map(|flying| flying.0.at);
        let client = self
            .client
            .next_timer(self.now + AHEAD)
            .map(|at| Time::ZERO + at.since(Time::ZERO + AHEAD));
        let Some(next) = [landing, client, self.server.next_timer()]
            .into_iter()
            .flatten()
            .min()
        else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse(flying)) = self.flying.peek()
            && flying.at <= self.now
        {
            let Reverse(flying) = self.flying.pop().expect("just seen");
            if flying.to_server {
                let from = flying.from;
                let (now, ecn) = (self.now, Ecn::from_bits(flying.ecn_bits));
                self.server
                    .handle_with(now, now, from, None, ecn, &flying.bytes);
            } else {
                let now = self.now + AHEAD;
                self.client
                    .handle_with(now, now, Ecn::NotEct, &flying.bytes);
            }
        }
        self.client.on_timer(self.now + AHEAD);
        self.server.on_timer(self.now);
        true
    }

    fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        while self.now < end && self.client.outcome().is_none() && self.step() {}
    }
}

fn world(request: Request) -> World<Scheme, Catalogue> {
    let scheme = Scheme::parse(&request.scheme).expect("a scheme");
    World::with(config(request), scheme, ServerConfig::default(), Catalogue)
}

#[test]
fn every_scheme_delivers_every_byte_both_ways_and_both_ends_know() {
    for scheme in "verus verus:mode=paper cubic newreno vegas sprout".split(' ') {
        let mut world = world(Request {
            upload_flows: 2,
            download_flows: 3,
            scheme: scheme.to_owned(),
            ..request()
        });
        world.run(Duration::from_secs(120));
        assert_eq!(world.client.outcome(), Some(Ok(())), "{scheme}");
        let connection = world.client.connection().expect("it was connected");
        for flow in connection.outgoing() {
            assert_eq!(flow.distinct(), 500_000, "{scheme}");
        }
        for (flow, status) in connection.incoming() {
            assert_eq!(flow.distinct(), 500_000, "{scheme}");
            assert!(
                status.finished && status.sent >= 358,
                "{scheme}: {status:?}"
            );
            assert!(
                (40_000..41_000).contains(&status.rtt_mean_micros),
                "{status:?}"
            );
        }
        while world.step() {}
        assert!(world.server.is_idle());
        assert!(world.notices.iter().any(|notice| matches!(
            notice,
            Notice::Ended { how, received: 1_000_000, .. } if how == "done"
        )));
    }
}

#[test]
fn a_test_of_a_given_time_ends_in_time_at_both_ends() {
    let mut world = world(Request {
        download_flows: 1,
        bytes: 0,
        rate_bps: RATE_BPS,
        duration_nanos: 3_000_000_000,
        scheme: "vegas".to_owned(),
        ..request()
    });
    world.run(Duration::from_secs(20));
    assert_eq!(world.client.outcome(), Some(Ok(())));
    assert!(
        (3000..3500).contains(&world.now.as_millis()),
        "{:?}",
        world.now
    );
    let connection = world.client.connection().expect("it was connected");
    assert!(connection.outgoing()[0].distinct() > 1_000_000);
    let (flow, _) = connection.incoming().next().expect("one download");
    assert!(flow.distinct() > 1_000_000);
    let delay = flow.meter().delay_mean_ms().expect("samples");
    assert!(delay < 0.01, "an empty path has no queue: {delay}");
}

/// A world whose client sends echoes and leaves the path idle for `quiet`.
fn echoing(request: Request, quiet: Duration) -> World<Scheme, Catalogue> {
    let mut world = world(request);
    world.client = world.client.with_echoes(quiet);
    world
}

#[test]
fn the_path_is_idle_until_its_delay_is_known_whichever_way_the_data_goes() {
    for (upload_flows, download_flows) in [(1, 0), (0, 1), (2, 2)] {
        let test = Request {
            upload_flows,
            download_flows,
            bytes: 0,
            rate_bps: RATE_BPS,
            duration_nanos: 3_000_000_000,
            scheme: "cubic".to_owned(),
            ..request()
        };
        let mut world = echoing(test, Duration::from_secs(1));
        world.run(Duration::from_millis(900));
        let connection = world.client.connection().expect("it was connected");
        assert!(connection.started() > world.now + AHEAD);
        assert_eq!(connection.in_flight(), 0);
        assert!(connection.incoming().all(|(flow, _)| flow.distinct() == 0));
        world.run(Duration::from_secs(20));
        assert_eq!(world.client.outcome(), Some(Ok(())));
        // A second of quiet, three of load, and the last round trip.
        let took = world.now.as_millis();
        assert!((4000..4500).contains(&took), "{took}");
        let connection = world.client.connection().expect("it was connected");
        let echoes = connection.echoes().expect("it sends them");
        let (idle, loaded) = (echoes.idle(), echoes.loaded());
        assert!((9..=10).contains(&idle.count()), "{}", idle.count());
        assert!((28..=31).contains(&loaded.count()), "{}", loaded.count());
        for trips in [idle, loaded] {
            let median = trips.quantile_ms(0.5).expect("some came back");
            assert!((median - 40.0).abs() < 0.1, "{median}");
        }
        let sent = |bytes: u64| assert!(bytes > 500_000, "{bytes}");
        connection
            .outgoing()
            .iter()
            .for_each(|flow| sent(flow.distinct()));
        connection
            .incoming()
            .for_each(|(flow, _)| sent(flow.distinct()));
    }
}

#[test]
fn no_client_makes_a_server_wait_for_longer_than_the_format_allows() {
    let mut world = echoing(request(), Duration::from_secs(3600));
    world.run(Duration::from_secs(4));
    let connection = world.client.connection().expect("it was connected");
    assert_eq!(connection.outgoing()[0].distinct(), 0);
    world.run(Duration::from_secs(4));
    assert_eq!(world.client.outcome(), Some(Ok(())));
}

#[test]
fn marks_on_the_way_are_counted_and_come_back_to_senders_that_asked_for_them() {
    for (scheme, asks) in [("prague", true), ("cubic:ecn=yes", true), ("cubic", false)] {
        let mut world = world(Request {
            upload_flows: 2,
            scheme: scheme.to_owned(),
            ..request()
        });
        world.marks_one_in = Some(50);
        world.run(Duration::from_secs(120));
        assert_eq!(world.client.outcome(), Some(Ok(())), "{scheme}");
        let flows = world.client.connection().expect("connected").outgoing();
        let counted = |of: fn(&Counters) -> u64| -> u64 {
            flows.iter().map(|flow| of(flow.sender().counters())).sum()
        };
        // All packets of data ask, or none does, and no other.
        let sent = counted(|counters| counters.sent);
        assert_eq!(world.capable, if asks { sent } else { 0 }, "{scheme}");
        let marked = counted(|counters| counters.marked);
        assert_eq!(marked, world.capable / 50, "{scheme}");
        assert_eq!(counted(|counters| counters.lost), 0, "{scheme}");
        if asks {
            assert!(marked > 5, "{scheme}: {marked}");
        }
    }
}

#[test]
fn a_source_of_constant_rate_keeps_to_it() {
    let mut world = world(Request {
        bytes: 0,
        duration_nanos: 10_000_000_000,
        rate_bps: 1_120_000, // 100 packets a second
        ..request()
    });
    world.run(Duration::from_secs(20));
    let flow = &world.client.connection().expect("connected").outgoing()[0];
    assert!((999..=1001).contains(&flow.sender().counters().sent));
}

#[test]
fn limits_and_nonsense_are_refused_in_words() {
    let refused = |change: fn(&mut Request), limits: Limits| {
        let mut test = request();
        change(&mut test);
        let scheme = Scheme::parse("newreno").expect("a scheme");
        let server = ServerConfig {
            limits,
            ..ServerConfig::default()
        };
        let mut world = World::with(config(test), scheme, server, Catalogue);
        world.run(Duration::from_secs(10));
        match world.client.outcome() {
            Some(Err(ClientError::Refused { reason, text })) => (reason, text),
            other => panic!("{other:?}"),
        }
    };
    let few = Limits {
        flows_per_client: 2,
        ..Limits::default()
    };
    let (reason, text) = refused(|test| test.upload_flows = 3, few);
    assert_eq!(reason, Reason::Limit);
    assert!(text.contains("3 flows"), "{text}");
    let (reason, text) = refused(|test| test.scheme = "warp".to_owned(), Limits::default());
    assert_eq!(reason, Reason::BadRequest);
    assert!(text.contains("warp"), "{text}");
    // A server opens no file that a client names, whether or not it exists.
    let (reason, text) = refused(
        |test| {
            test.scheme = "model:file=/etc/hostname".to_owned();
            (test.upload_flows, test.download_flows) = (0, 1);
        },
        Limits::default(),
    );
    assert_eq!(reason, Reason::BadRequest);
    assert!(
        text.contains("`/etc/hostname` is not opened here"),
        "{text}"
    );
    // For strangers, it also refuses settings that cost it more than the defaults, in either half.
    let cases = "
        sprout:max_arrivals_per_tick=250 => max_arrivals_per_tick
        v sprout:max_rate=999,receiver=no => max_rate
        v sprout:receiver=no => forecasts
        v verus:timeout_max_ms=60000 => but mode and ratio
        v verus:loss_delays=9 => but mode and ratio
        v verus:mode=paper,exit_multiple=99 => but mode and ratio
        v cubic:initial_window_packets=26 => initial_window_packets
        v newreno:min_window_packets=26 => min_window_packets
        v verus:mode=paper,epoch_ms=0.1 => but mode and ratio
        v verus:update_interval_ms=999 => but mode and ratio
        v verus:mode=paper,ratio=4 => ratio
        v verus:ratio=7 => ratio
        v verus:increment_ms=1000 => but mode and ratio";
    for case in cases.lines().skip(1) {
        let (scheme, words) = case.trim().split_once(" => ").expect("a case");
        let mut test = request();
        // `v`: a download.
        let download = scheme.strip_prefix("v ");
        if download.is_some() {
            (test.upload_flows, test.download_flows) = (0, 1);
        }
        let scheme = download.unwrap_or(scheme);
        test.scheme = scheme.to_owned();
        let ours = || Scheme::parse(scheme).expect("a scheme");
        let mut world = World::with(
            config(test.clone()),
            ours(),
            ServerConfig::default(),
            Catalogue,
        );
        world.run(Duration::from_secs(10));
        match world.client.outcome() {
            Some(Err(ClientError::Refused { reason, text })) => {
                assert_eq!(reason, Reason::Limit);
                assert!(text.contains(words) && text.contains("key"), "{text}");
            }
            other => panic!("{scheme}: {other:?}"),
        }
        // A client with the key is no stranger.
        let secret = Some(Secret::stretch(b"only they know"));
        let config = ClientConfig {
            secret: secret.clone(),
            ..config(test)
        };
        let server = ServerConfig {
            secret,
            ..ServerConfig::default()
        };
        let mut world = World::with(config, ours(), server, Catalogue);
        world.run(Duration::from_secs(10));
        assert_eq!(world.client.outcome(), Some(Ok(())), "{scheme}");
    }
    let full = Limits {
        clients: 0,
        ..Limits::default()
    };
    assert_eq!(refused(|_| (), full).0, Reason::Busy);
}

#[test]
fn a_key_opens_only_to_itself_and_silence_says_nothing() {
    let scheme = || Scheme::parse("newreno").expect("a scheme");
    for (client, server, works) in [
        (Some("same"), Some("same"), true),
        (Some("one"), Some("other"), false),
        (None, Some("other"), false),
        (Some("one"), None, false),
    ] {
        let secret = |key: Option<&str>| key.map(|key| Secret::stretch(key.as_bytes()));
        let client = ClientConfig {
            secret: secret(client),
            ..config(request())
        };
        let granted = ServerConfig {
            secret: secret(server),
            ..ServerConfig::default()
        };
        let mut world = World::with(client, scheme(), granted, Catalogue);
        world.run(Duration::from_secs(30));
        let outcome = world.client.outcome().expect("it ended");
        if works {
            assert_eq!(outcome, Ok(()));
        } else {
            assert_eq!(outcome, Err(ClientError::NoAnswer(Duration::from_secs(5))));
            assert_eq!(world.to_client_bytes, 0, "not a word to strangers");
        }
    }
}

#[test]
fn a_server_that_answers_each_hello_with_a_retry_is_asked_a_few_times() {
    let request = request();
    let scheme = Scheme::parse(&request.scheme).expect("valid");
    let patience = Duration::from_secs(10);
    let config = ClientConfig {
        patience,
        ..config(request)
    };
    let mut client = Client::new(config, scheme, [1; 32], Time::ZERO);
    let key = Key::handshake(None);
    let mut batch = Batch::new(1);
    let (mut now, mut hellos) = (Time::ZERO, 0_u64);
    while client.outcome().is_none() {
        while client.poll_transmit(now, &mut batch) {
            hellos += 1;
            assert!(hellos < 100, "{hellos} hellos after {now:?}");
            let packet = Packet::parse(batch.contents()).expect("a packet");
            let hello = Hello::decode(&packet).expect("a hello");
            let retry = Retry {
                nonce: hello.nonce,
                token: &hellos.to_be_bytes(),
            };
            let answer = key.sealed(0, |buffer| retry.encode(buffer));
            now += Duration::from_micros(20);
            client.handle(now, now, &answer);
        }
        now = client.next_timer(now).expect("it waits").max(now);
        client.on_timer(now);
    }
    assert_eq!(client.outcome(), Some(Err(ClientError::Unproven(patience))));
    // Those of the schedule (0, 0.25, 0.75, 1.75, 3.75, 5.75, 7.75, 9.75 s), and three at once.
    assert!((4..=11).contains(&hellos), "{hellos} hellos in 10 s");
}

#[test]
fn a_client_that_moves_is_followed_once_its_new_address_is_proven() {
    let mut world = world(Request {
        download_flows: 1,
        bytes: 0,
        rate_bps: RATE_BPS,
        duration_nanos: 4_000_000_000,
        ..request()
    });
    world.run(Duration::from_secs(2));
    world.client_address = address(2000);
    world.run(Duration::from_secs(20));
    assert_eq!(world.client.outcome(), Some(Ok(())));
    let moved = Notice::Moved {
        from: address(1000),
        to: address(2000),
    };
    assert_eq!(
        world
            .notices
            .iter()
            .filter(|&notice| *notice == moved)
            .count(),
        1
    );
    assert!(world.now.as_millis() < 5000, "{:?}", world.now);
}

#[test]
fn a_client_counts_the_changes_of_its_address() {
    let mut world = world(Request {
        download_flows: 1,
        bytes: 0,
        rate_bps: RATE_BPS,
        duration_nanos: 6_000_000_000,
        ..request()
    });
    for port in 2000..2004 {
        world.run(Duration::from_secs(1));
        world.client_address = address(port);
    }
    world.run(Duration::from_secs(20));
    assert_eq!(world.client.outcome(), Some(Ok(())));
    let connection = world.client.connection().expect("it was connected");
    assert_eq!(connection.address_changes(), 4);
}

#[test]
fn silence_ends_a_test_at_both_ends() {
    let mut world = world(endless());
    world.run(Duration::from_secs(1));
    world.deaf = true;
    let limit = world.now + Duration::from_secs(200);
    while world.now < limit && world.step() {}
    let silence = Duration::from_secs(60);
    assert_eq!(
        world.client.outcome(),
        Some(Err(ClientError::Silent(silence)))
    );
    assert_eq!(world.server.connections().count(), 0, "forgotten");
}

#[test]
fn a_server_that_stops_says_so() {
    let mut world = world(endless());
    world.run(Duration::from_secs(1));
    world.server.shut_down(world.now);
    world.run(Duration::from_secs(5));
    assert!(matches!(
        world.client.outcome(),
        Some(Err(ClientError::ByServer {
            reason: Reason::ShuttingDown,
            ..
        }))
    ));
}

#[test]
fn a_client_that_is_told_to_stop_keeps_what_it_has() {
    let mut world = world(endless());
    world.run(Duration::from_secs(2));
    world.client.stop(world.now + AHEAD);
    world.run(Duration::from_secs(5));
    assert_eq!(world.client.outcome(), Some(Ok(())));
    let connection = world.client.connection().expect("it was connected");
    assert!(connection.outgoing()[0].distinct() > 100_000);
    assert!(matches!(
        connection.ended(),
        Some(Ended::Here(Reason::ShuttingDown, _))
    ));
}

#[test]
fn the_window_that_a_packet_left_under_comes_back_with_its_acknowledgement() {
    let mut world = world(Request {
        scheme: "verus".to_owned(),
        ..request()
    });
    world.run(Duration::from_secs(60));
    let mut events = Vec::new();
    let connection = world.client.connection_mut().expect("it was connected");
    connection.drain_events(&mut events);
    let mut departures = std::collections::HashMap::new();
    let mut acked = 0;
    for event in events {
        match event {
            Event::Sent {
                number, at, window, ..
            } => {
                assert!(
                    departures.insert(number, (at, window)).is_none(),
                    "numbers are new"
                );
            }
            Event::Acked {
                number,
                sent,
                window,
                rtt,
                received,
                ..
            } => {
                assert_eq!(departures.get(&number), Some(&(sent, window)));
                assert_eq!(rtt, DELAY * 2, "an empty path has one round-trip time");
                let ahead = Time::ZERO + AHEAD;
                let (sent, received) = (sent.since(ahead), received.expect("told"));
                assert_eq!(received.since(Time::ZERO).saturating_sub(sent), DELAY);
                acked += 1;
            }
            _ => {}
        }
    }
    assert!(acked >= 358, "{acked}");
}

/// Sends ten packets at a time and stamps each; receives the stamps that the receiver half read.
#[derive(Debug)]
struct Talker(u64, std::sync::mpsc::Sender<Vec<u8>>);

impl Controller for Talker {
    fn on_sent(&mut self, packet: &Departure) {
        self.0 = packet.number;
    }
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let report = feedback.report.expect("each acknowledgement has a report");
        self.1.send(report.to_vec()).expect("the test listens");
    }
    fn on_timeout(&mut self, _: &Timeout<'_>) {}
    fn window(&self) -> Bytes {
        Bytes::new(14_000)
    }
    fn stamp(&self, packet: &Departure) -> Option<Stamp> {
        Some(Stamp::new(&(packet.number * 3).to_be_bytes()))
    }
}

#[derive(Debug)]
struct Listener(Vec<u8>);

impl Observer for Listener {
    fn on_packet(&mut self, packet: &Arrival<'_>) {
        let stamp = packet.stamp.expect("each packet has a stamp");
        assert_eq!(stamp, (packet.number * 3).to_be_bytes());
        self.0 = stamp.to_vec();
    }
    fn report(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0);
    }
}

struct Talk(std::sync::mpsc::Sender<Vec<u8>>);

impl Algorithms for Talk {
    fn controller(&self, _: u64) -> Built {
        Built::Other(Box::new(Talker(0, self.0.clone())))
    }
    fn observer(&self) -> Option<Box<dyn Observer>> {
        Some(Box::new(Listener(Vec::new())))
    }
}

impl Library for Talk {
    fn algorithms(&self, _: &str) -> Result<Box<dyn Algorithms>, String> {
        Ok(Box::new(Talk(self.0.clone())))
    }
}

#[test]
fn stamps_and_reports_travel_between_the_halves_of_an_algorithm() {
    let (said, heard) = std::sync::mpsc::channel();
    let server = ServerConfig::default();
    let mut world = World::with(config(request()), Talk(said.clone()), server, Talk(said));
    world.run(Duration::from_secs(60));
    assert_eq!(world.client.outcome(), Some(Ok(())));
    let reports: Vec<Vec<u8>> = heard.try_iter().collect();
    assert!(reports.len() >= 30, "{}", reports.len());
    assert!(reports.iter().all(|report| report.len() == 8));
}

/// Bytes that each of some greedy downloads has received after ten seconds from a server whose
/// clients share 8 Mbit/s. Client `i` starts `i` ms after the first and sends `request(i)`.
fn shares(clients: u16, request: impl Fn(u16) -> Request) -> Vec<f64> {
    let limits = Limits {
        clients: 400,
        clients_per_address: 400,
        flows: 8000,
        rate: Some(Rate::from_mbps(8.0)),
        ..Limits::default()
    };
    let server = ServerConfig {
        limits,
        ..ServerConfig::default()
    };
    let mut server = Server::new(server, Catalogue, [2; 32], Time::ZERO);
    let mut ends: Vec<_> = (0..clients)
        .map(|i| {
            let request = request(i);
            let scheme = Scheme::parse(&request.scheme).expect("a scheme");
            let config = ClientConfig {
                log: false,
                ..config(request)
            };
            let begins = Time::from_millis(u64::from(i));
            (Client::new(config, scheme, [i as u8; 32], begins), begins)
        })
        .collect();
    let (mut now, mut sequence, mut batch) = (Time::ZERO, 0, Batch::new(16));
    let mut flying = BinaryHeap::new();
    while now < Time::from_millis(10_000) {
        let mut launch = |batch: &Batch, to_server: bool, peer: SocketAddr| {
            for bytes in batch.contents().chunks(batch.payload()) {
                sequence += 1;
                flying.push(Reverse(Flying {
                    at: now + DELAY,
                    sequence,
                    to_server,
                    from: peer,
                    bytes: bytes.to_vec(),
                    ecn_bits: 0,
                }));
            }
        };
        let mut next = Time::MAX;
        for (i, (client, begins)) in ends.iter_mut().enumerate() {
            if *begins <= now {
                client.on_timer(now);
                while client.poll_transmit(now, &mut batch) {
                    launch(&batch, true, address(1000 + i as u16));
                }
            }
            next = next.min(client.next_timer(now).unwrap_or(Time::MAX).max(*begins));
        }
        while server.poll_transmit(now, &mut batch) {
            launch(&batch, false, batch.to);
        }
        server.drain_notices().for_each(drop);
        let landing = flying
            .peek()
            .map(|Reverse(flying): &Reverse<Flying>| flying.at);
        let timers = landing.into_iter().chain(server.next_timer());
        now = timers.fold(next, Time::min).max(now);
        while flying
            .peek()
            .is_some_and(|Reverse(flying)| flying.at <= now)
        {
            let Reverse(Flying {
                to_server,
                from,
                bytes,
                ..
            }) = flying.pop().expect("just seen");
            if to_server {
                server.handle(now, now, from, None, &bytes);
            } else {
                let (client, _) = &mut ends[usize::from(from.port() - 1000)];
                client.handle(now, now, &bytes);
            }
        }
        server.on_timer(now);
    }
    let received = |client: &Client<Scheme>| {
        let connection = client.connection().expect("it was let in");
        let bytes = connection.incoming().map(|(flow, _)| flow.distinct());
        bytes.sum::<u64>() as f64
    };
    ends.iter().map(|(client, _)| received(client)).collect()
}

#[test]
fn greedy_downloads_have_equal_shares_of_the_rate_of_all_whatever_they_ask_for() {
    let greedy = |download_flows, packet_bytes, scheme: &str| Request {
        upload_flows: 0,
        download_flows,
        packet_bytes,
        bytes: 0,
        duration_nanos: 60_000_000_000,
        scheme: scheme.to_owned(),
        ..request()
    };
    let all_alike = shares(200, |_| greedy(1, 1400, "cubic"));
    // More flows, larger packets or another scheme bring no larger share.
    let unlike = shares(30, |i| match i % 3 {
        0 => greedy(1, 1400, "cubic"),
        1 => greedy(16, 1400, "newreno"),
        _ => greedy(1, 9000, "verus"),
    });
    for (what, received) in [("all alike", all_alike), ("unlike", unlike)] {
        let squares: f64 = received.iter().map(|bytes| bytes * bytes).sum();
        let all: f64 = received.iter().sum();
        let jain = all * all / (received.len() as f64 * squares);
        assert!(
            jain > 0.95,
            "{what}: Jain's index {jain:.3} of {received:?}"
        );
        let mbps = all * 8.0 / 10e6;
        assert!((7.0..8.2).contains(&mbps), "{what}: {mbps} Mbit/s");
    }
}
