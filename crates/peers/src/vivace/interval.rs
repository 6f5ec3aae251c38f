//! Monitor intervals: the packets sent at one rate, and their outcome.

use std::collections::VecDeque;

use super::utility::utility;
use verus_core::controller::Departure;
use verus_core::credit::TICK;
use verus_core::units::{Bytes, Duration, Rate, Time};

/// The least number of packets of an interval.
const LEAST_PACKETS: u64 = 5;
/// The least length of an interval, in ticks of the pacing timer. The packets of a tick leave as
/// one burst, in which each waits for those before it. A line through this number of such saw teeth
/// rises by at most 20⁻² s in a second, which is below [`FLAT`]. Over a round trip of some
/// microseconds it would follow a single tooth.
const LEAST_TICKS: u64 = 20;
/// An interval is judged once later packets are accounted for (acknowledged or lost), if at least
/// this share of its packets is. Otherwise it is discarded once packets of the interval after the
/// next are accounted for: a QUIC stack does not report the fate of every packet.
const ACCOUNTED: f64 = 0.8;
/// Round-trip times that change by less, in seconds per second, are noise (NSDI 2018, §5: the low-pass filter).
const FLAT: f64 = 0.01;
/// The most intervals that are remembered; at this number the last one is extended instead of a new one begun.
const MOST: usize = 64;

/// The purpose of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A wait for the results of other intervals.
    Filler,
    /// A rate that doubles.
    Start,
    /// One of a pair: which, and whether it is the faster.
    Probe { pair: usize, up: bool },
    /// A step.
    Step,
}

/// A monitor interval.
#[derive(Clone, Copy, Debug)]
struct Interval {
    purpose: Purpose,
    /// The rate at which it is to leave.
    rate: Rate,
    began: Time,
    ends: Time,
    first: u64,
    packets: u64,
    sent: Bytes,
    settled: u64,
    lost: u64,
    limited: bool,
    /// Sums over acknowledged packets of departure and round-trip time, s: for a line through them.
    count: f64,
    times: f64,
    rtts: f64,
    times_squared: f64,
    times_rtts: f64,
}

impl Interval {
    fn on_acked(&mut self, packet: &Departure, rtt: Duration) {
        let at = packet.at.since(self.began).as_secs_f64();
        let rtt = rtt.as_secs_f64();
        self.settled += 1;
        self.count += 1.0;
        self.times += at;
        self.rtts += rtt;
        self.times_squared += at * at;
        self.times_rtts += at * rtt;
    }

    /// The growth of round-trip times, s in a second (least squares).
    fn gradient(&self) -> f64 {
        let spread = self.count * self.times_squared - self.times * self.times;
        if self.count < 2.0 || spread <= 0.0 {
            return 0.0;
        }
        let slope = (self.count * self.times_rtts - self.times * self.rtts) / spread;
        if slope.abs() < FLAT { 0.0 } else { slope }
    }

    /// The bytes sent over the time until the next interval began: a burst is not a rate. If they
    /// differ from the plan by at most a burst, the granularity of the pacing timer is the cause,
    /// and the planned rate counts.
    fn rate(&self, next_began: Time) -> Rate {
        let took = next_began.since(self.began);
        let planned = self.rate.bytes_in(took);
        let burst = self
            .rate
            .bytes_in(TICK)
            .max(self.sent / self.packets.max(1));
        if planned
            .saturating_sub(self.sent)
            .max(self.sent.saturating_sub(planned))
            <= burst
        {
            self.rate
        } else {
            self.sent / took
        }
    }
}

/// The result of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub purpose: Purpose,
    /// The rate at which it left, Mbit/s.
    pub mbps: f64,
    /// NaN where the source held it back, or too little is known.
    pub utility: f64,
}

/// The intervals of a flow of which something is not known yet, oldest first; the last one is under way.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    list: VecDeque<Interval>,
    /// The greatest number of which the fate is known.
    newest: u64,
}

impl Intervals {
    pub(super) fn new() -> Self {
        Intervals {
            list: VecDeque::with_capacity(MOST),
            newest: 0,
        }
    }

    /// Whether the next packet begins another interval.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.list.len() < MOST
            && self
                .list
                .back()
                .is_none_or(|last| now >= last.ends && last.packets >= LEAST_PACKETS)
    }

    /// An interval begins, with the next packet.
    pub(super) fn begin(
        &mut self,
        now: Time,
        number: u64,
        purpose: Purpose,
        rate: Rate,
        length: Duration,
    ) {
        self.list.push_back(Interval {
            purpose,
            rate,
            began: now,
            ends: now + length.max(TICK * LEAST_TICKS),
            first: number,
            packets: 0,
            sent: Bytes::ZERO,
            settled: 0,
            lost: 0,
            limited: false,
            count: 0.0,
            times: 0.0,
            rtts: 0.0,
            times_squared: 0.0,
            times_rtts: 0.0,
        });
    }

    pub(super) fn on_sent(&mut self, packet: &Departure) {
        if let Some(last) = self.list.back_mut() {
            last.packets += 1;
            last.sent += packet.size;
            last.limited |= packet.app_limited;
        }
    }

    fn of(&mut self, number: u64) -> Option<&mut Interval> {
        let after = self.list.partition_point(|one| one.first <= number);
        self.list.get_mut(after.checked_sub(1)?)
    }

    pub(super) fn on_acked(&mut self, packet: &Departure, rtt: Duration) {
        self.newest = self.newest.max(packet.number);
        if let Some(interval) = self.of(packet.number) {
            interval.on_acked(packet, rtt);
        }
    }

    pub(super) fn on_lost(&mut self, packet: &Departure) {
        self.newest = self.newest.max(packet.number);
        if let Some(interval) = self.of(packet.number) {
            interval.settled += 1;
            interval.lost += 1;
        }
    }

    /// The oldest interval, once enough is known of it.
    pub(super) fn next_outcome(&mut self) -> Option<Outcome> {
        loop {
            let (oldest, next) = (self.list.front()?, self.list.get(1)?);
            let (next, next_began) = (next.first, next.began);
            let all = oldest.settled >= oldest.packets;
            let enough = oldest.settled as f64 >= ACCOUNTED * oldest.packets as f64;
            let overdue = self
                .list
                .get(2)
                .is_some_and(|later| self.newest >= later.first);
            if !(all || enough && self.newest >= next || overdue) {
                return None;
            }
            let oldest = self.list.pop_front()?;
            if oldest.purpose == Purpose::Filler {
                continue;
            }
            let mbps = oldest.rate(next_began).as_mbps();
            let lost = oldest.lost as f64 / oldest.settled.max(1) as f64;
            let utility = if oldest.limited || !enough {
                f64::NAN
            } else {
                utility(mbps, oldest.gradient(), lost)
            };
            return Some(Outcome {
                purpose: oldest.purpose,
                mbps,
                utility,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing;

    const SIZE: Bytes = Bytes::new(1250);

    /// Ten leave at once, every 50 ms.
    fn packet(number: u64) -> Departure {
        Departure {
            size: SIZE,
            window: SIZE,
            in_flight: SIZE,
            ..testing::departure(number, Time::from_millis(number / 10 * 50))
        }
    }

    /// Three intervals, with ten packets each.
    fn three() -> Intervals {
        let mut intervals = Intervals::new();
        for number in 0..30 {
            let packet = packet(number);
            assert_eq!(intervals.is_over(packet.at), number % 10 == 0);
            if number % 10 == 0 {
                let length = Duration::from_millis(50);
                intervals.begin(
                    packet.at,
                    number,
                    Purpose::Start,
                    Rate::from_mbps(4.0),
                    length,
                );
            }
            intervals.on_sent(&packet);
        }
        intervals
    }

    #[test]
    fn a_burst_counts_over_the_time_until_the_next() {
        let mut intervals = three();
        for number in 0..10 {
            assert!(intervals.next_outcome().is_none());
            intervals.on_acked(&packet(number), Duration::from_millis(40));
        }
        let outcome = intervals.next_outcome().expect("all is known");
        // 12,500 bytes in 50 ms.
        assert_eq!(outcome.mbps, 2.0);
        assert_eq!(outcome.utility, utility(2.0, 0.0, 0.0));
    }

    #[test]
    fn a_burst_more_or_less_is_still_the_rate() {
        let rate = |sent: u64| {
            let mut intervals = Intervals::new();
            let length = Duration::from_millis(50);
            intervals.begin(Time::ZERO, 0, Purpose::Start, Rate::from_mbps(2.0), length);
            (0..sent).for_each(|number| intervals.on_sent(&packet(number)));
            intervals.list[0].rate(Time::from_millis(50)).as_mbps()
        };
        // 2 Mbit/s are ten packets in 50 ms.
        assert_eq!([9, 10, 11].map(rate), [2.0; 3]);
        assert_eq!([8, 12].map(rate), [1.6, 2.4]);
    }

    #[test]
    fn an_interval_spans_more_ticks_of_the_pacing_timer_than_a_short_round_trip() {
        let mut intervals = Intervals::new();
        let length = Duration::from_micros(120);
        intervals.begin(Time::ZERO, 0, Purpose::Start, Rate::from_mbps(80.0), length);
        (0..150).for_each(|number| intervals.on_sent(&packet(number)));
        assert!(!intervals.is_over(Time::from_millis(19)));
        assert!(intervals.is_over(Time::from_millis(20)));
    }

    #[test]
    fn most_of_an_interval_is_enough_and_with_less_it_is_given_up_in_the_end() {
        let utility = |accounted: u64, newest: u64| {
            let mut intervals = three();
            for number in (0..accounted).chain([newest]) {
                intervals.on_acked(&packet(number), Duration::from_millis(40));
            }
            intervals.next_outcome().map(|outcome| outcome.utility)
        };
        assert_eq!(utility(8, 8), None);
        assert!(utility(8, 10).is_some_and(|utility| utility > 0.0));
        assert_eq!(utility(7, 10), None);
        assert!(utility(7, 20).is_some_and(f64::is_nan));
    }
}
