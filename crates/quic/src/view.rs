//! Looking at a connection's controller from outside.

use std::sync::Arc;
use std::time::Instant;

use verus_core::{Bytes, Duration, Phase, ProfileSnapshot};
#[cfg(feature = "qlog")]
use verus_measure::qlog::{Qlog, Written};

use crate::events::{Counters, Event, Log};
use crate::path::PathController;

/// A controller at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// The congestion window.
    pub window: Bytes,
    /// The limit on bytes in flight last given to QUIC.
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
    /// The counts.
    pub counters: Counters,
}

/// A caller's promise to tick a controller; see [`View::driving`].
#[derive(Debug)]
#[must_use = "the promise ends when this is dropped"]
pub struct Driving {
    view: View,
}

impl Driving {
    /// The view of the driven controller.
    pub fn view(&self) -> &View {
        &self.view
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.view.path.remove_driver();
    }
}

/// A handle on the controller of a connection: cheap to clone, to keep and to ask.
///
/// It stays valid when the connection ends, and describes one path. After a migration to another
/// address the connection has a new controller.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) path: Arc<PathController>,
}

impl View {
    /// The view of a path's controller.
    pub fn of(path: Arc<PathController>) -> View {
        View { path }
    }

    /// The instant from which this controller's times count.
    pub fn origin(&self) -> Instant {
        self.path.origin()
    }

    /// The controller's present state.
    pub fn snapshot(&self) -> Snapshot {
        self.path.with(|bridge| {
            let rtt = bridge.rtt();
            Snapshot {
                window: bridge.controller().window(),
                limit: Bytes::new(bridge.limit()),
                in_flight: Bytes::new(bridge.in_flight()),
                delivered: Bytes::new(bridge.delivered()),
                packet_size: Bytes::new(bridge.packet_size()),
                phase: bridge.controller().phase(),
                latest_rtt: rtt.latest(),
                smoothed_rtt: rtt.smoothed(),
                min_rtt: rtt.least(),
                counters: bridge.counters(),
            }
        })
    }

    /// The controller's internal quantities by name.
    pub fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.path.with(|bridge| bridge.controller().probe(record));
    }

    /// The controller's delay profile, if it learns one.
    pub fn profile(&self) -> Option<ProfileSnapshot> {
        self.path.with(|bridge| bridge.controller().profile())
    }

    /// Keeps a log of at most `capacity` events from now on, or none for 0. A full log omits events
    /// until [`take_log`](Self::take_log) makes room.
    pub fn log(&self, capacity: usize) {
        let log = (capacity > 0).then(|| Log::new(capacity));
        self.path.with(|bridge| bridge.set_log(log));
    }

    /// Takes the logged events.
    pub fn take_log(&self) -> Vec<Event> {
        self.path.with(|bridge| bridge.take_log())
    }

    /// Writes the fate of packets that leave from now on, and the controller's reactions, to a log.
    /// Packets count from the controller's first, times from its [`origin`](Self::origin): packets
    /// are known here by the order of leaving, not by QUIC's numbers. Another path's controller
    /// writes none.
    #[cfg(feature = "qlog")]
    pub fn log_to(&self, log: Qlog) {
        self.path.with(|bridge| bridge.set_qlog(log));
    }

    /// Ends that log, if there is one.
    ///
    /// # Errors
    /// The error while it was written.
    #[cfg(feature = "qlog")]
    pub fn end_log(&self) -> std::io::Result<Option<Written>> {
        let log = self.path.with(|bridge| bridge.take_qlog());
        log.map(|log| log.finish()).transpose()
    }

    /// When [`tick`](Self::tick) is next worth calling; `None` while epochs do not matter. Whatever is sent or
    /// arrives may make it sooner.
    pub fn next_tick(&self, now: Instant) -> Option<Instant> {
        self.path.next_tick(now)
    }

    /// Promises to call [`tick`](Self::tick) whenever [`next_tick`](Self::next_tick) asks for it, for as long as the
    /// answer lives. Without such a promise two packets may be in flight whatever the controller says, since
    /// no event brings it back to a budget that is spent.
    pub fn driving(&self) -> Driving {
        self.path.add_driver();
        Driving { view: self.clone() }
    }

    /// Closes the epochs that have ended by `now`. Says whether the connection may send more than before,
    /// and should be woken. A [`Driver`](crate::Driver) does this; the owner of a sans-IO connection can
    /// do it.
    pub fn tick(&self, now: Instant) -> bool {
        self.path.tick(now)
    }

    /// Whether both look at the same controller.
    pub fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.path, &other.path)
    }
}
