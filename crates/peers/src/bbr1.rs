//! BBR version 1, as in Linux: a model of the path in place of losses.
//!
//! The path has a bottleneck bandwidth, the greatest delivery rate of the last ten round trips. It
//! also has a propagation delay, the least round-trip time of the last ten seconds. The pacing rate
//! follows the bandwidth; the window is twice the product of both (Cardwell, Cheng, Gunn, Yeganeh
//! and Jacobson, "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016). Each can be
//! measured only while the other cannot. So the rate rises by a quarter for one round trip in eight
//! and falls by as much in the next. Every ten seconds all but four packets are held back for 200
//! ms.
//!
//! Where the article is silent, Linux 6.x decides: packets count, gains are 256ths, and a burst is
//! what the rate carries in a millisecond. Acknowledgements that come in bursts add to the window
//! (`bbr1/aggregation.rs`), and a policed rate is taken for the path's (`bbr1/policer.rs`).
//!
//! ```text
//! Startup ── three rounds without a quarter more ──▶ Drain ── no queue left ──▶ ProbeBw
//!    ▲                                                                           │ ▲
//!    └──── ProbeRtt ◀──── ten seconds without a shorter round trip ──────────────┘ │
//!             └──────────────────────── 200 ms and a round ────────────────────────┘
//! ```

use crate::initial_window::initial_window;
use crate::rounds::Rounds;
use crate::windowed::{Windowed, WindowedMax};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Delivery, Departure, Feedback, Phase, Timeout};
use verus_core::episode::{Episode, Period};
use verus_core::pacer;
use verus_core::random;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::OutOfRange;
use verus_words::spec::{Row, field};

mod aggregation;
mod policer;

use aggregation::Aggregation;
use policer::Policer;

/// A gain, in 256ths.
type Gain = u64;

/// The gain 1.
const UNIT: Gain = 256;
/// The gain of rate and window in Startup: 2/ln 2 doubles the delivery rate in each round trip.
const HIGH_GAIN: Gain = UNIT * 2885 / 1000 + 1;
/// The gain of the rate in Drain: what Startup queued in a round trip drains in one.
const DRAIN_GAIN: Gain = UNIT * 1000 / 2885;
/// The gain of the window in ProbeBw: it leaves room for acknowledgements that are late or come together.
const WINDOW_GAIN: Gain = 2 * UNIT;
/// The gains of the rate in ProbeBw, each for about a round trip.
const CYCLE: [Gain; 8] = [
    UNIT * 5 / 4,
    UNIT * 3 / 4,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
];
/// The bandwidth is the greatest sample of this many round trips: a cycle of eight, and two to spare.
const BANDWIDTH_ROUNDS: u64 = 10;
/// A minimum of the round-trip time counts for this long.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// ProbeRtt lasts at least this long after the bytes in flight have come down to its window.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// The least window, in packets, except after a timeout; also ProbeRtt's window.
const MIN_WINDOW_PACKETS: u64 = 4;
/// The pipe is full after this many rounds in which the bandwidth grew by less than a quarter.
const FULL_ROUNDS: u32 = 3;
/// The pacing rate stays this many percent below the bandwidth, so that queues drain.
const PACING_MARGIN_PERCENT: u64 = 1;
/// Below this rate packets leave singly, above it at least in pairs. Linux's 1.2 Mbit/s (`bbr_min_tso_rate`) counts data, of
/// which a packet of 1,500 bytes has 1,448.
const SINGLE_BELOW: Rate = Rate::from_bps(1_200_000 * 1500 / 1448);
/// Before there is a sample, a round trip is taken to be this long.
const UNKNOWN_RTT: Duration = Duration::from_millis(1);

/// A configuration of BBR version 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The window at the start, in packets (RFC 6928: 10).
    pub initial_window_packets: f64,
    /// Whether to detect a rate that a token bucket enforces (Linux: yes).
    pub policer: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            initial_window_packets: 10.0,
            policer: true,
        }
    }
}

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        initial_window(field!(initial_window_packets)),
        field!(policer).flag("a rate that a token bucket enforces is looked for (Linux)"),
    ];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("BBR v1".to_owned(), &[])
    }

    fn build(&self, seed: u64) -> Box<dyn Controller> {
        Box::new(Bbr1::new(self, seed).expect(CHECKED))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Doubling, until the bandwidth stops growing.
    Startup,
    /// The queue that Startup left drains.
    Drain,
    /// The rate cycles around the bandwidth: which gain of [`CYCLE`], and since when.
    ProbeBw { phase: usize, since: Time },
    /// The path is emptied to measure its round-trip time: until when, known once little enough is in flight, and
    /// whether a round has passed since.
    ProbeRtt { until: Option<Time>, round: bool },
}

/// A flow's BBR version 1.
#[derive(Clone, Debug)]
pub struct Bbr1 {
    random: ChaCha8Rng,
    looks_for_policer: bool,
    packet_size: Bytes,
    initial_window: u64,
    mode: Mode,
    /// cwnd, in packets.
    window: u64,
    /// The window before a recovery or ProbeRtt.
    window_before: u64,
    pacing_rate: Rate,
    rounds: Rounds,
    bandwidth: WindowedMax<Rate>,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    /// Whether the smoothed round-trip time has set the first pacing rate.
    has_seen_rtt: bool,
    /// The bandwidth that later samples must exceed by a quarter for the pipe not to count as full, and the rounds in
    /// which none did.
    full_bandwidth: Rate,
    full_rounds: u32,
    aggregation: Aggregation,
    policer: Policer,
    episode: Episode<()>,
    /// The first round of a recovery: one packet leaves for each that arrives.
    conserving: bool,
    /// Packets declared lost since the last acknowledgement.
    losses: u64,
    /// Samples of packets that left before this much was delivered say nothing about the bandwidth.
    limited_until: Bytes,
    /// Whether the current flight began after the source had been idle.
    restarted: bool,
    /// The time of the last acknowledgement.
    last_ack_at: Time,
    /// When pacing lets the next packet leave.
    next_departure: Time,
}

impl Bbr1 {
    /// A controller for one flow, which begins its cycles at random.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: &Config, seed: u64) -> Result<Self, OutOfRange> {
        config.validate()?;
        let initial_window = config.initial_window_packets.round() as u64;
        Ok(Bbr1 {
            random: random::stream(seed, "bbr1", 0),
            looks_for_policer: config.policer,
            packet_size: Bytes::new(1500),
            initial_window,
            mode: Mode::Startup,
            window: initial_window,
            window_before: 0,
            pacing_rate: Rate::default(),
            rounds: Rounds::default(),
            bandwidth: Windowed::new(),
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            has_seen_rtt: false,
            full_bandwidth: Rate::default(),
            full_rounds: 0,
            aggregation: Aggregation::default(),
            policer: Policer::default(),
            episode: Episode::new(Period::Repair),
            conserving: false,
            losses: 0,
            limited_until: Bytes::ZERO,
            restarted: false,
            last_ack_at: Time::ZERO,
            next_departure: Time::ZERO,
        })
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    /// The measured bandwidth of the path.
    fn max_bandwidth(&self) -> Rate {
        self.bandwidth.get().unwrap_or_default()
    }

    /// The bandwidth that rate and window follow: the path's, or the policer's.
    fn model_bandwidth(&self) -> Rate {
        self.policer.rate().unwrap_or_else(|| self.max_bandwidth())
    }

    fn pacing_gain(&self) -> Gain {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw { .. } if self.policer.rate().is_some() => UNIT,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => UNIT,
        }
    }

    fn window_gain(&self) -> Gain {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => UNIT,
        }
    }

    /// Packets in a burst.
    fn burst_packets(&self) -> u64 {
        // The bytes that the rate carries in 2^-10 s.
        let bytes = Bytes::new(self.pacing_rate.as_bps() / 8 / 1024).min(pacer::MOST_IN_BURST);
        let min_packets = if self.pacing_rate < SINGLE_BELOW {
            1
        } else {
            2
        };
        (bytes.get() / self.packet_size.get()).max(min_packets)
    }

    /// `gain` × bandwidth × propagation delay, in packets, rounded up.
    fn bdp_packets(&self, bandwidth: Rate, gain: Gain) -> u64 {
        let Some(min_rtt) = self.min_rtt else {
            return self.initial_window;
        };
        let bits = u128::from(bandwidth.as_bps()) * u128::from(min_rtt.as_nanos());
        let packet = u128::from(self.packet_size.get()) * 8_000_000_000 * u128::from(UNIT);
        let packets = bits.saturating_mul(u128::from(gain)).div_ceil(packet);
        u64::try_from(packets).unwrap_or(u64::MAX / 2)
    }

    /// `packets`, with room added for packets that both hosts hold back to send or acknowledge together, and made even.
    fn with_bursts(&self, packets: u64) -> u64 {
        let packets = packets.saturating_add(3 * self.burst_packets());
        let probes = matches!(self.mode, Mode::ProbeBw { phase: 0, .. });
        packets.next_multiple_of(2) + if probes { 2 } else { 0 }
    }

    /// The target for packets in flight at a gain.
    fn inflight(&self, bandwidth: Rate, gain: Gain) -> u64 {
        self.with_bursts(self.bdp_packets(bandwidth, gain))
    }

    /// Packets in the network when pacing lets the next burst leave: by then the path has delivered some of those that
    /// are in flight. While the rate probes, the burst counts too (Linux, `bbr_packets_in_net_at_edt`).
    fn in_flight_at_departure(&self, now: Time, in_flight: Bytes) -> u64 {
        let burst = if self.pacing_gain() > UNIT {
            self.burst_packets()
        } else {
            0
        };
        let delivered = self
            .model_bandwidth()
            .bytes_in(self.next_departure.since(now));
        (self.packets(in_flight) + burst).saturating_sub(delivered.get() / self.packet_size.get())
    }

    fn packets(&self, bytes: Bytes) -> u64 {
        bytes.get().div_ceil(self.packet_size.get())
    }

    /// Enters the cycle at a random phase, except the draining one: there is no queue to drain yet.
    fn enter_probe_bw(&mut self, now: Time) {
        let back = self.random.random_range(0..7);
        let phase = (CYCLE.len() - back) % CYCLE.len();
        self.mode = Mode::ProbeBw { phase, since: now };
    }

    fn remember_window(&mut self, recovering: bool) {
        self.window_before = if recovering || matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window_before.max(self.window)
        } else {
            self.window
        };
    }

    fn leave_probe_rtt(&mut self, now: Time) {
        self.min_rtt_at = now;
        self.window = self.window.max(self.window_before);
        if self.is_full() {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    /// The model: bandwidth, delay, mode.
    fn learn(&mut self, feedback: &Feedback<'_>, delivery: &Delivery) {
        let now = feedback.now;
        let began = self
            .rounds
            .on_delivery(&delivery.packet, feedback.delivered);
        if began {
            self.conserving = false;
        }
        let limited = delivery.packet.app_limited || delivery.packet.delivered < self.limited_until;
        if self.looks_for_policer {
            let resumed = self.policer.on_delivery(&policer::PolicerSample {
                now,
                delivered: feedback.delivered,
                lost: self.packet_size * self.losses,
                round: began,
                limited,
                cruising: matches!(self.mode, Mode::ProbeBw { .. }),
            });
            if resumed {
                self.enter_probe_bw(now);
            }
        }
        let rate = delivery.rate;
        if rate > Rate::default() && (!limited || rate >= self.max_bandwidth()) {
            let round = self.rounds.count();
            self.bandwidth.update(round, BANDWIDTH_ROUNDS, rate);
        }
        self.aggregation.on_delivery(&aggregation::Delivery {
            now,
            delivered: feedback.newly_delivered(),
            bandwidth: self.model_bandwidth(),
            round: began,
            window: self.packet_size * self.window,
        });
        self.turn_cycle(feedback);
        self.check_full(began, limited);
        self.check_drained(feedback);
        self.learn_min_rtt(feedback, delivery, began);
    }

    fn turn_cycle(&mut self, feedback: &Feedback<'_>) {
        let Mode::ProbeBw { phase, since } = self.mode else {
            return;
        };
        let min_rtt = self.min_rtt.unwrap_or_default();
        let passed = feedback.now.since(since) > min_rtt;
        let gain = self.pacing_gain();
        let in_flight = self.in_flight_at_departure(feedback.now, feedback.in_flight_before);
        let bandwidth = self.max_bandwidth();
        let next = if gain > UNIT {
            // Until the target is in flight, or losses show that the queue is too short for it.
            passed && (self.losses > 0 || in_flight >= self.inflight(bandwidth, gain))
        } else if gain < UNIT {
            passed || in_flight <= self.inflight(bandwidth, UNIT)
        } else {
            passed
        };
        if next {
            let phase = (phase + 1) % CYCLE.len();
            let since = feedback.now;
            self.mode = Mode::ProbeBw { phase, since };
        }
    }

    fn check_full(&mut self, round: bool, limited: bool) {
        if self.is_full() || !round || limited {
            return;
        }
        let bandwidth = self.max_bandwidth();
        let threshold = self.full_bandwidth.as_bps().saturating_mul(5) / 4;
        if bandwidth.as_bps() >= threshold {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
        }
    }

    fn check_drained(&mut self, feedback: &Feedback<'_>) {
        if self.mode == Mode::Startup && self.is_full() {
            self.mode = Mode::Drain;
        }
        let drained = || {
            let in_flight = self.in_flight_at_departure(feedback.now, feedback.in_flight);
            in_flight <= self.inflight(self.max_bandwidth(), UNIT)
        };
        if self.mode == Mode::Drain && drained() {
            self.enter_probe_bw(feedback.now);
        }
    }

    fn learn_min_rtt(&mut self, feedback: &Feedback<'_>, delivery: &Delivery, round: bool) {
        let now = feedback.now;
        let expired = self.min_rtt.is_some() && now.since(self.min_rtt_at) > MIN_RTT_WINDOW;
        if expired || self.min_rtt.is_none_or(|least| delivery.rtt < least) {
            self.min_rtt = Some(delivery.rtt);
            self.min_rtt_at = now;
        }
        if expired && !self.restarted && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            let troubled = self.episode.in_recovery() || self.episode.timed_out();
            self.remember_window(troubled);
            self.mode = Mode::ProbeRtt {
                until: None,
                round: false,
            };
        }
        if let Mode::ProbeRtt {
            until,
            round: passed,
        } = &mut self.mode
        {
            self.limited_until = feedback.delivered + feedback.in_flight;
            match *until {
                None => {
                    if feedback.in_flight <= self.packet_size * MIN_WINDOW_PACKETS {
                        (*until, *passed) = (Some(now + PROBE_RTT_TIME), false);
                        self.rounds.begin(feedback.delivered);
                    }
                }
                Some(until) => {
                    *passed |= round;
                    if *passed && now > until {
                        self.leave_probe_rtt(now);
                    }
                }
            }
        }
        self.restarted = false;
    }

    fn set_pacing_rate(&mut self, gain: Gain, smoothed_rtt: Duration) {
        if !self.has_seen_rtt && !smoothed_rtt.is_zero() {
            self.has_seen_rtt = true;
            self.pacing_rate = self.initial_rate(smoothed_rtt);
        }
        let bandwidth = self.model_bandwidth();
        let rate = scaled(bandwidth, gain).as_bps() / 100 * (100 - PACING_MARGIN_PERCENT);
        if rate > 0 && (self.is_full() || rate > self.pacing_rate.as_bps()) {
            self.pacing_rate = Rate::from_bps(rate);
        }
    }

    /// The pacing rate of Startup with the first window in one round trip `rtt`.
    fn initial_rate(&self, rtt: Duration) -> Rate {
        let window = self.packet_size * self.window;
        scaled(window / rtt, HIGH_GAIN).max(Rate::from_bps(1))
    }

    fn set_window(&mut self, feedback: &Feedback<'_>, acked: u64, was_troubled: bool, begun: bool) {
        let in_flight = self.packets(feedback.in_flight);
        let losses = std::mem::take(&mut self.losses);
        self.window = self.window.saturating_sub(losses).max(1);
        if begun {
            self.conserving = true;
            self.rounds.begin(feedback.delivered);
            self.window = in_flight + acked;
        } else if was_troubled && !self.is_troubled() {
            self.conserving = false;
            self.window = self.window.max(self.window_before);
        }
        if self.conserving {
            self.window = self.window.max(in_flight + acked);
        } else {
            self.approach_target(feedback, acked);
        }
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.min(MIN_WINDOW_PACKETS);
        }
    }

    fn approach_target(&mut self, feedback: &Feedback<'_>, acked: u64) {
        let bandwidth = self.model_bandwidth();
        let mut target = self.bdp_packets(bandwidth, self.window_gain());
        if self.is_full() {
            target += self.packets(self.aggregation.allowance(bandwidth));
        }
        let target = self.with_bursts(target);
        let few = feedback.delivered < self.packet_size * self.initial_window;
        if self.is_full() {
            self.window = (self.window + acked).min(target);
        } else if self.window < target || few {
            self.window += acked;
        }
        self.window = self.window.max(MIN_WINDOW_PACKETS);
    }

    fn is_troubled(&self) -> bool {
        self.episode.in_recovery() || self.episode.timed_out()
    }
}

/// `gain` × `rate`.
fn scaled(rate: Rate, gain: Gain) -> Rate {
    Rate::from_bps(rate.as_bps().saturating_mul(gain) / UNIT)
}

impl Controller for Bbr1 {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        (self.min_rtt_at, self.last_ack_at) = (now, now);
        self.aggregation.restart(now);
        self.pacing_rate = self.initial_rate(UNKNOWN_RTT);
    }

    /// As in Linux, whose BBR begins with the round trip of TCP's handshake.
    fn on_handshake(&mut self, now: Time, rtt: Duration) {
        (self.min_rtt, self.min_rtt_at) = (Some(rtt), now);
        self.has_seen_rtt = true;
        self.pacing_rate = self.initial_rate(rtt);
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.episode.on_sent(packet);
        let took = self.pacing_rate.time_for(packet.size);
        self.next_departure = self.next_departure.max(packet.at) + took;
        // Nothing was in flight for longer than acknowledgements and pacing explain: the source was idle.
        let alone = packet.in_flight == packet.size;
        let quiet = packet.at.since(self.last_ack_at);
        let idle = alone && self.min_rtt.is_some_and(|min_rtt| quiet > min_rtt);
        if idle && !self.episode.timed_out() {
            self.restarted = true;
            self.aggregation.restart(packet.at);
            match self.mode {
                Mode::ProbeBw { .. } => self.set_pacing_rate(UNIT, Duration::ZERO),
                Mode::ProbeRtt {
                    until: Some(until), ..
                } if packet.at > until => self.leave_probe_rtt(packet.at),
                _ => {}
            }
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.losses += feedback.lost.len() as u64;
        let was_troubled = self.is_troubled();
        let mut begun = false;
        if was_troubled || !feedback.lost.is_empty() || !feedback.recovered.is_empty() {
            if self.episode.undone_by(feedback).is_some() {
                // Nothing was lost after all: the pipe may not be full, and there is no policer.
                self.full_bandwidth = Rate::default();
                if !self.is_full() {
                    self.full_rounds = 0;
                }
                self.policer.reset();
            }
            // Marks are not losses.
            let unmarked = Feedback {
                marked: 0,
                ..*feedback
            };
            begun = self.episode.begun_by(&unmarked, ());
            if begun {
                self.remember_window(was_troubled);
            }
        }
        let Some(delivery) = feedback.delivery() else {
            return;
        };
        self.last_ack_at = feedback.now;
        self.learn(feedback, &delivery);
        self.set_pacing_rate(self.pacing_gain(), feedback.smoothed_rtt);
        let acked = self.packets(feedback.newly_delivered());
        self.set_window(feedback, acked, was_troubled, begun);
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.remember_window(self.is_troubled());
        self.episode.on_timeout(timeout, ());
        self.full_bandwidth = Rate::default();
        self.conserving = false;
        self.losses += timeout.presumed_lost.len() as u64;
        self.window = 1;
    }

    fn on_packet_size(&mut self, size: Bytes) {
        let same = |packets: u64, old: Bytes| (old * packets).get().div_ceil(size.get());
        self.window = same(self.window, self.packet_size);
        self.window_before = same(self.window_before, self.packet_size);
        self.packet_size = size;
    }

    fn window(&self) -> Bytes {
        self.packet_size * self.window
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pacing_rate)
    }

    fn send_quantum(&self) -> Option<Bytes> {
        Some(self.packet_size * self.burst_packets())
    }

    fn phase(&self) -> Option<Phase> {
        Some(match self.mode {
            _ if self.episode.timed_out() => Phase::Silent,
            Mode::Startup => Phase::SlowStart,
            Mode::ProbeBw { .. } => Phase::Steady,
            Mode::Drain | Mode::ProbeRtt { .. } => Phase::Drain,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("pacing_gain", self.pacing_gain() as f64 / UNIT as f64);
        record("window_packets", self.window as f64);
        record("bandwidth_mbps", self.model_bandwidth().as_mbps());
        let min_rtt = self.min_rtt.map(Duration::as_millis_f64);
        record("delay_min_ms", min_rtt.unwrap_or(f64::NAN));
        record("pacing_mbps", self.pacing_rate.as_mbps());
        record("policed", f64::from(self.policer.rate().is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn bbr1() -> Bbr1 {
        Bbr1::new(&Config::default(), 1).expect("in range")
    }

    /// Rounds of 40 ms, each of which finds a bandwidth: all that left is acknowledged at once.
    fn round(path: &mut Path<Bbr1>, packets: u64) {
        path.send(packets);
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
    }

    /// Whether the flow has left Startup after rounds that deliver so many packets each.
    fn leaves_startup(rounds: impl IntoIterator<Item = u64>) -> bool {
        let mut path = Path::new(bbr1());
        for packets in rounds {
            round(&mut path, packets);
        }
        path.controller.mode != Mode::Startup
    }

    #[test]
    fn gains_are_the_kernels() {
        assert_eq!((HIGH_GAIN, DRAIN_GAIN), (739, 88));
        assert_eq!((CYCLE[0], CYCLE[1], WINDOW_GAIN), (320, 192, 512));
    }

    #[test]
    fn startup_lasts_while_each_round_brings_a_quarter_more() {
        let growing = (0..10).scan(100.0, |packets: &mut f64, _| {
            *packets *= 1.25;
            Some(packets.ceil() as u64)
        });
        let growing: Vec<u64> = growing.collect();
        assert!(!leaves_startup(growing.iter().copied()));
        let more = |factors: &[f64]| {
            let mut last = *growing.last().expect("ten") as f64;
            let mut rounds = growing.clone();
            for factor in factors {
                last *= factor;
                rounds.push(last.ceil() as u64);
            }
            leaves_startup(rounds)
        };
        // A fast round begins the count anew.
        assert!(!more(&[1.1, 1.4, 1.0, 1.0]));
        assert!(more(&[1.1, 1.4, 1.0, 1.0, 1.0]));
        assert!(more(&[1.0, 1.0, 1.0]));
    }

    #[test]
    fn the_window_grows_by_what_is_acknowledged_in_startup() {
        let mut path = Path::new(bbr1());
        path.fill();
        path.wait_ms(40);
        let before = path.controller.window();
        path.ack([0, 1, 2]);
        assert_eq!(path.controller.window(), before + SIZE * 3);
    }

    #[test]
    fn the_target_is_what_the_path_holds_and_some_bursts() {
        let mut controller = bbr1();
        controller.on_packet_size(Bytes::new(1500));
        let rate = Rate::from_mbps(10.0);
        controller.min_rtt = Some(Duration::from_millis(40));
        controller.pacing_rate = rate;
        controller.mode = Mode::ProbeBw {
            phase: 2,
            since: Time::ZERO,
        };
        // 10 Mbit/s × 40 ms = 33.3 packets.
        assert_eq!(controller.bdp_packets(rate, UNIT), 34);
        assert_eq!(controller.bdp_packets(rate, WINDOW_GAIN), 67);
        assert_eq!(controller.burst_packets(), 2);
        assert_eq!(controller.inflight(rate, WINDOW_GAIN), 74);
        controller.mode = Mode::ProbeBw {
            phase: 0,
            since: Time::ZERO,
        };
        assert_eq!(controller.inflight(rate, WINDOW_GAIN), 76);
    }

    #[test]
    fn packets_leave_singly_below_1200_kbit_of_data_in_a_second() {
        let mut controller = bbr1();
        controller.pacing_rate = Rate::from_bps(1_242_000);
        assert_eq!(controller.burst_packets(), 1);
        controller.pacing_rate = Rate::from_bps(1_244_000);
        assert_eq!(controller.burst_packets(), 2);
    }

    #[test]
    fn packets_that_the_path_delivers_before_the_next_departure_are_not_counted_in_flight() {
        let mut controller = bbr1();
        let rate = Rate::from_mbps(12.0); // a packet in 1 ms
        controller.pacing_rate = rate;
        controller.bandwidth.update(0, BANDWIDTH_ROUNDS, rate);
        controller.next_departure = Time::from_nanos(12_900_000);
        let since = Time::ZERO;
        let mut at_ms = |phase, ms| {
            controller.mode = Mode::ProbeBw { phase, since };
            controller.in_flight_at_departure(Time::from_millis(ms), Bytes::new(1500) * 40)
        };
        assert_eq!([at_ms(2, 13), at_ms(2, 12), at_ms(2, 10)], [40, 40, 38]);
        // The burst that leaves then counts while the rate probes.
        assert_eq!([at_ms(0, 13), at_ms(0, 10)], [42, 40]);
    }

    #[test]
    fn the_first_rate_is_a_window_in_a_round_trip_and_only_rises() {
        let mut path = Path::new(bbr1());
        path.fill();
        path.wait_ms(100);
        path.ack([0]);
        // 10 kB in 100 ms × 739/256; the sample, a packet in 100 ms, is far less.
        assert_eq!(path.controller.pacing_rate, Rate::from_bps(2_309_375));
        path.wait_ms(1);
        path.ack([1]);
        assert_eq!(path.controller.pacing_rate, Rate::from_bps(2_309_375));
    }

    /// A flow in ProbeBw at 1000 packets/s over 40 ms.
    fn cruising() -> Path<Bbr1> {
        let mut path = Path::new(bbr1());
        for _ in 0..400 {
            path.wait_ms(1);
            if path.now >= Time::from_millis(40) {
                let oldest = path.in_flight_numbers()[0];
                path.ack([oldest]);
            }
            path.send(1);
        }
        path.controller.full_rounds = FULL_ROUNDS;
        path.controller.enter_probe_bw(path.now);
        path
    }

    #[test]
    fn the_cycle_begins_anywhere_but_where_it_drains() {
        let mut controller = bbr1();
        let mut counts = [0; 8];
        for _ in 0..1000 {
            controller.enter_probe_bw(Time::ZERO);
            let Mode::ProbeBw { phase, .. } = controller.mode else {
                unreachable!("just entered");
            };
            counts[phase] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!(
            counts.iter().enumerate().all(|(at, &n)| at == 1 || n > 90),
            "{counts:?}"
        );
    }

    #[test]
    fn a_phase_lasts_a_round_trip_and_the_next_one_follows() {
        let mut path = cruising();
        path.controller.mode = Mode::ProbeBw {
            phase: 2,
            since: path.now,
        };
        let mut lasted = 0;
        while matches!(path.controller.mode, Mode::ProbeBw { phase: 2, .. }) {
            path.wait_ms(1);
            let oldest = path.in_flight_numbers()[0];
            path.ack([oldest]);
            path.send(1);
            lasted += 1;
        }
        let min_rtt = path.controller.min_rtt.expect("known");
        assert_eq!(min_rtt, Duration::from_millis(39));
        assert_eq!(lasted, 39 + 1, "more than a round trip");
        assert!(matches!(
            path.controller.mode,
            Mode::ProbeBw { phase: 3, .. }
        ));
    }

    #[test]
    fn ten_seconds_without_a_shorter_round_trip_leave_four_packets_for_200_ms() {
        let mut path = cruising();
        let mut min_window = u64::MAX;
        let (mut from, mut until) = (None, None);
        for _ in 0..11_000 {
            path.wait_ms(1);
            if let Some(&oldest) = path.in_flight_numbers().first() {
                path.ack([oldest]);
            }
            path.fill();
            let probing = matches!(path.controller.mode, Mode::ProbeRtt { .. });
            if probing {
                from.get_or_insert(path.now);
                min_window = min_window.min(path.controller.window);
            } else if from.is_some() {
                until.get_or_insert(path.now);
            }
        }
        let (from, until) = (from.expect("it does"), until.expect("it ends"));
        assert_eq!(min_window, 4);
        assert!(from > Time::from_secs_f64(10.0), "{from:?}");
        assert!(
            until.since(from) >= PROBE_RTT_TIME,
            "{:?}",
            until.since(from)
        );
        assert!(path.controller.window > 4, "the window is as before");
    }

    #[test]
    fn a_loss_holds_the_window_at_the_flight_for_a_round_and_then_gives_it_back() {
        let mut path = cruising();
        path.fill();
        let before = path.controller.window;
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.feedback([numbers[1], numbers[2], numbers[3]], [numbers[0]], []);
        // Four left the flight, three of them arrived.
        assert_eq!(path.controller.window, before - 1);
        path.fill();
        path.wait_ms(40);
        let rest = path.in_flight_numbers();
        path.ack(rest);
        assert!(path.controller.window >= before.min(path.controller.window_before));
        assert!(!path.controller.is_troubled());
    }

    #[test]
    fn a_timeout_leaves_a_packet_and_an_acknowledgement_gives_the_window_back() {
        let mut path = cruising();
        path.fill();
        let before = path.controller.window;
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        assert_eq!(path.controller.full_bandwidth, Rate::default());
        path.fill();
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
        assert!(path.controller.window >= before / 2);
    }

    #[test]
    fn samples_that_the_source_limits_count_only_if_they_are_greater() {
        let mut path = cruising();
        round(&mut path, 1);
        let bandwidth = path.controller.max_bandwidth();
        path.app_limited = true;
        for _ in 0..30 {
            round(&mut path, 2);
        }
        assert_eq!(path.controller.max_bandwidth(), bandwidth);
        round(&mut path, 100);
        round(&mut path, 100);
        assert!(path.controller.max_bandwidth() > bandwidth);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(bbr1, &steps);
        }
    }
}
