"""The page of a comparison, or of results with the same columns: a test of a live path, a program behind a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from verus.lab.results import Results
from verus.report import figures
from verus.report.figures import Figure
from verus.report.grid import Cell as Text
from verus.report.grid import Grid, Line, Row, facts, note, paragraphs
from verus.report.numbers import DELAY_NOTE, LIVE_DELAY_NOTE, number, percent
from verus.report.page import Page, Section
from verus.report.style import looks
from verus.report.summary import Block, Cell, blocks, mean
from verus.report.table import DIFFERENCES, difference, notes


def compare_page(results: Results) -> Page:
    """The page of `compare`, `probe` and `shell`: delay against throughput, tables, time series, delay profiles."""
    parts = blocks(results)
    words = LIVE_DELAY_NOTE if results.live else DELAY_NOTE
    words = " ".join([words, *notes(parts)])
    summary = [Section(title="Summary", body=_summary(parts))] if len(parts) > 1 else []
    sections = [
        *summary,
        Section(title="Delay against throughput", figures=[figures.scatter(results, parts)]),
        Section(title="Over time", figures=_of_blocks(results, parts, series=figures.series, flows=figures.flows)),
    ]
    if stretches := _of_blocks(results, parts, packets=figures.packets):
        sections.append(Section(title="Packets in the queue", figures=stretches))
    profile = figures.profiles(results, parts)
    if profile is not None:
        moving = _of_blocks(results, parts, profile=figures.profile_over_time)
        sections.append(Section(title="Delay profiles", figures=[profile, *moving]))
    elif any(cell.scheme == "verus" for block in parts for cell in block.cells) and not results.emulated:
        sections.append(Section(title="Delay profiles", body=_NO_PROFILE))
    sections.append(
        Section(
            title="Results",
            body=Markup("").join(results_table(block) + differences_table(block) for block in parts) + note(words),
        )
    )
    if (echoes := results.config.get("echoes")) and echoes["time_s"]:
        sections.append(_round_trips(results, echoes))
    names = ", ".join(dict.fromkeys(cell.label for block in parts for cell in block.cells))
    channels = ", ".join(dict.fromkeys(block.short for block in parts))
    if results.emulated:
        sections.append(Section(title="Timing", body=_timing_table(results.config.get("timing") or {})))
        return Page(title="Verus: a program behind a link", lead=f"{names} behind {channels}.", sections=sections)
    title = "Verus: a live path" if results.live else "Verus: comparison"
    return Page(title=title, lead=f"{names} over {channels}.", sections=sections)


def _round_trips(results: Results, echoes: Mapping[str, Any]) -> Section:
    """The section of delay without and with load, in one picture, and of responsiveness."""
    # All rows of a test have the same round trips.
    row = results.rows.slice(0, 1).to_pylist()[0]
    statistics = [
        ("idle, median", f"{number(row.get('idle_rtt_p50_ms'), 1)} ms"),
        ("idle, 95th percentile", f"{number(row.get('idle_rtt_p95_ms'), 1)} ms"),
        ("loaded, median", f"{number(row.get('loaded_rtt_p50_ms'), 1)} ms"),
        ("loaded, 95th percentile", f"{number(row.get('loaded_rtt_p95_ms'), 1)} ms"),
        ("loaded, 99th percentile", f"{number(row.get('loaded_rtt_p99_ms'), 1)} ms"),
        ("RPM (ours: over Verus's UDP, not HTTP/2)", number(row.get("rpm"), 0)),
    ]
    return Section(
        title="Round trips, idle and loaded",
        body=facts(statistics) + note("RPM: 60 s / the mean of the least 95 % of loaded round trips."),
        figures=[figures.echoes(echoes)],
    )


def _timing_table(timing: Mapping[str, Any]) -> Markup:
    """The emulator's lateness and its losses."""
    valid = timing.get("valid")
    rows = [
        ("packets delivered", number(timing.get("deliveries"), 0)),
        *(
            (f"late, {name}", f"{number(timing.get(f'lateness_{key}_ms'), 3)} ms")
            for name, key in (("p50", "p50"), ("p99", "p99"), ("largest", "max"))
        ),
        ("packets lost by devices", number(timing.get("device_losses"), 0)),
        ("lost to late reading, at most", f"{number(timing.get('missed_bytes'), 0)} bytes"),
        *([] if valid is None else [("within --max-lateness-ms", "yes" if valid else "no: the run is invalid")]),
    ]
    return facts(rows) + note("By how much each packet left the emulator after its time.")


#: The text in place of a figure.
_NO_PROFILE = paragraphs(
    [
        "There is no delay profile to draw: Verus's are saved every 5 s of a run, and none of these came so far, or "
        "left slow start by then."
    ]
)


def _summary(parts: Sequence[Block]) -> Markup:
    """Each contestant over all channels and queues, then on each of them."""
    style = looks(cell for block in parts for cell in block.cells)
    live = parts[0].capacity_mbps is None
    several = len({block.queue for block in parts}) > 1
    rows: list[Line] = []
    for label, look in style.items():
        cells = [next((cell for cell in block.cells if cell.label == label), None) for block in parts]
        present = [cell for cell in cells if cell is not None]
        share = mean([cell["throughput_mbps" if live else "utilization"] for cell in present])
        delay, tail = (mean([cell[name] for cell in present]) for name in ("qdelay_mean_ms", "qdelay_p95_ms"))
        values = [_value("throughput_mbps" if live else "utilization", share), number(delay), number(tail)]
        values += ["" if cell is None else _brief(cell, live=live) for cell in cells]
        rows.append([Text(label, swatch=look.color), *values])
    if any(block.capacity_mbps for block in parts):
        # Of a channel that carried nothing there is no share.
        best = f"{percent(1.0)} · {number(0.0, 0)}"
        each = [best if block.capacity_mbps else "–" for block in parts]
        ideal = [percent(1.0), number(0.0), number(0.0), *each]
        rows.append(Row.of("omniscient", ["omniscient", *ideal]))
    used = "throughput\nMbit/s" if live else "used\n%"
    names = [Text(block.short, small=block.queue if several else "") for block in parts]
    brief = "throughput, Mbit/s" if live else "share of the channel used, %"
    caption = (
        f"Means over {len(parts)} channels and queues, each counted once; on each of them, {brief}, and the 95th "
        "percentile of the delay, ms"
    )
    return Grid(heads=["scheme", used, "mean\nms", "p95\nms", *names], rows=rows, title=caption).html()


def _brief(cell: Cell, *, live: bool) -> str:
    """A contestant's results on a channel, in a few characters."""
    used = _value("throughput_mbps", cell["throughput_mbps"]) if live else _value("utilization", cell["utilization"])
    return f"{used} · {number(cell['qdelay_p95_ms'], 0)}"


def _of_blocks(results: Results, parts: Sequence[Block], **draw: Callable[..., Figure | None]) -> list[Figure]:
    """Figures of each block that has data for them; the keywords are the prefixes of file names."""
    drawn = (
        each(results, block, name=f"{kind}-{name}")
        for name, block in zip(_names(parts), parts, strict=True)
        for kind, each in draw.items()
    )
    return [figure for figure in drawn if figure is not None]


def _names(parts: Sequence[Block]) -> list[str]:
    """A unique part of file names for each block."""
    names: list[str] = []
    for block in parts:
        several = sum(other.short == block.short for other in parts) > 1
        name = figures.slug(block.short) + (f"-{figures.slug(block.queue)}" if several else "")
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names


def results_table(block: Block) -> Markup:
    """One channel and queue as an HTML table; a live path has round trips in place of metrics of the bottleneck."""
    style = looks(block.cells)
    fair = any(cell.flows > 1 for cell in block.cells)
    pieces = any(cell["completions"] is not None for cell in block.cells)
    frames = any(cell["late"] is not None for cell in block.cells)
    piece = "frame" if frames else "file"
    live = block.capacity_mbps is None
    columns = [
        ("throughput\nMbit/s", "throughput_mbps"),
        *([] if live else [("used\n%", "utilization")]),
        *((f"{name}\nms", f"qdelay_{name}_ms") for name in ("mean", "p50", "p95")),
        *(
            [("RTT mean\nms", "rtt_mean_ms"), ("RTT p95\nms", "rtt_p95_ms")]
            if live
            else [("signal p95\nms", "signal_delay_p95_ms")]
        ),
        ("loss\n%", "loss_rate"),
        *([("least flow\nMbit/s", "flow_min_mbps"), ("most\nMbit/s", "flow_max_mbps")] if fair else []),
        *([("Jain", "jain")] if fair else []),
        *([(f"{piece} mean\ns", "completion_mean_s"), (f"{piece} p95\ns", "completion_p95_s")] if pieces else []),
        *([("frame p99\ns", "completion_p99_s"), ("frames\nlate", "late")] if frames else []),
    ]
    heads = ["scheme", *(head for head, _ in columns)]
    ideal = {"throughput_mbps": block.capacity_mbps, "utilization": 1.0, "jain": 1.0, "loss_rate": 0.0}
    ideal |= dict.fromkeys((key for _, key in columns if "delay" in key), 0.0)
    body: list[Line] = []
    for cell in block.cells:
        shown = [(Text(cell.title, swatch=style[cell.label].color), cell)]
        shown += [(Text(f"\N{EM SPACE}{part.title}"), part) for part in cell.parts]
        body += [[name, *(_value(key, one[key], one.halves[key]) for _, key in columns)] for name, one in shown]
    if block.capacity_mbps:
        values = (_value(key, ideal.get(key)) for _, key in columns)
        body.append(Row.of("omniscient", ["omniscient", *values]))
    caption = _caption(block)
    if block.repetitions:
        caption += f" · {block.repetitions}"
    return Grid(heads=heads, rows=body, title=caption).html()


def _caption(block: Block) -> Markup:
    return Markup("<b>{}</b> · {}").format(block.short, block.queue)


def differences_table(block: Block) -> Markup:
    """The table of differences from the first contestant, run by run; empty where no runs can be paired."""
    rows = [
        [cell.title, *(difference(cell.above.get(name), as_text) for name, (_, as_text) in DIFFERENCES.items())]
        for cell in block.cells
        if cell.above
    ]
    if not rows:
        return Markup()
    heads = [f"above {block.cells[0].title}", *(head for head, _ in DIFFERENCES.values())]
    return Grid(heads=heads, rows=rows, title=_caption(block) + " · differences").html()


#: Metrics that are shown with two decimals.
_HUNDREDTHS = ("throughput_mbps", "jain", "flow_min_mbps", "flow_max_mbps")


def _value(key: str, value: float | None, half_width: float | None = None) -> str:
    """A number as its column shows it, with half of its interval where there is one."""
    if half_width is not None:
        return f"{_value(key, value)} ± {_value(key, half_width)}"
    if key in ("utilization", "loss_rate"):
        return percent(value)
    if key == "late":
        return number(value, 0)
    if key.startswith("completion_"):
        return number(value, 3)
    return number(value, 2 if key in _HUNDREDTHS else 1)
