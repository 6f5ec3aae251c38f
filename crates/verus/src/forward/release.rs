//! When packets leave: by the window, by the pace, and by what the path must have delivered although nothing says so yet.

use super::law::{Decision, SMALL_PACKETS};
use verus_core::controller::Allowance;
use verus_core::credit::{Credit, TICK};
use verus_core::units::{Bytes, Duration, Rate, Time};

/// A flow's packets, before they leave and while they are in flight.
#[derive(Clone, Debug)]
pub(super) struct Release {
    packet: Bytes,
    credit: Credit,
    window: Bytes,
    /// What departures are spread at.
    pace: Rate,
    in_flight: Bytes,
    now: Time,
    /// Up to when what the path delivered has been acknowledged; after that it is predicted.
    known_until: Time,
    /// r, and how long a packet takes at r.
    rate: Rate,
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
            known_until: now,
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

    /// Time has passed.
    pub(super) fn advance(&mut self, now: Time, in_flight: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = in_flight;
        self.credit.fill(self.now, self.pace, self.packet);
    }

    /// A packet left, after which so much is in flight.
    pub(super) fn on_sent(&mut self, now: Time, size: Bytes, in_flight: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = in_flight;
        self.credit.spend(size);
    }

    /// What arrived until then has been acknowledged.
    pub(super) fn on_known(&mut self, until: Time) {
        self.known_until = until;
    }

    /// So much may leave at once, and no more is left of what was in flight.
    pub(super) fn begin_again(&mut self, now: Time, burst: Bytes) {
        self.now = self.now.max(now);
        self.in_flight = Bytes::ZERO;
        self.credit = Credit::new(burst, self.now);
    }

    /// The law has decided, of a path that delivers at `rate`; for up to `horizon` without news it is assumed to.
    pub(super) fn follow(&mut self, decision: &Decision, rate: Rate, horizon: Duration) {
        self.window = Bytes::new(decision.window);
        self.pace = Rate::from_bps(decision.pace);
        self.rate = rate;
        self.packet_time = rate.time_for(self.packet);
        self.horizon = horizon;
    }

    /// How many bytes the path should have delivered, at r, since what was acknowledged last, less the packet that is due
    /// next; at most what is in flight, and at most what r delivers in H.
    pub(super) fn unheard(&self) -> Bytes {
        let age = self.now.since(self.known_until).min(self.horizon);
        if age <= self.packet_time {
            return Bytes::ZERO;
        }
        let overdue = age.saturating_sub(self.packet_time);
        self.rate.bytes_in(overdue).min(self.in_flight)
    }

    fn is_small(&self) -> bool {
        self.window < self.packet * SMALL_PACKETS
    }

    /// How much may be in flight, without what is assumed delivered: the window, rounded to the nearest packet; for a small
    /// window a packet more, as its pace is what limits it.
    fn allowed(&self) -> Bytes {
        let more = if self.is_small() {
            self.packet
        } else {
            self.packet / 2
        };
        self.window + more
    }

    pub(super) fn allowance(&self, paced: bool) -> Allowance {
        let window = Allowance::window(self.allowed() + self.unheard());
        if self.is_small() || paced {
            window.and_budget(self.credit.get())
        } else {
            window
        }
    }

    /// When a packet may leave that may not leave now, if no acknowledgement comes before.
    pub(super) fn next(&self) -> Option<Time> {
        let soonest = self.now + TICK;
        let funded = if self.credit.get() < self.packet {
            self.credit.next(self.pace, self.packet)
        } else {
            soonest
        };
        let more = self.in_flight + self.packet;
        let allowed = self.allowed();
        if more <= allowed + self.unheard() {
            return Some(funded.max(soonest));
        }
        // When so much is overdue that there is room for a packet.
        let due = self.packet_time + self.rate.time_for(more - allowed);
        (due <= self.horizon).then(|| (self.known_until + due).max(funded).max(soonest))
    }
}
