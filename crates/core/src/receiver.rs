//! The receiver: which packets to acknowledge, and when.
//!
//! An acknowledgement names ranges of received packet numbers: the one with the largest numbers,
//! and those that changed last (RFC 2018 §4). So a packet is reported when it arrives, however many
//! gaps are above it, and again in the next acknowledgements, in case one is lost. Verus needs an
//! acknowledgement for each packet (SIGCOMM 2015 §4); TCP receivers acknowledge every other one
//! (RFC 5681 §4.2). [`Receiver`] also distinguishes new data from copies: only new bytes count as
//! goodput.

use std::collections::VecDeque;

use crate::units::{Bytes, Duration, Time};

/// How many ranges one acknowledgement carries, as many as TCP's selective acknowledgements.
pub const RANGES_PER_ACK: usize = 4;

/// How many ranges of packet numbers the receiver remembers: bounds its memory, whatever arrives. A
/// packet below all of them is still acknowledged when it arrives, as a separate range.
const RANGES_KEPT: usize = 256;

/// Room for this many of them from the beginning: most flows have few gaps at a time.
const RANGES_AT_FIRST: usize = 32;

/// The sender has paused after such a silence: the retransmission timeout of a connection that sends nothing is still
/// that of its handshake, at 40 ms (Linux, `tcp_event_data_recv`).
const PAUSE: Duration = Duration::from_millis(240);

/// How many separate pieces of out-of-order data are remembered: bounds memory likewise.
const PIECES_KEPT: usize = 1 << 16;

/// A range of packet numbers, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberRange {
    /// The first number.
    pub first: u64,
    /// The last number, at least `first`.
    pub last: u64,
}

/// The piece of the flow's data that a packet carries: where it starts in the stream, and how long it is. A
/// retransmission carries the same piece under a new packet number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataRange {
    /// Offset of the first byte in the stream.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

/// An acknowledgement, independent of any wire format.
///
/// Kept small, since there is one for each acknowledgement under way: the newest number and, from there downward,
/// alternately how many numbers were received and how many are missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    newest: u64,
    /// Received, missing, received, … ; the first is at least 1, and the first zero ends the list.
    spans: [u32; 2 * RANGES_PER_ACK - 1],
    /// When the packet with the largest number arrived, by the receiver's clock.
    pub received_at: Time,
    /// How long the receiver held the acknowledgement of that packet.
    pub hold: Duration,
    /// How many packets have arrived with a congestion mark (ECN) since the flow began, as a count that wraps around.
    /// Since it is cumulative, a lost acknowledgement loses no mark (RFC 9000 §19.3.2; accurate ECN for TCP).
    pub marks: u32,
}

impl Ack {
    /// An acknowledgement of `ranges`, given most recent first, descending and apart; those past
    /// [`RANGES_PER_ACK`], and those over 4 billion packets away, are left out.
    ///
    /// # Panics
    /// If there is no range.
    pub fn new(
        ranges: impl IntoIterator<Item = NumberRange>,
        received_at: Time,
        hold: Duration,
    ) -> Self {
        let span = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let mut ranges = ranges.into_iter();
        let first = ranges.next().expect("an acknowledgement names a packet");
        let mut spans = [0; 2 * RANGES_PER_ACK - 1];
        spans[0] = span(first.last - first.first + 1);
        if spans[0] < u32::MAX {
            let mut below = first.first;
            for (range, pair) in ranges.zip(spans[1..].chunks_exact_mut(2)) {
                let (missing, received) = (
                    span(below - range.last - 1),
                    span(range.last - range.first + 1),
                );
                if missing == u32::MAX || received == u32::MAX {
                    break;
                }
                pair.copy_from_slice(&[missing, received]);
                below = range.first;
            }
        }
        Ack {
            newest: first.last,
            spans,
            received_at,
            hold,
            marks: 0,
        }
    }

    /// Adds the number after its newest; `false` if its newest range cannot grow.
    #[inline]
    fn follow(&mut self) -> bool {
        let longer = self.spans[0].saturating_add(1);
        let room = longer < u32::MAX;
        if room {
            self.spans[0] = longer;
            self.newest += 1;
        }
        room
    }

    /// The largest acknowledged number.
    #[inline]
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The acknowledged range with the largest numbers.
    #[inline]
    pub fn first_range(&self) -> NumberRange {
        let first = self.newest + 1 - u64::from(self.spans[0]);
        NumberRange {
            first,
            last: self.newest,
        }
    }

    /// Whether the two name the same numbers, except that this one's newest range may reach further than that of
    /// `earlier`.
    #[inline]
    pub fn agrees_below(&self, earlier: &Option<Ack>) -> bool {
        earlier.as_ref().is_some_and(|earlier| {
            self.first_range().first == earlier.first_range().first
                && self.newest >= earlier.newest
                && self.spans[1..] == earlier.spans[1..]
        })
    }

    /// The acknowledged ranges, most recent first, disjoint.
    pub fn ranges(&self) -> impl Iterator<Item = NumberRange> + '_ {
        let first = self.first_range();
        let rest = self.spans[1..]
            .chunks_exact(2)
            .take_while(|pair| pair[1] > 0);
        std::iter::once(first).chain(rest.scan(first.first, |below, pair| {
            let last = *below - 1 - u64::from(pair[0]);
            let first = last + 1 - u64::from(pair[1]);
            *below = first;
            Some(NumberRange { first, last })
        }))
    }
}

/// When one packet arrived, for transports that report this of packets other than the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The packet's number.
    pub number: u64,
    /// Its arrival, by the receiver's clock.
    pub at: Time,
    /// How long it then waited for the acknowledgement to leave.
    pub hold: Duration,
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// Acknowledge at once when this many packets wait for it (1: each packet; TCP: 2).
    pub ack_every: u32,
    /// Packets that are acknowledged at once all the same, at the beginning and after a pause (Linux's TCP: 16,
    /// `TCP_MAX_QUICKACKS`). Unless it is 0, those behind missing data are too (RFC 5681 §4.2).
    pub quick_acks: u32,
    /// Acknowledge at the latest this long after the first unacknowledged packet arrived (Linux delays by at least 40
    /// ms).
    pub max_delay: Duration,
}

impl ReceiverConfig {
    /// Few acknowledgements, for flows that measure a path: they take little of the return path's
    /// capacity.
    pub const SELDOM: ReceiverConfig = ReceiverConfig {
        ack_every: 16,
        quick_acks: 0,
        max_delay: Duration::from_millis(40),
    };
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        ReceiverConfig {
            ack_every: 1,
            quick_acks: 0,
            max_delay: Duration::from_millis(40),
        }
    }
}

/// The receiving end of a flow.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// Received numbers, ascending and disjoint; the oldest are forgotten first.
    ranges: VecDeque<NumberRange>,
    /// The ranges below the newest in which a packet arrived last, most recent first; empty places at the end.
    changed: [Option<NumberRange>; RANGES_PER_ACK - 1],
    assembly: Assembly,
    waiting: u32,
    /// Packets with smaller numbers are acknowledged at once.
    quick_until: u64,
    largest_at: Time,
    /// Packets that arrived with a congestion mark.
    marks: u32,
    ack_due: Option<Time>,
    /// The next acknowledgement's numbers, kept up to date while packets arrive in order; `None` once one arrived out
    /// of order.
    ack: Option<Ack>,
}

impl Receiver {
    /// How many bytes have arrived, copies not counted.
    pub fn distinct(&self) -> Bytes {
        self.assembly.distinct
    }

    /// How much of the data has arrived without a gap, from its beginning.
    #[inline]
    pub fn in_order(&self) -> u64 {
        self.assembly.next
    }

    /// Bounds the memory for data that arrived out of order to `pieces` separate pieces; past it,
    /// the oldest hole is taken for filled. For receivers of many strangers' flows.
    pub fn keep_pieces(&mut self, pieces: usize) {
        self.assembly.kept = pieces;
    }

    /// Whether packet `number` has arrived before, as far back as numbers are remembered.
    #[inline]
    pub fn has(&self, number: u64) -> bool {
        self.range_of(number).is_some()
    }

    /// The range of received numbers that has `number`, as far back as numbers are remembered.
    #[inline]
    pub fn range_of(&self, number: u64) -> Option<NumberRange> {
        if self.ranges.back()?.last < number {
            return None;
        }
        let at = self.ranges.partition_point(|range| range.last < number);
        let range = self.ranges[at];
        (range.first <= number).then_some(range)
    }

    /// The received numbers, most recent first.
    pub fn ranges(&self) -> impl Iterator<Item = NumberRange> + '_ {
        self.ranges.iter().rev().copied()
    }

    /// When the packet with the largest number arrived.
    pub fn largest_at(&self) -> Time {
        self.largest_at
    }

    /// A receiver that has seen nothing yet.
    pub fn new(config: ReceiverConfig) -> Self {
        Receiver {
            quick_until: u64::from(config.quick_acks),
            config,
            ranges: VecDeque::with_capacity(RANGES_AT_FIRST),
            changed: [None; RANGES_PER_ACK - 1],
            assembly: Assembly::default(),
            waiting: 0,
            largest_at: Time::ZERO,
            marks: 0,
            ack_due: None,
            ack: None,
        }
    }

    /// A packet arrived; returns how many of its bytes are new. Ask [`poll_ack`](Self::poll_ack)
    /// next.
    #[inline(always)]
    pub fn on_packet(&mut self, now: Time, number: u64, data: DataRange) -> Bytes {
        let silence = now.since(self.largest_at);
        let in_order = match self.ranges.back_mut() {
            Some(last) if number.checked_sub(1) == Some(last.last) => {
                last.last = number;
                self.largest_at = now;
                if let Some(ack) = &mut self.ack
                    && !ack.follow()
                {
                    self.ack = None;
                }
                true
            }
            None => {
                self.ranges.push_back(NumberRange {
                    first: number,
                    last: number,
                });
                self.largest_at = now;
                true
            }
            Some(_) => {
                self.insert(now, number);
                self.ack = None;
                false
            }
        };
        let new = self.assembly.insert(data);
        self.waiting += 1;
        let several = self.waiting >= self.config.ack_every;
        if !in_order || several || self.is_quick(number, silence) {
            // Out of order: acknowledge at once, so that the sender sees the gap (RFC 5681 §4.2).
            self.ack_due = Some(now);
        } else if self.ack_due.is_none() {
            self.ack_due = Some(now + self.config.max_delay);
        }
        new
    }

    /// Whether Linux's TCP acknowledges a packet at once that arrived in order after so long a silence.
    fn is_quick(&mut self, number: u64, silence: Duration) -> bool {
        let quick = u64::from(self.config.quick_acks);
        if silence > PAUSE {
            self.quick_until = number + quick;
        }
        quick > 0 && (number < self.quick_until || !self.assembly.pieces.is_empty())
    }

    /// The packet that [arrived](Self::on_packet) last bore a congestion mark. It is acknowledged
    /// at once, so that the sender learns of the mark soon (RFC 9000 §13.2.1).
    #[cold]
    pub fn on_mark(&mut self, now: Time) {
        self.marks = self.marks.wrapping_add(1);
        self.ack_due = Some(now);
    }

    /// How many packets have arrived with a congestion mark, as a count that wraps around.
    pub fn marks(&self) -> u32 {
        self.marks
    }

    /// The acknowledgement due by `now`, if any.
    #[inline(always)]
    pub fn poll_ack(&mut self, now: Time) -> Option<Ack> {
        self.due_ack(now).copied()
    }

    /// As [`poll_ack`](Self::poll_ack), for a caller that is done with it before the next packet arrives.
    #[inline(always)]
    pub fn due_ack(&mut self, now: Time) -> Option<&Ack> {
        if self.ack_due? > now {
            return None;
        }
        self.ack_due = None;
        self.waiting = 0;
        if self.ack.is_none() {
            self.ack = Some(self.gather());
        }
        let ack = self.ack.as_mut()?;
        (ack.received_at, ack.hold) = (self.largest_at, now.since(self.largest_at));
        ack.marks = self.marks;
        Some(ack)
    }

    /// An acknowledgement of the newest range and of those that changed last.
    #[cold]
    fn gather(&self) -> Ack {
        let mut changed = self.changed;
        // Absent ones last: `None` is less than anything.
        changed.sort_unstable_by_key(|range| std::cmp::Reverse(range.map(|range| range.first)));
        let ranges = self.ranges.back().copied().into_iter();
        Ack::new(
            ranges.chain(changed.into_iter().flatten()),
            Time::ZERO,
            Duration::ZERO,
        )
    }

    /// When [`poll_ack`](Self::poll_ack) will return an acknowledgement.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        self.ack_due
    }

    #[cold]
    fn insert(&mut self, now: Time, number: u64) {
        let at = self.ranges.partition_point(|range| range.last < number);
        let mut joined = NumberRange {
            first: number,
            last: number,
        };
        match self.ranges.get(at) {
            None => {
                // A gap below a new newest range.
                self.ranges.push_back(joined);
                self.note_change(self.ranges[at - 1]);
                self.largest_at = now;
            }
            // A copy of a packet whose acknowledgement may have been lost.
            Some(range) if range.first <= number => self.note_change(*range),
            Some(above) => {
                // Join with the neighbours that the number touches.
                let touches_above = above.first == number + 1;
                if touches_above {
                    joined.last = above.last;
                }
                let below = at.checked_sub(1).map(|below| self.ranges[below]);
                let touches_below = below.is_some_and(|below| below.last + 1 == number);
                if let Some(below) = below.filter(|_| touches_below) {
                    joined.first = below.first;
                }
                match (touches_below, touches_above) {
                    (false, false) => self.ranges.insert(at, joined),
                    (true, false) => self.ranges[at - 1] = joined,
                    (false, true) => self.ranges[at] = joined,
                    (true, true) => {
                        self.ranges.remove(at);
                        self.ranges[at - 1] = joined;
                    }
                }
                self.note_change(joined);
            }
        }
        if self.ranges.len() > RANGES_KEPT {
            self.ranges.pop_front();
        }
    }

    /// Puts a range first among those that changed, joined with those of them that it touches. The newest range is named
    /// anyway and needs no place.
    fn note_change(&mut self, range: NumberRange) {
        let newest = self.ranges.back().expect("not empty").last;
        let touches = |other: &NumberRange| {
            other.first <= range.last.saturating_add(1)
                && range.first <= other.last.saturating_add(1)
        };
        let changed = self.changed.into_iter().flatten();
        let joined = (changed.clone().filter(&touches)).fold(range, |joined, other| NumberRange {
            first: joined.first.min(other.first),
            last: joined.last.max(other.last),
        });
        let first = (joined.last < newest).then_some(joined);
        let mut kept = first
            .into_iter()
            .chain(changed.filter(|other| !touches(other)));
        self.changed = std::array::from_fn(|_| kept.next());
    }
}

/// Which bytes of the stream have arrived.
#[derive(Debug)]
struct Assembly {
    /// Everything before this has arrived.
    next: u64,
    /// Pieces received beyond `next`, as (start, end), ascending and with gaps between them.
    pieces: VecDeque<(u64, u64)>,
    /// The most pieces to remember.
    kept: usize,
    /// Bytes that have arrived, copies not counted.
    distinct: Bytes,
}

impl Default for Assembly {
    fn default() -> Self {
        Assembly {
            next: 0,
            pieces: VecDeque::new(),
            kept: PIECES_KEPT,
            distinct: Bytes::ZERO,
        }
    }
}

impl Assembly {
    /// Notes a piece; returns how many of its bytes are new.
    #[inline]
    fn insert(&mut self, data: DataRange) -> Bytes {
        let new = self.place(data);
        self.distinct += new;
        new
    }

    #[inline]
    fn place(&mut self, data: DataRange) -> Bytes {
        let (start, end) = (
            data.start.max(self.next),
            data.start.saturating_add(data.len),
        );
        if start >= end {
            return Bytes::ZERO;
        }
        if self.pieces.is_empty() && start == self.next {
            self.next = end;
            return Bytes::new(end - start);
        }
        self.insert_apart(start, end)
    }

    fn insert_apart(&mut self, mut start: u64, mut end: u64) -> Bytes {
        let from = self.pieces.partition_point(|piece| piece.1 < start);
        let to = self.pieces.partition_point(|piece| piece.0 <= end);
        let mut duplicate = 0;
        for &(piece_start, piece_end) in self.pieces.range(from..to) {
            duplicate += piece_end.min(end) - piece_start.max(start).min(piece_end.min(end));
        }
        let new = Bytes::new(end - start - duplicate);
        if from < to {
            start = start.min(self.pieces[from].0);
            end = end.max(self.pieces[to - 1].1);
            self.pieces.drain(from + 1..to);
            self.pieces[from] = (start, end);
        } else {
            self.pieces.insert(from, (start, end));
        }
        while let Some(&(first, last)) = self.pieces.front() {
            if first > self.next && self.pieces.len() <= self.kept {
                break;
            }
            self.next = last;
            self.pieces.pop_front();
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn piece(number: u64) -> DataRange {
        DataRange {
            start: number * 1000,
            len: 1000,
        }
    }

    fn range(first: u64, last: u64) -> NumberRange {
        NumberRange { first, last }
    }

    #[test]
    fn each_packet_is_acknowledged_at_once_by_default() {
        let mut receiver = Receiver::new(ReceiverConfig::default());
        assert_eq!(receiver.on_packet(ms(1), 0, piece(0)), Bytes::new(1000));
        let ack = receiver
            .poll_ack(ms(1))
            .expect("one packet, one acknowledgement");
        assert_eq!(ack.ranges().collect::<Vec<_>>(), [range(0, 0)]);
        assert_eq!(receiver.poll_ack(ms(1)), None);
    }

    #[test]
    fn a_gap_shows_as_two_ranges_most_recent_first() {
        let mut receiver = Receiver::new(ReceiverConfig::default());
        for number in [0, 1, 3] {
            receiver.on_packet(ms(number), number, piece(number));
        }
        let ack = receiver.poll_ack(ms(3)).expect("due");
        assert_eq!(ack.ranges().collect::<Vec<_>>(), [range(3, 3), range(0, 1)]);
        receiver.on_packet(ms(4), 2, piece(2));
        assert_eq!(
            receiver
                .poll_ack(ms(4))
                .expect("due")
                .ranges()
                .collect::<Vec<_>>(),
            [range(0, 3)]
        );
    }

    #[test]
    fn delayed_acknowledgements_wait_for_a_second_packet_or_the_timer_but_not_past_a_gap() {
        let config = ReceiverConfig {
            ack_every: 2,
            quick_acks: 0,
            max_delay: Duration::from_millis(40),
        };
        let mut receiver = Receiver::new(config);
        receiver.on_packet(ms(0), 0, piece(0));
        assert_eq!(receiver.poll_ack(ms(0)), None);
        assert_eq!(receiver.next_timer(), Some(ms(40)));
        let delayed = receiver.poll_ack(ms(40)).expect("the timer ran out");
        assert_eq!(delayed.hold, Duration::from_millis(40));
        receiver.on_packet(ms(41), 1, piece(1));
        receiver.on_packet(ms(42), 2, piece(2));
        assert!(receiver.poll_ack(ms(42)).is_some(), "two packets wait");
        receiver.on_packet(ms(43), 4, piece(4));
        assert!(
            receiver.poll_ack(ms(43)).is_some(),
            "a gap is reported at once"
        );
    }

    #[test]
    fn as_linux_packets_at_the_beginning_after_a_pause_and_behind_missing_data_are_acknowledged_at_once()
     {
        let mut receiver = Receiver::new(ReceiverConfig {
            ack_every: 2,
            quick_acks: 2,
            ..ReceiverConfig::default()
        });
        let mut at_once = |at, number, of| {
            receiver.on_packet(ms(at), number, piece(of));
            receiver.poll_ack(ms(at)).is_some()
        };
        assert_eq!([at_once(0, 0, 0), at_once(1, 1, 1)], [true, true]);
        assert_eq!([at_once(2, 2, 2), at_once(3, 3, 3)], [false, true]);
        // Number 4 is lost, and 7 repeats its data.
        assert_eq!([at_once(4, 5, 5), at_once(5, 6, 6)], [true, true]);
        assert_eq!([at_once(6, 7, 4), at_once(7, 8, 7)], [false, true]);
        // A silence of more than 240 ms.
        assert_eq!([at_once(300, 9, 8), at_once(301, 10, 9)], [true, true]);
        assert_eq!([at_once(302, 11, 10), at_once(303, 12, 11)], [false, true]);
    }

    #[test]
    fn only_new_bytes_count() {
        let mut assembly = Assembly::default();
        assert_eq!(
            assembly.insert(DataRange {
                start: 100,
                len: 50
            }),
            Bytes::new(50)
        );
        assert_eq!(
            assembly.insert(DataRange {
                start: 120,
                len: 100
            }),
            Bytes::new(70)
        );
        assert_eq!(
            assembly.insert(DataRange { start: 0, len: 110 }),
            Bytes::new(100)
        );
        assert_eq!(
            assembly.insert(DataRange { start: 0, len: 220 }),
            Bytes::ZERO
        );
        assert_eq!(assembly.next, 220);
        assert!(assembly.pieces.is_empty());
    }

    /// Every fourth packet comes twenty behind, so that ten gaps are open at a time.
    #[test]
    fn a_late_packet_is_named_when_it_arrives_however_many_gaps_are_above_it() {
        let mut receiver = Receiver::new(ReceiverConfig::default());
        let mut named = std::collections::BTreeMap::new();
        let late = |number: u64| number.is_multiple_of(4);
        for number in 1..10_000 {
            let mut arrivals = vec![number];
            arrivals.retain(|&number| !late(number));
            arrivals.extend(number.checked_sub(40).filter(|&number| late(number)));
            for number in arrivals {
                receiver.on_packet(ms(0), number, piece(number));
                let ack = receiver.poll_ack(ms(0)).expect("each is acknowledged");
                let is_named = |number: &u64| {
                    ack.ranges()
                        .any(|range| (range.first..=range.last).contains(number))
                };
                assert!(is_named(&number), "{number} in {ack:?}");
                for number in (number.saturating_sub(100)..=number).filter(|number| late(*number)) {
                    *named.entry(number).or_insert(0) += u64::from(is_named(&number));
                }
            }
        }
        let seldom = named.range(4..9_900).map(|(_, times)| *times).min();
        assert!(seldom >= Some(3), "named {seldom:?} times");
    }

    #[test]
    fn a_packet_below_all_that_is_remembered_is_acknowledged_by_itself() {
        let mut receiver = Receiver::new(ReceiverConfig::default());
        for number in 0..2 * RANGES_KEPT as u64 {
            receiver.on_packet(ms(0), 10 + 2 * number, piece(number));
        }
        assert!(receiver.ranges().count() <= RANGES_KEPT);
        let newest = receiver.ranges().next().expect("it has received");
        for number in [13, 14, 12] {
            receiver.on_packet(ms(1), number, piece(number));
            let ack = receiver.poll_ack(ms(1)).expect("due");
            let mut named = ack.ranges();
            assert_eq!(named.next(), Some(newest));
            assert!(
                named.any(|range| (range.first..=range.last).contains(&number)),
                "{number} in {ack:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn new_bytes_add_up_to_the_union(inserts in prop::collection::vec((0u64..300, 0u64..60), 0..60)) {
            let mut assembly = Assembly::default();
            let mut union = BTreeSet::new();
            for (start, len) in inserts {
                let before = union.len();
                union.extend(start..start + len);
                let new = assembly.insert(DataRange { start, len });
                prop_assert_eq!(new.get() as usize, union.len() - before);
            }
        }

        /// Whether it was made anew or followed the arrivals one by one.
        #[test]
        fn an_acknowledgement_names_the_newest_range_and_those_that_changed_last(
            steps in prop::collection::vec(prop_oneof![6 => Just(1i64), 2 => 2i64..4, 2 => -20i64..0], 1..100),
            ack_every in 1u32..4,
        ) {
            let mut receiver = Receiver::new(ReceiverConfig { ack_every, ..Default::default() });
            // For each number, the step at which it arrived or at which a gap opened above it. A
            // range changed last at the latest step of its numbers.
            let mut arrived = std::collections::BTreeMap::new();
            let mut next = 0;
            for (at, step) in steps.into_iter().enumerate() {
                let number = (next + step - 1).max(0) as u64;
                if step > 1 && next > 0 {
                    arrived.insert(next as u64 - 1, at);
                }
                next = next.max(number as i64 + 1);
                let now = ms(at as u64);
                receiver.on_packet(now, number, piece(number));
                arrived.insert(number, at);
                let Some(ack) = receiver.poll_ack(now) else { continue };
                let mut ranges: Vec<(NumberRange, usize)> = Vec::new();
                for (&number, &at) in &arrived {
                    match ranges.last_mut() {
                        Some((range, changed)) if range.last + 1 == number => {
                            (range.last, *changed) = (number, at.max(*changed));
                        }
                        _ => ranges.push((self::range(number, number), at)),
                    }
                }
                let named: Vec<_> = ack.ranges().collect();
                let last = ranges.pop().expect("not empty").0;
                prop_assert_eq!(named[0], last);
                prop_assert_eq!(ack.received_at, receiver.largest_at());
                prop_assert_eq!(ack.hold, now.since(receiver.largest_at()));
                prop_assert!(named.iter().rev().is_sorted_by_key(|range| range.first));
                // Every range that it leaves out changed before every range that it names. It names
                // fewer where some have been joined: a range displaced by then does not return.
                let (reported, omitted): (Vec<&(NumberRange, usize)>, Vec<_>) =
                    ranges.iter().partition(|(range, _)| named.contains(range));
                prop_assert_eq!(reported.len() + 1, named.len());
                let oldest = reported.iter().map(|reported| reported.1).min();
                prop_assert!(omitted.iter().all(|omitted| oldest.is_none_or(|oldest| oldest > omitted.1)));
                prop_assert!(named.iter().any(|range| (range.first..=range.last).contains(&number)));
            }
        }

        #[test]
        fn acknowledged_numbers_are_those_received(numbers in prop::collection::vec(0u64..2000, 1..1500)) {
            let mut receiver = Receiver::new(ReceiverConfig::default());
            let mut received = BTreeSet::new();
            for number in numbers {
                receiver.on_packet(ms(0), number, piece(number));
                received.insert(number);
                let ack = receiver.poll_ack(ms(0)).expect("each packet is acknowledged");
                for range in ack.ranges() {
                    prop_assert!((range.first..=range.last).all(|n| received.contains(&n)));
                }
                prop_assert_eq!(ack.newest(), *received.last().expect("not empty"));
            }
        }
    }
}
