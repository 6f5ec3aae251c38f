//! Files at their two ends: read in runs of data with holes left out, written beside their final place
//! and moved there once whole.
//!
//! An unfinished file is `.NAME.verus-part`. It is written from beginning to end and has the length
//! of the received data, so it is its own journal. After a crash, its length bounds the data that
//! may be there. Comparing the digests of its pieces with the source's shows how much of it is
//! right.
//!
//! Others may be able to make files in the same folder. An unfinished file is used only if it is
//! ours and nobody else can write to it, by any name. After a rename, the file under the new name
//! is checked again.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::thread::{self, JoinHandle};

use rustix::fs::{
    self, AtFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec, Timestamps,
};
use rustix::io::Errno;

use super::digest::{BLOCK, Digest, Tally, is_zero};
use super::folder::{Folder, file_info, not_a_file, not_ours};
use super::frames::{FileInfo, MAX_RUN};
use super::housekeeping::{Booked, Room};
use super::paths::{PART_SUFFIX, RelativePath};
use super::printable::printable;
use super::refusal::{Reason, Refusal};
use super::reserved::FileId;
use super::umask;

/// Bytes that may be written before the disk is asked to catch up. They bound the loss in a power
/// failure and the wait at the end.
const SYNC_BYTES: u64 = 16 * 1024 * 1024;
/// Length of a stored stretch of zeros, in bytes, at which the sender pauses to send one block of
/// it. Reading a longer stretch without a message would leave the peer in silence.
const QUIET_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes of a file that are not all zero, and where they belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset in the file: a multiple of [`BLOCK`].
    pub at: u64,
    /// At most [`MAX_RUN`] bytes, whole blocks unless they end the file.
    pub bytes: Vec<u8>,
}

/// Reads a file's data in order and keeps its digest.
#[derive(Debug)]
pub struct Reader {
    file: File,
    pending: VecDeque<Run>,
    tally: Tally,
    /// Most bytes of a run.
    longest: u64,
    /// Zeros that were read since the last run, in bytes.
    quiet: u64,
}

impl Reader {
    /// From the beginning of a file of `size` bytes.
    pub fn new(file: File, size: u64) -> Self {
        Reader {
            file,
            pending: VecDeque::new(),
            tally: Tally::new(size),
            longest: MAX_RUN,
            quiet: 0,
        }
    }

    /// The tally of the bytes read so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Ends the reading and returns its tally.
    pub fn into_tally(self) -> Tally {
        self.tally
    }

    /// Goes back to the beginning of a piece.
    pub fn rewind(&mut self, pieces: usize) {
        self.pending.clear();
        self.tally.rewind(pieces);
    }

    /// The next run of data before `to`, which must be a multiple of [`BLOCK`] or the file's end.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter than it was; or as the operating system says.
    pub fn next_run(&mut self, to: u64) -> io::Result<Option<Run>> {
        loop {
            if let Some(run) = self.pending.pop_front() {
                self.tally.zeros(run.at);
                self.tally.data(&run.bytes);
                return Ok(Some(run));
            }
            let position = self.tally.position();
            let start = data_from(&self.file, position)?
                .map_or(to, |data| data - data % BLOCK)
                .clamp(position, to);
            if start == to {
                self.tally.zeros(to);
                return Ok(None);
            }
            let mut bytes = vec![0; (to - start).min(self.longest) as usize];
            self.file.read_exact_at(&mut bytes, start)?;
            let end = start + bytes.len() as u64;
            let quiet = self.quiet + bytes.len() as u64;
            if quiet >= QUIET_BYTES {
                self.pending.push_back(Run { at: start, bytes });
            } else {
                self.queue(start, bytes);
            }
            if self.pending.is_empty() {
                self.quiet = quiet;
                self.tally.zeros(end);
            } else {
                self.quiet = 0;
            }
        }
    }

    /// Reads up to `to` without handing anything out.
    ///
    /// # Errors
    /// As [`next_run`](Self::next_run).
    pub fn skip_to(&mut self, to: u64) -> io::Result<()> {
        while self.next_run(to)?.is_some() {}
        Ok(())
    }

    /// The digest of the file, all of it having been read.
    pub fn finish(self) -> Digest {
        self.tally.finish()
    }

    /// Splits the bytes at their blocks of zeros. Nearly always there are none.
    fn queue(&mut self, at: u64, bytes: Vec<u8>) {
        if !bytes.chunks(BLOCK as usize).any(is_zero) {
            self.pending.push_back(Run { at, bytes });
            return;
        }
        let mut next = at;
        for block in bytes.chunks(BLOCK as usize) {
            if !is_zero(block) {
                match self.pending.back_mut() {
                    Some(run) if run.at + run.bytes.len() as u64 == next => {
                        run.bytes.extend_from_slice(block);
                    }
                    _ => self.pending.push_back(Run {
                        at: next,
                        bytes: block.to_vec(),
                    }),
                }
            }
            next += block.len() as u64;
        }
    }
}

/// Where the first data at or after `position` begin; nothing if there is only a hole. Where the file
/// system cannot say, at `position`.
fn data_from(file: &File, position: u64) -> io::Result<Option<u64>> {
    match fs::seek(file, SeekFrom::Data(position)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(Some(position)),
        Err(error) => Err(error.into()),
    }
}

/// A regular file to be sent, in its state when it was opened.
#[derive(Debug)]
pub struct Source {
    file: File,
    stat: Stat,
    /// Its size, time and permission.
    pub info: FileInfo,
    /// Most bytes read at a time: whole blocks, at most [`MAX_RUN`].
    pub run: u64,
}

impl Source {
    /// Opens a file in a folder.
    ///
    /// # Errors
    /// If there is none, it may not be read, or it is no regular file.
    pub fn open(folder: &Folder, path: &RelativePath) -> Result<Self, Refusal> {
        let file = folder.file(path).map_err(|error| {
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                // A socket cannot even be opened.
                Some(Errno::NXIO | Errno::OPNOTSUPP) => {
                    Refusal::new(Reason::NotAFile, "it is a socket or a device, not a file")
                }
                _ => Refusal::from_io("cannot read it", &error),
            }
        })?;
        Source::new(file)
    }

    /// Takes an open file.
    ///
    /// # Errors
    /// If it is no regular file.
    pub fn new(file: File) -> Result<Self, Refusal> {
        let stat =
            fs::fstat(&file).map_err(|error| Refusal::from_io("cannot read it", &error.into()))?;
        let info = file_info(&stat).ok_or_else(|| not_a_file(&stat))?;
        if info.size == 0 && file.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
            return Err(Refusal::new(
                Reason::NotAFile,
                "it has content though its size is 0, as files of `/proc` have; send a copy",
            ));
        }
        let run = MAX_RUN;
        Ok(Source {
            file,
            stat,
            info,
            run,
        })
    }

    /// A reader of the file, from its beginning.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn read(&self) -> Result<Reader, Refusal> {
        let file = self
            .file
            .try_clone()
            .map_err(|error| Refusal::from_io("cannot read it", &error))?;
        let mut reader = Reader::new(file, self.info.size);
        reader.longest = self.run;
        Ok(reader)
    }

    /// Whether it may have been written to since.
    pub fn changed(&self) -> bool {
        // A writer can put the time of modification back (`touch -r`, `cp -p`, backups), but not
        // that of the last change; which a new name or new permissions also set. Better one failure too
        // many than a torn file.
        let of = |stat: &Stat| {
            (
                stat.st_size,
                (stat.st_mtime, stat.st_mtime_nsec),
                (stat.st_ctime, stat.st_ctime_nsec),
            )
        };
        fs::fstat(&self.file).map_or(true, |now| of(&now) != of(&self.stat))
    }
}

/// The present state of a file's destination.
#[derive(Debug)]
pub enum Standing {
    /// Nothing.
    Nothing,
    /// A file of the same size: perhaps the same.
    SameSize(File),
    /// Something that only a forced transfer replaces; the text describes it.
    Different(&'static str),
}

/// Where a file is to go.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder.
    pub folder: Folder,
    /// The name in it.
    pub name: OsString,
    /// Whether another file there may be replaced.
    pub replace: bool,
    /// The owner, if it may write but not read. Such a client must learn nothing about others'
    /// files there, and a digest would let it guess their contents. So its unfinished files are
    /// separate.
    pub apart: Option<String>,
}

impl Place {
    /// Examines the destination.
    ///
    /// # Errors
    /// If it is a folder, or cannot be looked at.
    pub fn look(&self, info: &FileInfo) -> Result<Standing, Refusal> {
        self.check_name()?;
        let stat = match self.folder.look(&self.name) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Standing::Nothing);
            }
            Err(error) => return Err(Refusal::from_io("cannot write it", &error)),
        };
        match file_info(&stat) {
            Some(there) if there.size == info.size => {
                let path = RelativePath::default()
                    .join(&self.name)
                    .and_then(|path| Source::open(&self.folder, &path));
                Ok(match path {
                    Ok(source) => Standing::SameSize(source.file),
                    Err(_) => Standing::Different("a file that cannot be read"),
                })
            }
            Some(_) => Ok(Standing::Different("a file of another size")),
            None if fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory => Err(
                Refusal::new(Reason::InTheWay, "a folder of this name is in the way"),
            ),
            None => Ok(Standing::Different("something that is not a file")),
        }
    }

    /// Refuses to replace the server's own files.
    fn check_name(&self) -> Result<(), Refusal> {
        let checked = self.folder.check_name(&self.name);
        checked.map_err(|error| Refusal::from_io("cannot write it", &error))
    }

    /// Removes the remains of an earlier attempt, if they are useless and nobody is writing them.
    pub(super) fn forget_part(&self, room: &Room) {
        if self.folder.look(&self.part_name()).is_ok()
            && let Ok(mut part) = Part::open(self)
        {
            // The room that it took is free again.
            let _ = part.book(room, 0);
            part.discard();
        }
    }

    /// The unfinished file's name.
    pub(super) fn part_name(&self) -> OsString {
        let named = |name: &OsStr| {
            let mut part = OsString::from(".");
            part.push(name);
            part.push(PART_SUFFIX);
            part
        };
        let Some(client) = &self.apart else {
            return named(&self.name);
        };
        // A hash of both names: together they may be longer than a name can be.
        let mut hash =
            blake3::Hasher::new_derive_key("verus transfer 1: unfinished file of a client");
        // No name of a client has a zero in it.
        hash.update(client.as_bytes()).update(&[0]);
        hash.update(self.name.as_bytes());
        named(OsStr::new(&hash.finalize().to_hex()[..32]))
    }
}

/// An unfinished file. No two transfers write one at a time. Dropped, it stays for the next attempt,
/// unless there is nothing in it.
#[derive(Debug)]
pub struct Part {
    place: Place,
    part_name: OsString,
    file: File,
    length: u64,
    unsynced: u64,
    syncing: Option<JoinHandle<io::Result<()>>>,
    /// There is no room for the rest, so keeping the unfinished file would only keep the disk full.
    full: bool,
    finished: bool,
    /// Counted when this is dropped, while the file is still locked.
    booked: Option<Booked>,
}

impl Part {
    /// Opens the unfinished file of an earlier attempt, or creates one.
    ///
    /// # Errors
    /// If it cannot be written, or another process writes it.
    pub fn open(place: &Place) -> Result<Self, Refusal> {
        let part_name = place.part_name();
        let cannot = |error: Errno| Refusal::from_io("cannot write to the folder", &error.into());
        let in_the_way = |what: &str| {
            let name = printable(part_name.as_bytes());
            let text = format!("{what} has the name of the unfinished file, `{name}`; remove it");
            Refusal::new(Reason::InTheWay, text)
        };
        // Only a file that is ours alone and that nobody else writes to. The holder of its lock may
        // be about to rename it.
        let usable = |fd: &OwnedFd| {
            if let Err(Errno::WOULDBLOCK) = fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
            {
                let text = "another transfer is writing this file";
                return Err(Refusal::new(Reason::Busy, text));
            }
            // A file system without locks: then it is up to the user.
            let stat = fs::fstat(fd).map_err(cannot)?;
            match not_ours(&stat) {
                Some(what) => Err(in_the_way(what)),
                None if place.folder.reserved().contains(&FileId::of(&stat)) => {
                    Err(in_the_way("a file of the server's own"))
                }
                None => Ok(()),
            }
        };
        // The process that had it locked may have finished it between our opening and our locking it.
        for _ in 0..10 {
            let flags = OFlags::RDWR
                | OFlags::NOFOLLOW
                | OFlags::NONBLOCK
                | OFlags::NOCTTY
                | OFlags::CLOEXEC;
            // No other user reads or writes it before it is whole.
            let private = Mode::from_raw_mode(0o600);
            let fd = match fs::openat(&place.folder, &part_name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let new = flags | OFlags::CREATE | OFlags::EXCL;
                    match fs::openat(&place.folder, &part_name, new, private) {
                        Err(Errno::EXIST) => continue,
                        opened => opened.map_err(cannot)?,
                    }
                }
                Err(Errno::LOOP) => return Err(in_the_way("a symbolic link")),
                // Perhaps an unfinished file of ours with its final permissions, which forbid
                // writing even to its owner.
                Err(Errno::ACCESS) => match fs::openat(
                    &place.folder,
                    &part_name,
                    flags.difference(OFlags::RDWR),
                    Mode::empty(),
                ) {
                    Err(_) => {
                        return Err(match place.folder.look(&part_name) {
                            Ok(stat) => in_the_way(not_ours(&stat).unwrap_or("a protected file")),
                            Err(_) => cannot(Errno::ACCESS),
                        });
                    }
                    Ok(fd) => {
                        usable(&fd)?;
                        fs::fchmod(&fd, private).map_err(cannot)?;
                        continue;
                    }
                },
                opened => opened.map_err(cannot)?,
            };
            usable(&fd)?;
            let stat = fs::fstat(&fd).map_err(cannot)?;
            let info = file_info(&stat).ok_or_else(|| not_a_file(&stat))?;
            if stat.st_mode & 0o777 != 0o600 {
                // It may have its final permissions already. Some file systems have none.
                let _ = fs::fchmod(&fd, private);
            }
            let named = fs::statat(&place.folder, &part_name, AtFlags::SYMLINK_NOFOLLOW);
            if named.is_ok_and(|named| (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino)) {
                return Ok(Part {
                    place: place.clone(),
                    part_name,
                    file: File::from(fd),
                    length: info.size,
                    unsynced: 0,
                    syncing: None,
                    full: false,
                    finished: false,
                    booked: None,
                });
            }
        }
        Err(Refusal::new(
            Reason::Busy,
            "other transfers are writing this file",
        ))
    }

    /// Reserves room for a file of `size` bytes, beyond the bytes already there.
    ///
    /// # Errors
    /// If there is too little.
    pub(super) fn book(&mut self, room: &Room, size: u64) -> Result<(), Refusal> {
        let names = [self.place.name.clone(), self.part_name.clone()];
        self.booked = room.book(&self.place.folder, names, size)?;
        Ok(())
    }

    /// How much is in it, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// A reader of its contents, as far as they can belong to a file of `size` bytes.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn read(&self, size: u64) -> Result<(Reader, u64), Refusal> {
        let file = self
            .file
            .try_clone()
            .map_err(|error| Refusal::from_io("cannot read the unfinished file", &error))?;
        let length = if self.length >= size {
            size
        } else {
            self.length - self.length % BLOCK
        };
        Ok((Reader::new(file, size), length))
    }

    /// Forgets all but the first `length` bytes.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn cut(&mut self, length: u64) -> Result<(), Refusal> {
        self.file.set_len(length).map_err(self.cannot())?;
        self.length = length;
        Ok(())
    }

    /// Converts an error in writing. If there is no room for the rest, marks the unfinished file
    /// for removal.
    fn cannot(&mut self) -> impl FnOnce(io::Error) -> Refusal {
        let full = &mut self.full;
        move |error| {
            let refusal = Refusal::from_io("cannot write", &error);
            if refusal.reason != Reason::NoSpace {
                return refusal;
            }
            *full = true;
            refusal.and("what had arrived of the file was removed")
        }
    }

    /// Writes a run; runs come in order.
    ///
    /// # Errors
    /// As the operating system says, perhaps about an earlier run.
    pub fn write(&mut self, run: &Run) -> Result<(), Refusal> {
        self.try_write(run).map_err(self.cannot())
    }

    fn try_write(&mut self, run: &Run) -> io::Result<()> {
        self.file.write_all_at(&run.bytes, run.at)?;
        self.length = run.at + run.bytes.len() as u64;
        self.unsynced += run.bytes.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            match self.syncing.take() {
                Some(sync) if !sync.is_finished() => self.syncing = Some(sync),
                finished => {
                    join(finished)?;
                    let file = self.file.try_clone()?;
                    self.unsynced = 0;
                    self.syncing = Some(thread::spawn(move || file.sync_data()));
                }
            }
        }
        Ok(())
    }

    /// Completes the file: sets its size, time, permission and name. All of it is on the disk
    /// before this returns.
    ///
    /// # Errors
    /// As the operating system says. The unfinished file stays, unless the disk is full.
    pub fn finish(mut self, info: &FileInfo) -> Result<(), Refusal> {
        let syncing = self.syncing.take();
        join(syncing).map_err(self.cannot())?;
        self.cut(info.size)?;
        let readable = umask::permissions();
        // Those who may read it may execute it.
        let may_execute = (readable & 0o444) >> 2;
        let mode = readable | if info.executable { may_execute } else { 0 };
        // Some file systems have no permissions.
        let _ = fs::fchmod(&self.file, Mode::from_raw_mode(mode));
        if let Some(modified) = info.modified {
            let time = Timespec {
                tv_sec: modified.seconds,
                tv_nsec: modified.nanos.into(),
            };
            // Some file systems cannot keep it; the contents matter more.
            let _ = fs::futimens(
                &self.file,
                &Timestamps {
                    last_access: time,
                    last_modification: time,
                },
            );
        }
        self.file.sync_all().map_err(self.cannot())?;
        self.rename()?;
        self.finished = true;
        self.place.folder.sync();
        self.see_that_it_is_there()
    }

    /// Users who may rename in this folder could have put another file under the unfinished one's name.
    fn see_that_it_is_there(&self) -> Result<(), Refusal> {
        let ours = fs::fstat(&self.file).map_err(io::Error::from);
        let at_place = self.place.folder.look(&self.place.name);
        match (ours, at_place) {
            (Ok(ours), Ok(at_place))
                if (ours.st_dev, ours.st_ino) == (at_place.st_dev, at_place.st_ino) =>
            {
                Ok(())
            }
            _ => Err(Refusal::new(
                Reason::Damaged,
                "another file took its place meanwhile",
            )),
        }
    }

    fn rename(&self) -> Result<(), Refusal> {
        self.place.check_name()?;
        let Place {
            folder,
            name,
            replace,
            ..
        } = &self.place;
        let renamed = if *replace {
            fs::renameat(folder, &self.part_name, folder, name)
        } else {
            match rename_to_nothing(folder, &self.part_name, name) {
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match folder.look(name) {
                    Ok(_) => Err(Errno::EXIST),
                    Err(_) => fs::renameat(folder, &self.part_name, folder, name),
                },
                other => other,
            }
        };
        renamed.map_err(|error| match error {
            Errno::EXIST => Refusal::new(
                Reason::Exists,
                "another file of this name appeared meanwhile",
            ),
            error => Refusal::from_io("cannot give the file its name", &error.into()),
        })
    }

    /// Removes it: it is of no use.
    pub fn discard(mut self) {
        self.remove();
    }

    fn remove(&mut self) {
        if !self.finished {
            self.finished = true;
            let _ = fs::unlinkat(&self.place.folder, &self.part_name, AtFlags::empty());
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.length == 0 || self.full {
            self.remove();
        }
        self.booked = None; // fields are dropped in order, and the file with its lock comes before
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_to_nothing(folder: &Folder, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_to_nothing(_: &Folder, _: &OsStr, _: &OsStr) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

fn join(syncing: Option<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    match syncing {
        Some(sync) => sync
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("writing to the disk failed"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stretch_of_stored_zeros_is_broken_by_a_sign_of_life() {
        let file = tempfile::tempfile().expect("a file");
        let zeros = vec![0; 1 << 20];
        let size = QUIET_BYTES * 5 / 4;
        for at in (0..size).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).expect("written");
        }
        let mut reader = Reader::new(file.try_clone().expect("a file"), size);
        let run = reader.next_run(size).expect("readable");
        let run = run.expect("one run");
        assert_eq!(run.at + run.bytes.len() as u64, QUIET_BYTES);
        assert!(is_zero(&run.bytes));
        assert_eq!(reader.next_run(size).expect("readable"), None);
        // It is the same file as one that is a hole.
        let hole = Tally::new(size);
        assert_eq!(reader.finish(), hole.finish());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn content_without_a_size_is_refused_and_an_empty_file_is_not() {
        let refusal =
            Source::new(File::open("/proc/cpuinfo").expect("Linux has it")).expect_err("of size 0");
        assert!(refusal.detail.contains("send a copy"), "{}", refusal.detail);
        let empty = Source::new(tempfile::tempfile().expect("a file")).expect("a file");
        assert_eq!(empty.info.size, 0);
    }
}
