//! PCC Vivace: the rate at which a utility is greatest, found by trying.
//!
//! Each monitor interval, about a round trip, sends at one rate and yields a utility of rate,
//! growth of delay and losses (`vivace/utility.rs`). The rate doubles while that raises the
//! utility. Then pairs of intervals, a little faster and a little slower in random order, measure
//! the gradient. The rate moves along it, in larger steps the longer it keeps its direction (M.
//! Dong et al., "PCC Vivace: Online-Learning Congestion Control", NSDI 2018).
//!
//! ```text
//! Starting ── utility falls ──▶ Probing ── all pairs agree ──▶ Moving
//!                                 ▲  └─ else again               │ utility falls
//!                                 └──────────────────────────────┘
//! ```
//!
//! Where paper and authors' code (PCC-Uspace) differ, pairs decide as in the paper.
//!
//! An interval of a round trip counts few losses. Of 100 packets that lose 5 % it has 4 to 6, which
//! changes its utility ten times as much as the probed 5 % of rate do. At 100 Mbit/s and 40 ms,
//! with every 20th to 10th packet lost, the rate wanders between 2 and 40 Mbit/s. Its utility is
//! greatest at 100, 3, 0.6 and 0.1 Mbit/s. With round trips of 2 s, and so 50 times the packets, it
//! comes to 95, 1.9, 0.5 and 0.5, the least rate. Paper and code have intervals of a round trip.
//!
//! A pair is informative only if its intervals leave at their rates. A transport that spreads a
//! window over a round trip, as QUIC stacks do, would send both alike. So the controller paces
//! itself, by a credit. The window bounds the volume in flight to two round trips at the rate; it
//! grows by at most the bytes that arrived. After a timeout two packets may be in flight.

use crate::initial_window::initial_window_alone;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use verus_core::controller::{Allowance, Controller, Departure, Feedback, Phase, Timeout};
use verus_core::credit::Credit;
use verus_core::random;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::Configuration;
use verus_words::range::OutOfRange;

mod interval;
mod utility;

use interval::{Intervals, Outcome, Purpose};

/// ε: the rates of a pair are this share above and below the rate that is probed.
const PROBE: f64 = 0.05;
/// Pairs of intervals that must agree on a direction before the rate moves.
const PAIRS: usize = 3;
/// θ₀: a step of the rate, in Mbit/s, is the gradient of the utility times this, before it is amplified.
const STEP: f64 = 1.0;
/// The n-th step in a row in one direction is amplified by (n + 1) / 2 to this power.
const AMPLIFIER: f64 = 1.2;
/// ω₀ and δ: a step is at most this share of the rate; the bound grows by as much with each step in a row that it cut.
const MOST_STEP: f64 = 0.05;
/// The bound on a step is never less than this, Mbit/s.
const LEAST_MOST_STEP: f64 = 0.5;
/// The rate is never lower.
const LEAST_RATE: Rate = Rate::from_bps(500_000);
/// Before there is a sample, a round trip is taken to be this long.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);
/// The limit of the volume in flight, in round trips at the rate.
const WINDOW_ROUND_TRIPS: u64 = 2;
const MIN_WINDOW_PACKETS: u64 = 2;

initial_window_alone!(
    /// A configuration of PCC Vivace. With a round trip of 100 ms the window at the start makes the first rate.
    "PCC Vivace",
    Vivace::new
);

#[derive(Clone, Copy, Debug, PartialEq)]
enum VivaceState {
    /// The utility of the last rate that was tried, and whether one is being tried.
    Starting { before: Option<f64>, tries: bool },
    /// The order of each pair, the intervals begun, and the utilities: slower, faster.
    Probing {
        up_first: [bool; PAIRS],
        begun: usize,
        utilities: [[Option<f64>; 2]; PAIRS],
    },
    /// A step was made: rate and utility before, whether it is being tried, steps in a row and how many of them were held
    /// to the most.
    Moving {
        from_mbps: f64,
        before: f64,
        tries: bool,
        steps: u32,
        held: u32,
    },
}

/// A flow's PCC Vivace.
#[derive(Clone, Debug)]
pub struct Vivace {
    random: ChaCha8Rng,
    packet_size: Bytes,
    initial_window_packets: f64,
    state: VivaceState,
    intervals: Intervals,
    /// Around which it is probed, Mbit/s.
    mbps: f64,
    /// The rate of the interval under way.
    rate: Rate,
    /// The bytes that the rate has earned and that have not left yet.
    credit: Credit,
    smoothed_rtt: Duration,
    window: Bytes,
    silent: bool,
}

impl Vivace {
    /// A controller for one flow, which probes in an order drawn from `seed`.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: &Config, seed: u64) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Vivace {
            random: random::stream(seed, "vivace", 0),
            packet_size: Bytes::new(1500),
            initial_window_packets: config.initial_window_packets,
            state: VivaceState::Starting {
                before: None,
                tries: false,
            },
            intervals: Intervals::new(),
            mbps: LEAST_RATE.as_mbps(),
            rate: LEAST_RATE,
            credit: Credit::new(Bytes::ZERO, Time::ZERO),
            smoothed_rtt: Duration::ZERO,
            window: Bytes::ZERO,
            silent: false,
        })
    }

    fn round_trip(&self) -> Duration {
        if self.smoothed_rtt.is_zero() {
            UNKNOWN_RTT
        } else {
            self.smoothed_rtt
        }
    }

    fn begin_probing(&mut self) {
        let mut up_first = [false; PAIRS];
        up_first.fill_with(|| self.random.random());
        self.state = VivaceState::Probing {
            up_first,
            begun: 0,
            utilities: [[None; 2]; PAIRS],
        };
    }

    /// The purpose of the next interval, and its rate in Mbit/s.
    fn plan(&mut self) -> (Purpose, f64) {
        let base = self.mbps;
        // A QUIC stack sends its first ten packets at once: that tells nothing of a rate.
        let measured = !self.smoothed_rtt.is_zero();
        match &mut self.state {
            VivaceState::Starting { tries, .. } if !*tries && measured => {
                *tries = true;
                (Purpose::Start, base)
            }
            VivaceState::Probing {
                up_first, begun, ..
            } if *begun < 2 * PAIRS => {
                let pair = *begun / 2;
                let up = up_first[pair] == (*begun % 2 == 0);
                *begun += 1;
                let sign = if up { 1.0 } else { -1.0 };
                (Purpose::Probe { pair, up }, base * (1.0 + sign * PROBE))
            }
            VivaceState::Moving { tries, .. } if !*tries => {
                *tries = true;
                (Purpose::Step, base)
            }
            _ => (Purpose::Filler, base),
        }
    }

    fn begin_interval(&mut self, now: Time, number: u64) {
        let (purpose, mbps) = self.plan();
        self.rate = Rate::from_mbps(mbps).max(LEAST_RATE);
        let length = self.round_trip();
        self.intervals
            .begin(now, number, purpose, self.rate, length);
    }

    fn set_base(&mut self, mbps: f64) {
        self.mbps = mbps.max(LEAST_RATE.as_mbps());
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        let unknown = outcome.utility.is_nan();
        match (&mut self.state, outcome.purpose) {
            (VivaceState::Starting { before, tries }, Purpose::Start) => {
                *tries = false;
                if unknown {
                    return;
                }
                // Below zero a rate is worth less than silence, whatever the utility before.
                // Otherwise an interval whose losses a receiver hides until later would set the
                // utility to exceed.
                let falls = before.is_some_and(|before| outcome.utility < before);
                if falls || outcome.utility < 0.0 {
                    self.set_base(self.mbps / 2.0);
                    self.begin_probing();
                } else {
                    *before = Some(outcome.utility);
                    // Twice the rate that left, if the window held it back.
                    self.set_base(2.0 * outcome.mbps.min(self.mbps));
                }
            }
            (VivaceState::Probing { utilities, .. }, Purpose::Probe { pair, up }) => {
                if unknown {
                    self.begin_probing();
                    return;
                }
                utilities[pair][usize::from(up)] = Some(outcome.utility);
                let utilities = *utilities;
                let both = |one: &[Option<f64>; 2]| Some((one[0]?, one[1]?));
                let pairs: Option<Vec<(f64, f64)>> = utilities.iter().map(both).collect();
                if let Some(pairs) = pairs {
                    self.decide(&pairs);
                }
            }
            (
                &mut VivaceState::Moving {
                    from_mbps,
                    before,
                    steps,
                    held,
                    ..
                },
                Purpose::Step,
            ) => {
                let moved = self.mbps - from_mbps;
                // At the lowest rate there is no way down.
                if unknown || outcome.utility < before || moved == 0.0 {
                    self.set_base(from_mbps);
                    self.begin_probing();
                    return;
                }
                // Utility rises the way it goes.
                let gradient = (outcome.utility - before) / moved;
                self.step(gradient, outcome.utility, steps + 1, held);
            }
            // Of a state that is over.
            _ => {}
        }
    }

    /// The slower and the faster utility of each pair.
    fn decide(&mut self, pairs: &[(f64, f64)]) {
        let faster = pairs.iter().filter(|(down, up)| up > down).count();
        if faster != 0 && faster != pairs.len() {
            self.begin_probing();
            return;
        }
        let count = pairs.len() as f64;
        let down = pairs.iter().map(|pair| pair.0).sum::<f64>() / count;
        let up = pairs.iter().map(|pair| pair.1).sum::<f64>() / count;
        let gradient = gradient(self.mbps, up, down);
        self.step(gradient, (up + down) / 2.0, 1, 0);
    }

    fn step(&mut self, gradient: f64, utility: f64, steps: u32, held: u32) {
        let (change, is_held) = change(self.mbps, gradient, steps, held);
        let from_mbps = self.mbps;
        self.set_base(from_mbps + change);
        self.state = VivaceState::Moving {
            from_mbps,
            before: utility,
            tries: false,
            steps,
            held: if is_held { held + 1 } else { 0 },
        };
    }

    fn earn(&mut self, now: Time) {
        self.credit.fill(now, self.rate, self.packet_size);
    }

    fn least_window(&self) -> Bytes {
        self.packet_size * MIN_WINDOW_PACKETS
    }
}

/// dU/dx, from the utilities of rates a little above and below.
fn gradient(mbps: f64, up: f64, down: f64) -> f64 {
    (up - down) / (2.0 * PROBE * mbps)
}

/// The step of the rate in Mbit/s, and whether it was limited.
fn change(mbps: f64, gradient: f64, steps: u32, held: u32) -> (f64, bool) {
    let amplified = libm::pow((f64::from(steps) + 1.0) / 2.0, AMPLIFIER);
    let step = STEP * gradient * amplified;
    let max_step = (mbps * MOST_STEP * f64::from(held + 1)).max(LEAST_MOST_STEP);
    (step.clamp(-max_step, max_step), step.abs() > max_step)
}

impl Controller for Vivace {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.window = packet_size
            .mul_f64(self.initial_window_packets)
            .max(self.least_window());
        self.set_base((self.window / UNKNOWN_RTT).as_mbps());
        self.rate = Rate::from_mbps(self.mbps);
        self.credit = Credit::new(packet_size, now);
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.earn(packet.at);
        if self.intervals.is_over(packet.at) {
            self.begin_interval(packet.at, packet.number);
        }
        self.intervals.on_sent(packet);
        self.credit.spend(packet.size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.earn(feedback.now);
        self.smoothed_rtt = feedback.smoothed_rtt;
        for packet in feedback.lost {
            self.intervals.on_lost(packet);
        }
        for acked in feedback.acked {
            self.intervals.on_acked(&acked.packet, acked.rtt);
            self.silent = false;
        }
        while let Some(outcome) = self.intervals.next_outcome() {
            self.on_outcome(&outcome);
        }
        let fastest = Rate::from_mbps(self.mbps * (1.0 + PROBE));
        let aimed = fastest.bytes_in(self.round_trip() * WINDOW_ROUND_TRIPS);
        let grown = self.window + feedback.newly_delivered();
        self.window = aimed.min(grown).max(self.least_window());
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        for packet in timeout.presumed_lost {
            self.intervals.on_lost(packet);
        }
        self.silent = true;
    }

    fn on_tick(&mut self, now: Time, _in_flight: Bytes) {
        self.earn(now);
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
        self.window = self.window.max(self.least_window());
    }

    fn window(&self) -> Bytes {
        if self.silent {
            self.least_window()
        } else {
            self.window
        }
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window()).and_budget(self.credit.get())
    }

    fn next_tick(&self) -> Option<Time> {
        let waits = self.credit.get() < self.packet_size;
        waits.then(|| self.credit.next(self.rate, self.packet_size))
    }

    fn phase(&self) -> Option<Phase> {
        Some(match self.state {
            _ if self.silent => Phase::Silent,
            VivaceState::Starting { .. } => Phase::SlowStart,
            VivaceState::Probing { .. } | VivaceState::Moving { .. } => Phase::Steady,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window_packets", self.window / self.packet_size);
        record("rate_mbps", self.rate.as_mbps());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn vivace() -> Vivace {
        Vivace::new(&Config::default(), 1).expect("in range")
    }

    #[test]
    fn the_gradient_is_the_difference_of_a_pair_and_a_step_is_five_percent_at_most() {
        let slope = gradient(10.0, 8.30, 7.58);
        assert!((slope - 0.72).abs() < 1e-9, "{slope}");
        assert_eq!(change(10.0, slope, 1, 0), (0.5, true));
        assert_eq!(change(10.0, -slope, 1, 0), (-0.5, true));
        // Each step that was held allows for five percent more.
        assert_eq!(change(10.0, 5.0, 2, 1), (1.0, true));
        let (step, held) = change(100.0, 2.0, 3, 0);
        // 2 × ((3 + 1) / 2)^1.2.
        assert!((step - 4.595).abs() < 1e-3 && !held, "{step}");
    }

    /// Sends at the rate over a path of 40 ms that carries so many packets in a ms, until `done`.
    fn drive(
        path: &mut Path<Vivace>,
        per_ms: f64,
        millis: u64,
        mut done: impl FnMut(&Vivace) -> bool,
    ) {
        let mut service = 0.0;
        let mut queue: std::collections::VecDeque<(u64, u64)> = std::collections::VecDeque::new();
        let mut next = path.in_flight_numbers().last().map_or(0, |last| last + 1);
        for ms in 0..millis {
            path.wait_ms(1);
            service = (service + per_ms).min(per_ms.max(1.0) * 2.0);
            let mut arrived = Vec::new();
            while service >= 1.0 && queue.front().is_some_and(|(_, at)| *at + 40 <= ms) {
                arrived.extend(queue.pop_front().map(|(number, _)| number));
                service -= 1.0;
            }
            if !arrived.is_empty() {
                path.ack(arrived);
            }
            path.tick();
            while path.controller.allowance().sendable(path.in_flight()) >= SIZE {
                path.send(1);
                queue.push_back((next, ms));
                next += 1;
            }
            if done(&path.controller) {
                return;
            }
        }
    }

    #[test]
    fn the_rate_doubles_until_the_path_is_full_and_stays_near_it() {
        let mut path = Path::new(vivace());
        let mut max_mbps: f64 = 0.0;
        drive(&mut path, 2.0, 30_000, |vivace| {
            max_mbps = max_mbps.max(vivace.mbps);
            false
        });
        assert!(!matches!(
            path.controller.state,
            VivaceState::Starting { .. }
        ));
        assert!(max_mbps < 70.0, "{max_mbps}");
        let mbps = path.controller.mbps;
        assert!((12.0..18.0).contains(&mbps), "{mbps} of 16");
    }

    /// Runs over a path that carries a packet in `service` and returns its acknowledgement after `rtt`, for `span`.
    fn drive_exactly(path: &mut Path<Vivace>, service: Duration, rtt: Duration, span: Duration) {
        let end = path.now + span;
        let (mut free, mut next) = (path.now, 0);
        let mut under_way: std::collections::VecDeque<(u64, Time)> = Default::default();
        while path.now < end {
            while path.controller.allowance().sendable(path.in_flight()) >= SIZE {
                path.send(1);
                free = free.max(path.now) + service;
                under_way.push_back((next, free + rtt));
                next += 1;
            }
            let due = under_way.front().map(|&(_, at)| at);
            let tick = path.controller.next_tick();
            path.now = due
                .into_iter()
                .chain(tick)
                .min()
                .expect("it waits for something");
            path.tick();
            if due == Some(path.now) {
                path.ack(under_way.pop_front().map(|(number, _)| number));
            }
        }
    }

    #[test]
    fn round_trips_of_microseconds_are_filled() {
        for micros in [0, 40, 100] {
            let mut path = Path::new(vivace());
            let service = Duration::from_micros(120);
            let capacity = (SIZE / service).as_mbps();
            drive_exactly(
                &mut path,
                service,
                Duration::from_micros(micros),
                Duration::from_secs(10),
            );
            let mbps = path.controller.mbps;
            assert!(
                (0.85 * capacity..1.2 * capacity).contains(&mbps),
                "{micros} µs: {mbps} of {capacity}"
            );
        }
    }

    #[test]
    fn what_leaves_is_what_the_rate_carries_however_much_is_allowed_in_flight() {
        let mut path = Path::new(vivace());
        path.controller.mbps = 10.0;
        path.controller.window = SIZE * 1000;
        path.controller.begin_probing();
        let (mut carried, mut left) = (0.0, 0.0);
        let mut rates = std::collections::BTreeSet::new();
        for ms in 0..1000 {
            path.wait_ms(1);
            path.tick();
            let before = path.in_flight();
            path.fill();
            left += (path.in_flight() - before).as_f64();
            let rate = path.controller.rate;
            if ms == 0 {
                // From when on the rate is that of an interval.
                left = 0.0;
                continue;
            }
            carried += rate.bytes_in(Duration::from_millis(1)).as_f64();
            assert!(
                (left - carried).abs() < 4.0 * SIZE.as_f64(),
                "{left}, not {carried}"
            );
            rates.insert(rate.as_bps());
            let due = path.in_flight_numbers();
            let behind = due.len().saturating_sub(50);
            if behind > 0 {
                path.ack(due[..behind].iter().copied());
            }
        }
        assert!(rates.len() > 3, "{rates:?}");
    }

    #[test]
    fn a_pair_is_probed_around_the_rate_in_any_order() {
        let mut controller = vivace();
        controller.mbps = 10.0;
        let mut first_up = 0;
        for _ in 0..100 {
            controller.begin_probing();
            let plans: Vec<_> = (0..7).map(|_| controller.plan()).collect();
            for pair in 0..PAIRS {
                let rates = [plans[2 * pair].1, plans[2 * pair + 1].1];
                assert!(rates == [10.5, 9.5] || rates == [9.5, 10.5], "{rates:?}");
                first_up += u32::from(rates[0] > rates[1]);
            }
            assert_eq!(plans[6], (Purpose::Filler, 10.0));
        }
        assert!((110..190).contains(&first_up), "{first_up} of 300");
    }

    #[test]
    fn only_pairs_that_agree_move_the_rate() {
        let mut controller = vivace();
        controller.mbps = 10.0;
        controller.decide(&[(7.0, 8.0), (7.0, 6.0), (7.0, 8.0)]);
        assert!(matches!(controller.state, VivaceState::Probing { .. }));
        assert_eq!(controller.mbps, 10.0);
        controller.decide(&[(7.58, 8.30); 3]);
        assert_eq!(controller.mbps, 10.5);
        // The step does not pay: back, and probe again.
        let outcome = Outcome {
            purpose: Purpose::Step,
            mbps: 10.5,
            utility: 1.0,
        };
        controller.on_outcome(&outcome);
        assert_eq!(controller.mbps, 10.0);
        assert!(matches!(controller.state, VivaceState::Probing { .. }));
    }

    #[test]
    fn the_lowest_rate_is_left_again() {
        let mut controller = vivace();
        controller.mbps = LEAST_RATE.as_mbps();
        controller.decide(&[(1.0, 0.5); 3]);
        let outcome = Outcome {
            purpose: Purpose::Step,
            mbps: controller.mbps,
            utility: 2.0,
        };
        controller.on_outcome(&outcome);
        assert!(matches!(controller.state, VivaceState::Probing { .. }));
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            let windows = || {
                let mut path = Path::new(vivace());
                let (mut windows, mut sent) = (Vec::new(), 0);
                testing::run(&mut path, &steps, |path| {
                    let controller = &path.controller;
                    assert!(controller.window() >= SIZE * MIN_WINDOW_PACKETS);
                    sent = path.in_flight_numbers().last().map_or(sent, |last| last + 1).max(sent);
                    assert!(controller.window() <= SIZE * (sent + 100) * 4);
                    // A sender with nothing in flight may send, or is woken to.
                    let mut idle = controller.clone();
                    if let Some(at) = idle.next_tick() {
                        idle.on_tick(at, Bytes::ZERO);
                    }
                    assert!(idle.allowance().sendable(Bytes::ZERO) >= SIZE);
                    controller.probe(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
                    windows.push(controller.window());
                });
                windows
            };
            prop_assert_eq!(windows(), windows());
        }
    }
}
