//! The model-driven controller (Pötsch et al., *Model-driven Delay-based Congestion Control for
//! Cellular Networks*, 2016). A delay-based algorithm is observed; its decisions become the
//! transition matrix of a Markov chain over states (d, w). A guided random walk through that matrix
//! then replaces the algorithm.
//!
//! [`sampler`] turns a flow's packets into one sample per epoch; [`training`] counts the
//! transitions between samples. [`matrix`] holds the counts (Eqs. 1–6), [`file`](mod@file) reads
//! and writes them, [`walk`] draws the next w (§3.2, §5.1). The controller here only keeps epochs.
//!
//! The paper leaves these questions open; the answers here:
//!
//! * d is a packet's round-trip time in whole milliseconds, rounded down. A sample uses the newest
//!   one when its epoch began (§4.1: "the current packet delay"). A step uses the longest of the
//!   epoch before (§3.2: "the most recent maximum"). An epoch without an acknowledgement keeps the
//!   d before it, or the time since the last acknowledgement if that is longer: the packets under
//!   way have waited that long already.
//! * A state pairs the d known when an epoch began with the w sent in that epoch, in training and
//!   in the walk.
//! * Beyond d_max nothing is sent: the observed algorithm never sent there.
//! * With w = 0 and nothing in flight no feedback would ever come, so one packet leaves.
//! * After a timeout one packet leaves for each (backed-off) timeout, until anything is
//!   acknowledged; then the walk goes on. Single losses are repaired and change nothing (§5 repairs
//!   none yet).

pub mod epoch;
pub mod file;
pub mod matrix;
pub mod sampler;
pub mod training;
pub mod walk;

use std::sync::Arc;

use verus_core::controller::{Allowance, Controller, Departure, Feedback, Timeout};
use verus_core::recovery::Recovery;
use verus_core::units::{Bytes, Duration, Time};
use verus_protocol as verus;

use epoch::{EpochDelay, Stands};
pub use file::{About, FileError, MAX_BYTES, Model};
pub use matrix::{Grid, Matrix};
pub use sampler::{Sample, Sampler};
pub use training::{TrainError, Trainer};
pub use walk::{Walk, WalkKind};

/// ε, the time between two steps of the walk: that of the samples (Verus §5.3).
pub const EPOCH: Duration = Duration::from_millis(5);

/// The phase of the flow.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// One packet is out to learn the first delay: there is no slow start (§5).
    First,
    /// Each epoch takes a step.
    Walking,
    /// After a timeout: one packet for each, until anything is answered.
    Silent,
}

/// The model-driven controller.
#[derive(Debug)]
pub struct ModelDriven {
    walk: Walk,
    phase: Phase,
    packet_size: Bytes,
    delay: EpochDelay,
    epoch_end: Option<Time>,
    /// w, the packets granted to the open epoch.
    granted: u64,
    /// The packets of this grant that have not left yet.
    budget: u64,
    /// Packets that left in the open epoch, granted or not.
    sent: u64,
}

impl ModelDriven {
    /// A controller that walks through `model`, its draws from `seed`.
    pub fn new(model: Arc<Model>, kind: WalkKind, seed: u64) -> Self {
        ModelDriven {
            walk: Walk::new(model, kind, seed),
            phase: Phase::First,
            packet_size: Bytes::new(1),
            delay: EpochDelay::new(Stands::Longest),
            epoch_end: None,
            granted: 1,
            budget: 1,
            sent: 0,
        }
    }

    /// Takes one step of the walk, and grants its packets to the epoch that begins.
    #[inline]
    fn step(&mut self, now: Time, in_flight: Bytes) {
        let Some(delay) = self.delay.end(now, !in_flight.is_zero()) else {
            return;
        };
        let sent = u32::try_from(self.sent).unwrap_or(u32::MAX);
        self.sent = 0;
        self.granted = u64::from(self.walk.step(delay, sent));
        self.budget = self.granted;
        if self.budget == 0 && in_flight.is_zero() {
            self.budget = 1;
        }
    }
}

impl Controller for ModelDriven {
    fn on_start(&mut self, _now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
    }

    #[inline]
    fn on_sent(&mut self, _packet: &Departure) {
        self.budget = self.budget.saturating_sub(1);
        self.sent += 1;
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        for acked in feedback.acked.iter().chain(feedback.recovered) {
            self.delay.on_sample(now, acked.rtt);
        }
        if feedback.acked.is_empty() && feedback.recovered.is_empty() {
            return;
        }
        match self.phase {
            Phase::First => {
                // "the delay feedback of the first packet is immediately applied to the guided
                // random walk" (§5).
                self.phase = Phase::Walking;
                self.epoch_end = Some(now + EPOCH);
                self.step(now, feedback.in_flight);
            }
            Phase::Silent if self.epoch_end.is_some() => self.phase = Phase::Walking,
            Phase::Silent => {
                self.phase = Phase::Walking;
                self.epoch_end = Some(now + EPOCH);
            }
            Phase::Walking => {}
        }
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        self.phase = Phase::Silent;
        self.granted = 1;
        self.budget = 1;
    }

    #[inline]
    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        let Some(end) = self.epoch_end else { return };
        let epoch = EPOCH.as_nanos();
        let late = now.since(end).as_nanos();
        let ended = if late < epoch { 1 } else { 1 + late / epoch };
        self.epoch_end = Some(end + EPOCH * ended);
        if self.phase == Phase::Walking {
            self.step(now, in_flight);
        }
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
    }

    /// w, the grant of the open epoch. Packets in flight are not counted against it here.
    #[inline]
    fn window(&self) -> Bytes {
        self.packet_size * self.granted
    }

    #[inline]
    fn allowance(&self) -> Allowance {
        Allowance::budget(self.packet_size * self.budget)
    }

    #[inline]
    fn next_tick(&self) -> Option<Time> {
        self.epoch_end
    }

    /// The recovery of Verus, so that the two differ only in their decisions.
    fn recovery(&self) -> Recovery {
        verus::Config::default().recovery
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let delay = self
            .delay
            .latest()
            .map_or(f64::NAN, Duration::as_millis_f64);
        record("epoch_delay_ms", delay);
        record("epoch_packets", self.granted as f64);
        record("steps_total", self.walk.steps() as f64);
        record("steps_lowered", self.walk.lowered() as f64);
        record("steps_off_row", self.walk.off_row() as f64);
    }
}
