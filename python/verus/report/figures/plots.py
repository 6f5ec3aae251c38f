"""Points, lines, bars and maps in panels, for the figures of the papers.

Each takes plain rows, one dictionary for each mark, and draws a panel for each title in them.
Colours depend on names (`style.named`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, Unpack

from verus.report.figures.chart import Figure, Spec, axis_of, colors_of, grid, heading, log_title, short
from verus.report.style import dashes, named

Rows = Sequence[Mapping[str, Any]]


class Words(TypedDict):
    """The name and the texts of a figure, and the layout of its panels.

    Attributes:
        name: The name of the file.
        title: One line.
        caption: The runs, and the quantities on the axes.
        x: Title of the axis across, with its unit.
        y: Title of the axis upwards, likewise.
        columns: Panels beside each other.
        size: The size of a panel, in pixels.
    """

    name: str
    title: str
    caption: str
    x: str
    y: str
    columns: NotRequired[int]
    size: NotRequired[tuple[int, int]]


#: The colour of an area behind lines; translucent, so that the grid is seen.
_SHADE = "#80808040"
#: The most values that an axis labels one by one.
_FEW = 8


def _color(names: Sequence[str]) -> Spec:
    colors = named(names)
    return {**colors_of("name", colors, colors.values()), "sort": None}


def _strokes(names: Sequence[str]) -> Spec:
    """Dashes of lines, if there are more of these than colours: a channel of the encoding, or none."""
    strokes = dashes(named(names))
    if not any(strokes.values()):
        return {}
    scale = {"domain": list(strokes), "range": [list(dash) or [1, 0] for dash in strokes.values()]}
    return {"strokeDash": {"field": "name", "type": "nominal", "scale": scale, "legend": {"title": None}, "sort": None}}


def _axis(
    field: str, title: str, *, log: bool = False, zero: bool = True, domain: Sequence[float] | None = None
) -> Spec:
    scale: Spec = {"type": "log", "nice": False} if log else {"zero": zero, "nice": domain is None}
    if domain is not None:
        scale["domain"] = list(domain)
    axis: Spec = {"title": log_title(title) if log else title, "tickCount": 6}
    if log:
        axis["format"] = "~r"
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


#: The layout of panels whose marks have colours by name.
_BY_NAME = {"spacing": {"row": 92, "column": 78}, "resolve": {"scale": {"color": "shared", "fill": "shared"}}}


def _figure(
    words: Words,
    rows: Rows,
    drawn: Callable[[list[Mapping[str, Any]]], Spec],
    *,
    size: tuple[int, int],
    columns: int = 2,
    layout: Spec = _BY_NAME,
) -> Figure:
    """A panel for each title in the rows; `drawn` makes the layers and the data of a panel from its rows."""
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        panels.setdefault(row.get("panel", ""), []).append(
            {key: short(value) if isinstance(value, float) else value for key, value in row.items()}
        )
    width, height = words.get("size", size)
    specs = [{"width": width, "height": height, **drawn(panel_rows)} for panel_rows in panels.values()]
    for spec, title in zip(specs, panels, strict=True):
        spec["layer"] += heading(title)
    spec = {**grid(specs, columns=words.get("columns", columns)), **layout}
    return Figure(name=words["name"], title=words["title"], caption=words["caption"], spec=spec)


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["name"] for row in rows))


def points(
    rows: Rows,
    *,
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = True,
    mark_size: int = 42,
    **words: Unpack[Words],
) -> Figure:
    """A point for each row: `name`, `x`, `y`, and `panel` if there are several.

    Rows that have `x_low`, `x_high`, `y_low` and `y_high` are drawn with these intervals.

    Args:
        rows: The marks.
        log_x: Whether the axis across is logarithmic.
        log_y: Whether the axis upwards is logarithmic.
        zero: Whether linear axes begin at 0.
        mark_size: The size of a point, in square pixels.
        **words: Name, texts and layout.
    """
    color = _color(_names(rows))
    across = _axis("x", words["x"], log=log_x, zero=zero)
    up = _axis("y", words["y"], log=log_y, zero=zero)
    tooltip = [{"field": key} for key in ("name", "x", "y")]

    def drawn(panel_rows: Rows) -> Spec:
        points = {
            "mark": {"type": "point", "filled": True, "size": mark_size, "opacity": 0.75},
            "encoding": {"x": across, "y": up, "color": color, "tooltip": tooltip},
        }
        intervals = _intervals(across, up, color) if any("x_low" in row for row in panel_rows) else []
        return {"data": {"values": panel_rows}, "layer": [points, *intervals]}

    return _figure(words, rows, drawn, size=(380, 260))


def _intervals(across: Spec, up: Spec, color: Spec) -> list[Spec]:
    """A thin line through every point along each axis, from the lower to the upper end of its interval."""
    mark = {"type": "rule", "strokeWidth": 1, "opacity": 0.6}
    return [
        {
            "mark": mark,
            "encoding": {"x": {**across, "field": "x_low"}, "x2": {"field": "x_high"}, "y": up, "color": color},
        },
        {
            "mark": mark,
            "encoding": {"x": across, "y": {**up, "field": "y_low"}, "y2": {"field": "y_high"}, "color": color},
        },
    ]


def lines(
    rows: Rows,
    *,
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = True,
    y_domain: tuple[float, float] | None = None,
    step: bool = False,
    shade: str = "",
    dots: bool = False,
    **words: Unpack[Words],
) -> Figure:
    """A line for each name: rows with `name`, `x`, `y`, `panel` if there are several, `low` and `high` of an interval.

    Args:
        rows: The points of the lines, in order.
        log_x: Whether the axis across is logarithmic.
        log_y: Whether the axis upwards is logarithmic.
        zero: Whether linear axes begin at 0.
        y_domain: The range of the axis upwards, the same in all panels; fitted to the values if
            None.
        step: Whether a value holds until the next.
        shade: The name that is drawn as a grey area behind the others (a link's capacity).
        dots: Whether each value is marked.
        **words: Name, texts and layout.
    """
    names = [each for each in _names(rows) if each != shade]
    color, strokes = _color(names), _strokes(names)
    # The shade has a separate scale and legend: a square, beside the strokes of the lines.
    fill = colors_of("name", [shade], [_SHADE], symbolType="square")
    up = _axis("y", words["y"], log=log_y, zero=zero, domain=y_domain)
    line: Spec = {"type": "line", "strokeWidth": 1.6, "interpolate": "step-after" if step else "linear", "clip": True}
    if dots:
        line["point"] = {"size": 30}

    def drawn(panel_rows: Rows) -> Spec:
        across = _axis("x", words["x"], log=log_x, zero=False)
        across["scale"]["nice"] = False
        if dots:
            # No mark is cut at the edge, and few values are all labelled.
            across["scale"]["padding"] = 8
            distinct = sorted({row["x"] for row in panel_rows})
            across["axis"] |= {"format": "~r"} | ({"values": distinct} if len(distinct) <= _FEW else {})
        layers: list[Spec] = []
        if behind := [row for row in panel_rows if row["name"] == shade]:
            layers.append(
                {
                    "data": {"values": behind},
                    "mark": {"type": "area", "opacity": 1, "interpolate": "step-after"},
                    "encoding": {"x": across, "y": up, "fill": fill},
                }
            )
        layers.append(
            {
                "data": {"values": [row for row in panel_rows if row["name"] != shade]},
                "mark": line,
                "encoding": {"x": across, "y": up, "color": color, **strokes, "order": {"field": "x"}},
            }
        )
        if between := [row for row in panel_rows if "low" in row]:
            ends = {"y": {**up, "field": "low"}, "y2": {"field": "high"}}
            layers.append(
                {
                    "data": {"values": between},
                    "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7},
                    "encoding": {"x": across, **ends, "color": color},
                }
            )
        return {"layer": layers}

    return _figure(words, rows, drawn, size=(860, 190), columns=1)


def bars(
    rows: Rows,
    *,
    stacked: bool = False,
    **words: Unpack[Words],
) -> Figure:
    """Bars beside each other: rows with `group` (across), `name`, `y`, `panel`, and `low` and `high` of an interval.

    Args:
        rows: The bars.
        stacked: Whether rows of the same group and name (one a `part`) are stacked.
        **words: Name, texts and layout.
    """
    names = _names(rows)
    beside = {"field": "name", "type": "nominal", "sort": names}
    up, color = axis_of("y", words["y"], tickCount=6), _color(names)
    mark: Spec = {"type": "bar"}
    if stacked:
        mark |= {"stroke": "white", "strokeWidth": 0.7}

    def drawn(panel_rows: Rows) -> Spec:
        groups = list(dict.fromkeys(str(row["group"]) for row in panel_rows))
        across = {
            "field": "group",
            "type": "nominal",
            "sort": groups,
            "axis": {"title": words["x"] or None, "labelAngle": 0 if len(groups) < 6 else -25, "labelLimit": 150},
        }
        bar: Spec = {"x": across, "xOffset": beside, "y": up, "color": color}
        if stacked:
            bar["detail"] = {"field": "part"}
        layers: list[Spec] = [{"mark": mark, "encoding": bar}]
        if any("low" in row for row in panel_rows):
            ends = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
            layers.append({"mark": {"type": "rule"}, "encoding": {"x": across, "xOffset": beside, **ends}})
        return {"data": {"values": [{**row, "group": str(row["group"])} for row in panel_rows]}, "layer": layers}

    return _figure(words, rows, drawn, size=(400, 240))


def _around(middle: float, values: Sequence[float], *, log: bool) -> list[float]:
    """The range that holds all values, with `middle` in its middle.

    Example:
        >>> _around(1.0, [0.5, 3.0], log=False), _around(1.0, [0.25, 2.0], log=True)
        ([-1.0, 3.0], [0.25, 4.0])
    """
    if log:
        reach = max(max(value / middle, middle / value) for value in values)
        return [middle / reach, middle * reach]
    reach = max(abs(value - middle) for value in values)
    return [middle - reach, middle + reach]


def heat(
    rows: Rows,
    *,
    value: str,
    middle: float | None = None,
    log: bool = False,
    digits: int = 2,
    **words: Unpack[Words],
) -> Figure:
    """A coloured cell for each row: `x` and `y` as categories, `value`, and `panel`; the number is written in it.

    Args:
        rows: The cells.
        value: The name of the coloured quantity.
        middle: The value that is drawn white, if the colours diverge from it.
        log: Whether colours depend on the value's logarithm.
        digits: Decimals of the numbers.
        **words: Name, texts and layout.
    """
    # Pale enough for the numbers in the cells; diverging colours reach equally far on both sides of
    # the middle.
    scale: Spec = {"type": "log" if log else "linear", "scheme": {"name": "blues", "extent": [0, 0.6]}}
    legend: Spec = {"title": value}
    if middle is not None:
        low, high = _around(middle, [row["value"] for row in rows], log=log)
        scale |= {"scheme": {"name": "redblue", "extent": [0.2, 0.8]}, "domain": [low, high]}
        legend |= {"values": [low, middle, high], "format": ".2~g"}
    at = {
        "x": {"field": "x", "type": "ordinal", "sort": None, "axis": {"title": words["x"], "labelAngle": 0}},
        "y": {"field": "y", "type": "ordinal", "sort": None, "axis": {"title": words["y"]}},
    }
    color = {"field": "value", "type": "quantitative", "scale": scale, "legend": legend}
    text = {"field": "value", "type": "quantitative", "format": f".{digits}f"}
    letters = {"type": "text", "fontSize": 10, "color": "#1b1f24"}

    def drawn(panel_rows: Rows) -> Spec:
        cells = {"mark": "rect", "encoding": {**at, "color": color}}
        return {"data": {"values": panel_rows}, "layer": [cells, {"mark": letters, "encoding": {**at, "text": text}}]}

    return _figure(words, rows, drawn, size=(300, 220), layout={})
