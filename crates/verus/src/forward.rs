//! Forward: one window, from what the receiver got lately and from the queue that one will bear.
//!
//! ```text
//!            ┌ first drain ┐      ┌─ path not met bare for 4 s, or Q > 1.5 q for a round trip ─┐
//! slow start ┴─────────────┴▶ law ┴▶ drain: W = 0.15 r D, two round trips or until bare ───────┴▶ law
//! ```
//!
//! `law.rs` has the law, as functions of integers; `estimates.rs` measures what it is told: r, the delivery rate, D, the
//! round trip without a queue, Q, the queue that stands, and the shares of packets lost and late and of time in which the
//! queue is empty; `drain.rs` says when a flow drains, and `release.rs` lets packets leave.
//!
//! Below capacity the window grows by (D + q)/D each round trip, by itself; at capacity the queue settles at q (Little).
//! q falls with the rate, so among flows of one queue, who has less aims at a longer one and gains, until all have the
//! same, *whatever their round trips*; and the queue of N flows is only ∛N times that of one. A loss is a price on the
//! queue, the same for all flows of a bottleneck: what a short buffer refuses, it refuses everybody alike, and there is
//! no reduction to tune or to undo. docs/forward.md derives this, and says what each part is worth and where it falls short.
//!
//! For a kernel: integers only, a few hundred bytes, nothing allocated, one timer.

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
use verus_words::spec::{either, word_for};

use drain::{Allowed, Drains, Seen, Turn};
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
/// Packets that may leave after a timeout, until one is acknowledged.
const PROBE_PACKETS: u64 = 2;
/// Slow start ends when this many acknowledgements in a row have seen a queue of at least half the target.
const QUEUED_SAMPLES: u32 = 3;
/// Slow start also ends when more than one packet in this many is lost.
const OVERFLOW: u64 = 32;

/// A configuration of forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The delay budget, in ms: the queueing delay beyond which a packet is late. The queue wanted, for a flow alone on a
    /// steady link of 10 Mbit/s, is 0.29 of it.
    pub budget_ms: f64,
    /// A part to leave out, for research.
    #[cfg(feature = "parts")]
    pub without: Option<Part>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            budget_ms: 90.0,
            #[cfg(feature = "parts")]
            without: None,
        }
    }
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
            || format!("none, {}", either(&Part::ALL)),
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

/// A flow's forward.
#[derive(Clone, Debug)]
pub struct Forward {
    parts: Parts,
    estimates: Estimates,
    drains: Drains,
    release: Release,
    /// Slow start's window, until it ends.
    starting: Option<Bytes>,
    queued_samples: u32,
    /// A timeout fired, and nothing was answered since.
    silent: bool,
    /// When the law was computed last.
    updated: Time,
    /// Feedback has arrived since.
    stale: bool,
    /// r as the drain began, and before the queue was long: a path that becomes longer looks slower for a while.
    rate_before: Rate,
    rate_calm: Rate,
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
        };
        Ok(Forward {
            parts,
            estimates: Estimates::new(Duration::from_millis_f64(config.budget_ms), parts),
            drains: Drains::new(Time::ZERO),
            release: Release::new(packet, packet * INITIAL_PACKETS, Time::ZERO),
            starting: Some(packet * INITIAL_PACKETS),
            queued_samples: 0,
            silent: false,
            updated: Time::ZERO,
            stale: false,
            rate_before: Rate::default(),
            rate_calm: Rate::default(),
        })
    }

    fn packet(&self) -> Bytes {
        self.release.packet()
    }

    /// Ends slow start, begins and ends drains.
    fn change_phase(&mut self, now: Time) {
        if self.starting.is_none() {
            if self.parts.has(Part::Drains) {
                self.drain_or_not(now);
            }
        } else {
            let queued = self.estimates.queue() > self.estimates.wanted() / 2;
            self.queued_samples = if queued { self.queued_samples + 1 } else { 0 };
            if self.queued_samples >= QUEUED_SAMPLES
                || self.estimates.loses_more_than(OVERFLOW, self.packet())
            {
                self.starting = None;
                self.drains = Drains::new(now);
                if self.parts.has(Part::Drains) && self.parts.has(Part::FirstDrain) {
                    self.drains.first(now);
                    self.rate_before = self.estimates.rate();
                }
            }
        }
        if self.drains.draining() {
            self.estimates.on_draining(now);
        }
    }

    fn drain_or_not(&mut self, now: Time) {
        let seen = Seen {
            queue: self.estimates.queue(),
            target: self.estimates.wanted(),
            base: self.estimates.base(),
            smoothed_rtt: self.estimates.smoothed_rtt(),
            steady: self.estimates.steady(),
            range: self.estimates.queue_range(),
        };
        let allowed = Allowed {
            early: self.parts.has(Part::EarlyDrains),
            short: self.parts.has(Part::ShortDrains),
        };
        if !self.drains.draining() && !self.drains.is_high() {
            self.rate_calm = self.estimates.rate();
        }
        match self.drains.update(now, &seen, allowed) {
            Turn::Nothing => {}
            Turn::Began => self.rate_before = self.estimates.rate(),
            Turn::Longer => self.lengthen(self.rate_calm),
            Turn::Unmoved => self.lengthen(self.rate_before),
        }
    }

    /// The path has become longer; `rate` is r before that was noticed.
    fn lengthen(&mut self, rate: Rate) {
        if self.parts.has(Part::LongerPath) {
            self.estimates.lengthen(rate);
        }
    }

    /// Whether it is time for the law: once a millisecond, or twice a round trip where that is shorter.
    fn is_due(&self) -> bool {
        let now = self.release.now();
        now.since(self.updated) >= TICK.min(self.estimates.smoothed_rtt() / 2)
    }

    /// Computes window and pace anew from what has been measured.
    fn update(&mut self) {
        let now = self.release.now();
        (self.updated, self.stale) = (now, false);
        let steady = self.starting.is_none() && !self.drains.draining();
        self.estimates.refresh(now, self.packet(), steady);
        self.change_phase(now);
        self.decide();
    }

    fn decide(&mut self) {
        let estimates = &self.estimates;
        let given = if self.silent {
            Some(self.packet() * PROBE_PACKETS)
        } else {
            self.starting
        };
        let phase = match given {
            Some(_) => law::Phase::Given,
            None => self.drains.phase(),
        };
        let queue = if self.parts.has(Part::Damping) || phase != law::Phase::Law {
            estimates.queue()
        } else {
            estimates.wanted()
        };
        let decision = law::decide(&State {
            rate: estimates.rate().as_bps(),
            base: estimates.base().as_micros(),
            queue: queue.as_micros(),
            wanted: estimates.wanted().as_micros(),
            lead: estimates.lead().as_micros(),
            packet: self.packet().get(),
            given: given.unwrap_or_default().get(),
            phase,
        });
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
        self.drains = Drains::new(now);
        self.starting = Some(burst);
        self.release = Release::new(packet_size, burst, now);
        self.decide();
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.release
            .on_sent(packet.at, packet.size, packet.in_flight);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.release.advance(feedback.now, feedback.in_flight);
        self.estimates
            .on_feedback(feedback, self.release.packet(), self.starting.is_none());
        // A window of which less than half is in flight is not used, and says nothing (RFC 7661 §4.2).
        if let Some(window) = &mut self.starting
            && feedback.in_flight_before * 2 >= *window
        {
            *window += feedback.newly_delivered();
        }
        if feedback.acked.is_empty() && feedback.recovered.is_empty() {
            return;
        }
        self.release
            .on_known(self.release.now() - self.estimates.back_excess());
        let answered = std::mem::take(&mut self.silent);

        self.stale = true;
        if answered || self.is_due() {
            self.update();
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.silent = true;
        if let Some(window) = &mut self.starting {
            *window = self.release.packet() * INITIAL_PACKETS;
        }
        self.release
            .begin_again(timeout.now, self.release.packet() * PROBE_PACKETS);

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
        // What was heard since the last decision has to be decided on even if nothing more is heard.
        let soonest = self.release.now() + TICK;
        let late = || self.stale.then(|| (self.updated + TICK * 4).max(soonest));
        self.release.next().or_else(late)
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn recovery(&self) -> Recovery {
        let rack = Recovery::rack();
        Recovery {
            timeout: TimeoutRule {
                // An outage's end is found within a second.
                max: Duration::from_secs(1),
                ..rack.timeout
            },
            // After an outage nothing was lost, as a rule.
            probe_with_new_data: true,
            ..rack
        }
    }

    fn phase(&self) -> Option<Phase> {
        Some(match (self.silent, self.starting, self.drains.draining()) {
            (true, ..) => Phase::Silent,
            (_, Some(_), _) => Phase::SlowStart,
            (.., true) => Phase::Drain,
            _ => Phase::Steady,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let estimates = &self.estimates;
        let [lost, empty, late] = estimates
            .shares()
            .map(|share| share as f64 / law::ONE as f64);
        record("rate_mbps", estimates.rate().as_mbps());
        record("delay_min_ms", estimates.base().as_millis_f64());
        record("queue_ms", estimates.queue().as_millis_f64());
        record("target_ms", estimates.wanted().as_millis_f64());
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

    fn forward() -> Path<Forward> {
        Path::new(Forward::new(Config::default()).expect("the default is in range"))
    }

    /// A packet that left at `sent_ms`, came in `there_ms` later by a clock that is `offset_ms` ahead, and whose
    /// acknowledgement took `back_ms`.
    #[derive(Default)]
    struct Sample {
        app_limited: bool,
        sent_ms: u64,
        there_ms: u64,
        back_ms: u64,
        offset_ms: Option<u64>,
    }

    fn hear(controller: &mut Forward, number: u64, sample: &Sample) {
        let now = Time::from_millis(sample.sent_ms + sample.there_ms + sample.back_ms);
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
                .map(|offset| Time::from_millis(sample.sent_ms + sample.there_ms + offset)),
        };
        controller.on_feedback(&Feedback {
            delivered: SIZE * (number + 1),
            ..testing::feedback(now, &[acked])
        });
    }

    /// A flow in the law, at 8 Mbit/s (a packet each millisecond) over 20 ms there and 20 back.
    fn settled(offset_ms: Option<u64>) -> Forward {
        let mut controller = Forward::new(Config::default()).expect("in range");
        controller.on_start(Time::ZERO, SIZE);
        controller.starting = None;
        for number in 0..1000 {
            let sample = Sample {
                sent_ms: number,
                there_ms: 20,
                back_ms: 20,
                offset_ms,
                ..Sample::default()
            };
            hear(&mut controller, number, &sample);
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
        // 26 ms × ∛(10/8) = 28.0 ms, and a fifth more while nothing waits: a packet a millisecond.
        let steady = {
            let mut free = controller.clone();
            free.estimates.believe_steady();
            free.decide();
            free
        };
        assert!((ms(steady.estimates.wanted()) - 28.01).abs() < 0.05);
        let window = steady.release.window().as_f64() / SIZE.as_f64();
        assert!((window - (40.0 + 28.01 * 1.2)).abs() < 0.1, "{window}");
    }

    #[test]
    fn a_queue_on_the_way_back_is_no_queue() {
        for offset_ms in [0, 1_000_000] {
            let mut controller = settled(Some(offset_ms));
            for number in 1000..1400 {
                let sample = Sample {
                    sent_ms: number,
                    there_ms: 20,
                    back_ms: 70,
                    offset_ms: Some(offset_ms),
                    ..Sample::default()
                };
                hear(&mut controller, number, &sample);
            }
            assert_eq!(ms(controller.estimates.queue()), 0.0);
            assert_eq!(controller.estimates.rate(), Rate::from_mbps(8.0));
            // Longer for good, once the shorter way is forgotten.
            for number in 1400..2400 {
                let sample = Sample {
                    sent_ms: number,
                    there_ms: 20,
                    back_ms: 70,
                    offset_ms: Some(offset_ms),
                    ..Sample::default()
                };
                hear(&mut controller, number, &sample);
            }
            assert_eq!(ms(controller.estimates.base()), 90.0);
        }
    }

    #[test]
    fn without_the_receivers_clock_the_round_trip_has_to_do() {
        let mut controller = settled(None);
        for number in 1000..1400 {
            let sample = Sample {
                sent_ms: number,
                there_ms: 20,
                back_ms: 70,
                offset_ms: None,
                ..Sample::default()
            };
            hear(&mut controller, number, &sample);
        }
        assert_eq!(ms(controller.estimates.queue()), 50.0);
    }

    #[test]
    fn a_source_that_runs_dry_is_not_taken_for_a_slow_path() {
        let mut controller = settled(None);
        for step in 0..500 {
            let sample = Sample {
                app_limited: true,
                sent_ms: 1000 + step * 10,
                there_ms: 20,
                back_ms: 20,
                offset_ms: None,
            };
            hear(&mut controller, 1000 + step, &sample);
        }
        assert_eq!(controller.estimates.rate(), Rate::from_mbps(8.0));
    }

    #[test]
    fn losses_are_a_price_on_the_queue_and_cut_no_window() {
        let mut path = forward();
        path.controller.starting = None;
        for round in 0..400u64 {
            path.send(10);
            path.wait_ms(40);
            let numbers = path.in_flight_numbers();
            // One in ten, from the tenth second on.
            let lost = usize::from(round > 200);
            path.feedback(
                numbers[lost..].iter().copied(),
                numbers[..lost].iter().copied(),
                [],
            );
            path.controller.drains = Drains::new(path.now);
        }
        // 10 % lost; D is what it was, and so is nearly all of the window.
        let estimates = &path.controller.estimates;
        let [lost, ..] = estimates.shares();
        assert!(lost.abs_diff(law::ONE / 10) < law::ONE / 200, "{lost}");
        assert!(path.controller.window() >= estimates.rate().bytes_in(estimates.base()));
    }

    #[test]
    fn a_drain_lasts_until_the_path_is_bare() {
        let mut controller = settled(None);
        controller.estimates.believe_steady();
        let (mut drained, mut number) = (false, 1000);
        // A queue of 60 ms that does not go away, until the flow drains.
        while !drained && number < 10_000 {
            let there_ms = 80;
            let sample = Sample {
                sent_ms: number,
                there_ms,
                back_ms: 20,
                offset_ms: None,
                ..Sample::default()
            };
            hear(&mut controller, number, &sample);
            drained = controller.drains.draining();
            number += 1;
        }
        assert!(drained && number < 2000, "it took until {number}");
        let before = controller.estimates.rate();
        assert!(controller.release.window() < before.bytes_in(controller.estimates.base()) / 5);
        // Bare: one packet in ten milliseconds comes through.
        for step in 0..10 {
            let sample = Sample {
                sent_ms: number + 100 + step * 10,
                there_ms: 20,
                back_ms: 20,
                offset_ms: None,
                ..Sample::default()
            };
            hear(&mut controller, number + step, &sample);
        }
        assert!(!controller.drains.draining());
    }

    #[test]
    fn silence_counts_as_delivery_up_to_the_horizon() {
        // Four gaps of 1 ms, of which the mean knows 28 % after a second; and, without the receiver's times, 80 ms.
        for (offset_ms, wanted_ms) in [(None, 81.13), (Some(0), 1.13)] {
            let mut controller = settled(offset_ms);
            let at = controller.release.now();
            let horizon = ms(controller.estimates.horizon());
            assert!((horizon - wanted_ms).abs() < 0.05, "{horizon} ms");
            let in_flight = SIZE * 1000;
            let mut room = |ms: u64| {
                controller.on_tick(at + Duration::from_millis(ms), in_flight);
                controller.release.unheard().as_f64() / SIZE.as_f64()
            };
            assert_eq!(room(1), 0.0);
            let known = horizon.min(31.0) - 1.0;
            assert!((room(31) - known).abs() < 0.01);
            assert!((room(5000) - (horizon - 1.0)).abs() < 0.01);
        }
    }

    #[test]
    fn a_timeout_leaves_two_packets_until_anything_is_answered() {
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
        assert!(size <= 912, "{size} bytes");
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
        /// The window is at least a packet and within what was ever delivered; a sender with nothing in flight may
        /// send or is woken to; probes are finite; and the same history gives the same windows.
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
                    // Who has something in flight will hear of it.
                    let mut idle = controller.clone();
                    idle.on_tick(idle.release.now(), Bytes::ZERO);
                    if idle.allowance().sendable(Bytes::ZERO) < SIZE {
                        let tick = idle.next_tick().expect("it is woken");
                        assert!(tick > idle.release.now());
                    }
                    controller.probe(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
                    windows.push(controller.window());
                });
                // Woken until it may send: within the time that a packet takes at the least pace.
                let mut free = path.controller.clone();
                free.on_tick(free.release.now(), Bytes::ZERO);
                let mut ticks = 0;
                while free.allowance().sendable(Bytes::ZERO) < SIZE {
                    let at = free.next_tick().expect("it is woken");
                    free.on_tick(at, Bytes::ZERO);
                    ticks += 1;
                    assert!(ticks < 100, "it never may send");
                }
                windows
            };
            prop_assert_eq!(windows(), windows());
        }
    }
}
