"""Packets drawn through the queue are those of the records: when they came, how long they waited, who was dropped."""

from __future__ import annotations

import numpy as np
import pytest

from verus import api
from verus.lab.results import Results
from verus.report import figures
from verus.report.summary import blocks
from verus.saved_run import page_for


@pytest.fixture(scope="module")
def recorded() -> Results:
    """A short queue, so that packets are dropped."""
    comparison = api.compare(
        traces=["rate:8"], schemes=["cubic"], queues=["droptail:bytes=30000"], duration_s=6, flows=3, records=True
    )
    return comparison.results


def bars(results: Results) -> list[dict[str, float]]:
    figure = figures.packets(results, blocks(results)[0], name="packets")
    assert figure is not None
    (panel,) = figure.spec["concat"]
    rows: list[dict[str, float]] = panel["data"]["values"]
    return rows


def test_each_bar_is_a_packet_of_the_records(recorded: Results) -> None:
    assert recorded.records is not None
    records_by_packet = {
        (f"flow {row['flow']}", row["number"], row["connection"]): row for row in recorded.records.to_pylist()
    }
    rows = bars(recorded)
    assert len(rows) > 50
    for row in rows:
        packet = records_by_packet[row["name"], row["number"], 0]
        end = packet["dropped_ms"] if row["fate"] == "dropped" else packet["departed_ms"]
        assert row["waited"] == pytest.approx(end - packet["sent_ms"], rel=1e-3, abs=1e-3)


def test_bars_are_in_the_order_in_which_packets_came(recorded: Results) -> None:
    rows = bars(recorded)
    arrivals = np.array([row["came"] for row in rows])
    assert (np.diff(arrivals) >= -1e-3).all()
    assert [row["order"] for row in rows] == list(range(len(rows)))


def test_as_many_bars_lie_above_each_other_as_the_queue_holds(recorded: Results) -> None:
    rows = [row for row in bars(recorded) if row["fate"] == "left"]
    for instant in (20.0, 40.0, 60.0):
        waiting = sum(row["came"] <= instant < row["left"] for row in rows)
        # 30 kB are 21 packets of 1400 bytes, and one may be on its way out.
        assert 0 < waiting <= 30_000 // 1400 + 1


def test_pages_show_packets_where_they_were_recorded_alone(recorded: Results) -> None:
    titles = [section.title for section in page_for(recorded).sections]
    assert "Packets in the queue" in titles
    without_records = api.compare(traces=["rate:8"], schemes=["cubic"], duration_s=1).results
    assert "Packets in the queue" not in [section.title for section in page_for(without_records).sections]
