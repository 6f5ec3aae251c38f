"""Settings of a scenario as keywords: everything that takes them documents them in the words of `verus.lab.schema`."""

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
    settings_fields = [field for kind in settings for field in dataclasses.fields(kind)]

    def decorate(taker: Taker) -> Taker:
        if taker.__doc__:  # not so under `python -OO`
            taker.__doc__ = re.sub(
                r"^( *)\*\*options: .*$",
                lambda found: "\n".join(_doc_line(field.name, found[1]) for field in settings_fields),
                taker.__doc__,
                flags=re.MULTILINE,
            )
        return taker if isinstance(taker, type) else _strict(taker, settings_fields)

    return decorate


def _doc_line(name: str, indent: str) -> str:
    """The lines of a docstring for a field."""
    meaning = " ".join(SCHEMA["properties"][name]["description"].split())
    return textwrap.fill(f"{name}: {meaning}", 120, initial_indent=indent, subsequent_indent=f"{indent}    ")


def _strict(function: Any, settings_fields: list[dataclasses.Field[Any]]) -> Any:
    """The same function with each keyword in its signature, which refuses any other."""
    signature = inspect.signature(function)
    parameters = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    more = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in settings_fields
    ]
    shown = signature.replace(parameters=[*parameters, *more])

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        try:
            shown.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return function(*arguments, **keywords)

    called.__signature__ = shown  # type: ignore[attr-defined]
    return called
