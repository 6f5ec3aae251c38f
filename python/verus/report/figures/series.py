"""Capacity and throughput, queueing delay, window and phase over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from verus.lab.results import Results
from verus.report.figures.chart import (
    CONFIG,
    MOST_BINS,
    PAGE_BINS,
    Figure,
    Spec,
    axis_of,
    colors_of,
    conditions,
    decades,
    floats,
    grouped,
    numbers,
    scheme_encoding,
    short,
    slug,
)
from verus.report.style import Look, looks
from verus.report.summary import Block, Cell

#: Names and colours of phases: paler or darker than those that identify contestants.
PHASES = {
    "slow_start": ("slow start", "#ffe94d"),
    "steady": ("steady", "#8080804d"),
    "recovery": ("recovery", "#6b0f4b"),
    "drain": ("drain", "#8ff0b5"),
    "silent": ("silent", "#26267a"),
}

#: The height of all rows together, and the minimum of each, in pixels.
_PANEL_HEIGHT, _ROW_HEIGHT = 170, 48


def series(results: Results, block: Block, *, name: str | None = None) -> Figure:
    """Capacity (shaded) and throughput, queueing delay and window over time, in separate rows for each contestant.

    Lines of several would overlap. Flows of one run are combined: throughputs and windows added,
    delays averaged by packet. A page has more bins, and the phases of each contestant's first flow
    below.
    """
    style = looks(block.cells)
    least_ms = 0.1 if results.live else 1.0  # no smaller delay is drawn: the axis is logarithmic
    parts = _parts(results, block)
    caption = (
        f"{block.trace}. {conditions(results, [block])} {'Shaded: capacity. ' if _capacity(parts) else ''}"
        f"Delay below {least_ms:g} ms is drawn at {least_ms:g} ms."
    )
    longest = max((len(np.unique(part.column("time_s").to_numpy())) for _, part in parts), default=0)
    if longest > PAGE_BINS:
        caption += f" Means of {math.ceil(longest / PAGE_BINS)} bins, {PAGE_BINS} values or fewer a line."
    if len(results.config["seeds"]) > 1:
        caption += " The first seed is shown."
    return Figure(
        name=name or f"series-{slug(block.short)}",
        title=f"Over time: {block.short}",
        caption=caption,
        spec=_spec(parts, style, least_ms, MOST_BINS, phases=[]),
        on_page=_spec(parts, style, least_ms, PAGE_BINS, phases=_phases(parts)),
    )


def _parts(results: Results, block: Block) -> list[tuple[Cell, pa.Table]]:
    """The series of each contestant's first run."""
    run_of = results.series.column("run").to_numpy()
    return [(cell, results.series.filter(run_of == cell.runs[0])) for cell in block.cells]


def _capacity(parts: Sequence[tuple[Cell, pa.Table]]) -> bool:
    return any(bool(np.isfinite(floats(part, "capacity_mbps")).any()) for _, part in parts)


def _phases(parts: Sequence[tuple[Cell, pa.Table]]) -> list[Spec]:
    """The begin and end of each phase, for each contestant whose first flow has phases."""
    rows: list[Spec] = []
    for cell, part in parts:
        if "phase" not in part.column_names:
            continue
        first_flow = part.filter(part.column("flow").to_numpy() == 0)
        times, names = first_flow.column("time_s").to_numpy(), first_flow.column("phase").to_pylist()
        begun = [index for index, name in enumerate(names) if index == 0 or name != names[index - 1]]
        bins = np.diff(times)
        last = float(times[-1] + (bins[-1] if len(bins) else 0.0)) if len(times) else 0.0
        for index, end in zip(begun, [*(float(times[at]) for at in begun[1:]), last], strict=True):
            if names[index] is not None:
                phase = PHASES.get(names[index], (names[index], ""))[0]
                rows.append({"scheme": cell.label, "t": short(times[index]), "end": short(end), "phase": phase})
    return rows


def _rows(parts: Sequence[tuple[Cell, pa.Table]], least_ms: float, most_bins: int) -> tuple[list[Spec], list[Spec]]:
    """The points of each contestant's lines, and the capacity of the first contestant that has one."""
    rows: list[Spec] = []
    shade: list[Spec] = []
    for cell, part in parts:
        time_s = part.column("time_s").to_numpy()
        columns = {key: floats(part, key) for key in ("throughput_mbps", "qdelay_ms", "window_bytes", "capacity_mbps")}
        bins, group = np.unique(time_s, return_inverse=True)
        width = max(1, math.ceil(len(bins) / most_bins))
        group = group // width
        starts = bins[::width]
        flows = max(cell.flows, 1)
        throughput = grouped(columns["throughput_mbps"], group, len(starts)) * flows
        delay = grouped(columns["qdelay_ms"], group, len(starts), weights=columns["throughput_mbps"])
        window = grouped(columns["window_bytes"], group, len(starts)) * flows / 1000
        rows.append(
            {
                "scheme": cell.label,
                "t": numbers(starts),
                "throughput": numbers(throughput),
                "delay": numbers(np.maximum(delay, least_ms)),
                "window": numbers(np.maximum(window, 1.0)),
            }
        )
        if not shade and np.isfinite(columns["capacity_mbps"]).any():
            capacity = grouped(columns["capacity_mbps"], group, len(starts))
            shade = [{"t": numbers(starts), "capacity": numbers(capacity)}]
    return rows, shade


def _spec(
    parts: Sequence[tuple[Cell, pa.Table]],
    style: dict[str, Look],
    least_ms: float,
    most_bins: int,
    *,
    phases: Sequence[Spec],
) -> Spec:
    rows, shade = _rows(parts, least_ms, most_bins)
    color, dash = scheme_encoding(list(style), style)
    height = max(_ROW_HEIGHT, _PANEL_HEIGHT // len(rows))

    def scale(key: str) -> Spec:
        highest = max((value for row in rows for value in row[key] if value is not None), default=1.0)
        lowest = least_ms if key == "delay" else 1.0
        # The axis covers at least a decade.
        narrow = {"domain": [lowest, 10 * lowest]} if highest < 10 * lowest else {}
        return {"type": "log", "nice": False, **narrow}

    def panel(key: str, title: str, *, log: bool) -> Spec:
        x: Spec = axis_of("t", None, grid=False, scale={"nice": False})
        line = {
            "transform": [{"flatten": ["t", key]}],
            "mark": {"type": "line", "strokeWidth": 1.4, "interpolate": "linear", "clip": True},
            "encoding": {
                "x": x,
                "y": {
                    "field": key,
                    "type": "quantitative",
                    "title": title,
                    "scale": scale(key) if log else {"zero": True, "nice": False},
                    "axis": {
                        "title": None,
                        "format": "~r",
                        **({"values": decades(0.1, 1e7), "labelOverlap": "greedy"} if log else {"tickCount": 3}),
                    },
                },
                "color": color,
                "strokeDash": dash,
            },
        }
        area = {
            "data": {"values": shade},
            "transform": [{"flatten": ["t", "capacity"]}],
            "mark": {"type": "area", "color": "#80808033", "interpolate": "step-after"},
            "encoding": {"x": x, "y": {"field": "capacity", "type": "quantitative"}},
        }
        header = {
            "title": title,
            "titleOrient": "left",
            "titleFontWeight": "normal",
            "titleFontSize": 11,
            "titleColor": "currentColor",
            "labelOrient": "top",
            "labelAnchor": "start",
            "labelFontSize": 11,
            "labelColor": "currentColor",
            "labelPadding": 3,
        }
        return {
            "facet": {"row": {"field": "scheme", "type": "nominal", "sort": list(style), "header": header}},
            "spacing": 4,
            "spec": {"width": 860, "height": height, "layer": [*([area] if key == "throughput" else []), line]},
        }

    panels = [
        panel("throughput", "throughput, Mbit/s", log=False),
        panel("delay", "queueing delay, ms", log=True),
    ]
    # Only the project's own senders report their windows.
    if any(value is not None for row in rows for value in row["window"]):
        panels.append(panel("window", "window, kB", log=True))
    return {
        "config": CONFIG,
        "data": {"values": rows},
        "vconcat": [*panels, *([_strip(phases, color)] if phases else [])],
        "spacing": 14,
        "resolve": {"scale": {"x": "shared"}},
    }


def _strip(phases: Sequence[Spec], color: Spec) -> Spec:
    """Phases as bars, a row for each contestant."""
    names = list(dict.fromkeys(row["scheme"] for row in phases))
    present = {row["phase"] for row in phases}
    named_phases = dict(PHASES.values())
    domain = [phase for phase in [*named_phases, *sorted(present - set(named_phases))] if phase in present]
    row = {
        "field": "scheme",
        "type": "nominal",
        "sort": names,
        "axis": {"title": "phase", "titlePadding": 22, "labels": False, "ticks": False, "domain": False},
        "scale": {"paddingInner": 0.25},
    }
    across = axis_of("t", "time, s", grid=False, scale={"nice": False})
    fill = colors_of(
        "phase",
        domain,
        [named_phases.get(phase, "#808080") for phase in domain],
        orient="bottom",
        direction="horizontal",
        symbolType="square",
    )
    bars = {
        "data": {"name": "phases", "values": list(phases)},
        "mark": {"type": "rect", "clip": True, "stroke": "#808080", "strokeWidth": 0.5},
        "encoding": {"x": across, "x2": {"field": "end"}, "y": row, "fill": fill},
    }
    markers = {
        "data": {"values": [{"scheme": name} for name in names]},
        "mark": {"type": "point", "shape": "circle", "filled": True, "size": 50, "opacity": 1},
        "encoding": {"x": {"value": -12}, "y": row, "color": color},
    }
    return {"width": 860, "height": 16 * len(names), "layer": [bars, markers]}
