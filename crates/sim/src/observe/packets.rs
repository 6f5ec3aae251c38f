//! Optional observers of packets: the record of each one's fate, and a tap of the bottleneck.
//!
//! Its methods are marked cold: few runs have such observers, and the code of all others stays compact.

use std::io;

use verus_channel::path::Why;
use verus_core::flight::Revealed;
use verus_core::receiver::Ack;
use verus_core::sender::Transmit;
use verus_core::{Bytes, Time};
use verus_senders::Sender;

use super::records::Recorder;
use crate::packet::DataPacket;
use crate::record::Records;

/// Receives each packet's events at the bottleneck, as a capture on both of its sides would.
///
/// Links are served late ([`Plan::run_logged`](crate::Plan::run_logged)): a departure may be reported after later
/// events, though never after its packet has been acknowledged. Drops and departures of a packet follow its entry.
pub trait Tap: std::fmt::Debug + Send {
    /// A packet of `size` leaves its sender, which is beside the bottleneck, and enters it.
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &DataPacket);

    /// A packet is dropped.
    fn on_dropped(&mut self, now: Time, packet: &DataPacket, why: Why);

    /// A packet leaves the bottleneck.
    fn on_left(&mut self, now: Time, packet: &DataPacket);

    /// An acknowledgement reaches the sender of the latest connection of `flow`.
    fn on_acknowledgement(&mut self, now: Time, flow: u32, ack: &Ack);

    /// The run is over; returns whether everything could be written.
    ///
    /// # Errors
    /// The first error of writing.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Records, or a tap, or both.
#[derive(Debug)]
pub struct Packets {
    recorder: Option<Recorder>,
    tap: Option<Box<dyn Tap>>,
}

impl Packets {
    /// These observers; `None` if there is nothing to observe.
    pub fn new(recorder: Option<Recorder>, tap: Option<Box<dyn Tap>>) -> Option<Self> {
        (recorder.is_some() || tap.is_some()).then_some(Packets { recorder, tap })
    }

    /// A packet leaves its sender.
    #[cold]
    pub fn on_sent(
        &mut self,
        now: Time,
        sender: &Sender,
        transmit: &Transmit,
        packet: &DataPacket,
    ) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_sent(now, sender, transmit, packet);
        }
        if let Some(tap) = &mut self.tap {
            tap.on_entered(now, transmit.size, packet);
        }
    }

    /// A packet is dropped.
    #[cold]
    pub fn on_dropped(&mut self, now: Time, packet: &DataPacket, why: Why) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_dropped(now, packet);
        }
        if let Some(tap) = &mut self.tap {
            tap.on_dropped(now, packet, why);
        }
    }

    /// A packet leaves the bottleneck.
    #[cold]
    pub fn on_left(&mut self, now: Time, packet: &DataPacket) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_left(now, packet);
        }
        if let Some(tap) = &mut self.tap {
            tap.on_left(now, packet);
        }
    }

    /// A packet arrives.
    #[cold]
    pub fn on_arrived(&mut self, at: Time, packet: &DataPacket) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_arrived(at, packet);
        }
    }

    /// Of a packet that arrived, `new` bytes had not arrived before.
    #[cold]
    pub fn on_delivered(&mut self, packet: &DataPacket, new: Bytes) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_delivered(packet, new);
        }
    }

    /// The sender of `flow` learns from `ack` that the packets of `revealed` have arrived.
    #[cold]
    pub fn on_acknowledged(&mut self, now: Time, flow: usize, ack: &Ack, revealed: &Revealed) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_acknowledged(now, flow, revealed);
        }
        if let Some(tap) = &mut self.tap {
            tap.on_acknowledgement(now, flow as u32, ack);
        }
    }

    /// Nothing that the flow's connection sent will be acknowledged any more.
    pub fn forget(&mut self, flow: usize) {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget(flow);
        }
    }

    /// The records so far, if any are kept.
    pub fn records(&self) -> Option<&Records> {
        self.recorder.as_ref().map(Recorder::so_far)
    }

    /// The complete records, and whether the tap could write everything.
    pub fn finish(self) -> (Option<Records>, io::Result<()>) {
        let written = self.tap.map_or(Ok(()), |tap| tap.finish());
        (self.recorder.map(Recorder::finish), written)
    }
}
