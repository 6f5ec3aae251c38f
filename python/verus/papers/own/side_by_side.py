"""Tables of what was emulated beside what it is set against, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from rich.console import RenderableType

from verus.lab.results import Results
from verus.papers.target import Check, verdict
from verus.report.grid import Grid, paragraphs
from verus.report.grid import to_csv as csv_of

#: Cells of each line, by the title of their table.
Tables = Mapping[str, Sequence[Sequence[str]]]


def _grids(tables: Tables, headings: Sequence[str]) -> list[Grid]:
    return [Grid(heads=headings, rows=lines, title=title) for title, lines in tables.items()]


def terminal(tables: Tables, headings: Sequence[str], results: Results, found: Sequence[Check]) -> list[RenderableType]:
    """A table for each title; the timing, and the verdict."""
    return [*(grid.terminal() for grid in _grids(tables, headings)), timing(results), "\n".join(verdict(found))]


def page(tables: Tables, headings: Sequence[str], results: Results, found: Sequence[Check]) -> Markup:
    """The timing, the verdict, and a table for each title."""
    body = paragraphs([timing(results), *verdict(found)])
    return body + Markup("").join(grid.html() for grid in _grids(tables, headings))


def to_csv(tables: Tables) -> str:
    """The cells for a program: a line each, after the title of its table."""
    return csv_of([title, *cells] for title, lines in tables.items() for cells in lines)


def timing(results: Results) -> str:
    """How well the emulator kept its time, in a sentence."""
    timings = [run["timing"] for run in results.config["runs"] if "timing" in run]
    return (
        f"Deliveries of {len(timings)} emulated runs were late by at most "
        f"{max(timing['lateness_p99_ms'] for timing in timings):.3f} ms (p99 of each run; largest of all "
        f"{max(timing['lateness_max_ms'] for timing in timings):.1f} ms); devices lost "
        f"{sum(timing['device_losses'] for timing in timings)} packets."
    )
