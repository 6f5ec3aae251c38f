//! Wakes at an instant: a timer of the kernel's where there is one, since waiting with a timeout may be
//! stretched by the timer slack (50 µs by default).

use std::io;
use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use verus_core::Time;

use crate::clock::Clock;

/// Most descriptors that one wait may concern, the timer's among them: there is room for three sources.
const MOST: usize = 4;

/// Waits for descriptors and an instant, whichever comes first.
#[derive(Debug)]
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: OwnedFd,
    armed: Option<Time>,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// If the system grants no timer.
    pub fn new() -> io::Result<Self> {
        Ok(Alarm {
            #[cfg(target_os = "linux")]
            timer: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?,
            armed: None,
        })
    }

    /// The instant that it is set for; it may be earlier than what the last wait asked for.
    pub fn armed(&self) -> Option<Time> {
        self.armed
    }

    /// Sleeps until `at` (forever if `None`) or until something happens to one of `sources`; says
    /// what happened to each. It may wake early: setting the timer again for each small change would
    /// cost more.
    ///
    /// # Errors
    /// If the system fails; an interrupted wait is an early one.
    pub fn wait<const N: usize>(
        &mut self,
        clock: &Clock,
        at: Option<Time>,
        sources: [(BorrowedFd<'_>, PollFlags); N],
    ) -> io::Result<[PollFlags; N]> {
        const { assert!(N < MOST, "the timer needs a place, too") };
        let timeout = self.arm(clock, at)?;
        #[cfg(target_os = "linux")]
        let timer = PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN);
        #[cfg(not(target_os = "linux"))]
        let timer = PollFd::from_borrowed_fd(sources[0].0, sources[0].1);
        let mut fds: [PollFd<'_>; MOST] = std::array::from_fn(|_| timer.clone());
        for (fd, (source, events)) in fds.iter_mut().zip(sources) {
            *fd = PollFd::from_borrowed_fd(source, events);
        }
        match poll(&mut fds[..=N], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(std::array::from_fn(|index| fds[index].revents()))
    }

    /// Sets it for `at`; returns the timeout to wait with where there is no timer to wait for.
    #[cfg(target_os = "linux")]
    fn arm(&mut self, clock: &Clock, at: Option<Time>) -> io::Result<Option<Timespec>> {
        // One that goes off too early costs less than setting it again for each acknowledgement.
        let early = |armed: Time| at.is_none_or(|at| armed <= at) && armed > clock.now();
        if self.armed.is_some_and(early) {
            return Ok(None);
        }
        // Setting it again also takes back that it has gone off.
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: zero,
                it_value: at.map_or(zero, |at| clock.to_timespec(at)),
            },
        )?;
        self.armed = at;
        Ok(None)
    }

    #[cfg(not(target_os = "linux"))]
    fn arm(&mut self, clock: &Clock, at: Option<Time>) -> io::Result<Option<Timespec>> {
        self.armed = at;
        Ok(at.map(|at| {
            let wait = at.since(clock.now()).as_nanos();
            Timespec {
                tv_sec: (wait / 1_000_000_000) as i64,
                tv_nsec: (wait % 1_000_000_000) as _,
            }
        }))
    }
}
