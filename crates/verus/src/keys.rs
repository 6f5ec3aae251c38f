//! Verus's keys.

use super::config::{
    ChartedWindow, Config, DelayChange, Mode, Parts, SilentEpoch, SlowStartExit, WindowReference,
};
use super::profile::Fit;
use super::{Prototype, Verus};
use verus_core::configuration::Configured;
use verus_core::controller::Controller;
use verus_core::recovery::{LossRule, TimeoutBase};
use verus_core::units::Duration;
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, SHARE, Within};
use verus_words::spec::{Field, Row, Takes, Words, field, time, word_for, words};

const MODES: Words<Mode> = &[
    ("robust", Mode::Robust),
    ("paper", Mode::Paper),
    ("prototype", Mode::Prototype),
];
const FITS: Words<Fit> = &[
    ("monotone", Fit::Monotone),
    ("penalised", Fit::Penalised),
    ("interpolation", Fit::Interpolation),
];
const WINDOW_REFERENCES: Words<WindowReference> = &[
    ("in_flight", WindowReference::InFlight),
    ("current_window", WindowReference::CurrentWindow),
];
const CHARTED_WINDOWS: Words<ChartedWindow> = &[
    ("in_flight", ChartedWindow::InFlight),
    ("target", ChartedWindow::Target),
];
const DELAY_CHANGES: Words<DelayChange> = &[
    ("averaged", DelayChange::Averaged),
    ("raw", DelayChange::Raw),
];
const SILENT_EPOCHS: Words<SilentEpoch> = &[
    ("hold", SilentEpoch::Hold),
    ("since_last_ack", SilentEpoch::SinceLastAck),
];

const RATIO: Within = Within {
    words: "above 1 and at most 1000000",
    valid: |ratio| ratio > 1.0 && ratio <= 1e6,
};
const STEP: Within = Within {
    words: "above 0 and at most 1000 ms",
    valid: |ms| ms > 0.0 && ms <= 1e3,
};
const WEIGHT: Within = Within {
    words: "at least 0 and below 1",
    valid: |weight| (0.0..1.0).contains(&weight),
};
const DELAY: Within = Within {
    words: "at least 0 and at most 1000 ms",
    valid: |ms| (0.0..=1e3).contains(&ms),
};
/// The parts' names, as words.
const NAMES: Words<()> = &{
    let mut names = [("", ()); Parts::NAMES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at].0 = Parts::NAMES[at];
        at += 1;
    }
    names
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        field!(ratio).within("", "R, the largest D_max/D_min tolerated (Eq. 4)", RATIO),
        Row::<Config>::other(
            "mode",
            || Takes::one_of(MODES),
            "preset of everything below and of loss recovery",
            |c| word_for(MODES, &c.mode),
            |c, setting| setting.word(MODES).map(|mode| *c = Config::preset(mode)),
        )
        .first(),
        time!(epoch, "epoch_ms").millis("ε, the time between decisions (§5.3)"),
        field!(decrement_ms).within("ms", "δ₁, how far D_est falls when delay rises (Eq. 4)", STEP),
        field!(increment_ms).within("ms", "δ₂, how far D_est rises, and falls above R (Eq. 4)", STEP),
        field!(history_weight).within("", "α, the weight of history in D_max (Eq. 2)", WEIGHT),
        field!(decrease_factor).within("", "M, the multiplicative decrease (Eq. 6)", SHARE),
        Row::other(
            "exit_multiple",
            || Takes::Number(""),
            "N, slow start ends above N × D_min (§5.1; paper mode: 15)",
            |c| match c.slow_start_exit {
                SlowStartExit::Multiple(n) => n.to_string(),
                SlowStartExit::Delay(_) => "none".to_owned(),
            },
            |c, setting| {
                c.slow_start_exit = SlowStartExit::Multiple(setting.number()?);
                Ok(())
            },
        ),
        Row::other(
            "exit_delay_ms",
            || Takes::Number("ms"),
            "slow start ends above this delay instead (prototype mode: 500)",
            |c| match c.slow_start_exit {
                SlowStartExit::Multiple(_) => "none".to_owned(),
                SlowStartExit::Delay(delay) => delay.as_millis_f64().to_string(),
            },
            |c, setting| {
                c.slow_start_exit = SlowStartExit::Delay(setting.millis()?);
                Ok(())
            },
        ),
        time!(update_interval, "update_interval_ms").millis("how often the profile is fitted (§5.3)"),
        words!(fit, FITS, "how the points become a curve (§5.1)"),
        field!(point_weight).within("", "weight of history in a point of the profile", WEIGHT),
        Field::new("point_memory_ms", |c: &Self| c.point_memory.unwrap_or(Duration::ZERO).into(), |c, v: std::time::Duration| c.point_memory = (!v.is_zero()).then_some(v.into())).millis("age at which a point has lost half its weight; 0: never"),
        words!(window_reference, WINDOW_REFERENCES, "W_i of Eq. 5"),
        words!(charted_window, CHARTED_WINDOWS, "the window that a delay is charted against"),
        words!(delay_change, DELAY_CHANGES, "ΔD (Eq. 3)"),
        field!(change_threshold_ms).within("ms", "a smaller ΔD is no rise", DELAY),
        field!(floor).flag("whether case 1 of Eq. 4 stops at D_min"),
        words!(silent_epoch, SILENT_EPOCHS, "D_max of an epoch without ACKs"),
        Row::other(
            "loss_delays",
            || Takes::Number(""),
            "a packet is declared lost this many delays after it is first missed (§5.2 and paper mode: 3)",
            |c| match c.recovery.loss {
                LossRule::DelayTimer { factor } => factor.to_string(),
                LossRule::Rack | LossRule::FixedTimer { .. } => "none".to_owned(),
            },
            |c, setting| {
                let factor = setting.number()?;
                c.recovery.loss = LossRule::DelayTimer { factor };
                Ok(())
            },
        ),
        Row::other(
            "loss_timer_ms",
            || Takes::Number("ms"),
            "a packet is declared lost this long after it is first missed, instead (prototype mode: 150)",
            |c| match c.recovery.loss {
                LossRule::FixedTimer { after } => after.as_millis_f64().to_string(),
                LossRule::Rack | LossRule::DelayTimer { .. } => "none".to_owned(),
            },
            |c, setting| {
                let after = setting.millis()?;
                c.recovery.loss = LossRule::FixedTimer { after };
                Ok(())
            },
        ),
        Field::new("timeout_delays", |c: &Self| match c.recovery.timeout.base {
                TimeoutBase::Smoothed => 0.0,
                TimeoutBase::LastDelay { factor } => factor,
            }, |c, v| {
                c.recovery.timeout.base = if v == 0.0 {
                    TimeoutBase::Smoothed
                } else {
                    TimeoutBase::LastDelay { factor: v }
                };
            }).number("", "timeout as a multiple of the last delay (prototype mode: 5); 0: smoothed RTT + 4 × its deviation (RFC 6298)"),
        time!(recovery.timeout.initial, "timeout_initial_ms").millis("the timeout before the first delay is known"),
        time!(recovery.timeout.min, "timeout_min_ms").millis("the timeout is never shorter"),
        time!(recovery.timeout.max, "timeout_max_ms").millis("the timeout is never longer, however often it has doubled"),
        field!(recovery.timeout.backoff, "timeout_backoff").flag("whether each timeout in a row doubles the next (RFC 6298 §5.5)"),
        field!(recovery.tail_probe).flag("whether the end of a flight is probed before the timeout (RFC 8985 §7)"),
        field!(recovery.probe_with_new_data, "new_data_first").flag("whether new data leaves before lost data between a timeout and the next ACK (as F-RTO, RFC 5682)"),
        field!(undo).flag("whether a cut is undone once all that was declared lost has arrived after all"),
        field!(recovery.retransmit).flag("whether lost data is sent again"),
        Field::new("told_delay_min_ms", |c: &Self| c.told_d_min.unwrap_or_default().into(), |c, v: std::time::Duration| c.told_d_min = (!v.is_zero()).then_some(v.into())).millis("D_min, told rather than learned, for research (not in prototype mode); 0: learned"),
        Row::other(
            "without",
            || Takes::none_or(NAMES),
            "leaves a part of the default mode out, for research; several are joined by +",
            |_| "none".to_owned(),
            |c, setting| {
                if setting.text() == "none" {
                    return Ok(());
                }
                if c.mode != Mode::Robust {
                    return Err(setting.bad("left out, or none, in every mode but robust"));
                }
                for name in setting.text().split('+') {
                    if !Parts::leave_out(c, name) {
                        return setting.word(NAMES);
                    }
                }
                Ok(())
            },
        ),
    ];

    fn together(&self) -> Result<(), OutOfRange> {
        let epoch = self.epoch.as_millis_f64();
        let update = self.update_interval.as_millis_f64();
        OutOfRange::unless(
            (0.1..=1e3).contains(&epoch),
            "epoch_ms",
            "between 0.1 and 1000",
            epoch,
        )?;
        OutOfRange::unless(
            (epoch..=3.6e6).contains(&update),
            "update_interval_ms",
            "between an epoch and an hour",
            update,
        )?;
        self.validate_recovery()?;
        match self.slow_start_exit {
            SlowStartExit::Multiple(n) => {
                OutOfRange::unless((RATIO.valid)(n), "exit_multiple", RATIO.words, n)
            }
            SlowStartExit::Delay(delay) => {
                let delay = delay.as_millis_f64();
                OutOfRange::unless(delay > 0.0, "exit_delay_ms", "above 0", delay)
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|error| error.to_string())?;
        if self.mode == Mode::Prototype
            && (self.told_d_min.is_some() || self.point_memory.is_some())
        {
            return Err(
                "verus: prototype mode takes no told D_min, and nothing of the default mode"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        let mode = match self.mode {
            Mode::Robust => "",
            Mode::Paper => " paper",
            Mode::Prototype => " prototype",
        };
        (format!("Verus R={}{mode}", self.ratio), &["ratio", "mode"])
    }

    fn build(&self, seed: u64) -> Box<dyn Controller> {
        let config = self.clone();
        match self.mode {
            Mode::Prototype => Box::new(Prototype::new(config).expect(CHECKED)),
            Mode::Paper | Mode::Robust => Box::new(Verus::new(config, seed).expect(CHECKED)),
        }
    }

    /// Its work depends on time, not on packets: a decision in each epoch, a curve in each
    /// interval. Together its keys make it send and keep several times as much as by default
    /// (`cargo bench -p verus-probe --bench strangers`).
    fn extra_cost(&self, sends: bool) -> Option<String> {
        let allowed = if self.mode == Mode::Paper { 3.0 } else { 6.0 };
        let usual = Config {
            ratio: self.ratio,
            ..Config::preset(self.mode)
        };
        if !sends {
            None
        } else if self.ratio > allowed {
            Some(format!("a ratio of more than {allowed} is more work"))
        } else {
            (*self != usual).then(|| {
                "every key of verus but mode and ratio is for research, and may be more work"
                    .to_owned()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_words::spec::{Given, shown};

    /// The keys that make `config`, as a user would write them, except for the mode itself.
    fn written(config: &Config) -> String {
        let keys = shown(Config::ROWS, config);
        let settable = keys
            .iter()
            .filter(|key| key.key != "mode" && key.default != "none");
        let pairs: Vec<_> = settable
            .map(|key| format!("{}={}", key.key, key.default))
            .collect();
        format!("verus:{}", pairs.join(","))
    }

    #[test]
    fn a_part_of_the_default_mode_is_left_out_of_no_other() {
        let read = |text: &str| {
            let mut config = Config::default();
            let keys = Given::parse(text).expect("well-formed");
            let applied = keys.apply(Config::ROWS, &mut config);
            applied.map_err(|problem| problem.to_string())
        };
        for (mode, _) in &MODES[1..] {
            let words = "without must be left out, or none, in every mode but robust, not `drains`";
            assert_eq!(
                read(&format!("verus:without=drains,mode={mode}")),
                Err(words.to_owned())
            );
            assert_eq!(read(&format!("verus:without=none,mode={mode}")), Ok(()));
        }
        assert_eq!(read("verus:without=drains"), Ok(()));
        assert_eq!(read("verus:without=drains+losses"), Ok(()));
        assert!(read("verus:without=drains+roof").is_err());
    }

    #[test]
    fn every_field_that_a_mode_sets_can_be_set_by_a_key() {
        for (from, start) in MODES {
            for (to, goal) in MODES {
                let goal = Config::preset(*goal);
                let text = written(&goal);
                let mut config = Config::preset(*start);
                let keys = Given::parse(&text).expect("well-formed");
                keys.apply(Config::ROWS, &mut config).expect("known keys");
                config.mode = goal.mode;
                assert_eq!(
                    config, goal,
                    "{from} mode with the keys of {to} mode, {text}"
                );
                assert_eq!(config.check(), Ok(()), "{text}");
            }
        }
    }
}
