//! The calls of a connection's controller: in counts, and event by event.

use verus_core::{Bytes, Time};

/// Counts of the calls of a connection's controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent that count towards the window.
    pub sent: u64,
    /// Of these, acknowledged.
    pub acked: u64,
    /// Of these, declared lost.
    pub lost: u64,
    /// Bytes declared lost, as QUIC counts them.
    pub lost_bytes: u64,
    /// Packets too small to be told from bare acknowledgements.
    pub small: u64,
    /// Of these, acknowledged.
    pub small_acked: u64,
    /// Acknowledgements of packets that QUIC does not announce: path MTU probes that arrived.
    pub unannounced: u64,
    /// Acknowledgements of packets that left before the controller began, on an earlier path.
    pub foreign: u64,
    /// Acknowledgements of packets of which nothing was known. Should be none.
    pub misses: u64,
    /// Congestion marks (ECN) that came back.
    pub marked: u64,
    /// Persistent congestion (RFC 9002 §7.6), which the controller gets as a timeout.
    pub persistent: u64,
    /// Ticks: each closes all epochs that have ended.
    pub ticks: u64,
}

/// A call of a controller, and its answer. Times count from [`View::origin`](crate::View::origin).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A batch left.
    Sent {
        /// When, by QUIC's clock.
        at: Time,
        /// Its bytes (UDP payload).
        bytes: u64,
        /// Its packets.
        packets: u64,
        /// The QUIC packet number of its last packet.
        last_number: u64,
        /// The controller's window then.
        window: Bytes,
        /// Bytes in flight before it.
        in_flight: Bytes,
    },
    /// A packet was acknowledged; its round-trip time is `at − sent`.
    Acked {
        /// When.
        at: Time,
        /// When it had left.
        sent: Time,
        /// Its size.
        bytes: u64,
        /// The window when it left, as found again.
        window: Bytes,
    },
    /// Packets were declared lost.
    Lost {
        /// When.
        at: Time,
        /// When the last of them had left.
        sent: Time,
        /// How many bytes.
        bytes: u64,
        /// Whether QUIC calls it persistent congestion.
        persistent: bool,
    },
    /// The controller's clock ticked.
    Tick {
        /// When it should have.
        due: Time,
        /// When it did.
        at: Time,
    },
}

/// A bounded log of events.
#[derive(Debug)]
pub(crate) struct Log {
    events: Vec<Event>,
    capacity: usize,
}

impl Log {
    pub(crate) fn new(capacity: usize) -> Self {
        Log {
            events: Vec::with_capacity(capacity.min(1 << 16)),
            capacity,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if self.events.len() < self.capacity {
            self.events.push(event);
        }
    }

    #[cfg(test)]
    pub(crate) fn last(&self) -> Option<Event> {
        self.events.last().copied()
    }

    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
