"""SIGCOMM 2015, Fig. 3: what a second user does to the delay of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from verus.lab.runner import Outcome
from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Array, Column, ColumnResults, Place, Reproduction, Table
from verus.papers.sigcomm.arrivals import PACKET_BYTES, QUEUE, SENDER
from verus.report import figures
from verus.report.figures import Figure

CHANNELS = {"downlink": Place("campus-stationary-lte-down", "verus-2015/campus-pedestrian.down")}
RATES_MBPS = (1, 5, 10)
#: One queue for both users, and one for each, which take turns: as many bytes as in QUEUE, and CoDel never drops.
SHARED, ISOLATED = "one queue", "a queue for each user"
QUEUES = {SHARED: QUEUE, ISOLATED: "fq_codel:target_ms=10000,interval_ms=10000,packets=803,ecn=no"}
PERIOD_S, DURATION_S, PROPAGATION_MS = 60, 360, 20.0
ON = tuple((start, start + PERIOD_S) for start in range(PERIOD_S, DURATION_S, 2 * PERIOD_S))


def runs(column: Column) -> list[Run]:
    """User 1 all the time, user 2 every other minute."""
    return [
        column.run(
            "downlink",
            f"constant:rate_mbps={rate}",
            flows=[{}, *({"scheme": SENDER, "start_s": start, "stop_s": stop} for start, stop in ON)],
            label=f"user 1 at {rate} Mbit/s",
            part=kind,
            queue=queue,
            duration_s=DURATION_S,
            delay_ms=PROPAGATION_MS,
            packet_bytes=PACKET_BYTES,
            records=True,
            series=False,
        )
        for kind, queue in QUEUES.items()
        for rate in RATES_MBPS
    ]


def keep(outcome: Outcome) -> Mapping[str, Any]:
    """User 1, by the second in which a packet left: packets that arrived, and their mean one-way delay, ms."""
    records = outcome["records"]
    delay = records["received_ms"] - records["sent_ms"]
    delivered = (records["flow"] == 0) & np.isfinite(delay)
    second = (records["sent_ms"][delivered] / 1000).astype(np.int64)
    packets = np.bincount(second, minlength=DURATION_S)
    total = np.bincount(second, weights=delay[delivered], minlength=DURATION_S)
    means = [round(float(t / n), 3) if n else None for t, n in zip(total, packets, strict=True)]
    return {"packets": packets.tolist(), "delay_ms": means}


def _series(results: ColumnResults, rate: int, kind: str = SHARED) -> tuple[Array, Array]:
    """Packets and mean delay of user 1 in each second; not-a-number where none arrived."""
    (row,) = results.where(label=f"user 1 at {rate} Mbit/s", part=kind).rows
    kept = results.kept(row)
    return np.asarray(kept["packets"], dtype=float), np.asarray(kept["delay_ms"], dtype=float)


def _on() -> npt.NDArray[np.bool_]:
    """Whether user 2 is on, in each second."""
    return np.asarray(np.arange(DURATION_S) // PERIOD_S % 2 == 1)


def _mean_delay_ms(results: ColumnResults, rate: int, *, on: bool, kind: str = SHARED) -> float:
    """Over all packets of user 1 that left while user 2 was on, or off."""
    packets, delay = _series(results, rate, kind)
    chosen = (_on() == on) & (packets > 0)
    return float(np.average(delay[chosen], weights=packets[chosen]))


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    on, off = ({rate: _mean_delay_ms(results, rate, on=on) for rate in RATES_MBPS} for on in (True, False))
    isolated = {
        rate: _mean_delay_ms(results, rate, on=True, kind=ISOLATED)
        / _mean_delay_ms(results, rate, on=False, kind=ISOLATED)
        for rate in RATES_MBPS
    }
    return {
        **{f"on-{rate}": on[rate] / off[rate] for rate in RATES_MBPS},
        **{f"isolated-{rate}": ratio for rate, ratio in isolated.items()},
        "off-low": max(off.values()) - PROPAGATION_MS,
        "near-capacity": (on[10] - off[10]) / (on[1] - off[1]),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Mean delays."""
    rows = [
        [f"{rate} Mbit/s, {kind}", *(f"{_mean_delay_ms(results, rate, on=on, kind=kind):.0f}" for on in (False, True))]
        for kind in QUEUES
        for rate in RATES_MBPS
    ]
    heads = ["user 1 receives", "user 2 off", "user 2 on"]
    return [Table(title="Mean one-way delay of user 1, ms", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Delay of user 1 over time, a panel for each of its rates; grey while user 2 is on."""
    rows = []
    for rate in RATES_MBPS:
        panel = f"user 1 at {rate} Mbit/s"
        _, delay = _series(results, rate)
        top = float(np.nanmax(delay))
        for second, on in enumerate(_on()):
            rows.append({"panel": panel, "name": "user 2 on", "x": float(second), "y": top if on else 0.0})
            rows.append({"panel": panel, "name": "packets of user 1", "x": float(second), "y": float(delay[second])})
    first = results.rows[0]
    caption = (
        f"One-way delay of user 1's packets, means of a second; grey: user 2 is on and receives 10 Mbit/s. Both share "
        f"{first['trace']}; packets of {PACKET_BYTES} bytes, queue {QUEUE}, {PROPAGATION_MS:g} ms of propagation "
        f"included, seed {first['seed']}."
    )
    return [
        figures.lines(
            rows,
            name="fig03",
            title="Delay of user 1 while user 2 comes and goes",
            caption=caption,
            x="time, s",
            y="delay, ms",
            shade="user 2 on",
            size=(860, 150),
        )
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig03",
    title="Fig. 3: competing traffic and delay",
    source=f"{SIGCOMM}, Fig. 3",
    shows=(
        "User 1 receives 1, 5 or 10 Mbit/s all the time, user 2 10 Mbit/s in every other minute, from the same base "
        "station. While user 2 is off delays are low; while it is on they grow, most where both together come near "
        "the capacity."
    ),
    set_up=(
        "Two senders at constant rates over one link, six minutes for each rate. The paper's 3G cell carries almost "
        "the 20 Mbit/s of both; the built-in channel nearest to that is a stationary LTE downlink of 18.4 Mbit/s. The "
        "paper's base station keeps a queue for each user, and both share the air. Both ways are run: one drop-tail "
        "queue of 9 Mbit for both users, as drawn, and a queue for each user, served in turn, with as many packets in "
        "all. The operator's buffer is not known."
    ),
    channels=CHANNELS,
    runs=runs,
    keep=keep,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
