//! A [`Bridge`] that a stack's adapter, drivers and recorders share.
//!
//! The bridge lies behind a lock, which others hold only briefly: the driver to close an epoch, a
//! recorder to read. Stacks ask for the window twice for each packet that they send. The answer is
//! kept in an atomic, and recomputed after an event.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use verus_core::{Bytes, Rate, Time};

use crate::bridge::Bridge;

const AWAKE: u64 = 0;
const UNTIL_WOKEN: u64 = u64::MAX;

/// A controller behind the callbacks of one path of a connection, in the time of the stack's clock.
///
/// A clone of the stack's adapter keeps the same one. A stack clones its controller for two purposes:
/// to let a caller look at it, and to keep it when a peer's port changes and its address does not (a
/// NAT has forgotten it). Only one of the original and its clone gets events at a time, and the
/// estimates of the path stay valid in both cases.
pub struct PathController {
    origin: Instant,
    bridge: Mutex<Bridge>,
    /// The present [`Bridge::limit_for_stack`], unless something is pending.
    limit: AtomicU64,
    pending: AtomicBool,
    drivers: AtomicUsize,
    /// Until when drivers sleep, in ns: [`AWAKE`] while none does, [`UNTIL_WOKEN`] where nothing is due.
    alarm: AtomicU64,
    /// Notifies a driver that something is due before the alarm.
    sooner: Notify,
    /// The connection's send window. The driver sets it to its present value, which makes the stack
    /// check whether it can send.
    send_window: Arc<AtomicU64>,
}

impl fmt::Debug for PathController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathController")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl PathController {
    pub(crate) fn new(origin: Instant, bridge: Bridge, send_window: Arc<AtomicU64>) -> Self {
        PathController {
            origin,
            limit: AtomicU64::new(bridge.limit_for_stack()),
            bridge: Mutex::new(bridge),
            pending: AtomicBool::new(false),
            drivers: AtomicUsize::new(0),
            alarm: AtomicU64::new(AWAKE),
            sooner: Notify::new(),
            send_window,
        }
    }

    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    pub(crate) fn send_window(&self) -> u64 {
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
        self.limit
            .store(bridge.limit_for_stack(), Ordering::Relaxed);
        self.pending.store(bridge.is_pending(), Ordering::Relaxed);
        answer
    }

    /// Applies `act` to the bridge after all pending events.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Bridge) -> T) -> T {
        self.update(|bridge| {
            bridge.flush();
            let answer = act(bridge);
            self.wake_driver(bridge);
            answer
        })
    }

    fn instant(&self, at: Time) -> Instant {
        self.origin + Duration::from_nanos(at.as_nanos())
    }

    pub(crate) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let next = self.with(|bridge| bridge.next_tick(self.time(now)))?;
        Some(self.instant(next))
    }

    /// When a driver should tick next. From now on until the alarm is [`AWAKE`], whatever becomes due earlier ends
    /// [`sooner`](Self::sooner).
    pub(crate) fn set_alarm(&self, now: Instant) -> Option<Instant> {
        let next = self.update(|bridge| {
            bridge.flush();
            let next = bridge.next_tick(self.time(now));
            let alarm = next.map_or(UNTIL_WOKEN, |at| at.as_nanos());
            self.alarm.store(alarm, Ordering::Relaxed);
            next
        })?;
        Some(self.instant(next))
    }

    /// Waits until something is due before the alarm.
    pub(crate) async fn sooner(&self) {
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

    pub(crate) fn tick(&self, now: Instant) -> bool {
        self.update(|bridge| bridge.tick(self.time(now)))
    }

    /// See [`Bridge::close`].
    pub(crate) fn close(&self) {
        self.with(Bridge::close);
    }

    /// A driver begins or ends its work.
    pub(crate) fn add_driver(&self) {
        self.drivers.fetch_add(1, Ordering::Relaxed);
        self.with(|bridge| bridge.set_driven(true));
    }

    pub(crate) fn remove_driver(&self) {
        if self.drivers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.with(|bridge| bridge.set_driven(false));
        } else {
            // It may have been woken and not have gone on.
            self.sooner.notify_one();
        }
    }

    /// A batch of `bytes` left, the last packet of which the stack numbers `last_number`.
    pub fn on_sent(&self, now: Instant, bytes: u64, last_number: u64) {
        let now = self.time(now);
        self.update(|bridge| {
            bridge.on_sent(now, bytes, last_number);
            self.wake_driver(bridge);
        });
    }

    /// A packet of `bytes` that left at `sent` is acknowledged. [`on_end_acks`](Self::on_end_acks)
    /// follows the last of one acknowledgement. `smoothed` is the round trip that the stack paces by.
    #[inline]
    pub fn on_ack(
        &self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        smoothed: Duration,
    ) {
        let now = self.time(now);
        let sent = (sent >= self.origin).then(|| self.time(sent));
        self.update(|bridge| {
            bridge.set_stack_rtt(smoothed.into());
            bridge.on_ack(now, sent, bytes, app_limited);
        });
    }

    /// Ends the report of one acknowledgement; `in_flight` is the stack's present count of bytes.
    pub fn on_end_acks(&self, now: Instant, in_flight: u64, app_limited: bool) {
        let now = self.time(now);
        self.update(|bridge| bridge.on_end_acks(now, in_flight, app_limited));
    }

    /// `bytes` of the packets that left up to `sent` are lost; zero means that a congestion mark has
    /// come back. `persistent` is persistent congestion (RFC 9002 §7.6).
    pub fn on_congestion(&self, now: Instant, sent: Instant, persistent: bool, bytes: u64) {
        let (now, sent) = (self.time(now), self.time(sent));
        self.update(|bridge| bridge.on_congestion(now, sent, persistent, bytes));
    }

    /// The path takes packets of `bytes` from now on.
    pub fn on_packet_size(&self, bytes: u16) {
        self.update(|bridge| bridge.on_packet_size(bytes));
    }

    /// How many bytes may be in flight, or `u64::MAX` where a packet may leave that the stack must not
    /// pace. A stack sends while one more packet stays below it.
    #[inline]
    pub fn limit(&self) -> u64 {
        if self.pending.load(Ordering::Relaxed) {
            self.with(|bridge| bridge.limit_for_stack())
        } else {
            self.limit.load(Ordering::Relaxed)
        }
    }

    /// The controller's window and pacing rate.
    pub fn window_and_pace(&self) -> (Bytes, Option<Rate>) {
        self.with(|bridge| {
            let controller = bridge.controller();
            (controller.window(), controller.pacing_rate())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

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
        let path = PathController::new(origin, bridge, Arc::default());
        let mut context = Context::from_waker(Waker::noop());
        let acked = |now: Instant| path.on_ack(now, at(1), SIZE, false, Duration::ZERO);

        path.add_driver();
        assert_eq!(path.set_alarm(at(0)), None, "nothing to drive");
        let mut sooner = pin!(path.sooner());
        assert_eq!(sooner.as_mut().poll(&mut context), Poll::Pending);
        path.on_sent(at(1), 10 * SIZE, 9);
        assert_eq!(sooner.poll(&mut context), Poll::Ready(()));

        // In slow start only a stuck path needs the driver, a second later.
        assert_eq!(path.set_alarm(at(1)), Some(at(1001)));
        let mut sooner = pin!(path.sooner());
        acked(at(2));
        path.on_end_acks(at(2), 9 * SIZE, false);
        path.limit();
        assert_eq!(sooner.as_mut().poll(&mut context), Poll::Pending);

        // A loss ends it, and the first epoch will end long before that.
        acked(at(3));
        path.on_end_acks(at(3), 8 * SIZE, false);
        path.on_congestion(at(3), at(1), false, SIZE);
        path.limit();
        assert_eq!(sooner.poll(&mut context), Poll::Ready(()));
        let epoch = path.set_alarm(at(3)).expect("epochs run");
        assert!(epoch <= at(8), "an epoch of 5 ms: {:?}", epoch - origin);
    }

    #[test]
    fn a_driver_is_left_asleep_by_what_changes_nothing_for_it() {
        let origin = origin();
        let at = |millis| origin + Duration::from_millis(millis);
        let scheme = Scheme::parse("verus").expect("in the catalogue");
        let bridge = Bridge::new(scheme.config().build(1), Time::ZERO, SIZE as u16);
        let path = PathController::new(origin, bridge, Arc::default());
        let mut context = Context::from_waker(Waker::noop());

        path.add_driver();
        path.on_sent(at(1), 2 * SIZE, 1);
        path.set_alarm(at(1));
        let mut sooner = pin!(path.sooner());
        for millis in 2..100 {
            path.on_sent(at(millis), SIZE, millis);
            assert_eq!(sooner.as_mut().poll(&mut context), Poll::Pending);
        }
    }
}
