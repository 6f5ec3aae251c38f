"""Congestion control as an environment of Gymnasium, for programs that learn it (`pip install "verus-cc[gym]"`).

An episode is one run of the simulator. At each step the agent sets the congestion window of one
flow, and gets an observation an interval later. Its reward is the delivered rate, less costs of
delay and of losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from verus import _verus
from verus.api import Link, check_link
from verus.controller import Controller, Scheme, given, text_of
from verus.errors import FieldError
from verus.lab.arguments import above_zero, at_least, checked, text_list
from verus.lab.scenario import DEFAULTS, Contestant, check_fields, make_run

#: The parts of an observation, in order, with the maximum of each.
OBSERVED = {
    "delivered_mbps": 1e6,
    "sent_mbps": 1e6,
    "rtt_ms": 1e6,
    "min_rtt_ms": 1e6,
    "loss_rate": 1.0,
    "window_packets": 1e4,
}

#: The initial (RFC 6928), minimum and maximum window, packets.
INITIAL_PACKETS, LEAST_PACKETS, MOST_PACKETS = 10.0, 2.0, 10_000.0

#: The environment's name for `gymnasium.make`, once this module is imported.
ID = "verus/Congestion-v0"

Observation = npt.NDArray[np.float32]


class CongestionEnv(gymnasium.Env[Observation, npt.NDArray[np.float32]]):
    """One flow whose window an agent sets, over one link.

    Action: one number between -1 and 1. The window is multiplied by 2 to that power, and limited to
    2 to 10,000 packets.

    Observation: six numbers of the last interval, in the order of `OBSERVED`. They are the
    acknowledged and the sent rate (Mbit/s), the interval's mean and the episode's minimum
    round-trip time (ms), the loss rate, and the window (packets). The loss rate is lost packets as
    a share of lost and acknowledged ones. Without acknowledgements the mean is that of the interval
    before.

    Reward: delivered Mbit/s, less `delay_cost` for each ms of the mean round-trip time above the
    minimum, less `loss_cost` times the share that was lost. `reward` can be overridden.

    An episode is truncated after `duration_s`, and never terminates before. The scenario's seed is drawn from that
    given to `reset`: the same seed and actions give the same observations, bit for bit.

    Args:
        link: The path; one of 12 Mbit/s and 20 ms if None.
        duration_s: Simulated seconds of an episode.
        interval_ms: Simulated time between two steps.
        packet_bytes: Size of packets (IP).
        competitors: Schemes of other flows, which share the link.
        delay_cost: Mbit/s for each ms of queueing.
        loss_cost: Mbit/s if everything were lost.

    Raises:
        ValueError: A value cannot be used; the message names its field.

    Example:
        >>> env = gymnasium.make(ID, duration_s=1)
        >>> observation, _ = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(np.array([0.5], dtype=np.float32))
        >>> round(float(observation[5]), 2)  # 10 packets, times the square root of 2
        14.14
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(
        self,
        *,
        link: Link | None = None,
        duration_s: float = 60.0,
        interval_ms: float = 100.0,
        packet_bytes: int = DEFAULTS["packet_bytes"],
        competitors: Sequence[Scheme] = (),
        delay_cost: float = 0.02,
        loss_cost: float = 10.0,
    ) -> None:
        above_zero("duration_s", duration_s, "seconds", 1_000_000)
        above_zero("interval_ms", interval_ms, "ms", 1_000_000)
        for name, cost in (("delay_cost", delay_cost), ("loss_cost", loss_cost)):
            at_least(name, cost, 0)
        if duration_s * 1000 < interval_ms:
            raise FieldError("interval_ms", f"must be at most the {duration_s:g} s of an episode, not {interval_ms:g}")
        self.link = Link.constant(12) if link is None else link
        check_link(self.link)
        self.duration_s, self.interval_s = duration_s, interval_ms / 1000
        self.delay_cost, self.loss_cost = delay_cost, loss_cost
        self._competitors = [checked("competitors", one, text_of) for one in text_list("competitors", competitors)]
        self._fields: dict[str, Any] = {
            **{name: value for name, value in vars(self.link).items() if name not in ("trace", "queue")},
            "packet_bytes": packet_bytes,
            "duration_s": duration_s,
            "series": False,
        }
        check_fields(self._fields)
        for text in self._competitors:
            checked("competitors", text, _verus.check_scheme)
        self.action_space = spaces.Box(-1.0, 1.0, shape=(1,), dtype=np.float32)
        maxima = np.array(list(OBSERVED.values()), dtype=np.float32)
        self.observation_space = spaces.Box(np.zeros_like(maxima), maxima, dtype=np.float32)
        self._agent = _Agent(self.interval_s)
        self._simulation: _verus.Simulation | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode; the first observation is that of a new flow.

        Args:
            seed: The seed of this episode and those after it. If None, the sequence continues.
            options: Unused; there are no options.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31))
        agent = self._agent = _Agent(self.interval_s)

        def learned() -> Controller:
            return agent

        with given(learned) as scheme:
            run = make_run(
                trace=self.link.trace,
                queue=self.link.queue,
                contestant=Contestant.from_flows([scheme, *self._competitors]),
                seed=drawn,
                **self._fields,
            )
            self._simulation = _verus.Simulation(run.to_json())
        self._steps = 0
        return self._observe(self.interval_s), {"seed": drawn}

    def step(self, action: npt.NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Sets the window, and lets an interval pass.

        Raises:
            RuntimeError: There is no episode: `reset` comes first, and after the end.
            ValueError: The action is not of the action space.
        """
        if self._simulation is None:
            raise RuntimeError("there is no episode: call reset() first")
        power = float(np.asarray(action, dtype=np.float64).reshape(-1)[0]) if np.size(action) == 1 else math.nan
        if not -1 <= power <= 1:
            raise ValueError(f"action must be one number between -1 and 1, not {action!r}")
        agent = self._agent
        agent.begin_interval(min(max(agent.packets * 2**power, LEAST_PACKETS), MOST_PACKETS))
        began_s = self._steps * self.interval_s
        self._steps += 1
        now_s = min(self._steps * self.interval_s, self.duration_s)
        goes_on = self._simulation.run_until(now_s)
        observation = self._observe(now_s - began_s)
        by_name = dict(zip(OBSERVED, map(float, observation), strict=True))
        if not goes_on:
            self._simulation = None
        return observation, self.reward(by_name), False, not goes_on, {"time_s": now_s}

    def reward(self, seen: dict[str, float]) -> float:
        """The reward of an interval; override it for another aim.

        Args:
            seen: The observation after it, by name (`OBSERVED`).
        """
        queueing_ms = max(seen["rtt_ms"] - seen["min_rtt_ms"], 0.0)
        return seen["delivered_mbps"] - self.delay_cost * queueing_ms - self.loss_cost * seen["loss_rate"]

    def close(self) -> None:
        """Discards the episode."""
        self._simulation = None

    def _observe(self, passed_s: float) -> Observation:
        observation = np.array(self._agent.end_interval(passed_s), dtype=np.float32)
        return np.clip(observation, 0, np.array(list(OBSERVED.values()), dtype=np.float32))


gymnasium.register(id=ID, entry_point=f"{__name__}:CongestionEnv")


class _Agent(Controller):
    """Applies the window that it gets at the beginning of each interval, and counts."""

    def __init__(self, interval_s: float) -> None:
        self.packets = INITIAL_PACKETS
        self._interval_s = interval_s
        self._packet_bytes = 0
        self._intervals = 0
        self._rtt_ms = self._min_rtt_ms = 0.0
        self.begin_interval(INITIAL_PACKETS)

    def begin_interval(self, packets: float) -> None:
        self.packets = packets
        self._sent_bytes = self._delivered_bytes = self._acked = self._lost = 0
        self._rtts_ms = 0.0

    def end_interval(self, passed_s: float) -> tuple[float, ...]:
        """The observation after `passed_s`, in the order of `OBSERVED`."""
        if self._acked:
            self._rtt_ms = self._rtts_ms / self._acked
        resolved = self._acked + self._lost
        to_mbps = 8 / 1e6 / passed_s
        return (
            self._delivered_bytes * to_mbps,
            self._sent_bytes * to_mbps,
            self._rtt_ms,
            self._min_rtt_ms,
            self._lost / resolved if resolved else 0.0,
            self.packets,
        )

    def on_start(self, now_s: float, packet_bytes: int) -> None:
        self._packet_bytes = packet_bytes
        self.window_bytes = 0.0  # the first action comes first
        self.next_tick_s = now_s

    def on_tick(self, now_s: float, in_flight_bytes: int) -> None:
        # The interval that begins now has the window that `begin_interval` set.
        self.window_bytes = self.packets * self._packet_bytes
        self._intervals += 1
        self.next_tick_s = self._intervals * self._interval_s

    def on_sent(self, packet: _verus.Departure) -> None:
        self._sent_bytes += packet.size_bytes

    def on_feedback(self, feedback: _verus.Feedback) -> None:
        for acked in feedback.acked:
            self._rtts_ms += acked.rtt_ms
            self._acked += 1
        self._lost += len(feedback.lost)
        self._delivered_bytes += feedback.newly_delivered_bytes
        self._min_rtt_ms = feedback.min_rtt_ms

    def on_timeout(self, timeout: _verus.Timeout) -> None:
        self._lost += len(timeout.presumed_lost)
