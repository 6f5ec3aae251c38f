//! ProbeBW: down, cruise, refill, up, and what a probe teaches about the long-term bound (draft-ietf-ccwg-bbr, "ProbeBW").

use rand::RngExt;

use super::{Bbr, Sample, State, is_too_high};
use verus_core::units::{Bytes, Duration};

/// A probe is due after as many rounds as the target in flight has packets, to coexist with Reno
/// (IsRenoCoexistenceProbeTime), and after this many at the latest.
const RENO_ROUNDS: u64 = 63;
/// The step of the long-term bound doubles with each round of a probe, at most this many times.
const MOST_DOUBLINGS: u32 = 30;

/// The packets being acknowledged, around a probe (ack_phase).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// Packets that do not concern a probe.
    Init,
    /// Packets of the refill before a probe.
    Refilling,
    /// The probe has begun, and its packets are all unacknowledged.
    Starting,
    /// The probe's packets are being acknowledged.
    Feedback,
    /// The probe is over, and its packets are still being acknowledged.
    Stopping,
}

impl Bbr {
    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self) {
        self.reset_congestion_signals();
        self.up_acked_per_packet = None;
        // PickProbeWait.
        self.rounds_since_probe = self.random.random_range(0..2);
        self.probe_wait = Duration::from_secs_f64(self.random.random_range(2.0..3.0));
        self.cycle_at = self.now;
        self.ack_phase = AckPhase::Stopping;
        self.rounds.begin(self.delivered);
        self.state = State::Down;
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_refill(&mut self) {
        self.reset_short_term();
        (self.up_rounds, self.up_acked) = (0, Bytes::ZERO);
        self.prev_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.rounds.begin(self.delivered);
        self.state = State::Refill;
    }

    /// StartProbeBW_UP.
    fn start_up(&mut self, sample: &Sample) {
        self.ack_phase = AckPhase::Starting;
        self.rounds.begin(self.delivered);
        self.full.restart(sample.rate);
        self.state = State::Up;
        self.raise_slope();
    }

    /// RaiseInflightLongtermSlope.
    pub(super) fn raise_slope(&mut self) {
        let per_packet = (self.window / (1 << self.up_rounds)).max(self.packet_size);
        self.up_acked_per_packet = Some(per_packet);
        self.up_rounds = (self.up_rounds + 1).min(MOST_DOUBLINGS);
    }

    /// UpdateProbeBWCyclePhase.
    pub(super) fn turn_cycle(&mut self, sample: &Sample) {
        if !self.full.is_reached() || self.adapt_long_term(sample) {
            return;
        }
        let state = self.state;
        match state {
            State::Down => {
                if self.is_time_to_probe() {
                    self.start_refill();
                } else if self.is_time_to_cruise(sample) {
                    self.state = State::Cruise;
                }
            }
            State::Cruise if self.is_time_to_probe() => self.start_refill(),
            State::Refill if self.round_start => {
                self.probe_sample = true;
                self.start_up(sample);
            }
            State::Up if self.is_time_to_go_down(sample) => {
                self.prev_too_high = false;
                self.start_down();
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW, with IsRenoCoexistenceProbeTime.
    pub(super) fn is_time_to_probe(&self) -> bool {
        let packets = self.target().get() / self.packet_size.get();
        self.now > self.cycle_at + self.probe_wait
            || self.rounds_since_probe >= packets.min(RENO_ROUNDS)
    }

    /// IsTimeToCruise.
    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        let free = self
            .with_headroom()
            .is_none_or(|most| sample.in_flight <= most);
        free && sample.in_flight <= self.inflight(self.max_bw.get(), 1.0)
    }

    /// IsTimeToGoDown.
    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        if let Some(long) = self.inflight_long {
            if self.prev_too_high && sample.in_flight >= long {
                self.prev_precautionary = true;
                return true;
            }
            if self.is_window_limited() && self.window >= long {
                // The bound holds the bandwidth, not the path.
                self.full.restart(sample.rate);
                return false;
            }
        }
        self.full.is_now()
    }

    /// AdaptLongTermModel: whether it has decided the state.
    fn adapt_long_term(&mut self, sample: &Sample) -> bool {
        if self.round_start {
            match self.ack_phase {
                AckPhase::Starting => self.ack_phase = AckPhase::Feedback,
                AckPhase::Stopping => {
                    self.probe_sample = false;
                    self.ack_phase = AckPhase::Init;
                    if self.state.is_probe_bw() {
                        if !sample.limited {
                            self.max_bw.advance();
                        }
                        if self.prev_precautionary && !self.prev_too_high {
                            self.start_refill();
                            return true;
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(long) = self.inflight_long
            && !is_too_high(sample.lost, sample.in_flight_at_send)
        {
            self.inflight_long = Some(long.max(sample.in_flight_at_send));
            if self.state == State::Up {
                self.probe_long_term_upward(sample);
            }
        }
        false
    }

    /// ProbeInflightLongtermUpward.
    pub(super) fn probe_long_term_upward(&mut self, sample: &Sample) {
        let (Some(long), Some(per_packet)) = (self.inflight_long, self.up_acked_per_packet) else {
            return;
        };
        if !self.is_window_limited() || self.window < long {
            return;
        }
        self.up_acked += sample.newly_acked;
        let packets = self.up_acked.get() / per_packet.get();
        self.up_acked -= per_packet * packets;
        self.inflight_long = Some(long + self.packet_size * packets);
        if self.round_start {
            self.raise_slope();
        }
    }
}
