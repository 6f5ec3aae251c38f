//! SIGINT, SIGTERM and other signals that would end a verb running on a separate thread. A signal
//! is noted and wakes the thread.

use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level::pipe};

/// Makes a write beyond RLIMIT_FSIZE an error from now on, instead of the end of the process.
/// Started programs keep the default: handlers are not inherited, while ignored signals would be.
pub fn outlive_file_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// A field of `/proc/PROCESS/status` (proc(5)); `process` is `self` or a number.
pub fn status_of(process: impl Display, field: &str) -> io::Result<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Whether a set of signals (`SigIgn`, `SigCgt`) of a process has this one.
fn is_among(process: impl Display, field: &str, signal: i32) -> bool {
    let set = status_of(process, field).unwrap_or_default();
    u64::from_str_radix(&set, 16).unwrap_or(0) & (1 << (signal - 1)) != 0
}

/// Whether a process has a handler for a signal. Without one, the first process of a PID namespace
/// receives only SIGKILL (pid_namespaces(7)).
pub fn is_handled(process: impl Display, signal: i32) -> bool {
    is_among(process, "SigCgt", signal)
}

/// The signals that end a command.
#[derive(Debug)]
pub struct Signals {
    noted: Arc<AtomicUsize>,
    wake: UnixStream,
}

impl Signals {
    /// From now on these signals do not end the process.
    pub fn new() -> io::Result<Self> {
        Signals::of(&[SIGINT, SIGTERM])
    }

    /// The same for all signals that would end the process and are not ignored. `nohup` ignores
    /// SIGHUP, and shells ignore SIGINT for background jobs. Started programs ignore the same
    /// signals.
    pub fn not_ignored() -> io::Result<Self> {
        let mut heeded = vec![SIGINT, SIGTERM, SIGHUP, SIGQUIT];
        heeded.retain(|&signal| !is_among("self", "SigIgn", signal));
        Signals::of(&heeded)
    }

    /// The same for other signals.
    pub fn of(signals: &[i32]) -> io::Result<Self> {
        let (wake, ring) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let noted = Arc::new(AtomicUsize::new(0));
        for &signal in signals {
            flag::register_usize(signal, Arc::clone(&noted), signal as usize)?;
            pipe::register(signal, ring.try_clone()?)?;
        }
        Ok(Signals { noted, wake })
    }

    /// The signal that came since the last call, if one did.
    pub fn take(&mut self) -> Option<i32> {
        let mut drained = [0; 16];
        while matches!(self.wake.read(&mut drained), Ok(1..)) {}
        match self.noted.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
