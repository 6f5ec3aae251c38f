//! What a controller written in Python is told: the core's events, with the unit in each name.
//!
//! A number becomes an object of Python's when it is asked for, so that an event costs as much as is read of it.

use pyo3::prelude::*;
use verus_core as core;

/// A packet as it was when it left.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Departure(pub(crate) core::Departure);

#[pymethods]
impl Departure {
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }
    #[getter]
    fn at_s(&self) -> f64 {
        self.0.at.as_secs_f64()
    }
    #[getter]
    fn size_bytes(&self) -> u64 {
        self.0.size.get()
    }
    #[getter]
    fn window_bytes(&self) -> u64 {
        self.0.window.get()
    }
    #[getter]
    fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight.get()
    }
    #[getter]
    fn delivered_bytes(&self) -> u64 {
        self.0.delivered.get()
    }
    #[getter]
    fn app_limited(&self) -> bool {
        self.0.app_limited
    }
}

/// A packet acknowledged.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Acked(core::Acked);

#[pymethods]
impl Acked {
    #[getter]
    fn packet(&self) -> Departure {
        Departure(self.0.packet)
    }
    #[getter]
    fn rtt_ms(&self) -> f64 {
        self.0.rtt.as_millis_f64()
    }
    #[getter]
    fn received_at_s(&self) -> Option<f64> {
        self.0.received_at.map(core::Time::as_secs_f64)
    }
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

    /// Adds what a later event revealed, as if one event had revealed both.
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

/// The delivery rate; the core's zero stands for too short a time to tell.
fn rate_of(feedback: &core::Feedback<'_>) -> Option<core::Rate> {
    let rate = feedback.delivery()?.rate;
    (rate > core::Rate::default()).then_some(rate)
}

#[pymethods]
impl Feedback {
    #[getter]
    fn now_s(&self) -> f64 {
        self.now.as_secs_f64()
    }
    #[getter]
    fn acked(&self) -> Vec<Acked> {
        self.acked.iter().copied().map(Acked).collect()
    }
    #[getter]
    fn lost(&self) -> Vec<Departure> {
        self.lost.iter().copied().map(Departure).collect()
    }
    #[getter]
    fn recovered(&self) -> Vec<Acked> {
        self.recovered.iter().copied().map(Acked).collect()
    }
    #[getter]
    fn marked_packets(&self) -> usize {
        self.marked
    }
    #[getter]
    fn in_flight_before_bytes(&self) -> u64 {
        self.in_flight_before.get()
    }
    #[getter]
    fn in_flight_bytes(&self) -> u64 {
        self.in_flight.get()
    }
    #[getter]
    fn delivered_bytes(&self) -> u64 {
        self.delivered.get()
    }
    #[getter]
    fn newly_delivered_bytes(&self) -> u64 {
        self.newly_delivered.get()
    }
    #[getter]
    fn smoothed_rtt_ms(&self) -> f64 {
        self.smoothed_rtt.as_millis_f64()
    }
    #[getter]
    fn min_rtt_ms(&self) -> f64 {
        self.min_rtt.as_millis_f64()
    }
    #[getter]
    fn delivery_mbps(&self) -> Option<f64> {
        self.delivery.map(core::Rate::as_mbps)
    }
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

#[pymethods]
impl Timeout {
    #[getter]
    fn now_s(&self) -> f64 {
        self.now.as_secs_f64()
    }
    #[getter]
    fn presumed_lost(&self) -> Vec<Departure> {
        self.presumed_lost.iter().copied().map(Departure).collect()
    }
    #[getter]
    fn backoff(&self) -> u32 {
        self.backoff
    }
}
