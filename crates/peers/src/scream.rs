//! SCReAM version 2: a window and a bitrate for live media (draft-ietf-ccwg-rfc8298bis-screamv2).
//!
//! A reference window grows by about a packet in a round trip. It grows faster the longer there was
//! no congestion, and slower near the window at the last congestion. Losses cut it by a fixed
//! share; marks (ECN, L4S) and a queue cut it in proportion. A queue counts as marks from half of
//! its target on. Three times that window may be in flight, since frames come at once. The limit of
//! the flow is the bitrate requested from the source: the window over the round trip, minus an
//! allowance for frames of different sizes ([`Controller::media_rate`]). A source that does not ask
//! for this rate is paced at one and a half times of it.
//!
//! Names are those of the draft's section "Detailed Description of SCReAMv2 Sender Algorithm". Its suggestions are left out:
//! REDUCE_JITTER, losses of links and policers, clock drift, competing flows; so are rate_adjust_factor and frame_size_dev, for
//! which a sender would have to know how long frames wait in the source.

use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Departure, Feedback, Phase, Timeout};
use verus_core::ecn::Ecn;
use verus_core::pacer;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, Within};
use verus_words::spec::{Row, field};

mod queue;

use queue::Queue;

/// MIN_REF_WND, bytes; the window at the start.
const MIN_REFERENCE: f64 = 3000.0;
/// QDELAY_TARGET_LO.
const QUEUE_TARGET: Duration = Duration::from_millis(60);
/// VIRTUAL_RTT: flows on shorter paths grow and shrink as on one of this length.
const VIRTUAL_RTT: Duration = Duration::from_millis(25);
/// BETA_LOSS and BETA_ECN: what a loss and a mark of RFC 3168 leave of the window.
const LOSS_BETA: f64 = 0.7;
const MARK_BETA: f64 = 0.8;
/// POST_CONGESTION_DELAY_RTT: round trips after congestion until growth is no longer cautious.
const CAUTIOUS_ROUND_TRIPS: f64 = 100.0;
/// MUL_INCREASE_FACTOR: the share of the window that a round trip adds, at the most, beside a packet.
const GROWTH: f64 = 0.02;
/// BYTES_IN_FLIGHT_HEAD_ROOM: the window grows to at most this multiple of the volume in flight.
const HEADROOM: f64 = 1.5;
/// REF_WND_OVERHEAD_MAX: at most this many times the window may be in flight, where delays are not filtered for jitter.
const OVERHEAD: f64 = 3.0;
/// PACKET_PACING_HEADROOM and RATE_PACE_MIN.
const PACING_HEADROOM: f64 = 1.5;
const LEAST_PACE: Rate = Rate::from_bps(50_000);
/// The pace before there is a round trip (pace_bitrate).
const FIRST_PACE: Rate = Rate::from_bps(1_000_000);
/// RELAXED_PACING_LIMIT_LOW and MAX_RELAXED_PACING_FACTOR: from this share of the greatest bitrate on, the pace rises
/// to up to this many times its value.
const RELAXED_FROM: f64 = 0.8;
const RELAXED_MOST: f64 = 4.0;
/// PACKET_OVERHEAD, bytes of each packet that are no media.
const PACKET_OVERHEAD: f64 = 20.0;
/// The bitrate is the window's over this, so that the source's own queue stays short.
const BITRATE_MARGIN: f64 = 1.2;
/// L4S_AVG_G_UP and L4S_AVG_G_DOWN: weights in the average of marks as it rises and falls.
const MARKS_UP: f64 = 1.0 / 8.0;
const MARKS_DOWN: f64 = 1.0 / 128.0;
/// The average of marks is renewed this often, or in each round trip if that is shorter.
const MARKS_EVERY: Duration = Duration::from_millis(10);

/// A configuration of SCReAM version 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The least and the greatest bitrate of the source, Mbit/s (TARGET_BITRATE_MIN, TARGET_BITRATE_MAX; the draft has none:
    /// 0.1, and 100 as the link in the authors' record of runs).
    pub min_rate_mbps: f64,
    /// See [`min_rate_mbps`](Self::min_rate_mbps).
    pub max_rate_mbps: f64,
    /// Whether marks are answered by their share (L4S), or each one as in RFC 3168 (IS_L4S).
    pub l4s: bool,
    /// A burst is what the pace carries in this time, ms. Default 0.25, the least in the authors' record of runs: a queue of one
    /// millisecond is marked already (L4S).
    pub burst_ms: f64,
}

impl Config {
    /// A burst at this pace.
    fn quantum(&self, pace: Rate, packet_size: Bytes) -> Bytes {
        let burst = Duration::from_millis_f64(self.burst_ms);
        pacer::quantum(pace, burst, packet_size)
    }

    /// The bitrate nearest to this that the source may be asked for.
    fn in_range(&self, mbps: f64) -> Rate {
        Rate::from_mbps(mbps.clamp(self.min_rate_mbps, self.max_rate_mbps))
    }

    fn ecn(&self) -> Ecn {
        if self.l4s { Ecn::Ect1 } else { Ecn::Ect0 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_rate_mbps: 0.1,
            max_rate_mbps: 100.0,
            l4s: true,
            burst_ms: 0.25,
        }
    }
}

const RATE: Within = Within {
    words: "between 0.01 and 10000 Mbit/s",
    valid: |mbps| (0.01..=10_000.0).contains(&mbps),
};

const BURST: Within = Within {
    words: "between 0.01 and 100 ms",
    valid: |ms| (0.01..=100.0).contains(&ms),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        field!(min_rate_mbps).within(
            "Mbit/s",
            "the least bitrate that the source is asked for",
            RATE,
        ),
        field!(max_rate_mbps).within(
            "Mbit/s",
            "the greatest bitrate that the source is asked for",
            RATE,
        ),
        field!(l4s).flag("marks are answered by their share (L4S), not each like a loss"),
        field!(burst_ms).within("ms", "how long a burst is at the pace", BURST),
    ];

    fn together(&self) -> Result<(), OutOfRange> {
        let min = self.min_rate_mbps;
        let ok = min <= self.max_rate_mbps;
        OutOfRange::unless(ok, "min_rate_mbps", "at most max_rate_mbps", min)
    }
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("SCReAM v2".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Scream::new(self.clone()).expect(CHECKED))
    }
}

/// The share of packets that are marked (l4s_alpha): it rises fast and falls slowly.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    average: f64,
    renewed_at: Option<Time>,
    /// Since it was renewed.
    arrived: usize,
    marked: usize,
}

impl Marks {
    fn on_arrived(&mut self, now: Time, smoothed_rtt: Duration, arrived: usize, marked: usize) {
        self.arrived += arrived;
        self.marked += marked.min(arrived);
        let every = MARKS_EVERY.min(smoothed_rtt);
        let due = self.renewed_at.is_none_or(|at| now.since(at) >= every);
        if !due || self.arrived == 0 {
            return;
        }
        let share = self.marked as f64 / self.arrived as f64;
        self.average = if share >= self.average {
            self.average + MARKS_UP * (share - self.average)
        } else {
            (1.0 - MARKS_DOWN) * self.average
        };
        (self.arrived, self.marked) = (0, 0);
        self.renewed_at = Some(now);
    }
}

/// The most bytes in flight in this stretch of time and in the last.
#[derive(Clone, Copy, Debug, Default)]
struct MostInFlight {
    now: Bytes,
    before: Bytes,
}

impl MostInFlight {
    fn on_sent(&mut self, packet: &Departure) {
        self.now = self.now.max(packet.in_flight);
    }

    /// Another stretch begins, with this much in flight.
    fn turn(&mut self, in_flight: Bytes) {
        (self.before, self.now) = (self.now, in_flight);
    }

    fn of_both(&self) -> Bytes {
        self.now.max(self.before)
    }
}

/// The bytes by which the window may grow: arrived or lost, without marked packets
/// (bytes_newly_acked).
fn settled(feedback: &Feedback<'_>, packet_size: Bytes) -> f64 {
    let lost: Bytes = feedback.lost.iter().map(|packet| packet.size).sum();
    let marked = packet_size * feedback.marked as u64;
    (feedback.newly_delivered() + lost)
        .saturating_sub(marked)
        .as_f64()
}

/// A flow's SCReAM.
#[derive(Clone, Debug)]
pub struct Scream {
    config: Config,
    /// MSS.
    packet_size: Bytes,
    /// ref_wnd, bytes, and its value at the last congestion (ref_wnd_i).
    reference: f64,
    inflection: f64,
    /// The window has grown since then (ref_wnd_i_update_allowed).
    grown: bool,
    queue: Queue,
    marks: Marks,
    /// Since the last reaction.
    lost: bool,
    marked: bool,
    congested_at: Time,
    reacted_at: Time,
    /// By round trips, and when this one began.
    most_in_flight: MostInFlight,
    round_at: Time,
    smoothed_rtt: Duration,
    /// target_bitrate.
    bitrate: Rate,
    /// No feedback has come since a timeout.
    silent: bool,
}

impl Scream {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Scream {
            packet_size: Bytes::new(1500),
            reference: MIN_REFERENCE,
            inflection: 1.0,
            grown: true,
            queue: Queue::default(),
            marks: Marks::default(),
            lost: false,
            marked: false,
            congested_at: Time::ZERO,
            reacted_at: Time::ZERO,
            most_in_flight: MostInFlight::default(),
            round_at: Time::ZERO,
            smoothed_rtt: Duration::ZERO,
            bitrate: config.in_range(0.0),
            silent: false,
            config,
        })
    }

    fn least_reference(&self) -> f64 {
        MIN_REFERENCE.max(self.packet_size.as_f64())
    }

    /// "Reference Window Reduction".
    fn reduce(&mut self, now: Time, closeness: f64) {
        if self.lost || self.marked {
            self.congested_at = now;
        }
        let since = now.since(self.reacted_at);
        if since < VIRTUAL_RTT.min(self.smoothed_rtt) {
            return;
        }
        let queue = queue_share(self.queue.average());
        if !self.lost && !self.marked && queue == 0.0 {
            return;
        }
        if self.grown {
            self.inflection = self.reference;
            self.grown = false;
        }
        // Reactions may be several in a round trip.
        let in_round_trip = (self.smoothed_rtt / VIRTUAL_RTT).max(1.0);
        let kept = if self.lost {
            LOSS_BETA
        } else if self.marked && self.config.l4s {
            let long_ago = VIRTUAL_RTT
                .max(self.smoothed_rtt)
                .mul_f64(CAUTIOUS_ROUND_TRIPS);
            if since > long_ago {
                // The source was the limit for long: the window may be far above the volume in
                // flight.
                self.reference = self.reference.min(self.most_in_flight.before.as_f64());
            }
            let calm = self.queue.latest() < QUEUE_TARGET / 4;
            let share = if calm { closeness.max(0.25) } else { 1.0 };
            1.0 - self.marks.average / 2.0 / in_round_trip * share
        } else if self.marked {
            MARK_BETA
        } else {
            1.0 - queue / 2.0 / in_round_trip
        };
        self.reference = (self.reference * kept).max(self.least_reference());
        (self.lost, self.marked) = (false, false);
        self.reacted_at = now;
    }

    /// "Reference Window Increase", for `settled` unmarked bytes.
    fn increase(&mut self, now: Time, settled: f64, closeness: f64) {
        let max_in_flight = self.most_in_flight.of_both().as_f64();
        let allowed = self.packet_size.as_f64() + HEADROOM * max_in_flight;
        let calm_for = now.since(self.congested_at);
        let increment = self.increment(settled, closeness, calm_for);
        let grown = self.reference + increment;
        let full = self.bitrate >= Rate::from_mbps(self.config.max_rate_mbps);
        if grown <= allowed && !full && increment > 0.0 {
            self.reference = grown;
            self.grown = true;
        }
    }

    fn increment(&self, settled: f64, closeness: f64, calm_for: Duration) -> f64 {
        let rtt = VIRTUAL_RTT.max(self.smoothed_rtt);
        let calm = (calm_for / rtt / CAUTIOUS_ROUND_TRIPS).min(1.0);
        let mss = self.packet_size.as_f64();
        let packets = self.reference / mss;
        let a_packet = settled * (1.0 / packets).min(1.0);
        let short_path = (self.smoothed_rtt / VIRTUAL_RTT).min(1.0);
        a_packet * short_path * closeness.max(0.25) * (1.0 + GROWTH * packets * calm * closeness)
    }

    /// "Media Rate Control".
    fn set_bitrate(&mut self) {
        let mss = self.packet_size.as_f64();
        let few = ((mss / self.reference).min(1.0) - 0.1).clamp(0.0, 0.2);
        let share = (1.0 - few) * mss / (mss + PACKET_OVERHEAD) / BITRATE_MARGIN;
        let mbps = share * 8e-6 * self.reference / self.smoothed_rtt.as_secs_f64();
        self.bitrate = self.config.in_range(mbps);
    }

    fn turn_round(&mut self, now: Time, in_flight: Bytes) {
        if now.since(self.round_at) >= self.smoothed_rtt {
            self.most_in_flight.turn(in_flight);
            self.round_at = now;
        }
    }
}

/// The distance of the window from that of the last congestion: 0.1 near it, 1 far away (scl_t).
fn closeness(reference: f64, inflection: f64) -> f64 {
    let away = 8.0 * (reference - inflection) / inflection;
    (away * away).clamp(0.1, 1.0)
}

/// The share of marks that a queue counts as: zero up to half of its target, one at the target
/// (l4s_alpha_v).
fn queue_share(queue: Duration) -> f64 {
    let threshold = QUEUE_TARGET / 2;
    (queue.saturating_sub(threshold) / threshold).min(1.0)
}

/// "Packet Pacing".
fn pace(bitrate: Rate, most_mbps: f64) -> Rate {
    let nominal = bitrate.as_mbps() / most_mbps;
    let relaxed = (nominal - RELAXED_FROM) / (1.0 - RELAXED_FROM);
    let share = (1.0 - relaxed).clamp(1.0 / RELAXED_MOST, 1.0);
    bitrate.max(LEAST_PACE).mul_f64(PACING_HEADROOM / share)
}

impl Controller for Scream {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.reference = self.least_reference();
        (self.congested_at, self.reacted_at, self.round_at) = (now, now, now);
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.most_in_flight.on_sent(packet);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        self.smoothed_rtt = feedback.smoothed_rtt;
        self.lost |= !feedback.lost.is_empty();
        self.marked |= feedback.marked > 0;
        if self.smoothed_rtt.is_zero() {
            return;
        }
        if let Some(newest) = feedback.acked.last() {
            self.silent = false;
            let every = VIRTUAL_RTT.min(self.smoothed_rtt);
            self.queue.on_acked(now, newest, every);
        }
        let arrived = feedback.acked.len() + feedback.recovered.len();
        self.marks
            .on_arrived(now, self.smoothed_rtt, arrived, feedback.marked);
        self.turn_round(now, feedback.in_flight);
        let closeness = closeness(self.reference, self.inflection);
        self.reduce(now, closeness);
        self.increase(now, settled(feedback, self.packet_size), closeness);
        self.set_bitrate();
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        self.lost = true;
        self.silent = true;
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
        self.reference = self.reference.max(self.least_reference());
    }

    fn window(&self) -> Bytes {
        let reference = if self.silent {
            self.least_reference()
        } else {
            self.reference * OVERHEAD
        };
        Bytes::from_f64(reference)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(if self.smoothed_rtt.is_zero() {
            FIRST_PACE
        } else {
            pace(self.bitrate, self.config.max_rate_mbps)
        })
    }

    fn send_quantum(&self) -> Option<Bytes> {
        let pace = self.pacing_rate()?;
        Some(self.config.quantum(pace, self.packet_size))
    }

    fn media_rate(&self) -> Option<Rate> {
        Some(self.bitrate)
    }

    fn ecn(&self) -> Ecn {
        self.config.ecn()
    }

    fn phase(&self) -> Option<Phase> {
        Some(if self.silent {
            Phase::Silent
        } else {
            Phase::Steady
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window_packets", self.window() / self.packet_size);
        record(
            "reference_packets",
            self.reference / self.packet_size.as_f64(),
        );
        record("media_mbps", self.bitrate.as_mbps());
        record("queue_ms", self.queue.average().as_millis_f64());
        record("alpha", self.marks.average);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn scream(l4s: bool) -> Scream {
        let mut scream = Scream::new(Config {
            l4s,
            ..Config::default()
        })
        .expect("in range");
        scream.on_start(Time::ZERO, SIZE);
        scream.smoothed_rtt = ms(25);
        scream
    }

    fn assert_near(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 1e-4, "{value}, not {wanted}");
    }

    #[test]
    fn growth_is_cautious_near_where_congestion_was_met() {
        assert_eq!(closeness(3000.0, 1.0), 1.0);
        assert_eq!(closeness(100e3, 100e3), 0.1);
        assert_near(closeness(105e3, 100e3), 0.16);
        assert_eq!(closeness(70e3, 100e3), 1.0);
    }

    #[test]
    fn a_round_trip_adds_a_packet_and_two_percent_once_all_is_calm() {
        let mut scream = scream(true);
        scream.reference = 100.0 * SIZE.as_f64();
        let add = |scream: &Scream, closeness: f64, calm: Duration| {
            scream.increment(scream.reference, closeness, calm) / SIZE.as_f64()
        };
        assert_near(add(&scream, 1.0, Duration::ZERO), 1.0);
        // Half of 100 round trips of 25 ms.
        assert_near(add(&scream, 1.0, ms(1250)), 2.0);
        assert_near(add(&scream, 1.0, ms(60_000)), 3.0);
        assert_near(add(&scream, 0.1, ms(60_000)), 0.25 * 1.2);
        // As fast for each second as on a path of 25 ms.
        scream.smoothed_rtt = ms(5);
        assert_near(add(&scream, 1.0, Duration::ZERO), 0.2);
    }

    #[test]
    fn the_share_of_marks_rises_fast_and_falls_slowly() {
        let mut marks = Marks::default();
        marks.on_arrived(Time::from_millis(10), ms(25), 10, 5);
        assert_eq!(marks.average, 0.0625);
        marks.on_arrived(Time::from_millis(15), ms(25), 10, 10);
        assert_eq!(marks.average, 0.0625, "10 ms are not over");
        marks.on_arrived(Time::from_millis(20), ms(25), 10, 0);
        // A half of twenty.
        assert_near(marks.average, 0.0625 + (0.5 - 0.0625) / 8.0);
        let before = marks.average;
        marks.on_arrived(Time::from_millis(30), ms(25), 10, 0);
        assert_near(marks.average, before * 127.0 / 128.0);
    }

    /// The share of a window of 100 packets that a reaction leaves.
    fn share_kept(scream: &mut Scream, at_ms: u64, closeness: f64) -> f64 {
        scream.reference = 100.0 * SIZE.as_f64();
        scream.reduce(Time::from_millis(at_ms), closeness);
        scream.reference / (100.0 * SIZE.as_f64())
    }

    #[test]
    fn losses_marks_and_a_queue_cut_the_window_as_the_draft_says() {
        let mut scream = scream(true);
        assert_eq!(share_kept(&mut scream, 100, 1.0), 1.0);
        scream.lost = true;
        assert_near(share_kept(&mut scream, 200, 1.0), 0.7);
        assert_near(scream.inflection, 100.0 * SIZE.as_f64());
        scream.lost = true;
        assert_eq!(
            share_kept(&mut scream, 224, 1.0),
            1.0,
            "once in a round trip"
        );
        scream.lost = false;
        scream.marks.average = 0.4;
        // With less than 15 ms of queue: a quarter of the reaction near where congestion was met.
        scream.marked = true;
        assert_near(share_kept(&mut scream, 300, 0.1), 0.95);
        scream.marked = true;
        assert_near(share_kept(&mut scream, 400, 1.0), 0.8);
        // A path of 50 ms is reacted on twice in a round trip.
        scream.smoothed_rtt = ms(50);
        scream.marked = true;
        assert_near(share_kept(&mut scream, 500, 1.0), 0.9);
        // 45 of 60 ms of queue: as if half were marked.
        scream.queue = Queue::of(ms(45));
        assert_near(share_kept(&mut scream, 600, 1.0), 0.875);
    }

    #[test]
    fn a_mark_of_the_classic_kind_leaves_four_fifths() {
        let mut scream = scream(false);
        scream.marked = true;
        assert_near(share_kept(&mut scream, 100, 0.1), 0.8);
    }

    #[test]
    fn a_window_that_nothing_filled_is_forgotten_at_the_first_mark() {
        let mut scream = scream(true);
        scream.most_in_flight.before = SIZE * 40;
        scream.marked = true;
        // 100 round trips of 25 ms later.
        assert_near(share_kept(&mut scream, 2501, 1.0), 0.4);
    }

    #[test]
    fn the_bitrate_is_the_window_in_a_round_trip_less_margins() {
        let mut scream = scream(true);
        scream.smoothed_rtt = ms(50);
        scream.reference = 60e3;
        scream.set_bitrate();
        // 9.6 Mbit/s × 1000/1020 / 1.2.
        assert_near(scream.bitrate.as_mbps(), 7.84314);
        // A window of three packets: a fifth less.
        scream.reference = 3e3;
        scream.set_bitrate();
        assert_near(scream.bitrate.as_mbps(), 0.8 * 0.392157);
        scream.reference = 1e9;
        scream.set_bitrate();
        assert_eq!(scream.bitrate.as_mbps(), 100.0);
    }

    #[test]
    fn the_pace_is_half_as_much_again_and_four_times_that_at_the_greatest_bitrate() {
        for (mbps, wanted) in [(10.0, 15.0), (80.0, 120.0), (90.0, 270.0), (100.0, 600.0)] {
            assert_near(pace(Rate::from_mbps(mbps), 100.0).as_mbps(), wanted);
        }
        assert_near(pace(Rate::from_bps(1000), 100.0).as_mbps(), 0.075);
        let mut scream = scream(true);
        scream.bitrate = Rate::from_mbps(10.0);
        assert_eq!(scream.send_quantum(), Some(SIZE));
        scream.bitrate = Rate::from_mbps(60.0);
        // 90 Mbit/s for 250 µs.
        assert_eq!(scream.send_quantum(), Some(Bytes::new(2812)));
    }

    #[test]
    fn on_an_empty_path_the_bitrate_rises_to_the_greatest() {
        let mut path = Path::new(
            Scream::new(Config {
                max_rate_mbps: 5.0,
                ..Config::default()
            })
            .expect("in range"),
        );
        for _ in 0..400 {
            path.fill();
            path.wait_ms(50);
            path.ack(path.in_flight_numbers());
        }
        assert_eq!(path.controller.media_rate(), Some(Rate::from_mbps(5.0)));
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(|| Scream::new(Config::default()).expect("in range"), &steps);
        }
    }
}
