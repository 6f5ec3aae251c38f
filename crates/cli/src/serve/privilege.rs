//! As whom a server goes on that was started as root, and how it gives up the rest.
//!
//! | started by | the folder belongs to | goes on as |
//! |---|---|---|
//! | a user | any | that user |
//! | root, `--user NAME` | anybody | NAME |
//! | root | a user | its owner |
//! | root | root | root in name: without capabilities, and only if it can be confined |
//! | root, `--user root` | anybody | root |
//!
//! The socket, the folder and the audit log are opened before, keys and tokens after. The server's
//! user must be able to read those two in any case, to notice that they change. And root never
//! follows a name that somebody else chose.

#[cfg(target_os = "linux")]
use std::ffi::CString;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use nix::unistd::{
    Gid, Group, Uid, User, getegid, geteuid, getresgid, getresuid, initgroups, setgroups,
    setresgid, setresuid,
};
use verus_transfer::folder::Folder;

use crate::failure::Failure;
use crate::files::HomeOwner;

/// A user to become.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct Account {
    uid: Uid,
    gid: Gid,
    name: Option<String>,
    home: Option<PathBuf>,
}

/// The user that a server, or a command for its tokens, runs as.
#[derive(Debug)]
pub enum ServerUser {
    /// The user that started it.
    Same,
    /// Root, since the user says so.
    #[cfg(target_os = "linux")]
    Root,
    /// Root without its capabilities: only an owner of root's files.
    #[cfg(target_os = "linux")]
    Bare,
    /// Another user.
    #[cfg(target_os = "linux")]
    Other(Account),
}

#[cfg(target_os = "linux")]
impl Account {
    /// `NAME` or `UID`, and perhaps `:GROUP`.
    fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |why: String| Failure::usage(format_args!("--user `{text}`: {why}"));
        let failed = |error: nix::Error| bad(error.desc().to_owned());
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let gid = match group.map(|group| (group, group.parse::<u32>())) {
            None => None,
            Some((_, Ok(gid))) => Some(Gid::from_raw(gid)),
            Some((group, Err(_))) => match Group::from_name(group).map_err(failed)? {
                Some(group) => Some(group.gid),
                None => return Err(bad(format!("there is no group `{group}` here"))),
            },
        };
        if let Ok(uid) = user.parse::<u32>() {
            let uid = Uid::from_raw(uid);
            return match (User::from_uid(uid).map_err(failed)?, gid) {
                (Some(user), gid) => Ok(Account::from((user, gid))),
                (None, Some(gid)) => Ok(Account::number(uid, gid)),
                (None, None) => Err(bad(
                    "nobody here has that number; say its group, too: UID:GID".to_owned(),
                )),
            };
        }
        match User::from_name(user).map_err(failed)? {
            Some(user) => Ok(Account::from((user, gid))),
            None => Err(bad("there is no such user here".to_owned())),
        }
    }

    /// The owner of a file. A user without an entry on this system has only the file's group,
    /// unless that is root's.
    fn owner(uid: Uid, gid: u32) -> nix::Result<Self> {
        let group = if gid == 0 { uid.as_raw() } else { gid };
        Ok(match User::from_uid(uid)? {
            Some(user) => Account::from((user, None)),
            None => Account::number(uid, Gid::from_raw(group)),
        })
    }

    fn number(uid: Uid, gid: Gid) -> Self {
        Account {
            uid,
            gid,
            name: None,
            home: None,
        }
    }

    /// Permanently becomes this user.
    fn assume(&self) -> Result<(), Failure> {
        let failed = |what: &str, why: &str| {
            Failure::usage(format_args!(
                "cannot become {}: {what}: {why}",
                self.shown()
            ))
        };
        let wrong = |what: &'static str| move |error: nix::Error| failed(what, error.desc());
        let name = self.name.as_deref().map(CString::new);
        match name {
            Some(Ok(name)) => initgroups(&name, self.gid).map_err(wrong("its groups"))?,
            _ => setgroups(&[self.gid]).map_err(wrong("its groups"))?,
        }
        setresgid(self.gid, self.gid, self.gid).map_err(wrong("its group"))?;
        setresuid(self.uid, self.uid, self.uid).map_err(wrong("its number"))?;
        // Checks the change, and that there is no way back.
        let (uids, gids) = (
            getresuid().map_err(wrong("its number"))?,
            getresgid().map_err(wrong("its group"))?,
        );
        let all = [uids.real, uids.effective, uids.saved] == [self.uid; 3]
            && [gids.real, gids.effective, gids.saved] == [self.gid; 3];
        let back = !self.uid.is_root() && nix::unistd::setuid(Uid::from_raw(0)).is_ok();
        if !all || back {
            return Err(failed("it did not hold", "root could come back"));
        }
        Ok(())
    }

    fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("`{name}` (user {})", self.uid),
            None => format!("user {}", self.uid),
        }
    }
}

#[cfg(target_os = "linux")]
impl From<(User, Option<Gid>)> for Account {
    fn from((user, gid): (User, Option<Gid>)) -> Self {
        Account {
            uid: user.uid,
            gid: gid.unwrap_or(user.gid),
            name: Some(user.name),
            home: Some(user.dir),
        }
    }
}

/// The user as whom to serve `folder`, which messages call `shown`.
///
/// # Errors
/// If there is no such user, or only root could become it.
#[cfg(target_os = "linux")]
pub fn choose(
    requested: Option<&str>,
    folder: &Folder,
    shown: &Path,
) -> Result<ServerUser, Failure> {
    let requested = requested.map(Account::parse).transpose()?;
    if !geteuid().is_root() {
        return same(requested);
    }
    if let Some(account) = requested {
        let root = account.uid.is_root();
        return Ok(if root {
            ServerUser::Root
        } else {
            ServerUser::Other(account)
        });
    }
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::usage(format_args!(
            "cannot tell to whom `{}` belongs: {why}; say as whom to serve it: --user NAME",
            shown.display()
        ))
    };
    let stat = rustix::fs::fstat(folder).map_err(|error| cannot(&std::io::Error::from(error)))?;
    let owner = Uid::from_raw(stat.st_uid);
    if owner.is_root() {
        return Ok(ServerUser::Bare);
    }
    let account = Account::owner(owner, stat.st_gid).map_err(|error| cannot(&error.desc()))?;
    Ok(ServerUser::Other(account))
}

/// The user as whom to change tokens: the one that runs the command, or, for root, the requested
/// one.
#[cfg(target_os = "linux")]
pub fn choose_for_tokens(requested: Option<&str>) -> Result<ServerUser, Failure> {
    let requested = requested.map(Account::parse).transpose()?;
    if !geteuid().is_root() {
        return same(requested);
    }
    Ok(match requested {
        Some(account) if !account.uid.is_root() => ServerUser::Other(account),
        _ => ServerUser::Same,
    })
}

/// For root, the owner of an existing folder, if that is another user.
#[cfg(target_os = "linux")]
pub fn owner(path: &Path) -> Result<ServerUser, Failure> {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = std::fs::metadata(path) else {
        return Ok(ServerUser::Same);
    };
    let owner = Uid::from_raw(metadata.uid());
    if !geteuid().is_root() || owner.is_root() {
        return Ok(ServerUser::Same);
    }
    let account = Account::owner(owner, metadata.gid())
        .map_err(|error| Failure::usage(format_args!("user {owner}: {}", error.desc())))?;
    Ok(ServerUser::Other(account))
}

#[cfg(target_os = "linux")]
fn same(requested: Option<Account>) -> Result<ServerUser, Failure> {
    match requested {
        Some(other) if (other.uid, other.gid) != (geteuid(), getegid()) => Err(Failure::usage(
            format_args!("--user: only root can become {}", other.shown()),
        )),
        _ => Ok(ServerUser::Same),
    }
}

#[cfg(target_os = "linux")]
impl ServerUser {
    /// Permanently gives up unneeded rights. Must run before there is any thread.
    pub fn assume(&self) -> Result<(), Failure> {
        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
        let failed = |error: rustix::io::Errno| {
            let error = std::io::Error::from(error);
            Failure::usage(format_args!("cannot give up root's rights: {error}"))
        };
        match self {
            ServerUser::Same | ServerUser::Root => {}
            ServerUser::Bare => {
                let none = CapabilitySet::empty();
                let sets = CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                };
                set_capabilities(None, sets).map_err(failed)?;
            }
            ServerUser::Other(account) => account.assume()?,
        }
        // No program started by this process can gain rights.
        rustix::thread::set_no_new_privs(true).map_err(failed)
    }

    /// Whether it may go on only if confined.
    pub fn must_be_confined(&self) -> bool {
        matches!(self, ServerUser::Bare)
    }

    /// The owner of the home that holds the configuration.
    pub fn home(&self) -> HomeOwner<'_> {
        match self {
            ServerUser::Other(Account { home, .. }) => match home {
                Some(home) => HomeOwner::Of(home),
                None => HomeOwner::Nobodys,
            },
            _ => HomeOwner::Ours,
        }
    }

    /// The user's name for messages.
    pub fn shown(&self) -> Option<String> {
        match self {
            ServerUser::Same => None,
            ServerUser::Root => Some("root".to_owned()),
            ServerUser::Bare => Some("root, without its capabilities".to_owned()),
            ServerUser::Other(account) => Some(account.shown()),
        }
    }
}

/// On other systems root goes on as root, if the user requests it.
#[cfg(not(target_os = "linux"))]
pub fn choose(requested: Option<&str>, _: &Folder, _: &Path) -> Result<ServerUser, Failure> {
    match requested {
        Some("root") => Ok(ServerUser::Same),
        Some(_) => Err(Failure::usage("--user: to become another user takes Linux")),
        None if rustix::process::geteuid().is_root() => Err(Failure::usage(
            "serve should not run as root; --user root does so nevertheless",
        )),
        None => Ok(ServerUser::Same),
    }
}

/// Other systems do not change users.
#[cfg(not(target_os = "linux"))]
pub fn choose_for_tokens(requested: Option<&str>) -> Result<ServerUser, Failure> {
    match requested {
        Some(_) => Err(Failure::usage("--user: to become another user takes Linux")),
        None => Ok(ServerUser::Same),
    }
}

/// Other systems do not change users.
#[cfg(not(target_os = "linux"))]
pub fn owner(_: &Path) -> Result<ServerUser, Failure> {
    Ok(ServerUser::Same)
}

#[cfg(not(target_os = "linux"))]
impl ServerUser {
    /// Gives up nothing.
    pub fn assume(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether it may go on only if confined.
    pub fn must_be_confined(&self) -> bool {
        false
    }

    /// The owner of the home that holds the configuration.
    pub fn home(&self) -> HomeOwner<'_> {
        HomeOwner::Ours
    }

    /// The user's name for messages.
    pub fn shown(&self) -> Option<String> {
        None
    }
}
