//! Verus: delay-based congestion control that learns what delay each window brings (Zaki et al.,
//! *Adaptive Congestion Control for Unpredictable Cellular Networks*, SIGCOMM 2015).
//!
//! The paper's four elements (§4): the [delay estimator](delay) watches the largest delay of each 5 ms epoch (Eqs. 2, 3),
//! the [delay profiler](profile) learns delay as a function of the window, the [window estimator](window) steps along
//! that curve (Eqs. 4, 5), and the loss handler (Eq. 6) is here, with what joins them: `Verus::decide` is the loop.
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
//! epoch grants a budget of packets (Eq. 5), and the window is only what the budget aims at.
//!
//! Paper mode is this file. The default mode adds [`robust`] to it, which is off in paper mode and takes part by the
//! hooks named there. The authors' prototype differs in more than parameters and is a [controller](prototype) of its own.

pub mod config;
pub mod delay;
pub mod epochs;
mod keys;
pub mod profile;
pub mod prototype;
pub mod robust;
pub mod window;

use verus_core::controller::{
    self, Acked, Allowance, Controller, Departure, Feedback, ProfileSnapshot, Timeout,
};
use verus_core::episode::{Episode, Period};
use verus_core::recovery::Recovery;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::Configuration;
use verus_words::range::OutOfRange;

use config::WindowReference;
pub use config::{Config, Mode};
use delay::DelayEstimator;
use epochs::{Epochs, Turn};
use profile::Profile;
pub use prototype::Prototype;
use robust::loss::Lost;
use robust::{Answer, Hold, Robust, View};

/// After a timeout, this many packets probe the path until one is acknowledged.
const SILENT_WINDOW_PACKETS: u64 = 2;

/// What the flow is doing.
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

/// What a cut changes, and what gives it back if nothing was lost.
#[derive(Clone, Copy, Debug)]
struct Before {
    window: f64,
    estimate: f64,
    phase: Phase,
    answer: Answer,
}

/// The Verus controller, in paper and in default mode.
#[derive(Debug)]
pub struct Verus {
    config: Config,
    phase: Phase,
    packet_size: Bytes,
    delay: DelayEstimator,
    profile: Profile,
    /// W, in packets.
    window: f64,
    /// D_est, in ms.
    estimate: f64,
    /// D_min, in ms.
    delay_min: Option<f64>,
    /// S: what is left of the open epoch's budget, in packets. A fraction of a packet carries over to the next epoch.
    budget: f64,
    epochs: Epochs,
    refit_at: Time,
    rtt: Duration,
    /// The last loss episode, and the state before it where its cut may be undone.
    episode: Episode<Option<Before>>,
    robust: Robust,
}

impl Verus {
    /// A controller at the beginning of its slow start. `seed` is that of the random part of when its epochs end.
    ///
    /// # Errors
    /// Names the parameter that is out of range.
    pub fn new(config: Config, seed: u64) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Verus {
            epochs: Epochs::new(config.epoch, seed),
            robust: Robust::new(config.robust),
            config,
            phase: Phase::SlowStart,
            packet_size: Bytes::new(1),
            delay: DelayEstimator::new(),
            profile: Profile::new(),
            window: 1.0,
            estimate: 0.0,
            delay_min: None,
            budget: 0.0,
            refit_at: Time::ZERO,
            rtt: Duration::ZERO,
            episode: Episode::new(Period::Round),
        })
    }

    /// An epoch ends and the next begins: computes the delay to aim at (Eq. 4), the window that brings this delay, and
    /// how many packets leave in the epoch that begins (Eq. 5).
    #[inline]
    fn decide(&mut self, now: Time, turn: Turn, in_flight: Bytes) {
        let (Some(report), Some(delay_min)) =
            (self.delay.end_epoch(now, &self.config), self.delay_min)
        else {
            return;
        };
        if self.phase != Phase::Tracking {
            return;
        }
        let under_way = in_flight.get() / self.packet_size.get();
        if self.is_held(now, delay_min, under_way) {
            self.budget = 0.0;
            return;
        }
        let estimate =
            window::next_estimate(self.estimate, &report, delay_min, turn.ended, &self.config);
        let wanted = match self.profile.window_at(estimate) {
            Some(window) => window.max(1.0) + self.config.robust.additive_increase,
            // After a long outage all points are too old to count. The window stays until there are new ones: slow
            // start would learn D_min from the queue that the outage left.
            None => self.window,
        };
        let current = match self.config.window_reference {
            WindowReference::CurrentWindow => self.window,
            WindowReference::InFlight => under_way as f64,
        };
        let robust = &mut self.robust;
        (self.window, self.estimate) =
            robust.bound(now, wanted, estimate, delay_min, &self.profile);
        let granted = window::budget(self.window, current, under_way as f64, self.rtt, turn.next);
        // What is left of less than a packet is saved for the next epoch.
        let left = self.budget.max(0.0);
        self.budget = granted + if left < 1.0 { left } else { 0.0 };
        robust.on_grant(self.budget, self.packet_size, self.rtt, turn.next);
    }

    /// Something is acknowledged (§4, §5.1).
    #[inline]
    fn on_acked(&mut self, now: Time, acked: &Acked) {
        let packet = &acked.packet;
        self.robust.on_delivered();
        if self.phase == Phase::SlowStart
            && (self.config.slow_start_exit).is_exceeded(acked.rtt, self.delay_min)
        {
            // The window under which this packet left was too large, and is cut as after a loss.
            self.cut(now, packet.window);
            self.episode.answer();
        }
        // "if the protocol receives an acknowledgement with a sending window that is smaller
        // than or equal to the current sending window" (§4).
        if self.phase == Phase::Recovery && self.packets(packet.window) <= self.window {
            self.phase = Phase::Tracking;
            self.robust.refill_within(self.rtt, self.config.epoch);
        }
        self.delay.on_sample(now, acked.rtt);
        self.learn_delay_min(now, acked);
        if self.phase == Phase::Recovery {
            self.window += 1.0 / self.window;
            self.follow_window();
            return;
        }
        if !packet.app_limited && self.robust.teaches(packet.number) {
            let window = self.packets(self.config.charted_window.of(packet));
            self.profile
                .add(now, window, acked.rtt, self.config.point_weight);
        }
        if self.phase == Phase::SlowStart {
            self.window += 1.0;
        }
    }

    /// D_min, "the minimum delay experienced by Verus" (§4).
    #[inline]
    fn learn_delay_min(&mut self, now: Time, acked: &Acked) {
        let delay_ms = acked.rtt.as_millis_f64();
        let delay_ms = (self.robust).on_delay(now, acked.packet.at, delay_ms, self.delay_min);
        let least = self.delay_min.map_or(delay_ms, |least| least.min(delay_ms));
        self.delay_min = self.config.told_delay_min_ms.or(Some(least));
    }

    /// Eq. 6: W = M · W_loss, the window that the lost packet left under. Recovery begins.
    fn cut(&mut self, now: Time, window_at_loss: Bytes) {
        let cut = self.config.decrease_factor * self.packets(window_at_loss);
        self.window = self.window.min(cut).max(1.0);
        if self.phase == Phase::SlowStart {
            self.refit(now);
        }
        self.follow_window();
        self.phase = Phase::Recovery;
        self.budget = 0.0;
        self.robust.stop();
        self.epochs.begin(now);
    }

    /// Losses, or the first acknowledgements since: one cut for all that was in flight when the first loss was detected,
    /// since it was lost for the same reason.
    fn on_lost(&mut self, feedback: &Feedback<'_>) {
        self.robust.on_lost(feedback.lost.len());
        let before = self.before();
        // Marks are not losses; Verus asks for none, but a QUIC stack may tell of some.
        let unmarked = Feedback {
            marked: 0,
            ..*feedback
        };
        if !self.episode.begun_by(&unmarked, before) {
            return;
        }
        let (now, first) = (feedback.now, feedback.lost[0]);
        let in_slow_start = self.phase == Phase::SlowStart;
        self.cut(now, first.window);
        // Slow start sends in bursts of twice the rate: what they overfill says little of the window that the path holds.
        if let Some(delay_min) = self.delay_min
            && !in_slow_start
        {
            let lost = Lost {
                window: self.packets(first.window),
                decrease_factor: self.config.decrease_factor,
                delay_ms: self.delay.delay_max(),
                delay_min,
            };
            self.robust.on_cut(now, lost, self.window);
        }
    }

    /// A packet that had been declared lost has arrived after all.
    fn on_recovered(&mut self, now: Time, acked: &Acked) {
        self.delay.on_sample(now, acked.rtt);
        self.learn_delay_min(now, acked);
    }

    /// The last cut was for nothing. What epochs have decided since stays.
    fn undo(&mut self, before: Before) {
        if matches!(self.phase, Phase::Recovery | Phase::Silent) {
            self.window = before.window;
            self.estimate = before.estimate;
            self.phase = before.phase;
        }
        self.robust.undo(before.answer);
    }

    /// Whether the default mode's additions hold the window in the epoch that begins.
    #[inline]
    fn is_held(&mut self, now: Time, delay_min: f64, under_way: u64) -> bool {
        let view = View {
            under_way,
            delay_min,
            rtt: self.rtt,
            estimate: self.estimate,
            ratio: self.config.ratio,
        };
        match self.robust.hold(now, &view) {
            Hold::Held => return true,
            Hold::Free => {}
            Hold::Drained(risen) => {
                self.delay.discard_epoch();
                if self.config.told_delay_min_ms.is_none() {
                    self.delay_min = risen.or(self.delay_min);
                }
            }
        }
        false
    }

    /// Sets D_est to the delay that the profile gives for the current window.
    fn follow_window(&mut self) {
        if let Some(delay) = self.profile.delay_at(self.window) {
            self.estimate = delay;
        }
    }

    fn refit(&mut self, now: Time) {
        let delay_min = self.delay_min.unwrap_or_default();
        let bounds = self.robust.look_around(now, delay_min, self.config.ratio);
        let memory = self.config.robust.point_memory;
        self.profile.refit(now, self.config.fit, memory, bounds);
        self.refit_at = now + self.config.update_interval;
    }

    /// What an undo gives back; `None` where there is none. The end of slow start stays.
    fn before(&self) -> Option<Before> {
        let undoes = self.config.undo && self.phase != Phase::SlowStart;
        undoes.then(|| Before {
            window: self.window,
            estimate: self.estimate,
            phase: self.phase,
            answer: self.robust.answer(),
        })
    }

    fn packets(&self, bytes: Bytes) -> f64 {
        bytes / self.packet_size
    }
}

impl Controller for Verus {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.refit_at = now + self.config.update_interval;
        self.robust.on_start(now);
    }

    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        self.episode.on_sent(packet);
        self.budget -= 1.0;
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
            self.on_recovered(now, acked);
        }
        let in_trouble = !self.episode.is_over() || !feedback.recovered.is_empty();
        if in_trouble && let Some(Some(before)) = self.episode.undone_by(feedback) {
            self.undo(before);
        }
        if !feedback.acked.is_empty() {
            let in_slow_start = self.phase == Phase::SlowStart;
            let next_number = self.episode.next_number();
            self.robust.on_acks(now, in_slow_start, next_number);
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
        let Some(turn) = self.epochs.turn(now, self.robust.jitter()) else {
            return;
        };
        if now >= self.refit_at && self.phase == Phase::Tracking {
            // In recovery and silence the profile is frozen (§4).
            self.refit(now);
        }
        self.robust.on_epoch(self.delay_min, self.config.ratio);
        self.decide(now, turn, in_flight);
    }

    /// The same bytes, counted in the new size. The window under which a packet left is in bytes already.
    fn on_packet_size(&mut self, size: Bytes) {
        let factor = self.packet_size / size;
        self.packet_size = size;
        self.window = (self.window * factor).max(1.0);
        self.budget *= factor;
        self.profile.rescale(factor);
        self.robust.rescale(factor);
        self.episode.settle();
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.packet_size.mul_f64(self.window)
    }

    #[inline]
    fn allowance(&self) -> Allowance {
        let size = self.packet_size;
        match self.phase {
            Phase::SlowStart | Phase::Recovery => Allowance::window(self.window()),
            Phase::Silent => Allowance::window(size * SILENT_WINDOW_PACKETS),
            Phase::Tracking => match self.robust.filled(|| self.window(), size) {
                Some(window) => Allowance::window(window),
                None if self.budget < 1.0 => Allowance::budget(Bytes::ZERO),
                None => Allowance::budget(size.mul_f64(self.budget)),
            },
        }
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        self.robust.pace().filter(|_| self.phase == Phase::Tracking)
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
        let delay_min = self.delay_min.unwrap_or(f64::NAN);
        record("window_packets", self.window);
        record("delay_estimate_ms", self.estimate);
        record("delay_max_ms", self.delay.delay_max().unwrap_or(f64::NAN));
        record("delay_min_ms", delay_min);
        if self.config.robust != robust::Config::OFF {
            self.robust.probe(delay_min, record);
        }
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
        let mut found = None;
        path.controller.probe(&mut |other, value| {
            if other == name {
                found = Some(value);
            }
        });
        found.unwrap_or_else(|| panic!("no probe {name}"))
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

    /// Sends what it may, and all of it is acknowledged.
    fn go_round(path: &mut Path<Verus>) {
        path.fill();
        path.wait_ms(40);
        let all = path.in_flight_numbers();
        path.ack(all);
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
    fn a_cut_is_undone_once_all_that_was_lost_has_arrived() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.fill();
        let before = window(&path);
        path.feedback([], [40, 41], []);
        assert!(window(&path) < before);
        path.feedback([], [], [40]);
        assert!(window(&path) < before);
        path.feedback([], [], [41]);
        assert_eq!(window(&path), before);
        assert_eq!(path.controller.phase, Phase::Tracking);
    }

    #[test]
    fn an_undo_gives_back_what_the_loss_taught_and_keeps_what_epochs_have_decided_since() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.fill();
        path.feedback([], [40, 41], []);
        go_round(&mut path);
        go_round(&mut path);
        assert_eq!(path.controller.phase, Phase::Tracking);
        for _ in 0..2 {
            path.wait_ms(5);
            path.tick();
        }
        assert!(probe(&path, "ceiling_packets").is_finite());
        let decided = window(&path);
        path.feedback([], [], [40, 41]);
        assert_eq!(window(&path), decided);
        path.wait_ms(5);
        path.tick();
        assert!(probe(&path, "ceiling_packets").is_nan());
    }

    #[test]
    fn only_the_default_mode_undoes() {
        let mut path = tracking(Config::preset(Mode::Paper));
        path.fill();
        let before = window(&path);
        path.feedback([], [40], []);
        path.feedback([], [], [40]);
        assert!(window(&path) < before);
    }

    #[test]
    fn a_packet_of_another_episode_undoes_nothing() {
        // Packet 31 was lost in slow start, and arrives after a cut of its own for packet 40.
        let mut path = tracking(Config::preset(Mode::Robust));
        path.fill();
        path.feedback([], [40], []);
        let cut = window(&path);
        path.feedback([], [], [31]);
        assert_eq!(window(&path), cut);
    }

    #[test]
    fn a_cut_for_real_losses_is_not_given_back_after_a_later_timeout() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.fill();
        let large = window(&path);
        path.feedback([], [40, 41], []);
        go_round(&mut path);
        go_round(&mut path);
        assert_eq!(path.controller.phase, Phase::Tracking);
        path.wait_ms(5);
        path.tick();
        path.fill();
        path.controller.window = 3.0; // as Eq. 4 may have made it
        path.wait_ms(1000);
        path.time_out();
        let late = path.lost_numbers();
        path.feedback([], [], [*late.last().expect("presumed lost")]);
        assert_eq!(path.controller.phase, Phase::Tracking);
        assert!(window(&path) < large.min(3.1), "{}", window(&path));
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
    fn a_late_packet_does_not_take_d_min_below_its_floor() {
        let mut path = path(Config::preset(Mode::Robust));
        path.fill();
        path.wait_ms(1);
        path.feedback([], [0], []);
        path.feedback([], [], [0]);
        assert_eq!(probe(&path, "delay_min_ms"), 5.0);
    }

    #[test]
    fn packets_of_another_size_are_the_same_bytes_as_before() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.wait_ms(1500);
        path.tick();
        let before = path.controller.window();
        let delay = |path: &Path<Verus>, packets: f64| {
            let curve = &path.controller.profile;
            curve.delay_at(packets).expect("fitted")
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
    fn a_window_is_refilled_all_through_an_epoch_that_is_longer_than_a_round_trip() {
        for (mode, round_trip_ms, refilled) in [
            (Mode::Robust, 1, true),
            (Mode::Robust, 20, false),
            (Mode::Paper, 1, false),
        ] {
            let mut path = path(Config::preset(mode));
            let go_round = |path: &mut Path<Verus>| {
                path.wait_ms(round_trip_ms);
                let all = path.in_flight_numbers();
                path.ack(all);
                path.fill();
            };
            for _ in 0..6 {
                go_round(&mut path);
            }
            path.fill();
            path.wait_ms(round_trip_ms);
            let all = path.in_flight_numbers();
            path.feedback(all[1..].iter().copied(), [all[0]], []);
            path.fill();
            go_round(&mut path);
            assert_eq!(path.controller.phase, Phase::Tracking);
            path.now = path.controller.next_tick().expect("epochs run");
            path.tick();
            path.fill();
            let tick = path.controller.next_tick();
            go_round(&mut path);
            go_round(&mut path);
            let full = (path.in_flight().get() / SIZE.get()) as f64 > window(&path) - 1.0;
            assert_eq!(full, refilled, "{mode:?}, {round_trip_ms} ms");
            assert_eq!(path.controller.next_tick(), tick, "it is the same epoch");
        }
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
    fn a_timeout_cuts_to_a_trickle_and_a_late_acknowledgement_undoes_it() {
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
        let late = path.lost_numbers()[1]; // the first is that which ended slow start
        path.feedback([], [], [late]);
        assert_eq!(window(&path), before);
        assert_eq!(path.controller.phase, Phase::Tracking);
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
                assert!(next > path.now && next <= path.now + path.controller.config.epoch);
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
                let most = profile::LARGEST_WINDOW as f64 + 2e4;
                assert!(window <= most, "W = {window}");
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
