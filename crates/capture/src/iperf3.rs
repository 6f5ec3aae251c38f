//! The JSON of `iperf3 -J`: the same report as of a capture, from its intervals.
//!
//! An interval has the bytes of data that one end sent or received. At a sender of TCP it also has retransmissions and the
//! kernel's smoothed round trip. The limit of the rate is not in there. Within an interval the trace
//! spreads its bytes evenly: it shows nothing that is faster.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

use crate::analysis::FlowReport;
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

#[derive(Deserialize)]
struct Test {
    #[serde(default)]
    start: Start,
    #[serde(default)]
    intervals: Vec<Interval>,
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
    local_host: String,
    local_port: u16,
    remote_host: String,
    remote_port: u16,
}

#[derive(Default, Deserialize)]
struct TestStart {
    protocol: Option<String>,
}

#[derive(Deserialize)]
struct Interval {
    #[serde(default)]
    streams: Vec<Stream>,
    sum: Sum,
}

#[derive(Deserialize)]
struct Stream {
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
}

/// Reads the output of `iperf3 -J`. `name` is what messages call it.
///
/// # Errors
/// If it is none, if the test failed, or if its intervals contradict each other.
pub fn analyze(name: &str, bytes: impl Read) -> Result<FlowReport, Error> {
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
    let test: Test = serde_json::from_slice(&text)
        .map_err(|error| fail(format!("is no output of `iperf3 -J`: {error}")))?;
    if let Some(error) = test.error {
        let error: String = error
            .chars()
            .take(200)
            .filter(|letter| !letter.is_control())
            .collect();
        return Err(fail(format!("iperf3 failed: {error}")));
    }
    let mut intervals = test
        .intervals
        .iter()
        .filter(|one| !one.sum.omitted)
        .peekable();
    let Some(first) = intervals.peek().map(|first| first.sum.start) else {
        return Err(fail(
            "has no intervals, as `iperf3 -J` writes them without -i 0; a link log of Mahimahi has lines such as `74 + 1482`, \
             and this looks like JSON"
                .to_owned(),
        ));
    };
    let (mut rtt, mut least) = (Times::default(), None);
    let (mut end, mut sum, mut retransmits) = (first, 0.0, None);
    let mut deliveries = Vec::new();
    for (index, interval) in intervals.enumerate() {
        let Sum {
            start,
            end: to,
            bytes,
            ..
        } = interval.sum;
        // Clocks of ends differ by microseconds between intervals.
        let is_next = start >= end - 0.01 && to > start && to - first <= LONGEST_S;
        let largest = (FASTEST * (to - start)).min(MOST_BYTES - sum);
        if !is_next || !(0.0..=largest).contains(&bytes) {
            let problem =
                format!("interval {index}: {bytes} bytes from {start} to {to} s cannot be");
            return Err(fail(problem));
        }
        end = to;
        sum += bytes;
        if let Some(count) = interval.sum.retransmits {
            retransmits = Some(retransmits.unwrap_or(0u64).saturating_add(count));
        }
        for micros in interval.streams.iter().filter_map(|stream| stream.rtt) {
            let nanos = micros.saturating_mul(1000);
            rtt.record(nanos);
            least = Some(least.map_or(nanos, |least: u64| least.min(nanos)));
        }
        spread(&mut deliveries, (start - first, to - first), bytes);
    }
    let address = |host: &str, port| {
        let host = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        SocketAddr::new(host, port)
    };
    let none = (address("", 0), address("", 0));
    let ends = test.start.connected.first().map_or(none, |connected| {
        let local = address(&connected.local_host, connected.local_port);
        (
            local,
            address(&connected.remote_host, connected.remote_port),
        )
    });
    let is_sender = test
        .intervals
        .first()
        .is_none_or(|one| one.sum.sender != Some(false));
    let (source, destination) = if is_sender { ends } else { (ends.1, ends.0) };
    let is_udp = test.start.test_start.protocol.as_deref() == Some("UDP");
    let duration_s = end - first;
    let mut flow = FlowReport::of_intervals(
        if is_udp { "udp" } else { "tcp" },
        ("iperf3".to_owned(), source, destination),
        (duration_s, sum),
        deliveries,
    );
    flow.retransmitted = retransmits;
    flow.set_round_trips("iperf3, smoothed", &rtt, least);
    Ok(flow)
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
