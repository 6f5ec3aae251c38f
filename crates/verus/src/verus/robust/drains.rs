//! Drains: now and then the flow empties its queue, to see whether D_min still is the least delay of the path.
//!
//! The paper's D_min is "the minimum delay experienced". It never rises, so after a handover to a longer path every
//! delay seems too long, and Verus stays at its smallest window. Here a flow *meets* D_min when a packet's delay is no
//! more than 1.1 D_min, and a flow that has not met it for 5.5 s drains. It lowers the packets in flight by a step each
//! round trip, from a little more to a little less than the bandwidth-delay product; mostly it meets D_min on the way,
//! before the path runs idle. If it does not, it keeps at most two packets in flight until it meets D_min, or until its
//! own queue has gone and it has watched the delays for a moment. If the least of these is above D_min, four more
//! drains must find the same before D_min rises, and one more checks it soon after. This care is needed because an
//! outage during a drain looks like a longer path, and because a D_min that is too large prevents the small windows
//! that would correct it.
//!
//! In one case a flow does not wait for 5.5 s: if the path has become longer than R · D_min, the window falls as far as it
//! can and the delay does not follow.
//!
//! The queue of *other* flows must not count as path. Flows behind one bottleneck that began together see the same queue,
//! last met D_min at the same moment and so drain together, which empties the queue for all of them: the idea behind
//! BBR's ProbeRTT (draft-ietf-ccwg-bbr §5.3.4). Flows that began at different times drain at different times. The
//! queue that they see then varies more than a path's delay does, and their drains seldom agree on it; but they sometimes
//! do, and a late-coming flow can then still take part of the others' queue for the path.

use verus_core::units::{Duration, Time};

use super::View;

/// A flow whose delay has not come down to D_min (within [`NEAR`]) for this long drains; time spent in outages does not
/// count. BBR's ProbeRTT comes every 5 s (draft-ietf-ccwg-bbr §5.3.4.3).
const STALE_AFTER: Duration = Duration::from_millis(5500);
/// Suspicion of a longer path: D_est is at its floor, D_min, and the smoothed delay nevertheless exceeds R · D_min for
/// this long plus two of the flow's round trips. By then the window has been cut as far as Eq. 4 can, and the
/// delay should have followed. The flow then drains at once, at most once every [`STALE_AFTER`].
const UNEXPLAINED_FOR: Duration = Duration::from_millis(100);
/// A longer path is suspected only if the delay was still at D_min at most this long before it exceeded R · D_min. A
/// handover lengthens a path from one packet to the next; the queue of other flows takes seconds to grow.
const MET_LATELY: Duration = Duration::from_secs(2);
/// Time between the drains that confirm one another, once a drain has seen no delay as low as D_min.
const CONFIRM_AFTER: Duration = Duration::from_millis(200);
/// D_min rises only if the least delay that drains see is more than this many times D_min. A smaller increase is within
/// what any useful R (2 and more) tolerates.
const WORTH_RISING: f64 = 1.3;
/// D_min rises once this many drains have agreed on the least delay. The delay of a longer path is constant but for
/// the jitter of a slow link, while a queue of other flows varies. With three drains instead of five, one of ten
/// flows often took the others' queue for the path; its larger D_min then lengthens the queue for all.
const DRAINS_TO_RISE: u32 = 5;
/// A drain agrees if the least delay that it saw is at most this many times the least that any of them saw.
const AGREE: f64 = 1.05;
/// If after this many drains too few agree, what they saw was a queue: D_min stays.
const MOST_DRAINS: u32 = 10;
/// When D_min has risen, one more drain follows after this long: if D_min rose by mistake, the true delay is seen then.
const REVIEW_AFTER: Duration = Duration::from_secs(2);
/// A delay of at most this many times D_min counts as D_min having been met.
const NEAR: f64 = 1.1;
/// Once the flow has at most [`DRAINED_PACKETS`] in flight, its own queue is gone; the drain then watches delays for
/// one D_min plus this long.
const HOLD: Duration = Duration::from_millis(50);
/// A drain that has seen no delay after this long, because nothing is acknowledged, ends without a result.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);
/// Packets that a draining flow keeps in flight at the end of the drain: one on each way.
const DRAINED_PACKETS: u64 = 2;
/// A gentle drain first allows this share of the bandwidth-delay product (in flight times D_min over the delay: Little's
/// law), so that the path does not run idle before D_min is met.
const FIRST_SHARE: f64 = 1.2;
/// A gentle drain multiplies what it allows by this after each round trip without D_min.
const LOWERED: f64 = 0.9;
/// Below this share of the product a gentle drain goes straight to [`DRAINED_PACKETS`]: the capacity, and
/// with it the product, can change by as much in the course of a drain.
const LAST_SHARE: f64 = 0.7;
/// For an R below this a drain is not gentle if the delay is within [`NEAR_LIMIT`] of R · D_min. At a small R the flow's own
/// queue is shorter than that, so a longer one shows that other flows share the bottleneck. A gentle drain leaves a part of
/// the queue standing, and those flows would count that part as propagation delay. With a larger R, a D_min that is somewhat
/// too large costs less than an idle path.
const SMALL_RATIO: f64 = 3.0;
/// See [`SMALL_RATIO`]; in multiples of D_min.
const NEAR_LIMIT: f64 = 0.4;

/// When D_min was met, and the drain that looks for it.
#[derive(Debug, Default)]
pub struct Drains {
    suspicion: bool,
    gentle: bool,
    /// The least delay of the flow's life in ms, which D_min may have risen from.
    ever: Option<f64>,
    /// When a delay of at most [`NEAR`] · D_min was last seen; moved on by the length of each outage since.
    met: Time,
    drain: Option<Drain>,
    /// Since when the delay exceeds R · D_min although D_est is at its floor.
    unexplained: Option<Time>,
    /// When that last started a drain.
    suspected: Option<Time>,
    /// When to drain next even if D_min was met meanwhile: to confirm a candidate, or to review a D_min that rose.
    due: Option<Time>,
    /// The least delay that recent drains saw, if it is above D_min and not yet confirmed by enough of them.
    candidate: Option<Candidate>,
}

/// A delay above D_min that drains agree on.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    least: f64,
    /// Drains that saw it.
    agreed: u32,
    /// Drains since the first that saw more than D_min.
    drains: u32,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    began: Time,
    /// How many packets may be in flight.
    allowed: u64,
    /// Below this many packets, `allowed` falls to [`DRAINED_PACKETS`] at once.
    fewest: u64,
    /// Since when no more than `allowed` packets have been in flight.
    kept: Option<Time>,
    /// When at most [`DRAINED_PACKETS`] were in flight for the first time, so that the flow has no queue of its own.
    empty: Option<Time>,
    /// The least delay of packets that left after `empty`.
    least: Option<f64>,
}

/// A drain has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// D_min in ms, where drains agree that it has risen.
    pub risen: Option<f64>,
}

impl Drains {
    /// No delay seen yet. `suspicion` and `gentle` are parts that research may leave out.
    pub fn new(suspicion: bool, gentle: bool) -> Self {
        Drains {
            suspicion,
            gentle,
            ..Drains::default()
        }
    }

    /// Whether the flow should hold back to empty its queue.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// How many packets a draining flow may have in flight; `None` while it does not drain.
    #[inline]
    pub fn allowed_packets(&self) -> Option<u64> {
        self.drain.map(|drain| drain.allowed)
    }

    /// A packet that left at `sent` took `delay_ms`; D_min was `delay_min`, both in ms.
    #[inline]
    pub fn on_sample(&mut self, now: Time, sent: Time, delay_ms: f64, delay_min: Option<f64>) {
        if let Some(drain) = &mut self.drain
            && drain.empty.is_some_and(|empty| sent >= empty)
        {
            drain.least = Some(drain.least.map_or(delay_ms, |least| least.min(delay_ms)));
        }
        self.ever = Some(self.ever.map_or(delay_ms, |ever| ever.min(delay_ms)));
        if delay_min.is_none_or(|least| delay_ms <= least * NEAR) {
            self.met = now;
        }
    }

    /// Whether the flow has met D_min within `span`, outages not counted.
    #[inline]
    pub fn met_within(&self, now: Time, span: Duration) -> bool {
        now.since(self.met) < span
    }

    /// The path fell silent for `silence`: what a drain sees now is not the path's own delay, and
    /// nothing could meet D_min meanwhile.
    pub fn on_silence(&mut self, now: Time, silence: Duration) {
        self.met = (self.met + silence).min(now);
        self.unexplained = None;
        if self.drain.take().is_some() {
            self.due = Some(now + CONFIRM_AFTER);
        }
    }

    /// Whether the path seems to have become longer: D_est is `at_floor`, and the delay above what R
    /// tolerates nevertheless.
    fn suspects(&mut self, now: Time, delay_ms: f64, tolerated_ms: f64, at_floor: bool) -> bool {
        if !at_floor || delay_ms <= tolerated_ms {
            self.unexplained = None;
        } else if self.unexplained.is_none() && self.met_within(now, MET_LATELY) {
            self.unexplained = Some(now);
        }
        let since = |at: Option<Time>| at.map(|at| now.since(at));
        let enough = || UNEXPLAINED_FOR + Duration::from_millis_f64(2.0 * delay_ms);
        since(self.suspected).is_none_or(|span| span > STALE_AFTER)
            && since(self.unexplained).is_some_and(|span| span > enough())
    }

    /// Once an epoch: begins, advances or ends a drain.
    #[inline]
    pub fn advance(&mut self, now: Time, view: &View) -> Option<Ended> {
        let least = view.delay_min;
        let in_flight_packets = view.under_way;
        let delay_ms = view.rtt.as_millis_f64();
        let tolerated_ms = view.ratio * least;
        let at_floor = view.estimate <= least;
        let suspected = self.suspicion && self.suspects(now, delay_ms, tolerated_ms, at_floor);
        let Some(drain) = &mut self.drain else {
            let stale = now.since(self.met) > STALE_AFTER;
            if suspected {
                self.suspected = Some(now);
            }
            if stale || suspected || self.due.is_some_and(|due| now >= due) {
                self.due = None;
                let held = in_flight_packets as f64 * (least / delay_ms).min(1.0); // Little's law
                let near = delay_ms > tolerated_ms - NEAR_LIMIT * least;
                let others = near && tolerated_ms < SMALL_RATIO * least;
                let gentle = self.gentle && !others && self.candidate.is_none();
                let first = if gentle { FIRST_SHARE } else { 0.0 };
                self.drain = Some(Drain {
                    began: now,
                    allowed: ((first * held) as u64).max(DRAINED_PACKETS),
                    fewest: (LAST_SHARE * held) as u64,
                    kept: None,
                    empty: None,
                    least: None,
                });
            }
            return None;
        };
        if drain.allowed > DRAINED_PACKETS && in_flight_packets <= drain.allowed {
            let kept = *drain.kept.get_or_insert(now);
            // A packet that left under this allowance has had time to come back with a delay of D_min; none did.
            if now.since(kept).as_millis_f64() >= NEAR * least {
                let lower = (LOWERED * drain.allowed as f64) as u64;
                drain.allowed = if lower < drain.fewest {
                    DRAINED_PACKETS
                } else {
                    lower.max(DRAINED_PACKETS)
                };
                drain.kept = None;
            }
        }
        if drain.empty.is_none() && in_flight_packets <= DRAINED_PACKETS {
            drain.empty = Some(now);
        }
        // D_min was met during the drain: the path is no longer than that, and need not stay idle any longer. But a
        // D_min that has risen may include a queue of other flows, so such a drain goes on to the end.
        let risen = self.ever.is_some_and(|ever| least > ever * NEAR);
        if self.met > drain.began && !risen {
            self.drain = None;
            self.candidate = None;
            return Some(Ended { risen: None });
        }
        let observed = HOLD + Duration::from_millis_f64(least);
        let looked = drain
            .empty
            .is_some_and(|empty| now.since(empty) >= observed);
        let seen = drain.least.filter(|_| looked);
        if seen.is_none() && now.since(drain.began) < GIVE_UP_AFTER {
            return None;
        }
        self.drain = None;
        self.met = now;
        let risen = seen.and_then(|seen| self.conclude(now, least, seen));
        Some(Ended { risen })
    }

    /// What the least delay that a drain saw says of D_min: what it rises to, if it does.
    fn conclude(&mut self, now: Time, least: f64, seen: f64) -> Option<f64> {
        if seen <= least * WORTH_RISING {
            self.candidate = None;
            return None;
        }
        let candidate = match self.candidate {
            // A path is a floor: drains may see more than it, but not less.
            Some(before) if seen * AGREE >= before.least => Candidate {
                least: before.least.min(seen),
                agreed: before.agreed + u32::from(seen <= before.least * AGREE),
                drains: before.drains + 1,
            },
            before => Candidate {
                least: seen,
                agreed: 1,
                drains: before.map_or(0, |before| before.drains) + 1,
            },
        };
        if candidate.agreed >= DRAINS_TO_RISE {
            self.due = Some(now + REVIEW_AFTER);
            self.candidate = None;
            return Some(candidate.least);
        }
        if candidate.drains >= MOST_DRAINS {
            self.candidate = None;
        } else {
            self.due = Some(now + CONFIRM_AFTER);
            self.candidate = Some(candidate);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D_min and its drains.
    struct Minimum {
        least: Option<f64>,
        drains: Drains,
    }

    impl Default for Minimum {
        fn default() -> Self {
            Minimum {
                least: None,
                drains: Drains::new(true, true),
            }
        }
    }

    impl Minimum {
        fn on_sample(&mut self, now: Time, delay_ms: f64) {
            self.drains.on_sample(now, now, delay_ms, self.least);
            self.least = Some(self.least.map_or(delay_ms, |least| least.min(delay_ms)));
        }

        /// An epoch; whether a drain has just ended.
        fn advance(
            &mut self,
            now: Time,
            under_way: u64,
            delay_ms: f64,
            tolerated_ms: f64,
            at_floor: bool,
        ) -> bool {
            let delay_min = self.least.expect("a sample came first");
            let view = View {
                under_way,
                delay_min,
                rtt: Duration::from_millis_f64(delay_ms),
                estimate: if at_floor { delay_min } else { 2.0 * delay_min },
                ratio: tolerated_ms / delay_min,
            };
            let ended = self.drains.advance(now, &view);
            if let Some(Ended { risen: Some(risen) }) = ended {
                self.least = Some(risen);
            }
            ended.is_some()
        }
    }

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_minimum_that_is_met_again_is_never_questioned() {
        let mut minimum = Minimum::default();
        for step in 0..400 {
            let delay = if step % 50 == 0 { 41.0 } else { 80.0 };
            minimum.on_sample(ms(step * 100), delay);
            minimum.advance(ms(step * 100), 10, 150.0, 100.0, false);
            assert!(!minimum.drains.is_draining());
        }
        assert_eq!(minimum.least, Some(41.0));
    }

    /// Runs epochs until a drain ends, with a path that takes `delay` once the queue is gone.
    fn drain(minimum: &mut Minimum, now: &mut u64, delay: f64) {
        while !minimum.drains.is_draining() {
            *now += 5;
            minimum.on_sample(ms(*now), 150.0);
            minimum.advance(ms(*now), 20, 150.0, 100.0, false);
        }
        while !minimum.advance(ms(*now), DRAINED_PACKETS, 150.0, 100.0, false) {
            *now += 5;
            minimum.on_sample(ms(*now), delay);
        }
    }

    #[test]
    fn a_longer_path_is_believed_after_five_drains_and_within_ten_seconds() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let mut now = 0;
        for delay in [90.0, 91.0, 92.0, 90.0] {
            drain(&mut minimum, &mut now, delay);
            assert_eq!(
                minimum.least,
                Some(40.0),
                "few drains may have met an outage"
            );
        }
        drain(&mut minimum, &mut now, 91.0);
        assert_eq!(minimum.least, Some(90.0));
        assert!(now < 10_000, "{now} ms");
    }

    #[test]
    fn a_drain_lowers_the_flight_step_by_step_unless_the_queue_is_not_the_flows_own() {
        let begun = |tolerated_ms| {
            let mut minimum = Minimum::default();
            minimum.on_sample(ms(0), 40.0);
            let mut now = 0;
            while !minimum.drains.is_draining() {
                now += 5;
                minimum.advance(ms(now), 100, 160.0, tolerated_ms, false);
            }
            (minimum, now)
        };
        // 100 packets with 160 ms: the path holds 25 in 40 ms.
        let (mut minimum, mut now) = begun(160.0);
        let mut steps = vec![minimum.drains.allowed_packets().expect("draining")];
        while steps.last() != Some(&DRAINED_PACKETS) {
            now += 1;
            let allowed = *steps.last().expect("begun");
            minimum.advance(ms(now), allowed, 80.0, 240.0, false);
            let next = minimum.drains.allowed_packets().expect("draining");
            if next != allowed {
                steps.push(next);
            }
        }
        assert_eq!(steps, [30, 27, 24, 21, 18, DRAINED_PACKETS]);

        let (minimum, _) = begun(110.0);
        assert_eq!(minimum.drains.allowed_packets(), Some(DRAINED_PACKETS));
    }

    #[test]
    fn a_drain_that_meets_the_minimum_ends_at_once() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let mut now = 0;
        while !minimum.drains.is_draining() {
            now += 5;
            minimum.advance(ms(now), 20, 150.0, 100.0, false);
        }
        minimum.on_sample(ms(now + 30), 41.0);
        assert!(minimum.advance(ms(now + 30), 10, 150.0, 100.0, false));
        assert!(!minimum.drains.is_draining());
    }

    #[test]
    fn an_outage_makes_no_minimum_stale() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        minimum
            .drains
            .on_silence(ms(6000), Duration::from_millis(5900));
        minimum.advance(ms(6000), 20, 150.0, 100.0, false);
        assert!(!minimum.drains.is_draining());
        assert!(
            minimum
                .drains
                .met_within(ms(6000), Duration::from_millis(200))
        );
    }

    /// Epochs of a flow at its floor, with the delay that a path of `delay_ms` has, until it drains.
    fn suspected_after(delay_ms: f64, lately_met: bool) -> Option<u64> {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let begun: u64 = if lately_met { 0 } else { 2500 };
        (begun..begun + 2000).step_by(5).find(|&now| {
            minimum.on_sample(ms(now), delay_ms);
            minimum.advance(ms(now), 4, delay_ms, 80.0, true);
            minimum.drains.is_draining()
        })
    }

    #[test]
    fn a_flow_that_cannot_explain_its_delay_drains_at_once() {
        // 100 ms and two delays.
        assert_eq!(suspected_after(90.0, true), Some(285));
        assert_eq!(suspected_after(79.0, true), None, "R tolerates it");
        assert_eq!(suspected_after(90.0, false), None, "others have a queue");
    }

    #[test]
    fn drains_that_disagree_saw_a_queue_and_not_a_path() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let mut now = 0;
        for delay in [90.0, 70.0, 95.0, 80.0, 90.0, 65.0] {
            drain(&mut minimum, &mut now, delay);
        }
        assert_eq!(minimum.least, Some(40.0));
    }

    #[test]
    fn a_risen_minimum_is_reviewed_and_falls_at_the_first_lower_delay() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let mut now = 0;
        for _ in 0..DRAINS_TO_RISE {
            drain(&mut minimum, &mut now, 90.0);
        }
        let risen = now;
        drain(&mut minimum, &mut now, 41.0);
        assert!(now - risen < 3_000);
        assert_eq!(minimum.least, Some(41.0));
    }

    #[test]
    fn a_silence_voids_a_drain() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let mut now = 0;
        while !minimum.drains.is_draining() {
            now += 5;
            minimum.advance(ms(now), 20, 150.0, 100.0, false);
        }
        minimum
            .drains
            .on_silence(ms(now + 700), Duration::from_millis(700));
        assert!(!minimum.drains.is_draining());
    }

    #[test]
    fn a_drain_without_an_answer_changes_nothing() {
        let mut minimum = Minimum::default();
        minimum.on_sample(ms(0), 40.0);
        let mut now = 0;
        while !minimum.drains.is_draining() {
            now += 5;
            minimum.advance(ms(now), 20, 150.0, 100.0, false);
        }
        while minimum.drains.is_draining() {
            now += 5;
            minimum.advance(ms(now), 20, 150.0, 100.0, false);
        }
        assert_eq!(minimum.least, Some(40.0));
    }
}
