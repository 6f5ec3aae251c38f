//! The messages of the file protocol, and how they lie on a stream.
//!
//! Each is `length` (two bytes, little-endian) and that many bytes of postcard, no more than
//! [`MAX_FRAME`]. A version of the protocol is a name in the TLS handshake ([`ALPN`]); there is no
//! other version field. `docs/transfer.md` says who sends what when.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::digest::{BLOCK, Digest, MAX_SIZE};
use super::paths::MAX_PATH;
use super::refusal::{MAX_DETAIL, Refusal};

/// The protocol's name in the TLS handshake (ALPN).
pub const ALPN: &[u8] = b"verus-transfer/1";

/// Longest message, in bytes.
pub const MAX_FRAME: usize = 8 * 1024;

/// The most bytes of a file that follow one [`Supply::Data`].
pub const MAX_RUN: u64 = 4 * BLOCK;

/// The first message of a stream, from the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Opens the connection; the first stream and no other.
    Hello {
        /// Proves that the client knows the token: see [`secrets`](super::secrets).
        proof: Option<Digest>,
    },
    /// Lists the entries at a path: a file, or a folder with its whole contents.
    List {
        /// Its path.
        path: Vec<u8>,
    },
    /// Gets a file.
    Get {
        /// Its path.
        path: Vec<u8>,
    },
    /// Puts a file.
    Put {
        /// The destination.
        path: Vec<u8>,
        /// Its size, time and permission.
        file: FileInfo,
        /// Whether it may replace one with other contents.
        replace: bool,
    },
    /// Makes a folder, and those it is in; no harm if it exists.
    MakeFolder {
        /// Its path.
        path: Vec<u8>,
    },
}

/// A file without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its size in bytes.
    pub size: u64,
    /// When its contents last changed.
    pub modified: Option<Modified>,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// A time of modification, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds, less than 10⁹: larger numbers have other meanings for `utimensat`.
    pub nanos: u32,
}

/// The server's answers to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Hello`.
    Welcome {
        /// Proves that the server knows the token, too.
        proof: Option<Digest>,
        /// Whether it takes files from this client.
        writable: bool,
    },
    /// To `List`: a file. `path` is relative to the requested one, and empty for that itself.
    File {
        /// Its path.
        path: Vec<u8>,
        /// Its size, time and permission.
        file: FileInfo,
    },
    /// To `List`: a folder; it comes before its contents.
    Folder {
        /// Its path.
        path: Vec<u8>,
    },
    /// To `List`: something that cannot be had.
    Unavailable {
        /// Its path.
        path: Vec<u8>,
        /// Why not.
        why: Refusal,
    },
    /// To `List`: the end of the entries.
    EndOfList,
    /// To `Get`: the file follows, by [`Demand`] and [`Supply`].
    Offer {
        /// Its size, time and permission.
        file: FileInfo,
    },
    /// To `MakeFolder`.
    Made,
    /// To any request: a refusal.
    Refused(Refusal),
}

/// Messages from the receiver of a file to its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Demand {
    /// The first `bytes` of something are here already, perhaps none; their pieces' digests follow.
    Check {
        /// Whether the target or an unfinished file is compared.
        subject: Subject,
        /// How much of it.
        bytes: u64,
    },
    /// The digest of the next piece.
    Piece(Digest),
    /// The end of the digests: no further pieces, or their result does not matter. After those of
    /// an unfinished file, the data follow from the end of the part that is the same.
    EndOfPieces,
    /// Progress: the file is written up to this position.
    Received {
        /// How far, in bytes from the beginning.
        position: u64,
    },
    /// The file is whole, at its place, and on the disk.
    Done,
    /// The file cannot be completed.
    Failed(Refusal),
}

/// The file at the receiver to compare with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// A finished file of the same size at its place: perhaps the very same.
    Target,
    /// An unfinished one from an earlier attempt.
    Part,
}

/// Messages from the sender of a file to its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Supply {
    /// Whether a piece is the same here. None follows for the pieces after one that is not.
    Same(bool),
    /// `length` bytes of the file follow this message. The bytes between the end of the last data
    /// and `at` are zero.
    Data {
        /// Where they belong: a multiple of [`BLOCK`].
        at: u64,
        /// How many: a multiple of [`BLOCK`], unless they end the file; at most [`MAX_RUN`].
        length: u64,
    },
    /// The rest is zero; this is the digest of the file.
    End {
        /// See [`digest`](super::digest).
        digest: Digest,
    },
    /// The transfer ends incomplete.
    Failed(Refusal),
}

/// Why bytes are not a valid message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Longer than any message may be.
    #[error("a message of {0} bytes; {MAX_FRAME} are allowed")]
    TooLong(usize),
    /// Bytes that postcard cannot read as this kind of message.
    #[error("a message that cannot be read as {0}")]
    Malformed(&'static str),
    /// A field with an impossible value.
    #[error("a message whose {0} cannot be")]
    Impossible(&'static str),
}

/// A message that can be read from a peer's bytes and checked.
pub trait Frame: Serialize + DeserializeOwned {
    /// The message type's name in errors.
    const NAME: &'static str;

    /// Checks the limits that postcard alone does not.
    ///
    /// # Errors
    /// Names the field.
    fn check(&self) -> Result<(), FrameError>;
}

/// Reads a message from its bytes, without the length before them.
///
/// # Errors
/// If it is too long, malformed, followed by more, or says what cannot be.
pub fn decode<F: Frame>(bytes: &[u8]) -> Result<F, FrameError> {
    if bytes.len() > MAX_FRAME {
        return Err(FrameError::TooLong(bytes.len()));
    }
    match postcard::take_from_bytes::<F>(bytes) {
        Ok((frame, [])) => {
            frame.check()?;
            Ok(frame)
        }
        _ => Err(FrameError::Malformed(F::NAME)),
    }
}

/// A message as it lies on a stream: its length, then its bytes.
///
/// # Errors
/// If it is longer than any message may be.
pub fn encode<F: Frame>(frame: &F) -> Result<Vec<u8>, FrameError> {
    let bytes =
        postcard::to_extend(frame, vec![0; 2]).map_err(|_| FrameError::Malformed(F::NAME))?;
    let length = bytes.len() - 2;
    match u16::try_from(length) {
        Ok(short) if length <= MAX_FRAME => {
            let mut bytes = bytes;
            bytes[..2].copy_from_slice(&short.to_le_bytes());
            Ok(bytes)
        }
        _ => Err(FrameError::TooLong(length)),
    }
}

fn require(holds: bool, field: &'static str) -> Result<(), FrameError> {
    if holds {
        Ok(())
    } else {
        Err(FrameError::Impossible(field))
    }
}

fn check_path(path: &[u8]) -> Result<(), FrameError> {
    require(path.len() <= MAX_PATH, "path")
}

fn check_refusal(refusal: &Refusal) -> Result<(), FrameError> {
    require(refusal.detail.len() <= MAX_DETAIL, "reason")
}

impl FileInfo {
    fn check(&self) -> Result<(), FrameError> {
        require(self.size <= MAX_SIZE, "size")?;
        require(
            self.modified.is_none_or(|time| time.nanos < 1_000_000_000),
            "time of modification",
        )
    }
}

impl Frame for Request {
    const NAME: &'static str = "a request";

    fn check(&self) -> Result<(), FrameError> {
        match self {
            Request::Hello { .. } => Ok(()),
            Request::List { path } | Request::Get { path } | Request::MakeFolder { path } => {
                check_path(path)
            }
            Request::Put { path, file, .. } => {
                check_path(path)?;
                file.check()
            }
        }
    }
}

impl Frame for Answer {
    const NAME: &'static str = "an answer";

    fn check(&self) -> Result<(), FrameError> {
        match self {
            Answer::Welcome { .. } | Answer::EndOfList | Answer::Made => Ok(()),
            Answer::Folder { path } => check_path(path),
            Answer::File { path, file } => {
                check_path(path)?;
                file.check()
            }
            Answer::Unavailable { path, why } => {
                check_path(path)?;
                check_refusal(why)
            }
            Answer::Offer { file } => file.check(),
            Answer::Refused(refusal) => check_refusal(refusal),
        }
    }
}

impl Frame for Demand {
    const NAME: &'static str = "a demand";

    fn check(&self) -> Result<(), FrameError> {
        match self {
            Demand::Check { bytes, .. } => require(*bytes <= MAX_SIZE, "number of bytes"),
            Demand::Received { position } => require(*position <= MAX_SIZE, "position"),
            Demand::Failed(refusal) => check_refusal(refusal),
            Demand::Piece(_) | Demand::EndOfPieces | Demand::Done => Ok(()),
        }
    }
}

impl Frame for Supply {
    const NAME: &'static str = "a supply";

    fn check(&self) -> Result<(), FrameError> {
        match self {
            Supply::Data { at, length } => {
                require(at.is_multiple_of(BLOCK) && *at <= MAX_SIZE, "place of data")?;
                require((1..=MAX_RUN).contains(length), "length of data")
            }
            Supply::Failed(refusal) => check_refusal(refusal),
            Supply::Same(_) | Supply::End { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Reason;

    fn survives<F: Frame + PartialEq + std::fmt::Debug>(frame: &F) {
        let bytes = encode(frame).expect("it is short");
        assert_eq!(
            usize::from(u16::from_le_bytes([bytes[0], bytes[1]])),
            bytes.len() - 2
        );
        assert_eq!(&decode::<F>(&bytes[2..]).expect("it was just made"), frame);
        for cut in 2..bytes.len() {
            assert!(decode::<F>(&bytes[2..cut]).is_err(), "cut at {cut}");
        }
        let mut longer = bytes[2..].to_vec();
        longer.push(0);
        assert!(decode::<F>(&longer).is_err(), "followed by more");
    }

    #[test]
    fn messages_survive_the_wire_and_nothing_else_does() {
        let file = FileInfo {
            size: 1 << 40,
            modified: Some(Modified {
                seconds: -5,
                nanos: 999_999_999,
            }),
            executable: true,
        };
        let path = vec![b'x'; MAX_PATH];
        survives(&Request::Hello {
            proof: Some([7; 32]),
        });
        survives(&Request::Put {
            path: path.clone(),
            file,
            replace: true,
        });
        survives(&Answer::Unavailable {
            path,
            why: Refusal::new(Reason::NotAFile, "a socket"),
        });
        survives(&Answer::Offer { file });
        survives(&Demand::Check {
            subject: Subject::Part,
            bytes: 12,
        });
        survives(&Demand::Piece([9; 32]));
        survives(&Supply::Data {
            at: 3 * BLOCK,
            length: MAX_RUN,
        });
        survives(&Supply::End { digest: [1; 32] });
    }

    #[test]
    fn fields_that_cannot_be_are_refused() {
        let bytes = |frame: &Supply| encode(frame).expect("short")[2..].to_vec();
        for (at, length) in [
            (1, BLOCK),
            (0, 0),
            (0, MAX_RUN + 1),
            (u64::MAX - 65535, BLOCK),
        ] {
            let data = bytes(&Supply::Data { at, length });
            assert!(
                matches!(decode::<Supply>(&data), Err(FrameError::Impossible(_))),
                "{at} {length}"
            );
        }
        let put = encode(&Request::Put {
            path: Vec::new(),
            file: FileInfo {
                size: 0,
                modified: Some(Modified {
                    seconds: 0,
                    nanos: 0x3fff_ffff, // UTIME_NOW
                }),
                executable: false,
            },
            replace: false,
        })
        .expect("short");
        assert_eq!(
            decode::<Request>(&put[2..]),
            Err(FrameError::Impossible("time of modification"))
        );
    }

    #[test]
    fn a_long_message_is_refused_at_both_ends() {
        let long = Answer::Refused(Refusal::new(Reason::Storage, "x".repeat(MAX_FRAME)));
        assert!(matches!(encode(&long), Err(FrameError::TooLong(_))));
        assert_eq!(
            decode::<Answer>(&vec![0; MAX_FRAME + 1]),
            Err(FrameError::TooLong(MAX_FRAME + 1))
        );
    }
}
