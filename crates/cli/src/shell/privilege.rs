//! Rights of the emulator, and the user that it acts for. The program runs as the user that called
//! `sudo`, `doas` or `pkexec`, and files are written with that user's rights only.

use std::env;
use std::ffi::{CString, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, User, getegid, geteuid, getgrouplist};
use rustix::fs::{Access, access};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use verus_emu::netlink;

use crate::failure::Failure;

const TUN: &str = "/dev/net/tun";

/// The user that this process runs as.
#[derive(Debug)]
pub enum Standing {
    /// Root, perhaps on behalf of a user.
    Root(Option<Caller>),
    /// A user, in a user namespace whose network is empty.
    User,
}

/// The user who called `sudo`, `doas` or `pkexec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
    /// All groups, including `gid`.
    groups: Vec<u32>,
}

/// Which user became root to run us: `None` if that is not said, or it was root itself, or we are not root.
///
/// # Errors
/// If the variables make no sense, contradict each other, or name no user: root would run a program
/// that was meant to run as a user.
pub fn caller() -> Result<Option<Caller>, Failure> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let said = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    find_caller(said, &|by| match by {
        By::Id(uid) => User::from_uid(Uid::from_raw(uid)).ok().flatten(),
        By::Name(name) => User::from_name(name).ok().flatten(),
    })
    .map_err(|problem| {
        Failure::usage(format_args!(
            "shell cannot tell for whom it is root: {problem}; `env -u` takes a variable away"
        ))
    })
}

/// Key to look up a user.
enum By<'a> {
    Id(u32),
    Name(&'a str),
}

/// The user named by the variables of sudo(8), doas(1) and pkexec(1), whose values `said` returns.
fn find_caller(
    said: impl Fn(&str) -> Option<String>,
    look: &dyn Fn(By<'_>) -> Option<User>,
) -> Result<Option<Caller>, String> {
    let number = |name: &str| {
        said(name)
            .map(|text| match text.parse::<u32>() {
                // The largest number means no user (setresuid(2)).
                Ok(number) if number != u32::MAX => Ok(number),
                _ => Err(format!(
                    "{name} is `{text}`, not a number of a user or group"
                )),
            })
            .transpose()
    };
    let named = |name: &str| {
        said(name)
            .map(|text| match look(By::Name(&text)) {
                Some(user) => Ok(user.uid.as_raw()),
                None => Err(format!("{name} is `{text}`, and there is no such user")),
            })
            .transpose()
    };
    let gid = number("SUDO_GID")?;
    let sudo = match number("SUDO_UID")? {
        Some(uid) => Some(uid),
        None => named("SUDO_USER")?,
    };
    if sudo.is_none() && gid.is_some() {
        return Err("SUDO_GID is set, and neither SUDO_UID nor SUDO_USER".to_owned());
    }
    let mut callers: Vec<u32> = [sudo, named("DOAS_USER")?, number("PKEXEC_UID")?]
        .into_iter()
        .flatten()
        .collect();
    callers.dedup();
    let uid = match callers[..] {
        [] | [0] => return Ok(None),
        [uid] => uid,
        _ => return Err("sudo, doas and pkexec name different users".to_owned()),
    };
    let user = look(By::Id(uid));
    let gid = match (gid, &user) {
        (Some(gid), _) => gid,
        (None, Some(user)) => user.gid.as_raw(),
        (None, None) => return Err(format!("nothing says which groups user {uid} has")),
    };
    let mut groups = vec![gid];
    if let Some(name) = user.and_then(|user| CString::new(user.name).ok()) {
        let all = getgrouplist(&name, gid.into())
            .map_err(|error| format!("the groups of user {uid}: {error}"))?;
        groups = all.into_iter().map(nix::unistd::Gid::as_raw).collect();
    }
    Ok(Some(Caller { uid, gid, groups }))
}

impl Caller {
    /// Gives the calling thread and its children only the user's rights from now on. Its real and
    /// saved IDs stay root's, so that the user may not signal it.
    fn lend_rights(&self) -> io::Result<()> {
        use rustix::thread::{Gid, Uid};
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(None::<Gid>, Gid::from_raw(self.gid), None::<Gid>)?;
        set_thread_res_uid(None::<Uid>, Uid::from_raw(self.uid), None::<Uid>)?;
        Ok(())
    }
}

/// Runs `work` with the rights of `caller`, if there is one, and waits for it. It runs on a thread,
/// since Linux threads have separate rights (credentials(7)). New files belong to the caller, and
/// no link leads to a place that only root may access.
///
/// # Errors
/// If the rights cannot be given up; nothing is done then.
pub fn as_caller<T: Send>(
    caller: Option<&Caller>,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let Some(caller) = caller else {
        return Ok(work());
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("user".to_owned());
        let done = thread.spawn_scoped(scope, || {
            caller.lend_rights()?;
            Ok(work())
        })?;
        done.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Determines the rights, as root on behalf of `caller`. Without root, moves the process to a new
/// user namespace and network namespace, before there is any thread.
///
/// # Errors
/// Describes the missing right.
pub fn acquire(caller: Option<Caller>) -> Result<Standing, Failure> {
    let uid = geteuid();
    if uid.is_root() {
        return Ok(Standing::Root(caller));
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

/// The number of `uid` outside of this user namespace.
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

/// The failure to get `what`.
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
    /// The folder for notes about changes to the host. Root of a user namespace may be nobody
    /// outside.
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

    /// [`as_caller`] with the caller of this standing.
    pub fn as_caller<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match self {
            Standing::Root(caller) => as_caller(caller.as_ref(), work),
            Standing::User => Ok(work()),
        }
    }

    /// Whether the program is to run as root.
    pub fn is_for_root(&self) -> bool {
        matches!(self, Standing::Root(None))
    }

    /// Whether hosts beyond this one can be reached from here.
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
        if let Standing::Root(Some(Caller { uid, gid, .. })) = self {
            words.extend(["--uid".into(), uid.to_string().into()]);
            words.extend(["--gid".into(), gid.to_string().into()]);
        }
        if self.is_for_root() {
            words.push("--apart".into());
        }
        if let Some(resolver) = resolver {
            words.extend(["--resolver".into(), resolver.into()]);
        }
        words.push("--".into());
        words.extend(command.iter().cloned());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the caller on a system with root and `daemon` (1, of group 1).
    fn find(said: &[(&str, &str)]) -> Result<Option<(u32, u32)>, String> {
        let said = |name: &str| {
            let entry = said.iter().find(|(other, _)| *other == name);
            entry.map(|(_, value)| (*value).to_owned())
        };
        let user = |uid: u32| User {
            name: format!("nobody-of-this-name-{uid}"),
            passwd: CString::default(),
            uid: Uid::from_raw(uid),
            gid: uid.into(),
            gecos: CString::default(),
            dir: "/".into(),
            shell: "/bin/sh".into(),
        };
        let look = |by: By<'_>| match by {
            By::Id(uid) if uid < 2 => Some(user(uid)),
            By::Name("root") => Some(user(0)),
            By::Name("daemon") => Some(user(1)),
            _ => None,
        };
        let caller = find_caller(said, &look)?;
        Ok(caller.map(|caller| {
            assert!(caller.groups.contains(&caller.gid));
            (caller.uid, caller.gid)
        }))
    }

    #[test]
    fn sudo_doas_and_pkexec_say_who_called_them() {
        assert_eq!(find(&[]), Ok(None));
        for (said, caller) in [
            (
                &[
                    ("SUDO_UID", "1"),
                    ("SUDO_GID", "7"),
                    ("SUDO_USER", "daemon"),
                ][..],
                (1, 7),
            ),
            // Without SUDO_GID, the group is the user's; without a number, the name decides.
            (&[("SUDO_UID", "1")], (1, 1)),
            (&[("SUDO_USER", "daemon")], (1, 1)),
            (&[("SUDO_UID", "1000"), ("SUDO_GID", "1000")], (1000, 1000)),
            (&[("DOAS_USER", "daemon")], (1, 1)),
            (&[("PKEXEC_UID", "1")], (1, 1)),
            (
                &[
                    ("PKEXEC_UID", "1"),
                    ("DOAS_USER", "daemon"),
                    ("SUDO_UID", "1"),
                ],
                (1, 1),
            ),
        ] {
            assert_eq!(find(said), Ok(Some(caller)), "{said:?}");
        }
        for root in [
            [("SUDO_UID", "0")],
            [("DOAS_USER", "root")],
            [("PKEXEC_UID", "0")],
        ] {
            assert_eq!(find(&root), Ok(None), "{root:?}");
        }
    }

    #[test]
    fn what_names_nobody_is_refused_rather_than_taken_for_root() {
        for (said, word) in [
            (&[("SUDO_UID", "me")][..], "SUDO_UID"),
            (&[("SUDO_UID", "")], "SUDO_UID"),
            (&[("SUDO_UID", "-1")], "SUDO_UID"),
            (&[("SUDO_UID", "4294967295")], "SUDO_UID"),
            (&[("SUDO_UID", "1"), ("SUDO_GID", "staff")], "SUDO_GID"),
            (&[("SUDO_UID", "1000")], "1000"),
            (&[("SUDO_GID", "1000")], "SUDO_GID"),
            (&[("SUDO_USER", "ghost")], "ghost"),
            (&[("DOAS_USER", "ghost")], "ghost"),
            (&[("PKEXEC_UID", "1000")], "1000"),
            (&[("PKEXEC_UID", "x")], "PKEXEC_UID"),
            (&[("SUDO_UID", "0"), ("DOAS_USER", "daemon")], "different"),
        ] {
            let problem = find(said).expect_err(word);
            assert!(problem.contains(word), "{said:?}: {problem}");
        }
    }
}
