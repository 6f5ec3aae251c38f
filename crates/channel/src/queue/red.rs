//! Random early detection (Floyd & Jacobson 1993): drops more often the longer the average queue.

use std::fmt;

use rand_chacha::ChaCha8Rng;
use verus_core::Time;
use verus_words::spec::{Given, Problem, Row, Words, field, words};

use super::{Arrival, ECN, LIMIT, PROBABILITY, Verdict};
use crate::path::loss::uniform;

/// Random early detection (Floyd & Jacobson 1993).
#[derive(Clone, Debug, PartialEq)]
pub struct RedConfig {
    /// Average queue below which nothing is dropped, in bytes. Default 375,000: the 3 Mbit of Verus §6.
    pub min: u64,
    /// Average queue from which everything is (or, `gentle`, ever more is) dropped, in bytes. Default 1,125,000:
    /// the 9 Mbit of Verus §6.
    pub max: u64,
    /// Drop probability as the average reaches `max`. Default 0.1 (Verus §6).
    pub p: f64,
    /// Bytes that may wait whatever the average says. Default: no limit, as the papers state none.
    pub limit: Option<u64>,
    /// w_q, the weight of each arrival in the average. Default 0.002 (Floyd & Jacobson 1993, §6).
    pub weight: f64,
    /// The spacing of drops, the rule beyond `max`, and the effect of an idle link on the average.
    pub preset: RedPreset,
    /// Whether packets capable of ECN are marked where an early drop would be. Above `max`
    /// (`gentle`: twice that) and at the limit they are dropped all the same (RFC 3168 §7).
    pub ecn: bool,
}

/// The variants of RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RedPreset {
    /// As published. Drops are spaced evenly by counting the packets since the last one, and
    /// everything is dropped above `max`. The average falls by one step for each opportunity unused
    /// while the link was idle.
    #[default]
    Floyd,
    /// As `Floyd`, but between `max` and twice `max` the drop probability rises from `p` to 1.
    Gentle,
    /// As in the CS244 reproduction of 2017. Drops are independent (its counter is reset by each
    /// accepted packet), and everything is dropped above `max`. An empty queue forgets its average
    /// within a few milliseconds (a constant that looks meant per second, applied per millisecond).
    Cs244,
}

impl Default for RedConfig {
    fn default() -> Self {
        let preset = RedPreset::default();
        RedConfig {
            min: 375_000,
            max: 1_125_000,
            p: 0.1,
            limit: None,
            weight: 0.002,
            preset,
            ecn: false,
        }
    }
}

impl RedPreset {
    const WORDS: Words<RedPreset> = &[
        ("floyd", RedPreset::Floyd),
        ("gentle", RedPreset::Gentle),
        ("cs244", RedPreset::Cs244),
    ];
}

impl RedConfig {
    pub(super) const ROWS: &'static [Row<Self>] = &[
        field!(min).whole("bytes", "average queue below which nothing is dropped"),
        field!(max).whole("bytes", "average queue above which everything is dropped"),
        field!(p).within(
            "probability",
            "drop probability as the average reaches max",
            PROBABILITY,
        ),
        field!(limit, LIMIT.0).whole_or("none", LIMIT.1, LIMIT.2),
        field!(weight).within(
            "fraction",
            "weight of each arrival in the average",
            PROBABILITY,
        ),
        words!(
            preset,
            RedPreset::WORDS,
            "as published; dropping ever more between max and 2 max; as in the 2017 reproduction"
        ),
        field!(ecn, ECN.0).flag(ECN.1),
    ];

    pub(super) fn read(given: &Given<'_>) -> Result<Self, Problem> {
        let mut config = RedConfig::default();
        given.apply(Self::ROWS, &mut config)?;
        if config.min >= config.max {
            return Err(Problem::bad("min", "less than max", config.min));
        }
        Ok(config)
    }
}

impl fmt::Display for RedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "red:min={},max={},p={}", self.min, self.max, self.p)?;
        if let Some(limit) = self.limit {
            write!(f, ",limit={limit}")?;
        }
        if self.weight != RedConfig::default().weight {
            write!(f, ",weight={}", self.weight)?;
        }
        f.write_str(match self.preset {
            RedPreset::Floyd => "",
            RedPreset::Gentle => ",preset=gentle",
            RedPreset::Cs244 => ",preset=cs244",
        })?;
        f.write_str(if self.ecn { ",ecn=yes" } else { "" })
    }
}

/// Random early detection (Floyd & Jacobson 1993, Fig. 2), in bytes. Whether a packet is dropped does not
/// depend on its own size (RFC 7141 §2.3).
#[derive(Clone, Debug)]
pub(crate) struct Red {
    config: RedConfig,
    rng: ChaCha8Rng,
    /// The moving average of the queue, in bytes.
    average: f64,
    /// Packets accepted since the last drop, or since the average rose above `min`.
    accepted: u64,
    /// The time at which the queue ran empty.
    pub(super) empty_since: Time,
}

impl Red {
    pub(super) fn new(config: RedConfig, rng: ChaCha8Rng) -> Self {
        Red {
            config,
            rng,
            average: 0.0,
            accepted: 0,
            empty_since: Time::ZERO,
        }
    }

    pub(super) fn admit(&mut self, arrival: &Arrival) -> Verdict {
        self.update(arrival);
        let full =
            (self.config.limit).is_some_and(|limit| arrival.waiting_bytes + arrival.size > limit);
        let chance = self.chance();
        let dropped = full || chance >= 1.0 || chance > 0.0 && uniform(&mut self.rng) < chance;
        let in_range = chance > 0.0 || full;
        let spaced = self.config.preset != RedPreset::Cs244;
        // The counter that CS244's RED resets on each accepted packet is always 0.
        self.accepted = if spaced && in_range && !dropped {
            self.accepted + 1
        } else {
            0
        };
        if !dropped {
            Verdict::Take
        } else if self.config.ecn && !full && self.average < self.drop_all_from() {
            Verdict::signal(arrival)
        } else {
            Verdict::Refuse
        }
    }

    /// Moves the average to this arrival.
    fn update(&mut self, arrival: &Arrival) {
        let keep = 1.0 - self.config.weight;
        if self.config.preset == RedPreset::Cs244 {
            if arrival.waiting_packets > 0 {
                self.average =
                    keep * self.average + self.config.weight * arrival.waiting_bytes as f64;
            } else {
                let idle_ms = arrival
                    .now
                    .as_millis()
                    .saturating_sub(self.empty_since.as_millis());
                self.average *= power(keep, idle_ms.saturating_mul(1000));
            }
            return;
        }
        // A link that was idle could have sent this many packets, each finding an empty queue (the paper's m).
        // The arrival itself finds one too, which its text leaves out but its authors' simulator counts.
        if let Some(unused) = arrival.unused {
            self.average *= power(keep, unused);
        }
        self.average = keep * self.average + self.config.weight * arrival.waiting_bytes as f64;
    }

    /// The average from which everything is dropped.
    fn drop_all_from(&self) -> f64 {
        let max = self.config.max as f64;
        match self.config.preset {
            RedPreset::Gentle => 2.0 * max,
            RedPreset::Floyd | RedPreset::Cs244 => max,
        }
    }

    /// The probability with which this arrival is dropped.
    fn chance(&self) -> f64 {
        let RedConfig { min, max, p, .. } = self.config;
        let (min, max) = (min as f64, max as f64);
        let base = if self.average < min {
            return 0.0;
        } else if self.average < max {
            p * (self.average - min) / (max - min)
        } else if self.average < self.drop_all_from() {
            p + (1.0 - p) * (self.average - max) / max
        } else {
            return 1.0;
        };
        // Makes the gap between drops uniform instead of geometric: p_a = p_b / (1 − count·p_b).
        let room = 1.0 - self.accepted as f64 * base;
        if room > base { base / room } else { 1.0 }
    }
}

/// `base` to the power `exponent`, by squaring: the same bits on every machine, unlike the library's.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 && result > 0.0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueConfig;
    use verus_core::{Duration, Ecn, random};

    fn red(text: &str) -> Red {
        match QueueConfig::parse(text) {
            Ok(QueueConfig::Red(config)) => Red::new(config, random::stream(1, "queue", 0)),
            other => panic!("{text} gave {other:?}"),
        }
    }

    fn accepts(red: &mut Red, arrival: &Arrival) -> bool {
        red.admit(arrival) == Verdict::Take
    }

    /// An arrival at a queue of `bytes` (in packets of 1000) at `ms`.
    fn arrival(ms: u64, bytes: u64, unused: Option<u64>) -> Arrival {
        let now = Time::from_millis(ms);
        Arrival {
            now,
            size: 1000,
            waiting_bytes: bytes,
            waiting_packets: bytes / 1000,
            unused,
            wait: Duration::ZERO,
            ecn: Ecn::NotEct,
        }
    }

    #[test]
    fn the_average_moves_by_its_weight_at_each_arrival() {
        let mut red = red("red:min=500000,max=1000000,weight=0.25");
        let mut averages = Vec::new();
        for bytes in [4000, 4000, 0] {
            assert!(accepts(&mut red, &arrival(0, bytes, None)));
            averages.push(red.average);
        }
        assert_eq!(averages, [1000.0, 1750.0, 1312.5]);
    }

    #[test]
    fn an_idle_link_takes_a_step_off_the_average_for_each_unused_opportunity() {
        let mut red = red("red:min=500000,max=1000000,weight=0.5");
        red.average = 64_000.0;
        // Three unused, and the arrival itself finds an empty queue too.
        assert!(accepts(&mut red, &arrival(9, 0, Some(3))));
        assert_eq!(red.average, 4_000.0);
        assert!(accepts(&mut red, &arrival(9, 0, Some(0))));
        assert_eq!(red.average, 2_000.0);
    }

    #[test]
    fn nothing_is_dropped_below_min_and_everything_above_max() {
        let mut red = red("red:min=10000,max=20000,p=0.5,weight=1");
        assert!((0..1000).all(|_| accepts(&mut red, &arrival(0, 9_999, None))));
        assert!((0..1000).all(|_| !accepts(&mut red, &arrival(0, 20_000, None))));
    }

    #[test]
    fn counting_makes_gaps_between_drops_uniform() {
        // p_b = 0.1: the gap between drops is uniform on 1..=10, with mean 5.5.
        let mut red = red("red:min=10000,max=20000,p=0.2,weight=1");
        let mut gaps = [0u32; 11];
        let mut gap = 0;
        for _ in 0..110_000 {
            gap += 1;
            if !accepts(&mut red, &arrival(0, 15_000, None)) {
                gaps[gap] += 1;
                gap = 0;
            }
        }
        // 20,000 drops: 2000 expected at each gap, standard deviation 42.
        for (gap, count) in gaps.iter().enumerate().skip(1) {
            assert!(count.abs_diff(2000) < 220, "{count} gaps of {gap}");
        }
    }

    #[test]
    fn a_hard_limit_holds_whatever_the_average() {
        let mut red = red("red:min=10000,max=20000,limit=5000");
        assert!(accepts(&mut red, &arrival(0, 4000, None)));
        assert!(!accepts(&mut red, &arrival(0, 4001, None)));
    }

    #[test]
    fn cs244_drops_each_arrival_independently() {
        // p_b = 0.1: gaps are geometric, so one in ten follows a drop at once, where even spacing has one in 5.5·10.
        let mut red = red("red:min=10000,max=20000,p=0.2,weight=1,preset=cs244");
        let outcomes: Vec<bool> = (0..100_000)
            .map(|_| accepts(&mut red, &arrival(0, 15_000, None)))
            .collect();
        let drops = outcomes.iter().filter(|accepted| !**accepted).count();
        assert!(drops.abs_diff(10_000) < 500, "{drops} drops");
        let pairs = outcomes
            .windows(2)
            .filter(|pair| !pair[0] && !pair[1])
            .count();
        assert!(pairs.abs_diff(1_000) < 160, "{pairs} drops after a drop");
        red.average = 1e6;
        assert!(!accepts(&mut red, &arrival(0, 30_000, None)));
    }

    #[test]
    fn cs244_forgets_its_average_when_empty_for_some_milliseconds() {
        let mut red = red("red:preset=cs244");
        red.average = 1e6;
        red.empty_since = Time::from_nanos(9_900_000);
        // From millisecond 9 to 10, by the millisecond clock: 0.998^1000 = 0.135.
        assert!(accepts(&mut red, &arrival(10, 0, Some(0))));
        assert!((red.average / 1e6 - 0.1351).abs() < 1e-4, "{}", red.average);
        red.empty_since = Time::from_millis(10);
        assert!(accepts(&mut red, &arrival(110, 0, Some(0))));
        assert!(red.average < 1e-6);
        // Within a millisecond it keeps all of it.
        red.average = 1e5;
        red.empty_since = Time::from_millis(200);
        assert!(accepts(&mut red, &arrival(200, 0, Some(0))));
        assert_eq!(red.average, 1e5);
    }

    #[test]
    fn powers_are_products() {
        for (base, exponent) in [(0.998, 0), (0.998, 1), (0.998, 13), (0.5, 100)] {
            let product = (0..exponent).fold(1.0, |product, _| product * base);
            assert!((power(base, exponent) - product).abs() < 1e-12 * product);
        }
        assert_eq!(power(0.998, u64::MAX), 0.0);
    }

    #[test]
    fn the_papers_thresholds_give_these_probabilities() {
        let mut red = red("red:min=375000,max=1125000,p=0.1,preset=gentle");
        for (average, base) in [
            (300_000.0, 0.0),
            (375_000.0, 0.0),
            (562_500.0, 0.025),
            (750_000.0, 0.05),
            (1_125_000.0, 0.1),
            (1_687_500.0, 0.55),
            (2_250_000.0, 1.0),
            (3_000_000.0, 1.0),
        ] {
            red.average = average;
            assert!((red.chance() - base).abs() < 1e-12, "{average}");
        }
        red.average = 750_000.0;
        for (accepted, chance) in [(0, 0.05), (1, 0.0526), (10, 0.1), (19, 1.0)] {
            red.accepted = accepted;
            assert!((red.chance() - chance).abs() < 1e-4, "{accepted}");
        }
    }

    #[test]
    fn the_average_is_half_of_a_step_after_347_arrivals() {
        let mut red = red("red");
        let mut after = Vec::new();
        for _ in 0..500 {
            red.update(&arrival(0, 1_000_000, None));
            after.push(red.average / 1e3);
        }
        for (arrivals, wanted) in [(1, 2.0), (10, 19.8), (100, 181.4), (500, 632.5)] {
            let average = after[arrivals - 1];
            assert!((average - wanted).abs() < 0.05, "{arrivals}: {average}");
        }
        assert_eq!(after.partition_point(|average| *average < 500.0) + 1, 347);
    }

    #[test]
    fn with_ecn_capable_packets_are_marked_where_early_drops_would_be() {
        let mut red = red("red:min=10000,max=20000,p=0.2,weight=1,ecn=yes");
        let capable = Arrival {
            ecn: Ecn::Ect0,
            ..arrival(0, 15_000, None)
        };
        let mut verdicts: Vec<Verdict> = (0..11).map(|_| red.admit(&capable)).collect();
        assert!(!verdicts.contains(&Verdict::Refuse));
        assert!(verdicts.contains(&Verdict::Mark), "p_b is a tenth");
        // The tenth without one is marked for certain, and marked all the same.
        red.accepted = 10;
        assert_eq!((red.chance(), red.admit(&capable)), (1.0, Verdict::Mark));
        verdicts = (0..11)
            .map(|_| red.admit(&arrival(0, 15_000, None)))
            .collect();
        assert!(verdicts.contains(&Verdict::Refuse) && !verdicts.contains(&Verdict::Mark));
        // Above max there is no early drop any more.
        let above = Arrival {
            waiting_bytes: 20_000,
            ..capable
        };
        assert_eq!(red.admit(&above), Verdict::Refuse);
    }
}
