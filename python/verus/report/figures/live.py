"""A figure as a page shows it: names to click on above it in place of Vega's legend, and what the pointer is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.report.figures.chart import Figure, Spec

#: What the marks of one name have in common.
_KEYS = ("scheme", "name", "way")

#: Channels whose colours a legend shows.
_COLORS = ("color", "fill", "stroke")


def live(figure: Figure) -> dict[str, Any]:
    """`spec`, `legend` and, if it plays, `frames`, as `page.js` takes them.

    The specification leaves out what the parameter `hidden`, a list of names, holds.
    """
    spec = figure.spec if figure.on_page is None else figure.on_page
    entries: dict[str, dict[str, Any]] = {}
    made: dict[str, Any] = {"spec": _view(spec, [], entries), "legend": list(entries.values())}
    return made if figure.frames is None else {**made, "frames": figure.frames}


def _view(view: Spec, rows: Sequence[Mapping[str, Any]], entries: dict[str, dict[str, Any]]) -> Spec:
    rows = view.get("data", {}).get("values", rows)
    made = dict(view)
    for key in ("concat", "vconcat", "hconcat", "layer"):
        if key in view:
            made |= {key: [_view(part, rows, entries) for part in view[key]]}
    if "facet" in view:
        # A row of its own for each name goes with it.
        made |= {"transform": [_shown(view["facet"]["row"]["field"])], "spec": _view(view["spec"], rows, entries)}
    if "mark" not in view:
        return made
    encoding = {key: dict(told) if isinstance(told, dict) else told for key, told in view.get("encoding", {}).items()}
    mark = view["mark"]["type"] if isinstance(view["mark"], dict) else view["mark"]
    names = _legend(encoding, rows, entries, mark)
    if key := _key(names, rows):
        made["transform"] = [_shown(key), *view.get("transform", [])]
    if mark in ("point", "bar", "rect", "rule") and encoding and "tooltip" not in encoding:
        encoding["tooltip"] = _tooltip(encoding)
    if "encoding" in view:
        made["encoding"] = encoding
    return made


def _shown(key: str) -> Spec:
    return {"filter": f"indexof(hidden, datum['{key}']) < 0"}


def _key(names: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """By which field of the rows marks are left out; empty if they have no name."""
    if names:
        return names
    return next((key for key in _KEYS if rows and key in rows[0]), "")


def _legend(
    encoding: dict[str, Spec], rows: Sequence[Mapping[str, Any]], entries: dict[str, dict[str, Any]], mark: str
) -> str:
    """Notes the names of a layer with their looks, and takes Vega's legend of them; the field that holds them."""
    found = ""
    for channel in (*_COLORS, "strokeDash"):
        told = encoding.get(channel, {})
        scale = told.get("scale", {})
        if told.get("type") != "nominal" or told.get("field") not in (*_KEYS, "color"):
            continue
        if scale is None:
            _own_colors(channel, told["field"], encoding, rows, entries)
        elif "domain" in scale and "range" in scale:
            found = told["field"]
            look = "dash" if channel == "strokeDash" else "color"
            for name, value in zip(scale["domain"], scale["range"], strict=False):
                entries.setdefault(name, {"name": name})[look] = value
                if mark == "bar" or (mark == "point" and len(entries[name]) == 2):
                    entries[name].setdefault("shape", "square" if mark == "bar" else "circle")
                elif mark == "line":
                    entries[name].pop("shape", None)
            told["legend"] = None
    return found


def _own_colors(
    channel: str,
    field: str,
    encoding: Mapping[str, Spec],
    rows: Sequence[Mapping[str, Any]],
    entries: dict[str, dict[str, Any]],
) -> None:
    """The same where each row brings its colour, and perhaps its shape."""
    if channel != "stroke" or "shape" not in encoding:
        return
    for row in rows:
        entry = entries.setdefault(row["scheme"], {"name": row["scheme"], "color": row[field]})
        entry |= {"shape": row.get("shape", "circle"), "hollow": row.get("fill") == "transparent"}


def _tooltip(encoding: Mapping[str, Spec]) -> list[Spec]:
    """What a mark is and counts, by the titles of its axes."""
    fields: dict[str, str] = {}
    for channel in (*_COLORS, "x", "y", "text"):
        told = encoding.get(channel, {})
        if "field" in told and told.get("scale", {}) is not None and told["field"] not in fields:
            title = (told.get("axis") or told.get("legend") or {}).get("title")
            fields[told["field"]] = str(title or told["field"])
    return [{"field": field, "title": title} for field, title in fields.items()]
