//! LEDBAT++: for background transfers, which give way to everything else.
//!
//! It keeps at most 60 ms of queue, estimated as the round-trip time minus the least of ten
//! minutes. Below that the window grows as NewReno's, slower where the path is short. Above it, the
//! window shrinks in proportion to the excess, down to half of itself in a round trip. To measure
//! the path without its own queue it slows down to two packets for two round trips. It does so soon
//! after its start and then for a tenth of the time (draft-irtf-iccrg-ledbat-plus-plus-01; RFC 6817
//! for delays).
//!
//! ```text
//! slow start ──▶ avoidance ── two round trips, then nine times the last slowdown ──▶ hold ── two round trips ──▶ ramp
//!                   ▲                                                                                             │
//!                   └────────────────────────────── the old window ───────────────────────────────────────────────┘
//! ```

use crate::used::Used;
use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Departure, Feedback, Phase, Timeout};
use verus_core::units::{Bytes, Duration, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, Within};
use verus_words::spec::{Row, field};

/// The base delay is the least of the minima of this many minutes (RFC 6817 §2.4.2, BASE_HISTORY).
const BASE_MINUTES: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// The current delay is the least of this many samples (RFC 6817 §2.4.2, CURRENT_FILTER; 4 in many implementations).
const CURRENT_SAMPLES: usize = 4;
/// GAIN, the window's growth relative to NewReno's, is at least one divided by this.
const LEAST_GAIN_PARTS: f64 = 16.0;
/// The first slow start ends once the queueing delay exceeds this share of the target.
const SLOW_START_SHARE: f64 = 0.75;
/// The window at the start, after idle times and while slowed down, packets.
const SMALL_WINDOW_PACKETS: f64 = 2.0;
/// Round trips from the end of slow start to the first slowdown, and the length of each slowdown.
const SLOWDOWN_ROUND_TRIPS: u64 = 2;
/// Time from the end of a slowdown to the next one, as a multiple of the time that it lasted.
const SLOWDOWN_PAUSE: u64 = 9;

/// A configuration of LEDBAT++.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The queueing delay that is aimed at, ms (60).
    pub target_ms: f64,
    /// Whether it slows down to see the bare path.
    pub slowdowns: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            target_ms: 60.0,
            slowdowns: true,
        }
    }
}

const TARGET: Within = Within {
    words: "between 1 and 100 ms (RFC 6817: no more)",
    valid: |ms| (1.0..=100.0).contains(&ms),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        field!(target_ms).within("ms", "the queueing delay that is aimed at", TARGET),
        field!(slowdowns).flag("it slows down to see the bare path"),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("LEDBAT++".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(LedbatPp::new(self.clone()).expect(CHECKED))
    }
}

/// Delays: the least of ten minutes, and of the last samples.
#[derive(Clone, Copy, Debug)]
struct Delays {
    minutes: [Option<Duration>; BASE_MINUTES],
    minute: usize,
    minute_at: Time,
    last: [Duration; CURRENT_SAMPLES],
    samples: usize,
}

impl Delays {
    fn new() -> Self {
        Delays {
            minutes: [None; BASE_MINUTES],
            minute: 0,
            minute_at: Time::ZERO,
            last: [Duration::MAX; CURRENT_SAMPLES],
            samples: 0,
        }
    }

    fn update(&mut self, now: Time, rtt: Duration) {
        if now.since(self.minute_at) >= MINUTE {
            // An idle minute, however long, says nothing of the path.
            self.minute = (self.minute + 1) % BASE_MINUTES;
            self.minutes[self.minute] = None;
            self.minute_at = now;
        }
        let minimum = &mut self.minutes[self.minute];
        *minimum = Some(minimum.map_or(rtt, |minimum| minimum.min(rtt)));
        self.last[self.samples % CURRENT_SAMPLES] = rtt;
        self.samples += 1;
    }

    fn base(&self) -> Option<Duration> {
        self.minutes.iter().flatten().copied().min()
    }

    fn queue(&self) -> Option<Duration> {
        let current = self.last.into_iter().min()?;
        Some(current.saturating_sub(self.base()?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The window grows by the gain with each packet; `first`: a queue ends it, too.
    SlowStart {
        first: bool,
    },
    Avoidance,
    /// Two packets for two round trips.
    Hold {
        until: Time,
    },
    /// Slow start to the window of before.
    Ramp,
}

/// A flow's LEDBAT++.
#[derive(Clone, Debug)]
pub struct LedbatPp {
    config: Config,
    target: Duration,
    packet_size: Bytes,
    /// Packets.
    window: f64,
    /// ssthresh: where a slow start ends.
    threshold: f64,
    stage: Stage,
    delays: Delays,
    smoothed_rtt: Duration,
    /// The time of the next slowdown, and the beginning of the last.
    slowdown_at: Option<Time>,
    slowdown_began: Time,
    /// The next packet to leave; those below `reduced_at` left before the last reduction.
    next_number: u64,
    reduced_at: u64,
    last_ack_at: Time,
    used: Used,
}

impl LedbatPp {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(LedbatPp {
            target: Duration::from_millis_f64(config.target_ms),
            config,
            packet_size: Bytes::new(1500),
            window: SMALL_WINDOW_PACKETS,
            threshold: f64::INFINITY,
            stage: Stage::SlowStart { first: true },
            delays: Delays::new(),
            smoothed_rtt: Duration::ZERO,
            slowdown_at: None,
            slowdown_began: Time::ZERO,
            next_number: 0,
            reduced_at: 0,
            last_ack_at: Time::ZERO,
            used: Used::default(),
        })
    }

    /// The growth in a round trip: a packet, or less where the path is short. NewReno's round trips
    /// include the queue, so this keeps NewReno from growing slower.
    fn gain(&self) -> f64 {
        let base = self.delays.base().unwrap_or(self.target);
        gain(self.target, base)
    }

    /// If one is under way.
    fn end_slow_start(&mut self, now: Time) {
        if self.stage == (Stage::SlowStart { first: true }) && self.config.slowdowns {
            self.slowdown_at = Some(now + self.smoothed_rtt * SLOWDOWN_ROUND_TRIPS);
        }
        if self.stage == Stage::Ramp {
            let lasted = now.since(self.slowdown_began);
            self.slowdown_at = Some(now + lasted * SLOWDOWN_PAUSE);
        }
        self.stage = Stage::Avoidance;
    }

    fn begin_slowdown(&mut self, now: Time) {
        self.slowdown_began = now;
        self.slowdown_at = None;
        self.threshold = self.window;
        self.window = SMALL_WINDOW_PACKETS;
        let until = now + self.smoothed_rtt * SLOWDOWN_ROUND_TRIPS;
        self.stage = Stage::Hold { until };
    }

    fn on_acked(&mut self, now: Time, packets: f64) {
        let queue = self.delays.queue().unwrap_or_default();
        match self.stage {
            Stage::Hold { until } => {
                if now >= until {
                    self.stage = Stage::Ramp;
                }
            }
            Stage::SlowStart { .. } | Stage::Ramp => {
                let full = self.stage == (Stage::SlowStart { first: true })
                    && queue > self.target.mul_f64(SLOW_START_SHARE);
                if !full {
                    self.window = (self.window + self.gain() * packets).min(self.threshold);
                }
                if full || self.window >= self.threshold {
                    self.end_slow_start(now);
                }
            }
            Stage::Avoidance => {
                let in_round_trip = change(self.window, self.gain(), queue / self.target);
                let change = in_round_trip * packets / self.window;
                self.window = (self.window + change).max(SMALL_WINDOW_PACKETS);
                if self.slowdown_at.is_some_and(|at| now >= at) {
                    self.begin_slowdown(now);
                }
            }
        }
    }
}

/// 1/min(16, ⌈2 target/base⌉).
fn gain(target: Duration, base: Duration) -> f64 {
    let parts = (2.0 * (target / base.max(Duration::from_nanos(1)))).ceil();
    1.0 / parts.clamp(1.0, LEAST_GAIN_PARTS)
}

/// The change of a window of so many packets in a round trip, at so many targets of queueing delay.
fn change(window: f64, gain: f64, targets: f64) -> f64 {
    if targets <= 1.0 {
        gain
    } else {
        (gain - window * (targets - 1.0)).max(-window / 2.0)
    }
}

impl Controller for LedbatPp {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.delays.minute_at = now;
        self.last_ack_at = now;
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.next_number = packet.number + 1;
        self.used.on_sent(packet);
        // After an idle time as long as a timeout's least the window says nothing of the path any more (RFC 5681 §4.1).
        let alone = packet.in_flight == packet.size;
        let idle = packet.at.since(self.last_ack_at) > self.smoothed_rtt * 4;
        if alone && packet.app_limited && idle && self.stage == Stage::Avoidance {
            self.window = self.window.min(SMALL_WINDOW_PACKETS);
            self.stage = Stage::SlowStart { first: false };
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.smoothed_rtt = feedback.smoothed_rtt;
        let fresh = |packet: &Departure| packet.number >= self.reduced_at;
        let marked = feedback.marked > 0 && feedback.acked.iter().any(|one| fresh(&one.packet));
        if marked || feedback.lost.iter().any(fresh) {
            // Once for a round trip; what slows it down is over.
            self.window = (self.window / 2.0).max(SMALL_WINDOW_PACKETS);
            if !matches!(self.stage, Stage::Hold { .. }) {
                self.threshold = self.window;
                self.end_slow_start(feedback.now);
            }
            self.reduced_at = self.next_number;
        }
        for acked in feedback.acked {
            self.last_ack_at = feedback.now;
            self.delays.update(feedback.now, acked.rtt);
            if self.used.supports_growth(&acked.packet) {
                self.on_acked(feedback.now, acked.packet.size / self.packet_size);
            }
        }
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        self.threshold = (self.window / 2.0).max(SMALL_WINDOW_PACKETS);
        self.window = 1.0;
        if self.stage == Stage::Avoidance {
            self.stage = Stage::SlowStart { first: false };
        }
        self.reduced_at = self.next_number;
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

    fn phase(&self) -> Option<Phase> {
        Some(match self.stage {
            Stage::SlowStart { .. } | Stage::Ramp => Phase::SlowStart,
            Stage::Avoidance => Phase::Steady,
            Stage::Hold { .. } => Phase::Drain,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window_packets", self.window);
        let ms = |span: Option<Duration>| span.map_or(f64::NAN, Duration::as_millis_f64);
        record("delay_min_ms", ms(self.delays.base()));
        record("queue_ms", ms(self.delays.queue()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    const TARGET: Duration = Duration::from_millis(60);

    fn ledbat() -> LedbatPp {
        LedbatPp::new(Config::default()).expect("in range")
    }

    #[test]
    fn the_gain_is_less_on_short_paths() {
        let at = |ms| 1.0 / gain(TARGET, Duration::from_millis(ms));
        assert_eq!([5, 7, 20, 60, 120].map(at), [16.0, 16.0, 6.0, 2.0, 1.0]);
        assert_eq!(at(0), 16.0);
    }

    #[test]
    fn the_window_grows_below_the_target_and_shrinks_as_far_as_the_queue_exceeds_it() {
        let gain = gain(TARGET, Duration::from_millis(20));
        let changes = [
            (30.0, 0.167),
            (61.0, -1.5),
            (75.0, -24.83),
            (90.0, -49.83),
            (90.2, -50.0),
        ];
        for (queue_ms, wanted) in changes {
            let growth = change(100.0, gain, queue_ms / 60.0);
            assert!((growth - wanted).abs() < 0.005, "{queue_ms} ms: {growth}");
        }
    }

    /// Acknowledges the flight after so long.
    fn round(path: &mut Path<LedbatPp>, ms: u64) {
        path.fill();
        path.wait_ms(ms);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
    }

    #[test]
    fn slow_start_ends_at_three_quarters_of_the_target_and_a_slowdown_follows() {
        let mut path = Path::new(ledbat());
        for _ in 0..6 {
            round(&mut path, 120);
        }
        // Gain 1 at 120 ms: 2 × 2^6.
        assert_eq!(path.controller.window, 128.0);
        round(&mut path, 164);
        assert_eq!(path.controller.window, 256.0);
        round(&mut path, 166);
        round(&mut path, 166);
        assert_eq!(path.controller.stage, Stage::Avoidance);
        let (before, mut held) = (path.controller.window, 0);
        for _ in 0..8 {
            round(&mut path, 120);
            held += u32::from(matches!(path.controller.stage, Stage::Hold { .. }));
            if path.controller.stage == Stage::Ramp {
                break;
            }
        }
        assert!(held >= 2, "{held}");
        assert!(path.controller.window <= 4.0);
        while path.controller.stage == Stage::Ramp {
            round(&mut path, 120);
        }
        assert!(path.controller.window >= before - 1.0);
        let lasted = path.now.since(path.controller.slowdown_began);
        let next = path.controller.slowdown_at.expect("another is due");
        assert!(next.since(path.now) == lasted * 9, "{lasted:?}");
    }

    #[test]
    fn a_slowdown_is_followed_by_nine_times_its_length_without() {
        let mut controller = ledbat();
        controller.stage = Stage::Ramp;
        controller.slowdown_began = Time::from_millis(10_000);
        controller.end_slow_start(Time::from_millis(11_200));
        assert_eq!(controller.slowdown_at, Some(Time::from_millis(22_000)));
    }

    #[test]
    fn a_loss_halves_the_window_once_in_a_round_trip() {
        let mut path = Path::new(ledbat());
        path.controller.stage = Stage::Avoidance;
        path.controller.window = 20.0;
        path.fill();
        path.wait_ms(100);
        path.feedback([1], [0], []);
        let after = path.controller.window;
        assert!((10.0..10.2).contains(&after), "{after}");
        path.feedback([3], [2], []);
        assert!((10.0..10.2).contains(&path.controller.window));
    }

    #[test]
    fn a_timeout_leaves_a_packet() {
        let mut path = Path::new(ledbat());
        path.fill();
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
    }

    #[test]
    fn the_base_is_the_least_of_ten_minutes() {
        let mut delays = Delays::new();
        let ms = Duration::from_millis;
        delays.update(Time::ZERO, ms(20));
        for minute in 1..10 {
            delays.update(Time::from_millis(minute * 60_000), ms(30));
            assert_eq!(delays.base(), Some(ms(20)));
        }
        delays.update(Time::from_millis(600_000), ms(30));
        assert_eq!(delays.base(), Some(ms(30)));
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(ledbat, &steps);
        }
    }
}
