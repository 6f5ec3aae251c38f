//! The Python extension module `verus._verus`: conversions, no decisions.
//!
//! Configurations come in and small tables go out as JSON text; whatever grows with time leaves as NumPy arrays.
//! Every function releases the interpreter lock while Rust works.

use pyo3::prelude::*;

/// The extension module; `python/verus` gives its functions their types and documentation.
#[pymodule]
mod _verus {
    use super::*;

    /// The version of the Rust crates.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
