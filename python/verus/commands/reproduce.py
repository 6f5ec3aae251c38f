"""`verus reproduce`: published results, run again and checked."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus import experiments
from verus.commands.console import Talk, table_console
from verus.scenario import at_least, check_seed

#: It ran, but a checked target was missed.
TARGET_MISSED = 3


def reproduce(
    names: Annotated[list[str] | None, Parameter(name="NAME", negative="")] = None,
    /,
    *,
    traces: Path | None = None,
    built_in: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    seed: Annotated[int, Parameter(allow_leading_hyphen=True)] = 1,
    repeat: Annotated[int | None, Parameter(allow_leading_hyphen=True)] = None,
    jobs: Annotated[int, Parameter(allow_leading_hyphen=True)] = 1,
    out: Path | None = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="", show_default=False)] = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Run published experiments again, draw them, and check each against its published target.

    `verus reproduce list` says which there are; without a name, all run that need no root. Exit code 3
    if a checked target is missed.

    Parameters
    ----------
    names
        Which; all that need no root if none is named.
    traces
        A folder with the recordings. Default: `$VERUS_TRACES`, then what `verus trace fetch` brought.
    built_in
        Run the same comparison on built-in channels, which need no recording.
    seed
        Of every run; the first where runs are repeated.
    repeat
        Runs of each cell, where they are repeated. Default: the experiment's own number.
    jobs
        Emulated runs at the same time.
    out
        Folder for results and report (with several experiments, a folder in it for each). Default: a new
        one in `verus-results`; none with --json.
    force
        Replace the results in a folder that is not empty.
    json_
        Print one JSON object a line for each run, and nothing else.
    """
    if names == ["list"]:
        for name, line in experiments.NAMES.items():
            print(f"{name:14} {line}")
        return 0
    check_seed(seed)
    at_least("jobs", jobs, 1, 1000)
    if repeat is not None:
        at_least("repeat", repeat, 1, 1000)
    options = experiments.Options(traces=traces, built_in=built_in, seed=seed, repeat=repeat, jobs=jobs)
    chosen = [experiments.find(name) for name in dict.fromkeys(names or experiments.ALL)]
    work = [experiment.prepare(options) for experiment in chosen]

    from verus import report
    from verus.results import check_folder, new_folder

    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    targets: list[Path | None] = []
    for experiment in chosen:
        target = None if json_ else Path("verus-results") / f"{experiment.name}-{stamp}"
        if out is not None:
            target = out / experiment.name if len(chosen) > 1 else out
        if target is not None:
            check_folder(target, force=force)
        targets.append(target)
    missed = 0
    for experiment, do, target in zip(chosen, work, targets, strict=True):
        with talk.progress(experiment.name) as progress:
            results = do(progress)
        missed += sum(not check.met for check in experiment.checks(results))
        if json_:
            for row in results.to_rows():
                print(json.dumps(row, allow_nan=False))
        elif not talk.quiet:
            console = table_console()
            for part in experiment.summary(results):
                console.print(part)
        if target is not None:
            talk.detail("drawing")
            with new_folder(target, force=force) as folder:
                results.write(folder)
                report.write_page(results, folder)
            talk.say(f"Report: {target / 'report.html'}")
    return TARGET_MISSED if missed else 0
