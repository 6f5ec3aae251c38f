//! The time-ordered queue of events.
//!
//! One rule settles ties, so that a run has one outcome: at equal times the lower class goes first
//! (connections that begin and end, then arrivals, then feedback, then timers, then samples, and departures last), and
//! within a class events leave in the order in which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use verus_core::Time;

/// Something that happens at an instant. The number is the flow's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A connection of a flow begins.
    Start(u32),
    /// The time of a flow's connection is over.
    Pause(u32),
    /// A flow ends.
    Stop(u32),
    /// The packet at the head of the flow's forward pipe arrives.
    Data(u32),
    /// The acknowledgement at the head of the flow's return pipe arrives.
    Ack(u32),
    /// A delayed acknowledgement is due.
    ReceiverTimer(u32),
    /// A tick of the algorithm's receiver half.
    ObserverTimer(u32),
    /// A timer of the sender: loss, timeout, pacing or the controller's tick.
    SenderTimer(u32),
    /// Time series are sampled and progress is told.
    Sample,
    /// The bottleneck serves a packet.
    Departure,
    /// The bottleneck of the return path serves an acknowledgement.
    AckDeparture,
}

impl Event {
    fn class(self) -> u64 {
        match self {
            Event::Start(_) | Event::Pause(_) | Event::Stop(_) => 0,
            Event::Data(_) => 1,
            Event::Ack(_) => 2,
            Event::ReceiverTimer(_) | Event::ObserverTimer(_) | Event::SenderTimer(_) => 3,
            Event::Sample => 4,
            Event::Departure | Event::AckDeparture => 5,
        }
    }
}

/// Bits of an event's order that number it within its class.
const SEQUENCE_BITS: u32 = 60;

/// Pending events, earliest first.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
}

impl EventQueue {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: Time, event: Event) {
        let order = event.class() << SEQUENCE_BITS | self.sequence;
        self.sequence += 1;
        self.heap.push(Reverse((at, order, event)));
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_by_class_and_then_by_order_of_adding() {
        let mut queue = EventQueue::default();
        let at = Time::from_millis(5);
        let added = [
            Event::Departure,
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
        queue.push(Time::from_millis(4), Event::AckDeparture);
        let order: Vec<Event> = std::iter::from_fn(|| queue.pop())
            .map(|(_, event)| event)
            .collect();
        assert_eq!(
            order,
            [
                Event::AckDeparture,
                Event::Start(3),
                Event::Data(0),
                Event::Ack(2),
                Event::Ack(1),
                Event::SenderTimer(1),
                Event::SenderTimer(0),
                Event::Sample,
                Event::Departure,
            ]
        );
    }
}
