"""Model paper 2016, Fig. 10: a model of one to four users together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verus.lab.scenario import Run
from verus.papers.model import evaluated_models, trained_models
from verus.papers.model.trained_models import USERS
from verus.papers.reproduction import MODEL_PAPER, Column, ColumnResults, Reproduction, Table
from verus.report.figures import Figure

PLACE = "#1"
COMBINED, MATCHING, NON_MATCHING = "model, combined", "matching", "non-matching"


def runs(column: Column) -> list[Run]:
    """Verus and three models on the first channel: of one to four users, of as many users, of one user."""
    return [
        run
        for users in USERS
        for run in (
            *trained_models.evaluation(column, PLACE, users),
            *trained_models.evaluation(column, PLACE, users, USERS, label=COMBINED),
            *trained_models.evaluation(column, PLACE, users, [users], label=MATCHING),
            # Of one user the model of one user is the matching one.
            *(trained_models.evaluation(column, PLACE, users, [1], label=NON_MATCHING) if users > 1 else ()),
        )
    ]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    by_users = evaluated_models.by_users(results)
    four = by_users[trained_models.spoken(4)]
    return {
        "below-non-matching": evaluated_models.delay(four, COMBINED, NON_MATCHING),
        "above-matching": evaluated_models.delay(four, COMBINED, MATCHING),
        "conservative": float(
            np.mean([evaluated_models.throughput(here, COMBINED, NON_MATCHING) for here in list(by_users.values())[1:]])
        ),
        "throughput": max(abs(evaluated_models.throughput(here, COMBINED, MATCHING) - 1) for here in by_users.values()),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Measured values of the models and of Verus."""
    return [evaluated_models.table(evaluated_models.by_users(results), "Verus and the models, channel #1")]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """As the paper: a stack of users for each scenario."""
    caption = (
        "One to four users of Verus (robust mode, R = 2) or of a model trained with one to four users together "
        "(combined), with as many (matching), with one (non-matching); 300 s on channel #1, queue "
        f"{trained_models.QUEUE}, models with five seeds."
    )
    subject = "with a training of one to four users"
    return evaluated_models.bars(evaluated_models.by_users(results), name="fig10", what=subject, caption=caption, x="")


EXPERIMENT = Reproduction(
    name="model-fig10",
    title="Fig. 10: a model of one to four users together",
    source=f"{MODEL_PAPER}, Fig. 10",
    shows=(
        "Trained with one to four users together, the model's delay with four users is far less than that of a model "
        "of one user, though more than that of a model of four. Throughput is very similar in all scenarios."
    ),
    set_up=trained_models.SET_UP,
    channels=trained_models.CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
    saved=trained_models.saved,
).experiment()
