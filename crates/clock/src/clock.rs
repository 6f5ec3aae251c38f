//! The one place where a real clock is read: monotonic time for the core, and the kernel's receive
//! timestamps put on the same scale.

use rustix::time::{ClockId, Timespec, clock_gettime};
use verus_core::{Duration, Time};

/// A receive timestamp older than this is not believed: the wall clock was set meanwhile.
const OLDEST: Duration = Duration::from_secs(10);

/// Monotonic time since the clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Its zero on the system's clock; below that clock's zero in the first second after a boot.
    origin_nanos: i64,
}

impl Clock {
    /// A clock that starts at one second: instants a little before its making can be told.
    pub fn new() -> Self {
        Clock::made_at(nanos(clock_gettime(ClockId::Monotonic)))
    }

    fn made_at(monotonic_nanos: u64) -> Self {
        Clock {
            origin_nanos: monotonic_nanos as i64 - 1_000_000_000,
        }
    }

    /// Now.
    #[inline]
    pub fn now(&self) -> Time {
        self.at(nanos(clock_gettime(ClockId::Monotonic)))
    }

    fn at(&self, monotonic_nanos: u64) -> Time {
        Time::from_nanos((monotonic_nanos as i64 - self.origin_nanos) as u64)
    }

    /// How long this machine has slept since it started: time that [`now`](Self::now) leaves out. Known on Linux.
    pub fn slept(&self) -> Duration {
        #[cfg(target_os = "linux")]
        {
            // In this order, the second can only be later.
            let awake = nanos(clock_gettime(ClockId::Monotonic));
            Duration::from_nanos(nanos(clock_gettime(ClockId::Boottime)).saturating_sub(awake))
        }
        #[cfg(not(target_os = "linux"))]
        Duration::ZERO
    }

    /// `at` on the system's monotonic clock, as timers want it.
    pub fn to_timespec(self, at: Time) -> Timespec {
        let nanos = at.as_nanos().saturating_add_signed(self.origin_nanos);
        Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as _,
        }
    }

    /// The relation between wall clock and monotonic time at this moment. The kernel stamps packets
    /// by the wall clock, which may be set at any time: ask again for each batch of packets.
    pub fn wall(&self) -> Wall {
        Wall {
            now: self.now(),
            wall_nanos: nanos(clock_gettime(ClockId::Realtime)),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One moment by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    /// The moment by the monotonic clock.
    pub now: Time,
    wall_nanos: u64,
}

impl Wall {
    /// The monotonic clock's zero, in nanoseconds since 1970.
    pub fn zero_nanos(&self) -> u64 {
        self.wall_nanos.saturating_sub(self.now.as_nanos())
    }

    /// When a packet arrived that the kernel stamped with `since_epoch`; now if it was not stamped,
    /// or the stamp makes no sense.
    pub fn arrival(&self, since_epoch: Option<std::time::Duration>) -> Time {
        let age = since_epoch
            .and_then(|stamp| self.wall_nanos.checked_sub(stamp.as_nanos() as u64))
            .map(Duration::from_nanos)
            .filter(|&age| age < OLDEST)
            .unwrap_or(Duration::ZERO);
        Time::from_nanos(self.now.as_nanos().saturating_sub(age.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a guest on virtual time, which has booted within milliseconds.
    #[test]
    fn a_clock_may_be_made_in_the_first_second_after_a_boot() {
        let second = 1_000_000_000;
        for made in [0, 50_000_000, second, 86_400 * second] {
            let clock = Clock::made_at(made);
            assert_eq!(clock.at(made), Time::from_nanos(second));
            let later = clock.at(made + 2 * second);
            assert_eq!(later, Time::from_nanos(3 * second));
            let timer = clock.to_timespec(later);
            assert_eq!(nanos(timer), made + 2 * second);
        }
    }
}
