"""Bursts of arrivals, as the paper's Figs. 1 and 2 show them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from verus.report.figures.chart import Figure, Spec, axis_of, colors_of, decades, grid, heading, short
from verus.report.figures.recorded import COLORS

_WIDTH, _HEIGHT = 400, 240

Pairs = Sequence[Sequence[float]]


def arrivals(stretches: Mapping[str, Pairs]) -> Figure:
    """A short stretch of arrivals in each direction: bytes so far, a point for each packet (Fig. 1).

    Args:
        stretches: By direction, the arrival time, ms, and the bytes of each packet.
    """
    panels = [_arrivals(way, pairs) for way, pairs in stretches.items()]
    caption = (
        "Every packet in a quarter of a second from the middle of the recording, as Fig. 1 of the paper: "
        "a vertical run is a burst, which one grant of the scheduler let through; a horizontal one is the wait between."
    )
    return Figure(name="arrivals", title="Packet arrivals", caption=caption, spec=grid(panels, columns=2))


def _arrivals(way: str, pairs: Pairs) -> Spec:
    total = 0.0
    rows = []
    for at, size in pairs:
        total += size / 1000
        rows.append({"t": round(at, 3), "kilobytes": short(total)})
    x = axis_of("t", "time, ms", scale={"nice": False})
    y = axis_of("kilobytes", "arrived, kB")
    encoding = {"x": x, "y": y}
    color = COLORS[way]
    layers: list[Spec] = [
        {"mark": {"type": "line", "interpolate": "step-after", "color": color, "strokeWidth": 1}, "encoding": encoding},
        {"mark": {"type": "point", "filled": True, "color": color, "size": 14, "opacity": 1}, "encoding": encoding},
        *heading(way),
    ]
    return {"width": _WIDTH, "height": _HEIGHT, "data": {"values": rows}, "layer": layers}


def distributions(bursts: Mapping[str, Mapping[str, Pairs]]) -> Figure:
    """Sizes of bursts and gaps between them, both directions, on logarithmic axes (Fig. 2).

    Args:
        bursts: By direction, `burst_bytes` and `gap_ms`: values, each with its count.
    """
    panels = [
        _distribution("burst size", "burst_bytes", "bytes in a millisecond", bursts),
        _distribution("time between bursts", "gap_ms", "ms from burst to burst", bursts),
    ]
    caption = (
        "As Fig. 2 of the paper. A burst is what arrived in a millisecond, in packets of 1500 bytes; the time between "
        "bursts is from one millisecond with arrivals to the next. Each point is the share of bursts with that value."
    )
    return Figure(name="bursts", title="Bursts", caption=caption, spec=grid(panels, columns=2))


def _distribution(title: str, key: str, unit: str, bursts: Mapping[str, Mapping[str, Pairs]]) -> Spec:
    rows: list[dict[str, Any]] = []
    for way, counts in bursts.items():
        total = sum(times for _, times in counts[key])
        rows += [{"way": way, "value": value, "share": short(times / total)} for value, times in counts[key]]
    values = [row["value"] for row in rows] or [1.0]
    shares = [row["share"] for row in rows] or [1.0]

    def axis(field: str, shown: Sequence[float], title: str, *, fine: bool) -> Spec:
        low, high = math.log10(min(shown)), math.log10(max(shown))
        margin = max(0.04 * (high - low), 0.1)
        domain = [10 ** (low - margin), 10 ** (high + margin)]
        powers = [10.0**power for power in range(math.ceil(low - margin), math.floor(high + margin) + 1)]
        return axis_of(
            field,
            title,
            format="~g",
            values=decades(*domain) if fine else powers,
            scale={"type": "log", "domain": domain, "nice": False},
        )

    encoding = {
        "x": axis("value", values, unit, fine=True),
        "y": axis("share", shares, "probability", fine=False),
        "color": colors_of("way", list(bursts), [COLORS[way] for way in bursts], orient="top", symbolOpacity=1),
    }
    layers: list[Spec] = [
        {"mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.8}, "encoding": encoding},
        *heading(title),
    ]
    return {"width": _WIDTH, "height": _HEIGHT, "data": {"values": rows}, "layer": layers}
