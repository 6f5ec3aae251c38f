//! The content of the Python extension module `verus._verus`: conversions, no decisions.
//! `crates/extension` is the module.
//!
//! Configurations come in and small tables go out as JSON text; whatever grows with time leaves as
//! NumPy arrays. Every function lets go of the interpreter lock while Rust works.
//!
//! Bad input raises `ValueError`, a file that cannot be read or written `OSError` (its subclass
//! where there is one), anything else `RuntimeError`; the message is Rust's own.

mod capture;
mod channel;
mod controller;
mod convert;
mod error;
mod events;
mod logs;
mod model;
mod run;
mod sandbox;
mod sweep;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::wrap_pyfunction;
use verus_channel::queue;
use verus_measure::{FlowMetrics, Metrics};
use verus_senders::Registry;

/// Locks `mutex`, also after a panic that held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts everything into `module`. Schemes can name the entries of `algorithms`, and classes written
/// in Python; the texts of queues, the entries of `queues`.
///
/// # Errors
/// If this process has another such module.
pub fn fill(
    module: &Bound<'_, PyModule>,
    algorithms: Registry,
    queues: queue::Registry,
) -> PyResult<()> {
    algorithms
        .with_elsewhere(controller::open)
        .install()
        .map_err(|_| error::value("this process reads schemes by another module already"))?;
    queues
        .install()
        .map_err(|_| error::value("this process reads queues by another module already"))?;
    macro_rules! functions {
        ($($function:path),* $(,)?) => {
            $(module.add_function(wrap_pyfunction!($function, module)?)?;)*
        };
    }
    functions!(
        capture::analyze_capture,
        capture::log_kind,
        channel::analyze_log,
        channel::calibration,
        channel::catalogue,
        channel::check_channel,
        channel::check_queue,
        channel::check_scheme,
        channel::check_traffic,
        channel::complete,
        channel::expand,
        channel::link_log_fates,
        channel::list_channels,
        channel::named_files,
        channel::runs_in,
        channel::split_mix,
        channel::with_settings,
        channel::list_jitter,
        channel::list_loss,
        channel::list_medium,
        channel::list_queues,
        channel::list_reorder,
        channel::list_schemes,
        channel::list_traffic,
        channel::netem,
        channel::quantity,
        channel::trace_convert,
        channel::trace_generate,
        channel::trace_info,
        channel::trace_read,
        channel::read_file,
        channel::is_given_pipe,
        channel::cut_warning,
        channel::trace_write,
        model::model_csv,
        model::model_info,
        model::model_region,
        run::check_scenario,
        run::default_scenario,
        run::scenario_schema,
        run::simulate,
        run::simulate_many,
        run::simulate_planned,
        sandbox::confine,
        jain,
        metric_columns,
        version,
    );
    module.add_class::<events::Acked>()?;
    module.add_class::<events::Departure>()?;
    module.add_class::<events::Feedback>()?;
    module.add_class::<events::Timeout>()?;
    module.add_class::<model::Trainer>()?;
    module.add_class::<run::Runs>()?;
    module.add_class::<run::Simulation>()
}

/// The version of the Rust crates.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The metrics of a row of results, and those of each of its flows.
#[pyfunction]
fn metric_columns<'py>(py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
    Ok((
        PyTuple::new(py, Metrics::COLUMNS)?,
        PyTuple::new(py, FlowMetrics::COLUMNS)?,
    ))
}

/// Jain's index of each flow's share; `None` if no flow got anything.
#[pyfunction]
fn jain(shares: Vec<f64>) -> Option<f64> {
    verus_measure::jain(&shares)
}
