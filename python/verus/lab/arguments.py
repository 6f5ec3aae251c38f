"""Checks of arguments: each names an invalid field in a `FieldError`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from os import PathLike, fspath
from typing import TypeVar

from verus.errors import FieldError, not_utf8

Entry = TypeVar("Entry")
Parsed = TypeVar("Parsed")


def text_list(name: str, values: Iterable[Entry]) -> Iterable[Entry]:
    """Returns `values`; refuses a single text, which would otherwise be taken for a list of letters."""
    if values is None:
        raise FieldError(name, "must be a list, not None")
    if isinstance(values, str | PathLike) or not isinstance(values, Iterable):
        raise FieldError(name, f"must be a list, such as [{values!r}], not {values!r} alone")
    return values


def path_text(name: str, path: str | PathLike[str]) -> str:
    """A path, or the name of a channel, as text."""
    if not isinstance(path, str | PathLike) or not isinstance(text := fspath(path), str):
        raise FieldError(name, f"must be a path or the name of a channel, not {path!r}")
    return text


def _number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise FieldError(name, f"must be a number, not {value!r}")


def above_zero(name: str, value: float, unit: str, most: int | None = None) -> None:
    """Refuses anything but a finite number above zero, and at most `most` if there is one."""
    _number(name, value)
    if not (math.isfinite(value) and value > 0):
        raise FieldError(name, f"must be a number of {unit} above 0, not {value:g}")
    if most is not None and value > most:
        raise FieldError(name, f"must be at most {most} {unit}, not {value:g}")


def at_least(name: str, value: float, least: int, most: int | None = None) -> None:
    """Refuses anything but a finite number of at least `least`, and at most `most` if there is one."""
    _number(name, value)
    if not least <= value < math.inf:  # NaN is neither
        raise FieldError(name, f"must be {least} or more, not {_short(value)}")
    if most is not None and value > most:
        raise FieldError(name, f"must be at most {most}, not {_short(value)}")


def whole(name: str, value: int, least: int, most: int | None = None) -> None:
    """As `at_least`, of whole numbers."""
    at_least(name, value, least, most)
    if not isinstance(value, Integral):
        raise FieldError(name, f"must be a whole number, not {value!r}")


def check_seed(seed: int) -> None:
    """Refuses a seed that is negative or too large for the columns that state it."""
    whole("seed", seed, 0, 2**63 - 1)


def _short(value: float) -> str:
    """A number as typed: a whole float without its `.0`."""
    return str(value) if isinstance(value, Integral) else f"{value:g}"


def checked(name: str, value: Entry, check: Callable[[Entry], Parsed]) -> Parsed:
    """Parses `value` with the shared parser, whose error gets the field `name`."""
    try:
        return check(value)
    except UnicodeEncodeError as error:
        raise FieldError(name, not_utf8(error)) from error
    except ValueError as error:
        raise FieldError(name, str(error)) from error
