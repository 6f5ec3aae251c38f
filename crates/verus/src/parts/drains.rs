//! Drains: now and then the flow empties its queue, to see whether D_min still is the least delay of the path.
//!
//! The paper's D_min is "the minimum delay experienced". It never rises, so after a handover to a
//! longer path every delay seems too long, and Verus stays at its smallest window. Here a flow that
//! has not *met* D_min for 5.5 s *holds* its window. It keeps at most two packets in flight until
//! it meets D_min, or until its own queue has gone and it has watched the delays for a moment. If
//! the least of these is above D_min, four more drains must agree before D_min rises. This care is
//! needed because an outage during a drain looks like a longer path. Also, a D_min that is too
//! large prevents the small windows that would correct it.
//!
//! A flow does not wait for 5.5 s if the path has become longer than R · D_min: the window then
//! falls to its floor and the delay does not follow.
//!
//! The queue of *other* flows must not count as path. Flows behind one bottleneck that began
//! together see the same queue and last met D_min at the same moment. They drain together, which
//! empties the queue for all of them: the idea behind BBR's ProbeRTT (draft-ietf-ccwg-bbr §5.3.4).
//! Flows that began at different times drain at different times. The queue in their drains then
//! varies more than a path's delay does, and their drains rarely agree on it. But sometimes they
//! do, and a late-coming flow can then still take part of the others' queue for the path.

use verus_core::controller::Acked;
use verus_core::units::{Duration, Time};

use super::{Flow, Hold, NEAR, Part, WATCH};
use crate::units::Millis;

/// A flow that has not met D_min for this long drains. BBR's ProbeRTT comes every 5 s (draft-ietf-ccwg-bbr §5.3.4.3).
const STALE_AFTER: Duration = Duration::from_millis(5500);
/// A longer path is suspected only if D_min was met at most this long before. A handover lengthens a path from one packet to
/// the next; the queue of other flows takes seconds to grow. A drain that has seen no delay for as long, because nothing is
/// acknowledged, ends without a result.
const MET_LATELY: Duration = Duration::from_secs(2);
/// Time between the drains that confirm one another, once a drain has seen no delay as low as D_min.
const CONFIRM_AFTER: Duration = Duration::from_millis(200);
/// D_min rises only if the least delay in drains is more than this many times D_min. Any useful R
/// (2 and more) tolerates a smaller increase.
const WORTH_RISING: f64 = 1.3;
/// D_min rises once this many drains have agreed on the least delay. The delay of a longer path is
/// constant except for the jitter of a slow link, while a queue of other flows varies. With three
/// drains instead of five, one of ten flows often took the others' queue for the path; its larger
/// D_min then lengthens the queue for all.
const DRAINS_TO_RISE: u32 = 5;
/// A drain agrees if the least delay that it saw is at most this many times the least that any of them saw.
const AGREE: f64 = 1.05;
/// Packets that a draining flow keeps in flight: one on each way.
const DRAINED_PACKETS: u64 = 2;
/// For R ≥ 3, a drain first reduces to the packets that the path holds, and the flow's own queue
/// has gone before the path runs idle. At a smaller R the flow's own queue is short, and other
/// flows would take the remainder for path.
const LARGE_RATIO: f64 = 3.0;

/// When D_min was last looked for, and the drain that looks for it.
#[derive(Debug, Default)]
pub struct Drains {
    /// The least delay of the flow's life, which D_min may have risen from.
    ever: Option<Duration>,
    drain: Option<Drain>,
    /// When a drain last ended that did not meet D_min.
    looked: Time,
    /// Since when the delay exceeds R · D_min although D_est is at its floor.
    unexplained: Option<Time>,
    /// When that last started a drain.
    suspected: Option<Time>,
    /// The delay that drains have agreed on, and when the next one is due that may confirm it.
    candidate: Option<Candidate>,
}

/// A delay above D_min that drains agree on.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    least: Duration,
    /// Drains that agree.
    drains: u32,
    /// All, since the first that saw more than D_min.
    tried: u32,
    next: Time,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    began: Time,
    /// How many packets may be in flight.
    allowed: u64,
    /// Below this many, only [`DRAINED_PACKETS`] may: the capacity can change by as much in the course of a drain.
    fewest: u64,
    /// Since when no more than `allowed` are in flight.
    kept: Option<Time>,
    /// When at most [`DRAINED_PACKETS`] were in flight for the first time, so that the flow has no
    /// queue.
    empty: Option<Time>,
    /// The least delay of packets that left after `empty`.
    least: Option<Duration>,
}

impl Drain {
    /// The first of its kind begins gently, one that is to confirm another does not.
    fn new(flow: &Flow, is_first: bool) -> Self {
        // Little's law.
        let product = flow.in_flight as f64 * (flow.d_min / flow.rtt).min(1.0);
        let gentle = is_first && flow.ratio >= LARGE_RATIO;
        let allowed = if gentle { NEAR * product } else { 0.0 };
        Drain {
            began: flow.now,
            allowed: (allowed as u64).max(DRAINED_PACKETS),
            fewest: (flow.decrease_factor * product) as u64,
            kept: None,
            empty: None,
            least: None,
        }
    }

    fn holds(&self) -> Hold {
        Hold::Held {
            packets: self.allowed,
        }
    }

    /// Allows less once a packet that left under this allowance has had the time to come back with a delay of D_min.
    fn lower(&mut self, flow: &Flow) {
        if self.allowed == DRAINED_PACKETS || flow.in_flight > self.allowed {
            return;
        }
        let kept = *self.kept.get_or_insert(flow.now);
        if flow.now.since(kept) >= flow.d_min.mul_f64(NEAR) {
            let lower = (self.allowed as f64 / NEAR) as u64;
            self.allowed = if lower < self.fewest {
                DRAINED_PACKETS
            } else {
                lower.max(DRAINED_PACKETS)
            };
            self.kept = None;
        }
    }
}

impl Drains {
    /// Whether the path seems to have become longer: D_est is at its floor, D_min, and the smoothed delay nevertheless exceeds
    /// R · D_min for [`WATCH`] plus two of the flow's round trips. By then the window has been cut as far as Eq. 4 can, and
    /// the delay should have followed. The flow then drains at once, at most once every [`STALE_AFTER`].
    fn suspects(&mut self, flow: &Flow) -> bool {
        let d_min = Millis::from(flow.d_min);
        if flow.d_est > d_min || Millis::from(flow.rtt) <= flow.ratio * d_min {
            self.unexplained = None;
        } else if self.unexplained.is_none() && flow.unmet_for() < MET_LATELY {
            self.unexplained = Some(flow.now);
        }
        let for_longer_than = |since: Option<Time>, span| since.map(|at| flow.now.since(at) > span);
        for_longer_than(self.unexplained, WATCH + flow.rtt * 2) == Some(true)
            && for_longer_than(self.suspected, STALE_AFTER) != Some(false)
    }

    /// The new D_min according to a drain's least delay, if it rises.
    fn conclude(&mut self, flow: &Flow, least_delay: Duration) -> Option<Duration> {
        if least_delay <= flow.d_min.mul_f64(WORTH_RISING) {
            self.candidate = None;
            return None;
        }
        // A path's delay is a floor: drains may exceed it, but cannot fall below it. If too few
        // agree, the excess was a queue.
        let before = self
            .candidate
            .filter(|before| least_delay.mul_f64(AGREE) >= before.least);
        let agrees = before.is_none_or(|before| least_delay <= before.least.mul_f64(AGREE));
        let lowest = before.map_or(least_delay, |before| before.least.min(least_delay));
        let drains = before.map_or(0, |before| before.drains) + u32::from(agrees);
        let tried = self.candidate.map_or(0, |before| before.tried) + 1;
        let risen = drains >= DRAINS_TO_RISE;
        let goes_on = !risen && tried < 2 * DRAINS_TO_RISE;
        self.candidate = goes_on.then(|| Candidate {
            least: lowest,
            drains,
            tried,
            next: flow.now + CONFIRM_AFTER,
        });
        risen.then_some(lowest)
    }
}

impl Part for Drains {
    fn begun(_: u64) -> Self {
        Drains::default()
    }

    #[inline]
    fn on_acked(&mut self, flow: &Flow, acked: &Acked) {
        self.ever = Some(self.ever.map_or(flow.d_min, |ever| ever.min(flow.d_min)));
        if let Some(drain) = &mut self.drain
            && drain.empty.is_some_and(|empty| acked.packet.at >= empty)
        {
            drain.least = Some(drain.least.map_or(acked.rtt, |least| least.min(acked.rtt)));
        }
    }

    #[inline]
    fn holds(&mut self, flow: &Flow) -> Hold {
        let now = flow.now;
        let suspected = self.suspects(flow);
        // A delay measured across an outage is not the path's.
        if (self.drain.as_ref()).is_some_and(|drain| drain.began < flow.outage) {
            self.drain = None;
        }
        let Some(drain) = &mut self.drain else {
            let stale =
                now.since(flow.d_min_met_at.max(self.looked).max(flow.outage)) > STALE_AFTER;
            let due = self
                .candidate
                .is_some_and(|candidate| now >= candidate.next);
            if suspected {
                self.suspected = Some(now);
            }
            if !(stale || suspected || due) {
                return Hold::Free;
            }
            let drain = Drain::new(flow, self.candidate.is_none());
            self.drain = Some(drain);
            return drain.holds();
        };
        drain.lower(flow);
        if drain.empty.is_none() && flow.in_flight <= DRAINED_PACKETS {
            drain.empty = Some(now);
        }
        // D_min was met during the drain: the path is no longer than that, and need not stay idle any longer. But a
        // D_min that has risen may include a queue of other flows, so such a drain goes on to the end.
        let risen = self
            .ever
            .is_some_and(|ever| flow.d_min > ever.mul_f64(NEAR));
        if flow.d_min_met_at > drain.began && !risen {
            self.drain = None;
            self.candidate = None;
            return Hold::Released { risen: None };
        }
        let watched = (drain.empty).is_some_and(|empty| now.since(empty) >= WATCH + flow.d_min);
        let least_delay = drain.least.filter(|_| watched);
        if least_delay.is_none() && now.since(drain.began) < MET_LATELY {
            return drain.holds();
        }
        self.drain = None;
        self.looked = now;
        Hold::Released {
            risen: least_delay.and_then(|least_delay| self.conclude(flow, least_delay)),
        }
    }

    fn probe(&self, _: &Flow, record: &mut dyn FnMut(&'static str, f64)) {
        let allowed = self.drain.map_or(f64::NAN, |drain| drain.allowed as f64);
        record("drain_packets", allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing::departure;

    /// D_min and its drains.
    #[derive(Default)]
    struct Minimum {
        least: Option<Duration>,
        d_min_met_at: Time,
        drains: Drains,
    }

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    impl Minimum {
        fn flow(&self, at_ms: u64) -> Flow {
            let d_min = self.least.expect("a sample came first");
            Flow {
                now: ms(at_ms),
                ratio: 2.0,
                epoch: Duration::from_millis(5),
                decrease_factor: 0.7,
                d_min,
                d_est: 2.0 * Millis::from(d_min),
                rtt: Duration::from_millis(150),
                d_min_met_at: self.d_min_met_at,
                in_flight: 20,
                outage: Time::ZERO,
                settled: true,
            }
        }

        fn on_sample(&mut self, at_ms: u64, delay_ms: u64) {
            let rtt = Duration::from_millis(delay_ms);
            let d_min = self.least.map_or(rtt, |d_min| d_min.min(rtt));
            self.least = Some(d_min);
            if rtt <= d_min.mul_f64(NEAR) {
                self.d_min_met_at = ms(at_ms);
            }
            let packet = departure(0, ms(at_ms));
            let acked = Acked {
                packet,
                rtt,
                received_at: None,
            };
            let flow = self.flow(at_ms);
            self.drains.on_acked(&flow, &acked);
        }

        fn advance(&mut self, flow: &Flow) -> Hold {
            let hold = self.drains.holds(flow);
            if let Hold::Released { risen: Some(risen) } = hold {
                self.least = Some(risen);
            }
            hold
        }

        /// Epochs until a drain begins, with a queue that stands.
        fn wait(&mut self, now: &mut u64) {
            while self.drains.drain.is_none() {
                *now += 5;
                self.on_sample(*now, 150);
                let flow = self.flow(*now);
                self.advance(&flow);
            }
        }

        /// The next drain, on a path that takes `delay_ms` once the queue is gone.
        fn drain(&mut self, now: &mut u64, delay_ms: u64) {
            self.wait(now);
            loop {
                let flow = Flow {
                    in_flight: DRAINED_PACKETS,
                    ..self.flow(*now)
                };
                if let Hold::Released { .. } = self.advance(&flow) {
                    return;
                }
                *now += 5;
                self.on_sample(*now, delay_ms);
            }
        }
    }

    /// D_min is 40 ms at time 0.
    fn minimum() -> Minimum {
        let mut minimum = Minimum::default();
        minimum.on_sample(0, 40);
        minimum
    }

    const FORTY: Option<Duration> = Some(Duration::from_millis(40));

    #[test]
    fn a_minimum_that_is_met_again_is_never_questioned() {
        let mut minimum = minimum();
        for step in 0..400 {
            minimum.on_sample(step * 100, if step % 50 == 0 { 41 } else { 80 });
            let flow = minimum.flow(step * 100);
            assert_eq!(minimum.advance(&flow), Hold::Free);
        }
        assert_eq!(minimum.least, FORTY);
    }

    #[test]
    fn a_longer_path_is_believed_after_five_drains_and_within_ten_seconds() {
        let (mut minimum, mut now) = (minimum(), 0);
        for delay_ms in [90, 91, 92, 90] {
            minimum.drain(&mut now, delay_ms);
            assert_eq!(minimum.least, FORTY, "few drains may have met an outage");
        }
        minimum.drain(&mut now, 91);
        assert_eq!(minimum.least, Some(Duration::from_millis(90)));
        assert!(now < 10_000, "{now} ms");
    }

    #[test]
    fn a_drain_that_meets_the_minimum_ends_at_once() {
        let (mut minimum, mut now) = (minimum(), 0);
        minimum.wait(&mut now);
        minimum.on_sample(now + 30, 41);
        let flow = minimum.flow(now + 30);
        assert_eq!(minimum.advance(&flow), Hold::Released { risen: None });
    }

    #[test]
    fn an_outage_ends_a_drain_and_the_next_one_waits() {
        let (mut minimum, mut now) = (minimum(), 0);
        minimum.wait(&mut now);
        let after = |minimum: &mut Minimum, later_ms| {
            let flow = Flow {
                outage: ms(now + 100),
                ..minimum.flow(now + later_ms)
            };
            minimum.advance(&flow)
        };
        assert_eq!(after(&mut minimum, 100), Hold::Free);
        assert_eq!(after(&mut minimum, 5600), Hold::Free);
        assert_ne!(after(&mut minimum, 5601), Hold::Free);
    }

    #[test]
    fn with_a_large_ratio_a_drain_begins_with_what_the_path_holds() {
        let mut drains = Drains::default();
        let mut at = |now_ms, ratio, in_flight| {
            let (d_min_met_at, rtt) = (Time::ZERO, Duration::from_millis(80));
            let flow = Flow {
                ratio,
                d_min_met_at,
                rtt,
                in_flight,
                ..minimum().flow(now_ms)
            };
            drains.holds(&flow)
        };
        // 40 packets take twice D_min: the path holds 20.
        assert_eq!(at(6000, 4.0, 40), Hold::Held { packets: 22 });
        for (now_ms, packets) in [(6005, 22), (6050, 20), (6055, 20), (6100, 18)] {
            assert_eq!(at(now_ms, 4.0, 18), Hold::Held { packets }, "{now_ms} ms");
        }
    }

    #[test]
    fn drains_that_disagree_saw_a_queue_and_not_a_path() {
        let (mut minimum, mut now) = (minimum(), 0);
        for delay_ms in [90, 70, 95, 80, 90, 65] {
            minimum.drain(&mut now, delay_ms);
        }
        assert_eq!(minimum.least, FORTY);
    }

    /// When a flow at its floor drains, with the delay that a path of `delay_ms` has.
    fn suspected_after(delay_ms: u64, lately_met: bool) -> Option<u64> {
        let mut minimum = minimum();
        let begun: u64 = if lately_met { 0 } else { 2500 };
        (begun..begun + 2000).step_by(5).find(|&now| {
            minimum.on_sample(now, delay_ms);
            let flow = Flow {
                d_est: Millis(40.0),
                rtt: Duration::from_millis(delay_ms),
                ..minimum.flow(now)
            };
            minimum.advance(&flow) != Hold::Free
        })
    }

    #[test]
    fn a_flow_that_cannot_explain_its_delay_drains_at_once() {
        // 50 ms and two delays.
        assert_eq!(suspected_after(90, true), Some(235));
        assert_eq!(suspected_after(79, true), None, "R tolerates it");
        assert_eq!(suspected_after(90, false), None, "others have a queue");
    }

    #[test]
    fn a_risen_minimum_falls_at_the_first_lower_delay() {
        let (mut minimum, mut now) = (minimum(), 0);
        for _ in 0..DRAINS_TO_RISE {
            minimum.drain(&mut now, 90);
        }
        assert_eq!(minimum.least, Some(Duration::from_millis(90)));
        minimum.drain(&mut now, 41);
        assert_eq!(minimum.least, Some(Duration::from_millis(41)));
    }

    #[test]
    fn a_drain_without_an_answer_changes_nothing() {
        let (mut minimum, mut now) = (minimum(), 0);
        minimum.wait(&mut now);
        let released = loop {
            now += 5;
            let flow = minimum.flow(now);
            match minimum.advance(&flow) {
                Hold::Held { packets } => assert_eq!(packets, DRAINED_PACKETS),
                other => break other,
            }
        };
        assert_eq!(released, Hold::Released { risen: None });
        assert_eq!(minimum.least, FORTY);
    }
}
