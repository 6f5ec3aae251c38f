"""Verus: low-delay congestion control for links whose capacity nobody can predict, and the lab that proves it.

    from verus import Flow, Link, simulate

    result = simulate(link=Link.from_trace("city-driving-3g-up"), flows=[Flow("verus", ratio=4)], duration_s=60)
    result.flows[0].rtt_ms  # NumPy array

Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verus._verus import Acked, Departure, Feedback, Timeout
    from verus.api import Comparison, Flow, FlowResult, Link, Result, Trace, compare, simulate
    from verus.controller import Controller
    from verus.runner import RunError

__all__ = [
    "Acked",
    "Comparison",
    "Controller",
    "Departure",
    "Feedback",
    "Flow",
    "FlowResult",
    "Link",
    "Result",
    "RunError",
    "Timeout",
    "Trace",
    "compare",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name == "Controller":
        from verus import controller

        return controller.Controller
    if name == "RunError":
        from verus import runner

        return runner.RunError
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
