//! Proportional rate reduction: how to send while the window comes down (RFC 9937, RFC 6937).
//!
//! A window that falls at once stops the sender until half a flight has drained, then lets it go in
//! step with the acknowledgements. Proportional rate reduction sends β packets for each one
//! delivered from the start, so that the flight reaches the new threshold at the end of the round.
//! Losses may bring the flight below the threshold before that. It then sends as much as was
//! delivered (conservative bound), and a packet more while nothing further is lost (slow start
//! bound).
//!
//! As in Linux, the answer is expressed as a window: the flight plus the bytes that may be added to
//! it now.

use crate::units::Bytes;

/// The books of one recovery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prr {
    /// RecoverFS: bytes in flight when recovery began.
    flight: u64,
    /// prr_delivered: bytes acknowledged since.
    delivered: u64,
    /// prr_out: bytes sent since.
    out: u64,
}

/// One event's effect on the flight.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes newly acknowledged, in order or not. An event that only reveals losses (a loss timer)
    /// counts as one packet, as in Linux, since the lost packets left the path too.
    pub delivered: Bytes,
    /// Whether the event revealed no loss.
    pub lossless: bool,
    /// Bytes in flight after the event.
    pub in_flight: Bytes,
}

impl Prr {
    /// Recovery begins with `flight` under way.
    pub fn new(flight: Bytes) -> Self {
        // An empty flight cannot lose anything; the guard is for the division below.
        Prr {
            flight: flight.get().max(1),
            delivered: 0,
            out: 0,
        }
    }

    /// A packet left during recovery.
    pub fn on_sent(&mut self, size: Bytes) {
        self.out += size.get();
    }

    /// The window after an event, for a recovery towards `threshold` (ssthresh).
    pub fn on_feedback(
        &mut self,
        progress: &Progress,
        threshold: Bytes,
        packet_size: Bytes,
    ) -> Bytes {
        let Progress {
            delivered,
            lossless,
            in_flight,
        } = *progress;
        self.delivered += delivered.get();
        let allowed = if in_flight > threshold {
            // CEIL(prr_delivered × ssthresh / RecoverFS) − prr_out, in 128 bits because the product
            // of two windows need not fit in 64. The ratio exceeds one, which would send more than
            // arrives, if recovery began with less than ssthresh in flight and a spurious timeout
            // put packets back in flight. The maximum below caps it at one.
            let share = u128::from(self.delivered) * u128::from(threshold.get());
            let due = share.div_ceil(u128::from(self.flight.max(threshold.get())));
            u64::try_from(due)
                .unwrap_or(u64::MAX)
                .saturating_sub(self.out)
        } else {
            let conservative = self.delivered.saturating_sub(self.out).max(delivered.get());
            let bound = if lossless {
                conservative + packet_size.get()
            } else {
                conservative
            };
            bound.min((threshold - in_flight).get())
        };
        // The first retransmission leaves at once: it starts the recovery's own feedback.
        let first = if self.out == 0 { packet_size.get() } else { 0 };
        (in_flight + Bytes::new(allowed.max(first))).max(packet_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1000);

    fn acked_one(in_flight: u64, lossless: bool) -> Progress {
        Progress {
            delivered: SIZE,
            lossless,
            in_flight: SIZE * in_flight,
        }
    }

    #[test]
    fn half_as_much_leaves_as_arrives_until_the_flight_has_halved() {
        // 20 packets in flight, threshold 10: one packet out for every two delivered.
        let mut prr = Prr::new(SIZE * 20);
        let mut in_flight = 19; // the lost one has left it
        let mut sent = 0;
        for _ in 0..18 {
            in_flight -= 1;
            let window = prr.on_feedback(&acked_one(in_flight, true), SIZE * 10, SIZE);
            while SIZE * (in_flight + 1) <= window {
                prr.on_sent(SIZE);
                in_flight += 1;
                sent += 1;
            }
        }
        // 18 delivered × 10/20 = 9 sent, 19 − 18 + 9 = 10 in flight.
        assert_eq!((sent, in_flight), (9, 10));
    }

    #[test]
    fn a_flight_that_losses_emptied_grows_by_what_is_delivered_and_no_more_while_losses_go_on() {
        let mut prr = Prr::new(SIZE * 20);
        prr.on_sent(SIZE);
        // 4 left in flight of a threshold of 10. Delivered 1, sent 1 before: one packet.
        let window = prr.on_feedback(&acked_one(4, false), SIZE * 10, SIZE);
        assert_eq!(window, SIZE * 5);
        prr.on_sent(SIZE);
        // Without further loss one more: 4 + 1 + 1.
        let window = prr.on_feedback(&acked_one(4, true), SIZE * 10, SIZE);
        assert_eq!(window, SIZE * 6);
    }

    #[test]
    fn the_flight_never_passes_the_threshold() {
        let mut prr = Prr::new(SIZE * 20);
        let progress = Progress {
            delivered: SIZE * 9,
            lossless: true,
            in_flight: SIZE * 8,
        };
        assert_eq!(prr.on_feedback(&progress, SIZE * 10, SIZE), SIZE * 10);
    }

    #[test]
    fn no_more_leaves_than_arrives_though_the_flight_grew_by_what_was_presumed_lost() {
        // Recovery began with 2 in flight; of a timeout's 200 presumed lost all turn out to be under way.
        let mut prr = Prr::new(SIZE * 2);
        let mut sent = 0;
        for delivered in 1..=100 {
            let in_flight = 200 + sent - delivered;
            let window = prr.on_feedback(&acked_one(in_flight, true), SIZE * 90, SIZE);
            let allowed = (window - SIZE * in_flight).get() / SIZE.get();
            prr.on_sent(SIZE * allowed);
            sent += allowed;
            assert!(sent <= delivered, "{sent} sent for {delivered} delivered");
        }
        assert_eq!(sent, 100);
    }

    #[test]
    fn the_first_retransmission_leaves_at_once() {
        let mut prr = Prr::new(SIZE * 20);
        let progress = Progress {
            delivered: Bytes::new(1),
            lossless: false,
            in_flight: SIZE * 16,
        };
        assert_eq!(prr.on_feedback(&progress, SIZE * 10, SIZE), SIZE * 17);
    }
}
