//! One direction of an emulated path, without a clock: random loss, the queue, the link, propagation.
//!
//! ```text
//! arrive ──▶ random loss ──▶ queue ▶ link ──▶ propagation ──▶ deliver
//! ```
//!
//! The link and its queue are the simulator's ([`verus_channel::link::Link`]). A caller that is late does not
//! change what happens: what was due at an instant leaves at that instant, and only what arrives is
//! stamped when it is read.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use verus_channel::link::Link;
use verus_channel::link::Service;
use verus_channel::queue::QueueConfig;
use verus_core::{Bytes, Duration, Time, random};

/// What a direction consists of.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// What serves the queue, and the queue; `None` where there is propagation only.
    pub link: Option<(Service, QueueConfig)>,
    /// Propagation delay.
    pub delay: Duration,
    /// Probability that a packet is lost before the queue.
    pub loss: f64,
}

/// Hears what happens to packets at the bottleneck. Times count from when the link began.
pub trait Watch<P> {
    /// A packet reached the bottleneck, to be dropped or not.
    fn on_arrival(&mut self, now: Time, size: Bytes, packet: &P);
    /// A packet that entered at `entered` left the bottleneck.
    fn on_departure(&mut self, now: Time, size: Bytes, entered: Time, packet: &P);
    /// A packet was lost at random, or dropped by the queue.
    fn on_drop(&mut self, now: Time, size: Bytes, packet: P);
}

/// One direction, in use. In the steady state nothing is allocated.
#[derive(Debug)]
pub struct Direction<P> {
    link: Option<Link<P>>,
    /// When the link's own time began; packets pass it unhindered until then.
    origin: Option<Time>,
    delay: Duration,
    loss: f64,
    draws: ChaCha8Rng,
    under_way: VecDeque<(Time, P)>,
}

impl<P> Direction<P> {
    /// A direction whose random draws come from `seed` and its `index`: 0 is the way of the data.
    pub fn new(config: &PathConfig, seed: u64, index: u64) -> Self {
        Direction {
            link: config.link.as_ref().map(|(service, queue)| {
                Link::new(service.clone(), queue, random::stream(seed, "queue", index))
            }),
            origin: None,
            delay: config.delay,
            loss: config.loss,
            draws: random::stream(seed, "loss", index),
            under_way: VecDeque::new(),
        }
    }

    /// From `now` on there is the link, at the beginning of its channel.
    pub fn begin(&mut self, now: Time) {
        self.origin = Some(now);
    }

    /// A packet arrives at `now`; call [`Direction::catch_up`] first.
    #[inline]
    pub fn arrive(&mut self, now: Time, size: Bytes, packet: P, watch: &mut impl Watch<P>) {
        let Some(origin) = self.origin else {
            self.under_way.push_back((now + self.delay, packet));
            return;
        };
        let at = since(origin, now);
        watch.on_arrival(at, size, &packet);
        if self.loss > 0.0 && self.draws.random::<f64>() < self.loss {
            watch.on_drop(at, size, packet);
            return;
        }
        match &mut self.link {
            None => {
                watch.on_departure(at, size, at, &packet);
                self.under_way.push_back((now + self.delay, packet));
            }
            Some(link) => {
                if let Err(packet) = link.enqueue(at, size, packet) {
                    watch.on_drop(at, size, packet);
                }
            }
        }
    }

    /// Does what was due at the bottleneck before `now`, each at its own instant: at one instant, arrivals come
    /// before departures, as in the simulator.
    #[inline]
    pub fn catch_up(&mut self, now: Time, watch: &mut impl Watch<P>) {
        self.depart(|at, now| at < now, now, watch);
    }

    /// The same including what is due at `now`, by when everything that arrived has.
    #[inline]
    pub fn advance(&mut self, now: Time, watch: &mut impl Watch<P>) {
        self.depart(|at, now| at <= now, now, watch);
    }

    #[inline]
    fn depart(&mut self, due: impl Fn(Time, Time) -> bool, now: Time, watch: &mut impl Watch<P>) {
        let (Some(origin), Some(link)) = (self.origin, &mut self.link) else {
            return;
        };
        let until = since(origin, now);
        while let Some(at) = link.next_departure().filter(|&at| due(at, until)) {
            let departed = link.depart(at, |dropped| {
                watch.on_drop(at, dropped.size, dropped.packet)
            });
            if let Some(departed) = departed {
                watch.on_departure(at, departed.size, departed.entered, &departed.packet);
                let arrives = origin + at.since(Time::ZERO) + self.delay;
                self.under_way.push_back((arrives, departed.packet));
            }
        }
    }

    /// When there is something to do next.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        let delivery = self.under_way.front().map(|&(at, _)| at);
        let departure = self
            .origin
            .zip(self.link.as_ref())
            .and_then(|(origin, link)| Some(origin + link.next_departure()?.since(Time::ZERO)));
        match (delivery, departure) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the next packet that has arrived at the far end by `now`, and when it did.
    #[inline]
    pub fn deliver(&mut self, now: Time) -> Option<(Time, P)> {
        if self.under_way.front()?.0 > now {
            return None;
        }
        self.under_way.pop_front()
    }

    /// Bytes that an idle link could have carried from `from` to `now`, while nobody looked whether there
    /// were any: what reading late may have cost.
    pub fn missed(&self, from: Time, now: Time) -> Bytes {
        match (self.origin, &self.link) {
            (Some(origin), Some(link)) if link.queued_packets() == 0 => {
                link.capacity(since(origin, from), since(origin, now))
            }
            _ => Bytes::ZERO,
        }
    }

    /// Packets in the queue, on the link and under way.
    pub fn packets(&self) -> usize {
        self.under_way.len() + self.link.as_ref().map_or(0, Link::queued_packets)
    }

    /// Bytes that the link could have carried in [`from`, `to`) of its own time; `None` without a link.
    pub fn capacity(&self, from: Time, to: Time) -> Option<Bytes> {
        self.link.as_ref().map(|link| link.capacity(from, to))
    }
}

/// `now` in the link's own time.
#[inline]
fn since(origin: Time, now: Time) -> Time {
    Time::ZERO + now.since(origin)
}
