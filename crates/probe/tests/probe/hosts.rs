//! Ends of the probe as a world drives them: the driver's part, without sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;

use verus_core::{Duration, Time};
use verus_faults::world::{self, Endpoint};
use verus_probe::Client;
use verus_probe::connection::Batch;
use verus_probe::server::{Catalogue, Server};
use verus_senders::Scheme;

/// A clock that was set wrong and runs at its own speed.
#[derive(Clone, Copy)]
pub struct Clock {
    pub ahead: Duration,
    pub drift_ppm: f64,
}

impl Clock {
    pub const TRUE: Clock = Clock {
        ahead: Duration::ZERO,
        drift_ppm: 0.0,
    };

    pub fn shows(self, at: Time) -> Time {
        let drift = (at.as_nanos() as f64 * self.drift_ppm / 1e6) as i64;
        Time::from_nanos(at.as_nanos().saturating_add_signed(drift)) + self.ahead
    }

    /// The first instant at which it shows `shown` or later.
    fn when(self, shown: Time) -> Time {
        if shown == Time::MAX {
            return Time::MAX;
        }
        let since = shown.since(Time::ZERO + self.ahead).as_nanos();
        let mut at = Time::from_nanos((since as f64 / (1.0 + self.drift_ppm / 1e6)) as u64);
        while self.shows(at) < shown {
            at += Duration::from_nanos(100);
        }
        at
    }
}

/// A client or a server, by its own clock.
pub trait End {
    fn handle(&mut self, now: Time, from: SocketAddr, datagram: &[u8]);
    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool;
    fn next_timer(&self, now: Time) -> Option<Time>;
    fn on_timer(&mut self, now: Time);
    fn is_done(&self) -> bool;
}

pub struct Host<E> {
    pub end: E,
    clock: Clock,
    now: Time,
    batch: Batch,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl<E: End> Host<E> {
    pub fn new(end: E, clock: Clock, segments: usize) -> Self {
        Host {
            end,
            clock,
            now: clock.shows(Time::ZERO),
            batch: Batch::new(segments),
            out: VecDeque::new(),
        }
    }
}

impl<E: End> Endpoint for Host<E> {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        self.now = self.clock.shows(now);
        self.end.handle(self.now, from, &datagram);
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.now = self.clock.shows(now);
        if self.out.is_empty() && self.end.poll_transmit(self.now, &mut self.batch) {
            let datagrams = self.batch.contents().chunks(self.batch.payload());
            let addressed = datagrams.map(|datagram| (self.batch.to, datagram.to_vec()));
            self.out.extend(addressed);
        }
        self.out.pop_front()
    }

    fn next_timer(&mut self) -> Option<Time> {
        let next = self.end.next_timer(self.now)?;
        Some(self.clock.when(next))
    }

    fn on_timer(&mut self, now: Time) {
        self.now = self.clock.shows(now);
        self.end.on_timer(self.now);
    }

    fn is_done(&self) -> bool {
        self.end.is_done()
    }
}

impl End for Client<Scheme> {
    fn handle(&mut self, now: Time, _from: SocketAddr, datagram: &[u8]) {
        self.handle(now, now, datagram);
    }

    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        let some = self.poll_transmit(now, batch);
        batch.to = world::SERVER;
        some
    }

    fn next_timer(&self, now: Time) -> Option<Time> {
        self.next_timer(now)
    }

    fn on_timer(&mut self, now: Time) {
        self.on_timer(now);
    }

    fn is_done(&self) -> bool {
        self.outcome().is_some()
    }
}

/// A server, and the most that it was seen to hold.
pub struct Watched {
    server: Server<Catalogue>,
    pub connections_max: usize,
    /// Most data that any connection has received.
    pub received: u64,
}

impl Watched {
    pub fn new(server: Server<Catalogue>) -> Self {
        Watched {
            server,
            connections_max: 0,
            received: 0,
        }
    }
}

impl End for Watched {
    fn handle(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        self.server.handle(now, now, from, None, datagram);
        self.connections_max = self.connections_max.max(self.server.connections().count());
        for connection in self.server.connections() {
            let received = connection.incoming().map(|(flow, _)| flow.distinct()).sum();
            self.received = self.received.max(received);
        }
    }

    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        let some = self.server.poll_transmit(now, batch);
        self.server.drain_notices().for_each(drop);
        some
    }

    fn next_timer(&self, _now: Time) -> Option<Time> {
        self.server.next_timer()
    }

    fn on_timer(&mut self, now: Time) {
        self.server.on_timer(now);
    }

    fn is_done(&self) -> bool {
        self.server.is_idle()
    }
}
