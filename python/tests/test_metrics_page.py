"""docs/metrics.md defines every number of a result: the names are those of the code, and formulas hold on a run."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.compute as pc
import pytest

from verus import Comparison, compare
from verus.lab.arrow_tables import ROW_SCHEMA
from verus.lab.metric_rows import PER_FLOW_NUMBERS, ROW_FIELDS
from verus.lab.probe import _PROFILE, _ROWS, _SERIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def tables(section: str) -> list[list[str]]:
    """The names in the first column of each table below a heading, in order."""
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert text, section
    listed: list[list[str]] = []
    for line in text[1].splitlines():
        if line.startswith("| name |"):
            listed.append([])
        elif line.startswith("| `"):
            listed[-1] += re.findall(r"`(\w+)`", line.split("|")[1])
    return listed


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(
        traces=["rate:5"],
        schemes=["verus", "forward", "cubic"],
        flows=2,
        duration_s=12,
        records=True,
        traffic="on-off:off_s=1,mean_mb=1,variance=0.5,max_mb=4",
    )


def test_rows_are_defined_whole_and_in_order() -> None:
    what_was_run, what_came, per_flow, more, counts = tables("A row of results")
    assert (*what_was_run, *what_came) == ROW_FIELDS
    assert tuple(per_flow) == ("flow", "scheme", *PER_FLOW_NUMBERS)
    assert {*ROW_FIELDS, *more} == set(ROW_SCHEMA.names)
    assert set(counts) == counted_in_rust() - {*ROW_FIELDS, *PER_FLOW_NUMBERS}


def counted_in_rust() -> set[str]:
    """The fields of `Metrics` and of `FlowMetrics`."""
    source = (ROOT / "crates" / "measure" / "src" / "metrics.rs").read_text(encoding="utf-8")
    structures = re.findall(r"pub struct (?:Flow)?Metrics \{\n(.*?)\n\}", source, flags=re.DOTALL)
    assert len(structures) == 2
    return {name for body in structures for name in re.findall(r"^    pub (\w+):", body, re.MULTILINE)} - {
        "series",
        "flow",
    }


def test_what_a_live_path_has_besides_is_defined() -> None:
    assert tables("On a live path") == [list(_ROWS.names[len(ROW_SCHEMA.names) :])]


def test_columns_over_time_are_defined(comparison: Comparison) -> None:
    always, shown = tables("Over time")
    probes = {
        name
        for crate in ("core", "verus", "forward", "peers", "model")
        for path in (ROOT / "crates" / crate / "src").rglob("*.rs")
        for name in re.findall(r"\brecord\(\s*\"(\w+)\"", path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0])
    }
    assert set(shown) == probes
    assert len(shown) == len(set(shown))
    assert {*comparison.results.series.column_names} <= {*always, *shown}
    assert {*always} == ({*comparison.results.series.column_names} - probes) | {*_SERIES.names}


@pytest.mark.parametrize(
    ("section", "file"),
    [("Delay profiles", "profile"), ("Packets", "records"), ("Connections", "connections")],
)
def test_columns_of_the_other_files_are_defined(comparison: Comparison, section: str, file: str) -> None:
    assert tables(section) == [comparison.results.tables()[f"{file}.parquet"].column_names]


def test_a_profile_of_a_live_path_has_the_same_columns() -> None:
    assert tables("Delay profiles") == [_PROFILE.names]


def test_what_run_json_has_is_defined(comparison: Comparison) -> None:
    assert tables("run.json") == [list(comparison.results.config)]


def test_formulas_of_the_page_hold_on_a_run() -> None:
    compared = compare(
        traces=["rate:5"], schemes=["cubic"], flows=2, duration_s=30, delay_ms=25, loss=0.01, records=True
    )
    (row,) = compared.rows()
    throughput = row["throughput_mbps"]
    assert row["utilization"] == pytest.approx(throughput / row["capacity_mbps"])
    assert row["power"] == pytest.approx(throughput / ((row["qdelay_mean_ms"] + 2 * row["delay_ms"]) / 1e3))
    assert sum(flow["throughput_mbps"] for flow in row["per_flow"]) == pytest.approx(throughput)
    records = compared.results.records
    assert records is not None
    departed = records.filter(pc.is_valid(records["departed_ms"]))
    delays = sorted(pc.subtract(departed["departed_ms"], departed["sent_ms"]).to_pylist())
    assert row["qdelay_mean_ms"] == pytest.approx(sum(delays) / len(delays), rel=1e-6)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        exact = delays[int(share * len(delays))]
        assert exact - max(0.01, exact / 1024) <= row[f"qdelay_{name}_ms"] <= exact + 1e-9
    assert row["retransmit_rate"] == pytest.approx(pc.mean(records["retransmission"]).as_py())
    received = pc.sum(records["new_bytes"]).as_py()
    assert row["goodput_mbps"] == pytest.approx(received * 8e-6 / row["duration_s"], rel=0.01)
