//! CellReplay's link: short trains follow a light trace, and larger traffic a heavy one (Sentosa et
//! al., NSDI 2025).
//!
//! ```text
//!                            light, none waits
//!                           ┌────────────────────────┐
//! enqueue ─▶ held until its release ─▶ queue ▶ link ─▶ depart
//! ```
//!
//! A [`LightTrace`] records the delay of a packet that comes to an idle link, and of those that
//! closely follow it, as many as its train has: they are *light*. Packets beyond the train are
//! *heavy*: each takes the delay of the train's first packet and then joins the queue of the link,
//! whose trace was recorded under saturation. A light packet joins that queue only if other packets
//! wait in it. A train ends when nothing was released for the time of the timer, and the next
//! packet begins another. So the delay of a light packet includes the propagation and the link's
//! own scheduling, and the link serves only traffic that saturates it.
//!
//! Packets may overtake others: heavy ones light ones of their train that were to be released later, and a train one with
//! a longer delay before it.
//!
//! The clock counts whole milliseconds, as the traces do: a packet counts as having come when its millisecond began.

use std::collections::VecDeque;
use std::sync::Arc;

use verus_core::{Bytes, Duration, Time};

use super::Why;
use super::link::Link;
use crate::light::LightTrace;
use crate::packet::{Departed, Packet};
use crate::sizes::SizeOffsets;

/// Bytes of an opportunity, in light and in heavy traces, and the largest packet.
pub const OPPORTUNITY: Bytes = Bytes::new(1400);

/// Delays of light traffic, as data.
#[derive(Clone, Debug, PartialEq)]
pub struct LightConfig {
    /// The packet trains.
    pub trace: Arc<LightTrace>,
    /// The time without a release after which the next packet begins a train. It is counted from
    /// the last release to the release that this packet would have, in whole milliseconds, rounded
    /// down.
    pub timer: Duration,
    /// The change of a packet's delay by its size; `None` without a change.
    pub sizes: Option<Arc<SizeOffsets>>,
}

impl LightConfig {
    /// The least delay of a train's first packet, whatever its size.
    pub fn min_delay(&self) -> Duration {
        Duration::from_millis(self.trace.least_base_ms())
    }

    /// The delay of a first packet at the beginning.
    pub fn first(&self) -> Duration {
        Duration::from_millis(self.trace.at(0).1)
    }
}

/// Holds packets as a light trace says, before the link that serves what saturates it. In the steady state nothing is
/// allocated.
#[derive(Debug)]
pub struct Replay<P> {
    trains: Trains,
    sizes: Option<Arc<SizeOffsets>>,
    /// In order of release, and of arrival among those of one release.
    held: VecDeque<HeldPacket<P>>,
    link: Link<P>,
}

/// A packet that is not released yet.
#[derive(Clone, Debug)]
struct HeldPacket<P> {
    release: Time,
    light: bool,
    size: Bytes,
    packet: P,
}

impl<P: Packet> Replay<P> {
    /// Nothing has come yet to `link`; its time zero is the trace's.
    pub fn new(config: &LightConfig, link: Link<P>) -> Self {
        Replay {
            trains: Trains::new(Arc::clone(&config.trace), config.timer),
            sizes: config.sizes.clone(),
            held: VecDeque::new(),
            link,
        }
    }

    /// A packet of `size` comes at `now`. Everything due to leave earlier must have left.
    ///
    /// # Errors
    /// Gives a packet back that is larger than an [opportunity](OPPORTUNITY): the traces say nothing of those.
    pub fn enqueue(&mut self, now: Time, size: Bytes, packet: P) -> Result<(), P> {
        if size > OPPORTUNITY {
            return Err(packet);
        }
        let (release_ms, light) = self.trains.enter(now.as_millis(), size.get());
        let offset_ms = self.sizes.as_ref().map_or(0.0, |of| of.millis(size.get()));
        let mut release =
            Time::from_millis(release_ms) + Duration::from_millis_f64(offset_ms.max(0.0));
        let earlier = Duration::from_millis_f64((-offset_ms).max(0.0));
        // Not before it came, where the delay is less than what remains of its millisecond or than its offset.
        release = (Time::ZERO + release.since(Time::ZERO).saturating_sub(earlier)).max(now);
        let at = self.held.partition_point(|held| held.release <= release);
        let held_packet = HeldPacket {
            release,
            light,
            size,
            packet,
        };
        self.held.insert(at, held_packet);
        Ok(())
    }

    /// When to call [`Replay::depart`] next.
    pub fn next_departure(&self) -> Option<Time> {
        let release = self.held.front().map(|held| held.release);
        release.into_iter().chain(self.link.next_departure()).min()
    }

    /// Handles the event at the instant that [`Replay::next_departure`] named, and returns the
    /// packet that leaves, if any. At one instant, packets are released before the link serves
    /// others. Packets dropped by the link's queue go to `dropped`.
    pub fn depart(
        &mut self,
        now: Time,
        mut dropped: impl FnMut(Departed<P>, Why),
    ) -> Option<Departed<P>> {
        let at = self.next_departure().filter(|at| *at <= now)?;
        if self.held.front().is_none_or(|held| held.release > at) {
            return self.link.depart(at, |packet| dropped(packet, Why::Waited));
        }
        let next = self.held.pop_front()?;
        if next.light && self.link.queued_packets() == 0 {
            return Some(Departed {
                packet: next.packet,
                size: next.size,
                entered: at,
            });
        }
        let waited = |packet| dropped(packet, Why::Waited);
        if let Err(packet) = self.link.enqueue(at, next.size, next.packet, waited) {
            let refused = Departed {
                packet,
                size: next.size,
                entered: at,
            };
            dropped(refused, Why::Refused);
        }
        None
    }

    /// The link that serves what saturates it.
    pub fn link(&self) -> &Link<P> {
        &self.link
    }

    /// The number of packets not released yet.
    pub fn held_packets(&self) -> usize {
        self.held.len()
    }
}

/// The position of the traffic in a light trace.
#[derive(Clone, Debug)]
struct Trains {
    trace: Arc<LightTrace>,
    timer_ms: u64,
    /// The train that is followed, and when its first packet came, ms.
    line: usize,
    start_ms: u64,
    /// The delay of its first packet, ms.
    base_ms: u64,
    /// The opportunity in use, and its remaining bytes.
    index: usize,
    remaining: u64,
    /// When the last packet that came is released, ms, its offset by size apart; `None` before the first. Of a heavy
    /// packet it may be earlier than a light one's before it.
    last_ms: Option<u64>,
}

impl Trains {
    fn new(trace: Arc<LightTrace>, timer: Duration) -> Self {
        Trains {
            trace,
            timer_ms: timer.as_nanos() / 1_000_000,
            line: 0,
            start_ms: 0,
            base_ms: 0,
            index: 0,
            remaining: 0,
            last_ms: None,
        }
    }

    /// When a packet of `size` bytes, one opportunity's at the most, that comes at `now` is released, ms, and whether it
    /// is light.
    fn enter(&mut self, now: u64, size: u64) -> (u64, bool) {
        let unit = OPPORTUNITY.get();
        let idle = |last: u64| now + self.base_ms > last + self.timer_ms;
        let (release, light) = if self.last_ms.is_none_or(idle) {
            (self.line, self.base_ms) = self.trace.at(now % self.trace.period_ms());
            (self.start_ms, self.index, self.remaining) = (now, 0, unit - size);
            (now + self.base_ms, true)
        } else {
            let offsets = self.trace.offsets(self.line);
            let elapsed = now - self.start_ms;
            while offsets
                .get(self.index)
                .is_some_and(|offset| u64::from(*offset) < elapsed)
            {
                (self.index, self.remaining) = (self.index + 1, unit);
            }
            if self.remaining < size {
                (self.index, self.remaining) = (self.index + 1, unit);
            }
            self.remaining -= size;
            match (offsets.get(self.index), offsets.last()) {
                // The format does not require that offsets increase: one that has passed adds no
                // delay.
                (Some(offset), _) => {
                    let later = u64::from(*offset).saturating_sub(elapsed);
                    (now + self.base_ms + later, true)
                }
                (None, last) => {
                    let last = last.map_or(0, |last| u64::from(*last));
                    (now + self.base_ms.max(last), false)
                }
            }
        };
        self.last_ms = Some(release);
        (release, light)
    }
}

#[cfg(test)]
mod tests {
    use verus_core::random;

    use super::*;
    use crate::path::link::{Service, WhenOver};
    use crate::queue::QueueConfig;
    use crate::trace::Trace;

    const EXAMPLE: &str = "0 20 0 1 3\n100 24 0 2 2 9\n200 22 0 1\n";

    fn light(text: &str) -> Arc<LightTrace> {
        Arc::new(LightTrace::parse("made", text.as_bytes()).unwrap())
    }

    fn trains(text: &str, timer_ms: u64) -> Trains {
        Trains::new(light(text), Duration::from_millis(timer_ms))
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// A link whose heavy trace has an opportunity in each of `heavy` ms, and ends.
    fn replay(text: &str, heavy: &[u64], queue: &str, sizes: Option<&str>) -> Replay<u32> {
        let trace = Trace::from_millis("made", heavy.iter().copied()).unwrap();
        let service = Service::Trace {
            trace: Arc::new(trace),
            opportunity: OPPORTUNITY,
            end: WhenOver::End,
        };
        let queue = QueueConfig::parse(queue).unwrap();
        let link = Link::new(service, &queue, random::stream(1, "queue", 0));
        let parse = |text: &str| Arc::new(SizeOffsets::parse("made", text.as_bytes()).unwrap());
        let config = LightConfig {
            trace: light(text),
            timer: Duration::from_millis(20),
            sizes: sizes.map(parse),
        };
        Replay::new(&config, link)
    }

    /// Lets everything leave by `end`: when, in ms, and which.
    fn drain(replay: &mut Replay<u32>, end: u64) -> Vec<(f64, u32)> {
        let mut departures = Vec::new();
        while let Some(due) = replay.next_departure().filter(|due| *due <= at(end)) {
            if let Some(departed) = replay.depart(due, |_, _| panic!("dropped")) {
                departures.push((due.as_millis_f64(), departed.packet));
            }
        }
        departures
    }

    #[test]
    fn each_packet_is_released_as_in_the_worked_example() {
        let mut trains = trains(EXAMPLE, 20);
        for (row, (now, size, release, is_light)) in [
            // A train: between 20 and 24 ms at half of the interval.
            (50, 1400, 72, true),
            (50, 1400, 73, true),
            (50, 1400, 75, true),
            // Beyond it: the later of 50 + 22 and 50 + 3.
            (50, 1400, 72, false),
            // 172 is more than 20 after 72: another, between 24 and 22 ms.
            (150, 1400, 173, true),
            (151, 700, 175, true),
            (151, 700, 175, true),
            (152, 1400, 175, true),
            (152, 1400, 182, true),
            (152, 1400, 175, false),
            // The end of the trace is its beginning.
            (200, 1400, 220, true),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(trains.enter(now, size), (release, is_light), "row {row}");
        }
    }

    #[test]
    fn a_heavy_packet_is_in_the_queue_before_a_light_one_that_is_released_later() {
        // The first four packets of the example: the heavy one waits from 72 ms for 80 ms, the light ones of 73 and 75 ms
        // behind it.
        let mut slow = replay(EXAMPLE, &[10, 80, 81, 82, 90], "infinite", None);
        // The heavy one leaves in time: no packet waits at 73 ms.
        let mut fast = replay(EXAMPLE, &[10, 72, 80], "infinite", None);
        for packet in 0..4 {
            slow.enqueue(at(50), OPPORTUNITY, packet).unwrap();
            fast.enqueue(at(50), OPPORTUNITY, packet).unwrap();
        }
        assert_eq!(slow.held_packets(), 4);
        assert_eq!(
            drain(&mut slow, 100),
            [(72.0, 0), (80.0, 3), (81.0, 1), (82.0, 2)]
        );
        assert_eq!(
            drain(&mut fast, 100),
            [(72.0, 0), (72.0, 3), (73.0, 1), (75.0, 2)]
        );
    }

    #[test]
    fn the_last_release_is_that_of_the_last_packet_even_if_a_light_one_is_later() {
        // Heavy: 60 ms, where the light one before is at 90 ms. With a timer of 5 ms the next train begins above 65 ms.
        let text = "0 50 0 40\n1000 50 0\n2000 50 0\n";
        let mut example = trains(text, 5);
        assert_eq!(example.enter(0, 1400), (50, true));
        assert_eq!(example.enter(0, 1400), (90, true));
        assert_eq!(example.enter(10, 1400), (60, false));
        let mut same = example.clone();
        assert_eq!(same.enter(15, 1400), (65, false), "not above");
        assert_eq!(example.enter(16, 1400), (66, true), "a new train");
        assert_eq!((example.start_ms, example.index), (16, 0));
    }

    #[test]
    fn what_is_beyond_a_long_train_waits_for_its_last_offset() {
        let mut example = trains("0 5 0 30\n1000 5 0\n2000 5 0\n", 100);
        assert_eq!(example.enter(0, 1400), (5, true));
        assert_eq!(example.enter(31, 1400), (61, false));
    }

    #[test]
    fn opportunities_are_shared_but_not_split_and_what_has_passed_is_lost() {
        let mut example = trains("0 20 0 0 4\n100 20 0\n200 20 0\n", 20);
        let mut enter = |now, size| example.enter(now, size);
        assert_eq!(enter(0, 900), (20, true));
        assert_eq!(enter(0, 500), (20, true), "all of the first");
        assert_eq!(enter(0, 1000), (20, true), "the second");
        assert_eq!(enter(0, 500), (24, true), "400 left of it are too few");
        assert_eq!(enter(3, 900), (24, true), "shares the third");
        assert_eq!(enter(5, 1), (25, false), "it has passed");
    }

    #[test]
    fn the_trace_repeats_for_as_long_as_packets_come() {
        let mut example = trains(EXAMPLE, 20);
        for lap in [0, 1, 2, 1_000_000] {
            let from = lap * 200;
            assert_eq!(example.enter(from, 100), (from + 20, true));
            assert_eq!(example.enter(from + 50, 100), (from + 72, true));
            assert_eq!(example.enter(from + 150, 100), (from + 173, true));
        }
        // A train that has begun goes on across the end, from where it began.
        let mut late = trains("0 20 0 1\n100 24 0 150\n200 24 0\n", 100);
        assert_eq!(late.enter(150, 1400), (174, true));
        assert_eq!(late.enter(210, 1400), (324, true), "150 + 24 + 150");
    }

    #[test]
    fn an_offset_by_size_shifts_what_is_released_and_never_before_it_came() {
        let sizes: Vec<String> = (1..=14)
            .map(|step| format!("{} {}", step * 100, f64::from(step) - 2.0))
            .collect();
        let sizes = sizes.join("\n");
        let mut shifted = replay(EXAMPLE, &[1], "infinite", Some(&sizes));
        for (packet, size) in [(0, 1400), (1, 250), (2, 40)] {
            let now = at(1000 * u64::from(packet));
            shifted.enqueue(now, Bytes::new(size), packet).unwrap();
        }
        // 20 ms, and 12, 0.5 and -1.
        assert_eq!(
            drain(&mut shifted, 3000),
            [(32.0, 0), (1020.5, 1), (2019.0, 2)]
        );
        // The next train is decided by the release without the offset: 32 + 20 is not above 20 +
        // 20. 33 + 20 would not be above 32 + 20 either.
        let mut again = replay(EXAMPLE, &[40, 41], "infinite", Some(&sizes));
        again.enqueue(at(0), OPPORTUNITY, 0).unwrap();
        again.enqueue(at(21), OPPORTUNITY, 1).unwrap();
        assert_eq!(drain(&mut again, 100), [(32.0, 0), (53.0, 1)]);
        let mut instant = replay("0 0 0\n1 0 0\n2 0 0\n", &[1], "infinite", Some(&sizes));
        let now = Time::from_nanos(1_700_000);
        instant.enqueue(now, Bytes::new(100), 0).unwrap();
        assert_eq!(instant.next_departure(), Some(now));
    }

    #[test]
    fn what_comes_within_a_millisecond_came_as_it_began() {
        let mut example = replay(EXAMPLE, &[72, 80], "infinite", None);
        for (packet, micros) in [(0, 50_000), (1, 50_400), (2, 50_999)] {
            let now = Time::from_nanos(micros * 1000);
            example.enqueue(now, OPPORTUNITY, packet).unwrap();
        }
        assert_eq!(drain(&mut example, 100), [(72.0, 0), (73.0, 1), (75.0, 2)]);
    }

    #[test]
    fn the_queue_before_the_heavy_trace_holds_heavy_packets_alone_and_may_refuse_them() {
        let mut example = replay(EXAMPLE, &[10, 90], "droptail:packets=2", None);
        for packet in 0..7 {
            example.enqueue(at(50), OPPORTUNITY, packet).unwrap();
        }
        assert_eq!(example.enqueue(at(50), Bytes::new(1401), 9), Err(9));
        let mut departed_packets = Vec::new();
        let mut refused = Vec::new();
        while let Some(due) = example.next_departure().filter(|due| *due <= at(80)) {
            let departed = example.depart(due, |packet, why| {
                assert_eq!(why, Why::Refused);
                refused.push((due.as_millis(), packet.packet));
            });
            departed_packets.extend(departed.map(|departed| departed.packet));
        }
        // Numbers 3 and 4 wait from 72 ms on: the others of 72 ms and the light ones after them
        // find no room.
        assert_eq!(departed_packets, [0]);
        assert_eq!(refused, [(72, 5), (72, 6), (73, 1), (75, 2)]);
        assert_eq!(example.link().queued_packets(), 2);
    }
}
