"""A verb's help as plain text, in the form of the endpoint's help."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verus.report.printable import escaped

if TYPE_CHECKING:
    from cyclopts import App
    from rich.console import Console, ConsoleOptions

#: The longest line, however wide the terminal is.
_WIDEST = 110


class PlainHelp:
    """Prints a verb's purpose, usage and arguments."""

    def __init__(self) -> None:
        self._usage = ""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Keeps the usage until the description is printed."""
        self._usage = str(usage).strip()

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Prints the description, then the usage."""
        for paragraph in _plain(description).strip().split("\n\n"):
            print(textwrap.fill(" ".join(paragraph.split()), _width()))
            print()
        if self._usage:
            print(f"Usage: {self._usage}\n")
            self._usage = ""

    def __call__(self, console: Console, options: ConsoleOptions, panel: Any) -> None:
        """Prints a list of arguments, options or verbs."""
        described = [(name(entry), about(entry)) for entry in panel.entries]
        lists = {"Arguments": [], "Options": []} if panel.format == "parameter" else {"Verbs": described}
        for entry, row in zip(panel.entries, described, strict=True):
            if panel.format == "parameter":
                lists["Arguments" if entry.positional_label else "Options"].append(row)
        indent = min(max((len(named) for named, _ in described), default=0), 26) + 4
        for title, rows in lists.items():
            if not rows:
                continue
            print(f"{title}:")
            for named, said in rows:
                lines = textwrap.wrap(said, _width() - indent) or [""]
                if len(named) > indent - 4:
                    print(f"  {named}")
                else:
                    lines[0] = f"  {named:{indent - 4}}  {lines[0]}"
                    print(lines.pop(0).rstrip())
                for line in lines:
                    print(f"{'':{indent}}{line}")
            print()


def _width() -> int:
    return min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)


def synopsis(words: Sequence[str], app: App) -> str:
    """The usage of a verb: `<FILE>` is required, `[NAME]...` may be none, one or several."""
    taken = [entry for entry in app.assemble_argument_collection() if entry.show] if app.default_command else []
    options = [entry for entry in taken if entry.index is None]
    called = ["verus", *words]
    if any(not word.startswith("-") for word in app):
        called.append("<VERB>")
    called += [f"{entry.name} <{entry.parameter.metavar}>" for entry in options if entry.required]
    if not all(entry.required for entry in options):
        called.append("[OPTIONS]")
    for entry in taken:
        if entry.index is not None:
            _, several = entry.token_count()
            called.append((f"<{entry.name}>" if entry.required else f"[{entry.name}]") + ("..." if several else ""))
    return " ".join(called)


def name(entry: Any) -> str:
    """All names of an option and its placeholder, or the name of an argument."""
    if entry.positional_label:
        return f"<{entry.positional_label.rstrip('.')}>{'...' if entry.positional_label.endswith('...') else ''}"
    names = ", ".join([*entry.positive_shorts, *entry.positive_names, *entry.negative_names])
    if not entry.metavar:
        return names if entry.positive_shorts or not entry.positive_names else f"    {names}".strip()
    several = "..." if entry.metavar.endswith("...") else ""
    return f"{names} <{entry.metavar.removesuffix('...')}>{several}"


def about(entry: Any) -> str:
    """The description and the default."""
    text = " ".join(_plain(entry.description).split()).removesuffix(".")
    text = re.sub(r"\.? Default: (.+)$", r" [default: \1]", text)
    return text if entry.default is None else f"{text} [default: {entry.default}]"


def _plain(text: Any) -> str:
    """The text of a styled description, with its paragraphs separate."""
    if text is None:
        return ""
    inner = getattr(text, "primary_renderable", text)
    return "\n".join(map(escaped, str(getattr(inner, "plain", inner)).split("\n")))
