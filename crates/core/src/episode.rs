//! Loss episodes: which losses are one congestion event, and whether they were losses at all.
//!
//! Everything in flight when a loss is found was sent at the old window, so further losses among
//! those packets call for no second reduction. How long that lasts differs ([`Period`]): RFC 9002
//! ends it after a round; RFC 6675 and Linux when all of that data has been delivered, so that a
//! repeated packet which is lost again prolongs it. Where a queue drops one packet in ten for
//! seconds on end, as RED does after a slow start without HyStart, the difference is large: NewReno's
//! mean queueing delay on a slow trace is half of a measured Linux sender's by the first rule, and
//! within a few percent of it by the second.
//!
//! A reduction is undone when it proves groundless (the Eifel response, RFC 4015; RFC 9438 §4.9;
//! Linux's undo and F-RTO, RFC 5682). After losses, that is when every packet declared lost has
//! arrived after all. After a timeout, it is when a packet from before it is acknowledged before
//! any sent since. A spurious timeout may still hide real losses: the ledger puts the rest of the
//! packets presumed lost back in flight. Those that it then declares lost are a new event.
//!
//! ```text
//!            loss                  the period is over
//!    ┌──────────────────▶ Recovery ─────────────────▶┐
//!    │                      │ all arrived: undo      │
//!   Open ◀──────────────────┴───────────────────────Open
//!    │ timeout       one from before it arrived: undo│
//!    └──────▶ TimedOut ─────────────────────────────▶┘
//! ```

use std::collections::VecDeque;

use crate::controller::{Acked, Departure, Feedback, Timeout};
use crate::prr::{Progress, Prr};
use crate::units::Bytes;

/// How long losses count towards a reduction already made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Period {
    /// One round: until a packet sent after the reduction is acknowledged (RFC 9002 §7.3.2).
    Round,
    /// Until everything in flight at the reduction has been delivered, in repeated packets where
    /// it was lost (RFC 6675, Linux). A repeated packet that is lost too prolongs the period and
    /// calls for no other reduction; new data lost meanwhile calls for one at its end.
    #[default]
    Repair,
}

/// The data still to be delivered before a period of [`Period::Repair`] ends. A controller does not
/// see what packets carry; but a sender repeats lost data first, and in the order of the losses.
#[derive(Clone, Debug, Default)]
struct Repair {
    /// Lost packets whose data waits to be sent again: whether they belong to the episode.
    waiting: VecDeque<bool>,
    /// How many of these do.
    ours: usize,
    /// Packets that repeat the episode's data, by number, and whether they are still in flight. A
    /// receiver chooses which of them it acknowledges; those in the middle are only marked.
    resent: VecDeque<(u64, bool)>,
    /// How many of them are.
    in_flight: usize,
    /// Packets lost during the episode that do not belong to it.
    others: u64,
}

impl Repair {
    fn on_sent(&mut self, number: u64) {
        if self.waiting.pop_front() == Some(true) {
            self.ours -= 1;
            self.resent.push_back((number, true));
            self.in_flight += 1;
        }
    }

    /// A packet is no longer in flight; returns whether it repeated the episode's data.
    fn settle(&mut self, number: u64) -> bool {
        let Ok(at) = self.resent.binary_search_by_key(&number, |packet| packet.0) else {
            return false;
        };
        let was_in_flight = std::mem::take(&mut self.resent[at].1);
        self.in_flight -= usize::from(was_in_flight);
        while self.resent.front().is_some_and(|packet| !packet.1) {
            self.resent.pop_front();
        }
        was_in_flight
    }

    fn on_lost(&mut self, number: u64, end: u64) {
        let ours = self.settle(number) || number < end;
        self.waiting.push_back(ours);
        self.ours += usize::from(ours);
        self.others += u64::from(!ours);
    }

    fn is_done(&self) -> bool {
        self.ours == 0 && self.in_flight == 0
    }

    /// Begins another episode, to which all waiting packets belong.
    fn begin(&mut self) {
        self.waiting.iter_mut().for_each(|ours| *ours = true);
        self.ours = self.waiting.len();
        self.resent.clear();
        self.in_flight = 0;
        self.others = 0;
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.ours = 0;
        self.resent.clear();
        self.in_flight = 0;
        self.others = 0;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// No reduction is under way.
    Open,
    /// The window is coming down after losses.
    Recovery(Prr),
    /// A timeout fired, and nothing has been acknowledged since.
    TimedOut,
}

/// The current or last episode of a flow whose algorithm's state is `S`.
#[derive(Clone, Debug)]
pub struct Episode<S> {
    period: Period,
    repair: Repair,
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
    pub fn new(period: Period) -> Self {
        Episode {
            period,
            repair: Repair::default(),
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
    pub fn on_sent(&mut self, packet: &Departure) {
        self.next = packet.number + 1;
        if let Stage::Recovery(prr) = &mut self.stage {
            prr.on_sent(packet.size);
            self.repair.on_sent(packet.number);
        }
    }

    /// The number of the next packet to leave.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Whether feedback with nothing lost or recovered says nothing about an episode.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether the window is coming down after losses.
    pub fn in_recovery(&self) -> bool {
        matches!(self.stage, Stage::Recovery(_))
    }

    /// Whether a timeout is unanswered.
    pub fn timed_out(&self) -> bool {
        self.stage == Stage::TimedOut
    }

    /// Forbids to undo the last reduction: the state before it counts packets of another size and
    /// is void.
    pub fn settle(&mut self) {
        self.before = None;
    }

    /// Marks the packets in flight as answered by a signal other than loss, such as the delay that
    /// ends slow start. Losses among them call for no further reduction.
    pub fn answer(&mut self) {
        self.start = self.next;
        self.end = self.next;
        self.before = None;
    }

    /// Whether an acknowledged packet says that the present window fits: one that left after the
    /// last reduction (RFC 9002 §7.3.2: no growth during recovery).
    #[inline]
    pub fn supports_growth(&self, packet: &Departure) -> bool {
        packet.number >= self.end
    }

    /// The state to restore, if the feedback shows that the last reduction was groundless.
    pub fn undone_by(&mut self, feedback: &Feedback<'_>) -> Option<S> {
        let ours = |acked: &&Acked| (self.start..self.end).contains(&acked.packet.number);
        let arrived = feedback.recovered.iter().filter(ours).count() as u64;
        self.recovered += arrived;
        let all_arrived = self.lost > 0 && self.recovered >= self.lost;
        let since = |acked: &Acked| acked.packet.number >= self.end;
        let too_early =
            self.stage == Stage::TimedOut && arrived > 0 && !feedback.acked.iter().any(since);
        if !(all_arrived || too_early) {
            return None;
        }
        // Others of these packets may yet be lost: a new event, since this one was none.
        self.end = self.start;
        self.lost = 0;
        self.recovered = 0;
        self.stage = Stage::Open;
        self.repair.clear();
        self.before.take()
    }

    /// Whether the feedback calls for a reduction. If it does, an episode begins: the caller
    /// reduces, and an undo will restore `state`.
    pub fn begun_by(&mut self, feedback: &Feedback<'_>, state: S) -> bool {
        let heard_since = feedback
            .acked
            .iter()
            .any(|acked| acked.packet.number >= self.end);
        let mut lost_since = feedback
            .lost
            .iter()
            .filter(|packet| packet.number >= self.end)
            .count() as u64;
        if self.period == Period::Repair && self.in_recovery() {
            for acked in feedback.acked {
                self.repair.settle(acked.packet.number);
            }
            for packet in feedback.lost {
                self.repair.on_lost(packet.number, self.end);
            }
            if heard_since && self.repair.is_done() {
                lost_since = self.repair.others;
                self.stage = Stage::Open;
            } else {
                lost_since = 0;
            }
        } else {
            if heard_since {
                self.stage = Stage::Open;
            }
            self.repair.clear();
            for _ in feedback.lost {
                self.repair.on_lost(0, 1);
            }
        }
        let fresh = lost_since > 0;
        let marked = feedback.marked > 0 && !self.in_recovery();
        if fresh || marked {
            // Nothing is lost in an episode that a mark begins, and nothing can be undone.
            self.start = self.end;
            self.lost = lost_since;
            self.recovered = 0;
        } else {
            let ours = |packet: &&Departure| packet.number >= self.start;
            self.lost += feedback.lost.iter().filter(ours).count() as u64;
        }
        if !(fresh || marked) {
            return false;
        }
        self.end = self.next;
        self.repair.begin();
        self.stage = Stage::Recovery(Prr::new(feedback.in_flight_before));
        self.before = Some(state);
        true
    }

    /// A timeout fired. Returns whether to reduce the threshold too: not if a reduction has
    /// answered the packets in flight already (RFC 5681 §3.1; Linux counts a recovery under way as
    /// one). An undo restores `state` if this is the first timeout of a silence.
    pub fn on_timeout(&mut self, timeout: &Timeout<'_>, state: S) -> bool {
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
        self.repair.clear();
        self.stage = Stage::TimedOut;
        reduce
    }

    /// The window that recovery allows after the feedback, for a threshold; `None` if recovery is
    /// not under way.
    pub fn recovery_window(
        &mut self,
        feedback: &Feedback<'_>,
        threshold: Bytes,
        packet_size: Bytes,
    ) -> Option<Bytes> {
        let Stage::Recovery(prr) = &mut self.stage else {
            return None;
        };
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
