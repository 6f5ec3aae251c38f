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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use rustix::fs::fstat;
use rustls::crypto::ring::default_provider;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep, timeout};
use verus_core::algorithm::Scheme;

use super::doorstep::Doorstep;
use super::exchange::{Delivered, off, supply, take};
use super::files::{Place, Source};
use super::folder::{Folder, Found, Walk};
use super::frames::{ALPN, Answer, Demand, FileInfo, Request};
use super::housekeeping::{Booked, OFTEN, Room};
use super::paths::RelativePath;
use super::places::{Held, Network, Places, Pulse};
use super::refusal::{Reason, Refusal};
use super::secrets::{Identity, Prover, Token};
use super::wire::{Patience, Trouble, Wire, in_words};
use super::{
    Gauge, SILENCE, STRANGERS_WINDOW, STREAMS, WINDOW, channel_secret, code, random_seed, transport,
};
use crate::quic;

/// How long a client may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// With more connections than this that are not proven, new ones must prove their address first.
const STRANGERS_TRUSTED: usize = 8;
/// More connections than this that are not proven there never are.
const STRANGERS: usize = 64;
/// First packets that wait for us to look at them, and bytes of those that follow one: a moment's.
const WAITING: usize = 256;
const WAITING_BYTES: u64 = 64 << 10;
/// Whoever has asked for something keeps the place that others want until nothing has got on for so long.
const GRACE: Duration = Duration::from_secs(3);
/// How many lists a client is given at a time; each holds the names of the folders that it is in.
const LISTS: usize = 2;
/// So many strangers who were turned away are told of in a second, and no more: they cost nothing.
const TOLD: u32 = 10;
/// How many events may wait to be read before clients have to wait, too.
const EVENTS: usize = 1024;
/// How long a server that stops waits for its clients to hear of it.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a server serves, and whom.
#[derive(Debug)]
pub struct ServerConfig {
    /// The folder.
    pub folder: Folder,
    /// The key that clients know it by.
    pub identity: Identity,
    /// What clients must know; without one, anybody is served.
    pub token: Option<Token>,
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
    },
    /// A client was turned away, or an unknown one gave up.
    TurnedAway {
        /// Where it is.
        client: SocketAddr,
        /// Why.
        why: String,
    },
    /// A file went to a client.
    Sent {
        /// Where it is.
        client: SocketAddr,
        /// The file.
        path: String,
        /// How.
        delivered: Delivered,
    },
    /// A file came from a client.
    Received {
        /// Where it is.
        client: SocketAddr,
        /// The file.
        path: String,
        /// How.
        delivered: Delivered,
    },
    /// Something that a client asked for was not done.
    Failed {
        /// Where it is.
        client: SocketAddr,
        /// What it was about.
        path: String,
        /// Why not.
        why: String,
    },
    /// A client has left.
    Left {
        /// Where it is.
        client: SocketAddr,
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
    events: mpsc::Sender<Event>,
    strangers: Arc<Places>,
    clients: Arc<Places>,
    room: Room,
    turned_away: Mutex<TurnedAway>,
    /// Who writes which file: device and inode of its folder, and its name. A newer one takes over.
    writers: Mutex<BTreeMap<(u64, u64, OsString), Arc<Notify>>>,
}

/// How many strangers were told of in this second, and how many not at all.
#[derive(Debug)]
struct TurnedAway {
    second: Instant,
    told: u32,
    untold: u64,
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
        let transport = transport(&config.scheme, STRANGERS_WINDOW, 1, random_seed());
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
        let doorstep = Doorstep::new(socket, &*runtime)?;
        let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(quic), doorstep, runtime)?;
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
            events: sender,
            strangers: Places::new(STRANGERS, STRANGERS, Duration::ZERO),
            clients: Places::new(all, each, GRACE),
            room,
            turned_away: Mutex::new(TurnedAway {
                second: Instant::now(),
                told: 0,
                untold: 0,
            }),
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

    /// The next thing to tell. Clients wait when nobody listens for long.
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

/// How long unfinished files stay. Whoever takes none removes none.
fn parts_kept(config: &ServerConfig) -> Option<Duration> {
    config.limits.keep_parts.filter(|_| !config.read_only)
}

async fn accept(shared: Arc<Shared>) {
    // Where there is a quota, it was looked through before the first client came.
    let mut house = interval(OFTEN);
    if shared.config.limits.bytes.is_some() {
        house.reset();
    }
    loop {
        let incoming = tokio::select! {
            incoming = shared.endpoint.accept() => match incoming {
                Some(incoming) => incoming,
                None => return,
            },
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
        let network = Network::of(incoming.remote_address());
        // A stranger has nothing under way, so the oldest can always be spared.
        match shared.strangers.take(network) {
            Some(stranger) => {
                tokio::spawn(serve(Arc::clone(&shared), incoming, stranger));
            }
            None => incoming.refuse(),
        }
    }
}

async fn serve(shared: Arc<Shared>, incoming: Incoming, stranger: Held) {
    let address = incoming.remote_address();
    let network = Network::of(address);
    let mut connection = None;
    let greeted = async {
        let arrived = incoming
            .await
            .map_err(|error| Trouble::Lost(in_words(&error)))?;
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
    let (connection, client) = match (connection, greeted) {
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
    shared.tell(Event::Connected { client: address }).await;
    let driver = quic::drive(&connection);
    let why = attend(&shared, &connection, &client).await;
    drop((driver, client));
    let client = connection.remote_address();
    shared.tell(Event::Left { client, why }).await;
}

fn turned_away(why: &str) -> Trouble {
    Trouble::Here(Refusal::new(Reason::Silent, why))
}

/// Answers what a client asks for, until it leaves or has to; says why.
async fn attend(shared: &Arc<Shared>, connection: &Connection, client: &Held) -> String {
    let lists = Arc::new(Semaphore::new(LISTS));
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
                    let lists = Arc::clone(&lists);
                    tokio::spawn(async move {
                        answer(&shared, &connection, &lists, wire).await;
                        drop(under_way);
                    });
                }
                Err(error) => break error,
            },
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

/// Both ends prove that they know the token.
async fn greet(
    shared: &Shared,
    network: Network,
    connection: &Connection,
) -> Result<Held, Trouble> {
    let turn_away = |number: u32, why: &str| {
        connection.close(VarInt::from_u32(number), why.as_bytes());
        Err(Trouble::Here(Refusal::new(Reason::Protocol, why)))
    };
    // Whoever called this has less patience.
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
    let token = shared.config.token.as_ref();
    if let Some(token) = token {
        match proof {
            Some(proof) if token.verify(&channel, Prover::Client, &proof) => {}
            Some(_) => return turn_away(code::TOKEN, "it has the wrong token"),
            None => return turn_away(code::TOKEN, "it has no token"),
        }
    }
    let Some(client) = shared.clients.take(network) else {
        return turn_away(code::BUSY, "there are as many clients as may be");
    };
    connection.set_receive_window(VarInt::from_u32(WINDOW));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS));
    let welcome = Answer::Welcome {
        proof: token.map(|token| token.proof(&channel, Prover::Server)),
        writable: !shared.config.read_only,
    };
    wire.say(&welcome).await?;
    wire.end();
    Ok(client)
}

/// Answers one request.
async fn answer(shared: &Shared, connection: &Connection, lists: &Semaphore, mut wire: Wire) {
    let request = match wire.hear().await {
        Ok(request) => request,
        Err(Trouble::Protocol(why)) => {
            connection.close(VarInt::from_u32(code::PROTOCOL), why.as_bytes());
            return;
        }
        Err(_) => return,
    };
    let client = connection.remote_address();
    let (path, result) = match request {
        Request::Hello { .. } => {
            connection.close(VarInt::from_u32(code::PROTOCOL), b"a second greeting");
            return;
        }
        Request::List { path } => {
            let Ok(_turn) = lists.acquire().await else {
                return;
            };
            let result = list(shared, &mut wire, &path).await;
            (path, result.map(|()| None))
        }
        Request::Get { path } => {
            let result = get(shared, &mut wire, &path).await;
            let sent = |delivered| Event::Sent {
                client,
                path: shown(&path),
                delivered,
            };
            let result = result.map(|delivered| Some(sent(delivered)));
            (path, result)
        }
        Request::Put {
            path,
            file,
            replace,
        } => {
            let result = put(shared, &mut wire, &path, file, replace).await;
            let received = |delivered| Event::Received {
                client,
                path: shown(&path),
                delivered,
            };
            let result = result.map(|delivered| Some(received(delivered)));
            (path, result)
        }
        Request::MakeFolder { path } => {
            let result = make_folder(shared, &mut wire, &path).await;
            (path, result.map(|()| None))
        }
    };
    match result {
        Ok(Some(event)) => shared.tell(event).await,
        Ok(None) => {}
        Err(trouble) => {
            let path = shown(&path);
            let why = trouble.to_string();
            shared.tell(Event::Failed { client, path, why }).await;
            if let Trouble::Protocol(why) = trouble {
                wire.finish().await;
                connection.close(VarInt::from_u32(code::PROTOCOL), why.as_bytes());
            } else if trouble.is_lost() {
                return wire.abandon();
            }
        }
    }
    wire.finish().await;
}

fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        ".".to_owned()
    } else {
        super::paths::printable(path)
    }
}

async fn refuse<T>(wire: &mut Wire, refusal: Refusal) -> Result<T, Trouble> {
    wire.say(&Answer::Refused(refusal.for_wire())).await?;
    Err(Trouble::Here(refusal))
}

async fn list(shared: &Shared, wire: &mut Wire, path: &[u8]) -> Result<(), Trouble> {
    /// How many entries are found at a time. No thread waits for whoever reads slowly.
    const AHEAD: usize = 64;
    let root = shared.config.folder.clone();
    let path = match RelativePath::parse(path) {
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

async fn get(shared: &Shared, wire: &mut Wire, path: &[u8]) -> Result<Delivered, Trouble> {
    let root = shared.config.folder.clone();
    let opened = match RelativePath::parse(path) {
        Ok(path) => off(move || Source::open(&root, &path)).await?,
        Err(refusal) => Err(refusal),
    };
    match opened {
        Ok(source) => {
            wire.say(&Answer::Offer { file: source.info }).await?;
            supply(wire, &source, &Gauge::default()).await
        }
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// Where a client's file is to go.
fn place(shared: &Shared, path: &[u8], replace: bool) -> Result<Place, Refusal> {
    let path = RelativePath::parse(path)?;
    if shared.config.read_only {
        return Err(Refusal::new(Reason::ReadOnly, "the server takes no files"));
    }
    let Some((parent, name)) = path.split_last() else {
        let text = "a file needs a name, and the path has none";
        return Err(Refusal::new(Reason::BadName, text));
    };
    let folder = shared
        .config
        .folder
        .make(&parent)
        .map_err(|error| Refusal::from_io("cannot make the folder", &error))?;
    Ok(Place {
        folder,
        name: name.to_owned(),
        replace,
    })
}

async fn put(
    shared: &Shared,
    wire: &mut Wire,
    path: &[u8],
    file: FileInfo,
    replace: bool,
) -> Result<Delivered, Trouble> {
    let prepared = place(shared, path, replace).and_then(|place| {
        let stat = fstat(&place.folder)
            .map_err(|error| Refusal::from_io("cannot read the folder", &error.into()))?;
        #[allow(
            clippy::useless_conversion,
            reason = "their types differ between systems"
        )]
        let key = (
            u64::try_from(stat.st_dev).unwrap_or_default(),
            u64::from(stat.st_ino),
            place.name.clone(),
        );
        Ok((place, key))
    });
    let (place, key) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => {
            wire.say(&Demand::Failed(refusal.for_wire())).await?;
            wire.stop();
            return Err(Trouble::Here(refusal));
        }
    };
    let writing = Writing::begin(shared, key);
    let booked = match book(&shared.room, &place, file.size, writing.takes_over).await? {
        Ok(booked) => booked,
        Err(refusal) => {
            wire.say(&Demand::Failed(refusal.for_wire())).await?;
            wire.stop();
            return Err(Trouble::Here(refusal));
        }
    };
    let gauge = Gauge::default();
    let taken = tokio::select! {
        taken = take(wire, place, file, &gauge) => Some(taken),
        () = writing.give_way.notified() => None,
    };
    if booked.is_some() {
        off(move || drop(booked)).await?;
    }
    if let Some(taken) = taken {
        return taken;
    }
    let refusal = Refusal::new(
        Reason::Superseded,
        "a newer transfer of the same file has taken over",
    );
    let _ = timeout(GOODBYE, wire.say(&Demand::Failed(refusal.clone()))).await;
    wire.stop();
    Err(Trouble::Here(refusal))
}

/// Books room for a file. If another transfer of it is giving way, its room is free in a moment.
async fn book(
    room: &Room,
    place: &Place,
    size: u64,
    takes_over: bool,
) -> Result<Result<Option<Booked>, Refusal>, Trouble> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut tries = if takes_over { 100 } else { 1 };
    loop {
        let (room, place) = (room.clone(), place.clone());
        let booked = off(move || room.book(&place, size)).await?;
        tries -= 1;
        if booked.is_ok() || tries == 0 {
            return Ok(booked);
        }
        sleep(PAUSE).await;
    }
}

async fn make_folder(shared: &Shared, wire: &mut Wire, path: &[u8]) -> Result<(), Trouble> {
    let root = shared.config.folder.clone();
    let made = match RelativePath::parse(path) {
        Err(refusal) => Err(refusal),
        Ok(_) if shared.config.read_only => {
            Err(Refusal::new(Reason::ReadOnly, "the server takes no files"))
        }
        Ok(path) => {
            let room = shared.room.clone();
            off(move || {
                if root.folder(&path).is_err() {
                    room.folders(path.names().count())?;
                }
                root.make(&path)
                    .map(drop)
                    .map_err(|error| Refusal::from_io("cannot make the folder", &error))
            })
            .await?
        }
    };
    match made {
        Ok(()) => wire.say(&Answer::Made).await,
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// A file being written. Whoever wrote it before gives way: its client may be long dead, and only
/// silence would tell.
struct Writing<'a> {
    shared: &'a Shared,
    key: (u64, u64, OsString),
    give_way: Arc<Notify>,
    /// Somebody was writing it.
    takes_over: bool,
}

impl<'a> Writing<'a> {
    fn begin(shared: &'a Shared, key: (u64, u64, OsString)) -> Self {
        let give_way = Arc::new(Notify::new());
        let before = shared.writers().insert(key.clone(), Arc::clone(&give_way));
        if let Some(before) = &before {
            before.notify_one();
        }
        Writing {
            shared,
            key,
            give_way,
            takes_over: before.is_some(),
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
    fn writers(&self) -> std::sync::MutexGuard<'_, BTreeMap<(u64, u64, OsString), Arc<Notify>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Strangers neither fill a log nor wait for whoever reads it.
    fn tell_turned_away(&self, client: SocketAddr, mut why: String) {
        let mut turned_away = self
            .turned_away
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if turned_away.second.elapsed() >= Duration::from_secs(1) {
            turned_away.second = Instant::now();
            turned_away.told = 0;
        }
        if turned_away.told >= TOLD {
            turned_away.untold += 1;
            return;
        }
        turned_away.told += 1;
        if turned_away.untold > 0 {
            why = format!("{why} (and {} others before)", turned_away.untold);
        }
        let told = self.events.try_send(Event::TurnedAway { client, why });
        turned_away.untold = if told.is_ok() {
            0
        } else {
            turned_away.untold + 1
        };
    }

    async fn tell(&self, event: Event) {
        // Nobody listens to a server that is being stopped.
        let _ = self.events.send(event).await;
    }
}
