"""Folders for logs of runs as qlog (`--qlog`, docs/qlog.md) and for their captures (`--pcap`, docs/captures.md).

Rust writes the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from verus.errors import FieldError
from verus.lab.results_folder import check_folder, drafted
from verus.lab.runner import Captures, Logs
from verus.lab.scenario import Run


@contextlib.contextmanager
def new_logs(target: Path, format_: str, runs: Sequence[Run], *, force: bool) -> Iterator[Logs]:
    """A folder to fill with logs of `runs`; they go to `target` if the block ends well, and vanish if it does not.

    Raises:
        FieldError: `target` holds something and `force` is not set, or it cannot be written.
    """
    with _draft(target, "qlog", force=force) as draft:
        yield Logs(draft, format_, _told_apart(runs))


@contextlib.contextmanager
def new_captures(target: Path, runs: Sequence[Run], *, force: bool) -> Iterator[Captures]:
    """As `new_logs`, for captures of `runs`."""
    if target.suffix in (".pcapng", ".pcap"):
        problem = f"`{target}` is to be a folder, with a file for each run: name it without `{target.suffix}`"
        raise FieldError("pcap", problem)
    with _draft(target, "pcap", force=force) as draft:
        yield Captures(draft, _told_apart(runs))


@contextlib.contextmanager
def _draft(target: Path, field: str, *, force: bool) -> Iterator[Path]:
    """A folder whose files go to `target` if the block ends well, and vanish if it does not."""
    check_folder(target, force=force, field=field)
    with drafted(target, field) as (draft, place):
        try:
            yield draft
            place.mkdir(exist_ok=True)
            for path in draft.iterdir():
                path.replace(place / path.name)
        except OSError as error:
            if str(draft) not in str(error):
                raise  # of something else that the block reads or writes
            raise FieldError(field, str(error).replace(str(draft), str(target))) from error


def _told_apart(runs: Sequence[Run]) -> list[str]:
    """Names of each run's log: its channel, and any other difference between runs with the same scheme and seed."""
    several_queues = len({run.queue for run in runs}) > 1
    several_transports = len({run.contestant.transport for run in runs}) > 1
    names = []
    for run in runs:
        parts = [run.trace]
        if several_queues:
            parts.append(run.queue)
        if several_transports and run.contestant.transport:
            parts.append(run.contestant.transport)
        if run.contestant.text != run.contestant.flows[0]:
            parts.append(run.contestant.text)
        names.append("_".join(parts))
    return names
