//! Why one end will not, or cannot, do what the other asked: a reason that programs understand and a
//! sentence that people do.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::printable::printable;

/// Longest sentence that goes over the wire, in bytes.
pub const MAX_DETAIL: usize = 512;

/// The kinds of trouble a transfer can have at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// No such file or folder.
    NotFound,
    /// The path, or a symbolic link on it, leads out of the folder.
    Outside,
    /// A name that cannot be used.
    BadName,
    /// Other than a file or folder: a socket, a device, a pipe, a symbolic link.
    NotAFile,
    /// There is a folder in place of a file, or a file in place of a folder.
    InTheWay,
    /// It exists with other contents, and was not to be replaced.
    Exists,
    /// Another transfer is writing the same file.
    Busy,
    /// A newer transfer of the same file has taken over.
    Superseded,
    /// The server takes no files.
    ReadOnly,
    /// It may not be read.
    Unreadable,
    /// It may not be written.
    Unwritable,
    /// The disk is full, or a quota used up.
    NoSpace,
    /// The file changed while it was sent.
    Changed,
    /// The data received differ from the data sent.
    Damaged,
    /// The file system failed in another way.
    Storage,
    /// The other end did not keep to the protocol.
    Protocol,
    /// The other end was silent for too long.
    Silent,
}

/// A refusal: the reason and a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of trouble.
    pub reason: Reason,
    /// The trouble in words.
    pub detail: String,
}

impl Refusal {
    /// A refusal in these words.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Refusal {
            reason,
            detail: detail.into(),
        }
    }

    /// Converts an error of a file system operation; `attempt` describes the operation ("cannot
    /// write").
    pub fn from_io(attempt: &str, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let refuse = |reason, text: &str| Refusal::new(reason, text);
        match error.kind() {
            Kind::NotFound => refuse(Reason::NotFound, "no such file or folder"),
            // An error of ours, which carries its own text.
            Kind::PermissionDenied if error.get_ref().is_some() => {
                let may_read = !attempt.contains("read");
                let reason = if may_read {
                    Reason::Unwritable
                } else {
                    Reason::Unreadable
                };
                refuse(reason, &format!("{attempt}: {error}"))
            }
            Kind::PermissionDenied if attempt.contains("read") => {
                refuse(Reason::Unreadable, "it may not be read: permission denied")
            }
            Kind::PermissionDenied => {
                refuse(Reason::Unwritable, &format!("{attempt}: permission denied"))
            }
            Kind::ReadOnlyFilesystem => refuse(
                Reason::Unwritable,
                &format!("{attempt}: the file system is read-only"),
            ),
            Kind::StorageFull => refuse(Reason::NoSpace, "the disk is full"),
            Kind::QuotaExceeded => refuse(Reason::NoSpace, "the disk quota is used up"),
            Kind::FileTooLarge => refuse(
                Reason::NoSpace,
                "the file is larger than the file system or a limit allows",
            ),
            Kind::NotADirectory => {
                refuse(Reason::InTheWay, "a file stands where a folder is needed")
            }
            Kind::IsADirectory => {
                refuse(Reason::InTheWay, "a folder stands where a file is needed")
            }
            // RESOLVE_BENEATH; a walk without it meets the link itself.
            Kind::CrossesDevices => refuse(
                Reason::Outside,
                "a symbolic link on the path leads out of the folder",
            ),
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => refuse(
                Reason::Outside,
                "a symbolic link stands where a file or folder is needed",
            ),
            Kind::InvalidFilename => {
                refuse(Reason::BadName, "the file system does not take the name")
            }
            _ => refuse(Reason::Storage, &format!("{attempt}: {error}")),
        }
    }

    /// As it may go over the wire: not too long.
    #[must_use]
    pub fn for_wire(&self) -> Self {
        let mut end = self.detail.len().min(MAX_DETAIL);
        while !self.detail.is_char_boundary(end) {
            end -= 1;
        }
        Refusal::new(self.reason, &self.detail[..end])
    }

    /// The same with more to say.
    #[must_use]
    pub fn and(mut self, more: impl fmt::Display) -> Self {
        self.detail = format!("{}; {more}", self.detail);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A peer's words are shown to a person.
        f.write_str(&printable(self.detail.as_bytes()))
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_link_that_leaves_are_told_apart() {
        let of = |errno: rustix::io::Errno| {
            Refusal::from_io("cannot write", &io::Error::from(errno)).reason
        };
        assert_eq!(of(rustix::io::Errno::NOSPC), Reason::NoSpace);
        assert_eq!(of(rustix::io::Errno::DQUOT), Reason::NoSpace);
        assert_eq!(of(rustix::io::Errno::XDEV), Reason::Outside);
        assert_eq!(of(rustix::io::Errno::LOOP), Reason::Outside);
        assert_eq!(of(rustix::io::Errno::ACCESS), Reason::Unwritable);
        assert_eq!(of(rustix::io::Errno::ROFS), Reason::Unwritable);
        assert_eq!(of(rustix::io::Errno::IO), Reason::Storage);
    }

    #[test]
    fn what_goes_over_the_wire_is_short_and_whole_letters() {
        let long = Refusal::new(Reason::Storage, "ß".repeat(1000)).for_wire();
        assert_eq!(long.detail.len(), MAX_DETAIL);
        assert_eq!(
            Refusal::new(Reason::Storage, "x\x1b[1m").to_string(),
            "x\\u{1b}[1m"
        );
    }
}
