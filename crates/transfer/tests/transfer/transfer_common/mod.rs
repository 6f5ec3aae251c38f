//! A server and its clients on the loopback interface.

pub mod raw;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use verus_senders::Scheme;
use verus_transfer::files::{Place, Source};
use verus_transfer::folder::Folder;
use verus_transfer::paths::RelativePath;
use verus_transfer::secrets::{Fingerprint, Identity, Token};
use verus_transfer::trust::Trust;
use verus_transfer::{
    Client, ClientConfig, ConnectError, Delivered, Gauge, Limits, SILENCE, Server, ServerConfig,
    Trouble, bind,
};

pub const TOKEN: &str = "a token for tests only";

/// A served folder, another one for what a client has, and the server.
pub struct World {
    pub home: TempDir,
    pub server: Server,
    pub address: SocketAddr,
    pub fingerprint: Fingerprint,
    /// The token of its clients, if the server requires one.
    token: Option<&'static str>,
}

impl World {
    /// Within a tokio runtime.
    pub fn new() -> World {
        World::with(Limits::default())
    }

    /// With other limits.
    pub fn with(limits: Limits) -> World {
        World::build(limits, 4, Some(TOKEN))
    }

    /// A server without a token, for at most `max_clients` clients.
    pub fn open(limits: Limits, max_clients: usize) -> World {
        World::build(limits, max_clients, None)
    }

    fn build(limits: Limits, max_clients: usize, token: Option<&'static str>) -> World {
        World::around(home(), limits, max_clients, token)
    }

    /// Around `served` and `mine` in a folder that is there already.
    pub fn around(
        home: TempDir,
        limits: Limits,
        max_clients: usize,
        token: Option<&'static str>,
    ) -> World {
        World::start(home, token, |config| {
            (config.max_clients, config.limits) = (max_clients, limits);
        })
    }

    /// The same with the server's configuration changed by `change`.
    pub fn start(
        home: TempDir,
        token: Option<&'static str>,
        change: impl FnOnce(&mut ServerConfig),
    ) -> World {
        let identity = Identity::random().expect("a key");
        let fingerprint = identity.fingerprint();
        let mut config = ServerConfig {
            folder: Folder::open(&home.path().join("served")).expect("it exists"),
            identity,
            access: token
                .map(|token| Token::new(token).expect("long enough"))
                .into(),
            read_only: false,
            // Verus paces itself; these tests are about files.
            scheme: Scheme::parse("cubic").expect("it exists"),
            max_clients: 4,
            limits: Limits::default(),
        };
        change(&mut config);
        let socket = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        let address = socket.local_addr().expect("bound");
        let server = Server::start(config, socket).expect("it starts");
        World {
            home,
            server,
            address,
            fingerprint,
            token,
        }
    }

    pub fn served(&self, name: &str) -> PathBuf {
        self.home.path().join("served").join(name)
    }

    pub fn mine(&self, name: &str) -> PathBuf {
        self.home.path().join("mine").join(name)
    }

    pub fn config(&self) -> ClientConfig {
        ClientConfig {
            host: self.address.to_string().parse().expect("an address"),
            addresses: vec![self.address],
            trust: Trust::Pinned(self.fingerprint),
            token: (self.token).map(|token| Token::new(token).expect("long enough")),
            scheme: Scheme::parse("cubic").expect("it exists"),
            patience: Duration::from_secs(10),
            queueing: Duration::from_secs(10),
            silence: SILENCE,
        }
    }

    pub async fn connect(&self) -> Result<Client, ConnectError> {
        Client::connect(&self.config()).await
    }

    pub async fn put(
        &self,
        client: &Client,
        local: &str,
        remote: &str,
        replace: bool,
    ) -> Result<Delivered, Trouble> {
        let source = Source::new(fs::File::open(self.mine(local)).expect("it exists"));
        let source = source.expect("a file");
        let gauge = Gauge::default();
        client.put(&source, &path(remote), replace, &gauge).await
    }

    pub async fn get(
        &self,
        client: &Client,
        remote: &str,
        local: &str,
        replace: bool,
    ) -> Result<Delivered, Trouble> {
        let place = Place {
            folder: Folder::open(&self.home.path().join("mine")).expect("it exists"),
            name: local.into(),
            replace,
            apart: None,
        };
        client.get(&path(remote), place, &Gauge::default()).await
    }
}

/// A folder with `served` and `mine` in it.
pub fn home() -> TempDir {
    let home = tempfile::tempdir().expect("a folder");
    for name in ["served", "mine"] {
        fs::create_dir(home.path().join(name)).expect("a folder");
    }
    home
}

pub fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).expect("a good path")
}

/// Bytes that do not repeat.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

pub fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("readable") == fs::read(b).expect("readable")
}
