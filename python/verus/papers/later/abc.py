"""HotNets 2017, Fig. 2: eight schemes over two LTE recordings, of which we have seven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from verus.lab.scenario import Run
from verus.papers.claims import RECORDINGS
from verus.papers.published import listed
from verus.papers.reproduction import Column, ColumnResults, Place, Reproduction, Table
from verus.report import figures
from verus.report.figures import Figure
from verus.report.numbers import number

SOURCE = (
    "P. Goyal, M. Alizadeh and H. Balakrishnan, Rethinking Congestion Control for Cellular Networks, ACM HotNets 2017"
)

#: The two recordings of the figure. No built-in channel is fitted to the downlink, so both use the
#: uplink's.
CHANNELS = {
    "Fig. 2a": Place("highway-driving-lte-up", "mahimahi/Verizon-LTE-short.up"),
    "Fig. 2b": Place("highway-driving-lte-up@2", "mahimahi/Verizon-LTE-short.down"),
}

#: One way; the figure's delays have both ways in them.
DELAY_MS = 50.0
#: How long the recordings are: they are played once.
DURATION_S = 140.0
DROPTAIL = "droptail:packets=100"


@dataclass(frozen=True)
class Entry:
    """One point of the figure.

    Attributes:
        scheme: The sender's scheme.
        queue: The bottleneck queue.
        label: For tables and figures.
    """

    scheme: str
    queue: str
    label: str


#: By the figure's names. Its Verus is the authors' code; R is not stated.
ENTRIES = {
    "bbr": Entry("bbr1", DROPTAIL, "BBR v1"),
    "cubic": Entry("cubic", DROPTAIL, "Cubic"),
    "cubic+codel": Entry("cubic", "codel:target_ms=50,interval_ms=100", "Cubic, CoDel"),
    "vegas": Entry("vegas", DROPTAIL, "Vegas"),
    "cubic+pie": Entry("cubic", "pie:target_ms=50", "Cubic, PIE"),
    "sprout": Entry("sprout", DROPTAIL, "Sprout"),
    "verus": Entry("verus:mode=prototype", DROPTAIL, "Verus, prototype"),
}
#: Two labels that the paper's figure lacks: the default mode, whose rank among the others is
#: checked, and R = 4.
OURS = "verus, default mode"
BESIDE = {
    OURS: Entry("verus", DROPTAIL, "Verus"),
    "verus, R = 4": Entry("verus:ratio=4", DROPTAIL, "Verus R=4"),
    "verus prototype, R = 4": Entry("verus:mode=prototype,ratio=4", DROPTAIL, "Verus, prototype R=4"),
    "forward": Entry("forward", DROPTAIL, "Forward"),
}
EVERYONE = {**ENTRIES, **BESIDE}


@cache
def published() -> Mapping[tuple[str, str], tuple[float, float]]:
    """(place, the figure's name of a scheme) → share of the capacity used, 95th percentile of delay in ms."""
    return {
        (row["figure"], row["scheme"]): (float(row["utilization"]), float(row["p95_ms"]))
        for row in listed("verus.papers.later", "abc.csv")
    }


def runs(column: Column) -> list[Run]:
    """Every scheme once over both recordings."""
    return [
        column.run(
            place,
            entry.scheme,
            label=entry.label,
            part=name,
            queue=entry.queue,
            duration_s=DURATION_S,
            delay_ms=DELAY_MS,
            ack="rate:48",
            loop=column.name != RECORDINGS,
            series=False,
        )
        for place in CHANNELS
        for name, entry in EVERYONE.items()
    ]


def _measured(results: ColumnResults, place: str, name: str) -> tuple[float, float]:
    """As `published`: the axis has the propagation of both ways in it."""
    selected = results.where(place=place, part=name)
    return selected.mean("utilization"), selected.mean("qdelay_p95_ms") + 2 * DELAY_MS


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {}
    for place, end in zip(CHANNELS, ("2a", "2b"), strict=True):
        measured = {name: _measured(results, place, name) for name in EVERYONE}
        for name in ENTRIES:
            values[f"{name}-used-{end}"], values[f"{name}-delay-{end}"] = measured[name]
        (used, delay), (_, bbr_delay) = measured[OURS], measured["bbr"]
        codel_used, codel_delay = measured["cubic+codel"]
        values |= {
            f"order-delay-bbr-{end}": delay / bbr_delay,
            f"order-delay-codel-{end}": delay / codel_delay,
            f"order-used-codel-{end}": used / codel_used,
            f"order-used-sprout-{end}": used / measured["sprout"][0],
            f"order-used-cubic-{end}": used / measured["cubic"][0],
        }
        for what, axis in (("used", 0), ("delay", 1)):
            ours = [measured[OURS if name == "verus" else name][axis] for name in ENTRIES]
            values[f"rank-{what}-{end}"] = rank_correlation(ours, [published()[place, name][axis] for name in ENTRIES])
    return values


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, of values without ties.

    Example:
        >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
        0.5
    """
    first, second = ([sorted(values).index(value) for value in values] for values in (one, other))
    apart = sum((a - b) * (a - b) for a, b in zip(first, second, strict=True))
    return 1 - 6 * apart / (len(one) * (len(one) ** 2 - 1))


def tables(results: ColumnResults) -> Sequence[Table]:
    """Everything beside the figure's numbers."""
    rows = []
    for place in CHANNELS:
        for name, entry in EVERYONE.items():
            used, delay = _measured(results, place, name)
            theirs = published().get((place, name)) if results.column == RECORDINGS else None
            rows.append(
                [
                    f"{place}, {entry.label}",
                    number(used, 3),
                    number(theirs[0] if theirs else None, 3),
                    number(delay, 0),
                    number(theirs[1] if theirs else None, 0),
                    number(results.where(place=place, part=name).mean("qdelay_mean_ms")),
                ]
            )
    heads = ["", "used", "figure", "p95 ms", "figure", "mean queueing ms"]
    return [
        Table(
            title="Share of the capacity used, and 95th percentile of delay with 100 ms of propagation",
            heads=heads,
            rows=rows,
        )
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Utilization against delay, as in the figure: our points and the paper's."""
    rows: list[dict[str, Any]] = []
    for place in CHANNELS:
        for name, entry in EVERYONE.items():
            used, delay = _measured(results, place, name)
            rows.append({"panel": f"{place}, here", "name": entry.label, "x": delay, "y": used})
        for name, entry in ENTRIES.items():
            used, delay = published()[place, name]
            rows.append({"panel": f"{place}, as published", "name": entry.label, "x": delay, "y": used})
    caption = (
        f"One flow, {DURATION_S:g} s, {DELAY_MS:g} ms each way, {DROPTAIL} but for CoDel (50 ms, 100 ms) and PIE (50 "
        "ms). Delay is time in the bottleneck queue and 100 ms of propagation, 95th percentile over packets. The "
        "published points are read off the figure, to 3 % in delay and 0.02 in utilization."
    )
    x, y = "95th percentile of delay, ms", "share of the capacity used"
    return [
        figures.points(
            rows, name="abc-fig02", title="Seven schemes over two recordings", caption=caption, x=x, y=y, mark_size=90
        )
    ]


EXPERIMENT = Reproduction(
    name="later-abc",
    title="ABC, Fig. 2: eight schemes over two LTE recordings",
    source=f"{SOURCE}, Fig. 2, read off by github.com/sktollman/ABC-1",
    shows=(
        "One flow of each scheme over Verizon's LTE uplink (2a) and downlink (2b): Verus has less delay than BBR and "
        "Cubic, more than Cubic over CoDel, and uses more of the link than Cubic over CoDel or PIE and than Sprout. "
        "ABC, the paper's own scheme, asks marks of the link that ours has not; it is not run."
    ),
    set_up=(
        "The recording is played once, 50 ms each way, the way back at 48 Mbit/s. Buffer: 100 packets of drop-tail, "
        "CoDel with a target of 50 ms or PIE with 50 ms, as the reproduction's scripts; the paper's own is not known. "
        "The figure's Verus is the authors' code with an R that is not stated: claims of its numbers have prototype "
        "mode with R = 2, claims of the order the default mode. The numbers are claimed within 0.08 of utilization and "
        "30 % of delay. No built-in channel stands for the downlink: two realisations of the uplink's are run."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
