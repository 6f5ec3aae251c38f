//! The epochs of each flow, to train models on.
//!
//! Its methods are marked cold: few runs record epochs, and the code of all others stays compact.

use verus_core::Time;
use verus_core::flight::Revealed;
use verus_model::Sampler;
use verus_senders::Sender;

use crate::record::FlowOutcome;

/// A sampler for each flow.
#[derive(Debug)]
pub struct Epochs(Vec<Sampler>);

impl Epochs {
    /// Empty samplers, for `flows` flows.
    pub fn new(flows: usize) -> Self {
        Epochs(vec![Sampler::new(); flows])
    }

    /// Ends the flow's open epoch: what follows belongs to another connection.
    #[cold]
    pub fn cut(&mut self, now: Time, flow: usize) {
        self.0[flow].close(now);
        self.0[flow].cut();
    }

    /// A sender is about to send.
    #[cold]
    pub fn before_sending(&mut self, now: Time, flow: usize, sender: &Sender) {
        self.0[flow].align(now, sender.controller().next_tick());
    }

    /// A packet leaves its sender.
    #[cold]
    pub fn on_sent(&mut self, now: Time, flow: usize) {
        self.0[flow].on_sent(now);
    }

    /// A sender has sent what its controller allowed.
    #[cold]
    pub fn after_sending(&mut self, now: Time, flow: usize, sender: &Sender) {
        self.0[flow].set_under_way(!sender.in_flight().is_zero());
        if sender.is_idle() {
            self.cut(now, flow);
        }
    }

    /// A sender learns that packets have arrived.
    #[cold]
    pub fn on_acknowledged(&mut self, now: Time, flow: usize, revealed: &Revealed) {
        for acked in revealed.acked.iter().chain(&revealed.recovered) {
            self.0[flow].on_acked(now, acked.rtt);
        }
    }

    /// Puts each flow's epochs into its outcome.
    pub fn finish(self, end: Time, outcomes: &mut [FlowOutcome]) {
        for (mut sampler, outcome) in self.0.into_iter().zip(outcomes) {
            sampler.close(end);
            outcome.epochs = Some(sampler);
        }
    }
}
