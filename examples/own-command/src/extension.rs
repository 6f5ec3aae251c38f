//! The Python extension with one algorithm more.

use pyo3::prelude::*;

mod tide;

#[pymodule(gil_used = false)]
fn _verus(module: &Bound<'_, PyModule>) -> PyResult<()> {
    verus_py::fill(module, tide::registry())
}
