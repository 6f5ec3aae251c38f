"""Model paper 2016, Fig. 5: the state transition matrix at 1 ms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from verus.papers.model import trained_models, transition_matrices
from verus.papers.reproduction import MODEL_PAPER, ColumnResults, Reproduction


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    region = transition_matrices.region(results, 1)
    zoomed = region.zoomed()
    away = region.next_delay - region.delay
    return {
        "sparse": region.filled(),
        "self": zoomed.near(),
        "small-w-stay": region.small_windows_stay(),
        "lower-left": float((away < -1).sum() / (away > 1).sum()),
    }


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
    compute=partial(transition_matrices.compute, steps=(1,)),
    measure=measure,
    draw=partial(transition_matrices.draw, quantization_ms=1, name="fig05"),
).experiment()
