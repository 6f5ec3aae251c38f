//! A configuration, and the controllers that are made of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use verus_core::configuration::Configured;
use verus_core::{LossRule, Time};

use crate::bridge::Bridge;
use crate::events::Log;
use crate::path::PathController;

/// How many bytes a connection keeps until they are acknowledged, unless
/// [`Factory::shared_send_window`] sets another number; the default of quinn 0.11 and noq 1.4.
const SEND_WINDOW: u64 = 10_000_000;

/// Builds a controller for each path of each connection.
#[derive(Clone)]
pub struct Factory {
    config: Arc<dyn Configured>,
    seed: u64,
    /// How many controllers were built: each has a separate stream of random numbers.
    built: Arc<AtomicU64>,
    send_window: Arc<AtomicU64>,
    log: usize,
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory")
            .field("config", &self.config)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// How a stack detects losses as a controller needs it; its threshold of packets is off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossDetection {
    /// A packet is lost when it is overtaken and this many round trips old (RFC 9002 §6.1.2).
    pub time_threshold: f32,
    /// The peer should acknowledge each packet, and at once where one comes out of order: its delay
    /// is a sample. Only a peer that knows the ACK-frequency extension obeys.
    pub each_packet: bool,
}

impl Factory {
    /// Controllers of `config`. Those that draw random numbers draw them from `seed` and from how many
    /// were built before.
    pub fn new(config: &Arc<dyn Configured>, seed: u64) -> Factory {
        Factory {
            config: Arc::clone(config),
            seed,
            built: Arc::new(AtomicU64::new(0)),
            send_window: Arc::new(AtomicU64::new(SEND_WINDOW)),
            log: 0,
        }
    }

    /// Shares the transport's send window, which a [`Driver`](crate::Driver) sets again and again.
    #[must_use]
    pub fn shared_send_window(mut self, bytes: Arc<AtomicU64>) -> Factory {
        self.send_window = bytes;
        self
    }

    /// Each controller logs its first `capacity` events, from its first packet; see
    /// [`View::take_log`](crate::View::take_log).
    #[must_use]
    pub fn log(mut self, capacity: usize) -> Factory {
        self.log = capacity;
        self
    }

    /// The present send window, bytes.
    pub fn send_window(&self) -> u64 {
        self.send_window.load(Ordering::Relaxed)
    }

    /// How the stack should detect losses for this controller.
    pub fn loss_detection(&self) -> LossDetection {
        match self.config.build(self.seed).recovery().loss {
            // RFC 9002 §6.1.2 alone, with a quarter of a round trip, RACK's reordering window
            // (RFC 8985 §6.2). By a threshold of packets (§6.1.1), a packet that is three
            // packets late is lost: 0.4 ms at 100 Mbit/s.
            LossRule::Rack => LossDetection {
                time_threshold: 5.0 / 4.0,
                each_packet: false,
            },
            // Verus §5.2: a missing packet is lost a multiple of the delay after it is first
            // missed, however many have overtaken it. It is missed a delay after it left, from
            // when QUIC counts. QUIC knows no fixed time (the prototype's 150 ms); the paper's
            // rule replaces it.
            rule => LossDetection {
                time_threshold: match rule {
                    LossRule::DelayTimer { factor } => 1.0 + factor as f32,
                    LossRule::FixedTimer { .. } | LossRule::Rack => 4.0,
                },
                each_packet: true,
            },
        }
    }

    /// The controller of a path that begins at `now` with packets of `packet_size` bytes.
    pub fn build(&self, now: Instant, packet_size: u16) -> Arc<PathController> {
        let nth = self.built.fetch_add(1, Ordering::Relaxed);
        let controller = self.config.build(self.seed.wrapping_add(nth));
        let mut bridge = Bridge::new(controller, Time::ZERO, packet_size);
        if self.log > 0 {
            bridge.set_log(Some(Log::new(self.log)));
        }
        let window = Arc::clone(&self.send_window);
        Arc::new(PathController::new(now, bridge, window))
    }
}
