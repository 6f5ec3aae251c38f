//! The fate of each packet.
//!
//! Its methods are marked cold: few runs record packets, and the code of all others stays compact.

use verus_core::flight::Revealed;
use verus_core::sender::Transmit;
use verus_core::{Bytes, Time};
use verus_senders::Sender;

use crate::packet::DataPacket;
use crate::record::Records;

/// Writes down what happens to each packet.
#[derive(Debug)]
pub struct Recorder {
    records: Records,
    /// The packets of each flow's connection: their rows in the records, by packet number.
    row_of: Vec<Vec<usize>>,
}

impl Recorder {
    /// Empty records, for `flows` flows.
    pub fn new(flows: usize) -> Self {
        Recorder {
            records: Records::default(),
            row_of: vec![Vec::new(); flows],
        }
    }

    /// A packet leaves its sender: its row begins.
    #[cold]
    pub fn on_sent(
        &mut self,
        now: Time,
        sender: &Sender,
        transmit: &Transmit,
        packet: &DataPacket,
    ) {
        let records = &mut self.records;
        let row = packet.id as usize;
        debug_assert_eq!(records.len(), row, "rows are in the order of sending");
        self.row_of[packet.flow as usize].push(row);
        records.flow.push(packet.flow);
        records.connection.push(packet.connection);
        records.number.push(packet.number);
        records.size_bytes.push(transmit.size.get() as u32);
        records
            .window_bytes
            .push(sender.controller().window().as_f64());
        records.retransmission.push(transmit.retransmission);
        records.sent_ms.push(now.as_millis_f64());
        records.departed_ms.push(f64::NAN);
        records.received_ms.push(f64::NAN);
        records.new_bytes.push(0);
        records.acked_ms.push(f64::NAN);
        records.dropped_ms.push(f64::NAN);
    }

    /// A packet is dropped. If the path duplicated it, its row shows a drop only if neither copy arrives.
    #[cold]
    pub fn on_dropped(&mut self, now: Time, packet: &DataPacket) {
        let row = packet.id as usize;
        if self.records.received_ms[row].is_nan() {
            self.records.dropped_ms[row] = now.as_millis_f64();
        }
    }

    /// A packet leaves the bottleneck. Of a packet that the path sent on twice, the first counts.
    #[cold]
    pub fn on_left(&mut self, now: Time, packet: &DataPacket) {
        first(&mut self.records.departed_ms[packet.id as usize], now);
    }

    /// A packet arrives. Of a packet that the path sent on twice, the first counts.
    #[cold]
    pub fn on_arrived(&mut self, at: Time, packet: &DataPacket) {
        let row = packet.id as usize;
        first(&mut self.records.received_ms[row], at);
        self.records.dropped_ms[row] = f64::NAN;
    }

    /// Of a packet that arrived, `new` bytes had not arrived before.
    #[cold]
    pub fn on_delivered(&mut self, packet: &DataPacket, new: Bytes) {
        self.records.new_bytes[packet.id as usize] += new.get() as u32;
    }

    /// The sender of `flow` learns that these packets have arrived.
    #[cold]
    pub fn on_acknowledged(&mut self, now: Time, flow: usize, revealed: &Revealed) {
        for acked in revealed.acked.iter().chain(&revealed.recovered) {
            let row = self.row_of[flow][acked.packet.number as usize];
            self.records.acked_ms[row] = now.as_millis_f64();
        }
    }

    /// Nothing that the flow's connection sent will be acknowledged any more.
    pub fn forget(&mut self, flow: usize) {
        self.row_of[flow].clear();
    }

    /// The records so far.
    pub fn so_far(&self) -> &Records {
        &self.records
    }

    /// The complete records.
    pub fn finish(self) -> Records {
        self.records
    }
}

/// Sets a time in ms that is not set yet.
fn first(slot: &mut f64, at: Time) {
    if slot.is_nan() {
        *slot = at.as_millis_f64();
    }
}
