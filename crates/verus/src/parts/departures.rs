//! How packets leave where an epoch differs from the paper's assumptions: many flows, many packets,
//! hardly any delay.
//!
//! **Many flows.** Between flows of equal ε the phase never changes, so that one flow always finds
//! the queue full that another has just filled. Its share then depends on when it happened to
//! begin. Floyd and Jacobson (1992, *On Traffic Phase Effects in Packet-Switched Gateways*)
//! describe this and its remedy, a random part in the time of sending. An epoch of a flow that
//! shares its path ends at a random moment within ε after it is due; due times stay ε apart.
//!
//! **Many packets.** On a fast path an epoch's packets would overfill a shallow buffer if they left at once. So they are
//! spread over the epoch where they are more than the pacer's burst.
//!
//! **Hardly any delay.** Where a round trip is within an epoch, a window that is filled once an
//! epoch leaves the path idle most of the time. It is therefore filled as acknowledgements make
//! room. Delays that vary within an epoch, such as those of a host's scheduler, are no queue that
//! one decision an epoch could control. So D_min is never less than ε.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use verus_core::pacer::BURST_PACKETS;
use verus_core::random;
use verus_core::units::Duration;

use super::{Flow, Leave, Part};
use crate::units::Packets;

/// Its only state is the random stream.
#[derive(Debug)]
pub struct Departures {
    random: ChaCha8Rng,
}

impl Part for Departures {
    fn begun(seed: u64) -> Self {
        Departures {
            random: random::stream(seed, "epochs", 0),
        }
    }

    fn is_late(&mut self, flow: &Flow) -> f64 {
        if flow.is_alone() {
            0.0
        } else {
            self.random.random()
        }
    }

    #[inline]
    fn leaves(&self, flow: &Flow, budget: Packets) -> Leave {
        if flow.rtt <= flow.epoch {
            Leave::Refilled
        } else if budget > Packets(f64::from(BURST_PACKETS)) {
            Leave::Spread
        } else {
            Leave::AtOnce
        }
    }

    fn least_delay(&self, epoch: Duration) -> Duration {
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Millis;
    use verus_core::units::Time;

    const EPOCH: Duration = Duration::from_millis(5);

    fn flow(rtt_ms: u64, met_ms: u64) -> Flow {
        Flow {
            now: Time::from_millis(10_000),
            ratio: 2.0,
            epoch: EPOCH,
            decrease_factor: 0.7,
            d_min: Duration::from_millis(40),
            d_est: Millis(40.0),
            rtt: Duration::from_millis(rtt_ms),
            d_min_met_at: Time::from_millis(met_ms),
            outage: Time::ZERO,
            in_flight: 10,
            settled: true,
        }
    }

    #[test]
    fn epochs_of_a_flow_that_shares_its_path_end_late_and_each_flow_has_its_own() {
        let late = |seed, met_ms| {
            let mut departures = Departures::begun(seed);
            [(); 3].map(|()| departures.is_late(&flow(40, met_ms)))
        };
        assert_eq!(late(1, 9900), [0.0; 3]);
        assert_ne!(late(1, 5000), late(2, 5000));
        assert!(late(1, 5000).iter().all(|share| (0.0..1.0).contains(share)));
    }

    #[test]
    fn many_packets_are_spread_and_a_short_path_is_kept_full() {
        let departures = Departures::begun(1);
        let leaves = |rtt_ms, budget| departures.leaves(&flow(rtt_ms, 9900), Packets(budget));
        assert_eq!(leaves(40, 32.0), Leave::AtOnce);
        assert_eq!(leaves(40, 33.0), Leave::Spread);
        assert_eq!(leaves(5, 33.0), Leave::Refilled);
        assert_eq!(departures.least_delay(EPOCH), EPOCH);
    }
}
