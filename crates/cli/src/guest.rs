//! Commands on virtual time: `shell --virtual` and `compare --virtual`.
//!
//! ```text
//!  this program (`host`) ── user-mode Linux, a process of the user
//!        │                        └── this program as its first process (`first`)
//!        │                                  └── the command
//!        └── a folder: what to run; output, the clock and signals; the exit code
//! ```
//!
//! The guest's clock stands still while anything in it computes, and jumps to the next timer when
//! everything waits (`time-travel=inf-cpu`). So a busy machine changes nothing. The guest has this
//! machine's files with the user's rights, and nothing else of it.

pub mod first;
pub mod host;
mod kernel;
mod launch;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::ui::Ui;

pub use kernel::Kernel;

/// For `verus virtual` and for itself.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Run a command on virtual time, without an emulated link.
    Run(RunArgs),
    /// Become the guest.
    Launch(launch::Args),
    /// Be the guest's first process.
    First {
        /// The folder that is shared with the host.
        folder: PathBuf,
        /// Words that the kernel adds.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _kernel: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct RunArgs {
    /// Seeds the guest's random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the inner verb.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    match &args.verb {
        Verb::Run(args) => host::run(
            &Kernel::find()?,
            host::Task {
                seed: args.seed,
                ..host::Task::of(args.command.clone())
            },
            ui,
        ),
        Verb::Launch(args) => launch::run(args),
        Verb::First { folder, .. } => first::run(folder),
    }
}
