//! Texts that users type, lists of the choices, and files of traces and logs.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use numpy::{PyArray1, PyArrayLike1, PyArrayMethods, TypeMustMatch};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use verus_channel::catalogue::{self as names, Found};
use verus_channel::medium;
use verus_channel::named::Named;
use verus_channel::netem::Netem;
use verus_channel::path::{jitter, loss_model, reorder};
use verus_channel::recordings::{self, Recording, cache_dir};
use verus_channel::statistics::{LAGS, Statistics};
use verus_channel::{
    Channel, Error, Problem, QueueConfig, Trace, decompressed, files, generate, queue, raw,
};
use verus_core::Duration;
use verus_measure::mahimahi;
use verus_senders::{self as algorithm, External, Program, Registry, Scheme};
use verus_sim::traffic::{self, Traffic};
use verus_words::quantity::Unit;
use verus_words::spec::Shown;

use crate::convert::{array, capacity, json, link_series, table};
use crate::{controller, error};

/// A scheme: its bare name, its settings, and a label for tables. `real_time`: whether it may be one that runs in real
/// time only.
#[pyfunction]
#[pyo3(signature = (text, real_time=false))]
pub(crate) fn check_scheme<'py>(
    py: Python<'py>,
    text: &str,
    real_time: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let refused = |problem| error::value(format_args!("`{text}` {problem}"));
    let external = External::parse(text).filter(|_| real_time).transpose();
    let description = match external.map_err(refused)? {
        None => {
            let scheme = open_scheme(text)?;
            let params = scheme.params().iter();
            let params = params.map(|(key, value)| (key.clone(), json_value(value)));
            let params: Map<_, _> = params.collect();
            json!({ "scheme": scheme.name(), "params": params, "label": scheme.label() })
        }
        Some(External::Linux(tcp)) if tcp.cc.is_empty() => {
            let problem = format!("names no congestion control (`{text}cubic`)");
            return Err(refused(problem));
        }
        Some(External::Linux(tcp)) => {
            let label = format!("Linux {}", tcp.cc);
            let mut params = json!({ "cc": tcp.cc });
            if let Some(bytes) = tcp.receive_buffer {
                params["rcvbuf"] = bytes.into();
            }
            json!({ "scheme": "linux", "params": params, "label": label })
        }
        Some(External::Kernel(law)) => {
            let label = format!("{} in Linux", open_scheme(&law)?.label());
            json!({ "scheme": "kernel", "params": { "law": law }, "label": label })
        }
        Some(External::Program(Program {
            label,
            sender,
            receiver,
        })) => {
            let params = json!({ "sender": sender, "receiver": receiver });
            json!({ "scheme": "cmd", "params": params, "label": label })
        }
    };
    json(py, &description)
}

/// A scheme that the simulator runs.
fn open_scheme(text: &str) -> PyResult<Scheme> {
    let meant = || Registry::installed().meant(text);
    verus_sim::open_scheme(text)
        .map_err(|error| error::value(meant().unwrap_or_else(|| error.to_string())))
}

/// Where a scheme's senders run: `simulator`, `python` for a class of a user's, which the simulator runs, too, or in
/// real time only, `kernel` and `program`.
#[pyfunction]
pub(crate) fn runs_in(text: &str) -> &'static str {
    match External::parse(text) {
        Some(Ok(External::Linux(_) | External::Kernel(_))) => "kernel",
        Some(Ok(External::Program(_)) | Err(_)) => "program",
        None if controller::is_python(text) => "python",
        None => "simulator",
    }
}

/// The schemes of a mix, `SCHEME*N+SCHEME*M`, and how many flows run each.
#[pyfunction]
pub(crate) fn split_mix(text: &str) -> PyResult<Vec<(&str, usize)>> {
    verus_sim::mix(text).map_err(error::value)
}

/// A scheme with more settings, `key=value,…`: before its own (`first`), or after them.
#[pyfunction]
#[pyo3(signature = (scheme, settings, first=false))]
pub(crate) fn with_settings(scheme: &str, settings: &str, first: bool) -> String {
    controller::with_settings(scheme, settings, first)
}

/// The files that a text names: the place of each in it, in characters, and its path. `kind`: what the text names, as
/// `x-names` of a scenario's schema.
#[pyfunction]
pub(crate) fn named_files(kind: &str, text: &str) -> PyResult<Vec<(usize, usize, PathBuf)>> {
    let files = match kind {
        "channel" => {
            let files = names::find(text).and_then(|channel| channel.files(text));
            files.map_err(|error| error::channel(&error))?
        }
        "scheme" => controller::files(text).unwrap_or_else(|| Registry::installed().files(text)),
        "file" => vec![(0..text.len(), text.into())],
        _ => Vec::new(),
    };
    let characters = |at: usize| text[..at].chars().count();
    let file = |(place, path): (std::ops::Range<usize>, PathBuf)| {
        (characters(place.start), characters(place.end), path)
    };
    Ok(files.into_iter().map(file).collect())
}

/// A whole number as one: `2`, not `2.0`.
fn json_value(value: &algorithm::Value) -> Value {
    /// A double tells apart all whole numbers up to here.
    const LARGEST: f64 = (1u64 << 53) as f64;
    match value {
        algorithm::Value::Number(number) if number.fract() == 0.0 && number.abs() < LARGEST => {
            json!(*number as i64)
        }
        other => json!(other),
    }
}

/// A queue: its kind, and its text with every setting written out.
#[pyfunction]
pub(crate) fn check_queue<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let queue = QueueConfig::parse(text).map_err(error::value)?.to_string();
    let kind = queue.split_once(':').map_or(&*queue, |(kind, _)| kind);
    json(py, &json!({ "queue": kind, "text": queue }))
}

/// The kind of a user's traffic.
#[pyfunction]
pub(crate) fn check_traffic<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    Traffic::parse(text).map_err(error::value)?;
    let kind = text.split_once(':').map_or(text, |(kind, _)| kind);
    json(py, &json!({ "traffic": kind }))
}

/// The number in a text, with a unit behind it if it has one. `unit` is the quantity's unit, in
/// which it is returned: `s`, `ms`, `bytes`, `Mbit/s` or `share`.
#[pyfunction]
pub(crate) fn quantity(text: &str, unit: &str) -> PyResult<f64> {
    verus_words::quantity::read(text, Unit::named(unit)).map_err(error::value)
}

/// The texts of a scheme or queue whose keys have several values, such as `verus:ratio=2..6`. A sender of real time has
/// no such keys.
#[pyfunction]
pub(crate) fn expand(text: &str) -> PyResult<Vec<String>> {
    if External::parse(text).is_some() {
        return Ok(vec![text.to_owned()]);
    }
    verus_words::spec::expand(text).map_err(error::value)
}

/// How the beginning of a text may go on; `what` it names: `scheme`, `mix`, `queue`, `jitter`, `reorder`, `loss`,
/// `medium`, `traffic` or `channel`.
#[pyfunction]
pub(crate) fn complete(what: &str, text: &str) -> PyResult<Vec<String>> {
    let keyed = |kinds: Vec<Shown>| kinds.into_iter().map(|of| (of.name, of.keys)).collect();
    let entries: Vec<(&str, Vec<algorithm::Key>)> = match what {
        "scheme" => {
            let schemes = algorithm::catalogue().into_iter();
            schemes.map(|of| (of.name, of.keys)).collect()
        }
        "queue" => keyed(queue::catalogue()),
        "jitter" => keyed(jitter::catalogue()),
        "reorder" => keyed(reorder::catalogue()),
        "loss" => keyed(loss_model::catalogue()),
        "medium" => keyed(medium::catalogue()),
        "traffic" => keyed(traffic::catalogue()),
        "channel" => return Ok(names::complete(text)),
        "mix" => {
            let (before, last) = text.split_at(text.rfind('+').map_or(0, |plus| plus + 1));
            let schemes = complete("scheme", last)?.into_iter();
            return Ok(schemes.map(|scheme| format!("{before}{scheme}")).collect());
        }
        other => return Err(error::value(format!("nothing is called a {other}"))),
    };
    let names_and_keys: Vec<_> = entries
        .iter()
        .map(|(name, keys)| (*name, &keys[..]))
        .collect();
    Ok(verus_words::spec::complete(text, &names_and_keys))
}

/// Every kind of traffic with its keys.
#[pyfunction]
pub(crate) fn list_traffic(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &traffic::catalogue())
}

/// Every kind of jitter with its keys.
#[pyfunction]
pub(crate) fn list_jitter(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &jitter::catalogue())
}

/// Every kind of reordering with its keys.
#[pyfunction]
pub(crate) fn list_reorder(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &reorder::catalogue())
}

/// Every loss model with its keys.
#[pyfunction]
pub(crate) fn list_loss(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &loss_model::catalogue())
}

/// Every kind of medium with its keys.
#[pyfunction]
pub(crate) fn list_medium(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &medium::catalogue())
}

/// The fields of a scenario, with their values, that say the same as these options of Linux's netem.
#[pyfunction]
pub(crate) fn netem<'py>(
    py: Python<'py>,
    options: &str,
) -> PyResult<Vec<(&'static str, Bound<'py, PyAny>)>> {
    let netem: Netem = options.parse().map_err(error::value)?;
    let fields = netem.settings.into_iter();
    let fields = fields.map(|(field, value)| Ok((field, json(py, &json!(value))?)));
    fields.collect()
}

/// Every algorithm with its keys.
#[pyfunction]
pub(crate) fn list_schemes(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &algorithm::catalogue())
}

/// Every kind of queue with its keys.
#[pyfunction]
pub(crate) fn list_queues(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    table(py, &queue::catalogue())
}

/// A channel by its text. A recording that is not on this machine is an error.
#[pyfunction]
pub(crate) fn check_channel<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let channel = names::find(text).and_then(|channel| shown(text, &channel));
    json(py, &channel.map_err(|error| error::channel(&error))?)
}

/// The channel of `text`, in full.
fn shown(text: &str, found: &Found) -> Result<Value, Error> {
    let expression = match found {
        Found::Named(found) => return named(text, found),
        Found::Expression(expression) => expression,
    };
    let parts = expression.parts().iter().map(|part| {
        let source = named(part.name(), part.source())?;
        Ok(json!({
            "text": part.name(),
            "channel": source,
            "seed": part.seed(),
            "from_s": part.from_s(),
            "to_s": part.to_s(),
        }))
    });
    let parts: Vec<Value> = parts.collect::<Result<_, Error>>()?;
    Ok(json!({ "name": text, "kind": expression.kind(), "parts": parts }))
}

/// The channel with the name `text`, in full.
fn named(text: &str, found: &Named) -> Result<Value, Error> {
    let kind = found.kind();
    Ok(match found {
        Named::File(_) => json!({ "name": text, "kind": kind, "path": found.file()? }),
        Named::Rate(rate) => json!({ "name": text, "kind": kind, "mean_mbps": rate.as_mbps() }),
        Named::BuiltIn(channel) => built_in(channel),
        Named::Recording { recording, .. } => {
            let path = found.file()?;
            let mut entry = published(recording);
            entry["kind"] = json!(kind);
            entry["path"] = json!(path);
            entry
        }
    })
}

/// Statistics of every built-in channel, beside those of the recording it is fitted to.
#[pyfunction]
pub(crate) fn calibration(py: Python<'_>, seed: u64, pieces: u64) -> PyResult<Bound<'_, PyAny>> {
    let rows: Vec<_> = py.detach(|| {
        let channels: Vec<&generate::BuiltInChannel> =
            generate::names().filter_map(generate::describe).collect();
        let rows = channels.par_iter().with_max_len(1);
        rows.map(|channel| channel.calibration(seed, pieces))
            .collect()
    });
    table(py, &rows)
}

/// The built-in channels and the public recordings.
#[pyfunction]
pub(crate) fn list_channels(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let cache = cache_dir();
    let recordings = recordings::recordings().iter().map(|recording| {
        let path = cache.as_ref().map(|cache| recording.path_in(cache));
        let mut entry = published(recording);
        entry["kind"] = json!(Named::Recording { recording, path }.kind());
        entry["summary"] = json!(format!(
            "{}, {}, {}, {:.0} s; {}",
            recording.technology,
            recording.scenario,
            recording.direction,
            recording.duration_s,
            recording.licence,
        ));
        entry
    });
    let channels = generate::CHANNELS.iter().map(built_in).chain(recordings);
    table(py, &channels.collect::<Vec<_>>())
}

/// The public recordings: where each is published, where it is kept, the hash of its content.
#[pyfunction]
pub(crate) fn catalogue(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let cache = cache_dir();
    let recordings = recordings::recordings().iter().map(|recording| {
        let mut entry = published(recording);
        let path = cache.as_ref().map(|cache| recording.path_in(cache));
        entry["cache_path"] = json!(path);
        entry
    });
    table(py, &recordings.collect::<Vec<_>>())
}

fn built_in(channel: &generate::BuiltInChannel) -> Value {
    json!({
        "name": channel.name,
        "kind": "built-in",
        "mean_mbps": channel.model.mean_mbps,
        "summary": channel.basis,
    })
}

fn published(recording: &Recording) -> Value {
    let mut entry = json!(recording);
    entry["url"] = json!(recording.url());
    entry
}

/// The content of a file of at most `most` bytes, or of a pipe given to this process, such as
/// `<(command)` of a shell. A pipe is read once and kept.
#[pyfunction]
pub(crate) fn read_file(py: Python<'_>, path: PathBuf, most: u64) -> PyResult<Py<PyBytes>> {
    let mut content = Vec::new();
    let read = py.detach(|| {
        let file = files::open(&path)?;
        file.take(most.saturating_add(1)).read_to_end(&mut content)
    });
    let problem = match read {
        Err(error) if error.raw_os_error().is_some() || error.kind() == ErrorKind::IsADirectory => {
            // With its number, so that Python has its class, `strerror` and `filename`.
            let number = match error.raw_os_error() {
                Some(number) => number,
                None => py.import("errno")?.getattr("EISDIR")?.extract()?,
            };
            let reason: String = py
                .import("os")?
                .call_method1("strerror", (number,))?
                .extract()?;
            return Err(PyOSError::new_err((number, reason, path)));
        }
        Err(error) => error.to_string(),
        Ok(_) if content.len() as u64 > most => {
            format!("has more than {most} bytes; at most that many are read")
        }
        Ok(_) => return Ok(PyBytes::new(py, &content).unbind()),
    };
    let name = path.display();
    Err(error::value(format_args!("`{name}`: {problem}")))
}

/// Whether `path` names such a pipe.
#[pyfunction]
pub(crate) fn is_given_pipe(path: PathBuf) -> bool {
    files::is_given_pipe(&path)
}

/// A warning if the last line of the file at `path` has no newline.
#[pyfunction]
pub(crate) fn cut_warning(path: PathBuf) -> Option<String> {
    verus_channel::cut_warning(&path)
}

/// A trace: the times of its opportunities, and its period. `seed` and `duration_s` are for
/// built-in channels.
#[pyfunction]
#[pyo3(signature = (text, seed=1, duration_s=60.0))]
pub(crate) fn trace_read<'py>(
    py: Python<'py>,
    text: &str,
    seed: u64,
    duration_s: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let duration = checked_duration(duration_s)?;
    let (trace, times) = py
        .detach(|| {
            let trace = open(text, seed, duration)?;
            let times = times(&trace)?;
            Ok((trace, times))
        })
        .map_err(|error| error::channel(&error))?;
    let result = PyDict::new(py);
    result.set_item("name", trace.name())?;
    result.set_item("times_ms", array(py, times)?)?;
    result.set_item("period_ms", trace.period_ms())?;
    Ok(result)
}

/// A trace's statistics, at 1500 bytes an opportunity.
#[pyfunction]
pub(crate) fn trace_info<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let entry = py.detach(|| {
        let trace = open(text, SEED, Duration::from_secs_f64(DURATION_S))?;
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(trace.name()));
        entry.insert("sha256".to_owned(), json!(trace.sha256()));
        let times = trace.opportunities();
        let statistics = Statistics::of_period(times, generate::OPPORTUNITY, trace.period_ms())
            .expect("a trace's period is above zero");
        flatten(&statistics, &mut entry);
        Ok(Value::Object(entry))
    });
    json(py, &entry.map_err(|error: Error| error::channel(&error))?)
}

/// Statistics as one flat table, with each number's quantity and unit in its name.
fn flatten(statistics: &Statistics, entry: &mut Map<String, Value>) {
    let mut put = |name: String, value: Value| {
        entry.insert(name, value);
    };
    let Value::Object(fields) = json!(statistics) else {
        unreachable!("a structure serialises as an object")
    };
    for (name, value) in fields {
        match value {
            Value::Object(quantiles) => {
                for (quantile, value) in quantiles {
                    put(format!("{name}_{quantile}"), value);
                }
            }
            Value::Array(_) => {} // below, by width and threshold
            plain => put(name, plain),
        }
    }
    for bin in &statistics.bins {
        let width = match bin.width_ms {
            1000 => "1s".to_owned(),
            millis => format!("{millis}ms"),
        };
        put(format!("cv_{width}"), json!(bin.cv));
        for (lag, value) in LAGS.iter().zip(bin.acf) {
            put(format!("acf_{width}_lag{lag}"), json!(value));
        }
    }
    for outage in &statistics.outages {
        put(
            format!("gaps_ge_{}ms_per_min", outage.at_least_ms),
            json!(outage.per_minute),
        );
    }
}

/// Defaults for a built-in channel.
const SEED: u64 = 1;
const DURATION_S: f64 = 60.0;

/// The trace of a channel.
fn open(text: &str, seed: u64, duration: Duration) -> Result<std::sync::Arc<Trace>, Error> {
    match names::open(text, seed, duration)? {
        Channel::Trace(trace) => Ok(trace),
        Channel::Rate(_) => Err(Error::Expression {
            text: text.to_owned(),
            part: String::new(),
            problem: "a constant rate has no trace".to_owned(),
        }),
    }
}

fn checked_duration(duration_s: f64) -> PyResult<Duration> {
    /// A day; more is a typing error rather than a wish.
    const LONGEST_S: f64 = 86_400.0;
    if duration_s > 0.0 && duration_s <= LONGEST_S {
        return Ok(Duration::from_secs_f64(duration_s));
    }
    Err(error::value(format_args!(
        "duration_s must be above 0 and at most {LONGEST_S}, not {duration_s}"
    )))
}

/// The opportunities of a built-in channel, ms.
#[pyfunction]
pub(crate) fn trace_generate<'py>(
    py: Python<'py>,
    name: &str,
    seed: u64,
    duration_s: f64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let duration = checked_duration(duration_s)?;
    let channel = match names::find(name).map_err(|error| error::channel(&error))? {
        Found::Named(Named::BuiltIn(channel)) => channel,
        _ => {
            return Err(error::value(format_args!(
                "`{name}` is not a built-in channel"
            )));
        }
    };
    let times = py.detach(|| {
        let times = channel.generate(seed, duration);
        times.into_iter().map(|time| time as i64).collect()
    });
    array(py, times)
}

/// Turns a raw arrival log, or a series of rates, into the times of a trace, ms, and says how long it is.
#[pyfunction]
#[pyo3(signature = (raw_path, rates=false))]
pub(crate) fn trace_convert(
    py: Python<'_>,
    raw_path: PathBuf,
    rates: bool,
) -> PyResult<(Bound<'_, PyArray1<i64>>, u64)> {
    let (times, period_ms) = py
        .detach(|| {
            let trace = if rates {
                verus_channel::rates::read(&raw_path)?
            } else {
                raw::read(&raw_path)?
            };
            Ok((times(&trace)?, trace.period_ms()))
        })
        .map_err(|error: Error| error::channel(&error))?;
    Ok((array(py, times)?, period_ms))
}

/// Writes the times of a trace, ms, compressed as the path's extension says.
#[pyfunction]
pub(crate) fn trace_write(
    py: Python<'_>,
    times_ms: PyArrayLike1<'_, i64, TypeMustMatch>,
    path: PathBuf,
) -> PyResult<()> {
    let times = times_ms.to_vec()?;
    py.detach(|| trace_of(&path, &times)?.write(&path))
        .map_err(|error| error::channel(&error))
}

/// Every metric and time series of a Mahimahi link log, plain or compressed. Its last line is left out if it has no end.
#[pyfunction]
pub(crate) fn analyze_log(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    const BIN_MS: f64 = 100.0;
    let name = path.display().to_string();
    let file = files::open(&path).map_err(|source| {
        error::channel(&Error::Io {
            action: "read",
            name: name.clone(),
            source,
        })
    })?;
    let (report, has_unfinished_line) = py
        .detach(|| {
            let log = decompressed(file).map_err(|source| mahimahi::Error::Read {
                name: name.clone(),
                line: 0,
                source,
            })?;
            let mut lines = mahimahi::WholeLines::new(log);
            let report = mahimahi::analyze(&name, &mut lines)?;
            Ok((report, lines.left_out()))
        })
        .map_err(|error: mahimahi::Error| error::log(&error))?;
    let bins = report.capacity_mbps.len();
    let bin_ms = report
        .metrics
        .series
        .first()
        .map_or(BIN_MS, |series| series.bin_ms);
    let result = table(py, &report)?.cast_into::<PyDict>()?;
    result.set_item(
        "series",
        link_series(py, &report.metrics.series, bins, bin_ms)?,
    )?;
    result.set_item("capacity", capacity(py, report.capacity_mbps, bin_ms)?)?;
    result.set_item("has_unfinished_line", has_unfinished_line)?;
    Ok(result)
}

/// The opportunities of a Mahimahi link log, as times in ms and bytes, and whether each packet was dropped; `None` where
/// the file is no such log. Its last line is left out if it has no end.
#[pyfunction]
pub(crate) fn link_log_fates<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<Option<LinkFates<'py>>> {
    let name = path.display().to_string();
    let fates = py
        .detach(|| {
            let unreadable = |source| mahimahi::Error::Read {
                name: name.clone(),
                line: 0,
                source,
            };
            let file = files::open(&path).map_err(unreadable)?;
            let mut log = BufReader::new(decompressed(file).map_err(unreadable)?);
            let begin = log.fill_buf().map_err(unreadable)?;
            let first_line = begin.split(|byte| *byte == b'\n').next();
            if !first_line.is_some_and(mahimahi::is_log) {
                return Ok(None);
            }
            mahimahi::fates(&name, mahimahi::WholeLines::new(log)).map(Some)
        })
        .map_err(|error: mahimahi::Error| error::log(&error))?;
    let Some(fates) = fates else {
        return Ok(None);
    };
    let (times, bytes): (Vec<_>, Vec<_>) = (fates.opportunities.into_iter())
        .map(|(at, bytes)| (at as i64, bytes as i64))
        .unzip();
    Ok(Some((
        array(py, times)?,
        array(py, bytes)?,
        array(py, fates.lost)?,
    )))
}

/// Times and bytes of opportunities, and drops.
type LinkFates<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<bool>>,
);

/// The times of a trace as NumPy's own kind of integer.
fn times(trace: &Trace) -> Result<Vec<i64>, Error> {
    let line = |index: usize, time: u64| Error::Line {
        what: "trace",
        name: trace.name().to_owned(),
        line: index as u64 + 1,
        problem: Problem::TooLarge(time.to_string()),
    };
    trace
        .opportunities()
        .enumerate()
        .map(|(index, time)| i64::try_from(time).map_err(|_| line(index, time)))
        .collect()
}

/// The trace with these times, to be called `path` in messages.
fn trace_of(path: &Path, times_ms: &[i64]) -> Result<Trace, Error> {
    let name = path.display().to_string();
    let millis: Vec<u64> = times_ms
        .iter()
        .enumerate()
        .map(|(index, &time)| {
            u64::try_from(time).map_err(|_| Error::Line {
                what: "trace",
                name: name.clone(),
                line: index as u64 + 1,
                problem: Problem::Negative(time.to_string()),
            })
        })
        .collect::<Result<_, _>>()?;
    Trace::from_millis(&name, millis)
}
