//! Verus's parameters, and the three modes as presets of them.
//!
//! The paper leaves holes and its authors' released prototype fills them, at times against the
//! text. Each difference is a field here, so a mode is only a preset and every field can be set
//! by itself.

use serde::{Deserialize, Serialize};

use crate::range::{OutOfRange, Range};
use crate::recovery::{LossRule, Recovery, TimeoutBase, TimeoutRule};
use crate::units::Duration;

/// A preset of Verus's configuration and of its sender's recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// What we ship: the paper's equations with a monotone profile, a timeout that cuts the window
    /// and backs off, late acknowledgements honoured, a D_min that can rise again, no restart.
    #[default]
    Robust,
    /// The text of the paper, with the smallest sensible completion of its holes.
    Paper,
    /// The behaviour of the authors' released code of 2017, its behavioural hazards included.
    Prototype,
}

/// How the points of the profile become a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// Natural cubic spline through every point (§5.1).
    Interpolation,
    /// Penalised regression spline (the prototype).
    Penalised,
    /// Isotonic regression joined by monotone cubics.
    Monotone,
}

/// W_i, the term of Eq. 5 that stands for what is already under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowReference {
    /// The current sending window (the text below Eq. 5).
    CurrentWindow,
    /// The packets in flight (the prototype): errors of past epochs correct themselves.
    InFlight,
}

/// The window that is kept with a packet and charted against its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartedWindow {
    /// The packets in flight when it left, itself included (§4: "W_i, i.e. number of packets in
    /// flight").
    InFlight,
    /// The target window when it left (the prototype).
    Target,
}

/// ΔD of Eq. 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DelayChange {
    /// The difference of two averages (Eq. 3).
    Averaged,
    /// The epoch's raw maximum minus the average before it (the prototype).
    Raw,
}

/// D_max of an epoch in which nothing was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SilentEpoch {
    /// Stays what it was.
    Hold,
    /// The time since the last acknowledgement, once that exceeds the average.
    SinceLastAck,
}

/// Where D_est lies above the whole curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AboveProfile {
    /// The curve goes on with its slope.
    Extrapolate,
    /// Slow start begins again (the prototype).
    Restart,
}

/// When slow start ends, short of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowStartExit {
    /// A delay above N × D_min (§5.1, N = 15).
    Multiple(f64),
    /// An absolute delay (the prototype: 500 ms).
    Delay(Duration),
}

/// What to do when D_est has reached D_min and the ratio is still above R.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtFloor {
    /// Nothing special.
    Continue,
    /// Send nothing this epoch; with fewer than two packets in flight raise D_min by 10 ms (the
    /// prototype).
    PauseOrRaise,
}

/// What D_min is the minimum of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelayMin {
    /// Every delay of the flow's life.
    Ever,
    /// Every delay, but able to rise again once the flow has kept its own queue empty and the
    /// path still answers more slowly; see `minimum.rs`.
    Rising,
}

/// A configuration of Verus. Every field can be set by itself; [`Config::preset`] gives the modes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The preset that this configuration began as.
    pub mode: Mode,
    /// R: the largest D_max/D_min that is tolerated (§4; 2 in Table 1, 2, 4, 6 elsewhere).
    pub ratio: f64,
    /// ε: the time between window decisions (§5.3: 5 ms).
    pub epoch: Duration,
    /// The share of an epoch by which its end is late at random where others use the path (`epochs.rs`).
    pub epoch_jitter: f64,
    /// δ₁: how far D_est falls when delay rises, in ms (§5.3: 1).
    pub decrement_ms: f64,
    /// δ₂: how far D_est rises, and falls above R, in ms (§5.3: 2).
    pub increment_ms: f64,
    /// α: the weight of history in D_max (Eq. 2; no value in the paper, the prototype has 0.2).
    pub history_weight: f64,
    /// M: the multiplicative decrease (Eq. 6; no value in the paper, the prototype has 0.7).
    pub decrease_factor: f64,
    /// When slow start ends, short of a loss.
    pub slow_start_exit: SlowStartExit,
    /// How often the profile is fitted again (§5.3: 1 s).
    pub update_interval: Duration,
    /// Weight of history in a point of the profile (the prototype: 0.875).
    pub point_weight: f64,
    /// How the points become a curve.
    pub fit: Fit,
    /// Whether the delivery rate of the last seconds bounds the curve and the window
    /// (`capacity.rs`).
    pub capacity_bounds: bool,
    /// Whether delays that include an outage are kept out of the profile, and epochs within one
    /// decide nothing: a silence longer than R · D_min is no queue of the flow's own.
    pub skip_stalls: bool,
    /// How long a point keeps half its weight without news; `None`: for ever.
    pub point_memory: Option<Duration>,
    /// W_i of Eq. 5.
    pub window_reference: WindowReference,
    /// What is charted against a packet's delay.
    pub charted_window: ChartedWindow,
    /// ΔD of Eq. 3.
    pub delay_change: DelayChange,
    /// A ΔD up to this many ms is no rise (the prototype: 10⁻⁴).
    pub change_threshold_ms: f64,
    /// Whether case 1 of Eq. 4 stops at D_min too.
    pub floor: bool,
    /// What happens at that floor.
    pub at_floor: AtFloor,
    /// D_max of an epoch without acknowledgements.
    pub silent_epoch: SilentEpoch,
    /// Where D_est lies above the curve.
    pub above_profile: AboveProfile,
    /// Whether windows and budgets are cut to whole packets (the prototype) rather than carried
    /// over.
    pub whole_windows: bool,
    /// How fast a flow alone on its path may return to where a loss met it: packets per ms of rate,
    /// regained in each second (`loss.rs`). `None`: no limit.
    pub regrowth: Option<f64>,
    /// Packets that a window has beyond what the curve gives for D_est. A flow's curve is its own: δ₂ ms
    /// are worth more packets to who has more, both up and down, and shares would never even out. A
    /// constant on top lets them (Chiu and Jain 1989): the curves then chart the longer delay, which takes
    /// most from who has most.
    pub additive_increase: f64,
    /// Whether the window is kept full all through an epoch where a round trip is no longer than one (n = 1 in
    /// Eq. 5), rather than filled once as it begins: a round trip of 50 µs leaves the path idle for the other
    /// 99 in a hundred of 5 ms.
    pub refill: bool,
    /// Whether an epoch's budget is spread over the epoch, where it is more than a burst of 32
    /// packets, rather than sent at once.
    pub pacing: bool,
    /// D_min.
    pub delay_min: DelayMin,
    /// Shorter delays count as this one in D_min, in ms: what changes within an epoch, such as how
    /// promptly an end is scheduled, is no queue that a decision each epoch could steer.
    pub least_delay_ms: f64,
    /// Whether epochs go on deciding during recovery (the prototype); otherwise W grows by 1/W
    /// with each acknowledgement alone (§4).
    pub epochs_in_recovery: bool,
    /// Whether the flow believes nothing to be in flight after a timeout and ignores what arrives
    /// late (the prototype); otherwise the window is cut and late acknowledgements undo it.
    pub forgets_at_timeout: bool,
    /// How the sender tells loss and silence.
    pub recovery: Recovery,
}

impl Default for Config {
    fn default() -> Self {
        Config::preset(Mode::Robust)
    }
}

impl Config {
    /// The configuration of a mode.
    pub fn preset(mode: Mode) -> Self {
        let paper = Config {
            mode: Mode::Paper,
            ratio: 2.0,
            epoch: Duration::from_millis(5),
            epoch_jitter: 0.0,
            decrement_ms: 1.0,
            increment_ms: 2.0,
            history_weight: 0.2,
            decrease_factor: 0.7,
            slow_start_exit: SlowStartExit::Multiple(15.0),
            update_interval: Duration::from_secs(1),
            point_weight: 0.875,
            fit: Fit::Interpolation,
            capacity_bounds: false,
            skip_stalls: false,
            point_memory: None,
            window_reference: WindowReference::CurrentWindow,
            charted_window: ChartedWindow::InFlight,
            delay_change: DelayChange::Averaged,
            change_threshold_ms: 0.0,
            floor: false,
            at_floor: AtFloor::Continue,
            silent_epoch: SilentEpoch::Hold,
            above_profile: AboveProfile::Extrapolate,
            whole_windows: false,
            regrowth: None,
            additive_increase: 0.0,
            least_delay_ms: 0.0,
            refill: false,
            pacing: false,
            delay_min: DelayMin::Ever,
            epochs_in_recovery: false,
            forgets_at_timeout: false,
            recovery: Recovery {
                // §5.2: "a timeout timer of 3 × delay" for every missing packet.
                loss: LossRule::DelayTimer { factor: 3.0 },
                // §5.2: "similar to TCP".
                timeout: TimeoutRule {
                    base: TimeoutBase::Smoothed,
                    initial: Duration::from_secs(1),
                    min: Duration::from_millis(200),
                    max: Duration::from_secs(60),
                    backoff: true,
                },
                retransmit: true,
                tail_probe: false,
                probe_with_new_data: false,
            },
        };
        match mode {
            Mode::Paper => paper,
            Mode::Robust => Config {
                mode,
                fit: Fit::Monotone,
                capacity_bounds: true,
                skip_stalls: true,
                point_memory: Some(Duration::from_secs(1)),
                window_reference: WindowReference::InFlight,
                floor: true,
                silent_epoch: SilentEpoch::SinceLastAck,
                slow_start_exit: SlowStartExit::Multiple(4.0),
                // As NewReno does at a round trip of 58 ms.
                regrowth: Some(0.3),
                epoch_jitter: 0.9,
                additive_increase: 2.0,
                least_delay_ms: 5.0,
                refill: true,
                pacing: true,
                delay_min: DelayMin::Rising,
                recovery: Recovery {
                    // What is lost and not yet known to be counts as under way, and is charted as part of
                    // a window that the path seems to hold. To wait for three delays doubles the losses at
                    // a full queue; to wait for one risks little, since a cut for nothing is undone.
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
                at_floor: AtFloor::PauseOrRaise,
                silent_epoch: SilentEpoch::SinceLastAck,
                above_profile: AboveProfile::Restart,
                whole_windows: true,
                epochs_in_recovery: true,
                forgets_at_timeout: true,
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

    /// Checks every field's range.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn validate(&self) -> Result<(), OutOfRange> {
        let verus = Range("verus");
        let step = |field, ms: f64| {
            verus.check(
                ms > 0.0 && ms <= 1e3,
                field,
                "above 0 and at most 1000 ms",
                ms,
            )
        };
        let weight = |field, share: f64| {
            verus.check(
                (0.0..1.0).contains(&share),
                field,
                "at least 0 and below 1",
                share,
            )
        };
        let epoch = self.epoch.as_millis_f64();
        let update = self.update_interval.as_millis_f64();
        let threshold = self.change_threshold_ms;
        verus.check(
            self.ratio > 1.0 && self.ratio <= 1e6,
            "ratio",
            "above 1",
            self.ratio,
        )?;
        verus.check(
            (0.1..=1e3).contains(&epoch),
            "epoch_ms",
            "between 0.1 and 1000",
            epoch,
        )?;
        weight("epoch_jitter", self.epoch_jitter)?;
        step("decrement_ms", self.decrement_ms)?;
        step("increment_ms", self.increment_ms)?;
        weight("history_weight", self.history_weight)?;
        weight("point_weight", self.point_weight)?;
        verus.share("decrease_factor", self.decrease_factor)?;
        let interval = "between an epoch and an hour";
        verus.check(
            (epoch..=3.6e6).contains(&update),
            "update_interval_ms",
            interval,
            update,
        )?;
        let rise = "at least 0 and at most 1000 ms";
        verus.check(
            (0.0..=1e3).contains(&threshold),
            "change_threshold_ms",
            rise,
            threshold,
        )?;
        let least = self.least_delay_ms;
        verus.check((0.0..=1e3).contains(&least), "least_delay_ms", rise, least)?;
        let regrowth = self.regrowth.unwrap_or_default();
        verus.check(
            (0.0..=1e6).contains(&regrowth),
            "regrowth",
            "at least 0 and at most a million packets/ms",
            regrowth,
        )?;
        let more = self.additive_increase;
        verus.check(
            (0.0..=1e3).contains(&more),
            "additive_increase",
            "at least 0 and at most 1000 packets",
            more,
        )?;
        if let LossRule::DelayTimer { factor } = self.recovery.loss {
            verus.check(
                (0.1..=1e3).contains(&factor),
                "loss_delays",
                "between 0.1 and 1000",
                factor,
            )?;
        }
        match self.slow_start_exit {
            SlowStartExit::Multiple(n) => {
                verus.check(n > 1.0 && n <= 1e6, "exit_multiple", "above 1", n)
            }
            SlowStartExit::Delay(delay) => {
                let delay = delay.as_millis_f64();
                verus.check(delay > 0.0, "exit_delay_ms", "above 0", delay)
            }
        }
    }
}
