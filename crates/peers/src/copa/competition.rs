//! Flows that fill the queue, and how Copa gets a share beside them (NSDI 2018, §2.2).
//!
//! Among its own, Copa's queue is nearly empty once in five round trips. If it was not, δ is no longer fixed: 1/δ grows
//! by one in each round trip and is halved by a loss, as NewReno's window. When the queue is nearly empty again, that
//! is over.
//!
//! The rule can be wrong. Flows forget the least round trip at different times, so two flows of
//! Copa may disagree whether there is a queue. The flow that sees one switches to the competitive
//! mode and fills the queue; then the others see it too, and switch as well. Without drops this
//! never ends. At 10 Mbit/s, 40 ms and without a limit, 2 flows queue 175 packets on average over a
//! minute, and 4 flows 794. With `competitive=no` they queue 5.6 and 10.3. With round trips of 10
//! ms a single flow does this to itself.
//!
//! The published rule does it in every reading: with 4 or 6 round trips, and with v doubled a round
//! trip earlier or later. It also does it with each packet's round trip in place of the standing
//! one. Waiting for 10 round trips, or calling 30 % of the swing nearly empty, ends it, but is not
//! in the paper. "Improvement of Copa: Behaviors and Friendliness of Delay-Based Congestion Control
//! Algorithm" (IEEE/ACM Transactions on Networking, 2023, doi:10.1109/TNET.2023.3278677) finds both
//! in the published law.

use crate::windowed::{Windowed, WindowedMax};
use verus_core::units::{Duration, Time};

/// A queue that has not been nearly empty for this many round trips is attributed to competing flows.
const EMPTY_WITHIN_RTTS: u64 = 5;
/// A queue is nearly empty if it is less than one part in this many of how far the round-trip time swings (§2.2: 10 %).
const NEARLY: u64 = 10;
/// The swing is that of this many round trips.
const SWING_RTTS: u64 = 4;

/// A flow's competitors, as far as it sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Competition {
    /// 1/δ where there are none.
    min_packets: f64,
    /// 1/δ now.
    packets: f64,
    greatest_rtt: WindowedMax<Duration>,
    /// The last time the queue was nearly empty.
    empty_at: Time,
    /// The last times 1/δ grew and fell.
    grew_at: Time,
    fell_at: Option<Time>,
    on: bool,
}

impl Competition {
    /// `delta`: δ without competition.
    pub(super) fn new(delta: f64) -> Self {
        Competition {
            min_packets: 1.0 / delta,
            packets: 1.0 / delta,
            greatest_rtt: Windowed::new(),
            empty_at: Time::ZERO,
            grew_at: Time::ZERO,
            fell_at: None,
            on: false,
        }
    }

    /// The flow starts.
    pub(super) fn begin(&mut self, now: Time) {
        (self.empty_at, self.grew_at) = (now, now);
    }

    /// Whether a flow competes that fills buffers.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn delta(&self) -> f64 {
        1.0 / self.packets
    }

    pub(super) fn on_sample(
        &mut self,
        now: Time,
        rtt: Duration,
        standing: Duration,
        min_rtt: Duration,
        smoothed_rtt: Duration,
    ) {
        let swing = smoothed_rtt * SWING_RTTS;
        let at = now.as_nanos();
        let greatest = self.greatest_rtt.update(at, swing.as_nanos(), rtt);
        let nearly = greatest.saturating_sub(min_rtt) / NEARLY;
        if standing.saturating_sub(min_rtt) <= nearly {
            self.empty_at = now;
        }
        let on = now.since(self.empty_at) > smoothed_rtt * EMPTY_WITHIN_RTTS;
        if on && !self.on {
            self.grew_at = now;
        }
        self.on = on;
        if !on {
            self.packets = self.min_packets;
        } else if now.since(self.grew_at) >= smoothed_rtt {
            self.packets += 1.0;
            self.grew_at = now;
        }
    }

    /// Packets were lost: 1/δ halves, once in a round trip.
    pub(super) fn on_loss(&mut self, now: Time, smoothed_rtt: Duration) {
        if self.fell_at.is_some_and(|at| now.since(at) < smoothed_rtt) {
            return;
        }
        self.packets = (self.packets / 2.0).max(self.min_packets);
        self.fell_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Round trips in which the standing time is this long; the longest is 200 ms.
    fn rounds(competition: &mut Competition, from: u64, count: u64, standing: u64) {
        for round in from..from + count {
            let now = Time::from_millis(round * 100);
            competition.on_sample(now, ms(200), ms(standing), RTT, RTT);
        }
    }

    #[test]
    fn a_queue_that_is_never_empty_is_somebody_elses() {
        let mut competition = Competition::new(0.5);
        rounds(&mut competition, 1, 10, 110);
        assert!(!competition.is_on(), "a tenth of the swing is nearly empty");
        assert_eq!(competition.delta(), 0.5);
        rounds(&mut competition, 11, 5, 111);
        assert!(!competition.is_on(), "for five round trips");
        // From the sixth on, 1/δ grows by one in each.
        rounds(&mut competition, 16, 4, 111);
        assert!(competition.is_on());
        assert_eq!(competition.delta(), 1.0 / 5.0);
    }

    #[test]
    fn losses_halve_it_once_in_a_round_trip_and_an_empty_queue_ends_it() {
        let mut competition = Competition::new(0.5);
        rounds(&mut competition, 1, 17, 150);
        assert_eq!(competition.delta(), 1.0 / 13.0);
        competition.on_loss(Time::from_millis(1710), RTT);
        competition.on_loss(Time::from_millis(1720), RTT);
        assert_eq!(competition.delta(), 1.0 / 6.5);
        for _ in 0..4 {
            let later = Time::from_millis(1720) + RTT * 2;
            competition.fell_at = None;
            competition.on_loss(later, RTT);
        }
        assert_eq!(competition.delta(), 0.5, "never above the default");
        rounds(&mut competition, 18, 1, 100);
        assert!(!competition.is_on());
    }
}
