//! Drains: now and then a flow sends so little that its queue empties, and so sees the path's delay without a queue.
//!
//! All flows of a bottleneck see the same queue. The rules here depend on that queue alone, so that all flows drain
//! together, and the delay that is left is the path's. A flow that joins others measures their queue as part of its
//! path. Its slow start then overfills the queue, which makes the others drain; the flow itself drains as its slow start
//! ends, for long enough to overlap with theirs.

use super::law;
use verus_core::units::{Duration, Time};

/// A flow that has not seen the path without a queue for this long drains. Shorter than the 5 s for which D is
/// remembered (`path.rs`), so that D is measured again before it is forgotten.
const INTERVAL: Duration = Duration::from_secs(4);
/// A flow also drains when the queue has been above 1.5 times the target for a smoothed round trip, but not sooner than
/// this after it last saw the path without a queue, or last tried to. Each drain that fails doubles the wait, up to
/// [`INTERVAL`]: a queue that this flow's drain does not empty belongs to others.
const SOONEST: Duration = Duration::from_millis(500);
/// A drain lasts at most this many smoothed round trips: in the first the queue empties, in the second that is seen.
const ROUNDS: u64 = 2;

/// The jitter of links is taken for this part of s, 1 ms at 10 Mbit/s, and for no more than a seventh of the target.
const JITTER_PART: u64 = 26;

/// If a drain changes the measured queue by less than one part in this many, there is no queue: the path itself has
/// become longer. Where one of twenty flows drains alone, the queue changes by twice as much; where the link slows
/// down, by more.
const UNMOVED: u64 = 32;
/// Nor is there one if this many targets stay: of a queue, a flow that is alone keeps one target.
const LONGER: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Law,
    /// A full drain, since then: the window is a small share of r D until the path is seen without a queue, for
    /// [`ROUNDS`] at the most.
    Full(Time),
    /// A short drain, since then: the window is r D less Q + q. For a queue that is short compared with D, after a drain
    /// that did empty it.
    Short(Time),
}

/// What a look at the queue has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    Began,
    /// A drain has ended that did not move the queue.
    Unmoved,
    /// A drain has ended that took away what this flow had in the queue, and no more: the path has become longer.
    Longer,
}

/// What there is to see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) queue: Duration,
    pub(super) target: Duration,
    pub(super) base: Duration,
    pub(super) smoothed_rtt: Duration,
    /// s.
    pub(super) steady: Duration,
    /// How much the queueing delay differs over the last quarter to half of a round trip.
    pub(super) range: Duration,
}

/// Which drains there are, besides those that are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) early: bool,
    pub(super) short: bool,
}

/// When a flow drains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drains {
    /// When the path was last seen without a queue.
    met: Time,
    /// Since when the queue has been above 1.5 times the target.
    high_since: Option<Time>,
    phase: Phase,
    /// This is the drain that ends slow start: it lasts its full time even if the queue seems gone, as the D that the
    /// queue is counted from may still include a queue.
    first: bool,
    /// The last drain emptied the queue and found D unchanged, so that the next one may be short.
    sure: bool,
    ended: Time,
    wait: Duration,
    /// The queue and D as the drain began.
    before: Duration,
    base: Duration,
    /// The target before the queue was long.
    calm: Duration,
}

impl Drains {
    pub(super) fn new(now: Time) -> Self {
        Drains {
            met: now,
            high_since: None,
            phase: Phase::Law,
            first: false,
            sure: false,
            ended: now,
            wait: SOONEST,
            before: Duration::ZERO,
            base: Duration::ZERO,
            calm: Duration::ZERO,
        }
    }

    /// Whether the queue is above 1.5 times the target.
    pub(super) fn is_high(&self) -> bool {
        self.high_since.is_some()
    }

    pub(super) fn draining(&self) -> bool {
        self.phase != Phase::Law
    }

    /// What the law has to do.
    pub(super) fn phase(&self) -> law::Phase {
        match self.phase {
            Phase::Law => law::Phase::Law,
            Phase::Full(_) => law::Phase::Drain,
            Phase::Short(_) => law::Phase::ShortDrain,
        }
    }

    /// The drain that ends slow start begins.
    pub(super) fn first(&mut self, now: Time) {
        *self = Drains {
            phase: Phase::Full(now),
            first: true,
            ..Drains::new(now)
        };
    }

    /// Looks at the standing queue, and begins or ends a drain.
    pub(super) fn update(&mut self, now: Time, seen: &Seen, allowed: Allowed) -> Turn {
        let &Seen {
            queue,
            target,
            base,
            smoothed_rtt,
            steady,
            ..
        } = seen;
        let over = match self.phase {
            Phase::Full(since) | Phase::Short(since) => now.since(since) >= smoothed_rtt * ROUNDS,
            Phase::Law => false,
        };
        // A queue this short counts as none: a seventh of the target, and the jitter of links.
        let near = target / 7 + (steady / JITTER_PART).min(target / 7);
        if queue <= near && (over || !self.first) {
            if self.draining() {
                self.ended = now;
                self.sure = base.abs_diff(self.base) <= near;
            }
            self.phase = Phase::Law;
            (self.met, self.wait, self.high_since, self.first) = (now, SOONEST, None, false);
            return Turn::Nothing;
        }
        if self.draining() {
            return if over {
                self.fail(now, queue, seen.range <= near)
            } else {
                Turn::Nothing
            };
        }
        if queue <= target * 3 / 2 {
            self.high_since = None;
            self.calm = target;
        } else {
            self.high_since.get_or_insert(now);
        }
        let high = allowed.early
            && self
                .high_since
                .is_some_and(|since| now.since(since) >= smoothed_rtt)
            && now.since(self.met) >= SOONEST
            && now.since(self.ended) >= self.wait;
        let age = now.since(self.met).min(now.since(self.ended));
        let due = age >= INTERVAL;
        if !high && !due {
            return Turn::Nothing;
        }
        let short = allowed.short && self.sure && !high && queue + target < base / 2;
        self.phase = if short {
            Phase::Short(now)
        } else {
            Phase::Full(now)
        };
        (self.before, self.base) = (queue, base);
        Turn::Began
    }

    /// A drain ends without having emptied the queue.
    fn fail(&mut self, now: Time, queue: Duration, constant: bool) -> Turn {
        (self.ended, self.high_since, self.sure) = (now, None, false);
        self.wait = (self.wait * 2).min(INTERVAL);
        if matches!(self.phase, Phase::Short(_)) {
            // The short drain was too short for this queue: a full one follows.
            self.phase = Phase::Full(now);
            return Turn::Nothing;
        }
        let unmoved = queue.abs_diff(self.before) * UNMOVED <= self.before;
        // All that the flow had in the queue, its target, is gone, and what stays does not change: it is the path.
        let lost_own = self.before.saturating_sub(queue) <= self.calm;
        let longer = queue > self.calm * LONGER && lost_own && constant;
        self.phase = Phase::Law;
        let first = std::mem::take(&mut self.first);
        match first {
            false if unmoved => Turn::Unmoved,
            false if longer => Turn::Longer,
            _ => Turn::Nothing,
        }
    }
}
