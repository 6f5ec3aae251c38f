"""Verdicts as a table of values, and as tables of a document."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from verus.suites import Suite
from verus.suites.judge import NOT_APPLICABLE, NOT_RUN, Verdict
from verus.suites.show import by_row, cell, counted

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
    "source_scheme",
    "source_value",
    "source_verdict",
)


def to_csv(verdicts: Sequence[Verdict]) -> str:
    """A line for each row that was run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in verdicts:
        if one.verdict not in (NOT_APPLICABLE, NOT_RUN):
            source = (one.source_scheme, _digits(one.source_value), one.source_verdict)
            own = (one.row, one.scheme, one.concerns, one.kind, one.wanted, _digits(one.value), one.verdict)
            runs = (str(one.seeds), str(one.tried), str(one.runs))
            writer.writerow([*own, *runs, *source])
    return out.getvalue()


def _digits(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else value or ""


def to_markdown(suites: Sequence[Suite], verdicts: Sequence[Verdict]) -> str:
    """What each sender comes to, and a table for each suite, whose name is the first head of it."""
    schemes = {verdict.label: verdict.scheme for verdict in verdicts}
    parts = [_sums(schemes, verdicts)]
    for suite in suites:
        body = []
        for row, each in by_row(suite, verdicts).items():
            if all(one.verdict in (NOT_RUN, NOT_APPLICABLE) for one in each.values()):
                continue
            first = next(iter(each.values()))
            asked = first.wanted or first.unit
            cells = [cell(each[label]) if label in each else "" for label in schemes]
            body.append(_line([f"`{row.partition('/')[2]}`", first.kind, asked, *cells]))
        if body:
            heads = [suite.name, "kind", "asked", *(f"`{scheme}`" for scheme in schemes.values())]
            parts.append("\n".join([_line(heads), _rule(len(heads)), *body]))
    return "\n\n".join(parts) + "\n"


def _sums(schemes: dict[str, str], verdicts: Sequence[Verdict]) -> str:
    lines: list[str] = []
    for label, scheme in schemes.items():
        sums = counted([one for one in verdicts if one.label == label])
        if not lines:
            heads = ["sender", *sums]
            lines = [_line(heads), _rule(len(heads))]
        lines.append(_line([f"`{scheme}`", *sums.values()]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _rule(count: int) -> str:
    return "|" + "---|" * count
