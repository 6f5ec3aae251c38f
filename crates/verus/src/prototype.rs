//! Verus as its authors released it (`yzaki/verus`, `src/verus_server.cpp` of commit 4995aba), with its hazards of
//! behaviour but without those of memory and security.
//!
//! It shares estimator, profile and window with the paper's [`Verus`](super::Verus), whose parameters say where the two
//! read Eqs. 2 to 5 differently. The differences that are not parameters:
//!
//! - it counts packets in flight separately, and **forgets at timeouts**: it sets this count to
//!   zero, ignores late acknowledgements and keeps the window, so that the sender floods the path
//!   in an outage;
//! - with each acknowledgement, slow start **grants** as many packets as the window has room for,
//!   even if those granted before have not left; a loss that leaves a window of at most 20 packets
//!   does not end it, but a timeout does;
//! - **epochs decide in recovery**, too, which also follows a timeout; if a delay ended slow start,
//!   the ratio test of Eq. 4 is off until this recovery ends;
//! - when D_est is at D_min and the delay is still above R · D_min, it **pauses** for an epoch, or
//!   raises D_min by 10 ms if fewer than two packets are in flight;
//! - windows and budgets are **whole** packets, and budgets add up until the sending thread has
//!   spent them;
//! - where the curve cannot be inverted it **restarts**: everything is forgotten and slow start
//!   begins again.

use verus_core::controller::{
    self, Acked, Allowance, Controller, Departure, Feedback, ProfileSnapshot, Timeout,
};
use verus_core::recovery::Recovery;
use verus_core::units::{Bytes, Duration, Time};
use verus_words::configuration::Configuration;
use verus_words::range::OutOfRange;

use super::config::{Config, WindowReference};
use super::delay::DelayEstimator;
use super::epochs::{Epochs, Turn};
use super::profile::Profile;
use super::units::{Millis, Packets};
use super::window;

/// A loss does not end slow start where it leaves a window of at most this many packets.
const LOSSES_COUNT_ABOVE: Packets = Packets(20.0);
/// The curve begins with the points up to the window of the loss that ends slow start, and at least with those up to
/// this many packets.
const LEAST_CHARTED: f64 = 100.0;
/// By how much D_min is raised when D_est has come down to it, the delay is still above R · D_min, and few packets
/// are in flight.
const RAISED_BY: Duration = Duration::from_millis(10);
/// "Few in flight" is fewer packets than this.
const FEW_IN_FLIGHT: u64 = 2;

/// The prototype's controller.
#[derive(Debug)]
pub struct Prototype {
    config: Config,
    in_slow_start: bool,
    /// From a loss, a timeout or the delay that ends slow start, until a packet is acknowledged that
    /// left with a window of at most W. Slow start may go on meanwhile.
    in_recovery: bool,
    /// Whether the delay that ends slow start began this recovery.
    by_threshold: bool,
    packet_size: Bytes,
    delay: DelayEstimator,
    profile: Profile,
    /// W.
    window: Packets,
    d_est: Millis,
    d_min: Option<Duration>,
    /// Packets that epochs have granted and that have not left yet.
    budget: Packets,
    /// Packets that slow start has granted and that have not left yet.
    granted: u64,
    in_flight: u64,
    /// Packets numbered below this are ignored: they left before the last timeout or restart.
    session_start: u64,
    next_number: u64,
    epochs: Epochs,
    refit_at: Time,
    rtt: Duration,
    restarts: u64,
}

impl Prototype {
    /// A controller at the beginning of its slow start.
    ///
    /// # Errors
    /// Names the parameter that is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Prototype {
            epochs: Epochs::new(config.epoch),
            config,
            in_slow_start: true,
            in_recovery: false,
            by_threshold: false,
            packet_size: Bytes::new(1),
            delay: DelayEstimator::new(),
            profile: Profile::new(),
            window: Packets(1.0),
            d_est: Millis::ZERO,
            d_min: None,
            budget: Packets::ZERO,
            granted: 1,
            in_flight: 0,
            session_start: 0,
            next_number: 0,
            refit_at: Time::ZERO,
            rtt: Duration::ZERO,
            restarts: 0,
        })
    }

    /// An epoch ends and the next begins.
    #[inline]
    fn decide(&mut self, now: Time, turn: Turn) {
        let config = &self.config;
        let (Some(report), Some(d_min)) = (self.delay.end_epoch(now, config), self.d_min) else {
            return;
        };
        if self.in_slow_start {
            return;
        }
        let floor = Millis::from(d_min);
        let above = report.d_max / floor > config.ratio;
        if !(above && self.by_threshold) {
            self.d_est = window::next_d_est(self.d_est, &report, floor, turn.ended, config);
        }
        let at_floor = above && !self.by_threshold && self.d_est <= floor;
        let few = self.in_flight < FEW_IN_FLIGHT;
        if at_floor && few {
            self.d_min = Some(d_min + RAISED_BY);
        }
        let Some(wanted) = self.profile.whole_window_at(self.d_est) else {
            return self.restart();
        };
        let in_flight = Packets(self.in_flight as f64);
        let current = match config.window_reference {
            WindowReference::CurrentWindow => self.window,
            WindowReference::InFlight => in_flight,
        };
        self.window = wanted;
        if !at_floor || few {
            self.budget = self.budget.max(Packets::ZERO)
                + whole_budget(self.window, current, in_flight, self.rtt, turn.next);
        }
    }

    #[inline]
    fn on_acked(&mut self, now: Time, acked: &Acked) {
        let packet = &acked.packet;
        if packet.number < self.session_start {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_slow_start && (self.config.slow_start_exit).is_exceeded(acked.rtt, self.d_min) {
            self.cut(packet.window);
            self.by_threshold = true;
            self.end_slow_start(now);
            self.follow_curve();
        }
        if self.in_recovery && self.packets(packet.window) <= self.window {
            self.in_recovery = false;
            self.by_threshold = false;
            self.delay.discard_epoch();
        }
        self.delay.on_sample(now, acked.rtt);
        self.d_min = Some(self.d_min.map_or(acked.rtt, |least| least.min(acked.rtt)));
        if self.in_recovery {
            self.window.0 += 1.0 / self.window.0;
            if let Some(delay) = self.profile.delay_at(self.window) {
                self.d_est = self.d_est.min(delay);
            }
        } else if !packet.app_limited {
            let window = self.packets(self.config.charted_window.of(packet));
            self.profile
                .add(now, window, acked.rtt, self.config.point_weight);
        }
        if self.in_slow_start {
            self.window += Packets(1.0);
            let room = self.window.0 - self.in_flight as f64;
            self.granted += room.max(0.0) as u64;
        }
    }

    /// Eq. 6.
    fn cut(&mut self, window_at_loss: Bytes) {
        let cut = self.config.decrease_factor * self.packets(window_at_loss);
        self.window = self.window.min(cut).max(Packets(1.0));
        self.in_recovery = true;
        self.follow_curve();
    }

    /// D_est = f(W).
    fn follow_curve(&mut self) {
        if let Some(delay) = self.profile.delay_at(self.window) {
            self.d_est = delay;
        }
    }

    /// The curve is fitted for the first time, and epochs begin.
    fn end_slow_start(&mut self, now: Time) {
        self.in_slow_start = false;
        self.refit(now);
        self.epochs.begin(now);
    }

    fn on_lost(&mut self, now: Time, lost: &[Departure]) {
        let mut of_session = lost
            .iter()
            .filter(|packet| packet.number >= self.session_start);
        let Some(first) = of_session.next() else {
            return;
        };
        let first_window = first.window;
        let count = 1 + of_session.count() as u64;
        self.in_flight = self.in_flight.saturating_sub(count);
        if !self.in_recovery {
            self.cut(first_window);
        }
        if self.in_slow_start && Packets(self.window.0.floor()) > LOSSES_COUNT_ABOVE {
            self.forget_flight();
            // Packets that left after the lost one met a full queue: they are not charted.
            let last = self.packets(first_window).0.max(LEAST_CHARTED);
            self.profile.cut(Packets(last));
            self.end_slow_start(now);
            self.follow_curve();
        }
    }

    fn time_out(&mut self, now: Time) {
        let Some(least) = self.d_min else {
            return self.restart();
        };
        if self.in_slow_start {
            return self.end_slow_start(now);
        }
        self.in_recovery = true;
        self.forget_flight();
        self.d_est = least.into();
    }

    /// Acknowledgements of packets that have left count no longer.
    fn forget_flight(&mut self) {
        self.in_flight = 0;
        self.session_start = self.next_number;
    }

    /// No window of the curve brings the delay wanted: everything learned is dropped and slow start begins again.
    #[cold]
    fn restart(&mut self) {
        self.restarts += 1;
        self.in_slow_start = true;
        self.in_recovery = false;
        self.by_threshold = false;
        self.delay = DelayEstimator::new();
        self.profile.clear();
        self.window = Packets(1.0);
        self.d_est = Millis::ZERO;
        self.d_min = None;
        self.budget = Packets::ZERO;
        self.granted = 1;
        self.forget_flight();
        self.rtt = Duration::ZERO;
        self.epochs.stop();
    }

    fn refit(&mut self, now: Time) {
        self.profile.refit(now, self.config.fit, None, 0.0);
        self.refit_at = now + self.config.update_interval;
    }

    fn packets(&self, bytes: Bytes) -> Packets {
        Packets(bytes / self.packet_size)
    }
}

/// Eq. 5 in whole packets: those that it subtracts are rounded down.
fn whole_budget(
    window: Packets,
    current: Packets,
    in_flight: Packets,
    rtt: Duration,
    epoch: Duration,
) -> Packets {
    let budget = window::budget(window, current, in_flight, rtt, epoch);
    // All are whole: a quotient is off a whole number by an error of the arithmetic, or by far more.
    Packets((budget.0 - 1e-9).ceil().max(0.0))
}

impl Controller for Prototype {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.refit_at = now + self.config.update_interval;
    }

    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        self.next_number = packet.number + 1;
        self.in_flight += 1;
        self.granted = self.granted.saturating_sub(1);
        self.budget -= Packets(1.0);
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.rtt = feedback.smoothed_rtt;
        for acked in feedback.acked {
            self.on_acked(feedback.now, acked);
        }
        if !feedback.lost.is_empty() {
            self.on_lost(feedback.now, feedback.lost);
            // The authors' timer goes off at the latest a second after the last acknowledgement, whatever is in flight. Ours
            // needs a packet in flight, and in slow start each may have been declared lost by its own timer.
            if self.in_slow_start && self.granted == 0 && feedback.in_flight.is_zero() {
                self.time_out(feedback.now);
            }
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.time_out(timeout.now);
    }

    #[inline]
    fn on_tick(&mut self, now: Time, _in_flight: Bytes) {
        let Some(turn) = self.epochs.turn(now, || 0.0) else {
            return;
        };
        if now >= self.refit_at && !self.in_recovery {
            self.refit(now);
        }
        self.decide(now, turn);
    }

    fn on_packet_size(&mut self, size: Bytes) {
        let factor = self.packet_size / size;
        self.packet_size = size;
        self.window = Packets((self.window.0 * factor).round().max(1.0));
        self.profile.rescale(factor);
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.packet_size.mul_f64(self.window.0)
    }

    #[inline]
    fn allowance(&self) -> Allowance {
        Allowance::budget(if self.in_slow_start {
            self.packet_size * self.granted
        } else if self.budget < Packets(1.0) {
            Bytes::ZERO
        } else {
            self.packet_size.mul_f64(self.budget.0)
        })
    }

    #[inline]
    fn next_tick(&self) -> Option<Time> {
        self.epochs.end()
    }

    fn recovery(&self) -> Recovery {
        self.config.recovery
    }

    fn phase(&self) -> Option<controller::Phase> {
        Some(if self.in_slow_start {
            controller::Phase::SlowStart
        } else if self.in_recovery {
            controller::Phase::Recovery
        } else {
            controller::Phase::Steady
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let number = |delay: Option<Millis>| delay.map_or(f64::NAN, |delay| delay.0);
        record("window_packets", self.window.0);
        record("delay_estimate_ms", self.d_est.0);
        record("delay_max_ms", number(self.delay.d_max()));
        record("delay_min_ms", number(self.d_min.map(Millis::from)));
        record("restarts", self.restarts as f64);
    }

    fn profile(&self) -> Option<ProfileSnapshot> {
        Some(self.profile.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, tests::stays_sound};
    use proptest::prelude::*;
    use verus_core::testing::{self, Path};

    fn path() -> Path<Prototype> {
        Path::new(Prototype::new(Config::preset(Mode::Prototype)).expect("in range"))
    }

    /// One packet at a time, each answered after 40 ms, until the window has grown.
    fn grow(path: &mut Path<Prototype>, window: f64) {
        while path.controller.window < Packets(window) {
            path.send(1);
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
    }

    #[test]
    fn slow_start_ends_at_half_a_second() {
        let mut path = path();
        path.fill();
        path.wait_ms(500);
        path.ack([0]);
        assert!(path.controller.in_slow_start);
        path.fill();
        path.wait_ms(501);
        path.ack([1]);
        assert!(!path.controller.in_slow_start && path.controller.in_recovery);
    }

    #[test]
    fn slow_start_ends_where_each_packet_in_flight_was_lost_by_its_own_timer() {
        let mut path = path();
        grow(&mut path, 10.0);
        path.fill();
        let all = path.in_flight_numbers();
        path.wait_ms(200);
        path.feedback([], all, []);
        assert!(!path.controller.in_slow_start);
        assert!(path.controller.in_recovery);
        assert_eq!(path.controller.window, Packets(7.0));
        assert!(path.controller.next_tick().is_some());
    }

    #[test]
    fn slow_start_goes_on_after_a_loss_that_leaves_20_packets_and_ends_with_one_that_leaves_more() {
        for (window, goes_on) in [(28.0, true), (31.0, false)] {
            let mut path = path();
            grow(&mut path, window);
            path.send(3);
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.feedback([], [all[0]], []);
            assert_eq!(path.controller.in_slow_start, goes_on, "{window}");
            assert_eq!(path.controller.window, Packets(0.7 * window));
            assert_eq!(path.controller.in_flight, if goes_on { 2 } else { 0 });
        }
    }

    #[test]
    fn the_first_curve_has_no_point_beyond_the_loss_that_ends_slow_start() {
        let mut path = path();
        grow(&mut path, 150.0);
        path.send(1);
        let lost = path.in_flight_numbers()[0];
        while path.controller.window < Packets(200.0) {
            path.send(1);
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all.into_iter().filter(|&number| number != lost));
        }
        assert_eq!(path.controller.profile.largest(), 199);
        path.feedback([], [lost], []);
        assert_eq!(path.controller.profile.largest(), 149);
    }

    #[test]
    fn what_eq_5_subtracts_is_rounded_down() {
        // n = 40 ms / 5 ms = 8: of 14 packets in flight 6/7 · 14 = 12 are subtracted, of 13 11 (11.14).
        let budget = |in_flight: f64| {
            let rtt = Duration::from_millis(40);
            let epoch = Duration::from_millis(5);
            let window = Packets(14.0);
            whole_budget(window, Packets(in_flight), Packets(in_flight), rtt, epoch)
        };
        assert_eq!((budget(14.0), budget(13.0)), (Packets(2.0), Packets(3.0)));
    }

    #[test]
    fn a_timeout_before_the_first_acknowledgement_starts_again() {
        let mut path = path();
        path.fill();
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.restarts, 1);
        assert!(path.controller.in_slow_start);
        assert_eq!(path.controller.granted, 1);
    }

    #[test]
    fn it_restarts_when_its_curve_cannot_be_inverted() {
        // Every window charted at 40 ms: nothing brings the 42 ms that the first epoch asks for.
        let mut path = path();
        grow(&mut path, 30.0);
        path.send(2);
        path.wait_ms(40);
        let all = path.in_flight_numbers();
        path.feedback([all[1]], [all[0]], []);
        assert!(!path.controller.in_slow_start && path.controller.in_recovery);
        for _ in 0..4 {
            path.wait_ms(5);
            path.tick();
        }
        assert_eq!(path.controller.restarts, 1);
        assert!(path.controller.in_slow_start);
        assert_eq!(path.controller.window, Packets(1.0));
        assert_eq!(path.controller.next_tick(), None);
    }

    #[test]
    fn its_window_survives_a_timeout_which_makes_it_run_away() {
        let mut path = path();
        grow(&mut path, 20.0);
        path.send(5);
        path.wait_ms(500);
        path.time_out();
        assert!(
            !path.controller.in_slow_start,
            "the first timeout ends slow start"
        );
        assert_eq!(path.controller.in_flight, 5);
        path.time_out();
        assert_eq!(path.controller.window, Packets(20.0));
        assert_eq!(path.controller.in_flight, 0);
        assert!(path.controller.in_recovery);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_prototype_stays_sound_and_repeats(
            ratio in 1.1f64..8.0,
            steps in testing::steps(),
        ) {
            let config = Config { ratio, ..Config::preset(Mode::Prototype) };
            stays_sound(|| Prototype::new(config.clone()).expect("in range"), &steps);
        }
    }
}
