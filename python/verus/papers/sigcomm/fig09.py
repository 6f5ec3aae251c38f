"""SIGCOMM 2015, Fig. 9: R trades throughput for delay."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial

from verus.papers.reproduction import SIGCOMM, ColumnResults, Reproduction
from verus.papers.sigcomm import stationary_phones

RATIOS = (2, 4, 6)


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {}
    for place in stationary_phones.CHANNELS:
        at_place = results.where(place=place, queue=stationary_phones.QUEUE)
        verus = {ratio: at_place.where(label=f"Verus R={ratio}") for ratio in RATIOS}
        sprout, end = at_place.where(label="Sprout"), place.lower()
        for key, metric in (("delay", "qdelay_mean_ms"), ("throughput", "throughput_mbps")):
            for low, high in itertools.pairwise(RATIOS):
                values[f"{key}-{low}-{high}-{end}"] = verus[high].mean(metric) / verus[low].mean(metric)
            values[f"{key}-sprout-{end}"] = verus[2].mean(metric) / sprout.mean(metric)
    return values


EXPERIMENT = Reproduction(
    name="sigcomm-fig09",
    title="Fig. 9: R trades throughput for delay",
    source=f"{SIGCOMM}, Fig. 9",
    shows=(
        "R is the largest ratio of delay to its minimum that Verus tolerates. The larger it is, the more throughput "
        "and the more delay; with R = 2 delay is under Sprout's, and throughput slightly too."
    ),
    set_up=stationary_phones.SET_UP,
    channels=stationary_phones.CHANNELS,
    runs=partial(stationary_phones.runs, schemes=[*(f"verus:ratio={ratio}" for ratio in RATIOS), "sprout"]),
    measure=measure,
    tables=stationary_phones.tables,
    draw=partial(stationary_phones.draw, name="fig09", title="R trades throughput for delay"),
).experiment()
