//! A value that changes in steps over time: the rate, delay or loss of a link.

use verus_core::{Duration, Rate, Time};

/// A piecewise-constant function of time: each value holds from its instant until the next one's. It may repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule<T> {
    /// Never empty; the first at zero, strictly increasing, and all before the end of the period.
    steps: Vec<(Time, T)>,
    /// Time after which it begins again; `None` if the last value stays.
    period: Option<Duration>,
}

/// A link's rate over time.
pub type RateSchedule = Schedule<Rate>;

/// Why a list of steps is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// There are no steps.
    #[error("a schedule needs at least one step")]
    Empty,
    /// The first step is not at time zero.
    #[error("a schedule's first step must be at time 0, not at {0:?}")]
    LateStart(Time),
    /// Two steps out of order or at the same instant.
    #[error("a schedule's steps must be in order of time ({1:?} after {0:?})")]
    OutOfOrder(Time, Time),
    /// It would begin again before its last step.
    #[error("a schedule's steps must be within its period of {1:?}, not at {0:?}")]
    BeyondPeriod(Time, Duration),
}

impl<T> Schedule<T> {
    /// `value` at all times.
    pub fn constant(value: T) -> Self {
        Schedule {
            steps: vec![(Time::ZERO, value)],
            period: None,
        }
    }

    /// Values, each from its instant on.
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
            None => Ok(Schedule {
                steps,
                period: None,
            }),
        }
    }

    /// The same schedule, repeated every `period`.
    ///
    /// # Errors
    /// If its last step is not before `period`.
    pub fn repeating(mut self, period: Duration) -> Result<Self, ScheduleError> {
        let last = self.steps[self.steps.len() - 1].0;
        if last >= Time::ZERO + period {
            return Err(ScheduleError::BeyondPeriod(last, period));
        }
        self.period = Some(period);
        Ok(self)
    }

    /// Lets `value` hold from an instant on, in place of another that begins then, and repeats the schedule if it has a
    /// period. A value that is constant needs none.
    ///
    /// # Panics
    /// If the instant is before the last step, or beyond the period.
    pub fn change(&mut self, (at, period): (Time, Option<Duration>), value: T) {
        self.steps.pop_if(|(last, _)| *last == at);
        let beyond = period.is_some_and(|period| at >= Time::ZERO + period);
        let late = self.steps.last().is_none_or(|(last, _)| *last < at);
        assert!(late && !beyond, "changes are in order of time");
        self.steps.push((at, value));
        self.period = period.filter(|_| self.steps.len() > 1);
    }

    /// The steps: when each value begins to hold, the first time round.
    pub fn steps(&self) -> &[(Time, T)] {
        &self.steps
    }

    /// Time after which it begins again, if it repeats.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Whether `such` is true of any of its values.
    pub fn ever(&self, such: impl Fn(&T) -> bool) -> bool {
        self.steps.iter().any(|(_, value)| such(value))
    }

    /// The number of the step that holds at `time`. Numbers continue over the repetitions.
    pub(crate) fn index_at(&self, time: Time) -> usize {
        let mut time = time;
        let mut before = 0;
        if let Some(period) = self.period {
            let laps = time.as_nanos() / period.as_nanos();
            time = Time::from_nanos(time.as_nanos() % period.as_nanos());
            before = laps as usize * self.steps.len();
        }
        // The first step is at zero, so at least one begins at or before any time.
        before + self.steps.partition_point(|(from, _)| *from <= time) - 1
    }

    /// The end of the step with this number; [`Time::MAX`] for the last.
    #[inline]
    pub(crate) fn end_of(&self, index: usize) -> Time {
        match (self.steps.get(index + 1), self.period) {
            (Some((from, _)), _) => *from,
            (None, None) => Time::MAX,
            (None, Some(period)) => {
                let (lap, step) = self.lap_and_step(index + 1);
                self.steps[step].0 + period * lap as u64
            }
        }
    }

    /// The repetition that a step belongs to, and its index within it.
    fn lap_and_step(&self, index: usize) -> (usize, usize) {
        (index / self.steps.len(), index % self.steps.len())
    }
}

impl<T: Copy> Schedule<T> {
    /// The value of the step with this number.
    pub(crate) fn value(&self, index: usize) -> T {
        self.steps[self.lap_and_step(index).1].1
    }
}

/// Reads a [`Schedule`] at times that never decrease, in O(1) amortised.
#[derive(Clone, Debug)]
pub struct Follower<T> {
    /// The value that holds until `until`.
    value: T,
    until: Time,
    index: usize,
    schedule: Schedule<T>,
}

impl<T: Copy> Follower<T> {
    /// A reader at time zero.
    pub fn new(schedule: Schedule<T>) -> Self {
        Follower {
            value: schedule.steps[0].1,
            until: schedule.end_of(0),
            index: 0,
            schedule,
        }
    }

    /// The value at `now`, which must not decrease from call to call.
    #[inline]
    pub fn at(&mut self, now: Time) -> T {
        if now >= self.until {
            self.advance(now);
        }
        self.value
    }

    #[cold]
    fn advance(&mut self, now: Time) {
        while now >= self.until && self.until < Time::MAX {
            self.index += 1;
            self.until = self.schedule.end_of(self.index);
        }
        self.value = self.schedule.value(self.index);
    }
}

impl RateSchedule {
    /// Data carried in [`from`, `to`), in units of 1 bit/s × 1 ns: 8·10⁹ of them are a byte.
    pub(crate) fn work_between(&self, from: Time, to: Time) -> u128 {
        let mut work = 0;
        let mut at = from;
        let mut index = self.index_at(from);
        while at < to {
            let end = self.end_of(index).min(to);
            work += u128::from(self.value(index).as_bps()) * u128::from((end - at).as_nanos());
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

/// A byte, in units of 1 bit/s × 1 ns.
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
            assert_eq!(schedule.value(schedule.index_at(at(ms))), value);
            assert_eq!(follower.at(at(ms)), value);
        }
    }

    #[test]
    fn a_schedule_that_repeats_begins_again_after_its_period() {
        let once = Schedule::new(vec![(at(0), 1), (at(10), 2)]).unwrap();
        let schedule = once.clone().repeating(Duration::from_millis(15)).unwrap();
        let mut follower = Follower::new(schedule.clone());
        for (ms, value) in [
            (0, 1),
            (10, 2),
            (14, 2),
            (15, 1),
            (24, 1),
            (25, 2),
            (30, 1),
            (1500, 1),
            (1514, 2),
        ] {
            let index = schedule.index_at(at(ms));
            assert_eq!(schedule.value(index), value, "{ms} ms");
            assert_eq!(follower.at(at(ms)), value, "{ms} ms");
            assert!(schedule.end_of(index) > at(ms) && schedule.end_of(index) <= at(ms + 10));
        }
        assert_eq!(
            once.repeating(Duration::from_millis(10)),
            Err(ScheduleError::BeyondPeriod(
                at(10),
                Duration::from_millis(10)
            ))
        );
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
        let schedule = schedule.repeating(Duration::from_millis(25)).unwrap();
        // A lap is 10,000 + 0 + 10,000 bytes.
        assert_eq!(schedule.bytes_between(at(5), at(1_030)).get(), 41 * 20_000);
    }
}
