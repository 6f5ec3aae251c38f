//! Trials of a shorter queue, where losses are frequent and do not come from a full buffer.
//!
//! A policer (RFC 2475 §2.3.3.3), a buffer of a few packets and a queue that drops early (RFC 8289,
//! RFC 8033, RED) lose less if the flow's queue is shorter. Random losses do not. So c is lowered,
//! and r held a little below the delivery rate, until p is measured anew. Where p has not fallen by
//! a quarter, the losses are random: c is restored, and the next trial begins later each time.

use verus_core::units::{Bytes, Duration, Rate, Time};

use crate::law::ONE;

/// The share of lost packets beyond which losses are frequent: one in this many.
const FREQUENT_LOSS: u64 = 48;
/// The time over which p is averaged. Losses are frequent for as long before a trial, which then
/// holds r and measures p for as long. It is also the time between two cuts of c.
const MEMORY: Duration = Duration::from_secs(2);
/// The part of p before a trial below which p shows that a shorter queue loses less. Half would be
/// less than flows of one policer can show whose trials do not coincide.
const FEWER: (u64, u64) = (3, 4);
/// Packets by which the losses in a trial must be fewer beyond that, since few vary by chance.
const CHANCE_PACKETS: u64 = 4;
/// The time after which a trial ends that had lowered p, if p is high again. Another flow that
/// comes is itself in a trial by then.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time from a trial that failed to the next, and how often it doubles at most.
const PAUSE: Duration = Duration::from_secs(4);
const MOST_DOUBLINGS: u8 = 5;
/// The part of r that a trial holds: more would exceed a policer's rate by the noise of r.
const HELD: (u64, u64) = (7, 8);
/// The part of r before a trial below which c is not lowered again. Other flows cause the losses.
const KEPT: (u32, u32) = (3, 4);

/// The state of a trial, with the measurements before and in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// p before the trial, 2^-16; zero outside of one.
    loss_before: u32,
    /// r before the trial, kbit/s.
    rate_kbps: u32,
    /// When p was last low, or in a trial less than three quarters of that before.
    calm_at: Time,
    /// When c may be lowered next, and the verdict on an open trial is due.
    next_at: Time,
    /// Bytes lost or marked, with those allowed for chance, and bytes lost or delivered, since a
    /// round trip after the beginning.
    lost: u32,
    settled: u32,
    /// Whether a trial has yet to show its worth.
    is_open: bool,
    /// Trials that failed since one succeeded.
    failed: u8,
}

impl Trial {
    pub(super) fn new() -> Self {
        Trial {
            loss_before: 0,
            rate_kbps: 0,
            calm_at: Time::ZERO,
            next_at: Time::ZERO,
            lost: 0,
            settled: 0,
            is_open: false,
            failed: 0,
        }
    }

    /// Whether c is that of a trial.
    pub(super) fn is_on(&self) -> bool {
        self.loss_before > 0
    }

    /// Whether r keeps its value, so that losses change by q alone.
    pub(super) fn holds_rate(&self) -> bool {
        self.is_open
    }

    /// Whether a loss at the flow's own queue lowers c. `rate`: r; `lost`: p.
    pub(super) fn lowers(&self, now: Time, rate: Rate, lost: u64) -> bool {
        let is_due = if self.is_on() {
            kbps(rate) >= self.rate_kbps / KEPT.1 * KEPT.0
        } else {
            now.since(self.calm_at) > MEMORY
        };
        lost * FREQUENT_LOSS > ONE && is_due && now >= self.next_at
    }

    /// Notes that c was lowered; returns whether a trial begins.
    pub(super) fn on_lowered(&mut self, now: Time, rate: Rate, lost: u64, packet: Bytes) -> bool {
        self.next_at = now + MEMORY;
        if self.is_on() {
            return false;
        }
        self.loss_before = lost.clamp(1, ONE) as u32;
        self.rate_kbps = kbps(rate);
        (self.lost, self.settled, self.is_open) = (0, 0, true);
        self.add(packet * CHANCE_PACKETS, Bytes::ZERO);
        true
    }

    /// The rate that a trial holds.
    pub(super) fn rate_in_trial(rate: Rate) -> Rate {
        Rate::from_bps(rate.as_bps() / HELD.1 * HELD.0)
    }

    /// Counts bytes `lost` or marked, and bytes `settled`: lost or delivered.
    pub(super) fn count(&mut self, now: Time, smoothed_rtt: Duration, lost: Bytes, settled: Bytes) {
        if self.is_open && now + MEMORY > self.next_at + smoothed_rtt {
            self.add(lost, settled);
        }
    }

    fn add(&mut self, lost: Bytes, settled: Bytes) {
        let added = |sum: u32, bytes: Bytes| {
            sum.saturating_add(u32::try_from(bytes.get()).unwrap_or(u32::MAX))
        };
        self.lost = added(self.lost, lost);
        self.settled = added(self.settled, settled);
    }

    /// Judges the trial by `lost`, which is p. If the losses are random, ends it and returns r before
    /// it, or zero if that was long ago.
    pub(super) fn judge(&mut self, now: Time, lost: u64) -> Option<Rate> {
        let fewer = u64::from(self.loss_before) * FEWER.0 / FEWER.1;
        if lost * FREQUENT_LOSS <= ONE || lost < fewer {
            self.calm_at = now;
        }
        if !self.is_on() {
            return None;
        }
        if self.is_open {
            if now < self.next_at {
                return None;
            }
            self.is_open = false;
            if u64::from(self.lost) * ONE >= u64::from(self.settled) * fewer {
                return self.fail(now, Rate::from_bps(u64::from(self.rate_kbps) * 1000));
            }
            (self.calm_at, self.failed) = (now, 0);
        } else if now.since(self.calm_at) > PATIENCE {
            return self.fail(now, Rate::default());
        }
        None
    }

    fn fail(&mut self, now: Time, rate: Rate) -> Option<Rate> {
        self.end();
        self.next_at = now + PAUSE * (1 << self.failed);
        self.failed = (self.failed + 1).min(MOST_DOUBLINGS);
        Some(rate)
    }

    /// Ends the trial, since c no longer limits, or a full buffer does.
    pub(super) fn end(&mut self) {
        (self.loss_before, self.is_open) = (0, false);
    }
}

fn kbps(rate: Rate) -> u32 {
    u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_bps(8_000_000);
    const RTT: Duration = Duration::from_millis(40);
    const PACKET: Bytes = Bytes::new(1);
    /// p of one packet in twenty.
    const FREQUENT: u64 = ONE / 20;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// A trial that began at 3 s and counted `lost` of a thousand packets of a byte.
    fn trial(lost: u64) -> Trial {
        let mut trial = Trial::new();
        trial.judge(at(900), 0);
        assert!(!trial.lowers(at(2900), RATE, FREQUENT));
        assert!(trial.lowers(at(3000), RATE, FREQUENT));
        assert!(trial.on_lowered(at(3000), RATE, FREQUENT, PACKET));
        let (lost, settled) = (Bytes::new(lost), Bytes::new(1000));
        trial.count(at(3040), RTT, settled, settled);
        trial.count(at(3041), RTT, lost, settled);
        trial
    }

    #[test]
    fn losses_are_frequent_for_two_seconds_before_a_trial() {
        let mut trial = Trial::new();
        trial.judge(at(1000), ONE / 49);
        assert!(!trial.lowers(at(3000), RATE, FREQUENT));
        assert!(!trial.lowers(at(3001), RATE, ONE / 49));
        assert!(trial.lowers(at(3001), RATE, FREQUENT));
    }

    #[test]
    fn a_trial_in_which_losses_are_about_as_frequent_ends_and_restores_the_rate() {
        let mut trial = trial(34);
        assert!(trial.holds_rate());
        assert_eq!(trial.judge(at(4999), FREQUENT), None);
        assert_eq!(trial.judge(at(5000), FREQUENT), Some(RATE));
        assert!(!trial.is_on() && !trial.holds_rate());
    }

    #[test]
    fn pauses_between_failed_trials_double_until_one_succeeds() {
        let mut trial = Trial::new();
        let mut now = at(3000);
        for seconds in [4, 8, 16, 32, 64, 128, 128] {
            assert!(trial.on_lowered(now, RATE, FREQUENT, PACKET));
            now += MEMORY;
            assert_eq!(trial.judge(now, FREQUENT), Some(RATE));
            now += Duration::from_secs(seconds);
            assert!(!trial.lowers(now - RTT, RATE, FREQUENT) && trial.lowers(now, RATE, FREQUENT));
        }
        trial.on_lowered(now, RATE, FREQUENT, PACKET);
        trial.count(now + RTT * 2, RTT, Bytes::ZERO, Bytes::new(1000));
        assert_eq!(trial.judge(now + MEMORY, FREQUENT), None);
        assert_eq!(trial.failed, 0);
    }

    #[test]
    fn a_trial_with_fewer_losses_goes_on_and_lowers_c_again() {
        let mut trial = trial(33);
        assert_eq!(trial.judge(at(5000), FREQUENT), None);
        assert!(trial.is_on() && !trial.holds_rate());
        assert!(trial.lowers(at(5000), RATE, FREQUENT));
        assert!(!trial.on_lowered(at(5000), RATE, FREQUENT, PACKET));
        assert!(!trial.lowers(at(6999), RATE, FREQUENT));
    }

    #[test]
    fn it_ends_when_losses_stay_frequent_for_three_seconds() {
        let mut trial = trial(0);
        trial.judge(at(5000), FREQUENT);
        assert_eq!(trial.judge(at(8000), FREQUENT), None);
        trial.judge(at(8000), FREQUENT * 3 / 4 - 1);
        assert_eq!(trial.judge(at(11_000), FREQUENT), None);
        assert_eq!(trial.judge(at(11_001), FREQUENT), Some(Rate::default()));
    }

    #[test]
    fn c_is_not_lowered_again_while_other_flows_take_a_quarter_of_the_rate() {
        let mut trial = trial(0);
        trial.judge(at(5000), FREQUENT);
        assert!(!trial.lowers(at(5000), Rate::from_bps(5_999_000), FREQUENT));
        assert!(trial.lowers(at(5000), Rate::from_bps(6_000_000), FREQUENT));
    }
}
