//! SCReAM version 2 as its authors released it on 28 October 2024 (github.com/EricssonResearch/scream at 994f9a40d4b4):
//! the code whose rates beside TCP Prague they published. The draft has changed since.
//!
//! ```text
//!                         here                               draft
//!  share of marks         average of 1/32 each way           rises by 1/8, falls by 1/128
//!  a mark costs           half of that share                 the less, the nearer to where congestion was met
//!  a round trip adds      a packet                           a quarter of one near there
//!  how often              min(30 ms, round trip)             min(25 ms, round trip)
//!  bitrate                window over round trip + 1 ms,     window over round trip, over 1.2
//!                         less what large frames exceed
//!  in flight              1.5 windows of the largest frames  3 windows
//! ```
//!
//! Constants with a name in capitals or in camel case are those of `ScreamV2Tx.cpp` and of the sending test program of the same commit,
//! `scream_sender.cpp`. How much large frames exceed the mean is as in earlier versions, for want of that file of this one. Left
//! out are: the median of the last points of congestion (here it is the last one), which only matters after seconds without marks;
//! the detection of a shared bottleneck, clock drift, and the dropping of media that waited for 0.2 s.

use verus_core::controller::{Controller, Departure, Feedback, Frame, Phase, Timeout};
use verus_core::ecn::Ecn;
use verus_core::units::{Bytes, Duration, Rate, Time};

use super::queue::Queue;
use super::{
    Config, LEAST_PACE, MostInFlight, PACING_HEADROOM, PACKET_OVERHEAD, QUEUE_TARGET, VIRTUAL_RTT,
    settled,
};

mod frames;

use frames::FrameSizes;

/// The window at the start: `initRate` of the test program, 1 Mbit/s, for 100 ms.
const FIRST_WINDOW: f64 = 12_500.0;
/// The least window, packets (`cwndMin`).
const LEAST_PACKETS: f64 = 2.0;
/// What the round trip is taken for before it is measured (`sRtt`).
const FIRST_RTT: Duration = Duration::from_millis(50);
/// kL4sG: the weight of what was marked lately in the share of marks, and that share at the start (`l4sAlpha`).
const MARKS_WEIGHT: f64 = 1.0 / 32.0;
const FIRST_MARKS: f64 = 0.1;
/// The share of marks is renewed this often, or in each round trip if that is shorter.
const MARKS_EVERY: Duration = Duration::from_millis(10);
/// Congestion is answered this often at the most, or in each round trip if that is shorter.
const REACT_EVERY: Duration = Duration::from_millis(30);
/// `scaleFactor` of the test program: what a loss, or a mark of RFC 3168, leaves of the window.
const BETA: f64 = 0.7;
/// `multiplicativeIncreaseFactor`: the share of the window that a round trip adds, at the most, beside a packet.
const GROWTH: f64 = 0.05;
/// `postCongestionDelay`: how long after congestion the growth of [`GROWTH`] is reached.
const CAUTIOUS: Duration = Duration::from_secs(4);
/// `bytesInFlightHeadroom`: the window grows to at most this many times what was in flight.
const HEADROOM: f64 = 2.0;
/// kCwndOverhead: at most this many times the window may be in flight.
const OVERHEAD: f64 = 1.5;
/// `adaptivePaceHeadroom`: how much faster than others large frames are paced, at the most.
const LARGE_FRAME_PACE: f64 = 1.5;
/// Without marks for so long, those of a queue are taken to be the classic kind or none, and its delay counts more.
const UNMARKED: Duration = Duration::from_secs(5);
/// After so long without congestion the window is taken for what was in flight, and the share of marks for this at the least.
const CALM: Duration = Duration::from_secs(5);
const CALM_MARKS: f64 = 0.25;
/// kSlowUpdateInterval: how long the most bytes in flight count, and how often the size of large frames is looked at.
const SLOW: Duration = Duration::from_millis(50);
/// The first period of [`SLOW`] begins this long after the start.
const WARM_UP: Duration = Duration::from_secs(2);
/// Near the greatest bitrate the window is bounded.
const NEARLY_ALL: f64 = 0.95;
/// What is added to the round trip where a bitrate is made of the window: clocks are coarse.
const COARSE: Duration = Duration::from_millis(1);

/// A flow's SCReAM.
#[derive(Clone, Debug)]
pub(super) struct Released {
    config: Config,
    /// MSS.
    packet_size: Bytes,
    started_at: Time,
    /// `cwnd`, bytes, and what it was where congestion was met last.
    window: f64,
    inflection: f64,
    inflected_at: Option<Time>,
    marks: Marks,
    queue: Queue,
    rtt: SlowRtt,
    /// When congestion was answered last, when a mark was, and when the window fell last.
    answered_at: Time,
    marked_at: Option<Time>,
    congested_at: Option<Time>,
    /// By stretches of 50 ms, and when this one began.
    most_in_flight: MostInFlight,
    stretch_at: Time,
    frames: FrameSizes,
    /// How much large frames exceed the mean, as it counts now.
    large: f64,
    bitrate: Rate,
    /// Nothing was heard since a timeout.
    silent: bool,
}

/// The share of packets that are marked.
#[derive(Clone, Copy, Debug)]
struct Marks {
    average: f64,
    /// The share when it was renewed last.
    latest: f64,
    renewed_at: Time,
    /// Since then.
    arrived: usize,
    marked: usize,
}

impl Marks {
    fn on_arrived(&mut self, now: Time, rtt: Duration, arrived: usize, marked: usize) {
        self.arrived += arrived;
        self.marked += marked.min(arrived);
        if now.since(self.renewed_at) <= MARKS_EVERY.min(rtt) || self.arrived == 0 {
            return;
        }
        self.latest = self.marked as f64 / self.arrived as f64;
        self.average += MARKS_WEIGHT * (self.latest - self.average);
        (self.arrived, self.marked) = (0, 0);
        self.renewed_at = now;
    }
}

/// The round trip, smoothed for each acknowledgement and then once more for each round trip.
#[derive(Clone, Copy, Debug)]
struct SlowRtt {
    short: Duration,
    smoothed: Duration,
    renewed_at: Time,
}

impl SlowRtt {
    /// Takes a sample; whether the short average fell.
    fn on_sample(&mut self, now: Time, rtt: Duration) -> bool {
        let before = self.short;
        self.short = (self.short * 7 + rtt) / 8;
        if now.since(self.renewed_at) > self.short {
            self.smoothed = (self.smoothed * 7 + self.short) / 8;
            self.renewed_at = now;
        }
        self.short < before
    }
}

/// Why the window falls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Congestion {
    Loss,
    Mark,
    /// A queue that counts as this share of marks.
    Delay(f64),
}

impl Released {
    /// A controller for one flow, of a configuration that is in range.
    pub(super) fn new(config: Config) -> Self {
        Released {
            packet_size: Bytes::new(1500),
            started_at: Time::ZERO,
            window: FIRST_WINDOW,
            inflection: 1.0,
            inflected_at: None,
            marks: Marks {
                average: FIRST_MARKS,
                latest: 0.0,
                renewed_at: Time::ZERO,
                arrived: 0,
                marked: 0,
            },
            queue: Queue::default(),
            rtt: SlowRtt {
                short: FIRST_RTT,
                smoothed: FIRST_RTT,
                renewed_at: Time::ZERO,
            },
            answered_at: Time::ZERO,
            marked_at: None,
            congested_at: None,
            most_in_flight: MostInFlight::default(),
            stretch_at: Time::ZERO,
            frames: FrameSizes::default(),
            large: 1.0,
            bitrate: config.in_range(1.0),
            silent: false,
            config,
        }
    }

    fn mss(&self) -> f64 {
        self.packet_size.as_f64()
    }

    fn least_window(&self) -> f64 {
        LEAST_PACKETS * self.mss()
    }

    fn is_marked(&self, now: Time) -> bool {
        self.marked_at.is_some_and(|at| now.since(at) < UNMARKED)
    }

    /// Whether something is to be answered now, and what.
    fn congestion(&mut self, feedback: &Feedback<'_>, rtt_falls: bool) -> Option<Congestion> {
        let now = feedback.now;
        let due = now.since(self.answered_at);
        let rtt = self.rtt.smoothed;
        let lost = !feedback.lost.is_empty() && due > rtt;
        let due = due > REACT_EVERY.min(rtt);
        let mut marked = due && feedback.marked > 0;
        if marked {
            self.marked_at = Some(now);
            self.answered_at = now;
            // All is marked, and yet the queue falls already: this mark is not answered.
            marked = !(rtt_falls && self.marks.latest == 1.0);
        }
        let delayed = self.delay_share(now).filter(|_| due && !marked);
        let found = if lost {
            Some(Congestion::Loss)
        } else if let Some(share) = delayed {
            Some(Congestion::Delay(share))
        } else {
            marked.then_some(Congestion::Mark)
        };
        if found.is_some() {
            self.answered_at = now;
        }
        found
    }

    /// What the queue counts as of marks, where nothing says that the network marks (`virtualL4sAlpha`).
    fn delay_share(&self, now: Time) -> Option<f64> {
        // Two marks in a round trip, by which a sender of this bitrate is held.
        let expected = 2.0 * self.mss() * 8e-6 / (self.bitrate.as_mbps() * self.rtt_s());
        let unmarked = !self.is_marked(now) || self.marks.average < 0.1 * expected;
        let queue = self.queue.average();
        let low = QUEUE_TARGET / 4;
        let share = expected + queue.saturating_sub(low) / (QUEUE_TARGET - low);
        (unmarked && queue > low).then_some(share.min(1.0))
    }

    fn rtt_s(&self) -> f64 {
        self.rtt.smoothed.max(COARSE).as_secs_f64()
    }

    fn reduce(&mut self, now: Time, congestion: Congestion) {
        let long_ago = self.congested_at.is_none_or(|at| now.since(at) > CALM);
        let inflects_every = match congestion {
            Congestion::Loss => Duration::from_millis(500),
            _ => self.rtt.smoothed,
        };
        if (self.inflected_at).is_none_or(|at| now.since(at) > inflects_every) {
            self.inflection = self.window;
            self.inflected_at = Some(now);
        }
        self.window *= match congestion {
            Congestion::Loss => BETA,
            Congestion::Delay(share) => 1.0 - share / 2.0,
            Congestion::Mark if self.config.l4s => {
                let mut cut = self.marks.average / 2.0 * self.small();
                if long_ago {
                    // The source was what held it for long: the window may be far above what is in flight.
                    self.window = self.window.min(self.most_in_flight.before.as_f64());
                    cut = cut.max(CALM_MARKS);
                    self.marks.average = self.marks.average.max(CALM_MARKS);
                }
                1.0 - cut
            }
            Congestion::Mark => BETA,
        };
        self.window = self.window.max(self.least_window());
        self.congested_at = Some(now);
    }

    /// A window of few packets falls and grows by less.
    fn small(&self) -> f64 {
        (1.0 - self.mss() / self.window).max(0.5)
    }

    /// For so many bytes that are settled and unmarked.
    fn increase(&mut self, now: Time, settled: f64) {
        let away = 4.0 * (self.window - self.inflection) / self.inflection;
        let closeness = (away * away).clamp(0.1, 1.0);
        let calm = self
            .congested_at
            .map_or(1.0, |at| (now.since(at) / CAUTIOUS).min(1.0));
        let packets = self.window / self.mss();
        let mut step = settled / packets;
        if !self.is_marked(now) {
            step *= closeness;
        }
        step *= (self.rtt.smoothed / VIRTUAL_RTT).min(1.0) * self.small();
        step *= 1.0 + GROWTH * packets * calm * closeness;
        let allowed = self.mss() + HEADROOM * self.most_in_flight.of_both().as_f64();
        if self.window + step <= allowed {
            self.window += step;
        }
    }

    /// What is done every 50 ms.
    fn turn_stretch(&mut self, now: Time, in_flight: Bytes) {
        if now.since(self.stretch_at) <= SLOW {
            return;
        }
        let most_mbps = self.config.max_rate_mbps;
        if self.bitrate.as_mbps() > NEARLY_ALL * most_mbps {
            let rtt = self.rtt.smoothed + COARSE;
            // For a source that always has something to send what is in flight is no bound, as it is in the original.
            let needed = Rate::from_mbps(most_mbps).bytes_in(rtt).as_f64();
            self.window = self.window.min(PACING_HEADROOM * self.large * needed);
        }
        if now.since(self.started_at) > WARM_UP {
            self.most_in_flight.turn(in_flight);
        }
        self.large = self.frames.large();
        self.stretch_at = now;
    }

    fn set_bitrate(&mut self, now: Time, in_flight: Bytes) {
        let mss = self.mss();
        let rtt = (self.rtt.smoothed + COARSE).min(Duration::from_millis(200));
        let mut mbps = 8e-6 * self.window / rtt.as_secs_f64();
        // A window that is nearly full, where marks do not hold it.
        let full = (in_flight.as_f64() / self.window).min(1.0) / 0.9;
        if !self.is_marked(now) && full > 1.0 {
            mbps /= full;
        }
        let few = (mss / self.window - 0.1).clamp(0.0, 0.2);
        mbps *= (1.0 - few) / self.large * mss / (mss + PACKET_OVERHEAD);
        self.bitrate = self.config.in_range(mbps);
    }
}

impl Controller for Released {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.window = self.window.max(self.least_window());
        (self.started_at, self.answered_at, self.stretch_at) = (now, now, now);
        (self.marks.renewed_at, self.rtt.renewed_at) = (now, now);
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.most_in_flight.on_sent(packet);
    }

    fn on_frame(&mut self, frame: &Frame) {
        self.frames.on_frame(frame, self.bitrate);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        let arrived = feedback.acked.len() + feedback.recovered.len();
        let mut rtt_falls = false;
        if let Some(newest) = feedback.acked.last() {
            self.silent = false;
            rtt_falls = self.rtt.on_sample(now, newest.rtt);
            let every = REACT_EVERY.min(self.rtt.smoothed);
            self.queue.on_acked(now, newest, every);
        }
        self.marks
            .on_arrived(now, self.rtt.smoothed, arrived, feedback.marked);
        self.turn_stretch(now, feedback.in_flight);
        if let Some(congestion) = self.congestion(feedback, rtt_falls) {
            self.reduce(now, congestion);
        }
        self.increase(now, settled(feedback, self.packet_size));
        self.set_bitrate(now, feedback.in_flight_before);
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.reduce(timeout.now, Congestion::Loss);
        self.silent = true;
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
        self.window = self.window.max(self.least_window());
    }

    fn window(&self) -> Bytes {
        if self.silent {
            return Bytes::from_f64(self.least_window());
        }
        Bytes::from_f64(self.window * OVERHEAD * self.large) + self.packet_size
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let scale = self.frames.pace().clamp(1.0, LARGE_FRAME_PACE);
        let rate = self.bitrate.max(self.frames.rate());
        Some(rate.mul_f64(PACING_HEADROOM * scale).max(LEAST_PACE))
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
        record("reference_packets", self.window / self.mss());
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

    /// On a path of 25 ms, with a mark a second ago, and 100 packets in its window.
    fn released() -> Released {
        let mut released = Released::new(Config::default());
        released.on_start(Time::ZERO, SIZE);
        released.window = 100.0 * SIZE.as_f64();
        released.rtt.smoothed = ms(25);
        released.marked_at = Some(Time::ZERO);
        released.congested_at = Some(Time::ZERO);
        released
    }

    fn assert_near(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 1e-4, "{value}, not {wanted}");
    }

    #[test]
    fn the_share_of_marks_falls_as_it_rises() {
        let mut marks = released().marks;
        marks.on_arrived(Time::from_millis(10), ms(25), 5, 5);
        assert_eq!(marks.average, 0.1, "10 ms are not over");
        marks.on_arrived(Time::from_millis(11), ms(25), 5, 5);
        assert_near(marks.average, 0.1 + 0.9 / 32.0);
        marks.on_arrived(Time::from_millis(22), ms(25), 10, 0);
        assert_near(marks.average, (0.1 + 0.9 / 32.0) * 31.0 / 32.0);
    }

    #[test]
    fn a_mark_costs_half_of_the_share_of_marks_and_a_loss_three_tenths() {
        let mut released = released();
        released.marks.average = 0.2;
        released.reduce(Time::from_millis(1000), Congestion::Mark);
        assert_near(released.window / SIZE.as_f64(), 100.0 * (1.0 - 0.1 * 0.99));
        released.window = 100.0 * SIZE.as_f64();
        released.reduce(Time::from_millis(2000), Congestion::Loss);
        assert_near(released.window / SIZE.as_f64(), 70.0);
        released.window = 100.0 * SIZE.as_f64();
        released.reduce(Time::from_millis(3000), Congestion::Delay(0.5));
        assert_near(released.window / SIZE.as_f64(), 75.0);
        // After five seconds of calm: no more than was in flight, and a quarter less.
        released.most_in_flight.before = SIZE * 40;
        released.reduce(Time::from_millis(8001), Congestion::Mark);
        assert_near(released.window / SIZE.as_f64(), 30.0);
        assert_eq!(released.marks.average, 0.25);
    }

    #[test]
    fn a_round_trip_adds_a_packet_and_five_percent_of_the_window_once_all_is_calm() {
        let grown = |congested_s: u64, rtt: Duration, inflection: f64| {
            let mut released = released();
            released.rtt.smoothed = rtt;
            released.inflection = inflection * SIZE.as_f64();
            released.most_in_flight.now = SIZE * 100;
            let now = Time::from_millis(1000 * congested_s);
            released.marked_at = Some(now);
            released.increase(now, released.window);
            released.window / SIZE.as_f64() - 100.0
        };
        assert_near(grown(0, ms(25), 10.0), 0.99);
        assert_near(grown(2, ms(25), 10.0), 0.99 * 3.5);
        assert_near(grown(9, ms(25), 10.0), 0.99 * 6.0);
        // Near where congestion was met, only the share of the window is less.
        assert_near(grown(9, ms(25), 100.0), 0.99 * 1.5);
        assert_near(grown(0, ms(5), 10.0), 0.99 * 0.2);
    }

    #[test]
    fn it_grows_to_twice_what_was_in_flight() {
        let mut released = released();
        released.most_in_flight.now = SIZE * 49;
        released.increase(Time::from_millis(10), released.window);
        assert_eq!(released.window, 100.0 * SIZE.as_f64());
    }

    #[test]
    fn a_queue_counts_where_the_network_does_not_mark() {
        let mut released = released();
        released.queue = Queue::of(ms(40));
        released.marks.average = 0.0;
        released.bitrate = Rate::from_mbps(48.0);
        // Two packets in a round trip, of 100, and 25 of the 45 ms from a quarter of the target up to it.
        let expected = 2.0 * SIZE.as_f64() * 8.0 / (48e6 * 0.025);
        let share = released.delay_share(Time::from_millis(1));
        assert_near(share.expect("counts"), expected + 25.0 / 45.0);
        released.marks.average = expected;
        assert_eq!(released.delay_share(Time::from_millis(1)), None, "marked");
        let later = Time::from_millis(6000);
        assert!(released.delay_share(later).is_some(), "no mark for 5 s");
        released.queue = Queue::of(ms(15));
        assert_eq!(released.delay_share(later), None, "short");
    }

    #[test]
    fn the_bitrate_is_the_window_in_a_round_trip_and_a_millisecond() {
        let mut released = released();
        released.window = 65e3;
        released.set_bitrate(Time::from_millis(1), Bytes::new(65_000));
        let overhead = SIZE.as_f64() / (SIZE.as_f64() + 20.0);
        assert_near(released.bitrate.as_mbps(), 20.0 * overhead);
        released.large = 1.25;
        released.set_bitrate(Time::from_millis(1), Bytes::ZERO);
        assert_near(released.bitrate.as_mbps(), 16.0 * overhead);
        // Without marks, and with all of the window in flight.
        released.set_bitrate(Time::from_millis(9000), Bytes::new(65_000));
        assert_near(released.bitrate.as_mbps(), 14.4 * overhead);
    }

    #[test]
    fn on_an_empty_path_the_bitrate_rises_to_the_greatest() {
        let mut path = Path::new(Released::new(Config {
            max_rate_mbps: 5.0,
            ..Config::default()
        }));
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
            testing::assert_sound(|| Released::new(Config::default()), &steps);
        }
    }
}
