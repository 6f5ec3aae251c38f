//! The Python exception for each Rust error. Where it has fields, so has the exception; else its message is the same.

use std::fmt::Display;
use std::io;

use pyo3::exceptions::{
    PyFileNotFoundError, PyIsADirectoryError, PyNotADirectoryError, PyOSError, PyPermissionError,
    PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use verus_measure::mahimahi;

/// A `ValueError`.
pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// An `OSError` with `message`, of the subclass that fits the system's error.
pub(crate) fn os(source: &io::Error, message: String) -> PyErr {
    match source.kind() {
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        io::ErrorKind::IsADirectory => PyIsADirectoryError::new_err(message),
        io::ErrorKind::NotADirectory => PyNotADirectoryError::new_err(message),
        _ => PyOSError::new_err(message),
    }
}

/// Errors of a trace, a raw log or a channel's name.
pub(crate) fn channel(error: &verus_channel::Error) -> PyErr {
    match error {
        verus_channel::Error::Io { source, .. } => os(source, error.to_string()),
        _ => value(error),
    }
}

/// Errors of a link log.
pub(crate) fn log(error: &mahimahi::Error) -> PyErr {
    match error {
        mahimahi::Error::Read { source, .. } => os(source, error.to_string()),
        _ => value(error),
    }
}

/// A `verus.errors.FieldError`: `field` must be `expected` and is `given`; `other` is the field that `expected` names.
pub(crate) fn field(
    field: &str,
    expected: &str,
    given: impl Display,
    other: Option<&str>,
) -> PyErr {
    let problem = format!("must be {expected}, not {given}");
    Python::attach(|py| {
        let class = py.import("verus.errors")?.getattr("FieldError")?;
        Ok(PyErr::from_value(class.call1((field, problem, other))?))
    })
    .unwrap_or_else(|error| error)
}

/// Errors of a scenario.
pub(crate) fn simulation(error: &verus_sim::Error) -> PyErr {
    match error {
        verus_sim::Error::Field(verus_sim::FieldError::Value {
            field: name,
            expected,
            value,
        }) => field(name, &expected.words, value, expected.other),
        verus_sim::Error::Channel(error) => channel(error),
        verus_sim::Error::Controller(_) | verus_sim::Error::Cancelled => {
            PyRuntimeError::new_err(error.to_string())
        }
        _ => value(error),
    }
}
