//! r, the delivery rate by the receiver's clock: bytes delivered divided by the time that they
//! took.
//!
//! A silence counts for at most [`SILENCE`], or two packets' time where that is longer. The length
//! of an outage shows nothing about the rate after it.

use verus_core::units::{Bytes, Duration, Rate, Time};

/// The number of marks kept, each of which is a time and the bytes delivered by then.
const MARKS: usize = 16;
/// The number of marks in a period, fewer than [`MARKS`], so that a period that grows still begins
/// at a mark that is kept.
const MARKS_PER_PERIOD: u64 = 12;

/// The longest time that a silence counts for. With less, flows that share a link, and are each
/// often silent, measure more than their share of the link. Ten such flows queue for longer, and
/// their rates differ more.
const SILENCE: Duration = Duration::from_millis(80);

/// The longest time that a silence counts for on a slow link, where two packets' time exceeds
/// [`SILENCE`].
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// The time, in ns, over which the mean gap between arrivals is taken.
const GAP_MEMORY: u64 = 3_000_000_000;
/// The longest time that a gap counts for in the mean, ns.
const LONGEST_GAP: u64 = 30_000_000;

/// A point of the delivery's history.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The time counted so far, in 64 ns, with long silences shortened. It wraps after 4 minutes.
    at: u32,
    /// The bytes delivered so far. They wrap after 4 GiB.
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

/// The history of bytes delivered over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deliveries {
    /// A ring of marks.
    marks: [Mark; MARKS],
    /// The index of the newest mark.
    newest: u32,
    /// The time counted so far, with long silences shortened.
    counted: Duration,
    /// The bytes delivered so far.
    delivered: u64,
    /// The last arrival time; `None` before the first arrival.
    last: Option<Time>,
    /// Bytes that arrived after `last` without an arrival time.
    undated: u32,
    /// The least time from one mark to the next.
    spacing: Duration,
    /// The longest time that a silence counts for.
    longest_silence: Duration,
    /// G, the mean gap between arrivals, ns.
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
            longest_silence: SILENCE,
            gap: 0,
        }
    }

    /// Sets how the rate is measured from now on, over `period`. A packet takes `packet_time` at r;
    /// on a slow link every gap between packets is a silence.
    pub(super) fn configure(&mut self, period: Duration, packet_time: Duration) {
        self.spacing = period / MARKS_PER_PERIOD;
        self.longest_silence = SILENCE.max((packet_time * 2).min(LONGEST_SILENCE));
    }

    /// Counts a packet of `size` that arrived at `at`. A packet without an arrival time counts with
    /// the next that has one.
    pub(super) fn on_delivery(&mut self, at: Option<Time>, size: Bytes) {
        self.undated = self.undated.saturating_add(size.get() as u32);
        let Some(at) = at else { return };
        let arrived = u64::from(std::mem::take(&mut self.undated));
        let Some(last) = self.last else {
            // The first arrival starts the clock. Its bytes do not count, since the time that they
            // took is unknown.
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
            self.counted += at.since(last).min(self.longest_silence);
            // Weighted by time: G is the mean gap at a random moment, which a sender has to wait
            // through.
            let gap = at.since(last).as_nanos().min(LONGEST_GAP);
            self.gap = self.gap + gap * gap / GAP_MEMORY - self.gap * gap / GAP_MEMORY;
            self.last = Some(at);
        }
        self.delivered += arrived;
    }

    fn now(&self) -> Mark {
        Mark::new(self.counted, self.delivered)
    }

    /// G, the mean gap between arrivals, weighted by time.
    pub(super) fn gap(&self) -> Duration {
        Duration::from_nanos(self.gap)
    }

    /// r over the last `period`, or over the whole history if that is shorter. The divisor is at
    /// least `least_span`, so that a burst of arrivals does not appear as a high rate.
    pub(super) fn rate(&self, period: Duration, least_span: Duration) -> Option<Rate> {
        let now = self.now();
        let (mut span, mut delivered) = now.since(self.marks[self.newest as usize]);
        for back in 1..MARKS {
            if span >= period {
                break;
            }
            let mark = self.marks[(self.newest as usize + MARKS - back) % MARKS];
            let (longer, more) = now.since(mark);
            if longer < span {
                break; // the ring has wrapped
            }
            (span, delivered) = (longer, more);
        }
        (!span.is_zero()).then(|| Bytes::new(delivered) / span.max(least_span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    fn every_ms(deliveries: &mut Deliveries, from: u64, to: u64) {
        deliveries.configure(PERIOD, Duration::ZERO);
        for ms in from..to {
            deliveries.on_delivery(Some(Time::from_millis(ms)), Bytes::new(1000));
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
            deliveries.on_delivery(Some(Time::from_millis(ms)), Bytes::new(2000));
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
