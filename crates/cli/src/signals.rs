//! SIGINT and SIGTERM for verbs that run on a thread of their own, and what else would end them: noted, and a
//! reason to wake up.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level::pipe};

/// From now on a file that would grow beyond RLIMIT_FSIZE is an error in writing it, and not the end of the process. A
/// program that is started has it as before: what is handled is not inherited, as what is ignored would be.
///
/// # Errors
/// If the system grants no handler.
pub fn outlive_file_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The signals that end a command.
#[derive(Debug)]
pub struct Signals {
    noted: Arc<AtomicUsize>,
    wake: UnixStream,
}

impl Signals {
    /// From now on these signals do not end the process.
    ///
    /// # Errors
    /// If the system grants no handler.
    pub fn new() -> io::Result<Self> {
        Signals::of(&[SIGINT, SIGTERM])
    }

    /// The same for other signals.
    ///
    /// # Errors
    /// As [`Signals::new`].
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
