//! Vegas: the queue that the flow itself keeps, held between two and four packets.
//!
//! Were the path empty, a window W would yield the rate W / BaseRTT; it yields W / RTT. The
//! difference times BaseRTT is how many of the flow's packets wait in queues (Brakmo and Peterson,
//! "TCP Vegas: End to End Congestion Avoidance on a Global Internet", IEEE JSAC 13(8), 1995, §III).
//! Once per round the window grows by a packet if fewer than α wait and shrinks by one if more
//! than β do. Slow start ends when more than γ wait. Losses and timeouts are NewReno's.
//!
//! This is Linux's Vegas (`tcp_vegas.c`), which differs from the paper's in four ways:
//!
//! - Slow start doubles the window in each round; the paper's in every other.
//! - Diff is W (RTT − BaseRTT) / BaseRTT in whole packets; the paper's W (RTT − BaseRTT) / RTT.
//! - A round's RTT is the least of its samples, one for each acknowledgement. After two samples or
//!   fewer Reno decides: both may be of acknowledgements that the receiver delayed.
//! - BaseRTT is the least round-trip time since the flow last had nothing in flight: a flow that
//!   begins again, after a pause or a timeout, measures its path anew.
//!
//! Unlike Linux's, a window that the source does not fill does not grow (RFC 7661 §4.3).

use super::{Acknowledgement, Common, ECN_MEANING, Law, PERIOD_MEANING, PERIODS, Tcp, Window};
use crate::initial_window::initial_window;
use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Departure};
use verus_core::units::{Duration, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, SHARE, WINDOW_PACKETS, Within};
use verus_words::spec::{Row, field, words};

/// A flow's Vegas.
pub type Vegas = Tcp<VegasQueue>;

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
}

/// A flow's measurements of its queue.
#[derive(Clone, Debug)]
pub struct VegasQueue {
    config: Config,
    round: Round,
    base_rtt: Option<Duration>,
    /// Diff of the last decision, in packets.
    queued: Option<f64>,
}

impl VegasQueue {
    /// Counts the sample of an acknowledgement: the round-trip time of its newest packet. Returns BaseRTT and the round's
    /// least.
    fn sample(&mut self, rtt: Duration) -> (Duration, Duration) {
        let base = self.base_rtt.unwrap_or(rtt).min(rtt);
        let min_rtt = self.round.min_rtt.unwrap_or(rtt).min(rtt);
        self.base_rtt = Some(base);
        self.round.min_rtt = Some(min_rtt);
        self.round.samples += 1;
        (base, min_rtt)
    }

    /// The decision at the end of a round, whose least round-trip time is `rtt`. `supporting`: packets that the last
    /// acknowledgement gives the window to grow by; none while the source, not the window, holds the sender back.
    fn decide(&mut self, cwnd: &mut Window, base: Duration, rtt: Duration, supporting: f64) {
        let window = cwnd.packets;
        let queued = if base.is_zero() {
            0.0
        } else {
            (window * (rtt / base - 1.0)).floor()
        };
        self.queued = Some(queued);
        if cwnd.in_slow_start() {
            if queued > self.config.gamma_packets {
                // The packets that the path holds without a queue, and one more (Linux).
                let unqueued = (window * (base / rtt)).floor();
                cwnd.packets = window.min(unqueued + 1.0);
                cwnd.threshold = Some(cwnd.packets);
            } else {
                cwnd.slow_start(supporting);
            }
        } else if queued > self.config.beta_packets {
            cwnd.packets = window - 1.0;
            // Linear decrease is no slow start, whatever the threshold was.
            cwnd.threshold = cwnd.threshold.map(|at| at.min(cwnd.packets));
        } else if queued < self.config.alpha_packets && supporting > 0.0 {
            cwnd.packets = window + 1.0;
        }
        let floor = self.config.common.min_window_packets;
        cwnd.packets = cwnd.packets.max(floor);
    }
}

impl Law for VegasQueue {
    type Config = Config;
    type Memory = ();

    fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(VegasQueue {
            config,
            round: Round::default(),
            base_rtt: None,
            queued: None,
        })
    }

    fn common(&self) -> &Common {
        &self.config.common
    }

    fn memory(&self) {}

    fn recall(&mut self, (): ()) {}

    fn on_start(&mut self, _now: Time) {}

    /// Nothing else is in flight: the flow begins, or begins again. Its first acknowledgement ends the round (Linux,
    /// `tcp_vegas_cwnd_event`), so that even a flow of two packets, which are acknowledged together, has rounds.
    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        if packet.in_flight == packet.size {
            self.round = Round {
                end: Some(packet.number),
                ..Round::default()
            };
            self.base_rtt = None;
        }
    }

    fn grow(&mut self, window: &mut Window, ack: &Acknowledgement<'_>) {
        let Some(newest) = ack.feedback.acked.last() else {
            return;
        };
        let (base, rtt) = self.sample(newest.rtt);
        let next = ack.next_number;
        if newest.packet.number < *self.round.end.get_or_insert(next) {
            if window.in_slow_start() {
                window.slow_start(ack.supporting);
            }
            return;
        }
        if self.round.samples > TOO_FEW_SAMPLES {
            self.decide(window, base, rtt, ack.supporting);
        } else {
            let rest = if window.in_slow_start() {
                window.slow_start(ack.supporting)
            } else {
                ack.supporting
            };
            window.avoid(rest);
        }
        self.round = Round {
            end: Some(next),
            ..Round::default()
        };
    }

    /// Nothing is in flight after a timeout, so that the next packet begins anew.
    fn on_timeout(&mut self, _now: Time, _window: &Window, _reduces: bool) {}

    /// A round that saw the window fall measures neither window.
    fn on_recovery(&mut self) {
        self.round = Round::default();
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

    /// One round: every packet in flight is acknowledged after `rtt_ms`, one by one, and each lets others leave.
    fn round(path: &mut Path<Vegas>, rtt_ms: u64) -> f64 {
        path.fill();
        path.wait_ms(rtt_ms);
        for number in path.in_flight_numbers() {
            path.ack([number]);
            path.fill();
        }
        path.controller.window.packets
    }

    /// In congestion avoidance with 20 packets, all in flight; BaseRTT 100 ms.
    fn avoiding() -> Path<Vegas> {
        let mut path = vegas();
        assert_eq!(round(&mut path, 100), 20.0);
        path.controller.window.threshold = Some(2.0);
        path.controller.law.round = Round::default();
        path
    }

    #[test]
    fn slow_start_doubles_every_round() {
        let mut path = vegas();
        let windows: Vec<f64> = (0..4).map(|_| round(&mut path, 100)).collect();
        assert_eq!(windows, [20.0, 40.0, 80.0, 160.0]);
    }

    #[test]
    fn slow_start_ends_when_more_than_gamma_packets_wait() {
        let mut path = vegas();
        round(&mut path, 100);
        // The round that ends here had its least, 100 ms, at its beginning.
        assert_eq!(round(&mut path, 110), 40.0);
        // Of 40 packets 4 wait. 40 × 100/110 = 36 do not, and one more may leave.
        round(&mut path, 110);
        assert_eq!(path.controller.law.queued, Some(4.0));
        assert_eq!(path.controller.window.packets, 37.0);
        assert!(!path.controller.window.in_slow_start());
    }

    #[test]
    fn once_a_round_the_window_takes_a_packet_gives_one_or_stays() {
        // 20 × (RTT − 100)/100 packets wait, in whole packets.
        for (rtt_ms, queued, window) in [
            (109, 1.0, 21.0),
            (110, 2.0, 20.0),
            (124, 4.0, 20.0),
            (125, 5.0, 19.0),
        ] {
            let mut path = avoiding();
            assert_eq!(round(&mut path, rtt_ms), 20.0, "the round has begun only");
            assert_eq!(round(&mut path, rtt_ms), window, "at {rtt_ms} ms");
            assert_eq!(path.controller.law.queued, Some(queued), "at {rtt_ms} ms");
        }
    }

    #[test]
    fn the_least_of_a_round_decides() {
        let mut path = avoiding();
        path.wait_ms(109);
        let numbers = path.in_flight_numbers();
        path.ack([numbers[0]]);
        path.fill();
        path.wait_ms(200);
        for number in &numbers[1..] {
            path.ack([*number]);
        }
        path.fill();
        path.wait_ms(300);
        path.ack([path.in_flight_numbers()[0]]);
        // The least is 109 ms, of one packet of twenty; the others waited 200 ms longer.
        assert_eq!(path.controller.window.packets, 21.0);
    }

    #[test]
    fn two_samples_are_too_few_so_reno_decides() {
        let mut path = avoiding();
        // One acknowledgement of 19 packets in each round, at four times the base.
        for _ in 0..2 {
            path.wait_ms(400);
            let numbers = path.in_flight_numbers();
            path.ack(numbers[..19].iter().copied());
            path.fill();
        }
        assert!(path.controller.law.queued.is_none());
        assert_eq!(path.controller.window.packets, 20.0 + 19.0 / 20.0);
    }

    #[test]
    fn a_flow_that_had_nothing_in_flight_measures_its_path_anew() {
        let mut path = avoiding();
        path.wait_ms(200);
        path.ack(path.in_flight_numbers());
        for _ in 0..2 {
            round(&mut path, 200);
        }
        // At a BaseRTT of 100 ms 20 packets would wait. The first acknowledgement was Reno's.
        assert_eq!(path.controller.law.queued, Some(0.0));
        assert_eq!(path.controller.window.packets, 21.0 + 1.0 / 20.0);
    }

    #[test]
    fn a_flow_whose_packets_are_acknowledged_together_grows_as_reno() {
        let mut path = avoiding();
        path.controller.window.packets = 2.0;
        path.wait_ms(100);
        path.ack(path.in_flight_numbers());
        let mut windows = Vec::new();
        for _ in 0..3 {
            path.fill();
            path.wait_ms(100);
            path.ack(path.in_flight_numbers());
            windows.push(path.controller.window.packets.floor());
        }
        assert_eq!(windows, [3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut path = avoiding();
        path.fill();
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        assert_eq!(path.controller.window.packets, 10.0);
    }

    #[test]
    fn a_loss_that_was_none_gives_the_window_back() {
        let mut path = avoiding();
        path.fill();
        path.wait_ms(100);
        let first = path.in_flight_numbers()[0];
        path.feedback([first + 1], [first], []);
        path.feedback([], [], [first]);
        assert_eq!(path.controller.window.packets, 20.0);
    }

    #[test]
    fn a_timeout_leaves_one_packet() {
        let mut path = avoiding();
        path.fill();
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        assert_eq!(path.controller.window.threshold, Some(10.0));
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(|| Vegas::new(Config::default()).expect("in range"), &steps);
        }
    }
}
