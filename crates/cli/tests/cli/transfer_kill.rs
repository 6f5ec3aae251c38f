//! `kill -9` of either end at several points of a large transfer. The same command again continues
//! where the last one stopped, the file is whole in the end, and hardly any data cross twice.
//!
//! A proxy between the ends counts the bytes on the wire. They are compared with an undisturbed
//! transfer of the same file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::transfer_common::{Scene, Server};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rand::Rng;
use verus_core::random;
use verus_faults::{Bottleneck, Proxy, ProxyConfig, machine};

/// How a file is disturbed on its way.
#[derive(Clone, Copy)]
struct Disturbance {
    /// The controller of both ends.
    scheme: &'static str,
    /// Size of the file, unless `VERUS_KILL_BYTES` says another.
    bytes: u64,
    /// How often an end is killed.
    kills: u64,
    /// The rate of the link in the file's direction, in Mbit/s, which must be within this machine's
    /// pace. QUIC sends data again that a busy process reads too late, so the count would show the
    /// load of the machine.
    mbps: f64,
}

/// Bytes that may cross twice for each kill: at most a piece (1 MiB for files of this size) and the
/// bytes in flight. On average, half a piece.
const TWICE: u64 = 1_000_000;

/// The scheme that fills a link soonest.
const CUBIC: Disturbance = Disturbance {
    scheme: "cubic",
    bytes: 300_000_000,
    kills: 10,
    mbps: 800.0,
};
/// The default scheme. Each attempt begins with a slow start; packets dropped by the link's queue
/// then have not crossed.
const VERUS: Disturbance = Disturbance {
    scheme: "verus",
    bytes: 100_000_000,
    kills: 4,
    mbps: 300.0,
};

/// An attempt that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The direction of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Up,
    Down,
}

/// Little is under way when an end is killed: 2.5 ms at 800 Mbit/s.
const QUEUE: &str = "droptail:bytes=250000";

impl Disturbance {
    fn bottleneck(&self) -> Bottleneck {
        Bottleneck::new(self.mbps, QUEUE)
    }

    fn bytes(&self) -> u64 {
        match std::env::var("VERUS_KILL_BYTES") {
            Ok(bytes) => bytes.parse().expect("VERUS_KILL_BYTES is a number"),
            Err(_) => self.bytes,
        }
    }
}

/// Bytes that no compression and no hole makes fewer.
fn make(path: &Path, bytes: u64) {
    let mut random = random::stream(1, "file", 0);
    let mut file = BufWriter::new(File::create(path).expect("there is room"));
    let mut block = vec![0; 1 << 20];
    let mut rest = bytes;
    while rest > 0 {
        let part = rest.min(block.len() as u64) as usize;
        random.fill_bytes(&mut block[..part]);
        file.write_all(&block[..part]).expect("there is room");
        rest -= part as u64;
    }
    file.flush().expect("there is room");
}

fn digest(path: &Path) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(File::open(path).expect("it arrived"))
        .expect("it can be read");
    hasher.finalize()
}

/// A client and a server, and what lies between them.
struct Stage<'a> {
    scene: &'a Scene,
    direction: Direction,
    scheme: &'static str,
    proxy: Proxy,
    server: Option<Server>,
    port: u16,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Scene, direction: Direction, how: Disturbance) -> Stage<'a> {
        let scheme = how.scheme;
        let server = scene.serve(&format!("--scheme {scheme}"));
        let mut config = ProxyConfig::new(server.address);
        match direction {
            Direction::Up => config.up = Some(how.bottleneck()),
            Direction::Down => config.down = Some(how.bottleneck()),
        }
        let proxy = Proxy::start(config).expect("a few sockets");
        Stage {
            scene,
            direction,
            scheme,
            proxy,
            port: server.address.port(),
            server: Some(server),
        }
    }

    /// Begins, or goes on.
    fn client(&self) -> Child {
        let (address, scheme) = (self.proxy.addr(), self.scheme);
        let words = match self.direction {
            Direction::Up => format!("send file {address} --quiet --scheme {scheme}"),
            Direction::Down => format!("receive {address}/file --quiet --scheme {scheme}"),
        };
        let mut command = self.scene.client_command(&words);
        command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs")
    }

    /// Bytes that have come through, the file's direction, so far.
    fn crossed(&self) -> u64 {
        let stats = self.proxy.stats();
        match self.direction {
            Direction::Up => stats.up.delivered_bytes,
            Direction::Down => stats.down.delivered_bytes,
        }
    }

    /// Waits until so much has crossed. Returns whether it did before the client ended.
    fn wait(&self, client: &mut Child, until: u64) -> bool {
        let began = now();
        while self.crossed() < until {
            if client.try_wait().expect("it is ours").is_some() {
                return false;
            }
            assert!(now().duration_since(began) < PATIENCE, "it hangs");
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// To the end.
    fn finish(&self, client: Child) {
        let output = client.wait_with_output().expect("it is ours");
        assert!(output.status.success(), "{output:?}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test that hangs must end; no result depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

/// Kills one end after the other; returns how much crossed.
fn disturbed(scene: &Scene, direction: Direction, how: Disturbance) -> u64 {
    let mut stage = Stage::new(scene, direction, how);
    for kill in 1..=how.kills {
        let mut client = stage.client();
        let point = how.bytes() / (how.kills + 1) * kill;
        assert!(stage.wait(&mut client, point), "it ended before {point}");
        if kill.is_multiple_of(2) {
            stage.server.take().expect("it runs").kill();
            stage.server = Some(scene.serve_on(stage.port, &format!("--scheme {}", how.scheme)));
            // The server has forgotten the connection, and says so.
            let output = client.wait_with_output().expect("it is ours");
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("the same command again"), "{error}");
        } else {
            // Ctrl-C first, which is answered with its own exit code; then nothing can be answered.
            let (signal, code) = match kill {
                1 => (Signal::SIGINT, Some(130)),
                _ => (Signal::SIGKILL, None),
            };
            let id = Pid::from_raw(client.id().cast_signed());
            nix::sys::signal::kill(id, signal).expect("it runs");
            assert_eq!(client.wait().expect("it is ours").code(), code);
        }
        let (folder, name) = match direction {
            Direction::Up => ("served", "file"),
            Direction::Down => ("here", "file"),
        };
        assert!(
            !scene.names(folder).contains(&name.to_owned()),
            "what is not whole has its name"
        );
    }
    stage.finish(stage.client());
    stage.crossed()
}

fn undisturbed(scene: &Scene, direction: Direction, how: Disturbance) -> u64 {
    let stage = Stage::new(scene, direction, how);
    stage.finish(stage.client());
    stage.crossed()
}

/// One at a time: each needs room for its file twice.
static ROOM: Mutex<()> = Mutex::new(());

fn check(direction: Direction, how: Disturbance) {
    // A proxy that stands still for 10 ms drops up to a megabyte, which crosses again.
    let _machine = machine::watch(10);
    let _room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::new();
    let (from, to) = match direction {
        Direction::Up => ("here/file", "served/file"),
        Direction::Down => ("served/file", "here/file"),
    };
    let bytes = how.bytes();
    make(&scene.path(from), bytes);
    let whole = digest(&scene.path(from));
    let once = undisturbed(&scene, direction, how);
    assert_eq!(digest(&scene.path(to)), whole);
    std::fs::remove_file(scene.path(to)).expect("it arrived");
    let crossed = disturbed(&scene, direction, how);
    assert_eq!(digest(&scene.path(to)), whole, "the file is not whole");
    let twice = crossed.saturating_sub(once);
    println!(
        "{direction:?} with {}: {once} bytes undisturbed, {crossed} with {} kills: {twice} twice",
        how.scheme, how.kills
    );
    assert!(twice <= how.kills * TWICE, "{twice} bytes crossed twice");
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_file_that_is_sent_survives_ten_kills() {
    check(Direction::Up, CUBIC);
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_file_that_is_received_survives_ten_kills() {
    check(Direction::Down, CUBIC);
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_file_that_is_sent_with_verus_survives_four_kills() {
    check(Direction::Up, VERUS);
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_file_that_is_received_with_verus_survives_four_kills() {
    check(Direction::Down, VERUS);
}
