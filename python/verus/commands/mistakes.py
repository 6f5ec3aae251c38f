"""One-line messages for mistyped commands, which name the command that was probably meant."""

from __future__ import annotations

import contextlib
from typing import Any, get_args

from verus.commands.verbs import OTHERS_WORDS, VERBS, first_words
from verus.errors import near


def unknown_verb(word: str) -> str:
    """The message for an unknown `word` right after `verus`."""
    if word in ("-v", "--verbose", "-q", "--quiet"):
        version = " (`verus -V` states the version)" if word == "-v" else ""
        return f"`{word}` needs a verb, such as `verus compare {word}`{version}"
    if word.startswith("-"):
        return f"`{word}` is no option of `verus` itself: options stand behind a verb, as in `verus compare --help`"
    hint = near(word, first_words()) or near(word, ["verus"])
    if "`verus`" in hint:
        hint = "; it is the command itself, and a verb follows it: did you mean `compare`?"
    return f"there is no verb `{word}`{hint or '; there are ' + ', '.join(first_words())} (`verus help`)"


def usage(error: Any) -> str:
    """The option parser's error on one line, with the nearest valid word.

    Args:
        error: A `cyclopts.CycloptsError`.
    """
    from cyclopts import CoercionError, MissingArgumentError, UnknownCommandError, UnknownOptionError
    from cyclopts.exceptions import UnusedCliTokensError

    verb = " ".join(error.command_chain or ())
    more = f" (`verus {verb} --help`)" if verb else " (`verus help`)"
    if isinstance(error, UnknownOptionError):
        word = error.token.keyword or error.token.value
        ours = {name for argument in error.argument_collection for name in argument.names}
        if (meant := OTHERS_WORDS.get(word)) and meant.split(",")[0].split(" ")[0] in ours:
            return f"`verus {verb}` has no `{word}`; did you mean `{meant}`?{more}"
        return f"`verus {verb}` has no `{word}`{near(word, sorted(ours))}{more}"
    if isinstance(error, UnknownCommandError):
        word = (error.unused_tokens or [""])[0]
        names = [name.removeprefix(f"{verb} ") for name in VERBS if verb and name.startswith(f"{verb} ")]
        if not names:
            return unknown_verb(word)
        if len(names) == 1:
            return f"`verus {verb}` has no `{word}`; did you mean `verus {verb} {names[0]} {word}`?{more}"
        return f"`verus {verb}` has no `{word}`{near(word, names) or '; there are ' + ', '.join(names)}{more}"
    if isinstance(error, UnusedCliTokensError):
        word = (error.unused_tokens or [""])[0]
        return f"`{word}` stands behind no option{_place_of(word)}{more}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        label = error.keyword or next(iter(error.argument.names), "")
        examples = VERBS[verb].examples if verb in VERBS else ()
        fitting = (one for one in examples if not label.startswith("-") or label in one.split())
        example = next((f", as in `{one}`" for one in fitting), "")
        need = f"`{label}` needs a value" if label.startswith("-") else f"needs {_label(error.argument)}"
        return f"`verus {verb}`: {need}{example}{more}"
    if isinstance(error, CoercionError) and error.token is not None:
        label = error.token.keyword or (next(iter(error.argument.names), "") if error.argument else "")
        if error.msg is not None:
            return f"{label}: {error.msg}{more}"
        if choices := get_args(error.target_type):
            json_is = "; JSON is `--json`" if error.token.value == "json" and "json" not in choices else ""
            return f"{label}: must be one of {', '.join(map(str, choices))}, not `{error.token.value}`{json_is}{more}"
        kind = {int: "a whole number", float: "a number"}.get(error.target_type, "something else")  # type: ignore[arg-type]
        return f"{label}: must be {kind}, not `{error.token.value}`{more}"
    return " ".join(str(error).split()) + more


def _label(argument: Any) -> str:
    return str(next(iter(argument.names), "")).lstrip("-").upper() or "an argument"


def _place_of(word: str) -> str:
    """The option that takes such a word, as a question."""
    from verus import _verus
    from verus.controller import is_python

    if is_python(word):  # to check it is to run it
        return f"; did you mean `--scheme {word if '.py:' in word else word + ':CLASS'}`?"
    for option, check in (
        ("--scheme", _verus.check_scheme),
        ("--queue", _verus.check_queue),
        ("--traffic", _verus.check_traffic),
        ("--trace", _verus.check_channel),
    ):
        with contextlib.suppress(ValueError, OSError):
            check(word)
            return f"; did you mean `{option} {word}`?"
    return ""
