//! Rust's results as Python's dictionaries and NumPy arrays.

use std::iter::repeat;

use numpy::{Element, IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use serde_json::Value;
use verus_core::{Bytes, Phase, Time};
use verus_measure::FlowSeries;
use verus_sim::{Connection, Outcome, Records};

const NANOS_PER_SEC: f64 = 1e9;

/// The columns of `series.parquet` that are no quantity of a controller, in Python's order (docs/metrics.md).
pub(crate) const SERIES: [&str; 14] = [
    "run",
    "trace",
    "queue",
    "label",
    "seed",
    "flow",
    "time_s",
    "capacity_mbps",
    "throughput_mbps",
    "qdelay_ms",
    "qdelay_max_ms",
    "phase",
    "window_bytes",
    "in_flight_bytes",
];

/// A small table as dictionaries and lists. JSON has no not-a-number: it becomes `None`.
pub(crate) fn json<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (None, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().into_pyobject(py)?.into_any(),
        },
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(json(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, field) in fields {
                dict.set_item(name, json(py, field)?)?;
            }
            dict.into_any()
        }
    })
}

/// A serialisable value, as dictionaries and lists.
pub(crate) fn table<'py>(
    py: Python<'py>,
    value: &impl serde::Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    json(
        py,
        &serde_json::to_value(value).expect("results serialise: their maps have text keys"),
    )
}

/// A NumPy array that takes over the vector's memory.
///
/// # Errors
/// If NumPy cannot be imported, such as after Ctrl-C during its import, where making an array would panic.
pub(crate) fn array<T: Element>(
    py: Python<'_>,
    values: Vec<T>,
) -> PyResult<Bound<'_, PyArray1<T>>> {
    py.import("numpy")?;
    Ok(values.into_pyarray(py))
}

/// The beginning of each of `bins` bins, in seconds.
pub(crate) fn bin_times(bins: usize, bin_ms: f64) -> Vec<f64> {
    (0..bins).map(|bin| bin as f64 * bin_ms / 1000.0).collect()
}

/// The values there are, then not-a-number up to `length`.
fn padded(values: impl Iterator<Item = f64>, length: usize) -> impl Iterator<Item = f64> {
    values.chain(std::iter::repeat(f64::NAN)).take(length)
}

fn observed(values: &[Option<f64>]) -> impl Iterator<Item = f64> + '_ {
    values.iter().map(|value| value.unwrap_or(f64::NAN))
}

/// The bottleneck's measurements of each flow, one row a flow and bin, flow by flow.
pub(crate) fn link_series<'py>(
    py: Python<'py>,
    series: &[FlowSeries],
    bins: usize,
    bin_ms: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = series.len() * bins;
    let mut flow = Vec::with_capacity(rows);
    let mut time = Vec::with_capacity(rows);
    let mut throughput = Vec::with_capacity(rows);
    let mut mean = Vec::with_capacity(rows);
    let mut max = Vec::with_capacity(rows);
    for one in series {
        flow.extend(std::iter::repeat_n(one.flow as i32, bins));
        time.extend(bin_times(bins, bin_ms));
        throughput.extend(padded(one.throughput_mbps.iter().copied(), bins));
        mean.extend(padded(observed(&one.qdelay_mean_ms), bins));
        max.extend(padded(observed(&one.qdelay_max_ms), bins));
    }
    let columns = PyDict::new(py);
    columns.set_item("flow", array(py, flow)?)?;
    columns.set_item("time_s", array(py, time)?)?;
    columns.set_item("throughput_mbps", array(py, throughput)?)?;
    columns.set_item("qdelay_ms", array(py, mean)?)?;
    columns.set_item("qdelay_max_ms", array(py, max)?)?;
    Ok(columns)
}

/// Capacity by bin.
pub(crate) fn capacity(
    py: Python<'_>,
    capacity_mbps: Vec<f64>,
    bin_ms: f64,
) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("time_s", array(py, bin_times(capacity_mbps.len(), bin_ms))?)?;
    columns.set_item("capacity_mbps", array(py, capacity_mbps)?)?;
    Ok(columns)
}

/// The results of a run, without the parts that grow with its duration.
pub(crate) fn measured<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("metrics", table(py, &outcome.metrics)?)?;
    result.set_item("trace", table(py, &outcome.channel)?)?;
    let others = PyDict::new(py);
    for (field, channel) in &outcome.other_channels {
        others.set_item(field, table(py, channel)?)?;
    }
    result.set_item("other_channels", others)?;
    result.set_item("totals", table(py, &outcome.totals)?)?;
    result.set_item("counters", counters(py, outcome)?)?;
    Ok(result)
}

/// Everything a run yields, in the shape that `_verus.pyi` states.
pub(crate) fn outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyDict>> {
    let result = measured(py, &outcome)?;
    result.set_item("series", series(py, &outcome)?)?;
    result.set_item("profiles", profiles(py, &outcome)?)?;
    result.set_item("connections", connections(py, &outcome.connections)?)?;
    result.set_item(
        "capacity",
        capacity(py, outcome.capacity_mbps, outcome.bin_ms)?,
    )?;
    result.set_item(
        "records",
        outcome
            .records
            .map(|packets| records(py, packets))
            .transpose()?,
    )?;
    Ok(result)
}

/// Each sender's counts.
fn counters<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for flow in &outcome.flows {
        let counted = &flow.counters;
        let dict = PyDict::new(py);
        dict.set_item("sent", counted.sent)?;
        dict.set_item("retransmitted", counted.retransmitted)?;
        dict.set_item("lost", counted.lost)?;
        dict.set_item("recovered", counted.recovered)?;
        dict.set_item("timeouts", counted.timeouts)?;
        dict.set_item("probes", counted.probes)?;
        dict.set_item("marked", counted.marked)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// The bottleneck's and the senders' values over time. A column that only some flows' controllers
/// have is not-a-number for the others.
fn series<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let bins = outcome.capacity_mbps.len();
    let columns = link_series(py, &outcome.metrics.series, bins, outcome.bin_ms)?;
    let mut names: Vec<&str> = Vec::new();
    for name in outcome.flows.iter().flat_map(|flow| &flow.columns) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    if outcome.flows.iter().any(|flow| !flow.phases.is_empty()) {
        columns.set_item("phase", phases(py, outcome, bins)?)?;
    }
    for name in names {
        let mut values = Vec::with_capacity(outcome.flows.len() * bins);
        for flow in &outcome.flows {
            let at = flow.columns.iter().position(|other| *other == name);
            let samples = at.map_or(&[][..], |at| &flow.samples[at]);
            values.extend(padded(samples.iter().copied(), bins));
        }
        columns.set_item(name, array(py, values)?)?;
    }
    Ok(columns)
}

/// The name of each flow's phase in each bin; `None` while the flow is not there, and for an algorithm that has no
/// phases.
fn phases<'py>(py: Python<'py>, outcome: &Outcome, bins: usize) -> PyResult<Bound<'py, PyList>> {
    let mut names = Vec::with_capacity(outcome.flows.len() * bins);
    for flow in &outcome.flows {
        let phases = flow.phases.iter().copied().chain(repeat(None)).take(bins);
        names.extend(phases.map(|phase| phase.map(|phase| intern(py, phase))));
    }
    PyList::new(py, names)
}

/// A phase's name, one object for all of its rows.
fn intern(py: Python<'_>, phase: Phase) -> Bound<'_, PyString> {
    PyString::intern(py, phase.name())
}

/// Delay-profile snapshots, one row a point: measured (`point`) and fitted (`curve`).
fn profiles<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let mut flows: Vec<i32> = Vec::new();
    let mut times = Vec::new();
    let mut kinds = Vec::new();
    let mut windows = Vec::new();
    let mut delays = Vec::new();
    for (index, flow) in outcome.flows.iter().enumerate() {
        for (at, profile) in &flow.profiles {
            for (kind, points) in [("point", &profile.points), ("curve", &profile.curve)] {
                for &(window, delay) in points {
                    flows.push(index as i32);
                    times.push(at.as_nanos() as f64 / NANOS_PER_SEC);
                    kinds.push(kind);
                    windows.push(window);
                    delays.push(delay);
                }
            }
        }
    }
    let columns = PyDict::new(py);
    columns.set_item("flow", array(py, flows)?)?;
    columns.set_item("time_s", array(py, times)?)?;
    columns.set_item("kind", PyList::new(py, kinds)?)?;
    columns.set_item("window_packets", array(py, windows)?)?;
    columns.set_item("delay_ms", array(py, delays)?)?;
    Ok(columns)
}

/// The connections of flows that do not send all the time, a column each; not-a-number where there is no end or file.
fn connections<'py>(py: Python<'py>, connections: &[Connection]) -> PyResult<Bound<'py, PyDict>> {
    fn column<T>(connections: &[Connection], of: impl Fn(&Connection) -> T) -> Vec<T> {
        connections.iter().map(of).collect()
    }
    let seconds = |at: Time| at.as_nanos() as f64 / NANOS_PER_SEC;
    let columns = PyDict::new(py);
    columns.set_item(
        "flow",
        array(py, column(connections, |one| one.flow as i32))?,
    )?;
    columns.set_item(
        "connection",
        array(py, column(connections, |one| one.number as i32))?,
    )?;
    columns.set_item(
        "start_s",
        array(py, column(connections, |one| seconds(one.start)))?,
    )?;
    columns.set_item(
        "end_s",
        array(
            py,
            column(connections, |one| one.end.map_or(f64::NAN, seconds)),
        )?,
    )?;
    columns.set_item(
        "file_bytes",
        array(
            py,
            column(connections, |one| one.file.map_or(f64::NAN, Bytes::as_f64)),
        )?,
    )?;
    columns.set_item(
        "delivered_bytes",
        array(py, column(connections, |one| one.delivered.get() as i64))?,
    )?;
    Ok(columns)
}

/// Each packet's fate, a column each.
fn records(py: Python<'_>, records: Records) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("flow", array(py, records.flow)?)?;
    columns.set_item("connection", array(py, records.connection)?)?;
    columns.set_item("number", array(py, records.number)?)?;
    columns.set_item("size_bytes", array(py, records.size_bytes)?)?;
    columns.set_item("window_bytes", array(py, records.window_bytes)?)?;
    columns.set_item("retransmission", array(py, records.retransmission)?)?;
    columns.set_item("sent_ms", array(py, records.sent_ms)?)?;
    columns.set_item("departed_ms", array(py, records.departed_ms)?)?;
    columns.set_item("received_ms", array(py, records.received_ms)?)?;
    columns.set_item("new_bytes", array(py, records.new_bytes)?)?;
    columns.set_item("acked_ms", array(py, records.acked_ms)?)?;
    columns.set_item("dropped_ms", array(py, records.dropped_ms)?)?;
    Ok(columns)
}
