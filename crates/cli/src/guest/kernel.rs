//! The guest's kernel, which `verus virtual build` builds into the user's cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use verus_channel::recordings;

use crate::failure::Failure;

/// The environment variable with the path of another kernel.
const VARIABLE: &str = "VERUS_UML";
/// Its place in the cache.
const PLACE: &str = "virtual/linux";
/// Largest description that is read, bytes.
const MOST_BYTES: u64 = 1 << 16;

/// A kernel that can be run.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The program.
    pub path: PathBuf,
    /// Digest of the program.
    pub sha256: String,
    description: Description,
}

/// Description by `verus virtual build` (`linux.json` beside the program).
#[derive(Clone, Debug, Default, Deserialize)]
struct Description {
    #[serde(default)]
    congestion_controls: Option<Vec<String>>,
}

impl Kernel {
    /// The kernel in the cache, or the one of `VERUS_UML`.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn find() -> Result<Self, Failure> {
        let path = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => recordings::cache_dir()
                .ok_or_else(|| {
                    Failure::usage(
                        "virtual time takes a guest kernel, and there is no cache: set VERUS_CACHE to a folder",
                    )
                })?
                .join(PLACE),
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        let sha256 = digest(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::usage(format_args!(
                "virtual time takes a guest kernel, and `{}` is not there: `verus virtual build` builds it",
                path.display()
            )),
            _ => Failure::usage(format_args!("the guest kernel `{}`: {error}", path.display())),
        })?;
        let description = describe(&path.with_extension("json")).unwrap_or_default();
        Ok(Kernel {
            path,
            sha256,
            description,
        })
    }

    /// Names of its congestion controls, if they are known.
    pub fn congestion_controls(&self) -> Option<&[String]> {
        self.description.congestion_controls.as_deref()
    }
}

fn digest(path: &Path) -> io::Result<String> {
    let digest = Sha256::digest(fs::read(path)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn describe(path: &Path) -> Option<Description> {
    if fs::metadata(path).ok()?.len() > MOST_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
