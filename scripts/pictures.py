"""Draws the pictures of docs/how-it-works.md and docs/qlog.md from runs of the simulator, into `docs/pictures`.

python scripts/pictures.py [FOLDER]     # `make pictures`; a few seconds
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from verus import Comparison, compare
from verus.lab import qlog
from verus.lab.runner import Logs, measure_each
from verus.lab.scenario import Contestant, make_run
from verus.report import notebook
from verus.report.figures import Figure, lines, profiles, series
from verus.report.figures.chart import short
from verus.report.figures.congestion import congestion
from verus.report.summary import blocks

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"

#: The channel and the conditions of every picture except the last: one channel, one seed.
CHANNEL = "city-driving-lte-down@1"
CONDITIONS = f"{CHANNEL}, 20 ms each way, RED 375/1125 kB, seed 1"


def run(*schemes: str, **options: Any) -> Comparison:
    """Runs these schemes over the channel for a minute."""
    return compare(traces=[CHANNEL], schemes=schemes, duration_s=60, bin_ms=20, **options)


def columns(
    comparison: Comparison, scheme: str, names: Mapping[str, str], start_s: float, end_s: float
) -> list[dict[str, Any]]:
    """Points of a line for each column of the series, under the names in the legend."""
    label = next(row["label"] for row in comparison.results.rows.to_pylist() if row["scheme"] == scheme)
    table = comparison.results.series
    part = table.filter(
        pc.and_(
            pc.equal(table["label"], label),
            pc.and_(pc.greater_equal(table["time_s"], start_s), pc.less(table["time_s"], end_s)),
        )
    )
    times = part["time_s"].to_pylist()
    return [
        {"name": name, "x": short(at), "y": short(value)}
        for column, name in names.items()
        for at, value in zip(times, part[column].to_pylist(), strict=True)
        if value is not None and np.isfinite(value)
    ]


def against_cubic() -> Figure:
    """A loss-based sender on a cellular link, with Verus and forward beside it."""
    comparison = run("verus:ratio=2", "forward", "cubic")
    return series(comparison.results, blocks(comparison.results)[0], name="against-cubic")


def verus_profile() -> Figure:
    """The delay profile that Verus learns."""
    comparison = run("verus:ratio=2")
    figure = profiles(comparison.results, blocks(comparison.results))
    assert figure is not None, "Verus learns one"
    return figure


def verus_estimate() -> Figure:
    """Eq. 4 over time: D_est between D_min and R · D_min, driven by each epoch's largest delay."""
    comparison = run("verus:ratio=2")
    names = {
        "delay_max_ms": "largest delay, D_max",
        "delay_estimate_ms": "wanted delay, D_est",
        "delay_min_ms": "D_min",
    }
    rows = columns(comparison, "verus", names, 20, 25)
    return lines(
        rows,
        name="verus-estimate",
        title="The delay that Verus asks for",
        caption=f"One Verus flow, R = 2, from 20 to 25 s. {CONDITIONS}.",
        x="time, s",
        y="delay, ms",
        size=(860, 240),
    )


def forward_queue() -> Figure:
    """The queue that forward aims at, and the actual one."""
    comparison = run("forward")
    rows = columns(comparison, "forward", {"queue_ms": "queueing delay, Q", "target_ms": "target, q(r)"}, 20, 25)
    return lines(
        rows,
        name="forward-queue",
        title="The queueing delay of forward, and its target",
        caption=f"One flow of forward, from 20 to 25 s. {CONDITIONS}.",
        x="time, s",
        y="delay, ms",
        size=(860, 240),
    )


def congestion_graph() -> Figure:
    """The figure of `verus report` for a log: five seconds of Cubic, with losses."""
    cubic = Contestant.from_scheme("cubic")
    planned = make_run(trace=CHANNEL, queue="droptail:bytes=150kB", contestant=cubic, duration_s=5.0, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        measure_each([planned], logs=Logs(Path(folder), "draft", [CHANNEL]))
        (log,) = Path(folder).iterdir()
        return congestion(qlog.read(log))


#: The pictures, by file name.
PICTURES: Mapping[str, Callable[[], Figure]] = {
    "against-cubic.svg": against_cubic,
    "verus-estimate.svg": verus_estimate,
    "verus-profile.svg": verus_profile,
    "forward-queue.svg": forward_queue,
    "congestion-graph.svg": congestion_graph,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        notebook.Plot.of(draw()).save(Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER, name))
