"""The judgement: finalists, the start and rivals on rows that no candidate was tried on. A folder has one.

`judged.json` is written before the first run, with the time and the finalists. A judgement that was killed goes on with
the same finalists, and no others are judged in that folder.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from verus.errors import FieldError
from verus.lab.repeats import paired
from verus.lab.scenario import Contestant
from verus.lab.store import Keys, Work
from verus.lab.tuning import race
from verus.lab.tuning.folder import TuneFolder
from verus.lab.tuning.overlap import path_of
from verus.lab.tuning.problem import HALVES, JUDGE, TUNE, Problem
from verus.lab.tuning.search import COMPLETE, Evaluation, all_failed, failures, mean, values_of

#: How a finalist compares with the start in an aim.
BETTER, EQUAL, WORSE = "better", "equal", "worse"


def judge(problem: Problem, folder: TuneFolder, work: Work, *, keys: Keys) -> dict[str, Any]:
    """Runs the finalists of a finished search, the start and the rivals on the judged rows.

    Args:
        problem: The search.
        folder: Its folder.
        work: Runs simulations.
        keys: Makes the keys of runs.

    Returns:
        The content of `judged.json`.

    Raises:
        FieldError: The folder is of another search, was judged, or is not finished.
        ValueError: The search has no finalist, or a run of the start fails.
    """
    if not folder.search.exists():
        raise FieldError("judge", f"`{folder.path}` holds no search: `verus tune FILE --out {folder.path}` comes first")
    search = folder.read(folder.search)
    if search.get("identity") != problem.identity(keys):
        raise FieldError("judge", f"`{folder.path}` is of another search, or of another build of the simulator")
    done = len(search.get("candidates", ()))
    if done < problem.candidates:
        raise FieldError(
            "judge", f"{done} of {problem.candidates} candidates are done: without --judge come the others"
        )
    with folder.held():
        if not folder.judged.exists():
            if not search["finalists"]:
                raise ValueError(f"`{folder.path}`: {_no_finalist(search)}: there is nothing to judge")
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            folder.write(folder.judged, {"began": now, "finalists": search["finalists"]})
        judged = folder.read(folder.judged)
        if "senders" in judged:
            raise FieldError(
                "judge",
                f"`{folder.path}` was judged on {judged['began']}, and is judged once: "
                f"`verus report {shlex.quote(str(folder.path))}` shows it",
            )
        schemes = {number: search["candidates"][number]["scheme"] for number in judged["finalists"]}
        every = list(dict.fromkeys([*schemes.values(), problem.scheme, *problem.rivals]))
        failed: dict[str, str] = {}
        rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for half in HALVES:
            evaluation = Evaluation(problem, half, folder, work, keys)
            measured = evaluation.rows(dict.fromkeys(every, range(len(evaluation.runs))))
            failed |= {scheme: own for scheme, own in measured.items() if isinstance(own, str)}
            rows[half] = {scheme: own for scheme, own in measured.items() if not isinstance(own, str)}
        if problem.scheme in failed:
            raise ValueError(f"`{problem.scheme}` {failed[problem.scheme]}")
        telling = {half: _telling(problem, half, list(own.values())) for half, own in rows.items()}
        senders = [_sender(problem, scheme, rows, telling) for scheme in every if scheme not in failed]
        judged = {**judged, "senders": senders, "failed": failed}
        folder.write(folder.judged, judged)
    return judged


def _no_finalist(search: Mapping[str, Any]) -> str:
    """Why a finished search has no finalist."""
    if all_failed(search):
        return f"all candidates failed ({failures(search)})"
    if not any(candidate["state"] == COMPLETE for candidate in search["candidates"]):
        return "no candidate ran all rows"
    return "no candidate meets all bounds"


def _telling(problem: Problem, half: str, senders: Sequence[list[dict[str, Any]]]) -> list[int]:
    """The rows of a half without those that repeat another, since nothing in them depends on the seed."""
    values = [values_of(problem, dict(enumerate(rows)), len(rows)) for rows in senders]
    repeated = race.repeats([path_of(run, problem.scheme) for run in problem.halves[half]], values)
    return [number for number in range(len(problem.halves[half])) if number not in repeated]


def _sender(
    problem: Problem,
    scheme: str,
    rows: Mapping[str, Mapping[str, list[dict[str, Any]]]],
    telling: Mapping[str, Sequence[int]],
) -> dict[str, Any]:
    """A sender on both halves: means, each row, and by how much it is above the start, row by row."""
    above = {
        half: paired(_numbered(own[scheme], telling[half]), _numbered(own[problem.scheme], telling[half]), problem.aims)
        for half, own in rows.items()
    }
    return {
        "scheme": scheme,
        "label": Contestant.from_scheme(scheme).label,
        "means": {half: {name: mean(own[scheme], name) for name in problem.metrics} for half, own in rows.items()},
        "rows": {half: own[scheme] for half, own in rows.items()},
        "above": above,
        "violates": [
            bound.text
            for bound in problem.bounds
            if bound.metric and ((value := mean(rows[JUDGE][scheme], bound.metric)) is None or bound.excess(value) > 0)
        ],
        "verdicts": {half: {aim: verdict(problem, aim, above[half]) for aim in problem.aims} for half in HALVES},
        "gap": {
            aim: above[JUDGE][aim]["mean"] - above[TUNE][aim]["mean"]  # type: ignore[operator]
            for aim in problem.aims
            if aim in above[JUDGE] and aim in above[TUNE]
        },
    }


def _numbered(rows: Sequence[dict[str, Any]], telling: Sequence[int]) -> list[dict[str, Any]]:
    """These rows as `paired` takes them, which pairs by seeds: the number of the row is its seed."""
    return [{**rows[number], "seed": number} for number in telling]


def verdict(problem: Problem, aim: str, above: Mapping[str, Mapping[str, float | int | None]]) -> str:
    """Whether a sender is better than the start in an aim: equal where the interval of the differences has 0 in it."""
    difference = above.get(aim)
    if difference is None or difference["half_width_95"] is None or difference["mean"] is None:
        return EQUAL
    better = problem.sign(aim) * difference["mean"]
    if abs(better) <= difference["half_width_95"]:
        return EQUAL
    return BETTER if better > 0 else WORSE
