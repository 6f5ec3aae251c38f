"""Flows that share a wired link of constant rate (SIGCOMM 2015, section 7): who gets how much, and when.

The paper shaped an Ethernet with Linux `tc` and states no buffer. Where the result depends on the
buffer, a map is run: every R of the paper over buffers of a quarter to four bandwidth-delay
products. One cell is checked, over several repetitions, since the instants at which Verus's epochs
end are random. In this cell, robust mode is also run without the decisions that may explain the
result, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verus.lab.scenario import Run
from verus.papers.reproduction import Array, Column, ColumnResults, Table, interval
from verus.report import figures
from verus.report.figures import Figure

#: From a run to the number it is judged by.
RowMetric = Callable[[Mapping[str, Any]], float]

#: Default limit of netem, the `tc` discipline that delays packets: 1000 packets of 1500 bytes.
NETEM_QUEUE = "droptail:bytes=1500000"

#: Wide enough bins for figures of minutes, and for means of tens of seconds.
BIN_MS = 1000.0

#: The link of Figs. 13 and 14, and its bandwidth-delay product at a round trip of 50 ms.
PLACE, RATE_MBPS, PRODUCT_BYTES = "rate:60", 60.0, 375_000

RATIOS = (2, 4, 6)
#: Buffers of the maps, in such products.
BUFFERS = (0.25, 0.5, 1.0, 2.0, 4.0)

#: Settings that make one decision as in paper or prototype mode, the others as in robust mode.
DECISIONS = ("without=capacity", "window_reference=current_window", "fit=penalised", "without=losses")
_DECIDED = "decisions"

#: How often the checked setting is run, with seeds one after the other.
REPETITIONS = 5
_REPEATED = "repetitions"


def sweep(
    column: Column, flows: Sequence[Mapping[str, Any]], *, checked: tuple[int, float], **options: Any
) -> list[Run]:
    """The same flows for every R and buffer; with those that are checked also for every seed and decision.

    Other modes of Verus run only the checked cell. Only the profile bounds the window in the
    paper's mode. If the buffer is too short for the delay it aims at, it sends many times what the
    link carries.
    """

    def run(ratio: int, buffer: float, keys: str = "", **more: Any) -> Run:
        queue = f"droptail:bytes={buffer * PRODUCT_BYTES:.0f}"
        settings = {"flows": flows, "queue": queue, "bin_ms": BIN_MS, **options, **more}
        return column.run(PLACE, f"verus:ratio={ratio}{keys}", **settings)

    repeated = [run(*checked, part=_REPEATED, seed=seed) for seed in column.seeds(REPETITIONS)]
    if column.mode:
        return repeated
    cells = [run(ratio, buffer, part=f"{buffer:g}") for ratio in RATIOS for buffer in BUFFERS]
    decided = [run(*checked, f",{decision}", part=_DECIDED, label=decision) for decision in DECISIONS]
    return cells + decided + repeated


def median(results: ColumnResults, metric: RowMetric) -> float:
    """Median of `metric` over the checked setting's repetitions, since a ratio may be unbounded."""
    return float(np.median([metric(row) for row in results.where(part=_REPEATED).rows]))


def cell(results: ColumnResults, *, ratio: int, buffer: float) -> Mapping[str, Any]:
    """The run of one cell of the map."""
    (row,) = results.where(label=f"Verus R={ratio}", part=f"{buffer:g}").rows
    return row


def shares(results: ColumnResults, row: Mapping[str, Any], start_s: float, stop_s: float = math.inf) -> Array:
    """Mean throughput of each flow of a run between two instants, in Mbit/s; 0 for one that is not there."""
    series = results.series(row)
    inside = (series.time_s >= start_s) & (series.time_s < stop_s)
    means: Array = np.nan_to_num(series.throughput_mbps[:, inside]).mean(axis=1)
    return means


def decisions(
    results: ColumnResults, names: Sequence[str], start_s: float, metric: tuple[str, RowMetric]
) -> list[Table]:
    """Each flow's throughput from `start_s` on and its `metric`, by repetition and by decision."""
    heads = ["", *names, metric[0], "packets lost"]

    def table(title: str, labelled: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
        rows = []
        for label, row in labelled:
            got = [f"{value:.1f}" for value in shares(results, row, start_s)]
            rows.append([label, *got, f"{metric[1](row):.2f}", f"{100 * row['loss_rate']:.1f} %"])
        return Table(title=f"Throughput in the checked setting, Mbit/s{title}", heads=heads, rows=rows)

    repeated = results.where(part=_REPEATED).rows
    centre, half = interval([metric[1](row) for row in repeated])
    title = f": {metric[0]} is {centre:.2f} ± {half:.2f} (95 % confidence)"
    return [
        table(title, [(f"seed {row['seed']}", row) for row in repeated]),
        table(", one decision changed", [(row["label"], row) for row in results.where(part=_DECIDED).rows]),
    ]


def timeline(
    results: ColumnResults, row: Mapping[str, Any], names: Sequence[str], *, name: str, title: str, caption: str
) -> Figure:
    """The throughput of each flow over time, from its first packet to its last."""
    series = results.series(row)
    rows = []
    for flow, own in zip(names, np.nan_to_num(series.throughput_mbps), strict=True):
        busy = np.flatnonzero(own)
        rows += [
            {"name": flow, "x": float(series.time_s[at]), "y": float(own[at])} for at in range(busy[0], busy[-1] + 1)
        ]
    return figures.lines(rows, name=name, title=title, caption=caption, x="time, s", y="throughput, Mbit/s")


def chart(results: ColumnResults, metric: RowMetric, *, name: str, title: str, caption: str, **options: Any) -> Figure:
    """The map: what `metric` says of the run of each R and buffer."""
    rows = [
        {"x": f"{buffer:g}", "y": f"R = {ratio}", "value": metric(cell(results, ratio=ratio, buffer=buffer))}
        for ratio in RATIOS
        for buffer in BUFFERS
    ]
    x = "buffer, bandwidth-delay products at 50 ms"
    return figures.heat(rows, name=name, title=title, caption=caption, x=x, y="", size=(460, 170), **options)
