//! The receiver half of a flow's algorithm, with the stamps and reports that travel between it and
//! the sender.
//!
//! Stamps and reports travel beside their packets, in separate queues, so that packets of
//! algorithms without a receiver half stay small. Paths keep the order of packets that arrive: an
//! entry before the one looked for belongs to a dropped packet.

use std::collections::VecDeque;

use verus_core::controller::{Arrival, Observer};
use verus_core::{Bytes, Stamp, Time};

use crate::timer::Timer;

/// The receiver half of one flow.
#[derive(Debug)]
pub struct ReceiverHalf {
    /// The algorithm's own part.
    observer: Box<dyn Observer>,
    timer: Timer,
    /// Stamps under way, by packet number.
    stamps: VecDeque<(u64, Stamp)>,
    /// Reports under way, by their own number.
    reports: VecDeque<(u32, Vec<u8>)>,
    reported: u32,
    /// Buffers of reports that have arrived, to be used again.
    spare: Vec<Vec<u8>>,
}

impl ReceiverHalf {
    /// The half of a flow that has not sent anything yet.
    pub fn new(observer: Box<dyn Observer>) -> Self {
        ReceiverHalf {
            observer,
            timer: Timer::default(),
            stamps: VecDeque::new(),
            reports: VecDeque::new(),
            reported: 0,
            spare: Vec::new(),
        }
    }

    /// A packet leaves the sender, perhaps to be dropped.
    pub fn on_sent(&mut self, number: u64, stamp: Option<Stamp>) {
        self.stamps.extend(stamp.map(|stamp| (number, stamp)));
    }

    /// A packet arrives.
    pub fn on_packet(&mut self, at: Time, number: u64, size: Bytes) {
        let before = |stamps: &VecDeque<(u64, Stamp)>| {
            stamps.front().is_some_and(|&(other, _)| other < number)
        };
        while before(&self.stamps) {
            self.stamps.pop_front();
        }
        let stamp = self.stamps.front().filter(|&&(other, _)| other == number);
        self.observer.on_packet(&Arrival {
            at,
            number,
            size,
            stamp: stamp.map(|(_, stamp)| stamp.as_slice()),
        });
    }

    /// The time of an event for its next tick, if one is needed.
    pub fn set_timer(&mut self) -> Option<Time> {
        self.timer.set(self.observer.next_tick())
    }

    /// An event set for a tick has come; returns whether it is still valid.
    pub fn on_timer(&mut self, now: Time) -> bool {
        let valid = self.timer.comes(now);
        if valid && self.observer.next_tick().is_some_and(|at| at <= now) {
            self.observer.on_tick(now);
        }
        valid
    }

    /// An acknowledgement leaves, perhaps to be dropped; returns the number of its report.
    pub fn report(&mut self) -> u32 {
        let mut bytes = self.spare.pop().unwrap_or_default();
        self.observer.write_report(&mut bytes);
        self.reported = self.reported.wrapping_add(1);
        self.reports.push_back((self.reported, bytes));
        self.reported
    }

    /// The acknowledgement with this report arrives; returns the report, unless it is empty.
    pub fn take_report(&mut self, number: u32) -> Option<&[u8]> {
        loop {
            let (other, bytes) = self.reports.pop_front()?;
            self.spare.push(bytes);
            if other == number {
                break;
            }
        }
        let bytes = self.spare.last()?;
        (!bytes.is_empty()).then_some(bytes)
    }
}
