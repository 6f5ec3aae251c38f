//! The data of a connection, decided as late as possible: a packet at a time.

use verus_core::receiver::DataRange;
use verus_core::{Bytes, Duration, Time};
use verus_senders::Sender;

use crate::media::{Media, Streams};
use crate::traffic::Turns;

/// Hands a sender data a packet at a time: at most one that has not left, so that all else can still be decided.
#[derive(Clone, Debug)]
pub struct Feed {
    supply: Supply,
    /// Whether the data handed over has not left.
    handed: bool,
}

#[derive(Clone, Debug)]
enum Supply {
    /// Something to send in turns.
    Turns { on: bool, pauses: u64 },
    /// Audio and video.
    Media(Box<Streams>),
}

impl Feed {
    /// The feed of a connection that begins with a turn.
    pub fn turns() -> Self {
        Feed::of(Supply::Turns {
            on: true,
            pauses: 0,
        })
    }

    /// The feed of a connection that carries live media from `start` on.
    pub fn media(media: &Media, start: Time) -> Self {
        Feed::of(Supply::Media(Box::new(Streams::new(media, start))))
    }

    fn of(supply: Supply) -> Self {
        Feed {
            supply,
            handed: false,
        }
    }

    /// A turn is over, or a pause; how long what follows lasts, if it ends.
    pub fn turn(&mut self, turns: &Turns) -> Option<Duration> {
        let Supply::Turns { on, pauses } = &mut self.supply else {
            return None;
        };
        if !*on {
            *on = true;
            return (turns.pauses != Some(*pauses)).then_some(turns.on);
        }
        *on = false;
        *pauses += 1;
        Some(turns.off)
    }

    /// The media that it carries, if it does.
    pub fn streams(&self) -> Option<&Streams> {
        match &self.supply {
            Supply::Media(streams) => Some(streams),
            Supply::Turns { .. } => None,
        }
    }

    /// Frames of its media may be due; when to come again, if anything can happen then.
    pub fn offer(&mut self, now: Time) -> Option<Time> {
        match &mut self.supply {
            Supply::Media(streams) => streams.offer(now),
            Supply::Turns { .. } => None,
        }
    }

    /// Hands over the next packet, if there is one and the last has left.
    pub fn feed(&mut self, now: Time, sender: &mut Sender, packet: Bytes) {
        if self.handed {
            return;
        }
        let next = match &mut self.supply {
            Supply::Turns { on, .. } => on.then_some(packet),
            Supply::Media(streams) => streams.hand_over(now, packet),
        };
        if let Some(bytes) = next {
            self.handed = true;
            sender.offer(bytes);
        }
    }

    /// The data handed over has left.
    pub fn on_left(&mut self) {
        self.handed = false;
    }

    /// A packet's data has arrived; how long the frame took that this completes, if it is measured.
    pub fn on_arrived(&mut self, now: Time, data: DataRange) -> Option<Duration> {
        match &mut self.supply {
            Supply::Media(streams) => streams.on_arrived(now, data),
            Supply::Turns { .. } => None,
        }
    }
}
