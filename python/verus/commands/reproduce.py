"""`verus reproduce`: published results, run again and checked."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from verus import _verus, papers
from verus.commands.options import COUNT, Flag, Json, one, words
from verus.commands.tables import table_console
from verus.commands.talk import Talk, tell_rows
from verus.errors import FieldError
from verus.lab.arguments import at_least, check_seed, checked
from verus.lab.atomic_write import replace_whole
from verus.lab.results_folder import check_folder, new_folder, new_name
from verus.papers.experiment import Options, in_mode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from verus.lab.results import Results
    from verus.papers.experiment import Experiment, Work


#: Most experiments that may wait to be written: each holds all its series in memory.
_UNWRITTEN = 3

#: It ran, but a checked target was missed.
TARGET_MISSED = 3


def reproduce(
    names: Annotated[list[str] | None, Parameter(name="NAME", negative="")] = None,
    /,
    *,
    traces: Annotated[Path | None, one("DIR")] = None,
    built_in: Flag = False,
    seed: Annotated[int, COUNT] = 1,
    repeat: Annotated[int | None, COUNT] = None,
    jobs: Annotated[int, COUNT] = 1,
    modes: Annotated[str, one("MODES")] = "",
    short: Flag = False,
    schemes: Annotated[list[str] | None, words("SCHEME", name="--scheme")] = None,
    out: Annotated[Path | None, one("DIR")] = None,
    force: Flag = False,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Run published experiments again, draw them, and check each claim of their source.

    `verus reproduce list` lists the experiments. Exit code 3 if a claim or a target does not hold.

    Parameters
    ----------
    names
        Names of experiments, or `all`, which is every experiment that needs no root. Default: list them.
    traces
        A folder with the recordings. Default: `$VERUS_TRACES`, then what `verus trace fetch` brought.
    built_in
        Use built-in channels only, no recordings.
    seed
        Random seed of every run; where runs are repeated, of the first.
    repeat
        Runs with different seeds for each configuration, in experiments that repeat runs. Default: the experiment's own
        number.
    jobs
        Emulated (real-time) runs at the same time.
    modes
        Modes of Verus such as `paper,prototype`, or settings of it such as `without=drains`, in which every claim is
        measured, too; each takes another run of every flow of Verus.
    short
        Fewer and shorter runs; only `arena`, `forward` and `linux` have this form.
    schemes
        Senders to run beside the others, such as a class of your own, `FILE.py:CLASS`; only `arena` takes some.
    out
        Folder for results and report (with several experiments, a subfolder for each). Default: a new
        one in `verus-results`; none with --json.
    force
        Replace the results in a folder that is not empty.
    json_
        Print one JSON object a line for each run, and nothing else.
    """
    if not names or names == ["list"]:
        width = max(map(len, papers.NAMES)) + 1
        for name, line in papers.NAMES.items():
            print(f"{name:{width}} {line}")
        if not names:
            talk.say("`verus reproduce NAME` runs one of these, `verus reproduce all` every one that needs no root")
        return 0
    check_seed(seed)
    if built_in and traces is not None:
        raise FieldError("built_in", "leaves out recordings, and --traces names some: give one of the two")
    at_least("jobs", jobs, 1, 1000)
    if repeat is not None:
        at_least("repeat", repeat, 1, 1000)
    everything = "all" in names
    options = Options(
        traces=traces,
        built_in=built_in,
        seed=seed,
        repeat=repeat,
        jobs=jobs,
        modes=_modes(modes),
        lenient=everything,
        short=short,
        schemes=tuple(schemes or ()),
    )
    experiment_names = papers.ALL if everything else dict.fromkeys(names)
    chosen = [papers.find(name) for name in experiment_names]
    if short and (long := [experiment.name for experiment in chosen if not experiment.short]):
        raise FieldError("short", f"`{long[0]}` has no short form")
    if schemes and (fixed := [experiment.name for experiment in chosen if not experiment.takes_schemes]):
        raise FieldError("schemes", f"`{fixed[0]}` runs what its source ran; `arena` takes others beside its own")
    work = [experiment.prepare(options) for experiment in chosen]

    several = len(chosen) > 1
    if out is None and not json_:
        out = new_name("reproduce" if several else chosen[0].name)
    folders = [out / experiment.name if out is not None and several else out for experiment in chosen]
    for own in folders:
        if own is not None:
            check_folder(own, force=force)

    parts, missed = [], 0
    for experiment, results in _results(chosen, work, folders, talk, force=force):
        judged = experiment.judged(results)
        missed += sum(one.holds is False for one in judged) + sum(not one.met for one in experiment.checks(results))
        if judged:
            parts.append((experiment.name, experiment.title, judged))
        if json_:
            tell_rows(results.to_rows())
        elif not several or not judged:
            _show(experiment.summary(results), talk)
    if several:
        from verus.papers.overview import Overview

        overview = Overview(parts=parts)
        if not json_:
            _show(overview.summary(), talk)
        if out is not None:
            overview.write(out)
    if out is not None:
        talk.say(f"Report: {out / 'report.html'}")
    return TARGET_MISSED if missed else 0


def _results(
    chosen: Sequence[Experiment],
    work: Sequence[Work],
    folders: Sequence[Path | None],
    talk: Talk,
    *,
    force: bool,
) -> Iterator[tuple[Experiment, Results]]:
    """Runs one experiment after another, and writes finished ones meanwhile.

    Simulation uses all cores, drawing mostly one: neither waits for the other, unless too many
    results would be in memory.
    """
    writing: deque[Future[None]] = deque()
    with ThreadPoolExecutor(max_workers=1) as writer:
        for experiment, do, own in zip(chosen, work, folders, strict=True):
            with talk.progress(experiment.name) as progress:
                results = do(progress)
            yield experiment, results
            if own is not None:
                writing.append(writer.submit(_write, experiment, results, own, force=force))
            while len(writing) > _UNWRITTEN or (writing and writing[0].done()):
                writing.popleft().result()
        with talk.doing("drawing") if writing else contextlib.nullcontext():
            for written in writing:
                written.result()


def _write(experiment: Experiment, results: Results, target: Path, *, force: bool) -> None:
    """Writes the folder of an experiment: results, report and other files."""
    from verus import saved_run

    with new_folder(target, force=force) as folder:
        results.write(folder)
        saved_run.write_page(results, folder)
        for name, text in experiment.files(results).items():
            replace_whole(folder / name, text.encode())


def _modes(text: str) -> tuple[str, ...]:
    """The modes in a list of them.

    Raises:
        FieldError: One is no mode of Verus and no setting of it.
    """
    named = tuple(dict.fromkeys(text.split(","))) if text else ()
    for mode in named:
        checked("modes", in_mode("verus", mode), _verus.check_scheme)
    return named


def _show(parts: Sequence[RenderableType], talk: Talk) -> None:
    if not talk.quiet:
        console = table_console(markup=True)
        for part in parts:
            console.print(part)
