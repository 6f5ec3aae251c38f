//! The end that grants tests: addresses proven without state, limits, many connections.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use rand::Rng;
use rand_chacha::ChaCha20Rng;
use verus_core::{Bytes, Duration, Ecn, Rate, Time};
use verus_senders::Scheme;

use super::connection::{
    self, Batch, CHALLENGE_BYTES, Connection, POLICE_SAVES, Rejected, Role, SENDING_SAVES, Terms,
};
use super::flow::{Algorithms, Event, Outgoing};
use super::limits::{Bucket, Limits, Use};
use super::seal::{Key, Keys, Secret, Tokens};
use super::wire::{Accept, Ending, Hello, Kind, MIN_HELLO_BYTES, Packet, Reason, Request, Retry};
use verus_net::Network;

/// Answers to strangers that may wait to be sent; more are not answered.
const MOST_REPLIES: usize = 256;
/// Most tests granted to clients that have not sent a packet since; only their request is kept.
/// When there are this many, a new one replaces the oldest. When one address has
/// [`MOST_OFFERS_OF_ONE`], a new one replaces the oldest of that address.
const MOST_OFFERS: usize = 1024;
const MOST_OFFERS_OF_ONE: usize = 64;
/// Packets that all tests together may have in flight: 64 MiB of memory; for timeouts, see
/// [`connection::MOST_IN_FLIGHT`].
const MOST_IN_FLIGHT: u64 = 1 << 20;
/// Number of refusals in a row that are reported one by one. After that, one a second is, with
/// their number.
const REFUSALS_TOLD: u32 = 10;
const REFUSALS_EVERY: Duration = Duration::from_secs(1);
/// A test's share of the total rate before the next one's turn: two Ethernet packets, or one packet
/// of any size.
const TURN: Bytes = Bytes::new(3000);
/// The rate of all is given out as often, unless more of it than a packet of any size comes together sooner.
const ROUND: Duration = Duration::from_millis(10);

/// Most senders whose ended flows are counted by name; a library may know any number of them.
const MOST_SENDERS: usize = 64;

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The pre-shared secret, if clients must have one.
    pub secret: Option<Secret>,
    /// Limits on the tests granted.
    pub limits: Limits,
    /// Whether to keep an event for each packet: for tests.
    pub log: bool,
}

/// Turns a request's words into algorithms.
pub trait Library {
    /// The algorithms of `scheme`.
    ///
    /// # Errors
    /// Why `scheme` is invalid, as text for the client.
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

/// A message from a server to its operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A test begins.
    Began {
        /// The client.
        client: SocketAddr,
        /// Its request.
        request: Request,
    },
    /// A test was refused.
    Refused {
        /// The client.
        client: SocketAddr,
        /// Why.
        text: String,
        /// Number of refusals since the last one reported.
        untold: u64,
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
        /// How it ended, as text.
        how: String,
        /// Bytes of data received, copies not counted.
        received: u64,
        /// Bytes acknowledged by the client.
        acknowledged: u64,
    },
}

/// Counts of the flows that a server has sent with one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Flows that began.
    pub flows: u64,
    /// Bytes that were acknowledged.
    pub acknowledged: Bytes,
    /// Packets that were sent, retransmissions included.
    pub packets: u64,
    /// Packets that were taken for lost.
    pub lost: u64,
}

impl Sent {
    fn add(&mut self, flow: &Outgoing) {
        self.flows += 1;
        self.acknowledged += flow.meter().delivered();
        self.packets += flow.sender().counters().sent;
        self.lost += flow.sender().counters().lost;
    }
}

/// How far a client is.
#[derive(Debug)]
enum Stage {
    /// It was granted a test, and has sent nothing since.
    Offered {
        request: Request,
        keys: Keys,
        expires: Time,
    },
    /// It has sent a packet with the connection's key.
    Open(Box<Connection>),
}

#[derive(Debug)]
struct Session {
    id: u64,
    stage: Stage,
    client: SocketAddr,
    local: Option<IpAddr>,
    /// The network whose share of the server it takes.
    network: Network,
    /// The bare name of its sender.
    sender: String,
    nonce: [u8; 16],
    accept: [u8; 16],
    /// How long no data is sent at first, ms: the wire format bounds it.
    quiet_millis: u16,
    owes_accept: bool,
    /// When its timer is in the heap, to know stale entries.
    armed: Time,
    queued: bool,
    /// Whether it waits for a share of the total rate, and the start tag of its next packets in
    /// Start-time Fair Queueing (Goyal, Vin and Cheng, SIGCOMM 1996), bytes.
    waits: bool,
    begins: u64,
    /// Its use of the server.
    takes: Use,
    /// Of the server's packets in flight, how many are its.
    in_flight: u64,
}

impl Session {
    fn connection(&self) -> Option<&Connection> {
        match &self.stage {
            Stage::Open(connection) => Some(connection),
            Stage::Offered { .. } => None,
        }
    }

    fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.stage {
            Stage::Open(connection) => Some(connection),
            Stage::Offered { .. } => None,
        }
    }
}

/// An answer to a stranger.
#[derive(Debug)]
struct Reply {
    to: SocketAddr,
    from: Option<IpAddr>,
    bytes: Vec<u8>,
}

/// Reports refusals, but not each one in a flood.
#[derive(Debug)]
struct Refusals {
    left: u32,
    since: Time,
    untold: u64,
}

impl Refusals {
    /// Returns the number of unreported refusals before this one, if the caller should report this
    /// one.
    fn note(&mut self, now: Time) -> Option<u64> {
        let seconds = now.since(self.since).as_nanos() / REFUSALS_EVERY.as_nanos();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(REFUSALS_TOLD);
            self.since = now;
        }
        if self.left == 0 {
            self.untold += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.untold))
    }
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
    /// Sessions that were only granted, the oldest first: place and id.
    offers: VecDeque<(usize, u64)>,
    /// Use by all open tests, and by those of each address.
    all: Use,
    by_network: HashMap<Network, Use>,
    in_flight: u64,
    refusals: Refusals,
    /// The session whose packets were polled last.
    polled: Option<usize>,
    replies: Vec<Reply>,
    /// Sessions with something to send, perhaps.
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Time, usize)>>,
    total: Bucket,
    total_in: Bucket,
    /// Sessions that may have data to send, by where their next packets start, with their ids. Not used without a rate of all.
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
    /// Where the packets that were granted last started, bytes.
    granted_to: u64,
    /// When a part of the total rate is available for those who wait.
    round: Option<Time>,
    notices: Vec<Notice>,
    /// Counts of ended flows, by the bare name of their sender.
    ended: BTreeMap<String, Sent>,
    ignored: u64,
}

impl<L: Library> Server<L> {
    /// A server without clients. `entropy` must be random.
    pub fn new(config: ServerConfig, library: L, entropy: [u8; 32], now: Time) -> Self {
        let mut random: ChaCha20Rng = rand::SeedableRng::from_seed(entropy);
        let mut key = || {
            let mut bytes = [0; 32];
            random.fill_bytes(&mut bytes);
            Key::random(bytes)
        };
        let (tokens, secret) = (Tokens::new(key()), key());
        Server {
            handshake: Key::handshake(config.secret.as_ref()),
            secret,
            tokens,
            random,
            sessions: Vec::new(),
            by_nonce: HashMap::new(),
            offers: VecDeque::new(),
            all: Use::default(),
            by_network: HashMap::new(),
            in_flight: 0,
            refusals: Refusals {
                left: REFUSALS_TOLD,
                since: now,
                untold: 0,
            },
            polled: None,
            replies: Vec::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            total: Bucket::empty(config.limits.rate, SENDING_SAVES, now),
            total_in: Bucket::new(config.limits.rate, POLICE_SAVES, now),
            waiting: BinaryHeap::new(),
            granted_to: 0,
            round: None,
            notices: Vec::new(),
            ended: BTreeMap::new(),
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
        self.handle_with(now, arrival, client, local, Ecn::NotEct, datagram);
    }

    /// The same of a datagram with this code point.
    pub fn handle_with(
        &mut self,
        now: Time,
        arrival: Time,
        client: SocketAddr,
        local: Option<IpAddr>,
        ecn: Ecn,
        datagram: &[u8],
    ) {
        // Nothing can be sent to port 0, so a packet from it has a false address.
        let Some(packet) = Packet::parse(datagram).ok().filter(|_| client.port() != 0) else {
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
        if session.id != packet.connection {
            self.ignored += 1;
            return;
        }
        if let Stage::Offered { keys, .. } = &session.stage {
            if !keys.client.opens(&packet) {
                self.ignored += 1;
                return;
            }
            self.open(now, index);
        }
        let Some(Some(session)) = self.sessions.get_mut(index) else {
            return;
        };
        let Stage::Open(connection) = &mut session.stage else {
            return;
        };
        let size = Bytes::new((datagram.len() + overhead(client)) as u64);
        let shared = &mut self.total_in;
        if !connection.handle(now, arrival, size, ecn, &packet, shared) {
            return;
        }
        if client != session.client {
            if connection.proves(client, &packet) {
                self.notices.push(Notice::Moved {
                    from: session.client,
                    to: client,
                });
                session.client = client;
                session.local = local;
            } else if datagram.len() >= CHALLENGE_BYTES {
                let mut nonce = [0; 16];
                self.random.fill_bytes(&mut nonce);
                connection.on_new_address(now, client, nonce);
            }
        }
        self.count_in_flight(index);
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
            let key = self.handshake.clone();
            self.reply(client, local, &key, |buffer| {
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
                && (session.client == client || session.connection().is_none())
            {
                // A client may move before it has received the accept; the address is proven.
                (session.client, session.local) = (client, local);
                if session.connection().is_none() {
                    session.network = Network::of(client.ip());
                }
                session.owes_accept = true;
                self.enqueue(index);
            }
            return;
        }
        match self.grant(&hello.request, Network::of(client.ip())) {
            Ok(_) => self.offer(now, client, local, &hello),
            Err((reason, text)) => {
                let key = self.handshake.clone();
                self.reply(client, local, &key, |buffer| {
                    Ending {
                        nonce: hello.nonce,
                        reason,
                        text: &text,
                    }
                    .encode(Kind::Refuse, 0, buffer)
                });
                self.note_refusal(now, client, text);
            }
        }
    }

    fn note_refusal(&mut self, now: Time, client: SocketAddr, text: String) {
        if let Some(untold) = self.refusals.note(now) {
            self.notices.push(Notice::Refused {
                client,
                text,
                untold,
            });
        }
    }

    /// The algorithms for `request`, or why it is refused.
    fn grant(
        &self,
        request: &Request,
        network: Network,
    ) -> Result<Box<dyn Algorithms>, (Reason, String)> {
        let limits = &self.config.limits;
        let network_use = self.by_network.get(&network).copied().unwrap_or_default();
        if let Some(refusal) = limits.refusal(request, self.all, network_use) {
            return Err(refusal);
        }
        // Of an upload this end runs only the receiver half, and a model has none: its file may be
        // anywhere. One that would have to be opened here is refused.
        let elsewhere = request.download_flows == 0 && Scheme::names_file(&request.scheme);
        let scheme = if elsewhere {
            "newreno"
        } else {
            &request.scheme
        };
        let algorithms = self
            .library
            .algorithms(scheme)
            .map_err(|text| (Reason::BadRequest, text))?;
        if let Some(rate) = algorithms.fixed_rate()
            && let Some(refusal) = limits.refusal_of_rate(rate.as_bps(), request.download_flows)
        {
            return Err(refusal);
        }
        // A client with the key is no stranger.
        if self.config.secret.is_none()
            && let Some(cost) = algorithms.extra_cost(request.download_flows > 0)
        {
            let text = format!("{cost}, and this server does that only for clients with a key");
            return Err((Reason::Limit, text));
        }
        Ok(algorithms)
    }

    /// Grants a test to a client that has proven its address. The test begins with the client's
    /// first packet.
    fn offer(&mut self, now: Time, client: SocketAddr, local: Option<IpAddr>, hello: &Hello<'_>) {
        let network = Network::of(client.ip());
        self.make_room(network);
        let free = self.sessions.iter().position(Option::is_none);
        let index = free.unwrap_or(self.sessions.len());
        if index > 0xffff {
            return; // as many tests as an id can name
        }
        if free.is_none() {
            self.sessions.push(None);
        }
        let id = self.random.next_u64() & !0xffff | index as u64;
        let mut accept = [0; 16];
        self.random.fill_bytes(&mut accept);
        let request = &hello.request;
        self.sessions[index] = Some(Session {
            id,
            stage: Stage::Offered {
                request: request.clone(),
                keys: Keys::new(&self.handshake, &hello.nonce, &accept),
                // An outage may begin with the answer to its hello; until the client has answered, it takes no place.
                expires: now + self.config.limits.silence,
            },
            client,
            local,
            network,
            sender: request
                .scheme
                .split(':')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            nonce: hello.nonce,
            accept,
            quiet_millis: hello.quiet_millis,
            owes_accept: true,
            armed: Time::MAX,
            queued: false,
            waits: false,
            begins: 0,
            takes: Use {
                tests: 1,
                flows: usize::from(request.upload_flows) + usize::from(request.download_flows),
            },
            in_flight: 0,
        });
        self.by_nonce.insert(hello.nonce, index);
        self.offers.push_back((index, id));
        self.enqueue(index);
    }

    /// Whether `offer` still is one.
    fn is_offer(&self, &(index, id): &(usize, u64)) -> bool {
        let session = self.sessions[index].as_ref();
        session.is_some_and(|session| session.id == id && session.connection().is_none())
    }

    /// Forgets the oldest client that has sent nothing, if there are too many, of `network` or in
    /// all.
    fn make_room(&mut self, network: Network) {
        let mut offers = std::mem::take(&mut self.offers);
        offers.retain(|offer| self.is_offer(offer));
        let of_network = |&(index, _): &(usize, u64)| {
            self.sessions[index]
                .as_ref()
                .is_some_and(|session| session.network == network)
        };
        let of_one = offers.iter().filter(|offer| of_network(offer)).count();
        let oldest = if of_one >= MOST_OFFERS_OF_ONE {
            offers.iter().position(of_network)
        } else {
            (offers.len() >= MOST_OFFERS).then_some(0)
        };
        let evicted = oldest.and_then(|at| offers.remove(at));
        self.offers = offers;
        if let Some((index, _)) = evicted {
            self.forget(index);
        }
    }

    /// Begins the test of a client that was granted one and has sent a packet, unless its place was
    /// taken meanwhile.
    fn open(&mut self, now: Time, index: usize) {
        let Some(session) = &self.sessions[index] else {
            return;
        };
        let Stage::Offered { request, keys, .. } = &session.stage else {
            return;
        };
        let (client, local, id) = (session.client, session.local, session.id);
        let algorithms = match self.grant(request, session.network) {
            Ok(algorithms) => algorithms,
            Err((reason, text)) => {
                let key = keys.server.clone();
                let ending = Ending {
                    nonce: [0; 16],
                    reason,
                    text: &text,
                };
                self.reply(client, local, &key, |buffer| {
                    ending.encode(Kind::Close, id, buffer)
                });
                self.note_refusal(now, client, text);
                return;
            }
        };
        let limits = &self.config.limits;
        // This limits the time of a test with a size and no duration.
        let mut granted = request.clone();
        if granted.duration_nanos == 0 {
            granted.duration_nanos = limits.duration.as_nanos();
        }
        let terms = Terms {
            role: Role::Server,
            id,
            keys: keys.clone(),
            request: &granted,
            silence: limits.silence,
            rate: limits.rate_per_client,
            accepted: limits.rate_per_client,
            secret: &self.secret,
            quiet: Duration::from_millis(u64::from(session.quiet_millis)),
            echoes: false,
            log: self.config.log,
        };
        let connection = Connection::new(&terms, &*algorithms, now);
        self.notices.push(Notice::Began {
            client,
            request: request.clone(),
        });
        let (network, takes) = (session.network, session.takes);
        self.all += takes;
        *self.by_network.entry(network).or_default() += takes;
        if let Some(session) = &mut self.sessions[index] {
            session.stage = Stage::Open(Box::new(connection));
        }
    }

    /// Notes how many packets the session has in flight now.
    fn count_in_flight(&mut self, index: usize) {
        if let Some(session) = &mut self.sessions[index] {
            let now = session.connection().map_or(0, Connection::in_flight);
            self.in_flight = self.in_flight + now - session.in_flight;
            session.in_flight = now;
        }
    }

    /// The last packets polled have `payload` bytes, which do not fit the path to their client.
    pub fn on_too_large(&mut self, now: Time, payload: usize) {
        let Some(index) = self.polled else {
            return;
        };
        if let Some(session) = &mut self.sessions[index] {
            let bytes = payload + overhead(session.client);
            if let Some(connection) = session.connection_mut() {
                connection.on_too_large(now, bytes);
                self.enqueue(index);
            }
        }
    }

    /// Queues an answer to a stranger, sealed with `key`.
    fn reply(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        key: &Key,
        encode: impl FnOnce(&mut [u8]) -> usize,
    ) {
        if self.replies.len() == MOST_REPLIES {
            self.ignored += 1;
            return;
        }
        let bytes = key.sealed(0, encode);
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
        self.round = self.round.filter(|&at| at > now);
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
            match &mut session.stage {
                Stage::Offered { expires, .. } if *expires <= now => {
                    self.forget(index);
                    continue;
                }
                Stage::Offered { .. } => {}
                Stage::Open(connection) => connection.on_timer(now),
            }
            self.count_in_flight(index);
            self.enqueue(index);
        }
    }

    /// When to call [`on_timer`](Self::on_timer) and then
    /// [`poll_transmit`](Self::poll_transmit) next, if at all.
    pub fn next_timer(&self) -> Option<Time> {
        let timer = self.timers.peek().map(|&Reverse((at, _))| at);
        timer.into_iter().chain(self.round).min()
    }

    /// Fills `batch` with the next packets for one client; returns whether there are any.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        self.polled = None;
        if let Some(reply) = self.replies.pop() {
            batch.control()[..reply.bytes.len()].copy_from_slice(&reply.bytes);
            batch.set_len(reply.bytes.len());
            (batch.to, batch.from) = (reply.to, reply.from);
            return true;
        }
        while let Some(index) = self.ready.pop_front() {
            if self.poll_session(now, index, batch) {
                self.polled = Some(index);
                self.count_in_flight(index);
                // There may be more; the others come first.
                self.ready.push_back(index);
                return true;
            }
        }
        self.poll_waiting(now, batch)
    }

    /// Data of the session that has had least of the rate of all, if it is its turn now.
    fn poll_waiting(&mut self, now: Time, batch: &mut Batch) -> bool {
        self.round = None;
        while let Some(&Reverse((begins, id))) = self.waiting.peek() {
            let index = (id & 0xffff) as usize;
            let session = self.sessions[index].as_mut();
            let Some(session) = session.filter(|session| session.id == id) else {
                self.waiting.pop(); // gone
                continue;
            };
            let overhead = overhead(session.client);
            let to = (session.client, session.local);
            let Some(connection) = session.connection_mut() else {
                self.waiting.pop();
                continue;
            };
            let size = connection.packet_size();
            if let Some(granted) = self.total.wait(now, size) {
                let many = self.total.wait(now, Bytes::new(1 << 16));
                self.round = Some(granted.max(many.unwrap_or(now).min(now + ROUND)));
                return false;
            }
            self.waiting.pop();
            self.granted_to = begins;
            let turn = (TURN.get() / size.get()).max(1);
            let room = MOST_IN_FLIGHT.saturating_sub(self.in_flight).min(turn);
            (batch.to, batch.from) = to;
            if connection.poll_transmit(now, overhead, batch, &mut self.total, room) {
                session.begins = begins + batch.contents().len() as u64;
                self.waiting.push(Reverse((session.begins, id)));
                self.polled = Some(index);
                self.count_in_flight(index);
                return true;
            }
            session.waits = false;
            self.rearm(now, index);
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
                limit_bps: self.config.limits.rate_of_one().map(Rate::as_bps),
                quiet_millis: session.quiet_millis,
            };
            let buffer = batch.control();
            let covered = accept.encode(session.id, buffer);
            let len = self.handshake.seal(buffer, covered);
            batch.set_len(len);
            return true;
        }
        let connection = match &mut session.stage {
            Stage::Open(connection) => connection,
            Stage::Offered { expires, .. } => {
                session.queued = false;
                if *expires < session.armed {
                    session.armed = *expires;
                    let expires = *expires;
                    self.arm(expires, index);
                }
                return false;
            }
        };
        if let Some((to, len)) = connection.poll_challenge(batch.control()) {
            batch.set_len(len);
            batch.to = to;
            batch.from = None;
            return true;
        }
        let overhead = overhead(session.client);
        // Where all have a rate together, data are sent in turn.
        let shares = self.config.limits.rate.is_some() && !connection.outgoing().is_empty();
        let room = match shares {
            true => 0,
            false => MOST_IN_FLIGHT.saturating_sub(self.in_flight),
        };
        if connection.poll_transmit(now, overhead, batch, &mut self.total, room) {
            return true;
        }
        session.queued = false;
        if connection.is_over() {
            self.forget(index);
            return false;
        }
        if shares && !session.waits {
            session.waits = true;
            session.begins = session.begins.max(self.granted_to);
            self.waiting.push(Reverse((session.begins, session.id)));
        }
        self.rearm(now, index);
        false
    }

    /// Sets the timer of a session that has nothing to send now.
    fn rearm(&mut self, now: Time, index: usize) {
        let Some(session) = &mut self.sessions[index] else {
            return;
        };
        let shared = if self.in_flight >= MOST_IN_FLIGHT {
            Some(now + connection::NO_ROOM)
        } else if session.waits {
            // Its turn comes by itself.
            let many = self.total.wait(now, Bytes::new(1 << 16));
            many.map(|at| at.min(now + super::flow::BIN))
        } else {
            None
        };
        let next = session.connection().and_then(|open| open.next_timer(now));
        if let Some(at) = next {
            let at = shared.map_or(at, |shared| at.max(shared));
            // One that is armed too early fires for nothing, and is cheaper than one more entry.
            if at < session.armed {
                session.armed = at;
                self.arm(at, index);
            }
        }
    }

    /// Sets a timer for a session, which records it as armed. When the heap would exceed twice the
    /// number of sessions, it drops the timers of closed sessions, so that repeated requests cannot
    /// fill the memory.
    fn arm(&mut self, at: Time, index: usize) {
        if self.timers.len() > 2 * self.sessions.len() + 64 {
            let sessions = &self.sessions;
            self.timers.retain(|&Reverse((at, index))| {
                (sessions[index].as_ref()).is_some_and(|session| session.armed == at)
            });
        }
        self.timers.push(Reverse((at, index)));
    }

    fn forget(&mut self, index: usize) {
        let Some(session) = self.sessions[index].take() else {
            return;
        };
        self.by_nonce.remove(&session.nonce);
        self.in_flight -= session.in_flight;
        let Some(connection) = session.connection() else {
            return; // it never began
        };
        if !connection.outgoing().is_empty()
            && (self.ended.len() < MOST_SENDERS || self.ended.contains_key(&session.sender))
        {
            let sent = self.ended.entry(session.sender.clone()).or_default();
            connection.outgoing().iter().for_each(|flow| sent.add(flow));
        }
        self.all -= session.takes;
        if let Entry::Occupied(mut own) = self.by_network.entry(session.network) {
            *own.get_mut() -= session.takes;
            if own.get().tests == 0 {
                own.remove();
            }
        }
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

    /// Ends all tests; the caller goes on polling until [`is_idle`](Self::is_idle) or
    /// its patience ends.
    pub fn shut_down(&mut self, now: Time) {
        for index in 0..self.sessions.len() {
            let session = self.sessions[index].as_mut();
            if let Some(connection) = session.and_then(Session::connection_mut) {
                connection.close(now, Reason::ShuttingDown, "the server was stopped");
                self.enqueue(index);
            }
        }
    }

    /// Forgets all tests, with a notice of each: for a server that stops at once.
    pub fn forget_all(&mut self) {
        for index in 0..self.sessions.len() {
            self.forget(index);
        }
    }

    /// Whether no test is running.
    pub fn is_idle(&self) -> bool {
        self.connections()
            .all(|connection| connection.is_over() || connection.is_lingering())
    }

    /// Number of clients that were granted a test and have sent nothing since.
    pub fn offers(&self) -> usize {
        let sessions = self.sessions.iter().flatten();
        sessions
            .filter(|session| session.connection().is_none())
            .count()
    }

    /// The connections there are.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.sessions
            .iter()
            .flatten()
            .filter_map(Session::connection)
    }

    /// The flows that are sent now, with the bare name of their sender.
    pub fn sending(&self) -> impl Iterator<Item = (&str, &Outgoing)> {
        let sessions = self.sessions.iter().flatten();
        sessions.flat_map(|session| {
            let flows = session
                .connection()
                .into_iter()
                .flat_map(Connection::outgoing);
            flows.map(|flow| (session.sender.as_str(), flow))
        })
    }

    /// Counts of all flows sent, ended ones included, by the bare name of their sender.
    pub fn sent(&self) -> BTreeMap<String, Sent> {
        let mut all = self.ended.clone();
        for (sender, flow) in self.sending() {
            all.entry(sender.to_owned()).or_default().add(flow);
        }
        all
    }

    /// Notices since the last call.
    pub fn drain_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }

    /// The packets' events since the last call, if they are logged.
    pub fn drain_events(&mut self, into: &mut Vec<Event>) {
        let sessions = self.sessions.iter_mut().flatten();
        for connection in sessions.filter_map(Session::connection_mut) {
            connection.drain_events(into);
        }
    }

    /// Datagrams of no known test, and those that failed a check.
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
