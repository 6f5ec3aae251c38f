//! Signal delay: the least time that a packet entering the queue at each millisecond would have
//! waited.

use std::collections::{BTreeMap, VecDeque};

use verus_core::{Duration, Time};

const MILLI: u64 = 1_000_000;

/// Samples below this many ms are counted by their units beyond whole ms, longer ones by whole ms.
/// A sample is then too low by less than 10 µs or 1/1024 of it, as all quantiles are.
const FINE_MS: u64 = 1 << 10;
const UNIT_NANOS: u64 = 10_000;
const UNITS: u64 = MILLI / UNIT_NANOS;

/// Whole ms below this many (17 minutes) are counted in an array, the few above in a map.
const DENSE_MS: u64 = 1 << 20;

/// The signal delay of one FIFO bottleneck, sampled at every millisecond between the first and the
/// last arrival of a delivered packet. A sample is the least delay of the packets that entered in
/// that millisecond. If none did, it is 1 ms + the value of the next millisecond (Sprout, NSDI
/// 2013, §5.1; as Mahimahi's `mm-delay-graph` computes it).
///
/// The latter takes a silence for a link that serves no packet, which is right only if a packet
/// waits. If it is known that no sender had anything to send in a whole empty millisecond, the
/// sample is the time that the queue still needed to run empty. There is no sample if the queue was
/// empty, since the link's service is then unknown.
///
/// Departures come in the order of entering, so a millisecond is complete when a later one is
/// entered, and the empty ones before it then count down to it. The cost is one comparison per
/// packet, and a few additions for each stretch of milliseconds. All samples of a stretch have the
/// same part beyond whole ms.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignalDelay {
    /// How many samples more (or fewer) there are than of one ms less: [`UNITS`] for each ms below [`FINE_MS`].
    fine_steps: Vec<i32>,
    /// The same of whole ms, from [`FINE_MS`] on.
    steps: Vec<i32>,
    far_steps: BTreeMap<u64, i32>,
    /// The millisecond now being filled, in ns; `end` is zero before the first.
    start: u64,
    end: u64,
    /// Least delay of the packets that entered in it, ns.
    least: u64,
    /// Where the milliseconds without a packet just before it begin; itself if there are none.
    gap_start: u64,
    /// When the last packet left, ns, and when the last had left that entered before that millisecond.
    left: u64,
    left_before: u64,
    /// Spans during which no sender had anything to send, ns, of those that no packet has entered behind yet.
    idle: VecDeque<(u64, u64)>,
    /// Since when no sender has anything to send, ns; `None` if one has, or if it is not known.
    idle_since: Option<u64>,
}

impl SignalDelay {
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
        self.left = self.left.max(entered.saturating_add(delay));
    }

    /// Whether any sender has something to send, from `now` on. Comes in time order, before the departures of packets
    /// that enter later.
    pub(crate) fn set_wanted(&mut self, now: Time, wanted: bool) {
        let now = now.as_nanos();
        if !wanted {
            self.idle_since.get_or_insert(now);
        } else if let Some(since) = self.idle_since.take()
            && since.next_multiple_of(MILLI) + MILLI <= now
        {
            self.idle.push_back((since, now));
        }
    }

    fn next_millisecond(&mut self, entered: u64, delay: u64) {
        let start = entered - entered % MILLI;
        if self.end > 0 {
            self.end_millisecond();
        }
        self.gap_start = if self.end > 0 { self.end } else { start };
        self.left_before = self.left;
        self.start = start;
        self.end = start.saturating_add(MILLI);
        self.least = delay;
    }

    /// The millisecond that is full, and the empty ones before it.
    fn end_millisecond(&mut self) {
        let until = self.start.saturating_add(self.least);
        self.gap(self.gap_start, self.start, until);
        self.count_down(self.start, self.end, until);
    }

    /// Milliseconds without an entering packet, where the packet that enters in the next one leaves
    /// at `until`.
    fn gap(&mut self, mut from: u64, to: u64, until: u64) {
        while from < to
            && let Some(&(since, wanted)) = self.idle.front()
        {
            if since >= to {
                break;
            }
            from = self.idle_gap(from, to, until, (since, wanted));
            if wanted > to {
                break;
            }
            self.idle.pop_front();
        }
        if let Some(since) = self.idle_since {
            from = self.idle_gap(from, to, until, (since, u64::MAX));
        }
        self.count_down(from, to, until);
    }

    /// Counts the milliseconds before the end of a span in which no sender had anything to send;
    /// returns that end.
    fn idle_gap(&mut self, from: u64, to: u64, until: u64, (since, wanted): (u64, u64)) -> u64 {
        let first = since.next_multiple_of(MILLI).clamp(from, to);
        let last = (wanted - wanted % MILLI).clamp(first, to);
        self.count_down(from, first, until);
        let empty = self.left_before.next_multiple_of(MILLI).clamp(first, last);
        self.count_down(first, empty, self.left_before);
        last
    }

    /// The milliseconds from `from` to `to` count the time that is left until `until`.
    fn count_down(&mut self, from: u64, to: u64, until: u64) {
        if from >= to {
            return;
        }
        let lowest = until.saturating_sub(to - MILLI);
        let unit = lowest % MILLI / UNIT_NANOS;
        let first = lowest / MILLI;
        let end = (until.saturating_sub(from) / MILLI).saturating_add(1);
        if first < FINE_MS {
            self.fine_step(first, unit, 1);
            if end < FINE_MS {
                self.fine_step(end, unit, -1);
            }
        }
        if end > FINE_MS {
            self.step(first.max(FINE_MS), 1);
            self.step(end, -1);
        }
    }

    #[inline]
    fn fine_step(&mut self, ms: u64, unit: u64, by: i32) {
        let at = (ms * UNITS + unit) as usize;
        if self.fine_steps.len() <= at {
            self.fine_steps
                .resize((ms + 1) as usize * UNITS as usize, 0);
        }
        self.fine_steps[at] += by;
    }

    #[inline]
    fn step(&mut self, ms: u64, by: i32) {
        if ms >= DENSE_MS {
            *self.far_steps.entry(ms).or_default() += by;
            return;
        }
        let at = (ms - FINE_MS) as usize;
        if self.steps.len() <= at {
            self.steps.resize(at + 1, 0);
        }
        self.steps[at] += by;
    }

    /// The 95th percentile in ns; `None` if nothing left the queue.
    pub(crate) fn finish_p95(mut self) -> Option<u64> {
        if self.end == 0 {
            return None;
        }
        self.end_millisecond();
        self.quantile(0.95)
    }

    /// Element ⌊q·n⌋ of the sorted samples of the milliseconds that have ended, in ns.
    fn quantile(&self, q: f64) -> Option<u64> {
        let total = self.stretches().map(|(_, count)| count).sum::<u64>();
        let mut rank = ((total as f64 * q) as u64).min(total.checked_sub(1)?);
        for (span, count) in self.stretches() {
            if rank < count {
                let each = count / span.length;
                return Some(span.first + rank / each * MILLI);
            }
            rank -= count;
        }
        None
    }

    /// The samples, ascending: stretches of spans a ms apart, and how many samples they are together.
    fn stretches(&self) -> impl Iterator<Item = (Stretch, u64)> + '_ {
        let mut open = [0i64; UNITS as usize];
        // Beyond the last step nothing is counted, unless a stretch ends where whole ms begin.
        let ends = self
            .fine_steps
            .iter()
            .map(|&step| i64::from(step))
            .sum::<i64>()
            == 0;
        let fine_end = if ends {
            self.fine_steps.len() as u64
        } else {
            FINE_MS * UNITS
        };
        let fine = (0..fine_end).map(move |at| {
            let unit = (at % UNITS) as usize;
            // Never negative: each stretch ends after it begins.
            open[unit] += i64::from(self.fine_steps.get(at as usize).copied().unwrap_or(0));
            let first = at / UNITS * MILLI + unit as u64 * UNIT_NANOS;
            (Stretch { first, length: 1 }, open[unit] as u64)
        });
        let steps = || {
            let dense = (FINE_MS..).zip(self.steps.iter().copied());
            dense.chain(self.far_steps.iter().map(|(&ms, &step)| (ms, step)))
        };
        let ends = steps().skip(1).map(|(ms, _)| ms).chain(std::iter::once(0));
        let far = steps().zip(ends).scan(0i64, |count, ((ms, step), end)| {
            *count += i64::from(step);
            let length = end.saturating_sub(ms);
            let first = ms * MILLI;
            Some((Stretch { first, length }, *count as u64 * length))
        });
        fine.chain(far).filter(|(_, count)| *count > 0)
    }
}

/// Spans of time a ms apart.
struct Stretch {
    /// The shortest, ns.
    first: u64,
    /// How many there are.
    length: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exact_quantile;

    /// Every sample, straight from the definition, of packets that entered at some ms and waited for some units of 10 µs.
    fn naive(packets: &[(u64, u64)]) -> Vec<u64> {
        let (Some(&(first, _)), Some(&(last, _))) = (packets.first(), packets.last()) else {
            return Vec::new();
        };
        let mut samples = Vec::new();
        let mut value = 0;
        for t in (first..=last).rev() {
            let entered_now = packets
                .iter()
                .filter(|(entered, _)| *entered == t)
                .map(|(_, delay)| *delay)
                .min();
            value = entered_now.unwrap_or(value + UNITS);
            samples.push(value);
        }
        samples
    }

    fn streamed(packets: &[(u64, u64)]) -> SignalDelay {
        let mut signal = SignalDelay::default();
        for &(entered, delay) in packets {
            let delay = Duration::from_nanos(delay * UNIT_NANOS);
            signal.on_departure(Time::from_millis(entered), delay);
        }
        signal
    }

    #[test]
    fn empty_milliseconds_count_down_to_the_next_arrival() {
        // Entered at 10 (delays 7 and 5), 11 (9) and 15 (2): the samples from 10 to 15 are 5, 9,
        // 2+3, 2+2, 2+1, 2. Sorted they are 2 3 4 5 5 9; element ⌊0.95·6⌋ = 5 is 9.
        let packets = [(10, 700), (10, 500), (11, 900), (15, 200)];
        let mut samples = naive(&packets);
        samples.sort_unstable();
        assert_eq!(samples, [200, 300, 400, 500, 500, 900]);
        assert_eq!(streamed(&packets).finish_p95(), Some(9 * MILLI));
    }

    #[test]
    fn samples_are_not_rounded_to_whole_milliseconds() {
        // 51.948 ms in the queue, as at 12 Mbit/s; then two empty milliseconds before one that waits 51.4 ms.
        let mut signal = SignalDelay::default();
        signal.on_departure(Time::from_millis(10), Duration::from_micros(51_948));
        assert_eq!(signal.clone().finish_p95(), Some(51_940_000));
        signal.on_departure(Time::from_millis(13), Duration::from_micros(51_400));
        let mut ended = signal.clone();
        ended.end_millisecond();
        for (q, micros) in [(0.0, 51_400), (0.3, 51_940), (0.6, 52_400), (0.9, 53_400)] {
            assert_eq!(ended.quantile(q), Some(micros * 1_000), "{q}");
        }
        // 1,987 samples from 1.5 to 1,987.5 ms join these four. In ascending order, number 1,891 of
        // the 1,991 (from 0) is 1,888.5 ms. From 1.024 s on, whole ms are kept: that is off by less
        // than 1/1024.
        signal.on_departure(Time::from_millis(2_000), Duration::from_micros(1_500));
        assert_eq!(signal.finish_p95(), Some(1_888 * MILLI));
    }

    #[test]
    fn an_outage_weighs_by_its_length_and_not_by_its_packets() {
        // 99 packets wait 1 ms; one that enters a second later waits 1 ms too.
        let mut packets: Vec<_> = (0..99).map(|t| (t, 100)).collect();
        packets.push((1099, 100));
        // 1100 samples: 99 of 1, then 1001 down to 1. Element 1045 of the sorted list: 100 ones,
        // then 2, 3, …, so element 100 is 2 and element 1045 is 947.
        assert_eq!(exact_quantile(&naive(&packets), 0.95), Some(94_700));
        assert_eq!(
            streamed(&packets).finish_p95().map(|n| n.div_ceil(MILLI)),
            Some(947)
        );
    }

    #[test]
    fn milliseconds_in_which_nobody_wants_to_send_count_what_the_queue_needs_to_run_empty() {
        // Entered at 10, left at 14. Nothing to send from then on, and again from 30.5 on. The next
        // enters at 32 and leaves at 35. Samples: 4. The queue runs empty at 14: 3, 2, 1. None from
        // 14 to 29. 30 and 31 wait for the next, which leaves at 35: 5, 4. 32: 3. Sorted 1 2 3 3 4
        // 4 5.
        let mut signal = SignalDelay::default();
        let at = |ms: f64| Time::from_secs_f64(ms / 1e3);
        signal.set_wanted(at(9.0), true);
        signal.set_wanted(at(10.0), false);
        signal.set_wanted(at(30.5), true);
        signal.on_departure(at(10.0), Duration::from_millis(4));
        signal.on_departure(at(32.0), Duration::from_millis(3));
        // It leaves as the source runs dry again: the next packet is sent once the source yields
        // it.
        signal.set_wanted(at(32.0), false);
        signal.on_departure(at(932.0), Duration::from_millis(3));
        signal.end_millisecond();
        // So the empty milliseconds from 33 to 931 count 2 and 1, and that of 932 counts 3.
        let samples = [1, 1, 2, 2, 3, 3, 3, 4, 4, 5];
        for (index, sample) in samples.into_iter().enumerate() {
            let q = (index as f64 + 0.5) / samples.len() as f64;
            assert_eq!(signal.quantile(q), Some(sample * MILLI), "{index}");
        }
    }

    #[test]
    fn a_wait_for_the_link_counts_however_long_it_is() {
        // Something to send all along, in flight or held back: only the clock reveals an outage.
        let mut signal = SignalDelay::default();
        signal.set_wanted(Time::ZERO, true);
        signal.on_departure(Time::from_millis(0), Duration::from_millis(1));
        signal.on_departure(Time::from_millis(1000), Duration::from_millis(1));
        assert_eq!(signal.finish_p95(), Some(950 * MILLI)); // of 1, 1, 2, …, 1000 the one at 950
    }

    #[test]
    fn nothing_delivered_has_no_signal() {
        assert_eq!(SignalDelay::default().finish_p95(), None);
    }

    proptest! {
        #[test]
        fn streaming_equals_the_definition(
            steps in prop::collection::vec((prop_oneof![Just(0u64), 0..4u64, 0..400u64], 0..90_000u64), 1..60),
            start in 0..1000u64,
        ) {
            let mut entered = start;
            let packets: Vec<_> = steps.iter().map(|&(step, delay)| { entered += step; (entered, delay) }).collect();
            let samples = naive(&packets);
            let mut signal = streamed(&packets);
            signal.end_millisecond();
            for q in [0.0, 0.25, 0.5, 0.75, 0.95, 1.0] {
                let quantile = signal.quantile(q).expect("packets left") / UNIT_NANOS;
                let exact = exact_quantile(&samples, q).expect("packets left");
                prop_assert_eq!(quantile, if exact < FINE_MS * UNITS { exact } else { exact - exact % UNITS });
            }
            prop_assert_eq!(streamed(&packets).finish_p95(), signal.quantile(0.95));
        }
    }
}
