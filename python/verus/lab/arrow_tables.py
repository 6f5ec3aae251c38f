"""Outcomes of runs as Arrow columns: a table of rows, and tables of values over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from verus.lab.metric_rows import NUMBERS, PER_FLOW_NUMBERS
from verus.lab.runner import Outcome
from verus.lab.scenario import Run

_PER_FLOW_TYPE = pa.struct(
    [("flow", pa.int32()), ("scheme", pa.string()), *((n, pa.float64()) for n in PER_FLOW_NUMBERS)]
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


def series(outcome: Outcome) -> dict[str, Any]:
    """The time series of one run, with the capacity of its channel in every bin."""
    columns = dict(outcome["series"])
    bins = np.asarray(outcome["capacity"]["time_s"], dtype=float)
    capacity = np.asarray(outcome["capacity"]["capacity_mbps"], dtype=float)
    times = np.asarray(columns["time_s"], dtype=float)
    where = np.searchsorted(bins, times - 1e-9)
    in_capacity = where < len(bins)
    columns["capacity_mbps"] = (
        np.where(in_capacity, capacity[np.minimum(where, max(len(bins) - 1, 0))], np.nan)
        if len(bins)
        else np.full(len(times), np.nan)
    )
    return columns


def of_runs(parts: Sequence[tuple[int, Run, Mapping[str, Any]]]) -> pa.Table:
    """The columns of runs, one run after another, after columns that name the run; NaN, an absent value, becomes null.

    Args:
        parts: The number, the run and the columns of each run.
    """
    if not parts:
        return stack([])
    lengths = [len(next(iter(columns.values()), ())) for _, _, columns in parts]
    # Most of thousands of runs may have no rows: those only contribute the names of columns.
    seen_shapes: set[tuple[str, ...]] = set()
    tables = []
    for (_, _, columns), length in zip(parts, lengths, strict=True):
        names = tuple(columns)
        if length or names not in seen_shapes:
            tables.append(pa.table({name: _array(values) for name, values in columns.items()}))
        seen_shapes.add(names)

    def constant(values: list[Any], kind: pa.DataType) -> pa.Array:
        # Unlike `take`, without loading `pyarrow.compute`.
        repeated = [pa.repeat(pa.scalar(value, kind), length) for value, length in zip(values, lengths, strict=True)]
        return pa.concat_arrays(repeated)

    identity = {
        "run": constant([index for index, _, _ in parts], pa.int32()),
        "trace": constant([run.trace for _, run, _ in parts], pa.string()),
        "queue": constant([run.queue for _, run, _ in parts], pa.string()),
        "label": constant([run.contestant.label for _, run, _ in parts], pa.string()),
        "seed": constant([run.scenario["seed"] for _, run, _ in parts], pa.int64()),
    }
    observed = stack(tables)
    return pa.table({**identity, **{name: observed.column(name) for name in observed.column_names}})


def _array(values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return pa.array(values, from_pandas=True)
    # Numbers are arrays, so an empty list is one of texts.
    return pa.array(values, pa.string()) if isinstance(values, list) and not values else pa.array(values)


def stack(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables of all runs, one after another; a column that a controller lacks is null there."""
    if not tables:
        return pa.table({"run": pa.array([], type=pa.int32())})
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
