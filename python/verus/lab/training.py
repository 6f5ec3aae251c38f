"""Trains a model of a controller (Pötsch et al. 2016) from simulations and recorded packets.

Rust counts the transitions; the result is the bytes of the model's file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verus import _verus
from verus.errors import FieldError
from verus.lab.arguments import at_least, check_seed, checked
from verus.lab.runner import Progress
from verus.lab.scenario import DEFAULTS, OWNERS, Contestant, Run, check_fields, make_run

#: The paper's queue: 3 and 9 Mbit of average queue, a drop probability of 0.1 % (section 6.1).
QUEUE = "red:min=375000,max=1125000,p=0.001"

#: The default channels: slow, busy and fast movement.
CHANNELS = ("campus-pedestrian-3g-down", "city-driving-lte-down", "highway-driving-3g-down")

#: The most users of one channel: more are probably a typing error.
MOST_USERS = 1000


@dataclass(frozen=True, kw_only=True)
class Training:
    """The runs that a model is trained on.

    Attributes:
        scheme: The controller to learn from.
        traces: The channels that its flows share.
        users: Numbers of concurrent flows: each is a set of runs, and all sets make one model
            (section 6.5).
        recorded: Folders of `verus compare --records`, whose packets are used as well.
        duration_s: Length of each simulation.
        seed: First seed.
        repeat: Runs of each, with seeds ``seed … seed + repeat - 1``.
        queue: The bottleneck queue.
        delay_ms: Propagation each way.
        packet_bytes: Size of data packets (IP).
        quantization_ms: The step of d.
        percentile: Samples of longer delay than this percentile are left out.
    """

    scheme: str = "verus"
    traces: Sequence[str] = CHANNELS
    users: Sequence[int] = (1,)
    recorded: Sequence[Path] = ()
    duration_s: float = 300.0
    seed: int = DEFAULTS["seed"]
    repeat: int = 1
    queue: str = QUEUE
    delay_ms: float = DEFAULTS["delay_ms"]
    packet_bytes: int = DEFAULTS["packet_bytes"]
    quantization_ms: int = 2
    percentile: float = 99.9

    def check(self) -> None:
        """Refuses what cannot be run, before anything runs.

        Raises:
            FieldError: The first field found wanting, and why.
            OSError: A trace cannot be read.
        """
        if not self.traces and not self.recorded:
            raise FieldError("traces", "needs at least one, or a recorded run")
        for users in self.users:
            at_least("users", users, 1, MOST_USERS)
        check_fields({name: getattr(self, name) for name in ("duration_s", "delay_ms", "packet_bytes")})
        at_least("repeat", self.repeat, 1, 100_000)
        at_least("quantization_ms", self.quantization_ms, 1, 10_000)
        if not 0 < self.percentile <= 100:
            raise FieldError("percentile", f"must be above 0 and at most 100, not {self.percentile:g}")
        check_seed(self.seed)
        check_seed(self.seed + self.repeat)
        checked("queue", self.queue, _verus.check_queue)
        for trace in self.traces:
            checked("traces", trace, _verus.check_channel)

    def runs(self) -> list[Run]:
        """Every simulation.

        Raises:
            FieldError: As `check`; or the scheme cannot be used.
        """
        self.check()
        users = dict.fromkeys(self.users if self.traces else ())
        contestants = [Contestant.from_scheme(self.scheme, flows=count) for count in users]
        if contestants and _verus.runs_in(self.scheme) in OWNERS:
            raise FieldError("scheme", f"`{self.scheme}` runs in real time only: it cannot be watched in the simulator")
        return [
            make_run(
                trace=trace,
                queue=self.queue,
                contestant=contestant,
                seed=seed,
                duration_s=self.duration_s,
                delay_ms=self.delay_ms,
                packet_bytes=self.packet_bytes,
            )
            for trace in dict.fromkeys(self.traces)
            for contestant in contestants
            for seed in range(self.seed, self.seed + self.repeat)
        ]


def train(training: Training, *, threads: int | None = None, progress: Progress | None = None) -> bytes:
    """Observes the runs, and returns the model as the bytes of its file.

    Args:
        training: The runs to learn from.
        threads: Cores to use; all of them if None.
        progress: Called from time to time.

    Raises:
        FieldError: A field cannot be used.
        OSError: A trace or a folder cannot be read.
        ValueError: The observations make no model.
        KeyboardInterrupt: Ctrl-C.
    """
    return model(training, watch(training, threads=threads, progress=progress))


def watch(training: Training, *, threads: int | None = None, progress: Progress | None = None) -> _verus.Trainer:
    """Observes the runs, and keeps counts for any quantization and percentile; arguments and errors as of `train`."""
    recorded = [columns for folder in training.recorded for columns in _packets(folder)]
    scenarios = [json.dumps({**run.scenario, "epochs": True, "series": False}) for run in training.runs()]

    def report(done: int, fraction: float) -> bool:
        if progress is not None:
            progress(done, len(scenarios), fraction)
        return True

    return _verus.Trainer(scenarios, recorded, threads, report)


def model(training: Training, watched: _verus.Trainer) -> bytes:
    """The file of the model that `training` makes of its observations.

    Raises:
        ValueError: It makes none.
    """
    runs = bool(training.traces)
    about = {
        "scheme": training.scheme if runs else "",
        "channels": [*dict.fromkeys(training.traces), *map(str, training.recorded)],
        "users": list(dict.fromkeys(training.users)) if runs else [],
        "seeds": list(range(training.seed, training.seed + training.repeat)) if runs else [],
        "duration_s": training.duration_s if runs else 0.0,
        "packet_bytes": training.packet_bytes,
        "percentile": training.percentile,
        "samples": 0,
        "outliers": 0,
        "transitions": 0,
    }
    return watched.model(json.dumps(about), training.quantization_ms, training.percentile)


def _packets(folder: Path) -> list[tuple[Any, Any, Any]]:
    """Flow, departure and acknowledgement of every packet, run by run."""
    import numpy as np  # here: simulations alone need neither

    from verus.lab.results import Results

    records = Results.read(folder).records
    if records is None:
        problem = f"`{folder}` has no records of packets (`verus compare --records` keeps them)"
        raise FieldError("recorded", problem)
    names = ("run", "flow", "sent_ms", "acked_ms")
    run, flow, sent, acked = (records.column(name).to_numpy() for name in names)
    return [
        (flow[run == one].astype(np.int32), sent[run == one].astype(float), acked[run == one].astype(float))
        for one in np.unique(run)
    ]
