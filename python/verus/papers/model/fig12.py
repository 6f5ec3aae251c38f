"""Model paper 2016, Fig. 12: four users that are switched on and off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from verus import _verus
from verus.papers.model import on_off_users, trained_models
from verus.papers.model.on_off_users import USERS
from verus.papers.model.trained_models import MODEL, PROPAGATION_MS, REPETITIONS, VERUS
from verus.papers.reproduction import MODEL_PAPER, ColumnResults, Reproduction, Table, interval, with_interval
from verus.report import figures
from verus.report.figures import Figure


def _each(results: ColumnResults, label: str, key: str) -> list[list[float]]:
    """The metric `key` of each user, a value for each run."""
    return [[row["per_flow"][user][key] for row in results.where(label=label).rows] for user in range(USERS)]


def _metrics(results: ColumnResults, label: str) -> tuple[list[list[float]], list[list[float]]]:
    """Throughput while on, Mbit/s, and packet delay, ms: for each user a value for each run."""
    delays = _each(results, label, "qdelay_mean_ms")
    return _each(results, label, "throughput_on_mbps"), [[each + PROPAGATION_MS for each in own] for own in delays]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    (verus, verus_delay), (model, model_delay) = (_metrics(results, label) for label in (VERUS, MODEL))

    def overlap(user: int) -> bool:
        (one, half), (other, other_half) = interval(verus[user]), interval(model[user])
        return abs(one - other) <= half + other_half

    return {
        "throughput-overlaps": float(sum(map(overlap, range(USERS)))),
        "throughput-lower": float(np.mean(model) / np.mean(verus)),
        "delay-lower": float(np.mean(model_delay) / np.mean(verus_delay)),
        "fair": min(_verus.jain(np.mean(each, axis=1)) or 0.0 for each in (verus, model)),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Each user's means with 95 % intervals over the seeds."""
    measured = {label: _metrics(results, label) for label in (VERUS, MODEL)}
    rows = [
        [
            f"user {user + 1}",
            *(with_interval(measured[label][metric][user], 2) for metric in (0, 1) for label in (VERUS, MODEL)),
        ]
        for user in range(USERS)
    ]
    heads = [
        "",
        *(f"{what}, {label}" for what in ("throughput while on, Mbit/s", "packet delay, ms") for label in measured),
    ]
    return [Table(title="Means of a user", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """As the paper: bars for each user, with 95 % intervals."""
    caption = (
        "Four users switched on and off for 3000 s over five LTE downlinks in a row, of Verus (robust mode, R = 2) or "
        f"of a model trained with one to four users; queue {trained_models.QUEUE}. Means of five seeds and their 95 % "
        f"intervals. {trained_models.DELAY}"
    )
    drawn = []
    for letter, metric, title, y in (
        ("a", 0, "Throughput", "throughput while on, Mbit/s"),
        ("b", 1, "Packet delay", "packet delay, ms"),
    ):
        rows = [
            {"group": f"user {user + 1}", "name": label, "y": middle, "low": middle - half, "high": middle + half}
            for user in range(USERS)
            for label in (VERUS, MODEL)
            for middle, half in (interval(_metrics(results, label)[metric][user]),)
        ]
        drawn.append(
            figures.bars(rows, name=f"fig12{letter}", title=f"{title} per user", caption=caption, x="", y=y, columns=1)
        )
    return drawn


EXPERIMENT = Reproduction(
    name="model-fig12",
    title="Fig. 12: four users that are switched on and off",
    source=f"{MODEL_PAPER}, Fig. 12",
    shows=(
        "Where users come and go the model has marginally less throughput than Verus, within the confidence intervals, "
        "and slightly less delay. Users get the same."
    ),
    set_up=f"{on_off_users.SET_UP} {trained_models.SET_UP}",
    channels=on_off_users.CHANNELS,
    runs=partial(on_off_users.runs, repetitions=REPETITIONS, series=False),
    measure=measure,
    tables=tables,
    draw=draw,
    saved=trained_models.saved,
).experiment()
