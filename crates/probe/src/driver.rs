//! Gives an endpoint a socket and a clock: sleeps until something arrives or a timer falls due, and
//! never spins.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use hdrhistogram::Histogram;
use rustix::event::PollFlags;
use verus_clock::{Alarm, Clock};
use verus_core::Time;

use super::client::Client;
use super::connection::Batch;
use super::flow::Algorithms;
use super::server::{Library, Server};
use super::socket::{Arrived, UdpSocket};

/// Reads and sends at most this often in a row before the other gets its turn.
const READS: usize = 8;
const SENDS: usize = 32;

/// Either end, as the driver sees it.
pub trait Endpoint {
    /// A datagram arrived, and is read at `now`.
    fn handle(&mut self, now: Time, datagram: &Arrived<'_>);
    /// A timer fell due.
    fn on_timer(&mut self, now: Time);
    /// When the next timer falls due.
    fn next_timer(&self, now: Time) -> Option<Time>;
    /// Fills `batch` with the next packets to send.
    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool;
    /// The last [`poll_transmit`](Self::poll_transmit) filled in packets of `payload` bytes, which
    /// do not fit the path unfragmented.
    fn on_too_large(&mut self, now: Time, payload: usize);
    /// Whether there is nothing left to wait for.
    fn is_over(&self) -> bool;
}

impl<A: Algorithms> Endpoint for Client<A> {
    fn handle(&mut self, now: Time, datagram: &Arrived<'_>) {
        Client::handle_with(self, now, datagram.at, datagram.ecn, datagram.bytes);
    }

    fn on_timer(&mut self, now: Time) {
        Client::on_timer(self, now);
    }

    fn next_timer(&self, now: Time) -> Option<Time> {
        Client::next_timer(self, now)
    }

    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        Client::poll_transmit(self, now, batch)
    }

    fn on_too_large(&mut self, now: Time, payload: usize) {
        Client::on_too_large(self, now, payload);
    }

    fn is_over(&self) -> bool {
        self.outcome().is_some()
    }
}

impl<L: Library> Endpoint for Server<L> {
    fn handle(&mut self, now: Time, datagram: &Arrived<'_>) {
        let Arrived {
            from,
            local,
            at,
            ecn,
            bytes,
        } = *datagram;
        Server::handle_with(self, now, at, from, local, ecn, bytes);
    }

    fn on_timer(&mut self, now: Time) {
        Server::on_timer(self, now);
    }

    fn next_timer(&self, _: Time) -> Option<Time> {
        Server::next_timer(self)
    }

    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        Server::poll_transmit(self, now, batch)
    }

    fn on_too_large(&mut self, now: Time, payload: usize) {
        Server::on_too_large(self, now, payload);
    }

    /// Another client may always come.
    fn is_over(&self) -> bool {
        false
    }
}

/// An observer of the datagrams of a driver's socket.
pub trait Tap: fmt::Debug + Send {
    /// These datagrams left at `at`.
    fn on_sent(&mut self, at: Time, batch: &Batch);
    /// A datagram arrived.
    fn on_arrived(&mut self, arrived: &Arrived<'_>);
}

/// Runs an endpoint on a socket.
#[derive(Debug)]
pub struct Driver {
    clock: Clock,
    socket: UdpSocket,
    alarm: Alarm,
    batch: Batch,
    /// Whether the kernel had no room yet for a part of the batch.
    unsent: bool,
    wakeups: u64,
    lateness: Histogram<u32>,
    /// The last error with a datagram, except for its size.
    trouble: Option<io::Error>,
    tap: Option<Box<dyn Tap>>,
}

impl Driver {
    /// A driver for `socket`.
    ///
    /// # Errors
    /// If the system grants no timer.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let mut batch = Batch::new(socket.most_segments());
        if let Ok(peer) = socket.peer_addr() {
            batch.to = peer;
        }
        Ok(Driver {
            clock: Clock::new(),
            batch,
            alarm: Alarm::new()?,
            socket,
            unsent: false,
            wakeups: 0,
            lateness: Histogram::new_with_max(60_000_000, 2)
                .expect("constant bounds within the library's limits"),
            trouble: None,
            tap: None,
        })
    }

    /// Reports each datagram from now on to `tap`, if there is one.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) {
        self.tap = tap;
    }

    /// Limits how many packets leave with one call; 1 turns segmentation off.
    pub fn set_most_segments(&mut self, most: usize) {
        let to = self.batch.to;
        self.batch = Batch::new(most.min(self.socket.most_segments()));
        self.batch.to = to;
    }

    /// The driver's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// How often the driver woke up.
    pub fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// By how much timers fired late, µs.
    pub fn lateness(&self) -> &Histogram<u32> {
        &self.lateness
    }

    /// The last error with a datagram since the last call, by the local system or the peer's, such
    /// as that nobody listens there. It ends nothing, since paths recover.
    pub fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Does everything that is due, then sleeps until more is due, until `until`, or until `wake` can
    /// be read; returns at once when the endpoint is over.
    ///
    /// # Errors
    /// If the system cannot sleep, or the socket is invalid. An error with a datagram does not
    /// count: it concerns only one peer, whose path may recover or have a lower limit.
    pub fn turn<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        until: Option<Time>,
        wake: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let more_to_read = self.read(endpoint)?;
        let now = self.clock.now();
        if endpoint.next_timer(now).is_some_and(|at| at <= now) {
            endpoint.on_timer(now);
        }
        let more_to_send = self.write(endpoint)?;
        if more_to_read || (more_to_send && !self.unsent) {
            return Ok(());
        }
        if endpoint.is_over() {
            return Ok(());
        }
        let now = self.clock.now();
        let timer = endpoint.next_timer(now);
        let next = match (timer, until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if next.is_some_and(|at| at <= now) {
            return Ok(());
        }
        self.sleep(next, wake)
    }

    /// Whether there may be more to read.
    fn read<E: Endpoint>(&mut self, endpoint: &mut E) -> io::Result<bool> {
        for _ in 0..READS {
            let clock = self.clock;
            let tap = &mut self.tap;
            let read = self.socket.receive(&clock, |arrived| {
                endpoint.handle(clock.now(), &arrived);
                if let Some(tap) = tap {
                    tap.on_arrived(&arrived);
                }
            });
            match read {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if is_own_fault(&error) => return Err(error),
                // A router reports so about earlier packets of a connected socket.
                Err(error) if quinn_udp::is_msg_size_err(&error) => {
                    let payload = self.batch.payload();
                    endpoint.on_too_large(clock.now(), payload);
                }
                Err(error) => self.trouble = Some(error),
            }
        }
        Ok(true)
    }

    /// Whether there may be more to send.
    fn write<E: Endpoint>(&mut self, endpoint: &mut E) -> io::Result<bool> {
        for _ in 0..SENDS {
            if !self.unsent && !endpoint.poll_transmit(self.clock.now(), &mut self.batch) {
                return Ok(false);
            }
            self.unsent = false;
            // Before the call: an answer may be here before it returns.
            let at = self.clock.now();
            match self.socket.send(&self.batch) {
                Ok(()) => self.sent(at),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = true;
                    return Ok(true);
                }
                Err(error) => self.unsent(endpoint, error)?,
            }
        }
        Ok(true)
    }

    fn sent(&mut self, at: Time) {
        if let Some(tap) = &mut self.tap {
            tap.on_sent(at, &self.batch);
        }
    }

    /// The batch did not leave. It is lost, as if on the way; its owner learns if that will not change.
    #[cold]
    fn unsent<E: Endpoint>(&mut self, endpoint: &mut E, error: io::Error) -> io::Result<()> {
        let error = if self.batch.segment_size().is_some() {
            // The error may come from a run of datagrams that the system cannot split.
            let at = self.clock.now();
            match self.socket.send_singly(&self.batch) {
                Err(error) => error,
                Ok(()) => {
                    self.sent(at);
                    self.batch.set_most_segments(1);
                    return Ok(());
                }
            }
        } else {
            error
        };
        if is_own_fault(&error) {
            return Err(error);
        }
        if quinn_udp::is_msg_size_err(&error) {
            endpoint.on_too_large(self.clock.now(), self.batch.payload());
        } else {
            self.trouble = Some(error);
        }
        Ok(())
    }

    fn sleep(&mut self, next: Option<Time>, wake: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut events = PollFlags::IN;
        if self.unsent {
            events |= PollFlags::OUT;
        }
        let socket = (self.socket.as_fd(), events);
        let arrived = match wake {
            None => self.alarm.wait(&self.clock, next, [socket])?[0],
            Some(wake) => {
                let wake = (wake, PollFlags::IN);
                self.alarm.wait(&self.clock, next, [socket, wake])?[0]
            }
        };
        self.wakeups += 1;
        if let Some(at) = self.alarm.armed() {
            let now = self.clock.now();
            if now >= at && arrived.is_empty() {
                self.lateness.saturating_record(now.since(at).as_micros());
            }
        }
        Ok(())
    }
}

/// Whether the socket itself has failed. Any other error concerns one datagram, and no other client's.
fn is_own_fault(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::BADF | Errno::NOTSOCK | Errno::FAULT)
    )
}
