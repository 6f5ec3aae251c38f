//! Verus, `forward` and any other of our controllers inside noq, n0's fork of quinn.
//!
//! [`configure`] gives any controller to a transport configuration of `noq` 1.4. [`drive`] keeps the
//! epochs of a connection running; [`view`] looks at its controller. [`endpoint`] ensures that only
//! controllers that answer congestion marks ask for them.
//!
//! ```no_run
//! # async fn example(mut config: noq::ClientConfig, endpoint: noq::Endpoint)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use verus_noq::{Configured, verus};
//! let verus = verus::Config { ratio: 4.0, ..verus::Config::default() };
//! let controller: Arc<dyn Configured> = Arc::new(verus);
//! let mut transport = noq::TransportConfig::default();
//! verus_noq::configure(&mut transport, &controller, 1);
//! config.transport_config(Arc::new(transport));
//! let connection = endpoint.connect_with(config, "[::1]:4433".parse()?, "localhost")?.await?;
//! let _driver = verus_noq::drive(&connection, noq::PathId::ZERO);
//! # Ok(()) }
//! ```
//!
//! QUIC stacks restrict the controllers that they host: `docs/quic.md` lists the unsupported
//! features and their cost.

mod adapter;
mod driver;
mod ecn;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use noq::{AckFrequencyConfig, PathId, TransportConfig, VarInt, congestion};

use adapter::Adapter;
pub use adapter::view_of;
pub use driver::{Connection, Driver, drive};
pub use ecn::endpoint;
pub use verus_core::configuration::Configured;
pub use verus_forward as forward;
pub use verus_protocol as verus;
pub use verus_quic::{Counters, Driving, Event, Snapshot, View};

/// A configuration as noq wants it: builds a controller for each path of each connection.
#[derive(Clone, Debug)]
pub struct Factory(verus_quic::Factory);

impl Factory {
    /// Controllers of `config`. Those that draw random numbers draw them from `seed` and from how many
    /// were built before.
    pub fn new(config: &Arc<dyn Configured>, seed: u64) -> Factory {
        Factory(verus_quic::Factory::new(config, seed))
    }

    /// Sets the transport's send window (`TransportConfig::send_window`), if it differs from noq's
    /// default of 10 MB: a [`Driver`] wakes a connection by setting it again to its present value.
    #[must_use]
    pub fn send_window(self, bytes: u64) -> Factory {
        Factory(self.0.shared_send_window(Arc::new(AtomicU64::new(bytes))))
    }

    /// Each controller logs its first `capacity` events, from its first packet; see [`View::take_log`].
    #[must_use]
    pub fn log(self, capacity: usize) -> Factory {
        Factory(self.0.log(capacity))
    }

    /// Sets this configuration's needs on `transport`, as [`configure`] does, and its send window.
    pub fn install(self, transport: &mut TransportConfig) {
        let loss = self.0.loss_detection();
        transport
            .packet_threshold(u32::MAX)
            .time_threshold(loss.time_threshold);
        if loss.each_packet {
            let mut frequency = AckFrequencyConfig::default();
            frequency
                .ack_eliciting_threshold(VarInt::from_u32(0))
                .reordering_threshold(VarInt::from_u32(1));
            transport.ack_frequency_config(Some(frequency));
        }
        transport
            .send_window(self.0.send_window())
            .congestion_controller_factory(Arc::new(self));
    }
}

impl congestion::ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn congestion::Controller> {
        Box::new(Adapter(self.0.build(now, current_mtu)))
    }
}

/// Sets the needs of `config` on `transport`: its controller; its rule for loss; for one that
/// learns from each packet's delay, an acknowledgement for each packet. The send window becomes
/// noq's default; [`Factory::send_window`] sets another.
pub fn configure(transport: &mut TransportConfig, config: &Arc<dyn Configured>, seed: u64) {
    Factory::new(config, seed).install(transport);
}

/// The controller of a path of `connection`, if a [`Factory`] built it.
pub fn view(connection: &noq::Connection, path: PathId) -> Option<View> {
    view_of(connection.congestion_state(path)?)
}
