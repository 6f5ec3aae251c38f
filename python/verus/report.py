"""The page for a saved experiment: one HTML file that needs no network, drawn from saved results only."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from verus import figures, render
from verus.figures import Figure
from verus.results import PROBE, RECORDING, SHELL, Results
from verus.style import looks
from verus.summary import Block, blocks
from verus.table import DELAY_NOTE, LIVE_DELAY_NOTE, number, percent


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        body: HTML before the figures (tables, paragraphs).
        figures: Pictures, in order.
    """

    title: str
    body: str = ""
    figures: Sequence[Figure] = ()


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


def page_for(results: Results) -> Page:
    """The page for any saved experiment, by the kind that its `run.json` states."""
    kind = results.config["kind"]
    if kind in ("compare", "simulate", PROBE, SHELL):
        return compare_page(results)
    if kind == RECORDING:
        from verus import recording  # here: it draws on this module

        return recording.page(results)
    from verus import experiments  # here: experiments draw on this module

    return experiments.find(kind).page(results)


def write_page(results: Results, folder: Path) -> Path:
    """Draws everything in `folder`: `report.html`, and each figure as SVG and PNG in `figures/`.

    Returns:
        Where the page is.
    """
    page = page_for(results)
    path = folder / "report.html"
    with render.writing(list(page.figures()), folder / "figures"):
        path.write_text(to_html(page, results.config), encoding="utf-8")
    return path


def compare_page(results: Results) -> Page:
    """The page of `compare`, `probe` and `shell`: delay against throughput, tables, time series, delay profiles."""
    parts = blocks(results)
    note = LIVE_DELAY_NOTE if results.live else DELAY_NOTE
    sections = [
        Section(title="Delay against throughput", figures=[figures.scatter(results, parts)]),
        Section(
            title="Results",
            body="".join(results_table(block) for block in parts) + f"<p class=note>{html.escape(note)}</p>",
        ),
        Section(title="Over time", figures=_over_time(results, parts)),
    ]
    profile = figures.profiles(results, parts)
    if profile is not None:
        sections.append(Section(title="Delay profiles", figures=[profile]))
    names = ", ".join(dict.fromkeys(cell.label for block in parts for cell in block.cells))
    channels = ", ".join(dict.fromkeys(block.short for block in parts))
    if results.emulated:
        sections.append(Section(title="Timing", body=_timing_table(results.config.get("timing") or {})))
        return Page(title="Verus: a program behind a link", lead=f"{names} behind {channels}.", sections=sections)
    title = "Verus: a live path" if results.live else "Verus: comparison"
    return Page(title=title, lead=f"{names} over {channels}.", sections=sections)


def _timing_table(timing: Mapping[str, Any]) -> str:
    """How well the emulator kept its time, and what it cost."""
    valid = timing.get("valid")
    rows = [
        ("packets delivered", number(timing.get("deliveries"), 0)),
        *((f"late, {name}", f"{number(timing.get(f'lateness_{key}_ms'), 3)} ms") for name, key in _LATENESS),
        ("packets lost by devices", number(timing.get("device_losses"), 0)),
        ("opportunities that passed unread", f"{number(timing.get('missed_bytes'), 0)} bytes"),
        *([] if valid is None else [("within --max-lateness-ms", "yes" if valid else "no: the run is invalid")]),
    ]
    body = [f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows]
    note = "By how much each packet left the emulator after its time."
    return table(["", ""], body) + f"<p class=note>{note}</p>"


#: The quantiles of lateness that a run states.
_LATENESS = (("p50", "p50"), ("p99", "p99"), ("largest", "max"))


def _over_time(results: Results, parts: Sequence[Block]) -> list[Figure]:
    """Time series of each block, and of its flows if there are several, under file names of their own."""
    drawn: list[Figure] = []
    names: list[str] = []
    for block in parts:
        several = sum(other.short == block.short for other in parts) > 1
        name = figures.slug(block.short) + (f"-{figures.slug(block.queue)}" if several else "")
        names.append(name if name not in names else f"{name}-{len(names)}")
        drawn.append(figures.series(results, block, name=f"series-{names[-1]}"))
        flows = figures.flows(results, block, name=f"flows-{names[-1]}")
        if flows is not None:
            drawn.append(flows)
    return drawn


def results_table(block: Block) -> str:
    """One channel and queue as an HTML table; of a live path, round trips in place of what nobody saw there."""
    style = looks(block.cells)
    fair = any(cell.flows > 1 for cell in block.cells)
    files = any(cell["completions"] is not None for cell in block.cells)
    live = block.capacity_mbps is None
    columns = [
        ("throughput<br>Mbit/s", "throughput_mbps"),
        *([] if live else [("used<br>%", "utilization")]),
        *((f"{name}<br>ms", f"qdelay_{name}_ms") for name in ("mean", "p50", "p95")),
        *(
            [("RTT mean<br>ms", "rtt_mean_ms"), ("RTT p95<br>ms", "rtt_p95_ms")]
            if live
            else [("signal p95<br>ms", "signal_delay_p95_ms")]
        ),
        ("loss<br>%", "loss_rate"),
        *([("Jain", "jain")] if fair else []),
        *([("file mean<br>s", "completion_mean_s"), ("file p95<br>s", "completion_p95_s")] if files else []),
    ]
    heads = ["scheme", *(head for head, _ in columns)]
    ideal = {
        "throughput_mbps": block.capacity_mbps,
        "utilization": 1.0,
        "jain": 1.0,
        "completion_mean_s": None,
        "completion_p95_s": None,
    }
    body = []
    for cell in block.cells:
        name = cell.label if cell.flows == 1 or "+" in cell.label else f"{cell.flows} × {cell.label}"
        swatch = f'<i style="background:{style[cell.label].color}"></i>'
        values = [_value(key, cell[key]) for _, key in columns]
        body.append(
            f"<tr><th scope=row>{swatch}{html.escape(name)}</th>"
            + "".join(f"<td>{value}</td>" for value in values)
            + "</tr>"
        )
    if not live:
        body.append(
            "<tr class=omniscient><th scope=row>omniscient</th>"
            + "".join(f"<td>{_value(key, ideal.get(key, 0.0))}</td>" for _, key in columns)
            + "</tr>"
        )
    caption = f"<b>{html.escape(block.trace)}</b> · {html.escape(block.queue)}"
    if len(block.cells[0].runs) > 1:
        caption += f" · mean of {len(block.cells[0].runs)} seeds"
    return table(heads, body, caption=caption, raw_heads=True)


def _value(key: str, value: float | None) -> str:
    """A number as its column shows it."""
    if key in ("utilization", "loss_rate"):
        return percent(value)
    fine = key in ("throughput_mbps", "jain", "completion_mean_s", "completion_p95_s")
    return number(value, 2 if fine else 1)


def table(heads: Sequence[str], body: Sequence[str], *, caption: str = "", raw_heads: bool = False) -> str:
    """An HTML table from ready rows; `caption` is HTML."""
    cells = "".join(f"<th scope=col>{head if raw_heads else html.escape(head)}</th>" for head in heads)
    head = f"<caption>{caption}</caption><thead><tr>{cells}</tr></thead>"
    return f"<div class=wide><table>{head}<tbody>{''.join(body)}</tbody></table></div>"


def to_html(page: Page, config: Mapping[str, Any] | None = None) -> str:
    """The page as one self-contained file; with the `config` of its results, it says where they come from."""
    specs: list[str] = []
    sections: list[str] = []
    for section in page.sections:
        drawn = []
        for figure in section.figures:
            heading = "" if figure.title == section.title else f"<h3>{html.escape(figure.title)}</h3>"
            drawn.append(
                f'<figure>{heading}<div class="wide plot" data-figure="{len(specs)}"></div>'
                f"<figcaption>{html.escape(figure.caption)}</figcaption></figure>"
            )
            specs.append(render.to_json(figure.spec))
        sections.append(f"<section><h2>{html.escape(section.title)}</h2>{section.body}{''.join(drawn)}</section>")
    parts = {
        "title": html.escape(page.title),
        "lead": html.escape(page.lead),
        "sections": "\n".join(sections),
        "provenance": "" if config is None else _provenance(config),
        "bundle": render.bundle() if specs else "",
        "specs": ",\n".join(specs),
    }
    template = (resources.files("verus") / "page.html").read_text(encoding="utf-8")
    return re.sub("@@([a-z]+)@@", lambda found: parts[found[1]], template)


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
        f"<section><h2>Where this comes from</h2>{channels}<p class=note>{html.escape(words)}</p>"
        f"<details><summary>Configuration</summary><pre>{settings}</pre></details></section>"
    )


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
