"""What repetitions say: whether they differ at all, and by how much one sender differs from another.

Senders that run over the same channels with the same seeds share the chance in them, so the differences run by run
(paired differences) vary less than the runs themselves: often far less over recordings, whose stretches differ more
than senders do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verus.lab.interval import half_width
from verus.lab.metric_rows import NUMBERS

#: What is said under a table of differences that has intervals.
PAIRED_NOTE = (
    "Differences are run by run, over the same seeds and stretches; ± is half of the 95 % confidence interval of their "
    "mean (Student's t). An interval that leaves out 0 tells two senders apart."
)

#: What is said under a table of differences that has none.
UNPAIRED_NOTE = "Differences are of one run each: without an interval, they tell no two senders apart."


def note_of(differences: Iterable[Mapping[str, Mapping[str, float | int | None]]]) -> str | None:
    """What is said under a table of these differences (`paired`); nothing where it is empty.

    Example:
        >>> note_of([{}]), note_of([{"power": {"mean": 1.0, "half_width_95": None, "pairs": 1}}]) == UNPAIRED_NOTE
        (None, True)
    """
    known = [one["half_width_95"] for each in differences for one in each.values()]
    if not known:
        return None
    return UNPAIRED_NOTE if all(half is None for half in known) else PAIRED_NOTE


def are_one(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether several runs came to the same, in every number of every flow: one run, of which there is no interval.

    Example:
        >>> row = {"throughput_mbps": 1.0, "per_flow": []}
        >>> are_one([row, row]), are_one([row, {**row, "throughput_mbps": 2.0}]), are_one([row])
        (True, False, False)
    """
    first, *others = rows
    names = (*NUMBERS, "per_flow")
    return bool(others) and all(row.get(name) == first.get(name) for row in others for name in names)


def paired(
    rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], names: Iterable[str] = NUMBERS
) -> dict[str, dict[str, float | int | None]]:
    """By how much the runs of one sender are above those of another, over the seeds that both have.

    Args:
        rows: The runs of the one; each has its `seed`.
        others: The runs of the other, on the same channel, behind the same queue.
        names: The metrics.

    Returns:
        For each metric that both observed with at least one seed: the `mean` of the differences, half of its 95 %
        confidence interval (`half_width_95`), and the number of `pairs`. Where the runs of both are the same for every
        seed (`are_one`), that is one pair. Of a single pair there is no interval: None.

    Example:
        >>> one = [{"seed": seed, "power": value} for seed, value in ((1, 5.0), (2, 6.0), (3, 9.0))]
        >>> two = [{"seed": seed, "power": value} for seed, value in ((3, 8.0), (1, 4.5), (4, 0.0))]
        >>> paired(one, two, ["power"])["power"]["mean"]
        0.75
        >>> same = [{"seed": seed, "power": 4.0, "per_flow": []} for seed in (1, 2, 3)]
        >>> paired(same, [{**row, "power": 5.0} for row in same], ["power"])
        {'power': {'mean': -1.0, 'half_width_95': None, 'pairs': 1}}
    """
    there = {row["seed"]: row for row in others}
    both = [(row, there[row["seed"]]) for row in rows if row["seed"] in there]
    if both and all(map(are_one, zip(*both, strict=True))):
        both = both[:1]
    found: dict[str, dict[str, float | int | None]] = {}
    for name in names:
        pairs = [(row.get(name), other.get(name)) for row, other in both]
        if known := [one - other for one, other in pairs if one is not None and other is not None]:
            found[name] = {"mean": sum(known) / len(known), "half_width_95": half_width(known), "pairs": len(known)}
    return found
