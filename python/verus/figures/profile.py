"""What Verus learnt: which delay each window brings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow.compute as pc

from verus.figures.chart import (
    MOST_BINS,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    Figure,
    Spec,
    conditions,
    floats,
    grid,
    heading,
    numbers,
    scheme_encoding,
)
from verus.results import Results
from verus.style import looks
from verus.summary import Block


def profiles(results: Results, blocks: Sequence[Block], *, name: str = "delay-profile") -> Figure | None:
    """What Verus learnt: its points (window, delay) and the curve it fitted through them, at the end of each run.

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
        "propagation included here. The line is the curve fitted through the points, from which the next window "
        "is read; both as they were at the last refit. "
        f"{conditions(results, blocks)}"
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
            step = max(1, math.ceil(chosen.num_rows / MOST_BINS))
            into.append(
                {
                    "scheme": cell.label,
                    "w": numbers(floats(chosen, "window_packets")[::step]),
                    "d": numbers(floats(chosen, "delay_ms")[::step]),
                }
            )
    if not points:
        return None
    color, dash = scheme_encoding([row["scheme"] for row in points], style)
    encoding = {
        "x": {"field": "w", "type": "quantitative", "axis": {"title": "window, packets", "grid": False}},
        "y": {"field": "d", "type": "quantitative", "axis": {"title": "delay, ms", "tickCount": 5}},
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
