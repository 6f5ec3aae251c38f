"""The error of a mean over seeds: the 95 % confidence interval of Student's t."""

from __future__ import annotations

from collections.abc import Sequence


def interval_note(over: str = "seeds") -> str:
    """The note under every table that has numbers with an interval.

    Args:
        over: The set that the means are over, `seeds` or `stretches`.
    """
    return f"± is half of the 95 % confidence interval of the mean over the {over} (Student's t)."


#: The quantile at the upper end of a 95 % interval: 2.5 % of the distribution are beyond each end.
_UPPER_END = 0.975


def half_width(values: Sequence[float]) -> float | None:
    """Half of the confidence interval of the mean of these values: t(n - 1) · s / √n.

    They are assumed independent and normally distributed. None for fewer than two values.

    Example:
        >>> round(half_width([1.0, 2.0, 3.0]), 2), half_width([1.0])
        (2.48, None)
    """
    if len(values) < 2:
        return None
    # Imported here, as most tables have one seed; `scipy.special` alone, as `scipy.stats` takes a
    # second to load.
    import numpy as np
    from scipy.special import stdtrit

    quantile = stdtrit(len(values) - 1, _UPPER_END)
    return float(quantile * np.std(values, ddof=1) / np.sqrt(len(values)))
