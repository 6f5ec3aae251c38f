"""Verdicts as a table of values, and as tables of a document."""

from __future__ import annotations

from collections.abc import Sequence

from verus.report.grid import Grid
from verus.report.grid import to_csv as csv_of
from verus.suites import Suite
from verus.suites.judge import NOT_APPLICABLE, NOT_RUN, Verdict
from verus.suites.show import by_row, cell, sums

#: Of `check.csv`.
COLUMNS = (
    "row",
    "scheme",
    "concerns",
    "kind",
    "asked",
    "value",
    "verdict",
    "seeds",
    "tried",
    "runs",
)


def to_csv(verdicts: Sequence[Verdict]) -> str:
    """A line for each row that was run."""
    rows: list[Sequence[str]] = [COLUMNS]
    for one in verdicts:
        if one.verdict not in (NOT_APPLICABLE, NOT_RUN):
            own = (one.row, one.scheme, one.concerns, one.kind, one.wanted, _digits(one.value), one.verdict)
            rows.append([*own, str(one.seeds), str(one.tried), str(one.runs)])
    return csv_of(rows)


def _digits(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else value or ""


def to_markdown(suites: Sequence[Suite], verdicts: Sequence[Verdict]) -> str:
    """What each sender comes to, and a table for each suite, whose name is the first head of it."""
    schemes = {verdict.label: f"`{verdict.scheme}`" for verdict in verdicts}
    grids = [sums(schemes, verdicts)]
    for suite in suites:
        body = []
        for row, each in by_row(suite, verdicts).items():
            if all(one.verdict in (NOT_RUN, NOT_APPLICABLE) for one in each.values()):
                continue
            first = next(iter(each.values()))
            cells = [cell(each[label]) if label in each else "" for label in schemes]
            body.append([f"`{row.partition('/')[2]}`", first.kind, first.wanted or first.unit, *cells])
        if body:
            grids.append(Grid(heads=[suite.name, "kind", "asked", *schemes.values()], rows=body))
    return "\n\n".join("\n".join(map(_narrow, grid.markdown())) for grid in grids) + "\n"


def _narrow(line: str) -> str:
    """The line with one space in a cell that says nothing."""
    return line.replace("|  |", "| |").replace("|  |", "| |")
