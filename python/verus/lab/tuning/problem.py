"""A search, as a TOML file states it: a scheme, ranges of its keys, rows to tune on, rows to judge on, and aims.

A row is one simulation of a candidate: a channel, a queue, a number of flows and a seed, multiplied out as in a study
(`verus.lab.study`). Flows of other senders can be beside those of the candidate (`mix`). A candidate is the scheme with
one value for each key. An aim is a metric's mean over the rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from verus import _verus
from verus.errors import FieldError, near_or_all, shown
from verus.lab import bounded_reading
from verus.lab.arguments import check_seed
from verus.lab.metric_rows import NUMBERS
from verus.lab.sandbox import Budget
from verus.lab.scenario import Contestant, Run
from verus.lab.schema import Scenario
from verus.lab.store import Keys
from verus.lab.study import KEYS, Value, planned_runs
from verus.lab.tuning.overlap import refuse_overlap

#: Senders beside which the start and the finalists are shown.
RIVALS = ("cubic", "bbr", "copa", "forward")

#: Samplers of Optuna by name: Parzen trees (Bergstra 2011), NSGA-II (Deb 2002), CMA-ES (Hansen 2001).
SAMPLERS = ("tpe", "nsga2", "cmaes")

#: The halves of a search: rows on which candidates are tried, and rows that only finalists meet.
TUNE, JUDGE = HALVES = ("tune", "judge")

#: Begins a bound that is a suite.
CHECK = "check:"

#: More candidates of one search are a typing error.
MOST_CANDIDATES = 1_000_000

#: Significant digits with which a number becomes a key of a scheme.
_DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of the scheme, and the values that it may take.

    Attributes:
        name: As the scheme calls it, with its unit (`floor_ms`).
        low: The least value, in that unit; None where there are `choices`.
        high: The greatest.
        step: The distance between two values; None for any value of a range of floats.
        log: Whether values are drawn evenly by their logarithm.
        choices: The values, where these are listed.
    """

    name: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    choices: tuple[Value, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return type(self.low) is int and type(self.high) is int and type(self.step) in (int, type(None))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the file states them."""
        if self.choices:
            return {"choices": list(self.choices)}
        entry: dict[str, Any] = {"from": self.low, "to": self.high}
        return entry | ({} if self.step is None else {"step": self.step}) | ({"log": True} if self.log else {})


def key_text(value: Value) -> str:
    """A value as schemes state it, a float with five significant digits.

    Example:
        >>> key_text(1.23456789), key_text(3), key_text(True), key_text("paper")
        ('1.2346', '3', 'yes', 'paper')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A condition that a candidate must meet.

    Attributes:
        text: As the file states it.
        metric: The metric whose mean over the rows is bounded; empty for a suite.
        least: Whether the limit is the least value, not the greatest.
        limit: The limit, in the metric's unit.
        suite: A suite of `verus check`, where it is one: every check that the start passes must be passed.
    """

    text: str
    metric: str = ""
    least: bool = False
    limit: float = 0.0
    suite: str = ""

    def excess(self, value: float) -> float:
        """By how much the mean of the metric violates the limit, in its unit; at most 0 where it does not."""
        return self.limit - value if self.least else value - self.limit


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A search.

    Attributes:
        name: Of the file, without its ending.
        scheme: The scheme whose keys are searched; without them it is the start.
        keys: Its keys.
        halves: The rows of each of `HALVES`, with the start as their sender.
        most: Metrics of which more is better.
        least: Metrics of which less is better.
        bounds: Conditions.
        rivals: Schemes that finalists are shown beside.
        sampler: One of `SAMPLERS`.
        candidates: How many candidates are tried.
        batch: How many of them are proposed before the results of any are known.
        seed: Seed of the sampler.
        finalists: How many candidates are judged, at most.
        racing: Whether a candidate stops when the rows that it ran show that it is hopeless.
        measure: Adds numbers of one's own to a row, for aims and bounds to name; each by its name.
        measures: The names of these numbers.
        budget: Limits of one run of a controller from a file.
    """

    name: str
    scheme: str
    keys: tuple[Key, ...]
    halves: Mapping[str, tuple[Run, ...]]
    most: tuple[str, ...]
    least: tuple[str, ...]
    bounds: tuple[Bound, ...] = ()
    rivals: tuple[str, ...] = RIVALS
    sampler: str = "tpe"
    candidates: int = 100
    batch: int = 8
    seed: int = 1
    finalists: int = 5
    racing: bool = True
    measure: Callable[[Mapping[str, Any]], Mapping[str, float]] | None = None
    measures: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)

    @property
    def aims(self) -> tuple[str, ...]:
        """The metrics that are aims, those to maximize first."""
        return (*self.most, *self.least)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that aims and bounds name, each once."""
        return tuple(dict.fromkeys([*self.aims, *(bound.metric for bound in self.bounds if bound.metric)]))

    def sign(self, aim: str) -> float:
        """1 for an aim of which more is better, -1 for the others."""
        return 1.0 if aim in self.most else -1.0

    def scheme_text(self, values: Mapping[str, Value]) -> str:
        """The scheme of a candidate with these values of the keys."""
        words = ",".join(f"{name}={key_text(value)}" for name, value in values.items())
        return _verus.with_settings(self.scheme, words)

    def with_sender(self, rows: Sequence[Run], text: str) -> list[Run]:
        """The same rows with another sender in the flows of the search's scheme.

        Raises:
            FieldError: The sender is refused, such as for a value of a key.
        """
        return _with_sender(rows, self.scheme, text)

    def identity(self, keys: Keys) -> str:
        """A digest of all that decides the candidates and their results, except how many there are.

        Args:
            keys: Digests runs: traces, the controller's file and the engine by their contents.

        Raises:
            OSError: A file cannot be read.
        """
        decisive = {
            "runs": {half: [keys.of(run) for run in rows] for half, rows in self.halves.items()},
            "rivals": [keys.of(self.with_sender(self.halves[TUNE][:1], text)[0]) for text in self.rivals],
            "scheme": self.scheme,
            "keys": {key.name: key.to_dict() for key in self.keys},
            "aims": [self.most, self.least, [bound.text for bound in self.bounds], self.measures],
            "search": [self.sampler, self.batch, self.seed, self.racing],
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _with_sender(rows: Sequence[Run], scheme: str, text: str) -> list[Run]:
    """The same rows with another sender in the flows of this scheme.

    Raises:
        FieldError: The sender is refused, such as for a value of a key.
    """
    senders: dict[tuple[str, ...], Contestant] = {}
    made = []
    for run in rows:
        texts = tuple(text if own == scheme else own for own in run.contestant.flows)
        if texts not in senders:
            senders[texts] = Contestant.from_flows(texts)
        flows = [{**flow, "scheme": own} for flow, own in zip(run.scenario["flows"], texts, strict=True)]
        scenario = cast("Scenario", {**run.scenario, "flows": flows})
        made.append(replace(run, contestant=senders[texts], scenario=scenario))
    return made


def read(path: Path) -> Problem:
    """Reads a search.

    Raises:
        OSError: The file, or a trace that it names, cannot be read.
        ValueError: It is not TOML, or states something that cannot be run; the message names file and key.
    """
    try:
        content = tomllib.loads(bounded_reading.given(path, bounded_reading.MOST_TEXT).decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"`{path}`: not TOML: {error}") from error
    try:
        return problem_of(content, path.stem)
    except FieldError as error:
        raise ValueError(f"`{path}`: {error}") from error


def problem_of(
    content: Mapping[str, Any],
    name: str,
    *,
    measure: Callable[[Mapping[str, Any]], Mapping[str, float]] | None = None,
    measures: Sequence[str] = (),
) -> Problem:
    """A search from the content of its file.

    Args:
        content: The tables of the file.
        name: Of the search.
        measure: Adds numbers of one's own to a row.
        measures: Their names.

    Raises:
        OSError: A trace cannot be read.
        FieldError: Something cannot be run; its field is the key, such as ``keys.gain.from``.
    """
    _refuse_unknown(content, ("scheme", "rivals", "keys", *HALVES, "aim", "search"), "")
    for key in ("scheme", "keys", *HALVES, "aim"):
        if key not in content:
            raise FieldError(key, f"is missing: {_MISSING[key]}")
    scheme = _scheme("scheme", content["scheme"])
    rivals = tuple(_scheme("rivals", text) for text in _texts("rivals", content.get("rivals", list(RIVALS))))
    keys = _keys(scheme, _table("keys", content["keys"]))
    tables = {half: _table(half, content[half]) for half in HALVES}
    budget = _budget(tables[TUNE])
    tables[TUNE] = {name: value for name, value in tables[TUNE].items() if name not in _BUDGET}
    halves = _halves(scheme, tables)
    aims = _aims(_table("aim", content["aim"]), (*NUMBERS, *measures))
    search = _search(_table("search", content.get("search", {})), keys, aims)
    return Problem(
        name=name,
        scheme=scheme,
        keys=keys,
        halves=halves,
        rivals=rivals,
        measure=measure,
        measures=tuple(measures),
        budget=budget,
        **aims,
        **search,
    )


_MISSING = {
    "scheme": "which controller?",
    "keys": "which of its keys, and over which values?",
    TUNE: "on which rows are candidates tried?",
    JUDGE: "on which other rows are finalists judged?",
    "aim": "of which metrics should there be `most` or `least`?",
}


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for name in table:
        if name not in known:
            raise FieldError(f"{place}{name}", f"there is no such key{near_or_all(name, known)}")


def _table(field: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FieldError(field, f"must be a table, not {shown(value)}")
    return value


def _texts(field: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise FieldError(field, f"must be a list of texts, not {shown(value)}")
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise FieldError(field, f"has {shown(text)} twice")
    return list(texts)


def _scheme(field: str, text: Any) -> str:
    if not isinstance(text, str):
        raise FieldError(field, f"must be a text, not {shown(text)}")
    try:
        Contestant.from_scheme(text)
    except FieldError as error:
        raise FieldError(field, error.problem) from error
    return text


def _keys(scheme: str, table: Mapping[str, Any]) -> tuple[Key, ...]:
    if not table:
        raise FieldError("keys", "is empty: there is nothing to search")
    set_already = Contestant.from_scheme(scheme).params
    keys = []
    for name, value in table.items():
        field = f"keys.{name}"
        key = _key(name, field, _table(field, value))
        if name in set_already:
            raise FieldError(field, f"`{scheme}` sets it already")
        ends = {"choices": key.choices} if key.choices else {"from": (key.low,), "to": (key.high,)}
        for end, values in ends.items():
            for each in values:
                try:
                    Contestant.from_scheme(_verus.with_settings(scheme, f"{name}={key_text(cast('Value', each))}"))
                except FieldError as error:
                    raise FieldError(f"{field}.{end}", error.problem) from error
        keys.append(key)
    return tuple(keys)


def _key(name: str, field: str, table: Mapping[str, Any]) -> Key:
    """A key from its table.

    Example:
        >>> _key("gain", "keys.gain", {"from": 0.5, "to": 4}).is_whole
        False
    """
    if re.search(r"[\s,:=]", name) or not name:
        raise FieldError(field, "is no name of a key")
    if "choices" in table:
        _refuse_unknown(table, ("choices",), f"{field}.")
        choices = table["choices"]
        if not isinstance(choices, list | tuple) or len(choices) < 2:
            raise FieldError(f"{field}.choices", f"must be a list of at least two values, not {shown(choices)}")
        for index, choice in enumerate(choices):
            if type(choice) not in (str, int, float, bool):
                raise FieldError(f"{field}.choices", f"has {shown(choice)}, which is no value of a key")
            if key_text(choice) in map(key_text, choices[:index]):
                raise FieldError(f"{field}.choices", f"has {shown(choice)} twice")
        return Key(name=name, choices=tuple(choices))
    _refuse_unknown(table, ("from", "to", "step", "log", "choices"), f"{field}.")
    for end in ("from", "to"):
        if end not in table:
            raise FieldError(f"{field}.{end}", "is missing: a range has `from` and `to`; a list is `choices`")
    for end in ("from", "to", "step"):
        if end in table and (type(table[end]) not in (int, float) or not math.isfinite(table[end])):
            raise FieldError(f"{field}.{end}", f"must be a number, not {shown(table[end])}")
    log = table.get("log", False)
    if not isinstance(log, bool):
        raise FieldError(f"{field}.log", f"must be true or false, not {shown(log)}")
    key = Key(name=name, low=table["from"], high=table["to"], step=table.get("step"), log=log)
    assert key.low is not None
    assert key.high is not None
    if not key.low < key.high:
        raise FieldError(f"{field}.to", f"must be above `from`, {key.low:g}, not {key.high:g}")
    if log and key.low <= 0:
        raise FieldError(f"{field}.from", f"must be above 0 for a range by logarithm, not {key.low:g}")
    if log and key.step is not None:
        raise FieldError(f"{field}.step", "is not for a range by logarithm")
    if key.step is not None and not 0 < key.step <= key.high - key.low:
        raise FieldError(f"{field}.step", f"must be above 0 and at most {key.high - key.low:g}, not {key.step:g}")
    return key


def _halves(scheme: str, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Run, ...]]:
    halves: dict[str, tuple[Run, ...]] = {}
    known = [key for key in KEYS if key != "scheme"]
    for half, table in tables.items():
        parts = table.get("part", [])
        for place in (table, *(part for part in parts if isinstance(part, Mapping))):
            _refuse_unknown(place, (*known, *(("part",) if place is table else ("name",))), f"{half}.")
        rows = {**table, "part": [_sent_by(scheme, table, part) for part in parts]} if parts else dict(table)
        if not parts:
            rows = _sent_by(scheme, {}, rows)
        if half == JUDGE and not any("seed" in place for place in (table, *parts)):
            seeds = {run.scenario["seed"] for run in halves[TUNE]}
            rows["seed"] = {"from": max(seeds) + 1, "to": max(seeds) + len(seeds)}
        try:
            halves[half] = tuple(one.run for one in planned_runs(rows))
        except ValueError as error:
            key, _, problem = str(error).partition(": ")
            raise FieldError(f"{half}.{key}", problem) from error
        for run in halves[half]:
            if scheme not in run.contestant.flows:
                raise FieldError(f"{half}.mix", f"`{run.contestant.text}` has no flow of `{scheme}`, which is searched")
    refuse_overlap(halves[TUNE], halves[JUDGE], scheme)
    return halves


def _sent_by(scheme: str, common: Mapping[str, Any], place: Any) -> Any:
    """A table of rows with the scheme as their sender, if they have no mix of senders."""
    if not isinstance(place, Mapping) or "mix" in place or "mix" in common:
        return place
    return {**place, "scheme": scheme}


def _aims(table: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, Any]:
    _refuse_unknown(table, ("most", "least", "bounds"), "aim.")
    named = {side: _texts(f"aim.{side}", table.get(side, [])) for side in ("most", "least")}
    for side, names in named.items():
        for name in names:
            if name not in metrics:
                raise FieldError(f"aim.{side}", f"there is no metric `{name}`{near_or_all(name, metrics)}")
            if side == "least" and name in named["most"]:
                raise FieldError("aim.least", f"`{name}` is in `most`, too")
    if not any(named.values()):
        raise FieldError("aim", "names no metric: give `most` or `least`")
    bounds = tuple(_bound(text, metrics) for text in _texts("aim.bounds", table.get("bounds", [])))
    return {"most": tuple(named["most"]), "least": tuple(named["least"]), "bounds": bounds}


def _bound(text: str, metrics: Sequence[str]) -> Bound:
    """A bound from its text.

    Example:
        >>> _bound("jain >= 0.9", NUMBERS).excess(0.875)
        0.025000000000000022
    """
    if text.startswith(CHECK):
        if not text.removeprefix(CHECK):
            raise FieldError("aim.bounds", f"`{text}` names no suite, as `{CHECK}paths` does")
        return Bound(text=text, suite=text.removeprefix(CHECK))
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=)\s*(\S+)\s*", text)
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or not math.isfinite(limit):
        raise FieldError("aim.bounds", f"`{text}` is not METRIC >= NUMBER, METRIC <= NUMBER or {CHECK}SUITE")
    if match[1] not in metrics:
        raise FieldError("aim.bounds", f"there is no metric `{match[1]}`{near_or_all(match[1], metrics)}")
    return Bound(text=text, metric=match[1], least=match[2] == ">=", limit=limit)


#: The entries of `[tune]` that are a budget, with the least and the greatest of each.
_BUDGET = {"memory_mb": (128, 1 << 20), "cpu_s": (1, 86_400)}


def _budget(table: Mapping[str, Any]) -> Budget:
    """The budget of a run, from `[tune]`; it is that of the judged half, too."""
    given = {name: table[name] for name in _BUDGET if name in table}
    for name, value in given.items():
        least, most = _BUDGET[name]
        if type(value) is not int or not least <= value <= most:
            raise FieldError(f"{TUNE}.{name}", f"must be a whole number from {least} to {most}, not {shown(value)}")
    return Budget(**given)


#: The whole numbers of `[search]`, with the least and the greatest of each.
_NUMBERS = {"candidates": (1, MOST_CANDIDATES), "batch": (1, 1000), "finalists": (1, 100)}


def _search(table: Mapping[str, Any], keys: Sequence[Key], aims: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_unknown(table, ("sampler", *_NUMBERS, "seed", "racing"), "search.")
    for name, (least, most) in _NUMBERS.items():
        value = table.get(name, least)
        if type(value) is not int or not least <= value <= most:
            raise FieldError(f"search.{name}", f"must be a whole number from {least} to {most}, not {shown(value)}")
    if type(table.get("racing", True)) is not bool:
        raise FieldError("search.racing", f"must be true or false, not {shown(table['racing'])}")
    try:
        check_seed(table.get("seed", 1))
    except FieldError as error:
        raise FieldError("search.seed", error.problem) from error
    sampler = table.get("sampler", "tpe")
    if sampler not in SAMPLERS:
        raise FieldError("search.sampler", f"there is no sampler {shown(sampler)}{near_or_all(str(sampler), SAMPLERS)}")
    if sampler == "cmaes":
        if len(aims["most"]) + len(aims["least"]) > 1:
            raise FieldError("search.sampler", "`cmaes` is for one aim: `tpe` and `nsga2` take several")
        if listed := next((key.name for key in keys if key.choices), None):
            raise FieldError("search.sampler", f"`cmaes` is for ranges, and `keys.{listed}` has `choices`")
    return dict(table)
