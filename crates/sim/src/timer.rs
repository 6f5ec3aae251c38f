//! Timers whose moves cost no event.

use verus_core::Time;

/// The instant for which a timer's event is set. If the timer moves to a later time, its event
/// comes too early and is set again then. Only a move to an earlier time needs a new event; the
/// replaced one is ignored when it comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer(Option<Time>);

impl Timer {
    /// The timer is due at `due`; returns when to set an event, if one is needed.
    #[inline]
    pub fn set(&mut self, due: Option<Time>) -> Option<Time> {
        let due = due?;
        if self.0.is_some_and(|set| set <= due) {
            return None;
        }
        self.0 = Some(due);
        self.0
    }

    /// An event has come; returns whether it is the timer's, rather than a replaced one.
    #[inline]
    pub fn comes(&mut self, now: Time) -> bool {
        let valid = self.0 == Some(now);
        if valid {
            self.0 = None;
        }
        valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_due_time_needs_an_event_and_only_the_last_one_set_counts() {
        let at = Time::from_millis;
        let mut timer = Timer::default();
        assert_eq!(timer.set(None), None);
        assert_eq!(timer.set(Some(at(5))), Some(at(5)));
        assert_eq!(timer.set(Some(at(5))), None);
        assert_eq!(timer.set(Some(at(8))), None);
        assert_eq!(timer.set(Some(at(3))), Some(at(3)));
        assert!(timer.comes(at(3)));
        assert!(!timer.comes(at(5)), "an earlier one took its place");
        assert_eq!(timer.set(Some(at(8))), Some(at(8)));
    }
}
