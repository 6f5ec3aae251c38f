//! What becomes the program: a process of its own that gives up what the program must not have, and then
//! is the program. Between a fork and an exec in one process, nothing of this could be done safely.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, User, getppid, initgroups, setgid, setuid};
use verus_emu::resolver::CONFIGURATION;

use crate::failure::Failure;
use crate::plain;

/// For `shell` itself.
#[derive(clap::Args)]
pub struct Args {
    /// The process that started this one.
    #[arg(long)]
    parent: i32,
    /// Become this user.
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// And this group, and the user's others.
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
    /// Have this for the resolver's configuration.
    #[arg(long)]
    resolver: Option<PathBuf>,
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Becomes the program.
///
/// # Errors
/// If it cannot.
pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(resolver) = &args.resolver
        && let Err(error) = cover_configuration(resolver)
    {
        plain::warn(format_args!(
            "verus: the program may not resolve names: {CONFIGURATION}: {error}"
        ));
    }
    let user = match (args.uid, args.gid) {
        (Some(uid), Some(gid)) => become_user(Uid::from_raw(uid), Gid::from_raw(gid))
            .map_err(|error| Failure::own(format_args!("cannot become user {uid}: {error}")))?,
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
    // After giving up rights, which takes it back.
    set_pdeathsig(Signal::SIGHUP).map_err(|error| Failure::own(error.to_string()))?;
    if getppid().as_raw() != args.parent {
        return Err(Failure::own("whoever started this has ended"));
    }
    let error = command.exec();
    let message = format!("cannot run `{}`: {error}", program.display());
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(message),
        _ => Failure::not_runnable(message),
    })
}

/// In a mount namespace of its own, so that no other process sees it and nothing is left of it.
fn cover_configuration(resolver: &Path) -> nix::Result<()> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        NOTHING,
        "/",
        NOTHING,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        NOTHING,
    )?;
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
