"""Model paper 2016, Table 1: how many samples a training of 1500 s yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verus.papers.model import trained_models
from verus.papers.model.trained_models import USERS
from verus.papers.reproduction import MODEL_PAPER, Column, ColumnResults, Reproduction, Table
from verus.report import figures
from verus.report.figures import Figure

#: Thousands, by users.
PUBLISHED = {1: 290, 2: 580, 3: 850, 4: 920}


def compute(column: Column) -> Any:
    """Description of each model, by number of users it was trained with."""
    return {str(users): trained_models.about(trained_models.model(column, [users])) for users in USERS}


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """Thousands of samples for each number of users."""
    return {f"samples-{users}": results.measured[str(users)]["samples"] / 1000 for users in USERS}


def tables(results: ColumnResults) -> Sequence[Table]:
    """Samples and ranges beside the paper's."""
    rows = []
    for users in USERS:
        model = results.measured[str(users)]
        rows.append(
            [
                trained_models.spoken(users),
                f"{PUBLISHED[users]},000",
                f"{model['samples']:,}",
                f"{model['delay_min_ms']} to {model['delay_max_ms']}",
                f"{model['window_min_packets']} to {model['window_max_packets']}",
                f"{model['outliers']:,}",
            ]
        )
    heads = ["", "samples, the paper", "samples, here", "d, ms", "w, packets an epoch", "left out as outliers"]
    return [Table(title="Training sets: five channels, 300 s each", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Samples beside the paper's."""
    rows = [
        {"group": trained_models.spoken(users), "name": name, "y": float(samples)}
        for users in USERS
        for name, samples in (
            ("model paper 2016", PUBLISHED[users]),
            ("here", results.measured[str(users)]["samples"] / 1000),
        )
    ]
    caption = (
        "Samples (d, w) of training sets with one to four users of Verus (robust mode), one for each epoch of 5 ms "
        "after slow start: five LTE downlinks, 300 s each."
    )
    title = "Samples of the training sets"
    return [figures.bars(rows, name="table1", title=title, caption=caption, x="", y="samples, thousands", columns=1)]


EXPERIMENT = Reproduction(
    name="model-table1",
    title="Table 1: samples of the training sets",
    source=f"{MODEL_PAPER}, Table 1",
    shows=(
        "Training takes 300 s on each of five channels, with one to four users: some 290,000, 580,000, 850,000 and "
        "920,000 samples."
    ),
    set_up=(
        "The paper says that a sample is recorded for every packet; yet w = 0 occurs, and 290,000 in 1500 s are one "
        "for each epoch of 5 ms, so that is what we count. What Verus sends in slow start is no decision by epochs "
        f"and left out. {trained_models.SET_UP}"
    ),
    channels=trained_models.CHANNELS,
    compute=compute,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
