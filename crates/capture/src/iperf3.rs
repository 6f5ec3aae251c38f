//! The JSON of `iperf3 -J` or `iperf3 --json-stream`: the same report as of a capture, from its intervals.
//!
//! An interval has the bytes of data that one end sent or received. At a sender of TCP it also has retransmissions and the
//! kernel's smoothed round trip. The limit of the rate is not in there. Within an interval the trace
//! spreads its bytes evenly: it shows nothing that is faster.
//!
//! The streams of one direction are one flow, so a test with `--bidir` has two. The receiver counts
//! UDP's losses: its intervals have them, and the sender's file has their sum at its end.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;
use serde_json::Value;

use crate::analysis::{FlowReport, Route};
use crate::flow::Times;

/// The most of a file that is read, bytes.
pub const LARGEST: u64 = 64 << 20;

/// The longest test whose intervals are spread over milliseconds, s: an hour.
const LONGEST_S: f64 = 3_600.0;

/// The fastest interval, bytes a second: 400 Gbit/s.
const FASTEST: f64 = 50e9;

/// The most bytes of a test: each 1500 of them may become an opportunity of a trace.
const MOST_BYTES: f64 = 400e9;

/// Why such a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{name}`: {problem}")]
pub struct Error {
    name: String,
    problem: String,
}

/// A line of `--json-stream`.
#[derive(Deserialize)]
struct Event {
    event: String,
    #[serde(default)]
    data: Value,
}

#[derive(Default, Deserialize)]
struct Test {
    #[serde(default)]
    start: Start,
    #[serde(default)]
    intervals: Vec<Interval>,
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
struct Start {
    #[serde(default)]
    connected: Vec<Connected>,
    #[serde(default)]
    test_start: TestStart,
}

#[derive(Deserialize)]
struct Connected {
    socket: Option<i64>,
    local_host: String,
    local_port: u16,
    remote_host: String,
    remote_port: u16,
}

#[derive(Default, Deserialize)]
struct TestStart {
    protocol: Option<String>,
}

/// One interval of a direction.
#[derive(Deserialize)]
struct Interval {
    #[serde(default)]
    streams: Vec<Stream>,
    sum: Sum,
    /// The other direction's sum, of a test with `--bidir`.
    sum_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Stream {
    socket: Option<i64>,
    sender: Option<bool>,
    /// Smoothed round trip, µs.
    rtt: Option<u64>,
}

#[derive(Deserialize)]
struct Sum {
    start: f64,
    end: f64,
    bytes: f64,
    retransmits: Option<u64>,
    #[serde(default)]
    omitted: bool,
    sender: Option<bool>,
    #[serde(flatten)]
    received: Received,
}

/// The datagrams of UDP that a receiver counts.
#[derive(Clone, Copy, Deserialize)]
struct Received {
    lost_packets: Option<i64>,
    /// All of them, lost ones included.
    packets: Option<i64>,
}

/// Sums of the whole test, as the receiver counts.
#[derive(Default, Deserialize)]
struct End {
    sum: Option<Received>,
    sum_bidir_reverse: Option<Received>,
}

/// The sum of a direction's streams in an interval.
#[derive(Clone, Copy)]
enum SumKind {
    /// `sum`: the only direction, or with `--bidir` the first.
    Main,
    /// `sum_bidir_reverse`: the other direction.
    Reverse,
}

/// Begins UTF-8 text of some editors and shells.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads the output of `iperf3 -J` or `iperf3 --json-stream`: a flow for each direction of the test.
/// `name` is what messages call it.
///
/// # Errors
/// If it is none, if the test failed, or if its intervals contradict each other.
pub fn analyze(name: &str, bytes: impl Read) -> Result<Vec<FlowReport>, Error> {
    let fail = |problem: String| Error {
        name: name.to_owned(),
        problem,
    };
    let mut text = Vec::new();
    let read = bytes.take(LARGEST + 1).read_to_end(&mut text);
    read.map_err(|error| fail(format!("cannot be read ({error})")))?;
    if text.len() as u64 > LARGEST {
        return Err(fail(format!("has more than {LARGEST} bytes")));
    }
    let json = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let test =
        Test::read(json).map_err(|error| fail(format!("is no output of `iperf3 -J`: {error}")))?;
    if let Some(error) = test.error {
        let error: String = error
            .chars()
            .take(200)
            .filter(|letter| !letter.is_control())
            .collect();
        return Err(fail(format!("iperf3 failed: {error}")));
    }
    let mut flows = Vec::new();
    for kind in [SumKind::Main, SumKind::Reverse] {
        flows.extend(test.flow(kind).map_err(fail)?);
    }
    if flows.is_empty() {
        return Err(fail(
            "has no intervals, as `iperf3 -J` writes them without -i 0; a link log of Mahimahi has lines such as `74 + 1482`, \
             and this looks like JSON"
                .to_owned(),
        ));
    }
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
    Ok(flows)
}

impl Interval {
    fn sum(&self, kind: SumKind) -> Option<&Sum> {
        match kind {
            SumKind::Main => Some(&self.sum),
            SumKind::Reverse => self.sum_bidir_reverse.as_ref(),
        }
    }
}

impl Received {
    /// Lost and all packets, where both are known. Late packets may make an interval's losses negative.
    fn counts(self) -> Option<(i64, i64)> {
        self.lost_packets.zip(self.packets)
    }
}

impl Test {
    /// One object, or an object for each event.
    fn read(json: &[u8]) -> serde_json::Result<Self> {
        let events = || serde_json::Deserializer::from_slice(json).into_iter::<Event>();
        if !matches!(events().next(), Some(Ok(_))) {
            let mut tests = serde_json::Deserializer::from_slice(json).into_iter::<Self>();
            if matches!((tests.next(), tests.next()), (Some(Ok(_)), Some(Ok(_)))) {
                let several = "it holds several tests; put each into a file of its own";
                return Err(serde::de::Error::custom(several));
            }
            return serde_json::from_slice(json);
        }
        let mut test = Self::default();
        for event in events() {
            let Event { event, data } = event?;
            match event.as_str() {
                "start" => test.start = serde_json::from_value(data)?,
                "interval" => test.intervals.push(serde_json::from_value(data)?),
                "end" => test.end = serde_json::from_value(data)?,
                "error" => test.error = serde_json::from_value(data)?,
                _ => {}
            }
        }
        Ok(test)
    }

    /// The report of one direction; `None` if the test lacks it.
    fn flow(&self, kind: SumKind) -> Result<Option<FlowReport>, String> {
        let sums = |interval| Interval::sum(interval, kind).map(|sum| (interval, sum));
        let mut intervals = (self.intervals.iter().filter_map(sums))
            .filter(|(_, sum)| !sum.omitted)
            .peekable();
        let Some((first, is_sender)) =
            (intervals.peek()).map(|(_, sum)| (sum.start, sum.sender != Some(false)))
        else {
            return Ok(None);
        };
        let is_bidirectional = self.intervals[0].sum_bidir_reverse.is_some();
        let is_udp = self.start.test_start.protocol.as_deref() == Some("UDP");
        // Of a test in one direction, all streams are; older files do not say which end sends.
        let is_of_direction = |stream: &&Stream| {
            !is_bidirectional || stream.sender.is_none_or(|sender| sender == is_sender)
        };
        let (mut rtt, mut least) = (Times::default(), None);
        let (mut end, mut bytes_sum, mut retransmits) = (first, 0.0, None);
        let mut received: Option<(i64, i64)> = None;
        let mut socket = None;
        let mut deliveries = Vec::new();
        for (index, (interval, sum)) in intervals.enumerate() {
            let (start, to, bytes) = (sum.start, sum.end, sum.bytes);
            // Clocks of ends differ by microseconds between intervals.
            let is_next = start >= end - 0.01 && to > start && to - first <= LONGEST_S;
            let largest = (FASTEST * (to - start)).min(MOST_BYTES - bytes_sum);
            if !is_next || !(0.0..=largest).contains(&bytes) {
                return Err(format!(
                    "interval {index}: {bytes} bytes from {start} to {to} s cannot be"
                ));
            }
            end = to;
            bytes_sum += bytes;
            if let Some(count) = sum.retransmits {
                retransmits = Some(retransmits.unwrap_or(0u64).saturating_add(count));
            }
            if let Some((lost, all)) = sum.received.counts() {
                let (lost_before, before) = received.unwrap_or_default();
                received = Some((lost_before.saturating_add(lost), before.saturating_add(all)));
            }
            for stream in interval.streams.iter().filter(is_of_direction) {
                socket = socket.or(stream.socket);
                if let Some(micros) = stream.rtt {
                    let nanos = micros.saturating_mul(1000);
                    rtt.record(nanos);
                    least = Some(least.map_or(nanos, |least: u64| least.min(nanos)));
                }
            }
            spread(&mut deliveries, (start - first, to - first), bytes);
        }
        let mut flow = FlowReport::of_intervals(
            if is_udp { "udp" } else { "tcp" },
            self.route(socket, is_sender),
            (end - first, bytes_sum),
            deliveries,
        );
        flow.retransmitted = retransmits;
        flow.set_round_trips("iperf3, smoothed", &rtt, least);
        if is_udp {
            let at_end = match kind {
                SumKind::Main => self.end.sum,
                SumKind::Reverse => self.end.sum_bidir_reverse,
            };
            let received = received.or(at_end.and_then(Received::counts));
            flow.set_datagrams_lost(received, is_sender);
        }
        Ok(Some(flow))
    }

    /// Where a direction's data goes, by the first of its streams.
    fn route(&self, socket: Option<i64>, is_sender: bool) -> Route {
        let address = |host: &str, port| {
            let host = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            SocketAddr::new(host, port)
        };
        let connected = &self.start.connected;
        let of_stream = connected.iter().find(|one| one.socket == socket);
        let none = (address("", 0), address("", 0));
        let (local, remote) = of_stream.or(connected.first()).map_or(none, |one| {
            let local = address(&one.local_host, one.local_port);
            (local, address(&one.remote_host, one.remote_port))
        });
        let (source, destination) = if is_sender {
            (local, remote)
        } else {
            (remote, local)
        };
        ("iperf3".to_owned(), source, destination)
    }
}

/// Spreads `bytes` evenly over an interval, in s.
fn spread(deliveries: &mut Vec<(u32, u32)>, (from, to): (f64, f64), bytes: f64) {
    let (first, last) = ((from.max(0.0) * 1e3) as u32, (to * 1e3) as u32);
    let count = last.saturating_sub(first).max(1);
    for index in 0..count {
        let share = |index: u32| (bytes * f64::from(index) / f64::from(count)) as u64;
        let bytes = share(index + 1) - share(index);
        deliveries.push((first + index, u32::try_from(bytes).unwrap_or(u32::MAX)));
    }
}
