//! Management of the disk that clients fill: the limit of the folder's size, and the removal of
//! unfinished files.
//!
//! The folder is scanned when the server starts and each hour. In between, the bytes that clients
//! add are counted. Concurrent changes can be miscounted, which the next scan corrects. A file
//! counts with its size in blocks, even if it has holes, because the amount of its data is unknown
//! until it has arrived.

use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};

use super::folder::{Folder, not_ours};
use super::paths::{MAX_DEPTH, RelativePath, is_part};
use super::refusal::{Reason, Refusal};
use super::reserved::FileId;

/// How often the folder is scanned.
pub(super) const OFTEN: Duration = Duration::from_secs(3600);
/// Bytes that the smallest file and a folder take.
const LEAST: u64 = 4096;

/// How much room the folder has; shared.
#[derive(Clone, Debug)]
pub(super) struct Room {
    limit: Option<u64>,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Bytes in the folder.
    taken: u64,
    /// Bytes reserved for transfers that are under way.
    booked: u64,
}

/// Room for a file that is being received, in addition to the bytes of it that are there. The
/// replaced file stays until the new one takes its name.
///
/// When dropped, counts the bytes that are there by then. Its owner keeps the unfinished file
/// locked from before the booking until after the drop. So nothing is counted twice or missed,
/// however many transfers write the file in turn.
#[derive(Debug)]
pub(super) struct Booked {
    room: Room,
    folder: Folder,
    /// The file's name, and the unfinished one's.
    names: [OsString; 2],
    before: u64,
    booked: u64,
}

impl Room {
    /// Room of `limit` bytes, or without a limit.
    pub(super) fn new(limit: Option<u64>) -> Self {
        Room {
            limit,
            counted: Arc::default(),
        }
    }

    /// Room without a limit.
    pub(super) fn unlimited() -> Self {
        Room::new(None)
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scans the folder: counts its bytes, and removes unfinished files that are older than `keep`.
    pub(super) fn look(&self, folder: &Folder, keep: Option<Duration>) {
        if self.limit.is_none() && keep.is_none() {
            return;
        }
        let taken = sweep(folder, keep, MAX_DEPTH);
        self.counted().taken = taken;
    }

    /// Reserves room for a file of `size` bytes in `folder`. `names` are its final name and its
    /// name while unfinished.
    ///
    /// # Errors
    /// If there is too little.
    pub(super) fn book(
        &self,
        folder: &Folder,
        names: [OsString; 2],
        size: u64,
    ) -> Result<Option<Booked>, Refusal> {
        if self.limit.is_none() {
            return Ok(None);
        }
        let before = taken_by_all(folder, &names);
        let booked = cost(size).saturating_sub(taken_by(folder, &names[1]));
        let mut counted = self.counted();
        self.check(&counted, booked)?;
        counted.booked += booked;
        Ok(Some(Booked {
            room: self.clone(),
            folder: folder.clone(),
            names,
            before,
            booked,
        }))
    }

    /// Makes the folder at `path` below `root`, and those above it that are missing, if there is room for them.
    ///
    /// # Errors
    /// If there is none, or they cannot be made.
    pub(super) fn make(&self, root: &Folder, path: &RelativePath) -> Result<Folder, Refusal> {
        let cannot = |error| Refusal::from_io("cannot make the folder", &error);
        let missing = root.missing(path).map_err(cannot)?;
        let more = LEAST * missing as u64;
        {
            let mut counted = self.counted();
            self.check(&counted, more)?;
            counted.booked += more;
        }
        let mut made = 0;
        let folder = root.make(path, &mut made);
        let mut counted = self.counted();
        counted.booked -= more;
        counted.taken += LEAST * made;
        folder.map_err(cannot)
    }

    fn check(&self, counted: &Counted, more: u64) -> Result<(), Refusal> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        let taken = counted.taken.saturating_add(counted.booked);
        if taken.saturating_add(more) <= limit {
            return Ok(());
        }
        let text = format!(
            "the server's folder may take {limit} bytes (--max-bytes), and {} are left",
            limit.saturating_sub(taken)
        );
        Err(Refusal::new(Reason::NoSpace, text))
    }
}

impl Drop for Booked {
    fn drop(&mut self) {
        let after = taken_by_all(&self.folder, &self.names);
        let mut counted = self.room.counted();
        counted.booked -= self.booked;
        counted.taken = (counted.taken + after).saturating_sub(self.before);
    }
}

/// Bytes that a file of `size` bytes takes on the disk.
fn cost(size: u64) -> u64 {
    size.max(1).div_ceil(LEAST) * LEAST
}

fn cost_of(stat: &Stat) -> u64 {
    cost(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Bytes of a file on the disk, finished and unfinished.
fn taken_by_all(folder: &Folder, names: &[OsString; 2]) -> u64 {
    names.iter().map(|name| taken_by(folder, name)).sum()
}

fn taken_by(folder: &Folder, name: &OsStr) -> u64 {
    folder.look(name).map_or(0, |stat| cost_of(&stat))
}

/// Bytes in a folder, after unfinished files older than `keep` were removed. Links are not
/// followed.
fn sweep(folder: &Folder, keep: Option<Duration>, depth: usize) -> u64 {
    let mut taken = 0_u64;
    let reserved = folder.reserved();
    for name in folder.names().unwrap_or_default() {
        let Ok(stat) = folder.look(&name) else {
            continue;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth > 0 => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                if let Ok(fd) = fs::openat(folder, &name, flags, Mode::empty()) {
                    taken = taken.saturating_add(sweep(&folder.inner(fd), keep, depth - 1));
                }
                taken = taken.saturating_add(LEAST);
            }
            FileType::RegularFile => {
                let is_part = is_part(std::os::unix::ffi::OsStrExt::as_bytes(&*name));
                let is_part = is_part && !reserved.contains(&FileId::of(&stat));
                if !(is_part && keep.is_some_and(|keep| expire(folder, &name, keep))) {
                    taken = taken.saturating_add(cost_of(&stat));
                }
            }
            _ => taken = taken.saturating_add(LEAST),
        }
    }
    taken
}

/// Removes an unfinished file of ours that is not being written and was not for `keep`; whether it did.
fn expire(folder: &Folder, name: &OsString, keep: Duration) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = fs::openat(folder, name, flags, Mode::empty()) else {
        return false;
    };
    let Ok(stat) = fs::fstat(&fd) else {
        return false;
    };
    let ours = not_ours(&stat).is_none();
    // A peer or a user may set the time of modification, even far into the future, but not the time
    // of the last change.
    let written = u64::try_from(stat.st_mtime.min(stat.st_ctime)).unwrap_or(0);
    let now = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ours && now.saturating_sub(Duration::from_secs(written)) >= keep
        && fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok()
        && fs::unlinkat(folder, name, AtFlags::empty()).is_ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how old a file is, its time of modification tells; nothing measured depends on it"
)]
fn now() -> SystemTime {
    SystemTime::now()
}
