//! The probe among liars and strangers. They send forged, replayed, truncated, oversized and random
//! packets, first packets from foreign addresses, and acknowledgements of packets never received.
//!
//! Nothing of it panics, moves a test, makes a server send more than it was sent, or makes it send faster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use verus_core::{Duration, Rate, Time, random};
use verus_faults::world::{self, Ending, Endpoint, Surroundings};
use verus_faults::{Bottleneck, Schedule};
use verus_probe::client::{Client, ClientConfig};
use verus_probe::connection::Batch;
use verus_probe::seal::{Key, Keys, Secret};
use verus_probe::server::{Catalogue, Notice, Server, ServerConfig};
use verus_probe::wire::{
    self, Accept, AckBody, Data, Ending as Close, FlowStatus, Hello, Kind, MIN_HELLO_BYTES, Packet,
    Reason, Request, Retry, Run, Status,
};
use verus_senders::Scheme;

/// Memory is measured for the whole process, which these tests have to themselves. A test that
/// measures it waits until the others have ended, and they wait for it.
static MEMORY: RwLock<()> = RwLock::new(());

fn memory_alone() -> RwLockWriteGuard<'static, ()> {
    MEMORY.write().unwrap_or_else(PoisonError::into_inner)
}

fn memory_shared() -> RwLockReadGuard<'static, ()> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

fn request(upload_flows: u16, download_flows: u16, bytes: u64, scheme: &str) -> Request {
    Request {
        upload_flows,
        download_flows,
        duration_nanos: if bytes == 0 { 60_000_000_000 } else { 0 },
        bytes,
        scheme: scheme.to_owned(),
        ..Request::default()
    }
}

fn entropy(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    random::stream(seed, "entropy", 0).fill_bytes(&mut bytes);
    bytes
}

fn server(seed: u64) -> Server<Catalogue> {
    Server::new(
        ServerConfig::default(),
        Catalogue,
        entropy(seed),
        Time::ZERO,
    )
}

fn address(host: u32, port: u16) -> SocketAddr {
    SocketAddr::new(std::net::Ipv4Addr::from(0x0b00_0000 + host).into(), port)
}

/// All packets that the server wants to send now, with their destinations.
fn drain(server: &mut Server<Catalogue>, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut batch = Batch::new(16);
    let mut sent = Vec::new();
    while server.poll_transmit(now, &mut batch) {
        let datagrams = batch.contents().chunks(batch.payload());
        sent.extend(datagrams.map(|datagram| (batch.to, datagram.to_vec())));
    }
    sent
}

/// Bytes from and to each address.
#[derive(Default)]
struct Books(BTreeMap<SocketAddr, (usize, usize)>);

impl Books {
    fn arrived(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.0.entry(from).or_default().0 += datagram.len();
    }

    fn sent(&mut self, sent: &[(SocketAddr, Vec<u8>)]) {
        for (to, datagram) in sent {
            let (arrived, answered) = self.0.entry(*to).or_default();
            *answered += datagram.len();
            assert!(
                answered <= arrived,
                "{to} got {answered} bytes for {arrived}"
            );
        }
    }
}

// --- A client that speaks the format and lies as instructed.

/// A lie in a client's acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// None: received packets only.
    None,
    /// Also this many numbers beyond the newest received.
    Ahead(u64),
    /// Also the missing numbers in between.
    Gaps,
    /// A number that is far away.
    Future,
    /// Received packets, in this many copies of one acknowledgement.
    Copies(u32),
    /// Received packets, in this many acknowledgements with different numbers.
    Again(u32),
    /// Received packets, in acknowledgements that overtake each other.
    Shuffled,
    /// Received packets, allegedly held long before the acknowledgement.
    Held,
    /// Received packets, allegedly held for as long as they queued on the path.
    NoQueue,
    /// Received packets, at arbitrary times.
    Whenever,
}

struct Liar {
    lie: Lie,
    request: Request,
    nonce: [u8; 16],
    handshake: Key,
    token: Vec<u8>,
    connection: Option<(u64, Keys)>,
    out: VecDeque<Vec<u8>>,
    due: Time,
    status_number: u64,
    ack_number: u64,
    received: BTreeSet<u64>,
    held_back: Vec<Vec<u8>>,
    dice: ChaCha8Rng,
    /// Why the server ended the test, and when.
    ended: Option<(Time, Reason)>,
    lied_first: Option<Time>,
    least: u64,
}

impl Liar {
    fn new(lie: Lie, request: Request, seed: u64) -> Self {
        let mut dice = random::stream(seed, "liar", 0);
        let mut nonce = [0; 16];
        dice.fill_bytes(&mut nonce);
        Liar {
            lie,
            request,
            nonce,
            handshake: Key::handshake(None),
            token: Vec::new(),
            connection: None,
            out: VecDeque::new(),
            due: Time::ZERO,
            status_number: 0,
            ack_number: 0,
            received: BTreeSet::new(),
            held_back: Vec::new(),
            dice,
            ended: None,
            lied_first: None,
            least: u64::MAX,
        }
    }

    fn hello(&self) -> Vec<u8> {
        let hello = Hello {
            nonce: self.nonce,
            token: &self.token,
            request: self.request.clone(),
            // Some ask for a quiet beginning.
            quiet_millis: if self.nonce[0] < 64 { 700 } else { 0 },
        };
        self.handshake
            .sealed(MIN_HELLO_BYTES, |buffer| hello.encode(buffer))
    }

    fn sealed(&self, encode: impl FnOnce(u64, &mut [u8]) -> usize) -> Vec<u8> {
        let (id, keys) = self.connection.as_ref().expect("there is a connection");
        keys.client.sealed(48, |buffer| encode(*id, buffer))
    }

    fn status(&mut self) -> Vec<u8> {
        self.status_number += 1;
        let status = Status {
            number: self.status_number,
            flows: Vec::new(),
        };
        self.sealed(|id, buffer| status.encode(id, buffer))
    }

    /// An acknowledgement of `numbers`, which are ascending.
    fn ack(&mut self, now: Time, numbers: &BTreeSet<u64>, age_nanos: u32, flow: u16) -> Vec<u8> {
        let mut spans: Vec<u32> = Vec::new();
        let mut below = None;
        for &number in numbers.iter().rev() {
            match below {
                Some(last) if last == number + 1 => *spans.last_mut().expect("not empty") += 1,
                Some(_) if spans.len() + 2 > 2 * wire::MAX_RANGES - 1 => break,
                Some(last) => spans.extend([(last - number - 1) as u32, 1]),
                None => spans.push(1),
            }
            below = Some(number);
        }
        self.ack_number += 1;
        let body = AckBody {
            ack_number: self.ack_number,
            sent_nanos: now.as_nanos(),
            distinct: 0,
            newest: *numbers.last().expect("something came"),
            spans,
            runs: vec![Run {
                below: 0,
                count: 1,
                age_nanos,
            }],
            marks: 0,
        };
        self.sealed(|id, buffer| body.encode(flow, id, None, buffer))
    }

    fn acknowledge(&mut self, now: Time, flow: u16, sent_nanos: u64) {
        let mut claimed = self.received.clone();
        let newest = *claimed.last().expect("something came");
        let mut age = 0;
        match self.lie {
            Lie::Ahead(count) => claimed.extend(newest + 1..=newest + count),
            Lie::Gaps => claimed.extend(newest.saturating_sub(200)..newest),
            Lie::Future => drop(claimed.insert(newest + 1_000_000)),
            Lie::Held => age = u32::MAX - 1,
            Lie::NoQueue => {
                let one_way = now.as_nanos() - sent_nanos;
                self.least = self.least.min(one_way);
                age = (one_way - self.least) as u32;
            }
            Lie::Whenever => age = self.dice.random(),
            _ => {}
        }
        if claimed.len() > self.received.len() {
            self.lied_first.get_or_insert(now);
        }
        match self.lie {
            Lie::Copies(count) => {
                let ack = self.ack(now, &claimed, age, flow);
                self.out.extend((0..count).map(|_| ack.clone()));
            }
            Lie::Again(count) => {
                for _ in 0..count {
                    let ack = self.ack(now, &claimed, age, flow);
                    self.out.push_back(ack);
                }
            }
            Lie::Shuffled => {
                let ack = self.ack(now, &claimed, age, flow);
                self.held_back.push(ack);
                if self.held_back.len() == 8 {
                    while !self.held_back.is_empty() {
                        let at = self.dice.random_range(0..self.held_back.len());
                        self.out.push_back(self.held_back.swap_remove(at));
                    }
                }
            }
            Lie::Whenever => {
                let sent = Time::from_nanos(self.dice.random_range(0..wire::MAX_NUMBER));
                let ack = self.ack(sent, &claimed, age, flow);
                self.out.push_back(ack);
            }
            _ => {
                let ack = self.ack(now, &claimed, age, flow);
                self.out.push_back(ack);
            }
        }
    }
}

impl Endpoint for Liar {
    fn receive(&mut self, now: Time, _from: SocketAddr, datagram: Vec<u8>) {
        let packet = Packet::parse(&datagram).expect("the server sends packets");
        match packet.kind {
            Kind::Retry => {
                let retry = Retry::decode(&packet).expect("well formed");
                self.token = retry.token.to_vec();
                self.due = now;
            }
            Kind::Accept => {
                let accept = Accept::decode(&packet).expect("well formed");
                let keys = Keys::new(&self.handshake, &self.nonce, &accept.server_nonce);
                self.connection = Some((packet.connection, keys));
                self.due = now;
            }
            Kind::Data => {
                let data = Data::decode(&packet).expect("well formed");
                self.received.insert(data.number);
                while self.received.len() > 2_000 {
                    self.received.pop_first();
                }
                self.acknowledge(now, packet.flow, data.sent_nanos);
            }
            Kind::Close => {
                let close = Close::decode(&packet).expect("well formed");
                self.ended.get_or_insert((now, close.reason));
                let closed =
                    self.sealed(|id, buffer| wire::encode_plain(Kind::Closed, id, &[], buffer));
                self.out.push_back(closed);
            }
            _ => {}
        }
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        if self.due <= now {
            self.due = now + Duration::from_millis(100);
            let packet = if self.connection.is_some() {
                self.status()
            } else {
                self.hello()
            };
            self.out.push_back(packet);
        }
        Some((world::SERVER, self.out.pop_front()?))
    }

    fn next_timer(&mut self) -> Option<Time> {
        Some(self.due)
    }

    fn on_timer(&mut self, _now: Time) {}

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }
}

/// A server as the world drives it, and how much it had sent when.
struct Watched {
    server: Server<Catalogue>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    sent: Vec<(Time, u64)>,
}

impl Watched {
    fn new(server: Server<Catalogue>) -> Self {
        Watched {
            server,
            out: VecDeque::new(),
            sent: vec![(Time::ZERO, 0)],
        }
    }

    /// Bytes sent by `time`.
    fn sent_by(&self, time: Time) -> u64 {
        self.sent[self.sent.partition_point(|(at, _)| *at <= time) - 1].1
    }
}

impl Endpoint for Watched {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        self.server.handle(now, now, from, None, &datagram);
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        if self.out.is_empty() {
            self.out.extend(drain(&mut self.server, now));
        }
        let (to, datagram) = self.out.pop_front()?;
        let so_far = self.sent.last().map_or(0, |(_, sent)| *sent);
        self.sent.push((now, so_far + datagram.len() as u64));
        Some((to, datagram))
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.server.next_timer()
    }

    fn on_timer(&mut self, now: Time) {
        self.server.on_timer(now);
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// Ten seconds of a download over 8 Mbit/s and 40 ms with an endless queue, by a client that lies.
fn download(scheme: &str, lie: Lie, seed: u64) -> (Liar, Watched, world::Meeting) {
    let mut liar = Liar::new(lie, request(0, 1, 0, scheme), seed);
    let mut watched = Watched::new(server(seed));
    let surroundings = Surroundings {
        down: Some(Bottleneck::new(8.0, "infinite")),
        ..Surroundings::default()
    };
    let mut schedule = Schedule::perfect(Duration::from_millis(20));
    schedule.down.loss = 0.002;
    schedule.seed = seed;
    let deadline = Time::from_millis(10_000);
    let meeting = world::run(&schedule, surroundings, &mut liar, &mut watched, deadline);
    (liar, watched, meeting)
}

const SCHEMES: [&str; 4] = ["verus", "cubic", "newreno", "vegas"];

#[test]
fn who_acknowledges_what_did_not_come_is_caught_and_gains_nothing() {
    let _shared = memory_shared();
    for seed in 0..5 {
        for scheme in SCHEMES {
            let (_, honest, _) = download(scheme, Lie::None, seed);
            for lie in [
                Lie::Ahead(1),
                Lie::Ahead(5),
                Lie::Ahead(50),
                Lie::Gaps,
                Lie::Future,
            ] {
                let (liar, watched, meeting) = download(scheme, lie, seed);
                let (at, reason) = liar.ended.expect("the server ends it");
                assert_eq!(reason, Reason::FalseAck, "{lie:?}, {scheme}, seed {seed}");
                assert_eq!(meeting.ending, Ending::Done);
                // At most twice 64 numbers lie between two that are skipped: too few for a lie to pay.
                let (sent, fair) = (watched.sent_by(at), honest.sent_by(at));
                assert!(
                    sent <= fair + 64 * 1_400,
                    "{lie:?}, {scheme}, seed {seed}: {sent} bytes instead of {fair} by {at:?}"
                );
                let all = honest.sent_by(Time::MAX);
                assert!(
                    watched.sent_by(Time::MAX) < all / 8,
                    "{lie:?}, {scheme}, seed {seed}"
                );
                let connection = watched.server.connections().next();
                assert!(connection.is_none_or(|connection| connection.ended().is_some()));
            }
        }
    }
}

#[test]
fn who_repeats_or_shuffles_acknowledgements_gains_nothing() {
    let _shared = memory_shared();
    for scheme in SCHEMES {
        let (_, honest, _) = download(scheme, Lie::None, 1);
        let fair = honest.sent_by(Time::MAX);
        for lie in [Lie::Copies(10), Lie::Again(10), Lie::Shuffled] {
            let (liar, watched, _) = download(scheme, lie, 1);
            assert_eq!(liar.ended, None, "{lie:?} is no crime");
            let sent = watched.sent_by(Time::MAX);
            let connection = watched.server.connections().next().expect("it runs");
            let repeats = connection.rejected().repeated;
            match lie {
                Lie::Shuffled => assert!(sent <= fair + fair / 50, "{scheme}: {sent} of {fair}"),
                _ => assert_eq!(sent, fair, "{lie:?}, {scheme}"),
            }
            if let Lie::Copies(count) = lie {
                assert!(
                    repeats >= u64::from(count - 2) * liar.ack_number,
                    "{repeats}"
                );
            }
        }
    }
}

#[test]
fn who_overstates_how_long_an_acknowledgement_waited_hides_no_queue() {
    let _shared = memory_shared();
    let queueing =
        |meeting: &world::Meeting| meeting.down.bottleneck.expect("there is one").queueing;
    for scheme in SCHEMES {
        let (_, _, meeting) = download(scheme, Lie::None, 1);
        let fair = queueing(&meeting).mean_ms;
        for lie in [Lie::Held, Lie::NoQueue, Lie::Whenever] {
            let (_, _, meeting) = download(scheme, lie, 1);
            // The 25 ms that a receiver may hold an acknowledgement (RFC 9000 §18.2), and some noise.
            let lied = queueing(&meeting).mean_ms;
            assert!(
                lied < fair + 30.0,
                "{lie:?}, {scheme}: {lied} ms instead of {fair} ms"
            );
        }
    }
}

// --- Strangers.

/// A packet that no honest end would send: of any kind, of any size, sealed with `key` or not at all.
fn garbage(dice: &mut ChaCha8Rng, key: &Key, connection: u64) -> Vec<u8> {
    let kinds = [
        Kind::Hello,
        Kind::Retry,
        Kind::Accept,
        Kind::Refuse,
        Kind::Data,
        Kind::Ack,
        Kind::Status,
        Kind::Close,
        Kind::Closed,
        Kind::Challenge,
        Kind::Response,
    ];
    let kind = kinds[dice.random_range(0..kinds.len())];
    let mut body = vec![0; dice.random_range(0..200)];
    // Small numbers are likelier to make sense.
    let largest = if dice.random_bool(0.5) { 255 } else { 3 };
    body.iter_mut()
        .for_each(|byte| *byte = dice.random_range(0..=largest));
    let padded_to = if dice.random_bool(0.5) {
        0
    } else {
        dice.random_range(0..=1_600)
    };
    let encode = |buffer: &mut [u8]| wire::encode_plain(kind, connection, &body, buffer);
    let mut datagram = key.sealed(padded_to, encode);
    // The flow.
    datagram[6..8].copy_from_slice(&dice.random_range(0..4u16).to_be_bytes());
    let covered = datagram.len().min(wire::HEADER_BYTES + body.len());
    let end = key.seal(&mut datagram, covered);
    wire::pad(&mut datagram, end);
    datagram
}

/// A datagram as an attacker on the path may change it.
fn mangled(dice: &mut ChaCha8Rng, datagram: &[u8]) -> Vec<u8> {
    let mut copy = datagram.to_vec();
    match dice.random_range(0..6) {
        0 => copy.truncate(dice.random_range(0..copy.len())),
        1 => copy.extend((0..dice.random_range(1..30_000)).map(|_| 0u8)),
        2 => {
            let at = dice.random_range(0..copy.len().min(80));
            copy[at] ^= 1 << dice.random_range(0..8);
        }
        3 => copy[2] = dice.random(),
        4 => {
            copy = vec![0; dice.random_range(0..2_000)];
            dice.fill_bytes(&mut copy);
        }
        _ => {
            dice.fill_bytes(&mut copy[..16.min(datagram.len())]);
            copy[..2].copy_from_slice(&[wire::MAGIC, wire::VERSION]);
        }
    }
    copy
}

#[test]
fn a_stranger_never_gets_more_bytes_than_came_from_its_address() {
    let _shared = memory_shared();
    let mut server = server(1);
    let mut dice = random::stream(2, "strangers", 0);
    let mut books = Books::default();
    let public = Key::handshake(None);
    let mut now = Time::ZERO;
    let mut tell = |server: &mut Server<Catalogue>, now: &mut Time, from, datagram: &[u8]| {
        books.arrived(from, datagram);
        server.handle(*now, *now, from, None, datagram);
        let sent = drain(server, *now);
        books.sent(&sent);
        *now += Duration::from_micros(300);
        if server.next_timer().is_some_and(|at| at <= *now) {
            server.on_timer(*now);
        }
        books.sent(&drain(server, *now));
        sent
    };

    // First words from addresses that may not be the sender's: nothing is kept of them.
    let hello = |seed, token: &[u8]| {
        let mut liar = Liar::new(Lie::None, request(8, 8, 0, "verus"), seed);
        liar.token = token.to_vec();
        liar.hello()
    };
    let mut stolen = Vec::new();
    for number in 0..3_000 {
        let stranger = address(number, 1_000);
        let first = hello(u64::from(number), &[]);
        for answer in tell(&mut server, &mut now, stranger, &first) {
            let packet = Packet::parse(&answer.1).expect("the server sends packets");
            let retry = Retry::decode(&packet).expect("nothing else is said to strangers");
            stolen = retry.token.to_vec();
        }
        // A token of somebody else, no token, a short hello.
        let second = hello(u64::from(number), &stolen);
        tell(
            &mut server,
            &mut now,
            address(number + 100_000, 1_000),
            &second,
        );
        let mut random = [0; 24];
        dice.fill_bytes(&mut random);
        tell(
            &mut server,
            &mut now,
            stranger,
            &hello(u64::from(number), &random),
        );
        tell(
            &mut server,
            &mut now,
            stranger,
            &first[..MIN_HELLO_BYTES - 1],
        );
        let datagram = garbage(&mut dice, &public, u64::from(number % 3));
        tell(&mut server, &mut now, stranger, &datagram);
    }
    // First packets of every kind, known or not, of sizes up to the largest.
    for kind in 0..=u8::MAX {
        let stranger = address(200_000 + u32::from(kind), 1_000);
        for size in [1, 16, 32, 47, 100, 1_199, 1_200, 1_400, 9_000, 65_000] {
            let mut datagram = public.sealed(size, |buffer| {
                let covered = wire::encode_plain(Kind::Data, 0, &[0; 16], buffer);
                buffer[2] = kind;
                covered
            });
            datagram.truncate(size);
            tell(&mut server, &mut now, stranger, &datagram);
        }
    }
    assert_eq!(
        server.connections().count(),
        0,
        "nobody has proven an address"
    );

    // A hello that proves its address, again and again from everywhere, by an attacker who has read
    // it.
    let victim = address(7_000_000, 1_000);
    let retry = tell(&mut server, &mut now, victim, &hello(9_999_999, &[]));
    let packet = Packet::parse(&retry[0].1).expect("the server sends packets");
    let token = Retry::decode(&packet).expect("a retry").token.to_vec();
    for number in 0..500 {
        tell(&mut server, &mut now, victim, &hello(9_999_999, &token));
        tell(
            &mut server,
            &mut now,
            address(8_000_000 + number, 1),
            &hello(9_999_999, &token),
        );
    }
    let granted = (server.offers(), server.connections().count());
    assert_eq!(granted, (1, 0), "it was granted a test and has not spoken");

    // Then silence: silent clients get no packet, and are forgotten.
    for _ in 0..610 {
        now += Duration::from_millis(100);
        server.on_timer(now);
        books.sent(&drain(&mut server, now));
    }
    assert_eq!(server.offers(), 0, "a silent client is forgotten");
    assert_eq!(server.drain_notices().count(), 0, "nothing has begun");
}

/// Sends the client's hellos until it is granted a test or refused. Returns the refusal.
fn ask(
    server: &mut Server<Catalogue>,
    now: Time,
    from: SocketAddr,
    liar: &mut Liar,
) -> Option<(Reason, String)> {
    let mut refusal = None;
    for _ in 0..2 {
        server.handle(now, now, from, None, &liar.hello());
        for (to, answer) in drain(server, now) {
            let packet = Packet::parse(&answer).expect("the server sends packets");
            if to == from && packet.kind == Kind::Refuse {
                let ending = Close::decode(&packet).expect("well formed");
                refusal = Some((ending.reason, ending.text.to_owned()));
            } else if to == from {
                liar.receive(now, world::SERVER, answer);
            }
        }
    }
    refusal
}

/// The same, and its first word.
fn begin(
    server: &mut Server<Catalogue>,
    now: Time,
    from: SocketAddr,
    liar: &mut Liar,
) -> Option<(Reason, String)> {
    let refusal = ask(server, now, from, liar);
    if refusal.is_none() {
        let status = liar.status();
        server.handle(now, now, from, None, &status);
    }
    refusal
}

#[test]
fn many_clients_meet_the_servers_limits_and_are_forgotten_when_silent() {
    let _alone = memory_alone();
    let mut server = server(3);
    let mut now = Time::ZERO;
    let mut refused = 0;
    let before = memory_bytes();
    for number in 0..300u32 {
        let from = address(number, 5);
        let mut liar = Liar::new(Lie::None, request(4, 4, 0, "cubic"), u64::from(number));
        refused += usize::from(begin(&mut server, now, from, &mut liar).is_some());
        drain(&mut server, now);
        now += Duration::from_millis(1);
    }
    assert_eq!(server.connections().count(), 64);
    assert_eq!(refused, 300 - 64);
    let (quiet, end) = (now + Duration::from_secs(5), now + Duration::from_secs(70));
    let mut woken = 0;
    while let Some(at) = server.next_timer().filter(|at| *at < end) {
        // No finer than a kernel's timer.
        now = at.max(now + Duration::from_micros(50));
        server.on_timer(now);
        drain(&mut server, now);
        woken += usize::from(now > quiet);
    }
    // At most a status each 100 ms and a packet each two seconds, of each of 64 clients, in the minute until they
    // are forgotten.
    assert!(woken < 64 * 60 * 15, "woken {woken} times");
    let grown = memory_bytes().saturating_sub(before) >> 20;
    assert!(grown < 64, "{grown} MiB for 64 clients");
    assert_eq!(server.connections().count(), 0);
    assert_eq!(server.next_timer(), None, "and nothing is left to wake for");
}

#[test]
fn one_address_takes_neither_all_places_nor_any_that_it_does_not_use() {
    let _shared = memory_shared();
    let mut server = server(4);
    let now = Time::ZERO;
    let crowd = |number: u32| address(1, 1_000 + number as u16);
    // Thousands of clients that are granted a test and never send take nobody's place.
    for number in 0..3_000 {
        let mut silent = Liar::new(Lie::None, request(0, 128, 0, "verus"), u64::from(number));
        assert_eq!(ask(&mut server, now, crowd(number), &mut silent), None);
    }
    assert_eq!(server.offers(), 64, "the oldest make room");
    assert_eq!(server.connections().count(), 0);
    // Clients that do send take the address's places.
    let mut refused = Vec::new();
    for number in 0..100 {
        let mut liar = Liar::new(
            Lie::None,
            request(1, 1, 0, "cubic"),
            10_000 + u64::from(number),
        );
        refused.extend(begin(&mut server, now, crowd(number), &mut liar));
    }
    assert_eq!(server.connections().count(), 16);
    assert_eq!(refused.len(), 84);
    assert!(refused.iter().all(|(reason, text)| *reason == Reason::Busy
        && text == "16 tests of the same address are running"));
    // Of this flood, as many as a person can read.
    let refusals = server
        .drain_notices()
        .filter(|notice| matches!(notice, Notice::Refused { .. }));
    assert!(refusals.count() <= 10);
    // Any number of addresses that never speak do not, either.
    for number in 0..3_000 {
        let mut silent = Liar::new(Lie::None, request(0, 128, 0, "verus"), 20_000 + number);
        let from = address(100 + number as u32, 1);
        assert_eq!(ask(&mut server, now, from, &mut silent), None);
    }
    assert_eq!(server.offers(), 1_024, "the oldest make room");
    assert_eq!(server.connections().count(), 16);
    // Somebody else is served.
    let mut honest = Liar::new(Lie::None, request(1, 1, 0, "cubic"), 99_999);
    assert_eq!(begin(&mut server, now, address(2, 1), &mut honest), None);
    assert_eq!(server.connections().count(), 17);
}

#[test]
fn who_was_granted_a_test_that_others_took_meanwhile_is_told_so_when_it_speaks() {
    let _shared = memory_shared();
    let mut config = ServerConfig::default();
    config.limits.clients = 1;
    let mut server = Server::new(config, Catalogue, entropy(5), Time::ZERO);
    let now = Time::ZERO;
    let [mut first, mut second] =
        [1, 2].map(|seed| Liar::new(Lie::None, request(1, 0, 0, "cubic"), seed));
    assert_eq!(ask(&mut server, now, address(1, 1), &mut first), None);
    assert_eq!(begin(&mut server, now, address(2, 1), &mut second), None);
    let status = first.status();
    server.handle(now, now, address(1, 1), None, &status);
    for (to, datagram) in drain(&mut server, now) {
        if to == address(1, 1) {
            first.receive(now, world::SERVER, datagram);
        }
    }
    assert_eq!(first.ended, Some((now, Reason::Busy)));
}

// --- Peers that ask for the absurd, and peers that are gone.

/// A client that has a test of `request` begin and says nothing more but, if it is to, that it is there. Bytes sent
/// to it in each second, and how often the server had to be woken in all.
fn vanish(request: Request, seconds: u64, keeps_alive: bool) -> (Vec<usize>, usize) {
    let mut server = server(6);
    let from = address(1, 1);
    let mut liar = Liar::new(Lie::None, request, 6);
    let mut now = Time::ZERO;
    assert_eq!(begin(&mut server, now, from, &mut liar), None);
    let (mut sent, mut woken) = (vec![0; seconds as usize], 0);
    let mut next_word = Time::ZERO;
    let end = Time::ZERO + Duration::from_secs(seconds);
    while now < end {
        let bytes: usize = drain(&mut server, now)
            .iter()
            .map(|(_, bytes)| bytes.len())
            .sum();
        sent[(now.as_millis() / 1_000) as usize] += bytes;
        if keeps_alive && now >= next_word {
            next_word = now + Duration::from_secs(1);
            let status = liar.status();
            server.handle(now, now, from, None, &status);
        }
        // No finer than a kernel's timer.
        let soon = now + Duration::from_micros(50);
        let next = server.next_timer().unwrap_or(end).max(soon);
        now = if keeps_alive {
            next.min(next_word.max(soon))
        } else {
            next
        };
        if server.next_timer().is_some_and(|at| at <= now) {
            server.on_timer(now);
            woken += 1;
        }
    }
    (sent, woken)
}

#[test]
fn a_client_that_vanishes_is_sent_a_trickle_after_two_seconds_whatever_the_scheme() {
    let _alone = memory_alone();
    for scheme in [
        "verus",
        "cubic",
        "newreno",
        "vegas",
        "sprout",
        "saturate",
        "constant:rate_mbps=100000",
    ] {
        for keeps_alive in [false, true] {
            let before = memory_bytes();
            let test = Request {
                packet_bytes: 200,
                status_millis: 20,
                ..request(0, 128, 0, scheme)
            };
            let (sent, _) = vanish(test, 30, keeps_alive);
            // A packet each two seconds, and a status each second.
            let quiet = sent[4..].iter().max().expect("seconds");
            assert!(*quiet < 4_000, "{scheme}, {keeps_alive}: {sent:?}");
            let grown = memory_bytes().saturating_sub(before) >> 20;
            assert!(grown < 120, "{scheme}, {keeps_alive}: {grown} MiB");
        }
    }
}

#[test]
fn a_source_of_any_rate_costs_as_much_work_as_it_sends() {
    let _shared = memory_shared();
    // A terabit a second in packets of 200 bytes: one each 1.6 ns.
    let test = Request {
        packet_bytes: 200,
        rate_bps: 1_000_000_000_000,
        ..request(0, 8, 0, "newreno")
    };
    let (_, woken) = vanish(test, 20, true);
    assert!(woken < 5_000, "woken {woken} times in 20 s");
    // A sender of 100 Gbit/s whose source yields a packet in ten seconds.
    let test = Request {
        rate_bps: 1_000,
        ..request(0, 8, 0, "constant:rate_mbps=100000")
    };
    let (_, woken) = vanish(test, 20, true);
    assert!(woken < 5_000, "woken {woken} times in 20 s");
    // Nonsensical requests are refused.
    let mut server = server(7);
    let absurd = Request {
        rate_bps: wire::MAX_NUMBER,
        ..request(0, 1, 0, "newreno")
    };
    let mut liar = Liar::new(Lie::None, absurd, 7);
    let refusal = ask(&mut server, Time::ZERO, address(1, 1), &mut liar);
    assert_eq!(refusal.map(|(reason, _)| reason), Some(Reason::BadRequest));
}

#[test]
fn rates_above_the_servers_limit_are_refused_and_the_limit_is_told() {
    let _shared = memory_shared();
    let mut config = ServerConfig::default();
    config.limits.rate_per_client = Some(Rate::from_mbps(5.0));
    let refused = |test: Request| {
        let mut server = Server::new(config.clone(), Catalogue, entropy(8), Time::ZERO);
        let mut liar = Liar::new(Lie::None, test, 8);
        ask(&mut server, Time::ZERO, address(1, 1), &mut liar)
    };
    let fast = Request {
        rate_bps: 1_000_000_000_000,
        ..request(0, 8, 0, "verus")
    };
    let words = "8 flows of 1000000 Mbit/s, and this server grants a test 5 Mbit/s";
    assert_eq!(refused(fast), Some((Reason::Limit, words.to_owned())));
    let words = "2 flows of 3 Mbit/s, and this server grants a test 5 Mbit/s";
    assert_eq!(
        refused(request(0, 2, 0, "constant:rate_mbps=3")),
        Some((Reason::Limit, words.to_owned()))
    );
    assert_eq!(refused(request(0, 1, 0, "constant:rate_mbps=3")), None);

    // A client knows the limit, and keeps it: nothing is thrown away.
    let server = Server::new(config.clone(), Catalogue, entropy(9), Time::ZERO);
    let mut watched = Watched::new(server);
    let test = Request {
        duration_nanos: 5_000_000_000,
        ..request(1, 1, 0, "newreno")
    };
    let mut honest = Honest::new(test, None);
    let schedule = Schedule::perfect(Duration::from_millis(10));
    let deadline = Time::from_millis(20_000);
    let around = Surroundings::default();
    world::run(&schedule, around, &mut honest, &mut watched, deadline);
    assert_eq!(honest.client.outcome(), Some(Ok(())));
    let connection = honest.client.connection().expect("it ran");
    assert_eq!(connection.limit(), Some(Rate::from_mbps(5.0)));
    let at_server = watched.server.connections().next().expect("it lingers");
    assert_eq!(at_server.rejected().policed, 0);
    let up: u64 = at_server.incoming().map(|(flow, _)| flow.distinct()).sum();
    let mbps = up as f64 * 8.0 / 5.0 / 1e6;
    assert!((4.0..5.3).contains(&mbps), "{mbps} Mbit/s up");

    // A constant rate that it would have to fall short of is no test.
    let mut honest = Honest::new(request(2, 0, 0, "constant:rate_mbps=3"), None);
    let server = Server::new(config, Catalogue, entropy(10), Time::ZERO);
    let mut watched = Watched::new(server);
    let around = Surroundings::default();
    world::run(&schedule, around, &mut honest, &mut watched, deadline);
    let failure = honest
        .client
        .outcome()
        .expect("it ended")
        .expect_err("refused");
    assert!(failure.to_string().contains("6 Mbit/s up"), "{failure}");
}

#[test]
fn what_comes_from_port_0_is_answered_by_nobody() {
    let _shared = memory_shared();
    let mut server = server(11);
    let mut liar = Liar::new(Lie::None, request(1, 1, 0, "verus"), 11);
    server.handle(Time::ZERO, Time::ZERO, address(1, 0), None, &liar.hello());
    assert_eq!(drain(&mut server, Time::ZERO), []);
    // A test's packets get no challenge either: no address with that port is ever challenged.
    assert_eq!(
        begin(&mut server, Time::ZERO, address(1, 1), &mut liar),
        None
    );
    let status = liar.status();
    server.handle(Time::ZERO, Time::ZERO, address(1, 0), None, &status);
    let sent = drain(&mut server, Time::ZERO);
    assert!(sent.iter().all(|(to, _)| to.port() != 0));
}

#[test]
fn packets_that_do_not_fit_a_path_end_one_test_with_the_cause_and_no_other() {
    let _shared = memory_shared();
    let mut server = server(12);
    let mut now = Time::ZERO;
    let large = Request {
        packet_bytes: 9_000,
        ..request(0, 1, 0, "newreno")
    };
    let mut liar = Liar::new(Lie::None, large, 12);
    let mut other = Liar::new(Lie::None, request(0, 1, 0, "newreno"), 13);
    assert_eq!(begin(&mut server, now, address(1, 1), &mut liar), None);
    assert_eq!(begin(&mut server, now, address(2, 1), &mut other), None);
    let mut batch = Batch::new(16);
    let mut text = String::new();
    for _ in 0..300 {
        while server.poll_transmit(now, &mut batch) {
            if batch.payload() > 1_472 {
                // The system's report of it.
                server.on_too_large(now, batch.payload());
                continue;
            }
            let packet = Packet::parse(batch.contents()).expect("ours");
            if batch.to == address(1, 1) && packet.kind == Kind::Close {
                let close = Close::decode(&packet).expect("well formed");
                assert_eq!(close.reason, Reason::TooLarge);
                text = close.text.to_owned();
            }
        }
        now += Duration::from_millis(10);
        server.on_timer(now);
    }
    assert_eq!(text, "packets of 9000 B do not fit this path");
    let going_on = server.connections().filter(|one| one.ended().is_none());
    assert_eq!(going_on.count(), 1, "the other goes on");
}

#[test]
fn a_packet_stands_for_no_more_data_than_its_size() {
    let _shared = memory_shared();
    let mut server = server(14);
    let (now, from) = (Time::ZERO, address(1, 1));
    let mut liar = Liar::new(Lie::None, request(1, 0, 0, "verus"), 14);
    assert_eq!(begin(&mut server, now, from, &mut liar), None);
    for (number, len, payload) in [(0, 1_400, 1_352), (1, 1_401, 1_352), (2, u32::MAX, 100)] {
        let data = Data {
            number,
            sent_nanos: 0,
            start: number * 10_000,
            len,
            stamp: None,
        };
        let (id, keys) = liar.connection.clone().expect("it has begun");
        let datagram = (keys.client).sealed(payload, |buffer| data.encode(0, id, buffer));
        server.handle(now, now, from, None, &datagram);
    }
    let connection = server.connections().next().expect("it runs");
    let (flow, _) = connection.incoming().next().expect("it uploads");
    assert_eq!(
        flow.distinct(),
        1_400,
        "IPv6 made IPv4 on the way, and no more"
    );
    assert_eq!(connection.rejected().malformed, 2);
}

// --- On the way.

/// An end, and an attacker on the path to it who reads everything and adds packets.
struct Besieged<E> {
    end: E,
    dice: ChaCha8Rng,
    seen: Vec<Vec<u8>>,
    books: Books,
}

impl<E: Endpoint> Besieged<E> {
    fn new(end: E, seed: u64) -> Self {
        Besieged {
            end,
            dice: random::stream(seed, "siege", 0),
            seen: Vec::new(),
            books: Books::default(),
        }
    }
}

impl<E: Endpoint> Endpoint for Besieged<E> {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        let elsewhere = address(self.dice.random_range(0..1_000), 9);
        for _ in 0..2 {
            let (hostile, source) = match self.dice.random_range(0..4) {
                0 => (mangled(&mut self.dice, &datagram), from),
                1 => (mangled(&mut self.dice, &datagram), elsewhere),
                2 if !self.seen.is_empty() => {
                    let at = self.dice.random_range(0..self.seen.len());
                    (self.seen[at].clone(), elsewhere)
                }
                _ => {
                    let key = Key::handshake(None);
                    let id = Packet::parse(&datagram).map_or(0, |packet| packet.connection);
                    (garbage(&mut self.dice, &key, id), from)
                }
            };
            self.books.arrived(source, &hostile);
            self.end.receive(now, source, hostile);
        }
        if self.seen.len() == 500 {
            let at = self.dice.random_range(0..500);
            self.seen.swap_remove(at);
        }
        self.seen.push(datagram.clone());
        self.end.receive(now, from, datagram);
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        let (to, datagram) = self.end.transmit(now)?;
        if to.port() == 9 {
            // To one of the addresses that were made up.
            self.books.sent(&[(to, datagram.clone())]);
        }
        Some((to, datagram))
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.end.next_timer()
    }

    fn on_timer(&mut self, now: Time) {
        self.end.on_timer(now);
    }

    fn is_done(&self) -> bool {
        self.end.is_done()
    }
}

/// The real client, as the world drives it.
struct Honest {
    client: Client<Scheme>,
    out: VecDeque<Vec<u8>>,
    now: Time,
}

impl Honest {
    fn new(request: Request, secret: Option<Secret>) -> Self {
        let scheme = Scheme::parse(&request.scheme).expect("it is in the list");
        let config = ClientConfig {
            secret,
            patience: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            ..ClientConfig::new(request)
        };
        Honest {
            client: Client::new(config, scheme, entropy(77), Time::ZERO),
            out: VecDeque::new(),
            now: Time::ZERO,
        }
    }

    fn received(&self) -> u64 {
        let connection = self.client.connection();
        connection.map_or(0, |connection| {
            connection.incoming().map(|(flow, _)| flow.distinct()).sum()
        })
    }
}

impl Endpoint for Honest {
    fn receive(&mut self, now: Time, _from: SocketAddr, datagram: Vec<u8>) {
        self.now = now;
        self.client.handle(now, now, &datagram);
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.now = now;
        let mut batch = Batch::new(1);
        while self.client.poll_transmit(now, &mut batch) {
            self.out.push_back(batch.contents().to_vec());
        }
        Some((world::SERVER, self.out.pop_front()?))
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.client.next_timer(self.now)
    }

    fn on_timer(&mut self, now: Time) {
        self.now = now;
        self.client.on_timer(now);
    }

    fn is_done(&self) -> bool {
        self.client.outcome().is_some()
    }
}

#[test]
fn forged_replayed_truncated_oversized_and_random_packets_change_nothing() {
    let _shared = memory_shared();
    let shared = Secret::stretch(b"secret");
    for seed in 0..20 {
        let secret = (seed % 2 == 0).then(|| shared.clone());
        let config = ServerConfig {
            secret: secret.clone(),
            ..ServerConfig::default()
        };
        let server = Server::new(config, Catalogue, entropy(seed), Time::ZERO);
        let test = request(2, 2, 300_000, "verus");
        let mut client = Besieged::new(Honest::new(test, secret), seed);
        let mut server = Besieged::new(Watched::new(server), seed + 1_000);
        let mut schedule = Schedule::perfect(Duration::from_millis(10));
        schedule.seed = seed;
        let deadline = Time::from_millis(60_000);
        world::run(
            &schedule,
            Surroundings::default(),
            &mut client,
            &mut server,
            deadline,
        );
        let outcome = client.end.client.outcome();
        assert_eq!(outcome, Some(Ok(())), "seed {seed}");
        assert_eq!(client.end.received(), 600_000);
        let mut connections = server.end.server.connections();
        let connection = connections.next().expect("it lingers");
        let received: u64 = connection.incoming().map(|(flow, _)| flow.distinct()).sum();
        assert_eq!(received, 600_000);
        // Only copies of the hello can begin tests, and nobody goes on with those.
        assert!(
            connections.all(|ghost| !ghost.is_established()),
            "seed {seed}"
        );
        drop(connections);
        let moved = server.end.server.drain_notices();
        let moved: Vec<_> = moved
            .filter(|notice| matches!(notice, Notice::Moved { .. }))
            .collect();
        assert!(moved.is_empty(), "{moved:?}");
        assert!(server.end.server.ignored() > 100, "there was a siege");
    }
}

#[test]
fn forged_data_does_not_use_up_what_all_clients_share() {
    let _shared = memory_shared();
    let mut config = ServerConfig::default();
    config.limits.rate = Some(Rate::from_mbps(10.0));
    let mut server = Server::new(config, Catalogue, entropy(1), Time::ZERO);
    let mut dice = random::stream(1, "forger", 0);
    let mut now = Time::ZERO;
    let mut liar = Liar::new(Lie::None, request(1, 0, 0, "verus"), 1);
    let from = address(1, 1);
    assert_eq!(begin(&mut server, now, from, &mut liar), None);
    let (id, keys) = liar.connection.clone().expect("the handshake is done");
    let mut noise = [0; 32];
    dice.fill_bytes(&mut noise);
    let wrong = Key::random(noise);
    let data = |key: &Key, number: u64| {
        let data = Data {
            number,
            sent_nanos: 0,
            start: number * 1_372,
            len: 1_372,
            stamp: None,
        };
        key.sealed(1_372, |buffer| data.encode(0, id, buffer))
    };
    // 5.6 Mbit/s of data amid 112 Mbit/s of forgeries.
    for number in 0..1_000 {
        for _ in 0..20 {
            now += Duration::from_micros(100);
            server.handle(now, now, from, None, &data(&wrong, number));
        }
        server.handle(now, now, from, None, &data(&keys.client, number));
        drain(&mut server, now);
    }
    let connection = server.connections().next().expect("it runs");
    let (flow, _) = connection.incoming().next().expect("it uploads");
    assert_eq!(flow.distinct(), 1_000 * 1_372);
    let rejected = connection.rejected();
    assert_eq!((rejected.policed, rejected.forged), (0, 20_000));
}

// --- Peers with the keys.

#[test]
fn a_peer_with_the_keys_who_sends_nonsense_harms_only_itself() {
    let _alone = memory_alone();
    for seed in 0..10 {
        let mut server = server(seed);
        let mut dice = random::stream(seed, "nonsense", 0);
        let from = address(1, 1);
        let mut liar = Liar::new(Lie::None, request(2, 2, 0, "verus"), seed);
        let mut now = Time::ZERO;
        for _ in 0..2 {
            server.handle(now, now, from, None, &liar.hello());
            for (_, answer) in drain(&mut server, now) {
                liar.receive(now, world::SERVER, answer);
            }
        }
        let (id, keys) = liar.connection.clone().expect("the handshake is done");
        let liar_acknowledges = seed.is_multiple_of(2);
        let before = memory_bytes();
        for _ in 0..100_000 {
            now += Duration::from_micros(50);
            let datagram = match dice.random_range(0..4) {
                0 => wild_data(&mut dice, &keys.client, id),
                1 if liar_acknowledges => wild_ack(&mut dice, &keys.client, id),
                _ => garbage(&mut dice, &keys.client, id),
            };
            // Either would end the test: a farewell, or an acknowledgement of packets not sent,
            // which some random ones may be.
            let is = |kind| datagram[2] == kind as u8;
            if is(Kind::Close) || (is(Kind::Ack) && !liar_acknowledges) {
                continue;
            }
            server.handle(now, now, from, None, &datagram);
            if server.next_timer().is_some_and(|at| at <= now) {
                server.on_timer(now);
            }
            drain(&mut server, now);
        }
        assert!(
            memory_bytes() < before + (64 << 20),
            "memory grows without bound"
        );
        let goes_on = server.connections().any(|one| one.ended().is_none());
        assert_eq!(goes_on, !liar_acknowledges, "seed {seed}");
        // Whatever it was, the next one is served.
        let mut honest = Honest::new(request(1, 1, 50_000, "verus"), None);
        let schedule = Schedule::perfect(Duration::from_millis(10));
        let mut watched = Watched::new(server);
        let mut shifted = Shifted {
            end: &mut watched,
            by: now.since(Time::ZERO),
        };
        let deadline = Time::from_millis(60_000);
        world::run(
            &schedule,
            Surroundings::default(),
            &mut honest,
            &mut shifted,
            deadline,
        );
        assert_eq!(honest.client.outcome(), Some(Ok(())), "seed {seed}");
    }
}

#[test]
fn a_server_that_reports_the_largest_numbers_neither_upsets_a_client_nor_fills_its_memory() {
    let _alone = memory_alone();
    let request = Request {
        duration_nanos: 2_000_000_000,
        ..request(8, 8, 0, "verus")
    };
    let mut honest = Honest::new(request, None);
    let mut now = Time::ZERO;
    let (_, hello) = honest.transmit(now).expect("a hello");
    let hello = Packet::parse(&hello).expect("a packet");
    let client_nonce = Hello::decode(&hello).expect("a hello").nonce;
    let accept = Accept {
        client_nonce,
        server_nonce: [9; 16],
        limit_bps: None,
        quiet_millis: 0,
    };
    let (id, handshake) = (7, Key::handshake(None));
    let key = Keys::new(&handshake, &client_nonce, &accept.server_nonce).server;
    let accept = handshake.sealed(0, |buffer| accept.encode(id, buffer));
    honest.receive(now, world::SERVER, accept);
    let before = memory_bytes();
    for number in 1..=10_000 {
        now += Duration::from_millis(1);
        honest.on_timer(now);
        let largest = |flow| FlowStatus {
            flow,
            finished: number > 2_000,
            sent: wire::MAX_NUMBER,
            retransmitted: wire::MAX_NUMBER,
            lost: wire::MAX_NUMBER,
            timeouts: u32::MAX,
            acked: wire::MAX_NUMBER,
            window: wire::MAX_NUMBER,
            rtt_micros: u32::MAX,
            rtt_mean_micros: u32::MAX,
            rtt_p95_micros: u32::MAX,
        };
        let status = Status {
            number,
            flows: (0..16).map(largest).collect(),
        };
        let status = key.sealed(0, |buffer| status.encode(id, buffer));
        honest.receive(now, world::SERVER, status);
        for flow in 0..8 {
            let data = Data {
                number: wire::MAX_NUMBER - 10_000 + number,
                sent_nanos: wire::MAX_NUMBER,
                start: wire::MAX_NUMBER - 5,
                len: u32::MAX,
                stamp: None,
            };
            let data = key.sealed(0, |buffer| data.encode(flow, id, buffer));
            honest.receive(now, world::SERVER, data);
        }
        while let Some((_, sent)) = honest.transmit(now) {
            if sent[2] == Kind::Close as u8 {
                let closed = key.sealed(0, |buffer| {
                    wire::encode_plain(Kind::Closed, id, &[], buffer)
                });
                honest.receive(now, world::SERVER, closed);
            }
        }
    }
    assert!(honest.client.outcome().is_some(), "it ends in time");
    let grown = memory_bytes().saturating_sub(before) >> 20;
    assert!(grown < 64, "{grown} MiB");
}

/// A server whose clock is ahead of the world's.
struct Shifted<'a> {
    end: &'a mut Watched,
    by: Duration,
}

impl Endpoint for Shifted<'_> {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        self.end.receive(now + self.by, from, datagram);
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.end.transmit(now + self.by)
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.end.next_timer().map(|at| at - self.by)
    }

    fn on_timer(&mut self, now: Time) {
        self.end.on_timer(now + self.by);
    }

    fn is_done(&self) -> bool {
        true
    }
}

fn wild_number(dice: &mut ChaCha8Rng) -> u64 {
    match dice.random_range(0..3) {
        0 => dice.random_range(0..1_000),
        1 => dice.random_range(0..=wire::MAX_NUMBER),
        _ => wire::MAX_NUMBER - dice.random_range(0..1_000),
    }
}

/// A well-formed packet with random values.
fn wild_data(dice: &mut ChaCha8Rng, key: &Key, connection: u64) -> Vec<u8> {
    let data = Data {
        number: wild_number(dice),
        sent_nanos: wild_number(dice),
        start: wild_number(dice),
        len: dice.random(),
        stamp: dice.random_bool(0.1).then_some(&[1, 2, 3]),
    };
    let flow = dice.random_range(0..3);
    key.sealed(0, |buffer| data.encode(flow, connection, buffer))
}

/// A well-formed packet with random values, only about packets that may have been sent.
fn wild_ack(dice: &mut ChaCha8Rng, key: &Key, connection: u64) -> Vec<u8> {
    let body = AckBody {
        ack_number: wild_number(dice),
        sent_nanos: wild_number(dice),
        distinct: wild_number(dice),
        newest: dice.random_range(0..3),
        spans: vec![1],
        runs: vec![Run {
            below: 0,
            count: 1,
            age_nanos: dice.random(),
        }],
        marks: 0,
    };
    // Any count of marks, as wild as the rest.
    let marks = body.runs[0].age_nanos;
    let body = AckBody { marks, ..body };
    let flow = dice.random_range(0..3);
    key.sealed(0, |buffer| body.encode(flow, connection, None, buffer))
}

/// Memory that this process uses.
fn memory_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages: u64 = resident.expect("its second field");
    pages * 4096
}
