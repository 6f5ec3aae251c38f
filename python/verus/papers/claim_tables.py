"""Claims beside measured values, as a table for a terminal, a page and a document."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from verus.papers import claims
from verus.papers.claims import Judged
from verus.report.grid import Cell, Grid, Line
from verus.report.numbers import value_text

#: The look of a cell, by whether the claim holds that it is of.
_LOOKS = {True: "met", False: "missed", None: "aside"}
_COLORS = {"met": "green", "missed": "red"}


def verdict_text(one: Judged, absent: str = "") -> str:
    """Whether a claim holds, and whether the other channels say otherwise; `absent` where it could not be checked."""
    text = {True: "held", False: "not held", None: absent}[one.holds]
    return (
        f"{text}; {one.claim.others}: {'held' if one.holds_beside else 'not held'}" if one.channels_disagree else text
    )


def cells(one: Judged, modes: Sequence[str], absent: str = "") -> list[Cell]:
    """A claim's values on both sets of channels, its verdict (or `absent`), each mode's value."""
    unit = one.claim.unit
    return [
        Cell(value_text(one.value, unit)),
        Cell(value_text(one.beside, unit), "aside"),
        Cell(verdict_text(one, absent), _LOOKS[one.holds]),
        *(Cell(value_text(one.modes.get(mode), unit), _LOOKS[one.holds_in(mode)]) for mode in modes),
    ]


def claims_table(title: str, judged: Sequence[Judged]) -> RenderableType:
    """For a terminal."""
    holds, of = claims.held(judged)
    table = Table(title=f"{title}: {holds} of {of} claims held", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("claim")
    modes = claims.modes_of(judged)
    for head in ("wanted", judged[0].claim.channels, judged[0].claim.others, "", *modes):
        values = bool(head) and head != "wanted"
        table.add_column(head, justify="right" if values else "left", no_wrap=bool(head))
    for one in judged:
        shown = (
            f"[{_COLORS[cell.kind]}]{cell.text}[/]" if cell.kind in _COLORS else cell.text for cell in cells(one, modes)
        )
        table.add_row(f"{one.claim.says} [dim]({one.claim.metric})[/]", one.claim.wanted, *shown)
    return Group(table, *(f"Not held: {one.claim.says}: {one.why}" for one in judged if one.why), "")


def claims_html(judged: Sequence[Judged]) -> Markup:
    """For a page: a row for each claim, and why those that do not hold do not."""
    modes = claims.modes_of(judged)
    first = judged[0].claim
    holds, of = claims.held(judged)
    return Grid(
        heads=["the source's claim", "measured", "wanted", first.channels, first.others, "", *modes],
        rows=[
            [
                Cell(one.claim.says, "text", small=one.why),
                Cell(one.claim.metric, "text"),
                one.claim.wanted,
                *cells(one, modes, "needs recordings"),
            ]
            for one in judged
        ],
        title=f"{holds} of {of} hold",
    ).html()


def claims_markdown(judged: Sequence[Judged]) -> list[str]:
    """For a document: the same, and below it each cause."""
    modes = claims.modes_of(judged)
    first = judged[0].claim
    rows: list[Line] = [
        [
            f"**{one.claim.says}**" if one.claim.headline else one.claim.says,
            one.claim.metric,
            f"`{one.claim.wanted}`",
            *cells(one, modes),
        ]
        for one in judged
    ]
    heads = ["claim", "measured", "wanted", first.channels, first.others, "", *modes]
    head, *lines = Grid(heads=heads, rows=rows).markdown()
    lines = [head.replace("|  |", "| |"), *lines, ""]
    causes: dict[str, list[str]] = {}
    for one in judged:
        if one.holds is False:
            causes.setdefault(one.cause, []).append(one.claim.says)
    if causes:
        cause_rows = [["; ".join(says), cause] for cause, says in causes.items()]
        lines += [*Grid(heads=["not held", "cause"], rows=cause_rows).markdown(), ""]
    return lines
