//! Training a model, and looking at one.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use numpy::{PyArray1, PyArrayLike1, PyArrayMethods, TypeMustMatch};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::json;
use verus_core::Time;
use verus_model::{self as model, About, Grid, MAX_BYTES, Model, Sampler, TrainError};
use verus_sim::{Outcome, Scenario};

use crate::convert::{self, array};
use crate::sweep::Sweep;
use crate::{error, lock, run};

type Column<'py, T> = PyArrayLike1<'py, T, TypeMustMatch>;

/// The source of models: counted transitions, of which each quantization makes another model.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Trainer(model::Trainer);

#[pymethods]
impl Trainer {
    /// Watches simulated flows, and counts recorded ones. `recorded` holds, for each run, each packet's flow, when it
    /// left and when it was acknowledged, ms.
    #[new]
    #[pyo3(signature = (scenarios, recorded, threads=None, progress=None))]
    fn new<'py>(
        py: Python<'py>,
        scenarios: Vec<String>,
        recorded: Vec<(Column<'py, i32>, Column<'py, f64>, Column<'py, f64>)>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut trainer = model::Trainer::new();
        for (flow, sent, acked) in &recorded {
            let columns = (flow.to_vec()?, sent.to_vec()?, acked.to_vec()?);
            py.detach(|| add_recorded(&mut trainer, &columns.0, &columns.1, &columns.2))
                .map_err(error::value)?;
        }
        let scenarios: Vec<Scenario> = scenarios
            .iter()
            .map(|text| run::parse(text))
            .collect::<PyResult<_>>()?;
        if scenarios.is_empty() {
            return Ok(Trainer(trainer));
        }
        // Counted as each run ends, so that no more than the runs under way are in memory.
        let counted = Arc::new(Mutex::new((trainer, None)));
        let into = Arc::clone(&counted);
        let sweep = Sweep::start(scenarios, threads, move |_, scenario, progress| {
            let outcome = verus_sim::run(scenario, progress)?;
            let (trainer, failed) = &mut *lock(&into);
            if failed.is_none() {
                *failed = add_simulated(trainer, &outcome).err();
            }
            Ok(())
        })?;
        let ran = sweep.wait(py, run::report_progress(py, progress))?;
        if let Some(failed) = ran.iter().find_map(|ran| ran.as_ref().err()) {
            return Err(error::simulation(failed));
        }
        let (trainer, failed) = std::mem::take(&mut *lock(&counted));
        failed.map_or(Ok(Trainer(trainer)), |failed| Err(error::value(failed)))
    }

    /// All that others counted, as if one had watched it.
    #[staticmethod]
    fn of_all(py: Python<'_>, others: Vec<PyRef<'_, Trainer>>) -> PyResult<Self> {
        let others: Vec<&model::Trainer> = others.iter().map(|other| &other.0).collect();
        py.detach(|| {
            let mut all = model::Trainer::new();
            others
                .into_iter()
                .try_for_each(|other| all.include(other))?;
            Ok(Trainer(all))
        })
        .map_err(|failed: TrainError| error::value(failed))
    }

    /// The bytes of a model's file. `about_json` describes the training as far as only the caller
    /// knows.
    fn model<'py>(
        &self,
        py: Python<'py>,
        about_json: &str,
        quantization_ms: u32,
        percentile: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let about: About = serde_json::from_str(about_json).map_err(error::value)?;
        let bytes = py
            .detach(|| {
                let model = self.0.finish(quantization_ms, percentile, about)?;
                Ok(model.to_bytes())
            })
            .map_err(|failed: TrainError| error::value(failed))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(error::value(
                "the model is too large for a file: train on less",
            ));
        }
        Ok(PyBytes::new(py, &bytes))
    }
}

fn add_simulated(trainer: &mut model::Trainer, outcome: &Outcome) -> Result<(), TrainError> {
    let samplers = outcome.flows.iter().filter_map(|flow| flow.epochs.as_ref());
    for sampler in samplers {
        for samples in sampler.runs() {
            trainer.add(samples)?;
        }
    }
    Ok(())
}

fn add_recorded(
    trainer: &mut model::Trainer,
    flow: &[i32],
    sent_ms: &[f64],
    acked_ms: &[f64],
) -> Result<(), String> {
    if flow.len() != sent_ms.len() || flow.len() != acked_ms.len() {
        return Err("columns of packets must be equally long".to_owned());
    }
    let time = |millis: f64| Time::from_secs_f64(millis / 1000.0);
    let mut flows: Vec<i32> = flow.to_vec();
    flows.sort_unstable();
    flows.dedup();
    for one in flows {
        let packets = (0..flow.len())
            .filter(|&row| flow[row] == one && sent_ms[row].is_finite())
            .map(|row| {
                let acked = acked_ms[row].is_finite().then(|| time(acked_ms[row]));
                (time(sent_ms[row]), acked)
            });
        let sampler = Sampler::of_packets(packets);
        for samples in sampler.runs() {
            trainer.add(samples).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn open(path: &std::path::Path) -> PyResult<Model> {
    let problem = |problem: &dyn std::fmt::Display| format!("`{}` {problem}", path.display());
    let bytes = verus_sim::model_bytes(path).map_err(|found| match &found {
        verus_sim::FileProblem::Io(source) => error::os(source, problem(&found)),
        verus_sim::FileProblem::NoFile => error::value(problem(&found)),
    })?;
    Model::from_bytes(&bytes).map_err(|found| error::value(problem(&found)))
}

/// A model's properties: its ranges, its size as a matrix and on disk, its density, its training.
#[pyfunction]
pub(crate) fn model_info(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let model = py.detach(|| open(&path))?;
    let (grid, about, matrix) = (model.matrix().grid(), model.about(), model.matrix());
    let info = py.detach(|| {
        let rows = matrix.rows();
        let states = grid.states();
        let used = rows.chunk_by(|a, b| a.0 == b.0).count();
        let paper = Grid {
            delay_min_ms: 20,
            delay_max_ms: 727,
            packets_min: 0,
            packets_max: 35,
            ..*grid
        };
        json!({
            "name": path.display().to_string(),
            "delay_min_ms": grid.delay_min_ms,
            "delay_max_ms": grid.delay_max_ms,
            "quantization_ms": grid.step_ms,
            "window_min_packets": grid.packets_min,
            "window_max_packets": grid.packets_max,
            "matrix_size": states,
            "paper_matrix_size": paper.states(),
            "states_visited": used,
            "elements": rows.len(),
            "density": rows.len() as f64 / (states as f64 * states as f64),
            "transitions": about.transitions,
            "samples": about.samples,
            "outliers": about.outliers,
            "percentile": about.percentile,
            "file_bytes": std::fs::metadata(&path).map_or(0, |about| about.len()),
            "csv_bytes": model.csv_bytes(),
            "scheme": about.scheme,
            "users": about.users,
            "channels": about.channels,
            "seeds": about.seeds,
            "duration_s": about.duration_s,
            "packet_bytes": about.packet_bytes,
        })
    });
    convert::json(py, &info)
}

/// Writes the matrix as the paper stores it; returns how many bytes that takes.
#[pyfunction]
pub(crate) fn model_csv(py: Python<'_>, path: PathBuf, csv: PathBuf) -> PyResult<u64> {
    let model = py.detach(|| open(&path))?;
    py.detach(|| {
        let write = || {
            let mut into = BufWriter::new(File::create(&csv)?);
            model.write_csv(&mut into)?;
            into.flush()
        };
        write().map_err(|source: std::io::Error| {
            error::os(
                &source,
                format!("`{}` cannot be written: {source}", csv.display()),
            )
        })?;
        Ok(model.csv_bytes())
    })
}

/// The elements of the matrix within `delays` quantization steps from `first`: row, column (both
/// counted from the region's beginning) and probability.
#[pyfunction]
pub(crate) fn model_region<'py>(
    py: Python<'py>,
    path: PathBuf,
    first: u64,
    delays: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let model = py.detach(|| open(&path))?;
    let windows = model.matrix().grid().windows();
    let (from, to) = (first * windows, (first + delays) * windows);
    let within = |at: u64| (from..to).contains(&at);
    let (mut row, mut column, mut probability) = (Vec::new(), Vec::new(), Vec::new());
    for (at, next, share) in model.matrix().rows() {
        if within(at) && within(next) {
            row.push((at - from) as i64);
            column.push((next - from) as i64);
            probability.push(share);
        }
    }
    let result = PyDict::new(py);
    let columns: [Bound<'py, PyArray1<i64>>; 2] = [array(py, row)?, array(py, column)?];
    let [row, column] = columns;
    result.set_item("row", row)?;
    result.set_item("column", column)?;
    result.set_item("probability", array(py, probability)?)?;
    Ok(result)
}
