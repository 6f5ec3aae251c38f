//! Controlled delay (RFC 8289): drops at the head while packets wait too long.

use std::fmt;

use verus_core::spec::{Given, Problem, Row};
use verus_core::{Duration, Time};

use super::{Arrival, LIMIT, MILLIS};

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoDelConfig {
    /// Acceptable standing delay in milliseconds. Default 5 (RFC 8289 §4.3).
    pub target_ms: f64,
    /// How long the delay must stay above it before the first drop, in milliseconds. Default 100 (RFC 8289 §4.3).
    pub interval_ms: f64,
    /// Bytes that may wait at all. Default: no limit.
    pub limit: Option<u64>,
}

impl Default for CoDelConfig {
    fn default() -> Self {
        CoDelConfig {
            target_ms: 5.0,
            interval_ms: 100.0,
            limit: None,
        }
    }
}

impl CoDelConfig {
    pub(super) const ROWS: &'static [Row<Self>] = &[
        Row::within(
            "target_ms",
            "ms",
            "acceptable standing delay",
            MILLIS,
            |c| c.target_ms,
            |c, v| c.target_ms = v,
        ),
        Row::within(
            "interval_ms",
            "ms",
            "how long it may be exceeded before the first drop",
            MILLIS,
            |c| c.interval_ms,
            |c, v| c.interval_ms = v,
        ),
        Row::whole(
            LIMIT.0,
            LIMIT.1,
            LIMIT.2,
            "none",
            |c| c.limit,
            |c, v| c.limit = Some(v),
        ),
    ];

    pub(super) fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = CoDelConfig::default();
        given.apply(Self::ROWS, &mut config)?;
        if config.target_ms > config.interval_ms {
            return Err(Problem::bad(
                "target_ms",
                "at most interval_ms",
                config.target_ms,
            ));
        }
        Ok(config)
    }
}

impl fmt::Display for CoDelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CoDelConfig {
            target_ms,
            interval_ms,
            ..
        } = self;
        write!(f, "codel:target_ms={target_ms},interval_ms={interval_ms}")?;
        if let Some(limit) = self.limit {
            write!(f, ",limit={limit}")?;
        }
        Ok(())
    }
}

/// Controlled delay (RFC 8289 §5), which decides as packets leave the queue.
#[derive(Clone, Debug)]
pub(crate) struct CoDel {
    target: Duration,
    interval: Duration,
    limit: u64,
    /// The largest packet seen: with less than that waiting, no queue is standing (§5.4: `maxpacket_`).
    largest: u64,
    first_above: Option<Time>,
    drop_next: Time,
    count: u64,
    last_count: u64,
    dropping: bool,
}

impl CoDel {
    pub(super) fn new(config: &CoDelConfig) -> Self {
        CoDel {
            target: Duration::from_millis_f64(config.target_ms),
            interval: Duration::from_millis_f64(config.interval_ms),
            limit: config.limit.unwrap_or(u64::MAX),
            largest: 0,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    pub(super) fn accepts(&mut self, arrival: &Arrival) -> bool {
        self.largest = self.largest.max(arrival.size);
        arrival.waiting_bytes.saturating_add(arrival.size) <= self.limit
    }

    /// Decides which packet leaves the queue at `now` (§5.5, `deque`): drops those that must go, after which
    /// the packet at the head of `queue` is the one to send.
    pub(crate) fn select(&mut self, now: Time, queue: &mut impl Head) {
        let mut ok_to_drop = self.ok_to_drop(now, queue);
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                queue.drop_head();
                self.count += 1;
                ok_to_drop = self.ok_to_drop(now, queue);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            queue.drop_head();
            self.ok_to_drop(now, queue);
            self.dropping = true;
            // If the last drops were not long ago, their pace was about right: carry on from there.
            let recent = now.since(self.drop_next) < self.interval * 16;
            let earlier = self.count - self.last_count;
            self.count = if recent && earlier > 1 { earlier } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
    }

    /// Whether the delay of the packet at the head has been above target for an interval (§5.6, `dodequeue`).
    fn ok_to_drop(&mut self, now: Time, queue: &impl Head) -> bool {
        let standing = queue.head().is_some_and(|(entered, behind)| {
            now.since(entered) >= self.target && behind > self.largest
        });
        match self.first_above {
            _ if !standing => {
                self.first_above = None;
                false
            }
            None => {
                self.first_above = Some(now + self.interval);
                false
            }
            Some(deadline) => now >= deadline,
        }
    }

    /// When the next drop is due after one at `from` (§5.3): ever sooner while drops do not help.
    fn control_law(&self, from: Time) -> Time {
        from + self.interval.mul_f64(1.0 / (self.count as f64).sqrt())
    }
}

/// The end of a queue that [`CoDel`] looks at.
pub(crate) trait Head {
    /// When the packet at the head entered, and the bytes that wait behind it.
    fn head(&self) -> Option<(Time, u64)>;
    /// Drops it.
    fn drop_head(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of equal packets that entered at given times.
    struct Packets(Vec<Time>);

    impl Head for Packets {
        fn head(&self) -> Option<(Time, u64)> {
            Some((*self.0.first()?, 1000 * (self.0.len() as u64 - 1)))
        }

        fn drop_head(&mut self) {
            self.0.remove(0);
        }
    }

    #[test]
    fn codel_leaves_a_queue_of_one_packet_alone() {
        let mut codel = CoDel::new(&CoDelConfig::default());
        codel.largest = 1000;
        for packets in [1, 2] {
            let mut queue = Packets(vec![Time::ZERO; packets]);
            for ms in 0..1000 {
                codel.select(Time::from_millis(ms), &mut queue);
            }
            assert_eq!(
                queue.0.len(),
                packets,
                "no more than a packet waits behind the head"
            );
        }
    }

    #[test]
    fn codel_waits_an_interval_and_starts_over_when_the_delay_falls() {
        let mut codel = CoDel::new(&CoDelConfig::default());
        codel.largest = 1000;
        let at = Time::from_millis;
        let mut queue = Packets(vec![at(0); 100]);
        codel.select(at(50), &mut queue);
        codel.select(at(149), &mut queue);
        assert_eq!(queue.0.len(), 100);
        // Below target for one packet.
        codel.select(at(149), &mut Packets(vec![at(145); 100]));
        codel.select(at(150), &mut queue);
        codel.select(at(249), &mut queue);
        assert_eq!(queue.0.len(), 100);
        codel.select(at(250), &mut queue);
        assert_eq!(queue.0.len(), 99);
    }

    #[test]
    fn codel_resumes_its_pace_when_it_dropped_not_long_ago() {
        let mut codel = CoDel::new(&CoDelConfig::default());
        (codel.largest, codel.count, codel.last_count) = (1000, 7, 3);
        let at = Time::from_millis;
        codel.drop_next = at(900);
        codel.first_above = Some(at(1000));
        codel.select(at(1000), &mut Packets(vec![at(0); 100]));
        // Four drops last time: the next is due 100/√4 ms later.
        assert_eq!((codel.count, codel.drop_next), (4, at(1050)));
        // Long ago: from the beginning.
        (codel.dropping, codel.count, codel.last_count) = (false, 8, 4);
        codel.first_above = Some(at(1000));
        codel.select(at(3000), &mut Packets(vec![at(0); 100]));
        assert_eq!((codel.count, codel.drop_next), (1, at(3100)));
    }
}
