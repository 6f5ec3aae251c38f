"""A page of figures and tables: one HTML file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup

from verus.lab.metric_rows import PROBE, RECORDING, SHELL
from verus.report import render
from verus.report.figures import Figure, live
from verus.report.grid import TEMPLATES, Cell, Grid, Line


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        body: The content before the figures (tables, paragraphs); escaped if it is no `Markup`.
        figures: Pictures, in order.
        after: The content after them, likewise.
    """

    title: str
    body: str = ""
    figures: Sequence[Figure] = ()
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page, before it is HTML.

    Attributes:
        title: The title at the top and in the browser's tab.
        lead: A sentence or two under it.
        sections: In order.
    """

    title: str
    lead: str
    sections: Sequence[Section]

    def figures(self) -> Iterator[Figure]:
        """Every figure on it."""
        for section in self.sections:
            yield from section.figures


def to_html(page: Page, config: Mapping[str, Any] | None = None) -> str:
    """The page as one self-contained file; with the `config` of its results, it states their provenance."""
    sections: list[tuple[Section, list[tuple[int, Figure, str]]]] = []
    specs: list[str] = []
    for section in page.sections:
        drawn = []
        for figure in section.figures:
            # A heading does not repeat the section's title.
            heading = "" if figure.title == section.title else figure.title.removeprefix(f"{section.title}: ")
            specs.append(render.to_json(live(figure)))
            drawn.append((len(specs), figure, heading))
        sections.append((section, drawn))
    return TEMPLATES.get_template("page.html").render(
        page=page,
        sections=sections,
        provenance=None if config is None else _provenance(config),
        # Scripts and data; texts in them have `<` escaped.
        bundle=Markup(render.bundle()),
        specs=Markup(",\n".join(specs)),
        script=Markup((resources.files("verus.report") / "page.js").read_text(encoding="utf-8")),
    )


def _provenance(config: Mapping[str, Any]) -> dict[str, str]:
    """The provenance of the numbers: the channels, the version, the machine, and the command to run it again."""
    columns: dict[str, Callable[[dict[str, Any]], str | None]] = {
        "kind": lambda channel: channel.get("kind"),
        "Mbit/s": lambda channel: _rounded(channel.get("mean_mbps"), 2),
        "s": lambda channel: _rounded(channel.get("duration_s"), 0),
        "licence": lambda channel: channel.get("licence"),
        "cite": lambda channel: channel.get("citation"),
        "SHA-256": lambda channel: (channel.get("sha256") or "")[:16],
    }
    filled = [(head, cell) for head, cell in columns.items() if any(map(cell, config["channels"]))]
    rows: list[Line] = [
        [str(channel["name"]), *(Cell(str(cell(channel) or "–"), "text") for _, cell in filled)]
        for channel in config["channels"]
    ]
    channels = Grid(heads=["channel", *(head for head, _ in filled)], rows=rows, title="Channels").html()
    machine = config["machine"]
    seeds = ", ".join(str(seed) for seed in config["seeds"])
    processor = f"{machine['cpu']} ({machine['cores']} cores)" if machine["cpu"] else f"{machine['cores']} cores"
    computer = f"{machine['kernel']}, {processor}"
    words = (
        f"Verus {config['version']}, measured {config['created']} from {computer}; seeds {seeds}. "
        + (
            "What a program sends, and when, is not the same twice: the same command gives other numbers."
            if config["kind"] == SHELL
            else "A live path is not the same twice: the same command gives other numbers."
        )
        if config["kind"] in (PROBE, RECORDING, SHELL)
        else f"Verus {config['version']}, made {config['created']} on {computer}, Python {machine['python']}; "
        f"seeds {seeds}. The same version and seeds give the same numbers."
    )
    settings = json.dumps(config["settings"], indent=1, sort_keys=True)
    return {"channels": channels, "words": words, "settings": settings}


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
