"""A race: in which order a candidate runs its rows, and after which of them it is hopeless.

All candidates run their rows in one order, so that any two are compared on rows that both ran. Another path tells more
than another seed, so each path comes once before any comes again. After the first few rows, and each time that their
number doubled, a candidate is stopped that is worse than another on the rows that both ran. With one aim Optuna's
`WilcoxonPruner` says so, by a signed-rank test of the differences row by row. With several aims another must dominate
it with a margin: the same test must find it worse in each aim.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

#: Values of a sender: a row for each row of the search, a column for each aim, more being better; NaN if not observed.
Values = npt.NDArray[np.float64]

#: The first look at a candidate is after this share of its rows, and no fewer than `_LEAST_ROWS`.
_FIRST_SHARE = 1 / 32
_LEAST_ROWS = 3

#: The probability of stopping a candidate that is as good as the best, for each look.
_P = 0.05


def spread(count: int) -> list[int]:
    """The numbers below `count` in an order whose beginnings are spread evenly: by their bits, from the last.

    Rows are multiplied out with seeds innermost, so rows far from each other differ in more than the seed.

    Example:
        >>> spread(6)
        [0, 4, 2, 1, 5, 3]
    """
    bits = max(count - 1, 1).bit_length()
    return sorted(range(count), key=lambda number: f"{number:0{bits}b}"[::-1])


def row_order(paths: Sequence[Hashable]) -> list[int]:
    """The rows in the order in which candidates run them: each path once before any again, and paths spread.

    Seeds rotate along the paths, since one seed may be kinder than another.

    Args:
        paths: Of each row what does not depend on its seed; rows of one path differ in their seed.

    Example:
        >>> row_order(["lte", "lte", "3g", "3g"])
        [0, 3, 1, 2]
    """
    numbers: dict[Hashable, list[int]] = {}
    for number, path in enumerate(paths):
        numbers.setdefault(path, []).append(number)
    own = [list(numbers.values())[at] for at in spread(len(numbers))]
    turned = [rows[at % len(rows) :] + rows[: at % len(rows)] for at, rows in enumerate(own)]
    return [row for layer in itertools.zip_longest(*turned) for row in layer if row is not None]


def looks(count: int, paths: int) -> list[int]:
    """After how many of so many rows a candidate is looked at; the last is all of them.

    Args:
        count: Of rows.
        paths: Of paths among them: with enough seeds, the first look is after each path equally often.

    Example:
        >>> looks(100, 100), looks(100, 10), looks(8, 8), looks(2, 1)
        ([4, 8, 16, 32, 64, 100], [10, 20, 40, 80, 100], [3, 6, 8], [2])
    """
    first = math.ceil(count * _FIRST_SHARE)
    if paths <= count / 4:
        first = -(-first // paths) * paths
    first = max(_LEAST_ROWS, first)
    counts = []
    while first < count:
        counts.append(first)
        first *= 2
    return [*counts, count]


def repeats(paths: Sequence[Hashable], senders: Sequence[Values]) -> frozenset[int]:
    """The rows on which nothing depends on the seed: all these senders came to the same on an earlier row of the path.

    They tell nothing that the earlier row does not, so no interval may count them.
    """
    first: dict[tuple[Hashable, bytes], int] = {}
    repeated = set()
    for number, path in enumerate(paths):
        values = np.stack([values[number] for values in senders])
        if first.setdefault((path, values.tobytes()), number) != number:
            repeated.add(number)
    return frozenset(repeated)


def differences(values: Values, other: Values, rows: Sequence[int], aim: int) -> npt.NDArray[np.float64]:
    """By how much a sender is better than another in an aim, on each of these rows that both observed."""
    better_by = values[rows, aim] - other[rows, aim]
    kept: npt.NDArray[np.float64] = better_by[~np.isnan(better_by)]
    return kept


def estimate(values: Values, other: Values, rows: Sequence[int]) -> list[float]:
    """The means over all rows of a sender that ran only some: those of another, and by how much it differs there.

    Args:
        values: Of the sender.
        other: Of one that ran all rows.
        rows: Rows that both ran.
    """
    means = np.nanmean(other, axis=0)
    better_by = [differences(values, other, rows, aim) for aim in range(values.shape[1])]
    return [float(mean + (diff.mean() if len(diff) else 0.0)) for mean, diff in zip(means, better_by, strict=True)]


def is_hopeless(values: Values, others: Sequence[Values], rows: Sequence[int]) -> bool:
    """Whether a candidate need not run more rows.

    Args:
        values: Of the candidate.
        others: Those of candidates that ran these rows, too, and meet all bounds as far as that is known.
        rows: Rows that the candidate ran, without repeated ones.
    """
    if not others or not len(rows):
        return False
    if values.shape[1] == 1:
        return _is_pruned(values, max(others, key=lambda other: float(np.nanmean(other[rows]))), rows)
    return any(_is_dominated(values, other, rows) for other in others)


def _is_dominated(values: Values, other: Values, rows: Sequence[int]) -> bool:
    """Whether a sender is worse than another in each aim, by a signed-rank test; or the same in all but one."""
    better_by = [differences(values, other, rows, aim) for aim in range(values.shape[1])]
    if any(diff.size and diff.mean() > 0 for diff in better_by):
        return False
    differing = [diff for diff in better_by if diff.any()]
    return bool(differing) and all(_is_worse(diff) for diff in differing)


def _is_worse(diff: npt.NDArray[np.float64]) -> bool:
    """Whether differences are below 0 by the one-sided signed-rank test of Wilcoxon (1945)."""
    from scipy.stats import wilcoxon  # here: it takes a second to load

    return len(diff) >= _LEAST_ROWS and bool(wilcoxon(diff, alternative="less", zero_method="zsplit").pvalue < _P)


def _is_pruned(values: Values, best: Values, rows: Sequence[int]) -> bool:
    """Whether Optuna's pruner stops a candidate beside the best one."""
    import optuna

    shared = [row for row in rows if not math.isnan(values[row, 0] + best[row, 0])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruner = optuna.pruners.WilcoxonPruner(p_threshold=_P, n_startup_steps=_LEAST_ROWS)
        study = optuna.create_study(direction="maximize")
        steps = {row: float(best[row, 0]) for row in shared}
        study.add_trial(optuna.trial.create_trial(value=float(best[shared, 0].mean()), intermediate_values=steps))
        candidate = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING, intermediate_values={row: float(values[row, 0]) for row in shared}
        )
        return pruner.prune(study, candidate)


def is_dominated_by(values: Sequence[float], other: Sequence[float]) -> bool:
    """Whether means are no better than another's in any aim, and worse in one.

    Example:
        >>> is_dominated_by([1, 2], [1, 3]), is_dominated_by([1, 2], [1, 2]), is_dominated_by([2, 1], [1, 2])
        (True, False, False)
    """
    pairs = list(zip(values, other, strict=True))
    return all(one <= two for one, two in pairs) and any(one < two for one, two in pairs)
