//! Signal delay: what a packet entering the queue at each millisecond would have waited, at least.

use verus_core::{Duration, Time};

use crate::distribution::Counts;

const MILLI: u64 = 1_000_000;

/// The signal delay of one FIFO bottleneck, sampled at every millisecond between the first and the
/// last arrival of a delivered packet: the least delay of the packets that entered in it or, if
/// none did, 1 ms + the value of the next millisecond (Sprout, NSDI 2013, §5.1; as Mahimahi's
/// `mm-delay-graph` computes it).
///
/// Departures come in the order of entering, so a millisecond is complete when a later one is
/// entered, and the empty ones before it then count down to it: one comparison per packet and one
/// histogram entry per millisecond.
#[derive(Debug)]
pub(crate) struct SignalDelay {
    counts: Counts,
    /// The millisecond now being filled, in ns; `end` is zero before the first.
    start: u64,
    end: u64,
    /// Least delay of the packets that entered in it, ns.
    least: u64,
    /// Milliseconds without a packet just before it.
    gap: u64,
}

impl SignalDelay {
    pub(crate) fn new() -> Self {
        SignalDelay {
            counts: Counts::new(),
            start: 0,
            end: 0,
            least: 0,
            gap: 0,
        }
    }

    /// A packet that entered at `entered` left after `delay`. One that entered in a millisecond
    /// before the last one's is ignored: the queue was not FIFO.
    #[inline]
    pub(crate) fn on_departure(&mut self, entered: Time, delay: Duration) {
        let (entered, delay) = (entered.as_nanos(), delay.as_nanos());
        if entered < self.end {
            if entered >= self.start {
                self.least = self.least.min(delay);
            }
        } else {
            self.next_millisecond(entered, delay);
        }
    }

    fn next_millisecond(&mut self, entered: u64, delay: u64) {
        let start = entered - entered % MILLI;
        if self.end > 0 {
            self.counts.record_run(self.least, self.gap);
            self.gap = (start - self.end) / MILLI;
        }
        self.start = start;
        self.end = start.saturating_add(MILLI);
        self.least = delay;
    }

    /// The 95th percentile in ns; `None` if nothing left the queue.
    pub(crate) fn finish_p95(mut self) -> Option<u64> {
        if self.end > 0 {
            self.counts.record_run(self.least, self.gap);
        }
        self.counts.quantiles([0.95]).map(|[p95]| p95)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exact_quantile;

    /// Every sample in ms, straight from the definition.
    fn naive(packets: &[(u64, u64)]) -> Vec<u64> {
        let (Some(&(first, _)), Some(&(last, _))) = (packets.first(), packets.last()) else {
            return Vec::new();
        };
        let mut samples = Vec::new();
        let mut value = 0;
        for t in (first..=last).rev() {
            let here = packets
                .iter()
                .filter(|(entered, _)| *entered == t)
                .map(|(_, delay)| *delay)
                .min();
            value = here.unwrap_or(value + 1);
            samples.push(value);
        }
        samples
    }

    fn streamed(packets: &[(u64, u64)]) -> SignalDelay {
        let mut signal = SignalDelay::new();
        for &(entered, delay) in packets {
            signal.on_departure(Time::from_millis(entered), Duration::from_millis(delay));
        }
        signal
    }

    #[test]
    fn empty_milliseconds_count_down_to_the_next_arrival() {
        // Entered at 10 (delays 7 and 5), 11 (9) and 15 (2): the samples from 10 to 15 are
        // 5, 9, 2+3, 2+2, 2+1, 2; sorted 2 3 4 5 5 9, element ⌊0.95·6⌋ = 5 is 9.
        let packets = [(10, 7), (10, 5), (11, 9), (15, 2)];
        let mut samples = naive(&packets);
        samples.sort_unstable();
        assert_eq!(samples, [2, 3, 4, 5, 5, 9]);
        assert_eq!(streamed(&packets).finish_p95(), Some(9 * MILLI));
    }

    #[test]
    fn an_outage_weighs_by_its_length_and_not_by_its_packets() {
        // 99 packets wait 1 ms; one that enters a second later waits 1 ms too.
        let mut packets: Vec<_> = (0..99).map(|t| (t, 1)).collect();
        packets.push((1099, 1));
        // 1100 samples: 99 of 1, then 1001 down to 1. Element 1045 of the sorted list: 100 ones,
        // then 2, 3, …, so element 100 is 2 and element 1045 is 947.
        assert_eq!(exact_quantile(&naive(&packets), 0.95), Some(947));
        assert_eq!(
            streamed(&packets).finish_p95().map(|n| n.div_ceil(MILLI)),
            Some(947)
        );
    }

    #[test]
    fn nothing_delivered_has_no_signal() {
        assert_eq!(SignalDelay::new().finish_p95(), None);
    }

    proptest! {
        #[test]
        fn streaming_equals_the_definition(
            steps in prop::collection::vec((prop_oneof![Just(0u64), 0..4u64, 0..400u64], 0..900u64), 1..60),
            start in 0..1000u64,
        ) {
            let mut entered = start;
            let packets: Vec<_> = steps.iter().map(|&(step, delay)| { entered += step; (entered, delay) }).collect();
            let samples = naive(&packets);
            let mut signal = streamed(&packets);
            signal.counts.record_run(signal.least, signal.gap);
            for q in [0.0, 0.25, 0.5, 0.75, 0.95, 1.0] {
                let [found] = signal.counts.quantiles([q]).expect("not empty");
                prop_assert_eq!(Some(found.div_ceil(MILLI)), exact_quantile(&samples, q));
            }
            prop_assert_eq!(streamed(&packets).finish_p95().map(|n| n.div_ceil(MILLI)), exact_quantile(&samples, 0.95));
        }
    }
}
