"""The page of a check, and the folder that keeps its verdicts."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from verus import _verus
from verus.lab.atomic_write import replace_whole
from verus.lab.bounded_reading import MOST_LINES, content
from verus.lab.metric_rows import CHECK, SCHEMA, machine
from verus.lab.results_folder import read_config
from verus.report.figures import Figure, heat
from verus.report.grid import Cell, Grid, Line, note, paragraphs
from verus.report.page import Page, Section, to_html
from verus.report.printable import rows
from verus.suites import Suite
from verus.suites.judge import Verdict
from verus.suites.show import NOTE, by_row, cell, names, sums, to_csv, to_markdown, told

#: Fields of a suite on the page, beside its rows.
_SUITE_FIELDS = ("name", "title", "about", "source", "differences")


def write(folder: Path, suites: Sequence[Suite], verdicts: Sequence[Verdict], *, seed: int) -> None:
    """Writes verdicts (`check.jsonl`, shorter `check.csv`), their configuration (`run.json`), page and tables."""
    config = {
        "schema": SCHEMA,
        "kind": CHECK,
        "version": _verus.version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": {
            "suites": [{name: getattr(suite, name) for name in _SUITE_FIELDS} for suite in suites],
            "schemes": list(dict.fromkeys(verdict.scheme for verdict in verdicts)),
        },
        "seeds": [seed],
        "channels": [],
        "runs": [],
        "machine": machine(),
    }
    (folder / "run.json").write_text(json.dumps(config, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (folder / "check.jsonl").write_text(rows(one.to_dict() for one in verdicts) + "\n", encoding="utf-8")
    (folder / "check.csv").write_text(to_csv(verdicts), encoding="utf-8")
    (folder / "check.md").write_text(to_markdown(suites, verdicts), encoding="utf-8")
    (folder / "report.html").write_text(to_html(page(suites, verdicts), config), encoding="utf-8")


def draw(folder: Path) -> Path:
    """Draws the page of a folder that `write` made, from its results alone.

    Raises:
        OSError: A file is absent.
        ValueError: A file does not have the form that `write` writes.
    """
    config, lines = read_config(folder / "run.json"), content(folder / "check.jsonl", MOST_LINES)
    try:
        suites = [Suite(**told, rows=()) for told in config["settings"]["suites"]]
        verdicts = [Verdict(**json.loads(line)) for line in lines.decode().splitlines() if line]
        text = to_html(page(suites, verdicts), config)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"`{folder}`: not what `verus check` writes ({error})") from error
    path = folder / "report.html"
    replace_whole(path, text.encode())
    return path


def page(suites: Sequence[Suite], verdicts: Sequence[Verdict]) -> Page:
    """The verdicts of each sender in numbers, then a table for each suite."""
    labels = {verdict.label: verdict.label for verdict in verdicts}
    sections = [
        Section(title="What it comes to", body=replace(sums(labels, verdicts), title="Rows passed").html() + note(NOTE))
    ]
    sections += [_section(suite, labels, verdicts) for suite in suites]
    return Page(title="Verus: check", lead=f"{', '.join(labels)} in suites that others published.", sections=sections)


def _section(suite: Suite, labels: Mapping[str, str], verdicts: Sequence[Verdict]) -> Section:
    body: list[Line] = []
    for row, each in by_row(suite, verdicts).items():
        first = next(iter(each.values()))
        name, kind, asked = names(row, each)
        reason = first.why if first.left_out else ""
        about = Cell(first.about, "text", small=" ".join(filter(None, (first.note, reason))))
        cells = (_cell(each.get(label)) for label in labels)
        body.append([Cell(name, hint=first.source), about, Cell(kind, "text"), asked, *cells])
    words = [suite.about, f"Source: {suite.source}."]
    if suite.differences:
        words.append(f"Where the source does otherwise: {suite.differences}")
    shown = Grid(heads=["row", "what happens", "kind", "asked", *labels], rows=body).html() if body else ""
    return Section(
        title=suite.title, body=paragraphs(words), figures=_margins(suite, list(labels), verdicts), after=shown
    )


def _margins(suite: Suite, labels: Sequence[str], verdicts: Sequence[Verdict]) -> list[Figure]:
    """The distance of each sender from each threshold; empty if no threshold allows a ratio."""
    cells = [
        {"x": label, "y": row.partition("/")[2], "value": min(max(one.margin, 1 / _FAR), _FAR)}
        for row, each in by_row(suite, verdicts).items()
        for label in labels
        if (one := each.get(label)) is not None and one.margin is not None
    ]
    if not cells:
        return []
    names, rows_ = {cell["x"] for cell in cells}, {cell["y"] for cell in cells}
    return [
        heat(
            cells,
            name=f"margins-{suite.name}",
            title="How far from the threshold",
            caption=f"Above 1 a row is passed: the threshold over the value where it must not be above, else the value "
            f"over the threshold. Beyond {_FAR:g}, and below {1 / _FAR:g}, it is drawn as that.",
            x="",
            y="",
            value="margin",
            middle=1.0,
            log=True,
            columns=1,
            size=(90 * len(names), 17 * len(rows_) + 20),
        )
    ]


#: The largest margin that is shown: beyond it, its size means nothing.
_FAR = 5.0


def _cell(verdict: Verdict | None) -> Cell:
    text = cell(verdict)
    if verdict is None or not (verdict.left_out or verdict.failed):
        return Cell(text)
    return Cell(Markup("<b>{}</b>").format(text) if verdict.failed else text, hint=told(verdict))
