//! Verus: delay-based congestion control that learns what delay each window brings (Zaki et al.,
//! *Adaptive Congestion Control for Unpredictable Cellular Networks*, SIGCOMM 2015).
//!
//! Four parts (§4), each in a file of its own: the [delay estimator](delay) watches the largest delay of
//! each 5 ms epoch, the [delay profiler](profile) learns delay as a function of the window, the
//! [window estimator](window) steps along that curve, and the loss handler cuts the window by Eq. 6 and
//! lets it recover, here, and [remembers](loss) where it was lost.
//!
//! ```text
//!                 delay > N·D_min, or a loss
//!  SlowStart ───────────────────────────────▶ Recovery ◀──────┐
//!      ▲                                        │             │ loss (Eq. 6)
//!      ┆ prototype: curve cannot be inverted    │ ACK of a window ≤ W
//!      └┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ Tracking ◀───┘             │
//!                                   │  └──────────────────────┘
//!                    timeout (Eq. 6)│  ▲ anything is acknowledged
//!                                   ▼  │
//!                                 Silent
//! ```
//!
//! In slow start and recovery the window is filled as acknowledgements make room. In tracking each
//! epoch grants a budget of packets (Eq. 5), and the window is only what the budget aims at.

pub mod capacity;
pub mod config;
pub mod delay;
pub mod epochs;
pub mod loss;
pub mod minimum;
pub mod profile;
pub mod window;

use crate::controller::{Acked, Controller, Departure, Feedback, ProfileSnapshot, Timeout};
use crate::pacer::BURST_PACKETS;
use crate::range::OutOfRange;
use crate::recovery::Recovery;
use crate::units::{Bytes, Duration, Rate, Time};

use capacity::Capacity;
use config::{AboveProfile, AtFloor, ChartedWindow, DelayMin, SlowStartExit, WindowReference};
pub use config::{Config, Mode};
use delay::DelayEstimator;
use epochs::{Epochs, Turn};
use loss::LossMemory;
use minimum::DelayMinimum;
use profile::Profile;

/// After a timeout, how many packets probe the path until one is answered.
const SILENT_WINDOW_PACKETS: u64 = 2;
/// A silence of so many usual intervals between acknowledgements may be an outage.
const ACKS_MISSED: u64 = 4;
/// An empty path that takes so much longer than D_min is a longer path; beyond, it may be an outage.
const LONGER_BY: Duration = Duration::from_millis(60);

/// A flow alone on its path meets D_min again within a time that grows with R: D_est rises to R · D_min
/// and falls back by δ₂ an epoch, which at 40 ms takes some 200 ms for each unit of R − 1, and a few round
/// trips pass meanwhile.
const ALONE_WITHIN: Duration = Duration::from_millis(40);
const ALONE_WITHIN_PER_RATIO: Duration = Duration::from_millis(180);

/// So soon after an outage D_min may not be met because of the queue that it left.
const UNSURE_AFTER_OUTAGE: Duration = Duration::from_secs(1);

/// What the flow is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The window grows by one with each acknowledgement (§5.1).
    SlowStart,
    /// Epochs decide.
    Tracking,
    /// After a loss: the profile is frozen, the window grows by 1/W with each acknowledgement.
    Recovery {
        /// Entered by the delay threshold of slow start rather than by a loss.
        by_threshold: bool,
    },
    /// After a timeout: a trickle until anything is answered.
    Silent,
}

/// What a loss or timeout changed, kept until it proves real: restored if every packet thought
/// lost arrives after all.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: f64,
    estimate: f64,
    phase: Phase,
    outstanding: usize,
    /// A timeout is among the causes: it is disproved by the first packet that arrives after all.
    by_timeout: bool,
}

/// The prototype's books: it forgets at timeouts and restarts, so it counts for itself.
#[derive(Debug, Default)]
struct OwnCount {
    in_flight: u64,
    /// Packets numbered below this are ignored.
    session_start: u64,
    /// Slow start's debt: what it has granted but not yet sent.
    granted: u64,
}

/// The Verus controller.
#[derive(Debug)]
pub struct Verus {
    config: Config,
    phase: Phase,
    packet_size: Bytes,
    delay: DelayEstimator,
    minimum: DelayMinimum,
    capacity: Capacity,
    profile: Profile,
    /// W, in packets.
    window: f64,
    /// D_est, in ms.
    estimate: f64,
    /// S: what is left of the open epoch's budget, in packets; a fraction carries over.
    budget: f64,
    /// The window bounds the open epoch rather than a budget: what is acknowledged in it may leave again.
    refills: bool,
    /// The rate that spreads the budget over its epoch.
    pace: Option<Rate>,
    epochs: Epochs,
    refit_at: Time,
    rtt: Duration,
    undo: Option<Undo>,
    own: OwnCount,
    next_number: u64,
    last_ack: Option<Time>,
    /// Average time between acknowledgements.
    ack_interval: Duration,
    /// How long a silence may last before it is an outage; worked out once an epoch.
    longest_silence: Duration,
    /// Packets numbered below this were under way during an outage.
    stalled_until: u64,
    /// When the last outage ended.
    outage_ended: Option<Time>,
    /// Where the path refused a window, and whether by chance.
    losses: LossMemory,
    restarts: u64,
}

impl Verus {
    /// A controller at the beginning of its slow start. When its epochs end is drawn from `seed`.
    ///
    /// # Errors
    /// Names the parameter that is out of range.
    pub fn new(config: Config, seed: u64) -> Result<Self, OutOfRange> {
        config.validate()?;
        let epochs = Epochs::new(config.epoch, config.epoch_jitter, seed);
        Ok(Verus {
            config,
            epochs,
            phase: Phase::SlowStart,
            packet_size: Bytes::new(1),
            delay: DelayEstimator::new(),
            minimum: DelayMinimum::new(),
            capacity: Capacity::default(),
            profile: Profile::new(),
            window: 1.0,
            estimate: 0.0,
            budget: 0.0,
            refills: false,
            pace: None,
            refit_at: Time::ZERO,
            rtt: Duration::ZERO,
            undo: None,
            own: OwnCount::default(),
            next_number: 0,
            last_ack: None,
            ack_interval: Duration::ZERO,
            longest_silence: Duration::MAX,
            stalled_until: 0,
            outage_ended: None,
            losses: LossMemory::default(),
            restarts: 0,
        })
    }

    fn packets(&self, bytes: Bytes) -> f64 {
        bytes / self.packet_size
    }

    /// W_i or the packets in flight, as the algorithm sees them.
    fn in_flight_packets(&self, in_flight: Bytes) -> u64 {
        if self.config.forgets_at_timeout {
            self.own.in_flight
        } else {
            in_flight.get() / self.packet_size.get()
        }
    }

    #[inline]
    fn on_acked(&mut self, now: Time, acked: &Acked) {
        let packet = &acked.packet;
        if self.config.forgets_at_timeout {
            if packet.number < self.own.session_start {
                return; // the prototype discards what belongs to an earlier session
            }
            self.own.in_flight = self.own.in_flight.saturating_sub(1);
        }
        let delay_ms = acked.rtt.as_millis_f64();
        self.capacity.on_acked();
        self.rtt = match self.rtt {
            Duration::ZERO => acked.rtt,
            rtt => (rtt * 7 + acked.rtt) / 8,
        };
        if self.phase == Phase::SlowStart && self.exceeds_slow_start(delay_ms) {
            self.leave_slow_start(now, packet);
        }
        if let Phase::Recovery { .. } = self.phase {
            // "if the protocol receives an acknowledgement with a sending window that is smaller
            // than or equal to the current sending window" (§4).
            if self.packets(packet.window) <= self.window {
                self.phase = Phase::Tracking;
                self.refills = self.config.refill && self.rtt <= self.config.epoch;
                if self.config.epochs_in_recovery {
                    self.delay.discard_epoch();
                }
            }
        }
        self.delay.on_sample(now, acked.rtt);
        let at_least = delay_ms.max(self.config.least_delay_ms);
        self.minimum.on_sample(now, packet.at, at_least);
        self.losses.on_sample(now, at_least);
        match self.phase {
            Phase::Recovery { .. } => {
                self.window += 1.0 / self.window;
                if let Some(delay) = self.profile.delay_at(self.window) {
                    self.estimate = if self.config.epochs_in_recovery {
                        self.estimate.min(delay)
                    } else {
                        delay
                    };
                }
            }
            Phase::SlowStart | Phase::Tracking | Phase::Silent => {
                if !packet.app_limited && packet.number >= self.stalled_until {
                    self.chart(now, packet, acked.rtt);
                }
                if self.phase == Phase::SlowStart {
                    self.window += 1.0;
                    if self.config.forgets_at_timeout {
                        let room = self.window - self.own.in_flight as f64;
                        self.own.granted += room.max(0.0) as u64;
                    }
                }
            }
        }
    }

    /// Adds a packet's delay to the profile, under the window it left with.
    fn chart(&mut self, now: Time, packet: &Departure, rtt: Duration) {
        let window = match self.config.charted_window {
            ChartedWindow::InFlight => packet.in_flight,
            ChartedWindow::Target => packet.window,
        };
        let window = self.packets(window);
        self.profile.add(now, window, rtt, self.config.point_weight);
    }

    /// How long a silence may last before it is an outage rather than a queue of the flow's own:
    /// the delay that the flow tolerates, unless acknowledgements are rarer than that anyway.
    fn update_longest_silence(&mut self) {
        let delay_min = self.minimum.get().unwrap_or_default();
        let tolerated = Duration::from_millis_f64(delay_min * self.config.ratio);
        self.longest_silence = tolerated.max(self.ack_interval * ACKS_MISSED);
        if self.minimum.is_draining() {
            // With two packets in flight a whole round trip passes between answers, and the drain
            // is there to find out whether that has become longer.
            let longer = Duration::from_millis_f64(delay_min) + LONGER_BY;
            self.longest_silence = self.longest_silence.max(longer);
        }
    }

    /// Something is acknowledged. After an outage the delays of what was under way say nothing
    /// about their windows.
    #[inline]
    fn note_silence(&mut self, now: Time) {
        if let Some(last) = self.last_ack {
            let silence = now.since(last);
            let longest = self.longest_silence;
            if silence > longest && self.phase != Phase::SlowStart {
                self.stalled_until = self.next_number;
                self.outage_ended = Some(now);
                self.minimum.on_silence(now, silence);
            }
            self.ack_interval = (self.ack_interval * 15 + silence.min(longest)) / 16;
        }
        self.last_ack = Some(now);
    }

    fn is_stalled(&self, now: Time) -> bool {
        let silence = self.last_ack.map(|last| now.since(last));
        silence.is_some_and(|silence| silence > self.longest_silence)
    }

    fn exceeds_slow_start(&self, delay_ms: f64) -> bool {
        match self.config.slow_start_exit {
            SlowStartExit::Multiple(n) => {
                self.minimum.get().is_some_and(|least| delay_ms > n * least)
            }
            SlowStartExit::Delay(limit) => delay_ms > limit.as_millis_f64(),
        }
    }

    /// The delay threshold ends slow start: the window that brought this delay was too large, and
    /// is cut as by a loss (Eq. 6).
    fn leave_slow_start(&mut self, now: Time, packet: &Departure) {
        self.cut(now, packet.window, true);
        if self.config.epochs_in_recovery
            && let Some(least) = self.minimum.get()
        {
            self.estimate = 0.75 * least * self.config.ratio;
        }
    }

    /// Eq. 6: W = M · W_loss.
    fn cut(&mut self, now: Time, window_at_loss: Bytes, by_threshold: bool) {
        let was_slow_start = self.phase == Phase::SlowStart;
        let cut = self.config.decrease_factor * self.packets(window_at_loss);
        self.window = self.window.min(cut).max(1.0);
        if was_slow_start {
            self.refit(now);
        }
        if let Some(delay) = self.profile.delay_at(self.window) {
            self.estimate = delay;
        }
        self.phase = Phase::Recovery { by_threshold };
        self.budget = 0.0;
        self.refills = false;
        self.epochs.begin(now);
    }

    fn on_lost(&mut self, now: Time, lost: &[Departure]) {
        if self.config.forgets_at_timeout {
            let known = lost
                .iter()
                .filter(|packet| packet.number >= self.own.session_start)
                .count();
            self.own.in_flight = self.own.in_flight.saturating_sub(known as u64);
            if known == 0 {
                return;
            }
        }
        self.losses.on_lost(lost.len());
        if let Some(undo) = &mut self.undo {
            undo.outstanding += lost.len();
        }
        // One cut an episode: what was under way when the first loss showed shares its cause.
        if matches!(self.phase, Phase::Recovery { .. } | Phase::Silent) {
            return;
        }
        // The prototype lets slow start run on through losses at small windows.
        if self.config.forgets_at_timeout && self.phase == Phase::SlowStart && self.window <= 20.0 {
            return;
        }
        if self.phase != Phase::SlowStart {
            self.undo = Some(Undo {
                window: self.window,
                estimate: self.estimate,
                phase: self.phase,
                outstanding: lost.len(),
                by_timeout: false,
            });
        }
        self.cut(now, lost[0].window, false);
        if let Some(least) = self.minimum.get() {
            let window = self.packets(lost[0].window);
            let delay = self.delay.delay_max();
            let shared = self.capacity.is_shared();
            self.losses
                .on_loss(now, window, delay, least, shared, &self.config);
            self.capacity.limit(self.window / least);
        }
    }

    /// Packets thought lost have arrived. Once all have, the cut was for nothing.
    fn on_recovered(&mut self, now: Time, recovered: &[Acked]) {
        if self.config.forgets_at_timeout {
            return;
        }
        for acked in recovered {
            self.delay.on_sample(now, acked.rtt);
            self.minimum
                .on_sample(now, acked.packet.at, acked.rtt.as_millis_f64());
        }
        let Some(undo) = &mut self.undo else { return };
        undo.outstanding = undo.outstanding.saturating_sub(recovered.len());
        if undo.outstanding == 0 || undo.by_timeout {
            self.window = undo.window;
            self.estimate = undo.estimate;
            self.phase = undo.phase;
            self.undo = None;
        }
    }

    /// Closes the epochs that have ended and opens the next.
    #[inline]
    fn close_epochs(&mut self, now: Time, turn: Turn, in_flight: Bytes) {
        let under_way = self.in_flight_packets(in_flight);
        self.update_longest_silence();
        let Some(report) = self.delay.end_epoch(now, &self.config) else {
            return;
        };
        let Some(delay_min) = self.minimum.get() else {
            return;
        };
        let recovering = match self.phase {
            Phase::SlowStart | Phase::Silent => return,
            Phase::Recovery { by_threshold } => {
                if !self.config.epochs_in_recovery {
                    return;
                }
                by_threshold
            }
            Phase::Tracking => {
                // With nothing under way there is nothing to be silent about: what a budget of zero
                // would then keep waiting for is never sent.
                if self.config.skip_stalls && under_way > 0 && self.is_stalled(now) {
                    self.budget = 0.0;
                    self.refills = false;
                    return;
                }
                if self.config.delay_min == DelayMin::Rising {
                    let tolerated = self.config.ratio * delay_min;
                    let delay = self.rtt.as_millis_f64();
                    let at_floor = self.estimate <= delay_min;
                    if self
                        .minimum
                        .advance(now, under_way, delay, tolerated, at_floor)
                    {
                        self.delay.discard_epoch();
                    }
                    if self.minimum.is_draining() {
                        self.budget = 0.0;
                        return;
                    }
                }
                false
            }
        };
        let config = &self.config;
        self.estimate = window::next_estimate(
            self.estimate,
            &report,
            delay_min,
            turn.ended,
            recovering,
            config,
        );
        let mut pause = false;
        if config.at_floor == AtFloor::PauseOrRaise
            && report.tested / delay_min > config.ratio
            && !recovering
            && self.estimate <= delay_min
        {
            if under_way < 2 {
                self.minimum.raise(10.0);
            } else {
                pause = true;
            }
        }
        let wanted = match self.profile.window_at(self.estimate, config) {
            Some(wanted) => wanted.max(1.0) + config.additive_increase,
            None if config.above_profile == AboveProfile::Restart => return self.restart(),
            // A long outage leaves no point that counts. The window stays until there are some: slow
            // start would learn D_min from the queue that the outage left.
            None => self.window,
        };
        let current = match config.window_reference {
            WindowReference::CurrentWindow => self.window,
            WindowReference::InFlight => under_way as f64,
        };
        self.window = wanted;
        if config.capacity_bounds
            && let Some(rate) = self.capacity.packets_per_ms()
        {
            // What the pipe holds without a queue: less would save no delay.
            self.window = self.window.max(rate * delay_min);
        }
        if let Some(ceiling) = self.losses.ceiling(now, config)
            && self.window > ceiling
        {
            self.window = ceiling.max(1.0);
            if let Some(delay) = self.profile.delay_at(self.window) {
                self.estimate = self.estimate.min(delay.max(delay_min));
            }
        }
        if !pause {
            self.grant(current, under_way as f64, turn.next);
        }
    }

    /// Opens an epoch: how much may leave in it (Eq. 5), and how it is spread.
    #[inline]
    fn grant(&mut self, current: f64, under_way: f64, epoch: Duration) {
        let config = &self.config;
        let granted = window::budget(self.window, current, under_way, self.rtt, epoch);
        if config.whole_windows {
            // The prototype's budgets add up until its sending thread has spent them.
            self.budget = self.budget.max(0.0) + granted.floor();
        } else {
            // Less than a packet is not lost but saved for the next epoch.
            self.budget = granted + self.budget.clamp(0.0, 1.0).fract();
            self.refills = config.refill && self.rtt <= epoch;
            let large = config.pacing && self.budget > f64::from(BURST_PACKETS);
            self.pace = large.then(|| self.packet_size.mul_f64(self.budget) / epoch);
        }
    }

    fn refit(&mut self, now: Time) {
        let delay_min = self.minimum.get().unwrap_or_default();
        self.capacity.end_interval(now);
        let alone = ALONE_WITHIN + ALONE_WITHIN_PER_RATIO.mul_f64(self.config.ratio);
        let unsure = |ended: Time| now.since(ended) < UNSURE_AFTER_OUTAGE;
        let met = self.minimum.met_within(now, alone);
        self.capacity
            .set_shared(!met && !self.outage_ended.is_some_and(unsure));
        self.profile
            .refit(now, delay_min, &self.capacity, &self.config);
        self.refit_at = now + self.config.update_interval;
    }

    /// The prototype, when its curve gives no window for the delay it wants: everything is
    /// forgotten and slow start begins again.
    #[cold]
    fn restart(&mut self) {
        self.restarts += 1;
        self.profile.clear();
        self.delay = DelayEstimator::new();
        self.minimum = DelayMinimum::new();
        self.phase = Phase::SlowStart;
        self.window = 1.0;
        self.estimate = 0.0;
        self.budget = 0.0;
        self.rtt = Duration::ZERO;
        self.epochs.stop();
        self.own = OwnCount {
            in_flight: 0,
            session_start: self.next_number,
            granted: 1,
        };
    }
}

impl Controller for Verus {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.refit_at = now + self.config.update_interval;
        self.capacity.begin(now);
        self.own.granted = 1;
    }

    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        self.next_number = packet.number + 1;
        self.own.in_flight += 1;
        self.own.granted = self.own.granted.saturating_sub(1);
        self.budget -= 1.0;
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        if self.phase == Phase::Silent
            && !(feedback.acked.is_empty() && feedback.recovered.is_empty())
        {
            self.phase = Phase::Recovery {
                by_threshold: false,
            };
        }
        if !feedback.recovered.is_empty() {
            self.on_recovered(now, feedback.recovered);
        }
        if self.config.skip_stalls && !feedback.acked.is_empty() {
            self.note_silence(now);
        }
        for acked in feedback.acked {
            self.on_acked(now, acked);
        }
        if !feedback.lost.is_empty() {
            self.on_lost(now, feedback.lost);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        if self.config.forgets_at_timeout {
            // The window stays, nothing is believed to be under way, what arrives late is
            // ignored: the sender runs away in an outage.
            self.own.in_flight = 0;
            self.own.session_start = self.next_number;
            if let Some(least) = self.minimum.get() {
                self.estimate = least;
            }
            if self.phase == Phase::SlowStart {
                self.own.granted = self.own.granted.max(1);
            }
            return;
        }
        let lost = timeout.presumed_lost;
        match &mut self.undo {
            Some(undo) => {
                undo.outstanding += lost.len();
                undo.by_timeout = true;
            }
            None if self.phase == Phase::SlowStart => {}
            None => {
                self.undo = Some(Undo {
                    window: self.window,
                    estimate: self.estimate,
                    phase: self.phase,
                    outstanding: lost.len(),
                    by_timeout: true,
                });
            }
        }
        if let Some(first) = lost.first() {
            self.cut(timeout.now, first.window, false);
        }
        self.phase = Phase::Silent;
    }

    #[inline]
    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        let late = self.capacity.is_shared();
        let Some(turn) = self.epochs.turn(now, late) else {
            return;
        };
        if now >= self.refit_at && self.phase == Phase::Tracking {
            // In recovery and silence the profile is frozen (§4).
            self.refit(now);
        }
        self.close_epochs(now, turn, in_flight);
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.packet_size.mul_f64(self.window)
    }

    #[inline]
    fn sendable(&self, in_flight: Bytes) -> Bytes {
        let size = self.packet_size;
        match self.phase {
            Phase::SlowStart if self.config.forgets_at_timeout => size * self.own.granted,
            Phase::Recovery { .. } if self.config.epochs_in_recovery => size.mul_f64(self.budget),
            Phase::Tracking => match self.minimum.allowed_packets() {
                Some(packets) => (size * packets).saturating_sub(in_flight),
                None if self.refills => self.window().saturating_sub(in_flight),
                None if self.budget < 1.0 => Bytes::ZERO,
                None => size.mul_f64(self.budget),
            },
            Phase::SlowStart | Phase::Recovery { .. } => self.window().saturating_sub(in_flight),
            Phase::Silent => (size * SILENT_WINDOW_PACKETS).saturating_sub(in_flight),
        }
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        self.pace
            .filter(|_| self.phase == Phase::Tracking && !self.refills)
    }

    #[inline]
    fn next_tick(&self) -> Option<Time> {
        self.epochs.end()
    }

    fn recovery(&self) -> Recovery {
        self.config.recovery
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let phase = match self.phase {
            Phase::SlowStart => 0.0,
            Phase::Tracking => 1.0,
            Phase::Recovery { .. } => 2.0,
            Phase::Silent => 3.0,
        };
        record("phase", phase);
        record("window_packets", self.window);
        record("delay_estimate_ms", self.estimate);
        record("delay_max_ms", self.delay.delay_max().unwrap_or(f64::NAN));
        record("delay_min_ms", self.minimum.get().unwrap_or(f64::NAN));
        record("restarts", self.restarts as f64);
    }

    fn profile(&self) -> Option<ProfileSnapshot> {
        Some(self.profile.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Path, SIZE};
    use proptest::prelude::*;

    fn path(config: Config) -> Path<Verus> {
        Path::new(Verus::new(config, 1).expect("in range"))
    }

    fn probe(path: &Path<Verus>, name: &str) -> f64 {
        let mut found = None;
        path.controller.probe(&mut |other, value| {
            if other == name {
                found = Some(value);
            }
        });
        found.unwrap_or_else(|| panic!("no probe {name}"))
    }

    fn window(path: &Path<Verus>) -> f64 {
        probe(path, "window_packets")
    }

    /// In slow start with a window of 20: packets 0 to 30 left under smaller windows, 31 to 38
    /// under that one; 0 to 18 are acknowledged.
    fn slow_start_at_20(config: Config) -> Path<Verus> {
        let mut path = path(config);
        for _ in 0..4 {
            path.fill();
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
        path.fill();
        assert_eq!(window(&path), 16.0);
        path.wait_ms(40);
        path.ack(15..=18);
        path.fill();
        assert_eq!(window(&path), 20.0);
        assert_eq!(path.in_flight_numbers().last(), Some(&38));
        path
    }

    /// The same after packet 31 is lost: W = 0.7 · 20 = 14.
    fn recovering_at_14(config: Config) -> Path<Verus> {
        let mut path = slow_start_at_20(config);
        path.wait_ms(40);
        path.ack(19..=30);
        path.feedback([32], [31], []);
        assert!((window(&path) - 14.0).abs() < 1e-9);
        assert!(matches!(path.controller.phase, Phase::Recovery { .. }));
        path
    }

    /// The same after recovery ended.
    fn tracking(config: Config) -> Path<Verus> {
        let mut path = recovering_at_14(config);
        path.fill();
        path.wait_ms(40);
        path.ack(33..=39);
        assert_eq!(path.controller.phase, Phase::Tracking);
        path
    }

    #[test]
    fn slow_start_adds_a_packet_for_each_acknowledgement() {
        slow_start_at_20(Config::preset(Mode::Paper));
    }

    #[test]
    fn a_loss_cuts_the_window_of_the_lost_packet_not_todays() {
        // Eq. 6: the window is 33 when the loss shows, and was 20 when the packet left.
        for mode in [Mode::Paper, Mode::Robust] {
            recovering_at_14(Config::preset(mode));
        }
    }

    #[test]
    fn recovery_grows_by_one_over_w_and_ends_with_an_acknowledgement_of_a_window_no_larger() {
        let mut path = recovering_at_14(Config::preset(Mode::Paper));
        path.fill();
        path.wait_ms(40);
        path.ack([33]); // left under 20
        assert!(matches!(path.controller.phase, Phase::Recovery { .. }));
        let grown = 14.0 + 1.0 / 14.0;
        assert!((window(&path) - grown).abs() < 1e-9);
        path.ack([39]); // left under 14
        assert_eq!(path.controller.phase, Phase::Tracking);
        assert!((window(&path) - grown).abs() < 1e-9);
    }

    #[test]
    fn the_profile_is_frozen_in_recovery() {
        let mut path = recovering_at_14(Config::preset(Mode::Paper));
        let before = path.controller.profile();
        path.fill();
        path.wait_ms(1500);
        path.ack([33]);
        path.tick();
        assert!(matches!(path.controller.phase, Phase::Recovery { .. }));
        assert_eq!(path.controller.profile(), before);
    }

    #[test]
    fn losses_of_one_episode_cut_once() {
        let mut path = recovering_at_14(Config::preset(Mode::Robust));
        path.feedback([], [33, 34], []);
        assert!((window(&path) - 14.0).abs() < 1e-9);
    }

    #[test]
    fn a_cut_is_undone_once_all_that_was_lost_has_arrived() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.fill();
        let before = window(&path);
        path.feedback([], [40, 41], []);
        assert!(window(&path) < before);
        path.feedback([], [], [40]);
        assert!(window(&path) < before);
        path.feedback([], [], [41]);
        assert_eq!(window(&path), before);
        assert_eq!(path.controller.phase, Phase::Tracking);
    }

    #[test]
    fn slow_start_ends_above_n_times_the_least_delay() {
        // N = 15 and D_min = 40 ms: 600 ms is not above, 601 is; the window that brought it was 4.
        let mut path = path(Config::preset(Mode::Paper));
        for wait_ms in [40, 600] {
            path.fill();
            path.wait_ms(wait_ms);
            let all = path.in_flight_numbers();
            path.ack(all);
            assert_eq!(path.controller.phase, Phase::SlowStart);
        }
        path.fill();
        assert_eq!(window(&path), 4.0);
        path.wait_ms(601);
        let first = path.in_flight_numbers()[0];
        path.ack([first]);
        assert!(matches!(path.controller.phase, Phase::Recovery { .. }));
        // 0.7 · 4, and 1/W more for the acknowledgement itself.
        assert!((window(&path) - (2.8 + 1.0 / 2.8)).abs() < 1e-9);
        assert!(path.controller.next_tick().is_some(), "epochs begin");
    }

    #[test]
    fn the_prototype_leaves_slow_start_at_half_a_second() {
        let mut path = path(Config::preset(Mode::Prototype));
        path.fill();
        path.wait_ms(500);
        path.ack([0]);
        assert_eq!(path.controller.phase, Phase::SlowStart);
        path.fill();
        path.wait_ms(501);
        path.ack([1]);
        assert!(matches!(path.controller.phase, Phase::Recovery { .. }));
    }

    #[test]
    fn the_prototype_restarts_when_its_curve_cannot_be_inverted() {
        // Every window charted at 40 ms: nothing brings the 42 ms that the first epoch asks for.
        let mut path = path(Config::preset(Mode::Prototype));
        while window(&path) < 30.0 {
            path.send(1);
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
        path.send(2);
        path.wait_ms(40);
        let all = path.in_flight_numbers();
        path.feedback([all[1]], [all[0]], []);
        assert!(matches!(path.controller.phase, Phase::Recovery { .. }));
        for _ in 0..4 {
            path.wait_ms(5);
            path.tick();
        }
        assert_eq!(probe(&path, "restarts"), 1.0);
        assert_eq!(path.controller.phase, Phase::SlowStart);
        assert_eq!(window(&path), 1.0);
        assert_eq!(path.controller.next_tick(), None);
    }

    #[test]
    fn a_window_is_refilled_all_through_an_epoch_that_is_longer_than_a_round_trip() {
        for (mode, round_trip_ms, refilled) in [
            (Mode::Robust, 1, true),
            (Mode::Robust, 20, false),
            (Mode::Paper, 1, false),
        ] {
            let mut path = path(Config::preset(mode));
            let go_round = |path: &mut Path<Verus>| {
                path.wait_ms(round_trip_ms);
                let all = path.in_flight_numbers();
                path.ack(all);
                path.fill();
            };
            for _ in 0..6 {
                go_round(&mut path);
            }
            path.fill();
            path.wait_ms(round_trip_ms);
            let all = path.in_flight_numbers();
            path.feedback(all[1..].iter().copied(), [all[0]], []);
            path.fill();
            go_round(&mut path);
            assert_eq!(path.controller.phase, Phase::Tracking);
            path.now = path.controller.next_tick().expect("epochs run");
            path.tick();
            path.fill();
            let tick = path.controller.next_tick();
            go_round(&mut path);
            go_round(&mut path);
            let full = (path.in_flight().get() / SIZE.get()) as f64 > window(&path) - 1.0;
            assert_eq!(full, refilled, "{mode:?}, {round_trip_ms} ms");
            assert_eq!(path.controller.next_tick(), tick, "it is the same epoch");
        }
    }

    #[test]
    fn a_profile_that_was_forgotten_in_an_outage_is_no_reason_to_begin_again() {
        let mut path = tracking(Config::preset(Mode::Robust));
        let all = path.in_flight_numbers();
        path.ack(all);
        let before = window(&path);
        for _ in 0..3 {
            path.wait_ms(60_000);
            path.tick();
        }
        let snapshot = path.controller.profile().expect("Verus has a profile");
        assert!(snapshot.points.is_empty(), "all points are forgotten");
        assert_eq!(probe(&path, "restarts"), 0.0);
        assert_eq!(path.controller.phase, Phase::Tracking);
        assert_eq!(probe(&path, "delay_min_ms"), 40.0);
        assert!(window(&path) <= before);
    }

    #[test]
    fn a_timeout_cuts_to_a_trickle_and_a_late_acknowledgement_undoes_it() {
        let mut path = tracking(Config::preset(Mode::Robust));
        let before = window(&path);
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.phase, Phase::Silent);
        assert!(window(&path) < before);
        assert_eq!(
            path.controller.sendable(Bytes::ZERO),
            SIZE * SILENT_WINDOW_PACKETS
        );
        let late = path.lost_numbers()[0];
        path.feedback([], [], [late]);
        assert_eq!(window(&path), before);
        assert_eq!(path.controller.phase, Phase::Tracking);
    }

    #[test]
    fn a_timeout_that_was_real_leads_to_recovery() {
        let mut path = tracking(Config::preset(Mode::Robust));
        path.wait_ms(1000);
        path.time_out();
        path.fill();
        let sent = path.in_flight_numbers();
        assert_eq!(sent.len() as u64, SILENT_WINDOW_PACKETS);
        path.wait_ms(40);
        path.feedback([sent[0]], [], []);
        assert!(!matches!(
            path.controller.phase,
            Phase::Silent | Phase::SlowStart
        ));
    }

    #[test]
    fn the_prototypes_window_survives_a_timeout_which_makes_it_run_away() {
        let mut path = path(Config::preset(Mode::Prototype));
        while window(&path) < 20.0 {
            path.send(1);
            path.wait_ms(40);
            let all = path.in_flight_numbers();
            path.ack(all);
        }
        path.send(5);
        path.wait_ms(500);
        path.time_out();
        assert_eq!(window(&path), 20.0);
        assert_eq!(path.controller.own.in_flight, 0);
    }

    #[test]
    fn a_tick_however_late_closes_all_epochs_at_once() {
        let hour = Duration::from_secs(3600);
        for late in [Duration::ZERO, hour, hour * 24 * 365 * 100] {
            for mode in [Mode::Robust, Mode::Paper] {
                let mut path = tracking(Config::preset(mode));
                let due = path.controller.next_tick().expect("epochs run");
                path.now = due + late;
                path.tick();
                let next = path.controller.next_tick().expect("epochs run");
                assert!(next > path.now && next <= path.now + path.controller.config.epoch);
                let window = window(&path);
                assert!(window.is_finite() && window >= 1.0);
            }
        }
    }

    fn modes() -> impl Strategy<Value = Config> {
        let modes = prop::sample::select(vec![Mode::Robust, Mode::Paper, Mode::Prototype]);
        (modes, 1.1f64..8.0).prop_map(|(mode, ratio)| Config {
            ratio,
            ..Config::preset(mode)
        })
    }

    proptest! {
        #[test]
        fn whatever_happens_verus_stays_sound_and_repeats(
            config in modes(),
            steps in testing::steps(),
        ) {
            let history = || {
                let mut path = path(config.clone());
                let mut history = Vec::new();
                testing::run(&mut path, &steps, |path| {
                    let window = probe(path, "window_packets");
                    assert!(window.is_finite() && window >= 1.0, "W = {window}");
                    let most = profile::LARGEST_WINDOW as f64 + 2e4;
                    assert!(window <= most, "W = {window}");
                    let estimate = probe(path, "delay_estimate_ms");
                    assert!(estimate.is_finite() && estimate >= 0.0, "D_est = {estimate}");
                    if let Some(tick) = path.controller.next_tick() {
                        assert!(tick > path.now, "the next tick is not ahead");
                    }
                    path.controller.probe(&mut |name, value| {
                        assert!(!value.is_infinite(), "{name} is {value}");
                    });
                    history.push((window, estimate, path.controller.sendable(path.in_flight())));
                });
                history
            };
            let first = history();
            prop_assert_eq!(first, history());
        }
    }
}
