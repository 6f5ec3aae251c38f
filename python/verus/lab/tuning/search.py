"""The loop: proposes candidates with a sampler of Optuna, and races them over the tuned rows.

The result does not depend on interruptions. Each proposal has its own seed, and is drawn from the candidates of earlier
batches. Outcomes of runs are in the store. So a search that was killed and resumed proposes the same candidates, and
ends with the same front.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from verus.errors import FieldError
from verus.lab import store
from verus.lab.metric_rows import rows as metric_rows
from verus.lab.runner import Progress
from verus.lab.scenario import Contestant, Run
from verus.lab.store import Keys, Work, complete
from verus.lab.study import Value
from verus.lab.tuning import race
from verus.lab.tuning.folder import TuneFolder
from verus.lab.tuning.overlap import is_mixed, path_of
from verus.lab.tuning.problem import HALVES, TUNE, Bound, Key, Problem, key_text

Entry = TypeVar("Entry")

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

#: States of a candidate.
COMPLETE, STOPPED, BROKEN = "complete", "stopped", "broken"

#: Finds the checks of a suite that a scheme misses.
Check = Callable[[str], frozenset[str]]

#: Candidates of a generation of NSGA-II.
_POPULATION = 20


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A candidate, and what came of it on the tuned rows.

    Attributes:
        number: In the order of proposals, from 0.
        scheme: Its text.
        params: The value of each key.
        state: `complete` if it ran all rows, `stopped` if it was hopeless before, `broken` if a run failed or an aim
            was not observed.
        rows: How many rows it ran.
        means: The mean of each metric over the rows, each in its unit; of a stopped candidate's aims an estimate.
        excess: By how much it violates each bound, by the bound's text; at most 0 where it does not.
        why: Why it is broken.
    """

    number: int
    scheme: str
    params: Mapping[str, Value]
    state: str
    rows: int
    means: Mapping[str, float] = field(default_factory=dict)
    excess: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    @property
    def is_feasible(self) -> bool:
        """Whether it ran all rows and meets all bounds."""
        return self.state == COMPLETE and all(value <= 0 for value in self.excess.values())


def needed_optuna() -> Any:
    """The module `optuna`.

    Raises:
        ValueError: It is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ValueError(f"`verus tune` needs Optuna: pip install 'verus-cc[tune]' ({error})") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Evaluation:
    """Runs senders over the rows of a half, with outcomes kept, and gives the metrics of each row.

    Args:
        problem: The search.
        half: Which rows: `tune` or `judge`.
        folder: Where outcomes are kept.
        work: Runs the missing simulations.
        keys: Makes the keys of runs.
    """

    def __init__(self, problem: Problem, half: str, folder: TuneFolder, work: Work, keys: Keys) -> None:
        self.problem = problem
        self.runs = problem.halves[half]
        self._store = folder.store
        self._work = work
        self._keys = keys
        self._known: dict[tuple[str, int], dict[str, Any]] = {}

    def rows(self, senders: Mapping[str, Sequence[int]]) -> dict[str, list[dict[str, Any]] | str]:
        """The metrics of rows, which are run unless their outcomes are there.

        Args:
            senders: The rows of each scheme, by number.

        Returns:
            For each scheme its rows in that order, or why one of them failed.
        """
        by_scheme: dict[str, list[dict[str, Any]] | str] = {}
        planned: list[tuple[str, int, Run, str]] = []
        for scheme, numbers in senders.items():
            missing = [number for number in numbers if (scheme, number) not in self._known]
            try:
                runs = self.problem.with_sender([self.runs[number].without_series() for number in missing], scheme)
            except FieldError as error:
                by_scheme[scheme] = error.problem
                continue
            planned += [(scheme, number, run, self._keys.of(run)) for number, run in zip(missing, runs, strict=True)]
        runs, keys = [run for _, _, run, _ in planned], [key for _, _, _, key in planned]
        failed = complete(runs, keys, self._store, self._work, made=self._keys)
        for scheme, number, run, key in planned:
            if key in failed:
                by_scheme.setdefault(scheme, f"over {run.trace}, seed {run.scenario['seed']}: {failed[key]}")
            else:
                (row,) = metric_rows([run], [self._store.outcome(key)])
                self._known[scheme, number] = self._measured(row)
        for scheme, numbers in senders.items():
            by_scheme.setdefault(scheme, [self._known[scheme, number] for number in numbers if scheme not in by_scheme])
        return by_scheme

    def _measured(self, row: dict[str, Any]) -> dict[str, Any]:
        """The metrics of a row that the search needs, and the numbers of the caller's own."""
        own = {} if self.problem.measure is None else self.problem.measure(row)
        known = {**row, **{name: float(value) for name, value in own.items()}}
        return {name: known.get(name) for name in self.problem.metrics}

    def of_all(self, schemes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """All rows of these schemes.

        Raises:
            ValueError: A run failed.
        """
        by_scheme = {}
        for scheme, rows in self.rows(dict.fromkeys(schemes, range(len(self.runs)))).items():
            if isinstance(rows, str):
                raise ValueError(f"`{scheme}` {rows}")
            by_scheme[scheme] = rows
        return by_scheme

    def seconds(self, numbers: Sequence[int]) -> float:
        """The simulated seconds of these rows, each flow by itself: what their work is proportional to."""
        return sum(
            self.runs[number].scenario["duration_s"] * len(self.runs[number].contestant.flows) for number in numbers
        )


def mean(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The mean of a metric over the rows that observed it; None if none did."""
    known = [row[metric] for row in rows if row.get(metric) is not None]
    return sum(known) / len(known) if known else None


def _means(problem: Problem, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each metric of a search."""
    return {name: value for name in problem.metrics if (value := mean(rows, name)) is not None}


def values_of(problem: Problem, rows: Mapping[int, Mapping[str, Any]], count: int) -> race.Values:
    """The aims of the rows that a sender ran, more being better, as a race compares them."""
    values = np.full((count, len(problem.aims)), math.nan)
    for number, row in rows.items():
        for column, aim in enumerate(problem.aims):
            if (value := row.get(aim)) is not None:
                values[number, column] = problem.sign(aim) * value
    return values


class Search:
    """A search in its folder.

    Args:
        problem: What is searched.
        folder: Where.
        work: Runs simulations.
        keys: Makes the keys of runs.
        checks: For the suite of each bound such as ``check:paths``, what finds the checks that a scheme misses.

    Raises:
        ValueError: Optuna is not installed, the start cannot be run, or it observes no value of an aim.
        FieldError: The folder is of another search.
    """

    def __init__(
        self, problem: Problem, folder: TuneFolder, work: Work, *, keys: Keys, checks: Mapping[str, Check] | None = None
    ) -> None:
        self._optuna = needed_optuna()
        self.problem = problem
        self.folder = folder
        self.evaluation = Evaluation(problem, TUNE, folder, work, keys)
        self._checks = checks or {}
        for bound in problem.bounds:
            if bound.suite and bound.suite not in self._checks:
                raise FieldError("aim.bounds", f"`{bound.text}` cannot be run here")
        self._missed: dict[tuple[str, str], frozenset[str]] = {}
        self._about = {"engine": store.engine(), "identity": problem.identity(keys), **_described(problem)}
        folder.begin(self._about)

    def run(self, progress: Progress | None = None) -> dict[str, Any]:
        """Tries all candidates that are still to be tried; what it writes to `search.json`.

        Args:
            progress: Called after each look at a batch.
        """
        with self.folder.held(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that parts of Optuna are experimental
            self._begin()
            done = self._done()
            if self.folder.judged.exists() and len(done) < self.problem.candidates:
                began = self.folder.read(self.folder.judged)["began"]
                raise FieldError(
                    "out",
                    f"`{self.folder.path}` was judged on {began}: a search that goes on needs another folder, and "
                    "other rows to judge on",
                )
            summary = self._summary(done)
            while len(done) < self.problem.candidates:
                self._batch(done, progress)
                done = self._done()
                summary = self._summary(done)
                self.folder.write(self.folder.search, {**self._about, **summary})
            self.folder.write(self.folder.search, {**self._about, **summary})
        return {**self._about, **summary}

    def _begin(self) -> None:
        """Opens the journal, and runs the start and its rivals over all rows."""
        optuna = self._optuna
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder.journal))
        directions = ["maximize"] * len(self.problem.aims)
        self._study: Study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="tune",
            directions=directions,
            load_if_exists=True,
        )
        self.fixed = self.evaluation.of_all(list(dict.fromkeys([self.problem.scheme, *self.problem.rivals])))
        values = {scheme: self._values(scheme) for scheme in self.fixed}
        self.start = values[self.problem.scheme]
        for column, aim in enumerate(self.problem.aims):
            if np.isnan(self.start[:, column]).all():
                raise ValueError(f"`{self.problem.scheme}` has no `{aim}` in any row of `tune`: choose another aim")
        for bound in self.problem.bounds:
            if bound.metric and mean(self.fixed[self.problem.scheme], bound.metric) is None:
                raise ValueError(f"`{self.problem.scheme}` has no `{bound.metric}` in any row of `tune`: {bound.text}")
        paths = [path_of(run, self.problem.scheme) for run in self.evaluation.runs]
        self.order = race.row_order(paths)
        self._looks = race.looks(len(paths), len(set(paths)))
        self._repeats = race.repeats(paths, list(values.values()))

    def _done(self) -> list[Candidate]:
        """The candidates of which all is known, by number."""
        trials = self._study.get_trials(deepcopy=False)
        return [Candidate(**trial.user_attrs["candidate"]) for trial in trials if trial.state.is_finished()]

    def _batch(self, done: Sequence[Candidate], progress: Progress | None) -> None:
        """Proposes and races the candidates of a batch, and tells the sampler what came of them."""
        batch, numbers = self.problem.batch, {candidate.number for candidate in done}
        first = next(number for number in range(len(done) + 1) if number not in numbers) // batch * batch
        last = min(first + batch, self.problem.candidates)
        proposed = {number: self._proposed(number) for number in range(first, last) if number not in numbers}
        trials = {number: trial for number, (trial, _) in proposed.items()}
        params = {number: values for number, (_, values) in proposed.items()}
        known = [candidate for candidate in done if candidate.number < first]
        share = len(done) / self.problem.candidates, len(trials) / self.problem.candidates

        def tell(fraction: float) -> None:
            if progress is not None:
                progress(len(done), self.problem.candidates, share[0] + share[1] * fraction)

        for candidate in self.raced(params, known, tell):
            trial = trials[candidate.number]
            trial.set_user_attr("candidate", asdict(candidate))
            signed = [self.problem.sign(aim) * candidate.means.get(aim, math.nan) for aim in self.problem.aims]
            for text, value in candidate.excess.items():
                trial.set_constraint(text, value)
            self._study.sampler = self._sampler(candidate.number, 0)
            states = self._optuna.trial.TrialState
            if candidate.state == COMPLETE:
                self._study.tell(trial, signed)
            elif candidate.state == STOPPED:
                if len(signed) == 1:
                    trial.report(signed[0], step=candidate.rows)
                self._study.tell(trial, state=states.PRUNED)
            else:
                self._study.tell(trial, state=states.FAIL)

    def raced(
        self,
        params: Mapping[int, Mapping[str, Value]],
        known: Sequence[Candidate],
        tell: Callable[[float], None] = lambda _: None,
    ) -> list[Candidate]:
        """Races candidates against each other and against those of earlier batches.

        Args:
            params: The values of each candidate's keys, by its number.
            known: The candidates that are known already.
            tell: Called with the share of the work that is done.
        """
        problem, count = self.problem, len(self.evaluation.runs)
        best = [self._values(candidate.scheme) for candidate in self.front(known)]
        if all(value <= 0 for value in self._excess(problem.scheme, self.fixed[problem.scheme]).values()):
            best.append(self.start)
        schemes = {number: problem.scheme_text(values) for number, values in params.items()}
        ended: dict[int, Candidate] = {}
        for look in self._looks if problem.racing else [count]:
            telling = [row for row in self.order[:look] if row not in self._repeats]
            running = [number for number in params if number not in ended]
            measured = self.evaluation.rows({schemes[number]: self.order[:look] for number in running})
            values: dict[int, race.Values] = {}
            for number in running:
                own_rows = measured[schemes[number]]
                candidate = Candidate(
                    number=number, scheme=schemes[number], params=params[number], state=BROKEN, rows=look
                )
                why = own_rows if isinstance(own_rows, str) else self._unobserved(own_rows, look)
                if isinstance(own_rows, str) or why:
                    ended[number] = replace(candidate, why=why)
                elif look < count:
                    values[number] = values_of(problem, dict(zip(self.order, own_rows, strict=False)), count)
                else:
                    ended[number] = self._complete(candidate, own_rows)
            others = {number: own for number, own in values.items() if self._may_be_feasible(measured[schemes[number]])}
            for number, own in values.items():
                mates = [mate for other, mate in others.items() if other != number]
                if race.is_hopeless(own, [*best, *mates], telling):
                    signed = race.estimate(own, self.start, self.order[:look])
                    means = {aim: problem.sign(aim) * value for aim, value in zip(problem.aims, signed, strict=True)}
                    ended[number] = Candidate(
                        number=number,
                        scheme=schemes[number],
                        params=params[number],
                        state=STOPPED,
                        rows=look,
                        means=means,
                    )
            tell(len(ended) / len(params) if look < count else 1.0)
        return [ended[number] for number in sorted(ended)]

    def _complete(self, candidate: Candidate, rows: Sequence[Mapping[str, Any]]) -> Candidate:
        """A candidate that ran all rows; broken if it has no value of a bound's metric."""
        means = _means(self.problem, rows)
        for bound in self.problem.bounds:
            if bound.metric and bound.metric not in means:
                return replace(candidate, why=f"`{bound.metric}` was observed in no row")
        return replace(candidate, state=COMPLETE, means=means, excess=self._excess(candidate.scheme, rows))

    def _may_be_feasible(self, rows: Sequence[Mapping[str, Any]] | str) -> bool:
        """Whether a candidate meets all bounds on the rows that it ran; no, if suites are still to say."""
        for bound in self.problem.bounds:
            value = None if bound.suite or isinstance(rows, str) else mean(rows, bound.metric)
            if value is None or bound.excess(value) > 0:
                return False
        return True

    def _unobserved(self, rows: Sequence[Mapping[str, Any]], look: int) -> str:
        """Why rows of a candidate count as a failure: it has no value of an aim where the start has one."""
        for number, row in zip(self.order[:look], rows, strict=True):
            for column, aim in enumerate(self.problem.aims):
                if row.get(aim) is None and not math.isnan(self.start[number, column]):
                    run = self.evaluation.runs[number]
                    return f"over {run.trace}, seed {run.scenario['seed']}: no `{aim}` was observed"
        return ""

    def _values(self, scheme: str) -> race.Values:
        """The values of a sender that ran all rows."""
        (rows,) = self.evaluation.of_all([scheme]).values()
        return values_of(self.problem, dict(enumerate(rows)), len(rows))

    def _excess(self, scheme: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """By how much a sender violates each bound; a suite only if all other bounds are met."""
        excess = {}
        for bound in sorted(self.problem.bounds, key=lambda bound: bool(bound.suite)):
            if not bound.suite:
                value = mean(rows, bound.metric)
                assert value is not None  # such a candidate is broken, and such a start refused
                excess[bound.text] = bound.excess(value)
            elif all(value <= 0 for value in excess.values()):
                excess[bound.text] = float(len(self._misses(bound, scheme) - self._misses(bound, self.problem.scheme)))
        return excess

    def _misses(self, bound: Bound, scheme: str) -> frozenset[str]:
        """The checks of a bound's suite that a scheme misses."""
        key = bound.suite, scheme
        if key not in self._missed:
            self._missed[key] = self._checks[bound.suite](scheme)
        return self._missed[key]

    def front(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that meet all bounds and are not dominated, by the first aim."""
        problem = self.problem
        feasible = [
            (candidate, [problem.sign(aim) * candidate.means[aim] for aim in problem.aims])
            for candidate in candidates
            if candidate.is_feasible
        ]
        kept: list[tuple[Candidate, list[float]]] = []
        for candidate, values in feasible:
            if any(race.is_dominated_by(values, other) for _, other in feasible):
                continue
            if not any(values == other for _, other in kept):
                kept.append((candidate, values))
        return [candidate for candidate, values in sorted(kept, key=lambda pair: (*(-v for v in pair[1]),))]

    def finalists(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates to be judged: of several aims from the front, evenly along the first aim; of one the best."""
        most, aims = self.problem.finalists, self.problem.aims
        if len(aims) > 1:
            return thinned(self.front(candidates), most)
        distinct = {candidate.scheme: candidate for candidate in reversed(candidates) if candidate.is_feasible}
        sign = self.problem.sign(aims[0])
        best = sorted(distinct.values(), key=lambda one: (-sign * one.means[aims[0]], one.number))
        return best[:most]

    def _summary(self, done: Sequence[Candidate]) -> dict[str, Any]:
        """What came of the candidates, as plain values."""
        every = range(len(self.evaluation.runs))
        ran = sum(candidate.rows for candidate in done)
        seconds = sum(self.evaluation.seconds(self.order[: candidate.rows]) for candidate in done)
        return {
            "order": self.order,
            "fixed": [
                {
                    "scheme": scheme,
                    "label": Contestant.from_scheme(scheme).label,
                    "means": _means(self.problem, rows),
                }
                for scheme, rows in self.fixed.items()
            ],
            "candidates": [asdict(candidate) for candidate in done],
            "front": [candidate.number for candidate in self.front(done)],
            "finalists": [candidate.number for candidate in self.finalists(done)],
            "importance": self._importance(done),
            "runs": {"done": ran, "all": len(done) * len(every)},
            "simulated_s": {"done": seconds, "all": len(done) * self.evaluation.seconds(every)},
        }

    def _importance(self, done: Sequence[Candidate]) -> dict[str, dict[str, float]]:
        """The share of an aim's variance that each key explains (fANOVA, Hutter 2014), over the complete candidates."""
        optuna, importance = self._optuna, {}
        if sum(candidate.state == COMPLETE for candidate in done) < _LEAST_FOR_IMPORTANCE:
            return {}
        for column, aim in enumerate(self.problem.aims):
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=1)
            try:
                shares = optuna.importance.get_param_importances(
                    self._study,
                    evaluator=evaluator,
                    target=lambda trial, column=column: trial.values[column],
                )
            except (RuntimeError, ValueError):  # all candidates came to the same
                continue
            importance[aim] = {name: float(share) for name, share in shares.items() if math.isfinite(share)}
        return importance

    def _proposed(self, number: int) -> tuple[Trial, dict[str, Value]]:
        """The proposal of that number, begun if it is not there, and the values of its keys.

        A value that is not there yet, since the process was killed, is drawn with its own seed, as it would have been.
        """
        trials = self._study.get_trials(deepcopy=False)
        self._study.sampler = self._sampler(number, 0)
        if number == len(trials):
            trial: Trial = self._study.ask()
        else:
            trial = self._optuna.trial.Trial(self._study, trials[number]._trial_id)
        trial.relative_params  # noqa: B018 (drawn together, with the first seed)
        values = {}
        for index, key in enumerate(self.problem.keys, 1):
            self._study.sampler = self._sampler(number, index)
            values[key.name] = _suggest(trial, key)
        return trial, values

    def _sampler(self, number: int, draw: int) -> BaseSampler:
        """The sampler, with a seed for this draw of this proposal alone."""
        samplers = self._optuna.samplers
        digest = hashlib.sha256(f"{self.problem.seed} {number} {draw}".encode()).digest()
        seed = int.from_bytes(digest[:4])
        made: BaseSampler
        if self.problem.sampler == "nsga2":
            made = samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
        elif self.problem.sampler == "cmaes":
            made = samplers.CmaEsSampler(seed=seed, consider_pruned_trials=True, warn_independent_sampling=False)
        else:
            made = samplers.TPESampler(seed=seed)
        return made


def failures(search: Mapping[str, Any]) -> str:
    """How many candidates of a search are broken, and why the first is; empty if none is.

    Example:
        >>> broken = {"state": "broken", "scheme": "a.py:A", "why": "over rate:8, seed 1: no more"}
        >>> failures({"candidates": [broken, {"state": "complete"}]})
        '1 of 2 candidates failed; the first, `a.py:A`, over rate:8, seed 1: no more'
    """
    broken = [candidate for candidate in search["candidates"] if candidate["state"] == BROKEN]
    if not broken:
        return ""
    first = broken[0]
    return (
        f"{len(broken)} of {len(search['candidates'])} candidates failed; the first, `{first['scheme']}`, "
        f"{first['why']}"
    )


def all_failed(search: Mapping[str, Any]) -> bool:
    """Whether a search has candidates, and every one is broken."""
    states = {candidate["state"] for candidate in search["candidates"]}
    return states == {BROKEN}


def thinned(front: Sequence[Entry], most: int) -> list[Entry]:
    """At most so many of a front, evenly along it, both ends among them.

    Example:
        >>> thinned([7, 3, 9, 4, 8], 3), thinned([7, 3], 3), thinned([7, 3], 1)
        ([7, 9, 8], [7, 3], [7])
    """
    if len(front) <= most or most == 1:
        return list(front[:most])
    return [front[round(index * (len(front) - 1) / (most - 1))] for index in range(most)]


#: Importance of keys is stated from so many complete candidates on.
_LEAST_FOR_IMPORTANCE = 8


def _suggest(trial: Trial, key: Key) -> Value:
    """A value of a key, as it is in the scheme: a float with no more digits than that."""
    if key.choices:
        return cast("Value", trial.suggest_categorical(key.name, key.choices))
    assert key.low is not None
    assert key.high is not None
    if key.is_whole:
        step = 1 if key.step is None else int(key.step)
        return trial.suggest_int(key.name, int(key.low), int(key.high), step=step, log=key.log)
    return float(key_text(trial.suggest_float(key.name, key.low, key.high, step=key.step, log=key.log)))


def _described(problem: Problem) -> dict[str, Any]:
    """A search as plain values, for its page."""
    return {
        "name": problem.name,
        "scheme": problem.scheme,
        "keys": {key.name: key.to_dict() for key in problem.keys},
        "most": list(problem.most),
        "least": list(problem.least),
        "bounds": [bound.text for bound in problem.bounds],
        "rivals": list(problem.rivals),
        "sampler": problem.sampler,
        "planned": problem.candidates,
        "rows": {half: [_row(run) for run in problem.halves[half]] for half in HALVES},
    }


def _row(run: Run) -> dict[str, Any]:
    """What tells a row from the others."""
    row = {"part": run.part, "trace": run.trace, "queue": run.queue, "flows": len(run.contestant.flows)}
    if is_mixed(run):
        row["mix"] = run.contestant.text
    return {**row, "delay_ms": run.scenario["delay_ms"], "seed": run.scenario["seed"]}
