//! A recording in numbers: rate, variability on three time scales, bursts, gaps and outages.
//!
//! One pass over the opportunities, in memory that does not grow with the trace's length. Bins are
//! summed as they pass, in exact integers, and only counts of distinct values are kept. The
//! definitions are those that synthetic channels are calibrated with (see [`crate::generate`]):
//!
//! * a *burst* is the bytes of one delivering millisecond;
//! * a *gap* is the distance between successive delivering milliseconds;
//! * an *outage* is a gap of 100 ms or more, and the wait before the first opportunity counts;
//! * bins are whole bins from zero up to the last timestamp, and a coefficient of variation is the
//!   population's (divided by n);
//! * quantiles of bursts and gaps are inverted-CDF (a value that occurred), those of 1 s
//!   throughput interpolate linearly.

use std::collections::BTreeMap;

use serde::Serialize;
use verus_core::units::Bytes;

/// Bin widths of [`Statistics::bins`], in milliseconds: scheduler, fading, coverage.
pub const BIN_WIDTHS_MS: [u64; 3] = [20, 100, 1000];
/// Lags of [`BinStatistics::acf`], in bins.
pub const LAGS: [usize; 4] = [1, 5, 10, 50];
/// Thresholds of [`Statistics::outages`], in milliseconds.
pub const OUTAGE_THRESHOLDS_MS: [u64; 4] = [100, 200, 500, 1000];

/// Statistics of one trace. [`Statistics::of`] computes them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Number of delivery opportunities.
    pub opportunities: u64,
    /// The last timestamp, which is the trace's period, in seconds.
    pub duration_s: f64,
    /// Opportunities times their size over the duration, in Mbit/s.
    pub mean_mbps: f64,
    /// Delivering milliseconds over all milliseconds.
    pub share_of_ms_delivering: f64,
    /// Variability at 20 ms, 100 ms and 1 s.
    pub bins: [BinStatistics; 3],
    /// 5th percentile of throughput in 1 s bins, in Mbit/s. `None` below one second.
    pub p5_1s_mbps: Option<f64>,
    /// 95th percentile of throughput in 1 s bins, in Mbit/s. `None` below one second.
    pub p95_1s_mbps: Option<f64>,
    /// Standard deviation of the logarithm of throughput in the 1 s bins that carried something.
    pub sd_ln_1s: Option<f64>,
    /// Bytes in a delivering millisecond.
    pub burst_bytes: Quantiles,
    /// Milliseconds between successive delivering milliseconds. `None` if there is only one.
    pub gap_ms: Option<Quantiles>,
    /// Gaps of at least 100, 200, 500 and 1000 ms.
    pub outages: [OutageStatistics; 4],
    /// Time inside gaps of at least 100 ms over the duration.
    pub outage_time_share: f64,
    /// The longest wait for an opportunity, in milliseconds.
    pub longest_outage_ms: u64,
}

/// Variability of throughput in bins of one width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BinStatistics {
    /// Bin width in milliseconds.
    pub width_ms: u64,
    /// Whole bins in the trace.
    pub bins: u64,
    /// Standard deviation over mean. `None` without a bin that carried something.
    pub cv: Option<f64>,
    /// Sample autocorrelation at [`LAGS`] bins. `None` where the trace is too short or constant.
    pub acf: [Option<f64>; 4],
}

/// Mean and inverted-CDF quantiles of a positive integer quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // the names say it
pub struct Quantiles {
    pub mean: f64,
    pub p1: u64,
    pub p5: u64,
    pub p25: u64,
    pub p50: u64,
    pub p75: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

/// How often the channel falls silent for at least a given time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutageStatistics {
    /// The threshold in milliseconds.
    pub at_least_ms: u64,
    /// Gaps of at least that length per minute of trace.
    pub per_minute: f64,
}

impl Statistics {
    /// Statistics of opportunities at `times_ms` (milliseconds, never decreasing), each of
    /// `opportunity` bytes. `None` if there is no opportunity after millisecond zero, because such
    /// a trace has no duration.
    pub fn of(times_ms: impl IntoIterator<Item = u64>, opportunity: Bytes) -> Option<Self> {
        Self::of_period(times_ms, opportunity, 0)
    }

    /// The same where the trace repeats after `period_ms`, with silence at its end if that is later than the last
    /// opportunity.
    pub fn of_period(
        times_ms: impl IntoIterator<Item = u64>,
        opportunity: Bytes,
        period_ms: u64,
    ) -> Option<Self> {
        let mut bursts = Counts::default();
        let mut gaps = Counts::default();
        let mut bins = BIN_WIDTHS_MS.map(BinSums::new);
        let mut opportunities = 0u64;
        let mut delivering = 0u64;
        let mut burst = 0u64;
        let mut last = None;
        let mut first = 0;
        for time in times_ms {
            opportunities += 1;
            if last == Some(time) {
                burst += 1;
                continue;
            }
            match last {
                None => first = time,
                Some(before) => {
                    debug_assert!(time > before, "opportunities never decrease");
                    gaps.add(time.saturating_sub(before));
                    bursts.add(burst);
                    bins.iter_mut().for_each(|b| b.add(before, burst));
                }
            }
            delivering += 1;
            burst = 1;
            last = Some(time);
        }
        let last = last?;
        let duration = Some(last.max(period_ms)).filter(|&end| end > 0)?;
        bursts.add(burst);
        bins.iter_mut().for_each(|b| b.add(last, burst));

        let packet = opportunity.get();
        let ms = duration as f64;
        let minutes = ms / 60_000.0;
        let ends = [first, duration - last];
        let waits = || {
            let ends = ends.into_iter().filter(|&ms| ms > 0).map(|ms| (ms, 1));
            gaps.iter().chain(ends)
        };
        let outages = OUTAGE_THRESHOLDS_MS.map(|at_least_ms| OutageStatistics {
            at_least_ms,
            per_minute: waits()
                .filter(|w| w.0 >= at_least_ms)
                .map(|w| w.1)
                .sum::<u64>() as f64
                / minutes,
        });
        let silent = waits()
            .filter(|w| w.0 >= OUTAGE_THRESHOLDS_MS[0])
            .fold(0.0, |sum, (ms, count)| sum + ms as f64 * count as f64);
        let to_mbps = |per_second: f64| per_second * packet as f64 * 8.0 / 1e6;
        let bins = bins.map(|b| b.finish(duration));
        let seconds = &bins[2].1;
        Some(Statistics {
            opportunities,
            duration_s: ms / 1000.0,
            mean_mbps: to_mbps(opportunities as f64 / ms * 1000.0),
            // Milliseconds 0 and `ms` are the same one of a trace that repeats.
            share_of_ms_delivering: (delivering as f64 / ms).min(1.0),
            p5_1s_mbps: seconds.interpolated(0.05).map(to_mbps),
            p95_1s_mbps: seconds.interpolated(0.95).map(to_mbps),
            sd_ln_1s: seconds.sd_ln(),
            bins: bins.map(|b| b.0),
            burst_bytes: bursts.quantiles(packet)?,
            gap_ms: gaps.quantiles(1),
            outages,
            outage_time_share: silent / ms,
            longest_outage_ms: waits().map(|w| w.0).max().unwrap_or(0),
        })
    }

    /// Variability at one of [`BIN_WIDTHS_MS`].
    ///
    /// # Panics
    /// If `width_ms` is another width.
    pub fn bin(&self, width_ms: u64) -> &BinStatistics {
        let bin = self.bins.iter().find(|b| b.width_ms == width_ms);
        bin.expect("only the widths of BIN_WIDTHS_MS are computed")
    }

    /// Outages (gaps of at least 100 ms) per minute.
    pub fn outages_per_minute(&self) -> f64 {
        self.outages[0].per_minute
    }
}

/// How often bursts of each size and gaps of each length occur, for drawing their distributions (Verus Fig. 2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BurstHistograms {
    /// Histogram of the bytes carried in a delivering millisecond, ascending: the bytes, and the number of
    /// milliseconds.
    pub burst_bytes: Vec<(u64, u64)>,
    /// Histogram of the gaps between successive delivering milliseconds, ascending: the length in ms, and the number of
    /// gaps.
    pub gap_ms: Vec<(u64, u64)>,
}

impl BurstHistograms {
    /// Bursts and gaps of opportunities at `times_ms` (milliseconds, never decreasing), each of `opportunity`
    /// bytes.
    pub fn of(times_ms: impl IntoIterator<Item = u64>, opportunity: Bytes) -> Self {
        let (mut bursts, mut gaps) = (Counts::default(), Counts::default());
        let mut last: Option<(u64, u64)> = None;
        for time in times_ms {
            match &mut last {
                Some((at, size)) if *at == time => *size += 1,
                _ => {
                    if let Some((before, size)) = last.replace((time, 1)) {
                        bursts.add(size);
                        gaps.add(time.saturating_sub(before));
                    }
                }
            }
        }
        if let Some((_, size)) = last {
            bursts.add(size);
        }
        let bytes = |(count, times)| (count * opportunity.get(), times);
        BurstHistograms {
            burst_bytes: bursts.iter().map(bytes).collect(),
            gap_ms: gaps.iter().collect(),
        }
    }
}

/// Counts of each value. Small values, nearly all of them, are counted in an array.
#[derive(Debug, Default)]
struct Counts {
    small: Vec<u64>,
    large: BTreeMap<u64, u64>,
    total: u64,
    sum: u128,
}

impl Counts {
    const SMALL: u64 = 4096;

    fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    fn add_many(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.total += count;
        self.sum += u128::from(value) * u128::from(count);
        if value < Self::SMALL {
            let index = value as usize;
            if self.small.len() <= index {
                self.small.resize(index + 1, 0);
            }
            self.small[index] += count;
        } else {
            *self.large.entry(value).or_default() += count;
        }
    }

    /// Values that occurred, ascending, with how often.
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let small = self
            .small
            .iter()
            .enumerate()
            .map(|(value, &count)| (value as u64, count));
        small
            .filter(|v| v.1 > 0)
            .chain(self.large.iter().map(|(&value, &count)| (value, count)))
    }

    /// The value at `rank`, counting from 0 in ascending order.
    fn at(&self, rank: u64) -> u64 {
        let mut cumulated = 0;
        for (value, count) in self.iter() {
            cumulated += count;
            if cumulated > rank {
                return value;
            }
        }
        self.iter().last().map_or(0, |v| v.0)
    }

    fn quantiles(&self, scale: u64) -> Option<Quantiles> {
        if self.total == 0 {
            return None;
        }
        // Inverted CDF: the smallest value with at least a share q at or below it. q is a whole
        // number of thousandths, so that the rank is exact.
        let q = |thousandths: u128| {
            let rank = (u128::from(self.total) * thousandths).div_ceil(1000).max(1) - 1;
            self.at(rank as u64).saturating_mul(scale)
        };
        Some(Quantiles {
            mean: self.sum as f64 * scale as f64 / self.total as f64,
            p1: q(10),
            p5: q(50),
            p25: q(250),
            p50: q(500),
            p75: q(750),
            p90: q(900),
            p95: q(950),
            p99: q(990),
            p99_9: q(999),
            max: q(1000),
        })
    }

    /// The quantile `q`, interpolated between neighbouring ranks.
    fn interpolated(&self, q: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let position = q * (self.total - 1) as f64;
        let below = self.at(position as u64) as f64;
        let above = self.at((position as u64 + 1).min(self.total - 1)) as f64;
        Some(below + (above - below) * (position - position.floor()))
    }

    /// Standard deviation of the logarithm of the positive values.
    fn sd_ln(&self) -> Option<f64> {
        let positive = || {
            self.iter()
                .filter(|v| v.0 > 0)
                .map(|(v, n)| (libm::log(v as f64), n as f64))
        };
        let total: f64 = positive().map(|v| v.1).sum();
        if total == 0.0 {
            return None;
        }
        let mean = positive().map(|(ln, n)| ln * n).sum::<f64>() / total;
        Some(
            (positive()
                .map(|(ln, n)| (ln - mean) * (ln - mean) * n)
                .sum::<f64>()
                / total)
                .sqrt(),
        )
    }
}

const REACH: usize = LAGS[LAGS.len() - 1];

/// Sums over bins of one width, each bin added once it is complete.
#[derive(Debug)]
struct BinSums {
    width: u64,
    /// The bin being filled and its opportunities.
    current: u64,
    current_count: u64,
    /// The first and the last bins, by bin number modulo their length; they correct the ends of
    /// the lagged sums.
    head: [u64; REACH],
    recent: [u64; REACH],
    squares: u128,
    /// Σ x(i)·x(i+k) for each lag k.
    products: [u128; LAGS.len()],
    values: Counts,
}

impl BinSums {
    fn new(width: u64) -> Self {
        BinSums {
            width,
            current: 0,
            current_count: 0,
            head: [0; REACH],
            recent: [0; REACH],
            squares: 0,
            products: [0; LAGS.len()],
            values: Counts::default(),
        }
    }

    fn add(&mut self, time: u64, count: u64) {
        let bin = time / self.width;
        if bin > self.current {
            self.complete_until(bin);
        }
        self.current_count += count;
    }

    /// Completes every bin before `bin`.
    fn complete_until(&mut self, bin: u64) {
        let mut remaining = bin - self.current;
        // After REACH empty bins, further empty ones change nothing but their number.
        let mut steps = remaining.min(REACH as u64 + 1);
        while steps > 0 {
            let value = std::mem::take(&mut self.current_count);
            let slot = (self.current % REACH as u64) as usize;
            for (k, &lag) in LAGS.iter().enumerate() {
                if let Some(partner) = self.current.checked_sub(lag as u64) {
                    let earlier = self.recent[(partner % REACH as u64) as usize];
                    self.products[k] += u128::from(value) * u128::from(earlier);
                }
            }
            if self.current < REACH as u64 {
                self.head[slot] = value;
            }
            self.recent[slot] = value;
            self.squares += u128::from(value) * u128::from(value);
            self.values.add(value);
            self.current += 1;
            steps -= 1;
            remaining -= 1;
        }
        self.values.add_many(0, remaining);
        self.current += remaining;
    }

    fn finish(mut self, duration: u64) -> (BinStatistics, Counts) {
        let bins = duration / self.width;
        if bins > self.current {
            self.complete_until(bins);
        }
        let n = bins as f64;
        let sum = self.values.sum as f64;
        let mean = sum / n;
        // n²·variance, exact in integers.
        let squared_sum = self.values.sum.checked_mul(self.values.sum);
        let exact = u128::from(bins).checked_mul(self.squares).zip(squared_sum);
        let spread = match exact {
            Some((squares, squared_sum)) => squares.saturating_sub(squared_sum) as f64,
            None => n * self.squares as f64 - sum * sum,
        };
        let cv = (sum > 0.0).then(|| spread.sqrt() / sum);
        let mut acf = [None; LAGS.len()];
        for (k, &lag) in LAGS.iter().enumerate() {
            if bins <= lag as u64 || spread <= 0.0 {
                continue;
            }
            let tail: u64 = (bins - lag as u64..bins)
                .map(|i| self.recent[(i % REACH as u64) as usize])
                .sum();
            let head: u64 = self.head[..lag].iter().sum();
            // Σ (x(i) − m)(x(i+k) − m) over the n − k pairs, multiplied out.
            let pairs = n - lag as f64;
            let ends = 2.0 * sum - tail as f64 - head as f64;
            let covariance = self.products[k] as f64 - mean * ends + pairs * mean * mean;
            acf[k] = Some(covariance / (spread / n));
        }
        (
            BinStatistics {
                width_ms: self.width,
                bins,
                cv,
                acf,
            },
            self.values,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Statistics {
        Statistics::of(times.iter().copied(), Bytes::new(1500)).expect("a trace with a duration")
    }

    #[test]
    fn a_steady_channel_does_not_vary() {
        let times: Vec<u64> = (0..=60_000).collect();
        let s = of(&times);
        assert!((s.mean_mbps - 12.0).abs() < 1e-3);
        assert_eq!(s.bin(100).cv, Some(0.0));
        assert_eq!(
            s.bin(100).acf,
            [None; 4],
            "a constant has no autocorrelation"
        );
        assert_eq!(s.outages_per_minute(), 0.0);
        assert_eq!(s.gap_ms.expect("many gaps").max, 1);
    }

    #[test]
    fn bursts_and_gaps_are_counted_by_their_length() {
        let bursts = BurstHistograms::of([0, 0, 3, 5, 5, 8], Bytes::new(1500));
        assert_eq!(bursts.burst_bytes, [(1500, 2), (3000, 2)]);
        assert_eq!(bursts.gap_ms, [(2, 1), (3, 2)]);
        assert_eq!(
            BurstHistograms::of([], Bytes::new(1500)),
            BurstHistograms::default()
        );
    }

    #[test]
    fn nothing_after_zero_is_no_trace() {
        assert_eq!(Statistics::of([], Bytes::new(1500)), None);
        assert_eq!(Statistics::of([0, 0], Bytes::new(1500)), None);
    }

    #[test]
    fn a_small_case_agrees_with_hand_counts() {
        // Bins of 20 ms: 3, 0, 1, 0, 0, 0, 0, 2 (160 ms; the opportunity at 160 opens a bin that
        // is not whole).
        let s = of(&[0, 0, 5, 45, 150, 150, 160]);
        let bin = s.bin(20);
        assert_eq!(bin.bins, 8);
        let mean = 6.0 / 8.0;
        let variance: f64 = [3.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0f64]
            .iter()
            .map(|x| (x - mean) * (x - mean))
            .sum();
        assert!(
            (bin.cv.expect("bins carried something") - (variance / 8.0).sqrt() / mean).abs()
                < 1e-12
        );
        let x = [2.25, -0.75, 0.25, -0.75, -0.75, -0.75, -0.75, 1.25f64];
        for (k, lag) in [(0, 1), (1, 5)] {
            let covariance: f64 = (0..8 - lag).map(|i| x[i] * x[i + lag]).sum();
            assert!((bin.acf[k].expect("long enough") - covariance / variance).abs() < 1e-12);
        }
        assert_eq!(bin.acf[2], None);
        assert_eq!(s.outages[0].per_minute, 60_000.0 / 160.0);
        assert_eq!(s.longest_outage_ms, 105);
        assert_eq!(s.burst_bytes.max, 3000);
        assert_eq!(s.gap_ms.expect("many gaps").p50, 10);
    }

    #[test]
    fn the_wait_before_the_first_opportunity_is_an_outage() {
        let s = of(&[500, 501, 60_000]);
        assert_eq!(s.outages[2].per_minute, 2.0);
    }

    #[test]
    fn a_gap_of_centuries_costs_no_memory() {
        let s = of(&[0, u64::MAX / 2]);
        assert_eq!(s.bin(20).bins, u64::MAX / 2 / 20);
    }
}
