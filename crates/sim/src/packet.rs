//! The packets under way, in both directions.

use verus_channel::path;
use verus_core::Ecn;
use verus_core::receiver::{Ack, DataRange};

/// A data packet.
#[derive(Clone, Copy, Debug)]
pub struct DataPacket {
    /// Index of its flow.
    pub flow: u32,
    /// The index of its connection within the flow.
    pub connection: u32,
    /// Its number within the connection.
    pub number: u64,
    /// The data that it carries.
    pub data: DataRange,
    /// How many packets the run had sent before it, all flows together: its row, where packets are recorded, of which no
    /// memory holds 2³².
    pub id: u32,
    /// Whether a queue may mark it, or has.
    pub ecn: Ecn,
}

/// A packet on the way back.
#[derive(Clone, Copy, Debug)]
pub struct AckPacket {
    /// Index of its flow.
    pub flow: u32,
    /// The index of its connection within the flow.
    pub connection: u32,
    /// The bytes of data packets that it acknowledges.
    pub answers: u32,
    /// The acknowledgement's content.
    pub says: Says,
}

/// The content of a packet on the way back.
#[derive(Clone, Copy, Debug)]
pub enum Says {
    /// An acknowledgement.
    Arrived {
        /// The acknowledgement.
        ack: Ack,
        /// The number of the report of the algorithm's receiver half, if that has one.
        report: Option<u32>,
    },
    /// A request for the next page.
    Asks,
}

impl path::Packet for DataPacket {
    #[inline]
    fn flow(&self) -> usize {
        self.flow as usize
    }

    #[inline]
    fn connection(&self) -> u64 {
        u64::from(self.flow) << 32 | u64::from(self.connection)
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }

    #[inline]
    fn mark(&mut self) {
        self.ecn = Ecn::Ce;
    }

    #[inline]
    fn duplicate(&self) -> Option<Self> {
        Some(*self)
    }
}

impl path::Packet for AckPacket {
    #[inline]
    fn flow(&self) -> usize {
        self.flow as usize
    }

    #[inline]
    fn connection(&self) -> u64 {
        u64::from(self.flow) << 32 | u64::from(self.connection)
    }
}
