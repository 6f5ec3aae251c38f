"""Rows of suites, run with senders and judged: the measured value, its threshold, and the verdict."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from verus.endpoints import emulation
from verus.errors import FieldError, near_or_all
from verus.lab.runner import Ended, Progress, measure_each, run_each
from verus.lab.scenario import LINUX_SCHEMES, Contestant, Run
from verus.lab.schema import Scenario
from verus.report.wanted import Wanted
from verus.suites import EXCUSES, IGNORED, Check, Row, Suite, When, with_sender
from verus.suites.bbr_states import FINE_MS, STATES, states
from verus.suites.measures import ENDS, MEASURES
from verus.suites.seen import METRICS, RECORDS, HiddenError, NotSeenError, NotTriedError, Seen

PASSED, MISSED, MEASURED = "passed", "missed", "measured"
NOT_TRIED, NOT_RUN, NOT_APPLICABLE = "not tried", "cannot be run", "not applicable"

#: The meaning of each verdict.
VERDICTS = {
    PASSED: "the value is what the source asks for",
    MISSED: "it is not",
    MEASURED: "the source asks for no number: the value is shown",
    NOT_TRIED: "what the row is about arose in none of its runs: they say nothing of the sender",
    NOT_RUN: "why, stands beside it",
    NOT_APPLICABLE: "the source states the row for other senders, or real ones cannot be judged by it",
}

#: Kinds of rows that decide the exit code.
GATING = ("published", "law")

#: Reasons why a row concerns a sender.
OWN, COMPARED = "own", "compared"

#: The duration of a transfer's run, as a multiple of its largest threshold.
_PATIENCE = 3.0
#: Scenarios that are simulated before they are judged and forgotten: a whole suite's time series
#: and packets do not fit in memory.
_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row of a report; its fields are what `--json` prints.

    Attributes:
        suite: Name of the suite.
        row: Name of the row, `suite/row` or `suite/row/check`.
        scheme: The sender under test, as given.
        label: Its label, for tables.
        concerns: `own` if the source states the row for this sender, `compared` if it only runs for
            comparison.
        kind: The origin of the number, a key of `verus.suites.KINDS`.
        gates: Whether missing it fails the command.
        measure: The quantity.
        unit: The unit of the value.
        wanted: Its threshold, with the unit.
        value: The worst of all runs; None where there is none.
        verdict: One of `VERDICTS`.
        why: The reason why it could not be run or has no value.
        seeds: Runs of each scenario, with different seeds, that the value is the worst of.
        tried: The number of the row's runs in which its condition arose.
        runs: The number of the row's runs, over all its scenarios and seeds.
        asked_seeds: Runs that the row asks for.
        about: The scenario and its threshold.
        source: Where it is published.
        note: A remark about its numbers.
        margin: How many times better the value is than its threshold, below 1 if it is worse; None
            without such a ratio.
    """

    suite: str
    row: str
    scheme: str
    label: str
    concerns: str
    kind: str
    gates: bool
    measure: str
    unit: str
    wanted: str
    value: float | str | None
    verdict: str
    why: str
    seeds: int
    asked_seeds: int
    about: str
    source: str
    note: str
    margin: float | None
    tried: int = 0
    runs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @property
    def left_out(self) -> bool:
        """Whether it concerns the sender and could not be judged."""
        return self.verdict == NOT_RUN or (self.verdict == NOT_APPLICABLE and bool(self.concerns))

    @property
    def failed(self) -> bool:
        """Whether it makes the command exit with another code than 0."""
        return self.gates and self.verdict == MISSED


def check_measures(suite: Suite, file: str) -> None:
    """Refuses checks of quantities that are not measured.

    Raises:
        ValueError: A quantity is unknown; the message names file, row and field.
    """
    for row in suite.rows:
        place = f"`{file}`, row `{row.id.partition('/')[2]}`"
        if row.when is not None and row.when.state not in STATES:
            raise ValueError(
                f"{place}, when: there is no state `{row.when.state}`{near_or_all(row.when.state, STATES)}"
            )
        for check in row.checks:
            if row.unit_test or row.needs:
                continue  # its measure is only a text for readers
            if check.measure not in MEASURES:
                raise ValueError(
                    f"{place}: there is no measure `{check.measure}`{near_or_all(check.measure, MEASURES)}"
                )
            try:
                MEASURES[check.measure].check_options(check.options)
            except FieldError as error:
                raise ValueError(f"{place}: `{error.field}` {error.problem}") from error
            _check_times(row, check, place)
            flow = check.options.get("flow", 0)
            if row.cases and flow not in range(len(row.cases[0].scenario["flows"])):
                raise ValueError(f"{place}: `options.flow` must be the number of a flow, counted from 0, not {flow}")


def _check_times(row: Row, check: Check, place: str) -> None:
    """Refuses times of a row that no run of it reaches."""
    scenarios = [one for case in row.cases for one in (case.scenario, case.baseline) if one is not None]
    for scenario in scenarios:
        end_s = scenario_of(scenario, row, check, "", 1)["duration_s"]
        from_s, to_s = (check.options.get(name, at) for name, at in (("from_s", 0.0), ("to_s", end_s)))
        times = {"options.from_s": from_s, "when.from_s": 0.0 if row.when is None else row.when.from_s}
        times |= {f"flows[{index}].start_s": flow.get("start_s", 0.0) for index, flow in enumerate(scenario["flows"])}
        for field, at_s in times.items():
            if at_s >= end_s:
                raise ValueError(f"{place}: `{field}` must be before the end of the run, {end_s:g} s, not {at_s:g}")
        if row.when is None and from_s < 0:
            raise ValueError(f"{place}: `options.from_s` must be 0 or more, not {from_s:g}")
        if to_s <= from_s:
            raise ValueError(f"{place}: `options.to_s` must be above `from_s`, {from_s:g}, not {to_s:g}")


def judge(
    suites: Sequence[Suite],
    contestants: Sequence[Contestant],
    *,
    seed: int = 1,
    seeds: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    virtual: bool = False,
) -> list[Verdict]:
    """Runs every row that concerns a sender, and returns the verdicts.

    Args:
        suites: The suites; rows that were removed from them are not run.
        contestants: The senders under test.
        seed: The first seed.
        seeds: Runs of each row at the most; as many as it asks for if None.
        threads: Cores to use; all of them if None.
        progress: Called from time to time.
        virtual: Whether real senders run on virtual time, each run in a guest kernel of its own.

    Raises:
        As `run_each`; on virtual time as `emulation.as_ended`.
    """
    places = [
        (row, contestant)
        for suite in suites
        for contestant in contestants
        for row in suite.rows
        if _concern(row, contestant) is not None and row.cases and not (virtual and row.when)
    ]
    moments = _moments(places, seed, seeds, threads)
    sought_by = {
        (row.id, sender.text): list(_sought(row, sender, seed, _runs_of(row, seeds), moments)) for row, sender in places
    }
    run = _emulate if virtual else _simulate
    values = run([one for sought in sought_by.values() for one in sought], threads, progress)
    return [
        verdict
        for suite in suites
        for contestant in contestants
        for row in suite.rows
        for verdict in _verdicts(suite, row, contestant, sought_by.get((row.id, contestant.text), []), values, seeds)
    ]


def missed(suite: Suite, scheme: str, *, threads: int | None = None) -> frozenset[str]:
    """The names of the checks of a suite that a scheme misses."""
    verdicts = judge([suite], [Contestant.from_scheme(scheme)], threads=threads)
    return frozenset(verdict.row for verdict in verdicts if verdict.verdict == MISSED)


def _concern(row: Row, contestant: Contestant) -> str | None:
    scheme = LINUX_SCHEMES.get(contestant.params["cc"], "") if contestant.scheme == "linux" else contestant.scheme
    if row.names(scheme):
        return OWN
    return COMPARED if row.compares else None


def _runs_of(row: Row, seeds: int | None) -> int:
    return row.seeds if seeds is None else min(seeds, row.seeds)


#: The begin of the state that times a row, s, by the scenario until then; or the error that it
#: never came.
_Moments = Mapping[str, "float | NotTriedError"]


def _moments(places: Sequence[tuple[Row, Contestant]], seed: int, seeds: int | None, threads: int | None) -> _Moments:
    """Runs the scenarios of rows that are timed by a state once without their changes, to find its begin.

    Until the first change both runs are the same, so the state begins at the same time in the row's
    own run.
    """
    timed: dict[str, When] = {}
    for row, sender in places:
        for case in row.cases if row.when is not None else ():
            for number in range(seed, seed + _runs_of(row, seeds)):
                timed[_unchanged(case.scenario, sender, number)] = cast("When", row.when)
    moments: dict[str, float | NotTriedError] = {}
    for text, outcome in zip(timed, run_each([_run(text) for text in timed], threads=threads), strict=True):
        moments[text] = _moment(timed[text], json.loads(text), outcome)
    return moments


def _moment(when: When, scenario: Mapping[str, Any], outcome: Ended) -> float | NotTriedError:
    if isinstance(outcome, RuntimeError):
        return NotTriedError(f"the sender failed: {outcome}")
    seen = Seen(scenario=scenario, outcome=outcome, options={})
    bin_s = float(scenario["bin_ms"]) / 1e3
    try:
        for stay in states(seen):
            if stay.state == when.state and stay.first * bin_s >= when.from_s:
                return stay.first * bin_s
    except NotSeenError as error:
        return NotTriedError(str(error))
    return NotTriedError(f"it was never in {when.state}")


def _unchanged(case_scenario: Mapping[str, Any], sender: Contestant, seed: int) -> str:
    return _text({**with_sender(case_scenario, sender.text, seed), "changes": [], "series": True, "bin_ms": FINE_MS})


@dataclass(frozen=True)
class _Sought:
    """A value to measure: a check of a scenario, divided by that of its baseline if there is one.

    Attributes:
        check: The row's check.
        timed: The same check, its times counted from the run's beginning.
        text: The scenario; None if the state that the row counts from never came.
        baseline: The scenario whose value divides it.
        untried: The reason why nothing is run.
    """

    check: Check
    timed: Check
    text: str | None
    baseline: str | None = None
    untried: NotTriedError | None = None


def _sought(row: Row, sender: Contestant, seed: int, seeds: int, moments: _Moments) -> Iterator[_Sought]:
    for check, case, number in itertools.product(row.checks, row.cases, range(seed, seed + seeds)):
        at = 0.0 if row.when is None else moments[_unchanged(case.scenario, sender, number)]
        if isinstance(at, NotTriedError):
            yield _Sought(check, check, None, untried=at)
            continue
        text, baseline = (
            None if scenario is None else _text(scenario_of(_from(scenario, row, at), row, check, sender.text, number))
            for scenario in (case.scenario, None if check.baseline == IGNORED else case.baseline)
        )
        yield _Sought(check, _timed(check, row, at), text, baseline)


def _from(scenario: Mapping[str, Any], row: Row, at: float) -> Mapping[str, Any]:
    """The scenario, with its changes counted from the end of the bin in which the state began."""
    if row.when is None:
        return scenario
    begun = at + FINE_MS / 1e3
    changes = [{**change, "at_s": round(begun + change["at_s"], 9)} for change in scenario["changes"]]
    return {**scenario, "changes": changes}


def _timed(check: Check, row: Row, at: float) -> Check:
    """The check with its times counted from that moment."""
    if row.when is None:
        return check
    options = {"from_s": 0.0, **check.options}
    times = {name: round(at + value, 9) for name, value in options.items() if name in ("from_s", "to_s")}
    return replace(check, options={**options, **times})


def scenario_of(case_scenario: Mapping[str, Any], row: Row, check: Check, scheme: str, seed: int) -> dict[str, Any]:
    """The complete scenario of a check."""
    measure = MEASURES[check.measure]
    scenario: dict[str, Any] = {**with_sender(case_scenario, scheme, seed)}
    scenario["series"] = measure.keeps != METRICS
    scenario["records"] = measure.keeps == RECORDS
    if measure.bin_ms is not None:
        scenario["bin_ms"] = measure.bin_ms
    limits = [one.wanted.most for one in row.checks if one.measure in ENDS and one.wanted.most is not None]
    if limits:
        scenario["duration_s"] = _PATIENCE * max(limits)
    return scenario


def _text(scenario: Mapping[str, Any]) -> str:
    return json.dumps(scenario, allow_nan=False, sort_keys=True)


class NotApplicableError(ValueError):
    """The emulator cannot judge the sender by this row."""


#: The value of a check in a scenario, or the reason why there is none.
_Value = float | str | NotSeenError | NotTriedError | NotApplicableError | None
_Values = Mapping[tuple[str, str, str], _Value]


def _key(check: Check, text: str) -> tuple[str, str, str]:
    return text, check.measure, json.dumps(check.options, sort_keys=True)


def _simulate(sought: Iterable[_Sought], threads: int | None, progress: Progress | None) -> _Values:
    """Runs each scenario once, and keeps only the values that its checks ask for."""
    checks = _checks_of(sought)
    values: dict[tuple[str, str, str], _Value] = {}
    done = 0
    for simulate, is_plain in ((measure_each, True), (run_each, False)):
        texts = [text for text, own in checks.items() if (MEASURES[own[0].measure].keeps == METRICS) == is_plain]
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            runs = [_run(text) for text in batch]
            outcomes = simulate(runs, threads=threads, progress=_shifted(progress, done, len(checks)))
            done += len(batch)
            for text, run, outcome in zip(batch, runs, outcomes, strict=True):
                for check in checks[text]:
                    key = _key(check, text)
                    if key not in values:
                        values[key] = _measured(check, run.scenario, outcome)
    return values


def _emulate(sought: Iterable[_Sought], threads: int | None, progress: Progress | None) -> _Values:
    """As `_simulate`, on virtual time. A scenario that the emulator refuses has no value."""
    checks = _checks_of(sought)
    if not checks:
        return {}
    runs = {text: _emulated(text) for text in checks}
    refused = dict(zip(runs, emulation.refusals(list(runs.values()), virtual=True), strict=True))
    values: dict[tuple[str, str, str], _Value] = {}

    def note(text: str, value: Callable[[Check], _Value]) -> None:
        values.update((_key(check, text), value(check)) for check in checks[text])

    for text, reason in refused.items():
        if reason is not None:
            note(text, lambda _, reason=reason: NotApplicableError(reason))  # type: ignore[misc]
    texts = [text for text in runs if refused[text] is None]
    chosen = [runs[text] for text in texts]
    work = emulation.as_ended(
        chosen, jobs=threads or len(os.sched_getaffinity(0)), progress=progress, virtual=True, packets=True
    )
    for index, outcome in work:
        text, scenario = texts[index], json.loads(texts[index])
        note(text, lambda check, scenario=scenario, outcome=outcome: _shown(_measured(check, scenario, outcome)))  # type: ignore[misc]
    return values


def _emulated(text: str) -> Run:
    """The run of a scenario, as the emulator takes it: it records packets by another option."""
    run = _run(text)
    return replace(run, scenario=cast("Scenario", {**run.scenario, "records": False}))


def _shown(value: _Value) -> _Value:
    """The value; not applicable if only the simulator shows it."""
    return NotApplicableError(str(value)) if isinstance(value, HiddenError) else value


def _checks_of(sought: Iterable[_Sought]) -> dict[str, list[Check]]:
    """The checks of each scenario."""
    checks: dict[str, list[Check]] = {}
    for one in sought:
        for text in filter(None, (one.text, one.baseline)):
            checks.setdefault(text, []).append(one.timed)
    return checks


def _run(text: str) -> Run:
    scenario = json.loads(text)
    flows = tuple(flow["scheme"] for flow in scenario["flows"])
    contestant = Contestant(text=flows[0], scheme=flows[0], params={}, label=flows[0], flows=flows)
    return Run(trace=scenario["trace"], queue=scenario["queue"], contestant=contestant, scenario=scenario)


def _shifted(progress: Progress | None, done: int, total: int) -> Progress | None:
    if progress is None:
        return None

    def tell(finished: int, count: int, fraction: float) -> None:
        progress(done + finished, total, (done + fraction * count) / total)

    return tell


def _measured(check: Check, scenario: Mapping[str, Any], outcome: Ended) -> _Value:
    if isinstance(outcome, RuntimeError):
        return NotSeenError(f"the sender failed: {outcome}")
    try:
        value = MEASURES[check.measure].of(Seen(scenario=scenario, outcome=outcome, options=check.options))
    except (NotSeenError, NotTriedError) as error:
        return error
    return None if isinstance(value, float) and math.isnan(value) else value


def _verdicts(
    suite: Suite, row: Row, contestant: Contestant, sought: Sequence[_Sought], values: _Values, seeds: int | None
) -> Iterator[Verdict]:
    concern = _concern(row, contestant)
    for check in row.checks:
        unit = _unit(row, check)
        if concern is None:
            judged = _Judged(None, NOT_APPLICABLE, f"is for {', '.join(row.controllers)}")
        elif row.needs:
            judged = _Judged(None, NOT_RUN, f"needs {row.needs}")
        elif row.unit_test:
            judged = _Judged(None, NOT_RUN, f"no scenario shows it: asserted by the unit test {row.unit_test}")
        elif not sought:
            judged = _Judged(None, NOT_APPLICABLE, "its times count from a state that only the simulator shows")
        else:
            judged = _judged(check, [one for one in sought if one.check is check], values)
        yield Verdict(
            suite=suite.name,
            row=row.id_of(check),
            scheme=contestant.text,
            label=contestant.label,
            concerns=concern or "",
            kind=row.kind,
            gates=concern == OWN and row.kind in GATING,
            measure=check.measure,
            unit=unit,
            wanted=check.told(unit),
            seeds=_runs_of(row, seeds) if sought else 0,
            asked_seeds=row.seeds,
            about=row.about,
            source=row.source,
            note=" ".join(text for text in (row.note, row.deviation and f"Deviation: {row.deviation}") if text),
            margin=check.wanted.margin(judged.value),
            **vars(judged),
        )


def _unit(row: Row, check: Check) -> str:
    """The unit of the value; empty for a ratio to a baseline."""
    return "" if row.divides(check) or check.measure not in MEASURES else MEASURES[check.measure].unit


@dataclass(frozen=True)
class _Judged:
    """The result of a check over all its runs: the worst value, the verdict, and the reason if there is no value."""

    value: float | str | None
    verdict: str
    why: str = ""
    tried: int = 0
    runs: int = 0


def _judged(check: Check, runs: Sequence[_Sought], measured: _Values) -> _Judged:
    values: list[float | str] = []
    excused: list[float | str] = []
    untried: list[str] = []
    missed: list[str] = []
    for one in runs:
        value = one.untried if one.text is None else measured[_key(one.timed, one.text)]
        base = 1.0 if one.baseline is None else measured[_key(one.timed, one.baseline)]
        if isinstance(value, NotApplicableError) or isinstance(base, NotApplicableError):
            return _Judged(None, NOT_APPLICABLE, str(value if isinstance(value, NotApplicableError) else base))
        if isinstance(value, NotTriedError):
            untried.append(str(value))
        elif isinstance(value, NotSeenError) or isinstance(base, NotSeenError):
            missed.append(str(value if isinstance(value, NotSeenError) else base))
        elif value is None or base is None:
            missed.append("did not happen while the run lasted")
        elif isinstance(value, str) or not isinstance(base, int | float):
            values.append(value)
        elif check.baseline == EXCUSES:
            (excused if _as_required_of(base, check.wanted).holds(value) else values).append(value)
        elif base == 0:
            missed.append("the run to compare with has nothing of it")
        else:
            values.append(value / base)
    tried = len(runs) - len(untried)
    if missed:
        return _Judged(None, MISSED, missed[0], tried, len(runs))
    if not values and not excused:
        return _Judged(None, NOT_TRIED, untried[0], tried, len(runs))
    verdict = MEASURED if not check.wanted else PASSED if all(map(check.wanted.holds, values)) else MISSED
    # An excused value must not hide one that is missed.
    shown = excused + values if verdict == PASSED else values
    return _Judged(check.wanted.worst(shown), verdict, "", tried, len(runs))


def _as_required_of(base: float, wanted: Wanted) -> Wanted:
    """The threshold at the baseline's own value: `most` or `least`, as in the check."""
    return Wanted(least=base) if wanted.most is None else Wanted(most=base)
