"""Model paper 2016, section 6.4: three users with a model of three users, on five channels."""

from __future__ import annotations

from verus.papers.model.evaluated_models import matching

EXPERIMENT = matching(
    name="model-section64",
    users=3,
    title="Section 6.4: three users, a model of three users",
    figure="section 6.4",
    shows="With three users the model's packet delay is 20 to 40 % longer than Verus's on all five channels.",
    delays_within=(1.2, 1.4),
    claimed=("delay", "fair"),
)
