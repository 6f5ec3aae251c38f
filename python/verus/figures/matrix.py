"""The state transition matrix of a model, as Figs. 5 and 6 of the 2016 paper draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from verus import _verus
from verus.figures.chart import CONFIG, Figure, Spec, numbers, slug

#: Quantization steps that Figs. 5a and 6a show.
STEPS = 10

#: Labels of an axis, at the most.
_MOST_TICKS = 12

#: The side of the picture, in pixels.
_SIDE = 620


#: The most elements of a picture that shows a whole matrix: a browser draws a mark for each.
_MOST_ELEMENTS = 20_000


def whole(path: Path, about: dict[str, Any]) -> list[Figure]:
    """All of the matrix in one picture, to look closer at.

    Of one with more elements than a browser draws at once, its diagonal, `STEPS` quantization steps a picture.
    """
    low, step, delays = about["delay_min_ms"], about["quantization_ms"], _delays(about)
    if about["elements"] <= _MOST_ELEMENTS:
        found = _verus.model_region(str(path), 0, delays)
        return [_drawn(path.name, about, found, 0, delays, zoomed=False)]
    figures: list[Figure] = []
    for first in range(0, delays, STEPS):
        shown = min(STEPS, delays - first)
        found = _verus.model_region(str(path), first, shown)
        if len(found["row"]):
            figure = _drawn(path.name, about, found, first, shown, zoomed=False)
            title = f"From {low + first * step} ms to {low + (first + shown) * step} ms"
            figures.append(replace(figure, name=f"{figure.name}-{low + first * step}-ms", title=title))
    return figures


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
    first, shown = _span(about, zoom_ms)
    return _drawn(name, about, found, first, shown, zoomed=zoom_ms is not None)


def _drawn(
    name: str, about: dict[str, Any], found: Mapping[str, Any], first: int, shown: int, *, zoomed: bool
) -> Figure:
    low, step = about["delay_min_ms"], about["quantization_ms"]
    windows = about["window_max_packets"] - about["window_min_packets"] + 1
    states = shown * windows
    size = _SIDE / states

    edges = [step_index * windows for step_index in range(0, shown + 1, -(-shown // 40))]
    if not zoomed:
        # One label an interval, at its beginning; looked at closer on a page, windows between these.
        delay = f"{low + first * step} + floor(datum.value / {windows}) * {step}"
        window = f"'w ' + ({about['window_min_packets']} + datum.value % {windows})"
        ticks, label = (
            [at * windows for at in range(0, shown, -(-shown // _MOST_TICKS))],
            f"datum.value % {windows} === 0 ? {delay} : {window}",
        )
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
                "tickMinStep": 1,
            },
        }

    x, y = axis("column", "next", "top"), axis("row", "present", "left")

    def state(field: str) -> str:
        at = f"datum.{field}"
        return (
            f"'d ' + ({low + first * step} + floor({at} / {windows}) * {step}) + ' ms, w ' + "
            f"({about['window_min_packets']} + {at} % {windows})"
        )

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
            *({"calculate": state(field), "as": f"{field}_state"} for field in ("row", "column")),
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
            "tooltip": [
                {"field": "row_state", "title": "from"},
                {"field": "column_state", "title": "to"},
                {"field": "probability", "type": "quantitative", "format": ".3~g"},
            ],
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
    if zoomed:
        part = f"the step from {low + first * step} ms"
    else:
        part = f"the first {shown} steps" if first == 0 else f"the {shown} steps from {low + first * step} ms"
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
