"""Model paper 2016, Fig. 6: the state transition matrix at 10 ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.papers.model import trained_models, transition_matrices
from verus.papers.reproduction import MODEL_PAPER, Column, Found, Reproduction
from verus.report.figures import Figure


def compute(column: Column) -> Any:
    """The matrices by quantization."""
    return {str(step): transition_matrices.compute(column, step) for step in (1, 10)}


def measure(found: Found) -> Mapping[str, float | None]:
    """A value for each claim."""
    fine, coarse = (transition_matrices.region(found, step) for step in (1, 10))
    half = transition_matrices.STEPS // 2
    first = (coarse.delay < half) & (coarse.next_delay < half)
    last = (coarse.delay >= half) & (coarse.next_delay >= half)
    return {
        "denser": coarse.filled() / fine.filled(),
        "upper-left": float(first.sum() / last.sum()),
        "delay-stays": found.measured["10"]["stays"],
    }


def draw(found: Found) -> Sequence[Figure]:
    """As the paper: the first ten steps, and the second of them."""
    return transition_matrices.draw(found, 10, "fig06")


EXPERIMENT = Reproduction(
    name="model-fig06",
    title="Fig. 6: the state transition matrix at 10 ms",
    source=f"{MODEL_PAPER}, Fig. 6",
    shows=(
        "Quantized by 10 ms the matrix of one user is denser. Most transitions are where d and w are small (upper "
        "left) and along the diagonal: the delay stays what it is."
    ),
    set_up=f"{transition_matrices.READING} {trained_models.SET_UP}",
    channels=trained_models.CHANNELS,
    compute=compute,
    measure=measure,
    draw=draw,
).experiment()
