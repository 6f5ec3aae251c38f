//! Simulations: one, or many on all cores.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rayon::prelude::*;
use verus_sim::{Error, Outcome, Scenario};

use crate::{convert, error};

/// How often a waiting caller looks for Ctrl-C and tells its progress: often enough to feel
/// immediate, seldom enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
    let scenario = parse(scenario_json)?;
    let mut raised = None;
    let outcome = py.detach(|| {
        verus_sim::run(&scenario, &mut |fraction| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(progress) => goes_on(progress.bind(py).call1((fraction,))?),
                    None => Ok(true),
                }
            });
            told.unwrap_or_else(|error| {
                raised = Some(error);
                false
            })
        })
    });
    match (raised, outcome) {
        (Some(raised), _) => Err(raised),
        (None, Ok(outcome)) => convert::outcome(py, outcome),
        (None, Err(error)) => Err(error::simulation(&error)),
    }
}

/// Runs scenarios on `threads` cores (all of them if absent); results in the order of the input,
/// whatever the order of work. Without `columns` nothing of them is an array, and NumPy is left alone.
#[pyfunction]
#[pyo3(signature = (scenarios, threads=None, progress=None, columns=true))]
pub(crate) fn simulate_many<'py>(
    py: Python<'py>,
    scenarios: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    columns: bool,
) -> PyResult<Bound<'py, PyList>> {
    let scenarios: Vec<Scenario> = scenarios
        .iter()
        .map(|text| parse(text))
        .collect::<PyResult<_>>()?;
    let outcomes = PyList::empty(py);
    if scenarios.is_empty() {
        return Ok(outcomes);
    }
    for outcome in on_all_cores(py, &scenarios, threads, progress, |outcome| outcome)? {
        outcomes.append(if columns {
            convert::outcome(py, outcome)?
        } else {
            convert::measured(py, &outcome)?
        })?;
    }
    Ok(outcomes)
}

/// Runs scenarios on `threads` cores (all of them if absent); `keep` says, on those cores, what is
/// kept of each.
pub(crate) fn on_all_cores<T: Send>(
    py: Python<'_>,
    scenarios: &[Scenario],
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    keep: impl Fn(Outcome) -> T + Send + Sync,
) -> PyResult<Vec<T>> {
    let threads = match threads {
        Some(0) => return Err(PyValueError::new_err("threads must be 1 or more, not 0")),
        Some(threads) => threads,
        None => thread::available_parallelism().map_or(1, NonZeroUsize::get),
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    py.detach(|| {
        run_all(&pool, scenarios, keep, |done, fraction| {
            Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(progress) => goes_on(progress.bind(py).call1((done, fraction))?),
                    None => Ok(true),
                }
            })
        })
    })
}

/// The work on the pool, while this thread waits, listens for signals (only the thread that called
/// hears them) and tells its progress: `told` hears how many are done and the share of all work.
fn run_all<T: Send>(
    pool: &rayon::ThreadPool,
    scenarios: &[Scenario],
    keep: impl Fn(Outcome) -> T + Send + Sync,
    mut told: impl FnMut(usize, f64) -> PyResult<bool>,
) -> PyResult<Vec<T>> {
    let stop = AtomicBool::new(false);
    let fractions = Mutex::new(vec![0.0; scenarios.len()]);
    let shares = || {
        fractions
            .lock()
            .expect("nothing panics while it holds this lock")
    };
    let run = |index: usize| {
        let outcome = verus_sim::run(&scenarios[index], &mut |fraction| {
            shares()[index] = fraction;
            !stop.load(Ordering::Relaxed)
        });
        // One that fails decides the result: the others need not go on.
        if outcome.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        shares()[index] = 1.0;
        outcome.map(&keep)
    };
    let (sender, ended) = mpsc::channel::<()>();
    let (results, cancelled) = thread::scope(|scope| {
        let workers = scope.spawn(move || {
            let _dropped_at_the_end = sender;
            pool.install(|| {
                (0..scenarios.len())
                    .into_par_iter()
                    .with_max_len(1)
                    .map(run)
                    .collect::<Vec<_>>()
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
    // What failed comes before what was stopped for it.
    let (mut outcomes, mut stopped) = (Vec::with_capacity(results.len()), None);
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(Error::Cancelled) => stopped = Some(Error::Cancelled),
            Err(error) => return Err(error::simulation(&error)),
        }
    }
    match stopped {
        Some(error) => Err(error::simulation(&error)),
        None => Ok(outcomes),
    }
}

pub(crate) fn parse(text: &str) -> PyResult<Scenario> {
    Scenario::from_json(text).map_err(|error| error::simulation(&error))
}

/// Whether a progress callback wants the work to go on: everything but `False` does.
fn goes_on(answer: Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(answer.is_none() || answer.is_truthy()?)
}
