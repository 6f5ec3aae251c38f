"""Verus: low-delay congestion control for links whose capacity nobody can predict, and the lab that proves it.

    from verus import Flow, Link, simulate

    result = simulate(link=Link.from_trace("city-driving-3g-up"), flows=[Flow("verus", ratio=4)], duration_s=60)
    result.flows[0].rtt_ms  # NumPy array

Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verus._verus import Acked, Departure, Feedback, Timeout
    from verus.api import Comparison, Flow, FlowResult, Link, Metrics, Result, Tuning, compare, simulate, tune
    from verus.controller import Controller
    from verus.lab.runner import RunError
    from verus.trace import Trace

__all__ = [
    "Acked",
    "Comparison",
    "Controller",
    "Departure",
    "Feedback",
    "Flow",
    "FlowResult",
    "Link",
    "Metrics",
    "Result",
    "RunError",
    "Timeout",
    "Trace",
    "Tuning",
    "compare",
    "simulate",
    "tune",
]


#: The environment variable with an extension in place of this package's, for additional algorithms
#: (docs/own-controller.md).
EXTENSION = "VERUS_EXTENSION"


class _Extension:
    """Finds `verus._verus` at the path in the environment variable."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "verus._verus":
            return None
        file = os.environ[EXTENSION]
        if not os.path.isfile(file):  # noqa: PTH113 (pathlib costs start-up)
            raise ImportError(f"{EXTENSION}: there is no file `{file}`")
        return importlib.util.spec_from_file_location(
            name, file, loader=importlib.machinery.ExtensionFileLoader(name, file)
        )


if os.environ.get(EXTENSION):
    sys.meta_path.insert(0, _Extension)


def __dir__() -> list[str]:
    return sorted({*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})


def __getattr__(name: str) -> Any:
    if name == "Controller":
        from verus import controller

        return controller.Controller
    if name == "RunError":
        from verus.lab import runner

        return runner.RunError
    if name == "Trace":
        from verus import trace

        return trace.Trace
    if name in ("Acked", "Departure", "Feedback", "Timeout"):
        from verus import _verus

        return getattr(_verus, name)
    if name in __all__:
        from verus import api

        return getattr(api, name)
    if name == "__version__":
        from verus import _verus

        return _verus.version()
    raise AttributeError(f"module `verus` has no attribute `{name}`")
