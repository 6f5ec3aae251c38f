"""SIGCOMM 2015, Fig. 1: packets sent evenly over LTE arrive in bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verus.lab.runner import Outcome
from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Place, Reproduction, Table
from verus.papers.sigcomm.arrivals import PACKET_BYTES, QUEUE, SENDER, bursts, received_ms, spread
from verus.report import figures
from verus.report.figures import Figure

CHANNELS = {
    "LTE": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
    "authors' downlink, campus": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "authors' downlink, city": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
}
DURATION_S = 60.0
#: The drawn interval, ms: a quarter of a second from the middle.
DRAWN_MS = (30_000.0, 30_250.0)


def runs(column: Column) -> list[Run]:
    """One sender, a minute, over the channel that is drawn; beside it over channels that move."""
    return [
        column.run(
            place, SENDER, queue=QUEUE, duration_s=DURATION_S, packet_bytes=PACKET_BYTES, records=True, series=False
        )
        for place in CHANNELS
    ]


def keep(outcome: Outcome) -> Mapping[str, Any]:
    """Bursts of the whole run, and the arrivals that are drawn, ms from the first of them."""
    times = received_ms(outcome)
    sizes, gaps = bursts(times)
    low, high = np.searchsorted(times, DRAWN_MS)
    return {"sizes": sizes, "gaps": gaps, "drawn_ms": np.round(times[low:high] - DRAWN_MS[0], 3).tolist()}


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    row = results.rows[0]
    kept = results.kept(row)
    return {
        "bursts": _together(results, row),
        "burst-size-varies": spread(kept["sizes"]),
        "gap-varies": spread(kept["gaps"]),
    }


def _together(results: ColumnResults, row: Mapping[str, Any]) -> float:
    """The share of packets that arrive in a millisecond together with another."""
    sizes = np.asarray(results.kept(row)["sizes"])
    packets = sizes[:, 0] * sizes[:, 1]
    return float(packets[sizes[:, 0] > 1].sum() / packets.sum())


def tables(results: ColumnResults) -> Sequence[Table]:
    """The share of packets that do not arrive alone, on each channel."""
    rows = [[row["place"], row["trace"], f"{_together(results, row):.0%}"] for row in results.rows]
    return [Table(title="Packets that arrive in a millisecond together with another", heads=["", "", ""], rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Packets received over time, a point for each."""
    row = results.rows[0]
    times = np.asarray(results.kept(row)["drawn_ms"])
    # As for a burst, what arrives in one millisecond; times carry rounding.
    _, of, sizes = np.unique(np.floor(times + 1e-6), return_inverse=True, return_counts=True)
    rows = [
        {"name": name, "x": float(at), "y": float(number)}
        for name, wanted in (("burst of two or more", sizes[of] > 1), ("alone in its millisecond", sizes[of] == 1))
        for number, at in zip(np.flatnonzero(wanted) + 1, times[wanted], strict=True)
    ]
    together = 100 * measure(results)["bursts"]  # type: ignore[operator]
    caption = (
        f"Packets of {PACKET_BYTES} bytes that leave every {PACKET_BYTES * 8 / 1e4:.2f} ms, 10 Mbit/s, over "
        f"{row['trace']}; a quarter of a second from the middle of {DURATION_S:g} s. A vertical run is a burst, a "
        f"gap the wait for the next. The paper's come in bursts of several packets; here "
        f"{together:.0f} % of the run's do, since this channel serves one packet in most milliseconds. Queue {QUEUE}, "
        f"seed {row['seed']}."
    )
    title = "Bursts of a sender that sends evenly"
    return [
        figures.points(
            rows,
            name="fig01",
            title=title,
            caption=caption,
            x="time, ms",
            y="packets received",
            size=(860, 300),
            mark_size=12,
        )
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig01",
    title="Fig. 1: bursts of arrivals over LTE",
    source=f"{SIGCOMM}, Fig. 1",
    shows=(
        "Packets are sent evenly at 10 Mbit/s over an LTE downlink. They arrive in bursts of several packets, since "
        "the scheduler serves a user in some milliseconds and not in others; sizes and waits vary."
    ),
    set_up=(
        "One sender of 10 Mbit/s for a minute over an LTE downlink, standing still. A burst is what arrives in one "
        "millisecond. The paper says that its tool sends every 0.4 ms, which at 10 Mbit/s would be packets of 500 "
        "bytes, and does not state their size; we take the 1400 bytes of its other measurements (section 5.3), "
        "one every 1.12 ms. Smaller packets would come in bursts merely because one grant carries several of "
        "them. Queue: drop-tail of 9 Mbit, which never fills here. A table has the authors' own downlinks, which move, "
        "beside."
    ),
    channels=CHANNELS,
    runs=runs,
    keep=keep,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
