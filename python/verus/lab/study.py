"""A study in a TOML file: the values of each setting that are run against each other.

A key is a channel, a scheme, or any other setting of a comparison. Its value is one value, a list,
or a range `{ from = 1, to = 5, step = 2 }`, ends included. All lists and ranges are multiplied out.
`params` has keys of the schemes. Each `[[part]]` is a separate product, which inherits the keys
outside of all parts.
"""

from __future__ import annotations

import contextlib
import itertools
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

#: Settings that are the same in every run of a study.
_FIXED = ("changes", "changes_repeat_s", "bin_ms", "seed")

#: Keys that a study may vary, in the order in which they are multiplied out, seeds innermost, and
#: the type of their values.
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

#: Keys that are no column of every row of results.
EXTRA = KEYS.keys() - {
    *("trace", "queue", "ack", "delay_ms", "packet_bytes", "duration_s", "flows", "scheme", "mix", "seed")
}

#: The name of a type in messages.
_CALLED = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}

#: Settings of a comparison that are lists, by their keys here.
_LISTS = {"trace": "traces", "scheme": "schemes", "mix": "mixes", "queue": "queues"}

#: The most runs of a study: more are probably a typing error.
MOST_RUNS = 1_000_000

#: The value of one key in one run.
Value = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run of a study.

    Attributes:
        run: The simulation; its `part` is the name of the part that it belongs to.
        swept: The study's own columns: `EXTRA` that it names, and ``params.KEY``, where the part
            has them.
    """

    run: Run
    swept: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study with its runs.

    Attributes:
        name: The name in the file, or the file's name.
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
        ValueError: It is not TOML, or has invalid settings; the message names file and key.
    """
    try:
        table = tomllib.loads(bounded_reading.given(path, bounded_reading.MOST_TEXT).decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"`{path}`: not TOML: {error}") from error
    try:
        return _study(table, path.stem)
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
    """A problem, with the key before it."""


def _study(table: Mapping[str, Any], stem: str) -> Study:
    valid_keys = (*KEYS, "params", "name", "part")
    _refuse_unknown(table, valid_keys, "")
    name = table.get("name", stem)
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise _StudyError(f"name: must be a text that can name a folder, not {shown(name)}")
    parts = table.get("part", [{}])
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise _StudyError("part: must be tables, each under a [[part]] of its own")
    common = {key: value for key, value in table.items() if key not in ("name", "part")}
    runs: list[Planned] = []
    names: list[str] = []
    for number, part in enumerate(parts, 1):
        part_name = part.get("name", str(number) if "part" in table else "")
        if not isinstance(part_name, str):
            raise _StudyError(f"part {number}: name: must be a text, not {shown(part_name)}")
        if part_name in names:
            raise _StudyError(f"part {number}: name: there is another part `{part_name}`")
        names.append(part_name)
        before = f"part `{part_name}`: " if "part" in table else ""
        _refuse_unknown(part, (*KEYS, "params", "name"), before)
        settings = {**common, **{key: value for key, value in part.items() if key != "name"}}
        try:
            runs += _part_runs(part_name, settings)
        except _StudyError as error:
            raise _StudyError(f"{before}{error}") from error
        if len(runs) > MOST_RUNS:
            raise _StudyError(f"more than {MOST_RUNS} runs in all its parts")
    return Study(name=name, columns=_columns(runs), runs=runs)


def _refuse_unknown(table: Mapping[str, Any], valid_keys: Sequence[str], before: str) -> None:
    for key in table:
        if key not in valid_keys:
            raise _StudyError(f"{before}{key}: there is no such key{near_or_all(key, valid_keys)}")


def _part_runs(name: str, table: Mapping[str, Any]) -> Iterator[Planned]:
    """The runs of a part."""
    if "trace" not in table:
        raise _StudyError("trace: is missing: which channels?")
    if "scheme" not in table and "mix" not in table:
        raise _StudyError("scheme: is missing: which controllers? (or `mix`)")
    axes = {key: _spread(key, _values(key, kind, table[key])) for key, kind in KEYS.items() if key in table}
    if "mix" in axes and "flows" in axes:
        raise _StudyError("flows: is for `scheme`: a mix says how many flows it has")
    seeds = cast("list[int]", axes.pop("seed", [DEFAULTS["seed"]]))
    with _filed():
        for seed in (min(seeds), max(seeds)):
            check_seed(seed)
    schemes = _with_params(axes.pop("scheme", []), table.get("params", {}))
    mixes = cast("list[str]", axes.pop("mix", []))
    if "params" in table and not schemes:
        raise _StudyError("params: is for `scheme`: each flow of a mix says its own")
    _refuse_many([len(seeds), len(schemes) + len(mixes), *map(len, axes.values())])
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        fields: dict[str, Any] = {_LISTS.get(key, key): [v] if key in _LISTS else v for key, v in point.items()}
        with _filed():
            made = Settings(**fields, schemes=[text for text, _ in schemes], mixes=mixes, seed=seeds[0]).runs()
        params = [*(set_to for _, set_to in schemes), *({} for _ in mixes)]
        if len(params) != len(made):
            raise _StudyError("scheme: two of them are the same")
        extra = {key: value for key, value in point.items() if key in EXTRA}
        for run, set_to in zip(made, params, strict=True):
            swept = {**extra, **{f"params.{key}": value for key, value in set_to.items()}}
            for seed in seeds:
                scenario = cast("Scenario", {**run.scenario, "series": False, "seed": seed})
                yield Planned(run=replace(run, scenario=scenario, part=name), swept=swept)


def _refuse_many(lengths: Iterable[int]) -> None:
    """Refuses a product of too many values, which is probably a typing error, before it is made."""
    if math.prod(lengths) > MOST_RUNS:
        raise _StudyError(f"more than {MOST_RUNS} runs: each value of every key meets every other")


@contextlib.contextmanager
def _filed() -> Iterator[None]:
    """Renames the setting in a comparison's error to its key here."""
    try:
        yield
    except FieldError as error:
        key = {plural: key for key, plural in _LISTS.items()}.get(error.field, error.field)
        raise _StudyError(f"{key}: {error.problem}") from error


def _with_params(schemes: Sequence[Any], params: Any) -> list[tuple[str, dict[str, Value]]]:
    """Each scheme with each combination of its keys' values, and these values."""
    if not isinstance(params, dict):
        raise _StudyError(f"params: must be a table of keys of the schemes, not {shown(params)}")
    keys_of = {entry["name"]: [key["key"] for key in entry["keys"]] for entry in _verus.list_schemes()}
    made = []
    for text in schemes:
        with _filed():
            bare = Contestant.from_scheme(text).scheme
        axes = {}
        for key, value in params.items():
            if bare in keys_of and key not in keys_of[bare]:
                raise _StudyError(f"params.{key}: `{bare}` has no such key{near_or_all(key, keys_of[bare])}")
            axes[key] = _values(f"params.{key}", None, value)
        _refuse_many(map(len, axes.values()))
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            words = ",".join(f"{key}={_word(value)}" for key, value in point.items())
            whole = _verus.with_settings(text, words)
            with _filed():
                Contestant.from_scheme(whole)
            made.append((whole, point))
    return made


def _word(value: Value) -> str:
    """A value in the syntax of schemes."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _values(key: str, kind: type | None, written: Any) -> list[Value]:
    """The values of a key, in order; of any type without `kind`."""
    if isinstance(written, dict):
        return _range(key, kind, written)
    if not isinstance(written, list):
        return [_value(key, kind, written)]
    if not written:
        raise _StudyError(f"{key}: is an empty list: nothing would be run")
    values = [_value(key, kind, value) for value in written]
    for index, value in enumerate(values):
        if value in values[:index]:
            raise _StudyError(f"{key}: has {shown(value)} twice")
    return values


def _spread(key: str, values: list[Value]) -> list[Value]:
    """The values; the text of several queues is expanded: `codel:target_ms=5,20` is two."""
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


def _value(key: str, kind: type | None, value: Any) -> Value:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind if kind else type(value) not in _CALLED:
        expected = _CALLED[kind] if kind else "a number, a text, or true or false"
        raise _StudyError(f"{key}: must be {expected}, not {shown(value)}")
    return cast("Value", value)


def _range(key: str, kind: type | None, bounds: Mapping[str, Any]) -> list[Value]:
    """The values of `{ from, to, step }`.

    Example:
        >>> _range("loss", float, {"from": 0, "to": 0.3, "step": 0.1}), _range("seed", int, {"from": 1, "to": 3})
        ([0.0, 0.1, 0.2, 0.3], [1, 2, 3])
    """
    if kind in (str, bool):
        raise _StudyError(f"{key}: must be {_CALLED[cast('type', kind)]} or a list, not a range")
    for name in bounds:
        if name not in ("from", "to", "step"):
            raise _StudyError(f"{key}.{name}: there is no such key{near_or_all(name, ('from', 'to', 'step'))}")
    for name in ("from", "to"):
        if name not in bounds:
            raise _StudyError(f"{key}.{name}: is missing: a range has `from`, `to` and, if it is not 1, `step`")
    for name, value in bounds.items():
        if type(value) is not int and (kind is int or type(value) is not float):
            raise _StudyError(f"{key}.{name}: must be {_CALLED[kind or float]}, not {shown(value)}")
    # Decimal fractions, so that 0.1 three times is exactly 0.3.
    try:
        low, high, step = (Decimal(str(bounds.get(name, 1))) for name in ("from", "to", "step"))
        count = int((high - low) / step) + 1 if step > 0 and high >= low else 0
    except ArithmeticError:
        count = 0
    if not 1 <= count <= MOST_RUNS:
        problem = f"must lead upwards, in at most {MOST_RUNS} steps above 0"
        raise _StudyError(f"{key}: {problem}, not {shown(dict(bounds))}")
    whole = kind is int or (kind is None and all(type(value) is int for value in bounds.values()))
    return [int(low + step * index) if whole else float(low + step * index) for index in range(count)]


def _columns(runs: Sequence[Planned]) -> dict[str, type]:
    """The study's own columns: numbers where all values are, texts where some are."""
    types: dict[str, set[type]] = {}
    for planned in runs:
        for name, value in planned.swept.items():
            types.setdefault(name, set()).add(type(value))
    return {name: float if kinds <= {int, float} else bool if kinds == {bool} else str for name, kinds in types.items()}
