//! Finds the first of a server's addresses that answers, each being tried a little after the one before (RFC 8305).
//!
//! The request is a hello without a token. The server answers with a token, and neither end has a
//! test yet.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use verus_clock::Clock;
use verus_core::{Duration, Time};
use verus_net::host::NEXT_ADDRESS;

use super::client::{ClientConfig, HELLO_AT_MOST, HELLO_EVERY};
use super::connection::Batch;
use super::seal::{Key, Secret};
use super::socket::UdpSocket;
use super::wire::{self, Accept, Ending, Hello, Kind, MIN_HELLO_BYTES, Packet, Request, Retry};

/// Why no address of a server was reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreached {
    /// Whatever waits for `wake` was woken.
    #[error("stopped")]
    Stopped,
    /// Nothing came back from any of them.
    #[error("no answer within {} s: is a server running there, and does it have the same key?", .0.as_secs_f64())]
    NoAnswer(Duration),
    /// None of them answers; this is the system's error for the last.
    #[error(transparent)]
    Failed(io::Error),
}

/// A hello, again and again until it is answered.
struct Knock {
    nonce: [u8; 16],
    handshake: Key,
    request: Request,
}

impl Knock {
    fn new(request: &Request, secret: Option<&Secret>, entropy: [u8; 32]) -> Self {
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&entropy[..16]);
        Knock {
            nonce,
            handshake: Key::handshake(secret),
            request: request.clone(),
        }
    }

    fn fill(&self, batch: &mut Batch) {
        let hello = Hello {
            nonce: self.nonce,
            token: &[],
            request: self.request.clone(),
            quiet_millis: 0,
        };
        let buffer = batch.control();
        let covered = hello.encode(buffer);
        let end = self.handshake.seal(buffer, covered);
        wire::pad(&mut buffer[..MIN_HELLO_BYTES], end);
        batch.set_len(MIN_HELLO_BYTES);
    }

    /// Whether the server has answered it with these bytes, whatever it says.
    fn is_answered_by(&self, datagram: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(datagram) else {
            return false;
        };
        if !self.handshake.opens(&packet) {
            return false;
        }
        let nonce = match packet.kind {
            Kind::Retry => Retry::decode(&packet).map(|retry| retry.nonce).ok(),
            Kind::Refuse => Ending::decode(&packet).map(|ending| ending.nonce).ok(),
            Kind::Accept => Accept::decode(&packet)
                .map(|accept| accept.client_nonce)
                .ok(),
            _ => None,
        };
        nonce == Some(self.nonce)
    }
}

/// One address that is tried.
struct Attempt {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    due: Time,
    wait: Duration,
    trouble: Option<io::Error>,
}

impl Attempt {
    fn new(address: SocketAddr, due: Time) -> Self {
        let (socket, trouble) = match UdpSocket::connect(address) {
            Ok(socket) => (Some(socket), None),
            Err(error) => (None, Some(error)),
        };
        Attempt {
            address,
            socket,
            due,
            wait: HELLO_EVERY,
            trouble,
        }
    }

    /// Sends the hello if it is due.
    fn poll(&mut self, now: Time, knock: &Knock, batch: &mut Batch) {
        if let Some(socket) = &self.socket
            && self.due <= now
        {
            self.due = now + self.wait;
            self.wait = (self.wait * 2).min(HELLO_AT_MOST);
            batch.to = self.address;
            knock.fill(batch);
            if let Err(error) = socket.send(batch)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                self.trouble = Some(error);
            }
        }
    }

    /// Whether an answer has come.
    fn is_answered(&mut self, clock: &Clock, knock: &Knock) -> bool {
        let mut answered = false;
        if let Some(socket) = &mut self.socket
            && let Err(error) = socket.receive(clock, |arrived| {
                answered |= knock.is_answered_by(arrived.bytes);
            })
        {
            self.trouble = Some(error);
        }
        answered
    }
}

/// The first of `addresses` at which a server answers that is asked as `config` says. `believed_after` is how long an error
/// of the system, such as a closed port, counts for nothing where all addresses have one: the server may be starting.
///
/// # Errors
/// If none answers in time, or `wake` can be read.
pub fn reach(
    addresses: &[SocketAddr],
    config: &ClientConfig,
    entropy: [u8; 32],
    believed_after: Duration,
    wake: BorrowedFd<'_>,
) -> Result<SocketAddr, Unreached> {
    let next_address = Duration::from_nanos(NEXT_ADDRESS.as_nanos() as u64);
    let knock = Knock::new(&config.request, config.secret.as_ref(), entropy);
    let clock = Clock::new();
    let mut batch = Batch::new(1);
    let mut waiting = addresses.iter().copied();
    let mut attempts: Vec<Attempt> = Vec::new();
    let began = clock.now();
    let mut next = began;
    loop {
        let now = clock.now();
        // One that is known not to answer holds up no other.
        if next <= now || attempts.iter().all(|attempt| attempt.trouble.is_some()) {
            attempts.extend(waiting.next().map(|address| Attempt::new(address, now)));
            next = now + next_address;
        }
        for attempt in &mut attempts {
            attempt.poll(now, &knock, &mut batch);
        }
        for attempt in &mut attempts {
            if attempt.is_answered(&clock, &knock) {
                return Ok(attempt.address);
            }
        }
        let all = attempts.len() == addresses.len();
        let elapsed = now.since(began);
        if elapsed >= config.patience {
            return Err(Unreached::NoAnswer(config.patience));
        }
        if all && elapsed >= believed_after && attempts.iter().all(|one| one.trouble.is_some()) {
            let trouble = attempts
                .iter_mut()
                .find_map(|attempt| attempt.trouble.take());
            return Err(trouble.map_or(Unreached::NoAnswer(elapsed), Unreached::Failed));
        }
        let tried = attempts.iter().filter(|attempt| attempt.socket.is_some());
        let due = tried.map(|attempt| attempt.due).min();
        let until = [
            Some(began + config.patience),
            due,
            (!all).then_some(next),
            (elapsed < believed_after).then(|| began + believed_after),
        ];
        let until = until.into_iter().flatten().min();
        if is_woken(until.map(|until| until.since(clock.now())), wake, &attempts)? {
            return Err(Unreached::Stopped);
        }
    }
}

/// Waits until one of the attempts may have an answer; whether `wake` can be read.
fn is_woken(
    timeout: Option<Duration>,
    wake: BorrowedFd<'_>,
    attempts: &[Attempt],
) -> Result<bool, Unreached> {
    let sockets = attempts.iter().filter_map(|one| one.socket.as_ref());
    let mut descriptors: Vec<PollFd<'_>> = std::iter::once(wake)
        .chain(sockets.map(AsFd::as_fd))
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: (timeout.as_nanos() / 1_000_000_000).cast_signed(),
        tv_nsec: (timeout.as_nanos() % 1_000_000_000).cast_signed(),
    });
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(!descriptors[0].revents().is_empty()),
        Err(error) => Err(Unreached::Failed(error.into())),
    }
}
