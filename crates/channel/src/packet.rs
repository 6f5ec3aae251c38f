//! What paths carry, and what a link notes of it: known to queues and links alike.

use verus_core::{Bytes, Ecn, Time};

/// What paths carry.
pub trait Packet {
    /// Which of the flows that share the path it belongs to: each has propagation and random losses of its own.
    #[inline]
    fn flow(&self) -> usize {
        0
    }

    /// What its connection is to a queue that keeps connections apart: equal for the packets of one, and else rarely.
    #[inline]
    fn connection(&self) -> u64 {
        self.flow() as u64
    }

    /// Its ECN code point.
    #[inline]
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    /// A queue marks it ([`Ecn::Ce`]); asked for only where it is [capable](Ecn::is_capable) of that.
    #[inline]
    fn mark(&mut self) {}
}

/// A packet with its history in the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed<P> {
    /// The packet.
    pub packet: P,
    /// The size at which it was accounted.
    pub size: Bytes,
    /// When it reached the queue.
    pub entered: Time,
}
