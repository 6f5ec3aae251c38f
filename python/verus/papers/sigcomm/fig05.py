"""SIGCOMM 2015, Fig. 5: a delay profile, its recorded points and the curve through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction
from verus.papers.sigcomm import learnt
from verus.papers.sigcomm.learnt import CHANNELS, REPETITIONS, profiles
from verus.report.figures import Figure, Spec, grid, heading, short
from verus.report.figures.chart import axis_of, colors_of

DURATION_S = 60.0
GREEN, RED = "#2ca02c", "#d62728"


def _measured(results: ColumnResults) -> Sequence[Mapping[str, Any]]:
    """The runs that claims are measured on."""
    return [row for row in results.rows if row["part"] != learnt.PAPER]


def runs(column: Column) -> list[Run]:
    """The measured runs, and one in paper mode that is only drawn."""
    return [
        *learnt.runs(column, duration_s=DURATION_S),
        learnt.in_paper_mode(column, duration_s=DURATION_S),
    ]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim: the median over all snapshots."""
    from scipy.stats import spearmanr  # here: it takes a second to load

    rises, along, away = [], [], []
    for row in _measured(results):
        for one in profiles(results, row):
            rises.append(spearmanr(one.point_window, one.point_delay_ms).statistic)
            with np.errstate(divide="ignore"):  # a curve may begin at 0, and a median takes the infinite ratio
                along.append(one.curve_delay_ms[-1] / one.curve_delay_ms[0])
            distance = np.abs(one.delay_ms(one.point_window) - one.point_delay_ms)
            away.append(np.median(distance / one.point_delay_ms))
    found_values = (("rises", rises), ("monotone", along), ("through-points", away))
    return {claim: float(np.median(values)) for claim, values in found_values}


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Points in green and the curve in red, as in the paper: in the paper's mode and in the default one."""
    drawn = {
        "a) Paper mode: a spline through every point": results.where(part=learnt.PAPER).rows[0],
        "b) Default mode: a curve that rises": _measured(results)[0],
    }
    names = ("recorded values", "interpolated profile")
    color = colors_of("name", names, [GREEN, RED])
    encoding: Spec = {
        "x": axis_of("x", "sending window, packets"),
        "y": axis_of("y", "delay, ms"),
        "color": color,
    }
    looks = ({"type": "point", "filled": True, "size": 18, "opacity": 0.8}, {"type": "line", "strokeWidth": 2})
    panels = []
    for title, row in drawn.items():
        last = profiles(results, row)[-1].known()
        marks = ((last.point_window, last.point_delay_ms), (last.curve_window, last.curve_delay_ms))
        layers = [
            {
                "data": {
                    "values": [
                        {"name": name, "x": short(x), "y": short(y)} for x, y in zip(across, upwards, strict=True)
                    ]
                },
                "mark": mark,
                "encoding": encoding,
            }
            for name, (across, upwards), mark in zip(names, marks, looks, strict=True)
        ]
        panels.append({"width": 440, "height": 300, "layer": [*layers, *heading(title)]})
    row = results.rows[0]
    caption = (
        f"What one Verus flow (R = 2) knew after {DURATION_S:g} s over {row['trace']}: the averaged round-trip delay "
        "of packets by the window that they were sent in, and the curve as it was at the last fit, up to a second "
        "before. The paper's mode interpolates between points and forgets none, so that points of slow start stay; "
        "drawn is its running maximum, which is what is looked up. "
        "The default mode's curve never falls, weighs points by age, and rises by at least what the path's rate "
        "makes of a packet; so it passes between the points. "
        f"Queue {PAPER_QUEUE}, {2 * row['delay_ms']:g} ms of propagation there and back, seed {row['seed']}."
    )
    return [Figure(name="fig05", title="A delay profile", caption=caption, spec=grid(panels, columns=2))]


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
        "without the first, which still has points of slow start. Drawn is the last of the first run, beside that "
        "of a run in paper mode, whose curve is the paper's interpolation. In robust mode the curve rises by its "
        "construction, points age, and windows above what the path lately delivered are left out."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    draw=draw,
).experiment()
