//! `kill -9` of either end at ten points of a large transfer: the same command again goes on where the last
//! one stopped, the file is whole in the end, and hardly anything crosses twice.
//!
//! What crosses is counted on the wire, by a proxy between the ends, and compared with a transfer of the
//! same file that nobody disturbs.

mod transfer_common;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::Rng;
use transfer_common::{Scene, Server};
use verus_core::random;
use verus_faults::{Proxy, ProxyConfig};

/// Size of the file, unless `VERUS_KILL_BYTES` says another.
const BYTES: u64 = 1_000_000_000;
/// How often an end is killed.
const KILLS: u64 = 10;
/// The share of the file that may cross twice.
const TWICE: f64 = 0.01;
/// Verus keeps delay low where a link limits it. Between two processes on one machine nothing does, and this
/// test is about files: a controller that fills whatever there is makes it short.
const SCHEME: &str = "cubic";
/// An attempt that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which way the file goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Up,
    Down,
}

fn bytes() -> u64 {
    match std::env::var("VERUS_KILL_BYTES") {
        Ok(bytes) => bytes.parse().expect("VERUS_KILL_BYTES is a number"),
        Err(_) => BYTES,
    }
}

/// Bytes that no compression and no hole makes fewer.
fn make(path: &Path, bytes: u64) {
    let mut random = random::stream(1, "file", 0);
    let mut file = BufWriter::new(File::create(path).expect("there is room"));
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64) as usize;
        random.fill_bytes(&mut block[..part]);
        file.write_all(&block[..part]).expect("there is room");
        left -= part as u64;
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
    way: Way,
    proxy: Proxy,
    server: Option<Server>,
    port: u16,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Scene, way: Way) -> Stage<'a> {
        let server = scene.serve(&["--scheme", SCHEME]);
        let proxy = Proxy::start(ProxyConfig::new(server.address)).expect("a few sockets");
        Stage {
            scene,
            way,
            proxy,
            port: server.address.port(),
            server: Some(server),
        }
    }

    /// Begins, or goes on.
    fn client(&self) -> Child {
        let (address, from) = (
            self.proxy.addr().to_string(),
            format!("{}/file", self.proxy.addr()),
        );
        let words: &[&str] = match self.way {
            Way::Up => &["send", "file", &address],
            Way::Down => &["receive", &from],
        };
        let words = [words, &["--quiet", "--scheme", SCHEME]].concat();
        let mut command = self.scene.client_command(&words);
        command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs")
    }

    /// Bytes that have set out with the file, so far.
    fn crossed(&self) -> u64 {
        let stats = self.proxy.stats();
        match self.way {
            Way::Up => stats.up.sent_bytes,
            Way::Down => stats.down.sent_bytes,
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
fn disturbed(scene: &Scene, way: Way, bytes: u64) -> u64 {
    let mut stage = Stage::new(scene, way);
    for kill in 1..=KILLS {
        let mut client = stage.client();
        let point = bytes / (KILLS + 1) * kill;
        assert!(stage.wait(&mut client, point), "it ended before {point}");
        if kill.is_multiple_of(2) {
            stage.server.take().expect("it runs").kill();
            stage.server = Some(scene.serve_on(stage.port, &["--scheme", SCHEME]));
            // The server has forgotten the connection, and says so.
            let output = client.wait_with_output().expect("it is ours");
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("the same command again"), "{error}");
        } else {
            client.kill().expect("it runs");
            client.wait().expect("it is ours");
        }
        let (folder, name) = match way {
            Way::Up => ("served", "file"),
            Way::Down => ("here", "file"),
        };
        assert!(
            !scene.names(folder).contains(&name.to_owned()),
            "what is not whole has its name"
        );
    }
    stage.finish(stage.client());
    stage.crossed()
}

fn undisturbed(scene: &Scene, way: Way) -> u64 {
    let stage = Stage::new(scene, way);
    stage.finish(stage.client());
    stage.crossed()
}

fn check(way: Way) {
    let scene = Scene::new();
    let (from, to) = match way {
        Way::Up => ("here/file", "served/file"),
        Way::Down => ("served/file", "here/file"),
    };
    let bytes = bytes();
    make(&scene.path(from), bytes);
    let whole = digest(&scene.path(from));
    let once = undisturbed(&scene, way);
    assert_eq!(digest(&scene.path(to)), whole);
    std::fs::remove_file(scene.path(to)).expect("it arrived");
    let crossed = disturbed(&scene, way, bytes);
    assert_eq!(digest(&scene.path(to)), whole, "the file is not whole");
    let twice = (crossed as f64 - once as f64) / bytes as f64;
    println!("{way:?}: {once} bytes undisturbed, {crossed} with {KILLS} kills: {twice:.4} twice");
    assert!(twice <= TWICE, "{twice} of the file crossed twice");
}

#[test]
fn a_file_that_is_sent_survives_ten_kills() {
    check(Way::Up);
}

#[test]
fn a_file_that_is_received_survives_ten_kills() {
    check(Way::Down);
}
