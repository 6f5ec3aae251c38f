//! The high delay: a delay's 98th percentile over time, which shows how long the buffer is.
//!
//! Of round trips a maximum would be that of one in which a host was busy with something else, for 5
//! to 40 ms. In a buffer of one millisecond no overflow would then count as a full buffer.

use verus_core::units::{Duration, Time};

/// The time in which the high delay falls to the e-th part, unless the flow is younger.
const MEMORY: Duration = Duration::from_secs(8);
/// The share of the time in which the delay exceeds the high one: one in this many. It is more than
/// such pauses of a host take together, and less than the time for which a short buffer is full.
const SHARE: u64 = 64;
/// The shortest interval between samples. With more, the fall between two of them would be rounded
/// to nothing.
const STEP: Duration = Duration::from_millis(1);

/// The delay that is exceeded for one in [`SHARE`] of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct HighDelay {
    nanos: u64,
    began_at: Time,
    sampled_at: Time,
}

impl HighDelay {
    pub(super) const NOTHING: HighDelay = HighDelay {
        nanos: 0,
        began_at: Time::ZERO,
        sampled_at: Time::ZERO,
    };

    /// Samples the `delay`. It is assumed to have lasted since the last sample, but at most for a
    /// `round_trip`: a pause has one sample, however long it is.
    pub(super) fn update(&mut self, now: Time, round_trip: Duration, delay: Duration) {
        let since = now.since(self.sampled_at);
        if since < STEP {
            return;
        }
        if self.sampled_at == Time::ZERO {
            self.began_at = now;
        }
        self.sampled_at = now;
        let age = now.since(self.began_at);
        let memory = age.clamp(STEP * SHARE, MEMORY).as_nanos();
        let rise = memory / SHARE;
        let lasted = since.min(round_trip.max(STEP)).as_nanos().min(memory);
        let change = |time: u64| self.nanos.saturating_mul(lasted) / time;
        let delay = delay.as_nanos();
        self.nanos = if delay <= self.nanos {
            self.nanos - change(memory)
        } else if lasted < rise {
            // To the e-fold in that time, not towards the delay: a pause of a thousand round trips
            // would move a mean.
            delay.min(self.nanos.max(delay / SHARE) + change(rise))
        } else {
            delay
        };
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_micros(500);
    const FULL: Duration = Duration::from_micros(800);

    /// Samples every 100 µs for `millis`, whose delay is that of `delay` at the millisecond.
    fn sample(high: &mut HighDelay, millis: std::ops::Range<u64>, delay: impl Fn(u64) -> Duration) {
        for tenth in millis.start * 10..millis.end * 10 {
            let now = Time::from_nanos(tenth * 100_000);
            high.update(now, ROUND_TRIP, delay(tenth / 10));
        }
    }

    #[test]
    fn samples_of_a_young_flow_count_in_full() {
        let mut high = HighDelay::NOTHING;
        sample(&mut high, 1..3, |ms| FULL * ms);
        assert_eq!(high.get(), FULL * 2);
    }

    #[test]
    fn a_buffer_that_is_full_for_a_twentieth_of_the_time_shows() {
        let mut high = HighDelay::NOTHING;
        sample(&mut high, 1..20_000, |ms| {
            if ms % 100 < 5 { FULL } else { FULL / 2 }
        });
        assert!(high.get() >= FULL * 7 / 8 && high.get() <= FULL);
    }

    #[test]
    fn a_buffer_that_is_full_for_a_five_hundredth_of_the_time_does_not() {
        let mut high = HighDelay::NOTHING;
        sample(&mut high, 1..20_000, |ms| {
            if ms % 500 == 499 { FULL * 10 } else { FULL }
        });
        assert!(high.get() <= FULL * 9 / 8);
    }

    #[test]
    fn a_pause_of_the_host_hardly_moves_it() {
        let mut high = HighDelay::NOTHING;
        sample(&mut high, 1..10_000, |_| FULL);
        let pause = Duration::from_millis(40);
        let now = Time::from_millis(10_000) + pause;
        high.update(now, pause / 8, pause);
        assert!(high.get() <= FULL * 21 / 20);
    }

    #[test]
    fn it_falls_to_the_e_th_part_in_eight_seconds() {
        let mut high = HighDelay::NOTHING;
        sample(&mut high, 1..10_000, |_| FULL);
        sample(&mut high, 10_000..18_000, |_| Duration::ZERO);
        let expected = FULL.as_nanos() * 1000 / 2718;
        assert!(high.get().as_nanos().abs_diff(expected) <= expected / 50);
    }

    #[test]
    fn no_delay_overflows() {
        let mut high = HighDelay::NOTHING;
        for ms in 1..200 {
            let delay = if ms % 2 == 0 { 0 } else { u64::MAX };
            let round_trip = Duration::from_secs(ms);
            let now = Time::from_millis(ms * ms);
            high.update(now, round_trip, Duration::from_nanos(delay));
        }
    }
}
