"""SIGCOMM 2015, Fig. 13: Verus flows of different round-trip times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, Found, Reproduction, Table
from verus.papers.sigcomm.wired import RATE_MBPS, cell, chart, decisions, mean, shares, sweep, timeline
from verus.report.figures import Figure

RTTS_MS = (20, 50, 100)
DURATION_S, SETTLED_S = 120.0, 20.0
#: Which cell of the map the claims are checked on: by Eq. 4 no flow there has to back off.
RATIO, BUFFER = 6, 1.0
NAMES = [f"round trip {rtt} ms" for rtt in RTTS_MS]


def runs(column: Column) -> list[Run]:
    """The three flows together, for every R and buffer."""
    flows = [{"delay_ms": rtt / 2} for rtt in RTTS_MS]
    return sweep(column, flows, checked=(RATIO, BUFFER), duration_s=DURATION_S)


def _spread(found: Found, row: Mapping[str, Any]) -> float:
    got = shares(found, row, SETTLED_S)
    return float(got.max() / got.min())


def measure(found: Found) -> Mapping[str, float | None]:
    """A value for each claim."""
    least = mean(found, lambda row: float(shares(found, row, SETTLED_S).min()))
    return {
        "shares": mean(found, lambda row: _spread(found, row)),
        "no-starvation": least * len(RTTS_MS) / RATE_MBPS,
    }


def tables(found: Found) -> Sequence[Table]:
    """What the repetitions of the checked setting have, and what makes the difference."""
    return decisions(found, NAMES, SETTLED_S, ("largest / smallest", lambda one: _spread(found, one)))


def draw(found: Found) -> Sequence[Figure]:
    """Throughput of each flow over time in the checked setting; the largest share over the smallest in all."""
    row = cell(found, ratio=RATIO, buffer=BUFFER)
    link = f"{RATE_MBPS:g} Mbit/s, drop-tail, seed {row['seed']}, {DURATION_S:g} s. Verus in robust mode."
    return [
        timeline(
            found,
            row,
            NAMES,
            name="fig13",
            title="Three Verus flows with three round-trip times",
            caption=f"Each flow's throughput in bins of 1 s; R = {RATIO}, a buffer of 375,000 bytes. {link}",
        ),
        chart(
            found,
            lambda one: _spread(found, one),
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
        "The paper states neither R nor the buffer, and by Eq. 4 much depends on both: a flow of base round trip b "
        "backs off once the queue is longer than (R - 1) b, the flow of 20 ms first of all. The claims are checked "
        "where none is made to: R = 6, with which that flow bears 100 ms of queue, and a drop-tail buffer of one "
        "bandwidth-delay product at 50 ms (375,000 bytes), which holds 50 ms. This was chosen before anything was "
        "run. The map shows R = 2, 4 and 6 with a quarter to four such buffers. Two minutes, all three flows from the "
        "beginning; means leave out the first 20 s. Claims are on the mean of five repetitions, since who is ahead "
        "after two minutes is partly chance."
    ),
    channels={},
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
