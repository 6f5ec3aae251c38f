//! The audit log: a JSON object for each transfer (client, file, result), in a file that no other user can change.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::plain;

/// The version of a line.
const SCHEMA: u32 = 1;

/// An open log. A failure to write is reported once, and the server goes on.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: File,
    /// The last line is incomplete, from this process or an earlier one.
    torn: bool,
    failing: bool,
}

impl Audit {
    /// Opens a log, or begins it, for its owner alone. It is open before rights are given up, so that it may
    /// lie where the server could not write otherwise.
    ///
    /// # Errors
    /// If it cannot be opened, or another user may change it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let cannot = |why: &dyn std::fmt::Display| {
            Failure::usage(format_args!("--audit `{}`: {why}", path.display()))
        };
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let file =
            openat(CWD, path, flags, Mode::from_raw_mode(0o600)).map_err(|error| match error {
                rustix::io::Errno::LOOP => cannot(&"it is a symbolic link; name the file itself"),
                error => cannot(&io::Error::from(error)),
            })?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(|error| cannot(&error))?;
        if !metadata.is_file() {
            return Err(cannot(&"it is not a file"));
        }
        if metadata.uid() != geteuid().as_raw() {
            let why = format!("it belongs to another user ({})", metadata.uid());
            return Err(cannot(&why));
        }
        if metadata.mode() & 0o022 != 0 {
            let mode = metadata.mode() & 0o777;
            let why = format!("others may change it (mode {mode:o}): `chmod 600` it");
            return Err(cannot(&why));
        }
        let mut last = [b'\n'];
        if let Some(at) = metadata.size().checked_sub(1) {
            file.read_exact_at(&mut last, at)
                .map_err(|error| cannot(&error))?;
        }
        Ok(Audit {
            path: path.to_owned(),
            file,
            torn: last != [b'\n'],
            failing: false,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line, with the time. Reports on standard error when writing begins to fail.
    pub fn write(&mut self, what: &Value) {
        let mut line = json!({
            "schema": SCHEMA,
            "time": humantime::format_rfc3339_millis(super::now()).to_string(),
        });
        if let (Some(line), Some(what)) = (line.as_object_mut(), what.as_object()) {
            line.extend(what.clone());
        }
        let start = if self.torn { "\n" } else { "" };
        // One write: two servers that share a log do not tear each other's lines.
        let line = format!("{start}{}\n", plain::json(&line));
        let written = self.file.write_all(line.as_bytes());
        self.torn = written.is_err();
        if let Err(error) = &written
            && !self.failing
        {
            Failure::run(format_args!(
                "cannot write the audit log `{}`: {error}; the server goes on without it",
                self.path.display()
            ))
            .report();
        }
        self.failing = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn lines_are_added_whole_behind_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        fs::write(&path, "{\"torn\":").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        for number in 0..2 {
            let mut audit = Audit::open(&path).expect("ours");
            audit.write(&json!({"number": number}));
            audit.write(&json!({"again": number}));
        }
        let text = fs::read_to_string(&path).expect("written");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        for (line, key) in lines[1..]
            .iter()
            .zip(["number", "again", "number", "again"])
        {
            let line: Value = serde_json::from_str(line).expect("whole");
            assert!(line[key].is_number() && line["schema"] == 1, "{line}");
        }
    }

    #[test]
    fn a_full_disk_ends_nothing_and_no_line_is_torn_by_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        let mut audit = Audit::open(&path).expect("made");
        let mut full = File::options();
        let full = full.write(true).open("/dev/full").expect("Linux has it");
        let disk = std::mem::replace(&mut audit.file, full);
        audit.write(&json!({"lost": 1}));
        assert!(audit.failing && audit.torn);
        audit.file = disk;
        audit.write(&json!({"kept": 1}));
        assert!(!audit.failing && !audit.torn);
        let text = fs::read_to_string(&path).expect("written");
        let last = text.lines().last().expect("a line");
        let line: Value = serde_json::from_str(last).expect("whole");
        assert_eq!(line["kept"], 1);
    }

    #[test]
    fn a_log_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        Audit::open(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("made").mode() & 0o777, 0o600);
        symlink(&path, folder.path().join("link")).expect("a link");
        Audit::open(&folder.path().join("link")).expect_err("a link");
        Audit::open(folder.path()).expect_err("a folder");
        Audit::open(Path::new("/dev/null")).expect_err("a device");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).expect("ours");
        Audit::open(&path).expect_err("others may write to it");
    }
}
