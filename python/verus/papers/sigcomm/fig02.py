"""SIGCOMM 2015, Fig. 2: sizes of bursts and times between them, on 3G and LTE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verus.lab.runner import Outcome
from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Place, Reproduction, Table
from verus.papers.sigcomm.arrivals import (
    PACKET_BYTES,
    QUEUE,
    SENDER,
    Counts,
    bursts,
    received_ms,
    spread,
    values,
    variation,
)
from verus.report import figures
from verus.report.figures import Figure

CHANNELS = {
    "3G, stationary": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "LTE, stationary": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
    "3G, driving": Place("city-driving-3g-down", "mahimahi/TMobile-UMTS-driving.down"),
    "LTE, driving": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
    "3G, uplink": Place("city-stationary-3g-up", "mahimahi/TMobile-UMTS-driving.up"),
    "LTE, uplink": Place("city-stationary-lte-up", "mahimahi/Verizon-LTE-short.up"),
}
DURATION_S = 300.0
#: A load that both networks carry; the smaller of the two that the paper's measurements send at (§5.3).
SAME_LOAD = "constant:rate_mbps=2.5"
NETWORKS = ("3G", "LTE")


def runs(column: Column) -> list[Run]:
    """The sender of Fig. 1 over each channel for five minutes, and a load that 3G carries too."""
    return [
        column.run(
            place, scheme, queue=QUEUE, duration_s=DURATION_S, packet_bytes=PACKET_BYTES, records=True, series=False
        )
        for place, scheme in [
            *((place, SENDER) for place in CHANNELS),
            *((f"{network}, stationary", SAME_LOAD) for network in NETWORKS),
        ]
    ]


def keep(outcome: Outcome) -> Mapping[str, Any]:
    """How often bursts had which size, packets, and which time lay between them, ms."""
    sizes, gaps = bursts(received_ms(outcome))
    return {"sizes": sizes, "gaps": gaps}


def _kept(results: ColumnResults, place: str, *, rate_mbps: float = 10) -> Mapping[str, Counts]:
    """The bursts of one run."""
    rows = results.where(place=place).rows
    (row,) = [row for row in rows if row["params"] == f'{{"rate_mbps": {rate_mbps:g}}}']
    kept: Mapping[str, Counts] = results.kept(row)
    return kept


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    result: dict[str, float | None] = {}
    same = {network: _kept(results, f"{network}, stationary", rate_mbps=2.5) for network in NETWORKS}
    # Of the same load, bursts that are smaller by a factor are more frequent by it.
    means = {network: float(np.mean(values(same[network]["sizes"]))) for network in NETWORKS}
    result["lte-smaller"] = means["LTE"] / means["3G"]
    for network in NETWORKS:
        still, driving, uplink = (_kept(results, f"{network}, {how}") for how in ("stationary", "driving", "uplink"))
        end = network.lower()
        for claim, key in (("size", "sizes"), ("gap", "gaps")):
            result[f"{claim}-spread-{end}"] = spread(still[key])
            result[f"mobility-{claim}-{end}"] = variation(driving[key]) / variation(still[key])
        result[f"uplink-{end}"] = spread(uplink["sizes"])
        result[f"uplink-gap-{end}"] = spread(uplink["gaps"])
    return result


def tables(results: ColumnResults) -> Sequence[Table]:
    """Summary values of the distributions."""
    rows = []
    for row in results.rows:
        kept = results.kept(row)
        sizes, gaps = values(kept["sizes"]), values(kept["gaps"])
        rows.append(
            [
                f"{row['place']}, {row['label']}",
                f"{row['throughput_mbps']:.2f}",
                f"{sizes.mean():.2f}",
                *(f"{value:.0f}" for value in np.percentile(sizes, [50, 95])),
                f"{gaps.mean():.2f}",
                *(f"{value:.0f}" for value in np.percentile(gaps, [50, 95])),
            ]
        )
    heads = ["", "arrives, Mbit/s", "burst, packets: mean", "median", "95 %", "between, ms: mean", "median", "95 %"]
    return [Table(title="Bursts", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Distributions of both, on logarithmic axes, a panel for each way to be."""
    common = (
        f"The sender of Fig. 1 (10 Mbit/s, packets of {PACKET_BYTES} bytes) for {DURATION_S:g} s over "
        f"{', '.join(results.where(place=place).rows[0]['trace'] for place in CHANNELS)}. Queue {QUEUE}, "
        f"seed {results.rows[0]['seed']}. "
    )
    drawn = []
    for key, factor, name, title, x, about in (
        ("sizes", PACKET_BYTES, "size", "Sizes of bursts", "burst, bytes", "A burst is what arrives in a millisecond."),
        (
            "gaps",
            1,
            "gap",
            "Times between bursts",
            "time between bursts, ms",
            "From a millisecond with arrivals to the next.",
        ),
    ):
        rows = []
        for how in ("stationary", "driving", "uplink"):
            for network in NETWORKS:
                counts = _kept(results, f"{network}, {how}")[key]
                total = sum(times for _, times in counts)
                rows += [
                    {
                        "panel": how if how == "uplink" else f"downlink, {how}",
                        "name": network,
                        "x": float(value * factor),
                        "y": times / total,
                    }
                    for value, times in counts
                ]
        drawn.append(
            figures.points(
                rows,
                name=f"fig02-{name}",
                title=title,
                caption=common + about,
                x=x,
                y="probability",
                log_x=True,
                log_y=True,
                columns=3,
                size=(270, 240),
                mark_size=16,
            )
        )
    return drawn


EXPERIMENT = Reproduction(
    name="sigcomm-fig02",
    title="Fig. 2: distributions of bursts on 3G and LTE",
    source=f"{SIGCOMM}, Fig. 2",
    shows=(
        "Five minutes over the 3G and LTE of two operators, standing still in a residential area. Sizes of bursts and "
        "times between them vary widely; LTE has more and smaller bursts. Driving makes both vary more; uplinks "
        "behave alike."
    ),
    set_up=(
        "The sender of Fig. 1 for five minutes on each channel: standing still and driving, and an uplink. The paper "
        "does not say at which rate; 10 Mbit/s is the rate it names in this section. Our 3G channels carry 2 to 5 "
        "Mbit/s, so there it saturates the link and what does not fit the drop-tail queue of 9 Mbit is lost. "
        "The paper's 3G carried the 10 Mbit/s, and so the same load as its LTE; to compare the two networks under "
        "the same load we send 2.5 Mbit/s over both, the smaller of the rates that the paper measures "
        "with (section 5.3). We have one channel of each kind where the paper has two operators. Recordings are the "
        "nearest that are public: the stationary 3G is a walk on Times Square, and the uplinks were driven."
    ),
    channels=CHANNELS,
    runs=runs,
    keep=keep,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
