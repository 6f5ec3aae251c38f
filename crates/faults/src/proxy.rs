//! A faulty path in real time: a proxy between UDP sockets on this machine.
//!
//! ```text
//! client ──▶ listener ──▶ Path (up) ────▶ upstream socket ──▶ server
//!        ◀──          ◀── Path (down) ◀──                 ◀──
//! ```
//!
//! Clients send to the proxy's address instead of the server's. Each client has a separate upstream
//! socket, whose address the server takes for the client's. An address change replaces that socket
//! by another, on another loopback address where there is one. All clients share the two paths,
//! bottlenecks included, as flows that cross the same link.
//!
//! One thread sleeps in `ppoll` until a datagram arrives or one is due, so the proxy uses no CPU
//! while nothing happens. Its lateness is part of its statistics. Marks (ECN) are not carried over.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use verus_core::{Bytes, Duration, Time};

use crate::path::{Bottleneck, Datagram, Path, PathStats};
use crate::schedule::{Direction, Schedule};
use crate::spread::{Spread, Spreading};

/// Intended size of each socket's buffers: 0.3 s at 100 Mbit/s.
const SOCKET_BUFFER: usize = 4 << 20;
/// Largest UDP payload.
const LARGEST: usize = 65_535;
/// Datagrams read from one socket before the others, and due departures, get their turn.
const BATCH: usize = 64;
/// Clients served at most; datagrams of others are dropped.
const CLIENTS: usize = 1024;
/// IPv6 and UDP headers.
const IPV6_OVERHEAD: Bytes = Bytes::new(48);
/// Loopback addresses that a client's address change goes through, where the system has them.
const ADDRESSES: u8 = 100;

/// A proxy's settings.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Where the server listens. The proxy listens on the loopback address of the same family.
    pub server: SocketAddr,
    /// The faults. Times count from the first datagram of any client. The proxy cannot stop an end:
    /// while one is stopped, everything sent in either direction is lost.
    pub schedule: Schedule,
    /// The link from the clients to the server, if its capacity is limited.
    pub up: Option<Bottleneck>,
    /// The link from the server to the clients, if its capacity is limited.
    pub down: Option<Bottleneck>,
}

impl ProxyConfig {
    /// Passes everything on to `server`, at once.
    pub fn new(server: SocketAddr) -> Self {
        ProxyConfig {
            server,
            schedule: Schedule::default(),
            up: None,
            down: None,
        }
    }
}

/// Why a proxy does not run.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A socket could not be made.
    #[error("proxy to {server}: cannot open a socket: {source}")]
    Socket {
        /// The server.
        server: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The thread could not be started.
    #[error("proxy: cannot start a thread: {0}")]
    Thread(io::Error),
    /// It stopped of itself.
    #[error("proxy on {listener}: {source}")]
    Stopped {
        /// Where it listened.
        listener: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A proxy's counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProxyStats {
    /// From the clients to the server.
    pub up: PathStats,
    /// From the server to the clients.
    pub down: PathStats,
    /// Time counted, in seconds, from the first datagram on.
    pub elapsed_s: f64,
    /// Clients seen.
    pub clients: usize,
    /// How often the clients' addresses changed.
    pub address_changes: u64,
    /// Datagrams that the system did not take.
    pub unsent: u64,
    /// Datagrams dropped because too many clients were there already.
    pub turned_away: u64,
    /// How much later than due datagrams were sent on.
    pub lateness: Spread,
}

/// A running proxy. Dropping it stops it.
#[derive(Debug)]
pub struct Proxy {
    listener: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    /// A byte asks for an address change; closing it, to stop.
    control: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// State that the proxy's thread and its owner share.
#[derive(Debug)]
struct Shared {
    up: Path<Routed>,
    down: Path<Routed>,
    /// When the first datagram came: time zero.
    origin: Option<Instant>,
    counted_from: Time,
    clients: usize,
    address_changes: u64,
    unsent: u64,
    turned_away: u64,
    lateness: Spreading,
}

/// A datagram and the client that it comes from or goes to.
#[derive(Clone, Debug)]
struct Routed {
    client: usize,
    bytes: Vec<u8>,
}

impl Datagram for Routed {
    fn size(&self) -> usize {
        self.bytes.size()
    }

    fn flip(&mut self, bit: usize) {
        self.bytes.flip(bit);
    }
}

/// The proxy's one clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the proxy is the loop that says what time it is"
)]
fn clock() -> Instant {
    Instant::now()
}

impl Proxy {
    /// Starts a proxy as `config` says, on a free port of the loopback address.
    ///
    /// # Errors
    /// If the system gives no socket or no thread.
    pub fn start(config: ProxyConfig) -> Result<Proxy, ProxyError> {
        let server = config.server;
        let failed = |source| ProxyError::Socket { server, source };
        let loopback = match server {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        let listener = socket(loopback).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (control, controlled) = UnixStream::pair().map_err(failed)?;
        controlled.set_nonblocking(true).map_err(failed)?;

        let path = |direction, bottleneck: Option<Bottleneck>| {
            let mut path = Path::new(&config.schedule, direction);
            if server.is_ipv6() {
                path = path.with_overhead(IPV6_OVERHEAD);
            }
            if let Some(stop) = config.schedule.stop {
                path = path.with_dark(stop.interval);
            }
            match bottleneck {
                Some(bottleneck) => path.with_bottleneck(bottleneck),
                None => path,
            }
        };
        let shared = Arc::new(Mutex::new(Shared {
            up: path(Direction::Up, config.up),
            down: path(Direction::Down, config.down),
            origin: None,
            counted_from: Time::ZERO,
            clients: 0,
            address_changes: 0,
            unsent: 0,
            turned_away: 0,
            lateness: Spreading::default(),
        }));
        let mut changes = config.schedule.address_changes;
        changes.sort();
        changes.reverse();
        let worker = Worker {
            server,
            listener,
            controlled,
            clients: Vec::new(),
            by_address: BTreeMap::new(),
            retired: Vec::new(),
            changes,
            shared: Arc::clone(&shared),
            buffer: vec![0; LARGEST],
        };
        let thread = thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || worker.run())
            .map_err(ProxyError::Thread)?;
        Ok(Proxy {
            listener: address,
            shared,
            control: Some(control),
            thread: Some(thread),
        })
    }

    /// Where clients send to.
    pub fn addr(&self) -> SocketAddr {
        self.listener
    }

    /// Its counts so far.
    pub fn stats(&self) -> ProxyStats {
        lock(&self.shared).stats()
    }

    /// Counts from zero again, for instance once a warm-up is over.
    pub fn restart_counts(&self) {
        lock(&self.shared).restart_counts();
    }

    /// Changes every client's address, as the server sees it, soon.
    pub fn change_address(&self) {
        if let Some(mut control) = self.control.as_ref() {
            // Fails only if the thread has ended, which `stop` reports.
            let _ = control.write_all(&[0]);
        }
    }

    /// Stops it: datagrams in flight are lost.
    ///
    /// # Errors
    /// If it had stopped of itself before, because a socket failed.
    pub fn stop(mut self) -> Result<ProxyStats, ProxyError> {
        self.join().map_err(|source| ProxyError::Stopped {
            listener: self.listener,
            source,
        })?;
        Ok(self.stats())
    }

    fn join(&mut self) -> io::Result<()> {
        drop(self.control.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("its thread panicked")),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The owner has gone.
        let _ = self.join();
    }
}

impl Shared {
    /// Time since the first datagram; zero before it.
    fn now(&self) -> Time {
        self.origin.map_or(Time::ZERO, |origin| {
            let nanos = clock().saturating_duration_since(origin).as_nanos();
            Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        })
    }

    fn next(&self) -> Option<Time> {
        self.up.next().into_iter().chain(self.down.next()).min()
    }

    fn stats(&mut self) -> ProxyStats {
        let now = self.now();
        ProxyStats {
            up: self.up.stats(now),
            down: self.down.stats(now),
            elapsed_s: now.since(self.counted_from).as_secs_f64(),
            clients: self.clients,
            address_changes: self.address_changes,
            unsent: self.unsent,
            turned_away: self.turned_away,
            lateness: self.lateness.spread(),
        }
    }

    fn restart_counts(&mut self) {
        let now = self.now();
        self.up.restart_counts(now);
        self.down.restart_counts(now);
        self.counted_from = now;
        self.address_changes = 0;
        self.unsent = 0;
        self.turned_away = 0;
        self.lateness = Spreading::default();
    }
}

/// The thread's own.
struct Worker {
    server: SocketAddr,
    listener: UdpSocket,
    controlled: UnixStream,
    clients: Vec<Client>,
    by_address: BTreeMap<SocketAddr, usize>,
    /// Sockets of addresses no longer used. They stay open, so that the server's packets to them
    /// meet silence, as behind a router that forgot the address, and not a refusal.
    retired: Vec<UdpSocket>,
    /// When addresses change, the next one last.
    changes: Vec<Time>,
    shared: Arc<Mutex<Shared>>,
    buffer: Vec<u8>,
}

struct Client {
    address: SocketAddr,
    upstream: UdpSocket,
}

impl Worker {
    fn run(mut self) -> io::Result<()> {
        // Sleeps end when they should, and not up to 50 µs later to save the machine a wake-up.
        #[cfg(target_os = "linux")]
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        loop {
            let (control, listener, upstream) = self.wait()?;
            if control && !self.obey()? {
                return Ok(());
            }
            if listener {
                self.receive_from_clients()?;
            }
            for client in upstream {
                self.receive_from_server(client)?;
            }
            self.change_addresses_when_due()?;
            self.forward();
        }
    }

    /// Sleeps until a datagram comes or is due. Returns which sockets can be read: the control, the
    /// listener, and which clients'.
    fn wait(&self) -> io::Result<(bool, bool, Vec<usize>)> {
        let timeout = {
            let shared = lock(&self.shared);
            let change = self.changes.last().filter(|_| shared.origin.is_some());
            let next = shared.next().into_iter().chain(change.copied()).min();
            next.map(|next| timespec(next.since(shared.now())))
        };
        let mut fds = Vec::with_capacity(2 + self.clients.len());
        fds.push(PollFd::new(&self.controlled, PollFlags::IN));
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        let upstream = self.clients.iter().map(|client| &client.upstream);
        fds.extend(upstream.map(|socket| PollFd::new(socket, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, false, Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let upstream = fds[2..].iter().enumerate().filter(|(_, fd)| ready(fd));
        Ok((
            ready(&fds[0]),
            ready(&fds[1]),
            upstream.map(|(client, _)| client).collect(),
        ))
    }

    /// Executes the owner's command; false if it is to stop.
    fn obey(&mut self) -> io::Result<bool> {
        let mut requests = [0; 16];
        match self.controlled.read(&mut requests) {
            Ok(0) => Ok(false),
            Ok(count) => {
                for _ in 0..count {
                    self.change_addresses()?;
                }
                Ok(true)
            }
            Err(error) if is_passing(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn receive_from_clients(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let (length, from) = match self.listener.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut shared = lock(&self.shared);
            shared.origin.get_or_insert_with(clock);
            let client = match self.by_address.get(&from) {
                Some(&client) => client,
                None if self.clients.len() >= CLIENTS => {
                    shared.turned_away += 1;
                    continue;
                }
                None => {
                    let upstream = upstream(self.server, shared.address_changes)?;
                    self.clients.push(Client {
                        address: from,
                        upstream,
                    });
                    shared.clients = self.clients.len();
                    self.by_address.insert(from, self.clients.len() - 1);
                    self.clients.len() - 1
                }
            };
            let now = shared.now();
            let bytes = self.buffer[..length].to_vec();
            shared.up.send(now, Routed { client, bytes });
        }
        Ok(())
    }

    fn receive_from_server(&mut self, client: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let length = match self.clients[client].upstream.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut shared = lock(&self.shared);
            let now = shared.now();
            let bytes = self.buffer[..length].to_vec();
            shared.down.send(now, Routed { client, bytes });
        }
        Ok(())
    }

    fn change_addresses_when_due(&mut self) -> io::Result<()> {
        let now = {
            let shared = lock(&self.shared);
            if shared.origin.is_none() {
                return Ok(());
            }
            shared.now()
        };
        while self.changes.pop_if(|at| *at <= now).is_some() {
            self.change_addresses()?;
        }
        Ok(())
    }

    fn change_addresses(&mut self) -> io::Result<()> {
        let mut shared = lock(&self.shared);
        shared.address_changes += 1;
        for client in &mut self.clients {
            let upstream = upstream(self.server, shared.address_changes)?;
            let old = std::mem::replace(&mut client.upstream, upstream);
            self.retired.push(old);
        }
        Ok(())
    }

    /// Sends due datagrams.
    fn forward(&mut self) {
        let mut shared = lock(&self.shared);
        loop {
            let now = shared.now();
            let (arrived, sent) = if let Some(arrived) = shared.up.poll(now) {
                let upstream = &self.clients[arrived.datagram.client].upstream;
                (arrived.at, send(|| upstream.send(&arrived.datagram.bytes)))
            } else if let Some(arrived) = shared.down.poll(now) {
                let to = self.clients[arrived.datagram.client].address;
                let bytes = &arrived.datagram.bytes;
                (arrived.at, send(|| self.listener.send_to(bytes, to)))
            } else {
                return;
            };
            shared.lateness.record(now.since(arrived));
            shared.unsent += u64::from(!sent);
        }
    }
}

/// Sends, and says whether the system took the datagram.
fn send(mut attempt: impl FnMut() -> io::Result<usize>) -> bool {
    match attempt() {
        Ok(_) => true,
        // This error belongs to an earlier datagram, and this one was not sent.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => attempt().is_ok(),
        Err(_) => false,
    }
}

/// Whether an error of receiving ends nothing: there is nothing to read now, or an earlier datagram
/// reached no server. For the client, a server that is not there is only silent.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}

/// The socket at which the server finds a client after `changes` address changes.
fn upstream(server: SocketAddr, changes: u64) -> io::Result<UdpSocket> {
    let home = match server.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let away = 1 + (changes % u64::from(ADDRESSES)) as u8;
    let socket = match home {
        // All of 127/8 is this machine on Linux; elsewhere only the port changes.
        IpAddr::V4(Ipv4Addr::LOCALHOST) => {
            socket(IpAddr::V4(Ipv4Addr::new(127, 0, 0, away))).or_else(|_| socket(home))?
        }
        home => socket(home)?,
    };
    socket.connect(server)?;
    Ok(socket)
}

/// A socket with large buffers on a free port of `address`.
fn socket(address: IpAddr) -> io::Result<UdpSocket> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // The system caps an ordinary user's request.
    #[cfg(target_os = "linux")]
    let forced = {
        use rustix::net::sockopt::set_socket_recv_buffer_size_force;
        set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_ok()
    };
    #[cfg(not(target_os = "linux"))]
    let forced = false;
    if !forced {
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    }
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn timespec(span: Duration) -> Timespec {
    let nanos = span.as_nanos();
    Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        // Less than 10⁹, which every platform's type holds.
        tv_nsec: (nanos % 1_000_000_000) as _,
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // A panic in the thread is reported by `stop`; the numbers are still there to be read.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
