"""`verus train`: a model from recorded flows."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

from verus import _verus
from verus.commands.model import show
from verus.commands.options import COUNT, SECONDS, Flag, Json, count, one, words
from verus.commands.settings import setting
from verus.commands.talk import Talk
from verus.errors import FieldError
from verus.lab import training
from verus.lab.atomic_write import is_device, refuse_existing, write_whole
from verus.lab.inputs import cut_warnings

_DEFAULT = training.Training()


def train(
    out: Path,
    /,
    *,
    trace: Annotated[list[str] | None, words("CHANNEL")] = None,
    users: Annotated[list[int] | None, count("N", several=True)] = None,
    scheme: Annotated[str, one("SCHEME")] = _DEFAULT.scheme,
    recorded: Annotated[list[Path] | None, words("DIR")] = None,
    duration: Annotated[float, SECONDS] = _DEFAULT.duration_s,
    seed: Annotated[int, setting("seed")] = _DEFAULT.seed,
    repeat: Annotated[int, setting("repeat")] = _DEFAULT.repeat,
    queue: Annotated[str, one("QUEUE")] = _DEFAULT.queue,
    delay_ms: Annotated[float, setting("delay_ms")] = _DEFAULT.delay_ms,
    packet_bytes: Annotated[int, setting("packet_bytes")] = _DEFAULT.packet_bytes,
    quantization_ms: Annotated[int, COUNT] = _DEFAULT.quantization_ms,
    percentile: Annotated[float, one("P", allow_leading_hyphen=True)] = _DEFAULT.percentile,
    csv: Annotated[Path | None, one("FILE")] = None,
    force: Flag = False,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Learn a transition matrix of delay and window from a controller's runs, to run as `--scheme model:file=OUT`.

    Parameters
    ----------
    out
        File of the model to write.
    trace
        Trace files or names of channels. Default: three built-in channels, or none with `--recorded`.
    users
        Number of flows that share a channel; several numbers, such as `1 2 3 4`, are a run each, for one model of all.
        Default: 1.
    scheme
        The controller to learn from, `NAME[:key=value,…]`.
    recorded
        Folders of `verus compare --records` whose packets are used, too.
    duration
        Duration of each run, in seconds or as `5m`.
    queue
        The bottleneck's queue.
    quantization_ms
        Quantization step of delays, in ms: 1, 2, 5, 10 or 20 in the paper.
    percentile
        Samples of delay above this percentile are left out.
    csv
        Also write the whole matrix as comma-separated probabilities: m × m numbers, often gigabytes.
    force
        Replace files that exist.
    json_
        Print the summary of the model as one JSON object.
    """
    refuse_existing(out, force=force)
    if csv is not None:
        if csv.absolute() == out.absolute():
            raise FieldError("csv", "must be another file than the model")
        refuse_existing(csv, force=force, field="csv")
    watched = training.Training(
        scheme=scheme,
        traces=tuple(trace) if trace is not None else (() if recorded else training.CHANNELS),
        users=tuple(users or _DEFAULT.users),
        recorded=tuple(recorded or ()),
        duration_s=duration,
        seed=seed,
        repeat=repeat,
        queue=queue,
        delay_ms=delay_ms,
        packet_bytes=packet_bytes,
        quantization_ms=quantization_ms,
        percentile=percentile,
    )
    for warning in cut_warnings(run.scenario for run in watched.runs()):
        talk.say(f"Warning: {warning}")
    with talk.progress("watching") as progress:
        model = training.train(watched, progress=progress)
    write_whole(out, model)
    if csv is not None and is_device(csv):
        _verus.model_csv(str(out), str(csv))
    elif csv is not None:
        draft = csv.with_name(f".{csv.name}.part")
        try:
            _verus.model_csv(str(out), str(draft))
            draft.replace(csv)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    about = _verus.model_info(str(out))
    if json_:
        print(json.dumps(about))
    else:
        show([about])
