"""Settings of a scenario as keywords: what `verus.lab.schema` has once is in the help of everything that takes it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from verus.lab.scenario import SCHEMA

Taker = TypeVar("Taker", bound=Callable[..., Any])


def spelled_out(*settings: type) -> Callable[[Taker], Taker]:
    """A decorator that shows the fields of these dataclasses in place of `**options`.

    In the docstring they have the schema's words; in the signature of a function, their types and defaults, and any
    other keyword is refused.
    """
    known = [field for kind in settings for field in dataclasses.fields(kind)]

    def decorate(taker: Taker) -> Taker:
        if taker.__doc__:  # not so under `python -OO`
            taker.__doc__ = re.sub(
                r"^( *)\*\*options: .*$",
                lambda found: "\n".join(_told(field.name, found[1]) for field in known),
                taker.__doc__,
                flags=re.MULTILINE,
            )
        return taker if isinstance(taker, type) else _strict(taker, known)

    return decorate


def _told(name: str, indent: str) -> str:
    """A line or more of a docstring."""
    meaning = " ".join(SCHEMA["properties"][name]["description"].split())
    return textwrap.fill(f"{name}: {meaning}", 120, initial_indent=indent, subsequent_indent=f"{indent}    ")


def _strict(function: Any, known: list[dataclasses.Field[Any]]) -> Any:
    """The same function, of which Python knows each keyword."""
    found = inspect.signature(function)
    own = [entry for entry in found.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    more = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in known
    ]
    shown = found.replace(parameters=[*own, *more])

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        try:
            shown.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return function(*arguments, **keywords)

    called.__signature__ = shown  # type: ignore[attr-defined]
    return called
