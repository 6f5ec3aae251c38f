"""`verus train`: from watched flows to a model."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus import _verus, training
from verus.commands.model import show
from verus.commands.talk import Talk
from verus.errors import FieldError
from verus.files import refuse_existing, write_whole

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Counts = Annotated[list[int] | None, Parameter(consume_multiple=True, negative="")]
Folders = Annotated[list[Path] | None, Parameter(consume_multiple=True, negative="")]
Number = Annotated[float, Parameter(allow_leading_hyphen=True)]
Count = Annotated[int, Parameter(allow_leading_hyphen=True)]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_DEFAULT = training.Training()


def train(
    out: Path,
    /,
    *,
    trace: Words = None,
    users: Counts = None,
    scheme: str = _DEFAULT.scheme,
    recorded: Folders = None,
    duration: Number = _DEFAULT.duration_s,
    seed: Count = _DEFAULT.seed,
    repeat: Count = _DEFAULT.repeat,
    queue: str = _DEFAULT.queue,
    delay_ms: Number = _DEFAULT.delay_ms,
    packet_bytes: Count = _DEFAULT.packet_bytes,
    quantization_ms: Count = _DEFAULT.quantization_ms,
    percentile: Number = _DEFAULT.percentile,
    csv: Path | None = None,
    force: Flag = False,
    json_: Annotated[bool, Parameter(name="--json", negative="", show_default=False)] = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Watch a controller and write a model of it, to run as `--scheme model:file=OUT`.

    Parameters
    ----------
    out
        The model to write.
    trace
        Trace files or names of channels. Default: three built-in channels, unless runs are `--recorded`.
    users
        Flows that share a channel; several numbers make one model of all of them, such as `1 2 3 4`. Default: 1.
    scheme
        The controller to watch, `NAME[:key=value,…]`.
    recorded
        Folders of `verus compare --records`: their packets are used, too.
    duration
        Simulated seconds of each run.
    seed
        First seed.
    repeat
        Runs of each, with seeds SEED, SEED + 1, …
    queue
        The bottleneck's queue.
    delay_ms
        Propagation each way.
    packet_bytes
        Size of data packets (IP).
    quantization_ms
        The step of the delays: 1, 2, 5, 10 or 20 in the paper.
    percentile
        Samples of longer delay than this percentile are left out.
    csv
        Also write the whole matrix as comma-separated probabilities: m × m numbers, easily gigabytes.
    force
        Replace files that exist.
    json_
        Print what the model is as one JSON object.
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
    with talk.progress("watching") as progress:
        model = training.train(watched, progress=progress)
    write_whole(out, model)
    if csv is not None:
        draft = csv.with_name(f".{csv.name}.part")
        try:
            _verus.model_csv(str(out), str(draft))
            draft.replace(csv)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    about = json.loads(_verus.model_info(str(out)))
    if json_:
        print(json.dumps(about))
    else:
        show([about])
