//! Controlled delay (RFC 8289): drops at the head while packets wait too long.

use std::fmt;

use verus_core::{Duration, Time};
use verus_words::spec::{Given, Problem, Row, field};

use super::{Arrival, ECN, LIMIT, MILLIS};

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoDelConfig {
    /// Acceptable standing delay in milliseconds. Default 5 (RFC 8289 §4.3).
    pub target_ms: f64,
    /// How long the delay must stay above it before the first drop, in milliseconds. Default 100 (RFC 8289 §4.3).
    pub interval_ms: f64,
    /// Bytes that may wait at all. Default: no limit.
    pub limit: Option<u64>,
    /// Whether packets that are capable of it (ECN) are marked and sent where others are dropped.
    pub ecn: bool,
}

impl Default for CoDelConfig {
    fn default() -> Self {
        CoDelConfig {
            target_ms: 5.0,
            interval_ms: 100.0,
            limit: None,
            ecn: false,
        }
    }
}

impl CoDelConfig {
    pub(super) const ROWS: &'static [Row<Self>] = &[
        field!(target_ms).within("ms", "acceptable standing delay", MILLIS),
        field!(interval_ms).within(
            "ms",
            "how long it may be exceeded before the first drop",
            MILLIS,
        ),
        field!(limit, LIMIT.0).whole_or("none", LIMIT.1, LIMIT.2),
        field!(ecn, ECN.0).flag(ECN.1),
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
        f.write_str(if self.ecn { ",ecn=yes" } else { "" })
    }
}

/// Controlled delay (RFC 8289 §5), which decides as packets leave the queue.
#[derive(Clone, Debug)]
pub(crate) struct CoDel {
    target: Duration,
    interval: Duration,
    limit: u64,
    ecn: bool,
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
            ecn: config.ecn,
            largest: 0,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    pub(super) fn accepts(&mut self, arrival: &Arrival) -> bool {
        self.saw(arrival.size);
        arrival.waiting_bytes.saturating_add(arrival.size) <= self.limit
    }

    /// A packet of `size` enters.
    #[inline]
    pub(super) fn saw(&mut self, size: u64) {
        self.largest = self.largest.max(size);
    }

    /// Decides which packet leaves the queue at `now` (§5.5, `deque`): drops those that must go, after which
    /// the packet at the head of `queue` is the one to send. One that is marked is sent.
    pub(crate) fn select(&mut self, now: Time, queue: &mut impl Head) {
        let mut ok_to_drop = self.ok_to_drop(now, queue);
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if self.ecn && queue.mark_head() {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                queue.drop_head();
                ok_to_drop = self.ok_to_drop(now, queue);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if !(self.ecn && queue.mark_head()) {
                queue.drop_head();
                self.ok_to_drop(now, queue);
            }
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
    /// Marks it, if it is capable of that.
    fn mark_head(&mut self) -> bool;
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

        fn mark_head(&mut self) -> bool {
            false
        }

        fn drop_head(&mut self) {
            self.0.remove(0);
        }
    }

    /// A queue whose packets all entered at time zero, and are capable of ECN. Counts signals.
    struct Standing(u32);

    impl Head for Standing {
        fn head(&self) -> Option<(Time, u64)> {
            Some((Time::ZERO, 100_000))
        }

        fn mark_head(&mut self) -> bool {
            self.0 += 1;
            true
        }

        fn drop_head(&mut self) {
            panic!("dropped what could be marked");
        }
    }

    fn marking() -> CoDel {
        let mut codel = CoDel::new(&CoDelConfig {
            ecn: true,
            ..CoDelConfig::default()
        });
        codel.largest = 1000;
        codel
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

    #[test]
    fn marks_come_ever_sooner_while_the_queue_stands() {
        let mut codel = marking();
        let mut marks = Vec::new();
        // The delay is above the target from 5 ms on; looked at each 0.1 ms.
        for tenth in 50..6_000 {
            let mut queue = Standing(0);
            codel.select(Time::from_nanos(tenth * 100_000), &mut queue);
            marks.extend((0..queue.0).map(|_| tenth as f64 / 10.0 - 105.0));
        }
        let expected = [0.0, 100.0, 170.7, 228.4, 278.4, 323.2, 364.0, 401.8, 437.1];
        for (mark, expected) in marks.iter().zip(expected) {
            assert!((mark - expected).abs() < 0.11, "{mark} for {expected}");
        }
        assert_eq!(marks.len(), 10);
    }

    #[test]
    fn marks_begin_again_at_the_pace_at_which_they_ended() {
        let at = Time::from_millis;
        let gap = |again| {
            let mut codel = marking();
            (codel.count, codel.last_count, codel.drop_next) = (9, 1, at(1000));
            codel.first_above = Some(at(again));
            codel.select(at(again), &mut Standing(0));
            codel.drop_next.since(at(again)).as_millis_f64()
        };
        // 100/√8 ms; later than 16 intervals after the last, from the beginning.
        assert!((gap(1500) - 35.36).abs() < 0.01);
        assert_eq!(gap(3000), 100.0);
    }
}
