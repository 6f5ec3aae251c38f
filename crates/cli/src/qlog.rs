//! `--qlog`: logs of the flows sent from here, in a folder that gets its name when it is complete.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use verus_core::Time;
use verus_measure::qlog::{Dialect, LIMIT, Qlog, Subject, Written, file_name};

use crate::draft::DraftFolder;
use crate::failure::Failure;
use crate::folder;
use crate::ui::Ui;

/// Place and format of logs.
#[derive(clap::Args)]
pub struct QlogArgs {
    /// Write a qlog of each flow sent from here into this folder, at most 64 MiB each (docs/qlog.md).
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// Format: the current drafts (draft), or the one that the viewer qvis opens (0.3).
    #[arg(long, value_name = "FORMAT", requires = "qlog", default_value = "draft",
        value_parser = clap::builder::PossibleValuesParser::new(["draft", "0.3"]))]
    qlog_format: String,
}

/// The folder, while it is written.
#[derive(Debug)]
pub struct Logs {
    target: PathBuf,
    draft: DraftFolder,
    dialect: Dialect,
}

impl QlogArgs {
    /// The folder, if requested.
    pub fn open(&self) -> Result<Option<Logs>, Failure> {
        let Some(target) = &self.qlog else {
            return Ok(None);
        };
        folder::check_empty("--qlog", target)?;
        Ok(Some(Logs {
            target: target.clone(),
            draft: DraftFolder::create(target).map_err(|error| failed(target, &error))?,
            dialect: self.qlog_format.parse().map_err(Failure::usage)?,
        }))
    }
}

impl Logs {
    /// A log of this flow, which begins now.
    pub fn log(&mut self, subject: &Subject, now: Time) -> Result<Qlog, Failure> {
        let file = self.draft.file(&file_name(subject, self.dialect));
        let file = file.map_err(|error| failed(&self.target, &error))?;
        let file = BufWriter::new(file);
        Ok(Qlog::new(file, self.dialect, LIMIT, subject, now))
    }

    /// Publishes the folder, after all logs have ended as described.
    pub fn publish(
        self,
        ends: io::Result<impl IntoIterator<Item = Written>>,
        ui: &Ui,
    ) -> Result<(), Failure> {
        let written = ends.and_then(|ends| {
            self.draft.publish(|_| Ok(Vec::new()))?;
            Ok(ends)
        });
        let written = written.map_err(|error| failed(&self.target, &error))?;
        let cut = written.into_iter().any(|end| end.cut);
        let place = self.target.display();
        ui.note(format_args!(
            "qlog in `{place}`{}",
            if cut { ", cut off at its limit" } else { "" }
        ));
        Ok(())
    }
}

fn failed(target: &Path, error: &io::Error) -> Failure {
    Failure::run(format_args!("--qlog: `{}`: {error}", target.display()))
}
