"""The delay profile that Verus learnt, delay by window, at the end of a run and over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from verus.lab.results import Results
from verus.report.figures.chart import (
    CONFIG,
    MOST_BINS,
    PAGE_BINS,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    Figure,
    Spec,
    axis_of,
    conditions,
    floats,
    grid,
    heading,
    numbers,
    scheme_encoding,
    short,
    slug,
)
from verus.report.style import looks
from verus.report.summary import Block


def profiles(results: Results, blocks: Sequence[Block], *, name: str = "delay-profile") -> Figure | None:
    """Verus's delay profiles: points (window, delay) and the curve fitted through them, at the end of each run.

    Returns:
        None if no contestant has a profile.
    """
    table = results.profile
    if table.num_rows == 0:
        return None
    panels = [panel for block in blocks if (panel := _profile_panel(results, block)) is not None]
    if not panels:
        return None
    spec = grid(panels)
    caption = (
        "Each point is what Verus remembers of one window: the average round-trip delay of packets sent with it, "
        "propagation included. The line is the curve fitted through the points, from which the next window "
        "is read; both as they were at the last refit. "
        f"{conditions(results, blocks, queueing=False)}"
    )
    return Figure(name=name, title="Delay profiles", caption=caption, spec=spec)


def _profile_panel(results: Results, block: Block) -> Spec | None:
    table = results.profile
    run_of = table.column("run").to_numpy()
    style = looks(block.cells)
    points: list[Spec] = []
    curves: list[Spec] = []
    for cell in block.cells:
        part = table.filter((run_of == cell.runs[0]) & (table.column("flow").to_numpy() == 0)) if len(run_of) else table
        if part.num_rows == 0:
            continue
        last = pc.max(part.column("time_s")).as_py()
        part = part.filter(pc.equal(part.column("time_s"), last))
        for kind, into in (("point", points), ("curve", curves)):
            chosen = part.filter(pc.equal(part.column("kind"), kind)).sort_by("window_packets")
            into.append({"scheme": cell.label, **_pairs(chosen, MOST_BINS)})
    if not points:
        return None
    color, dash = scheme_encoding([row["scheme"] for row in points], style)
    encoding = {
        "x": axis_of("w", "window, packets", grid=False),
        "y": axis_of("d", "round-trip delay, ms", tickCount=5),
        "color": color,
    }
    flatten = [{"flatten": ["w", "d"]}]
    return {
        "width": PANEL_WIDTH,
        "height": PANEL_HEIGHT,
        "layer": [
            {
                "data": {"values": points},
                "transform": flatten,
                "mark": {"type": "point", "filled": True, "size": 14, "opacity": 0.35},
                "encoding": encoding,
            },
            {
                "data": {"values": curves},
                "transform": flatten,
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {**encoding, "strokeDash": dash, "order": {"field": "w"}},
            },
            *heading(block.short),
        ],
    }


#: Points of a curve in a snapshot on a page: few, since curves are smooth.
_CURVE_POINTS = 80


def profile_over_time(results: Results, block: Block, *, name: str) -> Figure | None:
    """The profiles of a block from snapshot to snapshot, and each sender's operating point on its profile.

    A still picture shows the last snapshot.

    Returns:
        None if no contestant has a profile.
    """
    last = _profile_panel(results, block) if results.profile.num_rows else None
    if last is None:
        return None
    moving = _moving(results, block)
    color, dash = scheme_encoding(moving.labels, looks(block.cells))
    encoding = {
        "x": axis_of(
            "w", "window, packets", grid=False, scale={"domain": [0, short(1.05 * moving.widest)], "nice": False}
        ),
        "y": axis_of(
            "d", "round-trip delay, ms", tickCount=6, scale={"domain": [0, short(1.05 * moving.highest)], "nice": False}
        ),
        "color": color,
    }
    layers = [
        ("points", {"type": "point", "filled": True, "size": 14, "opacity": 0.4, "clip": True}, encoding),
        (
            "curves",
            {"type": "line", "strokeWidth": 2, "clip": True},
            {**encoding, "strokeDash": dash, "order": {"field": "w"}},
        ),
        (
            "now",
            {"type": "point", "filled": True, "size": 150, "opacity": 1, "stroke": "currentColor", "strokeWidth": 1.5},
            encoding,
        ),
    ]
    layer = [
        {"data": {"name": data, "values": [{"scheme": ""}]}, "mark": mark, "encoding": channels}
        for data, mark, channels in layers
    ]
    return Figure(
        name=name or f"profile-{slug(block.short)}",
        title=f"Delay profiles: {block.short}",
        caption=f"{block.trace}. {conditions(results, [block], queueing=False)} {moving.told()}",
        spec={"config": CONFIG, **last},
        on_page={"config": CONFIG, "width": 640, "height": 340, "layer": layer},
        frames=moving.frames(),
    )


@dataclass(frozen=True)
class _Moving:
    """The animated data: profiles by time, and each sender's window and wanted delay over time."""

    snapshots: dict[float, dict[str, Any]]
    now: list[Spec]
    labels: list[str]
    #: The greatest window and delay of any profile.
    widest: float
    highest: float

    def frames(self) -> dict[str, Any]:
        """The data of the page's slider."""
        steps = [row["t"] for row in self.now if row["t"]]
        return {
            "start": 0,
            "end": short(max([max(self.snapshots), *(row[-1] for row in steps)])),
            "step": short(max(0.01, min((row[1] - row[0] for row in steps if len(row) > 1), default=0.1))),
            "snapshots": [self.snapshots[at] for at in sorted(self.snapshots)],
            "now": self.now,
        }

    def told(self) -> str:
        """The caption of these data."""
        times = sorted(self.snapshots)
        gone = sorted({round(late - early, 3) for early, late in itertools.pairwise(times)})
        every = f"one every {gone[0]:g} s" if len(gone) == 1 else f"at {', '.join(f'{at:g}' for at in times)} s"
        if any(row["t"] for row in self.now):
            operating_point = "Large point: window W and wanted delay D_est at the time of the slider, from the series."
        else:
            operating_point = (
                "The results have no D_est over time, so that where each sender is on its curve is not drawn."
            )
        return (
            "Small points: what Verus remembers of each window, the average round-trip delay of packets sent with it, "
            "propagation included. Line: the curve fitted through them, from which windows are read. Snapshots as "
            f"they were saved, {every}. {operating_point}"
        )


def _moving(results: Results, block: Block) -> _Moving:
    """The profiles of the first flow of each contestant's first run."""
    table = results.profile
    run_of, flow_of = table.column("run").to_numpy(), table.column("flow").to_numpy()
    snapshots: dict[float, dict[str, Any]] = {}
    now: list[Spec] = []
    labels: list[str] = []
    widest, highest = 1.0, 1.0
    for cell in block.cells:
        part = table.filter((run_of == cell.runs[0]) & (flow_of == 0))
        if part.num_rows == 0:
            continue
        labels.append(cell.label)
        widest = max(widest, pc.max(part.column("window_packets")).as_py() or 1.0)
        highest = max(highest, pc.max(part.column("delay_ms")).as_py() or 1.0)
        for at in part.column("time_s").unique().to_pylist():
            at_time = part.filter(pc.equal(part.column("time_s"), at))
            snapshot = snapshots.setdefault(at, {"t": short(at), "points": [], "curves": []})
            for kind, key, most in (("point", "points", MOST_BINS), ("curve", "curves", _CURVE_POINTS)):
                chosen = at_time.filter(pc.equal(at_time.column("kind"), kind)).sort_by("window_packets")
                snapshot[key].append({"scheme": cell.label, **_pairs(chosen, most)})
        now.append({"scheme": cell.label, **_operating(results, cell.runs[0])})
    return _Moving(snapshots, now, labels, widest, highest)


def _pairs(table: pa.Table, most: int) -> Spec:
    """Windows and delays, thinned to `most` at even steps."""
    step = max(1, math.ceil(table.num_rows / most))
    return {"w": numbers(floats(table, "window_packets")[::step]), "d": numbers(floats(table, "delay_ms")[::step])}


def _operating(results: Results, run: int) -> Spec:
    """Window and wanted delay of a run's first flow over time; empty if the results lack them."""
    table = results.series
    if not {"window_packets", "delay_estimate_ms"} <= set(table.column_names):
        return {"t": [], "w": [], "d": []}
    of_flow = table.filter((table.column("run").to_numpy() == run) & (table.column("flow").to_numpy() == 0))
    delays, windows = floats(of_flow, "delay_estimate_ms"), floats(of_flow, "window_packets")
    finite = np.flatnonzero(np.isfinite(delays) & np.isfinite(windows))
    chosen = finite[:: max(1, math.ceil(len(finite) / PAGE_BINS))]
    times = of_flow.column("time_s").to_numpy()
    return {"t": numbers(times[chosen]), "w": numbers(windows[chosen]), "d": numbers(delays[chosen])}
