//! Simulations: one, or many on all cores.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use verus_core::Time;
use verus_sim::{Error, Outcome, Scenario};

use crate::logs::Logs;
use crate::sweep::Sweep;
use crate::{controller, convert, error, lock};

/// Every field of a scenario, with its default.
#[pyfunction]
pub(crate) fn default_scenario(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    convert::table(py, &Scenario::default())
}

/// The JSON Schema of a scenario.
#[pyfunction]
pub(crate) fn scenario_schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    convert::json(py, Scenario::schema())
}

/// Refuses a scenario, written as JSON, with a field that is unknown, of another type or out of its range, or with two
/// that contradict each other.
#[pyfunction]
pub(crate) fn check_scenario(scenario_json: &str) -> PyResult<()> {
    let checked = parse(scenario_json)?.check();
    checked.map_err(|error| error::simulation(&error))
}

/// Runs one scenario, written as JSON.
#[pyfunction]
#[pyo3(signature = (scenario_json, progress=None))]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    scenario_json: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let sweep = Sweep::start(vec![parse(scenario_json)?], Some(1), run_one)?;
    let outcomes = sweep.wait(py, |_, fraction| match &progress {
        Some(progress) => goes_on(progress.bind(py).call1((fraction,))?),
        None => Ok(true),
    })?;
    let outcome = outcomes.into_iter().next().expect("one for each scenario");
    convert::outcome(py, outcome.map_err(|error| error::simulation(&error))?)
}

/// Runs scenarios on `threads` cores (all of them if absent); results in the order of the input,
/// whatever the order of work. Without `columns`, no part of them is an array, and NumPy is not
/// loaded. A run whose controller gave up returns its exception instead. `qlog`: a folder for logs,
/// their format, and the name of each run's channel in them; `pcap`: a folder for captures, and the same names. With
/// `wait` false it returns the [`Runs`] under way.
#[pyfunction]
#[pyo3(signature = (scenarios, threads=None, progress=None, columns=true, qlog=None, wait=true, pcap=None))]
#[expect(clippy::too_many_arguments, reason = "Python names its arguments")]
pub(crate) fn simulate_many<'py>(
    py: Python<'py>,
    scenarios: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    columns: bool,
    qlog: Option<(PathBuf, String, Vec<String>)>,
    wait: bool,
    pcap: Option<(PathBuf, Vec<String>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let scenarios = parse_all(&scenarios)?;
    let is_short = |channels: &Vec<String>| channels.len() != scenarios.len();
    if qlog
        .as_ref()
        .is_some_and(|(.., channels)| is_short(channels))
    {
        return Err(error::value("qlog: a channel's name for each run"));
    }
    if pcap
        .as_ref()
        .is_some_and(|(_, channels)| is_short(channels))
    {
        return Err(error::value("pcap: a channel's name for each run"));
    }
    let logs = (qlog.is_some() || pcap.is_some())
        .then(|| Logs::new(qlog, pcap).map(Arc::new))
        .transpose()?;
    let sweep = match logs.clone() {
        Some(logs) => Sweep::start(scenarios, threads, move |index, scenario, progress| {
            logs.run(index, scenario, progress)
        }),
        None => Sweep::start(scenarios, threads, run_one),
    }?;
    if !wait {
        let runs = Runs {
            sweep,
            logs,
            columns,
            failed: Mutex::new(None),
        };
        return Ok(Bound::new(py, runs)?.into_any());
    }
    let ended = sweep
        .wait(py, report_progress(py, progress))
        .map_err(|error| logs.as_deref().and_then(Logs::failure).unwrap_or(error))?;
    let outcomes = PyList::empty(py);
    for outcome in ended {
        outcomes.append(to_python(py, outcome, columns, None)?)?;
    }
    Ok(outcomes.into_any())
}

/// Runs one scenario, whose plan the calling thread makes before it starts another: a controller's file is loaded while
/// there is only this thread to confine. `columns` and the result as of [`simulate_many`].
#[pyfunction]
pub(crate) fn simulate_planned<'py>(
    py: Python<'py>,
    scenario_json: &str,
    columns: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let scenario = parse(scenario_json)?;
    let plan = py
        .detach(|| scenario.plan())
        .map_err(|error| error::simulation(&error))?;
    let sweep = Sweep::start(vec![scenario], Some(1), move |_, _, progress| {
        plan.run(progress)
    })?;
    let outcomes = sweep.wait(py, |_, _| Ok(true))?;
    let outcome = outcomes.into_iter().next().expect("one for each scenario");
    to_python(py, outcome, columns, None)
}

fn run_one(
    _: usize,
    scenario: &Scenario,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Outcome, Error> {
    verus_sim::run(scenario, progress)
}

/// A run's result for Python: its outcome, with arrays or without, or the exception for its
/// controller's error.
///
/// # Errors
/// Any other error of it, or of its logs.
fn to_python<'py>(
    py: Python<'py>,
    outcome: Result<Outcome, Error>,
    columns: bool,
    logs: Option<&Logs>,
) -> PyResult<Bound<'py, PyAny>> {
    match outcome {
        Ok(outcome) if columns => Ok(convert::outcome(py, outcome)?.into_any()),
        Ok(outcome) => Ok(convert::measured(py, &outcome)?.into_any()),
        Err(error @ Error::Controller(_)) => Ok(error::simulation(&error)
            .into_value(py)
            .into_bound(py)
            .into_any()),
        Err(error) => Err((logs.and_then(Logs::failure)).unwrap_or(error::simulation(&error))),
    }
}

/// Runs under way, whose outcomes are taken as they end.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Runs {
    sweep: Sweep<Outcome>,
    logs: Option<Arc<Logs>>,
    columns: bool,
    /// The first error of a run, raised once the others that had ended are reported.
    failed: Mutex<Option<PyErr>>,
}

#[pymethods]
impl Runs {
    /// Index and outcome of the runs that have ended since the last call. It waits for one, but at
    /// most `timeout_s`. An error of one is raised once the others of its batch have been reported.
    fn ended<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Bound<'py, PyList>> {
        controller::watch(py);
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        let timeout = Duration::try_from_secs_f64(timeout_s).map_err(error::value)?;
        let ended = py.detach(|| self.sweep.take(timeout));
        let outcomes = PyList::empty(py);
        let mut failed = lock(&self.failed);
        for (index, outcome) in ended {
            match to_python(py, outcome, self.columns, self.logs.as_deref()) {
                Ok(result) => outcomes.append((index, result))?,
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        match failed.take_if(|_| outcomes.is_empty()) {
            Some(error) => Err(error),
            None => Ok(outcomes),
        }
    }

    /// The share of all the work that is done.
    fn fraction(&self) -> f64 {
        self.sweep.fraction()
    }

    /// Ends the runs under way, and waits until they have ended.
    fn stop(&self, py: Python<'_>) {
        self.sweep.stop(py);
    }
}

/// A run that goes on until a given time, for a caller that decides something in between.
#[pyclass(frozen, module = "verus._verus")]
pub(crate) struct Simulation(Mutex<verus_sim::Simulation>);

#[pymethods]
impl Simulation {
    #[new]
    fn new(py: Python<'_>, scenario_json: &str) -> PyResult<Self> {
        let scenario = parse(scenario_json)?;
        let plan = py
            .detach(|| scenario.plan())
            .map_err(|error| error::simulation(&error))?;
        Ok(Simulation(Mutex::new(verus_sim::Simulation::new(plan))))
    }

    /// Everything happens that happens before `at_s`; whether there is more to come.
    fn run_until(&self, py: Python<'_>, at_s: f64) -> PyResult<bool> {
        if !(0.0..=1e9).contains(&at_s) {
            return Err(error::value(format_args!(
                "at_s must be between 0 and 1000000000, not {at_s}"
            )));
        }
        py.detach(|| {
            let mut simulation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            simulation.run_until(Time::from_secs_f64(at_s))
        })
        .map_err(|error| error::simulation(&error))
    }
}

/// Reports to a callback, if there is one, how many runs are done and the share of all work.
pub(crate) fn report_progress(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
) -> impl Fn(usize, f64) -> PyResult<bool> {
    move |done, fraction| match &progress {
        Some(progress) => goes_on(progress.bind(py).call1((done, fraction))?),
        None => Ok(true),
    }
}

fn parse_all(texts: &[String]) -> PyResult<Vec<Scenario>> {
    texts.iter().map(|text| parse(text)).collect()
}

pub(crate) fn parse(text: &str) -> PyResult<Scenario> {
    Scenario::from_json(text).map_err(|error| error::simulation(&error))
}

/// Whether a progress callback wants the work to go on: everything but `False` does.
fn goes_on(answer: Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(answer.is_none() || answer.is_truthy()?)
}
