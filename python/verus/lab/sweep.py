"""A study's folder: the plan, each outcome as its run ends, and the dataset once all are done.

`plan.json.gz` lists every run with its key, `runs/` has the outcomes (see `verus.lab.store`), and
`results.parquet` is written from these two alone. Its bytes do not depend on the time, the place,
the order or the repetition of the work.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from verus.errors import FieldError
from verus.lab import bounded_reading, metric_rows
from verus.lab.arrow_tables import ROW_SCHEMA
from verus.lab.atomic_write import replace_whole
from verus.lab.interval import half_width
from verus.lab.metric_rows import NUMBERS, SCHEMA
from verus.lab.repeats import are_one, paired
from verus.lab.scenario import DEFAULTS, Contestant, Run
from verus.lab.store import FORMAT, Keys, Store
from verus.lab.study import Planned, Study

if TYPE_CHECKING:
    from verus.lab.schema import Scenario

#: The type of one of the study's own columns, by the type of its values.
_TYPES = {"float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}

#: Columns that identify a cell of a study beside its own columns: all settings except the seed.
IDENTITY = ("part", "trace", "queue", "ack", "delay_ms", "packet_bytes", "duration_s", "flows", "scheme", "params")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs of a study, ready to be saved, independent of the study's file and its traces.

    Attributes:
        name: The study's name.
        engine: The engine that executes it (see `verus.lab.store.engine`).
        columns: The type of each of the study's own columns: ``float``, ``bool`` or ``str``.
        keys: The key of each run's outcome.
        runs: Each run.
    """

    name: str
    engine: str
    columns: Mapping[str, str]
    keys: Sequence[str]
    runs: Sequence[Planned]

    @classmethod
    def of(cls, study: Study, engine: str, keys: Keys | None = None) -> Plan:
        """The plan of a study; `keys` computes the keys, if it is given.

        Raises:
            OSError: A trace or a model cannot be read.
        """
        keys = Keys(engine) if keys is None else keys
        return cls(
            name=study.name,
            engine=engine,
            columns={name: kind.__name__ for name, kind in study.columns.items()},
            keys=[keys.of(planned.run) for planned in study.runs],
            runs=study.runs,
        )

    def digest(self) -> str:
        """A digest of the runs in their order and of the engine."""
        return hashlib.sha256(self._json.encode()).hexdigest()

    @cached_property
    def _json(self) -> str:
        runs = [planned.run for planned in self.runs]
        fields = {
            "format": FORMAT,
            "kind": "sweep",
            "name": self.name,
            "engine": self.engine,
            "columns": dict(self.columns),
            "keys": "".join(self.keys),
            "run": _fields([{name: getattr(run, name) for name in _OF_RUN} for run in runs]),
            "contestant": _coded([asdict(run.contestant) for run in runs]),
            "scenario": _fields([run.scenario for run in runs]),
            "swept": _fields([planned.swept for planned in self.runs]),
        }
        return json.dumps(fields, allow_nan=False)  # unsorted: the order of columns is that of the dataset

    def pack(self) -> bytes:
        """The bytes of its file.

        Raises:
            ValueError: It is larger than `read` accepts.
        """
        text = self._json.encode()
        if len(text) > MOST_PLAN:
            raise ValueError(
                f"the study `{self.name}` has {len(self.runs)} runs, whose plan takes {len(text)} bytes; at most "
                f"{MOST_PLAN} are read: divide it into several studies"
            )
        return gzip.compress(text, mtime=0)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Reads a plan that `pack` made.

        Raises:
            OSError: It cannot be read.
            ValueError: It is no plan, or of another version.
        """
        try:
            saved = json.loads(bounded_reading.gunzipped(path, MOST_PLAN))
            if saved["kind"] != "sweep" or saved["format"] != FORMAT:
                raise ValueError("of another version")
            if not re.fullmatch(f"(?:[0-9a-f]{{{_KEY}}})*", saved["keys"]):  # they become names of files
                raise ValueError("a key is no digest")
            keys = [saved["keys"][at : at + _KEY] for at in range(0, len(saved["keys"]), _KEY)]
            fields = zip(
                _each(saved["run"], len(keys)),
                _values(saved["contestant"], len(keys)),
                _each(saved["scenario"], len(keys)),
                _each(saved["swept"], len(keys)),
                strict=True,
            )
            plan = cls(
                name=saved["name"],
                engine=saved["engine"],
                columns=saved["columns"],
                keys=keys,
                runs=[
                    Planned(
                        run=Run(**run, contestant=_contestant(contestant), scenario=cast("Scenario", scenario)),
                        swept={name: value for name, value in swept.items() if value is not None},
                    )
                    for run, contestant, scenario, swept in fields
                ],
            )
            plan._check(DEFAULTS.keys())
            return plan
        except FileNotFoundError:
            raise
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"`{path}`: not the plan of a sweep: a field is missing, or is of another type") from error
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"`{path}`: not the plan of a sweep ({error})") from error

    def _check(self, scenario_fields: Collection[str]) -> None:
        """Refuses values that no plan of ours has.

        Raises:
            ValueError: It has such a value.
        """
        if not isinstance(self.name, str) or not isinstance(self.engine, str):
            raise ValueError("its name or engine is no text")
        if not all(isinstance(kind, str) and kind in _TYPES for kind in self.columns.values()):
            raise ValueError("a column is of an unknown type")
        for planned in self.runs:
            run = planned.run
            if not all(isinstance(getattr(run, name), str) for name in _OF_RUN):
                raise ValueError("a run's channel, queue or part is no text")
            if run.scenario.keys() - scenario_fields or not {"flows", "seed", "duration_s"} <= run.scenario.keys():
                raise ValueError("a run has no scenario")
            if planned.swept.keys() - self.columns.keys():
                raise ValueError("a run varies what is no column")

    def distinct(self) -> dict[str, Run]:
        """Each run once, by its key, in order: parts may share some."""
        run_of: dict[str, Run] = {}
        for key, planned in zip(self.keys, self.runs, strict=True):
            run_of.setdefault(key, planned.run)
        return run_of


#: The limit of a plan, bytes unpacked: a million runs that differ in ten settings take some 110 MB.
MOST_PLAN = 128 << 20

#: Length of a run's key, hexadecimal.
_KEY = 64

#: Fields of each run in a plan beside its contestant and its scenario.
_OF_RUN = ("trace", "queue", "part")


def _coded(values: Sequence[Any]) -> dict[str, Any]:
    """Codes values with many duplicates: each value once, and its index at each place, unless all are equal.

    Example:
        >>> _coded(["a", "b", "a"]), _coded([5, 5])
        ({'values': ['a', 'b'], 'at': [0, 1, 0]}, {'values': [5]})
    """
    numbered: dict[str, tuple[int, Any]] = {}
    at = [numbered.setdefault(json.dumps(value), (len(numbered), value))[0] for value in values]
    coded = {"values": [value for _, value in numbered.values()]}
    return coded if len(numbered) <= 1 else {**coded, "at": at}


def _fields(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each field of the rows, coded; None where a row lacks it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _coded([row.get(name) for row in rows]) for name in names}


def _values(coded: Mapping[str, Any], count: int) -> list[Any]:
    """The `count` values that `_coded` coded."""
    values = coded["values"]
    return [values[at] for at in coded["at"]] if "at" in coded else values * count


def _each(fields: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The `count` rows that `_fields` coded."""
    if not fields:
        return [{} for _ in range(count)]
    columns = [_values(coded, count) for coded in fields.values()]
    return [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]


def _contestant(fields: Mapping[str, Any]) -> Contestant:
    return Contestant(**{**fields, "flows": tuple(fields["flows"])})


class Folder:
    """The folder of a study.

    Args:
        path: The folder; made when something is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan_path = path / "plan.json.gz"
        self.dataset = path / "results.parquet"
        self.store = Store(path / "runs")

    def check(self) -> None:
        """Refuses a folder with other contents.

        Raises:
            FieldError: It is no folder, or not one of a sweep.
        """
        if self.path.exists() and not self.path.is_dir():
            raise FieldError("out", f"`{self.path}` is not a folder")
        if self.path.is_dir() and any(self.path.iterdir()) and not self.plan_path.exists():
            raise FieldError("out", f"`{self.path}` is not empty, and not the folder of a sweep")
        self.store.check()

    def begin(self, plan: Plan) -> None:
        """Writes the plan, unless it exists.

        Raises:
            OSError: The folder cannot be made.
            FieldError: The plan cannot be written.
            ValueError: It is too large to be read again.
        """
        content = plan.pack()
        self.path.mkdir(parents=True, exist_ok=True)
        if not bounded_reading.holds(self.plan_path, content):
            replace_whole(self.plan_path, content)

    def missing(self, plan: Plan) -> dict[str, Run]:
        """The runs without an outcome, by key, in order."""
        return {key: run for key, run in plan.distinct().items() if not self.store.has(key)}

    def finish(self, plan: Plan, failed: Mapping[str, str] | None = None) -> pa.Table:
        """Writes the dataset from the outcomes of all runs, except those that failed for good.

        Args:
            plan: The plan.
            failed: The errors of failed runs, by key: the dataset lacks them, and lists them
                (`MISSING`).

        Raises:
            FieldError: It cannot be written.
            RuntimeError: An outcome no longer exists.
        """
        failed = failed or {}
        table = _table(plan, self.store, leave=failed)
        if failed:
            missing = [
                {"run": index, **_names(one), "problem": failed[key]}
                for index, (key, one) in enumerate(zip(plan.keys, plan.runs, strict=True))
                if key in failed
            ]
            marks = {name: mark for name, mark in table.schema.metadata.items() if name != b"verus.plan"}
            table = table.replace_schema_metadata({**marks, MISSING: json.dumps(missing)})
        into = pa.BufferOutputStream()
        pq.write_table(table, into, compression="zstd")
        content = into.getvalue().to_pybytes()
        if not bounded_reading.holds(self.dataset, content):
            replace_whole(self.dataset, content)
        return table

    def so_far(self, plan: Plan) -> pa.Table:
        """The rows of the runs that are done."""
        missing = self.missing(plan)
        return _table(plan, self.store, leave=missing)

    def left_out(self) -> list[dict[str, Any]]:
        """The runs that the dataset lists as failed for good; each `run` is a number."""
        words = ("trace", "queue", "scheme", "seed", "problem")
        try:
            listed = json.loads((bounded_reading.table_schema(self.dataset).metadata or {})[MISSING.encode()])
            return [{"run": int(one["run"]), **{name: str(one[name]) for name in words}} for one in listed]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return []  # it is complete, or its list cannot be read

    def is_finished(self, plan: Plan) -> bool:
        """Whether the dataset exists and belongs to this plan."""
        try:
            metadata = bounded_reading.table_schema(self.dataset).metadata or {}
        except (OSError, ValueError):
            return False
        return bool(metadata.get(b"verus.plan") == plan.digest().encode())


def merge(folders: Sequence[Folder], into: Folder) -> Plan:
    """Merges the outcomes of one study from several folders.

    Raises:
        OSError: A folder cannot be read.
        ValueError: One is not of a sweep, or they are not of one study and one engine.
        FieldError: Something cannot be written.
    """
    for folder in folders:
        if not folder.plan_path.exists():
            raise ValueError(f"`{folder.path}` is not the folder of a sweep")
    plans = [Plan.read(folder.plan_path) for folder in folders]
    plan = plans[0]
    for folder, other in zip(folders, plans, strict=True):
        if other.engine != plan.engine:
            raise ValueError(
                f"`{folder.path}` was run by another build of the simulator ({other.engine}) than "
                f"`{folders[0].path}` ({plan.engine})"
            )
        if other.digest() != plan.digest():
            raise ValueError(f"`{folder.path}` is not of the same study as `{folders[0].path}`")
    into.begin(plan)
    for key in into.missing(plan):
        saved = next((saved for folder in folders if (saved := folder.store.read(key)) is not None), None)
        if saved is not None:
            into.store.write(key, saved)
    return plan


#: The metadata key of an incomplete dataset: the missing runs as JSON, by number and name, with the
#: reasons.
MISSING = "verus.missing"


def _names(planned: Planned) -> dict[str, Any]:
    """The fields that identify a run within a study."""
    run = planned.run
    names = {"part": run.part, "trace": run.trace, "queue": run.queue, "scheme": run.contestant.text}
    return {**names, "seed": run.scenario["seed"], **planned.swept}


def _table(plan: Plan, store: Store, leave: Collection[str] = ()) -> pa.Table:
    """One row for each run except those with these keys: the columns of a comparison, then the study's own."""
    columns = [(name, _TYPES[kind]) for name, kind in plan.columns.items()]
    schema = pa.schema([*ROW_SCHEMA, *columns])
    pieces = [schema.empty_table()]
    indices = [at for at, key in enumerate(plan.keys) if key not in leave]
    for first in range(0, len(indices), _CHUNK):
        some = indices[first : first + _CHUNK]
        planned = [plan.runs[at] for at in some]
        outcomes = [store.outcome(plan.keys[at]) for at in some]
        made = metric_rows.rows([one.run for one in planned], outcomes)
        for at, row, one in zip(some, made, planned, strict=True):
            row["run"] = at
            row["params"] = json.dumps(row["params"], sort_keys=True)
            row.update({name: _cast(plan.columns[name], value) for name, value in one.swept.items()})
        pieces.append(pa.Table.from_pylist(made, schema=schema))
    marks = {"verus.schema": str(SCHEMA), "verus.plan": plan.digest()}
    return pa.concat_tables(pieces).combine_chunks().replace_schema_metadata(marks)


#: Rows that are made at a time, so that a large study needs little memory.
_CHUNK = 1000


def _cast(kind: str, value: Any) -> Any:
    return float(value) if kind == "float" else value if kind == "bool" else str(value)


def cells(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Means over seeds: a cell's identity, its sender's `label`, `seeds`, each metric's `mean` and `half_width_95`.

    `half_width_95` is half of the mean's 95 % confidence interval (Student's t). It is None for a
    single seed, or if all seeds gave one and the same run. A metric that no run of the cell
    observed is left out. `above` has the differences from the first sender on the same path, seed
    by seed (`repeats.paired`), and `from` names that sender.
    """
    study_columns = [name for name in table.column_names if name not in ROW_SCHEMA.names]
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        grouped.setdefault(tuple(row[name] for name in (*IDENTITY, *study_columns)), []).append(row)
    path = [
        name
        for name in (*IDENTITY, *study_columns)
        if name not in ("scheme", "params") and not name.startswith("params.")
    ]
    first: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for identity, rows in grouped.items():
        cell = dict(zip((*IDENTITY, *study_columns), identity, strict=True))
        cell["params"] = json.loads(cell["params"])
        cell["label"] = rows[0]["label"]
        cell["seeds"] = [row["seed"] for row in rows]
        single = are_one(rows)
        for name in NUMBERS:
            if values := [row[name] for row in rows if row[name] is not None]:
                cell[name] = {
                    "mean": sum(values) / len(values),
                    "half_width_95": None if single else half_width(values),
                }
        other = first.setdefault(tuple(cell[name] for name in path), rows)
        if other is not rows and (above := paired(rows, other)):
            cell["from"] = {"scheme": other[0]["scheme"], "params": json.loads(other[0]["params"])}
            cell["above"] = above
        yield cell
