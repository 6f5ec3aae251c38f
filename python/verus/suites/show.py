"""Verdicts as text: one by one, and as tables for a terminal, a document and a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from verus.report import grid
from verus.report.grid import Grid
from verus.report.printable import line
from verus.suites import Suite
from verus.suites.judge import COMPARED, MEASURED, MISSED, NOT_APPLICABLE, NOT_RUN, NOT_TRIED, OWN, PASSED, Verdict

#: A sign for each verdict.
SIGNS = {PASSED: "✓", MISSED: "✗", MEASURED: "", NOT_TRIED: "not tried", NOT_RUN: "not run", NOT_APPLICABLE: ""}

NOTE = (
    "✓ passed, ✗ missed, each by the worst of all seeds; (…) the source states the row for another sender: shown for "
    "comparison. Published rows of a sender's own decide the exit code. `verus check --explain ROW` says what a row is."
)


def shown(value: float | str | None) -> str:
    """Three significant digits, of the six that results keep.

    Example:
        >>> shown(8.16543), shown(0.98123), shown(None), shown("DRAIN")
        ('8.17', '0.981', '–', 'DRAIN')
    """
    if value is None or isinstance(value, str):
        return value or "–"
    kept = float(f"{value:.6g}")
    return f"{kept:.3g}" if abs(kept) < 1000 else f"{kept:.0f}"


def cell(verdict: Verdict | None) -> str:
    """A value with its sign."""
    if verdict is None or (verdict.verdict == NOT_APPLICABLE and not verdict.left_out):
        return ""
    if verdict.verdict == NOT_APPLICABLE:
        return "n/a"
    if verdict.verdict in (NOT_RUN, NOT_TRIED):
        return SIGNS[verdict.verdict]
    text = f"{shown(verdict.value)} {SIGNS[verdict.verdict]}".strip()
    if 0 < verdict.tried < verdict.runs:
        text += f", tried in {verdict.tried} of {verdict.runs}"
    return f"({text})" if verdict.concerns == COMPARED else text


def told(verdict: Verdict) -> str:
    """The result of a row, in a sentence without a full stop."""
    if verdict.verdict in (NOT_TRIED, NOT_RUN, NOT_APPLICABLE):
        return f"{verdict.verdict}: {verdict.why}"
    unit = f" {verdict.unit}" if verdict.unit else ""
    result = verdict.why if verdict.value is None else f"{shown(verdict.value)}{unit}"
    return f"{result}; asked: {verdict.wanted}" if verdict.wanted else result


def by_row(suite: Suite, verdicts: Sequence[Verdict], *, run: bool = False) -> dict[str, dict[str, Verdict]]:
    """The verdicts of a suite, by row and then by sender, for rows that concern one; with `run`, that also ran."""
    grouped: dict[str, dict[str, Verdict]] = {}
    for verdict in verdicts:
        if verdict.suite == suite.name:
            grouped.setdefault(verdict.row, {})[verdict.label] = verdict
    return {
        row: each
        for row, each in grouped.items()
        if any(one.verdict not in (NOT_APPLICABLE, NOT_RUN) or (one.left_out and not run) for one in each.values())
    }


def names(row: str, each: Mapping[str, Verdict]) -> list[str]:
    """The first cells of a row: its name within the suite, its kind, and its threshold."""
    first = next(iter(each.values()))
    return [row.partition("/")[2], first.kind, first.wanted or first.unit]


def counted(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Counts of a sender's verdicts, by kind of row."""

    def passed(chosen: Sequence[Verdict]) -> str:
        run = [one.verdict for one in chosen if one.verdict in (PASSED, MISSED)]
        return f"{run.count(PASSED)} of {len(run)}" if run else "–"

    published = [one for one in verdicts if one.gates]
    seeds = sorted({one.seeds for one in verdicts if one.seeds and one.concerns == OWN})
    return {
        "seeds": "–" if not seeds else f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}",
        "published": passed(published),
        "others of its own": passed([one for one in verdicts if one.concerns == OWN and not one.gates]),
        "for comparison": passed([one for one in verdicts if one.concerns == COMPARED]),
        "not tried": str(sum(one.verdict == NOT_TRIED for one in verdicts)),
        "not run": str(sum(one.left_out for one in verdicts)),
    }


def tables(suites: Sequence[Suite], verdicts: Sequence[Verdict]) -> Iterator[RenderableType]:
    """A heading and a table for each suite, then the rows that could not be run, with reasons, and the sums."""
    labels = list(dict.fromkeys(verdict.label for verdict in verdicts))
    for suite in suites:
        rows = by_row(suite, verdicts, run=True)
        if not rows:
            continue
        yield Text.assemble((line(suite.title), "bold"), f"  ·  {line(suite.source)}", overflow="fold")
        table = _look(Table(box=box.SIMPLE_HEAD))
        table.add_column("row", overflow="fold")
        table.add_column("kind", no_wrap=True)
        table.add_column("asked", justify="right", no_wrap=True)
        for label in labels:
            table.add_column(line(label), justify="right")
        for row, each in rows.items():
            cells = (Text(line(cell(each.get(label))), style=_style(each.get(label))) for label in labels)
            table.add_row(*map(line, names(row, each)), *cells)
        yield table
    yield from _not_run(verdicts)
    yield _look(sums({label: line(label) for label in labels}, verdicts).terminal())
    yield Text(NOTE, style="dim")


def _look(table: Table) -> Table:
    table.pad_edge, table.padding = False, (0, 1, 0, 0)
    return table


def _style(verdict: Verdict | None) -> str:
    if verdict is not None and verdict.failed:
        return "bold red"
    return "dim" if verdict is not None and (verdict.concerns == COMPARED or verdict.verdict == NOT_RUN) else ""


def _not_run(verdicts: Sequence[Verdict]) -> Iterator[RenderableType]:
    """Each reason once, with the number of rows that it keeps from running."""
    reasons: dict[str, set[str]] = {}
    for verdict in verdicts:
        if verdict.left_out:
            reasons.setdefault(verdict.why, set()).add(verdict.row)
    if not reasons:
        return
    yield Text("Cannot be run", style="bold")
    for why, count in Counter({why: len(rows) for why, rows in reasons.items()}).most_common():
        yield Text(f"  {count} {'row' if count == 1 else 'rows'}: {line(why)}", overflow="fold")
    yield Text("")


def sums(names: Mapping[str, str], verdicts: Sequence[Verdict]) -> Grid:
    """Counts of each sender's verdicts; `names` has the name of each, by its label."""
    counts = {name: counted([one for one in verdicts if one.label == label]) for label, name in names.items()}
    heads = ["sender", *next(iter(counts.values()), {})]
    return Grid(heads=heads, rows=[[name, *own.values()] for name, own in counts.items()])


def to_csv(verdicts: Sequence[Verdict]) -> str:
    """A line for each row that was run, with fewer columns than `--json`."""
    rows: list[Sequence[object]] = [
        ("row", "scheme", "concerns", "kind", "asked", "value", "verdict", "seeds", "tried", "runs")
    ]
    for one in verdicts:
        if one.verdict not in (NOT_APPLICABLE, NOT_RUN):
            value = f"{one.value:.6g}" if isinstance(one.value, int | float) else one.value or ""
            identity = (one.row, one.scheme, one.concerns, one.kind, one.wanted, value, one.verdict)
            rows.append((*identity, one.seeds, one.tried, one.runs))
    return grid.to_csv(rows)


def to_markdown(suites: Sequence[Suite], verdicts: Sequence[Verdict]) -> str:
    """Counts of each sender's verdicts, and a table for each suite, whose name is its first head."""
    schemes = {verdict.label: f"`{verdict.scheme}`" for verdict in verdicts}
    grids = [sums(schemes, verdicts)]
    for suite in suites:
        body = []
        for row, each in by_row(suite, verdicts, run=True).items():
            name, *others = names(row, each)
            body.append([f"`{name}`", *others, *(cell(each.get(label)) for label in schemes)])
        if body:
            grids.append(Grid(heads=[suite.name, "kind", "asked", *schemes.values()], rows=body))
    return "\n\n".join("\n".join(map(_narrow, one.markdown())) for one in grids) + "\n"


def _narrow(line: str) -> str:
    """The line with one space in each empty cell."""
    return line.replace("|  |", "| |").replace("|  |", "| |")
