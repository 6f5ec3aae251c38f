//! Live media: audio and video in two qualities on one connection, what matters most first.
//!
//! ```text
//!  audio        a a a a a a a a a a a a     80 bytes, 50 a second; never waits for video
//!  video        ├K┤  ├P┤  ├P┤  ├P┤          1.2 Mbit/s; waits for audio alone
//!  better video ├──K──┤ ├─P─┤ ├─P─┤         2 Mbit/s; waits for both, and the rest of a group is given up once late
//! ```
//!
//! The streams are those of the media tests of draft-huitema-ccwg-c4-test. Each frame is
//! independent: it has arrived when all its data has, without regard to those before, as on a QUIC
//! stream for each. The frame of the next packet is chosen when that packet leaves; lost data goes
//! first. A packet carries data of one frame only.

use std::collections::{BTreeMap, VecDeque};

use verus_core::receiver::DataRange;
use verus_core::{Bytes, Duration, Time};

use crate::frames::Video;

/// Audio and two videos.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Media {
    /// Frames of audio; without end if absent.
    pub audio_frames: Option<u64>,
    /// Frames of each video; without end if absent.
    pub frames: Option<u64>,
    /// The wait of the better video after which the rest of its group is given up.
    pub deadline: Duration,
    /// Frames of the first so much time are sent and not measured.
    pub unmeasured: Duration,
}

impl Media {
    /// The streams, the most important first.
    fn streams(&self) -> [Video; 3] {
        let video = |key, frame| Video {
            key: Bytes::new(key),
            frame: Bytes::new(frame),
            group: 30,
            fps: 30.0,
            spread: 0.0,
            deadline: self.deadline,
            count: self.frames,
        };
        let audio = Video {
            key: Bytes::new(80),
            frame: Bytes::new(80),
            group: 1,
            fps: 50.0,
            spread: 0.0,
            deadline: self.deadline,
            count: self.audio_frames,
        };
        [audio, video(37_500, 3_750), video(62_500, 6_250)]
    }
}

/// The stream that gives up late frames, and is not measured.
const BETTER: usize = 2;

/// One of the streams.
#[derive(Clone, Debug)]
struct Stream {
    video: Video,
    offered: u64,
    /// Frames of which something has not been handed over, the oldest first.
    waiting: VecDeque<u64>,
    /// Frames before this one are given up.
    given_up_to: u64,
}

impl Stream {
    /// The due time of the next frame, if there is one.
    fn due(&self, start: Time) -> Option<Time> {
        self.video.due(start, self.offered)
    }
}

/// A frame that was offered and has not arrived.
#[derive(Clone, Debug)]
struct Frame {
    stream: usize,
    /// The index within its stream.
    index: u64,
    offered: Time,
    /// Bytes that were not handed over.
    unsent: u64,
    /// Bytes that have not arrived.
    missing: u64,
}

/// The streams of one connection: the frames offered, and the data of them that has not arrived.
#[derive(Clone, Debug)]
pub struct Streams {
    start: Time,
    measured_from: Time,
    streams: [Stream; 3],
    /// Whether the last frame has been offered, and the better video has been looked at once it could be late.
    is_over: bool,
    frames: BTreeMap<u64, Frame>,
    next_frame: u64,
    /// Bytes handed over: where the next piece begins.
    handed: u64,
    /// Which frame each piece that has not arrived is of, by where it begins.
    pieces: BTreeMap<u64, u64>,
    /// Frames of the better video that were given up, or came too late.
    late: u64,
}

impl Streams {
    /// Those of a connection that begins at `start`, when all their first frames are due; nothing is offered yet.
    pub fn new(media: &Media, start: Time) -> Self {
        Streams {
            start,
            measured_from: start + media.unmeasured,
            streams: media.streams().map(|video| Stream {
                video,
                offered: 0,
                waiting: VecDeque::new(),
                given_up_to: 0,
            }),
            is_over: false,
            frames: BTreeMap::new(),
            next_frame: 0,
            handed: 0,
            pieces: BTreeMap::new(),
            late: 0,
        }
    }

    /// Offers the frames that are due by `now`; when to come again, if anything can happen then.
    pub fn offer(&mut self, now: Time) -> Option<Time> {
        for at in 0..self.streams.len() {
            while let Some(due) = self.streams[at].due(self.start).filter(|due| *due <= now) {
                self.offer_one(at, due);
            }
        }
        self.give_up(now);
        if let Some(next) = (self.streams.iter())
            .filter_map(|stream| stream.due(self.start))
            .min()
        {
            return Some(next);
        }
        let looked = std::mem::replace(&mut self.is_over, true);
        (!looked).then(|| now + self.streams[BETTER].video.deadline + Duration::from_nanos(1))
    }

    fn offer_one(&mut self, at: usize, due: Time) {
        let stream = &mut self.streams[at];
        let index = stream.offered;
        stream.offered += 1;
        if index < stream.given_up_to {
            self.late += 1;
            return;
        }
        let size = stream.video.size(index);
        let frame = Frame {
            stream: at,
            index,
            offered: due,
            unsent: size.get(),
            missing: size.get(),
        };
        stream.waiting.push_back(self.next_frame);
        self.frames.insert(self.next_frame, frame);
        self.next_frame += 1;
    }

    /// Gives up late frames of the better video, with the rest of their group, which is useless
    /// without them.
    fn give_up(&mut self, now: Time) {
        let stream = &mut self.streams[BETTER];
        while let Some(number) = stream.waiting.front() {
            let frame = &self.frames[number];
            let is_late = now.since(frame.offered) > stream.video.deadline;
            if !is_late && frame.index >= stream.given_up_to {
                return;
            }
            let group = stream.video.group;
            stream.given_up_to = stream.given_up_to.max((frame.index / group + 1) * group);
            self.late += 1;
            self.frames.remove(number);
            stream.waiting.pop_front();
        }
    }

    /// The next piece, of at most `most` bytes, of the most important frame that waits; how long it is.
    pub fn hand_over(&mut self, now: Time, most: Bytes) -> Option<Bytes> {
        self.give_up(now);
        let stream = (self.streams.iter_mut()).find(|stream| !stream.waiting.is_empty())?;
        let number = *stream.waiting.front()?;
        let frame = self.frames.get_mut(&number)?;
        let len = frame.unsent.min(most.get());
        frame.unsent -= len;
        if frame.unsent == 0 {
            stream.waiting.pop_front();
        }
        self.pieces.insert(self.handed, number);
        self.handed += len;
        Some(Bytes::new(len))
    }

    /// A piece has arrived; how long its frame took, if this completes it and it is measured.
    pub fn on_arrived(&mut self, now: Time, piece: DataRange) -> Option<Duration> {
        let number = self.pieces.remove(&piece.start)?;
        // None if it was given up.
        let frame = self.frames.get_mut(&number)?;
        frame.missing -= piece.len;
        if frame.missing > 0 {
            return None;
        }
        let Frame {
            stream, offered, ..
        } = *frame;
        self.frames.remove(&number);
        let took = now.since(offered);
        if stream == BETTER {
            self.late += u64::from(took > self.streams[BETTER].video.deadline);
            return None;
        }
        (offered >= self.measured_from).then_some(took)
    }

    /// Whether everything has arrived or was given up.
    pub fn is_complete(&self) -> bool {
        self.frames.is_empty() && self.streams.iter().all(|s| s.due(self.start).is_none())
    }

    /// The number of frames of the better video given up or late by `now`, arrived or not.
    pub fn late(&self, now: Time) -> u64 {
        let deadline = self.streams[BETTER].video.deadline;
        let late = |frame: &&Frame| frame.stream == BETTER && now.since(frame.offered) > deadline;
        self.late + self.frames.values().filter(late).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIA: Media = Media {
        audio_frames: Some(3),
        frames: Some(2),
        deadline: Duration::from_millis(250),
        unmeasured: Duration::from_millis(15),
    };
    const PACKET: Bytes = Bytes::new(40_000);

    fn ms(millis: u64) -> Time {
        Time::from_secs_f64(millis as f64 / 1e3)
    }

    /// Hands over all waiting data, which then arrives in reverse order.
    fn carry(streams: &mut Streams, sent: Time, arrives: Time) -> Vec<u64> {
        let mut pieces = Vec::new();
        let mut start = streams.handed;
        while let Some(len) = streams.hand_over(sent, PACKET) {
            let len = len.get();
            pieces.push(DataRange { start, len });
            start += len;
        }
        let took = |piece: &DataRange| streams.on_arrived(arrives, *piece);
        let took = pieces.iter().rev().filter_map(took);
        took.map(|time| time.as_nanos() / 1_000_000).collect()
    }

    #[test]
    fn what_matters_most_goes_first_and_a_packet_has_data_of_one_frame() {
        let mut streams = Streams::new(&MEDIA, ms(0));
        assert_eq!(streams.offer(ms(0)), Some(ms(20)));
        let mut sizes = Vec::new();
        while let Some(len) = streams.hand_over(ms(0), PACKET) {
            sizes.push(len.get());
        }
        assert_eq!(sizes, [80, 37_500, 40_000, 22_500]);
        streams.offer(ms(40));
        assert_eq!(streams.hand_over(ms(40), PACKET), Some(Bytes::new(80)));
    }

    #[test]
    fn a_frame_is_there_when_its_own_data_is_and_the_better_video_is_not_measured() {
        let mut streams = Streams::new(&MEDIA, ms(0));
        streams.offer(ms(0));
        assert_eq!(
            carry(&mut streams, ms(1), ms(30)),
            [0u64; 0],
            "not measured"
        );
        streams.offer(ms(34));
        streams.offer(ms(40));
        // Audio of 20 and 40 ms, and video of 33 ms.
        assert_eq!(carry(&mut streams, ms(40), ms(60)), [26, 20, 40]);
        assert!(streams.is_complete());
        assert_eq!(streams.late(ms(999)), 0);
    }

    #[test]
    fn the_rest_of_a_group_is_given_up_once_late() {
        let mut streams = Streams::new(&MEDIA, ms(0));
        let mut next = Some(ms(0));
        while let Some(at) = next {
            next = streams.offer(at);
        }
        assert!(!streams.is_complete());
        // The first of the better video is 251 ms old, the second 218 ms.
        let took = carry(&mut streams, ms(251), ms(260));
        assert_eq!(took.len(), 3);
        assert_eq!(streams.late(ms(260)), 2);
        assert!(streams.is_complete());
    }

    #[test]
    fn a_connection_ends_although_its_last_frames_are_given_up() {
        let mut streams = Streams::new(&MEDIA, ms(0));
        let mut next = Some(ms(0));
        let mut last = ms(0);
        while let Some(at) = next {
            last = at;
            next = streams.offer(at);
            if streams.streams[BETTER].waiting.len() == 1 {
                let important =
                    |s: &Streams| s.streams[..BETTER].iter().any(|s| !s.waiting.is_empty());
                while important(&streams) {
                    streams.hand_over(at, PACKET);
                }
            }
        }
        assert!(last > ms(283), "looked at when the last can be late");
        assert!(streams.streams[BETTER].waiting.is_empty());
    }
}
