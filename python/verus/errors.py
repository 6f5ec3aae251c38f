"""Errors in a user's arguments and files, each as one sentence that names the place.

Every message of the package names a field, a file or a line. The command line turns field names
into flags and exits with code 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable


class FieldError(ValueError):
    """A value that cannot be used.

    Attributes:
        field: The name of the argument that holds it, as the Python API spells it (``duration_s``).
        problem: The problem, as the rest of a sentence after the field's name.
        other: The name of another argument that the problem states, if it does.

    Example:
        >>> import pickle
        >>> str(FieldError("duration_s", "must be above 0, not -1"))
        'duration_s: must be above 0, not -1'
        >>> pickle.loads(pickle.dumps(FieldError("seed", "must be whole"))).field  # from a pool of processes
        'seed'
    """

    def __init__(self, field: str, problem: str, other: str | None = None) -> None:
        super().__init__(field, problem, other)  # the arguments that unpickling calls it with
        self.field = field
        self.problem = problem
        self.other = other

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


#: Options whose names differ from the argument's.
_FLAGS = {
    "traces": "trace",
    "schemes": "scheme",
    "mixes": "mix",
    "queues": "queue",
    "transports": "transport",
    "recordings": "traces",
}


def not_utf8(error: UnicodeEncodeError) -> str:
    """The problem with a name that Python could not pass on, such as a path with bytes of another encoding."""
    return f"`{error.object}` is not UTF-8: use another name"


def flag_of(field: str) -> str:
    """The command-line option for an argument of the Python API.

    Example:
        >>> flag_of("queues"), flag_of("duration_s"), flag_of("ack_delay_ms")
        ('--queue', '--duration', '--ack-delay-ms')
        >>> flag_of("changes[0].rate_mbps")
        '--changes[0].rate_mbps'
    """
    option, bracket, inner = field.partition("[")
    return "--" + _FLAGS.get(option, option).removesuffix("_s").replace("_", "-") + bracket + inner


def in_flags(error: FieldError) -> str:
    """An error whose arguments are written as flags.

    Example:
        >>> in_flags(FieldError("packet_bytes", "must be at most 1400 beside light_trace, not 1500", "light_trace"))
        '--packet-bytes: must be at most 1400 beside --light-trace, not 1500'
        >>> in_flags(FieldError("delay_ms", "must be left out beside delay_series, not `delay_series`", "delay_series"))
        '--delay-ms: must be left out beside --delay-series, not `delay_series`'
    """
    # The first one: the value behind it may contain the same text.
    problem = error.problem.replace(error.other, flag_of(error.other), 1) if error.other else error.problem
    return f"{flag_of(error.field)}: {problem}"


def near(word: str, names: Iterable[str]) -> str:
    """The nearest of `names`, to follow a statement; empty if there is none. `word` may be the end of a name.

    Example:
        >>> near("comapre", ["compare", "report"]), near("x", ["compare"])
        ('; did you mean `compare`?', '')
        >>> near("fig99", ["sigcomm-fig09", "cs244"])
        '; did you mean `sigcomm-fig09`?'
    """
    import difflib  # here: it takes time, and only mistyped words need it

    def likeness(name: str) -> float:
        typed = word.lower()
        return max(
            difflib.SequenceMatcher(None, typed, part.lower()).ratio() for part in (name, name.rpartition("-")[2])
        )

    close = {name: likeness(name) for name in names}
    best = sorted((name for name in close if close[name] >= 0.6), key=lambda name: -close[name])
    meant = [f"`{name}`" for name in best[:3] if close[name] == close[best[0]]]
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def near_or_all(word: str, names: Iterable[str]) -> str:
    """The nearest of `names`; without one, all of them if they are few.

    Example:
        >>> near_or_all("x", ["compare", "report"]), near_or_all("x", map(str, range(100)))
        ('; there are compare, report', '')
    """
    listed = list(names)
    return near(word, listed) or (f"; there are {', '.join(listed)}" if len(listed) < _MANY else "")


#: From this number on, names are too many for a line.
_MANY = 40


def shown(value: object) -> str:
    """A value of a file for a message, shortened to a part of a line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "…"
