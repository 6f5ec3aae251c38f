"""The state transition matrix of a model, as Figs. 5 and 6 of the 2016 paper draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from verus import _verus
from verus.report.figures.chart import CONFIG, Figure, Spec, numbers, slug

#: Quantization steps that Figs. 5a and 6a show.
STEPS = 10

#: The most labels of an axis.
_MOST_TICKS = 12

#: The side of the picture, in pixels.
_SIDE = 620


#: The most elements of a picture that shows a whole matrix: a browser draws a mark for each.
_MOST_ELEMENTS = 20_000


def whole(path: Path, about: dict[str, Any]) -> list[Figure]:
    """All of the matrix in one picture, for zooming.

    If it has more elements than a browser draws at once: its diagonal, `STEPS` quantization steps a
    picture.
    """
    low, step, delays = about["delay_min_ms"], about["quantization_ms"], _delays(about)
    if about["elements"] <= _MOST_ELEMENTS:
        elements = _verus.model_region(str(path), 0, delays)
        return [_drawn(path.name, about, elements, 0, delays, zoomed=False)]
    figures: list[Figure] = []
    for first in range(0, delays, STEPS):
        shown = min(STEPS, delays - first)
        elements = _verus.model_region(str(path), first, shown)
        if len(elements["row"]):
            figure = _drawn(path.name, about, elements, first, shown, zoomed=False)
            title = f"From {low + first * step} ms to {low + (first + shown) * step} ms"
            figures.append(replace(figure, name=f"{figure.name}-{low + first * step}-ms", title=title))
    return figures


def matrix(path: Path, about: dict[str, Any], *, zoom_ms: int | None = None) -> Figure:
    """Present states down, next states across, darker for a greater probability (logarithmic).

    Args:
        path: The model.
        about: Its `_verus.model_info`.
        zoom_ms: Show only the quantization step of this delay, rather than the first ten.
    """
    first, shown = _span(about, zoom_ms)
    return region(path.name, about, _verus.model_region(str(path), first, shown), zoom_ms=zoom_ms)


def region(name: str, about: dict[str, Any], elements: Mapping[str, Any], *, zoom_ms: int | None = None) -> Figure:
    """The same figure, of elements that were read before.

    Args:
        name: The name of the model.
        about: Its `_verus.model_info`.
        elements: `row`, `column` and `probability` of the elements in the steps that are shown, as
            `_verus.model_region` counts them.
        zoom_ms: As for `matrix`.
    """
    first, shown = _span(about, zoom_ms)
    return _drawn(name, about, elements, first, shown, zoomed=zoom_ms is not None)


def _drawn(
    name: str, about: dict[str, Any], elements: Mapping[str, Any], first: int, shown: int, *, zoomed: bool
) -> Figure:
    low, step = about["delay_min_ms"], about["quantization_ms"]
    spec = {
        "config": CONFIG,
        "width": _SIDE,
        "height": _SIDE,
        "layer": [*_edges(about, shown), _cells(about, elements, first, shown, zoomed=zoomed)],
    }
    if zoomed:
        part = f"the step from {low + first * step} ms"
    else:
        part = f"the first {shown} steps" if first == 0 else f"the {shown} steps from {low + first * step} ms"
    caption = (
        f"{name}: {part} of {_delays(about)} in d, {step} ms each; {about['elements']} of {about['matrix_size']}² "
        f"elements are not empty. White: a transition that was never seen."
    )
    return Figure(name=slug(name), title=f"State transition matrix of {name}", caption=caption, spec=spec)


def _cells(about: dict[str, Any], elements: Mapping[str, Any], first: int, shown: int, *, zoomed: bool) -> Spec:
    """The elements, a square each, with the axes."""
    axis = _zoomed_axis(about) if zoomed else _axis(about, first, shown)
    states = shown * _windows(about)

    def side(field: str, name: str, orient: str) -> Spec:
        return {
            "field": field,
            "type": "quantitative",
            "scale": {"domain": [0, states], "nice": False, "reverse": field == "row"},
            "axis": {
                **axis,
                "title": f"{name} state: {axis['title']}",
                "orient": orient,
                "grid": False,
                "tickMinStep": 1,
            },
        }

    def state(field: str) -> str:
        at = f"datum.{field}"
        return f"'d ' + ({_delay_at(about, first, at)}) + ' ms, w ' + ({_window_at(about, at)})"

    columns = {
        "row": [int(at) for at in elements["row"]],
        "column": [int(at) for at in elements["column"]],
        "probability": numbers(elements["probability"]),
    }
    return {
        "data": {"values": [columns]},
        "transform": [
            {"flatten": ["row", "column", "probability"]},
            {"calculate": "datum.row + 1", "as": "row_end"},
            {"calculate": "datum.column + 1", "as": "column_end"},
            *({"calculate": state(field), "as": f"{field}_state"} for field in ("row", "column")),
        ],
        # Bars stay visible even with hundreds of states.
        "mark": {"type": "rect", "minBandSize": 1, "strokeWidth": 0.5 if _SIDE / states < 3 else 0},
        "encoding": {
            "x": side("column", "next", "top"),
            "x2": {"field": "column_end"},
            "y": side("row", "present", "left"),
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


def _axis(about: dict[str, Any], first: int, shown: int) -> Spec:
    """One label an interval of d, at its beginning; a page shows windows between these when zoomed."""
    windows = _windows(about)
    delay, window = _delay_at(about, first, "datum.value"), _window_at(about, "datum.value")
    return {
        "title": f"d, ms; in each interval w from {about['window_min_packets']} to {about['window_max_packets']}",
        "values": [at * windows for at in range(0, shown, -(-shown // _MOST_TICKS))],
        "labelExpr": f"datum.value % {windows} === 0 ? {delay} : 'w ' + ({window})",
    }


def _zoomed_axis(about: dict[str, Any]) -> Spec:
    """Labels of windows, within one interval of d."""
    windows = _windows(about)
    return {
        "title": "w, packets an epoch",
        "values": list(range(0, windows, max(1, windows // 12))),
        "labelExpr": f"datum.value + {about['window_min_packets']}",
    }


def _edges(about: dict[str, Any], shown: int) -> list[Spec]:
    """Lines between intervals of d, 40 at the most."""
    edges = [at * _windows(about) for at in range(0, shown + 1, -(-shown // 40))]
    return [
        {
            "data": {"values": [{channel: edge} for edge in edges]},
            "mark": {"type": "rule", "color": "#80808066", "strokeWidth": 0.7},
            "encoding": {axis: {"field": channel, "type": "quantitative"}},
        }
        for axis, channel in (("x", "column"), ("y", "row"))
    ]


def _delay_at(about: dict[str, Any], first: int, state: str) -> str:
    """The expression of a state's d, ms, from the expression of its number among the states that are shown."""
    low, step = about["delay_min_ms"], about["quantization_ms"]
    return f"{low + first * step} + floor({state} / {_windows(about)}) * {step}"


def _window_at(about: dict[str, Any], state: str) -> str:
    """The same expression of its w, packets."""
    return f"{about['window_min_packets']} + {state} % {_windows(about)}"


def _windows(about: dict[str, Any]) -> int:
    """States in one interval of d."""
    return int(about["window_max_packets"] - about["window_min_packets"] + 1)


def _delays(about: dict[str, Any]) -> int:
    """Quantization steps of the whole matrix."""
    low, high, step = about["delay_min_ms"], about["delay_max_ms"], about["quantization_ms"]
    return int((high - low + step) // step)


def _span(about: dict[str, Any], zoom_ms: int | None) -> tuple[int, int]:
    """The first step that is shown, and the number of steps."""
    if zoom_ms is None:
        return 0, min(STEPS, _delays(about))
    return (zoom_ms - about["delay_min_ms"]) // about["quantization_ms"], 1


def _shade(kind: str) -> Spec:
    legend = {"title": "probability", "type": "gradient", "format": "~g", "values": [1e-4, 1e-3, 1e-2, 0.1, 1]}
    scale = {"type": "log", "domain": [1e-4, 1], "clamp": True, "range": ["#cfe3f5", "#1c7fc7", "#0a1f44"]}
    shown = legend if kind == "fill" else None
    return {"field": "probability", "type": "quantitative", "scale": scale, "legend": shown}
