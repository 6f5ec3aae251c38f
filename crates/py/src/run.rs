//! Simulations: one, or many on all cores.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rayon::prelude::*;
use verus_core::Time;
use verus_measure::qlog::{self, Dialect, Qlog, Subject};
use verus_sim::{Error, Outcome, Scenario};

use crate::{controller, convert, error};

/// How often a waiting caller looks for Ctrl-C and tells its progress: often enough to feel
/// immediate, seldom enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where the logs of runs go, and in which words: qlog.
struct Logs {
    folder: PathBuf,
    dialect: Dialect,
    /// What each run's channel is called in them.
    channels: Vec<String>,
    /// The first that could not be written, which ends all runs.
    failed: Mutex<Option<(PathBuf, io::Error)>>,
}

impl Logs {
    fn new(folder: PathBuf, format: &str, channels: Vec<String>) -> PyResult<Self> {
        Ok(Logs {
            folder,
            dialect: format.parse().map_err(error::value)?,
            channels,
            failed: Mutex::new(None),
        })
    }

    fn run(
        &self,
        index: usize,
        scenario: &Scenario,
        progress: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Outcome, Error> {
        let plan = scenario.plan()?;
        let mut paths = Vec::new();
        let mut logs = Vec::new();
        for (flow, spec) in scenario.flows.iter().enumerate() {
            let subject = Subject {
                scheme: spec.scheme.clone(),
                transport: "simulated",
                channel: Some(self.channels[index].clone()),
                seed: Some(scenario.seed),
                flow: flow as u32,
                is_server: true,
            };
            let path = self.folder.join(qlog::file_name(&subject, self.dialect));
            let file = File::create_new(&path).map_err(|error| self.fail(&path, error))?;
            paths.push(path);
            let (file, limit) = (BufWriter::with_capacity(1 << 16, file), qlog::LIMIT);
            logs.push(Qlog::new(file, self.dialect, limit, &subject, Time::ZERO));
        }
        let ran = plan.run_logged(logs, progress);
        if ran.is_err() {
            // Of a run that did not end well there is nothing.
            for path in &paths {
                let _ = fs::remove_file(path);
            }
        }
        let (outcome, ends) = ran?;
        for (end, path) in ends.into_iter().zip(&paths) {
            end.map_err(|error| self.fail(path, error))?;
        }
        Ok(outcome)
    }

    /// Notes what cannot be written, and ends the run.
    fn fail(&self, path: &std::path::Path, error: io::Error) -> Error {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert((path.to_owned(), error));
        Error::Cancelled
    }

    /// Why runs were ended, if it was for their logs.
    fn failure(&self) -> Option<PyErr> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, cause) = failed.take()?;
        let message = format!("`{}` cannot be written ({cause})", path.display());
        Some(error::os(&cause, message))
    }
}

/// The scenario that runs where nothing is said, as JSON.
#[pyfunction]
pub(crate) fn default_scenario() -> PyResult<String> {
    serde_json::to_string(&Scenario::default()).map_err(error::value)
}

/// The JSON Schema of a scenario.
#[pyfunction]
pub(crate) fn scenario_schema() -> String {
    Scenario::schema().to_string()
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
    let scenarios = [parse(scenario_json)?];
    let told = |fraction| match &progress {
        Some(progress) => Python::attach(|py| goes_on(progress.bind(py).call1((fraction,))?)),
        None => Ok(true),
    };
    let outcomes = on_all_cores(py, &scenarios, Some(1), |_, fraction| told(fraction), |o| o)?;
    let outcome = outcomes.into_iter().next().expect("one for each scenario");
    convert::outcome(py, outcome.map_err(|error| error::simulation(&error))?)
}

/// Runs scenarios on `threads` cores (all of them if absent); results in the order of the input,
/// whatever the order of work. Without `columns` nothing of them is an array, and NumPy is left alone. In place of a run
/// whose controller gave up stands the exception that says why. `qlog`: a folder for logs, their format, and what each
/// run's channel is called in them. Where it is not to wait, it returns the [`Runs`] under way.
#[pyfunction]
#[pyo3(signature = (scenarios, threads=None, progress=None, columns=true, qlog=None, wait=true))]
pub(crate) fn simulate_many<'py>(
    py: Python<'py>,
    scenarios: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    columns: bool,
    qlog: Option<(PathBuf, String, Vec<String>)>,
    wait: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let scenarios = parse_all(&scenarios)?;
    let logs = logs(qlog, &scenarios)?;
    if !wait {
        let runs = Runs::start(scenarios, cores(threads)?, columns, logs)?;
        return Ok(Bound::new(py, runs)?.into_any());
    }
    let outcomes = PyList::empty(py);
    if scenarios.is_empty() {
        return Ok(outcomes.into_any());
    }
    let run = |index: usize, progress: &mut dyn FnMut(f64) -> bool| match &logs {
        Some(logs) => logs.run(index, &scenarios[index], progress),
        None => verus_sim::run(&scenarios[index], progress),
    };
    let ended = run_on_all_cores(py, &scenarios, threads, told(progress), run)
        .map_err(|error| logs.as_ref().and_then(Logs::failure).unwrap_or(error))?;
    for outcome in ended {
        outcomes.append(told_of(py, outcome, columns, None)?)?;
    }
    Ok(outcomes.into_any())
}

/// What Python is told of a run: its outcome, with arrays or without, or the exception that says what its controller did
/// wrong.
///
/// # Errors
/// What else went wrong with it, or with its logs.
fn told_of<'py>(
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
    work: Arc<Work>,
    ended: Mutex<mpsc::Receiver<(usize, Result<Outcome, Error>)>>,
    workers: Mutex<Vec<thread::JoinHandle<()>>>,
    columns: bool,
    /// What went wrong with one of them, to be raised once the others that had ended are told of.
    failed: Mutex<Option<PyErr>>,
}

/// What the threads of [`Runs`] share.
struct Work {
    scenarios: Vec<Scenario>,
    logs: Option<Logs>,
    /// Which to run, those whose controllers are Python apart: one thread runs these, one after another.
    python: Mutex<Vec<usize>>,
    rust: Mutex<VecDeque<usize>>,
    stop: AtomicBool,
    fractions: Mutex<Vec<f64>>,
}

impl Work {
    /// Runs one, unless all were stopped.
    fn run(&self, index: usize) -> (usize, Result<Outcome, Error>) {
        let progress = &mut |fraction| {
            lock(&self.fractions)[index] = fraction;
            !self.stop.load(Ordering::Relaxed)
        };
        let scenario = &self.scenarios[index];
        let outcome = match &self.logs {
            _ if self.stop.load(Ordering::Relaxed) => Err(Error::Cancelled),
            Some(logs) => logs.run(index, scenario, progress),
            None => verus_sim::run(scenario, progress),
        };
        lock(&self.fractions)[index] = 1.0;
        (index, outcome)
    }

    /// A thread's work.
    fn run_all(&self, ended: &mpsc::Sender<(usize, Result<Outcome, Error>)>) {
        let tell = |index: usize| {
            // Nobody listens any more once they are stopped.
            let _ = ended.send(self.run(index));
        };
        let python = std::mem::take(&mut *lock(&self.python));
        controller::in_one_interpreter(&python, |&index| tell(index));
        loop {
            let next = lock(&self.rust).pop_front();
            match next {
                Some(index) => tell(index),
                None => return,
            }
        }
    }
}

fn no_threads(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("cannot start threads: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs {
    fn start(
        scenarios: Vec<Scenario>,
        threads: usize,
        columns: bool,
        logs: Option<Logs>,
    ) -> PyResult<Self> {
        let (python, rust): (Vec<usize>, Vec<usize>) =
            (0..scenarios.len()).partition(|&index| is_python(&scenarios[index]));
        let work = Arc::new(Work {
            python: Mutex::new(python),
            rust: Mutex::new(rust.into()),
            stop: AtomicBool::new(false),
            fractions: Mutex::new(vec![0.0; scenarios.len()]),
            logs,
            scenarios,
        });
        let (sender, ended) = mpsc::channel();
        let worker = |_| {
            let (work, sender) = (Arc::clone(&work), sender.clone());
            thread::Builder::new().spawn(move || work.run_all(&sender))
        };
        let started: io::Result<Vec<_>> =
            (0..threads.min(work.scenarios.len())).map(worker).collect();
        Ok(Runs {
            workers: Mutex::new(started.map_err(no_threads)?),
            work,
            ended: Mutex::new(ended),
            columns,
            failed: Mutex::new(None),
        })
    }
}

#[pymethods]
impl Runs {
    /// Index and outcome of those that have ended since the last call. It waits for one, but no longer than `timeout_s`. What
    /// went wrong with one is raised once the others of its batch have been told of.
    fn ended<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Bound<'py, PyList>> {
        controller::watch(py);
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        let timeout = Duration::try_from_secs_f64(timeout_s).map_err(error::value)?;
        let found: Vec<_> = py.detach(|| {
            let ended = lock(&self.ended);
            let first = ended.recv_timeout(timeout).ok();
            first.into_iter().chain(ended.try_iter()).collect()
        });
        let outcomes = PyList::empty(py);
        let mut failed = lock(&self.failed);
        for (index, outcome) in found {
            match told_of(py, outcome, self.columns, self.work.logs.as_ref()) {
                Ok(told) => outcomes.append((index, told))?,
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
        let fractions = lock(&self.work.fractions);
        fractions.iter().sum::<f64>() / fractions.len().max(1) as f64
    }

    /// Ends what is under way, and waits until it has.
    fn stop(&self, py: Python<'_>) {
        self.work.stop.store(true, Ordering::Relaxed);
        let workers = std::mem::take(&mut *lock(&self.workers));
        py.detach(|| workers.into_iter().for_each(|worker| drop(worker.join())));
    }
}

/// A run that goes as far as it is told to, for a caller that decides something in between.
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

/// Tells a callback, if there is one, how many runs are done and the share of all work.
pub(crate) fn told(progress: Option<Py<PyAny>>) -> impl Fn(usize, f64) -> PyResult<bool> + Sync {
    move |done, fraction| match &progress {
        Some(progress) => Python::attach(|py| goes_on(progress.bind(py).call1((done, fraction))?)),
        None => Ok(true),
    }
}

/// Runs scenarios on `threads` cores (all of them if absent); `keep` says, on those cores, what is
/// kept of each. What a controller did wrong is told of its run; all else that goes wrong ends all of them.
pub(crate) fn on_all_cores<T: Send>(
    py: Python<'_>,
    scenarios: &[Scenario],
    threads: Option<usize>,
    told: impl Fn(usize, f64) -> PyResult<bool> + Sync,
    keep: impl Fn(Outcome) -> T + Send + Sync,
) -> PyResult<Vec<Result<T, Error>>> {
    run_on_all_cores(py, scenarios, threads, told, |index, progress| {
        verus_sim::run(&scenarios[index], progress).map(&keep)
    })
}

/// The same, where `run` runs the scenario at an index.
fn run_on_all_cores<T: Send>(
    py: Python<'_>,
    scenarios: &[Scenario],
    threads: Option<usize>,
    told: impl Fn(usize, f64) -> PyResult<bool> + Sync,
    run: impl Fn(usize, &mut dyn FnMut(f64) -> bool) -> Result<T, Error> + Send + Sync,
) -> PyResult<Vec<Result<T, Error>>> {
    let threads = cores(threads)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(no_threads)?;
    py.detach(|| {
        run_all(&pool, scenarios, run, |done, fraction| {
            Python::attach(|py| {
                py.check_signals()?;
                controller::watch(py);
                told(done, fraction)
            })
        })
    })
}

/// The work on the pool, while this thread waits, listens for signals (only the thread that called
/// hears them) and tells its progress: `told` hears how many are done and the share of all work.
fn run_all<T: Send>(
    pool: &rayon::ThreadPool,
    scenarios: &[Scenario],
    run: impl Fn(usize, &mut dyn FnMut(f64) -> bool) -> Result<T, Error> + Send + Sync,
    mut told: impl FnMut(usize, f64) -> PyResult<bool>,
) -> PyResult<Vec<Result<T, Error>>> {
    let stop = AtomicBool::new(false);
    let fractions = Mutex::new(vec![0.0; scenarios.len()]);
    let shares = || {
        fractions
            .lock()
            .expect("nothing panics while it holds this lock")
    };
    let work = |&index: &usize| {
        let outcome = run(index, &mut |fraction| {
            shares()[index] = fraction;
            !stop.load(Ordering::Relaxed)
        });
        // One that fails decides the result, unless it is the controller's own fault: the others need not go on.
        if !matches!(outcome, Ok(_) | Err(Error::Controller(_))) {
            stop.store(true, Ordering::Relaxed);
        }
        shares()[index] = 1.0;
        (index, outcome)
    };
    let (python, rust): (Vec<usize>, Vec<usize>) =
        (0..scenarios.len()).partition(|&index| is_python(&scenarios[index]));
    let (sender, ended) = mpsc::channel::<()>();
    let (mut results, cancelled) = thread::scope(|scope| {
        let workers = scope.spawn(move || {
            let _dropped_at_the_end = sender;
            pool.install(|| {
                let (mut results, others) = rayon::join(
                    || controller::in_one_interpreter(&python, work),
                    || -> Vec<_> { rust.par_iter().with_max_len(1).map(work).collect() },
                );
                results.extend(others);
                results
            })
        });
        let mut cancelled = Ok(true);
        loop {
            let over = ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected);
            let (done, fraction) = {
                let shares = shares();
                let done = shares.iter().filter(|share| **share >= 1.0).count();
                (done, shares.iter().sum::<f64>() / shares.len() as f64)
            };
            if matches!(cancelled, Ok(true)) {
                cancelled = told(done, fraction);
                if !matches!(cancelled, Ok(true)) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            if over {
                break;
            }
        }
        let results = workers
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (results, cancelled)
    });
    if !cancelled? {
        return Err(error::simulation(&Error::Cancelled));
    }
    results.sort_unstable_by_key(|(index, _)| *index);
    // What failed comes before what was stopped for it.
    let failures = results.iter().filter_map(|(_, result)| match result {
        Ok(_) | Err(Error::Controller(_)) => None,
        Err(error) => Some(error),
    });
    if let Some(error) = failures.min_by_key(|error| matches!(error, Error::Cancelled)) {
        return Err(error::simulation(error));
    }
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// How many threads: all cores where nothing is said.
fn cores(threads: Option<usize>) -> PyResult<usize> {
    match threads {
        Some(0) => Err(PyValueError::new_err("threads must be 1 or more, not 0")),
        Some(threads) => Ok(threads),
        None => Ok(thread::available_parallelism().map_or(1, NonZeroUsize::get)),
    }
}

/// Whether a controller of it is Python.
fn is_python(scenario: &Scenario) -> bool {
    let mut flows = scenario.flows.iter();
    flows.any(|flow| controller::is_python(&flow.scheme))
}

fn parse_all(texts: &[String]) -> PyResult<Vec<Scenario>> {
    texts.iter().map(|text| parse(text)).collect()
}

/// Where logs go, if anywhere.
fn logs(
    qlog: Option<(PathBuf, String, Vec<String>)>,
    scenarios: &[Scenario],
) -> PyResult<Option<Logs>> {
    let Some((folder, format, channels)) = qlog else {
        return Ok(None);
    };
    if channels.len() != scenarios.len() {
        return Err(error::value("qlog: a channel's name for each run"));
    }
    Logs::new(folder, &format, channels).map(Some)
}

pub(crate) fn parse(text: &str) -> PyResult<Scenario> {
    Scenario::from_json(text).map_err(|error| error::simulation(&error))
}

/// Whether a progress callback wants the work to go on: everything but `False` does.
fn goes_on(answer: Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(answer.is_none() || answer.is_truthy()?)
}
