//! The end that serves a folder.
//!
//! A stranger gets little: a handshake, one stream, ten seconds and 64 KiB to prove that it knows the
//! token. While many strangers knock, their addresses must be proven first (RFC 9000 §8.1.2), so that
//! a flood of forged first packets costs no state, and the oldest of them makes room for the next. What
//! a client that is known may hold is bounded by the number of its streams and the window of its
//! connection; and it holds it only as long as something gets on, or nobody else wants its place
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
use super::doorstep::Doorstep;
use super::exchange::{Delivered, off, supply, take};
use super::files::{Place, Source};
use super::folder::{Folder, Found, Walk};
use super::frames::{ALPN, Answer, Demand, FileInfo, Request};
use super::housekeeping::{OFTEN, Room};
use super::paths::RelativePath;
use super::places::{Held, Places, Pulse};
use super::refusal::{Reason, Refusal};
use super::secrets::Identity;
use super::wire::{Patience, Trouble, Wire, in_words};
use super::{
    Gauge, SILENCE, STRANGERS_WINDOW, STREAMS, WINDOW, channel_secret, code, random_seed,
    receive_share, run, share, transport,
};
use verus_net::Network;
use verus_quinn as quic;

/// How long a client may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// With as many connections as this that are not proven, new ones must prove their address first.
const STRANGERS_TRUSTED: usize = 8;
/// More connections than this that are not proven there never are.
const STRANGERS: usize = 64;
/// First packets that wait for us to look at them, and bytes of those that follow one: a moment's.
const WAITING: usize = 256;
const WAITING_BYTES: u64 = 64 << 10;
/// A client that has asked for something keeps a place that others want until it has made no progress for so long.
const GRACE: Duration = Duration::from_secs(3);
/// How many lists a client is given at a time; each holds the names of the folders that it is in.
const LISTS: usize = 2;
/// So many strangers who were turned away are told of in a second, and no more; and so many requests of one network that
/// failed before anything moved: both cost nothing.
const TOLD: u32 = 10;
/// Of whom it is known how many such requests were not told of: more networks than have places.
const REMEMBERED: usize = 1024;
/// A path of a request that failed is told up to this many bytes: a peer may name any.
const SHOWN: usize = 256;
/// How many events may wait to be read before clients have to wait, too.
const EVENTS: usize = 1024;
/// How often it looks whether a token was revoked: a client is gone within a second.
const LOOK: Duration = Duration::from_millis(500);
/// Why a client is no more served that was.
const REVOKED: &str = "its token was revoked, or its rights changed";
/// How long a server that stops waits for its clients to hear of it.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a server serves, and whom.
#[derive(Debug)]
pub struct ServerConfig {
    /// The folder.
    pub folder: Folder,
    /// The key that clients know it by.
    pub identity: Identity,
    /// Whom it lets in.
    pub access: Access,
    /// Takes no files.
    pub read_only: bool,
    /// The congestion controller for what it sends.
    pub scheme: Scheme,
    /// How many clients it serves at a time.
    pub max_clients: usize,
    /// What clients may take of it.
    pub limits: Limits,
}

/// What a server's clients may take of it, apart from their number.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients of one network (an IPv4 address, or an IPv6 /64); none: half of all.
    pub clients_each: Option<usize>,
    /// A client that asks for nothing is sent away after so long.
    pub idle: Duration,
    /// A request for which the client does nothing is given up after so long.
    pub silence: Duration,
    /// What all files in the folder may take together, in bytes, before clients may add no more.
    pub bytes: Option<u64>,
    /// Unfinished files that were not written to for so long are removed; none: never.
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

/// Something that a server has to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client has proven itself.
    Connected {
        /// Where it is.
        client: SocketAddr,
        /// Who it is.
        name: Option<ClientName>,
        /// What it may do.
        rights: Rights,
    },
    /// A client was turned away, or an unknown one gave up.
    TurnedAway {
        /// Where it is.
        client: SocketAddr,
        /// Why.
        why: String,
    },
    /// A file went to a client, came from one, or did not.
    Transfer(Transfer),
    /// A list or a folder that a client asked for was not had.
    Failed {
        /// Where it is.
        client: SocketAddr,
        /// Who it is.
        name: Option<ClientName>,
        /// What it was about.
        path: String,
        /// Why not.
        why: String,
    },
    /// A client has left.
    Left {
        /// Where it is.
        client: SocketAddr,
        /// Who it is.
        name: Option<ClientName>,
        /// Why.
        why: String,
    },
    /// The clients' tokens cannot be read any more; those that are known go on counting.
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
}

#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    endpoint: Endpoint,
    doorstep: Arc<Doorstep>,
    events: mpsc::Sender<Event>,
    strangers: Arc<Places>,
    clients: Arc<Places>,
    /// What each client may be sent that it has not acknowledged, bytes.
    sends: Arc<AtomicU64>,
    room: Room,
    turned_away: Mutex<Told>,
    failures: Mutex<BTreeMap<Network, Told>>,
    /// That some tokens count no more, or others do.
    access_changed: watch::Sender<()>,
    /// Who writes which file: device and inode of its folder, and its name. A newer one takes over.
    writers: Mutex<BTreeMap<FileKey, Arc<Notify>>>,
}

/// How many of a kind were told of in this second, and how many not at all.
#[derive(Debug)]
struct Told {
    second: Instant,
    told: u32,
    untold: u64,
}

impl Told {
    fn new() -> Self {
        Told {
            second: Instant::now(),
            told: 0,
            untold: 0,
        }
    }

    /// How many were not told before this one, if this one may be told.
    fn may(&mut self) -> Option<u64> {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.second = Instant::now();
            self.told = 0;
        }
        if self.told >= TOLD {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// `why`, and that others were not told of.
fn with_untold(why: String, untold: u64) -> String {
    match untold {
        0 => why,
        untold => format!("{why} (and {untold} others before)"),
    }
}

/// Keys for what a server must recognise after it was restarted.
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
        let doorstep = Doorstep::new(socket);
        let socket = Arc::clone(&doorstep);
        let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(quic), socket, runtime)?;
        let (sender, events) = mpsc::channel(EVENTS);
        let all = config.max_clients;
        let each = config.limits.clients_each.unwrap_or(all.div_ceil(2));
        let room = Room::new(config.limits.bytes);
        if config.limits.bytes.is_some() {
            room.look(&config.folder, parts_kept(&config));
        }
        let shared = Arc::new(Shared {
            config,
            endpoint: endpoint.clone(),
            doorstep,
            events: sender,
            strangers: Places::new(STRANGERS, STRANGERS, Duration::ZERO),
            clients: Places::new(all, each, GRACE),
            sends,
            room,
            turned_away: Mutex::new(Told::new()),
            failures: Mutex::default(),
            access_changed: watch::Sender::new(()),
            writers: Mutex::new(BTreeMap::new()),
        });
        tokio::spawn(accept(shared));
        Ok(Server { endpoint, events })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// The next event. Clients wait if events are not taken for long.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// What there is to tell right now.
    pub fn try_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Stops, and lets clients know. What they were sending stays for the next time.
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
    // Where there is a quota, it was looked through before the first client came.
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

/// Sees to it that the tokens are those of this moment.
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

async fn serve(shared: Arc<Shared>, incoming: Incoming, stranger: Held) {
    let address = incoming.remote_address();
    // From before it is let in, so that no change is missed.
    let access_changed = shared.access_changed.subscribe();
    let network = Network::of(address.ip());
    let mut connection = None;
    let mut proven = None;
    let greeted = async {
        let arrived = incoming
            .await
            .map_err(|error| Trouble::Lost(in_words(&error)))?;
        proven = Some(shared.doorstep.proven(address));
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
    let why = attend(&shared, &connection, &client, &visitor, access_changed).await;
    drop((driver, client, proven));
    let client = connection.remote_address();
    shared.tell(Event::Left { client, name, why }).await;
}

fn turned_away(why: &str) -> Trouble {
    Trouble::Here(Refusal::new(Reason::Silent, why))
}

/// Answers what a client asks for, until it leaves or has to; says why.
async fn attend(
    shared: &Arc<Shared>,
    connection: &Connection,
    client: &Held,
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
            asked = connection.accept_bi() => match asked {
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
) -> Result<(Held, Visitor), Trouble> {
    let turn_away = |number: u32, why: &str| {
        connection.close(VarInt::from_u32(number), why.as_bytes());
        Err(Trouble::Here(Refusal::new(Reason::Protocol, why)))
    };
    // The caller has a shorter limit.
    let patience = Patience::new(PATIENCE, Arc::new(Pulse::new()));
    let mut wire = Wire::new(connection.accept_bi().await?, patience);
    let proof = match wire.hear().await {
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
    wire.say(&welcome).await?;
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
    let request = match wire.hear().await {
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

/// A request that is being answered, for what is told of it.
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

    /// A file that went, or did not; `size` as far as it is known without a result. A client may have any number of
    /// requests fail at once, and not all of them are told.
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

    /// A list or a folder that was not had.
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

/// That a client may read.
fn may_read(visitor: &Visitor) -> Result<(), Refusal> {
    if visitor.rights.may_read() {
        return Ok(());
    }
    let text = "this token may write and not read";
    Err(Refusal::new(Reason::Unreadable, text))
}

/// That a client may write.
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

/// A path as a peer wrote it, and no longer than can be read.
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
    wire.say(&Answer::Refused(refusal.for_wire())).await?;
    Err(Trouble::Here(refusal))
}

async fn list(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
) -> Result<(), Trouble> {
    /// How many entries are found at a time. No thread waits for a client that reads slowly.
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
                wire.say(&Answer::File { path, file }).await?;
            }
            return wire.say(&Answer::EndOfList).await;
        }
    };
    wire.say(&Answer::Folder { path: Vec::new() }).await?;
    let mut walk = off(move || Walk::new(folder)).await?;
    loop {
        let found: Vec<Found>;
        (walk, found) = off(move || {
            let found = walk.by_ref().take(AHEAD).collect();
            (walk, found)
        })
        .await?;
        if found.is_empty() {
            break;
        }
        for found in found {
            let bytes = |path: RelativePath| path.as_bytes().to_vec();
            let answer = match found {
                Found::File(path, file) => Answer::File {
                    path: bytes(path),
                    file,
                },
                Found::Folder(path) => Answer::Folder { path: bytes(path) },
                Found::Unavailable(path, why) => Answer::Unavailable {
                    path: bytes(path),
                    why: why.for_wire(),
                },
            };
            wire.say(&answer).await?;
        }
    }
    wire.say(&Answer::EndOfList).await
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
            wire.say(&Answer::Offer { file: source.info }).await?;
            supply(wire, &source, gauge).await
        }
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// A folder of what is served, made with those above it where there is none yet.
async fn made(shared: &Shared, path: RelativePath) -> Result<Result<Folder, Refusal>, Trouble> {
    let (root, room) = (shared.config.folder.clone(), shared.room.clone());
    off(move || room.make(&root, &path)).await
}

/// Where a client's file is to go, and what tells that place from others.
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

/// Tells a client that its file is not taken, and why.
async fn turn_down<T>(wire: &mut Wire, refusal: Refusal) -> Result<T, Trouble> {
    wire.say(&Demand::Failed(refusal.for_wire())).await?;
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
    let _ = timeout(GOODBYE, wire.say(&Demand::Failed(refusal.clone()))).await;
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
        Ok(_) => wire.say(&Answer::Made).await,
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// What tells one file from others, whatever it is called: the device and number of its folder, and its name there.
type FileKey = (u64, u64, OsString);

/// A file being written. An earlier writer of it gives way: its client may be long dead, and only
/// silence would tell.
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

    /// Strangers neither fill a log nor wait for its reader.
    fn tell_turned_away(&self, client: SocketAddr, why: String) {
        let mut turned_away = self
            .turned_away
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(untold) = turned_away.may() else {
            return;
        };
        let why = with_untold(why, untold);
        let told = self.events.try_send(Event::TurnedAway { client, why });
        if told.is_err() {
            turned_away.untold = untold + 1;
        }
    }

    /// Whether a request of this client that failed for `why` is told; if so, with how many were not.
    fn may_tell(&self, client: SocketAddr, why: String) -> Option<String> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= REMEMBERED {
            failures.retain(|_, told| told.second.elapsed() < Duration::from_secs(1));
        }
        let told = failures.entry(Network::of(client.ip()));
        let untold = told.or_insert_with(Told::new).may()?;
        Some(with_untold(why, untold))
    }

    async fn tell(&self, event: Event) {
        // Events of a server that is being stopped are not taken any more.
        let _ = self.events.send(event).await;
    }
}
