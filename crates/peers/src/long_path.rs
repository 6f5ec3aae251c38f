//! Long paths, as picoquic's senders treat them.
//!
//! Slow start takes about as many round trips on a long path as on a short one, and so as many times longer: at 250 Mbit/s and
//! 600 ms, ten of them or 6 s. picoquic's Cubic and BBRs therefore start differently where the least round-trip time is long
//! (`cc_common.c`, `pacing.c`, `bbr.c` and `bbr1.c` of private-octopus/picoquic):
//!
//! - the window at the start grows with the round-trip time, so that the rate is that of a path of 100 ms; beyond 610 ms, a
//!   geostationary satellite's, it grows no more;
//! - while the window still doubles, it is never less than half of what the path would hold at the greatest rate at which
//!   packets have arrived yet, counted over a millisecond or more: one burst then says what doubling would take rounds to find;
//! - the BBRs leave at 1.25 windows in a round trip and in bursts of a quarter of the window, at least 32 kB, and drain once
//!   round trips are a quarter longer than the least, rather than after three rounds without growth;
//! - BBR v3 empties the path once in a hundred round trips to measure it, rather than every five seconds.
//!
//! None of it is in RFC 9438, in the BBR draft or in Linux: it is off unless the key `long_path` says otherwise.

use verus_core::controller::Feedback;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::spec::{Field, Row};

/// A path of this round-trip time begins with the window that a configuration states; longer ones with a larger one
/// (PICOQUIC_TARGET_RENO_RTT).
pub(crate) const REFERENCE_RTT: Duration = Duration::from_millis(100);
/// Beyond this round-trip time the window at the start grows no more (PICOQUIC_TARGET_SATELLITE_RTT).
const LONGEST_RTT: Duration = Duration::from_millis(610);
/// A rate is counted over more than this: several packets even of a fast path, and more than timers err by
/// (PICOQUIC_MAX_BANDWIDTH_TIME_INTERVAL_MIN). Samples of the round-trip time are as far apart.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);
/// Of what the path would hold at the greatest rate, the window is at least this share.
const SHARE: f64 = 0.5;
/// The pace while the window doubles, in windows per round trip.
const PACE: f64 = 1.25;
/// The least burst meanwhile: at 250 Mbit/s it lasts a millisecond.
const LEAST_BURST: Bytes = Bytes::new(32_768);
/// Round trips are longer if the least of so many samples is (PICOQUIC_MIN_MAX_RTT_SCOPE), in as many windows of them.
const SAMPLES: usize = 7;
/// By this share of the least round trip, the path's queue is long enough to be one.
const EXCESS_DIVISOR: u64 = 4;
/// Round trips between two measurements of the empty path.
const ROUNDS_BETWEEN_PROBES: u64 = 100;

/// The key that turns it on.
pub(crate) const fn key<C>(field: Field<C, bool>) -> Row<C> {
    field.flag("starts faster where round trips exceed 100 ms (picoquic)")
}

/// How many times the window at the start is larger on a path of this round-trip time.
pub(crate) fn scale(rtt: Duration) -> f64 {
    (rtt.min(LONGEST_RTT) / REFERENCE_RTT).max(1.0)
}

/// How long BBR v3 goes without an empty path of this round-trip time.
pub(crate) fn probe_rtt_every(min_rtt: Duration) -> Duration {
    min_rtt * ROUNDS_BETWEEN_PROBES
}

/// What is known of a path while the window doubles.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Search {
    peak: Peak,
    excess: Excess,
}

impl Search {
    /// An acknowledgement, while the window doubles.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let Some(newest) = feedback.acked.last() else {
            return;
        };
        let mark = Mark {
            delivered: feedback.delivered,
            heard: feedback.now,
            left: newest.packet.at,
        };
        self.peak.on_mark(mark);
        self.excess.on_sample(feedback.now, newest.rtt);
    }

    /// The least window on a path of this round-trip time, where `initial` is that at the start of a short one.
    pub(crate) fn least_window(&self, initial: Bytes, rtt: Duration) -> Bytes {
        let held = self.peak.rate.bytes_in(rtt).mul_f64(SHARE);
        initial.mul_f64(scale(rtt)).max(held)
    }

    /// Whether round trips have grown longer: the path is full.
    pub(crate) fn is_full(&self) -> bool {
        self.excess.windows as usize >= SAMPLES
    }
}

/// The pace that lets a window double.
pub(crate) fn pace(window: Bytes, rtt: Duration) -> Rate {
    (window / rtt).mul_f64(PACE)
}

/// How much leaves back to back meanwhile.
pub(crate) fn burst(window: Bytes) -> Bytes {
    (window / 4).max(LEAST_BURST)
}

/// Where an interval of [`Peak`] begins.
#[derive(Clone, Copy, Debug)]
struct Mark {
    delivered: Bytes,
    heard: Time,
    /// When the newest packet left that had arrived by then.
    left: Time,
}

/// The greatest rate at which packets have arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    since: Option<Mark>,
    rate: Rate,
}

impl Peak {
    fn on_mark(&mut self, mark: Mark) {
        if let Some(since) = self.since {
            let heard = mark.heard.since(since.heard);
            if heard <= LEAST_INTERVAL {
                return;
            }
            // Acknowledgements that come together do not make a path faster than what was sent.
            let interval = heard.max(mark.left.since(since.left));
            let delivered = mark.delivered.saturating_sub(since.delivered);
            self.rate = self.rate.max(delivered / interval);
        }
        self.since = Some(mark);
    }
}

/// How long round trips have been too long.
#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    recent: [Duration; SAMPLES],
    count: usize,
    sampled_at: Option<Time>,
    /// The least that the greatest of recent samples has been: the round trip without a queue, jitter included.
    base: Option<Duration>,
    /// Windows in which even the least sample exceeded it by a quarter, since one in which it did not exceed it at all.
    windows: u32,
}

impl Excess {
    fn on_sample(&mut self, now: Time, rtt: Duration) {
        if (self.sampled_at).is_some_and(|at| now.since(at) <= LEAST_INTERVAL) {
            return;
        }
        self.sampled_at = Some(now);
        self.recent[self.count % SAMPLES] = rtt;
        self.count += 1;
        if self.count < SAMPLES {
            return;
        }
        let (mut least, mut greatest) = (rtt, rtt);
        for &sample in &self.recent {
            (least, greatest) = (least.min(sample), greatest.max(sample));
        }
        let base = self.base.map_or(greatest, |base| base.min(greatest));
        self.base = Some(base);
        if least <= base {
            self.windows = 0;
        } else if least > base + base / EXCESS_DIVISOR {
            self.windows += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_window_at_the_start_follows_the_round_trip_from_100_to_610_ms() {
        let initial = Bytes::new(15_000);
        let search = Search::default();
        let at = |ms| search.least_window(initial, MS(ms)).get();
        assert_eq!(
            [at(20), at(100), at(200), at(610), at(1000)],
            [15_000, 15_000, 30_000, 91_500, 91_500]
        );
    }

    #[test]
    fn a_burst_that_took_longer_than_a_millisecond_says_what_the_path_holds() {
        let mut search = Search::default();
        let mark = |packets: u64, heard_us: u64, left_us: u64| Mark {
            delivered: Bytes::new(1500) * packets,
            heard: Time::ZERO + Duration::from_micros(600_000 + heard_us),
            left: Time::ZERO + Duration::from_micros(left_us),
        };
        search.peak.on_mark(mark(1, 0, 0));
        search.peak.on_mark(mark(20, 1000, 0));
        assert_eq!(search.peak.rate, Rate::default(), "too short");
        search.peak.on_mark(mark(41, 2000, 0));
        assert_eq!(search.peak.rate, Rate::from_mbps(240.0));
        // Half of 240 Mbit/s in 600 ms.
        let least = search.least_window(Bytes::new(15_000), MS(600));
        assert_eq!(least, Bytes::new(9_000_000));
        // Sent slowly, acknowledged at once: the sender's rate, which is less.
        search.peak.on_mark(mark(81, 4000, 40_000));
        assert_eq!(search.peak.rate, Rate::from_mbps(240.0));
        search.peak.on_mark(mark(161, 6000, 41_000));
        assert_eq!(search.peak.rate, Rate::from_mbps(480.0));
    }

    /// Whether the path is full after samples of the round-trip time, one every 2 ms.
    fn is_full(samples: impl IntoIterator<Item = u64>) -> bool {
        let mut search = Search::default();
        for (index, rtt) in samples.into_iter().enumerate() {
            let now = Time::from_millis(2 * index as u64);
            search.excess.on_sample(now, MS(rtt));
        }
        search.is_full()
    }

    #[test]
    fn round_trips_longer_by_a_quarter_in_seven_windows_of_seven_fill_the_path() {
        let then = |rtt: u64, count: usize| [600; 7].into_iter().chain(vec![rtt; count]);
        assert!(!is_full(then(751, 12)));
        assert!(is_full(then(751, 13)));
        assert!(!is_full(then(750, 100)), "no more than a quarter");
        let jitter = (0..100).map(|index| if index % 7 == 0 { 600 } else { 900 });
        assert!(!is_full(jitter), "one of seven is as short as ever");
    }

    #[test]
    fn samples_of_one_burst_count_once() {
        let mut excess = Excess::default();
        for micros in 0..1000 {
            excess.on_sample(Time::ZERO + Duration::from_micros(micros), MS(600));
        }
        assert_eq!(excess.count, 1);
    }

    #[test]
    fn the_pace_is_five_quarters_and_a_burst_a_quarter_of_the_window() {
        let window = Bytes::new(1_000_000);
        assert_eq!(pace(window, MS(1000)), Rate::from_mbps(10.0));
        assert_eq!(burst(window), Bytes::new(250_000));
        assert_eq!(burst(Bytes::new(15_000)), Bytes::new(32_768));
    }

    #[test]
    fn an_empty_path_is_measured_once_in_a_hundred_round_trips() {
        assert_eq!(probe_rtt_every(MS(600)), Duration::from_secs(60));
    }
}
