//! Outages: silences that the flow's own queue cannot explain.
//!
//! Verus keeps the queue's delay near R · D_min or below. If nothing is acknowledged for longer than that, and
//! acknowledgements usually come more often, the path has stopped delivering. Epochs during such an outage make no
//! decision, and the delays of the packets that it held up do not enter the profile: they depend on the outage and not on
//! the window that the packets left under.

use verus_core::units::{Duration, Time};

/// A silence is an outage only if it lasts longer than this many average intervals between acknowledgements (and longer
/// than R · D_min): a flow with few packets in flight hears acknowledgements seldom anyway.
const ACKS_MISSED: u64 = 4;
/// While a drain keeps two packets in flight, only a silence longer than D_min plus this is an outage. A shorter one may
/// be the round trip of a path that has become longer, which is what the drain is there to find out.
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
    /// Something was acknowledged; `next_number` is that of the next packet to leave. Returns the length of the outage that
    /// this ends, if it ends one. In slow start no silence is an outage, as delays grow beyond all earlier ones then.
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

    /// Once an epoch: works out how long a silence may last. `tolerated` is R · D_min. `drained` is D_min while the flow
    /// drains: with two packets in flight, it hears only once in a round trip, which may have become longer.
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
