"""The table at the end of a run: one block per channel and queue, delay beside throughput."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from verus.lab.interval import interval_note
from verus.lab.repeats import note_of
from verus.lab.results import Results
from verus.report.numbers import number, percent
from verus.report.printable import line
from verus.report.summary import Block, Cell, blocks


def comparison(results: Results) -> list[RenderableType]:
    """A heading and a table for each channel and queue, and one of differences where runs were repeated."""
    return [
        part
        for block in blocks(results)
        for part in (_heading(block, results), _table(block), _differences(block))
        if part is not None
    ]


def notes(parts: Sequence[Block]) -> list[str]:
    """Notes about intervals and differences under these tables, where they have some."""
    intervals = [interval_note(block.over) for block in parts if block.has_intervals][:1]
    differences = note_of(cell.above for block in parts for cell in block.cells)
    return intervals + ([] if differences is None else [differences])


#: Metrics in a table of differences: the head and the format of each.
DIFFERENCES: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "throughput_mbps": ("Mbit/s", lambda value: number(value, 2)),
    "utilization": ("used %", percent),
    "qdelay_mean_ms": ("mean ms", number),
    "qdelay_p95_ms": ("p95 ms", number),
    "loss_rate": ("loss %", percent),
}


def difference(above: Mapping[str, float | int | None] | None, as_text: Callable[[float | None], str]) -> str:
    """A difference with its sign, and half of its interval.

    Example:
        >>> difference({"mean": -3.25, "half_width_95": 0.5, "pairs": 4}, number)
        '-3.2 ± 0.5'
        >>> difference({"mean": -0.01, "half_width_95": 0.06, "pairs": 4}, number)
        '0.0 ± 0.1'
    """
    if above is None or above["mean"] is None:
        return "–"
    mean, half = as_text(above["mean"]), above["half_width_95"]
    if not any(digit in mean for digit in "123456789"):  # it rounds to zero, which has no sign
        mean = mean.removeprefix("-")
    elif above["mean"] > 0:
        mean = f"+{mean}"
    return mean + ("" if half is None else f" ± {as_text(half)}")


def _differences(block: Block) -> Table | None:
    """The table of differences from the first contestant, run by run."""
    if not any(cell.above for cell in block.cells):
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"above {line(block.cells[0].title)}", no_wrap=True)
    for head, _ in DIFFERENCES.values():
        table.add_column(head, justify="right", no_wrap=True)
    for cell in block.cells:
        if cell.above:
            texts = (difference(cell.above.get(name), as_text) for name, (_, as_text) in DIFFERENCES.items())
            table.add_row(line(cell.title), *texts)
    return table


def run_columns(row: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The heads of one run's table, and its rows: one for each flow, and one for all where there are several."""
    entries = [(f"{flow['flow']}: {flow['scheme']}", flow) for flow in row["per_flow"]]
    if len(entries) > 1:
        entries.append(("all", row))
    keys = ("qdelay_mean_ms", "qdelay_p50_ms", "qdelay_p95_ms", "rtt_mean_ms")
    return ["flow", "Mbit/s", "mean ms", "p50 ms", "p95 ms", "RTT mean ms", "loss %"], [
        [line(name), number(of["throughput_mbps"], 2), *(number(of[key]) for key in keys), percent(of["loss_rate"])]
        for name, of in entries
    ]


def run_table(results: Results) -> list[RenderableType]:
    """A heading and a table for one run."""
    (row,) = results.rows.to_pylist()
    used = f"{percent(row['utilization'])} % of {number(row['capacity_mbps'], 2)} Mbit/s used"
    conditions = f"  ·  {line(row['queue'])}  ·  {row['duration_s']:g} s  ·  seed {row['seed']}  ·  {used}"
    return [Text.assemble((line(row["trace"]), "bold"), conditions, overflow="fold"), _drawn(*run_columns(row))]


def printed(blocks: Sequence[RenderableType]) -> str:
    """The tables as plain text, without colours."""
    console = Console(file=io.StringIO(), width=_WIDE, color_system=None, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(*blocks)
    return "\n".join(text.rstrip() for text in captured.get().rstrip().split("\n"))


#: Columns where standard output is no terminal.
_WIDE = 110


def _heading(block: Block, results: Results) -> Text:
    row = results.rows.slice(block.cells[0].runs[0], 1).to_pylist()[0]
    base_rtt = results.base_rtt([run for cell in block.cells for run in cell.runs])
    rtt = f"  ·  base RTT {base_rtt}" if base_rtt else ""
    conditions = f"{line(block.queue)}{rtt}  ·  {row['duration_s']:g} s"
    if block.repetitions:
        conditions += f"  ·  {block.repetitions}"
    return Text.assemble((line(block.short), "bold"), f"  ·  {conditions}", overflow="fold")


def columns(block: Block) -> tuple[list[str], list[list[str]]]:
    """The heads of a block's table, units on a second line, and its rows of texts.

    A contestant's row is followed by one for each scheme of a mix; the omniscient sender's comes last, where the
    capacity is known and not zero.
    """
    fair = any(cell.flows > 1 for cell in block.cells)
    frames = any(cell["late"] is not None for cell in block.cells)
    files = not frames and any(cell["completions"] is not None for cell in block.cells)
    # Units are below, so that a table of all columns fits 80 characters.
    heads = ["scheme", "Mbit/s", "used\n%", "mean\nms", "p50\nms", "p95\nms", "signal\np95 ms", "loss\n%"]
    heads += ["each flow\nMbit/s", "Jain"] * fair + ["file s\n(p95)"] * files
    heads += ["frame ms\n(p99)", "frames\nlate"] * frames
    rows = [
        [name, *_columns(shown, fair=fair, files=files, frames=frames)]
        for cell in block.cells
        for name, shown in [(cell.title, cell), *((f"  {part.title}", part) for part in cell.parts)]
    ]
    if block.capacity_mbps:
        best = [number(block.capacity_mbps, 2), "100.0", "0.0", "0.0", "0.0", "0.0", "0.0"]
        rows.append(["omniscient", *best, *["–", "1.00"] * fair, *["–"] * (files + 2 * frames)])
    return heads, rows


def _table(block: Block) -> Table:
    styles = ["bold" if cell.scheme == "verus" else "" for cell in block.cells for _ in (cell, *cell.parts)]
    return _drawn(*columns(block), styles=styles, last="dim italic")


def _drawn(heads: Sequence[str], rows: Sequence[Sequence[str]], *, styles: Sequence[str] = (), last: str = "") -> Table:
    """A table of names and numbers; rows beyond `styles` have the `last` one."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(heads[0])
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for row, style in itertools.zip_longest(rows, styles, fillvalue=last):
        table.add_row(*row, style=str(style))
    return table


def _columns(cell: Cell, *, fair: bool, files: bool, frames: bool) -> Sequence[str]:
    def two(value: float | None) -> str:
        return number(value, 2)

    def shown(name: str, as_text: Callable[[float | None], str] = number) -> str:
        # The interval is below its mean, so that a table of all columns fits 80 characters.
        half_width = cell.halves[name]
        return as_text(cell[name]) + ("" if half_width is None else f"\n±{as_text(half_width)}")

    columns = [
        shown("throughput_mbps", two),
        shown("utilization", percent),
        shown("qdelay_mean_ms"),
        shown("qdelay_p50_ms"),
        shown("qdelay_p95_ms"),
        shown("signal_delay_p95_ms"),
        shown("loss_rate", percent),
    ]
    if fair:
        columns += [span(cell["flow_min_mbps"], cell["flow_max_mbps"]), shown("jain", two)]
    if files:
        columns.append(_beside(shown("completion_mean_s", two), shown("completion_p95_s", two)))
    if frames:
        columns.append(_beside(shown("completion_mean_s", _ms), shown("completion_p99_s", _ms)))
        columns.append(shown("late", lambda value: number(value, 0)))
    return columns


def span(least: float | None, most: float | None) -> str:
    """The range of flows' throughput, in three digits; one number where both ends are the same.

    Example:
        >>> span(0.164, 3.514), span(9.8, 12.34), span(1.5, 1.5), span(None, None)
        ('0.16–3.51', '9.80–12.3', '1.50', '–')
    """
    ends = dict.fromkeys("–" if rate is None else number(rate, 2 if rate < 9.995 else 1) for rate in (least, most))
    return "–".join(ends)


def _beside(mean: str, high: str) -> str:
    """A mean and in parentheses a high percentile, with their intervals below, if any."""
    return "\n".join(f"{one} ({other})" for one, other in zip(mean.split("\n"), high.split("\n"), strict=True))


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1e3)
