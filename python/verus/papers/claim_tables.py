"""Claims beside what was measured, as a table for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from verus.papers import claims
from verus.papers.claims import Judged
from verus.report.grid import Cell, Grid


def value_text(value: float | None, unit: str = "") -> str:
    """A measured value for a table.

    Example:
        >>> value_text(25488.0), value_text(0.98765, "ms"), value_text(None)
        ('25488', '0.9877 ms', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    digits = f"{value:.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.4g}"
    return f"{digits} {unit}".rstrip()


def claims_table(title: str, judged: Sequence[Judged]) -> RenderableType:
    """For a terminal."""
    holds, of = claims.held(judged)
    grid = Table(title=f"{title}: {holds} of {of} claims held", title_justify="left", box=box.SIMPLE_HEAD)
    grid.add_column("claim")
    grid.add_column("wanted", no_wrap=True)
    for head in (judged[0].claim.channels, judged[0].claim.others):
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("")
    modes = claims.modes_of(judged)
    for mode in modes:
        grid.add_column(mode, justify="right", no_wrap=True)
    for one in judged:
        unit = one.claim.unit
        mark = "" if not one.runs else "[green]held[/]" if one.check.met else "[red]not held[/]"
        grid.add_row(
            f"{one.claim.says} [dim]({one.claim.metric})[/]",
            one.claim.wanted,
            value_text(one.check.value, unit),
            value_text(one.beside, unit),
            mark,
            *(_mode_cell(one, mode) for mode in modes),
        )
    lines = [f"Not held: {one.claim.says}: {one.why}" for one in judged if one.missed]
    return Group(grid, *lines, "")


def _mode_cell(one: Judged, mode: str) -> str:
    """For a terminal: what a mode has, and whether the claim holds in it."""
    value = one.modes.get(mode)
    if value is None:
        return "–"
    return f"[{'green' if one.holds_in(mode) else 'red'}]{value_text(value, one.claim.unit)}[/]"


def claims_html(judged: Sequence[Judged]) -> Markup:
    """For a page: a row for each claim, and why those that do not hold do not."""
    modes = claims.modes_of(judged)
    first = judged[0].claim
    holds, of = claims.held(judged)
    return Grid(
        heads=["the source's claim", "measured", "wanted", first.channels, first.others, "", *modes],
        rows=[
            [
                Cell(one.claim.says, "text", small=one.why if one.missed else ""),
                Cell(one.claim.metric, "text"),
                one.claim.wanted,
                value_text(one.check.value, one.claim.unit),
                Cell(value_text(one.beside, one.claim.unit), "aside"),
                _verdict("needs recordings", None) if not one.runs else _verdict("", one.check.met),
                *(_verdict(value_text(one.modes.get(mode), one.claim.unit), one.holds_in(mode)) for mode in modes),
            ]
            for one in judged
        ],
        title=f"{holds} of {of} hold",
    ).html()


def _verdict(text: str, met: bool | None) -> Cell:
    """A text, or else a word, in the colour of whether the claim holds; None where it was not checked."""
    kind = "aside" if met is None else "met" if met else "missed"
    return Cell(text or ("held" if met else "not held"), kind)
