//! The Python extension module `verus._verus`: conversions, no decisions.
//!
//! Configurations come in and small tables go out as JSON text; whatever grows with time leaves as
//! NumPy arrays. Every function lets go of the interpreter lock while Rust works.
//!
//! Bad input raises `ValueError`, a file that cannot be read or written `OSError` (its subclass
//! where there is one), anything else `RuntimeError`; the message is Rust's own.

mod channel;
mod convert;
mod error;
mod model;
mod run;

use pyo3::prelude::*;

/// The extension module. `python/verus/_verus.pyi` states its functions' types; a test compares it
/// with what is built.
#[pymodule(gil_used = false)]
mod _verus {
    #[pymodule_export]
    use super::channel::{
        analyze_log, calibration, catalogue, check_channel, check_queue, check_scheme,
        check_traffic, list_channels, list_queues, list_schemes, list_traffic, trace_convert,
        trace_generate, trace_info, trace_read, trace_write,
    };
    #[pymodule_export]
    use super::model::{model_csv, model_info, model_region, train};
    #[pymodule_export]
    use super::run::{check_scenario, default_scenario, scenario_schema, simulate, simulate_many};
    #[pymodule_export]
    use super::{jain, version};
}

/// The version of the Rust crates.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Jain's index of what each flow got; `None` if nobody got anything.
#[pyfunction]
fn jain(shares: Vec<f64>) -> Option<f64> {
    verus_measure::jain(&shares)
}
