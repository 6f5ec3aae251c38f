//! Outages: silences that neither the flow's own queue nor its few packets explain.
//!
//! Verus keeps the queue's delay near R · D_min or below. If nothing is acknowledged for longer than that, and for longer than
//! a round trip takes, the path has stopped delivering. The delays of the packets that it held up do not enter the profile:
//! they depend on the outage and not on the window that the packets left under. An epoch without acknowledgements has the time
//! since the last one for its D_max once that is longer (`silent_epoch`): the paper says nothing of it, and D_est would rise.
//!
//! While the path is silent, timeouts follow one another a second apart at most, and two packets of new data leave after
//! each: what the flow hears first is then as young as can be, and so is the data that arrives first.

use verus_core::controller::{Acked, Departure};
use verus_core::units::Time;

use super::{Flow, Part};

/// The last outage.
#[derive(Debug, Default)]
pub struct Outages {
    heard: Option<Time>,
    /// When it ended.
    ended: Time,
}

impl Part for Outages {
    #[inline]
    fn on_acked(&mut self, flow: &Flow, _: &Acked) {
        let before = self.heard.replace(flow.now).unwrap_or(flow.now);
        // In slow start, delays grow beyond all earlier ones; a flow whose window is held hears seldom.
        let explained = flow.d_min.mul_f64(flow.ratio).max(flow.rtt);
        if flow.settled && flow.now.since(before) > explained {
            self.ended = flow.now;
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
    use verus_core::testing::departure;
    use verus_core::units::Duration;

    /// Whether a packet that left at 950 ms is charted after such a silence from 1 s on.
    fn charted(silence_ms: u64, rtt_ms: u64, settled: bool) -> bool {
        let mut outages = Outages::default();
        for now in [1000, 1000 + silence_ms].map(Time::from_millis) {
            let flow = Flow {
                now,
                ratio: 2.0,
                epoch: Duration::from_millis(5),
                decrease_factor: 0.7,
                d_min: Duration::from_millis(40),
                d_est: 40.0,
                rtt: Duration::from_millis(rtt_ms),
                met: now,
                in_flight: 10,
                settled,
            };
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
        assert!(charted(80, 40, true), "R tolerates it");
        assert!(!charted(81, 40, true));
        assert!(charted(81, 90, true), "a round trip takes as long");
        assert!(!charted(91, 90, true));
        assert!(charted(500, 40, false), "it hears seldom");
    }
}
