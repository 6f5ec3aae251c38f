"""When packets of a sender that sends evenly reach their receiver: what Figs. 1, 2 and 4 look at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from verus.lab.runner import Outcome
from verus.papers.reproduction import Array

#: The rate that the section names, of the measurement of Fig. 1 and of the users of Figs. 3 and 4.
SENDER = "constant:rate_mbps=10"

#: The size of a packet: the paper states one only for the same kind of measurement in §5.3.
PACKET_BYTES = 1400

#: The buffer of an operator is not known: the largest queue that the paper states, without early drops.
QUEUE = "droptail:bytes=1125000"

#: Values, each with how often it occurred.
Counts = Sequence[tuple[int, int]]


def received_ms(outcome: Outcome) -> Array:
    """When each packet that arrived did so, in that order, ms."""
    times: Array = outcome["records"]["received_ms"]
    return np.sort(times[np.isfinite(times)])


def bursts(times_ms: Array) -> tuple[Counts, Counts]:
    """Sizes of bursts, packets, and times from one burst to the next, ms.

    A burst is what arrived in one millisecond, the interval in which a scheduler serves a user (TTI).

    Example:
        >>> bursts(np.array([20.0, 20.0, 21.0, 24.0, 24.0]))
        ([(1, 1), (2, 2)], [(1, 1), (3, 1)])
    """
    # A little is added since times carry rounding, and an arrival at 20 ms may read 19.999999.
    begins, sizes = np.unique(np.floor(times_ms + 1e-6).astype(np.int64), return_counts=True)
    return _counts(sizes), _counts(np.diff(begins))


def _counts(values: npt.NDArray[np.int64]) -> Counts:
    distinct, times = np.unique(values, return_counts=True)
    return list(zip(distinct.tolist(), times.tolist(), strict=True))


def values(counts: Counts) -> Array:
    """Every value as often as it occurred.

    Example:
        >>> values([(1, 2), (5, 1)]).tolist()
        [1.0, 1.0, 5.0]
    """
    pairs = np.asarray(counts, dtype=float)
    return np.repeat(pairs[:, 0], pairs[:, 1].astype(int))


def spread(counts: Counts) -> float:
    """The 95th percentile over the median."""
    high, middle = np.percentile(values(counts), [95, 50])
    return float(high / middle)


def variation(counts: Counts) -> float:
    """The coefficient of variation."""
    every = values(counts)
    return float(every.std() / every.mean())
