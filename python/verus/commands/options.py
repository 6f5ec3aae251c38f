"""Kinds of options that verbs share: numbers with units, lists of words, switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from verus import _verus


def _quantity(unit: str, *, whole: bool = False) -> Callable[[Any, Sequence[Any]], float]:
    """A converter from a number with or without a unit to a number in `unit`."""

    def convert(_kind: Any, tokens: Sequence[Any]) -> float:
        text = tokens[0].value
        if whole:
            try:
                return int(text)  # of any length: the check of the field has the limit
            except ValueError:
                pass
        try:
            value = _verus.quantity(text, unit)
        except ValueError as error:
            # Infinity is a number: the check of its field reports it.
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"must be {_called(unit, whole=whole)}, not `{text}`: {error}") from None
        if unit == "share" and 1 < value <= 100 and "%" not in text:
            raise ValueError(f"must be {_called(unit)}, not `{text}`; did you mean `{text}%`?")
        if not whole:
            return value
        if value != int(value):
            raise ValueError(f"must be {_called(unit, whole=True)}, not `{text}`")
        return int(value)

    return convert


def _called(unit: str, *, whole: bool = False) -> str:
    """A number in `unit`, in words."""
    if unit == "share":
        return "a share below 1, such as `0.005` or `0.5%`"
    return f"a {'whole ' if whole else ''}number of {_UNITS[unit]}"


_UNITS = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "Mbit/s": "Mbit/s"}


def number(unit: str, metavar: str, *, whole: bool = False, **more: Any) -> Parameter:
    """An option that takes a number in `unit`."""
    return one(metavar, converter=_quantity(unit, whole=whole), allow_leading_hyphen=True, **more)


def words(metavar: str, **more: Any) -> Parameter:
    """An option that takes several words."""
    return Parameter(consume_multiple=True, negative="", metavar=f"{metavar}...", **more)


def one(metavar: str, **more: Any) -> Parameter:
    """An option that takes one."""
    return Parameter(metavar=metavar, **more)


def count(metavar: str, *, several: bool = False, **more: Any) -> Parameter:
    """An option that takes a whole number without a unit, or several; the library alone would round 2.5."""
    if several:
        return words(metavar, converter=_counts, **more)  # a hyphen begins the next option
    return one(metavar, converter=lambda kind, tokens: _counts(kind, tokens)[0], allow_leading_hyphen=True, **more)


def _counts(_kind: Any, tokens: Sequence[Any]) -> list[int]:
    return [_whole(token.value) for token in tokens]


def _whole(text: str) -> int:
    try:
        return int(text)  # of any length: the check of the field has the limit
    except ValueError:
        raise ValueError(f"must be a whole number, not `{text}`") from None


SECONDS = number("s", "TIME")
LATENESS = number("ms", "MS", name=["--max-lateness-ms", "--max-lateness"])
COUNT = count("N")

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
