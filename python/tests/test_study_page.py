"""The page of a study: its figures, its note on missing runs, and its size for a large study."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verus.lab.sweep import Folder, Plan, cells
from verus.report.page import to_html
from verus.report.study_page import study_page

Command = Callable[..., Any]

STUDY = """
duration_s = 1
trace = ["rate:5", "rate:10"]
seed = { from = 1, to = 3 }

[[part]]
name = "epoch"
scheme = "verus:ratio=2"
params.epoch_ms = [2, 5, 20]

[[part]]
name = "others"
scheme = ["cubic", "vegas"]
queue = ["codel", "infinite"]
flows = [1, 2]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(STUDY)
    return tmp_path / "study"


def shown(path: Path) -> str:
    """The words of a page, without its scripts."""
    text = re.sub(r"<(script|style).*?</\\1>", "", (path / "report.html").read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def test_a_study_has_a_figure_for_each_numeric_axis_and_a_row_for_each_cell(verus: Command, study: Path) -> None:
    ran = verus("sweep", "mine.toml", "--out", "study", "--report")
    assert ran.code == 0, ran.err
    assert "Report: study/report.html" in ran.err
    assert {path.stem for path in (study / "figures").glob("*.svg")} == {
        "throughput-by-params.epoch_ms-epoch",
        "delay-by-params.epoch_ms-epoch",
        "delay-throughput-epoch",
        "throughput-by-flows-others",
        "delay-by-flows-others",
        "delay-throughput-others",
    }
    text = (study / "report.html").read_text()
    assert text.count("<th scope=row>epoch</th>") == 2 * 3
    assert text.count("<th scope=row>others</th>") == 2 * 2 * 2 * 2
    assert "66 of 66 runs are done, in 22 cells" in shown(study)


def test_lines_are_apart_and_marks_whole(verus: Command, study: Path) -> None:
    """Lines of senders that fill a link do not overlap; axes of three values show each whole."""
    assert verus("sweep", "mine.toml", "--out", "study", "--quiet").code == 0
    folder = Folder(study)
    plan = Plan.read(folder.plan_path)
    page = study_page(plan, list(cells(folder.so_far(plan))), 66, 66)
    drawn = {figure.name: figure for figure in page.figures()}
    for what, zero in (("throughput", False), ("delay", True)):
        figure = drawn[f"{what}-by-params.epoch_ms-epoch"]
        assert ("do not begin at 0" in figure.caption) is not zero
        for panel in figure.spec["concat"]:
            across, up = (panel["layer"][0]["encoding"][way] for way in "xy")
            assert up["scale"]["zero"] is zero
            assert across["axis"]["values"] == [2, 5, 20]
            assert across["scale"]["padding"] > 0


def test_lines_are_the_means_of_the_dataset_with_their_intervals(verus: Command, study: Path) -> None:
    # Without chance, seeds would give one and the same run, which has no interval.
    (study.parent / "mine.toml").write_text(f"{STUDY}loss = 0.01\n")
    assert verus("sweep", "mine.toml", "--out", "study", "--quiet").code == 0
    folder = Folder(study)
    plan = Plan.read(folder.plan_path)
    study_cells = list(cells(folder.so_far(plan)))
    page = study_page(plan, study_cells, 66, 66)
    figure = next(each for each in page.figures() if each.name == "delay-by-flows-others")
    assert len(figure.spec["concat"]) == 2 * 2
    drawn = {
        (row["name"], row["panel"], row["x"]): (row["y"], row["low"], row["high"])
        for panel in figure.spec["concat"]
        for row in panel["layer"][0]["data"]["values"]
    }
    assert len(drawn) == 2 * 2 * 2 * 2
    (cell,) = [
        one
        for one in study_cells
        if (one["scheme"], one["trace"], one["queue"], one["flows"]) == ("cubic", "rate:10", "infinite", 2)
    ]
    mean, half = cell["qdelay_mean_ms"]["mean"], cell["qdelay_mean_ms"]["half_width_95"]
    assert drawn["cubic", "rate:10 infinite", 2.0] == pytest.approx((mean, max(mean - half, 0), mean + half), rel=1e-3)


def test_a_study_that_is_not_finished_is_drawn_and_says_what_is_missing(verus: Command, study: Path) -> None:
    assert verus("sweep", "mine.toml", "--out", "study", "--shard", "1/3", "--quiet").code == 0
    ran = verus("report", "study")
    assert ran.code == 0, ran.err
    assert "22 of 66 runs are done" in shown(study)
    assert "44 runs are missing" in shown(study)


def test_a_study_of_which_nothing_is_there_has_no_page(verus: Command, study: Path) -> None:
    assert verus("sweep", "mine.toml", "--out", "study", "--quiet").code == 0
    for path in (study / "runs").rglob("*.run"):
        path.unlink()
    ran = verus("report", "study")
    assert ran.code == 2
    assert "none of the 66 runs" in ran.err
    assert not (study / "report.html").exists()


def test_a_study_of_thousands_of_runs_stays_small(verus: Command, study: Path) -> None:
    assert verus("sweep", "mine.toml", "--out", "study", "--quiet").code == 0
    folder = Folder(study)
    plan = Plan.read(folder.plan_path)
    study_cells = list(cells(folder.so_far(plan)))
    many = [{**cell, "delay_ms": float(delay)} for delay in range(100) for cell in study_cells]
    page = study_page(replace(plan, name="many"), many, 6600, 6600)
    text = to_html(page)
    assert len(text) < 3_000_000
    assert "The first 12 of" in text
    assert "The first 1000 of 2200 cells" in text


def test_a_study_that_delivered_nothing_has_no_delays(verus: Command, study: Path, tmp_path: Path) -> None:
    (tmp_path / "late.down").write_text("5000\n")
    (tmp_path / "mine.toml").write_text('duration_s = 1\ntrace = "late.down"\nscheme = "cubic"\ndelay_ms = [5, 10]\n')
    ran = verus("sweep", "mine.toml", "--out", "study", "--report")
    assert ran.code == 0, ran.err
    assert "2 of 2 runs are done" in shown(study)
    assert [path.name for path in (study / "figures").glob("*.svg")] == ["throughput-by-delay_ms.svg"]
