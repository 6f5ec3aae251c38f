//! The end that serves a folder.
//!
//! An unauthenticated client gets little: a handshake, one stream, ten seconds and 64 KiB to prove
//! that it knows the token. While many are connected, their addresses must be proven first (RFC
//! 9000 §8.1.2), so that a flood of forged first packets costs no state. The oldest of them makes
//! room for the next.
//!
//! The number of streams and the window of the connection bound the resources of an authenticated
//! client. It keeps them while it makes progress, or until another client needs its place
//! ([`places`](super::places)).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, Runtime, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use rustix::fs::fstat;
use rustls::crypto::ring::default_provider;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use verus_senders::Scheme;

use super::access::{Access, ClientName, Refreshed, Rights, Stranger, Visitor};
use super::account::{Direction, Outcome, Transfer};
use super::datagram_filter::DatagramFilter;
use super::exchange::{Delivered, off, supply, take};
use super::files::{Place, Source};
use super::folder::{Folder, Walk, WalkEntry};
use super::frames::{ALPN, Answer, Demand, FileInfo, Request};
use super::housekeeping::{OFTEN, Room};
use super::paths::RelativePath;
use super::places::{HeldPlace, Places, Pulse};
use super::refusal::{Reason, Refusal};
use super::secrets::Identity;
use super::traffic::Watch;
use super::wire::{Patience, Trouble, Wire, in_words};
use super::{
    Gauge, SILENCE, STRANGERS_WINDOW, STREAMS, WINDOW, channel_secret, code, random_seed,
    receive_share, run, share, transport,
};
use verus_net::Network;
use verus_quinn as quic;

/// How long a client may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of unauthenticated connections from which new ones must prove their address first.
const STRANGERS_TRUSTED: usize = 8;
/// Largest number of unauthenticated connections.
const STRANGERS: usize = 64;
/// First packets that may wait to be handled, and bytes of the packets that follow one.
const WAITING: usize = 256;
const WAITING_BYTES: u64 = 64 << 10;
/// Time without progress after which a client that made a request may lose its place to another
/// client.
const GRACE: Duration = Duration::from_secs(3);
/// How many lists a client is given at a time; each holds the names of the folders that it is in.
const LISTS: usize = 2;
/// Limit of reported events per second, for unauthenticated clients that were turned away. Also the
/// limit per network of requests that failed before any data moved: both cost the client nothing.
const MAX_REPORTED: u32 = 10;
/// Number of networks whose unreported failures are counted: more networks than have places.
const REMEMBERED: usize = 1024;
/// Limit of bytes of a failed request's path in a report: a peer may name any path.
const SHOWN: usize = 256;
/// Events that may wait to be read before clients have to wait, too.
const EVENTS: usize = 1024;
/// How often it checks whether a token was revoked: a client is gone within a second.
const LOOK: Duration = Duration::from_millis(500);
/// Reason for ending the connection of a client that was admitted before.
const REVOKED: &str = "its token was revoked, or its rights changed";
/// How long a server that stops waits until its clients have received its close.
const GOODBYE: Duration = Duration::from_millis(500);

/// The folder, the identity and the clients of a server.
#[derive(Debug)]
pub struct ServerConfig {
    /// The folder.
    pub folder: Folder,
    /// The key that clients know it by.
    pub identity: Identity,
    /// The clients that it admits.
    pub access: Access,
    /// Whether it refuses files.
    pub read_only: bool,
    /// The congestion controller of this end.
    pub scheme: Scheme,
    /// How many clients it serves at a time.
    pub max_clients: usize,
    /// Limits of its clients.
    pub limits: Limits,
}

/// Limits of a server's clients, apart from their number.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients of one network (an IPv4 address, or an IPv6 /64); none: half of all.
    pub clients_each: Option<usize>,
    /// Time without a request after which a client is disconnected.
    pub idle: Duration,
    /// Time without activity of the client after which its request is given up.
    pub silence: Duration,
    /// Limit of the bytes in the folder, upon which clients may add no further ones.
    pub bytes: Option<u64>,
    /// Unfinished files that were not written to for this long are removed; none: never.
    pub keep_parts: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients_each: None,
            idle: Duration::from_secs(30),
            silence: SILENCE,
            bytes: None,
            keep_parts: Some(Duration::from_secs(7 * 24 * 3600)),
        }
    }
}

/// An event of a server.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client has proven itself.
    Connected {
        /// Its address.
        client: SocketAddr,
        /// Its name.
        name: Option<ClientName>,
        /// Its rights.
        rights: Rights,
    },
    /// A client was turned away, or an unknown one gave up.
    TurnedAway {
        /// Its address.
        client: SocketAddr,
        /// Why.
        why: String,
    },
    /// A file went to a client, came from one, or did not.
    Transfer(Transfer),
    /// A requested list or folder could not be provided.
    Failed {
        /// Its address.
        client: SocketAddr,
        /// Its name.
        name: Option<ClientName>,
        /// The path of the request.
        path: String,
        /// Why not.
        why: String,
    },
    /// A client has left.
    Left {
        /// Its address.
        client: SocketAddr,
        /// Its name.
        name: Option<ClientName>,
        /// Why.
        why: String,
    },
    /// The clients' tokens cannot be read any more; the known ones stay in force.
    TokensUnreadable {
        /// Why.
        why: String,
    },
}

/// A running server. Dropped, it stops.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    events: mpsc::Receiver<Event>,
    watch: Watch,
}

#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    endpoint: Endpoint,
    filter: Arc<DatagramFilter>,
    events: mpsc::Sender<Event>,
    strangers: Arc<Places>,
    clients: Arc<Places>,
    /// Unacknowledged bytes allowed to each client.
    sends: Arc<AtomicU64>,
    room: Room,
    watch: Watch,
    turned_away: Mutex<ReportCount>,
    failures: Mutex<BTreeMap<Network, ReportCount>>,
    /// Notifies when some tokens were added, changed or revoked.
    access_changed: watch::Sender<()>,
    /// The writer of each file: device and inode of its folder, and its name. A newer one takes
    /// over.
    writers: Mutex<BTreeMap<FileKey, Arc<Notify>>>,
}

/// Reported and unreported events of a kind in this second.
#[derive(Debug)]
struct ReportCount {
    second: Instant,
    reported: u32,
    unreported: u64,
}

impl ReportCount {
    fn new() -> Self {
        ReportCount {
            second: Instant::now(),
            reported: 0,
            unreported: 0,
        }
    }

    /// The number of unreported events before this one, if this one may be reported.
    fn may(&mut self) -> Option<u64> {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.second = Instant::now();
            self.reported = 0;
        }
        if self.reported >= MAX_REPORTED {
            self.unreported += 1;
            return None;
        }
        self.reported += 1;
        Some(std::mem::take(&mut self.unreported))
    }
}

/// `why`, with the number of unreported events.
fn with_unreported(why: String, unreported: u64) -> String {
    match unreported {
        0 => why,
        unreported => format!("{why} (and {unreported} others before)"),
    }
}

/// Keys for values that a server must recognise after a restart.
struct Hmac([u8; 32]);

impl HmacKey for Hmac {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        signature.copy_from_slice(blake3::keyed_hash(&self.0, data).as_bytes());
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        // `blake3::Hash` is compared in constant time.
        if blake3::keyed_hash(&self.0, data) == *signature {
            Ok(())
        } else {
            Err(CryptoError)
        }
    }
}

fn tls(identity: &Identity) -> Result<QuicServerConfig, String> {
    let (certificate, key) = identity.parts();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|error| format!("the server's key cannot be used: {error}"))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    // A client that was here before proves itself again; nothing is kept for it.
    tls.send_tls13_tickets = 0;
    QuicServerConfig::try_from(tls).map_err(|error| error.to_string())
}

impl Server {
    /// Begins to serve on `socket`, within a tokio runtime.
    ///
    /// # Errors
    /// If the key cannot be used, or the socket.
    pub fn start(config: ServerConfig, socket: std::net::UdpSocket) -> io::Result<Self> {
        let tls = tls(&config.identity).map_err(io::Error::other)?;
        let mut quic = quinn::ServerConfig::with_crypto(Arc::new(tls));
        let sends = Arc::new(AtomicU64::new(u64::from(WINDOW)));
        let transport = transport(&config.scheme, STRANGERS_WINDOW, &sends, 1, random_seed());
        quic.transport_config(Arc::new(transport))
            .max_incoming(WAITING)
            .incoming_buffer_size(WAITING_BYTES)
            .incoming_buffer_size_total(WAITING as u64 * WAITING_BYTES);
        // Clients of a server that was killed learn it from the next one at the same address.
        let reset = config.identity.derive("verus transfer 1: stateless reset");
        let mut endpoint = EndpointConfig::new(Arc::new(Hmac(reset)));
        // quinn answers only ids that its generator could have made: the next server's must know them.
        let ids = config.identity.derive("verus transfer 1: connection ids");
        let ids = u64::from_le_bytes(*ids.first_chunk().expect("32 bytes"));
        endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
        let runtime = Arc::new(quinn::TokioRuntime);
        let socket = quic::socket_of(runtime.wrap_udp_socket(socket)?, config.scheme.config());
        let filter = DatagramFilter::new(socket);
        let socket = Arc::clone(&filter);
        let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(quic), socket, runtime)?;
        let (sender, events) = mpsc::channel(EVENTS);
        let all = config.max_clients;
        let each = config.limits.clients_each.unwrap_or(all.div_ceil(2));
        let room = Room::new(config.limits.bytes);
        if config.limits.bytes.is_some() {
            room.look(&config.folder, parts_kept(&config));
        }
        let watch = Watch::default();
        let shared = Arc::new(Shared {
            config,
            endpoint: endpoint.clone(),
            filter,
            events: sender,
            strangers: Places::new(STRANGERS, STRANGERS, Duration::ZERO),
            clients: Places::new(all, each, GRACE),
            sends,
            room,
            watch: watch.clone(),
            turned_away: Mutex::new(ReportCount::new()),
            failures: Mutex::default(),
            access_changed: watch::Sender::new(()),
            writers: Mutex::new(BTreeMap::new()),
        });
        tokio::spawn(accept(shared));
        Ok(Server {
            endpoint,
            events,
            watch,
        })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// A reader of its traffic.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// The next event. Clients wait if events are not taken for long.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The next event that is already there, if any.
    pub fn try_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Stops, and notifies clients. Unfinished uploads stay for the next attempt.
    pub async fn stop(&mut self) {
        self.endpoint
            .close(VarInt::from_u32(code::STOPPING), b"the server stops");
        let _ = timeout(GOODBYE, self.endpoint.wait_idle()).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.endpoint
            .close(VarInt::from_u32(code::STOPPING), b"the server stops");
    }
}

/// How long unfinished files stay. A server that takes no files removes none.
fn parts_kept(config: &ServerConfig) -> Option<Duration> {
    config.limits.keep_parts.filter(|_| !config.read_only)
}

async fn accept(shared: Arc<Shared>) {
    // With a quota, the folder was scanned before the first client was admitted.
    let mut house = interval(OFTEN);
    if shared.config.limits.bytes.is_some() {
        house.reset();
    }
    let mut tokens = interval_at(Instant::now() + LOOK, LOOK);
    tokens.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let incoming = tokio::select! {
            incoming = shared.endpoint.accept() => match incoming {
                Some(incoming) => incoming,
                None => return,
            },
            // Tokens may be revoked while no client says hello.
            _ = tokens.tick() => {
                tokio::spawn(refresh(Arc::clone(&shared)));
                continue;
            }
            _ = house.tick() => {
                let (room, folder) = (shared.room.clone(), shared.config.folder.clone());
                let keep = parts_kept(&shared.config);
                spawn_blocking(move || room.look(&folder, keep));
                continue;
            }
        };
        if shared.strangers.taken() >= STRANGERS_TRUSTED && incoming.may_retry() {
            let _ = incoming.retry();
            continue;
        }
        let network = Network::of(incoming.remote_address().ip());
        // A stranger has nothing under way, so the oldest can always be spared.
        match shared.strangers.take(network) {
            Some(stranger) => {
                tokio::spawn(serve(Arc::clone(&shared), incoming, stranger));
            }
            None => incoming.refuse(),
        }
    }
}

/// Reads the list of tokens again if it has changed.
async fn refresh(shared: Arc<Shared>) {
    let looking = Arc::clone(&shared);
    match off(move || looking.config.access.refresh()).await {
        Ok(Refreshed::Same) | Err(_) => {}
        Ok(Refreshed::Changed) => {
            shared.access_changed.send_replace(());
        }
        Ok(Refreshed::Trouble(error)) => {
            let why = error.to_string();
            shared.tell(Event::TokensUnreadable { why }).await;
        }
    }
}

async fn serve(shared: Arc<Shared>, incoming: Incoming, stranger: HeldPlace) {
    let address = incoming.remote_address();
    // Subscribed before the client is admitted, so that no change is missed.
    let access_changed = shared.access_changed.subscribe();
    let network = Network::of(address.ip());
    let mut connection = None;
    let mut proven = None;
    let greeted = async {
        let arrived = incoming
            .await
            .map_err(|error| Trouble::Lost(in_words(&error)))?;
        proven = Some(shared.filter.proven(address));
        greet(&shared, network, connection.insert(arrived)).await
    };
    let greeted = tokio::select! {
        greeted = timeout(PATIENCE, greeted) => {
            greeted.unwrap_or_else(|_| Err(turned_away("it did not say who it is in time")))
        }
        () = stranger.evicted() => {
            Err(turned_away("it made room for others before it said who it is"))
        }
    };
    drop(stranger);
    let (connection, (client, visitor)) = match (connection, greeted) {
        (Some(connection), Ok(client)) => (connection, client),
        (connection, greeted) => {
            if let Some(connection) = connection {
                connection.close(VarInt::from_u32(code::BUSY), b"");
            }
            if let Err(trouble) = greeted {
                shared.tell_turned_away(address, trouble.to_string());
            }
            return;
        }
    };
    let visitor = Arc::new(visitor);
    let name = visitor.name.clone();
    let connected = Event::Connected {
        client: address,
        name: name.clone(),
        rights: visitor.rights,
    };
    shared.tell(connected).await;
    let driver = quic::drive(&connection);
    let watching = shared.watch.add(&connection);
    let why = attend(&shared, &connection, &client, &visitor, access_changed).await;
    drop((watching, driver, client, proven));
    let client = connection.remote_address();
    shared.tell(Event::Left { client, name, why }).await;
}

fn turned_away(why: &str) -> Trouble {
    Trouble::Here(Refusal::new(Reason::Silent, why))
}

/// Answers a client's requests until it leaves or must leave. Returns the reason.
async fn attend(
    shared: &Arc<Shared>,
    connection: &Connection,
    client: &HeldPlace,
    visitor: &Arc<Visitor>,
    mut access_changed: watch::Receiver<()>,
) -> String {
    let lists = Arc::new(Semaphore::new(LISTS));
    let mut crowd = shared.clients.crowd();
    crowd.mark_changed();
    let close = |number: u32, why: &str| {
        connection.close(VarInt::from_u32(number), why.as_bytes());
        why.to_owned()
    };
    let error = loop {
        tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok(streams) => {
                    let under_way = client.pulse().open();
                    let silence = shared.config.limits.silence;
                    let patience = Patience::new(silence, Arc::clone(client.pulse()));
                    let wire = Wire::new(streams, patience);
                    let shared = Arc::clone(shared);
                    let connection = connection.clone();
                    let visitor = Arc::clone(visitor);
                    let lists = Arc::clone(&lists);
                    tokio::spawn(async move {
                        answer(&shared, &connection, &visitor, &lists, wire).await;
                        drop(under_way);
                    });
                }
                Err(error) => break error,
            },
            Ok(()) = access_changed.changed() => {
                if !shared.config.access.still_admits(visitor) {
                    return close(code::REVOKED, REVOKED);
                }
            }
            Ok(()) = crowd.changed() => {
                let clients = *crowd.borrow_and_update();
                let window = share(clients);
                shared.sends.store(u64::from(window), Ordering::Relaxed);
                connection.set_send_window(u64::from(window));
                connection.set_receive_window(VarInt::from_u32(receive_share(clients)));
            }
            () = client.evicted() => {
                return close(code::BUSY, "it got nowhere, and another wanted its place");
            }
            () = client.pulse().idle_for(shared.config.limits.idle) => {
                return close(code::IDLE, "it asked for nothing for long");
            }
        }
    };
    match &error {
        quinn::ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(code::DONE) =>
        {
            "done".to_owned()
        }
        quinn::ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(code::INTERRUPTED) =>
        {
            "stopped by its user".to_owned()
        }
        error => in_words(error),
    }
}

/// Both ends prove that they know a token.
async fn greet(
    shared: &Arc<Shared>,
    network: Network,
    connection: &Connection,
) -> Result<(HeldPlace, Visitor), Trouble> {
    let turn_away = |number: u32, why: &str| {
        connection.close(VarInt::from_u32(number), why.as_bytes());
        Err(Trouble::Here(Refusal::new(Reason::Protocol, why)))
    };
    // The caller has a shorter limit.
    let patience = Patience::new(PATIENCE, Arc::new(Pulse::new()));
    let mut wire = Wire::new(connection.accept_bi().await?, patience);
    let proof = match wire.receive().await {
        Ok(Request::Hello { proof }) => proof,
        Ok(_) => return turn_away(code::PROTOCOL, "it did not say who it is first"),
        Err(trouble @ Trouble::Protocol(_)) => {
            connection.close(VarInt::from_u32(code::PROTOCOL), b"not a greeting");
            return Err(trouble);
        }
        Err(trouble) => return Err(trouble),
    };
    let channel = channel_secret(connection)?;
    // A token that was made a moment ago counts, and one that was revoked does not.
    refresh(Arc::clone(shared)).await;
    let visitor = match shared.config.access.admit(&channel, proof.as_ref()) {
        Ok(visitor) => visitor,
        Err(Stranger::WrongToken) => return turn_away(code::TOKEN, "it has the wrong token"),
        Err(Stranger::NoToken) => return turn_away(code::TOKEN, "it has no token"),
    };
    let Some(client) = shared.clients.take(network) else {
        return turn_away(code::BUSY, "there are as many clients as may be");
    };
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS));
    let welcome = Answer::Welcome {
        proof: visitor.answer(&channel),
        writable: visitor.rights.may_write() && !shared.config.read_only,
    };
    wire.send(&welcome).await?;
    wire.end();
    Ok((client, visitor))
}

/// Answers one request.
async fn answer(
    shared: &Shared,
    connection: &Connection,
    visitor: &Visitor,
    lists: &Semaphore,
    mut wire: Wire,
) {
    let request = match wire.receive().await {
        Ok(request) => request,
        Err(Trouble::Protocol(why)) => {
            connection.close(VarInt::from_u32(code::PROTOCOL), why.as_bytes());
            return;
        }
        Err(_) => return,
    };
    let under_way = UnderWay {
        shared,
        visitor,
        client: connection.remote_address(),
        gauge: Gauge::default(),
        began: Instant::now(),
    };
    let gauge = &under_way.gauge;
    let (event, result) = match request {
        Request::Hello { .. } => {
            connection.close(VarInt::from_u32(code::PROTOCOL), b"a second greeting");
            return;
        }
        Request::List { path } => {
            let Ok(_turn) = lists.acquire().await else {
                return;
            };
            let result = list(shared, visitor, &mut wire, &path).await;
            (under_way.failed(&path, &result), result)
        }
        Request::Get { path } => {
            let result = get(shared, visitor, &mut wire, &path, gauge).await;
            let event = under_way.transfer(&path, Direction::Sent, None, &result);
            (event, result.map(drop))
        }
        Request::Put {
            path,
            file,
            replace,
        } => {
            let result = put(shared, visitor, &mut wire, &path, file, replace, gauge).await;
            let event = under_way.transfer(&path, Direction::Received, Some(file.size), &result);
            (event, result.map(drop))
        }
        Request::MakeFolder { path } => {
            let result = make_folder(shared, visitor, &mut wire, &path).await;
            (under_way.failed(&path, &result), result)
        }
    };
    if let Some(event) = event {
        shared.tell(event).await;
    }
    match result {
        Err(Trouble::Protocol(why)) => {
            wire.finish().await;
            connection.close(VarInt::from_u32(code::PROTOCOL), why.as_bytes());
        }
        Err(trouble) if trouble.is_lost() => return wire.abandon(),
        Ok(()) | Err(_) => {}
    }
    wire.finish().await;
}

/// A request that is being answered, for the event that reports it.
struct UnderWay<'a> {
    shared: &'a Shared,
    visitor: &'a Visitor,
    client: SocketAddr,
    gauge: Gauge,
    began: Instant,
}

impl UnderWay<'_> {
    /// Why it failed: a client whose token was revoked loses its connection.
    fn why(&self, trouble: &Trouble) -> String {
        if trouble.is_lost() && !self.shared.config.access.still_admits(self.visitor) {
            REVOKED.to_owned()
        } else {
            trouble.to_string()
        }
    }

    /// The event of a completed or failed transfer. Without a result, `size` is the size known so
    /// far. Many requests of a client may fail at once, so only some failures are reported.
    fn transfer(
        &self,
        path: &[u8],
        direction: Direction,
        size: Option<u64>,
        result: &Result<Delivered, Trouble>,
    ) -> Option<Event> {
        let delivered = result.as_ref().ok();
        let moved = self.gauge.moved();
        let outcome = match result {
            Ok(Delivered { same: true, .. }) => Outcome::Same,
            Ok(_) => Outcome::Complete,
            Err(trouble) if moved > 0 => Outcome::Failed(self.why(trouble)),
            Err(trouble) => Outcome::Failed(self.shared.may_tell(self.client, self.why(trouble))?),
        };
        Some(Event::Transfer(Transfer {
            client: self.client,
            name: self.visitor.name.clone(),
            path: match outcome {
                Outcome::Failed(_) => shown(path),
                _ => whole(path),
            },
            direction,
            size: delivered.map(|delivered| delivered.size).or(size),
            moved,
            kept: delivered.map_or_else(|| self.gauge.kept(), |delivered| delivered.kept),
            took: self.began.elapsed(),
            outcome,
        }))
    }

    /// The event of a failed list or folder.
    fn failed(&self, path: &[u8], result: &Result<(), Trouble>) -> Option<Event> {
        let trouble = result.as_ref().err()?;
        let why = self.shared.may_tell(self.client, self.why(trouble))?;
        Some(Event::Failed {
            client: self.client,
            name: self.visitor.name.clone(),
            path: shown(path),
            why,
        })
    }
}

/// Checks that a client may read.
fn may_read(visitor: &Visitor) -> Result<(), Refusal> {
    if visitor.rights.may_read() {
        return Ok(());
    }
    let text = "this token may write and not read";
    Err(Refusal::new(Reason::Unreadable, text))
}

/// Checks that a client may write.
fn may_write(shared: &Shared, visitor: &Visitor) -> Result<(), Refusal> {
    let text = if shared.config.read_only {
        "the server takes no files"
    } else if visitor.rights.may_write() {
        return Ok(());
    } else {
        "this token may read and not write"
    };
    Err(Refusal::new(Reason::ReadOnly, text))
}

/// A path from a peer, shortened to a readable length.
fn shown(path: &[u8]) -> String {
    if path.len() <= SHOWN {
        return whole(path);
    }
    let cut = whole(&path[..SHOWN]);
    format!("{cut}… ({} bytes)", path.len())
}

fn whole(path: &[u8]) -> String {
    if path.is_empty() {
        ".".to_owned()
    } else {
        super::printable::printable(path)
    }
}

async fn refuse<T>(wire: &mut Wire, refusal: Refusal) -> Result<T, Trouble> {
    wire.send(&Answer::Refused(refusal.for_wire())).await?;
    Err(Trouble::Here(refusal))
}

async fn list(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
) -> Result<(), Trouble> {
    /// Entries read at a time. No thread waits for a client that reads slowly.
    const AHEAD: usize = 64;
    let root = shared.config.folder.clone();
    let path = match may_read(visitor).and_then(|()| RelativePath::parse(path)) {
        Ok(path) => path,
        Err(refusal) => return refuse(wire, refusal).await,
    };
    let opened = off(move || {
        let file = match Source::open(&root, &path) {
            Ok(source) => return Ok((None, Some(source.info))),
            Err(refusal) => refusal,
        };
        match root.folder(&path) {
            Ok(folder) => Ok((Some(folder), None)),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(file),
            Err(error) => Err(Refusal::from_io("cannot read it", &error)),
        }
    })
    .await?;
    let folder = match opened {
        Err(refusal) => return refuse(wire, refusal).await,
        Ok((Some(folder), _)) => folder,
        Ok((None, info)) => {
            if let Some(file) = info {
                let path = Vec::new();
                wire.send(&Answer::File { path, file }).await?;
            }
            return wire.send(&Answer::EndOfList).await;
        }
    };
    wire.send(&Answer::Folder { path: Vec::new() }).await?;
    let mut walk = off(move || Walk::new(folder)).await?;
    loop {
        let entries: Vec<WalkEntry>;
        (walk, entries) = off(move || {
            let entries = walk.by_ref().take(AHEAD).collect();
            (walk, entries)
        })
        .await?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            let bytes = |path: RelativePath| path.as_bytes().to_vec();
            let answer = match entry {
                WalkEntry::File(path, file) => Answer::File {
                    path: bytes(path),
                    file,
                },
                WalkEntry::Folder(path) => Answer::Folder { path: bytes(path) },
                WalkEntry::Unavailable(path, why) => Answer::Unavailable {
                    path: bytes(path),
                    why: why.for_wire(),
                },
            };
            wire.send(&answer).await?;
        }
    }
    wire.send(&Answer::EndOfList).await
}

async fn get(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
    gauge: &Gauge,
) -> Result<Delivered, Trouble> {
    let root = shared.config.folder.clone();
    let opened = match may_read(visitor).and_then(|()| RelativePath::parse(path)) {
        Ok(path) => off(move || Source::open(&root, &path)).await?,
        Err(refusal) => Err(refusal),
    };
    match opened {
        Ok(mut source) => {
            source.run = run(share(shared.clients.taken()));
            wire.send(&Answer::Offer { file: source.info }).await?;
            supply(wire, &source, gauge).await
        }
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// A served folder, made with its missing parents.
async fn made(shared: &Shared, path: RelativePath) -> Result<Result<Folder, Refusal>, Trouble> {
    let (root, room) = (shared.config.folder.clone(), shared.room.clone());
    off(move || room.make(&root, &path)).await
}

/// The destination of a client's file, and the key of its writer.
async fn place(
    shared: &Shared,
    visitor: &Visitor,
    path: &[u8],
    replace: bool,
) -> Result<Result<(Place, FileKey), Refusal>, Trouble> {
    let parsed = may_write(shared, visitor)
        .and_then(|()| RelativePath::parse(path))
        .and_then(|path| {
            let text = "a file needs a name, and the path has none";
            path.split_last()
                .map(|(parent, name)| (parent, name.to_owned()))
                .ok_or_else(|| Refusal::new(Reason::BadName, text))
        });
    let (parent, name) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let folder = match made(shared, parent).await? {
        Ok(folder) => folder,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let apart = visitor
        .name
        .as_ref()
        .filter(|_| !visitor.rights.may_read())
        .map(ToString::to_string);
    off(move || {
        let stat = fstat(&folder)
            .map_err(|error| Refusal::from_io("cannot read the folder", &error.into()))?;
        #[allow(
            clippy::useless_conversion,
            reason = "their types differ between systems"
        )]
        let key = (
            u64::try_from(stat.st_dev).unwrap_or_default(),
            u64::from(stat.st_ino),
            name.clone(),
        );
        let place = Place {
            folder,
            name,
            replace,
            apart,
        };
        Ok((place, key))
    })
    .await
}

/// Refuses a client's file, with the reason.
async fn turn_down<T>(wire: &mut Wire, refusal: Refusal) -> Result<T, Trouble> {
    wire.send(&Demand::Failed(refusal.for_wire())).await?;
    wire.stop();
    Err(Trouble::Here(refusal))
}

async fn put(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
    file: FileInfo,
    replace: bool,
    gauge: &Gauge,
) -> Result<Delivered, Trouble> {
    let (place, key) = match place(shared, visitor, path, replace).await? {
        Ok(prepared) => prepared,
        Err(refusal) => return turn_down(wire, refusal).await,
    };
    let writing = Writing::begin(shared, key);
    tokio::select! {
        taken = take(wire, place, file, &shared.room, gauge) => return taken,
        () = writing.give_way.notified() => {}
    }
    let refusal = Refusal::new(
        Reason::Superseded,
        "a newer transfer of the same file has taken over",
    );
    let _ = timeout(GOODBYE, wire.send(&Demand::Failed(refusal.clone()))).await;
    wire.stop();
    Err(Trouble::Here(refusal))
}

async fn make_folder(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
) -> Result<(), Trouble> {
    let made = match may_write(shared, visitor).and_then(|()| RelativePath::parse(path)) {
        Ok(path) => made(shared, path).await?,
        Err(refusal) => Err(refusal),
    };
    match made {
        Ok(_) => wire.send(&Answer::Made).await,
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// Identity of a file, whatever path leads to it: device and inode of its folder, and its name
/// there.
type FileKey = (u64, u64, OsString);

/// A file being written. An earlier writer of it gives way, because its client may be dead without
/// having closed the connection.
struct Writing<'a> {
    shared: &'a Shared,
    key: FileKey,
    give_way: Arc<Notify>,
}

impl<'a> Writing<'a> {
    fn begin(shared: &'a Shared, key: FileKey) -> Self {
        let give_way = Arc::new(Notify::new());
        let before = shared.writers().insert(key.clone(), Arc::clone(&give_way));
        if let Some(before) = before {
            before.notify_one();
        }
        Writing {
            shared,
            key,
            give_way,
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut writers = self.shared.writers();
        if writers
            .get(&self.key)
            .is_some_and(|writer| Arc::ptr_eq(writer, &self.give_way))
        {
            writers.remove(&self.key);
        }
    }
}

impl Shared {
    fn writers(&self) -> std::sync::MutexGuard<'_, BTreeMap<FileKey, Arc<Notify>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a rejected client without waiting, and so rarely that such clients cannot fill a
    /// log.
    fn tell_turned_away(&self, client: SocketAddr, why: String) {
        let mut turned_away = self
            .turned_away
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(unreported) = turned_away.may() else {
            return;
        };
        let why = with_unreported(why, unreported);
        let sent = self.events.try_send(Event::TurnedAway { client, why });
        if sent.is_err() {
            turned_away.unreported = unreported + 1;
        }
    }

    /// The reason to report for this client's failed request, with the number of unreported ones;
    /// nothing if it must not be reported.
    fn may_tell(&self, client: SocketAddr, why: String) -> Option<String> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= REMEMBERED {
            failures.retain(|_, count| count.second.elapsed() < Duration::from_secs(1));
        }
        let count = failures.entry(Network::of(client.ip()));
        let unreported = count.or_insert_with(ReportCount::new).may()?;
        Some(with_unreported(why, unreported))
    }

    async fn tell(&self, event: Event) {
        // Events of a server that is being stopped are not taken any more.
        let _ = self.events.send(event).await;
    }
}
