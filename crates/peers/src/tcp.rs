//! The TCPs: one controller over three laws.
//!
//! The common part is here: cwnd and ssthresh (RFC 5681), and slow start, which ends by [`hystart`]
//! or a loss. A loss event causes one reduction ([`episode`](verus_core::episode)), with
//! proportional rate reduction (`prr`) on the way down. A timeout collapses the window, and a
//! reduction that proves groundless is undone. A [`Law`] adds its growth of the window, the share
//! that a loss leaves, and the further state that an undo restores.
//!
//! ```text
//! feedback ─▶ episode ─▶ undo? ─▶ reduce? ─▶ recovery: PRR's window
//!                                     └────▶ none: the law grows the window
//! ```
//!
//! Windows are counted in packets inside, as in the RFCs; bytes cross the seam.

use std::fmt;

use crate::used::Used;
use verus_core::controller::{Controller, Departure, Feedback, Phase, Timeout};
use verus_core::ecn::Ecn;
use verus_core::episode::{Episode, Period};
use verus_core::units::{Bytes, Time};
use verus_words::range::OutOfRange;
use verus_words::spec::Words;

pub mod cubic;
pub mod hystart;
pub mod reno;
pub mod vegas;

pub use cubic::Cubic;
pub use reno::NewReno;
pub use vegas::Vegas;

use hystart::{Sighting, Watch};

/// The loss window: what a timeout leaves, in packets (LW, RFC 5681 §3.1).
const LOSS_WINDOW_PACKETS: f64 = 1.0;

/// Window and threshold, and the arithmetic of RFC 5681 on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// cwnd, in packets.
    pub packets: f64,
    /// ssthresh, in packets; `None` until slow start has ended once.
    pub threshold: Option<f64>,
}

impl Window {
    pub(super) fn new(packets: f64) -> Self {
        Window {
            packets,
            threshold: None,
        }
    }

    #[inline]
    pub(super) fn in_slow_start(&self) -> bool {
        self.threshold
            .is_none_or(|threshold| self.packets < threshold)
    }

    /// Slow start: the window grows by `packets`, up to the threshold. The rest is returned for
    /// congestion avoidance, as in Linux, so that one large acknowledgement does not overshoot.
    #[inline]
    pub(super) fn slow_start(&mut self, packets: f64) -> f64 {
        let grown = self.packets + packets;
        self.packets = self
            .threshold
            .map_or(grown, |threshold| grown.min(threshold));
        grown - self.packets
    }

    /// Congestion avoidance: one packet per window acknowledged (RFC 9002 §7.3.3).
    #[inline]
    pub(super) fn avoid(&mut self, acked: f64) {
        self.packets += acked / self.packets;
    }

    /// A loss: the window becomes `factor` of itself, and the threshold with it (RFC 9002 §7.3.2).
    pub(super) fn reduce(&mut self, factor: f64, min: f64) {
        self.packets = (self.packets * factor).max(min);
        self.threshold = Some(self.packets);
    }

    /// A timeout: one packet, and slow start up to half of the flight (RFC 5681 §3.1, eq. 4) if
    /// `flight` is given.
    pub(super) fn collapse(&mut self, flight: Option<f64>, factor: f64, min: f64) {
        if let Some(flight) = flight {
            // Never from more than the window: a flight still draining after a reduction would
            // otherwise raise the threshold.
            self.threshold = Some((flight.min(self.packets) * factor).max(min));
        }
        self.packets = LOSS_WINDOW_PACKETS;
    }

    /// Undoes a groundless reduction (RFC 4015). As in Linux, a window that has meanwhile grown
    /// past the old one is kept.
    pub(super) fn restore(&mut self, before: &Window) {
        self.packets = self.packets.max(before.packets);
        self.threshold = before.threshold;
    }

    /// The packet size changed: the same bytes, counted in the new size.
    pub(super) fn rescale(&mut self, factor: f64) {
        self.packets = (self.packets * factor).max(LOSS_WINDOW_PACKETS);
        self.threshold = self.threshold.map(|threshold| threshold * factor);
    }
}

/// The settings that every law's configuration has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Common {
    /// The window at the start, in packets (RFC 6928, RFC 9002 §7.2: 10).
    pub initial_window_packets: f64,
    /// No loss takes the window below this, in packets (RFC 9002 §7.2, RFC 9438 §4.6: 2); a timeout does.
    pub min_window_packets: f64,
    /// The share of the window that a loss leaves (kLossReductionFactor, RFC 9002 §7.3.2: 0.5; β,
    /// RFC 9438 §4.6: 0.7).
    pub decrease_factor: f64,
    /// The time for which losses belong to a reduction already made. RFC 9002: a round; RFC 6675
    /// and Linux: until the lost packets have been delivered.
    pub period: Period,
    /// Whether its packets ask queues for marks (ECT(0), RFC 3168), which it answers as losses.
    pub ecn: bool,
}

impl Default for Common {
    fn default() -> Self {
        Common {
            initial_window_packets: 10.0,
            min_window_packets: 2.0,
            decrease_factor: 0.5,
            period: Period::Repair,
            ecn: false,
        }
    }
}

/// The meaning of the laws' key `ecn`.
const ECN_MEANING: &str =
    "asks queues for marks, and answers one as a loss, once a round trip (RFC 3168)";

/// The words of the key `period`, and their values.
const PERIODS: Words<Period> = &[("round", Period::Round), ("repair", Period::Repair)];
const PERIOD_MEANING: &str =
    "how long losses count as one: a round (RFC 9002) or until repaired (RFC 6675)";

/// The part by which TCPs differ.
pub trait Law: Clone + fmt::Debug + Send {
    /// Its configuration.
    type Config;
    /// The state that an undone reduction restores besides cwnd and ssthresh.
    type Memory: Copy + fmt::Debug + Send;

    /// The law of a flow that has sent nothing.
    ///
    /// # Errors
    /// If the configuration is out of range.
    fn new(config: Self::Config) -> Result<Self, OutOfRange>;

    /// The settings that all laws have.
    fn common(&self) -> &Common;

    /// The state that an undo would restore.
    fn memory(&self) -> Self::Memory;

    /// Restores the state from before a reduction that proved groundless.
    fn recall(&mut self, memory: Self::Memory);

    /// The flow starts at `now`.
    fn on_start(&mut self, now: Time);

    /// A packet leaves.
    #[inline]
    fn on_sent(&mut self, _packet: &Departure) {}

    /// Packets were acknowledged outside of recovery.
    fn grow(&mut self, window: &mut Window, ack: &Acknowledgement<'_>);

    /// A loss: the window falls.
    fn reduce(&mut self, window: &mut Window) {
        let common = self.common();
        window.reduce(common.decrease_factor, common.min_window_packets);
    }

    /// A timeout, before the window collapses. `reduces`: whether it is a new reduction.
    fn on_timeout(&mut self, now: Time, window: &Window, reduces: bool);

    /// The window is coming down.
    #[inline]
    fn on_recovery(&mut self) {}

    /// Packets are `factor` times as many from now on, for the same bytes.
    fn rescale(&mut self, _factor: f64) {}

    /// Records its state.
    fn probe(&self, _record: &mut dyn FnMut(&'static str, f64)) {}
}

/// An acknowledgement, as a law looks at it.
#[derive(Debug)]
pub struct Acknowledgement<'a> {
    /// The complete feedback.
    pub feedback: &'a Feedback<'a>,
    /// How many packets it acknowledges that say that the present window fits: sent since the last reduction, and while
    /// the window was used (`used.rs`).
    pub supporting: f64,
    /// The number of the next packet to leave.
    pub next_number: u64,
    /// The size of every packet.
    pub packet_size: Bytes,
}

impl Acknowledgement<'_> {
    /// Slow start until `watch` ends it. Returns the supporting packets that remain for congestion
    /// avoidance.
    fn slow_start(&self, window: &mut Window, watch: &mut Watch) -> f64 {
        let Some(newest) = self.feedback.acked.last() else {
            return 0.0;
        };
        let sighting = Sighting {
            now: self.feedback.now,
            number: newest.packet.number,
            next_number: self.next_number,
            rtt: newest.rtt,
            min_rtt: self.feedback.min_rtt,
            window_packets: window.packets,
        };
        let initial = window.threshold.is_none();
        match watch.on_ack(&sighting, initial).growth(self.supporting) {
            Some(packets) => window.slow_start(packets),
            None => {
                window.threshold = Some(window.packets);
                self.supporting
            }
        }
    }
}

/// A flow's TCP, whose law is `L`.
#[derive(Clone, Debug)]
pub struct Tcp<L: Law> {
    law: L,
    packet_size: Bytes,
    per_byte: f64,
    window: Window,
    episode: Episode<(Window, L::Memory)>,
    used: Used,
    limit: Bytes,
}

impl<L: Law> Tcp<L> {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: L::Config) -> Result<Self, OutOfRange> {
        let law = L::new(config)?;
        let common = *law.common();
        let initial = common.initial_window_packets;
        let mut controller = Tcp {
            law,
            packet_size: Bytes::ZERO,
            per_byte: 0.0,
            window: Window::new(initial.max(common.min_window_packets)),
            episode: Episode::new(common.period),
            used: Used::default(),
            limit: Bytes::ZERO,
        };
        controller.set_packet_size(Bytes::new(1500));
        Ok(controller)
    }

    fn set_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
        self.per_byte = 1.0 / size.as_f64();
        self.limit = size.mul_f64(self.window.packets);
    }

    #[inline]
    fn grow(&mut self, feedback: &Feedback<'_>) {
        if feedback.acked.is_empty() {
            return;
        }
        let mut supporting = 0;
        for acked in feedback.acked {
            if self.episode.supports_growth(&acked.packet)
                && self.used.supports_growth(&acked.packet)
            {
                supporting += acked.packet.size.get();
            }
        }
        let ack = Acknowledgement {
            feedback,
            supporting: supporting as f64 * self.per_byte,
            next_number: self.episode.next_number(),
            packet_size: self.packet_size,
        };
        self.law.grow(&mut self.window, &ack);
        self.limit = self.packet_size.mul_f64(self.window.packets);
    }

    #[cold]
    fn on_trouble(&mut self, feedback: &Feedback<'_>) {
        if let Some((window, memory)) = self.episode.undone_by(feedback) {
            self.window.restore(&window);
            self.law.recall(memory);
        }
        let before = (self.window, self.law.memory());
        if self.episode.begun_by(feedback, before) {
            self.law.reduce(&mut self.window);
        }
        let threshold = self.packet_size.mul_f64(self.window.packets);
        let on_the_way_down = self
            .episode
            .recovery_window(feedback, threshold, self.packet_size);
        if let Some(limit) = on_the_way_down {
            self.limit = limit;
            self.law.on_recovery();
        } else {
            self.limit = threshold;
            self.grow(feedback);
        }
    }
}

impl<L: Law + 'static> Controller for Tcp<L> {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.law.on_start(now);
        self.set_packet_size(packet_size);
    }

    #[inline]
    fn on_sent(&mut self, packet: &Departure) {
        self.episode.on_sent(packet);
        self.used.on_sent(packet);
        self.law.on_sent(packet);
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let news = feedback.lost.len() + feedback.recovered.len() + feedback.marked;
        if news == 0 && self.episode.is_over() {
            self.grow(feedback);
        } else {
            self.on_trouble(feedback);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        let flight: Bytes = timeout.presumed_lost.iter().map(|packet| packet.size).sum();
        let flight = flight.as_f64() * self.per_byte;
        let before = (self.window, self.law.memory());
        let reduces = self.episode.on_timeout(timeout, before);
        self.law.on_timeout(timeout.now, &self.window, reduces);
        let common = self.law.common();
        self.window.collapse(
            reduces.then_some(flight),
            common.decrease_factor,
            common.min_window_packets,
        );
        self.limit = self.packet_size.mul_f64(self.window.packets);
    }

    fn on_packet_size(&mut self, size: Bytes) {
        let factor = self.packet_size / size;
        self.window.rescale(factor);
        self.law.rescale(factor);
        self.episode.settle();
        self.set_packet_size(size);
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.limit
    }

    fn ecn(&self) -> Ecn {
        if self.law.common().ecn {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        }
    }

    fn phase(&self) -> Option<Phase> {
        Some(if self.episode.in_recovery() {
            Phase::Recovery
        } else if self.episode.timed_out() {
            Phase::Silent
        } else if self.window.in_slow_start() {
            Phase::SlowStart
        } else {
            Phase::Steady
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window_packets", self.window.packets);
        let threshold = self.window.threshold;
        record("ssthresh_packets", threshold.unwrap_or(f64::NAN));
        self.law.probe(record);
    }
}
