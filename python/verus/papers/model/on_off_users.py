"""Four users that are switched on and off (section 6.6 of the 2016 paper), of Verus and of the combined model."""

from __future__ import annotations

from typing import Any

from verus.lab.scenario import Run
from verus.papers.model import trained_models
from verus.papers.model.trained_models import EVALUATION, MODEL, TRAINING, VERUS
from verus.papers.reproduction import Column, Place

USERS, DURATION_S = 4, 3000.0

#: Table 3 of the paper is what this traffic is by default.
TRAFFIC = "on-off"

#: The five channels of the evaluation, one after another, and then again.
PLACE = "#1 to #5"
CHANNELS = {
    PLACE: Place(
        "+".join(place.built_in for place in EVALUATION.values()),
        "+".join(place.recording for place in EVALUATION.values()),
    ),
    **TRAINING,
}

#: How both experiments are set up, for their pages.
SET_UP = (
    "Four users, each off for 60 s on average (exponential), then on for the time that a file takes at 4 Mbit/s, for "
    "3000 s. Sizes are lognormal, mean 4 MB; larger than 10 MB is drawn again. The paper's Table 3 states a variance "
    "of 3.3 Mbyte: we take it as 3.3 MB², which makes σ² = ln(1 + 3.3/16) and μ = 1.2925. Users begin with a pause. "
    "Each time on is a new connection. The five channels of the evaluation follow each other (1500 s) and begin again. "
    "With the same seed Verus and the model meet the same times."
)


def runs(column: Column, repetitions: int, **options: Any) -> list[Run]:
    """Verus and the combined model, once for each seed."""
    combined = f"model:file={trained_models.model(column, trained_models.USERS)}"
    return [
        column.run(
            PLACE,
            scheme,
            flows=[{"traffic": TRAFFIC}] * USERS,
            label=label,
            seed=seed,
            queue=trained_models.QUEUE,
            duration_s=DURATION_S,
            delay_ms=trained_models.PROPAGATION_MS / 2,
            packet_bytes=trained_models.PACKET_BYTES,
            **options,
        )
        for label, scheme in ((VERUS, "verus"), (MODEL, combined))
        for seed in column.seeds(repetitions)
    ]
