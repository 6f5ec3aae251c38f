//! What the frames of a live source are like: how much the large ones exceed the mean, and how fast they come.

use verus_core::controller::Frame;
use verus_core::units::{Bytes, Rate, Time};

/// kRelFrameSizeHistBins: bins of a histogram of how much frames exceed the mean, up to twice its size.
const BINS: usize = 20;
/// kRelFrameSizeHistDecay: what each frame takes from those before.
const DECAY: f64 = 1.0 / 1024.0;
/// kRelFrameSizeHighPercentile: as large as this share of the frames that exceed the mean.
const PERCENTILE: f64 = 0.75;
/// kRelFrameSizeHistPreamble: frames before it is believed.
const PREAMBLE: u64 = 50;
/// The weight of the last time from a frame to the next in their mean, and that time before it is known, s (`framePeriod`).
const PERIOD_WEIGHT: f64 = 0.9;
const FIRST_PERIOD: f64 = 0.02;
/// Frames with a smaller mean, bytes, say nothing.
const TELLING: f64 = 500.0;
/// kRateUpDateSize: over so many frames the rate is taken; the original takes 0.4 s, which is as much at 20 frames a second.
const RATE_FRAMES: usize = 8;

/// Sizes and times of frames.
#[derive(Clone, Debug)]
pub(super) struct FrameSizes {
    bins: [f64; BINS],
    count: u64,
    last_at: Option<Time>,
    period: f64,
    /// Of the last frame, or of all that waits if that is more: how many times as much as the mean.
    pace: f64,
    sizes: [Bytes; RATE_FRAMES],
}

impl Default for FrameSizes {
    fn default() -> Self {
        let mut bins = [0.0; BINS];
        bins[0] = 1.0;
        FrameSizes {
            bins,
            count: 0,
            last_at: None,
            period: FIRST_PERIOD,
            pace: 1.0,
            sizes: [Bytes::ZERO; RATE_FRAMES],
        }
    }
}

impl FrameSizes {
    /// A frame, of a source that was asked for `bitrate`.
    pub(super) fn on_frame(&mut self, frame: &Frame, bitrate: Rate) {
        if let Some(at) = self.last_at {
            let since = frame.now.since(at).as_secs_f64();
            self.period += PERIOD_WEIGHT * (since - self.period);
        }
        self.last_at = Some(frame.now);
        self.sizes[(self.count % RATE_FRAMES as u64) as usize] = frame.size;
        self.count += 1;
        let mean = bitrate.as_mbps() * 1e6 * self.period / 8.0;
        let exceeds = frame.size.as_f64() / mean - 1.0;
        if exceeds > 0.0 {
            let bin = ((exceeds * BINS as f64) as usize).min(BINS - 1);
            self.bins[bin] += 1.0;
            for bin in &mut self.bins {
                *bin *= 1.0 - DECAY;
            }
        }
        self.pace = if mean > TELLING {
            frame.size.max(frame.waiting).as_f64() / mean
        } else {
            1.0
        };
    }

    /// Large frames over the mean (`relFrameSizeHigh`).
    pub(super) fn large(&self) -> f64 {
        if self.count <= PREAMBLE {
            return 1.0;
        }
        let mark = PERCENTILE * self.bins.iter().sum::<f64>();
        let mut below = 0.0;
        let reached = self.bins.iter().position(|bin| {
            below += bin;
            below >= mark
        });
        1.0 + reached.unwrap_or(BINS - 1) as f64 / BINS as f64
    }

    /// How much faster than usual what waits is to be paced.
    pub(super) fn pace(&self) -> f64 {
        self.pace
    }

    /// What the source gave lately (`rateRtpAvg`); nothing before there are enough frames.
    pub(super) fn rate(&self) -> Rate {
        if self.count < RATE_FRAMES as u64 || self.period <= 0.0 {
            return Rate::default();
        }
        let sum: Bytes = self.sizes.iter().copied().sum();
        let mbps = sum.as_f64() * 8e-6 / (self.period * RATE_FRAMES as f64);
        Rate::from_mbps(mbps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of these sizes at 50 frames a second, of a source that was asked for 4 Mbit/s: 10,000 bytes each.
    fn seen(sizes: impl Iterator<Item = u64>) -> FrameSizes {
        let mut frames = FrameSizes::default();
        for (number, size) in sizes.enumerate() {
            let size = Bytes::new(size);
            let frame = Frame {
                now: Time::from_millis(20 * number as u64),
                size,
                waiting: size,
            };
            frames.on_frame(&frame, Rate::from_mbps(4.0));
        }
        frames
    }

    #[test]
    fn frames_of_one_size_exceed_nothing() {
        let frames = seen(std::iter::repeat_n(10_000, 200));
        assert_eq!((frames.large(), frames.pace()), (1.0, 1.0));
        assert!((frames.rate().as_mbps() - 4.0).abs() < 1e-6);
    }

    #[test]
    fn large_is_what_three_of_four_frames_above_the_mean_stay_below() {
        // A half is below the mean; the rest exceeds it by 0 to 40 %, evenly.
        let sizes = (0..400).map(|n| 10_000 + 100 * (n % 41) * (n % 2) - 1000 * ((n + 1) % 2));
        let frames = seen(sizes);
        assert!((frames.large() - 1.3).abs() < 0.051, "{}", frames.large());
        assert_eq!(seen((0..50).map(|_| 14_000)).large(), 1.0, "too few");
    }

    #[test]
    fn what_waits_is_paced_faster() {
        let mut frames = seen(std::iter::repeat_n(10_000, 10));
        let frame = Frame {
            now: Time::from_millis(200),
            size: Bytes::new(10_000),
            waiting: Bytes::new(13_000),
        };
        frames.on_frame(&frame, Rate::from_mbps(4.0));
        assert!((frames.pace() - 1.3).abs() < 1e-3, "{}", frames.pace());
    }
}
