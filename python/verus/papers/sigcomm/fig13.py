"""SIGCOMM 2015, Fig. 13: Verus flows of different round-trip times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table
from verus.papers.sigcomm.wired import (
    BIN_MS,
    NETEM_QUEUE,
    PLACE,
    PRODUCT_BYTES,
    RATE_MBPS,
    REPETITIONS,
    cell,
    chart,
    decisions,
    median,
    shares,
    sweep,
    timeline,
)
from verus.report.figures import Figure

RTTS_MS = (20, 50, 100)
DURATION_S, SETTLED_S = 120.0, 20.0
#: Which cell of the map the claims are checked on: the paper's R, and one bandwidth-delay product.
RATIO, BUFFER = 2, 1.0
#: Other repeated settings: the largest R, with which by Eq. 4 no flow has to back off, and netem's
#: default buffer.
BESIDE = {"R = 6": (6, f"droptail:bytes={PRODUCT_BYTES}"), "R = 2, 1000 packets": (2, NETEM_QUEUE)}
NAMES = [f"round trip {rtt} ms" for rtt in RTTS_MS]


def runs(column: Column) -> list[Run]:
    """The three flows together, for every R and buffer."""
    flows = [{"delay_ms": rtt / 2} for rtt in RTTS_MS]
    beside = [
        column.run(
            PLACE,
            f"verus:ratio={ratio}",
            flows=flows,
            part=part,
            seed=seed,
            queue=queue,
            duration_s=DURATION_S,
            bin_ms=BIN_MS,
        )
        for part, (ratio, queue) in BESIDE.items()
        for seed in column.seeds(REPETITIONS)
    ]
    return [*sweep(column, flows, checked=(RATIO, BUFFER), duration_s=DURATION_S), *(() if column.mode else beside)]


def _spread(results: ColumnResults, row: Mapping[str, Any]) -> float:
    got = shares(results, row, SETTLED_S)
    return float(got.max() / got.min())


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    least_share = median(results, lambda row: float(shares(results, row, SETTLED_S).min()))
    return {
        "shares": median(results, lambda row: _spread(results, row)),
        "no-starvation": least_share * len(RTTS_MS) / RATE_MBPS,
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Repetitions of the checked setting, and the decisions that may explain their result."""
    rows = []
    for part in BESIDE:
        spreads = [_spread(results, row) for row in results.where(part=part).rows]
        rows.append([part, f"{np.median(spreads):.2f}", f"{min(spreads):.2f} to {max(spreads):.2f}"])
    return [
        *decisions(results, NAMES, SETTLED_S, ("largest / smallest", lambda one: _spread(results, one))),
        Table(title="Largest over smallest, five seeds", heads=["", "median", "least to most"], rows=rows),
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput of each flow over time in the checked setting; the largest share over the smallest in all."""
    row = cell(results, ratio=RATIO, buffer=BUFFER)
    link = f"{RATE_MBPS:g} Mbit/s, drop-tail, seed {row['seed']}, {DURATION_S:g} s. Verus in robust mode."
    return [
        timeline(
            results,
            row,
            NAMES,
            name="fig13",
            title="Three Verus flows with three round-trip times",
            caption=f"Each flow's throughput in bins of 1 s; R = {RATIO}, a buffer of 375,000 bytes. {link}",
        ),
        chart(
            results,
            lambda one: _spread(results, one),
            name="fig13-map",
            title="By R and buffer: the largest throughput over the smallest",
            caption=f"Mean throughput of the three flows after the first {SETTLED_S:g} s; 1 is an equal share. {link}",
            value="largest / smallest",
            log=True,
        ),
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig13",
    title="Fig. 13: different round-trip times",
    source=f"{SIGCOMM}, Fig. 13",
    shows=(
        "Three Verus flows with round trips of 20, 50 and 100 ms on a wired link of 60 Mbit/s have about the same "
        "throughput, whatever their round trip."
    ),
    set_up=(
        "R is 2, as the paper says of this and the other experiments of the section. It does not state the buffer: "
        "here "
        "drop-tail of one bandwidth-delay product at 50 ms (375,000 bytes). By Eq. 4 a flow of base round trip b backs "
        "off once the queue is longer than (R - 1) b, the flow of 20 ms first of all. Beside are R = 6, with which "
        "none "
        "has to, and the 1000 packets that netem holds unless told otherwise. The map shows R = 2, 4 and 6 with a "
        "quarter to four such buffers. Two minutes, all three flows from the beginning; means leave out the first 20 "
        "s. Claims are on the median of five repetitions."
    ),
    channels={},
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
