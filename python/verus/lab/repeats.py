"""Evidence from repetitions: whether they differ at all, and by how much one sender differs from another.

Senders over the same channels with the same seeds share their randomness, so paired differences,
run by run, vary less than the runs themselves. Over recordings they often vary far less, since
stretches differ more than senders do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verus.lab.interval import half_width
from verus.lab.metric_rows import NUMBERS

#: The note under a table of differences with intervals.
PAIRED_NOTE = (
    "Differences are run by run, over the same seeds and stretches; ± is half of the 95 % confidence interval of their "
    "mean (Student's t). An interval that leaves out 0 tells two senders apart."
)

#: The note under a table of differences without intervals.
UNPAIRED_NOTE = "Differences are of one run each: without an interval, they tell no two senders apart."


def note_of(differences: Iterable[Mapping[str, Mapping[str, float | int | None]]]) -> str | None:
    """The note under a table of these differences (`paired`); None if it is empty.

    Example:
        >>> note_of([{}]), note_of([{"power": {"mean": 1.0, "half_width_95": None, "pairs": 1}}]) == UNPAIRED_NOTE
        (None, True)
    """
    half_widths = [one["half_width_95"] for each in differences for one in each.values()]
    if not half_widths:
        return None
    return UNPAIRED_NOTE if all(half is None for half in half_widths) else PAIRED_NOTE


def are_one(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether several runs are identical in every number of every flow: they count as one run, without an interval.

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
    """The mean difference between the runs of two senders, over the seeds that both have.

    Args:
        rows: The runs of the one; each has its `seed`.
        others: The runs of the other, on the same channel, behind the same queue.
        names: The metrics.

    Returns:
        For each metric that both observed with at least one seed: the `mean` of the differences,
            half of its 95 % confidence interval (`half_width_95`), and the number of `pairs`. Runs
            that are the same for every seed (`are_one`) are one pair. A single pair has no
            interval: None.

    Example:
        >>> one = [{"seed": seed, "power": value} for seed, value in ((1, 5.0), (2, 6.0), (3, 9.0))]
        >>> two = [{"seed": seed, "power": value} for seed, value in ((3, 8.0), (1, 4.5), (4, 0.0))]
        >>> paired(one, two, ["power"])["power"]["mean"]
        0.75
        >>> same = [{"seed": seed, "power": 4.0, "per_flow": []} for seed in (1, 2, 3)]
        >>> paired(same, [{**row, "power": 5.0} for row in same], ["power"])
        {'power': {'mean': -1.0, 'half_width_95': None, 'pairs': 1}}
    """
    by_seed = {row["seed"]: row for row in others}
    both = [(row, by_seed[row["seed"]]) for row in rows if row["seed"] in by_seed]
    if both and all(map(are_one, zip(*both, strict=True))):
        both = both[:1]
    differences: dict[str, dict[str, float | int | None]] = {}
    for name in names:
        pairs = [(row.get(name), other.get(name)) for row, other in both]
        if deltas := [one - other for one, other in pairs if one is not None and other is not None]:
            differences[name] = {
                "mean": sum(deltas) / len(deltas),
                "half_width_95": half_width(deltas),
                "pairs": len(deltas),
            }
    return differences
