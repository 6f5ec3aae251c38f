"""The 2017 reproduction of Verus (Stanford CS244), and the question it left open.

Zhang and Dutz ran the authors' prototype at R = 2, 4 and 6 and Linux Cubic over six recordings.
Each protocol had a different queue: Verus a RED that hardly ever dropped, Cubic 120 kB of
drop-tail. *Cells* runs those 24 again, beside both published columns: one from their write-up, one
from the run kept in their repository. *Matrix* runs every scheme over every queue, which separates
the effect of the protocol from that of its buffer.

Their delay is the 95th percentile of the signal delay. Sizes include a 4-byte device header:
1482 bytes for a Verus packet, 1504 bytes for a Cubic packet or an opportunity.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from verus import _verus
from verus.lab.scenario import Contestant, Run, distinct
from verus.papers.claims import RECORDINGS
from verus.papers.published import listed
from verus.papers.reproduction import Column, ColumnResults, Place, Reproduction, Table
from verus.report import figures
from verus.report.figures import Figure
from verus.report.figures.labels import Box
from verus.report.figures.scatter import names_beside, put_names
from verus.report.numbers import number, percent
from verus.report.style import looks
from verus.report.summary import Block, Cell

SOURCE = (
    "Z. Zhang and D. Dutz, CS244 '17: Adaptive Congestion Control for Unpredictable Cellular Networks (2017), after "
    "Y. Zaki et al., Adaptive Congestion Control for Unpredictable Cellular Networks, ACM SIGCOMM 2015"
)

#: The recordings in the order of the report, and the built-in channels nearest to them in rate and movement.
CHANNELS = {
    "campus pedestrian": Place("campus-pedestrian-3g-up", "cs244-2017/camp_ped_2min"),
    "city driving": Place("city-driving-3g-up", "cs244-2017/city_drive_2min"),
    "highway driving": Place("highway-driving-3g-up", "cs244-2017/highway_drive_2min"),
    "AT&T LTE 2016": Place("city-driving-lte-up", "cs244-2017/ATT-LTE-driving-2016.up"),
    "Verizon EVDO": Place("city-waterfront-3g-up", "cs244-2017/Verizon-EVDO-driving.up"),
    "T-Mobile LTE": Place("shopping-mall-lte-down", "cs244-2017/TMobile-LTE-driving.up"),
}
#: Those recorded by Verus's authors: their claims' names.
AUTHORS = {"campus pedestrian": "camp", "city driving": "city", "highway driving": "highway"}
AT_T, EVDO, T_MOBILE = "AT&T LTE 2016", "Verizon EVDO", "T-Mobile LTE"
#: Every claim's name of its recording.
NAMES = {**AUTHORS, AT_T: "att", EVDO: "evdo", T_MOBILE: "tmobile"}
#: The other direction of T-Mobile's link, which the report names without a table.
OTHER_DIRECTION = "T-Mobile LTE, other direction"
OTHER = {OTHER_DIRECTION: Place("shopping-mall-lte-up", "cs244-2017/TMobile-LTE-driving.down")}

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
#: The report's delay.
DELAY = "signal_delay_p95_ms"
VERUS_PACKET, FULL_PACKET = 1482, 1504  # 1450 B of payload, or a full frame, as the link accounts them


@dataclass(frozen=True)
class Published:
    """One cell of one published column."""

    throughput_mbps: float
    delay_ms: float


@cache
def published() -> Mapping[tuple[str, int | None], Mapping[str, Published]]:
    """(place, R or None for Cubic) → column (``report``, ``saved``) → numbers."""
    places = {place.recording.rpartition("/")[2]: name for name, place in CHANNELS.items()}
    cells: dict[tuple[str, int | None], dict[str, Published]] = {}
    for row in listed("verus.papers.later", "cs244.csv"):
        key = (places[row["trace"]], int(row["ratio"]) if row["ratio"] else None)
        cells.setdefault(key, {})[row["column"]] = Published(float(row["throughput_mbps"]), float(row["delay_ms"]))
    return cells


def runs(column: Column) -> list[Run]:
    """The 24 cells, then the matrix."""

    def one(place: str, contestant: Contestant, queue: str, packet_bytes: int, part: str) -> Run:
        run = column.run(
            place,
            contestant.text,
            label=contestant.label,
            part=part,
            queue=queue,
            duration_s=DURATION_S,
            ack="same",
            ack_queue=queue,
            packet_bytes=packet_bytes,
            opportunity_bytes=1504,
            loop=column.name != RECORDINGS,
        )
        return dataclasses.replace(run, contestant=contestant)

    prototype = [Contestant.from_scheme(f"verus:ratio={ratio},mode=prototype") for ratio in RATIOS]
    robust = [Contestant.from_scheme(f"verus:ratio={ratio}") for ratio in RATIOS]
    cubic, *others = (Contestant.from_scheme(name) for name in ("cubic", "newreno", "vegas"))
    everyone = distinct([*robust, *prototype, cubic, *others])
    cells = [one(place, entry, CS244_RED, VERUS_PACKET, "cells") for place in CHANNELS for entry in everyone[3:6]]
    cells += [one(place, everyone[6], CS244_DROPTAIL, FULL_PACKET, "cells") for place in CHANNELS]
    matrix = [
        one(place, entry, queue, FULL_PACKET, "matrix")
        for queue in MATRIX_QUEUES
        for place in CHANNELS
        for entry in everyone
    ]
    other = [
        one(OTHER_DIRECTION, prototype[-1], CS244_RED, VERUS_PACKET, "other"),
        one(OTHER_DIRECTION, everyone[6], CS244_DROPTAIL, FULL_PACKET, "other"),
    ]
    return cells + matrix + other


def compute(column: Column) -> Mapping[str, float]:
    """How much the rate of each channel varies from second to second."""
    return {place: float(_verus.trace_info(column.paths[place])["cv_1s"]) for place in CHANNELS}


def cells_of(results: ColumnResults) -> dict[tuple[str, int | None], Cell]:
    """(place, R or None for Cubic) → what we measured in the report's set-up."""
    return {
        (place, _ratio(cell)): cell
        for place in CHANNELS
        for block in results.where(place=place, part="cells").blocks()
        for cell in block.cells
    }


def _ratio(cell: Cell) -> int | None:
    return int(cell.params["ratio"]) if cell.scheme == "verus" else None


def _who(ratio: int | None) -> str:
    return "Cubic" if ratio is None else f"Verus R={ratio}"


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """The report's cells, how they go with R, and its sentences; nothing was published for built-in channels."""
    if results.column != RECORDINGS:
        return {}
    measured = cells_of(results)
    keys = {"throughput": "throughput_mbps", "delay": DELAY}
    values: dict[str, float | None] = {}
    for place, name in NAMES.items():
        for what, key in keys.items():
            for ratio in (*RATIOS, None):
                values[f"{name}-{'cubic' if ratio is None else f'r{ratio}'}-{what}"] = measured[place, ratio][key]
    for place, name in AUTHORS.items():
        for what, key in keys.items():
            for low, high in itertools.pairwise(RATIOS):
                values[f"{name}-{what}-{low}-{high}"] = _over(measured[place, high][key], measured[place, low][key])
    for place, name in ((AT_T, "att-below-cubic"), (EVDO, "evdo-below-cubic"), (T_MOBILE, "tmobile-above-cubic")):
        for ratio in RATIOS:
            values[f"{name}-{ratio}"] = _over(measured[place, ratio][DELAY], measured[place, None][DELAY])
    verus, cubic = (row[DELAY] for row in results.where(part="other").rows)
    values["tmobile-other-above-cubic-6"] = _over(verus, cubic)
    others = [variation for place, variation in results.measured.items() if place != T_MOBILE]
    values["tmobile-regular"] = results.measured[T_MOBILE] / statistics.median(others)
    return values


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


# A scheme that leaves more of the link unused buys its delay with it.
USES_MOST = 0.9


def matrix_of(results: ColumnResults) -> dict[str, dict[str, Block]]:
    """Queue → place → everyone's results."""
    matrix: dict[str, dict[str, Block]] = {}
    for place in CHANNELS:
        for block in results.where(place=place, part="matrix").blocks():
            matrix.setdefault(block.queue, {})[place] = block
    return matrix


def _cell_of_verus(block: Block, ratio: int, mode: str) -> Cell:
    return next(
        cell
        for cell in block.cells
        if cell.scheme == "verus" and cell.params.get("mode", "robust") == mode and _ratio(cell) == ratio
    )


def _cubic(block: Block) -> Cell:
    return next(cell for cell in block.cells if cell.scheme == "cubic")


def sentences(results: ColumnResults) -> list[str]:
    """Sentences about the matrix, made from its numbers."""
    matrix = matrix_of(results)
    said = []
    for ratio in RATIOS:
        parts = [
            _against_cubic(list(of_place.values()), MATRIX_QUEUES[queue], ratio) for queue, of_place in matrix.items()
        ]
        compared = f"Verus R={ratio} (robust) against Cubic"
        said.append(f"On one and the same queue, {compared}, medians over the traces: {'; '.join(parts)}.")
    said.append(_least_delay(matrix))
    if all(T_MOBILE in of_place for of_place in matrix.values()):
        said.append(_negative_result(matrix))
    return said


def _least_delay(matrix: Mapping[str, Mapping[str, Block]]) -> str:
    """For each queue, the two schemes of least mean delay among those that use most of the link."""
    parts = []
    for queue, of_place in matrix.items():
        columns = zip(*(block.cells for block in of_place.values()), strict=True)
        medians = [
            (statistics.median(cell["qdelay_mean_ms"] or 0 for cell in cells), cells[0].label)
            for cells in columns
            if statistics.median(cell["utilization"] or 0 for cell in cells) >= USES_MOST
        ]
        if not medians:
            continue
        (delay, best), *others = sorted(medians)
        next_best = f" before {others[0][1]} ({others[0][0]:.0f} ms)" if others else ""
        parts.append(f"on {MATRIX_QUEUES[queue]}, {best} ({delay:.0f} ms){next_best}")
    share = percentage(USES_MOST)
    return f"One flow alone, the least mean delay of those that use {share} of the link or more: {'; '.join(parts)}."


def _against_cubic(column: Sequence[Block], queue: str, ratio: int) -> str:
    pairs = [(_cell_of_verus(block, ratio, "robust"), _cubic(block)) for block in column]
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
    for queue, of_place in matrix.items():
        block = of_place[T_MOBILE]
        cubic_ms = _cubic(block)["signal_delay_p95_ms"] or 0.0
        worse = [
            ratio
            for ratio in RATIOS
            if (_cell_of_verus(block, ratio, "prototype")["signal_delay_p95_ms"] or 0.0) > cubic_ms
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


def tables(results: ColumnResults) -> Sequence[Table]:
    """The report's cells beside both published columns, and the matrix by queue."""
    cells = []
    for (place, ratio), cell in cells_of(results).items():
        columns = published()[place, ratio] if results.column == RECORDINGS else {}
        pairs = [columns.get(name) for name in ("report", "saved")]
        cells.append(
            [
                f"{place}, {_who(ratio)}",
                number(cell["throughput_mbps"], 2),
                *(number(None if pair is None else pair.throughput_mbps, 2) for pair in pairs),
                percent(cell["utilization"]),
                number(cell["signal_delay_p95_ms"], 0),
                *(number(None if pair is None else pair.delay_ms, 0) for pair in pairs),
                number(cell["qdelay_mean_ms"]),
            ]
        )
    heads = ["", "Mbit/s", "report", "saved", "used %", "signal p95 ms", "report", "saved", "mean ms"]
    title = f"The report's cells: Verus in prototype mode on {CS244_RED}, Cubic on {CS244_DROPTAIL}"
    rows = []
    for queue, of_place in matrix_of(results).items():
        column = list(of_place.values())
        for position, first in enumerate(column[0].cells):
            entries = [block.cells[position] for block in column]
            delays = ("qdelay_mean_ms", "qdelay_p50_ms", "qdelay_p95_ms", "signal_delay_p95_ms")
            rows.append(
                [
                    f"{MATRIX_QUEUES[queue]}, {first.label}",
                    percent(_median(entries, "utilization")),
                    *(number(_median(entries, key)) for key in delays),
                ]
            )
    return [
        Table(title=title, heads=heads, rows=cells),
        Table(
            title="The same queue for everyone: medians over the traces",
            heads=["", "used %", "mean ms", "p50 ms", "p95 ms", "signal p95 ms"],
            rows=rows,
        ),
    ]


def _median(entries: Sequence[Cell], key: str) -> float:
    values = [value for cell in entries if (value := cell[key]) is not None]
    return statistics.median(values) if values else float("nan")


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Our cells beside the published ones, everyone on each queue, and the cells over time."""
    scatters = [
        figures.scatter(
            results.results,
            list(of_place.values()),
            name=f"matrix-{figures.slug(MATRIX_QUEUES[queue])}",
            title=f"Everyone on {MATRIX_QUEUES[queue]}",
        )
        for queue, of_place in matrix_of(results).items()
    ]
    # Nothing was published for built-in channels: their cells over time would be many pictures for little.
    return [_published_figure(results), *scatters, *(_over_time(results) if results.column == RECORDINGS else ())]


def _published_figure(results: ColumnResults) -> Figure:
    """Our cells and both published columns, a panel for each trace."""
    measured = cells_of(results)
    style = looks(measured.values())
    panels = []
    for place in CHANNELS:
        values: list[dict[str, Any]] = []
        for ratio in (*RATIOS, None):
            cell = measured[place, ratio]
            numbers = {"ours": Published(cell["throughput_mbps"] or 0.0, cell["signal_delay_p95_ms"] or 0.0)}
            numbers.update(published()[place, ratio] if results.column == RECORDINGS else {})
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
        panels.append(_published_panel(place, results.where(place=place).rows[0]["trace"], values))
    caption = (
        "Filled: ours. Hollow circle: the report's table; cross: the run saved in its repository. "
        "Delay is the 95th percentile of the signal delay in the bottleneck queue; propagation is not in it. "
        f"Verus in prototype mode on {CS244_RED}, Cubic on {CS244_DROPTAIL}; one flow, 20 ms each way, "
        f"{DURATION_S:g} s, the same trace both ways, seed {results.rows[0]['seed']}."
    )
    return figures.Figure(
        name="published", title="Ours beside the published columns", caption=caption, spec=figures.grid(panels)
    )


def _published_panel(title: str, subtitle: str, values: list[dict[str, Any]]) -> dict[str, Any]:
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
        {"data": {"values": ours}, **names_beside(x, y)},
        *figures.heading(title, subtitle),
    ]
    return {"width": frame.width, "height": frame.height, "data": {"values": values}, "layer": layers}


def _over_time(results: ColumnResults) -> list[Figure]:
    """Verus's and Cubic's cells of each trace in one picture, though their queues differ."""
    measured = cells_of(results)
    return [
        figures.series(
            results.results,
            Block(
                trace=place,
                short=place,
                queue="each its own",
                cells=tuple(measured[place, ratio] for ratio in (*RATIOS, None)),
            ),
            name=f"series-{figures.slug(place)}",
        )
        for place in CHANNELS
    ]


EXPERIMENT = Reproduction(
    name="cs244",
    title="The 2017 reproduction, and the question it left open",
    source=SOURCE,
    shows=(
        "The authors' prototype at R = 2, 4 and 6 and Linux Cubic over six recordings, in two published columns: the "
        "report's tables, and the run kept in its repository. Throughput and delay rise with R; on T-Mobile's trace, "
        "Verus has more delay than Cubic."
    ),
    set_up=(
        "Cells: prototype mode on the report's RED, Cubic on its drop-tail of 120 kB, the same trace both ways, 20 ms "
        "each way, two minutes. Matrix: every scheme on every queue, since a protocol and its buffer cannot be told "
        "apart otherwise. Nothing was published for built-in channels, so claims are checked on recordings only. The "
        "report asks to run again and to average; the simulator draws nothing but RED's drops, and runs once."
    ),
    channels={**CHANNELS, **OTHER},
    runs=runs,
    compute=compute,
    measure=measure,
    tables=tables,
    sentences=sentences,
    draw=draw,
).experiment()
