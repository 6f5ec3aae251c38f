//! The reaction to a loss beyond Eq. 6, and the rules that equalise the shares of flows.
//!
//! **Sooner, and undone.** A packet that is lost but not yet declared so counts as in flight. It
//! enters the profile as part of a window that the path seems to hold. The paper waits three delays
//! for it; here it is one. The risk is small, since a cut is undone once all packets declared lost
//! have arrived after all (as RFC 4015 does).
//!
//! **A ceiling.** Eq. 4 raises D_est by δ₂ in every epoch whose delay is tolerable. A queue that
//! drops before the delay has risen to R · D_min would thus be overfilled again and again. So after
//! a loss the window stays below a ceiling, which begins at the window that Eq. 6 keeps. The
//! ceiling rises so that the *rate* grows by the same amount each second, whatever the rate and the
//! round trip. It lasts for seconds, even if the window of the loss is back sooner. One of many
//! flows regains that window in a few round trips; its curve is flat, and it would take twenty
//! times its share at once. But a radio link also loses packets by chance. As long as only a small
//! share of the packets is lost, Eq. 6 is answer enough.
//!
//! **Two packets on top** of each window. Eq. 4 steps in delay along the flow's own curve. A step
//! thus changes the window in proportion to the flow's share, up and down, and shares would never
//! become equal. The same addition for all makes the queue longer for all, and the longer delay
//! takes most from the largest flow.
//!
//! The last two are additive increase (Chiu and Jain 1989).

use verus_core::controller::Acked;
use verus_core::units::{Duration, Time};

use super::{Flow, Part};
use crate::units::Packets;

/// Packets added to the window that the curve gives for D_est.
const ADDED: f64 = 2.0;
/// A larger share of the packets is not lost by chance. BBR has 2 % for it (draft-ietf-ccwg-bbr, BBR.LossThresh).
const BY_CHANCE: f64 = 0.015;
/// Lost and arrived packets count half after this long, as the profile's points do.
const HALVED_AFTER: Duration = Duration::from_secs(1);
/// How much rate the ceiling gains in each second, in packets/ms: as NewReno at a round trip of 58 ms.
const REGAINED: f64 = 0.3;
/// Longest and shortest duration of a ceiling. On fast paths, where a window falls by hundreds of
/// packets, additive increase alone would take minutes.
const LONGEST: Duration = Duration::from_secs(3);
/// A flow that shares its path regains the lost rate at this share of the speed: shares become more
/// equal while the ceiling rises.
const SHARED: f64 = 0.25;

/// The ceiling that the last loss set.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    since: Time,
    until: Time,
    /// In packets, as Eq. 6 has cut it.
    kept: Packets,
    /// In packets per ms.
    rises: f64,
}

/// The last losses.
#[derive(Debug, Default)]
pub struct Losses {
    arrived: f64,
    lost: f64,
    halved: Time,
    ceiling: Option<Ceiling>,
    /// The ceiling before the last cut.
    before: Option<Ceiling>,
}

impl Losses {
    /// The largest window now, in packets.
    fn largest(&self, now: Time) -> Option<Packets> {
        let ceiling = self.ceiling.filter(|ceiling| now < ceiling.until)?;
        let risen = ceiling.rises * now.since(ceiling.since).as_millis_f64();
        Some(ceiling.kept + Packets(risen))
    }
}

impl Part for Losses {
    fn begun(_: u64) -> Self {
        Losses::default()
    }

    #[inline]
    fn on_acked(&mut self, flow: &Flow, _: &Acked) {
        self.arrived += 1.0;
        if flow.now.since(self.halved) >= HALVED_AFTER {
            self.halved = flow.now;
            self.arrived /= 2.0;
            self.lost /= 2.0;
        }
    }

    fn on_lost(&mut self, _: &Flow, packets: usize) {
        self.lost += packets as f64;
    }

    fn on_cut(&mut self, flow: &Flow, kept: Packets) {
        let many = self.lost > BY_CHANCE * (self.arrived + self.lost);
        let lost = Packets(kept.0 / flow.decrease_factor) - kept;
        let share = if flow.is_alone() { 1.0 } else { SHARED };
        let regained = REGAINED / 1e3 * flow.rtt.as_millis_f64();
        self.before = self.ceiling;
        let rises = share * regained.max(lost.0 / LONGEST.as_millis_f64());
        let back = Duration::from_millis_f64(lost.0 / rises);
        self.ceiling = many.then(|| Ceiling {
            since: flow.now,
            until: flow.now + back.max(LONGEST),
            kept,
            rises,
        });
    }

    fn takes_back(&mut self) {
        self.ceiling = self.before;
    }

    fn bounds(&self, flow: &Flow, window: Packets) -> Packets {
        let more = window + Packets(ADDED);
        self.largest(flow.now)
            .map_or(more, |largest| more.min(largest))
    }

    fn rescale(&mut self, factor: f64) {
        for ceiling in [&mut self.ceiling, &mut self.before].into_iter().flatten() {
            ceiling.kept = factor * ceiling.kept;
            ceiling.rises *= factor;
        }
    }

    fn probe(&self, flow: &Flow, record: &mut dyn FnMut(&'static str, f64)) {
        let largest = self.largest(flow.now);
        record(
            "ceiling_packets",
            largest.map_or(f64::NAN, |largest| largest.0),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Millis;
    use verus_core::testing::departure;

    fn flow(at_ms: u64, rtt_ms: u64) -> Flow {
        Flow {
            now: Time::from_millis(at_ms),
            ratio: 2.0,
            epoch: Duration::from_millis(5),
            decrease_factor: 0.7,
            d_min: Duration::from_millis(40),
            d_est: Millis(40.0),
            rtt: Duration::from_millis(rtt_ms),
            d_min_met_at: Time::from_millis(at_ms),
            outage: Time::ZERO,
            in_flight: 10,
            settled: true,
        }
    }

    /// `arrived` packets arrive and `lost` are lost, and the window is cut to 168 of 240 packets at
    /// 1 s.
    fn cut(arrived: u64, lost: usize) -> Losses {
        let mut losses = Losses::default();
        let flow = flow(1000, 120);
        for number in 0..arrived {
            let acked = Acked {
                packet: departure(number, flow.now),
                rtt: flow.rtt,
                received_at: None,
            };
            losses.on_acked(&flow, &acked);
        }
        losses.on_lost(&flow, lost);
        losses.on_cut(&flow, Packets(168.0));
        losses
    }

    #[test]
    fn the_ceiling_rises_from_the_cut_by_the_same_rate_each_second() {
        // 240 packets in 120 ms are 2 packets/ms; 0.6 were lost and 0.3 come back each second.
        let losses = cut(100, 10);
        let close = |at_ms, packets: f64| {
            let bound = losses.bounds(&flow(at_ms, 120), Packets(300.0)).0;
            assert!((bound - packets).abs() < 1e-9, "{bound} at {at_ms} ms");
        };
        close(1000, 168.0);
        close(2000, 204.0);
        close(3999, 168.0 + 36.0 * 2.999);
        close(4000, 302.0);
    }

    #[test]
    fn where_few_of_many_are_lost_it_is_by_chance_and_there_is_no_ceiling() {
        // The packets before the first second has ended count half.
        for (lost, by_chance) in [(1, true), (2, true), (4, false)] {
            let losses = cut(200, lost);
            assert_eq!(
                losses.largest(Time::from_millis(1000)).is_none(),
                by_chance,
                "{lost} lost"
            );
        }
    }

    #[test]
    fn a_fast_path_is_back_in_three_seconds_and_in_twelve_where_it_is_shared() {
        for (met_ms, longest_ms) in [(1000, 3000u64), (0, 12_000)] {
            let mut losses = cut(100, 10);
            let flow = Flow {
                d_min_met_at: Time::from_millis(met_ms),
                ..flow(1000, 40)
            };
            losses.on_cut(&flow, Packets(7000.0));
            let at = |ms| losses.largest(Time::from_millis(1000u64 + ms));
            assert!(at(longest_ms - 10).is_some());
            assert_eq!(at(longest_ms + 10), None);
        }
    }

    #[test]
    fn packets_of_half_the_size_are_twice_as_many() {
        let mut losses = cut(100, 10);
        losses.rescale(2.0);
        assert_eq!(
            losses.largest(Time::from_millis(2000)),
            Some(Packets(408.0))
        );
    }
}
