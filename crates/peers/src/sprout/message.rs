//! Messages between the two halves: a stamp on each packet, a report with each acknowledgement.
//!
//! Both are integers in network order. Their sender may lie; what cannot be read is ignored.

use super::TICKS;
use super::forecast::Counts;
use verus_core::controller::Stamp;
use verus_core::units::Duration;

/// The sender's stamp on a packet: 15 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The bytes that the flow had sent before this packet.
    pub sent: u64,
    /// The number of these, counted from the last, that may still arrive. The others have arrived
    /// or are given up.
    pub open: u32,
    /// The longest time until the next packet.
    pub due: Duration,
    /// Whether the packet left although the forecast had no room. It then counts as an empty one.
    pub heartbeat: bool,
}

impl Tag {
    /// The stamp as bytes.
    pub fn stamp(self) -> Stamp {
        let mut bytes = [0; 15];
        bytes[..8].copy_from_slice(&self.sent.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.open.to_be_bytes());
        let millis = u16::try_from(self.due.as_nanos() / 1_000_000).unwrap_or(u16::MAX);
        bytes[12..14].copy_from_slice(&millis.to_be_bytes());
        bytes[14] = u8::from(self.heartbeat);
        Stamp::new(&bytes)
    }

    /// Reads bytes, if they are a stamp.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (sent, rest) = bytes.split_first_chunk()?;
        let (open, rest) = rest.split_first_chunk()?;
        let (due, rest) = rest.split_first_chunk()?;
        let &[heartbeat] = rest else { return None };
        Some(Tag {
            sent: u64::from_be_bytes(*sent),
            open: u32::from_be_bytes(*open),
            due: Duration::from_millis(u64::from(u16::from_be_bytes(*due))),
            heartbeat: heartbeat != 0,
        })
    }
}

/// The receiver's report with an acknowledgement: 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of the tick that it is made in.
    pub tick: u32,
    /// The number of the flow's bytes that had by then arrived or been given up.
    pub settled: u64,
    /// The forecast.
    pub counts: Counts,
}

impl Report {
    /// Appends it as bytes.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.tick.to_be_bytes());
        into.extend_from_slice(&self.settled.to_be_bytes());
        for count in self.counts {
            into.extend_from_slice(&count.to_be_bytes());
        }
    }

    /// Reads bytes, if they are a report whose counts only grow.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (tick, rest) = bytes.split_first_chunk()?;
        let (settled, rest) = rest.split_first_chunk()?;
        if rest.len() != 2 * TICKS {
            return None;
        }
        let counts: Counts =
            std::array::from_fn(|at| u16::from_be_bytes([rest[2 * at], rest[2 * at + 1]]));
        counts.is_sorted().then_some(Report {
            tick: u32::from_be_bytes(*tick),
            settled: u64::from_be_bytes(*settled),
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            sent: u64, open: u32, due: u16, heartbeat: bool, tick: u32, settled: u64, mut counts: Counts,
        ) {
            let due = Duration::from_millis(u64::from(due));
            let tag = Tag { sent, open, due, heartbeat };
            prop_assert_eq!(Tag::read(tag.stamp().as_slice()), Some(tag));
            let sorted = counts.is_sorted();
            let mut bytes = Vec::new();
            Report { tick, settled, counts }.write(&mut bytes);
            prop_assert_eq!(Report::read(&bytes).is_some(), sorted);
            counts.sort_unstable();
            bytes.clear();
            let report = Report { tick, settled, counts };
            report.write(&mut bytes);
            prop_assert_eq!(Report::read(&bytes), Some(report));
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Tag::read(&bytes), Report::read(&bytes));
        }
    }
}
