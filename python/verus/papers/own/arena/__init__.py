"""Every sender over recordings, queues, numbers of flows and company: who is beaten on both axes by whom.

Not a published result but a question that each paper answers for its own scheme. Each question that a person asks has
one chart and one table: delay at equal throughput, fairness, company, losses by chance, outages, video. The order is
by dominance (`dominance`), not by a score. From fixed seeds, and the same bytes each time; what depends on the machine,
the cost, is not here.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table as Grid

from verus.lab.results import Results
from verus.papers import markdown
from verus.papers.experiment import Experiment
from verus.papers.own.arena.field import NAME, prepare
from verus.papers.own.arena.found import Found
from verus.papers.own.arena.questions import QUESTIONS
from verus.report.page import Page, Section, table


def tables(results: Results) -> dict[str, list[list[str]]]:
    """The rows of each table by its question, heads first."""
    found = Found(results)
    made = {}
    for question in QUESTIONS:
        heads, cells = question.table(found)
        made[question.name] = [[question.name, *heads], *([label, *row] for label, row in cells.items())]
    return made


def lead(results: Results) -> str:
    """What was run."""
    settings = results.config["settings"]
    found = Found(results)
    channels = len({channel for _, channel in found.of("alone")})
    stretches = len(next(iter(next(iter(found.of("alone").values())).values())))
    seconds = next(row["duration_s"] for row in results.rows.to_pylist())
    form = "the short form: " if settings["short"] else ""
    said = (
        f"{len(found.labels())} senders over {channels} channels ({settings['channels']}), {stretches} stretches of "
        f"{seconds:g} s each, behind {len(found.queues())} queues; {form}{results.rows.num_rows} runs from seed "
        f"{settings['seed']}. ± is half of the 95 % confidence interval over stretches or seeds (Student's t)."
    )
    return f"{said} {settings['missing']}".rstrip()


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal."""
    parts: list[RenderableType] = [lead(results)]
    for question, (heads, *rows) in zip(QUESTIONS, tables(results).values(), strict=True):
        grid = Grid(title=question.title, caption=question.rule, title_justify="left", box=box.SIMPLE_HEAD)
        grid.caption_justify = "left"
        for position, head in enumerate(heads):
            grid.add_column(head, justify="right" if position else "left", no_wrap=not position)
        for row in rows:
            grid.add_row(*row)
        parts.append(grid)
    return parts


def page(results: Results) -> Page:
    """The same as a page, with a chart for each question."""
    found = Found(results)
    sections = []
    for question, (heads, *rows) in zip(QUESTIONS, tables(results).values(), strict=True):
        cells = [
            f"<tr><th scope=row>{html.escape(first)}</th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in rows
        ]
        body = f"<p>{html.escape(question.rule)}</p>" + table(heads, cells)
        sections.append(Section(title=question.title, body=body, figures=[question.draw(found)]))
    return Page(title="Verus: the arena", lead=lead(results), sections=sections)


def to_csv(results: Results) -> str:
    """The tables for a program: a line for each cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["question", "sender", "column", "found"])
    for (name, *heads), *rows in tables(results).values():
        for sender, *cells in rows:
            writer.writerows([name, sender, head, cell] for head, cell in zip(heads, cells, strict=True))
    return text.getvalue()


def to_markdown(results: Results) -> str:
    """The tables for a document."""
    lines = [lead(results), ""]
    for question, (heads, *rows) in zip(QUESTIONS, tables(results).values(), strict=True):
        lines += [f"## {question.title}", "", question.rule, ""]
        lines += [*markdown.table(heads, rows), ""]
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name=NAME,
    source="none: every sender that there is here, beside each other",
    title="Every sender beside every other",
    prepare=prepare,
    checks=lambda results: [],
    page=page,
    summary=summary,
    files=lambda results: {"arena.csv": to_csv(results), "arena.md": to_markdown(results)},
    short=True,
    takes_schemes=True,
)
