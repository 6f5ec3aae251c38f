"""Model paper 2016, Fig. 6: the state transition matrix at 10 ms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from verus.papers.model import trained_models, transition_matrices
from verus.papers.reproduction import MODEL_PAPER, ColumnResults, Reproduction


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    fine, coarse = (transition_matrices.region(results, step) for step in (1, 10))
    middle = transition_matrices.STEPS // 2
    first = (coarse.delay < middle) & (coarse.next_delay < middle)
    last = (coarse.delay >= middle) & (coarse.next_delay >= middle)
    return {
        "denser": coarse.zoomed_filled() / fine.zoomed_filled(),
        "small-w-stay": coarse.small_windows_stay(),
        "upper-left": float(first.sum() / last.sum()),
        "delay-stays": results.measured["10"]["stays"],
    }


EXPERIMENT = Reproduction(
    name="model-fig06",
    title="Fig. 6: the state transition matrix at 10 ms",
    source=f"{MODEL_PAPER}, Fig. 6",
    shows=(
        "Quantized by 10 ms one interval of the matrix of one user is denser. Most transitions are where d is small "
        "(upper left) and along the diagonal: the delay stays what it is."
    ),
    set_up=f"{transition_matrices.READING} {trained_models.SET_UP}",
    channels=trained_models.CHANNELS,
    compute=partial(transition_matrices.compute, steps=(1, 10)),
    measure=measure,
    draw=partial(transition_matrices.draw, quantization_ms=10, name="fig06"),
).experiment()
