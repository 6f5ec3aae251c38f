"""Traces for Python: reading, generating, converting, drawing and writing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from verus import _verus
from verus.errors import FieldError
from verus.lab.arguments import above_zero, at_least, check_seed, path_text
from verus.lab.inputs import cut_warnings

if TYPE_CHECKING:
    from verus.report.notebook import Plot

Array = npt.NDArray[Any]

#: The longest that a built-in channel is generated, s, as in the extension (`checked_duration`).
LONGEST_GENERATED_S = 86_400


class Trace:
    """Delivery opportunities: when a link can send a packet of 1500 bytes.

    Attributes:
        name: Its name.
        times_ms: One entry for each opportunity, in milliseconds, never decreasing.
        duration_s: The time after which it repeats, in seconds: its last opportunity, or the end of
            a stretch.

    Example:
        >>> trace = Trace.generate("city-driving-3g-up", duration_s=10, seed=1)
        >>> 0 < trace.mean_mbps < 50
        True
    """

    def __init__(
        self, times_ms: Sequence[int] | Array, *, name: str = "trace", duration_s: float | None = None
    ) -> None:
        self.name = name
        try:
            times = np.asarray(times_ms)
            with np.errstate(invalid="ignore"):
                self.times_ms: npt.NDArray[np.int64] = times.astype(np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise FieldError("times_ms", f"must be whole numbers of milliseconds ({error})") from error
        if times.dtype.kind != "i" and not np.array_equal(times, self.times_ms):
            raise FieldError("times_ms", "must be whole numbers of milliseconds")
        if self.times_ms.ndim != 1 or len(self.times_ms) == 0:
            raise FieldError("times_ms", "must be one column with at least one time")
        if self.times_ms[0] < 0 or np.any(np.diff(self.times_ms) < 0):
            raise FieldError("times_ms", "must not be negative or decrease")
        if self.times_ms[-1] == 0 and not duration_s:
            raise FieldError("times_ms", "the last time is 0, so the trace has no length")
        last_s = float(self.times_ms[-1]) / 1000
        if duration_s is not None:
            at_least("duration_s", duration_s, 0)
        self.duration_s = last_s if duration_s is None else duration_s
        if not self.duration_s >= last_s:
            raise FieldError("duration_s", f"must not be before the last time, {last_s:g} s")

    def __repr__(self) -> str:
        return f"Trace({self.name!r}, {len(self.times_ms)} opportunities, {self.duration_s:g} s)"

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Trace:
        """Reads a Mahimahi trace (plain, .gz or .xz), or a channel by name, as `Link.from_trace` takes it.

        A built-in channel is generated with seed 1, for a minute, unless its name says otherwise.

        Raises:
            OSError: It cannot be read.
            ValueError: It is no trace; the message names the line.
        """
        name = path_text("path", path)
        parsed = _verus.trace_read(name)
        for warning in cut_warnings([{"trace": name}]):
            warnings.warn(warning, stacklevel=2)
        return cls(parsed["times_ms"], name=parsed["name"], duration_s=parsed["period_ms"] / 1000)

    @classmethod
    def generate(cls, channel: str, *, duration_s: float = 60.0, seed: int = 1) -> Trace:
        """Generates a built-in channel. The same seed gives the same trace, and a longer one begins with a shorter one.

        Raises:
            ValueError: There is no such channel, or the duration is not above 0.
        """
        above_zero("duration_s", duration_s, "seconds", LONGEST_GENERATED_S)
        check_seed(seed)
        try:
            return cls(_verus.trace_generate(channel, seed, duration_s), name=channel)
        except (TypeError, ValueError) as error:
            raise FieldError("channel", str(error)) from error

    @classmethod
    def convert(cls, path: str | PathLike[str], *, rates: bool = False) -> Trace:
        """Converts a log of arrival times (Unix seconds, one a line).

        Args:
            path: The log.
            rates: Whether it is a series of rates instead: a header ``start_s,end_s,mbps``, and rows of it.

        Raises:
            OSError: It cannot be read.
            ValueError: A line is no time; the message names it.
        """
        times, period_ms = _verus.trace_convert(path, rates)
        return cls(times, name=Path(path).name, duration_s=period_ms / 1000)

    @property
    def mean_mbps(self) -> float:
        """Mean rate in Mbit/s, at 1500 bytes an opportunity."""
        return len(self.times_ms) * 1500 * 8 / 1e6 / self.duration_s

    def plot(self) -> Plot:
        """Its rate over time."""
        from verus.report import figures, notebook

        return notebook.Plot.of(figures.trace_rate(self.name, self.times_ms))

    def _repr_html_(self) -> str:
        from verus.report import notebook

        return notebook.facts_html(
            self.name,
            [
                ("mean rate", f"{self.mean_mbps:.2f} Mbit/s"),
                ("length", f"{self.duration_s:g} s"),
                ("opportunities", str(len(self.times_ms))),
            ],
        )

    def write(self, path: str | PathLike[str]) -> None:
        """Writes it, whole or not at all; ``.gz`` and ``.xz`` are compressed.

        The format cannot express silence after the last opportunity.

        Raises:
            OSError: It cannot be written.
        """
        _verus.trace_write(self.times_ms, path)

    @staticmethod
    def info(path: str | PathLike[str]) -> dict[str, Any]:
        """Statistics of a trace file or a channel: rate, variation at three time scales, outages."""
        statistics: dict[str, Any] = _verus.trace_info(path_text("path", path))
        return statistics
