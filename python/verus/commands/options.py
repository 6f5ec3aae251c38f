"""Kinds of options that verbs share: numbers with units, lists of words, switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from verus import _verus


def _quantity(unit: str, *, whole: bool = False) -> Callable[[Any, Sequence[Any]], float]:
    """What reads a number with a unit behind it if it has one, and yields it in `unit`."""

    def convert(_kind: Any, tokens: Sequence[Any]) -> float:
        text = tokens[0].value
        if whole:
            try:
                return int(text)  # of any length, for whoever says what is too much
            except ValueError:
                pass
        try:
            found = _verus.quantity(text, unit)
        except ValueError as error:
            # Infinity is a number, and its field says what is wrong with it.
            try:
                return float(text)
            except ValueError:
                kind = "a whole number" if whole else "a number"
                raise ValueError(f"must be {kind} of {_CALLED[unit]}, not `{text}`: {error}") from None
        if not whole:
            return found
        if found != int(found):
            raise ValueError(f"must be a whole number of {_CALLED[unit]}, not `{text}`")
        return int(found)

    return convert


#: Units in words.
_CALLED = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "share": "shares of 1 or %", "Mbit/s": "Mbit/s"}


def number(unit: str, metavar: str, *, whole: bool = False, **more: Any) -> Parameter:
    """An option that takes a number in `unit`."""
    return one(metavar, converter=_quantity(unit, whole=whole), allow_leading_hyphen=True, **more)


def words(metavar: str, **more: Any) -> Parameter:
    """An option that takes several words."""
    return Parameter(consume_multiple=True, negative="", metavar=f"{metavar}...", **more)


def one(metavar: str, **more: Any) -> Parameter:
    """An option that takes one."""
    return Parameter(metavar=metavar, **more)


SECONDS = number("s", "TIME")
DELAY = number("ms", "MS", name=["--delay-ms", "--delay"])
LATENESS = number("ms", "MS", name=["--max-lateness-ms", "--max-lateness"])
BYTES = number("bytes", "SIZE", whole=True)
COUNT = one("N", allow_leading_hyphen=True)

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
