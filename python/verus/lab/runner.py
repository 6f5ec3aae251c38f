"""Runs many simulations on all cores, with progress.

Rust does the work, outside the interpreter lock. On Ctrl-C every simulation stops, nothing is
returned, and `KeyboardInterrupt` is raised as usual.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verus import _verus, controller
from verus.lab.scenario import Run

#: Called with the number of runs done, the number of all runs, and the share of all the work done
#: (0 … 1).
Progress = Callable[[int, int, float], None]

#: The simulator's output for one run: metrics, series, capacity, profiles, records.
Outcome = Mapping[str, Any]

#: The outcome of a run, or the failure of its controller, which is a program of the user's.
Ended = Outcome | RuntimeError


class RunError(RuntimeError):
    """Controllers or programs of the user's failed in some runs; the others ran.

    Attributes:
        problems: A sentence for each failed run.
        finished: Results of the other runs, if the caller makes some of them; else None.
    """

    def __init__(self, problems: Sequence[str], finished: Any = None) -> None:
        super().__init__(problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)")
        self.problems = tuple(problems)
        self.finished = finished


@dataclass(frozen=True)
class Logs:
    """A folder for a log of each flow.

    Attributes:
        folder: The folder.
        format: `draft`, the current drafts as JSON text sequences, or `0.3`, which the viewer qvis opens.
        channels: Each run's channel in names of files, with all its differences from other runs.
    """

    folder: Path
    format: str
    channels: Sequence[str]

    def of(self, indices: Iterable[int]) -> tuple[Path, str, list[str]]:
        """The simulator's arguments for the runs at these indices."""
        return self.folder, self.format, [self.channels[index] for index in indices]


@dataclass(frozen=True)
class Captures:
    """A folder for a capture of each run.

    Attributes:
        folder: The folder.
        channels: As of `Logs`.
    """

    folder: Path
    channels: Sequence[str]


def run_each(runs: Sequence[Run], *, threads: int | None = None, progress: Progress | None = None) -> list[Ended]:
    """Runs every simulation; outcomes are in the order of `runs`, whatever the order of work.

    Args:
        runs: The runs.
        threads: Cores to use; all of them if None.
        progress: Called from time to time.

    Raises:
        ValueError: A scenario is refused.
        OSError: A trace cannot be read.
        KeyboardInterrupt: Ctrl-C; all runs have stopped by then.
    """
    if sandboxed(runs):
        return in_order(as_ended(runs, threads=threads, progress=progress))
    return list(_verus.simulate_many([run.to_json() for run in runs], threads, _told(len(runs), progress)))


def measure_each(
    runs: Sequence[Run],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    logs: Logs | None = None,
    captures: Captures | None = None,
) -> list[Ended]:
    """The same with metrics only: nothing grows with the duration, and nothing is an array."""
    if sandboxed(runs):
        plain = [run.without_series() for run in runs]
        ended = as_ended(plain, threads=threads, columns=False, progress=progress, logs=logs, captures=captures)
        return in_order(ended)
    texts = [run.without_series().to_json() for run in runs]
    qlog = None if logs is None else logs.of(range(len(runs)))
    report = _told(len(runs), progress)
    return list(_verus.simulate_many(texts, threads, report, columns=False, qlog=qlog, pcap=_pcap(captures)))


def run_all(runs: Sequence[Run], *, threads: int | None = None, progress: Progress | None = None) -> list[Outcome]:
    """As `run_each`, if all runs must succeed.

    Raises:
        RunError: One of them failed.
    """
    return all_of(runs, run_each(runs, threads=threads, progress=progress))


def all_of(runs: Sequence[Run], ended: Sequence[Ended]) -> list[Outcome]:
    """The outcomes.

    Raises:
        RunError: One of the runs failed.
    """
    _, outcomes, problems = sort_out(runs, ended)
    if problems:
        raise RunError(problems)
    return outcomes


def sort_out(runs: Sequence[Run], ended: Sequence[Ended]) -> tuple[list[Run], list[Outcome], list[str]]:
    """The runs that succeeded, their outcomes, and a sentence for each other run."""
    ran, outcomes, problems = [], [], []
    for run, end in zip(runs, ended, strict=True):
        if isinstance(end, RuntimeError):
            seed = run.scenario["seed"]
            problems.append(f"{run.contestant.label} over {run.trace}, seed {seed}: {end}")
        else:
            ran.append(run)
            outcomes.append(end)
    return ran, outcomes, problems


def as_ended(
    runs: Sequence[Run],
    *,
    threads: int | None = None,
    columns: bool = True,
    progress: Progress | None = None,
    logs: Logs | None = None,
    captures: Captures | None = None,
) -> Generator[tuple[int, Ended]]:
    """Runs every simulation, and yields each one's index and outcome as soon as it ends.

    Args:
        runs: The runs.
        threads: Cores to use; all of them if None.
        columns: Whether arrays are returned beside metrics, as by `run_all`.
        progress: Called from time to time.
        logs: The folder for each flow's log, or None.
        captures: The folder for each run's capture, or None.

    Raises:
        ValueError: A scenario is refused.
        OSError: A trace cannot be read.
        KeyboardInterrupt: Ctrl-C; all runs have stopped by then.
    """
    if confined := sandboxed(runs):
        if logs is not None or captures is not None:
            raise ValueError("a controller in a sandbox writes no logs and no captures")
        yield from _apart(runs, confined, threads=threads, columns=columns, progress=progress)
        return
    qlog = None if logs is None else logs.of(range(len(runs)))
    texts = [run.to_json() for run in runs]
    work = _verus.simulate_many(texts, threads or cores(), columns=columns, qlog=qlog, wait=False, pcap=_pcap(captures))
    try:
        done = 0
        while done < len(runs):
            for index, outcome in work.ended(_LOOK_EVERY_S):
                done += 1
                yield index, outcome
            if progress is not None:
                progress(done, len(runs), work.fraction())
    finally:
        work.stop()


def sandboxed(runs: Sequence[Run]) -> list[int]:
    """The runs that a sandbox executes: those with a Python file among their schemes, if there is a sandbox."""
    if controller.sandbox.get() is None:
        return []
    return [index for index, run in enumerate(runs) if controller.names_file(run.scenario["flows"])]


def _apart(
    runs: Sequence[Run],
    confined: Sequence[int],
    *,
    threads: int | None,
    columns: bool,
    progress: Progress | None,
) -> Generator[tuple[int, Ended]]:
    """As `as_ended`, with these runs in the sandbox, after the others."""
    box = controller.sandbox.get()
    assert box is not None
    others = [index for index in range(len(runs)) if index not in set(confined)]

    def shifted(begin: int, count: int) -> Progress | None:
        if progress is None:
            return None
        return lambda done, _, share: progress(begin + done, len(runs), (begin + share * count) / len(runs))

    for index, end in as_ended(
        [runs[index] for index in others], threads=threads, columns=columns, progress=shifted(0, len(others))
    ):
        yield others[index], end
    for index, end in box.ended(
        [runs[index].to_json() for index in confined],
        threads=threads,
        columns=columns,
        progress=shifted(len(others), len(confined)),
    ):
        yield confined[index], end


def in_order(ended: Iterable[tuple[int, Ended]]) -> list[Ended]:
    """The outcomes by index."""
    return [end for _, end in sorted(ended, key=lambda pair: pair[0])]


def in_threads(
    count: int, work: Callable[[int], Ended], *, threads: int, tell: Callable[[int], None], stop: Callable[[], None]
) -> Generator[tuple[int, Ended]]:
    """Calls `work(0)`, `work(1)` and so on in `threads` threads; yields index and outcome of each as soon as it ends.

    An exception, Ctrl-C or a caller that closes the generator also calls `stop`, which ends work
    under way.
    """
    ended: queue.SimpleQueue[Future[Ended]] = queue.SimpleQueue()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        futures = {pool.submit(work, index): index for index in range(count)}
        try:
            for future in futures:
                future.add_done_callback(ended.put)
            done = 0
            while done < count:
                try:
                    future = ended.get(timeout=_LOOK_EVERY_S)
                except queue.Empty:
                    tell(done)
                    continue
                outcome = future.result()
                done += 1
                tell(done)
                yield futures.pop(future), outcome
        except BaseException:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _pcap(captures: Captures | None) -> tuple[Path, Sequence[str]] | None:
    return None if captures is None else (captures.folder, captures.channels)


#: The interval at which a waiting caller checks for Ctrl-C and reports progress, in seconds.
_LOOK_EVERY_S = 0.1


def cores() -> int:
    """The number of cores that this process may use."""
    with contextlib.suppress(AttributeError):  # Linux has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _told(count: int, progress: Progress | None) -> Callable[[int, float], bool]:
    def report(done: int, fraction: float) -> bool:
        if progress is not None:
            progress(done, count, fraction)
        return True

    return report
