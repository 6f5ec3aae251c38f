"""A saved experiment: rows, series and profiles as columns, and the configuration that made them.

One folder holds one experiment: `results.parquet`, `series.parquet`, `profile.parquet`, `run.json`
(and `records.parquet` if asked for). `verus probe` and `verus shell` write the same columns as JSON
lines. Every figure and page is drawn from these files only, so a change of style never needs
another run. A version, `SCHEMA`, is stored with the columns; other versions are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup

from verus.lab import arrow_tables, bounded_reading, metric_rows, probe
from verus.lab.arrow_tables import of_runs
from verus.lab.json_lines import check
from verus.lab.metric_rows import PROBE, RECORDING, SCHEMA, SHELL
from verus.lab.results_folder import read_config
from verus.lab.runner import Outcome
from verus.lab.scenario import Run, base_rtt_ms

#: The fields of a `run.json` that a page needs.
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


@dataclass(frozen=True, kw_only=True)
class Results:
    """All results of an experiment, in memory.

    Attributes:
        rows: One row per run; the columns of `ROW_FIELDS`, and `run`, `part`, `label`, `trace_sha256`.
        series: Per run, flow and time bin: capacity, throughput, queueing delay, window, phase, and
            the controller's own quantities.
        profile: Snapshots of delay profiles: `kind` is ``point`` or ``curve``.
        records: Per packet, if requested.
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
        """Turns the simulator's outcomes into columns.

        Args:
            runs: The runs.
            outcomes: Their outcomes, in the same order.
            kind: The command: ``compare``, or the name of an experiment.
            settings: Enough to run the same again.
            measured: Plain values that an experiment determined without simulating.
        """
        ran = [(index, run, outcome) for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))]
        made = [
            {**row, "params": json.dumps(row["params"], sort_keys=True)} for row in metric_rows.rows(runs, outcomes)
        ]
        records = [each for each in ran if each[2].get("records") is not None]
        connections = [each for each in ran if len(each[2].get("connections", {}).get("flow", ()))]

        def table(of: Sequence[tuple[int, Run, Outcome]], name: str) -> pa.Table:
            return of_runs([(index, run, outcome[name]) for index, run, outcome in of])

        return cls(
            rows=pa.Table.from_pylist(made, schema=arrow_tables.ROW_SCHEMA),
            series=of_runs([(index, run, arrow_tables.series(outcome)) for index, run, outcome in ran]),
            profile=table(ran, "profiles"),
            records=table(records, "records") if records else None,
            connections=table(connections, "connections") if connections else None,
            config=metric_rows.config(runs, outcomes, kind=kind, settings=settings, measured=measured),
        )

    @property
    def live(self) -> bool:
        """Whether it was measured over a real path, whose bottleneck, capacity and queue cannot be observed."""
        return self.config["kind"] in (PROBE, RECORDING)

    @property
    def emulated(self) -> bool:
        """Whether a program of the user's ran behind the link: its packets count as one flow, without endpoints."""
        return bool(self.config["kind"] == SHELL)

    def has(self, column: str) -> bool:
        """Whether any run has a number in this column of the rows."""
        values = self.rows.column(column) if column in self.rows.column_names else None
        return values is not None and values.null_count < len(values)

    def base_rtt(self, runs: Sequence[int]) -> str:
        """The round trip of these runs without queues, in words; empty where it is unknown, as over a real path."""
        return " or ".join(dict.fromkeys(filter(None, map(self._base_rtt, runs))))

    def _base_rtt(self, run: int) -> str:
        path = self.config["settings"] if self.emulated else self.config["runs"][run].get("scenario", {})
        if "delay_ms" not in path:
            return ""
        if self.emulated:
            path = {**path, "ack_delay_ms": path.get("up_delay_ms"), "ack_light_trace": path.get("up_light_trace")}
        rtt_ms = base_rtt_ms(path)
        return "recorded" if rtt_ms is None else f"{rtt_ms:g} ms"

    def to_rows(self) -> list[dict[str, Any]]:
        """The rows as `--json` prints them."""
        return [metric_rows.printed({**row, "params": json.loads(row["params"])}) for row in self.rows.to_pylist()]

    def _repr_html_(self) -> str:
        """A notebook's view: the tables, and the number of rows in each."""
        row = Markup("<tr><th scope=row>{}</th><td>{}</td><td>{}</td></tr>")
        body = Markup("").join(
            row.format(name.removesuffix(".parquet"), table.num_rows, ", ".join(table.column_names))
            for name, table in self.tables().items()
        )
        head = "<table><caption>{kind} of Verus {version}</caption><thead><tr><th>table<th>rows<th>columns</tr></thead>"
        return Markup(head + "<tbody>{body}</tbody></table>").format(**self.config, body=body)

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
        """Reads the results of `write`, `verus probe` or `verus shell`.

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
        # Several of these results in one folder are saved in Parquet, as simulated ones are.
        if config["kind"] in (PROBE, RECORDING, SHELL) and not (folder / "results.parquet").exists():
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


def _read_table(path: Path) -> pa.Table:
    table = bounded_reading.table(path)
    version = (table.schema.metadata or {}).get(b"verus.schema", b"none").decode()
    if version != str(SCHEMA):
        raise ValueError(f"`{path}`: schema {version} is not one that this version reads (it reads {SCHEMA})")
    return table
