//! Optional observers of senders: their epochs, to train models on, and their logs.
//!
//! Its methods are marked cold: few runs have such observers, and the code of all others stays compact.

use std::io;

use verus_core::sender::Transmit;
use verus_core::{Bytes, Time};
use verus_measure::qlog::{Qlog, Written};
use verus_senders::Sender;

use super::epochs::Epochs;
use crate::record::FlowOutcome;

/// Epochs, or logs, or both.
#[derive(Debug)]
pub struct Senders {
    epochs: Option<Epochs>,
    /// One for each flow, or none.
    logs: Vec<Qlog>,
    ack_size: Bytes,
}

impl Senders {
    /// The observers of senders; acknowledgements have `ack_size`. `None` if there is nothing to observe.
    pub fn new(epochs: Option<Epochs>, logs: Vec<Qlog>, ack_size: Bytes) -> Option<Self> {
        (epochs.is_some() || !logs.is_empty()).then_some(Senders {
            epochs,
            logs,
            ack_size,
        })
    }

    /// Ends the flow's open epoch: what follows belongs to another connection.
    #[cold]
    pub fn cut(&mut self, now: Time, flow: usize) {
        if let Some(epochs) = &mut self.epochs {
            epochs.cut(now, flow);
        }
    }

    /// The flow's connection is forgotten: the next one begins.
    #[cold]
    pub fn forget(&mut self, now: Time, flow: usize) {
        if let Some(log) = self.logs.get_mut(flow) {
            log.next_connection(now);
        }
    }

    /// A sender is about to send.
    #[cold]
    pub fn before_sending(&mut self, now: Time, flow: usize, sender: &Sender) {
        if let Some(epochs) = &mut self.epochs {
            epochs.before_sending(now, flow, sender);
        }
    }

    /// A packet leaves its sender.
    #[cold]
    pub fn on_sent(&mut self, now: Time, flow: usize, transmit: &Transmit) {
        if let Some(epochs) = &mut self.epochs {
            epochs.on_sent(now, flow);
        }
        if let Some(log) = self.logs.get_mut(flow) {
            log.on_sent(now, transmit);
        }
    }

    /// A sender has sent what its controller allowed.
    #[cold]
    pub fn after_sending(&mut self, now: Time, flow: usize, sender: &Sender) {
        if let Some(epochs) = &mut self.epochs {
            epochs.after_sending(now, flow, sender);
        }
        if let Some(log) = self.logs.get_mut(flow) {
            log.look(now, sender);
        }
    }

    /// A sender has processed an acknowledgement.
    #[cold]
    pub fn on_acknowledged(&mut self, now: Time, flow: usize, sender: &Sender) {
        if let Some(epochs) = &mut self.epochs {
            epochs.on_acknowledged(now, flow, sender.last_revealed());
        }
        if let Some(log) = self.logs.get_mut(flow) {
            log.on_heard(now, sender, Some(self.ack_size));
        }
    }

    /// A sender's timer fired.
    #[cold]
    pub fn on_timer(&mut self, now: Time, flow: usize, sender: &Sender) {
        if let Some(log) = self.logs.get_mut(flow) {
            log.on_timer(now, sender);
        }
    }

    /// Puts each flow's epochs into its outcome, and ends the logs.
    pub fn finish(self, end: Time, outcomes: &mut [FlowOutcome]) -> Vec<io::Result<Written>> {
        if let Some(epochs) = self.epochs {
            epochs.finish(end, outcomes);
        }
        self.logs.into_iter().map(Qlog::finish).collect()
    }
}
