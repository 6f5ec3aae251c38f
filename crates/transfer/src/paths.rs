//! Relative paths from a peer, which is hostile until proven otherwise.
//!
//! A [`RelativePath`] cannot name anything outside of the folder it is applied to, as far as its
//! text goes; symbolic links are the business of [`folder`](super::folder).

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use super::printable::printable;
use super::refusal::{Reason, Refusal};

/// Longest path taken, in bytes (PATH_MAX of Linux).
pub const MAX_PATH: usize = 4096;
/// Longest name of a file or folder, in bytes. Part files add to the name, and 255 is the file
/// systems' limit.
pub const MAX_NAME: usize = 240;
/// Deepest path taken, in names. Folders are made and counted by recursion, so the stack bounds it.
pub const MAX_DEPTH: usize = 256;

/// Suffix of a file's name while it is incomplete: `.NAME.verus-part`, beside its final place.
pub const PART_SUFFIX: &str = ".verus-part";

/// A checked path below some folder: names joined by `/`. No name is empty, `.`, `..` or reserved.
/// The path is empty for the folder itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelativePath {
    bytes: Vec<u8>,
}

impl RelativePath {
    /// Checks what a peer sent.
    ///
    /// # Errors
    /// Describes the fault in the path.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut path = RelativePath::default();
        if bytes.is_empty() {
            return Ok(path);
        }
        if bytes.len() > MAX_PATH {
            return Err(Refusal::new(
                Reason::BadName,
                format!(
                    "the path is {} bytes long; {MAX_PATH} are allowed",
                    bytes.len()
                ),
            ));
        }
        if bytes.starts_with(b"/") {
            return Err(Refusal::new(
                Reason::Outside,
                "the path is absolute; it must stay inside the folder",
            ));
        }
        for name in bytes.split(|&byte| byte == b'/') {
            path.push(name)?;
        }
        Ok(path)
    }

    /// This path and one more name.
    ///
    /// # Errors
    /// Describes the fault in the name.
    pub fn join(&self, name: &OsStr) -> Result<Self, Refusal> {
        let mut path = self.clone();
        path.push(name.as_bytes())?;
        Ok(path)
    }

    /// `below`, seen from where this path starts.
    ///
    /// # Errors
    /// If both together are too long or too deep.
    pub fn append(&self, below: &RelativePath) -> Result<Self, Refusal> {
        let mut path = self.clone();
        for name in below.names() {
            path.push(name.as_bytes())?;
        }
        Ok(path)
    }

    fn push(&mut self, name: &[u8]) -> Result<(), Refusal> {
        check_name(name)?;
        let refuse = |text: String| Err(Refusal::new(Reason::BadName, text));
        if self.names().count() == MAX_DEPTH {
            return refuse(format!("the path is deeper than {MAX_DEPTH} folders"));
        }
        if self.bytes.len() + 1 + name.len() > MAX_PATH {
            return refuse(format!("the path is longer than {MAX_PATH} bytes"));
        }
        if !self.bytes.is_empty() {
            self.bytes.push(b'/');
        }
        self.bytes.extend_from_slice(name);
        Ok(())
    }

    /// Whether it names the folder itself.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The names it is made of.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.bytes
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
            .map(OsStr::from_bytes)
    }

    /// The folder it is in, and its name there; nothing for the folder itself.
    pub fn split_last(&self) -> Option<(RelativePath, &OsStr)> {
        let name = self.names().last()?;
        let end = self.bytes.len().saturating_sub(name.len() + 1);
        let parent = RelativePath {
            bytes: self.bytes[..end].to_vec(),
        };
        Some((parent, name))
    }

    /// As it goes over the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As the operating system wants it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.bytes)
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            f.write_str(".")
        } else {
            f.write_str(&printable(&self.bytes))
        }
    }
}

/// Whether a name is one that part files have.
pub fn is_part(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(PART_SUFFIX.as_bytes())
}

fn check_name(name: &[u8]) -> Result<(), Refusal> {
    let refuse = |reason, text: String| Err(Refusal::new(reason, text));
    match name {
        b"" | b"." => refuse(
            Reason::BadName,
            "the path has an empty name in it".to_owned(),
        ),
        b".." => refuse(
            Reason::Outside,
            "the path has `..` in it; it must stay inside the folder".to_owned(),
        ),
        _ if name.contains(&0) || name.contains(&b'/') => refuse(
            Reason::BadName,
            "a name with a NUL byte or a slash in it".to_owned(),
        ),
        _ if name.len() > MAX_NAME => refuse(
            Reason::BadName,
            format!("a name of {} bytes; {MAX_NAME} are allowed", name.len()),
        ),
        _ if is_part(name) => refuse(
            Reason::BadName,
            format!(
                "`{}` is a name kept for unfinished transfers",
                printable(name)
            ),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> Reason {
        RelativePath::parse(bytes)
            .expect_err("this path is bad")
            .reason
    }

    #[test]
    fn a_path_that_would_leave_the_folder_is_refused() {
        for path in [
            &b"/etc/passwd"[..],
            b"..",
            b"../x",
            b"a/../../x",
            b"a/..",
            b"/",
        ] {
            assert_eq!(reason(path), Reason::Outside, "{}", printable(path));
        }
    }

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for path in [
            &b"a//b"[..],
            b"a/",
            b"./a",
            b"a\0b",
            b".x.verus-part",
            b"d/..verus-part",
        ] {
            assert_eq!(reason(path), Reason::BadName, "{}", printable(path));
        }
        assert_eq!(reason(&[b'x'; MAX_NAME + 1]), Reason::BadName);
        assert_eq!(reason("x/".repeat(3000).as_bytes()), Reason::BadName);
        let deep = ["x"; MAX_DEPTH + 1].join("/");
        assert_eq!(reason(deep.as_bytes()), Reason::BadName);
        assert!(RelativePath::parse(&deep.as_bytes()[2..]).is_ok());
    }

    #[test]
    fn ordinary_and_odd_names_pass() {
        for path in [
            "a",
            "a/b/c.txt",
            "...",
            "..a",
            "-rf",
            "a b",
            "ü/ß",
            "x.verus-part",
            "\\",
        ] {
            let parsed = RelativePath::parse(path.as_bytes()).expect("a good path");
            assert_eq!(parsed.as_bytes(), path.as_bytes());
        }
        let (parent, name) = RelativePath::parse(b"a/b/c")
            .expect("good")
            .split_last()
            .map(|(parent, name)| (parent.to_string(), name.to_owned()))
            .expect("it has a name");
        assert_eq!((parent.as_str(), name.as_bytes()), ("a/b", &b"c"[..]));
        let (parent, _) = RelativePath::parse(b"c")
            .expect("good")
            .split_last()
            .map(|(parent, name)| (parent, name.to_owned()))
            .expect("it has a name");
        assert!(parent.is_empty());
    }
}
