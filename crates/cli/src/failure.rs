//! Failure of a command: one message, and an exit code that tells the kind of failure.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::{help, plain};

/// A command that failed. The message names the attempted operation, and where it failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: Option<String>,
    /// Lines below the message.
    more: Vec<String>,
}

impl Failure {
    fn saying(code: u8, message: impl Display) -> Self {
        let message = Some(message.to_string());
        Failure {
            message,
            ..Failure::passed_on(code)
        }
    }

    /// It ran and failed (network, peer, transfer): exit code 1.
    pub fn run(message: impl Display) -> Self {
        Failure::saying(1, message)
    }

    /// Bad usage, input or privilege: exit code 2.
    pub fn usage(message: impl Display) -> Self {
        Failure::saying(2, message)
    }

    /// It ran, but exceeded a bound for valid results: exit code 3.
    pub fn missed(message: impl Display) -> Self {
        Failure::saying(3, message)
    }

    /// Another program's exit code, passed on.
    pub fn passed_on(code: u8) -> Self {
        Failure {
            code,
            message: None,
            more: Vec::new(),
        }
    }

    /// The launcher of another program failed itself: exit code 125, as from `env` and `timeout`.
    /// Codes 126 and 127 follow the same convention.
    pub fn launcher(message: impl Display) -> Self {
        Failure::saying(125, message)
    }

    /// The other program cannot be run: exit code 126.
    pub fn not_runnable(message: impl Display) -> Self {
        Failure::saying(126, message)
    }

    /// There is no such program: exit code 127.
    pub fn not_found(message: impl Display) -> Self {
        Failure::saying(127, message)
    }

    /// Stopped by a signal: exit code 128 + its number, as in shells (SIGINT 130, SIGTERM 143).
    /// There is no message to print.
    pub fn signal(number: i32) -> Self {
        Failure::passed_on(u8::try_from(128 + number).unwrap_or(130))
    }

    /// The reader of our output has closed it. Silence, and exit code 0, as with the verbs of the
    /// lab.
    pub fn closed_pipe() -> Self {
        Failure::passed_on(0)
    }

    /// Adds lines below the message, which itself is one line.
    pub fn listing(mut self, more: Vec<String>) -> Self {
        self.more = more;
        self
    }

    /// Output could not be written: a closed pipe is silent, any other error is reported.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::closed_pipe()
        } else {
            Failure::run(format_args!("cannot write the output: {error}"))
        }
    }

    /// The message alone, if there is one.
    pub fn into_message(self) -> String {
        self.message.unwrap_or_default()
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

/// Reports the argument parser's result: help and version on standard output with success, a
/// mistake on standard error with exit code 2.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    let requested_output = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if !requested_output.contains(&error.kind()) {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        return Failure::usage(help::mistake(error, words)).report();
    }
    match error.print() {
        Err(broken) if broken.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}
