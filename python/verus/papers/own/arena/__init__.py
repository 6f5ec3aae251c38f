"""Every sender over recordings, queues, numbers of flows and company: which dominates which on both axes.

Not a published result but a question that each paper answers for its own scheme. Each question that a person asks has
one chart and one table: delay at equal throughput, fairness, company, losses by chance, outages, video. The order is
by dominance (`dominance`), not by a score. From fixed seeds, and the same bytes each time; what depends on the machine,
the cost, is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType

from verus.lab.results import Results
from verus.papers.experiment import Experiment
from verus.papers.own.arena.field import NAME, prepare
from verus.papers.own.arena.questions import QUESTIONS
from verus.papers.own.arena.results import ArenaResults, Question
from verus.report.grid import Grid, paragraphs, to_csv
from verus.report.page import Page, Section


def tables(results: Results) -> list[tuple[Question, Grid]]:
    """Each question with its table."""
    runs = ArenaResults(results)
    made = []
    for question in QUESTIONS:
        heads, cells = question.table(runs)
        rows = [[label, *row] for label, row in cells.items()]
        made.append((question, Grid(heads=[question.name, *heads], rows=rows, title=question.title)))
    return made


def lead(results: Results) -> str:
    """The page's lead: a description of the runs."""
    settings = results.config["settings"]
    runs = ArenaResults(results)
    channels = len({channel for _, channel in runs.of("alone")})
    stretches = len(next(iter(next(iter(runs.of("alone").values())).values())))
    seconds = next(row["duration_s"] for row in results.rows.to_pylist())
    form = "the short form: " if settings["short"] else ""
    said = (
        f"{len(runs.labels())} senders over {channels} channels ({settings['channels']}), {stretches} stretches of "
        f"{seconds:g} s each, behind {len(runs.queues())} queues; {form}{results.rows.num_rows} runs from seed "
        f"{settings['seed']}. ± is half of the 95 % confidence interval over stretches or seeds (Student's t)."
    )
    return f"{said} {settings['missing']}".rstrip()


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal."""
    return [lead(results), *(grid.terminal(caption=question.rule) for question, grid in tables(results))]


def page(results: Results) -> Page:
    """The same as a page, with a chart for each question."""
    runs = ArenaResults(results)
    sections = []
    for question, grid in tables(results):
        body = paragraphs([question.rule]) + replace(grid, title="").html()
        sections.append(Section(title=question.title, body=body, figures=[question.draw(runs)]))
    return Page(title="Verus: the arena", lead=lead(results), sections=sections)


def csv(results: Results) -> str:
    """The tables for a program: a line for each cell."""
    cells = ([question.name, *cell] for question, grid in tables(results) for cell in grid.cells())
    return to_csv([["question", "sender", "column", "found"], *cells])


def to_markdown(results: Results) -> str:
    """The tables for a document."""
    lines = [lead(results), ""]
    for question, grid in tables(results):
        lines += [f"## {question.title}", "", question.rule, "", *grid.markdown(), ""]
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name=NAME,
    source="none: every sender that there is here, beside each other",
    title="Every sender beside every other",
    prepare=prepare,
    page=page,
    summary=summary,
    files=lambda results: {"arena.csv": csv(results), "arena.md": to_markdown(results)},
    short=True,
    takes_schemes=True,
)
