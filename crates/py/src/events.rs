//! The events of a controller written in Python: the core's, with the unit in each name.
//!
//! A number becomes an object of Python's when it is asked for, so that an event costs as much as is read of it.

use pyo3::prelude::*;
use verus_core as core;

/// The attributes of a class: name, type, and value in terms of `it`.
macro_rules! getters {
    ($class:ident: $($name:ident: $type:ty = |$it:ident| $value:expr;)*) => {
        #[pymethods]
        impl $class {
            $(#[getter]
            fn $name(&self) -> $type {
                let $it = self;
                $value
            })*
        }
    };
}

/// A packet at its departure.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Departure(pub(crate) core::Departure);

getters! {
    Departure:
    number: u64 = |it| it.0.number;
    at_s: f64 = |it| it.0.at.as_secs_f64();
    size_bytes: u64 = |it| it.0.size.get();
    window_bytes: u64 = |it| it.0.window.get();
    in_flight_bytes: u64 = |it| it.0.in_flight.get();
    delivered_bytes: u64 = |it| it.0.delivered.get();
    app_limited: bool = |it| it.0.app_limited;
}

/// A packet acknowledged.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Acked(core::Acked);

getters! {
    Acked:
    packet: Departure = |it| Departure(it.0.packet);
    rtt_ms: f64 = |it| it.0.rtt.as_millis_f64();
    received_at_s: Option<f64> = |it| it.0.received_at.map(core::Time::as_secs_f64);
}

/// All that one acknowledgement, or one expired loss timer, revealed.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Feedback {
    now: core::Time,
    acked: Vec<core::Acked>,
    lost: Vec<core::Departure>,
    recovered: Vec<core::Acked>,
    marked: usize,
    in_flight_before: core::Bytes,
    in_flight: core::Bytes,
    delivered: core::Bytes,
    newly_delivered: core::Bytes,
    smoothed_rtt: core::Duration,
    min_rtt: core::Duration,
    delivery: Option<core::Rate>,
}

impl Feedback {
    pub(crate) fn new(feedback: &core::Feedback<'_>) -> Self {
        Feedback {
            now: feedback.now,
            acked: feedback.acked.to_vec(),
            lost: feedback.lost.to_vec(),
            recovered: feedback.recovered.to_vec(),
            marked: feedback.marked,
            in_flight_before: feedback.in_flight_before,
            in_flight: feedback.in_flight,
            delivered: feedback.delivered,
            newly_delivered: feedback.newly_delivered(),
            smoothed_rtt: feedback.smoothed_rtt,
            min_rtt: feedback.min_rtt,
            delivery: rate_of(feedback),
        }
    }

    /// Adds a later event's news, as if one event had revealed both.
    pub(crate) fn add(&mut self, later: &core::Feedback<'_>) {
        self.acked.extend_from_slice(later.acked);
        self.lost.extend_from_slice(later.lost);
        self.recovered.extend_from_slice(later.recovered);
        self.marked += later.marked;
        self.newly_delivered += later.newly_delivered();
        (self.now, self.in_flight) = (later.now, later.in_flight);
        (self.delivered, self.smoothed_rtt) = (later.delivered, later.smoothed_rtt);
        self.min_rtt = later.min_rtt;
        self.delivery = rate_of(later).or(self.delivery);
    }
}

/// The delivery rate; the core's zero means that the time was too short for one.
fn rate_of(feedback: &core::Feedback<'_>) -> Option<core::Rate> {
    let rate = feedback.delivery()?.rate;
    (rate > core::Rate::default()).then_some(rate)
}

getters! {
    Feedback:
    now_s: f64 = |it| it.now.as_secs_f64();
    acked: Vec<Acked> = |it| it.acked.iter().copied().map(Acked).collect();
    lost: Vec<Departure> = |it| it.lost.iter().copied().map(Departure).collect();
    recovered: Vec<Acked> = |it| it.recovered.iter().copied().map(Acked).collect();
    marked_packets: usize = |it| it.marked;
    in_flight_before_bytes: u64 = |it| it.in_flight_before.get();
    in_flight_bytes: u64 = |it| it.in_flight.get();
    delivered_bytes: u64 = |it| it.delivered.get();
    newly_delivered_bytes: u64 = |it| it.newly_delivered.get();
    smoothed_rtt_ms: f64 = |it| it.smoothed_rtt.as_millis_f64();
    min_rtt_ms: f64 = |it| it.min_rtt.as_millis_f64();
    delivery_mbps: Option<f64> = |it| it.delivery.map(core::Rate::as_mbps);
}

/// A retransmission timeout.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Timeout {
    now: core::Time,
    presumed_lost: Vec<core::Departure>,
    backoff: u32,
}

impl Timeout {
    pub(crate) fn new(timeout: &core::Timeout<'_>) -> Self {
        Timeout {
            now: timeout.now,
            presumed_lost: timeout.presumed_lost.to_vec(),
            backoff: timeout.backoff,
        }
    }
}

getters! {
    Timeout:
    now_s: f64 = |it| it.now.as_secs_f64();
    presumed_lost: Vec<Departure> = |it| it.presumed_lost.iter().copied().map(Departure).collect();
    backoff: u32 = |it| it.backoff;
}
