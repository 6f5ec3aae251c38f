//! Verus: delay-based congestion control that learns the delay of each window (Zaki et al.,
//! *Adaptive Congestion Control for Unpredictable Cellular Networks*, SIGCOMM 2015).
//!
//! The paper has four elements (§4). The [delay estimator](delay) watches the largest delay of each
//! 5 ms epoch (Eqs. 2, 3). The [delay profiler](profile) learns delay as a function of the window.
//! The [window estimator](window) steps along that curve (Eqs. 4, 5). The loss handler (Eq. 6) is
//! here, with the loop that joins them: `Verus::decide`.
//!
//! ```text
//!              delay > N·D_min, or a loss
//!  SlowStart ──────────────────────────────▶ Recovery ◀─────┐
//!                                               │           │ loss (Eq. 6)
//!                            ACK of a window ≤ W│           │
//!                                               ▼           │
//!                                            Tracking ──────┘
//!                              timeout (Eq. 6)  │  ▲ anything is acknowledged: by way of Recovery
//!                                               ▼  │
//!                                             Silent
//! ```
//!
//! In slow start and recovery the window is filled as acknowledgements make room. In tracking each
//! epoch grants a budget of packets (Eq. 5), and the window is only the budget's target.
//!
//! Paper mode is this file. The default mode adds [`parts`] to it, a list that is empty in paper
//! mode. The authors' prototype differs in more than parameters and is a separate
//! [controller](prototype).

pub mod config;
pub mod delay;
pub mod epochs;
mod keys;
pub mod parts;
pub mod profile;
pub mod prototype;
pub mod units;
pub mod window;

use verus_core::controller::{
    self, Acked, Allowance, Controller, Departure, Feedback, ProfileSnapshot, Timeout,
};
use verus_core::episode::{Episode, Period};
use verus_core::recovery::Recovery;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::Configuration;
use verus_words::range::OutOfRange;

pub use config::{Config, Mode};
use config::{Parts, WindowReference};
use delay::DelayEstimator;
use epochs::{Epochs, Turn};
use parts::{Flow, Hold, Leave, NEAR};
use profile::Profile;
pub use prototype::Prototype;
use units::{Millis, Packets};

/// After a timeout, this many packets probe the path until one is acknowledged.
const SILENT_WINDOW_PACKETS: u64 = 2;

/// The flow's phase.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The window grows by one with each acknowledgement (§5.1).
    SlowStart,
    /// Epochs decide.
    Tracking,
    /// After a loss: the profile is frozen, the window grows by 1/W with each acknowledgement.
    Recovery,
    /// After a timeout: a trickle of packets until one is acknowledged.
    Silent,
}

/// The Verus controller, in paper and in default mode.
#[derive(Debug)]
pub struct Verus {
    config: Config,
    parts: Parts,
    phase: Phase,
    packet_size: Bytes,
    delay: DelayEstimator,
    profile: Profile,
    /// W.
    window: Packets,
    d_est: Millis,
    d_min: Option<Duration>,
    /// D_min is never less.
    least_d_min: Duration,
    /// When a delay near D_min was last seen.
    d_min_met_at: Time,
    /// When the last outage ended.
    outage: Time,
    /// Whether the packet acknowledged last left before its source had filled the window.
    unused: bool,
    /// S: the rest of the open epoch's budget. A fraction of a packet carries over to the next
    /// epoch.
    budget: Packets,
    /// How many packets a part lets be in flight while it holds the window.
    held: Option<u64>,
    /// Whether the window, rather than a budget, bounds the open epoch: acknowledged packets make room for others within it.
    refills: bool,
    /// The rate that spreads the budget over its epoch.
    pace: Option<Rate>,
    epochs: Epochs,
    refit_at: Time,
    rtt: Duration,
    /// The last loss episode, and the state that an undo of its cut restores. In paper mode nothing
    /// is restored: the paper has no undo, and waits three delays before it declares a loss.
    episode: Episode<Option<Before>>,
}

/// The state before a cut.
#[derive(Clone, Copy, Debug)]
struct Before {
    window: Packets,
    d_est: Millis,
}

impl Verus {
    /// A controller at the beginning of its slow start, whose random numbers begin with `seed`.
    ///
    /// # Errors
    /// Names the parameter that is out of range.
    pub fn new(config: Config, seed: u64) -> Result<Self, OutOfRange> {
        config.validate()?;
        let parts = Parts::of(&config, seed);
        let mut least_d_min = Duration::ZERO;
        parts.each(|part| least_d_min = least_d_min.max(part.least_delay(config.epoch)));
        Ok(Verus {
            epochs: Epochs::new(config.epoch),
            least_d_min,
            parts,
            config,
            phase: Phase::SlowStart,
            packet_size: Bytes::new(1),
            delay: DelayEstimator::new(),
            profile: Profile::new(),
            window: Packets(1.0),
            d_est: Millis::ZERO,
            d_min: None,
            d_min_met_at: Time::ZERO,
            outage: Time::ZERO,
            unused: false,
            budget: Packets::ZERO,
            held: None,
            refills: false,
            pace: None,
            refit_at: Time::ZERO,
            rtt: Duration::ZERO,
            episode: Episode::new(Period::Round),
        })
    }

    /// An epoch ends and the next begins. Computes the target delay (Eq. 4), the window that brings
    /// this delay, and the number of packets to send in the epoch that begins (Eq. 5).
    #[inline]
    fn decide(&mut self, mut flow: Flow, turn: Turn) {
        let Some(report) = self.delay.end_epoch(flow.now, &self.config) else {
            return;
        };
        if self.phase != Phase::Tracking {
            return;
        }
        if self.is_held(&mut flow) {
            self.budget = Packets::ZERO;
            return;
        }
        let d_min = flow.d_min.into();
        // A window that its source leaves unused is not tested, and stays (RFC 7661 §4.3). Above R · D_min the path says enough.
        if !self.unused || report.d_max / d_min > self.config.ratio {
            self.d_est = window::next_d_est(self.d_est, &report, d_min, turn.ended, &self.config);
        }
        let in_flight = Packets(flow.in_flight as f64);
        let current = match self.config.window_reference {
            WindowReference::CurrentWindow => self.window,
            WindowReference::InFlight => in_flight,
        };
        // After a long outage all points are too old to count. The window stays until there are new ones: slow start would
        // learn D_min from the queue that the outage left.
        if let Some(wanted) = self.profile.window_at(self.d_est) {
            let within = if self.unused {
                wanted.min(self.window)
            } else {
                wanted
            };
            self.aim_at(within.max(Packets(1.0)), &flow);
        }
        let granted = window::budget(self.window, current, in_flight, self.rtt, turn.next);
        // A remainder of less than a packet is saved for the next epoch.
        let saved = self.budget.max(Packets::ZERO);
        self.budget = if saved < Packets(1.0) {
            granted + saved
        } else {
            granted
        };
        self.leave(&flow, turn.next);
    }

    /// How the packets that may leave in an epoch of this length do.
    #[inline]
    fn leave(&mut self, flow: &Flow, epoch: Duration) {
        let mut leave = Leave::AtOnce;
        self.parts.each(|part| {
            if leave == Leave::AtOnce {
                leave = part.leaves(flow, self.budget);
            }
        });
        self.refills = leave == Leave::Refilled;
        let spread = leave == Leave::Spread;
        self.pace = spread.then(|| self.packet_size.mul_f64(self.budget.0) / epoch);
    }

    /// The window that the profile gives for D_est, within its bounds. D_est does not run ahead of
    /// a bound.
    #[inline]
    fn aim_at(&mut self, wanted: Packets, flow: &Flow) {
        self.window = wanted;
        (self.parts).each(|part| self.window = part.bounds(flow, self.window));
        if self.window < wanted
            && let Some(delay) = self.profile.delay_at(self.window)
        {
            self.d_est = self.d_est.min(delay.max(flow.d_min.into()));
        }
    }

    /// Something is acknowledged (§4, §5.1).
    #[inline]
    fn on_acked(&mut self, now: Time, acked: &Acked) {
        let packet = &acked.packet;
        self.unused = packet.app_limited;
        if self.phase == Phase::SlowStart
            && (self.config.slow_start_exit).is_exceeded(acked.rtt, self.d_min)
        {
            // The window under which this packet left was too large, and is cut as after a loss.
            self.cut(now, packet.window);
            self.episode.answer();
        }
        // "if the protocol receives an acknowledgement with a sending window that is smaller
        // than or equal to the current sending window" (§4).
        if self.phase == Phase::Recovery && self.packets(packet.window) <= self.window {
            self.phase = Phase::Tracking;
            let flow = self.flow(now, self.d_min.unwrap_or_default(), 0);
            self.leave(&flow, self.config.epoch);
        }
        self.on_delay(now, acked);
        if self.phase == Phase::Recovery {
            self.window.0 += 1.0 / self.window.0;
            self.follow_window();
            return;
        }
        let mut charts = !packet.app_limited;
        self.parts.each(|part| charts &= part.charts(packet));
        if charts {
            let window = self.packets(self.config.charted_window.of(packet));
            self.profile
                .add(now, window, acked.rtt, self.config.point_weight);
        }
        if self.phase == Phase::SlowStart && !packet.app_limited {
            self.window += Packets(1.0);
        }
    }

    /// A packet's delay, whether it had been declared lost or not: D_min is "the minimum delay experienced by Verus" (§4).
    #[inline]
    fn on_delay(&mut self, now: Time, acked: &Acked) {
        self.delay.on_sample(now, acked.rtt);
        let d_min = self.d_min.map_or(acked.rtt, |least| least.min(acked.rtt));
        let d_min = self
            .config
            .told_d_min
            .unwrap_or(d_min.max(self.least_d_min));
        self.d_min = Some(d_min);
        if acked.rtt <= d_min.mul_f64(NEAR) {
            self.d_min_met_at = now;
        }
        let flow = self.flow(now, d_min, 0);
        self.parts.each_mut(|part| {
            part.on_acked(&flow, acked);
            if part.ends_outage(&flow) {
                self.outage = now;
            }
        });
    }

    /// Eq. 6: W = M · W_loss, the window that the lost packet left under. Recovery begins.
    fn cut(&mut self, now: Time, window_at_loss: Bytes) {
        let cut = self.config.decrease_factor * self.packets(window_at_loss);
        self.window = self.window.min(cut).max(Packets(1.0));
        if self.phase == Phase::SlowStart {
            self.refit(now);
        }
        self.follow_window();
        self.phase = Phase::Recovery;
        self.budget = Packets::ZERO;
        self.refills = false;
        self.epochs.begin(now);
    }

    /// Losses, or the first acknowledgements since: one cut for all that was in flight when the first loss was detected,
    /// since it was lost for the same reason.
    fn on_lost(&mut self, feedback: &Feedback<'_>) {
        // Marks are not losses; Verus asks for none, but a QUIC stack may report some.
        let unmarked = Feedback {
            marked: 0,
            ..*feedback
        };
        let in_slow_start = self.phase == Phase::SlowStart;
        let flow = self.flow(feedback.now, self.d_min.unwrap_or_default(), 0);
        let lost = feedback.lost.len();
        self.parts.each_mut(|part| part.on_lost(&flow, lost));
        let before = self.before();
        if !self.episode.begun_by(&unmarked, before) {
            return;
        }
        self.cut(feedback.now, feedback.lost[0].window);
        // Slow start sends in bursts of twice the rate, whose overflow says little about the window
        // that the path holds.
        if let Some(d_min) = self.d_min
            && !in_slow_start
        {
            let flow = self.flow(feedback.now, d_min, 0);
            self.parts.each_mut(|part| part.on_cut(&flow, self.window));
        }
    }

    /// State to restore if a cut proves groundless; the end of slow start stays.
    fn before(&self) -> Option<Before> {
        let undoes = self.config.undo && self.phase != Phase::SlowStart;
        undoes.then_some(Before {
            window: self.window,
            d_est: self.d_est,
        })
    }

    /// Whether a part holds the window in the epoch that begins.
    #[inline]
    fn is_held(&mut self, flow: &mut Flow) -> bool {
        self.held = None;
        self.parts.each_mut(|part| match part.holds(flow) {
            Hold::Free => {}
            Hold::Held { packets } => self.held = Some(packets),
            Hold::Released { risen } => {
                self.delay.discard_epoch();
                flow.d_min = self.config.told_d_min.or(risen).unwrap_or(flow.d_min);
                self.d_min = Some(flow.d_min);
            }
        });
        self.held.is_some()
    }

    /// Sets D_est to the delay that the profile gives for the current window.
    fn follow_window(&mut self) {
        if let Some(delay) = self.profile.delay_at(self.window) {
            self.d_est = delay;
        }
    }

    fn refit(&mut self, now: Time) {
        let flow = self.flow(now, self.d_min.unwrap_or_default(), 0);
        let mut least_slope = 0.0_f64;
        (self.parts).each_mut(|part| least_slope = least_slope.max(part.teaches(&flow)));
        self.profile
            .refit(now, self.config.fit, self.config.point_memory, least_slope);
        self.refit_at = now + self.config.update_interval;
    }

    /// The state that parts can read.
    #[inline]
    fn flow(&self, now: Time, d_min: Duration, in_flight: u64) -> Flow {
        Flow {
            now,
            ratio: self.config.ratio,
            epoch: self.config.epoch,
            decrease_factor: self.config.decrease_factor,
            d_min,
            d_est: self.d_est,
            rtt: self.rtt,
            d_min_met_at: self.d_min_met_at,
            outage: self.outage,
            in_flight,
            settled: self.phase != Phase::SlowStart,
        }
    }

    fn packets(&self, bytes: Bytes) -> Packets {
        Packets(bytes / self.packet_size)
    }
}

impl Controller for Verus {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.refit_at = now + self.config.update_interval;
    }

    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        self.episode.on_sent(packet);
        self.budget -= Packets(1.0);
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        self.rtt = feedback.smoothed_rtt;
        let answered = !(feedback.acked.is_empty() && feedback.recovered.is_empty());
        if self.phase == Phase::Silent && answered {
            self.phase = Phase::Recovery;
        }
        for acked in feedback.recovered {
            self.on_delay(now, acked);
        }
        let in_trouble = !self.episode.is_over() || !feedback.recovered.is_empty();
        if in_trouble {
            // Losses that were none end their episode; others of its packets may yet be lost.
            if let Some(Some(before)) = self.episode.undone_by(feedback) {
                self.window = self.window.max(before.window);
                self.d_est = before.d_est;
                self.phase = Phase::Tracking;
                self.parts.each_mut(|part| part.takes_back());
            }
        }
        for acked in feedback.acked {
            self.on_acked(now, acked);
        }
        if in_trouble || !feedback.lost.is_empty() {
            self.on_lost(feedback);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        let before = self.before();
        self.episode.on_timeout(timeout, before);
        if let Some(first) = timeout.presumed_lost.first() {
            self.cut(timeout.now, first.window);
        }
        self.phase = Phase::Silent;
    }

    #[inline]
    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        let in_flight = in_flight.get() / self.packet_size.get();
        let flow = self.flow(now, self.d_min.unwrap_or_default(), in_flight);
        let parts = &mut self.parts;
        let late = || {
            let mut late = 0.0_f64;
            parts.each_mut(|part| late = late.max(part.is_late(&flow)));
            late
        };
        let Some(turn) = self.epochs.turn(now, late) else {
            return;
        };
        if now >= self.refit_at && self.phase == Phase::Tracking {
            // In recovery and silence the profile is frozen (§4).
            self.refit(now);
        }
        self.decide(flow, turn);
    }

    /// The same bytes, counted in the new size. The window under which a packet left is in bytes already.
    fn on_packet_size(&mut self, size: Bytes) {
        let factor = self.packet_size / size;
        self.packet_size = size;
        self.window = (factor * self.window).max(Packets(1.0));
        self.budget = factor * self.budget;
        self.profile.rescale(factor);
        self.parts.each_mut(|part| part.rescale(factor));
        self.episode.settle();
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.packet_size.mul_f64(self.window.0)
    }

    #[inline]
    fn allowance(&self) -> Allowance {
        let size = self.packet_size;
        match self.phase {
            Phase::SlowStart | Phase::Recovery => Allowance::window(self.window()),
            Phase::Silent => Allowance::window(size * SILENT_WINDOW_PACKETS),
            Phase::Tracking => match self.held {
                Some(packets) => Allowance::window(size * packets),
                None if self.refills => Allowance::window(self.window()),
                None if self.budget < Packets(1.0) => Allowance::budget(Bytes::ZERO),
                None => Allowance::budget(size.mul_f64(self.budget.0)),
            },
        }
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        let budgeted = self.phase == Phase::Tracking && self.held.is_none();
        self.pace.filter(|_| budgeted)
    }

    #[inline]
    fn next_tick(&self) -> Option<Time> {
        self.epochs.end()
    }

    fn recovery(&self) -> Recovery {
        self.config.recovery
    }

    fn phase(&self) -> Option<controller::Phase> {
        Some(match self.phase {
            Phase::SlowStart => controller::Phase::SlowStart,
            Phase::Tracking => controller::Phase::Steady,
            Phase::Recovery => controller::Phase::Recovery,
            Phase::Silent => controller::Phase::Silent,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let number = |delay: Option<Millis>| delay.map_or(f64::NAN, |delay| delay.0);
        record("window_packets", self.window.0);
        record("delay_estimate_ms", self.d_est.0);
        record("delay_max_ms", number(self.delay.d_max()));
        record("delay_min_ms", number(self.d_min.map(Millis::from)));
        let flow = self.flow(Time::ZERO, self.d_min.unwrap_or_default(), 0);
        self.parts.each(|part| part.probe(&flow, record));
    }

    fn profile(&self) -> Option<ProfileSnapshot> {
        Some(self.profile.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn path(config: Config) -> Path<Verus> {
        Path::new(Verus::new(config, 1).expect("in range"))
    }

    fn probe(path: &Path<Verus>, name: &str) -> f64 {
        let mut probe_value = None;
        path.controller.probe(&mut |other, value| {
            if other == name {
                probe_value = Some(value);
            }
        });
        probe_value.unwrap_or_else(|| panic!("no probe {name}"))
    }

    fn window(path: &Path<Verus>) -> f64 {
        probe(path, "window_packets")
    }

    /// In slow start with a window of 20: packets 0 to 30 left under smaller windows, 31 to 38
    /// under that one; 0 to 18 are acknowledged.
    fn slow_start_at_20(config: Config) -> Path<Verus> {
        let mut path = path(config);
        for _ in 0..4 {
            path.fill();
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
        path.fill();
        assert_eq!(window(&path), 16.0);
        path.wait_ms(40);
        path.ack(15..=18);
        path.fill();
        assert_eq!(window(&path), 20.0);
        assert_eq!(path.in_flight_numbers().last(), Some(&38));
        path
    }

    /// The same after packet 31 is lost: W = 0.7 · 20 = 14.
    fn recovering_at_14(config: Config) -> Path<Verus> {
        let mut path = slow_start_at_20(config);
        path.wait_ms(40);
        path.ack(19..=30);
        path.feedback([32], [31], []);
        assert!((window(&path) - 14.0).abs() < 1e-9);
        assert_eq!(path.controller.phase, Phase::Recovery);
        path
    }

    /// The same after recovery ended.
    fn tracking(config: Config) -> Path<Verus> {
        let mut path = recovering_at_14(config);
        path.fill();
        path.wait_ms(40);
        path.ack(33..=39);
        assert_eq!(path.controller.phase, Phase::Tracking);
        path
    }

    #[test]
    fn slow_start_adds_a_packet_for_each_acknowledgement() {
        slow_start_at_20(Config::preset(Mode::Paper));
    }

    #[test]
    fn a_loss_cuts_the_window_of_the_lost_packet_not_todays() {
        // Eq. 6: the window is 33 when the loss shows, and was 20 when the packet left.
        for mode in [Mode::Paper, Mode::Robust] {
            recovering_at_14(Config::preset(mode));
        }
    }

    #[test]
    fn recovery_grows_by_one_over_w_and_ends_with_an_acknowledgement_of_a_window_no_larger() {
        let mut path = recovering_at_14(Config::preset(Mode::Paper));
        path.fill();
        path.wait_ms(40);
        path.ack([33]); // left under 20
        assert_eq!(path.controller.phase, Phase::Recovery);
        let grown = 14.0 + 1.0 / 14.0;
        assert!((window(&path) - grown).abs() < 1e-9);
        path.ack([39]); // left under 14
        assert_eq!(path.controller.phase, Phase::Tracking);
        assert!((window(&path) - grown).abs() < 1e-9);
    }

    #[test]
    fn the_profile_is_frozen_in_recovery() {
        let mut path = recovering_at_14(Config::preset(Mode::Paper));
        let before = path.controller.profile();
        path.fill();
        path.wait_ms(1500);
        path.ack([33]);
        path.tick();
        assert_eq!(path.controller.phase, Phase::Recovery);
        assert_eq!(path.controller.profile(), before);
    }

    #[test]
    fn losses_of_one_episode_cut_once() {
        let mut path = recovering_at_14(Config::preset(Mode::Robust));
        path.feedback([], [33, 34], []);
        assert!((window(&path) - 14.0).abs() < 1e-9);
    }

    #[test]
    fn a_cut_is_taken_back_once_what_was_lost_arrives_after_all_but_not_in_paper_mode() {
        for (mode, taken_back) in [(Mode::Paper, false), (Mode::Robust, true)] {
            let mut path = tracking(Config::preset(mode));
            path.fill();
            let before = window(&path);
            path.feedback([], [40], []);
            assert!(window(&path) < before, "{mode:?}");
            path.feedback([], [], [40]);
            assert_eq!(window(&path) == before, taken_back, "{mode:?}");
        }
    }

    #[test]
    fn a_flight_is_cut_once_though_recovery_has_ended() {
        for mode in [Mode::Paper, Mode::Robust] {
            let mut path = recovering_at_14(Config::preset(mode));
            path.controller.phase = Phase::Tracking; // as an ACK of an older, smaller window makes it
            let cut = window(&path);
            path.feedback([], [33, 34], []);
            assert_eq!(window(&path), cut, "{mode:?}");
        }
    }

    #[test]
    fn packets_of_another_size_are_the_same_bytes_as_before() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.wait_ms(1500);
        path.tick();
        let before = path.controller.window();
        let delay = |path: &Path<Verus>, packets: f64| {
            let curve = &path.controller.profile;
            curve.delay_at(Packets(packets)).expect("fitted").0
        };
        let (small, large) = (delay(&path, 8.0), delay(&path, 14.0));
        path.controller.on_packet_size(SIZE / 2);
        let after = path.controller.window();
        assert!(
            after.get().abs_diff(before.get()) <= 2,
            "{before:?} {after:?}"
        );
        assert!((delay(&path, 16.0) - small).abs() < 1e-3);
        assert!((delay(&path, 28.0) - large).abs() < 1e-3);
        let points = path.controller.profile().expect("kept").points;
        assert!(
            points.iter().all(|point| point.0 % 2.0 == 0.0),
            "{points:?}"
        );
    }

    #[test]
    fn slow_start_ends_above_n_times_the_least_delay() {
        // N = 15 and D_min = 40 ms: 600 ms is not above, 601 is; the window that brought it was 4.
        let mut path = path(Config::preset(Mode::Paper));
        for wait_ms in [40, 600] {
            path.fill();
            path.wait_ms(wait_ms);
            let all = path.in_flight_numbers();
            path.ack(all);
            assert_eq!(path.controller.phase, Phase::SlowStart);
        }
        path.fill();
        assert_eq!(window(&path), 4.0);
        path.wait_ms(601);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        assert_eq!(path.controller.phase, Phase::Recovery);
        // 0.7 · 4, and 1/W more for the acknowledgement itself.
        assert!((window(&path) - (2.8 + 1.0 / 2.8)).abs() < 1e-9);
        assert!(path.controller.next_tick().is_some(), "epochs begin");
    }

    #[test]
    fn a_profile_that_was_forgotten_in_an_outage_is_no_reason_to_begin_again() {
        let mut path = tracking(Config::preset(Mode::Robust));
        let all = path.in_flight_numbers();
        path.ack(all);
        let before = window(&path);
        for _ in 0..3 {
            path.wait_ms(60_000);
            path.tick();
        }
        let snapshot = path.controller.profile().expect("Verus has a profile");
        assert!(snapshot.points.is_empty(), "all points are forgotten");
        assert_eq!(path.controller.phase, Phase::Tracking);
        assert_eq!(probe(&path, "delay_min_ms"), 40.0);
        assert!(window(&path) <= before);
    }

    #[test]
    fn a_timeout_cuts_to_a_trickle() {
        let mut path = tracking(Config::preset(Mode::Robust));
        let before = window(&path);
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.phase, Phase::Silent);
        assert!(window(&path) < before);
        assert_eq!(
            path.controller.allowance().sendable(Bytes::ZERO),
            SIZE * SILENT_WINDOW_PACKETS
        );
    }

    #[test]
    fn a_timeout_that_was_real_leads_to_recovery() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.wait_ms(1000);
        path.time_out();
        path.fill();
        let sent = path.in_flight_numbers();
        assert_eq!(sent.len() as u64, SILENT_WINDOW_PACKETS);
        path.wait_ms(40);
        path.feedback([sent[0]], [], []);
        assert!(!matches!(
            path.controller.phase,
            Phase::Silent | Phase::SlowStart
        ));
    }

    #[test]
    fn a_tick_however_late_closes_all_epochs_at_once() {
        let hour = Duration::from_secs(3600);
        for late in [Duration::ZERO, hour, hour * 24 * 365 * 100] {
            for mode in [Mode::Robust, Mode::Paper] {
                let mut path = tracking(Config::preset(mode));
                let due = path.controller.next_tick().expect("epochs run");
                path.now = due + late;
                path.tick();
                let next = path.controller.next_tick().expect("epochs run");
                // An epoch may end late by another's length.
                assert!(next > path.now && next <= path.now + path.controller.config.epoch * 2);
                let window = window(&path);
                assert!(window.is_finite() && window >= 1.0);
            }
        }
    }

    /// Runs the steps twice: the controller keeps its promises whatever happens, and does the same again.
    pub(super) fn stays_sound<C: Controller>(new: impl Fn() -> C, steps: &[testing::Step]) {
        let history = || {
            let mut path = Path::new(new());
            let mut history = Vec::new();
            testing::run(&mut path, steps, |path| {
                let mut probes = Vec::new();
                path.controller.probe(&mut |name, value| {
                    assert!(!value.is_infinite(), "{name} is {value}");
                    probes.push((name, value));
                });
                let probe = |name| probes.iter().find(|probe| probe.0 == name).expect(name).1;
                let window = probe("window_packets");
                assert!(window.is_finite() && window >= 1.0, "W = {window}");
                let largest = profile::LARGEST_WINDOW as f64 + 2e4;
                assert!(window <= largest, "W = {window}");
                let estimate = probe("delay_estimate_ms");
                assert!(
                    estimate.is_finite() && estimate >= 0.0,
                    "D_est = {estimate}"
                );
                if let Some(tick) = path.controller.next_tick() {
                    assert!(tick > path.now, "the next tick is not ahead");
                }
                let sendable = path.controller.allowance().sendable(path.in_flight());
                history.push((window, estimate, sendable));
            });
            history
        };
        assert_eq!(history(), history());
    }

    proptest! {
        #[test]
        fn whatever_happens_verus_stays_sound_and_repeats(
            mode in prop::sample::select(vec![Mode::Robust, Mode::Paper]),
            ratio in 1.1f64..8.0,
            steps in testing::steps(),
        ) {
            let config = Config { ratio, ..Config::preset(mode) };
            stays_sound(|| Verus::new(config.clone(), 1).expect("in range"), &steps);
        }
    }
}
