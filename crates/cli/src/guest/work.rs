//! The folder that host and guest share: names and contents of its files.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The work, as JSON.
pub const WORK: &str = "work.json";
/// The command's standard output and standard error.
pub const OUTPUTS: [&str; 2] = ["stdout", "stderr"];
/// The guest's time since its boot: eight bytes, ns, which change as long as its clock advances.
pub const CLOCK: &str = "clock";
/// Prefix of the name of a file that asks for a signal; its number follows.
pub const SIGNAL: &str = "signal-";
/// The command's exit code, once it has ended.
pub const STATUS: &str = "status";
/// The reason why the guest failed.
pub const FAILURE: &str = "failure";

/// Signals that are passed on.
pub const SIGNALS: [i32; 4] = [
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGQUIT,
    signal_hook::consts::SIGTERM,
];

/// The command, its surroundings, and its servers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Work {
    /// The command.
    pub arguments: Vec<OsString>,
    /// Its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub folder: PathBuf,
    /// The file that is its standard input; nothing if there is none.
    pub input: Option<PathBuf>,
    /// Its file mode creation mask.
    pub umask: u32,
    /// Command lines that run beside it, from before it begins until it has ended.
    pub servers: Vec<OsString>,
    /// The user and the group of these.
    pub user: (u32, u32),
}
