//! A log of each flow of simulations (qlog), and a capture of each run.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;
use verus_capture::simulated::Capture;
use verus_core::Time;
use verus_measure::qlog::{self, Dialect, Qlog, Subject};
use verus_sim::{Error, Outcome, Plan, Scenario, Tap};

use crate::{error, lock};

/// Where the logs and captures of runs go.
pub(crate) struct Logs {
    /// A folder for qlogs, their words, and the name of each run's channel in them.
    qlog: Option<(PathBuf, Dialect, Vec<String>)>,
    /// A folder for captures, and the same names.
    captures: Option<(PathBuf, Vec<String>)>,
    /// The first that could not be written, which ends all runs.
    failed: Mutex<Option<(PathBuf, io::Error)>>,
}

impl Logs {
    pub(crate) fn new(
        qlog: Option<(PathBuf, String, Vec<String>)>,
        captures: Option<(PathBuf, Vec<String>)>,
    ) -> PyResult<Self> {
        let qlog = qlog.map(|(folder, format, channels)| {
            let dialect = format.parse().map_err(error::value)?;
            Ok::<_, PyErr>((folder, dialect, channels))
        });
        Ok(Logs {
            qlog: qlog.transpose()?,
            captures,
            failed: Mutex::new(None),
        })
    }

    pub(crate) fn run(
        &self,
        index: usize,
        scenario: &Scenario,
        progress: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Outcome, Error> {
        let plan = scenario.plan()?;
        let mut paths = Vec::new();
        let ran = self.run_plan(index, scenario, &plan, &mut paths, progress);
        if ran.is_err() {
            // Of a run that did not end well there is nothing.
            for path in &paths {
                let _ = fs::remove_file(path);
            }
        }
        ran
    }

    /// Runs the plan; `paths` gets each file that it writes.
    fn run_plan(
        &self,
        index: usize,
        scenario: &Scenario,
        plan: &Plan,
        paths: &mut Vec<PathBuf>,
        progress: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Outcome, Error> {
        let mut create = |path: PathBuf| {
            let file = File::create_new(&path).map_err(|error| self.fail(&path, error))?;
            paths.push(path);
            Ok::<_, Error>(BufWriter::with_capacity(1 << 16, file))
        };
        let mut logs = Vec::new();
        if let Some((folder, dialect, channels)) = &self.qlog {
            for (flow, spec) in scenario.flows.iter().enumerate() {
                let subject = Subject {
                    scheme: spec.scheme.clone(),
                    transport: "simulated",
                    channel: Some(channels[index].clone()),
                    seed: Some(scenario.seed),
                    flow: flow as u32,
                    is_server: true,
                };
                let file = create(folder.join(qlog::file_name(&subject, *dialect)))?;
                logs.push(Qlog::new(file, *dialect, qlog::LIMIT, &subject, Time::ZERO));
            }
        }
        let mut tap = None;
        if let Some((folder, channels)) = &self.captures {
            let parts = [
                scenario.flows[0].scheme.clone(),
                channels[index].clone(),
                format!("seed{}", scenario.seed),
            ];
            let path = folder.join(format!("{}.pcapng", qlog::file_stem(&parts)));
            let capture = Capture::new(create(path.clone())?);
            let capture = capture.map_err(|error| self.fail(&path, error))?;
            tap = Some(Box::new(capture) as Box<dyn Tap>);
        }
        let (outcome, logged, captured) = plan.run_logged(logs, tap, progress)?;
        let ends = logged.into_iter().map(|end| end.map(drop));
        // The capture's file, if there is one, is the last.
        for (end, path) in ends.chain([captured]).zip(&*paths) {
            end.map_err(|error| self.fail(path, error))?;
        }
        Ok(outcome)
    }

    /// Records the log that cannot be written, and ends the run.
    fn fail(&self, path: &std::path::Path, error: io::Error) -> Error {
        let mut failed = lock(&self.failed);
        failed.get_or_insert((path.to_owned(), error));
        Error::Cancelled
    }

    /// Why runs were ended, if it was for their logs.
    pub(crate) fn failure(&self) -> Option<PyErr> {
        let mut failed = lock(&self.failed);
        let (path, cause) = failed.take()?;
        let message = format!("`{}` cannot be written ({cause})", path.display());
        Some(error::os(&cause, message))
    }
}
