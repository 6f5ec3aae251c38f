//! The program `verus-endpoint`: the verbs that a server or a phone needs, in one binary.
//!
//! `verus` hands these verbs to this program unchanged, so the same words work either way. Each
//! verb is a module with its arguments and a `run`. They share three modules: how they end
//! (`failure`), when they may print (`ui`) and which text is safe to print (`plain`).

mod capture;
mod complete;
mod draft;
#[cfg(target_os = "linux")]
mod emulate;
mod failure;
mod files;
mod folder;
#[cfg(target_os = "linux")]
mod guest;
mod help;
#[cfg(target_os = "linux")]
mod kernel;
mod log;
mod metrics;
mod plain;
mod probe;
mod progress;
mod qlog;
mod receive;
mod scaled;
mod scheme;
mod send;
mod serve;
#[cfg(target_os = "linux")]
mod shell;
mod signals;
mod table;
mod typed;
mod ui;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use verus_channel::queue;
use verus_senders::Registry;

use crate::ui::Ui;

/// Measure live paths, transfer files and emulate links, with low-delay congestion control.
#[derive(Parser)]
#[command(name = "verus", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    ui: ui::Args,
}

#[derive(Subcommand)]
enum Verb {
    Serve(serve::Args),
    Send(send::Args),
    Receive(receive::Args),
    Probe(probe::Args),
    #[cfg(target_os = "linux")]
    Shell(Box<shell::Args>),
    #[cfg(target_os = "linux")]
    Kernel(kernel::Args),
    /// Print how a command line may continue, for the completion of shells.
    #[command(hide = true)]
    Complete {
        /// The words after the program's name; the last may be empty.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Write manual pages into a folder.
    #[command(hide = true)]
    Man {
        /// The folder.
        folder: PathBuf,
    },
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Emulate(emulate::Args),
    #[cfg(target_os = "linux")]
    #[command(name = LAUNCH, hide = true)]
    Launch(shell::LaunchArgs),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Guest(guest::Args),
}

/// The program that `shell` starts, which then becomes the user's program.
#[cfg(target_os = "linux")]
const LAUNCH: &str = "shell-launch";

/// Runs the whole program with the schemes of `algorithms` and the queues of `queues`. Both ends of
/// a test must have an algorithm, since the sender of the data runs it.
///
/// # Panics
/// If schemes or queues were read before: `main` must do nothing else.
pub fn main_with(algorithms: Registry, queues: queue::Registry) -> ExitCode {
    algorithms
        .install()
        .expect("no scheme is read before the program begins");
    queues
        .install()
        .expect("no queue is read before the program begins");
    if let Err(error) = signals::outlive_file_limits() {
        plain::warn(format_args!("verus: {error}"));
    }
    let parsed = help::dressed(Cli::command())
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return failure::usage_error(&error),
    };
    let ui = Ui::new(&cli.ui);
    let ended = match cli.verb {
        Verb::Serve(args) => serve::run(&args, &ui),
        Verb::Send(args) => send::run(&args, &ui),
        Verb::Receive(args) => receive::run(&args, &ui),
        Verb::Probe(args) => probe::run(args, &ui),
        Verb::Complete { words } => complete::run(&words, &ui),
        Verb::Man { folder } => complete::man(&folder),
        #[cfg(target_os = "linux")]
        Verb::Shell(args) => shell::run(&args, &ui),
        #[cfg(target_os = "linux")]
        Verb::Kernel(args) => kernel::run(&args, &ui),
        #[cfg(target_os = "linux")]
        Verb::Emulate(args) => emulate::run(&args, &ui),
        #[cfg(target_os = "linux")]
        Verb::Launch(args) => shell::launch(&args),
        #[cfg(target_os = "linux")]
        Verb::Guest(args) => guest::run(&args, &ui),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
