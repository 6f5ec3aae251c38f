//! The guided random walk (§3.2, §5.1): the delay is given, the next window is drawn.

use std::sync::Arc;

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

use verus_core::random;
use verus_core::units::Duration;

use super::file::Model;
use super::matrix::{Choice, Matrix};
use super::sampler::whole_millis;

/// The rule by which a window is drawn from a subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WalkKind {
    /// The paper's: the element whose probability is nearest to a number drawn evenly between the
    /// smallest and the largest of the subset (§3.2). Of several at the same distance, and equal
    /// probabilities are the rule where data are few, each is as likely as the others.
    #[default]
    Paper,
    /// Each element as often as its probability says.
    Sampled,
}

/// A walk in progress.
#[derive(Debug)]
pub struct Walk {
    model: Arc<Model>,
    kind: WalkKind,
    random: ChaCha8Rng,
    /// The delay of the present state, by index.
    delay: Option<u32>,
    steps: u64,
    lowered: u64,
    off_row: u64,
}

impl Walk {
    /// A walk that has not begun.
    pub fn new(model: Arc<Model>, kind: WalkKind, seed: u64) -> Self {
        Walk {
            model,
            kind,
            random: random::stream(seed, "model", 0),
            delay: None,
            steps: 0,
            lowered: 0,
            off_row: 0,
        }
    }

    /// One step: from the present delay and the `sent` packets of the epoch that ended, to `delay`
    /// and the packets returned. The first step stays at its delay.
    ///
    /// Off the grid, windows and shorter delays count as the nearest on it. At a longer delay than
    /// any in training, nothing is sent. If the subset is empty, the origin's w is lowered row by
    /// row until a subset has more than one element (§5.1); failing that, the first with one
    /// element counts. If there is no such subset either, a case that the paper leaves open, the
    /// draw is from all windows ever sent at this delay ([`Matrix::column`]).
    #[inline]
    pub fn step(&mut self, delay: Duration, sent: u32) -> u32 {
        self.steps += 1;
        let matrix = self.model.matrix();
        let grid = matrix.grid();
        let to = grid.delay_index(whole_millis(delay));
        let from = self.delay.replace(to).unwrap_or(to);
        if whole_millis(delay) > grid.delay_max_ms {
            self.off_row += 1;
            return 0;
        }
        let window = grid.window_index(sent);
        let choices = match look_up(matrix, from, window, to) {
            Lookup::Subset(choices) => choices,
            Lookup::Lowered(choices) => {
                self.lowered += 1;
                choices
            }
            Lookup::Nothing => {
                self.off_row += 1;
                matrix.column(to)
            }
        };
        let drawn = draw(choices, self.kind, &mut self.random);
        grid.packets_min + drawn.unwrap_or(0)
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of steps with the origin's w lowered.
    pub fn lowered(&self) -> u64 {
        self.lowered
    }

    /// The number of steps without a row.
    pub fn off_row(&self) -> u64 {
        self.off_row
    }
}

/// Bits behind the point of the number that is drawn between two counts.
const FRACTION_BITS: u32 = 31;

/// The source of a step's choices.
enum Lookup<'a> {
    /// In the requested subset.
    Subset(&'a [Choice]),
    /// In the subset of a smaller window.
    Lowered(&'a [Choice]),
    /// In no subset.
    Nothing,
}

#[inline]
fn look_up(matrix: &Matrix, from: u32, window: u32, to: u32) -> Lookup<'_> {
    let mut only = Lookup::Nothing;
    for (at, subset) in matrix.subsets_down(from, window, to) {
        if at == window {
            return Lookup::Subset(subset);
        }
        if subset.len() > 1 {
            return Lookup::Lowered(subset);
        }
        if matches!(only, Lookup::Nothing) {
            only = Lookup::Lowered(subset);
        }
    }
    only
}

/// A window of the subset, `None` if that is empty. The probabilities of a subset share their
/// row's sum, so their counts will do.
#[inline]
fn draw(choices: &[Choice], kind: WalkKind, random: &mut impl Rng) -> Option<u32> {
    if let [choice] = choices {
        return Some(choice.window);
    }
    match kind {
        WalkKind::Paper => {
            let (mut least, mut most) = (u32::MAX, 0);
            for choice in choices {
                least = least.min(choice.count);
                most = most.max(choice.count);
            }
            // Fixed point, and passes without branches: random draws cannot be predicted.
            let span = u64::from(most.saturating_sub(least)) << FRACTION_BITS;
            let number = (u64::from(least) << FRACTION_BITS) + random.random_range(0..=span);
            let distance =
                |choice: &Choice| (u64::from(choice.count) << FRACTION_BITS).abs_diff(number);
            let nearest = choices.iter().map(distance).fold(u64::MAX, u64::min);
            let ties: u32 = choices
                .iter()
                .map(|choice| u32::from(distance(choice) == nearest))
                .sum();
            let mut which = match ties {
                0 => return None,
                1 => 0,
                _ => random.random_range(0..ties),
            };
            let mut window = 0;
            for choice in choices {
                let tied = distance(choice) == nearest;
                window = if tied && which == 0 {
                    choice.window
                } else {
                    window
                };
                which = which.wrapping_sub(u32::from(tied));
            }
            Some(window)
        }
        WalkKind::Sampled => {
            let sum: u64 = choices.iter().map(|choice| u64::from(choice.count)).sum();
            let mut rank = random.random_range(0..sum.max(1));
            choices
                .iter()
                .find(|choice| {
                    let count = u64::from(choice.count);
                    let reached = rank < count;
                    rank = rank.saturating_sub(count);
                    reached
                })
                .map(|choice| choice.window)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::About;
    use crate::matrix::{Grid, Transition};

    fn model(transitions: &[(u32, u32, u32, u32, u32)]) -> Arc<Model> {
        let grid = Grid {
            delay_min_ms: 20,
            delay_max_ms: 59,
            step_ms: 10,
            packets_min: 0,
            packets_max: 5,
        };
        let mut transitions: Vec<Transition> = transitions
            .iter()
            .map(
                |&(from_delay, from_window, to_delay, to_window, count)| Transition {
                    from_delay,
                    to_delay,
                    from_window,
                    to_window,
                    count,
                },
            )
            .collect();
        transitions.sort_unstable();
        Arc::new(Model::new(
            About::default(),
            Matrix::new(grid, &transitions),
        ))
    }

    fn shares(model: &Arc<Model>, kind: WalkKind, from: u64, sent: u32, to: u64) -> [u32; 6] {
        let mut walk = Walk::new(Arc::clone(model), kind, 1);
        let mut shares = [0; 6];
        for _ in 0..10_000 {
            walk.step(Duration::from_millis(from), 0);
            shares[walk.step(Duration::from_millis(to), sent) as usize] += 1;
        }
        shares.map(|share| (share + 50) / 100) // percent
    }

    fn near(shares: [u32; 6], wanted: [u32; 6]) {
        let close = shares.iter().zip(wanted).all(|(&a, b)| a.abs_diff(b) <= 2);
        assert!(close, "{shares:?} is not {wanted:?}");
    }

    #[test]
    fn the_papers_walk_takes_the_nearest_probability_and_the_other_draws_by_it() {
        // From (20, 2) to 30 ms: counts 10, 2 and 4 of one row of 20.
        let model = model(&[
            (0, 2, 1, 1, 10),
            (0, 2, 1, 3, 2),
            (0, 2, 1, 4, 4),
            (0, 2, 2, 5, 4),
        ]);
        // Evenly in [2, 10]: to 3 the element 2 is nearest, to 7 the element 4, beyond it 10.
        near(
            shares(&model, WalkKind::Paper, 20, 2, 30),
            [0, 38, 0, 13, 50, 0],
        );
        near(
            shares(&model, WalkKind::Sampled, 20, 2, 30),
            [0, 63, 0, 13, 25, 0],
        );
    }

    #[test]
    fn ties_share_evenly() {
        let model = model(&[
            (0, 2, 1, 1, 3),
            (0, 2, 1, 3, 3),
            (0, 2, 1, 4, 3),
            (0, 2, 1, 5, 3),
        ]);
        near(
            shares(&model, WalkKind::Paper, 20, 2, 30),
            [0, 25, 0, 25, 25, 25],
        );
    }

    #[test]
    fn an_empty_subset_lowers_the_origin_until_there_is_more_than_one_value() {
        let model = model(&[
            (0, 3, 1, 5, 1), // one value: passed over
            (0, 1, 1, 1, 1),
            (0, 1, 1, 2, 1), // two
            (0, 0, 1, 0, 1),
            (0, 0, 1, 4, 1), // further down
            (1, 4, 2, 3, 9), // one value, and nothing else that leads there
            (2, 0, 3, 2, 5),
        ]);
        near(
            shares(&model, WalkKind::Paper, 20, 4, 30),
            [0, 50, 50, 0, 0, 0],
        );
        near(
            shares(&model, WalkKind::Paper, 20, 3, 30),
            [0, 0, 0, 0, 0, 100],
        );
        near(
            shares(&model, WalkKind::Paper, 30, 5, 40),
            [0, 0, 0, 100, 0, 0],
        );
        // No transition leads from 30 ms and w ≤ 3 to 40 ms: the windows sent at 40 ms decide.
        near(
            shares(&model, WalkKind::Paper, 30, 3, 40),
            [0, 0, 0, 100, 0, 0],
        );
        // Windows off the grid are its ends, and so are delays below it.
        near(
            shares(&model, WalkKind::Paper, 3, 99, 30),
            [0, 50, 50, 0, 0, 0],
        );
    }

    #[test]
    fn at_delays_longer_than_any_trained_on_nothing_is_sent() {
        let model = model(&[(3, 0, 3, 4, 7), (3, 4, 3, 2, 7)]);
        let mut walk = Walk::new(model, WalkKind::Paper, 1);
        let at = Duration::from_millis;
        assert_eq!(walk.step(at(59), 0), 4);
        assert_eq!(walk.step(at(60), 4), 0);
        assert_eq!(walk.step(at(5000), 0), 0);
        assert_eq!(walk.step(at(59), 4), 2);
    }

    #[test]
    fn the_same_seed_walks_the_same_way() {
        let model = model(&[
            (0, 0, 0, 0, 1),
            (0, 0, 0, 1, 2),
            (0, 1, 0, 0, 3),
            (0, 1, 0, 1, 3),
        ]);
        let path = |seed| {
            let mut walk = Walk::new(Arc::clone(&model), WalkKind::Paper, seed);
            let mut sent = 0;
            (0..200)
                .map(|_| {
                    sent = walk.step(Duration::from_millis(20), sent);
                    sent
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(path(1), path(1));
        assert_ne!(path(1), path(2));
    }

    #[test]
    fn a_matrix_without_elements_sends_nothing() {
        let mut walk = Walk::new(model(&[]), WalkKind::Sampled, 1);
        assert_eq!(walk.step(Duration::from_millis(30), 3), 0);
    }
}
