"""What happened over time: capacity and throughput, queueing delay, window."""

from __future__ import annotations

import math

import numpy as np

from verus.figures.chart import (
    CONFIG,
    MOST_BINS,
    Figure,
    Spec,
    conditions,
    decades,
    floats,
    grouped,
    numbers,
    scheme_encoding,
    slug,
)
from verus.results import Results
from verus.style import looks
from verus.summary import Block


def series(results: Results, block: Block, *, name: str | None = None) -> Figure:
    """Capacity (shaded) and throughput, queueing delay and window over time, each contestant a line.

    Flows of one run are taken together: throughputs and windows added, delays averaged by packet.
    """
    style = looks(block.cells)
    least_ms = 0.1 if results.live else 1.0  # no smaller delay is drawn: the axis is logarithmic
    table = results.series
    run_of = table.column("run").to_numpy()
    rows: list[Spec] = []
    shade: list[Spec] = []
    for cell in block.cells:
        part = table.filter(run_of == cell.runs[0])
        time_s = part.column("time_s").to_numpy()
        columns = {key: floats(part, key) for key in ("throughput_mbps", "qdelay_ms", "window_bytes", "capacity_mbps")}
        bins, group = np.unique(time_s, return_inverse=True)
        width = max(1, math.ceil(len(bins) / MOST_BINS))
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
    color, dash = scheme_encoding(list(style), style)
    x: Spec = {"field": "t", "type": "quantitative", "axis": {"title": None, "grid": False}, "scale": {"nice": False}}

    def scale(key: str) -> Spec:
        highest = max((value for row in rows for value in row[key] if value is not None), default=1.0)
        least = least_ms if key == "delay" else 1.0
        # With less to show than a decade, the axis has one all the same.
        narrow = {"domain": [least, 10 * least]} if highest < 10 * least else {}
        return {"type": "log", "nice": False, **narrow}

    def lines(key: str, axis: str, *, log: bool, last: bool = False) -> Spec:
        return {
            "transform": [{"flatten": ["t", key]}],
            "mark": {"type": "line", "strokeWidth": 1.4, "interpolate": "linear", "clip": True},
            "encoding": {
                "x": {**x, "axis": {"title": "time, s" if last else None, "grid": False}},
                "y": {
                    "field": key,
                    "type": "quantitative",
                    "scale": scale(key) if log else {"zero": True, "nice": False},
                    "axis": {
                        "title": axis,
                        "format": "~r",
                        **({"values": decades(0.1, 1e7)} if log else {"tickCount": 4}),
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
    # Of what is no sender of ours, nobody sees a window.
    windows = any(value is not None for row in rows for value in row["window"])
    panels: list[Spec] = [
        {"width": 860, "height": 170, **lines("delay", "queueing delay, ms", log=True, last=not windows)},
        *([{"width": 860, "height": 120, **lines("window", "window, kB", log=True, last=True)}] if windows else []),
    ]
    spec = {
        "config": CONFIG,
        "data": {"values": rows},
        "vconcat": [top, *panels],
        "spacing": 14,
        "resolve": {"scale": {"x": "shared"}},
    }
    caption = (
        f"{block.trace}. {conditions(results, [block])} {'Shaded: capacity. ' if shade else ''}"
        f"Delay below {least_ms:g} ms is drawn at {least_ms:g} ms. "
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
