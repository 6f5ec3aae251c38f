//! Servers and clients of `probe` as processes, on loopback.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

pub use crate::common::refused;

pub const ENDPOINT: &str = env!("CARGO_BIN_EXE_verus-endpoint");

/// A running server and its output, of which the first line is read; dropping it ends it.
pub struct Server {
    pub child: Child,
    /// Open as long as the server runs: one whose listener is gone ends.
    pub out: BufReader<ChildStdout>,
    pub address: String,
    pub first: String,
}

impl Server {
    /// With more options; spaces part words.
    pub fn start(more: &str) -> Server {
        let mut child = Command::new(ENDPOINT)
            .args(["probe", "server", "--bind", "127.0.0.1", "--port", "0"])
            .args(more.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut first = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut first).expect("a line");
        let address = first
            .split([' ', '"', ';', ','])
            .find(|word| word.starts_with("127.0.0.1:"))
            .unwrap_or_else(|| panic!("no address in `{first}`"))
            .trim_end()
            .to_owned();
        Server {
            child,
            out,
            address,
            first,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a probe; spaces part words.
pub fn client(words: &str) -> Output {
    run(&format!("client {words}"))
}

/// Runs a probe, which says these words, parted by `+`, and ends with this code.
pub fn fails(words: &str, code: i32, said: &str) {
    refused(&client(words), code, &said.split(" + ").collect::<Vec<_>>());
}

pub fn run(words: &str) -> Output {
    Command::new(ENDPOINT)
        .arg("probe")
        .args(words.split_whitespace())
        .output()
        .expect("the binary runs")
}

/// The address of a port on which nobody listens.
pub fn nobody() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").to_string()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("plain")
}
