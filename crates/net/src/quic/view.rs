//! Looking at a connection's controller from outside.

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::congestion;
use verus_core::{Bytes, Duration, Phase, ProfileSnapshot, Time};

use super::adapter::{Adapter, Shared};

/// What a connection's controller was told, in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent that count towards the window.
    pub sent: u64,
    /// Of these, acknowledged.
    pub acked: u64,
    /// Of these, declared lost.
    pub lost: u64,
    /// Bytes declared lost, as QUIC counts them.
    pub lost_bytes: u64,
    /// Packets too small to be told from bare acknowledgements.
    pub small: u64,
    /// Of these, acknowledged.
    pub small_acked: u64,
    /// Acknowledgements of packets that QUIC does not announce: path MTU probes that arrived.
    pub unannounced: u64,
    /// Acknowledgements of packets that left before the controller began, on an earlier path.
    pub foreign: u64,
    /// Acknowledgements of packets of which nothing was known. Should be none.
    pub misses: u64,
    /// Congestion marks (ECN) that came back.
    pub marked: u64,
    /// Persistent congestion (RFC 9002 §7.6), which the controller hears of as a timeout.
    pub persistent: u64,
    /// Ticks: each closes all epochs that have ended.
    pub ticks: u64,
}

/// What a controller was told, and what it answered. Times count from [`View::origin`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A batch left.
    Sent {
        /// When, by QUIC's clock.
        at: Time,
        /// Its bytes (UDP payload).
        bytes: u64,
        /// Its packets.
        packets: u64,
        /// The QUIC packet number of its last packet.
        last_number: u64,
        /// The controller's window then.
        window: Bytes,
        /// Bytes in flight before it.
        in_flight: Bytes,
    },
    /// A packet was acknowledged; its round-trip time is `at − sent`.
    Acked {
        /// When.
        at: Time,
        /// When it had left.
        sent: Time,
        /// Its size.
        bytes: u64,
        /// The window when it left, as found again.
        window: Bytes,
    },
    /// Packets were declared lost.
    Lost {
        /// When.
        at: Time,
        /// When the last of them had left.
        sent: Time,
        /// How many bytes.
        bytes: u64,
        /// Whether QUIC calls it persistent congestion.
        persistent: bool,
    },
    /// The controller's clock ticked.
    Tick {
        /// When it should have.
        due: Time,
        /// When it did.
        at: Time,
    },
}

/// A bounded log of events.
#[derive(Debug)]
pub(super) struct Log {
    events: Vec<Event>,
    capacity: usize,
}

impl Log {
    pub(super) fn new(capacity: usize) -> Self {
        Log {
            events: Vec::with_capacity(capacity.min(1 << 16)),
            capacity,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        if self.events.len() < self.capacity {
            self.events.push(event);
        }
    }

    #[cfg(test)]
    pub(super) fn last(&self) -> Option<Event> {
        self.events.last().copied()
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

/// A controller at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// The congestion window.
    pub window: Bytes,
    /// What QUIC was told may be in flight.
    pub limit: Bytes,
    /// Bytes in flight.
    pub in_flight: Bytes,
    /// Bytes acknowledged.
    pub delivered: Bytes,
    /// The size of a full packet (UDP payload).
    pub packet_size: Bytes,
    /// The controller's phase, where it has any.
    pub phase: Option<Phase>,
    /// The round-trip time of the packet acknowledged last; zero before the first.
    pub latest_rtt: Duration,
    /// Smoothed; zero before the first.
    pub smoothed_rtt: Duration,
    /// The least.
    pub min_rtt: Option<Duration>,
    /// What was counted.
    pub counters: Counters,
}

/// Somebody's promise to tick a controller; see [`View::driving`].
#[derive(Debug)]
#[must_use = "the promise ends when this is dropped"]
pub struct Driving {
    view: View,
}

impl Driving {
    /// What is driven.
    pub fn view(&self) -> &View {
        &self.view
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.view.shared.remove_driver();
    }
}

/// A handle on the controller of a connection: cheap to clone, to keep and to ask.
///
/// It stays valid when the connection ends, and tells of one path: after a migration to another address
/// the connection has a new controller, and [`view`](super::view) finds it.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) shared: Arc<Shared>,
}

impl View {
    /// The view of a congestion controller that a [`Factory`](super::Factory) built; `None` for any other.
    pub fn of(controller: Box<dyn congestion::Controller>) -> Option<View> {
        let adapter = controller.into_any().downcast::<Adapter>().ok()?;
        Some(View {
            shared: adapter.into_shared(),
        })
    }

    /// The instant from which this controller's times count.
    pub fn origin(&self) -> Instant {
        self.shared.origin()
    }

    /// The controller as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.with(|host| {
            let rtt = host.rtt();
            Snapshot {
                window: host.controller().window(),
                limit: Bytes::new(host.limit()),
                in_flight: Bytes::new(host.in_flight()),
                delivered: Bytes::new(host.delivered()),
                packet_size: Bytes::new(host.packet_size()),
                phase: host.controller().phase(),
                latest_rtt: rtt.latest(),
                smoothed_rtt: rtt.smoothed(),
                min_rtt: rtt.least(),
                counters: host.counters(),
            }
        })
    }

    /// The controller's internal quantities by name.
    pub fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.shared.with(|host| host.controller().probe(record));
    }

    /// The controller's delay profile, if it learns one.
    pub fn profile(&self) -> Option<ProfileSnapshot> {
        self.shared.with(|host| host.controller().profile())
    }

    /// Keeps a log of at most `capacity` events from now on, or none for 0. What comes when it is full
    /// is left out until [`take_log`](Self::take_log) makes room.
    pub fn log(&self, capacity: usize) {
        let log = (capacity > 0).then(|| Log::new(capacity));
        self.shared.with(|host| host.set_log(log));
    }

    /// Takes what was logged.
    pub fn take_log(&self) -> Vec<Event> {
        self.shared.with(|host| host.take_log())
    }

    /// When [`tick`](Self::tick) is next worth calling; `None` while epochs do not matter. Whatever is sent or
    /// arrives may make it sooner.
    pub fn next_tick(&self, now: Instant) -> Option<Instant> {
        self.shared.next_tick(now)
    }

    /// Promises to call [`tick`](Self::tick) whenever [`next_tick`](Self::next_tick) asks for it, for as long as the
    /// answer lives. Without such a promise two packets may be in flight whatever the controller says, since
    /// nobody comes back to a budget that is spent.
    pub fn driving(&self) -> Driving {
        self.shared.add_driver();
        Driving { view: self.clone() }
    }

    /// Closes the epochs that have ended by `now`. Says whether the connection may send more than before,
    /// and should be woken. [`drive`](super::drive) does this for connections of quinn; whoever owns a
    /// sans-IO connection can do it.
    pub fn tick(&self, now: Instant) -> bool {
        self.shared.tick(now)
    }

    /// Whether both look at the same controller.
    pub fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}
