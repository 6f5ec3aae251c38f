"""All attacks, and an honest client without any."""

from __future__ import annotations

from attacks import files, probe, report, shell, transfer  # noqa: F401 — the order in which they are listed
from attacks.attack import ATTACKS, Attack
from attacks.stage import Stage


def _probe_alone(stage: Stage) -> None:
    """An honest client of a probe server."""
    stage.probe_server()


def _transfer_alone(stage: Stage) -> None:
    """An honest transfer."""
    stage.serve(stage.folder("served"))


BASELINES = {
    name: Attack(name, name, run, frozenset(), quick=True, flood="", soak=False, timeout_s=30)
    for name, run in (("probe", _probe_alone), ("transfer", _transfer_alone))
}

__all__ = ["ATTACKS", "BASELINES"]
