//! One sample an epoch from the packets of a flow, whatever controller sends them. §4.1 has one for
//! each packet. But w may be 0, and the counts of Table 1 are those of epochs.

use std::cmp::Reverse;

use verus_core::units::{Duration, Time};

use super::EPOCH;
use super::epoch::{EpochDelay, Stands};

/// An observed state: (d, w).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sample {
    /// d: the newest delay known when the epoch began, in whole milliseconds.
    pub delay_ms: u32,
    /// w: the packets sent in the epoch, the portion of the window that an epoch spends.
    pub packets: u32,
}

impl Sample {
    /// A longer delay counts as this one (17 minutes).
    pub const MAX_DELAY_MS: u32 = (1 << 20) - 1;
    /// More packets in an epoch count as this many (5 ms of 10 Gbit/s).
    pub const MAX_PACKETS: u32 = (1 << 12) - 1;

    /// A sample, its values held to what a sample can say.
    pub fn new(delay: Duration, packets: u64) -> Self {
        Sample {
            delay_ms: whole_millis(delay),
            packets: packets.min(u64::from(Sample::MAX_PACKETS)) as u32,
        }
    }
}

/// A delay in whole milliseconds, rounded down (§4.1: "with a granularity of 1 ms").
#[inline]
pub fn whole_millis(delay: Duration) -> u32 {
    let millis = delay.as_nanos() / 1_000_000;
    millis.min(u64::from(Sample::MAX_DELAY_MS)) as u32
}

/// Cuts a flow into epochs and keeps a sample of each.
///
/// Packets acknowledged at the very end of an epoch belong to it; packets sent then belong to the
/// next. A controller sees the events in the same order.
#[derive(Clone, Debug)]
pub struct Sampler {
    delay: EpochDelay,
    end: Option<Time>,
    /// The delay known when the open epoch began.
    known_delay: Option<Duration>,
    sent: u64,
    /// Whether anything is in flight.
    under_way: bool,
    /// Whether its epochs have ever ended when the algorithm's do.
    aligned: bool,
    /// Whether the algorithm has said when the open epoch ends.
    end_announced: bool,
    /// Runs of samples without a gap, one after the other.
    samples: Vec<Sample>,
    /// The beginnings of all runs except the first.
    cuts: Vec<usize>,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler {
            delay: EpochDelay::new(Stands::Newest),
            end: None,
            known_delay: None,
            sent: 0,
            under_way: false,
            aligned: false,
            end_announced: false,
            samples: Vec::new(),
            cuts: Vec::new(),
        }
    }
}

impl Sampler {
    /// A sampler at the beginning of a flow.
    pub fn new() -> Self {
        Sampler::default()
    }

    /// The algorithm, at `now`, decides at `tick` next: epochs end when its own do, however long they are.
    /// An algorithm without epochs (Cubic) says `None`; its epochs count from its first packet.
    #[inline]
    pub fn align(&mut self, now: Time, tick: Option<Time>) {
        let Some(tick) = tick else {
            self.end_announced = false;
            return;
        };
        if self.end_announced && self.end == Some(tick) {
            return;
        }
        if self.end_announced {
            self.close(now);
        } else {
            if !self.aligned {
                // Epochs did not decide the packets before the first epoch (slow start).
                self.samples.clear();
                self.cuts.clear();
            }
            self.cut();
            (self.aligned, self.end_announced) = (true, true);
        }
        self.end = Some(tick);
    }

    /// A packet left at `now`.
    #[inline]
    pub fn on_sent(&mut self, now: Time) {
        match self.end {
            None => self.end = Some(now + EPOCH),
            Some(end) if end <= now => self.close(now),
            Some(_) => {}
        }
        self.sent += 1;
        self.under_way = true;
    }

    /// A packet was acknowledged at `now` after `rtt`.
    #[inline]
    pub fn on_acked(&mut self, now: Time, rtt: Duration) {
        if self.end.is_some_and(|end| end < now) {
            self.close(now - Duration::from_nanos(1));
        }
        self.delay.on_sample(now, rtt);
    }

    /// Whether packets are in flight from now on.
    #[inline]
    pub fn set_under_way(&mut self, under_way: bool) {
        self.under_way = under_way;
    }

    /// The samples of a recorded flow: when each packet left, and when it was acknowledged.
    ///
    /// Algorithms with epochs send as an epoch begins, and Verus begins each within the first nine
    /// tenths of every 5 ms. So epochs begin at the end of that tenth of the 5 ms which has the
    /// fewest departures.
    pub fn of_packets(packets: impl IntoIterator<Item = (Time, Option<Time>)>) -> Self {
        const PHASES: u64 = 50;
        const QUIET: u64 = PHASES / 10;
        let width = EPOCH.as_nanos() / PHASES;
        // At one instant, acknowledgements come before departures.
        let mut events: Vec<(Time, bool, Duration)> = Vec::new();
        let mut departures = [0u64; PHASES as usize];
        for (sent, acked) in packets {
            departures[(sent.as_nanos() / width % PHASES) as usize] += 1;
            events.push((sent, true, Duration::ZERO));
            events.extend(acked.map(|acked| (acked, false, acked.since(sent))));
        }
        // Of the packets acknowledged at one instant, the one sent last is the newest.
        events.sort_unstable_by_key(|&(at, leaves, rtt)| (at, leaves, Reverse(rtt)));
        let at = |phase: u64| departures[(phase % PHASES) as usize];
        let phase = (0..PHASES).min_by_key(|&phase| {
            let before: u64 = (1..=QUIET).map(|back| at(PHASES + phase - back)).sum();
            (before, Reverse(at(phase)))
        });
        let mut sampler = Sampler::new();
        if let (Some(&(first, ..)), Some(phase)) = (events.first(), phase) {
            let begin = Time::from_nanos(first.as_nanos() / EPOCH.as_nanos() * EPOCH.as_nanos());
            let begin = begin + Duration::from_nanos(phase * width);
            sampler.end = Some(if begin > first { begin } else { begin + EPOCH });
        }
        let mut in_flight = 0u64;
        for (at, leaves, rtt) in events {
            if leaves {
                sampler.on_sent(at);
                in_flight += 1;
            } else {
                sampler.on_acked(at, rtt);
                in_flight = in_flight.saturating_sub(1);
            }
            sampler.set_under_way(in_flight > 0);
        }
        sampler
    }

    /// The flow pauses or ends: no transition leads from here to what follows.
    pub fn cut(&mut self) {
        if self.cuts.last().copied().unwrap_or(0) < self.samples.len() {
            self.cuts.push(self.samples.len());
        }
        *self = Sampler {
            samples: std::mem::take(&mut self.samples),
            cuts: std::mem::take(&mut self.cuts),
            under_way: self.under_way,
            aligned: self.aligned,
            ..Sampler::default()
        };
    }

    /// Closes every epoch that has ended by `now`.
    pub fn close(&mut self, now: Time) {
        while let Some(end) = self.end
            && end <= now
        {
            if let Some(delay) = self.known_delay {
                self.samples.push(Sample::new(delay, self.sent));
            }
            self.sent = 0;
            self.known_delay = self.delay.end(end, self.under_way);
            self.end = Some(end + EPOCH);
        }
    }

    /// The samples so far, in runs between which nothing leads from one to the next.
    pub fn runs(&self) -> impl Iterator<Item = &[Sample]> {
        let ends = self.cuts.iter().copied().chain([self.samples.len()]);
        let mut from = 0;
        ends.map(move |end| {
            let run = &self.samples[from..end];
            from = end;
            run
        })
        .filter(|run| !run.is_empty())
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn sample(delay_ms: u32, packets: u32) -> Sample {
        Sample { delay_ms, packets }
    }

    #[test]
    fn a_sample_joins_the_delay_known_at_an_epochs_begin_with_what_it_sends() {
        let mut sampler = Sampler::new();
        sampler.on_sent(ms(0)); // epochs end at 5, 10, …
        sampler.on_acked(ms(4), Duration::from_micros(40_900));
        sampler.on_sent(ms(5));
        sampler.on_sent(ms(6));
        sampler.on_acked(ms(10), Duration::from_millis(50)); // at its end: still this epoch's
        sampler.on_sent(ms(10)); // and this the next one's
        sampler.on_sent(ms(20));
        let runs: Vec<_> = sampler.runs().collect();
        assert_eq!(runs, [[sample(40, 2), sample(50, 1), sample(50, 0)]]);
    }

    #[test]
    fn no_run_crosses_a_pause_or_the_first_decision() {
        let mut sampler = Sampler::new();
        let feed = |sampler: &mut Sampler, from: u64| {
            for epoch in 0..3 {
                sampler.on_acked(ms(from + 5 * epoch), Duration::from_millis(30));
                sampler.on_sent(ms(from + 5 * epoch));
            }
        };
        feed(&mut sampler, 100);
        sampler.align(ms(116), Some(ms(121))); // another phase
        feed(&mut sampler, 121);
        sampler.align(ms(136), Some(ms(141))); // the same
        sampler.cut();
        feed(&mut sampler, 200);
        let lengths: Vec<usize> = sampler.runs().map(<[Sample]>::len).collect();
        assert_eq!(
            lengths.len(),
            2,
            "what came before the first decision is left out: {lengths:?}"
        );
        assert_eq!(lengths.iter().sum::<usize>(), sampler.len());
    }

    #[test]
    fn a_recording_gives_the_samples_that_watching_gives() {
        let mut watched = Sampler::new();
        let mut packets = Vec::new();
        watched.align(ms(0), Some(ms(3)));
        for epoch in 0..20 {
            let at = ms(3 + 5 * epoch);
            if epoch >= 8 {
                watched.on_acked(at, Duration::from_millis(40));
            }
            watched.on_sent(at);
            packets.push((at, Some(at + Duration::from_millis(40))));
        }
        let recorded = Sampler::of_packets(packets);
        let watched: Vec<_> = watched.runs().collect();
        let recorded: Vec<_> = recorded.runs().collect();
        assert_eq!(watched.len(), 1);
        assert!(
            recorded[0].starts_with(watched[0]),
            "{recorded:?} {watched:?}"
        );
    }

    #[test]
    fn a_recording_whose_epochs_begin_late_at_random_is_cut_between_them() {
        // Each epoch of 5 ms sends three packets, up to 4.5 ms after its due time.
        let packets = (0..200u64).flat_map(|epoch| {
            let late = Duration::from_micros(epoch * 1777 % 4500);
            let at = ms(3 + 5 * epoch) + late;
            [(at, Some(at + Duration::from_millis(40))); 3]
        });
        let recorded = Sampler::of_packets(packets);
        let run = recorded.runs().next().expect("a run");
        let sending = run.iter().take_while(|sample| sample.packets == 3).count();
        assert!(sending > 180, "{sending} of {run:?}");
        // The last packets are answered after all have left.
        assert!(run[sending..].iter().all(|sample| sample.packets == 0));
    }
}
