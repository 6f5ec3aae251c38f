//! What the emulator may do here, and as whom the program runs.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, getegid, geteuid};
use rustix::fs::{Access, access};
use verus_emu::netlink;

use crate::failure::Failure;

const TUN: &str = "/dev/net/tun";

/// As what we run.
#[derive(Debug)]
pub enum Standing {
    /// Root, perhaps on behalf of a user and a group.
    Root(Option<(u32, u32)>),
    /// A user, in a user namespace whose network is empty.
    User,
}

/// Finds out what we may do. Without root, moves the process to a user namespace and a network namespace of its
/// own; before there is any thread.
///
/// # Errors
/// A sentence that says what is missing.
pub fn acquire() -> Result<Standing, Failure> {
    let uid = geteuid();
    if uid.is_root() {
        let number = |name| env::var(name).ok()?.parse::<u32>().ok();
        let user = number("SUDO_UID").filter(|&uid| uid != 0);
        return Ok(Standing::Root(user.zip(number("SUDO_GID"))));
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open(TUN) {
        return Err(Failure::usage(format_args!(
            "shell needs root here: {TUN} cannot be opened ({error}); try sudo"
        )));
    }
    isolate(uid).map_err(|error| {
        Failure::usage(format_args!(
            "shell needs root here: this system gives no user namespaces to users ({error}); try sudo"
        ))
    })?;
    Ok(Standing::User)
}

fn isolate(uid: Uid) -> io::Result<()> {
    let gid = getegid();
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    netlink::loopback_up()
}

/// Who `uid` is outside of this user namespace.
fn outside(uid: Uid) -> u32 {
    let uid = uid.as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    ranges
        .filter(|&(inside, _, count)| uid >= inside && uid - inside < count)
        .map(|(inside, outside, _)| outside + (uid - inside))
        .next()
        .unwrap_or(uid)
}

/// That `what` cannot be had.
pub fn explain(what: &str, error: &io::Error) -> Failure {
    match error.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(nix::errno::Errno::EPERM | nix::errno::Errno::EACCES) => Failure::usage(format_args!(
            "shell: {what} takes CAP_NET_ADMIN and CAP_SYS_ADMIN, which this root does not have ({error})"
        )),
        _ if what.contains("TUN") && !Path::new(TUN).exists() => Failure::usage(format_args!(
            "shell: {what} cannot be had: this system has no {TUN}"
        )),
        _ => Failure::usage(format_args!("shell: {what} cannot be had: {error}")),
    }
}

impl Standing {
    /// Where to keep notes about what was changed of the host. Root of a user namespace may be nobody outside.
    pub fn notes(&self) -> PathBuf {
        let common = Path::new("/run/verus");
        let parent = if common.exists() {
            common
        } else {
            Path::new("/run")
        };
        if matches!(self, Standing::Root(_)) && access(parent, Access::WRITE_OK).is_ok() {
            return common.to_owned();
        }
        env::var_os("XDG_RUNTIME_DIR").map_or_else(
            || env::temp_dir().join(format!("verus-{}", outside(geteuid()))),
            |folder| PathBuf::from(folder).join("verus"),
        )
    }

    /// Gives `path`, which was made for the user, to the user; as far as that goes.
    pub fn hand_over(&self, path: &Path) {
        if let Standing::Root(Some((uid, gid))) = *self {
            let _ = std::os::unix::fs::lchown(path, Some(uid), Some(gid));
        }
    }

    /// Whether what is beyond this host can be reached from here.
    pub fn reaches_internet(&self) -> bool {
        matches!(self, Standing::Root(_))
    }

    /// The words that start `command` as the right user.
    pub fn launch(&self, resolver: Option<&Path>, command: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            super::super::LAUNCH.into(),
            "--parent".into(),
            std::process::id().to_string().into(),
        ];
        if let Standing::Root(Some((uid, gid))) = self {
            words.extend(["--uid".into(), uid.to_string().into()]);
            words.extend(["--gid".into(), gid.to_string().into()]);
        }
        if let Some(resolver) = resolver {
            words.extend(["--resolver".into(), resolver.into()]);
        }
        words.push("--".into());
        words.extend(command.iter().cloned());
        words
    }
}
