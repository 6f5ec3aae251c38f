//! The least round trip, and ProbeRTT, which empties the queue to see it (draft-ietf-ccwg-bbr, "ProbeRTT").

use super::probe::AckPhase;
use super::{Bbr, Sample, State};
use verus_core::units::Duration;

/// MinRTTFilterLen.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// ProbeRTTInterval and ProbeRTTDuration.
pub(super) const PROBE_RTT_EVERY: Duration = Duration::from_secs(5);
pub(super) const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

impl Bbr {
    /// UpdateMinRTT.
    pub(super) fn update_min_rtt(&mut self, sample: &Sample) {
        self.probe_rtt_expired = self.now > self.probe_rtt_at + PROBE_RTT_EVERY;
        let delay = match self.probe_rtt_delay {
            Some(delay) if delay <= sample.rtt && !self.probe_rtt_expired => delay,
            _ => {
                self.probe_rtt_at = self.now;
                sample.rtt
            }
        };
        self.probe_rtt_delay = Some(delay);
        let expired = self.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if expired || self.min_rtt.is_none_or(|least| delay < least) {
            (self.min_rtt, self.min_rtt_at) = (Some(delay), self.probe_rtt_at);
        }
    }

    /// CheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, sample: &Sample) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.restarted {
            self.save_window(self.is_troubled());
            self.state = State::ProbeRtt;
            self.probe_rtt_until = None;
            self.ack_phase = AckPhase::Stopping;
            self.rounds.begin(self.delivered);
        }
        if self.state == State::ProbeRtt {
            self.limited_until = self.delivered + sample.in_flight;
            match self.probe_rtt_until {
                None if sample.in_flight <= self.probe_rtt_window() => {
                    self.probe_rtt_until = Some(self.now + PROBE_RTT_TIME);
                    self.probe_rtt_round = false;
                    self.rounds.begin(self.delivered);
                }
                None => {}
                Some(until) => {
                    self.probe_rtt_round |= self.round_start;
                    if self.probe_rtt_round && self.now > until {
                        self.leave_probe_rtt();
                    }
                }
            }
        }
        self.restarted = false;
    }

    /// CheckProbeRTTDone, with ExitProbeRTT.
    pub(super) fn leave_probe_rtt(&mut self) {
        self.probe_rtt_at = self.now;
        self.window = self.window.max(self.window_before);
        self.reset_short_term();
        if self.full.is_reached() {
            self.start_down();
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }
}
