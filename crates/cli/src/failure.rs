//! How a command ends when it does not end well: one message, and an exit code that says of what
//! kind the trouble was.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::{help, plain};

/// A command that failed. The message names what was attempted, and where.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: Option<String>,
    /// Lines below the message.
    more: Vec<String>,
}

impl Failure {
    /// It ran and failed (network, peer, transfer): exit code 1.
    pub fn run(message: impl Display) -> Self {
        Failure {
            code: 1,
            message: Some(message.to_string()),
            more: Vec::new(),
        }
    }

    /// Bad usage, input or privilege: exit code 2.
    pub fn usage(message: impl Display) -> Self {
        Failure {
            code: 2,
            message: Some(message.to_string()),
            more: Vec::new(),
        }
    }

    /// It ran, but a bound of what counts as valid was missed: exit code 3.
    pub fn missed(message: impl Display) -> Self {
        Failure {
            code: 3,
            message: Some(message.to_string()),
            more: Vec::new(),
        }
    }

    /// Another program's exit code, passed on.
    pub fn passed_on(code: u8) -> Self {
        Failure {
            code,
            message: None,
            more: Vec::new(),
        }
    }

    /// What should have run another program failed itself: exit code 125, as `env` and `timeout`
    /// have it. So with the next two.
    pub fn own(message: impl Display) -> Self {
        Failure {
            code: 125,
            message: Some(message.to_string()),
            more: Vec::new(),
        }
    }

    /// The other program cannot be run: exit code 126.
    pub fn not_runnable(message: impl Display) -> Self {
        Failure {
            code: 126,
            message: Some(message.to_string()),
            more: Vec::new(),
        }
    }

    /// There is no such program: exit code 127.
    pub fn not_found(message: impl Display) -> Self {
        Failure {
            code: 127,
            message: Some(message.to_string()),
            more: Vec::new(),
        }
    }

    /// Stopped by a signal: exit code 128 + its number, as shells have it (SIGINT 130, SIGTERM
    /// 143). What there was to say has been said.
    pub fn signal(number: i32) -> Self {
        Failure {
            code: u8::try_from(128 + number).unwrap_or(130),
            message: None,
            more: Vec::new(),
        }
    }

    /// The reader of our output has closed it, and seen enough. Silence, and exit code 0, as
    /// with the verbs of the lab.
    pub fn closed_pipe() -> Self {
        Failure {
            code: 0,
            message: None,
            more: Vec::new(),
        }
    }

    /// With these lines below the message: a message itself is one line.
    pub fn listing(mut self, more: Vec<String>) -> Self {
        self.more = more;
        self
    }

    /// Output could not be written: a closed pipe is silent, anything else is told.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::closed_pipe()
        } else {
            Failure::run(format_args!("cannot write the output: {error}"))
        }
    }

    /// Prints the message on standard error and yields the exit code.
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            plain::warn(format_args!("verus: {message}"));
            for line in self.more {
                plain::warn(format_args!("  {line}"));
            }
        }
        ExitCode::from(self.code)
    }
}

/// What the argument parser has to say: help and version on standard output with success, a mistake
/// on standard error with exit code 2.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    let asked = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if !asked.contains(&error.kind()) {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        return Failure::usage(help::mistake(error, words)).report();
    }
    match error.print() {
        Err(broken) if broken.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}
