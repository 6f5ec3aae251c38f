"""Model paper 2016, Fig. 9: four users with a model of four users, on five channels."""

from __future__ import annotations

from verus.papers.model.evaluated_models import matching

EXPERIMENT = matching(
    name="model-fig09",
    users=4,
    title="Fig. 9: four users, a model of four users",
    figure="Fig. 9",
    shows=(
        "With four users the model has slightly more throughput than Verus on every channel. Its packet delay is up to "
        "30 % longer on two, about equal on two, and more than doubled on the most variable one. All users get "
        "the same."
    ),
    delays_within=(0.0, 1.3),
    claimed=(
        "throughput",
        "throughput-higher",
        "delay",
        "variable-delay",
        "fair",
        "middle-1-delay",
        "middle-2-delay",
        "steady-1-delay",
        "steady-2-delay",
    ),
)
