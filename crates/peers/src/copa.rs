//! Copa: a rate of one over the queueing delay.
//!
//! The target rate is 1/(δ·d_q) packets/s, where d_q is how long packets wait in the queue. The window moves towards it with
//! each acknowledgement, by v/(δ·window) packets, and v doubles with each round trip in which it goes on in the same direction
//! (V. Arun and H. Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018, §2). n flows
//! keep about n/δ packets queued, around which the queue swings and is empty once in five round trips. Where it never is,
//! another flow fills it: then δ falls as NewReno's window would grow, and is doubled by losses (§2.2, `copa/competition.rs`).
//! Losses mean nothing else to it, unless far more is lost than delivered (`copa/overload.rs`).
//!
//! d_q is the standing round-trip time, the least of half a smoothed round trip, minus the least of
//! ten seconds. Delayed acknowledgements and the flow's own bursts therefore do not count as a
//! queue.
//!
//! mvfst's Copa differs ([`Variant::Mvfst`], with its option `useRttStanding`). Slow start doubles
//! the window once in each round trip, and the standing time is that of a whole round trip. The
//! velocity v doubles from the fifth round trip in one direction on, the pace uses the smoothed
//! round trip, and there is no competitive mode.

use crate::initial_window::initial_window;
use crate::windowed::SlidingMin;
use verus_core::configuration::Configured;
use verus_core::controller::{Acked, Controller, Feedback, Phase, Timeout};
use verus_core::pacer;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, Within};
use verus_words::spec::{Row, Takes, Words, field, word_for};

mod competition;
mod overload;
mod velocity;

use competition::Competition;
use overload::Overload;
use velocity::{Direction, Velocity};

/// A minimum of the round-trip time counts for this long (§2.1), and not less: if it is forgotten while others fill the
/// queue, the queue seems empty.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// The least window, in packets.
const MIN_WINDOW_PACKETS: f64 = 2.0;
/// Packets leave at this many times the window per round trip: this smooths bursts, while the window still sets the
/// rate (§2.1).
const PACE: u64 = 2;
/// A burst is what the pace carries in this time: it must be small compared with a queue of 1/δ packets.
const QUANTUM: Duration = Duration::from_micros(100);
/// One acknowledged packet changes the window of [`Variant::Mvfst`] by at most this many packets: v itself has no bound
/// there.
const MOST_PER_PACKET: f64 = 2.0;

/// The implementation of Copa that is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// The paper's.
    #[default]
    Paper,
    /// Facebook's, in its QUIC.
    Mvfst,
}

impl Variant {
    const WORDS: Words<Variant> = &[("paper", Variant::Paper), ("mvfst", Variant::Mvfst)];
}

/// A configuration of Copa.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The implementation that is followed.
    pub variant: Variant,
    /// δ: one over the packets that a flow keeps queued (§2.1: 0.5).
    pub delta: f64,
    /// Whether δ falls where others fill the queue (§2.2); mvfst has nothing of the kind.
    pub competitive: bool,
    /// The window at the start, in packets (RFC 6928: 10).
    pub initial_window_packets: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            variant: Variant::Paper,
            delta: 0.5,
            competitive: true,
            initial_window_packets: 10.0,
        }
    }
}

const DELTA: Within = Within {
    words: "between 0.001 and 1",
    valid: |delta| (0.001..=1.0).contains(&delta),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        Row::<Self>::other(
            "variant",
            || Takes::one_of(Variant::WORDS),
            "whose Copa: the paper's, or mvfst's",
            |c| word_for(Variant::WORDS, &c.variant),
            |c, setting| {
                c.variant = setting.word(Variant::WORDS)?;
                c.competitive = c.variant == Variant::Paper;
                Ok(())
            },
        )
        .first(),
        field!(delta).within(
            "",
            "δ, one over the packets that a flow keeps queued (§2.1)",
            DELTA,
        ),
        field!(competitive).flag("δ falls where others fill the queue (§2.2), for which flows of Copa take each other, too"),
        initial_window(field!(initial_window_packets)),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        match self.variant {
            Variant::Paper => ("Copa".to_owned(), &[]),
            Variant::Mvfst => ("Copa mvfst".to_owned(), &["variant"]),
        }
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Copa::new(self.clone()).expect(CHECKED))
    }
}

/// A flow's Copa.
#[derive(Clone, Debug)]
pub struct Copa {
    config: Config,
    packet_size: Bytes,
    /// cwnd, in packets.
    window: f64,
    /// The target has not been passed yet.
    slow_start: bool,
    /// When slow start doubled the window last, where it does that once in a round trip.
    doubled_at: Option<Time>,
    standing: SlidingMin,
    min_rtt: SlidingMin,
    smoothed_rtt: Duration,
    velocity: Velocity,
    competition: Competition,
    overload: Overload,
}

impl Copa {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        let repeats = match config.variant {
            Variant::Paper => velocity::PAPER_REPEATS,
            Variant::Mvfst => velocity::MVFST_REPEATS,
        };
        Ok(Copa {
            packet_size: Bytes::new(1500),
            window: config.initial_window_packets.max(MIN_WINDOW_PACKETS),
            slow_start: true,
            doubled_at: None,
            standing: SlidingMin::new(),
            min_rtt: SlidingMin::new(),
            smoothed_rtt: Duration::ZERO,
            velocity: Velocity::new(repeats),
            competition: Competition::new(config.delta),
            overload: Overload::default(),
            config,
        })
    }

    /// The present δ.
    fn delta(&self) -> f64 {
        if self.config.competitive {
            self.competition.delta()
        } else {
            self.config.delta
        }
    }

    /// Takes a sample: the standing round-trip time, and the least.
    fn measure(&mut self, now: Time, rtt: Duration) -> (Duration, Duration) {
        let window = match self.config.variant {
            Variant::Paper => self.smoothed_rtt / 2,
            Variant::Mvfst => self.smoothed_rtt,
        };
        let standing = self.standing.update(now, window, rtt);
        let min_rtt = self.min_rtt.update(now, MIN_RTT_WINDOW, rtt);
        (standing, min_rtt.min(standing))
    }

    /// Whether the rate is at most the target: window/standing ≤ 1/(δ·d_q).
    fn is_below_target(&self, standing: Duration, min_rtt: Duration) -> bool {
        let queueing = standing.saturating_sub(min_rtt).as_secs_f64();
        self.window * self.delta() * queueing <= standing.as_secs_f64()
    }

    fn on_acked(&mut self, now: Time, acked: &Acked) {
        let (standing, min_rtt) = self.measure(now, acked.rtt);
        if self.config.competitive {
            self.competition
                .on_sample(now, acked.rtt, standing, min_rtt, self.smoothed_rtt);
        }
        let below = self.is_below_target(standing, min_rtt);
        let packets = acked.packet.size / self.packet_size;
        if below && acked.packet.app_limited {
            // A queue that is empty because the source is says nothing of the path.
            return;
        }
        if below && self.slow_start {
            self.grow_in_slow_start(now, packets);
            return;
        }
        self.velocity.on_round(now, self.smoothed_rtt, self.window);
        let direction = if below {
            Direction::Up
        } else {
            self.slow_start = false;
            Direction::Down
        };
        self.velocity.turn(direction);
        let mut step = self.velocity.get() / (self.delta() * self.window);
        match self.config.variant {
            // The window at most doubles or halves in a round trip (as in the authors' code).
            Variant::Paper => step = step.min(1.0),
            Variant::Mvfst => step = step.min(MOST_PER_PACKET),
        }
        let change = step * packets;
        self.window = match direction {
            Direction::Up => self.window + change,
            Direction::Down => (self.window - change).max(MIN_WINDOW_PACKETS),
        };
    }

    /// From the least window again.
    fn restart(&mut self) {
        self.window = MIN_WINDOW_PACKETS;
        self.slow_start = true;
        self.doubled_at = None;
        self.velocity.reset();
    }

    fn grow_in_slow_start(&mut self, now: Time, packets: f64) {
        match self.config.variant {
            Variant::Paper => self.window += packets,
            Variant::Mvfst => match self.doubled_at {
                None => self.doubled_at = Some(now),
                Some(at) if now.since(at) > self.smoothed_rtt => {
                    self.window *= 2.0;
                    self.doubled_at = Some(now);
                }
                Some(_) => {}
            },
        }
    }
}

impl Controller for Copa {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.competition.begin(now);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.smoothed_rtt = feedback.smoothed_rtt;
        if !feedback.lost.is_empty() {
            self.competition
                .on_loss(feedback.now, feedback.smoothed_rtt);
        }
        for acked in feedback.acked {
            self.on_acked(feedback.now, acked);
        }
        let lost = feedback.lost.iter().map(|packet| packet.size).sum();
        // Not `newly_delivered`: a packet given up counts as lost, even if it arrives later.
        let delivered = feedback.acked.iter().map(|acked| acked.packet.size).sum();
        let overloaded = self.overload.on_feedback(
            feedback.now,
            feedback.smoothed_rtt,
            self.packet_size,
            (lost, delivered),
        );
        if overloaded {
            self.restart();
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.competition.on_loss(timeout.now, self.smoothed_rtt);
        self.restart();
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.window = (self.window * (self.packet_size / size)).max(MIN_WINDOW_PACKETS);
        self.packet_size = size;
    }

    fn window(&self) -> Bytes {
        self.packet_size.mul_f64(self.window)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let round_trip = match self.config.variant {
            Variant::Paper => self.standing.get()?,
            Variant::Mvfst => self.smoothed_rtt,
        };
        if round_trip.is_zero() {
            return None;
        }
        Some((self.window() * PACE / round_trip).max(Rate::from_bps(1)))
    }

    fn send_quantum(&self) -> Option<Bytes> {
        let rate = self.pacing_rate()?;
        Some(pacer::quantum(rate, QUANTUM, self.packet_size))
    }

    fn phase(&self) -> Option<Phase> {
        Some(if self.slow_start {
            Phase::SlowStart
        } else {
            Phase::Steady
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let competes = self.config.competitive && self.competition.is_on();
        record("competitive", f64::from(u8::from(competes)));
        record("window_packets", self.window);
        record("velocity", self.velocity.get());
        record("delta", self.delta());
        let ms = |span: Option<Duration>| span.map_or(f64::NAN, Duration::as_millis_f64);
        record("delay_min_ms", ms(self.min_rtt.get()));
        record("standing_ms", ms(self.standing.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, SIZE};

    fn copa(variant: Variant, initial_window_packets: f64) -> Copa {
        let mut copa = Copa::new(Config {
            variant,
            competitive: false,
            initial_window_packets,
            ..Config::default()
        })
        .expect("in range");
        copa.on_start(Time::ZERO, SIZE);
        copa
    }

    /// A packet is acknowledged at `at_ms` after `rtt_ms`; the smoothed round-trip time is given.
    fn acknowledge(copa: &mut Copa, at_ms: u64, rtt_ms: u64, smoothed_ms: f64) -> f64 {
        let now = Time::from_millis(1000 + at_ms);
        let rtt = Duration::from_millis(rtt_ms);
        let packet = testing::departure(0, now - rtt);
        let acked = Acked {
            packet,
            rtt,
            received_at: None,
        };
        copa.on_feedback(&Feedback {
            smoothed_rtt: Duration::from_millis_f64(smoothed_ms),
            ..testing::feedback(now, &[acked])
        });
        copa.window
    }

    fn assert_near(value: f64, wanted: f64) {
        assert!((value - wanted).abs() < 6e-4, "{value}, not {wanted}");
    }

    /// mvfst's unit test, from its numbers.
    #[test]
    fn the_window_follows_the_standing_queue() {
        let mut copa = copa(Variant::Mvfst, 10.0);
        assert_near(acknowledge(&mut copa, 0, 50, 50.0), 10.0);
        assert_near(acknowledge(&mut copa, 110, 150, 62.5), 9.8);
        assert!(!copa.slow_start);
        assert_near(acknowledge(&mut copa, 120, 100, 67.2), 9.596);
        assert_near(acknowledge(&mut copa, 120, 50, 65.0), 9.804);
        assert_near(acknowledge(&mut copa, 120, 100, 69.4), 10.008);
        assert_near(acknowledge(&mut copa, 230, 100, 73.2), 9.809);
    }

    /// mvfst's unit test with `useRttStanding`, from its numbers; the windows are those that it computes.
    #[test]
    fn v_doubles_once_the_window_has_gone_on_rising() {
        let mut copa = copa(Variant::Mvfst, 11.0);
        acknowledge(&mut copa, 0, 50, 100.0);
        assert_near(acknowledge(&mut copa, 110, 150, 100.0), 10.818);
        let rises = [
            (11.003, 1.0),
            (11.185, 1.0),
            (11.364, 1.0),
            (11.540, 1.0),
            (11.713, 1.0),
            (12.054, 2.0),
            (12.718, 4.0),
            (13.976, 8.0),
        ];
        let mut at = 110;
        for (window, velocity) in rises {
            at += 100;
            assert_near(acknowledge(&mut copa, at, 50, 100.0), window);
            assert_eq!(copa.velocity.get(), velocity);
        }
        assert_near(acknowledge(&mut copa, at + 110, 200, 100.0), 13.833);
        assert_eq!(copa.velocity.get(), 1.0);
    }

    #[test]
    fn mvfsts_slow_start_doubles_once_in_a_round_trip() {
        let mut copa = copa(Variant::Mvfst, 10.0);
        assert_eq!(acknowledge(&mut copa, 0, 280, 280.0), 10.0);
        assert_eq!(acknowledge(&mut copa, 50, 280, 280.0), 10.0);
        assert_eq!(acknowledge(&mut copa, 50, 280, 280.0), 10.0);
        assert_eq!(acknowledge(&mut copa, 350, 280, 280.0), 20.0);
    }

    #[test]
    fn the_papers_slow_start_adds_what_is_acknowledged() {
        let mut copa = copa(Variant::Paper, 10.0);
        assert_eq!(acknowledge(&mut copa, 0, 100, 100.0), 11.0);
        assert_eq!(acknowledge(&mut copa, 0, 100, 100.0), 12.0);
    }

    #[test]
    fn an_acknowledgement_moves_the_window_by_one_over_delta_and_window() {
        let mut copa = copa(Variant::Paper, 10.0);
        copa.slow_start = false;
        assert_near(acknowledge(&mut copa, 0, 100, 100.0), 10.2);
    }

    #[test]
    fn the_target_is_one_over_delta_and_queueing_delay() {
        // 833 packets/s (10 Mbit/s of 1500 B) with 40 ms of path: one flow aims at 2.4 ms of queue, 2 packets.
        let mut copa = copa(Variant::Paper, 10.0);
        let ms = Duration::from_millis_f64;
        copa.window = 833.33 * 0.0424;
        assert!(copa.is_below_target(ms(42.39), ms(40.0)));
        assert!(!copa.is_below_target(ms(42.41), ms(40.0)));
    }

    #[test]
    fn packets_leave_at_twice_the_window_in_a_standing_round_trip() {
        let mut copa = copa(Variant::Paper, 10.0);
        assert_eq!(copa.pacing_rate(), None);
        acknowledge(&mut copa, 0, 100, 100.0);
        assert_eq!(
            copa.pacing_rate(),
            Some(SIZE * 22 / Duration::from_millis(100))
        );
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(
            steps in testing::steps(),
            mvfst in any::<bool>(),
        ) {
            let variant = if mvfst { Variant::Mvfst } else { Variant::Paper };
            let config = Config { variant, ..Config::default() };
            testing::assert_sound(|| Copa::new(config.clone()).expect("in range"), &steps);
        }
    }
}
