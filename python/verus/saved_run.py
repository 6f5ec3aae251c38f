"""The pages for a saved experiment, drawn from saved results only, and for the log of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from verus import papers
from verus.lab import qlog
from verus.lab.atomic_write import replace_whole
from verus.lab.metric_rows import PROBE, RECORDING, SHELL
from verus.lab.results import Results
from verus.report import recording, render
from verus.report.comparison import compare_page
from verus.report.figures.congestion import congestion
from verus.report.page import Page, Section, to_html


def page_for(results: Results) -> Page:
    """The page for any saved experiment, by the kind that its `run.json` states."""
    kind = results.config["kind"]
    if kind in ("compare", "simulate", PROBE, SHELL):
        return compare_page(results)
    if kind == RECORDING:
        return recording.page(results)
    return papers.find(kind).page(results)


def write_page(results: Results, folder: Path) -> Path:
    """Draws everything in `folder`: `report.html`, and each figure without animation as SVG and PNG in `figures/`.

    Returns:
        The page's path.
    """
    page = page_for(results)
    path = folder / "report.html"
    with render.writing([figure for figure in page.figures() if figure.frames is None], folder / "figures"):
        replace_whole(path, to_html(page, results.config).encode())
    return path


def log_pages(logs: Sequence[Path], *, force: bool) -> list[Path]:
    """The pages of logs, each beside its log, checked before any is drawn.

    Raises:
        ValueError: Two logs have one page, or a file of that name is no page of the log and `force` is not set.
    """
    pages: dict[Path, Path] = {}
    for log in logs:
        page = (log.with_suffix("") if log.suffix == ".gz" else log).with_suffix(".html")
        if page in pages:
            raise ValueError(f"`{pages[page]}` and `{log}` would share the page `{page}`: rename one of them")
        if not force and page.exists() and _drawn_from(log).encode() not in page.read_bytes():
            raise ValueError(f"`{page}` exists and is no page of `{log}`; --force replaces it")
        pages[page] = log
    return list(pages)


def _drawn_from(log: Path) -> str:
    """The beginning of the first sentence of a log's page."""
    return f"Drawn from {escape(log.name)}, what "


def write_log_page(log: Path, path: Path) -> None:
    """Draws the congestion graph of each trace of a qlog on a page.

    Args:
        log: The qlog.
        path: The page, as `log_pages` names it.
    """
    figures = [congestion(trace, name=f"congestion-{number}") for number, trace in enumerate(qlog.read_all(log), 1)]
    several = len(figures) > 1
    sections = [
        Section(title=f"Congestion graph of trace {number}" if several else "Congestion graph", figures=[figure])
        for number, figure in enumerate(figures, 1)
    ]
    lead = Markup(_drawn_from(log)) + f"{'each sender' if several else 'one sender'} did."
    page = Page(title=figures[0].title, lead=lead, sections=sections)
    replace_whole(path, to_html(page).encode())
