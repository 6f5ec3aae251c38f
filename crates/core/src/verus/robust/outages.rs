//! Silences that are no queue of the flow's own.
//!
//! A queue delays by what the flow tolerates, R · D_min, at most for long. Where nothing is heard for longer, and
//! acknowledgements were not that rare anyway, the path has stopped. An epoch within such an outage decides nothing,
//! and what was under way is not charted: its delay says nothing of its window.

use crate::units::{Duration, Time};

/// A silence of so many usual intervals between acknowledgements may be an outage.
const ACKS_MISSED: u64 = 4;
/// An empty path that takes so much longer than D_min is a longer path; beyond, it may be an outage.
const LONGER_BY: Duration = Duration::from_millis(60);

/// When something was last heard, and what the last outage left.
#[derive(Debug, Default)]
pub struct Outages {
    last_ack: Option<Time>,
    /// Average time between acknowledgements.
    ack_interval: Duration,
    /// How long a silence may last before it is an outage; worked out once an epoch.
    longest_silence: Option<Duration>,
    /// Packets numbered below this were under way during an outage.
    stalled_until: u64,
    ended: Option<Time>,
}

impl Outages {
    /// Something was acknowledged, and `next_number` is the next packet's: how long the outage was that this ends,
    /// if it does. Slow start has none: its delays grow beyond all that came before.
    #[inline]
    pub fn on_acks(
        &mut self,
        now: Time,
        in_slow_start: bool,
        next_number: u64,
    ) -> Option<Duration> {
        let mut outage = None;
        if let Some(last) = self.last_ack {
            let silence = now.since(last);
            let longest = self.longest_silence.unwrap_or(Duration::MAX);
            if silence > longest && !in_slow_start {
                self.stalled_until = next_number;
                self.ended = Some(now);
                outage = Some(silence);
            }
            self.ack_interval = (self.ack_interval * 15 + silence.min(longest)) / 16;
        }
        self.last_ack = Some(now);
        outage
    }

    /// Once an epoch: how long a silence may last. `drained`: D_min of a flow that keeps two packets in flight to find
    /// out whether the path has become longer; it hears once a round trip.
    pub fn on_epoch(&mut self, tolerated: Duration, drained: Option<Duration>) {
        let longest = tolerated.max(self.ack_interval * ACKS_MISSED);
        let longer = drained.map_or(Duration::ZERO, |delay_min| delay_min + LONGER_BY);
        self.longest_silence = Some(longest.max(longer));
    }

    /// Whether the path has been silent for too long.
    pub fn is_stalled(&self, now: Time) -> bool {
        let silence = self.last_ack.map(|last| now.since(last));
        silence.is_some_and(|silence| silence > self.longest_silence.unwrap_or(Duration::MAX))
    }

    /// Whether a packet was under way during an outage.
    #[inline]
    pub fn held_up(&self, number: u64) -> bool {
        number < self.stalled_until
    }

    /// Whether an outage ended within `span`.
    pub fn ended_within(&self, now: Time, span: Duration) -> bool {
        self.ended.is_some_and(|ended| now.since(ended) < span)
    }
}
