//! D_min: the least delay of the path, able to rise again.
//!
//! The paper's D_min is "the minimum delay experienced": it never rises, so a handover to a longer
//! path leaves Verus at its floor for good. Here a flow that has not met D_min for
//! [`STALE_AFTER`] drains: it keeps at most two packets in flight until its own queue is gone, looks
//! at the path for a moment, and takes the least delay that it then sees.
//!
//! What it must not take is the queue of *other* flows. Flows behind one bottleneck see the same
//! queue, so they last met D_min at the same moment and drain together, which empties the queue
//! for all of them: the idea behind BBR's ProbeRTT (draft-ietf-ccwg-bbr §5.3.4).

use crate::units::{Duration, Time};

/// How long D_min is trusted without meeting it again.
pub const STALE_AFTER: Duration = Duration::from_secs(8);
/// A delay within this share of D_min counts as meeting it.
const NEAR: f64 = 1.1;
/// How long the path is observed once the flow's own queue is gone, on top of one D_min.
const HOLD: Duration = Duration::from_millis(100);
/// A drain that meets no answer is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);
/// What a draining flow keeps in flight: one packet on each way.
pub const DRAINED_PACKETS: u64 = 2;

/// The least delay, in ms, and the drain that renews it.
#[derive(Debug)]
pub struct DelayMinimum {
    least: Option<f64>,
    met: Time,
    drain: Option<Drain>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    began: Time,
    /// When the flow's own queue was gone.
    empty: Option<Time>,
    /// The least delay of packets that left since.
    least: Option<f64>,
}

impl DelayMinimum {
    /// No delay seen yet.
    pub fn new() -> Self {
        DelayMinimum {
            least: None,
            met: Time::ZERO,
            drain: None,
        }
    }

    /// D_min in ms, once there is a sample.
    #[inline]
    pub fn get(&self) -> Option<f64> {
        self.least
    }

    /// Whether the flow should hold back to empty its queue.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// A packet that left at `sent` took `delay_ms`.
    #[inline]
    pub fn on_sample(&mut self, now: Time, sent: Time, delay_ms: f64) {
        if let Some(drain) = &mut self.drain
            && drain.empty.is_some_and(|empty| sent >= empty)
        {
            drain.least = Some(drain.least.map_or(delay_ms, |least| least.min(delay_ms)));
        }
        match self.least {
            Some(least) if delay_ms >= least => {
                if delay_ms <= least * NEAR {
                    self.met = now;
                }
            }
            _ => {
                self.least = Some(delay_ms);
                self.met = now;
            }
        }
    }

    /// Raises D_min (the prototype's rule at its floor).
    pub fn raise(&mut self, by_ms: f64) {
        if let Some(least) = &mut self.least {
            *least += by_ms;
        }
    }

    /// Once an epoch: begins, advances or ends a drain. Returns whether one has just ended.
    #[inline]
    pub fn advance(&mut self, now: Time, in_flight_packets: u64) -> bool {
        let Some(least) = self.least else {
            return false;
        };
        let Some(drain) = &mut self.drain else {
            if now.since(self.met) > STALE_AFTER {
                self.drain = Some(Drain {
                    began: now,
                    empty: None,
                    least: None,
                });
            }
            return false;
        };
        if drain.empty.is_none() && in_flight_packets <= DRAINED_PACKETS {
            drain.empty = Some(now);
        }
        let observed = HOLD + Duration::from_millis_f64(least);
        let looked = drain
            .empty
            .is_some_and(|empty| now.since(empty) >= observed);
        if looked && let Some(seen) = drain.least {
            self.least = Some(seen);
        } else if now.since(drain.began) < GIVE_UP_AFTER {
            return false;
        }
        self.met = now;
        self.drain = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_minimum_that_is_met_again_is_never_questioned() {
        let mut minimum = DelayMinimum::new();
        for step in 0..400 {
            let delay = if step % 50 == 0 { 41.0 } else { 80.0 };
            minimum.on_sample(ms(step * 100), ms(step * 100), delay);
            minimum.advance(ms(step * 100), 10);
            assert!(!minimum.is_draining());
        }
        assert_eq!(minimum.get(), Some(41.0));
    }

    #[test]
    fn a_stale_minimum_is_renewed_by_a_drain() {
        let mut minimum = DelayMinimum::new();
        minimum.on_sample(ms(0), ms(0), 40.0);
        let mut now = 0;
        while !minimum.is_draining() {
            now += 5;
            minimum.on_sample(ms(now), ms(now), 150.0);
            minimum.advance(ms(now), 20);
        }
        assert_eq!(ms(now), ms(0) + STALE_AFTER + Duration::from_millis(5));
        // Its own queue drains; the path itself now takes 90 ms.
        while !minimum.advance(ms(now), DRAINED_PACKETS) {
            now += 5;
            minimum.on_sample(ms(now), ms(now), 90.0);
        }
        assert_eq!(minimum.get(), Some(90.0));
        assert!(now < 8_400);
    }

    #[test]
    fn a_drain_without_an_answer_changes_nothing() {
        let mut minimum = DelayMinimum::new();
        minimum.on_sample(ms(0), ms(0), 40.0);
        let mut now = 0;
        while !minimum.is_draining() {
            now += 5;
            minimum.advance(ms(now), 20);
        }
        while minimum.is_draining() {
            now += 5;
            minimum.advance(ms(now), 20);
        }
        assert_eq!(minimum.get(), Some(40.0));
    }
}
