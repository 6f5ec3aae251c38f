//! BBR version 3, after draft-ietf-ccwg-bbr.
//!
//! As in version 1 ([`crate::bbr1`]), rate and window come from a model of the path. It consists of
//! max_bw, the greatest delivery rate of two probing cycles, and min_rtt, the least round-trip time
//! of ten seconds. Losses add two kinds of bounds. The long-term one, inflight_longterm, is the
//! largest volume that a probe put in flight with at most 2 % lost. The short-term ones, of rate
//! and volume, follow deliveries while other flows compete, and each probe discards them first.
//!
//! ```text
//! Startup ── full, or lossy ──▶ Drain ── no queue left ──▶ Down ──▶ Cruise ──▶ Refill ──▶ Up
//!                                                           ▲ headroom  2 to 3 s,  a round  │
//!                                                           │           or as Reno          │
//!                                                           └──── full, or > 2 % lost ◀─────┘
//! from any: ProbeRtt, after 5 s without a shorter round trip, for 200 ms and a round
//! ```
//!
//! Functions carry the names of the draft's pseudocode in their comments; constants are those of its "Core Algorithm Design
//! Parameters". Marks (ECN) say nothing to it.

use crate::initial_window::initial_window;
use crate::rounds::Rounds;
use crate::windowed::{TwoSpans, Windowed, WindowedMax};
use rand_chacha::ChaCha8Rng;
use verus_core::configuration::Configured;
use verus_core::controller::{Controller, Delivery, Departure, Feedback, Phase, Timeout};
use verus_core::episode::{Episode, Period};
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_core::{pacer, random};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::OutOfRange;
use verus_words::spec::{Row, field};

mod full_pipe;
mod losses;
mod probe;
mod probe_rtt;

use full_pipe::FullPipe;
use losses::Losses;
use probe::AckPhase;

/// The gain of the rate in Startup: 4 ln 2, the least that doubles the delivery rate in each round (StartupPacingGain).
const STARTUP_GAIN: f64 = 2.77;
/// LossThresh: the tolerable loss, as a share of the volume in flight.
const LOSS_THRESHOLD: f64 = 0.02;
/// Beta: the least share of a short-term bound that losses leave, and the share of the target.
const BETA: f64 = 0.7;
/// Headroom: the share of the long-term bound that is left free for others.
const HEADROOM: f64 = 0.15;
/// MinPipeCwnd: the least window, in packets, except after a timeout.
const MIN_WINDOW_PACKETS: u64 = 4;
/// StartupFullLossCnt: this many gaps in a round end Startup.
const STARTUP_GAPS: u32 = 6;
/// ExtraAckedFilterLen, rounds; one in Startup.
const EXTRA_ROUNDS: u64 = 10;
/// Drain ends after this many rounds, whatever is in flight.
const DRAIN_ROUNDS: u64 = 3;
/// PacingMarginPercent, as the factor that it leaves of the rate.
const PACING_MARGIN: f64 = 0.99;
/// A burst is what the rate carries in this time ("Send Quantum").
const QUANTUM: Duration = Duration::from_millis(1);
/// Before there is a sample, a round trip is taken to be this long.
const UNKNOWN_RTT: Duration = Duration::from_millis(1);

/// A configuration of BBR version 3.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The window at the start, in packets (RFC 6928: 10).
    pub initial_window_packets: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            initial_window_packets: 10.0,
        }
    }
}

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[initial_window(field!(initial_window_packets))];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("BBR v3".to_owned(), &[])
    }

    fn build(&self, seed: u64) -> Box<dyn Controller> {
        Box::new(Bbr::new(self, seed).expect(CHECKED))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn pacing_gain(self) -> f64 {
        match self {
            State::Startup => STARTUP_GAIN,
            State::Drain => 0.5,
            State::Down => 0.9,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
            State::Up => 1.25,
        }
    }

    fn window_gain(self) -> f64 {
        match self {
            State::Up => 2.25,
            State::ProbeRtt => 0.5,
            _ => 2.0,
        }
    }

    /// Whether it is one of the states of ProbeBW (IsInAProbeBWState).
    fn is_probe_bw(self) -> bool {
        use State::{Cruise, Down, Refill, Up};
        matches!(self, Down | Cruise | Refill | Up)
    }

    /// Whether it probes for more bandwidth, so that losses are expected (IsProbingBW).
    fn is_probing(self) -> bool {
        use State::{Refill, Startup, Up};
        matches!(self, Startup | Refill | Up)
    }
}

/// The state to restore when a loss episode proves spurious.
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    /// The state that losses ended.
    state: Option<State>,
    bandwidth_short: Option<Rate>,
    inflight_short: Option<Bytes>,
    inflight_long: Option<Bytes>,
}

/// The sample of an acknowledgement or a loss (RS).
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: Rate,
    delivered: Bytes,
    /// C.delivered when the packet left.
    prior_delivered: Bytes,
    newly_acked: Bytes,
    in_flight_at_send: Bytes,
    lost: Bytes,
    limited: bool,
    rtt: Duration,
    /// C.inflight now.
    in_flight: Bytes,
}

/// A flow's BBR version 3.
#[derive(Clone, Debug)]
pub struct Bbr {
    random: ChaCha8Rng,
    packet_size: Bytes,
    initial_window_packets: f64,
    now: Time,
    state: State,
    window: Bytes,
    /// The window before a recovery or ProbeRtt (prior_cwnd).
    window_before: Bytes,
    pacing_rate: Rate,
    has_seen_rtt: bool,
    rounds: Rounds,
    round_start: bool,
    /// C.delivered.
    delivered: Bytes,
    /// Whether the window, and not the source or the pace, held a packet back: in this round, and in the last.
    window_limited: (bool, bool),

    max_bw: TwoSpans<Rate>,
    bandwidth_short: Option<Rate>,
    /// The bandwidth that rate and window follow (bw).
    bandwidth: Rate,
    bandwidth_latest: Rate,
    inflight_long: Option<Bytes>,
    inflight_short: Option<Bytes>,
    inflight_latest: Bytes,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    extra_since: Time,
    extra_delivered: Bytes,
    extra_acked: WindowedMax<Bytes>,
    full: FullPipe,

    losses: Losses,
    next_number: u64,
    loss_in_round: bool,
    loss_round_ends_at: Bytes,
    loss_round_start: bool,
    /// Gaps among the losses of this round, and the number after the last loss.
    gaps: u32,
    gap_end: u64,
    episode: Episode<()>,
    undo: Undo,

    drain_round: u64,
    ack_phase: AckPhase,
    /// Whether the packets being acknowledged are those of a probe (is_bw_probe_sample).
    probe_sample: bool,
    cycle_at: Time,
    probe_wait: Duration,
    rounds_since_probe: u64,
    /// In a probe: the bytes acknowledged for each packet by which the bound grows, those acknowledged towards the
    /// next, and rounds.
    up_acked_per_packet: Option<Bytes>,
    up_acked: Bytes,
    up_rounds: u32,
    prev_too_high: bool,
    prev_precautionary: bool,

    probe_rtt_delay: Option<Duration>,
    probe_rtt_at: Time,
    probe_rtt_expired: bool,
    probe_rtt_until: Option<Time>,
    probe_rtt_round: bool,
    /// Samples of packets that left before this much was delivered say nothing about the bandwidth.
    limited_until: Bytes,
    /// Whether the current flight began after the source had been idle (idle_restart).
    restarted: bool,
    last_ack_at: Time,
}

impl Bbr {
    /// A controller for one flow, which probes at moments drawn from `seed`.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: &Config, seed: u64) -> Result<Self, OutOfRange> {
        config.validate()?;
        let packet_size = Bytes::new(1500);
        Ok(Bbr {
            random: random::stream(seed, "bbr", 0),
            packet_size,
            initial_window_packets: config.initial_window_packets,
            now: Time::ZERO,
            state: State::Startup,
            window: packet_size.mul_f64(config.initial_window_packets),
            window_before: Bytes::ZERO,
            pacing_rate: Rate::default(),
            has_seen_rtt: false,
            rounds: Rounds::default(),
            round_start: false,
            delivered: Bytes::ZERO,
            window_limited: (false, false),
            max_bw: TwoSpans::default(),
            bandwidth_short: None,
            bandwidth: Rate::default(),
            bandwidth_latest: Rate::default(),
            inflight_long: None,
            inflight_short: None,
            inflight_latest: Bytes::ZERO,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            extra_since: Time::ZERO,
            extra_delivered: Bytes::ZERO,
            extra_acked: Windowed::new(),
            full: FullPipe::default(),
            losses: Losses::new(),
            next_number: 0,
            loss_in_round: false,
            loss_round_ends_at: Bytes::ZERO,
            loss_round_start: false,
            gaps: 0,
            gap_end: 0,
            episode: Episode::new(Period::Repair),
            undo: Undo::default(),
            drain_round: 0,
            ack_phase: AckPhase::Init,
            probe_sample: false,
            cycle_at: Time::ZERO,
            probe_wait: Duration::ZERO,
            rounds_since_probe: 0,
            up_acked_per_packet: None,
            up_acked: Bytes::ZERO,
            up_rounds: 0,
            prev_too_high: false,
            prev_precautionary: false,
            probe_rtt_delay: None,
            probe_rtt_at: Time::ZERO,
            probe_rtt_expired: false,
            probe_rtt_until: None,
            probe_rtt_round: false,
            limited_until: Bytes::ZERO,
            restarted: false,
            last_ack_at: Time::ZERO,
        })
    }

    fn initial_window(&self) -> Bytes {
        self.packet_size.mul_f64(self.initial_window_packets)
    }

    fn least_window(&self) -> Bytes {
        self.packet_size * MIN_WINDOW_PACKETS
    }

    fn is_window_limited(&self) -> bool {
        self.window_limited.0 || self.window_limited.1
    }

    fn is_troubled(&self) -> bool {
        self.episode.in_recovery() || self.episode.timed_out()
    }

    /// BDPMultiple.
    fn bdp(&self, bandwidth: Rate, gain: f64) -> Bytes {
        let Some(min_rtt) = self.min_rtt else {
            return self.initial_window();
        };
        bandwidth.bytes_in(min_rtt).mul_f64(gain)
    }

    fn quantum(&self) -> Bytes {
        pacer::quantum(self.pacing_rate, QUANTUM, self.packet_size * 2)
    }

    /// QuantizationBudget: room for bursts, and in a probe for two packets more.
    fn with_quantum(&self, inflight: Bytes) -> Bytes {
        let inflight = inflight.max(self.quantum()).max(self.least_window());
        match self.state {
            State::Up => inflight + self.packet_size * 2,
            _ => inflight,
        }
    }

    /// Inflight.
    fn inflight(&self, bandwidth: Rate, gain: f64) -> Bytes {
        self.with_quantum(self.bdp(bandwidth, gain))
    }

    /// TargetInflight.
    fn target(&self) -> Bytes {
        self.bdp(self.bandwidth, 1.0).min(self.window)
    }

    /// InflightWithHeadroom; `None` where there is no bound.
    fn with_headroom(&self) -> Option<Bytes> {
        let long = self.inflight_long?;
        let headroom = long.mul_f64(HEADROOM).max(self.packet_size);
        Some(long.saturating_sub(headroom).max(self.least_window()))
    }

    fn probe_rtt_window(&self) -> Bytes {
        let gain = State::ProbeRtt.window_gain();
        self.bdp(self.bandwidth, gain).max(self.least_window())
    }

    /// Called for each lost packet (HandleLostPacket).
    fn on_lost(&mut self, packet: &Departure) {
        if !self.loss_in_round {
            self.loss_round_ends_at = self.delivered;
        }
        self.loss_in_round = true;
        if packet.number != self.gap_end {
            self.gaps += 1;
        }
        self.gap_end = packet.number + 1;
        self.losses.add(self.next_number, packet.size);
        if !self.probe_sample {
            return;
        }
        let lost = self.losses.since(packet.number);
        if is_too_high(lost, packet.in_flight) {
            let inflight = inflight_at_loss(packet.in_flight, lost, packet.size);
            let limited = packet.app_limited || packet.delivered < self.limited_until;
            self.on_inflight_too_high(inflight, limited);
        }
    }

    /// HandleInflightTooHigh.
    fn on_inflight_too_high(&mut self, inflight: Bytes, limited: bool) {
        self.prev_too_high = true;
        self.probe_sample = false;
        if !limited {
            self.inflight_long = Some(inflight.max(self.target().mul_f64(BETA)));
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_down();
        }
    }

    /// SaveCwnd.
    fn save_window(&mut self, recovering: bool) {
        self.window_before = if recovering || self.state == State::ProbeRtt {
            self.window_before.max(self.window)
        } else {
            self.window
        };
    }

    /// SaveStateUponLoss, once per episode. The pseudocode of NoteLoss saves in each round; the
    /// second loss of a probe would then overwrite the state that the first has to restore.
    fn save_upon_loss(&mut self, recovering: bool) {
        self.save_window(recovering);
        self.undo = Undo {
            state: None,
            bandwidth_short: self.bandwidth_short,
            inflight_short: self.inflight_short,
            inflight_long: self.inflight_long,
        };
    }

    /// HandleSpuriousLossDetection.
    fn on_spurious_loss(&mut self) {
        /// The greater bound. `None` means no bound, which is greater than any.
        fn wider<T: Ord>(now: Option<T>, before: Option<T>) -> Option<T> {
            Some(now?.max(before?))
        }
        self.window = self.window.max(self.window_before);
        self.loss_in_round = false;
        self.full.restart(Rate::default());
        self.bandwidth_short = wider(self.bandwidth_short, self.undo.bandwidth_short);
        self.inflight_short = wider(self.inflight_short, self.undo.inflight_short);
        self.inflight_long = wider(self.inflight_long, self.undo.inflight_long);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full.doubt();
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => {
                self.start_refill();
            }
            _ => {}
        }
    }

    /// UpdateModelAndState.
    fn learn(&mut self, sample: &Sample) {
        self.update_latest(sample);
        self.update_max_bandwidth(sample);
        if self.loss_round_start {
            self.adapt_short_term();
        }
        self.update_aggregation(sample);
        if self.round_start && !sample.limited && sample.rate > Rate::default() {
            self.full.on_round(sample.rate);
        }
        self.check_startup_done(sample);
        if self.loss_round_start {
            self.loss_in_round = false;
            self.gaps = 0;
        }
        self.check_drain_done(sample);
        self.turn_cycle(sample);
        self.update_min_rtt(sample);
        self.check_probe_rtt(sample);
        if self.loss_round_start {
            self.bandwidth_latest = sample.rate;
            self.inflight_latest = sample.delivered;
        }
        let max_bw = self.max_bw.get();
        self.bandwidth = self
            .bandwidth_short
            .map_or(max_bw, |short| short.min(max_bw));
    }

    /// UpdateLatestDeliverySignals.
    fn update_latest(&mut self, sample: &Sample) {
        self.bandwidth_latest = self.bandwidth_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.loss_round_start = sample.prior_delivered >= self.loss_round_ends_at;
        if self.loss_round_start {
            self.loss_round_ends_at = self.delivered;
        }
    }

    /// ResetCongestionSignals.
    fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.gaps = 0;
        self.bandwidth_latest = Rate::default();
        self.inflight_latest = Bytes::ZERO;
    }

    /// UpdateMaxBw, rounds aside.
    fn update_max_bandwidth(&mut self, sample: &Sample) {
        if sample.rate > Rate::default() && (!sample.limited || sample.rate >= self.max_bw.get()) {
            self.max_bw.update(sample.rate);
        }
    }

    /// AdaptLowerBoundsFromCongestion: once in a round with losses, unless they are of a probe.
    fn adapt_short_term(&mut self) {
        if self.state.is_probing() || !self.loss_in_round {
            return;
        }
        let rate = self.bandwidth_short.unwrap_or(self.max_bw.get());
        let inflight = self.inflight_short.unwrap_or(self.window);
        self.bandwidth_short = Some(self.bandwidth_latest.max(rate.mul_f64(BETA)));
        self.inflight_short = Some(self.inflight_latest.max(inflight.mul_f64(BETA)));
    }

    /// ResetShortTermModel.
    fn reset_short_term(&mut self) {
        (self.bandwidth_short, self.inflight_short) = (None, None);
    }

    /// UpdateACKAggregation: what arrives together needs room in the window.
    fn update_aggregation(&mut self, sample: &Sample) {
        let mut expected = self.bandwidth.bytes_in(self.now.since(self.extra_since));
        if self.extra_delivered <= expected {
            (self.extra_delivered, self.extra_since) = (Bytes::ZERO, self.now);
            expected = Bytes::ZERO;
        }
        self.extra_delivered += sample.newly_acked;
        let extra = self.extra_delivered.saturating_sub(expected);
        let rounds = if self.full.is_reached() {
            EXTRA_ROUNDS
        } else {
            1
        };
        let extra = extra.min(self.window);
        self.extra_acked.update(self.rounds.count(), rounds, extra);
    }

    /// CheckStartupDone, with CheckStartupHighLoss.
    fn check_startup_done(&mut self, sample: &Sample) {
        if self.state != State::Startup {
            return;
        }
        // A round of losses ends: it began with the first of them.
        let lossy = self.loss_round_start
            && self.loss_in_round
            && self.gaps >= STARTUP_GAPS
            && is_too_high(sample.lost, sample.in_flight_at_send);
        if lossy {
            self.undo.state = Some(State::Startup);
            self.full.fill();
            let bdp = self.bdp(self.max_bw.get(), 1.0);
            self.inflight_long = Some(bdp.max(self.inflight_latest));
        }
        if self.full.is_reached() {
            self.state = State::Drain;
            self.drain_round = self.rounds.count();
        }
    }

    /// CheckDrainDone.
    fn check_drain_done(&mut self, sample: &Sample) {
        let drained = sample.in_flight <= self.inflight(self.bandwidth, 1.0);
        let long_enough = self.rounds.count() > self.drain_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (drained || long_enough) {
            self.start_down();
        }
    }

    /// SetPacingRateWithGain.
    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = self.bandwidth.mul_f64(gain * PACING_MARGIN);
        if rate > Rate::default() && (self.full.is_reached() || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// InitPacingRate.
    fn initial_rate(&self, rtt: Duration) -> Rate {
        let rate = self.initial_window() / rtt;
        rate.mul_f64(STARTUP_GAIN).max(Rate::from_bps(1))
    }

    /// SetCwnd, bounded as BoundCwndForProbeRTT and BoundCwndForModel have it.
    fn set_window(&mut self, newly_acked: Bytes) {
        let aimed = self.bdp(self.bandwidth, self.state.window_gain());
        let extra = self.extra_acked.get().unwrap_or_default();
        let limit = self.with_quantum(aimed + extra);
        if self.full.is_reached() {
            self.window = (self.window + newly_acked).min(limit);
        } else if self.window < limit || self.delivered < self.initial_window() {
            self.window += newly_acked;
        }
        self.window = self.window.max(self.least_window());
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        let long = match self.state {
            State::ProbeRtt | State::Cruise => self.with_headroom(),
            state if state.is_probe_bw() => self.inflight_long,
            _ => None,
        };
        for bound in [long, self.inflight_short].into_iter().flatten() {
            self.window = self.window.min(bound.max(self.least_window()));
        }
    }
}

/// IsInflightTooHigh.
fn is_too_high(lost: Bytes, in_flight_at_send: Bytes) -> bool {
    lost.as_f64() > in_flight_at_send.as_f64() * LOSS_THRESHOLD
}

/// InflightAtLoss: the volume in flight when losses passed the threshold. They may pass it within
/// one packet, if that packet is a burst.
fn inflight_at_loss(in_flight: Bytes, lost: Bytes, size: Bytes) -> Bytes {
    let before = in_flight.saturating_sub(size).as_f64();
    let lost_before = lost.saturating_sub(size).as_f64();
    let prefix = (LOSS_THRESHOLD * before - lost_before) / (1.0 - LOSS_THRESHOLD);
    Bytes::from_f64(before + prefix)
}

impl Controller for Bbr {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.window = self.initial_window();
        self.now = now;
        (self.min_rtt_at, self.probe_rtt_at) = (now, now);
        (self.extra_since, self.last_ack_at, self.cycle_at) = (now, now, now);
        self.pacing_rate = self.initial_rate(UNKNOWN_RTT);
    }

    /// BBROnInit begins with the smoothed round trip, which after a handshake is known.
    fn on_handshake(&mut self, now: Time, rtt: Duration) {
        (self.min_rtt, self.min_rtt_at) = (Some(rtt), now);
        self.pacing_rate = self.initial_rate(rtt);
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.now = packet.at;
        self.next_number = packet.number + 1;
        self.episode.on_sent(packet);
        self.window_limited.0 |= packet.in_flight + packet.size > self.window;
        // Nothing was in flight for longer than acknowledgements and pacing explain: the source was idle.
        let alone = packet.in_flight == packet.size;
        let min_rtt = self.min_rtt.unwrap_or(Duration::MAX);
        if alone && !self.episode.timed_out() && packet.at.since(self.last_ack_at) > min_rtt {
            // HandleRestartFromIdle.
            self.restarted = true;
            self.extra_since = packet.at;
            if self.state.is_probe_bw() {
                self.set_pacing_rate(1.0);
            } else if self.state == State::ProbeRtt
                && self.probe_rtt_until.is_some_and(|until| packet.at > until)
            {
                self.leave_probe_rtt();
            }
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.now = feedback.now;
        self.delivered = feedback.delivered;
        let was_troubled = self.is_troubled();
        if was_troubled || !feedback.lost.is_empty() || !feedback.recovered.is_empty() {
            if self.episode.undone_by(feedback).is_some() {
                self.on_spurious_loss();
            }
            // Marks are not losses.
            let unmarked = Feedback {
                marked: 0,
                ..*feedback
            };
            if self.episode.begun_by(&unmarked, ()) {
                self.save_upon_loss(was_troubled);
            }
            for packet in feedback.lost {
                self.on_lost(packet);
            }
        }
        let Some(delivery) = feedback.delivery() else {
            return;
        };
        self.last_ack_at = feedback.now;
        let Delivery { packet, .. } = delivery;
        self.round_start = self.rounds.on_delivery(&packet, feedback.delivered);
        if self.round_start {
            self.rounds_since_probe += 1;
            self.window_limited = (false, self.window_limited.0);
        }
        let sample = Sample {
            rate: delivery.rate,
            delivered: delivery.delivered,
            prior_delivered: packet.delivered,
            newly_acked: feedback.newly_delivered(),
            in_flight_at_send: packet.in_flight,
            lost: self.losses.since(packet.number),
            limited: packet.app_limited || packet.delivered < self.limited_until,
            rtt: delivery.rtt,
            in_flight: feedback.in_flight,
        };
        self.learn(&sample);
        if !self.has_seen_rtt && !feedback.smoothed_rtt.is_zero() {
            self.has_seen_rtt = true;
            self.pacing_rate = self.initial_rate(feedback.smoothed_rtt);
        }
        self.set_pacing_rate(self.state.pacing_gain());
        if was_troubled && !self.is_troubled() {
            self.window = self.window.max(self.window_before);
        }
        self.set_window(sample.newly_acked);
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.now = timeout.now;
        self.save_upon_loss(self.is_troubled());
        self.episode.on_timeout(timeout, ());
        for packet in timeout.presumed_lost {
            self.losses.add(self.next_number, packet.size);
        }
        self.window = self.packet_size;
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
        self.window = self.window.max(size);
    }

    fn window(&self) -> Bytes {
        self.window
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pacing_rate)
    }

    fn send_quantum(&self) -> Option<Bytes> {
        Some(self.quantum())
    }

    fn phase(&self) -> Option<Phase> {
        Some(match self.state {
            _ if self.episode.timed_out() => Phase::Silent,
            State::Startup => Phase::SlowStart,
            State::Drain | State::ProbeRtt => Phase::Drain,
            State::Down | State::Cruise | State::Refill | State::Up => Phase::Steady,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let ms = |span: Option<Duration>| span.map_or(f64::NAN, Duration::as_millis_f64);
        let packets =
            |bytes: Option<Bytes>| bytes.map_or(f64::NAN, |bytes| bytes / self.packet_size);
        record("pacing_gain", self.state.pacing_gain());
        record("window_packets", self.window / self.packet_size);
        record("bandwidth_mbps", self.bandwidth.as_mbps());
        record("max_bandwidth_mbps", self.max_bw.get().as_mbps());
        record("delay_min_ms", ms(self.min_rtt));
        record("pacing_mbps", self.pacing_rate.as_mbps());
        record("longterm_packets", packets(self.inflight_long));
        record("shortterm_packets", packets(self.inflight_short));
        // Its gains are those of PROBE_CRUISE.
        let refilling = self.state == State::Refill;
        record("refilling", f64::from(u8::from(refilling)));
    }
}

#[cfg(test)]
mod tests {
    use super::probe_rtt::{PROBE_RTT_EVERY, PROBE_RTT_TIME};
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn bbr() -> Bbr {
        Bbr::new(&Config::default(), 1).expect("in range")
    }

    const RATE: Rate = Rate::from_bps(8_000_000);

    /// A flow that has filled a pipe of 1000 packets/s and 40 ms.
    fn filled() -> Path<Bbr> {
        let mut path = Path::new(bbr());
        for _ in 0..400 {
            step(&mut path);
        }
        path.controller.full.fill();
        path.controller.start_down();
        path
    }

    /// A millisecond: one packet comes, one leaves.
    fn step(path: &mut Path<Bbr>) {
        path.wait_ms(1);
        if path.in_flight() >= SIZE * 40 {
            let oldest = path.in_flight_numbers()[0];
            path.ack([oldest]);
        }
        path.send(1);
    }

    #[test]
    fn gains_are_the_drafts() {
        let gains = |state: State| (state.pacing_gain(), state.window_gain());
        assert_eq!(gains(State::Startup), (2.77, 2.0));
        assert_eq!(gains(State::Drain), (0.5, 2.0));
        assert_eq!(gains(State::Down), (0.9, 2.0));
        assert_eq!(gains(State::Cruise), (1.0, 2.0));
        assert_eq!(gains(State::Refill), (1.0, 2.0));
        assert_eq!(gains(State::Up), (1.25, 2.25));
        assert_eq!(gains(State::ProbeRtt), (1.0, 0.5));
    }

    #[test]
    fn a_part_of_the_long_term_bound_is_left_to_others() {
        let mut controller = bbr();
        controller.packet_size = Bytes::new(1448);
        assert_eq!(controller.with_headroom(), None);
        controller.inflight_long = Some(Bytes::new(144_800));
        assert_eq!(controller.with_headroom(), Some(Bytes::new(123_080)));
    }

    #[test]
    fn what_was_in_flight_at_the_threshold_may_end_within_a_burst() {
        let packets = |count: u64| Bytes::new(count * 1000);
        let in_flight = inflight_at_loss(packets(120), packets(3), packets(1));
        // (0.02 × 119 − 2) / 0.98 = 0.388.
        assert_eq!(in_flight, Bytes::new(119_387));
    }

    #[test]
    fn exactly_two_percent_are_not_too_many() {
        let packets = |count: u64| Bytes::new(count * 1000);
        assert!(!is_too_high(packets(2), packets(100)));
        assert!(is_too_high(packets(3), packets(100)));
    }

    #[test]
    fn losses_of_a_probe_bound_what_is_in_flight_and_end_it() {
        let mut controller = bbr();
        controller.on_start(Time::ZERO, SIZE);
        controller.state = State::Up;
        controller.window = SIZE * 160;
        controller.bandwidth = RATE;
        controller.min_rtt = Some(Duration::from_millis(80));
        // BDP 80 packets.
        controller.on_inflight_too_high(SIZE * 100, false);
        assert_eq!(controller.inflight_long, Some(SIZE * 100));
        assert_eq!(controller.state, State::Down);
        controller.on_inflight_too_high(SIZE * 30, false);
        assert_eq!(controller.inflight_long, Some(SIZE * 56));
    }

    #[test]
    fn short_term_bounds_follow_what_is_delivered() {
        let mbps = Rate::from_mbps;
        for (latest, wanted) in [(6.0, 7.0), (8.0, 8.0)] {
            let mut controller = bbr();
            controller.state = State::Cruise;
            controller.loss_in_round = true;
            controller.bandwidth_short = Some(mbps(10.0));
            controller.bandwidth_latest = mbps(latest);
            controller.adapt_short_term();
            assert_eq!(controller.bandwidth_short, Some(mbps(wanted)));
        }
    }

    #[test]
    fn the_long_term_bound_rises_twice_as_fast_in_each_round_of_a_probe() {
        let mut controller = bbr();
        controller.packet_size = SIZE;
        controller.window = SIZE * 100;
        for packets in [100.0, 50.0, 25.0, 12.5] {
            controller.raise_slope();
            assert_eq!(controller.up_acked_per_packet, Some(SIZE.mul_f64(packets)));
        }
        let sample = Sample {
            rate: RATE,
            delivered: SIZE * 100,
            prior_delivered: Bytes::ZERO,
            newly_acked: SIZE * 100,
            in_flight_at_send: SIZE * 100,
            lost: Bytes::ZERO,
            limited: false,
            rtt: Duration::from_millis(40),
            in_flight: SIZE * 100,
        };
        let mut rises = |up_rounds: u32| {
            controller.up_rounds = up_rounds;
            controller.raise_slope();
            controller.window_limited = (true, true);
            controller.inflight_long = Some(SIZE * 100);
            controller.probe_long_term_upward(&sample);
            controller.inflight_long.map(|long| long / SIZE)
        };
        let growth = [rises(0), rises(1), rises(2), rises(3)];
        assert_eq!(growth, [101.0, 102.0, 104.0, 108.0].map(Some));
    }

    /// mvfst's smoke test.
    #[test]
    fn the_window_grows_with_the_first_acknowledgements() {
        let mut path = Path::new(bbr());
        for _ in 0..10 {
            path.send(1);
        }
        let initial = path.controller.window();
        path.wait_ms(90);
        path.ack(0..5);
        assert!(path.controller.window() > initial);
    }

    #[test]
    fn a_cycle_goes_down_cruises_refills_and_probes() {
        let mut path = filled();
        let mut states = vec![path.controller.state];
        for _ in 0..20_000 {
            step(&mut path);
            let state = path.controller.state;
            if states.last() != Some(&state) {
                states.push(state);
            }
        }
        use State::{Cruise, Down, Refill, Up};
        let cycle = [Down, Cruise, Refill, Up, Down, Cruise];
        assert_eq!(states[..6], cycle, "{states:?}");
    }

    #[test]
    fn a_probe_is_due_after_two_to_three_seconds_or_as_many_rounds_as_packets_aimed_at() {
        let mut controller = bbr();
        controller.packet_size = SIZE;
        controller.bandwidth = RATE;
        controller.min_rtt = Some(Duration::from_millis(40));
        controller.window = SIZE * 100;
        for seed in 0..20 {
            controller.random = random::stream(seed, "bbr", 0);
            controller.start_down();
            let secs = controller.probe_wait.as_secs_f64();
            assert!((2.0..3.0).contains(&secs) && controller.rounds_since_probe < 2);
        }
        assert!(!controller.is_time_to_probe());
        // BDP 40 packets; never more than 63 rounds.
        controller.rounds_since_probe = 40;
        assert!(controller.is_time_to_probe());
        controller.bandwidth = RATE.mul_f64(10.0);
        controller.window = SIZE * 1000;
        assert!(!controller.is_time_to_probe());
        controller.rounds_since_probe = 63;
        assert!(controller.is_time_to_probe());
        controller.rounds_since_probe = 0;
        controller.now = Time::ZERO + controller.probe_wait + Duration::from_millis(1);
        assert!(controller.is_time_to_probe());
    }

    #[test]
    fn five_seconds_without_a_shorter_round_trip_halve_the_flight_for_200_ms() {
        let mut path = filled();
        let begin = path.controller.probe_rtt_at;
        let (mut from, mut until) = (None, None);
        for _ in 0..8000 {
            path.wait_ms(1);
            if let Some(&oldest) = path.in_flight_numbers().first() {
                path.ack([oldest]);
            }
            path.fill();
            if path.controller.state == State::ProbeRtt {
                from.get_or_insert(path.now);
            } else if from.is_some() {
                until.get_or_insert((path.now, path.controller.state));
            }
        }
        let from = from.expect("it does");
        let (until, next) = until.expect("it ends");
        assert!(from.since(begin) > PROBE_RTT_EVERY);
        assert!(from.since(begin) < PROBE_RTT_EVERY + Duration::from_secs(1));
        assert!(until.since(from) >= PROBE_RTT_TIME);
        assert_eq!(next, State::Cruise);
    }

    #[test]
    fn who_was_idle_needs_no_bare_path() {
        let mut path = filled();
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
        path.wait_ms(6000);
        path.app_limited = true;
        for _ in 0..4 {
            path.send(1);
        }
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.ack([numbers[0]]);
        assert_ne!(path.controller.state, State::ProbeRtt);
    }

    #[test]
    fn losses_that_were_none_give_back_the_probe_and_the_bounds() {
        let mut path = filled();
        while path.controller.state != State::Up {
            step(&mut path);
        }
        let numbers = path.in_flight_numbers();
        path.feedback([numbers[3]], numbers[..3].iter().copied(), []);
        assert_eq!(path.controller.state, State::Down);
        assert!(path.controller.inflight_long.is_some());
        path.feedback([], [], numbers[..3].iter().copied());
        assert_eq!(path.controller.state, State::Refill);
        assert_eq!(path.controller.inflight_long, None);
        assert_eq!(path.controller.bandwidth_short, None);
    }

    #[test]
    fn a_lossy_round_with_six_gaps_ends_startup() {
        let mut path = Path::new(bbr());
        path.send(100);
        path.wait_ms(40);
        let lossy = |path: &mut Path<Bbr>, gaps: u64| {
            let numbers = path.in_flight_numbers();
            let lost: Vec<u64> = (0..gaps).map(|gap| numbers[2 * gap as usize]).collect();
            let rest = numbers
                .iter()
                .copied()
                .filter(|number| !lost.contains(number));
            path.feedback(rest.collect::<Vec<_>>(), lost.clone(), []);
            path.send(200);
            path.wait_ms(40);
        };
        lossy(&mut path, 5);
        lossy(&mut path, 0);
        assert_eq!(path.controller.state, State::Startup);
        lossy(&mut path, 6);
        lossy(&mut path, 6);
        assert_ne!(path.controller.state, State::Startup);
        assert!(path.controller.full.is_reached());
        assert!(path.controller.inflight_long.is_some());
    }

    #[test]
    fn a_timeout_leaves_a_packet_and_an_acknowledgement_gives_the_window_back() {
        let mut path = filled();
        let before = path.controller.window();
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE);
        path.fill();
        path.wait_ms(40);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
        assert!(path.controller.window() >= before / 2);
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let config = Config {
            initial_window_packets: f64::NAN,
        };
        let error = Bbr::new(&config, 1).expect_err("out of range");
        assert_eq!(error.field, "initial_window_packets");
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(bbr, &steps);
        }
    }
}
