//! The Python extension with an algorithm and a queue more.

use pyo3::prelude::*;

mod ebb;
mod tide;

#[pymodule(gil_used = false)]
fn _verus(module: &Bound<'_, PyModule>) -> PyResult<()> {
    verus_py::fill(module, tide::registry(), ebb::registry())
}
