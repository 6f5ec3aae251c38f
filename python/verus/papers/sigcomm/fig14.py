"""SIGCOMM 2015, Fig. 14: Verus flows beside Cubic flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table
from verus.papers.sigcomm.wired import RATE_MBPS, cell, chart, decisions, median, shares, sweep, timeline
from verus.report.figures import Figure

EACH, STEP_S, DURATION_S = 3, 30.0, 300.0
#: When the last flow arrives.
ALL_ON_S = (2 * EACH - 1) * STEP_S
DELAY_MS = 25.0
#: Which cell of the map the claim is checked on: by Eq. 4 Verus just has not to back off there.
RATIO, BUFFER = 2, 1.0
NAMES = [f"{who} {number}" for who in ("Verus", "Cubic") for number in range(1, EACH + 1)]


def runs(column: Column) -> list[Run]:
    """Three Verus flows, then three Cubic flows, one more every 30 s, for every R and buffer."""
    verus = [{"start_s": STEP_S * number} for number in range(EACH)]
    cubic = [{"start_s": STEP_S * (EACH + number), "scheme": "cubic"} for number in range(EACH)]
    flows: list[Mapping[str, Any]] = [*verus, *cubic]
    return sweep(column, flows, checked=(RATIO, BUFFER), duration_s=DURATION_S, delay_ms=DELAY_MS)


def _ratio(results: ColumnResults, row: Mapping[str, Any]) -> float:
    """Verus's throughput over Cubic's once all are on."""
    got = shares(results, row, ALL_ON_S)
    return float(got[:EACH].sum() / got[EACH:].sum())


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    return {"shares": median(results, lambda row: _ratio(results, row))}


def tables(results: ColumnResults) -> Sequence[Table]:
    """Repetitions of the checked setting, and the decisions that may explain their result."""
    return decisions(results, NAMES, ALL_ON_S, ("Verus / Cubic", lambda one: _ratio(results, one)))


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput of each flow over time in the checked setting; Verus over Cubic in all."""
    row = cell(results, ratio=RATIO, buffer=BUFFER)
    link = (
        f"{RATE_MBPS:g} Mbit/s, {DELAY_MS:g} ms of propagation each way, drop-tail, seed {row['seed']}, "
        f"{DURATION_S:g} s. Verus in robust mode."
    )
    return [
        timeline(
            results,
            row,
            NAMES,
            name="fig14",
            title="Three Verus flows, then three Cubic flows",
            caption=(
                f"Each flow's throughput in bins of 1 s, one more flow every {STEP_S:g} s; R = {RATIO}, a buffer of "
                f"375,000 bytes. {link}"
            ),
        ),
        chart(
            results,
            lambda one: _ratio(results, one),
            name="fig14-map",
            title="By R and buffer: Verus's throughput over Cubic's",
            caption=(
                f"Throughput of the three Verus flows over that of the three Cubic flows from {ALL_ON_S:g} s, when "
                f"all are on; 1 is an equal share. {link}"
            ),
            value="Verus / Cubic",
            middle=1.0,
            log=True,
        ),
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig14",
    title="Fig. 14: Verus beside Cubic",
    source=f"{SIGCOMM}, Fig. 14",
    shows=(
        "Three Verus flows on a wired link of 60 Mbit/s, one more every 30 s, and then three Cubic flows likewise. "
        "Once all are there, Verus and Cubic share the link equally."
    ),
    set_up=(
        "R is 2, as the paper says of this and the other experiments of the section. It states neither round trip nor "
        "buffer. By Eq. 4 Verus backs off once the queue is longer than "
        "R - 1 base round trips, and Cubic fills whatever buffer there is, so the buffer decides. The claim is checked "
        "at a round trip of 50 ms with a drop-tail buffer of one bandwidth-delay product (375,000 bytes), "
        "where Verus's limit is just not crossed. This was chosen before anything was run. The map shows R = 2, 4 and "
        "6 with a quarter to four such buffers. Shares are means from 150 s, when all six are on, to the end at 300 s, "
        "and the claim is on the median of five repetitions."
    ),
    channels={},
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
