"""Round-trip times of small packets, before the load and under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verus.report.figures.chart import CONFIG, Figure, axis_of, colors_of, numbers

#: Colours of the path without load, and with it.
COLORS = {"idle": "#009e73", "loaded": "#d55e00"}

_WIDTH, _HEIGHT = 860, 190


def echoes(measured: Mapping[str, Sequence[float]]) -> Figure:
    """Each echo's round trip by the time when it left.

    Args:
        measured: `time_s`, from the beginning of the load, below zero before it; `rtt_ms`.
    """
    data = {
        "t": numbers(measured["time_s"]),
        "rtt": numbers(measured["rtt_ms"]),
        "when": ["idle" if time < 0 else "loaded" for time in measured["time_s"]],
    }
    spec = {
        "config": CONFIG,
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": [data]},
        "transform": [{"flatten": ["t", "rtt", "when"]}],
        "mark": {"type": "point", "filled": True, "size": 18, "opacity": 0.8},
        "encoding": {
            "x": axis_of("t", "time since the load began, s", grid=False, scale={"nice": False}),
            "y": axis_of("rtt", "round trip, ms", tickCount=5, scale={"zero": True}),
            "color": colors_of("when", list(COLORS), list(COLORS.values()), orient="top", symbolOpacity=1),
        },
    }
    caption = (
        "Each point is a small packet that the server sent back at once, ten a second, in the test's own UDP flow."
    )
    return Figure(name="echoes", title="Round trip, idle and loaded", caption=caption, spec=spec)
