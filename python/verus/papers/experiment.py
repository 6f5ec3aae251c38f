"""An experiment's description, for the code that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verus import _verus

if TYPE_CHECKING:  # the list of experiments needs none of these
    from rich.console import RenderableType

    from verus.lab.results import Results
    from verus.lab.runner import Progress
    from verus.papers.claims import Judged
    from verus.papers.target import Check
    from verus.report.page import Page


def in_mode(scheme: str, mode: str) -> str:
    """Verus in another mode, or with another setting where that is what `mode` says.

    Example:
        >>> in_mode("verus:ratio=4", "paper"), in_mode("verus", "without=drains")
        ('verus:mode=paper,ratio=4', 'verus:without=drains')
    """
    return _verus.with_settings(scheme, mode if "=" in mode else f"mode={mode}", first=True)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A user's options for running an experiment.

    Attributes:
        traces: Folder in which to look for recordings first.
        built_in: Use built-in channels in place of recordings.
        seed: Of every run; the first one where runs are repeated.
        repeat: Runs of each cell, where they are repeated; the experiment's own number if None.
        jobs: Runs in real time at the same time.
        modes: Of Verus, or settings of it, to run beside its default mode.
        lenient: Run what can be run where recordings are not on this machine, rather than refuse.
        short: Run the short form of experiments that have one (`Experiment.short`).
        schemes: Senders of the user's to run beside the others, where the experiment takes some
            (`Experiment.takes_schemes`).
    """

    traces: Path | None = None
    built_in: bool = False
    seed: int = 1
    repeat: int | None = None
    jobs: int = 1
    modes: tuple[str, ...] = ()
    lenient: bool = False
    short: bool = False
    schemes: tuple[str, ...] = ()


#: Does an experiment's work, telling its progress.
Work = Callable[["Progress | None"], "Results"]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A published result that can be run again.

    Attributes:
        name: As in `verus reproduce NAME`.
        source: The citation.
        prepare: Looks for the recordings it needs and returns the work, which yields results. Raises
            `MissingRecordings` if one is not on this machine.
        page: Tables and figures, from saved results.
        summary: Text for a terminal.
        title: One line, for lists.
        checks: Measured values against targets.
        judged: Each claim of the source (`claims.csv`) and its verdict.
        files: Other files written beside the results: name → text.
        short: Whether it has a short form, of seconds in place of minutes.
        takes_schemes: Whether it also runs a user's senders.
    """

    name: str
    source: str
    prepare: Callable[[Options], Work]
    page: Callable[[Results], Page]
    summary: Callable[[Results], Sequence[RenderableType]]
    title: str = ""
    checks: Callable[[Results], Sequence[Check]] = lambda _: ()
    judged: Callable[[Results], Sequence[Judged]] = lambda _: ()
    files: Callable[[Results], Mapping[str, str]] = lambda _: {}
    short: bool = False
    takes_schemes: bool = False
