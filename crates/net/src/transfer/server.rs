//! The end that serves a folder.
//!
//! A stranger gets little: a handshake, one stream, ten seconds and 64 KiB to prove that it knows the
//! token. While many strangers knock, their addresses must be proven first (RFC 9000 §8.1.2), so that
//! a flood of forged first packets costs no state. What a client that is known may hold is bounded by
//! the number of its streams and the window of its connection.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use rustix::fs::fstat;
use rustls::crypto::ring::default_provider;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use verus_core::algorithm::Scheme;

use super::exchange::{Delivered, off, supply, take};
use super::files::{Place, Source};
use super::folder::{Folder, Found, Walk};
use super::frames::{ALPN, Answer, Demand, FileInfo, Request};
use super::paths::RelativePath;
use super::refusal::{Reason, Refusal};
use super::secrets::{Identity, Prover, Token};
use super::wire::{Trouble, Wire, in_words};
use super::{
    Gauge, STRANGERS_WINDOW, STREAMS, WINDOW, channel_secret, code, random_seed, transport,
};
use crate::quic;

/// How long a client may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// With more connections than this that are not proven, new ones must prove their address first.
const STRANGERS_TRUSTED: usize = 8;
/// More connections than this that are not proven there never are.
const STRANGERS: usize = 64;
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
    strangers: AtomicUsize,
    clients: AtomicUsize,
    /// Who writes which file: device and inode of its folder, and its name. A newer one takes over.
    writers: Mutex<BTreeMap<(u64, u64, OsString), Arc<Notify>>>,
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
        quic.transport_config(transport(
            &config.scheme,
            STRANGERS_WINDOW,
            1,
            random_seed(),
        ));
        // Clients of a server that was killed learn it from the next one at the same address.
        let reset = config.identity.derive("verus transfer 1: stateless reset");
        let mut endpoint = EndpointConfig::new(Arc::new(Hmac(reset)));
        // quinn answers only ids that its generator could have made: the next server's must know them.
        let ids = config.identity.derive("verus transfer 1: connection ids");
        let ids = u64::from_le_bytes(*ids.first_chunk().expect("32 bytes"));
        endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
        let endpoint = Endpoint::new(endpoint, Some(quic), socket, Arc::new(quinn::TokioRuntime))?;
        let (sender, events) = mpsc::channel(EVENTS);
        let shared = Arc::new(Shared {
            config,
            endpoint: endpoint.clone(),
            events: sender,
            strangers: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
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

/// Counts one more as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn up_to(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Counted(count);
        if count.fetch_add(1, Ordering::Relaxed) < most {
            Some(counted)
        } else {
            None // and is counted off again
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept(shared: Arc<Shared>) {
    while let Some(incoming) = shared.endpoint.accept().await {
        let strangers = shared.strangers.load(Ordering::Relaxed);
        if strangers >= STRANGERS_TRUSTED && incoming.may_retry() {
            let _ = incoming.retry();
        } else if strangers >= STRANGERS {
            incoming.refuse();
        } else {
            shared.strangers.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(Arc::clone(&shared), incoming));
        }
    }
}

async fn serve(shared: Arc<Shared>, incoming: Incoming) {
    let stranger = Counted(&shared.strangers);
    let address = incoming.remote_address();
    let turned_away = |why: String| Event::TurnedAway {
        client: address,
        why,
    };
    let greeted = timeout(PATIENCE, async {
        let connection = incoming
            .await
            .map_err(|error| Trouble::Lost(in_words(&error)))?;
        greet(&shared, connection).await
    })
    .await;
    let (connection, client) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(trouble)) => return shared.tell(turned_away(trouble.to_string())).await,
        Err(_) => {
            let why = "it did not say who it is in time".to_owned();
            return shared.tell(turned_away(why)).await;
        }
    };
    drop(stranger);
    shared.tell(Event::Connected { client: address }).await;
    let driver = quic::drive(&connection);
    let error = loop {
        match connection.accept_bi().await {
            Ok(streams) => {
                let shared = Arc::clone(&shared);
                let connection = connection.clone();
                tokio::spawn(async move {
                    answer(&shared, &connection, Wire::new(streams)).await;
                });
            }
            Err(error) => break error,
        }
    };
    drop((driver, client));
    let why = match &error {
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
    };
    let client = connection.remote_address();
    shared.tell(Event::Left { client, why }).await;
}

/// Both ends prove that they know the token.
async fn greet<'a>(
    shared: &'a Shared,
    connection: Connection,
) -> Result<(Connection, Counted<'a>), Trouble> {
    let turn_away = |number: u32, why: &str| {
        connection.close(VarInt::from_u32(number), why.as_bytes());
        Err(Trouble::Here(Refusal::new(Reason::Protocol, why)))
    };
    let mut wire = Wire::new(connection.accept_bi().await?);
    let proof = match wire.hear().await {
        Ok(Request::Hello { proof }) => proof,
        Ok(_) => return turn_away(code::PROTOCOL, "it did not say who it is first"),
        Err(trouble @ Trouble::Protocol(_)) => {
            connection.close(VarInt::from_u32(code::PROTOCOL), b"not a greeting");
            return Err(trouble);
        }
        Err(trouble) => return Err(trouble),
    };
    let channel = channel_secret(&connection)?;
    let token = shared.config.token.as_ref();
    if let Some(token) = token {
        match proof {
            Some(proof) if token.verify(&channel, Prover::Client, &proof) => {}
            Some(_) => return turn_away(code::TOKEN, "it has the wrong token"),
            None => return turn_away(code::TOKEN, "it has no token"),
        }
    }
    let Some(client) = Counted::up_to(&shared.clients, shared.config.max_clients) else {
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
    Ok((connection, client))
}

/// Answers one request.
async fn answer(shared: &Shared, connection: &Connection, mut wire: Wire) {
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
    /// How many entries are found ahead of what is sent.
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
    let (sender, mut found) = mpsc::channel(AHEAD);
    spawn_blocking(move || {
        for found in Walk::new(folder) {
            if sender.blocking_send(found).is_err() {
                break;
            }
        }
    });
    while let Some(found) = found.recv().await {
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
    let gauge = Gauge::default();
    let taken = tokio::select! {
        taken = take(wire, place, file, &gauge) => Some(taken),
        () = writing.give_way.notified() => None,
    };
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

async fn make_folder(shared: &Shared, wire: &mut Wire, path: &[u8]) -> Result<(), Trouble> {
    let root = shared.config.folder.clone();
    let made = match RelativePath::parse(path) {
        Err(refusal) => Err(refusal),
        Ok(_) if shared.config.read_only => {
            Err(Refusal::new(Reason::ReadOnly, "the server takes no files"))
        }
        Ok(path) => {
            off(move || {
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
}

impl<'a> Writing<'a> {
    fn begin(shared: &'a Shared, key: (u64, u64, OsString)) -> Self {
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
    fn writers(&self) -> std::sync::MutexGuard<'_, BTreeMap<(u64, u64, OsString), Arc<Notify>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(&self, event: Event) {
        // Nobody listens to a server that is being stopped.
        let _ = self.events.send(event).await;
    }
}
