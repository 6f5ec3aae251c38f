//! A new queue, and a list with it and Verus's queues.

use std::collections::VecDeque;

use verus_channel::queue::{Configuration, Queue, Registry, Waiting};
use verus_core::{Duration, Time};
use verus_words::range::Within;
use verus_words::spec::{Row, field};

/// The queues of this program, by name.
pub fn registry() -> Registry {
    Registry::default().with::<Ebb>("ebb", "drops what has waited longer than some ms")
}

/// First in, first out; drops packets that have waited longer than `life_ms` instead of sending
/// them.
#[derive(Debug)]
pub struct Ebb {
    life_ms: f64,
}

impl Default for Ebb {
    fn default() -> Self {
        Ebb { life_ms: 100.0 }
    }
}

const LIFE: Within = Within {
    words: "between 1 and 10000 ms",
    valid: |ms| (1.0..=1e4).contains(&ms),
};

impl Configuration for Ebb {
    const ROWS: &'static [Row<Self>] =
        &[field!(life_ms).within("ms", "how long a packet may wait", LIFE)];

    fn build(&self, _seed: u64) -> Box<dyn Queue> {
        Box::new(Packets {
            life: Duration::from_millis_f64(self.life_ms),
            waiting: VecDeque::new(),
        })
    }
}

#[derive(Debug)]
struct Packets {
    life: Duration,
    waiting: VecDeque<Waiting>,
}

impl Queue for Packets {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        self.waiting.push_back(packet);
    }

    fn dequeue(&mut self, now: Time) -> Option<Waiting> {
        // A packet that is let go of here is dropped.
        std::iter::from_fn(|| self.waiting.pop_front())
            .find(|packet| now.since(packet.entered()) <= self.life)
    }
}
