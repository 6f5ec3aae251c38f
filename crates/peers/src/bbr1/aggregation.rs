//! Acknowledgements that come in bursts, as over Wi-Fi and cellular links.
//!
//! In between, more must be in flight than bandwidth × delay for the sender not to run dry. How much more is what arrived in
//! excess of the bandwidth, at the most, over the last five to ten round trips (Linux; N. Cardwell et al., "BBR Congestion
//! Control Work at Google: IETF 101 Update", 2018).

use crate::windowed::TwoSpans;
use verus_core::units::{Bytes, Duration, Rate, Time};

/// Round trips in each of two spans.
const SPAN_ROUNDS: u32 = 5;
/// An excess over a bandwidth that has long been outgrown is none.
const MOST: Bytes = Bytes::new(1 << 30);
/// The window grows by what the bandwidth carries in this time at the most.
const ALLOWED: Duration = Duration::from_millis(100);

/// A delivery that an acknowledgement reports.
pub(super) struct Delivery {
    pub now: Time,
    pub delivered: Bytes,
    pub bandwidth: Rate,
    /// Whether it began a round.
    pub round: bool,
    pub window: Bytes,
}

/// A flow's acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    since: Time,
    delivered: Bytes,
    extra: TwoSpans<Bytes>,
    rounds: u32,
}

impl Aggregation {
    /// Restarts after the source has paused until `now`: earlier deliveries no longer count.
    pub(super) fn restart(&mut self, now: Time) {
        (self.since, self.delivered) = (now, Bytes::ZERO);
    }

    pub(super) fn on_delivery(&mut self, delivery: &Delivery) {
        if delivery.round {
            self.rounds += 1;
            if self.rounds >= SPAN_ROUNDS {
                self.rounds = 0;
                self.extra.advance();
            }
        }
        let mut expected = delivery.bandwidth.bytes_in(delivery.now.since(self.since));
        if self.delivered <= expected || self.delivered + delivery.delivered >= MOST {
            self.restart(delivery.now);
            expected = Bytes::ZERO;
        }
        self.delivered += delivery.delivered;
        let extra = self.delivered.saturating_sub(expected);
        self.extra.update(extra.min(delivery.window));
    }

    /// The bytes by which the window is extended.
    pub(super) fn allowance(&self, bandwidth: Rate) -> Bytes {
        self.extra.get().min(bandwidth.bytes_in(ALLOWED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_once_is_allowed_for_until_ten_rounds_later() {
        let mut aggregation = Aggregation::default();
        let bandwidth = Rate::from_mbps(8.0); // a byte each µs
        let mut acknowledge = |ms: u64, delivered: u64, round: bool| {
            aggregation.on_delivery(&Delivery {
                now: Time::from_millis(ms),
                delivered: Bytes::new(delivered),
                bandwidth,
                round,
                window: Bytes::new(100_000),
            });
            aggregation.allowance(bandwidth).get()
        };
        // As fast as the bandwidth: nothing but the packet itself.
        for ms in 1..50 {
            assert_eq!(acknowledge(ms, 1000, false), 1000);
        }
        // Nothing for 20 ms, then everything at once: it counts with the packet before it, less the
        // bytes that the bandwidth carries in 20 ms.
        assert_eq!(acknowledge(70, 21_000, false), 21_000);
        // The next one of 20 ms later makes up what the bandwidth carries.
        assert_eq!(acknowledge(90, 20_000, false), 21_000);
        for round in 1..=9 {
            assert_eq!(
                acknowledge(90 + round * 40, 1000, true),
                21_000,
                "round {round}"
            );
        }
        assert_eq!(acknowledge(490, 1000, true), 1000);
    }

    #[test]
    fn no_more_is_allowed_than_the_bandwidth_carries_in_a_tenth_of_a_second() {
        let mut aggregation = Aggregation::default();
        let bandwidth = Rate::from_mbps(8.0);
        aggregation.on_delivery(&Delivery {
            now: Time::ZERO,
            delivered: Bytes::new(500_000),
            bandwidth,
            round: false,
            window: Bytes::new(1_000_000),
        });
        assert_eq!(aggregation.allowance(bandwidth), Bytes::new(100_000));
    }
}
