//! Verus's parameters, and the three modes as presets of them.
//!
//! The paper leaves gaps, and its authors' released prototype fills them, sometimes against the
//! text. Each such difference is a field here, so a mode is a preset and every field can be set
//! separately. The additions of the default mode are a list of [parts](super::parts). Behaviour
//! that only the prototype has is not a field here but a separate [controller](super::prototype).

use verus_core::controller::Departure;
use verus_core::recovery::{LossRule, Recovery, TimeoutBase, TimeoutRule};
use verus_core::units::{Bytes, Duration};
use verus_words::range::OutOfRange;

use super::parts::capacity::Capacity;
use super::parts::departures::Departures;
use super::parts::drains::Drains;
use super::parts::losses::Losses;
use super::parts::outages::Outages;
use super::parts::parts;
use super::profile::Fit;

/// A preset of Verus's configuration and of its sender's recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The default: the paper's loop with a monotone profile that forgets, an earlier end of slow start, and a list of
    /// [parts](super::parts).
    #[default]
    Robust,
    /// The text of the paper, with the smallest sensible completion of its holes.
    Paper,
    /// The behaviour of the authors' released code (commit 4995aba), its behavioural hazards included. R stays 2, as in
    /// the header of some of its versions; others have 6.
    Prototype,
}

/// W_i, the term of Eq. 5 for the packets already in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowReference {
    /// The current sending window (the text below Eq. 5).
    CurrentWindow,
    /// The packets in flight (the prototype): an epoch that sent too much or too little is corrected by the next.
    InFlight,
}

/// The window that is kept with a packet and that the profile pairs with the packet's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartedWindow {
    /// The packets in flight when it left, itself included (§4: "W_i, i.e. number of packets in
    /// flight").
    InFlight,
    /// The target window when it left (the prototype).
    Target,
}

impl ChartedWindow {
    /// The window of this kind that `packet` left under.
    #[inline]
    pub fn of(self, packet: &Departure) -> Bytes {
        match self {
            ChartedWindow::InFlight => packet.in_flight,
            ChartedWindow::Target => packet.window,
        }
    }
}

/// ΔD of Eq. 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayChange {
    /// The difference of two averages (Eq. 3).
    Averaged,
    /// The epoch's raw maximum minus the average before it (the prototype).
    Raw,
}

/// D_max of an epoch in which nothing was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentEpoch {
    /// D_max stays unchanged.
    Hold,
    /// The time since the last acknowledgement, once that exceeds the average.
    SinceLastAck,
}

/// When slow start ends, short of a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowStartExit {
    /// A delay above N × D_min (§5.1, N = 15).
    Multiple(f64),
    /// An absolute delay (the prototype: 500 ms).
    Delay(Duration),
}

impl SlowStartExit {
    /// Whether `delay` ends slow start; D_min is `d_min`, where it is known.
    pub fn is_exceeded(self, delay: Duration, d_min: Option<Duration>) -> bool {
        match self {
            SlowStartExit::Multiple(n) => {
                d_min.is_some_and(|least| delay.as_millis_f64() > n * least.as_millis_f64())
            }
            SlowStartExit::Delay(limit) => delay > limit,
        }
    }
}

/// A configuration of Verus. Every field can be set by itself; [`Config::preset`] gives the modes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The preset that this configuration began as.
    pub mode: Mode,
    /// R: the largest D_max/D_min that is tolerated (§4; 2 from Table 1 on, 2, 4 and 6 in Figs. 9 and 10).
    pub ratio: f64,
    /// ε: the time between window decisions (§5.3: 5 ms).
    pub epoch: Duration,
    /// δ₁: how far D_est falls when delay rises, in ms (§5.3: 1).
    pub decrement_ms: f64,
    /// δ₂: how far D_est rises, and falls above R, in ms (§5.3: 2).
    pub increment_ms: f64,
    /// α: the weight of history in D_max (Eq. 2; the paper: 0 < α ≤ 1, no
    /// value, and at 1 D_max would never move; the prototype has 0.2).
    pub history_weight: f64,
    /// M: the multiplicative decrease (Eq. 6; no value in the paper, the prototype has 0.7).
    pub decrease_factor: f64,
    /// When slow start ends, short of a loss.
    pub slow_start_exit: SlowStartExit,
    /// How often the profile is fitted again (§5.3: 1 s).
    pub update_interval: Duration,
    /// Weight of history in a point of the profile (the prototype: 0.875).
    pub point_weight: f64,
    /// Half-life of the weight of a point that gets no new samples; `None`: points keep their weight (the paper).
    pub point_memory: Option<Duration>,
    /// How the points become a curve.
    pub fit: Fit,
    /// W_i of Eq. 5.
    pub window_reference: WindowReference,
    /// The window that is charted against a packet's delay.
    pub charted_window: ChartedWindow,
    /// ΔD of Eq. 3.
    pub delay_change: DelayChange,
    /// A ΔD up to this many ms is no rise (the prototype: 10⁻⁴).
    pub change_threshold_ms: f64,
    /// Whether case 1 of Eq. 4 stops at D_min too.
    pub floor: bool,
    /// D_max of an epoch without acknowledgements.
    pub silent_epoch: SilentEpoch,
    /// D_min, given rather than measured: for research into the effect of a wrong D_min.
    pub told_d_min: Option<Duration>,
    /// Whether a cut is taken back once all that was declared lost has arrived after all.
    pub undo: bool,
    /// How the sender detects losses and timeouts.
    pub recovery: Recovery,
    /// The default mode's parts that are left out, for research.
    pub without: Vec<&'static str>,
}

impl Default for Config {
    fn default() -> Self {
        Config::preset(Mode::Robust)
    }
}

parts! {
    /// The additions of the default mode, in the order in which they bound the window, each with
    /// its fields. Without a part, its fields follow the paper. The mode's readings of the paper
    /// are keys.
    capacity: Capacity {},
    drains: Drains {},
    losses: Losses { undo, recovery.loss },
    outages: Outages { silent_epoch, recovery.timeout.max, recovery.probe_with_new_data },
    departures: Departures {},
}

impl Config {
    /// The configuration of a mode.
    pub fn preset(mode: Mode) -> Self {
        let paper = Config {
            mode: Mode::Paper,
            ratio: 2.0,
            epoch: Duration::from_millis(5),
            decrement_ms: 1.0,
            increment_ms: 2.0,
            history_weight: 0.2,
            decrease_factor: 0.7,
            slow_start_exit: SlowStartExit::Multiple(15.0),
            update_interval: Duration::from_secs(1),
            point_weight: 0.875,
            point_memory: None,
            fit: Fit::Interpolation,
            window_reference: WindowReference::CurrentWindow,
            charted_window: ChartedWindow::InFlight,
            delay_change: DelayChange::Averaged,
            change_threshold_ms: 0.0,
            floor: false,
            silent_epoch: SilentEpoch::Hold,
            told_d_min: None,
            undo: false,
            recovery: Recovery {
                // §5.2: "a timeout timer of 3 × delay" for every missing packet.
                loss: LossRule::DelayTimer { factor: 3.0 },
                // §4: "similar to TCP".
                timeout: Recovery::rack().timeout,
                retransmit: true,
                tail_probe: false,
                probe_with_new_data: false,
            },
            without: Vec::new(),
        };
        match mode {
            Mode::Paper => paper,
            Mode::Robust => Config {
                mode,
                fit: Fit::Monotone,
                point_memory: Some(Duration::from_secs(1)),
                window_reference: WindowReference::InFlight,
                slow_start_exit: SlowStartExit::Multiple(4.0),
                floor: true,
                silent_epoch: SilentEpoch::SinceLastAck,
                undo: true,
                recovery: Recovery {
                    // A missing packet counts as in flight, and enters the profile as part of a window that the path seems
                    // to hold. To wait for one delay risks little, since a cut is taken back.
                    loss: LossRule::DelayTimer { factor: 1.0 },
                    timeout: TimeoutRule {
                        max: Duration::from_secs(1),
                        ..paper.recovery.timeout
                    },
                    probe_with_new_data: true,
                    ..paper.recovery
                },
                ..paper
            },
            Mode::Prototype => Config {
                mode,
                slow_start_exit: SlowStartExit::Delay(Duration::from_millis(500)),
                fit: Fit::Penalised,
                window_reference: WindowReference::InFlight,
                charted_window: ChartedWindow::Target,
                delay_change: DelayChange::Raw,
                change_threshold_ms: 1e-4,
                floor: true,
                silent_epoch: SilentEpoch::SinceLastAck,
                recovery: Recovery {
                    loss: LossRule::FixedTimer {
                        after: Duration::from_millis(150),
                    },
                    timeout: TimeoutRule {
                        base: TimeoutBase::LastDelay { factor: 5.0 },
                        initial: Duration::from_secs(1),
                        min: Duration::from_millis(150),
                        max: Duration::from_secs(1),
                        backoff: false,
                    },
                    retransmit: false,
                    tail_probe: false,
                    probe_with_new_data: false,
                },
                ..paper
            },
        }
    }

    pub(super) fn validate_recovery(&self) -> Result<(), OutOfRange> {
        let delays = |field, factor: f64| {
            let expected = "between 0.1 and 1000";
            OutOfRange::unless((0.1..=1e3).contains(&factor), field, expected, factor)
        };
        let at_least = |field, least: f64, expected, time: Duration| {
            let ms = time.as_millis_f64();
            OutOfRange::unless(ms >= least, field, expected, ms)
        };
        match self.recovery.loss {
            LossRule::Rack => {}
            LossRule::DelayTimer { factor } => delays("loss_delays", factor)?,
            LossRule::FixedTimer { after } => {
                at_least("loss_timer_ms", 1.0, "at least 1 ms", after)?;
            }
        }
        let timeout = &self.recovery.timeout;
        if let TimeoutBase::LastDelay { factor } = timeout.base {
            delays("timeout_delays", factor)?;
        }
        // Timeouts without a least length could fire in an endless loop at one instant.
        at_least("timeout_initial_ms", 1.0, "at least 1 ms", timeout.initial)?;
        at_least("timeout_min_ms", 1.0, "at least 1 ms", timeout.min)?;
        let timeout_min_ms = timeout.min.as_millis_f64();
        at_least(
            "timeout_max_ms",
            timeout_min_ms,
            "at least timeout_min_ms",
            timeout.max,
        )
    }
}
