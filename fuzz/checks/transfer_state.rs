//! Invariants of both ends of a file transfer, for any order of messages.
//!
//! The input is a script of messages. Most are well formed, with numbers that fit, so that they get
//! deep. They go to a server, in requests to get and put files, or to a client that gets and puts.
//! Both ends are real, over the loopback interface; their peers are bare QUIC.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use verus_senders::Scheme;
use verus_transfer::access::Access;
use verus_transfer::digest::{BLOCK, Tally};
use verus_transfer::files::{Place, Source};
use verus_transfer::folder::Folder;
use verus_transfer::frames::{
    Answer, Demand, FileInfo, Modified, Request, Subject, Supply, decode, encode,
};
use verus_transfer::paths::RelativePath;
use verus_transfer::secrets::Identity;
use verus_transfer::trust::Trust;
use verus_transfer::{Client, ClientConfig, Gauge, Limits, Server, ServerConfig, bind};

#[path = "peer.rs"]
pub mod peer;

/// Messages of one script.
const MESSAGES: usize = 64;
/// Bytes that one script may send as data.
const DATA: u64 = 1 << 20;
/// The longest time for a script; a longer one means that an end waits for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long either end waits for the other's next word.
const SILENCE: Duration = Duration::from_secs(1);

/// The file that the server has, and its parts: a block, a hole and a torn block.
const OLD: &str = "old";

static PANICS: AtomicU64 = AtomicU64::new(0);

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn size(&mut self) -> u64 {
        let by = self.byte();
        match by % 8 {
            0 => 0,
            1 => u64::from(self.byte()),
            2 => BLOCK,
            3 => 3 * BLOCK + 5,
            4 => BLOCK * u64::from(self.byte()),
            5 => BLOCK * 16 + u64::from(self.byte()),
            6 => 1 << (self.byte() % 64),
            _ => u64::MAX >> (self.byte() % 64),
        }
    }

    fn path(&mut self) -> Vec<u8> {
        let by = self.byte();
        let names: [&[u8]; 12] = [
            b"old",
            b"new",
            b"",
            b"..",
            b"folder",
            b"folder/new",
            b"folder/../../sentinel",
            b"/etc/passwd",
            b".old.verus-part",
            b"link/new",
            b"a\nb",
            b"new",
        ];
        names[usize::from(by) % names.len()].to_vec()
    }

    fn info(&mut self) -> FileInfo {
        FileInfo {
            size: self.size(),
            modified: self.byte().is_multiple_of(2).then(|| Modified {
                seconds: i64::from(self.byte()) << (self.byte() % 56),
                nanos: u32::from(self.byte()),
            }),
            executable: self.byte().is_multiple_of(2),
        }
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = usize::from(self.byte()).min(most).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken.to_vec()
    }

    fn digest(&mut self) -> [u8; 32] {
        [self.byte(); 32]
    }

    fn refusal(&mut self) -> verus_transfer::refusal::Refusal {
        use verus_transfer::refusal::{Reason, Refusal};
        Refusal::new(Reason::Protocol, String::from_utf8_lossy(&self.bytes(64)))
    }

    /// The messages of the end that a file goes to; right digests are those of the old file.
    fn demands(&mut self, into: &mut Vec<u8>) {
        let mut tally = Tally::new(contents().len() as u64);
        for _ in 0..MESSAGES {
            if self.0.is_empty() {
                break;
            }
            let demand = match self.byte() % 12 {
                0 => Demand::Check {
                    subject: Subject::Target,
                    bytes: self.size(),
                },
                1 => Demand::Check {
                    subject: Subject::Part,
                    bytes: self.size(),
                },
                2 => Demand::Check {
                    subject: Subject::Part,
                    bytes: contents().len() as u64,
                },
                3 => Demand::Check {
                    subject: Subject::Target,
                    bytes: contents().len() as u64,
                },
                4 => Demand::Piece(self.digest()),
                5 | 6 => {
                    if tally.position() == 0 {
                        tally.data(contents());
                    }
                    Demand::Piece(tally.latest())
                }
                7 | 8 => Demand::EndOfPieces,
                9 => Demand::Received {
                    position: self.size(),
                },
                10 => Demand::Done,
                _ => Demand::Failed(self.refusal()),
            };
            put(into, &demand);
            self.mischief(into);
        }
    }

    /// The messages of the end that a file of `size` comes from.
    fn supplies(&mut self, size: u64, into: &mut Vec<u8>) {
        let mut tally = (size <= DATA).then(|| Tally::new(size));
        let mut sent = 0;
        for _ in 0..MESSAGES {
            if self.0.is_empty() {
                break;
            }
            let supply = match self.byte() % 12 {
                0 | 1 => Supply::Same(true),
                2 => Supply::Same(false),
                3..=6 => {
                    // The next data in order, or from the beginning, or later.
                    let position = tally.as_ref().map_or(0, Tally::position);
                    let at = match self.byte() % 4 {
                        0 => self.size() / BLOCK * BLOCK,
                        1 => (position + BLOCK).min(size) / BLOCK * BLOCK,
                        _ => position,
                    };
                    let length = match self.byte() % 4 {
                        0 => self.size(),
                        _ => BLOCK.min(size.saturating_sub(at)),
                    };
                    if length > 4 * BLOCK
                        || sent + length > DATA
                        || at.checked_add(length).is_none()
                    {
                        continue;
                    }
                    sent += length;
                    put(into, &Supply::Data { at, length });
                    let bytes = vec![self.byte(); length as usize];
                    into.extend_from_slice(&bytes);
                    let fits = |tally: &Tally| {
                        at >= tally.position()
                            && at + length <= size
                            && at.is_multiple_of(BLOCK)
                            && (length.is_multiple_of(BLOCK) || at + length == size)
                    };
                    if let Some(tally) = tally.as_mut().filter(|tally| fits(tally)) {
                        tally.zeros(at);
                        tally.data(&bytes);
                    }
                    continue;
                }
                7 => Supply::End {
                    digest: self.digest(),
                },
                8..=10 => match &tally {
                    Some(tally) => Supply::End {
                        digest: tally.clone().finish(),
                    },
                    None => Supply::End {
                        digest: self.digest(),
                    },
                },
                _ => Supply::Failed(self.refusal()),
            };
            put(into, &supply);
            self.mischief(into);
        }
    }

    /// Now and then something that is no message.
    fn mischief(&mut self, into: &mut Vec<u8>) {
        if self.byte() == 255 {
            let bytes = self.bytes(255);
            into.extend_from_slice(&bytes);
        }
    }
}

fn put<F: verus_transfer::frames::Frame>(into: &mut Vec<u8>, frame: &F) {
    into.extend_from_slice(&encode(frame).expect("short enough"));
}

fn contents() -> &'static [u8] {
    static CONTENTS: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENTS.get_or_init(|| {
        let mut bytes = vec![7; BLOCK as usize];
        bytes.resize(3 * BLOCK as usize, 0);
        bytes.extend_from_slice(b"hello");
        bytes
    })
}

/// Both real ends, their peers, and their folders.
struct Stage {
    runtime: Runtime,
    home: PathBuf,
    _home: tempfile::TempDir,
    server: SocketAddr,
    serving: Server,
    /// Bare QUIC towards the server.
    against_server: quinn::Endpoint,
    server_connection: Option<quinn::Connection>,
    /// A real client and the bare server that it talks to.
    client: Option<(Client, quinn::Connection)>,
    bare_server: quinn::Endpoint,
    bare_address: SocketAddr,
    identity: Identity,
}

fn stage() -> &'static Mutex<Stage> {
    static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();
    STAGE.get_or_init(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            hook(panic);
        }));
        Mutex::new(Stage::new().expect("a stage can be set on this machine"))
    })
}

impl Stage {
    fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let home_folder = tempfile::tempdir()?;
        let home = home_folder.path().to_owned();
        for name in ["served", "mine"] {
            fs::create_dir(home.join(name))?;
        }
        fs::write(home.join("sentinel"), b"untouched")?;
        let guard = runtime.enter();
        let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        let identity = Identity::random().map_err(|error| other(&error))?;
        let config = ServerConfig {
            folder: Folder::open(&home.join("served"))?,
            identity: Identity::random().map_err(|error| other(&error))?,
            access: Access::from(None),
            read_only: false,
            scheme: Scheme::parse("cubic").expect("it is in the list"),
            max_clients: 4,
            limits: Limits {
                silence: SILENCE,
                ..Limits::default()
            },
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = bind(local)?;
        let server_address = socket.local_addr()?;
        let server = Server::start(config, socket)?;
        let against_server = quinn::Endpoint::client(local)?;
        let bare_server = peer::listener(quinn::TransportConfig::default(), &identity);
        let bare_address = bare_server.local_addr()?;
        drop(guard);
        Ok(Stage {
            runtime,
            home,
            _home: home_folder,
            server: server_address,
            serving: server,
            against_server,
            server_connection: None,
            client: None,
            bare_server,
            bare_address,
            identity,
        })
    }

    /// The folders as each script finds them, and nothing left to tell, for which clients would have to wait.
    fn reset(&mut self) {
        while self.serving.try_event().is_some() {}
        for name in ["served", "mine"] {
            let folder = self.home.join(name);
            for entry in fs::read_dir(&folder).expect("it exists").flatten() {
                let path = entry.path();
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
            fs::write(folder.join(OLD), contents()).expect("ours");
            fs::create_dir(folder.join("folder")).expect("ours");
            std::os::unix::fs::symlink(&self.home, folder.join("link")).expect("ours");
        }
    }

    /// Nothing has come out of the folders, and no file is there that was not finished under its name.
    fn check(&self) {
        let outside = fs::read(self.home.join("sentinel")).expect("it is still there");
        assert_eq!(outside, b"untouched");
        let mut names: Vec<_> = fs::read_dir(&self.home)
            .expect("it exists")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["mine", "sentinel", "served"], "something got out");
        for name in ["served", "mine"] {
            assert!(
                on_disk(&self.home.join(name)) <= 8 << 20,
                "more than was sent"
            );
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a task panicked");
    }
}

fn on_disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).expect("it exists").flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => on_disk(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Plays the script.
///
/// # Panics
/// If an end panics, waits for ever, or touches files outside its folder.
pub fn check(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut stage = stage().lock().unwrap_or_else(PoisonError::into_inner);
    stage.reset();
    let stage = &mut *stage;
    let handle = stage.runtime.handle().clone();
    let played = handle.block_on(async {
        let against_server = script.byte() % 2 == 0;
        timeout(PATIENCE, async {
            if against_server {
                against_the_server(stage, &mut script).await
            } else {
                against_the_client(stage, &mut script).await
            }
        })
        .await
    });
    assert!(played.is_ok(), "somebody waits for ever");
    stage.check();
}

async fn against_the_server(stage: &mut Stage, script: &mut Script<'_>) {
    let mut out = Vec::new();
    let by = script.byte();
    match by % 6 {
        0 | 1 => {
            let file = script.info();
            let request = Request::Put {
                path: script.path(),
                file,
                replace: script.byte().is_multiple_of(2),
            };
            put(&mut out, &request);
            script.supplies(file.size, &mut out);
        }
        2 | 3 => {
            put(
                &mut out,
                &Request::Get {
                    path: script.path(),
                },
            );
            script.demands(&mut out);
        }
        4 => {
            put(
                &mut out,
                &Request::List {
                    path: script.path(),
                },
            );
            script.mischief(&mut out);
        }
        _ => {
            put(
                &mut out,
                &Request::MakeFolder {
                    path: script.path(),
                },
            );
            script.mischief(&mut out);
        }
    }
    let Some(connection) = bare_connection(stage).await else {
        return;
    };
    let Ok((mut send, mut receive)) = connection.open_bi().await else {
        return;
    };
    let cut = by >= 128;
    let write = async {
        let _ = send.write_all(&out).await;
        if cut {
            let _ = send.reset(quinn::VarInt::from_u32(0));
        } else {
            let _ = send.finish();
        }
    };
    let read = async { while let Ok(Some(_)) = receive.read_chunk(1 << 16, true).await {} };
    tokio::join!(write, read);
}

/// A connection to the server on which the first words have been said.
async fn bare_connection(stage: &mut Stage) -> Option<quinn::Connection> {
    if let Some(connection) = &stage.server_connection
        && connection.close_reason().is_none()
    {
        return Some(connection.clone());
    }
    let config = peer::calling(quinn::TransportConfig::default());
    let connecting = stage
        .against_server
        .connect_with(config, stage.server, "verus");
    let connection = connecting
        .expect("a valid name")
        .await
        .expect("the server lives");
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    let hello = encode(&Request::Hello { proof: None }).expect("short");
    send.write_all(&hello).await.ok()?;
    let _ = send.finish();
    let mut length = [0; 2];
    receive.read_exact(&mut length).await.ok()?;
    stage.server_connection = Some(connection.clone());
    Some(connection)
}

async fn against_the_client(stage: &mut Stage, script: &mut Script<'_>) {
    let by = script.byte();
    let path = script.path();
    let mut out = Vec::new();
    match by % 3 {
        0 => {
            let file = script.info();
            put(&mut out, &Answer::Offer { file });
            script.supplies(file.size, &mut out);
        }
        1 => script.demands(&mut out),
        _ => {
            for _ in 0..MESSAGES {
                if script.0.is_empty() {
                    break;
                }
                let answer = match script.byte() % 6 {
                    0 | 1 => Answer::File {
                        path: script.path(),
                        file: script.info(),
                    },
                    2 => Answer::Folder {
                        path: script.path(),
                    },
                    3 => Answer::Unavailable {
                        path: script.path(),
                        why: script.refusal(),
                    },
                    4 => Answer::Refused(script.refusal()),
                    _ => Answer::EndOfList,
                };
                put(&mut out, &answer);
                script.mischief(&mut out);
            }
        }
    }
    let alive = |(_, connection): &(Client, quinn::Connection)| connection.close_reason().is_none();
    if !stage.client.as_ref().is_some_and(alive) {
        stage.client = meet(stage).await;
    }
    let Some((client, connection)) = &stage.client else {
        return;
    };
    let answering = async {
        let Ok((mut send, mut receive)) = connection.accept_bi().await else {
            return;
        };
        let write = async {
            let _ = send.write_all(&out).await;
            let _ = send.finish();
        };
        let read = async { while let Ok(Some(_)) = receive.read_chunk(1 << 16, true).await {} };
        tokio::join!(write, read);
    };
    let Ok(path) = RelativePath::parse(&path) else {
        return;
    };
    let asking = async {
        let gauge = Gauge::default();
        let mine = stage.home.join("mine");
        match by % 3 {
            0 => {
                let place = Place {
                    folder: Folder::open(&mine).expect("it exists"),
                    name: "new".into(),
                    replace: by >= 128,
                    apart: None,
                };
                let _ = client.get(&path, place, &gauge).await;
            }
            1 => {
                let source = Source::new(fs::File::open(mine.join(OLD)).expect("ours"));
                let source = source.expect("a file");
                let _ = client.put(&source, &path, by >= 128, &gauge).await;
            }
            _ => {
                if let Ok(list) = client.list(&path).await {
                    assert!(list.len() <= MESSAGES);
                }
            }
        }
    };
    tokio::select! {
        // It receives all remaining messages, and must come to an end then.
        () = asking => {}
        () = async { answering.await; std::future::pending::<()>().await } => {}
    }
}

/// A real client, connected to the bare server, and the bare server's end.
async fn meet(stage: &Stage) -> Option<(Client, quinn::Connection)> {
    let config = ClientConfig {
        host: stage.bare_address.to_string().parse().expect("an address"),
        addresses: vec![stage.bare_address],
        trust: Trust::Pinned(stage.identity.fingerprint()),
        token: None,
        scheme: Scheme::parse("cubic").expect("it is in the list"),
        patience: PATIENCE,
        queueing: Duration::ZERO,
        silence: SILENCE,
    };
    let welcome = async {
        let connection = stage.bare_server.accept().await?.await.ok()?;
        let (mut send, mut receive) = connection.accept_bi().await.ok()?;
        let mut length = [0; 2];
        receive.read_exact(&mut length).await.ok()?;
        let mut hello = vec![0; usize::from(u16::from_le_bytes(length))];
        receive.read_exact(&mut hello).await.ok()?;
        decode::<Request>(&hello).expect("a client says what can be read");
        let answer = Answer::Welcome {
            proof: None,
            writable: true,
        };
        send.write_all(&encode(&answer).expect("short"))
            .await
            .ok()?;
        let _ = send.finish();
        Some(connection)
    };
    let (client, connection) = tokio::join!(Client::connect(&config), welcome);
    Some((client.ok()?, connection?))
}
