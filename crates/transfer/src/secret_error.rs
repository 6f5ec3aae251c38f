//! Why a key, a token, or the folder that keeps them cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a key or token cannot be used.
#[derive(Debug, Error)]
pub enum SecretError {
    /// It cannot be read or made.
    #[error("cannot {attempt} `{}`: {source}", path.display())]
    Io {
        /// The attempted operation.
        attempt: &'static str,
        /// Which file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// It can be read, and makes no sense or is not safe.
    #[error("`{}` {problem}", path.display())]
    Bad {
        /// Which file.
        path: PathBuf,
        /// The fault in it.
        problem: String,
    },
    /// A token or fingerprint given as text makes no sense.
    #[error("{0}")]
    Text(String),
    /// The system gives no random numbers, or the key cannot be made.
    #[error("cannot make a key: {0}")]
    Make(String),
}
