//! The law: target queue, window and pace as functions of the measurements.
//!
//! ```text
//! s = 13/45 budget · ∛(10 Mbit/s ÷ r)
//! q = max(s, min(s · [1 + 60 (e − 4 %)⁺ ÷ (1 + 60 l)], budget)) ÷ (1 + 50 p)
//! q = c · s ÷ (1 + 50 (p − 1/64)⁺)                     if this is less, in a buffer shorter than q
//! W = r · max(D + q + (q − Q)/8, D/2)
//! H = min(4 G, 80 ms) + J, at most 200 ms
//! ```
//!
//! Plain functions of unsigned integers, so that a kernel can have them line by line. They keep no
//! state between calls, and all divisions round down. Units: times in µs, below 2^26 (67 s); rates
//! in bit/s, below 2^37 (137 Gbit/s); sizes in bytes; shares in 2^-16, at most 2^16. Larger
//! arguments are reduced to these limits, so that no product exceeds 64 bits.

use super::constants::Constants;

/// A share of 1, in 2^-16.
pub const ONE: u64 = 1 << 16;
/// The longest time, µs.
const LONGEST: u64 = (1 << 26) - 1;
/// The highest rate, bit/s.
const FASTEST: u64 = (1 << 37) - 1;
/// The rate at which s is 13/45 of the budget, bit/s.
pub const REFERENCE: u64 = 10_000_000;
/// s, the target queue of a steady link, at 10 Mbit/s, as a fraction of the delay budget: 26 ms of
/// 90.
const STEADY: (u64, u64) = (13, 45);
/// The share of time in which the queue may be empty on a link whose rate is steady: 4 %.
pub(super) const SPARE: u64 = ONE / 25;
/// The share of losses that has no price in a buffer shorter than q, where c bounds the target.
/// There c already responds to these losses, and flows that share a buffer do not lose equally.
const UNPRICED: u64 = ONE / 64;
/// Mean gaps between arrivals that H covers.
const GAPS: u64 = 4;
/// The longest time that these gaps add to H, µs.
const LONGEST_GAPS: u64 = 80_000;
/// The longest horizon, µs.
const LONGEST_HORIZON: u64 = 200_000;
/// The window in a drain, in percent of r D. It is small enough to empty the queue even if D is too
/// long, because it was measured with a queue of other flows.
const DRAIN_PERCENT: u64 = 15;
/// A window smaller than this many packets is enforced by its pace. The count of packets in flight
/// would always round it down to whole packets.
pub const SMALL_PACKETS: u64 = 4;
/// Divisor of a packet that gives the least window: a packet every eight round trips still measures
/// the path.
const LEAST_SHARE: u64 = 8;
/// The same divisor in a drain: a flow that sends nothing does not see that the queue is empty.
const DRAINED_SHARE: u64 = 2;

/// The measurements that q depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Channel {
    /// r, the rate at which the receiver gets data, bit/s.
    pub rate: u64,
    /// The delay budget: a packet that queues for longer is late, µs.
    pub budget: u64,
    /// p, the share of packets lost, 2^-16.
    pub lost: u64,
    /// e, the share of time in which the queue was empty, 2^-16.
    pub empty: u64,
    /// l, the share of packets that were late, 2^-16.
    pub late: u64,
    /// c, the share of s that the buffer holds, 2^-16; [`UNBOUNDED`] unless the buffer is shorter
    /// than q.
    pub room: u64,
}

/// The value of c where no buffer bounds the target.
pub const UNBOUNDED: u64 = 1 << 26;

/// The phase of a flow, as far as the window depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The window is given: slow start's, or the probe's after a timeout.
    #[default]
    Given = 0,
    /// The law gives W.
    Law = 1,
    /// A full drain empties the queue: the window is a small share of r D.
    Drain = 2,
    /// A short drain empties the queue: the path is so long that r D less Q + q is small enough.
    ShortDrain = 3,
}

/// The measurements and the phase that the window depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// r, bit/s.
    pub rate: u64,
    /// D, the round trip without a queue, µs.
    pub base: u64,
    /// Q, the present queueing delay, µs.
    pub queue: u64,
    /// q, the target queueing delay, µs, as [`target`] returns it.
    pub target: u64,
    /// The time by which a window may leave sooner than at rate r, µs. Packets sent ahead wait in
    /// the queue.
    pub lead: u64,
    /// The size of a packet, bytes.
    pub packet: u64,
    /// The window in [`Phase::Given`], bytes.
    pub given: u64,
    /// The phase of the flow.
    pub phase: Phase,
}

/// The window and the pace of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Decision {
    /// W, bytes; below a packet where one packet in several round trips is enough.
    pub window: u64,
    /// The pace of departures, bit/s.
    pub pace: u64,
}

/// q, the target queueing delay, µs.
#[must_use]
pub fn target(channel: &Channel) -> u64 {
    target_with(&Constants::DEFAULT, channel)
}

#[inline]
pub(super) fn target_with(constants: &Constants, channel: &Channel) -> u64 {
    let budget = channel.budget.min(1 << 20);
    let rate = channel.rate.clamp(1, FASTEST);
    let steady = steady_with(constants, budget, rate);
    let empty = channel.empty.min(ONE).saturating_sub(SPARE);
    let late = ONE + constants.lateness * channel.late.min(ONE);
    let bracket = ONE + ((constants.growth * empty) << 16) / late;
    let priced = |queue: u64, lost: u64| (queue << 16) / (ONE + constants.loss_price * lost);
    let lost = channel.lost.min(ONE);
    let free = steady.max(((steady * bracket) >> 16).min(budget));
    let bound = (steady * channel.room.min(UNBOUNDED)) >> 16;
    if bound < free {
        priced(bound, lost.saturating_sub(UNPRICED))
    } else {
        priced(free, lost)
    }
}

/// s, the target queue on a steady link of `rate` bit/s, µs.
#[must_use]
pub fn steady(budget: u64, rate: u64) -> u64 {
    steady_with(&Constants::DEFAULT, budget, rate)
}

#[inline]
pub(super) fn steady_with(constants: &Constants, budget: u64, rate: u64) -> u64 {
    let budget = budget.min(1 << 20);
    // The root is in 2^-13, and at most 216 × 2^13 (the square root, for research: 3163 × 2^13). The
    // bracket of q is in 2^-16, and at most 60 × 2^16. Together they take 49 bits, and less than 54
    // with any constants of the search.
    let rate = rate.clamp(1, FASTEST);
    let root = match constants.root {
        2 => ((REFERENCE << 26) / rate).isqrt(),
        4 => ((u128::from(REFERENCE) << 52) / u128::from(rate))
            .isqrt()
            .isqrt() as u64,
        _ => cube_root((REFERENCE << 39) / rate),
    };
    ((budget * STEADY.0 / STEADY.1) * root) >> 13
}

/// H, the horizon, µs: the time without an acknowledgement for which the path is assumed to go on
/// delivering at r. `gap` is G, the mean gap between arrivals. `spread` is J, the spread of the
/// reverse path's delay. Both are in µs.
#[must_use]
pub fn horizon(gap: u64, spread: u64) -> u64 {
    let gaps = (GAPS * gap.min(LONGEST)).min(LONGEST_GAPS);
    (gaps + spread.min(LONGEST)).min(LONGEST_HORIZON)
}

/// W, and the pace at which it leaves: the decision of the law.
#[must_use]
pub fn decide(state: &State) -> Decision {
    decide_with(&Constants::DEFAULT, state)
}

#[inline]
pub(super) fn decide_with(constants: &Constants, state: &State) -> Decision {
    let rate = state.rate.min(FASTEST);
    let base = state.base.min(LONGEST);
    let queue = state.queue.min(LONGEST);
    let target = state.target.min(LONGEST / 2);
    let drained = base * DRAIN_PERCENT / 100;
    let span = match state.phase {
        Phase::Given => 0,
        Phase::Law => (base + target + target / constants.damping)
            .saturating_sub(queue / constants.damping)
            .max(base / 2),
        Phase::Drain => drained,
        Phase::ShortDrain => base.saturating_sub(queue + target).max(drained),
    };
    let least_window = match state.phase {
        Phase::Drain | Phase::ShortDrain => state.packet / DRAINED_SHARE,
        Phase::Given | Phase::Law => state.packet / LEAST_SHARE,
    };
    let window = match state.phase {
        Phase::Given => state.given,
        _ => carried(rate, span.min(LONGEST)),
    }
    .max(least_window);
    // A small window leaves over one round trip, and one of slow start, in which r and q are not yet
    // known, over half of one, as in Linux. Any other leaves over half of D + q, so that packets are
    // available whenever the link delivers in bursts. On a long path it leaves at most the lead
    // earlier than at rate r, since the packets would wait in the queue.
    let departure_span = if window < SMALL_PACKETS * state.packet {
        base + queue
    } else if state.phase == Phase::Given {
        (base + queue) / 2
    } else {
        ((base + target) / 2).max((base + target).saturating_sub(state.lead))
    };
    Decision {
        window,
        // D and Q are zero before the first sample.
        pace: (window.min(1 << 40) * 8_000_000 / departure_span.max(1)).max(1),
    }
}

/// The bytes that a rate in bit/s carries in a span in µs.
fn carried(rate: u64, span: u64) -> u64 {
    rate * span / 8_000_000
}

/// ∛x, rounded down.
fn cube_root(x: u64) -> u64 {
    let mut root = 0;
    let mut bit = 1
        << ((64 - x.leading_zeros())
            .div_ceil(3)
            .saturating_sub(1)
            .min(20));
    while bit > 0 {
        let next: u64 = root | bit;
        if next * next * next <= x {
            root = next;
        }
        bit >>= 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A steady link of `mbps` Mbit/s.
    fn steady(mbps: f64) -> Channel {
        Channel {
            rate: (mbps * 1e6) as u64,
            budget: 90_000,
            room: UNBOUNDED,
            ..Channel::default()
        }
    }

    fn share(of_one: f64) -> u64 {
        (of_one * ONE as f64) as u64
    }

    #[track_caller]
    fn near(value: u64, expected: f64) {
        assert!(
            (value as f64 / expected - 1.0).abs() < 0.005,
            "{value}, not {expected}"
        );
    }

    #[test]
    fn the_target_queue_falls_with_the_cube_root_of_the_rate() {
        for (mbps, q) in [(10.0, 26e3), (80.0, 13e3), (1.25, 52e3), (10_000.0, 2.6e3)] {
            near(target(&steady(mbps)), q);
        }
    }

    #[test]
    fn the_root_can_be_another() {
        for (root, rate, q) in [
            (2, 40.0, 13e3),
            (2, 0.1, 260e3),
            (4, 160.0, 13e3),
            (4, 0.001, 260e3),
        ] {
            let constants = Constants {
                root,
                ..Constants::DEFAULT
            };
            near(target_with(&constants, &steady(rate)), q);
        }
    }

    #[test]
    fn loss_divides_the_target_queue() {
        let lossy = Channel {
            lost: share(0.1),
            ..steady(10.0)
        };
        near(target(&lossy), 26e3 / 6.0);
    }

    #[test]
    fn a_short_buffer_bounds_the_target_and_prices_frequent_losses_only() {
        let bounded = |lost| {
            target(&Channel {
                lost: share(lost),
                empty: ONE,
                room: ONE / 4,
                ..steady(10.0)
            })
        };
        near(bounded(0.0), 26e3 / 4.0);
        near(bounded(0.015), 26e3 / 4.0);
        near(bounded(1.0 / 64.0 + 0.02), 26e3 / 8.0);
    }

    #[test]
    fn the_target_grows_where_the_queue_is_often_empty_and_less_where_packets_are_late() {
        let with = |empty, late| {
            target(&Channel {
                empty: share(empty),
                late: share(late),
                ..steady(10.0)
            })
        };
        near(with(0.039, 0.0), 26e3);
        near(with(0.06, 0.0), 26e3 * 2.2);
        near(with(0.06, 0.05), 26e3 * 1.3);
        // The budget limits q, except on a slow steady link, where s alone exceeds it.
        near(with(1.0, 0.0), 90e3);
        let slow = Channel {
            empty: ONE,
            ..steady(0.1)
        };
        near(target(&slow), 26e3 * 100_f64.cbrt());
    }

    #[test]
    fn the_window_is_the_rate_times_round_trip_and_queue() {
        // A rate of one packet in a millisecond.
        let state = State {
            rate: 8_000_000,
            base: 40_000,
            queue: 0,
            target: 15_000,
            lead: 90_000,
            packet: 1000,
            given: 0,
            phase: Phase::Law,
        };
        let window = |state: State| decide(&state).window;
        assert_eq!(window(state), 56_875);
        let queue = |queue| State { queue, ..state };
        assert_eq!(window(queue(15_000)), 55_000);
        // A window is at least half of r D, whatever the queue.
        assert_eq!(window(queue(10_000_000)), 20_000);
        let draining = |phase, queue| {
            window(State {
                phase,
                queue,
                ..state
            })
        };
        assert_eq!(draining(Phase::Drain, 15_000), 6_000);
        assert_eq!(draining(Phase::ShortDrain, 5_000), 20_000);
        assert_eq!(draining(Phase::ShortDrain, 50_000), 6_000);
        // Pace of 2.1 r: 57 packets in 27.5 ms, half of D + q.
        assert_eq!(decide(&state).pace, 56_875 * 8_000_000 / 27_500);
    }

    #[test]
    fn the_horizon_is_four_gaps_and_the_spread_of_the_reverse_path() {
        assert_eq!(horizon(1_000, 3_000), 7_000);
        assert_eq!(horizon(30_000, 3_000), 83_000);
        assert_eq!(horizon(30_000, 10_000_000), 200_000);
    }

    #[test]
    fn the_cube_root_is_the_cube_root() {
        for x in [0, 1, 7, 8, 26, 27, 1 << 39, u64::from(u32::MAX), 1 << 62] {
            let root = u128::from(cube_root(x));
            assert!(
                root.pow(3) <= x.into() && (root + 1).pow(3) > x.into(),
                "{x}"
            );
        }
    }

    proptest! {
        /// No product exceeds 64 bits (a debug build would panic), and each result is within its
        /// bounds.
        #[test]
        fn whatever_is_measured_the_law_has_an_answer(
            [rate, budget, base, queue, lead, packet, given, gap, spread] in any::<[u64; 9]>(),
            [lost, empty, late, room] in any::<[u64; 4]>(),
            phase in prop::sample::select(vec![Phase::Given, Phase::Law, Phase::Drain, Phase::ShortDrain]),
        ) {
            let packet = packet % 65_536;
            let target = target(&Channel { rate, budget, lost, empty, late, room });
            prop_assert!(target < 1 << 32);
            let decision = decide(&State { rate, base, queue, target, lead, packet, given, phase });
            prop_assert!(decision.pace >= 1);
            prop_assert!(horizon(gap, spread) <= LONGEST_HORIZON);
        }
    }
}
