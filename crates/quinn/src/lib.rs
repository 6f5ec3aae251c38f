//! Verus, `forward` and any other of our controllers inside QUIC.
//!
//! [`configure`] gives any controller to a transport configuration of `quinn` 0.11. [`drive`] keeps
//! the epochs of a connection running; [`view`] looks at its controller. [`endpoint`] ensures that
//! only controllers that answer congestion marks ask for them.
//!
//! ```no_run
//! # async fn example(mut config: quinn::ClientConfig, endpoint: quinn::Endpoint)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use verus_quinn::{Configured, verus};
//! let verus = verus::Config { ratio: 4.0, ..verus::Config::default() };
//! let controller: Arc<dyn Configured> = Arc::new(verus);
//! let mut transport = quinn::TransportConfig::default();
//! verus_quinn::configure(&mut transport, &controller, 1);
//! config.transport_config(Arc::new(transport));
//! let connection = endpoint.connect_with(config, "[::1]:4433".parse()?, "localhost")?.await?;
//! let _driver = verus_quinn::drive(&connection);
//! # Ok(()) }
//! ```
//!
//! QUIC stacks restrict the controllers that they host: `docs/quic.md` lists the unsupported
//! features and their cost.

mod adapter;
mod bridge;
mod driver;
mod ecn;
mod events;
mod qlog;
mod ring;
mod view;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use quinn::{AckFrequencyConfig, TransportConfig, VarInt, congestion};
use verus_core::{LossRule, Time};

use adapter::{Adapter, Shared};
use bridge::Bridge;
pub use driver::{Driver, drive};
pub use ecn::endpoint;
pub use ecn::socket_of;
pub use events::{Counters, Event};
pub use verus_core::configuration::Configured;
pub use verus_protocol::{forward, verus};
pub use view::{Driving, Snapshot, View};

/// How many bytes a connection keeps until they are acknowledged, unless [`Factory::send_window`]
/// sets another number; quinn 0.11's default.
const SEND_WINDOW: u64 = 10_000_000;

/// A configuration as quinn wants it: builds a controller for each path of each connection.
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

    /// Sets the transport's send window (`TransportConfig::send_window`), if it differs from
    /// quinn's default of 10 MB. It is needed here because a [`Driver`] wakes a connection by
    /// setting it again to its present value, and quinn has no way to ask for it.
    #[must_use]
    pub fn send_window(self, bytes: u64) -> Factory {
        self.shared_send_window(Arc::new(AtomicU64::new(bytes)))
    }

    /// The same, of all connections that this makes controllers for, and for as long as they last.
    /// Report each change to each connection (`Connection::set_send_window`).
    #[must_use]
    pub fn shared_send_window(mut self, bytes: Arc<AtomicU64>) -> Factory {
        self.send_window = bytes;
        self
    }

    /// Each controller logs its first `capacity` events, from its first packet; see [`View::take_log`].
    #[must_use]
    pub fn log(mut self, capacity: usize) -> Factory {
        self.log = capacity;
        self
    }

    /// Sets this configuration's needs on `transport`, as [`configure`] does, and its send window.
    pub fn install(self, transport: &mut TransportConfig) {
        match self.config.build(self.seed).recovery().loss {
            LossRule::Rack => {
                // RFC 9002 §6.1.2 alone, with a quarter of a round trip, RACK's reordering window
                // (RFC 8985 §6.2). By a threshold of packets (§6.1.1), a packet that is three
                // packets late is lost: 0.4 ms at 100 Mbit/s.
                transport
                    .packet_threshold(u32::MAX)
                    .time_threshold(5.0 / 4.0);
            }
            rule => {
                // Verus §5.2: a missing packet is lost a multiple of the delay after it is first
                // missed, however many have overtaken it. It is missed a delay after it left, from
                // when QUIC counts. QUIC knows no fixed time (the prototype's 150 ms); the paper's
                // rule replaces it.
                let factor = match rule {
                    LossRule::DelayTimer { factor } => factor as f32,
                    LossRule::FixedTimer { .. } | LossRule::Rack => 3.0,
                };
                transport
                    .packet_threshold(u32::MAX)
                    .time_threshold(1.0 + factor);
                // An acknowledgement for each packet, and at once for one that comes out of order: its
                // delay is a sample. Only a peer that knows the extension obeys.
                let mut frequency = AckFrequencyConfig::default();
                frequency
                    .ack_eliciting_threshold(VarInt::from_u32(0))
                    .reordering_threshold(VarInt::from_u32(1));
                transport.ack_frequency_config(Some(frequency));
            }
        }
        transport
            .send_window(self.send_window.load(Ordering::Relaxed))
            .congestion_controller_factory(Arc::new(self));
    }
}

impl congestion::ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn congestion::Controller> {
        let nth = self.built.fetch_add(1, Ordering::Relaxed);
        let controller = self.config.build(self.seed.wrapping_add(nth));
        let mut bridge = Bridge::new(controller, Time::ZERO, current_mtu);
        if self.log > 0 {
            bridge.set_log(Some(events::Log::new(self.log)));
        }
        let window = Arc::clone(&self.send_window);
        Box::new(Adapter::new(Shared::new(now, bridge, window)))
    }
}

/// Sets the needs of `config` on `transport`: its controller; its rule for loss; for one that
/// learns from each packet's delay, an acknowledgement for each packet. The send window becomes
/// quinn's default; [`Factory::send_window`] sets another.
pub fn configure(transport: &mut TransportConfig, config: &Arc<dyn Configured>, seed: u64) {
    Factory::new(config, seed).install(transport);
}

/// The controller of `connection`'s present path, if a [`Factory`] built it.
pub fn view(connection: &quinn::Connection) -> Option<View> {
    View::of(connection.congestion_state())
}
