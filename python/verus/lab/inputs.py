"""The inputs of a run beside its scenario: the files that the scenario names.

Rust's schema of a scenario says which fields name a channel, a file or a scheme, and Rust finds
the files in their texts. Stored outcomes, runs on a cluster and the digests in a
`run.json` all use `respelt`, so each of them handles a new field.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from verus import _verus
from verus.controller import MOST_SOURCE, imported
from verus.lab import bounded_reading
from verus.lab.scenario import SCHEMA, Run

#: Returns the replacement for a file in a scenario, from the text there and the file's path.
Put = Callable[[str, Path], str]

#: Finds the files that a text names (`_verus.named_files`).
Find = Callable[[str, str], list[tuple[int, int, Path]]]


def respelt(scenario: Mapping[str, Any], put: Put, find: Find = _verus.named_files) -> dict[str, Any]:
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
        kind = rule.get("x-names", "nothing")
        named = isinstance(value, str) and kind != "nothing" and value not in rule.get("x-words", ())
        return _respelt(kind, value, put, find) if named else value

    respelt_scenario: dict[str, Any] = walk(SCHEMA, scenario)
    return respelt_scenario


def _respelt(kind: str, text: str, put: Put, find: Find = _verus.named_files) -> str:
    """A text with each file that it names replaced.

    Example:
        >>> _respelt("channel", "city-driving-3g-up@3[0:9]", lambda *_: "moved")
        'city-driving-3g-up@3[0:9]'
        >>> _respelt("scheme", "model:file=a.model,walk=paper", lambda *_: "moved")
        'model:file=moved,walk=paper'
    """
    pieces, end = [], 0
    for begin, after, path in find(kind, text):
        pieces += [text[end:begin], put(text[begin:after].strip(), Path(path))]
        end = after
    return "".join(pieces) + text[end:]


def with_names(outcome: Mapping[str, Any], scenario: Mapping[str, Any]) -> Mapping[str, Any]:
    """The outcome of a respelt scenario with the channel names of the original scenario."""
    others = outcome["other_channels"].items()
    return {
        **outcome,
        "trace": {**outcome["trace"], "name": scenario["trace"]},
        "other_channels": {field: {**channel, "name": scenario[field]} for field, channel in others},
    }


def files_of(scenarios: Iterable[Mapping[str, Any]]) -> dict[str, Path]:
    """The files that runs need: their paths, by the text in the scenarios.

    Raises:
        OSError: A channel's file cannot be read.
        ValueError: A channel is unknown.
    """
    paths: dict[str, Path] = {}

    def put(text: str, path: Path) -> str:
        paths[text] = path
        return text

    find = functools.cache(_verus.named_files)
    for scenario in scenarios:
        respelt(scenario, put, find)
    return paths


def cut_warnings(scenarios: Iterable[Mapping[str, Any]]) -> list[str]:
    """Warnings about channels and series of scenarios whose last line has no newline, so that it may be cut off.

    Raises:
        OSError: A channel's file cannot be read.
        ValueError: A channel is unknown.
    """
    paths = files_of({**scenario, "flows": []} for scenario in scenarios).values()
    return [warning for path in dict.fromkeys(paths) if (warning := _verus.cut_warning(path))]


def digests(runs: Iterable[Run]) -> dict[str, str]:
    """The SHA-256 of each file that the runs needed, by the text in their scenarios.

    Files that no longer exist are left out, such as a model that an experiment trained for itself.

    Raises:
        OSError: One cannot be read.
        ValueError: A channel is unknown.
    """
    paths = sorted(files_of(run.scenario for run in runs).items())
    return {text: digest_of(path) for text, path in paths if path.exists()}


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
