//! The Python extension module `verus._verus`, with the algorithms of `verus-core` alone. `examples/own-command` builds it
//! with another.

use pyo3::prelude::*;
use verus_core::algorithm::Registry;

/// The extension module. `python/verus/_verus.pyi` states its functions' types; a test compares it
/// with what is built.
#[pymodule(gil_used = false)]
fn _verus(module: &Bound<'_, PyModule>) -> PyResult<()> {
    verus_py::fill(module, Registry::default())
}
