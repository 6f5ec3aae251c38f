"""All attacks, and an honest client without any."""

from __future__ import annotations

import importlib

from attacks.attack import ATTACKS, Attack
from attacks.stage import Stage

# Each lists its own, in this order.
for _against in ("probe", "transfer", "load", "files"):
    importlib.import_module(f"attacks.{_against}")


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
