"""Every sender over recordings, queues, numbers of flows and company: who is beaten on both axes by whom.

Not a published result but a question that each paper answers for its own scheme. Each question that a person asks has
one chart and one table: delay at equal throughput, fairness, company, losses by chance, outages, video. The order is
by dominance (`dominance`), not by a score. From fixed seeds, and the same bytes each time; what depends on the machine,
the cost, is not here.
"""

from __future__ import annotations

import csv
import html
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table as Grid

from verus import figures
from verus.errors import FieldError
from verus.experiments.others.dominance import Point, Standing, dominates, order
from verus.experiments.shared.experiment import Experiment, Options, Work
from verus.experiments.shared.reproduction import Column, Place, columns_for
from verus.figures import Figure
from verus.interval import half_width
from verus.page import Page, Section, table
from verus.results import Results
from verus.runner import Progress, run_all
from verus.scenario import Run
from verus.summary import seen

NAME = "arena"

#: Everyone, as `--scheme` takes them. `model` is not among them (it takes a trained file), nor are those that measure.
SENDERS = {
    "Verus R=2": "verus",
    "Verus R=6": "verus:ratio=6",
    "Forward": "forward",
    "Cubic": "cubic",
    "NewReno": "newreno",
    "Vegas": "vegas",
    "BBR v1": "bbr1",
    "BBR v3": "bbr",
    "Copa": "copa",
    "LEDBAT++": "ledbatpp",
    "C4": "c4",
    "Vivace": "vivace",
    "SCReAM": "scream",
    "Prague": "prague",
    "Sprout": "sprout",
}
#: Those that ask for classic marks only if told so; on queues that mark they are told so.
ASK_FOR_MARKS = ("cubic", "newreno", "vegas")

#: Built-in channels and the recordings that they stand for: 3G and LTE, up and down, standing, on foot and driving.
CHANNELS = {
    "campus 3G up": Place("campus-pedestrian-3g-up", "verus-2015/campus-pedestrian.up"),
    "city 3G up": Place("city-driving-3g-up", "verus-2015/city-driving.up"),
    "highway 3G up": Place("highway-driving-3g-up", "verus-2015/highway-driving.up"),
    "campus LTE down": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "city LTE down": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
    "highway LTE down": Place("highway-driving-lte-down", "verus-2015/highway-driving.down"),
    "home LTE down": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
    "Times Square LTE": Place("city-waterfront-lte-down", "nyc-2019/trace-3205967-timessquare"),
    "Times Square 3G": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "T-Mobile UMTS down": Place("city-waterfront-3g-down", "mahimahi/TMobile-UMTS-driving.down"),
    "Verizon LTE up": Place("highway-driving-lte-up", "mahimahi/Verizon-LTE-short.up"),
    "AT&T LTE up": Place("city-driving-lte-up", "cs244-2017/ATT-LTE-driving-2016.up"),
}
#: All recordings have this much, in seconds.
RECORDED_S = 120.0

#: Propagation each way, in ms.
DELAY_MS = 20.0
BLOATED = "bloated"
#: What waits before the link. A buffer of one bandwidth-delay product is stated in time, as the rate varies.
QUEUES = {
    BLOATED: "droptail:bytes=10000000",
    "one BDP": "droptail:delay_ms=40",
    "CoDel": "codel",
    "FQ-CoDel": "fq_codel",
    "RED, marks": "red:min=375000,max=1125000,p=0.1,ecn=yes",
    "DualPI2": "dualpi2",
}
#: Of these, those that mark.
MARKING = ("FQ-CoDel", "RED, marks", "DualPI2")

#: Where flows share: Mbit/s, and drop-tail buffers in bandwidth-delay products.
SHARED_MBPS = 20.0
PRODUCT_BYTES = SHARED_MBPS * 2 * DELAY_MS * 125
BUFFERS = {"shallow": 1, "deep": 8}
CROWDS = (2, 10)
#: Seconds by which flows start apart, and by how many more in each repetition: senders without chance in them would
#: do the same each time.
APART_S, SHIFT_S = 2.0, 0.137
RIVALS = {"Cubic": "cubic", "BBR v1": "bbr1"}
LOSSES = (0.001, 0.005, 0.01, 0.02)
#: Of the outages: the rate, when nothing moves any more and when it does again, and for how long after that is looked.
OUTAGE_MBPS, OUTAGE_FROM_S, OUTAGE_TO_S, AFTER_S = 10.0, 10.0, 12.0, 10.0
OUTAGES = {"held": "packets wait", "lost": "packets are lost"}
#: Of the channels, slow ones that carry the source's bitrate most of the time.
VIDEO_CHANNELS = ("campus 3G up", "city 3G up", "Times Square 3G", "Verizon LTE up")


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        channels: Over which of `CHANNELS`.
        queues: Behind which of `QUEUES`.
        stretches: Stretches of each channel.
        stretch_s: Seconds of each.
        seeds: Repetitions of what needs no channel.
        shared_s: Seconds of each of these.
    """

    channels: tuple[str, ...]
    queues: tuple[str, ...]
    stretches: int
    stretch_s: float
    seeds: int
    shared_s: float


FULL = Size(tuple(CHANNELS), tuple(QUEUES), stretches=4, stretch_s=30.0, seeds=5, shared_s=60.0)
SHORT = Size(
    ("campus 3G up", "city 3G up", "Verizon LTE up"),
    (BLOATED, "CoDel"),
    stretches=3,
    stretch_s=10.0,
    seeds=2,
    shared_s=20.0,
)


def stretch(channel: str, number: int) -> str:
    """The name of a stretch of a channel."""
    return f"{channel} #{number}"


def _places(size: Size) -> dict[str, Place]:
    """Every stretch of every channel: of a built-in one another realisation, of a recording the next seconds."""
    return {
        stretch(name, number): Place(
            f"{CHANNELS[name].built_in}@{number}",
            f"{CHANNELS[name].recording}[{(number - 1) * size.stretch_s:g}:{number * size.stretch_s:g}]",
        )
        for name in size.channels
        for number in range(1, size.stretches + 1)
    }


def runs(column: Column, size: Size) -> list[Run]:
    """Everything, question by question."""
    return [run for part in (_alone, _fair, _company, _lossy, _outages, _video) for run in part(column, size)]


def _told(label: str, queue: str = BLOATED) -> str:
    """A sender as a queue has it."""
    scheme = SENDERS[label]
    return f"{scheme}:ecn=yes" if queue in MARKING and scheme in ASK_FOR_MARKS else scheme


def _alone(column: Column, size: Size) -> Iterator[Run]:
    for queue, channel, label in itertools.product(size.queues, size.channels, SENDERS):
        for number in range(1, size.stretches + 1):
            yield column.run(
                stretch(channel, number),
                _told(label, queue),
                label=label,
                part=f"alone|{queue}|{channel}",
                seed=column.seed + number - 1,
                queue=QUEUES[queue],
                duration_s=size.stretch_s,
                delay_ms=DELAY_MS,
                series=False,
            )


def _shared(
    column: Column,
    size: Size,
    label: str,
    part: str,
    *,
    mbps: float = SHARED_MBPS,
    flows: Sequence[Mapping[str, Any]] = ({},),
    **told: Any,
) -> Iterator[Run]:
    """A constant rate: once for each seed, the first flow a little later each time."""
    for number in range(size.seeds):
        first, *others = flows
        yield column.run(
            f"rate:{mbps:g}",
            SENDERS[label],
            label=label,
            part=part,
            seed=column.seed + number,
            flows=[{**first, "start_s": SHIFT_S * number}, *others],
            **{"duration_s": size.shared_s, "delay_ms": DELAY_MS, "series": False, **told},
        )


def _buffer(name: str) -> str:
    return f"droptail:bytes={BUFFERS[name] * PRODUCT_BYTES:.0f}"


def _fair(column: Column, size: Size) -> Iterator[Run]:
    for count, buffer, label in itertools.product(CROWDS, BUFFERS, SENDERS):
        flows = [{"start_s": APART_S * at * 2 / count} for at in range(count)]
        yield from _shared(column, size, label, f"fair|{count}|{buffer}", flows=flows, queue=_buffer(buffer))


def _company(column: Column, size: Size) -> Iterator[Run]:
    for rival, buffer, label in itertools.product(RIVALS, BUFFERS, SENDERS):
        flows: list[dict[str, Any]] = [{"scheme": RIVALS[rival]}, {"start_s": APART_S}]
        yield from _shared(column, size, label, f"company|{rival}|{buffer}", flows=flows, queue=_buffer(buffer))


def _lossy(column: Column, size: Size) -> Iterator[Run]:
    for loss, label in itertools.product((0.0, *LOSSES), SENDERS):
        yield from _shared(column, size, label, f"loss|{loss:g}", loss=loss, queue=_buffer("shallow"))


def _outages(column: Column, size: Size) -> Iterator[Run]:
    stops = {
        "held": [{"at_s": OUTAGE_FROM_S, "rate_mbps": 0.0}, {"at_s": OUTAGE_TO_S, "rate_mbps": OUTAGE_MBPS}],
        "lost": [{"at_s": OUTAGE_FROM_S, "loss": 1.0}, {"at_s": OUTAGE_TO_S, "loss": 0.0}],
    }
    for kind, label in itertools.product(OUTAGES, SENDERS):
        yield from _shared(
            column,
            size,
            label,
            f"outage|{kind}",
            mbps=OUTAGE_MBPS,
            changes=stops[kind],
            duration_s=OUTAGE_TO_S + AFTER_S,
            queue=_buffer("deep"),
            series=True,
            bin_ms=100.0,
        )


def _video(column: Column, size: Size) -> Iterator[Run]:
    for channel, label in itertools.product((name for name in VIDEO_CHANNELS if name in size.channels), SENDERS):
        for number in range(1, size.stretches + 1):
            yield column.run(
                stretch(channel, number),
                SENDERS[label],
                label=label,
                part=f"video|{channel}",
                seed=column.seed + number - 1,
                queue=QUEUES[BLOATED],
                duration_s=size.stretch_s,
                delay_ms=DELAY_MS,
                series=False,
                flows=[{"traffic": "video"}],
            )


def prepare(options: Options) -> Work:
    """Looks for the recordings; built-in channels do without."""
    size = SHORT if options.short else FULL
    if options.repeat is not None:
        if options.repeat * size.stretch_s > RECORDED_S:
            most = int(RECORDED_S / size.stretch_s)
            raise FieldError(
                "repeat", f"must be at most {most}: recordings have {RECORDED_S:g} s for so many stretches"
            )
        size = Size(size.channels, size.queues, options.repeat, size.stretch_s, options.repeat, size.shared_s)
    columns, missing = columns_for(NAME, _places(size), options)
    column = columns[-1]

    def work(progress: Progress | None) -> Results:
        planned = runs(column, size)
        settings = {
            "experiment": NAME,
            "seed": options.seed,
            "repeat": options.repeat,
            "short": options.short,
            "channels": column.name,
            "missing": missing,
        }
        return Results.collect(planned, run_all(planned, progress=progress), kind=NAME, settings=settings)

    return work


#: The rows of a part, by sender.
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


class Found:
    """What the runs came to, by question."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.parts: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
        for row in results.rows.to_pylist():
            _, _, part = row["part"].split("|", 2)
            self.parts.setdefault(tuple(part.split("|")), {}).setdefault(row["label"], []).append(row)

    def of(self, question: str) -> dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]]:
        """What follows the question in the part's name → sender → rows."""
        return {names[1:]: rows for names, rows in self.parts.items() if names[0] == question}

    def queues(self) -> list[str]:
        """Those that were run."""
        return list(dict.fromkeys(queue for queue, _ in self.of("alone")))

    def points(self, queue: str | None = None) -> dict[str, dict[str, list[Point]]]:
        """By path (queue and channel) and sender, a point for each stretch; of one queue, or of all."""
        return {
            f"{each}, {channel}": {
                label: [Point(row["throughput_mbps"], row["qdelay_p95_ms"]) for row in rows]
                for label, rows in senders.items()
            }
            for (each, channel), senders in self.of("alone").items()
            if queue in (None, each)
        }

    def standings(self, queue: str | None = None) -> list[Standing]:
        """Everyone by dominance, on the paths of one queue or of all."""
        return order(self.points(queue))

    def senders(self) -> list[str]:
        """Everyone, by dominance on all paths."""
        return [one.sender for one in self.standings()]

    def after_outage(self, row: Mapping[str, Any]) -> tuple[float, float]:
        """Seconds of the link that went unused in those after an outage, beyond what usually does; p95 delay in them.

        The delay, in ms, is over bins, from the second second on: what waited all along is out by then.
        """
        bounds = self.results.series.column("run").to_numpy()
        low, high = np.searchsorted(bounds, [row["run"], row["run"] + 1])
        part = self.results.series.slice(int(low), int(high - low))
        time, got, delay = (
            part.column(name).to_numpy(zero_copy_only=False).astype(float)
            for name in ("time_s", "throughput_mbps", "qdelay_ms")
        )
        used = np.nan_to_num(got) / OUTAGE_MBPS
        usual = 1 - used[(time >= OUTAGE_FROM_S / 2) & (time < OUTAGE_FROM_S)].mean()
        after = (time >= OUTAGE_TO_S) & (time < OUTAGE_TO_S + AFTER_S)
        unused = max(0.0, float((1 - used[after] - usual).mean()) * AFTER_S)
        waited = delay[after & (time >= OUTAGE_TO_S + 1) & np.isfinite(delay)]
        return unused, float(np.quantile(waited, 0.95)) if len(waited) else math.nan


def number_text(values: Sequence[float | None], digits: int, factor: float = 1.0) -> str:
    """Their mean and half of its 95 % confidence interval; an en dash where nothing was observed.

    Example:
        >>> number_text([0.5, 0.6, 0.7], 1, 100.0), number_text([None], 1)
        ('60.0 ± 24.8', '–')
    """
    known = [factor * value for value in seen(values)]
    if not known:
        return "–"
    half = half_width(known)
    # Alike to the last digit is no interval.
    return f"{fmean(known):.{digits}f}" + (f" ± {half:.{digits}f}" if half and half >= 0.5 * 10**-digits else "")


def _values(rows: Sequence[Mapping[str, Any]], key: str) -> list[float | None]:
    return [row[key] for row in rows]


@dataclass(frozen=True)
class Question:
    """What a person asks.

    Attributes:
        name: Its name, which heads its table.
        title: The question.
        rule: What is run, what the numbers are, and what orders them.
        table: Heads after the first, and the cells of each sender.
        draw: Its chart.
    """

    name: str
    title: str
    rule: str
    table: Callable[[Found], tuple[list[str], dict[str, list[str]]]]
    draw: Callable[[Found], Figure]


def _standing_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    everywhere = found.standings()
    by_queue = {queue: {one.sender: one for one in found.standings(queue)} for queue in found.queues()}
    paths = len(found.points())
    each = next(iter(next(iter(by_queue.values())).values())).paths
    heads = [f"dominated on, of {paths}", "by most often", "dominates, pairs"]
    heads += [f"{queue}: of {each}" for queue in by_queue]
    cells = {}
    for one in everywhere:
        by = [other for others in one.beaten.values() for other in others]
        most = max(dict.fromkeys(by), key=by.count, default="")
        cells[one.sender] = [
            str(len(one.beaten)),
            f"{most} ({by.count(most)})" if most else "–",
            str(sum(map(len, one.beats.values()))),
            *(str(len(own[one.sender].beaten)) for own in by_queue.values()),
        ]
    return heads, cells


def _alone_figure(found: Found) -> Figure:
    rows: list[dict[str, Any]] = []
    for (queue, channel), senders in found.of("alone").items():
        if queue != BLOATED:
            continue
        for label, own in senders.items():
            axes = {
                "x": [math.log(max(row["qdelay_p95_ms"] or 1.0, 1.0)) for row in own],
                "y": [100 * row["utilization"] for row in own],
            }
            point: dict[str, Any] = {"panel": channel, "name": label}
            for axis, values in axes.items():
                middle, half = fmean(values), half_width(values) or 0.0
                ends = {axis: middle, f"{axis}_low": max(middle - half, 0.0), f"{axis}_high": middle + half}
                if axis == "x":
                    point |= {key: math.exp(value) for key, value in ends.items()}
                else:
                    point |= {key: min(value, 100.0) for key, value in ends.items()}
            rows.append(point)
    caption = (
        f"One flow alone, {QUEUES[BLOATED]}, {DELAY_MS:g} ms each way: mean over the stretches of each channel with "
        "95 % confidence intervals, of the delay's logarithm across. Better is up and to the left. Delay is time in "
        "the bottleneck queue."
    )
    x, y = "95th percentile of queueing delay, ms", "capacity used, %"
    return figures.points(
        rows,
        name="arena-delay",
        title="Throughput and delay of a flow alone",
        caption=caption,
        x=x,
        y=y,
        log_x=True,
        zero=False,
        columns=3,
        size=(280, 220),
    )


def _dominance_figure(found: Found) -> Figure:
    paths, names = found.points(), found.senders()
    rows = [
        {"x": other, "y": one, "value": float(sum(dominates(own[one], own[other]) for own in paths.values()))}
        for one in names
        for other in names
    ]
    caption = f"On how many of {len(paths)} paths the sender of the row dominates that of the column."
    return figures.heat(
        rows,
        name="arena-dominance",
        title="Who dominates whom",
        caption=caption,
        x="is dominated",
        y="dominates",
        value="paths",
        size=(920, 360),
        digits=0,
    )


def _delay_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    by_queue: dict[str, dict[str, list[str]]] = {}
    for queue in found.queues():
        for label in SENDERS:
            rows = [own for (each, _), senders in found.of("alone").items() if each == queue for own in senders[label]]
            delays = [math.log(max(value, 1.0)) for value in seen(_values(rows, "qdelay_p95_ms"))]
            used = 100 * fmean(row["utilization"] for row in rows)
            text = f"{used:.1f} at {math.exp(fmean(delays)):.0f}" if delays else "–"
            by_queue.setdefault(queue, {})[label] = [text]
    cells = {label: [own[label][0] for own in by_queue.values()] for label in found.senders()}
    return list(by_queue), cells


def _by(found: Found, value: Callable[[str], float]) -> list[str]:
    """The senders by a number, the largest first."""
    return sorted(SENDERS, key=lambda label: -value(label))


def _fair_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    parts = found.of("fair")
    heads = [f"{count} flows, {buffer}: Jain, ms" for count, buffer in parts]

    def least(label: str) -> float:
        return min(fmean(row["jain_active"] for row in senders[label]) for senders in parts.values())

    return heads, {
        label: [
            f"{number_text(_values(senders[label], 'jain_active'), 3)}, "
            f"{fmean(seen(_values(senders[label], 'qdelay_p95_ms'))):.0f}"
            for senders in parts.values()
        ]
        for label in _by(found, least)
    }


def _fair_figure(found: Found) -> Figure:
    rows = [
        {
            "panel": f"{buffer} buffer",
            "group": label,
            "name": f"{count} flows",
            "y": fmean(row["jain_active"] for row in own),
        }
        for (count, buffer), senders in found.of("fair").items()
        for label, own in senders.items()
    ]
    caption = (
        f"Jain's index in windows of a second over the flows that are on, {SHARED_MBPS:g} Mbit/s, {DELAY_MS:g} ms each "
        f"way, starts over {2 * APART_S:g} s; buffers of {BUFFERS['shallow']} and {BUFFERS['deep']} bandwidth-delay "
        "products."
    )
    title = "Flows of one kind that share a link"
    return figures.bars(
        rows, name="arena-fairness", title=title, caption=caption, x="", y="Jain's index", columns=1, size=(860, 200)
    )


def share(row: Mapping[str, Any]) -> float:
    """What the sender has of what it and its rival have while both are on, of which a half is fair: 1 is fair."""
    rival, own = (flow["throughput_on_mbps"] for flow in row["per_flow"])
    return float(2 * own / (own + rival))


def _company_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    parts = found.of("company")
    heads = [f"beside {rival}, {buffer}" for rival, buffer in parts]
    heads += [f"Cubic's throughput, {buffer}" for buffer in BUFFERS] + [
        f"Cubic's p95 delay, {buffer}" for buffer in BUFFERS
    ]

    def of_cubic(label: str, buffer: str, key: str) -> str:
        senders = parts["Cubic", buffer]
        own, cubic = (fmean(row["per_flow"][0][key] for row in senders[who]) for who in (label, "Cubic"))
        return f"{own / cubic:.2f}"

    def away(label: str) -> float:
        return -max(abs(math.log(max(fmean(share(row) for row in senders[label]), 1e-3))) for senders in parts.values())

    return heads, {
        label: [
            *(number_text([share(row) for row in senders[label]], 2) for senders in parts.values()),
            *(of_cubic(label, buffer, "throughput_mbps") for buffer in BUFFERS),
            *(of_cubic(label, buffer, "qdelay_p95_ms") for buffer in BUFFERS),
        ]
        for label in _by(found, away)
    }


def _company_figure(found: Found) -> Figure:
    rows = [
        {
            "x": f"{rival}, {buffer}",
            "y": label,
            "value": fmean(share(row) for row in own),
        }
        for (rival, buffer), senders in found.of("company").items()
        for label, own in senders.items()
    ]
    caption = (
        f"Share of the sender of the row beside the rival of the column: 1 is fair, 2 everything. {SHARED_MBPS:g} "
        f"Mbit/s, {DELAY_MS:g} ms each way, the rival {APART_S:g} s earlier; buffers of {BUFFERS['shallow']} and "
        f"{BUFFERS['deep']} bandwidth-delay products."
    )
    title = "What a sender has beside another kind"
    return figures.heat(
        rows,
        name="arena-company",
        title=title,
        caption=caption,
        x="beside",
        y="",
        value="share",
        middle=1.0,
        size=(520, 360),
    )


def kept(found: Found, label: str, part: tuple[str, ...]) -> list[float]:
    """What is left of the throughput where packets are lost, seed by seed."""
    parts = found.of("loss")
    pairs = zip(parts[part][label], parts[("0",)][label], strict=True)
    return [lossy["goodput_mbps"] / clean["goodput_mbps"] for lossy, clean in pairs]


def _loss_parts(found: Found) -> list[tuple[str, ...]]:
    return [part for part in found.of("loss") if part != ("0",)]


def _loss_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    parts = _loss_parts(found)
    worst = parts[-1]
    return [f"{100 * float(loss):g} % lost" for (loss,) in parts], {
        label: [number_text(kept(found, label, part), 1, 100.0) for part in parts]
        for label in _by(found, lambda label: fmean(kept(found, label, worst)))
    }


def _loss_figure(found: Found) -> Figure:
    rows = [
        {"x": f"{100 * float(part[0]):g} %", "y": label, "value": fmean(kept(found, label, part))}
        for part in _loss_parts(found)
        for label in _by(found, lambda label: fmean(kept(found, label, _loss_parts(found)[-1])))
    ]
    caption = (
        f"Goodput where packets are lost by chance over the same sender's without: {SHARED_MBPS:g} Mbit/s, "
        f"{DELAY_MS:g} ms each way, a buffer of one bandwidth-delay product."
    )
    title = "What losses by chance leave"
    return figures.heat(
        rows,
        name="arena-loss",
        title=title,
        caption=caption,
        x="packets lost by chance",
        y="",
        value="of its throughput",
        size=(480, 360),
    )


def _after(found: Found) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Sender → kind of outage → unused seconds and delay after it, seed by seed."""
    after: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (kind,), senders in found.of("outage").items():
        for label, rows in senders.items():
            after.setdefault(label, {})[kind] = [found.after_outage(row) for row in rows]
    return after


def _outage_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    after = _after(found)
    heads = [f"{words}: {what}" for words in OUTAGES.values() for what in ("s unused", "p95 ms after")]

    def total(label: str) -> float:
        return -sum(fmean(unused for unused, _ in own) for own in after[label].values())

    return heads, {
        label: [
            text
            for kind in OUTAGES
            for text in (
                number_text([unused for unused, _ in after[label][kind]], 2),
                number_text([delay for _, delay in after[label][kind]], 0),
            )
        ]
        for label in _by(found, total)
    }


def _outage_figure(found: Found) -> Figure:
    rows = [
        {"panel": title, "group": label, "name": OUTAGES[kind], "y": fmean(values[axis] for values in own)}
        for axis, title in enumerate(("seconds of the link unused", "95th percentile of delay after it, ms"))
        for label, kinds in _after(found).items()
        for kind, own in kinds.items()
    ]
    caption = (
        f"{OUTAGE_MBPS:g} Mbit/s, {DELAY_MS:g} ms each way, nothing moves from {OUTAGE_FROM_S:g} to {OUTAGE_TO_S:g} s. "
        f"Above: what of the {AFTER_S:g} s after that went unused, beyond what usually does. Below: delay from the "
        "second of these on."
    )
    title = "After an outage"
    return figures.bars(rows, name="arena-outage", title=title, caption=caption, x="", y="", columns=1, size=(860, 180))


def late(row: Mapping[str, Any]) -> float:
    """The share of the frames that were late, in percent."""
    frames = VIDEO_FPS * row["duration_s"]
    return float(100 * min(1.0, row["late"] / frames))


#: Frames a second of `traffic = video`.
VIDEO_FPS = 30


def _video_table(found: Found) -> tuple[list[str], dict[str, list[str]]]:
    parts = found.of("video")
    heads = [f"{channel}: late %, p95 ms" for (channel,) in parts]

    def mean_late(label: str) -> float:
        return -fmean(late(row) for senders in parts.values() for row in senders[label])

    def cell(rows: Sequence[Mapping[str, Any]]) -> str:
        waited = [1000 * value for value in seen(_values(rows, "completion_p95_s"))]
        return f"{number_text([late(row) for row in rows], 1)}, {fmean(waited):.0f}" if waited else "100.0, –"

    return heads, {label: [cell(senders[label]) for senders in parts.values()] for label in _by(found, mean_late)}


def _video_figure(found: Found) -> Figure:
    rows = [
        {"group": label, "name": channel, "y": fmean(late(row) for row in own)}
        for (channel,), senders in found.of("video").items()
        for label, own in senders.items()
    ]
    caption = (
        "Frames of a live source of 1.2 Mbit/s (30 a second, key frames ten times as large) that took longer than 250 "
        f"ms, or never came; {QUEUES[BLOATED]}, {DELAY_MS:g} ms each way. Only SCReAM tells the source which bitrate "
        "it can carry."
    )
    title = "Frames of a live source that are late"
    return figures.bars(
        rows, name="arena-video", title=title, caption=caption, x="", y="frames late, %", columns=1, size=(860, 220)
    )


QUESTIONS = (
    Question(
        name="order",
        title="Who is beaten by whom?",
        rule=(
            "A path is a channel and a queue. A sender dominates another on a path where it is not worse on throughput "
            "and 95th percentile of queueing delay, and better on one: the whole 95 % confidence interval of their "
            "ratio, over the same stretches, beyond 1 % of throughput or 5 % of delay. The order: dominated on the "
            "fewest paths; of those alike, who dominates more often. No score: it would need a price of a millisecond "
            "in Mbit/s."
        ),
        table=_standing_table,
        draw=_dominance_figure,
    ),
    Question(
        name="delay at equal throughput",
        title="How much delay for how much throughput?",
        rule=(
            "One flow alone over each channel. Cells: share of the capacity used in percent, mean over channels and "
            "stretches, at the geometric mean of the 95th percentile of queueing delay in ms. Queues that mark: Cubic, "
            "NewReno and Vegas ask for marks there. In the order of dominance."
        ),
        table=_delay_table,
        draw=_alone_figure,
    ),
    Question(
        name="fairness",
        title="Do flows of one kind share?",
        rule=(
            "2 and 10 flows with one round trip, staggered. Cells: Jain's index in windows of a second, and the 95th "
            "percentile of queueing delay in ms. By the least index of the row."
        ),
        table=_fair_table,
        draw=_fair_figure,
    ),
    Question(
        name="company",
        title="What does it take from others, and they from it?",
        rule=(
            "One flow beside one of Cubic or BBR v1, which began earlier. Cells: its share (1 is fair, 2 everything); "
            "then Cubic's throughput and 95th percentile of delay over what it has beside another Cubic: 1 is no harm. "
            "By the share that is farthest from 1."
        ),
        table=_company_table,
        draw=_company_figure,
    ),
    Question(
        name="loss",
        title="What do losses by chance leave?",
        rule=("Cells: goodput in percent of the same sender's without loss. By the last column."),
        table=_loss_table,
        draw=_loss_figure,
    ),
    Question(
        name="outage",
        title="What happens after an outage?",
        rule=(
            "Nothing moves for 2 s: packets wait before the link, or are lost. Cells: seconds of the link that went "
            "unused in the 10 s after it, beyond what this sender usually leaves, and the 95th percentile of delay in "
            "them. By the seconds of both."
        ),
        table=_outage_table,
        draw=_outage_figure,
    ),
    Question(
        name="video",
        title="Does video arrive in time?",
        rule=(
            "Frames of a live source of 1.2 Mbit/s over channels that may carry less for a while. Cells: frames that "
            "took longer than 250 ms or never came, in percent, and the 95th percentile of those that came, in ms. By "
            "the mean share of late ones."
        ),
        table=_video_table,
        draw=_video_figure,
    ),
)


def tables(results: Results) -> dict[str, list[list[str]]]:
    """The rows of each table by its question, heads first."""
    found = Found(results)
    made = {}
    for question in QUESTIONS:
        heads, cells = question.table(found)
        made[question.name] = [[question.name, *heads], *([label, *row] for label, row in cells.items())]
    return made


def lead(results: Results) -> str:
    """What was run."""
    settings = results.config["settings"]
    found = Found(results)
    channels = len({channel for _, channel in found.of("alone")})
    stretches = len(next(iter(next(iter(found.of("alone").values())).values())))
    seconds = next(row["duration_s"] for row in results.rows.to_pylist())
    form = "the short form: " if settings["short"] else ""
    said = (
        f"{len(SENDERS)} senders over {channels} channels ({settings['channels']}), {stretches} stretches of "
        f"{seconds:g} s each, behind {len(found.queues())} queues; {form}{results.rows.num_rows} runs from seed "
        f"{settings['seed']}. ± is half of the 95 % confidence interval over stretches or seeds (Student's t)."
    )
    return f"{said} {settings['missing']}".rstrip()


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal."""
    parts: list[RenderableType] = [lead(results)]
    for question, (heads, *rows) in zip(QUESTIONS, tables(results).values(), strict=True):
        grid = Grid(title=question.title, caption=question.rule, title_justify="left", box=box.SIMPLE_HEAD)
        grid.caption_justify = "left"
        for position, head in enumerate(heads):
            grid.add_column(head, justify="right" if position else "left", no_wrap=not position)
        for row in rows:
            grid.add_row(*row)
        parts.append(grid)
    return parts


def page(results: Results) -> Page:
    """The same as a page, with a chart for each question."""
    found = Found(results)
    sections = []
    for question, (heads, *rows) in zip(QUESTIONS, tables(results).values(), strict=True):
        cells = [
            f"<tr><th scope=row>{html.escape(first)}</th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in rows
        ]
        body = f"<p>{html.escape(question.rule)}</p>" + table(heads, cells)
        sections.append(Section(title=question.title, body=body, figures=[question.draw(found)]))
    return Page(title="Verus: the arena", lead=lead(results), sections=sections)


def to_csv(results: Results) -> str:
    """The tables for a program: a line for each cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["question", "sender", "column", "found"])
    for (name, *heads), *rows in tables(results).values():
        for sender, *cells in rows:
            writer.writerows([name, sender, head, cell] for head, cell in zip(heads, cells, strict=True))
    return text.getvalue()


def to_markdown(results: Results) -> str:
    """The tables for a document."""
    lines = [lead(results), ""]
    for question, (heads, *rows) in zip(QUESTIONS, tables(results).values(), strict=True):
        lines += [f"## {question.title}", "", question.rule, ""]
        lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name=NAME,
    source="none: every sender that there is here, beside each other",
    title="Every sender beside every other",
    prepare=prepare,
    checks=lambda results: [],
    page=page,
    summary=summary,
    files=lambda results: {"arena.csv": to_csv(results), "arena.md": to_markdown(results)},
    short=True,
)
