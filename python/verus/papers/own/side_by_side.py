"""Tables of emulated runs beside references: for a terminal, a page, a program, a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup
from rich.console import RenderableType

from verus.lab.results import Results
from verus.papers.experiment import Experiment, Options, Work
from verus.papers.target import Check, table, verdict
from verus.report.grid import Grid, paragraphs, to_csv
from verus.report.page import Page, Section

#: Cells of each line, by the title of their table.
Tables = Mapping[str, Sequence[Sequence[str]]]


def experiment(
    *,
    name: str,
    source: str,
    prepare: Callable[[Options], Work],
    checks: Callable[[Results], list[Check]],
    tables: Callable[[Results], Tables],
    headings: Sequence[str],
    apart: str,
    title: str,
    lead: Callable[[Results], str],
    targets: tuple[str, str],
    short: bool = False,
) -> Experiment:
    """An experiment with tables, a verdict and timing; `targets`: head and title of their table; `short` as there.

    Its files are `NAME.csv` and `NAME.md`, one table each, whose first column `apart` heads: the titles of the tables.
    """

    def grids(results: Results) -> list[Grid]:
        return [Grid(heads=headings, rows=lines, title=title) for title, lines in tables(results).items()]

    def summary(results: Results) -> Sequence[RenderableType]:
        shown = [grid.terminal() for grid in grids(results)]
        return [*shown, timing(results), "\n".join(verdict(checks(results)))]

    def page(results: Results) -> Page:
        checked = checks(results)
        body = paragraphs([timing(results), *verdict(checked)])
        body += Markup("").join(grid.html() for grid in grids(results))
        sections = [
            Section(title="Side by side", body=body),
            Section(title="Targets", body=table(checked, targets[0], title=targets[1])),
        ]
        return Page(title=title, lead=lead(results), sections=sections)

    def cells(results: Results) -> Mapping[str, str]:
        lines = [[title, *own] for title, rows in tables(results).items() for own in rows]
        document = Grid(heads=[apart, *headings], rows=lines).markdown()
        return {f"{name}.csv": to_csv(lines), f"{name}.md": "\n".join([*document, ""])}

    return Experiment(
        name=name,
        source=source,
        prepare=prepare,
        checks=checks,
        page=page,
        summary=summary,
        files=cells,
        short=short,
    )


def timing(results: Results) -> str:
    """How well the emulator kept its time, in a sentence."""
    timings = [run["timing"] for run in results.config["runs"] if "timing" in run]
    return (
        f"Deliveries of {len(timings)} emulated runs were late by at most "
        f"{max(timing['lateness_p99_ms'] for timing in timings):.3f} ms (p99 of each run; largest of all "
        f"{max(timing['lateness_max_ms'] for timing in timings):.1f} ms); devices lost "
        f"{sum(timing['device_losses'] for timing in timings)} packets."
    )
