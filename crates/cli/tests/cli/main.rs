//! The tests of verus-cli from outside. One program: each further one would link the crate again, and wait by itself.

mod common;
#[cfg(target_os = "linux")]
mod hostile_words;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod kernel;
mod probe_common;
mod probe_errors;
mod probe_hostile;
#[cfg(target_os = "linux")]
mod probe_paths;
mod probe_record;
mod probe_verdict;
mod serve_access;
#[cfg(target_os = "linux")]
mod shell;
mod transfer_common;
mod transfer_errors;
mod transfer_kill;
