"""SIGCOMM 2015, Fig. 9: R trades throughput for delay."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from verus.experiments.reproduction import SIGCOMM, Column, Found, Place, Table, interval, reproduction
from verus.scenario import PAPER_QUEUE

if TYPE_CHECKING:
    from verus.figures import Figure
    from verus.scenario import Run

CHANNELS = {
    "3G": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "LTE": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
}
RATIOS = (2, 4, 6)
PHONES, FLOWS, REPETITIONS, DURATION_S = 3, 3, 5, 120.0


def runs(column: Column) -> list[Run]:
    """Three phones, each a link of its own with three flows of one protocol, five times."""
    return [
        column.run(place, who, flows=FLOWS, seed=seed, duration_s=DURATION_S)
        for place in CHANNELS
        for who in (*(f"verus:ratio={ratio}" for ratio in RATIOS), "sprout")
        for seed in column.seeds(PHONES * REPETITIONS)
    ]


def measure(found: Found) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {}
    for place in CHANNELS:
        here = found.where(place=place)
        verus = {ratio: here.where(label=f"Verus R={ratio}") for ratio in RATIOS}
        sprout, end = here.where(label="Sprout"), place.lower()
        for key, metric in (("delay", "qdelay_mean_ms"), ("throughput", "throughput_mbps")):
            for low, high in itertools.pairwise(RATIOS):
                values[f"{key}-{low}-{high}-{end}"] = verus[high].mean(metric) / verus[low].mean(metric)
            values[f"{key}-sprout-{end}"] = verus[2].mean(metric) / sprout.mean(metric)
    return values


def tables(found: Found) -> Sequence[Table]:
    """Throughput of a flow and delay, with 95 % confidence intervals over the runs."""
    rows = []
    for place in found.places():
        for label in found.labels():
            here = found.where(place=place, label=label)
            throughput, delay = (interval(here.values(key)) for key in ("throughput_mbps", "qdelay_mean_ms"))
            rows.append(
                [
                    f"{place}, {label}",
                    f"{throughput[0] / FLOWS:.2f} ± {throughput[1] / FLOWS:.2f}",
                    f"{delay[0]:.0f} ± {delay[1]:.0f}",
                ]
            )
    return [Table(title="Means of a flow", heads=["", "throughput, Mbit/s", "queueing delay, ms"], rows=rows)]


def draw(found: Found) -> Sequence[Figure]:
    """Throughput against delay, a panel for each network, a point for each flow."""
    from verus import figures

    rows = [
        {"panel": row["place"], "name": row["label"], "x": flow["qdelay_mean_ms"], "y": flow["throughput_mbps"]}
        for row in found.rows
        for flow in row["per_flow"]
    ]
    caption = (
        f"A point for each flow: three on each of three phones, {REPETITIONS} times, {DURATION_S:g} s each; queue "
        f"{PAPER_QUEUE}, 20 ms of propagation each way. Delay is time in the bottleneck queue. Verus in robust mode."
    )
    x, y = "mean queueing delay, ms", "throughput of a flow, Mbit/s"
    title = "R trades throughput for delay"
    return [figures.points(rows, name="fig09", title=title, caption=caption, x=x, y=y, log_x=True)]


EXPERIMENT = reproduction(
    name="sigcomm-fig09",
    title="Fig. 9: R trades throughput for delay",
    source=f"{SIGCOMM}, Fig. 9",
    shows=(
        "R is the largest ratio of delay to its minimum that Verus tolerates. The larger it is, the more throughput "
        "and the more delay; with R = 2 delay is under Sprout's, and throughput slightly too."
    ),
    set_up=(
        "Three phones, each with three flows of one protocol and a link of its own, two minutes, five times, one "
        "protocol at a time, standing still, downlink. The paper ran over its operator's network, whose buffer nobody "
        "knows; here it is the only one that the paper states, the RED of its simulations. Sprout sends one way, with "
        "its receiver half. Each phone and repetition is another stretch of the built-in channel (another seed)."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
)
