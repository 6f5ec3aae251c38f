"""`verus check`: published suites, with their thresholds, against any sender."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus import _verus, suites
from verus.commands.options import COUNT, Flag, Json, one, words
from verus.commands.talk import Talk, tell, tell_rows
from verus.errors import FieldError, near_or_all
from verus.lab.arguments import at_least, check_seed
from verus.lab.atomic_write import refuse_existing, write_whole
from verus.lab.results_folder import check_folder, new_folder, new_name
from verus.lab.scenario import MOST_REPETITIONS, OWNERS, Contestant, distinct
from verus.suites import Suite, judge
from verus.suites.explain import explained, listed

#: It ran, but a published threshold was missed.
MISSED = 3


def check(
    schemes: Annotated[list[str] | None, Parameter(name="SCHEME", negative="")] = None,
    /,
    *,
    suite: Annotated[list[str] | None, words("SUITE")] = None,
    row: Annotated[list[str] | None, words("NAME")] = None,
    list_: Annotated[bool, Parameter(name="--list", negative="", show_default=False)] = False,
    explain: Annotated[str | None, one("NAME")] = None,
    seed: Annotated[int, COUNT] = 1,
    seeds: Annotated[int | None, COUNT] = None,
    jobs: Annotated[int | None, COUNT] = None,
    virtual: Flag = False,
    junit: Annotated[Path | None, one("FILE")] = None,
    json_: Json = False,
    out: Annotated[Path | None, one("DIR")] = None,
    force: Flag = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Run published test suites against controllers: each test's value, its threshold, and whether it passed.

    Exit code 3 if a threshold is missed that its source states for the controller tested. Tests that a source states
    for other controllers are shown for comparison, and do not affect the exit code.

    Parameters
    ----------
    schemes
        Controllers to test, at least one: `NAME[:key=value,…]`, such as `cubic` or `verus:ratio=2`.
    suite
        Suites: names from `--list`, or files of your own (`*.toml`). Default: all that come with Verus.
    row
        Only tests (rows) of these names, such as `c4/c4_alone`; `*` stands for any characters.
    list_
        List the suites and their tests, and run none.
    explain
        Describe the test of this name: its scenario, its threshold and its source; run none.
    seed
        The first seed.
    seeds
        Runs of each test with different seeds, at the most; the worst counts. Default: as many as its source asks for,
        or ten.
    jobs
        Cores to use. Default: all.
    virtual
        Run real senders, such as `linux:cc=cubic`, on virtual time, behind the emulator (`verus virtual build`).
    junit
        Write the verdicts as JUnit XML, too.
    json_
        Print one JSON object a line for each test and controller, and nothing else.
    out
        Folder for results and page. Default: a new one in `verus-results`; none with --json.
    force
        Replace the results in a folder that is not empty, and the file of `--junit`.
    """
    chosen = _chosen(suite, row)
    if list_:
        for line in listed(chosen):
            tell(line)
        return 0
    if explain is not None:
        for line in explained(chosen, explain):
            tell(line)
        return 0
    contestants = _contestants(schemes or [], virtual=virtual)
    check_seed(seed)
    if seeds is not None:
        at_least("seeds", seeds, 1, MOST_REPETITIONS)
    if jobs is not None:
        at_least("jobs", jobs, 1, 1000)
    if junit is not None:
        refuse_existing(junit, force=force, field="junit")
    target = out if out is not None or json_ else new_name("check")
    if target is not None:
        check_folder(target, force=force)

    with talk.progress("emulating" if virtual else "simulating") as progress:
        verdicts = judge.judge(
            chosen,
            contestants,
            seed=seed,
            seeds=seeds,
            threads=jobs,
            progress=progress,
            virtual=virtual,
        )
    if json_:
        tell_rows(verdict.to_dict() for verdict in verdicts)
    elif not talk.quiet:
        from verus.commands.tables import table_console
        from verus.suites.show import tables

        console = table_console()
        for block in tables(chosen, verdicts):
            console.print(block)
    if junit is not None:
        from verus.suites.junit import to_xml

        write_whole(junit, to_xml(verdicts), field="junit")
    if target is not None:
        from verus.suites.page import write

        with new_folder(target, force=force) as folder:
            write(folder, chosen, verdicts, seed=seed)
        talk.say(f"Report: {target / 'report.html'}")
    return MISSED if any(verdict.failed for verdict in verdicts) else 0


def _contestants(schemes: list[str], *, virtual: bool) -> list[Contestant]:
    """The senders with these names.

    Raises:
        ValueError: There is none, or one cannot be used.
    """
    if not schemes:
        raise ValueError("SCHEME: name at least one sender, such as `verus check cubic` (`verus list schemes`)")
    for text in schemes:
        if not virtual and (whose := OWNERS.get(_verus.runs_in(text))):
            raise ValueError(f"SCHEME: `{text}` is {whose}: it runs on virtual time only (--virtual)")
    try:
        return distinct([Contestant.from_scheme(text) for text in dict.fromkeys(schemes)])
    except FieldError as error:
        raise ValueError(f"SCHEME: {error.problem}") from error


def _chosen(names: list[str] | None, patterns: list[str] | None) -> list[Suite]:
    """The suites with these names, or all, reduced to the rows that match the patterns."""
    loaded = []
    for name in dict.fromkeys(names or suites.NAMES):
        suite = suites.load(name)
        judge.check_measures(suite, name)
        loaded.append(suite)
    name_of: dict[str, str] = {}
    for suite, name in zip(loaded, dict.fromkeys(names or suites.NAMES), strict=True):
        if suite.name in name_of:
            raise FieldError("suite", f"`{name_of[suite.name]}` and `{name}` are both called `{suite.name}`")
        name_of[suite.name] = name
    if not patterns:
        return loaded
    row_ids = [identity for suite in loaded for row in suite.rows for identity in row.ids()]
    for pattern in patterns:
        if not fnmatch.filter(row_ids, pattern):
            raise FieldError("row", f"there is no row `{pattern}`{near_or_all(pattern, row_ids)}")
    return [suite for suite in (suite.with_rows(patterns) for suite in loaded) if suite.rows]
