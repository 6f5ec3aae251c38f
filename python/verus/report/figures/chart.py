"""Parts of every figure: its data, its look, its axes and its caption."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from verus.lab.results import Results
from verus.report.style import Look
from verus.report.summary import Block

Spec = dict[str, Any]
Floats = npt.NDArray[np.float64]

#: The most bins of a curve; a longer series is averaged into these.
MOST_BINS = 240

#: The same on a page, which has zoom.
PAGE_BINS = 600

#: The end of every caption about delay.
DELAY = "Delay is time in the bottleneck queue; propagation is not in it."
LIVE_DELAY = "Delay is one-way delay above the least of the run: the bottleneck of a live path cannot be observed."

#: The size of a panel where three are side by side, in pixels.
PANEL_WIDTH, PANEL_HEIGHT = 280, 220

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
    """A picture, its texts, and the numbers in it.

    Attributes:
        name: File name without its ending.
        title: One line.
        caption: The runs, and the quantities on the axes.
        spec: Vega-Lite, with its data.
        on_page: The specification for a page, where that shows more than a picture can.
        frames: Data of an animation on a page, without a file beside it. It has `start`, `end` and
            `step` of the time in seconds, `snapshots` (each with `points` and `curves` at a time
            `t`) and `now`, the data for every moment. The specification then has data of these
            names (`points`, `curves`, `now`).
    """

    name: str
    title: str
    caption: str
    spec: Spec
    on_page: Spec | None = None
    frames: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A panel with a logarithmic horizontal and a linear vertical axis, which maps values to pixels.

    Attributes:
        x_domain: Least and greatest value shown across.
        y_domain: Likewise upwards.
        width: In pixels.
        height: In pixels.
    """

    x_domain: tuple[float, float]
    y_domain: tuple[float, float]
    width: int = PANEL_WIDTH
    height: int = PANEL_HEIGHT

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Pixels from the left and the top.

        Example:
            >>> Frame(x_domain=(1, 100), y_domain=(0, 2), width=200, height=100).pixel(10, 0.5)
            (100.0, 75.0)
        """
        low, high = (math.log10(edge) for edge in self.x_domain)
        inside = min(max(x, self.x_domain[0]), self.x_domain[1])
        across = (math.log10(inside) - low) / (high - low)
        up = (y - self.y_domain[0]) / (self.y_domain[1] - self.y_domain[0])
        return self.width * across, self.height * (1 - up)

    def x(self, field: str, title: str) -> Spec:
        """The horizontal axis, for an encoding."""
        axis = {"title": log_title(title), "format": "~r", "values": decades(*self.x_domain), "grid": True}
        scale = {"type": "log", "domain": list(self.x_domain), "nice": False}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}

    def y(self, field: str, title: str) -> Spec:
        """The vertical axis, for an encoding."""
        scale = {"domain": list(self.y_domain), "zero": False, "nice": False}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": title, "tickCount": 5}}


def slug(text: str) -> str:
    """A text as part of a file name.

    Example:
        >>> slug("red:min=375000,p=0.1")
        'red-min-375000-p-0.1'
    """
    kept = "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in text)
    return "-".join(part for part in kept.split("-") if part)


def conditions(results: Results, blocks: Sequence[Block], *, queueing: bool = True) -> str:
    """The runs, in a sentence or two, for captions; with `queueing`, also the definition of delay."""
    row = results.rows.slice(blocks[0].cells[0].runs[0], 1).to_pylist()[0]
    flows = sorted({cell.flows for block in blocks for cell in block.cells})
    queues = list(dict.fromkeys(block.queue for block in blocks))
    seeds = results.config["seeds"]
    base_rtt = results.base_rtt([run for block in blocks for cell in block.cells for run in cell.runs])
    parts = [
        "Measured over a live path" if results.live else "Emulated in real time" if results.emulated else "Simulated",
        f"{row['duration_s']:.4g} s" if results.live or results.emulated else f"{row['duration_s']:g} s",
        "one flow" if flows == [1] else f"{' or '.join(map(str, flows))} flows",
    ]
    if results.live:
        parts.append(f"packets of {row['packet_bytes']} bytes")
    else:
        parts += [
            *([f"base RTT {base_rtt}"] if base_rtt else []),
            *([] if results.emulated else [f"acknowledgements: {row['ack']}"]),
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
    sentences = [", ".join(parts) + "."]
    if results.emulated:
        sentences.append("All packets of a direction are one flow.")
    elif not results.live:
        sentences.append("Data crosses the trace named.")
    if queueing:
        sentences.append(LIVE_DELAY if results.live else DELAY)
    return " ".join(sentences)


def heading(title: str, subtitle: str = "") -> list[Spec]:
    """A panel's title as text at a fixed place, so that neighbours line up whatever the size of their axes."""
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


def decades(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: 1, 3, 10, 30 and so on, or 1, 2, 5 where those would be too few.

    Example:
        >>> decades(1, 100), decades(90, 1200)
        ([1.0, 3.0, 10.0, 30.0, 100.0], [100.0, 200.0, 500.0, 1000.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) > 3:
            break
    return ticks


def log_title(title: str) -> str:
    """The title of a logarithmic axis.

    Example:
        >>> log_title("queueing delay, ms")
        'queueing delay, ms (log scale)'
    """
    return f"{title} (log scale)"


def axis_of(field: str, title: str | None, *, scale: Spec | None = None, **axis: Any) -> Spec:
    """An axis of numbers, for an encoding; `scale` and `axis` as Vega-Lite has them."""
    made: Spec = {"field": field, "type": "quantitative", "axis": {"title": title, **axis}}
    return made if scale is None else {**made, "scale": scale}


def colors_of(field: str, domain: Iterable[str], range: Iterable[str], **legend: Any) -> Spec:
    """Colours by name, for an encoding, and a legend without a title."""
    scale = {"domain": list(domain), "range": list(range)}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": None, **legend}}


def scheme_encoding(labels: Sequence[str], style: dict[str, Look]) -> tuple[Spec, Spec]:
    """Colour and dash of lines by scheme, with one legend."""
    field = {"field": "scheme", "type": "nominal"}
    colors = [style[label].color for label in labels]
    dashes = [list(style[label].dash) or [1, 0] for label in labels]
    legend = {"title": None, "orient": "top", "symbolType": "stroke", "symbolOpacity": 1, "columns": 6}
    return (
        {**field, "scale": {"domain": list(labels), "range": colors}, "legend": legend},
        {**field, "scale": {"domain": list(labels), "range": dashes}, "legend": legend},
    )


def floats(table: Any, name: str) -> Floats:
    """A column as floats, null as NaN; all NaN if the column is absent."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = table.column(name).combine_chunks()
    values: Floats = np.asarray(column.to_numpy(zero_copy_only=False), dtype=float)
    return values


def grouped(values: Floats, group: npt.NDArray[np.intp], count: int, weights: Floats | None = None) -> Floats:
    """The mean of each group, by weight if given, without NaNs; NaN for a group without values."""
    finite = np.isfinite(values)
    weight = np.where(finite, 1.0 if weights is None else np.nan_to_num(weights) + 1e-9, 0.0)
    total = np.bincount(group, weights=weight, minlength=count)
    added = np.bincount(group, weights=np.where(finite, values, 0.0) * weight, minlength=count)
    means: Floats = np.divide(added, total, out=np.full(count, np.nan), where=total > 0)
    return means


def numbers(values: Iterable[float]) -> list[float | None]:
    """Values for a figure: short, and null where nothing was observed."""
    return [short(value) for value in values]


def short(value: float | None) -> float | None:
    """Four significant digits: what a figure can show, in few bytes."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}")
