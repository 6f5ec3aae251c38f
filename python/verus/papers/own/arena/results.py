"""Results of the arena's runs, by question."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from verus.lab.interval import half_width
from verus.lab.results import Results
from verus.papers.own.arena.field import AFTER_S, OUTAGE_FROM_S, OUTAGE_MBPS, OUTAGE_TO_S
from verus.papers.own.dominance import Point, Standing, order
from verus.report.figures import Figure
from verus.report.summary import seen


class ArenaResults:
    """Results of the runs, by question."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.parts: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
        for row in results.rows.to_pylist():
            _, _, part = row["part"].split("|", 2)
            self.parts.setdefault(tuple(part.split("|")), {}).setdefault(row["label"], []).append(row)

    def of(self, question: str) -> dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]]:
        """Rows of a question: the rest of the part's name → sender → rows."""
        return {names[1:]: rows for names, rows in self.parts.items() if names[0] == question}

    def queues(self) -> list[str]:
        """Queues that were run."""
        return list(dict.fromkeys(queue for queue, _ in self.of("alone")))

    def points(self, queue: str | None = None) -> dict[str, dict[str, list[Point]]]:
        """By path (queue and channel) and sender, a point for each stretch; of one queue, or of all."""
        return {
            f"{each}, {channel}": {
                label: [Point(row["throughput_mbps"], row["qdelay_p95_ms"]) for row in rows]
                for label, rows in senders.items()
            }
            for (each, channel), senders in self.of("alone").items()
            if queue in (None, each)
        }

    def standings(self, queue: str | None = None) -> list[Standing]:
        """All senders by dominance, on the paths of one queue or of all."""
        return order(self.points(queue))

    def labels(self) -> list[str]:
        """All senders, in the order in which they ran."""
        return list(next(iter(self.of("alone").values())))

    def senders(self) -> list[str]:
        """All senders, by dominance on all paths."""
        return [one.sender for one in self.standings()]

    def after_outage(self, row: Mapping[str, Any]) -> tuple[float, float]:
        """Seconds of the link that went unused in those after an outage, beyond what usually does; p95 delay in them.

        The delay, in ms, is over bins, from the second second on: what waited all along is out by then.
        """
        bounds = self.results.series.column("run").to_numpy()
        low, high = np.searchsorted(bounds, [row["run"], row["run"] + 1])
        part = self.results.series.slice(int(low), int(high - low))
        time, got, delay = (
            part.column(name).to_numpy(zero_copy_only=False).astype(float)
            for name in ("time_s", "throughput_mbps", "qdelay_ms")
        )
        used = np.nan_to_num(got) / OUTAGE_MBPS
        usual = 1 - used[(time >= OUTAGE_FROM_S / 2) & (time < OUTAGE_FROM_S)].mean()
        after = (time >= OUTAGE_TO_S) & (time < OUTAGE_TO_S + AFTER_S)
        unused = max(0.0, float((1 - used[after] - usual).mean()) * AFTER_S)
        waited = delay[after & (time >= OUTAGE_TO_S + 1) & np.isfinite(delay)]
        return unused, float(np.quantile(waited, 0.95)) if len(waited) else math.nan


def number_text(values: Sequence[float | None], digits: int, factor: float = 1.0) -> str:
    """Their mean and half of its 95 % confidence interval; an en dash where nothing was observed.

    Example:
        >>> number_text([0.5, 0.6, 0.7], 1, 100.0), number_text([None], 1)
        ('60.0 ± 24.8', '–')
    """
    observed = [factor * value for value in seen(values)]
    if not observed:
        return "–"
    half_interval = half_width(observed)
    # Alike to the last digit is no interval.
    return f"{fmean(observed):.{digits}f}" + (
        f" ± {half_interval:.{digits}f}" if half_interval and half_interval >= 0.5 * 10**-digits else ""
    )


def values_of(rows: Sequence[Mapping[str, Any]], key: str) -> list[float | None]:
    """A column of rows."""
    return [row[key] for row in rows]


@dataclass(frozen=True)
class Question:
    """A question of a reader, answered by runs of every sender.

    Attributes:
        name: Its name, which heads its table.
        title: The question.
        rule: The runs, the meaning of the numbers, and their order.
        table: Heads after the first, and the cells of each sender.
        draw: Its chart.
    """

    name: str
    title: str
    rule: str
    table: Callable[[ArenaResults], tuple[list[str], dict[str, list[str]]]]
    draw: Callable[[ArenaResults], Figure]
