"""Order of senders by dominance on throughput and delay, without weighing one against the other.

A score (throughput over delay, or a weighted sum) needs an exchange rate between Mbit/s and ms, on
which users differ. It also hides that most pairs of senders are not comparable. So a sender
*dominates* another on a path where it is not worse on either axis and better on one. Both ran over
the same stretches of the channel. So we compare the logarithm of the ratio of the two on each
stretch, with its 95 % confidence interval:

* *better* on an axis: the whole interval is beyond `THROUGHPUT_MARGIN` or `DELAY_MARGIN`;
* *not worse*: the mean ratio is within that margin, or on the better side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from verus.lab.interval import half_width

#: Ratios nearer to 1 than these are no difference: 1 % of throughput, 5 % of delay.
THROUGHPUT_MARGIN, DELAY_MARGIN = math.log(1.01), math.log(1.05)

#: Delays and throughputs below these (ms, Mbit/s) count as these: a ratio of two instants tells nothing.
LEAST_DELAY_MS, LEAST_MBPS = 1.0, 1e-3
#: Delay, in ms, assumed where nothing was delivered.
NEVER_MS = 1e6


@dataclass(frozen=True)
class Point:
    """Throughput and delay of a sender on one stretch of a path.

    Attributes:
        throughput_mbps: Its throughput.
        delay_ms: Its 95th percentile of queueing delay; None where nothing was delivered.
    """

    throughput_mbps: float
    delay_ms: float | None


def dominates(one: Sequence[Point], other: Sequence[Point]) -> bool:
    """Whether `one` dominates `other` on a path, both given stretch by stretch.

    Example:
        >>> fast = [Point(10.0, 50.0), Point(9.0, 52.0), Point(11.0, 49.0)]
        >>> slow = [Point(10.0, 90.0), Point(9.0, 92.0), Point(11.0, 99.0)]
        >>> dominates(fast, slow), dominates(slow, fast), dominates(fast, fast)
        (True, False, False)
    """
    gains = [
        ([math.log(_mbps(a) / _mbps(b)) for a, b in zip(one, other, strict=True)], THROUGHPUT_MARGIN),
        ([math.log(_delay(b) / _delay(a)) for a, b in zip(one, other, strict=True)], DELAY_MARGIN),
    ]
    not_worse = all(fmean(values) >= -margin for values, margin in gains)
    return not_worse and any(fmean(values) - (half_width(values) or 0.0) > margin for values, margin in gains)


def _mbps(point: Point) -> float:
    return max(point.throughput_mbps, LEAST_MBPS)


def _delay(point: Point) -> float:
    return NEVER_MS if point.delay_ms is None else max(point.delay_ms, LEAST_DELAY_MS)


@dataclass(frozen=True)
class Standing:
    """Where a sender stands.

    Attributes:
        sender: Which.
        beaten: By path, who dominates it there; only paths on which some sender does.
        beats: By path, whom it dominates.
        paths: How many there are.
    """

    sender: str
    beaten: Mapping[str, Sequence[str]]
    beats: Mapping[str, Sequence[str]]
    paths: int

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: fewest paths on which it is dominated, then most on which it dominates."""
        return len(self.beaten), -sum(map(len, self.beats.values()))


def order(paths: Mapping[str, Mapping[str, Sequence[Point]]]) -> list[Standing]:
    """Everyone by rank; those of the same rank in the order in which they were given.

    Args:
        paths: By path and sender, a point for each stretch.

    Example:
        >>> low, high = [Point(10.0, 50.0), Point(9.0, 52.0)], [Point(10.0, 500.0), Point(9.0, 520.0)]
        >>> [(one.sender, dict(one.beaten)) for one in order({"town": {"Cubic": high, "Verus": low}})]
        [('Verus', {}), ('Cubic', {'town': ['Verus']})]
    """
    senders = list(dict.fromkeys(sender for by_sender in paths.values() for sender in by_sender))
    won = {
        (path, one, other)
        for path, by_sender in paths.items()
        for one, other in itertools.permutations(senders, 2)
        if dominates(by_sender[one], by_sender[other])
    }
    standings = [
        Standing(
            sender=sender,
            beaten={path: by for path in paths if (by := [each for each in senders if (path, each, sender) in won])},
            beats={path: of for path in paths if (of := [each for each in senders if (path, sender, each) in won])},
            paths=len(paths),
        )
        for sender in senders
    ]
    return sorted(standings, key=lambda one: one.rank)
