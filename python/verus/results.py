"""A saved experiment: rows, series and profiles as columns, and the configuration that made them.

One folder holds one experiment: `results.parquet`, `series.parquet`, `profile.parquet`, `run.json`
(and `records.parquet` if asked for). `verus probe` and `verus shell` leave the same columns as JSON lines. Every figure
and page is drawn from this and nothing else, so restyling one never runs anything again. A version,
`SCHEMA`, is stated beside the columns; another one is refused.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from verus import _verus
from verus.errors import FieldError
from verus.lines import check
from verus.runner import Outcome
from verus.scenario import Run

#: Version of every format in a folder; a change of meaning raises it.
SCHEMA = 1

#: The kind of results that `verus probe` leaves, as JSON lines.
PROBE = "probe"

#: Likewise of `verus probe client --record`, with more in `run.json`.
RECORDING = "recording"

#: Likewise of `verus shell`, where a link of ours was between a program and the world.
SHELL = "shell"

#: What a page needs of a `run.json`.
_CHANNEL = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        *((name, pa.string()) for name in ("kind", "licence", "citation", "sha256")),
        *((name, pa.float64()) for name in ("mean_mbps", "duration_s")),
    ]
)
_MACHINE = pa.struct([pa.field("kernel", pa.string(), nullable=False), ("cpu", pa.string()), ("cores", pa.int64())])
_CONFIG = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in {
            "version": pa.string(),
            "created": pa.string(),
            "settings": pa.struct([]),
            "seeds": pa.list_(pa.int64()),
            "channels": pa.list_(_CHANNEL),
            "runs": pa.list_(pa.struct([])),
            "machine": _MACHINE,
        }.items()
    ]
)

#: The metrics of a row; null where nobody observed them.
NUMBERS = (
    "capacity_mbps",
    "throughput_mbps",
    "goodput_mbps",
    "utilization",
    "qdelay_mean_ms",
    "qdelay_p50_ms",
    "qdelay_p95_ms",
    "qdelay_p99_ms",
    "signal_delay_p95_ms",
    "rtt_mean_ms",
    "rtt_p95_ms",
    "loss_rate",
    "retransmit_rate",
    "jain",
    "jain_active",
    "power",
    "completions",
    "completion_mean_s",
    "completion_p95_s",
)

#: What `--json` prints for each run, in this order. A contract: tests and other programs read it.
ROW_FIELDS = (
    "schema",
    "version",
    "engine",
    "transport",
    "trace",
    "scheme",
    "params",
    "queue",
    "ack",
    "flows",
    "packet_bytes",
    "seed",
    "duration_s",
    "delay_ms",
    *NUMBERS,
    "per_flow",
)

_PER_FLOW_NUMBERS = (
    "throughput_mbps",
    "on_s",
    "throughput_on_mbps",
    "goodput_mbps",
    "qdelay_mean_ms",
    "qdelay_p50_ms",
    "qdelay_p95_ms",
    "qdelay_p99_ms",
    "rtt_mean_ms",
    "rtt_p95_ms",
    "loss_rate",
    "retransmit_rate",
    "completions",
    "completion_mean_s",
    "completion_p95_s",
)

_PER_FLOW_TYPE = pa.struct(
    [("flow", pa.int32()), ("scheme", pa.string()), *((n, pa.float64()) for n in _PER_FLOW_NUMBERS)]
)

#: The columns of `Results.rows`.
ROW_SCHEMA = pa.schema(
    [
        ("run", pa.int32()),
        ("part", pa.string()),
        ("label", pa.string()),
        ("trace_sha256", pa.string()),
        ("schema", pa.int32()),
        ("version", pa.string()),
        ("engine", pa.string()),
        ("transport", pa.string()),
        ("trace", pa.string()),
        ("scheme", pa.string()),
        ("params", pa.string()),  # a JSON object: its keys differ from scheme to scheme
        ("queue", pa.string()),
        ("ack", pa.string()),
        ("flows", pa.int32()),
        ("packet_bytes", pa.int32()),
        ("seed", pa.int64()),
        ("duration_s", pa.float64()),
        ("delay_ms", pa.float64()),
        *((name, pa.float64()) for name in NUMBERS),
        ("per_flow", pa.list_(_PER_FLOW_TYPE)),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that an experiment left, in memory.

    Attributes:
        rows: One row per run; the columns of `ROW_FIELDS`, and `run`, `part`, `label`, `trace_sha256`.
        series: Per run, flow and time bin: capacity, throughput, queueing delay, window, phase, and
            what the controller shows.
        profile: Snapshots of delay profiles: `kind` is ``point`` or ``curve``.
        records: Per packet, if it was asked for.
        connections: Per connection, where flows do not send all the time: `flow`, `connection`, `start_s`, `end_s`
            (null if the flow or the run ended first), `file_bytes` (null if it was to last for a time) and
            `delivered_bytes`.
        config: The content of `run.json`.
    """

    rows: pa.Table
    series: pa.Table
    profile: pa.Table
    records: pa.Table | None
    config: Mapping[str, Any]
    connections: pa.Table | None = None

    @classmethod
    def collect(
        cls,
        runs: Sequence[Run],
        outcomes: Sequence[Outcome],
        *,
        kind: str,
        settings: Mapping[str, Any],
        measured: Any = None,
    ) -> Results:
        """Turns what the simulator returned into columns.

        Args:
            runs: What ran.
            outcomes: What came of it, in the same order.
            kind: Which command this is: ``compare``, or the name of an experiment.
            settings: Enough to run the same again.
            measured: Plain values that an experiment found without simulating.
        """
        rows = [
            {
                "run": index,
                "part": run.part,
                "label": run.contestant.label,
                "trace_sha256": outcome["trace"]["sha256"],
                **_row(run, outcome),
            }
            for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))
        ]
        for row in rows:
            row["params"] = json.dumps(row["params"], sort_keys=True)
        series = [_series(index, run, outcome) for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))]
        profiles = [
            _columns(index, run, outcome["profiles"])
            for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))
        ]
        records = [
            _columns(index, run, outcome["records"])
            for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))
            if outcome.get("records") is not None
        ]
        connections = [
            _columns(index, run, outcome["connections"])
            for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))
            if len(outcome.get("connections", {}).get("flow", ()))
        ]
        return cls(
            rows=pa.Table.from_pylist(rows, schema=ROW_SCHEMA),
            series=_stack(series),
            profile=_stack(profiles),
            records=_stack(records) if records else None,
            connections=_stack(connections) if connections else None,
            config={
                "schema": SCHEMA,
                "kind": kind,
                "version": _verus.version(),
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "settings": dict(settings),
                "measured": measured,
                "seeds": sorted({int(run.scenario["seed"]) for run in runs}),
                "channels": _channels(runs, outcomes),
                "runs": [
                    {
                        "trace": run.trace,
                        "queue": run.queue,
                        "scheme": run.contestant.text,
                        "label": run.contestant.label,
                        "scenario": dict(run.scenario),
                        **({"timing": outcome["timing"]} if "timing" in outcome else {}),
                    }
                    for run, outcome in zip(runs, outcomes, strict=True)
                ],
                "machine": _machine(),
            },
        )

    @property
    def live(self) -> bool:
        """Whether it was measured over a real path: nobody then saw a bottleneck, its capacity or its queue."""
        return self.config["kind"] in (PROBE, RECORDING)

    @property
    def emulated(self) -> bool:
        """Whether a program of somebody's was behind our link: all its packets are one flow, and its ends not seen."""
        return bool(self.config["kind"] == SHELL)

    @property
    def files(self) -> bool:
        """Whether flows had files to send, which took their time."""
        took = self.rows.column("completions") if "completions" in self.rows.column_names else None
        return took is not None and took.null_count < len(took)

    def to_rows(self) -> list[dict[str, Any]]:
        """The rows as `--json` prints them: the fields of `ROW_FIELDS`, absent numbers as None."""
        return [
            {name: json.loads(row["params"]) if name == "params" else row.get(name) for name in ROW_FIELDS}
            for row in self.rows.to_pylist()
        ]

    def tables(self) -> dict[str, pa.Table]:
        """The columns by file name."""
        tables = {"results.parquet": self.rows, "series.parquet": self.series, "profile.parquet": self.profile}
        if self.records is not None:
            tables["records.parquet"] = self.records
        if self.connections is not None:
            tables["connections.parquet"] = self.connections
        return tables

    def write(self, folder: Path) -> None:
        """Writes the columns and `run.json` into `folder`, which exists (see `new_folder`)."""
        for name, table in self.tables().items():
            marked = table.replace_schema_metadata({"verus.schema": str(SCHEMA)})
            pq.write_table(marked, folder / name, compression="zstd")
        (folder / "run.json").write_text(json.dumps(self.config, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Reads what `write`, `verus probe` or `verus shell` wrote.

        Raises:
            OSError: A file is absent or cannot be read.
            ValueError: The folder is of another version, or not one of ours, or damaged.
        """
        path = folder / "run.json"
        config = read_config(path)
        try:
            for field in _CONFIG:
                check(field, config.get(field.name), field.name)
        except ValueError as error:
            raise ValueError(f"`{path}`: not a run.json: {error}") from error
        if config["kind"] in (PROBE, RECORDING, SHELL):
            from verus import probe  # here: it builds on this module

            return cls(records=None, config=config, **probe.read_columns(folder, len(config["runs"])))
        records, connections = folder / "records.parquet", folder / "connections.parquet"
        return cls(
            rows=_read_table(folder / "results.parquet"),
            series=_read_table(folder / "series.parquet"),
            profile=_read_table(folder / "profile.parquet"),
            records=_read_table(records) if records.exists() else None,
            connections=_read_table(connections) if connections.exists() else None,
            config=config,
        )


def read_config(path: Path) -> dict[str, Any]:
    """Reads a `run.json`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a `run.json`, or of another version.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{path}`: not a run.json ({error})") from error
    if not isinstance(config, dict) or "schema" not in config:
        raise ValueError(f"`{path}`: not a run.json: it states no schema")
    if config["schema"] != SCHEMA:
        raise ValueError(f"`{path}`: schema {config['schema']} is not one that this version reads (it reads {SCHEMA})")
    if not isinstance(config.get("kind"), str):
        raise ValueError(f"`{path}`: not a run.json: it states no kind")
    return config


def _read_table(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"`{path}`: not a Parquet file ({error})") from error
    found = (table.schema.metadata or {}).get(b"verus.schema", b"none").decode()
    if found != str(SCHEMA):
        raise ValueError(f"`{path}`: schema {found} is not one that this version reads (it reads {SCHEMA})")
    return table


@contextlib.contextmanager
def new_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """A folder to fill that becomes `target` if the block ends well, and vanishes if it does not.

    The work happens in a hidden folder beside `target`. An existing empty folder is taken over; one
    that holds something is refused unless `force`, which replaces the files of the earlier
    experiment and leaves everything else in it alone.

    Raises:
        FieldError: `target` holds something and `force` is not set, or it cannot be written.
    """
    check_folder(target, force=force)
    parent = target.absolute().parent
    draft = parent / f".{target.name}-{secrets.token_hex(4)}.part"
    made = _make_parents(parent)
    try:
        draft.mkdir()
    except OSError as error:
        _remove(made)
        raise FieldError("out", f"`{target}` cannot be written ({error.strerror or error})") from error
    try:
        yield draft
        _publish(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        _remove(made)
        raise


def check_folder(target: Path, *, force: bool) -> None:
    """Refuses a place for results that cannot be used, before any work is done.

    Raises:
        FieldError: As `new_folder`.
    """
    try:
        if target.exists() and not target.is_dir():
            raise FieldError("out", f"`{target}` is not a folder")
        if target.is_dir() and any(target.iterdir()) and not force:
            raise FieldError("out", f"`{target}` is not empty; --force replaces the results in it")
        nearest = next(folder for folder in (target.absolute(), *target.absolute().parents) if folder.exists())
    except OSError as error:
        raise FieldError("out", f"`{target}` cannot be used ({error.strerror or error})") from error
    if not nearest.is_dir():
        raise FieldError("out", f"`{target}` cannot be written (`{nearest}` is not a folder)")
    probe = nearest / f".{secrets.token_hex(8)}.part"
    try:  # permissions alone do not tell: the file system may be full or for reading only
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        problem = f"`{target}` cannot be written (in `{nearest}`: {error.strerror or error})"
        raise FieldError("out", problem) from error


def _make_parents(parent: Path) -> list[Path]:
    """Makes `parent`; returns the folders that were not there, outermost first."""
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()][::-1]
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(missing)
        raise FieldError("out", f"`{parent}` cannot be made ({error.strerror or error})") from error
    return missing


def _remove(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _publish(draft: Path, target: Path) -> None:
    config_path = draft / "run.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    names = sorted(str(path.relative_to(draft)) for path in draft.rglob("*") if path.is_file())
    config["files"] = names
    config_path.write_text(json.dumps(config, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if not target.is_dir() or not any(target.iterdir()):
        draft.replace(target)
        return
    for name in _earlier_files(target):
        if name not in names:
            (target / name).unlink(missing_ok=True)
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).replace(target / name)
    shutil.rmtree(draft, ignore_errors=True)


def _earlier_files(target: Path) -> list[str]:
    """Files that the experiment saved in `target` says it wrote, those outside `target` left out."""
    try:
        names = read_config(target / "run.json").get("files", [])
    except (OSError, ValueError):
        return []
    return [
        name
        for name in names
        if isinstance(name, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    ]


def _row(run: Run, outcome: Outcome) -> dict[str, Any]:
    metrics = outcome["metrics"]
    scenario = run.scenario
    per_flow = [
        {"flow": index, "scheme": text, **{name: found.get(name) for name in _PER_FLOW_NUMBERS}}
        for index, (text, found) in enumerate(zip(run.contestant.flows, metrics["per_flow"], strict=True))
    ]
    return {
        "schema": SCHEMA,
        "version": _verus.version(),
        "engine": outcome.get("engine", "sim"),
        "transport": outcome.get("transport", "sim"),
        "trace": run.trace,
        "scheme": run.contestant.scheme,
        "params": dict(run.contestant.params),
        "queue": run.queue,
        "ack": scenario["ack"],
        "flows": len(run.contestant.flows),
        "packet_bytes": scenario["packet_bytes"],
        "seed": scenario["seed"],
        "duration_s": scenario["duration_s"],
        "delay_ms": scenario["delay_ms"],
        **{name: metrics.get(name) for name in NUMBERS},
        "per_flow": per_flow,
    }


def _series(index: int, run: Run, outcome: Outcome) -> pa.Table:
    series = dict(outcome["series"])
    bins = np.asarray(outcome["capacity"]["time_s"], dtype=float)
    capacity = np.asarray(outcome["capacity"]["capacity_mbps"], dtype=float)
    times = np.asarray(series["time_s"], dtype=float)
    where = np.searchsorted(bins, times - 1e-9)
    known = where < len(bins)
    series["capacity_mbps"] = (
        np.where(known, capacity[np.minimum(where, max(len(bins) - 1, 0))], np.nan)
        if len(bins)
        else np.full(len(times), np.nan)
    )
    return _columns(index, run, series)


def _columns(index: int, run: Run, columns: Mapping[str, Any]) -> pa.Table:
    """Columns of one run, with what names the run before them; NaN, where nothing was observed, as null."""
    arrays = {name: _array(values) for name, values in columns.items()}
    length = len(next(iter(arrays.values()))) if arrays else 0
    identity = {
        "run": pa.array(np.full(length, index, dtype=np.int32)),
        "trace": _constant(run.trace, length),
        "queue": _constant(run.queue, length),
        "label": _constant(run.contestant.label, length),
        "seed": pa.array(np.full(length, run.scenario["seed"], dtype=np.int64)),
    }
    return pa.table({**identity, **arrays})


def _constant(text: str, length: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(length, dtype=np.int32)), pa.array([text])).cast(
        pa.string()
    )


def _array(values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return pa.array(values, from_pandas=True)
    return pa.array(values)


def _stack(tables: Sequence[pa.Table]) -> pa.Table:
    """All runs under each other; a column that one controller has and another has not is null there."""
    if not tables:
        return pa.table({"run": pa.array([], type=pa.int32())})
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _channels(runs: Sequence[Run], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    recordings = {entry["sha256"]: entry for entry in json.loads(_verus.catalogue())}
    channels: dict[str, dict[str, Any]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        used = [(run.trace, run.scenario["trace"], outcome["trace"])]
        if outcome["ack_trace"] is not None:
            used.append((run.scenario["ack"], run.scenario["ack"], outcome["ack_trace"]))
        for name, text, trace in used:
            if name in channels:
                continue
            named = json.loads(_verus.check_channel(text))
            parts = [part["channel"] for part in named.get("parts", [])]
            known = [recordings[trace["sha256"]]] if trace["sha256"] in recordings else parts
            sources = [entry for entry in known if "repository" in entry]
            channels[name] = {
                "name": name,
                "kind": named.get("kind"),
                **{key: trace.get(key) for key in ("sha256", "duration_s", "mean_mbps")},
                "licence": _together(entry["licence"] for entry in sources),
                "citation": _together(entry["paper"] for entry in sources),
                "source": _together(f"{entry['repository']}@{entry['commit']}:{entry['path']}" for entry in sources),
            }
    return list(channels.values())


def _together(words: Iterable[str]) -> str | None:
    """Each once; None without any."""
    return "; ".join(dict.fromkeys(words)) or None


def _machine() -> dict[str, Any]:
    cpu = platform.processor()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
