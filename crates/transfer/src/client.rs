//! The client: connects, authenticates both ends, then lists, gets and puts, each on a stream.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, ConnectionError, Endpoint, VarInt};
use quinn_proto::TransportErrorCode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use verus_senders::Scheme;

use super::address::Host;
use super::exchange::{Delivered, supply, take};
use super::files::{Place, Source};
use super::frames::{ALPN, Answer, FileInfo, Request};
use super::housekeeping::Room;
use super::paths::RelativePath;
use super::places::Pulse;
use super::refusal::{Reason, Refusal};
use super::secrets::{Fingerprint, Prover, Token};
use super::trust::{self, KnownHostsError, Trust};
use super::wire::{Patience, Trouble, Wire, in_words};
use super::{
    Gauge, KEEP_ALIVE, SOCKET_BYTES, STREAMS, WINDOW, channel_secret, code, random_seed, transport,
};
use verus_net::host::NEXT_ADDRESS;
use verus_net::socket;
use verus_quinn as quic;

/// How long a client that is done waits until the server has received its close.
const GOODBYE: Duration = Duration::from_millis(500);
/// First and longest wait before a client asks a server without free places again. Half of each
/// wait is random, so that many clients do not ask at the same moment.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(1);
/// Least time for the end of a handshake, and that time in round trips: enough for one retransmission.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
const CONFIRMED_WITHIN_RTTS: u32 = 6;
/// The longest list that is taken from a server: entries, and bytes of their paths.
const MAX_ENTRIES: usize = 1_000_000;
const MAX_LIST_BYTES: usize = 64 << 20;

/// The server of a client, and how to reach it.
#[derive(Debug)]
pub struct ClientConfig {
    /// The server, as written in the file of known hosts.
    pub host: Host,
    /// Its addresses, the best first.
    pub addresses: Vec<SocketAddr>,
    /// How to know that it is the right one.
    pub trust: Trust,
    /// The token that proves the client's identity.
    pub token: Option<Token>,
    /// The congestion controller of this end.
    pub scheme: Scheme,
    /// How long to wait for an answer at first.
    pub patience: Duration,
    /// How long to ask again for a place where a server has none.
    pub queueing: Duration,
    /// How long to wait for a later message from a server that is alive.
    pub silence: Duration,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// This system has no socket for it.
    #[error("cannot open a socket: {0}")]
    Socket(io::Error),
    /// No answer came.
    #[error(
        "no answer in {} s; is `verus serve` running there, is UDP port {port} open, and do packets of 1228 bytes pass, which QUIC needs?",
        patience.as_secs()
    )]
    Unreachable {
        /// How long was waited.
        patience: Duration,
        /// Where.
        port: u16,
    },
    /// The server's key is not the one that was given.
    #[error(
        "this is not the server that was asked for: its fingerprint is {found}, expected {expected}; \
         nothing was sent"
    )]
    NotPinned {
        /// The server's.
        found: Fingerprint,
        /// The user's.
        expected: Fingerprint,
    },
    /// The server's key is not the one of the last time.
    #[error(
        "the server's key has changed: its fingerprint is {found}, it was {expected} ({place}). \
         Either the server was set up anew, or somebody is in between; nothing was sent. If it was set \
         up anew, remove that line and try again"
    )]
    Changed {
        /// The server's.
        found: Fingerprint,
        /// The known one.
        expected: Fingerprint,
        /// Where that is written.
        place: String,
    },
    /// The file of known hosts cannot be used.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
    /// The server wants a token, and there is none.
    #[error(
        "the server asks for a token, and there is none here (--token-file; `serve` says where its token is, \
         and `verus serve token add` makes one)"
    )]
    NoToken,
    /// The server wants another token.
    #[error(
        "the server does not accept the token: it is another server's, or was revoked (--token-file; \
         `verus serve token add` makes one)"
    )]
    WrongToken,
    /// The server cannot prove that it knows the token.
    #[error(
        "the server (fingerprint {0}) cannot prove that it knows our token, so it is not trusted on first \
         use. If it runs with --no-token, give the fingerprint that `serve` has printed: --fingerprint"
    )]
    Impostor(Fingerprint),
    /// The server never ended a handshake.
    #[error(
        "handshakes begin and do not end: the path loses most packets, or a NAT on it changes this host's address \
         within a round trip"
    )]
    Unconfirmed,
    /// The server has no place for us.
    #[error("the server has as many clients as it takes; try again later")]
    Busy,
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// Something on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file.
    File(RelativePath, FileInfo),
    /// A folder; it comes before its contents.
    Folder(RelativePath),
    /// An entry that cannot be had, and why.
    Unavailable(RelativePath, Refusal),
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    connection: Connection,
    writable: bool,
    new_fingerprint: Option<Fingerprint>,
    silence: Duration,
    _driver: quic::Driver,
}

/// Accepts any certificate after verifying that the server has its key. [`Client::connect`] checks
/// the server's identity before it sends anything.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn tls() -> Result<QuicClientConfig, ConnectError> {
    let failed = |error: &dyn std::fmt::Display| ConnectError::Failed(error.to_string());
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(default_provider())))
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    QuicClientConfig::try_from(tls).map_err(|error| failed(&error))
}

impl Client {
    /// Connects, makes sure that it is the right server, and proves itself.
    ///
    /// # Errors
    /// If there is no server, not the right one, or it does not want us.
    pub async fn connect(config: &ClientConfig) -> Result<Self, ConnectError> {
        let began = Instant::now();
        let end = began + config.queueing;
        let (mut again, mut handshake_began) = (AGAIN, false);
        loop {
            match Client::try_connect(config).await {
                Err(ConnectError::Busy) if Instant::now() + again < end => {
                    let random = random_seed() as f64 / u64::MAX as f64;
                    sleep(again.mul_f64((1.0 + random) / 2.0)).await;
                    again = (again * 2).min(AGAIN_AT_MOST);
                }
                Err(ConnectError::Unconfirmed) if began.elapsed() < config.patience => {
                    handshake_began = true;
                }
                // Of a later attempt no answer may arrive at all; the server is there even so.
                Err(ConnectError::Unreachable { .. }) if handshake_began => {
                    return Err(ConnectError::Unconfirmed);
                }
                other => return other,
            }
        }
    }

    async fn try_connect(config: &ClientConfig) -> Result<Self, ConnectError> {
        let (endpoint, connection) = reach(config).await?;
        let closing = connection.clone();
        let client = Client::meet(config, endpoint, connection).await;
        if client.is_err() {
            closing.close(VarInt::from_u32(code::STRANGER), b"");
        }
        client
    }

    async fn meet(
        config: &ClientConfig,
        endpoint: Endpoint,
        connection: Connection,
    ) -> Result<Self, ConnectError> {
        let actual = fingerprint(&connection)
            .ok_or_else(|| ConnectError::Failed("the server has shown no key".to_owned()))?;
        let name = config.host.to_string();
        let mut new = None;
        match &config.trust {
            Trust::Pinned(expected) if *expected != actual => {
                let expected = *expected;
                return Err(ConnectError::NotPinned {
                    found: actual,
                    expected,
                });
            }
            Trust::Pinned(_) => {}
            Trust::KnownHosts(path) => match trust::find(path, &name)? {
                Some(entry) if entry.fingerprint != actual => {
                    return Err(ConnectError::Changed {
                        found: actual,
                        expected: entry.fingerprint,
                        place: format!("line {} of `{}`", entry.line, path.display()),
                    });
                }
                Some(_) => {}
                None => new = Some(path),
            },
        }
        let driver = quic::drive(&connection);
        let greeting = timeout(
            config.patience,
            greet(config, &connection, actual, new.is_none()),
        );
        let greeted = tokio::select! {
            greeted = greeting => greeted,
            () = unconfirmed(&connection) => return Err(ConnectError::Unconfirmed),
        };
        let writable = greeted
            .map_err(|_| ConnectError::Failed("the server does not answer".to_owned()))??;
        if let Some(path) = new {
            trust::add(path, &name, actual)?;
        }
        Ok(Client {
            endpoint,
            connection,
            writable,
            new_fingerprint: new.map(|_| actual),
            silence: config.silence,
            _driver: driver,
        })
    }

    /// The server's fingerprint, if this is the first connection to it.
    pub fn new_fingerprint(&self) -> Option<Fingerprint> {
        self.new_fingerprint
    }

    /// Whether the server takes files from us.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Where the server is.
    pub fn address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// The round-trip time now.
    pub fn rtt(&self) -> Duration {
        self.connection.rtt()
    }

    /// Statistics of the connection.
    pub fn stats(&self) -> quinn::ConnectionStats {
        self.connection.stats()
    }

    /// The entries at a path: a file, or a folder with its whole contents. Paths are relative to
    /// the requested one.
    ///
    /// # Errors
    /// If there is nothing, the server will not say, or it goes on for longer than it may be silent.
    pub async fn list(&self, path: &RelativePath) -> Result<Vec<Entry>, Trouble> {
        let mut wire = self.ask(&Request::List { path: bytes(path) }).await?;
        let mut entries = Vec::new();
        let mut budget = MAX_LIST_BYTES;
        let mut began = None;
        let parse = |path: &[u8]| {
            RelativePath::parse(path)
                .map_err(|refusal| Trouble::Protocol(format!("a path in a list: {refusal}")))
        };
        loop {
            let (path, entry) = match wire.receive().await? {
                Answer::File { path, file } => {
                    let parsed = parse(&path)?;
                    (path, Entry::File(parsed, file))
                }
                Answer::Folder { path } => {
                    let parsed = parse(&path)?;
                    (path, Entry::Folder(parsed))
                }
                Answer::Unavailable { path, why } => {
                    let parsed = parse(&path)?;
                    (path, Entry::Unavailable(parsed, why))
                }
                Answer::EndOfList => return Ok(entries),
                Answer::Refused(refusal) => return Err(Trouble::There(refusal)),
                _ => return Err(Trouble::Protocol("an answer out of turn".to_owned())),
            };
            if began.get_or_insert_with(Instant::now).elapsed() > self.silence {
                let seconds = self.silence.as_secs();
                let text = format!(
                    "the list of files has not ended after {seconds} s: ask for a folder that holds fewer"
                );
                return Err(Trouble::Here(Refusal::new(Reason::Silent, text)));
            }
            budget = match budget.checked_sub(path.len() + 1) {
                Some(budget) if entries.len() < MAX_ENTRIES => budget,
                _ => {
                    let text = format!("more than {MAX_ENTRIES} files and folders at a time");
                    return Err(Trouble::Here(Refusal::new(Reason::Storage, text)));
                }
            };
            entries.push(entry);
        }
    }

    /// Gets a file.
    ///
    /// # Errors
    /// If it does not arrive whole.
    pub async fn get(
        &self,
        path: &RelativePath,
        place: Place,
        gauge: &Gauge,
    ) -> Result<Delivered, Trouble> {
        let mut wire = self.ask(&Request::Get { path: bytes(path) }).await?;
        let file = match wire.receive().await? {
            Answer::Offer { file } => file,
            Answer::Refused(refusal) => return Err(Trouble::There(refusal)),
            _ => return Err(Trouble::Protocol("an answer out of turn".to_owned())),
        };
        let taken = take(&mut wire, place, file, &Room::unlimited(), gauge).await;
        // Lets the server receive the result before the connection closes.
        let _ = timeout(GOODBYE, wire.finish()).await;
        taken
    }

    /// Puts a file.
    ///
    /// # Errors
    /// If it does not arrive whole.
    pub async fn put(
        &self,
        source: &Source,
        path: &RelativePath,
        replace: bool,
        gauge: &Gauge,
    ) -> Result<Delivered, Trouble> {
        let request = Request::Put {
            path: bytes(path),
            file: source.info,
            replace,
        };
        let mut wire = self.ask(&request).await?;
        let supplied = supply(&mut wire, source, gauge).await;
        if supplied.is_err() {
            let _ = timeout(GOODBYE, wire.finish()).await;
        }
        supplied
    }

    /// Makes a folder, and those it is in.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn make_folder(&self, path: &RelativePath) -> Result<(), Trouble> {
        let mut wire = self.ask(&Request::MakeFolder { path: bytes(path) }).await?;
        match wire.receive().await? {
            Answer::Made => Ok(()),
            Answer::Refused(refusal) => Err(Trouble::There(refusal)),
            _ => Err(Trouble::Protocol("an answer out of turn".to_owned())),
        }
    }

    /// The controller of the connection's present path.
    pub fn view(&self) -> Option<quic::View> {
        quic::view(&self.connection)
    }

    /// Closes the connection; `done` tells whether the work is done or the user interrupted it.
    pub async fn close(&self, done: bool) {
        let number = if done { code::DONE } else { code::INTERRUPTED };
        self.connection.close(VarInt::from_u32(number), b"");
        let _ = timeout(GOODBYE, self.endpoint.wait_idle()).await;
    }

    async fn ask(&self, request: &Request) -> Result<Wire, Trouble> {
        let mut wire = Wire::open(&self.connection, patience(self.silence)).await?;
        wire.send(request).await?;
        Ok(wire)
    }
}

fn patience(silence: Duration) -> Patience {
    Patience::new(silence, Arc::new(Pulse::new()))
}

fn bytes(path: &RelativePath) -> Vec<u8> {
    path.as_bytes().to_vec()
}

fn fingerprint(connection: &Connection) -> Option<Fingerprint> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Some(Fingerprint::of(chain.first()?))
}

/// Whether the error is a server's refusal for lack of a free place.
fn is_busy(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            close.error_code == VarInt::from_u32(code::BUSY)
        }
        // Before the handshake is over, QUIC hides what the application said (RFC 9000 §10.2.3).
        ConnectionError::ConnectionClosed(close) => [
            TransportErrorCode::CONNECTION_REFUSED,
            TransportErrorCode::APPLICATION_ERROR,
        ]
        .contains(&close.error_code),
        _ => false,
    }
}

/// Waits until the handshake should be confirmed, and longer if it is. A handshake is bound to the address that it
/// began from (RFC 9000 §9): the server discards a client's last packet of it from another address, and all later ones.
async fn unconfirmed(connection: &Connection) {
    sleep(CONFIRMED_WITHIN.max(CONFIRMED_WITHIN_RTTS * connection.rtt())).await;
    if connection.stats().frame_rx.handshake_done > 0 {
        std::future::pending().await
    }
}

/// The first of the host's addresses that answers, each being tried a little after the one before.
async fn reach(config: &ClientConfig) -> Result<(Endpoint, Connection), ConnectError> {
    let mut quinn_config = quinn::ClientConfig::new(Arc::new(tls()?));
    let sends = Arc::new(AtomicU64::new(u64::from(WINDOW)));
    let mut transport = transport(&config.scheme, WINDOW, &sends, STREAMS, random_seed());
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    quinn_config.transport_config(Arc::new(transport));
    let mut attempts = JoinSet::new();
    for (index, address) in (0u32..).zip(config.addresses.iter().copied()) {
        let (quinn_config, scheme) = (quinn_config.clone(), config.scheme.clone());
        attempts.spawn(async move {
            sleep(NEXT_ADDRESS * index).await;
            let any = match address {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            let socket = socket::bind(any, SOCKET_BYTES).map_err(ConnectError::Socket)?;
            let endpoint = quic::endpoint(socket.into(), None, scheme.config())
                .map_err(ConnectError::Socket)?;
            let connecting = endpoint
                .connect_with(quinn_config, address, "verus")
                .map_err(|error| ConnectError::Failed(error.to_string()))?;
            let connection = connecting.await.map_err(|error| match error {
                ConnectionError::TimedOut => ConnectError::Failed("no answer".to_owned()),
                error if is_busy(&error) => ConnectError::Busy,
                error => ConnectError::Failed(in_words(&error)),
            })?;
            Ok((endpoint, connection))
        });
    }
    let unreachable = || ConnectError::Unreachable {
        patience: config.patience,
        port: config.host.port,
    };
    let first = async {
        let mut failure = None;
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(reached)) => return Ok(reached),
                Ok(Err(error)) => failure = Some(error),
                Err(error) => failure = Some(ConnectError::Failed(error.to_string())),
            }
        }
        Err(failure.unwrap_or_else(unreachable))
    };
    timeout(config.patience, first)
        .await
        .unwrap_or_else(|_| Err(unreachable()))
}

/// Both ends prove that they know the token. Says whether the server takes files.
async fn greet(
    config: &ClientConfig,
    connection: &Connection,
    actual: Fingerprint,
    recognised: bool,
) -> Result<bool, ConnectError> {
    let failed = |trouble: Trouble| match connection.close_reason() {
        Some(ConnectionError::ApplicationClosed(close))
            if close.error_code == VarInt::from_u32(code::TOKEN) =>
        {
            match config.token {
                Some(_) => ConnectError::WrongToken,
                None => ConnectError::NoToken,
            }
        }
        Some(error) if is_busy(&error) => ConnectError::Busy,
        _ => ConnectError::Failed(trouble.to_string()),
    };
    let channel = channel_secret(connection).map_err(failed)?;
    let token = config.token.as_ref();
    let hello = Request::Hello {
        proof: token.map(|token| token.proof(&channel, Prover::Client)),
    };
    let mut wire = Wire::open(connection, patience(config.patience))
        .await
        .map_err(failed)?;
    wire.send(&hello).await.map_err(failed)?;
    match wire.receive().await.map_err(failed)? {
        Answer::Welcome { proof, writable } => match (token, proof) {
            (Some(token), Some(proof)) if token.verify(&channel, Prover::Server, &proof) => {
                Ok(writable)
            }
            // A server without a token serves anybody; one that is recognised needs no other proof.
            (_, None) if token.is_none() || recognised => Ok(writable),
            (None, Some(_)) => Ok(writable),
            _ => Err(ConnectError::Impostor(actual)),
        },
        _ => Err(failed(Trouble::Protocol(
            "an answer out of turn".to_owned(),
        ))),
    }
}
