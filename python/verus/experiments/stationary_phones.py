"""Three phones that stand still, each a link of its own with three flows: the set-up of SIGCOMM 2015, Figs. 8 and 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verus.experiments.claims import BUILT_IN
from verus.experiments.reproduction import Column, Found, Place, Table, interval
from verus.scenario import PAPER_QUEUE

if TYPE_CHECKING:
    from verus.figures import Figure
    from verus.scenario import Run

CHANNELS = {
    "3G": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "LTE": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
}
PHONES, FLOWS, REPETITIONS, DURATION_S = 3, 3, 5, 120.0

#: What both figures leave open, and what is run.
SET_UP = (
    "Three phones, each with three flows of one protocol and a link of its own, two minutes, five times, one "
    "protocol at a time, standing still, downlink. The paper ran over its operator's network, whose buffer nobody "
    "knows; here it is the only one that the paper states, the RED of its simulations, and 20 ms of propagation each "
    "way. Sprout sends one way, as the paper's did, with its receiver half. Each phone and repetition is another "
    "stretch of the built-in channel (another seed). A recording is one phone's, so there it is one phone, and only "
    "the queue's random draws differ between repetitions. "
)


def runs(column: Column, schemes: Sequence[str]) -> list[Run]:
    """A run for each network, scheme, repetition (its `part`) and phone."""
    phones = _phones(column.name)
    return [
        column.run(
            place,
            who,
            flows=FLOWS,
            part=str(number),
            seed=PHONES * number + phone,
            duration_s=DURATION_S,
            series=False,
        )
        for place in CHANNELS
        for who in schemes
        for number in column.seeds(REPETITIONS)
        for phone in range(phones)
    ]


def _phones(column: str) -> int:
    """A recording is of one phone; three at the same stretch of it would be the same three times."""
    return PHONES if column == BUILT_IN else 1


def table(found: Found) -> Table:
    """Throughput and delay of a flow: means of a repetition's flows, with intervals over the repetitions."""
    rows = []
    for place in found.places():
        for label in found.labels():
            here = found.where(place=place, label=label)
            repetitions = [here.where(part=part) for part in dict.fromkeys(row["part"] for row in here.rows)]
            cells = [f"{place}, {label}"]
            for key, digits in (("throughput_mbps", 2), ("qdelay_mean_ms", 0)):
                flows = [each.flows(key) for each in repetitions]
                middle, half = interval([sum(values) / len(values) for values in flows])
                cells.append(f"{middle:.{digits}f} ± {half:.{max(digits, 1)}f}")
            rows.append(cells)
    title = "Means of a flow, with 95 % confidence intervals over the repetitions"
    return Table(title=title, heads=["", "throughput, Mbit/s", "queueing delay, ms"], rows=rows)


def scatter(found: Found, *, name: str, title: str) -> Figure:
    """Throughput against delay, a panel for each network, a point for each flow."""
    from verus import figures

    rows = [
        {"panel": row["place"], "name": row["label"], "x": flow["qdelay_mean_ms"], "y": flow["throughput_mbps"]}
        for row in found.rows
        for flow in row["per_flow"]
    ]
    channels = ", ".join(
        f"{place}: {trace}" for place, trace in dict.fromkeys((r["place"], r["trace"]) for r in found.rows)
    )
    phones = _phones(found.column)
    repetitions = len({row["part"] for row in found.rows})
    who = "three on each of three phones" if phones > 1 else "three on one phone"
    caption = (
        f"A point for each flow: {who}, {repetitions} times, {DURATION_S:g} s each. {channels}. Queue {PAPER_QUEUE}, "
        "20 ms of propagation each way. Delay is time in the bottleneck queue. Verus in robust mode."
    )
    x, y = "mean queueing delay, ms", "throughput of a flow, Mbit/s"
    return figures.points(rows, name=name, title=title, caption=caption, x=x, y=y, log_x=True)
