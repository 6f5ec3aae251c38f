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

/// When a flow drains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drains {
    /// When the path was last met bare.
    met: Time,
    /// Since when the queue is beyond one and a half times the target.
    high_since: Option<Time>,
    draining_since: Option<Time>,
    /// The drain that ends slow start goes on although the path seems bare: it is compared with a D that is not known
    /// to be true.
    first: bool,
    ended: Time,
    wait: Duration,
    /// The queue as the drain began.
    before: Duration,
}

impl Drains {
    pub(super) fn new(now: Time) -> Self {
        Drains {
            met: now,
            high_since: None,
            draining_since: None,
            first: false,
            ended: now,
            wait: SOONEST,
            before: Duration::ZERO,
        }
    }

    pub(super) fn draining(&self) -> bool {
        self.draining_since.is_some()
    }

    /// The drain that ends slow start begins.
    pub(super) fn first(&mut self, now: Time) {
        *self = Drains {
            draining_since: Some(now),
            first: true,
            ..Drains::new(now)
        };
    }

    /// Looks at the standing queue of a flow that aims at `target`; `early` allows drains before their time. Returns
    /// whether a drain has ended that did not move the queue.
    pub(super) fn update(
        &mut self,
        now: Time,
        queue: Duration,
        target: Duration,
        smoothed_rtt: Duration,
        early: bool,
    ) -> bool {
        let over = |since: Time| now.since(since) >= smoothed_rtt * ROUNDS;
        // A seventh of the target, and a millisecond for the jitter of links without a queue.
        let bare = queue <= target / 7 + Duration::from_millis(1);
        if bare && !(self.first && self.draining_since.is_some_and(|since| !over(since))) {
            if self.draining() {
                self.ended = now;
            }
            *self = Drains {
                met: now,
                ..Drains::new(self.ended)
            };
            return false;
        }
        if let Some(since) = self.draining_since {
            if over(since) {
                let unmoved = !self.first && queue.abs_diff(self.before) * UNMOVED <= self.before;
                self.draining_since = None;
                self.first = false;
                self.high_since = None;
                self.ended = now;
                self.wait = (self.wait * 2).min(INTERVAL);
                return unmoved;
            }
            return false;
        }
        if queue <= target * 3 / 2 {
            self.high_since = None;
        } else {
            self.high_since.get_or_insert(now);
        }
        let long = |since: Time| now.since(since) >= smoothed_rtt;
        let high = early && self.high_since.is_some_and(long) && now.since(self.met) >= SOONEST;
        let wait = if high { self.wait } else { INTERVAL };
        if (high || now.since(self.met) >= INTERVAL) && now.since(self.ended) >= wait {
            self.draining_since = Some(now);
            self.before = queue;
        }
        false
    }
}
