//! The law: from what was measured, the queue that is wanted, the window and the pace.
//!
//! ```text
//! s = 13/45 budget · ∛(10 Mbit/s ÷ r)
//! q = max(s, min(s · [1 + 60 (e − 4 %)⁺ ÷ (1 + 60 l)], budget)) ÷ (1 + 150 p)
//! q = c · s ÷ (1 + 150 (p − 1/64)⁺)                    if this is less, in a buffer shorter than q
//! W = r · max(D + q + (q − Q)/5, D/2)
//! H = min(4 G, 80 ms) + J, at most 200 ms
//! ```
//!
//! Plain functions of integers, so that a kernel can have them word for word: nothing is kept between calls, no number has
//! a fraction or a sign, and all divisions round down. Units: times in µs, below 2^26 (67 s); rates in bit/s, below 2^37
//! (137 Gbit/s); sizes in bytes; shares in 2^-16, at most 2^16. What is larger is cut to that, so that no product exceeds
//! 64 bits.

/// 1, as a share.
pub const ONE: u64 = 1 << 16;
/// The longest time, µs.
const LONGEST: u64 = (1 << 26) - 1;
/// The highest rate, bit/s.
const FASTEST: u64 = (1 << 37) - 1;
/// The rate at which s is that, bit/s.
pub const REFERENCE: u64 = 10_000_000;
/// s, the queue wanted on a steady link of 10 Mbit/s, is this share of the delay budget, as a fraction: 26 ms of 90.
const STEADY: (u64, u64) = (13, 45);
/// How much q grows with e, the share of time in which the queue is empty, beyond [`SPARE`]; and by how much less, with l,
/// the share of packets later than the budget.
const CHANGING: u64 = 60;
/// So much of the time the queue may be empty on a link whose rate is steady: 4 %.
const SPARE: u64 = ONE / 25;
/// The price of loss: with a share p of the packets lost, q is divided by 1 + 150 p. At 2 % of loss it is a quarter of what
/// it is without, so a buffer that holds a quarter of q settles at 2 % of loss.
const LOSS_PRICE: u64 = 150;
/// In a buffer shorter than q, where c bounds the target, this share of losses has no price: c answers them, and flows of
/// one buffer do not lose alike.
const UNPRICED: u64 = ONE / 64;
/// The window includes one part in this many of r · (q − Q), the queue's distance from what is wanted: damping, in addition
/// to the feedback through r.
pub(super) const DAMPING: u64 = 5;
/// H covers this many mean gaps between arrivals.
const GAPS: u64 = 4;
/// ... but no more of them than this, µs.
const LONGEST_GAPS: u64 = 80_000;
/// The longest horizon, µs.
const LONGEST_HORIZON: u64 = 200_000;
/// The window in a drain, in percent of r D: so small that the queue empties even if D is too long because it was measured
/// with other flows' queue in it.
const DRAIN_PERCENT: u64 = 15;
/// A window smaller than this many packets is enforced by its pace, not by counting packets in flight, which would round it
/// down to whole packets for good.
pub const SMALL_PACKETS: u64 = 4;
/// The least window is a packet divided by this: a packet every eight round trips still measures the path.
const LEAST_SHARE: u64 = 8;
/// In a drain it is a packet divided by this: a flow that sends nothing does not see that the queue has gone.
const DRAINED_SHARE: u64 = 2;

/// What q depends on.
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
    /// c, the share of s that the buffer holds, 2^-16; [`UNBOUNDED`] where no buffer was found to be shorter than q.
    pub room: u64,
}

/// c where nothing bounds the target.
pub const UNBOUNDED: u64 = 1 << 26;

/// What a flow is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The window is given: slow start's, or the probe's after a timeout.
    #[default]
    Given = 0,
    /// W by the law.
    Law = 1,
    /// Its queue empties.
    Drain = 2,
    /// Its queue empties, on a path so long that a share of r D less is enough.
    ShortDrain = 3,
}

/// What the window depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// r, bit/s.
    pub rate: u64,
    /// D, the round trip without a queue, µs.
    pub base: u64,
    /// Q, the present queueing delay, µs.
    pub queue: u64,
    /// q, µs, as [`wanted`] has it.
    pub wanted: u64,
    /// How much sooner than r carries it a window may leave, µs: what is ahead stands in the queue.
    pub lead: u64,
    /// The size of a packet, bytes.
    pub packet: u64,
    /// The window in [`Phase::Given`], bytes.
    pub given: u64,
    /// What the flow is doing.
    pub phase: Phase,
}

/// What may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Decision {
    /// W, bytes; less than a packet where a packet in some round trips is enough.
    pub window: u64,
    /// The pace of departures, bit/s.
    pub pace: u64,
}

/// q, the queueing delay wanted, µs.
#[must_use]
pub fn wanted(channel: &Channel) -> u64 {
    let budget = channel.budget.min(1 << 20);
    let rate = channel.rate.clamp(1, FASTEST);
    let steady = steady(budget, rate);
    let empty = channel.empty.min(ONE).saturating_sub(SPARE);
    let late = ONE + CHANGING * channel.late.min(ONE);
    let bracket = ONE + ((CHANGING * empty) << 16) / late;
    let priced = |queue: u64, lost: u64| (queue << 16) / (ONE + LOSS_PRICE * lost);
    let lost = channel.lost.min(ONE);
    let free = steady.max(((steady * bracket) >> 16).min(budget));
    let bound = (steady * channel.room.min(UNBOUNDED)) >> 16;
    if bound < free {
        priced(bound, lost.saturating_sub(UNPRICED))
    } else {
        priced(free, lost)
    }
}

/// s, the queue wanted on a steady link of `rate` bit/s, µs.
#[must_use]
pub fn steady(budget: u64, rate: u64) -> u64 {
    let budget = budget.min(1 << 20);
    // The root is in 2^-13, and at most 216 × 2^13; the bracket in 2^-16, and at most 60 × 2^16: 49 bits in all.
    let root = cube_root((REFERENCE << 39) / rate.clamp(1, FASTEST));
    ((budget * STEADY.0 / STEADY.1) * root) >> 13
}

/// H, the horizon, µs: for so long without an acknowledgement the path is assumed to go on delivering at r. `gap` is G, the
/// mean gap between arrivals, and `spread` J, that of the delay of the way back, both µs.
#[must_use]
pub fn horizon(gap: u64, spread: u64) -> u64 {
    let gaps = (GAPS * gap.min(LONGEST)).min(LONGEST_GAPS);
    (gaps + spread.min(LONGEST)).min(LONGEST_HORIZON)
}

/// W, and the pace at which it leaves.
#[must_use]
pub fn decide(state: &State) -> Decision {
    let rate = state.rate.min(FASTEST);
    let base = state.base.min(LONGEST);
    let queue = state.queue.min(LONGEST);
    let wanted = state.wanted.min(LONGEST / 2);
    let drained = base * DRAIN_PERCENT / 100;
    let span = match state.phase {
        Phase::Given => 0,
        Phase::Law => (base + wanted + wanted / DAMPING)
            .saturating_sub(queue / DAMPING)
            .max(base / 2),
        Phase::Drain => drained,
        Phase::ShortDrain => base.saturating_sub(queue + wanted).max(drained),
    };
    let least = match state.phase {
        Phase::Drain | Phase::ShortDrain => state.packet / DRAINED_SHARE,
        Phase::Given | Phase::Law => state.packet / LEAST_SHARE,
    };
    let window = match state.phase {
        Phase::Given => state.given,
        _ => carried(rate, span.min(LONGEST)),
    }
    .max(least);
    // A small window is spread over one round trip. Any other is spread over half of D + q, so that there is always
    // something to send when the link delivers in bursts, but over no less than three quarters of D: on a long path, what is
    // sent faster than r would stand in the queue meanwhile.
    let over = if window < SMALL_PACKETS * state.packet {
        base + queue
    } else {
        ((base + wanted) / 2)
            .max(base * 3 / 4)
            .max((base + wanted).saturating_sub(state.lead))
    };
    Decision {
        window,
        // Before the first sample D and Q are zero.
        pace: (window.min(1 << 40) * 8_000_000 / over.max(1)).max(1),
    }
}

/// What a rate in bit/s carries in so many µs, bytes.
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
    fn near(found: u64, wanted: f64) {
        assert!(
            (found as f64 / wanted - 1.0).abs() < 0.005,
            "{found}, not {wanted}"
        );
    }

    #[test]
    fn the_queue_wanted_falls_with_the_cube_root_of_the_rate() {
        for (mbps, q) in [(10.0, 26e3), (80.0, 13e3), (1.25, 52e3), (10_000.0, 2.6e3)] {
            near(wanted(&steady(mbps)), q);
        }
    }

    #[test]
    fn a_loss_is_a_price_on_it() {
        let lossy = Channel {
            lost: share(0.1),
            ..steady(10.0)
        };
        near(wanted(&lossy), 26e3 / 16.0);
    }

    #[test]
    fn a_short_buffer_bounds_it_and_prices_what_it_does_not_hold() {
        let bounded = |lost| {
            wanted(&Channel {
                lost: share(lost),
                empty: ONE,
                room: ONE / 4,
                ..steady(10.0)
            })
        };
        near(bounded(0.0), 26e3 / 4.0);
        near(bounded(0.015), 26e3 / 4.0);
        near(bounded(1.0 / 64.0 + 0.02), 26e3 / 16.0);
    }

    #[test]
    fn it_grows_where_the_queue_is_often_empty_and_less_where_packets_are_late() {
        let with = |empty, late| {
            wanted(&Channel {
                empty: share(empty),
                late: share(late),
                ..steady(10.0)
            })
        };
        near(with(0.039, 0.0), 26e3);
        near(with(0.06, 0.0), 26e3 * 2.2);
        near(with(0.06, 0.05), 26e3 * 1.3);
        // But no longer than the budget, which a steady link may exceed where it is slow.
        near(with(1.0, 0.0), 90e3);
        let slow = Channel {
            empty: ONE,
            ..steady(0.1)
        };
        near(wanted(&slow), 26e3 * 100_f64.cbrt());
    }

    #[test]
    fn the_window_is_the_rate_times_round_trip_and_queue() {
        // A packet each millisecond.
        let state = State {
            rate: 8_000_000,
            base: 40_000,
            queue: 0,
            wanted: 15_000,
            lead: 90_000,
            packet: 1000,
            given: 0,
            phase: Phase::Law,
        };
        let window = |state: State| decide(&state).window;
        assert_eq!(window(state), 58_000);
        let queue = |queue| State { queue, ..state };
        assert_eq!(window(queue(15_000)), 55_000);
        // Whatever the queue, half of r D.
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
        // Twice as fast as the window needs; 58 packets in 30 ms, as three quarters of D are more than half of D + q.
        assert_eq!(decide(&state).pace, 58_000 * 8 * 1000 / 30);
    }

    #[test]
    fn the_horizon_is_four_gaps_and_the_spread_of_the_way_back() {
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
        /// No product exceeds 64 bits (a debug build would panic), and nothing is more than it can be.
        #[test]
        fn whatever_is_measured_the_law_has_an_answer(
            [rate, budget, base, queue, lead, packet, given, gap, spread] in any::<[u64; 9]>(),
            [lost, empty, late, room] in any::<[u64; 4]>(),
            phase in prop::sample::select(vec![Phase::Given, Phase::Law, Phase::Drain, Phase::ShortDrain]),
        ) {
            let packet = packet % 65_536;
            let wanted = wanted(&Channel { rate, budget, lost, empty, late, room });
            prop_assert!(wanted < 1 << 32);
            let decision = decide(&State { rate, base, queue, wanted, lead, packet, given, phase });
            prop_assert!(decision.pace >= 1);
            prop_assert!(horizon(gap, spread) <= LONGEST_HORIZON);
        }
    }
}
