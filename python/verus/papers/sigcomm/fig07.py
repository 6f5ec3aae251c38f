"""SIGCOMM 2015, Fig. 7: how the delay profile follows the channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from verus.lab.scenario import PAPER_QUEUE
from verus.papers.reproduction import SIGCOMM, Array, ColumnResults, Reproduction, Table
from verus.papers.sigcomm import learnt
from verus.papers.sigcomm.learnt import CHANNELS, REPETITIONS, SETTLED_S, Profile, profiles
from verus.report.figures import Figure, Spec, grid, heading, short
from verus.report.figures.chart import axis_of

DURATION_S = 200.0
#: The stretch of one colour: three curves, five seconds apart.
REGION_S = 15.0
#: Values that a curve is drawn with, at the most.
DRAWN = 60


#: Steps of the curve's delays.
RESOLUTION_MS = 1e-3


def _steepness(snapshots: Sequence[Profile]) -> Array:
    """Of each curve, ms a packet: from end to end of the windows that all of them cover."""
    low, high = max(one.curve_window[0] for one in snapshots), min(one.curve_window[-1] for one in snapshots)
    return np.asarray([np.diff(one.delay_ms(np.asarray([low, high])))[0] / (high - low) for one in snapshots])


def _seconds_before(
    results: ColumnResults, row: Mapping[str, Any], snapshots: Sequence[Profile]
) -> Mapping[str, Array]:
    """The channel's capacity and the flow's throughput in the second before each snapshot."""
    series = results.series(row)
    second = np.asarray([round(one.time_s) - 1 for one in snapshots])
    return {"available": series.capacity_mbps[second], "received": series.throughput_mbps[0][second]}


def _of_run(results: ColumnResults, row: Mapping[str, Any]) -> Mapping[str, float]:
    from scipy.stats import spearmanr  # here: it takes a second to load

    snapshots = profiles(results, row)
    steepness = _steepness(snapshots)
    before = _seconds_before(results, row, snapshots)
    high, low = np.percentile(steepness, [90, 10])
    return {
        # The curve is kept in steps of 1 µs: it may be flat for all that can be told.
        "evolves": float(high / max(low, RESOLUTION_MS)),
        **{key: float(spearmanr(values, steepness).statistic) for key, values in before.items()},
    }


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim: the median over the runs; of correlations the mean."""
    each = [_of_run(results, row) for row in results.rows]
    return {
        "evolves": float(np.median([one["evolves"] for one in each])),
        "steeper-when-slower": float(np.mean([one["available"] for one in each])),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Each run by itself."""
    rows = []
    for row in results.rows:
        measured = _of_run(results, row)
        rows.append([f"seed {row['seed']}", *(f"{measured[key]:.2f}" for key in ("evolves", "available", "received"))])
    heads = ["run", "steepness, 90th over 10th", "correlation with the rate available", "with the rate received"]
    return [Table(title="Steepness of the profiles", heads=heads, rows=rows)]


def _region(time_s: float) -> str:
    """The stretch in which something lies, by name."""
    begin = SETTLED_S - 5 + REGION_S * np.ceil(max(time_s - (SETTLED_S - 5), 1e-9) / REGION_S - 1)
    return f"{begin:g} to {min(begin + REGION_S, DURATION_S):g} s"


def draw(results: ColumnResults) -> Sequence[Figure]:
    """The channel's rate over time in coloured stretches (7a); the profiles in the same colours (7b)."""
    row = results.rows[0]
    series = results.series(row)
    rates = [
        {"region": _region(at + 0.5), "x": short(at), "end": short(at + 1), "y": short(rate)}
        for at, rate in zip(series.time_s, series.capacity_mbps, strict=True)
        if at >= SETTLED_S - 5
    ]
    curves = []
    for one in (each.known() for each in profiles(results, row)):
        step = max(1, len(one.curve_window) // DRAWN)
        curves += [
            {"region": _region(one.time_s), "curve": one.time_s, "x": short(window), "y": short(delay)}
            for window, delay in zip(one.curve_window[::step], one.curve_delay_ms[::step], strict=True)
        ]
    regions = list(dict.fromkeys(rate["region"] for rate in rates))
    color = {
        "field": "region",
        "type": "ordinal",
        "sort": regions,
        "scale": {"scheme": "turbo", "domain": regions},
        "legend": {"title": "stretch"},
    }
    panels: list[Spec] = [
        {
            "width": 760,
            "height": 180,
            "layer": [
                {
                    "data": {"values": rates},
                    "mark": {"type": "rect", "opacity": 0.85},
                    "encoding": {
                        "x": axis_of("x", "time, s"),
                        "x2": {"field": "end"},
                        "y": axis_of("y", "channel, Mbit/s"),
                        "y2": {"datum": 0},
                        "color": color,
                    },
                },
                *heading("a) The channel"),
            ],
        },
        {
            "width": 760,
            "height": 300,
            "layer": [
                {
                    "data": {"values": curves},
                    "mark": {"type": "line", "strokeWidth": 1.5},
                    "encoding": {
                        "x": axis_of("x", "sending window, packets"),
                        "y": axis_of("y", "delay, ms"),
                        "color": color,
                        "detail": {"field": "curve"},
                        "order": {"field": "x"},
                    },
                },
                *heading("b) The delay profile of each stretch"),
            ],
        },
    ]
    caption = (
        f"One Verus flow (R = 2, robust mode) over {row['trace']}; the channel's rate in each second, and every fifth "
        f"interpolation of the profile, three in each stretch of its colour; slow start is left out. A curve is drawn "
        "over the windows that it has points for. The paper's axes end at 35 Mbit/s, 200 packets and 400 ms, ours at "
        f"what this channel and R need. Queue {PAPER_QUEUE}, {2 * row['delay_ms']:g} ms of propagation there and "
        f"back, seed {row['seed']}."
    )
    spec = grid(panels, columns=1)
    return [Figure(name="fig07", title="The profile follows the channel", caption=caption, spec=spec)]


EXPERIMENT = Reproduction(
    name="sigcomm-fig07",
    title="Fig. 7: how the delay profile evolves",
    source=f"{SIGCOMM}, Fig. 7",
    shows=(
        "A channel over 200 s in coloured stretches, and every fifth delay profile in the colour of its stretch: the "
        "profile changes with the channel, and the less throughput there is, the steeper it becomes."
    ),
    set_up=(
        f"One flow with R = 2 over a city downlink, driving, {REPETITIONS} times (the recording once); the paper does "
        "not say which of its channels it draws. The steepness of a profile is its rise for each packet, from end to "
        "end of the windows that all profiles of the run cover. It is set against what the channel offered in the "
        "second before. Claims are on the median over the runs (of correlations the mean), drawn is the first."
    ),
    channels=CHANNELS,
    runs=partial(learnt.runs, duration_s=DURATION_S),
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
