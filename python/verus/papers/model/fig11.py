"""Model paper 2016, Fig. 11: one of four users that are switched on and off, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from verus.papers.model import on_off_users, trained_models
from verus.papers.model.trained_models import MODEL, PROPAGATION_MS, VERUS
from verus.papers.reproduction import MODEL_PAPER, Array, ColumnResults, Reproduction
from verus.report import figures
from verus.report.figures import Figure

#: Width of a saved bin, and bins per second.
BIN_MS, BINS = 100.0, 10


@dataclass(frozen=True)
class _OverTime:
    """A user: throughput and packet delay in seconds, and the 99th percentile of delay in its first seconds."""

    throughput: Array
    delay: Array
    first: float

    @classmethod
    def of(cls, results: ColumnResults, label: str, user: int = 0) -> _OverTime:
        (row,) = results.where(label=label).rows
        series = results.series(row)
        rate, queueing = series.throughput_mbps[user], series.qdelay_ms[user]
        carried, waited = (values.reshape(-1, BINS).sum(axis=1) for values in (rate, np.nan_to_num(queueing) * rate))
        with np.errstate(invalid="ignore"):
            delay = waited / carried + PROPAGATION_MS
        begun = _begun(results, row["run"], user)
        since = series.time_s - begun[np.maximum(np.searchsorted(begun, series.time_s, side="right") - 1, 0)]
        first = queueing[(since >= 0) & (since < 1) & ~np.isnan(queueing)] + PROPAGATION_MS
        return cls(carried / BINS, delay, float(np.percentile(first, 99)))


def _begun(results: ColumnResults, run: int, user: int) -> Array:
    """When a user's connections began, s."""
    connections = results.results.connections
    assert connections is not None, "no user was switched on"
    of, flow = (connections.column(name).to_numpy() for name in ("run", "flow"))
    begun: Array = connections.column("start_s").to_numpy()[(of == run) & (flow == user)]
    return begun


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    pairs = [
        (_OverTime.of(results, VERUS, user), _OverTime.of(results, MODEL, user)) for user in range(on_off_users.USERS)
    ]
    alike = [float(np.corrcoef(verus.throughput, model.throughput)[0, 1]) for verus, model in pairs]
    delays = [float(np.nanmedian(model.delay) / np.nanmedian(verus.delay)) for verus, model in pairs]
    verus, model = pairs[0]
    return {
        "throughput-alike": alike[0],
        "delay-alike": delays[0],
        "others-throughput": min(alike[1:]),
        "others-delay": max(delays[1:], key=lambda ratio: abs(ratio - 1)),
        "slow-start-peaks": verus.first / model.first,
    }


def draw(results: ColumnResults) -> Sequence[Figure]:
    """As the paper: throughput and delay of user 1 over time."""
    caption = (
        "User 1 of four that are switched on and off over five LTE downlinks in a row, of Verus (robust mode, R = 2) "
        f"or of a model trained with one to four users; one seed, 3000 s, queue {trained_models.QUEUE}. Means of each "
        f"second. {trained_models.DELAY}"
    )
    over_time = {label: _OverTime.of(results, label) for label in (VERUS, MODEL)}
    drawn = []
    for letter, title, y, values in (
        ("a", "Throughput", "throughput, Mbit/s", {label: own.throughput for label, own in over_time.items()}),
        ("b", "Packet delay", "packet delay, ms", {label: own.delay for label, own in over_time.items()}),
    ):
        rows = [
            {"name": label, "x": second + 0.5, "y": float(value)}
            for label, own in values.items()
            for second, value in enumerate(own)
        ]
        name, title = f"fig11{letter}", f"{title} of user 1 over time"
        drawn.append(figures.lines(rows, name=name, title=title, caption=caption, x="time, s", y=y, size=(860, 230)))
    return drawn


EXPERIMENT = Reproduction(
    name="model-fig11",
    title="Fig. 11: one of four users that are switched on and off, over time",
    source=f"{MODEL_PAPER}, Fig. 11",
    shows=(
        "Throughput and delay of user 1 over time are almost the same with Verus and with the model. Verus's slow "
        "start makes some peaks of delay."
    ),
    set_up=f"{on_off_users.SET_UP} A connection's first second is seen in bins of 100 ms. {trained_models.SET_UP}",
    channels=on_off_users.CHANNELS,
    runs=partial(on_off_users.runs, repetitions=1, bin_ms=BIN_MS),
    measure=measure,
    draw=draw,
    saved=trained_models.saved,
).experiment()
