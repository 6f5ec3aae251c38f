//! Servers and clients of file transfers as processes, with a home of their own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

pub use crate::common::refused;

const ENDPOINT: &str = env!("CARGO_BIN_EXE_verus-endpoint");

/// A folder for all files of a test: keys of both ends, served files, and the client's.
pub struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        let scene = Scene {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        for name in ["served", "here"] {
            fs::create_dir(scene.path(name)).expect("an empty folder");
        }
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The text of a path.
    pub fn text(&self, name: &str) -> String {
        let path = self.path(name).into_os_string();
        path.into_string().expect("plain")
    }

    pub fn write(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).expect("a small file");
    }

    /// The same for its owner alone.
    pub fn secret(&self, name: &str, contents: &[u8]) {
        self.write(name, contents);
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.path(name), mode).expect("our own");
    }

    /// The names of entries in a folder, hidden or not.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("it is there");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("plain");
        let mut names: Vec<_> = entries
            .map(|entry| name(entry.expect("readable")))
            .collect();
        names.sort();
        names
    }

    /// A command that knows no keys, tokens and hosts but those of `config`; spaces part its words.
    pub fn command(&self, config: &str, words: &str) -> Command {
        let mut command = Command::new(ENDPOINT);
        command
            .args(words.split_whitespace())
            .current_dir(self.path("here"))
            .env("VERUS_CONFIG", self.path(config))
            .env_remove("VERUS_TOKEN")
            .stdin(Stdio::null());
        command
    }

    /// The same, run to its end.
    pub fn run(&self, config: &str, words: &str) -> Output {
        run(&mut self.command(config, words))
    }

    /// Runs a client's command to its end; the client has a copy of the server's token file.
    pub fn client(&self, words: &str) -> Output {
        run(&mut self.client_command(words))
    }

    pub fn client_command(&self, words: &str) -> Command {
        let mut command = self.command("client", words);
        if let Ok(token) = fs::read_to_string(self.path("server/token")) {
            command.env("VERUS_TOKEN", token.trim());
        }
        command
    }

    /// Serves `served` on a free port.
    pub fn serve(&self, more: &str) -> Server {
        self.serve_on(0, more)
    }

    pub fn serve_on(&self, port: u16, more: &str) -> Server {
        Server::start(self.serving("served", port, more))
    }

    /// The command that serves `folder`.
    pub fn serving(&self, folder: &str, port: u16, more: &str) -> Command {
        let folder = self.text(folder);
        let words = format!("serve {folder} --bind 127.0.0.1 --port {port} --json {more}");
        self.command("server", &words)
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    command.output().expect("the binary runs")
}

/// A running server; dropping it kills it.
pub struct Server {
    child: Child,
    /// Open as long as the server runs: one whose listener is gone ends.
    out: BufReader<ChildStdout>,
    pub address: SocketAddr,
    pub fingerprint: String,
    /// Its first report.
    pub start: Value,
}

impl Server {
    pub fn start(mut command: Command) -> Server {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let said: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: `{line}`"));
        let text = |name: &str| said[name].as_str().expect("a text").to_owned();
        assert_eq!(said["event"], "listening");
        Server {
            child,
            out,
            address: text("address").parse().expect("an address"),
            fingerprint: text("fingerprint"),
            start: said,
        }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its address and a path below the folder that it serves.
    pub fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.address)
    }

    /// SIGKILL: it does nothing more.
    pub fn kill(mut self) {
        self.child.kill().expect("it ran");
        self.child.wait().expect("it is gone");
    }

    /// Its next report.
    pub fn event(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: `{line}`"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port on which nobody listens, at least for now.
pub fn free_port() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
    socket.local_addr().expect("it is bound").port()
}

pub fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}
