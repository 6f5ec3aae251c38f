//! The check that decides whether the sender uses a receiver's clock.
//!
//! Each packet arrived between its departure and its acknowledgement. This bounds the offset between the two clocks to
//! within a round trip. A receiver whose times contradict these bounds invents them, and could feign a path of any
//! rate; its clock is then ignored for good.

use crate::units::{Duration, Time};

/// The receiver's clock may run faster or slower than ours by this share.
const DRIFT: f64 = 2e-4;
/// The receiver's clock may be read this much too early or too late.
const MISREAD: Duration = Duration::from_millis(200);

/// Bounds on the offset of the receiver's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverClock {
    /// Since when the clocks have been compared, and the least and the most by which the receiver's is ahead, in ns.
    compared: Option<(Time, i64, i64)>,
    made_up: bool,
}

impl ReceiverClock {
    /// Whether a packet that left at `sent` and was acknowledged at `now` may have arrived at `received`, by the
    /// receiver's clock. After the first time that is impossible, no other is believed.
    pub fn believes(&mut self, now: Time, sent: Time, received: Time) -> bool {
        let upper = received.as_nanos().wrapping_sub(sent.as_nanos()) as i64;
        let lower = upper.saturating_sub_unsigned(now.since(sent).as_nanos());
        let Some((since, from, to)) = self.compared else {
            self.compared = Some((now, lower, upper));
            return true;
        };
        self.compared = Some((since, from.max(lower), to.min(upper)));
        // Mostly the time fits without any allowance.
        if upper < from || lower > to {
            let wrong = MISREAD + now.since(since).mul_f64(DRIFT);
            let wrong = i64::try_from(wrong.as_nanos()).unwrap_or(i64::MAX);
            let fits = upper >= from.saturating_sub(wrong) && lower <= to.saturating_add(wrong);
            self.made_up |= !fits;
        }
        !self.made_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);
    const AHEAD: Duration = Duration::from_secs(7000);

    /// Packets each 10 ms for a minute, received by a clock that shows `shown` of the true arrival; how many of the
    /// times were believed.
    fn believed(shown: impl Fn(Time) -> Time) -> usize {
        let mut clock = ReceiverClock::default();
        (0..6000)
            .map(|index| Time::from_millis(10 * index))
            .filter(|&sent| {
                // A queue that comes and goes.
                let queue = Duration::from_millis(sent.as_nanos() / 50_000_000 % 300);
                let arrived = sent + ROUND_TRIP / 2 + queue;
                clock.believes(arrived + ROUND_TRIP / 2, sent, shown(arrived))
            })
            .count()
    }

    #[test]
    fn a_clock_that_is_ahead_and_runs_fast_is_believed() {
        assert_eq!(believed(|at| at + AHEAD), 6000);
        assert_eq!(
            believed(|at| at + AHEAD + at.since(Time::ZERO).mul_f64(1e-4)),
            6000
        );
    }

    #[test]
    fn times_that_cannot_be_are_the_last_that_are_believed() {
        for lies in [
            |_: Time| Time::ZERO + AHEAD,
            |at: Time| Time::ZERO + AHEAD - at.since(Time::ZERO).min(AHEAD),
            |at: Time| Time::ZERO + at.since(Time::ZERO) * 2,
        ] {
            let from = Time::from_millis(5000);
            let count = believed(|at| if at < from { at } else { lies(at) });
            assert!((480..1100).contains(&count), "{count}");
        }
    }
}
