//! Lost data that waits to be sent again.
//!
//! It leaves in the order in which it was lost. Any of it may turn out to have arrived, in an order that the receiver
//! chooses, so that finding a piece takes time logarithmic in how many wait.

use std::collections::{BTreeMap, BTreeSet};

use crate::receiver::DataRange;

/// A queue from which any piece can be removed. It keeps no trace of removed pieces. Otherwise a
/// receiver that lets pieces be declared lost and then acknowledges them, again and again, would
/// fill the memory with their places.
#[derive(Debug, Default)]
pub(crate) struct Resend {
    /// The pieces that wait, by place: their order of loss.
    queue: BTreeMap<u64, DataRange>,
    /// The place of the piece that is lost next.
    next: u64,
    /// The pieces that wait, as (start, length, place).
    waiting: BTreeSet<(u64, u64, u64)>,
}

impl Resend {
    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many pieces it keeps in memory.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Appends `data`, to be sent again after everything that waits already.
    pub(crate) fn push(&mut self, data: DataRange) {
        self.queue.insert(self.next, data);
        self.waiting.insert((data.start, data.len, self.next));
        self.next += 1;
    }

    /// Takes the piece to be sent next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<DataRange> {
        if self.queue.is_empty() {
            return None;
        }
        self.take()
    }

    fn take(&mut self) -> Option<DataRange> {
        let (place, data) = self.queue.pop_first()?;
        self.waiting.remove(&(data.start, data.len, place));
        Some(data)
    }

    /// `data` need not be sent again: removes it, if it waits; of two copies the first.
    pub(crate) fn cancel(&mut self, data: &DataRange) {
        let (start, len) = (data.start, data.len);
        let copies = (start, len, 0)..=(start, len, u64::MAX);
        let Some(&found) = self.waiting.range(copies).next() else {
            return;
        };
        self.waiting.remove(&found);
        self.queue.remove(&found.2);
    }

    /// Nothing need be sent again.
    pub(crate) fn clear(&mut self) {
        *self = Resend::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    fn piece(start: u64) -> DataRange {
        DataRange { start, len: 10 }
    }

    proptest! {
        #[test]
        fn it_is_a_queue_from_which_the_first_equal_piece_can_be_taken(
            steps in prop::collection::vec((0u8..3, 0u64..8), 1..200),
        ) {
            let (mut resend, mut plain) = (Resend::default(), VecDeque::new());
            for (step, start) in steps {
                match step {
                    0 => {
                        resend.push(piece(start));
                        plain.push_back(piece(start));
                    }
                    1 => prop_assert_eq!(resend.pop(), plain.pop_front()),
                    _ => {
                        resend.cancel(&piece(start));
                        if let Some(at) = plain.iter().position(|other| *other == piece(start)) {
                            plain.remove(at);
                        }
                    }
                }
                prop_assert_eq!(resend.is_empty(), plain.is_empty());
                prop_assert_eq!(resend.waiting.len(), plain.len());
                prop_assert_eq!(resend.len(), plain.len());
            }
        }
    }

    #[test]
    fn pieces_that_arrived_after_all_leave_nothing_behind_a_piece_that_waits() {
        let mut resend = Resend::default();
        resend.push(piece(0));
        for start in 1..1000 {
            resend.push(piece(start));
            resend.cancel(&piece(start));
        }
        assert_eq!(resend.len(), 1);
    }
}
