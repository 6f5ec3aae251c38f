//! Files that no other user may read, in a folder that no other user may change.
//!
//! Checks look at the opened file: owner and permissions are those of the descriptor. So nobody can
//! put another file in its place between the check and the reading.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::reserved::FileId;
use super::secret_error::SecretError;

/// Flags for reading that avoid waiting for the writer of a pipe and adopting a terminal.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// No file of ours is longer, in bytes: a full store of tokens is a fifth of it.
const MAX_FILE: u64 = 1 << 20;

/// Identity and times of a file: enough to notice that it was rewritten or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Stamp {
            file: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// Name of a file that is being written. There is one at a time, so that processes that are killed leave no more than one.
const DRAFT: &str = ".new";

/// The text of a file, and which file it was.
#[derive(Debug)]
pub struct Text {
    /// Its contents.
    pub text: String,
    /// When it was last written to, in seconds since 1970.
    pub modified_s: i64,
    stamp: Stamp,
}

impl Text {
    /// Which file it was.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

/// An open folder of secrets.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    folder: File,
}

impl AsFd for Home {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// A lock on the folder: no other process that asks for it writes there while this lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it ends the lock")] File);

impl Home {
    /// Opens it, or makes it.
    ///
    /// # Errors
    /// If it cannot be opened or made, or others may change its contents.
    pub fn make(path: &Path) -> Result<Self, SecretError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io_error("make", path))?;
        Home::open(path)?
            .ok_or_else(|| io_error("open", path)(io::Error::from(io::ErrorKind::NotFound)))
    }

    /// Opens it, if there is one.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn open(path: &Path) -> Result<Option<Self>, SecretError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(folder) => File::from(folder),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(io_error("open", path)(error.into())),
        };
        let metadata = folder.metadata().map_err(io_error("open", path))?;
        ours(path, &metadata)?;
        unchangeable(path, &metadata)?;
        Ok(Some(Home {
            path: path.to_owned(),
            folder,
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a secret, if there is one of that name.
    ///
    /// # Errors
    /// If it cannot be read, is no text, or is not ours alone to read.
    pub fn read(&self, name: &str) -> Result<Option<Text>, SecretError> {
        let path = self.path.join(name);
        match open(&self.folder, OsStr::new(name)) {
            Ok(file) => text(&path, file, secret).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error("read", &path)(error.into())),
        }
    }

    /// The stamp of the file with this name. None if it is missing or cannot be examined; reading
    /// it gives the reason.
    pub fn stamp(&self, name: &str) -> Option<Stamp> {
        let file = open(&self.folder, OsStr::new(name)).ok()?;
        Some(Stamp::of(&file.metadata().ok()?))
    }

    /// Writes a secret that is not there yet. If another process was faster, its file stays.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(&self, name: &str, text: &str) -> Result<(), SecretError> {
        self.write(name, text, |draft| {
            match fs::linkat(&self.folder, draft, &self.folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => {
                    let _ = fs::unlinkat(&self.folder, draft, AtFlags::empty());
                    Ok(())
                }
                // No hard links on this file system.
                Err(_) => fs::renameat(&self.folder, draft, &self.folder, name),
            }
        })
    }

    /// Writes a secret in the place of the one that was there: a reader sees the whole of either.
    ///
    /// # Errors
    /// If it cannot be written; the one before stays.
    pub fn replace(&self, name: &str, text: &str) -> Result<(), SecretError> {
        self.write(name, text, |draft| {
            fs::renameat(&self.folder, draft, &self.folder, name)
        })
    }

    /// Opens or makes a file that is rewritten in place: for data that may be lost.
    ///
    /// # Errors
    /// If it can be neither, or is not ours alone.
    pub fn keep(&self, name: &str) -> Result<File, SecretError> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let file = fs::openat(&self.folder, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| io_error("write", &path)(error.into()))?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(io_error("write", &path))?;
        regular(&path, &metadata)?;
        ours(&path, &metadata)?;
        secret(&path, &metadata)?;
        Ok(file)
    }

    /// Removes a secret; whether there was one.
    ///
    /// # Errors
    /// If it is there and stays.
    pub fn remove(&self, name: &str) -> Result<bool, SecretError> {
        match fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) => {
                let _ = self.folder.sync_all();
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(io_error("remove", &self.path.join(name))(error.into())),
        }
    }

    /// Waits until no other process is changing the contents.
    ///
    /// # Errors
    /// If the file system knows no locks.
    pub fn lock(&self) -> Result<Lock, SecretError> {
        // A separate descriptor: the lock belongs to it, and ends with it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.folder, ".", flags, Mode::empty())
            .and_then(|folder| {
                fs::flock(&folder, FlockOperation::LockExclusive)?;
                Ok(Lock(File::from(folder)))
            })
            .map_err(|error| io_error("lock", &self.path)(error.into()))
    }

    fn write(
        &self,
        name: &str,
        text: &str,
        place: impl FnOnce(&str) -> Result<(), Errno>,
    ) -> Result<(), SecretError> {
        let write = || -> io::Result<()> {
            let mut file = self.draft()?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            // After a rename the name may be another writer's already.
            place(DRAFT)?;
            // Some file systems cannot say when a name is on the disk.
            let _ = self.folder.sync_all();
            Ok(())
        };
        write().map_err(io_error("write", &self.path.join(name)))
    }

    /// An empty, locked file for new contents. The draft of a killed process is removed first.
    fn draft(&self) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            let file = fs::openat(&self.folder, DRAFT, flags, Mode::from_raw_mode(0o600))?;
            // The writer renames it before this lock is granted. A file system may not support
            // locks.
            let _ = fs::flock(&file, FlockOperation::LockExclusive);
            let stat = fs::fstat(&file)?;
            let named = fs::statat(&self.folder, DRAFT, AtFlags::SYMLINK_NOFOLLOW);
            if !named.is_ok_and(|named| FileId::of(&named) == FileId::of(&stat)) {
                continue;
            }
            if stat.st_size == 0 && stat.st_nlink == 1 && stat.st_mode & 0o777 == 0o600 {
                return Ok(File::from(file));
            }
            fs::unlinkat(&self.folder, DRAFT, AtFlags::empty())?;
        }
    }
}

/// Reads a secret that the user named.
///
/// # Errors
/// As [`Home::read`]; and if there is none.
pub fn read(path: &Path) -> Result<String, SecretError> {
    let file = fs::openat(CWD, path, READ, Mode::empty())
        .map_err(|error| io_error("read", path)(error.into()))?;
    Ok(text(path, File::from(file), secret)?.text)
}

/// Reads a file that others may read and only its owner may change, if there is one.
///
/// # Errors
/// If it cannot be read, is no text, or others may change it.
pub fn read_public(path: &Path) -> Result<Option<String>, SecretError> {
    match fs::openat(CWD, path, READ, Mode::empty()) {
        Ok(file) => Ok(Some(text(path, File::from(file), unchangeable)?.text)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(io_error("read", path)(error.into())),
    }
}

fn open(folder: &File, name: &OsStr) -> Result<File, Errno> {
    fs::openat(folder, name, READ, Mode::empty()).map(File::from)
}

fn text(
    path: &Path,
    file: File,
    allowed: impl Fn(&Path, &Metadata) -> Result<(), SecretError>,
) -> Result<Text, SecretError> {
    let metadata = file.metadata().map_err(io_error("read", path))?;
    regular(path, &metadata)?;
    ours(path, &metadata)?;
    allowed(path, &metadata)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(io_error("read", path))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(bad(path, format!("is longer than {MAX_FILE} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| bad(path, "is not text".to_owned()))?;
    Ok(Text {
        text,
        modified_s: metadata.mtime(),
        stamp: Stamp::of(&metadata),
    })
}

/// Refuses other than regular files: a pipe may never be written to, and a device never end.
/// `/dev/null` counts as an empty file.
fn regular(path: &Path, metadata: &Metadata) -> Result<(), SecretError> {
    let null = || std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == metadata.rdev());
    if metadata.is_file() || (metadata.rdev() != 0 && null()) {
        return Ok(());
    }
    Err(bad(path, "is not a file".to_owned()))
}

/// Refuses what belongs to another user, who could change it at any time.
fn ours(path: &Path, metadata: &Metadata) -> Result<(), SecretError> {
    let us = geteuid().as_raw();
    if metadata.uid() == us || metadata.uid() == 0 {
        return Ok(());
    }
    let owner = metadata.uid();
    Err(bad(
        path,
        format!(
            "belongs to user {owner}, neither to us (user {us}) nor to root: `chown {us} {}`",
            word(path)
        ),
    ))
}

/// Refuses a secret that others may read.
fn secret(path: &Path, metadata: &Metadata) -> Result<(), SecretError> {
    if metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let mode = metadata.mode() & 0o777;
    Err(bad(
        path,
        format!(
            "may be read by others (mode {mode:o}): `chmod 600 {}`, or make a new one if somebody has",
            word(path)
        ),
    ))
}

/// Refuses files that others may write to. Writes to a device (`/dev/null`) do not stay there, so
/// it is accepted.
fn unchangeable(path: &Path, metadata: &Metadata) -> Result<(), SecretError> {
    if metadata.mode() & 0o022 == 0 || !(metadata.is_file() || metadata.is_dir()) {
        return Ok(());
    }
    let mode = metadata.mode() & 0o777;
    Err(bad(
        path,
        format!(
            "may be changed by others (mode {mode:o}): `chmod go-w {}`",
            word(path)
        ),
    ))
}

fn bad(path: &Path, problem: String) -> SecretError {
    SecretError::Bad {
        path: path.to_owned(),
        problem,
    }
}

/// A path as a shell takes it.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+,:@%-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SecretError {
    let path = path.to_owned();
    move |source| SecretError::Io {
        attempt,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs as std_fs;
    use std::os::unix::fs::PermissionsExt;

    fn permit(path: &Path, mode: u32) {
        std_fs::set_permissions(path, std_fs::Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn what_others_may_read_is_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("it's a token");
        std_fs::write(&path, "words").expect("written");
        for mode in [0o604, 0o640, 0o602, 0o610, 0o644, 0o777] {
            permit(&path, mode);
            let error = read(&path).expect_err("others may").to_string();
            let command = format!(r"chmod 600 '{}/it'\''s a token'", folder.path().display());
            assert!(error.contains(&format!("mode {mode:o}")), "{error}");
            assert!(error.contains(&command), "{error}");
        }
        for mode in [0o600, 0o400, 0o700] {
            permit(&path, mode);
            assert_eq!(read(&path).expect("ours alone"), "words");
        }
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for mode in [0o770, 0o702, 0o777] {
            permit(folder.path(), mode);
            let error = Home::make(folder.path())
                .expect_err("others may")
                .to_string();
            assert!(error.contains("chmod go-w"), "{error}");
        }
        permit(folder.path(), 0o755);
        assert!(Home::make(folder.path()).is_ok());
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone_and_the_first_one_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/home");
        let home = Home::make(&path).expect("made");
        home.create("secret", "first").expect("written");
        home.create("secret", "second").expect("passed over");
        let contents = |name: &str| home.read(name).expect("readable").map(|text| text.text);
        assert_eq!(contents("secret").as_deref(), Some("first"));
        let before = home.stamp("secret");
        home.replace("secret", "third").expect("written");
        assert_eq!(contents("secret").as_deref(), Some("third"));
        assert_ne!(home.stamp("secret"), before);
        assert_eq!(contents("absent"), None);
        assert_eq!(home.stamp("absent"), None);
        let mode = |path: &Path| std_fs::metadata(path).expect("it exists").mode() & 0o7777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("secret")), 0o600);
        assert_eq!(std_fs::read_dir(&path).expect("there").count(), 1);
        assert!(home.remove("secret").expect("removed"));
        assert!(!home.remove("secret").expect("gone"));
    }

    #[test]
    fn what_a_killed_process_left_is_gone_after_the_next_write_and_none_of_it_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(folder.path()).expect("there");
        let names = || -> Vec<_> {
            let entries = std_fs::read_dir(folder.path()).expect("there");
            entries
                .map(|entry| entry.expect("an entry").file_name())
                .collect()
        };
        // A process killed while it wrote, or after it had linked the final name but not yet
        // removed the draft's.
        let elsewhere = folder.path().join("secret");
        for kill in [
            (|draft, _| std_fs::write(draft, "half of a long secret").expect("written"))
                as fn(&Path, &Path),
            |draft, elsewhere| std_fs::hard_link(elsewhere, draft).expect("a link"),
        ] {
            home.replace("secret", "whole").expect("written");
            kill(&folder.path().join(DRAFT), &elsewhere);
            home.replace("other", "new").expect("written");
            let text = |name| home.read(name).expect("readable").expect("there").text;
            assert_eq!(
                (text("secret").as_str(), text("other").as_str()),
                ("whole", "new")
            );
            assert_eq!(names().len(), 2, "{:?}", names());
            assert!(home.remove("other").expect("removed"));
        }
        // Writers at the same time wait for each other, and leave nothing.
        std::thread::scope(|scope| {
            for number in 0..4 {
                let home = &home;
                scope.spawn(move || {
                    for _ in 0..5 {
                        let name = format!("{number}");
                        home.replace(&name, &name).expect("written");
                    }
                });
            }
        });
        for number in 0..4 {
            let name = format!("{number}");
            assert_eq!(home.read(&name).expect("ours").expect("there").text, name);
        }
        assert_eq!(names().len(), 5, "{:?}", names());
    }

    #[test]
    fn a_writer_leaves_the_draft_of_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(folder.path()).expect("there");
        let next = folder.path().join(DRAFT);
        let renamed = home.write("secret", "whole", |draft| {
            fs::renameat(&home.folder, draft, &home.folder, "secret")?;
            std_fs::write(&next, "of the next writer").expect("written");
            Ok(())
        });
        renamed.expect("written");
        assert!(next.exists());
    }

    #[test]
    fn only_one_at_a_time_changes_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(folder.path()).expect("there");
        let lock = home.lock().expect("nobody else");
        let (send, receive) = std::sync::mpsc::channel();
        let path = folder.path().to_owned();
        let other = std::thread::spawn(move || {
            let home = Home::make(&path).expect("there");
            let _lock = home.lock().expect("in time");
            send.send(()).expect("somebody waits");
        });
        let wait = std::time::Duration::from_millis(100);
        assert!(receive.recv_timeout(wait).is_err(), "it has not waited");
        drop(lock);
        receive.recv().expect("it goes on");
        other.join().expect("it ends");
    }
}
