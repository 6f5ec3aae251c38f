//! quinn's `Controller` trait over a [`Bridge`].
//!
//! The bridge lies behind a lock, which others hold only briefly: the driver to close an epoch, a
//! recorder to read. quinn asks for the window twice for each packet that it sends. The answer is
//! kept in an atomic, and recomputed after an event.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quinn_proto::{RttEstimator, congestion};
use tokio::sync::Notify;
use verus_core::Time;

use super::bridge::Bridge;

const AWAKE: u64 = 0;
const UNTIL_WOKEN: u64 = u64::MAX;

/// A bridge, and the state that its adapters, drivers and recorders share.
pub(super) struct Shared {
    origin: Instant,
    bridge: Mutex<Bridge>,
    /// The present [`Bridge::limit`], unless something is pending.
    limit: AtomicU64,
    pending: AtomicBool,
    drivers: AtomicUsize,
    /// Until when drivers sleep, in ns: [`AWAKE`] while none does, [`UNTIL_WOKEN`] where nothing is due.
    alarm: AtomicU64,
    /// Something is due before that.
    sooner: Notify,
    /// The connection's send window. The driver sets it to its present value, which makes quinn
    /// check whether it can send.
    send_window: Arc<AtomicU64>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(origin: Instant, bridge: Bridge, send_window: Arc<AtomicU64>) -> Self {
        Shared {
            origin,
            limit: AtomicU64::new(bridge.limit()),
            bridge: Mutex::new(bridge),
            pending: AtomicBool::new(false),
            drivers: AtomicUsize::new(0),
            alarm: AtomicU64::new(AWAKE),
            sooner: Notify::new(),
            send_window,
        }
    }

    pub(super) fn origin(&self) -> Instant {
        self.origin
    }

    pub(super) fn send_window(&self) -> u64 {
        self.send_window.load(Ordering::Relaxed)
    }

    #[inline]
    fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.origin);
        Time::from_nanos(since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos()))
    }

    /// Applies `act` to the bridge, and publishes its new limit.
    #[inline]
    fn update<T>(&self, act: impl FnOnce(&mut Bridge) -> T) -> T {
        // A controller that panicked has ended its connection's task; a recorder may still look.
        let mut bridge = self.bridge.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = act(&mut bridge);
        self.limit.store(bridge.limit(), Ordering::Relaxed);
        self.pending.store(bridge.is_pending(), Ordering::Relaxed);
        answer
    }

    /// Applies `act` to the bridge after all pending events.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Bridge) -> T) -> T {
        self.update(|bridge| {
            bridge.flush();
            let answer = act(bridge);
            self.wake_driver(bridge);
            answer
        })
    }

    fn instant(&self, at: Time) -> Instant {
        self.origin + std::time::Duration::from_nanos(at.as_nanos())
    }

    pub(super) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let next = self.with(|bridge| bridge.next_tick(self.time(now)))?;
        Some(self.instant(next))
    }

    /// When a driver should tick next. From now on until it [is awake](Self::awake) whatever makes something
    /// due before that ends [`sooner`](Self::sooner).
    pub(super) fn set_alarm(&self, now: Instant) -> Option<Instant> {
        let next = self.update(|bridge| {
            bridge.flush();
            let next = bridge.next_tick(self.time(now));
            let alarm = next.map_or(UNTIL_WOKEN, |at| at.as_nanos());
            self.alarm.store(alarm, Ordering::Relaxed);
            next
        })?;
        Some(self.instant(next))
    }

    /// Until something is due before the alarm.
    pub(super) async fn sooner(&self) {
        self.sooner.notified().await;
    }

    /// Wakes a driver that would sleep past the next deadline. The bridge's lock is held, so that
    /// nothing comes between a driver's question and its alarm.
    #[inline]
    fn wake_driver(&self, bridge: &Bridge) {
        let alarm = self.alarm.load(Ordering::Relaxed);
        if alarm != AWAKE && bridge.next_due().is_some_and(|due| due.as_nanos() < alarm) {
            self.alarm.store(AWAKE, Ordering::Relaxed);
            self.sooner.notify_one();
        }
    }

    pub(super) fn tick(&self, now: Instant) -> bool {
        self.update(|bridge| bridge.tick(self.time(now)))
    }

    /// See [`Bridge::close`].
    pub(super) fn close(&self) {
        self.with(Bridge::close);
    }

    /// A driver begins or ends its work.
    pub(super) fn add_driver(&self) {
        self.drivers.fetch_add(1, Ordering::Relaxed);
        self.with(|bridge| bridge.set_driven(true));
    }

    pub(super) fn remove_driver(&self) {
        if self.drivers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.with(|bridge| bridge.set_driven(false));
        } else {
            // It may have been woken and not have gone on.
            self.sooner.notify_one();
        }
    }
}

/// A controller of the core, as quinn sees it.
///
/// A clone is the same controller. quinn clones one for two purposes: to let a caller look at it,
/// and to keep it when a peer's port changes and its address does not (a NAT has forgotten it).
/// Only one of the original and its clone gets events at a time, and the estimates of the path stay
/// valid in both cases.
#[derive(Debug)]
pub(super) struct Adapter {
    shared: Arc<Shared>,
}

impl Adapter {
    pub(super) fn new(shared: Shared) -> Self {
        Adapter {
            shared: Arc::new(shared),
        }
    }

    pub(super) fn into_shared(self) -> Arc<Shared> {
        self.shared
    }
}

impl congestion::Controller for Adapter {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        let shared = &*self.shared;
        let now = shared.time(now);
        shared.update(|bridge| {
            bridge.on_sent(now, bytes, last_packet_number);
            shared.wake_driver(bridge);
        });
    }

    #[inline]
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let shared = &*self.shared;
        let now = shared.time(now);
        let sent = (sent >= shared.origin).then(|| shared.time(sent));
        shared.update(|bridge| bridge.on_ack(now, sent, bytes, app_limited));
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        let shared = &*self.shared;
        let now = shared.time(now);
        shared.update(|bridge| bridge.on_end_acks(now, in_flight, app_limited));
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let shared = &*self.shared;
        let (now, sent) = (shared.time(now), shared.time(sent));
        shared
            .update(|bridge| bridge.on_congestion(now, sent, is_persistent_congestion, lost_bytes));
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.shared.update(|bridge| bridge.on_packet_size(new_mtu));
    }

    #[inline]
    fn window(&self) -> u64 {
        let shared = &*self.shared;
        if shared.pending.load(Ordering::Relaxed) {
            shared.with(|bridge| bridge.limit())
        } else {
            shared.limit.load(Ordering::Relaxed)
        }
    }

    fn metrics(&self) -> congestion::ControllerMetrics {
        let mut metrics = congestion::ControllerMetrics::default();
        self.shared.with(|bridge| {
            metrics.congestion_window = bridge.controller().window().get();
            metrics.pacing_rate = bridge.controller().pacing_rate().map(|rate| rate.as_bps());
        });
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        Box::new(Adapter {
            shared: Arc::clone(&self.shared),
        })
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use congestion::Controller as _;
    use verus_senders::Scheme;

    use super::*;

    const SIZE: u64 = 1200;

    /// One reading of a clock, to count from.
    #[expect(
        clippy::disallowed_methods,
        reason = "an instant to count from; no result depends on it"
    )]
    fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_driver_that_sleeps_through_slow_start_is_woken_when_it_ends() {
        let origin = origin();
        let at = |millis| origin + Duration::from_millis(millis);
        let scheme = Scheme::parse("verus").expect("in the catalogue");
        let bridge = Bridge::new(scheme.config().build(1), Time::ZERO, SIZE as u16);
        let mut adapter = Adapter::new(Shared::new(origin, bridge, Arc::default()));
        let shared = Arc::clone(&adapter.shared);
        let mut context = Context::from_waker(Waker::noop());
        // As `on_ack` does, with a value that only quinn can make.
        let acked = |now: Instant| {
            shared.update(|bridge| {
                let sent = Some(shared.time(at(1)));
                bridge.on_ack(shared.time(now), sent, SIZE, false);
            });
        };

        shared.add_driver();
        assert_eq!(shared.set_alarm(at(0)), None, "nothing to drive");
        let mut sooner = pin!(shared.sooner());
        assert_eq!(sooner.as_mut().poll(&mut context), Poll::Pending);
        adapter.on_sent(at(1), 10 * SIZE, 9);
        assert_eq!(sooner.poll(&mut context), Poll::Ready(()));

        // In slow start only a stuck path needs the driver, a second later.
        assert_eq!(shared.set_alarm(at(1)), Some(at(1001)));
        let mut sooner = pin!(shared.sooner());
        acked(at(2));
        adapter.on_end_acks(at(2), 9 * SIZE, false, None);
        adapter.window();
        assert_eq!(sooner.as_mut().poll(&mut context), Poll::Pending);

        // A loss ends it, and the first epoch will end long before that.
        acked(at(3));
        adapter.on_end_acks(at(3), 8 * SIZE, false, None);
        adapter.on_congestion_event(at(3), at(1), false, SIZE);
        adapter.window();
        assert_eq!(sooner.poll(&mut context), Poll::Ready(()));
        let epoch = shared.set_alarm(at(3)).expect("epochs run");
        assert!(epoch <= at(8), "an epoch of 5 ms: {:?}", epoch - origin);
    }

    #[test]
    fn a_driver_is_left_asleep_by_what_changes_nothing_for_it() {
        let origin = origin();
        let at = |millis| origin + Duration::from_millis(millis);
        let scheme = Scheme::parse("verus").expect("in the catalogue");
        let bridge = Bridge::new(scheme.config().build(1), Time::ZERO, SIZE as u16);
        let mut adapter = Adapter::new(Shared::new(origin, bridge, Arc::default()));
        let shared = Arc::clone(&adapter.shared);
        let mut context = Context::from_waker(Waker::noop());

        shared.add_driver();
        adapter.on_sent(at(1), 2 * SIZE, 1);
        shared.set_alarm(at(1));
        let mut sooner = pin!(shared.sooner());
        for millis in 2..100 {
            adapter.on_sent(at(millis), SIZE, millis);
            assert_eq!(sooner.as_mut().poll(&mut context), Poll::Pending);
        }
    }
}
