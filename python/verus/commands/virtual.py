"""`verus virtual`: the guest kernel of virtual time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

from verus.commands.options import COUNT, Json, one
from verus.commands.talk import Talk, tell, tell_rows
from verus.endpoints import guest_kernel
from verus.lab.arguments import at_least

#: Labels of the fields.
_NAMES = {
    "release": "Linux",
    "sha256": "SHA-256",
    "source": "built from",
    "compiler": "by",
    "congestion_controls": "linux:cc=",
    "lacking": "lacks",
}


def build(
    *,
    source: Annotated[Path | None, one("SOURCE")] = None,
    jobs: Annotated[int | None, COUNT] = None,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Build the guest kernel for `shell --virtual` and `compare --virtual`, in minutes and without root.

    It goes into the cache (`VERUS_CACHE`, else `~/.cache/verus`). Until a build has succeeded, the kernel
    before it stays.

    Parameters
    ----------
    source
        An archive of Linux's source, or a folder with it. Default: the newest of `/usr/src`, where
        `apt install linux-source` puts it.
    jobs
        Compilers at the same time. Default: one for each processor.
    """
    jobs = len(os.sched_getaffinity(0)) if jobs is None else jobs
    at_least("jobs", jobs, 1, 1000)
    began = time.monotonic()
    last = ""
    with talk.progress("building the guest kernel") as progress:

        def show(step: str, fraction: float | None) -> None:
            nonlocal last
            if step != last:
                last = step
                talk.say(f"{step[0].upper()}{step[1:]} …")
            if progress is not None and fraction is not None:
                progress(round(1e2 * fraction), 100, fraction)

        kernel = guest_kernel.build(source, jobs=jobs, tell=show)
    talk.say(f"Built in {time.monotonic() - began:.0f} s: {guest_kernel.place()}")
    tell(f"Linux {kernel.release}, SHA-256 {kernel.sha256}")


def status(*, json_: Json = False) -> int:
    """Describe the guest kernel and its abilities, or say what is missing.

    Parameters
    ----------
    json_
        Print one JSON object.
    """
    kernel = guest_kernel.describe()
    problem = guest_kernel.runs_here()
    values = {"path": str(guest_kernel.place()), **vars(kernel), "runs": problem is None, "problem": problem}
    if json_:
        tell_rows([values])
        return 0 if problem is None else 1
    for name, label in _NAMES.items():
        value = values[name]
        if value:
            tell(f"{label:12} {', '.join(value) if isinstance(value, list) else value}")
    tell(f"{'runs here':12} {'yes' if problem is None else f'no: {problem}'}")
    return 0 if problem is None else 1
