//! What the path does to a packet when no queue stands in it, and the queue that stands.
//!
//! A round trip is the way there, which the flow's own queue lengthens, and the way back, which it does not. Where the
//! receiver's clock is known the two are told apart (its offset cancels in every difference used), so that
//! acknowledgements that queue on their way back are no queue; else all of the round trip counts as the way there.

use crate::controller::Acked;
use crate::units::{Duration, Time};

/// The way there is remembered for one to two of these. Drains meet the path more often.
const THERE_MEMORY: Duration = Duration::from_secs(5);
/// Nothing is forgotten while nothing is heard: a gap counts for so long at most. A drain needs packets to see by, and
/// an outage, or one packet in a second, has none.
const LONGEST_GAP: Duration = Duration::from_millis(200);
/// The way back likewise: long enough to see past acknowledgements that arrive in bursts; and a way back that has got a
/// queue of its own is a longer path soon.
const BACK_MEMORY: Duration = Duration::from_millis(500);

/// A minimum over the last one to two spans: a newer one under way, and the one before.
#[derive(Clone, Copy, Debug)]
struct Least {
    older: i64,
    newer: i64,
    since: Time,
}

impl Least {
    const NOTHING: Least = Least {
        older: i64::MAX,
        newer: i64::MAX,
        since: Time::ZERO,
    };

    fn update(&mut self, now: Time, span: Duration, value: i64) {
        if now.since(self.since) >= span {
            // One step however long nothing was heard: an outage does not make the path unknown.
            self.older = self.newer;
            self.newer = value;
            self.since = now;
        }
        self.newer = self.newer.min(value);
    }

    fn get(&self) -> i64 {
        self.older.min(self.newer)
    }
}

/// The delays of one flow's path, in ns; the ways there and back each off by the difference of the clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathDelay {
    /// Whether the receiver says when packets arrived; settled by the first feedback.
    timed: Option<bool>,
    there: Least,
    /// For how long packets were heard of, silences apart.
    heard: Duration,
    last: Time,
    /// The way there with the queue that stood lately.
    standing: Least,
    back: Least,
    /// By how much the last acknowledgement's way back was longer than the shortest.
    back_excess: Duration,
}

impl PathDelay {
    pub(super) fn new() -> Self {
        PathDelay {
            timed: None,
            there: Least::NOTHING,
            heard: Duration::ZERO,
            last: Time::ZERO,
            standing: Least::NOTHING,
            back: Least::NOTHING,
            back_excess: Duration::ZERO,
        }
    }

    /// Whether the receiver's clock counts, now that one has heard whether it is told.
    pub(super) fn settle(&mut self, told: bool) {
        self.timed.get_or_insert(told);
    }

    /// Whether that has been heard.
    pub(super) fn is_settled(&self) -> bool {
        self.timed.is_some()
    }

    /// Whether the receiver's clock counts.
    pub(super) fn is_timed(&self) -> bool {
        self.timed == Some(true)
    }

    /// Takes a sample; returns when the packet was received by the clock that counts, if that is known.
    pub(super) fn on_acked(
        &mut self,
        now: Time,
        acked: &Acked,
        smoothed_rtt: Duration,
    ) -> Option<Time> {
        // Clocks' offsets make these negative.
        let from =
            |later: Time, earlier: Time| later.as_nanos().wrapping_sub(earlier.as_nanos()) as i64;
        let (there, back, at) = match acked.received_at {
            Some(at) if self.timed == Some(true) => (from(at, acked.packet.at), from(now, at), at),
            _ if self.timed == Some(false) => (acked.rtt.as_nanos() as i64, 0, now),
            _ => return None,
        };
        self.heard += now.since(self.last).min(LONGEST_GAP);
        self.last = now;
        self.there
            .update(Time::ZERO + self.heard, THERE_MEMORY, there);
        self.standing.update(now, smoothed_rtt / 4, there);
        self.back.update(now, BACK_MEMORY, back);
        let excess = back.saturating_sub(self.back.get());
        self.back_excess = Duration::from_nanos(excess.max(0) as u64);
        Some(at)
    }

    fn is_known(&self) -> bool {
        self.there.newer != i64::MAX
    }

    /// D: the round trip without this flow's queue; `None` before the first sample.
    pub(super) fn base(&self) -> Option<Duration> {
        let nanos = self.there.get().saturating_add(self.back.get());
        self.is_known()
            .then(|| Duration::from_nanos(nanos.max(0) as u64))
    }

    /// Q: the least queueing delay of the last quarter to half of a smoothed round trip.
    pub(super) fn queue(&self) -> Duration {
        let nanos = self.standing.get().saturating_sub(self.there.get());
        Duration::from_nanos(nanos.max(0) as u64)
    }

    /// The queue that stands is the path.
    pub(super) fn lengthen(&mut self) {
        let there = self.standing.get();
        self.there = Least {
            older: there,
            newer: there,
            since: Time::ZERO + self.heard,
        };
    }

    /// For how long what the last acknowledgement says had been waiting to be heard.
    pub(super) fn back_excess(&self) -> Duration {
        self.back_excess
    }
}
