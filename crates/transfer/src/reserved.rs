//! A server's own files: its keys, tokens and logs. No client reads, lists or writes them, in any
//! folder.
//!
//! Files are known by device and inode, so that another name (a hard link, a symbolic link, a mount) makes no difference.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, Stat};

/// A descriptor that a folder is only passed through with; where the system knows that kind, it needs
/// no permission to list the folder.
#[cfg(target_os = "linux")]
pub(super) const THROUGH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const THROUGH: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Why a client cannot have such a file.
pub(super) const WHY: &str = "it is the server's own";

/// Identity of a file or folder, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Identity of the file with this status.
    #[allow(
        clippy::useless_conversion,
        reason = "their types differ between systems"
    )]
    pub fn of(stat: &Stat) -> Self {
        FileId {
            device: u64::try_from(stat.st_dev).unwrap_or_default(),
            inode: u64::from(stat.st_ino),
        }
    }
}

/// Files, folders and names reserved for the server.
#[derive(Debug, Default)]
pub struct Reserved {
    folders: Vec<OwnedFd>,
    files: BTreeSet<FileId>,
    /// Names, each in its folder: the next file with that name is the server's, too.
    names: Vec<(OwnedFd, OsString)>,
}

impl Reserved {
    /// Reserves a folder with all that is in it.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn add_folder(&mut self, folder: impl AsFd) -> io::Result<()> {
        let folder = fs::openat(folder, c".", THROUGH, Mode::empty())?;
        self.folders.push(folder);
        Ok(())
    }

    /// Reserves an open file.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn add_file(&mut self, file: impl AsFd) -> io::Result<()> {
        self.files.insert(FileId::of(&fs::fstat(file)?));
        Ok(())
    }

    /// Reserves the file at a path, and its name.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn add_path(&mut self, path: &Path) -> io::Result<()> {
        if let Ok(stat) = fs::stat(path) {
            self.files.insert(FileId::of(&stat));
        }
        let Some(name) = path.file_name() else {
            return Ok(());
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let parent = fs::openat(CWD, parent, THROUGH, Mode::empty())?;
        self.names.push((parent, name.to_owned()));
        Ok(())
    }

    /// Whether nothing is reserved.
    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.files.is_empty() && self.names.is_empty()
    }

    /// All that is reserved at this moment: a list of tokens is replaced by a new file at any time.
    pub(super) fn now(&self) -> BTreeSet<FileId> {
        let mut ids = self.files.clone();
        ids.extend(self.folders.iter().filter_map(id));
        for folder in &self.folders {
            ids.extend(contents(folder));
        }
        for (folder, name) in &self.names {
            let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            ids.extend(stat.iter().map(FileId::of));
        }
        ids
    }

    /// Whether `folder` is a reserved one, or lies in one. Looks no further up than `root`.
    pub(super) fn holds_folder(&self, folder: impl AsFd, root: FileId) -> io::Result<bool> {
        let folders: BTreeSet<FileId> = self.folders.iter().filter_map(id).collect();
        let mut at = fs::openat(folder, c".", THROUGH, Mode::empty())?;
        let mut below = None;
        loop {
            let current = FileId::of(&fs::fstat(&at)?);
            if folders.contains(&current) {
                return Ok(true);
            }
            // The folder above the file system's root is itself.
            if current == root || below == Some(current) {
                return Ok(false);
            }
            below = Some(current);
            at = fs::openat(&at, c"..", THROUGH, Mode::empty())?;
        }
    }

    /// Whether `name` in `folder` is kept for a file of the server, existing or not.
    pub(super) fn holds_name(&self, folder: impl AsFd, name: &OsStr) -> bool {
        let Ok(stat) = fs::fstat(folder) else {
            return true;
        };
        let folder_id = Some(FileId::of(&stat));
        self.names
            .iter()
            .any(|(parent, reserved)| reserved == name && id(parent) == folder_id)
    }
}

fn id(folder: &OwnedFd) -> Option<FileId> {
    fs::fstat(folder).ok().as_ref().map(FileId::of)
}

/// Files in a folder; empty if it cannot be listed.
fn contents(folder: &OwnedFd) -> Vec<FileId> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = fs::openat(folder, c".", flags, Mode::empty()).and_then(Dir::new);
    let names = listed.into_iter().flatten().flatten();
    names
        .filter(|entry| ![c".", c".."].contains(&entry.file_name()))
        .filter_map(|entry| {
            let stat = fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            stat.ok().as_ref().map(FileId::of)
        })
        .collect()
}
