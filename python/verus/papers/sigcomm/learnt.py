"""Delay profiles as Verus learnt them in a run: what Figs. 5 and 7b draw.

The simulator takes a snapshot every five seconds: every fifth interpolation, since Verus makes one a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verus.lab.scenario import Run
from verus.papers.claims import BUILT_IN
from verus.papers.reproduction import Array, Column, ColumnResults, Place

#: The paper does not name the channel of either figure: the authors' own recording of a city downlink.
CHANNELS = {"downlink": Place("city-driving-lte-down", "verus-2015/city-driving.down")}

#: The first snapshot, at 5 s, still holds points of slow start and is left out, as in Fig. 7b.
SETTLED_S = 10.0

#: Runs over a built-in channel, each another realisation of it; a recording is the same each time.
REPETITIONS = 5


#: Part of the run that is drawn but not measured: the paper's own curve, an interpolation.
PAPER = "paper mode"


def runs(column: Column, *, duration_s: float) -> list[Run]:
    """One flow, a few times."""
    return [
        column.run("downlink", "verus:ratio=2", seed=seed, duration_s=duration_s, bin_ms=1000)
        for seed in column.seeds(REPETITIONS if column.name == BUILT_IN else 1)
    ]


def in_paper_mode(column: Column, *, duration_s: float) -> Run:
    """One flow in paper mode."""
    scheme = "verus:mode=paper,ratio=2"
    return column.run("downlink", scheme, part=PAPER, duration_s=duration_s, bin_ms=1000)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One snapshot; windows ascend.

    Attributes:
        time_s: When.
        point_window: Window of each recorded point, packets.
        point_delay_ms: Its delay.
        curve_window: Windows at which the curve is known, packets.
        curve_delay_ms: Its delay there.
    """

    time_s: float
    point_window: Array
    point_delay_ms: Array
    curve_window: Array
    curve_delay_ms: Array

    def known(self) -> Profile:
        """The same without the curve beyond the recorded points, where it is a guess."""
        low, high = (self.point_window.min(), self.point_window.max()) if len(self.point_window) else (np.inf, -np.inf)
        inside = (self.curve_window >= low) & (self.curve_window <= high)
        return replace(self, curve_window=self.curve_window[inside], curve_delay_ms=self.curve_delay_ms[inside])

    def delay_ms(self, window: float | Array) -> Array:
        """The curve's delay at a window; at its ends beyond them."""
        return np.asarray(np.interp(window, self.curve_window, self.curve_delay_ms))


def profiles(results: ColumnResults, row: Mapping[str, Any]) -> list[Profile]:
    """The snapshots of one run after slow start."""
    table = results.results.profile
    part = table.filter(table.column("run").to_numpy() == row["run"])
    time, window, delay = (part.column(name).to_numpy() for name in ("time_s", "window_packets", "delay_ms"))
    is_point = np.asarray(part.column("kind").to_pylist()) == "point"
    taken = []
    for at in np.unique(time[time >= SETTLED_S - 1e-6]):
        points, curve = (time == at) & is_point, (time == at) & ~is_point
        taken.append(
            Profile(
                time_s=float(at),
                point_window=window[points],
                point_delay_ms=delay[points],
                curve_window=window[curve],
                curve_delay_ms=delay[curve],
            )
        )
    return taken
