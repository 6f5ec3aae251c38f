"""A figure as a page shows it: Vega-Lite's selections, by legend and by pointer, and tooltips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from verus.report.figures.chart import Figure, Spec

#: Channels whose colours a legend shows.
_COLORS = ("color", "fill", "stroke")


class _View(NamedTuple):
    """A view of one mark, the rows that it draws, and whether it is repeated for each of several names."""

    spec: Spec
    rows: Sequence[Mapping[str, Any]]
    again: bool = False


def live(figure: Figure) -> dict[str, Any]:
    """`spec` and, if it plays, `frames`, as `page.js` takes them."""
    spec = _copied(figure.spec if figure.on_page is None else figure.on_page)
    panels = spec.get("concat") or spec.get("vconcat") or [spec]
    views = [list(_views(panel, spec.get("data", {}).get("values", ()))) for panel in panels]
    params = [_name([view for own in views for view in own])]
    for view, *_ in (view for own in views for view in own):
        encoding = view.get("encoding", {})
        if _mark(view)["type"] in ("point", "bar", "rect", "rule") and encoding and "tooltip" not in encoding:
            encoding["tooltip"] = _tooltip(encoding)
    if "vconcat" in spec:  # panels below each other share the horizontal axis
        params.append(_zoom("zoom", views, ("x",)))
    else:
        params += [_zoom(f"zoom{index}", [own], ("x", "y")) for index, own in enumerate(views)]
    spec["params"] = [*spec.get("params", []), *filter(None, params)]
    return {"spec": spec} if figure.frames is None else {"spec": spec, "frames": figure.frames}


def _copied(value: Any) -> Any:
    """A deep copy, which shares only the rows."""
    if isinstance(value, Mapping):
        return {key: part if key == "values" else _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list | tuple) else value


def _views(view: Spec, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> Iterator[_View]:
    """The views of one mark in a panel."""
    rows = view.get("data", {}).get("values", rows)
    for part in view.get("layer", ()):
        yield from _views(part, rows, again=again)
    if "spec" in view:
        yield from _views(view["spec"], rows, again=True)
    if "mark" in view:
        yield _View(view, rows, again)


def _mark(view: Spec) -> Spec:
    if isinstance(view["mark"], str):
        view["mark"] = {"type": view["mark"]}
    mark: Spec = view["mark"]
    return mark


def _name(views: Sequence[_View]) -> Spec | None:
    """Lets a legend choose the names that are drawn: one click, one name; with Shift, another."""
    legends: list[tuple[bool, Spec, str]] = []
    for view, rows, again in views:
        for channel in _COLORS:
            encoding = view.get("encoding", {}).get(channel, {})
            if channel == "stroke" and encoding.get("scale", 0) is None and rows and "scheme" in rows[0]:
                for look in ("stroke", "fill", "shape"):
                    _by_scheme(view["encoding"].get(look, {}), views)
            if encoding.get("type") == "nominal" and encoding.get("legend") and "domain" in encoding["scale"]:
                legends.append((again, view, encoding["field"]))
    if not legends:
        return None
    named = legends[0][2]
    again, chosen, _ = min((one for one in legends if one[2] == named), key=lambda one: one[0])
    # A repeated view selects once per copy, and would undo its own toggle.
    select = {"type": "point", "fields": [named], **({"toggle": False} if again else {})}
    for view, rows, rowed in views:
        if rows and named in rows[0] and rowed:  # its row keeps its place
            view["encoding"]["opacity"] = {"condition": {"param": "named", "value": 1}, "value": 0.1}
        elif rows and named in rows[0]:
            view["transform"] = [{"filter": {"param": "named"}}, *view.get("transform", [])]
    return {"name": "named", "select": select, "bind": "legend", "views": [chosen.setdefault("name", "legend")]}


def _by_scheme(encoding: Spec, views: Sequence[_View]) -> None:
    """Turns a colour, dash or shape that each row states into a scale over schemes.

    A legend shows one symbol for all scales that have the same domain.
    """
    if encoding.get("scale", 0) is not None:
        return
    field = encoding["field"]
    values = {row["scheme"]: row[field] for _, rows, _ in views for row in rows if field in row}
    scale = {"domain": list(values), "range": list(values.values())}
    encoding |= {"field": "scheme", "scale": scale, "legend": {"title": None, "orient": "top", "columns": 6}}


def _zoom(name: str, panels: Sequence[Sequence[_View]], channels: Sequence[str]) -> Spec | None:
    """Moves and scales panels together: by a drag and by the wheel with Ctrl; a double click shows all again."""
    chosen: list[str] = []
    encodings: set[str] = set()
    for own in panels:
        numeric = [
            (view, [channel for channel in channels if _is_number(view, channel)]) for view, rows, _ in own if rows
        ]
        largest = max(numeric, key=lambda each: len(each[1]), default=None)
        if largest is None or not largest[1]:
            continue
        view, numbers = largest
        chosen.append(view.setdefault("name", f"{name}_{len(chosen)}"))
        encodings |= set(numbers)
        for other, *_ in own:
            fields = [other["encoding"][channel]["field"] for channel in numbers if _is_number(other, channel)]
            # Marks are clipped at the edges only after a move, since titles are outside of them.
            cut = {"expr": " || ".join(f"!!{name}['{field}']" for field in fields)} if fields else False
            _mark(other).setdefault("clip", cut)
    if not chosen:
        return None
    wheel = "wheel![event.ctrlKey || event.metaKey]"
    select = {"type": "interval", "encodings": sorted(encodings), "zoom": wheel}
    return {"name": name, "select": select, "bind": "scales", "views": chosen}


def _is_number(view: Spec, channel: str) -> bool:
    encoding = view.get("encoding", {}).get(channel, {})
    return encoding.get("type") == "quantitative" and "field" in encoding and encoding.get("scale", {}) is not None


def _tooltip(encoding: Mapping[str, Spec]) -> list[Spec]:
    """The tooltip of a mark: its values, by the titles of their axes."""
    fields: dict[str, str] = {}
    for channel in (*_COLORS, "x", "y", "text"):
        definition = encoding.get(channel, {})
        if "field" in definition and definition.get("scale", {}) is not None and definition["field"] not in fields:
            title = (definition.get("axis") or definition.get("legend") or {}).get("title")
            fields[definition["field"]] = str(title or definition["field"])
    return [{"field": field, "title": title} for field, title in fields.items()]
