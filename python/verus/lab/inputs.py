"""What a run depends on beside its scenario: the files that this names.

Which fields of a scenario name a channel, a file or a scheme stands in its schema, which Rust states, and which keys of
a scheme name a file in the list of schemes. Stored outcomes, what a cluster is sent and the digests in a `run.json` all
go by `respelt`, so that a new field is known to each of them.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from verus import _verus
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
            OSError: It cannot be read.
        """
        if path not in self._known:
            self._known[path] = digest_of(path)
        return self._known[path]


def digest_of(path: Path) -> str:
    """SHA-256 of a file; of a Python file that imports others beside it, of all their names and digests.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        own = hashlib.file_digest(file, "sha256").hexdigest()
    others = {name: hashlib.sha256(other.read_bytes()).hexdigest() for name, other in imported(path).items()}
    return hashlib.sha256(json.dumps([own, others], sort_keys=True).encode()).hexdigest() if others else own


def imported(path: Path) -> dict[str, Path]:
    """The modules beside a Python file that it imports, and that these import: where each lies, by its path from there.

    Raises:
        OSError: One cannot be read.
    """
    found: dict[str, Path] = {}
    left = [path] if path.suffix == ".py" else []
    while left:
        for name in _names_imported(left.pop(), path.parent):
            parts = name.split(".")
            # To import `a.b` is to import `a` first.
            for module in (path.parent.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)):
                for file in (module.with_suffix(".py"), module / "__init__.py"):
                    own = file.relative_to(path.parent).as_posix()
                    if file != path and own not in found and file.is_file():
                        found[own] = file
                        left.append(file)
    return dict(sorted(found.items()))


def _names_imported(file: Path, root: Path) -> Iterator[str]:
    """The modules that a file names in imports, from `root`; those of a file that is not Python are none."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    package = file.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            before = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*before, *filter(None, [node.module])))
            # What is imported from a package may be a module of it.
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*" or module)


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
