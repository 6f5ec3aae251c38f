//! noq's `Controller` trait over a [`PathController`].

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::{RttEstimator, congestion};
use verus_quic::{PathController, View};

/// A controller of the core, as noq sees it. A clone is the same controller.
#[derive(Clone, Debug)]
pub(super) struct Adapter(pub(super) Arc<PathController>);

/// The view of a congestion controller that a [`Factory`](super::Factory) built; `None` for any other.
pub fn view_of(controller: Box<dyn congestion::Controller>) -> Option<View> {
    let adapter = controller.into_any().downcast::<Adapter>().ok()?;
    Some(View::of(adapter.0))
}

impl congestion::Controller for Adapter {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.0.on_sent(now, bytes, largest_pn);
    }

    #[inline]
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.0.on_ack(now, sent, bytes, app_limited, rtt.get());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.0.on_end_acks(now, in_flight, app_limited);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        _is_ecn: bool,
        lost_bytes: u64,
        _largest_lost_pn: u64,
    ) {
        self.0
            .on_congestion(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.on_packet_size(new_mtu);
    }

    #[inline]
    fn window(&self) -> u64 {
        self.0.limit()
    }

    /// noq paces by these: the rate in bytes a second, else by the window, which must not be zero.
    fn metrics(&self) -> congestion::ControllerMetrics {
        let (window, pace) = self.0.window_and_pace();
        let mut metrics = congestion::ControllerMetrics::default();
        metrics.congestion_window = window.get().max(1);
        metrics.pacing_rate = pace.map(|rate| rate.as_bps() / 8);
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
