//! The path's capacity C: the largest delivery rate of the last few seconds.
//!
//! The paper learns delay from windows alone. That is not enough when the flow has had small windows with
//! large delays, as after an outage: the curve then rises steeply at small windows, and the window cannot grow
//! until D_est has climbed all of it. Little's law supplies what is missing. A path that lately carried C packets a millisecond
//!
//! - cannot delay the last of W packets by more than D_min + W/C, which bounds the curve from
//!   above,
//! - takes 1/C longer for each packet beyond what fills it, which bounds the curve's slope from
//!   below,
//! - holds C · D_min packets without a queue, so a smaller window saves no delay.
//!
//! C is what *this flow* carried. A flow that shares the path carries only a part of the capacity, and the second bound
//! would be 1/share: the curve of a newcomer with a small share would be steep and its window grow slowly, that of an
//! incumbent fast. Growth in proportion to what a flow has never equalises shares (Chiu and Jain 1989, multiplicative
//! increase). Nor should a newcomer keep for ten seconds what it took in slow start. A flow alone on its path sees
//! D_min again whenever its own queue empties; where flows share a path, the queue stands. So if D_min has not been
//! seen lately, the second bound does not apply and C is forgotten sooner.

use verus_core::units::{Duration, Time};

/// C is the largest delivery rate of this many intervals. An interval lasts from one fit of the profile to the next, 1
/// s by default.
const INTERVALS: usize = 10;
/// As [`INTERVALS`], for a flow that shares the path: a newcomer must not keep what it took in slow start for ten seconds.
const SHARED_INTERVALS: usize = 5;
/// An interval lasts at least this long: in a shorter one, a burst of acknowledgements would be taken for a rate.
const SHORTEST: Duration = Duration::from_millis(50);

/// Windowed maximum of the delivery rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    /// Packets per ms in each of the last intervals, oldest overwritten first.
    rates: [f64; INTERVALS],
    next: usize,
    acked: u64,
    since: Time,
    /// The largest of those that count.
    best: f64,
    /// Whether others seem to use the path too, so that C is only a share of its capacity.
    shared: bool,
}

impl Capacity {
    /// The flow begins at `now`: its rates count from here, not from the clock's zero.
    pub fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// A packet was acknowledged.
    #[inline]
    pub fn on_acked(&mut self) {
        self.acked += 1;
    }

    /// Ends an interval at `now`.
    pub fn end_interval(&mut self, now: Time) {
        let span = now.since(self.since);
        if span < SHORTEST {
            return;
        }
        self.rates[self.next] = self.acked as f64 / span.as_millis_f64();
        self.next = (self.next + 1) % INTERVALS;
        self.acked = 0;
        self.since = now;
        self.best = self.largest();
    }

    /// The largest rate of the intervals that count.
    fn largest(&self) -> f64 {
        let intervals = if self.shared {
            SHARED_INTERVALS
        } else {
            INTERVALS
        };
        (1..=intervals)
            .map(|back| self.rates[(self.next + INTERVALS - back) % INTERVALS])
            .fold(0.0, f64::max)
    }

    /// A loss has shown that the path does not carry more than `packets_per_ms` now: larger rates measured before are
    /// lowered to this.
    pub fn limit(&mut self, packets_per_ms: f64) {
        for rate in &mut self.rates {
            *rate = rate.min(packets_per_ms);
        }
        self.best = self.best.min(packets_per_ms);
    }

    /// Packets are `factor` times as many from now on, for the same bytes.
    pub fn rescale(&mut self, factor: f64) {
        self.rates.iter_mut().for_each(|rate| *rate *= factor);
        self.best *= factor;
        self.acked = (self.acked as f64 * factor) as u64;
    }

    /// The loss was none: what was measured before it counts again, as far as it is not too old.
    pub fn unlimit(&mut self, before: &Capacity) {
        let intervals = (self.next + INTERVALS - before.next) % INTERVALS;
        for back in 1..=INTERVALS - intervals {
            let at = (before.next + INTERVALS - back) % INTERVALS;
            self.rates[at] = self.rates[at].max(before.rates[at]);
        }
        self.best = self.largest();
    }

    /// Whether others seem to use the path too.
    pub fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
        self.best = self.largest();
    }

    /// 1 / C: the least delay, in ms, that a packet beyond C · D_min adds; zero if C is not known, or is only a share
    /// of the path's capacity.
    pub fn least_slope(&self) -> f64 {
        let alone = self.packets_per_ms().filter(|_| !self.shared);
        alone.map_or(0.0, |rate| 1.0 / rate)
    }

    /// C in packets per ms; `None` while nothing was delivered.
    #[inline]
    pub fn packets_per_ms(&self) -> Option<f64> {
        (self.best > 0.0).then_some(self.best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(capacity: &mut Capacity, packets: u64, until_ms: u64) {
        (0..packets).for_each(|_| capacity.on_acked());
        capacity.end_interval(Time::from_millis(until_ms));
    }

    #[test]
    fn the_best_interval_counts_until_it_is_too_old() {
        let mut capacity = Capacity::default();
        assert_eq!(capacity.packets_per_ms(), None);
        deliver(&mut capacity, 500, 1000);
        for second in 2..=10 {
            deliver(&mut capacity, 100, second * 1000);
            assert_eq!(capacity.packets_per_ms(), Some(0.5));
        }
        deliver(&mut capacity, 100, 11_000);
        assert_eq!(capacity.packets_per_ms(), Some(0.1));
    }

    #[test]
    fn a_flow_that_begins_late_is_not_the_slower_for_it() {
        let mut capacity = Capacity::default();
        capacity.begin(Time::from_secs_f64(60.0));
        deliver(&mut capacity, 100, 60_200);
        assert_eq!(capacity.packets_per_ms(), Some(0.5));
    }

    #[test]
    fn a_loss_limits_what_is_remembered() {
        let mut capacity = Capacity::default();
        deliver(&mut capacity, 500, 1000);
        capacity.limit(0.3);
        assert_eq!(capacity.packets_per_ms(), Some(0.3));
        deliver(&mut capacity, 400, 2000);
        assert_eq!(capacity.packets_per_ms(), Some(0.4));
    }

    #[test]
    fn a_share_of_the_path_says_nothing_of_what_a_packet_costs() {
        let mut capacity = Capacity::default();
        assert_eq!(capacity.least_slope(), 0.0);
        deliver(&mut capacity, 500, 1000);
        assert_eq!(capacity.least_slope(), 2.0);
        capacity.set_shared(true);
        assert_eq!(capacity.least_slope(), 0.0);
        assert_eq!(capacity.packets_per_ms(), Some(0.5));
    }

    #[test]
    fn who_shares_the_path_forgets_sooner() {
        let mut capacity = Capacity::default();
        capacity.set_shared(true);
        deliver(&mut capacity, 500, 1000);
        for second in 2..=5 {
            deliver(&mut capacity, 100, second * 1000);
            assert_eq!(capacity.packets_per_ms(), Some(0.5));
        }
        deliver(&mut capacity, 100, 6000);
        assert_eq!(capacity.packets_per_ms(), Some(0.1));
        capacity.set_shared(false);
        assert_eq!(capacity.packets_per_ms(), Some(0.5));
    }

    #[test]
    fn a_moment_is_no_interval() {
        let mut capacity = Capacity::default();
        deliver(&mut capacity, 40, 10);
        assert_eq!(capacity.packets_per_ms(), None);
        deliver(&mut capacity, 60, 100);
        assert_eq!(capacity.packets_per_ms(), Some(1.0));
    }
}
