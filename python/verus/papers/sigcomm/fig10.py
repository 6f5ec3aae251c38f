"""SIGCOMM 2015, Fig. 10: ten flows under three patterns of movement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.claims import BUILT_IN
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Place, Reproduction, Table, with_interval
from verus.report import figures
from verus.report.figures import Figure

CHANNELS = {
    "pedestrian": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "city": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
    "highway": Place("highway-driving-lte-down", "verus-2015/highway-driving.down"),
    "pedestrian-hspa": Place("campus-pedestrian-3g-up", "cs244-2017/camp_ped_2min"),
    "city-hspa": Place("city-driving-3g-up", "cs244-2017/city_drive_2min"),
    "highway-hspa": Place("highway-driving-3g-up", "cs244-2017/highway_drive_2min"),
}
#: Suffix of the recordings that the authors gave the 2017 reproduction for this figure: the same
#: places at 2 to 5 Mbit/s.
HSPA = "-hspa"
TITLES = {"pedestrian": "Campus pedestrian", "city": "City driving", "highway": "Highway driving"} | {
    f"{place}{HSPA}": f"{title}, authors' file of 2017"
    for place, title in (("pedestrian", "Campus pedestrian"), ("city", "City driving"), ("highway", "Highway driving"))
}
SCHEMES = {f"Verus R={ratio}": f"verus:ratio={ratio}" for ratio in (2, 4, 6)} | {"Cubic": "cubic", "NewReno": "newreno"}
#: The drop probability of the model paper, whose authors are mostly the same, beside that of this one.
RARE_QUEUE = "red:min=375000,max=1125000,p=0.001"
PAPER, RARE = "RED, 10 %", "RED, 0.1 %"
QUEUES = {PAPER: PAPER_QUEUE, RARE: RARE_QUEUE}
FLOWS, DURATION_S = 10, 300.0
#: The lower R, and the schemes compared with it.
LOW, TCP = "Verus R=2", ("Cubic", "NewReno")
#: A recording is the same each time; only RED draws anew.
REPETITIONS = {True: 5, False: 2}


def runs(column: Column) -> list[Run]:
    """Ten flows of each scheme over each pattern; with rarer drops, once, those with which the delay is compared."""
    paper = [
        column.run(place, scheme, flows=FLOWS, part=PAPER, seed=seed, duration_s=DURATION_S, series=False)
        for place in CHANNELS
        for scheme in SCHEMES.values()
        for seed in column.seeds(REPETITIONS[column.name == BUILT_IN])
    ]
    rare = [
        column.run(place, SCHEMES[label], flows=FLOWS, part=RARE, queue=RARE_QUEUE, duration_s=DURATION_S, series=False)
        for place in CHANNELS
        for label in (LOW, *TCP)
    ]
    return paper + rare


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {}
    results = results.where(part=PAPER)
    for what, key in (("throughput", "throughput_mbps"), ("delay", "qdelay_mean_ms")):
        ratios = [_newreno_over_cubic(results.where(place=place), key) for place in CHANNELS]
        values[f"newreno-like-cubic-{what}"] = max(ratios, key=lambda ratio: abs(ratio - 1))
    for place in CHANNELS:
        by_label = {label: results.where(place=place, label=label) for label in SCHEMES}
        delay = {label: one.mean("qdelay_mean_ms") for label, one in by_label.items()}
        throughput = {label: one.mean("throughput_mbps") for label, one in by_label.items()}
        for tcp in TCP:
            values[f"delay-{tcp.lower()}-{place}"] = delay[tcp] / delay[LOW]
            values[f"throughput-{tcp.lower()}-{place}"] = throughput[LOW] / throughput[tcp]
        values[f"r6-throughput-{place}"] = throughput["Verus R=6"] / throughput[LOW]
        values[f"r6-delay-{place}"] = delay["Verus R=6"] / delay[LOW]
        walk = f"pedestrian{HSPA if place.endswith(HSPA) else ''}"
        if place == walk:
            continue
        walking = {label: results.where(place=walk, label=label) for label in (LOW, *TCP)}
        for tcp in TCP:
            values[f"spread-{tcp.lower()}-{place}"] = spread(by_label[LOW]) / spread(by_label[tcp])
        values[f"mobility-tcp-{place}"] = variation(by_label["Cubic"]) / variation(walking["Cubic"])
        values[f"mobility-newreno-{place}"] = variation(by_label["NewReno"]) / variation(walking["NewReno"])
        values[f"mobility-verus-{place}"] = variation(by_label[LOW])
        walked = sum(one.mean("throughput_mbps") for one in walking.values())
        values[f"average-{place}"] = sum(throughput[label] for label in walking) / walked
    return values


def _newreno_over_cubic(results: ColumnResults, key: str) -> float:
    return results.where(label="NewReno").mean(key) / results.where(label="Cubic").mean(key)


def spread(results: ColumnResults) -> float:
    """Standard deviation of the throughputs of a run's flows, in Mbit/s; mean over the runs."""
    return float(np.mean([np.std(shares) for shares in _shares(results)]))


def variation(results: ColumnResults) -> float:
    """The same over their mean: the coefficient of variation."""
    return float(np.mean([np.std(shares) / np.mean(shares) for shares in _shares(results)]))


def _shares(results: ColumnResults) -> list[list[float]]:
    return [[flow["throughput_mbps"] for flow in row["per_flow"]] for row in results.rows]


def tables(results: ColumnResults) -> Sequence[Table]:
    """Throughput, delay and spread of the flows."""
    rows = []
    for place in CHANNELS:
        for label in SCHEMES:
            selected = results.where(place=place, label=label, part=PAPER)
            rows.append(
                [
                    f"{TITLES[place]}, {label}",
                    with_interval([total / FLOWS for total in selected.values("throughput_mbps")], 2),
                    with_interval(selected.values("qdelay_mean_ms"), 1),
                    f"{spread(selected):.3f}",
                    f"{variation(selected):.1%}",
                ]
            )
    heads = ["", "throughput of a flow, Mbit/s", "queueing delay, ms", "spread over the flows, Mbit/s", "over the mean"]
    return [
        Table(title="Means over the runs, with 95 % confidence intervals", heads=heads, rows=rows),
        Table(
            title=f"Mean queueing delay over that of {LOW}, by the queue's drop probability",
            heads=["", *(f"{tcp}, {queue}" for queue in QUEUES for tcp in TCP)],
            rows=[
                [TITLES[place], *(f"{_over_low(results, place, tcp, queue):.1f}" for queue in QUEUES for tcp in TCP)]
                for place in CHANNELS
            ],
        ),
    ]


def _over_low(results: ColumnResults, place: str, label: str, queue: str) -> float:
    delay, low = (results.where(place=place, part=queue, label=each).mean("qdelay_mean_ms") for each in (label, LOW))
    return delay / low


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput against delay, a panel for each pattern, a point for each flow."""
    results = results.where(part=PAPER)
    rows = results.points(lambda row: row["trace"])
    caption = (
        f"A point for each flow: ten over one link, {results.seeds_text()}, {DURATION_S:g} s each. Queue "
        f"{PAPER_QUEUE}, 20 ms of propagation each way. Delay is time in the bottleneck queue. Verus in robust mode."
    )
    x, y = "mean queueing delay, ms", "throughput of a flow, Mbit/s"
    title = "Ten flows under three patterns of movement"
    return [
        figures.points(
            rows,
            name="fig10",
            title=title,
            caption=caption,
            x=x,
            y=y,
            log_x=True,
            columns=3,
            size=(290, 240),
            mark_size=30,
        )
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig10",
    title="Fig. 10: ten flows under three patterns of movement",
    source=f"{SIGCOMM}, Fig. 10",
    shows=(
        "Ten flows share a link. Verus with a low R has an order of magnitude less delay than Cubic and NewReno, at "
        "comparable throughput; R = 6 gives more of both. Movement widens the spread of throughput over TCP's flows, "
        "and that of Verus's stays small."
    ),
    set_up=(
        "Three patterns, ten flows of one protocol over one link, 300 s, as long as the paper's traces, five times "
        "(other stretches of the built-in channels; recordings stay the same, and are run twice). All recordings are "
        "the authors' own. Their downlinks carry 16 to 18 Mbit/s. The files that they gave the reproduction of 2017 "
        "for this figure carry 2 to 5 Mbit/s, as one phone of the paper's 3G (HSPA+) does, and are the beginnings of "
        "their uplinks: so they show what the paper says of uplinks as well. Both are run. The queue is the paper's: "
        "RED from 3 to 9 Mbit, 10 %; a table has the model paper's 0.1 % beside. Packets are served where the trace "
        "has an opportunity, and what passes while nothing waits is lost; the paper's shaper replays its traces 'upon "
        "packet arrival', which it does not explain. The paper's lower R is 2 here, with 4 and 6 beside. It states no "
        "propagation delay; 20 ms each way are our choice. TCP has our Cubic (RFC 9438) and NewReno (RFC 9002) with an "
        "acknowledgement for each packet and a first window of ten packets, not Linux 3.16's and Windows 7's. Spread "
        "is the standard deviation of the throughputs of a run's ten flows."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
