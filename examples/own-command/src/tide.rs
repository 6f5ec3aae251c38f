//! A new controller, and a list with it and Verus's schemes.

use verus_core::configuration::Configured;
use verus_core::{Bytes, Controller, Feedback, Time, Timeout};
use verus_senders::Registry;
use verus_words::configuration::Configuration;
use verus_words::range::Within;
use verus_words::spec::{Row, field};

/// The schemes of this program, by name.
pub fn registry() -> Registry {
    Registry::default().with::<Tide>("tide", "keeps a queue of some ms")
}

/// A packet more each round trip while less than `queue_ms` waits on the path, else a packet less.
#[derive(Clone, Debug)]
pub struct Tide {
    queue_ms: f64,
    packet: Bytes,
    /// In packets.
    window: f64,
}

impl Default for Tide {
    fn default() -> Self {
        Tide {
            queue_ms: 30.0,
            packet: Bytes::ZERO,
            window: 10.0,
        }
    }
}

const QUEUE: Within = Within {
    words: "between 1 and 1000 ms",
    valid: |ms| (1.0..=1e3).contains(&ms),
};

impl Configuration for Tide {
    const ROWS: &'static [Row<Self>] =
        &[field!(queue_ms).within("ms", "the queueing delay that it keeps", QUEUE)];
}

impl Configured for Tide {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Tide".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

impl Controller for Tide {
    fn on_start(&mut self, _now: Time, packet: Bytes) {
        self.packet = packet;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let queue = feedback.smoothed_rtt - feedback.min_rtt;
        let step = feedback.acked.len() as f64 / self.window;
        let rises = queue.as_millis_f64() < self.queue_ms;
        self.window = (self.window + if rises { step } else { -step }).max(2.0);
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        self.window = 2.0;
    }

    fn window(&self) -> Bytes {
        self.packet.mul_f64(self.window)
    }
}
