"""Results of `verus probe` over a live path: the columns of `Results`, as JSON lines. `verus shell` writes the same.

Delays of a probe are one-way delays above the minimum of the run. The bottleneck of a live path
cannot be observed, so metrics that depend on its capacity are null.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from verus.lab.arrow_tables import ROW_SCHEMA
from verus.lab.json_lines import read_lines
from verus.lab.metric_rows import NUMBERS, SCHEMA

#: Columns of a row that may be null, since a live path may not let them be observed.
_UNSEEN = (*NUMBERS, "delay_ms", "trace_sha256")

#: Metrics from a test's echoes, both directions together.
ROUND_TRIPS = (
    "idle_rtt_p50_ms",
    "idle_rtt_p95_ms",
    "loaded_rtt_p50_ms",
    "loaded_rtt_p95_ms",
    "loaded_rtt_p99_ms",
    "rpm",
)

_ROWS = pa.schema(
    [
        *(field.with_nullable(field.name in _UNSEEN) for field in ROW_SCHEMA),
        # Whether a test ended before its requested end; absent from results of `verus shell`.
        pa.field("cut", pa.bool_()),
        # The server's rate limit, if it had one.
        pa.field("server_limit_mbps", pa.float64()),
        # Round trips of echoes, and their number in a minute; absent from results of `verus shell`.
        *(pa.field(name, pa.float64()) for name in ROUND_TRIPS),
    ]
)

_IDENTITY = (
    pa.field("run", pa.int32(), nullable=False),
    pa.field("trace", pa.string(), nullable=False),
    pa.field("queue", pa.string(), nullable=False),
    pa.field("label", pa.string(), nullable=False),
    pa.field("seed", pa.int64(), nullable=False),
    pa.field("flow", pa.int32(), nullable=False),
    pa.field("time_s", pa.float64(), nullable=False),
)

_OBSERVED = ("capacity_mbps", "throughput_mbps", "qdelay_ms", "rtt_ms", "window_bytes", "lost")

_SERIES = pa.schema([*_IDENTITY, *(pa.field(name, pa.float64()) for name in _OBSERVED)])

_PROFILE = pa.schema(
    [
        *_IDENTITY,
        pa.field("kind", pa.string(), nullable=False),
        pa.field("window_packets", pa.float64(), nullable=False),
        pa.field("delay_ms", pa.float64(), nullable=False),
    ]
)


def read_columns(folder: Path, runs: int) -> dict[str, pa.Table]:
    """Reads `results.jsonl`, `series.jsonl` and `profile.jsonl`.

    Args:
        folder: Their folder.
        runs: The number of runs in `run.json`.

    Returns:
        The tables by the names of `Results`: ``rows``, ``series``, ``profile``.

    Raises:
        OSError: A file is absent or cannot be read.
        ValueError: A line is damaged or of another version, or the files do not fit together.
    """
    path = folder / "results.jsonl"
    rows = read_lines(path, _ROWS, objects=("params",))
    for line, schema in enumerate(rows.column("schema").to_pylist(), start=1):
        if schema != SCHEMA:
            problem = f"schema {schema} is not one that this version reads (it reads {SCHEMA})"
            raise ValueError(f"`{path}`, line {line}: {problem}")
    for line, run in enumerate(rows.column("run").to_pylist(), start=1):
        if run != line - 1:
            raise ValueError(f"`{path}`, line {line}: `run` must be {line - 1}, not {run}")
    if not 0 < rows.num_rows == runs:
        lines = f"{rows.num_rows} line{'s' * (rows.num_rows != 1)}"
        raise ValueError(f"`{path}`: it has {lines}, and `run.json` tells of {runs} run{'s' * (runs != 1)}")
    tables = {"rows": rows}
    for name, schema in (("series", _SERIES), ("profile", _PROFILE)):
        path = folder / f"{name}.jsonl"
        tables[name] = read_lines(path, schema)
        for line, run in enumerate(tables[name].column("run").to_pylist(), start=1):
            if run >= runs:
                raise ValueError(f"`{path}`, line {line}: there is no run {run} in `results.jsonl`")
    return tables
