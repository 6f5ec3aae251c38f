"""Simple predictors of a rate from its own past: those that fail in Fig. 4, and the trivial ones beside them.

Each takes a series and returns a prediction for every value of it, not-a-number where there is too
little past. Predictors are fitted to the first half; errors are judged on the second.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verus.papers.reproduction import Array


def last(series: Array, *, steps: int = 1) -> Array:
    """The value that many steps before."""
    return np.concatenate([np.full(steps, np.nan), series[:-steps]])


def average(series: Array) -> Array:
    """The mean of the first half, always."""
    return np.full(len(series), series[: len(series) // 2].mean())


def linear(series: Array, *, windows: int) -> Array:
    """A straight line through the last `windows` values (least squares), one step further; never below 0.

    Example:
        >>> linear(np.array([1.0, 2.0, 3.0, 4.0, 9.0]), windows=3).round(6).tolist()
        [nan, nan, nan, 4.0, 5.0]
    """
    past = np.lib.stride_tricks.sliding_window_view(series, windows)[:-1]
    step = np.arange(windows) - (windows - 1) / 2
    slope = past @ step / (step @ step)
    ahead = past.mean(axis=1) + slope * (windows + 1) / 2
    return np.concatenate([np.full(windows, np.nan), np.maximum(ahead, 0.0)])


def autoregressive(series: Array, *, order: int, steps: int) -> Array:
    """The best linear combination of `order` values for the one `steps` after the latest of them; never below 0.

    The weights are those of least error in the first half.
    """
    past = np.lib.stride_tricks.sliding_window_view(series, order)[:-steps]
    regressors = np.column_stack([past, np.ones(len(past))])
    target = series[order + steps - 1 :]
    fitted = len(series) // 2 - (order + steps - 1)
    # The normal equations: a system as small as the order, whatever the length of the series.
    begun = regressors[:fitted]
    weights, *_ = np.linalg.lstsq(begun.T @ begun, begun.T @ target[:fitted], rcond=None)
    return np.concatenate([np.full(order + steps - 1, np.nan), np.maximum(regressors @ weights, 0.0)])


def error(series: Array, predicted: Array) -> Mapping[str, float]:
    """Root mean square error over the second half, and the same over the standard deviation there."""
    second_half = slice(len(series) // 2, None)
    rmse = float(np.sqrt(np.mean((series[second_half] - predicted[second_half]) ** 2)))
    return {"rmse": rmse, "relative": rmse / float(series[second_half].std())}
