//! A link drawn from a seed, for trials of lying receivers, over UDP's core and over QUIC's.

use rand::RngExt;
use verus_core::{Bytes, Duration, random};

use crate::path::{Bottleneck, Datagram, Path};
use crate::schedule::{Direction, Faults, Schedule};

/// A constant rate behind a drop-tail queue, with as much propagation delay each way.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its rate, Mbit/s: 1 to 12, evenly on a logarithmic scale.
    pub mbps: f64,
    /// Propagation delay each way: 5 to 60 ms.
    pub one_way: Duration,
    /// The queue's capacity: 1 to 4 bandwidth-delay products and 15 kB.
    pub queue_bytes: u64,
}

impl Link {
    /// The link of this seed.
    pub fn random(seed: u64) -> Self {
        let mut dice = random::stream(seed, "link", 0);
        let mbps = 12.0f64.powf(dice.random_range(0.0..1.0));
        let one_way = Duration::from_millis_f64(dice.random_range(5.0..60.0));
        let product = mbps * 1e6 / 8.0 * 2.0 * one_way.as_secs_f64();
        Link {
            mbps,
            one_way,
            queue_bytes: (product * dice.random_range(1.0..4.0)) as u64 + 15_000,
        }
    }

    /// Its capacity in `span`, in bytes.
    pub fn bytes_in(&self, span: Duration) -> f64 {
        self.mbps * 1e6 / 8.0 * span.as_secs_f64()
    }

    /// The way of the data over it, for packets whose sizes are those of IP.
    pub fn path<D: Datagram>(&self) -> Path<D> {
        let schedule = Schedule {
            up: Faults {
                delay: self.one_way,
                ..Faults::default()
            },
            ..Schedule::default()
        };
        let queue = format!("droptail:bytes={}", self.queue_bytes);
        Path::new(&schedule, Direction::Up)
            .with_capacity(Bytes::new(256 << 20))
            .with_overhead(Bytes::ZERO)
            .with_bottleneck(Bottleneck::new(self.mbps, &queue))
    }
}
