//! NewReno: additive increase, multiplicative decrease, in the form of RFC 9002.
//!
//! In slow start the window grows by the packets acknowledged (RFC 9002 §7.3.1); in congestion
//! avoidance, by one packet per window acknowledged (§7.3.3; byte counting, RFC 3465). It halves
//! once per round on loss (§7.3.2), and collapses to one packet on a timeout (RFC 5681 §3.1). Every
//! transmission has its own number, so the partial acknowledgements that gave NewReno its name (RFC
//! 6582) mean nothing here. Their effect remains: one reduction for one loss event, as
//! [`episode`](verus_core::episode) delimits it. On the way down the sender follows proportional
//! rate reduction, and a reduction that proves groundless is undone.

use super::hystart::{HyStart, Watch};
use super::{Acknowledgement, Common, ECN_MEANING, Law, PERIOD_MEANING, PERIODS, Tcp, Window};
use crate::initial_window::initial_window;
use verus_core::configuration::Configured;
use verus_core::controller::Controller;
use verus_core::units::Time;
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, SHARE, WINDOW_PACKETS};
use verus_words::spec::{Row, field, words};

/// A flow's NewReno.
pub type NewReno = Tcp<Reno>;

/// A configuration of NewReno.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The settings that all TCPs have.
    pub common: Common,
    /// The rule that ends slow start before a loss (Linux's Reno has none: off).
    pub hystart: HyStart,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            common: Common::default(),
            hystart: HyStart::Off,
        }
    }
}

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        words!(common.period, "period", PERIODS, PERIOD_MEANING),
        initial_window(field!(common.initial_window_packets)),
        field!(common.min_window_packets).within(
            "packets",
            "no loss takes the window below (RFC 9002 §7.2)",
            WINDOW_PACKETS,
        ),
        field!(common.decrease_factor).within(
            "",
            "what a loss leaves of the window (RFC 9002 §7.3.2)",
            SHARE,
        ),
        words!(hystart, HyStart::WORDS, "how slow start ends before a loss"),
        field!(common.ecn).flag(ECN_MEANING),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("NewReno".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(NewReno::new(self.clone()).expect(CHECKED))
    }
}

/// Additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub struct Reno {
    config: Config,
    watch: Watch,
}

impl Law for Reno {
    type Config = Config;
    type Memory = ();

    fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        let watch = Watch::new(config.hystart, Time::ZERO);
        Ok(Reno { config, watch })
    }

    fn common(&self) -> &Common {
        &self.config.common
    }

    fn memory(&self) {}

    fn recall(&mut self, (): ()) {}

    fn on_start(&mut self, now: Time) {
        self.watch = Watch::new(self.config.hystart, now);
    }

    #[inline]
    fn grow(&mut self, window: &mut Window, ack: &Acknowledgement<'_>) {
        let mut acked = ack.supporting;
        if acked > 0.0 && window.in_slow_start() {
            acked = ack.slow_start(window, &mut self.watch);
        }
        if acked > 0.0 {
            window.avoid(acked);
        }
    }

    fn on_timeout(&mut self, now: Time, _window: &Window, _reduces: bool) {
        self.watch = Watch::new(self.config.hystart, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::episode::Period;
    use verus_core::testing::{self, Path, SIZE};

    fn new_reno() -> Path<NewReno> {
        Path::new(NewReno::new(Config::default()).expect("the default is in range"))
    }

    /// In congestion avoidance at 10 packets, all of them in flight.
    fn at_ten_packets() -> Path<NewReno> {
        at_ten_packets_with(Config::default())
    }

    fn at_ten_packets_with(config: Config) -> Path<NewReno> {
        let mut path = Path::new(NewReno::new(config).expect("in range"));
        path.fill();
        path.wait_ms(40);
        path.ack(0..10);
        path.fill();
        path.wait_ms(40);
        path.feedback(11..30, [10], []);
        // 20 → 10 packets. The recovery ends with the first packet sent since.
        path.fill();
        path.wait_ms(40);
        let sent_since = path.in_flight_numbers();
        path.ack(sent_since);
        path.controller.window.packets = 10.0;
        path.controller.limit = SIZE * 10;
        path.fill();
        path
    }

    fn window(path: &Path<NewReno>) -> f64 {
        path.controller.window.packets
    }

    #[test]
    fn slow_start_doubles_each_round() {
        let mut path = new_reno();
        assert_eq!(path.controller.window(), SIZE * 10);
        path.fill();
        path.wait_ms(40);
        path.ack(0..10);
        assert_eq!(path.controller.window(), SIZE * 20);
    }

    #[test]
    fn congestion_avoidance_adds_a_packet_a_round() {
        let mut path = at_ten_packets();
        path.wait_ms(40);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        // 10 + 1/10, then 10.1 + 1/10.1 = 10.19901.
        assert_eq!(window(&path), 10.1);
        path.ack([first + 1]);
        assert!((window(&path) - 10.199_01).abs() < 1e-5);
        path.ack(first + 2..first + 10);
        // Ten packets acknowledged: just under one more.
        assert!((10.9..11.0).contains(&window(&path)));
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut path = at_ten_packets();
        let first = path.in_flight_numbers()[0];
        path.wait_ms(40);
        path.feedback([first + 1], [first], []);
        assert_eq!(window(&path), 5.0);
        assert_eq!(path.controller.window.threshold, Some(5.0));
    }

    #[test]
    fn losses_of_one_round_are_one_reduction() {
        let mut path = at_ten_packets();
        let first = path.in_flight_numbers()[0];
        path.wait_ms(40);
        path.feedback([first + 1], [first], []);
        path.feedback([first + 4], [first + 2, first + 3], []);
        assert_eq!(window(&path), 5.0);
    }

    /// One of ten packets is lost, and packet 10 repeats it.
    fn recovering(period: Period) -> (Path<NewReno>, u64) {
        let mut path = at_ten_packets_with(Config {
            common: Common {
                period,
                ..Common::default()
            },
            ..Config::default()
        });
        let first = path.in_flight_numbers()[0];
        path.wait_ms(40);
        path.feedback([first + 1], [first], []);
        path.send(2);
        path.wait_ms(40);
        path.ack(first + 2..first + 10);
        assert_eq!(window(&path), 5.0);
        (path, first)
    }

    #[test]
    fn by_rounds_a_repeated_packet_lost_again_is_another_reduction() {
        let (mut path, first) = recovering(Period::Round);
        path.feedback([first + 11], [first + 10], []);
        assert_eq!(window(&path), 2.5);
    }

    #[test]
    fn until_repair_a_repeated_packet_lost_again_prolongs_the_recovery() {
        let (mut path, first) = recovering(Period::Repair);
        path.feedback([first + 11], [first + 10], []);
        assert_eq!(window(&path), 5.0);
        // Packet 12 repeats it once more; until that arrives the window does not grow.
        path.fill();
        path.wait_ms(40);
        path.ack([first + 13]);
        assert_eq!(window(&path), 5.0);
        path.ack([first + 12]);
        assert_eq!(window(&path), 5.2);
    }

    #[test]
    fn until_repair_new_data_lost_meanwhile_reduces_at_the_end() {
        let (mut path, first) = recovering(Period::Repair);
        path.send(2);
        path.wait_ms(40);
        path.feedback([first + 12], [first + 11], []);
        assert_eq!(window(&path), 5.0);
        path.ack([first + 10]);
        assert_eq!(window(&path), 2.5);
    }

    #[test]
    fn the_window_does_not_grow_until_a_packet_sent_since_the_reduction_is_acknowledged() {
        let mut path = at_ten_packets();
        let first = path.in_flight_numbers()[0];
        path.wait_ms(40);
        path.feedback([first + 1], [first], []);
        path.fill();
        path.ack(first + 2..first + 10);
        assert_eq!(window(&path), 5.0);
        path.fill();
        path.wait_ms(40);
        path.ack([first + 10]);
        assert_eq!(window(&path), 5.2);
    }

    #[test]
    fn no_loss_takes_the_window_below_two_packets() {
        let mut path = Path::new(
            NewReno::new(Config {
                common: Common {
                    period: Period::Round,
                    ..Common::default()
                },
                ..Config::default()
            })
            .expect("in range"),
        );
        for _ in 0..10 {
            path.fill();
            path.wait_ms(40);
            let newest = *path.in_flight_numbers().last().expect("filled");
            path.feedback([], [newest], []);
        }
        assert_eq!(window(&path), 2.0);
    }

    #[test]
    fn a_timeout_leaves_one_packet_and_half_the_flight_as_threshold() {
        let mut path = at_ten_packets();
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        assert_eq!(path.controller.window.threshold, Some(5.0));
        path.fill();
        path.wait_ms(2000);
        path.time_out();
        // The flight is 1 packet by now; the threshold remains half of the first flight.
        assert_eq!(path.controller.window.threshold, Some(5.0));
    }

    #[test]
    fn after_a_timeout_the_window_doubles_up_to_the_threshold() {
        let mut path = at_ten_packets();
        path.wait_ms(1000);
        path.time_out();
        let mut windows = Vec::new();
        for _ in 0..4 {
            path.fill();
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all);
            windows.push(window(&path));
        }
        // 2, 4, then 5 and the rest of the 4 acknowledged (3) at 1/5 each: 5.6; then +5/5.6.
        assert_eq!(windows[..3], [2.0, 4.0, 5.6]);
        assert!((windows[3] - (5.6 + 5.0 / 5.6)).abs() < 1e-9);
    }

    #[test]
    fn a_loss_that_was_none_gives_the_window_back() {
        let mut path = at_ten_packets();
        let first = path.in_flight_numbers()[0];
        path.wait_ms(40);
        path.feedback([first + 3], [first, first + 1], []);
        path.feedback([], [], [first]);
        assert_eq!(window(&path), 5.0, "one of two may still be lost");
        path.feedback([], [], [first + 1]);
        assert_eq!(window(&path), 10.0);
        // And a real loss among the same packets still counts.
        path.feedback([first + 9], [first + 2], []);
        assert_eq!(window(&path), 5.0);
    }

    #[test]
    fn a_timeout_that_was_none_gives_window_and_threshold_back() {
        let mut path = at_ten_packets();
        let before = path.controller.window;
        let late = path.in_flight_numbers();
        path.wait_ms(1000);
        path.time_out();
        path.fill();
        path.wait_ms(2000);
        path.time_out();
        path.fill();
        path.feedback([], [], [late[0]]);
        assert_eq!(path.controller.window, before);
    }

    #[test]
    fn a_timeout_is_real_once_a_packet_sent_since_is_acknowledged_first() {
        let mut path = at_ten_packets();
        let late = path.in_flight_numbers();
        path.wait_ms(1000);
        path.time_out();
        path.fill();
        path.wait_ms(40);
        let since = path.in_flight_numbers();
        path.ack(since);
        path.feedback([], [], [late[0]]);
        assert!(window(&path) < 4.0);
    }

    #[test]
    fn losses_behind_a_spurious_timeout_still_count() {
        let mut path = at_ten_packets();
        let late = path.in_flight_numbers();
        path.wait_ms(1000);
        path.time_out();
        path.feedback([], [], [late[1]]);
        assert_eq!(window(&path), 10.0, "the first to arrive was not lost");
        // The others are in flight again; the first of them has been overtaken for too long.
        path.revive();
        path.feedback(late[2..].iter().copied(), [late[0]], []);
        assert_eq!(window(&path), 5.0);
    }

    #[test]
    fn a_flow_that_its_source_limits_does_not_grow() {
        let mut path = new_reno();
        path.app_limited = true;
        path.send(5);
        path.wait_ms(40);
        path.ack(0..5);
        assert_eq!(window(&path), 10.0);
    }

    #[test]
    fn a_new_packet_size_keeps_the_bytes() {
        let mut path = new_reno();
        path.controller.on_packet_size(SIZE / 2);
        assert_eq!(path.controller.window(), SIZE * 10);
        assert_eq!(window(&path), 20.0);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            for period in [Period::Round, Period::Repair] {
                let config = Config { common: Common { period, ..Common::default() }, ..Config::default() };
                testing::assert_sound(|| NewReno::new(config.clone()).expect("in range"), &steps);
            }
        }

        #[test]
        fn losses_that_all_arrive_leave_no_trace(count in 1u64..9, acked in 0u64..9) {
            let mut path = at_ten_packets();
            let before = path.controller.window;
            let first = path.in_flight_numbers()[0];
            path.wait_ms(40);
            let acked = acked.min(9 - count);
            path.feedback(first + count..first + count + acked, first..first + count, []);
            for number in first..first + count {
                path.feedback([], [], [number]);
            }
            prop_assert_eq!(path.controller.window, before);
        }
    }
}
