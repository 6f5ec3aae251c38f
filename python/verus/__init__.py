"""Verus: low-delay congestion control for links whose capacity nobody can predict, and the lab that proves it.

    from verus import Flow, Link, simulate

    result = simulate(link=Link.from_trace("city-driving-3g-up"), flows=[Flow("verus", ratio=4)], duration_s=60)
    result.flows[0].rtt_ms  # NumPy array

Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verus.api import Comparison, Flow, FlowResult, Link, Result, Trace, compare, simulate

__all__ = ["Comparison", "Flow", "FlowResult", "Link", "Result", "Trace", "compare", "simulate"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from verus import api

        return getattr(api, name)
    if name == "__version__":
        from verus import _verus

        return _verus.version()
    raise AttributeError(f"module `verus` has no attribute `{name}`")
