//! Bytes lost since a packet left.
//!
//! The draft stores with each packet the total lost when it left. Here each loss is stored with the
//! number of the next packet to leave, which yields the same from less state. Only the last few
//! dozen losses are kept, which is enough to decide: older ones count as lost before every packet
//! that is looked up.

use verus_core::units::Bytes;

/// Events kept.
const KEPT: usize = 64;

/// A flow's losses.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    /// A ring: the next packet to leave when something was lost, and all that had been lost by then.
    marks: [(u64, Bytes); KEPT],
    newest: usize,
    total: Bytes,
}

impl Losses {
    pub(super) fn new() -> Self {
        Losses {
            marks: [(0, Bytes::ZERO); KEPT],
            newest: 0,
            total: Bytes::ZERO,
        }
    }

    /// `size` is lost, before packet `next` leaves.
    pub(super) fn add(&mut self, next: u64, size: Bytes) {
        self.total += size;
        if self.marks[self.newest].0 != next {
            self.newest = (self.newest + 1) % KEPT;
        }
        self.marks[self.newest] = (next, self.total);
    }

    /// The bytes lost since packet `number` left.
    pub(super) fn since(&self, number: u64) -> Bytes {
        for back in 0..KEPT {
            let (next, total) = self.marks[(self.newest + KEPT - back) % KEPT];
            if next <= number {
                return self.total - total;
            }
        }
        // Lost before the oldest mark that is kept.
        let oldest = self.marks[(self.newest + 1) % KEPT];
        self.total - oldest.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_knows_what_was_lost_after_it_left() {
        let mut losses = Losses::new();
        let size = Bytes::new(1000);
        assert_eq!(losses.since(0), Bytes::ZERO);
        losses.add(10, size);
        losses.add(10, size);
        losses.add(20, size);
        assert_eq!(losses.since(9), size * 3);
        assert_eq!(losses.since(10), size);
        assert_eq!(losses.since(19), size);
        assert_eq!(losses.since(20), Bytes::ZERO);
        for next in 21..200 {
            losses.add(next, size);
        }
        assert_eq!(losses.since(189), size * 10);
        assert_eq!(losses.since(5), size * 63, "the oldest are forgotten");
    }
}
