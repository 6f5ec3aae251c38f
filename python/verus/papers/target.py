"""A published number with its tolerance, and the measured value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from verus.report.grid import Cell, Grid
from verus.report.wanted import Wanted


@dataclass(frozen=True, kw_only=True)
class Check:
    """A measured value and its target range.

    Attributes:
        name: The measured quantity and its place.
        value: The measured value; None if nothing was observed, which misses any range.
        wanted: The target range.
        unit: Unit of both; empty for a bare ratio.
    """

    name: str
    value: float | None
    wanted: Wanted
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the value lies in the target range."""
        return self.wanted.holds(self.value)

    def miss(self) -> str:
        """By how much the value misses the range; empty if it does not."""
        return self.wanted.miss(self.value, self.unit)

    def told(self) -> str:
        """The target range, in words."""
        return self.wanted.told(self.unit, words=True)


def verdict(checks: Sequence[Check]) -> list[str]:
    """How many are met, and a line for each that is not."""
    missed = [check for check in checks if not check.met]
    lines = [f"{len(checks) - len(missed)} of {len(checks)} checked targets met."]
    lines += [f"Missed: {check.name}: {check.miss()} (wanted {check.told()})." for check in missed]
    return lines


def table(checks: Sequence[Check], name: str, measured: str = "measured", title: str = "") -> Markup:
    """For a page: a row for each check; `name` heads the column of checks' names."""
    return Grid(
        heads=[name, measured, "wanted", ""],
        rows=[
            [
                check.name,
                f"{'–' if check.value is None else f'{check.value:.4g}'} {check.unit}",
                check.told(),
                Cell("met", "met") if check.met else Cell(check.miss(), "missed"),
            ]
            for check in checks
        ],
        title=title,
    ).html()
