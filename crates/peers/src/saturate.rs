//! Saturate: keeps a standing queue before the bottleneck, so that no delivery opportunity passes unused.
//!
//! It is for recording what a channel can carry, not for sharing it: what arrives while packets always wait
//! is the capacity itself. The window is what the path holds with such a queue,
//!
//! ```text
//! W = r × (rest of the round trip + T) + r × silence
//! ```
//!
//! where r is the highest recent delivery rate, T the queueing delay aimed for, and the rest of the round trip what
//! remains of it without this direction's queue. Where W is limited by an underestimated r, each round multiplies it by
//! up to (rest + T) / rest, so that any rate is found within seconds.
//!
//! * Rates and queues are measured by the *receiver's* clock if the transport carries it. Both
//!   directions are loaded at once, so acknowledgements queue on their way back, which would
//!   distort both. Without that clock they are measured by round trips.
//! * Silence may be an outage of the way back alone. For 5 s the window grows as if the path went
//!   on delivering. A timeout then leaves a few packets that probe, and the rate estimate stays.
//! * Where the queue is too short for T, the excess is lost. A round that loses more than a twentieth brings
//!   T to what the queue holds; T creeps back, so that the queue stays nearly full.

use std::collections::VecDeque;

use verus_core::configuration::Configured;
use verus_core::controller::{Acked, Controller, Feedback, Timeout};
use verus_core::receiver::ReceiverConfig;
use verus_core::receiver_clock::ReceiverClock;
use verus_core::recovery::{Recovery, TimeoutRule};
use verus_core::units::{Bytes, Duration, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::OutOfRange;
use verus_words::spec::{Row, time};

/// A rate is measured over this long: longer than scheduling bursts and most gaps, shorter than fading.
const BIN: Duration = Duration::from_millis(250);
/// r is the best of this many bins. Bins in which nothing arrived do not count, so that an outage does not make r
/// forgotten.
const BINS: usize = 3;
/// The queue aimed for is at least this many packets: at low rates T alone may be less than a packet.
const FEWEST_QUEUED: u64 = 8;
/// The window at the start (RFC 6928).
const INITIAL_PACKETS: u64 = 10;
/// Packets that may leave after a timeout, to probe the path.
const PROBE_PACKETS: u64 = 4;
/// Without acknowledgements the path is assumed to go on delivering for this long.
const SILENCE_BRIDGED: Duration = Duration::from_secs(5);
/// The rest of a round trip counts as at most this long: the first acknowledgement after an outage of the way back
/// claims all of it.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// Interval at which silences are checked.
const TICK: Duration = Duration::from_millis(50);
/// A round that loses a larger share overflows the queue; smaller ones are the channel's own.
const TOLERABLE_LOSS: f64 = 0.05;
/// The share of the queue that T keeps after an overflow. T then grows by one part in `RESTORED`
/// each round, and never falls below one part in `LEAST_SHARE` of the requested T.
const AFTER_OVERFLOW: f64 = 0.8;
const RESTORED: u64 = 8;
const LEAST_SHARE: u64 = 50;

/// A configuration of the saturating sender.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// T, the queueing delay aimed for: long enough to cover gaps in feedback, short enough for the queues
    /// of cellular networks, which hold seconds.
    pub delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            delay: Duration::from_millis(500),
        }
    }
}

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] =
        &[time!(delay, "delay_ms").millis("T, the queueing delay that is kept standing")];

    fn together(&self) -> Result<(), OutOfRange> {
        let delay = self.delay.as_millis_f64();
        let ok = (10.0..=10_000.0).contains(&delay);
        OutOfRange::unless(ok, "delay_ms", "between 10 and 10000 ms", delay)
    }
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Saturate".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Saturate::new(self.clone()).expect(CHECKED))
    }

    fn receiver(&self) -> ReceiverConfig {
        ReceiverConfig::SELDOM
    }
}

/// Deliveries of a path, in bins of the receiver's time.
#[derive(Clone, Debug, Default)]
struct Deliveries {
    /// Whole bins in which anything arrived, the latest last.
    bins: VecDeque<u64>,
    bin: u64,
    bytes: u64,
}

impl Deliveries {
    fn add(&mut self, at: Time, size: Bytes) {
        let bin = at.as_nanos() / BIN.as_nanos();
        if bin > self.bin {
            if self.bytes > 0 {
                self.bins.push_back(self.bytes);
            }
            if self.bins.len() > BINS {
                self.bins.pop_front();
            }
            (self.bin, self.bytes) = (bin, 0);
        }
        self.bytes += size.get();
    }

    /// Bytes a second in the best bin.
    fn best(&self) -> f64 {
        let best = self.bins.iter().copied().max().unwrap_or(0);
        best.max(self.bytes) as f64 / BIN.as_secs_f64()
    }
}

/// Counts of a round trip: packets that arrived and were lost, and the longest queue.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTally {
    /// It ends with the first packet to leave after it began.
    end: Option<u64>,
    acked: u64,
    lost: u64,
    longest_queue: Duration,
}

/// A flow that saturates.
#[derive(Clone, Debug)]
pub struct Saturate {
    config: Config,
    packet_size: Bytes,
    deliveries: Deliveries,
    round: RoundTally,
    newest_sent: u64,
    /// T, lowered where the queue is too short for it.
    target: Duration,
    /// Whether the last round lost what a queue had no room for.
    overflowed: bool,
    /// The least difference between the two clocks' times of arrival and departure, ns.
    min_apart: Option<i64>,
    clock: ReceiverClock,
    /// Of the packet acknowledged last: its time in this direction's queue, and the rest of its round trip.
    queue: Duration,
    rest: Duration,
    window: Bytes,
    /// The bytes that a silence adds to the window.
    bridged: Bytes,
    last_feedback_at: Time,
    next_tick: Time,
}

impl Saturate {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Saturate {
            packet_size: Bytes::new(1500),
            deliveries: Deliveries::default(),
            round: RoundTally::default(),
            newest_sent: 0,
            target: config.delay,
            overflowed: false,
            min_apart: None,
            clock: ReceiverClock::default(),
            queue: Duration::ZERO,
            rest: Duration::ZERO,
            window: Bytes::new(1500) * INITIAL_PACKETS,
            bridged: Bytes::ZERO,
            last_feedback_at: Time::ZERO,
            next_tick: Time::ZERO,
            config,
        })
    }

    fn measure(&mut self, acked: &Acked, feedback: &Feedback<'_>) {
        let size = acked.packet.size;
        let sent = acked.packet.at;
        let received_at = acked.received_at.filter(|at| {
            let believed = self.clock.believes(feedback.now, sent, *at);
            if !believed && self.min_apart.is_some() {
                // Ours has to do.
                self.min_apart = None;
                self.deliveries = Deliveries::default();
            }
            believed
        });
        match received_at {
            Some(at) => {
                let apart = at.as_nanos().wrapping_sub(sent.as_nanos()) as i64;
                let min_apart = self
                    .min_apart
                    .map_or(apart, |min_apart| min_apart.min(apart));
                self.min_apart = Some(min_apart);
                self.queue = Duration::from_nanos(apart.abs_diff(min_apart));
                self.rest = acked.rtt.saturating_sub(self.queue).min(LONGEST_REST);
                self.deliveries.add(at, size);
            }
            // It arrived, but when is not known: it counts for the bin of its neighbours.
            None if self.min_apart.is_some() => self.deliveries.bytes += size.get(),
            None => {
                self.queue = acked.rtt.saturating_sub(feedback.min_rtt);
                self.rest = feedback.min_rtt;
                self.deliveries.add(feedback.now, size);
            }
        }
        self.round.longest_queue = self.round.longest_queue.max(self.queue);
        self.round.acked += 1;
    }

    /// Once a round, adjusts T by whether the queue overflowed.
    fn judge(&mut self, newest: u64) {
        let next = self.newest_sent + 1;
        if newest < *self.round.end.get_or_insert(next) {
            return;
        }
        let RoundTally {
            acked,
            lost,
            longest_queue,
            ..
        } = self.round;
        let delay = self.config.delay;
        self.overflowed = lost as f64 > TOLERABLE_LOSS * (acked + lost) as f64;
        self.target = if self.overflowed {
            let reduced = self.target.min(longest_queue).mul_f64(AFTER_OVERFLOW);
            reduced.max(delay / LEAST_SHARE)
        } else {
            (self.target + self.target / RESTORED).min(delay)
        };
        self.round = RoundTally {
            end: Some(next),
            ..RoundTally::default()
        };
    }

    /// W without what silence adds.
    fn aim(&self) -> Bytes {
        let rate = self.deliveries.best();
        let queued =
            Bytes::from_f64(rate * self.target.as_secs_f64()).max(self.packet_size * FEWEST_QUEUED);
        Bytes::from_f64(rate * self.rest.as_secs_f64()) + queued
    }
}

impl Controller for Saturate {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.window = packet_size * INITIAL_PACKETS;
        (self.last_feedback_at, self.next_tick) = (now, now + TICK);
    }

    fn on_sent(&mut self, packet: &verus_core::controller::Departure) {
        self.newest_sent = packet.number;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.round.lost += feedback.lost.len() as u64;
        let mut arrived = Bytes::ZERO;
        for acked in feedback.recovered.iter().chain(feedback.acked) {
            self.measure(acked, feedback);
            arrived += acked.packet.size;
        }
        let Some(newest) = feedback.acked.last().or(feedback.recovered.last()) else {
            return;
        };
        self.judge(newest.packet.number);
        self.last_feedback_at = feedback.now;
        // A window that was not used says nothing of what a larger one would do. One that is far too small
        // grows with what arrives, not at once: a burst of a whole window would overflow queues on the way.
        let used = feedback.in_flight_before + self.packet_size > self.window();
        let limit = self.window() + arrived * 2;
        let mut aim = self.aim();
        if used && !self.overflowed && self.queue < self.target / 4 {
            aim = aim.max(self.window + arrived);
        }
        self.window = aim.min(limit);
        self.bridged = Bytes::ZERO;
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.last_feedback_at = timeout.now;
        self.bridged = Bytes::ZERO;
        self.window = self.packet_size * PROBE_PACKETS;
        self.round = RoundTally::default();
    }

    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        self.next_tick = now + TICK;
        let silence = now.since(self.last_feedback_at);
        if silence > TICK && !in_flight.is_zero() && self.window > self.packet_size * PROBE_PACKETS
        {
            let bridged = silence.min(SILENCE_BRIDGED).as_secs_f64();
            self.bridged = Bytes::from_f64(self.deliveries.best() * bridged);
        }
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
    }

    fn window(&self) -> Bytes {
        self.window + self.bridged
    }

    fn next_tick(&self) -> Option<Time> {
        Some(self.next_tick)
    }

    /// Nothing is retransmitted: each packet is only a sample of the channel. Silence has a timeout
    /// of its length, since round trips are as long as the queue.
    fn recovery(&self) -> Recovery {
        let rack = Recovery::rack();
        Recovery {
            timeout: TimeoutRule {
                min: SILENCE_BRIDGED,
                max: SILENCE_BRIDGED,
                backoff: false,
                ..rack.timeout
            },
            retransmit: false,
            tail_probe: false,
            ..rack
        }
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("target_ms", self.target.as_millis_f64());
        record("queue_ms", self.queue.as_millis_f64());
        record("best_mbps", self.deliveries.best() * 8.0 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing::{Path, SIZE};

    /// A link that delivers `per_ms` packets a millisecond but in its outage, 20 ms each way.
    struct Link {
        path: Path<Saturate>,
        per_ms: f64,
        /// Packets that its queue holds.
        room: usize,
        outage_ms: std::ops::Range<u64>,
        queue: VecDeque<u64>,
        under_way: VecDeque<(Time, u64)>,
        credit: f64,
        sent: u64,
        dropped: VecDeque<u64>,
    }

    /// Statistics of a link over a stretch of time.
    #[derive(Debug, Default)]
    struct LinkStats {
        /// Packets it could have carried and had not.
        unused: f64,
        carried: u64,
        dropped: u64,
        longest: usize,
    }

    impl Link {
        fn new(mbps: f64) -> Self {
            Link {
                path: Path::new(Saturate::new(Config::default()).expect("in range")),
                per_ms: mbps * 1e3 / 8.0 / SIZE.as_f64(),
                room: usize::MAX,
                outage_ms: 0..0,
                queue: VecDeque::new(),
                under_way: VecDeque::new(),
                credit: 0.0,
                sent: 0,
                dropped: VecDeque::new(),
            }
        }

        fn run(&mut self, millis: u64) -> LinkStats {
            let mut stats = LinkStats::default();
            let mut last_feedback = self.path.now;
            for _ in 0..millis {
                self.path.tick();
                while self
                    .path
                    .controller
                    .allowance()
                    .sendable(self.path.in_flight())
                    >= SIZE
                {
                    self.path.send(1);
                    if self.queue.len() < self.room {
                        self.queue.push_back(self.sent);
                    } else {
                        self.dropped.push_back(self.sent);
                        stats.dropped += 1;
                    }
                    self.sent += 1;
                }
                self.path.wait_ms(1);
                let now = self.path.now;
                if !self.outage_ms.contains(&now.as_millis()) {
                    self.credit += self.per_ms;
                }
                while self.credit >= 1.0 {
                    self.credit -= 1.0;
                    match self.queue.pop_front() {
                        Some(number) => {
                            self.under_way
                                .push_back((now + Duration::from_millis(40), number));
                            stats.carried += 1;
                        }
                        None => stats.unused += 1.0,
                    }
                }
                stats.longest = stats.longest.max(self.queue.len());
                let mut acked = Vec::new();
                while self.under_way.front().is_some_and(|&(at, _)| at <= now) {
                    acked.extend(self.under_way.pop_front().map(|(_, number)| number));
                }
                if let Some(&newest) = acked.last() {
                    let mut lost = Vec::new();
                    while self.dropped.front().is_some_and(|&number| number < newest) {
                        lost.extend(self.dropped.pop_front());
                    }
                    let in_flight = self.path.in_flight_numbers();
                    if in_flight.first().is_none_or(|&first| first > newest) {
                        self.path.revive();
                    }
                    self.path.feedback(acked, lost, []);
                    last_feedback = now;
                } else if now.since(last_feedback) >= SILENCE_BRIDGED
                    && !self.path.in_flight().is_zero()
                {
                    self.path.time_out();
                    last_feedback = now;
                }
            }
            stats
        }
    }

    #[test]
    fn any_rate_is_found_within_seconds_and_then_used_whole() {
        for mbps in [0.1, 1.0, 10.0, 100.0, 400.0] {
            let mut link = Link::new(mbps);
            link.run(3000);
            let stats = link.run(3000);
            assert_eq!(stats.unused, 0.0, "{mbps} Mbit/s: {stats:?}");
            let queued_ms = stats.longest as f64 / link.per_ms;
            let max_queued_ms = 1000.0 + 12.0 / link.per_ms;
            assert!(
                queued_ms < max_queued_ms,
                "{mbps} Mbit/s: a queue of {queued_ms} ms"
            );
        }
    }

    #[test]
    fn a_rate_that_rises_tenfold_is_followed_at_once() {
        let mut link = Link::new(3.0);
        link.run(5000);
        link.per_ms *= 10.0;
        let change = link.run(1000);
        assert!(change.unused < 0.05 * change.carried as f64, "{change:?}");
        assert_eq!(link.run(2000).unused, 0.0);
    }

    #[test]
    fn after_an_outage_packets_wait_already_and_more_follow() {
        let mut link = Link::new(8.0);
        link.outage_ms = 4000..30_000;
        link.run(30_000);
        let after = link.run(10_000);
        assert_eq!(after.unused, 0.0, "{after:?}");
        // 26 s of silence: 5 of them were bridged at 1000 packets a second, the others only probed.
        assert!(after.longest < 6000, "{after:?}");
    }

    #[test]
    fn a_short_queue_is_kept_nearly_full_without_losing_much() {
        let mut link = Link::new(8.0);
        link.room = 100;
        link.run(5000);
        let stats = link.run(10_000);
        assert_eq!(stats.unused, 0.0, "{stats:?}");
        assert!(
            (stats.dropped as f64) < 0.15 * stats.carried as f64,
            "{stats:?}"
        );
    }

    #[test]
    fn a_path_with_little_queue_is_not_flooded() {
        let mut link = Link::new(80.0);
        link.room = 200;
        link.run(5000);
        let stats = link.run(5000);
        assert!(
            (stats.dropped as f64) < 0.3 * stats.carried as f64,
            "{stats:?}"
        );
        assert!(stats.unused < 0.3 * stats.carried as f64, "{stats:?}");
    }

    #[test]
    fn a_delay_that_no_queue_has_is_refused() {
        for millis in [0, 20_000] {
            let delay = Duration::from_millis(millis);
            let error = Saturate::new(Config { delay }).expect_err("out of range");
            assert!(error.to_string().contains("delay_ms must be between 10"));
        }
    }

    #[test]
    fn a_receiver_that_makes_up_its_times_makes_up_no_rate() {
        // 1 packet a millisecond, 40 ms there and back; what the receiver says of each arrival.
        type Says = fn(Time) -> Time;
        let lies: [(&str, Says); 4] = [
            ("always the same", |_| Time::from_millis(1_000)),
            ("far ahead", |now| {
                Time::from_nanos(u64::MAX - now.as_nanos())
            }),
            ("backwards", |now| {
                Time::from_millis(1_000_000 - now.as_millis())
            }),
            ("twice as fast", |now| Time::from_nanos(now.as_nanos() / 2)),
        ];
        for (what, says) in lies {
            let mut path = Path::new(Saturate::new(Config::default()).expect("in range"));
            let mut under_way = VecDeque::new();
            let (mut next, mut most) = (0, 0);
            for millis in 1..20_000u64 {
                path.receiver_clock = Some(if millis < 2_000 { |now| now } else { says });
                while path.controller.allowance().sendable(path.in_flight()) >= SIZE {
                    path.send(1);
                    under_way.push_back((millis + 40, next));
                    next += 1;
                }
                path.wait_ms(1);
                if under_way.front().is_some_and(|&(at, _)| at <= millis) {
                    let (_, number) = under_way.pop_front().expect("there is one");
                    path.ack([number]);
                }
                path.tick();
                most = most.max(path.controller.window().get() / SIZE.get());
            }
            // 540 packets fill the round trip and a queue of half a second.
            assert!(
                (400..4 * 540).contains(&most),
                "{what}: a window of {most} packets"
            );
        }
    }
}
