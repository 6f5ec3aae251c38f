"""A page of figures and tables: one HTML file that needs no network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from verus.lab.metric_rows import PROBE, RECORDING, SHELL
from verus.report import render
from verus.report.figures import Figure, live


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        body: HTML before the figures (tables, paragraphs).
        figures: Pictures, in order.
        after: HTML after the figures.
    """

    title: str
    body: str = ""
    figures: Sequence[Figure] = ()
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page, before it is HTML.

    Attributes:
        title: At the top and in the browser's tab.
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


def table(heads: Sequence[str], body: Sequence[str], *, caption: str = "", raw_heads: bool = False) -> str:
    """An HTML table from ready rows; `caption` is HTML."""
    cells = "".join(f"<th scope=col>{head if raw_heads else html.escape(head)}</th>" for head in heads)
    head = f"<caption>{caption}</caption><thead><tr>{cells}</tr></thead>"
    return f"<div class=wide><table>{head}<tbody>{''.join(body)}</tbody></table></div>"


def to_html(page: Page, config: Mapping[str, Any] | None = None) -> str:
    """The page as one self-contained file; with the `config` of its results, it says where they come from."""
    specs: list[str] = []
    sections: list[str] = []
    contents: list[str] = []
    for number, section in enumerate(page.sections, start=1):
        drawn, below = [], []
        for figure in section.figures:
            place = f"figure-{len(specs) + 1}"
            # What a section is about need not be said again.
            heading = "" if figure.title == section.title else figure.title.removeprefix(f"{section.title}: ")
            drawn.append(_figure(figure, place, len(specs), heading))
            below.append(f'<li><a href="#{place}">{html.escape(heading or "Overview")}</a></li>')
            specs.append(render.to_json(live(figure)))
        title = html.escape(section.title)
        sections.append(
            f'<section id="section-{number}"><h2>{title}</h2>{section.body}{"".join(drawn)}{section.after}</section>'
        )
        inner = f"<ul>{''.join(below)}</ul>" if len(below) > 1 else ""
        contents.append(f'<li><a href="#section-{number}">{title}</a>{inner}</li>')
    if config is not None:
        contents.append(f'<li><a href="#{_SOURCE}">Where this comes from</a></li>')
    parts = {
        "title": html.escape(page.title),
        "lead": html.escape(page.lead),
        "hint": _HINT if specs else "",
        "contents": f"<nav aria-label=Contents><details open><summary>Contents</summary><ul>{''.join(contents)}</ul>"
        "</details></nav>",
        "sections": "\n".join(sections),
        "provenance": "" if config is None else _provenance(config),
        "bundle": render.bundle() if specs else "",
        "specs": ",\n".join(specs),
        "script": _read("page.js") if specs else "",
    }
    return re.sub("@@([a-z]+)@@", lambda found: parts[found[1]], _read("page.html"))


#: The anchor of what every page ends with.
_SOURCE = "source"

_HINT = (
    '<p class="note hint">Charts say their values under the pointer. Drag across one to look closer, double-click to '
    "see all of it again; a click on a name above it leaves that out.</p>"
)


def _read(name: str) -> str:
    return (resources.files("verus.report") / name).read_text(encoding="utf-8")


def _figure(figure: Figure, place: str, number: int, heading: str) -> str:
    """Where a figure is drawn, under a heading if it has one."""
    heading = f"<h3>{html.escape(heading)}</h3>" if heading else ""
    name, title, caption = (html.escape(text, quote=True) for text in (figure.name, figure.title, figure.caption))
    player = "" if figure.frames is None else '<div class="player"></div>'
    return (
        f'<figure id="{place}" data-name="{name}"><div class="head">{heading}<div class="tools"></div></div>'
        f'<div class="legend" role="group" aria-label="Names"></div>{player}'
        f'<div class="wide plot" role="img" aria-label="{title}" data-figure="{number}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _provenance(config: Mapping[str, Any]) -> str:
    """Where the numbers come from: the channels, the version, the machine, and how to run it again."""
    columns: dict[str, Callable[[dict[str, Any]], str | None]] = {
        "kind": lambda channel: channel.get("kind"),
        "Mbit/s": lambda channel: _rounded(channel.get("mean_mbps"), 2),
        "s": lambda channel: _rounded(channel.get("duration_s"), 0),
        "licence": lambda channel: channel.get("licence"),
        "cite": lambda channel: channel.get("citation"),
        "SHA-256": lambda channel: (channel.get("sha256") or "")[:16],
    }
    known = [(head, cell) for head, cell in columns.items() if any(map(cell, config["channels"]))]
    rows = [
        f"<tr><th scope=row>{html.escape(str(channel['name']))}</th>"
        + "".join(f"<td class=text>{html.escape(str(cell(channel) or '–'))}</td>" for _, cell in known)
        + "</tr>"
        for channel in config["channels"]
    ]
    channels = table(["channel", *(head for head, _ in known)], rows, caption="Channels")
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
    settings = html.escape(json.dumps(config["settings"], indent=1, sort_keys=True))
    return (
        f"<section id={_SOURCE}><h2>Where this comes from</h2>{channels}<p class=note>{html.escape(words)}</p>"
        f"<details><summary>Configuration</summary><pre>{settings}</pre></details></section>"
    )


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
