"""Models of Verus as the 2016 paper trains them, and the runs that compare them with Verus.

Channels #1 to #5 are LTE downlinks. The paper's two sets of five were collected under similar conditions at different
times: so are ours, training on one stretch of each place, evaluation on another.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from verus import _verus
from verus.lab import training
from verus.lab.scenario import Run
from verus.papers.reproduction import Column, ColumnResults, Place

#: Name of each channel of the evaluation, the built-in place that it is, the recording and where its halves meet.
_PLACES = (
    ("#1", "campus-stationary-lte-down", "nyc-2019/trace-3093662-home3", 133),
    ("#2", "campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down", 150),
    ("#3", "city-stationary-lte-down", "nyc-2019/trace-3205967-timessquare", 180),
    ("#4", "city-driving-lte-down", "verus-2015/city-driving.down", 150),
    ("#5", "highway-driving-lte-down", "verus-2015/highway-driving.down", 150),
)

#: Channel trace set 2 of the paper, for evaluation.
EVALUATION = {
    name: Place(f"{built_in}@1[0:300]", f"{recording}[{half}:]") for name, built_in, recording, half in _PLACES
}

#: Channel trace set 1, for training.
TRAINING = {
    f"training {name}": Place(f"{built_in}@101[0:300]", f"{recording}[:{half}]")
    for name, built_in, recording, half in _PLACES
}

#: All channels that an experiment with models needs.
CHANNELS = {**EVALUATION, **TRAINING}

USERS = (1, 2, 3, 4)
REPETITIONS, DURATION_S, PACKET_BYTES, QUANTIZATION_MS = 5, 300.0, 1450, 2

#: The paper's RED, as captions say it.
QUEUE = training.QUEUE

#: Base round trip: the paper's delays are of acknowledgements, and begin at 20 ms (section 6.2).
PROPAGATION_MS = 20.0

VERUS, MODEL = "Verus", "model"

#: Scheme whose runs models are trained on.
WATCHED = "verus"

#: How every experiment with models is set up, for its page.
SET_UP = (
    "Training: five LTE downlinks, 300 s each (built-in places, realisation 101); evaluation: five other stretches of "
    "the same places, 300 s each (realisation 1). The paper's traces were never published; ours carry 14 to 19 Mbit/s, "
    "so that each of four users has some 4 Mbit/s as in the paper. RED of 3 and 9 Mbit with a drop probability of 0.1 "
    "%, packets of 1450 bytes, 20 ms of base round trip (the least delay of section 6.2), quantization 2 ms, delays "
    "beyond the "
    "99.9th percentile left out, the paper's walk. Channels are fixed, so that five seeds of the model differ in its "
    "draws; Verus runs once for each channel, as in the paper, except where users are switched on and off: there both "
    "run with each seed. Where there are recordings, training is on their first halves and evaluation on their second, "
    "each repeated to 300 s. The paper's channels are numbered by where they were recorded, which it does not say; the "
    "one "
    "that it calls highly fluctuating is here the one whose rate varies most, and the two steady ones those that vary "
    "least."
)

#: Definition of the delay, for captions.
DELAY = "Delay is that of acknowledgements: time in the bottleneck's queue and a base round trip of 20 ms."


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where model files lie while this process lives."""
    return tempfile.TemporaryDirectory(prefix="verus-models-")


def _training(scheme: str, channels: tuple[str, ...], users: tuple[int, ...], seed: int) -> training.Training:
    return training.Training(
        scheme=scheme,
        traces=channels,
        users=users,
        duration_s=DURATION_S,
        delay_ms=PROPAGATION_MS / 2,
        packet_bytes=PACKET_BYTES,
        seed=seed,
    )


@cache
def _watched(scheme: str, channels: tuple[str, ...], users: int, seed: int) -> _verus.Trainer:
    """Observations of `users` users, cached since several models are trained on the same ones."""
    return training.watch(_training(scheme, channels, (users,), seed))


@cache
def _trained(
    scheme: str, channels: tuple[str, ...], users: tuple[int, ...], quantization_ms: int, seed: int, name: str
) -> Path:
    path = Path(_folder().name) / name
    watched = _verus.Trainer.of_all([_watched(scheme, channels, each, seed) for each in users])
    settings = dataclasses.replace(_training(scheme, channels, users, seed), quantization_ms=quantization_ms)
    path.write_bytes(training.model(settings, watched))
    return path


def model(column: Column, users: Iterable[int], *, quantization_ms: int = QUANTIZATION_MS) -> Path:
    """The file of a model trained with `users` users; several numbers: combined (section 6.5).

    Each model is trained once in a process, however many experiments use it.
    """
    channels, counts = tuple(column.paths[place] for place in TRAINING), tuple(users)
    spoken = "-".join(map(str, counts))
    kind = f"{column.name}-{column.mode}" if column.mode else column.name
    name = f"{kind}-{spoken}-users-{quantization_ms}-ms-seed-{column.seed}.model"
    return _trained(column.in_mode(WATCHED), channels, counts, quantization_ms, column.seed, name)


def about(path: Path) -> dict[str, Any]:
    """Description of a model as `verus model info` prints it, without the file's path."""
    description: dict[str, Any] = _verus.model_info(str(path))
    return {key: value for key, value in description.items() if key != "channels"} | {"name": path.name}


def evaluation(
    column: Column,
    place: str,
    users: int,
    trained: Iterable[int] = (),
    *,
    label: str = MODEL,
    quantization_ms: int = QUANTIZATION_MS,
) -> list[Run]:
    """Runs on a channel: five of the model trained with `trained` users, one of Verus if empty."""
    counts = tuple(trained)
    scheme = f"model:file={model(column, counts, quantization_ms=quantization_ms)}" if counts else "verus"
    return [
        column.run(
            place,
            scheme,
            flows=users,
            label=label if counts else VERUS,
            part=spoken(users),
            seed=seed,
            queue=QUEUE,
            duration_s=DURATION_S,
            delay_ms=PROPAGATION_MS / 2,
            packet_bytes=PACKET_BYTES,
            series=False,
        )
        for seed in (column.seeds(REPETITIONS) if counts else [column.seed])
    ]


def spoken(users: int) -> str:
    """How many users, in words.

    Example:
        >>> spoken(1), spoken(4)
        ('1 user', '4 users')
    """
    return f"{users} user{'s' if users > 1 else ''}"


def saved(run: Run) -> Run:
    """A run as results keep it: its model by name, not by where that lay for the moment."""
    where = f"{_folder().name}/"

    def plain(text: str) -> str:
        return text.replace(where, "")

    contestant = run.contestant
    return dataclasses.replace(
        run,
        contestant=dataclasses.replace(
            contestant,
            text=plain(contestant.text),
            params={key: plain(value) if isinstance(value, str) else value for key, value in contestant.params.items()},
            flows=tuple(map(plain, contestant.flows)),
        ),
        scenario={
            **run.scenario,
            "flows": [{**flow, "scheme": plain(flow["scheme"])} for flow in run.scenario["flows"]],
        },
    )


def packet_delay_ms(results: ColumnResults) -> float:
    """Mean delay of a packet and its acknowledgement, over users and runs."""
    delays = results.flows("qdelay_mean_ms")
    return sum(delays) / len(delays) + PROPAGATION_MS


def by_variation(column: Column) -> list[str]:
    """The channels of the evaluation, from the steadiest to the one whose rate in seconds varies most."""

    def variation(place: str) -> float:
        return float(_verus.trace_info(column.paths[place])["cv_1s"])

    return sorted(EVALUATION, key=variation)
