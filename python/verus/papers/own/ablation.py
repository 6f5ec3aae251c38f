"""What each part of Verus's default mode is worth: all of it but one, over recordings, paths and crowds.

Not a published result but a question to our own additions to one. Each part that the default mode adds to the paper
is left out by itself (`verus:without=PART`, or the paper's reading of a key); paper and prototype mode stand below.
With one seed; `elimination` has intervals, and says how few parts are enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verus import _verus
from verus.lab.results import Results
from verus.lab.runner import Progress, run_all
from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.experiment import Options, Work
from verus.papers.own.plain_tables import experiment
from verus.papers.reproduction import Column, Place, columns_for
from verus.report.grid import Grid
from verus.report.summary import mean

NAME = "ablation"

#: Where one flow is alone: built-in channels, and the recordings that stand for them.
CHANNELS = {
    "campus up": Place("campus-pedestrian-3g-up", "cs244-2017/camp_ped_2min"),
    "city up": Place("city-driving-3g-up", "cs244-2017/city_drive_2min"),
    "highway up": Place("highway-driving-3g-up", "cs244-2017/highway_drive_2min"),
    "EVDO": Place("city-waterfront-3g-up", "cs244-2017/Verizon-EVDO-driving.up"),
    "T-Mobile LTE": Place("shopping-mall-lte-down", "cs244-2017/TMobile-LTE-driving.up"),
    "UMTS": Place("city-driving-3g-down", "mahimahi/TMobile-UMTS-driving.down"),
    "Verizon LTE": Place("city-stationary-lte-up", "mahimahi/Verizon-LTE-short.up"),
    "pedestrian down": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "city down": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
    "highway down": Place("highway-driving-lte-down", "verus-2015/highway-driving.down"),
}

#: Where the default mode reads the paper otherwise, and the key that reads it as the paper does.
READINGS = {
    "monotone": "fit=interpolation",
    "memory": "point_memory_ms=0",
    "in-flight": "window_reference=current_window",
    "floor": "floor=no",
    "early-exit": "exit_multiple=15",
}
#: What the default mode adds, by the names that `without` takes.
ADDITIONS: tuple[str, ...] = tuple(
    part
    for scheme in json.loads(_verus.list_schemes())
    if scheme["name"] == "verus"
    for key in scheme["keys"]
    if key["key"] == "without"
    for part in re.split(", | or ", key["unit"])
    if part != "none"
)
#: Both are the parts of the default mode.
PARTS = (*READINGS, *ADDITIONS)


def left_out(parts: Sequence[str]) -> str:
    """The keys that leave these parts out, after another key.

    Example:
        >>> left_out([]), left_out(["memory", "drains", "losses"])
        ('', ',point_memory_ms=0,without=drains+losses')
    """
    keys = [READINGS[part] for part in parts if part in READINGS]
    added = [part for part in parts if part not in READINGS]
    return "".join(f",{key}" for key in [*keys, *([f"without={'+'.join(added)}"] if added else [])])


#: The default mode whole, without each part, and what it is built on.
VARIANTS = {
    "(nothing)": "",
    **{part: left_out([part]) for part in PARTS},
    "(paper mode)": ",mode=paper",
    "(paper mode, a silence counts as delay)": ",mode=paper,silent_epoch=since_last_ack",
    "(prototype mode)": ",mode=prototype",
}

#: How many flows share a link, and where.
CROWDS, SHARED = (2, 5, 10), ("rate:20", "city down")
#: The seconds between their starts.
APART_S = 0.5

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Runs of one kind, and what is read off them.

    Attributes:
        name: Names its runs, and heads its column.
        runs: Those of one variant, whose scheme for an R is given, under a part's name.
        show: What a table shows of them.
        table: Which.
    """

    name: str
    runs: Callable[[Column, Callable[[int], str], str], Sequence[Run]]
    show: Callable[[Rows], str]
    table: str


def _percent(rows: Rows, key: str = "utilization") -> float:
    return 100.0 * float(np.mean([row[key] for row in rows]))


def _delay(rows: Rows, key: str) -> float:
    found = mean([row[key] for row in rows])
    return float("nan") if found is None else found


def _used_at(rows: Rows) -> str:
    return f"{_percent(rows):.1f} at {_delay(rows, 'qdelay_p95_ms'):.0f}"


def shares(row: Mapping[str, Any]) -> list[float]:
    """Throughput of each flow of a run, Mbit/s."""
    return [flow["throughput_mbps"] for flow in row["per_flow"]]


def _jain(rates: Sequence[float]) -> float:
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def _fair(rows: Rows) -> str:
    second = float(np.mean([row["jain_active"] for row in rows]))
    whole = float(np.mean([_jain(shares(row)) for row in rows]))
    return f"{second:.2f} {whole:.2f} {_delay(rows, 'qdelay_mean_ms'):.0f}"


def _crowd(ratio: int, count: int) -> Suite:
    flows = [{"start_s": APART_S * at} for at in range(count)]

    def runs(column: Column, scheme: Callable[[int], str], part: str) -> list[Run]:
        return [
            column.run(place, scheme(ratio), flows=flows, part=part, duration_s=60.0, series=False) for place in SHARED
        ]

    return Suite(name=f"{count}, R = {ratio}", runs=runs, show=_fair, table="crowds")


def _path(
    name: str,
    place: str,
    show: Callable[[Rows], str],
    *,
    duration_s: float = 30.0,
    flows: Sequence[Mapping[str, Any]] | int = 1,
    ratio: int = 2,
    seeds: int = 1,
    **fields: Any,
) -> Suite:
    def runs(column: Column, scheme: Callable[[int], str], part: str) -> list[Run]:
        told = {"flows": flows, "part": part, "duration_s": duration_s, "series": False, **fields}
        return [column.run(place, scheme(ratio), seed=seed, **told) for seed in column.seeds(seeds)]

    return Suite(name=name, runs=runs, show=show, table="paths")


def _alone(column: Column, scheme: Callable[[int], str], part: str) -> list[Run]:
    return [column.run(place, scheme(2), part=part, duration_s=60.0, series=False) for place in CHANNELS]


def change(
    at_s: float, rate_mbps: float | None = None, delay_ms: float | None = None, loss: float | None = None
) -> dict[str, Any]:
    """A change of the path, as a scenario has it."""
    return {"at_s": at_s, "rate_mbps": rate_mbps, "delay_ms": delay_ms, "loss": loss}


def outages(*spans: tuple[float, float]) -> list[dict[str, Any]]:
    """The link of 8 Mbit/s holds its packets from one second to the other."""
    return [one for start, end in spans for one in (change(start, 0.0), change(end, 8.0))]


def drop_tail(packets: int) -> str:
    """A queue for so many packets."""
    return f"droptail:bytes={1500 * packets}"


def _used_lost(rows: Rows) -> str:
    return f"{_percent(rows):.1f}, {_percent(rows, 'loss_rate'):.1f} lost"


def _share_of_first(rows: Rows) -> str:
    return f"{float(np.mean([2 * shares(row)[0] / sum(shares(row)) for row in rows])):.2f}"


def _largest_over_smallest(rows: Rows) -> str:
    return f"{float(np.mean([max(shares(row)) / min(shares(row)) for row in rows])):.2f}"


_THREE_TRIPS = [{"delay_ms": trip / 2} for trip in (20, 50, 100)]

SUITES = (
    Suite(name="one flow", runs=_alone, show=_used_at, table="paths"),
    _path("chance loss 1 %", "rate:20", _used_at, loss=0.01),
    _path("outages, held", "rate:8", _used_at, changes=outages((5, 5.5), (10, 14), (20, 20.2))),
    _path("outage of 4 s, lost", "rate:8", _used_at, changes=[change(5.0, loss=1.0), change(9.0, loss=0.0)]),
    _path("+ 50 ms at 15 s", "rate:10", _used_at, duration_s=45.0, changes=[change(15.0, delay_ms=45.0)]),
    _path("round trip 1 ms", "rate:50", _used_at, duration_s=15.0, delay_ms=0.5),
    _path("300 Mbit/s, 150 packets", "rate:300", _used_lost, duration_s=10.0, queue=drop_tail(150)),
    _path("buffer of ¼ BDP", "rate:10", _used_lost, queue=drop_tail(8)),
    _path("buffer of 1 BDP", "rate:10", _used_lost, queue=drop_tail(33)),
    _path("CoDel", "rate:10", _used_lost, queue="codel"),
    _path("0.5 % come 60 ms late", "rate:10", _used_at, reorder="late:p=0.005,ms=60"),
    _path("beside Cubic", "rate:20", _share_of_first, duration_s=60.0, flows=[{}, {"scheme": "cubic"}], seeds=3),
    _path(
        "three round trips",
        "rate:30",
        _largest_over_smallest,
        duration_s=60.0,
        flows=_THREE_TRIPS,
        ratio=6,
        queue=drop_tail(125),
        seeds=2,
    ),
    *(_crowd(ratio, count) for ratio in (2, 4) for count in CROWDS),
)

#: Why flows are unfair: label → keys, each cause taken away on top of those before it.
_TOLD = ",told_delay_min_ms=41"
_CURRENT = f"{_TOLD},window_reference=current_window"
CAUSES = {
    "default mode": "",
    "+ D_min told": _TOLD,
    "+ Eq. 5 with the current window": _CURRENT,
    "+ without capacity": f"{_CURRENT},without=capacity",
    "paper mode": ",mode=paper",
    "paper mode, D_min told": f",mode=paper{_TOLD}",
}
CAUSE_COUNTS, CAUSE_RATIOS, CAUSE_S = (5, 10, 20), (2, 4, 6), 60.0
CAUSE_QUEUES = {"nothing lost": "infinite", "RED": PAPER_QUEUE}


def _causes(column: Column) -> list[Run]:
    return [
        column.run(
            "rate:20",
            f"verus:ratio={ratio}{keys}",
            flows=[{"start_s": APART_S * at} for at in range(count)],
            part=f"causes|{ratio}|{label}|{name}|{count}",
            queue=queue,
            duration_s=CAUSE_S,
            series=False,
        )
        for ratio in CAUSE_RATIOS
        for label, keys in CAUSES.items()
        for name, queue in CAUSE_QUEUES.items()
        for count in CAUSE_COUNTS
    ]


#: What the tables' numbers are.
LEGENDS = {
    "paths": (
        "share of the capacity used in % at the 95th percentile of queueing delay in ms, R = 2, or packets lost in %; "
        "beside Cubic: 1 is a fair share; three round trips (20, 50, 100 ms, R = 6): largest over smallest throughput"
    ),
    "crowds": (
        f"flows that start {APART_S:g} s apart, mean over {' and '.join(SHARED)}: Jain's index in windows of 1 s, "
        "of the whole run, and the mean queueing delay in ms"
    ),
    "causes": (
        f"why flows are unfair: the same three numbers of flows that start {APART_S:g} s apart on 20 Mbit/s, in a "
        "queue that drops nothing and in the paper's; each line that begins with + takes one more cause away"
    ),
}


def _scheme(keys: str) -> Callable[[int], str]:
    return lambda ratio: f"verus:ratio={ratio}{keys}"


def prepare(options: Options) -> Work:
    """Looks for the recordings; built-in channels do without."""
    columns, missing = columns_for(NAME, CHANNELS, options)
    column = columns[-1]

    def work(progress: Progress | None) -> Results:
        planned = [
            run
            for variant, keys in VARIANTS.items()
            for suite in SUITES
            for run in suite.runs(column, _scheme(keys), f"{suite.name}|{variant}")
        ]
        planned += _causes(column)
        settings = {
            "experiment": NAME,
            "seed": options.seed,
            "repeat": options.repeat,
            "channels": column.name,
            "missing": missing,
        }
        return Results.collect(planned, run_all(planned, progress=progress), kind=NAME, settings=settings)

    return work


def tables(results: Results) -> dict[str, Grid]:
    """Each table by its name."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in results.rows.to_pylist():
        _, _, *names = row["part"].split("|")
        found.setdefault(tuple(names), []).append(row)
    made = {}
    for name in ("paths", "crowds"):
        own = [suite for suite in SUITES if suite.table == name]
        lines = [[variant, *(suite.show(found[suite.name, variant]) for suite in own)] for variant in VARIANTS]
        made[name] = Grid(heads=["without", *(suite.name for suite in own)], rows=lines, title=LEGENDS[name])
    heads = [f"{count} flows, {name}" for name in CAUSE_QUEUES for count in CAUSE_COUNTS]
    cells: dict[tuple[str, str], list[str]] = {}
    for names, rows in found.items():
        if names[0] == "causes":
            cells.setdefault((names[1], names[2]), []).append(_fair(rows))
    lines = [[f"R = {ratio}, {label}", *row] for (ratio, label), row in cells.items()]
    made["causes"] = Grid(heads=["", *heads], rows=lines, title=LEGENDS["causes"])
    return made


EXPERIMENT = experiment(
    name=NAME,
    source="none: what Verus's default mode adds to the paper",
    title="Verus: what each part of the default mode is worth",
    about=__doc__,
    prepare=prepare,
    tables=tables,
    lines=lambda found: [["without", "test", "found"], *(cell for one in found.values() for cell in one.cells())],
)
