//! Network namespaces: a separate host within this one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::netlink;

/// A network namespace, which lasts as long as this or anything within it.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// The calling thread's.
    ///
    /// # Errors
    /// If the system has none.
    pub fn current() -> io::Result<Self> {
        Ok(Namespace(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// A new one, with nothing but a loopback interface.
    ///
    /// # Errors
    /// Mostly that the process may not: it takes `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Self> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            netlink::loopback_up()?;
            Namespace::current()
        })?
    }

    /// Does `work` on a thread within the namespace, and waits for it. Sockets and devices that it opens, and
    /// threads and processes that it starts, belong to the namespace.
    ///
    /// # Errors
    /// If the thread cannot be started or may not enter.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Moves the calling thread into it, permanently.
    ///
    /// # Errors
    /// If it may not enter.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET)?)
    }

    /// Its inode, which identifies it.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn id(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_ino)
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
