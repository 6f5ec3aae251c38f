//! The state at each packet's departure, looked up by the instant of departure.
//!
//! A QUIC stack reports a departure to its congestion controller once for each batch. It reports an
//! acknowledgement once for each packet, with the instant of its departure and without a number.
//! The instant is the key here. Packets of one instant make a [`Batch`], and batches lie in a ring
//! in the order of time. A search begins where the last one ended, since acknowledgements mostly
//! arrive in order. Nothing is hashed, and nothing is allocated once the ring has grown to the
//! window.

use std::collections::VecDeque;

use verus_core::{Bytes, Departure, Duration, Time};

/// Packets that left at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    /// When they left.
    pub at: Time,
    /// The number of the first, by the bridge's own count.
    pub number: u64,
    /// How many they are.
    pub packets: u64,
    /// The size of each but the last.
    pub packet_size: u64,
    /// Bytes neither acknowledged nor lost.
    pub open: u64,
    /// Packets, and bytes, of which the fate is known.
    settled_packets: u64,
    settled: u64,
    /// The controller's window at that moment.
    pub window: Bytes,
    /// Bytes in flight before them.
    pub in_flight: u64,
    /// Bytes acknowledged by then, and when that last grew.
    pub delivered: u64,
    pub delivered_at: Time,
    /// Over how long the flight that they end had left.
    pub sending: Duration,
    /// Whether the application, not the window, held the sender back.
    pub app_limited: bool,
}

impl Batch {
    /// The next packet of which the fate shows, `size` bytes long.
    fn settle(&mut self, size: u64) -> Departure {
        let last = self.packets.saturating_sub(1);
        let number = self.number + self.settled_packets.min(last);
        self.settled_packets += 1;
        self.settled += size;
        self.open = self.open.saturating_sub(size);
        Departure {
            number,
            at: self.at,
            size: Bytes::new(size),
            window: self.window,
            in_flight: Bytes::new(self.in_flight + self.settled),
            delivered: Bytes::new(self.delivered),
            delivered_at: self.delivered_at,
            sending: self.sending,
            app_limited: self.app_limited,
        }
    }
}

/// The batches of which something is in flight.
#[derive(Debug)]
pub(crate) struct Ring {
    batches: VecDeque<Batch>,
    /// Where the last search ended.
    hint: usize,
}

impl Ring {
    pub(crate) fn new() -> Self {
        Ring {
            batches: VecDeque::with_capacity(64),
            hint: 0,
        }
    }

    /// A batch that leaves with `packets` of `packet_size`, the last one perhaps shorter, `bytes` in all.
    pub(crate) fn batch(
        at: Time,
        number: u64,
        packets: u64,
        packet_size: u64,
        bytes: u64,
    ) -> Batch {
        Batch {
            at,
            number,
            packets,
            packet_size,
            open: bytes,
            delivered_at: at,
            ..Batch::default()
        }
    }

    /// A batch left. One that leaves at the instant of the last, under the same window, joins it.
    pub(crate) fn push(&mut self, batch: Batch) {
        match self.batches.back_mut() {
            Some(back) if back.at == batch.at && back.window == batch.window => {
                back.packets += batch.packets;
                back.open += batch.open;
            }
            // A clock that went back: keep the order, which the search relies on.
            Some(back) if back.at > batch.at => {
                let place = self.batches.partition_point(|other| other.at <= batch.at);
                self.batches.insert(place, batch);
            }
            _ => self.batches.push_back(batch),
        }
    }

    /// The packet of `size` bytes that left at `sent` is acknowledged; `None` if none left then.
    #[inline]
    pub(crate) fn acknowledge(&mut self, sent: Time, size: u64) -> Option<Departure> {
        let at = self.find(sent)?;
        self.hint = at;
        let packet = self.batches[at].settle(size);
        if at == 0 {
            self.tidy();
        }
        Some(packet)
    }

    /// The size of the packets that left at `sent`, except for the last.
    pub(crate) fn packet_size(&self, sent: Time) -> Option<u64> {
        self.find(sent).map(|at| self.batches[at].packet_size)
    }

    #[inline]
    fn find(&self, sent: Time) -> Option<usize> {
        for at in self.hint..self.hint + 2 {
            let batch = self.batches.get(at);
            if batch.is_some_and(|batch| batch.at == sent && batch.open > 0) {
                return Some(at);
            }
        }
        self.search(sent)
    }

    /// Among batches of one instant, the first of which something is open.
    #[cold]
    fn search(&self, sent: Time) -> Option<usize> {
        let first = self.batches.partition_point(|batch| batch.at < sent);
        let same = self.batches.range(first..);
        let same = same.take_while(|batch| batch.at == sent);
        let mut at = None;
        for (index, batch) in same.enumerate() {
            at = Some(first + index);
            if batch.open > 0 {
                break;
            }
        }
        at
    }

    /// `bytes` are lost of the packets that left up to `sent`. They are the oldest, since a stack
    /// that declares a packet lost declares every older one lost with it. Departures up to
    /// `handshake` differ: many are still open because their keys were discarded, after which
    /// nothing is reported of them. Appends the lost packets to `lost`; returns the bytes that
    /// match no packet here.
    pub(crate) fn lose(
        &mut self,
        handshake: Time,
        sent: Time,
        mut bytes: u64,
        lost: &mut Vec<Departure>,
    ) -> u64 {
        let up_to = |at| move |batch: &Batch| batch.at <= at;
        let end = self.batches.partition_point(up_to(sent));
        let begin = self.batches.partition_point(up_to(handshake)).min(end);
        for at in (begin..end).chain(0..begin) {
            let batch = &mut self.batches[at];
            while batch.open > 0 && bytes > 0 {
                let size = batch.packet_size.min(batch.open).min(bytes);
                bytes -= size;
                lost.push(batch.settle(size));
            }
        }
        self.tidy();
        bytes
    }

    /// Lets go of batches of which nothing is open.
    fn tidy(&mut self) {
        while self.batches.front().is_some_and(|batch| batch.open == 0) {
            self.batches.pop_front();
            self.hint = self.hint.saturating_sub(1);
        }
    }

    /// Forgets batches that left before `stale`: their open packets will never be acknowledged.
    pub(crate) fn forget_before(&mut self, stale: Time) {
        while self.batches.front().is_some_and(|batch| batch.at < stale) {
            self.batches.pop_front();
            self.hint = self.hint.saturating_sub(1);
        }
        self.tidy();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }
}

/// The record of packets too small to be told from bare acknowledgements: spans of time under one
/// window each.
#[derive(Debug, Default)]
pub(crate) struct Smalls {
    spans: VecDeque<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: Time,
    to: Time,
    number: u64,
    window: Bytes,
}

/// The most spans that are kept; beyond this, the oldest two are merged.
const SPANS: usize = 32;

impl Smalls {
    /// A small packet left.
    pub(crate) fn push(&mut self, at: Time, number: u64, window: Bytes) {
        if let Some(back) = self.spans.back_mut()
            && (back.window == window || at < back.to)
        {
            back.to = back.to.max(at);
            return;
        }
        if self.spans.len() == SPANS
            && let Some(oldest) = self.spans.pop_front()
            && let Some(next) = self.spans.front_mut()
        {
            next.from = oldest.from;
        }
        self.spans.push_back(Span {
            from: at,
            to: at,
            number,
            window,
        });
    }

    /// The small packet of `size` bytes that left at `sent`, if one can have.
    pub(crate) fn find(&self, sent: Time, size: u64) -> Option<Departure> {
        let after = self.spans.partition_point(|span| span.from <= sent);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (sent <= span.to).then(|| Departure {
            number: span.number,
            at: sent,
            size: Bytes::new(size),
            window: span.window,
            in_flight: Bytes::new(size),
            delivered: Bytes::ZERO,
            delivered_at: sent,
            sending: Duration::ZERO,
            app_limited: true,
        })
    }
}
