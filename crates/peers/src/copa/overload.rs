//! A round trip that lost far more than it delivered.
//!
//! Copa ignores losses, and a queue that overflows all the time has a constant delay. Once the
//! least round-trip time of ten seconds was measured behind a full queue, the queue seems empty.
//! Then v doubles and nothing stops the window. The paper and mvfst's unit tests leave this case
//! open. Here it is persistent congestion (RFC 9002, §7.6), which every sender answers with the
//! least window. The queue drains, and the least round-trip time is measured again.

use verus_core::units::{Bytes, Duration, Time};

/// Lost for each byte delivered: more than a slow start loses that doubles in each round trip and ends late.
const LOST_PER_DELIVERED: u64 = 2;
/// Fewer packets than this say nothing.
const LEAST_LOST: u64 = 20;

/// Losses and deliveries of the round trip under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overload {
    began: Option<Time>,
    lost: Bytes,
    delivered: Bytes,
}

impl Overload {
    /// Counts; true at the end of a round trip that lost far more than it delivered.
    pub(super) fn on_feedback(
        &mut self,
        now: Time,
        round_trip: Duration,
        packet_size: Bytes,
        (lost, delivered): (Bytes, Bytes),
    ) -> bool {
        self.lost += lost;
        self.delivered += delivered;
        let began = *self.began.get_or_insert(now);
        if now.since(began) < round_trip {
            return false;
        }
        let overloaded = self.lost > self.delivered * LOST_PER_DELIVERED
            && self.lost >= packet_size * LEAST_LOST;
        *self = Overload {
            began: Some(now),
            ..Overload::default()
        };
        overloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses and delivers so many packets in one round trip; whether that was an overload.
    fn round(lost: u64, delivered: u64) -> bool {
        let size = Bytes::new(1500);
        let round_trip = Duration::from_millis(100);
        let mut overload = Overload::default();
        let counts = (size * lost, size * delivered);
        assert!(!overload.on_feedback(Time::ZERO, round_trip, size, counts));
        overload.on_feedback(
            Time::ZERO + round_trip,
            round_trip,
            size,
            Default::default(),
        )
    }

    #[test]
    fn more_than_two_thirds_lost_is_an_overload() {
        assert!(round(201, 100));
        assert!(!round(200, 100));
    }

    #[test]
    fn a_few_packets_say_nothing() {
        assert!(round(20, 0));
        assert!(!round(19, 0));
    }

    #[test]
    fn each_round_trip_counts_anew() {
        let size = Bytes::new(1500);
        let round_trip = Duration::from_millis(100);
        let mut overload = Overload::default();
        let counts = (size * 30, Bytes::ZERO);
        assert!(!overload.on_feedback(Time::ZERO, round_trip, size, counts));
        let mut now = Time::ZERO + round_trip;
        assert!(overload.on_feedback(now, round_trip, size, Default::default()));
        now += round_trip;
        assert!(!overload.on_feedback(now, round_trip, size, Default::default()));
    }
}
