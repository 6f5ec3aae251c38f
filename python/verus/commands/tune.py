"""`verus tune`: a search over a controller's constants, from a file, and its judgement."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus.commands.options import COUNT, Flag, Json, one
from verus.commands.sweep import work_on
from verus.commands.tables import table_console
from verus.commands.talk import Talk, tell_rows
from verus.errors import FieldError
from verus.lab import store
from verus.lab.arguments import at_least
from verus.lab.store import Keys
from verus.lab.tuning.folder import TuneFolder
from verus.lab.tuning.judging import judge as judge_finalists
from verus.lab.tuning.problem import read
from verus.lab.tuning.search import Search
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
    json_
        Print one JSON object a line for each candidate of the front; with --judge for each sender that was judged.
    """
    if jobs is not None:
        at_least("jobs", jobs, 1, 1000)
        if cluster is not None:
            raise FieldError("jobs", "is for this machine; a cluster has as many as its workers")
    problem = read(search)
    folder = TuneFolder(Path("verus-results") / problem.name if out is None else out)
    folder.check()
    keys = Keys(store.engine())
    work = functools.partial(work_on, jobs, cluster, None)
    if judge:
        with _kept(folder), talk.progress(f"judging {problem.name}") as progress:
            judged = judge_finalists(problem, folder, functools.partial(work_on, jobs, cluster, progress), keys=keys)
        if json_:
            tell_rows(judged["senders"])
        elif not talk.quiet:
            table_console().print(judged_table(folder.read(folder.search), judged).terminal())
        talk.say(f"Judged on {judged['began']}; `verus report {folder.path}` draws the page")
        return 0
    made = Search(problem, folder, work, keys=keys, checks=checks_of(problem, jobs))
    with _kept(folder), talk.progress(problem.name) as progress:
        found = made.run(progress)
    if json_:
        tell_rows(found["candidates"][number] for number in found["front"])
    elif not talk.quiet:
        table_console().print(front_table(found).terminal())
    talk.say(saved(found))
    talk.say(f"Search: {folder.path} (`verus report {folder.path}` draws its page)")
    return 0


@contextlib.contextmanager
def _kept(folder: TuneFolder) -> Iterator[None]:
    """Says of Ctrl-C that nothing is lost.

    Raises:
        KeyboardInterrupt: Ctrl-C; this is its text.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        told = f"interrupted; what is done is kept in `{folder.path}`; the same command goes on from there"
        raise KeyboardInterrupt(told) from error
