//! The results of a run, under the names that tables and files use.

use serde::Serialize;

/// The metrics of one run at one bottleneck. A metric that could not be observed, or has no value
/// (a delay when nothing was delivered), is `None`, and `null` in JSON. No value is ever
/// not-a-number.
///
/// The measured interval runs from the first packet reaching the bottleneck to the end of the run
/// (in a Mahimahi log, from its first event to its last). Packets dropped, or still queued at the
/// end, count in arrivals and in loss or backlog, not in delay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    /// Length of the measured interval, s.
    pub interval_s: f64,
    /// The channel's capacity, Mbit/s.
    pub capacity_mbps: f64,
    /// Bytes that left the bottleneck queue, Mbit/s.
    pub throughput_mbps: f64,
    /// Bytes new to the receiver, Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// Throughput / capacity; none when the channel could carry nothing.
    pub utilization: Option<f64>,
    /// Mean time from entering to leaving the bottleneck queue, per packet, ms (exact).
    pub qdelay_mean_ms: Option<f64>,
    /// Median queueing delay, ms. Each quantile is element ⌊q·n⌋ of the sorted delays, too low by
    /// less than 10 µs or 1/1024 of it; exact integers when fed whole milliseconds below 16 s.
    pub qdelay_p50_ms: Option<f64>,
    /// 95th percentile of the queueing delay, ms.
    pub qdelay_p95_ms: Option<f64>,
    /// 99th percentile of the queueing delay, ms.
    pub qdelay_p99_ms: Option<f64>,
    /// Largest queueing delay, ms (exact).
    pub qdelay_max_ms: Option<f64>,
    /// 95th percentile over milliseconds of the least delay of a packet entering then or later, ms.
    /// One signal per bottleneck, all flows together. Where no flow has anything to send, as
    /// [`Meter::set_waiting`](crate::Meter::set_waiting) says, it is the time that the queue needs
    /// to run empty, and there is no sample afterwards.
    pub signal_delay_p95_ms: Option<f64>,
    /// Mean round-trip time per packet as the sender saw it, ms (exact).
    pub rtt_mean_ms: Option<f64>,
    /// 95th percentile of the round-trip time, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets dropped at the bottleneck / packets that reached it; none if none did.
    pub loss_rate: Option<f64>,
    /// Packets lost on the way to the bottleneck / packets that left for it; none if none did, or if the way was not
    /// observed.
    pub path_loss_rate: Option<f64>,
    /// Retransmissions / packets sent; none if none were sent or sending was not observed.
    pub retransmit_rate: Option<f64>,
    /// Jain's index of the flows' throughputs over each whole second of the measured interval,
    /// averaged over the seconds in which anything was delivered; none without such a second.
    pub jain: Option<f64>,
    /// As [`jain`](Metrics::jain), counting in each second only the flows that were on at some
    /// time in it.
    pub jain_active: Option<f64>,
    /// Throughput of the flow that got least, Mbit/s; none without flows.
    pub flow_min_mbps: Option<f64>,
    /// Throughput of the flow that got most, Mbit/s; none without flows.
    pub flow_max_mbps: Option<f64>,
    /// Files, or frames of a live source, that were delivered completely; none where no flow has such to send.
    pub completions: Option<u64>,
    /// Mean time to the complete arrival of a file or frame, s, over those that were delivered
    /// completely. It counts from the beginning of a file's connection, or from when a frame was
    /// ready to be sent.
    pub completion_mean_s: Option<f64>,
    /// Median of the same, s.
    pub completion_p50_s: Option<f64>,
    /// 95th percentile of the same, s.
    pub completion_p95_s: Option<f64>,
    /// 99th percentile of the same, s.
    pub completion_p99_s: Option<f64>,
    /// The longest, s.
    pub completion_max_s: Option<f64>,
    /// Frames that took longer than their deadline, those that never came among them; none where no flow has frames.
    pub late: Option<u64>,
    /// Throughput / (mean queueing delay + base round-trip time), Mbit/s per second of delay; none
    /// when the base round-trip time is not known.
    pub power: Option<f64>,
    /// Packets that reached the bottleneck.
    pub arrivals: u64,
    /// Their bytes.
    pub arrived_bytes: u64,
    /// Packets that left the bottleneck queue.
    pub departures: u64,
    /// Their bytes.
    pub departed_bytes: u64,
    /// Packets dropped at the bottleneck.
    pub drops: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets lost on the way to the bottleneck.
    pub path_losses: u64,
    /// Packets still queued at the end.
    pub backlog: u64,
    /// Each flow's share.
    pub per_flow: Vec<FlowMetrics>,
    /// Each flow over time; saved apart from the row of results.
    #[serde(skip)]
    pub series: Vec<FlowSeries>,
}

impl Metrics {
    /// Those of the fields that a row of results has, in its order; the others are saved beside it.
    pub const COLUMNS: &[&str] = &[
        "capacity_mbps",
        "throughput_mbps",
        "goodput_mbps",
        "utilization",
        "qdelay_mean_ms",
        "qdelay_p50_ms",
        "qdelay_p95_ms",
        "qdelay_p99_ms",
        "signal_delay_p95_ms",
        "rtt_mean_ms",
        "rtt_p95_ms",
        "loss_rate",
        "path_loss_rate",
        "retransmit_rate",
        "jain",
        "jain_active",
        "flow_min_mbps",
        "flow_max_mbps",
        "power",
        "completions",
        "completion_mean_s",
        "completion_p50_s",
        "completion_p95_s",
        "completion_p99_s",
        "completion_max_s",
        "late",
    ];
}

/// The metrics of one flow; the fields mean the same as in [`Metrics`]. Rates are over the run's
/// measured interval, also for a flow that was on for a part of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowMetrics {
    /// Index of the flow.
    pub flow: usize,
    /// Bytes that left the bottleneck queue, Mbit/s.
    pub throughput_mbps: f64,
    /// Time for which it was on, s; `None` if it was not reported.
    pub on_s: Option<f64>,
    /// Bytes that left the bottleneck queue over the time for which it was on, Mbit/s; none if it never was.
    pub throughput_on_mbps: Option<f64>,
    /// Bytes new to the receiver, Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// Mean queueing delay, ms.
    pub qdelay_mean_ms: Option<f64>,
    /// Median queueing delay, ms.
    pub qdelay_p50_ms: Option<f64>,
    /// 95th percentile of the queueing delay, ms.
    pub qdelay_p95_ms: Option<f64>,
    /// 99th percentile of the queueing delay, ms.
    pub qdelay_p99_ms: Option<f64>,
    /// Largest queueing delay, ms.
    pub qdelay_max_ms: Option<f64>,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// 95th percentile of the round-trip time, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets dropped at the bottleneck / packets that reached it.
    pub loss_rate: Option<f64>,
    /// Packets lost on the way to the bottleneck / packets that left for it.
    pub path_loss_rate: Option<f64>,
    /// Retransmissions / packets sent.
    pub retransmit_rate: Option<f64>,
    /// Files or frames that were delivered completely; none where it has no such to send.
    pub completions: Option<u64>,
    /// Mean time that one took, s.
    pub completion_mean_s: Option<f64>,
    /// Median of the same, s.
    pub completion_p50_s: Option<f64>,
    /// 95th percentile of the same, s.
    pub completion_p95_s: Option<f64>,
    /// 99th percentile of the same, s.
    pub completion_p99_s: Option<f64>,
    /// The longest, s.
    pub completion_max_s: Option<f64>,
    /// Frames that took longer than their deadline; none where it has no frames.
    pub late: Option<u64>,
    /// Throughput / (mean queueing delay + base round-trip time), Mbit/s per second.
    pub power: Option<f64>,
    /// Packets that reached the bottleneck.
    pub arrivals: u64,
    /// Packets that left the bottleneck queue.
    pub departures: u64,
    /// Packets dropped at the bottleneck.
    pub drops: u64,
    /// Packets lost on the way to the bottleneck.
    pub path_losses: u64,
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

impl FlowMetrics {
    /// Those of the fields that a row of results has of each flow, in its order.
    pub const COLUMNS: &[&str] = &[
        "throughput_mbps",
        "on_s",
        "throughput_on_mbps",
        "goodput_mbps",
        "qdelay_mean_ms",
        "qdelay_p50_ms",
        "qdelay_p95_ms",
        "qdelay_p99_ms",
        "rtt_mean_ms",
        "rtt_p95_ms",
        "loss_rate",
        "path_loss_rate",
        "retransmit_rate",
        "completions",
        "completion_mean_s",
        "completion_p50_s",
        "completion_p95_s",
        "completion_p99_s",
        "completion_max_s",
        "late",
    ];
}

/// One flow over time, a value per bin. Bin `i` covers the bin's width from `i` times that after
/// the caller's clock began; the last is cut at the end of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowSeries {
    /// Index of the flow.
    pub flow: usize,
    /// Width of a bin, ms.
    pub bin_ms: f64,
    /// Bytes that left the bottleneck queue in the bin, Mbit/s.
    pub throughput_mbps: Vec<f64>,
    /// Mean queueing delay of the packets that left in the bin, ms; none when none did.
    pub qdelay_mean_ms: Vec<Option<f64>>,
    /// Largest queueing delay of the packets that left in the bin, ms; none when none did.
    pub qdelay_max_ms: Vec<Option<f64>>,
}
