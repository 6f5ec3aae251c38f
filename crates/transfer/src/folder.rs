//! A folder that nothing can be reached outside of.
//!
//! Everything is opened relative to a descriptor of the folder. On Linux the kernel resolves each
//! path and keeps it beneath the folder (`openat2`, RESOLVE_BENEATH). Symbolic links are followed
//! as long as they stay inside, even if files are renamed meanwhile. Without that call, names are
//! opened one by one and no symbolic link is followed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::vec;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::digest::MAX_SIZE;
use super::frames::{FileInfo, Modified};
use super::paths::{self, MAX_DEPTH, RelativePath};
use super::printable::printable;
use super::refusal::{Reason, Refusal};
use super::reserved::{FileId, Reserved, THROUGH, WHY};
use super::umask;

/// Flags for reading: a pipe or a device must not make us wait, or become our terminal.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// How often a file is opened again that was replaced or removed just then.
const TRIES: usize = 10;

/// An open folder.
#[derive(Clone, Debug)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    guard: Arc<Guard>,
}

/// The part of a folder that no client has access to.
#[derive(Debug, Default)]
struct Guard {
    reserved: Reserved,
    /// The folder that was opened first: the others are in it.
    root: Option<FileId>,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Folder {
    /// Opens a folder that the user named: its path may lead anywhere.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Read before the process is confined, which hides it.
        umask::permissions();
        let fd = fs::openat(CWD, path, THROUGH, Mode::empty())?;
        Ok(Folder {
            fd: Arc::new(fd),
            guard: Arc::default(),
        })
    }

    /// This folder without the `reserved` files, by whatever path they are reached.
    ///
    /// # Errors
    /// As the operating system says; if the folder itself is reserved.
    pub fn without(self, reserved: Reserved) -> io::Result<Self> {
        let root = FileId::of(&fs::fstat(&self)?);
        if reserved.holds_folder(&self, root)? {
            return Err(reserved_error());
        }
        let root = Some(root);
        Ok(Folder {
            fd: self.fd,
            guard: Arc::new(Guard { reserved, root }),
        })
    }

    /// One of the folders in here.
    pub(super) fn inner(&self, fd: OwnedFd) -> Folder {
        Folder {
            fd: Arc::new(fd),
            guard: Arc::clone(&self.guard),
        }
    }

    /// All that is reserved at this moment.
    pub(super) fn reserved(&self) -> BTreeSet<FileId> {
        self.guard.reserved.now()
    }

    /// Refuses a name in this folder that is, or is kept for, a file of the server.
    ///
    /// # Errors
    /// If it is.
    pub(super) fn check_name(&self, name: &OsStr) -> io::Result<()> {
        let reserved = &self.guard.reserved;
        let is_own = || {
            let stat = self.look(name);
            stat.is_ok_and(|stat| self.reserved().contains(&FileId::of(&stat)))
        };
        if !reserved.is_empty() && (reserved.holds_name(self, name) || is_own()) {
            return Err(reserved_error());
        }
        Ok(())
    }

    /// Refuses an open file of the server. Returns whether the file still has a name, which others
    /// may have removed meanwhile.
    fn check_file(&self, file: &OwnedFd) -> io::Result<bool> {
        if self.guard.reserved.is_empty() {
            return Ok(true);
        }
        let stat = fs::fstat(file)?;
        if self.reserved().contains(&FileId::of(&stat)) {
            return Err(reserved_error());
        }
        Ok(stat.st_nlink > 0)
    }

    /// Opens a file in here for reading. Whether it is a regular one is for the caller to see.
    ///
    /// # Errors
    /// As the operating system says; `EXDEV` if the path would leave.
    pub fn file(&self, path: &RelativePath) -> io::Result<File> {
        if let Some((parent, _)) = path.split_last() {
            self.check_folder(&self.resolve(&parent, THROUGH)?)?;
        }
        for _ in 0..TRIES {
            let file = self.resolve(path, READ)?;
            // A file that has just lost its name may have been the server's before.
            if self.check_file(&file)? {
                return Ok(File::from(file));
            }
        }
        Err(io::Error::from(io::ErrorKind::NotFound))
    }

    /// Opens a folder in here.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn folder(&self, path: &RelativePath) -> io::Result<Folder> {
        let fd = self.resolve(path, THROUGH)?;
        self.check_folder(&fd)?;
        Ok(self.inner(fd))
    }

    fn check_folder(&self, fd: &OwnedFd) -> io::Result<()> {
        match self.guard.root {
            Some(root) if self.guard.reserved.holds_folder(fd, root)? => Err(reserved_error()),
            _ => Ok(()),
        }
    }

    /// Number of missing folders on the way to `path`, including itself.
    ///
    /// # Errors
    /// As [`file`](Self::file), of the last that there is.
    pub fn missing(&self, path: &RelativePath) -> io::Result<usize> {
        match (self.folder(path), path.split_last()) {
            (Err(error), Some((parent, _))) if error.kind() == io::ErrorKind::NotFound => {
                Ok(self.missing(&parent)? + 1)
            }
            (opened, _) => opened.map(|_| 0),
        }
    }

    /// Opens a folder in here, and makes those on the way that are missing; `made` counts them.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn make(&self, path: &RelativePath, made: &mut u64) -> io::Result<Folder> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let Some((parent, name)) = path.split_last() else {
            return self.folder(path);
        };
        let parent = self.make(&parent, made)?;
        parent.check_name(name)?;
        match fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => *made += 1,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.folder(path)
    }

    /// The type and attributes of a name in this folder; a symbolic link is not followed.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn look(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in here, sorted by their bytes.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = fs::openat(self, c".", flags, Mode::empty())?;
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Waits until the names in here are on the disk. Some file systems cannot say; the names get
    /// there in any case.
    pub fn sync(&self) {
        if let Ok(fd) = fs::openat(
            self,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            let _ = fs::fsync(fd);
        }
    }

    fn resolve(&self, path: &RelativePath, flags: OFlags) -> io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        match self.resolve_beneath(path, flags) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return Ok(other?),
        }
        Ok(self.resolve_by_name(path, flags)?)
    }

    #[cfg(target_os = "linux")]
    fn resolve_beneath(&self, path: &RelativePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        use fs::ResolveFlags;
        let text = if path.is_empty() {
            OsStr::new(".")
        } else {
            path.as_os_str()
        };
        let mut tries = 0;
        loop {
            let opened = fs::openat2(
                self,
                text,
                flags,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            );
            match opened {
                // A folder was renamed just then, and the kernel cannot be sure.
                Err(Errno::AGAIN) if tries < 100 => tries += 1,
                other => return other,
            }
        }
    }

    fn resolve_by_name(&self, path: &RelativePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some((parent, name)) = path.split_last() else {
            return fs::openat(self, c".", flags, Mode::empty());
        };
        let mut fd = None;
        for step in parent.names() {
            let from = fd.as_ref().map_or(self.fd.as_fd(), OwnedFd::as_fd);
            fd = Some(fs::openat(
                from,
                step,
                THROUGH | OFlags::NOFOLLOW,
                Mode::empty(),
            )?);
        }
        let from = fd.as_ref().map_or(self.fd.as_fd(), OwnedFd::as_fd);
        fs::openat(from, name, flags | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// The error for access to the server's own files.
fn reserved_error() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, WHY)
}

/// Size, time and permission of a regular file; nothing for anything else.
pub fn file_info(stat: &Stat) -> Option<FileInfo> {
    let size = u64::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > MAX_SIZE {
        return None;
    }
    let nanos = u32::try_from(stat.st_mtime_nsec).ok();
    Some(FileInfo {
        size,
        modified: nanos
            .filter(|&nanos| nanos < 1_000_000_000)
            .map(|nanos| Modified {
                seconds: stat.st_mtime,
                nanos,
            }),
        executable: stat.st_mode & 0o100 != 0,
    })
}

/// The reason why a file must not be used as an unfinished one of ours, if any. A umask of 002 gives
/// each new file of ours write permission for the group, so that is allowed here. The unfinished
/// file gets its final permissions a moment before its name.
pub(super) fn not_ours(stat: &Stat) -> Option<&'static str> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        Some("something that is not a file")
    } else if stat.st_uid != rustix::process::geteuid().as_raw() {
        Some("another user's file")
    } else if stat.st_nlink > 1 {
        Some("a file that has another name, too,")
    } else if stat.st_mode & 0o022 & !umask::permissions() != 0 {
        Some("a file that others may write to")
    } else {
        None
    }
}

/// Says what something is that is no file, and therefore not transferred.
pub fn not_a_file(stat: &Stat) -> Refusal {
    let (reason, text) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (Reason::NotAFile, "it is too large"),
        FileType::Directory => (Reason::InTheWay, "it is a folder"),
        FileType::Symlink => (
            Reason::NotAFile,
            "it is a symbolic link, and those are not followed here",
        ),
        FileType::Socket => (Reason::NotAFile, "it is a socket, not a file"),
        FileType::Fifo => (Reason::NotAFile, "it is a pipe, not a file"),
        FileType::BlockDevice | FileType::CharacterDevice => {
            (Reason::NotAFile, "it is a device, not a file")
        }
        _ => (Reason::NotAFile, "it is not a file"),
    };
    Refusal::new(reason, text)
}

/// An entry of a folder, as the walk meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkEntry {
    /// A regular file.
    File(RelativePath, FileInfo),
    /// A folder; it comes before its contents.
    Folder(RelativePath),
    /// Something that is not transferred, and why.
    Unavailable(RelativePath, Refusal),
}

/// Finds everything in a folder, depth first, each folder's names in order. It follows no symbolic
/// link. Of any depth, it holds open the first folder and the one it is in: the way back up opens the
/// outer folder again.
#[derive(Debug)]
pub struct Walk {
    root: Folder,
    /// The folder it is in; nothing before the first and after the last.
    folder: Option<Folder>,
    path: RelativePath,
    /// The names that are left in each folder from the root to `path`.
    names: Vec<vec::IntoIter<OsString>>,
    /// The reserved files at the time when the last folder was entered.
    reserved: BTreeSet<FileId>,
    failed: Option<(RelativePath, Refusal)>,
}

impl Walk {
    /// Through `folder`; paths are relative to it.
    pub fn new(folder: Folder) -> Self {
        let mut walk = Walk {
            root: folder.clone(),
            folder: None,
            path: RelativePath::default(),
            names: Vec::new(),
            reserved: BTreeSet::new(),
            failed: None,
        };
        walk.enter(RelativePath::default(), folder);
        walk
    }

    fn enter(&mut self, path: RelativePath, folder: Folder) {
        self.reserved = folder.reserved();
        match folder.names() {
            Ok(names) => {
                self.names.push(names.into_iter());
                (self.path, self.folder) = (path, Some(folder));
            }
            Err(error) => self.failed = Some((path, Refusal::from_io("cannot read it", &error))),
        }
    }

    /// Goes back to the outer folder. If it cannot be opened again, the rest of it is left out.
    fn leave(&mut self) {
        self.names.pop();
        self.folder = None;
        let Some((outer, _)) = self.path.split_last() else {
            return;
        };
        self.path = outer;
        let opened = self.root.resolve_by_name(&self.path, THROUGH);
        let checked = opened
            .map_err(io::Error::from)
            .and_then(|fd| self.root.check_folder(&fd).map(|()| self.root.inner(fd)));
        match checked {
            Ok(folder) => self.folder = Some(folder),
            Err(error) => {
                let refusal = Refusal::from_io("cannot read the rest of it", &error);
                self.failed = Some((self.path.clone(), refusal));
            }
        }
    }

    /// The entry of a name; nothing if it is reserved.
    fn visit(&mut self, parent: &RelativePath, folder: &Folder, name: &OsStr) -> Option<WalkEntry> {
        let stat = folder.look(name);
        if matches!(&stat, Ok(stat) if self.reserved.contains(&FileId::of(stat))) {
            return None;
        }
        Some(self.entry(parent, folder, name, stat))
    }

    fn entry(
        &mut self,
        parent: &RelativePath,
        folder: &Folder,
        name: &OsStr,
        stat: io::Result<Stat>,
    ) -> WalkEntry {
        let path = match parent.join(name) {
            Ok(path) => path,
            Err(refusal) => {
                // An unfinished transfer is not expected to arrive, so its absence is no failure.
                let refusal = if paths::is_part(name.as_bytes()) {
                    Refusal::new(Reason::NotAFile, refusal.detail)
                } else {
                    let text = format!("`{}`: {}", printable(name.as_bytes()), refusal.detail);
                    Refusal::new(refusal.reason, text)
                };
                return WalkEntry::Unavailable(parent.clone(), refusal);
            }
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(error) => {
                return WalkEntry::Unavailable(path, Refusal::from_io("cannot read it", &error));
            }
        };
        if let Some(info) = file_info(&stat) {
            return WalkEntry::File(path, info);
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return WalkEntry::Unavailable(path, not_a_file(&stat));
        }
        if self.names.len() >= MAX_DEPTH {
            let text =
                format!("it is deeper than {MAX_DEPTH} folders; what is in it is left out, too");
            return WalkEntry::Unavailable(path, Refusal::new(Reason::BadName, text));
        }
        match fs::openat(folder, name, THROUGH | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => {
                self.enter(path.clone(), folder.inner(fd));
                WalkEntry::Folder(path)
            }
            Err(error) => {
                WalkEntry::Unavailable(path, Refusal::from_io("cannot read it", &error.into()))
            }
        }
    }
}

impl Iterator for Walk {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        loop {
            if let Some((path, refusal)) = self.failed.take() {
                return Some(WalkEntry::Unavailable(path, refusal));
            }
            let name = self.names.last_mut()?.next();
            match (name, self.folder.clone()) {
                (Some(name), Some(folder)) => {
                    let path = self.path.clone();
                    if let Some(entry) = self.visit(&path, &folder, &name) {
                        return Some(entry);
                    }
                }
                _ => self.leave(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs as std_fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn path(text: &str) -> RelativePath {
        RelativePath::parse(text.as_bytes()).expect("a good path")
    }

    fn tree() -> tempfile::TempDir {
        let outer = tempfile::tempdir().expect("a folder");
        let root = outer.path().join("root");
        std_fs::create_dir_all(root.join("in/deep")).expect("folders");
        std_fs::write(outer.path().join("secret"), "s").expect("a file");
        std_fs::write(root.join("in/file"), "f").expect("a file");
        symlink("../../secret", root.join("in/out")).expect("a link");
        symlink(outer.path().join("secret"), root.join("in/absolute")).expect("a link");
        symlink("../..", root.join("in/up")).expect("a link");
        symlink("file", root.join("in/inside")).expect("a link");
        symlink("deep", root.join("in/shallow")).expect("a link");
        outer
    }

    #[test]
    fn nothing_outside_is_reached() {
        let outer = tree();
        let root = Folder::open(&outer.path().join("root")).expect("it exists");
        for bad in ["in/out", "in/absolute", "in/up/secret", "in/up"] {
            let error = root.file(&path(bad)).expect_err(bad);
            assert_eq!(
                Refusal::from_io("cannot read", &error).reason,
                Reason::Outside,
                "{bad}: {error}"
            );
            assert!(root.resolve_by_name(&path(bad), READ).is_err(), "{bad}");
        }
        assert!(root.folder(&path("in/up")).is_err());
        assert!(root.make(&path("in/up/new"), &mut 0).is_err());
        assert!(!outer.path().join("new").exists());
        assert!(root.file(&path("in/file")).is_ok());
        assert!(root.resolve_by_name(&path("in/file"), READ).is_ok());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn links_that_stay_inside_are_followed() {
        let outer = tree();
        let root = Folder::open(&outer.path().join("root")).expect("it exists");
        assert!(root.file(&path("in/inside")).is_ok());
        assert!(root.make(&path("in/shallow/new"), &mut 0).is_ok());
        assert!(outer.path().join("root/in/deep/new").is_dir());
    }

    #[test]
    fn a_walk_finds_everything_once_and_follows_no_link() {
        let outer = tree();
        let root = outer.path().join("root");
        let _socket = UnixListener::bind(root.join("socket")).expect("a socket");
        std_fs::write(root.join(".x.verus-part"), "half").expect("a file");
        let (mut good, mut bad, mut details) = (Vec::new(), Vec::new(), String::new());
        for entry in Walk::new(Folder::open(&root).expect("it exists")) {
            match entry {
                WalkEntry::File(path, info) => {
                    assert_eq!(info.size, 1);
                    good.push(path.to_string());
                }
                WalkEntry::Folder(path) => good.push(format!("{path}/")),
                WalkEntry::Unavailable(path, refusal) => {
                    assert_eq!(refusal.reason, Reason::NotAFile);
                    bad.push(path.to_string());
                    details.push_str(&refusal.detail);
                }
            }
        }
        assert_eq!(good, ["in/", "in/deep/", "in/file"]);
        assert!(details.contains("`.x.verus-part`"), "{details}");
        assert_eq!(
            bad,
            [
                ".",
                "in/absolute",
                "in/inside",
                "in/out",
                "in/shallow",
                "in/up",
                "socket"
            ]
        );
    }

    #[test]
    fn a_walk_of_any_depth_holds_two_folders_open_and_finds_what_follows_them() {
        let outer = tempfile::tempdir().expect("a folder");
        let deep = ["d"; MAX_DEPTH - 1].join("/");
        std_fs::create_dir_all(outer.path().join(&deep)).expect("folders");
        std_fs::write(outer.path().join(&deep).join("bottom"), "b").expect("a file");
        std_fs::write(outer.path().join("d/d/top"), "t").expect("a file");
        let open = || std_fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let before = open();
        let (mut most, mut files) = (0, Vec::new());
        for entry in Walk::new(Folder::open(outer.path()).expect("it exists")) {
            most = most.max(open().saturating_sub(before));
            match entry {
                WalkEntry::File(path, _) => files.push(path.to_string()),
                WalkEntry::Folder(_) => {}
                WalkEntry::Unavailable(path, why) => panic!("{path}: {why}"),
            }
        }
        assert_eq!(files, [format!("{deep}/bottom"), "d/d/top".to_owned()]);
        // Tests that run meanwhile open some, too.
        assert!(most < MAX_DEPTH / 2, "{most} descriptors");
    }

    #[test]
    fn a_folder_that_is_gone_on_the_way_back_up_is_named() {
        let outer = tree();
        let root = outer.path().join("root");
        let mut refused = Vec::new();
        for entry in Walk::new(Folder::open(&root).expect("it exists")) {
            match entry {
                WalkEntry::Folder(path) if path.to_string() == "in/deep" => {
                    std_fs::rename(root.join("in"), root.join("out")).expect("renamed");
                }
                WalkEntry::Unavailable(path, _) => refused.push(path.to_string()),
                _ => {}
            }
        }
        assert!(refused.contains(&"in".to_owned()), "{refused:?}");
    }

    #[test]
    fn a_pipe_does_not_make_us_wait() {
        let outer = tree();
        let root = Folder::open(outer.path()).expect("it exists");
        let fifo = FileType::Fifo;
        fs::mknodat(&root, c"pipe", fifo, Mode::RUSR, 0).expect("a pipe");
        let file = root.file(&path("pipe")).expect("it opens at once");
        let stat = fs::fstat(&file).expect("it is open");
        assert!(file_info(&stat).is_none());
        assert!(not_a_file(&stat).detail.contains("pipe"));
    }
}
