//! One sample an epoch from the packets of a flow, whatever controller sends them (§4.1).

use crate::units::{Duration, Time};

use super::EPOCH;
use super::epoch::EpochDelay;

/// A state as it was observed: (d, w).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sample {
    /// d: the delay known when the epoch began, in whole milliseconds.
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
/// What is acknowledged at the very end of an epoch belongs to it; what is sent then belongs to
/// the next: the order in which a controller hears of the same things.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    delay: EpochDelay,
    end: Option<Time>,
    /// The delay known when the open epoch began.
    known: Option<Duration>,
    sent: u64,
    in_flight: u64,
    /// Runs of samples without a gap, one after the other.
    samples: Vec<Sample>,
    /// Where each run but the first begins.
    cuts: Vec<usize>,
}

impl Sampler {
    /// A sampler at the beginning of a flow.
    pub fn new() -> Self {
        Sampler::default()
    }

    /// The algorithm decides at `tick` next: epochs end when its own do. An algorithm without
    /// epochs (Cubic) is never aligned; its epochs count from its first packet.
    #[inline]
    pub fn align(&mut self, tick: Time) {
        let off = |end: Time| tick.since(end).as_nanos().max(end.since(tick).as_nanos());
        if self.end.is_some_and(|end| off(end) % EPOCH.as_nanos() == 0) {
            return;
        }
        // Its first epoch: what came before (slow start) was not decided by epochs.
        self.cut();
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
        self.in_flight += 1;
    }

    /// A packet was acknowledged at `now` after `rtt`.
    #[inline]
    pub fn on_acked(&mut self, now: Time, rtt: Duration) {
        if self.end.is_some_and(|end| end < now) {
            self.close(now - Duration::from_nanos(1));
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.delay.on_sample(now, rtt);
    }

    /// A packet was lost.
    #[inline]
    pub fn on_lost(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The flow pauses or ends: no transition leads from here to what follows.
    pub fn cut(&mut self) {
        if self.cuts.last().copied().unwrap_or(0) < self.samples.len() {
            self.cuts.push(self.samples.len());
        }
        *self = Sampler {
            samples: std::mem::take(&mut self.samples),
            cuts: std::mem::take(&mut self.cuts),
            in_flight: self.in_flight,
            ..Sampler::default()
        };
    }

    /// Closes every epoch that has ended by `now`.
    fn close(&mut self, now: Time) {
        while let Some(end) = self.end
            && end <= now
        {
            if let Some(known) = self.known {
                self.samples.push(Sample::new(known, self.sent));
            }
            self.sent = 0;
            self.known = self.delay.end(end, self.in_flight > 0);
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

    /// How many samples there are.
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
        sampler.align(ms(121)); // another phase
        feed(&mut sampler, 121);
        sampler.align(ms(141)); // the same
        sampler.cut();
        feed(&mut sampler, 200);
        let lengths: Vec<usize> = sampler.runs().map(<[Sample]>::len).collect();
        assert_eq!(lengths.len(), 3, "{lengths:?}");
        assert_eq!(lengths.iter().sum::<usize>(), sampler.len());
    }
}
