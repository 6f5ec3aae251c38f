//! A recording: a live channel's traffic in both directions, on one clock.
//!
//! ```text
//! light probes ──▶ load, both ways at once ──▶ light probes
//! ```
//!
//! Each part is an ordinary test of one flow in each direction. The light ones, a small packet each
//! [`LIGHT_INTERVAL`], measure the empty path at both ends of the recording: its round trip and the
//! relation of the two ends' clocks. The trace is made from the load.
//!
//! Everything that takes capacity counts. Downward, each packet is observed as it arrives. Upward,
//! the server's acknowledgements say when each data packet arrived. Acknowledgements and statuses
//! that left between two data packets are spread over the time between their arrivals, as queues
//! keep their order.

use std::collections::VecDeque;

use verus_core::{Bytes, Duration, Time};
use verus_measure::{Clocks, Passage};

use super::flow::Event;
use super::wire::Request;

mod limit;

pub use limit::{Limit, NEAR};

/// Light probes are as small as packets may be, and so far apart: 43 kbit/s.
pub const LIGHT_BYTES: u16 = 200;
/// See [`LIGHT_BYTES`]. No multiple of a scheduler's cycle (1, 10 or 20 ms): the probes meet all of its phases.
pub const LIGHT_INTERVAL: Duration = Duration::from_micros(37_300);
/// How long the path is probed before the load, and after it.
pub const LIGHT_FOR: Duration = Duration::from_secs(3);
/// How long a saturating load is given to find the channel's rate before it counts.
pub const SETTLING: Duration = Duration::from_secs(3);
/// An arrival whose packet queued for no longer may have found the link idle.
const NO_QUEUE: Duration = Duration::from_millis(5);
/// Departures this far apart under load show that this machine was stopped, asleep or too busy. A
/// client sends a status every 100 ms, whatever the path does.
pub const OWN_SILENCE: Duration = Duration::from_millis(500);
/// Unit of time in which the share of time with a queue is counted.
const BIN: Duration = Duration::from_millis(100);

/// The scheme of light probes.
pub fn light_scheme() -> String {
    let bits = f64::from(LIGHT_BYTES) * 8.0;
    format!(
        "constant:rate_mbps={}",
        bits / LIGHT_INTERVAL.as_secs_f64() / 1e6
    )
}

/// A request for light probes, by the one for the load.
pub fn light_request(load: &Request) -> Request {
    Request {
        upload_flows: 1,
        download_flows: 1,
        packet_bytes: LIGHT_BYTES,
        duration_nanos: LIGHT_FOR.as_nanos(),
        scheme: light_scheme(),
        ..load.clone()
    }
}

/// A packet that went up.
#[derive(Clone, Copy, Debug)]
struct Upward {
    /// Its number; of a packet without data, that of the last with data.
    number: u64,
    sent: Time,
    size: u32,
    has_data: bool,
    /// When it arrived, by the far clock, if the server reported it.
    arrived: Option<Time>,
    /// Whether it arrived. Packets without data are not acknowledged: the fate of their neighbours
    /// decides.
    known: bool,
}

/// A packet that came down.
#[derive(Clone, Copy, Debug)]
struct Downward {
    number: u64,
    /// By the far clock; absent for a packet without data.
    sent: Option<Time>,
    arrived: Time,
    size: u32,
}

/// One part of a recording, as its events tell.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    up: Vec<Upward>,
    down: Vec<Downward>,
    /// Packets without data that left since the last packet with data.
    controls: VecDeque<(Time, Bytes)>,
    /// How many packets with data the server says it has sent.
    sent_there: u64,
    /// When the first packet left or arrived.
    began: Option<Time>,
    /// When the last packet of any kind left from here.
    left: Option<Time>,
    /// The longest time in which none did, between two that did.
    own_silence: Duration,
}

impl Tape {
    /// Records the server's count of its packets with data.
    pub fn note_sent_there(&mut self, packets: u64) {
        self.sent_there = packets;
    }

    /// This machine slept for this long by its clock. Departures show less where their clock
    /// stopped too.
    pub fn note_own_silence(&mut self, silence: Duration) {
        self.own_silence = self.own_silence.max(silence);
    }

    /// Takes the events of a client's connection, which has one flow in each direction.
    pub fn take(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut departures = Vec::new();
        for event in events {
            if let Event::Sent { at, .. } | Event::Control { sent: true, at, .. } = event {
                departures.push(at);
            }
            if let Event::Sent { at, .. } | Event::Received { at, .. } | Event::Control { at, .. } =
                event
            {
                self.began = Some(self.began.map_or(at, |began| began.min(at)));
            }
            match event {
                Event::Control {
                    sent: true,
                    at,
                    size,
                } => self.controls.push_back((at, size)),
                Event::Control { at, size, .. } => self.down.push(Downward {
                    number: 0,
                    sent: None,
                    arrived: at,
                    size: small(size),
                }),
                Event::Sent {
                    number, at, size, ..
                } => self.note_departure(number, at, size),
                Event::Acked {
                    number, received, ..
                } => self.arrived_there(number, received),
                Event::Told {
                    number, received, ..
                } => self.arrived_there(number, Some(received)),
                Event::Received {
                    number,
                    at,
                    sent,
                    size,
                    ..
                } => self.down.push(Downward {
                    number,
                    sent: Some(sent),
                    arrived: at,
                    size: small(size),
                }),
                Event::Lost { .. } => {}
            }
        }
        // Those of each kind are in order.
        departures.sort_unstable();
        for at in departures {
            self.note_own_silence(at.since(self.left.unwrap_or(at)));
            self.left = Some(at.max(self.left.unwrap_or(at)));
        }
    }

    fn note_departure(&mut self, number: u64, at: Time, size: Bytes) {
        let packet = |number, sent, size, has_data| Upward {
            number,
            sent,
            size: small(size),
            has_data,
            arrived: None,
            known: !has_data,
        };
        let last = self.up.last().map_or(0, |packet| packet.number);
        let before = self
            .controls
            .iter()
            .take_while(|(left, _)| *left <= at)
            .count();
        for (left, size) in self.controls.drain(..before) {
            // A packet that left before all data has no neighbour before it.
            if !self.up.is_empty() {
                self.up.push(packet(last, left, size, false));
            }
        }
        self.up.push(packet(number, at, size, true));
    }

    fn arrived_there(&mut self, number: u64, received: Option<Time>) {
        let at = self.up.partition_point(|packet| packet.number < number);
        if let Some(packet) = self.up.get_mut(at)
            && packet.number == number
            && packet.has_data
        {
            packet.known = true;
            packet.arrived = packet.arrived.or(received);
        }
    }

    /// Between which times, by the near clock, it was recorded.
    fn span(&self) -> Option<(Time, Time)> {
        let first = self.began?;
        let last = self.down.last().map_or(first, |packet| packet.arrived);
        Some((first, last.max(first)))
    }

    fn ups(&self) -> impl Iterator<Item = Passage> + '_ {
        self.up.iter().filter_map(|packet| {
            Some(Passage {
                sent: packet.sent,
                received: packet.arrived?,
            })
        })
    }

    fn downs(&self) -> impl Iterator<Item = Passage> + '_ {
        self.down.iter().filter_map(|packet| {
            Some(Passage {
                sent: packet.sent?,
                received: packet.arrived,
            })
        })
    }
}

fn small(size: Bytes) -> u32 {
    u32::try_from(size.get()).unwrap_or(u32::MAX)
}

/// A packet that arrived, by the near clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number; absent for a packet without data.
    pub number: Option<u64>,
    /// When it left; if it has no number, when it arrived.
    pub sent: Time,
    /// When it arrived.
    pub at: Time,
    /// Its size (IP).
    pub size: Bytes,
}

impl Arrival {
    /// Its one-way delay, ms; negative where the clocks' relation is off by more than the path is long.
    pub fn delay_ms(&self) -> f64 {
        self.at.as_millis_f64() - self.sent.as_millis_f64()
    }
}

/// One direction of a recording.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Arrivals under load, in order of arrival.
    pub arrivals: Vec<Arrival>,
    /// Packets with data that were sent under load.
    pub sent: u64,
    /// Of these, packets that did not arrive, as far as is known.
    pub lost: u64,
    /// Packets with data that arrived at a time not reported: they are spread like those without data.
    pub untimed: u64,
    /// The longest time in which nothing left from here while the load ran.
    pub own_silence: Duration,
    /// Share of the time in bins of 100 ms in which every packet had queued, or nothing arrived.
    pub queued_share: f64,
}

/// A recording. A direction that carried no load is empty.
#[derive(Clone, Debug)]
pub struct Recording {
    /// How the clocks relate, and the empty path's round trip.
    pub clocks: Clocks,
    /// From when on it counts.
    pub from: Time,
    /// From the client to the server.
    pub up: Way,
    /// From the server to the client.
    pub down: Way,
}

/// Why there is no recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecording {
    /// Nothing arrived that way, or not for long enough.
    #[error("nothing arrived {0} after the first {1} s")]
    Nothing(&'static str, u64),
}

impl Recording {
    /// Makes a recording from tapes: light probes before and after, and the load between, in the
    /// directions of `request`. Omits the first `settling` of the load.
    ///
    /// # Errors
    /// If nothing arrived in a direction.
    pub fn new(
        [before, load, after]: [&Tape; 3],
        request: &Request,
        settling: Duration,
    ) -> Result<Self, NoRecording> {
        let seconds = settling.as_nanos() / 1_000_000_000;
        let parts = [before, load, after];
        let calm: Vec<(Time, Time)> = [before, after]
            .iter()
            .filter_map(|tape| tape.span())
            .collect();
        let ups = parts.into_iter().flat_map(Tape::ups);
        let downs = parts.into_iter().flat_map(Tape::downs);
        let nothing = |direction| NoRecording::Nothing(direction, seconds);
        let clocks =
            Clocks::estimate(ups, downs, &calm).ok_or(nothing("in one of the directions"))?;
        let from = load.began.ok_or(nothing("in one of the directions"))? + settling;
        let recording = Recording {
            up: upward(load, &clocks, from),
            down: downward(load, &clocks, from),
            clocks,
            from,
        };
        let directions = [
            ("upward", &recording.up, request.upload_flows),
            ("downward", &recording.down, request.download_flows),
        ];
        for (name, direction, flows) in directions {
            if flows > 0 && direction.arrivals.len() < 2 {
                return Err(nothing(name));
            }
        }
        Ok(recording)
    }
}

fn upward(load: &Tape, clocks: &Clocks, from: Time) -> Way {
    let mut direction = Way {
        own_silence: load.own_silence,
        ..Way::default()
    };
    let mut arrivals = Vec::new();
    let arrival = |packet: &Upward, at| Arrival {
        number: packet.has_data.then_some(packet.number),
        sent: if packet.has_data { packet.sent } else { at },
        at,
        size: Bytes::new(u64::from(packet.size)),
    };
    // Packets that wait for the next one whose arrival is known.
    let mut between: Vec<&Upward> = Vec::new();
    let mut last = None;
    for packet in &load.up {
        if packet.has_data {
            direction.sent += 1;
            direction.lost += u64::from(!packet.known);
            direction.untimed += u64::from(packet.known && packet.arrived.is_none());
        }
        match packet.arrived {
            None if packet.known => between.push(packet),
            None => {}
            Some(arrived) => {
                let at = clocks.near(arrived);
                let span = at.since(last.unwrap_or(at));
                let sizes = between.iter().map(|packet| packet.size);
                let all = f64::from(packet.size) + sizes.map(f64::from).sum::<f64>();
                let mut passed = 0.0;
                for packet in between.drain(..) {
                    passed += f64::from(packet.size);
                    arrivals.push(arrival(packet, at - span.mul_f64(1.0 - passed / all)));
                }
                arrivals.push(arrival(packet, at));
                last = Some(at);
            }
        }
    }
    finish(direction, arrivals, from)
}

fn downward(load: &Tape, clocks: &Clocks, from: Time) -> Way {
    let arrivals = load.down.iter().map(|packet| Arrival {
        number: packet.sent.map(|_| packet.number),
        sent: packet.sent.map_or(packet.arrived, |sent| clocks.near(sent)),
        at: packet.arrived,
        size: Bytes::new(u64::from(packet.size)),
    });
    let arrivals: Vec<Arrival> = arrivals.collect();
    let received = arrivals
        .iter()
        .filter(|arrival| arrival.number.is_some())
        .count() as u64;
    let sent = load.sent_there.max(received);
    let direction = Way {
        sent,
        lost: sent - received,
        own_silence: load.own_silence,
        ..Way::default()
    };
    finish(direction, arrivals, from)
}

/// In order of arrival, from `from` to the last packet with data.
fn finish(mut direction: Way, mut arrivals: Vec<Arrival>, from: Time) -> Way {
    arrivals.sort_by_key(|arrival| arrival.at);
    let least_delay = arrivals
        .iter()
        .filter(|arrival| arrival.number.is_some())
        .map(Arrival::delay_ms)
        .fold(f64::INFINITY, f64::min);
    arrivals.retain(|arrival| arrival.at >= from);
    let data = arrivals
        .iter()
        .rposition(|arrival| arrival.number.is_some());
    arrivals.truncate(data.map_or(0, |last| last + 1));
    if let Some(last) = arrivals.last() {
        let bin = |at: Time| at.since(from).as_nanos() / BIN.as_nanos();
        let mut idle: Vec<u64> = arrivals
            .iter()
            .filter(|arrival| {
                arrival.number.is_some()
                    && arrival.delay_ms() - least_delay < NO_QUEUE.as_millis_f64()
            })
            .map(|arrival| bin(arrival.at))
            .collect();
        idle.dedup();
        direction.queued_share = 1.0 - idle.len() as f64 / (bin(last.at) + 1) as f64;
    }
    direction.arrivals = arrivals;
    direction
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::Rate;

    #[test]
    fn a_trace_with_a_silence_of_our_own_is_no_channel() {
        let control = |millis: u64| Event::Control {
            sent: true,
            at: Time::from_millis(millis),
            size: Bytes::new(60),
        };
        for (after, limit) in [(600, Limit::PathQueue), (3600, Limit::OwnSilence)] {
            let mut tape = Tape::default();
            tape.take([200, 100].map(control));
            tape.take([300].map(control));
            tape.take([after, after + 100].map(control));
            let direction = Way {
                own_silence: tape.own_silence,
                queued_share: 1.0,
                ..Way::default()
            };
            let rate = Rate::from_mbps(5.0);
            assert_eq!(Limit::of(&direction, rate, None, None), limit, "{after} ms");
        }
    }
}
