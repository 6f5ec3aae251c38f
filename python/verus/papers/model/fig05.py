"""Model paper 2016, Fig. 5: the state transition matrix at 1 ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.papers.model import trained_models, transition_matrices
from verus.papers.reproduction import MODEL_PAPER, Column, Found, Reproduction
from verus.report.figures import Figure


def compute(column: Column) -> Any:
    """The matrix by quantization."""
    return {"1": transition_matrices.compute(column, 1)}


def measure(found: Found) -> Mapping[str, float | None]:
    """A value for each claim."""
    region = transition_matrices.region(found, 1)
    zoomed = region.zoomed()
    middle = zoomed.median_window()
    lower, upper = (zoomed.where(part).near() for part in (zoomed.window < middle, zoomed.window >= middle))
    away = region.next_delay - region.delay
    return {
        "sparse": region.filled(),
        "self": zoomed.near(),
        "small-w-stay": lower / upper if lower is not None and upper else None,
        "lower-left": float((away < -1).sum() / (away > 1).sum()),
    }


def draw(found: Found) -> Sequence[Figure]:
    """As the paper: the first ten steps, and the second of them."""
    return transition_matrices.draw(found, 1, "fig05")


EXPERIMENT = Reproduction(
    name="model-fig05",
    title="Fig. 5: the state transition matrix at 1 ms",
    source=f"{MODEL_PAPER}, Fig. 5",
    shows=(
        "The first ten steps of the matrix of one user, quantized by 1 ms, and one of them larger. Many transitions "
        "are empty; transitions to shorter delays (lower left) are rarer than to longer ones; the smaller w, the "
        "likelier it stays what it is."
    ),
    set_up=(
        f"{transition_matrices.READING} Lower and upper half of w are those of the transitions in the shown step: "
        f"below the median of w, and from it on. {trained_models.SET_UP}"
    ),
    channels=trained_models.CHANNELS,
    compute=compute,
    measure=measure,
    draw=draw,
).experiment()
