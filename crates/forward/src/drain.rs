//! Drains: short phases in which a flow sends so little that its queue empties. They show the
//! path's delay without a queue.
//!
//! All flows of a bottleneck see the same queue. The rules here depend on that queue alone, so all
//! flows drain together, and the remaining delay is the path's. A flow that joins others measures
//! their queue as part of its path. Its slow start then overfills the queue, which makes the others
//! drain. The flow itself drains as its slow start ends, for long enough to overlap with their
//! drains.

use super::law;
use verus_core::units::{Duration, Time};

/// The time without an empty path after which a flow drains. It is shorter than the 5 s for which D
/// is remembered (`path.rs`), so that D is measured again before it expires.
const INTERVAL: Duration = Duration::from_secs(4);
/// The least time from the last empty path, or the last drain, to an early drain. A flow drains
/// early when the queue exceeds 1.5 times the target for a smoothed round trip, or has grown in a
/// step. Each failed drain doubles the wait, up to [`INTERVAL`]: a queue that this flow's drain does
/// not empty belongs to others. If it grew meanwhile, the path may have become longer during the
/// drain, and the next one shows it.
const SOONEST: Duration = Duration::from_millis(500);
/// The longest drain, in smoothed round trips: the queue empties in the first, and the
/// acknowledgements of the second show it.
const ROUNDS: u64 = 2;
/// Divisor of the smoothed round trip. The shortest drain that shows a longer path lasts a round trip,
/// in which the queue empties, and this part, over which Q is measured.
const SHOWN_PART: u64 = 4;

/// Divisor of s that gives the assumed jitter of links, 1 ms at 10 Mbit/s. A seventh of the target
/// is the most.
const JITTER_PART: u64 = 26;

/// Divisor of the measured queue: a drain that changes it by at most this part shows a longer path,
/// not a queue. Where one of twenty flows drains alone, the queue changes by twice this part. Where
/// the link slows down, it changes by more.
const UNMOVED: u64 = 32;
/// Multiple of the target: more delay than this, if it is constant after a drain, is the path's. A
/// flow that is alone keeps one target in the queue.
const LONGER: u64 = 2;
/// The greatest range of a constant delay, as a share of it: jitter moves the delay of a path that
/// has become longer, too.
const CONSTANT_RANGE: (u64, u64) = (2, 3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainPhase {
    Law,
    /// A full drain, with its start. The window is a small share of r D until the path is empty,
    /// for at most [`ROUNDS`].
    Full(Time),
    /// A short drain, with its start. The window is r D less Q + q. It serves for a queue that is
    /// short compared with D, if the previous drain emptied the queue.
    Short(Time),
}

/// The queue, its target and the path at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueObservation {
    /// Q.
    pub(super) queue: Duration,
    /// q.
    pub(super) target: Duration,
    /// D.
    pub(super) base: Duration,
    pub(super) smoothed_rtt: Duration,
    /// s.
    pub(super) steady: Duration,
    /// The range of the queueing delay over the last quarter to half of a round trip.
    pub(super) range: Duration,
    /// Whether e does not lift the target.
    pub(super) link_is_steady: bool,
    /// q of one to two round trips ago, before the queue was long.
    pub(super) calm_target: Duration,
    /// The time during which acknowledgements arrived, the clock of [`INTERVAL`]. An idle flow
    /// needs no drain: its own queue empties.
    pub(super) feedback_time: Duration,
}

/// When a path became longer, by the drain that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengthened {
    /// Before the drain.
    Before,
    /// During the drain. The delay may also be the queue of a flow that has joined.
    During,
}

/// The kinds of drains that are enabled, besides those that are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) early: bool,
    pub(super) short: bool,
    /// The queue above which a flow drains early, in percent of the target.
    pub(super) high_percent: u64,
}

/// The drains of one flow: when they begin and end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drains {
    /// When the path was last empty.
    empty_at: Time,
    /// The feedback time when the path was last empty, or a drain last ended.
    quiet_since: Duration,
    /// When the queue became long: above 1.5 times the target, or as `stands` says; zero while it is
    /// neither.
    high_since: Time,
    phase: DrainPhase,
    /// Whether this is the drain that ends slow start. It lasts its full time even if the queue
    /// seems empty, since D may still include a queue.
    first: bool,
    /// Whether the delay of a steady link has grown in a step and no longer moves. On a path that
    /// has become longer r falls, and q grows until it equals Q: the queue then seems to be on
    /// target.
    stands: bool,
    /// Whether the last drain emptied the queue and found D unchanged, so that the next one may be
    /// short.
    base_confirmed: bool,
    /// When the last drain ended.
    ended: Time,
    /// The least time from `ended` to the next early drain.
    wait: Duration,
    /// Q as the drain began.
    queue_before: Duration,
    /// D as the drain began.
    base_before: Duration,
}

impl Drains {
    pub(super) fn new(now: Time, feedback_time: Duration) -> Self {
        Drains {
            empty_at: now,
            quiet_since: feedback_time,
            high_since: Time::ZERO,
            phase: DrainPhase::Law,
            first: false,
            base_confirmed: false,
            stands: false,
            ended: now,
            wait: SOONEST,
            queue_before: Duration::ZERO,
            base_before: Duration::ZERO,
        }
    }

    /// Whether the queue is long.
    pub(super) fn is_high(&self) -> bool {
        self.high_since > Time::ZERO
    }

    /// Whether a drain is under way.
    pub(super) fn draining(&self) -> bool {
        self.phase != DrainPhase::Law
    }

    /// The phase in terms of the law.
    pub(super) fn phase(&self) -> law::Phase {
        match self.phase {
            DrainPhase::Law => law::Phase::Law,
            DrainPhase::Full(_) => law::Phase::Drain,
            DrainPhase::Short(_) => law::Phase::ShortDrain,
        }
    }

    /// Begins the drain that ends slow start.
    pub(super) fn begin_first(&mut self, now: Time) {
        (self.phase, self.first) = (DrainPhase::Full(now), true);
    }

    /// Begins or ends a drain, by the standing queue. Returns the change if the drain that ended shows
    /// that the path has become longer.
    pub(super) fn update(
        &mut self,
        now: Time,
        observation: &QueueObservation,
        allowed: Allowed,
    ) -> Option<Lengthened> {
        let &QueueObservation {
            queue,
            target,
            base,
            smoothed_rtt,
            steady,
            feedback_time,
            ..
        } = observation;
        // The longest queue that counts as empty: a seventh of the target, and the jitter of links.
        let empty_limit = target / 7 + (steady / JITTER_PART).min(target / 7);
        let expired = match self.phase {
            DrainPhase::Full(since) | DrainPhase::Short(since) => {
                let elapsed = now.since(since);
                let shown = !self.first
                    && elapsed >= smoothed_rtt + smoothed_rtt / SHOWN_PART
                    && observation.range <= empty_limit
                    && self.removed_own(queue, observation.calm_target);
                shown || elapsed >= smoothed_rtt * ROUNDS
            }
            DrainPhase::Law => false,
        };
        if queue <= empty_limit && (expired || !self.first) {
            if self.draining() {
                self.ended = now;
                self.base_confirmed = base.abs_diff(self.base_before) <= empty_limit;
            }
            self.phase = DrainPhase::Law;
            (self.empty_at, self.wait, self.first) = (now, SOONEST, false);
            self.high_since = Time::ZERO;
            (self.quiet_since, self.stands) = (feedback_time, false);
            return None;
        }
        if self.draining() {
            if expired {
                self.quiet_since = feedback_time;
                let constant = observation.range <= queue * CONSTANT_RANGE.0 / CONSTANT_RANGE.1;
                return self.fail(now, queue, observation.calm_target, constant);
            }
            return None;
        }
        self.stands = observation.link_is_steady
            && observation.calm_target > Duration::ZERO
            && queue > observation.calm_target + empty_limit
            && (observation.range <= empty_limit || self.stands);
        if queue <= target * allowed.high_percent / 100 && !self.stands {
            self.high_since = Time::ZERO;
        } else if !self.is_high() {
            self.high_since = now;
        }
        let high = allowed.early
            && self.is_high()
            && now.since(self.high_since) >= smoothed_rtt
            && now.since(self.empty_at) >= SOONEST
            && now.since(self.ended) >= self.wait;
        let due = feedback_time.saturating_sub(self.quiet_since) >= INTERVAL;
        if !high && !due {
            return None;
        }
        let short = allowed.short && self.base_confirmed && !high && queue + target < base / 2;
        self.phase = if short {
            DrainPhase::Short(now)
        } else {
            DrainPhase::Full(now)
        };
        (self.queue_before, self.base_before) = (queue, base);
        None
    }

    /// Whether the drain removed at most what the flow may have had in the queue, 1.5 times its target,
    /// and more than twice the target remains.
    fn removed_own(&self, queue: Duration, calm_target: Duration) -> bool {
        queue > calm_target * LONGER
            && self.queue_before.saturating_sub(queue) <= calm_target * 3 / 2
    }

    /// Ends a drain that did not empty the queue. `constant`: the queueing delay is, within
    /// [`CONSTANT_RANGE`]. The delay is the path's if the drain did not move it. If constant, it is also
    /// the path's if it has grown, since a drain does not add to the queue, or if the drain removed only
    /// the flow's own part.
    fn fail(
        &mut self,
        now: Time,
        queue: Duration,
        calm_target: Duration,
        constant: bool,
    ) -> Option<Lengthened> {
        (self.ended, self.high_since, self.base_confirmed) = (now, Time::ZERO, false);
        self.stands = false;
        if queue <= self.queue_before {
            self.wait = (self.wait * 2).min(INTERVAL);
        }
        if matches!(self.phase, DrainPhase::Short(_)) {
            // The short drain was too short for this queue: a full one follows.
            self.phase = DrainPhase::Full(now);
            return None;
        }
        self.phase = DrainPhase::Law;
        let unmoved = queue.abs_diff(self.queue_before) * UNMOVED <= self.queue_before;
        let grown = constant && queue > self.queue_before;
        let remains = constant && self.removed_own(queue, calm_target);
        if std::mem::take(&mut self.first) || !(unmoved || grown || remains) {
            None
        } else if grown {
            Some(Lengthened::During)
        } else {
            Some(Lengthened::Before)
        }
    }
}
