"""The page of a check, and the folder that keeps its verdicts."""

from __future__ import annotations

import datetime
import html
import json
from collections.abc import Sequence
from pathlib import Path

from verus import _verus
from verus.lab.atomic_write import replace_whole
from verus.lab.bounded_reading import MOST_LINES, content
from verus.lab.metric_rows import CHECK, SCHEMA, machine
from verus.lab.results_folder import read_config
from verus.report.figures import Figure, heat
from verus.report.page import Page, Section, table, to_html
from verus.report.printable import rows
from verus.suites import Suite
from verus.suites.judge import NOT_RUN, Verdict
from verus.suites.results import to_csv, to_markdown
from verus.suites.show import NOTE, by_row, cell, counted, told

#: What the page says of a suite, beside its rows.
_TOLD = ("name", "title", "about", "source", "differences")


def write(folder: Path, suites: Sequence[Suite], verdicts: Sequence[Verdict], *, seed: int) -> None:
    """Writes verdicts (`check.jsonl`, shorter `check.csv`), what made them (`run.json`), page and tables."""
    config = {
        "schema": SCHEMA,
        "kind": CHECK,
        "version": _verus.version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": {
            "suites": [{name: getattr(suite, name) for name in _TOLD} for suite in suites],
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
        ValueError: A file is not what `write` left.
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
    """What each sender comes to, then a table for each suite."""
    labels = list(dict.fromkeys(verdict.label for verdict in verdicts))
    sections = [
        Section(title="What it comes to", body=_sums(labels, verdicts) + f"<p class=note>{html.escape(NOTE)}</p>")
    ]
    sections += [_section(suite, labels, verdicts) for suite in suites]
    return Page(title="Verus: check", lead=f"{', '.join(labels)} in suites that others published.", sections=sections)


def _sums(labels: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    body, heads = [], ["sender"]
    for label in labels:
        sums = counted([one for one in verdicts if one.label == label])
        heads = ["sender", *sums]
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in sums.values())
        body.append(f"<tr><th scope=row>{html.escape(label)}</th>{cells}</tr>")
    return table(heads, body, caption="Rows passed")


def _section(suite: Suite, labels: Sequence[str], verdicts: Sequence[Verdict]) -> Section:
    body = []
    for row, each in by_row(suite, verdicts).items():
        first = next(iter(each.values()))
        asked = first.wanted or first.unit
        cells = "".join(f"<td>{_cell(each.get(label))}</td>" for label in labels)
        body.append(
            f"<tr><th scope=row title={_quoted(first.source)}>{html.escape(row.partition('/')[2])}</th>"
            f"<td class=text>{html.escape(first.about)}{_note(first)}</td><td class=text>{html.escape(first.kind)}</td>"
            f"<td>{html.escape(asked)}</td>{cells}</tr>"
        )
    words = [suite.about, f"Source: {suite.source}."]
    if suite.differences:
        words.append(f"Where the source does otherwise: {suite.differences}")
    about = "".join(f"<p>{html.escape(text)}</p>" for text in words)
    shown = table(["row", "what happens", "kind", "asked", *labels], body) if body else ""
    return Section(title=suite.title, body=about, figures=_margins(suite, labels, verdicts), after=shown)


def _margins(suite: Suite, labels: Sequence[str], verdicts: Sequence[Verdict]) -> list[Figure]:
    """How far each sender is from each threshold; nothing where none has one that a ratio can be taken of."""
    cells = [
        {"x": label, "y": row.partition("/")[2], "value": min(max(each[label].margin or 0.0, 1 / _FAR), _FAR)}
        for row, each in by_row(suite, verdicts).items()
        for label in labels
        if label in each and each[label].margin is not None
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


#: A margin beyond this says no more than this.
_FAR = 5.0


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    text = html.escape(cell(verdict))
    if verdict.verdict == NOT_RUN or verdict.failed:
        return f"<span title={_quoted(told(verdict))}>{f'<b>{text}</b>' if verdict.failed else text}</span>"
    return text


def _note(verdict: Verdict) -> str:
    parts = [text for text in (verdict.note, verdict.why if verdict.verdict == NOT_RUN else "") if text]
    return f"<br><small>{html.escape(' '.join(parts))}</small>" if parts else ""


def _quoted(text: str) -> str:
    return f'"{html.escape(text, quote=True)}"'
