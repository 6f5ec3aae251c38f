//! One direction of a TCP connection as a capture shows it: round trips, losses, deliveries, and the limit of its rate.
//!
//! - **Round trips**: from a segment to the acknowledgement that covers it, by number or by SACK. Data that was sent
//!   twice gives none (Karn's rule, RFC 6298 §3), unless the timestamps option names the copy (RFC 3522).
//! - **Losses**: data that passes the capture point again was lost behind it. Data that is missing in the sequence, and
//!   comes later than a round trip, was lost before it; if it comes earlier, it was reordered.
//! - **Delivery**: the bytes that acknowledgements newly cover, when they come. It is the same on both sides of the
//!   bottleneck, where arrivals of data are not.
//! - **Limit**, for each [`BIN_MS`]: the classes of T-RAT (Zhang, Breslau, Paxson and Shenker, SIGCOMM 2002),
//!   by a rule that needs no model of the sender. *Window*: the most bytes in flight are within three segments of the
//!   advertised window, as there. *Path*: data was lost, or the least round trip shows a queue, by the threshold of
//!   HyStart++ (RFC 9406 §4.2) above the flow's least: an eighth of it, between 4 and 16 ms. *Sender*: neither.
//!   Without the handshake the window's scale is unknown. *Window or sender*: neither, but an
//!   unscaled window would be full.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::dissect::Segment;

/// The width of the intervals that are judged, ms.
pub const BIN_MS: u64 = 100;

const MILLISECOND: u64 = 1_000_000;

/// Segments, holes and ranges that are remembered; beyond that, the oldest are forgotten.
const MOST_PIECES: usize = 1 << 16;

/// The payload of a segment on the wire, bytes: a capture at a sender shows what its network card cuts up only later.
const SEGMENT: u64 = 1460;

/// Unwrapped sequence numbers begin here, so that all are positive.
const ORIGIN: u64 = 1 << 33;

/// The most that a reordered segment is late where no round trip is known, as in Wireshark.
const LATE_NS: u64 = 3 * MILLISECOND;

/// The largest shift of a window (RFC 7323 §2.3).
const LARGEST_SHIFT: u8 = 14;

/// The longest round trip that is counted, µs.
const LONGEST_US: u64 = 60_000_000;

/// Bytes, by the millisecond in which they were delivered, since the capture began.
pub type Deliveries = Vec<(u32, u32)>;

/// The limit of a flow's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The receiver's window.
    Window,
    /// The path: its rate or its losses.
    Path,
    /// The sender: its application or its congestion window.
    Sender,
    /// The window or the sender: the window's scale is unknown, and unscaled it would be full.
    #[serde(rename = "window or sender")]
    WindowOrSender,
}

/// Quantiles of times, recorded in µs.
#[derive(Debug, Default)]
pub struct Times(Option<Box<Histogram<u32>>>);

impl Times {
    /// Records `nanos`.
    pub fn record(&mut self, nanos: u64) {
        let histogram = self.0.get_or_insert_with(|| {
            Box::new(Histogram::new(3).expect("three digits are within the library's limits"))
        });
        histogram
            .record((nanos / 1000).min(LONGEST_US))
            .expect("it grows up to the longest");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |histogram| histogram.len())
    }

    /// The quantile `q`, ms: too low by at most 1/1024, and never above the largest time.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let histogram = self.0.as_ref()?;
        let micros = histogram.lowest_equivalent(histogram.value_at_quantile(q));
        Some(micros as f64 / 1e3)
    }
}

/// Segments that have passed and are not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Sent {
    end: u64,
    /// When it passed first and last, and with which TSval.
    first: (u64, Option<u32>),
    last: (u64, Option<u32>),
    is_again: bool,
}

/// One judged interval, or several in a row in which nothing happened.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    index: u64,
    count: u64,
    /// The least round trip, ns.
    least_rtt: Option<u64>,
    /// Whether data was lost.
    is_lossy: bool,
    /// Whether the advertised window was full.
    is_full: bool,
    /// Whether it would be full if its field were not scaled, and the scale is unknown.
    may_be_full: bool,
    /// Whether data was in flight for longer than the least round trip, and nothing passed.
    is_silent: bool,
}

/// One direction.
#[derive(Debug, Default)]
pub struct Direction {
    /// Packets with data, and their bytes with IP headers.
    pub packets: u64,
    /// Bytes of these with IP headers.
    pub bytes: u64,
    /// Bytes of data in them.
    pub payload: u64,
    /// Data that acknowledgements cover, in bytes.
    pub delivered: u64,
    /// Packets whose data had passed before.
    pub retransmitted: u64,
    /// Packets whose data is lost before the capture point: they come late.
    pub late: u64,
    /// Packets that are late by less than a round trip.
    pub reordered: u64,
    /// When the first and last packets with data passed, ns.
    pub span: Option<(u64, u64)>,
    /// Round trips.
    pub rtt: Times,
    /// The least, ns.
    pub least_rtt: Option<u64>,
    /// When data was delivered.
    pub deliveries: Deliveries,
    /// When data passed, with IP headers.
    pub arrivals: Deliveries,
    /// The shift of the receiver's window, where both sides named theirs.
    pub window_shift: Option<u8>,
    highest: Option<u64>,
    largest_payload: u64,
    acknowledged: u64,
    sacked: BTreeMap<u64, u64>,
    sent: BTreeMap<u64, Sent>,
    /// Missing ranges: end, and when each was noticed.
    holes: BTreeMap<u64, (u64, u64)>,
    /// The receiver's window in bytes; without its scale, the least that it can be.
    window: Option<u64>,
    bins: Vec<Bin>,
    /// Bytes in `sacked`.
    sacked_bytes: u64,
}

impl Direction {
    /// Its memory, in entries of 8 bytes. Pieces take eight each, and may become fewer.
    pub fn kept(&self) -> i64 {
        let pieces = self.sent.len() + self.holes.len() + self.sacked.len();
        (self.deliveries.len() + self.arrivals.len() + self.bins.len() + 8 * pieces) as i64
    }

    /// A segment with data passes; `at` is in ns since the capture began.
    pub fn on_data(&mut self, at: u64, bytes: u32, segment: &Segment) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        add(&mut self.arrivals, at, u64::from(bytes));
        let payload = u64::from(segment.payload);
        self.payload += payload;
        self.bin(at);
        self.largest_payload = self.largest_payload.max(payload);
        let highest = self.highest.unwrap_or(ORIGIN + u64::from(segment.sequence));
        if self.highest.is_none() {
            self.acknowledged = highest;
        }
        let start = unwrapped(highest, segment.sequence);
        let end = start + payload;
        let stamp = (at, segment.timestamps.map(|(value, _)| value));
        let mut is_again = false;
        if start > highest {
            self.holes.insert(highest, (start, at));
            bound(&mut self.holes);
        } else if start < highest {
            match self.fill_hole(start, end.min(highest)) {
                Some(noticed) => {
                    let late = at.saturating_sub(noticed) >= self.least_rtt.unwrap_or(LATE_NS);
                    *(if late {
                        &mut self.late
                    } else {
                        &mut self.reordered
                    }) += 1;
                    self.bin(at).is_lossy |= late;
                }
                // A keep-alive repeats the last byte at most (RFC 9293 §3.8.4).
                None if payload <= 1 => {}
                None => {
                    self.retransmitted += 1;
                    self.bin(at).is_lossy = true;
                    is_again = true;
                }
            }
        }
        self.highest = Some(highest.max(end));
        if end > self.acknowledged {
            let sent = self.sent.entry(start).or_insert(Sent {
                end,
                first: stamp,
                last: stamp,
                is_again,
            });
            sent.end = sent.end.max(end);
            sent.last = stamp;
            sent.is_again |= is_again;
            bound(&mut self.sent);
        }
        let in_flight = self.in_flight();
        let is_full = self
            .window
            .is_some_and(|window| in_flight + 3 * self.largest_payload.min(SEGMENT) > window);
        let is_scale_known = self.window_shift.is_some();
        let bin = self.bin(at);
        bin.is_full |= is_full && is_scale_known;
        bin.may_be_full |= is_full && !is_scale_known;
    }

    /// A segment of the other direction acknowledges data.
    pub fn on_ack(&mut self, at: u64, segment: &Segment) {
        let (Some(number), Some(highest)) = (segment.acknowledgement, self.highest) else {
            return;
        };
        if !segment.syn {
            let window = u64::from(segment.window);
            // Scaling only makes it larger (RFC 7323 §2.3).
            self.window = Some(window << self.window_shift.unwrap_or(0));
        }
        self.bin(at);
        let number = unwrapped(highest, number);
        if number > highest + self.largest_window() {
            return;
        }
        // More than has passed: the capture lacks some.
        self.highest = Some(highest.max(number));
        let mut delivered = 0;
        let mut newest: Option<Sent> = None;
        let mut covers_copy = false;
        let mut cover = |sent: Sent| {
            covers_copy |= sent.is_again;
            if newest.is_none_or(|newest| newest.last.0 <= sent.last.0) {
                newest = Some(sent);
            }
        };
        if number > self.acknowledged {
            let mut known = 0;
            while let Some(entry) = self.sacked.first_entry()
                && *entry.key() < number
            {
                let (start, end) = entry.remove_entry();
                known += end.min(number) - start;
                if end > number {
                    self.sacked.insert(number, end);
                }
            }
            delivered += number - self.acknowledged - known;
            self.sacked_bytes -= known;
            self.acknowledged = number;
            while let Some(entry) = self.sent.first_entry()
                && entry.get().end <= number
            {
                cover(entry.remove());
            }
        }
        for (first, last) in segment.sack.iter().flatten() {
            let start = unwrapped(highest, *first).max(self.acknowledged);
            let end = unwrapped(highest, *last).min(self.highest.unwrap_or(highest));
            // A duplicate SACK lies below the acknowledgement number (RFC 2883).
            if start >= end {
                continue;
            }
            let new = join(&mut self.sacked, start, end);
            delivered += new;
            self.sacked_bytes += new;
            if let Some((start, end)) = bound(&mut self.sacked) {
                self.sacked_bytes -= end - start;
            }
            let covered: Vec<u64> = (self.sent.range(start..end))
                .filter(|(_, sent)| sent.end <= end)
                .map(|(start, _)| *start)
                .collect();
            for start in covered {
                cover(self.sent.remove(&start).expect("it was in the range"));
            }
        }
        if delivered == 0 {
            return;
        }
        self.delivered += delivered;
        add(&mut self.deliveries, at, delivered);
        let echo = segment.timestamps.map(|(_, echo)| echo);
        let sent_at = newest.and_then(|newest| match (newest.first.1, newest.last.1, echo) {
            _ if !covers_copy => Some(newest.last.0),
            // The times of the two copies differ.
            (Some(first), Some(last), Some(echo)) if first != last && echo == last => {
                Some(newest.last.0)
            }
            (Some(first), Some(last), Some(echo)) if first != last && echo == first => {
                Some(newest.first.0)
            }
            _ => None,
        });
        if let Some(rtt) = sent_at.map(|sent_at| at.saturating_sub(sent_at)) {
            let bin = self.bin(at);
            bin.least_rtt = Some(bin.least_rtt.map_or(rtt, |least| least.min(rtt)));
            self.rtt.record(rtt);
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
        }
    }

    /// The most data that is acknowledged though the capture lacks it, in bytes: a window beyond the last.
    fn largest_window(&self) -> u64 {
        u64::from(u16::MAX) << self.window_shift.unwrap_or(LARGEST_SHIFT)
    }

    fn in_flight(&self) -> u64 {
        let sent = self.highest.unwrap_or(0).saturating_sub(self.acknowledged);
        sent.saturating_sub(self.sacked_bytes)
    }

    /// Takes [`start`, `end`) from the hole that it lies in; returns when that was noticed.
    fn fill_hole(&mut self, start: u64, end: u64) -> Option<u64> {
        let (&from, &(to, noticed)) = self.holes.range(..=start).next_back()?;
        if to <= start {
            return None;
        }
        self.holes.remove(&from);
        if from < start {
            self.holes.insert(from, (start, noticed));
        }
        if end < to {
            self.holes.insert(end, (to, noticed));
        }
        Some(noticed)
    }

    /// The interval of `at`; those since the last one, in which nothing happened, are added.
    fn bin(&mut self, at: u64) -> &mut Bin {
        let index = at / (BIN_MS * MILLISECOND);
        let next = self
            .bins
            .last()
            .map_or(index, |last| last.index + last.count);
        if next < index {
            let silence = (index - next) * BIN_MS * MILLISECOND;
            let is_longer = self.least_rtt.is_some_and(|rtt| silence > rtt);
            self.bins.push(Bin {
                index: next,
                count: index - next,
                is_silent: self.in_flight() > 0 && is_longer,
                ..Bin::default()
            });
        }
        if next <= index {
            self.bins.push(Bin {
                index,
                count: 1,
                ..Bin::default()
            });
        }
        self.bins.last_mut().expect("one was just added")
    }

    /// The limit of its rate over time: stretches in ms, in order.
    pub fn limits(&self) -> Vec<(u64, u64, Limit)> {
        let least = self.least_rtt.unwrap_or(0);
        let queue = (least / 8).clamp(4 * MILLISECOND, 16 * MILLISECOND);
        let mut stretches: Vec<(u64, u64, Limit)> = Vec::new();
        for bin in &self.bins {
            let has_queue = bin.least_rtt.is_some_and(|rtt| rtt >= least + queue);
            let limit = if bin.is_full {
                Limit::Window
            } else if bin.is_lossy || has_queue || bin.is_silent {
                Limit::Path
            } else if bin.may_be_full {
                Limit::WindowOrSender
            } else {
                Limit::Sender
            };
            let (from, to) = (bin.index * BIN_MS, (bin.index + bin.count) * BIN_MS);
            match stretches.last_mut() {
                Some((_, end, last)) if *last == limit && *end == from => *end = to,
                _ => stretches.push((from, to, limit)),
            }
        }
        stretches
    }
}

/// A sequence number near `near`.
fn unwrapped(near: u64, number: u32) -> u64 {
    let distance = number.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(i64::from(distance))
}

/// Adds bytes at a time in ns that is not before the last.
pub fn add(deliveries: &mut Deliveries, at: u64, bytes: u64) {
    let ms = u32::try_from(at / MILLISECOND).unwrap_or(u32::MAX);
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    match deliveries.last_mut() {
        Some((last, sum)) if *last == ms => *sum = sum.saturating_add(bytes),
        _ => deliveries.push((ms, bytes)),
    }
}

/// Adds [`start`, `end`) to disjoint ranges; returns how much of it is new.
fn join(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) -> u64 {
    let (mut first, mut last) = (start, end);
    let mut known = 0;
    while let Some((&from, &to)) = ranges.range(..=last).next_back()
        && to >= first
    {
        ranges.remove(&from);
        known += to.min(end).saturating_sub(from.max(start));
        (first, last) = (first.min(from), last.max(to));
    }
    ranges.insert(first, last);
    (end - start).saturating_sub(known)
}

/// Forgets the oldest of too many; returns it.
fn bound<T>(pieces: &mut BTreeMap<u64, T>) -> Option<(u64, T)> {
    (pieces.len() > MOST_PIECES).then(|| pieces.pop_first())?
}
