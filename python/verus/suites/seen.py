"""A run as checks see it, and the definition of quantities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from verus.errors import FieldError
from verus.lab.runner import Outcome
from verus.lab.scenario import base_rtt_ms

Array = npt.NDArray[np.float64]

#: Data that a run must keep: metrics alone, time series, or each packet's fate.
METRICS, SERIES, RECORDS = "metrics", "series", "records"


class NotSeenError(ValueError):
    """The run lacks the quantity: a state never came, or the controller does not record it."""


class HiddenError(NotSeenError):
    """The run does not show the quantity: its sender, or the place where it was measured, does not tell."""


class NotTriedError(ValueError):
    """The row's condition never arose in the run, so that it says nothing about the sender."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A run and the options of a check of it.

    Attributes:
        scenario: The scenario.
        outcome: Its outcome.
        options: The check's options of the quantity: `flow`, `from_s`, `to_s` and others.
    """

    scenario: Mapping[str, Any]
    outcome: Outcome
    options: Mapping[str, Any]

    @property
    def flow(self) -> int:
        """The flow of the check, counted from 0; by default the sender under test."""
        return int(self.options.get("flow", 0))

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the check, s; by default the whole run."""
        return float(self.options.get("from_s", 0.0)), float(self.options.get("to_s", self.scenario["duration_s"]))

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The metrics of the whole link; `per_flow` has each flow's."""
        metrics: Mapping[str, Any] = self.outcome["metrics"]
        return metrics

    @property
    def own(self) -> Mapping[str, Any]:
        """The metrics of the check's flow."""
        metrics: Mapping[str, Any] = self.metrics["per_flow"][self.flow]
        return metrics

    def over_time(self, name: str, flow: int | None = None) -> Array:
        """A column of the flow's time series, a value a bin."""
        series = self.outcome["series"]
        if name not in series:
            raise HiddenError(f"the sender does not show `{name}`")
        return np.asarray(series[name], dtype=float)[self._of(flow)]

    @property
    def phases(self) -> list[str | None]:
        """The flow's phase in each bin."""
        if "phase" not in self.outcome["series"]:
            raise HiddenError("the sender does not show its phase")
        phases = self.outcome["series"]["phase"]
        return [phases[index] for index in np.flatnonzero(self._of(None))]

    @property
    def times(self) -> Array:
        """The beginning of each bin, s."""
        return np.asarray(self.outcome["capacity"]["time_s"], dtype=float)

    @property
    def capacity(self) -> Array:
        """The capacity of the link in each bin, Mbit/s."""
        return np.asarray(self.outcome["capacity"]["capacity_mbps"], dtype=float)

    @property
    def during(self) -> npt.NDArray[np.bool_]:
        """A mask of the bins in the check's interval.

        Raises:
            NotSeenError: The interval has no bin.
        """
        start, end = self.interval
        mask: npt.NDArray[np.bool_] = (self.times >= start - 1e-9) & (self.times < end - 1e-9)
        if not mask.any():
            raise NotSeenError(f"no bin of {self.scenario['bin_ms']:g} ms begins from {start:g} to {end:g} s")
        return mask

    def _of(self, flow: int | None) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = np.asarray(self.outcome["series"]["flow"]) == (
            self.flow if flow is None else flow
        )
        return chosen

    def packets(self, name: str, at: str = "sent_ms") -> Array:
        """A column of the flow's packets, those with `at` in the interval."""
        records = self.outcome["records"]
        if name not in records:
            raise HiddenError(f"the run does not show `{name}` of packets")
        when = np.asarray(records[at], dtype=float) / 1e3
        start, end = self.interval
        chosen = (np.asarray(records["flow"]) == self.flow) & (when >= start) & (when < end)
        column: Array = np.asarray(records[name], dtype=float)[chosen]
        return column

    @property
    def base_rtt_s(self) -> float:
        """The flow's round trip without queueing, at the beginning."""
        rtt_ms = base_rtt_ms(self.scenario, self.scenario["flows"][self.flow].get("delay_ms"))
        if rtt_ms is None:
            raise HiddenError("recorded delays have no round trip without a queue")
        return rtt_ms / 1e3


@dataclass(frozen=True)
class Measure:
    """A quantity.

    Attributes:
        unit: The unit of its values; empty for a share or a word.
        about: Its meaning.
        keeps: The data that the run must keep for it.
        of: Computes its value in a run; None if the event did not happen in time.
        options: Options that a check may set, beside `flow`, `from_s` and `to_s`.
        bin_ms: The bin width of the time series that it needs.
    """

    unit: str
    about: str
    keeps: str
    of: Callable[[Seen], float | str | None]
    options: Sequence[str] = ()
    bin_ms: float | None = None

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuses unknown options.

        Raises:
            FieldError: One is unknown or no number.
        """
        names = ("flow", "from_s", "to_s", *self.options)
        for name, value in options.items():
            if name not in names:
                raise FieldError(f"options.{name}", f"is none of {', '.join(names)}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise FieldError(f"options.{name}", f"must be a number, not {value!r}")


Quantity = TypeVar("Quantity", bound=Callable[[Seen], "float | str | None"])


def measured(
    into: dict[str, Measure], unit: str, about: str, keeps: str = SERIES, **more: Any
) -> Callable[[Quantity], Quantity]:
    """Registers a function as a quantity, under its name without the leading underscore."""

    def add(of: Quantity) -> Quantity:
        into[of.__name__.removeprefix("_")] = Measure(unit, about, keeps, of, **more)
        return of

    return add
