//! A token bucket in the path: full, it lets bursts pass at the speed of the link; empty, it drops what exceeds its rate.
//!
//! The greatest delivery rate is then that of the link, and most packets sent at it are lost. A
//! policer shows in two stretches of some round trips, each begun and ended by a loss. If both lose
//! much and have the same rate, that rate is the policer's. The flow then sends at it for 48 round
//! trips without looking for more (Linux; Flach et al., "An Internet-Wide Analysis of Traffic
//! Policing", SIGCOMM 2016).

use verus_core::units::{Bytes, Rate, Time};

/// A stretch is at least this many round trips long.
const LEAST_ROUNDS: u32 = 4;
/// If a stretch has not ended after this many round trips, the detector starts again.
const MOST_ROUNDS: u32 = 16;
/// A stretch counts as policed if its losses are at least 50 in 256 of its deliveries (19.5 %).
const LOST_OF_256: u64 = 50;
/// Rates are the same that differ by no more than an eighth, or by this.
const SAME_BPS: u64 = 4000;
/// The policer's rate is kept for this many round trips.
const KEPT_ROUNDS: u32 = 48;

/// The deliveries and losses that an acknowledgement reports.
pub(super) struct PolicerSample {
    pub now: Time,
    /// Bytes, in the flow's life.
    pub delivered: Bytes,
    /// Bytes declared lost since the last one.
    pub lost: Bytes,
    /// Whether it began a round.
    pub round: bool,
    /// Whether the source held the sender back.
    pub limited: bool,
    /// Whether the mode is ProbeBw.
    pub cruising: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum PolicerState {
    /// Nothing was lost yet.
    #[default]
    Idle,
    /// A stretch is under way.
    Watching(Stretch),
    /// The rate is known, and has been kept for this many rounds.
    Known { rounds: u32 },
}

/// The totals delivered and lost when a stretch began, and the rounds since.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Time,
    delivered: Bytes,
    lost: Bytes,
    rounds: u32,
}

/// A flow's detector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    state: PolicerState,
    /// The rate of the last stretch; the policer's, once it is known.
    rate: Option<Rate>,
    /// Lost in the flow's life.
    lost: Bytes,
}

impl Policer {
    /// The policer's rate, while there is taken to be one.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate
            .filter(|_| matches!(self.state, PolicerState::Known { .. }))
    }

    pub(super) fn reset(&mut self) {
        (self.state, self.rate) = (PolicerState::Idle, None);
    }

    fn begin(&mut self, sample: &PolicerSample) {
        self.state = PolicerState::Watching(Stretch {
            since: sample.now,
            delivered: sample.delivered,
            lost: self.lost,
            rounds: 0,
        });
    }

    /// Returns whether a rate has been kept for its time, so that the path is probed again.
    pub(super) fn on_delivery(&mut self, sample: &PolicerSample) -> bool {
        self.lost += sample.lost;
        match &mut self.state {
            PolicerState::Known { rounds } => {
                *rounds += u32::from(sample.round && sample.cruising);
                let over = *rounds >= KEPT_ROUNDS;
                if over {
                    self.reset();
                }
                return over;
            }
            PolicerState::Idle => {
                if !sample.lost.is_zero() {
                    self.begin(sample);
                }
            }
            PolicerState::Watching(stretch) => {
                stretch.rounds += u32::from(sample.round);
                let stretch = *stretch;
                if sample.limited || stretch.rounds > MOST_ROUNDS {
                    self.reset();
                } else if stretch.rounds >= LEAST_ROUNDS && !sample.lost.is_zero() {
                    self.end(&stretch, sample);
                }
            }
        }
        false
    }

    /// A loss may end the stretch: if enough was lost in it.
    fn end(&mut self, stretch: &Stretch, sample: &PolicerSample) {
        let delivered = sample.delivered.saturating_sub(stretch.delivered);
        let lost = self.lost.saturating_sub(stretch.lost);
        if delivered.is_zero() || lost.get() * 256 < delivered.get() * LOST_OF_256 {
            return;
        }
        let rate = delivered / sample.now.since(stretch.since);
        if let Some(before) = self.rate {
            let apart = rate.as_bps().abs_diff(before.as_bps());
            if apart <= before.as_bps() / 8 || apart <= SAME_BPS {
                let mean = rate.as_bps() / 2 + before.as_bps() / 2;
                self.rate = Some(Rate::from_bps(mean));
                self.state = PolicerState::Known { rounds: 0 };
                return;
            }
        }
        self.rate = Some(rate);
        self.begin(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 ms that deliver so many kB and lose so many, until the detector says a rate.
    fn rounds(
        policer: &mut Policer,
        from: u64,
        kb: impl Fn(u64) -> (u64, u64),
    ) -> Option<(u64, Rate)> {
        let mut delivered = Bytes::ZERO;
        for round in from..from + 60 {
            let (arrived, lost) = kb(round);
            delivered += Bytes::new(arrived * 1000);
            policer.on_delivery(&PolicerSample {
                now: Time::from_millis(round * 100),
                delivered,
                lost: Bytes::new(lost * 1000),
                round: true,
                limited: false,
                cruising: true,
            });
            if let Some(rate) = policer.rate() {
                return Some((round, rate));
            }
        }
        None
    }

    #[test]
    fn two_lossy_stretches_of_one_rate_are_a_policer() {
        let mut policer = Policer::default();
        // 50 kB in 100 ms are 4 Mbit/s; a quarter of it is lost besides. Stretches of four rounds from the first loss.
        let detected = rounds(&mut policer, 1, |_| (50, 13));
        assert_eq!(detected, Some((9, Rate::from_mbps(4.0))));
    }

    #[test]
    fn less_than_a_fifth_lost_is_congestion() {
        let mut policer = Policer::default();
        assert_eq!(rounds(&mut policer, 1, |_| (100, 19)), None);
        assert!(rounds(&mut policer, 100, |_| (100, 20)).is_some());
    }

    #[test]
    fn rates_that_differ_are_no_policers() {
        let mut policer = Policer::default();
        let detected = rounds(&mut policer, 1, |round| {
            let rate = 10 << (round / 4 % 8);
            (rate, rate / 3)
        });
        assert_eq!(detected, None);
    }

    #[test]
    fn the_rate_is_kept_for_48_rounds() {
        let mut policer = Policer::default();
        rounds(&mut policer, 1, |_| (50, 13)).expect("a policer");
        let mut over = 0;
        for round in 1..=KEPT_ROUNDS {
            over = round;
            let done = policer.on_delivery(&PolicerSample {
                now: Time::from_millis(u64::from(round) * 100),
                delivered: Bytes::new(1_000_000),
                lost: Bytes::ZERO,
                round: true,
                limited: false,
                cruising: true,
            });
            if done {
                break;
            }
        }
        assert_eq!((over, policer.rate()), (48, None));
    }
}
