//! Outages: silences that neither the flow's own queue nor its few packets explain.
//!
//! Verus keeps the queue's delay near R · D_min or below. If nothing is acknowledged for longer than that, and for longer than
//! a round trip takes, the path has stopped delivering. The delays of the packets that it held up do not enter the profile:
//! they depend on the outage and not on the window that the packets left under. An epoch without acknowledgements has the time
//! since the last one for its D_max once that is longer (`silent_epoch`): the paper says nothing of it, and D_est would rise.
//!
//! While the path is silent, timeouts follow one another at most a second apart, and two packets of
//! new data leave after each. The first acknowledgement after the silence is then as recent as
//! possible, and so is the data that arrives first.

use verus_core::controller::{Acked, Departure};
use verus_core::units::Time;

use super::{Flow, Hold, Part, WATCH};

/// The last outage.
#[derive(Debug, Default)]
pub struct Outages {
    last_feedback: Option<Time>,
    /// When it ended.
    ended: Time,
}

impl Outages {
    /// Whether nothing has been acknowledged for longer than the flow's own packets explain. In
    /// slow start delays grow beyond all earlier ones. While a drain holds the window, few
    /// acknowledgements come, and the path may have become longer; the drain is to find that out.
    #[inline]
    fn is_silent(&self, flow: &Flow) -> bool {
        let silence = flow.now.since(self.last_feedback.unwrap_or(flow.now));
        flow.settled
            && silence > flow.rtt
            && silence > flow.d_min + WATCH
            && silence > flow.d_min.mul_f64(flow.ratio)
    }
}

impl Part for Outages {
    fn begun(_: u64) -> Self {
        Outages::default()
    }

    #[inline]
    fn on_acked(&mut self, flow: &Flow, _: &Acked) {
        if self.is_silent(flow) {
            self.ended = flow.now;
        }
        self.last_feedback = Some(flow.now);
    }

    #[inline]
    fn ends_outage(&self, flow: &Flow) -> bool {
        self.ended == flow.now
    }

    #[inline]
    fn holds(&mut self, flow: &Flow) -> Hold {
        // Nothing in flight, nothing acknowledged: to hold the window then would stop the flow for good.
        if flow.in_flight > 0 && self.is_silent(flow) {
            Hold::Held { packets: 0 }
        } else {
            Hold::Free
        }
    }

    #[inline]
    fn charts(&self, packet: &Departure) -> bool {
        packet.at >= self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Millis;
    use verus_core::testing::departure;
    use verus_core::units::Duration;

    /// The flow at such a time, with a D_min of 40 ms and R = 2.
    fn flow(now: Time, rtt_ms: u64, settled: bool) -> Flow {
        Flow {
            now,
            ratio: 2.0,
            epoch: Duration::from_millis(5),
            decrease_factor: 0.7,
            d_min: Duration::from_millis(40),
            d_est: Millis(40.0),
            rtt: Duration::from_millis(rtt_ms),
            d_min_met_at: now,
            outage: Time::ZERO,
            in_flight: 10,
            settled,
        }
    }

    /// Whether a packet that left at 950 ms is charted after such a silence from 1 s on.
    fn charted(silence_ms: u64, rtt_ms: u64, settled: bool) -> bool {
        let mut outages = Outages::default();
        for now in [1000, 1000 + silence_ms].map(Time::from_millis) {
            let flow = flow(now, rtt_ms, settled);
            let acked = Acked {
                packet: departure(0, Time::from_millis(900)),
                rtt: flow.rtt,
                received_at: None,
            };
            outages.on_acked(&flow, &acked);
        }
        let later = departure(2, Time::from_millis(1000 + silence_ms));
        assert!(outages.charts(&later), "it left after the silence");
        outages.charts(&departure(1, Time::from_millis(950)))
    }

    #[test]
    fn what_an_outage_held_up_says_nothing_of_its_window() {
        assert!(charted(90, 40, true), "a path may take as long");
        assert!(!charted(91, 40, true));
        assert!(charted(95, 95, true), "a round trip takes as long");
        assert!(!charted(96, 95, true));
        assert!(charted(500, 40, false), "slow start");
    }

    #[test]
    fn the_window_is_held_while_the_path_is_silent_unless_nothing_is_in_flight() {
        let mut outages = Outages {
            last_feedback: Some(Time::from_millis(1000)),
            ..Outages::default()
        };
        let mut at = |now_ms, in_flight| {
            let flow = flow(Time::from_millis(now_ms), 40, true);
            outages.holds(&Flow { in_flight, ..flow })
        };
        assert_eq!(at(1090, 1), Hold::Free);
        assert_eq!(at(1091, 1), Hold::Held { packets: 0 });
        assert_eq!(at(1091, 0), Hold::Free);
    }
}
