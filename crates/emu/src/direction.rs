//! One direction of an emulated path, without a clock: the simulator's path ([`verus_channel::Path`]) from the instant at which its
//! channel begins, and until then propagation only.
//!
//! A late caller does not change the result: a packet leaves at the instant when it was due. Only
//! arrivals get the time at which they are read.

use verus_channel::path::{Packet, Watch};
use verus_channel::{Delay, Path, PathConfig, Way};
use verus_core::{Bytes, Time};

/// One direction, in use. In the steady state nothing is allocated.
#[derive(Debug)]
pub struct Direction<P> {
    /// Carries what arrives from `origin` on, which is its time zero.
    path: Path<P>,
    /// When the channel began.
    origin: Option<Time>,
    /// Carries what arrives before `origin`.
    unlimited: Delay<P>,
}

impl<P: Packet> Direction<P> {
    /// A direction whose random draws come from `seed` and its `way`. All packets belong to flow 0.
    pub fn new(config: &PathConfig, seed: u64, way: Way) -> Self {
        Direction {
            path: config.build(seed, way),
            origin: None,
            unlimited: Delay::constant(config.first_delay()),
        }
    }

    /// The path begins at `now`, at the beginning of its channel.
    pub fn begin(&mut self, now: Time) {
        self.origin = Some(now);
    }

    /// A packet arrives at `now`; call [`Direction::catch_up`] first. `watch` hears times relative to the beginning of
    /// the path.
    #[inline]
    pub fn arrive(&mut self, now: Time, size: Bytes, packet: P, watch: &mut impl Watch<P>) {
        match self.origin {
            Some(origin) => self.path.send(since(origin, now), size, packet, watch),
            None => {
                self.unlimited.set_out(now, packet);
            }
        }
    }

    /// Serves all events due at the bottleneck before `now`, each at its own instant. At one
    /// instant, arrivals come before departures, as in the simulator.
    #[inline]
    pub fn catch_up(&mut self, now: Time, watch: &mut impl Watch<P>) {
        if let Some(origin) = self.origin {
            self.path.serve_before(since(origin, now), watch);
        }
    }

    /// As [`catch_up`](Self::catch_up), and also serves the events due at `now`. All arrivals at
    /// `now` must have been reported before.
    #[inline]
    pub fn advance(&mut self, now: Time, watch: &mut impl Watch<P>) {
        if let Some(origin) = self.origin {
            self.path.serve(since(origin, now), watch);
        }
    }

    /// When there is something to do next.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        let on_path = [self.path.next_departure(), self.path.next_arrival(0)];
        let due = on_path.into_iter().flatten().min();
        let due = self.origin.zip(due);
        let due = due.map(|(origin, at)| origin + at.since(Time::ZERO));
        [due, self.unlimited.next_arrival(0)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes the next packet that has arrived at the far end by `now`, with the time of its arrival.
    #[inline]
    pub fn deliver(&mut self, now: Time, watch: &mut impl Watch<P>) -> Option<(Time, P)> {
        // Packets from before the path began arrive before later ones: propagation is the same for all.
        if let Ok(arrived) = self.unlimited.arrive(now, 0) {
            return Some(arrived);
        }
        let origin = self.origin?;
        let (at, packet) = self.path.arrive(since(origin, now), 0, watch)?;
        Some((origin + at.since(Time::ZERO), packet))
    }

    /// Bytes that an idle link could have carried from `from` to `now`, while the device was not read: the most that
    /// late reading may have cost.
    pub fn missed(&self, from: Time, now: Time) -> Bytes {
        let idle = self.path.links().all(|link| link.queued_packets() == 0);
        let origin = self.origin.filter(|_| idle);
        origin
            .and_then(|origin| self.path.capacity(since(origin, from), since(origin, now)))
            .unwrap_or(Bytes::ZERO)
    }

    /// Packets in the queue, on the link and under way.
    pub fn packets(&self) -> usize {
        self.unlimited.packets() + self.path.packets()
    }

    /// Bytes that the link could have carried in [`from`, `to`) of the link's time; `None` without
    /// a link.
    pub fn capacity(&self, from: Time, to: Time) -> Option<Bytes> {
        self.path.capacity(from, to)
    }
}

/// `now` relative to the beginning of the path.
#[inline]
fn since(origin: Time, now: Time) -> Time {
    Time::ZERO + now.since(origin)
}
