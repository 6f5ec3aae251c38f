"""Flows that share a link: the throughput of each over time."""

from __future__ import annotations

import itertools
import math

import numpy as np

from verus.lab.results import Results
from verus.report.figures.chart import (
    MOST_BINS,
    Figure,
    Spec,
    axis_of,
    conditions,
    floats,
    grid,
    grouped,
    heading,
    numbers,
)
from verus.report.style import named
from verus.report.summary import Block, Cell

#: Seconds over which throughput is averaged: the window of Jain's index.
_WINDOW_S = 1.0


def flows(results: Results, block: Block, *, name: str) -> Figure | None:
    """A panel for each contestant with several flows: a line for each flow, coloured by its scheme.

    Returns:
        None if every contestant has one flow.
    """
    shared = [cell for cell in block.cells if cell.flows > 1]
    if not shared:
        return None
    rows = results.rows.to_pylist()
    schemes = {cell.label: [flow["scheme"] for flow in rows[cell.runs[0]]["per_flow"]] for cell in shared}
    domain = list(dict.fromkeys(itertools.chain.from_iterable(schemes.values())))
    colors = named(domain)
    panels = [_panel(results, cell, schemes[cell.label], colors) for cell in shared]
    caption = (
        f"{block.trace}. {conditions(results, [block])} A line for each flow: throughput in windows of "
        f"{_WINDOW_S:g} s, over which Jain's index is taken."
    )
    return Figure(name=name, title=f"Flow by flow: {block.short}", caption=caption, spec=grid(panels, columns=2))


def _panel(results: Results, cell: Cell, schemes: list[str], colors: dict[str, str]) -> Spec:
    table = results.series
    part = table.filter(table.column("run").to_numpy() == cell.runs[0])
    flow_of = part.column("flow").to_numpy()
    time_s = part.column("time_s").to_numpy()
    throughput = floats(part, "throughput_mbps")
    width_s = max(_WINDOW_S, math.ceil(float(time_s.max(initial=0.0)) / MOST_BINS))
    values = []
    for index, scheme in enumerate(schemes):
        of_flow = flow_of == index
        group = (time_s[of_flow] / width_s + 1e-9).astype(np.intp)
        count = int(group.max(initial=-1)) + 1
        means = grouped(throughput[of_flow], group, count)
        values.append(
            {"flow": index, "scheme": scheme, "t": numbers(np.arange(count) * width_s), "rate": numbers(means)}
        )
    used = list(dict.fromkeys(schemes))
    scale = {"domain": used, "range": [colors[scheme] for scheme in used]}
    legend = (
        {"title": None, "orient": "top-left", "symbolType": "stroke", "symbolOpacity": 1} if len(used) > 1 else None
    )
    return {
        "width": 440,
        "height": 180,
        "layer": [
            {
                "data": {"values": values},
                "transform": [{"flatten": ["t", "rate"]}],
                "mark": {"type": "line", "strokeWidth": 1.4, "opacity": 0.75},
                "encoding": {
                    "x": axis_of("t", "time, s", grid=False),
                    "y": axis_of("rate", "throughput, Mbit/s", tickCount=4),
                    "color": {"field": "scheme", "type": "nominal", "scale": scale, "legend": legend},
                    "detail": {"field": "flow", "type": "nominal"},
                },
            },
            *heading(cell.title),
        ],
        "resolve": {"scale": {"color": "independent"}},
    }
