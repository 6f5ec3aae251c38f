"""Tables of what was emulated beside what it is set against, for a terminal and for a page."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table

from verus.lab.results import Results
from verus.papers.target import Check, verdict
from verus.report.page import table

#: Cells of each line, by the title of their table.
Tables = Mapping[str, Sequence[Sequence[str]]]


def terminal(tables: Tables, headings: Sequence[str], results: Results, found: Sequence[Check]) -> list[RenderableType]:
    """A table for each title, its first column to the left and the others to the right; the timing, and the verdict."""
    parts: list[RenderableType] = []
    for title, lines in tables.items():
        part = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        for column, heading in enumerate(headings):
            part.add_column(heading, justify="right" if column else "left", no_wrap=not column)
        for cells in lines:
            part.add_row(*cells)
        parts.append(part)
    return [*parts, timing(results), "\n".join(verdict(found))]


def page(tables: Tables, headings: Sequence[str], results: Results, found: Sequence[Check]) -> str:
    """The timing, the verdict, and a table for each title, as HTML."""
    sentences = [timing(results), *verdict(found)]
    body = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    for title, lines in tables.items():
        rows = ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>" for cells in lines]
        body += table(list(headings), rows, caption=title)
    return body


def to_csv(tables: Tables) -> str:
    """The cells for a program: a line each, after the title of its table."""
    text = io.StringIO()
    rows = ([title, *cells] for title, lines in tables.items() for cells in lines)
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def timing(results: Results) -> str:
    """How well the emulator kept its time, in a sentence."""
    timings = [run["timing"] for run in results.config["runs"] if "timing" in run]
    return (
        f"Deliveries of {len(timings)} emulated runs were late by at most "
        f"{max(timing['lateness_p99_ms'] for timing in timings):.3f} ms (p99 of each run; largest of all "
        f"{max(timing['lateness_max_ms'] for timing in timings):.1f} ms); devices lost "
        f"{sum(timing['device_losses'] for timing in timings)} packets."
    )
