//! A live source: frames that are offered at a fixed rate, whether the network has room for them or not.
//!
//! ```text
//!  offered  ├K┤  ├P┤  ├P┤  ├P┤  ├K┤        each 1/fps, on one connection, however much still waits
//!  arrived     ├───K───┤├P┤├P┤ ├P┤          a frame has arrived when all data up to its end has: frames need those before
//! ```
//!
//! Where the controller sets a bitrate ([`Controller::media_rate`](verus_core::Controller::media_rate)), all frames are
//! scaled to it, as by an encoder; otherwise they have the sizes that the scenario gives.
//!
//! Groups of pictures begin with a key frame, as in the media tests of draft-huitema-ccwg-c4-test
//! (§ "Handling of Multimedia Applications"). The default is their streams of 30 frames a second.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use verus_core::{Bytes, Duration, Rate, Time};

/// The frames of a live source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Video {
    /// Size of the first frame of each group.
    pub key: Bytes,
    /// Size of each other frame.
    pub frame: Bytes,
    /// Frames from one key frame to the next.
    pub group: u64,
    /// Frames a second.
    pub fps: f64,
    /// How much larger or smaller a frame may be than these sizes, as a share of them: drawn evenly for each frame.
    pub spread: f64,
    /// A frame that takes longer than this is late.
    pub deadline: Duration,
    /// The number of frames; `None` for an endless source.
    pub count: Option<u64>,
}

impl Video {
    /// The size of the frame with this number, from 0.
    pub(crate) fn size(&self, number: u64) -> Bytes {
        if number.is_multiple_of(self.group) {
            self.key
        } else {
            self.frame
        }
    }

    /// The due time of the frame with this number, if there are so many.
    pub(crate) fn due(&self, start: Time, number: u64) -> Option<Time> {
        let more = self.count.is_none_or(|count| number < count);
        // Counted from the start, so that rounding errors do not add up.
        more.then(|| start + Duration::from_secs_f64(number as f64 / self.fps))
    }

    /// Factor by which frames are larger than these at a bitrate of `rate`.
    fn scale(&self, rate: Rate) -> f64 {
        let group = self.key + self.frame * (self.group - 1);
        let own_mbps = group.as_f64() * 8e-6 * self.fps / self.group as f64;
        rate.as_mbps() / own_mbps
    }
}

/// The frames of one connection: those offered, and those of them that have not arrived completely.
#[derive(Clone, Debug)]
pub struct Frames {
    video: Video,
    /// For the spread of sizes.
    draws: ChaCha8Rng,
    start: Time,
    offered: u64,
    offered_bytes: u64,
    /// For each frame that has not arrived completely: where in the data it ends, and when it was offered.
    under_way: VecDeque<(u64, Time)>,
    /// Frames that arrived in time.
    in_time: u64,
}

impl Frames {
    /// The frames of a connection that begins at `start`, when the first frame is due.
    pub fn new(video: Video, draws: ChaCha8Rng, start: Time) -> Self {
        Frames {
            video,
            draws,
            start,
            offered: 0,
            offered_bytes: 0,
            under_way: VecDeque::new(),
            in_time: 0,
        }
    }

    /// A frame is due at `now`, at this bitrate: returns its size, and when the next one is due.
    pub fn offer(&mut self, now: Time, rate: Option<Rate>) -> (Bytes, Option<Time>) {
        let video = &self.video;
        let nominal = video.size(self.offered);
        let mut scale = rate.map_or(1.0, |rate| video.scale(rate));
        if video.spread > 0.0 {
            scale *= 1.0 + video.spread * self.draws.random_range(-1.0..=1.0);
        }
        let size = if scale == 1.0 {
            nominal
        } else {
            nominal.mul_f64(scale).max(Bytes::new(1))
        };
        self.offered += 1;
        self.offered_bytes = self.offered_bytes.saturating_add(size.get());
        self.under_way.push_back((self.offered_bytes, now));
        (size, video.due(self.start, self.offered))
    }

    /// All data before `in_order` has arrived; calls `took` with the time that each frame took which this completes.
    pub fn on_arrived(&mut self, now: Time, in_order: u64, mut took: impl FnMut(Duration)) {
        while let Some(&(end, offered)) = self.under_way.front() {
            if end > in_order {
                return;
            }
            self.under_way.pop_front();
            let time = now.since(offered);
            self.in_time += u64::from(time <= self.video.deadline);
            took(time);
        }
    }

    /// Whether the last frame has arrived.
    pub fn is_complete(&self) -> bool {
        self.is_all_offered() && self.under_way.is_empty()
    }

    /// The number of frames late by `now`, whether they have arrived or not.
    pub fn late(&self, now: Time) -> u64 {
        let pending = |&&(_, offered): &&(u64, Time)| now.since(offered) <= self.video.deadline;
        self.offered - self.in_time - self.under_way.iter().filter(pending).count() as u64
    }

    fn is_all_offered(&self) -> bool {
        self.video.count == Some(self.offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    const VIDEO: Video = Video {
        key: Bytes::new(37_500),
        frame: Bytes::new(3_750),
        group: 3,
        fps: 30.0,
        spread: 0.0,
        deadline: Duration::from_millis(100),
        count: Some(4),
    };

    fn ms(millis: f64) -> Time {
        Time::from_secs_f64(millis / 1e3)
    }

    fn frames(video: Video, start_ms: f64) -> Frames {
        Frames::new(video, random::stream(1, "traffic", 0), ms(start_ms))
    }

    #[test]
    fn sizes_spread_evenly_around_the_bitrate_that_is_asked_for() {
        let video = Video {
            key: Bytes::new(10_000),
            frame: Bytes::new(10_000),
            spread: 0.25,
            count: None,
            ..VIDEO
        };
        let mut frames = frames(video, 0.0);
        // 20,000 bytes each.
        let rate = Some(Rate::from_bps(4_800_000));
        let sizes: Vec<f64> = (0..4000)
            .map(|_| frames.offer(ms(0.0), rate).0.as_f64())
            .collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        // A standard deviation of the mean is 46 bytes.
        assert!((mean - 20_000.0).abs() < 230.0, "{mean}");
        assert!((15_000.0..15_100.0).contains(&smallest), "{smallest}");
        assert!((24_900.0..=25_000.0).contains(&largest), "{largest}");
    }

    #[test]
    fn groups_begin_with_a_key_frame_and_frames_keep_their_rate() {
        let mut frames = frames(VIDEO, 500.0);
        let mut due = Some(ms(500.0));
        let mut offered = Vec::new();
        while let Some(at) = due {
            let (size, next) = frames.offer(at, None);
            offered.push((at, size.get()));
            due = next;
        }
        let third = 1e3 / 30.0;
        assert_eq!(
            offered,
            [
                (ms(500.0), 37_500),
                (ms(500.0 + third), 3_750),
                (ms(500.0 + 2.0 * third), 3_750),
                (ms(600.0), 37_500)
            ]
        );
    }

    #[test]
    fn frames_follow_the_bitrate_that_the_sender_can_carry() {
        let mut frames = frames(VIDEO, 0.0);
        // Half of 45,000 bytes each tenth of a second.
        let half_rate = Some(Rate::from_bps(1_800_000));
        assert_eq!(frames.offer(ms(0.0), half_rate).0.get(), 18_750);
        assert_eq!(frames.offer(ms(33.0), half_rate).0.get(), 1_875);
        assert_eq!(frames.offer(ms(67.0), None).0.get(), 3_750);
        assert_eq!(frames.offer(ms(100.0), Some(Rate::from_bps(1))).0.get(), 1);
    }

    #[test]
    fn a_frame_is_there_when_all_before_its_end_is_and_late_after_its_deadline() {
        let mut frames = frames(VIDEO, 0.0);
        let mut due = Some(ms(0.0));
        while let Some(at) = due {
            due = frames.offer(at, None).1;
        }
        let mut took = Vec::new();
        frames.on_arrived(ms(90.0), 41_249, |time| took.push(time));
        assert_eq!(took, [Duration::from_millis(90)]);
        assert_eq!(frames.late(ms(130.0)), 0, "the second has until 133 ms");
        assert_eq!(frames.late(ms(134.0)), 1, "and is late before it is there");
        took.clear();
        frames.on_arrived(ms(150.0), 45_000, |time| took.push(time));
        assert_eq!(took.len(), 2);
        assert_eq!(frames.late(ms(150.0)), 1, "the third came after 83 ms");
        assert!(!frames.is_complete());
        frames.on_arrived(ms(200.0), 82_500, |_| ());
        assert!(frames.is_complete());
        assert_eq!(frames.late(ms(999.0)), 1);
    }
}
