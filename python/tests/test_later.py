"""Results of later papers: claims are their numbers, and claims that fail have a cause."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from verus.lab.results import Results
from verus.lab.runner import run_all
from verus.papers import claims
from verus.papers.experiment import Options
from verus.papers.later import abc, alcc
from verus.papers.reproduction import columns_for


def test_the_published_numbers_are_those_of_the_reference(shared: Path) -> None:
    figures = {"fig2a": "Fig. 2a", "fig2b": "Fig. 2b"}
    with (shared / "arena" / "later-papers.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith("abc-hotnets17/")]
    assert len(rows) == 2 * len(abc.published()) == 32
    for row in rows:
        _, figure, scheme, metric = row["id"].split("/")
        used, delay = abc.published()[figures[figure], scheme]
        assert float(row["value"]) == {"util": used, "p95": delay}[metric]


def test_the_claimed_ranges_are_the_published_numbers_widened() -> None:
    ranges = {claim.name: claim.range() for claim in claims.of("later-abc")}
    for place, end in (("Fig. 2a", "2a"), ("Fig. 2b", "2b")):
        for name in abc.ENTRIES:
            used, delay = abc.published()[place, name]
            claimed = ranges[f"{name}-used-{end}"]
            assert (claimed.least, claimed.most) == (pytest.approx(used - 0.08), pytest.approx(used + 0.08))
            claimed = ranges[f"{name}-delay-{end}"]
            assert (claimed.least, claimed.most) == (
                pytest.approx(0.7 * delay, abs=0.6),
                pytest.approx(1.3 * delay, abs=0.6),
            )


def test_what_does_not_hold_on_the_recordings_has_its_cause_written_down(shared: Path) -> None:
    columns, _ = columns_for("later-abc", abc.CHANNELS, Options(traces=shared / "traces"))
    (recorded,) = [column for column in columns if column.name == claims.RECORDINGS]
    runs = abc.runs(recorded)
    assert not any(run.scenario["loop"] for run in runs)
    settings = {"columns": {claims.RECORDINGS: {}}, "missing": ""}
    results = Results.collect(runs, run_all(runs), kind="later-abc", settings=settings)
    missed = {one.claim.name for one in abc.EXPERIMENT.judged(results) if not one.holds}
    assert missed == set(claims.causes_of("later-abc"))


def test_each_scheme_of_the_figure_runs_over_both_channels_as_it_was_run() -> None:
    columns, missing = columns_for("later-abc", abc.CHANNELS, Options(built_in=True))
    runs = abc.runs(columns[0])
    assert missing == "Recordings were left out, as asked."
    assert len(runs) == 2 * len(abc.EVERYONE)
    assert {run.scenario["delay_ms"] for run in runs} == {50.0}
    assert {run.scenario["ack"] for run in runs} == {"rate:48"}
    queues = {run.contestant.label: run.queue for run in runs}
    assert queues["Cubic, CoDel"] == "codel:target_ms=50,interval_ms=100"
    assert queues["Verus"] == queues["Cubic"] == "droptail:packets=100"


def test_a_rank_correlation_says_whether_an_order_is_kept() -> None:
    assert abc.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert abc.rank_correlation([1, 2, 3, 4], [40, 30, 20, 10]) == -1


def test_half_the_feedback_is_the_only_difference() -> None:
    columns, _ = columns_for("later-alcc", alcc.CHANNELS, Options())
    pairs: dict[str, list[dict[str, object]]] = {}
    for run in alcc.runs(columns[0]):
        pairs.setdefault(run.part.rpartition("|")[0], []).append(dict(run.scenario))
    assert len(pairs) == 4
    for native, below in pairs.values():
        assert (native.pop("ack_every"), below.pop("ack_every")) == (1, 2)
        assert native == below
