//! The number of packets that the link will at least deliver within the next ticks.
//!
//! For each present rate of the link, tables hold the distribution of the packets that arrive
//! within one to eight ticks, with the rate wandering meanwhile. Weighted with the belief they are
//! the distribution of future arrivals, of which the forecast is a low quantile (Sprout §3.3). As
//! in Sprout's own code, the ticks' counts are added as if each were drawn independently.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::belief::{BINS, Belief, Bins, Motion};
use super::{Config, TICKS};

/// Packets delivered within 1, 2, … ticks.
pub type Counts = [u16; TICKS];

/// Tables computed once for a configuration: 1.1 MB at the published limits.
#[derive(Debug)]
pub struct Tables {
    motion: Motion,
    /// For each horizon: by number of packets, for each rate, the probability of at most that
    /// number.
    horizons: [Vec<[f32; BINS]>; TICKS],
}

/// The parameters that determine tables: σ, λ_z and the limits of rate and arrivals, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin([u64; 4]);

impl Origin {
    pub(super) fn of(config: &Config) -> Self {
        Origin([
            config.max_rate.to_bits(),
            config.max_arrivals_per_tick as u64,
            config.volatility.to_bits(),
            config.escape_rate.to_bits(),
        ])
    }
}

impl Tables {
    /// The tables of a checked configuration. All flows of a configuration that live at a time have the same; those of
    /// the published limits are kept.
    pub fn shared(config: &Config) -> Arc<Tables> {
        static PUBLISHED: OnceLock<Arc<Tables>> = OnceLock::new();
        static OTHERS: Mutex<Vec<(Origin, Weak<Tables>)>> = Mutex::new(Vec::new());
        let origin = Origin::of(config);
        if origin == Origin::of(&Config::default()) {
            return Arc::clone(PUBLISHED.get_or_init(|| Arc::new(Tables::new(config))));
        }
        let cached = |others: &[(Origin, Weak<Tables>)]| {
            let entry = others.iter().find(|(other, _)| *other == origin);
            entry.and_then(|(_, tables)| tables.upgrade())
        };
        let others = || OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = cached(&others()) {
            return tables;
        }
        // Outside of the lock: others may want other tables meanwhile.
        let made = Arc::new(Tables::new(config));
        let mut others = others();
        cached(&others).unwrap_or_else(|| {
            others.retain(|(_, tables)| tables.strong_count() > 0);
            others.push((origin, Arc::downgrade(&made)));
            made
        })
    }

    fn new(config: &Config) -> Self {
        let motion = Motion::new(config);
        let max_arrivals = motion.most_arrivals();
        let steps: Vec<Vec<(usize, f64)>> = (0..BINS).map(|bin| row(&motion, bin)).collect();
        // The distributions for the tick in question, and for all ticks up to it, by the initial
        // rate.
        let mut tick: Vec<Vec<f64>> = motion
            .means()
            .iter()
            .map(|&mean| poisson(mean, max_arrivals))
            .collect();
        let mut total: Vec<Vec<f64>> = vec![vec![1.0]; BINS];
        let horizons = std::array::from_fn(|horizon| {
            if horizon > 0 {
                tick = steps
                    .iter()
                    .map(|row| {
                        let mut mixed = vec![0.0; max_arrivals + 1];
                        for &(bin, share) in row {
                            for (to, from) in mixed.iter_mut().zip(&tick[bin]) {
                                *to += share * from;
                            }
                        }
                        mixed
                    })
                    .collect();
            }
            for (total, tick) in total.iter_mut().zip(&tick) {
                // The belief is scaled to 1 after each tick: an outage weighs less than it did.
                let weight: f64 = tick.iter().sum();
                *total = sum_of(total, tick);
                total.iter_mut().for_each(|share| *share /= weight);
            }
            let mut at_most = vec![[0.0; BINS]; total[0].len()];
            for (bin, total) in total.iter().enumerate() {
                let mut sum = 0.0;
                for (to, share) in at_most.iter_mut().zip(total) {
                    sum += share;
                    to[bin] = sum as f32;
                }
            }
            at_most
        });
        Tables { motion, horizons }
    }

    /// The transitions of rates.
    pub fn motion(&self) -> &Motion {
        &self.motion
    }

    /// The number of packets forecast for each number of ticks. Fewer arrive with a probability of
    /// `percentile` %.
    pub fn forecast(&self, belief: &Belief, percentile: f64) -> Counts {
        let percentile = (percentile / 100.0) as f32;
        let shares = belief.bins().map(|share| share as f32);
        let mut count = 0;
        std::array::from_fn(|horizon| {
            let at_most = &self.horizons[horizon];
            // More ticks never bring fewer packets: the search begins where the last ended.
            let rest = &at_most[count..];
            count += rest.partition_point(|column| dot(column, &shares) < percentile);
            count = count.min(at_most.len() - 1);
            count as u16
        })
    }
}

/// The distribution of a rate after one tick.
fn row(motion: &Motion, bin: usize) -> Vec<(usize, f64)> {
    let mut certain: Bins = [0.0; BINS];
    certain[bin] = 1.0;
    let reached = motion.step(&certain);
    let shares = reached.into_iter().enumerate();
    shares.filter(|&(_, share)| share > 0.0).collect()
}

/// The probabilities of 0 to `most` arrivals; more count as `most`.
fn poisson(mean: f64, most: usize) -> Vec<f64> {
    let mut shares = Vec::with_capacity(most + 1);
    let mut rest = 1.0;
    let mut log = -mean;
    for count in 0..most {
        let share = if mean > 0.0 {
            libm::exp(log)
        } else {
            f64::from(u8::from(count == 0))
        };
        shares.push(share);
        rest -= share;
        log += libm::log(mean) - libm::log(count as f64 + 1.0);
    }
    shares.push(f64::max(rest, 0.0));
    shares
}

/// The distribution of the sum of two counts.
fn sum_of(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; a.len() + b.len() - 1];
    for (at, x) in a.iter().enumerate() {
        for (to, y) in sum[at..].iter_mut().zip(b) {
            *to += x * y;
        }
    }
    sum
}

/// The scalar product, in eight sums that a processor can keep side by side.
fn dot(a: &[f32; BINS], b: &[f32; BINS]) -> f32 {
    let mut sums = [0.0_f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn believing(tables: &Tables, ticks: &[usize]) -> Belief {
        let mut belief = Belief::default();
        for &arrivals in ticks {
            belief.evolve(tables.motion());
            belief.observe(tables.motion(), arrivals);
        }
        belief
    }

    #[test]
    fn the_forecast_is_the_least_count_that_the_percentile_allows() {
        let tables = Tables::shared(&Config::default());
        let belief = believing(&tables, &[6; 50]);
        let shares = belief.bins().map(|share| share as f32);
        for (horizon, &count) in tables.forecast(&belief, 5.0).iter().enumerate() {
            let at_most = |count: usize| dot(&tables.horizons[horizon][count], &shares);
            assert!(at_most(usize::from(count)) >= 0.05);
            assert!(count == 0 || at_most(usize::from(count) - 1) < 0.05);
        }
    }

    #[test]
    fn a_forecast_is_cautious_but_not_much_below_what_has_arrived() {
        let tables = Tables::shared(&Config::default());
        let counts = tables.forecast(&believing(&tables, &[10; 100]), 5.0);
        let all = f64::from(counts[TICKS - 1]);
        assert!((35.0..75.0).contains(&all), "{counts:?} of 80");
    }

    #[test]
    fn in_an_outage_nothing_is_promised() {
        let tables = Tables::shared(&Config::default());
        let counts = tables.forecast(&believing(&tables, &[0; 100]), 5.0);
        assert_eq!(counts, [0; TICKS]);
    }

    #[test]
    fn the_more_cautious_percentile_promises_less() {
        let at = |percentile| {
            let tables = Tables::shared(&Config::default());
            tables.forecast(&believing(&tables, &[8; 50]), percentile)[TICKS - 1]
        };
        assert!(at(5.0) < at(25.0) && at(25.0) < at(50.0) && at(50.0) < at(95.0));
        assert!((55..=75).contains(&at(50.0)), "{} of 64", at(50.0));
    }

    #[test]
    fn each_limit_binds_where_it_is_the_lower_one() {
        let within = |max_rate, max_arrivals_per_tick| {
            let tables = Tables::new(&Config {
                max_rate,
                max_arrivals_per_tick,
                ..Config::default()
            });
            let per_tick = max_arrivals_per_tick;
            f64::from(tables.forecast(&believing(&tables, &vec![per_tick; 100]), 5.0)[TICKS - 1])
        };
        let (published, rate, arrivals) =
            (within(1000.0, 30), within(1000.0, 60), within(4000.0, 30));
        assert!((rate / published - 1.0).abs() < 0.05, "{rate} {published}");
        assert!(
            arrivals > 1.2 * published && arrivals <= 240.0,
            "{arrivals}"
        );
    }

    #[test]
    fn flows_of_a_configuration_have_the_same_tables_and_nobody_keeps_them_for_long() {
        let config = Config {
            max_rate: 123.0,
            max_arrivals_per_tick: 3,
            ..Config::default()
        };
        let first = Tables::shared(&config);
        let cautious = Config {
            percentile: 1.0,
            ..config.clone()
        };
        assert!(Arc::ptr_eq(&first, &Tables::shared(&cautious)));
        let other = Config {
            volatility: 201.0,
            ..config.clone()
        };
        assert!(!Arc::ptr_eq(&first, &Tables::shared(&other)));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert!(gone.upgrade().is_none());
    }

    proptest! {
        #[test]
        fn more_ticks_never_promise_fewer_packets(
            ticks in prop::collection::vec(0_usize..40, 0..100),
        ) {
            let tables = Tables::shared(&Config::default());
            let counts = tables.forecast(&believing(&tables, &ticks), 5.0);
            prop_assert!(counts.is_sorted(), "{counts:?}");
        }
    }
}
