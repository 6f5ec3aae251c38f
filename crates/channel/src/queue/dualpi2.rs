//! DualPI2 (RFC 9332, Appendix A): two coupled queues, one for low latency.
//!
//! Packets of scalable senders (L4S: ECT(1) or CE) wait in their own queue, L; all others wait in
//! C. Scalable senders answer frequent marks with a small reduction each, and are marked from a
//! delay of about a millisecond on. One controller of the delay sets a base probability p'. C drops
//! or marks with probability p'², since a classic sender's rate is proportional to one over the
//! square root of its drop probability. L marks with at least k times p', so that both kinds of
//! sender get about the same rate. L is served first, except for a guaranteed share for C.
//!
//! Two presets: `linux` is `sch_dualpi2`, `rfc9332` the pseudocode of the RFC, with its ramp in L,
//! its evenly spaced marks there, and its parameters. The scheduler is Linux's in both, as the RFC
//! leaves it open (§4.2.2). In both the controller uses the longer of the two delays (the RFC's
//! version with overload handling).

use std::collections::VecDeque;
use std::fmt;

use rand_chacha::ChaCha8Rng;
use verus_core::{Duration, Time};
use verus_words::spec::{Given, Problem, Row, Takes, Words, field, word_for};

use super::{GAIN, MILLIS, Ticks, UPDATE};
use crate::packet::{Departed, Packet};
use crate::path::loss::uniform;

/// The MTU that Linux counts with on Ethernet.
const MTU: u64 = 1514;

/// DualPI2 (RFC 9332).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2Config {
    /// Sets the defaults of the other keys.
    pub preset: DualPi2Preset,
    /// Delay aimed at in C, in milliseconds. Default 15 (both).
    pub target_ms: f64,
    /// How often p' is set, in milliseconds: Tupdate. Default 16 (Linux) or 15 (RFC).
    pub update_ms: f64,
    /// Weight of the distance to the target, in Hz. Default 41/256 (Linux) or 0.15 (RFC).
    pub alpha_hz: f64,
    /// Weight of the change since the last update, in Hz. Default 819/256 (Linux) or 3 (RFC).
    pub beta_hz: f64,
    /// k, how many times p' is the probability in L. Default 2 (both).
    pub coupling: f64,
    /// Delay in L above which packets are marked, in milliseconds. Default 1 (Linux) or 0.8 (RFC: minTh).
    pub step_ms: f64,
    /// How much more delay makes marking certain, in milliseconds. Default 0 (Linux) or 0.4 (RFC: range).
    pub ramp_ms: f64,
    /// Share of the link that C has when both wait. Default 0.1 (Linux).
    pub c_share: f64,
    /// Packets that may wait in both. Default 10,000 (Linux).
    pub packets: u64,
    /// Whether L drops in overload. Default yes (both).
    pub drop_overload: bool,
}

/// The source of rules and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DualPi2Preset {
    /// The rules of Linux.
    #[default]
    Linux,
    /// The rules of the RFC's pseudocode.
    Rfc9332,
}

impl DualPi2Preset {
    const WORDS: Words<DualPi2Preset> = &[
        ("linux", DualPi2Preset::Linux),
        ("rfc9332", DualPi2Preset::Rfc9332),
    ];

    fn config(self) -> DualPi2Config {
        let linux = DualPi2Config {
            preset: self,
            target_ms: 15.0,
            update_ms: 16.0,
            alpha_hz: 41.0 / 256.0,
            beta_hz: 819.0 / 256.0,
            coupling: 2.0,
            step_ms: 1.0,
            ramp_ms: 0.0,
            c_share: 0.1,
            packets: 10_000,
            drop_overload: true,
        };
        match self {
            DualPi2Preset::Linux => linux,
            DualPi2Preset::Rfc9332 => DualPi2Config {
                update_ms: 15.0,
                alpha_hz: 0.15,
                beta_hz: 3.0,
                step_ms: 0.8,
                ramp_ms: 0.4,
                ..linux
            },
        }
    }
}

impl Default for DualPi2Config {
    fn default() -> Self {
        DualPi2Preset::default().config()
    }
}

impl DualPi2Config {
    pub(super) const ROWS: &'static [Row<Self>] = &[
        Row::other(
            "preset",
            || Takes::one_of(DualPi2Preset::WORDS),
            "whose rules and parameters: the other keys change these",
            |c: &Self| word_for(DualPi2Preset::WORDS, &c.preset),
            |c, setting| {
                let preset = setting.word(DualPi2Preset::WORDS)?;
                *c = preset.config();
                Ok(())
            },
        )
        .first(),
        field!(target_ms).within(
            "ms",
            "delay aimed at in the classic queue (RFC 9332 A.1)",
            MILLIS,
        ),
        field!(update_ms).within("ms", "how often the probability is set (Tupdate)", UPDATE),
        field!(alpha_hz).within("Hz", "weight of the distance to the target", GAIN),
        field!(beta_hz).within("Hz", "weight of the delay's change", GAIN),
        field!(coupling).within(
            "",
            "k, how many times p' is the probability in the L queue",
            COUPLING,
        ),
        field!(step_ms).within("ms", "delay in the L queue above which it marks", MILLIS),
        field!(ramp_ms).within("ms", "over how much more delay that becomes certain", RAMP),
        field!(c_share).within(
            "fraction",
            "share of the link that the classic queue has when both wait",
            SHARE,
        ),
        field!(packets).whole("packets", "packets that may wait in both"),
        field!(drop_overload)
            .flag("the L queue drops, too, where marks do not help (RFC 9332 A.2)"),
    ];

    pub(super) fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = DualPi2Config::default();
        given.apply(Self::ROWS, &mut config)?;
        Ok(config)
    }
}

const COUPLING: super::Within = super::Within {
    words: "above 0 and at most 255",
    valid: |value| value > 0.0 && value <= 255.0,
};

const RAMP: super::Within = super::Within {
    words: "a number of milliseconds from 0 to 86400000",
    valid: |value| (0.0..=86_400_000.0).contains(&value),
};

const SHARE: super::Within = super::Within {
    words: "above 0 and below 1",
    valid: |value| value > 0.0 && value < 1.0,
};

impl fmt::Display for DualPi2Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preset = word_for(DualPi2Preset::WORDS, &self.preset);
        write!(f, "dualpi2:preset={preset}")?;
        let usual = self.preset.config();
        for (key, value, usual) in [
            ("target_ms", self.target_ms, usual.target_ms),
            ("update_ms", self.update_ms, usual.update_ms),
            ("alpha_hz", self.alpha_hz, usual.alpha_hz),
            ("beta_hz", self.beta_hz, usual.beta_hz),
            ("coupling", self.coupling, usual.coupling),
            ("step_ms", self.step_ms, usual.step_ms),
            ("ramp_ms", self.ramp_ms, usual.ramp_ms),
            ("c_share", self.c_share, usual.c_share),
        ] {
            if value != usual {
                write!(f, ",{key}={value}")?;
            }
        }
        if self.packets != usual.packets {
            write!(f, ",packets={}", self.packets)?;
        }
        f.write_str(if self.drop_overload {
            ""
        } else {
            ",drop_overload=no"
        })
    }
}

/// Packets that wait in one of the two queues.
#[derive(Clone, Debug)]
struct Backlog<P>(VecDeque<Departed<P>>);

impl<P> Backlog<P> {
    /// The wait of the packet at the head so far; zero without a packet.
    fn delay(&self, now: Time) -> Duration {
        let head = self.0.front();
        head.map_or(Duration::ZERO, |head| now.since(head.entered))
    }
}

/// The fate of a packet whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Mark,
    Drop,
}

/// DualPI2 at work. In the steady state nothing is allocated.
#[derive(Clone, Debug)]
pub(crate) struct DualPi2<P> {
    low: Backlog<P>,
    classic: Backlog<P>,
    bytes: u64,
    limit: u64,
    law: Law,
    /// Linux's `c_protection`: L is served while this is not above zero.
    credit: f64,
    weights: (f64, f64),
    ticks: Ticks,
}

/// The probabilities, and the decisions to mark or drop.
#[derive(Clone, Debug)]
struct Law {
    preset: DualPi2Preset,
    rng: ChaCha8Rng,
    target: f64,
    alpha: f64,
    beta: f64,
    coupling: f64,
    step: Duration,
    ramp: Duration,
    drop_overload: bool,
    /// p'.
    probability: f64,
    /// The delay at the last update, in seconds.
    delay_before: f64,
    /// The fraction of a mark that is due, where marks are spaced evenly (RFC 9332, `recur`).
    due: f64,
}

impl Law {
    /// Sets p' anew, the delay now being `delay` seconds (Fig. 6).
    fn update(&mut self, delay: f64) {
        let change = self.alpha * (delay - self.target) + self.beta * (delay - self.delay_before);
        let max_probability = if self.drop_overload {
            1.0
        } else {
            // Above this, drops in C would increase further although L cannot be marked more (Linux).
            (1.0 / self.coupling).min(1.0)
        };
        self.probability = (self.probability + change).clamp(0.0, max_probability);
        self.delay_before = delay;
    }

    /// k p': the probability in L that is coupled to C's.
    fn coupled(&self) -> f64 {
        self.coupling * self.probability
    }

    /// Whether marking all packets of L is no longer enough (A.2).
    fn overload(&self) -> bool {
        self.coupled() > 1.0
    }

    /// Draws whether C drops or marks, with p'² as the product of two draws (Linux; A.1).
    fn squared(&mut self) -> bool {
        self.throw(self.probability) && self.throw(self.probability)
    }

    fn throw(&mut self, probability: f64) -> bool {
        probability > 0.0 && uniform(&mut self.rng) < probability
    }

    /// The probability that L's own delay calls for: a ramp, or a step where that has no width (Fig. 5).
    fn native(&self, delay: Duration) -> f64 {
        if delay <= self.step {
            0.0
        } else if self.ramp.is_zero() {
            1.0
        } else {
            (delay.saturating_sub(self.step) / self.ramp).min(1.0)
        }
    }

    fn classic(&mut self, capable: bool) -> Fate {
        if !self.squared() {
            Fate::Pass
        } else if capable && !self.overload() {
            Fate::Mark
        } else {
            Fate::Drop
        }
    }

    /// `alone`: whether no other packet waits in L; `short`: whether hardly anything waits at all.
    fn low(&mut self, delay: Duration, alone: bool, short: bool) -> Fate {
        if !short && self.overload() {
            if self.drop_overload && self.squared() {
                return Fate::Drop;
            }
            return Fate::Mark;
        }
        let coupled = if short { 0.0 } else { self.coupled() };
        let marks = match self.preset {
            DualPi2Preset::Linux => {
                self.throw(coupled) || self.native(delay) >= 1.0 || {
                    let native = self.native(delay);
                    self.throw(native)
                }
            }
            DualPi2Preset::Rfc9332 => {
                let native = if alone { 0.0 } else { self.native(delay) };
                self.recur(native.max(coupled))
            }
        };
        if marks { Fate::Mark } else { Fate::Pass }
    }

    /// Marks evenly spaced at this probability (A.1, `recur`).
    fn recur(&mut self, probability: f64) -> bool {
        self.due += probability;
        let marks = self.due > 1.0;
        if marks {
            self.due -= 1.0;
        }
        marks
    }
}

impl<P: Packet> DualPi2<P> {
    pub(super) fn new(config: &DualPi2Config, rng: ChaCha8Rng) -> Self {
        let millis = Duration::from_millis_f64;
        let weights = (100.0 * config.c_share, 100.0 * (1.0 - config.c_share));
        DualPi2 {
            low: Backlog(VecDeque::new()),
            classic: Backlog(VecDeque::new()),
            bytes: 0,
            limit: config.packets,
            law: Law {
                preset: config.preset,
                rng,
                target: config.target_ms / 1e3,
                alpha: config.alpha_hz,
                beta: config.beta_hz,
                coupling: config.coupling,
                step: millis(config.step_ms),
                ramp: millis(config.ramp_ms),
                drop_overload: config.drop_overload,
                probability: 0.0,
                delay_before: 0.0,
                due: 0.0,
            },
            credit: first_credit(weights),
            weights,
            ticks: Ticks::new(millis(config.update_ms)),
        }
    }

    fn packets(&self) -> usize {
        self.low.0.len() + self.classic.0.len()
    }

    /// A packet arrives.
    ///
    /// # Errors
    /// Gives it back if there is no room.
    pub(super) fn enqueue(&mut self, packet: Departed<P>) -> Result<(), P> {
        self.catch_up(packet.entered);
        if self.packets() as u64 >= self.limit {
            return Err(packet.packet);
        }
        self.bytes += packet.size.get();
        let queue = if packet.packet.ecn().is_l4s() {
            &mut self.low
        } else {
            &mut self.classic
        };
        queue.0.push_back(packet);
        Ok(())
    }

    /// The packet that leaves at `now` (Fig. 4).
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Option<Departed<P>> {
        self.catch_up(now);
        loop {
            let Some((mut packet, low)) = self.schedule() else {
                self.credit = first_credit(self.weights);
                return None;
            };
            self.bytes -= packet.size.get();
            // With hardly anything waiting, C gets no signal, and L only that of its step.
            let short = self.bytes < 2 * MTU;
            let capable = packet.packet.ecn().is_capable();
            let fate = if low {
                let delay = now.since(packet.entered);
                self.law.low(delay, self.low.0.is_empty(), short)
            } else if short {
                Fate::Pass
            } else {
                self.law.classic(capable)
            };
            match fate {
                Fate::Drop => {
                    dropped(packet);
                    continue;
                }
                Fate::Mark => packet.packet.mark(),
                Fate::Pass => {}
            }
            let size = packet.size.as_f64();
            let (classic, both) = (self.weights.0, self.weights.1);
            if low && !self.classic.0.is_empty() {
                self.credit += classic * size;
            } else if !low && !self.low.0.is_empty() {
                self.credit -= both * size;
            }
            return Some(packet);
        }
    }

    /// The packet whose turn it is, and whether it is of L: nine bytes of L for one of C where both wait (Linux's weights).
    fn schedule(&mut self) -> Option<(Departed<P>, bool)> {
        let low = !self.low.0.is_empty() && (self.classic.0.is_empty() || self.credit <= 0.0);
        let queue = if low {
            &mut self.low
        } else {
            &mut self.classic
        };
        queue.0.pop_front().map(|packet| (packet, low))
    }

    /// Does the updates due before `now`: between two events nothing enters or leaves, so that what the delay was is known.
    fn catch_up(&mut self, now: Time) {
        while let Some(at) = self.ticks.next(now) {
            let delay = self.low.delay(at).max(self.classic.delay(at)).as_secs_f64();
            self.law.update(delay);
            let settled = self.law.probability == 0.0 && self.law.delay_before == 0.0;
            if settled && self.packets() == 0 {
                self.ticks.pass(now);
            }
        }
    }
}

/// The credit that Linux gives L before its first turn: an MTU for each queue's weight.
fn first_credit((classic, low): (f64, f64)) -> f64 {
    MTU as f64 * (classic - low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::{Bytes, Ecn, random};

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Coded(Ecn);

    impl Packet for Coded {
        fn ecn(&self) -> Ecn {
            self.0
        }

        fn mark(&mut self) {
            assert!(self.0.is_capable());
            self.0 = Ecn::Ce;
        }
    }

    fn dual(preset: DualPi2Preset) -> DualPi2<Coded> {
        DualPi2::new(&preset.config(), random::stream(1, "queue", 0))
    }

    fn law(preset: DualPi2Preset) -> Law {
        dual(preset).law
    }

    fn packet(ms: u64, ecn: Ecn) -> Departed<Coded> {
        Departed {
            packet: Coded(ecn),
            size: Bytes::new(1500),
            entered: Time::from_millis(ms),
        }
    }

    const BOTH: [DualPi2Preset; 2] = [DualPi2Preset::Rfc9332, DualPi2Preset::Linux];

    #[test]
    fn the_probability_moves_by_the_worked_steps() {
        let expected = [
            [0.03075, 0.03150, 0.00075, 0.0],
            [0.03279, 0.03359, 0.00080, 0.0],
        ];
        for (preset, expected) in BOTH.into_iter().zip(expected) {
            let mut law = law(preset);
            law.delay_before = 0.010;
            for (delay, expected) in [0.020, 0.020, 0.010, 0.0].into_iter().zip(expected) {
                law.update(delay);
                let p = law.probability;
                assert!(
                    (p - expected).abs() < 0.000_005,
                    "{preset:?}: {p} for {expected}"
                );
                assert!((law.coupled() - 2.0 * p).abs() < 1e-15);
            }
        }
        let mut law = law(DualPi2Preset::Linux);
        law.update(10.0);
        assert_eq!(law.probability, 1.0);
        law.drop_overload = false;
        law.update(20.0);
        assert_eq!(law.probability, 0.5);
    }

    #[test]
    fn the_low_queue_marks_on_a_ramp_or_above_a_step() {
        let expected = [[0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.0, 1.0, 1.0]];
        for (preset, expected) in BOTH.into_iter().zip(expected) {
            let law = law(preset);
            let delays = [800, 900, 1000, 1100, 1200].map(Duration::from_micros);
            for (delay, expected) in delays.into_iter().zip(expected) {
                assert!(
                    (law.native(delay) - expected).abs() < 1e-9,
                    "{preset:?} {delay:?}"
                );
            }
        }
    }

    #[test]
    fn a_single_packet_is_not_marked_by_the_ramp() {
        let delay = Duration::from_millis(5);
        let mut law = law(DualPi2Preset::Rfc9332);
        law.due = 0.5;
        assert_eq!(law.low(delay, true, false), Fate::Pass);
        assert_eq!(law.low(delay, false, false), Fate::Mark);
    }

    #[test]
    fn the_classic_signal_is_the_square_and_the_low_one_twice_the_probability() {
        for (p, low, classic) in [(0.03, 0.06, 0.0009), (0.1, 0.2, 0.01), (0.3, 0.6, 0.09)] {
            let mut law = law(DualPi2Preset::Linux);
            law.probability = p;
            let throws = 400_000;
            let hits = (0..throws).filter(|_| law.classic(false) == Fate::Drop);
            let share = hits.count() as f64 / f64::from(throws);
            // Five standard deviations.
            let within = 5.0 * (classic / f64::from(throws)).sqrt();
            assert!((share - classic).abs() < within, "{share} for {classic}");
            let hits = (0..throws).filter(|_| law.low(Duration::ZERO, false, false) == Fate::Mark);
            let share = hits.count() as f64 / f64::from(throws);
            let within = 5.0 * (low / f64::from(throws)).sqrt();
            assert!((share - low).abs() < within, "{share} for {low}");
        }
    }

    #[test]
    fn even_marks_are_as_far_apart_as_the_probability_says() {
        for (p, wanted) in [
            (0.25, vec![5, 9, 13, 17]),
            (0.3, vec![4, 7, 11, 14, 17, 21, 24, 27, 31, 34]),
        ] {
            let mut law = law(DualPi2Preset::Rfc9332);
            let last = wanted[wanted.len() - 1];
            let marked: Vec<i32> = (1..=last).filter(|_| law.recur(p)).collect();
            assert_eq!(marked, wanted, "{p}");
        }
    }

    #[test]
    fn in_overload_all_of_the_low_queue_is_marked_and_both_drop_alike() {
        let mut law = law(DualPi2Preset::Linux);
        law.probability = 0.6;
        let fates: Vec<Fate> = (0..10_000)
            .map(|_| law.low(Duration::ZERO, false, false))
            .collect();
        let drops = fates.iter().filter(|fate| **fate == Fate::Drop).count();
        assert!(drops.abs_diff(3600) < 250, "{drops}");
        assert!(!fates.contains(&Fate::Pass));
        let fates: Vec<Fate> = (0..10_000).map(|_| law.classic(true)).collect();
        let drops = fates.iter().filter(|fate| **fate == Fate::Drop).count();
        assert!(drops.abs_diff(3600) < 250, "{drops}");
        assert!(!fates.contains(&Fate::Mark));
        law.drop_overload = false;
        assert_eq!(law.low(Duration::ZERO, false, false), Fate::Mark);
    }

    #[test]
    fn odd_code_points_wait_in_the_low_queue_and_have_nine_tenths_of_the_link() {
        let mut dual = dual(DualPi2Preset::Linux);
        for n in 0..2000 {
            let ecn = [Ecn::Ect1, Ecn::NotEct, Ecn::Ce, Ecn::Ect0][n % 4];
            dual.enqueue(packet(0, ecn)).unwrap();
        }
        assert_eq!((dual.low.0.len(), dual.classic.0.len()), (1000, 1000));
        let low = (0..1000).filter(|_| {
            let packet = dual.dequeue(Time::ZERO, &mut |_| {}).unwrap();
            packet.packet.0.is_l4s()
        });
        // L begins with a credit of 80 weighted MTU, and a packet of C costs 90: L's share is off
        // by at most one packet.
        assert!(low.count().abs_diff(900) <= 1);
    }

    #[test]
    fn the_longer_of_the_two_delays_counts_and_an_empty_queue_forgets() {
        let mut dual = dual(DualPi2Preset::Linux);
        dual.enqueue(packet(1, Ecn::Ect1)).unwrap();
        dual.enqueue(packet(6, Ecn::NotEct)).unwrap();
        dual.catch_up(Time::from_millis(16));
        assert_eq!(dual.law.delay_before, 0.015);
        for _ in 0..2 {
            dual.dequeue(Time::from_millis(20), &mut |_| {}).unwrap();
        }
        assert_eq!(dual.dequeue(Time::from_millis(20), &mut |_| {}), None);
        dual.catch_up(Time::from_millis(100_000));
        assert_eq!((dual.law.delay_before, dual.law.probability), (0.0, 0.0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let config = DualPi2Config {
            packets: 2,
            ..DualPi2Config::default()
        };
        let mut dual = DualPi2::new(&config, random::stream(1, "queue", 0));
        for ecn in [Ecn::Ect1, Ecn::NotEct] {
            dual.enqueue(packet(0, ecn)).unwrap();
        }
        assert_eq!(dual.enqueue(packet(0, Ecn::Ect1)), Err(Coded(Ecn::Ect1)));
    }
}
