//! The path's capacity C: the largest delivery rate of the last few seconds.
//!
//! The paper learns delay from windows alone. After an outage, for example, a flow has had small
//! windows with large delays. The curve then rises steeply at small windows, and the window cannot
//! grow until D_est has climbed all of it. Little's law supplies the missing relation. A path that
//! lately carried C packets a millisecond
//!
//! - holds C · D_min packets without a queue. A smaller window would lower the rate and save no
//!   delay. This *bounds* the window from below;
//! - takes 1/C longer for each packet beyond these, which *teaches* the curve its least slope;
//! - does not carry C any more after a *loss*. C is then the rate that the window kept by Eq. 6 can
//!   carry.
//!
//! C is the rate of *this flow*. A flow that shares the path carries only a part of the capacity,
//! and the slope would be 1/share. A newcomer with a small share would have a steep curve and its
//! window would grow slowly; an incumbent's would grow fast. Growth in proportion to a flow's share
//! never equalises shares (Chiu and Jain 1989, multiplicative increase). So a flow that is not
//! alone is not taught, and forgets C sooner.
//!
//! An interval in which the path fell silent says nothing about its capacity, and does not count.

use verus_core::controller::Acked;
use verus_core::units::Time;

use super::{Flow, Part};
use crate::units::Packets;

/// C is the largest delivery rate of this many intervals. An interval lasts from one fit of the curve to the next, 1 s by
/// default.
const INTERVALS: usize = 10;
/// As [`INTERVALS`], for a flow that shares the path: a newcomer must not keep its slow-start rate
/// for ten seconds.
const SHARED_INTERVALS: usize = 5;

/// Windowed maximum of the delivery rate.
#[derive(Debug, Default)]
pub struct Capacity {
    /// Packets per ms in each of the last intervals, oldest overwritten first.
    rates: [f64; INTERVALS],
    /// The rates before the last cut.
    before: [f64; INTERVALS],
    next: usize,
    /// Whether the flow was alone when the curve was last fitted.
    alone: bool,
    acked: f64,
    /// When the open interval began, once one did.
    since: Option<Time>,
    /// C, in packets per ms; zero until an interval has ended.
    most: f64,
}

impl Capacity {
    /// Finds C among the intervals that count.
    fn look(&mut self) {
        let counts = if self.alone {
            INTERVALS
        } else {
            SHARED_INTERVALS
        };
        let lately =
            (1..=counts).map(|back| self.rates[(self.next + INTERVALS - back) % INTERVALS]);
        self.most = lately.fold(0.0, f64::max);
    }

    /// Ends the open interval, and begins another.
    fn end_interval(&mut self, flow: &Flow) {
        let Some(since) = self.since.filter(|&since| since < flow.now) else {
            return;
        };
        if flow.outage <= since {
            self.rates[self.next] = self.acked / flow.now.since(since).as_millis_f64();
            self.next = (self.next + 1) % INTERVALS;
        }
        self.acked = 0.0;
        self.since = Some(flow.now);
    }

    /// The packets that the path holds without a queue: C · D_min.
    fn pipe(&self, flow: &Flow) -> Packets {
        Packets(self.most * Self::empty_ms(flow))
    }

    /// The round trip of the empty path, in ms. Where it is within an epoch, D_min is said to be an epoch.
    fn empty_ms(flow: &Flow) -> f64 {
        let empty = if flow.rtt < flow.epoch {
            flow.rtt
        } else {
            flow.d_min
        };
        empty.as_millis_f64()
    }
}

impl Part for Capacity {
    fn begun(_: u64) -> Self {
        Capacity::default()
    }

    #[inline]
    fn on_acked(&mut self, _: &Flow, acked: &Acked) {
        self.since.get_or_insert(acked.packet.at);
        self.acked += 1.0;
    }

    fn on_cut(&mut self, flow: &Flow, kept: Packets) {
        self.before = self.rates;
        let carried = kept.0 / Self::empty_ms(flow);
        self.rates = self.rates.map(|rate| rate.min(carried));
        self.look();
    }

    fn takes_back(&mut self) {
        for (rate, before) in self.rates.iter_mut().zip(self.before) {
            *rate = rate.max(before);
        }
        self.look();
    }

    fn bounds(&self, flow: &Flow, window: Packets) -> Packets {
        window.max(self.pipe(flow))
    }

    fn teaches(&mut self, flow: &Flow) -> f64 {
        self.end_interval(flow);
        self.alone = flow.is_alone();
        self.look();
        if self.alone && self.most > 0.0 {
            1.0 / self.most
        } else {
            0.0
        }
    }

    fn rescale(&mut self, factor: f64) {
        let rates = self.rates.iter_mut().chain(&mut self.before);
        rates.for_each(|rate| *rate *= factor);
        self.acked *= factor;
        self.look();
    }

    fn probe(&self, flow: &Flow, record: &mut dyn FnMut(&'static str, f64)) {
        let pipe = self.pipe(flow).0;
        record("pipe_packets", if pipe > 0.0 { pipe } else { f64::NAN });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Millis;
    use verus_core::testing::departure;
    use verus_core::units::Duration;

    const D_MIN: Duration = Duration::from_millis(40);

    fn flow(at_ms: u64, met_ms: u64) -> Flow {
        Flow {
            now: Time::from_millis(at_ms),
            ratio: 2.0,
            epoch: Duration::from_millis(5),
            decrease_factor: 0.7,
            d_min: D_MIN,
            d_est: Millis(40.0),
            rtt: D_MIN,
            d_min_met_at: Time::from_millis(met_ms),
            outage: Time::ZERO,
            in_flight: 10,
            settled: true,
        }
    }

    /// `packets` packets arrive, and the interval ends; returns the least slope that this teaches a
    /// flow alone.
    fn deliver(capacity: &mut Capacity, packets: u64, until_ms: u64) -> f64 {
        let flow = flow(until_ms, until_ms);
        for number in 0..packets {
            let packet = departure(number, Time::from_millis(until_ms - 40));
            let acked = Acked {
                packet,
                rtt: D_MIN,
                received_at: None,
            };
            capacity.on_acked(&flow, &acked);
        }
        capacity.teaches(&flow)
    }

    /// A capacity whose first interval began at zero.
    fn begun() -> Capacity {
        Capacity {
            since: Some(Time::ZERO),
            ..Capacity::default()
        }
    }

    /// The smallest window, in packets, of a flow that shares the path.
    fn smallest_window(capacity: &Capacity) -> f64 {
        capacity.bounds(&flow(10_000, 0), Packets(1.0)).0
    }

    #[test]
    fn the_best_interval_counts_until_it_is_too_old() {
        let mut capacity = begun();
        assert_eq!(smallest_window(&capacity), 1.0);
        assert_eq!(deliver(&mut capacity, 500, 1000), 2.0);
        for second in 2..=10 {
            deliver(&mut capacity, 100, second * 1000);
            assert_eq!(smallest_window(&capacity), 20.0);
        }
        assert_eq!(deliver(&mut capacity, 100, 11_000), 10.0);
        assert_eq!(smallest_window(&capacity), 4.0);
    }

    #[test]
    fn a_larger_window_stays_what_it_is_and_a_smaller_one_fills_the_path() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        let bounded = |window| capacity.bounds(&flow(1000, 1000), Packets(window)).0;
        assert_eq!(bounded(50.0), 50.0);
        assert_eq!(bounded(1.0), 20.0);
    }

    #[test]
    fn where_a_round_trip_is_within_an_epoch_the_path_holds_what_it_carries_in_one() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        let short = Flow {
            d_min: Duration::from_millis(5),
            rtt: Duration::from_millis(4),
            ..flow(1000, 1000)
        };
        assert_eq!(capacity.bounds(&short, Packets(1.0)), Packets(2.0));
        // And after a loss no more than was kept.
        capacity.on_cut(&short, Packets(1.0));
        assert_eq!(capacity.bounds(&short, Packets(0.5)), Packets(1.0));
    }

    #[test]
    fn an_interval_with_an_outage_counts_for_nothing() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        for second in 2..=20 {
            let silent = Flow {
                outage: Time::from_millis(second * 1000 - 500),
                ..flow(second * 1000, 0)
            };
            capacity.teaches(&silent);
        }
        assert_eq!(smallest_window(&capacity), 20.0);
    }

    #[test]
    fn who_shares_the_path_forgets_sooner() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        for second in 2..=6 {
            deliver(&mut capacity, 100, second * 1000);
        }
        assert_eq!(smallest_window(&capacity), 20.0);
        assert_eq!(capacity.teaches(&flow(7000, 6000)), 0.0);
        assert_eq!(smallest_window(&capacity), 4.0);
    }

    #[test]
    fn a_flow_that_begins_late_is_not_the_slower_for_it() {
        let mut capacity = Capacity::default();
        deliver(&mut capacity, 1, 60_000);
        assert_eq!(deliver(&mut capacity, 100, 60_200), 2.0);
    }

    #[test]
    fn a_loss_limits_what_is_remembered() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        capacity.on_cut(&flow(1000, 1000), Packets(12.0));
        assert_eq!(smallest_window(&capacity), 12.0);
        deliver(&mut capacity, 400, 2000);
        assert_eq!(smallest_window(&capacity), 16.0);
    }

    #[test]
    fn a_share_of_the_path_says_nothing_of_what_a_packet_costs() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        assert_eq!(capacity.teaches(&flow(1001, 602)), 2.0);
        assert_eq!(capacity.teaches(&flow(1001, 601)), 0.0);
        assert_eq!(smallest_window(&capacity), 20.0);
    }

    #[test]
    fn packets_of_half_the_size_are_twice_as_many() {
        let mut capacity = begun();
        deliver(&mut capacity, 500, 1000);
        capacity.rescale(2.0);
        assert_eq!(smallest_window(&capacity), 40.0);
    }
}
