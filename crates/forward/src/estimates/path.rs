//! D, the path's round trip without a queue, and Q, the queueing delay of the data.
//!
//! A round trip consists of the forward path, which includes the queue of the flow's own data, and
//! the reverse path, which does not. If acknowledgements carry the receiver's arrival times, the
//! two are measured separately: the offset between the two clocks cancels in every difference used.
//! Then acknowledgements that queue on the reverse path do not count in Q. Without these times, the
//! whole round trip counts as the forward path's delay.

use verus_core::controller::Acked;
use verus_core::units::{Duration, Time};

use super::high::HighDelay;

/// The span for the least forward delay, which covers one to two of them. Drains, every 4
/// s, measure it more often.
const FORWARD_MEMORY: Duration = Duration::from_secs(5);
/// The longest time without acknowledgements that counts in [`FORWARD_MEMORY`]. During an outage,
/// or at one packet a second, no drain can measure the path again, so D must not expire meanwhile.
const LONGEST_GAP: Duration = Duration::from_millis(200);
/// The span for the least reverse delay, which covers one to two of them. It is long enough
/// to bridge acknowledgements that arrive in bursts. It is short enough that a queue that forms on
/// the reverse path soon counts as a longer path rather than as Q.
const REVERSE_MEMORY: Duration = Duration::from_millis(500);

/// The span for the least delay that shows whether the queue was empty: that of the last 20 to 40
/// ms, whatever the round trip.
const BRIEF: Duration = Duration::from_millis(20);
/// The span for the longest forward delay, that of the last 8 to 16 s, which shows how long the
/// buffer is.
const FULL_MEMORY: Duration = Duration::from_secs(8);
/// The greatest span for the longest delay at a loss, which covers one to two of them. Linux's TCP
/// sends what its pace allows in a millisecond in one burst.
const LONGEST_BURST: Duration = Duration::from_millis(1);
/// The span for the least delay above which the buffer's length counts: that of the last 30 to 60
/// s. D would make the buffer seem short: within [`FORWARD_MEMORY`] it includes a queue that others
/// keep full.
const LONG_TERM_MEMORY: Duration = Duration::from_secs(30);
/// The span for J, the spread of the reverse path's delay, which covers one to two of them.
const SPREAD_MEMORY: Duration = Duration::from_secs(1);

/// A minimum over the present span (`newer`) and the one before it (`older`): one to two spans.
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
            // Advances by one span, however old the last value is: after an outage the older
            // minimum still counts.
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

/// The excess of a delay over the least, ns.
fn excess(delay: i64, least: i64) -> Duration {
    Duration::from_nanos(delay.saturating_sub(least).max(0) as u64)
}

/// The delays of one flow's path, in ns. Forward and reverse delays include the unknown offset
/// between the two clocks, with opposite signs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathDelay {
    /// Whether the receiver's arrival times are used; `None` until the first feedback.
    timed: Option<bool>,
    /// The least forward delay of [`FORWARD_MEMORY`].
    forward: Least,
    /// The time during which acknowledgements arrived, each gap counted for at most
    /// [`LONGEST_GAP`].
    feedback_time: Duration,
    /// When an acknowledgement last arrived.
    last: Time,
    /// The least forward delay of the last quarter to half of a round trip, with the standing
    /// queue.
    standing: Least,
    /// The least forward delay of [`BRIEF`].
    brief: Least,
    /// The queueing delay of the last packet, µs, at most 2^32 - 1.
    delay: u32,
    /// The least reverse delay of [`REVERSE_MEMORY`].
    reverse: Least,
    /// The longest reverse delay of [`SPREAD_MEMORY`], negated.
    reverse_longest: Least,
    /// The longest forward delay over the same span as `standing`, negated.
    standing_longest: Least,
    /// The forward delay of the packet acknowledged last.
    newest: i64,
    /// The longest forward delay, negated: of [`FULL_MEMORY`] with the receiver's times, of a quarter
    /// of a round trip, at most [`LONGEST_BURST`], without them.
    longest: Least,
    /// The high forward delay without them, above the least of [`LONG_TERM_MEMORY`].
    high: HighDelay,
    /// The least forward delay of [`LONG_TERM_MEMORY`].
    long_term: Least,
    /// The last reverse delay beyond the least.
    reverse_excess: Duration,
}

impl PathDelay {
    pub(super) fn new() -> Self {
        PathDelay {
            timed: None,
            forward: Least::NOTHING,
            feedback_time: Duration::ZERO,
            last: Time::ZERO,
            standing: Least::NOTHING,
            brief: Least::NOTHING,
            delay: 0,
            reverse: Least::NOTHING,
            reverse_longest: Least::NOTHING,
            newest: 0,
            standing_longest: Least::NOTHING,
            longest: Least::NOTHING,
            high: HighDelay::NOTHING,
            long_term: Least::NOTHING,
            reverse_excess: Duration::ZERO,
        }
    }

    /// Decides at the first feedback whether the receiver's arrival times are used.
    pub(super) fn settle(&mut self, use_receiver_times: bool) {
        self.timed.get_or_insert(use_receiver_times);
    }

    /// Whether [`PathDelay::settle`] has decided.
    pub(super) fn is_settled(&self) -> bool {
        self.timed.is_some()
    }

    /// Whether the receiver's arrival times are used.
    pub(super) fn is_timed(&self) -> bool {
        self.timed == Some(true)
    }

    /// Updates the delays from an acknowledgement, and returns when the packet arrived: by the
    /// receiver's clock where its times are used, otherwise by the sender's. `None`: its arrival
    /// time is missing.
    pub(super) fn on_acked(
        &mut self,
        now: Time,
        acked: &Acked,
        smoothed_rtt: Duration,
    ) -> Option<Time> {
        // Signed, since the offset between the clocks can make either delay negative.
        let signed_span =
            |later: Time, earlier: Time| later.as_nanos().wrapping_sub(earlier.as_nanos()) as i64;
        let (forward, reverse, arrived_at) = match acked.received_at {
            Some(at) if self.timed == Some(true) => {
                (signed_span(at, acked.packet.at), signed_span(now, at), at)
            }
            _ if self.timed == Some(false) => (acked.rtt.as_nanos() as i64, 0, now),
            _ => return None,
        };
        self.feedback_time += now.since(self.last).min(LONGEST_GAP);
        self.last = now;
        self.forward
            .update(Time::ZERO + self.feedback_time, FORWARD_MEMORY, forward);
        self.standing.update(now, smoothed_rtt / 4, forward);
        self.brief.update(now, BRIEF, forward);
        self.newest = forward;
        self.standing_longest
            .update(now, smoothed_rtt / 4, forward.saturating_neg());
        self.long_term
            .update(Time::ZERO + self.feedback_time, LONG_TERM_MEMORY, forward);
        let longest_span = if self.is_timed() {
            FULL_MEMORY
        } else {
            (smoothed_rtt / 4).min(LONGEST_BURST)
        };
        self.longest
            .update(now, longest_span, forward.saturating_neg());
        if !self.is_timed() {
            let delay = self.above_long_term(forward);
            self.high.update(now, smoothed_rtt, delay);
        }
        self.delay = u32::try_from(self.above(forward).as_micros()).unwrap_or(u32::MAX);
        self.reverse.update(now, REVERSE_MEMORY, reverse);
        self.reverse_longest
            .update(now, SPREAD_MEMORY, reverse.saturating_neg());
        self.reverse_excess = excess(reverse, self.reverse.get());
        Some(arrived_at)
    }

    /// The time during which acknowledgements arrived, each gap counted for at most
    /// [`LONGEST_GAP`].
    pub(super) fn feedback_time(&self) -> Duration {
        self.feedback_time
    }

    fn has_samples(&self) -> bool {
        self.forward.newer != i64::MAX
    }

    /// D: the round trip without this flow's queue; `None` before the first sample.
    pub(super) fn base(&self) -> Option<Duration> {
        let nanos = self.forward.get().saturating_add(self.reverse.get());
        self.has_samples()
            .then(|| Duration::from_nanos(nanos.max(0) as u64))
    }

    /// The excess of a forward delay over the least.
    fn above(&self, forward: i64) -> Duration {
        excess(forward, self.forward.get())
    }

    /// Q: the least queueing delay of the last quarter to half of a smoothed round trip.
    pub(super) fn queue(&self) -> Duration {
        self.above(self.standing.get())
    }

    /// The least queueing delay of the last 20 to 40 ms.
    pub(super) fn brief_queue(&self) -> Duration {
        self.above(self.brief.get())
    }

    /// The queueing delay of the packet acknowledged last.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(u64::from(self.delay))
    }

    /// J, the spread of the reverse path's delay; `None` without the receiver's arrival times.
    pub(super) fn spread(&self) -> Option<Duration> {
        let longest = self.reverse_longest.get().saturating_neg();
        self.is_timed().then(|| excess(longest, self.reverse.get()))
    }

    /// Adds Q to D: the standing delay is the path's.
    pub(super) fn lengthen(&mut self) {
        let standing = self.standing.get();
        self.forward = Least {
            older: standing,
            newer: standing,
            since: Time::ZERO + self.feedback_time,
        };
    }

    /// The range of the forward delay over the last quarter to half of a smoothed round trip.
    pub(super) fn range(&self) -> Duration {
        let longest = self.standing_longest.get().saturating_neg();
        excess(longest, self.standing.get())
    }

    /// The excess of a forward delay over the least of [`LONG_TERM_MEMORY`].
    fn above_long_term(&self, forward: i64) -> Duration {
        excess(forward, self.long_term.get())
    }

    /// The forward delay of the packet acknowledged last, above the least of [`LONG_TERM_MEMORY`].
    pub(super) fn newest(&self) -> Duration {
        self.above_long_term(self.newest)
    }

    /// The longest forward delay of its span, likewise.
    fn longest(&self) -> Duration {
        self.above_long_term(self.longest.get().saturating_neg())
    }

    /// The delay that a packet met that was just lost, likewise: the newest. Without the receiver's
    /// times it is the longest of one or two bursts of TCP. These are as long as a short buffer, and
    /// the packets behind a lost one met a shorter queue than it did.
    pub(super) fn at_loss(&self) -> Duration {
        if self.is_timed() {
            self.newest()
        } else {
            self.longest()
        }
    }

    /// The delay of a full buffer, likewise: the longest of [`FULL_MEMORY`], or the high one. A
    /// round trip includes the sender's pauses, which a delay by the receiver's clock does not.
    pub(super) fn full(&self) -> Duration {
        if self.is_timed() {
            self.longest()
        } else {
            self.high.get()
        }
    }

    /// The reverse delay of the last acknowledgement beyond the least.
    pub(super) fn reverse_excess(&self) -> Duration {
        self.reverse_excess
    }
}
