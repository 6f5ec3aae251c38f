//! Forward: one window, computed from the recent delivery rate and a target queue.
//!
//! ```text
//!            ┌ first drain ┐      ┌─ no empty path for 4 s, or Q > 1.5 q for a round trip ─┐
//! slow start ┴─────────────┴▶ law ┴▶ drain: W = 0.15 r D, two round trips at most ─────────┴▶ law
//! ```
//!
//! `law.rs` is the law, as functions of integers. `estimates.rs` measures its inputs: r, the
//! delivery rate; D, the round trip without a queue; and Q, the standing queue. It also measures
//! the shares of packets lost and late, and the share of time in which the queue is empty.
//! `drain.rs` decides when a flow drains, and `release.rs` when packets leave.
//!
//! Below capacity the window grows by the factor (D + q)/D each round trip, without probing. At
//! capacity the queue settles at q (Little's law). q falls as r rises, so the slower of the flows
//! in one queue has the longer target and gains. In the end all rates are equal, *whatever the
//! round-trip times*. The queue of N flows is only ∛N times that of one.
//!
//! A loss is a price on the target queue. It is equal for all flows of a bottleneck, since a full
//! buffer rejects the packets of every flow alike. So there is no window reduction to tune or to
//! undo. docs/forward.md derives the law, and says what each part is worth and where it falls
//! short.
//!
//! Fit for a kernel: integers only, a few hundred bytes of state, no allocation, one timer.

mod constants;
mod drain;
mod estimates;
pub mod law;
#[cfg_attr(
    not(any(test, feature = "parts")),
    expect(dead_code, reason = "nothing can be left out")
)]
mod parts;
mod release;

use verus_core::configuration::Configured;
use verus_core::controller::{Allowance, Controller, Departure, Feedback, Phase, Timeout};
use verus_core::credit::TICK;
use verus_core::ecn::Ecn;
use verus_core::recovery::{Recovery, TimeoutRule};
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, Within};
use verus_words::spec::{Row, field};
#[cfg(feature = "parts")]
use verus_words::spec::{Takes, word_for};

#[cfg(feature = "parts")]
pub use constants::Constants;
use drain::{Allowed, Drains, Lengthened, QueueObservation};
use estimates::Estimates;
use law::State;
#[cfg(feature = "parts")]
pub use parts::Part;
#[cfg(not(feature = "parts"))]
use parts::Part;
use parts::Parts;
use release::Release;

/// The window at the start (RFC 6928).
const INITIAL_PACKETS: u64 = 10;
/// The window after a timeout, in packets, until one is acknowledged.
const PROBE_PACKETS: u64 = 2;
/// The number of consecutive decisions with a queue above half the target that ends slow start.
const QUEUED_SAMPLES: u32 = 3;
/// The share of lost packets, one in this many, above which slow start ends.
const OVERFLOW: u64 = 32;

/// A configuration of forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The delay budget, in ms: the queueing delay beyond which a packet is late. The target queue
    /// is 0.29 of it for a flow alone on a steady link of 10 Mbit/s.
    pub budget_ms: f64,
    /// The part that is left out, for research.
    #[cfg(feature = "parts")]
    pub without: Option<Part>,
    /// Constants, for research.
    #[cfg(feature = "parts")]
    pub constants: Constants,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            budget_ms: 90.0,
            #[cfg(feature = "parts")]
            without: None,
            #[cfg(feature = "parts")]
            constants: Constants::DEFAULT,
        }
    }
}

#[cfg(feature = "parts")]
macro_rules! constant {
    ($name:ident) => {
        Row::other(
            stringify!($name),
            || Takes::Number(""),
            "a constant, for research",
            |c| c.constants.$name.to_string(),
            |c, setting| {
                c.constants.$name = setting.whole()?.max(1);
                Ok(())
            },
        )
    };
}

const BUDGET_MS: Within = Within {
    words: "between 6 and 1000 ms",
    valid: |ms| (6.0..=1000.0).contains(&ms),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        field!(budget_ms).within(
            "ms",
            "queueing delay beyond which a packet is late; on a steady link of 10 Mbit/s a flow keeps 0.29 of it",
            BUDGET_MS,
        ),
        #[cfg(feature = "parts")]
        Row::other(
            "without",
            || Takes::none_or(&Part::ALL),
            "leaves a part out, for research",
            |c| {
                c.without
                    .map_or("none".to_owned(), |part| word_for(&Part::ALL, &part))
            },
            |c, setting| {
                c.without = match setting.text() {
                    "none" => None,
                    _ => Some(setting.word(&Part::ALL)?),
                };
                Ok(())
            },
        ),
        #[cfg(feature = "parts")]
        constant!(growth),
        #[cfg(feature = "parts")]
        constant!(lateness),
        #[cfg(feature = "parts")]
        constant!(loss_price),
        #[cfg(feature = "parts")]
        constant!(damping),
        #[cfg(feature = "parts")]
        constant!(lost_steps),
        #[cfg(feature = "parts")]
        constant!(high_percent),
        #[cfg(feature = "parts")]
        constant!(root),
        #[cfg(feature = "parts")]
        constant!(new_rounds),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Forward".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Forward::new(self.clone()).expect(CHECKED))
    }
}

/// The controller of one flow.
#[derive(Clone, Debug)]
pub struct Forward {
    parts: Parts,
    estimates: Estimates,
    drains: Drains,
    release: Release,
    /// The window of slow start; `None` after it.
    slow_start_window: Option<Bytes>,
    /// Consecutive decisions of slow start with a queue above half the target.
    queued_samples: u32,
    /// Whether a timeout fired and no acknowledgement has come since.
    silent: bool,
    /// When the law last decided.
    updated: Time,
    /// Whether feedback has arrived since `updated`.
    stale: bool,
    calm: Calm,
}

/// r, kbit/s, and q, µs, of one to two round trips ago, before the queue was long. A path that
/// becomes longer delivers nothing for a while, and so appears slower before it appears longer.
#[derive(Clone, Copy, Debug, Default)]
struct Calm {
    older: (u32, u32),
    newer: (u32, u32),
    since: Time,
}

impl Calm {
    fn update(&mut self, now: Time, smoothed_rtt: Duration, rate: Rate, target: Duration) {
        if now.since(self.since) >= smoothed_rtt {
            let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
            self.older = self.newer;
            self.newer = (narrow(rate.as_bps() / 1000), narrow(target.as_micros()));
            self.since = now;
        }
    }

    fn rate(&self) -> Rate {
        Rate::from_bps(u64::from(self.older.0) * 1000)
    }

    fn target(&self) -> Duration {
        Duration::from_micros(u64::from(self.older.1))
    }
}

impl Forward {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        let packet = Bytes::new(1500);
        let parts = Parts {
            #[cfg(feature = "parts")]
            without: config.without,
            #[cfg(feature = "parts")]
            constants: config.constants,
        };
        Ok(Forward {
            parts,
            estimates: Estimates::new(Duration::from_millis_f64(config.budget_ms), parts),
            drains: Drains::new(Time::ZERO, Duration::ZERO),
            release: Release::new(packet, packet * INITIAL_PACKETS, Time::ZERO),
            slow_start_window: Some(packet * INITIAL_PACKETS),
            queued_samples: 0,
            silent: false,
            updated: Time::ZERO,
            stale: false,
            calm: Calm::default(),
        })
    }

    fn packet(&self) -> Bytes {
        self.release.packet()
    }

    /// Ends slow start, and begins and ends drains.
    fn change_phase(&mut self, now: Time) {
        if self.slow_start_window.is_none() {
            if self.parts.has(Part::Drains) {
                self.update_drains(now);
            }
        } else {
            let queued = self.estimates.queue() > self.estimates.target() / 2;
            self.queued_samples = if queued { self.queued_samples + 1 } else { 0 };
            if self.queued_samples >= QUEUED_SAMPLES
                || self.estimates.loses_more_than(OVERFLOW, self.packet())
            {
                self.slow_start_window = None;
                self.drains = Drains::new(now, self.estimates.feedback_time());
                if self.parts.has(Part::Drains) && self.parts.has(Part::FirstDrain) {
                    self.drains.begin_first(now);
                }
            }
        }
        if self.drains.draining() {
            self.estimates.on_draining(now);
        }
    }

    fn update_drains(&mut self, now: Time) {
        let observation = QueueObservation {
            queue: self.estimates.queue(),
            target: self.estimates.target(),
            base: self.estimates.base(),
            smoothed_rtt: self.estimates.smoothed_rtt(),
            steady: self.estimates.steady(),
            range: self.estimates.queue_range(),
            link_is_steady: self.estimates.link_is_steady(),
            calm_target: self.calm.target(),
            feedback_time: self.estimates.feedback_time(),
        };
        let allowed = Allowed {
            early: self.parts.has(Part::EarlyDrains),
            short: self.parts.has(Part::ShortDrains),
            high_percent: self.parts.constants().high_percent,
        };
        if !self.drains.draining() && !self.drains.is_high() {
            let (rate, target) = (self.estimates.rate(), self.estimates.target());
            self.calm
                .update(now, observation.smoothed_rtt, rate, target);
        }
        let longer = self.drains.update(now, &observation, allowed);
        if let Some(longer) = longer.filter(|_| self.parts.has(Part::LongerPath)) {
            let holds_rate = longer == Lengthened::Before;
            self.estimates.lengthen(self.calm.rate(), holds_rate);
        }
    }

    /// Whether the law is due: once a millisecond, or twice a round trip where that is more often.
    fn is_due(&self) -> bool {
        let now = self.release.now();
        now.since(self.updated) >= TICK.min(self.estimates.smoothed_rtt() / 2)
    }

    /// Updates the estimates and the phase, then decides.
    fn update(&mut self) {
        let now = self.release.now();
        (self.updated, self.stale) = (now, false);
        let law_decides = self.slow_start_window.is_none() && !self.drains.draining();
        self.estimates.refresh(now, self.packet(), law_decides);
        self.change_phase(now);
        self.decide();
    }

    /// Computes window and pace from the estimates.
    fn decide(&mut self) {
        let estimates = &self.estimates;
        let fixed_window = if self.silent {
            Some(self.packet() * PROBE_PACKETS)
        } else {
            self.slow_start_window
        };
        let phase = match fixed_window {
            Some(_) => law::Phase::Given,
            None => self.drains.phase(),
        };
        let queue = if self.parts.has(Part::Damping) || phase != law::Phase::Law {
            estimates.queue()
        } else {
            estimates.target()
        };
        let state = State {
            rate: estimates.rate().as_bps(),
            base: estimates.base().as_micros(),
            queue: queue.as_micros(),
            target: estimates.target().as_micros(),
            lead: estimates.lead().as_micros(),
            packet: self.packet().get(),
            given: fixed_window.unwrap_or_default().get(),
            phase,
        };
        let decision = law::decide_with(self.parts.constants(), &state);
        let horizon = if phase == law::Phase::Law && self.parts.has(Part::Prediction) {
            estimates.horizon()
        } else {
            Duration::ZERO
        };
        self.release.follow(&decision, estimates.rate(), horizon);
    }
}

impl Controller for Forward {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        let burst = packet_size * INITIAL_PACKETS;
        self.drains = Drains::new(now, Duration::ZERO);
        self.slow_start_window = Some(burst);
        self.release = Release::new(packet_size, burst, now);
        self.decide();
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.release
            .on_sent(packet.at, packet.size, packet.in_flight);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.release.advance(feedback.now, feedback.in_flight);
        self.estimates.on_feedback(
            feedback,
            self.release.packet(),
            self.slow_start_window.is_none(),
        );
        // A window of which an application-limited flow used less than half was not validated, so
        // it does not grow (RFC 7661 §4.2).
        if let Some(window) = &mut self.slow_start_window
            && (feedback.in_flight_before * 2 >= *window
                || feedback
                    .acked
                    .last()
                    .is_some_and(|last| !last.packet.app_limited))
        {
            *window += feedback.newly_delivered();
        }
        if feedback.acked.is_empty() && feedback.recovered.is_empty() {
            return;
        }
        self.release
            .on_acknowledged(self.release.now() - self.estimates.reverse_excess());
        let answered = std::mem::take(&mut self.silent);

        self.stale = true;
        if answered || self.is_due() {
            self.update();
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.silent = true;
        if let Some(window) = &mut self.slow_start_window {
            *window = self.release.packet() * INITIAL_PACKETS;
        }
        self.release
            .restart(timeout.now, self.release.packet() * PROBE_PACKETS);

        self.decide();
    }

    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        self.release.advance(now, in_flight);
        if self.stale && self.is_due() {
            self.update();
        }
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.release.resize(size);
        self.decide();
    }

    fn window(&self) -> Bytes {
        self.release.window()
    }

    fn allowance(&self) -> Allowance {
        self.release.allowance(self.parts.has(Part::Pacing))
    }

    fn next_tick(&self) -> Option<Time> {
        // Feedback since the last decision needs a decision, even if no acknowledgement follows.
        let soonest = self.release.now() + TICK;
        let decision_due = || self.stale.then(|| (self.updated + TICK * 4).max(soonest));
        self.release.next().or_else(decision_due)
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn recovery(&self) -> Recovery {
        let rack = Recovery::rack();
        Recovery {
            timeout: TimeoutRule {
                // The end of an outage is detected within a second.
                max: Duration::from_secs(1),
                ..rack.timeout
            },
            // An outage usually loses no packets.
            probe_with_new_data: true,
            ..rack
        }
    }

    fn phase(&self) -> Option<Phase> {
        Some(
            match (self.silent, self.slow_start_window, self.drains.draining()) {
                (true, ..) => Phase::Silent,
                (_, Some(_), _) => Phase::SlowStart,
                (.., true) => Phase::Drain,
                _ => Phase::Steady,
            },
        )
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let estimates = &self.estimates;
        let [lost, empty, late] = estimates
            .shares()
            .map(|share| share as f64 / law::ONE as f64);
        record("rate_mbps", estimates.rate().as_mbps());
        record("delay_min_ms", estimates.base().as_millis_f64());
        record("queue_ms", estimates.queue().as_millis_f64());
        record("target_ms", estimates.target().as_millis_f64());
        record("horizon_ms", estimates.horizon().as_millis_f64());
        record("loss_share", lost);
        record("empty_share", empty);
        record("late_share", late);
        let bound = estimates.room() as f64 / law::ONE as f64;
        record("room_ms", bound * estimates.steady().as_millis_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::controller::Acked;
    use verus_core::testing::{self, Path, SIZE};

    /// The milliseconds and packets after which a flow is [`settled`].
    const SETTLED: u64 = 3000;

    fn forward() -> Path<Forward> {
        Path::new(Forward::new(Config::default()).expect("the default is in range"))
    }

    /// An acknowledged packet. It left at `sent_ms` and arrived `forward_ms` later, by a clock that
    /// is `offset_ms` ahead. Its acknowledgement took `reverse_ms`.
    #[derive(Default)]
    struct Sample {
        app_limited: bool,
        sent_ms: u64,
        forward_ms: u64,
        reverse_ms: u64,
        offset_ms: Option<u64>,
    }

    /// Gives the controller the feedback of a sample.
    fn acknowledge(controller: &mut Forward, number: u64, sample: &Sample) {
        let now = Time::from_millis(sample.sent_ms + sample.forward_ms + sample.reverse_ms);
        let packet = Departure {
            app_limited: sample.app_limited,
            ..testing::departure(number, Time::from_millis(sample.sent_ms))
        };
        let rtt = now.since(packet.at);
        let acked = Acked {
            packet,
            rtt,
            received_at: sample
                .offset_ms
                .map(|offset| Time::from_millis(sample.sent_ms + sample.forward_ms + offset)),
        };
        controller.on_feedback(&Feedback {
            delivered: SIZE * (number + 1),
            ..testing::feedback(now, &[acked])
        });
    }

    /// A flow after slow start, at 8 Mbit/s (a packet each millisecond), on a path of 20 ms each
    /// way. It is not new any more.
    fn settled(offset_ms: Option<u64>) -> Forward {
        let mut controller = Forward::new(Config::default()).expect("in range");
        controller.on_start(Time::ZERO, SIZE);
        controller.slow_start_window = None;
        for number in 0..SETTLED {
            let sample = Sample {
                sent_ms: number,
                forward_ms: 20,
                reverse_ms: 20,
                offset_ms,
                ..Sample::default()
            };
            acknowledge(&mut controller, number, &sample);
        }
        controller
    }

    fn ms(span: Duration) -> f64 {
        span.as_millis_f64()
    }

    #[test]
    fn the_window_is_the_rate_times_round_trip_and_queue() {
        let controller = settled(None);
        assert_eq!(controller.estimates.rate(), Rate::from_mbps(8.0));
        assert_eq!(ms(controller.estimates.base()), 40.0);
        assert_eq!(ms(controller.estimates.queue()), 0.0);
        // Target of 26 ms × ∛(10/8) = 28.0 ms, and an eighth more while the queue is empty. One
        // packet is a millisecond.
        let steady = {
            let mut copy = controller.clone();
            copy.estimates.assume_steady();
            copy.decide();
            copy
        };
        assert!((ms(steady.estimates.target()) - 28.01).abs() < 0.05);
        let window = steady.release.window().as_f64() / SIZE.as_f64();
        assert!((window - (40.0 + 28.01 * 1.125)).abs() < 0.1, "{window}");
    }

    #[test]
    fn a_new_flow_has_the_target_of_a_link_of_varying_rate() {
        let mut controller = Forward::new(Config::default()).expect("in range");
        controller.on_start(Time::ZERO, SIZE);
        controller.slow_start_window = None;
        let mut target_ms = Vec::new();
        // Behind a queue of 10 ms, which is never empty after the first packet.
        for number in 0..2700 {
            let sample = Sample {
                sent_ms: number,
                forward_ms: if number == 0 { 20 } else { 30 },
                reverse_ms: 20,
                ..Sample::default()
            };
            acknowledge(&mut controller, number, &sample);
            target_ms.push(ms(controller.estimates.target()));
        }
        // It is new for 64 round trips of 40 ms. With e = 5 % the target is 1.6 s.
        assert!((target_ms[2400] - 1.6 * 28.01).abs() < 0.1, "{target_ms:?}");
        assert!((target_ms[2699] - 28.01).abs() < 0.05, "{target_ms:?}");
    }

    #[test]
    fn a_queue_on_the_reverse_path_does_not_count() {
        for offset_ms in [0, 1_000_000] {
            let mut controller = settled(Some(offset_ms));
            for number in SETTLED..SETTLED + 400 {
                let sample = Sample {
                    sent_ms: number,
                    forward_ms: 20,
                    reverse_ms: 70,
                    offset_ms: Some(offset_ms),
                    ..Sample::default()
                };
                acknowledge(&mut controller, number, &sample);
            }
            assert_eq!(ms(controller.estimates.queue()), 0.0);
            assert_eq!(controller.estimates.rate(), Rate::from_mbps(8.0));
            // D includes the reverse queue once the shorter delay has expired.
            for number in SETTLED + 400..SETTLED + 1400 {
                let sample = Sample {
                    sent_ms: number,
                    forward_ms: 20,
                    reverse_ms: 70,
                    offset_ms: Some(offset_ms),
                    ..Sample::default()
                };
                acknowledge(&mut controller, number, &sample);
            }
            assert_eq!(ms(controller.estimates.base()), 90.0);
        }
    }

    #[test]
    fn without_the_receivers_clock_the_whole_round_trip_counts() {
        let mut controller = settled(None);
        for number in SETTLED..SETTLED + 400 {
            let sample = Sample {
                sent_ms: number,
                forward_ms: 20,
                reverse_ms: 70,
                offset_ms: None,
                ..Sample::default()
            };
            acknowledge(&mut controller, number, &sample);
        }
        assert_eq!(ms(controller.estimates.queue()), 50.0);
    }

    #[test]
    fn a_source_that_runs_dry_is_not_taken_for_a_slow_path() {
        let mut controller = settled(None);
        for step in 0..500 {
            let sample = Sample {
                app_limited: true,
                sent_ms: SETTLED + step * 10,
                forward_ms: 20,
                reverse_ms: 20,
                offset_ms: None,
            };
            acknowledge(&mut controller, SETTLED + step, &sample);
        }
        assert_eq!(controller.estimates.rate(), Rate::from_mbps(8.0));
    }

    #[test]
    fn losses_are_a_price_on_the_queue_and_cut_no_window() {
        let mut path = forward();
        path.controller.slow_start_window = None;
        for round in 0..400u64 {
            path.send(10);
            path.wait_ms(40);
            let numbers = path.in_flight_numbers();
            // Loss of one packet in ten after round 200.
            let lost = usize::from(round > 200);
            path.feedback(
                numbers[lost..].iter().copied(),
                numbers[..lost].iter().copied(),
                [],
            );
            let feedback_time = path.controller.estimates.feedback_time();
            path.controller.drains = Drains::new(path.now, feedback_time);
        }
        // Loss of 10 % leaves D unchanged, and nearly all of the window.
        let estimates = &path.controller.estimates;
        let [lost, ..] = estimates.shares();
        assert!(lost.abs_diff(law::ONE / 10) < law::ONE / 200, "{lost}");
        assert!(path.controller.window() >= estimates.rate().bytes_in(estimates.base()));
    }

    #[test]
    fn a_drain_lasts_until_the_path_is_empty() {
        let mut controller = settled(None);
        controller.estimates.assume_steady();
        let (mut drained, mut number) = (false, SETTLED);
        // A queue of 60 ms stands until the flow drains.
        while !drained && number < 10_000 {
            let forward_ms = 80;
            let sample = Sample {
                sent_ms: number,
                forward_ms,
                reverse_ms: 20,
                offset_ms: None,
                ..Sample::default()
            };
            acknowledge(&mut controller, number, &sample);
            drained = controller.drains.draining();
            number += 1;
        }
        assert!(drained && number < SETTLED + 1000, "it took until {number}");
        let before = controller.estimates.rate();
        assert!(controller.release.window() < before.bytes_in(controller.estimates.base()) / 5);
        // An empty path delivers one packet in ten milliseconds.
        for step in 0..10 {
            let sample = Sample {
                sent_ms: number + 100 + step * 10,
                forward_ms: 20,
                reverse_ms: 20,
                offset_ms: None,
                ..Sample::default()
            };
            acknowledge(&mut controller, number + step, &sample);
        }
        assert!(!controller.drains.draining());
    }

    #[test]
    fn silence_counts_as_delivery_up_to_the_horizon() {
        // Four gaps of 1 ms, of which the mean has reached 63 % after 3 s. Without the
        // receiver's times, J adds 80 ms.
        for (offset_ms, expected_ms) in [(None, 82.53), (Some(0), 2.53)] {
            let mut controller = settled(offset_ms);
            let at = controller.release.now();
            let horizon = ms(controller.estimates.horizon());
            assert!((horizon - expected_ms).abs() < 0.05, "{horizon} ms");
            let in_flight = SIZE * 1000;
            let mut assumed_packets = |ms: u64| {
                controller.on_tick(at + Duration::from_millis(ms), in_flight);
                controller.release.assumed_delivered().as_f64() / SIZE.as_f64()
            };
            assert_eq!(assumed_packets(1), 0.0);
            let expected = horizon.min(31.0) - 1.0;
            assert!((assumed_packets(31) - expected).abs() < 0.01);
            assert!((assumed_packets(5000) - (horizon - 1.0)).abs() < 0.01);
        }
    }

    #[test]
    fn a_timeout_leaves_two_packets_until_an_acknowledgement() {
        let mut path = forward();
        path.fill();
        path.wait_ms(40);
        path.ack([0, 1, 2]);
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE * 2);
        path.fill();
        assert_eq!(path.in_flight(), SIZE * 2);
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
        assert!(path.controller.window() > SIZE * 2);
    }

    #[test]
    fn its_state_is_a_few_hundred_bytes() {
        let size = std::mem::size_of::<Forward>();
        assert!(size <= 968, "{size} bytes");
    }

    #[test]
    #[allow(
        clippy::needless_update,
        reason = "there is more to a configuration with the feature `parts`"
    )]
    fn values_out_of_range_are_refused_by_name() {
        for budget_ms in [0.0, -1.0, f64::NAN, 1e9] {
            let config = Config {
                budget_ms,
                ..Config::default()
            };
            assert_eq!(Forward::new(config).unwrap_err().field, "budget_ms");
        }
    }

    proptest! {
        /// Invariants of any history. The window is at least a packet, and bounded by the packets
        /// sent. A sender with nothing in flight may send, or is woken to send. Recorded values are
        /// finite, and the same history gives the same windows.
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(
            steps in testing::steps(),
            budget_ms in 6.0..1000.0f64,
            left_out in 0..2 * Part::ALL.len(),
        ) {
            let windows = || {
                let config = Config {
                    budget_ms,
                    #[cfg(feature = "parts")]
                    without: Part::ALL.get(left_out).map(|(_, part)| *part),
                };
                let _ = left_out;
                let mut path = Path::new(Forward::new(config).expect("in range"));
                let mut windows = Vec::new();
                let mut sent = 0;
                testing::run(&mut path, &steps, |path| {
                    let controller = &path.controller;
                    sent = path.in_flight_numbers().last().map_or(sent, |last| last + 1).max(sent);
                    assert!(controller.window() >= SIZE);
                    assert!(controller.window() <= SIZE * (sent + 100) * 4, "{:?}", controller.window());
                    // A sender with nothing in flight gets no feedback, so a tick must wake it.
                    let mut idle = controller.clone();
                    idle.on_tick(idle.release.now(), Bytes::ZERO);
                    if idle.allowance().sendable(Bytes::ZERO) < SIZE {
                        let tick = idle.next_tick().expect("it is woken");
                        assert!(tick > idle.release.now());
                    }
                    controller.probe(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
                    windows.push(controller.window());
                });
                // Ticks until it may send, within the time that a packet takes at the least pace.
                let mut idle = path.controller.clone();
                idle.on_tick(idle.release.now(), Bytes::ZERO);
                let mut ticks = 0;
                while idle.allowance().sendable(Bytes::ZERO) < SIZE {
                    let at = idle.next_tick().expect("it is woken");
                    idle.on_tick(at, Bytes::ZERO);
                    ticks += 1;
                    assert!(ticks < 100, "it never may send");
                }
                windows
            };
            prop_assert_eq!(windows(), windows());
        }
    }
}
