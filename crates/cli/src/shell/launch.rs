//! The process that becomes the program: it gives up the rights that the program must not have, and
//! then executes it. A separate process is needed, because little is safe between a fork and an
//! exec.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{Gid, Pid, Uid, User, initgroups, setgid, setpgid, setuid};
use rustix::event::{PollFd, PollFlags, poll};
use verus_emu::resolver::CONFIGURATION;

use crate::failure::Failure;
use crate::plain;
use crate::signals::{self, Signals};

/// For `shell` itself.
#[derive(clap::Args)]
pub struct Args {
    /// The process that started this one.
    #[arg(long)]
    parent: i32,
    /// Become this user.
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// Take this group, and the user's others.
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
    /// Use this file as the resolver's configuration.
    #[arg(long)]
    resolver: Option<PathBuf>,
    /// Be the first process of a separate PID namespace: the program is another, and processes that
    /// it leaves running end with it.
    #[arg(long)]
    apart: bool,
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Becomes the program.
pub fn run(args: &Args) -> Result<(), Failure> {
    // The parent's number in this namespace, which a separate one does not show.
    let parent = parent().map_err(|error| Failure::launcher(error.to_string()))?;
    if args.apart
        && let Err(error) = cover_processes()
    {
        plain::warn(format_args!(
            "verus: the program sees the host's processes: /proc: {error}"
        ));
    }
    if let Some(resolver) = &args.resolver
        && let Err(error) = cover_configuration(resolver)
    {
        plain::warn(format_args!(
            "verus: the program may not resolve names: {CONFIGURATION}: {error}"
        ));
    }
    let user = match (args.uid, args.gid) {
        (Some(uid), Some(gid)) => {
            become_user(Uid::from_raw(uid), Gid::from_raw(gid)).map_err(|error| {
                Failure::launcher(format_args!("cannot become user {uid}: {error}"))
            })?
        }
        _ => None,
    };
    let fallback = || match &user {
        Some(user) => user.shell.clone().into(),
        None => std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()),
    };
    let mut words = args.command.iter().cloned();
    let program = words.next().unwrap_or_else(fallback);
    let mut command = Command::new(&program);
    command.args(words);
    if let Some(user) = &user {
        command
            .env("HOME", &user.dir)
            .env("SHELL", &user.shell)
            .env("USER", &user.name)
            .env("LOGNAME", &user.name);
    }
    // Set after giving up rights, which resets it.
    set_pdeathsig(Signal::SIGHUP).map_err(|error| Failure::launcher(error.to_string()))?;
    if parent != args.parent {
        return Err(Failure::launcher("whoever started this has ended"));
    }
    let error = if args.apart {
        match attend(&mut command) {
            Ok(code) => std::process::exit(code),
            Err(error) => error,
        }
    } else {
        command.exec()
    };
    let message = format!("cannot run `{}`: {error}", program.display());
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(message),
        _ => Failure::not_runnable(message),
    })
}

/// The number of the parent process in this process's `/proc`.
fn parent() -> io::Result<i32> {
    let parent = signals::status_of("self", "PPid")?;
    parent.parse().map_err(io::Error::other)
}

/// Starts the program and passes signals on to it until it has ended. Returns its exit code, as a
/// shell would. As the first process of a PID namespace, also waits for orphaned processes
/// (pid_namespaces(7)).
fn attend(command: &mut Command) -> io::Result<i32> {
    let mut signals = Signals::not_ignored()?;
    let program = i32::try_from(command.spawn()?.id()).map_err(io::Error::other)?;
    let program = Pid::from_raw(program);
    // A signal from the keyboard to the program's group must not be passed on a second time.
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    thread::Builder::new().spawn(move || {
        loop {
            let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
            let signal = signals
                .take()
                .and_then(|number| Signal::try_from(number).ok());
            // It may have ended.
            let _ = signal.map(|signal| kill(program, signal));
        }
    })?;
    loop {
        match wait() {
            Ok(WaitStatus::Exited(id, code)) if id == program => return Ok(code),
            Ok(WaitStatus::Signaled(id, signal, _)) if id == program => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes a separate mount namespace: other processes do not see mounts made here, and they end with
/// it.
fn own_mounts() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        NOTHING,
        "/",
        NOTHING,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        NOTHING,
    )
}

const NOTHING: Option<&str> = None;

/// Makes `/proc` show only the processes of this PID namespace.
fn cover_processes() -> nix::Result<()> {
    own_mounts()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, NOTHING)
}

/// Mounts `resolver` over the resolver's configuration.
fn cover_configuration(resolver: &Path) -> nix::Result<()> {
    own_mounts()?;
    mount(
        Some(resolver),
        CONFIGURATION,
        NOTHING,
        MsFlags::MS_BIND,
        NOTHING,
    )
}

fn become_user(uid: Uid, gid: Gid) -> nix::Result<Option<User>> {
    let user = User::from_uid(uid)?;
    match &user {
        Some(user) => {
            let name = CString::new(user.name.as_str()).map_err(|_| nix::Error::EINVAL)?;
            initgroups(&name, gid)?;
        }
        None => nix::unistd::setgroups(&[gid])?,
    }
    setgid(gid)?;
    setuid(uid)?;
    Ok(user)
}
