"""Targets for a value, a range or a word: whether it is met, by how much it is missed, and a text for it.

Thresholds of suites, claims of papers and aims of our own studies are all targets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TEXT = re.compile(r"(?P<least>[\d.]+)\.\.(?P<most>[\d.]+)|(?P<sign>[<>]=?|=)(?P<end>-?[\d.]+)")


@dataclass(frozen=True)
class Wanted:
    """A target for a value; without any field, none.

    Attributes:
        least: The minimum.
        most: The maximum.
        strict: Whether the ends themselves miss.
        near: The target itself, which may be missed by the share `within`.
        within: The tolerance, as a share of `near`.
        word: The exact word.
    """

    least: float | None = None
    most: float | None = None
    strict: bool = False
    near: float | None = None
    within: float = 0.0
    word: str | None = None

    @classmethod
    def of(cls, text: str) -> Wanted:
        """Parses the text of a list: ``>1``, ``>=10``, ``<=0.5``, ``0.9..1.1`` or ``=36``.

        Raises:
            ValueError: It has no such form.

        Example:
            >>> Wanted.of(">=10"), Wanted.of("0.9..1.1").holds(1.2)
            (Wanted(least=10.0, most=None, strict=False, near=None, within=0.0, word=None), False)
        """
        parsed = _TEXT.fullmatch(text)
        if parsed is None:
            raise ValueError(f"`{text}` is no range")
        sign = parsed["sign"] or "="
        least, most = parsed["least"] or parsed["end"], parsed["most"] or parsed["end"]
        return cls(
            least=None if sign.startswith("<") else float(least),
            most=None if sign.startswith(">") else float(most),
            strict=sign in ("<", ">"),
        )

    def __bool__(self) -> bool:
        return self != Wanted()

    def holds(self, value: float | str | None) -> bool:
        """Whether the value meets the target. Without a target, any number does; an absent value never does.

        Example:
            >>> Wanted(most=5).holds(4.99), Wanted(least=1).holds(1), Wanted(least=1, strict=True).holds(1)
            (True, True, False)
        """
        if value is None or self.word is not None:
            return value is not None and value == self.word
        if isinstance(value, str):
            return False
        if self.near is not None:
            return abs(value - self.near) <= self.within * abs(self.near)
        if self.strict and value in (self.least, self.most):
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def margin(self, value: float | str | None) -> float | None:
        """How many times better the value is than the target; None where there is no such ratio.

        Example:
            >>> Wanted(most=5).margin(4.0)
            1.25
        """
        if isinstance(value, str) or value is None or value <= 0 or (self.most is not None and self.least is not None):
            return None
        if self.most is not None:
            return self.most / value
        return value / self.least if self.least else None

    def miss(self, value: float | None, unit: str = "") -> str:
        """The distance from a range to its nearer end, in words; empty if the value is in it.

        Example:
            >>> Wanted(50.0, 100.0).miss(150.0, "ms")
            '150 ms, 50 % above 100 ms'
        """
        if self.holds(value):
            return ""
        if value is None:
            return "nothing was observed"
        below = self.least is not None and value <= self.least
        end = self.least if below else self.most
        assert end is not None  # a value without ends to cross is no miss
        unit = f" {unit}" if unit else ""
        away = abs(value - end)
        percent = 100 * away / abs(end) if end else 0.0
        share = f"{percent:.{0 if percent >= 10 else 2}f} %" if end else f"{away:.2g}"
        return f"{value:.4g}{unit}, {share} {'below' if below else 'above'} {end:.4g}{unit}"

    def worst(self, values: Sequence[float | str]) -> float | str:
        """The value that is furthest from the target; without a target, the mean of numbers."""
        words = [value for value in values if isinstance(value, str)]
        if words:
            return next((word for word in words if not self.holds(word)), words[0])
        numbers = [value for value in values if not isinstance(value, str)]
        if (near := self.near) is not None:
            return max(numbers, key=lambda value: abs(value - near))
        if self.least is not None:
            return min(numbers)
        return max(numbers) if self.most is not None else sum(numbers) / len(numbers)

    def told(self, unit: str = "", *, words: bool = False) -> str:
        """The target as text: with signs for a column, or in words for a sentence.

        Example:
            >>> Wanted(near=79, within=0.15).told("ms"), Wanted(2).told("ms"), Wanted(2).told("ms", words=True)
            ('79 ms ± 15 %', '≥ 2 ms', 'at least 2 ms')
        """
        unit = f" {unit}" if unit else ""
        least, most, near = (
            "" if end is None else f"{end:{'.3g' if words else 'g'}}" for end in (self.least, self.most, self.near)
        )
        if self.word is not None:
            return self.word
        if near:
            return f"{near}{unit}" + (f" ± {100 * self.within:g} %" if self.within else "")
        if least and most:
            return f"{least} to {most}{unit}"
        if words:
            above, below = ("above", "below") if self.strict else ("at least", "at most")
        else:
            above, below = "≥", "≤"
        if least:
            return f"{above} {least}{unit}"
        return f"{below} {most}{unit}" if most else ""
