//! What a command may print, decided once: how much is wanted, and whether a person is watching.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Options that every verb takes.
#[derive(clap::Args)]
pub struct Args {
    /// Say more.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// Where words go: results on standard output, everything else on standard error.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    quiet: bool,
    verbose: bool,
    progress: bool,
}

impl Ui {
    /// What the options and the terminal allow.
    pub fn new(args: &Args) -> Self {
        Ui {
            quiet: args.quiet,
            verbose: args.verbose,
            progress: !args.quiet && io::stderr().is_terminal(),
        }
    }

    /// Whether to draw what overwrites itself: only on a terminal.
    pub fn progress(&self) -> bool {
        self.progress
    }

    /// Whether only results and errors are wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Tells what a user wants to know and a program does not.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Tells what only `-v` wants to know.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// A line of the result.
    ///
    /// # Errors
    /// If standard output is closed or cannot be written.
    pub fn line(&self, text: impl Display) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error))
    }
}
