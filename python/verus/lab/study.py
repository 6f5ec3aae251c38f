"""A study, as a TOML file says it: which values of what are run against each other.

A key is a channel, a scheme, or any other setting of a comparison, and its value one value, a list, or a range
`{ from = 1, to = 5, step = 2 }`, ends included. All lists and ranges are multiplied out. `params` has keys of the
schemes. Each `[[part]]` is such a product of its own, with what stands outside of all parts for what it does not say.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from verus import _verus
from verus.errors import FieldError, near_or_all, shown
from verus.lab import bounded_reading
from verus.lab.arguments import check_seed
from verus.lab.scenario import DEFAULTS, SCHEMA, Contestant, Run, Settings, expanded
from verus.lab.schema import PathOptions, RunOptions, Scenario

#: The types of the schema.
_TYPES: Mapping[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}

#: Settings of which every run of a study has the same.
_FIXED = ("changes", "changes_repeat_s", "bin_ms", "seed")

#: What a study may vary, in the order in which it is multiplied out, seeds innermost; and of what type each value is.
KEYS: Mapping[str, type] = {
    **{
        name: _TYPES[rule["type"] if isinstance(rule["type"], str) else rule["type"][0]]
        for name, rule in SCHEMA["properties"].items()
        if name in ("trace", "queue", *PathOptions.__annotations__, *RunOptions.__annotations__) and name not in _FIXED
    },
    "traffic": str,
    "flows": int,
    "scheme": str,
    "mix": str,
    "seed": int,
}

#: Those of them that are no column of every row of results.
EXTRA = KEYS.keys() - {
    *("trace", "queue", "ack", "delay_ms", "packet_bytes", "duration_s", "flows", "scheme", "mix", "seed")
}

#: What a message calls the values of a type.
_CALLED = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}

#: Settings of a comparison that are lists, by their keys here.
_LISTS = {"trace": "traces", "scheme": "schemes", "mix": "mixes", "queue": "queues"}

#: A study of more runs is a typing error rather than a wish.
MOST_RUNS = 1_000_000

#: A value of a study: what one key is in one run.
Value = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run of a study.

    Attributes:
        run: The simulation; its `part` is the name of the part that it belongs to.
        swept: The columns of the study's own: `EXTRA` that it names, and ``params.KEY``, where the part has them.
    """

    run: Run
    swept: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study with its runs.

    Attributes:
        name: As the file says, or the file's own name.
        columns: The type of each column that its rows have beside those of a comparison.
        runs: In order.
    """

    name: str
    columns: Mapping[str, type]
    runs: Sequence[Planned]


def read(path: Path) -> Study:
    """Reads a study and makes its runs.

    Raises:
        OSError: The file, or a trace that it names, cannot be read.
        ValueError: It is not TOML, or says something that cannot be run; the message names file and key.
    """
    try:
        told = tomllib.loads(bounded_reading.given(path, bounded_reading.MOST_TEXT).decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"`{path}`: not TOML: {error}") from error
    try:
        return _study(told, path.stem)
    except _StudyError as error:
        raise ValueError(f"`{path}`: {error}") from error


def planned_runs(told: Mapping[str, Any]) -> Sequence[Planned]:
    """The runs of a table that is written as a study is.

    Raises:
        OSError: A trace cannot be read.
        ValueError: It says something that cannot be run; the message begins with the key.
    """
    return _study(told, "table").runs


class _StudyError(ValueError):
    """What is wrong, with the key before it."""


def _study(told: Mapping[str, Any], stem: str) -> Study:
    known = (*KEYS, "params", "name", "part")
    _refuse_unknown(told, known, "")
    name = told.get("name", stem)
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise _StudyError(f"name: must be a text that can name a folder, not {shown(name)}")
    parts = told.get("part", [{}])
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise _StudyError("part: must be tables, each under a [[part]] of its own")
    common = {key: value for key, value in told.items() if key not in ("name", "part")}
    runs: list[Planned] = []
    names: list[str] = []
    for number, part in enumerate(parts, 1):
        own = part.get("name", str(number) if "part" in told else "")
        if not isinstance(own, str):
            raise _StudyError(f"part {number}: name: must be a text, not {shown(own)}")
        if own in names:
            raise _StudyError(f"part {number}: name: there is another part `{own}`")
        names.append(own)
        before = f"part `{own}`: " if "part" in told else ""
        _refuse_unknown(part, (*KEYS, "params", "name"), before)
        given = {**common, **{key: value for key, value in part.items() if key != "name"}}
        try:
            runs += _part_runs(own, given)
        except _StudyError as error:
            raise _StudyError(f"{before}{error}") from error
        if len(runs) > MOST_RUNS:
            raise _StudyError(f"more than {MOST_RUNS} runs in all its parts")
    return Study(name=name, columns=_columns(runs), runs=runs)


def _refuse_unknown(told: Mapping[str, Any], known: Sequence[str], before: str) -> None:
    for key in told:
        if key not in known:
            raise _StudyError(f"{before}{key}: there is no such key{near_or_all(key, known)}")


def _part_runs(name: str, told: Mapping[str, Any]) -> Iterator[Planned]:
    """The runs of a part."""
    if "trace" not in told:
        raise _StudyError("trace: is missing: which channels?")
    if "scheme" not in told and "mix" not in told:
        raise _StudyError("scheme: is missing: which controllers? (or `mix`)")
    axes = {key: _spread(key, _values(key, kind, told[key])) for key, kind in KEYS.items() if key in told}
    if "mix" in axes and "flows" in axes:
        raise _StudyError("flows: is for `scheme`: a mix says how many flows it has")
    seeds = cast("list[int]", axes.pop("seed", [DEFAULTS["seed"]]))
    with _filed():
        for seed in (min(seeds), max(seeds)):
            check_seed(seed)
    schemes = _with_params(axes.pop("scheme", []), told.get("params", {}))
    mixes = cast("list[str]", axes.pop("mix", []))
    if "params" in told and not schemes:
        raise _StudyError("params: is for `scheme`: each flow of a mix says its own")
    _refuse_many([len(seeds), len(schemes) + len(mixes), *map(len, axes.values())])
    for values in itertools.product(*axes.values()):
        own = dict(zip(axes, values, strict=True))
        fields: dict[str, Any] = {_LISTS.get(key, key): [v] if key in _LISTS else v for key, v in own.items()}
        with _filed():
            made = Settings(**fields, schemes=[text for text, _ in schemes], mixes=mixes, seed=seeds[0]).runs()
        params = [*(set_to for _, set_to in schemes), *({} for _ in mixes)]
        if len(params) != len(made):
            raise _StudyError("scheme: two of them are the same")
        extra = {key: value for key, value in own.items() if key in EXTRA}
        for run, set_to in zip(made, params, strict=True):
            swept = {**extra, **{f"params.{key}": value for key, value in set_to.items()}}
            for seed in seeds:
                scenario = cast("Scenario", {**run.scenario, "series": False, "seed": seed})
                yield Planned(run=replace(run, scenario=scenario, part=name), swept=swept)


def _refuse_many(lengths: Iterable[int]) -> None:
    """Refuses a product of so many values that it is a typing error, before it is made."""
    if math.prod(lengths) > MOST_RUNS:
        raise _StudyError(f"more than {MOST_RUNS} runs: each value of every key meets every other")


@contextlib.contextmanager
def _filed() -> Iterator[None]:
    """What is wrong with a setting of a comparison, under its key here."""
    try:
        yield
    except FieldError as error:
        key = {plural: key for key, plural in _LISTS.items()}.get(error.field, error.field)
        raise _StudyError(f"{key}: {error.problem}") from error


def _with_params(schemes: Sequence[Any], told: Any) -> list[tuple[str, dict[str, Value]]]:
    """Each scheme with each setting of its keys, and what these are."""
    if not isinstance(told, dict):
        raise _StudyError(f"params: must be a table of keys of the schemes, not {shown(told)}")
    known = {entry["name"]: [key["key"] for key in entry["keys"]] for entry in json.loads(_verus.list_schemes())}
    made = []
    for text in schemes:
        with _filed():
            Contestant.from_scheme(text)
        bare = text.partition(":")[0].strip()
        axes = {}
        for key, value in told.items():
            if bare in known and key not in known[bare]:
                raise _StudyError(f"params.{key}: `{bare}` has no such key{near_or_all(key, known[bare])}")
            axes[key] = _values(f"params.{key}", None, value)
        _refuse_many(map(len, axes.values()))
        for values in itertools.product(*axes.values()):
            own = dict(zip(axes, values, strict=True))
            words = ",".join(f"{key}={_word(value)}" for key, value in own.items())
            whole = text + ("," if ":" in text else ":") * bool(words) + words
            with _filed():
                Contestant.from_scheme(whole)
            made.append((whole, own))
    return made


def _word(value: Value) -> str:
    """A value as schemes have it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _values(key: str, kind: type | None, told: Any) -> list[Value]:
    """The values of a key, in order; of any type without `kind`."""
    if isinstance(told, dict):
        return _range(key, kind, told)
    if not isinstance(told, list):
        return [_value(key, kind, told)]
    if not told:
        raise _StudyError(f"{key}: is an empty list: nothing would be run")
    values = [_value(key, kind, value) for value in told]
    for index, value in enumerate(values):
        if value in values[:index]:
            raise _StudyError(f"{key}: has {shown(value)} twice")
    return values


def _spread(key: str, values: list[Value]) -> list[Value]:
    """The values; a text of a queue as all that it stands for: `codel:target_ms=5,20` is two."""
    if key not in ("scheme", "queue"):
        return values
    with _filed():
        spread = [(str(several), text) for several in values for text in expanded(_LISTS[key], str(several))]
    for index, (several, text) in enumerate(spread):
        if key == "scheme" and several != text:
            raise _StudyError(
                f"scheme: {shown(several)} stands for several: give the values of its keys under `params`"
            )
        if text in (before for _, before in spread[:index]):
            raise _StudyError(f"{key}: has {shown(text)} twice")
    return [text for _, text in spread]


def _value(key: str, kind: type | None, told: Any) -> Value:
    if kind is float and type(told) is int:
        return float(told)
    if type(told) is not kind if kind else type(told) not in _CALLED:
        wanted = _CALLED[kind] if kind else "a number, a text, or true or false"
        raise _StudyError(f"{key}: must be {wanted}, not {shown(told)}")
    return cast("Value", told)


def _range(key: str, kind: type | None, told: Mapping[str, Any]) -> list[Value]:
    """The values of `{ from, to, step }`.

    Example:
        >>> _range("loss", float, {"from": 0, "to": 0.3, "step": 0.1}), _range("seed", int, {"from": 1, "to": 3})
        ([0.0, 0.1, 0.2, 0.3], [1, 2, 3])
    """
    if kind in (str, bool):
        raise _StudyError(f"{key}: must be {_CALLED[cast('type', kind)]} or a list, not a range")
    for name in told:
        if name not in ("from", "to", "step"):
            raise _StudyError(f"{key}.{name}: there is no such key{near_or_all(name, ('from', 'to', 'step'))}")
    for name in ("from", "to"):
        if name not in told:
            raise _StudyError(f"{key}.{name}: is missing: a range has `from`, `to` and, if it is not 1, `step`")
    for name, value in told.items():
        if type(value) is not int and (kind is int or type(value) is not float):
            raise _StudyError(f"{key}.{name}: must be {_CALLED[kind or float]}, not {shown(value)}")
    # Decimal fractions: 0.1 three times is 0.3, as it is written.
    try:
        low, high, step = (Decimal(str(told.get(name, 1))) for name in ("from", "to", "step"))
        count = int((high - low) / step) + 1 if step > 0 and high >= low else 0
    except ArithmeticError:
        count = 0
    if not 1 <= count <= MOST_RUNS:
        problem = f"must lead upwards, in at most {MOST_RUNS} steps above 0"
        raise _StudyError(f"{key}: {problem}, not {shown(dict(told))}")
    whole = kind is int or (kind is None and all(type(value) is int for value in told.values()))
    return [int(low + step * index) if whole else float(low + step * index) for index in range(count)]


def _columns(runs: Sequence[Planned]) -> dict[str, type]:
    """The study's own columns: numbers where all values are, texts where some are."""
    found: dict[str, set[type]] = {}
    for planned in runs:
        for name, value in planned.swept.items():
            found.setdefault(name, set()).add(type(value))
    return {name: float if kinds <= {int, float} else bool if kinds == {bool} else str for name, kinds in found.items()}
