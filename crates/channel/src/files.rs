//! Files that a person names. Only regular files are opened, and pipes that this process was given,
//! such as `<(command)` of a shell or `/dev/stdin`. Pipes are read once, and their contents are
//! kept for later calls. A device, or a pipe with a name in a folder, might block its reader
//! forever.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The most that is kept of a pipe, bytes.
const LARGEST_PIPE: u64 = 256 << 20;

/// The contents of this process's pipes, by their paths.
static PIPES: Mutex<Vec<(PathBuf, Arc<[u8]>)>> = Mutex::new(Vec::new());

/// Whether a file of this name holds a rate series, where it may hold a trace as well.
pub fn is_rate_series(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| {
        let uncompressed = name.strip_suffix(".gz").or(name.strip_suffix(".xz"));
        uncompressed.unwrap_or(&name).ends_with(".csv")
    })
}

/// An open file.
#[derive(Debug)]
pub enum Opened {
    /// A regular one.
    File(File),
    /// The contents of a pipe.
    Pipe(Cursor<Arc<[u8]>>),
}

impl Opened {
    /// The number of its bytes.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            Opened::File(file) => Ok(file.metadata()?.len()),
            Opened::Pipe(kept) => Ok(kept.get_ref().len() as u64),
        }
    }
}

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Opened::File(file) => file.read(buffer),
            Opened::Pipe(kept) => kept.read(buffer),
        }
    }
}

/// Opens the file at `path`.
///
/// # Errors
/// If it cannot be opened, or is something else than a regular file or a pipe that this process was
/// given.
pub fn open(path: &Path) -> io::Result<Opened> {
    if is_given_pipe(path) {
        return Ok(Opened::Pipe(Cursor::new(kept(path)?)));
    }
    let file = open_without_waiting(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        let problem = "it is not a file; of pipes only `<(command)` and /dev/stdin are read";
        return Err(io::Error::other(problem));
    }
    Ok(Opened::File(file))
}

/// Whether `path` names a pipe among this process's own descriptors.
pub fn is_given_pipe(path: &Path) -> bool {
    let descriptor = path == Path::new("/dev/stdin")
        || (path.parent()).is_some_and(|parent| {
            ["/dev/fd", "/proc/self/fd"]
                .map(Path::new)
                .contains(&parent)
        });
    descriptor && is_pipe(path)
}

/// The contents of the pipe at `path`, read at the first call.
fn kept(path: &Path) -> io::Result<Arc<[u8]>> {
    let mut pipes = PIPES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, content)) = pipes.iter().find(|(known, _)| known == path) {
        return Ok(Arc::clone(content));
    }
    let mut content = Vec::new();
    (File::open(path)?.take(LARGEST_PIPE + 1)).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST_PIPE {
        let problem = format!("the pipe holds more than {LARGEST_PIPE} bytes: write it to a file");
        return Err(io::Error::other(problem));
    }
    let content: Arc<[u8]> = content.into();
    pipes.push((path.to_owned(), Arc::clone(&content)));
    Ok(content)
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    (path.metadata()).is_ok_and(|there| there.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

/// Opens a file, and a pipe without waiting for its writer. It makes no difference to how a regular file is read.
#[cfg(unix)]
fn open_without_waiting(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    File::options().read(true).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
fn open_without_waiting(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_device_and_a_pipe_in_a_folder_are_refused_at_once() {
        let pipe = std::env::temp_dir().join(format!("verus-pipe-{}", std::process::id()));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero")] {
            let refused = open(path).unwrap_err().to_string();
            assert!(refused.contains("is not a file"), "{refused}");
        }
        std::fs::remove_file(pipe).unwrap();
        let error = open(Path::new("/")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_pipe_that_was_given_is_read_once_and_kept() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"1\n2\n").unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        for _ in 0..2 {
            let mut text = String::new();
            open(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "1\n2\n");
        }
    }

    #[test]
    fn a_name_tells_a_series() {
        for (name, is) in [
            ("a.csv", true),
            ("a.rates.csv.xz", true),
            ("a.down", false),
            ("csv", false),
        ] {
            assert_eq!(is_rate_series(Path::new(name)), is, "{name}");
        }
    }
}
