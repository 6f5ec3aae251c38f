"""The transition matrix of the model of one user, as Figs. 5 and 6 of the 2016 paper look at it.

The paper shows the first ten quantization steps of d, each with w from 0 to 35: 360 × 360 elements. We look at the same
region, though our w goes further.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from verus import _verus
from verus.papers.model import trained_models
from verus.papers.reproduction import Array, Column, ColumnResults
from verus.report.figures import Figure, matrix

#: Steps of d in the region, and values of w in each: 0 to 35.
STEPS, WINDOWS = 10, 36

#: How it is cut out and weighed, for the pages.
READING = (
    "We look at the region that the paper shows: the first ten steps of d, each with w from 0 to 35 (our w goes "
    "further: bursts of a whole window after a loss or a jump of the delay). Probabilities are over transitions: "
    "states count as often as the chain is in them in the long run."
)


def compute(column: Column, steps: Sequence[int]) -> dict[str, dict[str, Any]]:
    """By quantization in ms, the matrix."""
    return {str(step): _computed(column, step) for step in steps}


def _computed(column: Column, quantization_ms: int) -> dict[str, Any]:
    """The region, how often the chain is in each of its states, and how often it stays in its step of d."""
    path = trained_models.model(column, [1], quantization_ms=quantization_ms)
    about = trained_models.about(path)
    windows = about["window_max_packets"] + 1
    whole = _verus.model_region(str(path), 0, about["matrix_size"] // windows)
    row, column_of, probability = whole["row"], whole["column"], whole["probability"]
    visits = _visits(row, column_of, probability, about["matrix_size"])
    flow = visits[row] * probability
    stays = flow[row // windows == column_of // windows].sum() / flow.sum()
    inside = (np.maximum(row, column_of) < STEPS * windows) & (np.maximum(row % windows, column_of % windows) < WINDOWS)
    row, column_of = (at[inside] // windows * WINDOWS + at[inside] % windows for at in (row, column_of))
    return {
        "about": {**about, "window_max_packets": WINDOWS - 1},
        "window_max_packets": about["window_max_packets"],
        "stays": float(stays),
        "row": row.tolist(),
        "column": column_of.tolist(),
        "probability": [float(f"{each:.6g}") for each in probability[inside]],
        "share": [float(f"{each:.6g}") for each in flow[inside]],
    }


def _visits(row: Any, column: Any, probability: Array, states: int) -> Array:
    """The share of epochs that the chain spends in each state, where it can go on for ever."""
    chain = sparse.csr_array((probability, (row, column)), shape=(states, states))
    _, component = csgraph.connected_components(chain, directed=True, connection="strong")
    kept = np.flatnonzero(component == np.bincount(component).argmax())
    chain = chain[kept][:, kept]
    onward = (sparse.diags_array(1 / chain.sum(axis=1)) @ chain).T.tocsr()
    share = np.full(len(kept), 1 / len(kept))
    for _ in range(20_000):
        # Half a step: a chain that alternates settles as well.
        after = (share + onward @ share) / 2
        moved = np.abs(after - share).sum()
        share = after
        if moved < 1e-9:
            break
    visits = np.zeros(states)
    visits[kept] = share
    return visits


#: The least d of the paper's samples: "20 to 727 ms".
PAPER_LEAST_MS = 20


@dataclass(frozen=True)
class Region:
    """The elements that are not empty: steps of d and windows, before and after, and how often each is taken."""

    delay: Array
    next_delay: Array
    window: Array
    next_window: Array
    share: Array

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Region:
        """From what `compute` left."""
        row, column = np.asarray(saved["row"]), np.asarray(saved["column"])
        share = np.asarray(saved["share"], dtype=float)
        return cls(row // WINDOWS, column // WINDOWS, row % WINDOWS, column % WINDOWS, share)

    def where(self, wanted: Any) -> Region:
        """Some of the elements."""
        return Region(*(getattr(self, field.name)[wanted] for field in dataclasses.fields(self)))

    def filled(self) -> float:
        """The share of the 360 × 360 elements that are not empty."""
        return len(self.share) / (STEPS * WINDOWS) ** 2

    def zoomed_filled(self) -> float:
        """The share of the elements of the interval of `zoomed` that are not empty."""
        return len(self.zoomed().share) / WINDOWS**2

    def small_windows_stay(self) -> float | None:
        """How likelier w stays within 1 where it is below the median, over where it is not; in that interval."""
        zoomed = self.zoomed()
        middle = zoomed.median_window()
        lower, upper = (zoomed.where(part).near() for part in (zoomed.window < middle, zoomed.window >= middle))
        return lower / upper if lower is not None and upper else None

    def zoomed(self) -> Region:
        """Those that stay in the second step of d: the one that the paper zooms into."""
        return self.where((self.delay == 1) & (self.next_delay == 1))

    def median_window(self) -> float:
        """The w from which half of the transitions set out."""
        order = np.argsort(self.window, kind="stable")
        upto = np.cumsum(self.share[order])
        return float(self.window[order][np.searchsorted(upto, upto[-1] / 2)])

    def near(self) -> float | None:
        """How likely w changes by at most 1; None if nothing was seen."""
        near = self.share[np.abs(self.next_window - self.window) <= 1]
        return float(near.sum() / self.share.sum()) if self.share.any() else None


def region(results: ColumnResults, quantization_ms: int) -> Region:
    """The region of one quantization, from saved results."""
    return Region.of(results.measured[str(quantization_ms)])


def draw(results: ColumnResults, quantization_ms: int, name: str) -> Sequence[Figure]:
    """The region, and the second step of d in it."""
    saved = results.measured[str(quantization_ms)]
    about = saved["about"]
    zoom_ms = about["delay_min_ms"] + quantization_ms
    whole = {key: np.asarray(saved[key]) for key in ("row", "column", "probability")}
    inside = (whole["row"] // WINDOWS == 1) & (whole["column"] // WINDOWS == 1)
    zoomed = {key: values[inside] for key, values in whole.items()}
    zoomed |= {key: zoomed[key] - WINDOWS for key in ("row", "column")}
    users = "one user, five LTE downlinks of 300 s"
    drawn = [
        (letter, matrix.region(f"The model of {users}", about, elements, zoom_ms=zoom), what)
        for letter, elements, zoom, what in (
            ("a", whole, None, "the first ten steps"),
            ("b", zoomed, zoom_ms, f"staying in {zoom_ms} to {zoom_ms + quantization_ms} ms"),
        )
    ]
    least_ms = about["delay_min_ms"]
    apart = f" The paper's d begins at {PAPER_LEAST_MS} ms, ours at {least_ms} ms, the round trip of the empty path."
    return [
        dataclasses.replace(
            figure,
            caption=figure.caption + (apart if least_ms != PAPER_LEAST_MS else ""),
            name=f"{name}{letter}",
            title=f"State transition matrix, quantized by {quantization_ms} ms: {what}",
        )
        for letter, figure, what in drawn
    ]
