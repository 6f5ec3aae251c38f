"""Model paper 2016, Fig. 8: two users with a model of two users, on five channels."""

from __future__ import annotations

from verus.papers.model.evaluated_models import matching

EXPERIMENT = matching(
    name="model-fig08",
    users=2,
    title="Fig. 8: two users, a model of two users",
    figure="Fig. 8",
    shows=(
        "With two users the model has Verus's throughput, and a packet delay 5 to 20 % longer on two of the five "
        "channels, shorter on two, and 50 % longer on the most variable one. Both users get the same."
    ),
    delays_within=(0.0, 1.2),
    claimed=(
        "throughput",
        "delay",
        "fair",
        "variable-delay",
        "middle-1-delay",
        "middle-2-delay",
        "middle-1-throughput",
        "middle-2-throughput",
        "steady-1-delay",
        "steady-2-delay",
        "steady-1-throughput",
        "steady-2-throughput",
        "variable-throughput",
    ),
)
