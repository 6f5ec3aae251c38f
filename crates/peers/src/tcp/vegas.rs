//! Vegas: the queue that the flow itself keeps, held between two and four packets.
//!
//! Were the path empty, a window W would yield the rate W / BaseRTT; it yields W / RTT. The
//! difference times BaseRTT is how many of the flow's packets wait in queues (Brakmo and Peterson,
//! "TCP Vegas: End to End Congestion Avoidance on a Global Internet", IEEE JSAC 13(8), 1995, §III).
//! Once per round the window grows by a packet if fewer than α wait and shrinks by one if more
//! than β do. In slow start it doubles every other round, so that in between a settled window can
//! be measured, until more than γ wait.
//!
//! BaseRTT is the least round-trip time ever; the round's RTT is the least of its samples, which
//! leaves out the acknowledgements delayed on the way back. A round of two samples or fewer cannot
//! tell a queue from a delayed acknowledgement; then Reno decides (both as in Linux). Losses and
//! timeouts are NewReno's.

use super::{Acknowledgement, Common, ECN_MEANING, Law, PERIOD_MEANING, PERIODS, Tcp, Window};
use crate::initial_window::initial_window;
use verus_core::configuration::Configured;
use verus_core::controller::Controller;
use verus_core::units::{Duration, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, SHARE, WINDOW_PACKETS, Within};
use verus_words::spec::{Row, field, words};

/// A flow's Vegas.
pub type Vegas = Tcp<Queue>;

/// A round with at most this many samples is Reno's (Linux).
const TOO_FEW_SAMPLES: u64 = 2;

/// A configuration of Vegas.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The settings that all TCPs have. A queue cannot take the window below `min_window_packets`
    /// either.
    pub common: Common,
    /// α: the window grows while fewer packets than this wait (§III.C; 2 in Linux).
    pub alpha_packets: f64,
    /// β: the window shrinks while more packets than this wait (§III.C; 4 in Linux).
    pub beta_packets: f64,
    /// γ: slow start ends when more packets than this wait (§III.D: 1).
    pub gamma_packets: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            common: Common::default(),
            alpha_packets: 2.0,
            beta_packets: 4.0,
            gamma_packets: 1.0,
        }
    }
}

const QUEUE_PACKETS: Within = Within {
    words: "above 0 and at most 1000000 packets",
    valid: |packets| packets > 0.0 && packets <= 1e6,
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        words!(common.period, "period", PERIODS, PERIOD_MEANING),
        field!(alpha_packets).within(
            "packets",
            "α, the window grows while fewer wait",
            QUEUE_PACKETS,
        ),
        field!(beta_packets).within(
            "packets",
            "β, the window shrinks while more wait",
            QUEUE_PACKETS,
        ),
        field!(gamma_packets).within(
            "packets",
            "γ, slow start ends when more wait",
            QUEUE_PACKETS,
        ),
        initial_window(field!(common.initial_window_packets)),
        field!(common.min_window_packets).within(
            "packets",
            "neither loss nor queue takes the window below",
            WINDOW_PACKETS,
        ),
        field!(common.decrease_factor).within("", "what a loss leaves of the window", SHARE),
        field!(common.ecn).flag(ECN_MEANING),
    ];

    fn together(&self) -> Result<(), OutOfRange> {
        let beta = self.beta_packets;
        let ok = beta >= self.alpha_packets;
        OutOfRange::unless(ok, "beta_packets", "at least alpha_packets", beta)
    }
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Vegas".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Vegas::new(self.clone()).expect(CHECKED))
    }
}

/// One round trip's worth of samples.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// It ends when a packet of this number or later is acknowledged: the first to leave after
    /// the round's first acknowledgement.
    end: Option<u64>,
    min_rtt: Option<Duration>,
    samples: u64,
    /// In slow start, whether this round doubles the window or measures it.
    doubles: bool,
}

/// A flow's measurements of its queue.
#[derive(Clone, Debug)]
pub struct Queue {
    config: Config,
    round: Round,
    /// The difference between expected and actual rate at the last decision, in packets.
    queued: Option<f64>,
}

impl Queue {
    /// The decision of each round. `may_grow`: whether the window, not the source, held the
    /// sender back.
    fn decide(&mut self, cwnd: &mut Window, base: Duration, may_grow: bool) {
        let Some(rtt) = self.round.min_rtt else {
            return;
        };
        let slow_start = cwnd.in_slow_start();
        if slow_start && self.round.doubles {
            return; // the samples are of smaller windows than the present one
        }
        if self.round.samples <= TOO_FEW_SAMPLES {
            if !slow_start && may_grow {
                cwnd.avoid(self.round.samples as f64);
            }
            return;
        }
        // diff = (Expected − Actual) × BaseRTT = W − W × BaseRTT / RTT.
        let window = cwnd.packets;
        let unqueued = if rtt.is_zero() {
            window
        } else {
            window * (base / rtt)
        };
        let queued = window - unqueued;
        self.queued = Some(queued);
        let floor = self.config.common.min_window_packets;
        if slow_start {
            if queued > self.config.gamma_packets {
                // The capacity of the path without a queue, and one packet more (Linux).
                cwnd.packets = window.min(unqueued + 1.0).max(floor);
                cwnd.threshold = Some(cwnd.packets);
            }
        } else if queued > self.config.beta_packets {
            cwnd.packets = (window - 1.0).max(floor);
            // Linear decrease is no slow start, whatever the threshold was.
            cwnd.threshold = cwnd.threshold.map(|at| at.min(cwnd.packets));
        } else if queued < self.config.alpha_packets && may_grow {
            cwnd.packets = window + 1.0;
        }
    }

    fn begin_round(&mut self) {
        self.round = Round {
            doubles: true,
            ..Round::default()
        };
    }
}

impl Law for Queue {
    type Config = Config;
    type Memory = ();

    fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        let mut queue = Queue {
            config,
            round: Round::default(),
            queued: None,
        };
        queue.begin_round();
        Ok(queue)
    }

    fn common(&self) -> &Common {
        &self.config.common
    }

    fn memory(&self) {}

    fn recall(&mut self, (): ()) {}

    fn on_start(&mut self, _now: Time) {}

    fn grow(&mut self, window: &mut Window, ack: &Acknowledgement<'_>) {
        let Some(newest) = ack.feedback.acked.last() else {
            return;
        };
        let next = ack.next_number;
        if newest.packet.number >= *self.round.end.get_or_insert(next) {
            self.decide(window, ack.feedback.min_rtt, ack.supporting > 0.0);
            self.round = Round {
                end: Some(next),
                doubles: !self.round.doubles,
                ..Round::default()
            };
        }
        for acked in ack.feedback.acked {
            let min_rtt = self.round.min_rtt.unwrap_or(acked.rtt);
            self.round.min_rtt = Some(min_rtt.min(acked.rtt));
            self.round.samples += 1;
        }
        if self.round.doubles && window.in_slow_start() {
            window.slow_start(ack.supporting);
        }
    }

    fn on_timeout(&mut self, _now: Time, _window: &Window, _reduces: bool) {
        self.begin_round();
    }

    /// A round that saw the window fall measures neither window.
    fn on_recovery(&mut self) {
        self.begin_round();
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("queued_packets", self.queued.unwrap_or(f64::NAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn vegas() -> Path<Vegas> {
        Path::new(Vegas::new(Config::default()).expect("the default is in range"))
    }

    /// One round: fills the window, and acknowledges all packets after `rtt_ms`, one by one.
    fn round(path: &mut Path<Vegas>, rtt_ms: u64) -> f64 {
        path.fill();
        path.wait_ms(rtt_ms);
        for number in path.in_flight_numbers() {
            path.ack([number]);
        }
        path.controller.window.packets
    }

    /// In congestion avoidance with the given window and nothing in flight; BaseRTT 100 ms.
    fn avoiding(window: f64) -> Path<Vegas> {
        let mut path = vegas();
        round(&mut path, 100);
        path.controller.window = Window {
            packets: window,
            threshold: Some(2.0),
        };
        path.controller.limit = SIZE.mul_f64(window);
        path.controller.law.begin_round();
        path
    }

    #[test]
    fn slow_start_doubles_every_other_round() {
        let mut path = vegas();
        let windows: Vec<f64> = (0..5).map(|_| round(&mut path, 100)).collect();
        assert_eq!(windows, [20.0, 20.0, 40.0, 40.0, 80.0]);
    }

    #[test]
    fn slow_start_ends_when_more_than_gamma_packets_wait() {
        let mut path = vegas();
        round(&mut path, 100);
        // 20 × (1 − 100/105) = 0.95 packets wait: not above γ = 1.
        round(&mut path, 105);
        round(&mut path, 110);
        assert_eq!(path.controller.window.packets, 40.0);
        // 40 × (1 − 100/110) = 3.64 packets wait: 40 × 100/110 + 1 = 37.36 remain.
        round(&mut path, 110);
        round(&mut path, 110);
        assert!((path.controller.law.queued.expect("decided") - 40.0 / 11.0).abs() < 1e-9);
        assert!((path.controller.window.packets - (400.0 / 11.0 + 1.0)).abs() < 1e-9);
        assert!(!path.controller.window.in_slow_start());
    }

    #[test]
    fn fewer_than_alpha_waiting_adds_a_packet() {
        let mut path = avoiding(20.0);
        round(&mut path, 110);
        // 20 × (1 − 100/110) = 1.82 < α = 2.
        round(&mut path, 110);
        assert_eq!(path.controller.window.packets, 21.0);
        assert!((path.controller.law.queued.expect("decided") - 20.0 / 11.0).abs() < 1e-9);
    }

    #[test]
    fn more_than_beta_waiting_takes_a_packet() {
        let mut path = avoiding(20.0);
        round(&mut path, 130);
        // 20 × (1 − 100/130) = 4.62 > β = 4.
        round(&mut path, 130);
        assert_eq!(path.controller.window.packets, 19.0);
    }

    #[test]
    fn between_alpha_and_beta_the_window_stays() {
        let mut path = avoiding(20.0);
        for _ in 0..5 {
            // 20 × (1 − 100/118) = 3.05.
            round(&mut path, 118);
        }
        assert_eq!(path.controller.window.packets, 20.0);
    }

    #[test]
    fn the_least_of_a_round_decides() {
        let mut path = avoiding(20.0);
        path.fill();
        path.wait_ms(110);
        let numbers = path.in_flight_numbers();
        path.ack(numbers[..1].iter().copied());
        path.wait_ms(200);
        path.ack(numbers[1..].iter().copied());
        path.fill();
        path.wait_ms(300);
        let next = path.in_flight_numbers()[0];
        path.ack([next]);
        // The least is 110 ms, of one packet of twenty; the others waited 200 ms longer.
        assert_eq!(path.controller.window.packets, 21.0);
    }

    #[test]
    fn two_samples_are_too_few_so_reno_decides() {
        let mut path = avoiding(2.0);
        // Rounds of two packets at twice the base: one would wait, and Vegas would add a packet
        // anyway; at four times the base 1.5 would. Reno adds 2/2.
        round(&mut path, 400);
        round(&mut path, 400);
        assert!(path.controller.law.queued.is_none());
        assert!(path.controller.window.packets > 2.0);
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut path = avoiding(20.0);
        path.fill();
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        assert_eq!(path.controller.window.packets, 10.0);
    }

    #[test]
    fn a_loss_that_was_none_gives_the_window_back() {
        let mut path = avoiding(20.0);
        path.fill();
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        path.feedback([], [], [first]);
        assert_eq!(path.controller.window.packets, 20.0);
    }

    #[test]
    fn a_timeout_leaves_one_packet() {
        let mut path = avoiding(20.0);
        path.fill();
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        assert_eq!(path.controller.window.threshold, Some(10.0));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let config = Config {
            beta_packets: 1.0,
            ..Config::default()
        };
        assert_eq!(Vegas::new(config).unwrap_err().field, "beta_packets");
        let config = Config {
            gamma_packets: f64::NAN,
            ..Config::default()
        };
        assert_eq!(Vegas::new(config).unwrap_err().field, "gamma_packets");
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(|| Vegas::new(Config::default()).expect("in range"), &steps);
        }
    }
}
