//! The state transition matrix P, sparse (Eqs. 1–6).
//!
//! A row is a present state (d_k, w_l), a column a next state (d_r, w_v). The elements are counts
//! of transitions, not probabilities. A row's probabilities are its counts over their sum (Eq. 5),
//! and counts can be compared and added without rounding. Almost all elements are empty, and the
//! walk reads one *subset* at a time: the elements of a row that lead to one d_r. So elements are
//! sorted by (d_k, d_r), then w_l, then w_v.

use serde::{Deserialize, Serialize};

/// The values that d and w take: the region of Eq. 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// d_min, ms.
    pub delay_min_ms: u32,
    /// d_max, ms: the last delay that is not cut off as an outlier.
    pub delay_max_ms: u32,
    /// The quantization of d, ms.
    pub step_ms: u32,
    /// w_min, packets an epoch.
    pub packets_min: u32,
    /// w_max, packets an epoch.
    pub packets_max: u32,
}

impl Grid {
    /// More states than this are refused: the offsets of their rows would not fit anywhere.
    pub const MOST_STATES: u64 = 1 << 24;

    /// The mistake in the grid, if any: an empty range, or too many states.
    pub fn problem(&self) -> Option<String> {
        if self.step_ms == 0 || self.step_ms > 10_000 {
            return Some(format!("a quantization of {} ms", self.step_ms));
        }
        if self.delay_min_ms > self.delay_max_ms {
            return Some(format!(
                "delays from {} to {} ms",
                self.delay_min_ms, self.delay_max_ms
            ));
        }
        if self.packets_min > self.packets_max {
            return Some(format!(
                "windows from {} to {} packets",
                self.packets_min, self.packets_max
            ));
        }
        (self.states() > Grid::MOST_STATES).then(|| {
            format!(
                "{} states, more than the {} there may be",
                self.states(),
                Grid::MOST_STATES
            )
        })
    }

    /// The number of delays: (d_max − d_min + 1) over the quantization, rounded up.
    pub fn delays(&self) -> u64 {
        (u64::from(self.delay_max_ms) - u64::from(self.delay_min_ms) + 1)
            .div_ceil(u64::from(self.step_ms))
    }

    /// The number of windows: w_max − w_min + 1.
    pub fn windows(&self) -> u64 {
        u64::from(self.packets_max) - u64::from(self.packets_min) + 1
    }

    /// m, the number of states and of the matrix's rows and columns (Eq. 6).
    pub fn states(&self) -> u64 {
        self.delays().saturating_mul(self.windows())
    }

    /// The index of a delay. Off the grid, the nearest one on it.
    #[inline]
    pub fn delay_index(&self, millis: u32) -> u32 {
        (millis.clamp(self.delay_min_ms, self.delay_max_ms) - self.delay_min_ms) / self.step_ms
    }

    /// The index of a window. Off the grid, the nearest one on it.
    #[inline]
    pub fn window_index(&self, packets: u32) -> u32 {
        packets.clamp(self.packets_min, self.packets_max) - self.packets_min
    }
}

/// One element that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transition {
    /// k, the index of the present delay.
    pub from_delay: u32,
    /// r, the index of the next delay.
    pub to_delay: u32,
    /// l, the index of the present window.
    pub from_window: u32,
    /// v, the index of the next window.
    pub to_window: u32,
    /// The number of its occurrences.
    pub count: u32,
}

/// One choice of a subset: a next window, and how often it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// v, the index of the next window.
    pub window: u32,
    /// The number of its occurrences.
    pub count: u32,
}

/// The transitions of a model, ready to be walked.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    grid: Grid,
    /// The index of the first pair of each d_k; one more at the end.
    pairs_of: Vec<u32>,
    /// (d_k, d_r) as d_r, ascending for each d_k.
    to_delay: Vec<u32>,
    /// The index of the first subset of each pair; one more at the end.
    subsets_of: Vec<u32>,
    /// w_l of each subset, ascending within a pair.
    from_window: Vec<u32>,
    /// The index of the first choice of each subset; one more at the end.
    choices_of: Vec<u32>,
    choices: Vec<Choice>,
    /// The index of the column of each d_r; one more at the end.
    columns_of: Vec<u32>,
    /// The windows sent at each delay, from any state.
    columns: Vec<Choice>,
}

impl Matrix {
    /// A matrix of `transitions`, which are in ascending order, each element once.
    ///
    /// # Panics
    /// If the transitions are in another order, or lie off the grid. The file and the trainer
    /// refuse such.
    pub fn new(grid: Grid, transitions: &[Transition]) -> Self {
        assert_eq!(grid.problem(), None, "the grid was checked");
        let mut matrix = Matrix {
            grid,
            pairs_of: vec![0; grid.delays() as usize + 1],
            to_delay: Vec::new(),
            subsets_of: Vec::new(),
            from_window: Vec::new(),
            choices_of: Vec::new(),
            choices: Vec::with_capacity(transitions.len()),
            columns_of: vec![0; grid.delays() as usize + 1],
            columns: Vec::new(),
        };
        let mut last: Option<&Transition> = None;
        for next in transitions {
            let pair = (next.from_delay, next.to_delay);
            let subset = (pair, next.from_window);
            let before = last.map(|last| (last.from_delay, last.to_delay));
            let before = before.map(|pair| (pair, last.map_or(0, |last| last.from_window)));
            assert!(
                before < Some(subset)
                    || (before == Some(subset)
                        && last.is_some_and(|last| last.to_window < next.to_window)),
                "transitions come in order, each once"
            );
            if before.map(|(pair, _)| pair) != Some(pair) {
                matrix.to_delay.push(next.to_delay);
                matrix.subsets_of.push(matrix.from_window.len() as u32);
                matrix.pairs_of[next.from_delay as usize + 1] += 1;
            }
            if before != Some(subset) {
                matrix.from_window.push(next.from_window);
                matrix.choices_of.push(matrix.choices.len() as u32);
            }
            matrix.choices.push(Choice {
                window: next.to_window,
                count: next.count,
            });
            last = Some(next);
        }
        matrix.subsets_of.push(matrix.from_window.len() as u32);
        matrix.choices_of.push(matrix.choices.len() as u32);
        accumulate(&mut matrix.pairs_of);
        matrix.set_columns(transitions);
        matrix
    }

    fn set_columns(&mut self, transitions: &[Transition]) {
        let mut sums: Vec<(u32, u32, u64)> = transitions
            .iter()
            .map(|t| (t.to_delay, t.to_window, u64::from(t.count)))
            .collect();
        sums.sort_unstable();
        sums.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            if same {
                kept.2 += next.2;
            }
            same
        });
        self.columns = Vec::with_capacity(sums.len());
        for (delay, window, count) in sums {
            self.columns_of[delay as usize + 1] += 1;
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.columns.push(Choice { window, count });
        }
        accumulate(&mut self.columns_of);
    }

    /// The region of its states.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of elements that are not empty.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// Whether all are.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// The elements that are not empty, in order.
    pub fn transitions(&self) -> impl Iterator<Item = Transition> {
        (0..self.grid.delays() as usize).flat_map(move |from_delay| {
            range(&self.pairs_of, from_delay).flat_map(move |pair| {
                range(&self.subsets_of, pair).flat_map(move |subset| {
                    self.choices[range(&self.choices_of, subset)]
                        .iter()
                        .map(move |choice| Transition {
                            from_delay: from_delay as u32,
                            to_delay: self.to_delay[pair],
                            from_window: self.from_window[subset],
                            to_window: choice.window,
                            count: choice.count,
                        })
                })
            })
        })
    }

    /// The elements by row and column as Fig. 2 orders them, each with its probability (Eq. 5).
    pub fn rows(&self) -> Vec<(u64, u64, f64)> {
        let windows = self.grid.windows();
        let index = |delay: u32, window: u32| u64::from(delay) * windows + u64::from(window);
        let mut elements: Vec<(u64, u64, u32)> = self
            .transitions()
            .map(|t| {
                let row = index(t.from_delay, t.from_window);
                (row, index(t.to_delay, t.to_window), t.count)
            })
            .collect();
        elements.sort_unstable();
        let mut rows = Vec::with_capacity(elements.len());
        for row in elements.chunk_by(|a, b| a.0 == b.0) {
            let sum: f64 = row.iter().map(|&(.., count)| f64::from(count)).sum();
            rows.extend(
                row.iter()
                    .map(|&(row, column, count)| (row, column, f64::from(count) / sum)),
            );
        }
        rows
    }

    /// P_subset (§3.2): the choices that lead from (d_k, w_l) to d_r, none if there are none.
    #[inline]
    pub fn subset(&self, from_delay: u32, from_window: u32, to_delay: u32) -> &[Choice] {
        let Some(pair) = self.pair(from_delay, to_delay) else {
            return &[];
        };
        let subsets = range(&self.subsets_of, pair);
        match self.from_window[subsets.clone()].binary_search(&from_window) {
            Ok(at) => &self.choices[range(&self.choices_of, subsets.start + at)],
            Err(_) => &[],
        }
    }

    /// The same for `from_window` and every smaller window that has any, from the largest down.
    #[inline]
    pub fn subsets_down(
        &self,
        from_delay: u32,
        from_window: u32,
        to_delay: u32,
    ) -> impl Iterator<Item = (u32, &[Choice])> {
        let subsets = match self.pair(from_delay, to_delay) {
            Some(pair) => range(&self.subsets_of, pair),
            None => 0..0,
        };
        let upto = self.from_window[subsets.clone()].partition_point(|&w| w <= from_window);
        (subsets.start..subsets.start + upto).rev().map(|subset| {
            let choices = &self.choices[range(&self.choices_of, subset)];
            (self.from_window[subset], choices)
        })
    }

    /// The windows sent at delay d_r, from any state. A delay that was never sampled uses the
    /// nearest one that was, a longer one first.
    #[cold]
    pub fn column(&self, to_delay: u32) -> &[Choice] {
        let of = |delay: u32| &self.columns[range(&self.columns_of, delay as usize)];
        let delays = self.grid.delays() as u32;
        let above = (to_delay..delays).map(of).find(|column| !column.is_empty());
        above
            .or_else(|| {
                (0..to_delay)
                    .rev()
                    .map(of)
                    .find(|column| !column.is_empty())
            })
            .unwrap_or(&[])
    }

    #[inline]
    fn pair(&self, from_delay: u32, to_delay: u32) -> Option<usize> {
        let pairs = range(&self.pairs_of, from_delay as usize);
        let at = self.to_delay[pairs.clone()].binary_search(&to_delay).ok()?;
        Some(pairs.start + at)
    }
}

#[inline]
fn range(offsets: &[u32], index: usize) -> std::ops::Range<usize> {
    offsets[index] as usize..offsets[index + 1] as usize
}

/// Counts to offsets.
fn accumulate(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dimensions_are_those_of_table_2() {
        for (step_ms, states) in [
            (1, 25_488),
            (2, 12_744),
            (5, 5_112),
            (10, 2_556),
            (20, 1_296),
        ] {
            let grid = Grid {
                delay_min_ms: 20,
                delay_max_ms: 727,
                step_ms,
                packets_min: 0,
                packets_max: 35,
            };
            assert_eq!(grid.states(), states, "{step_ms} ms");
            assert_eq!(u64::from(grid.delay_index(727)) + 1, grid.delays());
            assert_eq!(grid.delay_index(0), 0);
            assert_eq!(grid.delay_index(9999), grid.delay_index(727));
            assert_eq!(grid.window_index(99), 35);
        }
    }

    #[test]
    fn a_grid_that_is_none_is_refused() {
        let good = Grid {
            delay_min_ms: 20,
            delay_max_ms: 40,
            step_ms: 2,
            packets_min: 0,
            packets_max: 3,
        };
        assert_eq!(good.problem(), None);
        for bad in [
            Grid { step_ms: 0, ..good },
            Grid {
                delay_min_ms: 41,
                ..good
            },
            Grid {
                packets_min: 4,
                ..good
            },
            Grid {
                delay_max_ms: u32::MAX,
                packets_max: u32::MAX,
                ..good
            },
        ] {
            assert!(bad.problem().is_some(), "{bad:?}");
        }
    }

    fn grid() -> Grid {
        Grid {
            delay_min_ms: 10,
            delay_max_ms: 15,
            step_ms: 1,
            packets_min: 0,
            packets_max: 4,
        }
    }

    fn transitions() -> impl Strategy<Value = Vec<Transition>> {
        let key = (0u32..6, 0u32..6, 0u32..5, 0u32..5);
        prop::collection::btree_map(key, 1u32..50, 0..60).prop_map(|map| {
            map.into_iter()
                .map(
                    |((from_delay, to_delay, from_window, to_window), count)| Transition {
                        from_delay,
                        to_delay,
                        from_window,
                        to_window,
                        count,
                    },
                )
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_goes_in_is_found_again(transitions in transitions()) {
            let matrix = Matrix::new(grid(), &transitions);
            prop_assert_eq!(matrix.len(), transitions.len());
            prop_assert!(matrix.transitions().eq(transitions.iter().copied()));
            for (k, l, r) in (0..6).flat_map(|k| (0..5).flat_map(move |l| (0..6).map(move |r| (k, l, r)))) {
                let expected = |window: u32| -> Vec<Choice> {
                    transitions
                        .iter()
                        .filter(|t| (t.from_delay, t.from_window, t.to_delay) == (k, window, r))
                        .map(|t| Choice { window: t.to_window, count: t.count })
                        .collect()
                };
                prop_assert_eq!(matrix.subset(k, l, r), expected(l));
                let down: Vec<_> = (0..=l).rev().map(|w| (w, expected(w))).filter(|(_, s)| !s.is_empty()).collect();
                let subsets: Vec<_> = matrix.subsets_down(k, l, r).map(|(w, s)| (w, s.to_vec())).collect();
                prop_assert_eq!(subsets, down);
            }
        }

        #[test]
        fn every_row_sums_to_one(transitions in transitions()) {
            let rows = Matrix::new(grid(), &transitions).rows();
            prop_assert_eq!(rows.len(), transitions.len());
            for row in rows.chunk_by(|a, b| a.0 == b.0) {
                let sum: f64 = row.iter().map(|element| element.2).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "Eq. 5");
            }
        }

        #[test]
        fn a_column_is_empty_only_where_the_matrix_is(transitions in transitions(), delay in 0u32..6) {
            let matrix = Matrix::new(grid(), &transitions);
            prop_assert_eq!(matrix.column(delay).is_empty(), matrix.is_empty());
        }
    }
}
