"""Model paper 2016, Fig. 7: a model of one user where there are one to four."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verus.lab.scenario import Run
from verus.papers.model import evaluated_models, trained_models
from verus.papers.model.trained_models import EVALUATION, MODEL, USERS
from verus.papers.reproduction import MODEL_PAPER, Column, ColumnResults, Reproduction, Table
from verus.report.figures import Figure

PLACE = "#1"
OTHERS = [place for place in EVALUATION if place != PLACE]


def runs(column: Column) -> list[Run]:
    """Verus and the model of one user: one to four users on the first channel, four on the others."""
    return [
        run
        for place, counts in ((PLACE, USERS), *((place, USERS[-1:]) for place in OTHERS))
        for users in counts
        for run in (
            *trained_models.evaluation(column, place, users),
            *trained_models.evaluation(column, place, users, [1]),
        )
    ]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    by_users = dict(zip(USERS, evaluated_models.by_users(results.where(place=PLACE)).values(), strict=True))
    others = [results.where(place=place) for place in OTHERS]
    rates = {users: evaluated_models.throughput(here, MODEL) for users, here in by_users.items()}
    delays = {users: evaluated_models.delay(here, MODEL) for users, here in by_users.items()}
    several = [users for users in USERS if users > 1]
    return {
        "one-delay": delays[1],
        "one-throughput": rates[1],
        "two-delay": delays[2],
        "four-delay": delays[4],
        **{f"throughput-{users}": rates[users] for users in several},
        **{f"delay-{users}-higher": delays[users] for users in several},
        "others-delay": sum(evaluated_models.delay(here, MODEL) for here in others) / len(others) / delays[4],
        "others-throughput": sum(evaluated_models.throughput(here, MODEL) for here in others) / len(others) / rates[4],
        "fair": min(min(by_users[users].where(label=MODEL).values("jain")) for users in several),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Measured values of the models and of Verus."""
    first = evaluated_models.by_users(results.where(place=PLACE))
    others = {place: results.where(place=place) for place in OTHERS}
    return [
        evaluated_models.table(first, "Verus and the model of one user, channel #1"),
        evaluated_models.table(others, "Four users, the other channels"),
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """As the paper: a stack of users for each scenario."""
    caption = (
        "One to four users of Verus (robust mode, R = 2) or of a model trained with one user, 300 s on channel #1, "
        f"queue {trained_models.QUEUE}, model with five seeds."
    )
    subject = "with a training of one user"
    first = evaluated_models.by_users(results.where(place=PLACE))
    return evaluated_models.bars(first, name="fig07", what=subject, caption=caption, x="")


EXPERIMENT = Reproduction(
    name="model-fig07",
    title="Fig. 7: a model of one user where there are one to four",
    source=f"{MODEL_PAPER}, Fig. 7",
    shows=(
        "A model of one user has almost Verus's delay where there is one user and a little more where there are two; "
        "where there are four, four times as much. It still shares evenly, and its throughput is slightly higher."
    ),
    set_up=trained_models.SET_UP,
    channels=trained_models.CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
    saved=trained_models.saved,
).experiment()
