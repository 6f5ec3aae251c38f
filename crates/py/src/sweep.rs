//! Many simulations on several threads: the one engine behind every call that runs some.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use verus_sim::{Error, Scenario};

use crate::{controller, error, lock};

/// How often a waiting caller checks for Ctrl-C and reports its progress: often enough to feel
/// immediate, rarely enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The index of a scenario, and its outcome.
pub(crate) type Ended<T> = (usize, Result<T, Error>);

/// Runs the scenario at an index. Reports the share that is done to a callback, which returns
/// whether to go on.
type Job<T> =
    dyn Fn(usize, &Scenario, &mut dyn FnMut(f64) -> bool) -> Result<T, Error> + Send + Sync;

/// Runs under way on threads that last as long as they do.
pub(crate) struct Sweep<T> {
    work: Arc<Work<T>>,
    ended: Mutex<mpsc::Receiver<Ended<T>>>,
    workers: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// State shared by its threads.
struct Work<T> {
    scenarios: Vec<Scenario>,
    run: Box<Job<T>>,
    /// Which to run, those whose controllers are Python apart: one thread runs these, one after another.
    python: Mutex<Vec<usize>>,
    rust: Mutex<VecDeque<usize>>,
    /// The thread that runs these, as Python counts it; 0 while none does.
    python_thread: AtomicU64,
    /// Whether a controller of Python began these runs.
    has_turn: bool,
    stop: AtomicBool,
    done: AtomicUsize,
    /// The share of its present run that each thread has done: the bits of an `f64`.
    shares: Vec<AtomicU64>,
}

impl<T: Send> Work<T> {
    /// A thread's work.
    fn run_all(&self, share: &AtomicU64, ended: &mpsc::Sender<Ended<T>>) {
        let run_one = |index: usize| {
            let outcome = if self.is_stopped() {
                Err(Error::Cancelled)
            } else {
                (self.run)(index, &self.scenarios[index], &mut |fraction| {
                    share.store(fraction.to_bits(), Ordering::Relaxed);
                    !self.is_stopped()
                })
            };
            share.store(0, Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Relaxed);
            // Nobody receives it once they are stopped.
            let _ = ended.send((index, outcome));
        };
        let python = std::mem::take(&mut *lock(&self.python));
        controller::in_one_interpreter(&python, self.has_turn, &self.python_thread, run_one);
        loop {
            let next = lock(&self.rust).pop_front();
            match next {
                Some(index) => run_one(index),
                None => return,
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Sweep<T> {
    /// Begins to run scenarios on `threads` cores (all of them if absent).
    ///
    /// # Errors
    /// If `threads` is zero, or that many cannot be started.
    pub(crate) fn start(
        scenarios: Vec<Scenario>,
        threads: Option<usize>,
        run: impl Fn(usize, &Scenario, &mut dyn FnMut(f64) -> bool) -> Result<T, Error>
        + Send
        + Sync
        + 'static,
    ) -> PyResult<Self> {
        let threads = match threads {
            Some(0) => Err(PyValueError::new_err("threads must be 1 or more, not 0")),
            Some(threads) => Ok(threads),
            None => Ok(thread::available_parallelism().map_or(1, NonZeroUsize::get)),
        }?;
        let threads = threads.min(scenarios.len());
        let (python, rust): (Vec<usize>, Vec<usize>) =
            (0..scenarios.len()).partition(|&index| is_python(&scenarios[index]));
        let work = Arc::new(Work {
            scenarios,
            run: Box::new(run),
            python: Mutex::new(python),
            rust: Mutex::new(rust.into()),
            python_thread: AtomicU64::new(0),
            has_turn: controller::has_turn(),
            stop: AtomicBool::new(false),
            done: AtomicUsize::new(0),
            shares: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        });
        let (sender, ended) = mpsc::channel();
        let worker = |thread: usize| {
            let (work, sender) = (Arc::clone(&work), sender.clone());
            thread::Builder::new().spawn(move || work.run_all(&work.shares[thread], &sender))
        };
        let started: io::Result<Vec<_>> = (0..threads).map(worker).collect();
        Ok(Sweep {
            workers: Mutex::new(started.map_err(|error| {
                work.stop.store(true, Ordering::Relaxed);
                PyRuntimeError::new_err(format!("cannot start threads: {error}"))
            })?),
            work,
            ended: Mutex::new(ended),
        })
    }

    /// Those that have ended and were not taken yet. It waits for one, but no longer than `timeout`.
    ///
    /// # Panics
    /// If one of them panicked, once all threads have ended.
    pub(crate) fn take(&self, timeout: Duration) -> Vec<Ended<T>> {
        let ended = lock(&self.ended);
        let first = ended.recv_timeout(timeout);
        if matches!(first, Err(RecvTimeoutError::Disconnected)) {
            self.join();
        }
        first.into_iter().chain(ended.try_iter()).collect()
    }

    /// All outcomes, in the order of the scenarios. Meanwhile this thread listens for signals,
    /// which only the calling thread receives. `report` gets how many are done and the share of all
    /// work, and returns whether to go on.
    ///
    /// # Errors
    /// The first error of one of them, which ends all, except for its controller's errors.
    pub(crate) fn wait(
        self,
        py: Python<'_>,
        report: impl Fn(usize, f64) -> PyResult<bool>,
    ) -> PyResult<Vec<Result<T, Error>>> {
        let mut outcomes: Vec<Option<Result<T, Error>>> = Vec::new();
        outcomes.resize_with(self.work.scenarios.len(), || None);
        let mut remaining = outcomes.len();
        let mut failed = Ok(());
        while remaining > 0 && failed.is_ok() {
            for (index, outcome) in py.detach(|| self.take(LOOK_EVERY)) {
                remaining -= 1;
                match outcome {
                    Ok(_) | Err(Error::Controller(_)) => outcomes[index] = Some(outcome),
                    Err(error) => failed = failed.and(Err(error::simulation(&error))),
                }
            }
            let goes_on = py.check_signals().and_then(|()| {
                controller::watch(py);
                if self.work.has_turn {
                    // The controller's thread runs no Python while it waits here. This call raises a pending interrupt.
                    controller::thread_number(py)?;
                }
                report(outcomes.len() - remaining, self.fraction())
            });
            failed = failed.and(goes_on.and_then(|goes_on| match goes_on {
                true => Ok(()),
                false => Err(error::simulation(&Error::Cancelled)),
            }));
        }
        match &failed {
            Ok(()) => py.detach(|| self.join()),
            Err(_) => self.stop(py),
        }
        failed?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.expect("none is left"))
            .collect())
    }

    /// The share of all the work that is done.
    pub(crate) fn fraction(&self) -> f64 {
        let shares = self.work.shares.iter();
        let under_way: f64 = shares
            .map(|share| f64::from_bits(share.load(Ordering::Relaxed)))
            .sum();
        let done = self.work.done.load(Ordering::Relaxed) as f64 + under_way;
        (done / self.work.scenarios.len().max(1) as f64).min(1.0)
    }

    /// Ends the runs under way, with a call of a controller of Python, and waits until they have ended.
    pub(crate) fn stop(&self, py: Python<'_>) {
        self.work.stop.store(true, Ordering::Relaxed);
        while !py.detach(|| self.end_within(LOOK_EVERY)) {
            controller::end_call(py, self.work.python_thread.load(Ordering::Relaxed));
        }
        py.detach(|| self.join());
    }

    /// Waits until all threads have ended, but no longer than `span`; returns whether they have.
    fn end_within(&self, span: Duration) -> bool {
        const STEP: Duration = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while !lock(&self.workers)
            .iter()
            .all(thread::JoinHandle::is_finished)
        {
            if waited >= span {
                return false;
            }
            thread::sleep(STEP);
            waited += STEP;
        }
        true
    }

    fn join(&self) {
        let workers = std::mem::take(&mut *lock(&self.workers));
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Whether a controller of it is Python.
fn is_python(scenario: &Scenario) -> bool {
    let mut flows = scenario.flows.iter();
    flows.any(|flow| controller::is_python(&flow.scheme))
}
