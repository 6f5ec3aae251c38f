//! The Python extension module `verus._verus`, with the algorithms and queues of this repository alone.
//! `examples/own-command` builds it with others.

use pyo3::prelude::*;

/// The extension module. `python/verus/_verus.pyi` states its functions' types; a test compares it
/// with what is built.
#[pymodule(gil_used = false)]
fn _verus(module: &Bound<'_, PyModule>) -> PyResult<()> {
    verus_py::fill(module, Default::default(), Default::default())
}
