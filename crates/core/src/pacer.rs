//! Spreads departures at a rate.
//!
//! A rate is data: a controller states one, and the sender's only pacer enforces it. Packets leave
//! in bursts, of up to [`BURST_PACKETS`] unless the controller sets another size. A timer for each
//! packet would make pacing expensive. A burst is half of the 64 packets that Linux takes in one
//! call (UDP segmentation offload).

use crate::units::{Bytes, Duration, Rate, Time};

/// Packets that may leave back to back.
pub const BURST_PACKETS: u32 = 32;

/// The largest burst in bytes, as large as the most that hosts hand to segmentation offload at
/// once.
pub const MOST_IN_BURST: Bytes = Bytes::new(65_536);

/// How many bytes may leave back to back at `rate`: as many as leave in `span`, but at least
/// `least` and at most 64 kB (draft-ietf-ccwg-bbr, "Send Quantum").
pub fn quantum(rate: Rate, span: Duration, least: Bytes) -> Bytes {
    let carried = rate.bytes_in(span);
    carried.min(MOST_IN_BURST).max(least)
}

/// Enforces a rate by holding the next burst until the last one has had its share of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Time,
    /// How many more bytes may leave with the burst under way.
    burst_left: Bytes,
}

impl Pacer {
    /// When the next burst may leave.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Whether a packet may leave at `now`.
    pub fn is_ready(&self, now: Time) -> bool {
        !self.burst_left.is_zero() || now >= self.next
    }

    /// A packet of `size` left at `now`, at `rate`, in bursts of `burst`. Unused time is not saved for later bursts.
    pub fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate, burst: Option<Bytes>) {
        if now >= self.next {
            self.burst_left = burst.unwrap_or(size * u64::from(BURST_PACKETS));
        }
        self.burst_left = self.burst_left.saturating_sub(size);
        self.next = self.next.max(now) + rate.time_for(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_is_what_the_rate_carries_within_bounds() {
        let pair = Bytes::new(3000);
        let at = |mbps| quantum(Rate::from_mbps(mbps), Duration::from_millis(1), pair).get();
        assert_eq!([at(1.0), at(80.0), at(1000.0)], [3000, 10_000, 65_536]);
    }

    #[test]
    fn bursts_leave_a_burst_time_apart_and_idle_time_is_not_saved() {
        let mut pacer = Pacer::default();
        let (rate, size) = (Rate::from_mbps(12.0), Bytes::new(1500)); // 1 ms a packet
        let burst = |pacer: &mut Pacer, at: Time| {
            let mut count = 0;
            while pacer.is_ready(at) {
                pacer.on_sent(at, size, rate, None);
                count += 1;
            }
            count
        };
        assert_eq!(burst(&mut pacer, Time::from_millis(10)), BURST_PACKETS);
        assert_eq!(pacer.next(), Time::from_millis(42));
        assert_eq!(burst(&mut pacer, Time::from_millis(41)), 0);
        assert_eq!(burst(&mut pacer, Time::from_millis(42)), BURST_PACKETS);
        assert_eq!(burst(&mut pacer, Time::from_millis(200)), BURST_PACKETS);
    }

    #[test]
    fn who_says_how_long_a_burst_is_gets_bursts_as_long() {
        let mut pacer = Pacer::default();
        let (rate, size) = (Rate::from_mbps(12.0), Bytes::new(1500));
        let mut departures = Vec::new();
        for ms in 0..8 {
            while pacer.is_ready(Time::from_millis(ms)) {
                pacer.on_sent(Time::from_millis(ms), size, rate, Some(size * 2));
                departures.push(ms);
            }
        }
        assert_eq!(departures, [0, 0, 2, 2, 4, 4, 6, 6]);
    }
}
