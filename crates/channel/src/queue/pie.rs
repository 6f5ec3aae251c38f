//! PIE (RFC 8033): drops at arrival with a probability that a controller of the delay sets.
//!
//! The delay is that of the packet that left last, by its own time of arrival (§4.3), or zero if
//! the queue was then empty. Of the optional parts it has marks (§5.1), the bounds on the distance
//! between drops (§5.4) and the bound on the rise of the probability (§5.5), as in Linux. It leaves
//! out the estimate of the departure rate (§5.2), which Linux has off, and the inactive state
//! (§5.3).

use std::fmt;

use rand_chacha::ChaCha8Rng;
use verus_core::{Duration, Time};
use verus_words::spec::{Given, Problem, Row, field};

use super::{Arrival, ECN, LIMIT, MILLIS, Ticks, Verdict};
use crate::path::loss::uniform;

/// How far a probability may be before marks are drops: `mark_ecnth` (§5.1).
const MARKS_BELOW: f64 = 0.1;
/// The queue is left alone with two packets of this size or less (§4.1, `MEAN_PKTSIZE`; an Ethernet frame, as in Linux).
const MEAN_PACKET: u64 = 1500;
/// The sum of probabilities since the last drop that allows the next, and the sum that forces it
/// (§5.4).
const ACCUMULATED: (f64, f64) = (0.85, 8.5);
/// From this probability on, an update raises it by at most [`CAP`] (§5.5).
const CAPPED_FROM: f64 = 0.1;
const CAP: f64 = 0.02;
/// The share of the probability that an interval without delay leaves (§4.2).
const DECAY: f64 = 0.98;

/// PIE (RFC 8033).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieConfig {
    /// Delay aimed at, in milliseconds: QDELAY_REF. Default 15 (§4.2).
    pub target_ms: f64,
    /// How often the probability is set, in milliseconds: T_UPDATE. Default 15 (§4.2).
    pub update_ms: f64,
    /// Weight of the distance to the target, in Hz. Default 0.125 (Appendix A).
    pub alpha_hz: f64,
    /// Weight of the change since the last update, in Hz. Default 1.25 (Appendix A).
    pub beta_hz: f64,
    /// For how long a burst is let through after an empty queue, in milliseconds: MAX_BURST. Default 150 (§4.4).
    pub burst_ms: f64,
    /// Bytes that may wait at all. Default: no limit.
    pub limit: Option<u64>,
    /// Whether packets that are capable of it (ECN) are marked, while the probability is below 10 % (§5.1).
    pub ecn: bool,
}

impl Default for PieConfig {
    fn default() -> Self {
        PieConfig {
            target_ms: 15.0,
            update_ms: 15.0,
            alpha_hz: 0.125,
            beta_hz: 1.25,
            burst_ms: 150.0,
            limit: None,
            ecn: false,
        }
    }
}

impl PieConfig {
    pub(super) const ROWS: &'static [Row<Self>] = &[
        field!(target_ms).within("ms", "delay aimed at (§4.2)", MILLIS),
        field!(update_ms).within(
            "ms",
            "how often the drop probability is set (§4.2)",
            super::UPDATE,
        ),
        field!(alpha_hz).within(
            "Hz",
            "weight of the distance to the target (Appendix A)",
            super::GAIN,
        ),
        field!(beta_hz).within(
            "Hz",
            "weight of the delay's change (Appendix A)",
            super::GAIN,
        ),
        field!(burst_ms).within(
            "ms",
            "how long a burst passes after an empty queue (§4.4)",
            MILLIS,
        ),
        field!(limit, LIMIT.0).whole_or("none", LIMIT.1, LIMIT.2),
        field!(ecn, ECN.0).flag(ECN.1),
    ];

    pub(super) fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = PieConfig::default();
        given.apply(Self::ROWS, &mut config)?;
        Ok(config)
    }
}

impl fmt::Display for PieConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = PieConfig::default();
        write!(f, "pie:target_ms={}", self.target_ms)?;
        for (key, value, usual) in [
            ("update_ms", self.update_ms, default.update_ms),
            ("alpha_hz", self.alpha_hz, default.alpha_hz),
            ("beta_hz", self.beta_hz, default.beta_hz),
            ("burst_ms", self.burst_ms, default.burst_ms),
        ] {
            if value != usual {
                write!(f, ",{key}={value}")?;
            }
        }
        if let Some(limit) = self.limit {
            write!(f, ",limit={limit}")?;
        }
        f.write_str(if self.ecn { ",ecn=yes" } else { "" })
    }
}

/// PIE at work. The names of the RFC's variables are in its comments.
#[derive(Clone, Debug)]
pub(crate) struct Pie {
    rng: ChaCha8Rng,
    target: f64,
    alpha: f64,
    beta: f64,
    burst: Duration,
    limit: u64,
    ecn: bool,
    ticks: Ticks,
    /// drop_prob_.
    probability: f64,
    /// The delay of the packet that left last, and its value at the last update, in seconds:
    /// current_qdelay, qdelay_old_.
    delay: f64,
    delay_before: f64,
    /// burst_allowance_.
    allowance: Duration,
    /// accu_prob_.
    accumulated: f64,
}

impl Pie {
    pub(super) fn new(config: &PieConfig, rng: ChaCha8Rng) -> Self {
        let burst = Duration::from_millis_f64(config.burst_ms);
        Pie {
            rng,
            target: config.target_ms / 1e3,
            alpha: config.alpha_hz,
            beta: config.beta_hz,
            burst,
            limit: config.limit.unwrap_or(u64::MAX),
            ecn: config.ecn,
            ticks: Ticks::new(Duration::from_millis_f64(config.update_ms)),
            probability: 0.0,
            delay: 0.0,
            delay_before: 0.0,
            allowance: burst,
            accumulated: 0.0,
        }
    }

    pub(super) fn admit(&mut self, arrival: &Arrival) -> Verdict {
        self.catch_up(arrival.now);
        if arrival.waiting_bytes.saturating_add(arrival.size) > self.limit {
            self.accumulated = 0.0;
            return Verdict::Refuse;
        }
        // §4.4: a burst passes, and the allowance is renewed once the congestion is over.
        let passes = !self.allowance.is_zero();
        let half_target = self.target / 2.0;
        if self.probability == 0.0 && self.delay < half_target && self.delay_before < half_target {
            self.allowance = self.burst;
        }
        if passes || !self.drops(arrival.waiting_bytes) {
            return Verdict::Take;
        }
        self.accumulated = 0.0;
        if self.ecn && self.probability < MARKS_BELOW {
            Verdict::signal(arrival)
        } else {
            Verdict::Refuse
        }
    }

    /// Whether to drop this arrival (§4.1, §5.4; Appendix B, `drop_early`).
    fn drops(&mut self, waiting: u64) -> bool {
        let idle = self.delay_before < self.target / 2.0 && self.probability < 0.2;
        if idle || waiting <= 2 * MEAN_PACKET {
            return false;
        }
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.probability;
        let (too_soon, overdue) = ACCUMULATED;
        self.accumulated >= too_soon
            && (self.accumulated >= overdue || uniform(&mut self.rng) < self.probability)
    }

    /// A packet that had entered at `entered` leaves the queue at `now`; `others` tells whether more packets wait.
    pub(crate) fn on_leave(&mut self, now: Time, entered: Time, others: bool) {
        self.catch_up(now);
        self.delay = if others {
            now.since(entered).as_secs_f64()
        } else {
            0.0
        };
    }

    /// Does the updates due before `now`.
    fn catch_up(&mut self, now: Time) {
        while self.ticks.next(now).is_some() {
            self.update();
            let settled = self.probability == 0.0 && self.delay == 0.0 && self.delay_before == 0.0;
            if settled && self.allowance.is_zero() {
                self.ticks.pass(now);
            }
        }
    }

    /// Updates the probability (§4.2).
    fn update(&mut self) {
        let p =
            self.alpha * (self.delay - self.target) + self.beta * (self.delay - self.delay_before);
        let mut p = p / scale(self.probability);
        if self.probability >= CAPPED_FROM && p > CAP {
            p = CAP;
        }
        self.probability += p;
        if self.delay == 0.0 && self.delay_before == 0.0 {
            self.probability *= DECAY;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.delay_before = self.delay;
        self.allowance = self.allowance.saturating_sub(self.ticks.every());
    }
}

/// Divisor of the steps while the probability is small (§4.2).
fn scale(probability: f64) -> f64 {
    const SCALES: [(f64, f64); 6] = [
        (0.000_001, 2048.0),
        (0.000_01, 512.0),
        (0.000_1, 128.0),
        (0.001, 32.0),
        (0.01, 8.0),
        (0.1, 2.0),
    ];
    let entry = SCALES.iter().find(|(below, _)| probability < *below);
    entry.map_or(1.0, |&(_, scale)| scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::{Ecn, random};

    fn pie(config: PieConfig) -> Pie {
        Pie::new(&config, random::stream(1, "queue", 0))
    }

    fn arrival(ms: u64, ecn: Ecn) -> Arrival {
        Arrival {
            now: Time::from_millis(ms),
            size: 1500,
            waiting_bytes: 100_000,
            waiting_packets: 70,
            unused: None,
            wait: Duration::ZERO,
            ecn,
        }
    }

    #[test]
    fn the_probability_follows_delay_and_its_change_in_steps_that_grow_with_it() {
        // 0.125 · (20 − 15) ms + 1.25 · (20 − 10) ms = 0.013125, divided by what the present probability says.
        for (before, step) in [
            (0.0, 0.013_125 / 2048.0),
            (0.000_005, 0.013_125 / 512.0),
            (0.000_05, 0.013_125 / 128.0),
            (0.000_5, 0.013_125 / 32.0),
            (0.005, 0.013_125 / 8.0),
            (0.05, 0.013_125 / 2.0),
            (0.3, 0.013_125),
        ] {
            let mut pie = pie(PieConfig::default());
            (pie.probability, pie.delay, pie.delay_before) = (before, 0.020, 0.010);
            pie.update();
            assert!((pie.probability - before - step).abs() < 1e-15, "{before}");
            assert_eq!(pie.delay_before, 0.020);
        }
    }

    #[test]
    fn it_rises_by_no_more_than_a_fiftieth_falls_by_a_fiftieth_without_delay_and_stays_a_probability()
     {
        let mut pie = pie(PieConfig::default());
        (pie.probability, pie.delay) = (0.3, 1.0);
        pie.update();
        assert!((pie.probability - 0.32).abs() < 1e-15);
        (pie.delay, pie.delay_before) = (0.0, 0.0);
        pie.update();
        assert!((pie.probability - (0.32 - 0.001_875) * 0.98).abs() < 1e-15);
        pie.probability = 0.995;
        pie.delay = 1.0;
        pie.update();
        assert_eq!(pie.probability, 1.0);
        (pie.probability, pie.delay) = (0.1, 0.0);
        pie.update();
        assert_eq!(pie.probability, 0.0);
    }

    #[test]
    fn a_burst_passes_for_150_ms_and_then_drops_keep_their_distance() {
        let mut pie = pie(PieConfig::default());
        (pie.probability, pie.delay, pie.delay_before) = (0.5, 0.1, 0.1);
        // Updates at 15, 30 … 150 ms take 15 ms each off the allowance.
        for ms in [0, 75, 149] {
            assert_eq!(pie.admit(&arrival(ms, Ecn::NotEct)), Verdict::Take);
        }
        let mut gap = 0;
        let mut gaps = Vec::new();
        for _ in 0..10_000 {
            (pie.probability, gap) = (0.25, gap + 1);
            if pie.admit(&arrival(151, Ecn::NotEct)) == Verdict::Refuse {
                gaps.push(gap);
                gap = 0;
            }
        }
        // 0.85 takes four arrivals at a quarter each, 8.5 takes 34.
        assert_eq!(gaps.iter().min(), Some(&4));
        assert!(gaps.iter().max() <= Some(&34));
        let mean = gaps.iter().sum::<i32>() as f64 / gaps.len() as f64;
        // After three that pass, one in four: 3 + 4.
        assert!((mean - 7.0).abs() < 0.3, "{mean}");
    }

    #[test]
    fn below_a_tenth_it_marks_and_above_it_drops() {
        for (probability, verdict) in [(0.099, Verdict::Mark), (0.1, Verdict::Refuse)] {
            let mut pie = pie(PieConfig {
                ecn: true,
                ..PieConfig::default()
            });
            (pie.probability, pie.delay_before, pie.accumulated) = (probability, 0.1, 8.5);
            pie.allowance = Duration::ZERO;
            assert_eq!(pie.admit(&arrival(1, Ecn::Ect0)), verdict);
        }
    }

    #[test]
    fn a_short_queue_and_one_without_delay_are_left_alone() {
        let mut pie = pie(PieConfig::default());
        (pie.probability, pie.delay_before, pie.accumulated) = (0.9, 0.1, 8.5);
        assert!(!pie.drops(3000));
        assert!(pie.drops(3001));
        (pie.probability, pie.delay_before, pie.accumulated) = (0.19, 0.007, 8.5);
        assert!(!pie.drops(100_000));
    }
}
