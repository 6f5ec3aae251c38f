//! Settings of a command's output, decided once: how much to print, and whether a person is
//! watching.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::plain;

/// Options that every verb takes.
#[derive(clap::Args)]
pub struct Args {
    /// Report more about the work.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// Output of a command: results on standard output, everything else on standard error.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    quiet: bool,
    verbose: bool,
    progress: bool,
    to_the_end: bool,
}

impl Ui {
    /// The settings from the options and the terminal.
    pub fn new(args: &Args) -> Self {
        Ui {
            quiet: args.quiet,
            verbose: args.verbose,
            progress: !args.quiet && io::stderr().is_terminal(),
            to_the_end: false,
        }
    }

    /// For work that leaves files: it goes on after its output has lost its reader.
    pub fn to_the_end(self) -> Self {
        Ui {
            to_the_end: true,
            ..self
        }
    }

    /// Whether to draw progress bars: only on a terminal.
    pub fn progress(&self) -> bool {
        self.progress
    }

    /// Whether to print only results and errors.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a line for people, unless --quiet.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            plain::warn(text);
        }
    }

    /// Prints a line of detail, with `-v` only.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            plain::warn(text);
        }
    }

    /// A line of the result, for a person.
    pub fn line(&self, text: impl Display) -> Result<(), Failure> {
        self.result(&plain::line(text))
    }

    /// A line of the result, for a program.
    pub fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.result(&plain::json(value))
    }

    fn result(&self, line: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            Err(error) if self.to_the_end && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|error| Failure::output(&error)),
        }
    }
}
