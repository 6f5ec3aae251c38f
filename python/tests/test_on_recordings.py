"""Every experiment over recordings, in its shortest form: channels are found, models are trained, pages are made."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from verus import _verus, papers
from verus.papers import claims, reproduction
from verus.papers.experiment import Options
from verus.papers.recordings import find_recordings
from verus.papers.reproduction import Column, Place

#: Simulated seconds in the short form of what runs longer.
SHORT_S = 20.0
#: Where an experiment's length stands, if not in its own module; and which lengths are needed to measure anything.
LENGTHS = {
    "sigcomm-fig08": ("sigcomm.stationary_phones", SHORT_S),
    "sigcomm-fig09": ("sigcomm.stationary_phones", SHORT_S),
    "sigcomm-fig03": ("sigcomm.fig03", 360),
    "sigcomm-fig04": ("sigcomm.fig04", 300.0),
    "sigcomm-fig07": ("sigcomm.fig07", 200.0),
    "model-fig11": ("model.on_off_users", 300.0),
    "model-fig12": ("model.on_off_users", 300.0),
}
#: Our own studies with recordings, and what takes a guest kernel; `calibration` and `equilibrium` have none.
OWN = {"arena", "ablation", "forward", "agreement", "peers", "linux", "later-cs244-linux"}


def with_recordings() -> list[str]:
    """The experiments of papers that have recordings."""
    names = [name for name in papers.NAMES if name not in {*OWN, "calibration", "equilibrium"}]
    return [name for name in names if any(one.recording for one in places(name).values())]


def places(name: str) -> Mapping[str, Place]:
    """The channels of an experiment."""
    prepare = papers.find(name).prepare
    channels: Mapping[str, Place] = prepare.__self__.channels  # type: ignore[attr-defined]
    return channels


@pytest.fixture
def recordings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the built-in channels out, which other tests run."""
    both = reproduction.columns_for

    def columns(name: str, channels: Mapping[str, Place], options: Options) -> tuple[list[Column], str]:
        found, missing = both(name, channels, options)
        return [column for column in found if column.name == claims.RECORDINGS], missing

    monkeypatch.setattr(reproduction, "columns_for", columns)


@pytest.mark.usefixtures("recordings_alone")
@pytest.mark.parametrize("name", with_recordings())
def test_every_experiment_runs_over_the_recordings(name: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, seconds = LENGTHS.get(name, (papers.module_of(name).removeprefix("papers."), SHORT_S))
    for shortened in (module, "model.trained_models"):
        constants = importlib.import_module(f"verus.papers.{shortened}")
        if hasattr(constants, "DURATION_S"):
            length = seconds if shortened == module else SHORT_S
            monkeypatch.setattr(constants, "DURATION_S", length)
    experiment = papers.find(name)
    results = experiment.prepare(Options(traces=shared / "traces", repeat=1))(None)
    recorded_claims = [claim for claim in claims.of(name) if claim.channels == claims.RECORDINGS]
    judged = experiment.judged(results)
    assert len(judged) == len(claims.of(name))
    assert all(one.holds is not None for one in judged if one.claim in recorded_claims)
    assert experiment.page(results).sections
    assert experiment.summary(results)


@pytest.mark.parametrize("name", sorted(OWN))
def test_the_recordings_of_our_own_studies_are_found_and_can_be_read(
    name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run for minutes, in real time or as root, so that only their recordings are looked for and opened."""
    paths: dict[str, str] = {}

    def noted(texts: Iterable[str], folder: Path | None) -> dict[str, str]:
        resolved = find_recordings(texts, folder)
        paths.update(resolved)
        return resolved

    experiment_module = importlib.import_module(f"verus.{papers.module_of(name)}")
    for module in (reproduction, experiment_module):
        if hasattr(module, "find_recordings"):
            monkeypatch.setattr(module, "find_recordings", noted)
    papers.find(name).prepare(Options(traces=shared / "traces"))
    assert paths
    for path in paths.values():
        _verus.check_channel(path)


@pytest.mark.parametrize(
    ("name", "is_like_a_model"),
    [
        ("verus-2015/city-driving.up.xz", True),
        ("mahimahi/TMobile-UMTS-driving.up", True),
        ("starlink-leocc-2025/bw_example.xz", False),  # faster than any built-in channel
    ],
)
def test_models_are_fitted_to_public_recordings_with_their_histograms(
    name: str, is_like_a_model: bool, shared: Path
) -> None:
    from verus.lab import fitting

    fit = fitting.fit_rate(_verus.trace_read(str(shared / "traces" / name))["times_ms"])
    assert _verus.check_channel(fit.settings["trace"])["name"] == fit.settings["trace"]
    assert len(fit.quantities) == 3
    assert (max(quantity.ks_distance for quantity in fit.quantities) < 0.6) == is_like_a_model
    for quantity in fit.quantities:
        assert 0 < quantity.ks_distance <= 1, quantity.name
        assert sum(quantity.measured) == pytest.approx(1)
        assert sum(quantity.model) == pytest.approx(1)
