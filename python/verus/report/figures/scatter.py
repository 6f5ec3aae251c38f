"""Delay against throughput: the main picture of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from verus.lab.results import Results
from verus.report.figures.chart import PANEL_HEIGHT, PANEL_WIDTH, Figure, Frame, Spec, conditions, grid, heading, short
from verus.report.figures.labels import Box, place
from verus.report.style import Look, looks
from verus.report.summary import Block

#: A five-pointed star in Vega's unit square.
_STAR = "M0,-1L0.23,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.23,-0.31Z"

#: Panels with more names than this are drawn larger, two beside each other.
_CROWDED = 6

_TOOLTIP = [
    {"field": "scheme", "title": "scheme"},
    {"field": "throughput", "title": "throughput, Mbit/s"},
    {"field": "utilization", "title": "share of capacity", "format": ".1%"},
    {"field": "mean", "title": "mean delay, ms"},
    {"field": "p95", "title": "p95 delay, ms"},
    {"field": "signal", "title": "p95 signal delay, ms"},
]


def scatter(
    results: Results,
    blocks: Sequence[Block],
    *,
    name: str = "delay-throughput",
    title: str = "Delay against throughput",
) -> Figure:
    """A panel for each block: mean delay and throughput of each contestant, a line out to its p95.

    Where the capacity is known, the omniscient sender marks the ideal corner: it fills every
    opportunity and never queues.
    """
    style = looks(cell for block in blocks for cell in block.cells)
    means = [value for block in blocks for cell in block.cells if (value := cell["qdelay_mean_ms"])]
    tails = [value for block in blocks for cell in block.cells if (value := cell["qdelay_p95_ms"])]
    low = 10 ** math.floor(math.log10(max(min(means, default=1.0), 0.02)) - 0.05)
    high = max(max(tails, default=10.0), max(means, default=10.0)) * 1.3
    large = len(blocks) < 3 or max(len(block.cells) for block in blocks) > _CROWDED
    size = (440, 300) if large else (PANEL_WIDTH, PANEL_HEIGHT)
    several = len({block.queue for block in blocks}) > 1
    panels = [_panel(block, style, (low, max(high, low * 10)), size, several=several) for block in blocks]
    caption = (
        f"{conditions(results, blocks)} Points are means, lines reach to the 95th percentile; up and left is better. "
        "Throughput axes do not begin at 0."
    )
    if any(block.capacity_mbps is not None for block in blocks):
        caption += " The star is the omniscient sender: every opportunity used, no queue."
    if any(_differ([cell["capacity_mbps"] for cell in block.cells]) for block in blocks):
        caption += " Not all contestants had the same realisation of a channel: its capacity is their mean."
    return Figure(name=name, title=title, caption=caption, spec=grid(panels, columns=2 if large else 3))


def _differ(values: Sequence[float | None]) -> bool:
    observed = [value for value in values if value is not None]
    return bool(observed) and max(observed) > 1.001 * min(observed)


def _panel(
    block: Block, style: dict[str, Look], x_domain: tuple[float, float], size: tuple[int, int], *, several: bool
) -> Spec:
    throughputs = [cell["throughput_mbps"] or 0.0 for cell in block.cells]
    capacity = max(throughputs) if block.capacity_mbps is None else block.capacity_mbps
    span = max(capacity - min(throughputs), 0.04 * capacity, 1e-3)
    # The capacity is a mean, so a contestant over a channel that carried more is above it.
    y_domain = (max(0.0, min(throughputs) - 0.25 * span), max(capacity, *throughputs) + 0.16 * span)
    frame = Frame(x_domain=x_domain, y_domain=y_domain, width=size[0], height=size[1])
    rows = _rows(block, style, frame)
    x, y = frame.x("mean", "queueing delay, ms"), frame.y("throughput", "throughput, Mbit/s")
    color = {"field": "color", "type": "nominal", "scale": None}
    has_capacity = block.capacity_mbps is not None
    corner = [{"x": x_domain[0], "y": capacity, "text": "omniscient"}] if has_capacity else []
    at_corner = {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}}
    layers: list[Spec] = [
        {
            "data": {"values": corner},
            "mark": {"type": "rule", "strokeDash": [3, 3], "color": "#808080"},
            "encoding": {"y": at_corner["y"]},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.55},
            "encoding": {"x": x, "x2": {"field": "p95"}, "y": y, "color": color},
        },
        {
            "mark": {"type": "point", "size": 85, "strokeWidth": 2, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "stroke": color,
                "fill": {"field": "fill", "type": "nominal", "scale": None},
                "shape": {"field": "shape", "type": "nominal", "scale": None},
                "tooltip": _TOOLTIP,
            },
        },
        names_beside(x, y),
        {
            "data": {"values": corner},
            "mark": {"type": "point", "shape": _STAR, "size": 90, "filled": True, "color": "#808080", "opacity": 1},
            "encoding": at_corner,
        },
        {
            "data": {"values": corner},
            "mark": {"type": "text", "align": "left", "dx": 9, "dy": -8, "fontSize": 10, "opacity": 0.75},
            "encoding": {**at_corner, "text": {"field": "text"}},
        },
        *heading(block.short, block.queue if several else ""),
    ]
    return {"width": frame.width, "height": frame.height, "data": {"values": rows}, "layer": layers}


def _rows(block: Block, style: dict[str, Look], frame: Frame) -> list[dict[str, Any]]:
    """The points of a panel, each with the place of its name in pixels."""
    rows: list[dict[str, Any]] = []
    for cell in block.cells:
        mean_ms, tail_ms = cell["qdelay_mean_ms"], cell["qdelay_p95_ms"]
        if mean_ms is None:
            continue
        look = style[cell.label]
        mean_ms = max(mean_ms, frame.x_domain[0])
        rows.append(
            {
                "scheme": cell.label,
                "mean": short(mean_ms),
                "p95": short(max(tail_ms or mean_ms, frame.x_domain[0])),
                "throughput": short(cell["throughput_mbps"]),
                "utilization": short(cell["utilization"]),
                "signal": short(cell["signal_delay_p95_ms"]),
                "color": look.color,
                "shape": look.shape,
                "fill": "transparent" if look.dashed else look.color,
            }
        )
    points = [frame.pixel(row["mean"], row["throughput"]) for row in rows]
    ends = [frame.pixel(row["p95"], row["throughput"])[0] for row in rows]
    lines = [Box(x, y - 1.5, max(end - x, 1.0), 3.0) for (x, y), end in zip(points, ends, strict=True)]
    taken = lines
    if block.capacity_mbps is not None:
        _, top = frame.pixel(1.0, block.capacity_mbps)
        taken = [*lines, Box(0, top - 1, frame.width, 2), Box(0, top - 16, 66, 22)]
    put_names(rows, points, frame, taken=taken, ends=ends)
    return rows


def put_names(
    rows: Sequence[dict[str, Any]],
    points: Sequence[tuple[float, float]],
    frame: Frame,
    *,
    taken: Sequence[Box] = (),
    ends: Sequence[float] | None = None,
) -> None:
    """Adds `label_x` and `label_y` to each row: the place of its `scheme`, in pixels from its point."""
    texts = [row["scheme"] for row in rows]
    placed = place(points, texts, (frame.width, frame.height), taken, ends)
    for row, (x, y), label in zip(rows, points, placed, strict=True):
        row.update(label_x=round(label.x - x, 1), label_y=round(label.y - y, 1))


def names_beside(x: Spec, y: Spec) -> Spec:
    """The layer of the names that `put_names` placed, each beside its point."""
    return {
        "mark": {
            "type": "text",
            "align": "left",
            "baseline": "middle",
            "fontSize": 11,
            "dx": {"expr": "datum.label_x"},
            "dy": {"expr": "datum.label_y"},
        },
        "encoding": {"x": x, "y": y, "text": {"field": "scheme"}},
    }
