//! Captures and the JSON of iperf3: reports of their flows, and traces of their delivery rates.

use std::io::Read;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use serde_json::{Value, json};
use verus_capture::analysis::{FlowReport, OPPORTUNITY, Report, analyze};
use verus_capture::{iperf3, read};
use verus_channel::{Error, decompressed, files};

use crate::{convert, error};

/// The kind of a file that `verus analyze` takes: `capture`, `iperf3`, or else `link log`.
#[pyfunction]
pub(crate) fn log_kind(py: Python<'_>, path: PathBuf) -> PyResult<&'static str> {
    let first = py.detach(|| {
        let mut first = Vec::new();
        opened(&path)?.take(512).read_to_end(&mut first)?;
        Ok::<_, std::io::Error>(first)
    });
    let first = first.map_err(|cause| unreadable(&path, cause))?;
    let text = first.strip_prefix(iperf3::BYTE_ORDER_MARK);
    let text = text.unwrap_or(&first).trim_ascii_start().first();
    Ok(match text {
        _ if read::is_capture(&first) => "capture",
        Some(b'{') => "iperf3",
        _ => "link log",
    })
}

/// The report of a capture, or of the JSON of `iperf3 -J`. `trace` is the number of a flow, from 1, and a file: the trace of
/// its delivery rate is written there. A capture without flows has none.
#[pyfunction]
#[pyo3(signature = (path, trace=None))]
pub(crate) fn analyze_capture<'py>(
    py: Python<'py>,
    path: PathBuf,
    trace: Option<(usize, PathBuf)>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_json = log_kind(py, path.clone())? == "iperf3";
    let report = py.detach(|| {
        let bytes = opened(&path).map_err(|cause| unreadable(&path, cause))?;
        let name = path.display().to_string();
        if is_json {
            let flows = iperf3::analyze(&name, bytes).map_err(error::value)?;
            return Ok(Report::of_flows(flows));
        }
        analyze(&name, bytes).map_err(error::value)
    })?;
    let written = trace
        .filter(|_| !report.flows.is_empty())
        .map(|(number, out)| {
            let flow = number.checked_sub(1).and_then(|at| report.flows.get(at));
            let flow = flow.ok_or_else(|| {
                let count = report.flows.len();
                error::value(format_args!("flow {number} of {count}: there is none"))
            })?;
            py.detach(|| write_trace(flow, &out))
        });
    let mut table = json!(report);
    table["trace"] = json!(written.transpose()?);
    convert::json(py, &table)
}

/// Writes the trace of a flow; returns its length and rate.
fn write_trace(flow: &FlowReport, out: &Path) -> PyResult<Value> {
    let name = out.display().to_string();
    let trace = flow.trace(&name).map_err(|error| error::channel(&error))?;
    trace.write(out).map_err(|error| error::channel(&error))?;
    Ok(json!({
        "opportunities": trace.len(),
        "opportunity_bytes": OPPORTUNITY.get(),
        "duration_s": trace.period().as_secs_f64(),
        "mean_mbps": trace.mean_rate(OPPORTUNITY).as_mbps(),
    }))
}

fn opened(path: &Path) -> std::io::Result<Box<dyn Read>> {
    decompressed(files::open(path)?)
}

fn unreadable(path: &Path, source: std::io::Error) -> PyErr {
    error::channel(&Error::Io {
        action: "read",
        name: path.display().to_string(),
        source,
    })
}
