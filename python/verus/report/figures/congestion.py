"""The congestion graph of a qlog: data sent and acknowledged, window and bytes in flight, round-trip times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verus.lab.qlog import Log
from verus.report.figures.chart import CONFIG, Figure, Spec, axis_of, colors_of

#: The most stretches of a line; each has at most four points: the first, the least, the largest and
#: the last.
_STRETCHES = 200

#: The most lost packets that are drawn.
_MOST_LOST = 1000

#: The panels: the title of the vertical axis, the divisor of values, and the lines.
_PANELS = (
    ("data, MB", 1e6, {"sent": "sent", "acked": "acknowledged"}),
    ("window, kB", 1e3, {"bytes_in_flight": "bytes in flight", "congestion_window": "congestion window"}),
    ("round trip, ms", 1.0, {"latest_rtt": "latest", "smoothed_rtt": "smoothed", "min_rtt": "least"}),
)

_COLORS = {
    "sent": "#4c78a8",
    "acknowledged": "#54a24b",
    "lost": "#e45756",
    "congestion window": "#b279a2",
    "bytes in flight": "#9d755d",
    "latest": "#79b8d1",
    "smoothed": "#f58518",
    "least": "#72757a",
}


def congestion(log: Log, *, name: str = "congestion") -> Figure:
    """The congestion graph of one flow."""
    curves = {"sent": log.sent, "acked": log.acked, **log.metrics}
    end = max(points[-1][0] for points in curves.values() if points)
    begin = log.sent[0][0]
    # Each line extends to the end at its last value.
    lines = {key: [*points, (end, points[-1][1])] for key, points in curves.items() if points}
    drawn = [(axis, unit, {key: name for key, name in keys.items() if key in lines}) for axis, unit, keys in _PANELS]
    drawn = [panel for panel in drawn if panel[2]]
    panels: list[Spec] = []
    for index, (axis, unit, keys) in enumerate(drawn):
        rows = [
            {"line": label, "x": round(x, 6), "y": round(y / unit, 6)}
            for key, label in keys.items()
            for x, y in _thinned(lines[key], begin, end)
        ]
        names = [*keys.values(), *(["lost"] if "sent" in keys and log.lost else [])]
        color: Spec = colors_of("line", names, [_COLORS[name] for name in names])
        last = index == len(drawn) - 1
        scale = {"domain": [begin, end], "nice": False}
        encoding = {
            "x": axis_of("x", "time, s" if last else None, grid=False, scale=scale),
            "y": axis_of("y", axis, tickCount=4),
            "color": color,
        }
        line = {"type": "line", "strokeWidth": 1.4, "interpolate": "step-after", "clip": True}
        layers: list[Spec] = [{"data": {"values": rows}, "mark": line, "encoding": encoding}]
        if "lost" in names:
            step = math.ceil(len(log.lost) / _MOST_LOST)
            crosses = [{"line": "lost", "x": round(x, 6), "y": round(y / unit, 6)} for x, y in log.lost[::step]]
            mark = {"type": "point", "shape": "cross", "size": 28, "filled": True, "clip": True}
            layers.append({"data": {"values": crosses}, "mark": mark, "encoding": encoding})
        panels.append({"width": 820, "height": 170 if index == 0 else 150, "layer": layers})
    notes = " The log is cut off." if log.cut else ""
    notes += f" {left_out}" if (left_out := log.left_out()) else ""
    return Figure(
        name=name,
        title=log.title or "Congestion graph",
        caption=f"One flow, as its sender's log tells it: {len(log.sent)} packets sent, {len(log.lost)} believed lost. "
        f"A lost packet is drawn where it is in the data, when it was given up.{notes}",
        spec={"config": CONFIG, "vconcat": panels, "spacing": 14, "resolve": {"scale": {"color": "independent"}}},
    )


def _thinned(points: Sequence[tuple[float, float]], begin: float, end: float) -> list[tuple[float, float]]:
    """The first, the least, the largest and the last point of each stretch of time, in their order."""
    width = (end - begin) / _STRETCHES
    if len(points) <= 4 * _STRETCHES or width <= 0:
        return list(points)
    kept: list[tuple[float, float]] = []
    stretch: list[tuple[float, float]] = []
    number = 0
    for point in points:
        now = int((point[0] - begin) / width)
        if now != number and stretch:
            kept += _outline(stretch)
            stretch = []
        number = now
        stretch.append(point)
    return kept + _outline(stretch)


def _outline(stretch: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    values = [value for _, value in stretch]
    at = {0, values.index(min(values)), values.index(max(values)), len(stretch) - 1}
    return [stretch[index] for index in sorted(at)]
