//! Spreads departures at a rate.
//!
//! A rate is data: a controller states one, and the sender's only pacer enforces it. Packets leave
//! in bursts of up to [`BURST_PACKETS`]: a timer for each packet is what makes pacing dear, and a
//! burst of this size is half of what segmentation offload sends at once anyway.

use crate::units::{Bytes, Rate, Time};

/// Packets that may leave back to back.
pub const BURST_PACKETS: u32 = 32;

/// Enforces a rate by holding the next burst until the last one has had its share of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Time,
    burst_left: u32,
}

impl Pacer {
    /// When the next burst may leave.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Whether a packet may leave at `now`.
    pub fn is_ready(&self, now: Time) -> bool {
        self.burst_left > 0 || now >= self.next
    }

    /// A packet of `size` left at `now`, under `rate`. Time that went unused is not saved up: the
    /// pacer spreads, it does not owe.
    pub fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate) {
        if now >= self.next {
            self.burst_left = BURST_PACKETS;
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        self.next = self.next.max(now) + rate.time_for(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_leave_a_burst_time_apart_and_idle_time_is_not_saved() {
        let mut pacer = Pacer::default();
        let (rate, size) = (Rate::from_mbps(12.0), Bytes::new(1500)); // 1 ms a packet
        let burst = |pacer: &mut Pacer, at: Time| {
            let mut count = 0;
            while pacer.is_ready(at) {
                pacer.on_sent(at, size, rate);
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
}
