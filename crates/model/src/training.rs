//! From samples to a matrix (§4): transitions are counted as they come, outliers cut off and
//! delays quantized at the end.

use std::collections::BTreeMap;

use thiserror::Error;

use super::file::{About, Model};
use super::matrix::{Grid, Matrix, Transition};
use super::sampler::Sample;

/// Different transitions that are kept at most, before quantization: half a gigabyte of counts.
const MOST_TRANSITIONS: usize = 1 << 24;

/// Why samples make no model.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrainError {
    /// There is nothing to count.
    #[error("there are no transitions in {0} samples: the runs are too short, or nothing was sent")]
    NoTransitions(u64),
    /// The quantization is none.
    #[error("quantization_ms must be between 1 and 10000, not {0}")]
    Quantization(u32),
    /// The percentile is none.
    #[error("percentile must be above 0 and at most 100, not {0}")]
    Percentile(f64),
    /// The region is too large.
    #[error("the samples span {0}; a coarser quantization or a lower percentile leaves fewer")]
    Region(String),
    /// The samples differ too much to be counted in memory.
    #[error("more than {MOST_TRANSITIONS} different transitions: train on less")]
    TooMany,
}

/// Counts the transitions between samples. Its memory grows with the different transitions, not
/// with the samples, and the order in which runs are added makes no difference.
#[derive(Debug, Default)]
pub struct Trainer {
    /// The number of occurrences of each transition, at 1 ms.
    counts: BTreeMap<u64, u32>,
    /// The number of occurrences of each delay.
    delays: BTreeMap<u32, u64>,
    samples: u64,
}

fn pack(from: Sample, to: Sample) -> u64 {
    let state = |sample: Sample| u64::from(sample.delay_ms) << 12 | u64::from(sample.packets);
    state(from) << 32 | state(to)
}

fn unpack(packed: u64) -> (Sample, Sample) {
    let sample = |state: u64| Sample {
        delay_ms: (state >> 12) as u32 & Sample::MAX_DELAY_MS,
        packets: state as u32 & Sample::MAX_PACKETS,
    };
    (sample(packed >> 32), sample(packed))
}

impl Trainer {
    /// A trainer that has seen nothing.
    pub fn new() -> Self {
        Trainer::default()
    }

    /// Adds consecutive samples of one flow. Nothing leads from one call's to the next one's.
    ///
    /// # Errors
    /// If there is no memory to count so many different transitions.
    pub fn add(&mut self, run: &[Sample]) -> Result<(), TrainError> {
        self.samples += run.len() as u64;
        for sample in run {
            *self.delays.entry(sample.delay_ms).or_default() += 1;
        }
        for pair in run.windows(2) {
            let count = self.counts.entry(pack(pair[0], pair[1])).or_default();
            *count = count.saturating_add(1);
            if self.counts.len() > MOST_TRANSITIONS {
                return Err(TrainError::TooMany);
            }
        }
        Ok(())
    }

    /// Adds all that another one has seen.
    ///
    /// # Errors
    /// If there is no memory to count so many different transitions.
    pub fn include(&mut self, other: &Trainer) -> Result<(), TrainError> {
        self.samples += other.samples;
        for (&delay, count) in &other.delays {
            *self.delays.entry(delay).or_default() += count;
        }
        for (&transition, &more) in &other.counts {
            let count = self.counts.entry(transition).or_default();
            *count = count.saturating_add(more);
            if self.counts.len() > MOST_TRANSITIONS {
                return Err(TrainError::TooMany);
            }
        }
        Ok(())
    }

    /// Samples seen so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The smallest delay that `percentile` percent of the samples do not exceed.
    fn delay_max(&self, percentile: f64) -> Option<u32> {
        let target = (self.samples as f64 * percentile / 100.0).ceil() as u64;
        let mut counted = 0;
        self.delays
            .iter()
            .find(|&(_, count)| {
                counted += count;
                counted >= target.clamp(1, self.samples)
            })
            .map(|(&delay, _)| delay)
    }

    /// The model. It excludes samples beyond the percentile of d, with the transitions to and from
    /// them (§4.2, *truncating*). Delays are counted in steps of `step_ms` from the least one
    /// (*quantizing*). `about` records what only the caller knows.
    ///
    /// # Errors
    /// Names the value out of range, or the deficiency of the samples.
    pub fn finish(&self, step_ms: u32, percentile: f64, about: About) -> Result<Model, TrainError> {
        if !(1..=10_000).contains(&step_ms) {
            return Err(TrainError::Quantization(step_ms));
        }
        if !(percentile > 0.0 && percentile <= 100.0) {
            return Err(TrainError::Percentile(percentile));
        }
        let nothing = TrainError::NoTransitions(self.samples);
        let delay_max_ms = self.delay_max(percentile).ok_or(nothing.clone())?;
        let kept: Vec<(Sample, Sample, u32)> = self
            .counts
            .iter()
            .map(|(&packed, &count)| (unpack(packed), count))
            .filter(|((from, to), _)| from.delay_ms.max(to.delay_ms) <= delay_max_ms)
            .map(|((from, to), count)| (from, to, count))
            .collect();
        let states = || kept.iter().flat_map(|&(from, to, _)| [from, to]);
        let range = |value: fn(Sample) -> u32| {
            let values = states().map(value);
            Some((values.clone().min()?, values.max()?))
        };
        let (delay_min_ms, delay_max_ms) = range(|state| state.delay_ms).ok_or(nothing.clone())?;
        let (_, packets_max) = range(|state| state.packets).ok_or(nothing)?;
        let grid = Grid {
            delay_min_ms,
            delay_max_ms,
            step_ms,
            packets_min: 0, // an epoch can always abstain
            packets_max,
        };
        if let Some(problem) = grid.problem() {
            return Err(TrainError::Region(problem));
        }
        let mut transitions: Vec<Transition> = kept
            .into_iter()
            .map(|(from, to, count)| Transition {
                from_delay: grid.delay_index(from.delay_ms),
                to_delay: grid.delay_index(to.delay_ms),
                from_window: grid.window_index(from.packets),
                to_window: grid.window_index(to.packets),
                count,
            })
            .collect();
        transitions.sort_unstable();
        transitions.dedup_by(|next, kept| {
            let same = Transition {
                count: kept.count,
                ..*next
            } == *kept;
            if same {
                kept.count = kept.count.saturating_add(next.count);
            }
            same
        });
        let counted = transitions.iter().map(|t| u64::from(t.count)).sum();
        let beyond = self.delays.range(delay_max_ms + 1..);
        let about = About {
            percentile,
            samples: self.samples,
            outliers: beyond.map(|(_, count)| count).sum(),
            transitions: counted,
            ..about
        };
        Ok(Model::new(about, Matrix::new(grid, &transitions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(states: &[(u32, u32)]) -> Vec<Sample> {
        states
            .iter()
            .map(|&(delay_ms, packets)| Sample { delay_ms, packets })
            .collect()
    }

    fn model(runs: &[Vec<Sample>], step_ms: u32, percentile: f64) -> Model {
        let mut trainer = Trainer::new();
        for run in runs {
            trainer.add(run).expect("few");
        }
        trainer
            .finish(step_ms, percentile, About::default())
            .expect("there are transitions")
    }

    #[test]
    fn transitions_are_counted_within_a_run_and_never_across() {
        let runs = [
            run(&[(20, 1), (21, 2), (20, 1), (21, 2)]),
            run(&[(29, 0), (20, 1)]),
        ];
        let model = model(&runs, 1, 100.0);
        let transitions: Vec<_> = model
            .matrix()
            .transitions()
            .map(|t| {
                (
                    t.from_delay,
                    t.from_window,
                    t.to_delay,
                    t.to_window,
                    t.count,
                )
            })
            .collect();
        assert_eq!(
            transitions,
            [(0, 1, 1, 2, 2), (1, 2, 0, 1, 1), (9, 0, 0, 1, 1)]
        );
        assert_eq!(model.about().transitions, 4);
        assert_eq!(model.about().samples, 6);
    }

    #[test]
    fn outliers_go_with_the_transitions_to_and_from_them() {
        let mut states = vec![(20, 1); 998];
        states.insert(500, (727, 3));
        states.insert(700, (5000, 9)); // one of a thousand: beyond the 99.9th percentile
        let model = model(&[run(&states)], 1, 99.9);
        let grid = model.matrix().grid();
        assert_eq!(
            (grid.delay_min_ms, grid.delay_max_ms, grid.packets_max),
            (20, 727, 3)
        );
        assert_eq!(model.about().outliers, 1);
        assert_eq!(model.about().transitions, 999 - 2);
    }

    #[test]
    fn quantization_joins_delays_and_keeps_every_count() {
        let states: Vec<(u32, u32)> = (0..500).map(|i| (20 + i * 7 % 50, i % 3)).collect();
        let fine = model(&[run(&states)], 1, 100.0);
        let coarse = model(&[run(&states)], 10, 100.0);
        assert_eq!(coarse.matrix().grid().delays(), 5);
        assert_eq!(coarse.about().transitions, fine.about().transitions);
        assert!(coarse.matrix().len() < fine.matrix().len());
    }

    #[test]
    fn what_several_counted_makes_the_model_that_one_makes_of_it_all() {
        let runs = [
            run(&[(20, 1), (21, 2), (20, 1), (21, 2)]),
            run(&[(29, 0), (20, 1), (21, 2)]),
        ];
        let mut all = Trainer::new();
        for one in &runs {
            let mut trainer = Trainer::new();
            trainer.add(one).expect("few");
            all.include(&trainer).expect("few");
        }
        let together = all.finish(1, 80.0, About::default());
        assert_eq!(together, Ok(model(&runs, 1, 80.0)));
    }

    #[test]
    fn what_makes_no_model_says_why() {
        let mut trainer = Trainer::new();
        let refusal = |trainer: &Trainer, step, percentile| {
            let refused = trainer.finish(step, percentile, About::default());
            refused.expect_err("refused").to_string()
        };
        assert!(refusal(&trainer, 2, 99.9).contains("no transitions in 0 samples"));
        trainer.add(&run(&[(20, 1)])).expect("one");
        assert!(refusal(&trainer, 2, 99.9).contains("no transitions in 1 samples"));
        trainer.add(&run(&[(20, 1), (21, 0)])).expect("two");
        assert!(refusal(&trainer, 0, 99.9).contains("quantization_ms"));
        assert!(refusal(&trainer, 2, 0.0).contains("percentile"));
        assert!(refusal(&trainer, 2, f64::NAN).contains("percentile"));
        trainer
            .add(&run(&[(1_000_000, 4000), (20, 1)]))
            .expect("two");
        assert!(refusal(&trainer, 1, 100.0).contains("coarser quantization"));
    }

    proptest! {
        #[test]
        fn states_survive_packing(d in 0..=Sample::MAX_DELAY_MS, w in 0..=Sample::MAX_PACKETS,
                                  r in 0..=Sample::MAX_DELAY_MS, v in 0..=Sample::MAX_PACKETS) {
            let (from, to) = (Sample { delay_ms: d, packets: w }, Sample { delay_ms: r, packets: v });
            prop_assert_eq!(unpack(pack(from, to)), (from, to));
        }

        #[test]
        fn a_trained_model_survives_its_file(
            states in prop::collection::vec((20u32..200, 0u32..12), 2..300),
            step in 1u32..20,
        ) {
            let model = model(&[run(&states)], step, 100.0);
            prop_assert_eq!(Model::from_bytes(&model.to_bytes()), Ok(model));
        }
    }
}
