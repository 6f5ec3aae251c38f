//! Departures of packets, limited by window, pace and assumed deliveries. The last are data that
//! the path has probably delivered, although no acknowledgement shows it yet.

use super::law::{Decision, SMALL_PACKETS};
use verus_core::controller::Allowance;
use verus_core::credit::{Credit, TICK};
use verus_core::units::{Bytes, Duration, Rate, Time};

/// The limits on a flow's departures, and its data in flight.
#[derive(Clone, Debug)]
pub(super) struct Release {
    packet: Bytes,
    credit: Credit,
    window: Bytes,
    /// The pace of departures.
    pace: Rate,
    in_flight: Bytes,
    now: Time,
    /// The time up to which deliveries are acknowledged; later ones are predicted.
    acknowledged_until: Time,
    /// r.
    rate: Rate,
    /// The time that a packet takes at r.
    packet_time: Duration,
    /// H; zero while nothing is predicted.
    horizon: Duration,
}

impl Release {
    pub(super) fn new(packet: Bytes, burst: Bytes, now: Time) -> Self {
        Release {
            packet,
            credit: Credit::new(burst, now),
            window: burst,
            pace: Rate::from_bps(1),
            in_flight: Bytes::ZERO,
            now,
            acknowledged_until: now,
            rate: Rate::default(),
            packet_time: Rate::default().time_for(packet),
            horizon: Duration::ZERO,
        }
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn packet(&self) -> Bytes {
        self.packet
    }

    pub(super) fn window(&self) -> Bytes {
        self.window.max(self.packet)
    }

    pub(super) fn resize(&mut self, packet: Bytes) {
        self.packet = packet;
    }

    /// Moves the time on to `now`, which earns credit at the pace.
    pub(super) fn advance(&mut self, now: Time, in_flight: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = in_flight;
        self.credit.fill(self.now, self.pace, self.packet);
    }

    /// Spends the credit of a packet that left; `in_flight` includes it.
    pub(super) fn on_sent(&mut self, now: Time, size: Bytes, in_flight: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = in_flight;
        self.credit.spend(size);
    }

    /// Records that arrivals up to `until` have been acknowledged.
    pub(super) fn on_acknowledged(&mut self, until: Time) {
        self.acknowledged_until = until;
    }

    /// Starts again with nothing in flight; `burst` may leave at once.
    pub(super) fn restart(&mut self, now: Time, burst: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = Bytes::ZERO;
        self.credit = Credit::new(burst, self.now);
    }

    /// Applies the law's decision. The path is assumed to deliver at `rate`, for up to `horizon`
    /// without an acknowledgement.
    pub(super) fn follow(&mut self, decision: &Decision, rate: Rate, horizon: Duration) {
        self.window = Bytes::new(decision.window);
        self.pace = Rate::from_bps(decision.pace);
        self.rate = rate;
        self.packet_time = rate.time_for(self.packet);
        self.horizon = horizon;
    }

    /// The bytes assumed delivered since the last acknowledgement: those that the path carries at
    /// r, for at most H, less the packet that is due next. The data in flight are the upper limit.
    pub(super) fn assumed_delivered(&self) -> Bytes {
        let silence = self.now.since(self.acknowledged_until).min(self.horizon);
        if silence <= self.packet_time {
            return Bytes::ZERO;
        }
        let overdue = silence.saturating_sub(self.packet_time);
        self.rate.bytes_in(overdue).min(self.in_flight)
    }

    fn is_small(&self) -> bool {
        self.window < self.packet * SMALL_PACKETS
    }

    /// The limit of the data in flight, without assumed deliveries: the window rounded to the
    /// nearest packet. A small window has one packet more, since its pace limits it.
    fn in_flight_limit(&self) -> Bytes {
        let margin = if self.is_small() {
            self.packet
        } else {
            self.packet / 2
        };
        self.window + margin
    }

    /// The data that may leave, by window and pace.
    pub(super) fn allowance(&self, paced: bool) -> Allowance {
        let window = Allowance::window(self.in_flight_limit() + self.assumed_delivered());
        if self.is_small() || paced {
            window.and_budget(self.credit.get())
        } else {
            window
        }
    }

    /// When the next packet may leave, unless an acknowledgement comes before.
    pub(super) fn next(&self) -> Option<Time> {
        let soonest = self.now + TICK;
        let funded = if self.credit.get() < self.packet {
            self.credit.next(self.pace, self.packet)
        } else {
            soonest
        };
        let next_in_flight = self.in_flight + self.packet;
        let limit = self.in_flight_limit();
        if next_in_flight <= limit + self.assumed_delivered() {
            return Some(funded.max(soonest));
        }
        // The time of silence after which assumed deliveries make room for a packet.
        let due = self.packet_time + self.rate.time_for(next_in_flight - limit);
        (due <= self.horizon).then(|| (self.acknowledged_until + due).max(funded).max(soonest))
    }
}
