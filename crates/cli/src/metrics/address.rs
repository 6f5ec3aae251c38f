//! The address at which Prometheus reads measurements, over HTTP/1.1.
//!
//! Every client can read, so the address is loopback unless the user says otherwise. A client gets
//! little: a request of [`MOST_REQUEST`] bytes, [`PATIENCE`] in all, one answer. When
//! [`MOST_CLIENTS`] are connected, a new one replaces the oldest, so that clients that say nothing
//! keep nobody out.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::BySender;
use crate::failure::Failure;

/// Longest request head, bytes. Prometheus sends about 300.
const MOST_REQUEST: usize = 8 << 10;
/// Most headers of a request.
const MOST_HEADERS: usize = 64;
/// Most clients at a time.
const MOST_CLIENTS: usize = 16;
/// Longest time from connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// The media type of the answer.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where Prometheus reads measurements.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Address {
    /// Serve measurements for Prometheus at this TCP address, as 127.0.0.1:9464 (default: nowhere).
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Let --metrics be an address that other hosts reach; anybody there can read it.
    #[arg(long, requires = "metrics")]
    metrics_remote: bool,
}

impl Address {
    /// The listener, if one was requested. Clients are answered from [`Listener::start`] on.
    ///
    /// # Errors
    /// If other hosts reach the address and that was not allowed, or it cannot be used.
    pub fn listen(&self) -> Result<Option<Listener>, Failure> {
        let Some(address) = self.metrics else {
            return Ok(None);
        };
        if !address.ip().to_canonical().is_loopback() && !self.metrics_remote {
            return Err(Failure::usage(format_args!(
                "--metrics: other hosts reach {address}, and anybody there could read it; \
                 use 127.0.0.1 or ::1, or add --metrics-remote"
            )));
        }
        let socket = TcpListener::bind(address).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "the port is in use".to_owned(),
                _ => error.to_string(),
            };
            Failure::usage(format_args!(
                "--metrics: cannot listen on TCP {address}: {why}"
            ))
        })?;
        let local = socket.local_addr().map_err(Failure::run)?;
        Ok(Some(Listener { socket, local }))
    }
}

/// A socket whose clients are not answered yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    local: SocketAddr,
}

impl Listener {
    /// Where it listens, as a URL.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.local)
    }

    /// Answers clients with what `read` returns, in threads that end with the process.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(self, read: impl Fn() -> BySender + Send + Sync + 'static) -> Result<(), Failure> {
        let read = Arc::new(read);
        let clients = Arc::new(Clients::default());
        let accept = move || {
            loop {
                let Ok((stream, _)) = self.socket.accept() else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                let Some(client) = clients.enter(&stream) else {
                    continue;
                };
                let read = Arc::clone(&read);
                let answer = Builder::new().name("metrics client".to_owned());
                // Without a thread the client is dropped.
                let _ = answer.spawn(move || {
                    let _ = answer_one(&stream, &*read);
                    drop(client);
                });
            }
        };
        let thread = Builder::new().name("metrics".to_owned()).spawn(accept);
        thread
            .map(drop)
            .map_err(|error| Failure::run(format_args!("--metrics: no thread: {error}")))
    }
}

/// The connected clients, the oldest first.
#[derive(Debug, Default)]
struct Clients {
    connected: Mutex<VecDeque<(u64, TcpStream)>>,
}

/// A connected client's place.
struct Place {
    clients: Arc<Clients>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connected = self.clients.connected();
        connected.retain(|(number, _)| *number != self.number);
    }
}

impl Clients {
    fn connected(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for `stream`, the oldest client's if need be.
    fn enter(self: &Arc<Self>, stream: &TcpStream) -> Option<Place> {
        let copy = stream.try_clone().ok()?;
        let mut connected = self.connected();
        if connected.len() >= MOST_CLIENTS
            && let Some((_, oldest)) = connected.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let number = connected.back().map_or(0, |(last, _)| last + 1);
        connected.push_back((number, copy));
        Some(Place {
            clients: Arc::clone(self),
            number,
        })
    }
}

/// The remaining time of a client.
#[expect(
    clippy::disallowed_methods,
    reason = "a client's patience is real time"
)]
fn now() -> Instant {
    Instant::now()
}

/// Reads one request and answers it.
fn answer_one(mut stream: &TcpStream, read: &dyn Fn() -> BySender) -> io::Result<()> {
    let end = now() + PATIENCE;
    let patience = || {
        let span = end.saturating_duration_since(now());
        (!span.is_zero())
            .then_some(span)
            .ok_or(io::ErrorKind::TimedOut)
    };
    let mut head = [0; MOST_REQUEST];
    let mut length = 0;
    let reply = loop {
        stream.set_read_timeout(Some(patience()?))?;
        let more = stream.read(&mut head[length..])?;
        length += more;
        match parse(&head[..length]) {
            Request::Partial if more == 0 => return Ok(()),
            Request::Partial if length == head.len() => {
                break refusal("431 Request Header Fields Too Large");
            }
            Request::Partial => {}
            Request::Get { body } => break page(&read().openmetrics(), body),
            Request::Refused(status) => break refusal(status),
        }
    };
    let mut rest = reply.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(patience()?))?;
        match stream.write(rest)? {
            0 => return Ok(()),
            written => rest = &rest[written..],
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// A parsed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// The head is not complete.
    Partial,
    /// Of the measurements, with a body or their head only.
    Get { body: bool },
    /// Of anything else: the status line's code and reason.
    Refused(&'static str),
}

/// Parses a request's head (RFC 9112).
fn parse(head: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return Request::Partial,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Request::Refused("431 Request Header Fields Too Large");
        }
        Err(_) => return Request::Refused("400 Bad Request"),
    }
    let path = request.path.unwrap_or_default();
    match (request.method, path.split('?').next()) {
        (Some("GET"), Some("/metrics")) => Request::Get { body: true },
        (Some("HEAD"), Some("/metrics")) => Request::Get { body: false },
        (Some("GET" | "HEAD"), _) => Request::Refused("404 Not Found"),
        _ => Request::Refused("405 Method Not Allowed"),
    }
}

fn page(text: &str, body: bool) -> String {
    let mut reply = head("200 OK", OPENMETRICS, text.len());
    if body {
        reply.push_str(text);
    }
    reply
}

fn refusal(status: &str) -> String {
    let text = format!("{status}: GET /metrics\n");
    head(status, "text/plain; charset=utf-8", text.len()) + &text
}

fn head(status: &str, media_type: &str, length: usize) -> String {
    let mut head = format!("HTTP/1.1 {status}\r\n");
    if status.starts_with("405") {
        head.push_str("Allow: GET, HEAD\r\n");
    }
    let _ = write!(
        head,
        "Content-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\
         X-Content-Type-Options: nosniff\r\n\r\n"
    );
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_measurements_are_served() {
        for (head, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                Request::Get { body: true },
            ),
            (
                "GET /metrics?a=b HTTP/1.0\r\n\r\n",
                Request::Get { body: true },
            ),
            (
                "HEAD /metrics HTTP/1.1\r\n\r\n",
                Request::Get { body: false },
            ),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", Request::Partial),
            (
                "GET /../etc/passwd HTTP/1.1\r\n\r\n",
                Request::Refused("404 Not Found"),
            ),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                Request::Refused("405 Method Not Allowed"),
            ),
            ("\u{1}\u{2}\r\n\r\n", Request::Refused("400 Bad Request")),
        ] {
            assert_eq!(parse(head.as_bytes()), expected, "{head:?}");
        }
        let many = "a: b\r\n".repeat(MOST_HEADERS + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{many}\r\n");
        assert!(
            matches!(parse(many.as_bytes()), Request::Refused(status) if status.starts_with("431"))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = parse(&bytes);
            let mut line = b"GET /metrics HTTP/1.1\r\n".to_vec();
            line.extend(&bytes);
            let _ = parse(&line);
        }
    }

    #[test]
    fn an_address_that_others_reach_takes_an_explicit_word() {
        let listen = |address: &str, metrics_remote| {
            let metrics = Some(address.parse().expect("an address"));
            Address {
                metrics,
                metrics_remote,
            }
            .listen()
        };
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let refused = listen(address, false).expect_err("it is not loopback");
            assert!(
                format!("{refused:?}").contains("--metrics-remote"),
                "{refused:?}"
            );
        }
        assert!(listen("127.0.0.1:0", false).expect("loopback").is_some());
        assert!(listen("0.0.0.0:0", true).expect("allowed").is_some());
    }

    /// The whole answer to `request`, on an own connection.
    fn exchange(url: &str, request: &str) -> String {
        let mut stream = connect(url);
        stream.write_all(request.as_bytes()).expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn connect(url: &str) -> TcpStream {
        let address = url.trim_start_matches("http://");
        let address = address.trim_end_matches("/metrics");
        TcpStream::connect(address).expect("it listens")
    }

    #[test]
    fn silent_clients_keep_nobody_out() {
        let args = Address {
            metrics: Some("127.0.0.1:0".parse().expect("an address")),
            metrics_remote: false,
        };
        let listener = args.listen().expect("a port").expect("requested");
        let url = listener.url();
        listener.start(BySender::default).expect("a thread");
        let silent: Vec<TcpStream> = (0..5 * MOST_CLIENTS).map(|_| connect(&url)).collect();
        let answer = exchange(&url, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.contains(OPENMETRICS) && answer.ends_with("# EOF\n"),
            "{answer}"
        );
        drop(silent);
    }
}
