//! The properties of a packet that paths use and links record.

use verus_core::{Bytes, Ecn, Time};

/// A packet on a path.
pub trait Packet {
    /// The index of the flow that it belongs to: each flow has its own propagation delay and random losses.
    #[inline]
    fn flow(&self) -> usize {
        0
    }

    /// A number that identifies its connection to queues that keep connections apart (FQ-CoDel): equal for all packets
    /// of a connection, and rarely equal for those of two.
    #[inline]
    fn connection(&self) -> u64 {
        self.flow() as u64
    }

    /// Its ECN code point.
    #[inline]
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    /// Marks it as [`Ecn::Ce`]; called only if its code point is [capable](Ecn::is_capable) of that.
    #[inline]
    fn mark(&mut self) {}

    /// A second packet with the same content, for paths that duplicate packets; `None` if the packet is one that no
    /// path duplicates.
    #[inline]
    fn duplicate(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// A packet with its history in the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed<P> {
    /// The packet.
    pub packet: P,
    /// Its size, as the link accounts it.
    pub size: Bytes,
    /// The time at which it reached the queue.
    pub entered: Time,
}
