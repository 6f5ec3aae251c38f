//! Pacing by credit (a token bucket).
//!
//! A credit in bytes fills at the pacing rate and is spent by departures: a packet leaves when there is credit for it.
//! The same rule serves rates of one packet in five round trips and of thousands of packets in one. Credit beyond a
//! burst is not saved.

use crate::units::{Bytes, Duration, Rate, Time};

/// The pacing timer's granularity: packets due within 1 ms leave as one burst, which any queue can hold, and the sender
/// wakes up at most a thousand times a second.
pub const TICK: Duration = Duration::from_millis(1);

/// A byte in the unit of credit. The unit is the credit earned at 1 bit/s in 1 ns, so that filling
/// and spending take no division.
const BYTE: u64 = 8_000_000_000;

/// A flow's credit.
#[derive(Clone, Copy, Debug)]
pub struct Credit {
    filled: u64,
    at: Time,
}

impl Credit {
    /// This much to begin with.
    pub fn new(bytes: Bytes, now: Time) -> Self {
        Credit {
            filled: in_units(bytes),
            at: now,
        }
    }

    /// Fills up to `now` at `rate`, to at most two packets of `size` or two ticks' worth. Credit above that, earned at
    /// a higher rate, is lost.
    pub fn fill(&mut self, now: Time, rate: Rate, size: Bytes) {
        let over = |span: Duration| rate.as_bps().saturating_mul(span.as_nanos());
        let cap = over(TICK * 2).max(in_units(size * 2));
        let filled = self.filled.saturating_add(over(now.since(self.at)));
        self.filled = filled.min(cap);
        self.at = self.at.max(now);
    }

    /// A packet leaves.
    pub fn spend(&mut self, size: Bytes) {
        self.filled = self.filled.saturating_sub(in_units(size));
    }

    /// Bytes that may leave now.
    pub fn get(&self) -> Bytes {
        Bytes::new(self.filled / BYTE)
    }

    /// When there will be credit for a packet of `size`.
    pub fn next(&self, rate: Rate, size: Bytes) -> Time {
        let missing = in_units(size).saturating_sub(self.filled);
        self.at + Duration::from_nanos(missing.div_ceil(rate.as_bps())).max(TICK)
    }
}

fn in_units(bytes: Bytes) -> u64 {
    bytes.get().saturating_mul(BYTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1500);

    #[test]
    fn a_packet_in_five_seconds_is_a_rate_like_any_other() {
        let rate = Rate::from_bps(2400);
        let mut credit = Credit::new(Bytes::ZERO, Time::ZERO);
        for ms in (0..=5000).step_by(7) {
            credit.fill(Time::from_millis(ms), rate, SIZE);
        }
        assert!(credit.get() >= Bytes::new(1490) && credit.get() <= SIZE);
        assert!(credit.next(rate, SIZE) <= Time::from_millis(5020));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut credit = Credit::new(Bytes::ZERO, Time::ZERO);
        credit.fill(Time::from_millis(60_000), Rate::from_mbps(1.0), SIZE);
        assert_eq!(credit.get(), SIZE * 2);
        credit.fill(Time::from_millis(120_000), Rate::from_mbps(120.0), SIZE);
        assert_eq!(credit.get(), SIZE * 20);
    }

    #[test]
    fn credit_of_a_higher_rate_is_not_saved() {
        let mut credit = Credit::new(SIZE * 10, Time::ZERO);
        // Before the first round trip is known, a window may leave at once.
        credit.fill(Time::from_millis(1), Rate::from_mbps(1e5), SIZE);
        assert!(credit.get() > SIZE * 1000);
        credit.fill(Time::from_millis(2), Rate::from_mbps(1.0), SIZE);
        assert_eq!(credit.get(), SIZE * 2);
    }
}
