"""Set-up of SIGCOMM 2015, Figs. 8 and 9: three stationary phones, each a link with three flows."""

from __future__ import annotations

from collections.abc import Sequence

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.claims import BUILT_IN
from verus.papers.reproduction import Column, ColumnResults, Place, Table, with_interval
from verus.report import figures
from verus.report.figures import Figure

CHANNELS = {
    "3G": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "LTE": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
}
PHONES, FLOWS, REPETITIONS, DURATION_S = 3, 3, 5, 120.0

#: A buffer that holds seconds of the link, as the paper says of such networks.
QUEUE = "droptail:bytes=10000000"

#: The runs, and choices that both figures leave open.
SET_UP = (
    "Three phones, each with three flows of one protocol and a link of its own, two minutes, five times, one "
    "protocol at a time, standing still, downlink, 20 ms of propagation each way. The paper ran over its operator's "
    "network and does not say how large its buffers were; delays in a full buffer, and so every ratio to Cubic's "
    "delay, depend on that. Its section 2 says that such networks over-dimension them, with delays of several "
    f"seconds: so here the queue is {QUEUE}. The RED queue of its simulations ({PAPER_QUEUE}) stands beside in a "
    "table, for the first phone. Sprout sends one way, as the paper's did, with its receiver half. Each phone and "
    "repetition is another stretch of the built-in channel (another seed). A recording is one phone's and the "
    "same each time, so there it is one phone, once."
)


def runs(column: Column, schemes: Sequence[str]) -> list[Run]:
    """A run for each queue, network, scheme, repetition (the run's `part`) and phone."""
    built_in = column.name == BUILT_IN
    return [
        column.run(
            place,
            scheme,
            flows=FLOWS,
            part=str(number),
            seed=PHONES * number + phone,
            queue=queue,
            duration_s=DURATION_S,
            series=False,
        )
        for queue, phones in ((QUEUE, PHONES if built_in else 1), (PAPER_QUEUE, 1))
        for place in CHANNELS
        for scheme in schemes
        for number in column.seeds(REPETITIONS if built_in else 1)
        for phone in range(phones)
    ]


def tables(results: ColumnResults) -> list[Table]:
    """Throughput and delay of a flow in the deep queue, and beside it in RED."""
    words = "means of a repetition's flows"
    if results.column == BUILT_IN:
        words += ", with 95 % confidence intervals over the repetitions"
    return [
        _table(results.where(queue=QUEUE), f"In the deep queue: {words}"),
        _table(results.where(queue=PAPER_QUEUE), f"Beside, in the RED queue of section 6.2, one phone: {words}"),
    ]


def _table(results: ColumnResults, title: str) -> Table:
    rows = []
    for place in results.places():
        for label in results.labels():
            selected = results.where(place=place, label=label)
            repetitions = [selected.where(part=part) for part in dict.fromkeys(row["part"] for row in selected.rows)]
            cells = [f"{place}, {label}"]
            for key, digits in (("throughput_mbps", 2), ("qdelay_mean_ms", 1)):
                flows = [each.flows(key) for each in repetitions]
                cells.append(with_interval([sum(values) / len(values) for values in flows], digits))
            rows.append(cells)
    return Table(title=title, heads=["", "throughput, Mbit/s", "queueing delay, ms"], rows=rows)


def draw(results: ColumnResults, *, name: str, title: str) -> list[Figure]:
    """Throughput against delay, a panel for each network, a point for each flow."""
    deep = results.where(queue=QUEUE)
    rows = deep.points(lambda row: f"{row['place']}: {row['trace']}")
    for row in rows:
        row["x"] = None if row["x"] is None else row["x"] / 1e3  # seconds, as in the paper
    repetitions = len({row["part"] for row in deep.rows})
    times = f"{PHONES} phones, {repetitions} times" if results.column == BUILT_IN else "one phone, once"
    caption = (
        f"A point for each flow: {FLOWS} on a phone, {times}, {deep.seeds_text()}, {DURATION_S:g} s. Queue "
        f"{QUEUE}, 20 ms of propagation each way. Delay is time in the bottleneck queue: the paper's "
        "also has the empty path in it, 40 ms here. The paper's throughput axis ends at 8 Mbit/s, ours at what these "
        "channels have. Verus in robust mode."
    )
    x, y = "mean queueing delay, s", "throughput of a flow, Mbit/s"
    return [figures.points(rows, name=name, title=title, caption=caption, x=x, y=y, log_x=True)]
