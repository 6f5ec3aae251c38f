"""BBR's states, and the quantities of the draft's test cases, from a run's recorded quantities."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verus.suites.seen import RECORDS, SERIES, Measure, NotSeenError, NotTriedError, Quantity, Seen, measured

# BBR's states, from its recorded quantities. The pacing gain identifies each of them except
# PROBE_REFILL, which has the gains of PROBE_CRUISE and is recorded itself (draft-ietf-ccwg-bbr,
# "State Machine Overview").

STARTUP, DRAIN, DOWN, STEADY, UP, PROBE_RTT = "STARTUP", "DRAIN", "PROBE_DOWN", "PROBE_CRUISE", "PROBE_UP", "PROBE_RTT"
REFILL = "PROBE_REFILL"

#: All states.
STATES = (STARTUP, DRAIN, DOWN, STEADY, REFILL, UP, PROBE_RTT)

#: States of ProbeBW, which the draft's text treats as one.
_PROBE_BW = (DOWN, STEADY, REFILL, UP)


@dataclass(frozen=True)
class Stay:
    """A stay in one state: its bins, the last one excluded."""

    state: str
    first: int
    end: int


def states(seen: Seen) -> list[Stay]:
    """The states that BBR went through."""
    columns = (seen.over_time("pacing_gain"), seen.over_time("refilling"), seen.phases)
    stays: list[Stay] = []
    for index, (gain, refilling, phase) in enumerate(zip(*columns, strict=True)):
        if np.isnan(gain):
            continue
        state = REFILL if refilling > 0 else _state(float(gain), phase)
        if stays and stays[-1].state == state:
            stays[-1] = Stay(state, stays[-1].first, index + 1)
        else:
            stays.append(Stay(state, index, index + 1))
    return stays


def _state(gain: float, phase: str | None) -> str:
    if phase == "drain":
        return DRAIN if gain < 1 else PROBE_RTT
    if gain > 2:
        return STARTUP
    return UP if gain > 1 else DOWN if gain < 1 else STEADY


def _first(seen: Seen, state: str, after: int = 0) -> tuple[int, list[Stay]]:
    """The index of the first stay in a state that begins in bin `after` or later; and all stays."""
    stays = states(seen)
    for index, stay in enumerate(stays):
        if stay.state == state and stay.first >= after:
            return index, stays
    raise NotTriedError(f"it was never in {state}")


def _bdp_packets(seen: Seen, at: int) -> float:
    """The sender's estimate of the bandwidth-delay product in a bin."""
    mbps, ms = seen.over_time("max_bandwidth_mbps")[at], seen.over_time("delay_min_ms")[at]
    return float(mbps * 1e6 / 8 * ms / 1e3 / float(seen.scenario["packet_bytes"]))


def _in_flight_packets(seen: Seen, at: int) -> float:
    return float(seen.over_time("in_flight_bytes")[at]) / float(seen.scenario["packet_bytes"])


def _bin(seen: Seen) -> int:
    """The bin in which the interval begins."""
    return round(seen.interval[0] * 1e3 / float(seen.scenario["bin_ms"]))


#: The bin width for states that last a few milliseconds.
FINE_MS = 1.0

#: Measures by name.
STATE_MEASURES: dict[str, Measure] = {}


def _measured(unit: str, about: str, keeps: str = SERIES) -> Callable[[Quantity], Quantity]:
    return measured(STATE_MEASURES, unit, about, keeps, bin_ms=FINE_MS)


@_measured("", "how far the bandwidth that BBR knows is from the link's rate when STARTUP ends")
def _startup_bandwidth_error(seen: Seen) -> float:
    index, stays = _first(seen, STARTUP)
    at = stays[index].end
    return abs(float(seen.over_time("max_bandwidth_mbps")[at]) / float(seen.capacity[at]) - 1)


def _next(seen: Seen, state: str) -> str | None:
    index, stays = _first(seen, state, _bin(seen))
    if index + 1 == len(stays):
        return None
    following = stays[index + 1].state
    return "PROBE_BW" if state == PROBE_RTT and following in _PROBE_BW else following


@_measured("", "the state after STARTUP")
def _after_startup(seen: Seen) -> str | None:
    return _next(seen, STARTUP)


@_measured("", "the state after the first PROBE_DOWN from `from_s` on")
def _after_down(seen: Seen) -> str | None:
    return _next(seen, DOWN)


@_measured("", "the state after the first PROBE_RTT from `from_s` on")
def _after_probe_rtt(seen: Seen) -> str | None:
    return _next(seen, PROBE_RTT)


@_measured("", "the state at the end of the run")
def _last_state(seen: Seen) -> str:
    return states(seen)[-1].state


def _gain(seen: Seen, state: str) -> float:
    index, stays = _first(seen, state)
    return float(seen.over_time("pacing_gain")[stays[index].first])


@_measured("", "pacing gain in DRAIN")
def _drain_gain(seen: Seen) -> float:
    return _gain(seen, DRAIN)


@_measured("", "pacing gain in PROBE_DOWN")
def _down_gain(seen: Seen) -> float:
    return _gain(seen, DOWN)


@_measured("", "in flight over the bandwidth-delay product when DRAIN ends")
def _drain_exit(seen: Seen) -> float:
    index, stays = _first(seen, DRAIN)
    at = stays[index].end
    return _in_flight_packets(seen, at) / _bdp_packets(seen, at)


#: A burst at rates of a few Mbit/s (SetSendQuantum).
_BURST_PACKETS = 2


@_measured("", "in flight over the least of the bandwidth-delay product and the bound less its headroom, in cruise")
def _down_exit(seen: Seen) -> float:
    """The headroom is 15 % of the long-term bound, if there is one; a burst leaves within the observed millisecond."""
    stays = states(seen)
    worst = []
    for before, stay in itertools.pairwise(stays):
        if before.state == DOWN and stay.state == STEADY:
            at = stay.first
            bound = float(seen.over_time("longterm_packets")[at])
            limit = _bdp_packets(seen, at)
            if not np.isnan(bound):
                limit = min(limit, 0.85 * bound)
            worst.append((_in_flight_packets(seen, at) - _BURST_PACKETS) / max(limit, 4.0))
    if not worst:
        raise NotTriedError("it never went from PROBE_DOWN to PROBE_CRUISE")
    return max(worst)


@_measured("rounds", "round trips in DRAIN, where it ends by its time and not by what is in flight", RECORDS)
def _drain_rounds(seen: Seen) -> float:
    """Round trips in DRAIN, where it ends although more is in flight than the path holds."""
    index, stays = _first(seen, DRAIN, _bin(seen))
    stay = stays[index]
    if _in_flight_packets(seen, stay.end) <= _bdp_packets(seen, stay.end):
        raise NotTriedError(f"{DRAIN} ended with no more in flight than the path holds, before its time was over")
    bin_ms = float(seen.scenario["bin_ms"])
    # A round ends with the acknowledgement of a packet that left in it.
    sent, acked = (seen.packets(name) for name in ("sent_ms", "acked_ms"))
    at, end, rounds = stay.first * bin_ms, stay.end * bin_ms, -1
    while at <= end:
        rounds += 1
        at = float(np.nanmin(acked[sent >= at], initial=np.inf))
    return float(rounds)


@_measured("s", "from the end of one PROBE_RTT to the next")
def _probe_rtt_interval(seen: Seen) -> float:
    """The time from the end of one to the beginning of the next: the path is empty towards the end of each."""
    stays = [stay for stay in states(seen) if stay.state == PROBE_RTT]
    if len(stays) < 2:
        raise NotSeenError(f"it was in {PROBE_RTT} {len(stays)} times")
    return (stays[1].first - stays[0].end) * float(seen.scenario["bin_ms"]) / 1e3


@_measured("", "whether it goes into PROBE_RTT")
def _probe_rtt_entered(seen: Seen) -> str:
    """Whether a stay in PROBE_RTT begins in the interval."""
    entered = [seen.during[stay.first] for stay in states(seen) if stay.state == PROBE_RTT]
    return "yes" if any(entered) else "no"


@_measured("s", "the shortest stay in PROBE_RTT")
def _probe_rtt_length(seen: Seen) -> float:
    stays = [stay for stay in states(seen)[:-1] if stay.state == PROBE_RTT]
    if not stays:
        raise NotTriedError(f"it was never in {PROBE_RTT}")
    return min(stay.end - stay.first for stay in stays) * float(seen.scenario["bin_ms"]) / 1e3


@_measured("", "the largest window of STARTUP over the bandwidth-delay product")
def _startup_window(seen: Seen) -> float:
    index, stays = _first(seen, STARTUP)
    stay = stays[index]
    window = seen.over_time("window_bytes")[stay.first : stay.end] / float(seen.scenario["packet_bytes"])
    return float(np.nanmax(window)) / _bdp_packets(seen, stay.end)


@_measured("", "the bandwidth known when STARTUP ends over the link's rate")
def _startup_rate(seen: Seen) -> float:
    index, stays = _first(seen, STARTUP)
    at = stays[index].end
    return float(seen.over_time("max_bandwidth_mbps")[at]) / float(seen.capacity[at])


@_measured("", "utilization in PROBE_CRUISE")
def _cruise_utilization(seen: Seen) -> float:
    carried, capacity = seen.over_time("throughput_mbps"), seen.capacity
    chosen = np.zeros(len(carried), dtype=bool)
    for stay in states(seen):
        if stay.state == STEADY:
            chosen[stay.first : stay.end] = True
    if not chosen.any():
        raise NotTriedError(f"it was never in {STEADY}")
    return float(np.nansum(carried[chosen])) / float(np.sum(capacity[chosen]))


@_measured("packets", "the smallest window")
def _least_window(seen: Seen) -> float:
    return float(np.nanmin(seen.over_time("window_bytes"))) / float(seen.scenario["packet_bytes"])


@_measured("rounds", "round trips from the first probe after `from_s` until 98 % of the link's rate is known")
def _rounds_to_rate(seen: Seen) -> float | None:
    """Round trips from the beginning of the first probe after the change."""
    index, stays = _first(seen, UP, _bin(seen) + 1)
    start = stays[index].first
    reached = seen.over_time("max_bandwidth_mbps")[start:] >= 0.98 * seen.capacity[start:]
    if not reached.any():
        return None
    return round(int(np.argmax(reached)) * float(seen.scenario["bin_ms"]) / 1e3 / seen.base_rtt_s, 6)


@_measured("", "whether the rate in force falls below the long-term maximum")
def _short_term_falls(seen: Seen) -> str:
    """Whether the rate in force falls below the long-term maximum in the interval."""
    chosen = seen.during
    lowered = seen.over_time("bandwidth_mbps")[chosen] < 0.99 * seen.over_time("max_bandwidth_mbps")[chosen]
    return "yes" if lowered.any() else "no"


@_measured("cycles", "cycles completed after `from_s` until the known bandwidth is at most 102 % of the link's rate")
def _cycles_to_rate(seen: Seen) -> float | None:
    """Cycles completed from the change until the maximum has fallen to the rate."""
    after = _bin(seen)
    # The rate at the end: the change may come in the interval's first bin.
    reached = np.flatnonzero(seen.over_time("max_bandwidth_mbps")[after:] <= 1.02 * seen.capacity[-1])
    if not len(reached):
        return None
    stays = states(seen)
    # A probe that PROBE_RTT cuts short completes no cycle.
    ends = [stay.end for stay, then in itertools.pairwise(stays) if (stay.state, then.state) == (UP, DOWN)]
    return float(sum(after < end <= after + int(reached[0]) for end in ends))
