"""Figures of the papers agree with their captions and legends."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from verus import papers
from verus.papers.experiment import Options
from verus.papers.sigcomm import fig05, stationary_phones
from verus.papers.sigcomm.learnt import Profile
from verus.report import figures


def words(name: str) -> dict[str, Any]:
    return {"name": name, "title": "t", "caption": "c", "x": "time, s", "y": "rate, Mbit/s"}


def profile(points: list[float]) -> Profile:
    curve = np.arange(1.0, 11.0)
    values = np.asarray(points)
    return Profile(time_s=10, point_window=values, point_delay_ms=values, curve_window=curve, curve_delay_ms=10 * curve)


@pytest.mark.parametrize(("points", "windows"), [([3.0, 6.0], [3, 4, 5, 6]), ([], [])])
def test_a_curve_is_drawn_only_between_its_points(points: list[float], windows: list[int]) -> None:
    drawn = profile(points).known()
    assert drawn.curve_window.tolist() == windows
    assert drawn.curve_delay_ms.tolist() == [10 * window for window in windows]


def test_what_is_shaded_is_in_the_legend_and_lines_keep_their_colours() -> None:
    rows = [{"name": name, "x": float(at), "y": 1.0} for name in ("capacity", "Verus", "Cubic") for at in range(3)]
    (panel,) = figures.lines(rows, shade="capacity", **words("shaded")).spec["concat"]
    area, line = panel["layer"][:2]
    assert area["encoding"]["fill"]["scale"]["domain"] == ["capacity"]
    assert area["encoding"]["fill"]["legend"]["symbolType"] == "square"
    assert line["encoding"]["color"]["scale"]["domain"] == ["Verus", "Cubic"]


@pytest.mark.parametrize("is_log", [False, True])
def test_a_logarithmic_axis_says_so(is_log: bool) -> None:
    rows = [{"name": "Verus", "x": 1.0, "y": 1.0}, {"name": "Verus", "x": 10.0, "y": 2.0}]
    (panel,) = figures.points(rows, log_x=is_log, **words("axes")).spec["concat"]
    titles = {x["axis"]["title"] for layer in panel["layer"] if "axis" in (x := layer["encoding"]["x"])}
    assert titles == {"time, s (log scale)" if is_log else "time, s"}


def test_delays_of_figures_8_and_9_are_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stationary_phones, "DURATION_S", 2.0)
    experiment = papers.find("sigcomm-fig09")
    results = experiment.prepare(Options(built_in=True, repeat=1))(None)
    (figure,) = (each for section in experiment.page(results).sections for each in section.figures)
    delays = [row["x"] for panel in figure.spec["concat"] for row in panel["data"]["values"] if row["x"] is not None]
    longest_ms = max(row["qdelay_mean_ms"] for row in results.rows.to_pylist())
    assert 0 < max(delays) <= 2 * longest_ms / 1e3
    assert "mean queueing delay, s (log scale)" in json.dumps(figure.spec)


def test_the_curve_of_paper_mode_passes_through_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig05, "DURATION_S", 20.0)
    experiment = papers.find("sigcomm-fig05")
    results = experiment.prepare(Options(built_in=True, repeat=1))(None)
    (figure,) = (each for section in experiment.page(results).sections for each in section.figures)
    paper, _ = figure.spec["concat"]
    points, curve = ({row["x"]: row["y"] for row in layer["data"]["values"]} for layer in paper["layer"][:2])
    away = [abs(curve[window] / delay - 1) for window, delay in points.items() if window in curve]
    assert np.median(away) < 0.05
    assert min(curve) >= min(points)
    assert max(curve) <= max(points)
