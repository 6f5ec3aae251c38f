//! r, the delivery rate by the receiver's clock: bytes delivered over the time that this took.
//!
//! A silence counts for [`SILENCE`] at most, or for two packets' time where that is longer: how long an outage was says nothing of the rate after it.

use verus_core::units::{Bytes, Duration, Rate, Time};

/// How many marks (time and bytes delivered by then) are kept.
const MARKS: usize = 16;
/// A new mark follows after this part of the period. Fewer than [`MARKS`], so that a period that grows still begins at a
/// mark that is kept.
const MARKS_PER_PERIOD: u64 = 12;

/// What a silence counts for at the most. With less, flows that share a link, each of which is often silent, take the link
/// for faster than their share of it: ten of them queue for longer, and less alike.
const SILENCE: Duration = Duration::from_millis(80);

/// ... however slow the link.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// The mean gap between arrivals is one over this time.
const GAP_MEMORY: u64 = 3_000_000_000;
/// A gap counts in the mean for at most this, ns.
const LONGEST_GAP: u64 = 30_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The time counted until then, long silences cut, in 64 ns; goes round after 4 minutes.
    at: u32,
    /// Bytes delivered until then; goes round after 4 GiB.
    delivered: u32,
}

impl Mark {
    fn new(counted: Duration, delivered: u64) -> Self {
        Mark {
            at: (counted.as_nanos() >> 6) as u32,
            delivered: delivered as u32,
        }
    }

    /// The time counted and the bytes delivered since an earlier mark.
    fn since(self, earlier: Mark) -> (Duration, u64) {
        let units = self.at.wrapping_sub(earlier.at);
        let bytes = self.delivered.wrapping_sub(earlier.delivered);
        (
            Duration::from_nanos(u64::from(units) << 6),
            u64::from(bytes),
        )
    }
}

/// What was delivered when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deliveries {
    /// A ring.
    marks: [Mark; MARKS],
    newest: u32,
    /// The time counted, and the bytes delivered.
    counted: Duration,
    delivered: u64,
    /// The receiver's clock then.
    last: Option<Time>,
    /// Bytes that arrived after `last` without an arrival time of their own.
    undated: u32,
    /// Least time from one mark to the next.
    spacing: Duration,
    /// The longest that a silence counts for that the sender caused, by sending nothing for longer than this.
    pause: Duration,
    /// The longest that any other counts for.
    silence: Duration,
    /// When the packet delivered last had left.
    sent: Time,
    /// G, ns.
    gap: u64,
}

impl Deliveries {
    pub(super) fn new() -> Self {
        Deliveries {
            marks: [Mark::default(); MARKS],
            newest: 0,
            counted: Duration::ZERO,
            delivered: 0,
            last: None,
            undated: 0,
            spacing: Duration::ZERO,
            pause: Duration::MAX,
            silence: SILENCE,
            sent: Time::ZERO,
            gap: 0,
        }
    }

    /// From now on the rate is measured over `period`, and a silence that the sender caused, by sending nothing for longer
    /// than `pause`, counts for at most `pause`. A packet takes `packet_time` at r: on a slow link each is a silence.
    pub(super) fn count(&mut self, period: Duration, pause: Duration, packet_time: Duration) {
        (self.spacing, self.pause) = (period / MARKS_PER_PERIOD, pause);
        self.silence = SILENCE.max((packet_time * 2).min(LONGEST_SILENCE));
    }

    /// A packet of `size` that left at `sent` arrived at `at`. One without an arrival time is counted with the next that has
    /// one.
    pub(super) fn on_delivery(&mut self, at: Option<Time>, sent: Time, size: Bytes) {
        self.undated = self.undated.saturating_add(size.get() as u32);
        let Some(at) = at else { return };
        let arrived = u64::from(std::mem::take(&mut self.undated));
        let Some(last) = self.last else {
            // The first arrival starts the clock. Its bytes count for nothing: how long they took is not known.
            self.last = Some(at);
            return;
        };
        if at > last {
            let now = self.now();
            let (age, _) = now.since(self.marks[self.newest as usize]);
            if age >= self.spacing {
                self.newest = (self.newest + 1) % MARKS as u32;
                self.marks[self.newest as usize] = now;
            }
            let most = if sent.since(self.sent) > self.pause {
                self.silence.min(self.pause)
            } else {
                self.silence
            };
            self.counted += at.since(last).min(most);
            // Weighted by time: what counts is how long one waits for an arrival.
            let gap = at.since(last).as_nanos().min(LONGEST_GAP);
            self.gap = self.gap + gap * gap / GAP_MEMORY - self.gap * gap / GAP_MEMORY;
            self.last = Some(at);
        }
        self.sent = sent;
        self.delivered += arrived;
    }

    fn now(&self) -> Mark {
        Mark::new(self.counted, self.delivered)
    }

    /// G, the mean gap between arrivals, weighted by time.
    pub(super) fn gap(&self) -> Duration {
        Duration::from_nanos(self.gap)
    }

    /// r over the last `period`, or over all that has been measured if that is less. The time divided by is at least
    /// `least`, lest a burst of arrivals pass for a high rate.
    pub(super) fn rate(&self, period: Duration, least: Duration) -> Option<Rate> {
        let now = self.now();
        let (mut span, mut delivered) = now.since(self.marks[self.newest as usize]);
        for back in 1..MARKS {
            if span >= period {
                break;
            }
            let mark = self.marks[(self.newest as usize + MARKS - back) % MARKS];
            let (longer, more) = now.since(mark);
            if longer < span {
                break; // the ring has gone round
            }
            (span, delivered) = (longer, more);
        }
        (!span.is_zero()).then(|| Bytes::new(delivered) / span.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    fn every_ms(deliveries: &mut Deliveries, from: u64, to: u64) {
        deliveries.count(PERIOD, Duration::MAX, Duration::ZERO);
        for ms in from..to {
            deliveries.on_delivery(Some(Time::from_millis(ms)), Time::ZERO, Bytes::new(1000));
        }
    }

    #[test]
    fn a_steady_stream_has_its_rate_from_the_second_packet_on() {
        let mut deliveries = Deliveries::new();
        every_ms(&mut deliveries, 5, 6);
        assert_eq!(deliveries.rate(PERIOD, Duration::ZERO), None);
        for end in [7, 20, 100, 1000] {
            every_ms(&mut deliveries, end - 1, end);
            let mut deliveries = Deliveries::new();
            every_ms(&mut deliveries, 5, end);
            let rate = deliveries.rate(PERIOD, Duration::ZERO).expect("two");
            assert_eq!(rate, Rate::from_mbps(8.0), "until {end} ms");
        }
    }

    #[test]
    fn only_the_period_counts() {
        let mut deliveries = Deliveries::new();
        every_ms(&mut deliveries, 0, 1000);
        for ms in 1000..1150 {
            deliveries.on_delivery(Some(Time::from_millis(ms)), Time::ZERO, Bytes::new(2000));
        }
        let rate = deliveries.rate(PERIOD, Duration::ZERO).expect("many");
        assert_eq!(rate, Rate::from_mbps(16.0));
    }

    #[test]
    fn an_outage_counts_for_no_longer_than_a_silence() {
        let mut deliveries = Deliveries::new();
        every_ms(&mut deliveries, 0, 1000);
        every_ms(&mut deliveries, 60_000, 60_001);
        let rate = deliveries.rate(PERIOD, Duration::ZERO).expect("many");
        assert!(rate > Rate::from_mbps(1.5), "{rate:?}");
    }

    #[test]
    fn a_burst_is_no_rate() {
        let mut deliveries = Deliveries::new();
        every_ms(&mut deliveries, 0, 3);
        let rate = deliveries.rate(PERIOD, Duration::from_millis(40));
        assert_eq!(rate, Some(Rate::from_mbps(0.4)));
    }
}
