"""The inputs of a run beside its scenario: the files that the scenario names.

Rust's schema of a scenario says which fields name a channel, a file or a scheme; the list of
schemes says which keys name a file. Stored outcomes, runs on a cluster and the digests in a
`run.json` all use `respelt`, so each of them handles a new field.
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

#: Returns the replacement for a file in a scenario, from the text there and the file's path.
Put = Callable[[str, Path], str]

#: The type, in the list of schemes, of a key that names a file.
_PATH = "path"


def respelt(scenario: Mapping[str, Any], put: Put) -> dict[str, Any]:
    """The scenario with each file that it names replaced.

    Raises:
        OSError: A channel's file cannot be read.
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

    respelt_scenario: dict[str, Any] = walk(SCHEMA, scenario)
    return respelt_scenario


def files_of(scenario: Mapping[str, Any]) -> dict[str, Path]:
    """The files that a run needs: their paths, by the text in the scenario.

    Raises:
        OSError: A channel's file cannot be read.
        ValueError: A channel is unknown.
    """
    paths: dict[str, Path] = {}

    def put(text: str, path: Path) -> str:
        paths[text] = path
        return text

    respelt(scenario, put)
    return paths


def cut_warnings(scenarios: Iterable[Mapping[str, Any]]) -> list[str]:
    """Warnings about channels and series of scenarios whose last line has no newline, so that it may be cut off.

    Raises:
        OSError: A channel's file cannot be read.
        ValueError: A channel is unknown.
    """
    paths = (path for scenario in scenarios for path in files_of({**scenario, "flows": []}).values())
    return [warning for path in dict.fromkeys(paths) if (warning := _verus.cut_warning(path))]


def digests(runs: Iterable[Run]) -> dict[str, str]:
    """The SHA-256 of each file that the runs needed, by the text in their scenarios.

    Files that no longer exist are left out, such as a model that an experiment trained for itself.

    Raises:
        OSError: One cannot be read.
        ValueError: A channel is unknown.
    """
    paths = {text: path for run in runs for text, path in files_of(run.scenario).items()}
    return {text: digest_of(path) for text, path in sorted(paths.items()) if path.exists()}


class Digests:
    """The SHA-256 of files, each read once, for a span in which no file may change."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """The SHA-256 of a file.

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
            RuntimeError: It changed, or no longer exists.
        """
        try:
            now = digest_of(path)
        except (OSError, ValueError):
            now = ""
        if now != self._known[path]:
            raise RuntimeError(f"`{path}` changed while runs read it: let it be, and give the command again")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file; for a Python file that imports others beside it, a digest of all of them and their names.

    Raises:
        OSError: It cannot be read.
    """
    digest = _digest_of_one(path)
    others = {name: _digest_of_one(other) for name, other in imported(path).items()}
    return hashlib.sha256(json.dumps([digest, others], sort_keys=True).encode()).hexdigest() if others else digest


def _digest_of_one(path: Path) -> str:
    if _verus.is_given_pipe(path):
        return hashlib.sha256(content(path)).hexdigest()
    limit = MOST_SOURCE if path.suffix == ".py" else bounded_reading.MOST_UNPACKED
    with bounded_reading.opened(path, limit) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def content(path: Path) -> bytes:
    """The content of a file that a run names, which may be a pipe that this process was given.

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
    channel = json.loads(_verus.check_channel(text))
    if "parts" not in channel:
        return put(text, Path(channel["path"])) if channel.get("path") else text
    parts = []
    for part, written in zip(channel["parts"], text.split("+"), strict=True):
        path = part["channel"].get("path")
        parts.append(put(part["text"], Path(path)) + written.removeprefix(part["text"]) if path else written)
    return "+".join(parts)


def _scheme(text: str, put: Put) -> str:
    """A scheme's text: it names a file if it is a class in Python, or in a key that takes a path.

    Example:
        >>> _scheme("model:file=a.model,walk=paper", lambda *_: "moved"), _scheme("cubic", lambda *_: "moved")
        ('model:file=moved,walk=paper', 'cubic')
    """
    head, colon, rest = text.partition(":")
    if head.strip().endswith(".py"):
        head, (name, colon_2, keys) = put(head.strip(), Path(head.strip())), rest.partition(":")
        return head + colon + name + colon_2 + _values(keys, lambda _, value: _may_be_read(value), put)
    keys_of_files = _path_keys().get(head.strip(), frozenset())
    return head + colon + _values(rest, lambda key, _: key in keys_of_files, put)


def _values(text: str, is_file: Callable[[str, str], bool], put: Put) -> str:
    """`key=value,…` with files replaced."""
    parts = []
    for part in text.split(","):
        key, sign, value = part.partition("=")
        named = value.strip()
        parts.append(key + sign + put(named, Path(named)) if sign and is_file(key.strip(), named) else part)
    return ",".join(parts)


def _may_be_read(value: str) -> bool:
    """Whether the value of a user's own key is an existing file, which their class may read; numbers are not."""
    return not value.replace(".", "").isdecimal() and Path(value).is_file()


@cache
def _path_keys() -> Mapping[str, frozenset[str]]:
    """The keys of each scheme that name a file."""
    return {
        entry["name"]: frozenset(key["key"] for key in entry["keys"] if key["unit"].startswith(_PATH))
        for entry in json.loads(_verus.list_schemes())
    }


#: The function that respells a text, by the kind of its name.
_RESPELL: Mapping[str | None, Callable[[str, Put], str]] = {
    "channel": _channel,
    "file": lambda text, put: put(text, Path(text)),
    "scheme": _scheme,
}
