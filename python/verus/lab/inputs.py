"""What a run depends on beside its scenario: the files that this names.

Which fields of a scenario name a channel, a file or a scheme stands in its schema, which Rust states, and which keys of
a scheme name a file in the list of schemes. Stored outcomes, what a cluster is sent and the digests in a `run.json` all
go by `respelt`, so that a new field is known to each of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from verus import _verus
from verus.controller import MOST_SOURCE, imported
from verus.lab import bounded_reading
from verus.lab.scenario import SCHEMA, Run

#: What is to stand in place of a file, given what stands there and where it lies.
Put = Callable[[str, Path], str]

#: What stands before the unit of a scheme's key that names a file.
_PATH = "path"


def respelt(scenario: Mapping[str, Any], put: Put) -> dict[str, Any]:
    """The scenario with something else in place of each file that it names.

    Raises:
        OSError: A channel's cannot be read.
        ValueError: A channel is unknown.
    """

    def walk(rule: Mapping[str, Any], value: Any) -> Any:
        if "$ref" in rule:
            rule = SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]]
        if isinstance(value, Mapping):
            return {name: walk(rule["properties"].get(name, {}), inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [walk(rule["items"], inner) for inner in value]
        respell = _RESPELL.get(rule.get("x-names"))
        return value if respell is None or value is None or value in rule.get("x-words", ()) else respell(value, put)

    found: dict[str, Any] = walk(SCHEMA, scenario)
    return found


def files_of(scenario: Mapping[str, Any]) -> dict[str, Path]:
    """The files that a run needs: what stands in its scenario for each, and where it lies.

    Raises:
        OSError: A channel's cannot be read.
        ValueError: A channel is unknown.
    """
    found: dict[str, Path] = {}

    def put(text: str, path: Path) -> str:
        found[text] = path
        return text

    respelt(scenario, put)
    return found


def digests(runs: Iterable[Run]) -> dict[str, str]:
    """The SHA-256 of each file that the runs needed, by what stands for it in their scenarios.

    A model that an experiment trained for itself is no more by then.

    Raises:
        OSError: One cannot be read.
        ValueError: A channel is unknown.
    """
    found = {text: path for run in runs for text, path in files_of(run.scenario).items()}
    return {text: digest_of(path) for text, path in sorted(found.items()) if path.exists()}


class Digests:
    """The SHA-256 of files, each of which is read once: for as long as nothing is to have changed."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """A file's.

        Raises:
            ValueError: It cannot be read.
        """
        if path not in self._known:
            try:
                self._known[path] = digest_of(path)
            except OSError as error:
                raise ValueError(f"cannot read `{path}`: {error.strerror}") from error
        return self._known[path]

    def check(self, path: Path) -> None:
        """Reads a file again.

        Raises:
            RuntimeError: It is not what it was, or no more.
        """
        try:
            now = digest_of(path)
        except (OSError, ValueError):
            now = ""
        if now != self._known[path]:
            raise RuntimeError(f"`{path}` changed while runs read it: let it be, and give the command again")


def digest_of(path: Path) -> str:
    """SHA-256 of a file; of a Python file that imports others beside it, of all their names and digests.

    Raises:
        OSError: It cannot be read.
    """
    own = _digest_of_one(path)
    others = {name: _digest_of_one(other) for name, other in imported(path).items()}
    return hashlib.sha256(json.dumps([own, others], sort_keys=True).encode()).hexdigest() if others else own


def _digest_of_one(path: Path) -> str:
    if _verus.is_given_pipe(path):
        return hashlib.sha256(content(path)).hexdigest()
    most = MOST_SOURCE if path.suffix == ".py" else bounded_reading.MOST_UNPACKED
    with bounded_reading.opened(path, most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def content(path: Path) -> bytes:
    """What a file holds that a run names, which may be a pipe that this process was given.

    Raises:
        OSError, ValueError: As `bounded_reading.opened`.
    """
    return bounded_reading.given(path, bounded_reading.MOST_UNPACKED)


def _channel(text: str, put: Put) -> str:
    """A channel's text: a name, or several with stretches, joined.

    Example:
        >>> _channel("rate:5", lambda *_: "moved"), _channel("city-driving-3g-up@3[0:9]", lambda *_: "moved")
        ('rate:5', 'city-driving-3g-up@3[0:9]')
    """
    found = json.loads(_verus.check_channel(text))
    if "parts" not in found:
        return put(text, Path(found["path"])) if found.get("path") else text
    parts = []
    for part, written in zip(found["parts"], text.split("+"), strict=True):
        path = part["channel"].get("path")
        parts.append(put(part["text"], Path(path)) + written.removeprefix(part["text"]) if path else written)
    return "+".join(parts)


def _scheme(text: str, put: Put) -> str:
    """A scheme's text: a class in Python is a file, and so is what a key names that has a path.

    Example:
        >>> _scheme("model:file=a.model,walk=paper", lambda *_: "moved"), _scheme("cubic", lambda *_: "moved")
        ('model:file=moved,walk=paper', 'cubic')
    """
    head, colon, rest = text.partition(":")
    if head.strip().endswith(".py"):
        head, (name, colon_2, keys) = put(head.strip(), Path(head.strip())), rest.partition(":")
        return head + colon + name + colon_2 + _values(keys, lambda _, value: _may_be_read(value), put)
    known = _path_keys().get(head.strip(), frozenset())
    return head + colon + _values(rest, lambda key, _: key in known, put)


def _values(text: str, is_file: Callable[[str, str], bool], put: Put) -> str:
    """`key=value,…` with something else in place of files."""
    parts = []
    for part in text.split(","):
        key, sign, value = part.partition("=")
        named = value.strip()
        parts.append(key + sign + put(named, Path(named)) if sign and is_file(key.strip(), named) else part)
    return ",".join(parts)


def _may_be_read(value: str) -> bool:
    """Whether a value of a user's own key is a file that there is, which their class may read; no number is."""
    return not value.replace(".", "").isdecimal() and Path(value).is_file()


@cache
def _path_keys() -> Mapping[str, frozenset[str]]:
    """The keys of each scheme that name a file."""
    return {
        entry["name"]: frozenset(key["key"] for key in entry["keys"] if key["unit"].startswith(_PATH))
        for entry in json.loads(_verus.list_schemes())
    }


#: How a text is spelt anew, by what it names.
_RESPELL: Mapping[str | None, Callable[[str, Put], str]] = {
    "channel": _channel,
    "file": lambda text, put: put(text, Path(text)),
    "scheme": _scheme,
}
