//! Draining: looking at the path without a queue, now and then.
//!
//! All flows of a bottleneck see the same queue. Rules that look at nothing else make them drain together, and what they
//! then see is the path. A flow that joins found others' queue there and took it for the path; its slow start overfills
//! the queue, which is everybody's sign to drain, and the flow itself drains as slow start ends, long enough to overlap
//! with them.

use crate::units::{Duration, Time};

/// Without having met the path bare for so long, a flow drains. Less than what D is remembered for.
const INTERVAL: Duration = Duration::from_secs(4);
/// A queue beyond the target is drained at once, but not sooner than this after the path was last met bare or drained
/// for. Failures double it: what does not go away is not this flow's.
const SOONEST: Duration = Duration::from_millis(500);
/// Smoothed round trips for which a drain lasts at most; one to take effect, one to be seen.
const ROUNDS: u64 = 2;

/// A drain after which the queue is what it was, within one part in so many, moved nothing: what stands is the path.
/// (One of twenty flows that drains alone moves twice as much; a link that slows down, more.)
const UNMOVED: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Law,
    /// Since when little is sent, until the path is met bare or for so long.
    Full(Time),
    /// Until when nothing is sent, where the queue is short beside D, and known to be what a drain empties: to wait for
    /// the sight of the bare path would cost a round trip,
    Pause(Time),
    /// and until when what D holds is sent at the rate, or until the path is met bare.
    Look(Time),
}

/// What a look at the queue has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    Began,
    /// A drain has ended that did not move the queue.
    Unmoved,
}

/// What there is to see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) queue: Duration,
    pub(super) target: Duration,
    pub(super) base: Duration,
    pub(super) smoothed_rtt: Duration,
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
    /// When the path was last met bare.
    met: Time,
    /// Since when the queue is beyond one and a half times the target.
    high_since: Option<Time>,
    phase: Phase,
    /// The drain that ends slow start goes on although the path seems bare: it is compared with a D that is not known
    /// to be true.
    first: bool,
    /// The last drain met the path bare, and D where it was.
    sure: bool,
    ended: Time,
    wait: Duration,
    /// The queue and D as the drain began.
    before: Duration,
    base: Duration,
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
        }
    }

    pub(super) fn draining(&self) -> bool {
        self.phase != Phase::Law
    }

    /// Whether a pause is over whose success is not seen yet.
    pub(super) fn looking(&self) -> bool {
        matches!(self.phase, Phase::Look(_))
    }

    /// Until when nothing is sent.
    pub(super) fn paused_until(&self) -> Option<Time> {
        match self.phase {
            Phase::Pause(until) => Some(until),
            _ => None,
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

    /// Time has passed: a pause may be over.
    pub(super) fn pass(&mut self, now: Time, smoothed_rtt: Duration) {
        if let Phase::Pause(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Look(now + smoothed_rtt);
        }
    }

    /// Looks at the standing queue, and begins or ends a drain.
    pub(super) fn update(&mut self, now: Time, seen: &Seen, allowed: Allowed) -> Turn {
        let &Seen {
            queue,
            target,
            base,
            smoothed_rtt,
        } = seen;
        self.pass(now, smoothed_rtt);
        let over = match self.phase {
            Phase::Full(since) => now.since(since) >= smoothed_rtt * ROUNDS,
            Phase::Look(until) => now >= until,
            Phase::Law | Phase::Pause(_) => false,
        };
        // A seventh of the target, and a millisecond for the jitter of links without a queue.
        let near = target / 7 + Duration::from_millis(1);
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
                self.fail(now, queue)
            } else {
                Turn::Nothing
            };
        }
        if queue <= target * 3 / 2 {
            self.high_since = None;
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
            Phase::Pause(now + queue + target)
        } else {
            Phase::Full(now)
        };
        (self.before, self.base) = (queue, base);
        Turn::Began
    }

    /// A drain ends that has not met the path bare.
    fn fail(&mut self, now: Time, queue: Duration) -> Turn {
        (self.ended, self.high_since, self.sure) = (now, None, false);
        self.wait = (self.wait * 2).min(INTERVAL);
        if self.looking() {
            // It was too short, then.
            self.phase = Phase::Full(now);
            return Turn::Nothing;
        }
        let unmoved = !self.first && queue.abs_diff(self.before) * UNMOVED <= self.before;
        self.phase = Phase::Law;
        self.first = false;
        if unmoved {
            Turn::Unmoved
        } else {
            Turn::Nothing
        }
    }
}
