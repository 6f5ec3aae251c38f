"""A study of ours that is tables without targets: in a terminal, on a page, and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import RenderableType

from verus.lab.results import Results
from verus.papers.experiment import Experiment, Options, Work
from verus.report.grid import Grid, to_csv
from verus.report.page import Page, Section


def experiment(
    *,
    name: str,
    source: str,
    title: str,
    about: str,
    prepare: Callable[[Options], Work],
    tables: Callable[[Results], Mapping[str, Grid]],
    lines: Callable[[Mapping[str, Grid]], list[Sequence[str]]],
    note: str = "",
) -> Experiment:
    """The experiment; its files are `NAME.csv`, for a program, and `NAME.md`.

    Args:
        name: Its name.
        source: Where it is from.
        title: Of its page and its document.
        about: What the page begins with.
        prepare: What it runs.
        tables: Each table by its name.
        lines: Those of the CSV, heads first.
        note: A sentence behind each table's title.
    """
    behind = f". {note}" if note else ""

    def summary(results: Results) -> Sequence[RenderableType]:
        settings = results.config["settings"]
        missing: list[RenderableType] = [settings["missing"]] if settings["missing"] else []
        shown = tables(results).values()
        return missing + [one.terminal(title=f"{one.title} ({settings['channels']}){behind}") for one in shown]

    def page(results: Results) -> Page:
        sections = [Section(title=name.capitalize(), body=one.html()) for name, one in tables(results).items()]
        return Page(title=title, lead=f"{about}\n{results.config['settings']['missing']}".rstrip(), sections=sections)

    def files(results: Results) -> dict[str, str]:
        found = tables(results)
        document = [f"# {title}", ""]
        for one in found.values():
            document += [f"{one.title[0].upper()}{one.title[1:]}{behind or '.'}", "", *one.markdown(), ""]
        return {f"{name}.csv": to_csv(lines(found)), f"{name}.md": "\n".join(document)}

    return Experiment(
        name=name,
        source=source,
        prepare=prepare,
        checks=lambda results: [],
        page=page,
        summary=summary,
        files=files,
    )
