//! Bounds the packets sent to a peer that acknowledges nothing.
//!
//! A peer that proves an address and then falls silent would otherwise be sent a test's whole load.
//! While packets are in flight and nothing new is acknowledged, sending goes on for [`PATIENCE`].
//! It then shrinks to single packets, further and further apart. The first acknowledgement of
//! anything new ends this, so that a cellular outage of ten seconds or more costs no test. Nothing
//! else ends it; a packet that only shows that the peer is alive does not.
//!
//! A long history of acknowledgements extends the patience, to at most a quarter of its duration.
//! The data sent into silence thus stays a fraction of the data received. A sender can also bridge
//! outages of the return path alone (5 s in a recording).

use verus_core::{Duration, Time};

/// How long sending goes on with nothing acknowledged: many round trips of any path in use.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most patience that a peer earns by acknowledging: the silence that a recording bridges, and a round trip.
const MOST_PATIENCE: Duration = Duration::from_secs(6);
/// The patience earned is the time with acknowledgements divided by this.
const EARNED: u64 = 4;
/// The first wait between two single packets, and the longest, by which an outage's end may be
/// noticed late.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Whether an end may send data now, according to the acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct Trickle {
    /// Since when packets are out and nothing new was acknowledged; none when nothing is out.
    since: Option<Time>,
    /// How long acknowledgements came without a long pause.
    acknowledged: Duration,
    /// While it trickles: when the next packet may leave, and the wait after that.
    next: Time,
    wait: Duration,
}

impl Default for Trickle {
    fn default() -> Self {
        Trickle {
            since: None,
            acknowledged: Duration::ZERO,
            next: Time::ZERO,
            wait: FIRST_WAIT,
        }
    }
}

impl Trickle {
    fn begins(&self) -> Option<Time> {
        let patience = (self.acknowledged / EARNED)
            .max(PATIENCE)
            .min(MOST_PATIENCE);
        self.since.map(|since| since + patience)
    }

    /// Whether only single packets leave.
    pub fn is_on(&self, now: Time) -> bool {
        self.begins().is_some_and(|at| at <= now)
    }

    /// Whether packets are out that nothing was said of since.
    pub fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// When the next packet may leave; `None` for at once.
    pub fn opens_at(&self, now: Time) -> Option<Time> {
        (self.is_on(now) && now < self.next).then_some(self.next)
    }

    /// A packet with data left.
    #[inline]
    pub fn on_sent(&mut self, now: Time) {
        if self.since.is_none() {
            self.since = Some(now);
        } else if self.is_on(now) {
            self.next = now + self.wait;
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Something new was acknowledged, and more is `outstanding` or not.
    #[inline]
    pub fn on_acknowledged(&mut self, now: Time, outstanding: bool) {
        if let Some(since) = self.since
            && !self.is_on(now)
        {
            self.acknowledged += now.since(since);
        }
        self.since = outstanding.then_some(now);
        self.wait = FIRST_WAIT;
        self.next = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Packets that leave by `until` when one is tried each millisecond.
    fn sent(trickle: &mut Trickle, from: u64, until: u64) -> usize {
        (from..until)
            .filter(|&at| {
                let open = trickle.opens_at(ms(at)).is_none();
                if open {
                    trickle.on_sent(ms(at));
                }
                open
            })
            .count()
    }

    #[test]
    fn sending_shrinks_to_single_packets_and_opens_with_the_first_acknowledgement() {
        let mut trickle = Trickle::default();
        assert_eq!(sent(&mut trickle, 0, 2_000), 2_000);
        let single = sent(&mut trickle, 2_000, 62_000);
        assert!((28..36).contains(&single), "{single} in a minute");
        trickle.on_acknowledged(ms(62_000), true);
        assert_eq!(sent(&mut trickle, 62_000, 64_000), 2_000);
        assert!(sent(&mut trickle, 64_000, 74_000) < 10);
    }

    #[test]
    fn nothing_outstanding_is_no_silence() {
        let mut trickle = Trickle::default();
        trickle.on_sent(ms(0));
        trickle.on_acknowledged(ms(40), false);
        assert!(!trickle.is_on(ms(100_000)));
        assert_eq!(sent(&mut trickle, 100_000, 102_000), 2_000);
    }

    #[test]
    fn patience_is_earned_by_acknowledgements_and_bounded() {
        for (seconds, patience) in [(1, 2_000), (16, 4_000), (1_000, 6_000)] {
            let mut trickle = Trickle::default();
            for at in 0..seconds * 10 {
                trickle.on_sent(ms(at * 100));
                trickle.on_acknowledged(ms(at * 100 + 100), true);
            }
            let last_ack_ms = seconds * 1_000;
            assert!(
                !trickle.is_on(ms(last_ack_ms + patience - 1)),
                "{seconds} s"
            );
            assert!(trickle.is_on(ms(last_ack_ms + patience)), "{seconds} s");
        }
    }
}
