//! The receiver's belief of the link's rate: a probability for each of 256 rates.
//!
//! Between ticks the rate wanders as Brownian motion does. A rate of zero, an outage, is sticky: it
//! is left at random, once a second on average. Each observed tick multiplies the belief by the
//! likelihood of what arrived, as a Poisson process of each rate would have it (Sprout §3.1 to 3.3).
//!
//! As in the authors' code, the probability that leaves an outage is a share of a whole bell, of
//! which only the upper half exists. So an outage loses nearly half its weight in each tick before
//! the belief is scaled to 1 again. Otherwise rates of some packets a tick would never be forecast
//! again after a fall that low: of six ticks to come, one in twenty would end in an outage.

use super::Config;
use super::TICK;

/// The number of rates in the belief (Sprout §3.1).
pub const BINS: usize = 256;

/// The motion of one tick is cut off beyond this many standard deviations.
const REACH: f64 = 5.0;
/// Less than this is nothing: spares the processor numbers too small for its fast path.
const NEGLIGIBLE: f64 = 1e-30;

/// A probability for each bin.
pub type Bins = [f64; BINS];

/// Transitions between rates and the likelihoods of arrivals, computed once for a configuration.
#[derive(Clone, Debug)]
pub struct Motion {
    /// The representative rate of each bin, packets in a tick; the first is an outage.
    means: Bins,
    /// The distribution of one tick's change of rate, by bins; sums to 1.
    kernel: Vec<f64>,
    /// The distribution after one tick of an outage; sums to less than 1.
    escape: Bins,
    /// The likelihood of each bin by number of arrivals, the greatest scaled to 1.
    likelihood: Vec<Bins>,
}

impl Motion {
    /// The motion of a checked configuration.
    pub fn new(config: &Config) -> Self {
        let tick = TICK.as_secs_f64();
        let width = config.max_rate / BINS as f64;
        let mut means = [0.0; BINS];
        for (bin, mean) in means.iter_mut().enumerate().skip(1) {
            *mean = (bin as f64 + 0.5) * width * tick;
        }
        let deviation = config.volatility * tick.sqrt() / width;
        let reach = ((REACH * deviation).ceil() as usize).clamp(1, BINS);
        let mut kernel: Vec<f64> = (0..=2 * reach)
            .map(|at| {
                let bins = at as f64 - reach as f64;
                let share = normal((bins + 0.5) / deviation) - normal((bins - 0.5) / deviation);
                share.max(0.0)
            })
            .collect();
        scale_to_one(&mut kernel);
        let stay = libm::exp(-config.escape_rate * tick);
        let mut escape = [0.0; BINS];
        for (bin, share) in escape.iter_mut().enumerate().skip(1) {
            let bin = bin as f64;
            let upward = normal((bin + 1.0) / deviation) - normal(bin / deviation);
            *share = (1.0 - stay) * upward.max(0.0);
        }
        escape[0] = stay * normal(1.0 / deviation);
        let likelihood = (0..=config.max_arrivals_per_tick)
            .map(|count| likelihood(&means, count))
            .collect();
        Motion {
            means,
            kernel,
            escape,
            likelihood,
        }
    }

    /// The rate of each bin, packets in a tick.
    pub fn means(&self) -> &Bins {
        &self.means
    }

    /// The most arrivals that a tick counts.
    pub fn most_arrivals(&self) -> usize {
        self.likelihood.len() - 1
    }

    /// `bins` after one tick. Weight that would leave the range at either end stays in the bin at
    /// that end. An outage loses weight, so that the sum may be less than that of `bins`.
    pub fn step(&self, bins: &Bins) -> Bins {
        let reach = self.kernel.len() / 2;
        // Room for what leaves the range, so that the inner loop has no ends to mind.
        let mut wide = [0.0; 3 * BINS];
        for (bin, &share) in bins.iter().enumerate().skip(1) {
            if share < NEGLIGIBLE {
                continue;
            }
            let from = BINS + bin - reach;
            for (to, weight) in wide[from..from + self.kernel.len()]
                .iter_mut()
                .zip(&self.kernel)
            {
                *to += share * weight;
            }
        }
        let mut next = [0.0; BINS];
        next.copy_from_slice(&wide[BINS..2 * BINS]);
        next[0] += wide[..BINS].iter().sum::<f64>();
        next[BINS - 1] += wide[2 * BINS..].iter().sum::<f64>();
        if bins[0] >= NEGLIGIBLE {
            for (to, weight) in next.iter_mut().zip(&self.escape) {
                *to += bins[0] * weight;
            }
        }
        next
    }
}

/// The likelihood of `count` arrivals for each mean, the greatest scaled to 1.
fn likelihood(means: &Bins, count: usize) -> Bins {
    let count = count as f64;
    let log = |mean: f64| {
        if mean > 0.0 {
            count * libm::log(mean) - mean
        } else if count > 0.0 {
            f64::NEG_INFINITY
        } else {
            0.0
        }
    };
    let peak = means.iter().map(|&mean| log(mean)).fold(f64::MIN, f64::max);
    means.map(|mean| libm::exp(log(mean) - peak))
}

/// The standard normal distribution function, to 1e-7 (Abramowitz and Stegun 26.2.17).
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = libm::exp(-x * x / 2.0) / (2.0 * std::f64::consts::PI).sqrt() * series;
    if x < 0.0 { tail } else { 1.0 - tail }
}

fn scale_to_one(shares: &mut [f64]) {
    let sum: f64 = shares.iter().sum();
    for share in shares {
        *share /= sum;
    }
}

/// A belief of the rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    bins: Bins,
}

impl Default for Belief {
    /// Every rate is as likely as any other.
    fn default() -> Self {
        Belief {
            bins: [1.0 / BINS as f64; BINS],
        }
    }
}

impl Belief {
    /// The probabilities; they sum to 1.
    pub fn bins(&self) -> &Bins {
        &self.bins
    }

    /// The mean rate, in the unit of `means`.
    pub fn mean(&self, means: &Bins) -> f64 {
        self.bins
            .iter()
            .zip(means)
            .map(|(share, mean)| share * mean)
            .sum()
    }

    /// A tick passes.
    pub fn evolve(&mut self, motion: &Motion) {
        self.bins = motion.step(&self.bins);
        scale_to_one(&mut self.bins);
    }

    /// In the tick that has passed, `arrivals` packets arrived, and none were kept back by the
    /// sender.
    pub fn observe(&mut self, motion: &Motion, arrivals: usize) {
        let likelihood = &motion.likelihood[arrivals.min(motion.most_arrivals())];
        for (share, weight) in self.bins.iter_mut().zip(likelihood) {
            *share *= weight;
        }
        let sum: f64 = self.bins.iter().sum();
        if sum < f64::MIN_POSITIVE * BINS as f64 {
            // The belief excluded these arrivals: begin again with their likelihood.
            self.bins = *likelihood;
        }
        scale_to_one(&mut self.bins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn motion() -> Motion {
        Motion::new(&Config::default())
    }

    /// Packets in a tick: the mean, after so many ticks with so many arrivals each.
    fn after(belief: &mut Belief, motion: &Motion, ticks: usize, arrivals: usize) -> f64 {
        for _ in 0..ticks {
            belief.evolve(motion);
            belief.observe(motion, arrivals);
        }
        belief.mean(motion.means())
    }

    #[test]
    fn the_normal_distribution_is_known() {
        for (x, known) in [
            (0.0, 0.5),
            (1.0, 0.841_344_7),
            (-2.0, 0.022_750_1),
            (5.0, 1.0),
        ] {
            assert!((normal(x) - known).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn the_belief_follows_what_arrives() {
        let motion = motion();
        let mut belief = Belief::default();
        assert!((after(&mut belief, &motion, 100, 4) - 4.0).abs() < 1.0);
        assert!((after(&mut belief, &motion, 100, 12) - 12.0).abs() < 1.5);
    }

    #[test]
    fn an_outage_is_believed_within_a_few_ticks_and_left_as_fast() {
        let motion = motion();
        let mut belief = Belief::default();
        after(&mut belief, &motion, 100, 8);
        assert!(after(&mut belief, &motion, 10, 0) < 1.0);
        after(&mut belief, &motion, 200, 0);
        assert!(belief.bins()[0] > 0.8, "an outage: {}", belief.bins()[0]);
        assert!(after(&mut belief, &motion, 25, 8) > 6.0);
    }

    #[test]
    fn unobserved_ticks_widen_the_belief() {
        let motion = motion();
        let spread = |belief: &Belief| {
            let mean = belief.mean(motion.means());
            let square = |mean: f64| mean * mean;
            let shares = belief.bins().iter().zip(motion.means());
            shares
                .map(|(share, at)| share * square(at - mean))
                .sum::<f64>()
        };
        let mut belief = Belief::default();
        let mean = after(&mut belief, &motion, 100, 10);
        let before = spread(&belief);
        for _ in 0..5 {
            belief.evolve(&motion);
        }
        assert!(spread(&belief) > 1.5 * before);
        assert!((belief.mean(motion.means()) - mean).abs() < 0.1);
    }

    #[test]
    fn an_outage_is_left_once_a_second_and_weighs_less_each_tick() {
        let motion = motion();
        let mut bins = [0.0; BINS];
        bins[0] = 1.0;
        let next = motion.step(&bins);
        let upward: f64 = next[1..].iter().sum();
        // Half of the bell's weight lies below zero; the first bin has a little of the other half.
        assert!(
            (next[0] / 0.555 - libm::exp(-0.02)).abs() < 0.01,
            "{}",
            next[0]
        );
        assert!(
            (upward / 0.445 - (1.0 - libm::exp(-0.02))).abs() < 0.01,
            "{upward}"
        );
    }

    proptest! {
        #[test]
        fn a_belief_sums_to_one_whatever_arrives(
            ticks in prop::collection::vec(prop::option::of(0_usize..100), 1..200),
            max_rate in 10.0..50_000.0_f64,
            max_arrivals_per_tick in 1_usize..=250,
        ) {
            let motion = Motion::new(&Config { max_rate, max_arrivals_per_tick, ..Config::default() });
            let mut belief = Belief::default();
            for tick in ticks {
                belief.evolve(&motion);
                if let Some(arrivals) = tick {
                    belief.observe(&motion, arrivals);
                }
                let sum: f64 = belief.bins().iter().sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
                prop_assert!(belief.bins().iter().all(|&share| (0.0..=1.0).contains(&share)));
            }
        }

        #[test]
        fn more_arrivals_never_lower_the_belief(
            ticks in prop::collection::vec(0_usize..30, 1..50),
            arrivals in 0_usize..30,
        ) {
            let motion = motion();
            let mut belief = Belief::default();
            for tick in ticks {
                belief.evolve(&motion);
                belief.observe(&motion, tick);
            }
            let (mut fewer, mut more) = (belief.clone(), belief);
            fewer.observe(&motion, arrivals);
            more.observe(&motion, arrivals + 1);
            prop_assert!(fewer.mean(motion.means()) <= more.mean(motion.means()) + 1e-9);
        }
    }
}
