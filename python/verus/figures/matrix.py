"""The state transition matrix of a model, as Figs. 5 and 6 of the 2016 paper draw it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verus import _verus
from verus.figures.chart import CONFIG, Figure, Spec, numbers, slug

#: Quantization steps that Figs. 5a and 6a show.
STEPS = 10

#: The side of the picture, in pixels.
_SIDE = 620


def matrix(path: Path, about: dict[str, Any], *, zoom_ms: int | None = None) -> Figure:
    """Present states down, next states across, darker for a greater probability (logarithmic).

    Args:
        path: The model.
        about: What `_verus.model_info` says of it.
        zoom_ms: Show only the quantization step that holds this delay, rather than the first ten.
    """
    first, shown = _span(about, zoom_ms)
    return region(path.name, about, _verus.model_region(str(path), first, shown), zoom_ms=zoom_ms)


def region(name: str, about: dict[str, Any], found: Mapping[str, Any], *, zoom_ms: int | None = None) -> Figure:
    """The same of elements that were read before.

    Args:
        name: Of the model.
        about: What is known of it.
        found: `row`, `column` and `probability` of the elements in the steps that are shown, as
            `_verus.model_region` counts them.
        zoom_ms: As for `matrix`.
    """
    low, step = about["delay_min_ms"], about["quantization_ms"]
    windows = about["window_max_packets"] - about["window_min_packets"] + 1
    first, shown = _span(about, zoom_ms)
    states = shown * windows
    size = _SIDE / states

    edges = [step_index * windows for step_index in range(shown + 1)]
    if zoom_ms is None:
        # One label an interval, at its beginning.
        ticks, label = edges[:-1], f"{low + first * step} + floor(datum.value / {windows}) * {step}"
        title = f"d, ms; in each interval w from {about['window_min_packets']} to {about['window_max_packets']}"
    else:
        every = max(1, windows // 12)
        ticks, label = list(range(0, windows, every)), f"datum.value + {about['window_min_packets']}"
        title = "w, packets an epoch"

    def axis(field: str, name: str, orient: str) -> Spec:
        return {
            "field": field,
            "type": "quantitative",
            "scale": {"domain": [0, states], "nice": False, "reverse": field == "row"},
            "axis": {
                "title": f"{name} state: {title}",
                "values": ticks,
                "labelExpr": label,
                "orient": orient,
                "grid": False,
            },
        }

    x, y = axis("column", "next", "top"), axis("row", "present", "left")
    elements = {
        "row": [int(at) for at in found["row"]],
        "column": [int(at) for at in found["column"]],
        "probability": numbers(found["probability"]),
    }
    cells = {
        "data": {"values": [elements]},
        "transform": [
            {"flatten": ["row", "column", "probability"]},
            {"calculate": "datum.row + 1", "as": "row_end"},
            {"calculate": "datum.column + 1", "as": "column_end"},
        ],
        # Not thinner than can be seen, where there are hundreds of states.
        "mark": {"type": "rect", "minBandSize": 1, "strokeWidth": 0.5 if size < 3 else 0},
        "encoding": {
            "x": x,
            "x2": {"field": "column_end"},
            "y": y,
            "y2": {"field": "row_end"},
            "fill": _shade("fill"),
            "stroke": _shade("stroke"),
        },
    }
    lines = [
        {
            "data": {"values": [{channel: edge} for edge in edges]},
            "mark": {"type": "rule", "color": "#80808066", "strokeWidth": 0.7},
            "encoding": {axis_name: {"field": channel, "type": "quantitative"}},
        }
        for axis_name, channel in (("x", "column"), ("y", "row"))
    ]
    spec = {"config": CONFIG, "width": _SIDE, "height": _SIDE, "layer": [*lines, cells]}
    part = f"the first {shown} steps" if zoom_ms is None else f"the step from {low + first * step} ms"
    caption = (
        f"{name}: {part} of {_delays(about)} in d, {step} ms each; {about['elements']} of {about['matrix_size']}² "
        f"elements are not empty. White: a transition that was never seen."
    )
    return Figure(name=slug(name), title=f"State transition matrix of {name}", caption=caption, spec=spec)


def _delays(about: dict[str, Any]) -> int:
    """Quantization steps of the whole matrix."""
    low, high, step = about["delay_min_ms"], about["delay_max_ms"], about["quantization_ms"]
    return int((high - low + step) // step)


def _span(about: dict[str, Any], zoom_ms: int | None) -> tuple[int, int]:
    """The first step that is shown, and how many are."""
    if zoom_ms is None:
        return 0, min(STEPS, _delays(about))
    return (zoom_ms - about["delay_min_ms"]) // about["quantization_ms"], 1


def _shade(kind: str) -> Spec:
    legend = {"title": "probability", "type": "gradient", "format": "~g", "values": [1e-4, 1e-3, 1e-2, 0.1, 1]}
    scale = {"type": "log", "domain": [1e-4, 1], "clamp": True, "range": ["#cfe3f5", "#1c7fc7", "#0a1f44"]}
    shown = legend if kind == "fill" else None
    return {"field": "probability", "type": "quantitative", "scale": scale, "legend": shown}
