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
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use verus_core::algorithm::Scheme;

use super::access::{Access, ClientName, Refreshed, Rights, Stranger, Visitor};
use super::account::{Direction, Outcome, Transfer};
use super::exchange::{Delivered, Reveal, off, supply, take};
use super::files::{Place, Source};
use super::folder::{Folder, Found, Walk};
use super::frames::{ALPN, Answer, Demand, FileInfo, Request};
use super::paths::RelativePath;
use super::refusal::{Reason, Refusal};
use super::secrets::Identity;
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
    events: mpsc::Sender<Event>,
    strangers: AtomicUsize,
    clients: AtomicUsize,
    /// That some tokens count no more, or others do.
    access_changed: watch::Sender<()>,
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
    let looking = tokio::spawn(look(Arc::clone(&shared)));
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
    looking.abort();
}

/// Notices tokens that were revoked while nobody says hello.
async fn look(shared: Arc<Shared>) {
    loop {
        sleep(LOOK).await;
        refresh(&shared).await;
    }
}

/// Sees to it that the tokens are those of this moment.
async fn refresh(shared: &Arc<Shared>) {
    let looking = Arc::clone(shared);
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

async fn serve(shared: Arc<Shared>, incoming: Incoming) {
    let stranger = Counted(&shared.strangers);
    let address = incoming.remote_address();
    // From before it is let in, so that no change is missed.
    let mut access_changed = shared.access_changed.subscribe();
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
    let (connection, client, visitor) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(trouble)) => return shared.tell(turned_away(trouble.to_string())).await,
        Err(_) => {
            let why = "it did not say who it is in time".to_owned();
            return shared.tell(turned_away(why)).await;
        }
    };
    drop(stranger);
    let visitor = Arc::new(visitor);
    let name = visitor.name.clone();
    let connected = Event::Connected {
        client: address,
        name: name.clone(),
        rights: visitor.rights,
    };
    shared.tell(connected).await;
    let driver = quic::drive(&connection);
    let mut revoked = false;
    let error = loop {
        let accepted = tokio::select! {
            accepted = connection.accept_bi() => accepted,
            Ok(()) = access_changed.changed(), if !revoked => {
                revoked = !shared.config.access.still_admits(&visitor);
                if revoked {
                    let why = b"the token was revoked";
                    connection.close(VarInt::from_u32(code::REVOKED), why);
                }
                continue;
            }
        };
        match accepted {
            Ok(streams) => {
                let shared = Arc::clone(&shared);
                let connection = connection.clone();
                let visitor = Arc::clone(&visitor);
                tokio::spawn(async move {
                    answer(&shared, &connection, &visitor, Wire::new(streams)).await;
                });
            }
            Err(error) => break error,
        }
    };
    drop((driver, client));
    let why = match &error {
        _ if revoked => REVOKED.to_owned(),
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
    shared.tell(Event::Left { client, name, why }).await;
}

/// Both ends prove that they know a token.
async fn greet<'a>(
    shared: &'a Arc<Shared>,
    connection: Connection,
) -> Result<(Connection, Counted<'a>, Visitor), Trouble> {
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
    // A token that was made a moment ago counts, and one that was revoked does not.
    refresh(shared).await;
    let visitor = match shared.config.access.admit(&channel, proof.as_ref()) {
        Ok(visitor) => visitor,
        Err(Stranger::WrongToken) => return turn_away(code::TOKEN, "it has the wrong token"),
        Err(Stranger::NoToken) => return turn_away(code::TOKEN, "it has no token"),
    };
    let Some(client) = Counted::up_to(&shared.clients, shared.config.max_clients) else {
        return turn_away(code::BUSY, "there are as many clients as may be");
    };
    connection.set_receive_window(VarInt::from_u32(WINDOW));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS));
    let welcome = Answer::Welcome {
        proof: visitor.answer(&channel),
        writable: visitor.rights.may_write() && !shared.config.read_only,
    };
    wire.say(&welcome).await?;
    wire.end();
    Ok((connection, client, visitor))
}

/// Answers one request.
async fn answer(shared: &Shared, connection: &Connection, visitor: &Visitor, mut wire: Wire) {
    let request = match wire.hear().await {
        Ok(request) => request,
        Err(Trouble::Protocol(why)) => {
            connection.close(VarInt::from_u32(code::PROTOCOL), why.as_bytes());
            return;
        }
        Err(_) => return,
    };
    let client = connection.remote_address();
    let name = visitor.name.clone();
    let gauge = Gauge::default();
    let began = Instant::now();
    let why = |trouble: &Trouble| {
        if trouble.is_lost() && !shared.config.access.still_admits(visitor) {
            REVOKED.to_owned()
        } else {
            trouble.to_string()
        }
    };
    let told = |path: &[u8], direction, size: Option<u64>, result: &Result<Delivered, Trouble>| {
        let delivered = result.as_ref().ok();
        Event::Transfer(Transfer {
            client,
            name: name.clone(),
            path: shown(path),
            direction,
            size: delivered.map(|delivered| delivered.size).or(size),
            moved: gauge.moved(),
            kept: delivered.map_or_else(|| gauge.kept(), |delivered| delivered.kept),
            took: began.elapsed(),
            outcome: match result {
                Ok(Delivered { same: true, .. }) => Outcome::Same,
                Ok(_) => Outcome::Complete,
                Err(trouble) => Outcome::Failed(why(trouble)),
            },
        })
    };
    let failed = |path: &[u8], result: &Result<(), Trouble>| {
        let trouble = result.as_ref().err()?;
        Some(Event::Failed {
            client,
            name: name.clone(),
            path: shown(path),
            why: why(trouble),
        })
    };
    let (event, result) = match request {
        Request::Hello { .. } => {
            connection.close(VarInt::from_u32(code::PROTOCOL), b"a second greeting");
            return;
        }
        Request::List { path } => {
            let result = list(shared, visitor, &mut wire, &path).await;
            (failed(&path, &result), result)
        }
        Request::Get { path } => {
            let result = get(shared, visitor, &mut wire, &path, &gauge).await;
            let event = told(&path, Direction::Sent, None, &result);
            (Some(event), result.map(drop))
        }
        Request::Put {
            path,
            file,
            replace,
        } => {
            let result = put(shared, visitor, &mut wire, &path, file, replace, &gauge).await;
            let event = told(&path, Direction::Received, Some(file.size), &result);
            (Some(event), result.map(drop))
        }
        Request::MakeFolder { path } => {
            let result = make_folder(shared, visitor, &mut wire, &path).await;
            (failed(&path, &result), result)
        }
    };
    if let Some(event) = event {
        shared.tell(event).await;
    }
    if let Err(Trouble::Protocol(why)) = result {
        wire.finish().await;
        connection.close(VarInt::from_u32(code::PROTOCOL), why.as_bytes());
    }
    wire.finish().await;
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

async fn list(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
) -> Result<(), Trouble> {
    /// How many entries are found ahead of what is sent.
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
        Ok(source) => {
            wire.say(&Answer::Offer { file: source.info }).await?;
            supply(wire, &source, gauge).await
        }
        Err(refusal) => refuse(wire, refusal).await,
    }
}

/// Where a client's file is to go.
fn place(shared: &Shared, visitor: &Visitor, path: &[u8], replace: bool) -> Result<Place, Refusal> {
    may_write(shared, visitor)?;
    let path = RelativePath::parse(path)?;
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
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
    file: FileInfo,
    replace: bool,
    gauge: &Gauge,
) -> Result<Delivered, Trouble> {
    let prepared = place(shared, visitor, path, replace).and_then(|place| {
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
    let reveal = match &visitor.name {
        Some(name) if !visitor.rights.may_read() => Reveal::Nothing(name.clone()),
        _ => Reveal::Everything,
    };
    let taken = tokio::select! {
        taken = take(wire, place, file, gauge, reveal) => Some(taken),
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

async fn make_folder(
    shared: &Shared,
    visitor: &Visitor,
    wire: &mut Wire,
    path: &[u8],
) -> Result<(), Trouble> {
    let root = shared.config.folder.clone();
    let made = match may_write(shared, visitor).and_then(|()| RelativePath::parse(path)) {
        Err(refusal) => Err(refusal),
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
