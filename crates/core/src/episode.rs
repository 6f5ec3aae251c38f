//! Loss episodes: which losses are one congestion event, and whether they were losses at all.
//!
//! Everything in flight when a loss is found was sent at the old window, so further losses among
//! those packets call for no second reduction: the recovery period of RFC 9002 §7.3.2, told by
//! packet number. It ends when a packet sent after the reduction is acknowledged.
//!
//! A reduction is taken back when it proves groundless: after losses, when every packet that was
//! declared lost has arrived after all; after a timeout, when a packet from before it is heard of
//! before any sent since (the Eifel response, RFC 4015; RFC 9438 §4.9; Linux's undo and F-RTO, RFC
//! 5682). A spurious timeout may still hide real losses: on a path that keeps order, whatever has
//! not arrived when a packet sent after the timeout is acknowledged never will, and is answered
//! like any loss.
//!
//! ```text
//!            loss               a packet sent since is acknowledged
//!    ┌──────────────────▶ Recovery ─────────────────▶┐
//!    │                      │ all arrived: undo      │
//!   Open ◀──────────────────┴───────────────────────Open
//!    │ timeout             a packet sent since: some are missing: Recovery
//!    └──────▶ TimedOut ──▶ Doubted ─────────────────▶┘
//!                one arrived: undo
//! ```

use crate::controller::{Acked, Departure, Feedback, Timeout};
use crate::prr::{Progress, Prr};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// No reduction is under way.
    Open,
    /// The window is coming down after losses.
    Recovery(Prr),
    /// A timeout fired, and nothing has been heard since.
    TimedOut,
    /// A timeout was taken back, with some of the packets that it presumed lost still missing.
    Doubted,
}

/// The current or last episode of a flow whose algorithm's state is `S`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Episode<S> {
    /// The number of the next packet to leave.
    next: u64,
    /// The episode's packets are `start..end`; those before belong to earlier episodes.
    start: u64,
    end: u64,
    /// Of these, how many were declared lost, and how many of them arrived after all.
    lost: u64,
    recovered: u64,
    stage: Stage,
    /// The algorithm's state before the reduction, while that can be taken back.
    before: Option<S>,
}

impl<S: Copy> Episode<S> {
    /// A flow that has lost nothing.
    pub(crate) fn new() -> Self {
        Episode {
            next: 0,
            start: 0,
            end: 0,
            lost: 0,
            recovered: 0,
            stage: Stage::Open,
            before: None,
        }
    }

    /// A packet left.
    #[inline]
    pub(crate) fn on_sent(&mut self, packet: &Departure) {
        self.next = packet.number + 1;
        if let Stage::Recovery(prr) = &mut self.stage {
            prr.on_sent(packet.size);
        }
    }

    /// The number of the next packet to leave.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Whether feedback with nothing lost or recovered says nothing about an episode.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether the window is coming down after losses.
    pub(crate) fn in_recovery(&self) -> bool {
        matches!(self.stage, Stage::Recovery(_))
    }

    /// Whether a timeout is unanswered.
    pub(crate) fn timed_out(&self) -> bool {
        self.stage == Stage::TimedOut
    }

    /// Whether an acknowledged packet says that the present window fits: one that left after the
    /// last reduction (RFC 9002 §7.3.2: no growth during recovery).
    #[inline]
    pub(crate) fn supports_growth(&self, packet: &Departure) -> bool {
        packet.number >= self.end
    }

    /// The state to restore, if the feedback shows that the last reduction was groundless.
    pub(crate) fn undone_by(&mut self, feedback: &Feedback<'_>) -> Option<S> {
        let ours = |acked: &&Acked| (self.start..self.end).contains(&acked.packet.number);
        let arrived = feedback.recovered.iter().filter(ours).count() as u64;
        self.recovered += arrived;
        let all_arrived = self.lost > 0 && self.recovered >= self.lost;
        let too_early = self.stage == Stage::TimedOut && arrived > 0 && feedback.acked.is_empty();
        if !(all_arrived || too_early) {
            return None;
        }
        if all_arrived {
            // Others of these packets may yet be lost: a new event, since this one was none.
            self.end = self.start;
            self.lost = 0;
            self.recovered = 0;
            self.stage = Stage::Open;
        } else {
            self.stage = Stage::Doubted;
        }
        self.before.take()
    }

    /// Whether the feedback calls for a reduction. If it does, an episode begins: the caller
    /// reduces, and `state` is what an undo will restore.
    pub(crate) fn begun_by(&mut self, feedback: &Feedback<'_>, state: S) -> bool {
        let sent_since = |packet: &Departure| packet.number >= self.end;
        let doubts_confirmed = self.stage == Stage::Doubted
            && feedback.acked.iter().any(|acked| sent_since(&acked.packet));
        let fresh = feedback.lost.iter().any(sent_since);
        if fresh {
            self.start = self.end;
            self.lost = 0;
            self.recovered = 0;
        }
        let ours = |packet: &&Departure| packet.number >= self.start;
        self.lost += feedback.lost.iter().filter(ours).count() as u64;
        let marked = feedback.marked > 0 && !self.in_recovery();
        if !(fresh || doubts_confirmed || marked) {
            return false;
        }
        if !fresh && doubts_confirmed {
            self.lost -= self.recovered;
            self.recovered = 0;
        } else if !fresh {
            // A mark is no loss: there is nothing to wait for that could prove it wrong.
            self.start = self.end;
            self.lost = 0;
            self.recovered = 0;
        }
        self.end = self.next;
        self.stage = Stage::Recovery(Prr::new(feedback.in_flight_before));
        self.before = Some(state);
        true
    }

    /// A timeout fired. Whether the threshold is to be reduced too: not if the packets in flight
    /// have been answered by a reduction already (RFC 5681 §3.1; Linux holds a recovery under way
    /// for one too). `state` is what an undo will restore, if the first timeout of a silence.
    pub(crate) fn on_timeout(&mut self, timeout: &Timeout<'_>, state: S) -> bool {
        let reduce = !self.in_recovery() && !self.timed_out();
        if !self.timed_out() {
            self.start = self.end;
            self.lost = 0;
            self.recovered = 0;
            self.before = Some(state);
        }
        let ours = |packet: &&Departure| packet.number >= self.start;
        self.lost += timeout.presumed_lost.iter().filter(ours).count() as u64;
        self.end = self.next;
        self.stage = Stage::TimedOut;
        reduce
    }

    /// The window that recovery allows after the feedback, for a threshold; `None` if recovery is
    /// not under way or has just ended.
    pub(crate) fn recovery_window(
        &mut self,
        feedback: &Feedback<'_>,
        threshold: Bytes,
        packet_size: Bytes,
    ) -> Option<Bytes> {
        let heard_since = feedback
            .acked
            .iter()
            .any(|acked| acked.packet.number >= self.end);
        match &mut self.stage {
            Stage::Open => None,
            Stage::TimedOut | Stage::Doubted => {
                if heard_since {
                    self.stage = Stage::Open;
                }
                None
            }
            Stage::Recovery(_) if heard_since => {
                self.stage = Stage::Open;
                None
            }
            Stage::Recovery(prr) => {
                let arrivals = feedback.acked.iter().chain(feedback.recovered);
                let delivered: Bytes = arrivals.map(|acked| acked.packet.size).sum();
                let progress = Progress {
                    delivered: if delivered.is_zero() {
                        packet_size
                    } else {
                        delivered
                    },
                    lossless: feedback.lost.is_empty(),
                    in_flight: feedback.in_flight,
                };
                Some(prr.on_feedback(&progress, threshold, packet_size))
            }
        }
    }
}
