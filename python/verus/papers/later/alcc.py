"""JSys 2021 (ALCC): how little it changes a controller to run it above another transport."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from verus.lab.scenario import Contestant, Run
from verus.papers.reproduction import Column, ColumnResults, Place, Reproduction, Table
from verus.report import figures
from verus.report.figures import Figure
from verus.report.numbers import number

SOURCE = (
    "Y. Zaki et al., ALCC: Migrating Congestion Control to the Application Layer in Cellular Networks, Journal of "
    "Systems Research 2021"
)

#: Its 3G drive has a mean of 10 Mbit/s; no built-in 3G channel is so fast.
CORNICHE, RAPID = "Corniche", "rapidGold"
CHANNELS = {CORNICHE: Place("highway-driving-lte-down")}

#: Its synthetic channel: a rate drawn anew every so many seconds, between these in Mbit/s.
EVERY_S, RATES_MBPS = 5.0, (4.6, 16.4)

#: Its Copa has δ = 0.02, as its scripts say.
SCHEMES = ("verus", "copa:delta=0.02")
DURATION_S = 300.0

#: Packets for each acknowledgement: what a controller hears natively, and what TCP below it tells (RFC 1122).
NATIVE, BELOW = 1, 2


def _steps(seed: int) -> list[dict[str, Any]]:
    """The rates of the synthetic channel."""
    draws = random.Random(seed)
    return [
        {"at_s": EVERY_S * step, "rate_mbps": round(draws.uniform(*RATES_MBPS), 2)}
        for step in range(1, int(DURATION_S / EVERY_S))
    ]


def runs(column: Column) -> list[Run]:
    """Both schemes over both channels, with either feedback."""
    settings: dict[str, Any] = {"queue": "infinite", "delay_ms": 10.0, "duration_s": DURATION_S, "series": False}
    planned = []
    for scheme, every in itertools.product(SCHEMES, (NATIVE, BELOW)):
        part = f"{scheme}|{every}"
        planned.append(column.run(CORNICHE, scheme, part=f"{CORNICHE}|{part}", ack="same", ack_every=every, **settings))
        rapid: dict[str, Any] = {"changes": _steps(column.seed), "ack_every": every}
        planned.append(column.run("rate:10", scheme, part=f"{RAPID}|{part}", **rapid, **settings))
    return planned


def _row(results: ColumnResults, channel: str, scheme: str, every: int) -> ColumnResults:
    return results.where(part=f"{channel}|{scheme}|{every}")


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """Throughput and delay with thinned feedback, relative to full feedback."""
    values: dict[str, float | None] = {}
    for channel, scheme in itertools.product((CORNICHE, RAPID), SCHEMES):
        native, below = (_row(results, channel, scheme, every) for every in (NATIVE, BELOW))
        for what, key in (("throughput", "throughput_mbps"), ("delay", "rtt_mean_ms")):
            values[f"{what}-{scheme.partition(':')[0]}-{channel.lower()}"] = below.mean(key) / native.mean(key)
    return values


def tables(results: ColumnResults) -> Sequence[Table]:
    """Throughput and round trip with either feedback."""
    rows = [
        [
            f"{channel}, {Contestant.from_scheme(scheme).label}",
            *(
                number(_row(results, channel, scheme, every).mean(key), digits)
                for key, digits in (("throughput_mbps", 2), ("rtt_mean_ms", 1))
                for every in (NATIVE, BELOW)
            ),
        ]
        for channel, scheme in itertools.product((CORNICHE, RAPID), SCHEMES)
    ]
    heads = ["", "Mbit/s: each packet acknowledged", "every second", "mean round trip, ms: each", "every second"]
    return [Table(title="With full feedback and with half of it", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput and round trip with either feedback, beside each other."""
    rows = [
        {
            "panel": title,
            "group": f"{channel}, {Contestant.from_scheme(scheme).label}",
            "name": "each packet acknowledged" if every == NATIVE else "every second packet",
            "y": _row(results, channel, scheme, every).mean(key),
        }
        for title, key in (("throughput, Mbit/s", "throughput_mbps"), ("mean round trip, ms", "rtt_mean_ms"))
        for channel, scheme in itertools.product((CORNICHE, RAPID), SCHEMES)
        for every in (NATIVE, BELOW)
    ]
    caption = (
        f"One flow, {DURATION_S:g} s, 10 ms each way, a queue that drops nothing, {results.seeds_text()}. Corniche is "
        "a built-in channel here; rapidGold a rate drawn anew every 5 s."
    )
    title = "A controller with half the feedback"
    return [figures.bars(rows, name="alcc", title=title, caption=caption, x="", y="", columns=1, size=(860, 180))]


EXPERIMENT = Reproduction(
    name="later-alcc",
    title="ALCC: a controller above another transport",
    source=SOURCE,
    shows=(
        "Verus and Copa run in an application above TCP come within 3 to 10 % of their native implementations in "
        "throughput and in delay."
    ),
    set_up=(
        "ALCC is not run. What is: the same controller with the feedback that a native sender has, an acknowledgement "
        "for each packet, and with what TCP below tells, one for every second packet; 300 s, 10 ms each way, a queue "
        "that drops nothing. A built-in channel, the same both ways, stands for the drive on the Corniche; a rate "
        "drawn anew every 5 s between the least and the greatest second of rapidGold for that. The paper's bound is "
        "taken as the widest, 10 %. How far one controller's own transports are apart, UDP, QUIC and the simulator, "
        "`verus reproduce agreement` measures in real time."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
