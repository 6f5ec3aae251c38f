"""Figures of saved results, as Vega-Lite: delay against throughput, time series, delay profiles.

A figure is data: a Vega-Lite specification with its numbers inside, a title and a caption that
states what was run. `render` turns it into a file and `report` puts it on a page. Text and axes are
drawn in `currentColor`, so that one figure suits a light page and a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from verus.labels import Box, place
from verus.results import Results
from verus.style import Look, looks
from verus.summary import Block

Spec = dict[str, Any]
Floats = npt.NDArray[np.float64]

#: Most bins a curve is drawn with; a longer series is averaged into these.
MOST_BINS = 240

#: What every caption about delay ends with.
DELAY = "Delay is time in the bottleneck queue; propagation is not in it."

_FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
_GRID = "#8080802e"

CONFIG: Spec = {
    "font": _FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "#80808099",
        "tickColor": "#80808099",
        "gridColor": _GRID,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFlush": False,
    },
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 11, "symbolStrokeWidth": 2},
    "title": {
        "color": "currentColor",
        "fontSize": 13,
        "fontWeight": 600,
        "anchor": "start",
        "subtitleColor": "currentColor",
        "subtitleFontSize": 11,
        "subtitlePadding": 4,
    },
    "text": {"color": "currentColor"},
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture, its words, and the numbers in it.

    Attributes:
        name: File name without its ending.
        title: One line.
        caption: What was run, and what the axes count.
        spec: Vega-Lite, with its data.
    """

    name: str
    title: str
    caption: str
    spec: Spec


def slug(text: str) -> str:
    """A text as part of a file name.

    Example:
        >>> slug("red:min=375000,p=0.1")
        'red-min-375000-p-0.1'
    """
    kept = "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in text)
    return "-".join(part for part in kept.split("-") if part)


def conditions(results: Results, blocks: Sequence[Block]) -> str:
    """What was run, in a sentence or two: for captions."""
    scenario = results.config["runs"][blocks[0].cells[0].runs[0]]["scenario"]
    flows = sorted({cell.flows for block in blocks for cell in block.cells})
    queues = list(dict.fromkeys(block.queue for block in blocks))
    seeds = results.config["seeds"]
    parts = [
        "Simulated",
        f"{scenario['duration_s']:g} s",
        "one flow" if flows == [1] else f"{' or '.join(map(str, flows))} flows",
        f"{scenario['delay_ms']:g} ms propagation each way",
        f"acknowledgements: {scenario['ack']}",
        f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}",
        f"queue {queues[0]}" if len(queues) == 1 else "queue as named above each panel",
    ]
    modes = sorted(
        {str(cell.params.get("mode", "robust")) for block in blocks for cell in block.cells if cell.scheme == "verus"}
    )
    if modes == ["robust"]:
        parts.append("Verus in its default mode, robust")
    elif modes:
        parts.append("Verus in the modes named")
    return ", ".join(parts) + ". Data crosses the trace named; " + DELAY[0].lower() + DELAY[1:]


# --- delay against throughput -------------------------------------------------------------------

_PANEL_WIDTH, _PANEL_HEIGHT = 280, 220


def scatter(
    results: Results,
    blocks: Sequence[Block],
    *,
    name: str = "delay-throughput",
    title: str = "Delay against throughput",
    columns: int = 3,
) -> Figure:
    """A panel for each block: mean delay and throughput of each contestant, a line out to its p95.

    The omniscient sender, which fills every opportunity and never queues, marks the corner to reach.
    """
    style = looks(cell for block in blocks for cell in block.cells)
    means = [value for block in blocks for cell in block.cells if (value := cell["qdelay_mean_ms"])]
    tails = [value for block in blocks for cell in block.cells if (value := cell["qdelay_p95_ms"])]
    low = 10 ** math.floor(math.log10(max(min(means, default=1.0), 0.02)) - 0.05)
    high = max(max(tails, default=10.0), max(means, default=10.0)) * 1.3
    several = len({block.queue for block in blocks}) > 1
    panels = [_scatter_panel(block, style, (low, max(high, low * 10)), several=several) for block in blocks]
    spec = grid(panels, columns=columns)
    caption = (
        f"{conditions(results, blocks)} Points are means, lines reach to the 95th percentile; up and left is better. "
        "The star is the omniscient sender: every opportunity used, no queue."
    )
    return Figure(name=name, title=title, caption=caption, spec=spec)


def _scatter_panel(block: Block, style: dict[str, Look], x_domain: tuple[float, float], *, several: bool) -> Spec:
    capacity = block.capacity_mbps
    throughputs = [cell["throughput_mbps"] or 0.0 for cell in block.cells]
    span = max(capacity - min(throughputs), 0.04 * capacity, 1e-3)
    y_domain = (max(0.0, min(throughputs) - 0.25 * span), capacity + 0.16 * span)

    def pixel_x(value: float) -> float:
        low, high = (math.log10(edge) for edge in x_domain)
        return _PANEL_WIDTH * (math.log10(min(max(value, x_domain[0]), x_domain[1])) - low) / (high - low)

    def pixel_y(value: float) -> float:
        return _PANEL_HEIGHT * (1 - (value - y_domain[0]) / (y_domain[1] - y_domain[0]))

    rows: list[Spec] = []
    for cell in block.cells:
        mean_ms, tail_ms = cell["qdelay_mean_ms"], cell["qdelay_p95_ms"]
        if mean_ms is None:
            continue
        look = style[cell.label]
        mean_ms = max(mean_ms, x_domain[0])
        rows.append(
            {
                "scheme": cell.label,
                "mean": _short(mean_ms),
                "p95": _short(max(tail_ms or mean_ms, x_domain[0])),
                "throughput": _short(cell["throughput_mbps"]),
                "utilization": _short(cell["utilization"]),
                "signal": _short(cell["signal_delay_p95_ms"]),
                "color": look.color,
                "shape": look.shape,
                "fill": "transparent" if look.dashed else look.color,
            }
        )
    points = [(pixel_x(row["mean"]), pixel_y(row["throughput"])) for row in rows]
    lines = [Box(x, y - 1.5, max(pixel_x(row["p95"]) - x, 1.0), 3.0) for (x, y), row in zip(points, rows, strict=True)]
    dashes = Box(0, pixel_y(capacity) - 1, _PANEL_WIDTH, 2)
    star = Box(0, pixel_y(capacity) - 16, 118, 22)
    labels = place(
        points,
        [row["scheme"] for row in rows],
        (_PANEL_WIDTH, _PANEL_HEIGHT),
        taken=[*lines, dashes, star],
        ends=[line.x + line.width for line in lines],
    )
    for row, label in zip(rows, labels, strict=True):
        row.update(label_x=round(label.x, 1), label_y=round(label.y, 1))
    x: Spec = {
        "field": "mean",
        "type": "quantitative",
        "scale": {"type": "log", "domain": list(x_domain), "nice": False},
        "axis": {"title": "queueing delay, ms", "format": "~r", "values": _decades(*x_domain), "grid": True},
    }
    y: Spec = {
        "field": "throughput",
        "type": "quantitative",
        "scale": {"domain": list(y_domain), "zero": False, "nice": False},
        "axis": {"title": "throughput, Mbit/s", "tickCount": 5},
    }
    color = {"field": "color", "type": "nominal", "scale": None}
    tooltip = [
        {"field": "scheme", "title": "scheme"},
        {"field": "throughput", "title": "throughput, Mbit/s"},
        {"field": "utilization", "title": "share of capacity", "format": ".1%"},
        {"field": "mean", "title": "mean delay, ms"},
        {"field": "p95", "title": "p95 delay, ms"},
        {"field": "signal", "title": "p95 signal delay, ms"},
    ]
    corner = [{"x": x_domain[0], "y": capacity, "text": f"omniscient: {capacity:.3g} Mbit/s, 0 ms"}]
    corner_x = {"field": "x", "type": "quantitative"}
    corner_y = {"field": "y", "type": "quantitative"}
    layers: list[Spec] = [
        {
            "data": {"values": corner},
            "mark": {"type": "rule", "strokeDash": [3, 3], "color": "#808080"},
            "encoding": {"y": corner_y},
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
                "tooltip": tooltip,
            },
        },
        {
            "mark": {"type": "text", "align": "left", "baseline": "middle", "fontSize": 11},
            "encoding": {
                "x": {"field": "label_x", "type": "quantitative", "scale": None},
                "y": {"field": "label_y", "type": "quantitative", "scale": None},
                "text": {"field": "scheme"},
            },
        },
        {
            "data": {"values": corner},
            "mark": {"type": "point", "shape": _STAR, "size": 90, "filled": True, "color": "#808080", "opacity": 1},
            "encoding": {"x": corner_x, "y": corner_y},
        },
        {
            "data": {"values": corner},
            "mark": {"type": "text", "align": "left", "dx": 9, "dy": -8, "fontSize": 10, "opacity": 0.75},
            "encoding": {"x": corner_x, "y": corner_y, "text": {"field": "text"}},
        },
    ]
    layers += heading(block.short, block.queue if several else "")
    return {"width": _PANEL_WIDTH, "height": _PANEL_HEIGHT, "data": {"values": rows}, "layer": layers}


def heading(title: str, subtitle: str = "") -> list[Spec]:
    """A panel's title as text at a fixed place, so that neighbours line up whatever their axes need."""
    lines = [(title, -22 if subtitle else -10, 13, 600, 1.0), (subtitle, -8, 11, 400, 0.75)]
    return [
        {
            "data": {"values": [{}]},
            "mark": {
                "type": "text",
                "align": "left",
                "baseline": "bottom",
                "text": text,
                "fontSize": size,
                "fontWeight": weight,
                "opacity": opacity,
            },
            "encoding": {"x": {"value": 0}, "y": {"value": y}},
        }
        for text, y, size, weight, opacity in lines
        if text
    ]


def grid(panels: Sequence[Spec], *, columns: int = 3) -> Spec:
    """Panels of one size beside and under each other, their frames aligned."""
    return {
        "config": CONFIG,
        "concat": list(panels),
        "columns": min(columns, len(panels)),
        "spacing": {"row": 92, "column": 62},
        "bounds": "flush",
    }


#: A five-pointed star in Vega's unit square.
_STAR = "M0,-1L0.23,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.23,-0.31Z"


def _decades(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: 1, 3, 10, 30 and so on."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [tick for power in range(first, last + 1) for tick in (10.0**power, 3 * 10.0**power) if low <= tick <= high]


# --- time series --------------------------------------------------------------------------------


def series(results: Results, block: Block, *, name: str | None = None) -> Figure:
    """Capacity (shaded) and throughput, queueing delay and window over time, each contestant a line.

    Flows of one run are taken together: throughputs and windows added, delays averaged by packet.
    """
    style = looks(block.cells)
    table = results.series
    run_of = table.column("run").to_numpy()
    rows: list[Spec] = []
    shade: list[Spec] = []
    for cell in block.cells:
        part = table.filter(run_of == cell.runs[0])
        time_s = part.column("time_s").to_numpy()
        columns = {key: _floats(part, key) for key in ("throughput_mbps", "qdelay_ms", "window_bytes", "capacity_mbps")}
        bins, group = np.unique(time_s, return_inverse=True)
        width = max(1, math.ceil(len(bins) / MOST_BINS))
        group = group // width
        starts = bins[::width]
        flows = max(cell.flows, 1)
        throughput = _grouped(columns["throughput_mbps"], group, len(starts)) * flows
        delay = _grouped(columns["qdelay_ms"], group, len(starts), weights=columns["throughput_mbps"])
        window = _grouped(columns["window_bytes"], group, len(starts)) * flows / 1000
        rows.append(
            {
                "scheme": cell.label,
                "t": _list(starts),
                "throughput": _list(throughput),
                "delay": _list(np.maximum(delay, 1.0)),
                "window": _list(np.maximum(window, 1.0)),
            }
        )
        if not shade:
            capacity = _grouped(columns["capacity_mbps"], group, len(starts))
            shade = [{"t": _list(starts), "capacity": _list(capacity)}]
    color, dash = _scheme_encoding(list(style), style)
    x: Spec = {"field": "t", "type": "quantitative", "axis": {"title": None, "grid": False}, "scale": {"nice": False}}

    def lines(key: str, axis: str, *, log: bool, last: bool = False) -> Spec:
        return {
            "transform": [{"flatten": ["t", key]}],
            "mark": {"type": "line", "strokeWidth": 1.4, "interpolate": "linear", "clip": True},
            "encoding": {
                "x": {**x, "axis": {"title": "time, s" if last else None, "grid": False}},
                "y": {
                    "field": key,
                    "type": "quantitative",
                    "scale": {"type": "log", "nice": False} if log else {"zero": True, "nice": False},
                    "axis": {
                        "title": axis,
                        "format": "~r",
                        **({"values": _decades(1, 1e7)} if log else {"tickCount": 4}),
                    },
                },
                "color": color,
                "strokeDash": dash,
                "opacity": {"condition": {"param": "chosen", "value": 0.95}, "value": 0.06},
            },
        }

    top: Spec = {
        "width": 860,
        "height": 170,
        "layer": [
            {
                "data": {"values": shade},
                "transform": [{"flatten": ["t", "capacity"]}],
                "mark": {"type": "area", "color": "#80808033", "interpolate": "step-after"},
                "encoding": {"x": x, "y": {"field": "capacity", "type": "quantitative"}},
            },
            {
                **lines("throughput", "throughput, Mbit/s", log=False),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["scheme"]}, "bind": "legend"}],
            },
        ],
    }
    spec = {
        "config": CONFIG,
        "data": {"values": rows},
        "vconcat": [
            top,
            {"width": 860, "height": 170, **lines("delay", "queueing delay, ms", log=True)},
            {"width": 860, "height": 120, **lines("window", "window, kB", log=True, last=True)},
        ],
        "spacing": 14,
        "resolve": {"scale": {"x": "shared"}},
    }
    caption = (
        f"{block.trace}. {conditions(results, [block])} Shaded: capacity. Delay below 1 ms is drawn at 1 ms. "
        "On the page, a click on a name in the legend singles it out (shift for several)."
    )
    if len(results.config["seeds"]) > 1:
        caption += " The first seed is shown."
    return Figure(
        name=name or f"series-{slug(block.short)}",
        title=f"Over time: {block.short}",
        caption=caption,
        spec=spec,
    )


# --- delay profiles -----------------------------------------------------------------------------


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
                    "w": _list(_floats(chosen, "window_packets")[::step]),
                    "d": _list(_floats(chosen, "delay_ms")[::step]),
                }
            )
    if not points:
        return None
    color, dash = _scheme_encoding([row["scheme"] for row in points], style)
    encoding = {
        "x": {"field": "w", "type": "quantitative", "axis": {"title": "window, packets", "grid": False}},
        "y": {"field": "d", "type": "quantitative", "axis": {"title": "delay, ms", "tickCount": 5}},
        "color": color,
    }
    flatten = [{"flatten": ["w", "d"]}]
    return {
        "width": _PANEL_WIDTH,
        "height": _PANEL_HEIGHT,
        "layer": [
            {
                "data": {"values": points},
                "transform": flatten,
                "mark": {"type": "point", "filled": True, "size": 14, "opacity": 0.35},
                "encoding": {**encoding, "color": {**color, "legend": None}},
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


# --- a trace ------------------------------------------------------------------------------------


def trace_rate(name: str, times_ms: npt.NDArray[Any]) -> Figure:
    """The rate that a trace offers over time, in bins of 100 ms (thin) and 1 s (thick), 1500 bytes an opportunity."""
    times = np.asarray(times_ms, dtype=float)
    period_ms = max(float(times[-1]), 1.0)

    def binned(width_ms: float) -> Spec:
        count = max(1, math.ceil(period_ms / width_ms))
        index = np.minimum((times / width_ms).astype(np.int64), count - 1)
        rate = np.bincount(index, minlength=count) * 1500 * 8 / width_ms / 1000
        return {"t": _list(np.arange(count) * width_ms / 1000), "rate": _list(rate)}

    fine_ms = max(100.0, period_ms / 2400)
    coarse_ms = 10 * fine_ms
    encoding = {
        "x": {
            "field": "t",
            "type": "quantitative",
            "axis": {"title": "time, s", "grid": False},
            "scale": {"nice": False},
        },
        "y": {"field": "rate", "type": "quantitative", "axis": {"title": "rate, Mbit/s"}},
    }
    flatten = [{"flatten": ["t", "rate"]}]
    layers = [
        {"data": {"values": [binned(width)]}, "transform": flatten, "mark": mark, "encoding": encoding}
        for width, mark in (
            (fine_ms, {"type": "area", "color": "#80808055", "interpolate": "step-after"}),
            (coarse_ms, {"type": "line", "color": _TRACE_COLOR, "strokeWidth": 2, "interpolate": "step-after"}),
        )
    ]
    spec = {"config": CONFIG, "width": 860, "height": 240, "layer": layers}
    mean = len(times) * 1500 * 8 / period_ms / 1000
    caption = (
        f"{name}: mean {mean:.2f} Mbit/s over {period_ms / 1000:g} s, at 1500 bytes an opportunity. "
        f"Shaded: bins of {fine_ms:g} ms; line: bins of {coarse_ms / 1000:g} s."
    )
    return Figure(name=slug(name), title=f"Rate of {name}", caption=caption, spec=spec)


_TRACE_COLOR = "#1c7fc7"


# --- helpers ------------------------------------------------------------------------------------


def _scheme_encoding(labels: Sequence[str], style: dict[str, Look]) -> tuple[Spec, Spec]:
    """Colour and dash of lines by scheme, with one legend."""
    field = {"field": "scheme", "type": "nominal"}
    colors = [style[label].color for label in labels]
    dashes = [[5, 3] if style[label].dashed else [1, 0] for label in labels]
    legend = {"title": None, "orient": "top", "symbolType": "stroke", "columns": 6}
    return (
        {**field, "scale": {"domain": list(labels), "range": colors}, "legend": legend},
        {**field, "scale": {"domain": list(labels), "range": dashes}, "legend": None},
    )


def _floats(table: Any, name: str) -> Floats:
    """A column as floats, null as NaN; all NaN if the column is absent."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = table.column(name).combine_chunks()
    values: Floats = np.asarray(column.to_numpy(zero_copy_only=False), dtype=float)
    return values


def _grouped(values: Floats, group: npt.NDArray[np.intp], count: int, weights: Floats | None = None) -> Floats:
    """The mean of each group, by weight if given; what is NaN is left out, a group without values is NaN."""
    seen = np.isfinite(values)
    weight = np.where(seen, 1.0 if weights is None else np.nan_to_num(weights) + 1e-9, 0.0)
    total = np.bincount(group, weights=weight, minlength=count)
    added = np.bincount(group, weights=np.where(seen, values, 0.0) * weight, minlength=count)
    means: Floats = np.divide(added, total, out=np.full(count, np.nan), where=total > 0)
    return means


def _list(values: Iterable[float]) -> list[float | None]:
    return [_short(value) for value in values]


def _short(value: float | None) -> float | None:
    """Four significant digits: what a figure can show, in few bytes."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}")


def panel_size() -> tuple[int, int]:
    """Width and height of a panel in pixels."""
    return _PANEL_WIDTH, _PANEL_HEIGHT
