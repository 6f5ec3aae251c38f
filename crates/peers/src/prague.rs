//! Prague: as much less as the share of its packets that bear a mark.
//!
//! A queue for low latency marks from the first packet that waits, and so marks many packets. A
//! window that falls by half of the marked share therefore hardly swings. α, the moving average of
//! that share, is updated once in a round trip. The window falls by α/2 of itself at most once in a
//! round trip, and grows for each packet without a mark, also while it falls. A round trip below 25
//! ms counts as 25 ms, so that a rate does not depend on the distance of the server
//! (draft-briscoe-iccrg-prague-congestion-control-00; RFC 9331 §4).
//!
//! Losses halve the window, as NewReno's. A reduction by losses or a timeout that prove groundless
//! is undone, as Linux's Prague inherits from its TCP. Slow start ends with the first mark.
//!
//! Where marks come smoothly, with probability p, the law for W·p is 2: a reduction of p/2 in each
//! round trip, growth by 1. But a reduction waits for a round trip since the last one and then for
//! the next mark, on average 1/p packets later. Over that time (1 − p)(1 + 1/(W·p)) is gained and
//! W·p/2 lost. If marks are independent of each other, W·p = (1 − p) + √((1 − p)² + 2 (1 − p)),
//! which is 2.73 for small p. If they are evenly spaced, as RED's, W·p lies between the two.
//!
//! The draft's text and its implementations differ in the initial α. Here it is one with the first
//! mark, as in Linux and mvfst, so that slow start ends with half the window. Where no queue marks,
//! Prague is NewReno with a pace.

use crate::initial_window::initial_window_alone;
use crate::used::Used;
use verus_core::controller::{Controller, Departure, Feedback, Phase, Timeout};
use verus_core::ecn::Ecn;
use verus_core::episode::{Episode, Period};
use verus_core::pacer;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::Configuration;
use verus_words::range::OutOfRange;

/// The weight of each round trip in α.
const ALPHA_WEIGHT: f64 = 1.0 / 16.0;
/// Shorter round trips count as this long.
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// The least window, in packets, except after a timeout.
const MIN_WINDOW_PACKETS: f64 = 2.0;
/// The share of the window that a loss leaves.
const LOSS_FACTOR: f64 = 0.5;
/// Packets leave at this multiple of the window per round trip: while the window doubles, so that pacing does not hold
/// its growth back, and afterwards.
const SLOW_START_PACE: f64 = 2.0;
const PACE: f64 = 1.03;
/// A burst is what the pace carries in this time.
const QUANTUM: Duration = Duration::from_micros(250);

initial_window_alone!(
    /// A configuration of Prague.
    "Prague",
    |config, _| Prague::new(config)
);

/// α: the share of packets that are marked, once for each round trip.
#[derive(Clone, Copy, Debug, Default)]
struct MarkedShare {
    alpha: f64,
    /// Whether there has been a mark ever.
    any_mark: bool,
    since: Time,
    packets: u64,
    marked: u64,
}

impl MarkedShare {
    /// `packets` packets arrived, `marked` of them with a mark; `rtt` is the smoothed round-trip time.
    fn on_arrivals(&mut self, now: Time, packets: u64, marked: u64, rtt: Duration) {
        self.packets += packets;
        self.marked += marked;
        if now.since(self.since) < rtt.max(REFERENCE_RTT) || self.packets == 0 {
            return;
        }
        let share = (self.marked as f64 / self.packets as f64).min(1.0);
        if !self.any_mark && self.marked > 0 {
            (self.any_mark, self.alpha) = (true, 1.0);
        } else if self.any_mark {
            self.alpha += ALPHA_WEIGHT * (share - self.alpha);
        }
        (self.since, self.packets, self.marked) = (now, 0, 0);
    }

    /// α as a mark that has just come counts: the first one says that it is one.
    fn at_mark(&mut self) -> f64 {
        if !self.any_mark {
            (self.any_mark, self.alpha) = (true, 1.0);
        }
        self.alpha
    }
}

/// A flow's Prague.
#[derive(Clone, Debug)]
pub struct Prague {
    packet_size: Bytes,
    /// cwnd and ssthresh, in packets.
    window: f64,
    threshold: f64,
    marks: MarkedShare,
    smoothed_rtt: Duration,
    /// The time of the last answer to a mark.
    reduced_at: Option<Time>,
    /// The losses of the present reduction, with window and threshold before it.
    losses: Episode<(f64, f64)>,
    used: Used,
}

impl Prague {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: &Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Prague {
            packet_size: Bytes::new(1500),
            window: config.initial_window_packets.max(MIN_WINDOW_PACKETS),
            threshold: f64::INFINITY,
            marks: MarkedShare::default(),
            smoothed_rtt: Duration::ZERO,
            reduced_at: None,
            losses: Episode::new(Period::Round),
            used: Used::default(),
        })
    }

    /// The round-trip time as it counts.
    fn virtual_rtt(&self) -> Duration {
        self.smoothed_rtt.max(REFERENCE_RTT)
    }

    /// Grows the window for `packets` packets that arrived without a mark: by a packet in each
    /// round trip. On paths shorter than the reference round trip it grows less, so that the rate
    /// grows as it would over the reference.
    fn grow(&mut self, packets: f64) {
        if self.window < self.threshold {
            self.window += packets;
            return;
        }
        let share = (self.smoothed_rtt / REFERENCE_RTT).min(1.0);
        self.window += packets / self.window * share * share;
    }

    /// Reduces the window for losses, or undoes a reduction whose losses proved false.
    fn on_losses(&mut self, feedback: &Feedback<'_>) {
        if let Some((window, threshold)) = self.losses.undone_by(feedback) {
            self.window = self.window.max(window);
            self.threshold = threshold;
        }
        // Marks are answered in their own way.
        let unmarked = Feedback {
            marked: 0,
            ..*feedback
        };
        if self
            .losses
            .begun_by(&unmarked, (self.window, self.threshold))
        {
            self.reduce(LOSS_FACTOR);
        }
    }

    fn reduce(&mut self, factor: f64) {
        self.window = (self.window * factor).max(MIN_WINDOW_PACKETS);
        self.threshold = self.window;
    }
}

impl Controller for Prague {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.marks.since = now;
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.losses.on_sent(packet);
        self.used.on_sent(packet);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        self.smoothed_rtt = feedback.smoothed_rtt;
        let news = feedback.lost.len() + feedback.recovered.len();
        if news > 0 || !self.losses.is_over() {
            self.on_losses(feedback);
        }
        if feedback.marked > 0 {
            let alpha = self.marks.at_mark();
            let round_trip = self.virtual_rtt();
            if self.reduced_at.is_none_or(|at| now.since(at) >= round_trip) {
                self.reduce(1.0 - alpha / 2.0);
                self.reduced_at = Some(now);
            }
        }
        let arrived = feedback.acked.len() as u64;
        let marked = (feedback.marked as u64).min(arrived);
        self.marks
            .on_arrivals(now, arrived, marked, self.smoothed_rtt);
        let supports = feedback.acked.iter().filter(|one| {
            self.used.supports_growth(&one.packet) && self.losses.supports_growth(&one.packet)
        });
        let unmarked = (supports.count() as u64).saturating_sub(marked);
        if unmarked > 0 {
            self.grow(unmarked as f64);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        let before = (self.window, self.threshold);
        if self.losses.on_timeout(timeout, before) {
            self.threshold = (self.window * LOSS_FACTOR).max(MIN_WINDOW_PACKETS);
        }
        self.window = 1.0;
    }

    fn on_packet_size(&mut self, size: Bytes) {
        let factor = self.packet_size / size;
        self.window = (self.window * factor).max(1.0);
        self.threshold *= factor;
        self.packet_size = size;
    }

    fn window(&self) -> Bytes {
        self.packet_size.mul_f64(self.window)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        if self.smoothed_rtt.is_zero() {
            return None;
        }
        let pace = if self.window < self.threshold {
            SLOW_START_PACE
        } else {
            PACE
        };
        let rate = (self.window() / self.smoothed_rtt).mul_f64(pace);
        Some(rate.max(Rate::from_bps(1)))
    }

    fn send_quantum(&self) -> Option<Bytes> {
        let rate = self.pacing_rate()?;
        Some(pacer::quantum(rate, QUANTUM, self.packet_size))
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect1
    }

    fn phase(&self) -> Option<Phase> {
        Some(if self.window < self.threshold {
            Phase::SlowStart
        } else {
            Phase::Steady
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window_packets", self.window);
        record("alpha", self.marks.alpha);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn prague() -> Prague {
        Prague::new(&Config::default()).expect("in range")
    }

    const RTT: Duration = Duration::from_millis(50);

    /// α after round trips of 50 ms, each with its number of packets and of marked ones.
    fn alpha(rounds: &[(u64, u64)]) -> f64 {
        let mut marks = MarkedShare::default();
        for (round, &(packets, marked)) in rounds.iter().enumerate() {
            let now = Time::from_millis(50 * (round as u64 + 1));
            marks.on_arrivals(now, packets, marked, RTT);
        }
        marks.alpha
    }

    /// mvfst's unit tests, from their numbers: its counters are of a flow's life, these are of a round trip.
    #[test]
    fn alpha_begins_at_one_with_the_first_mark_and_then_follows_the_share() {
        assert_eq!(alpha(&[(10, 0)]), 0.0);
        assert_eq!(alpha(&[(10, 2)]), 1.0);
        assert_eq!(alpha(&[(10, 2), (10, 1)]), 0.94375);
        assert_eq!(alpha(&[(12, 2), (12, 3)]), 0.953125);
        assert_eq!(alpha(&[(12, 2), (20, 1)]), 0.940625);
    }

    #[test]
    fn a_share_that_stays_comes_closer_by_a_sixteenth() {
        let mut marks = MarkedShare {
            any_mark: true,
            ..MarkedShare::default()
        };
        let mut now = Time::ZERO;
        for wanted in [0.006_25, 0.012_109, 0.017_603] {
            now += RTT;
            marks.on_arrivals(now, 10, 1, RTT);
            assert!((marks.alpha - wanted).abs() < 1e-6, "{}", marks.alpha);
        }
    }

    #[test]
    fn round_trips_are_no_shorter_than_25_ms() {
        let mut marks = MarkedShare::default();
        let rtt = Duration::from_millis(10);
        marks.on_arrivals(Time::from_millis(10), 10, 2, rtt);
        assert_eq!(marks.alpha, 0.0, "not over");
        marks.on_arrivals(Time::from_millis(25), 0, 0, rtt);
        assert_eq!(marks.alpha, 1.0);
    }

    /// A feedback of packets of a made-up flow.
    fn acknowledge(prague: &mut Prague, at_ms: u64, rtt: Duration, arrived: usize, marked: usize) {
        let packet = testing::departure(prague.losses.next_number(), Time::ZERO);
        prague.on_sent(&packet);
        let acked = verus_core::controller::Acked {
            packet,
            rtt,
            received_at: None,
        };
        prague.on_feedback(&Feedback {
            marked,
            ..testing::feedback(Time::from_millis(at_ms), &vec![acked; arrived])
        });
    }

    #[test]
    fn a_mark_takes_half_of_alpha_once_in_a_round_trip() {
        let mut prague = prague();
        (prague.window, prague.threshold) = (100.0, 100.0);
        (prague.marks.any_mark, prague.marks.alpha) = (true, 0.2);
        acknowledge(&mut prague, 100, RTT, 1, 1);
        assert!((prague.window - 90.0).abs() < 1e-9, "{}", prague.window);
        acknowledge(&mut prague, 120, RTT, 1, 1);
        assert!((prague.window - 90.0).abs() < 1e-9, "{}", prague.window);
    }

    #[test]
    fn on_a_short_path_the_window_grows_by_the_square_of_how_short_it_is() {
        let mut prague = prague();
        (prague.window, prague.threshold) = (20.0, 20.0);
        acknowledge(&mut prague, 5, Duration::from_millis(5), 20, 0);
        assert!((prague.window - 20.04).abs() < 1e-3, "{}", prague.window);
        (prague.window, prague.threshold) = (20.0, 20.0);
        acknowledge(&mut prague, 50, RTT, 20, 0);
        assert!((prague.window - 21.0).abs() < 1e-9, "{}", prague.window);
    }

    #[test]
    fn the_first_mark_ends_slow_start_with_half_the_window() {
        let mut prague = prague();
        acknowledge(&mut prague, 50, RTT, 10, 0);
        assert_eq!(prague.window, 20.0);
        acknowledge(&mut prague, 100, RTT, 1, 1);
        assert_eq!((prague.window, prague.threshold), (10.0, 10.0));
    }

    #[test]
    fn losses_halve_the_window_once_in_a_round_trip_and_a_timeout_leaves_a_packet() {
        let mut path = Path::new(prague());
        path.controller.window = 20.0;
        path.controller.threshold = 20.0;
        path.fill();
        path.wait_ms(50);
        path.feedback([1], [0], []);
        assert_eq!(path.controller.window, 10.0);
        path.feedback([3], [2], []);
        assert_eq!(path.controller.window, 10.0);
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        // The losses have been answered (RFC 5681 §3.1).
        assert_eq!(path.controller.threshold, 10.0);
    }

    #[test]
    fn timeouts_that_were_none_are_undone_and_real_ones_are_not() {
        for spurious in [true, false] {
            let mut path = Path::new(prague());
            (path.controller.window, path.controller.threshold) = (20.0, 30.0);
            path.fill();
            path.wait_ms(1000);
            path.time_out();
            assert_eq!(
                (path.controller.window, path.controller.threshold),
                (1.0, 10.0)
            );
            path.send(1);
            path.wait_ms(2000);
            path.time_out();
            assert_eq!(
                path.controller.threshold, 10.0,
                "a second one reduces no more"
            );
            path.send(1);
            path.wait_ms(50);
            if spurious {
                // The first flight was only late.
                path.feedback([], [], [0]);
                assert_eq!(
                    (path.controller.window, path.controller.threshold),
                    (20.0, 30.0)
                );
            } else {
                path.ack([21]);
                assert_eq!(
                    (path.controller.window, path.controller.threshold),
                    (2.0, 10.0)
                );
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(prague, &steps);
        }
    }
}
