//! Whether the bandwidth has stopped growing (draft-ietf-ccwg-bbr, "Exiting Acceleration Based on Bandwidth Plateau").

use verus_core::units::Rate;

/// The pipe is full after this many rounds
const ROUNDS: u32 = 3;
/// that brought less than this over the greatest before.
const GROWTH: f64 = 1.25;

/// The detector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    baseline: Rate,
    rounds: u32,
    /// full_bw_now: the present search has found it.
    now: bool,
    /// full_bw_reached: some search has.
    reached: bool,
}

impl FullPipe {
    /// A search begins, from this rate on (ResetFullBW).
    pub(super) fn restart(&mut self, baseline: Rate) {
        (self.baseline, self.rounds, self.now) = (baseline, 0, false);
    }

    /// Losses have shown that it is full (CheckStartupHighLoss).
    pub(super) fn fill(&mut self) {
        self.reached = true;
    }

    /// They were none: it may not have been full.
    pub(super) fn doubt(&mut self) {
        self.reached = false;
    }

    /// The rate of a round that the source did not limit (CheckFullBWReached).
    pub(super) fn on_round(&mut self, rate: Rate) {
        if self.now {
            return;
        }
        if rate >= self.baseline.mul_f64(GROWTH) {
            self.restart(rate);
            return;
        }
        self.rounds += 1;
        self.now = self.rounds >= ROUNDS;
        self.reached |= self.now;
    }

    pub(super) fn is_now(&self) -> bool {
        self.now
    }

    pub(super) fn is_reached(&self) -> bool {
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_without_a_quarter_more_fill_it() {
        let mut pipe = FullPipe::default();
        for mbps in [1.0, 2.0, 2.4, 2.4, 2.5, 2.6, 3.0] {
            pipe.on_round(Rate::from_mbps(mbps));
            assert!(!pipe.is_now());
        }
        pipe.on_round(Rate::from_mbps(3.1));
        assert!(pipe.is_now() && pipe.is_reached());
        pipe.restart(Rate::from_mbps(3.1));
        assert!(!pipe.is_now() && pipe.is_reached());
    }
}
