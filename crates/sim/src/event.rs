//! The time-ordered queue of events.
//!
//! One rule settles ties, so that a run has one outcome. At equal times the lower class goes first:
//! connections that begin, get data or end; then arrivals, feedback, timers and samples; the
//! service of links last. Within a class events leave in the order in which they were added.
//! Packets that arrive through one pipe at one instant do so in the order in which they set out.
//! Senders process all feedback of an instant before any of them sends.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use verus_core::Time;

/// Something that happens at an instant. The number is that of the flow, or of the pipe for arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection of a flow begins.
    Start(u32),
    /// A flow's live source has another frame.
    Frame(u32),
    /// A flow's client asks for a page.
    Ask(u32),
    /// The source of a flow's connection begins to send again, or pauses.
    Turn(u32),
    /// The time of a flow's connection is over.
    Pause(u32),
    /// A flow ends.
    Stop(u32),
    /// The packet at the head of a pipe of the data's path arrives.
    Data(u32),
    /// The acknowledgement at the head of a pipe of the way back arrives.
    Ack(u32),
    /// A delayed acknowledgement is due.
    ReceiverTimer(u32),
    /// A tick of the algorithm's receiver half.
    ObserverTimer(u32),
    /// A timer of the sender: loss, timeout, pacing or the controller's tick.
    SenderTimer(u32),
    /// Time series are sampled and progress is reported.
    Sample,
    /// The links of the data's path serve the packets that are due.
    Service,
    /// The links of the way back serve the packets that are due.
    AckService,
    /// A station of the medium that both directions share begins to transmit.
    Medium,
}

impl Event {
    fn class(self) -> u64 {
        match self {
            Event::Start(_)
            | Event::Frame(_)
            | Event::Ask(_)
            | Event::Turn(_)
            | Event::Pause(_)
            | Event::Stop(_) => 0,
            Event::Data(_) => 1,
            Event::Ack(_) => 2,
            Event::ReceiverTimer(_) | Event::ObserverTimer(_) | Event::SenderTimer(_) => 3,
            Event::Sample => 4,
            Event::Service | Event::AckService | Event::Medium => 5,
        }
    }
}

/// Bits of an event's order that number it within its class.
const SEQUENCE_BITS: u32 = 60;

/// A pending event.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at: Time,
    /// Its class in the highest bits, and in the others its number within the class.
    order: u64,
    event: Event,
}

impl Pending {
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at.as_nanos()) << 64 | u128::from(self.order)
    }
}

impl Ord for Pending {
    /// Reversed, so that the earliest event is the greatest: the heap yields the greatest first.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Pending {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Pending {}

/// Pending events, earliest first.
///
/// Handling an event mostly adds another. So the event taken last stays at the heap's root until then, and the new one
/// replaces it there: the heap is reordered once rather than twice.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Pending>,
    /// Whether the event at the root has been taken.
    taken: bool,
    sequence: u64,
}

impl EventQueue {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: Time, event: Event) {
        let order = event.class() << SEQUENCE_BITS | self.sequence;
        self.sequence += 1;
        let pending = Pending { at, order, event };
        if self.taken
            && let Some(mut root) = self.heap.peek_mut()
        {
            *root = pending;
        } else {
            self.heap.push(pending);
        }
        self.taken = false;
    }

    /// The time of the next event.
    pub fn next_at(&mut self) -> Option<Time> {
        if self.taken
            && let Some(root) = self.heap.peek_mut()
        {
            PeekMut::pop(root);
        }
        self.taken = false;
        self.heap.peek().map(|next| next.at)
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, Event)> {
        if self.taken
            && let Some(root) = self.heap.peek_mut()
        {
            PeekMut::pop(root);
        }
        let next = self.heap.peek();
        self.taken = next.is_some();
        next.map(|next| (next.at, next.event))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In any order of additions and removals, each removal takes the earliest event present.
        #[test]
        fn the_earliest_event_is_taken(steps in proptest::collection::vec((0..50u64, any::<bool>()), 0..200)) {
            let mut queue = EventQueue::default();
            let mut pending: Vec<(Time, u32)> = Vec::new();
            for (number, (ms, take)) in steps.into_iter().enumerate() {
                if take {
                    let earliest = pending.iter().copied().min();
                    pending.retain(|one| Some(*one) != earliest);
                    let expected = earliest.map(|(at, number)| (at, Event::Data(number)));
                    prop_assert_eq!(queue.pop(), expected);
                } else {
                    let (at, number) = (Time::from_millis(ms), number as u32);
                    pending.push((at, number));
                    queue.push(at, Event::Data(number));
                }
            }
        }
    }

    #[test]
    fn ties_go_by_class_and_then_by_order_of_adding() {
        let mut queue = EventQueue::default();
        let at = Time::from_millis(5);
        let added = [
            Event::Service,
            Event::SenderTimer(1),
            Event::Ack(2),
            Event::Data(0),
            Event::SenderTimer(0),
            Event::Ack(1),
            Event::Sample,
            Event::Start(3),
        ];
        for event in added {
            queue.push(at, event);
        }
        queue.push(Time::from_millis(4), Event::AckService);
        let order: Vec<Event> = std::iter::from_fn(|| queue.pop())
            .map(|(_, event)| event)
            .collect();
        assert_eq!(
            order,
            [
                Event::AckService,
                Event::Start(3),
                Event::Data(0),
                Event::Ack(2),
                Event::Ack(1),
                Event::SenderTimer(1),
                Event::SenderTimer(0),
                Event::Sample,
                Event::Service,
            ]
        );
    }
}
