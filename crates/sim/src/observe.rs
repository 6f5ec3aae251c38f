//! The observers of a run: statistics and the list of connections always; packets, epochs, logs and series where the
//! scenario asks for them.
//!
//! Observers decide nothing: a run is the same with or without them.

pub mod connections;
pub mod epochs;
pub mod packets;
pub mod records;
pub mod senders;
pub mod series;

use std::io;

use verus_channel::Path;
use verus_channel::path::{Dropped, Watch, Why};
use verus_core::receiver::Ack;
use verus_core::sender::Transmit;
use verus_core::{Bytes, Duration, Time};
use verus_measure::qlog::{Qlog, Written};
use verus_measure::{Meter, Metrics};
use verus_senders::Sender;

use crate::connection::Flow;
use crate::packet::DataPacket;
use crate::plan::Plan;
use crate::record::{FlowOutcome, Outcome, Records, Totals};
use crate::traffic::Load;
use connections::Connections;
use epochs::Epochs;
use packets::{Packets, Tap};
use records::Recorder;
use senders::Senders;
use series::Series;

/// The observers of a run.
#[derive(Debug)]
pub struct Observers {
    /// Metrics of the bottleneck and the flows.
    meter: Meter,
    /// The simulator's own counts.
    pub totals: Totals,
    /// The times at which each connection was open.
    connections: Connections,
    /// The fate of each packet, or a tap of the bottleneck.
    packets: Option<Packets>,
    /// The epochs of each flow, to train models on, and its log.
    senders: Option<Senders>,
    /// The senders' state over time.
    pub series: Option<Series>,
}

impl Observers {
    /// The observers that the scenario asks for, of a run that ends at `end`. `logs` holds a log for each flow, or is
    /// empty; `tap` receives the events at the bottleneck.
    pub fn new(
        plan: &Plan,
        base_rtt: &[Duration],
        end: Time,
        logs: Vec<Qlog>,
        tap: Option<Box<dyn Tap>>,
    ) -> Self {
        let scenario = &plan.scenario;
        let flows = scenario.flows.len();
        let bin = Duration::from_millis_f64(scenario.bin_ms);
        let mut meter = Meter::new(flows, base_rtt, bin);
        for (index, traffic) in plan.traffic.iter().enumerate() {
            if traffic.has_pieces() {
                meter.expect_pieces(index);
            }
        }
        if scenario.series {
            meter.reserve(end);
        } else {
            meter = meter.without_series();
        }
        Observers {
            meter,
            totals: Totals::default(),
            connections: Connections::new(flows),
            packets: Packets::new(scenario.records.then(|| Recorder::new(flows)), tap),
            senders: Senders::new(
                scenario.epochs.then(|| Epochs::new(flows)),
                logs,
                Bytes::new(u64::from(scenario.ack_bytes)),
            ),
            series: scenario.series.then(|| Series::new(flows, bin)),
        }
    }

    /// A connection begins.
    pub fn on_begin(&mut self, now: Time, index: usize, flow: &Flow) {
        if flow.load != Load::Endless {
            self.connections.begin(now, index, flow);
        }
        self.meter.set_active(now, index, true);
    }

    /// All of a connection's file, or its last frame, has been delivered.
    pub fn on_complete(&mut self, now: Time, index: usize, flow: &Flow) {
        if let Load::File(_) = flow.load
            && let Some(took) = self.connections.lasted(now, index)
        {
            self.on_piece(index, took);
        }
    }

    /// All of a file or a frame has been delivered, `took` after it was offered to the sender.
    pub fn on_piece(&mut self, index: usize, took: Duration) {
        self.meter.on_completion(index, took);
    }

    /// A connection has ended as planned.
    pub fn on_end(&mut self, now: Time, index: usize) {
        self.connections.end(now, index);
        self.meter.set_active(now, index, false);
        self.meter.set_waiting(now, index, false);
    }

    /// A user stops for good.
    pub fn on_stop(&mut self, now: Time, index: usize) {
        self.cut_epochs(now, index);
        self.meter.set_active(now, index, false);
        self.meter.set_waiting(now, index, false);
    }

    /// A connection's ends are discarded; it had delivered `delivered` bytes.
    pub fn on_forgotten(&mut self, now: Time, index: usize, delivered: Bytes) {
        self.connections.delivered(index, delivered);
        if let Some(packets) = &mut self.packets {
            packets.forget(index);
        }
        self.cut_epochs(now, index);
        if let Some(senders) = &mut self.senders {
            senders.forget(now, index);
        }
    }

    /// An epoch of this flow must not span this instant, at which one of its connections begins or ends.
    pub fn cut_epochs(&mut self, now: Time, index: usize) {
        if let Some(senders) = &mut self.senders {
            senders.cut(now, index);
        }
    }

    /// A sender is about to send.
    #[inline]
    pub fn before_sending(&mut self, now: Time, index: usize, sender: &Sender) {
        if let Some(senders) = &mut self.senders {
            senders.before_sending(now, index, sender);
        }
    }

    /// A packet leaves its sender.
    #[inline]
    pub fn on_sent(
        &mut self,
        now: Time,
        sender: &Sender,
        transmit: &Transmit,
        packet: &DataPacket,
    ) {
        let index = packet.flow as usize;
        if let Some(senders) = &mut self.senders {
            senders.on_sent(now, index, transmit);
        }
        self.meter.on_sent(index, transmit.retransmission);
        if let Some(packets) = &mut self.packets {
            packets.on_sent(now, sender, transmit, packet);
        }
    }

    /// A sender has sent what its controller allowed, perhaps nothing.
    #[inline]
    pub fn after_sending(&mut self, now: Time, index: usize, sender: &Sender, sent: bool) {
        if sent {
            let totals = &mut self.totals;
            totals.peak_network_bytes = totals.peak_network_bytes.max(totals.network_bytes);
            let window = sender.window().get();
            totals.peak_window_bytes = totals.peak_window_bytes.max(window);
        }
        self.meter.set_waiting(now, index, sender.has_data());
        if let Some(senders) = &mut self.senders {
            senders.after_sending(now, index, sender);
        }
    }

    /// A receiver got a packet, of which `new` bytes had not arrived before.
    #[inline]
    pub fn on_delivered(&mut self, packet: &DataPacket, new: Bytes) {
        self.meter.on_delivery(packet.flow as usize, new);
        if let Some(packets) = &mut self.packets {
            packets.on_delivered(packet, new);
        }
    }

    /// `bytes` of data packets were acknowledged, or never will be.
    #[inline]
    pub fn on_settled(&mut self, bytes: u64) {
        self.totals.network_bytes -= bytes;
    }

    /// A sender has processed `ack`.
    #[inline(always)]
    pub fn on_acknowledged(&mut self, now: Time, index: usize, ack: &Ack, sender: &Sender) {
        let revealed = sender.last_revealed();
        // One after the other: a chain of both would be asked for each packet which of them it has come to.
        for acked in &revealed.acked {
            self.meter.on_rtt(index, acked.rtt);
        }
        for acked in &revealed.recovered {
            self.meter.on_rtt(index, acked.rtt);
        }
        if let Some(senders) = &mut self.senders {
            senders.on_acknowledged(now, index, sender);
        }
        if let Some(packets) = &mut self.packets {
            packets.on_acknowledged(now, index, ack, revealed);
        }
    }

    /// A sender's timer fired, and the sender has handled it.
    #[inline]
    pub fn on_timer(&mut self, now: Time, index: usize, sender: &Sender) {
        if let Some(senders) = &mut self.senders {
            senders.on_timer(now, index, sender);
        }
    }

    /// The fate of each packet so far, if requested.
    pub fn records(&self) -> Option<&Records> {
        self.packets.as_ref().and_then(Packets::records)
    }

    /// The metrics of a run that ended `now`.
    pub fn so_far(&self, data: &Path<DataPacket>, now: Time) -> Metrics {
        self.meter.clone().finish(now, capacity_until(data, now))
    }

    /// The outcome of the run, the results of writing the logs, and that of the tap.
    pub fn finish(
        mut self,
        plan: &Plan,
        flows: &[Flow],
        data: &Path<DataPacket>,
        end: Time,
    ) -> (Outcome, Vec<io::Result<Written>>, io::Result<()>) {
        for (index, flow) in flows.iter().enumerate() {
            self.connections.delivered(index, flow.ends.delivered);
            if let Some(frames) = &flow.ends.frames {
                self.meter.set_late(index, frames.late(end));
            }
            if let Some(streams) = flow.ends.feed.as_ref().and_then(|feed| feed.streams()) {
                self.meter.set_late(index, streams.late(end));
            }
        }
        let capacity = capacity_until(data, end);
        let mut outcomes: Vec<FlowOutcome> = flows
            .iter()
            .zip(&plan.scenario.flows)
            .map(|(flow, spec)| FlowOutcome {
                scheme: spec.scheme.clone(),
                counters: flow.counters(),
                ..Default::default()
            })
            .collect();
        let logs = self
            .senders
            .map_or_else(Vec::new, |senders| senders.finish(end, &mut outcomes));
        let capacity_mbps = self.series.map_or_else(Vec::new, |series| {
            series.finish(end, capacity, &mut outcomes)
        });
        let (records, tapped) = self.packets.map_or((None, Ok(())), Packets::finish);
        let outcome = Outcome {
            metrics: self.meter.finish(end, capacity),
            channel: plan.paths.channel.clone(),
            other_channels: plan.paths.other_channels.clone(),
            flows: outcomes,
            connections: self.connections.finish(),
            capacity_mbps,
            bin_ms: Duration::from_millis_f64(plan.scenario.bin_ms).as_millis_f64(),
            records,
            totals: self.totals,
        };
        (outcome, logs, tapped)
    }
}

/// Bytes that a path can carry in `[from, to)`, and in `[from, end]` of a run that ends at `end`:
/// what happens at its last instant belongs to the run.
fn capacity_until(data: &Path<DataPacket>, end: Time) -> impl Fn(Time, Time) -> Bytes + Copy {
    move |from, to| {
        let past = if to == end {
            to + Duration::from_nanos(1)
        } else {
            to
        };
        data.capacity(from, past).unwrap_or(Bytes::ZERO)
    }
}

/// Events on the path of the data.
impl Watch<DataPacket> for Observers {
    #[inline]
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &DataPacket) {
        self.totals.network_bytes += size.get();
        self.meter.on_arrival(now, packet.flow as usize, size);
    }

    #[inline]
    fn on_dropped(&mut self, now: Time, size: Bytes, packet: &DataPacket, dropped: Dropped) {
        self.totals.network_bytes -= size.get();
        match dropped.why {
            Why::Chance => self.meter.on_path_loss(packet.flow as usize, size),
            Why::Refused | Why::Waited => self.meter.on_drop(packet.flow as usize, size),
            Why::Corrupted => self.meter.on_corrupted(packet.flow as usize),
        }
        if let Some(packets) = &mut self.packets {
            packets.on_dropped(now, packet, dropped.why);
        }
    }

    #[inline(always)]
    fn on_left(&mut self, now: Time, size: Bytes, entered: Time, packet: &DataPacket) {
        self.meter
            .on_departure(now, packet.flow as usize, size, entered);
        if let Some(packets) = &mut self.packets {
            packets.on_left(now, packet);
        }
    }

    #[inline]
    fn on_arrived(&mut self, at: Time, packet: &DataPacket) {
        if let Some(packets) = &mut self.packets {
            packets.on_arrived(at, packet);
        }
    }
}
