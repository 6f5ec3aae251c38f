//! A log of each flow of simulations: qlog.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;
use verus_core::Time;
use verus_measure::qlog::{self, Dialect, Qlog, Subject};
use verus_sim::{Error, Outcome, Scenario};

use crate::{error, lock};

/// Where the logs of runs go, and in which words: qlog.
pub(crate) struct Logs {
    folder: PathBuf,
    dialect: Dialect,
    /// The name of each run's channel in them.
    channels: Vec<String>,
    /// The first that could not be written, which ends all runs.
    failed: Mutex<Option<(PathBuf, io::Error)>>,
}

impl Logs {
    pub(crate) fn new(folder: PathBuf, format: &str, channels: Vec<String>) -> PyResult<Self> {
        Ok(Logs {
            folder,
            dialect: format.parse().map_err(error::value)?,
            channels,
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
