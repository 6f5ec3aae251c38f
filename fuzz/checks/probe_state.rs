//! Invariants of both ends of the probe, in any order of packets and time.
//!
//! The input is a script: each step lets time pass, lets an end speak, or carries, loses, repeats, reorders,
//! damages or forges a packet. Forged ones are sealed with the right keys, so that they get as deep
//! as those of a client or a server that lies.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use verus_core::{Duration, Time};
use verus_probe::client::{Client, ClientConfig};
use verus_probe::connection::Batch;
use verus_probe::seal::{Key, Keys};
use verus_probe::server::{Catalogue, Server, ServerConfig};
use verus_probe::wire::{Accept, Hello, Kind, Packet, Request, encode_plain};
use verus_senders::Scheme;

/// Steps of one script.
const STEPS: usize = 400;
/// Packets that one end sends in one step.
const BURST: usize = 64;
/// Packets under way in one direction.
const UNDER_WAY: usize = 256;

const SCHEMES: [&str; 8] = [
    "verus",
    "cubic",
    "newreno",
    "vegas",
    "sprout",
    "saturate",
    "constant:rate_mbps=2",
    "verus:mode=prototype",
];

/// The rest of the input.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    /// A number of any size, small ones more often.
    fn number(&mut self) -> u64 {
        let (exponent, mantissa) = (self.byte() % 64, self.byte());
        u64::from(mantissa) << exponent >> 4
    }

    fn some(&mut self, most: usize) -> Vec<u8> {
        let length = usize::from(self.byte()).min(most).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken.to_vec()
    }
}

/// Both ends and the path between them.
struct World {
    now: Time,
    client: Client<Scheme>,
    server: Server<Catalogue>,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    handshake: Key,
    nonce: Option<[u8; 16]>,
    /// The connection, once the server has granted it.
    connection: Option<(u64, Keys)>,
    /// Bytes from and to each address that has proven nothing.
    strangers: BTreeMap<SocketAddr, (usize, usize)>,
    established: bool,
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1 + host % 4), 5000))
}

/// Plays the script.
///
/// # Panics
/// If an end breaks an invariant, whatever it receives.
pub fn check(bytes: &[u8]) {
    let mut script = Script(bytes);
    let request = Request {
        upload_flows: u16::from(script.byte() % 3),
        download_flows: u16::from(script.byte() % 3),
        packet_bytes: [200, 576, 1400, 9000][usize::from(script.byte() % 4)],
        status_millis: 20 + u16::from(script.byte()),
        duration_nanos: u64::from(script.byte() % 8) * 500_000_000,
        bytes: u64::from(script.byte()) * 1000,
        rate_bps: script.number(),
        seed: 1,
        scheme: SCHEMES[usize::from(script.byte()) % SCHEMES.len()].to_owned(),
    };
    let scheme = Scheme::parse(&request.scheme).expect("it is in the list");
    let config = ClientConfig {
        patience: Duration::from_secs(20),
        silence: Duration::from_secs(10),
        ..ClientConfig::new(request)
    };
    let mut world = World {
        now: Time::ZERO,
        client: Client::new(config, scheme, [1; 32], Time::ZERO)
            .with_echoes(Duration::from_millis(200)),
        server: Server::new(ServerConfig::default(), Catalogue, [2; 32], Time::ZERO),
        up: VecDeque::new(),
        down: VecDeque::new(),
        handshake: Key::handshake(None),
        nonce: None,
        connection: None,
        strangers: BTreeMap::new(),
        established: false,
    };
    for _ in 0..STEPS {
        if script.0.is_empty() {
            break;
        }
        world.step(&mut script);
    }
}

impl World {
    fn step(&mut self, script: &mut Script<'_>) {
        let (what, how) = (script.byte(), script.byte());
        let upward = how & 1 == 0;
        let at = usize::from(how >> 1);
        match what % 16 {
            0 => self.pass(Duration::from_micros(u64::from(how) << (how % 16))),
            1 => self.pass_to_timer(),
            2 | 3 => {
                self.speak(BURST);
                self.pass(Duration::from_millis(5));
                while let Some(packet) = self.up.pop_front() {
                    self.tell_server(address(0), &packet);
                }
                self.speak(BURST);
                while let Some(packet) = self.down.pop_front() {
                    self.tell_client(&packet);
                }
            }
            4 => self.speak(1 + at % BURST),
            5 => {
                if let Some(packet) = self.take(upward, 0) {
                    self.carry(upward, 0, &packet);
                }
            }
            6 => {
                if let Some(packet) = self.take(upward, at) {
                    self.carry(upward, script.byte(), &packet);
                }
            }
            7 => drop(self.take(upward, at)),
            8 => {
                let queue = if upward { &mut self.up } else { &mut self.down };
                if let Some(packet) = queue.front().cloned() {
                    queue.push_back(packet);
                }
            }
            9 => {
                if let Some(mut packet) = self.take(upward, at) {
                    let bit = script.number() as usize % (8 * packet.len());
                    packet[bit / 8] ^= 1 << (bit % 8);
                    self.carry(upward, 0, &packet);
                }
            }
            10..=12 => {
                let Some(packet) = self.take(upward, at) else {
                    return;
                };
                let offset = script.number() as usize;
                let patch = script.some(24);
                let packet = self.tampered(upward, packet, offset, &patch);
                self.carry(upward, 0, &packet);
            }
            13 => {
                let kind = [
                    Kind::Data,
                    Kind::Ack,
                    Kind::Status,
                    Kind::Close,
                    Kind::Closed,
                    Kind::Challenge,
                    Kind::Response,
                    Kind::Accept,
                ][at % 8];
                let body = script.some(200);
                if let Some(packet) = self.forged(upward, kind, &body) {
                    self.carry(upward, script.byte(), &packet);
                }
            }
            14 => {
                let raw = script.some(255);
                self.carry(upward, how, &raw);
            }
            _ => self.client_stops(how),
        }
    }

    fn client_stops(&mut self, how: u8) {
        if how > 200 {
            self.client.stop(self.now);
        }
    }

    /// Time passes, and both ends do everything that falls due.
    fn pass(&mut self, span: Duration) {
        self.now += span;
        if self
            .client
            .next_timer(self.now)
            .is_some_and(|at| at <= self.now)
        {
            self.client.on_timer(self.now);
        }
        if self.server.next_timer().is_some_and(|at| at <= self.now) {
            self.server.on_timer(self.now);
        }
    }

    fn pass_to_timer(&mut self) {
        let timers = [self.client.next_timer(self.now), self.server.next_timer()];
        let next = timers.into_iter().flatten().min().unwrap_or(self.now);
        self.pass(next.max(self.now).since(self.now));
    }

    /// Lets both ends send.
    fn speak(&mut self, most: usize) {
        let mut batch = Batch::new(4);
        let mut sent = 0;
        while sent < most && self.client.poll_transmit(self.now, &mut batch) {
            for packet in packets(&batch) {
                self.note_hello(packet);
                sent += 1;
                if self.up.len() < UNDER_WAY {
                    self.up.push_back(packet.to_vec());
                }
            }
        }
        sent = 0;
        while sent < most && self.server.poll_transmit(self.now, &mut batch) {
            let to = batch.to;
            for packet in packets(&batch) {
                self.note_accept(packet);
                sent += 1;
                if !self.established || to != address(0) {
                    let (came, went) = self.strangers.entry(to).or_default();
                    *went += packet.len();
                    // An address that has proven itself may be owed a test's packets.
                    let proven = self.connection.is_some();
                    assert!(proven || went <= came, "{to}: {went} bytes for {came}");
                }
                if self.down.len() < UNDER_WAY {
                    self.down.push_back(packet.to_vec());
                }
            }
        }
        self.server.drain_notices().for_each(drop);
    }

    fn note_hello(&mut self, packet: &[u8]) {
        let packet = Packet::parse(packet).expect("an end sends packets");
        if packet.kind == Kind::Hello {
            let hello = Hello::decode(&packet).expect("an end sends what can be read");
            self.nonce = Some(hello.nonce);
        }
    }

    fn note_accept(&mut self, packet: &[u8]) {
        let packet = Packet::parse(packet).expect("an end sends packets");
        if packet.kind == Kind::Accept {
            let accept = Accept::decode(&packet).expect("an end sends what can be read");
            let keys = Keys::new(&self.handshake, &accept.client_nonce, &accept.server_nonce);
            self.connection = Some((packet.connection, keys));
        }
        self.established |= packet.kind == Kind::Data;
    }

    fn take(&mut self, upward: bool, at: usize) -> Option<Vec<u8>> {
        let queue = if upward { &mut self.up } else { &mut self.down };
        if queue.is_empty() {
            return None;
        }
        queue.remove(at % queue.len())
    }

    fn carry(&mut self, upward: bool, from: u8, packet: &[u8]) {
        if upward {
            self.tell_server(address(from), packet);
        } else {
            self.tell_client(packet);
        }
    }

    fn tell_server(&mut self, from: SocketAddr, packet: &[u8]) {
        self.strangers.entry(from).or_default().0 += packet.len();
        self.server.handle(self.now, self.now, from, None, packet);
        let open = self.server.connections().count();
        assert!(open <= 64, "{open} tests");
    }

    fn tell_client(&mut self, packet: &[u8]) {
        self.client.handle(self.now, self.now, packet);
    }

    /// The key that seals packets of `kind` in that direction.
    fn key(&self, upward: bool, kind: Kind) -> Option<Key> {
        match kind {
            Kind::Hello | Kind::Retry | Kind::Accept | Kind::Refuse => Some(self.handshake.clone()),
            _ => self.connection.as_ref().map(|(_, keys)| {
                if upward {
                    keys.client.clone()
                } else {
                    keys.server.clone()
                }
            }),
        }
    }

    /// The packet with other bytes in it, sealed again.
    fn tampered(&self, upward: bool, mut packet: Vec<u8>, offset: usize, patch: &[u8]) -> Vec<u8> {
        let Ok(parsed) = Packet::parse(&packet) else {
            return packet;
        };
        let (covered, kind) = (parsed.covered.len(), parsed.kind);
        if let Some(key) = self.key(upward, kind) {
            // All but the two bytes that say whose packet it is.
            for (index, &byte) in patch.iter().enumerate() {
                packet[2 + (offset + index) % (covered - 2)] = byte;
            }
            key.seal(&mut packet, covered);
        }
        packet
    }

    /// A packet of this kind and body.
    fn forged(&self, upward: bool, kind: Kind, body: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(upward, kind)?;
        let id = self.connection.as_ref().map_or(0, |(id, _)| *id);
        Some(key.sealed(0, |buffer| encode_plain(kind, id, body, buffer)))
    }
}

fn packets(batch: &Batch) -> impl Iterator<Item = &[u8]> {
    batch.contents().chunks(batch.payload().max(1))
}
