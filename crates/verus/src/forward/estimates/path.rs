//! D, the path's round trip without a queue, and Q, the queueing delay of the data.
//!
//! A round trip is the way there, which includes the queue of the flow's own data, and the way back, which does not. If
//! acknowledgements carry the receiver's arrival times, the two are measured apart (the offset between the two clocks
//! cancels in every difference used), and acknowledgements that queue on their way back do not count as queue. If not,
//! the whole round trip counts as the way there.

use verus_core::controller::Acked;
use verus_core::units::{Duration, Time};

/// The least way there is remembered for one to two of these spans. Drains, every 4 s, measure it more often.
const THERE_MEMORY: Duration = Duration::from_secs(5);
/// In [`THERE_MEMORY`] a time without acknowledgements counts for at most this long: during an outage, or at one packet
/// a second, no drain can measure the path again, so D must not be forgotten meanwhile.
const LONGEST_GAP: Duration = Duration::from_millis(200);
/// The least way back is remembered for one to two of these spans: long enough to bridge acknowledgements that arrive in
/// bursts, short enough that a queue that forms on the way back soon counts as a longer path rather than as Q.
const BACK_MEMORY: Duration = Duration::from_millis(500);

/// The least way there of the last 20 to 40 ms, whatever the round trip, says whether the queue has been empty.
const BRIEF: Duration = Duration::from_millis(20);
/// A buffer is as long as the longest way there of the last eight to sixteen seconds, above the least of the last 30 to 60 s:
/// D follows a queue that others keep full within [`THERE_MEMORY`], and would let the buffer seem short.
const FULL_MEMORY: Duration = Duration::from_secs(8);
const BARE_MEMORY: Duration = Duration::from_secs(30);
/// The spread of the way back is that of one to two of these spans.
const SPREAD_MEMORY: Duration = Duration::from_secs(1);

/// A minimum over the span under way (`newer`) and the one before it (`older`): one to two spans.
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
            // One step only, however long ago the last value was: after an outage the older minimum still counts.
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

/// The delays of one flow's path, in ns. Each way includes the unknown offset between the two clocks, with opposite
/// signs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathDelay {
    /// Whether the receiver says when packets arrived; settled by the first feedback.
    timed: Option<bool>,
    there: Least,
    /// How long acknowledgements have been coming in, each gap counted for at most [`LONGEST_GAP`].
    heard: Duration,
    last: Time,
    /// The least way there of the last quarter to half of a round trip: with the queue that stands now.
    standing: Least,
    /// The same of [`BRIEF`].
    brief: Least,
    /// The queueing delay of the last packet, µs; a longer one than 32 bits hold is as late.
    delay: u32,
    back: Least,
    /// The longest way back, negated.
    farthest: Least,
    /// The longest way there, negated, of as long as `standing` is the least.
    highest: Least,
    /// The last way there, the longest of [`FULL_MEMORY`], negated, and the least of [`BARE_MEMORY`].
    newest: i64,
    longest: Least,
    bare: Least,
    /// By how much the last acknowledgement's way back was longer than the least.
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
            brief: Least::NOTHING,
            delay: 0,
            back: Least::NOTHING,
            farthest: Least::NOTHING,
            newest: 0,
            highest: Least::NOTHING,
            longest: Least::NOTHING,
            bare: Least::NOTHING,
            back_excess: Duration::ZERO,
        }
    }

    /// Decides, by the first feedback, whether the receiver's arrival times are used: `told` says whether it has any.
    pub(super) fn settle(&mut self, told: bool) {
        self.timed.get_or_insert(told);
    }

    /// Whether that has been decided.
    pub(super) fn is_settled(&self) -> bool {
        self.timed.is_some()
    }

    /// Whether the receiver's arrival times are used.
    pub(super) fn is_timed(&self) -> bool {
        self.timed == Some(true)
    }

    /// Takes a sample; returns when the packet arrived, by the receiver's clock where its times are used and else by the
    /// sender's; `None` if its arrival time is missing.
    pub(super) fn on_acked(
        &mut self,
        now: Time,
        acked: &Acked,
        smoothed_rtt: Duration,
    ) -> Option<Time> {
        // Signed, as the offset between the clocks can make either way negative.
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
        self.brief.update(now, BRIEF, there);
        self.newest = there;
        self.highest
            .update(now, smoothed_rtt / 4, there.saturating_neg());
        self.longest
            .update(now, FULL_MEMORY, there.saturating_neg());
        self.bare
            .update(Time::ZERO + self.heard, BARE_MEMORY, there);
        self.delay = u32::try_from(self.above(there).as_micros()).unwrap_or(u32::MAX);
        self.back.update(now, BACK_MEMORY, back);
        self.farthest
            .update(now, SPREAD_MEMORY, back.saturating_neg());
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

    /// By how much a way there is longer than the least.
    fn above(&self, there: i64) -> Duration {
        let nanos = there.saturating_sub(self.there.get());
        Duration::from_nanos(nanos.max(0) as u64)
    }

    /// Q: the least queueing delay of the last quarter to half of a smoothed round trip.
    pub(super) fn queue(&self) -> Duration {
        self.above(self.standing.get())
    }

    /// The least queueing delay of the last 20 to 40 ms.
    pub(super) fn briefly(&self) -> Duration {
        self.above(self.brief.get())
    }

    /// The queueing delay of the packet acknowledged last.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(u64::from(self.delay))
    }

    /// J, how much the delay of the way back differs; `None` where the ways are not told apart.
    pub(super) fn spread(&self) -> Option<Duration> {
        let most = self.farthest.get().saturating_neg();
        let nanos = most.saturating_sub(self.back.get());
        (self.timed == Some(true)).then(|| Duration::from_nanos(nanos.max(0) as u64))
    }

    /// The delay that stands now is the path's own: D becomes as long, and Q zero.
    pub(super) fn lengthen(&mut self) {
        let there = self.standing.get();
        self.there = Least {
            older: there,
            newer: there,
            since: Time::ZERO + self.heard,
        };
    }

    /// How much the way there differs over the last quarter to half of a smoothed round trip.
    pub(super) fn range(&self) -> Duration {
        let nanos = self
            .highest
            .get()
            .saturating_neg()
            .saturating_sub(self.standing.get());
        Duration::from_nanos(nanos.max(0) as u64)
    }

    /// The delay of the packet acknowledged last, and the longest of the last seconds, above the least of half a minute.
    pub(super) fn fullness(&self) -> (Duration, Duration) {
        let bare = self.bare.get();
        let above = |there: i64| Duration::from_nanos(there.saturating_sub(bare).max(0) as u64);
        (
            above(self.newest),
            above(self.longest.get().saturating_neg()),
        )
    }

    /// How late the last acknowledgement was: its way back beyond the least.
    pub(super) fn back_excess(&self) -> Duration {
        self.back_excess
    }
}
