//! The process that becomes user-mode Linux. A separate process is needed, because little is safe
//! between a fork and an exec.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::personality::{self, Persona};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setsid};

use crate::failure::Failure;

/// For `guest run`.
#[derive(clap::Args)]
pub struct Args {
    /// The process that started this one.
    #[arg(long)]
    parent: i32,
    /// The guest's number among those that run.
    #[arg(long)]
    number: usize,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the guest, which ends with its parent, has the same addresses each time, and receives no
/// signal from the keyboard.
pub fn run(args: &Args) -> Result<(), Failure> {
    let failed = |error: nix::Error| Failure::launcher(format_args!("the guest: {error}"));
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    if getppid() != Pid::from_raw(args.parent) {
        return Err(Failure::signal(Signal::SIGKILL as i32));
    }
    setsid().map_err(failed)?;
    let persona = personality::get().map_err(failed)?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE).map_err(failed)?;
    // Where this is not allowed, the guest is slower.
    let _ = keep_to_one_processor(args.number);
    let (program, words) = args.command.split_first().expect("clap takes at least one");
    let error = Command::new(program).args(words).exec();
    Err(Failure::launcher(format_args!(
        "the guest kernel `{}` cannot be run: {error}",
        program.to_string_lossy()
    )))
}

/// Keeps the guest to one of the processors that this process may use. The guest kernel and its
/// processes take turns, and each turn costs several times as much between two processors.
fn keep_to_one_processor(number: usize) -> nix::Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let processor = (0..CpuSet::count())
        .filter(|&processor| allowed.is_set(processor) == Ok(true))
        .cycle()
        .nth(number)
        .ok_or(nix::Error::EINVAL)?;
    let mut kept = CpuSet::new();
    kept.set(processor)?;
    sched_setaffinity(this, &kept)
}
