"""`verus tune`: a search over a controller's constants, from a file, and its judgement."""

from __future__ import annotations

import contextlib
import functools
import shlex
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus.commands.options import COUNT, Flag, Json, one
from verus.commands.tables import table_console
from verus.commands.talk import Talk, tell_rows
from verus.errors import FieldError
from verus.lab import store
from verus.lab.arguments import at_least
from verus.lab.inputs import cut_warnings
from verus.lab.runner import Ended, as_ended
from verus.lab.sandbox import Sandbox
from verus.lab.store import Keys
from verus.lab.tuning.folder import TuneFolder
from verus.lab.tuning.judging import judge as judge_finalists
from verus.lab.tuning.problem import Problem, read
from verus.lab.tuning.search import Search, all_failed, failures
from verus.report.printable import line
from verus.report.tune_page import front_table, judged_table, saved
from verus.suites.bounds import checks_of


def tune(
    search: Annotated[Path, Parameter(name="SEARCH")],
    /,
    *,
    out: Annotated[Path | None, one("DIR")] = None,
    judge: Flag = False,
    jobs: Annotated[int | None, COUNT] = None,
    cluster: Annotated[str | None, one("WORKERS")] = None,
    sandbox: Annotated[bool, Parameter(name="--sandbox", negative="--no-sandbox", show_default=False)] = True,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Search over a controller's constants: candidates are tried on the rows under `[tune]` of a file.

    Each run is saved as it ends, and the same command, given again, goes on where it was interrupted. With --judge the
    best candidates run on the rows under `[judge]`, once, beside the controller as it was and its rivals.

    Parameters
    ----------
    search
        The TOML file of the search (docs/tutorials/tuning.md).
    out
        Folder of the search. Default: `verus-results/NAME`.
    judge
        Judge the finalists of the finished search. A folder is judged once.
    jobs
        Cores to use. Default: all of them.
    cluster
        Run on Dask workers: `tcp://HOST:PORT` of a scheduler, or `local:N` for N processes of this machine.
    sandbox
        Load and run Python files in confined processes. Without it they may do what you may do.
    json_
        Print one JSON object a line for each candidate of the front; with --judge for each sender that was judged.
    """
    if jobs is not None:
        at_least("jobs", jobs, 1, 1000)
        if cluster is not None:
            raise FieldError("jobs", "is for this machine; a cluster has as many as its workers")
    box = Sandbox()
    with box.used() if sandbox else contextlib.nullcontext():
        problem = read(search)
        box.budget = problem.budget
        return _tuned(problem, out=out, judge=judge, jobs=jobs, cluster=cluster, json_=json_, talk=talk)


def _tuned(
    problem: Problem, *, out: Path | None, judge: bool, jobs: int | None, cluster: str | None, json_: bool, talk: Talk
) -> int:
    """Searches or judges; the exit code."""
    folder = TuneFolder(Path("verus-results") / problem.name if out is None else out)
    folder.check()
    for warning in cut_warnings(run.scenario for rows in problem.halves.values() for run in rows):
        talk.say(f"Warning: {warning}")
    keys = Keys(store.engine())
    with _kept(folder), talk.progress(problem.name) as progress, _workers(jobs, cluster) as work:
        if judge:
            outcome = judge_finalists(problem, folder, functools.partial(work, progress=progress), keys=keys)
        else:
            checks = checks_of(problem, jobs)
            outcome = Search(problem, folder, work, keys=keys, checks=checks).run(progress)
    if judge:
        if json_:
            tell_rows(outcome["senders"])
        elif not talk.quiet:
            table_console().print(judged_table(folder.read(folder.search), outcome).terminal())
        for scheme, why in outcome["failed"].items():
            talk.say(f"Warning: `{scheme}` failed {why}")
        talk.say(f"Judged on {outcome['began']}; `verus report {shlex.quote(str(folder.path))}` draws the page")
        return 0
    if json_:
        tell_rows(outcome["candidates"][number] for number in outcome["front"])
    elif not talk.quiet:
        table_console().print(front_table(outcome).terminal())
    talk.say(saved(outcome))
    talk.say(f"Search: {folder.path} (`verus report {shlex.quote(str(folder.path))}` draws its page)")
    if all_failed(outcome):
        print(line(f"verus: {failures(outcome)}"), file=sys.stderr)
        return 1
    if problem_of_some := failures(outcome):
        talk.say(f"Warning: {problem_of_some}")
    return 0


@contextlib.contextmanager
def _workers(jobs: int | None, cluster: str | None) -> Iterator[Callable[..., Generator[tuple[int, Ended]]]]:
    """Runs simulations on so many cores of this machine, or on the workers of a cluster, connected once."""
    if cluster is None:
        yield functools.partial(as_ended, threads=jobs, columns=False)
        return
    from verus.lab import cluster as dask

    with dask.connected(cluster) as client:
        yield functools.partial(dask.as_ended, address=cluster, client=client)


@contextlib.contextmanager
def _kept(folder: TuneFolder) -> Iterator[None]:
    """Says of Ctrl-C that nothing is lost.

    Raises:
        KeyboardInterrupt: Ctrl-C; this is its text.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        problem = f"interrupted; what is done is kept in `{folder.path}`; the same command goes on from there"
        raise KeyboardInterrupt(problem) from error
