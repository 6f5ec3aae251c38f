//! Metrics of one flow from its two ends alone, where the bottleneck cannot be observed.
//!
//! The ends record when each packet left and arrived, each by a separate clock. Between two clocks
//! that were never synchronized only differences mean anything. The queueing delay is therefore
//! estimated as the one-way delay above the least of the run. It includes the drift between the
//! clocks (some tens of µs a second) and omits a queue that never drained.

use hdrhistogram::Histogram;
use verus_core::{Bytes, Duration, Time};

use crate::meter::mbps;

/// One histogram step, in ns.
const UNIT_NANOS: u64 = 10_000;
/// Three digits: quantiles are off by some 10 µs or 0.1 %, for 32 KiB a histogram. Those of one-way
/// delays are off by as much again each time that a much smaller delay shifts the recorded ones.
const DIGITS: u8 = 3;
/// The range of a histogram before it grows, 1.3 s, and at most, 3 hours; in steps.
const COVERED: (u64, u64) = (1 << 17, 1 << 30);

/// A histogram of spans of time with their exact mean.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    counts: Histogram<u32>,
    sum_nanos: i128,
}

impl Spans {
    pub(crate) fn new() -> Self {
        let mut counts = Histogram::new_with_bounds(1, COVERED.0, DIGITS)
            .expect("constant bounds within the library's limits");
        counts.auto(true);
        Spans {
            counts,
            sum_nanos: 0,
        }
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        let step = (nanos / UNIT_NANOS).min(COVERED.1);
        let recorded = self.counts.record(step);
        debug_assert!(recorded.is_ok(), "the histogram resizes itself");
        self.sum_nanos += i128::from(nanos);
    }

    /// Adds `nanos` to everything recorded.
    fn shift(&mut self, nanos: u64) {
        let mut moved = Spans::new();
        for step in self.counts.iter_recorded() {
            let middle = self.counts.median_equivalent(step.value_iterated_to());
            let to = (middle + nanos / UNIT_NANOS).min(COVERED.1);
            let recorded = moved.counts.record_n(
                to,
                u32::try_from(step.count_since_last_iteration()).unwrap_or(u32::MAX),
            );
            debug_assert!(recorded.is_ok(), "the histogram resizes itself");
        }
        moved.sum_nanos = self.sum_nanos + i128::from(nanos) * i128::from(self.counts.len());
        *self = moved;
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The mean of the least `count`, ms.
    pub(crate) fn mean_of_least_ms(&self, count: u64) -> Option<f64> {
        let mut remaining = count;
        let mut sum = 0.0;
        for step in self.counts.iter_recorded() {
            let taken = step.count_since_last_iteration().min(remaining);
            let middle = self.counts.median_equivalent(step.value_iterated_to());
            sum += (middle * UNIT_NANOS) as f64 * taken as f64;
            remaining -= taken;
        }
        (count > 0 && remaining == 0).then(|| sum / count as f64 / 1e6)
    }

    pub(crate) fn mean_ms(&self, less: u64) -> Option<f64> {
        let count = self.counts.len();
        (count > 0).then(|| (self.sum_nanos as f64 / count as f64 - less as f64) / 1e6)
    }

    pub(crate) fn quantile_ms(&self, q: f64, less: u64) -> Option<f64> {
        (!self.counts.is_empty()).then(|| {
            let step = self.counts.value_at_quantile(q);
            let nanos = self.counts.median_equivalent(step) * UNIT_NANOS;
            nanos.saturating_sub(less / UNIT_NANOS * UNIT_NANOS) as f64 / 1e6
        })
    }
}

/// One time bin of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathBin {
    /// Bytes that arrived in the bin, copies included.
    pub delivered: Bytes,
    /// Packets declared lost in the bin.
    pub lost: u64,
    rtt_sum: u64,
    rtts: u64,
    delay_sum: i64,
    delays: u64,
}

impl PathBin {
    /// Mean round-trip time of the packets acknowledged in the bin, ms.
    pub fn rtt_mean_ms(&self) -> Option<f64> {
        (self.rtts > 0).then(|| self.rtt_sum as f64 / self.rtts as f64 / 1e6)
    }
}

/// Measures one flow from its ends. Memory grows with time (a bin each 100 ms), not with packets.
#[derive(Clone, Debug)]
pub struct PathMeter {
    origin: Time,
    bin: Duration,
    bins: Vec<PathBin>,
    lost: u64,
    delivered: Bytes,
    last: Option<Time>,
    packets: u64,
    rtt: Spans,
    /// One-way delays above `base`.
    delay: Spans,
    /// The first one-way delay by the two clocks, ns.
    first_delay: Option<i64>,
    /// The least one-way delay relative to the first, ns: zero or less.
    least: i64,
    /// The zero of the recorded delays, relative to the first, ns: `least` or less.
    base: i64,
}

impl PathMeter {
    /// A meter whose time series begins at `origin`, in bins of `bin`.
    ///
    /// # Panics
    /// If `bin` is zero.
    pub fn new(origin: Time, bin: Duration) -> Self {
        assert!(!bin.is_zero(), "time series need bins of some width");
        PathMeter {
            origin,
            bin,
            bins: Vec::new(),
            lost: 0,
            delivered: Bytes::ZERO,
            last: None,
            packets: 0,
            rtt: Spans::new(),
            delay: Spans::new(),
            first_delay: None,
            least: 0,
            base: 0,
        }
    }

    fn bin_at(&mut self, now: Time) -> &mut PathBin {
        /// A day of bins of 100 ms; a run that is longer ends in one long bin.
        const MOST: usize = 864_000;
        let at = (now.since(self.origin).as_nanos() / self.bin.as_nanos()) as usize;
        let at = at.min(MOST - 1);
        if at >= self.bins.len() {
            self.bins.resize(at + 1, PathBin::default());
        }
        &mut self.bins[at]
    }

    /// A packet of `size` arrived, as known at `now`.
    pub fn on_delivered(&mut self, now: Time, size: Bytes) {
        self.delivered += size;
        self.packets += 1;
        self.last = Some(now);
        self.bin_at(now).delivered += size;
    }

    /// `packets` were declared lost.
    pub fn on_lost(&mut self, now: Time, packets: u64) {
        self.lost += packets;
        self.bin_at(now).lost += packets;
    }

    /// A packet's round-trip time is known.
    pub fn on_rtt(&mut self, now: Time, rtt: Duration) {
        self.rtt.record(rtt.as_nanos());
        let bin = self.bin_at(now);
        bin.rtt_sum += rtt.as_nanos();
        bin.rtts += 1;
    }

    /// A packet's departure and arrival are known, each by its end's own clock.
    pub fn on_one_way(&mut self, now: Time, sent: Time, received: Time) {
        let delay = received.as_nanos().wrapping_sub(sent.as_nanos()) as i64;
        let first = *self.first_delay.get_or_insert(delay);
        let delay = delay.wrapping_sub(first);
        // A peer may claim any time: impossible delays are left out.
        if delay.unsigned_abs() > COVERED.1 * UNIT_NANOS {
            return;
        }
        self.least = self.least.min(delay);
        if delay < self.base {
            // This is rare: new minima become less and less frequent, and each step makes as much room again.
            let step = (2 * delay.abs_diff(self.base) + 1_000_000).next_multiple_of(UNIT_NANOS);
            self.delay.shift(step);
            self.base -= step as i64;
        }
        self.delay.record(delay.abs_diff(self.base));
        let bin = self.bin_at(now);
        bin.delay_sum += delay;
        bin.delays += 1;
    }

    /// Bytes that arrived, copies included.
    pub fn delivered(&self) -> Bytes {
        self.delivered
    }

    /// How long it took from the meter's origin to the last arrival; none without one.
    pub fn elapsed(&self) -> Option<Duration> {
        self.last.map(|last| last.since(self.origin))
    }

    /// Packets that arrived.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets declared lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The time series, from the meter's origin.
    pub fn bins(&self) -> &[PathBin] {
        &self.bins
    }

    /// Width of a bin.
    pub fn bin_width(&self) -> Duration {
        self.bin
    }

    /// Bytes that arrived in the bin, Mbit/s.
    pub fn bin_throughput_mbps(&self, bin: &PathBin) -> f64 {
        mbps(bin.delivered.get(), self.bin)
    }

    /// The recent throughput, Mbit/s: of up to `most` whole bins before that of `now`.
    pub fn recent_mbps(&self, now: Time, most: usize) -> f64 {
        let end = (now.since(self.origin).as_nanos() / self.bin.as_nanos()) as usize;
        let from = end.saturating_sub(most);
        let bins = self.bins.get(from..end.min(self.bins.len()));
        let arrived: Bytes = bins.into_iter().flatten().map(|bin| bin.delivered).sum();
        mbps(arrived.get(), self.bin * (end - from).max(1) as u64)
    }

    /// Mean one-way delay in the bin above the least of the run, ms.
    pub fn bin_delay_ms(&self, bin: &PathBin) -> Option<f64> {
        (bin.delays > 0)
            .then(|| (bin.delay_sum as f64 / bin.delays as f64 - self.least as f64) / 1e6)
    }

    /// Mean round-trip time, ms.
    pub fn rtt_mean_ms(&self) -> Option<f64> {
        self.rtt.mean_ms(0)
    }

    /// A quantile of the round-trip time, ms.
    pub fn rtt_quantile_ms(&self, q: f64) -> Option<f64> {
        self.rtt.quantile_ms(q, 0)
    }

    /// Mean one-way delay above the least, ms.
    pub fn delay_mean_ms(&self) -> Option<f64> {
        self.delay.mean_ms(self.least.abs_diff(self.base))
    }

    /// A quantile of the one-way delay above the least, ms.
    pub fn delay_quantile_ms(&self, q: f64) -> Option<f64> {
        self.delay.quantile_ms(q, self.least.abs_diff(self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn delays_count_from_the_least_whatever_the_clocks_say() {
        for offset in [0, 5, 1_000_000] {
            let mut meter = PathMeter::new(Time::ZERO, Duration::from_millis(100));
            for (sent, delay) in [(10, 60), (20, 40), (110, 50)] {
                let received = ms(sent + delay + offset);
                meter.on_one_way(ms(sent), ms(sent), received);
            }
            assert_eq!(meter.delay_mean_ms(), Some(10.0));
            assert!((meter.delay_quantile_ms(1.0).expect("samples") - 20.0).abs() < 0.03);
            let bins: Vec<_> = meter
                .bins()
                .iter()
                .map(|bin| meter.bin_delay_ms(bin))
                .collect();
            assert_eq!(bins, [Some(10.0), Some(10.0)]);
        }
    }

    #[test]
    fn nothing_seen_is_unknown() {
        let meter = PathMeter::new(Time::ZERO, Duration::from_millis(100));
        assert_eq!(meter.delay_mean_ms(), None);
        assert_eq!(meter.rtt_quantile_ms(0.5), None);
        assert!(meter.bins().is_empty());
    }

    /// The largest delay, as a quantile and as recorded.
    fn largest(mut delays: Vec<u64>, offset: u64) -> (f64, f64) {
        let mut meter = PathMeter::new(Time::ZERO, Duration::from_millis(100));
        for &delay in &delays {
            let received = Time::from_nanos(offset / 2 + delay);
            meter.on_one_way(Time::ZERO, Time::from_nanos(offset), received);
        }
        delays.sort_unstable();
        let last = delays[delays.len() - 1] - delays[0];
        let quantile = meter.delay_quantile_ms(1.0).expect("samples") * 1e6;
        (quantile, last as f64)
    }

    #[test]
    fn the_largest_of_few_delays_is_near() {
        // Found by the property below.
        let delays = vec![
            232_959_888,
            2_853_119_888,
            127_439_888,
            28_949_888,
            8_040_048,
        ];
        let (quantile, last) = largest(delays, 0);
        assert!(
            (quantile - last).abs() <= 60_000.0 + 0.003 * last,
            "{quantile} {last}"
        );
    }

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_the_sorted_delays(
            delays in prop::collection::vec(0u64..3_000_000_000, 1..300),
            offset in 0u64..1 << 50,
        ) {
            let (quantile, last) = largest(delays, offset);
            prop_assert!((quantile - last).abs() <= 60_000.0 + 0.003 * last, "{quantile} {last}");
        }
    }
}
