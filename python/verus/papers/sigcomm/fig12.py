"""SIGCOMM 2015, Fig. 12: Verus flows that come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verus import _verus
from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table
from verus.papers.sigcomm.wired import BIN_MS, NETEM_QUEUE, shares, timeline
from verus.report.figures import Figure

RATE_MBPS, FLOWS, STEP_S, MEASURED_S = 90.0, 8, 30.0, 20.0
#: Flows share fairly once Jain's index over so many seconds is this.
FAIR, FAIR_FOR_S = 0.9, 5.0
PHASES = 2 * FLOWS - 1
DURATION_S = PHASES * STEP_S

#: Orders in which flows leave; the claims are checked with the first order.
OLDEST, NEWEST = "the oldest leaves first", "the newest leaves first"
#: As we ship it; for the table, without its bounds from the delivery rate, and as the authors released it.
CHECKED = "robust"
MODES = {CHECKED: "", "without=capacity": ",without=capacity", "prototype": ",mode=prototype"}


def _flows(order: str) -> list[dict[str, Any]]:
    """One more every 30 s, and when all are there, one fewer every 30 s."""
    stays = range(FLOWS) if order == OLDEST else reversed(range(FLOWS))
    return [
        {"start_s": number * STEP_S, "stop_s": (FLOWS + later) * STEP_S}
        for number, later in zip(range(FLOWS), stays, strict=True)
    ]


def runs(column: Column) -> list[Run]:
    """Both orders of leaving."""
    return [
        column.run(
            f"rate:{RATE_MBPS:g}",
            f"verus:ratio=2{keys}",
            flows=_flows(order),
            label=mode,
            part=order,
            queue=NETEM_QUEUE,
            duration_s=DURATION_S,
            bin_ms=BIN_MS,
        )
        for mode, keys in MODES.items()
        for order in (OLDEST, NEWEST)
    ]


def _indices(results: ColumnResults, row: Mapping[str, Any]) -> list[float]:
    """Jain's index of the flows that are on, over the last 20 s of each phase."""
    indices = []
    for phase in range(PHASES):
        start, stop = phase * STEP_S, (phase + 1) * STEP_S
        present = [
            number
            for number, flow in enumerate(_flows(row["part"]))
            if flow["start_s"] <= start and flow["stop_s"] >= stop
        ]
        indices.append(_verus.jain(shares(results, row, stop - MEASURED_S, stop)[present]) or 0.0)
    return indices


def _settling_s(results: ColumnResults, row: Mapping[str, Any], phases: range) -> float:
    """How long it takes, at the most, until the flows that are on have an index of 0.9 over five seconds."""
    longest = 0.0
    for phase in phases:
        start, stop = phase * STEP_S, (phase + 1) * STEP_S
        present = [
            number
            for number, flow in enumerate(_flows(row["part"]))
            if flow["start_s"] <= start and flow["stop_s"] >= stop
        ]
        fair = (
            second
            for second in np.arange(0.0, STEP_S - FAIR_FOR_S + 1)
            if (_verus.jain(shares(results, row, start + second, start + second + FAIR_FOR_S)[present]) or 0.0) >= FAIR
        )
        longest = max(longest, float(next(fair, STEP_S)))
    return longest


def _checked(results: ColumnResults) -> Mapping[str, Any]:
    (row,) = results.where(label=CHECKED, part=OLDEST).rows
    return row


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    row = _checked(results)
    indices = _indices(results, row)
    return {
        "fills": float(shares(results, row, 0, STEP_S)[0]) / RATE_MBPS,
        "fair-arrivals": min(indices[:FLOWS]),
        "fair-departures": min(indices[FLOWS:]),
        "quick-arrivals": _settling_s(results, row, range(1, FLOWS)),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Jain's index of every phase, for each mode; a table for each order."""
    counts = [*range(1, FLOWS + 1), *range(FLOWS - 1, 0, -1)]
    made = []
    for order in (OLDEST, NEWEST):
        in_order = results.where(part=order)
        indices = [_indices(results, row) for row in in_order.rows]
        rows = [
            [
                f"{phase * STEP_S:.0f} to {(phase + 1) * STEP_S:.0f} s",
                str(count),
                *(f"{own[phase]:.3f}" for own in indices),
            ]
            for phase, count in enumerate(counts)
        ]
        title = f"Jain's index over the last {MEASURED_S:.0f} s of each phase: {order}"
        made.append(Table(title=title, heads=["", "flows", *in_order.labels()], rows=rows))
    return made


def sentences(results: ColumnResults) -> Sequence[str]:
    """A sentence on the other order of leaving, about which there is no claim."""
    (row,) = results.where(label=CHECKED, part=NEWEST).rows
    least_index = min(_indices(results, row)[FLOWS:])
    return [f"If {NEWEST.replace('leaves', 'left')}, the least index over the departures would be {least_index:.2f}."]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput of each flow over time."""
    row = _checked(results)
    caption = (
        f"Each flow's throughput in bins of 1 s. {RATE_MBPS:g} Mbit/s, 20 ms of propagation each way, drop-tail "
        f"queue of 1000 packets, seed {row['seed']}, {DURATION_S:.0f} s; one more flow every {STEP_S:.0f} s, then one "
        "fewer, the oldest first. Verus R = 2 in robust mode."
    )
    names = [f"flow {number}" for number in range(1, FLOWS + 1)]
    return [timeline(results, row, names, name="fig12", title="Eight Verus flows come and go", caption=caption)]


EXPERIMENT = Reproduction(
    name="sigcomm-fig12",
    title="Fig. 12: flows that come and go",
    source=f"{SIGCOMM}, Fig. 12",
    shows=(
        "Verus flows on a wired link of 90 Mbit/s, one more every 30 s. The first one fills the link; the others get "
        "their share as they arrive, and what leaves is shared among those that stay."
    ),
    set_up=(
        "Eight flows, as the text says (the figure shows seven), one more every 30 s and then one fewer every 30 s. "
        "The text names no order of leaving: the one that came first leaves first, so that each lasts equally long; "
        "the opposite order has a table of its own. R is 2, as the paper says of this and what follows. Left open and "
        "chosen: a round trip of 40 ms; the buffer, "
        "1000 packets of 1500 bytes, which is what netem holds unless told otherwise. Jain's index is that of the "
        f"flows' mean throughput over the last {MEASURED_S:.0f} s of each phase. The tables also show robust mode "
        "without its capacity bounds, and prototype mode."
    ),
    channels={},
    runs=runs,
    measure=measure,
    tables=tables,
    sentences=sentences,
    draw=draw,
).experiment()
