//! The outcome of a run, as columns.

use serde::Serialize;
use verus_core::{Bytes, Phase, ProfileSnapshot, Time};
use verus_measure::Metrics;
use verus_model::Sampler;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every metric of the bottleneck and of each flow.
    pub metrics: Metrics,
    /// The channel that was used.
    pub channel: ChannelInfo,
    /// The others, by the scenario's field that names each: `ack`, `second_trace`.
    pub other_channels: Vec<(&'static str, ChannelInfo)>,
    /// Each flow's results over time.
    pub flows: Vec<FlowOutcome>,
    /// The connections of flows that do not send all the time, in the order in which they began.
    pub connections: Vec<Connection>,
    /// Capacity of the channel in each bin, Mbit/s.
    pub capacity_mbps: Vec<f64>,
    /// Width of a bin, ms.
    pub bin_ms: f64,
    /// The fate of each packet, if requested.
    pub records: Option<Records>,
    /// The simulator's own counts.
    pub totals: Totals,
}

/// One connection of a flow that does not send all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connection {
    /// Index of the flow.
    pub flow: u32,
    /// Its number among the flow's connections, from 0.
    pub number: u32,
    /// The time of its beginning.
    pub start: Time,
    /// When its file had been delivered completely, or its time was over; `None` if the flow or the run ended first.
    pub end: Option<Time>,
    /// Size of its file; `None` if it was to last for a time.
    pub file: Option<Bytes>,
    /// Bytes that its receiver got.
    pub delivered: Bytes,
}

/// The channel of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ChannelInfo {
    /// As given.
    pub name: String,
    /// SHA-256 of the trace's content, where there is a trace.
    pub sha256: Option<String>,
    /// Length of the trace, s.
    pub duration_s: Option<f64>,
    /// Mean rate, Mbit/s.
    pub mean_mbps: f64,
}

/// Counts that describe the run rather than the network.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Events handled.
    pub events: u64,
    /// The most bytes in the network at any instant: in the bottleneck, in propagation, or arrived
    /// with their acknowledgement still on its way. All flows together.
    pub peak_network_bytes: u64,
    /// The same at the end of the run.
    pub network_bytes: u64,
    /// The largest window of any flow when it sent, in bytes.
    pub peak_window_bytes: u64,
}

/// One flow over time.
#[derive(Clone, Debug, Default)]
pub struct FlowOutcome {
    /// The scheme as given.
    pub scheme: String,
    /// Names of the columns of `samples`: `window_bytes`, `in_flight_bytes`, and what the
    /// controller's probe shows.
    pub columns: Vec<&'static str>,
    /// One column each, one value a bin (the value at the bin's end; not-a-number before the flow
    /// starts, and between the connections of one that switches on and off).
    pub samples: Vec<Vec<f64>>,
    /// The controller's phase, a value a bin like `samples`; empty for algorithms that have none.
    pub phases: Vec<Option<Phase>>,
    /// Delay-profile snapshots, for algorithms that learn one.
    pub profiles: Vec<(Time, ProfileSnapshot)>,
    /// A sample of each epoch, where asked for.
    pub epochs: Option<Sampler>,
    /// Packets sent, lost and recovered, timeouts and probes, as the senders of all its connections counted them.
    pub counters: verus_core::sender::Counters,
}

/// Each packet's fate: one entry a packet in each column, in the order of sending. Times are in ms;
/// not-a-number where it never happened.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Index of the flow.
    pub flow: Vec<u32>,
    /// Number of the flow's connection, from 0.
    pub connection: Vec<u32>,
    /// Packet number within the connection.
    pub number: Vec<u64>,
    /// Size in bytes.
    pub size_bytes: Vec<u32>,
    /// The controller's window when it left, in bytes.
    pub window_bytes: Vec<f64>,
    /// Whether it carries data that had left before.
    pub retransmission: Vec<bool>,
    /// When it left the sender and reached the bottleneck.
    pub sent_ms: Vec<f64>,
    /// When it left the bottleneck queue.
    pub departed_ms: Vec<f64>,
    /// When it reached the receiver.
    pub received_ms: Vec<f64>,
    /// How many of its bytes were new to the receiver.
    pub new_bytes: Vec<u32>,
    /// When its acknowledgement reached the sender.
    pub acked_ms: Vec<f64>,
    /// When it was dropped: at the bottleneck, on the way to it, or corrupt behind it. Not a number if it arrived, and so
    /// if the path had sent it on twice and one of the two did.
    pub dropped_ms: Vec<f64>,
}

impl Records {
    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.flow.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flow.is_empty()
    }
}
