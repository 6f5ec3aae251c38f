"""A published number, how far from it is near enough, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from verus.report.grid import Cell, Grid


@dataclass(frozen=True, kw_only=True)
class Check:
    """A measured value and the range it should lie in.

    Attributes:
        name: What was measured, where.
        value: The measured value; None if nothing was observed, which misses any range.
        low: Least value that meets the target; None if there is no least.
        high: Greatest likewise.
        unit: Of all three; empty for a bare ratio.
        strict: Whether the ends themselves miss.
        source: Where the range comes from.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    strict: bool = False
    source: str = ""

    @property
    def met(self) -> bool:
        """Whether the value lies in the range.

        Example:
            >>> Check(name="x", value=1.0, low=1.0).met, Check(name="x", value=1.0, low=1.0, strict=True).met
            (True, False)
        """
        if self.value is None:
            return False
        if self.strict:
            return (self.low is None or self.value > self.low) and (self.high is None or self.value < self.high)
        return (self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high)

    def miss(self) -> str:
        """By how much it is missed, against the nearer end; empty if it is met.

        Example:
            >>> Check(name="x", value=150.0, low=50.0, high=100.0, unit="ms").miss()
            '150 ms, 50 % above 100 ms'
        """
        if self.met:
            return ""
        if self.value is None:
            return "nothing was observed"
        below = self.low is not None and self.value <= self.low
        end = self.low if below else self.high
        assert end is not None  # a value without ends to cross is met
        unit = f" {self.unit}" if self.unit else ""
        away = abs(self.value - end)
        percent = 100 * away / abs(end) if end else 0.0
        share = f"{percent:.{0 if percent >= 10 else 2}f} %" if end else f"{away:.2g}"
        return f"{self.value:.4g}{unit}, {share} {'below' if below else 'above'} {end:.4g}{unit}"

    def wanted(self) -> str:
        """The range in words.

        Example:
            >>> Check(name="x", value=1.0, low=2.0, unit="ms").wanted()
            'at least 2 ms'
        """
        unit = f" {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"{self.low:.3g} to {self.high:.3g}{unit}"
        if self.low is not None:
            return f"{'above' if self.strict else 'at least'} {self.low:.3g}{unit}"
        return f"{'below' if self.strict else 'at most'} {self.high:.3g}{unit}" if self.high is not None else "any"


def verdict(checks: Sequence[Check]) -> list[str]:
    """How many are met, and a line for each that is not."""
    missed = [check for check in checks if not check.met]
    lines = [f"{len(checks) - len(missed)} of {len(checks)} checked targets met."]
    lines += [f"Missed: {check.name}: {check.miss()} (wanted {check.wanted()})." for check in missed]
    return lines


def table(checks: Sequence[Check], name: str, measured: str = "measured", title: str = "") -> Markup:
    """For a page: a row for each check; `name` heads what was checked."""
    return Grid(
        heads=[name, measured, "wanted", ""],
        rows=[
            [
                check.name,
                f"{'–' if check.value is None else f'{check.value:.4g}'} {check.unit}",
                check.wanted(),
                Cell("met", "met") if check.met else Cell(check.miss(), "missed"),
            ]
            for check in checks
        ],
        title=title,
    ).html()
