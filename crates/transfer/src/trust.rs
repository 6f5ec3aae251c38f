//! Servers that a client trusts: one whose fingerprint the user gave, or one that it has connected
//! to before.
//!
//! The file of known hosts has a line for each: `HOST:PORT FINGERPRINT`, `#` beginning a comment. A host
//! is entered when it is met for the first time; one whose fingerprint has changed is refused until the
//! user removes its line.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::private;
use super::secret_error::SecretError;
use super::secrets::Fingerprint;

/// The servers that a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The server with this fingerprint.
    Pinned(Fingerprint),
    /// The hosts of this file, and any other on first use.
    KnownHosts(PathBuf),
}

/// A host's entry in the file of known hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The line, from 1.
    pub line: usize,
}

/// The file of known hosts cannot be used.
#[derive(Debug, Error)]
pub enum KnownHostsError {
    /// It cannot be read or written.
    #[error("cannot {attempt} the known hosts in `{}`: {source}", path.display())]
    Io {
        /// The attempted operation.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// It is not reliable: others may change it.
    #[error(transparent)]
    Unsafe(SecretError),
    /// A line makes no sense.
    #[error("known hosts `{}`, line {line}: expected `HOST:PORT FINGERPRINT`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// Looks a host up; `host` is `HOST:PORT`, in lower case.
///
/// # Errors
/// If the file cannot be read, others may change it, or it has a line that makes no sense: passing over one
/// could mean to trust a stranger.
pub fn find(path: &Path, host: &str) -> Result<Option<KnownHost>, KnownHostsError> {
    let text = match private::read_public(path) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(SecretError::Io { source, .. }) => {
            return Err(KnownHostsError::Io {
                attempt: "read",
                path: path.to_owned(),
                source,
            });
        }
        Err(error) => return Err(KnownHostsError::Unsafe(error)),
    };
    let mut entry = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let parsed = line
            .split_once(char::is_whitespace)
            .and_then(|(name, print)| Some((name, print.trim().parse().ok()?)));
        match parsed {
            Some((name, fingerprint)) if name == host => {
                entry = entry.or(Some(KnownHost {
                    fingerprint,
                    line: index + 1,
                }));
            }
            Some(_) => {}
            None => {
                return Err(KnownHostsError::Line {
                    path: path.to_owned(),
                    line: index + 1,
                });
            }
        }
    }
    Ok(entry)
}

/// Enters a host that is not in the file yet.
///
/// # Errors
/// If the file cannot be written.
pub fn add(path: &Path, host: &str, fingerprint: Fingerprint) -> Result<(), KnownHostsError> {
    let write = || -> io::Result<()> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        // A last line without an end must not swallow ours.
        let torn = fs::read(path).is_ok_and(|text| text.last().is_some_and(|&end| end != b'\n'));
        let start = if torn { "\n" } else { "" };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        // One write: two processes that append at once do not tear each other's lines.
        file.write_all(format!("{start}{host} {fingerprint}\n").as_bytes())
    };
    write().map_err(|source| KnownHostsError::Io {
        attempt: "write",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_host_is_found_once_entered_and_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/known_hosts");
        let (a, b) = (Fingerprint::of(b"a"), Fingerprint::of(b"b"));
        assert_eq!(find(&path, "a:1").expect("no file"), None);
        add(&path, "a:1", a).expect("written");
        let mut text = fs::read_to_string(&path).expect("written");
        text.push_str("# a comment\n\n   c:3\t");
        text.push_str(&b.to_string());
        fs::write(&path, text).expect("written");
        add(&path, "b:2", b).expect("written");
        let lookup = |host: &str| find(&path, host).expect("readable");
        assert_eq!(
            lookup("a:1").map(|entry| (entry.fingerprint, entry.line)),
            Some((a, 1))
        );
        assert_eq!(
            lookup("c:3").map(|entry| (entry.fingerprint, entry.line)),
            Some((b, 4))
        );
        assert_eq!(
            lookup("b:2").map(|entry| (entry.fingerprint, entry.line)),
            Some((b, 5))
        );
        assert_eq!(lookup("a:2"), None);
    }

    #[test]
    fn a_file_that_others_may_change_says_nothing_about_anybody() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("known_hosts");
        add(&path, "a:1", Fingerprint::of(b"a")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
        let error = find(&path, "a:1").expect_err("others may write to it");
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        assert!(find(&path, "a:1").expect("readable").is_some());
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("known_hosts");
        fs::write(&path, "# fine\nhost:1 nonsense\n").expect("written");
        let error = find(&path, "x:1").expect_err("the second line");
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
