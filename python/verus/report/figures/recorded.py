"""Throughput of a recorded channel and delay of its packets over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.report.figures.chart import CONFIG, Figure, Spec, axis_of, colors_of, numbers

#: Colours of the two directions.
COLORS = {"down": "#1c7fc7", "up": "#d55e00"}

_WIDTH, _HEIGHT = 860, 190


def recorded(series: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Rate and one-way delay by time of arrival, both directions.

    Args:
        series: By direction, `rate_mbps` and `delay_ms` in bins of `bin_s`; None where nothing arrived.
    """
    panels = [
        _panel(series, "rate_mbps", "rate, Mbit/s"),
        _panel(series, "delay_ms", "one-way delay, ms"),
    ]
    width_s = next(iter(series.values()))["bin_s"]
    caption = (
        f"By time of arrival, in bins of {width_s * 1000:g} ms; all packets count for the rate, those with data for "
        "the delay, which assumes that the empty path is as long in both directions."
    )
    spec = {"config": CONFIG, "vconcat": panels, "spacing": 26}
    return Figure(name="recorded", title="Over time", caption=caption, spec=spec)


def _panel(series: Mapping[str, Mapping[str, Any]], key: str, title: str) -> Spec:
    data = [{"way": way, **_columns(found, key)} for way, found in series.items()]
    color = colors_of(
        "way", list(series), [COLORS[way] for way in series], orient="top", symbolType="stroke", symbolOpacity=1
    )
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": data},
        "transform": [{"flatten": ["t", "value"]}],
        "mark": {"type": "line", "strokeWidth": 1.2, "clip": True},
        "encoding": {
            "x": axis_of("t", "time, s", grid=False, scale={"nice": False}),
            "y": axis_of("value", title, tickCount=5),
            "color": color,
        },
    }


def _columns(columns: Mapping[str, Any], key: str) -> dict[str, Any]:
    values: Sequence[float | None] = columns[key]
    return {
        "t": numbers(index * columns["bin_s"] for index in range(len(values))),
        "value": numbers(float("nan") if value is None else value for value in values),
    }
