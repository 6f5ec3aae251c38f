//! Any program as a sender: `cmd:SENDER => RECEIVER`.
//!
//! Both are shell command lines, one in each namespace, which receive the receiver's address. Their
//! protocol is unknown here. The link measures their packets by the receiver's port. If the only
//! flow of a run is one program's, it gets all packets that belong to no other flow.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration as Span;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use verus_senders::Program;

use super::flow::{Flow, Outcome};
use super::stage::now;

/// Interval of checks for the end of the run, or of a program.
const LOOK: Span = Span::from_millis(10);
/// How long a program has to end after the signal.
const LEAVE: Span = Span::from_millis(500);
/// How long a receiver may take until it listens. Others wait longer for it, so that the error
/// names the receiver.
const UNTIL_IT_LISTENS: Span = Span::from_secs(15);
/// Bytes kept of a line that a program prints.
const LONGEST_LINE: u64 = 1000;

/// Receives until the run is over. Returns the number of bytes, if the receiver is ours.
pub fn receive(flow: &Flow<'_>, program: &Program) -> io::Result<Option<u64>> {
    let Some(receiver) = &program.receiver else {
        return sink(flow).map(Some);
    };
    let mut running = Running::start("receiver", receiver, flow)?;
    let began = now();
    while !flow.stage.is_over() && !listens(flow.receiver)? {
        running.look()?;
        if now() - began > UNTIL_IT_LISTENS {
            let (address, patience) = (flow.receiver, UNTIL_IT_LISTENS.as_secs());
            return Err(io::Error::other(format!(
                "the receiver `{receiver}` did not listen at {address} ({{host}}:{{port}}) within {patience} s, over TCP or UDP"
            )));
        }
        thread::sleep(LOOK);
    }
    flow.stage.listen(flow.index);
    running.until_over(flow)?;
    Ok(None)
}

/// Sends until the run is over.
pub fn send(flow: &Flow<'_>, program: &Program) -> io::Result<Outcome> {
    flow.stage
        .announce_program(flow.index, flow.receiver.port());
    flow.stage.await_play()?;
    Running::start("sender", &program.sender, flow)?.until_over(flow)?;
    Ok(Outcome {
        transport: "program",
        ..Default::default()
    })
}

/// Accepts connections, and counts and drops their data.
fn sink(flow: &Flow<'_>) -> io::Result<u64> {
    let listener = TcpListener::bind(flow.receiver)?;
    listener.set_nonblocking(true)?;
    flow.stage.listen(flow.index);
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = vec![0; 1 << 18];
    let mut received = 0;
    while !flow.stage.is_over() {
        let mut idle = true;
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        streams.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                received += read as u64;
                idle = false;
                true
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        if idle {
            thread::sleep(Span::from_millis(1));
        }
    }
    Ok(received)
}

/// Whether a socket of the calling thread's namespace is bound to the port.
fn listens(receiver: SocketAddr) -> io::Result<bool> {
    let port = format!(":{:04X}", receiver.port());
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        // A system without IPv6 has no such table.
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        let is_listening = table.unwrap_or_default().lines().skip(1).any(|line| {
            let local = line.split_whitespace().nth(1);
            local.is_some_and(|local| local.ends_with(&port))
        });
        if is_listening {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A running program, with all its children.
struct Running {
    end: &'static str,
    child: Child,
    last_line: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a command in the calling thread's namespace.
    fn start(end: &'static str, command: &str, flow: &Flow<'_>) -> io::Result<Self> {
        let seconds = flow.duration.as_secs_f64().ceil();
        let placeholders = [
            ("host", flow.receiver.ip().to_string()),
            ("port", flow.receiver.port().to_string()),
            ("seconds", seconds.to_string()),
            ("seed", flow.seed.to_string()),
        ];
        let mut words = command.to_owned();
        let mut shell = Command::new(std::env::current_exe()?);
        shell.args([crate::LAUNCH, "--parent", &std::process::id().to_string()]);
        for (name, value) in &placeholders {
            words = words.replace(&format!("{{{name}}}"), value);
            shell.env(format!("VERUS_{}", name.to_uppercase()), value);
        }
        // With a single command, the shell executes it in place.
        shell.args(["--", "/bin/sh", "-c", &words]);
        let shell = shell.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = shell.stderr(Stdio::piped()).process_group(0).spawn()?;
        let last_line = child
            .stderr
            .take()
            .map(|said| thread::spawn(|| last_line(said)));
        Ok(Running {
            end,
            child,
            last_line,
        })
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// If it failed: its exit code, and its last line.
    fn look(&mut self) -> io::Result<bool> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(false);
        };
        if status.success() {
            return Ok(true);
        }
        // Its children may still have its standard error open.
        self.kill(Signal::SIGKILL);
        let said = self.last_line.take().map(JoinHandle::join);
        let said = said.and_then(Result::ok).unwrap_or_default();
        let colon = if said.is_empty() { "" } else { ": " };
        Err(io::Error::other(format!(
            "the {} ended with {}{colon}{said}",
            self.end,
            status
                .code()
                .map_or_else(|| status.to_string(), |code| format!("code {code}")),
        )))
    }

    /// Waits until the run is over, and ends the program if it still runs.
    fn until_over(mut self, flow: &Flow<'_>) -> io::Result<()> {
        while !flow.stage.is_over() {
            if self.look()? {
                // The program has ended successfully; the run goes on without it.
                while !flow.stage.is_over() {
                    thread::sleep(LOOK);
                }
            } else {
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    fn kill(&self, signal: Signal) {
        // It may have ended.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), signal);
    }
}

/// Ends the program and its children with the run.
impl Drop for Running {
    fn drop(&mut self) {
        self.kill(Signal::SIGTERM);
        let mut waited = Span::ZERO;
        while waited < LEAVE && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
            waited += LOOK;
        }
        self.kill(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The last line that is not empty.
fn last_line(said: impl Read) -> String {
    let mut reader = BufReader::new(said);
    let mut last = String::new();
    loop {
        let mut line = Vec::new();
        let read = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return last;
        }
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            last = line.trim().to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_kept_however_much_is_said() {
        assert_eq!(last_line(&b"one\ntwo\n\n"[..]), "two");
        assert_eq!(last_line(&b""[..]), "");
        assert_eq!(last_line(&[b'x'; 5000][..]).len(), LONGEST_LINE as usize);
    }
}
