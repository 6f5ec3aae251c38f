//! Cubic: the window as a cubic function of the time since the last loss (RFC 9438).
//!
//! After a loss at W_max the window falls to β W_max and returns quickly towards W_max. It lingers
//! there, where the path was last full, and then accelerates away in search of more:
//!
//! ```text
//! W_cubic(t) = C (t − K)³ + W_max          (Fig. 1)
//! K = ∛((W_max − cwnd_epoch) / C)          (Fig. 2)
//! ```
//!
//! Growth thus depends on time, not on the round-trip time; where Reno would be faster, its window
//! is kept beside and used (§4.3). Slow start is left by [`hystart`](super::hystart); on the way
//! down the sender follows proportional rate reduction; a reduction that proves groundless is
//! undone (§4.9).
//!
//! Where the RFC and Linux differ the field says so. The defaults are Linux's there, since it is
//! Linux's Cubic that everything else is compared with.

use super::hystart::{HyStart, Watch};
use super::{Acknowledgement, Common, ECN_MEANING, Law, PERIOD_MEANING, PERIODS, Tcp, Window};
use crate::initial_window::initial_window;
use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Departure, Feedback};
use verus_core::units::{Duration, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, SHARE, WINDOW_PACKETS, Within};
use verus_words::spec::{Row, Words, field, words};

/// A flow's Cubic.
pub type Cubic = Tcp<Curve>;

/// A window grows by no more than this share of itself in a round (§4.2: target ≤ 1.5 cwnd).
const MAX_GROWTH: f64 = 0.5;

/// How far ahead the cubic function is read: growth aims at its value one round trip from now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookahead {
    /// The least round-trip time of the flow's life (Linux).
    #[default]
    MinRtt,
    /// The smoothed round-trip time (RFC 9438 §4.2). Where the flow's own queue makes up most of
    /// the round trip, this grows faster the longer that queue is.
    SmoothedRtt,
}

impl Lookahead {
    const WORDS: Words<Lookahead> = &[
        ("min_rtt", Lookahead::MinRtt),
        ("smoothed_rtt", Lookahead::SmoothedRtt),
    ];
}

/// A configuration of Cubic.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The settings that all TCPs have.
    pub common: Common,
    /// C: how fast the cubic function grows, in packets/s³ (§5.1: 0.4).
    pub c: f64,
    /// Whether a flow whose window did not reach its last maximum makes room for others (§4.7).
    pub fast_convergence: bool,
    /// Whether the window is never less than Reno's would be (§4.3).
    pub reno_friendly: bool,
    /// The rule that ends slow start before a loss (§4.10).
    pub hystart: HyStart,
    /// The time ahead at which the cubic function is read.
    pub lookahead: Lookahead,
    /// The least growth in a round, as a share of the window. It applies before the first loss and
    /// after a timeout, while no maximum is known (Linux: 0.05; the RFC has no such rule: 0).
    pub uncharted_growth: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            common: Common {
                decrease_factor: 0.7,
                ..Common::default()
            },
            c: 0.4,
            fast_convergence: true,
            reno_friendly: true,
            hystart: HyStart::Classic,
            lookahead: Lookahead::MinRtt,
            uncharted_growth: 0.05,
        }
    }
}

impl Config {
    /// α_cubic = 3 (1 − β) / (1 + β): Reno's additive increase, fitted to Cubic's decrease (§4.3).
    fn alpha(&self) -> f64 {
        3.0 * (1.0 - self.common.decrease_factor) / (1.0 + self.common.decrease_factor)
    }
}

const C: Within = Within {
    words: "above 0 and at most 1000",
    valid: |c| c > 0.0 && c <= 1000.0,
};
const GROWTH: Within = Within {
    words: "between 0 and 0.5",
    valid: |share| (0.0..=MAX_GROWTH).contains(&share),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        words!(common.period, "period", PERIODS, PERIOD_MEANING),
        words!(
            lookahead,
            Lookahead::WORDS,
            "how far ahead the cubic function is read (Linux; §4.2)"
        ),
        initial_window(field!(common.initial_window_packets)),
        field!(common.min_window_packets).within(
            "packets",
            "no loss takes the window below (RFC 9438 §4.6)",
            WINDOW_PACKETS,
        ),
        field!(c).within(
            "packets/s³",
            "C, how fast the cubic function grows (§5.1)",
            C,
        ),
        field!(common.decrease_factor).within(
            "",
            "β, what a loss leaves of the window (§4.6)",
            SHARE,
        ),
        field!(fast_convergence).flag("makes room for new flows (§4.7)"),
        field!(reno_friendly).flag("never slower than Reno (§4.3)"),
        words!(
            hystart,
            HyStart::WORDS,
            "how slow start ends before a loss (§4.10, RFC 9406)"
        ),
        field!(uncharted_growth).within(
            "",
            "least growth a round while no maximum is known (Linux)",
            GROWTH,
        ),
        field!(common.ecn).flag(ECN_MEANING),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Cubic".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Cubic::new(self.clone()).expect(CHECKED))
    }
}

/// A stretch of congestion avoidance between two reductions (§4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Epoch {
    /// epoch_start, later by any time in which the source kept the flow idle (§5.8).
    start: Time,
    /// K: seconds from the start to the plateau.
    k: f64,
    /// The height of the plateau: W_max, or the window at the start if that was higher.
    plateau: f64,
    /// W_est: the window that Reno would have.
    reno: f64,
}

/// The state that an undo restores besides cwnd and ssthresh (§4.9).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// W_max; `None` before the first loss and after a timeout (§4.8).
    w_max: Option<f64>,
    /// cwnd_prior: the window just before the last reduction.
    prior: f64,
    /// `None` until congestion avoidance (re)starts.
    epoch: Option<Epoch>,
}

/// The cubic function of a flow, and where on it the flow is.
#[derive(Clone, Debug)]
pub struct Curve {
    config: Config,
    alpha: f64,
    memory: Memory,
    watch: Watch,
    /// The time at which the window was last updated.
    considered_at: Time,
}

impl Curve {
    #[inline]
    fn avoid(&mut self, cwnd: &mut Window, feedback: &Feedback<'_>, acked: f64) {
        let window = cwnd.packets;
        let epoch = match &mut self.memory.epoch {
            Some(epoch) => epoch,
            None => self.memory.epoch.insert(begin_epoch(
                &self.config,
                feedback.now,
                window,
                self.memory.w_max,
            )),
        };
        let lookahead = match self.config.lookahead {
            Lookahead::MinRtt => feedback.min_rtt,
            Lookahead::SmoothedRtt => feedback.smoothed_rtt,
        };
        let t = seconds(feedback.now.since(epoch.start) + lookahead);
        let target = w_cubic(self.config.c, t, epoch);
        // §4.2: the target is at least the window and at most half as much again.
        let mut gain = (target - window).clamp(0.0, MAX_GROWTH * window);
        if self.memory.w_max.is_none() {
            gain = gain.max(self.config.uncharted_growth * window);
        }
        // §4.4, §4.5: cwnd += (target − cwnd) / cwnd for each packet acknowledged.
        let share = acked / window;
        let mut grown = window + gain * share;
        if self.config.reno_friendly {
            // §4.3: W_est += α_cubic / cwnd for each packet acknowledged, and with α = 1 once the
            // window before the reduction is reached again.
            let alpha = if epoch.reno < self.memory.prior {
                self.alpha
            } else {
                1.0
            };
            epoch.reno += alpha * share;
            // Like Linux whenever W_est is ahead of the window, not only when it is ahead of
            // W_cubic: the window may lag behind that.
            grown = grown.max(epoch.reno);
        }
        cwnd.packets = grown;
    }

    /// The source, not the window, holds the sender back: the window stays, and the time does not
    /// count (§5.8).
    fn pause(&mut self, now: Time) {
        if let Some(epoch) = &mut self.memory.epoch {
            epoch.start += now.since(self.considered_at);
        }
        self.considered_at = now;
    }
}

/// Congestion avoidance begins, with a known maximum or, after slow start or a timeout, on the
/// plateau itself: K = 0 and W_max = cwnd (§4.8, §4.10).
#[cold]
fn begin_epoch(config: &Config, now: Time, window: f64, w_max: Option<f64>) -> Epoch {
    let plateau = w_max.map_or(window, |w_max| w_max.max(window));
    let k = cube_root((plateau - window) / config.c);
    Epoch {
        start: now,
        k,
        plateau,
        reno: window,
    }
}

/// W_cubic(t) (Fig. 1).
#[inline]
fn w_cubic(c: f64, t: f64, epoch: &Epoch) -> f64 {
    let d = t - epoch.k;
    c * d * d * d + epoch.plateau
}

/// A multiplication, where `Duration::as_secs_f64` divides: this runs for every acknowledgement.
#[inline]
fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-9
}

/// ∛x for x ≥ 0, from exactly rounded operations only: `f64::cbrt` may differ between machines in
/// its last digit, and with it a run.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is within a few percent; each Newton step squares that error.
    const THIRD_OF_BIAS: u64 = 0x2a9f_7893_782d_a1ce;
    let mut root = f64::from_bits(x.to_bits() / 3 + THIRD_OF_BIAS);
    for _ in 0..5 {
        root -= (root - x / (root * root)) / 3.0;
    }
    root
}

impl Law for Curve {
    type Config = Config;
    type Memory = Memory;

    fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Curve {
            alpha: config.alpha(),
            memory: Memory {
                w_max: None,
                prior: config
                    .common
                    .initial_window_packets
                    .max(config.common.min_window_packets),
                epoch: None,
            },
            watch: Watch::new(config.hystart, Time::ZERO),
            config,
            considered_at: Time::ZERO,
        })
    }

    fn common(&self) -> &Common {
        &self.config.common
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn recall(&mut self, memory: Memory) {
        self.memory = memory;
    }

    fn on_start(&mut self, now: Time) {
        self.watch = Watch::new(self.config.hystart, now);
        self.considered_at = now;
    }

    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        if packet.in_flight == packet.size {
            // Nothing was in flight: the flow was idle since it last heard anything.
            self.pause(packet.at);
        }
    }

    #[inline]
    fn grow(&mut self, window: &mut Window, ack: &Acknowledgement<'_>) {
        let mut acked = ack.supporting;
        if acked == 0.0 {
            self.pause(ack.feedback.now);
            return;
        }
        if window.in_slow_start() {
            acked = ack.slow_start(window, &mut self.watch);
        }
        if acked > 0.0 {
            self.avoid(window, ack.feedback, acked);
        }
        self.considered_at = ack.feedback.now;
    }

    /// §4.6, §4.7.
    fn reduce(&mut self, window: &mut Window) {
        let Common {
            decrease_factor,
            min_window_packets,
            ..
        } = self.config.common;
        let cwnd = window.packets;
        self.memory.prior = cwnd;
        self.memory.w_max = Some(match self.memory.w_max {
            // §4.7: the path got narrower or another flow came; leave it some room.
            Some(w_max) if self.config.fast_convergence && cwnd < w_max => {
                cwnd * (1.0 + decrease_factor) / 2.0
            }
            _ => cwnd,
        });
        self.memory.epoch = None;
        window.reduce(decrease_factor, min_window_packets);
    }

    /// §4.8: as Reno, with β for the threshold. The congestion avoidance that follows knows no
    /// maximum.
    fn on_timeout(&mut self, now: Time, window: &Window, reduces: bool) {
        if reduces {
            self.memory.prior = window.packets;
        }
        self.memory.w_max = None;
        self.memory.epoch = None;
        self.watch = Watch::new(self.config.hystart, now);
        self.considered_at = now;
    }

    fn rescale(&mut self, factor: f64) {
        self.memory.prior *= factor;
        self.memory.w_max = self.memory.w_max.map(|w_max| w_max * factor);
        // K depends on packets; the curve begins anew from where it is.
        self.memory.epoch = None;
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let Memory { w_max, epoch, .. } = &self.memory;
        record("w_max_packets", w_max.unwrap_or(f64::NAN));
        record("w_est_packets", epoch.map_or(f64::NAN, |epoch| epoch.reno));
        record("k_s", epoch.map_or(f64::NAN, |epoch| epoch.k));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::episode::Period;
    use verus_core::testing::{self, Path, SIZE};

    fn cubic(config: Config) -> Path<Cubic> {
        Path::new(Cubic::new(config).expect("in range"))
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1.0)
    }

    /// In congestion avoidance, with this window all in flight, after a loss at `w_max`. Nothing
    /// has been acknowledged since. The least round-trip time is 100 ms.
    fn after_loss(config: Config, window: f64, w_max: Option<f64>) -> Path<Cubic> {
        let mut path = cubic(config);
        path.send(1);
        path.wait_ms(100);
        path.ack([0]);
        let threshold = Some(window);
        path.controller.window = Window {
            packets: window,
            threshold,
        };
        path.controller.law.memory = Memory {
            w_max,
            prior: w_max.unwrap_or(window),
            epoch: None,
        };
        path.controller.limit = SIZE.mul_f64(window);
        path.fill();
        path
    }

    fn window(path: &Path<Cubic>) -> f64 {
        path.controller.window.packets
    }

    fn cubic_only() -> Config {
        Config {
            reno_friendly: false,
            uncharted_growth: 0.0,
            ..Config::default()
        }
    }

    #[test]
    fn the_cube_root_is_that_of_the_library() {
        for x in [1e-9, 0.1, 1.0, 2.0, 75.0, 1e3, 123_456.789, 1e12] {
            assert!((cube_root(x) - f64::cbrt(x)).abs() <= 1e-15 * f64::cbrt(x) * 4.0);
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    #[test]
    fn k_is_the_time_to_return_to_the_maximum() {
        // Fig. 2: ∛((100 − 70) / 0.4) = ∛75 = 4.217163 s.
        let epoch = begin_epoch(&Config::default(), Time::ZERO, 70.0, Some(100.0));
        assert!(close(epoch.k, 4.217_163_327));
        // Fig. 1: W_cubic(0) = 100 − 0.4 × 75 = 70; W_cubic(K) = 100; W_cubic(K + 5) = 150.
        assert!(close(w_cubic(0.4, 0.0, &epoch), 70.0));
        assert!(close(w_cubic(0.4, epoch.k, &epoch), 100.0));
        assert!(close(w_cubic(0.4, epoch.k + 5.0, &epoch), 150.0));
    }

    #[test]
    fn each_packet_acknowledged_closes_a_window_th_of_the_way_to_the_target() {
        let mut path = after_loss(cubic_only(), 70.0, Some(100.0));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        // The epoch starts here (t = 0). The target is W_cubic one round trip (100 ms) ahead:
        // 0.4 (0.1 − 4.217163)³ + 100 = 72.083872. The window becomes 70 + 2.083872 / 70.
        assert!(close(window(&path), 70.029_769_6));
    }

    #[test]
    fn the_lookahead_can_be_the_smoothed_round_trip() {
        let config = Config {
            lookahead: Lookahead::SmoothedRtt,
            ..cubic_only()
        };
        let mut path = after_loss(config, 70.0, Some(100.0));
        path.wait_ms(900);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        // SRTT = (7 × 100 + 900) / 8 = 200 ms: W_cubic(0.2) = 0.4 (0.2 − 4.217163)³ + 100 =
        // 74.068...
        let target = 100.0 - 0.4 * 4.017_163_327_f64 * 4.017_163_327 * 4.017_163_327;
        assert!(close(window(&path), 70.0 + (target - 70.0) / 70.0));
    }

    #[test]
    fn a_round_adds_at_most_half_the_window() {
        let mut path = after_loss(cubic_only(), 20.0, Some(20.0));
        let first = path.in_flight_numbers()[0];
        path.wait_ms(100);
        path.ack([first]);
        path.wait_ms(60_000);
        // W_cubic(60.1 s) is above 80,000 packets: the target is 1.5 × the window.
        let before = window(&path);
        path.ack([first + 1]);
        assert!(close(window(&path), before + 0.5));
    }

    #[test]
    fn below_the_maximum_reno_may_be_faster() {
        let config = Config {
            uncharted_growth: 0.0,
            ..Config::default()
        };
        // α = 3 × 0.3 / 1.7 = 0.529412.
        assert!(close(config.alpha(), 0.529_411_765));
        // At 10 packets after a loss at 10.01, W_cubic hardly moves within a round; Reno's window
        // grows by α / 10 for the first packet.
        let mut path = after_loss(config, 10.0, Some(10.01));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        assert!(close(window(&path), 10.052_941_176));
    }

    #[test]
    fn renos_window_grows_by_one_a_round_beyond_the_old_one() {
        let mut path = after_loss(Config::default(), 10.0, Some(10.0));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        // cwnd_prior = 10 is reached: α = 1.
        assert!(close(window(&path), 10.1));
    }

    #[test]
    fn a_loss_leaves_seven_tenths() {
        let mut path = after_loss(cubic_only(), 100.0, None);
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        assert_eq!(window(&path), 70.0);
        assert_eq!(path.controller.law.memory.w_max, Some(100.0));
        assert_eq!(path.controller.window.threshold, Some(70.0));
    }

    #[test]
    fn a_window_that_did_not_reach_its_maximum_makes_room() {
        let mut path = after_loss(cubic_only(), 80.0, Some(100.0));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        // §4.7: 80 × (1 + 0.7) / 2 = 68.
        assert_eq!(path.controller.law.memory.w_max, Some(68.0));
        let config = Config {
            fast_convergence: false,
            ..cubic_only()
        };
        let mut path = after_loss(config, 80.0, Some(100.0));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        assert_eq!(path.controller.law.memory.w_max, Some(80.0));
    }

    #[test]
    fn losses_of_one_round_are_one_reduction() {
        let mut path = after_loss(cubic_only(), 100.0, None);
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        path.feedback([first + 4], [first + 2, first + 3], []);
        assert_eq!(window(&path), 70.0);
    }

    #[test]
    fn a_timeout_forgets_the_maximum_and_restarts_from_one_packet() {
        let mut path = after_loss(cubic_only(), 100.0, Some(120.0));
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        assert_eq!(path.controller.window.threshold, Some(70.0));
        assert_eq!(path.controller.law.memory.w_max, None);
        // Slow start to 70; then the plateau is there: K = 0.
        while path.controller.law.memory.epoch.is_none() {
            path.fill();
            path.wait_ms(100);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
        let epoch = path.controller.law.memory.epoch.expect("just begun");
        assert_eq!((epoch.k, epoch.plateau), (0.0, 70.0));
    }

    #[test]
    fn without_a_known_maximum_the_window_grows_a_twentieth_a_round() {
        let config = Config {
            reno_friendly: false,
            ..Config::default()
        };
        let mut path = after_loss(config, 100.0, None);
        path.wait_ms(100);
        let all = path.in_flight_numbers();
        path.ack(all);
        // W_cubic(0.1 s) = 100.0004: the twentieth, 5 packets for 100 acknowledged, is more.
        assert!(close(window(&path), 105.0));
    }

    #[test]
    fn a_loss_that_was_none_restores_everything() {
        let mut path = after_loss(cubic_only(), 70.0, Some(100.0));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        let before = (path.controller.window, path.controller.law.memory);
        path.wait_ms(10);
        path.feedback([first + 4], [first + 1, first + 2], []);
        assert!(window(&path) < 50.0);
        path.feedback([], [], [first + 1, first + 2]);
        assert_eq!((path.controller.window, path.controller.law.memory), before);
        assert_eq!(path.controller.window(), SIZE.mul_f64(before.0.packets));
    }

    #[test]
    fn a_timeout_that_was_none_restores_everything() {
        let mut path = after_loss(cubic_only(), 70.0, Some(100.0));
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        let before = (path.controller.window, path.controller.law.memory);
        path.wait_ms(2000);
        path.time_out();
        path.fill();
        path.feedback([], [], [first + 1]);
        assert_eq!((path.controller.window, path.controller.law.memory), before);
    }

    #[test]
    fn time_without_data_does_not_count() {
        let ack_two = |idle_ms| {
            let mut path = after_loss(cubic_only(), 70.0, Some(100.0));
            path.wait_ms(100);
            let all = path.in_flight_numbers();
            path.ack(all);
            path.wait_ms(idle_ms);
            path.send(1);
            path.wait_ms(100);
            let all = path.in_flight_numbers();
            path.ack(all);
            window(&path)
        };
        assert_eq!(ack_two(0), ack_two(5000));
    }

    #[test]
    fn time_limited_by_the_source_does_not_count() {
        let mut path = after_loss(cubic_only(), 70.0, Some(100.0));
        path.wait_ms(100);
        let all = path.in_flight_numbers();
        path.ack(all);
        let before = window(&path);
        path.app_limited = true;
        for _ in 0..50 {
            path.send(2);
            path.wait_ms(100);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
        assert_eq!(window(&path), before);
        let epoch = path
            .controller
            .law
            .memory
            .epoch
            .expect("in congestion avoidance");
        assert_eq!(path.now.since(epoch.start), Duration::ZERO);
    }

    #[test]
    fn hystart_makes_the_window_the_threshold() {
        let mut path = cubic(Config::default());
        path.fill();
        path.wait_ms(100);
        for number in path.in_flight_numbers() {
            path.ack([number]);
        }
        // A round of 20 whose delay has risen by 20 ms, above clamp(100/8, 4, 16) = 12.5 ms.
        path.fill();
        path.wait_ms(120);
        let first = path.in_flight_numbers()[0];
        for number in first..first + 9 {
            path.ack([number]);
        }
        // Eight samples were collected while the window grew to 28; the ninth left slow start.
        assert_eq!(path.controller.window.threshold, Some(28.0));
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            for hystart in [HyStart::Off, HyStart::Classic, HyStart::PlusPlus] {
                let period = if hystart == HyStart::Off { Period::Round } else { Period::Repair };
                let config = Config {
                    common: Common { period, ..Common::default() },
                    hystart,
                    ..Config::default()
                };
                testing::assert_sound(|| Cubic::new(config.clone()).expect("in range"), &steps);
            }
        }

        #[test]
        fn losses_that_all_arrive_leave_no_trace(count in 1u64..9, acked in 1u64..9) {
            let mut path = after_loss(cubic_only(), 70.0, Some(100.0));
            path.wait_ms(100);
            let first = path.in_flight_numbers()[0];
            path.ack([first]);
            let before = (path.controller.window, path.controller.law.memory);
            let (from, to) = (first + 1, first + 1 + count);
            path.feedback(to..to + acked, from..to, []);
            for number in from..to {
                path.feedback([], [], [number]);
            }
            prop_assert_eq!(
            (path.controller.window, path.controller.law.memory),
            before
        );
        }
    }
}
