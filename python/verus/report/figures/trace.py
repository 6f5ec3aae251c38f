"""The capacity of a trace over time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from verus.report.figures.chart import CONFIG, Figure, Spec, axis_of, numbers, slug

_TRACE_COLOR = "#1c7fc7"


def trace_rate(name: str, times_ms: npt.NDArray[Any]) -> Figure:
    """The rate of a trace over time, in bins of 100 ms (thin) and 1 s (thick), 1500 bytes an opportunity."""
    times = np.asarray(times_ms, dtype=float)
    period_ms = max(float(times[-1]), 1.0)

    def binned(width_ms: float) -> Spec:
        count = max(1, math.ceil(period_ms / width_ms))
        index = np.minimum((times / width_ms).astype(np.int64), count - 1)
        rate = np.bincount(index, minlength=count) * 1500 * 8 / width_ms / 1000
        return {"t": numbers(np.arange(count) * width_ms / 1000), "rate": numbers(rate)}

    fine_ms = max(100.0, period_ms / 2400)
    coarse_ms = 10 * fine_ms
    encoding = {
        "x": axis_of("t", "time, s", grid=False, scale={"nice": False}),
        "y": axis_of("rate", "rate, Mbit/s"),
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
