//! A value that changes in steps over time: the rate, delay or loss of a link.

use serde::{Deserialize, Serialize};
use verus_core::{Rate, Time};

/// A piecewise-constant function of time: each value holds from its instant until the next one's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(Time, T)>", into = "Vec<(Time, T)>")]
#[serde(bound(
    serialize = "T: Clone + Serialize",
    deserialize = "T: Deserialize<'de>"
))]
pub struct Schedule<T> {
    /// Never empty; the first at zero, strictly increasing.
    steps: Vec<(Time, T)>,
}

/// A link's rate over time.
pub type RateSchedule = Schedule<Rate>;

/// Why a list of steps is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// There are none.
    #[error("a schedule needs at least one step")]
    Empty,
    /// Nothing says what holds at first.
    #[error("a schedule's first step must be at time 0, not at {0:?}")]
    LateStart(Time),
    /// Two steps out of order or at the same instant.
    #[error("a schedule's steps must be in order of time ({1:?} after {0:?})")]
    OutOfOrder(Time, Time),
}

impl<T> Schedule<T> {
    /// `value`, always.
    pub fn constant(value: T) -> Self {
        Schedule {
            steps: vec![(Time::ZERO, value)],
        }
    }

    /// Each value from its instant on.
    ///
    /// # Errors
    /// If there are no steps, the first is not at zero, or they are not strictly in order of time.
    pub fn new(steps: Vec<(Time, T)>) -> Result<Self, ScheduleError> {
        let (first, _) = steps.first().ok_or(ScheduleError::Empty)?;
        if *first != Time::ZERO {
            return Err(ScheduleError::LateStart(*first));
        }
        match steps.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            Some(pair) => Err(ScheduleError::OutOfOrder(pair[0].0, pair[1].0)),
            None => Ok(Schedule { steps }),
        }
    }

    /// The steps: when each value begins to hold.
    pub fn steps(&self) -> &[(Time, T)] {
        &self.steps
    }

    /// The index of the step that holds at `time`.
    pub(crate) fn index_at(&self, time: Time) -> usize {
        // The first step is at zero, so at least one begins at or before any time.
        self.steps.partition_point(|(from, _)| *from <= time) - 1
    }

    /// When the step at `index` ends; [`Time::MAX`] for the last.
    #[inline]
    pub(crate) fn end_of(&self, index: usize) -> Time {
        self.steps
            .get(index + 1)
            .map_or(Time::MAX, |(from, _)| *from)
    }
}

impl<T: Copy> Schedule<T> {
    /// The value that holds at `time`.
    pub fn value_at(&self, time: Time) -> T {
        self.steps[self.index_at(time)].1
    }
}

impl<T> From<Schedule<T>> for Vec<(Time, T)> {
    fn from(schedule: Schedule<T>) -> Self {
        schedule.steps
    }
}

impl<T> TryFrom<Vec<(Time, T)>> for Schedule<T> {
    type Error = ScheduleError;

    fn try_from(steps: Vec<(Time, T)>) -> Result<Self, ScheduleError> {
        Schedule::new(steps)
    }
}

/// Reads a [`Schedule`] at times that never go back, in O(1) amortised.
#[derive(Clone, Debug)]
pub struct Follower<T> {
    /// What holds until `until`.
    value: T,
    until: Time,
    index: usize,
    schedule: Schedule<T>,
}

impl<T: Copy> Follower<T> {
    /// At time zero.
    pub fn new(schedule: Schedule<T>) -> Self {
        Follower {
            value: schedule.steps[0].1,
            until: schedule.end_of(0),
            index: 0,
            schedule,
        }
    }

    /// The value at `now`, which is no earlier than at the call before.
    #[inline]
    pub fn at(&mut self, now: Time) -> T {
        if now >= self.until {
            self.advance(now);
        }
        self.value
    }

    #[cold]
    fn advance(&mut self, now: Time) {
        while now >= self.until && self.index + 1 < self.schedule.steps.len() {
            self.index += 1;
            self.until = self.schedule.end_of(self.index);
        }
        self.value = self.schedule.steps[self.index].1;
    }
}

impl RateSchedule {
    /// Bit-nanoseconds per second carried in [`from`, `to`): divide by 8·10⁹ for bytes.
    fn work_between(&self, from: Time, to: Time) -> u128 {
        let mut work = 0;
        let mut at = from;
        let mut index = self.index_at(from);
        while at < to {
            let end = self.end_of(index).min(to);
            work += u128::from(self.steps[index].1.as_bps()) * u128::from((end - at).as_nanos());
            (at, index) = (end, index + 1);
        }
        work
    }

    /// The whole bytes carried in [`from`, `to`).
    pub fn bytes_between(&self, from: Time, to: Time) -> verus_core::Bytes {
        verus_core::Bytes::new(
            u64::try_from(self.work_between(from, to) / BYTE).unwrap_or(u64::MAX),
        )
    }
}

/// A byte, in bits × nanoseconds per second.
pub(crate) const BYTE: u128 = 8 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_value_holds_from_its_instant_until_the_next() {
        let schedule = Schedule::new(vec![(at(0), 1), (at(10), 2), (at(20), 3)]).unwrap();
        let expected = [(0, 1), (9, 1), (10, 2), (19, 2), (20, 3), (1000, 3)];
        let mut follower = Follower::new(schedule.clone());
        for (ms, value) in expected {
            assert_eq!(schedule.value_at(at(ms)), value);
            assert_eq!(follower.at(at(ms)), value);
        }
    }

    #[test]
    fn steps_out_of_order_are_refused() {
        assert_eq!(Schedule::<u8>::new(vec![]), Err(ScheduleError::Empty));
        assert_eq!(
            Schedule::new(vec![(at(1), 0)]),
            Err(ScheduleError::LateStart(at(1)))
        );
        let twice = Schedule::new(vec![(at(0), 0), (at(2), 0), (at(2), 1)]);
        assert_eq!(twice, Err(ScheduleError::OutOfOrder(at(2), at(2))));
    }

    #[test]
    fn bytes_add_up_over_steps() {
        let mbps = Rate::from_mbps;
        let schedule = Schedule::new(vec![
            (at(0), mbps(8.0)),
            (at(10), mbps(0.0)),
            (at(20), mbps(16.0)),
        ]);
        let schedule = schedule.unwrap();
        // 5 ms at 1 byte/µs, 10 ms of nothing, 5 ms at 2 bytes/µs.
        assert_eq!(schedule.bytes_between(at(5), at(25)).get(), 5_000 + 10_000);
        assert_eq!(schedule.bytes_between(at(25), at(25)).get(), 0);
    }
}
