//! A capture of a link while packets cross it: on both of its sides, in the order of time, with each packet's fate.
//!
//! A drop is a comment on the packet as it entered, where it is known only later. So packets wait here until the fate
//! of each that entered before them is known: as many as pass while one waits in the queue, up to a bound. Since links
//! may be served late, this is also what puts events into the order of their times.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use etherparse::{IpEcn, Ipv4Header};
use verus_channel::path::Why;
use verus_core::{Bytes, Duration, Ecn, Time};

use crate::write::{Packet, Writer};

/// The most packets that wait to be written: 300 MB, or a minute of outage behind 200 Mbit/s. More fail the capture.
pub const MOST_WAITING: usize = 1 << 20;

/// The place of a packet in the file: its time, and its number among those of that time.
type PacketOrder = (Time, u64);

/// A packet that waits to be written.
#[derive(Debug)]
struct Waiting {
    interface: u32,
    head: Box<[u8]>,
    length: u32,
    comment: Cow<'static, str>,
}

/// A packet between its entry and its departure.
#[derive(Debug)]
struct Inside {
    place: PacketOrder,
    /// The interface by which it leaves.
    leaves_by: u32,
}

/// Records packets at a link.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    writer: Writer<W>,
    /// The clock's zero, in nanoseconds since 1970.
    epoch: u64,
    /// How long after its time an event may be reported.
    lateness: Duration,
    count: u64,
    waiting: BTreeMap<PacketOrder, Waiting>,
    /// By the number that the caller gave them.
    inside: BTreeMap<u64, Inside>,
    entries: BTreeSet<PacketOrder>,
    /// The first error, after which nothing more is written.
    failed: Option<io::Error>,
}

impl<W: Write> Recorder<W> {
    /// A recorder whose zero of time is `epoch`, in nanoseconds since 1970.
    pub fn new(writer: Writer<W>, epoch: u64) -> Self {
        Recorder {
            writer,
            epoch,
            lateness: Duration::ZERO,
            count: 0,
            waiting: BTreeMap::new(),
            inside: BTreeMap::new(),
            entries: BTreeSet::new(),
            failed: None,
        }
    }

    /// Keeps packets for `lateness`, so that events reported late by as much are still in order.
    pub fn with_lateness(self, lateness: Duration) -> Self {
        Recorder { lateness, ..self }
    }

    /// A packet enters the link by one interface, to leave it by another. `id` is unique among those inside.
    pub fn on_entered(
        &mut self,
        now: Time,
        id: u64,
        (enters_by, leaves_by): (u32, u32),
        head: &[u8],
        length: Bytes,
    ) {
        let place = self.add(now, enters_by, head, length, Cow::Borrowed(""));
        self.inside.insert(id, Inside { place, leaves_by });
        self.entries.insert(place);
        self.write_until(now);
    }

    /// A packet leaves the link with this code point, which may be a mark.
    pub fn on_left(&mut self, now: Time, id: u64, leaves_with: Ecn) {
        let Some(inside) = self.inside.remove(&id) else {
            return;
        };
        // Packets inside are always waiting.
        if let Some(entry) = self.waiting.get(&inside.place) {
            let (mut head, length) = (entry.head.clone(), u64::from(entry.length));
            let mut comment = "";
            if leaves_with == Ecn::Ce && ecn(&head) != Ecn::Ce {
                mark(&mut head);
                comment = "ECN: the queue marked this packet (CE)";
            }
            self.add(
                now,
                inside.leaves_by,
                &head,
                Bytes::new(length),
                comment.into(),
            );
        }
        self.entries.remove(&inside.place);
        self.write_until(now);
    }

    /// A packet is dropped.
    pub fn on_dropped(&mut self, now: Time, id: u64, why: Why) {
        let Some(inside) = self.inside.remove(&id) else {
            return;
        };
        if let Some(entry) = self.waiting.get_mut(&inside.place) {
            let waited = now.since(inside.place.0).as_millis_f64();
            entry.comment = match why {
                // A damaged packet has left the link before its receiver drops it, so it is no longer inside.
                Why::Chance | Why::Corrupted => "dropped: lost at random".into(),
                Why::Refused => "dropped: refused by the queue or the policer".into(),
                Why::Waited => format!("dropped: by the queue, after {waited:.3} ms in it").into(),
            };
        }
        self.entries.remove(&inside.place);
        self.write_until(now);
    }

    /// A packet passes capture points without crossing the link.
    pub fn on_passing(&mut self, now: Time, interfaces: &[u32], head: &[u8], length: Bytes) {
        for &interface in interfaces {
            self.add(now, interface, head, length, Cow::Borrowed(""));
        }
        self.write_until(now);
    }

    /// Writes the rest; packets that are still inside have no departure.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn finish(mut self) -> io::Result<W> {
        self.entries.clear();
        self.write_until(Time::MAX);
        match self.failed {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }

    fn add(
        &mut self,
        now: Time,
        interface: u32,
        head: &[u8],
        length: Bytes,
        comment: Cow<'static, str>,
    ) -> PacketOrder {
        let place = (now, self.count);
        self.count += 1;
        if self.failed.is_some() {
            return place;
        }
        if self.waiting.len() == MOST_WAITING {
            self.waiting.clear();
            let text =
                format!("more than {MOST_WAITING} packets passed while one waited in a queue");
            self.failed = Some(io::Error::other(text));
            return place;
        }
        let waiting = Waiting {
            interface,
            head: head.into(),
            length: u32::try_from(length.get()).unwrap_or(u32::MAX),
            comment,
        };
        self.waiting.insert(place, waiting);
        place
    }

    /// Writes all that is certain at `now`: everything before `now`, and before the first packet whose fate is unknown. All
    /// that comes later is later.
    fn write_until(&mut self, now: Time) {
        let limit = self.entries.first().map_or(Time::MAX, |(at, _)| *at);
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 < limit
            && now.since(first.key().0) > self.lateness
        {
            let (at, _) = *first.key();
            let waiting = first.remove();
            let written = self.writer.packet(&Packet {
                interface: waiting.interface,
                at: self.epoch.saturating_add(at.as_nanos()),
                head: &waiting.head,
                length: waiting.length,
                comment: &waiting.comment,
            });
            if let Err(error) = written {
                self.waiting.clear();
                self.failed = Some(error);
            }
        }
    }
}

/// The two bits for ECN of an IP packet.
fn ecn(head: &[u8]) -> Ecn {
    match head {
        [first, second, ..] if first >> 4 == 4 => Ecn::from_bits(*second),
        [first, second, ..] if first >> 4 == 6 => Ecn::from_bits(second >> 4),
        _ => Ecn::NotEct,
    }
}

/// Sets both bits for ECN of an IP packet; IPv4's header has a checksum, computed anew.
fn mark(head: &mut [u8]) {
    match head.first().map(|first| first >> 4) {
        Some(4) => {
            if let Ok((mut ip, _)) = Ipv4Header::from_slice(head) {
                ip.ecn = IpEcn::THREE;
                ip.header_checksum = ip.calc_header_checksum();
                let bytes = ip.to_bytes();
                head[..bytes.len()].copy_from_slice(&bytes);
            }
        }
        Some(6) if head.len() > 1 => head[1] |= Ecn::Ce.bits() << 4,
        _ => {}
    }
}
