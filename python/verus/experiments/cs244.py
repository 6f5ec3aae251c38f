"""The 2017 reproduction of Verus (Stanford CS244), and the question it left open.

Zhang and Dutz ran the authors' prototype at R = 2, 4 and 6 and Linux Cubic over six recordings, each
protocol on a queue of its own: a RED that hardly ever dropped for Verus, 120 kB of drop-tail for
Cubic. *Cells* runs those 24 again beside both columns they published (their write-up, and the run
kept in their repository). *Matrix* runs every scheme over every queue, since a protocol and its
buffer cannot be told apart otherwise.

Their delay is the 95th percentile of the signal delay; sizes include a 4-byte device header: 1482
bytes for a Verus packet, 1504 for a Cubic one, 1504 for an opportunity.
"""

from __future__ import annotations

import csv
import html
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from verus.experiments import Experiment, Options, Work
from verus.experiments.recordings import locate
from verus.experiments.target import Check, rows, verdict
from verus.scenario import Contestant, Run, distinct, make_run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from verus.figures import Figure
    from verus.report import Page
    from verus.results import Results
    from verus.runner import Progress
    from verus.summary import Block, Cell

SOURCE = (
    "Z. Zhang and D. Dutz, CS244 '17: Adaptive Congestion Control for Unpredictable Cellular Networks (2017), after "
    "Y. Zaki et al., Adaptive Congestion Control for Unpredictable Cellular Networks, ACM SIGCOMM 2015"
)

#: The recordings, in the order of the report, and what it calls them.
TRACES = {
    "camp_ped_2min": "campus pedestrian",
    "city_drive_2min": "city driving",
    "highway_drive_2min": "highway driving",
    "ATT-LTE-driving-2016.up": "AT&T LTE 2016",
    "Verizon-EVDO-driving.up": "Verizon EVDO",
    "TMobile-LTE-driving.up": "T-Mobile LTE",
}
#: Those recorded by Verus's authors, whose two columns agree well enough to check against.
AUTHOR_TRACES = ("camp_ped_2min", "city_drive_2min", "highway_drive_2min")
T_MOBILE = "TMobile-LTE-driving.up"
#: What stands in for them on a machine without recordings: two minutes of slow to fast movement, slow and fast radio.
BUILT_IN = (
    "campus-pedestrian-3g-up",
    "city-driving-3g-up",
    "highway-driving-3g-up",
    "campus-pedestrian-lte-up",
    "city-driving-lte-up",
    "highway-driving-lte-up",
)

RATIOS = (2, 4, 6)
CS244_RED = "red:min=375000,max=1125000,p=0.1,preset=cs244"
CS244_DROPTAIL = "droptail:bytes=120000"
#: The queues of the matrix: the paper's RED as described, Cubic's drop-tail of 2017, and a bloated one.
MATRIX_QUEUES = {
    "red:min=375000,max=1125000,p=0.1": "RED 375/1125 kB",
    "droptail:bytes=120000": "drop-tail 120 kB",
    "droptail:bytes=10000000": "drop-tail 10 MB",
}
DURATION_S = 120.0
VERUS_PACKET, FULL_PACKET = 1482, 1504  # 1450 B of payload, or a full frame, as the link accounts them

#: How far outside the range of the two published columns a cell may lie: (throughput, delay).
TOLERANCE = {"verus": (0.15, 0.35), "cubic": (0.10, 0.20)}


@dataclass(frozen=True)
class Published:
    """One cell of one published column."""

    throughput_mbps: float
    delay_ms: float


@cache
def published() -> Mapping[tuple[str, int | None], Mapping[str, Published]]:
    """(trace, R or None for Cubic) → column (``report``, ``saved``) → numbers."""
    text = (resources.files("verus.experiments") / "cs244.csv").read_text(encoding="utf-8")
    cells: dict[tuple[str, int | None], dict[str, Published]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        key = (row["trace"], int(row["ratio"]) if row["ratio"] else None)
        cells.setdefault(key, {})[row["column"]] = Published(float(row["throughput_mbps"]), float(row["delay_ms"]))
    return cells


# --- what to run --------------------------------------------------------------------------------


def runs(options: Options) -> list[Run]:
    """The 24 cells, then the matrix."""
    if options.built_in:
        paths = {name: name for name in BUILT_IN}
    else:
        paths = locate(list(TRACES), group="cs244", folder=options.traces)

    def one(trace: str, contestant: Contestant, queue: str, packet_bytes: int, part: str) -> Run:
        return make_run(
            trace=trace,
            path=paths[trace],
            queue=queue,
            contestant=contestant,
            seed=options.seed,
            duration_s=DURATION_S,
            ack="same",
            ack_queue=queue,
            delay_ms=20.0,
            packet_bytes=packet_bytes,
            opportunity_bytes=1504,
            loop=options.built_in,
            part=part,
        )

    prototype = [Contestant.from_scheme(f"verus:ratio={ratio},mode=prototype") for ratio in RATIOS]
    robust = [Contestant.from_scheme(f"verus:ratio={ratio}") for ratio in RATIOS]
    cubic, *others = (Contestant.from_scheme(name) for name in ("cubic", "newreno", "vegas"))
    everyone = distinct([*robust, *prototype, cubic, *others])
    cells = [one(trace, entry, CS244_RED, VERUS_PACKET, "cells") for trace in paths for entry in everyone[3:6]]
    cells += [one(trace, everyone[6], CS244_DROPTAIL, FULL_PACKET, "cells") for trace in paths]
    matrix = [
        one(trace, entry, queue, FULL_PACKET, "matrix")
        for queue in MATRIX_QUEUES
        for trace in paths
        for entry in everyone
    ]
    return cells + matrix


def prepare(options: Options) -> Work:
    """Finds the recordings; the work is the runs."""
    planned = runs(options)
    settings = {"experiment": "cs244", "built_in": options.built_in, "seed": options.seed}

    def work(progress: Progress | None) -> Results:
        from verus.results import Results
        from verus.runner import run_all

        return Results.collect(planned, run_all(planned, progress=progress), kind="cs244", settings=settings)

    return work


# --- measured -----------------------------------------------------------------------------------


def cells_of(results: Results) -> dict[tuple[str, int | None], Cell]:
    """(trace, R or None for Cubic) → what we measured in the report's set-up."""
    from verus.summary import blocks

    return {(block.trace, _ratio(cell)): cell for block in blocks(results, "cells") for cell in block.cells}


def _ratio(cell: Cell) -> int | None:
    return int(cell.params["ratio"]) if cell.scheme == "verus" else None


def _who(ratio: int | None) -> str:
    return "Cubic" if ratio is None else f"Verus R={ratio}"


def checks(results: Results) -> list[Check]:
    """The targets that are checked; none on built-in channels, for which nothing was published."""
    measured = cells_of(results)
    if not all((trace, None) in measured for trace in TRACES):
        return []
    found: list[Check] = []
    for trace in AUTHOR_TRACES:
        for ratio in (*RATIOS, None):
            found += _cell_checks(trace, ratio, measured[trace, ratio])
        for key, what in (("throughput_mbps", "throughput"), ("signal_delay_p95_ms", "delay")):
            for low, high in itertools.pairwise(RATIOS):
                before, after = measured[trace, low][key], measured[trace, high][key]
                ratio_of = after / before if before and after is not None else None
                name = f"{TRACES[trace]}: {what} rises from R={low} to R={high} (ratio)"
                found.append(
                    Check(name=name, value=ratio_of, low=1.0, strict=True, source="Fig. 10 and the report's tables")
                )
    cubic_ms = measured[T_MOBILE, None]["signal_delay_p95_ms"]
    for ratio in RATIOS:
        name = f"{TRACES[T_MOBILE]}: delay of Verus R={ratio} above Cubic's (the report's negative result)"
        found.append(
            Check(
                name=name, value=measured[T_MOBILE, ratio]["signal_delay_p95_ms"], low=cubic_ms, unit="ms", strict=True
            )
        )
    return found


def _cell_checks(trace: str, ratio: int | None, cell: Cell) -> list[Check]:
    columns = published()[trace, ratio].values()
    by_throughput, by_delay = TOLERANCE["cubic" if ratio is None else "verus"]
    where = f"{TRACES[trace]}, {_who(ratio)}"
    throughputs = [column.throughput_mbps for column in columns]
    delays = [column.delay_ms for column in columns]
    return [
        Check(
            name=f"{where}: throughput",
            value=cell["throughput_mbps"],
            low=min(throughputs) * (1 - by_throughput),
            high=max(throughputs) * (1 + by_throughput),
            unit="Mbit/s",
            source=SOURCE,
        ),
        Check(
            name=f"{where}: p95 signal delay",
            value=cell["signal_delay_p95_ms"],
            low=min(delays) * (1 - by_delay),
            high=max(delays) * (1 + by_delay),
            unit="ms",
            source=SOURCE,
        ),
    ]


# A scheme that leaves more of the link unused buys its delay with it.
USES_MOST = 0.9

# --- the matrix, in words -----------------------------------------------------------------------


def matrix_of(results: Results) -> dict[str, dict[str, Block]]:
    """Queue → trace → everyone's results."""
    from verus.summary import blocks

    found: dict[str, dict[str, Block]] = {}
    for block in blocks(results, "matrix"):
        found.setdefault(block.queue, {})[block.trace] = block
    return found


def _verus(block: Block, ratio: int, mode: str) -> Cell:
    return next(
        cell
        for cell in block.cells
        if cell.scheme == "verus" and cell.params.get("mode", "robust") == mode and _ratio(cell) == ratio
    )


def _cubic(block: Block) -> Cell:
    return next(cell for cell in block.cells if cell.scheme == "cubic")


def sentences(results: Results) -> list[str]:
    """What the matrix shows, put together from its numbers."""
    matrix = matrix_of(results)
    said = []
    for ratio in RATIOS:
        parts = [
            _against_cubic(list(of_trace.values()), MATRIX_QUEUES[queue], ratio) for queue, of_trace in matrix.items()
        ]
        who = f"Verus R={ratio} (robust) against Cubic"
        said.append(f"On one and the same queue, {who}, medians over the traces: {'; '.join(parts)}.")
    said.append(_least_delay(matrix))
    if all(T_MOBILE in of_trace for of_trace in matrix.values()):
        said.append(_negative_result(matrix))
    return said


def _least_delay(matrix: Mapping[str, Mapping[str, Block]]) -> str:
    """Who has the least mean delay of those that use most of the link, beside the best Verus."""
    parts = []
    for queue, of_trace in matrix.items():
        columns = zip(*(block.cells for block in of_trace.values()), strict=True)
        medians = [
            (statistics.median(cell["qdelay_mean_ms"] or 0 for cell in cells), cells[0].label)
            for cells in columns
            if statistics.median(cell["utilization"] or 0 for cell in cells) >= USES_MOST
        ]
        if not medians:
            continue
        (delay, who), *others = sorted(medians)
        next_best = f" before {others[0][1]} ({others[0][0]:.0f} ms)" if others else ""
        parts.append(f"on {MATRIX_QUEUES[queue]}, {who} ({delay:.0f} ms){next_best}")
    share = percentage(USES_MOST)
    return f"One flow alone, the least mean delay of those that use {share} of the link or more: {'; '.join(parts)}."


def _against_cubic(column: Sequence[Block], queue: str, ratio: int) -> str:
    pairs = [(_verus(block, ratio, "robust"), _cubic(block)) for block in column]
    throughput = _median_share(pairs, "throughput_mbps")
    delay = _median_share(pairs, "qdelay_mean_ms")
    lower = sum((ours["qdelay_mean_ms"] or 0) < (theirs["qdelay_mean_ms"] or 0) for ours, theirs in pairs)
    shares = f"{percentage(throughput)} of its throughput at {percentage(delay)} of its mean delay"
    return f"on {queue}, {shares} (lower on {lower} of {len(pairs)})"


def percentage(share: float) -> str:
    """A share in words that do not break across lines, small ones with a decimal.

    Example:
        >>> percentage(0.914).split(), percentage(0.0123).split()
        (['91', '%'], ['1.2', '%'])
    """
    return f"{100 * share:.{0 if share >= 0.1 else 1}f}\u00a0%"


def _median_share(pairs: Sequence[tuple[Cell, Cell]], key: str) -> float:
    shares = [ours[key] / theirs[key] for ours, theirs in pairs if ours[key] is not None and theirs[key]]  # type: ignore[operator]
    return statistics.median(shares) if shares else float("nan")


def _negative_result(matrix: Mapping[str, Mapping[str, Block]]) -> str:
    """Whether the report's one defeat of Verus survives when both have the same queue."""
    parts = []
    lost = 0
    for queue, of_trace in matrix.items():
        block = of_trace[T_MOBILE]
        cubic_ms = _cubic(block)["signal_delay_p95_ms"] or 0.0
        worse = [
            ratio for ratio in RATIOS if (_verus(block, ratio, "prototype")["signal_delay_p95_ms"] or 0.0) > cubic_ms
        ]
        lost += len(worse)
        which = (
            "at no R"
            if not worse
            else "at every R"
            if len(worse) == len(RATIOS)
            else f"at R={' and '.join(map(str, worse))}"
        )
        parts.append(f"{which} on {MATRIX_QUEUES[queue]} (Cubic: {cubic_ms:.0f} ms)")
    cells = len(RATIOS) * len(matrix)
    if lost == 0:
        conclusion = "so it came from the queues, not from the protocols"
    elif lost == cells:
        conclusion = "so it came from the protocol, not from the queues"
    else:
        conclusion = f"so the queue decides: it holds in {lost} of {cells} cells"
    return (
        "The report's negative result, T-Mobile: on the same queue, the prototype's p95 signal delay is above Cubic's "
        f"{', '.join(parts)}; {conclusion}."
    )


# --- shown --------------------------------------------------------------------------------------


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal: our cells beside both columns, the verdict, the matrix by queue, and what it shows."""
    from rich import box
    from rich.table import Table

    from verus.table import number

    measured = cells_of(results)
    verdicts = {check.name: check for check in checks(results)}
    cells = Table(
        title="Throughput (Mbit/s) and p95 signal delay (ms): ours, the report's, its saved run's",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    cells.add_column("trace", no_wrap=True)
    cells.add_column("scheme", no_wrap=True)
    for head in ("Mbit/s", "report", "saved", "", "delay ms", "report", "saved", ""):
        cells.add_column(head, justify="right", no_wrap=True)
    for trace in dict.fromkeys(trace for trace, _ in measured):
        for ratio in (*RATIOS, None):
            cell = measured[trace, ratio]
            columns = published().get((trace, ratio), {})
            where = f"{TRACES.get(trace, trace)}, {_who(ratio)}"
            throughput, delay = verdicts.get(f"{where}: throughput"), verdicts.get(f"{where}: p95 signal delay")
            cells.add_row(
                TRACES.get(trace, trace) if ratio == RATIOS[0] else "",
                _who(ratio),
                number(cell["throughput_mbps"], 2),
                *(number(columns[name].throughput_mbps, 2) if name in columns else "–" for name in ("report", "saved")),
                _mark(throughput),
                number(cell["signal_delay_p95_ms"], 0),
                *(number(columns[name].delay_ms, 0) if name in columns else "–" for name in ("report", "saved")),
                _mark(delay),
            )
        cells.add_section()
    matrix = Table(
        title="Same queue for everyone: medians over the traces",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for head in ("queue", "scheme"):
        matrix.add_column(head, no_wrap=True)
    for head in ("used %", "mean ms", "p50 ms", "p95 ms", "signal p95 ms"):
        matrix.add_column(head, justify="right", no_wrap=True)
    for queue, of_trace in matrix_of(results).items():
        column = list(of_trace.values())
        for place, first in enumerate(column[0].cells):
            entries = [block.cells[place] for block in column]
            matrix.add_row(
                MATRIX_QUEUES[queue] if place == 0 else "",
                first.label,
                number(100 * _median(entries, "utilization")),
                *(
                    number(_median(entries, key))
                    for key in ("qdelay_mean_ms", "qdelay_p50_ms", "qdelay_p95_ms", "signal_delay_p95_ms")
                ),
            )
        matrix.add_section()
    lines = (
        verdict(checks(results))
        if verdicts
        else ["Built-in channels: nothing was published for them, so nothing is checked."]
    )
    return [cells, "\n".join(lines), "", matrix, "\n".join(sentences(results))]


def _mark(check: Check | None) -> str:
    return "" if check is None else "[green]✓[/]" if check.met else "[red]✗[/]"


def _median(cells: Sequence[Cell], key: str) -> float:
    values = [value for cell in cells if (value := cell[key]) is not None]
    return statistics.median(values) if values else float("nan")


def page(results: Results) -> Page:
    """The whole experiment on a page."""
    from verus import figures
    from verus.report import Page, Section, results_table, table
    from verus.table import DELAY_NOTE

    found = checks(results)
    sections = []
    if found:
        body = "".join(f"<p>{html.escape(line)}</p>" for line in verdict(found))
        caption = "The range of the two published columns, widened by the tolerance"
        targets = table(["target", "ours", "wanted", ""], rows(found), caption=caption)
        body += f"<details><summary>Every checked target</summary>{targets}</details>"
        sections.append(Section(title="Targets", body=body))
    sections.append(
        Section(
            title="The report's cells",
            body=_cells_table(results),
            figures=[_published_figure(results)],
        )
    )
    words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences(results))
    matrix = matrix_of(results)
    scatters = [
        figures.scatter(
            results,
            list(of_trace.values()),
            name=f"matrix-{figures.slug(MATRIX_QUEUES[queue])}",
            title=f"Everyone on {MATRIX_QUEUES[queue]}",
        )
        for queue, of_trace in matrix.items()
    ]
    sections.append(Section(title="The same queue for everyone", body=words, figures=scatters))
    tables = "".join(
        f"<details><summary>{html.escape(MATRIX_QUEUES[queue])}</summary>"
        f"{''.join(results_table(block) for block in of_trace.values())}</details>"
        for queue, of_trace in matrix.items()
    )
    sections.append(Section(title="The matrix in numbers", body=f"{tables}<p class=note>{html.escape(DELAY_NOTE)}</p>"))
    sections.append(Section(title="The report's cells over time", figures=_over_time(results)))
    lead = "The 2017 reproduction of Verus run again, and every scheme on the same queue. Source: " + SOURCE + "."
    return Page(title="Verus: the CS244 reproduction", lead=lead, sections=sections)


def _cells_table(results: Results) -> str:
    from verus.report import table
    from verus.table import number, percent

    verdicts = {check.name: check for check in checks(results)}
    body = []
    for (trace, ratio), cell in sorted(cells_of(results).items(), key=lambda item: _order(results, item[0])):
        columns = published().get((trace, ratio), {})
        where = f"{TRACES.get(trace, trace)}, {_who(ratio)}"

        def marked(text: str, check: Check | None) -> str:
            return f"<td class={'aside' if check is None else 'met' if check.met else 'missed'}>{text}</td>"

        values = [marked(number(cell["throughput_mbps"], 2), verdicts.get(f"{where}: throughput"))]
        values += [
            f"<td>{number(columns[name].throughput_mbps, 2) if name in columns else '–'}</td>"
            for name in ("report", "saved")
        ]
        values.append(f"<td>{percent(cell['utilization'])}</td>")
        values.append(marked(number(cell["signal_delay_p95_ms"], 0), verdicts.get(f"{where}: p95 signal delay")))
        values += [
            f"<td>{number(columns[name].delay_ms, 0) if name in columns else '–'}</td>" for name in ("report", "saved")
        ]
        values += [f"<td>{number(cell[key])}</td>" for key in ("qdelay_mean_ms", "qdelay_p50_ms", "qdelay_p95_ms")]
        body.append(f"<tr><th scope=row>{html.escape(where)}</th>{''.join(values)}</tr>")
    heads = [
        "cell",
        "Mbit/s<br>ours",
        "<br>report",
        "<br>saved run",
        "used<br>%",
        "signal p95 ms<br>ours",
        "<br>report",
        "<br>saved run",
        "mean<br>ms",
        "p50<br>ms",
        "p95<br>ms",
    ]
    caption = (
        f"Verus: prototype mode on <b>{CS244_RED}</b>; Cubic on <b>{CS244_DROPTAIL}</b>. "
        "Green and red: checked; grey: beside, not checked."
    )
    return table(heads, body, caption=caption, raw_heads=True)


def _order(results: Results, key: tuple[str, int | None]) -> tuple[int, int]:
    traces = list(dict.fromkeys(run["trace"] for run in results.config["runs"]))
    return traces.index(key[0]), key[1] or 99


def _published_figure(results: Results) -> Figure:
    """Our cells and both published columns, a panel for each trace."""
    from verus import figures
    from verus.style import looks

    measured = cells_of(results)
    style = looks(measured.values())
    panels = []
    for trace in dict.fromkeys(trace for trace, _ in measured):
        values: list[dict[str, Any]] = []
        for ratio in (*RATIOS, None):
            cell = measured[trace, ratio]
            numbers = {"ours": Published(cell["throughput_mbps"] or 0.0, cell["signal_delay_p95_ms"] or 0.0)}
            numbers.update(published().get((trace, ratio), {}))
            values += [
                {
                    "scheme": _who(ratio),
                    "color": style[cell.label].color,
                    "column": column,
                    "throughput": figures.short(entry.throughput_mbps),
                    "delay": figures.short(max(entry.delay_ms, 1.0)),
                }
                for column, entry in numbers.items()
            ]
        panels.append(_published_panel(TRACES.get(trace, trace), values))
    caption = (
        "Filled: ours. Hollow circle: the report's table; cross: the run saved in its repository. "
        "Delay is the 95th percentile of the signal delay in the bottleneck queue; propagation is not in it. "
        f"Verus in prototype mode on {CS244_RED}, Cubic on {CS244_DROPTAIL}; one flow, 20 ms each way, "
        f"{DURATION_S:g} s, the same trace both ways, seed {results.config['seeds'][0]}."
    )
    return figures.Figure(
        name="published", title="Ours beside the published columns", caption=caption, spec=figures.grid(panels)
    )


def _published_panel(title: str, values: list[dict[str, Any]]) -> dict[str, Any]:
    from verus import figures
    from verus.figures.scatter import names_at_pixels, put_names
    from verus.labels import Box

    delays = [value["delay"] for value in values]
    throughputs = [value["throughput"] for value in values]
    margin = 0.12 * (max(throughputs) - min(throughputs))
    frame = figures.Frame(
        x_domain=(min(delays) / 1.4, max(delays) * 2.2), y_domain=(min(throughputs) - margin, max(throughputs) + margin)
    )
    ours = [value for value in values if value["column"] == "ours"]
    spots = [frame.pixel(value["delay"], value["throughput"]) for value in values]
    points = [frame.pixel(value["delay"], value["throughput"]) for value in ours]
    put_names(ours, points, frame, taken=[Box(x - 6, y - 6, 12, 12) for x, y in spots])
    x, y = frame.x("delay", "p95 signal delay, ms"), frame.y("throughput", "throughput, Mbit/s")
    color = {"field": "color", "type": "nominal", "scale": None}
    shape = {"domain": ["ours", "report", "saved"], "range": ["circle", "circle", "cross"]}
    filled = {"test": "datum.column === 'ours'", **color}
    tooltip = [{"field": name, "type": "nominal"} for name in ("scheme", "column", "throughput", "delay")]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.4},
            "encoding": {"x": x, "y": y, "color": color, "detail": {"field": "scheme"}, "order": {"field": "column"}},
        },
        {
            "mark": {"type": "point", "size": 70, "strokeWidth": 1.8, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "stroke": color,
                "fill": {"condition": filled, "value": "transparent"},
                "shape": {"field": "column", "type": "nominal", "scale": shape, "legend": None},
                "tooltip": tooltip,
            },
        },
        {"data": {"values": ours}, **names_at_pixels()},
        *figures.heading(title),
    ]
    return {"width": frame.width, "height": frame.height, "data": {"values": values}, "layer": layers}


def _over_time(results: Results) -> list[Figure]:
    """Verus's and Cubic's cells of each trace in one picture, though their queues differ."""
    from verus import figures
    from verus.summary import Block

    measured = cells_of(results)
    return [
        figures.series(
            results,
            Block(trace=trace, queue="each its own", cells=tuple(measured[trace, ratio] for ratio in (*RATIOS, None))),
            name=f"series-{figures.slug(trace)}",
        )
        for trace in dict.fromkeys(trace for trace, _ in measured)
    ]


EXPERIMENT = Experiment(name="cs244", source=SOURCE, prepare=prepare, checks=checks, page=page, summary=summary)
