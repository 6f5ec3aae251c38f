//! The end that grants tests: addresses proven without state, limits, many connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};

use rand::Rng;
use rand_chacha::ChaCha20Rng;
use verus_core::algorithm::Scheme;
use verus_core::{Bytes, Time};

use super::connection::{Batch, CHALLENGE_BYTES, Connection, Rejected, Role, Terms};
use super::flow::{Algorithms, Event};
use super::limits::{Bucket, Limits};
use super::seal::{Key, Keys, Tokens};
use super::wire::{Accept, Ending, Hello, Kind, MIN_HELLO_BYTES, Packet, Reason, Request, Retry};

/// Answers to strangers that may wait to be sent; more are not answered.
const MOST_REPLIES: usize = 256;

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The pre-shared secret, if clients must have one.
    pub secret: Option<Vec<u8>>,
    /// What is granted.
    pub limits: Limits,
    /// Whether to keep an event for each packet: for tests.
    pub log: bool,
}

/// Turns a request's words into algorithms.
pub trait Library {
    /// The algorithms of `scheme`.
    ///
    /// # Errors
    /// What is wrong with `scheme`, in words for the client.
    fn algorithms(&self, scheme: &str) -> Result<Box<dyn Algorithms>, String>;
}

/// The core's catalogue of schemes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Catalogue;

impl Library for Catalogue {
    fn algorithms(&self, scheme: &str) -> Result<Box<dyn Algorithms>, String> {
        match Scheme::parse(scheme) {
            Ok(scheme) => Ok(Box::new(scheme)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What a server tells whoever runs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A test begins.
    Began {
        /// The client.
        client: SocketAddr,
        /// What it asked for.
        request: Request,
    },
    /// A test was refused.
    Refused {
        /// The client.
        client: SocketAddr,
        /// Why.
        text: String,
    },
    /// A client goes on under another address.
    Moved {
        /// From where.
        from: SocketAddr,
        /// To where.
        to: SocketAddr,
    },
    /// A test is over.
    Ended {
        /// The client.
        client: SocketAddr,
        /// How it ended, in words.
        how: String,
        /// Bytes of data received, copies not counted.
        received: u64,
        /// Bytes acknowledged by the client.
        acknowledged: u64,
    },
}

#[derive(Debug)]
struct Session {
    connection: Connection,
    client: SocketAddr,
    local: Option<IpAddr>,
    nonce: [u8; 16],
    accept: [u8; 16],
    owes_accept: bool,
    /// When its timer is in the heap, to know stale entries.
    armed: Time,
    queued: bool,
    flows: usize,
}

/// An answer to a stranger.
#[derive(Debug)]
struct Reply {
    to: SocketAddr,
    from: Option<IpAddr>,
    bytes: Vec<u8>,
}

/// The server, sans-IO.
///
/// A connection's id holds its place in the table, so that a packet finds it without hashing; the
/// rest of the id is random.
#[derive(Debug)]
pub struct Server<L> {
    config: ServerConfig,
    library: L,
    handshake: Key,
    secret: Key,
    tokens: Tokens,
    random: ChaCha20Rng,
    sessions: Vec<Option<Session>>,
    by_nonce: HashMap<[u8; 16], usize>,
    flows: usize,
    replies: Vec<Reply>,
    /// Sessions with something to send, perhaps.
    ready: std::collections::VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Time, usize)>>,
    total: Bucket,
    total_in: Bucket,
    notices: Vec<Notice>,
    ignored: u64,
}

impl<L: Library> Server<L> {
    /// A server that knows nobody yet. `entropy` must be random.
    pub fn new(config: ServerConfig, library: L, entropy: [u8; 32], now: Time) -> Self {
        let mut random: ChaCha20Rng = rand::SeedableRng::from_seed(entropy);
        let mut key = || {
            let mut bytes = [0; 32];
            random.fill_bytes(&mut bytes);
            Key::random(bytes)
        };
        let (tokens, secret) = (Tokens::new(key()), key());
        Server {
            handshake: Key::handshake(config.secret.as_deref()),
            secret,
            tokens,
            random,
            sessions: Vec::new(),
            by_nonce: HashMap::new(),
            flows: 0,
            replies: Vec::new(),
            ready: std::collections::VecDeque::new(),
            timers: BinaryHeap::new(),
            total: Bucket::new(config.limits.rate, now),
            total_in: Bucket::new(config.limits.rate, now),
            notices: Vec::new(),
            ignored: 0,
            library,
            config,
        }
    }

    /// A datagram from `client` to the address `local` arrived at `arrival` and is read at `now`.
    pub fn handle(
        &mut self,
        now: Time,
        arrival: Time,
        client: SocketAddr,
        local: Option<IpAddr>,
        datagram: &[u8],
    ) {
        let Ok(packet) = Packet::parse(datagram) else {
            self.ignored += 1;
            return;
        };
        if packet.kind == Kind::Hello {
            self.on_hello(now, client, local, datagram.len(), &packet);
            return;
        }
        let index = (packet.connection & 0xffff) as usize;
        let Some(Some(session)) = self.sessions.get_mut(index) else {
            self.ignored += 1;
            return;
        };
        if session.connection.id() != packet.connection {
            self.ignored += 1;
            return;
        }
        let size = Bytes::new((datagram.len() + overhead(client)) as u64);
        let shared = &mut self.total_in;
        if !session
            .connection
            .handle(now, arrival, size, &packet, shared)
        {
            return;
        }
        if client != session.client {
            if session.connection.proves(client, &packet) {
                self.notices.push(Notice::Moved {
                    from: session.client,
                    to: client,
                });
                session.client = client;
                session.local = local;
            } else if datagram.len() >= CHALLENGE_BYTES {
                let mut nonce = [0; 16];
                self.random.fill_bytes(&mut nonce);
                session.connection.on_new_address(now, client, nonce);
            }
        }
        self.enqueue(index);
    }

    fn on_hello(
        &mut self,
        now: Time,
        client: SocketAddr,
        local: Option<IpAddr>,
        datagram_bytes: usize,
        packet: &Packet<'_>,
    ) {
        // No answer is longer than the shortest hello.
        if datagram_bytes < MIN_HELLO_BYTES || !self.handshake.opens(packet) {
            self.ignored += 1;
            return;
        }
        let Ok(hello) = Hello::decode(packet) else {
            self.ignored += 1;
            return;
        };
        if !self.tokens.proves(now, client, &hello.nonce, hello.token) {
            let token = self.tokens.mint(now, client, &hello.nonce);
            self.reply(client, local, |buffer| {
                Retry {
                    nonce: hello.nonce,
                    token: &token,
                }
                .encode(buffer)
            });
            return;
        }
        if let Some(&index) = self.by_nonce.get(&hello.nonce) {
            // The accept was lost, or is still under way.
            if let Some(session) = &mut self.sessions[index]
                && (session.client == client || !session.connection.is_established())
            {
                // A client may move before it has heard of the connection; the address is proven.
                (session.client, session.local) = (client, local);
                session.owes_accept = true;
                self.enqueue(index);
            }
            return;
        }
        match self.grant(&hello.request) {
            Ok(algorithms) => self.begin(now, client, local, &hello, &*algorithms),
            Err((reason, text)) => {
                self.reply(client, local, |buffer| {
                    Ending {
                        nonce: hello.nonce,
                        reason,
                        text: &text,
                    }
                    .encode(Kind::Refuse, 0, buffer)
                });
                self.notices.push(Notice::Refused { client, text });
            }
        }
    }

    /// The algorithms for `request`, or why it is refused.
    fn grant(&self, request: &Request) -> Result<Box<dyn Algorithms>, (Reason, String)> {
        let limits = &self.config.limits;
        if let Some(refusal) = limits.refusal(request, self.flows) {
            return Err(refusal);
        }
        let open = self.sessions.iter().flatten().count();
        if open >= limits.clients.min(1 << 16) {
            return Err((Reason::Busy, format!("{open} tests are running")));
        }
        // Of an upload this end runs only the receiver half, and a model has none: its file may be
        // anywhere. One that would have to be opened here is refused.
        let elsewhere = request.download_flows == 0 && Scheme::names_file(&request.scheme);
        let scheme = if elsewhere {
            "newreno"
        } else {
            &request.scheme
        };
        self.library
            .algorithms(scheme)
            .map_err(|text| (Reason::BadRequest, text))
    }

    fn begin(
        &mut self,
        now: Time,
        client: SocketAddr,
        local: Option<IpAddr>,
        hello: &Hello<'_>,
        algorithms: &dyn Algorithms,
    ) {
        let index = self
            .sessions
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.sessions.push(None);
                self.sessions.len() - 1
            });
        let id = self.random.next_u64() & !0xffff | index as u64;
        let mut accept = [0; 16];
        self.random.fill_bytes(&mut accept);
        let limits = &self.config.limits;
        // Only for so long does a test with a size and no duration run.
        let mut request = hello.request.clone();
        if request.duration_nanos == 0 {
            request.duration_nanos = limits.duration.as_nanos();
        }
        let terms = Terms {
            role: Role::Server,
            id,
            keys: Keys::new(&self.handshake, &hello.nonce, &accept),
            request: &request,
            silence: limits.silence,
            rate: limits.rate_per_client,
            secret: &self.secret,
            log: self.config.log,
        };
        let flows = usize::from(request.upload_flows) + usize::from(request.download_flows);
        self.sessions[index] = Some(Session {
            connection: Connection::new(&terms, algorithms, now),
            client,
            local,
            nonce: hello.nonce,
            accept,
            owes_accept: true,
            armed: Time::MAX,
            queued: false,
            flows,
        });
        self.flows += flows;
        self.by_nonce.insert(hello.nonce, index);
        self.notices.push(Notice::Began {
            client,
            request: hello.request.clone(),
        });
        self.enqueue(index);
    }

    /// Queues an answer to a stranger, sealed with the handshake's key.
    fn reply(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        encode: impl FnOnce(&mut [u8]) -> usize,
    ) {
        if self.replies.len() == MOST_REPLIES {
            self.ignored += 1;
            return;
        }
        let mut bytes = vec![0; MIN_HELLO_BYTES];
        let covered = encode(&mut bytes);
        let len = self.handshake.seal(&mut bytes, covered);
        bytes.truncate(len);
        self.replies.push(Reply { to, from, bytes });
    }

    fn enqueue(&mut self, index: usize) {
        if let Some(session) = &mut self.sessions[index]
            && !session.queued
        {
            session.queued = true;
            self.ready.push_back(index);
        }
    }

    /// The instant of [`next_timer`](Self::next_timer) has come, perhaps late.
    pub fn on_timer(&mut self, now: Time) {
        while let Some(&Reverse((at, index))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(session) = &mut self.sessions[index] else {
                continue;
            };
            if session.armed != at {
                continue; // re-armed since
            }
            session.armed = Time::MAX;
            session.connection.on_timer(now);
            self.enqueue(index);
        }
    }

    /// When to call [`on_timer`](Self::on_timer) and then
    /// [`poll_transmit`](Self::poll_transmit) next, if at all.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.peek().map(|&Reverse((at, _))| at)
    }

    /// Fills `batch` with the next packets for one client; returns whether there are any.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        if let Some(reply) = self.replies.pop() {
            batch.control()[..reply.bytes.len()].copy_from_slice(&reply.bytes);
            batch.set_len(reply.bytes.len());
            (batch.to, batch.from) = (reply.to, reply.from);
            return true;
        }
        while let Some(index) = self.ready.pop_front() {
            if self.poll_session(now, index, batch) {
                // There may be more; the others come first.
                self.ready.push_back(index);
                return true;
            }
        }
        false
    }

    fn poll_session(&mut self, now: Time, index: usize, batch: &mut Batch) -> bool {
        let Some(session) = &mut self.sessions[index] else {
            return false;
        };
        (batch.to, batch.from) = (session.client, session.local);
        if session.owes_accept {
            session.owes_accept = false;
            let accept = Accept {
                client_nonce: session.nonce,
                server_nonce: session.accept,
            };
            let buffer = batch.control();
            let covered = accept.encode(session.connection.id(), buffer);
            let len = self.handshake.seal(buffer, covered);
            batch.set_len(len);
            return true;
        }
        if let Some((to, len)) = session.connection.poll_challenge(batch.control()) {
            batch.set_len(len);
            batch.to = to;
            batch.from = None;
            return true;
        }
        let overhead = overhead(session.client);
        let total = &mut self.total;
        if session
            .connection
            .poll_transmit(now, overhead, batch, total)
        {
            return true;
        }
        session.queued = false;
        if session.connection.is_over() {
            self.forget(index);
            return false;
        }
        let shared = self.total.wait(now, Bytes::new(1 << 16));
        if let Some(at) = session.connection.next_timer(now) {
            // What waits for the server's own limit waits for it alone.
            let at = shared.map_or(at, |shared| at.max(shared.min(now + super::flow::BIN)));
            // One that is armed too early fires for nothing, and is cheaper than one more entry.
            if at < session.armed {
                session.armed = at;
                self.timers.push(Reverse((at, index)));
            }
        }
        false
    }

    fn forget(&mut self, index: usize) {
        let Some(session) = self.sessions[index].take() else {
            return;
        };
        self.flows -= session.flows;
        self.by_nonce.remove(&session.nonce);
        let connection = &session.connection;
        self.notices.push(Notice::Ended {
            client: session.client,
            how: match connection.ended() {
                Some(ended) => ended.to_string(),
                None => "forgotten".to_owned(),
            },
            received: connection.incoming().map(|(flow, _)| flow.distinct()).sum(),
            acknowledged: connection
                .outgoing()
                .iter()
                .map(|flow| flow.meter().delivered().get())
                .sum(),
        });
    }

    /// Ends all tests; whoever runs the server goes on polling until [`is_idle`](Self::is_idle) or
    /// its patience ends.
    pub fn shut_down(&mut self, now: Time) {
        for index in 0..self.sessions.len() {
            if let Some(session) = &mut self.sessions[index] {
                session
                    .connection
                    .close(now, Reason::ShuttingDown, "the server was stopped");
                self.enqueue(index);
            }
        }
    }

    /// Forgets all tests, with a notice of each: for whoever goes away.
    pub fn forget_all(&mut self) {
        for index in 0..self.sessions.len() {
            self.forget(index);
        }
    }

    /// Whether nobody is being served.
    pub fn is_idle(&self) -> bool {
        self.sessions
            .iter()
            .flatten()
            .all(|session| session.connection.is_over() || session.connection.is_lingering())
    }

    /// The connections there are.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.sessions
            .iter()
            .flatten()
            .map(|session| &session.connection)
    }

    /// What has happened since the last call.
    pub fn drain_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }

    /// The packets' events since the last call, if they are logged.
    pub fn drain_events(&mut self, into: &mut Vec<Event>) {
        for session in self.sessions.iter_mut().flatten() {
            session.connection.drain_events(into);
        }
    }

    /// Datagrams that belonged to nobody or were not believed.
    pub fn ignored(&self) -> u64 {
        let rejected = |connection: &Connection| {
            let Rejected {
                forged, malformed, ..
            } = connection.rejected();
            forged + malformed
        };
        self.ignored + self.connections().map(rejected).sum::<u64>()
    }
}

/// Bytes of IP and UDP header on packets to `address`.
pub fn overhead(address: SocketAddr) -> usize {
    let mapped = match address.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    };
    if mapped { 28 } else { 48 }
}
