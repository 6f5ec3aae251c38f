//! Drafts: a file or folder is written beside its final place, and renamed once it is complete. No
//! other user could have made it. Its folder is held open, so that links planted meanwhile have no
//! effect.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat,
};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Creates the file or fails: an existing file or link is not ours.
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// The permissions before the umask.
const ORDINARY: Mode = Mode::from_raw_mode(0o666);

/// A name for the draft of `path`, in the same folder, which cannot be guessed.
pub fn name(path: &Path) -> io::Result<OsString> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or(OsStr::new("run")));
    name.push(format!("-{:016x}.part", u64::from_ne_bytes(random)));
    Ok(name)
}

/// The folder of `path`.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A file in its place, but without its final name. It is removed when this is dropped.
#[derive(Debug)]
pub struct DraftFile {
    folder: OwnedFd,
    draft: OsString,
    name: OsString,
    published: bool,
}

impl DraftFile {
    /// Creates the empty file that becomes `path`, named `draft` in the same folder until then.
    ///
    /// # Errors
    /// If it cannot be created, or if `path` is a device, a pipe or a link in `/dev`. A file in the place of
    /// `/dev/null` would break every program that uses it.
    pub fn create(path: &Path, draft: OsString) -> io::Result<(Self, File)> {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let name = path
            .file_name()
            .ok_or_else(|| refused("it names no file"))?;
        let name = name.to_owned();
        let folder = openat(CWD, parent(path), FOLDER, Mode::empty())?;
        if let Ok(there) = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile | FileType::Directory => {}
                FileType::Symlink if parent(path) != Path::new("/dev") => {}
                _ => return Err(refused("it is a device or a pipe, and not a file")),
            }
        }
        let file = openat(&folder, &draft, NEW, ORDINARY)?;
        let draft = DraftFile {
            folder,
            draft,
            name,
            published: false,
        };
        Ok((draft, file.into()))
    }

    /// Renames the draft to its final name, and so replaces any file there.
    ///
    /// # Errors
    /// If renaming fails; the file is then deleted.
    pub fn publish(mut self) -> io::Result<()> {
        renameat(&self.folder, &self.draft, &self.folder, &self.name)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if !self.published {
            let _ = unlinkat(&self.folder, &self.draft, AtFlags::empty());
        }
    }
}

/// A folder in its place, but without its final name. It is removed with its contents when this is
/// dropped.
#[derive(Debug)]
pub struct DraftFolder {
    parent: OwnedFd,
    draft: OsString,
    name: Option<OsString>,
    folder: OwnedFd,
    files: Vec<String>,
    published: bool,
}

impl DraftFolder {
    /// Creates an empty folder that becomes `path`, and missing folders above it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let draft = name(path)?;
        std::fs::create_dir_all(parent(path))?;
        let parent = openat(CWD, parent(path), FOLDER, Mode::empty())?;
        mkdirat(&parent, &draft, Mode::RWXU)?;
        let folder = openat(&parent, &draft, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(DraftFolder {
            parent,
            draft,
            name: path.file_name().map(OsStr::to_owned),
            folder,
            files: Vec::new(),
            published: false,
        })
    }

    /// A new file in it.
    pub fn file(&mut self, name: &str) -> io::Result<File> {
        let file = openat(&self.folder, name, NEW, ORDINARY)?;
        self.files.push(name.to_owned());
        Ok(file.into())
    }

    /// Renames the draft to its final name, if that is free or an empty folder. If there is a
    /// folder with contents, the draft's files are moved there one by one. Before, `replaced`
    /// returns the names of files there to remove.
    pub fn publish(
        mut self,
        replaced: impl FnOnce(&OwnedFd) -> io::Result<Vec<String>>,
    ) -> io::Result<()> {
        self.open_to_others()?;
        if let Some(name) = &self.name
            && renameat(&self.parent, &self.draft, &self.parent, name).is_ok()
        {
            self.published = true;
            return Ok(());
        }
        // Without a name the target is the folder above (`.`, `/`); otherwise whatever has the
        // name, links included.
        let name = self.name.as_deref().unwrap_or(OsStr::new("."));
        let target = openat(&self.parent, name, FOLDER, Mode::empty())?;
        for name in replaced(&target)? {
            if !self.files.contains(&name) {
                let _ = unlinkat(&target, name, AtFlags::empty());
            }
        }
        for name in &self.files {
            renameat(&self.folder, name, &target, name)?;
        }
        Ok(())
    }

    /// Lets everybody who may read the files open the folder.
    fn open_to_others(&self) -> io::Result<()> {
        if let Some(name) = self.files.first() {
            let file = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let read = Mode::from_raw_mode(file.st_mode) & (Mode::RGRP | Mode::ROTH);
            let enter = Mode::from_raw_mode(read.as_raw_mode() >> 2);
            rustix::fs::fchmod(&self.folder, Mode::RWXU | read | enter)?;
        }
        Ok(())
    }
}

impl Drop for DraftFolder {
    fn drop(&mut self) {
        if !self.published {
            for name in &self.files {
                let _ = unlinkat(&self.folder, name, AtFlags::empty());
            }
            let _ = unlinkat(&self.parent, &self.draft, AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_no_name_before_it_is_whole_and_replaces_a_link_rather_than_what_it_points_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, precious) = (folder.path().join("log"), folder.path().join("precious"));
        fs::write(&precious, "precious").expect("a file");
        symlink(&precious, &path).expect("a link");
        let draft = name(&path).expect("random numbers");
        assert_ne!(draft, name(&path).expect("random numbers"), "none to guess");
        let (draft, mut file) = DraftFile::create(&path, draft).expect("a draft");
        file.write_all(b"whole").expect("written");
        assert!(fs::symlink_metadata(&path).expect("a link").is_symlink());
        draft.publish().expect("published");
        assert_eq!(fs::read(&path).expect("it"), b"whole");
        assert_eq!(fs::read(&precious).expect("it"), b"precious");
        assert_eq!(names(folder.path()), ["log", "precious"]);
    }

    #[test]
    fn a_device_is_not_replaced() {
        for device in ["/dev/null", "/dev/stdout"] {
            let path = Path::new(device);
            let draft = name(path).expect("random numbers");
            let error = DraftFile::create(path, draft).expect_err(device);
            assert_eq!(
                error.to_string(),
                "it is a device or a pipe, and not a file"
            );
        }
    }

    #[test]
    fn what_is_there_under_a_drafts_name_is_not_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, precious) = (folder.path().join("log"), folder.path().join("precious"));
        fs::write(&precious, "precious").expect("a file");
        for planted in ["link", "file"] {
            let draft = folder.path().join(planted);
            match planted {
                "link" => symlink(&precious, &draft).expect("a link"),
                _ => fs::write(&draft, "theirs").expect("a file"),
            }
            let error = DraftFile::create(&path, planted.into()).expect_err(planted);
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            fs::remove_file(draft).expect("still there");
        }
        assert_eq!(fs::read(&precious).expect("it"), b"precious");
    }

    #[test]
    fn drafts_that_are_given_up_leave_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        drop(DraftFile::create(&path, name(&path).expect("random numbers")).expect("a draft"));
        let mut draft = DraftFolder::create(&path).expect("a draft");
        draft.file("run.json").expect("a file");
        let mode = fs::metadata(folder.path().join(&draft.draft))
            .expect("it")
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o700, "ours alone");
        drop(draft);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_folder_takes_its_place_or_goes_into_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        for (there, expected) in [
            (None, "a"),
            (Some("empty"), "a"),
            (Some("full"), "a b"),
            (Some("link"), "a"),
        ] {
            let aim = folder.path().join("aim");
            match there {
                None => {}
                Some("link") => {
                    fs::create_dir(&aim).expect("a folder");
                    symlink(&aim, &path).expect("a link");
                }
                Some(how) => {
                    fs::create_dir(&path).expect("a folder");
                    if how == "full" {
                        fs::write(path.join("b"), "").expect("a file");
                        fs::write(path.join("old"), "").expect("a file");
                    }
                }
            }
            let mut draft = DraftFolder::create(&path).expect("a draft");
            draft
                .file("a")
                .expect("a file")
                .write_all(b"new")
                .expect("written");
            draft
                .publish(|_| Ok(vec!["old".to_owned(), "a".to_owned()]))
                .expect("published");
            let expected: Vec<&str> = expected.split(' ').collect();
            assert_eq!(names(&path), expected, "{there:?}");
            assert_eq!(fs::read(path.join("a")).expect("it"), b"new");
            let mode = fs::metadata(&path).expect("it").permissions().mode();
            assert_ne!(mode & 0o500, 0, "{mode:o}");
            fs::remove_dir_all(&aim).ok();
            fs::remove_file(&path)
                .or_else(|_| fs::remove_dir_all(&path))
                .expect("it was there");
            assert!(names(folder.path()).is_empty(), "{there:?}");
        }
    }
}
