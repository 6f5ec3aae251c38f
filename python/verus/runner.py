"""Runs many simulations on all cores, with progress.

The work is Rust's, outside the interpreter lock. Ctrl-C is heard while it runs: every simulation
then stops, nothing is returned, and `KeyboardInterrupt` is raised as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verus import _verus
from verus.scenario import Run, refused

#: Told how many runs are done, of how many, and the share of all the work (0 … 1).
Progress = Callable[[int, int, float], None]

#: What the simulator returns for one run: metrics, series, capacity, profiles, records.
Outcome = Mapping[str, Any]


def run_all(runs: Sequence[Run], *, threads: int | None = None, progress: Progress | None = None) -> list[Outcome]:
    """Runs every simulation; outcomes come back in the order of `runs`, whatever the order of work.

    Args:
        runs: What to run.
        threads: Cores to use; all of them if None.
        progress: Called from time to time.

    Raises:
        ValueError: A scenario is refused.
        OSError: A trace cannot be read.
        RuntimeError: A run failed.
        KeyboardInterrupt: Ctrl-C; all runs have stopped by then.
    """
    with refused():
        return list(_verus.simulate_many([run.to_json() for run in runs], threads, _told(len(runs), progress)))


def measure_all(runs: Sequence[Run], *, progress: Progress | None = None) -> list[Outcome]:
    """The same, of which only metrics are kept: nothing grows with the duration, and nothing is an array."""
    texts = [run.without_series().to_json() for run in runs]
    with refused():
        return list(_verus.simulate_many(texts, None, _told(len(runs), progress), columns=False))


def _told(count: int, progress: Progress | None) -> Callable[[int, float], bool]:
    def report(done: int, fraction: float) -> bool:
        if progress is not None:
            progress(done, count, fraction)
        return True

    return report
