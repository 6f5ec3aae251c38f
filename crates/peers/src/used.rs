//! Whether the window is used: one that is not says nothing of the path, and grows no further.
//!
//! A source that pauses, or a machine too slow to fill the window, would otherwise raise it without
//! end. Later it could send all of it at once (RFC 9002 §7.8; RFC 9438 §5.8). By RFC 7661 §4.2 a
//! window is validated while at least half of it is in flight. Pacing may leave the rest unfilled,
//! and slow start must be able to double.

use verus_core::controller::Departure;

/// The packets that were in flight while their window was used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Numbers below this had left when the window was last used.
    before: u64,
}

impl Used {
    /// A packet leaves.
    #[inline]
    pub(crate) fn on_sent(&mut self, packet: &Departure) {
        if packet.in_flight.get() * 2 >= packet.window.get() {
            self.before = packet.number + 1;
        }
    }

    /// Whether the acknowledgement of a packet says that a larger window may fit. At least half of
    /// the window was used while the packet was in flight, and the source had more data when it
    /// left. The first packets of a burst count with its last.
    #[inline]
    pub(crate) fn supports_growth(&self, packet: &Departure) -> bool {
        packet.number < self.before && !packet.app_limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing::{SIZE, departure};
    use verus_core::units::Time;

    fn sent(used: &mut Used, number: u64, in_flight: u64, window: u64) -> Departure {
        let packet = Departure {
            in_flight: SIZE * in_flight,
            window: SIZE * window,
            ..departure(number, Time::ZERO)
        };
        used.on_sent(&packet);
        packet
    }

    #[test]
    fn the_first_packet_of_a_burst_counts_with_its_last() {
        let mut used = Used::default();
        let first = sent(&mut used, 0, 1, 10);
        assert!(!used.supports_growth(&first));
        for number in 1..4 {
            sent(&mut used, number, number + 1, 10);
        }
        assert!(!used.supports_growth(&first));
        sent(&mut used, 4, 5, 10);
        assert!(used.supports_growth(&first));
        let later = sent(&mut used, 5, 4, 10);
        assert!(!used.supports_growth(&later));
    }

    #[test]
    fn a_source_that_ran_dry_supports_nothing() {
        let mut used = Used::default();
        let packet = sent(&mut used, 0, 10, 10);
        assert!(used.supports_growth(&packet));
        assert!(!used.supports_growth(&Departure {
            app_limited: true,
            ..packet
        }));
    }
}
