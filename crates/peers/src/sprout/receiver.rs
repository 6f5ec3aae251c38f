//! The receiver half: counts what arrives in each tick, infers the rate and makes the forecast.
//!
//! A tick in which nothing arrived says something of the link only if something was due. Each
//! packet says when the next is due at the latest; until then an empty tick is no observation, and
//! the belief only widens (Sprout §3.2).

use std::collections::VecDeque;
use std::sync::Arc;

use super::belief::Belief;
use super::forecast::{Counts, Tables};
use super::message::{Report, Tag};
use super::{Config, RECEIVED_BYTES, TICK};
use verus_core::controller::{Arrival, Observer};
use verus_core::units::{Duration, Time};

/// After a silence of this length the ticks stop, and are not made up for later: by then the belief has long settled on
/// an outage.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
/// The number of recent packets that are remembered one by one: bounds memory.
const ARRIVALS_KEPT: usize = 4096;

/// The receiver half of one flow.
#[derive(Debug)]
pub struct Forecaster {
    tables: Arc<Tables>,
    /// The chance that less is delivered than forecast, %.
    percentile: f64,
    belief: Belief,
    /// The beginning of the tick in progress; `None` before the first packet.
    tick_at: Option<Time>,
    tick: u32,
    /// Bytes that arrived in the tick in progress.
    arrived: u64,
    last_arrival: Time,
    /// Until then an empty tick says nothing.
    due: Time,
    settled: Settled,
    counts: Counts,
}

impl Forecaster {
    /// The receiver half for a checked configuration.
    pub fn new(config: &Config) -> Self {
        let tables = Tables::shared(config);
        let belief = Belief::default();
        Forecaster {
            counts: tables.forecast(&belief, config.percentile),
            tables,
            percentile: config.percentile,
            belief,
            tick_at: None,
            tick: 0,
            arrived: 0,
            last_arrival: Time::ZERO,
            due: Time::ZERO,
            settled: Settled::default(),
        }
    }

    /// The report for the sender.
    pub fn latest(&self) -> Report {
        Report {
            tick: self.tick,
            settled: self.settled.bytes(),
            counts: self.counts,
        }
    }

    /// The mean of the believed rate, packets/s.
    pub fn mean_rate(&self) -> f64 {
        self.belief.mean(self.tables.motion().means()) / TICK.as_secs_f64()
    }

    /// Ends the ticks that `over` says are over, given when they end.
    fn end_ticks(&mut self, over: impl Fn(Time) -> bool) {
        let before = self.tick;
        while let Some(began) = self.tick_at
            && over(began + TICK)
        {
            self.end_tick(began);
        }
        if self.tick != before {
            self.counts = self.tables.forecast(&self.belief, self.percentile);
        }
    }

    fn end_tick(&mut self, began: Time) {
        self.belief.evolve(self.tables.motion());
        if self.arrived > 0 || began >= self.due {
            let packets = (self.arrived + RECEIVED_BYTES / 2) / RECEIVED_BYTES;
            let packets = packets.max(u64::from(self.arrived > 0)) as usize;
            self.belief.observe(self.tables.motion(), packets);
        }
        self.arrived = 0;
        self.tick = self.tick.wrapping_add(1);
        self.tick_at = Some(began + TICK);
    }
}

impl Observer for Forecaster {
    fn on_packet(&mut self, packet: &Arrival<'_>) {
        let at = packet.at;
        let began = self.tick_at.unwrap_or(at);
        self.tick_at = Some(began.max(at - LONGEST_SILENCE));
        // A packet at the very end of a tick still counts in it.
        self.end_ticks(|end| end < at);
        self.last_arrival = at;
        let tag = packet.stamp.and_then(Tag::read);
        if let Some(tag) = &tag {
            self.due = self.due.max(self.tick_at.unwrap_or(at) + tag.due);
        }
        match tag {
            Some(tag) if tag.heartbeat => {
                self.arrived += 1;
                self.settled.give_up(&tag);
            }
            Some(tag) => {
                self.arrived += packet.size.get();
                self.settled.note(&tag, packet.size.get());
            }
            None => self.arrived += packet.size.get(),
        }
    }

    fn next_tick(&self) -> Option<Time> {
        let ends = self.tick_at? + TICK;
        (ends <= self.last_arrival + LONGEST_SILENCE).then_some(ends)
    }

    fn on_tick(&mut self, now: Time) {
        let last = self.last_arrival + LONGEST_SILENCE;
        self.end_ticks(|end| end <= now.min(last));
    }

    fn report(&self, into: &mut Vec<u8>) {
        if self.tick_at.is_some() {
            self.latest().write(into);
        }
    }
}

/// The number of the flow's bytes that have arrived or been given up.
#[derive(Debug, Default)]
struct Settled {
    /// The offset before which all have.
    before: u64,
    /// Arrivals after it, by offset.
    after: VecDeque<(u64, u64)>,
}

impl Settled {
    fn note(&mut self, tag: &Tag, size: u64) {
        let at = self.after.partition_point(|&(offset, _)| offset < tag.sent);
        self.after.insert(at, (tag.sent, size));
        self.give_up(tag);
    }

    /// Skips the bytes that the sender no longer waits for. After the loss of a whole flight, only
    /// heartbeats can report this.
    fn give_up(&mut self, tag: &Tag) {
        self.before = self
            .before
            .max(tag.sent.saturating_sub(u64::from(tag.open)));
        while let Some(&(offset, size)) = self.after.front()
            && (offset < self.before || self.after.len() > ARRIVALS_KEPT)
        {
            self.before = self.before.max(offset.saturating_add(size).min(tag.sent));
            self.after.pop_front();
        }
    }

    fn bytes(&self) -> u64 {
        let after: u64 = self.after.iter().map(|&(_, size)| size).sum();
        self.before.saturating_add(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::units::Bytes;

    const SIZE: u64 = 1500;

    /// A receiver half, and packets for it.
    struct Flow {
        half: Forecaster,
        sent: u64,
        number: u64,
    }

    impl Flow {
        fn new() -> Self {
            Flow {
                half: Forecaster::new(&Config::default()),
                sent: 0,
                number: 0,
            }
        }

        /// A packet arrives; the next is due within `due_ms`.
        fn arrive(&mut self, millis: u64, due_ms: u64) {
            let tag = Tag {
                sent: self.sent,
                open: 0,
                due: Duration::from_millis(due_ms),
                heartbeat: false,
            };
            self.half.on_packet(&Arrival {
                at: Time::from_millis(millis),
                number: self.number,
                size: Bytes::new(SIZE),
                stamp: Some(tag.stamp().as_slice()),
            });
            self.number += 1;
            self.sent += SIZE;
        }

        fn tick_until(&mut self, millis: u64) {
            while let Some(at) = self.half.next_tick()
                && at <= Time::from_millis(millis)
            {
                self.half.on_tick(at);
            }
        }
    }

    /// A flow that got eight packets a tick for two seconds.
    fn steady(due_ms: u64) -> Flow {
        let mut flow = Flow::new();
        for at in 0..800 {
            flow.arrive(1000 + at * 5 / 2, due_ms);
        }
        flow
    }

    #[test]
    fn an_empty_tick_counts_only_if_something_was_due() {
        let (mut due, mut kept) = (steady(0), steady(500));
        due.tick_until(3300);
        kept.tick_until(3300);
        let (due, kept) = (due.half.mean_rate(), kept.half.mean_rate());
        assert!(due < 30.0, "{due} packets/s");
        assert!((300.0..500.0).contains(&kept), "{kept} packets/s");
    }

    #[test]
    fn an_outage_ends_the_forecast_and_arrivals_bring_it_back() {
        let mut flow = steady(0);
        assert!(flow.half.latest().counts[7] > 20);
        flow.tick_until(4000);
        assert!(flow.half.latest().counts[7] <= 1);
        for at in 0..200 {
            flow.arrive(4000 + at * 5 / 2, 0);
        }
        assert!(flow.half.latest().counts[7] > 20);
    }

    #[test]
    fn a_long_silence_costs_little_and_ends_the_ticks() {
        let mut flow = steady(0);
        flow.tick_until(1_000_000);
        assert_eq!(flow.half.next_tick(), None);
        let before = flow.half.latest().tick;
        flow.arrive(3_600_000, 50);
        assert!(flow.half.latest().tick - before <= 500);
        assert!(flow.half.next_tick().is_some());
    }

    #[test]
    fn the_limit_binds_at_the_rate_that_was_measured() {
        // Sixty packets a tick, far above both limits.
        let mut flow = Flow::new();
        for at in 0..12_000 {
            flow.arrive(at / 3, 0);
        }
        // 11.2 to 11.5 Mbit/s were measured, with round trips of five to six ticks in all.
        let counts = flow.half.latest().counts;
        let mbps = f64::from(counts[5] - counts[0]) * 1500.0 * 8.0 / 0.1 / 1e6;
        assert!((9.0..12.0).contains(&mbps), "{mbps} Mbit/s within 100 ms");
    }

    #[test]
    fn what_is_overtaken_is_settled_once_given_up() {
        let mut settled = Settled::default();
        let tag = |sent: u64, open: u32| Tag {
            sent,
            open,
            due: Duration::ZERO,
            heartbeat: false,
        };
        settled.note(&tag(0, 0), 1500);
        assert_eq!(settled.bytes(), 1500);
        // The second is missing, and may still come.
        settled.note(&tag(3000, 3000), 1500);
        assert_eq!(settled.bytes(), 3000);
        settled.note(&tag(4500, 1500), 1500);
        assert_eq!(settled.bytes(), 6000, "the second is given up");
    }

    #[test]
    fn a_heartbeat_says_that_a_whole_flight_is_lost() {
        let mut flow = Flow::new();
        flow.arrive(0, 50);
        // Ten packets leave and are lost; then there is no room for more.
        flow.sent += 10 * SIZE;
        let heartbeat = Tag {
            sent: flow.sent,
            open: 0,
            due: Duration::from_millis(50),
            heartbeat: true,
        };
        flow.half.on_packet(&Arrival {
            at: Time::from_millis(100),
            number: 11,
            size: Bytes::new(SIZE),
            stamp: Some(heartbeat.stamp().as_slice()),
        });
        assert_eq!(flow.half.latest().settled, flow.sent);
    }
}
