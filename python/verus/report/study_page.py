"""The page of a study: the effect of every setting on throughput and delay, and a table of all cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from verus.lab.atomic_write import replace_whole
from verus.lab.interval import interval_note
from verus.lab.repeats import note_of
from verus.lab.sweep import Folder, Plan, cells
from verus.report import figures, render
from verus.report.figures import Figure
from verus.report.grid import Cell as Text
from verus.report.grid import Grid, Line, note
from verus.report.numbers import DELAY_NOTE, number, percent
from verus.report.page import Page, Section, to_html
from verus.report.summary import short_names
from verus.report.table import DIFFERENCES, difference

#: Axes that identify a contestant; every other axis is a property of the path, and separates
#: panels.
_OF_SENDER = ("sender", "flows", "traffic")

#: The most panels of a figure, and names in it, that can be distinguished.
_MOST_PANELS = 12
_MOST_NAMES = 24

#: The most rows of a page's table; the dataset has all.
_MOST_ROWS = 1000

#: Metrics of each cell in the table, with their heads.
_SHOWN = {
    "throughput_mbps": "throughput\nMbit/s",
    "utilization": "used\n%",
    "qdelay_mean_ms": "delay mean\nms",
    "qdelay_p95_ms": "delay p95\nms",
    "signal_delay_p95_ms": "signal p95\nms",
    "loss_rate": "loss\n%",
}

#: Those whose difference from the first sender on the same path is also shown.
_ABOVE = {"throughput_mbps": "above first\nMbit/s", "qdelay_p95_ms": "above first\np95 ms"}

#: Further metrics in it where several flows share a link.
_OF_FLOWS = {"flow_min_mbps": "least flow\nMbit/s", "flow_max_mbps": "most\nMbit/s"}

#: Units of numeric axes.
_UNITS = {"ms": "ms", "s": "s", "bytes": "bytes", "mbps": "Mbit/s"}

#: The note for axes that do not begin at 0: senders that fill a link are near each other, far from
#: 0.
_NOT_FROM_0 = " Throughput axes do not begin at 0."

_Y = {"throughput": ("throughput_mbps", "throughput, Mbit/s"), "delay": ("qdelay_mean_ms", "queueing delay, ms")}

CellRow = dict[str, Any]


def write_study_page(folder: Folder) -> Path:
    """Draws `report.html` and `figures/` of a study from the runs that are done; returns the page's path.

    Raises:
        OSError: Something cannot be read.
        ValueError: The plan cannot be read, or no run is done.
    """
    plan = Plan.read(folder.plan_path)
    missing = folder.missing(plan)
    total = len(plan.distinct())
    if len(missing) == total:
        raise ValueError(f"`{folder.path}`: none of the {total} runs of the study is there: `verus sweep` runs them")
    failed = [
        one for one in folder.left_out() if one["run"] in range(len(plan.keys)) and plan.keys[one["run"]] in missing
    ]
    made = study_page(plan, list(cells(folder.so_far(plan))), total - len(missing), total, failed)
    path = folder.path / "report.html"
    with render.writing(list(made.figures()), folder.path / "figures"):
        replace_whole(path, to_html(made).encode())
    return path


def study_page(plan: Plan, all_cells: Sequence[CellRow], done: int, total: int, failed: Sequence[CellRow] = ()) -> Page:
    """The page of a study with `done` of `total` runs, averaged in `all_cells`; those in `failed` failed for good."""
    names = short_names(cell["trace"] for cell in all_cells)
    rows = [{**_with_sender(cell, plan.columns), "trace": names[cell["trace"]]} for cell in all_cells]
    axes = _varied(rows)
    parts: dict[str, list[CellRow]] = {}
    for cell in rows:
        parts.setdefault(cell["part"], []).append(cell)
    sections = []
    for name, part_rows in parts.items():
        before = f"{name}: " if name else ""
        for axis in (each for each in _varied(part_rows) if _is_number(part_rows, each)):
            both = [_by_axis(part_rows, axis, what, name) for what in _Y]
            sections.append(Section(title=f"{before}By {_word(axis)}", figures=both))
        sections.append(Section(title=f"{before}Delay against throughput", figures=[_tradeoff(part_rows, name)]))
    # A part in which no run delivered anything has no delay to draw.
    drawn = [[figure for figure in section.figures if figure.spec["concat"]] for section in sections]
    sections = [replace(section, figures=kept) for section, kept in zip(sections, drawn, strict=True) if kept]
    sections = [
        Section(title="The study", body=_about(plan, rows, axes, done, total) + _failed(failed)),
        *sections,
        Section(title="Results", body=_table(rows, axes)),
    ]
    state = f"{total} runs" if done == total else f"{done} of {total} runs, the others are missing"
    return Page(title=f"Verus: {plan.name}", lead=f"A study: {state}.", sections=sections)


def _with_sender(cell: CellRow, columns: Iterable[str]) -> CellRow:
    """A cell with its `sender`: the scheme with its keys, except those that are axes."""
    axes = {name.removeprefix("params.") for name in columns if cell[name] is not None}
    kept = [f"{key}={value}" for key, value in cell["params"].items() if key not in axes]
    return {**cell, "sender": " ".join([cell["scheme"], *kept])}


def _varied(rows: Sequence[CellRow]) -> list[str]:
    """The axes: columns that differ between cells, in their order, the sender first."""
    names = [name for name in rows[0] if name not in ("scheme", "params", "label", "seeds", "part", "sender")]
    candidates = ["sender", *(name for name in names if not any(isinstance(cell.get(name), dict) for cell in rows))]
    return [name for name in candidates if len({cell.get(name) for cell in rows}) > 1]


def _is_number(rows: Sequence[CellRow], axis: str) -> bool:
    values = {cell[axis] for cell in rows} - {None}
    return len(values) > 1 and all(type(value) in (int, float) for value in values)


def _word(axis: str) -> str:
    """An axis with its unit.

    Example:
        >>> _word("params.epoch_ms"), _word("flows")
        ('epoch, ms', 'flows')
    """
    name, _, unit = axis.removeprefix("params.").rpartition("_")
    return f"{name.replace('_', ' ')}, {_UNITS[unit]}" if name and unit in _UNITS else axis.removeprefix("params.")


def _text(axis: str, value: Any) -> str:
    if value is None:
        return ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown if isinstance(value, str) else f"{axis.removeprefix('params.')}={shown}"


def _name(cell: CellRow, axes: Iterable[str]) -> str:
    """The values of a cell on these axes, in words."""
    return " ".join(text for text in (_text(axis, cell[axis]) for axis in axes) if text)


def _split(axes: Iterable[str]) -> tuple[list[str], list[str]]:
    """The axes of the sender, and those of the path."""
    of_sender = [axis for axis in axes if axis in _OF_SENDER or axis.startswith("params.")]
    return of_sender, [axis for axis in axes if axis not in of_sender]


def _marks(rows: Sequence[CellRow], axes: Sequence[str]) -> tuple[list[tuple[CellRow, str, str]], str]:
    """Each cell that is drawn, with its name and its panel; and a note about the others."""
    names, panels = _split(axes)
    marks = [(cell, _name(cell, names) or cell["sender"], _name(cell, panels) or cell["trace"]) for cell in rows]
    first = list(dict.fromkeys(panel for _, _, panel in marks))
    drawn = list(dict.fromkeys(name for _, name, _ in marks))
    notes = []
    for what, distinct, most in (("panels", first, _MOST_PANELS), ("names", drawn, _MOST_NAMES)):
        if len(distinct) > most:
            notes.append(f" The first {most} of {len(distinct)} {what}; the table has all.")
    kept = [mark for mark in marks if mark[1] in drawn[:_MOST_NAMES] and mark[2] in first[:_MOST_PANELS]]
    return kept, "".join(notes)


def _ends(mean: Mapping[str, float | None], low: str, high: str) -> dict[str, float]:
    """The ends of a mean's interval, under these names, if it has one."""
    middle, half_width = mean["mean"], mean["half_width_95"]
    assert middle is not None  # a metric that no run observed has no entry
    return {} if half_width is None else {low: max(middle - half_width, 0.0), high: middle + half_width}


def _by_axis(part_rows: Sequence[CellRow], axis: str, what: str, part: str) -> Figure:
    """A line for each sender, over the values of an axis."""
    metric, title = _Y[what]
    marks, left = _marks(part_rows, [each for each in _varied(part_rows) if each != axis])
    drawn = [mark for mark in marks if metric in mark[0] and mark[0][axis] is not None]
    values = sorted({mark[0][axis] for mark in drawn})
    rows = [
        {
            "name": name,
            "panel": panel,
            "x": float(cell[axis]),
            "y": cell[metric]["mean"],
            **_ends(cell[metric], "low", "high"),
        }
        for cell, name, panel in sorted(drawn, key=lambda mark: float(mark[0][axis]))
    ]
    return figures.lines(
        rows,
        name="-".join(figures.slug(text) for text in (what, "by", axis, part) if text),
        title=f"{what.capitalize()} by {_word(axis)}",
        caption=_caption(part_rows) + (_NOT_FROM_0 if what == "throughput" else "") + left,
        x=_word(axis),
        y=title,
        zero=what != "throughput",
        log_x=len(values) > 2 and values[0] > 0 and values[-1] >= 10 * values[0],
        dots=True,
        columns=2,
        size=(440, 260),
    )


def _tradeoff(part_rows: Sequence[CellRow], part: str) -> Figure:
    """A point for each cell: delay across, throughput upwards."""
    marks, left = _marks(part_rows, _varied(part_rows))
    rows = [
        {
            "name": name,
            "panel": panel,
            "x": cell["qdelay_mean_ms"]["mean"],
            "y": cell["throughput_mbps"]["mean"],
            **_both(cell),
        }
        for cell, name, panel in marks
        if "qdelay_mean_ms" in cell
    ]
    return figures.points(
        rows,
        name="-".join(figures.slug(text) for text in ("delay-throughput", part) if text),
        title=f"{part}: Delay against throughput" if part else "Delay against throughput",
        caption=_caption(part_rows) + " Up and left is better." + left,
        x="queueing delay, ms",
        y="throughput, Mbit/s",
        columns=2,
        size=(440, 260),
        mark_size=60,
    )


def _both(cell: CellRow) -> dict[str, float]:
    """The ends of both intervals, or of neither."""
    ends = {
        **_ends(cell["qdelay_mean_ms"], "x_low", "x_high"),
        **_ends(cell["throughput_mbps"], "y_low", "y_high"),
    }
    return ends if len(ends) == 4 else {}


def _caption(rows: Sequence[CellRow]) -> str:
    seeds = sorted({len(cell["seeds"]) for cell in rows})
    if seeds == [1]:
        return "One seed each, so no intervals. Delay is the mean time in the bottleneck queue."
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"Means over {count} seeds; lines through them are 95 % confidence intervals (Student's t). "
        "Delay is the mean time in the bottleneck queue."
    )


def _about(plan: Plan, all_cells: Sequence[CellRow], axes: Sequence[str], done: int, total: int) -> Markup:
    rows: list[Line] = []
    for axis in axes:
        values = list(dict.fromkeys(cell[axis] for cell in all_cells if cell[axis] is not None))
        texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        shown = ", ".join(texts[:40]) + (f" and {len(texts) - 40} more" if len(texts) > 40 else "")
        rows.append([_word(axis), str(len(values)), Text(shown, "text")])
    seeds = sorted({seed for cell in all_cells for seed in cell["seeds"]})
    shown = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    rows.append(["seed", str(len(seeds)), Text(shown, "text")])
    words = f"{done} of {total} runs are done, in {len(all_cells)} cells, by the engine {plan.engine}."
    if done < total:
        words += (
            f" {total - done} runs are missing: means are over the seeds that are done, and settings of which no run "
            "is done are left out. `verus sweep` does the rest."
        )
    return Grid(heads=["axis", "values", ""], rows=rows).html() + note(words)


def _failed(failed: Sequence[CellRow]) -> Markup:
    """Runs that failed for good, by name."""
    if not failed:
        return Markup()
    rows: list[Line] = [
        [
            one["scheme"],
            Text(one["trace"], "text"),
            Text(one["queue"], "text"),
            one["seed"],
            Text(one["problem"], "text"),
        ]
        for one in failed[:_MOST_ROWS]
    ]
    return Grid(heads=["failed", "channel", "queue", "seed", ""], rows=rows).html()


def _table(part_rows: Sequence[CellRow], axes: Sequence[str]) -> Markup:
    named = (["part"] if len({cell["part"] for cell in part_rows}) > 1 else []) + list(axes) or ["sender"]
    compared = any("above" in cell and len(cell["seeds"]) > 1 for cell in part_rows)
    columns = _SHOWN | (_OF_FLOWS if any(cell["flows"] > 1 for cell in part_rows) else {})
    body = []
    for cell in part_rows[:_MOST_ROWS]:
        texts = [cell[axis] for axis in named]
        shown = ["" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in texts]
        above = [difference(cell.get("above", {}).get(name), DIFFERENCES[name][1]) for name in _ABOVE if compared]
        body.append([*shown, *(_value(cell, metric) for metric in columns), *above, str(len(cell["seeds"]))])
    heads = [*map(_word, named), *columns.values()]
    heads += [*(_ABOVE.values() if compared else ()), "seeds"]
    words = DELAY_NOTE
    if any(cell[name]["half_width_95"] is not None for cell in part_rows for name in columns if name in cell):
        words += f" {interval_note()}"
    if compared:
        words += (
            f" The first is the first sender on the same path. {note_of(cell.get('above', {}) for cell in part_rows)}"
        )
    if len(part_rows) > _MOST_ROWS:
        words += f" The first {_MOST_ROWS} of {len(part_rows)} cells; `verus sweep --json` prints all."
    return Grid(heads=heads, rows=body).html() + note(words)


def _value(cell: CellRow, metric: str) -> str:
    """A mean with half of its interval."""
    mean = cell.get(metric)
    if mean is None or not math.isfinite(mean["mean"]):
        return "–"

    def shown(value: float) -> str:
        if metric in ("utilization", "loss_rate"):
            return percent(value)
        return number(value, 2 if metric.endswith("_mbps") else 1)

    half_width = mean["half_width_95"]
    return shown(mean["mean"]) + ("" if half_width is None else f" ± {shown(half_width)}")
