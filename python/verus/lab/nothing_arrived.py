"""Warnings about runs in which nothing arrived, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from verus import _verus
from verus.lab.runner import Outcome
from verus.lab.scenario import Run

#: Shares of the sent data or of the capacity, which say nothing about a sender if nothing arrived.
SHARES = ("utilization", "loss_rate", "path_loss_rate", "retransmit_rate")

#: Times of a trace from here on, ms, are calendar times: 31 years.
_CALENDAR_MS = 10**12


def arrived(metrics: Mapping[str, Any]) -> bool:
    """Whether anything reached a receiver.

    Example:
        >>> arrived({"goodput_mbps": 0.0, "throughput_mbps": 0.5}), arrived({"throughput_mbps": 0.5})
        (False, True)
    """
    goodput = metrics.get("goodput_mbps")
    return bool(metrics.get("throughput_mbps") if goodput is None else goodput)


def warnings(runs: Sequence[Run], outcomes: Iterable[Outcome]) -> list[str]:
    """A sentence for each run in which nothing arrived or nothing was acknowledged, without duplicates."""
    return [
        *dict.fromkeys(told for run, outcome in zip(runs, outcomes, strict=True) for told in _warnings(run, outcome))
    ]


def _warnings(run: Run, outcome: Outcome) -> Iterator[str]:
    metrics, scenario = outcome["metrics"], run.scenario
    contestant = f"{run.contestant.label} over `{run.trace}`"
    if not arrived(metrics):
        why = _why(scenario, {"trace": run.trace, "second_trace": scenario.get("second_trace")})
        yield f"nothing arrived in a run of {contestant}: {why or 'its path let no packet through'}"
    elif metrics.get("rtt_mean_ms") is None and outcome.get("engine", "sim") == "sim":
        ack = scenario["trace"] if scenario["ack"] == "same" else scenario["ack"]
        why = _why(scenario, {"ack": None if ack == "ideal" else ack})
        # A run that ends within its first round trip needs no warning: its settings say so.
        if why or scenario["ack_delay_ms"] is not None:
            yield f"nothing was acknowledged in a run of {contestant}: {why or 'no acknowledgement came back in time'}"


def _why(scenario: Mapping[str, Any], channels: Mapping[str, str | None]) -> str:
    """The first of these channels that lets nothing through during the run, as a clause; empty if none surely does."""
    duration_s = scenario["duration_s"]
    for channel in filter(None, channels.values()):
        try:
            first_ms = int(_verus.trace_read(channel, scenario["seed"], duration_s)["times_ms"][0])
        except (ValueError, OSError):  # a constant rate
            continue
        if first_ms >= duration_s * 1e3:
            first = f"the first opportunity of `{channel}` is at {first_ms / 1e3:.10g} s"
            calendar = "; its times are of a calendar: subtract the first" if first_ms >= _CALENDAR_MS else ""
            return f"{first}, and the run lasts {duration_s:g} s{calendar}"
    return ""
