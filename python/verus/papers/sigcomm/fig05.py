"""SIGCOMM 2015, Fig. 5: a delay profile, its recorded points and the curve through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from scipy import stats

from verus.lab.scenario import PAPER_QUEUE
from verus.papers.reproduction import SIGCOMM, Found, Reproduction
from verus.papers.sigcomm import learnt
from verus.papers.sigcomm.learnt import CHANNELS, REPETITIONS, profiles
from verus.report.figures import Figure, Spec, grid, short
from verus.report.figures.chart import axis_of, colors_of

DURATION_S = 60.0
GREEN, RED = "#2ca02c", "#d62728"


def measure(found: Found) -> Mapping[str, float | None]:
    """A value for each claim: the median over all snapshots."""
    rises, along, away = [], [], []
    for row in found.rows:
        for one in profiles(found, row):
            rises.append(stats.spearmanr(one.point_window, one.point_delay_ms).statistic)
            with np.errstate(divide="ignore"):  # a curve may begin at 0, and a median takes the infinite ratio
                along.append(one.curve_delay_ms[-1] / one.curve_delay_ms[0])
            distance = np.abs(one.delay_ms(one.point_window) - one.point_delay_ms)
            away.append(np.median(distance / one.point_delay_ms))
    found_values = (("rises", rises), ("monotone", along), ("through-points", away))
    return {claim: float(np.median(values)) for claim, values in found_values}


def draw(found: Found) -> Sequence[Figure]:
    """Points in green and the curve in red, as in the paper."""
    row = found.rows[0]
    last = profiles(found, row)[-1]
    marks = {
        "recorded values": (last.point_window, last.point_delay_ms),
        "interpolated profile": (last.curve_window, last.curve_delay_ms),
    }
    color = colors_of("name", list(marks), [GREEN, RED])
    encoding: Spec = {
        "x": axis_of("x", "sending window, packets"),
        "y": axis_of("y", "delay, ms"),
        "color": color,
    }
    looks = ({"type": "point", "filled": True, "size": 18, "opacity": 0.8}, {"type": "line", "strokeWidth": 2})
    layers = [
        {
            "data": {
                "values": [{"name": name, "x": short(x), "y": short(y)} for x, y in zip(across, upwards, strict=True)]
            },
            "mark": mark,
            "encoding": encoding,
        }
        for (name, (across, upwards)), mark in zip(marks.items(), looks, strict=True)
    ]
    caption = (
        f"What one Verus flow (R = 2, robust mode) knew after {last.time_s:g} s over {row['trace']}: the averaged "
        "round-trip delay of packets by the window that they were sent in, and the curve through these points as it "
        f"was at the last fit, up to a second before. Queue {PAPER_QUEUE}, {2 * row['delay_ms']:g} ms of propagation "
        f"there and back, seed {row['seed']}."
    )
    spec = grid([{"width": 520, "height": 300, "layer": layers}], columns=1)
    return [Figure(name="fig05", title="A delay profile", caption=caption, spec=spec)]


EXPERIMENT = Reproduction(
    name="sigcomm-fig05",
    title="Fig. 5: a delay profile",
    source=f"{SIGCOMM}, Fig. 5",
    shows=(
        "The delay profile: a point for each window with the delay that packets sent in it met, and the curve that is "
        "interpolated from the points, which rises."
    ),
    set_up=(
        f"One flow with R = 2 over a city downlink for a minute, {REPETITIONS} times (the recording once); the paper's "
        "figure is an example and says neither where nor when. Numbers are medians over snapshots every five seconds, "
        "without the first, which still has points of slow start. Drawn is the last of the first run. In robust mode "
        "the curve rises by its construction, points age, and windows above what the path lately delivered are left "
        "out."
    ),
    channels=CHANNELS,
    runs=partial(learnt.runs, duration_s=DURATION_S),
    measure=measure,
    draw=draw,
).experiment()
