"""What each part of Verus's default mode is worth: left out by itself, and one after the other.

Leaving out one part at a time overlooks that two parts may do the same: each alone seems to be worth nothing. So the
part whose absence costs least goes first, then the least valuable of those that remain, until none is left. Each step
is chosen on one half of the channels and seeds; what it costs is measured on the other half, with intervals, and so is
each part left out by itself. What it does to the papers' claims takes longer: verus reproduce all --modes KEYS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import RenderableType

from verus import _verus
from verus.lab import metric_rows
from verus.lab.interval import half_width, interval_note
from verus.lab.results import Results
from verus.lab.runner import Progress, run_all
from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.experiment import Experiment, Options, Work
from verus.papers.reproduction import Column, Place, columns_for
from verus.report.grid import Grid, to_csv
from verus.report.page import Page, Section

NAME = "ablation"
TITLE = "Verus: what each part is worth, and how few are enough"

#: Where the default mode reads the paper otherwise, and the key that reads it as the paper does.
READINGS = {
    "monotone": "fit=interpolation",
    "memory": "point_memory_ms=0",
    "in-flight": "window_reference=current_window",
    "floor": "floor=no",
    "early-exit": "exit_multiple=15",
}
#: Parts that the default mode adds, by the names that `without` takes.
ADDITIONS = tuple(
    part
    for scheme in _verus.complete("scheme", "verus:without=")
    if (part := scheme.removeprefix("verus:without=")) != "none"
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


#: The mode that the default mode is built on, and the prototype's variant of it.
MODES = {
    "(paper)": ",mode=paper",
    "(paper, silence is delay)": ",mode=paper,silent_epoch=since_last_ack",
    "(prototype)": ",mode=prototype",
}

#: Channels of a single flow, built-in and recorded: those on which parts are chosen, and those on
#: which the choice is judged.
CHOSEN_ON = {
    "campus up": Place("campus-pedestrian-3g-up", "cs244-2017/camp_ped_2min"),
    "city up": Place("city-driving-3g-up", "verus-2015/city-driving.up"),
    "highway down": Place("highway-driving-lte-down", "verus-2015/highway-driving.down"),
    "T-Mobile LTE": Place("shopping-mall-lte-down", "cs244-2017/TMobile-LTE-driving.up"),
    "Verizon LTE": Place("city-stationary-lte-up", "mahimahi/Verizon-LTE-short.up"),
    "city down": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
}
JUDGED_ON = {
    "highway up": Place("highway-driving-3g-up", "cs244-2017/highway_drive_2min"),
    "campus down": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "EVDO": Place("city-waterfront-3g-up", "cs244-2017/Verizon-EVDO-driving.up"),
    "UMTS": Place("city-waterfront-3g-down", "mahimahi/TMobile-UMTS-driving.down"),
    "AT&T LTE": Place("city-driving-lte-up", "cs244-2017/ATT-LTE-driving-2016.up"),
    "Times Square LTE": Place("city-waterfront-lte-down", "nyc-2019/trace-3205967-timessquare"),
}
#: Where flows share a link, likewise.
SHARED_CHOSEN, SHARED_JUDGED = ("rate:20", "city down"), ("rate:12", "Times Square LTE")

#: How many flows share a link, and the seconds between their starts.
CROWDS, APART_S = (2, 5, 10), 0.5
#: Stretches begin at these seconds of a channel, and last so long.
OFFSETS_S, STRETCH_S = (0, 20, 40), 60
#: Seeds on which parts are chosen, and those on which the choice is judged.
CHOSEN_SEEDS, JUDGED_SEEDS = (1,), (6, 7, 8, 9, 10)

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """One half of the channels and seeds: parts are chosen on one, the choice judged on the other.

    Attributes:
        alone: Where one flow is alone, with the second at which each stretch begins.
        shared: Likewise of many flows.
        seeds: Of every run.
    """

    alone: Sequence[str]
    shared: Sequence[str]
    seeds: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that the parts should improve.

    Attributes:
        name: Head of its column.
        read: Computes it from the rows of one seed.
        unit_change: The change of it that adds 1 to a score; negative where less is better.
        suite: The runs it is read from.
    """

    name: str
    read: Callable[[Rows], float]
    unit_change: float
    suite: str


def _shares(row: Mapping[str, Any]) -> list[float]:
    return [flow["throughput_mbps"] for flow in row["per_flow"]]


def _percent(key: str) -> Callable[[Rows], float]:
    return lambda rows: 100.0 * float(np.mean([row[key] for row in rows]))


def _waited(key: str) -> Callable[[Rows], float]:
    """A delay in ms; a second where nothing was delivered."""
    return lambda rows: float(np.mean([row[key] or 1e3 for row in rows]))


def _fair(rows: Rows) -> float:
    return float(np.mean([row["jain_active"] for row in rows]))


def _share_of_first(rows: Rows) -> float:
    return float(np.mean([2 * _shares(row)[0] / sum(_shares(row)) for row in rows]))


def _largest_over_smallest(rows: Rows) -> float:
    return float(np.mean([max(_shares(row)) / max(min(_shares(row)), 1e-3) for row in rows]))


_USED, _LOST, _P95 = _percent("utilization"), _percent("loss_rate"), _waited("qdelay_p95_ms")

#: Terms of a score, each weighed by the change equivalent to one percentage point of a recording's
#: capacity.
MEASURES = (
    Measure(name="alone, used %", read=_USED, unit_change=1.0, suite="alone"),
    Measure(name="alone, p95 ms", read=_P95, unit_change=-5.0, suite="alone"),
    *(
        measure
        for count in CROWDS
        for measure in (
            Measure(name=f"{count} flows, Jain", read=_fair, unit_change=0.02, suite=f"{count} flows"),
            Measure(
                name=f"{count} flows, ms", read=_waited("qdelay_mean_ms"), unit_change=-5.0, suite=f"{count} flows"
            ),
        )
    ),
    Measure(name="buffers, used %", read=_USED, unit_change=2.0, suite="buffers"),
    Measure(name="buffers, lost %", read=_LOST, unit_change=-1.0, suite="buffers"),
    Measure(name="20 flows in one BDP, lost %", read=_LOST, unit_change=-1.0, suite="crowded"),
    Measure(name="outages, used %", read=_USED, unit_change=2.0, suite="outages"),
    Measure(name="outages, p95 ms", read=_P95, unit_change=-10.0, suite="outages"),
    Measure(name="longer path, used %", read=_USED, unit_change=4.0, suite="longer"),
    Measure(name="chance loss, used %", read=_USED, unit_change=4.0, suite="chance"),
    Measure(name="beside Cubic, share", read=_share_of_first, unit_change=0.1, suite="cubic"),
    Measure(name="three round trips", read=_largest_over_smallest, unit_change=-0.2, suite="trips"),
)


def _change(
    at_s: float, rate_mbps: float | None = None, delay_ms: float | None = None, loss: float | None = None
) -> dict[str, Any]:
    return {"at_s": at_s, "rate_mbps": rate_mbps, "delay_ms": delay_ms, "loss": loss}


def _outages(*spans: tuple[float, float]) -> list[dict[str, Any]]:
    return [change for start, end in spans for change in (_change(start, 0.0), _change(end, 8.0))]


def _drop_tail(packets: int) -> str:
    return f"droptail:bytes={1500 * packets}"


def _flows(count: int) -> list[dict[str, Any]]:
    return [{"start_s": APART_S * at} for at in range(count)]


#: Paths of a constant rate: suite → the scenarios run on each.
PATHS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "buffers": [
        {"place": "rate:10", "queue": _drop_tail(8)},
        {"place": "rate:10", "queue": _drop_tail(33)},
        {"place": "rate:10", "queue": "codel"},
        {"place": "rate:300", "queue": _drop_tail(150), "duration_s": 10.0},
    ],
    "crowded": [{"place": "rate:20", "queue": _drop_tail(67), "flows": _flows(20)}],
    "outages": [
        {"place": "rate:8", "changes": _outages((5, 5.5), (10, 14), (20, 20.2))},
        {"place": "rate:8", "changes": [_change(5.0, loss=1.0), _change(9.0, loss=0.0)]},
    ],
    "longer": [{"place": "rate:10", "duration_s": 45.0, "changes": [_change(15.0, delay_ms=45.0)]}],
    "chance": [{"place": "rate:20", "loss": 0.01}],
    "cubic": [{"place": "rate:20", "flows": [{}, {"scheme": "cubic"}], "duration_s": 60.0}],
    "trips": [
        {
            "place": "rate:30",
            "flows": [{"delay_ms": trip / 2} for trip in (20, 50, 100)],
            "queue": _drop_tail(125),
            "duration_s": 60.0,
            "ratio": 6,
        }
    ],
}


def _at(place: str, offset_s: int) -> str:
    return place if place.startswith("rate:") else f"{place} from {offset_s} s"


def _places() -> dict[str, Place]:
    """Every stretch of every channel: of a built-in one another realisation, of a recording the next seconds."""
    return {
        _at(name, offset): Place(f"{place.built_in}@{number}", f"{place.recording}[{offset}:{offset + STRETCH_S}]")
        for name, place in {**CHOSEN_ON, **JUDGED_ON}.items()
        for number, offset in enumerate(OFFSETS_S, start=1)
    }


def _runs(column: Column, keys: str, evaluation: EvaluationSet, part: str) -> list[Run]:
    """Those of one sender, each under its suite's name and `part`."""
    made = []

    def add(suite: str, place: str, *, seed: int, ratio: int = 2, **fields: Any) -> None:
        settings = {"duration_s": 30.0, **fields}
        scheme = f"verus:ratio={ratio}{keys}"
        made.append(column.run(place, scheme, seed=seed, part=f"{part}|{suite}", series=False, **settings))

    for seed in evaluation.seeds:
        for place in evaluation.alone:
            add("alone", place, seed=seed, duration_s=STRETCH_S)
        for count in CROWDS:
            for place in evaluation.shared:
                add(f"{count} flows", place, seed=seed, duration_s=STRETCH_S, flows=_flows(count))
        for suite, paths in PATHS.items():
            for path in paths:
                add(suite, seed=seed, **path)
    return made


def _values(made: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Each measure, seed by seed, of the rows of one sender."""
    suites: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in made:
        suites.setdefault((row["part"].rpartition("|")[2], row["seed"]), []).append(row)
    seeds = sorted({seed for _, seed in suites})
    return {each.name: [each.read(suites[each.suite, seed]) for seed in seeds] for each in MEASURES}


#: A gain in one measure makes up for as much of a loss in another.
MOST_GAINED, MOST_LOST = 1.0, 10.0


def cost(values: Mapping[str, Sequence[float]], whole: Mapping[str, Sequence[float]]) -> float:
    """Loss against the whole default mode, in percentage points of a recording's capacity."""
    lost = [float(np.mean(whole[each.name]) - np.mean(values[each.name])) / each.unit_change for each in MEASURES]
    return float(np.sum(np.clip(lost, -MOST_GAINED, MOST_LOST)))


def _evaluation_set(places: Iterable[str], shared: Iterable[str], seeds: Sequence[int]) -> EvaluationSet:
    """Each place with one stretch, another one for each: with all three it takes the better part of an hour."""
    alone = [_at(place, OFFSETS_S[at % len(OFFSETS_S)]) for at, place in enumerate(places)]
    return EvaluationSet(alone=alone, shared=[_at(place, OFFSETS_S[0]) for place in shared], seeds=seeds)


CHOSEN = _evaluation_set(CHOSEN_ON, SHARED_CHOSEN, CHOSEN_SEEDS)
JUDGED = _evaluation_set(JUDGED_ON, SHARED_JUDGED, JUDGED_SEEDS)


def eliminate(cost_of: Callable[[Sequence[Sequence[str]]], Sequence[float]], parts: Sequence[str]) -> list[str]:
    """The order in which parts go: of those left, always the one without which the cost is least.

    Args:
        cost_of: The cost without each of these lists of parts.
        parts: All.

    Example:
        >>> worth = {"a": 3.0, "b": 1.0, "c": 2.0}
        >>> eliminate(lambda lists: [sum(worth[part] for part in parts) for parts in lists], list("abc"))
        ['b', 'c', 'a']
    """
    gone: list[str] = []
    while left := [part for part in parts if part not in gone]:
        costs = cost_of([[*gone, part] for part in left])
        gone.append(left[int(np.argmin(costs))])
    return gone


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
            part=f"causes|R = {ratio}, {label}|{name}|{count}",
            queue=queue,
            duration_s=CAUSE_S,
            series=False,
        )
        for ratio in CAUSE_RATIOS
        for label, keys in CAUSES.items()
        for name, queue in CAUSE_QUEUES.items()
        for count in CAUSE_COUNTS
    ]


def order_on(column: Column) -> list[str]:
    """The order in which parts go on the half on which they are chosen."""

    def measured(lists: Sequence[Sequence[str]]) -> list[dict[str, list[float]]]:
        planned = [run for at, parts in enumerate(lists) for run in _runs(column, left_out(parts), CHOSEN, str(at))]
        by_list: dict[int, list[Mapping[str, Any]]] = {}
        for row in metric_rows.rows(planned, run_all(planned)):
            by_list.setdefault(int(row["part"].split("|")[-2]), []).append(row)
        return [_values(by_list[at]) for at in range(len(lists))]

    (whole,) = measured([[]])
    return eliminate(lambda lists: [cost(values, whole) for values in measured(lists)], PARTS)


def prepare(options: Options) -> Work:
    """Looks for the recordings; built-in channels do without."""
    columns, missing = columns_for(NAME, _places(), options)
    column = columns[-1]

    def work(progress: Progress | None) -> Results:
        order = order_on(column)
        steps = [order[:count] for count in range(len(order) + 1)]
        senders = {"+".join(parts): left_out(parts) for parts in [*steps, *([part] for part in PARTS)]} | MODES
        planned = [run for name, keys in senders.items() for run in _runs(column, keys, JUDGED, name)]
        planned += _causes(column)
        settings = {"experiment": NAME, "order": order, "channels": column.name, "missing": missing}
        return Results.collect(planned, run_all(planned, progress=progress), kind=NAME, settings=settings)

    return work


def _fair_and_short(row: Mapping[str, Any]) -> str:
    rates = _shares(row)
    whole = sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))
    return f"{row['jain_active']:.2f} {whole:.2f} {row['qdelay_mean_ms'] or float('nan'):.0f}"


#: Meaning of each table's numbers.
LEGENDS = {
    "curve": (
        "Each row leaves out one more part than the row above, always the one that costs least on the other half of "
        "the channels and seeds; cost is in points of the capacity of a recording, weighed over all columns. "
        + interval_note()
    ),
    "single": (
        f"Each row leaves out one part of the whole default mode; below them, what that is built on. {interval_note()}"
    ),
    "causes": (
        "Why flows are unfair: Jain's index in windows of 1 s, of the whole run, and the mean queueing delay in ms, "
        f"of flows that start {APART_S:g} s apart on 20 Mbit/s, in a queue that drops nothing and in the paper's; each "
        "line that begins with + takes one more cause away."
    ),
}
#: Titles of the tables on a page.
SECTIONS = {"curve": "One part after the other", "single": "Each part by itself", "causes": "Why flows are unfair"}


def _cell(each: Measure, values: Sequence[float]) -> str:
    digits = 2 if abs(each.unit_change) < 1 else 1
    return f"{float(np.mean(values)):.{digits}f} ± {half_width(values) or 0.0:.{digits}f}"


def tables(results: Results) -> dict[str, Grid]:
    """Each table by its name."""
    by_table: dict[str, list[Mapping[str, Any]]] = {}
    causes: dict[str, list[str]] = {}
    for row in results.rows.to_pylist():
        _, _, *names = row["part"].split("|")
        if names[0] == "causes":
            causes.setdefault(names[1], []).append(_fair_and_short(row))
        else:
            by_table.setdefault(names[0], []).append(row)
    values = {name: _values(made) for name, made in by_table.items()}
    order = results.config["settings"]["order"]
    measures = [each.name for each in MEASURES]

    def cells(name: str) -> list[str]:
        worse = f"{cost(values[name], values['']):.1f}"
        return [worse, *(_cell(each, values[name][each.name]) for each in MEASURES)]

    curve = [
        [order[count - 1] if count else "(nothing)", f"{len(order) - count}", *cells("+".join(order[:count]))]
        for count in range(len(order) + 1)
    ]
    single = [[name or "(nothing)", *cells(name)] for name in ("", *PARTS, *MODES)]
    crowds = [f"{count} flows, {queue}" for queue in CAUSE_QUEUES for count in CAUSE_COUNTS]
    return {
        "curve": Grid(heads=["gone", "parts left", "cost", *measures], rows=curve, title=LEGENDS["curve"]),
        "single": Grid(heads=["left out", "cost", *measures], rows=single, title=LEGENDS["single"]),
        "causes": Grid(
            heads=["", *crowds], rows=[[label, *row] for label, row in causes.items()], title=LEGENDS["causes"]
        ),
    }


#: Columns that a terminal has room for begin with these.
IN_TERMINAL = ("gone", "parts left", "left out", "cost", "alone", "10 flows")


def _narrow(one: Grid) -> Grid:
    shown = [at for at, head in enumerate(one.heads) if not head or str(head).startswith(IN_TERMINAL)]
    rows = [[row[at] for at in shown] for row in one.rows]
    return Grid(heads=[one.heads[at] for at in shown], rows=rows, title=one.title)


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal, which has no room for all columns."""
    settings = results.config["settings"]
    missing: list[RenderableType] = [settings["missing"]] if settings["missing"] else []
    shown = [_narrow(one) for one in tables(results).values()]
    return [
        *missing,
        *(one.terminal(title=f"{one.title} ({settings['channels']})") for one in shown),
        "These are some of the columns; the page has all of them.",
    ]


def page(results: Results) -> Page:
    """The same as a page."""
    sections = [Section(title=SECTIONS[name], body=one.html()) for name, one in tables(results).items()]
    return Page(title=TITLE, lead=f"{__doc__}\n{results.config['settings']['missing']}".rstrip(), sections=sections)


def files(results: Results) -> dict[str, str]:
    """The same for a program, and for a document."""
    grids = tables(results)
    lines = ([name, *cell] for name, one in grids.items() for cell in one.cells())
    document = [f"# {TITLE}", ""]
    for one in grids.values():
        document += [one.title, "", *one.markdown(), ""]
    return {
        "ablation.csv": to_csv([["table", "parts", "measure", "found"], *lines]),
        "ablation.md": "\n".join(document),
    }


EXPERIMENT = Experiment(
    name=NAME,
    source="none: what Verus's default mode adds to the paper",
    prepare=prepare,
    page=page,
    summary=summary,
    files=files,
)
