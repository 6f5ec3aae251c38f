"""NSDI 2018 (Copa), Pantheon: in which order schemes stand on cellular and on wired paths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from verus.lab.scenario import Contestant, Run
from verus.papers.reproduction import Column, ColumnResults, Place, Reproduction, Table
from verus.papers.sigcomm import stationary_phones
from verus.report import figures
from verus.report.figures import Figure
from verus.report.numbers import number
from verus.report.summary import mean

SOURCE = (
    "V. Arun and H. Balakrishnan, Copa: Practical Delay-Based Congestion Control for the Internet, USENIX NSDI 2018"
)

#: LTE both ways, standing and moving; the paper's were live.
CHANNELS = {
    "LTE down, standing": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
    "LTE up, driving": Place("highway-driving-lte-up", "mahimahi/Verizon-LTE-short.up"),
    "LTE down, on foot": Place("city-waterfront-lte-down", "nyc-2019/trace-3205967-timessquare"),
    "LTE down, driving": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
}
#: Mbit/s and one-way propagation in ms of the wired paths, whose buffers hold one bandwidth-delay product.
WIRED = {"wired, 12 Mbit/s": (12.0, 10.0), "wired, 50 Mbit/s": (50.0, 25.0), "wired, 100 Mbit/s": (100.0, 50.0)}

#: Those of the figures that we have. Their LEDBAT is not LEDBAT++, and Remy and PCC Allegro are not here.
SCHEMES = ("verus", "copa", "bbr1", "cubic", "vegas", "sprout", "vivace")
#: A Pantheon experiment lasts half a minute.
DURATION_S = 30.0


def runs(column: Column) -> list[Run]:
    """Everyone over every path."""
    planned = []
    for scheme in SCHEMES:
        settings: dict[str, Any] = {"part": scheme, "duration_s": DURATION_S, "series": False}
        planned += [
            column.run(place, scheme, queue=stationary_phones.QUEUE, delay_ms=20.0, **settings) for place in CHANNELS
        ]
        for mbps, delay_ms in WIRED.values():
            queue = f"droptail:bytes={mbps * 2 * delay_ms * 125:.0f}"
            planned.append(column.run(f"rate:{mbps:g}", scheme, queue=queue, delay_ms=delay_ms, **settings))
    return planned


def standing(results: ColumnResults, kind: str) -> dict[str, tuple[float, float]]:
    """Scheme → throughput over that of the best on each path, averaged; mean queueing delay in ms, averaged."""
    places = list(CHANNELS) if kind == "cellular" else [f"rate:{mbps:g}" for mbps, _ in WIRED.values()]
    got = {
        place: {scheme: results.where(place=place, part=scheme).mean("throughput_mbps") for scheme in SCHEMES}
        for place in places
    }
    return {
        scheme: (
            mean([got[place][scheme] / max(got[place].values()) for place in places]) or math.nan,
            mean([results.where(place=place, part=scheme).mean("qdelay_mean_ms") for place in places]) or math.nan,
        )
        for scheme in SCHEMES
    }


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim: the ratio of two schemes' metrics."""

    def over(one: str, other: str, kind: str, axis: int) -> float:
        return stand[kind][one][axis] / stand[kind][other][axis]

    stand = {kind: standing(results, kind) for kind in ("cellular", "wired")}
    return {
        "cellular-delay-sprout-copa": over("sprout", "copa", "cellular", 1),
        "cellular-delay-copa-bbr": over("copa", "bbr1", "cellular", 1),
        "cellular-delay-copa-vegas": over("copa", "vegas", "cellular", 1),
        "cellular-delay-verus-copa": over("verus", "copa", "cellular", 1),
        "cellular-delay-verus-bbr": over("verus", "bbr1", "cellular", 1),
        "cellular-delay-verus-cubic": over("verus", "cubic", "cellular", 1),
        "cellular-delay-bbr-cubic": over("bbr1", "cubic", "cellular", 1),
        "cellular-delay-vivace-cubic": over("vivace", "cubic", "cellular", 1),
        "cellular-throughput-sprout-copa": over("sprout", "copa", "cellular", 0),
        "cellular-throughput-verus-copa": over("verus", "copa", "cellular", 0),
        "cellular-throughput-verus-vegas": over("verus", "vegas", "cellular", 0),
        "cellular-throughput-verus-vivace": over("verus", "vivace", "cellular", 0),
        "wired-delay-copa-bbr": over("copa", "bbr1", "wired", 1),
        "wired-delay-copa-cubic": over("copa", "cubic", "wired", 1),
        "wired-delay-verus-cubic": over("verus", "cubic", "wired", 1),
        "wired-delay-vegas-bbr": over("vegas", "bbr1", "wired", 1),
        "wired-throughput-sprout-vegas": over("sprout", "vegas", "wired", 0),
        "wired-throughput-verus-vegas": over("verus", "vegas", "wired", 0),
        "wired-throughput-copa-vegas": over("copa", "vegas", "wired", 0),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Where everyone stands."""
    stand = {kind: standing(results, kind) for kind in ("cellular", "wired")}
    rows = [
        [
            Contestant.from_scheme(scheme).label,
            *(
                number(value, digits)
                for kind in stand
                for value, digits in zip(stand[kind][scheme], (3, 1), strict=True)
            ),
        ]
        for scheme in SCHEMES
    ]
    heads = ["", "cellular: throughput, best = 1", "mean delay, ms", "wired: throughput, best = 1", "mean delay, ms"]
    return [Table(title="Means over the paths", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput against delay, means over the paths."""
    rows = [
        {"panel": kind, "name": Contestant.from_scheme(scheme).label, "x": delay, "y": throughput}
        for kind in ("cellular", "wired")
        for scheme, (throughput, delay) in standing(results, kind).items()
    ]
    caption = (
        f"One flow, {DURATION_S:g} s, means over {len(CHANNELS)} cellular channels ({stationary_phones.QUEUE}, 20 ms "
        f"each way) and {len(WIRED)} wired paths (a buffer of one bandwidth-delay product). Throughput is relative to "
        "the best scheme on each path. Delay is time in the bottleneck queue."
    )
    x, y = "mean queueing delay, ms", "throughput, best = 1"
    title = "Throughput and delay on cellular and wired paths"
    return [figures.points(rows, name="copa", title=title, caption=caption, x=x, y=y, log_x=True, mark_size=90)]


EXPERIMENT = Reproduction(
    name="later-copa",
    title="Copa: the order of schemes on cellular and wired paths",
    source=f"{SOURCE}, the figures on Pantheon, read off by github.com/nadinelyab/Copa_Reproduction",
    shows=(
        "On live cellular paths Sprout has the least delay and the least throughput, then Copa; BBR, Verus and Vegas "
        "follow, then Cubic and Vivace. Verus has more throughput than Copa. On wired paths Verus has the most delay."
    ),
    set_up=(
        "The paths were live ones of 2017 and cannot be run again, so claims are of the order alone, and of such steps "
        "as are wider than what the figures can be read to. Here cellular paths are channels behind the deep queue of "
        "Figs. 8 and 9 of Verus's paper, and wired ones are constant rates with a buffer of one bandwidth-delay "
        "product. The paper's Verus is the authors' code; the default mode is checked, and prototype mode stands "
        "beside (`--modes prototype`)."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
