//! Jain's fairness index.

/// Jain's index of `shares`: (Σx)² / (n·Σx²), 1 when all are equal and 1/n when one flow has all.
/// `None` when there are no shares or all are zero (Jain, Chiu, Hawe, DEC-TR-301, 1984).
pub fn jain(shares: &[f64]) -> Option<f64> {
    of(shares.iter().copied())
}

/// [`jain`] of anything that yields shares.
pub(crate) fn of(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    let index = sum * sum / (count * squares);
    // Rounding may take equal shares a hair above 1.
    index.is_finite().then(|| index.min(1.0))
}

/// The mean of the indices of successive windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Average {
    sum: f64,
    windows: u64,
}

impl Average {
    /// Counts one window; one without an index is skipped.
    pub(crate) fn add(&mut self, index: Option<f64>) {
        if let Some(index) = index {
            self.sum += index;
            self.windows += 1;
        }
    }

    /// The mean, `None` without a single window.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.sum / self.windows as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair_and_one_taker_is_one_nth() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        // (1 + 2 + 3)² / (3 · (1 + 4 + 9)) = 36 / 42
        assert_eq!(jain(&[1.0, 2.0, 3.0]), Some(36.0 / 42.0));
    }

    #[test]
    fn nothing_shared_has_no_index() {
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
