//! Spreads departures at a rate.
//!
//! A rate is data: a controller states one, and the sender's only pacer enforces it.

use crate::units::{Bytes, Rate, Time};

/// Enforces a rate by holding the next packet until the last one has had its share of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Time,
}

impl Pacer {
    /// When the next packet may leave.
    pub fn next(&self) -> Time {
        self.next
    }

    /// A packet of `size` left at `now`, under `rate`. Time that went unused is not saved up: the
    /// pacer spreads, it does not owe.
    pub fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate) {
        self.next = self.next.max(now) + rate.time_for(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_packet_time_apart_and_idle_time_is_not_saved() {
        let mut pacer = Pacer::default();
        let (rate, size) = (Rate::from_mbps(12.0), Bytes::new(1500)); // 1 ms a packet
        pacer.on_sent(Time::from_millis(10), size, rate);
        assert_eq!(pacer.next(), Time::from_millis(11));
        pacer.on_sent(Time::from_millis(11), size, rate);
        assert_eq!(pacer.next(), Time::from_millis(12));
        pacer.on_sent(Time::from_millis(50), size, rate);
        assert_eq!(pacer.next(), Time::from_millis(51));
    }
}
