"""Writes the reference pages of the site into a folder, from the code: commands, Python, scenarios, names.

    python scripts/reference.py FOLDER     # part of `make site`

They are not in the repository, so they always match the version of the code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import verus
from verus import _verus, cli
from verus.commands.app import app
from verus.commands.catalogue import PARTS, _range
from verus.endpoints.program import ENDPOINT_VERBS, find_endpoint
from verus.lab.scenario import SCHEMA
from verus.report import notebook

#: Columns of help texts and signatures, which a page shows without scrolling.
WIDTH = 80


def commands() -> str:
    """Each verb, with the output of its `--help`."""
    parts = ["# Commands", "What `verus VERB --help` prints, for every verb."]
    for words in verbs():
        level = "#" * (len(words) + 1)
        parts.append(f"{level} verus {' '.join(words)}\n\n```text\n{help_of(words).strip()}\n```")
    return "\n\n".join(parts) + "\n"


def verbs() -> Iterator[tuple[str, ...]]:
    """Every verb, each followed by the verbs below it."""
    for verb in (name for name in app if not name.startswith("-")):
        yield (verb,)
        if verb in ENDPOINT_VERBS:
            yield from below_at_endpoint((verb,))
        else:
            yield from ((verb, name) for name in app[verb] if not name.startswith("-"))


def below_at_endpoint(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The verbs below one of `verus-endpoint`, as its help lists them."""
    listed = re.search(r"^(?:Commands|Verbs):\n((?:  .*\n)+)", help_of(words), flags=re.MULTILINE)
    for name in re.findall(r"^  (\w[\w-]*)", listed[1], flags=re.MULTILINE) if listed else ():
        if name != "help":
            yield (*words, name)
            yield from below_at_endpoint((*words, name))


@functools.cache
def help_of(words: tuple[str, ...]) -> str:
    """The output of `--help`, without colours."""
    if words[0] not in ENDPOINT_VERBS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            cli.run([*words, "--help"])
        return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())
    binary, looked = find_endpoint()
    if binary is None:
        sys.exit(f"verus-endpoint is not in {looked}: `make build` makes it")
    return subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True).stdout


def python() -> str:
    """The package's exports, with signatures and docstrings."""
    head = (
        "# Python\n\n```python\nfrom verus import (\n" + "".join(f"    {name},\n" for name in verus.__all__) + ")\n```"
    )
    exported = {name: getattr(verus, name) for name in verus.__all__}
    parts = [head, *(described(name, what) for name, what in exported.items())]
    parts.append(described("verus.report.notebook.Plot", notebook.Plot))
    return "\n\n".join(parts) + "\n"


def described(name: str, what: Any, level: int = 2) -> str:
    """A class with its members, or a function."""
    parts = [f"{'#' * level} {name}"]
    if callable(what) and not (
        inspect.isclass(what) and issubclass(what, dict)
    ):  # whose signature is that of any dictionary
        parts.append(f"```python\n{signature(name.rpartition('.')[2], what)}\n```")
    parts.append(from_docstring(inspect.getdoc(what) or ""))
    if inspect.isclass(what):
        fields = {field.name for field in dataclasses.fields(what)} if dataclasses.is_dataclass(what) else set()
        for member, value in vars(what).items():
            inner = getattr(value, "__func__", value)
            if not member.startswith("_") and member not in fields and (inner.__doc__ or "").strip():
                parts.append(described(f"{name}.{member}", inner, level + 1))
    return "\n\n".join(parts)


def signature(name: str, what: Any) -> str:
    """Its call, an argument a line where there are several."""
    parameters_of = inspect.signature(what)
    shown: list[str] = []
    kind = None
    for entry in parameters_of.parameters.values():
        if entry.name in ("self", "cls"):
            continue
        if entry.kind is entry.KEYWORD_ONLY and kind is not entry.KEYWORD_ONLY:
            shown.append("*")
        kind = entry.kind
        stars = {entry.VAR_POSITIONAL: "*", entry.VAR_KEYWORD: "**"}.get(kind, "")
        annotation = "" if entry.annotation is entry.empty else f": {entry.annotation}"
        has_default = entry.default is not entry.empty and "factory" not in repr(entry.default)
        default = f" = {entry.default!r}" if has_default else ""
        shown.append(f"{stars}{entry.name}{annotation}{default}")
    gives = (
        ""
        if parameters_of.return_annotation in (parameters_of.empty, None, "None")
        else f" -> {parameters_of.return_annotation}"
    )
    line = f"{name}({', '.join(shown)}){gives}"
    return line if len(line) <= WIDTH else f"{name}(\n" + "".join(f"    {entry},\n" for entry in shown) + f"){gives}"


def from_docstring(text: str) -> str:
    """A docstring in Google's convention as Markdown."""
    text = re.sub(r"``([^`]*)``", r"`\1`", text)
    parts: list[str] = []
    for part in re.split(r"\n\n(?=\S)", text):
        head, _, rest = part.partition("\n")
        if re.fullmatch(r"(Args|Attributes|Raises|Returns|Example):", head):
            body = textwrap.dedent(rest).strip("\n")
            parts.append(f"**{head[:-1]}**\n\n{SECTIONS.get(head, listed)(body)}")
        elif part.startswith("    ") or part.startswith(">>>"):
            parts.append(f"```python\n{textwrap.dedent(part)}\n```")
        else:
            parts.append(part)
    return "\n\n".join(parts)


def listed(body: str) -> str:
    """Names with their meanings, as a list."""
    entries = re.split(r"\n(?=\S)", body)
    lines = []
    for entry in entries:
        name, _, meaning = " ".join(entry.split()).partition(": ")
        lines.append(f"- `{name}`: {meaning}")
    return "\n".join(lines)


#: Sections of a docstring that are no list of names.
SECTIONS: Mapping[str, Callable[[str], str]] = {
    "Example:": lambda body: f"```python\n{body}\n```",
    "Returns:": lambda body: " ".join(body.split()),
}


def scenario() -> str:
    """The fields of a scenario, with ranges and defaults."""
    parts = [
        "# Scenarios",
        "What the simulator runs, as plain data: `run.json` of results has one for each run, and Rust, Python and the "
        "command line all write the same. `verus list scenario --json` prints the JSON Schema of this page.",
    ]
    for title, rule in {
        "Scenario": SCHEMA,
        **{f"One of {name}": SCHEMA["$defs"][of] for name, of in PARTS.items()},
    }.items():
        rows = [
            (f"`{name}`", kind_of(field), default_of(field), _range(field), field["description"])
            for name, field in rule["properties"].items()
        ]
        parts.append(
            f"## {title}\n\n{rule['description'].partition(chr(10) + chr(10))[0]}\n\n"
            + table(("field", "type", "default", "range", "meaning"), rows)
        )
    return "\n\n".join(parts) + "\n"


def kind_of(rule: Mapping[str, Any]) -> str:
    """The type of a field, in the terms of JSON."""
    if "$ref" in rule or "type" not in rule:
        return "object"
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    return " or ".join(kinds)


def default_of(rule: Mapping[str, Any]) -> str:
    """The default of a field as JSON; a list of objects is too long for a cell."""
    default = rule.get("default")
    return "" if default is None or isinstance(default, list) else f"`{json.dumps(default)}`"


def names() -> str:
    """Schemes, queues, traffic and channels, with their keys."""
    parts = ["# Schemes, queues, traffic, channels", "What `verus list` prints: everything that has a name."]
    kinds = [name.removeprefix("list_") for name in vars(_verus) if name.startswith("list_")]
    kinds.sort(key=lambda kind: (kind != "schemes", kind != "queues", kind))
    lists = {kind.capitalize(): getattr(_verus, f"list_{kind}") for kind in kinds if kind != "channels"}
    for title, give in lists.items():
        parts.append(f"## {title}")
        for entry in give():
            parts.append(f"### {entry['name']}\n\n{entry['summary']}")
            rows = [
                (f"`{key['key']}`", shown(key.get("default")), key.get("unit") or "", key.get("meaning") or "")
                for key in entry["keys"]
            ]
            if rows:
                parts.append(table(("key", "default", "unit", "meaning"), rows))
    rows = [
        (
            f"`{entry['name']}`",
            entry["kind"],
            "" if (mean := entry.get("mean_mbps")) is None else f"{mean:.2f}",
            entry["summary"],
        )
        for entry in _verus.list_channels()
    ]
    parts.append("## Channels\n\n" + table(("channel", "kind", "Mbit/s", "what it is"), rows))
    return "\n\n".join(parts) + "\n"


def shown(value: Any) -> str:
    """A default in a cell."""
    return "" if value is None else f"`{value}`"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heads), "|" + "---|" * len(heads), *map(line, rows)])


#: The pages, by file name.
PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands,
    "python.md": python,
    "scenario.md": scenario,
    "names.md": names,
}


def write(folder: Path) -> None:
    """Writes every page."""
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1", TERM="dumb")
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
